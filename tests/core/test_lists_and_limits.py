"""Fruitless calls: which are a list that is worked through, which are one thing again, and which may pass."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import StepRecord

KILLED = "The last command <command>{}</command> timed out and has been killed.\nThe output of the command was:\n{}"


def steps(calls: Iterable[tuple[Any, ...]], gap: float = 2.0) -> list[StepRecord]:
    """Tool, arguments, result, and the outcome unless it is success."""
    return [
        record(tool, args, result, rest[0] if rest else "success", t=100.0 + at * gap)
        for at, (tool, args, result, *rest) in enumerate(calls)
    ]


def nudged(verdicts: list[Verdict | None]) -> int | None:
    return first_level(verdicts, Level.NUDGE)


def stopped(verdicts: list[Verdict | None]) -> int | None:
    return first_level(verdicts, Level.STOP)


# --- one thing again and again -----------------------------------------------------------------------------------

COMMANDS = (
    "make all",
    "make -j2 all",
    "make -k all",
    "nice make all",
    "make all 2>&1",
    "gmake all",
)
GUESSES = (
    "/daten/umsatz.xlsx",
    "/daten/2026/umsatz.xlsx",
    "/umsatz/daten.xlsx",
    "/daten/umsatz_2026.xlsx",
    "/home/daten/umsatz.xlsx",
    "/daten/umsatz.xls",
    "/umsatz.xlsx",
)
NOTES = ("alpha (doc-3)", "beta (doc-8)", "gamma (doc-15)")
LOOPS: dict[str, list[tuple[Any, ...]]] = {
    "commands killed by one time limit": [
        ("bash", {"command": one}, KILLED.format(one, f"line {at}")) for at, one in enumerate(COMMANDS)
    ],
    "a refusal in a JSON body that quotes a URL": [
        ("places", {"lon": 127.0577, "radius": radius}, json.dumps({
            "success": False, "error_message": f"400 Client Error for url: https://x.example/?lon=127.0577&r={radius}"
        }))
        for radius in (2000, 1000, 500, 3000, 100)
    ],
    "names guessed, an answer that only quotes them": [
        ("datei_oeffnen", {"pfad": one}, f"»{one}« gibt es hier nicht.") for one in GUESSES
    ],
    "settings turned around an empty answer": [
        ("ocr", {"image": "scan_004.png", "dpi": dpi, "contrast": contrast}, '{"text": ""}', "empty")
        for dpi in (150, 200, 300) for contrast in (1.0, 1.2, 1.4)
    ],
    "numbered hits in another order": [
        ("suche", {"frage": f"{word} Öffnungszeiten Bad"}, "\n".join(
            f"{rank}. {NOTES[(rank + at) % 3]}, Wert 0.{at}{rank}" for rank in (1, 2, 3)
        ))
        for at, word in enumerate(("Bad", "Hallenbad", "das Bad", "Bäder", "im Bad", "Bad heute"))
    ],
    "hits with scores in brackets in another order": [
        ("suche", {"frage": f"{word} Öffnungszeiten Bad"}, "\n".join(
            f"[0.{at}{rank}] {NOTES[(rank + at) % 3]}" for rank in (1, 2, 3)
        ))
        for at, word in enumerate(("Bad", "Hallenbad", "das Bad", "Bäder", "im Bad", "Bad heute"))
    ],
    "an echo of the request, once whole and once in words": [
        ("fundbüro", {"text": one}, json.dumps({"asked": one, "words": one.split(), "found": []}))
        for one in ("Schirm Linie 7", "schwarzer Schirm Linie 7", "Schirm Tram 7", "Schirm verloren Linie 7",
                    "Linie 7 Schirm", "Schirm in Tram 7", "Regenschirm Linie 7", "Schirm schwarz Tram 7")
    ],
    "an option turned against a time-out, at full speed": [
        ("route", {"from": "49.4521,11.0767", "to": "48.1372,11.5756", "kind": kind}, "Request timeout", "error")
        for kind in ("fast", "short", "free", "scenic", "car")
    ],
    "one question in other words against a time-out, at full speed": [
        ("search", {"q": q}, "Request timeout", "error")
        for q in ("train delay today", "today train delay", "delay of the train today", "train delays", "train delay")
    ],
    "one linker error below a percentage and a duration": [
        one for at in range(8) for one in (
            ("edit", {"line": at, "text": f"link_directories(/usr/lib/{at * 7919:b})"}, "edited"),
            ("run", {"cmd": "cmake --build build"},
             f"[ {88 + at % 3}%] Linking app\nld: cannot find -lzstd\nreal 0m{6 + at}.{at}s", "error"),
        )
    ],
}  # fmt: skip


@pytest.mark.parametrize("calls", LOOPS.values(), ids=LOOPS)
def test_one_thing_again_and_again_is_nudged(calls: list[tuple[Any, ...]]) -> None:
    assert nudged(evaluate(steps(calls))) is not None


def test_five_killed_commands_are_nudged_and_four_are_not() -> None:
    verdicts = evaluate(steps(LOOPS["commands killed by one time limit"]))
    assert nudged(verdicts) == 4
    assert [verdict.rule for verdict in verdicts if verdict is not None and verdict.nudge] == ["same_error"]


# --- lists -------------------------------------------------------------------------------------------------------

HOSTS = ("vpn", "git", "mail", "wiki", "ldap", "cdn", "beta", "shop", "ftp", "imap", "old")
NAMES = ("Boréal Optique", "Hélios Transport", "Maison Verdier", "Atelier Kéops", "Granit Énergie", "Lumen Textile")
NUMBERS = (10077, 14890, 19703, 24516, 29329, 34142, 38955, 43768, 48581, 53394, 58207, 63020)
LISTS: dict[str, list[tuple[Any, ...]]] = {
    "host names, of which one exists": [
        ("dns", {"host": "www.bakery.example"}, "192.0.2.7"),
        *(("dns", {"host": f"{one}.bakery.example"}, "NXDOMAIN", "error") for one in HOSTS),
    ],
    "numbers whose last letter comes again": [
        ("rueckruf", {"nummer": f"WM-{one}-{'ABC'[at % 3]}"}, "kein Treffer im Verzeichnis", "empty")
        for at, one in enumerate(NUMBERS)
    ],
    "one slot in a constant frame": [
        ("news", {"query": f"{one} levée de fonds 2026"}, '{"articles": []}', "empty") for one in NAMES
    ],
    "topics that share nothing": [
        ("rechercher", {"q": one}, "Aucun document trouvé.", "empty")
        for one in ("bail commercial", "taux d'usure", "marchés publics", "délai de rétractation", "barème moto")
    ],
    "different programs that are missing": [
        ("bash", {"command": f"{one} --version"}, f"/bin/sh: 1: {one}: not found", "error")
        for one in ("wget", "curl", "aria2c", "killall", "pkill")
    ],
    "figures that are all of the answer": [
        ("read_sensor", {"name": one}, f"{at}.5{at}") for at, one in enumerate(HOSTS)
    ],
    "a grid of settings with a measure each": [
        ("train", {"data": "churn.csv", "rate": rate, "depth": depth}, json.dumps({"auc": 0.7 + rate * depth / 97}))
        for rate in (0.1, 0.05, 0.02) for depth in (3, 5, 7)
    ],
    "the same move, with a range of lines that goes on": [
        ("seite_blaettern", {"richtung": "unten"}, f"Sichtbar: Zeilen {at * 25 + 1}\u2013{at * 25 + 25} von 225")
        for at in range(9)
    ],
    "program text that prints nothing": [
        ("python", {"code": f"def part_{at}(x):\n    return x + {at}"}, "", "empty") for at in range(9)
    ],
    "actions that return nothing": [
        ("click", {"x": 100 + at % 3, "y": 300 + at % 2, "label": f"row {at % 4}"}, "", "empty") for at in range(9)
    ],
    "commands of a terminal that echoes them and prints nothing": [
        ("terminal", {"keys": one}, f"admin@srv:~$ {one}\nadmin@srv:~$ ")
        for one in ("mkdir -p /srv/app", "cp -r dist /srv/app", "chown -R www /srv/app", "rm -rf /tmp/dist",
                    "systemctl enable app", "touch /srv/app/.ready", "ln -s /srv/app /var/www/app")
    ],
}  # fmt: skip


@pytest.mark.parametrize("calls", LISTS.values(), ids=LISTS)
def test_a_list_that_is_worked_through_is_left_alone(calls: list[tuple[Any, ...]]) -> None:
    assert nudged(evaluate(steps(calls))) is None


# --- failures that may pass --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1.5, 19.0], ids=["at once", "paced"])
@pytest.mark.parametrize("words", ["E-31 valve not settled", "Achse 3 in Bewegung", "设备使用中", "клапан не в покое"])
def test_an_error_in_unknown_words_that_is_retried_is_nudged_and_not_stopped_soon(words: str, gap: float) -> None:
    verdicts = evaluate(steps([("act", {"on": 4}, words, "error")] * 14, gap))
    assert nudged(verdicts) == 2
    assert stopped(verdicts) is None


def test_an_error_in_unknown_words_is_stopped_in_the_end() -> None:
    assert stopped(evaluate(steps([("act", {"on": 4}, "E-31 valve not settled", "error")] * 40))) is not None


@pytest.mark.parametrize("words", ["404: no such valve", "KeyError: 'valve'", "Fehler: Ventil 4 gibt es nicht"])
def test_an_error_that_is_known_to_last_is_stopped_as_soon_as_ever(words: str) -> None:
    assert stopped(evaluate(steps([("act", {"on": 4}, words, "error")] * 8))) == 4


def test_a_status_that_lasts_outweighs_words_for_what_passes() -> None:
    assert stopped(evaluate(steps([("comment", {"id": 481}, "403: ticket is locked", "error")] * 8))) == 4


def test_a_pause_that_jitters_around_the_least_one_is_one_wait() -> None:
    gaps, at, found = (5.9, 4.2, 5.5, 4.3, 5.8, 4.7, 5.6, 4.4, 5.2, 4.9, 5.7, 4.1), 0.0, []
    for gap in gaps:
        found.append(record("bash", {"command": "blkid /dev/sdc"}, "", "empty", t=100.0 + at))
        at += gap
    assert stopped(evaluate(found)) is None


def test_a_long_page_is_scrolled_without_a_stop_and_no_page_is_for_ever() -> None:
    scrolled = [("scroll", {"direction": "down", "amount": 900}, "scrolled")]
    assert stopped(evaluate(steps(scrolled * 31))) is None
    assert stopped(evaluate(steps(scrolled * 60))) is not None


def test_a_search_for_the_words_of_a_time_out_is_no_failure() -> None:
    found = [
        ("grep", {"pattern": "request timed out", "path": f"src{at}"}, f"src{at}/log.py:9: 'request timed out' {at}")
        for at in range(8)
    ]
    assert nudged(evaluate(steps(found))) is None


# --- pages, offsets, hours, cursors ------------------------------------------------------------------------------


def _token(at: int) -> str:
    return f"{at * at * 7919 + 13:x}-{'ghjk'[at % 4] * 3}{at * 31337:o}"


WAYS: dict[str, tuple[str, dict[str, Any], str]] = {
    "pages": ("list_events", {"page": "{n}"}, '{{"items":[],"page":{n},"total_pages":25}}'),
    "pages, counted as text": ("listar", {"pagina": "{n}"}, "[]"),
    "pages backwards": ("liste", {"seite": "{back}"}, "Keine Einträge auf Seite {back}."),
    "offset beside a table": ("query", {"table": "log", "offset": "{n00}"}, "[]"),
    "hours of a day": ("query_log", {"date": "2026-01-01", "hour": "{n}"}, "no entries"),
    "a window of two numbers": ("lies_zeilen", {"datei": "a.log", "von": "{n00}", "bis": "{m00}"}, "(nichts)"),
    "days over the end of a month": ("belegung", {"tag": "{date}"}, "nichts frei"),
    "weeks in a path": ("ls", {"pfad": "/archiv/2026/kw{n}/"}, "leer"),
    "an opaque cursor": ("list_events", {"cursor": "{token}"}, '{{"items":[],"next_cursor":"{next}"}}'),
    "an address of the next page": (
        "hole", {"url": "https://x.example/v1/a?c={token}"},
        '{{"data": [], "links": {{"weiter": "https://x.example/v1/a?c={next}"}}}}',
    ),
    "a token in a sentence": ("ページ", {"続き": "{token}"}, "該当なし。続き: {next}"),
    "offset in SQL": ("sql", {"query": "SELECT * FROM t WHERE x = 4 LIMIT 50 OFFSET {n00}"}, "[]"),
}  # fmt: skip


def _way(name: str, count: int) -> list[tuple[Any, ...]]:
    tool, args, result = WAYS[name]
    found = []
    for n in range(1, count + 1):
        day = n + 10
        fields = {
            "n": n, "back": 99 - n, "n00": n * 100, "m00": n * 100 + 100, "token": _token(n), "next": _token(n + 1),
            "date": f"2026-{day // 28 + 1:02d}-{day % 28 + 1:02d}",
        }  # fmt: skip
        filled = {key: value.format(**fields) for key, value in args.items()}
        numbers = {
            key: int(value) if value.isdigit() and "Text" not in name else value for key, value in filled.items()
        }
        found.append((tool, numbers, result.format(**fields)))
    return found


@pytest.mark.parametrize("name", WAYS)
def test_empty_pages_on_the_way_are_left_alone(name: str) -> None:
    assert nudged(evaluate(steps(_way(name, 25)))) is None


@pytest.mark.parametrize(
    ("name", "first_stop"),
    [("pages", 30), ("offset beside a table", 30), ("an opaque cursor", 30), ("hours of a day", 120)],
)
def test_empty_pages_without_an_end_are_stopped_in_the_end(name: str, first_stop: int) -> None:
    verdicts = evaluate(steps(_way(name, first_stop + 90)))
    assert (nudged(verdicts) or 0) >= 25
    assert (stopped(verdicts) or 0) >= first_stop


@pytest.mark.parametrize("answer", ["[]", "No events on this day.", "Keine Termine"])
@pytest.mark.parametrize("written", ["%Y-%m-%d", "%Y-%m-%dT%H:00", "SN-%j7919"])
def test_a_look_up_for_each_day_that_finds_nothing_is_not_stopped(written: str, answer: str) -> None:
    """A year may have more empty days than a list has empty pages, however the days are written."""
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)
    days = [(first + timedelta(days=at)).strftime(written) for at in range(110)]
    assert stopped(evaluate(steps([("get_events", {"date": day}, answer) for day in days]))) is None


def test_empty_pages_behind_full_ones_are_nudged_and_not_stopped_soon() -> None:
    full = [("lister", {"page": at}, json.dumps({"factures": [f"F-{at}", f"G-{at}"]})) for at in range(1, 4)]
    empty = [("lister", {"page": at}, '{"factures": []}') for at in range(4, 24)]
    verdicts = evaluate(steps([*full, *empty]))
    assert nudged(verdicts) is not None
    assert stopped(verdicts) is None


def test_a_page_that_is_asked_for_again_and_again_is_no_way() -> None:
    found = [("list_events", {"page": 1 + at % 2}, "[]") for at in range(20)]
    assert stopped(evaluate(steps(found))) is not None


# --- cells of a table --------------------------------------------------------------------------------------------


def _cells(first: str, second: str, template: str = "{} {}") -> list[str]:
    return [template.format(one, other) for other in second.split() for one in first.split()]


COLOURS = "red blue green white black yellow pink grey orange brown"
TABLES: dict[str, tuple[str, str, list[str], str]] = {
    "colours of clothes": ("check_stock", "item", _cells(COLOURS, "shirt trousers hat shoes scarf"), "out of stock"),
    "colours of clothes, German": (
        "lagerbestand", "artikel", _cells("rote blaue grüne weiße schwarze", "Hemden Hosen Hüte Schuhe"), "nicht vorrätig",
    ),
    "clothes of colours, Spanish": (
        "consultar", "articulo", _cells("camisa falda gorra abrigo", "roja azul verde negra blanca"), "sin existencias",
    ),
    "customers of one name": (
        "search_orders", "customer", _cells("Anna Bob Carl Dora Eve Fred Gina Hank Ida Jon Kai Lea", "Smith"), "[]",
    ),
    "customers of one name, in lower case": (
        "search_orders", "customer", _cells("anna bob carl dora eve fred gina hank ida jon kai lea", "smith"), "[]",
    ),
    "shops in towns": ("find", "q", _cells("bakery butcher florist grocer", "lyon nice lille brest", "{} in {}"), "0 found"),
    "rooms on floors": ("raum", "name", _cells("Küche Bad Flur Büro", "unten mitte oben hinten", "{} ganz {}"), "kein Alarm"),
    "sizes of screws": ("teile", "bezeichnung", _cells("kurze lange dicke dünne", "Schraube Mutter Niete Dübel"), "[]"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_worked_through_is_left_alone(name: str) -> None:
    tool, key, items, answer = TABLES[name]
    assert nudged(evaluate(steps([(tool, {key: item}, answer) for item in items]))) is None


def test_parts_that_change_their_places_are_no_table() -> None:
    words = ("red shirt", "shirt red", "red shirts", "the red shirt", "shirt in red", "red colour shirt", "shirt, red",
             "some red shirt", "red shirt please")  # fmt: skip
    assert nudged(evaluate(steps([("check_stock", {"item": one}, "out of stock") for one in words]))) is not None


@pytest.mark.parametrize("nothing", ["null", "None", "undefined", ""])
def test_edits_by_a_function_that_returns_nothing_are_left_alone(nothing: str) -> None:
    texts = (
        "rise",
        "fall of costs",
        "outlook 2027",
        "41 members",
        "currency risk",
        "annex B",
        "survey",
        "two lawsuits",
    )
    edits = [
        record("edit_file", {"path": "report.md", "new": f"{one} ({at})"}, nothing, "empty", t=5.0 * at)
        for at, one in enumerate(texts * 3)
    ]
    assert first_level(evaluate(edits), Level.NUDGE) is None


def test_a_key_that_follows_each_value_belongs_to_it() -> None:
    """As a desktop's tool answers: with nothing."""
    calls: list[tuple[Any, ...]] = []
    for at in range(20):
        calls.append(("computer", {"action": "type", "text": f"{at * 37.3:.2f}"}, "", "empty"))
        calls.append(("computer", {"action": "key", "text": "Return"}, "", "empty"))
    assert nudged(evaluate(steps(calls, gap=4.0))) is None


def test_a_key_that_does_nothing_is_a_loop() -> None:
    calls = [("computer", {"action": "key", "text": "Return"}, "", "empty")] * 12
    assert nudged(evaluate(steps(calls, gap=4.0))) is not None
