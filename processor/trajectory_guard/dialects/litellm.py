"""LiteLLM's own callback: model calls by the semantic conventions, with their cost under keys of its own."""

from __future__ import annotations

from trajectory_guard.dialects.base import Dialect, ModelCalls

LITELLM = Dialect(name="litellm", models=ModelCalls(costs=("gen_ai.cost.total_cost",)))
