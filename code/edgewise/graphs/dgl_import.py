"""DGL, imported on demand and without its warnings."""

import importlib
import importlib.metadata
import os
import sys
import types
import warnings
from typing import Any

from edgewise.validation import MissingPackageError


def load_dgl() -> Any:
    """Import DGL and return the module.

    DGL 2 imports its data loader GraphBolt, which needs a binary for the exact torch version; nothing here
    uses it, so an empty module replaces it.

    Raises
    ------
    MissingPackageError
        If DGL is missing or raises while it is imported; the message says how to install it.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        if int(importlib.metadata.version("dgl").split(".")[0]) >= 2:
            sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the progress bars that it imports, for instance
            return importlib.import_module("dgl")
    except Exception as error:  # whatever an installation that does not fit raises while it is imported
        raise MissingPackageError(
            f"DGL cannot be imported ({type(error).__name__}: {error}). On Python 3.11 or 3.12 pip install "
            "'.[dgl]' in a clone brings it."
        ) from error


def dgl_available() -> bool:
    """Whether DGL can be imported here."""
    try:
        load_dgl()
    except MissingPackageError:
        return False
    return True
