"""Flags and budgets from a collector: it sees the spans of all processes, a gate those of one."""

from __future__ import annotations

import json
import logging
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from http.client import HTTPException
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakKeyDictionary

from opentelemetry import trace

from trajectory_guard import telemetry
from trajectory_guard.board.flags import Flag
from trajectory_guard.board.store import FlagBoard
from trajectory_guard.config import GuardConfig
from trajectory_guard.core.detectors import DetectionResult
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.certificates import Certificate
from trajectory_guard.core.explain.interventions import Spent
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.policy import Level
from trajectory_guard.core.steps import Certainty
from trajectory_guard.core.tracking.tables import BoundedTable
from trajectory_guard.hidden import Hidden
from trajectory_guard.http_requests import open_url
from trajectory_guard.process.forking import now_and_after_fork
from trajectory_guard.process.locks import OwnedLock
from trajectory_guard.process.own_threads import on_thread
from trajectory_guard.process.suppression import suppressed
from trajectory_guard.spending.answers import status_of
from trajectory_guard.spending.spending import BudgetStatus

NO_BUDGETS_S: Final = 60.0
"""Seconds for which a collector that keeps no budgets is not asked for them."""
_PAUSE_S: Final = 5.0
"""Seconds without a request after one that failed: a dead collector costs one timeout now and then, not one a step."""
_SHARED_S: Final = 1.0
"""Seconds for which an answer serves the other question of the same decision, too."""
_SEPARATE_BY: Final = ("service.namespace", "deployment.environment.name")
"""Resource attributes by which a collector separates tenants, unless it names others."""
_MAX_BYTES: Final = 65_536
_MAX_LATE: Final = 4
"""Requests that nobody waits for any more and that have not ended; with as many there is no further one."""
_MAX_ANSWERS: Final = 1_024
_NO_ANSWER: Final = (
    OSError, HTTPException, RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
)  # fmt: skip
"""Errors of a request: no connection, no HTTP, no thread to ask on, or an answer that is none."""
_log: Final = logging.getLogger(telemetry.LOGGER)
Use = Literal["flag", "budget"]


class _UnaskableError(Exception):
    """No request can be made of a question: an error of this one question, which says nothing of the collector."""


class Caller(NamedTuple):
    """The process and the agent on whose behalf a gate asks for budgets; empty if unknown."""

    service: str = ""
    agent: str = ""
    resource: Mapping[str, Any] = {}


class CollectorReply(NamedTuple):
    """A collector's reply.

    Fields:
        flag: None if no intervention is due.
        budget: None if the collector keeps no budgets, or cannot read them now.
    """

    flag: Flag | None
    budget: BudgetStatus | None


class _Given(NamedTuple):
    """An answer that was given, the question, and the uses that were made of it."""

    at: float
    question: tuple[int, int, str]
    answer: CollectorReply
    uses: set[Use]


class Memory:
    """Knowledge of a collector that the gates of a board share. Thread-safe.

    Attributes:
        silent_until: no request before; no_budgets_until: none for budgets alone. Monotonic seconds.
        separate_by: resource attributes that the collector asks for.
        is_logged: a failure was logged.
        late: requests that have outlasted their time-out.
    """

    def __init__(self) -> None:
        self.silent_until = self.no_budgets_until = float("-inf")
        self.separate_by: tuple[str, ...] = _SEPARATE_BY
        self.is_logged = False
        self.late: set[Future[Any]] = set()
        self._given: BoundedTable[str, _Given] = BoundedTable(_MAX_ANSWERS)
        now_and_after_fork(self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = OwnedLock()
        self.late = set()

    def shared(self, trajectory: str, question: tuple[int, int, str], use: Use, now: float) -> CollectorReply | None:
        """The answer to the other question of the same decision, which serves once; None if there is none."""
        with self._lock:
            given = self._given.get(trajectory)
            if given is None or use in given.uses or now - given.at > _SHARED_S:
                return None
            place = slice(2) if use == "flag" else slice(2, None)
            if given.question[place] != question[place]:
                return None
            given.uses.add(use)
            return given.answer

    def keep(
        self, trajectory: str, question: tuple[int, int, str], use: Use, answer: CollectorReply, now: float
    ) -> None:
        """Keep an answer that served one use."""
        with self._lock:
            self._given[trajectory] = _Given(now, question, answer, {use})


_memories: Final[WeakKeyDictionary[FlagBoard, dict[str, Memory]]] = WeakKeyDictionary()


class RemoteFlags:
    """Client of a collector's ``GET /v1/flags/{trajectory}``. Never raises: no answer in time means "go on".

    A decision takes one request: the answer has the flag and the budgets, for gates of the same board as well. A second
    one follows where the collector separates tenants by attributes that the first one did not have.

    Parameters:
        url: base URL of the collector's ``telemetry.endpoint``, such as ``http://localhost:8888``.
        token: bearer token, None if the collector asks for none.
        timeout_s: seconds to wait for an answer.
        failed: called when there was none.
        memory: what is known of the collector.
        clock: monotonic seconds; for tests.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        failed: Callable[[], None],
        *,
        memory: Memory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._failed = failed
        self._memory = memory or Memory()
        self._clock = clock

    @classmethod
    def of(cls, config: GuardConfig, board: FlagBoard, failed: Callable[[], None]) -> RemoteFlags | None:
        """The client that ``config`` describes; None if it names no collector."""
        if config.collector_url is None:
            return None
        token = config.collector_token.get_secret_value() if config.collector_token is not None else None
        memory = _memories.setdefault(board, {}).setdefault(config.collector_url, Memory())
        return cls(config.collector_url, token, config.collector_timeout_s, failed, memory=memory)

    @property
    def may_have_budgets(self) -> bool:
        """Whether to ask for budgets now: not while the collector is silent, or said lately that it keeps none."""
        return self._clock() >= max(self._memory.silent_until, self._memory.no_budgets_until)

    def ask(
        self, trajectory_id: str, after: int, hands: int, caller: Caller, use: Use = "flag"
    ) -> CollectorReply | None:
        """Flag and budgets; None without an answer.

        Parameters:
            after: index, in the collector's count, of the step whose flag was acted on last.
            hands: ordinal of the flag raised by hand that was acted on last, 0 if none was.
            use: the part of the answer that this call is for.
        """
        memory, now = self._memory, self._clock()
        if now < memory.silent_until or len(memory.late) >= _MAX_LATE:
            return None
        question = (after, hands, caller.agent)
        shared = memory.shared(trajectory_id, question, use, now)
        if shared is not None:
            return shared
        try:
            plain = self._in_time(lambda: self._asked(trajectory_id, after, hands, caller))
            answer = CollectorReply(_flag(plain), self._budget(plain))
        except _UnaskableError as error:
            self._fail(error)
            return None
        except _NO_ANSWER as error:
            memory.silent_until = self._clock() + _PAUSE_S
            self._fail(error)
            return None
        memory.keep(trajectory_id, question, use, answer, self._clock())
        return answer

    def _in_time(self, get: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The answer, got on a thread: the time-out of a socket bounds neither the look-up of its name nor the sum.

        Raises ``TimeoutError`` after ``timeout_s``, and all that ``get`` raises.
        """

        def asked() -> Mapping[str, Any]:
            with suppressed():
                return get()

        late = self._memory.late
        reply = on_thread(asked, "trajectory_guard-collector")
        try:
            return reply.result(self._timeout_s)
        except LateError:
            late.add(reply)
            reply.add_done_callback(late.discard)
            raise TimeoutError(f"no answer within {self._timeout_s} s") from None

    def _asked(self, trajectory_id: str, after: int, hands: int, caller: Caller) -> Mapping[str, Any]:
        """The answer for the tenant of the caller.

        The first answer to a gate is of no tenant, or of another one, if it sent other attributes than the collector
        separates tenants by; each answer names these.
        """
        sent = self._memory.separate_by
        answer = self._get(trajectory_id, after, hands, caller, sent)
        wanted = self._memory.separate_by = _separate_by(answer, sent)
        if set(wanted) <= set(sent):
            return answer
        return self._get(trajectory_id, after, hands, caller, wanted)

    def _get(
        self, trajectory_id: str, after: int, hands: int, caller: Caller, separate_by: tuple[str, ...]
    ) -> Mapping[str, Any]:
        try:
            name = urllib.parse.quote(trajectory_id, safe="", errors="replace")  # as the collector reads ids from spans
            resource = {f"resource.{key}": _text(caller.resource.get(key, "")) for key in separate_by}
            query = {"after": after, "by_hand": hands, "service": caller.service, "agent": caller.agent, **resource}
            request = urllib.request.Request(
                f"{self._url}/v1/flags/{name}?{urllib.parse.urlencode(query, errors='replace')}", headers=self._headers
            )
        except Exception as error:
            raise _UnaskableError(str(error)) from error
        with open_url(request, timeout_s=self._timeout_s) as reply:
            answer = json.loads(reply.read(_MAX_BYTES))
        if not isinstance(answer, dict):
            raise TypeError(f"an object is expected, got {type(answer).__name__}")
        return answer

    def _budget(self, answer: Mapping[str, Any]) -> BudgetStatus | None:
        plain = answer.get("budget")
        if plain is None:  # a collector of an earlier version has no such key
            self._memory.no_budgets_until = self._clock() + NO_BUDGETS_S
            return None
        if not isinstance(plain, dict):
            raise TypeError(f"budget is an object, got {type(plain).__name__}")
        return status_of(plain) if "level" in plain else None

    def _fail(self, error: Exception) -> None:
        self._failed()
        if not self._memory.is_logged:
            self._memory.is_logged = True
            reason = Hidden(self._headers.values()).hide(str(error))  # http.client quotes a header that it refuses
            _log.warning("trajectory_guard: no flags from %s, the run goes on (logged once): %s", self._url, reason)


def caller_of(board: FlagBoard, agent: str = "") -> Caller:
    """The caller for the gates of a board: by the resource of the spans seen last, or that of the global provider."""
    attributes = board.resource
    if not attributes:
        resource = getattr(trace.get_tracer_provider(), "resource", None)
        attributes = resource.attributes if resource is not None else {}
    known = board.spending.service if board.spending is not None else ""
    return Caller(known or str(attributes.get("service.name") or ""), agent, attributes)


def _separate_by(answer: Mapping[str, Any], known: tuple[str, ...]) -> tuple[str, ...]:
    """The attributes by which the collector separates tenants; ``known`` if the answer does not name them."""
    given = answer.get("separate_by")
    if given is None:
        return known
    if not isinstance(given, list):
        raise TypeError(f"separate_by is a list, got {type(given).__name__}")
    return tuple([str(key) for key in given])


def _text(value: Any) -> str:
    """An attribute as the collector reads it from a span: there a sequence is a list, in the SDK it is a tuple."""
    return str(list(value) if isinstance(value, tuple) else value)


def _flag(answer: Mapping[str, Any]) -> Flag | None:
    level = Level(answer["level"])
    if level is Level.OBSERVE:
        return None
    score = float(answer["score"])
    hand = answer.get("by_hand")
    if hand is not None:
        flag = HandFlag.of(level, hand["reason"], hand["actor"], ordinal=int(hand["ordinal"]))
        return Flag(level, None, score, int(answer["nudges"]), int(answer["steps"]), remote=True, by_hand=flag)
    rule = str(answer["rule"])  # that of the first type
    certainty = Certainty(answer["certainty"])
    found = tuple(  # a type may be of a detector that is registered in the collector alone
        DetectionResult(str(kind), 1.0, rule if place == 0 else "", certainty)
        for place, kind in enumerate(answer["types"])
    )
    spent, nudge = Spent(**(answer.get("spent") or {})), answer["nudge"]
    if not (all(isinstance(one, (int, float)) for one in spent) and (nudge is None or isinstance(nudge, str))):
        raise TypeError("nudge is a text, and what is spent are numbers")
    verdict = Verdict(
        str(answer["trajectory_id"]), str(answer["step_id"]), int(answer["step"]), score, float(answer["health"]),
        level, found, episode=int(answer["episode"]), reason=str(answer["reason"]), nudge=nudge,
        spent=spent, nudges=int(answer["nudges"]), tool=str(answer["tool"]), run=str(answer.get("run", "")),
        certificate=Certificate.from_plain(given) if (given := answer.get("certificate")) else None,
    )  # fmt: skip
    return Flag(level, verdict, score, verdict.nudges, int(answer["steps"]), remote=True)
