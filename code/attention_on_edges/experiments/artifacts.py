"""The results of a finished training run: configuration, metrics, weights and provenance.

An artifact is a folder ``book/artifacts/NAME`` of ``config.json``, ``metrics.json``, ``provenance.json`` and
``model.safetensors`` (half precision); its metrics are those of the saved, rounded weights.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.training.checkpoint_files import load_tensors, save_tensors, write_atomically

FILES = ("config", "metrics", "provenance")

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Artifact:
    """A finished run.

    Attributes
    ----------
    folder : Path
        Its location.
    config, metrics, provenance : dict
        What was run, the results, and when, where and by which code.
    """

    folder: Path
    config: dict[str, Any]
    metrics: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.config["name"]

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """Parameters of the model, float32, by name."""
        tensors, _ = load_tensors(self.folder / WEIGHTS)
        return {name: x.float() if x.is_floating_point() else x for name, x in tensors.items()}

    @property
    def caption(self) -> str:
        """One line for a figure's caption: which run it shows, when and where it was made."""
        p = self.provenance
        commit = f"commit {p['commit'][:10]}" if p["commit"] else "no commit"
        return (
            f"Experiment {self.name}: trained {p['date']} in {p['seconds'] / 60:.0f} minutes "
            f"on {p['device']}, torch {p['torch']}, {commit}, seed {p['seed']}."
        )


def artifacts_folder() -> Path | None:
    """Return ``book/artifacts`` of the clone that this package, or the working directory, belongs to."""
    for root in (*Path(__file__).resolve().parents, Path.cwd(), *Path.cwd().parents):
        if (root / "book" / "artifacts").is_dir():
            return root / "book" / "artifacts"
    return None


def load(name: str | Path) -> Artifact:
    """Read the committed artifact of an experiment, or the one in a folder.

    Raises
    ------
    FileNotFoundError
        If there is none of that name; the message lists those that exist.
    """
    folder = Path(name)
    if not folder.is_absolute() and len(folder.parts) == 1 and not folder.is_dir():
        root = artifacts_folder()
        if root is None:
            raise FileNotFoundError(
                f"no model {str(name)!r} here: models come with a clone of the book, not with the package. "
                f"Run git clone {_address()} and work inside it, or give the folder of a model that you have "
                "trained"
            )
        folder = root / name
        if not folder.is_dir():
            raise FileNotFoundError(f"no artifact {name!r}; there are: {', '.join(names()) or 'none'}")
    missing = [file for file in (*(f"{f}.json" for f in FILES), WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder} is no artifact: it has no {', '.join(missing)}")
    return Artifact(folder, *(_read_json(folder / f"{file}.json") for file in FILES))


def _address() -> str:
    """Where this package's repository is."""
    urls = importlib.metadata.metadata("edgewise").get_all("Project-URL") or []
    return next(url.split(", ")[1] for url in urls if url.startswith("Repository, "))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def names() -> list[str]:
    """Return the committed artifacts."""
    root = artifacts_folder()
    return sorted(p.name for p in root.iterdir() if (p / "provenance.json").is_file()) if root else []


def write(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    extra: Mapping[str, str] | None = None,
) -> Artifact:
    """Write an artifact's folder under a temporary name, then rename it; an old one is replaced.

    Parameters
    ----------
    folder : Path
        Its name.
    weights : mapping of str to Tensor
        As returned by :func:`halved`.
    config, metrics, provenance : mapping
        JSON.
    extra : mapping of str to str, optional
        Further files: name to text.
    """
    fresh, old = (folder.with_name(f".{folder.name}.{what}") for what in ("part", "old"))
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file, facts in zip(FILES, (config, metrics, provenance), strict=True):
        write_atomically(fresh / f"{file}.json", (json.dumps(facts, indent=1) + "\n").encode())
    for file, text in (extra or {}).items():
        write_atomically(fresh / file, text.encode())
    save_tensors(fresh / WEIGHTS, weights, {"name": config["name"]})
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
    os.replace(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)
    return load(folder)


def halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round parameters to half precision, in which they are stored."""
    return {name: x.detach().cpu().half() if x.is_floating_point() else x for name, x in weights.items()}


def facts(device: torch.device | str) -> dict[str, Any]:
    """Return the provenance of a result: commit, date, device, versions."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "date": time.strftime("%Y-%m-%d"),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def device_name(device: torch.device | str) -> str:
    """Return a readable name: the kind of device and, if known, its model."""
    device = torch.device(device)
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    if device.type != "cpu":
        return device.type
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return f"cpu ({model or platform.machine()}, {os.cpu_count()} cores)"


def _git(*arguments: str) -> str:
    """Ask git about the clone that tracks this file; an empty string if there is none."""
    here = Path(__file__)
    outputs = []
    for question in (["ls-files", "--error-unmatch", here.name], list(arguments)):
        command = ["git", "-C", str(here.parent), *question]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        if result.returncode != 0:
            return ""
        outputs.append(result.stdout.strip())
    return outputs[-1]
