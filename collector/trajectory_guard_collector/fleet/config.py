"""Configuration of the stream worker: frozen, validated models, read by the collector's own loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from trajectory_guard.config import GuardConfig
from trajectory_guard.config.values import OptionalPath, PathText
from trajectory_guard_collector.config.checks import (
    Mistake,
    exporter_mistakes,
    guard_mistakes,
    is_endpoint,
    ledger_mistakes,
    port_mistakes,
    refuse,
    token_mistakes,
    why_no_key,
)
from trajectory_guard_collector.config.directories import why_unusable
from trajectory_guard_collector.config.models import Auth, ClientTls, Exporter, LogLevel, Model, Retry, Trajectories
from trajectory_guard_collector.config.pem import why_unreadable
from trajectory_guard_collector.config.render import shared_tokens, unusable_tokens
from trajectory_guard_collector.config.tokens import HANDS, READERS
from trajectory_guard_collector.telemetry.line_writer import FLUSH_S, MAX_MIB

Endpoint = Annotated[str, AfterValidator(is_endpoint)]


class Security(Model):
    """How the brokers are trusted, and how the worker identifies itself."""

    protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    """Security protocol of the listener."""
    ca_file: OptionalPath = None
    """PEM file of trusted authorities; the system's by default."""
    cert_file: OptionalPath = None
    """PEM file with a client certificate (mTLS)."""
    key_file: OptionalPath = None
    """PEM file with its private key."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism; needed with a ``sasl_`` protocol."""
    username: str | None = None
    """SASL user."""
    password: SecretStr | None = None
    """SASL password."""

    @model_validator(mode="after")
    def _complete(self) -> Security:
        mistakes = []
        if self.protocol.startswith("sasl_"):
            for key in ("sasl_mechanism", "username", "password"):
                if getattr(self, key) is None:
                    mistakes.append(Mistake((key,), f"required with protocol {self.protocol}"))  # noqa: PERF401
        if (self.cert_file is None) != (self.key_file is None):
            missing, given = ("cert_file", "key_file") if self.cert_file is None else ("key_file", "cert_file")
            mistakes.append(Mistake((missing,), f"required with {given}"))
        refuse(mistakes)
        return self


class Kafka(Model):
    """The brokers, and membership of the consumer group."""

    brokers: tuple[str, ...] = ("localhost:9092",)
    """``host:port`` of some brokers."""
    security: Security = Security()
    """Encryption and authentication."""
    group: str = Field(default="trajectory-guard", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Consumer group. It is part of the names of the changelog topics: another group begins with empty state."""
    session_timeout_s: float = Field(default=20.0, ge=6.0, le=300.0)
    """Seconds after which the partitions of a worker that died go to the others; longer than a broker's restart."""
    unavailable_s: float = Field(default=120.0, ge=0.0)
    """Seconds without any broker after which the worker ends with status 1, to be started again; 0 is never."""
    stalled_s: float = Field(default=60.0, ge=0.0)
    """Seconds for which records wait in a partition of a worker that fetches none of them, after which it ends with
    status 1, to be started again; 0 is never."""

    @model_validator(mode="after")
    def _reachable(self) -> Kafka:
        if not self.brokers:
            refuse([Mistake(("brokers",), "at least one broker is needed")])
        return self


Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]


class Topics(Model):
    """Topics."""

    spans: Topic = "otlp_spans"
    """Spans as the Kafka exporter of the OpenTelemetry Collector writes them: ``otlp_proto``, partitioned by trace."""
    operations: Topic = "trajectory_guard_operations"
    """Between the two stages: has as many partitions as ``spans``."""
    verdicts: Topic = "trajectory_guard_verdicts"
    """Verdict records, keyed by trace."""
    guard_spans: Topic = "otlp_guard"
    """Guard spans as OTLP, keyed by trace, for a Kafka receiver."""
    flags: Topic = "trajectory_guard_flags"
    """The flag of each trajectory, keyed by trajectory; compacted."""
    scores: Topic = "trajectory_guard_scores"
    """Scores for Langfuse, keyed by trajectory."""
    dead_letters: Topic = "trajectory_guard_dead_letters"
    """Records that cannot be processed, with their position and the reason in headers."""
    partitions: int = Field(default=24, ge=1, le=10_000)
    """Partitions of topics that ``topics --create`` makes. The number bounds the workers, and stays."""
    replication_factor: int = Field(default=1, ge=1, le=32)
    """Replication of topics that ``topics --create`` makes; 3 in production."""
    operations_retention_s: float = Field(default=86_400.0, gt=0.0)
    """Seconds for which operations are kept: the longest time a worker may be down."""
    scores_retention_s: float = Field(default=604_800.0, gt=0.0)
    """Seconds for which scores are kept: the longest time Langfuse may be down."""

    @model_validator(mode="after")
    def _distinct(self) -> Topics:
        names = [
            self.spans, self.operations, self.verdicts, self.guard_spans, self.flags, self.scores, self.dead_letters,
        ]  # fmt: skip
        refuse(
            [Mistake((), f"topic {name!r} has two roles") for name in sorted({n for n in names if names.count(n) > 1})]
        )
        return self


class Processing(Model):
    """Commits."""

    guarantee: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """With ``exactly-once``, readers with ``isolation.level=read_committed`` see no record of a commit that failed."""
    commit_interval_s: float = Field(default=1.0, ge=0.05, le=60.0)
    """Seconds between commits. Steps are evaluated at each commit, so this is also the delay of a verdict."""
    transaction_timeout_s: float = Field(default=10.0, ge=1.0, le=900.0)
    """With ``exactly-once``: seconds for which a worker that died can hold up ``read_committed`` readers."""

    shutdown_timeout_s: float = Field(default=25.0, ge=1.0, le=3_600.0)
    """Seconds after SIGTERM for which the last commit waits for brokers that do not answer; then status 1."""

    @model_validator(mode="after")
    def _in_time(self) -> Processing:
        if self.guarantee == "exactly-once" and self.transaction_timeout_s < 2 * self.commit_interval_s:
            message = f"must be at least twice commit_interval_s ({self.commit_interval_s})"
            refuse([Mistake(("transaction_timeout_s",), message, self.transaction_timeout_s)])
        return self


class StateStore(Model):
    """State of traces and trajectories."""

    dir: PathText = Field(default="trajectory-guard-state", min_length=1)
    """Directory of this worker's copy; never shared. If it is lost, it is restored from the changelog topics."""
    ttl_s: float = Field(default=86_400.0, ge=60.0)
    """Seconds of record time for which a trace or a trajectory is kept after its last record."""
    cache_mib: float = Field(default=64.0, ge=1.0)
    """Memory for blocks of the store."""
    write_buffer_mib: float = Field(default=4.0, ge=0.5)
    """Memory in which a partition of a stage gathers writes before they become a file; up to twice that is in use."""
    live_traces_mib: float = Field(default=128.0, ge=1.0)
    """Memory for live traces; further ones are read again from the store."""
    live_trajectories_mib: float = Field(default=256.0, ge=1.0)
    """Memory for live trajectories; further ones are read again from the store."""


class OrderWindow(Model):
    """Steps that can still be put in order."""

    reorder_steps: int = Field(default=256, ge=8, le=65_536)
    """Steps of a trajectory that can still be put in order when older ones arrive late."""
    reorder_s: float = Field(default=3_600.0, gt=0.0)
    """Seconds by which a step may be older than the newest one of its trajectory and is still put in order."""
    max_spans_per_trace: int = Field(default=1_024, ge=1)
    """Spans of a trace remembered as possible ancestors."""
    max_early_spans: int = Field(default=20_000, ge=1)
    """Spans in records before the first agent span of their trace that a worker remembers as possible ancestors."""
    separate_by: tuple[str, ...] = ("service.namespace", "deployment.environment.name")
    """Resource attributes that keep equal conversation ids apart; add ``service.name`` if services count their own."""

    def limits(self, live_traces_mib: float) -> Trajectories:
        """The limits in the form that scoring takes."""
        window = self.model_dump(exclude={"max_early_spans"})
        return Trajectories(**window, max_traces=self.max_early_spans, max_traces_mib=live_traces_mib)


class Flags(Model):
    """``/v1/flags/{trajectory}``, as on the collector, in each worker and in ``trajectory-guard-fleet flags``."""

    endpoint: Endpoint | None = "localhost:8890"
    """``host:port`` of ``/v1/flags``; null switches it off, and the worker reads no flags."""
    readers: Auth = Auth()
    """Tokens of the gates that read flags; without tokens everybody may."""
    auth: Auth = Auth()
    """Tokens of the people who may raise and clear flags by hand; without tokens flags are read-only."""
    max_trajectories: int = Field(default=100_000, ge=1)
    """Trajectories of the whole group whose flags are held in memory; the oldest are evicted (and counted)."""
    max_names: int = Field(default=64, ge=2)
    """Names of a trajectory by which its flag is found (traces, threads, sessions); the oldest are forgotten (and
    counted)."""


class Langfuse(Model):
    """Scores for Langfuse: workers write them to a topic, ``trajectory-guard-fleet scores`` sends them."""

    enabled: bool = False
    """Whether workers write scores."""
    endpoint: str | None = None
    """Base URL, https://cloud.langfuse.com by default."""
    public_key: SecretStr | None = None
    """Public key of the project; for ``scores`` only."""
    secret_key: SecretStr | None = None
    """Its secret key; for ``scores`` only."""
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Sent with every request."""
    timeout_s: float = Field(default=5.0, gt=0.0)
    """Seconds for one attempt."""
    tls: ClientTls = ClientTls()
    """TLS files and trust."""
    retry_on_failure: Retry = Retry()
    """Retries, without an end."""
    batches_per_minute: float = Field(default=30.0, gt=0.0, le=6000.0)
    """Batches of up to 15 scores; 30 is what the smallest plan of Langfuse Cloud allows."""
    max_episodes: int = Field(default=16, ge=1)
    """Loops of a trajectory remembered, so that nothing is written twice."""


class Telemetry(Model):
    """The worker's own telemetry."""

    endpoint: Endpoint | None = "localhost:8889"
    """``host:port`` of ``/metrics``, ``/healthz`` and ``/readyz``; null switches it off."""
    log_level: LogLevel = "info"
    """Level of the JSON log lines on standard error."""
    max_unwritten_mib: float = Field(default=MAX_MIB, gt=0.0)
    """Log lines that may wait for the reader of standard error; further ones are dropped and counted."""
    flush_timeout_s: float = Field(default=FLUSH_S, ge=0.0)
    """Seconds for which the end of the process waits until its last lines are written."""
    max_label_values: int = Field(default=200, ge=1)
    """Distinct services, agents and tools in metrics; further ones count as ``other``."""


class FleetConfig(Model):
    """The whole configuration."""

    kafka: Kafka = Kafka()
    """Brokers and group."""
    topics: Topics = Topics()
    """Topics."""
    processing: Processing = Processing()
    """Commits."""
    state: StateStore = StateStore()
    """State of traces and trajectories."""
    trajectories: OrderWindow = OrderWindow()
    """Order window."""
    guard: GuardConfig = Field(default_factory=GuardConfig)
    """Detection, as in process and in the collector."""
    flags: Flags = Flags()
    """Flags for gates."""
    langfuse: Langfuse = Langfuse()
    """Scores."""
    telemetry: Telemetry = Telemetry()
    """Own telemetry."""

    @model_validator(mode="after")
    def _consistent(self) -> FleetConfig:
        endpoints = {"flags.endpoint": self.flags.endpoint, "telemetry.endpoint": self.telemetry.endpoint}
        listening = {key: endpoint for key, endpoint in endpoints.items() if endpoint is not None}
        refuse([
            *port_mistakes(listening), *_langfuse_mistakes(self.langfuse), *_window_mistakes(self),
            *guard_mistakes(self.guard, "a stream worker"), *ledger_mistakes(self.guard),
            *token_mistakes(self.flags.readers, self.flags.auth, READERS),
        ])  # fmt: skip
        return self


def _window_mistakes(config: FleetConfig) -> Iterator[Mistake]:
    """Steps that would be kept longer than their state."""
    window, kept = config.trajectories.reorder_s, config.state.ttl_s
    if "reorder_s" in config.trajectories.model_fields_set and window > kept:
        message = f"must not exceed state.ttl_s ({kept}), after which the trajectory is forgotten"
        yield Mistake(("trajectories", "reorder_s"), message, window)


def _langfuse_mistakes(langfuse: Langfuse) -> Iterator[Mistake]:
    """Mistakes as in an exporter of the collector, except for the keys, which ``scores`` alone needs."""
    key = SecretStr("-")
    exporter = Exporter(
        endpoint=langfuse.endpoint, headers=langfuse.headers, tls=langfuse.tls, public_key=key, secret_key=key
    )
    yield from exporter_mistakes("langfuse", exporter)
    for name in ("public_key", "secret_key"):
        given = getattr(langfuse, name)
        if given is not None and (reason := why_no_key(given)) is not None:
            yield Mistake(("langfuse", name), reason)
    of_no_effect = {
        ("tls", "insecure"): langfuse.tls.insecure,
        ("tls", "server_name_override"): langfuse.tls.server_name_override,
        ("retry_on_failure", "max_elapsed_time_s"): langfuse.retry_on_failure.max_elapsed_time_s,
    }
    for place, value in of_no_effect.items():
        if value:
            yield Mistake(("langfuse", *place), "has no effect here")


def unusable_files(config: FleetConfig) -> list[str]:
    """Files that the configuration names and that cannot be read: one line each, with key and file."""
    named: dict[str, str | None] = {}
    for section, model in (("kafka.security", config.kafka.security), ("langfuse.tls", config.langfuse.tls)):
        named |= {f"{section}.{key}": getattr(model, key) for key in ("ca_file", "cert_file", "key_file")}
    reasons = {key: why_unreadable(file) for key, file in named.items() if file is not None}
    found = [f"{key}: {named[key]}: {reason}" for key, reason in reasons.items() if reason is not None]
    tokens = ((config.flags.readers, READERS), (config.flags.auth, HANDS))
    unusable = [line for auth, path in tokens for line in unusable_tokens(auth, path)]
    return [*found, *unusable, *shared_tokens(config.flags.readers, config.flags.auth, READERS)]


def state_mistakes(config: FleetConfig) -> list[str]:
    """The reason why the directory of state cannot be used, if it cannot. Leaves nothing behind."""
    reason = why_unusable(Path(config.state.dir))
    return [f"state.dir: {config.state.dir}: {reason}"] if reason is not None else []


def missing_for_scores(config: FleetConfig) -> list[str]:
    """Keys without which no score can be sent: one line each."""
    keys = ("public_key", "secret_key")
    return [f"langfuse.{key}: required to send scores" for key in keys if getattr(config.langfuse, key) is None]
