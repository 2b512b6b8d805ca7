"""How long until something is drawn, and until it is data: latmon on a real terminal, beside an empty Textual app."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, shown
from tracing import tools

from latmon_backends.bpftrace.program import VARIABLE, BpftraceTool

FIRST_FRAME_S, FIRST_DATA_S = 0.5, 2.5
_PATIENCE_S = 20.0
_EMPTY_APP = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("starting 1 2 3")
Empty().run()
"""
_ANYTHING = r"\S"


@dataclass(slots=True)
class Start:
    """A program, and by what its data is known on the screen; `data` empty: it has none."""

    name: str
    words: tuple[str, ...]
    data: str = ""
    limited: bool = True
    environ: Mapping[str, str] = field(default_factory=dict)
    frame_s: list[float] = field(default_factory=list)
    data_s: list[float] = field(default_factory=list)

    def run(self) -> None:
        with shown(self.words, environ=self.environ) as screen:
            screen.wait_for(self.data or _ANYTHING, _PATIENCE_S)
            for pattern, values in ((_ANYTHING, self.frame_s), (self.data, self.data_s)):
                if pattern and (at := screen.first(pattern)) is not None:
                    values.append(at)

    def figures(self) -> Iterator[Figure]:
        limits = (FIRST_FRAME_S, FIRST_DATA_S) if self.limited else (None, None)
        yield Figure(f"{self.name}: first frame", tuple(self.frame_s), "s", limits[0], 2)
        if self.data:
            yield Figure(f"{self.name}: first data", tuple(self.data_s), "s", limits[1], 2)


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    found = tools(scratch)
    with loops(1, 64) as paths, trickle(paths, 50):
        starts = _starts(Path(paths[0]).name, found)
        for _ in range(rounds):
            for start in starts:
                start.run()
    yield Section(
        title="Start",
        method=(
            "From exec to the first character on an 80x24 terminal, and to the first row with a device's numbers; a"
            " loop device does 100 I/Os a second meanwhile. One frame per second, so up to 1 s of the first data is the"
            " first interval itself. The files are in the page cache, the byte code is compiled."
        ),
        figures=[figure for start in starts for figure in start.figures()],
        remarks=[
            "An empty Textual app is what no Textual program can beat: the interpreter and Textual's own start.",
        ],
    )


def _starts(device: str, found: Mapping[str, BpftraceTool]) -> list[Start]:
    row = rf"(?m)^.{device}\b.*\d"
    live = [
        Start(f"latmon, bpftrace {version}", (*LATMON, "--backend", "bpftrace"), row, environ={VARIABLE: tool.path})
        for version, tool in found.items()
    ]
    return [
        *live,
        Start("latmon, procfs", (*LATMON, "--backend", "procfs"), row),
        Start("latmon demo", (*LATMON, "demo"), r"nvme0n1.*\d"),
        Start("peer: an empty Textual app", (sys.executable, "-c", _EMPTY_APP), limited=False),
        Start("peer: top -d 1", ("top", "-d", "1"), r"(?m)^ *\d+ root", limited=False),
    ]
