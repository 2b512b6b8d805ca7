"""Conversion of another tool's buckets to latmon's: counts exact, edges nearest, the loss in words.

A count goes to the bucket that has the last value of its own bucket: a quantile, which is a bucket's upper bound, is
then never below the true one by more than rounding. A row without an upper end goes to the last bucket, which means "or
more", unless the maximum is known. If a bucket is wider than latmon's, all of its table gets fewer bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.values import UNITS, ImportedTable, Remark, TextSpan
from latmon.model.histogram import BITS, MAX_US, Histogram, bucket_bounds, bucket_index

_NS = 1000
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class Range:
    """Bucket in microseconds: its first and last value."""

    first: int
    last: int
    count: int
    is_open: bool = False

    @property
    def is_endless(self) -> bool:
        """Return whether its upper end is unknown."""
        return self.is_open and self.last == MAX_US

    @property
    def bits(self) -> int:
        """Return the most bits at which a latmon bucket is as wide; a range from 0 on is no measure of that."""
        if self.first == 0 or self.is_open:
            return BITS
        for bits in range(BITS, 0, -1):
            low, high = bucket_bounds(bucket_index(self.last, bits), bits)
            if high - low > self.last - self.first:
                return bits
        return 0

    @property
    def is_exact(self) -> bool:
        """Return whether a bucket of latmon's has the same edges."""
        bits = self.bits
        return not self.is_open and bucket_bounds(bucket_index(self.last, bits), bits) == (self.first, self.last + 1)


def ranges(table: ImportedTable, unit: str) -> list[Range]:
    """Return the rows with counts; `without_negative` has removed counts below 0."""
    return [_range(row, UNITS[unit]) for row in table.rows if row.count > 0]


def bits_of(each: Iterable[Range]) -> int:
    """Return the most bits that no range is too coarse for."""
    return min((one.bits for one in each), default=BITS)


def histogram(each: Iterable[Range], bits: int, sum_us: int | None = None, max_us: int | None = None) -> Histogram:
    """Return the histogram with exact counts, and with sum and maximum if the tool printed them."""
    counts: dict[int, int] = {}
    for one in each:
        most = one.last if max_us is None else min(one.last, max(one.first, max_us))
        index = bucket_index(most, bits)
        counts[index] = counts.get(index, 0) + one.count
    return Histogram.of(counts, sum_us, max_us, bits)


def lost(table: ImportedTable, each: list[Range], bits: int) -> str:
    """Return what latmon's scale can't represent, in words; empty if it is all there."""
    sentences = []
    if any(not one.is_exact and not one.is_endless for one in each):
        sentences.append("edges moved to latmon's buckets, upper edges kept (~)")
    if bits < BITS:
        sentences.append(
            "buckets up to twice as wide as their begin (~)" if bits == 0 else f"{2**bits} buckets per octave"
        )
    above = [row for row in table.rows if row.high is None and row.count]
    if above and table.max_us is None:
        sentences.append(f"{above[0].count:,} of {above[0].low:,} or more: how much more is not known")
    if any(one.last >= MAX_US and not one.is_endless for one in each):
        sentences.append("more than 71 min is in the last bucket")
    return "; ".join(sentences)


def without_negative(table: ImportedTable) -> tuple[ImportedTable, list[Remark]]:
    """Take out rows whose count is negative, which is no number of I/Os; remark on them and on values below 0."""
    found, where = [], TextSpan(table.where.first, table.where.first)
    wrong = [row for row in table.rows if row.count < 0]
    if wrong:
        text = ", ".join(f"{label(row)}: {row.count:,}" for row in wrong[:_MAX_NAMED])
        found.append(
            Remark(
                where, f"{len(wrong):,} rows with a count below 0 are left out ({text})", len(wrong), is_incomplete=True
            )
        )
    below = sum(row.count for row in table.rows if row.count > 0 and row.high is not None and row.high <= 0)
    if below:
        found.append(Remark(where, f"{below:,} of {table.count:,} values are below 0: they are counted at 0"))
    return replace(table, rows=tuple(row for row in table.rows if row.count >= 0)), found


def label(row: Row) -> str:
    """Return a row as its tool prints it: `512`, `< 60000`, `>= 600000`."""
    if row.low is None:
        return f"< {row.high}"
    return f">= {row.low}" if row.high is None else str(row.low)


def upper(row: Row) -> str:
    """Return a row by its inclusive upper end, the highest that a depth was."""
    if row.high is None:
        return f"{row.low} or more"
    return str(row.high - 1) if row.low is None or row.high - row.low == 1 else f"<= {row.high - 1}"


def _range(row: Row, unit: int) -> Range:
    low, high = row.low, row.high
    if high is None:
        first = max(0, low or 0) * unit // _NS
        return Range(min(first, MAX_US), MAX_US, row.count, is_open=True)
    if high <= 0:
        return Range(0, 0, row.count, is_open=True)
    first = max(0, low or 0) * unit // _NS
    return Range(first, max(first, (high * unit - 1) // _NS), row.count, is_open=low is None)
