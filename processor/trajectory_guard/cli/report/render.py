"""``trajectory-guard report``: recorded trajectories as one self-contained HTML page for the investigator."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from trajectory_guard.cli.outcome import Outcome
from trajectory_guard.cli.output import BAD_INPUT, FINE, LOOP_FOUND, print_json
from trajectory_guard.cli.recordings.inputs import Diagnostics
from trajectory_guard.cli.replay import reaches, replay
from trajectory_guard.cli.report.data import Summary, build_section, interventions, summarize
from trajectory_guard.cli.report.text import visible
from trajectory_guard.cli.settings import load_config
from trajectory_guard.config import ConfigError
from trajectory_guard.extras import missing
from trajectory_guard.process.standard_streams import say

DEFAULT_LIMIT: Final = 20
_MAX_KNOWN_IDS: Final = 10_000
_MAX_NAMED: Final = 3
_MAX_COMPLAINTS: Final = 20


class ReportError(Exception):
    """A report that cannot be made; the message says why and what to do."""


def add_report(commands: Any) -> None:
    """Register the subcommand on what ``ArgumentParser.add_subparsers`` returns."""
    parser = commands.add_parser(
        "report",
        help="one self-contained HTML page: what happened in a run, where it looped, and why",
        description="Write one self-contained HTML page on recorded trajectories, the worst first.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="OTLP, or step lines; - is stdin")
    parser.add_argument("-o", "--output", metavar="OUT.html", help="page to write; - is stdout")
    parser.add_argument("--json", action="store_true", help="print a line of JSON per trajectory, the worst first")
    parser.add_argument("--config", metavar="FILE", help="configuration of the guard (.json, .toml, .yaml)")
    parser.add_argument("--trajectory", action="extend", nargs="+", metavar="ID", help="only these (default: all)")
    parser.add_argument(
        "--limit", type=_positive, default=DEFAULT_LIMIT, metavar="N",
        help=f"trajectories shown in full, the worst first (default {DEFAULT_LIMIT}); the others are listed only",
    )  # fmt: skip
    parser.add_argument("--fail-on", choices=("nudge", "stop"), help="exit 1 if any trajectory reaches this level")
    parser.set_defaults(run=run_report)


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text!r}")
    return int(text)


def run_report(options: argparse.Namespace) -> int:
    """Write the page. Returns 0, 1 (``--fail-on`` met) or 2 (bad input; what could be read is still reported)."""
    diagnostics = Diagnostics()
    try:
        found = _lines(options, diagnostics) if options.json else _report(options, diagnostics)
    except (ReportError, ConfigError) as error:
        _complain([*map(str, diagnostics.errors), str(error)])
        return BAD_INPUT
    _complain(map(str, diagnostics.errors))
    reached = any(reaches(one, options.fail_on) for one in found)
    return BAD_INPUT if diagnostics.errors else LOOP_FOUND if reached else FINE


def _complain(messages: Iterable[str]) -> None:
    lines = list(dict.fromkeys(line for message in messages for line in message.splitlines()))
    for line in lines[:_MAX_COMPLAINTS]:
        say(f"trajectory-guard report: {visible(line)}")
    if len(lines) > _MAX_COMPLAINTS:
        say(f"trajectory-guard report: and {len(lines) - _MAX_COMPLAINTS:,} more")


def _lines(options: argparse.Namespace, diagnostics: Diagnostics) -> list[Summary]:
    """The overview as lines of JSON; needs no extra."""
    if options.output is not None:
        raise ReportError("--json prints to stdout: leave out -o")
    known: dict[str, None] = {}
    outcomes = _wanted(replay(options.files, load_config(options.config), diagnostics), options.trajectory, known)
    summaries, _ = _rank(outcomes, 1)
    _check_found(summaries, options.trajectory, known, options.files)
    for summary in summaries:
        print_json(summary.to_json())
    return summaries


def _report(options: argparse.Namespace, diagnostics: Diagnostics) -> list[Summary]:
    if options.output is None:
        raise ReportError("-o OUT.html names the page to write; --json prints lines instead")
    page = _load_page()
    config = load_config(options.config)
    _check_output(options.output, options.files)
    known: dict[str, None] = {}
    outcomes = _wanted(replay(options.files, config, diagnostics), options.trajectory, known)
    summaries, worst = _rank(outcomes, options.limit)
    _check_found(summaries, options.trajectory, known, options.files)
    content = page.Page(
        sources=["standard input" if path == "-" else Path(path).name for path in options.files],
        summaries=summaries,
        sections=[build_section(outcome, config, _recorded(diagnostics, outcome.id)) for outcome in worst],
        recorded=interventions(_recorded(diagnostics, *(options.trajectory or ()))),
        problems=list(dict.fromkeys(map(str, diagnostics.errors))),
        left_out=len(summaries) - len(worst),
    )
    _write(options.output, page.render(content, config))
    return summaries


def _recorded(diagnostics: Diagnostics, *ids: str) -> Counter[str]:
    """Interventions in the spans by level, those of some trajectories or of all."""
    return Counter(level for trajectory, _, level in diagnostics.interventions if not ids or trajectory in ids)


def _load_page() -> Any:
    """The module that draws; its libraries come with an extra."""
    try:
        from trajectory_guard.cli.report import page as report_page
    except ImportError as error:
        raise ReportError(missing("a report", error, "report")) from None
    return report_page


# --- which trajectories --------------------------------------------------------------------------------------


def _wanted(outcomes: Iterable[Outcome], ids: Sequence[str] | None, known: dict[str, None]) -> Iterator[Outcome]:
    """Those asked for; ``known`` collects the ids that were seen, to suggest one."""
    for outcome in outcomes:
        if len(known) < _MAX_KNOWN_IDS or (ids and outcome.id in ids):
            known[outcome.id] = None
        if not ids or outcome.id in ids:
            yield outcome


def _rank(outcomes: Iterable[Outcome], limit: int) -> tuple[list[Summary], list[Outcome]]:
    """Summaries of all, and the few outcomes to show in full: the worst first, equals in input order."""
    summaries: list[Summary] = []
    kept: list[tuple[Summary, int, Outcome]] = []
    for number, outcome in enumerate(outcomes):
        summary = summarize(outcome)
        summaries.append(summary)
        kept.append((summary, number, outcome))
        if len(kept) >= 2 * limit + 100:
            kept = _worst(kept)[:limit]
    summaries.sort(key=lambda summary: summary.badness, reverse=True)
    return summaries, [outcome for _, _, outcome in _worst(kept)[:limit]]


def _worst(kept: list[tuple[Summary, int, Outcome]]) -> list[tuple[Summary, int, Outcome]]:
    return sorted(kept, key=lambda one: (one[0].badness, -one[1]), reverse=True)


def _check_found(
    summaries: Sequence[Summary], ids: Sequence[str] | None, known: Collection[str], files: Sequence[str]
) -> None:
    missing = [wanted for wanted in ids or () if wanted not in known]
    if missing:
        raise ReportError("\n".join(f"no trajectory {wanted!r}{_nearest(wanted, list(known))}" for wanted in missing))
    if not summaries:
        raise ReportError(f"no trajectories found in {', '.join(files)}")


def _nearest(wanted: str, known: list[str]) -> str:
    """Suggestions: ids that contain what was asked for, else those spelled most alike."""
    if not known:
        return ": none was found in the input"
    part = [seen for seen in known if wanted.casefold() in seen.casefold()] if wanted else []
    close = part or difflib.get_close_matches(wanted, known, n=_MAX_NAMED, cutoff=0.5) or known
    named = ", ".join(repr(seen) for seen in close[:_MAX_NAMED])
    more = f" and {len(close) - _MAX_NAMED:,} more" if len(close) > _MAX_NAMED else ""
    return f" (did you mean {named}{more}?)" if close is not known else f"; the input has {named}{more}"


# --- writing -------------------------------------------------------------------------------------------------


def _check_output(output: str, files: Sequence[str]) -> None:
    """Find out before the long work, not after it."""
    if output == "-":
        return
    target = Path(output)
    if target.is_dir():
        raise ReportError(f"{output}: cannot be written: is a directory")
    if not target.parent.is_dir():
        raise ReportError(f"{output}: cannot be written: directory {target.parent} does not exist")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ReportError(f"{output}: cannot be written: permission denied")
    if any(path != "-" and target.exists() and Path(path).exists() and target.samefile(path) for path in files):
        raise ReportError(f"{output}: is also an input; it would be overwritten")


def _write(output: str, page: str) -> None:
    """Write all or nothing: a page that is cut off in the middle would mislead."""
    data = page.encode("utf-8", "replace")
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    target = Path(output).resolve()
    try:
        if target.exists() and not target.is_file():  # a device or pipe cannot be replaced
            target.write_bytes(data)
            return
        _replace(target, data)
    except OSError as error:
        raise ReportError(f"{output}: cannot be written: {error.strerror or error}") from None


def _replace(target: Path, data: bytes) -> None:
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".report-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
