"""Host tables of a report: who issued, softirqs, handlers, wake-ups, task queues, host context. JSON rows, columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from latmon.aggregate.accumulator import TaskqSums
from latmon.analysis.attribution import IssuerRow, by_vector, issuer_rows
from latmon.model.devices import host_and_device
from latmon.model.frame import OPS, PROCESSES, comm_of, pid_of
from latmon.model.host_context import CONTEXT, HostContext
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon.report.formatting import REST, Column, ReportTable, key, per_second, quantile, quantiles, rounded, summed
from latmon.support.host import priority_scales
from latmon.support.units import UNKNOWN, part, rate
from latmon.views.units import sampled_as

MAX_THREADS = 1000
MAX_ISSUERS = 1000
MAX_BEHIND = 8
"""Cgroups that another one is behind."""


def issuers(found: Mapping[Issuer, IssuedIO], behind: Mapping[Behind, int]) -> dict[str, Any]:
    """Return a row per cgroup with I/Os, and one per traced process, those with most of the time first.

    `behind`: the cgroups that the device served while a cgroup's I/Os were in flight, with the share of their time.

    `cgroups_left_out`, `processes_left_out`: I/Os without a row.
    """
    reported: dict[str, Any] = {}
    for name, processes in (("cgroups", False), (PROCESSES, True)):
        rows = issuer_rows(found, {one.device for one in found}, processes=processes, behind=behind)
        names = {one.issuer.cgroup: one.issuer.name for one in rows}
        parts: dict[tuple[Hashable, str, str], dict[Issuer, IssuedIO]] = {}
        for issuer, done in found.items():
            if issuer.is_process is processes:
                parts.setdefault((issuer[2:], issuer.device, issuer.op), {})[issuer] = done
        left = sum(one.ios for one in rows[MAX_ISSUERS:])
        if rows:
            reported[name] = [
                _issuer(one, parts) | ({"behind": _shares(one.behind, names)} if one.behind else {})
                for one in rows[:MAX_ISSUERS]
            ]
        if left:
            reported[f"{name}_left_out"] = left
    return reported


_Parts = Mapping[tuple[Hashable, str, str], Mapping[Issuer, IssuedIO]]


def _issuer(one: IssuerRow, parts: _Parts) -> dict[str, Any]:
    by = one.issuer
    return {
        **({"pid": by.pid or None, "comm": by.comm} if by.is_process else {}),
        "cgroup": by.cgroup,
        "name": by.name,
        **({"container": by.container} if by.container else {}),
        **_issued(one, one.share),
        **({"count": None} if "" in one.devices else {}),
        "devices": {
            device: _issued(each, each.share)
            | {"ops": {op: _issued(part) for op in OPS for part in _of_op(parts, by, device, op)}}
            for device, each in one.devices.items()
            if device  # bytes by /proc/PID/io have none
        },
    }


def _shares(behind: Mapping[str, float], names: Mapping[str, str]) -> list[dict[str, Any]]:
    most = list(behind.items())[:MAX_BEHIND]
    return [{"cgroup": one, "name": names.get(one, one), "share": rounded(share, 4)} for one, share in most]


def _of_op(parts: _Parts, by: Issuer, device: str, op: str) -> list[IssuerRow]:
    """Return the issuer's I/Os of one op to one device; their share is of themselves, which says nothing."""
    return issuer_rows(parts.get((by[2:], device, op), {}), {device}, {op}, processes=by.is_process)


def _issued(one: IssuerRow, share: float | None = None) -> dict[str, Any]:
    timed = {"latency_us": summed(one.latency)} if one.latency else {}
    part = {} if share is None else {"share": rounded(share, 4)}
    return {"count": one.ios, "bytes": one.bytes, **part, **timed}


def softirqs(found: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    """Return a row per vector over all CPUs, with the number of runs on each CPU."""
    reported = {vector: _softirq(vector, runs, found) for vector, runs in sorted(by_vector(found).items())}
    return {"softirqs": reported} if reported else {}


def irqs(found: Mapping[Handler, HandlerRuns]) -> dict[str, Any]:
    """Return a row per handler.

    `before_us`: time in earlier handlers of its vector, or since the entry of its caller, before runs that it handled.
    """
    rows = [
        {
            "irq": None if handler.irq == UNKNOWN_IRQ else handler.irq,
            "handler": handler.name,
            "device": runs.device or None,
            "count": runs.run.count,
            "run_us": summed(runs.run),
            "returned": dict(runs.returned),
            "before_us": runs.before_us,
            "shared_with": list(runs.shared_with),
            "caller_irq": None if runs.caller == UNKNOWN_IRQ else runs.caller,
        }
        for handler, runs in sorted(found.items())
    ]
    return {"irqs": rows} if rows else {}


def wakeups(found: Iterable[Wakeups], left_out: int = 0) -> dict[str, Any]:
    """Return a row per thread, longest delay first; `left_out`: wake-ups of threads that are not in `found`."""
    worst = sorted(found, key=lambda one: -(one.delay.max_bound or 0))
    rows = [
        {
            "thread": one.thread.comm,
            "pid": pid_of(one.thread.pid),
            "policy": one.thread.policy,
            "priority": one.thread.priority,
            "kernel": one.thread.kernel,
            "count": one.delay.count,
            "delay_us": quantiles(one.delay),
            "instead": dict(one.instead),
            **({"ran_us": dict(one.ran_us)} if one.ran_us else {}),
        }
        for one in worst[:MAX_THREADS]
    ]
    left_out += sum(one.delay.count for one in worst[MAX_THREADS:])
    return {"wakeups": rows, **({"wakeups_left_out": left_out} if left_out else {})} if rows else {}


def taskqs(sums: TaskqSums) -> dict[str, Any]:
    """Return a row per task queue that was ever busy, the one with most waiting tasks first."""
    if not sums.read:
        return {}
    rows = [
        {
            "name": one.last.name,
            "instance": one.last.instance,
            "priority": one.last.priority,
            "threads": one.last.threads,
            "permanent_loops": one.last.loops,
            "active_max": one.active,
            "waiting_max": one.waiting,
            "most": one.last.most,
            "tasks": one.tasks,
            "executed": one.executed,
            "mean_run_us": rounded(one.mean_us, 3),
        }
        for one in sums.rows
    ]
    return {"taskqs": rows, **({"taskqs_left_out": sums.left_out} if sums.left_out else {})}


def host_context(found: HostContext) -> dict[str, Any]:
    """Return mean and highest window of each value in its unit, and why others were not measured; empty without any.

    Of a fleet, names have the host in front, and `host_context_absent` has what no host measured.
    """
    known = [(name, CONTEXT[kind], one) for name, one in found.items() if (kind := host_and_device(name)[1]) in CONTEXT]
    if not known:
        return {}
    rows = {
        name: {
            "unit": kind.unit,
            "mean": rounded(kind.scaled(one.ratio), 6),
            "highest": rounded(kind.scaled(one.highest), 6),
        }
        for name, kind, one in sorted(known, key=lambda row: host_and_device(row[0])[0])
    }
    there = {host_and_device(name)[1] for name in rows}
    absent = [{"name": name, "reason": kind.needs} for name, kind in CONTEXT.items() if name not in there]
    return {"host_context": rows, **({"host_context_absent": absent} if absent else {})}


def _softirq(vector: str, runs: SoftirqRuns, every: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    return {
        "count": runs.run.count or runs.delay.count,
        "delay_us": summed(runs.delay),
        "run_us": summed(runs.run),
        "ran_in": dict(runs.ran_in),
        "raised_in": dict(runs.raised_in),
        "cpus": {str(at.cpu): one.run.count for at, one in sorted(every.items()) if at.vector == vector},
    }


_ROOM = 20
"""Cells of the text report for the name of a thread that ran instead."""
_LOOPS = "permanent loops, not queue items"
_Json = Mapping[str, Any]


def _most_behind(row: _Json) -> str:
    """Return the share of its time in which the device served another cgroup's I/Os, and the name of that one."""
    others = (one for one in row.get("behind", ()) if one["cgroup"] != row["cgroup"])
    return next((f"{part(one['share'])} {one['name']}" for one in others), "")


def cgroup_table(summary: _Json) -> ReportTable:
    """Return the table of cgroups; without rows if they were not measured."""
    found = [{**one, "seconds": summary["measured_s"]} for one in summary.get("cgroups", [])]
    left = summary.get("cgroups_left_out", 0)
    return ReportTable(
        "Cgroups",
        CGROUPS,
        found,
        "share: of the time of all I/Os, so of those in flight; the kernel decides which cgroup an I/O belongs to",
        f"{left:,} I/Os of other cgroups" if left else "",
    )


def _sample(summary: _Json) -> str:
    """Return the sample that the tracer took as the end of a sentence; empty where it took none."""
    traced = summary["health"].get("traced", {"one_in": 1})
    sample = sampled_as(traced.get("one_in_least", traced["one_in"]), traced["one_in"])
    return sample and f"; a sample of {sample}"


def process_table(summary: _Json) -> ReportTable:
    """Return the table of processes; without rows if none was traced."""
    left, rows = summary.get("processes_left_out", 0), summary.get(PROCESSES, [])
    note = (
        "counted while the tracer ran; share: of the time of these I/Os; writeback is of a kworker, in the cgroup "
        f"that dirtied the pages, and so is what a cgroup's limit held back, in that cgroup{_sample(summary)}"
    )
    if rows and all(one["count"] is None for one in rows):
        note = "bytes by /proc/PID/io: nothing counts their I/Os, devices or latencies; written is what they made dirty"
    return ReportTable(
        "Processes",
        PROCESS_COLUMNS,
        rows,
        note,
        f"{left:,} I/Os of other processes" if left else "",
    )


CGROUPS = (
    Column("cgroup", "name", key("name"), -27),
    Column("path", "name", key("cgroup")),
    Column("I/Os", "count", key("count"), 9),
    Column("IOPS", "words", lambda row: per_second(row["count"], row["seconds"]), 7),
    Column("MB/s", "words", lambda row: per_second(row["bytes"] / 1e6, row["seconds"]), 7),
    Column("p50", "quantile", lambda row: _timed(row, "p50"), 7),
    Column("p99", "quantile", lambda row: _timed(row, "p99"), 7),
    Column("p99.9", "quantile", lambda row: _timed(row, "p99.9")),
    Column("max", "quantile", lambda row: _timed(row, "max"), 7),
    Column("share", "share", lambda row: row.get("share"), 7),
    Column("devices", "name", lambda row: ", ".join(row["devices"])),
    Column("behind", "name", _most_behind),
)


PROCESS_COLUMNS = (
    Column("process", "name", lambda row: issuer_label(row["comm"], row["pid"]), -22),
    Column("cgroup", "name", key("name"), -13),
    Column("I/Os", "count", key("count"), 9),
    Column("MB", "words", lambda row: rate(row["bytes"] / 1e6), 7),
    *CGROUPS[5:-1],  # behind is of cgroups alone
)


def issuer_label(comm: str, pid: int | None) -> str:
    """Return the name and the pid of a process, or of those without a row of their own."""
    return f"{comm or UNKNOWN} {pid}" if pid else comm


def _timed(row: _Json, at: str) -> tuple[_Json, str] | None:
    return (row["latency_us"], at) if "latency_us" in row else None


def host_tables(summary: _Json) -> Iterator[ReportTable]:
    """Yield the tables of softirqs, handlers, wake-ups, task queues, host context; without rows if not measured."""
    sampled = _sample(summary)
    found = [{"vector": vector, **one} for vector, one in summary.get("softirqs", {}).items()]
    note = f"delay: from the raise to the entry; ran in: the most frequent{sampled}"
    yield ReportTable("Softirqs", SOFTIRQS, found, note)
    handlers = sorted(summary.get("irqs", []), key=lambda one: -(one["run_us"]["sum"] or 0))
    note = "IRQ_NONE: share of runs that returned it (not handled); waited: for handlers before it in its interrupt"
    yield ReportTable("Interrupt handlers", IRQS, handlers, note, first="handler")
    left = summary.get("wakeups_left_out", 0)
    scale = priority_scales(summary["host"]["kernel"])[0]
    yield ReportTable(
        "Woken threads",
        WAKEUPS,
        summary.get("wakeups", []),
        f"times: from woken to running; instead: what ran meanwhile; prio: {scale}{sampled}",
        f"{left:,} wake-ups of other threads" if left else "",
    )
    left = summary.get("taskqs_left_out", 0)
    yield ReportTable(
        "Task queues",
        TASKQS,
        summary.get("taskqs", []),
        "active, waiting: the most in one sample; mean run: of a task, without its wait",
        f"{left:,} tasks of other queues" if left else "",
        none="no task queue was busy" if "taskqs" in summary else "",
    )
    absent = [f"{CONTEXT[one['name']].title} ({one['reason']})" for one in summary.get("host_context_absent", [])]
    yield ReportTable(
        "Host",
        HOST_CONTEXT,
        [{"name": name, **one} for name, one in summary.get("host_context", {}).items()],
        "highest: of one window; PSI: share of the time. All are of the whole host, and no cause by themselves",
        f"not measured: {', '.join(absent)}" if absent else "",
    )


def _context_amount(key: str) -> Callable[[_Json], str]:
    return lambda row: CONTEXT[host_and_device(row["name"])[1]].text(row[key])


def _context_title(row: _Json) -> str:
    host, name = host_and_device(row["name"])
    return f"{host} {CONTEXT[name].title}".strip()


HOST_CONTEXT = (
    Column("host", "name", _context_title, -18, "value"),
    Column("mean", "words", _context_amount("mean"), 9),
    Column("highest", "words", _context_amount("highest"), 9),
    Column("of", "words", lambda row: CONTEXT[host_and_device(row["name"])[1]].includes, REST),
)


SOFTIRQS = (
    Column("softirq", "name", key("vector"), -9),
    Column("runs", "count", key("count"), 9),
    quantile("delay_us", "p50", "delay p50", 10),
    quantile("delay_us", "p99", "p99", 7, "delay p99"),
    quantile("delay_us", "p99.9", "delay p99.9"),
    quantile("delay_us", "max", "max", 7, "delay max"),
    quantile("run_us", "p50", "run p50"),
    quantile("run_us", "p99", "run p99", 8),
    quantile("run_us", "p99.9", "run p99.9"),
    quantile("run_us", "max", "run max"),
    Column("ran in", "shares", key("ran_in"), REST),
)


def _not_handled(row: _Json) -> float | None:
    runs = sum(row["returned"].values())
    return row["returned"].get("none", 0) / runs if runs else None


def _sharers(row: _Json) -> str:
    shared = f", shared with {', '.join(row['shared_with'])}" if row["shared_with"] else ""
    called = f", called by irq {row['caller_irq']}" if row["caller_irq"] is not None else ""
    return f"{row['device'] or UNKNOWN}{shared}{called}"


IRQS = (
    Column("irq", "words", key("irq"), -6),
    Column("handler", "name", key("handler"), -18),
    Column("runs", "count", key("count"), 9),
    Column("IRQ_NONE", "share", _not_handled, 9, None),
    quantile("run_us", "p50", "p50", 7),
    quantile("run_us", "p99", "p99", 7),
    quantile("run_us", "p99.9", "p99.9"),
    quantile("run_us", "max", "max"),
    Column("waited", "time", key("before_us"), 8),
    Column("returned", "shares", key("returned")),
    Column("device", "name", _sharers, REST),
)


def _thread(row: _Json) -> str:
    return f"{row['thread']}/{UNKNOWN if row['pid'] is None else row['pid']}"


def _ran_last(row: _Json) -> Mapping[str, int] | None:
    """Return how often each other thread ran last before it; None where it is known how long each ran."""
    counts: Mapping[str, int] = row["instead"]
    return None if row.get("ran_us") else counts


def _instead(row: _Json) -> str:
    """Return the thread that ran longest, else `after` and the one that ran last most often.

    Its priority is left out if both don't fit.
    """
    weights: Mapping[str, int] = row.get("ran_us") or row["instead"]
    after = "" if row.get("ran_us") or not weights else "after "
    room = _ROOM - len(after)
    name = max(weights, key=weights.__getitem__, default="")
    if len(name) > room:
        name = comm_of(name)
    return after + (name if len(name) <= room else name[: room - 1] + "…")


WAKEUPS = (
    Column("woken thread", "name", key("thread"), -16, None),
    Column("thread", "name", _thread),
    Column("policy", "words", lambda row: row["policy"][:6] or None, 7),
    Column("prio", "number", key("priority"), 5),
    Column("count", "count", key("count"), 8, "wake-ups"),
    quantile("delay_us", "p50", "p50", 7),
    quantile("delay_us", "p99", "p99", 7),
    quantile("delay_us", "p99.9", "p99.9"),
    quantile("delay_us", "max", "max", 7),
    Column("instead", "words", _instead, REST, None),
    Column("ran instead", "shares", lambda row: row.get("ran_us")),
    Column("ran after", "shares", _ran_last),
)


def _queued(name: str) -> Callable[[_Json], Any]:
    return lambda row: None if row["permanent_loops"] else row[name]


TASKQS = (
    Column("task queue", "name", key("name"), -25, None),
    Column("task queue", "name", lambda row: f"{row['name']} {row['instance']}"),
    Column("prio", "whole", key("priority"), 5),
    Column("threads", "whole", key("threads"), 8),
    Column("active", "whole", key("active_max"), 7),
    Column("waiting", "count", lambda row: _LOOPS if row["permanent_loops"] else row["waiting_max"], 8),
    Column("most", "count", _queued("most"), 7),
    Column("executed", "count", _queued("executed"), 9),
    Column("mean run", "time", _queued("mean_run_us"), 9),
)
