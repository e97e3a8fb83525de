"""The commands of ``trajectory-guard-fleet``."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from trajectory_guard_collector.command_line import FAILED, Program, approve, print_config, refuse, remark
from trajectory_guard_collector.early_stop import FINE

if TYPE_CHECKING:
    from trajectory_guard_collector.fleet.config import FleetConfig

PROGRAM: Final = "trajectory-guard-fleet"


def run(argv: Sequence[str], *, serving: Collection[str]) -> int:
    """Run a command; returns the exit status: 0 fine, 1 failed while running, 2 bad configuration or usage.

    Parameters:
        serving: names of the commands that serve.
    """
    program = Program(
        PROGRAM, "A stream worker that scores the agents of many services from a Kafka topic of spans.",
        feature="the stream worker", extra="fleet", example="kafka.group=guard",
    )  # fmt: skip
    program.add("run", _run, "read spans, write verdicts and guard spans, answer gates, until SIGTERM")
    program.add("flags", _flags, "answer gates that ask for flags, beside the workers, until SIGTERM")
    program.add("scores", _scores, "send the scores that workers write to Langfuse, until SIGTERM")
    program.add("validate", _validate, "check a configuration and the files it names; connects to nothing")
    program.add("print-config", _print_config, "the effective configuration as YAML, secrets hidden")
    topics = program.add("topics", partial(_topics, program), "the topics there must be, and which there are")
    topics.add_argument("--create", action="store_true", help="create those that are missing")
    return program.run(argv, serving)


def _run(options: argparse.Namespace) -> int:
    config = _checked(options)
    from trajectory_guard_collector.fleet.run import run as run_worker

    return run_worker(config)


def _flags(options: argparse.Namespace) -> int:
    config = _checked(options)
    from trajectory_guard_collector.fleet.run import run_flags

    return run_flags(config)


def _scores(options: argparse.Namespace) -> int:
    config = _checked(options)
    from trajectory_guard_collector.fleet.run import run_scores

    return run_scores(config)


def _validate(options: argparse.Namespace) -> int:
    from trajectory_guard_collector.fleet.config import state_mistakes, unusable_files

    config = _loaded(options)
    remark(PROGRAM, config.guard)
    refuse([*unusable_files(config), *state_mistakes(config)])
    return approve()


def _print_config(options: argparse.Namespace) -> int:
    config = _loaded(options)
    remark(PROGRAM, config.guard)
    return print_config(config)


def _topics(program: Program, options: argparse.Namespace) -> int:
    config = _checked(options)
    from trajectory_guard_collector.errors import StartError
    from trajectory_guard_collector.fleet.admin import Topology

    try:
        topology = Topology(config)
        created = set(topology.create_missing()) if options.create else set()
        for topic, partitions in topology.find():
            there = "missing" if not partitions else f"{partitions} partitions" + ", created" * (topic.name in created)
            print(f"{topic.role:<14}{topic.name:<60}  {there}")
        topology.check()
    except StartError as error:
        program.complain(str(error))
        return FAILED
    return FINE


def _checked(options: argparse.Namespace) -> FleetConfig:
    from trajectory_guard_collector.fleet.config import unusable_files

    config = _loaded(options)
    refuse(unusable_files(config))
    return config


def _loaded(options: argparse.Namespace) -> FleetConfig:
    from trajectory_guard_collector.config.load import load_as
    from trajectory_guard_collector.fleet.config import FleetConfig

    return load_as(FleetConfig, options.config, overrides=options.overrides)
