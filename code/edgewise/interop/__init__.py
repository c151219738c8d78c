"""What ``torch.nn``, PyG and ``transformers`` (chapter 13) have, with its weights, as this library's."""

from edgewise.interop.pyg import from_pyg
from edgewise.interop.torch import from_torch
from edgewise.interop.transformers import from_transformers

__all__ = ["from_pyg", "from_torch", "from_transformers"]
