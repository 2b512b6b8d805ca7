"""The input line: filter, time or note while it is typed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MAX = 40


@dataclass(frozen=True, slots=True)
class Typed:
    """The text so far, and whether it is ready."""

    text: str = ""
    done: bool = False

    def after(self, key: str, character: str | None, most: int = _MAX) -> Typed:
        """One key further: Enter keeps the text, Esc clears it."""
        if key == "enter":
            return replace(self, done=True)
        if key == "escape":
            return Typed("", done=True)
        if key == "backspace":
            return Typed(self.text[:-1])
        added = character if character and character.isprintable() else ""
        return Typed((self.text + added)[:most])


FILTER, SEEK, NOTE = "filter", "seek", "note"
WORDS = {FILTER: " / ", SEEK: " time ", NOTE: " mark "}
MAX_NOTE = 120


@dataclass(frozen=True, slots=True)
class Asked:
    """A purpose and the line so far; `kept` is false after Esc."""

    purpose: str
    typed: Typed
    kept: bool = True

    def after(self, key: str, character: str | None) -> Asked:
        """One key further."""
        typed = self.typed.after(key, character, MAX_NOTE) if self.purpose == NOTE else self.typed.after(key, character)
        return replace(self, typed=typed, kept=key != "escape")
