"""The files of ``deploy/``, as far as they can be checked where neither Docker nor Kubernetes runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collector.test_image import in_the_context
from tests.helpers import TESTS
from trajectory_guard_collector.config.load import load_as
from trajectory_guard_collector.fleet.cli import main
from trajectory_guard_collector.fleet.config import FleetConfig, missing_for_scores

DEPLOY = TESTS.parent / "deploy"


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def configuration(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The effective configuration; a mistake fails the test."""
    file = tmp_path / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    assert main(["print-config", "--config", str(file)]) == 0, capsys.readouterr().err
    plain: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return plain


@pytest.fixture
def in_kubernetes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifests by kind, and the configuration in them."""
    kinds = {one["kind"]: one for one in reversed(read("kubernetes/worker.yaml"))}  # the first Service, of the metrics
    return kinds, configuration(kinds["ConfigMap"]["data"]["fleet.yaml"], tmp_path, capsys)


def test_the_image_has_what_it_copies() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in dockerfile.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]]
    assert copied
    for name in copied:
        assert (DEPLOY.parent / name).exists()
        assert in_the_context(name if (DEPLOY.parent / name).is_file() else f"{name}/x.py"), name


def test_compose_starts_two_workers_that_restart_with_the_configuration_of_the_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (compose,) = read("compose.yaml")
    services = compose["services"]
    workers = [one for name, one in services.items() if name.startswith("worker")]
    assert len(workers) == 2
    for one in workers:
        assert one["restart"] == "always"
        assert one["volumes"] == services["topics"]["volumes"]
        assert one["command"][-1] == services["topics"]["command"][-1]
    found = configuration((DEPLOY / "fleet.yaml").read_text(encoding="utf-8"), tmp_path, capsys)
    assert found["kafka"]["brokers"] == ["kafka:9092"]
    flags = services["flags"]
    assert (flags["command"][0], flags["volumes"], flags["restart"]) == ("flags", workers[0]["volumes"], "always")
    assert flags["ports"] == ["127.0.0.1:8890:" + found["flags"]["endpoint"].rsplit(":", 1)[1]]
    assert services["verdicts"]["command"][3] == found["topics"]["verdicts"]


def test_the_opentelemetry_collector_uses_the_topics_of_the_workers() -> None:
    (otelcol,) = read("otelcol.yaml")
    topics = FleetConfig().topics
    exporter, receiver = otelcol["exporters"]["kafka"], otelcol["receivers"]["kafka/guard"]
    assert exporter["partition_traces_by_id"] is True
    assert exporter["traces"] == {"topic": topics.spans, "encoding": "otlp_proto"}
    assert receiver["traces"] == {"topics": [topics.guard_spans], "encoding": "otlp_proto"}
    for pipeline in otelcol["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= otelcol["receivers"].keys()
        assert set(pipeline["exporters"]) <= otelcol["exporters"].keys()


def test_kubernetes_probes_and_volumes_are_those_of_the_worker(
    in_kubernetes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    kinds, found = in_kubernetes
    pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = [int(found[section]["endpoint"].rsplit(":", 1)[1]) for section in ("telemetry", "flags")]
    assert [one["containerPort"] for one in container["ports"]] == ports
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert {"name": "state", "mountPath": found["state"]["dir"]} in container["volumeMounts"]
    (claim,) = kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "state"
    labels = kinds["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        kinds["StatefulSet"]["spec"]["selector"]["matchLabels"],
        kinds["Service"]["spec"]["selector"],
        kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels


def test_kubernetes_serves_flags_by_every_worker_that_is_ready(
    in_kubernetes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    kinds, found = in_kubernetes
    (flags,) = [one for one in read("kubernetes/worker.yaml") if one["metadata"]["name"] == "trajectory-guard-flags"]
    assert flags["spec"]["selector"] == kinds["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert [one["port"] for one in flags["spec"]["ports"]] == [int(found["flags"]["endpoint"].rsplit(":", 1)[1])]
    assert "publishNotReadyAddresses" not in flags["spec"]


def test_the_sender_of_scores_has_the_keys_from_a_secret_and_the_configuration_of_the_workers(
    in_kubernetes: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kinds, _ = in_kubernetes
    (deployment,) = read("kubernetes/langfuse/scores.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert pod["volumes"][0]["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    file = tmp_path / "fleet.yaml"
    file.write_text(kinds["ConfigMap"]["data"]["fleet.yaml"], encoding="utf-8")
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["valueFrom"]["secretKeyRef"]["key"])
    command, *options = [one.replace("/etc/trajectory-guard/fleet.yaml", str(file)) for one in container["args"]]
    assert command == "scores"
    assert main(["print-config", *options]) == 0, capsys.readouterr().err
    found = load_as(FleetConfig, [str(file)], overrides=[one.removeprefix("--set=") for one in options[1:]])
    assert missing_for_scores(found) == []
    assert missing_for_scores(FleetConfig()) != []


def test_keda_watches_the_lag_of_both_stages_up_to_the_partitions(
    in_kubernetes: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    kinds, found = in_kubernetes
    (scaled,) = read("kubernetes/keda.yaml")
    assert scaled["spec"]["scaleTargetRef"]["name"] == kinds["StatefulSet"]["metadata"]["name"]
    assert scaled["spec"]["maxReplicaCount"] == found["topics"]["partitions"]
    triggers = [one["metadata"] for one in scaled["spec"]["triggers"]]
    assert [one["topic"] for one in triggers] == [found["topics"]["spans"], found["topics"]["operations"]]
    for one in triggers:
        assert one["consumerGroup"] == found["kafka"]["group"]
        assert one["bootstrapServers"] == ",".join(found["kafka"]["brokers"])
        assert all(isinstance(value, str) for value in one.values())  # KEDA takes nothing else
