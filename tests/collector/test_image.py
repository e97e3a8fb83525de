"""The images of collector and stream worker, as far as they can be checked where no Docker runs."""

from __future__ import annotations

import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers import TESTS
from trajectory_guard_collector.config.checks import listening, parse_endpoint
from trajectory_guard_collector.config.load import load_config
from trajectory_guard_collector.config.models import CollectorConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = TESTS.parent
DOCKERFILES = ("dashboards/collector/Dockerfile", "deploy/Dockerfile")
DOCKERFILE = (ROOT / DOCKERFILES[0]).read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()


def instruction(name: str, dockerfile: str = DOCKERFILE) -> list[str]:
    """The arguments of each instruction of this name."""
    return re.findall(rf"^{name} (.+)$", dockerfile, re.MULTILINE)


def copied(dockerfile: str) -> list[str]:
    """The files and folders that an image takes from the repository."""
    return [source for line in instruction("COPY", dockerfile) for source in line.split()[:-1]]


def read_by_the_build() -> set[str]:
    """The files and folders without which hatchling builds no wheel."""
    hatch = PROJECT["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    fragments = hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    hooks = {hook.get("path", "hatch_build.py") for name, hook in wheel["hooks"].items() if name == "custom"}
    listed = [
        *PROJECT["project"]["license-files"],
        *wheel["packages"],
        *wheel.get("force-include", ()),
        hatch["version"]["path"],
    ]
    return {"pyproject.toml", *listed, *hooks, *(fragment["path"] for fragment in fragments)}


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
    sources = copied(DOCKERFILE)
    assert all((ROOT / source).exists() and in_the_context(source) for source in sources)
    assert in_the_context("collector/trajectory_guard_collector/cli.py")
    for path in (".git/config", ".venv/bin/python", "tests/data/sample.gz", "collector/x/__pycache__/cli.pyc", "notes"):
        assert not in_the_context(path), path


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_all_files_that_the_build_of_the_package_reads(name: str) -> None:
    sources = copied((ROOT / name).read_text(encoding="utf-8"))
    for path in read_by_the_build():
        assert any(Path(path).is_relative_to(source) for source in sources), path
        assert in_the_context(path), path


def test_the_images_can_be_built_from_the_source_distribution() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    needed = {*DOCKERFILES, ".dockerignore", *read_by_the_build() - {"pyproject.toml"}}  # this one always is
    assert {path for path in needed if not any(Path(path).is_relative_to(one) for one in included)} == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_source_distribution_has_the_files_that_a_page_names(page: str) -> None:
    """``.ci/run`` was missing: the page says that it runs all tests on a clean clone."""
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {one for one in re.findall(r"[`(]([\w.-][\w./-]*)[`)#]", text) if (ROOT / one).is_file()}
    assert named >= {".ci/run"}
    always = {"pyproject.toml"}
    assert {one for one in named - always if not any(Path(one).is_relative_to(place) for place in included)} == set()


def test_docker_waits_longer_than_a_graceful_stop_takes() -> None:
    compose = yaml.safe_load((ROOT / "dashboards" / "docker-compose.yaml").read_text(encoding="utf-8"))
    grace = compose["services"]["collector"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) > CollectorConfig().shutdown_timeout_s
