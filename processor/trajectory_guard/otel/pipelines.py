"""Where the guard's own spans go: to the exporters of the agent's spans, which need not be the global ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

from trajectory_guard.board.store import FlagBoard
from trajectory_guard.otel.late_provider import current_provider

_FOLLOWS_PARENT: Final = ParentBased(ALWAYS_ON)
_KEPT_AS: Final = "_trajectory_guard_provider"
_MADE_BY: Final = "_trajectory_guard_maker"
_instrumented: Final[WeakKeyDictionary[FlagBoard, tuple[Callable[[], Any], ...]]] = WeakKeyDictionary()


def _nothing() -> None:
    """In place of a reference to a provider that is not known."""


def weakly(value: Any) -> Callable[[], Any]:
    """Gives ``value`` as long as something else keeps it alive; for ever, if no weak reference to it can be made."""
    try:
        return ref(value)
    except TypeError:
        return lambda: value


def remember(board: FlagBoard, provider: trace.TracerProvider) -> None:
    """Record that the spans of this provider reach ``board``."""
    forget(board, provider)
    _instrumented[board] = (*_instrumented.get(board, ()), weakly(provider))
    with suppress(AttributeError):  # of another SDK
        setattr(provider._active_span_processor, _MADE_BY, weakly(provider))  # type: ignore[attr-defined]


def forget(board: FlagBoard, provider: trace.TracerProvider) -> None:
    """Record that they no longer do. Providers that no longer exist are forgotten, too."""
    before = _instrumented.get(board, ())
    _instrumented[board] = tuple(one for one in before if one() not in (None, provider))


def pipeline_of(span: object) -> trace.TracerProvider | None:
    """A provider whose spans go where ``span`` goes, None if it is no span of the SDK.

    It is the provider that made the span, if that is the global or an instrumented one: its id generator, its sampler
    and its configuration of tracers hold for the guard's spans as for those of any library. A span of the SDK does not
    know its provider, but the processors, the sampler, the resource and the limits. A provider for these is made once:
    each one registers a handler for forks with the interpreter, which stays for ever.
    """
    processors, resource = getattr(span, "_span_processor", None), getattr(span, "resource", None)
    if processors is None or resource is None:
        return None
    for maker in (current_provider(), getattr(processors, _MADE_BY, _nothing)()):
        if maker is not None and getattr(maker, "_active_span_processor", None) is processors:
            return maker
    known: TracerProvider | None = getattr(processors, _KEPT_AS, None)
    if known is not None and known.resource is resource:
        return known
    provider = TracerProvider(
        sampler=getattr(span, "_sampler", None) or _FOLLOWS_PARENT, resource=resource, shutdown_on_exit=False,
        active_span_processor=processors, span_limits=getattr(span, "_limits", None),
    )  # fmt: skip
    with suppress(AttributeError):  # kept with what it belongs to, so that both go together
        setattr(processors, _KEPT_AS, provider)
    return provider


def provider_for(board: FlagBoard, current: trace.Span) -> trace.TracerProvider:
    """The provider for a span that a gate writes: one that is instrumented for its board, else that of ``current``.

    Parameters:
        current: the span in which the gate decides. If several providers are instrumented, it tells which one.
    """
    known = [provider for one in _instrumented.get(board, ()) if (provider := one()) is not None]
    return (known[0] if len(known) == 1 else pipeline_of(current)) or next(iter(known), trace.get_tracer_provider())
