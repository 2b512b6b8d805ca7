"""clean(): the one filter for every foreign string (comm, device, host, handler, anything in a recording).

Called once, at the decoder; drawing only asserts `is_clean`. A terminal obeys control characters, C1 codes, OSC 52
and bidirectional overrides; a markup parser obeys brackets. After `clean` only printable text of bounded length is left
(brackets stay: what is drawn is never parsed as markup).
"""

from __future__ import annotations

MAX_CELLS = 64


def clean(raw: str | bytes, limit: int = MAX_CELLS) -> str:
    r"""Printable text of at most `limit` characters; what is not printable is shown as its escape (`\x1b`).

    A blank is printable, a newline, a tab, a zero-width or bidirectional control is not. Cut text ends in `…`.
    """
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def is_clean(text: str) -> bool:
    """True when drawing `text` can do nothing but show it."""
    return text.isprintable()


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "backslashreplace").decode("ascii")
