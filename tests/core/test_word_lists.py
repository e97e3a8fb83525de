"""Word lists as files: one group a line, sorted, each word once; readable from a wheel that was not unpacked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import PACKAGE, REPLACES_CODE
from trajectory_guard.core import wordlists
from trajectory_guard.core.similarity import vocabulary
from trajectory_guard.core.similarity.words import concept, stem

FILES = sorted((PACKAGE / "core" / "words").glob("*.txt"))


def lines(file: Path) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_list_is_sorted_and_says_nothing_twice(file: Path) -> None:
    found = lines(file)
    assert file.read_text(encoding="utf-8").startswith("# ")
    heads = [line.partition(":")[0] for line in found]
    assert heads == sorted(set(heads))
    for line in found:
        separator = (
            "|"
            if file.stem in ("courtesy", "failed", "onward", "pending", "phrases", "remaining", "status", "transient")
            else " "
        )
        members = [one.strip() for one in line.rpartition(":")[2].split(separator) if one]
        assert members == sorted(set(members))


def test_no_word_has_two_synonyms() -> None:
    groups = [(head, *others) for head, others in vocabulary.SYNONYMS.items()]
    words = [word for group in groups for word in group]
    assert len(words) == len(set(words))
    assert all(concept(word) == concept(group[0]) for group in groups for word in group)


@REPLACES_CODE
@pytest.mark.parametrize("word", sorted(vocabulary.WHOLE))
def test_a_whole_word_needs_to_be_listed(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stem(word) == word
    monkeypatch.setattr(vocabulary, "WHOLE", frozenset())
    assert stem.__wrapped__(word) != word


def test_lines_become_words_groups_and_runs() -> None:
    assert {"the", "of"} <= wordlists.words("stop")
    assert wordlists.groups("tools")["waiting"] == ("delay", "pause", "sleep", "wait")
    assert ("log", "in") in wordlists.runs("phrases")["login"]


def test_lists_are_read_from_a_zip_file(tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", PACKAGE.parent, PACKAGE.name)
    code = "import trajectory_guard.core.tools as t; print(t.__file__); print(t.is_lookup('read_file'))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": archive},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.splitlines() == [f"{archive}/trajectory_guard/core/tools.py", "True"]
