"""Tool calls made to hold up the host: what a tool returned, or what it was called with, at any size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple


class Call(NamedTuple):
    """One call as its span writes it down. ``error``: the span failed, with the result as its description."""

    arguments: str
    result: str | None
    error: bool = False


Shape = Callable[[int, int], Call]
"""``shape(size, step)``: the call of one step, about ``size`` characters long."""

_RESULTS: Final[dict[str, str]] = {
    "blanks after a date": "Jan 1|A| |B|x", "newlines after a date": "Jan 1|A|\n|B|x", "blanks after a day": "Mon|A| |B|1x",
    "dates and blanks": "|A|Jan 1" + " " * 500 + "|B|", "tables": "|A|file Mar 12" + " " * 60 + "done\n|B|",
    "digits": "|A|1|B| x", "decimals": "|A|1.|B| x", "clocks": "|A|1:11:11|B|!", "hexadecimal": "|A|a|B| 1",
    "uuids": "|A|550e8400-e29b-41d4-a716-|B|", "attempts": "|A|attempt |B|1x", "slashes": "|A|a/|B| 1", "tmp": "|A|/tmp/|B|1",
    "punctuation": "1|A|!|B|_x", "words and dashes": "|A|q w-|B|", "lines": "|A|x\n|B|1", "surrogates": "|A|\ud800|B|",
    "json leaf of blanks": '{"a":1,"b":"Jan 1|A| |B|x"}', "json leaf of marks": '{"a":1,"c":2,"b":"1|A|!|B|_x"}',
    "many leaves": '{"a":[|A|"a b 1",|B|0]}', "many floats": '{"a":[|A|1e300,|B|0]}', "deep": "|A|[|B|", "objects": "|A|{},|B|",
    "a message's repr": "content='|A|a|B|", "escapes in a repr": "content='|A|\\'|B|", "a command's repr": "Command(|A|content='\\|B|",
    "object reprs": "[<a object at 0x1>|A|, <a object at 0x1>|B|", "a wrapper": '{"output": [|A|{"k":1},|B|0]}', "camel case": "|A|aB1|B|",
}  # fmt: skip
"""Before, between and after ``|A|`` and ``|B|``: a head, what is repeated, and a tail."""
_TEXTS: Final[dict[str, tuple[str, str]]] = {
    "selector of blanks": ("selector", "a[a|A| |B|="), "selector of brackets": ("selector", "a|A|[a |B|b"),
    "selector of dashes": ("selector", "a[|A|-|B|"), "combinators": ("selector", "a|A| |B|b"),
    "backticks": ("code", "def f(x): |A|\\`|B|"), "quotes": ("code", 'def f(x): |A|\\"|B|'), "short lines": ("code", 'x = 1\n|A|" \n|B|'),
    "open comments": ("code", "function x(){;\n|A|/*|B|"), "one-letter tokens": ("code", "def f(x): |A|1 |B|"),
    "blank lines": ("query", "x y|A|\n|B|"), "one long word": ("zzz", "x y\n  |A|a|B|"), "an address of dots": ("zzz", "a@|A|.|B|@"),
    "sql comments": ("sql", "select a from b |A|/*|B|"), "sql brackets": ("sql", "select a from b where |A|(|B|"),
    "sql labels": ("sql", "select |A|a as b ,|B| x from b"), "english that starts like sql": ("zzz", "select |A|a fro |B|"),
    "changes of folder": ("command", "|A|cd aa; |B|ls"), "flags": ("command", "ls |A|-la |B|"), "shell quotes": ("command", "ls |A|\"'|B|"),
    "a long path": ("path", "|A|a/|B|"), "a long url": ("url", "http://a/|A|%41|B|"), "a formula": ("expression", "|A|1,|B|0"),
    "parentheses": ("expression", "|A|(|B|"), "words with dashes": ("query", "|A|a-|B|"), "numbers with dots": ("query", "|A|1.1|B|x"),
    "sentences": ("query", "a|A|.\n|B|"), "distinct words": ("query", ""),
}  # fmt: skip


def _fill(shape: str, size: int) -> str:
    head, _, rest = shape.partition("|A|")
    unit, _, tail = rest.partition("|B|")
    return head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail


def _distinct(size: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join(
        "w" + "".join(letters[number // 26**power % 26] for power in range(4)) for number in range(size // 6)
    )


def shapes() -> Iterator[tuple[str, Shape]]:
    """Every shape, by name. Calls of one shape differ from step to step where that reaches further code."""
    for name, shape in _RESULTS.items():
        yield f"result: {name}", lambda size, step, shape=shape: Call('{"q": 1}', f"{_fill(shape, size)}{step}")
        yield f"error: {name}", lambda size, step, shape=shape: Call('{"q": 1}', f"{_fill(shape, size)}{step}", True)
        yield (
            f"answers: {name}",
            lambda size, step, shape=shape: Call(f'{{"q": {step}}}', f"{_fill(shape, size)}{step}"),
        )
    for name, (key, shape) in _TEXTS.items():
        yield (
            f"argument: {name}",
            lambda size, step, key=key, shape=shape: Call(
                json.dumps({key: (_fill(shape, size) if shape else _distinct(size)) + f" {'abcdefgh'[step]}{step}"}),
                "[]",
            ),
        )
    for name, value in _STRUCTURES.items():
        yield f"arguments: {name}", lambda size, step, value=value: Call(value(size, step), "[]")
        yield f"failing: {name}", lambda size, step, value=value: Call(value(size, step), "no", True)


def _list_of(item: Any) -> Callable[[int, int], str]:
    return lambda size, step: json.dumps({"a": [item] * (size // (len(json.dumps(item)) + 2)), "b": step})


_STRUCTURES: Final[dict[str, Callable[[int, int], str]]] = {
    "texts in braces": _list_of("{x}"), "empty objects as text": _list_of("{}"), "nested lists as text": _list_of("[" * 60 + "]" * 60),
    "nested lists": _list_of([[]]), "numbers": _list_of(1.5), "short texts": _list_of("x y"), "objects": _list_of({"k": 1}),
    "keys": lambda size, step: json.dumps({f"k{number}": step for number in range(size // 12)}),
    "keys with texts": lambda size, step: json.dumps({f"k{number}": f"x y {step}" for number in range(size // 18)}),
    "long keys": lambda size, step: json.dumps({"max_" * 40 + str(number): step for number in range(size // 170)}),
    "big numbers": lambda size, step: '{"a":[' + ",".join(["9" * 4_000] * (size // 4_001 + 1)) + f',{step}]}}',
    "deep": lambda size, step: '{"a":' * (size // 6) + str(step) + "}" * (size // 6),
    "deep lists": lambda size, step: "[" * (size // 2) + str(step) + "]" * (size // 2),
    "no json": lambda size, step: "{" + "x" * size + str(step),
    "a python literal": lambda size, step: "{'a': [" + "-1, " * (size // 4) + f"{step}]}}",
    "a python tower": lambda size, step: "[" + "-" * (size - 3) + f"{step}]",
    "not a number": lambda size, step: '{"a":[' + "NaN," * (size // 4) + f"{step}]}}",
    "selectors": lambda size, step: json.dumps({"w": [{"selector": "a[" + " " * 500 + f"b{step}"}] * (size // 520)}),
    "programs": lambda size, step: json.dumps({"w": [{"code": "def f(x): " + "\\`" * 250 + str(step)}] * (size // 800 + 1)}),
}  # fmt: skip
