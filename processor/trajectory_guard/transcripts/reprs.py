"""Python reprs of objects, as some instrumentations write them: read without evaluating anything.

``ToolCall(tool_name='x', tool_kwargs={'a': 1})`` becomes ``{"tool_name": "x", "tool_kwargs": {"a": 1}}``; an enum
member ``<Role.USER: 'user'>`` its value; any other ``<…>`` None.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from trajectory_guard.core.literals import parse_expression

MAX_REPR_CHARS: Final = 262_144
CLASS_KEY: Final = "__class__"
"""Key under which the class name of a repr is kept."""
_ENUM: Final = re.compile(r"<[A-Za-z_][\w.]*: ('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|-?\d+)>")
_OBJECT: Final = re.compile(r"<(?:class '[^'\n]{1,200}'|[\w.]+ object at 0x[0-9a-fA-F]+|function [^\n<>]{1,200})>")
_START: Final = re.compile(r"\A\s*(?:\[\s*)?(?:[A-Za-z_]\w*\(|\{')")


def looks_like_repr(text: str) -> bool:
    """Whether ``text`` starts like the repr of an object, of a dict, or of a list of these."""
    return _START.match(text) is not None


def parse_repr(text: str) -> Any:
    """The value of a repr as dicts, lists and scalars; None if it is none, too long, or cut off."""
    if len(text) > MAX_REPR_CHARS:
        return None
    try:
        tree = parse_expression(_OBJECT.sub("None", _ENUM.sub(r"\1", text)))
        return _value(tree.body)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_value(key)): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key}
    if isinstance(node, ast.Call):
        return _instance(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, (ast.Name, ast.Attribute)):
        return None  # nan, inf, ELLIPSIS, a bare enum member
    raise ValueError(f"not a repr: {type(node).__name__}")


def _instance(node: ast.Call) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    value: dict[str, Any] = {CLASS_KEY: name}
    value.update({word.arg: _value(word.value) for word in node.keywords if word.arg})
    if node.args and not node.keywords:
        value["args"] = [_value(item) for item in node.args]
    return value
