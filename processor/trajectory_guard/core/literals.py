"""Reading Python literals out of the texts of an agent, as ``repr`` or a model writes them, in silence.

The compiler warns about an escape sequence that it does not know, as in ``'C:\\cats'``; since Python 3.12 the warning
is shown by default. In a text that nobody wrote as code it would only be noise on the standard error of the host.
``warnings.catch_warnings`` changes the whole process and is not safe between threads; a filter for a source of this
name changes nothing for other sources.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any, Final, cast

SOURCE: Final = "<text of an agent>"
"""The name under which the compiler knows the texts that are read here."""

for _category in (SyntaxWarning, DeprecationWarning):
    warnings.filterwarnings("ignore", category=_category, module=SOURCE)


def parse_expression(text: str) -> ast.Expression:
    """The syntax tree of one expression. SyntaxError, ValueError, RecursionError and MemoryError as ``ast.parse``."""
    return cast("ast.Expression", compile(text.strip(), SOURCE, "eval", ast.PyCF_ONLY_AST))


def parse_literal(text: str) -> Any:
    """The value of a Python literal. Errors as ``ast.literal_eval``: those of ``parse_expression``, and TypeError."""
    return ast.literal_eval(parse_expression(text))
