"""The terminal: colour depth, signals, hang-up, restore on exit, flow control of pictures, and their smallest updates.

Textual installs no handler for SIGTERM and SIGHUP, spins when the tty hangs up under nohup, and its event loop blocks
when the tty does; therefore the exit must work without that loop.

Textual 8.2 takes every SIGCONT for the end of a suspension that it prepared itself. After a plain SIGSTOP it starts a
second thread that reads keys, and one of the two can block the exit; at the end it restores raw mode. Its handlers
interrupt the event loop, and stay when the loop has ended. `TerminalDriver` does none of this.

It also writes pictures faster than a slow link transmits them: the kernel and ssh store some 20 kB, half a minute at
9,600 baud, in which no key has an effect. `Link` determines when a picture has arrived.

It resets the style after each segment and sends whole lines. `Painter` sends only cells that differ, with the part of
the style that changes. Where a row has moved sideways, as a heat map does each second, its cells are moved by the
terminal (DCH and ICH, ECMA-48 8.3.26 and 8.3.64), so that only the new column is sent.

It applies every report of a new size, also one of 99999 columns, which it lays out for minutes. After a report of 0 a
click is a division by zero, which ends the thread that reads keys, as does a key code beyond Unicode. A paste whose
end got lost takes all later keys. `InputParser` drops such reports and codes, and ends such a paste.

It prefers COLUMNS and LINES to the terminal's size, also after a resize: `forget_size` removes them.
"""

from __future__ import annotations

import codecs
import os
import select
import selectors
import signal
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from heapq import nlargest
from operator import itemgetter, ne
from types import FrameType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import constants
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual._xterm_parser import XTermParser
from textual.app import App, ScreenStackError
from textual.drivers.linux_driver import LinuxDriver
from textual.events import CursorPosition, Key, Resize
from textual.keys import Keys
from textual.message import Message

from latmon.support import first_picture, signals
from latmon.support.errors import EXIT_DONE
from latmon.tui.colour_question import ATTRIBUTES, COLOURS, ColourAnswers, DeviceControl, Truecolor
from latmon.tui.paste import PASTE_END, PasteGuard
from latmon.views.lines import PLAIN, SGR_OFF, UNKNOWN_CELL, Cell, Pen, Row, cells_of, change, encode

_MOVES = (1, -1, 2, -2, 3, -3, 4, -4)
"""Cells by which a row may have moved, to the left first."""
_PROBES = 4
"""Rows with the most changes, from which the movement of all rows is determined."""
_WORTH = 4
"""Least number of cells that a movement corrects."""
_ATTRIBUTES = tuple(
    zip(("bold", "dim", "italic", "underline", "blink", "reverse", "conceal", "strike"), SGR_OFF, strict=True)
)
GRACE_S = 1.5
Attributes = list[int | list[bytes | int]] | None
RESTORE = (
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # mouse
    b"\x1b[?2004l\x1b[?2048l\x1b[?2026l\x1b[?1004l\x1b[?7h\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h"
)
"""Switches off what Textual switches on: paste, resize and focus reports, synchronised output, keys, screen, cursor."""
_CLEAR = "\x1b[0m\x1b[2J"
"""Before the alternate screen is left: a tmux window that has grown since would keep rows of it."""
_MOUSE, _NO_MOUSE = "\x1b[?1000h\x1b[?1002h\x1b[?1006h", "\x1b[?1000l\x1b[?1002l\x1b[?1006l\x1b[?1016l"
"""Button events, motion with a button down, coordinates without a limit."""
LEAVING = {signal.SIGINT: EXIT_DONE} | {
    number: 128 + number for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
}
"""Signal that ends the program -> exit code."""


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
MOST_CELLS = 1000
"""Columns and lines of the largest terminal: one of 8K with a font of 8x8 pixels has 960 columns."""
_PASTE_S = 2.0
"""Time without input after which a paste has ended: its end may get lost."""
WAKE_S = 0.1
"""The thread that reads keys looks so often for the exit."""
ESC_S = 0.05
"""Time without input after which an Esc is a key; ESCDELAY overrides it, as for ncurses."""
_BEGINS = frozenset("[O")
"""Characters after which an Esc may be the beginning of a sequence: CSI and SS3."""
_READ = 4096
"""Bytes of input at once."""
_ASK = "\x1b[6n"
"""A request for the position of the cursor (ECMA-48 8.3.35): the answer comes once all before it is drawn."""
_ANSWER_S = 0.5, 1.0
"""Time that the exit waits for an answer: twice that of the last picture, within these bounds."""
_POLL_S = 0.01
_LONGEST_REST_S = 10.0
"""Longest time between two frames, whatever the last picture took: a terminal may have been stopped meanwhile."""
_FIRST_PART = 2_000
"""Bytes of the first part of the first picture; the time until its answer comes is the first measure of the link."""
_SLOW = 8_000
"""Bytes per second below which a picture is sent in parts."""
_PART_S = 0.5
"""Time that a part takes on a slow link: what a key changes is in the next part."""


@lru_cache(1024)
def pen_of(style: Style | None, colours: ColorSystem) -> Pen:
    """Return the parameters of a style for a depth of colours."""
    if style is None:
        return PLAIN
    attributes = frozenset(number for name, number in _ATTRIBUTES if getattr(style, name))
    return Pen(_codes(style.color, colours), _codes(style.bgcolor, colours, foreground=False), attributes)


def _codes(colour: RichColor | None, colours: ColorSystem, *, foreground: bool = True) -> str:
    if colour is None or colour.type is ColorType.DEFAULT:
        return ""
    return ";".join(colour.downgrade(colours).get_ansi_codes(foreground=foreground))


class Painter:
    """The cells of a terminal with so many `colours`. `shifts`: it can delete and insert cells."""

    def __init__(self, colours: ColorSystem, *, shifts: bool) -> None:
        self.colours, self._shifts = colours, shifts
        self._shown: list[Row] = []
        self._wanted: list[Row] = []
        self._is_known = False
        self._next = 0
        """The row that the next part begins with."""
        self._by = _MOVES[0]
        """Cells by which a picture has moved last."""

    def forget(self) -> None:
        """Forget what the terminal shows: something else has drawn on it, or its size has changed."""
        self._is_known = False

    def use(self, colours: ColorSystem) -> None:
        """Draw all again with this depth of colours, with the next update."""
        self.colours = colours
        self.forget()

    def take(self, update: CompositorUpdate) -> None:
        """Add an update to what the terminal shall show."""
        if isinstance(update, LayoutUpdate):
            rows: list[Row] = [[cell for strip in strips for cell in self._cells(strip)] for strips in update.strips]
            if [len(row) for row in rows] != [len(row) for row in self._wanted]:
                self.forget()
            self._wanted = rows
        elif isinstance(update, ChopsUpdate):
            for y, begin, end in update.spans:
                for last, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                    if strip is not None and x < end and last > begin and y < len(self._wanted):
                        cells = self._cells(strip)[: last - x]
                        old = self._wanted[y]
                        self._wanted[y] = [*old[:x], *cells, *old[x + len(cells) :]]

    @property
    def is_changed(self) -> bool:
        """Return whether the terminal shows something else than it shall."""
        return bool(self._wanted) and (not self._is_known or self._shown != self._wanted)

    def draw(self, most: int | None = None) -> str:
        """Return the escape sequences of the difference; with `most`, only its rows up to so many bytes.

        The next part begins with the row after them.
        """
        out, size, pen, height = [], 0, PLAIN, len(self._wanted)
        if not self._is_known:
            self._shown = [[UNKNOWN_CELL] * len(row) for row in self._wanted]
            self._is_known, self._next = True, 0
            out.append("\x1b[m")
        first, self._next = self._next, 0
        changed = [y for y in (*range(first, height), *range(first)) if self._shown[y] != self._wanted[y]]
        by = self._moved(changed) if self._shifts else 0
        for y in changed:
            if most is not None and size >= most:
                self._next = y
                break
            text, pen = update(y, self._shown[y], self._wanted[y], pen, by)
            self._shown[y] = self._wanted[y]
            out.append(text)
            size += len(text.encode())
        out.append(change(pen, PLAIN))
        return "".join(out)

    def _cells(self, strip: Iterable[Segment]) -> list[Cell]:
        colours = self.colours
        return [
            cell
            for text, style, control in strip
            if text and not control
            for cell in cells_of(text, pen_of(style, colours))
        ]

    def _moved(self, rows: Iterable[int]) -> int:
        """Return by how many cells most of a picture has moved to the left; 0 where it hasn't."""
        row_pairs = ((self._shown[y], self._wanted[y]) for y in rows)
        tries = (self._by, *(by for by in _MOVES if by != self._by))
        sizes = ((sum(map(ne, old, new)), old, new) for old, new in row_pairs if is_simple(old) and is_simple(new))
        probes = [(old, new) for size, old, new in nlargest(_PROBES, sizes, key=itemgetter(0)) if size >= _WORTH]
        changed = sum(sum(map(ne, old, new)) for old, new in probes)
        best, most = 0, _WORTH - 1
        for by in tries if probes else ():
            gain = sum(movement(old, new, by)[0] for old, new in probes)
            if gain > most:
                best, most = by, gain
                if 2 * gain > changed:  # another one hardly puts more cells right
                    break
        self._by = best or self._by
        return best


def is_simple(row: Row) -> bool:
    """Return whether all characters of a row are known and one cell wide."""
    return set(map(len, map(itemgetter(0), row))) == {1}


def update(y: int, old: Row, new: Row, pen: Pen, by: int) -> tuple[str, Pen]:
    """Return the shortest update of row `y`, and the pen after it; `by`: as in Movement, 0 for none."""
    gain, moved = movement(old, new, by) if by and is_simple(old) and is_simple(new) else (0, None)
    if moved is None or gain < _WORTH:
        return encode(y, old, new, pen)
    text = moved.text(y)
    remainder, after = encode(y, moved.row(old), new, pen)
    if gain < len(text):  # a cell costs a byte at least
        full_row = encode(y, old, new, pen)
        if len(full_row[0]) <= len(text) + len(remainder):
            return full_row
    return text + remainder, after


class Movement(NamedTuple):
    """Movement of the cells that end up in [begin, end) by so many cells to the left; `by` < 0: to the right."""

    begin: int
    end: int
    by: int

    @property
    def _places(self) -> tuple[int, int, int]:
        """Return where cells are deleted, where they are then inserted, and how many."""
        size = abs(self.by)
        return (self.begin, self.end, size) if self.by > 0 else (self.end - size, self.begin - size, size)

    def row(self, old: Row) -> Row:
        """Return a row after the movement; what is inserted isn't known: the background may be that of the pen."""
        at, to, size = self._places
        left = [*old[:at], *old[at + size :]]
        return [*left[:to], *[UNKNOWN_CELL] * size, *left[to:]]

    def text(self, y: int) -> str:
        """Return the sequence that moves the cells of row `y`."""
        at, to, size = self._places
        number = "" if size == 1 else str(size)
        return f"\x1b[{y + 1};{at + 1}H\x1b[{number}P\x1b[{y + 1};{to + 1}H\x1b[{number}@"


def movement(old: Row, new: Row, by: int) -> tuple[int, Movement]:
    """Return (cells put right, movement) of the best part of a row to move by so many cells to the left.

    The best part is that with the largest sum of gains, found as in Kadane's algorithm.
    """
    size = len(new)
    first, last = max(-by, 0), min(size - by, size)
    best, best_begin, best_end, total, begin = 0, first, first, 0, first
    for x in range(first, last):
        cell = new[x]
        total += (old[x + by] == cell) - (old[x] == cell)
        if total <= 0:
            total, begin = 0, x + 1
        elif total > best:
            best, best_begin, best_end = total, begin, x + 1
    return best, Movement(best_begin, best_end, by)


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
    return _terminfo(term, lambda terminfo: terminfo.tigetnum("colors"))


def moves_cells(term: str) -> bool:
    """Return whether a terminal can delete and insert cells in a line: by its name, else by terminfo."""
    if term.lower().startswith(_RGB_TERMS):
        return True
    return bool(_terminfo(term, lambda terminfo: all(terminfo.tigetstr(name) for name in ("dch", "ich"))))


def _terminfo(term: str, read: Callable[[ModuleType], int]) -> int | None:
    """Return what `read` finds with the module curses; None where it, or an entry for TERM, is missing."""
    try:
        import curses  # noqa: PLC0415  some builds of Python lack it
    except ImportError:
        return None
    try:
        curses.setupterm(term, _STDERR)
        return read(curses)
    except curses.error:
        return None


@contextmanager
def leaving(ask: Callable[[int], None]) -> Iterator[None]:
    """End the program on a signal of LEAVING and on a hang-up: by `ask(code)`, after GRACE_S by force."""
    attributes = _attributes()
    left = threading.Event()

    def leave(code: int) -> None:
        threading.Thread(target=_force, args=(code, attributes, left), daemon=True).start()
        ask(code)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        leave(LEAVING[signal.Signals(number)])

    before = {number: signal.signal(number, on_signal) for number in LEAVING}
    threading.Thread(target=_watch_hang_up, args=(leave, left), daemon=True, name="hang-up").start()
    try:
        signals.leave_if_received()
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


if "ESCDELAY" not in os.environ:
    constants.ESCAPE_DELAY = ESC_S  # type: ignore[misc]  # Textual's is 0.1 s


class InputParser(XTermParser):
    """Textual's parser of input, for what terminals, links and users really send."""

    _ends: float | None = None
    """The time at which a paste would end."""

    def __init__(self, debug: bool = False, answers: ColourAnswers | None = None) -> None:
        super().__init__(debug)
        self._answers = answers or ColourAnswers()
        self._paste = PasteGuard()

    def feed(self, data: str) -> Iterable[Message]:
        """Yield the messages of the input. A size in pixels is used for the mouse only where it is known."""
        answered, keys = self._answers.take(self._paste.clean(data))
        yield from answered
        if keys:
            yield from self._feed(keys)

    def _feed(self, data: str) -> Iterable[Message]:
        self._ends = time.monotonic() + _PASTE_S if data else None
        known = self.terminal_size, self.terminal_pixel_size, self.mouse_pixels
        for message in super().feed(data):
            if isinstance(message, Resize):
                if not all(0 < cells <= MOST_CELLS for cells in message.size):
                    self.terminal_size, self.terminal_pixel_size, self.mouse_pixels = known
                    continue
                self.mouse_pixels = bool(message.pixel_size)  # 0x0 is unknown
                known = self.terminal_size, self.terminal_pixel_size, self.mouse_pixels
            yield message

    def tick(self) -> Iterable[Message]:
        if held := self._answers.release():
            yield from self._feed(held)
        yield from super().tick()
        if self._ends is not None and time.monotonic() >= self._ends:
            yield from self.feed(PASTE_END)  # without a paste it does nothing
            self._ends = None

    @property
    def wait_s(self) -> float:
        """Return the time until an Esc is a key and not the beginning of a sequence, at most WAKE_S."""
        return WAKE_S if self._timeout_time is None else min(WAKE_S, max(0.0, self._timeout_time - time.monotonic()))

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        """Yield Esc and a character right after it as two keys: no key of latmon has Alt, whose codes are the same.

        tmux and slow links join keys, and Esc would be lost. Textual waits for more after `[` and `O`, which begin
        sequences, and then passes them with `alt`.
        """
        joined = len(sequence) == 2 and sequence[0] == "\x1b"  # noqa: PLR2004  Esc and the character
        if (joined and sequence[1].isprintable() and sequence[1] not in _BEGINS) or (alt and len(sequence) == 1):
            yield Key(Keys.Escape.value, "\x1b")
            sequence = sequence[-1]
        try:
            yield from super()._sequence_to_key_events(sequence)
        except (ValueError, OverflowError):  # as below, of a Textual before 8.2.7, whose parser is this one
            yield Key(Keys.Ignore, sequence)

    def _parse_extended_key(self, sequence: str) -> list[Key] | None:  # type: ignore[override]  # theirs is cached
        try:
            return super()._parse_extended_key(sequence)
        except (ValueError, OverflowError):  # beyond Unicode, or with parts that were not requested
            return [Key(Keys.Ignore, sequence)]


_LOST_S, _LOST_TIMES = 3.0, 4
"""Least time after which an answer has got lost, and that as a multiple of the time that the last picture took."""


class Link:
    """Flow control of pictures: whether the last one has arrived, and how long it took.

    A picture has arrived when the terminal answers the request at its end; on a terminal that never answers, when the
    kernel has taken it. `free` is called then. `later(s, call)` calls back after `s` seconds.
    """

    def __init__(
        self,
        free: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free, self._later, self._now = free, later, now
        self._number = 0
        """Number of the last picture."""
        self.heard = threading.Event()
        """Set by the thread that reads the answer of the terminal; clear while a request has no answer."""
        self.reset()

    def reset(self) -> None:
        """Forget what was measured: another terminal may be attached."""
        self.is_busy = self.is_asked = False
        """Whether a picture is on its way, and whether the terminal will answer when it has arrived."""
        self._answers = self._has_asked = False
        self._began = self._ended = self._took = 0.0
        self._size, self._rate = 0, 0.0
        self._asked, self._asked_size = 0.0, 0
        """Time of the last request, and bytes of the picture before it."""
        self.heard.set()

    @property
    def most(self) -> int | None:
        """Return the bytes of the next part of a picture; None for a whole picture."""
        if not self._rate:
            return _FIRST_PART
        return max(int(self._rate * _PART_S), 1) if self._rate < _SLOW else None

    @property
    def rest_s(self) -> float:
        """Return the time until the next frame may be drawn: half of the link's time is left to keys."""
        took = self._took
        if self.is_busy:
            return min(max(self._now() - self._began, took), _LONGEST_REST_S)
        return max(self._ended + min(took, _LONGEST_REST_S) - self._now(), 0.0)

    @property
    def answer_s(self) -> float:
        """Return the time to wait for an answer at the exit; 0 where none is to be expected."""
        if self.heard.is_set() or self._now() - self._asked > _LOST_S:
            return 0.0
        least, most = _ANSWER_S
        return min(max(least, 2 * self._took), most)

    def sent(self, size: int) -> str:
        """Record a picture of `size` bytes; return the request that is sent after it, empty for none."""
        self._number += 1
        self.is_busy, self._began, self._size = True, self._now(), size
        self.is_asked = self._answers
        asks = self._answers or not self._has_asked
        self._has_asked = True
        if asks:
            self._asked, self._asked_size = self._began, size
            self.heard.clear()
        if self.is_asked:
            self._later(max(_LOST_S, _LOST_TIMES * self._took), partial(self._lost, self._number))
        return _ASK if asks else ""

    def written(self) -> None:
        """Record that the kernel has taken everything."""
        if self.is_busy and not self.is_asked:
            self._end()

    def answered(self) -> None:
        """Record an answer of the terminal."""
        if self.is_busy and self.is_asked:
            self._end()
        elif not self._answers and self._asked_size:  # until now only the kernel's time was known
            self._took = self._now() - self._asked
            self._rate = self._asked_size / max(self._took, 1e-6)
        self._answers = True

    def _lost(self, number: int) -> None:
        if self.is_busy and number == self._number:
            self._answers = self._has_asked = False
            self._end()

    def _end(self) -> None:
        self.is_busy = self.is_asked = False
        self._ended = self._now()
        self._took = self._ended - self._began
        if not self._rate or self._size >= min(_FIRST_PART, self.most or _FIRST_PART):
            self._rate = self._size / max(self._took, 1e-6)
        self._free()


class _Outlet:
    """The file that Textual's thread writes to; `flushed(writes)` is called when the kernel has so many writes."""

    def __init__(self, file: Any, flushed: Callable[[int], None]) -> None:
        self._file, self._flushed, self._writes = file, flushed, 0

    def write(self, text: str) -> None:
        self._file.write(text)
        self._writes += 1

    def flush(self) -> None:
        self._file.flush()
        self._flushed(self._writes)

    def restart(self) -> None:
        """Count the writes from 0 on: those that a former thread has not made are lost."""
        self._writes = 0

    def fileno(self) -> int:
        number: int = self._file.fileno()
        return number


class Drawing(CompositorUpdate):
    """The difference between a picture and the one before it, in Textual's terms; empty where it was passed on."""

    def __init__(self, painter: Painter, link: Link) -> None:
        self._painter, self._link = painter, link

    def render_segments(self, console: Console) -> str:  # noqa: ARG002  the interface
        text = self._painter.draw(self._link.most)
        return text + self._link.sent(len(text.encode()))


class TerminalDriver(LinuxDriver):
    """Textual's driver, whose signals are taken by the event loop: a handler that interrupts it could wait for itself.

    Stopped in any way, the program goes on with the picture, keys and modes that it had; in the background it stops
    again. What comes before the first picture or during the exit changes nothing. While a picture is on its way, only
    the newest of the following ones is kept.
    """

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._suspended = self._is_leaving = False
        self._painter = Painter(
            app.console._color_system or ColorSystem.TRUECOLOR,  # noqa: SLF001  as Textual's strips read it
            shifts=moves_cells(os.environ.get("TERM", "")),
        )
        self.link = Link(self._draw_rest, self._loop.call_later)
        self._answers = ColourAnswers()
        self._writes = 0
        self._file: Any = _Outlet(self._file, self._flushed)
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._go_on)

    def drawing(self, update: CompositorUpdate) -> CompositorUpdate | None:
        """Add an update to the picture; return what is written for it now, None for nothing."""
        self._painter.take(update)
        if self.link.is_busy or not self._painter.is_changed:
            return None
        return Drawing(self._painter, self.link)

    def redraw(self, *, now: bool = True) -> None:
        """Draw the whole screen again, now or with the next picture: the terminal may show anything."""
        self._painter.forget()
        if now:
            self._draw_rest()

    def _draw_rest(self) -> None:
        """Draw the newest picture that was not sent, because the one before it was on its way."""
        if self._painter.is_changed:
            with suppress(ScreenStackError):  # during the exit
                self._app._display(self._app.screen, CompositorUpdate())  # type: ignore[arg-type]  # noqa: SLF001  as a screen does

    def write(self, data: str) -> None:
        self._writes += 1
        super().write(data)

    def _flushed(self, writes: int) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._written, writes)

    def _written(self, writes: int) -> None:
        if writes == self._writes:
            self.link.written()

    def run_input_thread(self) -> None:
        """Read keys until the exit. Textual's own loop waits for 0.1 s after an Esc, whatever ESCDELAY is."""
        parser = InputParser(self._debug, self._answers)
        # A byte that is not UTF-8, as in mouse reports of old terminals, must not end this thread.
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            leaving = False
            while not leaving:
                leaving = self.exit_event.is_set()
                if selector.select(0 if leaving else parser.wait_s):
                    text = decoder.decode(os.read(self.fileno, _READ))
                    for message in parser.feed(text) if text else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def process_message(self, message: Message) -> None:
        if isinstance(message, CursorPosition):
            self.link.heard.set()
            self._loop.call_soon_threadsafe(self.link.answered)
            return
        if isinstance(message, DeviceControl):
            self._loop.call_soon_threadsafe(self._ask_colours)
            return
        if isinstance(message, Truecolor):
            self._loop.call_soon_threadsafe(self._use_truecolor)
            return
        if isinstance(message, Key) and message.key == "ctrl+c":
            if self._is_leaving:  # the first one waits for the keys before it, which may be a pasted file
                os.kill(os.getpid(), signal.SIGINT)
            self._is_leaving = True
        super().process_message(message)

    def start_application_mode(self) -> None:
        self._painter.forget()
        self.link.reset()
        self._writes = 0
        self._file.restart()
        first_picture.end()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._painter.colours is ColorSystem.EIGHT_BIT:
            self._answers.expect()
            self.write(ATTRIBUTES)

    def _ask_colours(self) -> None:
        """Ask the terminal whether it has truecolor, unless the screen is left."""
        if not self.exit_event.is_set() and not self._is_leaving:
            self._answers.expect()
            self.write(COLOURS)

    def _use_truecolor(self) -> None:
        self._painter.use(ColorSystem.TRUECOLOR)
        self._app.post_message(Truecolor())

    def disable_input(self) -> None:
        """Read no more keys, and no answer of the terminal, which a shell would take for keys."""
        if self._key_thread is not None and self._key_thread.is_alive() and not self.exit_event.is_set():
            self.link.heard.wait(self.link.answer_s)
            until = time.monotonic() + _ANSWER_S[1]
            while self._answers.is_expected and time.monotonic() < until:
                time.sleep(_POLL_S)
        super().disable_input()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size that Textual lays out for: where standard output is no terminal, the driver's own differs."""
        size = self._app.console.size
        return min(size.width, MOST_CELLS), min(size.height, MOST_CELLS)

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
        self.write(_CLEAR)
        super().stop_application_mode()

    def suspend(self) -> bool:
        """Stop this process and the others of its job, such as sudo, as a shell's Ctrl-Z does; return whether it can.

        The first program of a terminal has no shell that could let it go on. The terminal is restored before the others
        are stopped: once the first process of the job, such as make, is stopped, the shell uses the terminal.
        """
        try:
            is_job = os.getsid(0) != os.getpgrp() == os.tcgetpgrp(self.fileno)
        except OSError:  # not our controlling terminal
            is_job = False
        if is_job and self._leave():
            os.killpg(0, signal.SIGTSTP)
            os.kill(os.getpid(), signal.SIGSTOP)
        return is_job

    def _stop(self) -> None:
        if self._leave():
            os.kill(os.getpid(), signal.SIGSTOP)

    def _leave(self) -> bool:
        """Leave the terminal to its shell; return False where that was done, or nothing was drawn yet."""
        if self._suspended or self._key_thread is None:
            return False
        self._suspended = True
        # Where another process has stopped the job, the shell may use the terminal already. tcsetattr would then stop
        # this process by SIGTTOU before the terminal is restored.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            self.suspend_application_mode()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True

    def _go_on(self) -> None:
        if self._key_thread is None:  # not started yet
            return
        if not _in_foreground(self.fileno):
            # The others of the job too: `fg` continues only a job whose first process is stopped.
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.killpg(0, signal.SIGTTOU)
            signal.signal(signal.SIGTTOU, before)
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
        self._painter.forget()
        self.link.reset()
        self.write("\x1b[?25l")  # a shell shows the cursor, and readline switches the paste mode off
        self._enable_bracketed_paste()
        self._enable_mouse_support()
        self.flush()


def forget_size() -> None:
    """Remove COLUMNS and LINES from the environment, unless the terminal has no size, as on a serial line."""
    with suppress(OSError):
        if all(os.get_terminal_size(0)):
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)


def _in_foreground(fileno: int) -> bool:
    """Return whether this process may use its terminal; also where the terminal is not the controlling one."""
    try:
        return os.tcgetpgrp(fileno) == os.getpgrp()
    except OSError:
        return True
