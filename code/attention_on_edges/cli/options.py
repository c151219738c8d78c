"""Options shared by several commands, with their checks."""

from typing import Annotated

import torch
import typer


def check_device(device: str) -> str:
    """Return the device, if it is available."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    try:
        kind, number = torch.device(device).type, torch.device(device).index or 0
    except RuntimeError:
        kind, number = "", 0
    if not available.get(kind, False) or (kind == "cuda" and number >= torch.cuda.device_count()):
        there = " and ".join(name for name, here in available.items() if here)
        raise typer.BadParameter(f"{device!r} is not available; this machine has {there}")
    return device


Device = Annotated[str, typer.Option(callback=check_device, help="cpu, cuda or mps.")]
