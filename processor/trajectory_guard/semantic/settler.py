"""The embedding model behind type II: loading it from this machine, and settling pairs off the caller's thread.

Optional (the extra ``semantic``). Without fastembed or a model every pair stays unsettled, which
costs recall only. No network is used unless a download is asked for.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

from trajectory_guard.config import TRUE
from trajectory_guard.core.similarity.calibration import Calibration, calibrate, fingerprint, pairs_digest
from trajectory_guard.core.similarity.cascade import (
    MAX_VECTORS,
    Embed,
    Vector,
    VectorCache,
    both_english,
    focus,
    text_key,
    unit,
)
from trajectory_guard.process.forking import load_here
from trajectory_guard.process.locks import OwnedLock, condition_on
from trajectory_guard.semantic.calibrations import (
    ENV_STORE,
    CalibrationError,
    bundled_pairs,
    default_store,
    load_calibration,
    save_calibration,
)
from trajectory_guard.semantic.model_files import ModelError, load_embed
from trajectory_guard.telemetry import LOGGER

ENV_PATH: Final = "TRAJECTORY_GUARD_MODEL_PATH"
ENV_DOWNLOAD: Final = "TRAJECTORY_GUARD_MODEL_DOWNLOAD"
MAX_QUEUE: Final = 256
"""Texts waiting for a vector; the oldest are dropped beyond."""
_MAX_FAILURES: Final = 5
_NEW, _LOADING, _READY, _OFF = "new", "loading", "ready", "off"
_log: Final = logging.getLogger(LOGGER)


@dataclass(frozen=True)
class ModelSettings:
    """Which model, and how much memory it may use.

    Fields:
        path: directory of a local model; None looks for a cached BAAI/bge-small-en-v1.5.
        download: whether that model may be fetched from the network if it is not cached.
        calibration: file of stored calibrations; None is the user's configuration directory.
        cache_vectors: vectors remembered, least recently used dropped first.
        queue_texts: texts waiting for a vector, oldest dropped first.
    """

    path: str | None = None
    download: bool = False
    calibration: str | None = None
    cache_vectors: int = MAX_VECTORS
    queue_texts: int = MAX_QUEUE

    def __post_init__(self) -> None:
        for name in ("cache_vectors", "queue_texts"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name}: {getattr(self, name)} is below 2, the texts of one pair")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ModelSettings:
        """Read ``TRAJECTORY_GUARD_MODEL_PATH``, ``_MODEL_DOWNLOAD`` and ``_CALIBRATION``."""
        environ = os.environ if environ is None else environ
        return cls(
            path=environ.get(ENV_PATH) or None,
            download=environ.get(ENV_DOWNLOAD, "").lower() in TRUE,
            calibration=environ.get(ENV_STORE) or None,
        )

    @property
    def asked(self) -> bool:
        """Whether a model is configured, so that its absence is logged as a warning."""
        return bool(self.path) or self.download

    @property
    def store(self) -> Path:
        """File of stored calibrations."""
        return Path(self.calibration).expanduser() if self.calibration else default_store()


class Prepared(NamedTuple):
    """A model ready for use, with its calibration."""

    embed: Embed
    calibration: Calibration


_self_calibrated: Final[dict[str, Calibration]] = {}


def prepare(settings: ModelSettings) -> Prepared:
    """Load a model and find its calibration; blocks for 0.5 to 3 s, or as long as a download takes.

    Raises:
        ModelError: there is no model, it cannot be loaded, or calibration says that it is not worth using.
    """
    embed = load_embed(settings.path, download=settings.download)
    found = find_calibration(embed, fingerprint(embed), settings)
    if not found.ok:
        raise ModelError(f"{settings.path or 'the model'} is not used: {found.reason}")
    return Prepared(embed, found)


def find_calibration(embed: Embed, model: str, settings: ModelSettings) -> Calibration:
    """The stored calibration of the model with this fingerprint, else one made now on the bundled pairs.

    The latter is kept in memory, and in the file only if that was named in ``settings``. A file that cannot be used
    is logged and passed over.
    """
    try:
        stored = load_calibration(settings.store, model)
        if stored is not None and (stored.own or stored.pairs == pairs_digest(bundled_pairs())):
            return stored  # one made on the bundled pairs alone is no longer valid when those have changed
    except CalibrationError as error:
        _log.warning("trajectory_guard: %s; calibrating on the bundled pairs instead", error)
    known = _self_calibrated.get(model)
    if known is not None:
        return known
    found = calibrate(embed, bundled_pairs(), model=model)
    _self_calibrated[model] = found
    if settings.calibration:
        try:
            save_calibration(settings.store, found)
        except CalibrationError as error:
            _log.warning("trajectory_guard: calibration not kept: %s", error)
    return found


class BackgroundSettler:
    """Settles pairs without ever blocking: known vectors answer at once, missing ones are computed by one thread.

    ``settle`` is the hook of the type II detector. The thread is a daemon; it loads the model, calibrates it if need
    be, and embeds one text after the other. If there is no usable model, that is logged and counted once and every
    answer stays None. A fork is survived: the child starts its own thread when it first asks.

    Parameters:
        settings: which model, and how much memory it may use.
        load: stands in for ``prepare(settings)``.
        counts: where to count ``errors.model``, ``errors.embedding``, ``settle.same``, ``settle.different``,
            ``settle.unknown`` and ``settle.dropped``.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        load: Callable[[], Prepared] | None = None,
        counts: Counter[str] | None = None,
    ) -> None:
        self.settings = settings
        self.counts = Counter[str]() if counts is None else counts
        self._load = load or (lambda: prepare(self.settings))
        self._reset()
        _settlers.add(self)

    def _reset(self, state: str = _NEW) -> None:
        self._state = state
        self._lock = OwnedLock()
        self._changed = condition_on(self._lock)
        self._cache = VectorCache(self.settings.cache_vectors)
        self._queue: OrderedDict[bytes, str] = OrderedDict()
        self._busy = False
        self._failures = 0
        self._tau = 1.0
        self._any_language = False
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> str:
        """``new``, ``loading``, ``ready`` or ``off``."""
        return self._state

    def start(self) -> None:
        """Begin to load the model in the background. Idempotent."""
        load_here("httpx", "numpy", "PIL.Image")
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._state != _NEW:
            return
        thread = threading.Thread(target=self._run, name="trajectory_guard-embedding", daemon=True)
        self._state = _LOADING
        try:
            thread.start()
        except RuntimeError:  # no more threads: the next question tries again
            self._state = _NEW
            self.counts["errors.model"] += 1
            return
        self._thread = thread

    def settle(self, a: str, b: str) -> bool | None:
        """True same meaning, False different, None not known (yet). Takes microseconds."""
        if self._state == _OFF:
            return None
        left, right = focus(a, b)
        if not left or not right or not (self._any_language or both_english(a, b)):
            return None
        with self._lock:
            one, other = self._want(left), self._want(right)
            if one is None or other is None or self._state != _READY:
                self.counts["settle.unknown"] += 1
                self._start()
                self._changed.notify_all()
                return None
            same = float(one @ other) >= self._tau
            self.counts["settle.same" if same else "settle.different"] += 1
            return same

    def _want(self, text: str) -> Vector | None:
        """The vector of a text, else None and the text is queued."""
        key = text_key(text)
        vector = self._cache.get(key)
        if vector is None and key not in self._queue:
            self._queue[key] = text
            if len(self._queue) > self.settings.queue_texts:
                self._queue.popitem(last=False)
                self.counts["settle.dropped"] += 1
        return vector

    def wait(self, deadline_s: float) -> bool:
        """Wait until the queue is empty, up to a time-out in seconds; returns whether it is empty.

        Returns at once if there is no model, or if it is still loading. No gate waits: a step that was evaluated is not
        evaluated again, and before the next one the model of the agent takes longer than the queue.
        """
        if self._state == _OFF:
            return True
        with self._lock:
            if self._state == _READY:
                self._changed.wait_for(self._idle, max(0.0, deadline_s))
            return self._idle()

    def _idle(self) -> bool:
        return self._state == _OFF or (not self._queue and not self._busy)

    def close(self) -> None:
        """Stop answering; the thread ends after the text it is at."""
        with self._lock:
            self._turn_off()

    def _turn_off(self) -> None:
        self._state = _OFF
        self._queue.clear()
        self._changed.notify_all()

    # --- in the background thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        prepared = self._prepare()
        if prepared is None:
            return
        while True:
            item = self._next()
            if item is None:
                return
            vector = self._embed(prepared.embed, item[1])
            with self._lock:
                if vector is not None:
                    self._cache.put(item[0], vector)
                self._busy = False
                self._changed.notify_all()

    def _prepare(self) -> Prepared | None:
        try:
            prepared = self._load()
        except Exception as error:  # noqa: BLE001  whatever goes wrong with a model costs recall only
            self._give_up("errors.model", f"no embedding model: {error}", expected=isinstance(error, ModelError))
            return None
        with self._lock:
            if self._state != _LOADING:
                return None
            self._tau, self._any_language = prepared.calibration.tau, prepared.calibration.own > 0
            self._state = _READY
            self._changed.notify_all()
        _log.info(
            "trajectory_guard: embedding model ready, %d dimensions, same meaning from cosine %.3f (recall %.2f)",
            prepared.calibration.dim, prepared.calibration.tau, prepared.calibration.recall,
        )  # fmt: skip
        return prepared

    def _next(self) -> tuple[bytes, str] | None:
        with self._lock:
            self._changed.wait_for(lambda: self._queue or self._state == _OFF)
            if self._state == _OFF:
                return None
            self._busy = True
            return self._queue.popitem(last=False)

    def _embed(self, embed: Embed, text: str) -> Vector | None:
        try:
            vector = unit(embed(text))
        except Exception as error:  # noqa: BLE001
            self._failures += 1
            self.counts["errors.embedding"] += 1
            if self.counts["errors.embedding"] == 1:
                _log.warning("trajectory_guard: a text could not be embedded (logged once): %r", error)
            if self._failures == _MAX_FAILURES:
                self._give_up("errors.model", f"embedding failed {_MAX_FAILURES} times in a row: {error!r}")
            return None
        self._failures = 0
        return vector

    def _give_up(self, kind: str, message: str, *, expected: bool = False) -> None:
        not_wanted = expected and not self.settings.asked  # fastembed is there, perhaps for another purpose
        with self._lock:
            if self._state == _OFF:
                return
            self._turn_off()
            if not not_wanted:
                self.counts[kind] += 1
        level = logging.INFO if not_wanted else logging.WARNING
        _log.log(level, "trajectory_guard: %s; calls are compared without one", message)


# --- fork ----------------------------------------------------------------------------------------------------

_settlers: Final[WeakSet[BackgroundSettler]] = WeakSet()


def _after_fork_in_child() -> None:
    for settler in list(_settlers):
        settler._reset(_OFF if settler.state == _OFF else _NEW)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
