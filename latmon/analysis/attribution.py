"""Attribution of slow I/Os to stages, from traced requests, of all I/Os to their issuers, and of requests to files.

Operations on files are rows per file system and op, with the requests that a slow operation issued. Identical
neighbours among outliers are folded, too.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from latmon.analysis.threshold import Slower, slower
from latmon.model.devices import HOST_SEPARATOR, host_and_device, is_behind_tcp
from latmon.model.frame import (
    FILE_OPS,
    FILE_WAITS,
    OPS,
    OWN_IO,
    RUNNING,
    STAGES,
    UNACCOUNTED,
    Device,
    FileOperation,
    FileSystem,
    Outlier,
    Series,
    Traced,
)
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds, bucket_index, merge, part_of
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.issued_io import ISSUED_IO, IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.nfs import NfsCalls, NfsOperation
from latmon.model.measurements.sizes import SizeClass
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.stages import ADMISSION, WHOLE

PARTS = (*STAGES[:-1], UNACCOUNTED)
"""Parts of a request's time, in the order in which it passes them."""
MIN_FOR_CUT = 100
"""Least number of traced requests for a p99."""
_OPEN_GROUPS = 16
"""Groups that an outlier is compared with; without a limit a flood would take quadratic time."""
_SAME_US = 1
_FEW_US = 16
"""Upper limit of the difference of totals whose ten stages differ by 1 us each."""
_SAME_TOTAL = 8
"""Outliers that wait for one thread are identical if their totals differ by less than an eighth, one bucket."""
Requests = Mapping[tuple[str, int | None], Sequence[Outlier]]
"""Outliers by device and process."""
_SECTOR = 512
_SLACK_US = 1_000
"""Two programs have stamps of two clocks, whose distance is measured from outside."""
_PATH = " softirq"
_CAN_COMPLETE = ("BLOCK", "IRQ_POLL", "TASKLET", "HI")
"""Vectors in which drivers of disks complete requests, or pass completions on."""
_UNNAMED = frozenset(("softirq raised outside of a handler", "irq thread, then softirq"))
"""Paths of tier C through a softirq whose vector they don't name."""
_MOST_STACKS = 5
_OTHER = "other"
SIZES = (4096, 16_384, 65_536, 262_144, 0)
"""Sizes up to which latencies are apart, in bytes; 0: larger ones."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Traced I/Os of `cut_us` and more: their number, and each stage's share of their time (0..1)."""

    cut_us: int
    count: int
    share: Mapping[str, float]


class Folded(NamedTuple):
    """One row for identical neighbours: the longest of them, and their number."""

    outlier: Outlier
    repeats: int


def total_of(traced: Traced, device: str, ops: Iterable[str] = OPS) -> Histogram:
    """Return the latency of the traced requests, to completion."""
    return _merged(traced, device, tuple(ops), "total")


def stages_of(traced: Traced, device: str, ops: Iterable[str] = OPS) -> dict[str, Histogram]:
    """Return stage (and `unaccounted`) -> histogram, in the order in which a request passes; without unused stages."""
    if not traced.histograms:  # every rule calls it for some thousand devices
        return {}
    wanted = tuple(ops)
    histograms = {part: _merged(traced, device, wanted, part) for part in PARTS}
    return {part: histogram for part, histogram in histograms.items() if histogram}


def parts_of(stages: Mapping[str, Histogram], whole_histogram: Histogram) -> dict[str, Histogram]:
    """Return the stages with bounds that the total allows; `resume` comes after it."""
    return {
        stage: histogram if stage == "resume" else part_of(histogram, whole_histogram)
        for stage, histogram in stages.items()
    }


class Submission(NamedTuple):
    """Traced requests from the submission of their first bio on: fewer than those of the total."""

    whole: Histogram
    admission: Histogram

    @property
    def share(self) -> float:
        """Return the share of the time that passes before the requests exist."""
        return (self.admission.sum or 0) / self.whole.sum if self.whole.sum else 0.0


def submission_of(traced: Traced, device: str, ops: Iterable[str] = OPS) -> Submission:
    """Return the latency from submission on, and its part before the request; empty where it isn't traced."""
    wanted = tuple(ops)
    return Submission(*(_merged(traced, device, wanted, part_name) for part_name in (WHOLE, ADMISSION)))


def tail_cut(traced: Traced, device: str, ops: Iterable[str] = OPS, threshold_us: int | None = None) -> int | None:
    """Return the least latency of slow I/Os: a bucket's bound at or above the threshold, else the end of p99's bucket.

    If that is the highest bucket in use, it is its begin. None with fewer than MIN_FOR_CUT requests.
    """
    total = total_of(traced, device, ops)
    if threshold_us is not None:
        low, high = bucket_bounds(bucket_index(threshold_us, total.bits), total.bits)
        return low if low == threshold_us else high
    if total.count < MIN_FOR_CUT:
        return None
    index, last = _bucket_of(total, 0.99), total.buckets[-1][0]
    low, high = bucket_bounds(index, total.bits)
    return high if last > index else low


def of_threshold_bucket(
    traced: Traced, device: str, ops: Iterable[str], above: Slower, outliers: Iterable[Outlier]
) -> tuple[Outlier, ...] | None:
    """Return the I/Os above a threshold whose bucket has others below it too: with them the slow ones are exact.

    None where not all of them are recorded with their stages. `above`: the exact number of I/Os above the threshold.
    """
    wanted, threshold_us = frozenset(ops), above.bound_us
    total = total_of(traced, device, wanted)
    cut_us = tail_cut(traced, device, wanted, threshold_us) or 0
    beyond = slower(total, cut_us).ios
    found_outliers = []
    for outlier in outliers:
        completed_us = outlier.total_us - outlier.stages_us.get("resume", 0)
        if not threshold_us < completed_us < cut_us:
            continue
        if outlier.device == device and outlier.op in wanted and outlier.stages_us and not outlier.status:
            found_outliers.append(outlier)
    return tuple(found_outliers) if beyond + len(found_outliers) == above.ios else None


def parts_us(outliers: Iterable[Outlier]) -> Counter[str]:
    """Return stage (and `unaccounted`) -> us of recorded I/Os to their completion."""
    sums: dict[str, int] = {}
    for outlier in outliers:  # hundreds for a picture: Counter.update takes thrice the time
        sums[UNACCOUNTED] = sums.get(UNACCOUNTED, 0) + outlier.unaccounted_us
        for stage, us in outlier.stages_us.items():
            sums[stage] = sums.get(stage, 0) + us
    sums.pop("resume", None)
    return Counter(sums)


def tail(traced: Traced, device: str, ops: Iterable[str] = OPS, cut_us: int = 0) -> Tail:
    """Return the stages' shares of the time of traced I/Os of `cut_us` (a bucket's bound) and more."""
    wanted = tuple(ops)
    total = total_of(traced, device, wanted)
    first = bucket_index(cut_us, total.bits)
    count = sum(n for index, n in total.buckets if index >= first)
    sums = tail_us(traced, device, wanted, cut_us)
    total_us = sum(sums.values())
    return Tail(cut_us, count, {part: us / total_us for part, us in sums.items() if us} if total_us else {})


def tail_us(traced: Traced, device: str, ops: Iterable[str], cut_us: int) -> dict[str, int]:
    """Return stage (and `unaccounted`) -> us of the traced I/Os of `cut_us` (a bucket's bound) and more."""
    wanted = tuple(ops)
    return {part: _above(traced, device, wanted, part, bucket_index(cut_us)) for part in PARTS}


def untraced_share(traced: Traced, device: str = "") -> float | None:
    """Return the share of traced requests whose completion path could not be traced, over all ops.

    None without requests: bios have no path.
    """
    devices = (device,) if device else {*traced.paths, *traced.unfollowed}
    followed = sum(n for name in devices for n in traced.paths.get(name, {}).values())
    lost = sum(n for name in devices for n in traced.unfollowed.get(name, {}).values())
    return lost / (followed + lost) if followed + lost else None


_NET_RX, _IRQ_POLL = "NET_RX", "IRQ_POLL"
NETWORK_VECTORS = frozenset((_NET_RX,))
"""Vectors that run on every host, and in which only some drivers' I/Os complete."""


def vectors_of(device: Device, paths: Collection[str]) -> tuple[str, ...]:
    """Return the shared softirq vectors that a device's completions wait for, by what it is and how they complete."""
    received = (_NET_RX,) if is_behind_tcp(device.name, device.driver) else ()
    return tuple(
        dict.fromkeys((*received, *(vector for vector in (_NET_RX, _IRQ_POLL) if f"{vector} softirq" in paths)))
    )


def completing_vectors(paths: Collection[str]) -> tuple[str, ...]:
    """Return the vectors that completed a device's requests; all possible ones where no path names the vector."""
    named = [path.removesuffix(_PATH) for path in paths if path.endswith(_PATH)]
    return tuple(dict.fromkeys((*named, *(() if paths and _UNNAMED.isdisjoint(paths) else _CAN_COMPLETE))))


def vectors_in(table: Collection[str], paths: Collection[str], device: str) -> tuple[str, ...]:
    """Return the keys of a table of vectors that belong to the vectors which completed a device's requests.

    NET_RX completes requests, too, but it runs on every host: where a path is of a softirq that it doesn't name, it is
    one only where none of the others ran.
    """
    keys = tuple(
        key
        for completing_vector in completing_vectors(paths)
        if (key := in_table(completing_vector, device, table)) in table
    )
    network = () if _UNNAMED.isdisjoint(paths) else (in_table(_NET_RX, device, table),)
    return keys or tuple(key for key in network if key in table)


def in_table(name: str, device: str, table: Container[str]) -> str:
    """Return the key of a device's host in a table: a fleet's tables have the host in front of the name."""
    host, _ = host_and_device(device)
    return key if host and (key := f"{host}{HOST_SEPARATOR}{name}") in table else name


def raisers_of(traced: Traced, device: str) -> dict[str, Mapping[str, int]]:
    """Return vector -> kernel functions that raised it outside of interrupts, of those that complete the device's."""
    keys = vectors_in(traced.raisers, traced.paths.get(device, {}), device)
    return {host_and_device(key)[1]: traced.raisers[key] for key in keys}


def frequent(stacks: Mapping[str, int], most: int = _MOST_STACKS) -> dict[str, int]:
    """Return the most frequent kernel stacks, and the rest as `other`."""
    named = {name: n for name, n in stacks.items() if name != _OTHER}
    frequent_counts = dict(
        sorted(named.items(), key=lambda name_and_count: (-name_and_count[1], name_and_count[0]))[:most]
    )
    remainder = sum(stacks.values()) - sum(frequent_counts.values())
    return frequent_counts | ({_OTHER: remainder} if remainder else {})


def by_vector(softirqs: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, SoftirqRuns]:
    """Merge the softirqs of all CPUs by vector."""
    return SOFTIRQS.sum_rows((where.vector, runs) for where, runs in softirqs.items())


def added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts by name."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, n in part.items():
            sums[name] = sums.get(name, 0) + n
    return sums


def fold(outliers: Sequence[Outlier]) -> list[Folded]:
    """Fold identical neighbours into one row each, in the order of their first ones.

    Identical I/Os have the same device, op, path and status, are both latmon's own or not, overlap in time, and either
    wait for the same wake-up of a thread or have the same stages within 1 us each.
    """
    groups: list[list[Outlier]] = []
    still_open: dict[tuple[str, str, str, str, bool], deque[list[Outlier]]] = {}
    for outlier in sorted(outliers, key=lambda o: o.mono_us):
        kind = (outlier.device, outlier.op, outlier.path, outlier.status, outlier.own)
        near = still_open.setdefault(kind, deque(maxlen=_OPEN_GROUPS))
        while near and near[0][-1].mono_us + near[0][-1].total_us < outlier.mono_us:
            near.popleft()
        group = next((group for group in near if _same(group[-1], outlier)), None)
        if group is None:
            group = []
            groups.append(group)
            near.append(group)
        group.append(outlier)
    return [Folded(max(group, key=lambda o: o.total_us), len(group)) for group in groups]


def _same(earlier: Outlier, later: Outlier) -> bool:
    apart = abs(earlier.total_us - later.total_us)
    # neither rule permits a greater difference; this is the quickest test
    if later.mono_us > earlier.mono_us + earlier.total_us or apart > max(_FEW_US, later.total_us // _SAME_TOTAL):
        return False
    if later.waits and earlier.waits and _woken(earlier) & _woken(later):
        return True
    stages_us, other = earlier.stages_us, later.stages_us
    return (
        bool(stages_us)
        and apart <= _FEW_US
        and stages_us.keys() == other.keys()
        and all(abs(us - other[name]) <= _SAME_US for name, us in stages_us.items())
        and abs(earlier.unaccounted_us - later.unaccounted_us) <= _SAME_US
    )


def _woken(outlier: Outlier) -> set[tuple[int, int]]:
    return {(wait.pid, wait.woken_us) for wait in outlier.waits if wait.stage != "resume"}


def _merged(traced: Traced, device: str, ops: tuple[str, ...], stage: str) -> Histogram:
    table = traced.histograms
    parts = [table[series] for op in ops if (series := Series(device, op, stage)) in table]
    return parts[0] if len(parts) == 1 else merge(parts) if parts else EMPTY


def _above(traced: Traced, device: str, ops: tuple[str, ...], stage: str, first: int) -> int:
    buckets_by_op = (traced.by_total.get(Series(device, op, stage), {}) for op in ops)
    return sum(us for sums in buckets_by_op for index, us in sums.items() if index >= first)


def _bucket_of(histogram: Histogram, q: float) -> int:
    rank, seen = q * histogram.count, 0
    for index, n in histogram.buckets:
        seen += n
        if seen >= rank:
            return index
    raise AssertionError("unreachable: ranks end at count")


def by_size(sizes: Mapping[SizeClass, IssuedIO]) -> dict[int, IssuedIO]:
    """Return the I/Os of one device and op by the sizes that were counted, the largest last; keys as SizeClass has."""
    issued_ios = {size_class.upto: done for size_class, done in sizes.items()}
    return dict(sorted(issued_ios.items(), key=lambda item: item[0] or math.inf))


def latency_by_size(counted: Mapping[int, IssuedIO]) -> dict[int, IssuedIO]:
    """Return the I/Os of `by_size` by the sizes of SIZES."""
    issued_ios: dict[int, IssuedIO] = {}
    for upto, done in counted.items():
        size = next((size_class for size_class in SIZES if size_class and 0 < upto <= size_class), 0)
        issued_ios[size] = ISSUED_IO.add(issued_ios[size], done) if size in issued_ios else done
    return issued_ios


@dataclass(frozen=True, slots=True)
class IssuerRow:
    """I/Os of one cgroup, or of one of its processes, over all devices."""

    issuer: Issuer
    """One of its keys: device and op are those of some of its I/Os."""
    ios: int
    bytes: int
    latency: Histogram
    share: float | None
    """Its part of the time of all these I/Os, which is its part of the I/Os in flight; None: not timed."""
    devices: Mapping[str, IssuerRow]
    """Device -> its I/Os there, whose share is of the device's time; that with most of its time first. Empty in these
    rows."""
    behind: Mapping[str, float] = field(default_factory=dict)
    """Cgroup, its own included -> share of the time of its I/Os in which the device served that one's; largest first.
    Empty where it wasn't traced."""

    @property
    def key(self) -> tuple[str, int, str]:
        """Return what identifies it across windows."""
        return _process(self.issuer) if self.issuer.pid else (self.issuer.cgroup, 0, self.issuer.comm)


def issuer_rows(
    issuers: Mapping[Issuer, IssuedIO],
    devices: Container[str],
    ops: Container[str] = OPS,
    *,
    processes: bool = False,
    by_pid: bool = False,
    behind: Mapping[Behind, int] = MappingProxyType({}),
) -> list[IssuerRow]:
    """Return a row per cgroup with I/Os of these ops to these devices, that with most of the time first.

    `processes`: a row per process instead. `by_pid`: a pid is one process, whose name and cgroup may change; in a
    capture of hours it may be used again. `behind`: sampled times of their I/Os, for cgroups.
    """
    waits: dict[str, dict[str, dict[str, int]]] = {}
    for pair, us in behind.items():
        waits.setdefault(pair.cgroup, {}).setdefault(pair.device, {})[pair.other] = us
    rows_by_issuer: dict[tuple[str, int, str], dict[str, list[tuple[Issuer, IssuedIO]]]] = {}
    for issuer, done in issuers.items():
        if (
            issuer.device in devices
            and issuer.op in ops
            and issuer.is_process is processes
            and (done.count or done.bytes)
        ):
            key = _process(issuer) if by_pid and issuer.pid else (issuer.cgroup, issuer.pid, issuer.comm)
            rows_by_issuer.setdefault(key, {}).setdefault(issuer.device, []).append((issuer, done))
    of_device: dict[str, float] = {}
    for parts in rows_by_issuer.values():
        for device, part in parts.items():
            of_device[device] = of_device.get(device, 0.0) + sum(_time_us(done.latency) for _, done in part)
    rows = []
    for parts in rows_by_issuer.values():
        each = {device: _one_row(part, of_device[device], {}) for device, part in parts.items()}
        pairs = [pair for part in parts.values() for pair in part]
        row = _one_row(pairs, sum(of_device.values()), dict(sorted(each.items(), key=_of_item)))
        rows.append(row if processes else replace(row, behind=_behind(row, waits.get(row.issuer.cgroup, {}))))
    return sorted(rows, key=_by_time)


def _process(issuer: Issuer) -> tuple[str, int, str]:
    """Return what identifies a process for some minutes: its host and pid; names and cgroups change."""
    host, separator, _ = issuer.cgroup.partition(HOST_SEPARATOR)
    return host if separator and "/" not in host else "", issuer.pid, ""


def _behind(row: IssuerRow, waits: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """Return the shares over all devices, each with the time of the row's I/Os there, of which some were sampled."""
    us_by_cgroup: defaultdict[str, float] = defaultdict(float)
    for device, each in row.devices.items():
        sampled_us = sum(waits.get(device, {}).values())
        for other, us in waits.get(device, {}).items():
            us_by_cgroup[other] += _time_us(each.latency) * us / sampled_us
    total_us = sum(us_by_cgroup.values())
    return (
        {other: us / total_us for other, us in sorted(us_by_cgroup.items(), key=lambda item: -item[1])}
        if total_us
        else {}
    )


def _one_row(issuer_rows: list[tuple[Issuer, IssuedIO]], time_us: float, devices: Mapping[str, IssuerRow]) -> IssuerRow:
    latency = merge(done.latency for _, done in issuer_rows)
    by_ios = sorted(issuer_rows, key=lambda pair: -pair[1].count)  # of two names of a process that with most I/Os
    named = next((issuer for issuer, _ in by_ios if issuer.container), by_ios[0][0])
    share = _time_us(latency) / time_us if latency and time_us else None
    ios, size = sum(done.count for _, done in issuer_rows), sum(done.bytes for _, done in issuer_rows)
    return IssuerRow(named, ios, size, latency, share, devices)


def _time_us(latency: Histogram) -> float:
    """Return the time of all I/Os; where no sum is known, with the middle of each bucket, which is 6 % off at most."""
    if latency.sum is not None:
        return latency.sum
    return sum(n * sum(bucket_bounds(index, latency.bits)) / 2 for index, n in latency.buckets)


def _by_time(row: IssuerRow) -> tuple[float, int, int, str]:
    return -_time_us(row.latency), -row.ios, -row.bytes, row.issuer.cgroup


def _of_item(item: tuple[str, IssuerRow]) -> tuple[float, int, int, str]:
    return _by_time(item[1])


@dataclass(frozen=True, slots=True)
class FileRow:
    """One op on the files of one file system. `waits`: what its threads waited for -> the operations' times."""

    file_system: FileSystem
    op: str
    latency: Histogram
    waits: Mapping[str, Histogram]
    parts: Mapping[str, int] = field(default_factory=dict)
    """Part of FILE_PARTS -> us; empty where no thread left its CPU, or where the time is not split."""

    @property
    def all_parts(self) -> Mapping[str, int]:
        """Return the parts with the time in which the threads ran, which is what is left."""
        left_us = (self.latency.sum or 0) - sum(self.parts.values())
        return {**self.parts, RUNNING: max(left_us, 0)}

    def part_share(self, name: str) -> float | None:
        """Return a part's share of the time, 0..1; None where the time is not split."""
        parts = self.all_parts
        whole_us = sum(parts.values())
        return parts.get(name, 0) / whole_us if self.parts and whole_us else None

    @property
    def longest_wait(self) -> str:
        """Return the part but own I/O that has most of the time; empty where the time is not split."""
        others = {name: us for name, us in self.all_parts.items() if name != OWN_IO and us}
        return max(others, key=lambda name: others[name], default="") if self.parts else ""

    def share(self, wait: str) -> float | None:
        """Return the part of the operations' time of one kind of wait; None where no time is known."""
        part, total = self.waits.get(wait, EMPTY), self.latency.sum
        return None if not total or part.sum is None else part.sum / total


def nfs_rows(operations: Mapping[NfsOperation, NfsCalls]) -> list[tuple[NfsOperation, NfsCalls]]:
    """Return the calls of the NFS client, the operations with most of the time first."""
    return sorted(operations.items(), key=lambda row: (-row[1].execute_us, -row[1].calls, row[0]))


def file_rows(
    files: Mapping[FileSeries, Histogram], times: Mapping[FilePart, int] = MappingProxyType({})
) -> list[FileRow]:
    """Return a row per file system and op: the file systems by their operations' time, the ops in their order.

    `times`: the parts of their time.
    """
    parts: dict[tuple[FileSystem, str], dict[str, int]] = {}
    for key, us in times.items():
        parts.setdefault((FileSystem(key.mount, key.kind, key.device), key.op), {})[key.part] = us
    histograms: dict[tuple[FileSystem, str], dict[str, Histogram]] = {}
    for file_series, latency in files.items():
        waits = histograms.setdefault(
            (FileSystem(file_series.mount, file_series.kind, file_series.device), file_series.op), {}
        )
        waits[file_series.wait] = merge((waits[file_series.wait], latency)) if file_series.wait in waits else latency
    times_us: dict[FileSystem, int] = {}
    for (its, _), waits in histograms.items():
        times_us[its] = times_us.get(its, 0) + sum(histogram.sum or 0 for histogram in waits.values())
    rows = [
        FileRow(
            its,
            op,
            merge(waits.values()),
            {wait: waits[wait] for wait in FILE_WAITS if wait in waits},
            parts.get((its, op), {}),
        )
        for (its, op), waits in histograms.items()
    ]
    at = {op: number for number, op in enumerate(FILE_OPS)}
    return sorted(
        rows, key=lambda file_row: (-times_us[file_row.file_system], file_row.file_system, at.get(file_row.op, len(at)))
    )


def whole_path(mount: str, path: str) -> str:
    """Return the path of a file from the root, as far as it is known."""
    return f"{mount.rstrip('/')}/{path}"


def by_process(outliers: Iterable[Outlier]) -> Requests:
    """Return the outliers for `requests_of`, so that many operations need not look at all of them."""
    by_process: dict[tuple[str, int | None], list[Outlier]] = {}
    for outlier in outliers:
        by_process.setdefault((outlier.device, outlier.pid), []).append(outlier)
    return by_process


def requests_of(operation: FileOperation, outliers: Requests) -> list[Outlier]:
    """Return the slow requests that the operation's thread issued during it, the longest first.

    They have its process and lie on its device and in its sectors. A request of a thread of the file system's own, such
    as the journal's, is none of them.
    """
    if operation.pid is None or operation.sectors is None:
        return []
    first, end = operation.sectors
    found_outliers = [
        outlier
        for outlier in outliers.get((operation.disk, operation.pid), ())
        if operation.mono_us - _SLACK_US <= outlier.mono_us <= operation.until_us and _overlaps(outlier, first, end)
    ]
    return sorted(found_outliers, key=lambda outlier: -outlier.total_us)


def _overlaps(outlier: Outlier, first: int, end: int) -> bool:
    """Return whether a request has one of these sectors; a flush has none, and is the operation's if its process's."""
    if outlier.sector is None or not outlier.bytes:
        return True
    return outlier.sector < end and first < outlier.sector + outlier.bytes // _SECTOR
