"""The ledger: tokens by model and money in micro-dollars, in accounts for trajectory, agent, service and day. Pure.

Money that the telemetry names is added up in whole micro-dollars (1 USD = 1,000,000). All other calls are kept as
tokens by model, and priced each time the ledger is read: a price that becomes known, or changes, holds for calls made
before too. Tokens of a model without a price are named in every balance; they never count as 0 USD in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

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


class Entry(NamedTuple):
    """One model call.

    Fields:
        call_id: trace id and span id; a second entry with the same one is no second call.
        trajectory, agent, service: who spent; empty if unknown.
        day: UTC date on which the call ended, as in ``2026-11-22``.
        model: as the telemetry names it; empty if it does not.
        micro_usd: cost in micro-dollars as the telemetry names it; None if it does not.
    """

    call_id: str
    trajectory: str
    agent: str
    service: str
    day: str
    model: str
    input_tokens: int
    output_tokens: int
    micro_usd: int | None = None

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class Account(NamedTuple):
    """Whose spending, and of which day.

    Fields:
        scope: one of ``SCOPES``.
        name: of the trajectory, agent or service; empty for ``DAY``, which is everything in the ledger.
        day: UTC date; empty for all days together.
    """

    scope: str
    name: str
    day: str = ""


class ModelSum(NamedTuple):
    """The consumption of one model's calls.

    Fields:
        input_tokens, output_tokens: of all calls.
        open_input, open_output: of the calls for which the telemetry named no cost; a part of the above.
        micro_usd: cost of the other calls, as the telemetry named it.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    open_input: int = 0
    open_output: int = 0
    micro_usd: int = 0

    def plus(self, other: ModelSum) -> ModelSum:
        """Both together."""
        return ModelSum(*(one + two for one, two in zip(self, other, strict=True)))


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


def micro_usd(usd: float) -> int:
    """US dollars as whole micro-dollars, rounded to the nearest.

    >>> micro_usd(0.0123456)
    12346
    """
    return round(usd * MICRO)


def accounts_of(entry: Entry) -> tuple[Account, ...]:
    """The accounts that an entry is booked to.

    >>> accounts_of(Entry("id", "t", "", "shop", "2026-11-22", "m", 1, 1))
    (Account(scope='trajectory', name='t', day=''), Account(scope='service', name='shop', day=''), \
Account(scope='service', name='shop', day='2026-11-22'), Account(scope='day', name='', day='2026-11-22'))
    """
    found = [Account(TRAJECTORY, entry.trajectory)] if entry.trajectory else []
    for scope, name in ((AGENT, entry.agent), (SERVICE, entry.service)):
        if name:
            found += (Account(scope, name), Account(scope, name, entry.day))
    return (*found, Account(DAY, "", entry.day))


def sum_of(entry: Entry) -> ModelSum:
    """An entry as the sum of one call."""
    tokens = (entry.input_tokens, entry.output_tokens)
    if entry.micro_usd is None:
        return ModelSum(1, *tokens, *tokens, 0)
    return ModelSum(1, *tokens, 0, 0, entry.micro_usd)


def added(sums: Sums, more: Iterable[tuple[str, ModelSum]]) -> dict[str, ModelSum]:
    """``sums`` with further sums by model."""
    total = dict(sums)
    for model, one in more:
        known = total.get(model)
        total[model] = one if known is None else known.plus(one)
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
        reported += one.micro_usd
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
        reported + (priced + MICRO // 2) // MICRO,
        unpriced,
    )
