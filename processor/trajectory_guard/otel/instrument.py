"""``instrument()``: attach the guard to a tracer provider, now or when the application sets one."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER

from trajectory_guard import telemetry
from trajectory_guard.config import ConfigError, GuardConfig, is_disabled
from trajectory_guard.logs import log_contained
from trajectory_guard.otel.late_provider import ProviderWatch, current_provider
from trajectory_guard.otel.metrics import meter_of, register
from trajectory_guard.otel.pipelines import forget, remember, weakly
from trajectory_guard.otel.processor import TrajectoryGuardProcessor
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.runtime import end_configuration, on_gate_visit, shared_board

_DISABLED_INSTRUMENTATIONS: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_QUIET_VISITS: Final = 20
_log: Final = logging.getLogger(telemetry.LOGGER)


class Instrumentation:
    """The tracer providers that carry a guard, and the processor that waits for one. Thread-safe; a forked child goes
    on with it.
    """

    def __init__(self) -> None:
        self._instrumented: dict[int, tuple[Callable[[], Any], TrajectoryGuardProcessor]] = {}  # by id of the provider
        self._waiting: TrajectoryGuardProcessor | None = None  # for the global provider to be set
        self._watch = ProviderWatch(self._provider_arrived)
        self._visits = 0
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.RLock()  # taken before the lock of the shared configuration

    def instrument(
        self, provider: trace.TracerProvider | None, config: GuardConfig | None, meters: metrics.MeterProvider | None
    ) -> TrajectoryGuardProcessor:
        """See ``instrument``."""
        with self._lock:
            if provider is not None:
                return self._attach(provider, config, meters)
            self._watch.start()  # before looking: another thread may be about to set a provider
            provider = current_provider()
            if provider is not None:
                self._watch.stop()
                return self._attach(provider, config, meters)
            if self._waiting is None:
                self._waiting = TrajectoryGuardProcessor(config, meter_provider=meters)
            else:
                _again(self._waiting, config, meters)
            return self._waiting

    def _attach(
        self, provider: trace.TracerProvider, config: GuardConfig | None, meters: metrics.MeterProvider | None
    ) -> TrajectoryGuardProcessor:
        if isinstance(provider, trace.ProxyTracerProvider):  # what get_tracer_provider() returns until then
            raise TypeError(
                "tracer_provider: no tracer provider is set yet, so there is only OpenTelemetry's ProxyTracerProvider; "
                "set one first, or call instrument() without it, which waits for one"
            )
        if not hasattr(provider, "add_span_processor"):
            raise TypeError(
                f"tracer_provider: {type(provider).__name__} has no add_span_processor; pass an SDK TracerProvider"
                + ("; a configuration is given as config=…" if isinstance(provider, GuardConfig) else "")
            )
        known = self._on(provider)
        if known is not None:
            _again(known, config, meters)
            remember(known.board, provider)
            return known
        processor = TrajectoryGuardProcessor(config, meter_provider=meters)
        self._add(provider, processor)
        return processor

    def _on(self, provider: trace.TracerProvider | None) -> TrajectoryGuardProcessor | None:
        """The processor of a provider; ids of providers that no longer exist are used again."""
        known = self._instrumented.get(id(provider))
        return known[1] if known is not None and known[0]() is provider else None

    def _add(self, provider: trace.TracerProvider, processor: TrajectoryGuardProcessor) -> None:
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            _log.warning("trajectory_guard: OTEL_SDK_DISABLED is set: no spans are recorded, so none is evaluated")
        provider.add_span_processor(processor)  # type: ignore[attr-defined]
        for gone in [one for one, (alive, _) in self._instrumented.items() if alive() is None]:
            del self._instrumented[gone]
        self._instrumented[id(provider)] = (weakly(provider), processor)
        remember(processor.board, provider)

    def _provider_arrived(self) -> None:
        """Attach the processor that waits, if a provider has been set now."""
        with self._lock:
            provider, waiting = current_provider(), self._waiting
            if provider is None or waiting is None or not waiting.enabled:
                return
            self._waiting = None
            self._watch.stop()
            known = self._on(provider)
            if known is None and hasattr(provider, "add_span_processor"):
                self._add(provider, waiting)
                return
            waiting.switch_off()  # no provider has it: switched on, it would keep the configuration for ever
            waiting.board.remove_processor(waiting)
            if known is not None:
                known.switch_on()
                remember(known.board, provider)
            else:
                _log.warning(
                    "trajectory_guard: %s, which was set as tracer provider, takes no span processors: spans are not "
                    "evaluated", type(provider).__name__,
                )  # fmt: skip

    def gate_visited(self) -> None:
        """Look for a provider again when a gate runs: the application has been set up by then."""
        if self._waiting is None:
            return
        self._visits += 1
        if current_provider() is not None:
            self._provider_arrived()
        elif self._visits == _QUIET_VISITS:
            _log.info(
                "trajectory_guard: no tracer provider is set: spans are not evaluated, gates read calls from messages"
            )

    def uninstrument(self, provider: trace.TracerProvider | None) -> None:
        """See ``uninstrument``."""
        with self._lock:
            if provider is None and self._waiting is not None:
                self._waiting.enabled = False
                self._watch.stop()
            provider = provider or current_provider()
            known = self._on(provider)
            if known is not None and provider is not None:
                known.switch_off()
                forget(known.board, provider)
            end_configuration()


def _again(
    processor: TrajectoryGuardProcessor, config: GuardConfig | None, meters: metrics.MeterProvider | None
) -> None:
    """Apply what a further call may still change. Instruments cannot be removed: a second meter reports, too."""
    shared_board(config)
    processor.switch_on()
    if meters is not None:
        processor.latency = register(meter_of(meters), processor.board)


_instrumentation: Final = Instrumentation()
on_gate_visit(lambda: _instrumentation.gate_visited())


def instrument(
    tracer_provider: trace.TracerProvider | None = None,
    config: GuardConfig | None = None,
    *,
    meter_provider: metrics.MeterProvider | None = None,
) -> TrajectoryGuardProcessor:
    """Attach the guard to a tracer provider. Idempotent.

    Under ``TRAJECTORY_GUARD_DISABLED=true`` the processor is attached and evaluates no span; a mistake in another
    variable is then logged instead of raised.

    A guard that ``uninstrument`` or a shutdown of its provider has switched off is switched on again.

    Parameters:
        tracer_provider: an SDK ``TracerProvider``; the global one by default. If the application has set none yet, the
            guard waits for it and never sets one itself.
        config: by default read from ``TRAJECTORY_GUARD_*`` variables.
        meter_provider: for the guard's metrics; the global one by default, also if it is set later.

    Returns:
        The processor that is now attached, or will be when the global provider is set.

    Raises:
        TypeError: the provider cannot take span processors, or ``config`` is no ``GuardConfig``.
        ConfigError: the variables hold a mistake, or this process was given another configuration before.
    """
    return _instrumentation.instrument(tracer_provider, config, meter_provider)


def uninstrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Stop evaluating spans; gates go on by the messages.

    The SDK cannot remove a processor: it stays attached and does nothing.

    Once no provider and no gate of the process is guarded any more, its configuration ends: another one may be given.
    """
    _instrumentation.uninstrument(tracer_provider)


def auto_instrument() -> None:
    """Entry point for ``opentelemetry-instrument``: guards the provider it has just configured.

    ``TRAJECTORY_GUARD_DISABLED=true`` leaves it out, and so does ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` with
    ``trajectory_guard`` or ``*`` in its list. Never raises: auto-instrumentation must not stop an application.
    """
    left_out = os.environ.get(_DISABLED_INSTRUMENTATIONS, "").split(",")  # read by the loader for instrumentors only
    if is_disabled() or {telemetry.SCOPE, "*"} & {name.strip() for name in left_out}:
        return
    try:
        instrument()
        if current_provider() is None and OTEL_PYTHON_TRACER_PROVIDER not in os.environ:
            _log.warning(
                "trajectory_guard: no tracer provider is set, so no span is evaluated until the application sets one. "
                "To have opentelemetry-instrument set one, run: "
                "pip install opentelemetry-distro opentelemetry-exporter-otlp"
            )
    except ConfigError as error:  # a mistake of the operator: one line names the setting, without a traceback
        _log.error("trajectory_guard: the application runs unguarded: %s", "; ".join(map(str, error.mistakes)))
    except Exception:
        log_contained("could not be loaded; the application runs unguarded")
