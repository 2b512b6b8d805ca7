"""Seconds from a key that pauses or moves in time to the screen that answers it, and the CPU time it takes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, SYNCHRONISED, Screen, shown

_DEVICES = 24
_SIZE = (160, 50)
_HISTORY_S = 65.0
"""More than the window that is shown."""
_PATIENCE_S = 30.0
_REST_S = (0.35, 0.8)
"""Between two keys, in turns: keys come at any time of an interval."""
_LIMIT_MS = 100.0
_TOUR = ((" ", "Space: pause"), ("[", "["), ("[", "["), ("]", "]"), ("{", "{"), ("}", "}"), (" ", "Space: go on"))
_SOURCES = (
    ("demo", (*LATMON, "demo")),
    ("live", (*LATMON, "--backend", "bpftrace")),
    ("live, --stages all", (*LATMON, "--backend", "bpftrace", "--stages", "all")),
)


def measure(scratch: Path, rounds: int) -> Iterator[Section]:  # noqa: ARG001  the interface
    """A section per source; each of `rounds` presses all keys four times."""
    for name, words in _SOURCES:
        with loops(_DEVICES, 16) as paths, trickle(paths, 10):
            yield _section(name, _answers(words, 4 * rounds))


@dataclass(slots=True)
class Eye:
    """A terminal's screen, fed with a program's bytes as they come."""

    screen: Screen
    taken: int = 0
    emulator: pyte.Screen = field(init=False)
    stream: pyte.ByteStream = field(init=False)

    def __post_init__(self) -> None:
        self.emulator = pyte.Screen(self.screen.columns, self.screen.rows)
        self.stream = pyte.ByteStream(self.emulator)

    def look(self) -> Iterator[tuple[float, str]]:
        """The title line after each piece that has come, with the time when it came."""
        while self.taken < len(self.screen.chunks):
            at, chunk = self.screen.chunks[self.taken]
            self.taken += 1
            self.stream.feed(SYNCHRONISED.sub(b"", chunk))
            yield at, self.emulator.display[0]


def _answers(words: Sequence[str], times: int) -> dict[str, list[tuple[float, float]]]:
    """Key -> (ms until the title shows its effect, ms of CPU until then)."""
    found: dict[str, list[tuple[float, float]]] = {}
    with shown(words, rows=_SIZE[1], columns=_SIZE[0]) as screen:
        time.sleep(_HISTORY_S)
        eye = Eye(screen)
        shown_now = [title for _, title in eye.look()]
        if not shown_now or not re.search(r"LIVE|DEMO", shown_now[-1]):
            raise RuntimeError(f"latmon shows no capture: {shown_now[-1:]}")
        for turn in range(times):
            for number, (key, label) in enumerate(_TOUR):
                time.sleep(_REST_S[(turn + number) % 2])
                found.setdefault(label, []).append(_answer(eye, key))
    return found


def _answer(eye: Eye, key: str) -> tuple[float, float]:
    before = [title for _, title in eye.look()] or [eye.emulator.display[0]]
    where, cpu, began = _place(before[-1]), eye.screen.cpu_ms(), time.monotonic()
    pressed = eye.screen.press(key.encode())
    while time.monotonic() - began < _PATIENCE_S:
        for at, title in eye.look():
            if at >= pressed and _place(title) != where:
                return (at - pressed) * 1000, eye.screen.cpu_ms() - cpu
        time.sleep(0.002)
    raise RuntimeError(f"{key!r} changed nothing in {_PATIENCE_S:.0f} s")


def _place(title: str) -> str:
    """The time that is looked at; empty at the live edge."""
    paused = re.search(r"PAUSED (\S+),", title)
    return paused[1] if paused else ""


def _section(name: str, answers: dict[str, list[tuple[float, float]]]) -> Section:
    figures = []
    for label, several in answers.items():
        waits = sorted(ms for ms, _ in several)
        worst = waits[min(round(0.99 * len(waits)), len(waits) - 1)]
        figures.append(Figure(f"{label}: until the screen changes", tuple(waits), "ms", None, 0))
        figures.append(Figure("... p99", (worst,), "ms", _LIMIT_MS, 0))
        figures.append(Figure("... CPU of the screen's process", tuple(ms for _, ms in several), "ms", None, 0))
    return Section(
        title=f"Keys that pause and move in time, {name}",
        method=(
            f"{_DEVICES} loop devices with 20 I/Os per second each (the demo has its own), {_SIZE[0]}x{_SIZE[1]},"
            f" on a pty, {_HISTORY_S:.0f} s of history. From the write of the key to the bytes after which a terminal"
            " shows the other time in the title."
        ),
        figures=figures,
    )
