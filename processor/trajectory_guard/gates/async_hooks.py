"""Asynchronous hooks of middleware that ``create_agent`` calls without a detour over the host's thread pool.

``create_agent`` wraps each hook in LangSmith's ``traceable``. Around a coroutine function that begins and ends a run on
the loop's default executor, with tracing switched off, too: while that pool is busy, or waits for this agent, every
model call waits as well. Around a plain function, which may return a coroutine, it works on the loop itself.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from langsmith.utils import tracing_is_enabled

Hook = TypeVar("Hook", bound=Callable[..., Any])


class WrappedMethod:
    """A method that shows itself otherwise in some places: subclasses define ``__get__``. May wrap another one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self._function = function  # not before: what is wrapped may have such an attribute, too


class _AsyncHook(WrappedMethod):
    """An asynchronous method that an instance shows as a plain function while LangSmith traces nothing.

    A trace would show a run that ends at once and has no children, so a traced agent gets the method as it is.
    """

    def __get__(self, instance: Any, owner: type) -> Any:
        method = self._function.__get__(instance, owner)
        if instance is None or tracing_is_enabled():
            return method

        def hook(request: Any, handler: Any) -> Awaitable[Any]:
            return cast(Awaitable[Any], method(request, handler))

        hook.__name__, hook.__qualname__, hook.__doc__ = method.__name__, method.__qualname__, method.__doc__
        return hook


def without_a_pool(function: Hook) -> Hook:
    """Decorator for ``awrap_model_call`` and ``awrap_tool_call``: the host's thread pool has no part in them."""
    return cast(Hook, _AsyncHook(function))
