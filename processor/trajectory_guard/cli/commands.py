"""The subcommands that read files: extract, replay, compare. Exit status 0 fine, 1 a loop was found, 2 bad input."""

from __future__ import annotations

import argparse
import io
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trajectory_guard.cli.config_compare import Change, CompareReport
from trajectory_guard.cli.output import BAD_INPUT, FINE, LOOP_FOUND, complain, finish, print_json
from trajectory_guard.cli.progress import progress_bar
from trajectory_guard.cli.recordings.diagnostics import MIB
from trajectory_guard.cli.recordings.inputs import Diagnostics, Limits
from trajectory_guard.cli.recordings.spool import Spool
from trajectory_guard.cli.recordings.streams import BLANK, Source, is_binary
from trajectory_guard.cli.replay import reaches, read_all, replay, replay_with, trajectories, unique_trajectories
from trajectory_guard.cli.settings import load_config
from trajectory_guard.cli.summary import RichReport, make_report
from trajectory_guard.config import ConfigError
from trajectory_guard.core.content.masking import mask_noise
from trajectory_guard.core.engine import Engine
from trajectory_guard.core.fingerprints import parse_json
from trajectory_guard.core.similarity import Comparison, Relation, compare, normalize
from trajectory_guard.core.similarity.cascade import Settle
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.dialects.custom import table_with
from trajectory_guard.semantic.model_files import ModelError

_MAX_MEBIBYTES: Final = 1 << 20
_MAX_PAIR_BYTES: Final = 16 * MIB
"""Length of a line that ``compare`` reads."""


def add_commands(commands: Any) -> None:
    """Register the subcommands."""
    extract = commands.add_parser("extract", help="tool calls found in recorded telemetry, one a line")
    _add_inputs(extract)
    extract.add_argument("--json", action="store_true", help="JSON lines, the only form there is")
    extract.add_argument("--config", metavar="FILE", help="configuration that declares further dialects")
    extract.set_defaults(run=run_extract)
    _add_replay(commands)
    compared = commands.add_parser("compare", help="do two calls mean the same? one pair a line")
    compared.add_argument("file", metavar="FILE", help="JSON lines with tool, a_args, b_args, a_out, b_out; - is stdin")
    compared.add_argument("--json", action="store_true", help="JSON lines, the only form there is")
    compared.add_argument("--model", metavar="DIR", help="sentence model that settles what the comparator is unsure of")
    compared.set_defaults(run=run_compare)


def _add_replay(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="what the guard would have done on recorded runs",
        epilog="Steps count from 0 in JSON, from 1 in text.",
    )
    _add_inputs(parser)
    parser.add_argument("--json", action="store_true", help="one JSON line per trajectory")
    configs = parser.add_mutually_exclusive_group()
    configs.add_argument("--config", metavar="FILE", help="configuration of the guard (.json, .toml, .yaml)")
    configs.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="show whose verdicts change from one configuration to the other; each is a file or the word default",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="a value on top of --config (with --compare: of B), such as nudge_threshold=1.5 or tools.NAME.poll=true; "
        "may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", choices=("nudge", "stop"),
        help="exit 1 if any trajectory reaches this level (with --compare: under B)",
    )  # fmt: skip
    parser.set_defaults(run=run_replay)


def _add_inputs(parser: Any) -> None:
    limits = Limits()
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="OTLP JSON or protobuf, or step lines; plain, gzip or zstd; - is stdin"
    )
    parser.add_argument(
        "--max-document-mb", type=_mebibytes, default=limits.document_bytes, metavar="N",
        help=f"largest single JSON value or message to read whole, MiB (default {limits.document_bytes // MIB})",
    )  # fmt: skip
    parser.add_argument(
        "--max-trace-mb", type=_mebibytes, default=limits.trace_bytes, metavar="N",
        help=f"leave out traces with more span data than this, MiB (default {limits.trace_bytes // MIB})",
    )  # fmt: skip


def _mebibytes(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MAX_MEBIBYTES:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and up to {_MAX_MEBIBYTES:,}, got {text!r}")
    return max(1, int(number * MIB))


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(options.max_document_mb, options.max_trace_mb)


def _bad_config(error: ConfigError) -> int:
    for line in str(error).splitlines():
        complain(line)
    return BAD_INPUT


def _no_room(error: sqlite3.Error, diagnostics: Diagnostics) -> int:
    diagnostics.fail("temporary storage", f"{error}; SQLITE_TMPDIR names a directory with more room")
    return finish(diagnostics, BAD_INPUT)


# --- extract -------------------------------------------------------------------------------------------------


def run_extract(options: argparse.Namespace) -> int:
    """Print the tool calls of all files: those of step lines as they are read, then those of spans by start time."""
    diagnostics, limits = Diagnostics(), _limits(options)
    try:
        table = table_with(load_config(options.config).dialects)
    except ConfigError as error:
        return _bad_config(error)
    try:
        with progress_bar(diagnostics, prints=True), Spool(limits, table) as spool:
            for recorded in unique_trajectories(read_all(options.files, diagnostics, spool, limits), diagnostics):
                _print_calls(recorded.steps)
            spool.collect(diagnostics)
            _print_calls(spool.steps())
    except sqlite3.Error as error:
        return _no_room(error, diagnostics)
    return finish(diagnostics, FINE)


def _print_calls(steps: Iterable[StepRecord]) -> None:
    for step in steps:
        print_json(call_line(step))


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
    """Run the subcommand ``replay``; returns the exit status."""
    diagnostics = Diagnostics()
    try:
        found = _replay_compared(options, diagnostics) if options.compare else _replay(options, diagnostics)
    except ConfigError as error:
        return _bad_config(error)
    except sqlite3.Error as error:
        return _no_room(error, diagnostics)
    return finish(diagnostics, LOOP_FOUND if found else FINE)


def _replay(options: argparse.Namespace, diagnostics: Diagnostics) -> bool:
    """Print the outcomes; returns whether a trajectory reached the level of ``--fail-on``."""
    config, found = load_config(options.config, options.overrides), False
    report = None if options.json else make_report()
    with progress_bar(diagnostics, prints=not isinstance(report, RichReport)):
        for outcome in replay(options.files, config, diagnostics, _limits(options)):
            found = found or reaches(outcome, options.fail_on)
            if report is None:
                print_json(outcome.to_json())
            else:
                report.add(outcome)
    if report is not None:
        report.finish()
    return found


def _replay_compared(options: argparse.Namespace, diagnostics: Diagnostics) -> bool:
    names = (options.compare[0], " ".join((options.compare[1], *options.overrides)))
    configs = load_config(options.compare[0]), load_config(options.compare[1], options.overrides)
    engines = [Engine(config.engine_settings()) for config in configs]
    recorded = trajectories(options.files, diagnostics, _limits(options), table_with(configs[0].dialects))
    report, found = CompareReport(names, as_json=options.json), False
    with progress_bar(diagnostics, prints=True):
        for a, b in replay_with(engines, recorded, diagnostics):
            found = found or reaches(b, options.fail_on)
            report.add(Change(a, b))
    report.finish()
    return found


# --- compare -------------------------------------------------------------------------------------------------


def run_compare(options: argparse.Namespace) -> int:
    """Print for each pair of calls whether they mean the same."""
    diagnostics, name = Diagnostics(), "<stdin>" if options.file == "-" else options.file
    try:
        settle = _settle(options.model)
    except (ModelError, ValueError) as error:
        complain(str(error))
        return BAD_INPUT
    try:
        with Source(options.file, diagnostics.progress) as source:
            _compare_lines(source, name, diagnostics, settle)
            if source.failure is not None:
                diagnostics.fail(name, f"cannot be read to its end: {source.failure}")
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        diagnostics.fail(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return finish(diagnostics, FINE)


def _compare_lines(source: Source, name: str, diagnostics: Diagnostics, settle: Settle | None) -> None:
    if is_binary(source.head()):
        diagnostics.fail(name, "is no text: expected JSON lines")
        return
    stream, number, pairs = io.BufferedReader(source), 0, 0
    while line := stream.readline(_MAX_PAIR_BYTES + 1):
        number += 1
        if len(line) > _MAX_PAIR_BYTES:  # a file of a few kB, compressed, may hold a line of gigabytes
            diagnostics.fail(name, f"a line of more than {_MAX_PAIR_BYTES // MIB} MiB; the rest is not read", number)
            return
        if line.strip(BLANK):
            pairs += 1
            _compare_line(line, name, number, diagnostics, settle)
    if not pairs and source.failure is None:
        diagnostics.fail(name, "is empty")


def _settle(model: str | None) -> Settle | None:
    if model is None:
        return None
    from trajectory_guard.cli.calibrate import settle_pairs  # imports numpy and the model's runtime

    return settle_pairs(model).settle


def _compare_line(line: bytes, name: str, number: int, diagnostics: Diagnostics, settle: Settle | None) -> None:
    try:
        pair = parse_json(line.decode("utf-8-sig"))
        if (
            not isinstance(pair, Mapping)
            or not isinstance(pair.get("tool"), str)
            or not {"a_args", "b_args"} <= pair.keys()
        ):
            raise ValueError("expected an object with 'tool', 'a_args' and 'b_args'")
    except (ValueError, RecursionError) as error:
        diagnostics.fail(name, str(error), number)
        return
    found = compare_pair(pair, settle)
    print_json({**pair, "relation": str(found.relation), "reason": found.reason})


def compare_pair(pair: Mapping[str, Any], settle: Settle | None = None) -> Comparison:
    """Relation of two calls of a tool: different if their answers differ (volatile parts aside), else by arguments.

    ``settle`` decides where the comparator cannot, towards "same" only.
    """
    outs = [pair.get("a_out"), pair.get("b_out")]
    if all(isinstance(out, str) for out in outs) and mask_noise(str(outs[0])) != mask_noise(str(outs[1])):
        return Comparison(Relation.DIFFERENT, "the answers differ: the second result is new")
    tool = str(pair["tool"])
    first, second = normalize(tool, pair["a_args"]), normalize(tool, pair["b_args"])
    found = compare(first, second)
    if settle is not None and found.relation is Relation.MAYBE and settle(first.text, second.text):
        return Comparison(Relation.SAME, "the same in other words, by the model")
    return found
