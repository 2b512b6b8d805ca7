"""`latmon trace`: each I/O of a device for a while, into a recording, with a table and a map on stdout.

The text is btt's table beside latmon's stages, a map of seeks, what is missing and what it cost. Kernel stacks are the
most frequent as text, all as folded text or as a flame graph in SVG. A folded stack is `outermost;...;innermost`;
flamegraph.pl, speedscope and others read it with its count after a blank.

`steps` divides one I/O as btt does; `TraceTable` sums the steps and stages of many; `SeekMap` has their places over
time. Q2C is the sum of the other steps of each I/O: they come from the same stamps.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from latmon.capture import registry, target
from latmon.capture.backend import TraceCost, TraceCounts, TraceRequest
from latmon.capture.recorder import save
from latmon.model.frame import UNACCOUNTED, Frame, Outlier
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.redaction import Redaction
from latmon.model.stages import ADMISSION, FACTS
from latmon.support import host, privileges, signals
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, LatmonError
from latmon.support.streams import STANDARD, message, named, output
from latmon.support.text import WIDTH, encodable, wrapped
from latmon.support.units import UNKNOWN, counted, duration, part, show_duration, show_size, spelled
from latmon.views.units import maximum, quantile

SECTOR = 512
_MAX_SENTENCE = 1000
_GLYPHS = " .:+*#@"
_NAME = 12
_TIMES = ("mean", "p50", "p99", "max")
TOP = 20
_LEAST = 0.3
"""Narrower boxes, in pixels, are left out."""
_CELL = 6.6
"""Width of a character."""
_COLOURS = ("#e69f00", "#f0e442", "#d55e00", "#cc79a7")


class BttStep(NamedTuple):
    """A step of btt: its name, what it is, and latmon's stages whose time it has."""

    name: str
    meaning: str
    stages: str


STEPS = (
    BttStep("Q2G", "first bio queued, until its request is allocated", "admission"),
    BttStep("G2I", "request allocated, until it is inserted into the scheduler's queue", "queue"),
    BttStep("I2D", "inserted, until the driver gets it", "queue"),
    BttStep("G2D", "request allocated, until the driver gets it, of I/Os without a known insertion", "queue"),
    BttStep("requeue", "the driver gets it first, until it gets it last (btt: a new D)", "requeue"),
    BttStep("D2C", "the driver gets it, until it is completed", "worker hba irq softirq completion"),
    BttStep("Q2C", "queued, until it is completed: the sum of the steps above", "admission total"),
)


def steps(outlier: Outlier) -> dict[str, int]:
    """Return the steps of an I/O in us by their names, those that are known; Q2C always.

    Where Q2G isn't known, Q2C begins with the request.
    """
    total = outlier.total_us - outlier.stages_us.get("resume", 0)
    step_us = {} if outlier.admission_us is None else {"Q2G": outlier.admission_us}
    queue = outlier.stages_us.get("queue")
    if queue is not None:
        requeue = outlier.stages_us.get("requeue")
        # What it waited for the thread that issued it is of btt's step before the issue.
        if requeue is None:
            queue += outlier.dispatch_us
        else:
            requeue += outlier.dispatch_us
        if outlier.inserted_us is None:
            step_us["G2D"] = queue
        else:
            # Without a stamp of the hook that of the issue may be the clock of a plug (Linux 6.9), which is early.
            inserted = min(outlier.inserted_us, queue)
            step_us |= {"G2I": inserted, "I2D": queue - inserted}
        step_us |= {} if requeue is None else {"requeue": requeue}
        step_us["D2C"] = total - queue - (requeue or 0)
    return step_us | {"Q2C": total + (outlier.admission_us or 0)}


@dataclass
class TraceTable:
    """Sums of the steps and stages of many I/Os, exact to the microsecond."""

    ios: int = 0
    bytes: int = 0
    ops: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Op -> us of Q2C -> I/Os."""
    of_step: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    of_stage: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    paths: Counter[str] = field(default_factory=Counter)

    def add(self, outlier: Outlier) -> None:
        self.ios += 1
        self.bytes += outlier.bytes or 0
        for name, us in steps(outlier).items():
            self.of_step[name][us] += 1
            if name == "Q2C":
                self.ops[outlier.op][us] += 1
        for stage, us in outlier.stages_us.items():
            self.of_stage[stage][us] += 1
        if outlier.admission_us is not None:
            self.of_stage[ADMISSION][outlier.admission_us] += 1
        if outlier.unaccounted_us:
            self.of_stage[UNACCOUNTED][outlier.unaccounted_us] += 1
        self.paths[outlier.path] += 1

    def step_rows(self) -> list[tuple[BttStep, Histogram]]:
        """Return the steps that any I/O has, in the order in which it passes them."""
        return [
            (btt_step, histogram(self.of_step[btt_step.name])) for btt_step in STEPS if self.of_step.get(btt_step.name)
        ]

    def stage_rows(self) -> list[tuple[str, Histogram]]:
        """Return latmon's stages that any I/O has, in the order in which it passes them."""
        return [
            (stage_facts.name, histogram(self.of_stage[stage_facts.name]))
            for stage_facts in FACTS
            if self.of_stage.get(stage_facts.name)
        ]

    def op_rows(self) -> list[tuple[str, Histogram]]:
        """Return Q2C by op, the most frequent first."""
        return sorted(
            ((op, histogram(counts)) for op, counts in self.ops.items()), key=lambda row: row[1].count, reverse=True
        )


def histogram(times: Mapping[int, int]) -> Histogram:
    """Return the histogram of times in us -> I/Os, with their exact sum and maximum."""
    counts: Counter[int] = Counter()
    for us, n in times.items():
        counts[bucket_index(us)] += n
    return Histogram.of(counts, sum(us * n for us, n in times.items()), max(times))


class Seeks(NamedTuple):
    """Distances between consecutive issues. `sequential`: those that begin where the one before ends."""

    pairs: int
    sequential: int
    median: int
    """Sectors from the end of one to the begin of the next, forth or back, of those that are not sequential."""


@dataclass
class SeekMap:
    """Places of I/Os over the time of their issue; 20 bytes for each."""

    issued_us: array[int] = field(default_factory=lambda: array("Q"))
    sectors: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("L"))

    def add(self, outlier: Outlier) -> None:
        """Add an I/O that has a place."""
        if outlier.sector is None or not outlier.bytes:
            return
        above_us = outlier.stages_us.get("queue", 0) + outlier.stages_us.get("requeue", 0) + outlier.dispatch_us
        self.issued_us.append(outlier.mono_us + above_us)
        self.sectors.append(outlier.sector)
        self.lengths.append(-(-outlier.bytes // SECTOR))

    def seeks(self) -> Seeks:
        """Return the distances in the order of issue."""
        order = sorted(range(len(self.sectors)), key=self.issued_us.__getitem__)
        gaps = [self.sectors[b] - self.sectors[a] - self.lengths[a] for a, b in pairwise(order)]
        far = sorted(abs(gap) for gap in gaps if gap)
        return Seeks(len(gaps), len(gaps) - len(far), far[len(far) // 2] if far else 0)

    @property
    def span_us(self) -> tuple[int, int]:
        """The times of the first and of the last issue. ValueError without any."""
        return min(self.issued_us), max(self.issued_us)

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last sector. ValueError without any."""
        return min(self.sectors), max(a + n - 1 for a, n in zip(self.sectors, self.lengths, strict=True))

    def grid(self, columns: int, rows: int) -> list[list[int]]:
        """Return I/Os by row, the highest sectors first, and column, the earliest first. ValueError without any."""
        (begin, end), (low, high) = self.span_us, self.extent
        grids = [[0] * columns for _ in range(rows)]
        for at, sector in zip(self.issued_us, self.sectors, strict=True):
            column = (at - begin) * columns // (end - begin + 1)
            row = (sector - low) * rows // (high - low + 1)
            grids[rows - 1 - row][column] += 1
        return grids


_ROWS, _COLUMNS = 12, 64
_WIDE, _TALL, _EDGE = 1200, 17, 10


def trace_command(request: TraceRequest, out: Path | None, stacks: Path | None, redaction: Redaction | None) -> int:
    """Trace, save the recording and the stacks, print the table; return the exit code.

    UnavailableError where nothing can be traced, LatmonError where nothing was.
    """
    user = privileges.invoker(os.environ, os.geteuid())
    with privileges.acting_as(user):
        if out is None:
            directory = target.default_directory(os.environ)
            out = target.unused(directory / target.recording_name("" if redaction else host.name(), time.time()))
        target.refuse(out)
        if stacks is not None and stacks != STANDARD:
            target.refuse(stacks)
        device_trace = registry.load_target("bpftrace", "latmon_backends.bpftrace.trace:DeviceTrace")(request)
    if device_trace.target.remark:
        _notify(device_trace.target.remark)
    asyncio.run(_run(device_trace))
    if device_trace.ended:
        _notify(f"the trace ended early: {device_trace.ended}")
    table, seeks = TraceTable(), SeekMap()
    if not device_trace.ios:
        raise LatmonError(_nothing(device_trace))
    _notify(f"decoding {device_trace.ios:,} I/Os")
    origin = device_trace.origin
    if redaction:  # the target may be a file, a cgroup or a process
        origin = replace(origin, extra={name: value for name, value in origin.extra.items() if name != "trace"})
    save(_noted(device_trace.frames(), table, seeks), origin, out, redaction=redaction)
    lines = trace_text(table, seeks, device_trace.counts, device_trace.cost, every=not device_trace.target.by)
    if stacks is not None and request.stacks_us is not None:
        what = f"I/Os of {show_duration(request.stacks_us)} or more"
        of = "user and kernel stacks" if request.user_stacks else "kernel stacks"
        lines += ["", *_stacks(device_trace.stacks, of, what, stacks)]
    stream = sys.stderr if STANDARD in (out, stacks) else sys.stdout
    text = "\n".join((f"{device_trace.target.text}: {named(out)}", *lines))
    print(encodable(text, stream.encoding or "utf-8"), file=stream)
    counts = device_trace.counts
    return EXIT_INCOMPLETE if counts.dropped or counts.lost or counts.undecoded else EXIT_DONE


async def _run(device_trace: Any) -> None:
    """Run the trace until its time is over, or a signal ends it."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    signals.leave_if_received()
    await device_trace.run(_notify, stop)


def _noted(frames: Iterable[Frame], table: TraceTable, seeks: SeekMap) -> Iterator[Frame]:
    for frame in frames:
        for outlier in frame.outliers:
            table.add(outlier)
            seeks.add(outlier)
        yield frame


def _stacks(stack_counts: dict[str, int], of: str, what: str, out: Path) -> list[str]:
    """Write the stacks; return lines on the most frequent ones."""
    if not stack_counts:
        return [f"{of}: no {what} were submitted, {named(out)} is not written"]
    svg = flame_svg(stack_counts, f"{of} that submitted {what}") if out.suffix == ".svg" else ""
    with output(out) as file:
        file.write((svg or folded_text(stack_counts)).encode())
    return list(top_stacks(stack_counts, of, what))


def _nothing(device_trace: Any) -> str:
    """Return a sentence on a trace without an I/O."""
    what, (completed, _) = device_trace.target.text, device_trace.completed
    if not completed:
        return f"nothing was traced: {device_trace.target.disk} completed no I/O meanwhile"
    none = f"none of {what}" if device_trace.target.by else "and the probes saw none of them"
    return f"nothing was traced: {device_trace.target.disk} completed {completed:,} I/Os meanwhile, {none}"


def _notify(text: str) -> None:
    message(text, _MAX_SENTENCE)


def trace_text(table: TraceTable, seeks: SeekMap, counts: TraceCounts, cost: TraceCost, *, every: bool) -> list[str]:
    """Return all lines, without an end of line. `every`: all I/Os of the device were wanted."""
    return [
        *_missing(table, counts, every=every),
        *wrapped(_cost(cost, counts)),
        "",
        *_steps(table),
        "",
        *_stages(table),
        "",
        *_seeks(seeks),
    ]


def _missing(table: TraceTable, counts: TraceCounts, *, every: bool) -> Iterator[str]:
    """Yield the numbers of I/Os in the file, and of those that are not."""
    left = [
        f"{n:,} {why}"
        for n, why in (
            (counts.dropped, "left out by the limit of I/Os a second"),
            (counts.lost, "events lost by the tool's buffers"),
            (counts.undecoded, "lines not understood"),
            *((n, f"not timed: {why}") for why, n in counts.untimed.items()),
        )
        if n
    ]
    yield from wrapped(
        f"{counted(table.ios, 'I/O')} in the file, {show_size(table.bytes)}; {'; '.join(left) or 'none was dropped'}"
    )
    least, most = counts.completed
    seen = counts.seen
    if not every:
        text = f"the device completed {least:,} meanwhile by /proc/diskstats"
    elif seen < least:
        text = f"the device completed {least:,} by /proc/diskstats, {least - seen:,} more than the probes saw"
    else:
        text = f"/proc/diskstats counts {'as many' if seen <= most else f'{seen - most:,} fewer'}"
    merged = f"; {counts.merged:,} I/Os were merged into others" if counts.merged else ""
    yield from wrapped(f"{text}{merged}")


def _cost(cost: TraceCost, counts: TraceCounts) -> str:
    seconds = cost.seconds or 1.0
    tool = f"bpftrace and latmon {cost.cpu_ns / 1e7 / seconds:.1f} % of one CPU while tracing"
    if cost.kernel_ns is None:
        return f"cost: {tool}; the probes' own run time is not known"
    each = f", {cost.kernel_ns / counts.traced / 1e3:.1f} us per I/O" if counts.traced else ""
    return f"cost: probes {cost.kernel_ns / 1e7 / seconds:.1f} % of one CPU{each}; {tool}"


def _steps(table: TraceTable) -> Iterator[str]:
    rows = table.step_rows()
    total = sum(histogram.sum or 0 for step, histogram in rows if step.name == "Q2C")
    yield _line("btt", "I/Os", "share", _TIMES, "latmon's stages")
    for step, histogram in rows:
        yield _row(step.name, histogram, total, step.stages)
    for op, histogram in table.op_rows() if len(table.ops) > 1 else ():
        yield _row(f"Q2C {op}", histogram, total, "")
    for step, _ in rows:
        yield from wrapped(f"{step.name}: {step.meaning}", "  ")


def _stages(table: TraceTable) -> Iterator[str]:
    total = sum(us * n for us, n in table.of_step["Q2C"].items())
    yield _line("stage", "I/Os", "share", _TIMES)
    for stage, histogram in table.stage_rows():
        yield _row(stage, histogram, total, "")
    paths = [f"{path or 'not known'} {n:,}" for path, n in table.paths.most_common()]
    yield from wrapped(f"completed in: {', '.join(paths)}")


def _row(name: str, histogram: Histogram, total: int, stages: str) -> str:
    share = part((histogram.sum or 0) / total) if total else UNKNOWN
    times = (duration(histogram.mean), quantile(histogram, 0.5), quantile(histogram, 0.99), maximum(histogram))
    return _line(name, f"{histogram.count:,}", share, times, stages)


def _line(name: str, ios: str, share: str, times: Sequence[str], stages: str = "") -> str:
    columns = " ".join(f"{quantile_text:>7}" for quantile_text in times)
    return f"{name:<{_NAME}}{ios:>9} {share:>5} {columns}  {stages}".rstrip()


def _seeks(seeks: SeekMap) -> Iterator[str]:
    """Yield the map: sectors up, time to the right, a denser sign for more I/Os."""
    if not seeks.sectors:
        yield "seek map: no I/O has a place (flushes alone)"
        return
    (low, high), (begin, end) = seeks.extent, seeks.span_us
    seek_counts = seeks.seeks()
    sequential = part(seek_counts.sequential / seek_counts.pairs) if seek_counts.pairs else UNKNOWN
    text = f"{sequential} begin where the I/O before ends"
    far = (
        f"; the others are {show_size(seek_counts.median * SECTOR)} away from it in the median"
        if seek_counts.median
        else ""
    )
    yield from wrapped(f"seek map, sectors {low:,} to {high:,} over {spelled(end - begin)}: {text}{far}")
    grid = seeks.grid(_COLUMNS, _ROWS)
    most = max(max(row) for row in grid)
    labels = {0: f"{high}", _ROWS - 1: f"{low}"}
    wide = WIDTH - _COLUMNS - 3
    for at, row in enumerate(grid):
        yield f"{labels.get(at, '')[:wide]:>{wide}} |{''.join(_glyph(n, most) for n in row)}|".rstrip()


def _glyph(ios: int, most: int) -> str:
    """Return a sign by the logarithm of a cell's I/Os: one is the first sign, the most are the last."""
    if ios == 0:
        return _GLYPHS[0]
    steps = len(_GLYPHS) - 2
    return _GLYPHS[1 + (ios.bit_length() - 1) * steps // max(1, most.bit_length() - 1)]


def folded_text(stacks: Mapping[str, int]) -> str:
    """Return a line per stack, the most frequent first."""
    return "".join(f"{stack} {n}\n" for stack, n in _sorted(stacks))


def top_stacks(stacks: Mapping[str, int], of: str, what: str) -> Iterator[str]:
    """Yield lines on the TOP stacks, innermost function first. `of`: whose stacks; `what`: I/Os that they submitted."""
    total = sum(stacks.values())
    yield from wrapped(f"{of} that submitted {what}: {total:,} I/Os, {len(stacks):,} different stacks")
    for stack, n in _sorted(stacks)[:TOP]:
        yield from wrapped(f"{n:,} ({part(n / total)})  {' < '.join(reversed(stack.split(';')))}", "  ")


def _sorted(stacks: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(stacks.items(), key=lambda row: (-row[1], row[0]))


@dataclass
class _Node:
    """A function below its callers."""

    count: int = 0
    below: dict[str, _Node] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((node.depth for node in self.below.values()), default=0)


def flame_svg(stacks: Mapping[str, int], title: str) -> str:
    """Return a flame graph: callers below, the innermost function on top, as wide as its I/Os. It loads nothing."""
    root = _Node()
    for stack, n in stacks.items():
        node = root
        node.count += n
        for name in stack.split(";"):
            node = node.below.setdefault(name, _Node())
            node.count += n
    high = (root.depth + 1) * _TALL + 2 * _EDGE
    boxes = "\n".join(_boxes("all", root, 0.0, (_WIDE - 2 * _EDGE) / max(1, root.count), (0, high - _EDGE, root.count)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{high}" font-family="monospace" '
        f'font-size="11">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{_EDGE}" y="{_EDGE + 8}">{escape(title)}</text>\n{boxes}\n</svg>\n'
    )


def _boxes(name: str, node: _Node, begin: float, scale: float, at: tuple[int, int, int]) -> Iterator[str]:
    """Yield a function's box and those above it. `begin`: I/Os left of it; `at`: its level, the bottom, all I/Os."""
    level, bottom, total = at
    wide = node.count * scale
    if wide < _LEAST:
        return
    x, y = _EDGE + begin * scale, bottom - (level + 1) * _TALL
    room = int((wide - 4) / _CELL)
    label = name if len(name) <= room else f"{name[: room - 1]}…" if room > 3 else ""  # noqa: PLR2004 - letters
    colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
    yield (
        f"<g><title>{escape(name)}: {node.count:,} I/Os, {part(node.count / total)}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_TALL - 1}" fill="{colour}"/>'
        f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(label)}</text></g>'
    )
    for below, child_node in sorted(node.below.items()):
        yield from _boxes(below, child_node, begin, scale, (level + 1, bottom, total))
        begin += child_node.count
