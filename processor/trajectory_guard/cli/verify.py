"""The subcommand ``verify``: are the certificates in exported telemetry sound? Exit status 0 yes, 1 no, 2 bad input."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from trajectory_guard import telemetry
from trajectory_guard.cli.output import BAD_INPUT, FINE, complain, finish, print_json
from trajectory_guard.cli.recordings.inputs import Diagnostics, read
from trajectory_guard.core.explain.certificates import Certificate, CertificateError, fingerprint
from trajectory_guard.core.policy import Level
from trajectory_guard.core.text import printable
from trajectory_guard.dialects.span import SpanView

NOT_SOUND: Final = 1
_MISSING: Final = "an intervention without a certificate: it was removed from the span"
_CLOSE: Final = 1e-6
_RECORDS: Final = frozenset(("event_type", "logger", "known"))
"""Keys of records that may carry a certificate and need not: log lines, also the collector's, and flags."""


class Checked(NamedTuple):
    """A certificate that was found, and the result.

    Fields:
        source, place: file, and span id or line within it.
        rule, level, step: as stated; empty or -1 if unknown.
        status: as in ``Verification``, or ``missing``.
        problems: one sentence each.
    """

    source: str
    place: str
    rule: str
    level: str
    step: int
    status: str
    problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether it may be trusted."""
        return self.status in ("replayed", "frozen")


def add_verify(commands: Any) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("verify", help="check the certificates of nudges and stops in exported telemetry")
    parser.add_argument(
        "files", nargs="+", metavar="FILE",
        help="OTLP JSON or protobuf with the guard's spans, or JSON lines: log lines, stop payloads, flags, "
        "certificates; - is stdin",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON line per certificate")
    parser.add_argument("--key-file", metavar="FILE", help="the key that every certificate has to be signed with")
    parser.add_argument(
        "--known-rule", action="append", default=[], metavar="RULE",
        help="a rule of a detector of your own; its certificates are frozen. May be given several times",
    )  # fmt: skip
    parser.set_defaults(run=run_verify)


def run_verify(options: argparse.Namespace) -> int:
    """Print the result for each certificate; returns the exit status."""
    diagnostics, count, failed = Diagnostics(), 0, 0
    try:
        key = Path(options.key_file).read_bytes().strip() if options.key_file else None
    except OSError as error:
        complain(f"{options.key_file}: {error.strerror or error}")
        return BAD_INPUT
    if key == b"":
        complain(f"{options.key_file}: holds no key")
        return BAD_INPUT
    verifier = Verifier(key, tuple(options.known_rule))
    for path in options.files:
        for checked in verifier.check(path, diagnostics):
            count += 1
            failed += not checked.sound
            print_json(checked._asdict()) if options.json else print(printable(_line(checked)))
    if not options.json:
        print(f"{count} certificates, {count - failed} sound, {failed} not")
    if count == 0:
        complain("no certificate found")
    return finish(diagnostics, FINE if count and not failed else NOT_SOUND)


def _at(step: int) -> str:
    """The step as people count it, from 1, as ``replay`` and ``report`` do; fields of data count from 0."""
    return f"at step {step + 1}" if step >= 0 else "at an unknown step"


def _line(checked: Checked) -> str:
    head = f"{'ok' if checked.sound else 'FAILED':<6} {checked.status:<8} {checked.source}:{checked.place}"
    what = f"  {checked.rule} {checked.level} {_at(checked.step)}" if checked.rule else ""
    return "; ".join((head + what, *checked.problems))


class Verifier:
    """Finds the certificates of a file and verifies each, also against the record that carries it.

    Parameters:
        key: the key they have to be signed with; None accepts them without a signature.
        known: rules that are not registered here.
    """

    def __init__(self, key: bytes | None, known: tuple[str, ...]) -> None:
        self._key = key
        self._known = known

    def check(self, path: str, diagnostics: Diagnostics) -> Iterator[Checked]:
        """The results for one file."""
        name, found = "<stdin>" if path == "-" else path, list[Checked]()

        def other(value: Mapping[str, Any], line: int | None) -> bool:
            read_as = list(_carried(value))
            found.extend(self._of_record(name, line, record) for record in read_as)
            return bool(read_as) or "resourceLogs" in value or not _RECORDS.isdisjoint(value)

        for item in read(path, diagnostics, other=other):
            if isinstance(item, SpanView) and (checked := self._of_span(name, item)) is not None:
                found.append(checked)
            yield from found
            found.clear()
        yield from found

    def _of_span(self, source: str, span: SpanView) -> Checked | None:
        attributes = span.attributes
        given = attributes.get(telemetry.CERTIFICATE)
        level = str(attributes.get(telemetry.INTERVENTION, ""))
        if given is None:
            if span.name != telemetry.SPAN_NAME or level not in (Level.NUDGE, Level.STOP):
                return None
            rule, step = str(attributes.get(telemetry.LOOP_RULE, "")), attributes.get(telemetry.STEP_INDEX, -1)
            return Checked(source, span.span_id, rule, level, int(step), "missing", (_MISSING,))
        expected = {
            "rule": attributes.get(telemetry.LOOP_RULE),
            "level": attributes.get(telemetry.INTERVENTION),
            "step": attributes.get(telemetry.STEP_INDEX),
            "trajectory": _fingerprint(attributes.get(telemetry.TRAJECTORY_ID)),
            "run": _fingerprint(attributes.get(telemetry.RUN_ID)),
            "score": attributes.get(telemetry.LOOP_SCORE),
        }
        return self._verified(source, span.span_id, given, expected)

    def _of_record(self, source: str, line: int | None, record: Mapping[str, Any]) -> Checked:
        logged = record if "event_type" in record else {}  # a flag or a payload may be newer than its certificate
        expected = {
            "rule": record.get("rule") if "certificate" in record and "known" not in record else None,
            "level": record.get("intervention"),
            "step": record.get("step_index"),
            "trajectory": _fingerprint(logged.get("trajectory_id")),
            "run": _fingerprint(logged.get("run")),
            "score": logged.get("score"),
        }
        given = record.get("certificate", record)
        return self._verified(source, f"line {line}" if line else "-", given, expected, rounded=1e-4)

    def _verified(
        self, source: str, place: str, given: Any, expected: Mapping[str, Any], *, rounded: float = _CLOSE
    ) -> Checked:
        try:
            one = Certificate.from_json(given) if isinstance(given, str) else Certificate.from_plain(given)
        except CertificateError as error:
            rule, level = str(expected["rule"] or ""), str(expected["level"] or "")
            return Checked(source, place, rule, level, -1, "failed", (str(error),))
        result = one.verify(self._key, known=self._known)
        problems = (*result.problems, *_differences(one, expected, rounded))
        status = result.status if len(problems) == len(result.problems) else "failed"
        step = one.facts.get("step", -1)
        return Checked(
            source, place, one.rule, str(one.facts.get("level", "")), step if isinstance(step, int) else -1, status,
            problems,
        )  # fmt: skip


def _differences(one: Certificate, expected: Mapping[str, Any], rounded: float) -> Iterator[str]:
    """Contradictions between a certificate and the record that carries it."""
    score = one.facts.get("score")
    stated = {**one.facts, "rule": one.rule, "score": score.get("after") if isinstance(score, Mapping) else None}
    for name, value in expected.items():
        if value is None or name not in stated:
            continue
        other = stated[name]
        if isinstance(value, (int, float)) and isinstance(other, (int, float)):
            if abs(value - other) <= (rounded if name == "score" else 0):
                continue
        elif value == other:
            continue
        yield f"{name} is another one in the record that carries it"


def _fingerprint(name: Any) -> str | None:
    return fingerprint(name) if isinstance(name, str) else None


def _carried(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The records with a certificate in an object: a log line, a stop payload, a flag, OTLP logs, or the certificate
    itself. The collector's log lines hold the record as ``verdict``."""
    inner = value.get("verdict")
    if isinstance(inner, Mapping) and isinstance(inner.get("certificate"), (Mapping, str)):
        yield inner
    elif isinstance(value.get("certificate"), (Mapping, str)) or {"rule", "facts", "digest"} <= value.keys():
        yield value
    elif "resourceLogs" in value:
        for body in _bodies(value["resourceLogs"]):
            try:
                record = json.loads(body)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, Mapping) and isinstance(record.get("certificate"), (Mapping, str)):
                yield record


def _bodies(groups: Any) -> Iterator[str]:
    """Texts of the log records of an OTLP/JSON request."""
    for group in _objects(groups):
        for scope in _objects(group.get("scopeLogs")):
            for record in _objects(scope.get("logRecords")):
                body = record.get("body")
                if isinstance(body, Mapping) and isinstance(body.get("stringValue"), str):
                    yield body["stringValue"]


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()
