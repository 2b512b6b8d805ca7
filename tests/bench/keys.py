"""Seconds from a key or a click to the screen that answers it, and the CPU time it takes.

The keys that pause and move in time are measured while the title shows the time; all others in a paused screen, in
which only the title changes by itself.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, SYNCHRONISED, Screen, shown

from latmon.tui.keys import _WAYS, ACTIONS, Action, _action

_DEVICES = 24
_SIZE = (160, 50)
_HISTORY_S = 65.0
"""More than the window that is shown."""
_PATIENCE_S = 30.0
_UNANSWERED_S = 5.0
"""After this time without a change an action has no effect here, as a key at the end of a list."""
_REST_S = (0.35, 0.8)
"""Between two keys, in turns: keys come at any time of an interval."""
_QUIET_S = 0.15
_LIMIT_MS = 100.0
_CPU_LIMIT_MS = 40.0
_TOUR = ((" ", "Space: pause"), ("[", "["), ("[", "["), ("]", "]"), ("{", "{"), ("}", "}"), (" ", "Space: go on"))
_SOURCES = (
    ("demo", (*LATMON, "demo")),
    ("live", (*LATMON, "--backend", "bpftrace")),
    ("live, --stages all", (*LATMON, "--backend", "bpftrace", "--stages", "all")),
)
_LEFT_OUT = ("stop", "stop_now", "tour", "record", "save", "picture", "hold", "leave")
"""Actions that end the program, write files, go on or do nothing on the overview; those of a tour."""
_BYTES = {
    "enter": b"\r",
    "tab": b"\t",
    "shift+tab": b"\x1b[Z",
    "escape": b"\x1b",
    "space": b" ",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    "shift+up": b"\x1b[1;2A",
    "shift+down": b"\x1b[1;2B",
    "shift+right": b"\x1b[1;2C",
    "shift+left": b"\x1b[1;2D",
    "ctrl+l": b"\x0c",
}
_DEVICE = re.compile(r"^│? *▸? *((?:nvme|loop|sd|vd)\w+) ")
Answers = dict[str, list[tuple[float, float]]]
"""Action -> (ms until the screen shows its effect, ms of CPU until then) of each time."""


def measure(scratch: Path, rounds: int) -> Iterator[Section]:  # noqa: ARG001  the interface
    """Two sections per source; `rounds` presses the keys in time four times as often, the others as often."""
    for name, words in _SOURCES:
        with loops(_DEVICES, 16) as paths, trickle(paths, 10), _watched(words) as eye:
            yield _section(f"Keys that pause and move in time, {name}", _in_time(eye, 4 * rounds), "the other time")
            yield _section(f"All other keys, commands and clicks, {name}", _everywhere(eye, rounds), "a change")


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

    @property
    def lines(self) -> list[str]:
        return list(self.emulator.display)

    def look(self) -> Iterator[float]:
        """Feed each piece that has come, and yield the time when it came."""
        while self.taken < len(self.screen.chunks):
            at, chunk = self.screen.chunks[self.taken]
            self.taken += 1
            self.stream.feed(SYNCHRONISED.sub(b"", chunk))
            yield at

    def settle(self) -> None:
        """Wait until nothing has come for a moment."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < _QUIET_S:
            if list(self.look()):
                quiet = time.monotonic()
            time.sleep(0.01)

    def press(self, keys: bytes) -> None:
        """Type keys, and wait for their effect."""
        self.screen.press(keys)
        time.sleep(0.02)
        self.settle()


@contextlib.contextmanager
def _watched(words: Sequence[str]) -> Iterator[Eye]:
    """The program with a window of history."""
    with shown(words, rows=_SIZE[1], columns=_SIZE[0]) as screen:
        time.sleep(_HISTORY_S)
        eye = Eye(screen)
        eye.settle()
        if not re.search(r"LIVE|DEMO", eye.lines[0]):
            raise RuntimeError(f"latmon shows no capture: {eye.lines[0]}")
        yield eye


def _in_time(eye: Eye, times: int) -> Answers:
    found: Answers = {}
    for turn in range(times):
        for number, (key, label) in enumerate(_TOUR):
            time.sleep(_REST_S[(turn + number) % 2])
            answer = _answer(eye, key.encode(), _place, _PATIENCE_S)
            if answer is None:
                raise RuntimeError(f"{key!r} changed nothing in {_PATIENCE_S:.0f} s")
            found.setdefault(label, []).append(answer)
    return found


def _everywhere(eye: Eye, times: int) -> Answers:
    """Press each key in the first screen where it works, and use the palette and the mouse."""
    found: Answers = {}
    cases = [*(_case(action) for action in ACTIONS if action.name not in _LEFT_OUT), *_others()]
    for _ in range(times):
        for label, before, keys in cases:
            _reset(eye)
            for one in before:
                eye.press(one)
            answer = _answer(eye, keys(eye.lines), _body, _UNANSWERED_S)
            found.setdefault(label, []).extend([answer] if answer else [])
    return found


Case = tuple[str, Sequence[bytes], Callable[[list[str]], bytes]]
"""Label, keys before, and the bytes to send for the lines of the screen."""


def _case(action: Action) -> Case:
    """Return the case of a key; where it moves in a list, the opposite key makes room for it."""
    where = action.on[0] if action.on else "overview"
    way = [_action(*step) for step in _WAYS[where]]
    back = [a for a in ACTIONS if action.by and (a.name, a.on, a.by) == (action.name, action.on, -action.by)]
    label = f"{where}: {action.shown.split()[0]} {action.title}"
    other = [b"2"] if (action.name, action.by) == ("screen", 0) else []  # where it isn't shown yet
    return label, [*(_key(action) for action in (*way, *back[:1])), *other], lambda _lines: _key(action)


def _reset(eye: Eye) -> None:
    """Return to the paused overview; an Esc each closes a prompt or a page, a region, and the filter."""
    for _ in range(3):
        eye.press(b"\x1b")
    eye.press(b"1")
    if not _place(eye.lines):
        eye.press(b" ")


def _key(action: Action) -> bytes:
    name = action.keys.split(",")[0]
    return _BYTES.get(name) or action.shown.split()[0].encode()


def _others() -> Iterator[Case]:
    """Yield the cases of the palette and the mouse."""
    yield "zoom: Esc back", [b"\r"], lambda _lines: _BYTES["escape"]
    yield "palette: a letter", [b":"], lambda _lines: b"s"
    yield "palette: row below", [b":"], lambda _lines: _BYTES["down"]
    yield "palette: Enter, another screen", [b":", b"outliers: the slow"], lambda _lines: b"\r"
    yield "palette: Enter, a setting", [b":", b"sort by name"], lambda _lines: b"\r"
    yield "click: row of a device", [], lambda lines: _click(*_device(lines, 2))
    yield "click: selected row", [_BYTES["home"]], lambda lines: _click(*_device(lines, 0))
    yield "click: key of the last line", [], lambda lines: _click(lines[-1].index(" stages") + 2, len(lines) - 1)
    yield "click: cell of the heat map", [b"\r"], lambda lines: _click(*_cell(lines))
    yield "drag: region of the heat map", [b"\r"], _drag
    yield "click: strip of the whole time", [b"-"] * 3, _strip
    yield "wheel down", [_BYTES["home"]], lambda lines: _mouse(65, *_device(lines, 0))
    yield "wheel up", [_BYTES["end"]], lambda lines: _mouse(64, *_device(lines, 0))


def _mouse(button: int, x: int, y: int, end: str = "M") -> bytes:
    return f"\x1b[<{button};{x + 1};{y + 1}{end}".encode()


def _click(x: int, y: int) -> bytes:
    return _mouse(0, x, y) + _mouse(0, x, y, "m")


def _drag(lines: list[str]) -> bytes:
    x, y = _cell(lines)
    return _mouse(0, x, y) + _mouse(32, x - 6, y - 2) + _mouse(0, x - 6, y - 2, "m")


def _strip(lines: list[str]) -> bytes:
    y = next((y for y, line in enumerate(lines) if "┃" in line), 0)
    return _click(len(lines[y]) // 2, y)


def _device(lines: list[str], number: int) -> tuple[int, int]:
    """Return a cell of the nth row of the device table."""
    return 4, [y for y, line in enumerate(lines) if _DEVICE.match(line)][number]


def _cell(lines: list[str]) -> tuple[int, int]:
    """Return a cell of the heat map with I/Os near its right end, where it has data also if the history is short."""
    bottom, line = next((y, line) for y, line in enumerate(lines) if "└" in line)
    x = lines[bottom - 3].index("│", line.index("└") + 1) - 2
    return x, next(y for y in range(bottom - 1, 0, -1) if lines[y][x] in "▀▄█")


def _answer(
    eye: Eye, keys: bytes, seen: Callable[[list[str]], object], patience_s: float
) -> tuple[float, float] | None:
    """Return ms until `seen` of the lines changes and ms of CPU until then; None where it doesn't."""
    eye.settle()
    before, cpu, began = seen(eye.lines), eye.screen.cpu_ms(), time.monotonic()
    pressed = eye.screen.press(keys)
    while time.monotonic() - began < patience_s:
        for at in eye.look():
            if at >= pressed and seen(eye.lines) != before:
                return (at - pressed) * 1000, eye.screen.cpu_ms() - cpu
        time.sleep(0.002)
    return None


def _place(lines: list[str]) -> str:
    """The time that is looked at; empty at the live edge."""
    paused = re.search(r"PAUSED (\S+),", lines[0])
    return paused[1] if paused else ""


def _body(lines: list[str]) -> list[str]:
    """All but the title, which shows the present time."""
    return lines[1:]


def _worst(values: Sequence[float]) -> tuple[float, ...]:
    """The 99th percentile."""
    ordered = sorted(values)
    return (ordered[min(round(0.99 * len(ordered)), len(ordered) - 1)],) if ordered else ()


def _section(title: str, answers: Answers, effect: str) -> Section:
    figures = []
    for label, answer in answers.items():
        waits, cpu = ([one[at] for one in answer] for at in (0, 1))
        figures.append(Figure(f"{label}: until the screen changes", tuple(sorted(waits)), "ms", None, 0))
        figures.append(Figure("... p99", _worst(waits), "ms", _LIMIT_MS, 0))
        figures.append(Figure("... CPU of the screen's process", tuple(cpu), "ms", _CPU_LIMIT_MS, 0))
    every = [one for answer in answers.values() for one in answer]
    figures.append(Figure("all: p99", _worst([ms for ms, _ in every]), "ms", _LIMIT_MS, 0))
    figures.append(Figure("all: p99 of the CPU", _worst([ms for _, ms in every]), "ms", _CPU_LIMIT_MS, 0))
    return Section(
        title=title,
        method=(
            f"{_DEVICES} loop devices with 20 I/Os per second each (the demo has its own), {_SIZE[0]}x{_SIZE[1]},"
            f" on a pty, {_HISTORY_S:.0f} s of history. From the write of the key to the bytes after which a terminal"
            f" shows {effect}. 0 runs: no visible effect there."
        ),
        figures=figures,
    )
