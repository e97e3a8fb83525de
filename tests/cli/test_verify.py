"""``trajectory-guard verify``: exported certificates are found wherever they stand, and damage is named."""

from __future__ import annotations

import base64
import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import evaluate, record
from trajectory_guard import telemetry
from trajectory_guard.cli.main import main
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.settings import EngineSettings
from trajectory_guard.logs import log_verdict, verdict_entry
from trajectory_guard.otel.verdict_spans import VerdictSpans
from trajectory_guard_collector.telemetry.logs import JsonFormatter


def interventions(settings: EngineSettings | None = None) -> list[Verdict]:
    steps = [record("search", {"q": "hours"}, "Closed on Mondays, open from nine to five.") for _ in range(8)]
    return [one for one in evaluate(steps, settings) if one is not None and one.intervenes]


def exported(verdicts: list[Verdict]) -> dict[str, Any]:
    """The guard's spans as an OTLP/JSON request."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for verdict in verdicts:
        VerdictSpans(provider).emit(verdict, first_step="x", live_parent=None)
    spans = [
        {
            "traceId": f"{span.context.trace_id:032x}",
            "spanId": f"{span.context.span_id:016x}",
            "name": span.name,
            "startTimeUnixNano": str(span.start_time),
            "endTimeUnixNano": str(span.end_time),
            "attributes": [{"key": key, "value": _value(value)} for key, value in (span.attributes or {}).items()],
        }
        for span in exporter.get_finished_spans()
    ]
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": telemetry.SCOPE}, "spans": spans}]}]}


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, tuple):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": value}


def attribute(request: dict[str, Any], key: str) -> dict[str, Any]:
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return next(one for one in spans[0]["attributes"] if one["key"] == key)


def write(path: Path, *values: Any) -> str:
    path.write_text("\n".join(map(json.dumps, values)) + "\n", encoding="utf-8")
    return str(path)


def verify(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[dict[str, Any]], str]:
    status = main(["verify", "--json", *argv])
    out, err = capsys.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


def test_the_guards_spans_verify_as_json_and_protobuf(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = exported(interventions())
    binary = tmp_path / "spans.pb"
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        assert [one["key"] for one in span["attributes"]].count(telemetry.CERTIFICATE) == 1
    as_json = write(tmp_path / "spans.json", request)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:  # protobuf's own JSON has ids in base64
        for key in ("traceId", "spanId"):
            span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    binary.write_bytes(Parse(json.dumps(request), ExportTraceServiceRequest()).SerializeToString())
    for path in (as_json, str(binary)):
        status, found, err = verify(capsys, path)
        assert (status, err) == (0, "")
        assert [(one["status"], one["level"]) for one in found] == [("replayed", "NUDGE"), ("replayed", "STOP")]


def test_verify_counts_steps_as_replay_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = {"tool": "search", "args": {"q": "hours"}, "result": "Closed on Mondays, open from nine to five."}
    lines = write(tmp_path / "steps.jsonl", {"id": "loop", "steps": [step] * 8})
    main(["replay", lines])
    replayed = [int(at) for at in re.findall(r"(?:nudge|stop) at step (\d+)", capsys.readouterr().out)]
    found = interventions()
    for source in (exported(found), *[[verdict_entry(one)] for one in found]):
        values = source if isinstance(source, list) else [source]
        main(["verify", write(tmp_path / "recorded.json", *json.loads(json.dumps(values)))])
        stated = [int(at) for at in re.findall(r"at step (\d+)", capsys.readouterr().out)]
        assert stated
        assert set(stated) <= set(replayed)
    assert replayed == [one.step_index + 1 for one in found]


def test_log_lines_stop_payloads_and_certificates_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = interventions()
    entries = [json.loads(json.dumps(verdict_entry(one))) for one in found]
    bare = [one.certificate.to_plain() for one in found if one.certificate is not None]
    payload = {"status": "guardrail_triggered", "rule": found[1].rule, "certificate": bare[1]}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": json.dumps(entries[0])}}, {}]}]}]}
    status, results, err = verify(capsys, write(tmp_path / "lines.jsonl", *entries, *bare, payload, logs))
    assert (status, err) == (0, "")
    assert [one["status"] for one in results] == ["replayed"] * 6
    assert [one["place"] for one in results] == [f"line {n}" for n in range(1, 7)]


def test_log_lines_behind_a_prefix_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``logging.basicConfig()`` writes them, between lines of the application."""
    handler = logging.StreamHandler(log := io.StringIO())
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger = logging.getLogger("trajectory_guard")
    logger.addHandler(handler)
    try:
        for verdict in interventions():
            log_verdict(verdict)
    finally:
        logger.removeHandler(handler)
    lines = log.getvalue().splitlines()
    path = tmp_path / "guard.log"
    path.write_text("\n".join(["INFO:app:started {1}", *lines, "INFO:app:stopped"]) + "\n", encoding="utf-8")
    status, results, err = verify(capsys, str(path))
    assert (status, err) == (0, f"trajectory-guard: {path}: lines without a JSON object that were left out: 2\n")
    assert len(results) == len(lines) > 0
    assert [one["place"] for one in results] == [f"line {at}" for at in range(2, 2 + len(lines))]
    path.write_text(f"{lines[0][:-40]}\n{lines[-1]}\n", encoding="utf-8")
    status, results, err = verify(capsys, str(path))
    assert status == 2
    assert len(results) == 1
    assert "guard.log:1: not valid JSON" in err


def test_the_log_and_the_flags_of_a_collector_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log lines are of one form for all that it logs; a flag has a number of steps."""
    found = interventions()
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.root, "handlers", [handler])
    logging.getLogger("trajectory_guard_collector").warning("memory is short")
    for one in found:
        log_verdict(one)
    certificate = found[1].certificate
    assert certificate is not None
    flag = {"trajectory_id": "c", "known": True, "steps": 9, "rule": "newer", "certificate": certificate.to_plain()}
    (tmp_path / "guard.log").write_text(log.getvalue())
    status, results, err = verify(
        capsys, str(tmp_path / "guard.log"), write(tmp_path / "flag.json", flag),
        write(tmp_path / "none.json", {"trajectory_id": "d", "known": False, "steps": 0}),
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert [one["status"] for one in results] == ["replayed"] * (len(found) + 1)


@pytest.mark.parametrize(
    "key, value",
    [
        (telemetry.LOOP_RULE, {"stringValue": "cycle"}),
        (telemetry.INTERVENTION, {"stringValue": "STOP"}),
        (telemetry.STEP_INDEX, {"intValue": "7"}),
        (telemetry.LOOP_SCORE, {"doubleValue": 2.5}),
        (telemetry.TRAJECTORY_ID, {"stringValue": "another"}),
        (telemetry.RUN_ID, {"stringValue": "another"}),
    ],
)
def test_a_certificate_on_another_span_is_found(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = exported(interventions()[:1])
    attribute(request, key)["value"] = value
    status, found, _ = verify(capsys, write(tmp_path / "spans.json", request))
    assert status == 1
    assert "in the record that carries it" in found[0]["problems"][0]


def test_damage_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = exported(interventions())
    text = attribute(request, telemetry.CERTIFICATE)["value"]
    text["stringValue"] = text["stringValue"].replace('"count":3', '"count":4')
    path = write(tmp_path / "spans.json", request)
    status = main(["verify", path])
    out, _ = capsys.readouterr()
    span_id = request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"]
    lines = out.splitlines()
    assert status == 1
    assert lines[0].startswith(f"FAILED failed   {path}:{span_id}")
    assert "the digest does not match" in lines[0]
    assert lines[1].startswith("ok     replayed")
    assert lines[-1] == "2 certificates, 1 sound, 1 not"


def test_a_certificate_that_was_removed_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = exported(interventions()[:1])
    attribute(request, telemetry.CERTIFICATE)["key"] = "other"
    status, found, _ = verify(capsys, write(tmp_path / "spans.json", request))
    assert (status, found[0]["status"]) == (1, "missing")


def test_rules_that_are_not_registered_are_unknown_until_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trajectory_guard.core.explain.certificates import FROZEN, Certificate

    one = interventions()[0].certificate
    assert one is not None
    path = write(tmp_path / "c.jsonl", Certificate.made("theirs", FROZEN, one.parameters, one.facts).to_plain())
    assert [one["status"] for one in verify(capsys, path)[1]] == ["unknown"]
    status, found, _ = verify(capsys, path, "--known-rule", "theirs")
    assert (status, found[0]["status"]) == (0, "frozen")


def test_a_key_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, other = tmp_path / "key", tmp_path / "other"
    key.write_text("a key\n")
    other.write_text("another")
    signed = interventions(EngineSettings(certificate_key="a key"))
    path = write(tmp_path / "c.json", exported(signed))
    plain = write(tmp_path / "p.json", exported(interventions()))
    assert verify(capsys, path, "--key-file", str(key))[0] == 0
    assert verify(capsys, path, "--key-file", str(other))[0] == 1
    assert verify(capsys, plain, "--key-file", str(key))[0] == 1
    assert verify(capsys, path)[0] == 0


def test_plain_lines_among_log_lines_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found: an error of JSON for each, and status 2, although every certificate was sound."""
    first, *others = [json.dumps(verdict_entry(one)) for one in interventions()]
    path = tmp_path / "guard.log"
    path.write_text("\n".join([first, "Started.", "INFO ready", *others, "Stopped."]) + "\n", encoding="utf-8")
    status, results, err = verify(capsys, str(path))
    assert (status, len(results)) == (0, 1 + len(others))
    assert err == f"trajectory-guard: {path}: lines without a JSON object that were left out: 3\n"
    path.write_text(f"{first}\nStarted.\n{first[:-9]}\n", encoding="utf-8")
    status, results, err = verify(capsys, str(path))
    assert (status, len(results)) == (2, 1)
    assert "guard.log:3: not valid JSON" in err


@pytest.mark.parametrize("content", ['{"a": 1}', "not json", '{"certificate": 7, "rule": "x"}'])
def test_what_cannot_be_read_is_bad_input(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    status, found, err = verify(capsys, str(path))
    assert (status, found) == (2, [])
    assert "x.json" in err
    assert verify(capsys, str(tmp_path / "nowhere.json"))[0] == 2
    assert verify(capsys, str(path), "--key-file", str(tmp_path / "nowhere"))[0] == 2


def test_a_file_without_certificates_is_not_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = verify(capsys, write(tmp_path / "x.json", {"resourceSpans": []}))
    assert status == 1
    assert "no certificate found" in err


def test_odd_records_cost_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd: list[Any] = [
        {"certificate": {"rule": 1}}, {"certificate": "x" * 70_000}, {"rule": 1, "facts": [], "digest": None},
        {"certificate": {}, "metrics": 7, "run": [], "thread_id": {}}, {"resourceLogs": [{"scopeLogs": [7, {"logRecords": [{"body": 1}]}]}]},
    ]  # fmt: skip
    status, found, err = verify(capsys, write(tmp_path / "x.jsonl", *odd))
    assert status == 1
    assert [one["status"] for one in found] == ["failed"] * 4
    assert "Traceback" not in err
