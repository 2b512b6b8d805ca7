"""Cost to the load: fio's IOPS with and without latmon, in alternating pairs."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import processes
from cost import VERSION_OF, one_loop
from disks import Load, file_on_disk, iops
from figures import Figure, Section
from screens import LATMON, environment, shown
from tracing import BIOLATENCY, BIOSNOOP, Script, attached, running, tools

from latmon_backends.bpftrace.program import VARIABLE, BpftraceTool

_READY_S = 20.0
_LEAVE_S = 8.0


@dataclass(slots=True)
class Watcher:
    """Something that watches, and each pair's (without, with)."""

    name: str
    start: Callable[[], AbstractContextManager[object]]
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def run(self, load: Load, *, watched_first: bool) -> None:
        alone = None if watched_first else iops(load)
        with self.start():
            watched = iops(load)
        self.pairs.append((iops(load) if alone is None else alone, watched))

    def figure(self, limit: float | None = None) -> Figure:
        """Return the loss in percent; `limit` is the most it may be."""
        lost = tuple(100 * (1 - watched / alone) for alone, watched in self.pairs)
        alone = sorted(alone for alone, _ in self.pairs)[len(self.pairs) // 2]
        return Figure(self.name, lost, "%", limit, 1, f"alone {alone:,.0f} IOPS")


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    found = tools(scratch)
    names = (scratch / f"throughput-{number}.latmon.jsonl.gz" for number in itertools.count())
    for disk, target in (("a loop device on memory", one_loop()), ("a file on a virtual disk", file_on_disk(256))):
        with target as path:
            watchers = _watchers(found, names)
            for number in range(rounds):
                for watcher in watchers:
                    watcher.run(Load(path), watched_first=number % 2 == 1)
        yield _section(disk, watchers)


def _watchers(found: dict[str, BpftraceTool], names: Iterator[Path]) -> list[Watcher]:
    watchers = [Watcher("nothing (the noise)", contextlib.nullcontext)]
    for tier, version in VERSION_OF.items():
        tool = found[version]
        watchers += [
            Watcher(f"latmon tier {tier}, recording", partial(recording, tool, names)),
            Watcher(f"latmon tier {tier}, on screen", partial(_on_screen, tool)),
        ]
        for name, text in (("biolatency", BIOLATENCY), ("biosnoop", BIOSNOOP)):
            script = Script(name, tool, text)
            watchers.append(Watcher(f"peer: {script.label}", partial(running, script)))
    return watchers


@contextlib.contextmanager
def recording(tool: BpftraceTool, names: Iterator[Path], *options: str) -> Iterator[None]:
    """A headless capture, once all that these options ask for is attached."""
    words = [*LATMON, "--backend", "bpftrace", "--record", str(next(names)), *options]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(**{VARIABLE: tool.path}),
    )
    try:
        if attached(process, 1, _READY_S) is None:
            raise RuntimeError("latmon --record did not start its probe")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_LEAVE_S)


@contextlib.contextmanager
def _on_screen(tool: BpftraceTool) -> Iterator[None]:
    with shown((*LATMON, "--backend", "bpftrace"), environ={VARIABLE: tool.path}) as screen:
        if attached(screen.process, 1, _READY_S) is None:
            raise RuntimeError("latmon did not start its probe")
        yield
    if processes.descendants(screen.process.pid):
        raise RuntimeError("latmon left a process behind")


def _section(disk: str, watchers: list[Watcher]) -> Section:
    return Section(
        title=f"IOPS lost by being watched, {disk}",
        method=(
            "fio, 4 KiB random reads and writes, 32 in flight, 3 s with and 3 s without the watcher, one right after"
            " the other, the order alternating. A negative figure is noise. fio itself takes a whole CPU or more here,"
            " so whatever runs beside it is felt at once."
        ),
        figures=[watcher.figure() for watcher in watchers],
    )
