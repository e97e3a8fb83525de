"""A graph that spends more than it may: invariants are checked on what each node returns.

Run: python examples/integrity_gate.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from trajectory_guard import IntegrityGate, shared_board


class State(TypedDict):
    spent: int
    note: str


def within_budget(output) -> bool:
    return output["spent"] <= 100


def buy(state: State):
    return {"spent": state["spent"] + 45, "note": "bought one more"}


def main() -> None:
    gate = IntegrityGate([within_budget])
    builder = StateGraph(State)
    builder.add_node("buy", gate.wrap(buy))
    builder.add_node("recover", lambda state: {"note": "the last purchase is taken back"})
    builder.add_edge(START, "buy")
    builder.add_conditional_edges("buy", gate.edge(forward="buy", break_to="recover"), ["buy", "recover"])
    builder.add_edge("recover", END)
    print(builder.compile().invoke({"spent": 0, "note": ""}, {"configurable": {"thread_id": "example"}}))
    certificate = gate.certificates[0]
    print("\ncertificate:", certificate.conclusion, dict(certificate.parameters), certificate.verify().status)
    print("\non the board, for a gate or a person:\n" + str(shared_board().read("example").verdict.nudge))


if __name__ == "__main__":
    main()
