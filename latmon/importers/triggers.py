"""Importer of the kernel's histogram triggers: `hist` files of tracefs whose key is a time.

`~ 2^12` (a key with .log2) has the values above 2^11 up to 2^12, because hist_field_log2 rounds up to a power of two; a
quantile, which is an upper bound, is 2^12. `~ 100-199` (.buckets=100) has both ends, a plain number is one value
(kernel/trace/trace_events_hist.c). The rows are not in the order of their values. The time is in us where the text has
common_timestamp.usecs, in ns where it has common_timestamp without it; a name such as `lat_us` or `usecs` says it, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.values import Found, ImportedTable, ImportOptions, Passed, Remark, TextSpan
from latmon.support.text import clean

ENTRY = re.compile(r"\{ (.{1,900}) \} hitcount:\s*(\d{1,18})\b.*")
KEY = re.compile(r"(?:^|, )([\w.]{1,64}):\s*(~ 2\^\d{1,2}|~ \d{1,19}-\d{1,19}|[^,]{0,200})\s*(?=, [\w.]{1,64}:|\Z)")
LOG2, BUCKET = re.compile(r"~ 2\^(\d{1,2})"), re.compile(r"~ (\d{1,19})-(\d{1,19})")
TIME = re.compile(
    r"lat|delta|dur|usecs|nsecs|wait|delay|elapsed|time(?!r)|_(?:us|ns)\b|\b(?:us|ns|resp)\b", re.IGNORECASE
)
"""Names of keys that are times: wakeup_lat, delta, usecs, ..."""
BEGIN = "# event histogram"
INFO = "# trigger info: "
TOTAL = re.compile(r"\s*(Hits|Entries|Dropped): (\d{1,18})\s*")
IN_US, IN_NS = "common_timestamp.usecs", "common_timestamp"


def sniff(head: str) -> bool:
    """Return whether there is an entry of such a histogram."""
    return any(line.startswith("{ ") and ENTRY.fullmatch(line) for line in head.split("\n") if "hitcount:" in line)


@dataclass(slots=True)
class _Histogram:
    """Entries of one trigger."""

    first: int
    last: int
    rows: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """Key that is a time, and the other keys -> its rows."""
    others: set[str] = field(default_factory=set)
    """Keys of entries without a time."""
    are_numbers: dict[str, bool] = field(default_factory=dict)
    """Key -> whether its values are numbers: those of one key are of one kind."""
    hits: int | None = None
    dropped: int = 0
    counted: int = 0
    damaged: int = 0


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the entries of each trigger and each combination of other keys as a table."""
    del options
    text = "\n".join(line[: values.LONGEST_LINE] for line in lines)
    unit = "us" if IN_US in text else "ns" if IN_NS in text else ""
    now: _Histogram | None = None
    for at, line in enumerate(lines, 1):
        total = TOTAL.fullmatch(line)
        is_entry = line.startswith("{ ")
        if line.startswith((BEGIN, INFO)) or (line.strip() == "#" and now is None) or line.strip() == "Totals:":
            if line.startswith(BEGIN) and now is not None:
                yield from _tables(now, unit)
                now = None
            yield Passed(TextSpan(at, at))
        elif is_entry:
            now = now or _Histogram(at, at)
            _take_entry(now, at, line)
        elif total is not None and now is not None:
            now.last = at
            now.hits = int(total[2]) if total[1] == "Hits" else now.hits
            now.dropped = int(total[2]) if total[1] == "Dropped" else now.dropped
            yield Passed(TextSpan(at, at))
    if now is not None:
        yield from _tables(now, unit)


def _take_entry(histogram: _Histogram, at: int, line: str) -> None:
    entry = ENTRY.fullmatch(line) if len(line) < values.LONGEST_LINE else None
    keys = [] if entry is None else KEY.findall(entry[1])
    histogram.last = at
    if entry is None or not keys:
        histogram.damaged = histogram.damaged or at
        return
    count = int(entry[2])
    histogram.counted += count
    for name, value in keys:
        is_number = value.strip().isdecimal()
        if histogram.are_numbers.setdefault(name, is_number) != is_number:
            histogram.damaged = histogram.damaged or at
    named = [(name, value.strip()) for name, value in keys if (value.strip()[:1].isdigit() or value.startswith("~"))]
    times = [(name, value) for name, value in named if TIME.search(name)]
    if not times:
        histogram.others |= {name for name, _ in keys}
        return
    name, value = times[-1]
    rest = " ".join(f"{key} {other.strip()}" for key, other in keys if key != name)
    row = _row(value, count)
    if row is None:
        histogram.damaged = histogram.damaged or at
    else:
        histogram.rows.setdefault((name, rest), []).append(row)


def _row(value: str, count: int) -> Row | None:
    log2, bucket = LOG2.fullmatch(value), BUCKET.fullmatch(value)
    if log2 is not None:
        end = 1 << int(log2[1])
        return Row(end // 2, end, count)
    if bucket is not None:
        low, last = int(bucket[1]), int(bucket[2])
        return Row(low, last + 1, count) if low <= last else None
    return Row(int(value), int(value) + 1, count) if value.isdecimal() else None


def _tables(histogram: _Histogram, unit: str) -> Iterator[Found]:
    where = TextSpan(histogram.first, histogram.last)
    if histogram.dropped:
        text = f"the trigger dropped {histogram.dropped:,} events: it had no room for their keys"
        yield Remark(where, text, lost=histogram.dropped)
    if histogram.others:
        names = clean(", ".join(sorted(histogram.others)), 100)
        yield Remark(where, f"a histogram by {names}, of which none is a time: left out", histogram.counted)
    expected = None if histogram.hits is None else histogram.hits - histogram.dropped
    if histogram.damaged or expected not in (None, histogram.counted):
        hits = f"; its rows have {histogram.counted:,} of {expected:,} hits" if expected is not None else ""
        at = histogram.damaged or histogram.first
        text = f"the histogram is damaged in line {at}{hits}: all of it is left out"
        yield Remark(where, text, 1, is_incomplete=True)
        return
    for (name, rest), rows in histogram.rows.items():
        title = clean(f"{name} {rest}".strip(), 200)
        own = values.of_title(f"_{name}") or unit
        unit_from = "the key's name" if own and own != unit else f"{IN_US if unit == 'us' else IN_NS} in the text"
        rows.sort(key=lambda row: (row.high or 0, row.low or 0))
        yield ImportedTable(where, title, "trigger", tuple(rows), own, unit_from if own else "")
