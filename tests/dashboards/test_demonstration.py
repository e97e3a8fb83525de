"""The demonstration with ``docker compose``, as far as it can be checked where no Docker runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.dashboards.programs import DASHBOARDS, Collector, backend, collector
from trajectory_guard_collector.cli import main

ROOT = DASHBOARDS.parent
COMPOSE = DASHBOARDS / "docker-compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
MOUNTS = [(name, *volume.split(":")[:2]) for name, one in SERVICES.items() for volume in one.get("volumes", [])]
AGENTS = {name: one for name, one in SERVICES.items() if name.endswith("-agent")}
LEVEL = "trajectory_guard_intervention"


def loaded(path: str) -> Any:
    return yaml.safe_load((DASHBOARDS / path).read_text(encoding="utf-8"))


def mounted(service: str, target: str) -> Path:
    """The file of this folder that a service finds at a path."""
    for name, source, place in MOUNTS:
        if name == service and source.startswith(".") and (target == place or target.startswith(f"{place}/")):
            return DASHBOARDS / str(source) / target[len(place) :].lstrip("/")
    raise AssertionError(f"{service}: nothing is mounted at {target}")


@pytest.mark.parametrize("service, source, target", MOUNTS)
def test_what_is_mounted_exists(service: str, source: str, target: str) -> None:
    volumes = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["volumes"]
    assert (DASHBOARDS / source).exists() if source.startswith(".") else source in volumes


@pytest.mark.parametrize("service", SERVICES)
def test_what_a_service_waits_for_exists(service: str) -> None:
    assert set(SERVICES[service].get("depends_on", [])) <= set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_open_to_this_machine_only(service: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="docker compose is not installed",
)
def test_docker_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "-f", str(COMPOSE), "config", "-q"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_files_that_commands_name_are_mounted() -> None:
    assert mounted("collector", SERVICES["collector"]["command"][-1]).is_file()
    assert mounted("tempo", SERVICES["tempo"]["command"][0].partition("=")[2]).is_file()
    config = mounted("prometheus", SERVICES["prometheus"]["command"][0].partition("=")[2])
    assert all(
        (config.parent / name).is_file() for name in yaml.safe_load(config.read_text(encoding="utf-8"))["rule_files"]
    )
    (provider,) = loaded("grafana/provisioning/dashboards/trajectory-guard.yaml")["providers"]
    assert {path.name for path in mounted("grafana", provider["options"]["path"]).iterdir()} == {
        "fleet.json", "trajectory.json", "collector.json", "spending.json",
    }  # fmt: skip
    assert mounted("grafana", SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()


def test_the_collector_s_configuration_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--config", str(DASHBOARDS / "collector/collector.yaml")]) == 0
    assert capsys.readouterr() == ("configuration is valid\n", "")


def test_addresses_fit_together() -> None:
    config = loaded("collector/collector.yaml")
    (scrape,) = loaded("prometheus/prometheus.yml")["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == [f"collector:{port(config['telemetry']['endpoint'])}"]
    taken = loaded("tempo/tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert config["exporters"]["otlp/tempo"]["endpoint"] == f"tempo:{port(taken)}"
    sources = {
        one["uid"]: one for one in loaded("grafana/provisioning/datasources/trajectory-guard.yaml")["datasources"]
    }
    assert set(sources) == {"prometheus", "tempo"}
    assert sources["tempo"]["url"] == f"http://tempo:{loaded('tempo/tempo.yaml')['server']['http_listen_port']}"
    assert urlsplit(sources["prometheus"]["url"]).hostname in SERVICES
    (exemplars,) = sources["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplars == {"name": "trace_id", "datasourceUid": "tempo"}
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]
    assert config["queue"]["storage"] in [target for name, _, target in MOUNTS if name == "collector"]
    http = port(config["receivers"]["otlp"]["protocols"]["http"]["endpoint"])
    flags = port(config["telemetry"]["endpoint"])
    for agent in AGENTS.values():
        assert agent["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{http}"
        assert agent["environment"]["TRAJECTORY_GUARD_COLLECTOR_URL"] == f"http://collector:{flags}"


def port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def test_the_image_is_built_from_files_that_exist() -> None:
    build = SERVICES["collector"]["build"]
    context = (DASHBOARDS / build["context"]).resolve()
    assert context == ROOT
    text = (context / build["dockerfile"]).read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.*)", text, re.MULTILINE) for name in line.split()[:-1]]
    assert len(copied) >= 6
    assert all((context / name).exists() for name in copied)
    assert re.search(r"^USER [1-9]", text, re.MULTILINE)


def test_the_opentelemetry_collector_s_example_names_only_what_it_defines() -> None:
    config = loaded("otelcol/config.yaml")
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(config[kind])
    assert config["exporters"]["loadbalancing"]["routing_key"] == "traceID"


# --- the agents ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with backend() as url:
        output = {"otlphttp": {"endpoint": f"{url}/takes"}}
        with collector(tmp_path_factory.mktemp("demonstration"), "collector", exporters=output) as one:
            yield one


@pytest.fixture(scope="module")
def counts(running: Collector) -> dict[str, float]:
    """The collector's counts after one round of each agent, by metric, service and, if there is one, level."""
    started = [run_agent(one, running) for one in AGENTS.values()]
    for process in started:
        reported, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, reported + complaint
    text = httpx.get(f"http://{running.telemetry}/metrics").text
    return {
        " ".join((sample.name, sample.labels["service_name"], sample.labels.get(LEVEL, ""))).strip(): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "service_name" in sample.labels
    }


def run_agent(service: dict[str, Any], to: Collector) -> subprocess.Popen[str]:
    """The command of the compose file, for one round."""
    assert service["command"][1:] == ["--rounds", "0"]
    program = ROOT / service["entrypoint"][1].lstrip("/")
    environment = {
        **os.environ, **service["environment"], "PYTHONPATH": os.pathsep.join(sys.path),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{to.http}",
        "TRAJECTORY_GUARD_COLLECTOR_URL": f"http://{to.telemetry}",
    }  # fmt: skip
    command = [sys.executable, str(program), service["command"][0], "--rounds", "1", "--pause", "0"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_stubborn_agent_loops_and_goes_on_until_a_stop_is_due(counts: dict[str, float]) -> None:
    assert counts["trajectory_guard_episodes_total stubborn-agent"] == 1
    assert counts["trajectory_guard_interventions_total stubborn-agent NUDGE"] == 1
    assert counts["trajectory_guard_interventions_total stubborn-agent STOP"] == 1
    assert "trajectory_guard_recoveries_total stubborn-agent" not in counts


def test_the_listening_agent_is_nudged_by_the_collector_and_recovers(counts: dict[str, float]) -> None:
    assert counts["trajectory_guard_interventions_total listening-agent NUDGE"] == 1
    assert "trajectory_guard_interventions_total listening-agent STOP" not in counts
    assert counts["trajectory_guard_recoveries_total listening-agent"] == 1


def test_the_healthy_agent_is_left_alone(counts: dict[str, float]) -> None:
    assert counts["trajectory_guard_steps_total healthy-agent"] == 8
    assert "trajectory_guard_episodes_total healthy-agent" not in counts
