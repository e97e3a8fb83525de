"""The configuration of budgets and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from trajectory_guard.config.part import PartModel
from trajectory_guard.spending.budget import TOKENS, USD, Budget
from trajectory_guard.spending.ledger import AGENT, MICRO, SERVICE, Rate

if TYPE_CHECKING:
    from trajectory_guard.config.choices import Per, Scope
else:
    Per = Scope = str  # validated by the patterns, which give the messages


class BudgetSettings(PartModel):
    """A limit on spending, in USD or in tokens."""

    scope: Scope = Field(pattern="^(trajectory|agent|service|day)$")
    """Whose spending: each ``trajectory``, each ``agent``, each ``service``; ``day`` is everything of a UTC day."""
    usd: float | None = Field(default=None, ge=0.000001, le=1e9)
    """Limit in US dollars."""
    tokens: int | None = Field(default=None, ge=1, le=10**15)
    """Limit in tokens, instead of one in US dollars."""
    per: Per = Field(default="total", pattern="^(total|day)$")
    """``day``: the limit of an agent or service holds per UTC day."""
    name: str | None = Field(default=None, min_length=1)
    """The only agent or service that it holds for; by default it holds for each of them."""

    @model_validator(mode="after")
    def _consistent(self) -> BudgetSettings:
        if (self.usd is None) == (self.tokens is None):
            raise ValueError("give either 'usd' or 'tokens'")
        if self.scope not in (AGENT, SERVICE) and (self.name is not None or self.per == "day"):
            raise ValueError(f"'name' and 'per: day' belong to the scopes 'agent' and 'service', not to {self.scope!r}")
        return self

    def budget(self) -> Budget:
        """The rule."""
        if self.usd is not None:
            return Budget(self.scope, USD, round(self.usd * MICRO), self.per == "day", self.name)
        return Budget(self.scope, TOKENS, self.tokens or 0, self.per == "day", self.name)


class ModelPrice(PartModel):
    """Price of a model, in USD per million tokens."""

    input: float = Field(ge=0.0, le=1e6)
    """For tokens of the prompt."""
    output: float = Field(ge=0.0, le=1e6)
    """For tokens of the answer."""

    def rate(self) -> Rate:
        """In whole micro-dollars per million tokens."""
        return Rate.from_usd(self.input, self.output)
