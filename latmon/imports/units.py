"""In which unit a table's values are: told by its title, by words near it, or by the script in the same text. Pure.

What a table prints never holds its unit: `quantize((timestamp - start)/1000000)` is milliseconds by the script alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NEAR = 60
"""Lines above a table in which prose may tell its unit."""
_MAX = 2000
_TITLE = re.compile(
    r"\((us|\u00b5s|\u03bcs|usecs?|ms|msecs?|ns|nsecs?|s|secs?|seconds|microseconds|milliseconds|nanoseconds)\)"
    r"|(?<![a-z])(usecs?|msecs?|nsecs?|microseconds?|milliseconds?|nanoseconds?)(?![a-z])|_(us|ms|ns)(?![a-z])",
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


def of_context(lines: Sequence[str], line: int, last: int, kind: str) -> tuple[str, str]:
    """Of the table from `line` to `last`: its unit and where that stands; both empty where it is told nowhere."""
    for at in range(last + 1, min(last + 2, len(lines)) + 1):
        if (unit := of_title(lines[at - 1])) and lines[at - 1].strip().startswith("("):
            return unit, f"line {at}"
    for at in range(line - 1, max(0, line - NEAR), -1):
        match = _PROSE.search(lines[at - 1][:_MAX])
        if match:
            return _short(match[1]), f"line {at}"
    return _of_script(lines[: line - 1], kind)


def _of_script(lines: Sequence[str], kind: str) -> tuple[str, str]:
    """The last action above the table that fills such a one."""
    near = lines[-_MAX:]
    text = "\n".join(one[:_MAX] for one in near)
    found = [m for of in (_SCRIPT, _PLAIN) for m in of.finditer(text) if _fits(m[1], kind)]
    if not found:
        return "", ""
    latest = max(found, key=lambda m: m.start())
    divisor = latest[2] or "" if latest.re is _SCRIPT else ""
    unit = _DIVISORS.get(divisor.replace("_", ""), "")
    at = len(lines) - len(near) + text.count("\n", 0, latest.start()) + 1
    return (unit, f"the script in line {at}") if unit else ("", "")


def _fits(action: str, kind: str) -> bool:
    return not kind or action == kind or {action, kind} <= {"lquantize", "llquantize"}


def _short(word: str) -> str:
    word = word.lower()
    if word.startswith(("ms", "milli")):
        return "ms"
    if word.startswith("micro"):
        return "us"
    return _WORDS[word[0]]
