"""What one process shares: the board behind processor and gates, and ``instrument()``, which guards a provider."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from opentelemetry import trace

from trajectory_guard import telemetry
from trajectory_guard.config import ENV_PREFIX, GATE_KEYS, ConfigError, GuardConfig, differences
from trajectory_guard.core.engine import Engine
from trajectory_guard.entry import Flag
from trajectory_guard.forking import now_and_after_fork
from trajectory_guard.otel.late_provider import ProviderWatch, current_provider
from trajectory_guard.prices import is_installed
from trajectory_guard.store import FlagBoard

if TYPE_CHECKING:
    from trajectory_guard.otel.processor import TrajectoryGuardProcessor
    from trajectory_guard.semantic.settler import BackgroundSettler

_QUIET_VISITS: Final = 20
_MODEL_KEYS: Final = ("model_path", "model_download", "calibration")
_SCORE_KEYS: Final = (
    "langfuse_scores", "langfuse_max_waiting", "langfuse_batches_per_minute", "max_trajectories", "redact",
)  # fmt: skip
_log: Final = logging.getLogger(telemetry.LOGGER)


class Follower(Protocol):
    """A processor or gate on the shared board, whose configuration changes when the process adopts one."""

    board: FlagBoard
    config: GuardConfig

    def configure(self, config: GuardConfig) -> None:
        """Read everything that depends on the configuration again."""


class SharedBoard(FlagBoard):
    """The board of a process, and its one configuration.

    Made from the environment, it adopts the first configuration that somebody gives in code. A later one has to be
    equal. Gates may differ in ``GATE_KEYS``; those of the first gate hold for gates that are given none, until the
    process is given its own by ``instrument``.
    """

    def __init__(self, config: GuardConfig, *, settler: BackgroundSettler | None, visited: Callable[[], None]) -> None:
        super().__init__(config, settler=settler)
        self._visited = visited

    def take(self, trajectory_id: str, run: str | None = None) -> Flag:
        """As ``FlagBoard.take``. Gates of every framework come by here."""
        self._visited()
        return super().take(trajectory_id, run)

    def reconfigure(self, config: GuardConfig, settler: BackgroundSettler | None) -> None:
        """Go on under another configuration.

        Trajectories are carried over, unless the new configuration redacts and the old one did not: they hold
        excerpts and are forgotten.
        """
        settle = settler.settle if settler is not None else None
        engine = Engine(config.engine_settings(), settle=settle, price=self.prices.cost)
        with self._lock:
            if config.redact and not self.config.redact:
                self._entries.clear()
            self.config, self.settler, self.engine = config, settler, engine
            entries = list(self._entries.values())
        for entry in entries:
            with entry.lock:
                saved = entry.state.to_bytes() if entry.state.index else None
                entry.state = engine.load_state(saved) if saved else engine.new_state(entry.trajectory_id)


class Process:
    """The state of this module. Thread-safe; a forked child goes on with it."""

    def __init__(self) -> None:
        self.board: SharedBoard | None = None
        self._given: str | None = None  # who gave the configuration: a gate, or the process
        self._followers: WeakSet[Follower] = WeakSet()
        self._instrumented: dict[int, tuple[trace.TracerProvider, TrajectoryGuardProcessor]] = {}
        self._waiting: TrajectoryGuardProcessor | None = None  # for the global provider to be set
        self._watch = ProviderWatch(self._provider_arrived)
        self._visits = 0
        now_and_after_fork(self._renew_locks)

    def _renew_locks(self) -> None:
        self._config_lock = threading.Lock()
        self._instrument_lock = threading.RLock()  # taken before the other one

    def board_for(self, config: GuardConfig | None, *, gate: bool) -> SharedBoard:
        """The shared board, configured as asked; raises ``ConfigError`` if it is configured otherwise."""
        _check(config)
        with self._config_lock:
            if self.board is None:
                first = GuardConfig.from_env() if config is None else config
                self.board = SharedBoard(first, settler=_settler_of(first), visited=self._gate_visited)
                _add_scorer(self.board)  # a gate may use the board without any processor
            elif config is not None:
                self._reconcile(self.board, config, gate=gate)
            if config is not None:
                self._given = "gate" if gate and self._given != "process" else "process"
            return self.board

    def _reconcile(self, board: SharedBoard, config: GuardConfig, *, gate: bool) -> None:
        if self._given is not None:
            refuse_differences(board.config, config, gate=gate or self._given == "gate")
            if gate or self._given == "process":
                return
        else:
            unused = differences(board.config, config, only=board.config.model_fields_set)
            if unused:
                _log.warning(
                    "trajectory_guard: a configuration given in code replaces that of the environment (%s*): %s",
                    ENV_PREFIX, "; ".join(unused),
                )  # fmt: skip
        if config != board.config:
            self._adopt(board, config)

    def _adopt(self, board: SharedBoard, config: GuardConfig) -> None:
        before = board.config
        settler = board.settler
        if _differ(before, config, _MODEL_KEYS):
            settler = _settler_of(config, board)
        board.reconfigure(config, settler)
        if _differ(before, config, _SCORE_KEYS):
            board.scorer = None  # the one before sends what it has
            _add_scorer(board)
        for follower in list(self._followers):
            follower.configure(config)

    def follow(self, follower: Follower) -> None:
        """Tell of configurations adopted from now on, if it is on the shared board."""
        with self._config_lock:
            if self.board is None or follower.board is not self.board:
                return
            self._followers.add(follower)
            follower.configure(self.board.config)  # it may have been adopted since the follower took the board

    # --- one line --------------------------------------------------------------------------------------------

    def instrument(self, provider: trace.TracerProvider | None, config: GuardConfig | None) -> TrajectoryGuardProcessor:
        """See ``instrument``."""
        with self._instrument_lock:
            if provider is not None:
                return self._attach(provider, config)
            self._watch.start()  # before looking: another thread may be about to set a provider
            provider = current_provider()
            if provider is not None:
                self._watch.stop()
                return self._attach(provider, config)
            if self._waiting is None:
                self._waiting = _processor(config)
            else:
                self.board_for(config, gate=False)
            self._waiting.enabled = True
            return self._waiting

    def _attach(self, provider: trace.TracerProvider, config: GuardConfig | None) -> TrajectoryGuardProcessor:
        if not hasattr(provider, "add_span_processor"):
            raise TypeError(
                f"tracer_provider: {type(provider).__name__} has no add_span_processor; pass an SDK TracerProvider"
            )
        known = self._instrumented.get(id(provider))
        if known is not None:
            self.board_for(config, gate=False)
            known[1].enabled = True
            return known[1]
        processor = _processor(config, provider)
        self._add(provider, processor)
        return processor

    def _add(self, provider: trace.TracerProvider, processor: TrajectoryGuardProcessor) -> None:
        provider.add_span_processor(processor)  # type: ignore[attr-defined]
        self._instrumented[id(provider)] = (provider, processor)  # the provider is kept so that its id stays its own

    def _provider_arrived(self) -> None:
        """Attach the processor that waits, if a provider has been set now."""
        with self._instrument_lock:
            provider, waiting = current_provider(), self._waiting
            if provider is None or waiting is None or not waiting.enabled:
                return
            self._waiting = None
            self._watch.stop()
            if not hasattr(provider, "add_span_processor"):
                _log.warning(
                    "trajectory_guard: %s, which was set as tracer provider, takes no span processors: spans are not "
                    "evaluated", type(provider).__name__,
                )  # fmt: skip
            elif id(provider) not in self._instrumented:
                self._add(provider, waiting)

    def _gate_visited(self) -> None:
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
        with self._instrument_lock:
            if provider is None and self._waiting is not None:
                self._waiting.enabled = False
                self._watch.stop()
            provider = provider or current_provider()
            known = self._instrumented.get(id(provider))
            if known is not None:
                known[1].enabled = False


_process: Final = Process()


def shared_board(config: GuardConfig | None = None) -> FlagBoard:
    """The board that processor and gates of this process share.

    Parameters:
        config: the configuration of the process; by default the one given before, else ``TRAJECTORY_GUARD_*``.

    Raises:
        ConfigError: another configuration was given before; the keys that differ are named.
    """
    return _process.board_for(config, gate=False)


def board_for(config: GuardConfig | None, board: FlagBoard | None, *, gate: bool = False) -> FlagBoard:
    """``board`` or the shared one; ``ConfigError`` if it is configured otherwise, ``GATE_KEYS`` of gates aside."""
    if board is None:
        return _process.board_for(config, gate=gate)
    _check(config)
    if config is not None:
        refuse_differences(board.config, config, gate=gate)
    return board


def follow(follower: Follower) -> None:
    """Keep a processor or gate on the shared board in step with the configuration of the process."""
    _process.follow(follower)


def refuse_differences(before: GuardConfig, config: GuardConfig, *, gate: bool) -> None:
    """Raise ``ConfigError`` if two configurations for one board differ, in more than ``GATE_KEYS`` if ``gate``."""
    found = differences(before, config, ignore=GATE_KEYS if gate else frozenset())
    if found:
        raise ConfigError(
            "configured already, and this configuration differs (before, now):\n  " + "\n  ".join(found)
            + "\nGive the same configuration everywhere, or give this one a board of its own: board=FlagBoard(config)."
        )  # fmt: skip


def instrument(
    tracer_provider: trace.TracerProvider | None = None, config: GuardConfig | None = None
) -> TrajectoryGuardProcessor:
    """Guard everything a tracer provider sees. Calling it again is harmless.

    Parameters:
        tracer_provider: an SDK ``TracerProvider``; the global one by default. If the application has set none yet, the
            guard waits for it and never sets one itself.
        config: by default read from ``TRAJECTORY_GUARD_*`` variables.

    Returns:
        The processor that is now attached, or will be when the global provider is set.

    Raises:
        TypeError: the provider cannot take span processors.
        ConfigError: this process was given another configuration before.
    """
    return _process.instrument(tracer_provider, config)


def uninstrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Switch the guard off again. The SDK cannot remove a processor: it stays attached and does nothing."""
    _process.uninstrument(tracer_provider)


def auto_instrument() -> None:
    """Entry point for ``opentelemetry-instrument``: guards the provider it has just configured.

    ``TRAJECTORY_GUARD_DISABLED=true`` leaves it out. Never raises: auto-instrumentation must not stop an application.
    """
    if os.environ.get("TRAJECTORY_GUARD_DISABLED", "").lower() in ("1", "true", "yes", "on"):
        return
    try:
        instrument()
    except Exception:
        _log.exception("trajectory_guard: could not be loaded; the application runs unguarded")


# --- parts ---------------------------------------------------------------------------------------------------


def _check(config: object) -> None:
    if config is not None and not isinstance(config, GuardConfig):
        raise TypeError(f"config: expected a GuardConfig, got {type(config).__name__}: {str(config)[:80]}")


def _processor(config: GuardConfig | None, provider: trace.TracerProvider | None = None) -> TrajectoryGuardProcessor:
    from trajectory_guard.otel.processor import TrajectoryGuardProcessor  # which takes the board from this module

    return TrajectoryGuardProcessor(config, tracer_provider=provider)


def _settler_of(config: GuardConfig, board: FlagBoard | None = None) -> BackgroundSettler | None:
    """The model, where one is asked for or installed; it loads on a thread of its own. Counts go to ``board``."""
    asked = config.model_path is not None or config.model_download
    if not asked and not is_installed("fastembed"):
        return None
    from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings

    settings = ModelSettings(path=config.model_path, download=config.model_download, calibration=config.calibration)
    settler = BackgroundSettler(settings, counts=board.counts if board is not None else None)
    settler.start()
    return settler


def _add_scorer(board: FlagBoard) -> None:
    """A writer of scores, where they are asked for; nobody else waits for its imports."""
    if board.scorer is None and board.config.langfuse_scores:
        from trajectory_guard.integrations.langfuse.reporter import scorer_of

        board.scorer = scorer_of(board.config, board.counts)


def _differ(one: GuardConfig, other: GuardConfig, keys: tuple[str, ...]) -> bool:
    return any(getattr(one, key) != getattr(other, key) for key in keys)
