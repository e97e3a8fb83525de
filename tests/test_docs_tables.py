"""The tables of the pages are those that ``make docs`` writes."""

from __future__ import annotations

import pytest

from tests import docs_tables
from tests.bench.accuracy import ablate, docs, first_looks
from tests.bench.accuracy.unseen_pairs import SPLITS
from tests.bench.situations import SETS, evaluate_situation, situations
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


def test_the_readme_states_the_first_looks_at_recorded_runs() -> None:
    runs = first_looks.first_looks("runs")
    loops, healthy, nudged, stopped = (
        sum(run[key] for run in runs) for key in ("loops", "healthy", "nudged", "stopped")
    )
    readme = " ".join((docs_tables.ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"On {loops + healthy:,} recorded runs" in readme
    assert f"two thirds of the {loops} loops" in readme
    assert (
        f"{nudged} of the {healthy:,} healthy runs, and stopped {'one' if stopped == 1 else stopped} healthy run"
        in readme
    )
    assert sum(run["found"] for run in runs) / loops == pytest.approx(2 / 3, abs=0.02)


def test_every_first_look_is_one_of_the_sets_of_this_repository() -> None:
    assert {row["set"] for row in first_looks.first_looks("situations")} <= set(SETS)
    assert {row["set"] for row in first_looks.first_looks("pairs")} <= set(SPLITS)
    for row in first_looks.first_looks("situations"):
        assert row["count"] == len(list(situations(row["set"])))


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
