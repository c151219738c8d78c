"""Options shared by several commands, with their checks."""

from typing import Annotated

import torch
import typer


def check_device(device: str) -> str:
    """Return the device, if it is available."""
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind, named, number = device.partition(":")
    if (named and not number.isdigit()) or int(number or 0) >= there.get(kind, 0):
        names = " and ".join(name for name, count in there.items() if count)
        raise typer.BadParameter(f"{device!r} is not available; this machine has {names}")
    return device


Device = Annotated[str, typer.Option(callback=check_device, help="cpu, cuda or mps.")]
