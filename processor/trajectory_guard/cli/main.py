"""The ``trajectory-guard`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from trajectory_guard import __version__
from trajectory_guard.cli.calibrate import add_calibrate
from trajectory_guard.cli.commands import add_commands
from trajectory_guard.cli.doctor import add_doctor
from trajectory_guard.cli.output import abandon_stdout, be_tolerant
from trajectory_guard.cli.report import add_report

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments and run a subcommand; returns the exit status (0 fine, 1 a loop was found, 2 bad input)."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 2
    be_tolerant()
    try:
        status = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trajectory-guard", description="Keep LLM agents from getting stuck: nudge first, stop last."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser("demo", help="four scripted agents under real instrumentation, offline")
    demo.add_argument("--svg", metavar="FILE", help="draw the run of the first agent into a file")
    demo.set_defaults(run=_demo)
    for add in (add_commands, add_report, add_doctor, add_calibrate):
        add(commands)
    return parser


def _demo(options: argparse.Namespace) -> int:
    try:
        from trajectory_guard.cli.demo import run_demo
    except ImportError as error:
        print(f"trajectory-guard demo: {error.name} is missing; pip install 'trajectory-guard[demo]'", file=sys.stderr)
        return 2
    return run_demo(options.svg)


if __name__ == "__main__":
    sys.exit(main())
