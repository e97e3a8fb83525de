"""Answers that get worse: the model becomes unsure, a judge notices, the agent is nudged, and goes back to its sources.

Run: python examples/quality.py   (offline; needs the extra demo: pip install '.[demo]')
"""

import logging

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from trajectory_guard import GuardConfig, TrajectoryGuardMiddleware, shared_board
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call, was_nudged


@tool
def look_up(question: str) -> str:
    """Look up a fact in the manual."""
    return f"The manual on {question!r}: see page {sum(map(ord, question)) % 300}."


def policy(messages, turn):
    """A model that looks things up, becomes lazy after ten questions, and listens to a nudge."""
    asked = [one for one in messages if one.type == "human" and not was_nudged([one])]
    if len(asked) <= 10 or was_nudged(messages):
        if messages[-1].type != "tool":
            return call("look_up", {"question": asked[-1].text}, turn)
        return with_logprobs(AIMessage(f"{messages[-1].text} That answers it."), mean=-0.1)
    return with_logprobs(AIMessage("It depends."), mean=-1.7)


def with_logprobs(message, mean):
    """The metadata that a provider adds to a message if it is asked for log-probabilities."""
    tokens = [{"token": word, "logprob": mean} for word in message.text.split()]
    message.response_metadata = {"logprobs": {"content": tokens}}
    return message


def judge(request: str, response: str) -> float:
    """Your own judge: usually a call of a small model. Here an answer is good if it names a page."""
    return 0.9 if "page" in response else 0.1


def main() -> None:
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    config = GuardConfig(quality_judge=judge)
    agent = create_agent(
        ScriptedChatModel(policy=policy),
        [look_up],
        middleware=[TrajectoryGuardMiddleware(config)],
        checkpointer=InMemorySaver(),
    )
    board = shared_board()
    shown = 0
    for number in range(1, 20):
        messages = agent.invoke(
            {"messages": [("user", f"question {number}")]}, {"configurable": {"thread_id": "support"}}
        )["messages"]
        board.quality.judge.wait(5.0)  # only so that this example is the same each time
        for one in messages[shown:]:
            if was_nudged([one]):
                print(one.text)
        shown = len(messages)
        print(f"question {number}: {messages[-1].text}")
    for source, name, mean in board.quality.shown():
        print(f"{source} {name}: {mean:.2f} on an average")
    print({event: count for event, count in board.counts.items() if event.startswith("quality.")})


if __name__ == "__main__":
    main()
