"""The text of outstanding I/O: a table of depths, what still waits, Little's law, and which limits are off.

Reads the summary alone, like text.py; every line fits a ticket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.audit import at_limit_said
from latmon.outstanding import AGES_S, MEANS
from latmon.report.outliers import issuer
from latmon.report.wrapping import wrapped
from latmon.views.held import at_the_end, held
from latmon.views.units import UNKNOWN, count, duration, part, percent, spelled

MAX_DEPTHS = 8
"""Rows of a device's table: the most frequent ones; the rest is in the JSON."""
MAX_WAITING = 5
MAX_REMARKS = 40
_BAR = 20
_Json = Mapping[str, Any]


def device(one: _Json) -> Iterator[str]:
    """A device's lines: depths, law, issue order, what is in flight."""
    if "outstanding" in one:
        told = one["outstanding"]
        if told.get("source") == MEANS:
            yield from _means(told)
        else:
            yield from (
                _counts(told) if "time_share" not in told else _depths(told) if "source" in told else _gauge(told)
            )
    if one.get("issue_order", {}).get("ascending") is not None:
        yield from wrapped(f"issue order: {one['issue_order']['summary']}", "  ")
    yield from _in_flight(one)


def is_told(one: _Json) -> bool:
    """Whether a device without completions has a line of its own: I/Os that wait, or how many there were at issue."""
    counted = "outstanding" in one and "time_share" not in one["outstanding"]
    return bool(one.get("in_flight")) or "in_flight_longest" in one or counted


def older(summary: _Json) -> str:
    """Who had I/Os in flight for long when the recording ended, how many, and those of unknown age; empty without."""
    told = dict(summary["health"].get("in_flight_older", {}))
    least = "at least " if told.pop("at_least", False) else ""
    unknown = summary["health"].get("in_flight_of_unknown_age", 0)
    if not any(told.get(f"{age} s") for age in AGES_S):
        return f"in flight at the end: {unknown:,} of unknown age" if unknown else ""
    said = ", ".join(f"{told[age]:,} for more than {age}" for age in (f"{age} s" for age in AGES_S) if told.get(age))
    who = at_the_end(held(_waiting(summary)))
    many = f"{who} ({least}{said})" if who else f"{least}{said}"
    return f"IN FLIGHT at the end: {many}" + (f"; {unknown:,} of unknown age" if unknown else "")


def _waiting(summary: _Json) -> Iterator[tuple[str, int, int, bool]]:
    for name, one in summary["devices"].items():
        yield from ((name, row["count"], row["age_us"], row["at_least"]) for row in one.get("in_flight", ()))


def remarks(summary: _Json) -> list[str]:
    """The limits that are off, a line each; usual defaults, with what they do, are in the JSON alone."""
    lines = off(summary)
    if not lines:
        return []
    more = [f"and {len(lines) - MAX_REMARKS:,} more (--json has them)"] if len(lines) > MAX_REMARKS else []
    return ["limits that are off:", *(part for line in (*lines[:MAX_REMARKS], *more) for part in wrapped(line, "  "))]


def off(summary: _Json) -> list[str]:
    """A sentence for each limit that is off."""
    return [
        f"{name}{_model(one)}: {text}"
        for name, one in summary["devices"].items()
        for text in (*_of_device(one), *_of_settings(one))
    ]


def meaning(summary: _Json) -> list[str]:
    """Sentences: what the words of these lines mean, where any of them was said."""
    every = [one["outstanding"] for one in summary["devices"].values() if "source" in one.get("outstanding", {})]
    told = [one for one in every if one["source"] != MEANS]
    lines: list[str] = []
    if len(told) < len(every):
        lines.append("mean in the driver: of the intervals as the source printed them; no distribution was measured")
    if told:
        lines.append("in the driver: shares of the time that the device had any there (busy)")
    if any("at_issue" in one for one in told):
        lines.append("at issue: requests that made it so many in the driver, themselves counted")
    if any("latency_by_depth" in one for one in told):
        lines.append("latency by outstanding: of I/Os that made it so many, queued ones counted, to completion")
    if any(one["source"] == "sysfs" for one in told):
        lines.append("depths by sysfs: looked at now and then, not at each I/O; nothing is known at issue")
    return lines


def _gauge(told: _Json) -> Iterator[str]:
    share = percent(told["time_share"][str(told["mode"])])
    said = f"outstanding at the windows' ends: max {told['max']}, mostly {told['mode']} ({share} of them)"
    yield from wrapped(said + _limit(told), "  ")


def _means(told: _Json) -> Iterator[str]:
    queue = told.get("queued")
    yield from wrapped(
        f"in the driver: mean {told['mean']:.3g}, any for {part(told['busy'])} of the time{_limit(told)}", "  "
    )
    if queue:
        yield from wrapped(
            f"queued above it: mean {queue['mean']:.3g}, any for {part(queue['busy'])} of the time", "  "
        )
    if told.get("held_at") is not None:
        yield from wrapped(f"held at {told['held_at']:,} in the driver while more were queued", "  ")
    if "littles_law" in told:
        yield from wrapped(told["littles_law"]["sentence"], "  ")


def _counts(told: _Json) -> Iterator[str]:
    yield from wrapped(f"outstanding: max {told['max']:,}, for how long is not known{_limit(told)}", "  ")
    issued = told.get("at_issue", {})
    requests = sum(issued.values())
    if issued:
        yield f"    {'depth':>7}{'at issue':>10}{'share':>6}"
    shown = sorted(sorted(issued, key=lambda depth: -issued[depth])[:MAX_DEPTHS], key=int)
    for depth in shown:
        each = issued[depth] / requests
        yield f"    {int(depth):>7,}{count(issued[depth]):>10}{part(each):>6} {'#' * round(each * _BAR)}".rstrip()
    if len(issued) > len(shown):
        yield f"    and {len(issued) - len(shown):,} more depths"


def _depths(told: _Json) -> Iterator[str]:
    if told["busy_mode"] is None:
        yield from wrapped(f"outstanding: none was seen in the driver{_limit(told)}", "  ")
    else:
        yield from wrapped(f"in the driver: {_most(told)}{_limit(told)}", "  ")
    queue = told.get("queued")
    if queue:
        said = "none was seen" if queue["busy_mode"] is None else _most_queued(queue)
        yield from wrapped(f"queued above it: {said}", "  ")
    if told.get("held_at") is not None:
        yield from wrapped(f"held at {told['held_at']:,} in the driver while more were queued", "  ")
    elif told.get("at_limit"):
        yield from wrapped(at_limit_said(told["limit"]), "  ")
    yield from _table(told)
    if told.get("latency_by_depth"):
        depths = sorted(told["latency_by_depth"].items(), key=lambda one: -one[1]["count"])[:MAX_DEPTHS]
        each = ", ".join(f"{depth}: {duration(one['mean_us'])}" for depth, one in sorted(depths, key=_number))
        yield from wrapped(f"mean latency by outstanding: {each}", "  ")
    if told["corrected"]:
        yield from wrapped(f"the probe's count was set right by {told['corrected']:,} requests that it missed", "  ")
    if "littles_law" in told:
        yield from wrapped(told["littles_law"]["sentence"], "  ")


def _most(one: _Json) -> str:
    """Of the driver: how many at most and when, how many mostly."""
    share = percent(max(one["busy_time_share"].values()))
    seen = f" (reached by {one['max_at']})" if one.get("max_at") else ""
    return f"max {one['max']:,}{seen}, mostly {one['busy_mode']:,} ({share} of the busy time), mean {one['mean']:.3g}"


def _most_queued(one: _Json) -> str:
    """A queue is told with how often there is one: what is usual in it says nothing of that."""
    any_queued = sum(share for depth, share in one["time_share"].items() if depth != "0")
    share = percent(max(one["busy_time_share"].values()))
    usual = f"then mostly {one['busy_mode']:,} ({share})"
    return f"any for {part(any_queued)} of the time, max {one['max']:,}, {usual}; mean of all time {one['mean']:.3g}"


def _table(told: _Json) -> Iterator[str]:
    """The depths in the driver with their shares of the busy time, and how many requests made it so many."""
    busy, issued = told["busy_time_share"], told.get("at_issue", {})
    if len(busy) + len(issued) <= 1:
        return
    requests = sum(issued.values())
    shown = {depth for depth, _ in sorted(busy.items(), key=lambda one: -one[1])[:MAX_DEPTHS]} or set(issued)
    yield f"    {'depth':>7}{'busy':>6}" + (f"{'at issue':>10}" if issued else "")
    for depth in sorted(shown, key=int)[:MAX_DEPTHS]:
        share = busy.get(depth, 0.0)
        at_issue = f"{part(issued.get(depth, 0) / requests):>10}" if requests else ""
        yield f"    {int(depth):>7,}{part(share):>6}{at_issue} {'#' * round(share * _BAR)}".rstrip()
    if len(busy) > len(shown):
        yield f"    and {len(busy) - len(shown):,} more depths"


def _in_flight(one: _Json) -> Iterator[str]:
    rows = one.get("in_flight", [])
    for row in rows[:MAX_WAITING]:
        yield from wrapped(f"in flight at the end: {waiting(row)}", "  ")
    if len(rows) > MAX_WAITING:
        yield f"  and {len(rows) - MAX_WAITING:,} more rows"
    longest = one.get("in_flight_longest")
    if longest and not (rows and rows[0]["age_us"] >= longest["age_us"]):
        yield from wrapped(f"longest in flight: {waiting(longest)}, seen at {longest['seen'] or UNKNOWN}", "  ")


def waiting(row: _Json) -> str:
    """`write 4,096 B sector 81,920 ora_lgwr/4211 for 30.2 s, queued, overtaken by 9`; `2 I/Os for at least 30 s`."""
    if "op" not in row:
        ios = "1 I/O" if row["count"] == 1 else f"{count(row['count'])} I/Os"
        return f"{ios} for at least {spelled(row['age_us'])}"
    parts = [row["op"], *row["flags"]]
    parts += [] if row["bytes"] is None else [f"{row['bytes']:,} B"]
    parts += [] if row["sector"] is None else [f"sector {row['sector']:,}"]
    parts += [f"{issuer(row)}/{UNKNOWN if row['pid'] is None else row['pid']}"]
    where = {True: ", in the driver", False: ", queued"}.get(row["in_driver"], "")
    passed = "" if row["overtaken_by"] is None else f", overtaken by {row['overtaken_by']:,}"
    return f"{' '.join(parts)} for {spelled(row['age_us'])}{where}{passed}"


def _limit(told: _Json) -> str:
    return f"; the driver takes {told['limit']:,} ({told['limit_source']})" if "limit" in told else ""


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
