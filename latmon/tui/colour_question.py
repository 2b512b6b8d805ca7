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
_ANSWER = re.compile(r"\x1b\[\?(?P<attributes>[\d;]+)c|\x1bP[01]\$r(?P<setting>[^\x1b]*)\x1b\\")
_BEGIN = re.compile(r"\x1b(?:\[\?[\d;]*|P[01](?:\$(?:r[^\x1b]*\x1b?)?)?)\Z")
"""The beginning of an answer, which no key sends."""
_MAYBE = re.compile(r"\x1b(?:\[|P)?\Z")
"""The beginning of an answer or a key."""
_TRUECOLOR = re.compile(r"38[;:]2[;:](?:\d*:)?1[;:]2[;:]3")
_LEVELS = range(61, 70)
_HOLD_S = 0.1
_PATIENCE_S = 10.0
"""Time after a question in which an Esc may be the beginning of its answer; later ones are still no keys."""
_LONGEST = 256
"""Characters of an answer at most: what is longer is none."""


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
    def _is_expected(self) -> bool:
        return self._asked_s is not None and self._now() - self._asked_s < _PATIENCE_S

    def take(self, text: str) -> tuple[list[Message], str]:
        """Return what the answers in the text say, and the input without them or the beginning of one at its end."""
        text = self._held + text
        self._held = ""
        said: list[Message] = []

        def note(answer: re.Match[str]) -> str:
            said.extend(self._read(answer))
            return ""

        text = _ANSWER.sub(note, text)
        begin = _BEGIN.search(text) or (_MAYBE.search(text) if self._is_expected else None)
        if begin is not None and len(begin[0]) <= _LONGEST:
            self._held, self._held_since = begin[0], self._now()
            text = text[: begin.start()]
        return said, text

    def release(self) -> str:
        """Return held input that is a key after all, because nothing has followed."""
        if not _MAYBE.fullmatch(self._held) or self._now() - self._held_since < _HOLD_S:
            return ""
        held, self._held = self._held, ""
        return held

    def _read(self, answer: re.Match[str]) -> list[Message]:
        attributes, setting = answer["attributes"], answer["setting"]
        if attributes is not None:
            is_asked_more = self._asked_s is not None and int(attributes.split(";")[0] or 0) in _LEVELS
            self._asked_s = self._now() if is_asked_more else None
            return [DeviceControl()] if is_asked_more else []
        is_truecolor = self._asked_s is not None and _TRUECOLOR.search(setting) is not None
        self._asked_s = None
        return [Truecolor()] if is_truecolor else []
