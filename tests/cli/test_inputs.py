"""Inputs that can be read, and the messages about those that cannot."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.helpers_cli import Command, otlp_span, request, run_line, step, write
from tests.helpers import capture, capture_names
from trajectory_guard.cli.recordings import json_files, json_stream
from trajectory_guard.cli.recordings.diagnostics import MAX_ERRORS_PER_SOURCE
from trajectory_guard.cli.recordings.inputs import Diagnostics, Limits, Recorded, read
from trajectory_guard.cli.recordings.json_stream import read_in_pieces
from trajectory_guard.cli.recordings.streams import Source
from trajectory_guard.dialects.span import SpanView

HAS_IJSON = importlib.util.find_spec("ijson") is not None
needs_ijson = pytest.mark.skipif(not HAS_IJSON, reason="ijson is not installed")


def items(path: Path | str, limits: Limits | None = None) -> tuple[list[SpanView | Recorded], list[str]]:
    diagnostics = Diagnostics()
    return list(read(str(path), diagnostics, limits)), [
        message.replace(str(path), "FILE") for message in diagnostics.messages()
    ]


def ids(found: list[SpanView | Recorded]) -> list[str]:
    return [one.id if isinstance(one, Recorded) else one.span_id[-2:] for one in found]


def spans(count: int, trace: int = 1) -> list[dict[str, object]]:
    return [otlp_span(number, trace) for number in range(1, count + 1)]


# --- JSON ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        run_line("a") + "\n" + run_line("b") + "\n",
        "\ufeff" + run_line("a") + "\r\n\r\n" + run_line("b"),
        "\n" * 300 + run_line("a") + "\n \t\n" + run_line("b"),
        json.dumps([json.loads(run_line("a")), json.loads(run_line("b"))], indent=2),
        "[\n" + run_line("a") + ",\n" + run_line("b") + "\n]",
    ],
    ids=["lines", "bom and crlf", "blank lines", "one document", "a list, one item a line"],
)
def test_step_lines_in_every_layout(tmp_path: Path, content: str) -> None:
    found, problems = items(write(tmp_path / "runs.jsonl", content))
    assert ids(found) == ["a", "b"]
    assert problems == []


@pytest.mark.parametrize("indent", [None, 1])
def test_otlp_json_as_line_or_document(tmp_path: Path, indent: int | None) -> None:
    found, problems = items(write(tmp_path / "spans.json", json.dumps(request(spans(3)), indent=indent)))
    assert ids(found) == ["01", "02", "03"]
    assert problems == []


def test_otlp_and_step_lines_in_one_file(tmp_path: Path) -> None:
    content = "\n".join([json.dumps(request(spans(1))), run_line("a"), json.dumps(request(spans(1, 2)))])
    found, problems = items(write(tmp_path / "mixed.jsonl", content))
    assert ids(found) == ["01", "a", "01"]
    assert problems == []


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_broken_line_costs_only_itself(tmp_path: Path, broken: int) -> None:
    lines = [run_line("a"), run_line("b"), run_line("c")]
    lines[broken] = lines[broken][:30]
    found, problems = items(write(tmp_path / "runs.jsonl", "\n".join(lines) + "\n"))
    assert ids(found) == [name for at, name in enumerate("abc") if at != broken]
    assert len(problems) == 1
    assert problems[0].startswith(f"FILE:{broken + 1}: not valid JSON: ")


def test_a_truncated_last_line_says_so(tmp_path: Path) -> None:
    found, problems = items(write(tmp_path / "runs.jsonl", run_line("a") + "\n" + run_line("b")[:-9]))
    assert ids(found) == ["a"]
    assert problems[0].startswith("FILE:2: ")
    assert problems[0].endswith("truncated?")


def test_a_truncated_document_gives_its_whole_spans(tmp_path: Path) -> None:
    text = json.dumps(request(spans(5)), indent=1)
    found, problems = items(write(tmp_path / "spans.json", text[: text.index("0000000100000004") + 40]))
    assert ids(found) == ["01", "02", "03"]
    assert all(isinstance(one, SpanView) and one.resource == {"service.name": "app"} for one in found)
    assert all(one.scope == "test" and len(one.attributes) == 4 for one in found if isinstance(one, SpanView))
    assert len(problems) == 1
    assert problems[0].startswith("FILE:")
    assert int(problems[0].split(":")[1]) > 100


def test_every_cut_of_a_document_is_survived() -> None:
    text = json.dumps(request(spans(2)), indent=1)
    seen = set()
    for end in range(0, len(text), 7):
        value = json_files.salvage(text[:end])
        whole = 0 if value is None else len(value["resourceSpans"][0]["scopeSpans"][0]["spans"])
        seen.add(whole)
        if whole:
            assert value["resourceSpans"][0]["scopeSpans"][0]["spans"] == spans(whole)
    assert seen == {0, 1, 2}


def test_one_broken_span_does_not_cost_its_request(tmp_path: Path) -> None:
    wrong = [
        otlp_span(2) | {"traceId": "nonsense!"},
        otlp_span(3) | {"attributes": {"a": 1}},
        otlp_span(4) | {"spanId": ""},
    ]
    found, problems = items(write(tmp_path / "spans.json", json.dumps(request([otlp_span(1), *wrong, otlp_span(5)]))))
    assert ids(found) == ["01", "05"]
    assert len(problems) == 3
    assert "FILE:1: not a valid OTLP trace request: resourceSpans[0].scopeSpans[0].spans[1]: not an id" in problems[0]
    assert "spans[2]: a value has the wrong type" in problems[1]
    assert "spans[3]: span 'execute_tool search' has no spanId" in problems[2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "FILE: is empty"),
        (b" \n\t\r\n", "FILE: is empty"),
        (b"hello\nworld\n", "FILE:1: is neither JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "FILE:1: is neither JSON"),
        ("{}".encode("utf-16"), "FILE:1: is UTF-16"),
        (b'{"a": 1}', "FILE:1: neither 'resourceSpans' (OTLP) nor 'steps' (a trajectory); has a"),
        (b'{"resourceLogs": []}', "FILE:1: holds OTLP logs; only traces"),
        (b'{"resourceSpans": 3}', "FILE:1: not a valid OTLP trace request"),
        (b'{"steps": 3}', "FILE:1: 'steps' must be a list, got int"),
        (b"[1]", "FILE:1: expected an object, got int"),
        (b'{"id": "x", "steps": [3]}', "FILE:1: steps[0]: expected an object, got int"),
        (b'{"id": "x", "steps": [{"tool": 3}]}', "FILE:1: steps[0]: 'tool' is missing or not text"),
        (b'{"id": "x", "steps": [{"tool": "a", "t": "noon"}]}', "FILE:1: steps[0]: 't' must be a number, got 'noon'"),
        (b'{"id": "x", "steps": [{"tool": "a", "dur": NaN}]}', "FILE:1: steps[0]: 'dur' must be a finite number"),
        (b'{"id": "x", "steps": [{"tool": "a", "outcome": "meh"}]}', "FILE:1: steps[0]: outcome 'meh' is none of"),
        (b"[" * 100_000, "FILE:1: not valid JSON"),
    ],
)
def test_bad_content_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    _, problems = items(write(tmp_path / "bad", content))
    assert len(problems) == 1
    assert problems[0].startswith(reason)


def test_a_wrong_step_costs_only_itself(tmp_path: Path) -> None:
    content = run_line("a", [step(), {"tool": 1}, step(agent=7, thought={"a": 1}, turn=2, batch=3, tokens=10)])
    found, problems = items(write(tmp_path / "runs.jsonl", content))
    assert isinstance(found[0], Recorded)
    assert [one.step_id for one in found[0].steps] == ["a#0", "a#2"]
    last = found[0].steps[1]
    assert (last.agent_id, last.turn, last.batch, last.usage and last.usage.tokens) == ("7", "2", "3", 10)
    assert len(problems) == 1


@pytest.mark.parametrize("wrong", [{"tokens": 1e30, "cost": 0.5}, {"tokens": -7, "cost": 1e300}, {"cost": -1}])
def test_amounts_that_cannot_be_right_count_as_unknown_as_in_spans(
    command: Command, tmp_path: Path, wrong: dict[str, float]
) -> None:
    ran = command("report", "--json", write(tmp_path / "runs.jsonl", run_line("a", [step(**wrong) for _ in range(8)])))
    assert (ran.status, ran.err) == (0, "")
    spent = json.loads(ran.out)["spent"]
    assert (spent["tokens"], spent["cost_usd"] <= 8 * 0.5) == (0, True)


def test_a_run_without_an_id_is_named_after_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "runs.jsonl", run_line("a") + "\n" + run_line(None))
    assert ids(items(path)[0]) == ["a", f"{path}:2"]


def test_errors_are_counted_beyond_a_hundred(tmp_path: Path) -> None:
    found, problems = items(write(tmp_path / "runs.jsonl", run_line("a") + "\n" + '{"a":1}\n' * 250))
    assert ids(found) == ["a"]
    assert len(problems) == MAX_ERRORS_PER_SOURCE + 1
    assert problems[-1] == "FILE: 150 more problems like these"


# --- files that cannot be opened -----------------------------------------------------------------------------


def test_missing_file_and_directory(tmp_path: Path, command: Command) -> None:
    good = write(tmp_path / "good.jsonl", run_line("a"))
    ran = command("replay", tmp_path / "missing", tmp_path, good, "--json")
    assert ran.status == 2
    assert [one["id"] for one in ran.lines] == ["a"]
    assert ran.err.splitlines() == [
        f"trajectory-guard: {tmp_path / 'missing'}: cannot be read: No such file or directory",
        f"trajectory-guard: {tmp_path}: cannot be read: Is a directory",
    ]


def test_a_file_that_cannot_be_opened_can_be_closed(tmp_path: Path) -> None:
    """Python closes it as garbage, and from 3.13 on prints the traceback of an error there."""
    source = Source.__new__(Source)
    with pytest.raises(FileNotFoundError):
        source.__init__(str(tmp_path / "missing"), lambda count: None)
    source.close()
    assert source.closed


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "secret", run_line("a"))
    path.chmod(0)
    assert items(path)[1] == ["FILE: cannot be read: Permission denied"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(gzip.compress(run_line("a").encode()))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert ids(items("-")[0]) == ["a"]


# --- compression ---------------------------------------------------------------------------------------------


def _zstd(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    compressed: bytes = zstandard.ZstdCompressor().compress(data)
    return compressed


@pytest.mark.parametrize("compress", [gzip.compress, _zstd])
def test_compressed_lines(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole = compress("\n".join(run_line(f"r{at}", [step(args={"q": at})]) for at in range(2000)).encode())
    found, problems = items(write(tmp_path / "runs.z", whole))
    assert (len(found), problems) == (2000, [])


@pytest.mark.parametrize("indent", [None, 1], ids=["lines", "document"])
def test_truncated_gzip_gives_what_is_there(tmp_path: Path, indent: int | None) -> None:
    many = [otlp_span(number, args=json.dumps({"q": os.urandom(20).hex()})) for number in range(1, 200)]
    text = json.dumps(request(many), indent=1) if indent else "\n".join(json.dumps(request([one])) for one in many)
    whole = gzip.compress(text.encode())
    found, problems = items(write(tmp_path / "spans.gz", whole[: len(whole) // 2]))
    assert 20 < len(found) < 180
    assert problems[-1] == "FILE: cannot be read to its end: the compressed data ends early: truncated"


def test_zstd_that_is_cut_off_before_its_first_byte_is_not_called_empty(tmp_path: Path) -> None:
    whole = _zstd(os.urandom(5_000).hex().encode())
    for cut in (5, 8, 40, len(whole) // 2):
        assert items(write(tmp_path / "runs.zst", whole[:cut])) == (
            [], ["FILE: cannot be read to its end: the compressed data ends early: truncated"],
        )  # fmt: skip
    assert items(write(tmp_path / "runs.zst", _zstd(b""))) == ([], ["FILE: is empty"])


def test_broken_gzip_is_no_traceback(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(os.urandom(50_000).hex().encode()))
    whole[200:260] = b"\xff" * 60
    assert any("cannot be read to its end" in one for one in items(write(tmp_path / "spans.gz", bytes(whole)))[1])


# --- protobuf ------------------------------------------------------------------------------------------------


def message(value: dict[str, object]) -> bytes:
    parse_dict = pytest.importorskip("google.protobuf.json_format").ParseDict
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    plain = json.loads(json.dumps(value))
    for group in plain["resourceSpans"]:
        for scoped in group["scopeSpans"]:
            for span in scoped["spans"]:
                for key in ("traceId", "spanId"):
                    span[key] = __import__("base64").b64encode(bytes.fromhex(span[key])).decode()
    data: bytes = parse_dict(plain, service.ExportTraceServiceRequest()).SerializeToString()
    return data


def four(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def varint(data: bytes) -> bytes:
    size, out = len(data), b""
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return out + bytes([size]) + data


@pytest.mark.parametrize(
    "frame", [bytes, four, varint, lambda data: four(_zstd(data))], ids=["bare", "four", "varint", "zstd"]
)
def test_protobuf_in_every_layout(tmp_path: Path, frame: Callable[[bytes], bytes]) -> None:
    requests = [request(spans(3)), request(spans(2, 2))]
    found, problems = items(write(tmp_path / "spans.pb", b"".join(frame(message(one)) for one in requests)))
    as_json, _ = items(write(tmp_path / "spans.json", "\n".join(map(json.dumps, requests))))
    assert found == as_json
    assert problems == []


def test_framed_json_of_the_collector(tmp_path: Path) -> None:
    found, problems = items(
        write(tmp_path / "spans", b"".join(four(_zstd(json.dumps(request(spans(2, at))).encode())) for at in (1, 2)))
    )
    assert (ids(found), problems) == (["01", "02", "01", "02"], [])


@pytest.mark.parametrize("frame", [bytes, four], ids=["bare", "four"])
def test_truncated_protobuf_gives_its_whole_spans(tmp_path: Path, frame: Callable[[bytes], bytes]) -> None:
    data = frame(message(request(spans(2)))) + frame(message(request(spans(5, 2))))
    found, problems = items(write(tmp_path / "spans.pb", data[:-150]))
    assert ids(found)[:2] == ["01", "02"]
    assert len(found) == (6 if frame is bytes else 2)
    assert len(problems) == 1
    assert problems[0].endswith("truncated")


def test_protobuf_whose_length_looks_like_a_brace(tmp_path: Path) -> None:
    for pad in range(80):
        one = otlp_span(1)
        one["attributes"] = []
        one["name"] = "n" * pad
        data = message(request([one]))
        if data[1] in b"{[":
            assert len(items(write(tmp_path / "spans.pb", data))[0]) == 1
            return
    pytest.fail("no such message")


def test_protobuf_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "spans.pb", message(request(spans(1))))
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    assert "install the extra 'cli'" in items(path)[1][0]
    monkeypatch.setitem(sys.modules, "google.protobuf.json_format", None)
    assert "needs protobuf: " in items(path)[1][0]


# --- values too large to read whole --------------------------------------------------------------------------

SMALL = Limits(document_bytes=4096)


@needs_ijson
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", capture_names()[::12])
def test_reading_in_pieces_gives_the_same_spans(
    tmp_path: Path, name: str, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.helpers import _capture_text

    monkeypatch.setattr(json_stream, "SPANS_PER_PIECE", 3)
    path = write(tmp_path / "spans.json", json.dumps(json.loads(_capture_text(name)), indent=indent))
    found, problems = items(path, SMALL)
    assert problems == []
    assert found == capture(name)


@needs_ijson
def test_pieces_whatever_the_order_of_keys(tmp_path: Path) -> None:
    value = request(spans(20))
    turned = {"resourceSpans": [dict(reversed(one.items())) for one in value["resourceSpans"]]}
    turned["resourceSpans"][0]["scopeSpans"] = [
        dict(reversed(one.items())) for one in turned["resourceSpans"][0]["scopeSpans"]
    ]
    found, _ = items(write(tmp_path / "spans.json", json.dumps(turned)), SMALL)
    assert found == items(write(tmp_path / "spans.json", json.dumps(value)))[0]


@needs_ijson
def test_a_large_truncated_document_gives_its_whole_spans(tmp_path: Path) -> None:
    text = json.dumps(request(spans(40)), indent=1)
    found, problems = items(write(tmp_path / "spans.json", text[: text.index(f"{1:08x}{30:08x}")]), SMALL)
    assert len(found) == 29
    assert len(problems) == 1
    assert "read up to the last whole span" in problems[0]


@needs_ijson
def test_a_long_line_among_lines(tmp_path: Path) -> None:
    content = "\n".join([run_line("a"), json.dumps(request(spans(20))), run_line("b", repeats=200), run_line("c")])
    found, problems = items(write(tmp_path / "mixed.jsonl", content), SMALL)
    assert ids(found) == ["a", *(f"{number:02x}" for number in range(1, 21)), "b", "c"]
    assert problems == []


def test_a_large_document_without_ijson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ijson", None)
    path = write(tmp_path / "spans.json", json.dumps(request(spans(40)), indent=1))
    found, problems = items(path, SMALL)
    assert found == []
    assert "raise --max-document-mb" in problems[0]
    assert len(items(path)[0]) == 40


def test_a_text_that_never_ends_is_read_in_few_pieces() -> None:
    """The parser begins anew with every piece: in pieces of 64 KiB a text of 400 MB takes minutes."""
    pytest.importorskip("ijson")

    class Endless(io.RawIOBase):
        reads, left = 0, 40 << 20

        def read(self, size: int = -1) -> bytes:
            self.reads += 1
            data = b"a" * min(size, self.left)
            self.left -= len(data)
            return data

    source, diagnostics = Endless(), Diagnostics()
    assert list(read_in_pieces(b'{"a":"', source, "endless", diagnostics)) == []
    assert source.reads <= 5
    assert "premature EOF" in str(diagnostics.errors[0])
