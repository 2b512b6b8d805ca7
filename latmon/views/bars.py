"""Bars: stacked stages, shares, and histograms on a logarithmic time axis. Pure.

Stages are keyed by their column names (model/stages.py). A stage has a letter and a fill, so that a bar can be read
without colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model.stages import COLUMNS, FACTS, FACTS_OF, LETTERS, UNACCOUNTED, colour_number, drawn_as
from latmon.support.units import with_unit
from latmon.views.device_table import RAMP_SPARKS, SPARKS
from latmon.views.heatmap import TAIL, Ink, nominal
from latmon.views.lines import Line, Span, runs
from latmon.views.lines import width as line_width

BAR, THIN = "▆", "▏"
"""Cell of a bar, which leaves a gap to the row above, and a part that is smaller than a cell."""
_GRID, _NONE = ("┊", "frame"), (" ", "text")
"""Cells without a bar (glyph, role): below a label of a time axis, and elsewhere."""
_LABEL_CELLS, _LEAST_CELLS = 8, 6
"""Cells from one label of a time axis to the next: from which on labels are closer than four octaves, and the least."""
LETTER_ROLES = tuple(f"letter{number}" for number in range(1, len(FACTS) + 1))
BOLD = ("strong", "bad", "accent", *LETTER_ROLES)
"""Roles that are bold where there are colours."""
_AGE_FROM_US = 250_000
"""Age at the right end of an axis of ages: no younger one is listed."""
_AGE_OCTAVES = 8
"""Octaves of the shortest axis of ages: to a minute."""


def short(stage: str) -> str:
    """Return a stage's name in at most seven cells."""
    facts = FACTS_OF.get(stage)
    return facts.short or stage if facts else stage


def role(stage: str, ink: Ink) -> str:
    """Return the role of a stage's cells."""
    if ink.coloured:
        return f"stage{colour_number(stage)}"
    return "dim" if stage == UNACCOUNTED else "text"


def letter_role(stage: str, ink: Ink) -> str:
    """Return the role of a stage's letter: its colour, where a text of that colour can be read."""
    return f"letter{colour_number(stage)}" if ink.coloured else "strong"


def apportion(parts: Sequence[float], cells: int) -> list[int]:
    """Return whole cells in proportion, exactly `cells` in sum (largest remainder); all 0 when all parts are 0."""
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    wanted = [max(p, 0) * cells / total for p in parts]
    given = [int(w) for w in wanted]
    by_rest = sorted(range(len(parts)), key=lambda i: given[i] - wanted[i])
    for i in by_rest[: cells - sum(given)]:
        given[i] += 1
    return given


def stacked(parts: Mapping[str, float], cells: int, ink: Ink) -> Line:
    """Return a bar of exactly `cells`: each stage its letter, then its fill. A stage below half a cell is left out."""
    names = [p for p in COLUMNS if parts.get(p, 0) > 0]
    sizes = apportion([parts[n] for n in names], cells)
    if not any(sizes):
        return (Span(" " * cells),) if cells > 0 else ()
    return tuple(span for name, n in zip(names, sizes, strict=True) if n for span in _segment(name, n, ink))


def legend(stages: Iterable[str], width: int, ink: Ink) -> list[Line]:
    """Return the letters of the stages that are shown, in as many lines as they need."""
    wanted = set(stages)
    lines: list[Line] = []
    for name in COLUMNS:
        if name in wanted:
            spans = (Span(" "), *_segment(name, 2, ink), Span(f" {name} ", "dim"))
            if lines and line_width(lines[-1]) + line_width(spans) <= width:
                lines[-1] = (*lines[-1], *spans)
            else:
                lines.append(spans)
    return lines


def share_bar(share: float | None, cells: int, role: str = "text") -> Line:
    """Return a share as a bar of exactly `cells`; a share above 0 is at least a thin line."""
    if not share or share <= 0 or cells <= 0:
        return (Span(" " * max(cells, 0)),)
    text = BAR * round(min(share, 1.0) * cells) or THIN
    return (Span(f"{text:<{cells}}", role),)


@dataclass(frozen=True)
class AgeAxis:
    """A logarithmic axis of ages that ends now, at its right end: a bar begins where its I/O began."""

    cells: int
    octaves: int

    @classmethod
    def until(cls, cells: int, oldest_us: int) -> AgeAxis:
        """Return the axis that the oldest I/O fits on, of an even number of octaves, so that it is seldom another."""
        octaves = math.ceil(math.log2(max(oldest_us, 1) / _AGE_FROM_US))
        return cls(cells, max(octaves + octaves % 2, _AGE_OCTAVES))

    def length(self, us: int) -> int:
        """Return the cells from the place of an age to now, at least 1."""
        octaves = math.log2(max(us, _AGE_FROM_US) / _AGE_FROM_US)
        return min(max(round(octaves * self.cells / self.octaves), 1), self.cells)

    @property
    def title(self) -> str:
        """Return the labels as a text of exactly `cells`: 16s 4s 1s now."""
        text = "now"
        for octave in range(2, self.octaves + 1, 2):
            label = with_unit(_AGE_FROM_US << octave, 2)
            at = self.length(_AGE_FROM_US << octave)
            if at >= len(text) + len(label) + 1:
                text = f"{label}{text:>{at - len(label)}}"
        return f"{text:>{self.cells}}"

    def bar(self, age_us: int, threshold_us: int | None) -> Line:
        """Return the bar of an age: the part from the threshold on has the alarm colour."""
        young = size = self.length(age_us)
        if threshold_us is not None and age_us >= threshold_us:
            young = min(self.length(threshold_us) if threshold_us > _AGE_FROM_US else 0, size)
        spans = (
            Span(" " * (self.cells - size)),
            Span(BAR * (size - young), TAIL),
            Span(BAR * young, "area"),
        )
        return tuple(span for span in spans if span.text)


@dataclass(frozen=True)
class TimeAxis:
    """A logarithmic axis of times from 1 us on: `cells` cells for `octaves` octaves."""

    cells: int
    octaves: float

    @classmethod
    def even(cls, cells: int, octaves: int) -> TimeAxis:
        """Return an axis of at least so many octaves, with whole cells for four of them: its labels are even."""
        return cls(cells, 4 * cells / max(4 * cells // max(octaves, 1), 1))

    def at(self, us: int) -> float:
        """Return the place of a time, in cells."""
        return math.log2(max(us, 1)) * self.cells / self.octaves

    @cached_property
    def labels(self) -> Mapping[int, str]:
        """Return cell -> label: 1us, 16us, 256us, 4ms, or closer where there is room; empty where they don't fit."""
        wide = self.cells / self.octaves
        step_widths = ((1, _LABEL_CELLS), (2, _LABEL_CELLS), (4, _LEAST_CELLS))
        even = (n for n, least in step_widths if n * wide >= least and math.isclose(n * wide, round(n * wide)))
        apart = next(even, 0)
        if not apart:
            return {}
        marks = ((round(n * wide), nominal(1 << n)) for n in range(0, math.ceil(self.octaves), apart))
        return {x: text for x, text in marks if x + len(text) < self.cells}

    @property
    def title(self) -> str:
        """Return the labels as a text of exactly `cells`."""
        text = ""
        for x, label in self.labels.items():
            text = f"{text:<{x}}{label}"
        return f"{text:<{self.cells}}"

    def columns(self, histogram: Histogram) -> list[float]:
        """Return the I/Os of each cell; those of a bucket that is wider than a cell are spread over its cells."""
        columns = [0.0] * self.cells
        for index, n in histogram.buckets:
            low, high = (self.at(us) for us in bucket_bounds(index, histogram.bits))
            # the cells with their middle in the bucket; a narrower bucket is in the cell of its begin
            inside = range(math.ceil(low - 0.5), math.ceil(high - 0.5)) or (int(low),)
            for x in inside:
                columns[min(x, self.cells - 1)] += n / len(inside)
        return columns


def distribution(
    columns: Sequence[float], axis: TimeAxis, ink: Ink, *, most: float, tall: int, role: str = "text"
) -> list[Line]:
    """Return the I/Os of each cell as bars `tall` lines high, over the thin lines of the axis.

    Heights are logarithmic up to `most` I/Os, which all stages share; a single I/O is visible.
    """
    glyphs = SPARKS if ink.coloured else RAMP_SPARKS
    each = len(glyphs) - 1
    steps = tall * each - 1  # the lines above and below stay apart
    full = math.log(most + 1) or 1.0
    heights = [max(1, round(steps * math.log(n + 1) / full)) if n else 0 for n in columns]
    return [
        runs(
            (glyph, role) if glyph != glyphs[0] else _GRID if x in axis.labels else _NONE
            for x, glyph in enumerate(line)
        )
        for line in bar_lines(heights, tall, glyphs)
    ]


def bar_lines(heights: Sequence[int], tall: int, glyphs: str) -> Iterator[list[str]]:
    """Yield the glyphs of bars line by line, the highest of `tall` lines first.

    `heights` count in steps, of which a line has one less than there are glyphs; the first glyph is the empty one.
    """
    each = len(glyphs) - 1
    for below in range((tall - 1) * each, -1, -each):
        yield [glyphs[min(max(height - below, 0), each)] for height in heights]


def fine(histogram: Histogram) -> dict[int, int]:
    """Return counts by buckets of latmon's resolution, whatever the source's is."""
    if histogram.bits == BITS:
        return dict(histogram.buckets)
    fine_counts: dict[int, int] = {}
    for index, n in histogram.buckets:
        fine_bucket = bucket_index(bucket_bounds(index, histogram.bits)[0])
        fine_counts[fine_bucket] = fine_counts.get(fine_bucket, 0) + n
    return fine_counts


def _segment(name: str, cells: int, ink: Ink) -> Line:
    fill = BAR if ink.coloured else drawn_as(name).fill
    fill_after = (Span(fill * (cells - 1), role(name, ink)),) if cells > 1 else ()
    return (Span(LETTERS.get(name, fill), letter_role(name, ink)), *fill_after)
