"""The tables of the pages are those that ``make docs`` writes."""

from __future__ import annotations

import pytest

from tests import docs_tables
from tests.bench.accuracy import ablate, docs
from tests.bench.situations import evaluate_situation, situations
from trajectory_guard.core.settings import EngineSettings

DETECTION = docs_tables.ROOT / "docs" / "detection.md"


@pytest.mark.newest
@pytest.mark.parametrize("page", docs_tables.PAGES)
def test_make_docs_would_change_nothing(page: str) -> None:
    assert docs_tables.generated(page) == (docs_tables.ROOT / page).read_text(encoding="utf-8")


def test_prose_is_kept_and_what_has_a_source_is_written_anew() -> None:
    page = "<!-- begin generated: t -->\n\n| `a_s` | 7 | h | why |\n| `gone` | 1 | - | x |\n\n<!-- end generated -->"
    block = docs_tables.table(page, "t", docs_tables.KEY_COLUMNS, {"a_s": ["8", "s", None]})
    assert block.text.splitlines()[2:] == ["| `a_s` | 8 | s | why |"]


def test_a_row_without_prose_is_an_error_that_names_it() -> None:
    page = "<!-- begin generated: t -->\n\n<!-- end generated -->"
    with pytest.raises(ValueError, match="row 'new' has no meaning"):
        docs_tables.table(page, "t", docs_tables.KEY_COLUMNS, {"new": ["8", None, None]})


def test_the_sentence_about_waiting_has_the_figures_of_the_ablation_table() -> None:
    page = DETECTION.read_text(encoding="utf-8")
    block = page.split("<!-- begin generated: ablations -->")[1].split("<!-- end generated -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines() if line.startswith("| ")]
    assert docs.insert(page, [ablate.waiting_paragraph({row[0]: row[-2] for row in rows})]) == page


def test_the_ablation_table_has_every_ablation() -> None:
    page = DETECTION.read_text(encoding="utf-8")
    assert [one.name for one in ablate.ABLATIONS if f"\n| {one.name} " not in page] == []


@pytest.mark.parametrize("one", ablate.ABLATIONS, ids=lambda one: one.name)
def test_a_rule_can_be_switched_off(one: ablate.Ablation) -> None:
    """Each ablation names parts of the engine, which may be renamed."""
    situation = next(iter(situations("given")))
    before = evaluate_situation(situation)
    with one.off():
        evaluate_situation(situation, EngineSettings(**one.settings))
    assert evaluate_situation(situation) == before  # and it is on again
