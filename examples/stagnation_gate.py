"""A graph without tools whose node says the same again and again: the gate routes it elsewhere and certifies why.

Run: python examples/stagnation_gate.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

from trajectory_guard import StagnationGate, shared_board


class State(TypedDict):
    thoughts: Annotated[list[str], operator.add]


def think(state: State):
    """Stands for a call of a model that does not get any further."""
    if not state["thoughts"]:
        return {"thoughts": ["The customer asks for the return policy. I will look for it."]}
    return {"thoughts": ["I will search once more for the return policy."]}


def main() -> None:
    gate = StagnationGate()
    builder = StateGraph(State)
    builder.add_node("think", gate.wrap(think))
    builder.add_node("escalate", lambda state: {"thoughts": ["A person takes over."]})
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", gate.edge(forward="think", break_to="escalate"), ["think", "escalate"])
    builder.add_edge("escalate", END)
    result = builder.compile().invoke({"thoughts": []}, {"configurable": {"thread_id": "example"}})
    for thought, novelty in zip(result["thoughts"], [*gate.integrals_for("example"), None], strict=True):
        print(f"{'' if novelty is None else novelty:>8}  {thought}")
    certificate = gate.certificates[0]
    print("\ncertificate:", certificate.conclusion, certificate.verify().status)
    print("\non the board, for a gate or a person:\n" + str(shared_board().read("example").verdict.nudge))


if __name__ == "__main__":
    main()
