"""What the load feels of the hooks of `--stages all` alone: with empty programs, and with one look into a map each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cost import ALL, VERSION_OF
from figures import Section
from throughput import Watcher, compared
from tracing import empty, on_demand, running, tools


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    hooks = on_demand("A", tools(scratch)[VERSION_OF["A"]], ALL)
    watchers = [
        Watcher("empty programs", partial(running, empty(hooks))),
        Watcher("one look into a map", partial(running, empty(hooks, looks=True))),
    ]
    yield compared("What the load feels of the hooks alone, a loop device on memory", watchers, rounds)
