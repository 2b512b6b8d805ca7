"""Merging of hosts' frames: names with their host in front, times on this host's clocks, one frame of all.

Pure: `HostFrame` is a frame with what is known of its host, `merged_frame` and `merged_origin` make one value of many.
Tables without a device (interrupts, softirqs, threads) have the host in front of their names, too, so that the same
number on two hosts is never one row.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from latmon import __version__
from latmon.aggregate.depth_sum import DepthSum, packed
from latmon.model.devices import HOST_SEPARATOR, carry
from latmon.model.frame import (
    NAMED_FROM,
    CgroupLimit,
    Device,
    FileOperation,
    Frame,
    Health,
    Missing,
    Origin,
    Taskq,
    Traced,
    capped,
)
from latmon.model.histogram import MAX_COUNT
from latmon.model.host_context import ContextValue
from latmon.model.inflight import Depths, InFlightList, Issue
from latmon.model.measurements import PATHS, TABLES
from latmon.model.packed_frame import frames_by_rate, one_in_of, pack, state_of
from latmon.model.sample import SampleRates, weighed
from latmon.model.table import Meaning, Tables, filled, sum_tables
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import MAX_LINE, parse
from latmon.recording.packed_tables import MAX_IN_TABLE, MAX_SLOTS
from latmon.recording.validate import MAX_ITEMS, MAX_LABEL, MAX_WALL
from latmon.support.errors import RecordingError
from latmon.support.text import clean

MAX_TEXT = 1000
"""Characters of a sentence that the feed carries."""
MAX_IN_FLIGHT = 100
"""The oldest requests of all hosts that a frame lists."""

_ANY_INTERVAL = Frame(seq=0, wall=0.0, mono_us=1, dt_us=1)
_NOT_TIMED = "single I/Os are timed where the host has latmon or bpftrace that may run probes"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_WIDE = ("devices", "outliers", "file_operations", "marks")
_PROBES = ("probes_attached", "probes_wanted")
_LOSSES = tuple(field.name for field in dataclasses.fields(Health) if field.type == "int" and field.name not in _PROBES)


@dataclass(frozen=True, slots=True)
class HostFrame:
    """A frame of the host `label`. `shift_us`: what its CLOCK_MONOTONIC lacks to this host's."""

    label: str
    frame: Frame
    shift_us: int
    devices: tuple[str, ...] = ()
    """Names of all of the host's devices, without the host."""
    untimed: str = ""
    """Why no probe of the host counts I/Os; empty where one does."""
    number: int = 0
    """The host's place in the fleet."""


def named(label: str, name: str) -> str:
    """Return the name with its host in front; an empty name stays empty. RecordingError where it gets too long."""
    if not name:
        return ""
    full_name = f"{label}{HOST_SEPARATOR}{name}"
    if len(full_name) > MAX_LABEL:
        raise RecordingError(f"a name of {len(name)} characters is too long with the host in front")
    return full_name


def _named_path(label: str, path: str) -> str:
    """Return a path with its host in front: of one that is too long for a recording the end."""
    full_path, front = f"{label}{HOST_SEPARATOR}{path}", f"{label}{HOST_SEPARATOR}…"
    return full_path if len(full_path) <= MAX_LABEL else front + path[len(front) - MAX_LABEL :]


def merged_frame(
    parts: Sequence[HostFrame], *, seq: int, wall: float, mono_us: int, dt_us: int
) -> tuple[Frame, dict[str, str]]:
    """Return one frame of all hosts for the interval that ends at `mono_us` and `wall` of this host.

    A host may have none or several frames in it; counts of several are added. The second value is label -> why no
    reader takes the host's frames beside those of the others: they are left out.
    """
    taken, refused = _readable(parts, wall - mono_us / 1e6)
    return _sum(taken, Frame(seq, wall, mono_us, dt_us)), refused


def _sum(taken: Sequence[tuple[HostFrame, Frame]], empty: Frame) -> Frame:
    """Return the sum of hosts' frames, whose names and times are the fleet's, in the interval of the empty frame."""
    taken, one_in = _weighed_alike(taken)
    parts, moved = [part for part, _ in taken], [frame for _, frame in taken]
    last = {part.label: (part, frame) for part, frame in taken}
    now = [frame for _, frame in last.values()]
    merged = replace(
        empty,
        outliers=tuple(
            sorted((outlier for frame in moved for outlier in frame.outliers), key=lambda outlier: outlier.mono_us)
        ),
        thresholds_us=_joined(frame.thresholds_us for frame in now),
        traced=_traced([(part, frame.traced) for part, frame in taken], one_in),
        file_operations=tuple(
            sorted(
                (operation for frame in moved for operation in frame.file_operations),
                key=lambda operation: operation.mono_us,
            )
        ),
        files_left_out=_total(frame.files_left_out for frame in moved),
        taskqs=_taskqs([frame.taskqs for frame in now if frame.taskqs is not None]),
        cgroup_limits=_limits([frame.cgroup_limits for frame in moved if frame.cgroup_limits is not None]),
        host_context=_summed((frame.host_context for frame in moved), ContextValue.plus),
        outstanding=_joined(frame.outstanding for frame in now),
        depths=_summed((frame.depths for frame in moved), _both_depths),
        in_flight=_in_flight([(part, frame.in_flight) for part, frame in last.values() if frame.in_flight is not None]),
        issues=_summed((frame.issues for frame in moved), tuple[Issue, ...].__add__),
        health=_health([frame.health for frame in moved], [frame.health for frame in now]),
        gap=_labelled((part.label, part.frame.gap) for part in parts),
        late=any(frame.late for frame in moved),
    )
    return carry(moved, merged.with_tables(sum_tables(_tables_of(frame) for frame in moved)))


def _tables_of(frame: Frame) -> Tables:
    """Return the tables of a frame; those of a tracer that doesn't run are left out."""
    return filled({table: frame[table] for table in TABLES if frame.traced.one_in or table.group != PATHS.group})


def _weighed_alike(
    taken: Sequence[tuple[HostFrame, Frame]],
) -> tuple[list[tuple[HostFrame, Frame]], int]:
    """Return the frames with the weights of their samples beside each other, and the `one_in` that all then have."""
    rates = SampleRates()
    for _, frame in taken:
        rates.add(frames_by_rate(frame))
    one_in = rates.one_in
    return [(part, weighed(frame, (one_in_of(frame) or one_in or 1) // (one_in or 1))) for part, frame in taken], one_in


def without_counts(part: HostFrame) -> HostFrame:
    """Return the state of a host as of this frame, without what was counted: for an interval without a frame of it.

    A crowded host's frames come late, two at a time; its probes and its tracer run all the same.
    """
    frame, health = part.frame, part.frame.health
    probes = Health(probes_attached=health.probes_attached, probes_wanted=health.probes_wanted)
    state = Frame(frame.seq, frame.wall, frame.mono_us, frame.dt_us, thresholds_us=frame.thresholds_us)
    return replace(part, frame=replace(state, traced=state_of(frame.traced), health=probes))


def _labelled(texts: Iterable[tuple[str, str]]) -> str:
    """Return the texts of hosts in one line, each once and with its host in front."""
    return clean("; ".join(dict.fromkeys(f"{label}: {text}" for label, text in texts if text)), MAX_TEXT)


def _readable(parts: Sequence[HostFrame], epoch_s: float) -> tuple[list[tuple[HostFrame, Frame]], dict[str, str]]:
    """Return the frames of those hosts that every reader of the merged frame takes, and label -> reason of the others.

    Each frame is valid by itself, and hosts have no row in common. So it is enough to check that names are short
    enough with the host in front, the sum of several frames of one host, and the number of rows and bytes.
    """
    by_host: dict[str, list[HostFrame]] = {}
    for part in parts:
        by_host.setdefault(part.label, []).append(part)
    taken: list[tuple[HostFrame, Frame]] = []
    refused: dict[str, str] = {}
    sizes = _Size()
    for label, host_frames in by_host.items():
        try:
            moved = [_moved(part, epoch_s) for part in host_frames]
            if len(host_frames) > 1:
                decode_frame(
                    parse(to_bytes(encode_frame(_sum([*zip(host_frames, moved, strict=True)], _ANY_INTERVAL))))
                )
        except (RecordingError, ValueError) as error:
            refused[label] = str(error)
            continue
        if sizes.holds(moved):
            taken += zip(host_frames, moved, strict=True)
        else:
            refused[label] = "all hosts together have more rows than a screen reads: give --device, or fewer hosts"
    return taken, refused


_BUCKET, _ROW, _WIDE_ROW = 8, 64, 2048
"""Bytes of a bucket in a line, of a row, and of a row with many words; all together some more than measured."""


class _Size:
    """Rows, buckets and counts of each table of the hosts that are taken so far, and the bytes of their line."""

    def __init__(self) -> None:
        self._of: Counter[tuple[str, str]] = Counter()
        self._bytes = 0

    def holds(self, moved: Sequence[Frame]) -> bool:
        """Add a host's frames; return False, and add nothing, where a reader's bounds do not hold them as well."""
        both = self._of.copy()
        own: Counter[tuple[str, str]] = Counter()
        for frame in moved:
            own.update(_size(frame))
        both.update(own)
        wanted = self._bytes + sum(n * _row_bytes(name, kind) for (name, kind), n in own.items())
        if wanted > MAX_LINE // 2:  # an estimate is not enough; to encode all of a fleet's frames takes 0.1 s
            wanted = self._bytes + sum(len(to_bytes(encode_frame(frame))) for frame in moved)
        bounds = {"rows": MAX_ITEMS, "buckets": MAX_SLOTS, "counts": MAX_IN_TABLE}
        if wanted > MAX_LINE or any(n > bounds[kind] for (_, kind), n in both.items()):
            return False
        self._of, self._bytes = both, wanted
        return True


def _row_bytes(name: str, kind: str) -> int:
    if kind == "rows":
        return _WIDE_ROW if name.partition(".")[2] in _WIDE else _ROW
    return _BUCKET if kind == "buckets" else 0


def _size(frame: Frame) -> dict[tuple[str, str], int]:
    """Return (table, what) -> number."""
    sizes = {}
    for name in (field.name for field in dataclasses.fields(frame)):
        if isinstance(value := getattr(frame, name), Sized):
            sizes[f"Frame.{name}", "rows"] = len(value)
    for table, rows in pack(frame, TABLES).tables.items():
        sizes[table.name, "rows"] = len(frame[table])
        for place, histograms in rows.histograms.items():
            column = f"{table.name}.{place}"
            sizes[column, "buckets"], sizes[column, "counts"] = len(histograms.indices), sum(histograms.counts)
    return sizes


def _device(label: str, device: Device, untimed: str) -> Device:
    """Return a host's device with the host in front of its name, its controller and its members."""
    return replace(
        device,
        name=named(label, device.name),
        controller=named(label, device.controller),
        members=tuple(named(label, member) for member in device.members),
        untimed=untimed,
    )


def _moved(part: HostFrame, epoch_s: float) -> Frame:
    """Return a host's frame with names of the fleet and times of this host; `epoch_s`: wall clock at mono_us 0."""
    return _at_our_times(_with_host(part), part.shift_us, epoch_s)


def _with_host(part: HostFrame) -> Frame:
    """Return a host's frame with the host in front of each name. RecordingError where a name gets too long."""
    frame, label = part.frame, part.label

    def to(name: str) -> str:
        return named(label, name)

    def to_path(cgroup: str) -> str:
        return _named_path(label, cgroup) if cgroup else ""

    def to_mount(mount: str) -> str:
        # one that isn't known, too: rows of two hosts would be one, and nothing says whose they are
        return _named_path(label, mount)

    def to_each(listed: str) -> str:
        return ", ".join(map(to, listed.split(", ")))

    def to_number(thread: int) -> int:
        return NAMED_FROM * (1 + part.number) + thread % NAMED_FROM  # no pid: two hosts have threads with the same one

    limits, in_flight = frame.cgroup_limits, frame.in_flight
    new_names: dict[Meaning, Callable[[Any], Any]] = {
        Meaning.DEVICE: to,
        Meaning.MOUNT: to_mount,
        Meaning.CGROUP: to_path,
        Meaning.NAME: to,
        Meaning.LISTED: to_each,
        Meaning.THREAD_NUMBER: to_number,
    }
    traced = replace(frame.traced, devices=tuple(map(to, frame.traced.devices)))
    moved = replace(frame, traced=traced)
    moved = moved.with_tables({table: table.with_new_names(frame[table], new_names) for table in TABLES})
    return replace(
        moved,
        outliers=tuple(replace(outlier, device=to(outlier.device)) for outlier in frame.outliers),
        thresholds_us=_with_names(frame.thresholds_us, to),
        file_operations=tuple(_file_operation(operation, to, to_mount) for operation in frame.file_operations),
        cgroup_limits=None if limits is None else tuple(_limit(cgroup_limit, to, to_path) for cgroup_limit in limits),
        host_context=_with_names(frame.host_context, to),
        outstanding=_with_names(frame.outstanding, to),
        depths=_with_names(frame.depths, to),
        in_flight=None if in_flight is None else _in_flight_of(in_flight, to),
        issues=_with_names(frame.issues, to),
        devices=tuple(_device(label, device, part.untimed) for device in frame.devices),
        removed=tuple(map(to, frame.removed)),
        taskqs=None if frame.taskqs is None else tuple(replace(taskq, name=to(taskq.name)) for taskq in frame.taskqs),
        health=replace(frame.health, notice=_labelled([(label, frame.health.notice)])),
        marks=tuple(replace(mark, text=f"{label}: {mark.text}") for mark in frame.marks),
    )


def _at_our_times(frame: Frame, shift_us: int, epoch_s: float) -> Frame:
    """Return a host's frame with the times of this host's clocks."""
    late_s = frame.wall - (epoch_s + (frame.mono_us + shift_us) / 1e6)

    def ours(mono_us: int) -> int:
        return _time(mono_us, shift_us)

    def wall(mono_us: int) -> float:
        return _wall(epoch_s + (mono_us + shift_us) / 1e6)

    in_flight = frame.in_flight
    if in_flight is not None:
        oldest = tuple(io._replace(began_us=ours(io.began_us)) for io in in_flight.oldest)
        since_us, at_us = in_flight.since_us and ours(in_flight.since_us), in_flight.at_us and ours(in_flight.at_us)
        in_flight = replace(in_flight, oldest=oldest, since_us=since_us, at_us=at_us)
    return replace(
        frame,
        outliers=tuple(
            replace(
                outlier,
                mono_us=ours(outlier.mono_us),
                wall=wall(outlier.mono_us),
                waits=tuple(replace(wait, woken_us=ours(wait.woken_us)) for wait in outlier.waits),
            )
            for outlier in frame.outliers
        ),
        file_operations=tuple(
            replace(
                operation,
                mono_us=ours(operation.mono_us),
                wall=wall(operation.mono_us),
                waits=tuple(replace(wait, woken_us=ours(wait.woken_us)) for wait in operation.waits),
            )
            for operation in frame.file_operations
        ),
        in_flight=in_flight,
        issues={
            name: tuple(issue._replace(mono_us=ours(issue.mono_us)) for issue in issues)
            for name, issues in frame.issues.items()
        },
        marks=tuple(replace(mark, mono_us=ours(mark.mono_us), wall=_wall(mark.wall - late_s)) for mark in frame.marks),
    )


def _time(mono_us: int, shift_us: int) -> int:
    """Return a host's time on this host's CLOCK_MONOTONIC; 0 for one before this host's boot, which has none there."""
    return min(max(0, mono_us + shift_us), MAX_COUNT)


def _wall(seconds: float) -> float:
    return min(max(0.0, seconds), MAX_WALL)


def _file_operation(
    operation: FileOperation, to: Callable[[str], str], to_mount: Callable[[str], str]
) -> FileOperation:
    its = operation.file_system
    return replace(
        operation, file_system=its._replace(mount=to_mount(its.mount), device=to(its.device)), disk=to(operation.disk)
    )


def _limit(cgroup_limit: CgroupLimit, to: Callable[[str], str], to_path: Callable[[str], str]) -> CgroupLimit:
    return replace(cgroup_limit, cgroup=to_path(cgroup_limit.cgroup), device=to(cgroup_limit.device))


def _in_flight_of(in_flight_list: InFlightList, to: Callable[[str], str]) -> InFlightList:
    oldest = tuple(in_flight._replace(device=to(in_flight.device)) for in_flight in in_flight_list.oldest)
    return replace(in_flight_list, oldest=oldest, devices=tuple(map(to, in_flight_list.devices)))


def _summed(tables: Iterable[Mapping[K, V]], add: Callable[[V, V], V]) -> dict[K, V]:
    sums: dict[K, V] = {}
    for table in tables:
        for at, value in table.items():
            sums[at] = add(sums[at], value) if at in sums else value
    return sums


def _added(tables: Iterable[Mapping[K, int]]) -> dict[K, int]:
    return _summed(tables, lambda count, other: _total((count, other)))


def _total(counts: Iterable[int]) -> int:
    """Return the sum of counts, at most the largest that a reader takes."""
    return min(sum(counts), MAX_COUNT)


def _with_names(rows: Mapping[str, V], to: Callable[[str], str]) -> dict[str, V]:
    return {to(name): value for name, value in rows.items()}


def _joined(tables: Iterable[Mapping[K, V]]) -> dict[K, V]:
    """Return all entries of tables that have none in common."""
    return {at: value for table in tables for at, value in table.items()}


def _both_depths(one: Depths, other: Depths) -> Depths:
    both = DepthSum()
    for at, depths in enumerate((one, other)):
        both.add(packed(depths), at)
    return both.depths


def _taskqs(host_taskqs: Sequence[tuple[Taskq, ...]]) -> tuple[Taskq, ...] | None:
    """Return the task queues of all hosts; None where no host read any."""
    return tuple(taskq for taskqs in host_taskqs for taskq in taskqs) if host_taskqs else None


def _limits(host_limits: Sequence[tuple[CgroupLimit, ...]]) -> tuple[CgroupLimit, ...] | None:
    """Return the limits of all hosts; None where no host reads any."""
    if not host_limits:
        return None
    cgroup_limits: dict[tuple[str, str, str, str], CgroupLimit] = {}
    for cgroup_limit in (limit for cgroup_limits in host_limits for limit in cgroup_limits):
        cgroup_limits[cgroup_limit.key] = (
            cgroup_limits[cgroup_limit.key].plus(cgroup_limit) if cgroup_limit.key in cgroup_limits else cgroup_limit
        )
    return tuple(cgroup_limits.values())


def _traced(host_traces: Sequence[tuple[HostFrame, Traced]], one_in: int) -> Traced:
    """Return the state of all hosts' tracers, each traced request standing for `one_in` I/Os; 0: nothing was traced.

    A stage is absent where no host's tracer measures it.
    """
    active = [(part, traced) for part, traced in host_traces if traced.one_in]
    if not active:
        absent = _absent([traced.absent for _, traced in host_traces])
        return Traced(absent=absent)
    rates = [rate for _, traced in active for rate in traced.sampled]
    return Traced(
        off=_total(traced.off for _, traced in active),
        one_in=one_in or max(rates),
        rates=(min(rates), max(rates)) if min(rates) != max(rates) else (0, 0),
        devices=tuple(dict.fromkeys(_traced_devices(host_traces))),
        includes=_stages(traced.includes for _, traced in active),
        bio_includes=_stages(traced.bio_includes for _, traced in active),
        absent=_absent([traced.absent for _, traced in active]),
    )


def _traced_devices(host_traces: Sequence[tuple[HostFrame, Traced]]) -> tuple[str, ...]:
    """Return the devices that are traced; empty where all of all hosts are."""
    if all(traced.one_in and not traced.devices for _, traced in host_traces):
        return ()
    return tuple(
        name
        for part, traced in host_traces
        if traced.one_in
        for name in traced.devices or (named(part.label, device) for device in part.devices)
    )


def _stages(host_stages: Iterable[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Return stage -> all neighbours that it includes on any host."""
    return _summed(host_stages, lambda stages, other: tuple(dict.fromkeys((*stages, *other))))


def _absent(host_missing: Sequence[tuple[Missing, ...]]) -> tuple[Missing, ...]:
    """Return those that are missing on each host, with the first host's reason."""
    if not host_missing:
        return ()
    everywhere = set.intersection(*({missing.name for missing in missing_parts} for missing_parts in host_missing))
    return tuple(missing for missing in host_missing[0] if missing.name in everywhere)


def _in_flight(host_lists: Sequence[tuple[HostFrame, InFlightList]]) -> InFlightList | None:
    """Return the requests in flight of all hosts that list any; None without one."""
    if not host_lists:
        return None
    oldest = sorted(
        (in_flight for _, in_flight_list in host_lists for in_flight in in_flight_list.oldest),
        key=lambda in_flight: in_flight.began_us,
    )
    ends = [in_flight_list.at_us for _, in_flight_list in host_lists if in_flight_list.at_us]
    return InFlightList(
        oldest=tuple(oldest[:MAX_IN_FLIGHT]),
        older=_added(in_flight_list.older for _, in_flight_list in host_lists),
        since_us=max(in_flight_list.since_us for _, in_flight_list in host_lists),
        at_us=min(ends) if len(ends) == len(host_lists) else 0,
        devices=tuple(
            name
            for part, in_flight_list in host_lists
            for name in in_flight_list.devices or (named(part.label, device) for device in part.devices)
        ),
    )


def _health(healths: Sequence[Health], now: Sequence[Health]) -> Health:
    """Return the sum of losses, and of the probes `now`, in the last frame of each host.

    The overhead is the largest of a host, because each is a percentage of that host's CPU.
    """
    counts: dict[str, Any] = {name: _total(getattr(health, name) for health in healths) for name in _LOSSES}
    counts |= {name: _total(getattr(health, name) for health in now) for name in _PROBES}
    skipped = [health.skipped for health in healths if health.skipped is not None]
    spent = [health.probe_cpu_percent for health in healths if health.probe_cpu_percent is not None]
    each = [health.probe_ns_per_io for health in healths if health.probe_ns_per_io is not None]
    return Health(
        **counts,
        full_tables=_summed((health.full_tables for health in healths), int.__add__),
        notice=clean("; ".join(dict.fromkeys(health.notice for health in healths if health.notice)), MAX_TEXT),
        skipped=_total(skipped) if skipped else None,
        probe_cpu_percent=max(spent, default=None),
        probe_ns_per_io=max(each, default=None),
    )


def merged_origin(hosts: Mapping[str, Origin], all_hosts: int, interval_us: int, begun: tuple[float, int]) -> Origin:
    """Return the origin of a fleet of `all_hosts`; `hosts` are those that run. `begun`: wall and mono_us here."""
    origins = tuple(hosts.values())
    measured = _stages(origin.measured for origin in origins)
    inside = {inner for stages in measured.values() for inner in stages}
    absent = {
        missing.name: missing
        for origin in origins
        for missing in origin.absent
        if missing.name not in {*measured, *inside}
    }
    tools = {name: sum((origin.tool or origin.backend) == name for origin in origins) for name in _distinct(origins)}
    ticks = {origin.hz for origin in origins}
    sections = {
        f"host {label}": {
            "kernel": host.kernel,
            "latmon": host.latmon,
            "tool": host.tool or host.backend,
            "tier": host.tier,
        }
        for label, host in hosts.items()
    }
    return Origin(
        backend="fleet",
        host=f"{all_hosts} hosts" if all_hosts > 1 else next((origin.host for origin in origins), "1 host"),
        kernel=_one([origin.kernel for origin in origins]),
        latmon=__version__,
        tool=", ".join(f"{name} on {many}" for name, many in tools.items()),
        tier="/".join(sorted({origin.tier for origin in origins if origin.tier})),
        interval_us=interval_us,
        start_wall=begun[0],
        start_mono_us=begun[1],
        hz=next(iter(ticks)) if len(ticks) == 1 else None,
        measured=measured,
        absent=tuple(absent.values()),
        untraced=_absent([origin.untraced for origin in origins]),
        reason="" if "total" in measured or not origins else _NOT_TIMED,
        latency_from=next((origin.latency_from for origin in origins if origin.latency_from), ""),
        counted=_counted(origins),
        settings=capped(sections),
    )


def _counted(origins: Sequence[Origin]) -> tuple[str, ...]:
    """Return the tables that all hosts count: of another one, a device without rows may have no counts."""
    return tuple(name for name in (origins[0].counted if origins else ()) if all(name in o.counted for o in origins))


def _distinct(origins: Sequence[Origin]) -> list[str]:
    return list(dict.fromkeys(origin.tool or origin.backend for origin in origins))


def _one(texts: Sequence[str]) -> str:
    """Return the text that all have; "several" for different ones."""
    return texts[0] if len(set(texts)) == 1 else "several" if texts else ""
