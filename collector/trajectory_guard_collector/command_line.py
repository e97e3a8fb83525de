"""The command line of the programs of this package: commands with a configuration, one line for each mistake."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from pydantic import BaseModel

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.config_file import NESTED
from trajectory_guard.core.build import with_build
from trajectory_guard.extras import missing
from trajectory_guard.standard_streams import abandon_stdout, open_closed_ones, say, write_error

FINE: Final = 0
FAILED: Final = 1
BAD_CONFIGURATION: Final = 2
_STATUS: Final = "Exit status: 0 fine, 1 could not start or work, 2 bad configuration or usage."
STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a program to stop."""
Command = Callable[[argparse.Namespace], int]


def print_config(config: BaseModel) -> int:
    """Write the effective configuration as YAML, secrets hidden."""
    from trajectory_guard_collector.config.render import to_yaml

    sys.stdout.write(to_yaml(config))
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
        self._parser = argparse.ArgumentParser(
            prog=name, description=description,
            epilog=f"{_STATUS} 'COMMAND --help' shows its options, 'print-config' all keys with their values.",
        )  # fmt: skip
        self._parser.add_argument("--version", action="version", version=f"%(prog)s {with_build(__version__)}")
        self._commands = self._parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        self, name: str, command: Command, meaning: str, *, configured: bool = True, serves: bool = False
    ) -> argparse.ArgumentParser:
        """Add a command, with the options of a configuration if it is ``configured``.

        One that ``serves`` ends when it is asked to; until it handles the signals itself, they end it with status 0.
        """
        parser = self._commands.add_parser(name, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
        if configured:
            parser.add_argument(
                "--config", action="append", default=[], metavar="FILE",
                help="configuration in YAML, JSON or TOML; may be repeated, later files win key by key",
            )  # fmt: skip
            parser.add_argument(
                "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                help=f"one key over the files, such as {self._example}; may be repeated; a list is [a, b]",
            )  # fmt: skip
        parser.set_defaults(command=_stoppable(command) if serves else command)
        return parser

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run a command; the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage."""
        open_closed_ones()
        options = self._parser.parse_args(argv)
        command: Command = options.command
        try:
            status = command(options)
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
        except BrokenPipeError:
            abandon_stdout()
            return FINE
        except OSError as error:
            unwritten = write_error(error)
            if unwritten is None:
                raise
            abandon_stdout()
            self.complain(unwritten)
            return FAILED
        return BAD_CONFIGURATION

    def complain(self, message: str) -> None:
        """Print each line of a message, after the name of the program."""
        for line in message.splitlines():
            say(f"{self._name}: {line}")


class _StopError(BaseException):
    """The program was asked to stop while it started."""


def _stoppable(command: Command) -> Command:
    """A command that may be asked to stop from its first moment: a worker that is replaced while it loads its modules
    or looks for a broker has not failed."""

    def run(options: argparse.Namespace) -> int:
        with _signals_raise():
            try:
                return command(options)
            except _StopError as asked:
                logging.getLogger(__name__).info("%s while the program started: stopped", asked)
                return FINE

    return run


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGINT raise ``_StopError``, the second one ends the process; until others handle them."""

    def handle(number: int, _: FrameType | None) -> NoReturn:
        give_back()
        raise _StopError(signal.Signals(number).name)

    def give_back() -> None:
        for number, before in previous.items():
            if signal.getsignal(number) is handle:  # and not that of the service, which stays to the end
                signal.signal(number, before)

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    handled = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup sets it
    previous = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        give_back()
