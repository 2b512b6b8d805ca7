"""What a rule is: a pure function from facts to findings, with what it is about in words.

Knows no rule by name; registry.py lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from latmon.findings.facts import Facts
from latmon.findings.finding import Finding

Thresholds = Mapping[str, float]
"""A rule's own numbers by name, as thresholds.py documents them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`judge` yields at most one finding per device, or per what it is about, for the window that the facts hold."""

    id: str
    fires: str
    """When, in one sentence without its full stop, for `docs/FINDINGS.md` and the help."""
    judge: Callable[[Facts, Thresholds], Iterable[Finding]]
    explained_by: tuple[str, ...] = ()
    """Rules whose finding on the same device says why, so that this one needn't be told as well."""
