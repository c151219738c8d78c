"""What ``torch.nn``, PyG and ``transformers`` (chapter 13) have, with its weights, on graphs."""

from edgewise.interop.attention_interface import attend_along, check_along
from edgewise.interop.pyg import from_pyg
from edgewise.interop.torch import from_torch, to_torch

__all__ = ["attend_along", "check_along", "from_pyg", "from_torch", "to_torch"]
