"""The ledger: tokens by model and money in micro-dollars, in accounts for trajectory, agent, service and day. Pure.

Money that the telemetry names is added up in whole nano-dollars (1 USD = 1,000,000,000), since a call of a small model
costs less than a micro-dollar; balances and budgets are in micro-dollars. All other calls are kept as
tokens by model, and priced each time the ledger is read: a price that becomes known, or changes, holds for calls made
before too. Tokens of a model without a price are named in every balance; they never count as 0 USD in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from trajectory_guard.core.text import nearest

NANO: Final = 1_000_000_000
"""Nano-dollars per US dollar."""
_MOST_NANO: Final = 10**16
"""The highest cost of one call, ten million USD. A higher one is a mistake, and would soon overflow the file."""
MICRO: Final = 1_000_000
"""Micro-dollars per US dollar, and tokens per unit of a ``Rate``."""
TRAJECTORY: Final = "trajectory"
AGENT: Final = "agent"
SERVICE: Final = "service"
DAY: Final = "day"
SCOPES: Final = (TRAJECTORY, AGENT, SERVICE, DAY)


class Rate(NamedTuple):
    """Price of a model in micro-dollars per million tokens, so that cheap models have whole numbers too.

    >>> Rate.from_usd(0.15, 0.60)
    Rate(input=150000, output=600000)
    """

    input: int
    output: int

    @classmethod
    def from_usd(cls, input_usd: float, output_usd: float) -> Rate:
        """From USD per million tokens, as price lists have it."""
        return cls(round(input_usd * MICRO), round(output_usd * MICRO))


class LedgerEntry(NamedTuple):
    """One model call.

    Fields:
        call_id: trace id and span id; a second entry with the same one is no second call.
        trajectory, agent, service: who spent; empty if unknown.
        day: UTC date on which the call ended, as in ``2026-11-22``.
        model: as the telemetry names it; empty if it does not.
        nano_usd: cost in nano-dollars as the telemetry names it; None if it does not.
        tenant: keeps accounts of equal names apart, in a collector; empty in a process.
        revision: how often more became known of whose call it is; an earlier one does not replace a later one.
    """

    call_id: str
    trajectory: str
    agent: str
    service: str
    day: str
    model: str
    input_tokens: int
    output_tokens: int
    nano_usd: int | None = None
    tenant: str = ""
    revision: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class Account(NamedTuple):
    """Whose spending, and of which day.

    Fields:
        scope: one of ``SCOPES``.
        name: of the trajectory, agent or service; empty for ``DAY``, which is everything in the ledger of a tenant.
        day: UTC date; empty for all days together.
        tenant: as in ``LedgerEntry``.
    """

    scope: str
    name: str
    day: str = ""
    tenant: str = ""


def of_known_scope(account: Account) -> Account:
    """The account; raises ``ValueError`` for a scope that is none, whose balance would be 0."""
    if account.scope not in SCOPES:
        hint = nearest(str(account.scope), SCOPES)
        raise ValueError(f"account: unknown scope {account.scope!r}{hint}; known: {', '.join(SCOPES)}")
    return account


class ModelSum(NamedTuple):
    """The consumption of one model's calls.

    Fields:
        input_tokens, output_tokens: of all calls.
        open_input, open_output: of the calls for which the telemetry named no cost; a part of the above.
        nano_usd: cost of the other calls, as the telemetry named it.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    open_input: int = 0
    open_output: int = 0
    nano_usd: int = 0

    def plus(self, other: ModelSum) -> ModelSum:
        """Both together."""
        calls, inputs, outputs, open_input, open_output, nano = other
        return ModelSum(
            self.calls + calls, self.input_tokens + inputs, self.output_tokens + outputs,
            self.open_input + open_input, self.open_output + open_output, self.nano_usd + nano,
        )  # fmt: skip

    def negated(self) -> ModelSum:
        """Undoes this one when added."""
        return ModelSum(*(-one for one in self))


class Balance(NamedTuple):
    """An account as it is read, at the prices known now.

    Fields:
        micro_usd: money, without the calls of models that have no price.
        unpriced: tokens by model of calls without a price; the model's name is empty if the telemetry names none.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    micro_usd: int
    unpriced: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    @property
    def usd(self) -> float:
        """Money in US dollars, for people to read."""
        return self.micro_usd / MICRO


Sums = Mapping[str, ModelSum]
"""The consumption of an account, by model."""


def writable(name: str) -> str:
    """``name`` as a file takes it: halves of characters, which nothing can encode, become question marks.

    >>> writable("planner\\ud83d")
    'planner?'
    """
    return name if name.isascii() else name.encode("utf-8", "replace").decode("utf-8")


def nano_usd(usd: float) -> int:
    """US dollars as whole nano-dollars, rounded to the nearest.

    >>> nano_usd(0.0000001234)
    123
    """
    return min(round(usd * NANO), _MOST_NANO)


def accounts_of(entry: LedgerEntry) -> tuple[Account, ...]:
    """The accounts that an entry is booked to.

    >>> [account[:3] for account in accounts_of(LedgerEntry("id", "t", "", "shop", "2026-11-22", "m", 1, 1))]
    [('trajectory', 't', ''), ('service', 'shop', ''), ('service', 'shop', '2026-11-22'), ('day', '', '2026-11-22')]
    """
    day, tenant = entry.day, entry.tenant
    found = [Account(TRAJECTORY, entry.trajectory, "", tenant)] if entry.trajectory else []
    for scope, name in ((AGENT, entry.agent), (SERVICE, entry.service)):
        if name:
            found += (Account(scope, name, "", tenant), Account(scope, name, day, tenant))
    return (*found, Account(DAY, "", day, tenant))


def sum_of(entry: LedgerEntry) -> ModelSum:
    """An entry as the sum of one call."""
    tokens = (entry.input_tokens, entry.output_tokens)
    if entry.nano_usd is None:
        return ModelSum(1, *tokens, *tokens, 0)
    return ModelSum(1, *tokens, 0, 0, entry.nano_usd)


# --- changes ---------------------------------------------------------------------------------------------------------


class Kind(Enum):
    """Kind of change. A call that is unknown is booked by each of them but ``WITHDRAW``.

    ``FINAL`` books a call that no later change concerns. ``ADD`` books one that may be revised. ``REVISE``: its
    trajectory or agent became known. ``WITHDRAW``: the call turned out to be a second report of another one, and
    ``RESTORE``: it is none after all.
    """

    FINAL = "final"
    ADD = "add"
    REVISE = "revise"
    WITHDRAW = "withdraw"
    RESTORE = "restore"


class Change(NamedTuple):
    """A change of the ledger.

    Fields:
        entry: the model call as it is booked from now on, unless it is withdrawn.
        compared: whether the call is compared with the usual ones of its agent.
    """

    entry: LedgerEntry
    kind: Kind = Kind.FINAL
    compared: bool = True

    @property
    def is_first(self) -> bool:
        """Whether the change reports a call, and revises none."""
        return self.kind is Kind.FINAL or self.kind is Kind.ADD


class Mark(Enum):
    """A call of which a store has no entry."""

    UNKNOWN = "unknown"
    FINAL = "final"
    WITHDRAWN = "withdrawn"


Known = LedgerEntry | Mark
"""Knowledge of a store of a call: the entry that is booked, or a mark."""


def changed(known: Known, change: Change) -> Known:
    """The entry of a call after a change, or its mark. Changes that are delivered again, or late, change nothing.

    >>> one = LedgerEntry("id", "trace", "planner", "shop", "2026-11-22", "m", 1, 1)
    >>> changed(one, Change(one._replace(trajectory="c", agent="", revision=1), Kind.REVISE))[1:3]
    ('c', 'planner')
    >>> changed(Mark.WITHDRAWN, Change(one, Kind.REVISE))
    <Mark.WITHDRAWN: 'withdrawn'>
    """
    entry, kind = change.entry, change.kind
    if known is Mark.FINAL:
        return known
    if kind is Kind.WITHDRAW:
        return Mark.WITHDRAWN
    if isinstance(known, LedgerEntry):  # an agent that is known stays known: after a restart its span may be missing
        is_old = change.is_first or entry.revision < known.revision
        return known if is_old else entry._replace(agent=entry.agent or known.agent)
    return entry if known is Mark.UNKNOWN or kind is Kind.RESTORE else known


class Differences:
    """The sums that changes add to a ledger, or take away. Calls that agree in their accounts are added up first."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], tuple[LedgerEntry, ModelSum]] = {}

    def count(self, before: Known, after: Known) -> int:
        """Count a change of one call; returns how many calls more are booked: 1, 0 or -1."""
        if before == after:
            return 0
        for known, sign in ((before, -1), (after, 1)):
            if isinstance(known, LedgerEntry):
                one = sum_of(known) if sign > 0 else sum_of(known).negated()
                place = (*known[1:6], known.tenant)
                others = self._sums.get(place)
                self._sums[place] = (known, one if others is None else others[1].plus(one))
        return isinstance(after, LedgerEntry) - isinstance(before, LedgerEntry)

    def rows(self) -> list[tuple[Account, str, ModelSum]]:
        """Account, model and the sums to add, where they are not all 0."""
        if len(self._sums) == 1:  # a process books one call at a time
            ((entry, one),) = self._sums.values()
            return [(account, entry.model, one) for account in accounts_of(entry)] if any(one) else []
        found: dict[tuple[Account, str], ModelSum] = {}
        for entry, one in self._sums.values():
            for account in accounts_of(entry):
                place = (account, entry.model)
                found[place] = found[place].plus(one) if place in found else one
        return [(account, model, one) for (account, model), one in found.items() if any(one)]


def added(sums: Sums, more: Iterable[tuple[str, ModelSum]]) -> dict[str, ModelSum]:
    """``sums`` with further sums by model. A model of which no call is left is left out."""
    total = dict(sums)
    for model, one in more:
        known = total.get(model)
        total[model] = one if known is None else known.plus(one)
        if not total[model].calls:
            del total[model]
    return total


def balance_of(sums: Sums, rate_of: Callable[[str], Rate | None]) -> Balance:
    """Price what an account consumed. Rounded once, to the nearest micro-dollar, whatever the number of models.

    Parameters:
        rate_of: the price of a model, None if it is unknown.

    >>> sums = {"small": ModelSum(1, 1000, 100, 1000, 100), "mine": ModelSum(1, 50, 0, 50, 0)}
    >>> balance_of(sums, {"small": Rate(150_000, 600_000)}.get)
    Balance(calls=2, input_tokens=1050, output_tokens=100, micro_usd=210, unpriced={'mine': 50})
    """
    reported = priced = 0
    unpriced: dict[str, int] = {}
    for model, one in sums.items():
        reported += one.nano_usd
        tokens = one.open_input + one.open_output
        rate = rate_of(model) if tokens else None
        if rate is not None:
            priced += one.open_input * rate.input + one.open_output * rate.output
        elif tokens:
            unpriced[model] = tokens
    return Balance(
        sum(one.calls for one in sums.values()),
        sum(one.input_tokens for one in sums.values()),
        sum(one.output_tokens for one in sums.values()),
        (reported * (MICRO * MICRO // NANO) + priced + MICRO // 2) // MICRO,
        unpriced,
    )
