"""The input line: filter, time or note while it is typed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MAX = 40


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is typed: its text, and whether it is complete."""

    text: str = ""
    done: bool = False

    def after(self, key: str, character: str | None, most: int = _MAX) -> InputLine:
        """Return the line after a key: Enter keeps the text, Esc clears it."""
        if key == "enter":
            return replace(self, done=True)
        if key == "escape":
            return InputLine("", done=True)
        if key == "backspace":
            return InputLine(self.text[:-1])
        added = character if character and character.isprintable() else ""
        return InputLine((self.text + added)[:most])


FILTER, SEEK, NOTE = "filter", "seek", "note"
WORDS = {FILTER: " / ", SEEK: " time ", NOTE: " mark "}
MAX_NOTE = 120


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line with its purpose; `kept` is false after Esc."""

    purpose: str
    typed: InputLine
    kept: bool = True

    def after(self, key: str, character: str | None) -> Prompt:
        """Return the prompt after a key."""
        typed = self.typed.after(key, character, MAX_NOTE) if self.purpose == NOTE else self.typed.after(key, character)
        return replace(self, typed=typed, kept=key != "escape")
