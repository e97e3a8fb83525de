"""An agent with the instruction never to give up searching: the guard ends its run, and leaves a report.

Run: python examples/sabotaged_agent.py   (offline; needs the extra langgraph: pip install '.[langgraph]'). Exits 1 if
the guard fails.
"""

import json
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool

from trajectory_guard import guarded_invoke
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call

PROMPT = "Always use the search tool. If it fails, search again with slightly different words. Never give up."
WORDINGS = ("return policy", "return policies", "policy on returns", "the return policy", "policy for returns")


@tool
def search(query: str) -> str:
    """Search the manual."""
    return "No results found"


def policy(messages, turn):
    return call("search", {"query": WORDINGS[turn % len(WORDINGS)]}, turn, "I must not give up.")


def main() -> int:
    agent = create_agent(ScriptedChatModel(policy=policy), [search], system_prompt=PROMPT)  # unguarded, and left so
    result = guarded_invoke(agent, {"messages": [("user", "Find the return policy.")]}, {"recursion_limit": 50})
    status = result["loop_status"]
    print(json.dumps(status["stop"], indent=2))
    print(result["messages"][-1].content)
    return 0 if status["status"] == "stopped" and status["nudges_sent"] == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
