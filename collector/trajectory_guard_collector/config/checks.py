"""Checks of a configuration beyond types and ranges. Each check reports all mistakes it finds, by place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, SecretStr, ValidationError, ValidatorFunctionWrapHandler
from pydantic_core import InitErrorDetails, PydanticCustomError

from trajectory_guard.config import SECTIONS, GuardConfig
from trajectory_guard.config.messages import sentence
from trajectory_guard.config.values import BAD_HEADER_VALUE, can_be_sent
from trajectory_guard.core.text import nearest
from trajectory_guard.hidden import HIDDEN as REDACTED
from trajectory_guard_collector.config.headers import header_mistakes
from trajectory_guard_collector.config.langfuse import LANGFUSE_PATHS
from trajectory_guard_collector.config.tokens import NO_TOKEN, may_be_token
from trajectory_guard_collector.otlp.signals import Signal

if TYPE_CHECKING:
    from trajectory_guard_collector.config.models import Auth, CollectorConfig, Exporter, Queue

EXPORTER_TYPES: Final = ("otlp", "otlphttp", "langfuse", "debug")
_OTHER_NAMES: Final[Mapping[str, str]] = {"otlp_grpc": "otlp", "otlp_http": "otlphttp"}
"""Types by the names that the OpenTelemetry Collector gives them since 0.144, where the others are deprecated."""
UNKNOWN_KEY: Final = "extra_forbidden"
_BAD_VALUE: Final = "bad_value"
_LANGFUSE_KEYS: Final = ("public_key", "secret_key")
_LANGFUSE: Final = (*_LANGFUSE_KEYS, "scores")
_NOT_FOR: Final[Mapping[str, tuple[str, ...]]] = {
    "otlp": (*_LANGFUSE, "verbosity"),
    "otlphttp": (*_LANGFUSE, "verbosity"),
    "langfuse": ("verbosity",),
    "debug": (*_LANGFUSE, "endpoint", "headers", "compression", "tls"),
}
NOT_IN_THE_COLLECTOR: Final = (
    *SECTIONS["model"], *SECTIONS["collector"], *SECTIONS["langfuse"], *SECTIONS["quality"], *SECTIONS["record"],
    "nudge_text", "stop_text", "on_intervention", "max_open_spans", "open_span_ttl_s",
)  # fmt: skip
_FOR_TLS: Final = ("ca_file", "cert_file", "key_file", "server_name_override")
_GRPC_TARGET: Final = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract):.+")
_UNRESOLVED: Final = "a host cannot begin with $; a variable is written ${env:NAME}"
_ANY_HOST: Final = ("", "0.0.0.0", "::")


class Mistake(NamedTuple):
    """One mistake: keys from the checked model, the sentence, the value (None: not shown)."""

    place: tuple[str | int, ...]
    message: str
    value: Any = None
    kind: str = _BAD_VALUE


def refuse(mistakes: Sequence[Mistake]) -> None:
    """Raise one ``ValidationError`` that reports all mistakes; do nothing without mistakes."""
    if mistakes:
        raise ValidationError.from_exception_data(
            "configuration",
            [
                InitErrorDetails(
                    type=PydanticCustomError(one.kind, "{reason}", {"reason": one.message}),
                    loc=one.place,
                    input=one.value,
                )
                for one in mistakes
            ],
        )


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``[::1]:port`` or ``:port`` (all interfaces).

    >>> parse_endpoint("localhost:4317"), parse_endpoint("[::1]:0")
    (('localhost', 4317), ('::1', 0))

    Raises:
        ValueError: anything else.
    """
    host, colon, port = endpoint.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535 or (":" in host and not bracketed):
        raise ValueError("expected host:port with a port from 0 to 65535")
    return host.strip("[]"), int(port)


def is_endpoint(endpoint: str) -> str:
    """``endpoint`` if it is one; for validators."""
    host, _ = parse_endpoint(endpoint)
    if host.startswith("$"):
        raise ValueError(_UNRESOLVED)
    return endpoint


def is_token(token: SecretStr) -> SecretStr:
    """``token`` if it can be sent; for validators."""
    if not may_be_token(token.get_secret_value()):
        raise ValueError(NO_TOKEN)
    return token


def checked_exporters(values: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate exporters one by one, so that the mistakes of one do not hide those of another."""
    if not isinstance(values, Mapping):
        return validate(values)
    exporters: dict[str, Exporter] = {}
    mistakes = [] if values else [Mistake((), "at least one exporter is needed, such as 'debug'")]
    for name, value in values.items():
        mistakes += _check_one(name, value, validate, exporters)
    refuse(mistakes)
    return exporters


def _check_one(
    name: str, value: Any, validate: ValidatorFunctionWrapHandler, exporters: dict[str, Exporter]
) -> list[Mistake]:
    try:
        exporters |= validate({name: value})
    except ValidationError as error:
        return list(map(_mistake, error.errors(include_url=False)))
    return list(exporter_mistakes(name, exporters[name]))


def _mistake(error: Any) -> Mistake:
    return Mistake(error["loc"], sentence(error), error["input"], error["type"])


def _changed(section: BaseModel, keys: Sequence[str]) -> list[str]:
    """Those of ``keys`` that have another value than their default."""
    defaults = type(section).model_construct()
    return [key for key in keys if getattr(section, key) != getattr(defaults, key)]


def exporter_type(name: str) -> str:
    """The type of an exporter with this name, one of ``EXPORTER_TYPES`` if it is known.

    >>> exporter_type("otlp/tempo"), exporter_type("otlp_grpc"), exporter_type("otlp_http/langfuse")
    ('otlp', 'otlp', 'otlphttp')
    """
    kind = name.partition("/")[0]
    return _OTHER_NAMES.get(kind, kind)


def exporter_mistakes(name: str, exporter: Exporter) -> Iterator[Mistake]:
    """Mistakes in an exporter with this name; their places begin with the name."""
    kind = exporter_type(name)
    if kind not in EXPORTER_TYPES:
        known = (*EXPORTER_TYPES, *_OTHER_NAMES)
        yield Mistake((name,), f"unknown exporter type {kind!r}{nearest(kind, known)}; known: {', '.join(known)}")
        return
    for key in _changed(exporter, _NOT_FOR[kind]):
        yield Mistake((name, key), f"not a key of the {kind} exporter")
    if kind != "debug":
        yield from _endpoint_mistakes(name, kind, exporter.endpoint)
        yield from _tls_mistakes(name, kind, exporter)
    for header, reason in header_mistakes(kind, exporter.headers):
        yield Mistake((name, "headers", header), reason)
    if not exporter.signals:
        yield Mistake((name, "signals"), "at least one signal is needed")
    if kind == "langfuse":
        yield from _langfuse_mistakes(name, exporter)


def _endpoint_mistakes(name: str, kind: str, endpoint: str | None) -> Iterator[Mistake]:
    place = (name, "endpoint")
    if kind == "langfuse" and endpoint is None:
        return
    form = "host:port or an http(s) URL" if kind == "otlp" else "an http(s) URL"
    if not endpoint:
        yield Mistake(place, f"required: {form}")
        return
    usable = _is_url(endpoint) or (kind == "otlp" and _is_grpc_target(endpoint))
    reason = _why_not_as_url(kind, endpoint) if usable else f"expected {form}"
    if _has_port_0(endpoint):
        reason = "no backend listens on port 0"
    if _is_unresolved(endpoint):
        reason = _UNRESOLVED
    if reason is not None:
        yield Mistake(place, reason, without_secrets(endpoint))


def _has_port_0(endpoint: str) -> bool:
    if _is_url(endpoint):
        return urlsplit(endpoint).port == 0
    scheme, _, targets = endpoint.partition(":")
    ends = {"dns": "", "ipv4": "", "ipv6": "]"}  # of a host: without brackets, an address of IPv6 has no port
    parts = (target.rpartition(":") for target in targets.split(",") if scheme in ends)
    return any(colon and port and not port.strip("0") and host.endswith(ends[scheme]) for host, colon, port in parts)


def _is_unresolved(endpoint: str) -> bool:
    if "://" not in endpoint:
        return endpoint.startswith("$")
    url = split_url(endpoint)
    return url is not None and (url.hostname or "").startswith("$")


def _why_not_as_url(kind: str, endpoint: str) -> str | None:
    """The reason why a URL cannot be this exporter's endpoint."""
    if not _is_url(endpoint):
        return None
    url = urlsplit(endpoint)
    if kind == "otlp":
        surplus = url.path not in ("", "/") or url.query or url.fragment or "@" in url.netloc
        return "expected http(s)://host:port and nothing else, which gRPC has no use for" if surplus else None
    path = url.path.rstrip("/")
    if kind == "langfuse":
        if url.query or "@" in url.netloc:
            return "expected a base URL alone; the keys are public_key and secret_key"
        path = next((path.removesuffix(one) for one in LANGFUSE_PATHS if path.endswith(one)), path)
    signal = next((signal for signal in Signal if path.endswith(signal.path)), None)
    return f"expected a base URL: leave out {signal.path}, which is added" if signal is not None else None


def _tls_mistakes(name: str, kind: str, exporter: Exporter) -> Iterator[Mistake]:
    """Places where the ``tls`` section contradicts the endpoint, or itself."""
    # An endpoint that is set and yet None has a reference that was not resolved: nobody knows what it contradicts.
    default = "https://" if kind == "langfuse" and "endpoint" not in exporter.model_fields_set else ""
    tls, endpoint = exporter.tls, (exporter.endpoint or default).lower()
    if endpoint.startswith("https://") and tls.insecure:
        yield Mistake((name, "tls", "insecure"), "contradicts the endpoint: https:// is TLS", True)
    plain = "the endpoint's http://" if endpoint.startswith("http://") else "insecure: true" if tls.insecure else None
    if plain is not None and not endpoint.startswith("https://"):
        for key in (key for key in _FOR_TLS if getattr(tls, key) is not None):
            yield Mistake((name, "tls", key), f"contradicts {plain}, which is plain text", getattr(tls, key))


def _is_url(text: str) -> bool:
    url = split_url(text)
    return url is not None and url.scheme in ("http", "https") and bool(url.hostname) and not re.search(r"\s", text)


def _is_grpc_target(text: str) -> bool:
    if "://" in text or _GRPC_TARGET.fullmatch(text):
        return _GRPC_TARGET.fullmatch(text) is not None
    try:
        host, port = parse_endpoint(text)
    except ValueError:
        return False
    return bool(host) and port > 0


def split_url(text: str) -> SplitResult | None:
    """The parts of a URL, None if it is none."""
    try:
        url = urlsplit(text)
        _ = url.port  # read here, because only reading it checks it
    except ValueError:
        return None
    return url


def without_secrets(endpoint: str) -> str:
    """A URL without user information and without the values of its query. Other text is unchanged.

    >>> without_secrets("https://me:secret@tempo:4318/otlp?key=secret&secret#top")
    'https://[REDACTED]@tempo:4318/otlp?key=[REDACTED]&[REDACTED]#top'
    """
    if "//" not in endpoint:
        return endpoint
    shown, mark, query = re.sub(r"//[^/?#]*@", f"//{REDACTED}@", endpoint).partition("?")
    query, hash_sign, fragment = query.partition("#")
    return shown + mark + re.sub(r"([^=&]*=)?[^&]+", rf"\g<1>{REDACTED}", query) + hash_sign + fragment


def _langfuse_mistakes(name: str, exporter: Exporter) -> Iterator[Mistake]:
    for key in _LANGFUSE_KEYS:
        reason = why_no_key(getattr(exporter, key))
        if reason is not None:
            yield Mistake((name, key), reason)
    if "signals" in exporter.model_fields_set and set(exporter.signals) - {Signal.TRACES}:
        yield Mistake((name, "signals"), "langfuse takes traces only", [str(signal) for signal in exporter.signals])


def why_no_key(key: SecretStr | None) -> str | None:
    """The reason why a key of a Langfuse project cannot be used, None if it can."""
    if key is None or not (text := key.get_secret_value()).strip():
        return "required: a key of the Langfuse project"
    return None if can_be_sent(text) else f"a key {BAD_HEADER_VALUE}"


def guard_mistakes(guard: GuardConfig, where: str = "the collector") -> Iterator[Mistake]:
    """Keys that are set, but that only an in-process guard uses; ``where`` they have no effect."""
    for key in _changed(guard, NOT_IN_THE_COLLECTOR):
        yield Mistake(("guard", key), f"has no effect in {where}")


def ledger_mistakes(guard: GuardConfig) -> Iterator[Mistake]:
    """Keys of the ledger, which a stream worker does not keep."""
    for key in _changed(guard, ("budgets", "spending_file", "track_spending")):
        yield Mistake(("guard", key), "has no effect in a stream worker, which keeps no ledger")


def token_mistakes(senders: Auth, people: Auth, place: str) -> Iterator[Mistake]:
    """Tokens of senders that may also raise and clear flags."""
    shared = not set(senders.fixed).isdisjoint(people.fixed)
    if shared or (people.bearer_tokens_file is not None and people.bearer_tokens_file == senders.bearer_tokens_file):
        yield Mistake(("flags", "auth"), SHARED_TOKEN.format(place=place))


SHARED_TOKEN: Final = "shares a token with {place}: any agent that holds it could clear its own flag"


def flag_mistakes(config: CollectorConfig) -> Iterator[Mistake]:
    """Flags enabled without a port to serve them."""
    if config.flags.enabled and config.telemetry.endpoint is None:
        message = "flags are served on telemetry.endpoint, which is null: give it a port, or set flags.enabled to false"
        yield Mistake(("flags", "enabled"), message)


def queue_mistakes(queue: Queue) -> Iterator[Mistake]:
    """A directory without a name, which would be the working directory; a key that needs one."""
    if queue.storage == "":
        yield Mistake(("queue", "storage"), "empty: name a directory, or leave it out to store nothing", "")
    if queue.storage is None and queue.drop_unrouted:
        message = "has no effect without queue.storage: no batches wait on disk"
        yield Mistake(("queue", "drop_unrouted"), message, list(queue.drop_unrouted))


def memory_mistakes(config: CollectorConfig) -> Iterator[Mistake]:
    """Steps that would be kept longer than their trajectory."""
    kept, idle = config.trajectories.reorder_s, config.guard.idle_ttl_s
    if "reorder_s" in config.trajectories.model_fields_set and kept > idle:
        message = f"must not exceed guard.idle_ttl_s ({idle}), after which the trajectory is evicted"
        yield Mistake(("trajectories", "reorder_s"), message, kept)


def port_mistakes(listening: Mapping[str, str]) -> Iterator[Mistake]:
    """Servers that would listen on one port, given their endpoints by key."""
    taken: list[tuple[str, str, int]] = []
    for place, endpoint in listening.items():
        host, port = parse_endpoint(endpoint)
        for other, other_host, other_port in taken:
            if port == other_port != 0 and _overlap(host, other_host):
                yield Mistake(tuple(place.split(".")), f"the port is taken by {other}", endpoint)
        taken.append((place, host, port))


def listening(config: CollectorConfig) -> dict[str, str]:
    """Endpoints of the servers that are on, by their keys."""
    protocols = config.receivers.otlp.protocols
    servers = {
        "receivers.otlp.protocols.grpc.endpoint": protocols.grpc.endpoint if protocols.grpc else None,
        "receivers.otlp.protocols.http.endpoint": protocols.http.endpoint if protocols.http else None,
        "telemetry.endpoint": config.telemetry.endpoint,
    }
    return {place: endpoint for place, endpoint in servers.items() if endpoint is not None}


def _overlap(one: str, other: str) -> bool:
    local = ("localhost", "127.0.0.1", "::1")
    return one == other or one in _ANY_HOST or other in _ANY_HOST or (one in local and other in local)
