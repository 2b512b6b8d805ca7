"""A line that is being typed: the filter. Knows keys by name, and nothing of what the text is for."""

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
