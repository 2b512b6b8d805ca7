"""A device's outstanding I/O as the report's keys: depths, what is still in flight, limits with remarks, the law.

Pure: sums in, plain JSON values out. A key that nobody measured is absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from latmon.audit import Audited, Remark
from latmon.histogram import Histogram
from latmon.lba_order import LbaOrder, summary
from latmon.limits import at_limit, ceiling, wall, within
from latmon.littles_law import Law, Lift, law, lift, sentence
from latmon.model import Device, Limit
from latmon.outstanding import AGES_S, SYSFS, bucket_middle
from latmon.report.depths import DepthSums, OutstandingSums
from latmon.report.figures import rfc3339
from latmon.waiting import Aged, Ages

MAX_DEPTHS = 1024
MIN_BUSY_US = 1_000_000
MIN_BUSY = 0.05
"""Gauges that are looked at now and then meet too few busy moments below these to tell a mean."""
MIN_IOS = 100
"""Of fewer, one that began before the recording or is still in flight at its end is a good part of the mean."""
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
    scheduler = next((one.value for one in device.limits if one.name == "scheduler"), None) if device else None
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


def littles_law(
    sums: DepthSums, driver: Histogram | None, whole: Histogram | None, seconds: float, mostly: float = 0.9
) -> _Json:
    """The key `littles_law`; empty where one of its three isn't known for `mostly` of the `seconds`.

    `driver`: times in the driver alone; `whole`: from the block layer on. Either may be unknown.
    """
    if not seconds or sums.span_us < mostly * seconds * 1e6 or _is_too_rare(sums):
        return {}
    in_driver, queued = _mean(sums.in_driver), _mean(sums.queued)
    of = "driver"
    found = _law(in_driver, driver, seconds)
    if found is None and queued is not None and in_driver is not None:
        of, found = "all", _law(in_driver + queued, whole, seconds)
    if found is None:
        return {}
    driver_us = found.latency_us if of == "driver" else (in_driver or 0) * 1e6 / found.iops
    lifted = _lift(sums, driver_us)
    told = {name: round(value, 3) for name, value in found._asdict().items()}
    return {
        "littles_law": {
            "of": of,
            **told,
            "by_law": round(found.by_law, 3),
            "agrees": found.agrees,
            **({"lift": {k: round(v, 1) for k, v in lifted._asdict().items()}} if lifted else {}),
            "sentence": sentence(found, lifted),
        }
    }


def in_flight(name: str, sums: OutstandingSums, wall_s: float, *, known: bool) -> _Json:
    """What waits at the end of the recording, oldest first, and the longest wait that was ever seen of the device.

    `known`: whether anybody looked at the end, so that an empty list is a fact.
    """
    rows = [one for one in sums.ages.oldest if one.device == name]
    told: _Json = {}
    if rows or known:
        told["in_flight"] = [row(one, wall_s) for one in rows[:MAX_ROWS]]
        told["in_flight_oldest_us"] = rows[0].age_us if rows else None
    if name in sums.longest:
        seen, one = sums.longest[name]
        told["in_flight_longest"] = {"seen": rfc3339(seen), **row(one, seen)}
    return told


def row(one: Aged, wall_s: float) -> _Json:
    """A request, or I/Os of which only a least age is known; `wall_s` is when it was that old."""
    told = {"age_us": one.age_us, "at_least": one.at_least, "count": one.count}
    if one.request is None:
        return told
    request = one.request
    return told | {
        "began": rfc3339(wall_s - one.age_us / 1e6),
        "began_mono_us": request.began_us,
        "op": request.op,
        "flags": list(request.flags),
        "sector": request.sector,
        "bytes": request.bytes,
        "pid": request.pid,
        "comm": request.comm or None,
        "in_driver": request.issued,
    }


def older(ages: Ages) -> _Json:
    """The key `in_flight_older` of the health: counts at the end of the recording."""
    return {"in_flight_older": {**{f"{age} s": ages.older[age] for age in AGES_S}, "at_least": ages.at_least}}


def limits(audited: Audited | None) -> _Json:
    """The keys `limits`, with remarks where there is one, and `limits_remarks` of the device as a whole."""
    if audited is None:
        return {}
    rows = [one.limit._asdict() | _remarks("remarks", one.remarks) for one in audited.settings]
    return {"limits": rows, **_remarks("limits_remarks", audited.remarks)}


def issue_order(order: LbaOrder | None) -> _Json:
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
            "summary": summary(order),
        }
    }


def _remarks(key: str, remarks: Iterable[Remark]) -> _Json:
    told = [one._asdict() for one in remarks]
    return {key: told} if told else {}


def _is_too_rare(sums: DepthSums) -> bool:
    busy = sum(_busy(sums.in_driver).values())
    return sums.depths.source == SYSFS and busy < max(MIN_BUSY_US, MIN_BUSY * sums.span_us)


def _law(outstanding: float | None, times: Histogram | None, seconds: float) -> Law | None:
    return law(outstanding, times.mean, times.count / seconds) if times and times.count >= MIN_IOS else None


def _lift(sums: DepthSums, driver_us: float) -> Lift | None:
    """Up to what was sent: the depth at which the driver is held, and what waits above it in the mean."""
    held = wall(sums.depths)
    return None if held is None else lift(held, held + round(_mean(_busy(sums.queued)) or 0), driver_us)


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
