"""A chat model that follows a script: for the demo, the examples and the tests. Real LangChain, no provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from trajectory_guard.gates.messages import is_guard_message

Policy = Callable[[Sequence[BaseMessage], int], AIMessage]


class ScriptedChatModel(BaseChatModel):
    """Answers with what ``policy(messages, turn)`` returns; ``turn`` counts the calls of this model from 0.

    Reports token usage at four characters a token, counted over the real messages, so that savings can be measured.
    """

    policy: Policy
    model_name: str = "gpt-4o"
    turns: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedChatModel:
        """Tools need no binding: the script knows them."""
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        answer = self.policy(messages, self.turns)
        self.turns += 1
        read = sum(_tokens(message) for message in messages)
        wrote = _tokens(answer)
        usage = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
        answer = answer.model_copy(update={"usage_metadata": usage})
        answer.response_metadata = {**answer.response_metadata, "model_name": self.model_name}
        return ChatResult(
            generations=[ChatGeneration(message=answer)],
            llm_output={
                "model_name": self.model_name,
                "token_usage": {"prompt_tokens": read, "completion_tokens": wrote},
            },
        )


def _tokens(message: BaseMessage) -> int:
    calls = getattr(message, "tool_calls", None) or []
    return max(1, (len(str(message.content)) + sum(len(str(call["args"])) + len(call["name"]) for call in calls)) // 4)


def call(tool: str, args: dict[str, Any], turn: int, thought: str = "") -> AIMessage:
    """A model message that calls one tool."""
    return AIMessage(thought, tool_calls=[{"name": tool, "args": args, "id": f"call_{turn}", "type": "tool_call"}])


def was_nudged(messages: Sequence[BaseMessage]) -> bool:
    """Whether the messages hold a nudge of the guard."""
    return any(is_guard_message(message) for message in messages)
