"""OpenMetrics 1.0 export: the values of an exporter at the recording's end.

Buckets are octaves from 1 us to 67 s. latmon counts whole microseconds, rounded down: fewer than 64 of them is below
0.000064 s, so a bucket's bound is exact. Everything above the highest is in +Inf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO

from latmon import __version__
from latmon.aggregate.accumulator import COUNTERS
from latmon.exporters.registry import ExportOptions, Source
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.recording.codec import Gap
from latmon.report.totals import Totals

OCTAVES = range(27)
"""Exponents of the bounds in microseconds."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_INCLUDES = "A stage's label includes names the stages whose time is in it: hba with completion is issue to completion."
Labels = Mapping[str, str]
Includes = Callable[[str], Mapping[str, tuple[str, ...]]]
"""Device -> stage -> the stages that it includes."""


def write(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Read the recording once, then write its totals."""
    totals = Totals(source.origin.interval_us)
    missing = Counter[str]()
    for item in source.reported():
        if isinstance(item, Frame):
            totals.add(item)
        elif isinstance(item, Gap):
            missing[item.reason] += round(item.seconds * 1e6)
    out.writelines(
        line.encode("utf-8", "backslashreplace") + b"\n" for line in _text(source, totals, missing, source.damaged)
    )


def _text(source: Source, totals: Totals, missing: Counter[str], damaged: int) -> Iterator[str]:
    origin = source.origin
    about = {"version": __version__, "recorded_by": origin.latmon, "backend": origin.backend, "tool": origin.tool}
    about |= {"host": origin.host, "kernel": origin.kernel, "redacted": "yes" if source.redacted else "no"}
    yield from _family("latmon_build_info", "gauge", "What measured this, and where.")
    yield _sample("latmon_build_info", about, 1)
    help_text = f"Latency of I/Os by device, op and stage. {_INCLUDES}"
    yield from _histograms("latmon_io_latency", help_text, totals.histograms, lambda _: origin.measured)
    help_text = f"Latency of the traced I/Os, one in so many: never add them to the others. {_INCLUDES}"
    traced = totals.traced
    yield from _histograms("latmon_traced_latency", help_text, traced.histograms, traced.includes_of)
    for source_of, done in (("kernel", totals.kernel), ("probe", totals.seen)):
        yield from _completed(source_of, done)
    yield from _outstanding(totals.last)
    for name in COUNTERS:
        yield from _family(f"latmon_{name}", "counter", f"Total of the capture: {name.replace('_', ' ')}.")
        yield _sample(f"latmon_{name}_total", {}, totals.counters[name])
    yield from _family(
        "latmon_missing_seconds", "counter", "Time without a complete measurement, by reason.", "seconds"
    )
    yield from (_sample("latmon_missing_seconds_total", {"reason": why}, us / 1e6) for why, us in missing.items())
    yield from _family("latmon_measured_seconds", "counter", "Sum of the windows' lengths.", "seconds")
    yield _sample("latmon_measured_seconds_total", {}, totals.measured_us / 1e6)
    yield from _family("latmon_damaged_places", "gauge", "Places of the recording that can't be read.")
    yield _sample("latmon_damaged_places", {}, damaged)
    yield "# EOF"


def _histograms(name: str, help_text: str, found: Mapping[Series, Histogram], includes_of: Includes) -> Iterator[str]:
    name = f"{name}_seconds"
    if found:
        yield from _family(name, "histogram", help_text, "seconds")
    for series, one in sorted(found.items()):
        inside = ",".join(includes_of(series.device).get(series.stage, ()))
        labels = series._asdict() | ({"includes": inside} if inside else {})
        for bound, n in _cumulative(one):
            yield _sample(f"{name}_bucket", labels | {"le": bound}, n)
        if one.sum is not None:
            yield _sample(f"{name}_sum", labels, one.sum / 1e6)
            yield _sample(f"{name}_count", labels, one.count)


def _cumulative(one: Histogram) -> Iterable[tuple[str, int]]:
    """Yield (le, I/Os at most that slow) of every octave, empty or not, so that series can be added."""
    below = Counter[int]()
    for index, n in one.buckets:
        below[(bucket_bounds(index, one.bits)[1] - 1).bit_length()] += n
    seen = 0
    for octave in OCTAVES:
        seen += below[octave]
        yield f"{2**octave / 1e6:.6f}", seen
    yield "+Inf", one.count


def _completed(source_of: str, done: Mapping[Flow, Completed]) -> Iterator[str]:
    """Yield completions by the kernel's counters and by the probe as separate families, so that nothing adds them."""
    if not done:
        return
    name = f"latmon_{source_of}_completed"
    origin_text = "the kernel's own counters" if source_of == "kernel" else "what the probe saw"
    yield from _family(f"{name}_ios", "counter", f"I/Os completed, by {origin_text}.")
    yield from (_sample(f"{name}_ios_total", f._asdict(), one.count) for f, one in sorted(done.items()))
    yield from _family(f"{name}_bytes", "counter", f"Bytes of them, by {origin_text}.", "bytes")
    yield from (_sample(f"{name}_bytes_total", f._asdict(), one.bytes) for f, one in sorted(done.items()))


def _outstanding(last: Frame | None) -> Iterator[str]:
    if last is None or not last.outstanding:
        return
    yield from _family("latmon_outstanding_ios", "gauge", "I/Os in flight at the end of the recording.")
    for device, now in sorted(last.outstanding.items()):
        for where, n in (("driver", now.in_driver), ("queue", now.queued)):
            if n is not None:
                yield _sample("latmon_outstanding_ios", {"device": device, "where": where}, n)


def _family(name: str, kind: str, help_text: str, unit: str = "") -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {help_text.translate(_ESCAPES)}"


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"
