"""Evidence about file systems whose log (XFS) or journal (ext4) is on another device than their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from latmon.findings.evidence import hardware_steps, host_before
from latmon.findings.facts import Facts
from latmon.findings.rule import Fact, Step, duration_facts
from latmon.model.frame import LOG_DEVICE
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

_OF_SYNC = 0.15
"""An I/O of the log takes that share of a sync at least: a sync waits for several, one after the other (measured on
Linux 6.18 with four threads that sync: 1.8 of XFS, 3.1 of ext4)."""
_TIMES_DATA = 2.0
"""It takes so many times what a write to the files' device takes, or its flush, which a commit of ext4 and a log write
of XFS wait for when the log is on another device: else the log is not what is slow."""
_IOS_OF_SYNC, _LEAST_IOS = 0.5, 10
"""I/Os per sync that waits alone, and in all, from which on they are of the syncs: fewer are of something else."""


def log_device_of(facts: Facts, device: str) -> str:
    """Return the device of the log of a file system on `device`; empty where that is on the same one, or not known."""
    name = facts.device(device).reported_value(LOG_DEVICE)
    return "" if name is None else host_before(facts, device) + str(name)


class SlowLog(NamedTuple):
    """The device of a log, whose I/Os are most of what a sync waits for."""

    device: str
    data_device: str
    op: str
    """`write` or `flush`, whichever takes longer in all."""
    mean_us: float
    ios: int
    data_us: float | None
    """Mean time of a write to the device of the files; None where there was none."""
    data_flush_us: float | None
    """Mean time of its flush; None where there were too few to be those of the syncs."""
    busy: float | None
    """Share of the window in which a write or flush of the log was in flight; None where that is not counted."""

    @property
    def ops(self) -> str:
        return "flushes" if self.op == "flush" else "writes"

    @property
    def text(self) -> str:
        """Return the device with what is slow, to continue `log on`."""
        return f"{self.device}, whose {self.ops} take {spelled(self.mean_us)}"


def slow_log(facts: Facts, data_device: str, syncs: int, syncs_us: float) -> SlowLog | None:
    """Return the log's device where it keeps syncs waiting; None where it is not slow, or not another.

    `syncs_us`: the time of all these syncs together.
    """
    device = log_device_of(facts, data_device)
    if not device or not syncs:
        return None
    waiting = syncs_us / facts.span_us
    # One I/O of the log ends all syncs that wait at a time.
    least_ios = max(_LEAST_IOS, _IOS_OF_SYNC * syncs / max(1.0, waiting))
    latencies = {op: facts.latency(device, op) for op in ("write", "flush")}
    op = max(latencies, key=lambda op: _time_us(latencies[op]))
    latency = latencies[op]
    if latency.mean is None or latency.count < least_ios:
        return None
    if _time_us(latency) < _OF_SYNC * min(syncs_us, facts.span_us):
        return None
    data_us = facts.latency(data_device, "write").mean
    flushes = facts.latency(data_device, "flush")
    data_flush_us = flushes.mean if flushes.count >= least_ios else None
    if latency.mean < max(_OF_SYNC * syncs_us / syncs, _TIMES_DATA * max(data_us or 0, data_flush_us or 0)):
        return None
    return SlowLog(
        device=device,
        data_device=data_device,
        op=op,
        mean_us=latency.mean,
        ios=latency.count,
        data_us=data_us,
        data_flush_us=data_flush_us,
        busy=_busy(facts, device),
    )


def _time_us(latency: Histogram) -> float:
    """Return the time of all the I/Os together."""
    return latency.count * (latency.mean or 0)


def _busy(facts: Facts, device: str) -> float | None:
    done = facts.completed(device, "write", "flush")
    if done is None or done.time_us is None or not facts.span_us:
        return None
    return min(1.0, done.time_us / facts.span_us)


def log_facts(log: SlowLog) -> Iterator[Fact]:
    """Yield what the I/Os of the log take, beside those of the files' device."""
    yield Fact("log_device", log.device, f"the log of the file system on {log.data_device} is on {log.device}")
    yield from duration_facts(
        (f"log_{log.op}_us", log.mean_us, f"a {log.op} of {log.device} takes {{}} on average", log.ios),
        ("data_write_us", log.data_us, f"a write of {log.data_device} takes {{}} on average", None),
        ("data_flush_us", log.data_flush_us, f"a flush of {log.data_device} takes {{}} on average", None),
    )
    if log.busy is not None:
        text = f"writes and flushes were in flight on {log.device} {part(log.busy)} of the time"
        yield Fact("log_busy", round(log.busy, 3), text, "share")


def log_steps(facts: Facts, log: SlowLog) -> Iterator[Step]:
    """Yield the steps that make a log faster."""
    yield from hardware_steps(
        facts,
        log.device,
        (Step(f"find out why {log.device} is slow: its cache, other programs that write to it, its health"),),
    )
    yield Step(
        f"put the log on a faster device than {log.device}, or back beside the files on {log.data_device} (XFS: make "
        "the file system anew and restore it; ext4, unmounted: tune2fs -O ^has_journal, then tune2fs -j)",
        "the file system is offline meanwhile; a backup is needed",
    )
