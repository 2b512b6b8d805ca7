"""Which D scripts are for this system: the always-on ones from the best to the last, and the deep ones that can run.

Pure but for reading manifests. A script that is left out is named with its reason. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.errors import UsageError
from latmon.manifest import Manifest, load_all
from latmon.model import Missing
from latmon.resources import data_dir

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


def _listed(known: set[str]) -> str:
    return f"there are {', '.join(sorted(known))}" if known else "there is none at all"
