"""D scripts put together to one program: whole files, one after the other, each with its values.

D allows any number of BEGIN and END clauses, which run in their order. Knows nothing of what a script measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latmon.manifest import Manifest


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
