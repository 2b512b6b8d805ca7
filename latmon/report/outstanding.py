"""A device's outstanding I/O as the report's keys: depths, what is still in flight, limits with remarks, the law.

Pure: sums in, plain JSON values out. A key that nobody measured is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from latmon.ages import Aged, Ages, Seen
from latmon.audit import Audited, Remark
from latmon.depth_totals import DepthSums
from latmon.histogram import Histogram
from latmon.lba_order import LbaOrder, summary
from latmon.limits import at_limit, ceiling, elevator, wall, within
from latmon.littles_law import Times, of
from latmon.model import Device, Frame, Limit
from latmon.outstanding import AGES_S, MEANS, bucket_middle
from latmon.report.depths import OutstandingSums
from latmon.report.figures import rfc3339

MAX_DEPTHS = 1024
MAX_ROWS = 256
"""Requests in flight of one device."""
_Json = dict[str, Any]


def gauge(depths: Counter[int], device: Device | None) -> _Json:
    """Without depths: sampled at the end of each window; `time_share` is the share of windows, by their length."""
    return {
        "max": max(depths),
        "mode": depths.most_common(1)[0][0],
        **_limit(device),
        "time_share": _shares(depths),
    }


def depths(sums: DepthSums, device: Device | None, timed: Mapping[str, Any]) -> _Json:
    """The depth in the driver over all time and over busy time, beside it the queue, and what came of them."""
    told = sums.depths
    busy = _busy(sums.in_driver)
    bound = ceiling(device.limits) if device else None
    held = wall(told, bound)
    if told.source == MEANS:
        return means(sums, device, timed) | ({"held_at": held} if held is not None else {})
    scheduler = elevator(device.limits) if device else None
    return {
        "max": within(sums.highest, bound),
        **({"max_at": rfc3339(sums.highest_at)} if sums.highest_at is not None else {}),
        "mode": _within(_mode(sums.in_driver), bound),
        "busy_mode": _within(_mode(busy), bound),
        "mean": _mean(sums.in_driver),
        **_limit(device),
        **({"held_at": held} if held is not None else {}),
        **({"at_limit": True} if at_limit(told, bound, scheduler) else {}),
        "time_share": _shares(sums.in_driver),
        "busy_time_share": _shares(busy),
        **({"queued": _queued(sums.queued)} if sums.queued else {}),
        **({"at_issue": {str(depth): n for depth, n in sorted(sums.at_issue.items())}} if sums.at_issue else {}),
        **({"latency_by_depth": _latency(sums)} if sums.latency else {}),
        **timed,
        "corrected": sums.corrected,
        "source": told.source,
    }


def means(sums: DepthSums, device: Device | None, timed: Mapping[str, Any]) -> _Json:
    """Return the means and busy shares of the driver and the queue: no distribution of them was measured."""
    queued = {"queued": _mean_and_busy(sums.queued)} if sums.queued else {}
    return {**_mean_and_busy(sums.in_driver), **_limit(device), **queued, **timed, "source": sums.depths.source}


def counts(sums: DepthSums, device: Device | None) -> _Json:
    """Where nobody knows for how long it was so many: I/Os at issue and a maximum, as other tools print them."""
    at_issue = {str(depth): n for depth, n in sorted(sums.at_issue.items())}
    return {
        "max": max(sums.highest, *sums.at_issue) if sums.at_issue else sums.highest,
        **_limit(device),
        **({"at_issue": at_issue} if at_issue else {}),
        "source": sums.depths.source,
    }


def littles_law(
    sums: DepthSums,
    device: Device | None,
    driver: Histogram | None,
    whole: Times | None,
    time_us: int,
    *,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> _Json:
    """The key `littles_law`; empty where one of its three isn't known for most of the time (littles_law.of).

    `driver`: times in the driver alone; `whole`: from the block layer on. Either may be unknown. `waiting`, `left`: the
    device's I/Os in flight at the end, those with an age and all of them.
    """
    bound = ceiling(device.limits) if device else None
    times = times_of(driver)
    found = of(sums.depths, sums.span_us, time_us, whole=whole, driver=times, bound=bound, waiting=waiting, left=left)
    if found is None:
        return {}
    told = {name: round(value, 3) for name, value in found.law._asdict().items()}
    return {
        "littles_law": {
            "of": found.of,
            **told,
            "by_law": round(found.law.by_law, 3),
            "agrees": found.law.agrees,
            **({"lift": {k: round(v, 1) for k, v in found.lift._asdict().items()}} if found.lift else {}),
            "sentence": found.sentence,
        }
    }


def times_of(one: Histogram | None) -> Times | None:
    """Of the I/Os in a histogram; None without any, or without their sum."""
    return Times(one.count, one.mean, one.max_bound) if one and one.mean is not None else None


def in_flight(name: str, sums: OutstandingSums, last: Frame | None) -> _Json:
    """What waits at the end of the recording, oldest first, and the longest wait that was ever seen of the device.

    Without rows the list is told only where nobody waits for certain: an empty one is a fact.
    """
    rows = [one for one in sums.ages.oldest if one.device == name]
    unknown = sums.ages.unknown.get(name, 0)
    told: _Json = {}
    if last and (rows or (_is_counted(name, last) and not unknown)):
        told["in_flight"] = [row(Seen(one, last.wall, last.mono_us)) for one in rows[:MAX_ROWS]]
        told["in_flight_oldest_us"] = rows[0].age_us if rows else None
    if unknown:
        told["in_flight_of_unknown_age"] = unknown
    if name in sums.longest:
        seen = sums.longest[name]
        told["in_flight_longest"] = {"seen": rfc3339(seen.wall_s), **row(seen)}
    return told


def _is_counted(name: str, last: Frame) -> bool:
    """Whether anybody looked at the end."""
    now = last.outstanding.get(name)
    return now is not None and now.in_driver is not None


def row(seen: Seen) -> _Json:
    """A request, or I/Os of which only a least age is known."""
    one = seen.row
    told = {"age_us": one.age_us, "at_least": one.at_least, "count": one.count}
    if one.request is None:
        return told
    request = one.request
    return told | {
        "began": rfc3339(seen.wall_s - (seen.mono_us - request.began_us) / 1e6),
        "began_mono_us": request.began_us,
        "op": request.op,
        "flags": list(request.flags),
        "sector": request.sector,
        "bytes": request.bytes,
        "pid": request.pid,
        "comm": request.comm or None,
        "in_driver": request.issued,
        "overtaken_by": request.overtaken_by,
        **({"own": True} if request.own else {}),
    }


def older(ages: Ages) -> _Json:
    """Of the health: `in_flight_older`, counts at the end of the recording, and how many of no known age there are."""
    unknown = {"in_flight_of_unknown_age": ages.of_unknown_age} if ages.of_unknown_age else {}
    return {
        "in_flight_older": {**{f"{age} s": ages.older[age] for age in AGES_S}, "at_least": ages.at_least},
        **unknown,
    }


def limits(audited: Audited | None) -> _Json:
    """The keys `limits`, with remarks where there is one, and `limits_remarks` of the device as a whole."""
    if audited is None:
        return {}
    rows = [one.limit._asdict() | _remarks("remarks", one.remarks) for one in audited.settings]
    return {"limits": rows, **_remarks("limits_remarks", audited.remarks)}


def issue_order(order: LbaOrder | None, device: Device | None = None) -> _Json:
    """The key `issue_order`, of the windows of consecutive issues that were recorded."""
    if order is None or not order.count:
        return {}
    return {
        "issue_order": {
            "count": order.count,
            "ascending": order.ascending_share,
            "ascending_by_arrival": order.arrival_share,
            "reordered": order.reordered,
            "most_overtaken": order.most_overtaken,
            "longest_wait_us": order.longest_wait_us,
            "summary": summary(order, elevator(device.limits) if device else None),
        }
    }


def _remarks(key: str, remarks: Iterable[Remark]) -> _Json:
    told = [one._asdict() for one in remarks]
    return {key: told} if told else {}


def _queued(queued: Counter[int]) -> _Json:
    busy = _busy(queued)
    return {
        "max": max(queued),
        "mode": _mode(queued),
        "busy_mode": _mode(busy),
        "mean": _mean(queued),
        "time_share": _shares(queued),
        "busy_time_share": _shares(busy),
    }


def _mean_and_busy(depths: Counter[int]) -> _Json:
    return {"mean": _mean(depths), "busy": round(sum(_busy(depths).values()) / (sum(depths.values()) or 1), 4)}


def _latency(sums: DepthSums) -> _Json:
    return {
        str(depth): {"count": took.ios, "mean_us": round(took.time_us / took.ios, 1)}
        for depth, took in sorted(sums.latency.items())
        if took.ios
    }


def _limit(device: Device | None) -> _Json:
    bound = ceiling(device.limits) if device else None
    return {"limit": bound.value, "limit_source": bound.source} if bound else {}


def _busy(depths: Counter[int]) -> Counter[int]:
    return Counter({depth: us for depth, us in depths.items() if depth and us})


def _mode(depths: Counter[int]) -> int | None:
    return depths.most_common(1)[0][0] if depths else None


def _within(depth: int | None, bound: Limit | None) -> int | None:
    return None if depth is None else within(depth, bound)


def _mean(depths: Counter[int]) -> float | None:
    whole = sum(depths.values())
    return round(sum(bucket_middle(depth) * us for depth, us in depths.items()) / whole, 4) if whole else None


def _shares(depths: Counter[int]) -> dict[str, float]:
    whole = sum(depths.values()) or 1
    shown = sorted(depth for depth, _ in depths.most_common(MAX_DEPTHS))
    return {str(depth): round(depths[depth] / whole, 6) for depth in shown}
