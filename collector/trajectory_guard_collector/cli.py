"""The ``trajectory-guard-collector`` command."""

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
    from trajectory_guard_collector.config.models import CollectorConfig

FINE: Final = 0
BAD_CONFIGURATION: Final = 2
PROGRAM: Final = "trajectory-guard-collector"
COMPONENTS: Final = {
    "receivers": {
        "otlp": "OTLP over gRPC and HTTP (protobuf and JSON): traces are scored, metrics and logs forwarded",
    },
    "exporters": {
        "otlp": "OTLP over gRPC",
        "otlphttp": "OTLP over HTTP, protobuf",
        "langfuse": "Langfuse's OTLP endpoint, traces only",
        "debug": "prints verdicts live",
    },
}


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
        _complain(missing("the collector", error, "collector"))
    return BAD_CONFIGURATION


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="One OTLP service that scores the agents of a fleet and forwards all telemetry."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add(commands, "run", _run, "receive, score and forward; without a configuration: localhost, debug exporter")
    _add(commands, "validate", _validate, "check a configuration and the files it names; starts nothing")
    _add(commands, "print-config", _print_config, "the effective configuration as YAML, secrets hidden")
    components = commands.add_parser("components", help="receivers and exporters there are")
    components.set_defaults(command=_components)
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    meaning: str,
) -> None:
    parser = commands.add_parser(name, help=meaning)
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="YAML, JSON or TOML; may be repeated, later wins"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help="such as queue.storage=/data"
    )
    parser.set_defaults(command=command)


def _run(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.app.run import run

    return run(_checked(options))


def _validate(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.config.render import storage_mistakes

    unusable = storage_mistakes(_checked(options))
    if unusable:
        raise ConfigError("\n".join(unusable))
    return FINE


def _print_config(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.config.render import to_yaml

    sys.stdout.write(to_yaml(_loaded(options)))
    return FINE


def _loaded(options: argparse.Namespace) -> CollectorConfig:
    from trajectory_guard_collector.config.load import load_config

    return load_config(options.config, overrides=options.overrides)


def _checked(options: argparse.Namespace) -> CollectorConfig:
    from trajectory_guard_collector.config.render import unusable_files

    config = _loaded(options)
    unusable = unusable_files(config)
    if unusable:
        raise ConfigError("\n".join(unusable))
    return config


def _components(options: argparse.Namespace) -> int:
    for kind, known in COMPONENTS.items():
        print(f"{kind}:")
        for name, meaning in known.items():
            print(f"  {name:<10}{meaning}")
    return FINE


def _complain(message: str) -> None:
    print(f"{PROGRAM}: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
