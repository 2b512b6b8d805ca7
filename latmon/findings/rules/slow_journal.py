"""slow-journal: programs wait for syncs, because each waits for a slow commit of the file system's journal.

A sync of ext4 ends with the commit of the journal that has its metadata, whoever began it. With data=ordered a commit
writes the new data of all files first, of other programs too: a sync of 512 bytes waits for the gigabyte that another
program wrote without a sync. The phases of the commit name the remedy. No finding: commits for which no program waits,
such as those by the timer, and fast ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from latmon.findings.evidence import hardware_steps
from latmon.findings.facts import Facts
from latmon.findings.log_devices import SlowLog, log_device_of, log_facts, log_steps, slow_log
from latmon.findings.programs import Program, by_program, most_buffered
from latmon.findings.rule import (
    JOURNALS,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    plain,
    short_text,
    within,
)
from latmon.model import measurements
from latmon.model.frame import MOUNTED_SYNC
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements.journals import Commits, Syncing, Syncs
from latmon.support.units import part, show_size, spelled

ID = "slow-journal"
_LOCKED, _FLUSHING, _LOGGING = "locked", "flushing", "logging"
_PHASES = {
    _LOCKED: "waiting for operations that had begun",
    _FLUSHING: "submitting data of files (data=ordered)",
    _LOGGING: "writing the journal, and waiting for that data",
}
"""Phase -> what a commit does in it."""
_LEAST_DATA, _TIMES_JOURNAL, _BLOCK = 262_144, 8, 4096
"""Bytes written per commit, and times the journal's blocks of mostly 4096 bytes, from which on they are of files."""
_FLUSH_OF_COMMIT, _WRITE_OF_FLUSH = 0.25, 0.5
"""A cache's flush is slow: a commit has two, which are half of it at least, and a write takes half as long at most."""
_REFUTED = (
    "the syncs are as slow while no other program writes to the file system, or on one of its own on the same disk"
)


_SEE_WRITERS = Step("see who writes to the device, and which files are synced: screen 7; screen 2, key F")
_GROUP_COMMIT = Step(
    "let the program sync once for several changes (group commit)", "changes since then are lost at a crash"
)


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A program that waits for syncs."""

    program: Program
    syncs: Syncs

    @property
    def text(self) -> str:
        return self.program.text

    @property
    def name(self) -> str:
        return self.program.name or "a program"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device whose journal keeps programs waiting."""
    for device, commits in sorted(facts[measurements.JOURNALS].items()):
        if commits.commits < limits["commits"] or commits.total_us < limits["mean_us"] * commits.commits:
            continue
        waiters = _waiters(facts[measurements.SYNCS], device)
        if not waiters:
            continue
        longest = max(waiters, key=lambda waiter: waiter.syncs.waited_us)
        if longest.syncs.waited_us >= max(limits["waiting"] * facts.span_us, limits["waited_us"]):
            yield _finding(facts, device, commits, longest)


def _waiters(rows: Mapping[Syncing, Syncs], device: str) -> list[_Waiter]:
    """Return the programs that wait for syncs of files on a device."""
    programs = by_program((row.process, syncs) for row, syncs in rows.items() if row.device == device)
    return [_Waiter(program, _added(values)) for program, values in programs.items()]


def _added(values: Iterable[Syncs]) -> Syncs:
    syncs = waited_us = 0
    for value in values:
        syncs += value.syncs
        waited_us += value.waited_us
    return Syncs(syncs, waited_us)


def _finding(facts: Facts, device: str, commits: Commits, longest: _Waiter) -> Finding:
    phases = _phases(commits)
    worst = max(phases, key=lambda phase: phases[phase])
    sync_us = longest.syncs.waited_us / max(longest.syncs.syncs, 1)
    share = longest.syncs.waited_us / facts.span_us
    mean = spelled(commits.total_us / commits.commits)
    most = f"{part(phases[worst] / commits.total_us)} of it {_PHASES[worst]}"
    log = _slow_log(facts, device, commits, worst)
    writer: Program | None = None
    flush_us = _slow_flush_us(facts, device, commits) if worst == _LOGGING and log is None else None
    if log is not None:
        most += f", on {log.text}"
    elif flush_us is not None:
        most = f"with flushes of the device's cache, {spelled(flush_us)} each"
    elif worst != _LOCKED and _is_data(facts, device, commits):
        writer = _data_writer(facts, device)
        most = f"while {show_size(_bytes_per_commit(facts, device, commits) or 0)} of files' data are written"
        if writer is not None:
            most += f", and {_name_of(writer, longest)} wrote the most"
    place = device if log is None else log.device
    files = "" if log is None else f" of {device}"
    return Finding(
        id=ID,
        severity=WARNING,
        device=place,
        summary=f"{place}: {longest.text} waits {spelled(sync_us)} for a sync{files}: a commit of the journal takes "
        f"{mean}, "
        f"{most}",
        facts=tuple(_facts(facts, device, commits, longest, log)),
        where=Where("overview", place, "write"),
        steps=tuple(_steps(facts, device, commits, worst, longest) if log is None else _log_steps(facts, log)),
        refuted_by=_REFUTED,
        share=min(1.0, share),
        also=() if log is None else (device,),
        short=short_text(
            place,
            f"a sync takes {spelled(sync_us)}",
            f": {_short_cause(mean, flush_us, writer)}",
            f"; {within(longest.name)} waits",
        ),
    )


def _short_cause(mean: str, flush_us: float | None, writer: Program | None) -> str:
    if flush_us is not None:
        return f"cache flushes take {spelled(flush_us)}"
    if writer is not None and writer.name:
        return f"the journal writes {within(writer.name)}'s data"
    return f"the journal commits in {mean}"


def _data_writer(facts: Facts, device: str) -> Program | None:
    """Return the program that wrote most of the data that commits write; None where it is not known."""
    buffered = most_buffered(facts, device)
    return None if buffered is None else buffered[0]


def _name_of(writer: Program, longest: _Waiter) -> str:
    return "it" if writer.name == longest.program.name else writer.text


def _slow_log(facts: Facts, device: str, commits: Commits, worst: str) -> SlowLog | None:
    """Return the device of a journal on another device than the files, where its writes are what a commit waits for."""
    if worst != _LOGGING:
        return None
    return slow_log(facts, device, commits.commits, commits.total_us)


def _phases(commits: Commits) -> dict[str, int]:
    return {_LOCKED: commits.locked_us, _FLUSHING: commits.flushing_us, _LOGGING: commits.logging_us}


def _facts(facts: Facts, device: str, commits: Commits, longest: _Waiter, log: SlowLog | None) -> Iterator[Fact]:
    waited_us, syncs = longest.syncs.waited_us, longest.syncs.syncs
    text = f"{longest.text} waited for syncs {part(min(1.0, waited_us / facts.span_us))} of the time"
    yield Fact("waiting", round(waited_us / facts.span_us, 3), text, "share", syncs)
    for phase, us in _phases(commits).items():
        mean_us = us / commits.commits
        text = f"{phase} ({_PHASES[phase]}): {{}} of a commit, {part(us / commits.total_us)}"
        yield from duration_facts((f"{phase}_us", mean_us, text, commits.commits))
    if log is not None:
        yield from log_facts(log)
    blocks = commits.blocks / commits.commits
    yield Fact("blocks", round(blocks, 1), f"a commit writes {blocks:.3g} blocks to the journal", "", commits.commits)
    if (flush_us := _slow_flush_us(facts, device, commits)) is not None:
        flushes = _meanwhile(facts, device, "flush")
        text = f"a flush of {device} takes {spelled(flush_us)} on average, a write "
        text += spelled(_meanwhile(facts, device, "write").mean or 0)
        yield Fact("flush_us", round(flush_us), text, "us", flushes.count)
    if (per_commit := _bytes_per_commit(facts, device, commits)) is not None:
        text = f"{device} writes {show_size(per_commit)} meanwhile for each commit"
        yield Fact("bytes_per_commit", round(per_commit), text, "bytes", commits.commits)
    buffered = most_buffered(facts, device)
    if buffered is not None:
        writer, size = buffered
        text = f"{writer.text} wrote {show_size(size)} through the page cache, more than any other program"
        yield Fact("writer", writer.text, text)


def _bytes_per_commit(facts: Facts, device: str, commits: Commits) -> float | None:
    written = facts.completed(device, "write")
    return None if written is None else written.bytes / commits.commits


def _slow_flush_us(facts: Facts, device: str, commits: Commits) -> float | None:
    """Return the mean time of a flush, where that is most of a commit and the device's writes are not as slow; or None.

    A commit ends with a flush before and after its last block, or with one and a write with FUA.
    """
    flush_us, write_us = (_meanwhile(facts, device, op).mean for op in ("flush", "write"))
    if flush_us is None or write_us is None or flush_us < _FLUSH_OF_COMMIT * commits.total_us / commits.commits:
        return None
    return flush_us if write_us <= _WRITE_OF_FLUSH * flush_us else None


def _meanwhile(facts: Facts, device: str, op: str) -> Histogram:
    """Return the latencies of a device in the blocks in which commits were traced."""
    return merge(block.stage("total", device, op) for block in facts.window if device in block[measurements.JOURNALS])


def _is_data(facts: Facts, device: str, commits: Commits) -> bool:
    """Return whether most of what the device writes is not the journal."""
    per_commit = _bytes_per_commit(facts, device, commits)
    journal = commits.blocks * _BLOCK / commits.commits
    return per_commit is not None and per_commit >= max(_LEAST_DATA, _TIMES_JOURNAL * journal)


def _log_steps(facts: Facts, log: SlowLog) -> Iterator[Step]:
    yield _SEE_WRITERS
    yield from log_steps(facts, log)
    yield _GROUP_COMMIT


def _steps(facts: Facts, device: str, commits: Commits, worst: str, longest: _Waiter) -> Iterator[Step]:
    yield _SEE_WRITERS
    if (mount := facts.device(device).reported_value(MOUNTED_SYNC)) is not None:
        yield Step(
            f"mount {mount} without the option sync, by which each write waits for a commit",
            "programs that don't sync lose the changes of the last 30 s when the host fails",
        )
    if worst == _LOCKED:
        yield Step(
            "find the operation that keeps the commit waiting: a truncate or unlink of a large file, a full journal"
        )
        return
    if worst == _LOGGING and _slow_flush_us(facts, device, commits) is not None:
        yield from hardware_steps(
            facts,
            device,
            (
                Step(
                    "find out why the device's cache is slow to flush: its battery, an array's write-back policy, a "
                    "hypervisor that syncs a file, syncs of other programs on the same disk",
                    commands=(f"cat /sys/block/{device}/queue/write_cache",) if plain(device) else (),
                ),
            ),
        )
        yield _GROUP_COMMIT
        return
    if _is_data(facts, device, commits):
        writer = _data_writer(facts, device)
        named = "the program that writes the large files" if writer is None else writer.text
        yield Step(
            f"let {named} sync its files as it goes, or write them with O_DIRECT, so that no sync of {longest.text} "
            "has to wait for all of their data",
            f"{named} gets slower",
        )
        yield Step(
            f"give the log of {longest.text} a file system of its own",
            "both still share the disk",
        )
        yield Step(
            "mount with data=writeback",
            "after a crash files may have blocks with older contents of other files",
        )
        return
    yield _GROUP_COMMIT
    if log_device := log_device_of(facts, device):
        yield Step(f"see whether the writes of the journal's device are slow: screen 2 on {log_device}")
        return
    yield Step(
        "put the journal on another device (mke2fs -O journal_dev), or use one whose cache survives a power failure"
    )


RULE = Rule(
    ID,
    "programs wait for syncs, because each waits for a slow commit of the file system's journal",
    evaluate,
    needs=JOURNALS,
    thresholds={
        "mean_us": Threshold(50_000, "us", "a commit takes at least, on average"),
        "commits": Threshold(3, "commits", "in the window at least"),
        "waiting": Threshold(
            0.2, "share", "of the window a program waits for syncs at least, all its threads together"
        ),
        "waited_us": Threshold(4_000_000, "us", "it waits for syncs at least, of the last minute"),
    },
    explained_by=("swap-thrash", "slow-log-device"),
)
