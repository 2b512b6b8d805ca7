"""read-ahead-off: a program reads in order, in small I/Os one after the other, because read-ahead is small.

The page cache reads ahead of what a program asked for, by `read_ahead_kb` of the device. At 0 each read of a file is
pages that are read one by one (mm/readahead.c), each for the whole latency of the device: a fraction of its bytes with
the same latencies. The kernel flags all reads for the page cache (REQ_RAHEAD), also those of a single page, which tells
them from those with O_DIRECT; that they are in order is by their sectors. No finding: random reads, for which a small
read-ahead is right; read-ahead of the usual size; reads that the device is hardly busy with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.analysis.limits import number
from latmon.findings.evidence import limit_values
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    PATTERNS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    setting,
    short_text,
    sysfs,
    within,
)
from latmon.model import measurements
from latmon.model.frame import Flow
from latmon.support.units import part, show_size, speed, spelled

ID = "read-ahead-off"
_SETTING = "read_ahead_kb"
_USUAL_KIB = 128
"""VM_READAHEAD_PAGES of include/linux/mm.h: what a device has where nobody set it."""
_REFUTED = "the program reads as few bytes per second with read_ahead_kb 128"


class _SmallReads(NamedTuple):
    """Reads of a device that the page cache issued, of the last minute."""

    device: str
    read_ahead_kib: int
    for_cache: float
    """Share of the traced reads that are for the page cache."""
    sequential: float
    """Share of the traced reads that began where another one had ended."""
    traced: int
    ios: int
    bytes: int
    bytes_per_s: float
    mean_us: float
    in_flight: float
    """On average, by Little's law."""
    reader: str
    """Program with most reads; empty where processes were not counted."""

    @property
    def mean_bytes(self) -> int:
        return round(self.bytes / max(1, self.ios))

    @property
    def reader_text(self) -> str:
        return self.reader or "a program"

    @property
    def lost(self) -> float:
        """Return the share of the reads' time that larger ones would not take."""
        return max(0.0, 1 - self.mean_bytes / (_USUAL_KIB << 10)) * min(1.0, self.in_flight)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device."""
    for flow in sorted(facts[measurements.PATTERNS]):
        if flow.op != "read":
            continue
        reads = _small_reads(facts, flow.device)
        if reads is not None and _is_found(reads, limits):
            yield _finding(reads)


def _small_reads(facts: Facts, device: str) -> _SmallReads | None:
    """Return the reads; None where their sizes, their latency or the setting are not known."""
    read_ahead_kib = number(limit_values(facts.device(device)).get(_SETTING, ""))
    pattern = facts[measurements.PATTERNS][Flow(device, "read")]
    done, latency = facts.completed(device, "read"), facts.latency(device, "read")
    if read_ahead_kib is None or done is None or not pattern.issued or not latency.count or not facts.span_us:
        return None
    return _SmallReads(
        device=device,
        read_ahead_kib=read_ahead_kib,
        for_cache=pattern.ahead / pattern.issued,
        sequential=pattern.sequential / pattern.issued,
        traced=pattern.issued,
        ios=done.count,
        bytes=done.bytes,
        bytes_per_s=done.bytes * 1e6 / facts.span_us,
        mean_us=latency.nearest_sum / latency.count,
        in_flight=latency.nearest_sum / facts.span_us,
        reader=_reader(facts, device),
    )


def _reader(facts: Facts, device: str) -> str:
    reads = Counter[str]()
    for issuer, done in facts[measurements.ISSUERS].items():
        if issuer.device == device and issuer.op == "read" and issuer.is_process:
            reads[issuer.comm] += done.count
    return reads.most_common(1)[0][0] if reads else ""


def _is_found(reads: _SmallReads, limits: Thresholds) -> bool:
    return (
        reads.read_ahead_kib <= limits["kib"]
        and reads.for_cache >= limits["for_cache"]
        and reads.sequential >= limits["sequential"]
        and reads.traced >= limits["ios"]
        and reads.mean_bytes <= limits["bytes"]
        and reads.in_flight >= limits["in_flight"]
    )


def _finding(reads: _SmallReads) -> Finding:
    size = show_size(reads.mean_bytes)
    return Finding(
        id=ID,
        severity=WARNING,
        device=reads.device,
        summary=f"{reads.device}: {reads.reader_text} reads in order, but in I/Os of {size} one after the other, "
        f"{speed(reads.bytes_per_s)}, because read_ahead_kb is {reads.read_ahead_kib}",
        facts=tuple(_facts(reads)),
        where=Where("stages", reads.device, "read"),
        steps=tuple(_steps(reads)),
        refuted_by=_REFUTED,
        share=reads.lost,
        state=(str(reads.read_ahead_kib), reads.reader),
        short=short_text(
            reads.device,
            f"{within(reads.reader_text, 16)} reads {size} at a time",
            f": read_ahead_kb is {reads.read_ahead_kib}",
            f", {speed(reads.bytes_per_s)}",
        ),
    )


def _facts(reads: _SmallReads) -> Iterator[Fact]:
    text = f"read_ahead_kb is {reads.read_ahead_kib}, usual is {_USUAL_KIB}"
    yield Fact("read_ahead_kib", reads.read_ahead_kib, text)
    text = f"{part(reads.for_cache)} of the reads are for the page cache"
    yield Fact("for_cache", round(reads.for_cache, 3), text, "share", reads.traced)
    text = f"{part(reads.sequential)} of them began where another one had ended"
    yield Fact("sequential", round(reads.sequential, 3), text, "share", reads.traced)
    text = f"a read has {show_size(reads.mean_bytes)} and takes {spelled(reads.mean_us)} on average"
    yield Fact("bytes", reads.mean_bytes, text, "bytes", reads.ios)
    text = f"{reads.in_flight:.2g} of them are in flight on average, {speed(reads.bytes_per_s)} in all"
    yield Fact("in_flight", round(reads.in_flight, 2), text)


def _steps(reads: _SmallReads) -> Iterator[Step]:
    yield Step(
        "set read-ahead back; files that are opened from then on have it",
        "random reads may read more than they need; undone by the old value",
        (setting(f"{sysfs(reads.device)}/queue/{_SETTING}", _USUAL_KIB),),
    )
    yield Step("find out who set it: a tuning profile (tuned), a udev rule, a database's installer, blockdev --setra")


RULE = Rule(
    ID,
    "a program reads in order, in small I/Os one after the other, because read-ahead is small",
    evaluate,
    needs=PATTERNS,
    thresholds={
        "kib": Threshold(16, "KiB", "of read-ahead at most"),
        "for_cache": Threshold(0.8, "share", "of the traced reads are for the page cache at least"),
        "sequential": Threshold(0.8, "share", "of the traced reads begin where another one ended at least"),
        "bytes": Threshold(16_384, "bytes", "a read has on average at most"),
        "in_flight": Threshold(0.3, "ios", "reads in flight on average at least"),
        "ios": Threshold(100, "ios", "reads traced in the window at least"),
    },
    explained_by=("worse-since-setting", "swap-thrash"),
)
