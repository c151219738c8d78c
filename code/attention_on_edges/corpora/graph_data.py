"""Chapter 14: graphs that are not sentences: molecules with their solubility, and citations."""

import csv
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attention_on_edges.corpora.files import fetch, github_file
from attention_on_edges.corpora.text import lines
from edgewise.graphs import AttentionGraph
from edgewise.validation import InputError, MissingPackageError

ESOL = github_file(
    "molecules/delaney-processed.csv",
    "8c06a76f0c6487d29ab0f903e6a7a7139f189ab3c1178f159c8be8964602f189",
    "deepchem/deepchem",
    "108af2176a5f876c2df1df922baadb02d647c826",
    "datasets/delaney-processed.csv",
)
"""Delaney 2004, as MoleculeNet has it (Wu et al. 2018); MIT licence."""

CORA = github_file(
    "cora/cora.cites",
    "ec1a372391b7f0f60a6aff0084e8abd8f19f0faa7e1f2441a41c492042d5945e",
    "tkipf/pygcn",
    "1600b5b748b3976413d1e307540ccc62605b4d6d",
    "data/cora/cora.cites",
)
"""Sen et al. 2008; for research."""


class Molecule(NamedTuple):
    """A molecule as a graph, and what was measured of it.

    Attributes
    ----------
    smiles : str
        How it is written.
    atoms : tuple of tuple of int
        Of each atom but hydrogen its number of protons, charge, hydrogens, whether it is aromatic, and bonds.
    bonds : tuple of tuple of int
        First and last atom, and kind: 1 to 3, or 4 if aromatic.
    solubility : float
        Logarithm of mols per litre.
    """

    smiles: str
    atoms: tuple[tuple[int, ...], ...]
    bonds: tuple[tuple[int, int, int], ...]
    solubility: float


@cache
def molecules() -> tuple[Molecule, ...]:
    """Return ESOL's 1,128 molecules, in the file's order.

    Raises
    ------
    CorpusError
        If the file cannot be had.
    MissingPackageError
        If RDKit, which reads molecules, is not installed.
    """
    rows = csv.DictReader(lines(fetch(ESOL)))
    measured = "measured log solubility in mols per litre"
    return tuple(read_molecule(row["smiles"].strip(), float(row[measured])) for row in rows)


def read_molecule(smiles: str, solubility: float) -> Molecule:
    """Return the graph of a molecule.

    Raises
    ------
    InputError
        If it cannot be parsed.
    """
    chemistry = load_rdkit()
    found = chemistry.MolFromSmiles(smiles)
    if found is None:
        raise InputError(f"smiles must be a molecule that RDKit can parse, got {smiles!r}")
    atoms = tuple(
        (a.GetAtomicNum(), a.GetFormalCharge(), a.GetTotalNumHs(), int(a.GetIsAromatic()), a.GetDegree())
        for a in found.GetAtoms()
    )
    bonds = tuple(
        (b.GetBeginAtomIdx(), b.GetEndAtomIdx(), 4 if b.GetIsAromatic() else int(b.GetBondTypeAsDouble()))
        for b in found.GetBonds()
    )
    return Molecule(smiles, atoms, bonds, solubility)


def load_rdkit() -> Any:
    """Import RDKit's ``Chem``.

    Raises
    ------
    MissingPackageError
        If it is not installed.
    """
    try:
        from rdkit import Chem
    except ImportError as error:
        raise MissingPackageError("RDKit reads molecules: pip install rdkit") from error
    return Chem


def citations() -> tuple[list[tuple[int, int]], int]:
    """Return Cora's citations, cited and citing paper by numbers from 0, each pair once, and how many papers.

    Raises
    ------
    CorpusError
        If the file cannot be had.
    """
    pairs = [line.split() for line in lines(fetch(CORA))]
    papers = {
        paper: number for number, paper in enumerate(sorted({p for pair in pairs for p in pair}, key=int))
    }
    numbered = [(papers[a], papers[b]) for a, b in pairs if a != b]
    return list(dict.fromkeys(numbered)), len(papers)


def symmetric_graph(pairs: Tensor, count: int) -> AttentionGraph:
    """Both ends of each pair [*, 2] attend to each other, and each of ``count`` nodes to itself."""
    a, b = pairs.T
    own = torch.arange(count)
    edges = torch.stack([torch.cat([a, b, own]), torch.cat([b, a, own])], 1).unique(dim=0)
    return AttentionGraph(edges[:, 0].contiguous(), edges[:, 1].contiguous(), count)
