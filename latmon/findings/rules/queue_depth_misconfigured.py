"""queue-depth-misconfigured: a setting limits a device to too few I/Os, or to the wrong ones.

The audit (analysis/limits.py) marks the settings of devices with I/O in the last minute. It is a warning where I/Os
wait and the driver is at its bound, and left out where outstanding-ceiling reports its cost. Without a scheduler no I/O
waits with a request: they wait for one, which is `admission`. I/Os that wait for one of too few requests (nr_requests)
aren't counted in either case: where they aren't traced, it is a warning that the driver has all of these requests. The
same on many devices, idle or not, is one finding of the host, without those of outstanding-ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from latmon.analysis.attribution import Submission, submission_of
from latmon.analysis.limits import FEW, REQUESTS, SMALL_REQUESTS, Advice, Audited
from latmon.findings.evidence import raise_limit
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    LIMITS,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    short_text,
    within,
)
from latmon.model.frame import Device, Limit
from latmon.model.inflight import busy_share
from latmon.support.units import counted, part, spelled

ID = "queue-depth-misconfigured"
_ABOUT = (
    "depth-below-minimum",
    "depth-low",
    "tagged-queueing-off",
    REQUESTS,
    "host-limit-shared",
    "global-setting",
    SMALL_REQUESTS,
)
"""Remarks of the audit that this rule reports; not those on schedulers, statistics and completion CPUs."""


class _WrongSetting(NamedTuple):
    """A wrong setting of a device, with the shares of the time in which I/Os queue and the driver is full."""

    device: Device
    limit: Limit
    remark: Advice
    queued: float | None
    """None where the kernel doesn't count waiting I/Os."""
    full: float | None
    """None where the driver's I/Os aren't counted."""
    submission: Submission
    """Traced I/Os from their submission on; empty where that isn't traced."""
    lasts: bool
    """Whether enough time was measured for a warning."""
    measured: float
    """Share of `lasting_us` that was measured, at most 1."""
    uncounted: bool
    """Whether I/Os wait for a request by this setting, which only the tracer measures."""
    walled: bool
    """Whether it is limited to a few I/Os, which outstanding-ceiling reports with its cost."""
    used: bool
    """Whether it did an I/O in the last minute, or nothing counted its I/Os: an imported text with settings alone."""

    @property
    def waits(self) -> float:
        """Return the share of the time in which I/Os wait with a request, or of their time that passes without one."""
        return max(0.0 if self.uncounted else self.queued or 0.0, self.submission.share)

    @property
    def untimed(self) -> bool:
        """Return whether no source measures how long I/Os wait for it."""
        return self.uncounted and not self.submission.whole.count

    @property
    def effect(self) -> float:
        """Return the share of the time in which it may delay I/Os, or of the I/Os' time that it may take."""
        full = self.full or 0.0
        return full if self.untimed else min(self.waits, full)

    def costs(self, limits: Thresholds) -> bool:
        """Return whether I/Os wait for it now, and not only in a first burst: early for as long as later."""
        return self.lasts and self.effect * self.measured >= limits["queued"]


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device, and one of the host for settings that many devices share."""
    busy = frozenset(facts.busy)
    wrong_by_device = [
        wrong_settings
        for audited in facts.audited
        if (wrong_settings := _wrong_settings(facts, audited, busy, limits["lasting_us"]))
    ]
    alike: dict[tuple[str, str], list[list[_WrongSetting]]] = {}
    for wrong_settings in wrong_by_device:
        alike.setdefault((wrong_settings[0].limit.name, wrong_settings[0].remark.text), []).append(wrong_settings)
    common: list[list[list[_WrongSetting]]] = []
    for same in alike.values():
        used = [wrong for wrong in same if wrong[0].used]
        if len(same) <= limits["devices"]:
            yield from (_finding(wrong[0].device.name, wrong, (), limits) for wrong in used)
        elif shared := [wrong for wrong in used if not wrong[0].walled]:
            common.append(sorted(shared, key=lambda wrong: -wrong[0].effect))
    if common:
        common.sort(key=lambda group: -group[0][0].effect)
        yield _of_host(common, limits)


def _wrong_settings(facts: Facts, audited: Audited, busy: frozenset[str], lasting_us: float) -> list[_WrongSetting]:
    """Return the wrong settings of a device, the most serious one first."""
    if not any(remark.id in _ABOUT and not remark.note for setting in audited.settings for remark in setting.remarks):
        return []
    device, done = facts.devices[audited.device], facts.completed(audited.device)
    depths = facts.depths(device.name)
    bound = None if audited.bound is None else int(audited.bound.value)
    full = None if bound is None or not depths.in_driver else busy_share(depths.in_driver, bound)
    lasts = facts.lasts(facts.span_us, lasting_us)
    reported = "outstanding-ceiling" not in facts.off
    walled = reported and audited.limited_to is not None and audited.limited_to <= FEW and lasts
    submission = submission_of(facts.traced, device.name)
    uncounted = done is None and facts.origin.is_imported
    used = bool(done and done.count) or device.name in busy or uncounted
    wrong_settings = [
        _WrongSetting(
            device=device,
            limit=setting.limit,
            remark=remark,
            queued=busy_share(depths.queued) if depths.queued else None,
            full=full,
            submission=submission,
            lasts=lasts,
            measured=min(facts.span_us / lasting_us, 1.0),
            uncounted=audited.lacks_requests and remark.id == REQUESTS,
            walled=walled,
            used=used,
        )
        for setting in audited.settings
        for remark in setting.remarks
        if remark.id in _ABOUT and not remark.note
    ]
    return sorted(wrong_settings, key=lambda setting: _ABOUT.index(setting.remark.id))


def _of_host(common: list[list[list[_WrongSetting]]], limits: Thresholds) -> Finding:
    """Return the finding on groups of devices with the same wrong settings; groups and devices are sorted by effect."""
    worst = common[0][0]
    others = [group[0][0] for group in common[1:]]
    names = tuple(sorted({wrong[0].device.name for group in common for wrong in group}))
    return _finding("", [*worst, *others], names, limits)


def _finding(device: str, wrong: list[_WrongSetting], names: tuple[str, ...], limits: Thresholds) -> Finding:
    """Return the finding on the wrong settings of a device; for the host those of its worst one, then the others'."""
    first = wrong[0]
    costs, name = first.costs(limits), first.device.name
    now = _effect(first) if costs else ""
    now = now if device or not costs else f"{now} on {name}"
    short = "is short: " if first.remark.id == "host-limit-shared" else "of "
    more = f"; {len(wrong) - 1} more settings are wrong" if len(wrong) > 2 else "; one more setting is wrong"  # noqa: PLR2004
    on = "" if device else f"{name}: "
    return Finding(
        id=ID,
        severity=WARNING if costs else NOTICE,
        device=device,
        summary=(
            f"{device or _list(names)}: {first.limit.name} "
            f"{short}{first.remark.text}{now}{more if len(wrong) > 1 else ''}"
        ),
        facts=(
            *(
                Fact(setting.limit.name, setting.limit.value, f"{setting.limit.name}: {setting.remark.text}")
                for setting in wrong
            ),
            *(
                ()
                if device
                else (Fact("devices", len(names), f"on {len(names):,} devices with I/O: {', '.join(names)}"),)
            ),
            *_waits(first, on),
        ),
        where=Where("outstanding", device or name),
        steps=(
            *raise_limit(first.device, first.limit.name),
            Step("look at the limits of all devices: screen 3, key a"),
        ),
        refuted_by="a load that never sends as many, or an array whose maker asks for this value",
        share=max(first.waits, first.effect) if costs else 0.0,
        also=names,
        short=short_text(
            device,
            f"{within(first.limit.name, 24)} {within(str(first.limit.value), 10)} is misconfigured",
            f" on {counted(len(names), 'device')}" if not device else "",
            f"; {len(wrong) - 1} more" if len(wrong) > 1 else "",
        ),
    )


def _effect(wrong: _WrongSetting) -> str:
    """Return the effect of a setting as the end of a sentence."""
    if wrong.untimed:
        return f", and all {wrong.limit.value} are in use {part(wrong.full or 0)} of the time"
    if wrong.submission.share > (wrong.queued or 0) or wrong.uncounted:
        return f": {part(wrong.submission.share)} of the time of its I/Os passes before they have a request"
    return f": I/Os wait for it {part(wrong.queued or 0)} of the time"


def _waits(wrong: _WrongSetting, on: str) -> Iterable[Fact]:
    """Yield how long the I/Os of a device wait above the driver, and how long for a request where that is traced."""
    if not wrong.uncounted and wrong.queued is not None:
        text = f"{on}I/Os wait above the driver {part(wrong.queued)} of the time"
        yield Fact("queued", round(wrong.queued, 3), text, "share")
    if wrong.full is not None:
        text = f"{on}the driver is at its limit {part(wrong.full)} of the time"
        yield Fact("full", round(wrong.full, 3), text, "share")
    waits = wrong.submission.admission
    if waits.mean is not None:
        text = f"{on}an I/O waits {spelled(waits.mean)} on average before it has a request"
        yield Fact("wait_us", round(waits.mean), text, "us", waits.count)


def _list(names: tuple[str, ...]) -> str:
    """Return the first two names and the number of the others."""
    most = 2
    return ", ".join(names) if len(names) <= most else f"{names[0]}, {names[1]} and {len(names) - most:,} more"


RULE = Rule(
    ID,
    "a setting keeps a device from being given enough I/Os, or the right ones",
    evaluate,
    needs=LIMITS,
    thresholds={
        "queued": Threshold(
            0.1, "share", "of the time, or of the I/Os' time, is a wait above a full driver: a warning"
        ),
        "lasting_us": Threshold(
            12_000_000, "us", "must be measured for a warning, or 30 % of that in two blocks with as long a wait"
        ),
        "devices": Threshold(3, "devices", "with the same wrong setting have a finding each; more have one together"),
    },
    explained_by=("outstanding-ceiling",),
)
