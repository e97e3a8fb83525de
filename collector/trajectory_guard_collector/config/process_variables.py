"""Variables that configure the guard within an application, and that a service ignores in its environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from trajectory_guard.config import ENV_PREFIX, ConfigError, GuardConfig
from trajectory_guard_collector.config.checks import NOT_IN_THE_COLLECTOR


def ignored_variables(guard: GuardConfig, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """A sentence on each ``TRAJECTORY_GUARD_<KEY>`` variable that asks for another value than ``guard`` has.

    A user who sets ``TRAJECTORY_GUARD_MODE=observe`` expects that no agent is stopped. Variables of keys that only an
    application has are left out: one environment often serves both.

    Parameters:
        guard: the section in effect.
        environ: variables; those of the process by default.
    """
    environ = os.environ if environ is None else environ
    for key in GuardConfig.model_fields:
        name = f"{ENV_PREFIX}{key.upper()}"
        text = environ.get(name, "")
        if text.strip() and key not in NOT_IN_THE_COLLECTOR and not _is_in_effect(guard, key, name, text):
            yield (
                f"{name} has no effect here: it configures the guard within an application. "
                f"To use it here too, set guard.{key} to ${{env:{name}}}"
            )
    for name, instead in _OTHERS.items():
        if environ.get(name, "").strip().lower() not in _OFF:
            yield f"{name} has no effect here: {instead}"


_OFF = ("", "0", "false", "no", "off")
_OTHERS = {
    f"{ENV_PREFIX}CONFIG": "name the file with --config, and put keys of the guard under guard",
    f"{ENV_PREFIX}DISABLED": "with guard.mode observe no agent is nudged or stopped",
}


def _is_in_effect(guard: GuardConfig, key: str, name: str, text: str) -> bool:
    try:
        asked = GuardConfig.from_env({name: text})
    except ConfigError:
        return False
    return bool(getattr(asked, key) == getattr(guard, key))
