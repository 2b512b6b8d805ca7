"""Two deep windows as one: what a process said to its end that no frame has taken yet, and what came after. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from latmon import outstanding
from latmon.deep_framing import DeepInterval
from latmon.deep_sums import DeepSums
from latmon.model import Frame, Health
from latmon.outstanding import Depths
from latmon_backends.deep_ticks import DeepWindow

EMPTY = DeepWindow()


def together(earlier: DeepWindow, later: DeepWindow) -> DeepWindow:
    """Counts are added; whom and how much the later one traces stands for both, where it has traced."""
    if EMPTY in (earlier, later):
        return later if earlier == EMPTY else earlier
    begun = [one.begun_us for one in (earlier, later) if one.begun_us]
    return DeepWindow(
        _sum(earlier.interval, later.interval),
        (*earlier.records, *later.records),
        earlier.losses + later.losses,
        earlier.ticks + later.ticks,
        min(begun, default=0),
        {**earlier.issues, **later.issues},
    )


def _sum(earlier: DeepInterval, later: DeepInterval) -> DeepInterval:
    sums = DeepSums(_frame(one) for one in (earlier, later))
    newest = later.traced if later.traced.one_in else earlier.traced
    traced = replace(
        sums.traced,
        histograms=sums.raw,
        by_total=dict(sums.traced.by_total),
        one_in=newest.one_in,
        devices=newest.devices,
        includes=newest.includes,
        bio_includes=newest.bio_includes,
        absent=newest.absent,
    )
    return DeepInterval(
        traced,
        sums.handlers,
        sums.softirqs,
        sums.wakeups,
        sums.suppressed,
        earlier.undecoded + later.undecoded,
        sums.above,
        {**earlier.thresholds_us, **later.thresholds_us},
        _depths(earlier.depths, later.depths),
        later.in_flight or earlier.in_flight,
        later.ages_of if later.in_flight else earlier.ages_of,
    )


def _depths(earlier: Mapping[str, Depths], later: Mapping[str, Depths]) -> dict[str, Depths]:
    each = {name: [told[name] for told in (earlier, later) if name in told] for name in {**earlier, **later}}
    return {name: outstanding.together(parts) for name, parts in each.items()}


def _frame(one: DeepInterval) -> Frame:
    return Frame(
        seq=0,
        wall=0.0,
        mono_us=0,
        dt_us=1,
        above=one.above,
        traced=one.traced,
        handlers=one.handlers,
        softirqs=one.softirqs,
        wakeups=one.wakeups,
        health=Health(suppressed=one.suppressed),
    )
