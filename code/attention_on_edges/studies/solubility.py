"""Chapter 14's study: how soluble is a molecule? Attention along its bonds, and a virtual node."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from attention_on_edges.corpora.graph_data import Molecule, load_rdkit, molecules
from attention_on_edges.runs.fitting import FitConfig, FitRun, Part, fit
from edgewise import GraphAttention, GraphTransformerLayer
from edgewise.graphs import AttentionGraph, batch

INTO, BOTH = "bonds into a virtual node", "bonds and a virtual node"
BONDS, *_, ALONE = KINDS = "bonds", INTO, BOTH, "each atom alone"
"""Who attends to whom: the second's virtual node receives from all atoms and sends to none."""
WALK = 16
"""Steps of random walks whose chances to return are an atom's position."""
TYPICAL = 16
"""Atoms of a molecule: sums of states are divided by it. A mean could not count them, nor can attention."""

SELF, VIRTUAL = 0, 5
"""Classes of pairs: an atom and itself, four kinds of bonds, an atom and the virtual node."""
CLASSES = 6

SALICIN = "OCC2OC(Oc1ccccc1CO)C(O)C(O)C2O"
"""A sugar and a ring of carbon, of willow bark; in the test split."""

SIZES = (100, 8, 8, 2, 8)
"""Values of each property of an atom: protons, charge (from -3), hydrogens, aromatic, bonds."""


class Pairs(NamedTuple):
    """A molecule's graph of one kind: the class of each edge, and its atoms' properties and positions."""

    graph: AttentionGraph
    classes: Tensor
    atoms: Tensor
    walks: Tensor
    solubility: float


class MoleculeBatch(NamedTuple):
    """Graphs side by side: classes [E], atoms int64 [n, 5], walks [n, WALK], owner [n], answers."""

    graph: AttentionGraph
    classes: Tensor
    atoms: Tensor
    walks: Tensor
    owner: Tensor
    answers: Tensor


def pairs_of(molecule: Molecule, kind: str) -> Pairs:
    """Return a molecule's graph: which atoms attend to which, and what is known of each pair."""
    n = len(molecule.atoms)
    kinds = torch.zeros(n, n, dtype=torch.int64)
    for a, b, bond in molecule.bonds:
        kinds[a, b] = kinds[b, a] = bond
    bonded = kinds > 0
    exists, classes = torch.eye(n, dtype=torch.bool) | (bonded & (kind != ALONE)), kinds
    atoms = torch.tensor([(p, c + 3, h, a, d) for p, c, h, a, d in molecule.atoms])
    walks = return_chances(bonded)
    if kind in (INTO, BOTH):
        exists, classes = (
            nn.functional.pad(x, (0, 1, 0, 1), value=v) for x, v in ((exists, 1), (classes, VIRTUAL))
        )
        classes[n, n] = SELF
        exists[:n, n] = kind == BOTH
        atoms, walks = nn.functional.pad(atoms, (0, 0, 0, 1)), nn.functional.pad(walks, (0, 0, 0, 1))
    graph = AttentionGraph.from_mask(exists, self_attention=True)
    return Pairs(graph, graph.gather(classes), atoms, walks, molecule.solubility)


def return_chances(bonded: Tensor) -> Tensor:
    """Return the chances that a random walk is back after 1 to WALK steps: bool [n, n] to [n, WALK]."""
    step = bonded / bonded.sum(1, keepdim=True).clamp(min=1)
    chances, power = [], torch.eye(len(bonded))
    for _ in range(WALK):
        power = power @ step
        chances.append(power.diagonal())
    return torch.stack(chances, 1)


def side_by_side(chosen: Sequence[Pairs]) -> MoleculeBatch:
    """Make one graph of several."""
    counts = torch.tensor([len(one.atoms) for one in chosen])
    return MoleculeBatch(
        batch([one.graph for one in chosen]),
        torch.cat([one.classes for one in chosen]),
        torch.cat([one.atoms for one in chosen]),
        torch.cat([one.walks for one in chosen]),
        torch.arange(len(chosen)).repeat_interleave(counts),
        torch.tensor([one.solubility for one in chosen]),
    )


class MoleculeModel(nn.Module):
    """Embeddings of properties and positions, layers of attention, and what is read of a molecule's atoms.

    ``readout`` names one or two of: their sum, their mean, what a learned query finds by attention to them,
    and the virtual node's state. What is known of a pair is an attribute of its edge, which adds to key and
    value.
    """

    def __init__(
        self, mean: float, scale: float, readout: str = "sum", depth: int = 4, dim: int = 64, heads: int = 4
    ):
        super().__init__()
        self.mean, self.scale, self.readouts = mean, scale, readout.split(" and ")
        self.fields = nn.ModuleList(nn.Embedding(size, dim) for size in SIZES)
        self.walks = nn.Linear(WALK, dim)
        self.layers = nn.ModuleList(
            GraphTransformerLayer(dim, heads, 2 * dim, dropout=0.1, edge_dim=CLASSES) for _ in range(depth)
        )
        self.out = nn.Sequential(nn.Linear(len(self.readouts) * dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        if "attention" in self.readouts:
            self.query, self.pool = nn.Parameter(torch.randn(1, dim)), GraphAttention(dim, heads)

    def forward(self, found: MoleculeBatch) -> Tensor:
        """Return the solubility of each molecule."""
        x = self.walks(found.walks)
        for field, values in zip(self.fields, found.atoms.T, strict=True):
            x = x + field(values)
        attr = one_hot(found.classes, CLASSES).to(x)
        for layer in self.layers:
            x = layer(found.graph, x, edge_attr=attr)
        states = torch.cat([self._read(how, x, found) for how in self.readouts], 1)
        return self.out(states)[:, 0] * self.scale + self.mean

    def _read(self, how: str, x: Tensor, found: MoleculeBatch) -> Tensor:
        """One state for each molecule."""
        count, real = len(found.answers), found.atoms[:, 0] > 0  # a virtual node has no protons
        if how == "node":
            return x[~real]
        atoms, owner = x[real], found.owner[real]
        if how == "attention":
            graph = AttentionGraph(torch.arange(len(owner)), owner, len(owner), count)
            return self.pool(graph, self.query.expand(count, -1), atoms)
        sums = atoms.new_zeros(count, x.shape[1]).index_add(0, owner, atoms)
        return sums / (TYPICAL if how == "sum" else owner.bincount(minlength=count)[:, None])

    def loss(self, found: MoleculeBatch, step: int) -> Tensor:
        """Return the squared error, in units of the training set's variance."""
        return mse_loss(self(found) / self.scale, found.answers / self.scale)


@cache
def split_by_scaffold(seed: int | None = None) -> dict[str, tuple[int, ...]]:
    """Split ESOL's molecules by their Bemis-Murcko scaffolds, as MoleculeNet does: 902, 113 and 113.

    Groups of molecules with one scaffold, the largest first, fill training, then validation, then test. With
    a seed, groups that are no larger than half of the test come in random order after the others, as in
    Chemprop (Yang et al. 2019).
    """
    load_rdkit()
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    groups: dict[str, list[int]] = defaultdict(list)
    for number, molecule in enumerate(molecules()):
        groups[MurckoScaffoldSmiles(smiles=molecule.smiles, includeChirality=False)].append(number)
    total, splits = len(molecules()), dict[str, list[int]](train=[], valid=[], test=[])
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)
    if seed is not None:
        large = [group for group in ordered if 20 * len(group) > total]
        small = ordered[len(large) :]
        order = torch.randperm(len(small), generator=torch.Generator().manual_seed(seed)).tolist()
        ordered = large + [small[i] for i in order]
    for group in ordered:
        if len(splits["train"]) + len(group) <= 0.8 * total:
            splits["train"] += group
        elif len(splits["train"]) + len(splits["valid"]) + len(group) <= 0.9 * total:
            splits["valid"] += group
        else:
            splits["test"] += group
    return {name: tuple(split) for name, split in splits.items()}


@cache
def data_of(kind: str, split: int | None = None) -> dict[str, list[Pairs]]:
    """Return the graphs of one kind by split."""
    return {
        name: [pairs_of(molecules()[i], kind) for i in numbers]
        for name, numbers in split_by_scaffold(split).items()
    }


def measure_molecules(
    training: FitConfig, kind: str, readout: str = "sum", split: int | None = None
) -> dict[str, Any]:
    """Train on graphs of one of ``KINDS``; return each split's error in log mols per litre."""
    data = data_of(kind, split)
    answers = torch.tensor([one.solubility for one in data["train"]])
    make = partial(MoleculeModel, float(answers.mean()), float(answers.std()), readout)
    model, _ = fit(make, partial(batches, data["train"], training.size), training)
    figures = {name: error(model, part) for name, part in data.items()}
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    return figures | ({"drawn": drawn(model, kind)} if training.seed == 0 and split is None else {})


def measure_counts(split: int) -> dict[str, Any]:
    """Predict the training set's mean, and by ridge regression on how often each property and bond occurs.

    The weight of the penalty is chosen on validation.
    """
    found = {
        name: (
            torch.stack([_counts(molecules()[i]) for i in numbers]),
            torch.tensor([molecules()[i].solubility for i in numbers], dtype=torch.float64),
        )
        for name, numbers in split_by_scaffold(split).items()
    }
    features, answers = found["train"]
    middle = answers.mean()

    def errors(weights: Tensor) -> dict[str, float]:
        return {
            name: float((x @ weights + middle - y).square().mean().sqrt()) for name, (x, y) in found.items()
        }

    square = features.T @ features
    tried = [
        errors(
            torch.linalg.solve(square + 10**power * torch.eye(len(square)), features.T @ (answers - middle))
        )
        for power in range(-2, 5)
    ]
    mean = errors(torch.zeros(len(square), dtype=torch.float64))
    return {"mean": mean["test"], **min(tried, key=lambda one: one["valid"])}


def _counts(molecule: Molecule) -> Tensor:
    """How many atoms have each value of each property, how many bonds are of each kind, and one: float64."""
    atoms = torch.tensor([(p, c + 3, h, a, d) for p, c, h, a, d in molecule.atoms])
    counts = [column.bincount(minlength=size) for column, size in zip(atoms.T, SIZES, strict=True)]
    bonds = torch.tensor([kind for *_, kind in molecule.bonds], dtype=torch.int64)
    return torch.cat([*counts, bonds.bincount(minlength=VIRTUAL), torch.ones(1)]).double()


def batches(data: Sequence[Pairs], size: int, generator: torch.Generator) -> Iterator[MoleculeBatch]:
    """Draw batches without end, each molecule once in an epoch."""
    while True:
        for part in torch.randperm(len(data), generator=generator).split(size):
            yield side_by_side([data[i] for i in part.tolist()])


@torch.no_grad()
def error(model: MoleculeModel, data: Sequence[Pairs]) -> float:
    """Return the root of the mean squared error."""
    found = side_by_side(data)
    return float((model(found) - found.answers).square().mean().sqrt())


@torch.no_grad()
def drawn(model: MoleculeModel, kind: str) -> dict[str, Any]:
    """Return what a picture of a molecule needs.

    Returns
    -------
    dict
        ``smiles``, ``elements`` of its atoms, their ``places`` [n, 2], ``bonds``; ``src`` and ``dst`` of this
        kind's edges, and their ``weights`` [layers, heads, E]; ``solubility`` and what is ``predicted``.
    """
    chemistry = load_rdkit()
    molecule = next(one for one in molecules() if one.smiles == SALICIN)
    pairs, table = pairs_of(molecule, kind), chemistry.GetPeriodicTable()
    sketch = chemistry.MolFromSmiles(SALICIN)
    sketch.Compute2DCoords()
    kept: list[Tensor] = []

    def watch(attention: nn.Module, args: tuple[Any, ...], known: dict[str, Any]) -> None:
        kept.append(attention.forward(*args, **known, need_weights=True)[1])

    attentions = [m for m in model.modules() if isinstance(m, GraphAttention)]
    hooks = [one.register_forward_pre_hook(watch, with_kwargs=True) for one in attentions]
    predicted = float(model(side_by_side([pairs])))
    for hook in hooks:
        hook.remove()
    return {
        "smiles": SALICIN,
        "elements": [table.GetElementSymbol(atom[0]) for atom in molecule.atoms],
        "places": sketch.GetConformer().GetPositions()[:, :2].round(2).tolist(),
        "bonds": molecule.bonds,
        "src": pairs.graph.src.tolist(),
        "dst": pairs.graph.dst.tolist(),
        "weights": [[[round(w, 3) for w in head] for head in layer.T.tolist()] for layer in kept],
        "solubility": molecule.solubility,
        "predicted": predicted,
    }


CELLS = (
    *((BONDS, readout) for readout in ("sum", "sum and mean", "sum and attention")),
    *((INTO, readout) for readout in ("node", "sum and node")),
    *((BOTH, readout) for readout in ("sum", "sum and mean", "sum and attention", "node", "sum and node")),
    (ALONE, "sum"),
)
"""Channel and readout. Without edges to the atoms, a virtual node that is not read changes nothing."""

TOLD = (BONDS, "sum"), (BOTH, "sum and node")


def readout_runs() -> Iterator[Part]:
    """Each cell, on five splits by scaffold with three seeds each; and what needs no graph.

    The two that the story tells also run on the split of MoleculeNet, in whose test salicin is.
    """
    for split in range(5):
        yield Part("counts", measure_counts, {"split": split})
    for kind, readout in CELLS:
        for split in [None] * ((kind, readout) in TOLD) + [*range(5)]:
            for seed in range(3):
                settings = {"kind": kind, "readout": readout, "split": split}
                training = FitConfig(1400, 32, 3e-3, seed=seed)
                yield FitRun(f"{kind}: {readout}", measure_molecules, settings, training=training)
