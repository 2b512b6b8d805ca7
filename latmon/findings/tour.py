"""Guided tours of the demos: what to look at, step by step, as YAML beside the themes.

Owns the file's format. Knows no screen: a step names a view as a finding does, and the words that go with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from latmon.findings.finding import Where
from latmon.support import strict_yaml
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir

MAX_TEXT = 320
"""Four lines at 80 columns."""


class Stop(NamedTuple):
    """One step of a tour: the view and what is to be seen there."""

    where: Where
    text: str


class Tour(NamedTuple):
    """A demo, explained."""

    title: str
    stops: tuple[Stop, ...]
    then: str = ""
    """What to try next."""


def tours() -> tuple[str, ...]:
    """The demos that have one."""
    return tuple(sorted(path.stem for path in data_dir("tours").glob("*.yaml")))


def load_tour(scenario: str) -> Tour:
    """UsageError for a demo without one."""
    if scenario not in tours():
        known = ", ".join(tours())
        raise UsageError(f"there is no tour of the demo {scenario!r}; the tours are {known}: latmon demo NAME --tour")
    tree: Any = strict_yaml.load((data_dir("tours") / f"{scenario}.yaml").read_bytes())
    return Tour(tree["title"], tuple(_stop(one) for one in tree["steps"]), _then(scenario))


def _then(scenario: str) -> str:
    return (
        f"The tour is over, the demo goes on. Next: `latmon demo {scenario}-healthy`, the same load without the fault. "
        f"What happened, what fixed it, and `latmon diff` of both: docs/incidents/{scenario}.md"
    )


def _stop(one: dict[str, Any]) -> Stop:
    where = {name: one[name] for name in Where._fields if name in one}
    return Stop(Where(**where), one["text"])
