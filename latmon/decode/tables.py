"""Decoder of the maps of handlers, softirqs and wake-ups, to the tables of the model.

Pure functions of (map, its gains) pairs, and `Ahead`: the gains of one map before another map was printed. Given
functions name threads and handlers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from latmon.decode.map_deltas import Counts
from latmon.manifest.schema import ROLES, KeyPart, MapSpec
from latmon.model.frame import Handler, HandlerRuns, SoftirqCpu, SoftirqRuns, Thread, Wakeups
from latmon.model.histogram import Histogram, within

Gains = Iterable[tuple[MapSpec, Counts]]
Whose = tuple[int, ...]
VECTORS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""By their numbers in include/linux/interrupt.h, the same since 4.1."""
RETURNED = ("none", "handled", "wake", "wake")
"""IRQ_NONE, IRQ_HANDLED, IRQ_WAKE_THREAD; the last is both of them."""


_COUNTED = {
    "handler_sum": "handler_run",
    "handler_before": "handler_run",
    "softirq_delay_sum": "softirq_delay",
    "softirq_run_sum": "softirq_run",
    "wakeup_sum": "wakeup",
    "wakeup_instead": "wakeup",
}
"""Role of a map -> role of the map that counts the same runs."""


class Ahead:
    """Gains of runs that are not counted yet, kept for the interval whose buckets contain those runs."""

    def __init__(self) -> None:
        self._waiting: dict[str, Counts] = {}

    def settled(self, gains: Gains) -> list[tuple[MapSpec, Counts]]:
        """Return the gains that belong to the interval's runs, with those kept for them."""
        every = list(gains)
        return [
            (spec, self._of_runs(spec, gained, every) if spec.role in _COUNTED else gained) for spec, gained in every
        ]

    def _of_runs(self, spec: MapSpec, gained: Counts, every: Gains) -> Counts:
        have = Counter(self._waiting.get(spec.name, {}))
        have.update(gained)
        names = [name for name in ROLES[spec.role] if name != "other"]
        parts = [spec.part(name) for name in names]
        runs = _buckets(every, _COUNTED[spec.role], names)
        if spec.role.endswith("_sum"):
            now = _sums(have, runs, parts)
        else:
            now = {key: n for key, n in have.items() if _whose(parts, key) in runs}
        have.subtract(now)
        self._waiting[spec.name] = {key: n for key, n in have.items() if n}
        return now


def handlers(gains: Gains, named: Callable[[int], Handler]) -> dict[Handler, HandlerRuns]:
    """Return the runs by handler, for all return values."""
    runs: defaultdict[Handler, Counts] = defaultdict(Counter)
    returned: defaultdict[Handler, Counter[str]] = defaultdict(Counter)
    sums: Counter[Handler] = Counter()
    before: Counter[Handler] = Counter()
    for spec, key, n in _rows(gains, "handler"):
        handler = named(spec.part("handler").read(key))
        if spec.role == "handler_before":
            before[handler] += n
        elif spec.role == "handler_sum":
            sums[handler] += n
        else:
            code = spec.part("returned").read(key)
            runs[handler][spec.part("bucket").read(key)] += n
            returned[handler][RETURNED[code] if code < len(RETURNED) else "none"] += n
    return {
        handler: HandlerRuns(Histogram.of(counts, sums[handler]), dict(returned[handler]), before[handler])
        for handler, counts in runs.items()
    }


def softirqs(gains: Gains) -> dict[SoftirqCpu, SoftirqRuns]:
    """Return the runs by vector and CPU; a vector that was raised and hasn't run yet has only delays or raises."""
    counts: defaultdict[tuple[str, SoftirqCpu], Counts] = defaultdict(Counter)
    sums: Counter[tuple[str, SoftirqCpu]] = Counter()
    where: defaultdict[tuple[str, SoftirqCpu], Counter[str]] = defaultdict(Counter)
    for spec, key, n in _rows(gains, "softirq_"):
        at = spec.role, SoftirqCpu(_vector(spec.part("vec").read(key)), spec.part("cpu").read(key))
        if spec.role.endswith("_sum"):
            sums[at] += n
        elif spec.role.endswith("_in"):
            where[at][_context(spec, key)] += n
        else:
            counts[at][spec.part("bucket").read(key)] += n

    def histogram(role: str, at: SoftirqCpu) -> Histogram:
        found = counts.get((role, at), {})
        return Histogram.of(found, sums[f"{role}_sum", at]) if found else Histogram()

    return {
        at: SoftirqRuns(
            histogram("softirq_delay", at),
            histogram("softirq_run", at),
            dict(where.get(("softirq_ran_in", at), {})),
            dict(where.get(("softirq_raised_in", at), {})),
        )
        for at in sorted({at for _, at in (*counts, *where)})
    }


def wakeups(gains: Gains, thread: Callable[[int], Thread]) -> tuple[Wakeups, ...]:
    """Return the wake-ups by thread, in the order of their pids."""
    delays: defaultdict[int, Counts] = defaultdict(Counter)
    sums: Counter[int] = Counter()
    instead: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for spec, key, n in _rows(gains, "wakeup"):
        pid = spec.part("thread").read(key)
        if spec.role == "wakeup_sum":
            sums[pid] += n
        elif spec.role == "wakeup_instead":
            instead[pid][who(thread, spec.part("other").read(key)) or "idle"] += n
        else:
            delays[pid][spec.part("bucket").read(key)] += n
    return tuple(
        Wakeups(thread(pid), Histogram.of(counts, sums[pid]), dict(instead.get(pid, {})))
        for pid, counts in sorted(delays.items())
    )


def who(thread: Callable[[int], Thread], pid: int, priority: int | None = None) -> str:
    """Return `comm (prio N)`; empty for the idle task, the pid where no name is known."""
    if pid == 0:
        return ""
    found = thread(pid)
    prio = found.priority if priority is None else priority
    return f"{found.comm or f'pid {pid}'} (prio {prio})" if prio >= 0 else found.comm or f"pid {pid}"


def _rows(gains: Gains, role: str) -> Iterable[tuple[MapSpec, int, int]]:
    return ((spec, key, n) for spec, counts in gains if spec.role.startswith(role) for key, n in counts.items())


def _whose(parts: Sequence[KeyPart], key: int) -> Whose:
    return tuple(part.read(key) for part in parts)


def _buckets(gains: Gains, role: str, names: Sequence[str]) -> dict[Whose, Counts]:
    """Return the counts by the parts that the keys of another map have as well."""
    found: defaultdict[Whose, Counts] = defaultdict(Counter)
    for spec, counts in gains:
        if spec.role == role:
            parts, bucket = [spec.part(name) for name in names], spec.part("bucket")
            for key, n in counts.items():
                found[_whose(parts, key)][bucket.read(key)] += n
    return found


def _sums(have: Counts, runs: Mapping[Whose, Counts], parts: Sequence[KeyPart]) -> Counts:
    """Return each sum, limited to the time that its runs can have taken."""
    keys = {_whose(parts, key): key for key in have}
    for whose in runs.keys() - keys.keys():
        keys[whose] = sum(value << part.shift for part, value in zip(parts, whose, strict=True))
    return {keys[whose]: within(counts, have.get(keys[whose], 0)) for whose, counts in runs.items()}


def _vector(number: int) -> str:
    return VECTORS[number] if number < len(VECTORS) else f"vector {number}"


def _context(spec: MapSpec, key: int) -> str:
    code = spec.part("context").read(key)
    return spec.contexts[code] if code < len(spec.contexts) else "other"
