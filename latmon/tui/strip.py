"""`--inline`: a strip of a few lines below the prompt, redrawn in place and left in the scrollback at the end.

It is drawn without Textual's screen: whole lines, and the cursor moved up. After a change of the terminal's width the
terminal may have wrapped the lines, so that their number isn't known: the next strip begins below them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from textual.message import Message

from latmon.capture.backend import Backend
from latmon.recording.archive import Archive
from latmon.support import signals
from latmon.support.errors import EXIT_DONE
from latmon.support.streams import terminal_size
from latmon.support.text import drawable, encodable
from latmon.tui.app import FrameArrived, SourceEnded, SourceOpened, SourceRefused, follow
from latmon.tui.canvas import DEPTHS, Face, face
from latmon.tui.terminal import LEAVING, colour_depth, missing_glyphs
from latmon.views.findings_state import Alarm
from latmon.views.lines import Line
from latmon.views.screen import Scene
from latmon.views.selection import ScreenOptions

_QUIT = b"qQ"
_REPAINT_S = 0.1
_RESIZED_S = 0.3
_HISTORY_US = 60_000_000
"""The strip doesn't go back in time: the window that is shown is enough."""


class Strip:
    """The strip on the terminal; `write` is standard output's."""

    def __init__(self, scene: Scene, face: Face, depth: str, write: Callable[[str], object]) -> None:
        self._scene, self._face, self._colours, self._write = scene, face, DEPTHS[depth], write
        self._columns = self._height = 0

    def draw(self, size: tuple[int, int]) -> None:
        """Draw the scene over the previous picture, on a terminal of (columns, lines)."""
        columns, rows = size
        if columns != self._columns:
            self._columns, self._height = columns, 0
        width = max(columns - 1, 1)  # a full line would leave the cursor between two lines
        lines = self._scene.draw_strip(width)[: max(rows - 1, 1)]
        height = max(len(lines), min(self._height, rows - 1))
        up = f"\x1b[{self._height}A" if self._height else ""
        shown = (self._drawn(line) for line in (*lines, *((),) * (height - len(lines))))
        self._write("\r" + up + "".join(f"{line}\x1b[K\n" for line in shown))
        self._height = height

    def begin_below(self) -> None:
        """Leave the present picture where it is: the next one is drawn below the cursor."""
        self._height = 0

    def _drawn(self, line: Line) -> str:
        styles, shown = self._face.styles, self._face.text
        return "".join(styles[role].render(shown(drawable(text)), color_system=self._colours) for text, role, _ in line)


def run(source: Backend, options: ScreenOptions) -> int | None:
    """Draw the strip until q or a signal; return the exit code, None where the source ended by itself.

    Raises LatmonError where the source can't be opened.
    """
    depth = colour_depth(os.environ)
    worn = face(options.theme, depth, missing_glyphs(os.environ))
    archive = Archive(_HISTORY_US)
    scene = Scene(options.selection, mode=options.mode, ink=worn.ink, archive=archive, findings=options.findings)
    return asyncio.run(_run(source, scene, Strip(scene, worn, depth, _put), Alarm() if options.bell else None))


def _put(text: str) -> None:
    sys.stdout.write(encodable(text, sys.stdout.encoding))
    sys.stdout.flush()


class _Player:
    """The drawing of a source until it ends or the user leaves. `left` has the exit code, None for the former."""

    def __init__(self, scene: Scene, strip: Strip, alarm: Alarm | None) -> None:
        self._scene, self._strip, self._alarm = scene, strip, alarm
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self._resizing: asyncio.TimerHandle | None = None
        self.left: asyncio.Future[int | None] = self._loop.create_future()

    def leave(self, code: int | None) -> None:
        """End with this exit code."""
        if not self.left.done():
            self.left.set_result(code)

    def draw(self) -> None:
        """Draw the strip now."""
        self._strip.draw(terminal_size(sys.stdout))
        if self._alarm is not None and self._alarm.is_due(self._scene.findings_state):
            _put("\a")

    async def drawing(self) -> None:
        """Draw the strip after each change, some times a second at most."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.draw()
            await asyncio.sleep(_REPAINT_S)

    def post(self, message: Message) -> None:
        """Take a message about the source."""
        if isinstance(message, FrameArrived | SourceOpened):
            self._changed.set()
        elif isinstance(message, SourceRefused):
            self.left.set_exception(message.failure)
        elif isinstance(message, SourceEnded):
            self._scene.ended, self._scene.message = "", message.why
            self.draw()
            self.leave(None)

    def resumed(self) -> None:
        """Take the terminal back from the shell: the next picture is below what it wrote."""
        with suppress(termios.error):
            tty.setcbreak(0, termios.TCSANOW)
        self._strip.begin_below()
        self._changed.set()

    def resized(self) -> None:
        """Draw the strip soon after the terminal's last change: the strip of each size stays in the scrollback."""
        if self._resizing is not None:
            self._resizing.cancel()
        self._resizing = self._loop.call_later(_RESIZED_S, self._changed.set)

    def read_key(self) -> None:
        """Read keys; q leaves."""
        keys = os.read(0, 64)
        if not keys:
            self._loop.remove_reader(0)
        elif any(key in _QUIT for key in keys):
            self.leave(EXIT_DONE)


async def _run(source: Backend, scene: Scene, strip: Strip, alarm: Alarm | None) -> int | None:
    loop, player = asyncio.get_running_loop(), _Player(scene, strip, alarm)
    player.draw()
    with _quiet_keys():
        for number, code in LEAVING.items():
            loop.add_signal_handler(number, player.leave, code)
        signals.leave_if_received()
        loop.add_signal_handler(signal.SIGCONT, player.resumed)
        loop.add_signal_handler(signal.SIGWINCH, player.resized)
        with suppress(OSError):  # a standard input that can't be polled, such as a file
            loop.add_reader(0, player.read_key)
        tasks: set[asyncio.Future[Any]] = {
            asyncio.create_task(follow(source, scene, player.post)),
            asyncio.create_task(player.drawing()),
        }
        try:
            await asyncio.wait({player.left, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            return await player.left
        finally:
            loop.remove_reader(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@contextmanager
def _quiet_keys() -> Iterator[None]:
    """Read keys one by one and without an echo, which would move the strip."""
    try:
        before = termios.tcgetattr(0)
    except termios.error:  # no terminal
        yield
        return
    try:
        is_foreground = os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # not the controlling terminal, which would stop a process in the background
        is_foreground = True
    if is_foreground:
        tty.setcbreak(0, termios.TCSANOW)
    try:
        yield
    finally:
        if is_foreground:
            termios.tcsetattr(0, termios.TCSANOW, before)  # without waiting for a stopped terminal
