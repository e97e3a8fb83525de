"""An agent that reads the record of its own work: a command that a person refused is not proposed again and again.

The same model runs twice. It proposes a refused command for as long as it does not read of the refusal; it has been
refused in a review, whose answer an application has cut out of the history, as many do to save tokens. With ``recall``
the record of the trajectory stands before the model, and it goes on with the action that is still required.

Run: python examples/trajectory_cursor.py   (offline; needs the extra langgraph: pip install '.[langgraph]')
"""

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from trajectory_guard import FlagBoard, GuardConfig, TrajectoryGuardMiddleware
from trajectory_guard.cli.demo.scripted import ScriptedChatModel, call


@tool
def run_command(command: str) -> str:
    """Run a command."""
    return f"{command}: done"


@tool
def write_file(path: str, text: str) -> str:
    """Write a file."""
    return f"{path}: {len(text)} characters written"


class ShortHistory(AgentMiddleware):
    """Hides the answers to refused calls from the model: what happened has to be known from somewhere else."""

    def wrap_model_call(self, request, handler):
        def shown(message):
            hidden = message.type == "tool" and "rejected" in str(message.content)
            return message.model_copy(update={"content": "(cut)"}) if hidden else message

        return handler(request.override(messages=list(map(shown, request.messages))))


def policy(messages, turn):
    """A model that wants to clean up first, unless it reads that it must not, and reports at the end."""
    record = next((str(one.content) for one in messages if "Record of this task" in str(one.content)), "")
    if "Refused" not in record and turn < 3:
        return call("run_command", {"command": "rm -rf /data"}, turn)
    if "not done yet: write_file" in record:
        return call("write_file", {"path": "report.txt", "text": "The data were kept."}, turn)
    return AIMessage("Here is the report." if record else "I have cleaned up and written the report.")


def run(recall):
    """One run, with a person who refuses every command."""
    board = FlagBoard(GuardConfig(cursor=True, recall=recall, required_actions=["write_file"]))
    agent = create_agent(
        ScriptedChatModel(policy=policy),
        [run_command, write_file],
        middleware=[
            ShortHistory(),
            TrajectoryGuardMiddleware(board=board),
            HumanInTheLoopMiddleware(interrupt_on={"run_command": True}),
        ],
        checkpointer=InMemorySaver(),
    )
    thread = {"configurable": {"thread_id": "demo"}}
    result, asked = agent.invoke({"messages": [("user", "Clean up and report.")]}, thread), 0
    while "__interrupt__" in result:
        asked += 1
        result = agent.invoke(Command(resume={"decisions": [{"type": "reject", "message": "keep it"}]}), thread)

    cursor = board.cursor("demo")
    report = cursor.report(required=["write_file"])
    print(f"--- recall={recall}: a person was asked {asked} times")
    for entry in cursor.entries:
        words = filter(None, (entry.tool, entry.outcome, entry.by and f"by {entry.by}"))
        print(f"  {entry.index:>2} {entry.kind:<9} {' '.join(words)}")
    print(f"  cursor: {report.cursor}\n  last_entry: {report.last_entry}\n  path: {list(report.path.values())}")
    print(f"  missing_required_actions: {list(report.missing_required_actions)}")
    print(f"  the agent says: {result['messages'][-1].content}")
    if recall:
        print(f"  the model reads:\n{cursor.text(required=['write_file'])}")


if __name__ == "__main__":
    run(recall=False)
    run(recall=True)
