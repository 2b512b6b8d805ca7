"""Host tables of a report: softirqs, handlers, wake-ups, task queues, host context. Rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from latmon.aggregate.accumulator import TaskqSums
from latmon.analysis.attribution import by_vector
from latmon.model.devices import host_and_device
from latmon.model.frame import comm_of, pid_of
from latmon.model.host_context import CONTEXT, ContextKind, HostContext
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon.report.columns import REST, Column, ReportTable, quantile
from latmon.report.formatting import rounded
from latmon.report.issuers import Rows, sample_text
from latmon.report.latencies import quantiles, summed
from latmon.report.model import host
from latmon.report.model.latency import Quantiles
from latmon.report.model.report import Report
from latmon.support.host import priority_scales
from latmon.support.units import UNKNOWN

_ROOM = 20
"""Cells of the text report for the name of a thread that ran instead."""
_LOOPS = "permanent loops, not queue items"
MAX_THREADS = 1000
_NamedValue = tuple[str, host.HostValue]
_NamedSoftirq = tuple[str, host.Softirq]
TASKQS: Sequence[Column[host.TaskQueue]] = (
    Column("task queue", "name", lambda row: row.name, -25, None),
    Column("task queue", "name", lambda row: f"{row.name} {row.instance}"),
    Column("prio", "whole", lambda row: row.priority, 5),
    Column("threads", "whole", lambda row: row.threads, 8),
    Column("active", "whole", lambda row: row.active_max, 7),
    Column("waiting", "count", lambda row: _LOOPS if row.permanent_loops else row.waiting_max, 8),
    Column("most", "count", lambda row: None if row.permanent_loops else row.most, 7),
    Column("executed", "count", lambda row: None if row.permanent_loops else row.executed, 9),
    Column("mean run", "time", lambda row: None if row.permanent_loops else row.mean_run_us, 9),
)


def softirqs(runs_by_cpu: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, host.Softirq]:
    """Return a row per vector over all CPUs, with the number of runs on each CPU."""
    vectors = sorted(by_vector(runs_by_cpu).items())
    return {vector: _softirq(vector, runs, runs_by_cpu) for vector, runs in vectors}


def _softirq(vector: str, runs: SoftirqRuns, runs_by_cpu: Mapping[SoftirqCpu, SoftirqRuns]) -> host.Softirq:
    return host.Softirq(
        count=runs.run.count or runs.delay.count,
        delay_us=summed(runs.delay),
        run_us=summed(runs.run),
        ran_in=runs.ran_in,
        raised_in=runs.raised_in,
        cpus={at.cpu: on_cpu.run.count for at, on_cpu in sorted(runs_by_cpu.items()) if at.vector == vector},
    )


def irqs(runs_by_handler: Mapping[Handler, HandlerRuns]) -> tuple[host.InterruptHandler, ...]:
    """Return a row per handler.

    `before_us`: time in earlier handlers of its vector, or since the entry of its caller, before runs that it handled.
    """
    return tuple(
        host.InterruptHandler(
            irq=None if handler.irq == UNKNOWN_IRQ else handler.irq,
            handler=handler.name,
            device=runs.device or None,
            count=runs.run.count,
            run_us=summed(runs.run),
            returned=runs.returned,
            before_us=runs.before_us,
            shared_with=runs.shared_with,
            caller_irq=None if runs.caller == UNKNOWN_IRQ else runs.caller,
            affinity=runs.affinity or None,
            effective_affinity=runs.effective_affinity or None,
        )
        for handler, runs in sorted(runs_by_handler.items())
    )


def wakeups(threads: Iterable[Wakeups], left_out: int = 0) -> Rows[host.WokenThread]:
    """Return a row per thread, longest delay first; `left_out`: wake-ups of threads that are not in `threads`."""
    worst = sorted(threads, key=lambda woken: -(woken.delay.max_bound or 0))
    rows = tuple(
        host.WokenThread(
            thread=woken.thread.comm,
            pid=pid_of(woken.thread.pid),
            policy=woken.thread.policy,
            priority=woken.thread.priority,
            kernel=woken.thread.kernel,
            count=woken.delay.count,
            delay_us=quantiles(woken.delay),
            instead=woken.instead,
            ran_us=woken.ran_us,
        )
        for woken in worst[:MAX_THREADS]
    )
    left_out += sum(woken.delay.count for woken in worst[MAX_THREADS:])
    return Rows(rows, left_out if rows else 0)


def taskqs(sums: TaskqSums) -> Rows[host.TaskQueue] | None:
    """Return a row per task queue that was ever busy, the one with most waiting tasks first; None: not measured."""
    if not sums.read:
        return None
    rows = tuple(
        host.TaskQueue(
            name=queue.last.name,
            instance=queue.last.instance,
            priority=queue.last.priority,
            threads=queue.last.threads,
            permanent_loops=queue.last.loops,
            active_max=queue.active,
            waiting_max=queue.waiting,
            most=queue.last.most,
            tasks=queue.tasks,
            executed=queue.executed,
            mean_run_us=rounded(queue.mean_us, 3),
        )
        for queue in sums.rows
    )
    return Rows(rows, sums.left_out)


def host_context(context: HostContext) -> dict[str, host.HostValue]:
    """Return mean and highest window of each value in its unit. Of a fleet, names have the host in front."""
    known = [name for name in context if _context_of(name) in CONTEXT]
    values = {}
    for name in sorted(known, key=lambda name: host_and_device(name)[0]):
        kind, value = CONTEXT[_context_of(name)], context[name]
        mean, highest = kind.scaled(value.ratio), kind.scaled(value.highest)
        values[name] = host.HostValue(kind.unit, round(mean, 6), round(highest, 6))
    return values


def host_context_absent(measured: Iterable[str]) -> tuple[host.NamedReason, ...]:
    """Return why other values were not measured, of a fleet by no host; empty where none was measured."""
    contexts = {_context_of(name) for name in measured}
    absent = (host.NamedReason(name, kind.needs) for name, kind in CONTEXT.items() if name not in contexts)
    return tuple(absent) if contexts else ()


def _context_of(name: str) -> str:
    return host_and_device(name)[1]


def host_tables(report: Report) -> Iterator[ReportTable[Any]]:
    """Yield the tables of softirqs, handlers, wake-ups, task queues, host context; without rows if not measured."""
    sampled = sample_text(report)
    note = f"delay: from the raise to the entry; ran in: the most frequent{sampled}"
    yield ReportTable("Softirqs", SOFTIRQS, list(report.softirqs.items()), note)
    handlers = sorted(report.irqs, key=lambda row: -(row.run_us.sum or 0))
    note = "IRQ_NONE: share of runs that returned it (not handled); waited: for handlers before it in its interrupt"
    yield ReportTable("Interrupt handlers", IRQS, handlers, note, first="handler")
    left = report.wakeups_left_out
    scale = priority_scales(report.host.kernel)[0]
    yield ReportTable(
        "Woken threads",
        WAKEUPS,
        report.wakeups,
        f"times: from woken to running; instead: what ran meanwhile; prio: {scale}{sampled}",
        f"{left:,} wake-ups of other threads" if left else "",
    )
    left = report.taskqs_left_out
    yield ReportTable(
        "Task queues",
        TASKQS,
        report.taskqs or (),
        "active, waiting: the most in one sample; mean run: of a task, without its wait",
        f"{left:,} tasks of other queues" if left else "",
        none="" if report.taskqs is None else "no task queue was busy",
    )
    absent = [f"{CONTEXT[value.name].title} ({value.reason})" for value in report.host_context_absent]
    yield ReportTable(
        "Host",
        HOST_CONTEXT,
        list(report.host_context.items()),
        "highest: of one window; PSI: share of the time. All are of the whole host, and no cause by themselves",
        f"not measured: {', '.join(absent)}" if absent else "",
    )


def _kind(row: _NamedValue) -> ContextKind:
    return CONTEXT[_context_of(row[0])]


def _context_title(row: _NamedValue) -> str:
    return f"{host_and_device(row[0])[0]} {_kind(row).title}".strip()


HOST_CONTEXT: Sequence[Column[_NamedValue]] = (
    Column("host", "name", _context_title, -18, "value"),
    Column("mean", "words", lambda row: _kind(row).text(row[1].mean), 9),
    Column("highest", "words", lambda row: _kind(row).text(row[1].highest), 9),
    Column("of", "words", lambda row: _kind(row).includes, REST),
)


def _delay_us(row: _NamedSoftirq) -> Quantiles:
    return row[1].delay_us


def _softirq_run_us(row: _NamedSoftirq) -> Quantiles:
    return row[1].run_us


SOFTIRQS: Sequence[Column[_NamedSoftirq]] = (
    Column("softirq", "name", lambda row: row[0], -9),
    Column("runs", "count", lambda row: row[1].count, 9),
    quantile(_delay_us, "p50", "delay p50", 10),
    quantile(_delay_us, "p99", "p99", 7, "delay p99"),
    quantile(_delay_us, "p99.9", "delay p99.9"),
    quantile(_delay_us, "max", "max", 7, "delay max"),
    quantile(_softirq_run_us, "p50", "run p50"),
    quantile(_softirq_run_us, "p99", "run p99", 8),
    quantile(_softirq_run_us, "p99.9", "run p99.9"),
    quantile(_softirq_run_us, "max", "run max"),
    Column("ran in", "shares", lambda row: row[1].ran_in, REST),
)


def _not_handled(row: host.InterruptHandler) -> float | None:
    runs = sum(row.returned.values())
    return row.returned.get("none", 0) / runs if runs else None


def _sharers(row: host.InterruptHandler) -> str:
    shared = f", shared with {', '.join(row.shared_with)}" if row.shared_with else ""
    called = f", called by irq {row.caller_irq}" if row.caller_irq is not None else ""
    return f"{row.device or UNKNOWN}{_cpus(row)}{shared}{called}"


def _cpus(row: host.InterruptHandler) -> str:
    """Return `, on CPU 3 of 0-7`; empty where it isn't known."""
    if row.effective_affinity is None:
        return f", on CPU {row.affinity}" if row.affinity else ""
    may = f" of {row.affinity}" if row.affinity and row.affinity != row.effective_affinity else ""
    return f", on CPU {row.effective_affinity}{may}"


def _handler_run_us(row: host.InterruptHandler) -> Quantiles:
    return row.run_us


IRQS: Sequence[Column[host.InterruptHandler]] = (
    Column("irq", "words", lambda row: row.irq, -6),
    Column("handler", "name", lambda row: row.handler, -18),
    Column("runs", "count", lambda row: row.count, 9),
    Column("IRQ_NONE", "share", _not_handled, 9, None),
    quantile(_handler_run_us, "p50", "p50", 7),
    quantile(_handler_run_us, "p99", "p99", 7),
    quantile(_handler_run_us, "p99.9", "p99.9"),
    quantile(_handler_run_us, "max", "max"),
    Column("waited", "time", lambda row: row.before_us, 8),
    Column("returned", "shares", lambda row: row.returned),
    Column("device", "name", _sharers, REST),
)


def _thread(row: host.WokenThread) -> str:
    return f"{row.thread}/{UNKNOWN if row.pid is None else row.pid}"


def _ran_last(row: host.WokenThread) -> Mapping[str, int] | None:
    """Return how often each other thread ran last before it; None where it is known how long each ran."""
    return None if row.ran_us else row.instead


def _instead(row: host.WokenThread) -> str:
    """Return the thread that ran longest, else `after` and the one that ran last most often.

    Its priority is left out if both don't fit.
    """
    weights = row.ran_us or row.instead
    after = "" if row.ran_us or not weights else "after "
    room = _ROOM - len(after)
    name = max(weights, key=weights.__getitem__, default="")
    if len(name) > room:
        name = comm_of(name)
    return after + (name if len(name) <= room else name[: room - 1] + "…")


def _wakeup_us(row: host.WokenThread) -> Quantiles:
    return row.delay_us


WAKEUPS: Sequence[Column[host.WokenThread]] = (
    Column("woken thread", "name", lambda row: row.thread, -16, None),
    Column("thread", "name", _thread),
    Column("policy", "words", lambda row: row.policy[:6] or None, 7),
    Column("prio", "number", lambda row: row.priority, 5),
    Column("count", "count", lambda row: row.count, 8, "wake-ups"),
    quantile(_wakeup_us, "p50", "p50", 7),
    quantile(_wakeup_us, "p99", "p99", 7),
    quantile(_wakeup_us, "p99.9", "p99.9"),
    quantile(_wakeup_us, "max", "max", 7),
    Column("instead", "words", _instead, REST, None),
    Column("ran instead", "shares", lambda row: row.ran_us or None),
    Column("ran after", "shares", _ran_last),
)
