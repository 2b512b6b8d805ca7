"""The terminal: colour depth, signals, hang-up, restore on exit, minimal repaints.

Textual installs no handler for SIGTERM and SIGHUP, spins when the tty hangs up under nohup, and its event loop blocks
when the tty does; therefore the exit must work without that loop.

Textual 8.2 takes every SIGCONT for the end of a suspension that it prepared itself. After a plain SIGSTOP it starts a
second thread that reads keys, and one of the two can block the exit; at the end it restores raw mode. Its handlers
interrupt the event loop, and stay when the loop has ended. `TerminalDriver` does none of this.

It also writes a changed line from its widget's left edge to the last changed cell: one column at the right of a
heat map would send whole rows, 8 KB/s instead of 1. `NarrowUpdate` changes only the compositor's update.
"""

from __future__ import annotations

import codecs
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.app import App
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

from latmon.support.errors import EXIT_DONE

GRACE_S = 1.5
Attributes = list[int | list[bytes | int]] | None
RESTORE = (
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    b"\x1b[?2004l\x1b[?2048l\x1b[?2026l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""Switches off what Textual switches on: paste, resize and focus reports, synchronised output, keys, screen, cursor."""
_MOUSE, _NO_MOUSE = "\x1b[?1000h\x1b[?1002h\x1b[?1006h", "\x1b[?1000l\x1b[?1002l\x1b[?1006l\x1b[?1016l"
"""Button events, motion with a button down, coordinates without a limit."""
_SIGNALS = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP, signal.SIGINT: EXIT_DONE}


_RGB_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm", "contour")
"""Terminals that have always had truecolor. COLORTERM is lost through ssh and sudo, TERM is not."""
_FEW_TERMS = ("linux", "screen", "vt")
"""Terminals for which COLORTERM is left over from the one around them: GNU screen before 5 misreads 38;2."""
_NAMED = MappingProxyType(
    {"256color": "256", "16color": "16", "88color": "16", "linux": "16", "xterm": "16", "rxvt": "16"}
)
"""Part of a TERM -> depth. The terminfo of linux, xterm and rxvt has 8 colours, but they also show the bright ones."""
_GLYPHS = MappingProxyType({"linux": ("▸◂▫●…┄╎┊┃━▏▕▁▂▃▅▆▇╭╮╰╯—", "►◄○•»-/:║═||__▄▄▄█┌┐└┘─")})
"""Begin of a TERM -> glyphs that its fonts lack, and for each the one that is drawn in its place.

The Linux console's default font has the characters of code page 437.
"""
_LEVELS = MappingProxyType({1 << 24: "truecolor", 256: "256", 16: "16", 8: "8", 0: "none"})
_STDERR = 2


def colour_depth(env: Mapping[str, str], colours: Callable[[str], int | None] | None = None) -> str:
    """Return none, 8, 16, 256 or truecolor: by NO_COLOR, COLORTERM and TERM, else by terminfo.

    `colours`: the number of colours of a TERM, below 0 for one without any; None where it isn't known.
    """
    if env.get("NO_COLOR"):
        return "none"
    term = env.get("TERM", "").lower()
    is_few = term.endswith(("-16color", "-88color")) or (term.startswith(_FEW_TERMS) and not env.get("TMUX"))
    has_rgb = env.get("COLORTERM", "").lower() in ("truecolor", "24bit") and not is_few
    if has_rgb or "-direct" in term or term.endswith("-truecolor") or term.startswith(_RGB_TERMS):
        return "truecolor"
    named = next((depth for part, depth in _NAMED.items() if part in term), "")
    if named:
        return named
    known = (colours or terminfo_colours)(term)
    return "16" if known is None else next(depth for least, depth in _LEVELS.items() if max(known, 0) >= least)


def missing_glyphs(env: Mapping[str, str]) -> Mapping[int, str]:
    """Return glyphs that the terminal's font lacks, by their code points, and those that are drawn instead."""
    term = env.get("TERM", "").lower()
    lacking, instead = next((pair for begin, pair in _GLYPHS.items() if term.startswith(begin)), ("", ""))
    return str.maketrans(dict(zip(lacking, instead, strict=True)))


def terminfo_colours(term: str) -> int | None:
    """Return the number of colours that terminfo has for a TERM; None where it doesn't know it.

    Only the first call of a process reads terminfo, as curses has it.
    """
    try:
        import curses  # noqa: PLC0415  some builds of Python lack it
    except ImportError:
        return None
    try:
        curses.setupterm(term, _STDERR)
        return curses.tigetnum("colors")
    except curses.error:
        return None


@contextmanager
def leaving(ask: Callable[[int], None]) -> Iterator[None]:
    """End the program on SIGTERM, SIGHUP, SIGINT and a hang-up: by `ask(code)`, after GRACE_S by force."""
    attributes = _attributes()
    left = threading.Event()

    def leave(code: int) -> None:
        threading.Thread(target=_force, args=(code, attributes, left), daemon=True).start()
        ask(code)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        leave(_SIGNALS[signal.Signals(number)])

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    threading.Thread(target=_watch_hang_up, args=(leave, left), daemon=True, name="hang-up").start()
    try:
        yield
    finally:
        left.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _attributes() -> Attributes:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _watch_hang_up(leave: Callable[[int], None], left: threading.Event) -> None:
    """Wait for the hang-up with poll(), which reports it even when SIGHUP is ignored."""
    poll = select.poll()
    poll.register(0, 0)
    while not left.is_set():
        if any(event & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, event in poll.poll(500)):
            leave(128 + signal.SIGHUP)
            return


def _force(code: int, attributes: Attributes, left: threading.Event) -> None:
    """Exit without the event loop, and without waiting for the terminal."""
    if not left.wait(GRACE_S):
        _restore(attributes)
        os._exit(code)


def _restore(attributes: Attributes) -> None:
    with suppress(OSError):  # a terminal that is gone or frozen can't be given back
        os.set_blocking(2, False)
        os.write(2, RESTORE)
    if attributes is not None:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, attributes)


def _lenient_decoder(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    """Return a decoder that replaces what is not UTF-8, such as the mouse reports of old terminals."""
    return partial(codecs.getincrementaldecoder(encoding), errors="replace")


# A byte that is not UTF-8 would end the thread that reads keys, and the screen without a word.
linux_driver.getincrementaldecoder = _lenient_decoder  # type: ignore[assignment, attr-defined]


class TerminalDriver(LinuxDriver):
    """Textual's driver, whose signals are taken by the event loop: a handler that interrupts it could wait for itself.

    Stopped in any way, the program goes on with the picture, keys and modes that it had; in the background it stops
    again. What comes before the first picture or during the exit changes nothing.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._suspended = False
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._go_on)

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size that Textual lays out for: where standard output is no terminal, the driver's own differs."""
        size = self._app.console.size
        return size.width, size.height

    def _enable_mouse_support(self) -> None:
        """Request clicks, drags and the wheel; Textual requests every motion, which costs traffic on a slow link."""
        if self._mouse:
            self.write(_MOUSE)
            self.flush()

    def _disable_mouse_support(self) -> None:
        if self._mouse:
            self.write(_NO_MOUSE)
            self.flush()

    def stop_application_mode(self) -> None:
        if not self._suspended:  # the exit
            for number in (signal.SIGTSTP, signal.SIGCONT):
                self._loop.remove_signal_handler(number)
        super().stop_application_mode()

    def _stop(self) -> None:
        if not self._suspended and self._key_thread is not None:
            self._suspended = True
            self.suspend_application_mode()
            os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self) -> None:
        if self._key_thread is None:  # not started yet
            return
        if not _in_foreground(self.fileno):
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if self._suspended:
            self._suspended = False
            self.resume_application_mode()
        else:
            self._take_back()
        self._app.refresh(layout=True)

    def _take_back(self) -> None:
        """Take the terminal back from a shell after SIGSTOP, which Textual can't notice."""
        with suppress(termios.error):  # the terminal is gone
            attributes = termios.tcgetattr(self.fileno)
            attributes[tty.LFLAG] = self._patch_lflag(attributes[tty.LFLAG])
            attributes[tty.IFLAG] = self._patch_iflag(attributes[tty.IFLAG])
            attributes[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self.fileno, termios.TCSANOW, attributes)
        self.write("\x1b[?25l")  # a shell shows the cursor
        self.flush()


def _in_foreground(fileno: int) -> bool:
    """Return whether this process may use its terminal; also where the terminal is not the controlling one."""
    try:
        return os.tcgetpgrp(fileno) == os.getpgrp()
    except OSError:
        return True


class NarrowUpdate(CompositorUpdate):
    """A partial update whose spans are cut at both ends."""

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def render_segments(self, console: Console) -> str:
        update = self._update
        out: list[str] = []
        for y, x1, x2 in update.spans:
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is None or x >= x2 or end <= x1:
                    continue
                begin = max(x, x1)
                out.append(Control.move_to(begin, y).segment.text)
                out.append(strip.crop(begin - x, min(end, x2) - x).render(console))
        return "".join(out)


def narrow(update: object) -> object:
    """Return a partial update with narrow spans; anything else unchanged."""
    return NarrowUpdate(update) if isinstance(update, ChopsUpdate) else update
