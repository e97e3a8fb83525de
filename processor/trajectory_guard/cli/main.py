"""The ``trajectory-guard`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from trajectory_guard import __version__
from trajectory_guard.cli.calibrate import add_calibrate
from trajectory_guard.cli.commands import add_commands
from trajectory_guard.cli.doctor.run import add_doctor
from trajectory_guard.cli.flag import add_flag
from trajectory_guard.cli.output import BAD_INPUT, be_tolerant, complain
from trajectory_guard.cli.report.render import add_report
from trajectory_guard.cli.verify import add_verify
from trajectory_guard.core.build import with_build
from trajectory_guard.extras import missing
from trajectory_guard.process.standard_streams import abandon_stdout, write_error

INTERRUPTED = 130
_MAX_MESSAGE: Final = 500


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments and run a subcommand; returns the exit status (0 fine, 1 a loop was found, 2 bad input)."""
    be_tolerant()
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        status = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # the status of a traceback, 1, means that a loop was found
        if sys.flags.dev_mode:
            raise
        complain(f"{options.command}: {_in_one_line(error)}")
        return BAD_INPUT
    return status


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    unwritten = write_error(error)
    if unwritten is not None:
        abandon_stdout()
        return unwritten
    text = " ".join(str(error).split())[:_MAX_MESSAGE]
    return f"unexpected {type(error).__name__}: {text or 'no message'} (PYTHONDEVMODE=1 shows where)"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trajectory-guard", description="Keep LLM agents from getting stuck: nudge first, stop last."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {with_build(__version__)}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser("demo", help="four scripted agents under real instrumentation, offline")
    demo.add_argument("--svg", metavar="FILE", help="draw the run of the first agent into a file")
    demo.set_defaults(run=_demo)
    for add in (add_commands, add_report, add_doctor, add_calibrate, add_flag, add_verify):
        add(commands)
    return parser


def _demo(options: argparse.Namespace) -> int:
    try:
        from trajectory_guard.cli.demo.run import run_demo

        return run_demo(options.svg)
    except ImportError as error:
        complain(missing("the demo", error, "demo"))
        return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
