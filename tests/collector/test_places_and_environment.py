"""Directories and files that cannot be used, and variables of applications in the environment of a collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard_collector.app.service import Collector
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.config.process_variables import ignored_variables
from trajectory_guard_collector.config.render import storage_mistakes, unusable_storage

IN_THE_WAY = {
    "file": "{}: is a file, not a directory",
    "file/b": "{}: cannot be made: {parent} is a file",
    "/proc/nothing": "{}: cannot be made: ",
    "/proc": "{}: ",
}


@pytest.mark.parametrize("place", IN_THE_WAY)
def test_a_storage_directory_that_cannot_be_used_is_named_with_its_key(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / place
    expected = "queue.storage: " + IN_THE_WAY[place].format(directory, parent=directory.parent)
    config = CollectorConfig.model_validate({"queue": {"storage": str(directory)}})
    (mistake,) = storage_mistakes(config)
    assert mistake.startswith(expected)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    if place != "/proc":  # there, but nothing can be written: SQLite says so when the file is opened
        made = unusable_storage(config)
        assert made is not None
        assert made.startswith(expected)


def test_a_link_to_nothing_is_no_storage_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    config = CollectorConfig.model_validate({"queue": {"storage": str(tmp_path / "link")}})
    assert unusable_storage(config) == f"queue.storage: {tmp_path}/link: cannot be made: File exists"


LEDGERS = {
    "missing/l.db": "{}: there is no directory {parent}",
    "file/l.db": "{}: there is no directory {parent}",
    "folder": "{}: is a directory, not a file",
    "file": "{}: file is not a database",
}


@pytest.mark.parametrize("place", LEDGERS)
def test_a_file_of_a_ledger_that_cannot_be_used_is_named_with_its_key(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no ledger")
    (tmp_path / "folder").mkdir()
    file = tmp_path / place
    config = CollectorConfig.model_validate({"guard": {"spending_file": str(file)}})
    expected = f"guard.spending_file: {LEDGERS[place].format(file, parent=file.parent)}"
    assert storage_mistakes(config) == [expected]
    with pytest.raises(ConfigError) as found:
        Collector(config)
    assert str(found.value) == expected


# --- the environment of a process ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"TRAJECTORY_GUARD_MODE": "observe"}, ["TRAJECTORY_GUARD_MODE"]),
        ({"TRAJECTORY_GUARD_MODE": "a word"}, ["TRAJECTORY_GUARD_MODE"]),
        ({"TRAJECTORY_GUARD_STOP_PATIENCE": "7"}, ["TRAJECTORY_GUARD_STOP_PATIENCE"]),
        ({"TRAJECTORY_GUARD_CONFIG": "guard.toml"}, ["TRAJECTORY_GUARD_CONFIG"]),
        ({"TRAJECTORY_GUARD_DISABLED": "true"}, ["TRAJECTORY_GUARD_DISABLED"]),
        ({"TRAJECTORY_GUARD_DISABLED": "false"}, []),
        ({"TRAJECTORY_GUARD_MODE": "enforce"}, []),
        ({"TRAJECTORY_GUARD_COLLECTOR_URL": "http://collector:8888", "TRAJECTORY_GUARD_TOKEN": "t"}, []),
    ],
)
def test_variables_of_an_application_that_would_change_something_are_named(
    environ: dict[str, str], named: list[str]
) -> None:
    assert [line.split()[0] for line in ignored_variables(GuardConfig(), environ)] == named


def test_a_variable_that_the_configuration_refers_to_is_in_effect(tmp_path: Path) -> None:
    environ = {"TRAJECTORY_GUARD_MODE": "observe"}
    (line,) = ignored_variables(GuardConfig(), environ)
    assert "guard.mode to ${env:TRAJECTORY_GUARD_MODE}" in line
    file = tmp_path / "collector.yaml"
    file.write_text("guard: {mode: '${env:TRAJECTORY_GUARD_MODE}'}", encoding="utf-8")
    guard = load_config([str(file)], environ).guard
    assert guard.mode == "observe"
    assert list(ignored_variables(guard, environ)) == []
