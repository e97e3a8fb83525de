"""Configuration: one frozen, validated value, from keyword arguments, a mapping, a file or the environment."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import fields
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from trajectory_guard.config.cursor import CURSOR_KEYS, CursorSettings
from trajectory_guard.config.file import decode_file
from trajectory_guard.config.messages import (
    UNKNOWN_KEY,
    ConfigError,
    Mistake,
    in_variables,
    unknown_key,
    wrong_type,
)
from trajectory_guard.config.part import Numbers, mistakes_of
from trajectory_guard.config.spending import BudgetSettings, ModelPrice
from trajectory_guard.config.templates import template_mistake
from trajectory_guard.config.tool_policy import ToolPolicy
from trajectory_guard.config.values import BaseUrl, Number, OptionalPath, ReadOnlyDict, Secret, Token, without_userinfo
from trajectory_guard.core.detectors import weights as default_weights
from trajectory_guard.core.settings import EngineSettings, SettingsError, ToolSettings, check_weights
from trajectory_guard.core.text import nearest
from trajectory_guard.quality.settings import QualityKeys

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from trajectory_guard.config.choices import Mode
    from trajectory_guard.config.keys import GuardKeys
else:
    Mode = str  # validated by the pattern, which gives the messages

ENV_PREFIX: Final = "TRAJECTORY_GUARD_"
_OTHER_VARIABLES: Final = ("config", "disabled")
_log: Final = logging.getLogger("trajectory_guard")
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": (
        "certificate_key", "decay", "dialects", "history_steps", "max_score", "max_understood_chars", "redact",
        "weights",
    ),
    "policy": (
        "max_nudges", "max_polls", "max_wait_s", "nudge_threshold", "poll_patience", "renudge", "slow_gap_s",
        "stop_patience", "stop_threshold", "tools",
    ),
    "model": ("calibration", "model_download", "model_path"),
    "gate": ("mode", "nudge_text", "on_intervention", "stop_text"),
    "collector": ("collector_timeout_s", "collector_token", "collector_url"),
    "langfuse": ("langfuse_batches_per_minute", "langfuse_max_waiting", "langfuse_scores"),
    "spending": ("budgets", "model_prices", "outlier_deviations", "outlier_tokens", "spending_file", "track_spending"),
    "quality": (
        "quality_deviations", "quality_drop", "quality_evaluations", "quality_floor", "quality_judge", "quality_queue",
        "quality_recent", "quality_sample", "quality_timeout_s", "quality_window", "track_quality",
    ),
    "record": CURSOR_KEYS,
    "limits": ("idle_ttl_s", "max_open_spans", "max_trajectories", "open_span_ttl_s"),
}  # fmt: skip
"""The keys of each section that a configuration file may have; without sections the keys are the same."""
SECTION_OF: Final[Mapping[str, str]] = {key: section for section, keys in SECTIONS.items() for key in keys}
GATE_KEYS: Final = frozenset(SECTIONS["gate"])
"""Keys that concern one gate alone: gates of one process may differ in them."""
_MAX_SHOWN: Final = 80
_WRAPPERS: Final = ("guard", "tool", "trajectory_guard", "trajectory-guard")
"""Keys below which other programs, and the collector, have the keys of the guard."""
_AT_THE_TOP: Final = " (this file has the guard's keys at its top, or in sections such as 'policy')"
_OF_A_FILE: Final = "; GuardConfig.from_file(path) reads a file"
_ENGINE: Final = EngineSettings()


class GuardConfig(CursorSettings, QualityKeys, Numbers):
    """Everything that can be set, with defaults. Frozen; equal configurations compare equal.

    Raises:
        ConfigError: unknown key, wrong type, or values that contradict each other; all mistakes are listed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=False)

    nudge_threshold: float = Field(default=_ENGINE.nudge_threshold, gt=0.0)
    """Score from which a nudge may become due."""
    stop_threshold: float = Field(default=_ENGINE.stop_threshold, gt=0.0)
    """Score from which a stop may become due, after as many delivered nudges and further steps as the finding's
    certainty requires."""
    max_score: float = Field(default=_ENGINE.max_score, gt=0.0)
    """Cap of the score; health = 1 - score / max_score."""
    decay: float = Field(default=_ENGINE.decay, ge=0.0, lt=1.0)
    """Factor on the score per step without a finding."""
    weights: Mapping[str, Number] = Field(default_factory=default_weights, validate_default=True)
    """Weight per loop type; types left out keep their default, 0 switches a detector off."""
    history_steps: int = Field(default=_ENGINE.history_steps, ge=12, le=4096)
    """Steps remembered per run."""
    stop_patience: int = Field(default=_ENGINE.stop_patience, ge=1, le=1000)
    """Unproductive steps after a delivered nudge before a stop, where the finding is certain."""
    renudge: int = Field(default=_ENGINE.renudge, ge=1, le=1000)
    """Least number of unproductive steps between two nudges, and before a stop, where the evidence is likely."""
    max_nudges: int | None = Field(default=_ENGINE.max_nudges, ge=2, le=1000)
    """Nudges within 192 steps, the first of them at least 64 steps ago, after which a further one is a stop, whatever
    the rules and whatever the agent did between them; or as many, however far apart, without progress between them.
    None: no number of them. Waits do not count."""
    max_polls: int | None = Field(default=_ENGINE.max_polls, ge=2)
    """Repeats of a waiting call at which a stop may become due; by default waiting is never stopped."""
    max_wait_s: float | None = Field(default=_ENGINE.max_wait_s, gt=0.0)
    """Seconds of waiting at which a stop may become due; by default waiting is never stopped."""
    max_understood_chars: int = Field(default=_ENGINE.max_understood_chars, ge=256, le=1_048_576)
    """Characters of a call, arguments and result together, that are masked, normalised and searched for words; a longer
    call is compared by fingerprints (and counted)."""
    slow_gap_s: float = Field(default=_ENGINE.slow_gap_s, ge=0.0)
    """Idle seconds from which a pause is an uncertain boundary: findings that reach across it are likely at most, and
    the score decays."""
    poll_patience: int = Field(default=_ENGINE.poll_patience, ge=1, le=1000)
    """Factor on the number of repeats while something is under way; once more where a pause lies between them."""
    tools: Mapping[str, ToolPolicy] = Field(default_factory=dict, validate_default=True)
    """Policies by tool name, compared case-folded."""
    mode: Mode = Field(default="enforce", pattern="^(enforce|nudge|observe)$")
    """Interventions of gates: ``enforce`` nudges and stops, ``nudge`` never stops, ``observe`` only records."""
    nudge_text: str | Callable[..., Any] | None = None
    """Text of the nudge: a template (``{tool}``, ``{count}``, ``{reason}``) or a callable that is given the verdict."""
    stop_text: str | Callable[..., Any] | None = None
    """Text a stopped run ends with, as ``nudge_text``; read by the end user."""
    on_intervention: Callable[..., Any] | None = None
    """Called with an ``Intervention`` at each nudge and stop; sync or async. Its errors are contained."""
    model_path: str | None = None
    """Directory with a sentence model (ONNX) for calls the comparator is unsure of; needs the extra ``semantic``."""
    model_download: bool = False
    """Whether fastembed may fetch its default model; without it nothing is ever downloaded."""
    calibration: str | None = None
    """File with calibrated thresholds, as written by ``trajectory-guard calibrate``."""
    dialects: tuple[Mapping[str, Any], ...] = ()
    """Further span dialects, by attribute names; see ``dialects.custom_dialect``."""
    redact: bool = _ENGINE.redact
    """Keep hashes only: no excerpt of arguments or results in messages, logs or state."""
    certificate_key: Secret = None
    """Signs the certificates of nudges and stops (HMAC-SHA-256); without it they carry a digest only."""
    collector_url: BaseUrl = Field(default=None, pattern="^https?://")
    """Base URL of a collector whose flags gates heed too, as in ``http://localhost:8888``."""
    collector_token: Token = None
    """Bearer token for it."""
    collector_timeout_s: float = Field(default=0.2, gt=0.0, le=10.0)
    """Seconds a gate waits for its answer; without one the run goes on."""
    langfuse_scores: bool = False
    """Write scores to Langfuse; address and keys from ``LANGFUSE_*`` variables. Needs the extra ``langfuse``."""
    langfuse_max_waiting: int = Field(default=1_000, ge=1)
    """Scores that may wait for Langfuse; beyond it the oldest are dropped (and counted)."""
    langfuse_batches_per_minute: float = Field(default=30.0, gt=0.0, le=6_000.0)
    """Batches of up to 15 scores; 30 is what the smallest plan of Langfuse Cloud allows."""
    budgets: tuple[BudgetSettings, ...] = ()
    """Limits on spending, by trajectory, agent, service or day; gates act on them before a model is called."""
    model_prices: Mapping[str, ModelPrice] = Field(default_factory=dict, validate_default=True)
    """USD per million tokens by model, as spans name it; they come before those of the extra ``prices``."""
    outlier_deviations: float = Field(default=3.0, ge=0.0, le=1_000.0)
    """Standard deviations above an agent's usual tokens from which a model call is reported; 0 reports none."""
    outlier_tokens: int = Field(default=1_000, ge=0)
    """Tokens above them below which a model call is not reported, however many deviations they are."""
    spending_file: OptionalPath = Field(default=None, min_length=1)
    """SQLite file of the ledger, which processes of one machine share; by default it is kept in memory."""
    track_spending: bool = False
    """Keep the ledger without any budget; budgets and a file do so by themselves."""
    max_trajectories: int = Field(default=10_000, ge=1)
    """Trajectories held in memory; the longest idle ones are evicted (and counted)."""
    idle_ttl_s: float = Field(default=3600.0, gt=0.0)
    """Seconds after which an idle trajectory is evicted (and counted)."""
    max_open_spans: int = Field(default=10_000, ge=1)
    """Spans that have started and not ended which are tracked for identity; older ones are dropped (and counted)."""
    open_span_ttl_s: float = Field(default=900.0, gt=0.0, le=1e9)
    """Seconds after which a tool span that has not ended is dropped (and counted)."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            data = {key: value for key, value in data.items() if value is not None or not _holds_many(cls, key)}
            for key in _NAMES & data.keys():
                if isinstance(data[key], str) and "," not in data[key]:
                    data[key] = (data[key],)  # one name, instead of a list of one
            if isinstance(data.get("weights"), Mapping):
                data["weights"] = {**default_weights(), **data["weights"]}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> GuardConfig:
        self.engine_settings()
        return self

    if not TYPE_CHECKING:  # type checkers refuse such a call themselves

        def __new__(cls, *given: Any, **values: Any) -> GuardConfig:
            """Refuse what is not given by name, with the method that takes it."""
            if given:
                ways = f"{_OF_A_FILE}, GuardConfig.from_mapping(values) takes a mapping"
                raise ConfigError(f"GuardConfig takes its keys by name, got {type(given[0]).__name__}{ways}")
            return super().__new__(cls)

    def __init__(self, **values: Unpack[GuardKeys]) -> None:
        try:
            super().__init__(**cast("dict[str, Any]", values))
        except ValidationError as error:
            raise ConfigError(*mistakes_of(error, type(self), _INNER, _SECRETS)).at("GuardConfig") from None

    @field_validator("weights")
    @classmethod
    def _of_known_types(cls, weights: Mapping[str, float]) -> Mapping[str, float]:
        check_weights(weights)  # here as well, so that it is reported together with other mistakes
        return weights

    @field_validator("tools", mode="before")
    @classmethod
    def _case_folded(cls, tools: Any) -> Any:
        if not isinstance(tools, Mapping):
            return tools
        written: dict[str, str] = {}
        for name in map(str, tools):
            if (first := written.setdefault(name.casefold(), name)) != name:
                raise SettingsError(f"tools.{name}", f"given twice, as {first!r} too")
        return {str(name).casefold(): policy for name, policy in tools.items()}

    @field_validator("weights", "tools", "model_prices")
    @classmethod
    def _read_only(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return ReadOnlyDict(values)

    @field_validator("nudge_text", "stop_text")
    @classmethod
    def _template(cls, text: Any) -> Any:
        if isinstance(text, str) and (mistake := template_mistake(text)) is not None:
            raise ValueError(mistake)
        return text

    @field_validator("dialects")
    @classmethod
    def _readable(cls, dialects: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
        if dialects:  # the modules of all dialects, which a configuration without any does not need
            from trajectory_guard.dialects.custom import custom_dialect
        for index, mapping in enumerate(dialects):
            custom_dialect(mapping, where=f"dialects[{index}]")
        return dialects

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, source: str = "configuration") -> GuardConfig:
        """Build from decoded JSON, TOML or YAML, with or without ``SECTIONS``; ``source`` names it in errors."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"{source}: expected a mapping, got {type(values).__name__}{_OF_A_FILE}")
        flat, written, mistakes = _without_sections(values, cls.model_fields)
        try:
            config = cls(**flat)
        except ConfigError as error:
            mistakes = [*(_where_written(one, written) for one in error.mistakes), *mistakes]
        if mistakes:
            raise ConfigError(*mistakes).at(source)
        return config

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> GuardConfig:
        """Read a ``.json``, ``.toml``, ``.yaml`` or ``.yml`` file (YAML needs PyYAML)."""
        file = Path(path)
        try:
            data = decode_file(file)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise ConfigError(*str(error).splitlines()).at(str(file)) from None
        if not isinstance(data, Mapping):
            raise ConfigError(f"{file}: expected a mapping at the top level, got {type(data).__name__}")
        return cls.from_mapping(data, source=str(file))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> GuardConfig:
        """Read ``TRAJECTORY_GUARD_<KEY>`` variables; values are JSON or plain text, an empty one counts as not set.

        ``TRAJECTORY_GUARD_CONFIG`` names a file that is read first; single variables override it.
        """
        if environ is None:
            environ = os.environ
            for problem in unknown_variables(environ):
                _log.warning("trajectory_guard: %s", problem)
        file = environ.get(config := f"{ENV_PREFIX}CONFIG")
        try:
            values: dict[str, Any] = cls.from_file(file).model_dump(exclude_unset=True) if file else {}
        except ConfigError as error:
            raise ConfigError(*(one if one.source else one._replace(source=config) for one in error.mistakes)) from None
        variables = {name: f"{ENV_PREFIX}{name.upper()}" for name in cls.model_fields}
        variables = {name: key for name, key in variables.items() if environ.get(key, "").strip()}
        values |= {name: decoded(name, environ[key]) for name, key in variables.items()}
        try:
            return cls.from_mapping(values, source=f"environment ({ENV_PREFIX}*)")
        except ConfigError as error:
            raise ConfigError(*in_variables(error.mistakes, variables, values)) from None

    def engine_settings(self) -> EngineSettings:
        """The part of the configuration that the engine is set by.

        Raises:
            SettingsError: values contradict each other.
        """
        values = {name: getattr(self, name) for name in _ENGINE_KEYS}
        if self.certificate_key is not None:
            values["certificate_key"] = self.certificate_key.get_secret_value()
        tools = {name: ToolSettings(**dict(policy)) for name, policy in self.tools.items()}
        # a guard that only nudges goes on nudging, ever more rarely
        return EngineSettings(**values, tools=tools, may_stop=self.mode != "nudge")

    def with_gate_keys(self, given: GuardConfig | None) -> GuardConfig:
        """This configuration, with the keys that are a gate's own as ``given`` has them."""
        if given is None:
            return self
        return self.model_copy(update={key: getattr(given, key) for key in GATE_KEYS & type(self).model_fields.keys()})


def check_config(config: object) -> None:
    """Raise TypeError unless ``config`` is a configuration, or None."""
    if config is not None and not isinstance(config, GuardConfig):
        raise wrong_type("config", "a GuardConfig", config)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence on each ``TRAJECTORY_GUARD_*`` variable that nothing reads, with the nearest name that is read."""
    known = {ENV_PREFIX + key.upper() for key in (*GuardConfig.model_fields, *_OTHER_VARIABLES)}
    names = sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)
    return [f"{name} is no setting of the guard and has no effect{nearest(name, known)}" for name in names]


def is_disabled() -> bool:
    """Whether ``TRAJECTORY_GUARD_DISABLED`` switches the guard off: no span is evaluated, and gates only observe."""
    return _disabled() in TRUE


def unclear_switch() -> str | None:
    """The value of ``TRAJECTORY_GUARD_DISABLED`` if it says neither yes nor no: the guard then stays on."""
    return None if _disabled() in ("", *TRUE, *FALSE) else _disabled()


def _disabled() -> str:
    return os.environ.get(f"{ENV_PREFIX}DISABLED", "").strip().lower()


TRUE: Final = ("1", "true", "yes", "on")
FALSE: Final = ("0", "false", "no", "off")


def _holds_many(model: type[BaseModel], key: str) -> bool:
    """Whether a key has a list or a mapping: None, and an empty key of a file, leave it empty."""
    field = model.model_fields.get(key)
    return field is not None and get_origin(field.annotation) in (tuple, Mapping)


_NAMES: Final = {key for key, field in GuardConfig.model_fields.items() if field.annotation == tuple[str, ...]}
"""Keys that have a list of names."""
_TEXTS: Final = {
    key
    for key, field in GuardConfig.model_fields.items()
    if {str, SecretStr} & {field.annotation, *get_args(field.annotation)} and not _holds_many(GuardConfig, key)
}
"""Keys that take text: a token of digits is no number, and one that is ``on`` no switch."""
_SECRETS: Final = {key for key, field in GuardConfig.model_fields.items() if SecretStr in get_args(field.annotation)}
_INNER: Final[Mapping[str, type[BaseModel]]] = {
    "tools": ToolPolicy,
    "budgets": BudgetSettings,
    "model_prices": ModelPrice,
}
_ENGINE_KEYS: Final = tuple(
    one.name for one in fields(EngineSettings) if one.name in GuardConfig.model_fields and one.name != "tools"
)


def differences(
    before: GuardConfig, now: GuardConfig, *, ignore: Set[str] = frozenset(), only: Set[str] | None = None
) -> list[str]:
    """The keys in which two configurations differ, with both values, in the order of the keys; secrets are masked.

    >>> differences(GuardConfig(), GuardConfig(redact=True, tools={"search": {"poll": True}}))
    ["tools.search: not set, {'poll': True}", 'redact: False, True']
    """
    found: list[str] = []
    for key in type(before).model_fields:
        one, other = getattr(before, key), getattr(now, key)
        if key in ignore or (only is not None and key not in only) or _same(one, other):
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            parts = [part for part in dict.fromkeys((*one, *other)) if not _same(one.get(part), other.get(part))]
            found += [f"{key}.{part}: {_shown(one.get(part))}, {_shown(other.get(part))}" for part in parts]
        else:
            found.append(f"{key}: {_shown(one)}, {_shown(other)}")
    return found


def _same(one: Any, other: Any) -> bool:
    """Equality of values that may be anything: of functions and objects, and of what cannot be compared, identity."""
    try:
        return one is other or bool(one == other) or _is_defined_again(one, other)
    except Exception:
        return False


def _is_defined_again(one: Any, other: Any) -> bool:
    """Whether a function was defined once more: a cell of a notebook ran again, or a module was reloaded.

    Only one function at the top of a module has its name; functions within functions, and lambdas, share theirs.
    """
    if not (isinstance(one, FunctionType) and isinstance(other, FunctionType)) or "<" in one.__qualname__:
        return False
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    name = getattr(value, "__qualname__", None) if callable(value) else None
    text = f"{getattr(value, '__module__', '?')}.{name}" if name else without_userinfo(repr(value))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def decoded(key: str, text: str) -> Any:
    """The value of ``key`` as a variable or an option gives it: JSON or plain text.

    >>> decoded("decay", "0.5"), decoded("redact", "on"), decoded("collector_token", "12345")
    (0.5, True, '12345')
    """
    value = _from_text(text)
    if key in _TEXTS and value is not None and (not isinstance(value, str) or value == text):
        return text.strip()
    return value


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"on": True, "yes": True, "off": False, "no": False, "True": True, "False": False}.get(text, text)


def _without_sections(
    values: Mapping[str, Any], known: Collection[str]
) -> tuple[dict[str, Any], dict[str, str], list[Mistake]]:
    """Keys with their values, whatever section they stand in; the path at which each was written; and mistakes."""
    flat: dict[str, Any] = {}
    written: dict[str, str] = {}
    mistakes: list[Mistake] = []
    for name, value in values.items():
        section = str(name) if name in SECTIONS else ""
        if section and not isinstance(value, (Mapping, type(None))):
            mistakes.append(Mistake(section, f"expected a mapping, got {type(value).__name__}"))
            continue
        for key, one in (value or {}).items() if section else ((name, value),):
            path = f"{section}.{key}" if section else str(key)
            wrong = _misplaced(str(key), section, known)
            if wrong is None and key in flat:
                wrong = f"given twice, as {written[key]!r} too"
            if wrong is not None:
                mistakes.append(Mistake(path, wrong))
            else:
                flat[key], written[key] = one, path
    return flat, written, mistakes


def _misplaced(key: str, section: str, known: Collection[str]) -> str | None:
    """The reason why a key cannot stand in a section (empty: in none), None if it can."""
    if key not in known:
        candidates = SECTIONS[section] if section else (*known, *SECTIONS)
        longer, plain = f"{section}_{key}", key.lower().removeprefix(ENV_PREFIX.lower())
        if plain in _WRAPPERS and not section:
            return UNKNOWN_KEY + _AT_THE_TOP
        return unknown_key(longer if longer in candidates else plain, candidates)
    if section and SECTION_OF[key] != section:
        return f"belongs in the section {SECTION_OF[key]!r}"
    return None


def _where_written(mistake: Mistake, written: Mapping[str, str]) -> Mistake:
    """The mistake at the path that the user wrote, section included."""
    key, dot, rest = mistake.path.partition(".")
    return mistake._replace(path=f"{written.get(key, key)}{dot}{rest}")
