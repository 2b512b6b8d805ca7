"""The stage in which slow I/Os of a device spend most of their time: the column `slow part` of the device table. Pure.

Slow are the completed I/Os above the threshold, without one those above the p99, and those in flight as long. Where no
I/O is known to be slow and the device is full or has a finding, its stage is that of all I/Os.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latmon.analysis.attribution import of_threshold_bucket, parts_us, tail_cut, tail_us, total_of
from latmon.analysis.threshold import slower
from latmon.model.frame import Outlier, Series
from latmon.model.stages import by_column
from latmon.views.context import ViewState
from latmon.views.device_table import Subject

_LEAST_OLD_US = 1_000_000
"""Without a threshold, no younger I/O in flight is slow: on an idle device there is nothing to compare it with."""
Includes = Mapping[str, tuple[str, ...]]


class SlowInFlight(NamedTuple):
    """The I/Os of a device that are in flight for as long as slow ones take."""

    ios: int
    us: Counter[str]
    """Stage in which they wait -> their ages, in us."""


class SlowPart(NamedTuple):
    """The name of a stage in a column, and its share of the slow I/Os' time."""

    name: str
    share: float


def slow_part(view: ViewState, subject: Subject) -> SlowPart | None:
    """Return the stage with most of the slow I/Os' time; None where it is not known."""
    us, includes = _completed(view, subject)
    us.update(slow_in_flight(view, subject).us)
    if not us.total() and _is_in_trouble(view, subject):
        us, includes = _of_all(view, subject)
    if not us.total():
        return None
    columns = by_column(us, includes)
    name = max(columns, key=lambda column: columns[column])
    return SlowPart(name, columns[name] / us.total())


def _completed(view: ViewState, subject: Subject) -> tuple[Counter[str], Includes]:
    """Return stage -> us of the slow I/Os that completed, and the stages that include others."""
    traced, device = view.history.on_demand.tails, subject.device.name
    ops, threshold_us = view.selection.ops, view.selection.threshold_us
    us = Counter[str]()
    cut_us = tail_cut(traced, device, ops, threshold_us)
    slowest_us = total_of(traced, device, ops).max_bound or 0
    if cut_us is not None and slowest_us >= cut_us:  # of most devices none is, and their sums need no time
        us.update(tail_us(traced, device, ops, cut_us))
    us.update(parts_us(of_bucket(view, subject) or ()))
    if us.total():
        return us, traced.includes_of(device)
    outliers = [outlier for outlier in view.outliers_of(device) if outlier.op in ops and outlier.stages_us]
    includes = {stage: within for outlier in outliers for stage, within in outlier.includes.items()}
    return parts_us(outliers), includes or traced.includes_of(device)


def of_bucket(view: ViewState, subject: Subject) -> Sequence[Outlier] | None:
    """Return the I/Os above the threshold in its own bucket; None where they are not known one by one."""
    name, ops, above = subject.device.name, view.selection.ops, view.above(subject)
    if above is None or above.bound_us != view.selection.threshold_us:
        return None
    traced = view.history.on_demand.tails
    cut_us = tail_cut(traced, name, ops, above.bound_us) or 0
    if slower(total_of(traced, name, ops), cut_us).ios == above.ios:
        return ()  # of most devices none is slow, and their recorded I/Os need not be looked at
    return of_threshold_bucket(traced, name, ops, above, view.outliers_of(name))


def slow_in_flight(view: ViewState, subject: Subject) -> SlowInFlight:
    """Return the I/Os in flight that are slow already, as far as it is known where they are."""
    threshold_us = view.selection.threshold_us
    if threshold_us is None:
        completed = subject.window.latency(subject.device.name, view.selection.ops)
        threshold_us = max(completed.max_bound or 0, _LEAST_OLD_US)
    ios, us = 0, Counter[str]()
    for aged in view.history.ages.of(subject.device.name):
        request = aged.request
        if request is None or request.issued is None or request.op not in view.selection.ops:
            continue
        if aged.age_us >= threshold_us:
            ios += aged.count
            us["hba" if request.issued else "queue"] += aged.age_us * aged.count
    return SlowInFlight(ios, us)


def _is_in_trouble(view: ViewState, subject: Subject) -> bool:
    device = subject.device.name
    return view.is_full(subject) or any(device in (finding.device, *finding.also) for finding in view.found.shown)


def _of_all(view: ViewState, subject: Subject) -> tuple[Counter[str], Includes]:
    """Return stage -> us of all I/Os by the always-on probe, where it times stages, and those that include others."""
    measured = {} if view.origin is None else view.origin.measured
    basic, us = view.history.on_demand.basic, Counter[str]()
    for stage in measured:
        for op in view.selection.ops:
            times = basic.get(Series(subject.device.name, op, stage))
            if stage not in ("total", "resume") and times is not None:
                us[stage] += times.sum or 0
    return us, measured
