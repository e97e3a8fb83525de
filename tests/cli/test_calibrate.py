from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake_model import blind, first_word, knowing
from trajectory_guard.cli import calibrate as cli
from trajectory_guard.core.similarity.calibration import fingerprint
from trajectory_guard.semantic import settler as embedding
from trajectory_guard.semantic.calibrations import bundled_pairs, default_store, load_calibration
from trajectory_guard.semantic.model_files import ModelError

KNOWING = knowing(bundled_pairs())


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "none"))
    for name in ("MODEL_PATH", "MODEL_DOWNLOAD", "CALIBRATION"):
        monkeypatch.delenv(f"TRAJECTORY_GUARD_{name}", raising=False)
    monkeypatch.setattr(embedding, "_self_calibrated", {})


def use(monkeypatch: pytest.MonkeyPatch, embed: Any) -> list[str | None]:
    paths: list[str | None] = []

    def load(path: str | None, *, download: bool = False) -> Any:
        paths.append(path)
        return embed

    monkeypatch.setattr(cli, "load_embed", load)
    monkeypatch.setattr(embedding, "load_embed", load)
    return paths


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_calibrate(parser.add_subparsers())
    options = parser.parse_args(["calibrate", *arguments])
    return int(options.run(options))


def test_a_good_model_is_measured_stored_and_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    paths = use(monkeypatch, KNOWING)
    assert run("--model", "some/dir", "--store", str(tmp_path / "c.json"), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    stored = load_calibration(tmp_path / "c.json", fingerprint(KNOWING))
    assert stored is not None
    assert printed == {**stored.to_plain(), "reason": "", "stored": str(tmp_path / "c.json")}
    assert (printed["ok"], printed["recall"], paths) == (True, 1.0, ["some/dir"])


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(monkeypatch, KNOWING)
    assert run("--model", "some/dir") == 0
    table = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert table["recall"] == "1.000"
    assert table["stored"] == f"in     {default_store()}"
    assert default_store().exists()


def test_a_model_not_worth_using_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, blind)
    assert run() == 0
    assert "no: it hardly distinguishes rewordings" in capsys.readouterr().out


def test_own_pairs_are_added(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = [{"a": f"own{at} question", "b": f"own{at} asked differently", "same": True} for at in range(12)]
    (tmp_path / "own.jsonl").write_text("\n".join(json.dumps(pair) for pair in own))
    use(monkeypatch, first_word)
    assert run("--pairs", str(tmp_path / "own.jsonl"), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["own"], printed["positives"]) == (12, 12 + sum(pair.same for pair in bundled_pairs()))


@pytest.mark.parametrize(
    ("text", "message"), [("oops", "own.jsonl:1: Expecting value"), (None, "own.jsonl: cannot be read: No such file")]
)
def test_bad_pairs(
    text: str | None, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "own.jsonl").write_text(text)
    use(monkeypatch, KNOWING)
    assert run("--pairs", str(tmp_path / "own.jsonl")) == 2
    assert message in capsys.readouterr().err


def test_a_store_of_another_kind_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text("[]")
    use(monkeypatch, KNOWING)
    assert run("--store", str(tmp_path / "c.json")) == 2
    assert "c.json: not a calibration file" in capsys.readouterr().err
    assert (tmp_path / "c.json").read_text() == "[]"


def test_a_bad_directory_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("")
    assert run("--model", str(tmp_path)) == 2
    assert "tokenizer.json is missing" in capsys.readouterr().err


def test_no_model_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def load(path: str | None, *, download: bool = False) -> Any:
        raise ModelError("not cached", "set model_download")

    monkeypatch.setattr(cli, "load_embed", load)
    assert run() == 2
    said = capsys.readouterr().err
    assert "not cached; pass --model DIR" in said
    assert "set model_download" not in said


def test_settle_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = use(monkeypatch, KNOWING)
    settler = cli.settle_pairs("some/dir")
    same = next(pair for pair in bundled_pairs() if pair.same)
    other = next(pair for pair in bundled_pairs() if not pair.same)
    assert paths == ["some/dir"]
    assert settler.settle(same.a, same.b) is True
    assert settler.settle(other.a, other.b) is False


def test_settle_pairs_refuses_a_model_not_worth_using(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, blind)
    with pytest.raises(ModelError, match=r"some/dir is not used: .*AUC"):
        cli.settle_pairs("some/dir")
