"""The configuration files: $XDG_CONFIG_HOME/latmon/config.yaml over /etc/xdg/latmon/config.yaml.

An option overrides the environment, the environment overrides these files. An error is a UsageError that names file,
line and key. Under sudo the user's file is read as that user, and its keys that name a tool are ignored, as tools run
as root.

`latmon config` and `latmon rules` print what is in effect: settings with the file and the line, or the variable, that
sets them; rules with the condition that they report, and thresholds with the values of the config.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from latmon.cli import options, values
from latmon.cli.declaration import Option
from latmon.cli.options import SETTINGS
from latmon.cli.values import Kind
from latmon.findings.rule import (
    DEFAULT,
    MISSING,
    SEVERITIES,
    UNBOUNDED,
    WARNING,
    Rule,
    Settings,
    Threshold,
    settings_of,
)
from latmon.support import output_files, paths, trust
from latmon.support.errors import EXIT_DONE, UnavailableError, UsageError
from latmon.support.privileges import Invoker, acting_as
from latmon.support.streams import message
from latmon.support.text import aligned, clean
from latmon.support.units import show_duration

SYSTEM = Path("/etc/xdg/latmon/config.yaml")
MAX_BYTES = 64 * 1024
MAX_RECORD_US = 3_600_000_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Actions:
    """The section `on_finding`: what `latmon watch` does when a finding begins."""

    command: tuple[str, ...] = ()
    """Absolute path of a program and its arguments; it runs without a shell."""
    record_us: int = 0
    """Length of the recording that is saved; 0: none."""
    directory: Path | None = None
    """Where recordings are saved; None: the current directory."""
    severity: str = WARNING
    """The least severity."""
    quiet_us: int = 600_000_000
    """Time after which the same rule may act on the same device again."""
    gone_us: int = 60_000_000
    """Time without the finding after which it has ended."""
    syslog: bool = False
    """Whether syslog gets what is printed on stderr."""


@dataclass(frozen=True, slots=True)
class Config:
    """Values of the files: `config[THEME]` is None where no file sets the key of THEME."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Key of SETTINGS -> value."""
    views: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Saved views: name -> values by key."""
    findings: Settings = DEFAULT
    """Thresholds of the rules, and rules that are off."""
    on_finding: Actions = Actions()
    named_in: Mapping[str, Path] = field(default_factory=dict, compare=False)
    """Key -> the file that sets it."""
    ignored: str = field(default="", compare=False)
    """The sentence on keys of the user's file that are ignored as root; empty without."""

    def __getitem__(self, setting: Option[T]) -> T | None:
        value: T | None = self.values.get(setting.key)
        return value


SECTIONS = ("views", "findings", "on_finding")
TOOLS = (options.BPFTRACE, options.DTRACE)
"""Settings of which program runs as root."""
_FINDINGS, _VIEWS, _ON_FINDING = "findings", "views", "on_finding"
"""The keys that are sections."""
_ALL = ", ".join((*SETTINGS, *SECTIONS))


def load(environ: Mapping[str, str], system: Path = SYSTEM, user: Invoker | None = None) -> Config:
    """Return the values of both files, the user's over the system's. `user` is the user who called sudo."""
    config = _with(Config(), system, _read(system, DEFAULT))
    path = paths.config(environ) / "config.yaml"
    with acting_as(user):
        entries = _read(path, config.findings)
    if user is None:
        return _with(config, path, entries)
    ignored = [tool.key for tool in TOOLS if entries.pop(tool.key, None) is not None]
    return replace(_with(config, path, entries), ignored=_ignored(path, ignored, user, system) if ignored else "")


def load_file(path: Path) -> Config:
    """Return the values of one file, of which each is checked; of no file where there is none. Raises UsageError."""
    return _with(Config(), path, _read(path, DEFAULT))


def written(path: Path) -> Mapping[str, Any]:
    """Return keys and values as a file has them, which `load` has accepted; empty where there is none."""
    from latmon.support import strict_yaml  # noqa: PLC0415  as in _read

    try:
        return strict_yaml.parse(path, paths.regular(path, MAX_BYTES)) or {}
    except FileNotFoundError:
        return {}


def place(config: Config, key: str) -> str:
    """Return `FILE:LINE: KEY` of a key that a file sets, for a sentence on its value."""
    from latmon.support import strict_yaml  # noqa: PLC0415  as in _parse

    path = config.named_in[key]
    return f"{path}:{strict_yaml.line_of(paths.regular(path, MAX_BYTES), [key])}: {key}"


def _with(config: Config, path: Path, entries: Mapping[str, Any]) -> Config:
    """Return the config with the entries of a file."""
    values_by_key = {key: value for key, value in entries.items() if key in SETTINGS}
    sections = {key: value for key, value in entries.items() if key in SECTIONS}
    return replace(
        config,
        values={**config.values, **values_by_key},
        **sections,
        named_in={**config.named_in, **dict.fromkeys(entries, path)},
    )


def _ignored(path: Path, keys: Sequence[str], user: Invoker, system: Path) -> str:
    what = f"{' and '.join(keys)} {'is' if len(keys) == 1 else 'are'}"
    return (
        f"{path}: {what} ignored under sudo, because {user.name} can change that file and the tool runs as root: "
        f"name the tool in {system} instead"
    )


def _read(path: Path, findings: Settings) -> dict[str, Any]:
    """Return the values of a file; `findings` are the settings of an earlier file. Raises UsageError."""
    try:
        raw = paths.regular(path, MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:
        raise UsageError(f"{path}: Permission denied; set XDG_CONFIG_HOME to another directory") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: longer than {MAX_BYTES} bytes, this is no config of latmon's")
    from latmon.support import strict_yaml  # noqa: PLC0415 - 27 ms that only a user with a config file pays

    entries = strict_yaml.parse(path, raw)
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: expected lines of `key: value` with the keys {_ALL}")
    settings: dict[str, Any] = {}
    wrong: list[tuple[int, str]] = []
    for key, value in entries.items():
        try:
            settings[key] = _checked(path, key, value, findings)
        except UsageError as error:
            sentence = str(error).removeprefix(f"{path}: ")
            wrong.append((_line_of(raw, key, value, sentence), sentence))
    if wrong:
        (line, first), *others = sorted(wrong)
        more = (
            f"; and {len(others)} more: {'; '.join(f'line {at}: {problem}' for at, problem in others)}"
            if others
            else ""
        )
        raise UsageError(f"{path}:{line}: {first}{more}")
    return settings


def _line_of(raw: bytes, key: Any, value: object, sentence: str) -> int:
    """Return the line of a wrong value: below `key`, of the key of each section that the sentence names first."""
    from latmon.support import strict_yaml  # noqa: PLC0415  as in _read

    keys, left = [key], sentence.partition(f"{key}: ")[2]
    while isinstance(value, Mapping):
        named = [
            (match.start(), inner) for inner in value if (match := re.search(rf"\b{re.escape(str(inner))}\b", left))
        ]
        if not named:
            break
        at, inner = min(named, key=lambda place: (place[0], -len(str(place[1]))))
        keys.append(inner)
        value, left = value[inner], left[at + len(str(inner)) :]
    return strict_yaml.line_of(raw, map(str, keys))


def _checked(path: Path, key: object, value: object, findings: Settings) -> Any:
    if key == _FINDINGS:
        return _rules(path, value, findings)
    if key == _VIEWS:
        return _saved_views(path, value)
    if key == _ON_FINDING:
        return _actions(f"{path}: {_ON_FINDING}", value)
    setting = SETTINGS.get(key) if isinstance(key, str) else None
    if setting is None:
        raise UsageError(f"{path}: unknown key {key!r}; the keys are {_ALL}")
    return _value(f"{path}: {key}", value, setting.kind)


def _saved_views(path: Path, value: object) -> dict[str, dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path}: {_VIEWS}: expected a section of views: `slow: {{sort: p99, filter: -nvme}}`")
    saved_views: dict[str, dict[str, Any]] = {}
    for name, keys in value.items():
        where = f"{path}: {_VIEWS}: {clean(str(name))}"
        if not clean(str(name)).strip():
            raise UsageError(f"{path}: {_VIEWS}: a view needs a name")
        if not isinstance(keys, Mapping):
            raise UsageError(f"{where}: expected a section with the keys {', '.join(options.OF_VIEWS)}")
        if unknown := [key for key in keys if key not in options.OF_VIEWS]:
            raise UsageError(f"{where}: unknown key {unknown[0]!r}; the keys are {', '.join(options.OF_VIEWS)}")
        saved_views[clean(str(name))] = {
            key: _value(f"{where}: {key}", entry, SETTINGS[key].kind) for key, entry in keys.items()
        }
    return saved_views


ACTIONS: Mapping[str, tuple[str, Kind[Any]]] = {
    "record": ("record_us", values.Duration()),
    "directory": ("directory", values.Directory()),
    "severity": ("severity", values.OneOf(lambda: SEVERITIES)),
    "quiet": ("quiet_us", values.Duration()),
    "gone": ("gone_us", values.Duration()),
    "syslog": ("syslog", values.Flag()),
}
"""Key of on_finding -> field of Actions, kind of value."""


def _actions(where: str, value: object) -> Actions:
    known = ", ".join(("command", *ACTIONS))
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: expected a section with the keys {known}")
    actions: dict[str, Any] = {}
    for key, command in value.items():
        if key == "command":
            actions["command"] = _command(f"{where}: command", command)
        elif key in ACTIONS:
            name, kind = ACTIONS[key]
            actions[name] = _value(f"{where}: {key}", command, kind)
        else:
            raise UsageError(f"{where}: unknown key {key!r}; the keys are {known}")
    if actions.get("record_us", 0) > MAX_RECORD_US:
        raise UsageError(f"{where}: record: at most {show_duration(MAX_RECORD_US)} are kept in memory")
    return Actions(**actions)


def _command(where: str, value: object) -> tuple[str, ...]:
    """Return the words of a command, which no shell reads."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(word, str) and "\0" not in word for word in value)
    ):
        raise UsageError(f"{where}: expected a list of texts, a program's absolute path and its arguments")
    if not value[0].startswith("/"):
        raise UsageError(f"{where}: {value[0]!r} is not the absolute path of a program")
    return tuple(value)


_KINDS = {list: "a list", dict: "keys with values", bool: "`true` or `false`", type(None): "an empty value"}
"""Kinds of YAML values that are neither text nor a number, as messages name them; what is left is a date."""


def _value(where: str, value: object, kind: Callable[[str], T]) -> T:
    """Return a checked value; `where`: file and key."""
    if isinstance(kind, values.Columns) and isinstance(value, list):
        value = ",".join(map(str, value))
    is_flag = isinstance(kind, values.Flag)
    if (isinstance(value, bool) and not is_flag) or not isinstance(value, str | int | float):
        wanted = "`true` or `false`" if is_flag else "a text or a number"
        raise UsageError(f"{where}: expected {wanted}, not {_KINDS.get(type(value), 'a date')}")
    try:
        return kind(str(value))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _rules(path: Path, value: object, known: Settings) -> Settings:
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{path}: {_FINDINGS}: expected a section of rules: `peer-outlier: {{octaves: 3}}` or `NAME: off`"
        )
    from latmon.findings.rules import RULES  # noqa: PLC0415  few users set a rule, and each command imports this module

    try:
        return settings_of(value, RULES, known)
    except ValueError as error:
        raise UsageError(f"{path}: {_FINDINGS}: {error}") from None


def list_rules(rules: Sequence[Rule], settings: Settings) -> int:
    """Print one line per rule; return the exit code."""
    print("\n".join(aligned([(rule.id, "off" if rule.id in settings.off else "on", rule.fires) for rule in rules])))
    return EXIT_DONE


def show_rule(name: str | None, rules: Sequence[Rule], settings: Settings) -> int:
    """Print one rule, or all without a name; return the exit code. Raises UsageError for an unknown name."""
    found_rules = [rule for rule in rules if name in (None, rule.id)]
    if not found_rules:
        raise UsageError(f"there is no rule {name!r}; the rules are {', '.join(rule.id for rule in rules)}")
    print("\n\n".join("\n".join(_rule_lines(rule, settings)) for rule in found_rules))
    return EXIT_DONE


def _rule_lines(rule: Rule, settings: Settings) -> list[str]:
    values = settings.of(rule)
    head = [
        ("name", rule.id),
        *([("state", "off in the config")] if rule.id in settings.off else []),
        ("fires", f"when {rule.fires}"),
        ("not evaluated", f"where {MISSING[rule.needs]}"),
        *(("" if n else "left out", f"where {name} explains it") for n, name in enumerate(rule.explained_by)),
    ]
    rows = [
        (key, _number(values[key]), threshold.unit, _range(threshold), _meaning(threshold, values[key]))
        for key, threshold in rule.thresholds.items()
    ]
    return [*aligned(head), "", *aligned([("threshold", "value", "unit", "range", "meaning"), *rows])]


def _number(value: float) -> str:
    return f"{value:,.12g}"


def _range(threshold: Threshold) -> str:
    """Return the values that the config may set."""
    return f"{threshold.least:g} to {threshold.most:g}" if threshold.most < UNBOUNDED else f"from {threshold.least:g}"


def _meaning(threshold: Threshold, value: float) -> str:
    return (
        threshold.meaning if value == threshold.value else f"{threshold.meaning} (default {_number(threshold.value)})"
    )


_SAMPLE = Path(__file__).with_name("sample.yaml")
_WIDEST = 60
"""Characters of a value."""
_PATH = 4096


def show_config(settings: Config, environ: Mapping[str, str], user: Invoker | None) -> int:
    """Print each setting with its value as it was written and where; `user`: who called sudo. Return the exit code."""
    files = {}
    for path in {SYSTEM, *settings.named_in.values()}:
        with acting_as(None if path == SYSTEM else user):
            files[path] = written(path)
    rows = []
    for key in (*SETTINGS, *SECTIONS):
        variable = SETTINGS[key].variable if key in SETTINGS else ""
        if environ.get(variable):
            rows.append((key, environ[variable], variable))
        elif key not in settings.named_in:
            rows.append((key, SETTINGS[key].default if key in SETTINGS else "", "default"))
        elif key in SECTIONS:
            rows += _section(settings, key, files, user)
        else:
            rows.append((key, _as_written(files[settings.named_in[key]][key]), _where(settings, key, user)))
    print("\n".join(aligned([(key, clean(value, _WIDEST), clean(where, _PATH)) for key, value, where in rows])))
    if settings.ignored:
        message(settings.ignored, 400)
    return EXIT_DONE


def _section(
    settings: Config, key: str, files: Mapping[Path, Mapping[str, object]], user: Invoker | None
) -> list[tuple[str, str, str]]:
    """Return a row per entry of a section. Rules of both files are in effect, else the last file's entries."""
    last = settings.named_in[key]
    rows: dict[str, tuple[str, str, str]] = {}
    for path in (SYSTEM, last) if key == "findings" else (last,):
        section = files[path].get(key)
        for name, value in section.items() if isinstance(section, Mapping) else ():
            where = _where(settings, key, user) if path == last else str(path)
            rows[str(name)] = (f"{key}: {clean(str(name), 40)}", _as_written(value), where)
    return [*rows.values()] or [(key, "", _where(settings, key, user))]


def _where(settings: Config, key: str, user: Invoker | None) -> str:
    with acting_as(None if settings.named_in[key] == SYSTEM else user):
        return place(settings, key).rpartition(": ")[0]


def _as_written(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_as_written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_as_written(part_value)}' for key, part_value in value.items())}}}"
    return str(value)


def edit_config(path: Path, environ: Mapping[str, str]) -> None:
    """Open the user's file in an editor, at first with the sample. Raises UnavailableError where that can't be done.

    Root starts an editor under the rules for tools.
    """
    named = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(named)
    except ValueError:
        words = []
    editor = shutil.which(words[0], path=trust.search_path(environ)) if words else None
    if editor is None:
        raise UnavailableError(f"the editor {clean(named, 80)!r} is not installed: set VISUAL or EDITOR")
    trust.require(Path(editor), f"the editor {editor}")
    if os.geteuid() == 0:  # the file, too: the editor follows a link
        trust.require_path(path, str(path), "set XDG_CONFIG_HOME to a directory that only root can change")
    try:
        output_files.make_directories(path.parent)
        with contextlib.suppress(FileExistsError), os.fdopen(output_files.create(path), "wb") as new:
            new.write(_SAMPLE.read_bytes())
        done = subprocess.run([editor, *words[1:], str(path)], check=False, env=trust.environment(environ))  # noqa: S603 - no shell reads it
    except OSError as error:
        raise UnavailableError(
            f"{path} can't be edited: {error.strerror}; set XDG_CONFIG_HOME to another directory"
        ) from None
    if done.returncode:
        raise UnavailableError(f"the editor {os.fspath(editor)} ended with {done.returncode}; {path} was not checked")
