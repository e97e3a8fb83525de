"""The board that the processor and the gates of one process share, and its one configuration."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from trajectory_guard import telemetry
from trajectory_guard.board.configured_spending import SPENDING_KEYS, spending_of
from trajectory_guard.board.flags import Flag
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.board.unknown_ids import UnknownIds
from trajectory_guard.config import (
    ENV_PREFIX,
    GATE_KEYS,
    SECTIONS,
    ConfigError,
    GuardConfig,
    check_config,
    differences,
    is_disabled,
    unclear_switch,
)
from trajectory_guard.config.messages import wrong_type
from trajectory_guard.core.engine import Engine
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock, RetiredError
from trajectory_guard.spending.prices import is_installed

if TYPE_CHECKING:
    from trajectory_guard.semantic.settler import BackgroundSettler

_MODEL_KEYS: Final = SECTIONS["model"]
_QUALITY_KEYS: Final = SECTIONS["quality"]
_SCORE_KEYS: Final = (
    "langfuse_scores", "langfuse_max_waiting", "langfuse_batches_per_minute", "max_trajectories", "redact",
)  # fmt: skip
_log: Final = logging.getLogger(telemetry.LOGGER)


class Follower(Protocol):
    """A processor or gate on the shared board, whose configuration changes when the process adopts one."""

    board: FlagBoard
    config: GuardConfig

    def configure(self, config: GuardConfig) -> None:
        """Update every value that depends on the configuration."""


class SharedBoard(FlagBoard):
    """The board of a process, and its one configuration.

    The board starts with the configuration of the environment and adopts the first configuration given in code. A
    later one has to be equal. Gates may differ in ``GATE_KEYS``; the values of the first gate apply to gates without a
    configuration, until ``instrument`` sets those of the process.
    """

    def __init__(self, config: GuardConfig, *, visited: Callable[[], None]) -> None:
        super().__init__(config)
        self.settler: BackgroundSettler | None = None
        self._visited = visited
        self._unknown = UnknownIds()

    def take(self, trajectory_id: str, run: str | None = None, path: str = "") -> Flag:
        """As ``FlagBoard.take``. Gates of every framework call this method."""
        self._visited()
        flag = super().take(trajectory_id, run, path)
        if run is None and flag.steps == 0 and self.counts["steps"]:  # asked by hand: a gate names its run
            with self.lock:
                newest = next(reversed(self._entries), "")
            self._unknown.asked(trajectory_id, self.counts["steps"], newest)
        return flag

    def reconfigure(self, config: GuardConfig, settler: BackgroundSettler | None) -> None:
        """Switch to another configuration.

        Trajectories are kept, unless the new configuration redacts and the old one did not: those trajectories hold
        excerpts and are removed.
        """
        settle = settler.settle if settler is not None else None
        engine = Engine(config.engine_settings(), settle=settle, price=self.prices.cost)
        with self.lock:
            if config.redact and not self.config.redact:
                for entry in self._entries.values():
                    entry.lock.retired = True
                self._entries.clear()
                self._awake.clear()
            self.config, self.settler, self.engine = config, settler, engine
            self._aliases.limit = config.max_trajectories
            entries = list(self._entries.values())
        for entry in entries:
            with suppress(RetiredError), entry.lock:  # what was replaced or removed meanwhile is used by nobody
                saved = entry.state.to_bytes() if entry.state.index else None
                entry.state = engine.load_state(saved) if saved else engine.new_state(entry.trajectory_id)


class Process:
    """The shared board and the followers of its configuration. Thread-safe; a forked child keeps using it."""

    def __init__(self) -> None:
        self.board: SharedBoard | None = None
        self._given: str | None = None  # the source of the configuration: a gate, or the process
        self._ended = False  # the configuration of the board is one that ended, and may be replaced by any other
        self._followers: WeakSet[Follower] = WeakSet()
        self._warnings: deque[tuple[str, ...]] = deque()  # for the log, when the lock is released
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._config_lock = OwnedLock()

    def board_for(self, config: GuardConfig | None, *, gate: bool) -> SharedBoard:
        """The shared board, configured as asked; raises ``ConfigError`` if it is configured otherwise."""
        check_config(config)
        try:
            with self._config_lock:
                return self._board_for(config, gate=gate)
        finally:
            while self._warnings:  # a log handler may ask for the board, and may raise
                with suppress(Exception):
                    _log.warning(*self._warnings.popleft())

    def _board_for(self, config: GuardConfig | None, *, gate: bool) -> SharedBoard:
        if self.board is None:
            first = self._of_environment() if config is None else config
            if is_disabled():
                self._warnings.append(("trajectory_guard: switched off by %sDISABLED", ENV_PREFIX))
            unclear = unclear_switch()
            if unclear is not None:
                text = "trajectory_guard: %sDISABLED: expected true or false, got %r; the guard stays on"
                self._warnings.append((text, ENV_PREFIX, unclear))
            board = SharedBoard(first, visited=_gate_visited)
            settler = _settler_of(first, board)
            if settler is not None:
                board.reconfigure(first, settler)
            self.board = board
            add_reporter(self.board)  # a gate may use the board without any processor
            _add_publisher(self.board)
        elif config is not None:
            self._reconcile(self.board, config, gate=gate)
        if config is not None:
            self._ended = False
            self._given = "gate" if gate and self._given != "process" else "process"
        return self.board

    def _of_environment(self) -> GuardConfig:
        """The configuration of the variables. A mistake in them does not stop a program whose guard is disabled."""
        try:
            return GuardConfig.from_env()
        except ConfigError as error:
            if not is_disabled():
                raise
            mistakes = "; ".join(map(str, error.mistakes))
            self._warnings.append(("trajectory_guard: not used, as the guard is switched off: %s", mistakes))
            return GuardConfig()

    def _reconcile(self, board: SharedBoard, config: GuardConfig, *, gate: bool) -> None:
        if self._given is not None:
            refuse_differences(board.config, config, gate=gate or self._given == "gate")
            if gate:
                return  # otherwise functions that were defined again may differ, or keys of the gate that was first
        elif not self._ended:
            unused = differences(board.config, config, only=board.config.model_fields_set)
            if unused:
                message = "trajectory_guard: a configuration given in code replaces that of the environment (%s*): %s"
                self._warnings.append((message, ENV_PREFIX, "; ".join(unused)))
        if config != board.config:
            self._adopt(board, config)

    def _adopt(self, board: SharedBoard, config: GuardConfig) -> None:
        before, model, spending = board.config, board.settler, board.spending
        settler = _settler_of(config, board) if _differ(before, config, _MODEL_KEYS) else model
        board.reconfigure(config, settler)
        if model is not None and model is not settler:
            model.close()  # its thread would keep it in memory
        if _differ(before, config, SPENDING_KEYS):
            board.spending = spending_of(config, board.prices, board.counts)
            if spending is not None:
                spending.close()  # it books what waits, and contains errors of the store
        if _differ(before, config, (*_QUALITY_KEYS, "redact")):
            board.measure_quality(config)
            _add_publisher(board)
        if _differ(before, config, _SCORE_KEYS):
            board.reporter = None  # the previous reporter still sends its queue
            add_reporter(board)
        for follower in list(self._followers):
            follower.configure(config)

    def end(self) -> None:
        """Forget who gave the configuration, unless a gate or a processor that is switched on follows it."""
        with self._config_lock:
            if self._given is not None and not any(getattr(one, "enabled", True) for one in list(self._followers)):
                self._given, self._ended = None, True

    def follow(self, follower: Follower) -> None:
        """Notify ``follower`` of every configuration adopted from now on, if it uses the shared board."""
        with self._config_lock:
            if self.board is None or follower.board is not self.board:
                return
            self._followers.add(follower)
            follower.configure(self.board.config)  # it may have changed since the follower took the board


_process: Final = Process()
_visit_observers: Final[list[Callable[[], None]]] = []


def on_gate_visit(observer: Callable[[], None]) -> None:
    """Call ``observer`` whenever a gate takes a flag from the shared board, on the gate's thread."""
    _visit_observers.append(observer)


def _gate_visited() -> None:
    for observer in _visit_observers:
        observer()


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
    check_config(config)
    if not isinstance(board, FlagBoard):
        raise wrong_type("board", "a FlagBoard", board)
    if config is not None:
        refuse_differences(board.config, config, gate=gate)
    _add_publisher(board)
    return board


def follow(follower: Follower) -> None:
    """Keep a processor or gate on the shared board in step with the configuration of the process."""
    _process.follow(follower)


def end_configuration() -> None:
    """End the configuration of the process if nothing follows it: the next one given in code is adopted."""
    _process.end()


def refuse_differences(before: GuardConfig, config: GuardConfig, *, gate: bool) -> None:
    """Raise ``ConfigError`` if two configurations for one board differ, in more than ``GATE_KEYS`` if ``gate``."""
    found = differences(before, config, ignore=GATE_KEYS if gate else frozenset())
    if found:
        raise ConfigError(
            "configured already, and this configuration differs (before, now):\n  " + "\n  ".join(found)
            + "\nGive the same configuration everywhere, or give this one a board of its own: board=FlagBoard(config). "
            "Functions are compared by identity, except those at the top of a module, which may be defined again."
        )  # fmt: skip


# --- parts ---------------------------------------------------------------------------------------------------


def _settler_of(config: GuardConfig, board: FlagBoard) -> BackgroundSettler | None:
    """The settler, if a model is configured or installed; it loads on its own thread and counts on ``board``.

    None where the guard is disabled: nothing is nudged or stopped, so no model has to be loaded.
    """
    asked = config.model_path is not None or config.model_download
    if is_disabled() or (not asked and not is_installed("fastembed")):
        return None
    from trajectory_guard.semantic.settler import BackgroundSettler, ModelSettings

    settings = ModelSettings(path=config.model_path, download=config.model_download, calibration=config.calibration)
    settler = BackgroundSettler(settings, counts=board.counts)
    settler.start()
    return settler


def add_reporter(board: FlagBoard) -> None:
    """Attach a Langfuse reporter if scores are configured; its imports load in that case only."""
    if board.reporter is None and board.config.langfuse_scores:
        from trajectory_guard.integrations.langfuse.reporter import reporter_of

        board.reporter = reporter_of(board.config, board.counts)


def _add_publisher(board: FlagBoard) -> None:
    """Let verdicts on scores that no span or gate brings reach the trace and Langfuse, too."""
    if board.quality is not None and board.publisher is None:
        from trajectory_guard.otel.publishing import publish

        board.publisher = lambda verdict: publish(verdict, board, redact=board.config.redact)


def _differ(one: GuardConfig, other: GuardConfig, keys: tuple[str, ...]) -> bool:
    return any(getattr(one, key) != getattr(other, key) for key in keys)
