"""OpenMetrics 1.0 export: the values of an exporter at the recording's end. Buckets are octaves from 1 us to 67 s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from latmon import __version__
from latmon.aggregate.accumulator import COUNTERS
from latmon.exporters.registry import ExportOptions, Source
from latmon.metrics.families import COUNTER, GAUGE, HISTOGRAM, Family, MetricSample, openmetrics
from latmon.metrics.host import INCLUDES, Includes, in_flight, latency
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram
from latmon.recording.codec import Gap
from latmon.report.totals import Totals

BOUNDS_US = tuple(2**exponent for exponent in range(27))
"""The same for all series, so that series can be added."""


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
    yield from _histograms("latmon_io_latency", help_text, totals.histograms, lambda _: origin.measured)
    help_text = f"Latency of the traced I/Os, one in so many: never add them to the others. {INCLUDES}"
    traced = totals.traced
    yield from _histograms("latmon_traced_latency", help_text, traced.histograms, traced.includes_of)
    for source_of, done in (("kernel", totals.kernel), ("probe", totals.seen)):
        yield from _completed(source_of, done)
    yield from _outstanding(totals.last)
    for name in COUNTERS:
        help_text = f"Total of the capture: {name.replace('_', ' ')}."
        yield Family(f"latmon_{name}", COUNTER, help_text, (MetricSample({}, totals.counters[name]),))
    some = tuple(MetricSample({"reason": why}, us / 1e6) for why, us in missing.items())
    help_text = "Time without a complete measurement, by reason."
    yield Family("latmon_missing_seconds", COUNTER, help_text, some, "seconds")
    measured = (MetricSample({}, totals.measured_us / 1e6),)
    yield Family("latmon_measured_seconds", COUNTER, "Sum of the windows' lengths.", measured, "seconds")
    damaged = (MetricSample({}, source.damaged),)
    yield Family("latmon_damaged_places", GAUGE, "Places of the recording that can't be read.", damaged)


def _histograms(
    name: str, help_text: str, found: Mapping[Series, Histogram], includes_of: Includes
) -> Iterator[Family]:
    if found:
        some = tuple(latency(series, one, includes_of) for series, one in sorted(found.items()))
        yield Family(f"{name}_seconds", HISTOGRAM, help_text, some, "seconds")


def _completed(source_of: str, done: Mapping[Flow, Completed]) -> Iterator[Family]:
    """Yield completions by the kernel's counters and by the probe as separate families, so that nothing adds them."""
    if not done:
        return
    name = f"latmon_{source_of}_completed"
    origin_text = "the kernel's own counters" if source_of == "kernel" else "what the probe saw"
    rows = [(flow._asdict(), one) for flow, one in sorted(done.items())]
    ios, size = f"I/Os completed, by {origin_text}.", f"Bytes of them, by {origin_text}."
    yield Family(f"{name}_ios", COUNTER, ios, tuple(MetricSample(flow, one.count) for flow, one in rows))
    yield Family(f"{name}_bytes", COUNTER, size, tuple(MetricSample(flow, one.bytes) for flow, one in rows), "bytes")


def _outstanding(last: Frame | None) -> Iterator[Family]:
    if last is not None and last.outstanding:
        yield Family("latmon_outstanding_ios", GAUGE, "I/Os in flight at the end of the recording.", in_flight(last))
