"""The image of the collector, as far as it can be checked where no Docker runs."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import yaml

from tests.helpers import TESTS
from trajectory_guard_collector.config.checks import listening, parse_endpoint
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import CollectorConfig

ROOT = TESTS.parent
DOCKERFILE = (ROOT / "dashboards" / "collector" / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def instruction(name: str) -> list[str]:
    """The arguments of each instruction of this name."""
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def in_the_context(path: str) -> bool:
    """Whether a file is sent to the builder: the last line that is about it or a folder above it decides."""
    sent = True
    for line in IGNORED:
        pattern = line.removeprefix("!").removeprefix("**/")
        places = [path, *(str(parent) for parent in Path(path).parents)]
        if (
            line
            and not line.startswith("#")
            and any(fnmatch(p, pattern) or fnmatch(Path(p).name, pattern) for p in places)
        ):
            sent = line.startswith("!")
    return sent


def test_without_arguments_it_listens_on_all_ports_it_exposes_from_outside() -> None:
    (command,), (ports,) = instruction("CMD"), instruction("EXPOSE")
    run, option, file = json.loads(command)
    assert (run, option) == ("run", "--config")
    source = next(line.split()[0] for line in instruction("COPY") if line.endswith(f" {file}"))
    config = load_config([str(ROOT / source)], {})
    endpoints = [parse_endpoint(endpoint) for endpoint in listening(config).values()]
    assert {host for host, _ in endpoints} == {"0.0.0.0"}
    assert [str(port) for _, port in endpoints] == ports.split()


def test_the_user_is_a_number_and_owns_the_storage() -> None:
    (user,) = instruction("USER")
    uid, gid = map(int, user.split(":"))
    assert uid > 0
    assert f"install -d -m 700 -o {uid} -g {gid} /var/lib/trajectory-guard" in DOCKERFILE


def test_the_context_holds_what_is_copied_and_nothing_private() -> None:
    sources = [source for line in instruction("COPY") for source in line.split()[:-1]]
    assert all((ROOT / source).exists() and in_the_context(source) for source in sources)
    assert in_the_context("collector/trajectory_guard_collector/cli.py")
    for path in (".git/config", ".venv/bin/python", "tests/data/sample.gz", "collector/x/__pycache__/cli.pyc", "notes"):
        assert not in_the_context(path), path


def test_docker_waits_longer_than_a_graceful_stop_takes() -> None:
    compose = yaml.safe_load((ROOT / "dashboards" / "docker-compose.yaml").read_text(encoding="utf-8"))
    grace = compose["services"]["collector"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) > CollectorConfig().shutdown_timeout_s
