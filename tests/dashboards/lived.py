"""One run for all live tests: two collectors and a stream worker under Prometheus, a healthy load, agents that are stuck,
trouble, the end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from dashboards.generator.promql import Window
from dashboards.generator.recordings import Windows
from dashboards.generator.rules import prometheus_rules
from tests.collector.backends import log_records, metric_points
from tests.collector.receiver_helpers import Authority
from tests.dashboards import load
from tests.dashboards.programs import Collector, Prometheus, backend, collector, prometheus, until
from tests.dashboards.stream_worker import stream_worker

WINDOWS = Windows(Window("5m", "1s"), Window("5m", "1s"), wait="2s", rate="3s")
STEPS = "trajectory_guard_steps_total"
HEALTHY_STEPS, ALL_STEPS = 40, 121
STUCK = {"AgentLoopsOften", "AgentStuck", "AgentIgnoresNudges", "LoopsBurnMoney", "LoopsBurnTokens"}
IN_TROUBLE = {
    "GuardErrors", "GuardForgets", "GuardHearsLate", "GuardLosesSome", "GuardLosesData", "GuardQueueFilling",
    "GuardBackendFailing", "GuardRefusesData", "GuardTurnsAway", "GuardScoresWaiting", "GuardScoresFailing",
}  # fmt: skip
OF_WORKERS = {"GuardWorkerHearsLate", "GuardDeadLetters", "GuardWorkerNotReady", "GuardWorkerBusy"}
ABOUT = {
    **dict.fromkeys(STUCK, "support"), **dict.fromkeys(IN_TROUBLE, "troubled"), **dict.fromkeys(OF_WORKERS, "worker"),
    "GuardWorkersLag": "operations",
}  # fmt: skip
"""The service, collector, worker or topic that an alert is about, before anything is gone."""
Alerts = set[tuple[str, str]]
"""Name, and what it is about."""


class Run(NamedTuple):
    """When things had happened, and which alerts had fired by then."""

    server: Prometheus
    begun_at: float
    calm: Alerts
    stuck_at: float
    stuck: Alerts
    troubled_at: float
    troubled: Alerts
    gone: Alerts
    traces: dict[str, set[str]]


@contextmanager
def lived_through(folder: Path) -> Iterator[Run]:
    """Start everything, live through it, and leave Prometheus to be asked."""
    with ExitStack() as stack:
        url = stack.enter_context(backend())
        sound = stack.enter_context(collector(folder, "sound", exporters={"otlphttp": {"endpoint": f"{url}/takes"}}))
        certificates = Authority(folder).server()
        troubled = stack.enter_context(collector(folder, "troubled", **in_trouble(url, certificates)))
        ending = stack.enter_context(ExitStack())
        worker = ending.enter_context(stream_worker())
        rules = prometheus_rules(WINDOWS, interval="500ms", hold="2s")  # a scrape may be late on a busy machine
        addresses = {"sound": sound.telemetry, "troubled": troubled.telemetry, "worker": worker.address}
        server = stack.enter_context(prometheus(folder, addresses, rules))
        until(lambda: len(server.query("up == 1")) == 3, "the collectors and the worker are scraped")
        begun_at = time.time() + 1.0  # rules that were evaluated before the first scrape miss the collectors
        until(lambda: time.time() > begun_at + 0.5, "the rules see the collectors")

        def then(arrived: Callable[[Alerts], bool]) -> tuple[Alerts, float]:
            return alerts_after(server, begun_at, arrived), time.time()

        send_healthy(sound)
        calm, _ = then(lambda _: server.total(STEPS) == HEALTHY_STEPS)
        traces = send_stuck(sound)
        stuck, stuck_at = then(lambda found: server.total(STEPS) == ALL_STEPS and names(found) >= STUCK)
        worker.get_into_trouble()
        with trouble(troubled, sound, Path(certificates.cert_file)):
            all_fired, troubled_at = then(lambda found: names(found) >= ABOUT.keys())
        for one in (sound, troubled):
            one.process.kill()
        ending.close()
        gone, _ = then(lambda found: names(found) >= {"GuardDown", "GuardAbsent"})
        yield Run(server, begun_at, calm, stuck_at, stuck, troubled_at, all_fired, gone, traces)


# --- alerts ----------------------------------------------------------------------------------------------------------


def names(alerts: Alerts) -> set[str]:
    return {name for name, _ in alerts}


def fired(server: Prometheus, since: float) -> Alerts:
    """Alerts that have fired from a time on."""
    window = max(1, round(time.time() - since))
    found = server.query(f'last_over_time(ALERTS{{alertstate="firing"}}[{window}s])')
    return {(one.labels["alertname"], subject(one.labels)) for one in found}


def subject(labels: Mapping[str, str]) -> str:
    """The service, collector, worker or topic that an alert is about."""
    return labels.get("service_name") or labels.get("instance") or labels.get("topic", "")


def alerts_after(server: Prometheus, begun_at: float, arrived: Callable[[Alerts], bool]) -> Alerts:
    """Alerts that have fired once something has arrived, and all rules were evaluated twice on it."""
    until(
        lambda: arrived(fired(server, begun_at)), "the data and the alerts expected are in Prometheus",
        seen=lambda: f"missing: {sorted(ABOUT.keys() - names(fired(server, begun_at)))}",
    )  # fmt: skip
    for _ in range(2):
        moment = time.time()
        until(lambda: evaluated(server) > moment, "the rules were evaluated")  # noqa: B023
    return fired(server, begun_at)


def evaluated(server: Prometheus) -> float:
    """When that rule group was evaluated that waits for the longest time."""
    moments = [one["lastEvaluation"] for one in server.get("rules")["groups"]]
    return min(datetime.fromisoformat(_readable(moment)).timestamp() for moment in moments)


def _readable(moment: str) -> str:
    """As Python 3.10 reads it: microseconds, no Z."""
    seconds, fraction, zone = re.fullmatch(r"([^.Z+]+)(?:\.(\d+))?(.*)", moment).groups("0")  # type: ignore[union-attr]
    return f"{seconds}.{fraction:0<6.6}{zone.replace('Z', '+00:00')}"


# --- load ------------------------------------------------------------------------------------------------------------


def send_healthy(sound: Collector) -> None:
    """Five conversations of eight steps, all fine; metrics, logs and a look at a flag, too."""
    load.send(load.exporter(http=sound.http), *load.several(5, "library", "reader", load.reading(8)))
    send_others(sound)


def send_others(to: Collector) -> None:
    with httpx.Client(base_url=f"http://{to.http}", headers={"Content-Type": "application/x-protobuf"}) as client:
        assert client.post("/v1/metrics", content=metric_points(3).data).status_code == 200
        assert client.post("/v1/logs", content=log_records(2).data).status_code == 200
    assert httpx.get(f"http://{to.telemetry}/v1/flags/library-0").status_code == 200


def send_stuck(sound: Collector) -> dict[str, set[str]]:
    """One service whose agent never listens, one that rewords, one that recovers; the traces of each."""
    runs = {
        "support": load.several(8, "support", "planner", load.stubborn(6, model=True)),
        "research": load.several(2, "research", "scout", load.rewording()),
        "desk": load.several(3, "desk", "helper", load.stubborn(3) + load.reading(4)),
    }
    through = load.exporter(grpc=sound.grpc)
    for conversations in runs.values():
        load.send(through, *conversations)
    return {service: load.trace_ids(*conversations) for service, conversations in runs.items()}


def in_trouble(url: str, certificates: Any) -> dict[str, Any]:
    """Backends that reject everything, know nobody, and are down; small queues, hardly any memory of trajectories and names."""
    quickly = {"initial_interval_s": 0.05, "max_interval_s": 0.05}
    return {
        "receivers": {"otlp": {"protocols": {"http": {"tls": certificates.model_dump(exclude_none=True)}}}},
        "guard": {"max_trajectories": 3},
        "exporters": {
            "langfuse": {"endpoint": f"{url}/rejects", "public_key": "p", "secret_key": "s"},
            "langfuse/locked": {"endpoint": f"{url}/locked", "public_key": "p", "secret_key": "wrong"},
            "otlp/dead": {
                "endpoint": "127.0.0.1:1", "tls": {"insecure": True}, "retry_on_failure": quickly,
                "sending_queue": {"num_consumers": 1, "queue_size": 2},
            },
        },
        "queue": {"deadline_s": 2},
        "telemetry": {"endpoint": "127.0.0.1:0", "max_label_values": 4},
    }  # fmt: skip


@contextmanager
def trouble(troubled: Collector, sound: Collector, certificate: Path) -> Iterator[None]:
    """Rubbish in a certificate file, late steps, a loop, more trajectories and services than allowed, and no end of
    requests, some of them rubbish, too."""
    certificate.write_text("rubbish", encoding="utf-8")
    httpx.get(
        f"https://{troubled.http}/", verify=False
    )  # has it look at the file; it goes on with the last certificate
    late = [
        load.conversation("noisy", "late", "reader", load.reading(20), start_s=1_000.0),
        load.conversation("noisy", "late", "reader", load.reading(20, first=21)),
    ]
    many = [load.conversation(f"noisy-{at}", f"many-{at}", "reader", load.reading(20)) for at in range(6)]
    many.append(load.conversation("noisy", "stuck", "reader", load.stubborn(4)))
    through = load.exporter(grpc=troubled.grpc, timeout=10)
    for spans in (list(chain(*many)), *late):
        through.export(spans)
    over = threading.Event()
    senders = [threading.Thread(target=keep_sending, args=(troubled, over), daemon=True) for _ in range(6)]
    senders.append(threading.Thread(target=keep_sending_rubbish, args=(troubled, over), daemon=True))
    senders.append(threading.Thread(target=keep_working, args=(sound, over), daemon=True))
    for one in senders:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in senders:
            one.join(10)


def keep_sending(to: Collector, over: threading.Event) -> None:
    through = load.exporter(grpc=to.grpc, timeout=1)
    run = load.conversation("noisy", "idle", "reader", [])
    while not over.wait(0.05):
        through.export(run)


def keep_sending_rubbish(to: Collector, over: threading.Event) -> None:
    with httpx.Client(base_url=f"https://{to.http}", verify=False) as client:
        while not over.wait(0.02):
            client.post("/v1/traces", content=b"rubbish", headers={"Content-Type": "application/x-protobuf"})


def keep_working(on: Collector, over: threading.Event) -> None:
    through = [load.exporter(http=on.http), load.exporter(grpc=on.grpc)]
    number = 0
    while not over.wait(0.1):
        number += 1
        send_others(on)
        load.send(through[number % 2], load.conversation("library", f"later-{number}", "reader", load.reading(8)))
