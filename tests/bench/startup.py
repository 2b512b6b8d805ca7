"""How long until something is drawn, and until it is data: latmon on a real terminal, beside an empty Textual app.

On a quiet host, and beside as many busy loops as a loaded host has. Then how long `--version` takes.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, environment, shown
from tracing import tools

from latmon_backends.bpftrace.program import VARIABLE, BpftraceTool

FRAME, COUNTERS, DATA = "first frame", "data of the kernel's counters", "first data"
LIMITS_S = {FRAME: 0.5, COUNTERS: 1.0, DATA: 1.2}
LOADED_S = {COUNTERS: 3.0, DATA: 4.0}
VERSION_S = 0.08
LOAD = 8
_PATIENCE_S = 40.0
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
    """A program, and by which patterns what it shows is known; the last one comes last."""

    name: str
    words: tuple[str, ...]
    patterns: Mapping[str, str]
    limits: Mapping[str, float] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> None:
        with shown(self.words, environ=self.environ) as screen:
            screen.wait_for([*self.patterns.values()][-1], _PATIENCE_S)
            for name, pattern in self.patterns.items():
                if (at := screen.first(pattern)) is not None:
                    self.seconds.setdefault(name, []).append(at)

    def figures(self) -> Iterator[Figure]:
        for name in self.patterns:
            if values := self.seconds.get(name):
                yield Figure(f"{self.name}: {name}", tuple(values), "s", self.limits.get(name), 2)


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    actual_tools = tools(scratch)
    with loops(1, 64) as paths, trickle(paths, 50):
        device = Path(paths[0]).name
        quiet = _starts(device, actual_tools)
        for start in _live(device, actual_tools, {}):  # the first start of a tool tries all scripts
            start.run()
        for _ in range(rounds):
            for start in quiet:
                start.run()
        loaded = _live(device, actual_tools, LOADED_S)
        with _busy(LOAD):
            for _ in range(rounds):
                for start in loaded:
                    start.run()
    yield Section(
        title="Start",
        method=(
            "From exec to the first character on an 80x24 terminal, and to the first row with a device's numbers, of"
            " the kernel's counters and of the probe; a loop device does 100 I/Os a second meanwhile. The files are in"
            " the page cache, the byte code is compiled, and it isn't the first start of the tool."
        ),
        figures=[figure for start in quiet for figure in start.figures()],
        remarks=[
            "An empty Textual app is what no Textual program can beat: the interpreter and Textual's own start.",
        ],
    )
    yield Section(
        title=f"Start beside {LOAD} busy loops",
        method="The same; each loop has a session of its own, as the programs of a host have.",
        figures=[figure for start in loaded for figure in start.figures()],
        remarks=[],
    )
    yield Section(
        title="latmon --version",
        method="From exec to exit.",
        figures=[Figure("latmon --version", tuple(_version_s() for _ in range(2 * rounds)), "s", VERSION_S, 3)],
        remarks=[],
    )


def _starts(device: str, bpftrace_tools: Mapping[str, BpftraceTool]) -> list[Start]:
    frame, row = {FRAME: _ANYTHING}, _row(device)
    return [
        *_live(device, bpftrace_tools, LIMITS_S),
        Start("latmon, procfs", (*LATMON, "--backend", "procfs"), frame | {DATA: row}, {FRAME: LIMITS_S[FRAME]}),
        Start("latmon demo", (*LATMON, "demo"), frame | {DATA: r"nvme0n1.*\d"}, LIMITS_S),
        Start("peer: an empty Textual app", (sys.executable, "-c", _EMPTY_APP), frame),
        Start("peer: top -d 1", ("top", "-d", "1"), frame | {DATA: r"(?m)^ *\d+ root"}),
    ]


def _live(device: str, bpftrace_tools: Mapping[str, BpftraceTool], limits: Mapping[str, float]) -> list[Start]:
    row = _row(device)
    patterns = {FRAME: _ANYTHING, COUNTERS: rf"(?s)STARTING.*{row}", DATA: rf"(?s)LIVE.*{row}"}
    return [
        Start(
            f"latmon, bpftrace {version}",
            (*LATMON, "--backend", "bpftrace"),
            patterns,
            limits,
            {VARIABLE: tool.path},
        )
        for version, tool in bpftrace_tools.items()
    ]


def _row(device: str) -> str:
    return rf"(?m:^.{device}\b.*\d)"


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    words = (sys.executable, "-c", "while True: pass")
    running = [subprocess.Popen(words, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def _version_s() -> float:
    began = time.perf_counter()
    subprocess.run((*LATMON, "--version"), check=True, stdout=subprocess.DEVNULL, env=environment())
    return time.perf_counter() - began
