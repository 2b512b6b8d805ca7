"""What the records of one slow I/O say together: one Outlier. Pure, apart from the names that it asks for.

Of a request that both probes tell of, the deep probe's stages win. Knows nothing of waiting for records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from latmon.deep_tables import who
from latmon.manifest import Manifest, op_name
from latmon.manifest_parts import TIMES
from latmon.model import Outlier, Wait
from latmon.records import Record
from latmon_backends import request_flags
from latmon_backends.threads import UNKNOWN_PRIORITY, Threads

_SLACK_US = 1000
"""What may lie between a wake-up and the request's own stamp: two programs, one interrupt."""
_STAGES = {name: name.removesuffix("_us") for name in TIMES if name not in ("total_us", "unaccounted_us")}
_MOST_WAITS = 32
"""The longest of them: an I/O of seconds may wait for one thread hundreds of times, and a recording refuses 65."""
_SOFTIRQ_THREADS = ("ksoftirqd/", "ktimers/")


@dataclass(slots=True, eq=False)
class Told:
    """The records of one request."""

    done_ns: int
    always: Record | None = None
    deep: Record | None = None
    resumed: Record | None = None
    stands_in: bool = False
    """It is told although the always-on probe's rate limit left it out."""

    @property
    def whole(self) -> bool:
        return None not in (self.always, self.deep, self.resumed)

    def sources(self) -> Iterator[Record]:
        """The better one first."""
        return (one for one in (self.deep, self.always) if one is not None)

    def get(self, name: str) -> int | None:
        return next((value for one in self.sources() if (value := one.get(name)) is not None), None)

    @property
    def total_us(self) -> int | None:
        """To completion, as told, else from its two ends."""
        total, begun = self.get("total_us"), self.get("begun_ns")
        if total is None and begun is not None and begun <= self.done_ns:
            return (self.done_ns - begun) // 1000
        return total


@dataclass(frozen=True, slots=True)
class Names:
    """What records leave to others to know."""

    device: Callable[[int], str | None]
    """Of a kernel dev_t."""
    threads: Threads
    manifests: Mapping[str, Manifest]
    flag_bits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The same moment on two clocks."""

    wall: float
    mono_us: int


def outlier(told: Told, late: Mapping[int, list[Record]], names: Names, now: Moment) -> Outlier | None:
    """None where the records can't be: no total, or it began before the clock did. `late`: wake-ups by thread."""
    number, total, done_us = told.get("dev"), told.total_us, told.done_ns // 1000
    device = None if number is None else names.device(number)
    if device is None or total is None or done_us < total:
        return None
    stages, unaccounted = _stages(told, total)
    resume = told.resumed.get("resume_us") if told.resumed else None
    if resume is not None:
        stages["resume"] = resume
    begun = done_us - total
    manifest = names.manifests[next(told.sources()).probe]
    path = told.get("path")
    issuer = next((one for one in told.sources() if one.get("pid") is not None), None)
    return Outlier(
        wall=now.wall - (now.mono_us - begun) / 1e6,
        mono_us=begun,
        device=device,
        op=op_name(255 if (op := told.get("op")) is None else op & 0xFF),
        total_us=total + (resume or 0),
        stages_us=stages,
        unaccounted_us=unaccounted,
        flags=_flags(told, names.flag_bits),
        sector=told.get("sector"),
        bytes=told.get("bytes"),
        pid=issuer.get("pid") if issuer else None,
        comm=issuer.text if issuer else "",
        cpu_issue=told.get("cpu_issue"),
        cpu_complete=told.get("cpu_complete"),
        outstanding_at_issue=told.get("outstanding"),
        overtaken_by=told.get("overtaken"),
        path="" if path is None else _path(told, names, path),
        includes={stage: into for stage, into in manifest.includes.items() if stage in stages},
        waits=_waits(told, (begun, done_us, done_us + (resume or 0)), late, names.threads),
    )


def _stages(told: Told, total: int) -> tuple[dict[str, int], int]:
    """Of the best source that has any. Each is cut to whole us, so together they may lack some, never exceed."""
    for one in told.sources():
        stages = {stage: us for name, stage in _STAGES.items() if (us := one.get(name)) is not None}
        if stages and sum(stages.values()) <= total:
            return stages, total - sum(stages.values())
    return {}, total


def _flags(told: Told, bits: Mapping[str, int]) -> tuple[str, ...]:
    flags = told.get("flags")
    if flags is not None:
        return request_flags.of_bits(flags, bits)
    return next((request_flags.of_letters(one.rwbs) for one in told.sources() if one.rwbs), ())


def _path(told: Told, names: Names, code: int) -> str:
    probe = next(one.probe for one in told.sources() if one.get("path") is not None)
    return names.manifests[probe].path_name(code) or f"unknown code {code}"


def _waits(
    told: Told, times: tuple[int, int, int], late: Mapping[int, list[Record]], threads: Threads
) -> tuple[Wait, ...]:
    """Late wake-ups of the thread that completed the request before it did so, and of its waiter after."""
    begun, done, end = times
    completing = told.get("thread")
    waiter = told.resumed.get("thread") if told.resumed else None
    found = []
    known = {pid for pid in (completing, waiter) if pid is not None}
    for one in (one for pid in known for one in late.get(pid, ())):
        woken_ns, delay = one.get("woken_ns"), one.get("delay_us")
        if woken_ns is None or delay is None:
            continue
        pid, woken = one.fields["thread"], woken_ns // 1000
        if pid == completing and begun <= woken and woken + delay <= done + _SLACK_US:
            found.append(_wait("completion", one, (pid, woken, delay), threads))
        elif pid == waiter and done - _SLACK_US <= woken and woken + delay <= end + _SLACK_US:
            found.append(_wait("resume", one, (pid, woken, delay), threads))
    longest = sorted(found, key=lambda wait: wait.delay_us)[-_MOST_WAITS:]
    return tuple(sorted(longest, key=lambda wait: wait.woken_us))


def _wait(stage: str, late: Record, at: tuple[int, int, int], threads: Threads) -> Wait:
    pid, woken, delay = at
    comm, priority, instead = late.text or threads.of(pid).comm, late.get("priority"), late.get("instead")
    if stage == "completion" and comm.startswith(_SOFTIRQ_THREADS):
        stage = "softirq"
    return Wait(
        stage,
        comm,
        pid,
        UNKNOWN_PRIORITY if priority is None else priority,
        woken,
        delay,
        "" if instead is None else who(threads.of, instead, late.get("instead_priority")),
    )
