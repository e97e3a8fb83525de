"""What one process shares: the board behind processor and gates, and ``instrument()``, which guards a provider."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import telemetry
from trajectory_guard.config import GuardConfig
from trajectory_guard.flags import FlagBoard
from trajectory_guard.prices import is_installed

if TYPE_CHECKING:
    from trajectory_guard.span_processor import TrajectoryGuardProcessor

_log: Final = logging.getLogger(telemetry.LOGGER)
_shared_lock: Final = threading.Lock()
_instrument_lock: Final = threading.RLock()
_shared: dict[str, FlagBoard] = {}
_instrumented: dict[int, tuple[trace.TracerProvider, TrajectoryGuardProcessor]] = {}


def shared_board(config: GuardConfig | None = None) -> FlagBoard:
    """The board that processor and gates of this process share. ``config`` matters to the first caller only."""
    with _shared_lock:
        if "board" not in _shared:
            _shared["board"] = _new_board(config or GuardConfig.from_env())
        elif config is not None and config != _shared["board"].config:
            _log.warning("trajectory_guard: already configured; the later configuration is ignored")
        return _shared["board"]


def _new_board(config: GuardConfig) -> FlagBoard:
    """A board, with a model behind it where one is asked for or installed. The model loads on a thread of its own."""
    board = _board_with_model(config)
    _add_scorer(board)  # a gate may use the board without any processor
    return board


def _board_with_model(config: GuardConfig) -> FlagBoard:
    asked = config.model_path is not None or config.model_download
    if not asked and not is_installed("fastembed"):
        return FlagBoard(config)
    from trajectory_guard.embedding import BackgroundSettler, ModelSettings

    settings = ModelSettings(path=config.model_path, download=config.model_download, calibration=config.calibration)
    settler = BackgroundSettler(settings)
    settler.start()
    return FlagBoard(config, settler=settler)


def _add_scorer(board: FlagBoard) -> None:
    """A writer of scores, where they are asked for; nobody else waits for its imports."""
    if board.scorer is None and board.config.langfuse_scores:
        from trajectory_guard.scorer import scorer_of

        board.scorer = scorer_of(board.config, board.counts)


def instrument(
    tracer_provider: trace.TracerProvider | None = None, config: GuardConfig | None = None
) -> TrajectoryGuardProcessor:
    """Guard everything a tracer provider sees. Calling it again is harmless.

    Parameters:
        tracer_provider: an SDK ``TracerProvider``; the global one by default. If the application has set none yet,
            one is created and set.
        config: by default read from ``TRAJECTORY_GUARD_*`` variables.

    Returns:
        The processor that is now attached.

    Raises:
        TypeError: the provider cannot take span processors.
    """
    from trajectory_guard.span_processor import TrajectoryGuardProcessor  # which takes the board from this module

    provider = tracer_provider or _global_provider()
    if not isinstance(provider, TracerProvider) and not hasattr(provider, "add_span_processor"):
        raise TypeError(
            f"tracer_provider: {type(provider).__name__} has no add_span_processor; pass an SDK TracerProvider"
        )
    with _instrument_lock:
        known = _instrumented.get(id(provider))
        if known is not None:
            known[1].enabled = True
            return known[1]
        processor = TrajectoryGuardProcessor(config, tracer_provider=provider)
        provider.add_span_processor(processor)
        _instrumented[id(provider)] = (provider, processor)  # the provider is kept so that its id stays its own
    return processor


def _global_provider() -> trace.TracerProvider:
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    return provider


def uninstrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Switch the guard off again. The SDK cannot remove a processor: it stays attached and does nothing."""
    provider = tracer_provider or trace.get_tracer_provider()
    with _shared_lock:
        known = _instrumented.get(id(provider))
    if known is not None:
        known[1].enabled = False


def auto_instrument() -> None:
    """Entry point for ``opentelemetry-instrument``: guards the provider it has just configured.

    ``TRAJECTORY_GUARD_DISABLED=true`` leaves it out. Never raises: auto-instrumentation must not stop an application.
    """
    import os

    if os.environ.get("TRAJECTORY_GUARD_DISABLED", "").lower() in ("1", "true", "yes", "on"):
        return
    try:
        instrument()
    except Exception:
        _log.exception("trajectory_guard: could not be loaded; the application runs unguarded")
