"""The commands of ``trajectory-guard-collector``."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from trajectory_guard_collector.command_line import Program, approve, print_config, refuse, remark
from trajectory_guard_collector.early_stop import FINE

if TYPE_CHECKING:
    from trajectory_guard_collector.config.models import CollectorConfig

PROGRAM: Final = "trajectory-guard-collector"
COMPONENTS: Final = {
    "receivers": {
        "otlp": "OTLP over gRPC and HTTP (protobuf and JSON): traces are scored, metrics and logs forwarded",
    },
    "exporters": {
        "otlp": "OTLP over gRPC; also otlp_grpc",
        "otlphttp": "OTLP over HTTP, protobuf; also otlp_http",
        "langfuse": "Langfuse's OTLP endpoint, traces only",
        "debug": "prints verdicts live",
    },
}


def run(argv: Sequence[str], *, serving: Collection[str], exits: bool = False) -> int:
    """Run a command; returns the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage.

    Parameters:
        serving: names of the commands that serve.
        exits: the process exits after the command.
    """
    program = Program(
        PROGRAM, "One OTLP service that scores the agents of many services and forwards all telemetry.",
        feature="the collector", extra="collector", example="queue.storage=/data",
    )  # fmt: skip
    program.add(
        "run", partial(_run, exits), "receive, score and forward; without a configuration: localhost, debug exporter"
    )
    program.add("validate", _validate, "check a configuration and the files it names; starts nothing")
    program.add("print-config", _print_config, "the effective configuration as YAML, secrets hidden")
    program.add("components", _components, "receivers and exporters there are", configured=False)
    return program.run(argv, serving)


def _run(exits: bool, options: argparse.Namespace) -> int:
    from trajectory_guard_collector.app.run import run as run_collector

    return run_collector(_checked(options), exits=exits)


def _validate(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.config.render import storage_mistakes
    from trajectory_guard_collector.gateway.memory_limiter import unusable_limit

    config = _checked(options)
    with suppress(ImportError):  # ``run`` names what is missing
        import trajectory_guard_collector.app.service  # noqa: F401  a collector needs memory for its modules
    too_small = unusable_limit(config.memory_limiter)
    remark(PROGRAM, config.guard)
    refuse([*storage_mistakes(config), *([too_small] if too_small is not None else [])])
    return approve()


def _print_config(options: argparse.Namespace) -> int:
    config = _loaded(options)
    remark(PROGRAM, config.guard)
    return print_config(config)


def _loaded(options: argparse.Namespace) -> CollectorConfig:
    from trajectory_guard_collector.config.load import load_config

    return load_config(options.config, overrides=options.overrides)


def _checked(options: argparse.Namespace) -> CollectorConfig:
    from trajectory_guard_collector.config.render import unusable_files

    config = _loaded(options)
    refuse(unusable_files(config))
    return config


def _components(options: argparse.Namespace) -> int:
    for kind, known in COMPONENTS.items():
        print(f"{kind}:")
        for name, meaning in known.items():
            print(f"  {name:<10}{meaning}")
    return FINE
