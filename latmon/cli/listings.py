"""`latmon probes`, `latmon rules` and `latmon config`: lists of probes, rules and settings, and all about one of them.

Probes have purpose, requirements and cost, from the manifests; nothing is run: the doctor checks whether a probe can
run. Rules have the condition that they report, and thresholds with the values of the config. Settings have the file and
the line, or the variable, that sets them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from latmon.cli import config
from latmon.findings.rule import MISSING, UNBOUNDED, Rule, Settings, Threshold
from latmon.findings.rules import RULES
from latmon.manifest import Manifest, load_all
from latmon.model.stages import called
from latmon.support import privileges, trust
from latmon.support.errors import EXIT_DONE, UnavailableError, UsageError
from latmon.support.paths import data_dir
from latmon.support.text import aligned, clean

_TABLES = {
    "handler_run": "run time of each interrupt handler, by what it returned",
    "handler_before": "how long other handlers of its vector ran first",
    "softirq_delay": "raise to entry of each softirq vector, by CPU",
    "softirq_run": "run time of each softirq vector, by CPU",
    "wakeup": "waking to running of threads",
    "depth_driver": "number of requests in the driver and of those waiting, over time",
    "depth_issue": "number of requests in the driver when one is issued",
    "depth_time": "latency of a request by the device's depth at its arrival",
    "cgroup": "each total by cgroup, with bytes",
    "process": "I/Os of each process, with bytes",
    "behind": "cgroups that a device serves while I/Os of another one are in flight",
    "size_latency": "latency by the size of an I/O",
    "pattern": "I/Os that were sequential, read ahead, flagged SYNC, not aligned to a physical block",
    "file": "operations on files by file system, and what their threads waited for",
}
"""Role of a map that is not a stage -> its meaning."""

_REPORTED = {
    "issue": "bursts of neighbours as they go to the driver",
    "waiting": "requests that have not completed, the oldest of them",
    "slow": "each I/O above the threshold, within the rate limit",
    "resumed": "the thread that waited for a slow I/O, and the time until it ran again",
    "late": "wake-ups of 1 ms and more",
    "file": "each slow operation on a file with its path, within the rate limit",
    "limit": "limits of each device in its driver",
}


def list_probes() -> int:
    """Print one line per probe; return the exit code."""
    manifests = load_all(data_dir("probes"))
    rows = [(one.name, one.platform, one.cost, one.purpose) for one in manifests]
    print("\n".join(aligned(rows)))
    return EXIT_DONE


def show_probe(name: str | None) -> int:
    """Print a probe's manifest, or those of a group; return the exit code. Raises UsageError for an unknown name."""
    manifests = load_all(data_dir("probes"))
    found = [one for one in manifests if one.name == name] or [one for one in manifests if name in _groups(one)]
    if not found:
        wanted = f"there is no probe {name!r}" if name else "probes show needs a NAME"
        raise UsageError(f"{wanted}; the probes are {', '.join(one.name for one in manifests)}")
    print("\n\n".join("\n".join(f"{key:<9} {text}" for key, text in _probe_lines(one)) for one in found))
    return EXIT_DONE


def _groups(probe: Manifest) -> tuple[str, str]:
    """Return the names that reports use for a missing probe: its group, and its name without the tier."""
    return probe.group, probe.name.removesuffix(f"_{probe.tier.lower()}")


def _probe_lines(probe: Manifest) -> list[tuple[str, str]]:
    lines = [
        ("name", probe.name),
        *([("group", probe.group)] if probe.group not in ("", probe.name) else []),
        ("purpose", probe.purpose),
        ("platform", f"{probe.platform}, {probe.tool}, tier {probe.tier}"),
        ("cost", probe.cost),
        *(("needs", need) for need in probe.requirements),
        *(("part of", f"{name}, in one program with it") for name in _partners(probe)),
        *(("measures", _measured(stage, probe)) for stage in _stages(probe)),
        *(("measures", what) for what in _tables(probe)),
        *(("reports", _REPORTED[kind]) for kind in probe.records if kind in _REPORTED),
        *(("absent", f"{stage}: {why}") for stage, why in probe.absent.items()),
        *(("note", note) for note in probe.notes),
        *(("source", source) for source in probe.sources),
        *(("has run", where) for where in _ran(probe)),
        ("script", str(probe.script)),
    ]
    keys = ["", *(key for key, _ in lines)]
    return [("" if key == before else key, text) for before, (key, text) in zip(keys, lines, strict=False)]


def _ran(probe: Manifest) -> tuple[str, ...]:
    """Return the systems on which a D script has run; bpftrace's run in the tests."""
    if probe.tool != "dtrace":
        return probe.ran_on
    return tuple(f"on {where}" for where in probe.ran_on) or ("nowhere yet",)


def _partners(probe: Manifest) -> tuple[str, ...]:
    """Return the probes of the same program that it needs; those in flight and of `trace` need that of the stages."""
    return probe.needs or (("stages_" + probe.tier.lower(),) if probe.group in ("inflight", "trace") else ())


def _stages(probe: Manifest) -> list[str]:
    return list(dict.fromkeys(stage for one in probe.maps if one.role == "histogram" for stage in one.stages))


def _tables(probe: Manifest) -> list[str]:
    roles = {one.role for one in probe.maps}
    return [what for role, what in _TABLES.items() if role in roles]


def _measured(stage: str, probe: Manifest) -> str:
    included = probe.includes.get(stage, ())
    return f"{called(stage, included).both}, with {', '.join(included)} in it" if included else stage


def list_rules(settings: Settings) -> int:
    """Print one line per rule; return the exit code."""
    print("\n".join(aligned([(one.id, "off" if one.id in settings.off else "on", one.fires) for one in RULES])))
    return EXIT_DONE


def show_rule(name: str | None, settings: Settings) -> int:
    """Print one rule, or all without a name; return the exit code. Raises UsageError for an unknown name."""
    found = [one for one in RULES if name in (None, one.id)]
    if not found:
        raise UsageError(f"there is no rule {name!r}; the rules are {', '.join(one.id for one in RULES)}")
    print("\n\n".join("\n".join(_rule_lines(one, settings)) for one in found))
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
        (key, _number(values[key]), one.unit, _range(one), _meaning(one, values[key]))
        for key, one in rule.thresholds.items()
    ]
    return [*aligned(head), "", *aligned([("threshold", "value", "unit", "range", "meaning"), *rows])]


def _number(value: float) -> str:
    return f"{value:,.12g}"


def _range(one: Threshold) -> str:
    """Return the values that the config may set."""
    return f"{one.least:g} to {one.most:g}" if one.most < UNBOUNDED else f"from {one.least:g}"


def _meaning(one: Threshold, value: float) -> str:
    return one.meaning if value == one.value else f"{one.meaning} (default {_number(one.value)})"


_SAMPLE = Path(__file__).with_name("sample.yaml")
_VARIABLES = {"bpftrace": "LATMON_BPFTRACE", "dtrace": "LATMON_DTRACE"}
"""Key -> the variable that beats it."""
_WIDEST = 60
"""Characters of a value."""
_PATH = 4096


def show_config(settings: config.Config, environ: Mapping[str, str], user: privileges.Invoker | None) -> int:
    """Print each setting with its value as it was written and where; `user`: who called sudo. Return the exit code."""
    files = {}
    for path in {config.SYSTEM, *settings.named_in.values()}:
        with privileges.acting_as(None if path == config.SYSTEM else user):
            files[path] = config.written(path)
    rows = []
    for key in (*config.DEFAULTS, *config.SECTIONS):
        variable = _VARIABLES.get(key, "")
        if environ.get(variable):
            rows.append((key, environ[variable], variable))
        elif key not in settings.named_in:
            rows.append((key, config.DEFAULTS.get(key, ""), "default"))
        elif key in config.SECTIONS:
            rows += _section(settings, key, files, user)
        else:
            rows.append((key, _as_written(files[settings.named_in[key]][key]), _where(settings, key, user)))
    print("\n".join(aligned([(key, clean(value, _WIDEST), clean(where, _PATH)) for key, value, where in rows])))
    if settings.ignored:
        print(f"latmon: {clean(settings.ignored, 400)}", file=sys.stderr)
    return EXIT_DONE


def _section(
    settings: config.Config, key: str, files: Mapping[Path, Mapping[str, object]], user: privileges.Invoker | None
) -> list[tuple[str, str, str]]:
    """Return a row per entry of a section. Rules of both files are in effect, else the last file's entries."""
    last = settings.named_in[key]
    rows: dict[str, tuple[str, str, str]] = {}
    for path in (config.SYSTEM, last) if key == "findings" else (last,):
        found = files[path].get(key)
        for name, value in found.items() if isinstance(found, Mapping) else ():
            where = _where(settings, key, user) if path == last else str(path)
            rows[str(name)] = (f"{key}: {clean(str(name), 40)}", _as_written(value), where)
    return [*rows.values()] or [(key, "", _where(settings, key, user))]


def _where(settings: config.Config, key: str, user: privileges.Invoker | None) -> str:
    with privileges.acting_as(None if settings.named_in[key] == config.SYSTEM else user):
        return config.place(settings, key).rpartition(": ")[0]


def _as_written(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_as_written, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_as_written(one)}' for key, one in value.items())}}}"
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
    found = shutil.which(words[0], path=trust.search_path(environ)) if words else None
    if found is None:
        raise UnavailableError(f"the editor {clean(named, 80)!r} is not installed: set VISUAL or EDITOR")
    trust.require(Path(found), f"the editor {found}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), path.open("xb") as new:
            new.write(_SAMPLE.read_bytes())
        done = subprocess.run([found, *words[1:], str(path)], check=False, env=trust.environment(environ))  # noqa: S603 - no shell reads it
    except OSError as error:
        raise UnavailableError(
            f"{path} can't be edited: {error.strerror}; XDG_CONFIG_HOME names another directory"
        ) from None
    if done.returncode:
        raise UnavailableError(f"the editor {os.fspath(found)} ended with {done.returncode}; {path} was not checked")
