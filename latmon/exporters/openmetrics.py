"""OpenMetrics 1.0 export: the values of an exporter at the recording's end. Buckets are octaves from 1 us to 67 s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from latmon import __version__
from latmon.aggregate.accumulator import COUNTERS
from latmon.exporters.registry import ExportOptions, Source
from latmon.metrics.families import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    INCLUDES,
    Family,
    Includes,
    Labels,
    MetricSample,
    in_flight,
    latency,
    openmetrics,
)
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram
from latmon.model.measurements import (
    BEHIND,
    FILE_TIMES,
    FILES,
    ISSUERS,
    KERNEL,
    LATENCIES,
    NFS_OPERATIONS,
    NFS_REQUESTS,
    PATTERNS,
    SEEN,
    SIZES,
    TABLES,
)
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.patterns import PATTERN
from latmon.model.measurements.sizes import SizeClass
from latmon.model.table import AnyTable, Cell, Meaning, Unit
from latmon.recording.codec import Gap
from latmon.report.totals import Totals

BOUNDS_US = tuple(2**exponent for exponent in range(27))
"""The same for all series, so that series can be added."""
_DESCRIBED = frozenset((ISSUERS, BEHIND, SIZES, PATTERNS, FILES))
"""Tables whose families have names, labels and texts of their own."""

_NOT_OF_IOS = (NFS_OPERATIONS, NFS_REQUESTS)
"""Tables that are exported although their rows are no I/Os of devices."""
_PRIVATE = (Meaning.PRIVATE, Meaning.PROCESS)


def write(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Read the recording once, then write its totals."""
    totals = Totals(source.origin.interval_us)
    missing = Counter[str]()
    for item in source.reported():
        if isinstance(item, Frame):
            totals.add(item)
        elif isinstance(item, Gap):
            missing[item.reason] += round(item.seconds * 1e6)
    lines = openmetrics(_families(source, totals, missing), BOUNDS_US)
    out.writelines(line.encode("utf-8", "backslashreplace") + b"\n" for line in lines)


def _families(source: Source, totals: Totals, missing: Counter[str]) -> Iterator[Family]:
    origin = source.origin
    about = {"version": __version__, "recorded_by": origin.latmon, "backend": origin.backend, "tool": origin.tool}
    about |= {"host": origin.host, "kernel": origin.kernel, "redacted": "yes" if source.redacted else "no"}
    yield Family("latmon_build_info", GAUGE, "What measured this, and where.", (MetricSample(about, 1),))
    help_text = f"Latency of I/Os by device, op and stage. {INCLUDES}"
    yield from _histograms("latmon_io_latency", help_text, totals[LATENCIES], lambda _: origin.measured)
    help_text = f"Latency of the traced I/Os, one in so many: never add them to the others. {INCLUDES}"
    traced = totals.traced
    yield from _histograms("latmon_traced_latency", help_text, traced.histograms, traced.includes_of)
    for source_of, done in (("kernel", totals[KERNEL]), ("probe", totals[SEEN])):
        yield from _completed(source_of, done)
    yield from _who(totals)
    yield from _declared(totals)
    yield from _outstanding(totals.last)
    for name in COUNTERS:
        help_text = f"Total of the capture: {name.replace('_', ' ')}."
        yield Family(f"latmon_{name}", COUNTER, help_text, (MetricSample({}, totals.counters[name]),))
    samples = tuple(MetricSample({"reason": why}, us / 1e6) for why, us in missing.items())
    help_text = "Time without a complete measurement, by reason."
    yield Family("latmon_missing_seconds", COUNTER, help_text, samples, "seconds")
    measured = (MetricSample({}, totals.measured_us / 1e6),)
    yield Family("latmon_measured_seconds", COUNTER, "Sum of the windows' lengths.", measured, "seconds")
    damaged = (MetricSample({}, source.damaged),)
    yield Family("latmon_damaged_places", GAUGE, "Places of the recording that can't be read.", damaged)


def _histograms(
    name: str, help_text: str, histograms: Mapping[Series, Histogram], includes_of: Includes
) -> Iterator[Family]:
    if histograms:
        samples = tuple(latency(series, histogram, includes_of) for series, histogram in sorted(histograms.items()))
        yield Family(f"{name}_seconds", HISTOGRAM, help_text, samples, "seconds")


def _completed(source_of: str, done: Mapping[Flow, Completed]) -> Iterator[Family]:
    """Yield completions by the kernel's counters and by the probe as separate families, so that nothing adds them."""
    if not done:
        return
    name = f"latmon_{source_of}_completed"
    origin_text = "the kernel's own counters" if source_of == "kernel" else "what the probe saw"
    rows = [(flow._asdict(), completed) for flow, completed in sorted(done.items())]
    ios, size = f"I/Os completed, by {origin_text}.", f"Bytes of them, by {origin_text}."
    yield Family(f"{name}_ios", COUNTER, ios, tuple(MetricSample(flow, completed.count) for flow, completed in rows))
    yield Family(
        f"{name}_bytes", COUNTER, size, tuple(MetricSample(flow, completed.bytes) for flow, completed in rows), "bytes"
    )


def _who(sums: Totals) -> Iterator[Family]:
    """Yield I/Os by cgroup and by size, their order, and operations on files, as far as they were measured."""
    cgroups = [(issuer, done) for issuer, done in sorted(sums[ISSUERS].items()) if not issuer.is_process]
    by_cgroup = [({**_about(issuer), "cgroup": issuer.cgroup, "name": issuer.name}, done) for issuer, done in cgroups]
    yield from _issued("latmon_cgroup", "by the cgroup that issued them", by_cgroup)
    served = tuple(MetricSample(pair._asdict(), us / 1e6) for pair, us in sorted(sums[BEHIND].items()))
    if served:
        text = "Time of traced I/Os of a cgroup in which the device served those of another one, or its own."
        yield Family("latmon_cgroup_behind_seconds", COUNTER, text, served, "seconds")
    by_size = [
        ({**_about(size_class), "upto": str(size_class.upto or "+Inf")}, done)
        for size_class, done in sorted(sums[SIZES].items())
    ]
    yield from _issued("latmon_size", "by the power of two up to which their size is, in bytes", by_size)
    order = tuple(
        MetricSample({**flow._asdict(), "pattern": name}, getattr(pattern, name))
        for flow, pattern in sorted(sums[PATTERNS].items())
        for name in PATTERN
    )
    if order:
        text = "I/Os that went to a device (issued), and how many of them lay or were flagged so."
        yield Family("latmon_pattern_ios", COUNTER, text, order)
    files = tuple(MetricSample(file_series._asdict(), latency) for file_series, latency in sorted(sums[FILES].items()))
    if files:
        text = (
            "Time of operations on files in the system call. wait: cached (no sleep), device (I/O issued and slept, "
            "for locks and a CPU too), unknown."
        )
        yield Family("latmon_file_latency_seconds", HISTOGRAM, text, files, "seconds")
    times = tuple(MetricSample(file_part._asdict(), us / 1e6) for file_part, us in sorted(sums[FILE_TIMES].items()))
    if times:
        text = "Time of operations on files in which their threads were off the CPU, by what they waited for (part)."
        yield Family("latmon_file_time_seconds", COUNTER, text, times, "seconds")


def _declared(sums: Totals) -> Iterator[Family]:
    """Yield a family for each cell of the other tables, of I/Os and NFS calls, named and labelled as declared.

    Private parts of keys, such as a process, are no labels: each would be a series for ever.
    """
    for table in TABLES:
        is_exported = table.counts_ios or table in _NOT_OF_IOS
        if not is_exported or table in _DESCRIBED or not sums[table]:
            continue
        places = [place for place, part in enumerate(table.parts) if part.meaning not in _PRIVATE]
        names = [table.part_names[place] for place in places]
        rows: list[tuple[tuple[str, ...], Any]] = []
        for key, value in sums[table].items():
            parts = table.parts_of(key)
            rows.append((tuple(str(parts[place]) for place in places), value))
        summed = sorted(table.sum_rows(rows).items())
        for place, cell in enumerate(table.value.cells):
            contents = [(dict(zip(names, key, strict=True)), table.value.split(value)[place]) for key, value in summed]
            yield from _cell_family(f"latmon_{table.export_name}", _about_table(table, cell), cell, contents)


def _about_table(table: AnyTable, cell: Cell) -> str:
    """Return what a cell of a table counts, as far as it is declared."""
    if table.help_text:
        return table.help_text
    parts = ", ".join(
        name for name, part in zip(table.part_names, table.parts, strict=True) if part.meaning is not Meaning.PRIVATE
    )
    return f"{cell.name} of {table.name} by {parts}"


def _cell_family(name: str, about: str, cell: Cell, contents: Sequence[tuple[Labels, Any]]) -> Iterator[Family]:
    help_text = f"{about} ({cell.name})." if cell.is_histogram else f"{about}."
    if cell.is_histogram:
        timed = tuple(MetricSample(labels, latency) for labels, latency in contents if latency)
        yield Family(f"{name}_{cell.name}_seconds", HISTOGRAM, help_text, timed, "seconds")
    elif cell.unit is Unit.NAMED:
        named: list[MetricSample] = []
        for labels, counts in contents:
            named += [MetricSample({**labels, "name": counted_name}, n) for counted_name, n in counts.items()]
        yield Family(f"{name}_{cell.name}", COUNTER, help_text, tuple(named))
    elif cell.unit is Unit.MICROSECONDS:
        spent = tuple(MetricSample(labels, us / 1e6) for labels, us in contents)
        yield Family(f"{name}_{cell.name.removesuffix('_us')}_seconds", COUNTER, help_text, spent, "seconds")
    elif cell.unit is not Unit.FACT:
        unit = "bytes" if cell.unit is Unit.BYTES else ""
        counted = tuple(MetricSample(labels, n) for labels, n in contents)
        yield Family(f"{name}_{unit or cell.name}", COUNTER, help_text, counted, unit)


def _about(label_source: Issuer | SizeClass) -> dict[str, str]:
    return {"device": label_source.device, "op": label_source.op}


def _issued(name: str, how: str, rows: Sequence[tuple[Labels, IssuedIO]]) -> Iterator[Family]:
    if not rows:
        return
    yield Family(
        f"{name}_ios",
        COUNTER,
        f"I/Os {how}.",
        tuple(MetricSample(labels, issued_io.count) for labels, issued_io in rows),
    )
    size = tuple(MetricSample(labels, issued_io.bytes) for labels, issued_io in rows)
    yield Family(f"{name}_bytes", COUNTER, f"Bytes of I/Os {how}.", size, "bytes")
    timed = tuple(MetricSample(labels, issued_io.latency) for labels, issued_io in rows if issued_io.latency)
    if timed:
        yield Family(f"{name}_latency_seconds", HISTOGRAM, f"Latency of I/Os {how}.", timed, "seconds")


def _outstanding(last: Frame | None) -> Iterator[Family]:
    if last is not None and last.outstanding:
        yield Family("latmon_outstanding_ios", GAUGE, "I/Os in flight at the end of the recording.", in_flight(last))
