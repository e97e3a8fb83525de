"""Detection of the tracer provider that an application sets after the guard was switched on.

OpenTelemetry has no public notification. Setting a provider early is no way out either: the first one set stays, and
the application's own, with its exporters, would be refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER

from trajectory_guard import telemetry
from trajectory_guard.logs import log_contained

_SETTERS: Final = ("_set_tracer_provider", "set_tracer_provider")
"""Functions of ``opentelemetry.trace``, the best first: every way to set a provider ends in the private one, while the
public one may have been imported by name before it is replaced here."""
_log: Final = logging.getLogger(telemetry.LOGGER)


def current_provider() -> trace.TracerProvider | None:
    """The global tracer provider; None if the application has set none yet."""
    if OTEL_PYTHON_TRACER_PROVIDER in os.environ and getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return None  # a read would set the provider that the variable names, before the application sets its own
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider


class ProviderWatch:
    """Calls ``arrived`` after each attempt to set the global tracer provider, on the thread that made it.

    OpenTelemetry behaves as before: the same provider is set, the same warnings are logged, and an error of
    ``arrived`` does not reach the application. Not thread-safe: ``start`` and ``stop`` need a lock around them.
    """

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._on = False
        self._replaced: tuple[str, Any, Any] | None = None  # name, the function before, ours

    def start(self) -> None:
        """Begin to watch for a provider. Idempotent."""
        self._on = True
        if self._replaced is not None and getattr(trace, self._replaced[0]) is self._replaced[2]:
            return
        name = next((name for name in _SETTERS if callable(getattr(trace, name, None))), _SETTERS[-1])
        if name != _SETTERS[0]:
            _log.warning(
                "trajectory_guard: this version of opentelemetry-api has no %s; a provider may be set unnoticed: call "
                "instrument() after it is set", _SETTERS[0],
            )  # fmt: skip
        before = getattr(trace, name)

        @wraps(before)
        def set_and_notify(*args: Any, **options: Any) -> Any:
            try:
                return before(*args, **options)
            finally:
                self._notify()

        setattr(trace, name, set_and_notify)
        self._replaced = (name, before, set_and_notify)

    def stop(self) -> None:
        """Restore OpenTelemetry's function, unless other code has replaced it since."""
        self._on = False
        if self._replaced is not None and getattr(trace, self._replaced[0]) is self._replaced[2]:
            setattr(trace, self._replaced[0], self._replaced[1])
            self._replaced = None

    def _notify(self) -> None:
        if not self._on:
            return
        try:
            self._arrived()
        except Exception:
            log_contained("the provider that was set is not guarded")
