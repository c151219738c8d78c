"""Layers and models of ``torch.nn``, PyG and ``transformers``, with their weights, on graphs."""

from edgewise.interop.pyg import from_pyg
from edgewise.interop.torch_modules import from_torch, to_torch
from edgewise.interop.transformers_models import attend_along, check_along

__all__ = ["attend_along", "check_along", "from_pyg", "from_torch", "to_torch"]
