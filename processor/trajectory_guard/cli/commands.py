"""The subcommands that read files: extract, replay, compare. Exit status 0 fine, 1 a loop was found, 2 bad input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from trajectory_guard.cli.inputs import InputError, Sink, read
from trajectory_guard.cli.replay import Outcome, replay
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.masking import mask_text
from trajectory_guard.core.similarity import Comparison, Relation, compare, normalize
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.assemble import extract_steps
from trajectory_guard.dialects.span import SpanView

FINE, LOOP_FOUND, BAD_INPUT = 0, 1, 2


def add_commands(commands: Any) -> None:
    """Register the subcommands."""
    extract = commands.add_parser("extract", help="tool calls found in recorded telemetry, one a line")
    extract.add_argument("files", nargs="+", metavar="FILE", help="OTLP JSON or protobuf, plain or gzip; - is stdin")
    extract.add_argument("--json", action="store_true", help="JSON lines (the default; kept for scripts)")
    extract.set_defaults(run=run_extract)

    replayed = commands.add_parser("replay", help="what the guard would have done on recorded runs")
    replayed.add_argument("files", nargs="+", metavar="FILE", help="OTLP, or step lines; - is stdin")
    replayed.add_argument("--json", action="store_true", help="one JSON line per trajectory")
    replayed.add_argument("--config", metavar="FILE", help="configuration to judge with (.json, .toml, .yaml)")
    replayed.add_argument("--fail-on", choices=("nudge", "stop"), help="exit 1 if any trajectory reaches this level")
    replayed.set_defaults(run=run_replay)

    compared = commands.add_parser("compare", help="do two calls mean the same? one pair a line")
    compared.add_argument("file", metavar="FILE", help="JSON lines with tool, a_args, b_args, a_out, b_out; - is stdin")
    compared.add_argument("--json", action="store_true", help="JSON lines (the default; kept for scripts)")
    compared.set_defaults(run=run_compare)


def _finish(sink: Sink, status: int) -> int:
    for error in sink.errors:
        print(f"trajectory-guard: {error}", file=sys.stderr)
    return BAD_INPUT if sink.errors else status


# --- extract -------------------------------------------------------------------------------------------------


def run_extract(options: argparse.Namespace) -> int:
    """Print the tool calls of all files."""
    sink, spans = Sink(), list[SpanView]()
    for path in options.files:
        for item in read(path, sink):
            if isinstance(item, SpanView):
                spans.append(item)
            else:
                for step in item.steps:
                    print(json.dumps(call_line(step), ensure_ascii=False))
    for step in extract_steps(spans):
        print(json.dumps(call_line(step), ensure_ascii=False))
    return _finish(sink, FINE)


def call_line(step: StepRecord) -> dict[str, Any]:
    """A tool call as ``extract`` prints it."""
    return {
        "span_id": step.span_id or step.step_id,
        "trace_id": step.trace_id,
        "dialect": step.dialect,
        "trajectory_id": step.trajectory_id,
        "tool_name": step.tool_name,
        "call_id": step.call_id,
        "args": step.args,
        "result": step.result,
        "outcome_type": step.outcome_type,
        "agent_id": step.agent_id,
        "evidence": str(step.evidence),
        "start": step.timestamp,
        "end": step.timestamp + step.duration,
    }


# --- replay --------------------------------------------------------------------------------------------------


def run_replay(options: argparse.Namespace) -> int:
    """Judge recorded trajectories."""
    try:
        config = GuardConfig.from_file(options.config) if options.config else GuardConfig()
    except ConfigError as error:
        print(f"trajectory-guard: {error}", file=sys.stderr)
        return BAD_INPUT
    sink, found, rows = Sink(), False, list[Outcome]()
    for outcome in replay(options.files, config, sink):
        reached = outcome.first_stop if options.fail_on == "stop" else outcome.first_nudge
        found = found or (options.fail_on is not None and reached is not None)
        if options.json:
            print(json.dumps(outcome.to_json(), ensure_ascii=False))
        else:
            rows.append(outcome)
    if not options.json:
        _table(rows)
    return _finish(sink, LOOP_FOUND if found else FINE)


def _table(rows: list[Outcome]) -> None:
    for outcome in rows:
        if outcome.first_nudge is None:
            continue
        verdict = outcome.verdicts[outcome.first_nudge]
        stop = f", stop at step {outcome.first_stop + 1}" if outcome.first_stop is not None else ""
        print(f"{outcome.id}: would have nudged at step {outcome.first_nudge + 1} of {len(outcome.steps)}{stop}")
        if verdict is not None:
            print(f"    {verdict.reason}")
    nudged = sum(row.first_nudge is not None for row in rows)
    stopped = sum(row.first_stop is not None for row in rows)
    steps = sum(len(row.steps) for row in rows)
    print(f"{len(rows)} trajectories, {steps} steps: {nudged} would have been nudged, {stopped} stopped.")


# --- compare -------------------------------------------------------------------------------------------------


def run_compare(options: argparse.Namespace) -> int:
    """Say for each pair of calls whether they mean the same."""
    sink, name = Sink(), options.file
    try:
        stream = sys.stdin if name == "-" else open(name, encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        sink.fail(name, f"cannot be read: {error.strerror}")
        return _finish(sink, FINE)
    with stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                _compare_line(line, name, number, sink)
    return _finish(sink, FINE)


def _compare_line(line: str, name: str, number: int, sink: Sink) -> None:
    try:
        pair = parse_json(line)
        if (
            not isinstance(pair, Mapping)
            or not isinstance(pair.get("tool"), str)
            or not {"a_args", "b_args"} <= pair.keys()
        ):
            raise ValueError("expected an object with 'tool', 'a_args' and 'b_args'")
    except ValueError as error:
        sink.errors.append(InputError(name, str(error), number))
        return
    found = compare_pair(pair)
    print(json.dumps({**pair, "relation": str(found.relation), "reason": found.reason}, ensure_ascii=False))


def compare_pair(pair: Mapping[str, Any]) -> Comparison:
    """Relation of two calls of one tool: different if their answers differ (volatile parts aside), else by arguments."""
    outs = [pair.get("a_out"), pair.get("b_out")]
    if all(isinstance(out, str) for out in outs) and mask_text(str(outs[0])) != mask_text(str(outs[1])):
        return Comparison(Relation.DIFFERENT, "the answers differ: something new came back")
    tool = str(pair["tool"])
    return compare(normalize(tool, pair["a_args"]), normalize(tool, pair["b_args"]))
