"""Sums and parts of the tracer's windows: of processes that follow each other, and since the capture began."""

from __future__ import annotations

from dataclasses import replace

from latmon.decode.framer import TracerInterval, with_earlier
from latmon.model.frame import FILES, Missing
from latmon.model.measurements import ABOVE, ISSUERS, PATTERNS, SIZES
from latmon_backends.probe.tick_protocol import TracerWindow

_OF_DEVICES = (ABOVE, ISSUERS, PATTERNS, SIZES)
"""Tables that a program counts only for the devices of its filter; others are of the host."""
_OF_HOST = ("resume", "handlers", "softirqs", FILES, "files of io_uring")
"""Names, as in Traced.absent, of what a program counts for the whole host."""
_OF_REQUESTS = ("slow", "resumed")
"""Records of the requests of these devices."""
_TAKEN_OVER = "another tracer took over: part of this interval was counted by neither"


def with_records_of(earlier: TracerWindow, later: TracerWindow) -> TracerWindow:
    """Return the later window with the records and losses of an earlier one without ticks."""
    return replace(
        later,
        records=(*earlier.records, *later.records),
        losses=earlier.losses + later.losses,
        issues={**earlier.issues, **later.issues},
        file_operations=(*earlier.file_operations, *later.file_operations),
    )


def with_window_of(earlier: TracerWindow, later: TracerWindow) -> TracerWindow:
    """Return the window of a process with that of the one before it. Counts of another sample are left out."""
    if not later.ticks:
        return with_records_of(later, earlier)
    joined = with_records_of(earlier, later)
    if not earlier.ticks or not have_same_sample(earlier, later):
        return joined
    return replace(
        joined,
        interval=with_earlier(later.interval, earlier.interval),
        begun_us=min(earlier.begun_us, later.begun_us),
    )


def have_same_sample(earlier: TracerWindow, later: TracerWindow) -> bool:
    """Return whether the counts of two windows can be added."""
    return earlier.interval.traced.one_in == later.interval.traced.one_in


def requests_of(window: TracerWindow) -> TracerWindow:
    """Return the requests that a process counted for the devices of its filter, and its losses."""
    tracer_interval = window.interval
    return replace(
        window,
        interval=TracerInterval(
            replace(tracer_interval.traced, raisers={}, off=0),
            tracer_interval.suppressed,
            tracer_interval.undecoded,
            tracer_interval.thresholds_us,
            tables={table: rows for table, rows in tracer_interval.tables.items() if table in _OF_DEVICES},
        ),
        records=tuple(record for record in window.records if record.kind in _OF_REQUESTS),
        file_operations=(),
    )


def without_host_part(window: TracerWindow) -> TracerWindow:
    """Return a window that reports its tables of the host as incomplete."""
    traced = window.interval.traced
    left_out = {missing.name for missing in traced.absent}
    partial = tuple(Missing(name, _TAKEN_OVER) for name in _OF_HOST if name not in left_out)
    traced = replace(traced, absent=(*traced.absent, *partial))
    return replace(window, interval=replace(window.interval, traced=traced))


def without_earlier(began_us: int, reported: TracerWindow) -> TracerWindow:
    """Return the tracer's data without counts from before the capture began, which belong to no window.

    For devices that only the tracer times, the outliers and their counts are kept, and so are the losses.
    """
    if not reported.begun_us or reported.begun_us >= began_us:
        return reported
    tracer_interval = reported.interval
    return replace(
        reported,
        interval=TracerInterval(
            suppressed=tracer_interval.suppressed,
            undecoded=tracer_interval.undecoded,
            tables={ABOVE: tracer_interval[ABOVE]},
            thresholds_us=tracer_interval.thresholds_us,
        ),
        issues={},
    )
