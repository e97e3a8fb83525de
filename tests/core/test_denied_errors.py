"""A result that says there was no error, or that names an error in passing, is none, in any of two dozen languages."""

from __future__ import annotations

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.content.outcome import looks_like_error, states_error
from trajectory_guard.core.policy import Level

DENIED = [
    "error-free", "No timeouts or failures were recorded.", "Without warnings or errors.", "Errors found: 0",
    "error rate 0.00 %", "Error budget: 99 % left", "Exception handling: enabled", "Error log: empty",
    "Failed logins: 0", "Invalid entries: 0", "Category: Error handling", "Artist: Unknown", "hata yok",
    "Hata tespit edilmedi.", "Hata bulunamadı.", "오류 없음", "오류가 없습니다", "오류 0건", "ohne Fehler", "keine Fehler gefunden",
    "Compilation réussie sans avertissement ni erreur.", "Taux d'erreur : 0 %", "sin errores", "senza errori",
    "sem erros", "geen fouten", "inga fel", "không có lỗi", "कोई त्रुटि नहीं", "bez błędów", "без ошибок",
]  # fmt: skip
STATED = [
    "Error: no such file", "Hata: dosya bulunamadı", "오류: 파일이 없습니다", "Error 0x80070005", "Invalid value: 0",
    "Fehler beim Lesen der Datei", "Unknown command: x", "Failed to open 0 files", "fatal: not a git repository",
    "Failed: 3 of 10", "Error on line 12", "Error rate limit exceeded", "Status: failed", "Error: 404",
]  # fmt: skip


@pytest.mark.parametrize("text", DENIED)
def test_no_error_is_stated(text: str) -> None:
    assert not looks_like_error(text)
    assert not states_error(text)


@pytest.mark.parametrize("text", STATED)
def test_an_error_is_stated(text: str) -> None:
    assert looks_like_error(text)


@pytest.mark.parametrize("text", ["error-free", "Hata bulunamadı.", "오류 없음", "Error budget: 99 % left"])
def test_a_check_of_many_things_that_are_all_in_order_is_left_alone(text: str) -> None:
    steps = [record("check_document", {"id": f"D-{at * 7919 % 9973:04}"}, text) for at in range(45)]
    assert first_level(evaluate(steps), Level.STOP) is None
    assert "same_error" not in {verdict.rule for verdict in evaluate(steps) if verdict is not None}


TEXTS = {
    "refund": "The refund policy: customers may claim within 30 days of receipt. Exceptions are decided by the lead.",
    "delivery": "The delivery policy: we could not promise a day. Failed deliveries are tried again within the week.",
}


def test_an_article_that_speaks_of_failures_is_read_for_each_ticket() -> None:
    steps = []
    for at in range(40):
        kind = ("refund", "delivery")[at * 7 % 3 == 0]
        steps.append(
            record("get_ticket", {"id": 600 + at}, f"Ticket {600 + at}: a question of customer {at * 31} on {kind}.")
        )
        steps.append(record("get_policy", {"name": kind}, TEXTS[kind]))
        steps.append(record("reply", {"id": 600 + at, "text": f"Dear customer {at * 31}, you may claim."}, "sent"))
    assert first_level(evaluate(steps), Level.STOP) is None


def page(url: str, *lines: str) -> str:
    return "\n".join(["### Page state", f"- Page URL: {url}", "- Page Title: Edit post", *lines])


@pytest.mark.parametrize("shows_url", [True, False])
def test_the_same_click_on_page_after_page_is_work(shows_url: bool) -> None:
    steps = []
    for at in range(35):
        url = f"https://cms.example/admin/post/{at * 7919 % 9973}/edit"
        shown = url if shows_url else "https://cms.example/app"
        steps.append(record("browser_navigate", {"url": url}, page(shown, '- button "Publish" [ref=e21]')))
        click = {"element": "Publish button", "ref": "e21"}
        steps.append(
            record("browser_click", click, page(shown, "- status: Post published.", '- link "View" [ref=e30]'))
        )
    assert first_level(evaluate(steps), Level.STOP) is None


def test_the_same_click_on_one_page_is_stopped() -> None:
    url, click = "https://cms.example/admin/post/7/edit", {"element": "Publish button", "ref": "e21"}
    steps = [
        one
        for _ in range(35)
        for one in (
            record("browser_navigate", {"url": url}, page(url, '- button "Publish" [ref=e21]')),
            record("browser_click", click, page(url, "- status: nothing happened.", '- button "Publish" [ref=e21]')),
        )
    ]
    assert first_level(evaluate(steps), Level.STOP) is not None
