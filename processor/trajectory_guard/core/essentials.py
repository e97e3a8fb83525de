"""Arguments without what is only said about the call: why it is made, when, and under which id of a request."""

from __future__ import annotations

from typing import Any, Final

from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.similarity import keys
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.tools import is_lookup, is_thinking

_MAX_ARGS: Final = 32
_DESCRIPTION: Final = "description"


def essential(tool: str, args: Any) -> Any:
    """The arguments that say what is to be done; ``args`` itself if all of them do, or if none would be left.

    An agent that is asked for a reason words another one each time, and a client numbers its requests: neither makes
    another call of the same one.

    >>> essential("read_file", {"path": "a.py", "explanation": "Look at it again."})
    {'path': 'a.py'}
    >>> essential("think", {"thought": "Look at it again."}), essential("delete_user", {"id": 7, "reason": "spam"})
    ({'thought': 'Look at it again.'}, {'id': 7, 'reason': 'spam'})
    """
    if type(args) is not dict or len(args) > _MAX_ARGS:
        return args
    aside = [key for key, value in args.items() if type(key) is str and _is_aside(tool, key, value, args)]
    if not aside or is_thinking(tool):
        return args
    left = {key: value for key, value in args.items() if key not in aside}
    return left if left or is_lookup(tool) else args


def _is_aside(tool: str, key: str, value: object, args: dict[Any, Any]) -> bool:
    kind = keys.classify_key(key)
    if kind == keys.RATIONALE:
        return is_lookup(tool) or not keys.is_plain_reason(key)
    if kind == keys.KNOB:
        return keys.names_exchange(key) and not (is_lookup(tool) and keys.is_asked_by(tool, key, args))
    if key == _DESCRIPTION:
        return any(type(one) is str and keys.classify_key(one) == keys.SHELL for one in args)
    return isinstance(value, (str, int, float)) and keys.is_clock(key, value)


def with_essential_args(step: StepRecord) -> StepRecord:
    """``step`` itself, or a copy with the arguments that say what is to be done."""
    args = essential(step.tool_name, step.args)
    return step if args is step.args else step._replace(args=args, tool_args_hash=args_hash(args))
