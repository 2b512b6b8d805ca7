"""What a typed line is for: the filter while it is typed, a time to go to, a note. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from latmon.tui.typed import Typed

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
