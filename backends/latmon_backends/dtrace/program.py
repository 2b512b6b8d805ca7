"""D programs assembled from whole scripts, and which scripts are for this system.

D allows any number of BEGIN and END clauses, which run in their order. Knows nothing of what a script measures.

Pure but for reading manifests. A script that is left out is named with its reason. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.manifest.loader import Manifest, load_all
from latmon.model.frame import STAGES, TABLES, Missing
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir


@dataclass(frozen=True, slots=True)
class Script:
    """A probe with its values; those that it doesn't take are left out."""

    manifest: Manifest
    values: Mapping[str, int | str]

    def text(self) -> str:
        taken = {one.name for one in self.manifest.parameters}
        return self.manifest.program({name: value for name, value in self.values.items() if name in taken})

    @property
    def name(self) -> str:
        """With the words that were chosen, where there is a choice."""
        words = (str(self.values[one.name]) for one in self.manifest.parameters if len(one.words) > 1)
        return " ".join((self.manifest.name, *words))


PORTABLE = ("illumos", "linux", "freebsd")
"""The order of the words of a portable script."""


def fillings(manifest: Manifest, values: Mapping[str, int | str], system: str = "") -> Iterator[Script]:
    """The script with what its words may be, the likeliest first.

    The first words of all its parameters belong together, and so do the second ones: they are what one kernel calls
    things. Where a parameter has fewer, its last stays. A portable script's are each a system's.
    """
    choices = {one.name: one.words for one in manifest.parameters if one.words}
    order = list(range(max(map(len, choices.values()), default=1)))
    if manifest.platform == "portable" and system in PORTABLE[: len(order)]:
        order.insert(0, order.pop(PORTABLE.index(system)))
    for at in order:
        yield Script(manifest, {**values, **{name: words[min(at, len(words) - 1)] for name, words in choices.items()}})


MAP_KEYS = 65_536
"""An aggregation has no limit but its memory, and tells of drops; one with more keys is taken for a full map."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one dtrace runs. The first script begins with a clause: dtrace -n takes no declaration first."""

    scripts: tuple[Script, ...]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Of all scripts; two scripts on one hook are two clauses."""
        return tuple(hook for script in self.scripts for hook in script.manifest.hooks)

    @property
    def map_keys(self) -> int:
        return MAP_KEYS

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(script.manifest for script in self.scripts)

    def text(self) -> str:
        return "".join(script.text() for script in self.scripts)


_ROLES = {"softirqs": "softirq", "handlers": "handler", "wake-ups": "wakeup", "issues": "issue"}
"""Table -> how the role of a map, or the record, begins that tells it."""
NONE_THERE = "no D script for this system measures it"
INVASIVE = "it is invasive and needs an explicit --invasive"


@dataclass(frozen=True, slots=True)
class Choice:
    """The scripts in the order of their text, and what is missing here."""

    manifests: tuple[Manifest, ...] = ()
    missing: tuple[Missing, ...] = ()


def manifests(system: str, probes: Path | None = None) -> tuple[Manifest, ...]:
    """All D scripts for a system, its own before the portable ones; a file that isn't right is an error."""
    found = [one for one in load_all(data_dir("probes") if probes is None else probes) if one.tool == "dtrace"]
    fitting = [one for one in found if one.platform in (system, "portable")]
    fitting.sort(key=lambda one: (one.platform == "portable", one.name))
    # A portable script has the clock of the system that it runs on.
    return tuple(replace(one, clock="hrtime") if system == "freebsd" else one for one in fitting)


def always_on(found: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """From the best to the last: by tier, then the system's own before the portable ones.

    None with a better one for this system (`unless`), even if that one is refused: it is of no use here then.
    """
    names = {one.name for one in found}
    fitting = (one for one in found if one.group == "always" and not names & set(one.unless))
    return tuple(sorted(fitting, key=lambda one: one.tier))


def check_invasive(names: Sequence[str], found: Sequence[Manifest]) -> None:
    """UsageError for a name that none of the invasive scripts has."""
    known = {one.name for one in found if one.cost == "invasive"}
    for name in names:
        if name not in known:
            raise UsageError(f"--invasive: there is no invasive probe {name!r} here; {_listed(known)}")


def choose(
    found: Sequence[Manifest],
    has: Callable[[str], bool | None],
    invasive: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
) -> Choice:
    """The deep scripts whose hooks are there (`has` None: not known, so tried), with none that another makes needless.

    `invasive` names those that were asked for; `refused`: what was tried, and what was said.
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
    return Choice(tuple(chosen.values()), tuple(missing))


def why_not(what: str, choice: Choice, found: Sequence[Manifest]) -> str:
    """Why none of the chosen scripts tells a stage or a table: why those don't run that would, else what these say."""
    refusals = [
        f"{one.name}: {one.reason}"
        for one in choice.missing
        for able in found
        if able.name == one.name and tells(able, what)
    ]
    reasons = (one.absent[what] for one in choice.manifests if one.group != "bios" and what in one.absent)
    return "; ".join(refusals) or next(reasons, "") or NONE_THERE


def tells(one: Manifest, what: str) -> bool:
    """Whether a script measures a stage of requests, or has a table."""
    if what in STAGES:
        return one.group != "bios" and what in one.stages
    return any(name.startswith(_ROLES[what]) for name in (*(spec.role for spec in one.maps), *one.records))


def untraced(choice: Choice, found: Sequence[Manifest]) -> tuple[Missing, ...]:
    """What none of the chosen scripts tells; a stage whose time another one holds is told with that."""
    held = {inner for one in choice.manifests for stage in one.stages for inner in one.includes.get(stage, ())}
    names = (*(stage for stage in STAGES if stage != "total" and stage not in held), *TABLES)
    lacking = (name for name in names if not any(tells(one, name) for one in choice.manifests))
    deep = [one for one in found if one.group != "always"]
    return tuple(Missing(name, why_not(name, choice, deep)) for name in lacking)


def _listed(known: set[str]) -> str:
    return f"there are {', '.join(sorted(known))}" if known else "there is none at all"
