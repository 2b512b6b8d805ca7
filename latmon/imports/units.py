"""In which unit a table's values are: told by its title, by words near it, or by the script in the same text. Pure.

What a table prints never holds its unit: `quantize((timestamp - start)/1000000)` is milliseconds by the script alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

NEAR = 60
"""Lines above a table in which prose may tell its unit."""
_MAX = 2000
_LATEST = 100
_TITLE = re.compile(
    r"\((us|\u00b5s|\u03bcs|usecs?|ms|msecs?|ns|nsecs?|s|secs?|seconds|microseconds|milliseconds|nanoseconds)\)"
    r"|(?<![a-z])(usecs?|msecs?|nsecs?|microseconds?|milliseconds?|nanoseconds?)(?![a-z])|[_@](us|ms|ns)(?![a-z])",
    re.IGNORECASE,
)
_PROSE = re.compile(
    r"(?:times?|values?|latenc(?:y|ies)|units?)\b.{0,40}?\b(?:are|is|in)\b.{0,10}?\b"
    r"(milliseconds?|microseconds?|nanoseconds?|msecs?|usecs?|nsecs?|ms|us|ns)\b",
    re.IGNORECASE,
)
_SCRIPT = re.compile(
    r"\b(l?quantize|llquantize|l?hist)\s*\(\s*\(*\s*\$?(?:timestamp|vtimestamp|walltimestamp|nsecs)\s*-.{1,300}?"
    r"\)\s*(?:/\s*([0-9_]{1,12})\s*)?[,)]",
    re.DOTALL,
)
_PLAIN = re.compile(r"\b(l?quantize|llquantize|l?hist)\s*\(\s*(?:timestamp|nsecs)\s*-[^()/]{1,200}[,)]")
_DIVISORS = {"": "ns", "1000": "us", "1000000": "ms", "1000000000": "s"}
_WORDS = {"n": "ns", "u": "us", "\u00b5": "us", "\u03bc": "us", "s": "s"}


def of_title(title: str) -> str:
    """`resume(ms)`, `@usecs`, `latency_us`; empty where it has none."""
    match = _TITLE.search(title[:_MAX])
    return _short(next(filter(None, match.groups()))) if match else ""


class Context:
    """A text's words about units, looked for once: tables may be many."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._prose = [(at, _short(m[1])) for at, line in enumerate(lines, 1) if (m := _PROSE.search(line[:_MAX]))]
        self._scripts = _scripts(lines)

    def unit(self, line: int, last: int, kind: str) -> tuple[str, str]:
        """Of the table from `line` to `last`: its unit and where that stands; both empty where it is told nowhere."""
        behind = self._lines[last] if last < len(self._lines) else ""
        if behind.strip().startswith("(") and (unit := of_title(behind)):
            return unit, f"line {last + 1}"
        near = self._prose[: bisect_left(self._prose, (line, ""))][-1:]
        if near and near[0][0] >= line - NEAR:
            return near[0][1], f"line {near[0][0]}"
        for at, action, unit in reversed(self._scripts[: bisect_left(self._scripts, (line, "", ""))][-_LATEST:]):
            if _fits(action, kind):
                return unit, f"the script in line {at}" if unit else ""
        return "", ""


def _scripts(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """Line, action and unit of what fills tables in the scripts of a text."""
    if not any("quantize" in line or "hist" in line for line in lines):
        return []
    text = "\n".join(line[:_MAX] for line in lines)
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    found = []
    for of in (_SCRIPT, _PLAIN):
        for m in of.finditer(text):
            divisor = (m[2] or "").replace("_", "") if of is _SCRIPT else ""
            found.append((bisect_right(starts, m.start()), m[1], _DIVISORS.get(divisor, "")))
    return sorted(found)


def _fits(action: str, kind: str) -> bool:
    return not kind or action == kind or {action, kind} <= {"lquantize", "llquantize"}


def _short(word: str) -> str:
    word = word.lower()
    if word.startswith(("ms", "milli")):
        return "ms"
    if word.startswith("micro"):
        return "us"
    return _WORDS[word[0]]
