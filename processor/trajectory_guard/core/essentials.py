"""Arguments without what is only said about the call: why it is made, when, and under which id of a request."""

from __future__ import annotations

from functools import lru_cache
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
    if type(args) is not dict or not (may := _may_be_aside(tuple(args)[:_MAX_ARGS])) or is_thinking(tool):
        return args
    aside = [key for key in may if _is_aside(tool, key, args)]
    if not aside:
        return args
    left = {key: value for key, value in args.items() if key not in aside}
    return left if left or is_lookup(tool) else args


@lru_cache(maxsize=1_024)
def _may_be_aside(names: tuple[Any, ...]) -> tuple[str, ...]:
    """Those of the names of a call's arguments that may say something about the call; most calls have none."""
    texts = [name for name in names if type(name) is str]
    shell = any(keys.classify_key(name) == keys.SHELL for name in texts)
    return tuple([name for name in texts if keys.speaks_of_call(name) or (shell and name == _DESCRIPTION)])


def _is_aside(tool: str, key: str, args: dict[Any, Any]) -> bool:
    if keys.names_exchange(key):
        return not (is_lookup(tool) and keys.is_asked_by(tool, key, args))
    if keys.is_plain_reason(key):
        return is_lookup(tool)
    value = args[key]
    return (
        keys.classify_key(key) == keys.RATIONALE
        or key == _DESCRIPTION
        or (isinstance(value, (str, int, float)) and keys.is_clock(key, value))
    )


def with_essential_args(step: StepRecord) -> StepRecord:
    """``step`` itself, or a copy with the arguments that say what is to be done."""
    args = essential(step.tool_name, step.args)
    return step if args is step.args else step._replace(args=args, tool_args_hash=args_hash(args))
