"""What a request was marked with, as words: from cmd_flags by the kernel's bit positions, or from the letters of rwbs.

Owns the words and where the bits are when BTF can't be read. Reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WORDS = {
    "sync": "__REQ_SYNC",
    "fua": "__REQ_FUA",
    "meta": "__REQ_META",
    "preflush": "__REQ_PREFLUSH",
    "readahead": "__REQ_RAHEAD",
    "background": "__REQ_BACKGROUND",
}
"""And what enum req_flag_bits calls them."""
USUAL = {"sync": 11, "fua": 17, "meta": 12, "preflush": 18, "readahead": 19, "background": 20}
"""Of most kernels since 4.10."""
_HIGHEST = 63
# blk_fill_rwbs: a preflush's F, the op, then FUA, readahead, sync, meta and (6.11) atomic in this order.
_RWBS = re.compile(r"(F(?=[RWDFNZ]))?(?:R|W|DE?|F|N|Z(?:RA|[A-Z]))(F)?(A)?(S)?(M)?U?")
_LETTERS = ("preflush", "fua", "readahead", "sync", "meta")


def positions(bits: Mapping[str, int]) -> Mapping[str, int]:
    """Word -> bit, of an enum's names and values; the usual ones where it doesn't have them."""
    found = {word: bits[name] for word, name in WORDS.items() if 0 <= bits.get(name, -1) <= _HIGHEST}
    return found or USUAL


def of_bits(flags: int, at: Mapping[str, int]) -> tuple[str, ...]:
    """Of cmd_flags."""
    return tuple(word for word in WORDS if word in at and flags >> at[word] & 1)


def of_letters(rwbs: str) -> tuple[str, ...]:
    """Of a tracepoint's rwbs; nothing where it can't be understood."""
    found = _RWBS.fullmatch(rwbs)
    if found is None:
        return ()
    named = {word for word, letter in zip(_LETTERS, found.groups(), strict=True) if letter}
    return tuple(word for word in WORDS if word in named)
