"""Steps on the interrupts screen."""

from __future__ import annotations

from dataclasses import replace

from latmon.views.choice import Choice
from latmon.views.panels.interrupts import focused, names, position, tables
from latmon.views.sight import Sight


def part(sight: Sight, by: int) -> Choice:
    """The next of the tables that there are."""
    return replace(sight.choice, part=(sight.choice.part + by) % len(tables(sight).parts), row=None)


def line(sight: Sight, by: int) -> Choice:
    """Another row, stopping at the ends; what is selected stays so when rows change places."""
    choice = sight.choice
    some = names(tables(sight), choice.part)
    if not some:
        return choice
    return replace(choice, row=some[min(max(position(some, choice.row) + by, 0), len(some) - 1)])


def cpus(sight: Sight, by: int) -> Choice:
    """Other CPUs of the matrix, where they don't all fit."""
    return replace(sight.choice, first_cpu=max(sight.choice.first_cpu + by, 0))


def delays(sight: Sight, _by: int) -> Choice:
    """The selected vector's heat map; the other tables have none."""
    choice = line(sight, 0)
    on_vectors = focused(tables(sight), choice.part) == "softirqs"
    return replace(choice, opened=choice.row is not None and on_vectors)


STEPS = {"part": part, "line": line, "cpus": cpus, "delays": delays}
