"""The command line of the programs of this package: commands with a configuration, one line for each mistake."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final

from pydantic import BaseModel

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.config.bounds import NESTED
from trajectory_guard.core.build import with_build
from trajectory_guard.extras import missing
from trajectory_guard.process.standard_streams import abandon_stdout, open_closed_ones, say, write_error
from trajectory_guard_collector.early_stop import FINE
from trajectory_guard_collector.telemetry.line_writer import FLUSH_S, LineWriter

FAILED: Final = 1
BAD_CONFIGURATION: Final = 2
_STATUS: Final = "Exit status: 0 fine, 1 could not start or work, 2 bad configuration or usage."
Command = Callable[[argparse.Namespace], int]


def print_config(config: BaseModel) -> int:
    """Write the effective configuration as YAML, secrets hidden."""
    from trajectory_guard_collector.config.render import to_yaml

    sys.stdout.write(to_yaml(config))
    return FINE


def approve() -> int:
    """Say that a configuration has no mistakes."""
    print("configuration is valid")
    return FINE


def refuse(mistakes: Sequence[str]) -> None:
    """Raise ``ConfigError`` with a line for each mistake; nothing if there is none."""
    if mistakes:
        raise ConfigError("\n".join(mistakes))


def remark(name: str, guard: GuardConfig) -> None:
    """Print what else a user should know of the environment; ``run`` logs it."""
    from trajectory_guard_collector.config.process_variables import ignored_variables

    for line in ignored_variables(guard):
        say(f"{name}: warning: {line}")


def _take_file(options: argparse.Namespace) -> None:
    """Take a file that stands by itself for that of ``--config``."""
    file = getattr(options, "file", None)
    if file is None:
        return
    if options.config not in ([], [file]):
        raise ConfigError(f"{file}: --config names {', '.join(options.config)} beside it; give all files by --config")
    options.config = [file]


class Program:
    """A program with commands.

    Parameters:
        name: as users type it.
        description: one sentence.
        feature, extra: words and extra for the message that a package is missing.
        example: of a key and a value for ``--set``.
    """

    def __init__(self, name: str, description: str, *, feature: str, extra: str, example: str) -> None:
        self._name, self._feature, self._extra, self._example = name, feature, extra, example
        self._serves = False
        self._parser = argparse.ArgumentParser(
            prog=name, description=description,
            epilog=f"{_STATUS} 'COMMAND --help' shows its options, 'print-config' all keys with their values.",
        )  # fmt: skip
        self._parser.add_argument("--version", action="version", version=f"%(prog)s {with_build(__version__)}")
        self._commands = self._parser.add_subparsers(metavar="COMMAND", required=True)

    def add(self, name: str, command: Command, meaning: str, *, configured: bool = True) -> argparse.ArgumentParser:
        """Add a command, with the options of a configuration if it is ``configured``."""
        parser = self._commands.add_parser(name, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
        if configured:
            parser.add_argument("file", nargs="?", metavar="FILE", help="the configuration, as with --config FILE")
            parser.add_argument(
                "--config", action="append", default=[], metavar="FILE",
                help="configuration in YAML, JSON or TOML; may be repeated, later files win key by key",
            )  # fmt: skip
            parser.add_argument(
                "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                help=f"one key over the files, such as {self._example}; may be repeated; a list is [a, b]",
            )  # fmt: skip
        parser.set_defaults(command=command, name=name)
        return parser

    def run(self, argv: Sequence[str], serving: Collection[str] = ()) -> int:
        """Run a command; the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage.

        Parameters:
            serving: names of the commands that serve.
        """
        open_closed_ones()
        options = self._parser.parse_args(argv)
        self._serves = options.name in serving
        command: Command = options.command
        try:
            _take_file(options)
            status = command(options)
            if not self._serves:
                sys.stdout.flush()
            return status
        except ConfigError as error:
            self.complain(str(error))
        except RecursionError:
            self.complain(f"the configuration is {NESTED}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("trajectory_guard"):
                raise
            self.complain(missing(self._feature, error, self._extra))
        except OSError as error:
            if self._serves:
                raise
            return self._unwritten(error)
        return BAD_CONFIGURATION

    def _unwritten(self, error: OSError) -> int:
        """The status of a command whose output nobody takes; raises any other error."""
        if isinstance(error, BrokenPipeError):  # as in ``... | head``
            abandon_stdout()
            return FINE
        unwritten = write_error(error)
        if unwritten is None:
            raise error
        abandon_stdout()
        self.complain(unwritten)
        return FAILED

    def complain(self, message: str) -> None:
        """Print each line of a message, after the name of the program. One that serves waits for no reader."""
        lines = [f"{self._name}: {line}" for line in message.splitlines()]
        if not self._serves:
            for line in lines:
                say(line)
            return
        for handler in logging.getLogger().handlers:
            handler.flush()  # these lines come first
        writer = LineWriter(sys.stderr)
        for line in lines:
            writer.put(line, always=True)
        writer.flush(FLUSH_S)
