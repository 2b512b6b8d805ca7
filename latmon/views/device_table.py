"""The device table: columns that fit the width, rows, and the order of rows. Pure.

A column's width doesn't depend on its numbers, so that columns don't move. An unknown number is `-`; context.py gives
the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from latmon.aggregate.history import Window
from latmon.analysis.limits import ceiling
from latmon.analysis.peers import Order, Rank, natural, shares
from latmon.analysis.threshold import is_above, slower
from latmon.model.devices import host_and_device
from latmon.model.frame import OPS, Device, Outstanding
from latmon.model.measurements import DEVICE_COUNTERS
from latmon.support.units import UNKNOWN, duration, part, rate, whole
from latmon.views.heatmap import TAIL
from latmon.views.lines import (
    SORT,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    as_wide,
    cell,
    heading,
    heads,
    layout,
    left_over,
)
from latmon.views.lines import row as field_row
from latmon.views.selection import HOST, OP_CHOICES, SORT_WORDS, SORTS, Selection
from latmon.views.units import at_least, maximum, quantile, rounded

MIX = 33
"""Cells of three ops in words."""
SPARKS = " ▁▂▃▄▅▆▇█"
RAMP_SPARKS = " .:░░▒▒▓█"
_SECOND = 1e6
_KILO = 1000
_OUT, _OUT_CELLS = "depth", 7
_WIDE = 100
NO_GROUP: Mapping[str, str] = MappingProxyType(
    {HOST: "this host", "controller": "no controller", "model": "no model", "volume": "no volume"}
)
"""What a row of the overview is -> the name of the group of all others."""
_PATTERN = 24
"""Cells of a filter in the title, at most."""
_ROOMY = 30
"""Lines of a panel from which on the table has a title."""
TREND_MIN = 6
TREND_MAX = 60
_ORDERS: Mapping[str, str] = MappingProxyType(
    {"device": "name", "depth": "out", "queue": "out", "peers": "unlike"}
    | {name: name for name in ("p99", "max", "IOPS", "MB/s")}
)
"""Title of a column -> the order that a click on it selects."""


@dataclass(slots=True)
class Subject:  # of thousands of devices in each second: a frozen one takes thrice the time
    """A device with the data of its row."""

    device: Device
    window: Window
    selection: Selection
    times_peers: float | None = None
    gone: bool = False
    trend: str = ""
    oldest_us: int = 0
    """The least age of its oldest I/O in flight; 0 without one that is known."""
    failed: int = 0
    """Its I/Os of the selected ops that failed in the window, as far as they are counted."""

    @property
    def threshold_us(self) -> int | None:
        return self.selection.threshold_us

    @property
    def is_unlike(self) -> bool:
        """Return whether it is above its peers, where no threshold is set that says what is slow."""
        return self.times_peers is not None and self.threshold_us is None

    @property
    def counts(self) -> dict[str, int]:
        counts_by_op = {op: self.window.completed(self.device.name, op) for op in self.selection.ops}
        return {op: c.count for op, c in counts_by_op.items() if c}

    @property
    def is_counted(self) -> bool:
        """Return whether I/Os of the device are counted; those of a device that only the tracer sees are not."""
        name = self.device.name
        return self.device.timed or any(self.window.completed(name, op) for op in self.selection.ops)

    @property
    def ios(self) -> int:
        return sum(self.counts.values())

    @property
    def per_second(self) -> float:
        return _SECOND / max(self.window.covered_us, 1)

    @property
    def bytes_per_second(self) -> float:
        completed_ops = (self.window.completed(self.device.name, op) for op in self.selection.ops)
        return sum(c.bytes for c in completed_ops if c) * self.per_second

    @property
    def has_bytes(self) -> bool:
        """Return whether the source counts bytes: a Prometheus has I/Os without any."""
        moved = [c for op in ("read", "write") if (c := self.window.completed(self.device.name, op)) and c.count]
        return not moved or any(c.bytes for c in moved)

    @property
    def merged(self) -> int | None:
        """Return the merges that the kernel counted; None where an op's are not known."""
        merged_counts = [c.merged for op in self.selection.ops if (c := self.window.completed(self.device.name, op))]
        known = [merged for merged in merged_counts if merged is not None]
        return sum(known) if known and len(known) == len(merged_counts) else None

    @property
    def active_share(self) -> float | None:
        """Return the part of the time with any I/O, by the kernel's counter; None where that is not known."""
        counted = self.window[DEVICE_COUNTERS].get(self.device.name)
        active_us = None if counted is None else counted.active_us
        return None if active_us is None else min(1.0, active_us / max(self.window.covered_us, 1))

    @property
    def mean_us(self) -> float | None:
        """Return the mean from the histograms where there are any, else from the kernel's sums."""
        histogram = self.window.latency(self.device.name, self.selection.ops)
        return histogram.mean if histogram else self.kernel_mean_us

    @property
    def kernel_mean_us(self) -> float | None:
        """Return the mean by the kernel's counters: from a request's begin to its completion."""
        timed_ops = [c for op in self.selection.ops if (c := self.window.timed(self.device.name, op)) and c.count]
        times = [c.time_us for c in timed_ops]
        known = [t for t in times if t is not None]
        return sum(known) / sum(c.count for c in timed_ops) if timed_ops and len(known) == len(times) else None

    @property
    def outstanding(self) -> Outstanding:
        last = self.window.last
        return (last.outstanding.get(self.device.name) if last else None) or Outstanding(None, None)

    @property
    def limit(self) -> int | None:
        """Return the limit of I/Os in the driver; None where it isn't known."""
        limit = ceiling(self.device.limits)
        return int(limit.value) if limit else None

    @property
    def at_limit(self) -> bool:
        now, limit = self.outstanding.in_driver, self.limit
        return now is not None and limit is not None and now >= limit


def of_limit(now: int | None, limit: int | None) -> str:
    """Return `3/3`, `31/1023` or `412/1k` in seven cells; the limit is rounded before the number is."""
    if limit is None or now is None:
        return _number(now)
    most = _thousands(limit)
    variants = (f"{now}/{limit}", f"{now}/{most}", f"{rounded(now)}/{most}", f"{_thousands(now)}/{most}")
    return next((text for text in variants if len(text) <= _OUT_CELLS), variants[-1])


def _thousands(value: int) -> str:
    return str(value) if value < _KILO else f"{value // _KILO}k"


def of_counted(subject: Subject, per_second: float) -> str:
    """Return a rate; `-` where the device's I/Os are not counted."""
    return rate(per_second) if subject.is_counted else UNKNOWN


def _latency(q: float) -> Callable[[Subject, int], str]:
    return lambda s, _: quantile(s.window.latency(s.device.name, s.selection.ops), q)


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _merged(subject: Subject, _cells: int) -> str:
    return UNKNOWN if subject.merged is None else rate(subject.merged * subject.per_second)


def _active(subject: Subject, _cells: int) -> str:
    return UNKNOWN if subject.active_share is None else part(subject.active_share)


def _failed(subject: Subject, cells: int) -> Line:
    return _at_right(Span(whole(subject.failed), "bad" if subject.failed else "text"), cells)


def _mean(subject: Subject, _cells: int) -> str:
    return duration(subject.mean_us)


def _kernel_mean(subject: Subject, _cells: int) -> str:
    return duration(subject.kernel_mean_us)


def _out(subject: Subject, cells: int) -> Line:
    text = of_limit(subject.outstanding.in_driver, subject.limit)
    return _at_right(Span(text, "bad" if subject.at_limit else "text"), cells)


def _at_right(span: Span, cells: int) -> Line:
    """Return a number at the right of `cells`; blanks have no role, which may be underlined."""
    text = cell(span.text, cells, right=True)
    return (Span(" " * (len(text) - len(text.lstrip()))), Span(text.lstrip(), span.role))


def largest(subject: Subject, role: str = "text") -> Span:
    """Return the maximum, or the age of an older I/O in flight, whose latency is at least that.

    An age has the alarm colour from the threshold on, a maximum without one where the device is unlike its peers.
    """
    histogram = subject.window.latency(subject.device.name, subject.selection.ops)
    if subject.oldest_us > (histogram.max_bound or 0):
        is_old = is_above(subject.oldest_us, subject.threshold_us)
        return Span(at_least(subject.oldest_us), TAIL if is_old else role)
    return Span(maximum(histogram), TAIL if subject.is_unlike else role)


def _max(subject: Subject, cells: int) -> Line:
    return _at_right(largest(subject), cells)


def _peers(subject: Subject, cells: int) -> Line:
    text = "" if subject.times_peers is None else f"{rounded(round(subject.times_peers))}x"
    return _at_right(Span(text, TAIL if subject.is_unlike else "accent"), cells)


def _model(subject: Subject, _cells: int) -> str:
    """Return the model; where it isn't known, the driver."""
    return subject.device.model or subject.device.driver or subject.device.kind


def _share(*ops: str) -> Callable[[Subject, int], str]:
    """Return the cell of the share of some ops among the I/Os that are shown."""
    return lambda s, _: part(sum(s.counts.get(op, 0) for op in ops) / s.ios) if s.ios else ""


def _name(subject: Subject, _cells: int) -> str:
    """Return the name of the device, without its host where that is opened."""
    name, selection = subject.device.name, subject.selection
    return host_and_device(name)[1] if selection.group == HOST and selection.within else name


def are_hosts(devices: Sequence[Device]) -> bool:
    """Return whether the rows are hosts, those of a Prometheus: they have no model."""
    return bool(devices) and all(device.kind == HOST for device in devices)


def host_columns(titles: Sequence[str], width: int) -> tuple[str, ...]:
    """Return the columns for rows that are hosts: a narrow table has their names in the place of the queue."""
    left_out = ("model",) if width >= _WIDE else ("model", "queue")
    return tuple(title for title in titles if title not in left_out)


def name_cells(devices: Sequence[Device], selection: Selection) -> int:
    """Return the length of the longest name where each has a host in front and hosts are not opened, else the usual.

    A row that is a host has its whole name, too.
    """
    is_opened = selection.group == HOST and selection.within
    if is_opened or not (are_hosts(devices) or all(host_and_device(device.name)[0] for device in devices)):
        return _NAME
    return max((len(device.name) for device in devices), default=_NAME)


_DRIVER, _DRIVER_MOST = 9, 12
"""Cells of a driver's name: most have nine at most, virtio_blk 10, megaraid_sas 12."""
_NAME, _NAME_MOST = 9, 24
"""Cells of a device's name; those of a fleet have the host in front."""
_BEFORE: tuple[Field[Subject], ...] = (
    Field("device", _NAME, _name, right=False),
    Field("label", 14, lambda s, _: s.device.label, rank=5, right=False, role="dim"),
    Field("driver", _DRIVER, lambda s, _: s.device.driver or s.device.kind, rank=4, right=False, role="dim"),
    Field("model", 18, _model, rank=1, right=False, role="dim"),
    Field("reads", 5, _share("read"), rank=3, role="dim"),
    Field("writes", 6, _share("write"), rank=3, role="dim"),
    Field("others", 6, _share(*OPS[2:]), rank=4, role="dim"),
    Field("IOPS", 5, lambda s, _: of_counted(s, s.ios * s.per_second)),
    Field("MB/s", 5, lambda s, _: of_counted(s, s.bytes_per_second / 1e6) if s.has_bytes else UNKNOWN),
)
_LATENCIES: tuple[Field[Subject], ...] = (
    Field("mean", TIME, _mean, rank=3, role="dim"),
    Field("p50", TIME, _latency(0.5)),
    Field("p90", TIME, _latency(0.9), rank=3),
    Field("p99", TIME, _latency(0.99)),
    Field("p99.9", TIME, _latency(0.999)),
    Field("p99.99", TIME, _latency(0.9999), rank=3),
    Field("max", TIME, _max),
)
_WITHOUT_SUMS: tuple[Field[Subject], ...] = (
    Field("kmean", TIME, _kernel_mean, rank=3, role="dim"),
    *_LATENCIES[1:],
)
"""Instead of them where the probe counts latencies and doesn't add them up (tier C)."""
_DRIVER_P50: Field[Subject] = Field("driver p50", TIME + 4, _latency(0.5))
"""The first of the latencies where they begin at the issue: those of the stages include the queue there."""
_MEAN_ONLY: tuple[Field[Subject], ...] = (Field("mean", TIME, _mean),)
"""Instead of the quantiles, where the source has no distribution."""
_FAILED: tuple[Field[Subject], ...] = (Field("failed", 6, _failed),)
"""Shown as soon as an I/O failed: a column of zeroes says nothing."""
_ASKED: tuple[Field[Subject], ...] = (
    Field("merged", 6, _merged, meaning="I/Os per second that were merged into those counted"),
    Field("active", 6, _active, meaning="part of the time with any I/O, by the kernel's own counter", is_per_op=False),
    Field("mix", MIX, lambda s, _: mix(s.counts), right=False, role="dim"),
)
"""Columns that are shown only where the user asks for them."""
_DEPTH: Field[Subject] = Field(_OUT, _OUT_CELLS, _out)
_AFTER: tuple[Field[Subject], ...] = (
    _DEPTH,
    Field("queue", 5, lambda s, _: _number(s.outstanding.queued), rank=2),
)
_PEERS: tuple[Field[Subject], ...] = (Field("peers", 5, _peers, role="accent"),)
"""Shown as soon as a device is unlike its peers, as the failed ones."""


def group_names(kind: str, devices: Iterable[Device]) -> dict[str, str]:
    """Return device -> its group; `kind` is one of GROUPS. A volume's group has the volume and the disks below it."""
    if kind == HOST:
        return {device.name: host_and_device(device.name)[0] or NO_GROUP[kind] for device in devices}
    if kind != "volume":
        return {device.name: getattr(device, kind) or NO_GROUP[kind] for device in devices}
    all_devices = list(devices)
    group_names = dict.fromkeys((device.name for device in all_devices), NO_GROUP[kind])
    for member in all_devices:
        if member.members:
            named = f"{member.name} {member.label}".strip()
            group_names |= dict.fromkeys(
                (member.name, *(name for name in member.members if name in group_names)), named
            )
    return group_names


@dataclass(frozen=True, slots=True)
class Group:
    """Devices with something in common, in the order of their rows: the worst one first."""

    name: str
    members: tuple[Subject, ...]

    @property
    def worst(self) -> Subject:
        return self.members[0]

    @property
    def with_ios(self) -> int:
        """Return the number of devices with I/O in the window."""
        moved = self.worst.window.moved
        return sum(member.device.name in moved and member.ios > 0 for member in self.members)

    @property
    def per_second(self) -> float:
        moved = self.worst.window.moved
        return sum(member.ios for member in self.members if member.device.name in moved) * self.worst.per_second

    @property
    def bytes_per_second(self) -> float:
        moved = self.worst.window.moved
        return sum(member.bytes_per_second for member in self.members if member.device.name in moved)


def groups(subjects: Sequence[Subject], kind: str) -> list[Group]:
    """Return the groups in the order of their worst devices."""
    names = group_names(kind, (subject.device for subject in subjects))
    subjects_by_group: dict[str, list[Subject]] = {}
    for member in subjects:
        subjects_by_group.setdefault(names[member.device.name], []).append(member)
    return [Group(name, tuple(subjects)) for name, subjects in subjects_by_group.items()]


def _worst(group: Group, kind: str) -> str:
    name = group.worst.device.name
    return host_and_device(name)[1] if kind == HOST else name


def _of_worst(field: Field[Subject]) -> Field[Group]:
    return Field(field.title, field.width, lambda g, cells: field.make(g.worst, cells), field.rank, role=field.role)


def group_columns(kind: str, width: int, *, distribution: bool, has_peers: bool) -> Placed[Group]:
    """Return the columns of a table of groups that fit: the sums of a group, then the numbers of its worst device.

    `has_peers`: whether a worst device is unlike its peers.
    """
    latencies = (
        [field for field in _LATENCIES if field.title in ("p50", "p99", "max")] if distribution else [*_MEAN_ONLY]
    )
    fields: list[Field[Group]] = [
        Field(kind, 18, lambda g, _: g.name, right=False, most=40),
        Field("devices", 7, lambda g, _: f"{len(g.members):,}"),
        Field("with I/O", 8, lambda g, _: f"{g.with_ios:,}", rank=1),
        Field("IOPS", 5, lambda g, _: rate(g.per_second)),
        Field("MB/s", 5, lambda g, _: rate(g.bytes_per_second / 1e6), rank=1),
        Field("worst", 9, lambda g, _: _worst(g, kind), right=False),
        *(_of_worst(latency) for latency in latencies),
        _of_worst(_DEPTH),
        *(_of_worst(field) for field in (_PEERS if has_peers else ())),
    ]
    return layout(fields, width)


COLUMNS = (*_BEFORE, *_FAILED, *_WITHOUT_SUMS, *_LATENCIES, *_MEAN_ONLY, *_AFTER, *_PEERS, *_ASKED)
TITLES = tuple(dict.fromkeys(field.title for field in COLUMNS))
"""Titles of all columns, as users name them."""
OF_DEVICE = (
    *(_OUT, "queue", "peers", "failed", "reads", "writes", "others", "mix"),
    *(field.title for field in _ASKED if not field.is_per_op),
)
"""Titles of columns that are not known per op."""
MEANINGS = tuple((field.title, f"{field.meaning} (only with --columns)") for field in _ASKED if field.meaning)
"""Title and meaning of the columns that explain themselves."""


def mix(counts: Mapping[str, int]) -> str:
    """Return the shares of the ops that occurred, the greatest first: 50% read, 33% write, 17% flush."""
    total = sum(counts.values())
    most_first = sorted((op for op in OPS if counts.get(op)), key=lambda op: -counts[op])
    return ", ".join(f"{part(counts[op] / total)} {op}" for op in most_first)


def fitting(
    width: int,
    *,
    distribution: bool,
    sums: bool = True,
    titles: Sequence[str] = (),
    driver: int = 0,
    name: int = 0,
    has_failed: bool = False,
    has_peers: bool = True,
    from_issue: bool = False,
) -> tuple[Placed[Subject], int]:
    """Return the columns that fit, more the wider it is, and the cells left for the trend.

    `sums`: whether a distribution has the sum of its latencies. `titles`: of the columns that the user asked for, in
    this order; the device's name is always the first one. `driver`: cells of the longest driver's name, which takes
    some of the trend's; `name`: of the longest device's, before any other column. `has_failed`: whether an I/O failed;
    `has_peers`: whether a device is unlike its peers. `from_issue`: latencies begin at the issue, which the title of
    the first one says.
    """
    name = max(0, min(name, _NAME_MOST) - _NAME)
    latencies = (_LATENCIES if sums else _WITHOUT_SUMS) if distribution else _MEAN_ONLY
    if from_issue:
        latencies = tuple(_DRIVER_P50 if field.title == "p50" else field for field in latencies)
    wanted = (*_BEFORE, *(_FAILED if has_failed else ()), *latencies, *_AFTER, *_PEERS)
    if titles:
        by_title = {field.title: replace(field, rank=0) for field in COLUMNS}
        wanted = tuple(by_title[title] for title in dict.fromkeys((wanted[0].title, *titles)))
    for rank in range(max(field.rank for field in wanted), -1, -1):
        fields = [field for field in wanted if field.rank <= rank]
        left = left_over(fields, width)
        if left - (name if rank else 0) >= TREND_MIN + (12 if rank else 0):
            wider = {"device": min(name, left - TREND_MIN)}
            room = left - TREND_MIN - wider["device"]
            wider["driver"] = max(0, min(driver, _DRIVER_MOST) - _DRIVER) if room >= _DRIVER_MOST - _DRIVER else 0
            grown = tuple((f, cells + wider.get(f.title, 0)) for f, cells in as_wide(fields))
            left -= sum(cells for _, cells in grown) - sum(f.width for f in fields)
            if not has_peers and not titles:  # its cells are the trend's: no other column comes and goes with it
                grown = tuple((f, cells) for f, cells in grown if f not in _PEERS)
                left += sum(f.width + 1 for f in _PEERS)
            return grown, min(left, TREND_MAX)
    while fields and left_over(fields, width) < 0:
        fields.pop()
    return as_wide(fields), 0


def is_titled(selection: Selection, room: int) -> bool:
    """Return whether the table has a title: where there is room, and where a filter or another order needs it."""
    usual = (selection.pattern, selection.sort, selection.op, selection.group)
    return room >= _ROOMY or usual != ("", SORTS[0], OP_CHOICES[0][0], "")


def table_title(
    selection: Selection,
    shown: tuple[int, int],
    total: int,
    cells: int,
    *,
    name: str = "devices",
    order: str = "",
    note: str = "",
) -> Line:
    """Return the heading of a table of devices: its rows, order, filter and ops, with the keys that change them.

    `shown`: numbers of the first and the last row; `name`: what the rows are; `order`: theirs, if it is another one;
    `note`: follows their number.
    """
    first, last = shown
    rows = (
        f"{total}"
        if last - first + 1 == total
        else f"{first} of {total}"
        if first == last
        else f"{first}-{last} of {total}"
    )
    pattern = selection.pattern if len(selection.pattern) <= _PATTERN else cell(selection.pattern, _PATTERN)
    states = [
        (Span("sort ", "dim"), Span("s", "accent"), Span(f" {order or SORT_WORDS[selection.sort]} ")),
        (Span("  filter ", "dim"), Span("/", "accent"), Span(f" {pattern or 'none'} ")),
        (Span("  ops ", "dim"), Span("o", "accent"), Span(f" {selection.op} ")),
    ]
    rights = [tuple(span for state in states[:many] for span in state) for many in range(len(states), 0, -1)]
    return heading((Span(f" {name}", "strong"), Span(f" {rows}{note}", "dim")), cells, *rights)


def header(columns: Placed[Subject], trend: int, selection: Selection, *, above: bool = False) -> Line:
    """Return the titles; the title of the sort column is highlighted.

    `above`: rows above the first one are scrolled away.
    """
    titles = heads(columns, _sorted_column(selection), above=above, kind=SORT, orders=_ORDERS)
    return (*titles, Span(cell("trend", trend), "dim")) if trend else titles


def row(subject: Subject, columns: Placed[Subject], trend: int) -> Line:
    """Return the row of a device. The row of a removed device is dim, as long as it is in the window."""
    mark, *cells = field_row(columns, subject, selected=subject.device.name == subject.selection.selected)
    if subject.gone:
        cells = [Span(span.text, "dim") for span in cells]
    text, role = ("gone", "dim") if subject.gone else (subject.trend, "area")
    return (mark, *cells, Span(cell(text, trend), role)) if trend else (mark, *cells)


def op_row(subject: Subject, op: str, columns: Placed[Subject], trend: int) -> Line:
    """Return the row of one op of a device, below the device's own; what is known of the device alone is blank."""
    known = tuple((replace(f, make=_blank) if f.title in OF_DEVICE else f, cells) for f, cells in columns)
    op_subject = replace(subject, selection=replace(subject.selection, op=op), trend="")
    mark, name, *cells = row(op_subject, known, trend)
    return (Span(" " * len(mark.text)), name._replace(text=cell(f"  {op}", len(name.text))), *cells)


def _blank(_subject: Subject, _cells: int) -> str:
    return ""


def order(
    subjects: list[Subject],
    sort: str,
    found: Mapping[str, float] = MappingProxyType({}),
    *,
    steady: Order | None = None,
    keep: bool = False,
    waits: bool = False,
    in_flight_us: Mapping[str, int] = MappingProxyType({}),
) -> list[Subject]:
    """Return the rows by the order of devices, or by a column and that order among equals.

    `found`: device -> the place of the finding on it; `steady`: the order that keeps rows in place;
    `keep`: leave it as it is, since samples are still missing; `waits`: since findings are. `in_flight_us`: how long
    I/Os that have not completed have waited.
    """
    ranks = _ranks(subjects, found, in_flight_us)
    place = {name: at for at, name in enumerate((steady or Order()).sort(ranks, keep=keep, waits=waits))}
    keys: dict[str, Callable[[Subject], float | tuple[object, ...]]] = {
        "name": lambda s: (s.gone, not s.ios, natural(s.device.name)),
        "p99": lambda s: -(s.window.latency(s.device.name, s.selection.ops).quantile(0.99) or 0),
        "max": lambda s: -max(s.window.latency(s.device.name, s.selection.ops).max_bound or 0, s.oldest_us),
        "IOPS": lambda s: -s.ios,
        "MB/s": lambda s: -s.bytes_per_second,
        "out": _fullest,
    }
    by_place = sorted(subjects, key=lambda s: place[s.device.name])
    return sorted(by_place, key=keys[sort]) if sort in keys else by_place


def _ranks(subjects: list[Subject], busy_ranks: Mapping[str, float], in_flight_us: Mapping[str, int]) -> list[Rank]:
    moved = subjects[0].window.moved if subjects else frozenset()
    ios = {n: s.ios for s in subjects if (n := s.device.name) in moved}
    busy = {n: s.window.busy_us(n, s.selection.ops) for s in subjects if (n := s.device.name) in moved}
    busy |= {n: busy.get(n, 0) + us for s in subjects if (us := in_flight_us.get(n := s.device.name))}
    share = shares(ios.items(), busy.items())
    ranks = []
    for subject in subjects:
        name, device = subject.device.name, subject.device
        slow = _slow_share(subject) if name in moved else 0.0
        unlike = subject.times_peers or 0.0
        rank = Rank(
            name=name,
            busy_us=busy.get(name, 0),
            share=share.get(name, 0.0),
            unlike=unlike,
            finding=busy_ranks.get(name),
            is_timed=device.timed,
            is_gone=subject.gone,
            slow=slow,
        )
        ranks.append(rank)
    return ranks


def _slow_share(subject: Subject) -> float:
    """Return the share of a device's I/Os above the threshold; 0 without a threshold."""
    threshold_us = subject.selection.threshold_us
    if threshold_us is None:
        return 0.0
    histogram = subject.window.latency(subject.device.name, subject.selection.ops)
    ios = slower(histogram, threshold_us).ios
    return ios / histogram.count if ios else 0.0


def _fullest(subject: Subject) -> tuple[float, int]:
    """Return the sort key: share of the limit, then the number of outstanding I/Os."""
    now, limit = subject.outstanding, subject.limit
    share = (now.in_driver or 0) / limit if limit else 0.0
    return -share, -now.known


def sparkline(values: list[float | None], width: int, bounds: tuple[float, float], glyphs: str = SPARKS) -> str:
    """Return a glyph per value, its height logarithmic between the bounds that all devices share; blank for no I/O.

    Where there is room, each value has several glyphs.
    """
    wide = max(width // max(len(values), 1), 1)
    low, high = bounds
    octaves = math.log(max(high, 2 * low, 2) / max(low, 1))
    steps = len(glyphs) - 2
    return "".join(
        wide
        * (glyphs[0] if not v else glyphs[1 + min(steps, max(0, round(steps * math.log(v / max(low, 1)) / octaves)))])
        for v in values[-max(width, 1) :]
    )


def _sorted_column(selection: Selection) -> str:
    return {"unlike": "peers", "name": "device", "out": _OUT}.get(selection.sort, selection.sort)
