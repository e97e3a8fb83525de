"""Flags for other processes: may this agent go on, should it be nudged, or must it stop?

``GET /v1/flags/{trajectory}`` on the collector's own HTTP server returns the intervention that is due now. With
``after``, the index of the step on which the reader has acted last (-1: none yet), it returns the one that became due
since, and a nudge that was not given yet precedes a stop. ``by_hand`` is the same for flags that people raise: the
ordinal of the one acted on last. The reply also has the budgets that concern the reader (``api.budgets``). ``POST``
raises such a flag, ``DELETE`` clears every flag of the trajectory. Each reply names the attributes that the reader has
to send (``separate_by``), so that a gate can ask again at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trajectory_guard.config import GuardConfig
from trajectory_guard.core.fingerprints import parse_names
from trajectory_guard.core.hand_flag import HandFlag
from trajectory_guard.core.names import bounded_name
from trajectory_guard.core.policy import Level
from trajectory_guard.core.text import nearest
from trajectory_guard.logs import log_flag
from trajectory_guard_collector.api.access import Readers, Writers
from trajectory_guard_collector.api.flag_replies import FlagState, flag_reply, tenant_asked, unsent_by
from trajectory_guard_collector.api.query import query_mistake
from trajectory_guard_collector.authentication import Authenticator, BearerAuth
from trajectory_guard_collector.errors import UnavailableError
from trajectory_guard_collector.scoring.items import Key
from trajectory_guard_collector.scoring.registry import TrajectoryRegistry
from trajectory_guard_collector.scoring.trajectory import Trajectory
from trajectory_guard_collector.telemetry import catalogue
from trajectory_guard_collector.telemetry.metrics import Metrics
from trajectory_guard_collector.telemetry.throttled_log import ThrottledLog

_MAX_NAME: Final = 4_096
_MAX_BODY: Final = 16_384
_TRACE_ID: Final = re.compile("[0-9a-f]{32}")
_KEYS: Final = frozenset(("level", "reason", "actor"))
_PARAMETERS: Final = ("after", "by_hand", "only_agent", "service", "agent")
_NO_TOKENS: Final = (
    "flags.auth has no tokens: flags cannot be raised or cleared. Add flags: {auth: {bearer_tokens_file: people.token}}"
    " to the configuration, a file with one token a line, and send one of them (trajectory-guard flag: --token-file "
    "people.token)"
)
Budgets = Callable[[str, Mapping[str, str]], "dict[str, Any] | None"]
Written = Mapping[str, Any]
PATH: Final = "/v1/flags/{trajectory:name}"


class _AnyName(StringConvertor):
    regex = r"[\s\S]*"  # starlette's own ``path`` ends at a line break, but a name may contain one


register_url_convertor("name", _AnyName())


class _Mistake(ValueError):
    """A request that cannot be answered; the message says why."""


class _NotFound(LookupError):
    """The name finds no trajectory; the message says why.

    Attributes:
        is_ambiguous: it is one of several trajectories.
        is_of_another: it is one of another tenant.
    """

    def __init__(self, message: str, *, is_ambiguous: bool = False, is_of_another: bool = False) -> None:
        super().__init__(message)
        self.is_ambiguous, self.is_of_another = is_ambiguous, is_of_another


class FlagSource(Protocol):
    """The trajectories that flags are read from, raised on and cleared of."""

    def find(self, name: str, tenant: str | None = None) -> FlagState | None:
        """The trajectory with this name: its id, or a trace, thread or session id that it is known by.

        Parameters:
            tenant: of the caller, None if it is unknown; among equal ids that of this tenant is found.

        Raises:
            UnavailableError: it is not known yet.
        """

    def sharing(self, name: str) -> int | None:
        """Number of tenants that have a trajectory with this id, if several trajectories have the name; else None."""

    async def raise_flag(self, key: Key, flag: HandFlag) -> Written | None:
        """Raise a flag. Returns None if it stands now, else the record that is going to be carried out.

        Raises:
            LookupError: no such trajectory is known.
            UnavailableError: the flag cannot be raised now.
        """

    async def clear_flag(self, key: Key, reason: str, actor: str) -> Written | None:
        """Clear every flag of a trajectory. Result and errors as of ``raise_flag``."""


class RegistryFlags:
    """The trajectories of this process.

    Parameters:
        registry: the trajectories.
        save: writes changed trajectories to disk; None without storage.
        not_yet: the reason why the trajectories are not there yet, None once they are.
    """

    def __init__(
        self,
        registry: TrajectoryRegistry,
        save: Callable[[], Awaitable[None]] | None = None,
        not_yet: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._registry, self._save, self._not_yet = registry, save, not_yet

    def find(self, name: str, tenant: str | None = None) -> FlagState | None:
        """See ``FlagSource``."""
        if why := self._not_yet():
            raise UnavailableError(why)
        trajectory = self._registry.find(name, tenant)
        return FlagState.of(trajectory) if trajectory is not None else None

    def sharing(self, name: str) -> int | None:
        """See ``FlagSource``."""
        if not self._registry.is_shared(name):
            return None
        name = bounded_name(name)
        return sum(one.key[1] == name for one in self._registry)

    async def raise_flag(self, key: Key, flag: HandFlag) -> None:
        """See ``FlagSource``."""
        self._registry.raise_flag(self._known(key), flag)
        await self._saved()

    async def clear_flag(self, key: Key, reason: str, actor: str) -> None:
        """See ``FlagSource``."""
        self._registry.clear_flag(self._known(key))
        await self._saved()

    def _known(self, key: Key) -> Trajectory:
        trajectory = self._registry.get(key)
        if trajectory is None:
            raise LookupError(key[1])
        return trajectory

    async def _saved(self) -> None:
        if self._save is not None:
            await self._save()


class _OtherMethods:
    """Answers requests with a method that flags do not have; each route by itself would name its own methods alone."""

    def __init__(self, methods: Sequence[str]) -> None:
        self._allowed = ", ".join(methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request."""
        raise HTTPException(405, headers={"Allow": self._allowed})


class FlagService:
    """Answers requests for flags.

    Parameters:
        source: the trajectories.
        guard: the mode, which limits the level of flags, and the score at which health is 0.
        metrics: counts requests by status, and flags raised and cleared.
        separate_by: resource attributes that form the tenant.
        budgets: the budgets in a reply, by the name and the query; None if none are configured.
    """

    def __init__(
        self,
        source: FlagSource,
        guard: GuardConfig,
        metrics: Metrics,
        separate_by: Sequence[str],
        budgets: Budgets = lambda name, query: None,
    ) -> None:
        self._source = source
        self._separate_by = tuple(separate_by)
        self._guard = guard
        self._metrics = metrics
        self._budgets = budgets
        self._log = ThrottledLog(logging.getLogger(__name__))

    def routes(self, agents: Authenticator, people: Authenticator) -> list[Route]:
        """The endpoints: flags are read with a token of either, raised and cleared with one of ``people``.

        Agents hold the tokens of senders: with one of those, an agent that is misled could clear its own flag. Without
        tokens for people, no flag can be raised or cleared.
        """
        readers = Readers(agents, people)
        write = self._change if people.required else self._refuse_change
        reading = Middleware(BearerAuth, auth=readers, turned_away=self._count_turned_away)
        writing = Middleware(BearerAuth, auth=Writers(agents, people), turned_away=self._count_turned_away)
        routes = [
            Route(PATH, self._get, methods=["GET"], middleware=[reading]),
            Route(PATH, write, methods=["POST", "DELETE"], middleware=[writing]),
        ]
        methods = sorted({method for route in routes for method in route.methods or ()})
        return [*routes, Route(PATH, _OtherMethods(methods))]

    def _count_turned_away(self) -> None:
        self._metrics.add(catalogue.FLAG_REQUESTS, status="401")

    # --- reading ---------------------------------------------------------------------------------------------

    async def _get(self, request: Request) -> Response:
        try:
            name = _asked(request)
            after, hands = _number(request, "after", "the index of a step"), _number(request, "by_hand", "an ordinal")
        except _Mistake as mistake:
            return self._reply({"error": str(mistake)}, 400)
        try:
            return self._flag_reply(request, name, after, hands)
        except UnavailableError as error:
            return self._reply({"error": error.message}, 503)

    def _flag_reply(self, request: Request, name: str, after: int | None = None, hands: int | None = None) -> Response:
        found: FlagState | None = None
        more: dict[str, str] = {}
        try:
            found = self._find(request, name)
        except _NotFound as error:
            if error.is_ambiguous:
                more["ambiguous"] = str(error)
            if error.is_of_another:
                self._log_another_tenant(request.query_params)
        agent = request.query_params.get("only_agent")
        reply = flag_reply(
            name, found, after, hands, mode=self._guard.mode, max_score=self._guard.max_score, agent=agent
        )
        return self._reply({**reply, **more, "budget": self._budgets(name, request.query_params)}, 200)

    def _find(self, request: Request, name: str) -> FlagState:
        """The trajectory that is asked for. A caller that names its tenant gets none of another tenant.

        Tenants count their conversations alike ("1"), so another one's flag would stop an agent that is well. No two
        share a trace.

        Raises:
            _NotFound: there is none.
            UnavailableError: it is not known yet.
        """
        tenant = tenant_asked(request.query_params, self._separate_by)
        found = self._source.find(name, tenant)
        if found is not None and (tenant is None or found.key[0] == tenant or _TRACE_ID.fullmatch(name)):
            return found
        shown, sharing = repr(name[:80]), self._source.sharing(name) if found is None else None
        if sharing == 0 or (sharing and not self._separate_by):
            raise _NotFound(f"several trajectories have the name {shown}: ask for one by its id", is_ambiguous=True)
        if sharing and tenant is None:
            raise _NotFound(
                f"{'several tenants have a trajectory' if sharing > 1 else 'several trajectories have had the name'} "
                f"{shown}: name the attributes of one in the query, "
                f"{'&'.join(f'resource.{one}=…' for one in self._separate_by)}"
                f" (trajectory-guard flag: --resource {self._separate_by[0]}=…)",
                is_ambiguous=True,
            )
        if tenant is None:
            raise _NotFound(f"no trajectory {shown} is known")
        raise _NotFound(
            f"no trajectory {shown} of tenant {tenant!r} is known; {', '.join(self._separate_by)} make up the tenant",
            is_of_another=found is not None,
        )

    def _log_another_tenant(self, query: Mapping[str, str]) -> None:
        tenant, unsent = tenant_asked(query, self._separate_by), unsent_by(query, self._separate_by)
        names = ", ".join(unsent or self._separate_by)
        why = (
            f"the question lacks attributes: {names}. A gate asks again with them, another reader has to"
            if unsent
            else f"the resource of the gate's process lacks attributes that its spans have, or others: {names}"
        )
        self._log.log(logging.WARNING, f"{tenant} {bool(unsent)}", (
            f"flags: a gate of tenant {tenant!r} asked for a trajectory of another tenant, and gets no flag. If they "
            f"are one, {why}"
        ))  # fmt: skip

    # --- raising and clearing --------------------------------------------------------------------------------

    async def _refuse_change(self, request: Request) -> Response:
        return self._reply({"error": _NO_TOKENS}, 403)

    async def _change(self, request: Request) -> Response:
        try:
            name, said = _asked(request), await _said(request)
            key = self._find(request, name).key
            written = await (self._clear if request.method == "DELETE" else self._raise)(key, said)
        except _NotFound as error:
            return self._reply({"error": str(error)}, 409 if error.is_ambiguous else 404)
        except LookupError:  # it was evicted meanwhile
            return self._reply({"error": f"no trajectory {name[:80]!r} is known"}, 404)
        except ValueError as mistake:
            return self._reply({"error": str(mistake)}, 400)
        except UnavailableError as error:
            return self._reply({"error": error.message}, 503)
        return self._flag_reply(request, name) if written is None else self._reply(dict(written), 202)

    async def _raise(self, key: Key, said: dict[str, Any]) -> Written | None:
        flag = HandFlag.of(said.get("level"), said.get("reason"), said.get("actor", ""), mode=self._guard.mode)
        written = await self._source.raise_flag(key, flag)
        self._metrics.add(catalogue.HAND_FLAGS, trajectory_guard_flag_action="raised")
        log_flag("RAISED", key[1], str(flag.level), flag.reason, flag.actor)
        return written

    async def _clear(self, key: Key, said: dict[str, Any]) -> Written | None:
        checked = HandFlag.of(Level.NUDGE, said.get("reason") or "-", said.get("actor", ""))
        written = await self._source.clear_flag(key, checked.reason, checked.actor)
        self._metrics.add(catalogue.HAND_FLAGS, trajectory_guard_flag_action="cleared")
        log_flag("CLEARED", key[1], "", checked.reason, checked.actor)
        return written

    def _reply(self, body: dict[str, Any], status: int) -> Response:
        self._metrics.add(catalogue.FLAG_REQUESTS, status=str(status))
        return JSONResponse({**body, "separate_by": self._separate_by}, status, headers={"Cache-Control": "no-store"})


# --- requests ------------------------------------------------------------------------------------------------


def _asked(request: Request) -> str:
    """The name of the trajectory that a request is about, once the names in its query are checked."""
    mistake = query_mistake(request.query_params, _PARAMETERS, resource=True)
    if mistake is not None:
        raise _Mistake(mistake)
    name = str(request.path_params["trajectory"])
    if len(name) > _MAX_NAME:
        raise _Mistake(f"a trajectory's name has at most {_MAX_NAME} characters")
    return name


def _number(request: Request, key: str, meaning: str) -> int | None:
    asked = request.query_params.get(key)
    try:
        return int(asked) if asked is not None else None
    except ValueError:
        raise _Mistake(f"{key}: expected {meaning}, got {str(asked)[:20]!r}") from None


async def _said(request: Request) -> dict[str, Any]:
    """The JSON object in the body; empty where ``DELETE`` has none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise _Mistake(f"the body has at most {_MAX_BODY} bytes")
    if not body and request.method == "DELETE":
        return {}
    try:
        said = parse_names(body.decode("utf-8"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise _Mistake("the body is a JSON object with level, reason and actor")
    if unknown := sorted(said.keys() - _KEYS):
        hints = (f"{key!r:.80}{nearest(key[:80], _KEYS)}" for key in unknown[:5])
        raise _Mistake(f"unknown key {', '.join(hints)}: the body is a JSON object with level, reason and actor")
    return said
