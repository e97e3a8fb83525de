"""The ``trajectory-guard-fleet`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from trajectory_guard import __version__
from trajectory_guard.config import ConfigError
from trajectory_guard.config_file import NESTED
from trajectory_guard.extras import missing

if TYPE_CHECKING:
    from trajectory_guard_collector.fleet.config import FleetConfig

FINE: Final = 0
FAILED: Final = 1
BAD_CONFIGURATION: Final = 2
PROGRAM: Final = "trajectory-guard-fleet"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigError as error:
        for line in str(error).splitlines():
            _complain(line)
    except RecursionError:
        _complain(f"the configuration is {NESTED}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("trajectory_guard"):
            raise
        _complain(missing("the stream worker", error, "fleet"))
    return BAD_CONFIGURATION


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="A stream worker that scores the agents of a fleet from a Kafka topic of spans."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add(commands, "run", _run, "read spans, write verdicts and guard spans, until SIGTERM")
    _add(commands, "validate", _validate, "check a configuration and the files it names; connects to nothing")
    _add(commands, "print-config", _print_config, "the effective configuration as YAML, secrets hidden")
    topics = _add(commands, "topics", _topics, "the topics there must be, and which there are")
    topics.add_argument("--create", action="store_true", help="create those that are missing")
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    meaning: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=meaning)
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="YAML, JSON or TOML; may be repeated, later wins"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as kafka.group=guard"
    )
    parser.set_defaults(command=command)
    return parser


def _run(options: argparse.Namespace) -> int:
    config = _loaded(options)
    from trajectory_guard_collector.fleet.run import run

    return run(config)


def _validate(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.fleet.config import unusable_files

    unusable = unusable_files(_loaded(options))
    if unusable:
        raise ConfigError("\n".join(unusable))
    return FINE


def _print_config(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.config.render import to_yaml

    sys.stdout.write(to_yaml(_loaded(options)))
    return FINE


def _topics(options: argparse.Namespace) -> int:
    config = _loaded(options)
    from trajectory_guard_collector.errors import StartError
    from trajectory_guard_collector.fleet.admin import Topology

    try:
        topology = Topology(config)
        created = set(topology.create_missing()) if options.create else set()
        for topic, partitions in topology.find():
            there = "missing" if not partitions else f"{partitions} partitions" + ", created" * (topic.name in created)
            print(f"{topic.role:<14}{topic.name:<60}{there}")
        topology.check()
    except StartError as error:
        for line in str(error).splitlines():
            _complain(line)
        return FAILED
    return FINE


def _loaded(options: argparse.Namespace) -> FleetConfig:
    from trajectory_guard_collector.config.load import load_as
    from trajectory_guard_collector.fleet.config import FleetConfig

    return load_as(FleetConfig, options.config, overrides=options.overrides)


def _complain(message: str) -> None:
    print(f"{PROGRAM}: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
