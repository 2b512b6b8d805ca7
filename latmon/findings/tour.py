"""Guided tours of the demos: views with explanations, read from YAML files in `tours`.

Owns the file's format. Knows no screen: a step names a view as a finding does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from latmon.findings.finding import Where
from latmon.support import strict_yaml
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir

MAX_TEXT = 320
"""Characters of a step's text: four lines at 80 columns."""


class Stop(NamedTuple):
    """One step of a tour: a view and its explanation."""

    where: Where
    text: str


class Tour(NamedTuple):
    """The steps that explain a demo."""

    title: str
    stops: tuple[Stop, ...]
    then: str = ""
    """The closing text with suggestions for what to try next."""


def tours() -> tuple[str, ...]:
    """Return the names of the demos with a tour."""
    return tuple(sorted(path.stem for path in data_dir("tours").glob("*.yaml")))


def load_tour(scenario: str) -> Tour:
    """Return the tour of a demo. Raises UsageError if it has none."""
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
