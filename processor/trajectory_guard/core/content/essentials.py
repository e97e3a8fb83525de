"""What arguments say of a call: what is to be done, with which things, and what is only said about the call itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from trajectory_guard.core.content.masking import CAMEL
from trajectory_guard.core.fingerprints import args_hash
from trajectory_guard.core.similarity import keys
from trajectory_guard.core.steps import StepRecord
from trajectory_guard.core.text import text_of
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


def ids_in(args: object) -> Iterator[tuple[str, str]]:
    """Arguments whose names say that they are ids of things, with their names. That of a JSON-RPC request is none."""
    if isinstance(args, dict) and "jsonrpc" not in args:
        yield from ((key, value) for key, value in _named_texts(args) if _is_id_of_thing(key))


def _named_texts(args: dict[Any, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in islice(args.items(), _MAX_NAMED):
        if isinstance(key, str) and type(value) in (str, int):
            yield key[:_NAME_CHARS], text_of(value)
        elif type(value) is dict and depth < _MAX_DEPTH:
            yield from _named_texts(value, depth + 1)


@lru_cache(maxsize=512)
def _is_id_of_thing(key: str) -> bool:
    return _ID_OF_THING.search(CAMEL.sub("_", key).lower()) is not None


_NAME_CHARS: Final = 128
_MAX_DEPTH: Final = 3
_MAX_NAMED: Final = 12
_ID_OF_THING: Final = re.compile(
    r"(?:\A|[_.-])(?<!request[_.-])(?<!req[_.-])(?<!trace[_.-])(?<!span[_.-])(?<!session[_.-])(?<!correlation[_.-])"
    r"(?<!idempotency[_.-])(?<!invocation[_.-])(?<!call[_.-])(?<!attempt[_.-])(?:id|ids|uuid|guid|oid|sha|key)\Z"
)
