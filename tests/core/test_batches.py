"""Batches over ever new items, all answered alike: a host may have reasons for them, so they are never stopped early."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.helpers import evaluate, first_level, record
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.policy import Level

ITEMS = 24
ROOMS = [
    "kitchen",
    "hall",
    "bathroom",
    "bedroom",
    "cellar",
    "garage",
    "attic",
    "study",
    "nursery",
    "porch",
    "pantry",
    "workshop",
    "laundry",
    "terrace",
    "library",
    "sauna",
    "garden",
    "office",
    "balcony",
    "lobby",
    "stairs",
    "shed",
    "gym",
    "parlour",
]
NAMES = [
    "anna",
    "bert",
    "carl",
    "dora",
    "emil",
    "fred",
    "gina",
    "hans",
    "ines",
    "jule",
    "kurt",
    "lena",
    "mark",
    "nora",
    "otto",
    "paul",
    "quin",
    "rosa",
    "sven",
    "tina",
    "udo",
]
MAILS = [f"{name}@x.example" for name in (*NAMES, "vera", "wim", "xena")]
MOLECULES = [
    "CCO",
    "c1ccccc1",
    "CC(=O)O",
    "CN1C=NC2",
    "O=C=O",
    "C1CCCCC1",
    "NCC(=O)O",
    "CC(C)O",
    "ClC(Cl)Cl",
    "OCC(O)CO",
    "c1ccncc1",
    "CCN(CC)CC",
    "FC(F)F",
    "CS(C)=O",
    "BrCCBr",
    "N#N",
    "CCOC(=O)C",
    "S=C=S",
    "COC",
    "Oc1ccccc1",
    "CC#N",
    "C=O",
    "CCCCCCCC",
    "OS(=O)(=O)O",
]
SONGS = [
    "Yesterday",
    "Let It Be",
    "Here Comes the Sun",
    "Come Together",
    "Blackbird",
    "Something",
    "Help!",
    "Michelle",
    "Eleanor Rigby",
    "Penny Lane",
    "Hey Jude",
    "Revolution",
    "Girl",
    "Taxman",
    "Yellow Submarine",
    "In My Life",
    "Ticket to Ride",
    "Drive My Car",
    "Nowhere Man",
    "Day Tripper",
    "Get Back",
    "Across the Universe",
    "I Will",
    "Julia",
]

Call = tuple[str, dict[str, Any], str]


SENTENCES = [
    "The kettle leaks from below after two weeks.",
    "Arrived on a Tuesday, well wrapped and complete.",
    "My grandmother loves these slippers.",
    "Far too loud for a bedroom at night.",
    "It would not pair with our television.",
    "Colours are brighter than on the photo.",
    "We returned it and got our money back quickly.",
    "Good value, although the manual is a riddle.",
    "One wheel squeaks, otherwise a solid pram.",
    "The dog ate it, so I bought another.",
    "Tastes like cardboard, sadly.",
    "Exactly what a small kitchen needs.",
    "Support answered within an hour.",
    "Zip broke on the first trip to Norway.",
    "Fits a size 44 without any trouble.",
    "Smells of paint when it gets warm.",
    "Would recommend to any beginner.",
    "Half of the screws were missing.",
    "The app asks for far too many rights.",
    "Charges in forty minutes flat.",
    "Nobody told me it needs batteries.",
    "A lovely gift for retired teachers.",
    "Stopped working during the thunderstorm.",
    "Second one I own, still happy.",
]


def checksum(at: int) -> str:
    return hashlib.sha1(str(at).encode(), usedforsecurity=False).hexdigest()


def uuid_of(at: int) -> str:
    return str(UUID(checksum(at)[:32]))


def losses_of(at: int) -> str:
    return "".join(f"epoch {n} loss={0.9 - n / 9 + at * n * 37 % 11 / 97:.4f}\n" for n in (1, 2, 3))


def busy_on(at: int) -> str:
    """Two people, each with a meeting of another length."""
    day = f"2026-04-{1 + at:02d}T"
    return json.dumps({
        name: {"busy": [{"start": f"{day}{9 + at * k % 4:02d}:00:00Z", "end": f"{day}{14 + at * k % 3:02d}:30:00Z"}]}
        for k, name in ((3, "ann"), (5, "bob"))
    })  # fmt: skip


LEFT_ALONE: dict[str, Callable[[int], Call]] = {
    "lamps, with a state": lambda at: ("turn_off", {"room": ROOMS[at]}, "Lamp is off. Mode: night"),
    "lamps by device": lambda at: ("turn_off", {"device": f"lamp_{ROOMS[at]}"}, "Lamp is off. Mode: night"),
    "songs": lambda at: ("add_song", {"title": SONGS[at]}, "Added"),
    "songs, JSON": lambda at: ("add_song", {"title": SONGS[at]}, '{"ok": true}'),
    "formulas that are not found": lambda at: ("get_toxicity", {"smiles": MOLECULES[at]}, "not found"),
    "links that are dead": lambda at: ("check_link", {"url": f"https://old.example/{ROOMS[at]}"}, "404 Not Found"),
    "blocks by number": lambda at: ("get_block", {"number": 100 + at}, f"Block {100 + at} has hash 0x{checksum(at)}"),
    "parts uploaded": lambda at: ("upload_part", {"part": at}, f"Part {at} uploaded, etag {checksum(at)[:32]}"),
    "days without a slot": lambda at: (
        "find_common_slot",
        {"people": ["ana", "bo", "chen", "dov", "elif", "finn"], "minutes": 60, "date": f"2025-05-{1 + at:02d}"},
        "no common slot",
    ),
    "mails archived by their id": lambda at: (
        "gmail_modify",
        {"id": checksum(at)[:16], "removeLabelIds": ["INBOX"]},
        json.dumps({"id": checksum(at)[:16], "threadId": checksum(at)[:16], "labelIds": ["CATEGORY_PROMOTIONS"]}),
    ),
    "records closed by their id": lambda at: (
        "salesforce_update",
        {"record": {"Id": f"006Hs0000{checksum(at)[:9]}", "StageName": "Closed Won"}},
        json.dumps({"id": f"006Hs0000{checksum(at)[:9]}", "success": True, "errors": []}),
    ),
    "pages archived by their uuid": lambda at: (
        "update_page",
        {"page_id": uuid_of(at), "archived": True},
        json.dumps({"object": "page", "id": uuid_of(at), "archived": True}),
    ),
    "documents updated, counted": lambda at: (
        "update_document",
        {"collection": "users", "_id": checksum(at)[:24], "update": {"$set": {"active": False}}},
        '{"acknowledged": true, "matchedCount": 1, "modifiedCount": 1, "upsertedId": null}',
    ),
    "threads resolved by GraphQL": lambda at: (
        "graphql",
        {
            "query": "mutation($id:ID!){resolveReviewThread(input:{threadId:$id}){thread{isResolved}}}",
            "variables": {"id": f"PRRT_kwDOK{checksum(at)[:16]}"},
        },
        '{"data": {"resolveReviewThread": {"thread": {"isResolved": true}}}}',
    ),
    "stock adjusted by GraphQL": lambda at: (
        "shopify",
        {
            "query": "mutation($id: ID!, $by: Int!) { adjust(input: {id: $id, by: $by}) { userErrors { message } } }",
            "variables": {"id": f"gid://shop/Level/{int(checksum(at)[:8], 16)}", "by": at % 5},
        },
        '{"data": {"adjust": {"userErrors": []}}}',
    ),
    "tickets solved by their number": lambda at: (
        "zendesk_update",
        {"ticket": {"id": 10_000 + int(checksum(at)[:4], 16), "status": "solved", "comment": {"body": "Stale."}}},
        json.dumps({"ticket": {"id": 10_000 + int(checksum(at)[:4], 16), "status": "solved"}}),
    ),
    "tables that are counted": lambda at: (
        "bigquery",
        {"query": f"SELECT COUNT(*) c FROM `shop.raw.{ROOMS[at]}` WHERE DATE(at) = '2026-11-01'"},
        "+---+\n| c |\n+---+\n| 0 |\n+---+",
    ),
    "records updated, by status": lambda at: (
        "salesforce_update",
        {
            "sobject": "Opportunity",
            "id": f"0065g0000{checksum(at)[:9]}",
            "fields": {"StageName": ("Won", "Lost")[at % 2]},
        },
        "204 No Content",
    ),
    "vendors looked for by their name in a query": lambda at: (
        "drive_files_list",
        {"q": f"name contains '{SONGS[at]}' and name contains 'signed' and trashed = false"},
        '{"kind": "drive#fileList", "incompleteSearch": false, "files": []}',
    ),
    "foreign keys without orphans": lambda at: (
        "query",
        {
            "sql": f"SELECT c.id FROM {ROOMS[at]} c LEFT JOIN {ROOMS[at * 7 % ITEMS - 1]} p ON p.id = c.p_id WHERE p.id IS NULL"
        },
        "(0 rows)",
    ),
    "days of a calendar": lambda at: ("freebusy", {"day": f"2026-04-{1 + at:02d}"}, busy_on(at)),
    "trainings with other settings": lambda at: ("train", {"rate": 10.0 ** -(1 + at % 4), "decay": at}, losses_of(at)),
    "sentences that are no spam": lambda at: ("is_spam", {"subject": SENTENCES[at]}, "not spam"),
    "sentences without mistakes": lambda at: (
        "check_spelling",
        {"sentence": SENTENCES[at]},
        '{"errors": [], "ok": true}',
    ),
}
NOT_STOPPED: dict[str, Callable[[int], Call]] = {
    "members already": lambda at: ("invite", {"email": MAILS[at]}, '{"error": "already a member"}'),
    "files gone already": lambda at: (
        "bash",
        {"cmd": f"rm cache/{ROOMS[at]}.bin"},
        f"rm: cannot remove 'cache/{ROOMS[at]}.bin': No such file or directory",
    ),
    "services not loaded": lambda at: (
        "bash",
        {"cmd": f"systemctl stop {ROOMS[at]}d"},
        f"Failed to stop {ROOMS[at]}d.service: Unit {ROOMS[at]}d.service not loaded.",
    ),
    "dead links as objects": lambda at: (
        "check_link",
        {"url": f"https://old.example/{ROOMS[at]}"},
        '{"status": 404, "ok": false}',
    ),
    "test cases that fail": lambda at: ("run_case", {"case": at}, "FAIL: expected 4"),
    "unknown substances": lambda at: ("is_toxic", {"smiles": MOLECULES[at]}, "Unknown substance"),
    "unknown codes": lambda at: ("lookup", {"key": checksum(at)}, "unknown"),
    "unknown addresses": lambda at: ("lookup", {"key": f"10.{at * 7}.{at * 13 % 250}.{at * 29 % 250}"}, "unknown"),
}
GUESSES: dict[str, Callable[[int], Call]] = {
    "user names, one by one": lambda at: (
        "register",
        {"name": f"{NAMES[at % len(NAMES)]}_{('x', 'xx', 'official')[at % 3]}"},
        '{"error": "This name is already taken."}',
    ),
    "coupons by their code": lambda at: (
        "apply_coupon",
        {"cart": "c-77", "code": f"{ROOMS[at % len(ROOMS)].upper()}{(10, 20, 5)[at % 3]}"},
        '{"error": "The coupon is not valid for this cart."}',
    ),
    "passwords and their kin": lambda at: (
        "try_password",
        {"archive": "photos_2009.zip", "password": f"{NAMES[at % len(NAMES)]}{('1974', '.k', '_x')[at % 3]}"},
        "ERROR: Wrong password : photos_2009/IMG_0001.JPG\nSub items Errors: 1",
    ),
}
ONE_MORE: dict[str, Callable[[int], Call]] = {
    "orders, counted": lambda at: (
        "place_order",
        {"sku": "A-1"},
        json.dumps({"order_id": 1001 + at, "status": "done"}),
    ),
    "orders of many customers": lambda at: ("place_order", {"sku": "A-1"}, f"Order {100234 + 37 * at} placed"),
    "issues": lambda at: ("create_issue", {"title": "Crash"}, f"Created issue #{1001 + at}"),
    "rows": lambda at: (
        "run_sql",
        {"q": "INSERT INTO t(a) VALUES ('x') RETURNING id"},
        f"id\n--\n{4406 + at}\n(1 row)",
    ),
    "a limit turned up": lambda at: (
        "search",
        {"q": "blue whale", "limit": 10 + 10 * at},
        '[{"title": "Whales", "id": 3}]',
    ),
    "a number turned up until it fits": lambda at: (
        "render",
        {"scene": "atrium", "samples": 64 + at},
        '{"error": "out of memory"}',
    ),
    "orders with an id of the client": lambda at: (
        "place_order",
        {"symbol": "BTC", "side": "BUY", "newClientOrderId": checksum(at)[:22]},
        '{"code": -2019, "msg": "Margin is insufficient."}',
    ),
    "a message with another id": lambda at: (
        "control_device",
        {"device": "pump-3", "command": "start", "message_id": uuid_of(at)},
        '{"problem": "The device does not answer", "state": "offline"}',
    ),
    "a document that is not there, counted": lambda at: (
        "update_document",
        {"collection": "users", "filter": {"name": "ann"}, "request_id": uuid_of(at)},
        '{"acknowledged": true, "matchedCount": 1, "modifiedCount": 0, "upsertedId": null}',
    ),
    "a search that is narrowed although it found nothing": lambda at: (
        "search",
        {"q": " ".join(["warranty", "policy", *ROOMS[:at]])},
        '{"total": 0, "results": []}',
    ),
    "a bound turned down": lambda at: ("search", {"q": "tent", "max_price": 500 - 10 * at}, "No results"),
}


def verdicts_on(call: Callable[[int], Call], items: int = ITEMS) -> list[Verdict | None]:
    return evaluate([record(*call(at), "success", t=3.0 * at) for at in range(items)])


@pytest.mark.parametrize("call", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_a_batch_that_is_answered_alike_is_left_alone(call: Callable[[int], Call]) -> None:
    assert first_level(verdicts_on(call), Level.NUDGE, Level.STOP) is None


def test_scrolling_down_some_pages_is_left_alone() -> None:
    scroll = ("scroll", {"down": True, "pages": 1.0}, "🔍 Scrolled down the page by one page")
    assert first_level(verdicts_on(lambda _: scroll, 8), Level.NUDGE) is None


@pytest.mark.parametrize("call", NOT_STOPPED.values(), ids=NOT_STOPPED)
def test_a_batch_in_which_every_item_fails_is_not_stopped(call: Callable[[int], Call]) -> None:
    assert first_level(verdicts_on(call), Level.STOP) is None


@pytest.mark.parametrize("call", GUESSES.values(), ids=GUESSES)
def test_guesses_at_a_name_are_nudged_and_not_stopped_soon(call: Callable[[int], Call]) -> None:
    assert first_level(verdicts_on(call), Level.NUDGE) is not None
    assert first_level(verdicts_on(call, 20), Level.STOP) is None
    assert first_level(verdicts_on(call, 60), Level.STOP) is not None


@pytest.mark.parametrize("call", ONE_MORE.values(), ids=ONE_MORE)
def test_one_request_made_again_and_again_is_no_batch(call: Callable[[int], Call]) -> None:
    nudged = first_level(verdicts_on(call), Level.NUDGE)
    assert nudged is not None
    assert nudged <= 7
    assert first_level(verdicts_on(call, 40), Level.STOP) is not None
