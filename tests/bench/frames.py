"""``python -m tests.bench.frames [N]``: the situations in the frames that harnesses and services put around answers.

Prints a row a frame, over one situation in N (default: 7): healthy runs stopped, quiet ones nudged, loops nudged.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tests.bench.situations import SETS, Outcome, evaluate_situation, situations

REMINDER = (
    "<system-reminder>\nThe list of tasks has not been used for a while. Think of it if it helps with the work at hand."
    "\n</system-reminder>"
)
NOTE = "Note: all answers are for information only and may be out of date. Ask the department in charge before you act."


class Frames:
    """Ways in which real harnesses and services wrap a text. Ids, clocks and counters are drawn anew each time."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.spent = 0

    def _id(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _members(self, text: str) -> Mapping[str, Any] | None:
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def request_id(self, text: str) -> str:
        """Of the exchange, in a member or in a line."""
        members, took = self._members(text), self.random.randint(20, 900)
        if members is not None:
            return json.dumps({**members, "request_id": self._id(), "took_ms": took}, ensure_ascii=False)
        return f"{text}\n(request {self._id()}, took {took} ms)"

    def streams(self, text: str) -> str:
        """Of a command, in an object."""
        wall = round(self.random.random(), 3)
        return json.dumps({"stdout": text, "stderr": "", "exit_code": 0, "wall_time": wall}, ensure_ascii=False)

    def reminder(self, text: str) -> str:
        """Of a coding agent, behind each result."""
        return f"{text}\n\n{REMINDER}"

    def note_behind(self, text: str) -> str:
        """A disclaimer."""
        return f"{text}\n\n{NOTE}"

    def note_before(self, text: str) -> str:
        """The same in front."""
        return f"{NOTE}\n\n{text}"

    def label(self, text: str) -> str:
        """As text agents write it."""
        return f"Observation: {text}"

    def fence(self, text: str) -> str:
        """As Markdown."""
        return f"```\n{text}\n```"

    def tag(self, text: str) -> str:
        """As XML."""
        return f"<output>\n{text}\n</output>"

    def colours(self, text: str) -> str:
        """Of a terminal."""
        return f"\x1b[32m{text}\x1b[0m"

    def tokens(self, text: str) -> str:
        """What is left of the context."""
        self.spent += self.random.randint(100, 900)
        return f"{text}\n\nTokens used: {self.spent:,} of 2,000,000."

    def prompt(self, text: str) -> str:
        """Of a shell, behind its output."""
        return f"{text}\nuser@host:~/work$ "

    def heading(self, text: str) -> str:
        """Of a report in Markdown."""
        return f"## Result\n\n{text}"

    def message(self, text: str) -> str:
        """Of a chat, with the id of the call."""
        return json.dumps({"role": "tool", "tool_call_id": f"call_{self._id()}", "content": text}, ensure_ascii=False)

    def costs(self, text: str) -> str:
        """What has been spent."""
        self.spent += self.random.randint(100, 900)
        return f"{text}\n[cost so far: ${self.spent / 10_000:.4f}]"

    def service(self, text: str) -> str:
        """A service with a version and a time."""
        try:
            content = json.loads(text)
        except ValueError:
            content = text
        if not content:
            return text  # that nothing was found is said in other ways than that all went well
        meta = {"request_id": self._id(), "version": "2.3.1"}
        return json.dumps({"success": True, "result": content, "meta": meta}, ensure_ascii=False)


FRAMES = sorted(name for name in vars(Frames) if not name.startswith("_"))


def in_frame(situation: Mapping[str, Any], wrap: Callable[[str], str]) -> Mapping[str, Any]:
    """A situation whose successes are wrapped; an object that reports a failure is no frame around it."""
    steps = [
        {**step, "result": wrap(step["result"])} if step.get("result") and step["outcome"] == "success" else step
        for step in situation["steps"]
    ]
    return {**situation, "steps": steps}


def with_arguments(situation: Mapping[str, Any], more: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """A situation whose calls have further arguments."""
    steps = [
        {**step, "args": {**step["args"], **more()}} if isinstance(step.get("args"), dict) and step["args"] else step
        for step in situation["steps"]
    ]
    return {**situation, "steps": steps}


WORDS: Final = ("check", "see", "whether", "the", "now", "again", "file", "value", "next", "step", "verify", "look")


def said_about_calls() -> Mapping[str, Callable[[], Mapping[str, Any]]]:
    """Further arguments of each call that say nothing of what is asked: another one each time."""
    draw = random.Random(7)
    return {
        "request_id": lambda: {"request_id": f"{draw.getrandbits(64):016x}"},
        "explanation": lambda: {"explanation": " ".join(draw.sample(WORDS, 6))},
    }


def main() -> None:
    """Print the table."""
    every = [one for name in SETS for one in situations(name)][:: int(sys.argv[1]) if len(sys.argv) > 1 else 7]
    frames = Frames()
    kinds: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {"none": lambda one: one}
    for name in FRAMES:
        kinds[name] = partial(in_frame, wrap=getattr(frames, name))
    for name, more in said_about_calls().items():
        kinds[f"{name} among the arguments"] = partial(with_arguments, more=more)
    print("| frame | healthy stopped | quiet nudged | loops nudged |\n|---|---|---|---|")
    for kind, frame in kinds.items():
        found = [evaluate_situation(frame(one)) for one in every]
        healthy, quiet = [_of(found, *expect) for expect in (("quiet", "no_stop"), ("quiet",))]
        loops = _of(found, "nudge", "nudge_then_stop")
        stopped = sum(one.stop is not None for one in healthy)
        nudged, hit = sum(not one.right for one in quiet), sum(one.nudge is not None for one in loops)
        print(f"| {kind} | {stopped}/{len(healthy)} | {nudged}/{len(quiet)} | {hit}/{len(loops)} |")


def _of(found: list[Outcome], *expect: str) -> list[Outcome]:
    return [one for one in found if one.expect in expect]


if __name__ == "__main__":
    main()
