"""Outstanding I/O of a device: depths, law, limits, issue order, I/Os in flight; JSON keys and lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latmon.aggregate.depth_sum import DepthTimes
from latmon.analysis.issue_order import LbaOrder, summary
from latmon.analysis.limits import (
    Advice,
    Audited,
    at_limit,
    at_limit_text,
    ceiling,
    ceilings,
    elevator,
    wall,
    within,
)
from latmon.analysis.littles_law import MeanTimes, of, times_of
from latmon.model.frame import Device, Frame, Limit
from latmon.model.histogram import Histogram
from latmon.model.inflight import AGES_S, MEANS, Aged, AgedAt, Ages, bucket_middle
from latmon.report.formatting import at_the_end, in_flight_by_device, wrapped
from latmon.report.outliers import issuer, request
from latmon.report.totals import OutstandingSums, Totals
from latmon.support.units import UNKNOWN, counted, duration, part, rfc3339, spelled
from latmon.views.units import count, percent

MAX_JSON_DEPTHS = 1024
MAX_JSON_ROWS = 256
"""Rows of I/Os in flight per device in the JSON report."""
MAX_DEPTHS = 8
"""Rows of a device's table in the text report: the most frequent depths."""
MAX_WAITING = 5
MAX_REMARKS = 40
_FEW_WINDOWS = 20
_DEPTH_BAR = 20
_Json = Mapping[str, Any]


def gauge(depths: Counter[int], device: Device | None, totals: Totals) -> dict[str, Any]:
    """Return depths sampled at the windows' ends; `time_share` is the share of windows, by their length.

    `windows`: their number if it is small, so that a share by length is one of so many windows. Windows that are at
    most 2 % longer than the mean one, which was sampled in all of them, differ by less than half of one in all.
    """
    few = 0 < totals.windows <= _FEW_WINDOWS and sum(depths.values()) == totals.measured_us
    alike = few and totals.longest_us * totals.windows <= 1.02 * totals.measured_us
    return {
        **({"windows": totals.windows} if alike else {}),
        "max": max(depths),
        "mode": depths.most_common(1)[0][0],
        **limit_keys(device, totals.devices),
        "time_share": _shares(depths),
    }


def depths(
    sums: DepthTimes,
    device: Device | None,
    limit: Mapping[str, Any],
    timed: Mapping[str, Any],
    waiting: float | None = None,
) -> dict[str, Any]:
    """Return the depth in the driver over all time and over busy time, the queue, and latency by depth.

    `limit`: see limit_keys; `timed`: the key `littles_law`; `waiting`: the mean number of waiting I/Os where these
    aren't counted, as for `wall`.
    """
    reported = sums.depths
    busy = _busy(sums.in_driver)
    bound = ceiling(device.limits) if device else None
    depth = wall(reported, bound, waiting)
    limited = {} if depth is None else {"held_at": depth}
    if reported.source == MEANS:
        return means(sums, limit, timed) | limited
    scheduler = elevator(device.limits) if device else None
    return {
        "max": within(sums.highest, bound),
        **({"max_at": rfc3339(sums.highest_at)} if sums.highest_at is not None else {}),
        "mode": _within(_mode(sums.in_driver), bound),
        "busy_mode": _within(_mode(busy), bound),
        "mean": _mean(sums.in_driver),
        **limit,
        **limited,
        **({"at_limit": True} if at_limit(reported, bound, scheduler, waiting) else {}),
        "time_share": _shares(sums.in_driver),
        "busy_time_share": _shares(busy),
        **({"queued": _queued(sums.queued)} if sums.queued else {}),
        **({"at_issue": {str(depth): n for depth, n in sorted(sums.at_issue.items())}} if sums.at_issue else {}),
        **({"latency_by_depth": _latency(sums)} if sums.latency else {}),
        **timed,
        "corrected": sums.corrected,
        "source": reported.source,
    }


def means(sums: DepthTimes, limit: Mapping[str, Any], timed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the means and busy shares of the driver and the queue: no distribution of them was measured."""
    queued = {"queued": _mean_and_busy(sums.queued)} if sums.queued else {}
    return {**_mean_and_busy(sums.in_driver), **limit, **queued, **timed, "source": sums.depths.source}


def counts(sums: DepthTimes, limit: Mapping[str, Any]) -> dict[str, Any]:
    """Return I/Os at issue and a maximum, as imported tools print them: the time at each depth is unknown."""
    at_issue = {str(depth): n for depth, n in sorted(sums.at_issue.items())}
    return {
        "max": max(sums.highest, *sums.at_issue) if sums.at_issue else sums.highest,
        **limit,
        **({"at_issue": at_issue} if at_issue else {}),
        "source": sums.depths.source,
    }


def littles_law(
    sums: DepthTimes,
    device: Device | None,
    driver: Histogram | None,
    whole: MeanTimes | None,
    time_us: int,
    *,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> dict[str, Any]:
    """Return the key `littles_law`; empty if one of its three is unknown for most of the time (littles_law.of).

    `driver`: times in the driver alone; `whole`: from the block layer on. Either may be unknown. `waiting`, `left`: the
    device's I/Os in flight at the end, those with an age and all of them.
    """
    bound = ceiling(device.limits) if device else None
    times = times_of(driver)
    found = of(sums.depths, sums.span_us, time_us, whole=whole, driver=times, bound=bound, waiting=waiting, left=left)
    if found is None:
        return {}
    reported = {name: round(value, 3) for name, value in found.law._asdict().items()}
    return {
        "littles_law": {
            "of": found.of,
            **reported,
            "by_law": round(found.law.by_law, 3),
            "agrees": found.law.agrees,
            **({"lift": {k: round(v, 1) for k, v in found.lift._asdict().items()}} if found.lift else {}),
            "sentence": found.sentence,
        }
    }


def in_flight(name: str, sums: OutstandingSums, last: Frame | None) -> dict[str, Any]:
    """Return the I/Os in flight at the end of the recording, oldest first, and the longest seen of the device.

    The list has those older than 0.5 s. It is empty only if it is known that there were none; else the key is absent.
    `in_flight_count` is of all ages, by the kernel's gauges.
    """
    rows = [one for one in sums.ages.oldest if one.device == name]
    unknown = sums.ages.unknown.get(name, 0)
    reported: dict[str, Any] = {}
    now = last.outstanding.get(name) if last else None
    if now is not None and now.is_known:
        reported["in_flight_count"] = now.known
    if last and (rows or (now is not None and now.in_driver is not None and not unknown)):
        reported["in_flight"] = [row(AgedAt(one, last.wall, last.mono_us)) for one in rows[:MAX_JSON_ROWS]]
        reported["in_flight_oldest_us"] = rows[0].age_us if rows else None
    if unknown:
        reported["in_flight_of_unknown_age"] = unknown
    if name in sums.longest:
        seen = sums.longest[name]
        reported["in_flight_longest"] = {"seen": rfc3339(seen.wall_s), **row(seen)}
    return reported


def row(seen: AgedAt) -> dict[str, Any]:
    """Return a request, or a number of I/Os with a least age."""
    one = seen.row
    reported = {"age_us": one.age_us, "at_least": one.at_least, "count": one.count}
    if one.request is None:
        return reported
    request = one.request
    return reported | {
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


def older_counts(ages: Ages) -> dict[str, Any]:
    """Return the health keys with counts by age at the end of the recording, and of unknown age."""
    unknown = {"in_flight_of_unknown_age": ages.of_unknown_age} if ages.of_unknown_age else {}
    return {
        "in_flight_older": {**{f"{age} s": ages.older[age] for age in AGES_S}, "at_least": ages.at_least},
        **unknown,
    }


def limits(audited: Audited | None) -> dict[str, Any]:
    """Return the keys `limits`, with remarks if there are any, and `limits_remarks` of the whole device."""
    if audited is None:
        return {}
    rows = [one.limit._asdict() | _remarks("remarks", one.remarks) for one in audited.settings]
    return {"limits": rows, **_remarks("limits_remarks", audited.remarks)}


def issue_order(order: LbaOrder | None, device: Device | None = None, known_us: int = 0) -> dict[str, Any]:
    """Return the key `issue_order`, over the recorded windows of consecutive issues; `known_us` as in summary()."""
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
            "summary": summary(order, elevator(device.limits) if device else None, known_us=known_us),
        }
    }


def overtaken_us(name: str, totals: Totals) -> int:
    """Return the age of the device's longest I/O whose overtaking I/Os were counted; 0 without one."""
    seen, outlier = totals.outstanding.longest.get(name), totals.worst.longest.get(name)
    request = seen.row.request if seen else None
    in_flight_us = seen.row.age_us if seen and request and request.overtaken_by is not None else 0
    return max(in_flight_us, outlier.total_us if outlier and outlier.overtaken_by is not None else 0)


def _remarks(key: str, remarks: Iterable[Advice]) -> dict[str, Any]:
    reported = [one._asdict() for one in remarks]
    return {key: reported} if reported else {}


def _queued(queued: Counter[int]) -> dict[str, Any]:
    busy = _busy(queued)
    return {
        "max": max(queued),
        "mode": _mode(queued),
        "busy_mode": _mode(busy),
        "mean": _mean(queued),
        "time_share": _shares(queued),
        "busy_time_share": _shares(busy),
    }


def _mean_and_busy(depths: Counter[int]) -> dict[str, Any]:
    return {"mean": _mean(depths), "busy": round(sum(_busy(depths).values()) / (sum(depths.values()) or 1), 4)}


def _latency(sums: DepthTimes) -> dict[str, Any]:
    return {
        str(depth): {"count": took.ios, "mean_us": round(took.time_us / took.ios, 1)}
        for depth, took in sorted(sums.latency.items())
        if took.ios
    }


def limit_keys(device: Device | None, devices: Mapping[str, Device]) -> dict[str, Any]:
    """Return the keys of the limit of I/Os in the driver; empty where it isn't known.

    A volume has no driver. Its limit is the sum of those of its disks or paths, known if each of them is.
    """
    if device is None:
        return {}
    bound = ceiling(device.limits)
    if bound is not None:
        return {"limit": bound.value, "limit_source": bound.source}
    of_disks = ceilings(device, devices)
    values = {name: int(limit.value) for name, limit in of_disks.items() if limit is not None}
    if device.name in of_disks or len(values) < len(of_disks):
        return {}
    return {"limit": sum(values.values()), "limit_source": "the sum of its disks", "limit_of_disks": values}


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
    shown = sorted(depth for depth, _ in depths.most_common(MAX_JSON_DEPTHS))
    return {str(depth): round(depths[depth] / whole, 6) for depth in shown}


def lines(one: _Json) -> Iterator[str]:
    """Yield the text report's lines of a device: depths, Little's law, issue order, I/Os in flight."""
    reported = one.get("outstanding", {})
    for sentence in sentences(reported):
        yield from wrapped(sentence, "  ")
    yield from _table(reported) if "busy_time_share" in reported else _issue_table(reported)
    if reported.get("latency_by_depth"):
        depths = sorted(reported["latency_by_depth"].items(), key=lambda one: -one[1]["count"])[:MAX_DEPTHS]
        each = ", ".join(f"{depth}: {duration(one['mean_us'])}" for depth, one in sorted(depths, key=_number))
        yield from wrapped(f"mean latency by outstanding: {each}", "  ")
    if reported.get("corrected"):
        yield from wrapped(
            f"the probe's count was corrected by {reported['corrected']:,} requests that it missed", "  "
        )
    if "littles_law" in reported:
        yield from wrapped(reported["littles_law"]["sentence"], "  ")
    if one.get("issue_order", {}).get("ascending") is not None:
        yield from wrapped(f"issue order: {one['issue_order']['summary']}", "  ")
    yield from _in_flight(one)


def sentences(reported: _Json) -> Iterator[str]:
    """Yield the sentences of text and HTML on a device's depths: in the driver, queued above it, and its limit."""
    if not reported:
        return
    if reported.get("source") == MEANS:
        yield from _means(reported)
    elif "time_share" not in reported:
        yield f"outstanding: max {reported['max']:,}, for how long is not known{_limit(reported)}"
    elif "source" not in reported:
        yield _gauge(reported)
    else:
        yield from _depths(reported)
    if reported.get("held_at") is not None:
        yield f"limited to {reported['held_at']:,} in the driver while more were queued"
    elif reported.get("at_limit"):
        yield at_limit_text(reported["limit"])


def is_busy(one: _Json) -> bool:
    """Return whether the report shows a device by itself: I/Os completed, are in flight, or were counted at issue."""
    depths = one.get("outstanding", {"mean": 0})
    counted = "time_share" not in depths and depths.get("mean") != 0
    return bool(one["ops"] or one.get("in_flight")) or "in_flight_longest" in one or counted


def older(summary: _Json) -> str:
    """Return the I/Os in flight for long at the end, and those of unknown age; empty without any."""
    reported = dict(summary["health"].get("in_flight_older", {}))
    least = "at least " if reported.pop("at_least", False) else ""
    unknown = summary["health"].get("in_flight_of_unknown_age", 0)
    if not any(reported.get(f"{age} s") for age in AGES_S):
        return f"in flight at the end: {unknown:,} of unknown age" if unknown else ""
    text = ", ".join(
        f"{reported[age]:,} for more than {age}" for age in (f"{age} s" for age in AGES_S) if reported.get(age)
    )
    who = at_the_end(in_flight_by_device(_waiting(summary)))
    many = f"{who} ({least}{text})" if who else f"{least}{text}"
    return f"IN FLIGHT at the end: {many}" + (f"; {unknown:,} of unknown age" if unknown else "")


def _waiting(summary: _Json) -> Iterator[tuple[str, int, int, bool]]:
    for name, one in summary["devices"].items():
        yield from ((name, row["count"], row["age_us"], row["at_least"]) for row in one.get("in_flight", ()))


def remarks(summary: _Json) -> list[str]:
    """Return a line per limit that is off; usual defaults and their effects are in the JSON alone."""
    lines = off(summary)
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_REMARKS:,} more (--json has them)"] if len(lines) > MAX_REMARKS else []
    return ["limits that are off:", *(part for line in (*lines[:MAX_REMARKS], *more) for part in wrapped(line, "  "))]


def off(summary: _Json) -> list[str]:
    """Return a sentence for each limit that is off."""
    return [
        f"{name}{_model(one)}: {text}"
        for name, one in summary["devices"].items()
        for text in (*_of_device(one), *_of_settings(one))
    ]


def limit_meaning(summary: _Json) -> list[str]:
    """Return definitions of the terms in these lines, as far as they occur."""
    every = [one["outstanding"] for one in summary["devices"].values() if "source" in one.get("outstanding", {})]
    reported = [one for one in every if one["source"] != MEANS]
    lines: list[str] = []
    if len(reported) < len(every):
        lines.append("mean in the driver, outstanding: of the printed intervals; no distribution was measured")
    if reported:
        lines.append("in the driver: shares of the busy time, in which the device had any there")
    if any("at_issue" in one for one in reported):
        lines.append("at issue: requests by the number in the driver, themselves included")
    if any("latency_by_depth" in one for one in reported):
        lines.append("latency by outstanding: of I/Os by the number outstanding at their start, queued ones included")
    if any(one["source"] == "sysfs" for one in reported):
        lines.append("depths by sysfs: sampled, not counted at each I/O; depths at issue are unknown")
    return lines


def _gauge(reported: _Json) -> str:
    share, windows = reported["time_share"][str(reported["mode"])], reported.get("windows")
    few = "" if windows is None else f"in {round(share * windows)} of {counted(windows, 'window')}"
    many = few or f"{percent(share)} of them"
    usual = _usual(reported["mode"], share)
    return f"outstanding at the windows' ends: max {reported['max']}, {usual} ({many}){_limit(reported)}"


def _usual(mode: int, share: float) -> str:
    """Return the most frequent depth: `mostly 3` from half of the time or of the windows on, else `most often 3`."""
    return f"{'mostly' if share >= 0.5 else 'most often'} {mode:,}"  # noqa: PLR2004  half


def _means(reported: _Json) -> Iterator[str]:
    queue = reported.get("queued")
    where = "in the driver" if queue else "outstanding, queued or in the driver"
    yield f"{where}: mean {reported['mean']:.3g}, any for {part(reported['busy'])} of the time{_limit(reported)}"
    if queue:
        yield f"queued above it: mean {queue['mean']:.3g}, any for {part(queue['busy'])} of the time"


def _depths(reported: _Json) -> Iterator[str]:
    if reported["busy_mode"] is None:
        issued = reported.get("at_issue")
        more = f"none in any sample, up to {max(map(int, issued)):,} at issue" if issued else "none was seen"
        yield f"in the driver: {more}{_limit(reported)}"
    else:
        yield f"in the driver: {_highest(reported)}{_limit(reported)}"
    queue = reported.get("queued")
    if queue:
        yield f"queued above it: {'none was seen' if queue['busy_mode'] is None else _most_queued(queue)}"


def _issue_table(reported: _Json) -> Iterator[str]:
    """Yield depths at issue with their requests, if the time at each depth is unknown."""
    issued = reported.get("at_issue", {})
    requests = sum(issued.values())
    if issued:
        yield f"    {'depth':>7}{'at issue':>10}{'share':>6}"
    shown = sorted(sorted(issued, key=lambda depth: -issued[depth])[:MAX_DEPTHS], key=int)
    for depth in shown:
        each = issued[depth] / requests
        yield f"    {int(depth):>7,}{count(issued[depth]):>10}{part(each):>6} {'#' * round(each * _DEPTH_BAR)}".rstrip()
    if len(issued) > len(shown):
        yield f"    and {len(issued) - len(shown):,} more depths"


def _highest(one: _Json) -> str:
    """Return the maximum with its time, the most frequent depth and the mean."""
    share = max(one["busy_time_share"].values())
    seen = f" (reached by {one['max_at']})" if one.get("max_at") else ""
    usual = f"{_usual(one['busy_mode'], share)} ({percent(share)} of the busy time)"
    return f"max {one['max']:,}{seen}, {usual}, mean {one['mean']:.3g}"


def _most_queued(one: _Json) -> str:
    """Return how often I/Os were queued, before the depth: it counts only the time with a queue."""
    any_queued = sum(share for depth, share in one["time_share"].items() if depth != "0")
    share = max(one["busy_time_share"].values())
    usual = f"then {_usual(one['busy_mode'], share)} ({percent(share)})"
    return f"any for {part(any_queued)} of the time, max {one['max']:,}, {usual}; mean of all time {one['mean']:.3g}"


def _table(reported: _Json) -> Iterator[str]:
    """Yield depths in the driver with their shares of busy time and of requests at issue."""
    busy, issued = reported["busy_time_share"], reported.get("at_issue", {})
    if len(busy) + len(issued) <= 1:
        return
    requests = sum(issued.values())
    every = sorted({**busy, **issued}, key=lambda depth: (-busy.get(depth, 0.0), -issued.get(depth, 0)))
    shown = every[:MAX_DEPTHS]
    yield f"    {'depth':>7}{'busy':>6}" + (f"{'at issue':>10}" if issued else "")
    for depth in sorted(shown, key=int):
        share = busy.get(depth, 0.0)
        at_issue = f"{part(issued.get(depth, 0) / requests):>10}" if requests else ""
        yield f"    {int(depth):>7,}{part(share):>6}{at_issue} {'#' * round(share * _DEPTH_BAR)}".rstrip()
    if len(every) > len(shown):
        yield f"    and {len(every) - len(shown):,} more depths"


def _in_flight(one: _Json) -> Iterator[str]:
    rows = one.get("in_flight", [])
    for row in rows[:MAX_WAITING]:
        yield from wrapped(f"in flight at the end: {waiting(row)}", "  ")
    if len(rows) > MAX_WAITING:
        yield f"  and {len(rows) - MAX_WAITING:,} more rows"
    longest = longest_in_flight(one)
    if longest and not (rows and rows[0]["age_us"] >= longest["age_us"]):
        yield from wrapped(f"longest in flight: {waiting(longest)}, seen at {longest['seen'] or UNKNOWN}", "  ")


def longest_in_flight(one: _Json) -> _Json | None:
    """Return the I/O longest in flight; None if a listed outlier took as long, because that has more detail."""
    longest: _Json | None = one.get("in_flight_longest")
    return longest if longest and longest["age_us"] > one.get("outlier_longest_us", 0) else None


def waiting(row: _Json) -> str:
    """Return `write 4,096 B sector 81,920 lgwr/42 for 30.2 s, queued, overtaken by 9` or `2 I/Os for at least 30 s`."""
    if "op" not in row:
        ios = "1 I/O" if row["count"] == 1 else f"{count(row['count'])} I/Os"
        return f"{ios} for {age(row)}"
    where = {True: ", in the driver", False: ", queued"}.get(row["in_driver"], "")
    overtaken = "" if row["overtaken_by"] is None else f", overtaken by {row['overtaken_by']:,}"
    return f"{' '.join([*request(row), issuer(row)])} for {spelled(row['age_us'])}{where}{overtaken}"


def age(row: _Json) -> str:
    """Return the age of an I/O in flight, `30.2 s` or `at least 30 s`."""
    return ("at least " if row["at_least"] else "") + spelled(row["age_us"])


def _limit(reported: _Json) -> str:
    if "limit" not in reported:
        return ""
    if "limit_of_disks" in reported:
        each = ", ".join(f"{name} {limit:,}" for name, limit in reported["limit_of_disks"].items())
        return f"; its disks take {reported['limit']:,} ({each})"
    return f"; limited to {reported['limit']:,} ({reported['limit_source']})"


def _model(one: _Json) -> str:
    return f" ({one['model']})" if one.get("model") else ""


def _of_device(one: _Json) -> Iterator[str]:
    yield from (remark["text"] for remark in one.get("limits_remarks", []) if not remark["note"])


def _of_settings(one: _Json) -> Iterator[str]:
    for setting in one.get("limits", []):
        for remark in setting.get("remarks", []):
            if not remark["note"]:
                yield f"{setting['name']} {remark['text']} ({setting['source']})"


def _number(pair: tuple[str, Any]) -> int:
    return int(pair[0])
