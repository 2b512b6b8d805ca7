"""Pasted text without its Esc characters: a terminal that brackets a paste passes those of a copied log on.

To a parser of keys an Esc in a paste is the beginning of a key, and what follows would be keys that end the program.
"""

from __future__ import annotations

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
_ESC = "\x1b"


class PasteGuard:
    """State between pieces of input, which may cut a bracket of a paste."""

    def __init__(self) -> None:
        self._is_paste = False
        self._last = ""
        """The end of the input before, which may be the beginning of PASTE_BEGIN; it was passed on."""
        self._held = ""
        """The beginning of PASTE_END, which is passed on with the rest of it."""

    def clean(self, data: str) -> str:
        """Return the input without Esc between the brackets of a paste."""
        remainder, cleaned = self._held + data, ""
        self._held = ""
        while remainder:
            piece, remainder = self._pasted(remainder) if self._is_paste else self._typed(remainder)
            cleaned += piece
        return cleaned

    def _typed(self, text: str) -> tuple[str, str]:
        """Return the input up to the begin of a paste, and what follows."""
        joined = self._last + text
        at = joined.find(PASTE_BEGIN)
        if at < 0:
            self._last = joined[1 - len(PASTE_BEGIN) :]
            return text, ""
        self._is_paste, before = True, len(self._last)
        self._last = ""
        end = at + len(PASTE_BEGIN) - before
        return text[:end], text[end:]

    def _pasted(self, text: str) -> tuple[str, str]:
        """Return pasted text up to its end, and what follows."""
        inside, end, remainder = text.partition(PASTE_END)
        self._is_paste = not end
        if not end:
            self._held = _beginning_at_end(inside)
            inside = inside[: len(inside) - len(self._held)]
        return inside.replace(_ESC, "") + end, remainder


def _beginning_at_end(text: str) -> str:
    """Return the longest beginning of PASTE_END with which a text ends."""
    for length in range(len(PASTE_END) - 1, 0, -1):
        if text.endswith(PASTE_END[:length]):
            return PASTE_END[:length]
    return ""
