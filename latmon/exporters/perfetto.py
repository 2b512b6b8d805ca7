"""Perfetto export: Chrome's trace format with one process per device.

Outliers are slices with their stages inside; IOPS, p99 and outstanding I/O are counters. Time is CLOCK_MONOTONIC in
microseconds. Slices of one track never overlap: an outlier goes to the first of its device's lanes that is free.
Streams: what is kept are the ends of the lanes, at most MAX_LANES a device.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from latmon.exporters.registry import DamageNote, ExportOptions, Reported, Source
from latmon.model.frame import Frame, Mark, Outlier, Outstanding
from latmon.model.histogram import Histogram, merge
from latmon.model.stages import called
from latmon.recording.codec import Gap
from latmon.views.panels.outliers import Piece, pieces

MAX_LANES = 256
"""Most lanes of outliers of a device; an outlier without a lane is an instant with its length as an argument."""
Event = Mapping[str, Any]
_GAUGE = "outstanding"
_NOT_KNOWN = "0 where a window has too few I/Os for it"
_KEPT = "without an event where it isn't known: a viewer draws the value before"


def write(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write one event a line."""
    origin = source.origin
    tracks = _Tracks(source)
    out.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    out.write(_json({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": f"latmon {origin.host}"}}))
    for item in source.reported():
        out.writelines(b",\n" + _json(event) for event in tracks.events(item))
    out.writelines(b",\n" + _json(event) for event in tracks.ended())
    about = {
        "tool": f"latmon {origin.latmon}", "host": origin.host, "kernel": origin.kernel, "backend": origin.backend,
        "clock": "CLOCK_MONOTONIC", "start_mono_us": origin.start_mono_us, "start_wall_s": origin.start_wall,
        "redacted": source.redacted, "windows": source.windows, "gaps": source.gaps, "damaged_places": source.damaged,
        "p99_us": _NOT_KNOWN, _GAUGE: _KEPT,
    }  # fmt: skip
    out.write(b'\n],"otherData":' + _json(about) + b"}\n")


class _Tracks:
    """Numbers of the devices' processes, and the times from which their lanes are free."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pids: dict[str, int] = {}
        self._ends: dict[str, list[int]] = {}
        self._last: dict[tuple[str, str], dict[str, float]] = {}
        self._mono_us = source.origin.start_mono_us
        self._missing = False

    def events(self, item: Reported) -> Iterator[Event]:
        self._missing |= isinstance(item, Gap | DamageNote)
        if isinstance(item, Frame):
            if self._missing and item.mono_us - item.dt_us > self._mono_us:
                yield from self.ended()
            yield from self._window(item)
            self._mono_us, self._missing = item.mono_us, False
        elif isinstance(item, Gap):
            yield _instant(item.mono_us, f"gap: {item.reason}", {"seconds": item.seconds})
        elif isinstance(item, Mark):
            yield _instant(item.mono_us, f"mark: {item.sentence}", {})
        elif isinstance(item, DamageNote):
            yield _instant(self._mono_us, "damage", {"text": item.text})

    def ended(self) -> Iterator[Event]:
        """Yield every counter as 0 from the latest window on, because it would keep its value through a gap."""
        for (device, name), args in self._last.items():
            if any(args.values()):
                zero = dict.fromkeys(args, 0.0)
                yield {"ph": "C", "pid": self._pids[device], "ts": self._mono_us, "name": name, "args": zero}
        self._last.clear()

    def _window(self, frame: Frame) -> Iterator[Event]:
        begin = frame.mono_us - frame.dt_us
        if frame.health.lost_events:
            yield _instant(begin, "lost events", {"count": frame.health.lost_events})
        if frame.health.notice:
            yield _instant(frame.mono_us, frame.health.notice, {})
        for outlier in frame.outliers:
            yield from self._named(outlier.device)
            yield from self._outlier(outlier)
        now = {(device, name): args for device, reported in _counters(frame).items() for name, args in reported.items()}
        for at in dict.fromkeys((*now, *self._last)):
            yield from self._named(at[0])
            last = self._last.get(at, {})
            # A counter keeps its value until the next one: idle is 0. A gauge that isn't known has no event instead.
            is_gauge = at in now and at[1] == _GAUGE
            args = now[at] if is_gauge else dict.fromkeys(last, 0.0) | now.get(at, {})
            if not args.items() <= last.items():
                self._last[at] = last | args
                yield {"ph": "C", "pid": self._pids[at[0]], "ts": begin, "name": at[1], "args": args}

    def _named(self, device: str) -> Iterator[Event]:
        if device in self._pids:
            return
        pid = self._pids[device] = len(self._pids) + 1
        known = self._source.devices.get(device)
        name = f"{device} ({known.label})" if known and known.label else device
        yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}

    def _outlier(self, outlier: Outlier) -> Iterator[Event]:
        pid, lanes = self._pids[outlier.device], self._ends.setdefault(outlier.device, [])
        inside = sum(outlier.stages_us.values()) + outlier.unaccounted_us
        end = outlier.mono_us + max(outlier.total_us, inside)
        lane = next((i for i, free in enumerate(lanes) if free <= outlier.mono_us), len(lanes))
        name = f"{outlier.op} {outlier.total_us} us"
        if lane == MAX_LANES:
            yield _instant(outlier.mono_us, name, {"dur": outlier.total_us} | _facts(outlier), pid=pid, scope="p")
            return
        if lane == len(lanes):
            lanes.append(0)
            lane_name = "outliers" if not lane else f"outliers, {lane + 1} at once"
            yield {"ph": "M", "pid": pid, "tid": lane + 1, "name": "thread_name", "args": {"name": lane_name}}
        lanes[lane] = end
        slice_ = {"ph": "X", "pid": pid, "tid": lane + 1, "cat": "outlier"}
        yield slice_ | {"ts": outlier.mono_us, "dur": end - outlier.mono_us, "name": name, "args": _facts(outlier)}
        for part in pieces(outlier):
            if part.us:
                where = {"ts": outlier.mono_us + part.begin_us, "dur": part.us}
                yield slice_ | where | {"cat": "stage", "name": part.stage, "args": _stage_facts(outlier, part)}


def _counters(frame: Frame) -> dict[str, dict[str, dict[str, float]]]:
    """Return device -> counter -> values of the counters that the window has."""
    seconds = frame.dt_us / 1e6 or 1.0
    counters: dict[str, dict[str, dict[str, float]]] = {}
    for flow, done in (frame.kernel or frame.seen).items():
        counters.setdefault(flow.device, {}).setdefault("IOPS", {})[flow.op] = round(done.count / seconds, 3)
    total: dict[str, list[Histogram]] = {}
    for series, histogram in frame.histograms.items():
        if series.stage == "total":
            total.setdefault(series.device, []).append(histogram)
    for device, histograms in total.items():
        p99_us = _p99_us(merge(histograms))
        if p99_us is not None:
            counters.setdefault(device, {})["p99_us"] = {"p99_us": p99_us}
    for device, now in frame.outstanding.items():
        counters.setdefault(device, {})[_GAUGE] = _parts(now)
    return counters


def _p99_us(latency: Histogram) -> int | None:
    """Return the p99 in us; of fewer than 100 I/Os it is the slowest one, by the nearest rank. None without an I/O.

    A counter of a trace keeps its value until the next one: it can't be left out, and 0 is the value of an idle device.
    """
    p99_us = latency.quantile(0.99)
    if p99_us is None and latency:
        return latency.max_bound
    return p99_us


def _parts(now: Outstanding) -> dict[str, float]:
    parts = {"in_driver": now.in_driver, "queued": now.queued}
    return {name: n for name, n in parts.items() if n is not None}


def _facts(outlier: Outlier) -> dict[str, Any]:
    facts = {
        "total_us": outlier.total_us,
        "flags": " ".join(outlier.flags),
        "sector": outlier.sector,
        "bytes": outlier.bytes,
        "comm": outlier.comm,
        "pid": outlier.pid,
        "cpu_issue": outlier.cpu_issue,
        "cpu_complete": outlier.cpu_complete,
        "outstanding_at_issue": outlier.outstanding_at_issue,
        "overtaken_by": outlier.overtaken_by,
        "path": outlier.path,
        "admission_us": outlier.admission_us,
        "inserted_us": outlier.inserted_us,
        "status": outlier.status,
    }
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    return known | {"own": True} if outlier.own else known


def _stage_facts(outlier: Outlier, part: Piece) -> dict[str, Any]:
    """Return the arguments of a stage's slice: the stages whose time is in it, and the name of that interval."""
    inside = outlier.includes.get(part.stage, ())
    included = {"includes": list(inside), "interval": called(part.stage, inside).sentence} if inside else {}
    return {"place known": part.placed} | included


def _instant(ts: int, name: str, args: Event, *, pid: int = 0, scope: str = "g") -> Event:
    return {"ph": "i", "pid": pid, "tid": 0, "ts": ts, "s": scope, "name": name, "args": args}


def _json(value: Event) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
