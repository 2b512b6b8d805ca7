"""Lines of a device in the text report, and the sentences on it that HTML has, too. Made of the report alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from latmon.model.frame import shown_reports
from latmon.model.stages import called
from latmon.report import in_flight, outstanding
from latmon.report.columns import cell, heads, line
from latmon.report.latency_table import LATENCY, includes_of, latency_rows, stages_without, volume
from latmon.report.model.depth import DepthsAtIssue, MeanDepths
from latmon.report.model.device import NOT_PASSED, Device, Reported, Sizes
from latmon.report.model.report import Report
from latmon.support.text import wrapped
from latmon.support.units import part, spelled
from latmon.views.anatomy import MUCH, admission_text, causes_text, size_text, stacks_text

_REPORTED_SHARE = 0.05


def is_busy(device: Device) -> bool:
    """Return whether the report shows a device by itself: I/Os completed, are in flight, or were counted at issue."""
    depths = device.outstanding
    is_counted = isinstance(depths, DepthsAtIssue) or (isinstance(depths, MeanDepths) and depths.mean != 0)
    is_waiting = device.at_end is not None and bool(device.at_end.in_flight)
    return bool(device.ops) or is_waiting or device.in_flight_longest is not None or is_counted


def lines(name: str, device: Device, report: Report) -> Iterator[str]:
    """Yield the lines of a device: what it is, its I/Os with their latencies, sentences, what is outstanding."""
    on = f"on {', '.join(device.members)}" if device.members else ""
    words = (name, device.label, device.model, device.driver, device.controller, on)
    yield from wrapped("  ".join(word for word in words if word))
    if device.timed is False:
        yield from wrapped(f"not timed here: {why_untimed(device)}", "  ")
    sentences = list(device_sentences(name, device))
    yield from _ops(device, report)
    for sentence in sentences:
        yield from wrapped(sentence, "  ")
    yield from outstanding.lines(device)
    yield from in_flight.lines(device)


def device_sentences(name: str, device: Device) -> Iterator[str]:
    """Yield the sentences on a device's slow I/Os, its admission, its stacks, its sizes and its own reports."""
    sentences = [tail_sentence(name, device), _admission_sentence(name, device)]
    sentences += [*_stack_sentences(name, device), *_size_sentences(device), _reports_sentence(device)]
    yield from (sentence for sentence in sentences if sentence)


def _ops(device: Device, report: Report) -> Iterator[str]:
    """Yield a device's I/Os with their latencies, and the stages that no I/O passed."""
    ops, without = device.ops.values(), stages_without(device.ops)
    if not ops:
        yield "  no I/O completed"
    elif any(op.latency_us or op.stages for op in ops):  # else no row has a number
        shown = LATENCY if any(op.stages for op in ops) else LATENCY[:-1]
        yield f"{'':<15}{heads(shown)}"
    for name, op in device.ops.items():
        rows = list(latency_rows(op, report.latency_from))
        yield from wrapped(f"{name}: {volume(op, report.measured_s)}", "  ")
        yield from (f"    {row.name:<11}{line(LATENCY, row)}" for row in rows)
    for why, stages in without.items():
        if why.startswith(NOT_PASSED):
            yield from wrapped(f"n/a: {', '.join(stages)} ({why.removeprefix(NOT_PASSED)})", "  ")


def tail_sentence(name: str, device: Device) -> str:
    """Return `sdc above 20 ms: 97% softirq, 3% hba (31 I/Os)`; empty without a tail."""
    tail = device.tail
    if tail is None:
        return ""
    shares = sorted(tail.share.items(), key=lambda item: -item[1])
    includes = includes_of(device.ops)
    reported = [
        f"{part(share)} {called(stage, includes.get(stage, ())).sentence}"
        for at, (stage, share) in enumerate(shares)
        if not at or share >= _REPORTED_SHARE
    ]
    ios = "1 I/O" if tail.count == 1 else f"{tail.count:,} I/Os"
    if not reported:
        return f"{name} above {spelled(tail.cut_us)}: {ios}"
    return f"{name} above {spelled(tail.cut_us)}: {', '.join(reported)} ({ios})"


def _admission_sentence(name: str, device: Device) -> str:
    """Return the sentence on a large admission with known causes; empty without."""
    admissions = [op.admission_us for op in device.ops.values() if op.admission_us]
    wholes = [op.latency_whole_us for op in device.ops.values() if op.latency_whole_us]
    admission_us, whole_us = (sum(latency.sum or 0 for latency in latencies) for latencies in (admissions, wholes))
    causes = causes_text(device.traced.admission_causes if device.traced else {}, admission_us)
    return admission_text(name, admission_us / whole_us, causes) if causes and admission_us > MUCH * whole_us else ""


def _stack_sentences(name: str, device: Device) -> tuple[str, ...]:
    """Return which kernel functions complete a device's requests, and which raise its softirqs."""
    traced = device.traced
    return stacks_text(name, traced.completers, traced.raisers) if traced else stacks_text(name, {}, {})


def _size_sentences(device: Device) -> tuple[str, ...]:
    """Return a sentence per op on its latencies by size."""
    return tuple(_sizes(name, op.sizes) for name, op in device.ops.items() if op.sizes)


def _sizes(op: str, sizes: Sizes) -> str:
    rows = [
        (size.upto or 0, size.count, cell(size.latency_us, "p50"), cell(size.latency_us, "p99"))
        for size in sizes.latency
    ]
    return size_text(op, rows, asdict(sizes.pattern) if sizes.pattern else {})


def _reports_sentence(device: Device) -> str:
    """Return `by its own reports: state running, ioerr_cnt 12 (3 at first)`; empty without any."""
    rows = {reported.name: reported for reported in device.reports}
    names = shown_reports({name: reported.value for name, reported in rows.items()})
    values = [f"{name} {rows[name].value}{_when(rows[name])}" for name in names]
    return f"by its own reports: {', '.join(values)}" if values else ""


def _when(reported: Reported) -> str:
    """Return ` (3 at first, not read until the end)`, or the part of it that holds; empty without one."""
    notes = [] if reported.first is None else [f"{reported.first} at first"]
    notes += ["not read until the end"] if reported.read_until_end is False else []
    return f" ({', '.join(notes)})" if notes else ""


def why_untimed(device: Device) -> str:
    """Return why the always-on probe has no latency of a device."""
    has_disks = device.members or device.kind in ("dm", "md")
    return "no request passes; its I/O is timed at the devices below it" if has_disks else "only the tracer measures it"
