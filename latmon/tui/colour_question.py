"""Asking a terminal whether it has truecolor, which ssh and sudo don't pass on as COLORTERM.

Any terminal answers primary device attributes (DA1, `CSI c`; ECMA-48 8.3.24). Only one that says it is a VT220 or later
(levels 61 to 65 of DEC's manuals) reads device control strings, so only that is asked for its setting of colours
(DECRQSS, `DCS $ q m ST`; VT510 reference manual) after one was set by red, green and blue: others would print the
question. Nothing waits for the answers, which are taken out of the input whenever they come.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from textual.message import Message

ATTRIBUTES = "\x1b[c"
COLOURS = "\x1b[38;2;1;2;3m\x1bP$qm\x1b\\\x1b[m"
"""Sets a colour, asks for the setting, and resets it."""
_ANSWER = re.compile(
    r"\x1b\[\?(?P<attributes>[\d;]{1,200})c|\x1bP[01]\$r(?P<setting>[\x20-\x7e]{0,200})(?:\x1b\\|\x07)"
)
_BROKEN = re.compile(r"\x1bP[01]\$r[\x20-\x7e]{0,200}(?=[\x00-\x1a])")
"""An answer that a control character ends, such as Ctrl-C: that is a key, and the rest is none."""
_BEGIN = re.compile(r"\x1b(?:\[\?[\d;]{0,200}|P[01]\$r[\x20-\x7e]{0,200}\x1b?)\Z")
"""The beginning of an answer, which no key sends."""
_MAYBE = re.compile(r"\x1b(?:\[|P(?:[01]\$?)?)?\Z")
"""The beginning of an answer, or keys."""
_TRUECOLOR = re.compile(r"38[;:]2[;:](?:\d*:)?1[;:]2[;:]3")
_LEVELS = frozenset(map(str, range(61, 70)))
_HOLD_S, _BROKEN_S = 0.1, 2.0
"""Time without input after which a beginning of an answer was keys, or one that no key sends is dropped."""
_PATIENCE_S = 10.0
"""Time after a question in which an Esc may be the beginning of its answer; later ones are still no keys."""


class DeviceControl(Message):
    """The terminal reads device control strings."""


class Truecolor(Message):
    """The terminal has truecolor."""


class ColourAnswers:
    """The answers of a terminal, taken out of its input: in parts, late, or never."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._asked_s: float | None = None
        """When a question was asked that has no answer yet."""
        self._held = ""
        self._held_since = 0.0

    def expect(self) -> None:
        """Expect an answer from now on: before, and when none comes for long, a lone Esc is a key at once."""
        self._asked_s = self._now()

    @property
    def is_expected(self) -> bool:
        """Return whether a question may still be answered soon."""
        return self._asked_s is not None and self._now() - self._asked_s < _PATIENCE_S

    def take(self, text: str) -> tuple[list[Message], str]:
        """Return what the answers in the text say, and the input without them or the beginning of one at its end."""
        text = self._held + text
        self._held = ""
        said: list[Message] = []

        def note(answer: re.Match[str]) -> str:
            said.extend(self._read(answer))
            return ""

        text = _BROKEN.sub("", _ANSWER.sub(note, text))
        begin = _BEGIN.search(text) if self._asked_s is not None else None
        if begin is None and self.is_expected:
            begin = _MAYBE.search(text)
        if begin is not None:
            self._held, self._held_since = begin[0], self._now()
            text = text[: begin.start()]
        return said, text

    def release(self) -> str:
        """Return held input that is keys after all, because nothing has followed; drop an answer that has no end."""
        waited_s = self._now() - self._held_since
        if _MAYBE.fullmatch(self._held) and waited_s >= _HOLD_S:
            held, self._held = self._held, ""
            return held
        if waited_s >= _BROKEN_S:
            self._held = ""
        return ""

    def _read(self, answer: re.Match[str]) -> list[Message]:
        attributes, setting = answer["attributes"], answer["setting"]
        if attributes is not None:
            has_control = self._asked_s is not None and attributes.partition(";")[0] in _LEVELS
            self._asked_s = None
            return [DeviceControl()] if has_control else []
        is_truecolor = self._asked_s is not None and _TRUECOLOR.search(setting) is not None
        self._asked_s = None
        return [Truecolor()] if is_truecolor else []
