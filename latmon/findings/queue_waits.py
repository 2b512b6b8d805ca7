"""Evidence that I/Os of a process wait in the queue of a device's scheduler, while it sends those of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from latmon.findings.evidence import lost_share
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import Program, program_of
from latmon.findings.rule import Fact, Thresholds, duration_facts
from latmon.model.frame import Outlier
from latmon.model.measurements import ISSUERS
from latmon.model.stages import plural_of_op
from latmon.support.units import part, spelled

_OPS = ("read", "write")


class QueueWaits(NamedTuple):
    """The slow I/Os of a process on a device."""

    process: str
    """NAME/PID."""
    device: str
    scheduler: str
    ios: Sequence[Outlier]
    """The window has one of them at least; each has its stages."""
    median_us: int
    """Median of all I/Os of the device."""

    @property
    def queue_us(self) -> int:
        return sum(map(queue_us, self.ios))

    @property
    def share(self) -> float:
        """Return the share of the queue in the time of the slow I/Os."""
        return self.queue_us / max(1, sum(outlier.total_us for outlier in self.ios))

    def lost_share(self, facts: Facts) -> float:
        """Return the share of the queue of the slow I/Os in the time of all I/Os of the device."""
        return lost_share(self.queue_us, facts.latency(self.device))

    @property
    def mean_us(self) -> float:
        """Return the mean time in the queue."""
        return self.queue_us / len(self.ios)

    @property
    def overtaken(self) -> float | None:
        """Return how many later I/Os were completed meanwhile, on average; None where that was not counted."""
        known = [outlier.overtaken_by for outlier in self.ios if outlier.overtaken_by is not None]
        return fmean(known) if known else None

    @property
    def program(self) -> Program:
        return program_of(self.process)

    @property
    def ops(self) -> frozenset[str]:
        return frozenset(outlier.op for outlier in self.ios)

    @property
    def text(self) -> str:
        """Return who waits for how long, as a sentence that goes on with the reason."""
        ops = " and ".join(plural_of_op(op) for op in _OPS if op in self.ops)
        return (
            f"{self.device}: {ops} of {self.program.text} wait {spelled(self.mean_us)} in the queue of {self.scheduler}"
        )

    @property
    def meanwhile(self) -> str:
        """Return what is completed meanwhile, as the end of that sentence."""
        later = "others' I/Os" if self.overtaken is None else f"{self.overtaken:,.0f} later I/Os"
        return f"{later} are completed meanwhile"


def queue_us(outlier: Outlier) -> int:
    """Return the time of an I/O in the scheduler's queue."""
    return outlier.stages_us.get("queue", 0)


def staged_outliers(facts: Facts, device: str) -> Iterator[Outlier]:
    """Yield the slow reads and writes of a device whose stages and process are known."""
    for outlier in facts.outliers(device):
        if outlier.pid is not None and outlier.op in _OPS and outlier.stages_us:
            yield outlier


def are_long(facts: Facts, waits: QueueWaits, limits: Thresholds) -> bool:
    """Return whether these I/Os wait in the queue for long, all the time, and later ones pass them where it is known.

    The thresholds are `ios`, `queue`, `wait_us`, `times`, `overtaken` and `lasting_us`.
    """
    if len(waits.ios) < limits["ios"] or waits.share < limits["queue"]:
        return False
    if waits.mean_us < max(limits["wait_us"], limits["times"] * waits.median_us):
        return False
    if waits.overtaken is not None and waits.overtaken < limits["overtaken"]:
        return False
    pid = waits.ios[0].pid

    def waits_in(block: Block) -> bool:
        return any(outlier.pid == pid and outlier.device == waits.device for outlier in block.outliers)

    return facts.lasts(facts.lasted_us(waits_in), limits["lasting_us"])


def share_of_bytes(facts: Facts, device: str, process: str) -> float | None:
    """Return the share of a process (NAME/PID) in the bytes of a device; None where processes are not measured."""
    pid = process.rpartition("/")[2]
    own_bytes = all_bytes = 0
    for issuer, done in facts[ISSUERS].items():
        if issuer.device != device or not issuer.is_process:
            continue
        all_bytes += done.bytes
        if str(issuer.pid) == pid:
            own_bytes += done.bytes
    return own_bytes / all_bytes if all_bytes else None


def least_share_of_bytes(facts: Facts, device: str, moved: int) -> float:
    """Return the least share in the bytes of a device of a process that moved so many bytes on all devices together.

    The other devices can have as many of them as they completed in all. A volume and its disk count the same bytes
    twice, which makes the share smaller only.
    """
    done = facts.completed(device)
    if done is None or not done.bytes:
        return 0.0
    others = (facts.completed(name) for name in facts.devices if name != device)
    elsewhere = sum(other.bytes for other in others if other is not None)
    return min(1.0, max(0, moved - elsewhere) / done.bytes)


def wait_facts(waits: QueueWaits) -> Iterator[Fact]:
    """Yield how long they wait, and what passes them meanwhile."""
    count = len(waits.ios)
    yield Fact("scheduler", waits.scheduler, f"scheduler: {waits.scheduler}, which heeds I/O priorities")
    text = f"{part(waits.share)} of the time of its slow I/Os is in the scheduler's queue"
    yield Fact("queue", round(waits.share, 3), text, "share", count)
    yield from duration_facts(
        ("queue_us", waits.mean_us, "each waits there for {} on average", count),
        ("median_us", waits.median_us, f"half of all I/Os of {waits.device} take less than {{}}", None),
    )
    if waits.overtaken is not None:
        text = f"{waits.overtaken:,.0f} I/Os that came later were completed meanwhile, on average"
        yield Fact("overtaken", round(waits.overtaken), text, "ios", count)
