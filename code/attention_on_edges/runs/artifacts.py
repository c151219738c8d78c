"""The results of a finished training run: configuration, metrics, weights and provenance.

An artifact is a folder ``book/artifacts/NAME`` of ``config.json``, ``metrics.json``, ``model.safetensors``
(half precision), for text ``tokenizer.json``, and ``provenance.json``, which holds the checksums of the
others and of the data, and its own. Its metrics are those of the saved, rounded weights.
"""

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

import safetensors.torch
import torch
from torch import Tensor

from attention_on_edges.corpora.files import sha256_of
from attention_on_edges.runs.experiment import Experiment
from attention_on_edges.runs.json_files import read_json, sealed, write_json
from attention_on_edges.training.checkpoint_files import write_atomically
from edgewise.validation import InputError, UnknownNameError

CONFIG, METRICS, WEIGHTS = ("config.json", "metrics.json", "model.safetensors")

TOKENIZER = "tokenizer.json"

PROVENANCE = "provenance.json"


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
    def experiment(self) -> Experiment:
        """What was run.

        Raises
        ------
        InputError
            If the configuration is none.
        """
        return Experiment.of(self.config, self.folder / CONFIG)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """Parameters of the model, float32, by name.

        Raises
        ------
        InputError
            If they hold NaN or infinities.
        """
        path = self.folder / WEIGHTS
        tensors = safetensors.torch.load_file(path)
        for name, x in tensors.items():
            if not x.isfinite().all():
                raise InputError(f"{path}: {name} holds NaN or infinities")
        return {name: x.float() if x.is_floating_point() else x for name, x in tensors.items()}

    @property
    def caption(self) -> str:
        """One line for a figure's caption: which run it shows, when and where it was made."""
        p = self.provenance
        commit = f"commit {p['commit'][:10]}" if p["commit"] else "no commit"
        return (
            f"Experiment {self.name}: trained {p['date']} in {p['seconds'] / 60:.0f} min "
            f"on {p['device']}, torch {p['torch']}, {commit}, seed {p['seed']}."
        )


def artifacts_folder() -> Path | None:
    """Return ``book/artifacts`` of the clone that this package, or the working directory, belongs to."""
    for root in (*Path(__file__).resolve().parents, Path.cwd(), *Path.cwd().parents):
        if (root / "book" / "artifacts").is_dir():
            return root / "book" / "artifacts"
    return None


def find(name: str | Path) -> Path:
    """Return the folder of a committed artifact, given its name, or the folder itself, given its path.

    A text without ``/`` is a name, whatever folders there are here.

    Raises
    ------
    InputError
        If there is none; the message lists those that exist.
    """
    if isinstance(name, Path) or "/" in name:
        if not Path(name).is_dir():
            raise UnknownNameError(f"there is no folder {name}")
        return Path(name)
    root = artifacts_folder()
    if root is None:
        raise UnknownNameError(
            f"no model {name!r} here: models come with a clone of the book, not with the package; "
            "work inside a clone, or give the folder of a model that you have trained, with a slash in it"
        )
    if name not in names():
        raise UnknownNameError(f"no artifact {name!r}; there are: {', '.join(names()) or 'none'}")
    return root / name


def load(name: str | Path) -> Artifact:
    """Read the committed artifact of an experiment, or the one in a folder, as :func:`find` finds it.

    Raises
    ------
    InputError
        If there is none, or one of its files is missing or not the one that was written.
    """
    folder = find(name)
    provenance = read_json(folder / PROVENANCE, is_sealed=True)
    for file, digest in provenance["files"].items():
        if not (folder / file).is_file() or sha256_of(folder / file) != digest:
            raise InputError(f"{folder / file} is damaged, or another model's: it is not what was written")
    found = Artifact(folder, read_json(folder / CONFIG), read_json(folder / METRICS), provenance)
    if not isinstance(name, Path) and name == folder.name != found.config.get("name"):
        raise InputError(f"{folder} holds another model: its name is {found.config.get('name')!r}")
    return found


def names() -> list[str]:
    """Return the committed artifacts."""
    root = artifacts_folder()
    return sorted(p.name for p in root.iterdir() if (p / PROVENANCE).is_file()) if root else []


def write(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    tokenizer: str | None = None,
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
    tokenizer : str, optional
        JSON of the tokeniser.
    """
    fresh, old = (folder.with_name(f".{folder.name}.{what}") for what in ("part", "old"))
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    write_json(fresh / CONFIG, config)
    write_json(fresh / METRICS, metrics)
    write_atomically(fresh / WEIGHTS, safetensors.torch.save(dict(weights)))
    if tokenizer is not None:
        write_atomically(fresh / TOKENIZER, tokenizer.encode())
    files = {path.name: sha256_of(path) for path in sorted(fresh.iterdir())}
    write_json(fresh / PROVENANCE, sealed(dict(provenance) | {"files": files}))
    load(fresh)
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
        "commit": _git("rev-parse", "HEAD") or os.environ.get("EDGEWISE_COMMIT", ""),
        "changed": bool(
            _git("status", "--porcelain", "--untracked-files=no", ":/code", ":/requirements.txt")
        ),
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
