"""The configuration files: $XDG_CONFIG_HOME/latmon/config.yaml over /etc/xdg/latmon/config.yaml.

An option beats the environment, the environment beats this file. A mistake is a UsageError that names file and key.
Under sudo the user's file is read as that user, and its keys that name a tool don't count: the tool runs as root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from latmon.capture.backend import STAGES_MODES
from latmon.findings.rule import DEFAULT, Settings, settings_of
from latmon.support import paths
from latmon.support.errors import UsageError
from latmon.support.privileges import Invoker, acting_as
from latmon.support.units import duration_us, show_duration

SYSTEM = Path("/etc/xdg/latmon/config.yaml")
MAX_BYTES = 64 * 1024
MIN_INTERVAL_US = 100_000
MAX_INTERVAL_US = 60_000_000
MIN_HISTORY_US = 60_000_000
MAX_HISTORY_US = 86_400_000_000
MAX_BUDGET = 100.0


@dataclass(frozen=True, slots=True)
class Config:
    """None: the file doesn't say. `bpftrace` and `dtrace` are the tools to run, as the variables LATMON_... are."""

    theme: str | None = None
    interval: int | None = None
    backend: str | None = None
    bpftrace: str | None = None
    dtrace: str | None = None
    threshold: int | None = None
    stages: str | None = None
    history: int | None = None
    """How far back the screen can go, in us."""
    budget_percent: float | None = None
    """Of one CPU, for the deep probes; 0: none."""
    sweep: bool | None = None
    """Heat maps overwrite their oldest column instead of moving to the left: less for a very slow link."""
    findings: Settings = DEFAULT
    """The rules' own numbers, and which of them are off."""
    named_in: Mapping[str, Path] = field(default_factory=dict, compare=False)
    """The file that names a tool, by the tool's key."""
    ignored: str = field(default="", compare=False)
    """The sentence about keys of the user's file that don't count as root; empty where all count."""


def interval_us(text: str) -> int:
    """A duration from 100ms to 60s; ValueError says which are."""
    value = duration_us(text)
    if not MIN_INTERVAL_US <= value <= MAX_INTERVAL_US:
        limits = f"{show_duration(MIN_INTERVAL_US)} to {show_duration(MAX_INTERVAL_US)}"
        raise ValueError(f"{text!r} is not an interval from {limits}")
    return value


def threshold_us(text: str) -> int:
    """A duration; 0 makes every I/O an outlier."""
    return duration_us(text)


def history_us(text: str) -> int:
    """A duration from 1m to 24h."""
    value = duration_us(text)
    if not MIN_HISTORY_US <= value <= MAX_HISTORY_US:
        limits = f"{show_duration(MIN_HISTORY_US)} to {show_duration(MAX_HISTORY_US)}"
        raise ValueError(f"{text!r} is not a history from {limits}")
    return value


def stages_mode(text: str) -> str:
    """One of STAGES_MODES."""
    if text not in STAGES_MODES:
        raise ValueError(f"{text!r} is not one of {', '.join(STAGES_MODES)}")
    return text


def budget_percent(text: str) -> float:
    """0 (no budget) to 100."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_BUDGET:
        raise ValueError(f"{text!r} is not a share of one CPU from 0 (no budget) to {MAX_BUDGET:g} percent")
    return value


def _text(value: str) -> str:
    if not value or not value.isprintable():
        raise ValueError(f"{value!r} is not a name")
    return value


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is not true or false")
    return text.lower() == "true"


_KEYS: Mapping[str, Callable[[str], Any]] = {
    "theme": _text,
    "interval": interval_us,
    "backend": _text,
    "bpftrace": _text,
    "dtrace": _text,
    "threshold": threshold_us,
    "stages": stages_mode,
    "history": history_us,
    "budget_percent": budget_percent,
    "sweep": _flag,
}
TOOLS = ("bpftrace", "dtrace")
"""The keys that decide which program runs as root."""
_FLAGS = frozenset({"sweep"})
_RULES = "findings"
"""The one key that is a section."""
_ALL = ", ".join((*_KEYS, _RULES))


def load(environ: Mapping[str, str], system: Path = SYSTEM, user: Invoker | None = None) -> Config:
    """What the two files say together; a file that isn't there says nothing. `user`: who called sudo."""
    config = _with(Config(), system, _read(system, DEFAULT))
    path = paths.config(environ) / "config.yaml"
    with acting_as(user):
        values = _read(path, config.findings)
    if user is None:
        return _with(config, path, values)
    ignored = [key for key in TOOLS if values.pop(key, None) is not None]
    return replace(_with(config, path, values), ignored=_ignored(path, ignored, user, system) if ignored else "")


def _with(config: Config, path: Path, values: Mapping[str, Any]) -> Config:
    named_in = {key: path for key in TOOLS if key in values}
    return replace(config, **values, named_in={**config.named_in, **named_in})


def _ignored(path: Path, keys: Sequence[str], user: Invoker, system: Path) -> str:
    what = f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'}"
    return (
        f"{path}: {what} ignored under sudo, because {user.name} can change that file and the tool runs as root: "
        f"name the tool in {system} instead"
    )


def _read(path: Path, findings: Settings) -> dict[str, Any]:
    """`findings`: what a file before it says of rules."""
    try:
        raw = paths.regular(path, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: longer than {MAX_BYTES} bytes, this is no config of latmon's")
    values = _parse(path, raw)
    if not isinstance(values, dict):
        raise UsageError(f"{path}: expected lines of `key: value` with the keys {_ALL}")
    return {key: _checked(path, key, value, findings) for key, value in values.items()}


def _parse(path: Path, raw: bytes) -> Any:
    import yaml  # noqa: PLC0415 - 27 ms that only a user with a config file pays

    from latmon.support import strict_yaml  # noqa: PLC0415

    try:
        values = strict_yaml.load(raw)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: not valid YAML: {type(error).__name__}") from None
    return {} if values is None else values


def _checked(path: Path, key: object, value: object, findings: Settings) -> Any:
    if key == _RULES:
        return _rules(path, value, findings)
    check = _KEYS.get(key) if isinstance(key, str) else None
    if check is None:
        raise UsageError(f"{path}: unknown key {key!r}; the keys are {_ALL}")
    if (isinstance(value, bool) and key not in _FLAGS) or not isinstance(value, str | int | float):
        raise UsageError(f"{path}: {key}: expected one value, not {type(value).__name__}")
    try:
        return check(str(value))
    except ValueError as error:
        raise UsageError(f"{path}: {key}: {error}") from None


def _rules(path: Path, value: object, known: Settings) -> Settings:
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{path}: {_RULES}: expected a section of rules: `peer-outlier: {{octaves: 3}}` or `NAME: off`"
        )
    try:
        return settings_of(value, known)
    except ValueError as error:
        raise UsageError(f"{path}: {_RULES}: {error}") from None
