"""Loads configuration files as a ``CollectorConfig``, or raises one error that lists all mistakes."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from trajectory_guard.config import SECTIONS, ConfigError, GuardConfig, Mistake
from trajectory_guard.config.messages import sentence, unknown_key
from trajectory_guard.config.yaml_file import from_yaml
from trajectory_guard_collector.config.checks import UNKNOWN_KEY, without_secrets
from trajectory_guard_collector.config.models import CollectorConfig
from trajectory_guard_collector.config.references import FORGOTTEN, Text, forgets_braces, resolve
from trajectory_guard_collector.config.sources import COMMAND_LINE, Removed, Sources, read_file, read_override

M = TypeVar("M", bound=BaseModel)
_GUARD: Final = "guard"
_MAX_SHOWN: Final = 80
_SCALARS: Final = (str, SecretStr, Enum, int, float)
_NOT_A_MAPPING: Final = ("model_type", "mapping_type", "dict_type")
_EXPECTED: Final = {"tuple_type": "expected a list, such as [a, b]", "string_type": "expected text (quote it)"}


def load_config(
    paths: Sequence[str], environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> CollectorConfig:
    """``load_as`` for the collector."""
    return load_as(CollectorConfig, paths, environ, overrides)


def load_as(
    model: type[M], paths: Sequence[str], environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> M:
    """Read and merge files, replace references, and check everything. Without files and overrides: the defaults.

    Parameters:
        model: the configuration to read; it has a section ``guard``.
        paths: ``.yaml``, ``.yml``, ``.json`` or ``.toml`` files. Later ones win, key by key; lists are replaced.
        environ: variables for ``${env:NAME}``; those of the process by default.
        overrides: ``key.path=value``, over the files.

    Raises:
        ConfigError: one line for each mistake, with file, key path, and the nearest key if one is unknown.
    """
    sources = _sources(paths, overrides)
    problems = list(_forgotten(sources.values, model))
    values = resolve(
        sources.values,
        os.environ if environ is None else environ,
        lambda path, message: problems.append(Mistake(path, message)),
    )
    unresolved = tuple(problem.path for problem in problems)
    config = _build(model, _fit(values, model), problems)
    if config is None or problems:
        resolved = [one for one in problems[len(unresolved) :] if not _is_within(one.path, unresolved)]
        located = [_located(sources, problem) for problem in (*problems[: len(unresolved)], *resolved)]
        raise ConfigError(*dict.fromkeys(located))
    return config


def _sources(paths: Sequence[str], overrides: Sequence[str]) -> Sources:
    sources = Sources()
    broken: list[Mistake] = []
    for path in paths:
        try:
            sources.add(read_file(path), path)
        except ConfigError as error:  # noqa: PERF203  every file is read, so that all mistakes are reported
            broken += error.mistakes
    for override in overrides:
        try:
            sources.add(read_override(override), COMMAND_LINE)
        except ConfigError as error:  # noqa: PERF203
            broken += error.mistakes
    if broken:
        raise ConfigError(*broken)
    return sources


def _forgotten(value: Any, annotation: Any, path: str = "") -> Iterator[Mistake]:
    """Credentials that are variables without their braces: sent as they are, they would be refused far away."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _forgotten(one, _inner(annotation, key), f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _forgotten(one, _inner(annotation, ""), f"{path}.{index}")
    elif isinstance(value, str) and SecretStr in _alternatives(annotation) and forgets_braces(value):
        yield Mistake(path, FORGOTTEN)


def _located(sources: Sources, problem: Mistake) -> Mistake:
    where = f"{problem.path}: " if problem.path else ""
    return Mistake("", where + problem.message, sources.origin(problem.path))


def _is_within(path: str, parents: Sequence[str]) -> bool:
    return any(path == parent or path.startswith(f"{parent}.") for parent in parents)


# --- types of the models ---------------------------------------------------------------------------------------------


def _alternatives(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [one for alternative in get_args(annotation) for one in _alternatives(alternative)]
    return [annotation]


def _model(annotation: Any) -> type[BaseModel] | None:
    for one in _alternatives(annotation):
        if _is_class(one) and issubclass(one, BaseModel):
            return one
    return None


def _is_class(annotation: Any) -> TypeGuard[type]:
    """Whether an annotation is a class; before Python 3.11 ``tuple[X, ...]`` too is an instance of ``type``."""
    return isinstance(annotation, type) and get_origin(annotation) is None


def _inner(annotation: Any, key: str) -> Any:
    """The annotation of the value under a key, given the annotation of its parent; ``Any`` where it is not known."""
    model = _model(annotation)
    if model is GuardConfig and key in SECTIONS:
        return model  # the same keys, one level deeper
    if model is not None:
        return model.model_fields[key].annotation if key in model.model_fields else Any
    for one in _alternatives(annotation):
        arguments = get_args(one)
        if get_origin(one) is tuple:
            return arguments[0]
        if len(arguments) == 2:
            return arguments[1]
    return Any


def _annotation_at(model: type[BaseModel], path: Sequence[str | int]) -> Any:
    annotation: Any = model
    for key in path:
        annotation = _inner(annotation, str(key))
    return annotation


def _takes_text(annotation: Any) -> bool:
    """Whether the model converts text itself; it reads numbers better than YAML does (010 is ten)."""
    return any(
        get_origin(one) is Literal or (_is_class(one) and issubclass(one, _SCALARS))
        for one in _alternatives(annotation)
    )


def _fit(value: Any, annotation: Any) -> Any:
    """The values read, in the form that the models accept.

    A section without content has its defaults, as in the OpenTelemetry Collector (``grpc:`` switches gRPC on). One that
    is left out is as if no source had it: by null over a section with content, on the command line, or in a variable.
    """
    if isinstance(value, Text):
        value = _typed(value, annotation)
        value = Removed.REMOVED if value is None else value
    if value is Removed.REMOVED:
        return value if _is_section(annotation) else None
    model = _model(annotation)
    if value is None and model is not None and not any(field.is_required() for field in model.model_fields.values()):
        return {}
    if isinstance(value, dict):
        inner = {key: _fit(one, _inner(annotation, key)) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one is not Removed.REMOVED}
    if isinstance(value, list):
        fitted = [_fit(one, _inner(annotation, "")) for one in value]
        return [None if one is Removed.REMOVED else one for one in fitted]
    return Removed.REMOVED if value is None and _is_section(annotation) else value


def _is_section(annotation: Any) -> bool:
    return _model(annotation) is not None or any(get_origin(one) is Mapping for one in _alternatives(annotation))


def _typed(text: Text, annotation: Any) -> Any:
    if type(None) in _alternatives(annotation) and text.strip() in ("", "null", "~"):
        return None
    if _takes_text(annotation):
        return str(text)
    try:
        return from_yaml(text)
    except (yaml.YAMLError, ValueError):
        return str(text)


# --- checking --------------------------------------------------------------------------------------------------------


def _build(model: type[M], values: dict[str, Any], problems: list[Mistake]) -> M | None:
    guard = _guard(values.pop(_GUARD, {}), problems)
    try:
        return model.model_validate({**values, _GUARD: guard})
    except ValidationError as error:
        problems += (_problem(model, one) for one in error.errors(include_url=False))
        return None


def _guard(values: Any, problems: list[Mistake]) -> GuardConfig:
    if not isinstance(values, Mapping):
        problems.append(Mistake(_GUARD, f"expected a mapping, got {type(values).__name__}"))
        return GuardConfig()
    try:
        return GuardConfig.from_mapping(values, source=_GUARD)
    except ConfigError as error:
        problems += (Mistake(f"{_GUARD}.{one.path}" if one.path else _GUARD, one.message) for one in error.mistakes)
        return GuardConfig()


def _problem(whole: type[BaseModel], error: Any) -> Mistake:
    place = [str(key) for key in error["loc"]]
    path, kind = ".".join(place), error["type"]
    if kind == UNKNOWN_KEY:
        model = _model(_annotation_at(whole, place[:-1]))
        known = list(model.model_fields) if model is not None else []
        return Mistake(path, unknown_key(place[-1], known))
    if kind in _NOT_A_MAPPING:
        return Mistake(path, f"expected a mapping, got {type(error['input']).__name__}")
    message = _EXPECTED.get(kind) or sentence(error)
    return Mistake(path, message + _shown(error["input"], _annotation_at(whole, place)))


def _shown(value: Any, annotation: Any) -> str:
    """The value, unless it is or may hold a secret."""
    if _holds_secret(annotation) or not isinstance(value, (str, int, float)):
        return ""
    text = repr(without_secrets(value) if isinstance(value, str) else value)
    return f", got {text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"


def _holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_holds_secret, get_args(annotation)))
