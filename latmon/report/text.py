"""The summary as text for a ticket: 80 columns, no colour, every number with what it includes.

Reads the summary alone, so that nothing is in the text that a script can't have too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latmon.model.stages import called
from latmon.report import formatting, sections
from latmon.report.devices import NOT_PASSED
from latmon.report.formatting import QUANTILES, wrapped
from latmon.support.units import UNKNOWN, duration, part, rate, spelled
from latmon.views.units import count

MAX_LISTED = 20
_HEADS = f"    {'':<11}{'timed':>10}" + "".join(f"{title:>7}" for title in ("mean", *QUANTILES, "max"))
_Json = Mapping[str, Any]


def render_text(summary: _Json) -> str:
    """The whole report, with a newline at its end."""
    blocks = [_head(summary), sections.findings(summary), _trust(summary), sections.marks(summary)]
    begins = summary.get("latency_from", "")
    blocks += [list(_device(name, one, summary["duration_s"], begins)) for name, one in _busy(summary)]
    blocks += [sections.outliers(summary), sections.interrupts(summary)[:-1], sections.remarks(summary)]
    blocks.append(sections.settings(summary))
    blocks += [_idle(summary), [line for said in sections.meaning(summary) for line in wrapped(said)]]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _head(summary: _Json) -> list[str]:
    host = summary["host"]
    tier = f", tier {summary['health']['tier']}" if summary["health"]["tier"] else ""
    return [
        *wrapped(f"latmon report: {host['name']}, kernel {host['kernel']}"),
        *wrapped(
            f"from {summary['start'] or UNKNOWN} to {sections.end(summary)}, {summary['duration_s']:,.1f} s, "
            f"{sections.windows(summary)}, by latmon {host['latmon']}"
        ),
        *wrapped(f"backend {host['tool'] or summary['backend']}{tier}"),
        *(wrapped(f"why this backend: {summary['reason']}") if "reason" in summary else []),
    ]


def _trust(summary: _Json) -> list[str]:
    """How far the numbers can be trusted."""
    lines = [line for said in sections.trust(summary) for line in wrapped(said)]
    lines += wrapped(f"gaps: {sections.gaps(summary)}")
    lines += _listed(
        [f"{one['start'] or UNKNOWN}  {one['duration_s']:g} s  {one['reason']}" for one in summary["gaps"]]
    )
    lines += wrapped("notices:") if "notices" in summary else []
    lines += _listed([f"{one['time'] or UNKNOWN}  {one['text']}" for one in summary.get("notices", [])])
    lines += wrapped("damage: some of the file can't be read") if "damage" in summary else []
    lines += _listed(summary.get("damage", []))
    return [*lines, *wrapped(sections.verdict(summary))]


def _busy(summary: _Json) -> list[tuple[str, _Json]]:
    """Devices with a block of their own: I/Os completed, or some never did."""
    return [(name, one) for name, one in summary["devices"].items() if one["ops"] or sections.is_told(one)]


def _idle(summary: _Json) -> list[str]:
    busy = {name for name, _ in _busy(summary)}
    idle = [name for name in summary["devices"] if name not in busy]
    if not idle:
        return wrapped("no device was seen") if not summary["devices"] else []
    if len(idle) == len(summary["devices"]):
        return wrapped(f"no I/O completed on any device in this time: {', '.join(idle)}")
    return wrapped(f"no I/O: {', '.join(idle)}")


def _device(name: str, device: _Json, seconds: float, begins: str) -> Iterator[str]:
    parts = [device.get(key, "") for key in ("label", "model", "driver", "controller")]
    on = f"on {', '.join(device['members'])}" if device.get("members") else ""
    yield from wrapped("  ".join(part for part in (name, *parts, on) if part))
    if not device.get("timed", True):
        yield from wrapped(f"not timed here: {sections.why_untimed(device)}", "  ")
    if not device["ops"]:
        yield "  no I/O completed"
    else:
        yield _HEADS + (f"{'share':>6}" if any(one["stages"] for one in device["ops"].values()) else "")
    for op, one in device["ops"].items():
        yield from wrapped(f"{op}: {_volume(one, seconds)}", "  ")
        yield from _stages(one, begins)
    yield from _not_passed(device["ops"])
    if sentence := sections.tail_sentence(name, device):
        yield from wrapped(sentence, "  ")
    yield from sections.device(device)


def _stages(op: _Json, begins: str) -> Iterator[str]:
    """The latency, then the stages with their shares of all the time of the I/Os whose stages they are.

    Where the latency `begins` at the issue, a traced total holds more, even of as many I/Os.
    """
    latency, traced = op.get("latency_us"), op.get("of", {}).get("latency_us")
    base = traced or latency
    whole = (base["mean"] or 0) * base["count"] if base else 0
    if latency:
        yield _row("total", latency)
    longer = begins == "issue" and "queue" in op["stages"]
    if traced and (not latency or longer or traced["count"] != latency["count"]):
        yield _row("of traced", traced)
    rows = op["stages"] | ({"unaccounted": op["unaccounted"]} if "unaccounted" in op else {})
    for stage, figures in rows.items():
        known = whole and figures["sum"] is not None and stage != "resume"
        of_all = f"{part(min(1.0, figures['sum'] / whole)):>6}" if known else ""
        yield _row(called(stage, figures.get("includes", ())).column, figures) + of_all


def _not_passed(ops: _Json) -> Iterator[str]:
    """Stages that are measured and that none of the device's I/Os passed."""
    reasons: dict[str, list[str]] = {}
    for stage, why in {stage: why for op in ops.values() for stage, why in op["stages_absent"].items()}.items():
        if why.startswith(NOT_PASSED) and all(stage not in op["stages"] for op in ops.values()):
            reasons.setdefault(why.removeprefix(NOT_PASSED), []).append(stage)
    for why, stages in reasons.items():
        yield from wrapped(f"n/a: {', '.join(stages)} ({why})", "  ")


def _volume(op: _Json, seconds: float) -> str:
    said = f"{op['count']:,} I/Os"
    if seconds:
        said += f", {rate(op['count'] / seconds)}/s"
        said += f", {rate(op['bytes'] / seconds)}B/s" if op.get("bytes") else ""
    kernel = op.get("kernel")
    if "untimed" in op:
        said += f"; {op['untimed']:,} of them not timed"
    if kernel and kernel["count"] != op["count"]:
        said += f"; the kernel counted {kernel['count']:,}"
    if kernel and "latency_us" not in op and "mean_us" in kernel:
        said += f"; mean {spelled(kernel['mean_us'])} by the kernel's own clock"
        if "queue_mean_us" in kernel:
            queue, driver = (spelled(kernel[f"{part}_mean_us"]) for part in ("queue", "driver"))
            said += f": {queue} queued above the driver + {driver} in it"
    return said


def _row(stage: str, q: _Json) -> str:
    cells = [duration(q["mean"]), *(formatting.cell(q, name) for name in QUANTILES), formatting.top(q)]
    return f"    {stage:<11}{count(q['count']):>10}" + "".join(f"{cell:>7}" for cell in cells)


def _listed(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MAX_LISTED} more"] if len(lines) > MAX_LISTED else []
    return [part for line in (*lines[:MAX_LISTED], *more) for part in wrapped(line, "  ")]


_PLAIN = str.maketrans({"≤": "<", "≥": ">", "…": "~", "·": "."})


def plain(text: str, encoding: str) -> str:
    """The text as `encoding` can say it, each character still one: a line stays as long as it was."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    return text
