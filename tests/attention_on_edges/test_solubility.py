"""Molecules as graphs: distances, walks, classes of pairs, and models that no numbering changes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

from attention_on_edges.corpora.graph_data import Molecule, molecules, read_molecule
from attention_on_edges.runs.fitting import FitConfig
from attention_on_edges.studies import solubility
from attention_on_edges.studies.solubility import ALONE, BONDS, KINDS, MoleculeModel, graph_of, side_by_side

ASPIRIN, SALT = (read_molecule(smiles, 0.0) for smiles in ("CC(=O)Oc1ccccc1C(=O)O", "[Na+].[Cl-]"))


def renumbered(molecule, order):
    place = [order.index(i) for i in range(len(order))]
    bonds = tuple((place[a], place[b], kind) for a, b, kind in molecule.bonds)
    return Molecule(molecule.smiles, tuple(molecule.atoms[i] for i in order), bonds, molecule.solubility)


@pytest.mark.parametrize("kind", KINDS)
@given(st.permutations(range(13)))
def test_no_numbering_of_atoms_changes_a_prediction(kind, order):
    torch.manual_seed(0)
    model = MoleculeModel(1.0, 2.0).eval()
    both = [graph_of(molecule, kind) for molecule in (ASPIRIN, SALT, renumbered(ASPIRIN, order))]
    one, other, again = model(side_by_side(both)).tolist()
    assert one == pytest.approx(again, abs=1e-5)
    assert abs(one - other) > 1e-3
    assert model(side_by_side(both[1:2])).item() == pytest.approx(other, abs=1e-5)


def test_what_is_known_of_pairs_counts():
    torch.manual_seed(0)
    model, found = MoleculeModel(1.0, 2.0).eval(), side_by_side([graph_of(ASPIRIN, BONDS)])
    assert not torch.equal(model(found._replace(classes=found.classes.flip(0))), model(found))


def test_walks_are_those_of_the_graph():
    ring = torch.ones(3, 3, dtype=torch.bool).fill_diagonal_(False)
    assert solubility.return_chances(ring)[0, :4].tolist() == pytest.approx([0, 1 / 2, 1 / 4, 3 / 8])


def test_pairs_know_their_bond():
    assert len(graph_of(ASPIRIN, ALONE).classes) == 13
    pairs = graph_of(ASPIRIN, BONDS)
    assert len(pairs.classes) == 13 + 2 * len(ASPIRIN.bonds)
    ends = zip(pairs.graph.dst.tolist(), pairs.graph.src.tolist(), pairs.classes.tolist(), strict=True)
    known = {pair: kind for a, b, kind in ASPIRIN.bonds for pair in ((a, b), (b, a))}
    assert all(kind == known.get((a, b), 0) for a, b, kind in ends)


@pytest.mark.corpus
def test_scaffolds_are_in_one_split_and_a_model_learns():
    splits, other = solubility.split_by_scaffold(), solubility.split_by_scaffold(3)
    assert {*splits["test"]} != {*other["test"]}
    assert {name: len(split) for name, split in splits.items()} == {"train": 902, "valid": 113, "test": 113}
    assert len(set().union(*splits.values())) == 1128
    for one in (splits, other):
        of = [
            {MurckoScaffoldSmiles(smiles=molecules()[i].smiles, includeChirality=False) for i in split}
            for split in one.values()
        ]
        assert len(set().union(*of)) == sum(map(len, of))
    answers = torch.cat([one.answers for one in solubility.data_of("bonds")["train"]])
    figures = solubility.measure_molecules(FitConfig(150, 32, 1e-3), "bonds")
    assert figures["train"] < 0.65 * float(answers.std())
    counts = solubility.measure_counts(3)
    assert counts["train"] < counts["test"] < 0.8 * counts["mean"]
