"""A budget of a few cents: half of it, then a cheaper model, then no more. The ledger survives a restart.

Run: python examples/budgets.py   (offline; needs the extra demo: pip install '.[demo]')
"""

import logging
import tempfile
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from trajectory_guard import GuardConfig, instrument, shared_board
from trajectory_guard.extras import missing

try:
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor

    from trajectory_guard import TrajectoryGuardMiddleware
    from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call
except ImportError as error:  # the extra langgraph alone has no instrumentation, and without spans nothing is booked
    raise SystemExit(missing("this example", error, "demo")) from None


@tool
def read_page(number: int) -> str:
    """Read a page of the report."""
    return f"Page {number}: " + f"the figures of month {number} are in line with the plan. " * 30


def policy(messages, turn):
    """A model that reads page after page."""
    return call("read_page", {"number": turn}, turn) if turn < 40 else AIMessage("I have read everything.")


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        config = GuardConfig(
            budgets=[{"scope": "service", "usd": 0.10, "per": "day"}],
            model_prices={"large": {"input": 2.5, "output": 10.0}, "small": {"input": 0.15, "output": 0.6}},
            spending_file=str(Path(folder) / "spending.db"),
            mode="enforce",
        )
        provider = TracerProvider(resource=Resource({"service.name": "reports"}))
        instrument(provider, config=config)
        LangchainInstrumentor().instrument(tracer_provider=provider)

        small = ScriptedChatModel(policy=policy, model_name="small")
        agent = create_agent(
            ScriptedChatModel(policy=policy, model_name="large"),
            [read_page],
            middleware=[TrajectoryGuardMiddleware(config, cheaper={"large": small})],
        )
        for thread in ("first", "second", "third"):
            result = agent.invoke(
                {"messages": [("user", "Check the report.")]},
                {"configurable": {"thread_id": thread}, "recursion_limit": 200},
            )
            asked = [one.response_metadata.get("model_name") for one in result["messages"] if one.type == "ai"]
            print(f"{thread}: {asked.count('large')} calls of the large model, {asked.count('small')} of the small one")
            print(f"  budget: {result['loop_status']['budget']}")
            print(f"  answer: {result['messages'][-1].text}")
        spending = shared_board().spending
        for booked in spending.booked_here():
            tokens = booked.sums.input_tokens + booked.sums.output_tokens
            print(f"{booked.model}: {booked.sums.calls} calls, {tokens:,} tokens, {booked.micro_usd} micro-dollars")
        provider.shutdown()


if __name__ == "__main__":
    main()
