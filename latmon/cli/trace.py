"""`latmon trace`: each I/O of a device for a while, into a recording, with a table and a map on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from latmon.analysis.io_trace import SeekMap, TraceTable
from latmon.capture import registry, target
from latmon.capture.backend import TraceRequest
from latmon.capture.recorder import save
from latmon.model.frame import Frame
from latmon.report.trace import flame_svg, folded_text, top_stacks, trace_text
from latmon.support import host, privileges
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, LatmonError
from latmon.support.streams import STANDARD, named, output
from latmon.support.text import clean, encodable
from latmon.support.units import show_duration

_MAX_SENTENCE = 1000


def trace_command(request: TraceRequest, out: Path | None, stacks: Path | None, *, redact: bool) -> int:
    """Trace, save the recording and the stacks, print the table; return the exit code.

    UnavailableError where nothing can be traced, LatmonError where nothing was.
    """
    user = privileges.invoker(os.environ, os.geteuid())
    with privileges.acting_as(user):
        if out is None:
            directory = target.default_directory(Path.cwd(), os.environ)
            out = target.unused(directory / target.recording_name("" if redact else host.name(), time.time()))
        target.refuse(out)
        if stacks is not None and stacks != STANDARD:
            target.refuse(stacks)
        device_trace = registry.load_target("bpftrace", "latmon_backends.bpftrace.trace:DeviceTrace")(request)
    if device_trace.target.remark:
        _tell(device_trace.target.remark)
    asyncio.run(_run(device_trace))
    if device_trace.ended:
        _tell(f"the trace ended early: {device_trace.ended}")
    table, seeks = TraceTable(), SeekMap()
    if not device_trace.ios:
        raise LatmonError(_nothing(device_trace))
    _tell(f"decoding {device_trace.ios:,} I/Os")
    origin = device_trace.origin
    if redact:  # the target may be a file, a cgroup or a process
        origin = replace(origin, extra={name: value for name, value in origin.extra.items() if name != "trace"})
    save(_noted(device_trace.frames(), table, seeks), origin, out, redact=redact)
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
    await device_trace.run(_tell, stop)


def _noted(frames: Iterable[Frame], table: TraceTable, seeks: SeekMap) -> Iterator[Frame]:
    for frame in frames:
        for one in frame.outliers:
            table.add(one)
            seeks.add(one)
        yield frame


def _stacks(found: dict[str, int], of: str, what: str, out: Path) -> list[str]:
    """Write the stacks; return lines on the most frequent ones."""
    if not found:
        return [f"{of}: no {what} were submitted, {named(out)} is not written"]
    svg = flame_svg(found, f"{of} that submitted {what}") if out.suffix == ".svg" else ""
    with output(out) as file:
        file.write((svg or folded_text(found)).encode())
    return list(top_stacks(found, of, what))


def _nothing(device_trace: Any) -> str:
    """Return a sentence on a trace without an I/O."""
    what, (completed, _) = device_trace.target.text, device_trace.completed
    if not completed:
        return f"nothing was traced: {device_trace.target.disk} completed no I/O meanwhile"
    none = f"none of {what}" if device_trace.target.by else "and the probes saw none of them"
    return f"nothing was traced: {device_trace.target.disk} completed {completed:,} I/Os meanwhile, {none}"


def _tell(text: str) -> None:
    try:
        print(f"latmon: {clean(text, _MAX_SENTENCE)}", file=sys.stderr, flush=True)
    except OSError:  # the terminal is gone
        return
