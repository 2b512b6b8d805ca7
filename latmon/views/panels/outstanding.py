"""The outstanding screen: the selected device's I/Os in flight, the limits of all, or a device's issue order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from latmon.audit import Audited, audit
from latmon.depth_sums import DepthSum
from latmon.limits import ceiling, ceilings, elevator
from latmon.littles_law import COUNTED, Times, of, times
from latmon.model import OPS, Frame
from latmon.views import depth_map, empty
from latmon.views import outstanding as view
from latmon.views.choice import shown
from latmon.views.limits_table import limits_table
from latmon.views.lines import Line, Span
from latmon.views.order import order
from latmon.views.sight import MEASURING, OFF, STARTING, Sight, no_rows, selected, sentence
from latmon.views.still import folded, still
from latmon.views.sweep import shape
from latmon.views.table import Subject
from latmon.views.units import count
from latmon.waiting import Aged, Ages

_HEADS = 2


def outstanding_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The depths of the selected device; aside of them the limits' audit or the issue order."""
    chosen = selected(sight.subjects())
    if chosen is None or sight.origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    if sight.choice.aside == "audit":
        return _audit(sight, chosen, width, room)
    if sight.choice.aside == "order":
        return _order(sight, chosen, width, room)
    look = look_at(sight, chosen)
    rows, top = ages(sight), sight.choice.top
    why = no_ages(sight)
    return view.outstanding(
        look,
        width,
        room,
        sight.ink,
        over_time=lambda cells, lines: _map(sight, look, cells, lines),
        still=lambda cells, lines: still(
            sight.history.ages, rows, cells, lines, top=top, why=why, least=lambda name: no_more(sight, name)
        ),
        waiting=_lines(rows if top else folded(rows), rows),
    )


def _lines(some: Sequence[Aged], each: Sequence[Aged]) -> tuple[int, int]:
    """That a list of them takes: each by itself, and as it is shown where there is no room for that."""
    return max(len(each), 1) + _HEADS, max(len(some), 1) + _HEADS


def look_at(sight: Sight, subject: Subject) -> view.Look:
    """What is known of one device."""
    history, name = sight.history, subject.device.name
    depths = history.depth_sum(name)
    return view.Look(
        name,
        subject.outstanding,
        ceiling(subject.device.limits),
        depths.depths if depths else None,
        depths.span_us if depths else 0,
        law=_law(sight, subject, depths) if depths else "",
        below=_below(sight, subject),
        why=_not_counted(sight, subject),
        busy=sight.choice.busy,
    )


def ages(sight: Sight) -> tuple[Aged, ...]:
    """What is still in flight, of the devices that the filter lets through."""
    names = {d.name for d in shown(sight.history.store.devices.values(), sight.choice)}
    return tuple(one for one in sight.history.ages.oldest if one.device in names)


def audited(sight: Sight) -> tuple[Audited, ...]:
    """The limits of the filter's devices, worst first as the table of devices has them."""
    history = sight.history
    order = [s.device.name for s in sight.subjects()]
    devices = [s.device for s in sight.subjects()]

    def made() -> tuple[Audited, ...]:
        counted = {d.name: found.depths for d in devices if (found := history.depth_sum(d.name, brief=True))}
        return tuple(sorted(audit(devices, counted), key=lambda one: (not one.off, order.index(one.device))))

    return history.made(("audit", *order), made)


def no_ages(sight: Sight) -> str:
    """What an empty age list means of the filter's devices; never that nobody waits unless that is known."""
    history, last = sight.history, sight.history.window.last
    if last is None or not last.outstanding:
        return "not known: nobody counts what is in flight here"
    names = {d.name for d in shown(history.store.devices.values(), sight.choice)}
    now = {name: one.known for name, one in last.outstanding.items() if name in names}
    count_now, others = sum(now.values()), any(one.device not in names for one in history.ages.oldest)
    elsewhere = "; others than the filter's devices have older ones" if others else ""
    if not count_now:
        whose = "of the filter's devices" if others else "device"
        return f"nothing is in flight on any {whose}{elsewhere}{_uncounted(sight, names)}"
    return f"{count_now} in flight, {_of_no_age(history.ages, now)}{elsewhere}{_uncounted(sight, names)}"


def _uncounted(sight: Sight, names: Collection[str]) -> str:
    """Name volumes without requests that no probe follows: the kernel counts nothing of what they put aside."""
    devices, known = sight.history.store.devices, sight.history.ages
    bare = [name for name in names if not devices[name].timed and devices[name].kind != "zram"]
    blind = sorted(name for name in bare if not known.is_followed(name))
    if not blind:
        return ""
    return f"; no probe follows {_first(blind)}, and what a suspended volume puts aside is not counted"


def _of_no_age(ages: Ages, now: Mapping[str, int]) -> str:
    """Of I/Os in flight by device, of which none has a row."""
    unknown = {name: n for name in now if (n := ages.unknown.get(name, 0))}
    if not unknown:
        return "none of them for 0.5 s"
    followed = sum(n for name, n in unknown.items() if ages.is_followed(name))
    if followed == sum(unknown.values()):
        return f"up to {followed} of them may have begun before the probe; none of the others is older than 0.5 s"
    rest = sum(unknown.values()) - followed
    why = "no probe follows requests" if ages.probe is None else f"no probe follows {_some(ages, unknown)}"
    those = "their ages are" if rest == sum(now.values()) else f"the ages of {rest} are"
    least = "Only a device that completes nothing is told here, with a least age"
    return f"{those} not known: {why}. {least}"


def no_more(sight: Sight, device: str) -> str:
    """Why of I/Os in flight of a device only a least age is known."""
    known = sight.history.ages
    if known.is_followed(device):
        return "began before a probe followed it"
    if known.probe is not None:
        return f"no probe follows {device}"
    if sight.recorded:
        return "no probe followed it"
    if sight.tracing.startswith(STARTING):
        return "the probes are starting"
    return f"no probe follows requests{': stages are off' if sight.tracing.startswith(OFF) else ' here'}"


def _some(ages: Ages, unknown: Mapping[str, int]) -> str:
    return _first([name for name in unknown if not ages.is_followed(name)])


def _first(names: Sequence[str]) -> str:
    """The first three by name; of the rest their number."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004  three fit


def _law(sight: Sight, subject: Subject, depths: DepthSum) -> str:
    """Of the I/Os that gauges count. A latency that begins at the issue is the time in the driver."""
    window, name = subject.window, subject.device.name
    latency = window.latency(name, COUNTED)
    timed = Times(latency.count, latency.mean, latency.max_bound) if latency.mean is not None else None
    from_issue = sight.origin is not None and sight.origin.latency_from == "issue"
    done = {op: window.completed(name, op) for op in OPS}
    found = of(
        depths.depths,
        depths.span_us,
        window.covered_us,
        whole=times(depths.depths, done, None if from_issue else timed, latency.max_bound),
        driver=timed if from_issue else None,
        bound=ceiling(subject.device.limits),
        waiting=(one for one in sight.history.ages.oldest if one.device == name),
        left=subject.outstanding.known,
    )
    return found.sentence if found else ""


def _below(sight: Sight, subject: Subject) -> str:
    found = ceilings(subject.device, sight.history.store.devices)
    told = [f"{name} {count(int(one.value))}" for name, one in found.items() if one and name != subject.device.name]
    return f"limits of its disks: {', '.join(told)}" if told else ""


def _not_counted(sight: Sight, subject: Subject) -> str:
    device = subject.device
    more = f"; look at {', '.join(device.members)}" if not device.timed and device.members else ""
    if sight.recorded:
        return f"how many I/Os {device.name} had outstanding is not in this recording{more}"
    return f"how many I/Os {device.name} had outstanding is not measured here: nobody counted them{more}"


def _map(sight: Sight, look: view.Look, width: int, room: int) -> list[Line]:
    """Draw the depths over time on a timeline of their own."""
    history, sweep, last = sight.history, sight.depths, sight.history.window.last
    assert last is not None  # noqa: S101  drawn only once there is a frame
    cells, name = depth_map.room(width), look.name
    entries = history.depth_window.entries

    def frames(after_us: int = -1) -> Iterator[Frame]:
        some = [one for one in entries if one.mono_us > after_us]
        return (f for f in depth_map.depth_frames(some, name, last, history.interval_us) if f.mono_us > after_us)

    timeline = sweep.slots(
        shape(cells, sight.choice.window_us, history.interval_us, sweep=sight.choice.sweep),
        depth_map.ops(name),
        frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    for frame in frames(timeline.columns[-1].mono_us) if timeline.columns else ():
        sweep.advance(frame)
    timeline.note(history.moments())
    return depth_map.depth_map(timeline, look.name, (width, room), sight.ink, limit=look.bound, busy=look.busy)


def _audit(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    why = "not known here: this source tells no limits of the filter's devices"
    return limits_table(audited(sight), chosen.device.name, width, room, top=sight.choice.top, why=why)


def _order(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    """The last burst of issues; without one, why."""
    issues = sight.history.issues(chosen.device.name)
    if not issues and not chosen.device.timed:
        disks = ", ".join(chosen.device.members)
        return sentence(f"{chosen.device.name} has no requests: the order is that of its disks: {disks}", width, room)
    never = sight.origin.why_untraced("issues") if sight.origin else ""
    if not issues and sight.tracing == MEASURING and not never:
        return sentence(f"issues of {chosen.device.name}: no window of its issues was told yet", width, room)
    if not issues:
        why = empty.not_traced(
            f"issues of {chosen.device.name}",
            sight.origin,
            ("issues",),
            mode=sight.choice.stages,
            recorded=sight.recorded,
            state=sight.tracing,
        )
        return sentence(why, width, room)
    title: Line = (Span(f" {chosen.device.name}", "accent"), Span(" issue order, the last burst", "dim"))
    return [title, *order(issues, width, room - 1, sight.ink, scheduler=elevator(chosen.device.limits))][:room]
