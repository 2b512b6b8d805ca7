"""Outliers and operations on files of a report: the longest of a recording, JSON rows, sentences and tables.

Operations on files have rows per file system and op, and the longest slow ones have their requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from latmon.analysis.attribution import Folded, Requests, by_process, file_rows, fold, requests_of, whole_path
from latmon.model.frame import DEVICE_BOUND, FILE_WAIT_TITLES, UNACCOUNTED, FileOperation, Outlier, Wait, pid_of
from latmon.model.histogram import Histogram
from latmon.model.measurements.files import FileSeries
from latmon.model.stages import COLUMNS, StageSum, stage_sum
from latmon.report.formatting import Column, ReportTable, key, ordered, quantile, rounded, summed, wrapped
from latmon.support.units import UNKNOWN, part, rfc3339
from latmon.views.units import exact, meanwhile, until

MAX_SHOWN = 5
"""Outliers, and slow operations on files, in the text report."""
_BAR = 24
_FEW_US = 1
NOT_TRACED = "stages were not traced then"
MAX_ROWS = 1000
_KEPT = 4 * MAX_ROWS
"""Outliers that are kept before similar neighbours are merged into rows."""
_Json = Mapping[str, Any]


class _Timed(Protocol):
    @property
    def total_us(self) -> int: ...


T = TypeVar("T", bound=_Timed)


class Longest(Generic[T]):
    """The longest of any number of I/Os or operations, in bounded memory."""

    def __init__(self, most: int = MAX_ROWS) -> None:
        self.seen = 0
        self._most = most
        self._heap: list[tuple[int, int, T]] = []

    def add(self, one: T) -> None:
        self.seen += 1
        entry = (one.total_us, -self.seen, one)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    @property
    def kept(self) -> list[T]:
        """Return them, the longest first."""
        return [one for _, _, one in sorted(self._heap, reverse=True)]


class Worst(Longest[Outlier]):
    """The longest outliers, and the longest one of each device."""

    def __init__(self) -> None:
        super().__init__(_KEPT)
        self.longest: dict[str, Outlier] = {}

    def add(self, one: Outlier) -> None:
        super().add(one)
        had = self.longest.get(one.device)
        if had is None or one.total_us > had.total_us:
            self.longest[one.device] = one

    def rows(self) -> list[Folded]:
        """Return (outlier, repeats), the longest first."""
        folded = fold(self.kept)
        return sorted(folded, key=lambda row: (-row.outlier.total_us, row.outlier.mono_us))[:MAX_ROWS]


def outliers(worst: Worst) -> dict[str, Any]:
    """Return the keys `outliers` and, if some have no row, `outliers_left_out`."""
    rows = worst.rows()
    left_out = worst.seen - sum(repeats for _, repeats in rows)
    reported = {"outliers": [_row(one, repeats) for one, repeats in rows]}
    return reported | ({"outliers_left_out": left_out} if left_out else {})


def _row(one: Outlier, repeats: int) -> dict[str, Any]:
    return {
        "time": rfc3339(one.wall, "microseconds"),
        "mono_us": one.mono_us,
        "device": one.device,
        "op": one.op,
        "flags": list(one.flags),
        "sector": one.sector,
        "bytes": one.bytes,
        "pid": one.pid,
        "comm": one.comm or None,
        "cpu_issue": one.cpu_issue,
        "cpu_complete": one.cpu_complete,
        "outstanding_at_issue": one.outstanding_at_issue,
        "overtaken_by": one.overtaken_by,
        "total_us": one.total_us,
        "stages_us": dict(one.stages_us),
        "unaccounted_us": one.unaccounted_us,
        "repeats": repeats,
        "path": one.path or None,
        "includes": {stage: list(others) for stage, others in one.includes.items()},
        "waits": [wait_row(wait) for wait in one.waits],
        **({"own": True} if one.own else {}),
        **{name: us for name in ("admission_us", "inserted_us") if (us := getattr(one, name)) is not None},
    }


def wait_row(one: Wait) -> dict[str, Any]:
    """Return the JSON of a thread's late wake-up."""
    return {
        "stage": one.stage,
        "thread": one.thread,
        "pid": pid_of(one.pid),
        "priority": one.priority,
        "woken_mono_us": one.woken_us,
        "delay_us": one.delay_us,
        "instead": one.instead or None,
        "ran_us": one.ran_us or None,
    }


class OutlierCounts(NamedTuple):
    """Numbers of I/Os above the thresholds: all, those recorded, and those the rate limit left out."""

    above: int
    recorded: int
    left_out: int


def counts(summary: _Json) -> OutlierCounts:
    """Return the counts of a report with outliers."""
    return OutlierCounts(
        sum(sum(one.get("above", {}).values()) for one in summary["devices"].values()),
        sum(one["repeats"] for one in summary["outliers"]) + summary.get("outliers_left_out", 0),
        summary["health"].get("suppressed", 0),
    )


def issuer(row: _Json) -> str:
    """Return name and pid of the process that issued an I/O: `ora_lgwr/4211`; latmon's own is `latmon's bpftrace/7`."""
    own = "latmon's " if row.get("own") else ""
    return f"{own}{row['comm'] or UNKNOWN}/{_known(row['pid'])}"


def request(row: _Json) -> list[str]:
    """Return an I/O's operation with its flags, its size and its sector, as far as they are known."""
    found = [" ".join([row["op"], *row["flags"]])]
    found += [] if row["bytes"] is None else [f"{row['bytes']:,} B"]
    return found + ([] if row["sector"] is None else [f"sector {row['sector']:,}"])


def circumstances(one: _Json) -> list[str]:
    """Return an outlier's CPUs, the I/Os in flight with it, and its completion path."""
    found = [f"CPU {_known(one['cpu_issue'])} to {_known(one['cpu_complete'])}"]
    found.append(
        f"{_known(one['outstanding_at_issue'])} in flight at issue, overtaken by {_known(one['overtaken_by'])}"
    )
    return [*found, *([one["path"]] if one["path"] else [])]


def waits(one: _Json) -> Iterator[str]:
    """Yield a sentence for each thread that an outlier, or an operation on a file, waited for."""
    for wait in one["waits"]:
        instead = meanwhile(wait["instead"] or "", wait["ran_us"], wait["delay_us"])
        delay = exact(wait["delay_us"])
        yield f"{wait['stage']}: {wait['thread']} (prio {wait['priority']}) woken, ran {delay} later{instead}"


def text(summary: _Json) -> list[str]:
    """Return the text report's lines on the longest outliers; nothing without outliers."""
    if not summary.get("outliers"):
        return []
    every, of = summary["outliers"], counts(summary)
    head = (
        f"outliers: {of.above:,} I/Os above the threshold, {of.recorded:,} recorded, "
        f"{of.left_out:,} left out by the rate limit"
    )
    more = len(every) - MAX_SHOWN
    rows = [line for one in every[:MAX_SHOWN] for line in _lines(one)]
    return [*wrapped(head), *rows, *([f"  and {more:,} more rows"] if more > 0 else [])]


def _lines(one: _Json) -> Iterator[str]:
    repeats = [f"x{one['repeats']}"] if one["repeats"] > 1 else []
    parts = [one["time"] or UNKNOWN, one["device"], *request(one), issuer(one), *repeats]
    yield from wrapped("  ".join(parts), "  ")
    about = "; ".join([f"total {exact(one['total_us'])} {until(one['stages_us'])}", *circumstances(one)])
    yield from wrapped(about, "    ")
    yield from _bars(one)
    for sentence in waits(one):
        yield from wrapped(sentence, "      ")


def sum_of(one: _Json) -> StageSum | None:
    """Return the sum of an outlier's stages; None where they were not traced."""
    if not one["stages_us"] and not one["unaccounted_us"]:
        return None
    return stage_sum(one["stages_us"], one["includes"], one["unaccounted_us"], one["total_us"])


def _bars(one: _Json) -> Iterator[str]:
    """Yield a line for each stage with its part of the total."""
    found = sum_of(one)
    if found is None:
        yield f"      {NOT_TRACED}"
        return
    for name, us in ordered(found.parts, COLUMNS):
        if name == UNACCOUNTED and us <= _FEW_US and one["stages_us"]:
            continue
        share = min(1.0, us / one["total_us"]) if one["total_us"] else 0.0
        yield f"      {name[:12]:<12}{exact(us):>16} {part(share):>5} {'#' * round(share * _BAR)}".rstrip()


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def files(
    found: Mapping[FileSeries, Histogram],
    operations: Longest[FileOperation],
    left_out: int,
    outliers: Iterable[Outlier],
) -> dict[str, Any]:
    """Return the keys `files`, `file_operations` and what the latter lacks; none where nothing was traced.

    `left_out`: slow operations without a record; `outliers`: those that are kept, for the requests of an operation.
    """
    if not found:
        return {}
    rows = [
        {
            "mount": one.file_system.mount,
            "type": one.file_system.kind or None,
            "device": one.file_system.device or None,
            "op": one.op,
            "count": one.latency.count,
            "latency_us": summed(one.latency),
            "waits": {
                wait: {"count": part.count, "share": rounded(one.share(wait), 4)} for wait, part in one.waits.items()
            },
        }
        for one in file_rows(found)
    ]
    kept, requests = operations.kept, by_process(outliers)
    missing = left_out + operations.seen - len(kept)
    return {
        "files": rows,
        "file_operations": [_operation(one, requests) for one in kept],
        **({"file_operations_left_out": missing} if missing else {}),
    }


def _operation(one: FileOperation, outliers: Requests) -> dict[str, Any]:
    return {
        "time": rfc3339(one.wall, "microseconds"),
        "mono_us": one.mono_us,
        "op": one.op,
        "total_us": one.total_us,
        "wait": one.wait,
        "mount": one.file_system.mount,
        "type": one.file_system.kind or None,
        "path": one.path,
        "pid": one.pid,
        "comm": one.comm or None,
        "bytes": one.bytes,
        "offset": one.offset,
        "device": one.disk or None,
        "sectors": None if one.sectors is None else list(one.sectors),
        "requests": [
            {"mono_us": each.mono_us, "op": each.op, "total_us": each.total_us, "stages_us": dict(each.stages_us)}
            for each in requests_of(one, outliers)
        ],
        "waits": [wait_row(wait) for wait in one.waits],
    }


def _file_share(wait: str) -> Column:
    title = FILE_WAIT_TITLES[wait]
    return Column(title, "share", lambda row: row["waits"].get(wait, {}).get("share"), len(title) + 1)


def _waited(row: _Json) -> str:
    """Return how an operation waited: `I/O+waits on sda`, `cached`; the time has more than the device's."""
    title = FILE_WAIT_TITLES[row["wait"]]
    return f"{title} on {row['device']}" if row["wait"] == DEVICE_BOUND and row["device"] else title


FILES = (
    Column("op", "name", key("op"), -6),
    Column("files on", "name", key("mount"), -20),
    Column("type", "name", lambda row: row["type"] or UNKNOWN, -6),
    Column("device", "name", lambda row: row["device"] or UNKNOWN),
    Column("count", "count", key("count"), 9),
    quantile("latency_us", "p50", "p50", 7),
    quantile("latency_us", "p99", "p99", 7),
    quantile("latency_us", "p99.9", "p99.9"),
    quantile("latency_us", "max", "max", 7),
    _file_share("cached"),
    _file_share("device"),
    Column("unknown", "share", lambda row: row["waits"].get("unknown", {}).get("share")),
)


def file_table(summary: _Json) -> ReportTable:
    """Return the table of operations on files; without rows if they were not traced."""
    note = (
        "Shares of the time: cached, the thread did not sleep; I/O+waits, it issued I/O and slept, its waits for locks "
        "and for a CPU included; the rest is not known"
    )
    return ReportTable("Files", FILES, summary.get("files", []), note)


def file_path(row: _Json) -> str:
    """Return the path of an operation's file below its mount point."""
    return whole_path(row["mount"], row["path"])


def file_process(row: _Json) -> str:
    """Return name and pid of an operation's process."""
    return f"{row['comm'] or UNKNOWN}/{UNKNOWN if row['pid'] is None else row['pid']}"


def _file_requests(row: _Json) -> Iterator[str]:
    for one in row["requests"][:3]:
        stages = one["stages_us"]
        longest = max(stages, key=stages.__getitem__, default="")
        most = f", {longest} {exact(stages[longest])}" if longest else ""
        yield f"{one['op']} {exact(one['total_us'])}{most}"


OPERATIONS = (
    Column("began", "words", lambda row: row["time"] or UNKNOWN),
    Column("op", "name", key("op")),
    Column("took", "time", key("total_us")),
    Column("waited", "name", _waited),
    Column("process", "name", file_process),
    Column("bytes", "count", key("bytes")),
    Column("its slow I/O", "words", lambda row: ", ".join(_file_requests(row)) or UNKNOWN),
    Column("its thread", "words", lambda row: "; ".join(waits(row)) or UNKNOWN),
    Column("file", "name", file_path),
)


def operation_table(summary: _Json) -> ReportTable:
    """Return the table of slow operations; without rows if there was none."""
    left = summary.get("file_operations_left_out", 0)
    more = f"{left:,} more were left out" if left else ""
    return ReportTable("Slow operations on files", OPERATIONS, summary.get("file_operations", []), "", more)


def files_text(summary: _Json) -> list[str]:
    """Return the text report's lines on the longest operations; nothing without any."""
    every = summary.get("file_operations", [])
    if not every:
        return []
    left = summary.get("file_operations_left_out", 0)
    lines = wrapped(f"slow operations on files: {len(every):,} listed, {left:,} left out")
    for one in every[:MAX_SHOWN]:
        about = [
            one["time"] or UNKNOWN,
            f"{one['op']} {exact(one['total_us'])}",
            _waited(one),
            file_process(one),
        ]
        lines += [*wrapped("  ".join(about), "  "), *wrapped(file_path(one), "    ")]
        lines += [line for each in _file_requests(one) for line in wrapped(f"its I/O: {each}", "      ")]
        lines += [line for each in waits(one) for line in wrapped(each, "      ")]
    return lines
