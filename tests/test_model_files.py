from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_model import first_word
from trajectory_guard.semantic import model_files
from trajectory_guard.semantic.model_files import ModelError, load_embed, read_model_directory
from trajectory_guard.semantic.settler import ModelSettings


def model_directory(folder: Path, *names: str, config: dict[str, Any] | None = None) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize(
    ("names", "config", "expected"),
    [
        (["model.onnx", "model_int8.onnx"], {"hidden_size": 256}, ("model.onnx", 256, "mean")),
        (["model_int8.onnx"], None, ("model_int8.onnx", 384, "mean")),
        (["model_optimized.onnx"], {"hidden_size": 384}, ("model_optimized.onnx", 384, "cls")),
        (["model.onnx"], {"_name_or_path": "BAAI/bge-base-en", "hidden_size": 768}, ("model.onnx", 768, "cls")),
        (["onnx/model.onnx"], {"dim": 512}, ("onnx/model.onnx", 512, "mean")),
        (["model_optimized.onnx"], {"_name_or_path": "all-MiniLM-L6"}, ("model_optimized.onnx", 384, "mean")),
    ],
)
def test_a_model_directory_is_understood(
    names: list[str], config: dict[str, Any] | None, expected: tuple[str, int, str], tmp_path: Path
) -> None:
    assert read_model_directory(model_directory(tmp_path, *TOKENIZER, *names, config=config)) == expected


@pytest.mark.parametrize(
    ("declared", "pooling"), [({"pooling_mode_cls_token": True}, "cls"), ({"pooling_mode_mean_tokens": True}, "mean")]
)
def test_declared_pooling_wins(declared: dict[str, Any], pooling: str, tmp_path: Path) -> None:
    path = model_directory(tmp_path, *TOKENIZER, "model_optimized.onnx", "1_Pooling/config.json")
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(declared))
    assert read_model_directory(path).pooling == pooling


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "model file missing: none of model.onnx, model_optimized.onnx, model_int8.onnx"),
        (["model.onnx"], "tokenizer.json is missing"),
        (["model.onnx", "tokenizer.json"], "tokenizer_config.json is missing"),
    ],
)
def test_a_missing_file_is_named(names: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        read_model_directory(model_directory(tmp_path, *names))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: no such directory"):
        load_embed(str(tmp_path / "nowhere"))


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    path = model_directory(tmp_path, *TOKENIZER, "model.onnx")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json: cannot be read"):
        read_model_directory(path)


def test_missing_fastembed_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="a model needs fastembed: install the extra 'semantic'"):
        load_embed(model_directory(tmp_path, *TOKENIZER, "model.onnx"))


def test_without_a_cached_model_fastembed_is_not_even_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(model_files, "find_spec", lambda name: object())
    monkeypatch.setattr(model_files, "import_module", lambda name: pytest.fail(f"imported {name}"))
    with pytest.raises(ModelError, match=r"not cached in .*none; set model_download, or model_path to"):
        load_embed(None)


class FakeFastembed:
    """As much of fastembed as is used; refuses a second model of one name, as the original does."""

    def __init__(self) -> None:
        self.models: list[dict[str, Any]] = []
        self.built: list[tuple[str, dict[str, Any]]] = []
        self.TextEmbedding = self
        self.PoolingType = type("PoolingType", (), {"CLS": "cls", "MEAN": "mean"})
        self.ModelSource = dict

    def list_supported_models(self) -> list[dict[str, Any]]:
        return self.models

    def add_custom_model(self, model: str, **options: Any) -> None:
        assert all(known["model"] != model for known in self.models)
        self.models.append({"model": model, **options})

    def __call__(self, name: str, **options: Any) -> FakeFastembed:
        self.built.append((name, options))
        return self

    def embed(self, texts: list[str]) -> Iterator[list[float]]:
        return iter([first_word(text) for text in texts])


@pytest.fixture
def fastembed(monkeypatch: pytest.MonkeyPatch) -> FakeFastembed:
    fake = FakeFastembed()
    monkeypatch.setattr(model_files, "find_spec", lambda name: object())
    monkeypatch.setattr(model_files, "import_module", lambda name: fake)
    return fake


def test_a_directory_is_registered_once_and_loaded_locally(fastembed: FakeFastembed, tmp_path: Path) -> None:
    path = model_directory(tmp_path, *TOKENIZER, "model_int8.onnx", config={"hidden_size": 128})
    for _ in range(2):
        assert load_embed(path)("hello") == first_word("hello")
    assert [(model["dim"], model["pooling"], model["model_file"]) for model in fastembed.models] == [
        (128, "mean", "model_int8.onnx")
    ]
    assert [options for _, options in fastembed.built] == [{"specific_model_path": path, "threads": 1}] * 2


@pytest.mark.parametrize("download", [False, True])
def test_the_default_model_uses_the_network_only_if_asked(
    download: bool, fastembed: FakeFastembed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models--Qdrant--bge-small-en-v1.5-onnx-Q").mkdir()
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    load_embed(None, download=download)
    assert fastembed.built == [("BAAI/bge-small-en-v1.5", {"threads": 1, "local_files_only": not download})]


def test_a_model_without_usable_vectors_is_refused(
    fastembed: FakeFastembed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastembed, "embed", lambda texts: iter([[0.0, 0.0]]))
    path = model_directory(tmp_path, *TOKENIZER, "model.onnx")
    with pytest.raises(ModelError, match="does not load: not a usable embedding"):
        load_embed(path)


# --- settings ------------------------------------------------------------------------------------------------


def test_settings_from_the_environment() -> None:
    found = ModelSettings.from_env({
        "TRAJECTORY_GUARD_MODEL_PATH": "m", "TRAJECTORY_GUARD_MODEL_DOWNLOAD": "True",
        "TRAJECTORY_GUARD_CALIBRATION": "c.json",
    })  # fmt: skip
    assert found == ModelSettings(path="m", download=True, calibration="c.json")
    assert found.asked
    assert found.store == Path("c.json")


@pytest.mark.parametrize("text", ["", "false", "0", "off", "nonsense"])
def test_nothing_is_downloaded_unless_clearly_asked(text: str) -> None:
    found = ModelSettings.from_env({"TRAJECTORY_GUARD_MODEL_DOWNLOAD": text})
    assert found == ModelSettings()
    assert not found.asked


@pytest.mark.parametrize("name", ["cache_vectors", "queue_texts"])
def test_limits_hold_at_least_a_pair(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 1 is below 2"):
        ModelSettings(**{name: 1})
