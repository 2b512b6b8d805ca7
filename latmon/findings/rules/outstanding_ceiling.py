"""outstanding-ceiling: a driver never has more than a few I/Os of a device in flight while more wait above it.

The depth is a wall (limits.wall) over the last minute, or since it began in that minute. A scheduler has twice the
driver's tags, so that one waits above a limit of 1, and two above 2. No finding: a limit of 32 or 256, which is a busy
device; a driver above which nothing waits, because the application sends no more. docs/FINDINGS.md has the severities
and the exempt devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.limits import REQUESTS, Advice, Audited, Tuning, at_limit, ceiling, elevator, number, wall
from latmon.findings.evidence import (
    AboveDriver,
    above_driver,
    limit_values,
    littles_law,
    many,
    mean_bytes,
    mean_split,
    raise_limit,
    waiting,
    without_scheduler,
)
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    DEPTHS,
    FIO,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
)
from latmon.model.frame import Device, Limit
from latmon.model.inflight import MEANS, Depths, busy_share, mean_depth
from latmon.support.units import part, spelled

ID = "outstanding-ceiling"
_OTHER = "queue-depth-misconfigured"
"""The rule that reports a driver which has all of too few requests."""
_ABOUT = ("depth-below-minimum", "depth-low", "tagged-queueing-off", REQUESTS, "global-setting")
"""Remarks of the audit on settings that keep the depth low."""
_AUDITED = "audited, by device"
_MOST = 0.5
"""Share of the time with any I/O in the driver from which on an early finding is no burst."""
_NEARLY = 0.9
"""Share of a scheduler's requests in use from which on other I/Os wait for a request."""
_REFUTED = (
    "more in the driver at any time, or a time in the driver that grows as the depth does once the limit is lifted: "
    "then the device itself is what is slow"
)


class _LowSetting(NamedTuple):
    """A setting that keeps the depth low, and the audit's remark on it."""

    limit: Limit
    remark: Advice


class _LimitedDevice(NamedTuple):
    """A device whose driver is limited to `n` I/Os in flight."""

    device: Device
    n: int
    bound: Limit | None
    depths: Depths
    waiting: float | None
    """The mean number of waiting I/Os over all of the time; None where they are neither counted nor timed."""
    low: tuple[_LowSetting, ...]

    @property
    def reached(self) -> bool:
        return self.bound is not None and int(self.bound.value) <= self.n

    @property
    def queued(self) -> float:
        """Return the mean number of waiting I/Os over the time in which some wait, or over all of it by their times."""
        counted = mean_depth({depth: ms for depth, ms in self.depths.queued.items() if depth})
        return counted if self.depths.queued else self.waiting or 0.0

    @property
    def requests_taken(self) -> int | None:
        """Return `nr_requests` where nearly all of them are in use, so that no more can wait with a request."""
        requests = number(limit_values(self.device).get("nr_requests", ""))
        return requests if requests and self.n + self.queued >= _NEARLY * requests else None

    @property
    def scheduler(self) -> str:
        """Return the I/O scheduler that may be the cause; empty where a limit is, or where there is none."""
        name = elevator(self.device.limits)
        return "" if self.reached or name in (None, "none") else name or ""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device that is limited to a few I/Os, in the last minute or at the end of it."""
    known = [
        device for device in facts.devices.values() if device.name in facts.depth_sums and not _is_serial(facts, device)
    ]
    for device in sorted(known, key=lambda device: device.name):
        findings = tuple(_of_device(facts, device, limits))
        if not findings and (newest := _newest(facts, device, limits)) is not None:
            findings = tuple(_of_device(newest, device, limits))
        yield from findings


def _newest(facts: Facts, device: Device, limits: Thresholds) -> Facts | None:
    """Return the facts since a limit began; None where it holds in all of the window, or for too short a time.

    A few seconds before it began have greater depths, and hide it in the window's sum for most of a minute.
    """
    bound, n = ceiling(device.limits), 0
    for block in reversed(facts.window):
        depths = block.depths(device.name)
        walled = wall(depths, bound, waiting(block, device.name)) if depths.in_driver else None
        if walled is None or walled > limits["depth"]:
            break
        n += 1
    if not n or n == len(facts.window):
        return None
    newest = facts.newest(n)
    return newest if newest.span_us >= limits["lasting_us"] else None


def _of_device(facts: Facts, device: Device, limits: Thresholds) -> Iterator[Finding]:
    name, depths, waits = device.name, facts.depths(device.name), waiting(facts, device.name)
    audited_device = facts.once(_AUDITED, lambda: {audited.device: audited for audited in facts.audited}).get(name)
    walled = wall(depths, waiting=waits) if audited_device is None else audited_device.limited_to
    audited_device = audited_device or Audited(name, ())
    n = (
        int(audited_device.bound.value)
        if walled is None and audited_device.at_limit and audited_device.bound
        else walled
    )
    if n is None or n > limits["depth"]:
        return
    low = tuple(_LowSetting(s.limit, r) for s in audited_device.settings for r in s.remarks if r.id in _ABOUT)
    if audited_device.lacks_requests and _OTHER not in facts.off:
        return  # it is reported there
    limited = _LimitedDevice(device, n, audited_device.bound, depths, waits, low)
    yield from _full(facts, limited, limits) if walled is None else _walled(facts, limited, limits)


def _is_serial(facts: Facts, device: Device) -> bool:
    settings = facts.origin.settings.get(f"device {device.name}", {})
    return Tuning(device, {**settings, **limit_values(device)}).one_by_one


def _walled(facts: Facts, limited: _LimitedDevice, limits: Thresholds) -> Iterator[Finding]:
    name, n = limited.device.name, limited.n
    above = above_driver(facts, name)
    if above is None or above.share < limits["waiting"] or mean_bytes(facts, name) >= limits["bytes"]:
        return
    lasted_us = facts.lasted_us(lambda block: wall(block.depths(name), limited.bound, waiting(block, name)) == n)
    few = limited.queued < limits["queued"] and not limited.requests_taken
    if few or not _lasts(facts, limited, lasted_us, limits["lasting_us"]):
        return
    yield Finding(
        id=ID,
        severity=CRITICAL if _is_critical(limited, above, limits) else WARNING,
        device=name,
        summary=f"{name}: its driver is limited to {_ios(n)} in flight while {many(limited.queued)} wait above "
        "it, where "
        f"{part(above.share)} of their time passes; {_why(limited)}",
        facts=(
            *_span_facts(facts),
            *_depth_facts(limited),
            *_time_facts(facts, limited, above),
            *_setting_facts(limited),
        ),
        where=Where("outstanding", name),
        steps=tuple(_steps(limited, is_sun=facts.is_sun)),
        refuted_by=_REFUTED,
        share=above.share,
        short=short_text(
            name,
            f"{_ios(n)} in flight at most, {many(limited.queued)} wait above",
            f"; {_short_why(limited)}" if limited.bound else "",
        ),
    )


def _lasts(facts: Facts, limited: _LimitedDevice, us: float, least_us: float) -> bool:
    """Return whether it was limited for long enough; early only if it was busy for most of the time.

    A block has the limit that most of its busy time has: a burst of 2 s can be in both of the first two.
    """
    return us >= least_us or (busy_share(limited.depths.in_driver) >= _MOST and facts.lasts(us, least_us))


def _full(facts: Facts, limited: _LimitedDevice, limits: Thresholds) -> Iterator[Finding]:
    """Yield a notice for a driver that is full at a low limit where the kernel doesn't count waiting I/Os."""
    name, bound, scheduler = limited.device.name, limited.bound, elevator(limited.device.limits)
    full_us = facts.lasted_us(lambda block: at_limit(block.depths(name), bound, scheduler, waiting(block, name)))
    if bound is None or not _lasts(facts, limited, full_us, limits["lasting_us"]):
        return
    yield Finding(
        id=ID,
        severity=NOTICE,
        device=name,
        summary=f"{name}: its driver is full at {_ios(limited.n)} for most of the busy time, which is all that "
        f"{bound.name} "
        "allows; the kernel doesn't count waiting I/Os",
        facts=(*_span_facts(facts), *_depth_facts(limited), *_setting_facts(limited)),
        where=Where("outstanding", name),
        steps=tuple(_steps(limited, is_sun=facts.is_sun)),
        refuted_by="an application that never sends more at once: a larger limit changes nothing then",
        short=short_text(name, f"its driver is full at {_ios(limited.n)}", f", all that {bound.name} allows"),
    )


def _is_critical(limited: _LimitedDevice, above: AboveDriver, limits: Thresholds) -> bool:
    lower = any(setting.remark.id in ("depth-below-minimum", "tagged-queueing-off") for setting in limited.low)
    far = limited.bound is not None and int(limited.bound.value) >= limits["critical_times"] * limited.n
    wait = limited.queued >= limits["critical_times"] * limited.n
    return above.share >= limits["critical_waiting"] and wait and (lower or far) and not limited.scheduler


def _why(limited: _LimitedDevice) -> str:
    bound = limited.bound
    by = f", and {limited.scheduler} decides what it sends" if limited.scheduler else ""
    if bound is None:
        return f"no limit of it is known{by}"
    if not limited.reached:
        return f"its configured limit is {int(bound.value):,} ({bound.name}){by}"
    low = next((setting.remark.text for setting in limited.low if setting.limit.name == bound.name), "")
    return f"{bound.name} of {low}" if low else f"that is all that {bound.name} allows"


def _short_why(limited: _LimitedDevice) -> str:
    """Return the limit in a few words."""
    assert limited.bound is not None  # noqa: S101  the caller has looked
    if limited.reached:
        return f"{limited.bound.name} is full"
    return f"{limited.bound.name} is {int(limited.bound.value):,}"


def _span_facts(facts: Facts) -> Iterator[Fact]:
    """Yield the time that the figures are of, where the limit began in the last minute."""
    if facts.is_newest:
        text = f"the limit began in the last minute: these figures are of the {spelled(facts.span_us)} since then"
        yield Fact("span_us", facts.span_us, text, "us")


def _depth_facts(limited: _LimitedDevice) -> Iterator[Fact]:
    """Yield the ceiling and the mode of the depth, which are equal at a wall; only the mean where no more is known."""
    n, busy = limited.n, {depth: ms for depth, ms in limited.depths.in_driver.items() if depth}
    ms = sum(busy.values())
    if limited.depths.source == MEANS:
        depth = mean_depth(busy)
        text = f"in the driver: {many(depth)} on average over the busy time (means of intervals, no distribution)"
        yield Fact("mean", round(depth, 2), text, "ios")
        return
    mode = max(busy, key=lambda depth: busy[depth])
    below = sum(count for depth, count in busy.items() if depth <= n) / ms
    most = f"never above {n}" if limited.depths.highest <= n else f"at most {n} for {part(below)} of the busy time"
    yield Fact("ceiling", n, f"in the driver: {most}", "ios")
    yield Fact("mode", mode, f"mostly {mode}, for {part(busy[mode] / ms)} of the busy time", "ios")


def _time_facts(facts: Facts, limited: _LimitedDevice, above: AboveDriver) -> Iterator[Fact]:
    name = limited.device.name
    counted = any(limited.depths.queued.values())
    how = "over the time in which any wait" if counted else "by Little's law, from their times"
    text = f"{many(limited.queued)} wait above the driver on average {how}"
    yield Fact("queued", round(limited.queued, 1), text, "ios")
    yield above.fact
    if requests := limited.requests_taken:
        text = f"all of its {requests} requests (nr_requests) are taken: I/Os that wait for one aren't counted or timed"
        yield Fact("requests", requests, text, "ios")
    split = mean_split(facts, name)
    if split is not None:
        driver, before = spelled(split.driver_us), spelled(split.queue_us)
        text = f"on average an I/O takes {before} above the driver and {driver} in driver and device"
        yield Fact("driver_us", round(split.driver_us), text, "us", split.ios)
    law_check = littles_law(facts, name, limited.bound)
    if law_check is not None:
        yield Fact("littles_law", law_check.sentence, f"Little's law: {law_check.sentence}")


def _setting_facts(limited: _LimitedDevice) -> Iterator[Fact]:
    if limited.bound is not None:
        name, value, source = limited.bound
        yield Fact("limit", value, f"configured: {name} {int(value):,}{f' ({source})' if source else ''}", "ios")
    for limit, remark in limited.low:
        yield Fact(limit.name, limit.value, f"{limit.name}: {remark.text}")


def _steps(limited: _LimitedDevice, *, is_sun: bool) -> Iterator[Step]:
    if limited.scheduler:
        yield without_scheduler(limited.device, limited.scheduler)
    if limited.reached and limited.bound is not None:
        yield from raise_limit(limited.device, limited.bound.name)
    else:
        driver = limited.device.driver or "the driver"
        yield Step(f"look for what serialises I/Os in {driver}: its version, known bugs, tagged queueing that is off")
    yield Step(
        f"run this with iodepth {limited.n} and with 32: equal IOPS prove the ceiling",
        "it loads the device; a write test would destroy what is on it",
        (_fio(limited, is_sun=is_sun),),
    )
    yield Step("record a host without the problem, and compare the two recordings with latmon diff")


def _fio(limited: _LimitedDevice, *, is_sun: bool) -> str:
    """Return the fio command for random reads at the depth that the driver is limited to; no libaio on Solaris."""
    at = f"/dev/{limited.device.name}" if plain(limited.device.name) else "/dev/DEVICE"
    at, engine = ("/dev/rdsk/DEVICE", "solarisaio") if is_sun else (at, "libaio")
    return f"{FIO} --filename={at} --ioengine={engine} --iodepth={limited.n}"


def _ios(n: int) -> str:
    return "1 I/O" if n == 1 else f"{n:,} I/Os"


RULE = Rule(
    ID,
    "a driver never has more than a few I/Os of a device in flight while more wait above it",
    evaluate,
    needs=DEPTHS,
    thresholds={
        "depth": Threshold(4, "ios", "a driver limited to so few is serial; a disk that orders by itself needs 8"),
        "waiting": Threshold(
            0.4, "share", "of the I/Os' time is spent above the driver; a scheduler counts only twice the driver's tags"
        ),
        "queued": Threshold(2, "ios", "wait above it, on average over the time in which some do; fewer if no more can"),
        "lasting_us": Threshold(
            12_000_000,
            "us",
            "of the last minute it was limited so, or 30 % of that all the time from the start: no burst",
        ),
        "bytes": Threshold(131_072, "bytes", "an I/O has on average, or more: few fill a ring or link, no finding"),
        "critical_waiting": Threshold(0.9, "share", "above this nearly all of the time is lost: critical"),
        "critical_times": Threshold(
            3, "times", "the ceiling wait, and the configured limit is as many times the ceiling: critical"
        ),
    },
    explained_by=("swap-thrash",),
)
