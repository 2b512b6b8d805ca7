"""Tables of the HTML report that are of no single device: outliers, softirqs, interrupts, wake-ups, queues, settings.

Reads the summary alone. Each is an empty string where nobody measured it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.model import UNACCOUNTED
from latmon.priorities import scales
from latmon.report.html_charts import ribbon, swatches
from latmon.report.html_parts import listed, maximum, name, number, quantile, share, table, text, time_of
from latmon.report.outliers import issuer
from latmon.report.text_settings import changes
from latmon.stage_names import COLUMNS, by_column
from latmon.views.units import UNKNOWN, until

MAX_OUTLIERS = 50
MAX_ROWS = 60
MAX_SETTINGS = 400
"""Sections; the JSON has all."""
_Json = Mapping[str, Any]
_Q = ("p50", "p99", "p99.9")


def outliers(summary: _Json) -> str:
    """The worst, each with its way as a ribbon and as a sum."""
    every = summary.get("outliers", [])
    if not every:
        return ""
    above = sum(sum(one.get("above", {}).values()) for one in summary["devices"].values())
    told = sum(one["repeats"] for one in every) + summary.get("outliers_left_out", 0)
    left = summary["health"].get("suppressed", 0)
    said = (
        f"<p>{number(above)} I/Os were above their threshold; {number(told)} of them were recorded one by one, "
        f"{number(left)} were left out by the rate limit. The longest {min(MAX_OUTLIERS, len(every))} follow.</p>\n"
    )
    passed = {name for one in every[:MAX_OUTLIERS] for name in _parts(one)}
    said += listed(swatches([part for part in COLUMNS if part in passed]), "parts")
    rows = "".join(_outlier(at, one) for at, one in enumerate(every[:MAX_OUTLIERS], 1))
    return f'<section class="page" id="outliers"><h2>Outliers</h2>\n{said}{rows}</section>\n'


def _outlier(at: int, one: _Json) -> str:
    what = " ".join(text(each) for each in (one["op"], *one["flags"]))
    where = [] if one["bytes"] is None else [f"{one['bytes']:,} B"]
    where += [] if one["sector"] is None else [f"sector {one['sector']:,}"]
    who = f"{name(issuer(one))}/{UNKNOWN if one['pid'] is None else one['pid']}"
    again = f" x{one['repeats']:,}" if one["repeats"] > 1 else ""
    facts = [f"CPU {_known(one['cpu_issue'])} to {_known(one['cpu_complete'])}"]
    facts += [
        f"{_known(one['outstanding_at_issue'])} in flight at issue",
        f"overtaken by {_known(one['overtaken_by'])}",
    ]
    facts += [text(one["path"])] if one["path"] else []
    return (
        f'<div class="outlier"><p><b>{at}. {name(one["device"])} {time_of(one["total_us"])}</b> '
        f"{text(until(one['stages_us']))}{again}: {', '.join([what, *where])}, by {who}, "
        f"began {text(one['time'] or UNKNOWN)}</p>\n"
        f"{ribbon(_parts(one), one['unaccounted_us'], one['total_us'])}\n"
        f"<p>{_sum(one)}</p>\n{''.join(f'<p>{said}</p>' for said in _waits(one))}"
        f'<p class="small">{"; ".join(facts)}</p></div>\n'
    )


def _parts(one: _Json) -> dict[str, int]:
    """Return the outlier's stages by their names in a column."""
    return by_column(one["stages_us"], one["includes"])


def _sum(one: _Json) -> str:
    """`queue 3 us + hba 85 us + unaccounted 2 us = 90 us`."""
    parts = [f"{text(stage)} {time_of(us)}" for stage, us in _parts(one).items()]
    if not parts:
        return "stages were not traced then"
    whole = sum(one["stages_us"].values()) + one["unaccounted_us"]
    rest = "" if whole == one["total_us"] else f", {time_of(one['total_us'] - whole)} less than the total"
    return " + ".join([*parts, f"{UNACCOUNTED} {time_of(one['unaccounted_us'])}"]) + f" = {time_of(whole)}{rest}"


def _waits(one: _Json) -> Iterator[str]:
    for wait in one["waits"]:
        instead = f"; {name(wait['instead'])} ran instead" if wait["instead"] else ""
        yield (
            f"{text(wait['stage'])}: {name(wait['thread'])} (prio {wait['priority']}) was woken and ran "
            f"{time_of(wait['delay_us'])} later{instead}"
        )


def interrupts(summary: _Json) -> str:
    """Softirqs, handlers, wake-ups and task queues."""
    found = _softirqs(summary.get("softirqs", {})) + _irqs(summary.get("irqs", [])) + _wakeups(summary)
    found += _taskqs(summary)
    return f'<section id="interrupts"><h2>Interrupts and threads</h2>\n{found}</section>\n' if found else ""


def _softirqs(found: _Json) -> str:
    rows = [
        (name(vector), number(one["count"]), *_delays(one["delay_us"]), *_delays(one["run_us"]), _named(one["ran_in"]))
        for vector, one in found.items()
    ]
    delay, run = ([f"{what} {of}" for of in (*_Q, "max")] for what in ("delay", "run"))
    said = "Softirqs; delay: from the raise to the entry"
    return table(said, ("vector", "runs", *delay, *run, "ran in"), rows, words=(0, 10)) if rows else ""


def _irqs(found: list[_Json]) -> str:
    rows = [
        (
            name(one["handler"]),
            UNKNOWN if one["irq"] is None else number(one["irq"]),
            number(one["count"]),
            *_delays(one["run_us"]),
            time_of(one["before_us"]),
            _named(one["returned"]),
            text(one["device"] or UNKNOWN),
            ", ".join(name(each) for each in one["shared_with"]),
        )
        for one in sorted(found, key=lambda one: -(one["run_us"]["sum"] or 0))[:MAX_ROWS]
    ]
    heads = ("handler", "irq", "runs", *_Q, "max", "waited", "returned", "device", "shared with")
    said = f"Interrupt handlers; waited: for handlers before it on its vector{_rest(len(found))}"
    return table(said, heads, rows, words=(0, 8, 9, 10)) if rows else ""


def _wakeups(summary: _Json) -> str:
    found = summary.get("wakeups", [])
    rows = [
        (
            f"{name(one['thread'])}/{UNKNOWN if one['pid'] is None else one['pid']}",
            f"{text(one['policy'] or UNKNOWN)} {one['priority']}",
            number(one["count"]),
            *_delays(one["delay_us"]),
            _named(one["instead"]),
        )
        for one in found[:MAX_ROWS]
    ]
    left = summary.get("wakeups_left_out", 0)
    more = _rest(len(found)) + (f"; {left:,} wake-ups of other threads" if left else "")
    heads = ("thread", "policy, prio", "wake-ups", *_Q, "max", "ran instead")
    said = f"From woken to running; {scales(summary['host']['kernel'])[0]}{more}"
    return table(said, heads, rows, words=(0, 1, 7)) if rows else ""


def _taskqs(summary: _Json) -> str:
    found = summary.get("taskqs", [])
    rows = []
    for one in found[:MAX_ROWS]:
        loops = "permanent loops, not queue items" if one["permanent_loops"] else ""
        numbers = (number(one[key]) for key in ("priority", "threads", "active_max", "waiting_max", "most", "executed"))
        rows.append((name(f"{one['name']} {one['instance']}"), *numbers, time_of(one["mean_run_us"]), loops))
    heads = ("task queue", "prio", "threads", "active", "waiting", "most", "executed", "mean run", "")
    return table(f"Task queues{_rest(len(found))}", heads, rows, words=(0, 8)) if rows else ""


def gaps(summary: _Json) -> str:
    """Where time is missing."""
    rows = [(text(one["start"] or UNKNOWN), f"{one['duration_s']:,} s", text(one["reason"])) for one in summary["gaps"]]
    said = f"Gaps{_rest(len(rows))}"
    return table(said, ("from", "for", "because"), rows[:MAX_ROWS], words=(0, 2)) if rows else ""


def marks(summary: _Json) -> str:
    """Numbered as on the maps."""
    rows = [
        (
            str(at),
            text(one["time"] or UNKNOWN),
            name(one["text"] or "(no note)"),
            "; ".join(map(text, changes(one["changed"]))),
        )
        for at, one in enumerate(summary.get("marks", []), 1)
    ]
    heads = ("mark", "at", "note", "set otherwise than at the start")
    return table(f"Marks{_rest(len(rows))}", heads, rows[:MAX_ROWS], words=(0, 1, 2, 3)) if rows else ""


def settings(summary: _Json) -> str:
    """Every setting that the capture's header tells; open, for a closed one is missing on paper."""
    found = summary.get("settings", {})
    tables = [
        table(text(section), ("name", "value"), [(text(k), text(v)) for k, v in values.items()], words=(0, 1))
        for section, values in list(found.items())[:MAX_SETTINGS]
    ]
    if not tables:
        return ""
    names = sum(map(len, found.values()))
    head = f"<summary>All {number(names)} settings, as they were when the capture began</summary>"
    rest = f"<p>and {len(found) - MAX_SETTINGS:,} more sections</p>" if len(found) > MAX_SETTINGS else ""
    folded = f"<details open>{head}\n{''.join(tables)}{rest}</details>"
    return f'<section id="settings"><h2>Configuration</h2>\n{folded}</section>\n'


def _delays(q: _Json) -> tuple[str, ...]:
    return (*(quantile(q, each) for each in _Q), maximum(q))


def _named(counts: Mapping[str, int]) -> str:
    whole = sum(counts.values()) or 1
    most = sorted(counts.items(), key=lambda one: -one[1])[:4]
    return ", ".join(f"{name(each)} {share(n / whole)}" for each, n in most)


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _rest(rows: int) -> str:
    return f"; the first {MAX_ROWS} of {rows:,}, the JSON report has all" if rows > MAX_ROWS else ""
