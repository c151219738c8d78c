"""Chapter 14's study: how soluble is a molecule? By counting, by attention along bonds, by each atom alone.

``readouts.json`` also holds models with a virtual node and other readouts, of the commit that it names.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from attention_on_edges.corpora.graph_data import Molecule, load_rdkit, molecules
from attention_on_edges.runs.fitting import FitConfig, FitRun, Part, fit
from edgewise import GraphTransformerLayer
from edgewise.graphs import AttentionGraph, batch

BONDS, ALONE = KINDS = "bonds", "each atom alone"
"""Who attends to whom, besides itself."""
WALK = 16
"""Steps of random walks whose chances to return are an atom's position."""
TYPICAL = 16
"""Atoms of a molecule: sums of states are divided by it. A mean could not count them, nor can attention."""

CLASSES = 6
"""Of pairs: an atom and itself, four kinds of bonds, and one for a virtual node, without which the weights of
the committed runs would not be drawn again."""

SIZES = (100, 8, 8, 2, 8)
"""Values of each property of an atom: protons, charge (from -3), hydrogens, aromatic, bonds."""


class MoleculeBatch(NamedTuple):
    """Molecules' graphs side by side, and what is known of them.

    Classes of edges [E], atoms int64 [n, 5], walks [n, WALK], the owner of each atom [n], and answers.
    """

    graph: AttentionGraph
    classes: Tensor
    atoms: Tensor
    walks: Tensor
    owner: Tensor
    answers: Tensor


def graph_of(molecule: Molecule, kind: str) -> MoleculeBatch:
    """Return a molecule's graph: which atoms attend to which, and what is known of each pair."""
    n = len(molecule.atoms)
    classes = torch.zeros(n, n, dtype=torch.int64)
    for a, b, bond in molecule.bonds:
        classes[a, b] = classes[b, a] = bond
    bonded = classes > 0
    exists = torch.eye(n, dtype=torch.bool) | (bonded & (kind == BONDS))
    graph = AttentionGraph.from_mask(exists, self_attention=True)
    owner, answers = torch.zeros(n, dtype=torch.int64), torch.tensor([molecule.solubility])
    walks = return_chances(bonded)
    return MoleculeBatch(graph, graph.gather(classes), properties(molecule), walks, owner, answers)


def properties(molecule: Molecule) -> Tensor:
    """Return what is known of each atom, int64 [n, 5], each below its size in ``SIZES``."""
    return torch.tensor([(p, c + 3, h, a, d) for p, c, h, a, d in molecule.atoms])


def return_chances(bonded: Tensor) -> Tensor:
    """Return the chances that a random walk is back after 1 to WALK steps: bool [n, n] to [n, WALK]."""
    step = bonded / bonded.sum(1, keepdim=True).clamp(min=1)
    chances, power = [], torch.eye(len(bonded))
    for _ in range(WALK):
        power = power @ step
        chances.append(power.diagonal())
    return torch.stack(chances, 1)


def side_by_side(chosen: Sequence[MoleculeBatch]) -> MoleculeBatch:
    """Make one graph of several molecules'."""
    graphs, classes, atoms, walks, owners, answers = zip(*chosen, strict=True)
    counts = torch.tensor([len(owner) for owner in owners])
    owner = torch.arange(len(chosen)).repeat_interleave(counts)
    known = torch.cat(classes), torch.cat(atoms), torch.cat(walks)
    return MoleculeBatch(batch(graphs), *known, owner, torch.cat(answers))


class MoleculeModel(nn.Module):
    """Embeddings of properties and positions, layers of attention, and the sum of the last states.

    What is known of a pair is an attribute of its edge, which adds to key and value.
    """

    def __init__(self, mean: float, scale: float, depth: int = 4, dim: int = 64, heads: int = 4):
        super().__init__()
        self.mean, self.scale = mean, scale
        self.fields = nn.ModuleList(nn.Embedding(size, dim) for size in SIZES)
        self.walks = nn.Linear(WALK, dim)
        self.layers = nn.ModuleList(
            GraphTransformerLayer(dim, heads, 2 * dim, dropout=0.1, edge_dim=CLASSES) for _ in range(depth)
        )
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, found: MoleculeBatch) -> Tensor:
        """Return the solubility of each molecule."""
        x = self.walks(found.walks)
        for field, values in zip(self.fields, found.atoms.T, strict=True):
            x = x + field(values)
        attr = one_hot(found.classes, CLASSES).to(x)
        for layer in self.layers:
            x = layer(found.graph, x, edge_attr=attr)
        sums = x.new_zeros(len(found.answers), x.shape[1]).index_add(0, found.owner, x)
        return self.out(sums / TYPICAL)[:, 0] * self.scale + self.mean

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
def data_of(kind: str, split: int | None = None) -> dict[str, list[MoleculeBatch]]:
    """Return the graphs of one kind by split."""
    return {
        name: [graph_of(molecules()[i], kind) for i in numbers]
        for name, numbers in split_by_scaffold(split).items()
    }


def measure_molecules(training: FitConfig, kind: str, split: int | None = None) -> dict[str, Any]:
    """Train on graphs of one of ``KINDS``; return each split's error in log mols per litre."""
    data = data_of(kind, split)
    answers = torch.cat([one.answers for one in data["train"]])
    make = partial(MoleculeModel, float(answers.mean()), float(answers.std()))
    model, _ = fit(make, partial(batches, data["train"], training.size), training)
    figures = {name: error(model, part) for name, part in data.items()}
    return figures | {"parameters": sum(p.numel() for p in model.parameters())}


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
    columns = zip(properties(molecule).T, SIZES, strict=True)
    counts = [column.bincount(minlength=size) for column, size in columns]
    bonds = torch.tensor([kind for *_, kind in molecule.bonds], dtype=torch.int64)
    return torch.cat([*counts, bonds.bincount(minlength=CLASSES), torch.ones(1)]).double()


def batches(data: Sequence[MoleculeBatch], size: int, generator: torch.Generator) -> Iterator[MoleculeBatch]:
    """Draw batches without end, each molecule once in an epoch."""
    while True:
        for part in torch.randperm(len(data), generator=generator).split(size):
            yield side_by_side([data[i] for i in part.tolist()])


@torch.no_grad()
def error(model: MoleculeModel, data: Sequence[MoleculeBatch]) -> float:
    """Return the root of the mean squared error."""
    found = side_by_side(data)
    return float((model(found) - found.answers).square().mean().sqrt())


def readout_runs() -> Iterator[Part]:
    """What needs no graph, and both kinds of graphs, on five splits by scaffold with three seeds each.

    Attention along bonds also runs on MoleculeNet's own split.
    """
    for split in range(5):
        yield Part("counts", measure_counts, {"split": split})
    for kind, splits in ((BONDS, (None, *range(5))), (ALONE, range(5))):
        for split in splits:
            for seed in range(3):
                settings = {"kind": kind, "split": split}
                training = FitConfig(1400, 32, 3e-3, seed=seed)
                yield FitRun(f"{kind}: sum", measure_molecules, settings, training=training)
