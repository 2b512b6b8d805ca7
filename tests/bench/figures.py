"""Figures of a benchmark's section with their spread, limits and peers, and their Markdown.

Pure: knows neither how a figure was had nor where it is written.
"""

from __future__ import annotations

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

    @property
    def middle(self) -> float:
        return median(self.values)

    def verdict(self) -> str:
        if self.limit is None:
            return ""
        limit = f"<= {self.limit:,.{self.digits}f}"
        if self.middle <= self.limit:
            return f"{limit}: met"
        return f"{limit}: **missed**, {self.middle / self.limit:.2f} times"

    def row(self) -> str:
        if not self.values:
            return f"| {self.name} | - | | 0 | | {self.note or 'not measured'} |"
        low, high = (f"{edge:,.{self.digits}f}" for edge in (min(self.values), max(self.values)))
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
        lines += ["| what | median | min to max | runs | limit | |", "|---|---|---|---|---|---|"]
        lines += [figure.row() for figure in self.figures]
        if self.remarks:
            lines += ["", *(f"- {remark}" for remark in self.remarks)]
        return "\n".join(lines) + "\n"


def page(introduction: str, order: Sequence[str], before: str, new: Mapping[str, str]) -> str:
    """The whole page: the new parts, and the others as they were on the page."""
    parts = dict(re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end -->", before, re.DOTALL)) | dict(new)
    blocks = (f"<!-- {name} -->\n{parts[name].strip()}\n<!-- end -->\n" for name in order if name in parts)
    return "\n".join([introduction, *blocks])
