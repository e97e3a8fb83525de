"""From a directory, or fastembed's cache, to an embed function. Imports fastembed only when a model is there."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from trajectory_guard.core.fingerprints import digest64
from trajectory_guard.core.similarity.cascade import Embed, unit
from trajectory_guard.extras import install
from trajectory_guard.process.forking import ForkDelay

DEFAULT_MODEL: Final = "BAAI/bge-small-en-v1.5"
ONNX_FILES: Final = ("model.onnx", "model_optimized.onnx", "model_int8.onnx", "model_quantized.onnx")
"""File names of a model, in order of preference; looked for in the directory and in its ``onnx`` subdirectory."""
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json")
_CLS_FAMILIES: Final = ("bge", "gte-", "mxbai", "arctic-embed")
"""Models known to read a text's meaning off its first token."""
_DEFAULT_DIM: Final = 384
_IMPORT: Final = ForkDelay()
"""Around imports of fastembed, numpy among them, on the thread of a settler; a download does not delay a fork."""


class ModelError(RuntimeError):
    """A model that cannot be used.

    Parameters:
        reason: names the directory, and the file or package that is missing.
        advice: the keys to set, if any would help; a command line names its options instead.
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason, advice)
        self.reason, self.advice = reason, advice

    def __str__(self) -> str:
        return f"{self.reason}; {self.advice}" if self.advice else self.reason


class ModelFiles(NamedTuple):
    """Model file, vector length and pooling of a model directory.

    Fields:
        model_file: the ONNX file, relative to the directory.
        dim: length of a vector, as the configuration says.
        pooling: ``"cls"`` or ``"mean"``.
    """

    model_file: str
    dim: int
    pooling: str


def read_model_directory(path: str) -> ModelFiles:
    """Read the layout of a model directory.

    Pooling is read from ``1_Pooling/config.json`` if that is there; else it is ``cls`` for families known for it and
    for the file name under which fastembed publishes them, else ``mean``.

    Raises:
        ModelError: the directory or a file is missing, or a configuration is not JSON.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelError(f"{path}: no such directory")
    names = [*ONNX_FILES, *(f"onnx/{name}" for name in ONNX_FILES)]
    model_file = next((name for name in names if (folder / name).is_file()), None)
    if model_file is None:
        raise ModelError(f"{path}: model file missing: none of {', '.join(ONNX_FILES)}")
    for name in _TOKENIZER_FILES:
        if not (folder / name).is_file():
            raise ModelError(f"{path}: {name} is missing")
    config = _json(folder / "config.json")
    dim = config.get("hidden_size") or config.get("dim") or config.get("d_model") or _DEFAULT_DIM
    return ModelFiles(model_file, int(dim), _pooling(folder, config, model_file))


def _pooling(folder: Path, config: dict[str, Any], model_file: str) -> str:
    declared = _json(folder / "1_Pooling" / "config.json")
    if declared:
        return "cls" if declared.get("pooling_mode_cls_token") or declared.get("pooling_mode") == "cls" else "mean"
    name = f"{folder.name} {config.get('_name_or_path', '')}".lower()
    if "minilm" in name:
        return "mean"
    known = any(family in name for family in _CLS_FAMILIES)
    return "cls" if known or model_file.endswith("model_optimized.onnx") else "mean"


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read: {error}") from None
    return data if isinstance(data, dict) else {}


def load_embed(path: str | None, *, download: bool = False) -> Embed:
    """An embed function, one text to one vector, on one thread.

    Parameters:
        path: model directory; None takes ``DEFAULT_MODEL`` from fastembed's cache.
        download: whether ``DEFAULT_MODEL`` may be fetched if it is not cached. Else the network is never used.

    Raises:
        ModelError: no fastembed, no model, or one that does not load.
    """
    found = read_model_directory(path) if path else None
    if find_spec("fastembed") is None:
        raise ModelError(f"a model needs fastembed: {install('semantic')}")
    if found is None and not download and not _is_cached():
        raise ModelError(
            f"{DEFAULT_MODEL} is not cached in {_cache()}",
            "set model_download, or model_path to a directory of a model",
        )
    try:
        with _IMPORT:
            import_module("fastembed")
        with nullcontext() if download and found is None else _IMPORT:
            model = _default(download) if found is None else _local(str(Path(str(path)).expanduser()), found)
            unit(_embed(model, "a first text"))
    except Exception as error:
        raise ModelError(f"{path or DEFAULT_MODEL}: does not load: {error}") from error
    return lambda text: _embed(model, text)


def _embed(model: Any, text: str) -> Any:
    return next(iter(model.embed([text])))


def _local(path: str, found: ModelFiles) -> Any:
    fastembed: Any = import_module("fastembed")
    description: Any = import_module("fastembed.common.model_description")
    key = digest64(repr((path, found)).encode("utf-8", "surrogatepass")).hex()
    name = f"trajectory_guard/{key}"
    if all(known["model"] != name for known in fastembed.TextEmbedding.list_supported_models()):
        fastembed.TextEmbedding.add_custom_model(
            model=name,
            pooling=description.PoolingType.CLS if found.pooling == "cls" else description.PoolingType.MEAN,
            normalization=True,
            sources=description.ModelSource(hf=name),  # required, never used: specific_model_path comes first
            dim=found.dim,
            model_file=found.model_file,
        )
    return fastembed.TextEmbedding(name, specific_model_path=path, threads=1)


def _default(download: bool) -> Any:
    fastembed: Any = import_module("fastembed")
    return fastembed.TextEmbedding(DEFAULT_MODEL, threads=1, local_files_only=not download)


def _cache() -> Path:
    return Path(os.environ.get("FASTEMBED_CACHE_PATH") or Path(tempfile.gettempdir()) / "fastembed_cache")


def _is_cached() -> bool:
    """Whether fastembed's cache may hold the default model: importing fastembed to ask costs 0.4 s and 86 MB."""
    wanted = DEFAULT_MODEL.rpartition("/")[2]
    try:
        return any(wanted in entry.name.lower() for entry in _cache().iterdir())
    except OSError:
        return False
