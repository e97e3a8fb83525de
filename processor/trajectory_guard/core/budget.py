"""Character budget of one call: the part of its arguments and its result that the engine reads.

Masking, normal forms and the search for words cost time for every character, on the thread of the host. A longer call
is compared by fingerprints: equal ones are still certain to be equal, but a call with other words is another call.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from trajectory_guard.core.steps import Evidence, StepRecord

MAX_UNDERSTOOD_CHARS: Final = 8_192
"""Default budget, in characters."""
FINGERPRINT_KEY: Final = "fingerprint"
"""Stands for the arguments that were too long."""
_LETTERS: Final = str.maketrans("0123456789abcdef", "ghijklmnopqrstuv")


def within_budget(step: StepRecord, limit: int) -> StepRecord:
    """``step`` itself, or a copy cut to ``limit`` characters with ``FINGERPRINT`` evidence.

    Arguments that are too long become their hash. Of a result that is too long both ends stay, and a digest of what
    stood between them. A step that was cut before is not cut again.
    """
    if step.evidence is Evidence.FINGERPRINT:
        return step
    args, result = step.args, step.result or ""
    given = chars_of(args, limit) if args else 0
    if given + len(result) <= limit:
        return step
    left = limit - given
    if left < 0:
        step = step._replace(args={FINGERPRINT_KEY: step.tool_args_hash})
        left = limit
    if len(result) > left:
        step = step._replace(result=both_ends_and_digest(result, left))
    return step._replace(evidence=Evidence.FINGERPRINT)


_COUNTED: Final = frozenset((dict, list, tuple, int))


def chars_of(value: Any, limit: int) -> int:
    """Characters that a JSON value holds at least; counting ends where they are more than ``limit``."""
    total = 0
    stack = [value]
    while stack and total <= limit:
        item = stack.pop()
        kind = type(item)
        if kind is str:
            total += len(item)
        elif kind is dict:
            total += 6 * len(item)  # quotes, colon and comma, and no value is without a character
            if total <= limit:
                total += sum(map(len, [one for pair in item.items() for one in pair if type(one) is str]))
                stack += [value for value in item.values() if type(value) in _COUNTED]
        elif kind is list or kind is tuple:
            total += 3 * len(item)
            if total <= limit:
                stack.extend(item)
        elif kind is int:
            total += item.bit_length() >> 2
    return total


def both_ends_and_digest(text: str, limit: int) -> str:
    """``text`` of up to ``limit`` characters, else both its ends and a digest of what stood between them.

    Ends are of whole kilobytes, so that answers to calls of unlike length are still cut alike. The digest is written
    in letters that no mask takes for a hexadecimal number.
    """
    if len(text) <= limit:
        return text
    end = limit // 2048 * 1024 or limit // 8
    middle = text[end : len(text) - end].encode("utf-8", "surrogatepass")
    digest = sha256(middle).hexdigest()[:32].translate(_LETTERS)
    return f"{text[:end]}\u2026{digest}\u2026{text[len(text) - end :]}"
