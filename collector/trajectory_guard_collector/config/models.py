"""Configuration of the collector: frozen, validated models. Module ``load`` reads them from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from trajectory_guard.config import GuardConfig
from trajectory_guard.config.part import Numbers
from trajectory_guard.config.values import OptionalPath, PathText
from trajectory_guard_collector.config.checks import (
    Mistake,
    checked_exporters,
    flag_mistakes,
    guard_mistakes,
    is_endpoint,
    is_token,
    listening,
    memory_mistakes,
    port_mistakes,
    queue_mistakes,
    refuse,
    token_mistakes,
)
from trajectory_guard_collector.config.self_reference import self_references
from trajectory_guard_collector.config.tokens import SENDERS
from trajectory_guard_collector.otlp.bounds import MAX_ELEMENTS, MAX_FIELDS
from trajectory_guard_collector.otlp.signals import Signal
from trajectory_guard_collector.telemetry.line_writer import FLUSH_S, MAX_MIB

Endpoint = Annotated[str, AfterValidator(is_endpoint)]
Token = Annotated[SecretStr, AfterValidator(is_token)]
LogLevel = Literal["debug", "info", "warning", "error"]
_LARGEST: Final = 2**31 - 1
"""The upper bound of every number: timers, sizes in bytes and the options of gRPC take none that is much larger."""
_SHORTEST_S: Final = 0.01
"""The shortest interval at which the collector does something: a shorter one would take a whole core."""


class Model(Numbers):
    """Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _no_number_out_of_range(cls, value: Any) -> Any:
        if isinstance(value, (int, float)) and value > _LARGEST:
            raise ValueError(f"expected at most {_LARGEST}")
        return value


class ServerTls(Model):
    """Certificates of a receiver. Files are read again when they change."""

    cert_file: PathText
    """PEM file with the certificate and its chain."""
    key_file: PathText
    """PEM file with the private key."""
    client_ca_file: OptionalPath = None
    """PEM file of the authorities that sign client certificates; with it every client must present one (mTLS)."""
    reload_interval_s: float = Field(default=10.0, gt=0.0)
    """Seconds between checks of the files."""


class ClientTls(Model):
    """How an exporter trusts a backend."""

    insecure: bool = False
    """OTLP/gRPC without TLS, for an endpoint without http(s)://: otherwise the scheme decides."""
    ca_file: OptionalPath = None
    """PEM file of trusted authorities; the system's by default."""
    cert_file: OptionalPath = None
    """PEM file with a client certificate (mTLS)."""
    key_file: OptionalPath = None
    """PEM file with its private key."""
    server_name_override: str | None = None
    """Name to check the certificate against, gRPC only."""

    @model_validator(mode="after")
    def _pair(self) -> ClientTls:
        pair = {"cert_file": self.cert_file, "key_file": self.key_file}
        if None in pair.values() and any(pair.values()):
            missing, given = sorted(pair, key=lambda key: pair[key] is not None)
            refuse([Mistake((missing,), f"required with {given}")])
        return self


class Keepalive(Model):
    """Connection management of the gRPC receiver."""

    max_connection_idle_s: float = Field(default=300.0, gt=0.0)
    """Seconds after which a connection without requests is closed."""
    max_connection_age_s: float | None = Field(default=None, gt=0.0)
    """Seconds after which a connection is closed gently, so that load balancers can move it; never by default."""
    time_s: float = Field(default=7200.0, gt=0.0)
    """Idle seconds before the server pings a client."""
    timeout_s: float = Field(default=20.0, gt=0.0)
    """Seconds to wait for the answer."""


class GrpcReceiver(Model):
    """OTLP/gRPC."""

    endpoint: Endpoint = "localhost:4317"
    """``host:port``."""
    max_recv_msg_size_mib: float = Field(default=64.0, gt=0.0, le=1024.0)
    """Largest message after decompression. Senders do not retry larger ones in parts: keep it above their batches."""
    max_elements: int = Field(default=MAX_ELEMENTS, ge=1)
    """Resources, scopes, and spans, data points or log records of a request; larger requests are refused."""
    max_fields: int = Field(default=MAX_FIELDS, ge=MAX_FIELDS)
    """Fields of a span, a resource or a scope, nested ones included; requests with a larger one are refused."""
    max_concurrent_requests: int = Field(default=256, ge=1)
    """Concurrent requests; further ones are refused, retryable."""
    max_connections: int = Field(default=1024, ge=1)
    """Open connections; further ones are closed."""
    read_timeout_s: float = Field(default=30.0, gt=0.0)
    """Seconds a client has to send a whole request, and for the handshake of a connection."""
    keepalive: Keepalive = Keepalive()
    """Connection management."""
    tls: ServerTls | None = None
    """Certificates; plain text without."""


class Cors(Model):
    """Web pages that may send."""

    allowed_origins: tuple[str, ...] = ()
    """Origins, ``*`` for any; none by default."""
    allowed_headers: tuple[str, ...] = ()
    """Further request headers; ``content-type`` is always allowed."""
    max_age_s: int = Field(default=7200, ge=0)
    """Seconds a browser may remember the answer."""


class HttpReceiver(Model):
    """OTLP/HTTP, protobuf and JSON."""

    endpoint: Endpoint = "localhost:4318"
    """``host:port``."""
    max_request_body_size_mib: float = Field(default=64.0, gt=0.0, le=1024.0)
    """Largest body after decompression."""
    max_elements: int = Field(default=MAX_ELEMENTS, ge=1)
    """Resources, scopes, and spans, data points or log records of a request; larger requests are refused."""
    max_fields: int = Field(default=MAX_FIELDS, ge=MAX_FIELDS)
    """Fields of a span, a resource or a scope, nested ones included; requests with a larger one are refused."""
    max_connections: int = Field(default=1024, ge=1)
    """Open connections; further ones are closed."""
    read_timeout_s: float = Field(default=30.0, gt=0.0)
    """Seconds a client has to send a whole request."""
    idle_timeout_s: float = Field(default=60.0, gt=0.0)
    """Seconds an idle connection is kept."""
    cors: Cors = Cors()
    """Web pages that may send."""
    tls: ServerTls | None = None
    """Certificates; plain text without."""


class Auth(Model):
    """Authentication of senders and readers of flags; without tokens all are accepted."""

    bearer_tokens: tuple[Token, ...] | None = None
    """Accepted tokens."""
    bearer_tokens_file: OptionalPath = None
    """File with one accepted token a line, read again when it changes."""

    @field_validator("bearer_tokens", "bearer_tokens_file")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if value is not None and not (value.strip() if isinstance(value, str) else value):
            raise ValueError("empty, which would accept any client: leave the key out, or write null, if that is meant")
        return value

    @property
    def fixed(self) -> tuple[str, ...]:
        """The tokens of the configuration itself."""
        return tuple(token.get_secret_value() for token in self.bearer_tokens or ())

    @property
    def required(self) -> bool:
        """Whether a token is required."""
        return bool(self.bearer_tokens) or self.bearer_tokens_file is not None


class Protocols(Model):
    """Receivers; a protocol whose key is absent is off."""

    grpc: GrpcReceiver | None = None
    """OTLP/gRPC."""
    http: HttpReceiver | None = None
    """OTLP/HTTP."""

    @model_validator(mode="after")
    def _one_at_least(self) -> Protocols:
        if self.grpc is None and self.http is None:
            refuse([Mistake((), "at least one of grpc and http is needed")])
        return self


class OtlpReceiver(Model):
    """The OTLP receiver."""

    protocols: Protocols = Protocols(grpc=GrpcReceiver(), http=HttpReceiver())
    """gRPC and HTTP on localhost by default."""
    auth: Auth = Auth()
    """Authentication of senders."""


class Receivers(Model):
    """Receivers."""

    otlp: OtlpReceiver = OtlpReceiver()
    """The OTLP receiver."""


class Retry(Model):
    """Retries after a temporary failure of a backend."""

    initial_interval_s: float = Field(default=1.0, gt=0.0)
    """First pause."""
    multiplier: float = Field(default=1.5, ge=1.0)
    """Growth of the pause."""
    max_interval_s: float = Field(default=30.0, gt=0.0)
    """Longest pause."""
    randomization_factor: float = Field(default=0.5, ge=0.0, lt=1.0)
    """Share by which each pause is varied."""
    max_retry_after_s: float = Field(default=300.0, gt=0.0)
    """Longest pause in seconds that a backend's Retry-After can ask for, of this collector and, without a queue, of the
    sender. Clocks and proxies are wrong at times."""
    max_elapsed_time_s: float = Field(default=0.0, ge=0.0)
    """Seconds after which a queued batch is given up (and counted); 0 is never. Without a queue the sender retries."""

    @model_validator(mode="after")
    def _growing(self) -> Retry:
        if self.max_interval_s < self.initial_interval_s:
            message = f"must not be below initial_interval_s ({self.initial_interval_s})"
            refuse([Mistake(("max_interval_s",), message, self.max_interval_s)])
        return self


class SendingQueue(Model):
    """Queue of one exporter."""

    num_consumers: int = Field(default=4, ge=1, le=64)
    """Requests to the backend at a time."""
    max_batch_mib: float = Field(default=4.0, gt=0.0)
    """Waiting requests are sent together up to this size (storage only)."""
    queue_size: int = Field(default=1000, ge=1)
    """Requests that may wait in memory for this backend (no storage); further ones are refused, retryable."""


class Scores(Model):
    """Scores that the langfuse exporter writes beside the traces. They need the extra ``langfuse``."""

    enabled: bool = True
    """Whether scores are written."""
    max_waiting: int = Field(default=1000, ge=1)
    """Scores that may wait; beyond this the oldest are dropped and counted as failed."""
    batches_per_minute: float = Field(default=30.0, gt=0.0, le=6000.0)
    """Batches of up to 15 scores; 30 is what the smallest plan of Langfuse Cloud allows."""
    max_episodes: int = Field(default=10_000, ge=1)
    """Loops remembered, so that nothing is written twice."""


class Exporter(Model):
    """One backend. Its type is the part of its name before the slash: otlp (or otlp_grpc), otlphttp (or otlp_http),
    langfuse, debug.
    """

    endpoint: str | None = None
    """otlp: ``host:port`` or URL; otlphttp: base URL; langfuse: base URL, https://cloud.langfuse.com by default."""
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Sent with every request."""
    compression: Literal["gzip", "none"] = "gzip"
    """Compression of requests."""
    timeout_s: float = Field(default=5.0, gt=0.0)
    """Seconds for one attempt."""
    tls: ClientTls = ClientTls()
    """TLS files and trust."""
    retry_on_failure: Retry = Retry()
    """Retries."""
    sending_queue: SendingQueue = SendingQueue()
    """Concurrency and batching."""
    signals: tuple[Signal, ...] = (Signal.TRACES, Signal.METRICS, Signal.LOGS)
    """Signals that are sent there; langfuse accepts traces only."""
    public_key: SecretStr | None = None
    """langfuse: public key of the project."""
    secret_key: SecretStr | None = None
    """langfuse: its secret key."""
    scores: Scores = Scores()
    """langfuse: scores beside the traces."""
    verbosity: Literal["verdicts", "batches"] = "verdicts"
    """debug: print verdicts only, or a line per batch too."""


class Queue(Model):
    """Storage of batches that wait for backends."""

    storage: OptionalPath = None
    """Directory. With it batches are acknowledged once they are on disk, and trajectories survive a restart.
    Without it they are acknowledged once every backend has them."""
    max_size_mib: float = Field(default=1024.0, gt=0.0)
    """Largest size on disk; when it is reached, senders are asked to wait."""
    fsync: bool = True
    """Survive a power failure too, not only a killed process."""
    drop_unrouted: tuple[str, ...] = ()
    """Exporters whose waiting batches are dropped at the start where the exporter, or its signal, is not configured any
    more. Those of others stay until it is again."""
    deadline_s: float = Field(default=8.0, gt=0.0)
    """Without storage: seconds within which backends must have a batch; afterwards the sender is asked to retry."""


class MemoryLimiter(Model):
    """Refuse data before memory runs out."""

    check_interval_s: float = Field(default=1.0, ge=_SHORTEST_S)
    """Seconds between checks of the resident memory."""
    limit_mib: float = Field(default=0.0, ge=0.0)
    """Hard limit; 0 takes ``limit_percentage``."""
    limit_percentage: float = Field(default=75.0, gt=0.0, le=100.0)
    """Hard limit as a share of the machine's (or the cgroup's) memory."""
    spike_limit_mib: float = Field(default=0.0, ge=0.0)
    """Distance of the soft limit, from which on data is refused; 0 is 20 % of the hard limit."""

    @model_validator(mode="after")
    def _soft_below_hard(self) -> MemoryLimiter:
        if 0 < self.limit_mib <= self.spike_limit_mib:
            message = f"must be below limit_mib ({self.limit_mib}): the soft limit is their difference"
            refuse([Mistake(("spike_limit_mib",), message, self.spike_limit_mib)])
        return self


class Trajectories(Model):
    """Memory of trajectories beyond the ``guard`` section."""

    reorder_steps: int = Field(default=256, ge=8, le=65_536)
    """Steps of a trajectory that can still be put in order when older ones arrive late."""
    reorder_s: float = Field(default=300.0, ge=_SHORTEST_S)
    """Idle seconds after which that memory is freed; later steps are evaluated in order of arrival."""
    reorder_wait_s: float = Field(default=5.0, ge=0.0)
    """Longest time in seconds for which a step waits for earlier ones, if a service's spans arrive out of order."""
    evaluate_s: float = Field(default=2.0, gt=0.0)
    """Seconds for which a request waits for the evaluation of its steps. It is forwarded then, and the verdicts on the
    other steps follow on guard spans."""
    max_history_mib: float = Field(default=256.0, gt=0.0)
    """Bound of that memory over all trajectories; the longest idle are compacted first."""
    max_seen_spans: int = Field(default=65_536, ge=1_024)
    """Spans of a trajectory, beyond those, that are recognised if they are delivered again; 8 bytes each. 1,024 of them
    are saved."""
    max_traces: int = Field(default=20_000, ge=1)
    """Traces remembered for identity, and spans remembered that arrive before the first agent span of their trace."""
    max_spans_per_trace: int = Field(default=1_024, ge=1)
    """Spans of a trace remembered as possible ancestors."""
    max_traces_mib: float = Field(default=128.0, gt=0.0)
    """Bound of the memory of traces; the least recently used are evicted first."""
    max_flagged: int = Field(default=100_000, ge=0)
    """Flagged trajectories remembered after their state was evicted."""
    separate_by: tuple[str, ...] = ("service.namespace", "deployment.environment.name")
    """Resource attributes that keep equal conversation ids apart; add ``service.name`` if services count their own."""
    snapshot_interval_s: float = Field(default=10.0, ge=_SHORTEST_S)
    """With storage: seconds between writes of changed trajectories."""


class Flags(Model):
    """``/v1/flags/{trajectory}`` on ``telemetry.endpoint``: to be read with the tokens of ``receivers.otlp.auth``."""

    enabled: bool = True
    """Whether it is served."""
    auth: Auth = Auth()
    """Tokens of the people who may raise and clear flags by hand; without tokens flags are read-only."""


class Telemetry(Model):
    """The collector's own telemetry, and the port that serves it."""

    endpoint: Endpoint | None = "localhost:8888"
    """``host:port`` of ``/metrics``, ``/healthz``, ``/readyz``, ``/debug/trajectories`` and flags; null switches it
    off."""
    tls: ServerTls | None = None
    """Certificates of that port; plain text without."""
    open_page: bool = False
    """Show ``/debug/trajectories`` to every client. Otherwise it needs a token of ``receivers.otlp.auth`` or
    ``flags.auth``; where neither has tokens, only clients on this machine, or with a client certificate, see it."""
    log_level: LogLevel = "info"
    """Level of the JSON log lines on standard error."""
    max_unwritten_mib: float = Field(default=MAX_MIB, gt=0.0)
    """Log lines that may wait for the reader of standard error, and as many lines of the debug exporter for that of
    standard output; further ones are dropped and counted."""
    flush_timeout_s: float = Field(default=FLUSH_S, ge=0.0)
    """Seconds for which the end of the process waits until its last lines are written."""
    max_label_values: int = Field(default=200, ge=1)
    """Distinct services, agents and tools in metrics; further ones count as ``other``."""


class CollectorConfig(Model):
    """The whole configuration. Defaults: localhost, debug exporter."""

    receivers: Receivers = Receivers()
    """Receivers."""
    guard: GuardConfig = Field(default_factory=GuardConfig)
    """Detection, as in process: see ``processor/README.md``. ``mode`` holds for flags; keys of gates, models and scores
    have no effect here and are errors."""
    trajectories: Trajectories = Trajectories()
    """Memory of trajectories."""
    exporters: Mapping[str, Exporter] = Field(default_factory=lambda: {"debug": Exporter()})
    """Backends by name, ``type`` or ``type/name``."""
    queue: Queue = Queue()
    """Storage of waiting batches."""
    memory_limiter: MemoryLimiter = MemoryLimiter()
    """Refuse data before memory runs out."""
    flags: Flags = Flags()
    """Flags for other processes."""
    telemetry: Telemetry = Telemetry()
    """Own telemetry."""
    shutdown_timeout_s: float = Field(default=25.0, gt=0.0)
    """Seconds a graceful stop may take."""

    @field_validator("exporters", mode="wrap")
    @classmethod
    def _usable(cls, values: Any, validate: ValidatorFunctionWrapHandler) -> Mapping[str, Exporter]:
        exporters: Mapping[str, Exporter] = checked_exporters(values, validate)
        return {name: _with_own_signals(name, exporter) for name, exporter in exporters.items()}

    @model_validator(mode="after")
    def _consistent(self) -> CollectorConfig:
        mistakes = [
            *port_mistakes(listening(self)),
            *flag_mistakes(self),
            *queue_mistakes(self.queue),
            *guard_mistakes(self.guard),
            *token_mistakes(self.receivers.otlp.auth, self.flags.auth, SENDERS),
            *self_references(self),
        ]
        refuse([*mistakes, *memory_mistakes(self)])
        return self


def _with_own_signals(name: str, exporter: Exporter) -> Exporter:
    if name.split("/")[0] != "langfuse" or "signals" in exporter.model_fields_set:
        return exporter
    return exporter.model_copy(update={"signals": (Signal.TRACES,)})
