"""Figures of a benchmark's section with their spread, limits and peers, and their Markdown.

Pure: knows neither how a figure was had nor where it is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table. `limit` is the most it may be; None: nothing is asked of it."""

    name: str
    values: tuple[float, ...]
    unit: str
    limit: float | None = None
    digits: int = 0
    note: str = ""
    none: float | None = None
    """For pairs: the value that means no difference; the row has the median's interval then."""

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median by order statistics: the whole range of less than nine values."""
        values = sorted(self.values)
        out, left = 0, 0.5 ** len(values)
        while 2 * (left := left + math.comb(len(values), out + 1) * 0.5 ** len(values)) <= 0.05:
            out += 1
        return values[out], values[-1 - out]

    @property
    def spread(self) -> tuple[float, float]:
        return (min(self.values), max(self.values)) if self.none is None else self.interval

    def verdict(self) -> str:
        low, high = self.interval
        if self.none is not None and low <= self.none <= high:
            return "no difference seen"
        if self.limit is None:
            return ""
        limit = f"<= {self.limit:,.{self.digits}f}"
        if self.middle <= self.limit:
            return f"{limit}: met"
        return f"{limit}: **missed**, {self.middle / self.limit:.2f} times"

    def row(self) -> str:
        if not self.values:
            return f"| {self.name} | - | | 0 | | {self.note or 'not measured'} |"
        low, high = (f"{edge:,.{self.digits}f}" for edge in self.spread)
        spread = f"{low} to {high}" if len(self.values) > 1 else ""
        middle = f"{self.middle:,.{self.digits}f} {self.unit}".strip()
        return f"| {self.name} | {middle} | {spread} | {len(self.values)} | {self.verdict()} | {self.note} |"


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page. `method` describes the run in a few sentences."""

    title: str
    method: str
    figures: Sequence[Figure]
    remarks: Sequence[str] = ()

    def markdown(self, command: str, date: str) -> str:
        lines = [f"## {self.title}", "", self.method, "", f"`{command}`, {date}", ""]
        lines += ["| what | median | min to max, of pairs: 95 % | runs | limit | |", "|---|---|---|---|---|---|"]
        lines += [figure.row() for figure in self.figures]
        if self.remarks:
            lines += ["", *(f"- {remark}" for remark in self.remarks)]
        return "\n".join(lines) + "\n"


def page(introduction: str, order: Sequence[str], before: str, new: Mapping[str, str]) -> str:
    """The whole page: the new parts, and the others as they were on the page."""
    parts = dict(re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end -->", before, re.DOTALL)) | dict(new)
    blocks = (f"<!-- {name} -->\n{parts[name].strip()}\n<!-- end -->\n" for name in order if name in parts)
    return "\n".join([introduction, *blocks])
