"""Host context: what the host as a whole did in an interval, such as PSI, CPU steal, dirty pages and TCP retransmits.

A value is a sum with its weight, so that intervals add up exactly. `CONTEXT` is the table of all values. None of them
belongs to a device, and none is the cause of a slow I/O by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from latmon.support.units import part, rate, show_size

ContextUnit = Literal["share", "per_s", "bytes"]
SHARE: Final = "share"
PER_S: Final = "per_s"
BYTES: Final = "bytes"
"""Units: of the time or of the CPU time (0..1); events per second; bytes, the mean of the readings."""
NO_CONTEXT: HostContext = MappingProxyType({})
_PSI = "no /proc/pressure: a kernel without CONFIG_PSI, or booted with psi=0"


@dataclass(frozen=True, slots=True)
class ContextValue:
    """A value over an interval, or over any number of them."""

    total: int
    """In the unit of `weight` for a share; events; the sum of the readings of a size."""
    weight: int
    """Above 0: us in which it was measured, CPU ticks (steal), or the number of readings (sizes)."""
    highest: float = 0.0
    """The greatest `total / weight` of an interval."""

    @property
    def ratio(self) -> float:
        """Return the mean of a share or a size; events per us."""
        return self.total / self.weight

    def plus(self, later: ContextValue) -> ContextValue:
        """Return the value over both intervals."""
        return ContextValue(self.total + later.total, self.weight + later.weight, max(self.highest, later.highest))


HostContext = Mapping[str, ContextValue]
"""Name of a value in CONTEXT, in a fleet with the host in front (`db1:steal`) -> its value; a missing one wasn't
measured."""


def interval_value(total: int, weight: int) -> ContextValue:
    """Return the value of one interval; `weight` is above 0."""
    return ContextValue(total, weight, total / weight)


class ContextKind(NamedTuple):
    """A row of CONTEXT."""

    title: str
    """As users read it."""
    short: str
    """In five cells."""
    unit: ContextUnit
    includes: str
    """What is counted."""
    needs: str
    """Why it may not be measured on a Linux host."""

    def scaled(self, ratio: float) -> float:
        """Return a ratio of a ContextValue in `unit`. A share is at most 1: files are not read at the same instant."""
        return min(ratio, 1.0) if self.unit == SHARE else ratio * 1e6 if self.unit == PER_S else ratio

    def text(self, value: float) -> str:
        """Return a value in `unit` with that unit: 12%, 3/s, 1.2 GiB."""
        return (
            part(value) if self.unit == SHARE else f"{rate(value)}/s" if self.unit == PER_S else show_size(round(value))
        )


def _psi(what: str, short: str, how: str) -> ContextKind:
    title = f"PSI {what.replace('_', ' ')}"
    return ContextKind(title, short, SHARE, how, _PSI)


CONTEXT: Mapping[str, ContextKind] = MappingProxyType(
    {
        "psi_cpu_some": _psi("cpu_some", "cpu", "a runnable task waited for a CPU"),
        "psi_io_some": _psi("io_some", "io", "a task waited for I/O"),
        "psi_io_full": _psi("io_full", "io*", "all tasks that were not idle waited for I/O"),
        "psi_memory_some": _psi("memory_some", "mem", "a task waited for memory"),
        "psi_memory_full": _psi("memory_full", "mem*", "all tasks that were not idle waited for memory"),
        "psi_irq_full": ContextKind(
            "PSI irq full",
            "irq",
            SHARE,
            "interrupts took time from tasks",
            "no /proc/pressure/irq: a kernel before 6.1, without CONFIG_IRQ_TIME_ACCOUNTING, or with psi=0",
        ),
        "cpu_busy": ContextKind(
            "CPU busy", "busy", SHARE, "CPU time that was not idle, with that of steal", "/proc/stat has no steal"
        ),
        "steal": ContextKind(
            "CPU steal",
            "steal",
            SHARE,
            "CPU time in which the hypervisor ran others",
            "/proc/stat has no steal",
        ),
        "dirty": ContextKind(
            "dirty pages", "dirty", BYTES, "page cache not yet written", "/proc/vmstat has no nr_dirty"
        ),
        "writeback": ContextKind(
            "writeback", "wback", BYTES, "page cache that is being written", "/proc/vmstat has no nr_writeback"
        ),
        "dirty_limit": ContextKind(
            "limit of dirty pages",
            "dlim",
            BYTES,
            "dirty and writeback pages at which all writers are paused (vm.dirty_ratio, vm.dirty_bytes)",
            "/proc/vmstat has no nr_dirty_threshold",
        ),
        "dirty_background": ContextKind(
            "background limit of dirty pages",
            "dback",
            BYTES,
            "dirty pages from which on the kernel writes them (vm.dirty_background_ratio, vm.dirty_background_bytes)",
            "/proc/vmstat has no nr_dirty_background_threshold",
        ),
        "direct_reclaims": ContextKind(
            "direct reclaims",
            "recl",
            PER_S,
            "allocations that freed memory themselves",
            "/proc/vmstat has no allocstall",
        ),
        "swap_ins": ContextKind(
            "swapped in", "swpin", PER_S, "pages that were read from swap", "/proc/vmstat has no pswpin: no swap"
        ),
        "swap_outs": ContextKind(
            "swapped out", "swpo", PER_S, "pages that were written to swap", "/proc/vmstat has no pswpout: no swap"
        ),
        "file_refaults": ContextKind(
            "refaults of files",
            "rflt",
            PER_S,
            "pages of files that were read again soon after memory was taken from them",
            "/proc/vmstat has no workingset_activate",
        ),
        "file_reloads": ContextKind(
            "reloads of files",
            "rload",
            PER_S,
            "pages of files that were read again after memory was taken from them, however long ago",
            "/proc/vmstat has no workingset_refault",
        ),
        "unwritten_reclaims": ContextKind(
            "unwritten pages in reclaim",
            "unwr",
            PER_S,
            "pages of files that were to be reclaimed and had to be written first",
            "/proc/vmstat has no nr_vmscan_immediate_reclaim",
        ),
        "major_faults": ContextKind(
            "major faults",
            "mjflt",
            PER_S,
            "page faults for which a page was read, of mapped files or from swap",
            "/proc/vmstat has no pgmajfault",
        ),
        "dirtied": ContextKind(
            "pages made dirty",
            "dirtd",
            PER_S,
            "pages of files that were made dirty",
            "/proc/vmstat has no nr_dirtied",
        ),
        "arc": ContextKind("ZFS ARC", "ARC", BYTES, "size of the ZFS cache", "no ZFS module is loaded"),
        "tcp_retransmits": ContextKind(
            "TCP retransmits",
            "tcp",
            PER_S,
            "segments sent again by all TCP connections of latmon's network namespace, of storage or not",
            "no /proc/net/snmp",
        ),
        "nfs_retransmits": ContextKind(
            "NFS retransmits",
            "nfs",
            PER_S,
            "RPCs that the NFS client sent again, of all mounts",
            "no /proc/net/rpc/nfs: the NFS client is not loaded",
        ),
    }
)
"""Values in the order in which users read them."""


def added(values: Iterable[HostContext]) -> dict[str, ContextValue]:
    """Return the sums over intervals."""
    found_values: dict[str, ContextValue] = {}
    for context_values in values:
        add_to(found_values, context_values)
    return found_values


def add_to(sums: dict[str, ContextValue], values: HostContext) -> None:
    """Add an interval's values to sums."""
    for name, value in values.items():
        before = sums.get(name)
        sums[name] = value if before is None else before.plus(value)
