"""outstanding-ceiling: a driver never holds more than a few I/Os of a device while more wait above it.

It fires when the driver of a device is held at `depth` I/Os or fewer: at half of the busy moments or more it has just
so many and at 1% at most more, at half others wait, in 1 s and 5% of the time with any I/O at least (limits.wall),
and so it was for `lasting_us` of the last minute. `queued` must wait where some do, or all that the kernel lets wait
with a request (a scheduler has twice the driver's tags, so that one waits above a limit of 1, and two above 2). A
good part of the I/Os' time, `waiting`, must pass above the driver, or more in flight would win little. It is critical
where nearly all of the time passes there, far more wait than are sent, and the setting is below the driver's own
minimum or far above what the driver sends; never while a scheduler may be what holds them: bfq idles for the next of
a program by design. It doesn't fire at a limit of 32 or 256: that is a busy device. Nor where nothing waits: then the
application sends no more. Nor for I/Os of `bytes` and more in the mean, of which a few fill a ring or a link. Nor for
devices that take one command at a time by design: ATA without tags, USB storage, SD cards, CD-ROMs, zoned ones. Where
the kernel doesn't count who waits for a driver that is full at a limit as low, that is a notice: whether
anything waits is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.limits import Audited, Remark, Seen, at_limit, audit, elevator, number, wall
from latmon.findings.evidence import Above, above_driver, depths_in, law, many, mean, mean_bytes, mean_split, raising
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, FIO, NOTICE, WARNING, Fact, Finding, Step, Where, plain, setting, sysfs
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device, Limit
from latmon.model.inflight import MEANS, Depths
from latmon.support.units import part, spelled

ID = "outstanding-ceiling"
_ABOUT = ("depth-below-minimum", "depth-low", "tagged-queueing-off", "requests-below-depth", "global-setting")
"""Remarks of the audit on settings that keep the depth low."""
_NEARLY = 0.9
"""Of a scheduler's requests in use: others wait for one."""
_REFUTED = (
    "more in the driver at any time, or a time in the driver that grows as the depth does once the limit is lifted: "
    "then the device itself is what is slow"
)


class _Off(NamedTuple):
    limit: Limit
    remark: Remark


class _Held(NamedTuple):
    """A device that is held at `n`, or full there."""

    device: Device
    n: int
    bound: Limit | None
    depths: Depths
    off: tuple[_Off, ...]

    @property
    def reached(self) -> bool:
        """Whether its own limit is what holds it."""
        return self.bound is not None and int(self.bound.value) <= self.n

    @property
    def queued(self) -> float:
        """In the mean of the moments at which some wait."""
        return mean({depth: ms for depth, ms in self.depths.queued.items() if depth})

    @property
    def requests_taken(self) -> int | None:
        """`nr_requests` where nearly all of them are in use: no more can wait with a request."""
        requests = next((number(one.value) for one in self.device.limits if one.name == "nr_requests"), None)
        return requests if requests and self.n + self.queued >= _NEARLY * requests else None

    @property
    def scheduler(self) -> str:
        """Of the kernel, which may be what holds them back while no limit does; empty where there is none."""
        name = elevator(self.device.limits)
        return "" if self.reached or name in (None, "none") else name or ""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device that is held."""
    depths = {name: facts.depths(name) for name in facts.depth_sums}
    known = [one for one in facts.devices.values() if one.name in depths and not _is_serial(facts, one)]
    audited = {one.device: one for one in audit(facts.devices.values(), depths)}
    for device in sorted(known, key=lambda one: one.name):
        name = device.name
        found = audited.get(name) or Audited(name, (), held_at=wall(depths[name]))
        n = int(found.bound.value) if found.at_limit and found.bound else found.held_at
        if n is None or n > limits["depth"]:
            continue
        off = tuple(_Off(s.limit, r) for s in found.settings for r in s.remarks if r.id in _ABOUT)
        held = _Held(device, n, found.bound, depths[name], off)
        yield from _full(facts, held, limits) if found.at_limit else _walled(facts, held, limits)


def _is_serial(facts: Facts, device: Device) -> bool:
    settings = facts.origin.settings.get(f"device {device.name}", {})
    return Seen(device, {**settings, **{one.name: one.value for one in device.limits}}).one_by_one


def _walled(facts: Facts, held: _Held, limits: Thresholds) -> Iterator[Finding]:
    name, n = held.device.name, held.n
    above = above_driver(facts, name)
    if above is None or above.share < limits["waiting"] or mean_bytes(facts, name) >= limits["bytes"]:
        return
    lasted = [one for one in facts.window if wall(depths_in(one, name), held.bound) == n]
    few = held.queued < limits["queued"] and not held.requests_taken
    if sum(one.measured_us for one in lasted) < limits["lasting_us"] or few:
        return
    yield Finding(
        ID,
        CRITICAL if _is_critical(held, above, limits) else WARNING,
        name,
        f"{name}: its driver is held at {_ios(n)} in flight while {many(held.queued)} wait above it, where "
        f"{part(above.share)} of their time passes; {_why(held)}",
        (*_depth_facts(held), *_time_facts(facts, held, above), *_setting_facts(held)),
        Where("outstanding", name),
        tuple(_steps(held, is_sun=facts.is_sun)),
        _REFUTED,
        above.share,
    )


def _full(facts: Facts, held: _Held, limits: Thresholds) -> Iterator[Finding]:
    """At so low a limit, and the kernel has no count of who waits."""
    name, bound, scheduler = held.device.name, held.bound, elevator(held.device.limits)
    full = [one for one in facts.window if at_limit(depths_in(one, name), bound, scheduler)]
    if bound is None or sum(one.measured_us for one in full) < limits["lasting_us"]:
        return
    yield Finding(
        ID,
        NOTICE,
        name,
        f"{name}: its driver is full at {_ios(held.n)} for most of the busy time, which is all that {bound.name} "
        "allows; the kernel doesn't count who waits for it",
        (*_depth_facts(held), *_setting_facts(held)),
        Where("outstanding", name),
        tuple(_steps(held, is_sun=facts.is_sun)),
        "an application that never sends more at once: a larger limit changes nothing then",
    )


def _is_critical(held: _Held, above: Above, limits: Thresholds) -> bool:
    lower = any(one.remark.id in ("depth-below-minimum", "tagged-queueing-off") for one in held.off)
    far = held.bound is not None and int(held.bound.value) >= limits["critical_times"] * held.n
    wait = held.queued >= limits["critical_times"] * held.n
    return above.share >= limits["critical_waiting"] and wait and (lower or far) and not held.scheduler


def _why(held: _Held) -> str:
    bound = held.bound
    by = f", and {held.scheduler} decides what it sends" if held.scheduler else ""
    if bound is None:
        return f"no limit of it is known{by}"
    if not held.reached:
        return f"its limit would be {int(bound.value):,} ({bound.name}){by}"
    off = next((one.remark.text for one in held.off if one.limit.name == bound.name), "")
    return f"{bound.name} of {off}" if off else f"that is all that {bound.name} allows"


def _depth_facts(held: _Held) -> Iterator[Fact]:
    """The ceiling and the mode, each by itself: that one is the other is what makes it a wall."""
    n, busy = held.n, {depth: ms for depth, ms in held.depths.in_driver.items() if depth}
    ms = sum(busy.values())
    if held.depths.source == MEANS:
        said = f"in the driver: {many(mean(busy))} in the mean of the busy time (means of intervals, no distribution)"
        yield Fact("mean", round(mean(busy), 2), said, "ios", ms)
        return
    mode = max(busy, key=lambda depth: busy[depth])
    below = sum(count for depth, count in busy.items() if depth <= n) / ms
    most = f"never above {n}" if held.depths.highest <= n else f"at most {n} for {part(below)} of the busy time"
    yield Fact("ceiling", n, f"in the driver: {most}", "ios", ms)
    yield Fact("mode", mode, f"mostly {mode}, for {part(busy[mode] / ms)} of the busy time", "ios", ms)


def _time_facts(facts: Facts, held: _Held, above: Above) -> Iterator[Fact]:
    name = held.device.name
    said = f"{many(held.queued)} wait above the driver in the mean, whenever some do"
    yield Fact("queued", round(held.queued, 1), said, "ios", sum(held.depths.queued.values()))
    yield above.fact
    if requests := held.requests_taken:
        said = (
            f"all of its {requests} requests (nr_requests) are taken: who waits for one isn't counted and isn't timed"
        )
        yield Fact("requests", requests, said, "ios")
    split = mean_split(facts, name)
    if split is not None:
        driver, before = spelled(split.driver_us), spelled(split.queue_us)
        said = f"an I/O takes {driver} from the driver on and {before} before, in the mean"
        yield Fact("driver_us", round(split.driver_us), said, "us", split.ios)
    found = law(facts, name, held.bound)
    if found is not None:
        yield Fact("littles_law", found.sentence, f"Little's law: {found.sentence}")


def _setting_facts(held: _Held) -> Iterator[Fact]:
    if held.bound is not None:
        name, value, source = held.bound
        yield Fact("limit", value, f"configured: {name} {int(value):,}{f' ({source})' if source else ''}", "ios")
    for limit, remark in held.off:
        yield Fact(limit.name, limit.value, f"{limit.name}: {remark.text}")


def _steps(held: _Held, *, is_sun: bool) -> Iterator[Step]:
    if held.scheduler:
        yield Step(
            "try without its scheduler",
            f"{held.scheduler} no longer shares the device fairly or sorts for it; undone by writing {held.scheduler}",
            (setting(f"{sysfs(held.device.name)}/queue/scheduler", "none"),),
        )
    if held.reached and held.bound is not None:
        yield from raising(held.device, held.bound.name)
    else:
        driver = held.device.driver or "the driver"
        yield Step(f"look for what serialises in {driver}: its version, known bugs, tagged queueing that is off")
    yield Step(
        f"run it with iodepth {held.n} and with 32, equal IOPS prove the ceiling",
        "it loads the device; a write test would destroy what is on it",
        (_fio(held, is_sun=is_sun),),
    )
    yield Step("record on a host where it is well and compare the two: latmon diff")


def _fio(held: _Held, *, is_sun: bool) -> str:
    """Read the device at random, at the depth at which its driver is held. Solaris' fio has no libaio."""
    at = f"/dev/{held.device.name}" if plain(held.device.name) else "/dev/DEVICE"
    at, engine = ("/dev/rdsk/DEVICE", "solarisaio") if is_sun else (at, "libaio")
    return f"{FIO} --filename={at} --ioengine={engine} --iodepth={held.n}"


def _ios(n: int) -> str:
    return "1 I/O" if n == 1 else f"{n:,} I/Os"


RULE = Rule(
    ID,
    "a driver never has more than a few I/Os of a device in flight while more wait above it",
    judge,
)
