"""Reader of the host's context in /proc, as cumulative sums, and the difference of two samples.

Seven files take 5 to 40 us of CPU each on a host with two CPUs. A file is read again after 1,000 times the CPU time of
its last reading, so that each costs at most 0.1 % of a CPU where it takes longer (/proc/stat and /proc/net/snmp add up
all CPUs). An interval without a new reading has no value; the next one covers its time as well.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from latmon.model.host_context import ContextValue, interval_value
from latmon.support.paths import content

_PACE = 1000
"""Least time between two readings of a file, in times of a reading's CPU time: a preempted one costs nothing."""
_LATER_NS = 60_000_000_000
"""Longest time between two readings, and that after which a file that doesn't exist is looked for again: modules are
loaded later."""
_STEAL, _CPU_TIMES = 7, 8
"""user nice system idle iowait irq softirq steal; the guest times after them are in user and nice."""
_PSI_TOTAL = re.compile(rb"^(some|full) .*\btotal=(\d+)", re.MULTILINE)
_PAGES = re.compile(rb"\nnr_(dirty|writeback) (\d+)")
"""A literal newline, not `^`: the file has 170 lines, and a search for a literal prefix takes a tenth of the time."""
_ALLOCSTALL = re.compile(rb"\nallocstall\w* (\d+)")
_ARC_SIZE = re.compile(rb"^size +\d+ +(\d+)$", re.MULTILINE)
_NFS_RPC = re.compile(rb"^rpc \d+ (\d+)", re.MULTILINE)

Cumulative = tuple[int, int]
"""Total and weight, as in ContextValue, since any begin."""
_Parsed = Iterator[tuple[str, int, int]]
"""Name, total and weight of a value; a weight of 0 means the time of the reading."""


@dataclass(slots=True)
class _File:
    """A file of /proc with the sums of its last reading."""

    path: Path
    parse: Callable[[bytes], _Parsed]
    due_ns: int = 0
    sums: dict[str, Cumulative] = field(default_factory=dict)

    def read(self, now_ns: Callable[[], int], cpu_ns: Callable[[], int]) -> None:
        """Read the file if it is due."""
        began_ns, spent_ns = now_ns(), cpu_ns()
        if began_ns < self.due_ns:
            return
        data = content(self.path)
        self.due_ns = began_ns + min(_PACE * (cpu_ns() - spent_ns) if data else _LATER_NS, _LATER_NS)
        before, self.sums = self.sums, {}
        for name, total, weight in self.parse(data):
            had = before.get(name, (0, 0)) if name in _SIZES else (0, 0)
            self.sums[name] = had[0] + total, had[1] + (weight or began_ns // 1000)


_SIZES = frozenset(("dirty", "writeback", "arc"))
"""Values that are no counters: their readings are added up."""


def _psi(resource: str, *kinds: str) -> Callable[[bytes], _Parsed]:
    def parse(data: bytes) -> _Parsed:
        for kind, total in _PSI_TOTAL.findall(data):
            if (name := kind.decode()) in kinds:
                yield f"psi_{resource}_{name}", int(total), 0

    return parse


def _stat(data: bytes) -> _Parsed:
    """Yield the share of steal in all CPU time, in ticks."""
    fields = data.partition(b"\n")[0].split()
    times = [int(one) for one in fields[1 : 1 + _CPU_TIMES] if one.isdigit()]
    if fields[:1] == [b"cpu"] and len(times) == _CPU_TIMES:
        yield "steal", times[_STEAL], sum(times)


def _vmstat(data: bytes) -> _Parsed:
    page = os.sysconf("SC_PAGE_SIZE")
    for name, pages in _PAGES.findall(data):
        yield name.decode(), int(pages) * page, 1
    if stalls := _ALLOCSTALL.findall(data):  # one per zone since 4.10
        yield "direct_reclaims", sum(map(int, stalls)), 0


def _arcstats(data: bytes) -> _Parsed:
    if found := _ARC_SIZE.search(data):
        yield "arc", int(found[1]), 1


def _snmp(data: bytes) -> _Parsed:
    rows = [line.split() for line in data.splitlines() if line.startswith(b"Tcp:")]
    values = dict(zip(*rows, strict=False)) if len(rows) == 2 else {}  # noqa: PLR2004 - names and numbers
    if (found := values.get(b"RetransSegs", b"")).isdigit():
        yield "tcp_retransmits", int(found), 0


def _nfs(data: bytes) -> _Parsed:
    if found := _NFS_RPC.search(data):
        yield "nfs_retransmits", int(found[1]), 0


_FILES: Mapping[str, Callable[[bytes], _Parsed]] = {
    # "full" of cpu is always 0 for a whole host
    "pressure/cpu": _psi("cpu", "some"),
    "pressure/io": _psi("io", "some", "full"),
    "pressure/memory": _psi("memory", "some", "full"),
    "pressure/irq": _psi("irq", "full"),
    "stat": _stat,
    "vmstat": _vmstat,
    "spl/kstat/zfs/arcstats": _arcstats,
    "net/snmp": _snmp,
    "net/rpc/nfs": _nfs,
}


class HostContextReader:
    """Reader of all files; those that don't exist have no values."""

    def __init__(
        self,
        proc: Path,
        now_ns: Callable[[], int] = time.monotonic_ns,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._files = [_File(proc / name, parse) for name, parse in _FILES.items()]
        self._now_ns, self._cpu_ns = now_ns, cpu_ns

    def sample(self) -> dict[str, Cumulative]:
        """Return the cumulative sums as of the last reading of each file."""
        found: dict[str, Cumulative] = {}
        for one in self._files:
            one.read(self._now_ns, self._cpu_ns)
            found |= one.sums
        return found


def difference(before: Mapping[str, Cumulative], after: Mapping[str, Cumulative]) -> dict[str, ContextValue]:
    """Return the values of the time between two samples; none of a file without a new reading, or that restarted."""
    found: dict[str, ContextValue] = {}
    for name, (total, weight) in after.items():
        if name in before:
            grown, span = total - before[name][0], weight - before[name][1]
            if grown >= 0 and span > 0:
                found[name] = interval_value(grown, span)
    return found
