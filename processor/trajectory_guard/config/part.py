"""Parts of a configuration that are written by themselves, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from trajectory_guard.config.messages import ConfigError, Mistake, sentence, unknown_key
from trajectory_guard.config.values import no_truth_value, takes_number, without_userinfo
from trajectory_guard.core.settings import SettingsError

_MAX_MESSAGE_CHARS: Final = 500
_NO_PARTS: Final[Mapping[str, type[BaseModel]]] = MappingProxyType({})


class Numbers(BaseModel):
    """Keys with numbers take finite numbers, and no truth values: pydantic makes ``true`` a limit of 1."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        return no_truth_value(value) if takes_number(cls.model_fields[info.field_name or ""].annotation) else value


class PartModel(Numbers):
    """A part of a configuration. Frozen.

    Raises:
        ConfigError: unknown key, wrong type, or values that contradict each other; all mistakes are listed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)

    if not TYPE_CHECKING:  # type checkers see the keys of each part

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(*mistakes_of(error, type(self))).at(type(self).__name__) from None

        # within a configuration parts are validated by pydantic alone: the mistakes then have their whole path
        __init__.__pydantic_base_init__ = True


def mistakes_of(
    error: ValidationError,
    model: type[BaseModel],
    inner: Mapping[str, type[BaseModel]] = _NO_PARTS,
    secrets: Collection[str] = (),
) -> Iterator[Mistake]:
    """The mistakes behind an error of pydantic.

    Parameters:
        model: the model that was validated; inner: the models of its keys that hold others.
        secrets: keys whose values are not shown.
    """
    for item in error.errors():
        path, reason = ".".join(str(part) for part in item["loc"]), item.get("ctx", {}).get("error")
        if item["type"] == "extra_forbidden":
            known = inner.get(str(item["loc"][0]), model).model_fields
            yield Mistake(path, unknown_key(str(item["loc"][-1]), known))
        elif isinstance(reason, SettingsError):
            yield Mistake(reason.path, reason.message)
        else:
            says_what = item["type"] == "missing" or (item["loc"][:1], item["type"]) == (("dialects",), "value_error")
            is_shown = path and not says_what and item["loc"][0] not in secrets
            value = f", got {without_userinfo(repr(item['input']))}" if is_shown else ""
            yield Mistake(path, (sentence(item) + value)[:_MAX_MESSAGE_CHARS])
