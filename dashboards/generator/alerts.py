"""The definition of all alerts, from which Prometheus rules and Grafana-managed rules are generated."""

from __future__ import annotations

from typing import Final, NamedTuple

from dashboards.generator.collector import COLLECTOR_UID, OWN
from dashboards.generator.fleet import FLEET_UID
from dashboards.generator.recordings import ERROR_WHERE, READY

JOB: Final = "trajectory-guard"
"""The scrape job of the collectors."""
CRITICAL, WARNING = "critical", "warning"
AGENT, GUARD = "agent", "guard"


class Alert(NamedTuple):
    """An alert.

    Fields:
        name: CamelCase.
        concerns: ``agent`` (whoever owns the service) or ``guard`` (whoever runs the collector); a label, to route by.
        severity: ``critical`` pages an operator, ``warning`` can wait until the morning; a label.
        expression: PromQL, one series for each thing that is wrong; may use recording rules by name.
        above: fires above this value.
        hold: how long it must stay there.
        summary: the event, with ``{{ $labels.… }}`` and ``{{ $value }}``.
        look: where to look.
        action: advice for the operator.
        dashboard, panel: where it can be seen: uid and title.
        link: variables of the dashboard's address, values encoded.
    """

    name: str
    concerns: str
    severity: str
    expression: str
    above: float
    hold: str
    summary: str
    look: str
    action: str
    dashboard: str
    panel: str
    link: str = ""


_AGENT_NAME: Final = '{{ or $labels.gen_ai_agent_name "(no name)" }}'
_SERVICE: Final = "var-service={{ $labels.service_name | urlquery }}"
_INSTANCE: Final = "var-instance={{ $labels.instance | urlquery }}"
_WORKER: Final = "var-worker={{ $labels.instance | urlquery }}"
_OF_A_WORKER: Final = f"on (instance) {READY}"
"""Follows ``and`` or ``unless``: collectors and stream workers have metrics in common, and need other advice."""
_OF_A_COLLECTOR: Final = "and on (instance) trajectory_guard_trajectories_by_score"
"""Applications count their evictions under the same name, and need other advice, too."""
_DEBUG_PAGE: Final = "/debug/trajectories of the collector (port 8888), with ?q={{ $labels.service_name | urlquery }}"


def alerts() -> list[Alert]:
    """All alerts."""
    return [
        *_about_agents(), *_about_money(), *_about_presence(), *_about_evaluation(), *_about_delivery(),
        *_about_workers(),
    ]  # fmt: skip


def _about_agents() -> list[Alert]:
    return [
        Alert(
            "AgentLoopsOften", AGENT, WARNING,
            "service_agent_type:trajectory_guard_episodes:count15m", 5, "0s",
            f"Agent {_AGENT_NAME} of {{{{ $labels.service_name }}}} began {{{{ $value | printf \"%.0f\" }}}} loops of "
            "{{ $labels.trajectory_guard_loop_type }} within 15 minutes.",
            f"'Top tools' says in which tool, 'Latest nudges and stops' leads to single trajectories, as does "
            f"{_DEBUG_PAGE}.",
            "Read the reason of one verdict. Most often a tool says nothing useful when it finds nothing: let it say "
            "what to try instead. If it is deliberate polling, declare the tool `poll` in the guard's configuration.",
            FLEET_UID, "Loops begun by type", _SERVICE,
        ),
        Alert(
            "AgentStuck", AGENT, WARNING,
            "service:trajectory_guard_loop_steps:ratio15m\nand on "
            "(service_name)\nservice:trajectory_guard_steps:count15m >= 20",
            0.3, "10m",
            "{{ $value | humanizePercentage }} of the tool calls of {{ $labels.service_name }} are made inside loops.",
            f"The trajectories with the highest score are on {_DEBUG_PAGE}.",
            "See what changed: a deployment, a prompt, a tool that is down. Roll back, or put a gate into the agent "
            "so that nudges reach it.",
            FLEET_UID, "Steps inside loops by service", _SERVICE,
        ),
        Alert(
            "AgentIgnoresNudges", AGENT, CRITICAL,
            "service_agent:trajectory_guard_stops:ratio1h\nand\nservice_agent:trajectory_guard_stops:count1h >= 3\n"
            "and\nservice_agent:trajectory_guard_nudges:count1h >= 3",
            0.5, "0s",
            f"Agent {_AGENT_NAME} of {{{{ $labels.service_name }}}} went on after "
            f"{{{{ $value | humanizePercentage }}}} of its "
            "nudges within an hour; a stop was due.",
            "Then open a trajectory in 'Latest nudges and stops' and see what followed the nudge.",
            "If the agent has no gate, it never heard of the nudge: add apply_guard, or read its flag. If it has one, "
            "its prompt probably forbids to give up: allow it. Until then stop the runs.",
            FLEET_UID, "Recovery rate by service", _SERVICE,
        ),
    ]  # fmt: skip


def _about_money() -> list[Alert]:
    look = f"The longest loops are on {_DEBUG_PAGE}."
    return [
        Alert(
            "LoopsBurnMoney", AGENT, CRITICAL,
            "service:trajectory_guard_loop_cost_usd:sum1h", 5, "0s",
            "{{ $labels.service_name }} spent {{ $value | printf \"%.2f\" }} USD inside loops within an hour.",
            look, "Stop the runs that loop, then see AgentLoopsOften. Let the gate stop them by itself: mode "
            "`enforce`.",
            FLEET_UID, "Money inside loops by service", _SERVICE,
        ),
        Alert(
            "LoopsBurnTokens", AGENT, WARNING,
            "service:trajectory_guard_loop_tokens:sum1h", 1_000_000, "0s",
            "{{ $labels.service_name }} spent {{ $value | humanize }} tokens inside loops within an hour.",
            look, "As for LoopsBurnMoney. Counts models without a known price, too.",
            FLEET_UID, "Tokens inside loops by service", _SERVICE,
        ),
    ]  # fmt: skip


def _about_presence() -> list[Alert]:
    return [
        Alert(
            "GuardDown", GUARD, CRITICAL,
            f'1 - up{{job="{JOB}"}}', 0, "2m",
            "The collector or stream worker {{ $labels.instance }} does not answer Prometheus.",
            "Its log, /healthz and /readyz on port 8888 (a worker's: 8889); is the process there, is the port "
            "reachable?",
            "Restart it. With queue.storage nothing that was acknowledged is lost; senders keep the rest as long as "
            "they retry. The partitions of a stream worker go to the others, and nothing is lost.",
            COLLECTOR_UID, "Collectors up",
        ),
        Alert(
            "GuardAbsent", GUARD, CRITICAL,
            f"absent({OWN} or {READY})", 0, "5m",
            "No collector and no stream worker reports at all: nobody watches the agents.",
            f"Targets in Prometheus: is the job {JOB} there, and does it have targets?",
            "Start a collector, or correct the scrape configuration.",
            COLLECTOR_UID, "Collectors up",
        ),
    ]  # fmt: skip


def _about_evaluation() -> list[Alert]:
    return [
        Alert(
            "GuardErrors", GUARD, WARNING,
            "instance_where:trajectory_guard_errors:count15m", 0, "0s",
            "The guard {{ $labels.instance }} contained {{ $value | printf \"%.0f\" }} errors in "
            f"{{{{ $labels.{ERROR_WHERE} }}}} within 15 minutes.",
            "Its log has the first error of each kind; a bug of the guard comes with a traceback.",
            "Telemetry goes on, untagged where scoring failed. `tls_reload`, `tokens_reload`: a changed file cannot be "
            "used, correct it. `evaluate.ids`, `parse.depth`: a sender's spans have no ids, or are nested too deeply. "
            "`export.reply`: a backend answers with something else than OTLP. `receiver.loop`: requests come back to "
            "this collector, correct the routing. `storage.deleted`: somebody deleted the files of the queue. "
            "`spending`: the ledger cannot be read. `state.trajectory`: state of an earlier version, once after an "
            "upgrade. Anything else is a bug: report it with the traceback.",
            COLLECTOR_UID, "Own errors by place", _INSTANCE,
        ),
        Alert(
            "GuardForgets", GUARD, WARNING,
            f"instance:trajectory_guard_evictions_full:count15m\n{_OF_A_COLLECTOR}", 0, "0s",
            "The collector {{ $labels.instance }} forgot {{ $value | printf \"%.0f\" }} trajectories in use within "
            "15 minutes, since it holds as many as it may: they had made a step less than trajectories.reorder_s ago.",
            "See 'Trajectories in memory', too.",
            "Raise guard.max_trajectories (16.5 kB of memory each, beside what trajectories.max_history_mib and "
            "max_traces_mib bound), or spread the load over more collectors by trace id. Those that are idle for "
            "longer count as full_idle, and need nothing.",
            COLLECTOR_UID, "Evictions", _INSTANCE,
        ),
        Alert(
            "GuardHearsLate", GUARD, WARNING,
            "instance:trajectory_guard_late_steps:ratio15m\nand\ninstance:trajectory_guard_late_steps:count15m >= 20\n"
            f"unless {_OF_A_WORKER}",
            0.05, "15m",
            "{{ $value | humanizePercentage }} of the steps reach the collector {{ $labels.instance }} too late to be "
            "put in order.",
            "too_late is the series that counts.",
            "Look for a sender with a large batch timeout or a long queue; or raise trajectories.reorder_steps and "
            "reorder_s.",
            COLLECTOR_UID, "Late and duplicate steps", _INSTANCE,
        ),
    ]  # fmt: skip


def _about_delivery() -> list[Alert]:
    output = f"{_INSTANCE}&var-exporter={{{{ $labels.exporter | urlquery }}}}"
    of = "Exporter {{ $labels.exporter }} of the collector {{ $labels.instance }}"
    given_up = (
        f'{of} gave up {{{{ $value | printf "%.0f" }}}} {{{{ $labels.signal }}}} within 15 minutes: the backend '
        "rejects them."
    )
    answer = "The collector's log has the backend's answer."
    return [
        Alert(
            "GuardLosesSome", GUARD, WARNING,
            "instance_exporter_signal:otelcol_exporter_send_failed:count15m", 0, "0s",
            given_up, answer, "400: one span is malformed, the others went through: find out who sends it. Anything "
            "else: see GuardLosesData, which follows if there are many.",
            COLLECTOR_UID, "Given up, and no room", output,
        ),
        Alert(
            "GuardLosesData", GUARD, CRITICAL,
            "instance_exporter_signal:otelcol_exporter_send_failed:count15m", 100, "0s",
            given_up, answer, "401 or 403: correct the credentials. 404: correct the endpoint. 400: a sender makes "
            "malformed data, or the backend does not know this signal.",
            COLLECTOR_UID, "Given up, and no room", output,
        ),
        Alert(
            "GuardQueueFilling", GUARD, WARNING,
            "instance_exporter:otelcol_exporter_queue:ratio", 0.7, "5m",
            f"The sending queue: {of} has {{{{ $value | humanizePercentage }}}} of it in use.",
            "'Time of an attempt' and 'Retries' say whether the backend is slow or down.",
            "See whether the backend is down or slow. If it is merely slow, raise sending_queue.num_consumers; if it "
            "stays down, senders are refused once the queue is full: raise queue.max_size_mib in time.",
            COLLECTOR_UID, "Queue in use", output,
        ),
        Alert(
            "GuardBackendFailing", GUARD, WARNING,
            "instance_exporter:trajectory_guard_exporter_retries:count15m", 10, "5m",
            f"{of} had to try again {{{{ $value | printf \"%.0f\" }}}} times within 15 minutes.",
            "The collector's log has the reason, once a minute.",
            "Look at the backend. Nothing is lost as long as the queue or the senders have room.",
            COLLECTOR_UID, "Retries", output,
        ),
        Alert(
            "GuardRefusesData", GUARD, WARNING,
            "instance:otelcol_receiver_refused_requests:ratio15m\nand\n"
            "instance:otelcol_receiver_refused_requests:count15m >= 20",
            0.05, "10m",
            "The collector {{ $labels.instance }} refuses {{ $value | humanizePercentage }} of the requests.",
            "'Refused and failed' says what; 'Queue in use', 'Memory' and 'Retries' say why.",
            "Senders try again, for as long as their own queue lasts. Give it a disk queue (queue.storage), more "
            "memory, or another instance.",
            COLLECTOR_UID, "Requests by answer", _INSTANCE,
        ),
        Alert(
            "GuardTurnsAway", GUARD, CRITICAL,
            "instance:otelcol_receiver_rejected_requests:ratio15m\nand\n"
            "instance:otelcol_receiver_rejected_requests:count15m >= 20",
            0.2, "10m",
            "The collector {{ $labels.instance }} turns {{ $value | humanizePercentage }} of the requests away for "
            "good: their senders drop what they have, and nobody watches their agents.",
            "It says with which answer. The senders' logs name the reason.",
            "401 or UNAUTHENTICATED: give the senders a token of receivers.otlp.auth, or the collector theirs. 413 "
            "or too_large_or_cut_off: let them send smaller batches, or raise the limits of size. 404: their URL has "
            "another path than /v1/traces; the collector's log names it. 400, 405, 415 or INVALID_ARGUMENT: what they "
            "send is not OTLP.",
            COLLECTOR_UID, "Requests by answer", _INSTANCE,
        ),
        Alert(
            "GuardScoresWaiting", GUARD, WARNING,
            "instance_exporter:trajectory_guard_scores_waiting:min15m\nunless\n"
            "instance_exporter:trajectory_guard_scores_sent:count15m > 0",
            0, "15m",
            f"{of} has {{{{ $value | printf \"%.0f\" }}}} Langfuse scores or more waiting for 15 minutes, and "
            "Langfuse took none.",
            "The collector's log has Langfuse's answer; the panel counts the attempts by status.",
            "401 or 403: check public_key and secret_key. 404: correct the endpoint. 5xx or no answer: look at "
            "Langfuse. Scores wait in memory or in queue.storage; once there are scores.max_waiting, the oldest are "
            "given up. Traces and tags do not depend on scores.",
            COLLECTOR_UID, "Langfuse scores", output,
        ),
        Alert(
            "GuardScoresFailing", GUARD, WARNING,
            "instance_exporter:trajectory_guard_scores_failed:count15m", 0, "0s",
            f"{of} gave up {{{{ $value | printf \"%.0f\" }}}} Langfuse scores within 15 minutes.",
            "The collector's log has Langfuse's answer.",
            "If too many waited, see GuardScoresWaiting; else Langfuse does not take these scores at all. Traces and "
            "tags do not depend on scores.",
            COLLECTOR_UID, "Langfuse scores", output,
        ),
    ]  # fmt: skip


def _about_workers() -> list[Alert]:
    worker = "The stream worker {{ $labels.instance }}"
    return [
        Alert(
            "GuardWorkersLag", GUARD, WARNING,
            "topic:trajectory_guard_fleet_lag_seconds:ratio\nand\n"
            "sum by (topic) (trajectory_guard_fleet_lag) >= 100",  # fewer are no lag, however slowly they are read
            60, "10m",
            "The stream workers are {{ $value | humanizeDuration }} behind with the topic of {{ $labels.topic }}.",
            "'Records read and written' says whether they work at all, 'Share of time in commits' whether they are "
            "full.",
            "Start more workers, up to the number of partitions; if there are as many, the load needs a group with "
            "more partitions. If nothing is read, see GuardWorkerNotReady and the workers' logs. With a lag of more "
            "than an hour, raise trajectories.reorder_s above it.",
            COLLECTOR_UID, "Lag",
        ),
        Alert(
            "GuardWorkerHearsLate", GUARD, WARNING,
            f"instance:trajectory_guard_late_steps:count15m\nand {_OF_A_WORKER}", 0, "0s",
            f"{worker} evaluated {{{{ $value | printf \"%.0f\" }}}} steps within 15 minutes in their order of "
            "arrival, since they came too late to be put in order.",
            "too_late is the series that counts.",
            "Verdicts on these steps may differ from those of one process. Find the lag, see GuardWorkersLag; raise "
            "trajectories.reorder_steps and reorder_s above what a conversation produces meanwhile.",
            COLLECTOR_UID, "Order and repeats at the workers", _WORKER,
        ),
        Alert(
            "GuardDeadLetters", GUARD, WARNING,
            "instance_topic:trajectory_guard_fleet_dead_letters:count15m", 0, "0s",
            f"{worker} could not process {{{{ $value | printf \"%.0f\" }}}} records of the topic of "
            "{{ $labels.topic }} within 15 minutes.",
            "The worker's log has the first of them; the topic of dead letters has all.",
            "Read the header trajectory_guard.reason of the dead letters. spans: most often the Kafka exporter lacks "
            "partition_traces_by_id. operations: finish the rolling update. Then write the dead letters to their "
            "topic again.",
            COLLECTOR_UID, "Dead letters by topic", _WORKER,
        ),
        Alert(
            "GuardWorkerNotReady", GUARD, CRITICAL,
            f"1 - {READY}", 0, "5m",
            f"{worker} lives, but does not process records.",
            "'Time restoring state' rises while it reads the changelogs; its log names brokers that do not answer.",
            "No broker: look at Kafka. A replay that never ends, in turns with others: workers come and go, so find "
            "out why they restart. State on a volume that is kept (state.dir) needs no replay.",
            COLLECTOR_UID, "Workers ready", _WORKER,
        ),
        Alert(
            "GuardWorkerBusy", GUARD, WARNING,
            "instance:trajectory_guard_fleet_commit_seconds:rate", 0.5, "10m",
            f"{worker} spends {{{{ $value | humanizePercentage }}}} of its time in commits.",
            "'Lag' says whether it keeps up; 'Order and repeats at the workers' whether late steps cause the work.",
            "Start more workers, up to the number of partitions.",
            COLLECTOR_UID, "Share of time in commits", _WORKER,
        ),
    ]  # fmt: skip
