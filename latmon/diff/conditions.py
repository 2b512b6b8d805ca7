"""Conditions of each span: load and settings, and their differences.

They are reported first: latencies of different loads compare badly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar

from latmon.analysis import neighbours
from latmon.analysis.statistics import error_of_mean
from latmon.diff.blocks import CaptureSpan
from latmon.model.devices import is_volume
from latmon.model.frame import OPS, Device, Flow, Mark, Origin, Series, Settings
from latmon.model.histogram import bucket_bounds
from latmon.model.inflight import Aged
from latmon.model.measurements.issued_io import IssuedIO
from latmon.support.errors import UsageError
from latmon.support.text import clean
from latmon.support.typed_json import Digits

_UNLIKE = 1.2
"""Rates or sizes that differ by a smaller factor are the same load."""
_SURE = 4.0
"""Standard errors, from blocks, that a difference of rates must exceed."""
_SHARE = 0.05
_TWICE = 2.0
_OPERATIONS = 100
_PARTS = 0.25
_DAY_S = 86_400
_BAR_US = 131_072
"""Slow I/Os take so long where spans have no common threshold: it is an edge of all buckets, just above 100 ms."""
_BURST = 8
"""I/Os that may be in flight at once by chance, however low the rate is: a program's burst, chosen by experience."""
_FIELDS, _LOADS = {"ios": "count", "bytes": "bytes"}, {"ios": "iops", "bytes": "mb_per_s"}
_NO_IO = IssuedIO(0, 0)
_DEVICE = "device "
"""Begin of the names of the sections that are of a device."""
_LIMITS = ("nr_requests", "queue_depth")
"""Settings that limit the I/Os in flight."""
_EXPECTED = {"clock", "host"}
"""Sections that always differ."""
_UNLIKE_SETTINGS = ("host name", "hostname", "name", "start")
MOST = 200
"""Settings that are reported at most."""
_Key = TypeVar("_Key", Series, Flow)


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """The load of one device, or of all, in a capture."""

    iops: float | None = 0.0
    """I/Os per second; null where the length of the capture was not measured."""
    mb_per_s: float | None = 0.0
    """Megabytes (10^6 bytes) per second; null as `iops`."""
    reads: float = 0.0
    """Share of reads in reads and writes, 0 to 1."""
    size: float = 0.0
    """Bytes per I/O on average."""


@dataclass(frozen=True, slots=True)
class LoadDifference:
    """A device whose load differs."""

    device: str
    a: DeviceLoad
    b: DeviceLoad
    what: tuple[Literal["IOPS", "mix", "size"], ...]
    """The numbers that differ; `mix` is the share of reads."""


def device_load(period: CaptureSpan, device: str = "") -> DeviceLoad:
    """Return the load of one device, or of all: then a volume whose disks are measured too is not counted again."""
    flows = {flow for unit in period.units for flow in unit.done if device in ("", flow.device)}
    known = without_volumes(period, flows)
    done = [(flow.op, *unit.done[flow]) for unit in period.units for flow in known if flow in unit.done]
    count, size, seconds = sum(n for _, n, _ in done), sum(b for _, _, b in done), period.seconds
    by_op = {op: sum(n for o, n, _ in done if o == op) for op in OPS[:2]}
    both = sum(by_op.values())
    if not count or not period.us:
        return DeviceLoad()
    iops, mb_per_s = (None, None) if seconds is None else (count / seconds, size / seconds / 1e6)
    return DeviceLoad(iops, mb_per_s, by_op["read"] / both if both else 0.0, size / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """What users notice of a capture, over all of its devices."""

    above_us: int
    """Slow I/Os take at least this long, in us: the same in all captures that are compared."""
    above: int | None
    """Slow I/Os; null where no latency was timed."""
    per_day: float | None
    """Slow I/Os per day; null as `above`, and where the length of the capture was not measured."""
    longest_us: int | None
    """Latency of the slowest I/O that completed, in us; null where none was timed."""
    longest_is_exact: bool
    """false: `longest_us` is an upper bound."""
    iops: float | None
    """I/Os per second; null where none was counted, and where the length was not measured."""
    failed: int | None
    """I/Os that failed, which have no latency; null where they were not counted."""
    oldest_us: int | None
    """Age in us of the oldest I/O in flight at the end, which is in none of the numbers above; null: none is known."""
    oldest_is_exact: bool
    """false: `oldest_us` is a lower bound."""
    unknown_age: int
    """I/Os in flight at the end whose age is not known."""

    @property
    def is_stuck(self) -> bool:
        """Return whether an I/O in flight is older than any that completed, by its age or by Little's law.

        Clearly more I/Os than complete in twice the longest time can't all have begun within that time.
        """
        longest_us = self.longest_us or 0
        usual = 2 * (self.iops or 0) * longest_us / 1e6
        return (self.oldest_us or 0) > longest_us or (usual > 0 and self.unknown_age > usual + _BURST)


def user_views(periods: Sequence[CaptureSpan], device: str = "") -> tuple[UserView, ...]:
    """Return what users of each span saw, of one device or of all.

    Of all, a volume whose disks are measured too is not counted again.
    """
    totals = [
        [series for series in period.series() if series.stage == "total" and device in ("", series.device)]
        for period in periods
    ]
    timed = [without_volumes(period, series) for period, series in zip(periods, totals, strict=True)]
    bars = {
        period.threshold_us(series.device)
        for period, timed_series in zip(periods, timed, strict=True)
        for series in timed_series
    }
    common = bars.pop() if len(bars) == 1 else None
    return tuple(_user_view(period, series, common, device) for period, series in zip(periods, timed, strict=True))


def without_volumes(period: CaptureSpan, keys: Iterable[_Key]) -> list[_Key]:
    """Return the keys without those of volumes whose disks have keys too: a volume's I/Os are those of its disks."""
    all_keys = list(keys)
    names = {key.device for key in all_keys}
    return [key for key in all_keys if not is_volume(period.devices.get(key.device), names)]


def _user_view(period: CaptureSpan, timed: Sequence[Series], common: int | None, device: str) -> UserView:
    totals = [period.total(series, period.bits[series]) for series in timed]
    if common is not None:
        names = {series.device for series in timed}
        above = sum(count for flow, count in period.above.items() if flow.device in names)
    else:
        above = sum(
            n for histogram in totals for at, n in histogram.buckets if bucket_bounds(at, histogram.bits)[0] >= _BAR_US
        )
    longest = max(
        (histogram for histogram in totals if histogram), key=lambda histogram: histogram.max_bound or 0, default=None
    )
    done_by = {flow for unit in period.units for flow in unit.done if device in ("", flow.device)}
    flows = without_volumes(period, done_by)
    done = sum(unit.done[flow][0] for unit in period.units for flow in flows if flow in unit.done)
    seconds = period.seconds
    oldest, unknown = _in_flight(period, device)
    return UserView(
        above_us=_BAR_US if common is None else common,
        above=above if totals else None,
        per_day=above / seconds * _DAY_S if totals and seconds else None,
        longest_us=longest.max_bound if longest else None,
        longest_is_exact=longest is not None and longest.max is not None,
        iops=done / seconds if flows and seconds else None,
        failed=period.failed(device),
        oldest_us=oldest.age_us if oldest else None,
        oldest_is_exact=oldest is not None and not oldest.at_least,
        unknown_age=unknown,
    )


def _in_flight(period: CaptureSpan, device: str) -> tuple[Aged | None, int]:
    """Return the oldest I/O in flight at the end, and how many are of unknown age, of one device or of all.

    Of several runs it is the run with the most of unknown age: rates are those of one run, too.
    """
    known: list[Aged] = []
    unknown = 0
    for ages in period.ages:
        known += (row for row in (*ages.oldest, *ages.unlisted) if device in ("", row.device))
        unknown = max(unknown, ages.unknown.get(device, 0) if device else ages.of_unknown_age)
    return max(known, key=lambda row: row.age_us, default=None), unknown


def unlike(a: CaptureSpan, b: CaptureSpan) -> tuple[LoadDifference, ...]:
    """Return the devices whose load differs between the spans; none where the length of one was not measured."""
    if a.seconds is None or b.seconds is None:
        return ()
    differences = []
    for device in sorted(_busy(a) & _busy(b)):
        load_a, other = device_load(a, device), device_load(b, device)
        what: list[Literal["IOPS", "mix", "size"]] = []
        if _far(load_a.iops or 0.0, other.iops or 0.0) and _sure(a, b, device):
            what.append("IOPS")
        if abs(load_a.reads - other.reads) > _SHARE:
            what.append("mix")
        if _far(load_a.size, other.size):
            what.append("size")
        if what:
            differences.append(LoadDifference(device, load_a, other, tuple(what)))
    return tuple(differences)


@dataclass(frozen=True, slots=True)
class CgroupDifference:
    """A cgroup that issues twice as many I/Os on one side."""

    cgroup: str
    """Its path."""
    iops: Annotated[tuple[float, float], Digits(3)]
    """I/Os per second of A and of B."""


def unlike_cgroups(a: CaptureSpan, b: CaptureSpan) -> tuple[CgroupDifference, ...] | None:
    """Return the cgroups that issue twice as many I/Os in one span, and a twentieth of all; those far apart first.

    None where a span has no I/O by cgroup.
    """
    if not (a.issued and b.issued):
        return None
    if not (a.us and b.us):
        return ()
    least = _SHARE * max(sum(span.issued.values()) / span.us for span in (a, b)) * 1e6
    differences = []
    for cgroup in sorted({*a.issued, *b.issued}):
        rates = a.issued.get(cgroup, 0) * 1e6 / a.us, b.issued.get(cgroup, 0) * 1e6 / b.us
        if max(rates) >= max(least, _TWICE * min(rates)):
            differences.append(CgroupDifference(cgroup, rates))
    return tuple(sorted(differences, key=lambda row: (-_apart(row.iops), row.cgroup)))


def _apart(sides: tuple[float, float]) -> float:
    return abs(sides[0] - sides[1])


@dataclass(frozen=True, slots=True)
class ProcessDifference:
    """A process whose share and rate, or mean latency, is twice as large on one side."""

    comm: str
    of: Literal["ios", "bytes"]
    """What `share` is of: the traced I/Os, or the bytes where I/Os were not counted."""
    share: Annotated[tuple[float, float], Digits(3)]
    """Of A and of B, 0 to 1."""
    mean_us: Annotated[tuple[float | None, float | None], Digits(1)]
    """Mean latency in us of A's I/Os and of B's; null where fewer were timed than a mean needs."""


def unlike_processes(a: CaptureSpan, b: CaptureSpan) -> tuple[ProcessDifference, ...] | None:
    """Return the processes whose share and rate, or mean latency, is twice as large in one span; those far apart first.

    None where a span has no I/O by process. A share of less than a twentieth is not compared. Processes are traced for
    a part of a span, and of a fast device one I/O in several: the rate is the share of the rate of all I/Os. A share
    alone changes with other processes' I/O.
    """
    sides = (a.processes, b.processes)
    if not all(sides):
        return None
    have_counts = all(any(io.count for io in side.values()) for side in sides)
    of: Literal["ios", "bytes"] = "ios" if have_counts else "bytes"
    totals = [sum(getattr(io, _FIELDS[of]) for io in side.values()) for side in sides]
    if not all(totals):
        return ()
    rates = [getattr(device_load(span), _LOADS[of]) for span in (a, b)]
    if not all(rates):
        rates = [total / max(span.us, 1) for span, total in zip((a, b), totals, strict=True)]
    differences = []
    for comm in sorted(a.processes.keys() | b.processes.keys()):
        ios = [side.get(comm, _NO_IO) for side in sides]
        shares = [getattr(io, _FIELDS[of]) / total for io, total in zip(ios, totals, strict=True)]
        means = [io.latency.mean if io.latency.count >= _OPERATIONS else None for io in ios]
        more = _twice(*shares) and _twice(*(share * rate for share, rate in zip(shares, rates, strict=True)))
        if max(shares) >= _SHARE and (more or _twice(*means)):
            differences.append(ProcessDifference(comm, of, (shares[0], shares[1]), (means[0], means[1])))
    return tuple(sorted(differences, key=lambda row: (-_apart(row.share), row.comm)))


def _twice(a: float | None, b: float | None) -> bool:
    """Return whether one of two known values is at least twice the other, and not both are 0."""
    return a is not None and b is not None and max(a, b) >= _TWICE * min(a, b) and max(a, b) > 0


@dataclass(frozen=True, slots=True)
class FileDifference:
    """An operation on the files of a file system that takes twice as long on one side."""

    operation: str
    """`OP MOUNT`."""
    mean_us: Annotated[tuple[float, float], Digits(1)]
    """Mean time in us of A and of B."""


def unlike_files(a: CaptureSpan, b: CaptureSpan) -> tuple[FileDifference, ...] | None:
    """Return the operations on files that take twice as long on average in one span, of enough each.

    None where a span has no operations on files.
    """
    if not (a.files and b.files):
        return None
    differences = []
    for mount, op in sorted(a.files.keys() & b.files.keys()):
        (count_a, us_a), (count_b, us_b) = a.files[mount, op], b.files[mount, op]
        means = us_a / count_a, us_b / count_b
        if min(count_a, count_b) >= _OPERATIONS and _twice(*means):
            differences.append(FileDifference(f"{op} {mount}", means))
    return tuple(differences)


@dataclass(frozen=True, slots=True)
class KindDifference:
    """A kind of I/Os of a device whose share differs by a quarter of all I/Os or more."""

    device: str
    kind: str
    """`up to 16 KiB` or `sequential`."""
    share: Annotated[tuple[float, float], Digits(3)]
    """Of A's I/Os and of B's, 0 to 1."""


def unlike_kinds(a: CaptureSpan, b: CaptureSpan) -> tuple[KindDifference, ...] | None:
    """Return the kinds of I/Os whose shares differ much, sorted by device; None where a span has no kinds."""
    if not (a.kinds and b.kinds):
        return None
    differences = []
    for device, kind in sorted(a.kinds.keys() & b.kinds.keys()):
        (part_a, all_a), (part_b, all_b) = a.kinds[device, kind], b.kinds[device, kind]
        shares = part_a / all_a, part_b / all_b
        if min(all_a, all_b) >= _OPERATIONS and _apart(shares) >= _PARTS:
            differences.append(KindDifference(device, kind, shares))
    return tuple(differences)


def _busy(period: CaptureSpan) -> set[str]:
    return {flow.device for unit in period.units for flow, (count, _) in unit.done.items() if count}


def _far(factor: float, other: float) -> bool:
    low, high = sorted((factor, other))
    return high > 0 and (low <= 0 or high / low > _UNLIKE)


def _sure(a: CaptureSpan, b: CaptureSpan, device: str) -> bool:
    """Return whether the rates differ by more than within each span; True with too few units."""
    means, errors = [], []
    for capture_span in (a, b):
        rates = [_rate(unit.done, device) / max(unit.us / 1e6, 1e-9) for unit in capture_span.units]
        count = min(len(rates), neighbours.MOST)
        if count < neighbours.LEAST:
            return True
        per = [total * count / len(rates) for total in neighbours.join(rates, count)]
        means.append(sum(per) / count)
        errors.append(error_of_mean(per))
    return abs(means[0] - means[1]) > _SURE * math.hypot(*errors)


def _rate(done: dict[Flow, tuple[int, int]], device: str) -> int:
    return sum(count for flow, (count, _) in done.items() if flow.device == device)


@dataclass(frozen=True, slots=True)
class FindingsChange:
    """Findings of one side only, and of both."""

    gone: tuple[str, ...]
    """Summaries of those of A only."""
    new: tuple[str, ...]
    """Summaries of those of B only."""
    both: tuple[str, ...]
    """Devices, or the host, and rules of those that both have."""
    unknown: tuple[str, ...]
    """Devices and rules of those whose rule was not evaluated, or whose device was not recorded, on the other side."""


def findings_change(a: CaptureSpan, b: CaptureSpan) -> FindingsChange | None:
    """Return which findings are gone or new in B; None where no rules were evaluated on one of them."""
    if a.findings is None or b.findings is None:
        return None
    sides: list[list[str]] = []
    unknown: list[str] = []
    for capture_span, other, name in ((a, b, "B"), (b, a, "A")):
        alone = [
            (rule, device)
            for rule, device in capture_span.findings or {}
            if (rule, device) not in (other.findings or {})
        ]
        missing = {key: f"not evaluated in {name}" for key in alone if key[0] in other.not_evaluated}
        missing |= {key: f"which {name} did not record" for key in alone if key[1] and key[1] not in other.devices}
        sides.append([f"{(capture_span.findings or {})[key]} ({key[0]})" for key in alone if key not in missing])
        unknown += [f"{device or 'the host'} ({rule}), {why}" for (rule, device), why in missing.items()]
    both = [f"{device or 'the host'} ({rule})" for rule, device in a.findings if (rule, device) in b.findings]
    return FindingsChange(*map(tuple, (*sides, both, unknown)))


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A setting that differs."""

    section: str
    name: str
    a: str
    """The value in A; empty where A doesn't record it."""
    b: str


def differing(a: CaptureSpan, b: CaptureSpan) -> tuple[Difference, ...]:
    """Return the settings that differ, sorted; at most MOST. A device of one side alone has none."""
    headers = bool(a.settings) == bool(b.settings)  # older files have no settings, which is no difference of the hosts
    settings_a, other = _reported(a, headers=headers), _reported(b, headers=headers)
    alone = {section for section, _ in settings_a} ^ {section for section, _ in other}
    names = sorted(key for key in {*settings_a, *other} if not (key[0] in alone and key[0].startswith(_DEVICE)))
    differences = [
        Difference(*key, settings_a.get(key, ""), other.get(key, ""))
        for key in names
        if settings_a.get(key) != other.get(key)
    ]
    return tuple(differences[:MOST])


def raised_limits(a: CaptureSpan, b: CaptureSpan) -> tuple[Difference, ...]:
    """Return the limits of I/Os in flight that are higher in B, by device."""
    raised = []
    for section, before in a.settings.items():
        later = b.settings.get(section, {})
        for name in _LIMITS:
            old, new = before.get(name, ""), later.get(name, "")
            if section.startswith(_DEVICE) and old.isdecimal() and new.isdecimal() and int(old) < int(new):
                raised.append(Difference(section, name, old, new))
    return tuple(raised)


def values_of(periods: Sequence[CaptureSpan], wanted: str) -> list[str]:
    """Return each span's value of a setting: `NAME`, or `SECTION NAME` as the settings of a diff are listed.

    UsageError where a span lacks it, or has several values of it.
    """
    values_seen = []
    for period in periods:
        known = _reported(period, headers=True)
        values = {value for (section, name), value in known.items() if wanted in (name, f"{section} {name}")}
        where = clean(period.name, 40)
        if len(values) > 1:
            candidates = ", ".join(sorted(f"'{section} {name}'" for section, name in known if name == wanted)[:4])
            raise UsageError(f"{where} has several values of {clean(wanted)!r}: choose one of {candidates}, ...")
        if not values:
            near = get_close_matches(wanted, sorted({*(name for _, name in known), *map(" ".join, known)}), 3, 0.5)
            hint = f"; it has {', '.join(map(repr, near))}" if near else ": latmon report names them"
            raise UsageError(f"{where} has no setting {clean(wanted)!r}{hint}")
        values_seen.append(values.pop())
    return values_seen


def with_marks(settings: Settings, marks: list[Mark]) -> Settings:
    """Return the settings after these marks: the last mark with settings lists all changes since the begin."""
    changed = next((mark.changed for mark in reversed(marks) if mark.changed is not None), None)
    return settings if changed is None else _changed(settings, changed)


def _changed(settings: Settings, changed: Settings) -> Settings:
    settings_changed = {section: dict(values) for section, values in settings.items()}
    for section, values in changed.items():
        into = settings_changed.setdefault(section, {})
        for name, value in values.items():
            if value:
                into[name] = value
            else:
                into.pop(name, None)
    return settings_changed


def _reported(capture_span: CaptureSpan, *, headers: bool) -> Mapping[tuple[str, str], str]:
    reported = {
        (section, name): value
        for section, values in (capture_span.settings if headers else {}).items()
        if section not in _EXPECTED
        for name, value in values.items()
        if not (section in ("kernel", "tool") and name in _UNLIKE_SETTINGS)
    }
    reported |= {key: value for key, value in _of_origin(capture_span.origin).items() if value}
    both = {key for key in reported if key[0].startswith(_DEVICE)}
    for device in capture_span.devices.values():
        reported |= {key: value for key, value in _of_device(device).items() if value and key not in both}
    return reported


def _of_origin(origin: Origin) -> dict[tuple[str, str], str]:
    missing = ", ".join(sorted(probe.name for probe in origin.probes_missing))
    return {
        ("capture", "kernel"): origin.kernel,
        ("capture", "backend"): origin.backend,
        ("capture", "tool"): origin.tool,
        ("capture", "tier"): origin.tier,
        ("capture", "latency from"): origin.latency_from,
        ("capture", "latmon"): origin.latmon,
        ("capture", "probes missing"): missing,
    }


def _of_device(device: Device) -> dict[tuple[str, str], str]:
    section = f"{_DEVICE}{device.name}"
    reported = {(section, name): getattr(device, name) for name in ("driver", "controller", "model", "serial")}
    return reported | {(section, limit.name): str(limit.value) for limit in device.limits}
