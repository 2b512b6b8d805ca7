"""D programs assembled from whole scripts, and which scripts are for this system.

D allows any number of BEGIN and END clauses, which run in their order. A script that is left out is listed with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.manifest.loader import Manifest, load_all
from latmon.manifest.schema import TABLE_ROLES
from latmon.model.frame import STAGES, TABLES, Missing
from latmon.model.histogram import BITS
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir
from latmon_backends.probe.launcher import Script, Values
from latmon_backends.tracer.programs import ChosenScripts


@dataclass(frozen=True, slots=True)
class NamedScript(Script):
    """A script whose name has the words that were chosen for its parameters, where there is a choice."""

    @property
    def name(self) -> str:
        words = (str(self.values[one.name]) for one in self.manifest.parameters if len(one.words) > 1)
        return " ".join((self.manifest.name, *words))


PORTABLE = ("illumos", "linux", "freebsd")
"""The order of the words of a portable script."""


def fillings(manifest: Manifest, values: Values, system: str = "") -> Iterator[Script]:
    """Yield the script with the possible words of its parameters, the likeliest first.

    The first words of all its parameters belong to one kernel, and so do the second ones. Where a parameter has fewer
    words, its last stays. Each word of a portable script belongs to one system.
    """
    choices = {one.name: one.words for one in manifest.parameters if one.words}
    order = list(range(max(map(len, choices.values()), default=1)))
    if manifest.platform == "portable" and system in PORTABLE[: len(order)]:
        order.insert(0, order.pop(PORTABLE.index(system)))
    for at in order:
        chosen = {name: words[min(at, len(words) - 1)] for name, words in choices.items()}
        yield NamedScript.fitted(manifest, {**values, **chosen})


MAP_KEYS = 65_536
"""An aggregation is limited by its memory alone, and drops are reported; more keys count as a full map."""


@dataclass(frozen=True, slots=True)
class DtraceProgram:
    """Scripts that one dtrace process runs. The first begins with a clause: dtrace -n takes no declaration first."""

    scripts: tuple[Script, ...]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks of all scripts; two scripts on one hook are two clauses."""
        return tuple(hook for script in self.scripts for hook in script.manifest.hooks)

    @property
    def map_keys(self) -> int:
        return MAP_KEYS

    @property
    def joined(self) -> bool:
        return False

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(script.manifest for script in self.scripts)

    def text(self) -> str:
        return "".join(script.text() for script in self.scripts)


NONE_THERE = "this system has no D script for that"
INVASIVE = "it is invasive and needs an explicit --invasive"


def manifests(system: str, probes: Path | None = None, *, has_llquantize: bool = True) -> tuple[Manifest, ...]:
    """Load all D scripts for a system, its own before the portable ones; ManifestError for a malformed file."""
    found = [one for one in load_all(data_dir("probes") if probes is None else probes) if one.tool == "dtrace"]
    fitting = [one for one in found if one.platform in (system, "portable")]
    fitting.sort(key=lambda one: (one.platform == "portable", one.name))
    # A portable script has the clock of the system that it runs on.
    bits = BITS if has_llquantize else 0
    return tuple(replace(one, clock="hrtime" if system == "freebsd" else one.clock, bits=bits) for one in fitting)


def always_on(found: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Return the always-on scripts, the best first: by tier, then the system's own before the portable ones.

    A script with a better one for this system (`unless`) is left out, even if that one is refused.
    """
    names = {one.name for one in found}
    fitting = (one for one in found if one.group == "always" and not names & set(one.unless))
    return tuple(sorted(fitting, key=lambda one: one.tier))


def check_invasive(names: Sequence[str], found: Sequence[Manifest]) -> None:
    """Raise UsageError for a name that none of the invasive scripts has."""
    known = {one.name for one in found if one.cost == "invasive"}
    for name in names:
        if name not in known:
            raise UsageError(f"--invasive: there is no invasive probe {name!r} here; {_listed(known)}")


def choose(
    found: Sequence[Manifest],
    has: Callable[[str], bool | None],
    invasive: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
) -> ChosenScripts:
    """Choose the tracer's scripts whose hooks exist, without those that another one replaces.

    `has` None: not known, so the script is tried. `invasive`: scripts that the user allows. `refused`: scripts that
    were tried -> why they don't run.
    """
    chosen: dict[str, Manifest] = {}
    missing: list[Missing] = []
    for one in sorted((one for one in found if one.group != "always"), key=lambda one: bool(one.unless)):
        if chosen.keys() & set(one.unless):
            continue
        why = (refused or {}).get(one.name, "")
        if not why and one.cost == "invasive" and one.name not in invasive:
            why = f"{INVASIVE} {one.name}"
        if not why and (lacking := [hook for hook in one.hooks if has(hook) is False]):
            why = f"there is no probe {lacking[0]} here"
        if not why and (absent := [name for name in one.needs if name not in chosen]):
            why = f"needs {absent[0]}"
        if why:
            missing.append(Missing(one.name, why))
        else:
            chosen[one.name] = one
    return ChosenScripts(tuple(chosen.values()), tuple(missing))


def why_not(what: str, choice: ChosenScripts, found: Sequence[Manifest]) -> str:
    """Return why no chosen script measures a stage or a table: why others don't run, else the scripts' own reason."""
    refusals = [
        f"{one.name}: {one.reason}"
        for one in choice.missing
        for able in found
        if able.name == one.name and measures(able, what)
    ]
    reasons = (one.absent[what] for one in choice.manifests if one.group != "bios" and what in one.absent)
    return "; ".join(refusals) or next(reasons, "") or NONE_THERE


def measures(one: Manifest, what: str) -> bool:
    """Return whether a script measures a stage of requests, or has a table."""
    if what in STAGES:
        return one.group != "bios" and what in one.stages
    return any(name.startswith(TABLE_ROLES[what]) for name in (*(spec.role for spec in one.maps), *one.records))


def untraced(choice: ChosenScripts, found: Sequence[Manifest]) -> tuple[Missing, ...]:
    """Return what no chosen script measures; a stage that is included in another one counts as measured."""
    included = {inner for one in choice.manifests for stage in one.stages for inner in one.includes.get(stage, ())}
    names = (*(stage for stage in STAGES if stage != "total" and stage not in included), *TABLES)
    lacking = (name for name in names if not any(measures(one, name) for one in choice.manifests))
    on_demand = [one for one in found if one.group != "always"]
    return tuple(Missing(name, why_not(name, choice, on_demand)) for name in lacking)


def _listed(known: set[str]) -> str:
    return f"there are {', '.join(sorted(known))}" if known else "there is none at all"
