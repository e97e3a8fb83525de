"""``trajectory-guard doctor``: problems of this environment or capture, each with the line that fixes it."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from trajectory_guard.cli.doctor.capture import capture_findings, recorded_findings
from trajectory_guard.cli.doctor.environment import environment_findings
from trajectory_guard.cli.doctor.graph import GraphSpecError, graph_findings
from trajectory_guard.cli.findings import Finding, plural, sort_findings
from trajectory_guard.cli.output import BAD_INPUT, FINE, complain, finish, make_console, print_json
from trajectory_guard.cli.recordings.inputs import Diagnostics, Recorded, read
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text import printable
from trajectory_guard.dialects.span import SpanView

PROBLEMS: Final = 1
MAX_SPANS: Final = 50_000
"""Spans, and steps of step lines, looked at; a diagnosis needs no more."""
_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "problem": ("✗", "red")}


def add_doctor(commands: Any) -> None:
    """Register the subcommand with argparse's ``add_subparsers()`` object."""
    parser = commands.add_parser(
        "doctor", help="what is missing in this environment, or in a capture, and the line that fixes it"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="captures; without any, this environment is examined")
    parser.add_argument(
        "--graph", metavar="MODULE:ATTRIBUTE", help="a LangGraph graph of yours: does every tool call pass a gate?"
    )
    parser.add_argument("--json", action="store_true", help="a JSON list of findings")
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Examine and print. Exit status 0 fine (or only warnings), 1 problems found, 2 bad input."""
    diagnostics = Diagnostics()
    if options.files:
        findings = files_findings(options.files, diagnostics)
    else:
        findings = environment_findings(dict(os.environ), installed_versions())
    if options.graph is not None:
        try:
            findings += graph_findings(options.graph)
        except GraphSpecError as error:
            complain(str(error))
            return BAD_INPUT
    findings = sort_findings(findings)
    if options.json:
        print_json([finding.to_json() for finding in findings])
    else:
        _print(findings)
    return finish(diagnostics, PROBLEMS if any(finding.severity == "problem" for finding in findings) else FINE)


def installed_versions() -> dict[str, str]:
    """Names (normalised) and versions of all installed distributions."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] if distribution.metadata is not None else None
        if name:
            found.setdefault(str(name).lower().replace("_", "-").replace(".", "-"), str(distribution.version))
    return found


def files_findings(paths: Iterable[str], diagnostics: Diagnostics) -> list[Finding]:
    """Findings about captures, all of them taken together."""
    spans: list[SpanView] = []
    steps: list[StepRecord] = []
    items = (item for path in paths for item in read(path, diagnostics))
    for item in islice(items, MAX_SPANS + 1):
        if isinstance(item, Recorded):
            steps += item.steps
        else:
            spans.append(item)
    found: list[Finding] = []
    if spans:
        found += capture_findings(spans)
    if steps:
        found += recorded_findings(steps)
    if not spans and not steps and not diagnostics.errors:
        found.append(Finding("problem", "nothing", "input", "The files hold neither spans nor steps."))
    elif not spans and not steps:
        found.append(Finding("problem", "unreadable", "input", "Nothing could be read: see the errors."))
    if len(spans) + len(steps) > MAX_SPANS:
        found.append(Finding("ok", "partial", "input", f"Only the first {MAX_SPANS} spans were looked at."))
    return found


# --- printing ------------------------------------------------------------------------------------------------


def _print(findings: Sequence[Finding]) -> None:
    try:
        from rich.text import Text

        console = make_console(soft_wrap=True)
    except ImportError:
        print(plain_report(findings), end="")
        return
    for finding in findings:
        mark, color = _MARKS[finding.severity]
        console.print(Text.assemble((f"{mark} ", f"bold {color}"), (printable(finding.subject), "bold"), "  "), end="")
        console.print(Text(printable(finding.message)))
        if finding.fix:
            console.print(Text.assemble("    ", (printable(finding.fix), "cyan")))
    console.print(Text(summary(findings)))


def plain_report(findings: Sequence[Finding]) -> str:
    """The report without colours: two lines a finding, and a summary."""
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.severity][0]} {printable(finding.subject)}  {printable(finding.message)}")
        if finding.fix:
            lines.append(f"    {printable(finding.fix)}")
    return "\n".join([*lines, summary(findings), ""])


def summary(findings: Iterable[Finding]) -> str:
    """One line: how many problems and warnings. That all is well is said only where tool spans were seen."""
    findings = list(findings)
    severities = [finding.severity for finding in findings]
    named = (("problem", severities.count("problem")), ("warning", severities.count("warn")))
    counts = [plural(count, noun) for noun, count in named if count]
    if counts:
        return f"{', '.join(counts)}."
    steps = next((finding for finding in findings if finding.code == "steps"), None)
    if steps is None:
        return "Nothing wrong here. Only a capture shows whether tool calls leave spans: trajectory-guard doctor FILE"
    return "Everything the guard needs is there." if steps.data["tool_spans"] else "Nothing is missing in these steps."
