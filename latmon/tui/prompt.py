"""The last line while something is entered: filter, time or note, or the choice of a theme or a ramp. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

_MAX = 40


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is typed: its text, and whether it is complete."""

    text: str = ""
    done: bool = False

    def after(self, key: str, character: str | None, most: int = _MAX) -> InputLine:
        """Return the line after a key: Enter keeps the text, Esc clears it. `character`: pasted text too."""
        if key == "enter":
            return replace(self, done=True)
        if key == "escape":
            return InputLine("", done=True)
        if key == "backspace":
            return InputLine(self.text[:-1])
        added = "".join(one for one in character or "" if one.isprintable())
        return InputLine((self.text + added)[:most])


def one_line(text: str) -> str:
    """Return a pasted text without the ends of its lines, for a line that is typed."""
    return " ".join(text.split())


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


THEME, RAMP = "theme", "ramp"
_NEXT = MappingProxyType(
    {
        **dict.fromkeys(("right", "down", "l", "j", "tab", "T", "C"), 1),
        **dict.fromkeys(("left", "up", "h", "k", "shift+tab"), -1),
        "home": -1000,
        "end": 1000,
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A name that is chosen from several and shown at once; `kept` is false after Esc."""

    purpose: str
    names: tuple[str, ...]
    at: int = 0
    done: bool = False
    kept: bool = True

    @property
    def name(self) -> str:
        """Return the name that is shown now."""
        return self.names[self.at]

    def after(self, key: str) -> Choice:
        """Return the choice after a key: Enter keeps the name, Esc restores the first one."""
        if key in ("enter", "space"):
            return replace(self, done=True)
        if key in ("escape", "q"):
            return replace(self, done=True, kept=False)
        by = _NEXT.get(key, 0)
        if abs(by) == 1:
            return replace(self, at=(self.at + by) % len(self.names))
        return replace(self, at=min(max(self.at + by, 0), len(self.names) - 1))
