"""One call whose results come back in turn, each time beside another duration or request id."""

from __future__ import annotations

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate

REPORTS = {
    "seconds": ("2 differences: header, footer ({}.14s)", "1 difference: side bar ({}.5s)"),
    "seconds in Korean": ("머리글이 다릅니다 (실행 시간 0.{}초)", "옆줄이 다릅니다 (실행 시간 0.{}초)"),
    "seconds in Chinese": ("页眉不同，用时{}.2秒。", "侧栏不同，用时{}.7秒。"),
    "seconds with a comma": ("Kopfzeile weicht ab ({},31 Sekunden)", "Seitenleiste weicht ab ({},2 Sekunden)"),
    "time stamp": ("2026-03-01 10:00:{:02d} header differs", "2026-03-01 10:00:{:02d} side bar differs"),
    "JSON": ('{{"differs": "header", "took_ms": {}}}', '{{"differs": "side bar", "took_ms": {}}}'),
}
SWITCHES = ("flex", "grid", "block")


def switched(reports: tuple[str, ...], laps: int) -> list[tuple[str, dict[str, str], str]]:
    """A setting goes round, one value for each report, and the same check follows each edit."""
    calls = []
    for at in range(laps * len(reports)):
        now, then = SWITCHES[at % len(reports)], SWITCHES[(at + 1) % len(reports)]
        calls.append(("edit_file", {"path": "a.css", "old": f"display: {now}", "new": f"display: {then}"}, "Done."))
        calls.append(("check", {"suite": "visual"}, reports[at % len(reports)].format(at + 11)))
    return calls


@pytest.mark.parametrize("kind", REPORTS)
def test_two_reports_in_turn_are_a_cycle_whatever_moves_in_them(kind: str) -> None:
    at = nudged(evaluate(steps(switched(REPORTS[kind], 4))))
    assert at is not None
    assert at <= 12


def test_so_are_three() -> None:
    reports = (*REPORTS["seconds"], "3 differences: menu, list, form ({}.2s)")
    assert nudged(evaluate(steps(switched(reports, 5)))) is not None


@pytest.mark.parametrize("kind", REPORTS)
def test_reports_that_say_something_else_each_time_are_none(kind: str) -> None:
    report = REPORTS[kind][0]
    calls = [
        (tool, args, result if tool == "edit_file" else f"{word} {result}" if result[:1] != "{" else f'{{"{word}": 1}}')
        for (tool, args, result), word in zip(
            switched((report, report), 5), (word for word in "abcdefghij" for _ in range(2)), strict=True
        )
    ]
    edits = [(*one[:1], {**one[1], "new": f"{one[1]['new']}-{at}"}, one[2]) if one[0] == "edit_file" else one
             for at, one in enumerate(calls)]  # fmt: skip
    assert nudged(evaluate(steps(edits))) is None


def test_a_code_that_has_no_letter_by_chance_is_as_little_news_as_the_others() -> None:
    codes = ("7b6694a1d1", "0f0e1c980a", "ad6cb9a234", "2e15c3d229", "4471930265", "bfa471eeb0", "9c01d7e2aa")
    calls = [("invoices", {"order": "R-3301"}, f"Order R-3301 has no invoice (query {code})") for code in codes]
    assert nudged(evaluate(steps(calls))) == 5


def test_two_variants_that_are_measured_in_turn_are_never_stopped() -> None:
    calls = []
    for at in range(24):
        variant = ("off", "on")[at % 2]
        calls.append(("set_flag", {"cache": variant}, "ok"))
        calls.append(
            ("bench", {}, f"cache {variant}: 1000 requests served in {at * 37 % 97}.4 s, no errors seen by clients")
        )
    assert stopped(evaluate(steps(calls, gap=9.0))) is None
