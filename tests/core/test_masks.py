"""Volatile parts of results, empty results, and errors of one kind."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trajectory_guard.core.content.listings import _may_hold_decimal
from trajectory_guard.core.content.masking import is_volatile_key, mask_noise, mask_text, masked_hash
from trajectory_guard.core.content.outcome import (
    _REFUSAL,
    error_signature,
    is_empty_result,
    is_refusal,
    looks_like_error,
)
from trajectory_guard.core.content.result_text import DECIMAL
from trajectory_guard.core.content.transient import _TRANSIENT_WORDS, is_transient
from trajectory_guard.core.text import _TRACEBACK, has_traceback
from trajectory_guard.core.wordlists import ascii_beginnings, runs

NOISE: list[tuple[str, str, str]] = [
    ("rate of a bar", "import 25/40 [97.52it/s]", "import 25/40 [62.08it/s]"),
    ("rate of a transfer", "4.0 MiB copied, 1.2 GB/s", "4.0 MiB copied, 897 MB/s"),
    ("milliseconds by name", "not ok 1 - adds\n  duration_ms: 1.474211", "not ok 1 - adds\n  duration_ms: 6.1"),
    ("clock", "done at 10:00:01", "done at 23:59:59"),
    ("ISO stamp", "at 2026-03-01T10:00:00Z ok", "at 2026-04-11T23:10:59.123+02:00 ok"),
    ("unix date", "Tue Mar  3 10:00:00 UTC 2026", "Wed Mar  4 11:22:33 UTC 2026"),
    ("seconds", "took 3.2s", "took 12.9s"),
    ("milliseconds", "in 14 ms", "in 2000 ms"),
    ("microseconds", "in 874 microseconds", "in 1 microsecond"),
    ("nanoseconds", "in 12 nanoseconds", "in 9 nanoseconds"),
    ("microseconds, abbreviated", "in 874 usec", "in 12usecs"),
    ("nanoseconds, abbreviated", "in 874 nsec", "in 12nsecs"),
    ("microseconds with the sign", "in 874\u00b5s", "in 12 \u00b5s"),
    ("microseconds with the Greek letter", "in 874\u03bcs", "in 12 \u03bcs"),
    ("seconds with a comma", "in 1,14 s", "in 12,9 s"),
    ("seconds in German", "Dauer: 3 Sekunden", "Dauer: 41 Sekunden"),
    ("seconds in Spanish", "terminado en 3 segundos", "terminado en 14 segundos"),
    ("seconds in Russian", "готово за 1.2 сек", "готово за 14 секунд"),
    ("seconds in Chinese", "用时3.2秒后完成", "用时11秒后完成"),
    ("milliseconds in Japanese", "処理時間 12 ミリ秒", "処理時間 9 ミリ秒"),
    ("seconds in Korean", "실행 시간 0.37초가 걸림", "실행 시간 12초가 걸림"),
    ("seconds behind Chinese", "已等待12s", "已等待3s"),
    ("uuid", "job 0190c3a0-1111-7000-8000-000000000001", "job 0190c3a0-2222-7000-8000-00000000000f"),
    ("sha1", "sum da39a3ee5e6b4b0d3255bfef95601890afd80709", "sum 0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33"),
    ("address", "<Foo object at 0x7f38f55c8e10>", "<Foo object at 0x7f38f55c9f00>"),
    ("pid", "started, pid 77", "started, pid 4242"),
    ("pid assigned", "pid=77", "pid=4242"),
    ("attempt", "attempt 3 of it", "attempt 4 of it"),
    ("retry", "Retry #2", "Retry #3"),
    ("tmp path", "wrote /tmp/abc123/out.txt", "wrote /tmp/xyz789/out.txt"),
    ("var tmp path", "wrote /var/tmp/a1", "wrote /var/tmp/b2"),
    ("epoch", "ts 1700000000", "ts 1712345678"),
    ("epoch ms", "seen 1700000000123", "seen 1712345678456"),
    ("spacing", "a  b\n", "a b"),
    ("random id", "request 8VNH87UX8QkvKsC2z0", "request CHcRFwqz6HS7MPBaNG"),
    ("random id in capitals", "context YC1KIL2HYRMPCD0CRHCGMWCRZR", "context ERKDPVFLS8WNNOHXV9HLZYJGYN"),
    ("random id with a prefix", "pi_3MtwBwLkdIwHu7ix28a3tqPa", "pi_9KxQ2cVbRz7Pm4Wd5nE8uYh1"),
    ("long number", "Support ID: 147548474579080751", "Support ID: 644949093523358234"),
    ("id of a request in capitals", "Request ID: 8812", "Request ID: 71"),
    ("glog", "E0528 23:39:48.411370   1117 memcache.go:265] no", "E0528 23:40:03.197558    407 memcache.go:265] no"),
    (
        "snapshot of Playwright",
        '- button "Go" [ref=s1e5] [cursor=pointer]',
        '- button "Go" [ref=s2e5] [cursor=pointer]',
    ),
    ("snapshot of DevTools", "page\n uid=1_23 button Go", "page\n uid=4_23 button Go"),
    ("comment of a page", "<p>Busy.</p><!-- node p3 f0141c -->", "<p>Busy.</p><!-- node p1 db827c -->"),
    ("token of a form", '<input name="_csrf" value="By2AW+X9/w">', '<input name="_csrf" value="Dkb+tVThDH">'),
    ("token of Rails", '<meta name="csrf-token" content="abc/+d==">', '<meta name="csrf-token" content="Zq7/x==">'),
    (
        "state of a login",
        "https://a.example/?state=abcdEFGHijklMNOPqrstUVWX",
        "https://a.example/?state=Zbcd" + "q" * 20,
    ),
]
"""Volatile in every answer."""

ERROR_NOISE: list[tuple[str, str, str]] = [
    ("clock with zone", "at 10:00 UTC", "at 11:30 UTC"),
    ("12 h clock", "failed 10:31 AM", "failed 9:02 PM"),
    ("date", "as of 2026-03-01", "as of 2026/04/02"),
    ("written date", "on Mar 3, 2026 it failed", "on Dec 24, 2026 it failed"),
    ("minutes", "elapsed: 3 minutes", "elapsed: 12 minutes"),
    ("commit", "HEAD is 4f2a9c1", "HEAD is 9be01d7"),
    ("line", "error in line 14", "error in line 99"),
    ("notebook cell", "In [3]: boom", "In [17]: boom"),
    ("step", "failed in step 3", "failed in step 9"),
    (
        "npm log",
        "log: /root/.npm/_logs/2026-05-12T08_00_05_123Z-debug-0.log",
        "log: /root/.npm/_logs/2026-05-13T11_41_59_007Z-debug-0.log",
    ),
    ("dump", "core written to dump-20260512_080005.txt", "core written to dump-20260512_081142.txt"),
    ("compact stamp", "run 20260512T080005Z failed", "run 20260513T101112Z failed"),
    ("dashes", "see report_2026-05-12-08-00-05.html", "see report_2026-05-12-08-03-44.html"),
    ("BuildKit", "#9 3.121 ERROR: no such package", "#11 12.004 ERROR: no such package"),
    ("seconds to wait", "429: retry-after: 58", "429: Retry-After: 7"),
]
"""Volatile in errors; in other answers they may be the very thing that was asked for."""

TELLING: list[tuple[str, str, str]] = [
    ("failures", "3 failed, 4 passed", "2 failed, 5 passed"),
    ("percent", "40 % done", "60 % done"),
    ("percent tight", "40% done", "60% done"),
    ("price", "total $17.99", "total $18.99"),
    ("amount", "balance 1200.50 EUR", "balance 1300.50 EUR"),
    ("version", "installed 1.2.3", "installed 1.2.4"),
    ("python version", "Python 3.10", "Python 3.11"),
    ("order id", "order 17", "order 18"),
    ("rows", "17 rows", "18 rows"),
    ("row", "row 3: the date is invalid", "row 7: the date is invalid"),
    ("page", "page 2 of 9", "page 3 of 9"),
    ("items", "4 of 10 items", "5 of 10 items"),
    ("temperature", "21 degrees", "22 degrees"),
    ("score", "score 3:2", "score 3:1"),
    ("word", "state: open", "state: closed"),
    ("file name", "wrote report1.txt", "wrote report2.txt"),
    ("decimal", "loss 0.52", "loss 0.48"),
    ("negative", "delta -3", "delta 3"),
    ("flight", "UA 123 at gate B7", "UA 456 at gate B7"),
    ("wind", "wind 5 m/s from the north", "wind 9 m/s from the north"),
    ("requests", "load: 1203 req/s", "load: 877 req/s"),
    ("duration", "film, duration: 93", "film, duration: 121"),
    ("line of TypeScript", "app.ts(17,5): error TS1005: ';' expected", "app.ts(21,5): error TS1005: ';' expected"),
    ("place in TypeScript", "src/app.ts:17: let one", "src/app.ts:21: let one"),
    ("word of hex letters", "deadbeef cafe facade", "deadbeef cafe decade"),
    ("camel case", "getElementsByClassName2", "getElementsByClassName3"),
    ("algorithm", "sha256WithRSAEncryption", "sha512WithRSAEncryption"),
    ("file in capitals", "ABCDEFGHIJKLMNOP1", "ABCDEFGHIJKLMNOP2"),
    ("part of a list", "chunk_0001_part_0002", "chunk_0001_part_0003"),
    ("state of a list", "https://a.example/?state=needs_review_by_a_team", "https://a.example/?state=open"),
    ("large number", "20! = 2432902008176640000", "21! = 51090942171709440000"),
    ("policy in words", "policy=keep", "policy=drop"),
    ("account number", "account 4417123456789113", "account 4417123456789114"),
    ("reference of an element", "- button [ref=e31]", "- button [ref=e32]"),
    ("element of a snapshot", "- button [ref=s1e31]", "- button [ref=s1e32]"),
]
"""Never volatile."""


def ids(table: list[tuple[str, str, str]]) -> list[str]:
    return [row[0] for row in table]


def in_json(text: str) -> str:
    return json.dumps({"code": 403, "errors": [{"message": text}]})


@pytest.mark.parametrize("one, other", [row[1:] for row in NOISE], ids=ids(NOISE))
def test_noise_is_masked_in_answers_and_in_errors(one: str, other: str) -> None:
    assert mask_noise(one) == mask_noise(other)
    assert mask_text(one) == mask_text(other)
    assert masked_hash(one) == masked_hash(other)


@pytest.mark.parametrize("one, other", [row[1:] for row in ERROR_NOISE], ids=ids(ERROR_NOISE))
def test_dates_and_places_are_masked_in_errors_only(one: str, other: str) -> None:
    assert mask_text(one) == mask_text(other)
    assert masked_hash(one, error=True) == masked_hash(other, error=True)
    assert masked_hash(in_json(one), error=True) == masked_hash(in_json(other), error=True)
    assert mask_noise(one) != mask_noise(other)
    assert masked_hash(in_json(one)) != masked_hash(in_json(other))


@pytest.mark.parametrize(
    "error, first, second",
    [
        ("403: no access (request {})", "7ca3f9", "b0d412"),
        ("550 user unknown (queue id {})", "EC6315C680", "XR4CC5D24Q"),
        ("unknown part {}", "7HX9K2M1", "9QQ4B7T2"),
    ],
)
def test_short_codes_are_no_part_of_the_class_of_an_error_but_make_another_text(
    error: str, first: str, second: str
) -> None:
    one, other = error.format(first), error.format(second)
    assert error_signature(one, None) == error_signature(other, None)
    assert masked_hash(one, error=True) != masked_hash(other, error=True)


@pytest.mark.parametrize("one, other", [row[1:] for row in TELLING], ids=ids(TELLING))
def test_telling_parts_are_kept(one: str, other: str) -> None:
    assert mask_text(one) != mask_text(other)
    assert mask_noise(one) != mask_noise(other)
    assert masked_hash(one) != masked_hash(other)
    assert masked_hash(in_json(one), error=True) != masked_hash(in_json(other), error=True)


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)
    assert mask_noise(mask_noise(text)) == mask_noise(text)


@pytest.mark.parametrize(
    "key",
    ["ts", "timestamp", "created_at", "updatedAt", "duration_ms", "durationMs", "elapsed", "pid", "request_id", "requestId", "trace_id",
     "uuid", "nonce", "attempt", "retry_count", "latency", "etag", "messageId", "час_мс", "耗时毫秒"],
)  # fmt: skip
def test_volatile_members(key: str) -> None:
    assert is_volatile_key(key)


@pytest.mark.parametrize(
    "key",
    ["id", "order_id", "status", "state", "result", "rows", "data", "format", "what", "items", "count", "total", "progress", "name",
     "page", "weather", "rate", "plate", "support", "mandate", "sentiment", "stage", "message", "threads", "category", "chat"],
)  # fmt: skip
def test_telling_members(key: str) -> None:
    assert not is_volatile_key(key)


def test_json_answers_are_compared_without_their_volatile_members() -> None:
    one = json.dumps({"state": "running", "pid": 7, "meta": {"took_ms": 3, "rows": [1]}})
    other = json.dumps({"meta": {"rows": [1], "took_ms": 99}, "pid": 8, "state": "running"})
    assert masked_hash(one) == masked_hash(other)
    assert masked_hash(one) != masked_hash(other.replace("running", "done"))
    assert masked_hash(one) != masked_hash(one.replace("[1]", "[2]"))


@pytest.mark.parametrize("text", ["[" * 10_000, '{"a":' * 10_000, "{", "[1", "\ud800", "x" * 1_000_000])
def test_any_answer_can_be_masked(text: str) -> None:
    assert len(masked_hash(text)) == 8


EMPTY = ["", "  \n", "[]", "{}", "null", "None", '""', "''", "()", "[[]]", "NaN", "n/a", "No results found", "No results found.", "no matches",
         "0 results", "0 rows returned", "No matching documents found", "Nothing found", "not found", '{"results": []}', '{"result": null}',
         '{"data": {}, "status": "ok"}', '{"items": [], "total": 0}', "no output", "- No hits -", '{"artikel": [], "anzahl": 0}', '{"messages": [], "resultSizeEstimate": 0}',
         '{"took": 3, "hits": {"total": 0, "hits": []}}', '{"ok": true, "messages": {"total": 0, "matches": []}}', "| id | name |\n|----|------|",
         " id | name \n----+------\n(0 rows)\n", " id \n----\n(0 rows)", "Empty set (0.00 sec)", "Empty set, 1 warning (0.01 sec)", "Empty set", "Empty DataFrame\nColumns: [a, b]\nIndex: []"]  # fmt: skip
NOT_EMPTY = ["0", "false", "0 failed", "3 results", "no", "No errors, all 12 tests passed", '{"results": [0]}', '{"error": null}', '{"a": 1}',
             "No results for the first query, but 3 for the second", "[0]", "[null]", "None of the files changed", "No problem!", "x" * 500,
             "No items left to do: the order has been shipped to the customer", '{"results": [], "hint": "a", "next": "b", "page": 1}', '{"errors": [], "failed": 0}', '{"deleted": true, "orphans": [], "count": 0}', '{"artifacts": [], "exit_code": 0}', '{"files": [], "elapsed_ms": 0}', '{"jobs": [], "code": 0}',
             "Empty set of fixtures was replaced by the new one", "Empty DataFrame handling is fixed", '{"id": 7, "tags": [], "views": 0}',
             "| id | name |\n|----|------|\n| 1 | a |", "Report\n------", " id \n----\n(1 row)", "diff --git a b\n+++", '{"a": {"b": {"c": {"d": [], "n": 0}}}}']  # fmt: skip


@pytest.mark.parametrize("text", EMPTY)
def test_answers_that_say_nothing_was_found(text: str) -> None:
    assert is_empty_result(text)


@pytest.mark.parametrize("text", NOT_EMPTY)
def test_answers_that_say_something(text: str) -> None:
    assert not is_empty_result(text)


ONE_KIND = [
    ("FileNotFoundError: '/data/a.csv'", "FileNotFoundError: '/data/b/c.csv'"),
    ("KeyError: 'user_7'", "Traceback (most recent call last):\n  File \"x.py\", line 3\nKeyError: 'user_9'"),
    ("HTTP 500 error at 10:00:01", "HTTP 500 error at 11:00:09"),
    ("error: expected 3 arguments, got 5", "error: expected 3 arguments, got 7"),
    ("Column `age` not found", "Column `height` not found"),
]
TWO_KINDS = [
    ("FileNotFoundError: 'a'", "PermissionError: 'a'"),
    ("error: connection refused", "error: connection timed out"),
    ("TypeError: missing argument x", "TypeError: unexpected argument x"),
]


@pytest.mark.parametrize("one, other", ONE_KIND)
def test_errors_of_one_kind_have_one_signature(one: str, other: str) -> None:
    assert error_signature(one, None) == error_signature(other, None) is not None


@pytest.mark.parametrize("one, other", TWO_KINDS)
def test_errors_of_two_kinds_have_two_signatures(one: str, other: str) -> None:
    assert error_signature(one, None) != error_signature(other, None)


def test_without_text_the_class_is_the_signature() -> None:
    assert error_signature(None, "ReadTimeout") == error_signature("", "readtimeout") == "readtimeout"
    assert error_signature(None, None) is None


@given(st.text(max_size=600))
def test_a_signature_is_short_and_never_empty(text: str) -> None:
    signature = error_signature(text, None)
    assert signature is None or 0 < len(signature) <= 160


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such table",
        "grep: Unmatched ( or \\(",
        "usage: tool [-h]",
        "Traceback (most recent call last):",
        "ls: cannot access 'x'",
    ],
)
def test_successes_that_read_like_errors(text: str) -> None:
    assert looks_like_error(text)


@pytest.mark.parametrize(
    "text", ["12 errors fixed", "", "all good", "The error rate is 0.2 %", "x" * 5_000, "Errors: none. Report: done."]
)
def test_successes_that_do_not_read_like_errors(text: str) -> None:
    assert not looks_like_error(text)


_FRAGMENTS = (
    "12:03:44", "2026-03-01", "T10:00:00Z", "Mar 1, 2026", "10:30", "1760000000", "0.31s", "12 ms", "3 s", "attempt 4",
    "Retry no. 7", "pid=77", "req (12", "ts: 9", "deadbeef", "3f2a9c1e-0000-4000-8000-0123456789ab", "a1b2c3d4e5f60718",
    "/tmp/x1", "C:\\Temp\\y2", "0xdeadbeef", "row 7", "7 rows", "٣", "1", ".", ",", " ", "\n", "x", "session", "trace id",
    "ſession 3", "pıd: 4", "ATTEMPT (2", "Ts  8", "thread id=3", "é", "処理", "٣ ms", "7 µs", "7 \u03bcs", "8 nsec", "9 microseconds", "4m 3s", "0m9", "123456789",
    "nonce", "#", "=", "0123456789abcdef", "abcdef12-3456-", "no 4", "count 4", "\ud800",
)  # fmt: skip


@given(st.from_regex(_TRANSIENT_WORDS, fullmatch=True), st.booleans())
def test_the_quick_look_for_words_of_what_passes_overlooks_none(words: str, shout: bool) -> None:
    text = words.upper() if shout and words.isascii() else words.lower()  # in mixed case it may be a name
    assert is_transient(f"E-17: {text}", None)


@given(st.from_regex(_REFUSAL, fullmatch=True), st.booleans())
def test_the_quick_look_for_words_of_a_refusal_overlooks_none(words: str, shout: bool) -> None:
    assume(len(words) <= 100)
    assert is_refusal(words.upper() if shout and words.isascii() else words)


@given(st.text(alphabet="190.,a \né٣", max_size=12))
def test_the_quick_look_for_decimals_overlooks_none(text: str) -> None:
    assert _may_hold_decimal(text) or DECIMAL.search(text) is None


@given(
    st.lists(
        st.sampled_from(("Traceback ", "E   ", "at a.b(C.java:7)", "at ", "line 7, in f", "x", "\n", " ", "(a:7)"))
    )
)
def test_the_quick_look_for_tracebacks_overlooks_none(parts: list[str]) -> None:
    text = "".join(parts)
    assert has_traceback(text) == (_TRACEBACK.search(text) is not None)


@pytest.mark.parametrize("name", ["pending", "transient"])
def test_the_quick_look_for_words_of_other_languages_overlooks_none(name: str) -> None:
    """A phrase that is not among those looked for in ASCII has a character that no character of ASCII matches."""
    quick = set(ascii_beginnings(name))
    phrases = [" ".join(run) for members in runs(name).values() for run in members]
    assert quick
    for phrase in phrases:
        own = [[char for char in map(chr, range(128)) if re.match(re.escape(one), char, re.I)] for one in phrase]
        assert not all(own) or any("".join(chars[-1] for chars in own).lower() == one for one in quick)


@given(st.lists(st.sampled_from(_FRAGMENTS), max_size=12), st.sampled_from(("", " ")))
def test_the_quick_look_for_noise_overlooks_none(fragments: list[str], between: str) -> None:
    """An address makes the full search certain; it must find no more than was found without it."""
    text = between.join(fragments).strip()
    assert mask_noise(f"{text} 0xdeadbeef") == f"{mask_noise(text)} <addr>".strip()


@given(st.sampled_from((408, 425, 429, 500, 502, 503, 504, 529)), st.sampled_from(("HTTP {}", "Error: {}", "{} busy")))
def test_every_status_that_passes_is_found(code: int, form: str) -> None:
    assert is_transient(form.format(code), None)
    assert not is_transient(form.format(f"{code}7"), None)


@pytest.mark.parametrize(
    "link",
    [
        "https://a.example/authwall?sess={}",
        "https://a.example/app;v=2?lang=de&JSESSIONID={}",
        "https://b.s3.amazonaws.com/report.pdf?X-Amz-Credential={}&X-Amz-Signature={}&X-Amz-Security-Token={}",
        "https://c.blob.core.windows.net/r.pdf?sv=2024-11-04&sig={}",
        "https://raw.example.com/repo/main/README.md?token={}",
        "https://d.example/form?csrf_token={}",
    ],
)
def test_what_a_link_was_given_for_one_request_is_noise(link: str) -> None:
    first, second = (link.replace("{}", one) for one in ("9f8eQ2hh7d6c", "abcXX8166fZZ"))
    for text in ("Sign in\nPage: {}", '{{"url": "{}", "size": 12}}', '<a href="{}">open</a>'):
        assert masked_hash(text.format(first)) == masked_hash(text.format(second))
    assert mask_noise(first) == mask_noise(second)


@pytest.mark.parametrize("name", ["t", "_", "cb", "rand"])
def test_the_number_that_keeps_a_page_out_of_caches_is_noise(name: str) -> None:
    page = "URL: https://a.example/login?next=/orders&{}={}\nPassword [field]"
    assert mask_noise(page.format(name, 1951849646)) == mask_noise(page.format(name, 16711886239))
    assert mask_noise(page.format(name, 12)) != mask_noise(page.format(name, 13))  # seconds of a film


@pytest.mark.parametrize(
    "name",
    [
        "csrf",
        "__RequestVerificationToken",
        "authenticity_token",
        "__VIEWSTATE",
        "nonce",
        "_XSRF",
        "csrfmiddlewaretoken",
    ],
)
@pytest.mark.parametrize("form", ['<input name="{}" value="{}">', '<meta id="{}" content="{}">'])
def test_the_token_of_a_form_is_noise_without_a_query_beside_it(name: str, form: str) -> None:
    assert mask_noise(form.format(name, "kQzv-Lp")) == mask_noise(form.format(name, "Wmxa-Tr"))
    assert mask_noise(form.format("title", "kQzv-Lp")) != mask_noise(form.format("title", "Wmxa-Tr"))


@pytest.mark.parametrize("name", ["id", "q", "page_token", "cursor", "state", "version", "design", "obsession_id"])
def test_what_a_link_points_to_is_none(name: str) -> None:
    assert mask_noise(f"https://a.example/list?{name}=9f8eQ2hh") != mask_noise(
        f"https://a.example/list?{name}=abcX8166"
    )
