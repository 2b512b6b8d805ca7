"""swap-thrash: pages that come back from swap or from files, who is behind them, and what is no harm."""

import pytest
from finding_cases import S, disk, done, facts_of, found, frame, hist, lasting, shifted, timed

from latmon.findings.engine import not_evaluated, unexplained
from latmon.findings.rule import MEMORY, Finding, Where
from latmon.findings.rules.swap_thrash import ID
from latmon.model.frame import SWAP, Completed, DeviceReport, Flow
from latmon.model.host_context import interval_value
from latmon.model.measurements import MAJOR_FAULTS, MEMORY_LIMITS, MEMORY_USERS, PATTERNS, SIZES
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.memory import Faulting, MemoryLimit, MemoryUser, ReachedLimit, UsedMemory
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass

MB = 1 << 20
AREA = (DeviceReport(SWAP, "whole", "/proc/swaps"),)


def context(*, swap_ins=0, swap_outs=0, refaults=0, reloads=0, reclaims=0, stalled=None, host=""):
    """Host context of a frame of 5 s, in events per second and a share."""
    rates = {"swap_ins": swap_ins, "swap_outs": swap_outs, "file_refaults": refaults, "direct_reclaims": reclaims}
    rates["file_reloads"] = reloads
    interval_values = {f"{host}{name}": interval_value(5 * per_s, 5 * S) for name, per_s in rates.items()}
    stalls = {} if stalled is None else {f"{host}psi_memory_some": interval_value(round(stalled * 5 * S), 5 * S)}
    return interval_values | stalls


def thrash(blocks=12, devices=None, tables=None, **rates):
    return found(
        ID,
        lasting(blocks, host_context=context(**rates), tables=tables or {}),
        devices or (disk("sdb", reports=AREA), disk()),
    )


def test_pages_that_come_back_from_swap():
    limit, process = MemoryLimit("/app", "max", 200 * MB), Faulting("/app", "java/7")
    tables = {
        MEMORY_LIMITS: {limit: ReachedLimit(50), MemoryLimit("/other", "high", 9): ReachedLimit(1)},
        MAJOR_FAULTS: {process: 400, Faulting("/", "sh/2"): 3},
    }
    (finding,) = thrash(swap_ins=300, swap_outs=280, stalled=0.4, tables=tables)
    assert (finding.severity, finding.device) == ("warning", "sdb")
    assert finding.summary == (
        "sdb: 300 pages/s are read again from swap, for want of memory; cgroup /app is at its limit of 200 MiB; "
        "java (pid 7) waits most"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["limit_hits"] == 600
    assert facts["major_faults"] == 4800
    assert facts["stalled"] == 0.4
    assert facts["swap_sdb"] == "whole"
    assert finding.share == pytest.approx(0.4)
    assert any("give cgroup /app more memory" in step.what for step in finding.steps)


def test_who_has_the_memory_of_the_cgroup_at_its_limit():
    limit = MemoryLimit("/searchpod", "max", 160 * MB)
    users = {
        MemoryUser("/searchpod", "logshipper/8"): UsedMemory(2, 256 * MB, 4 * MB),
        MemoryUser("/searchpod", "searchd/7"): UsedMemory(1, 20 * MB),
        MemoryUser("/other", "java/9"): UsedMemory(2, 900 * MB),
    }
    (finding,) = thrash(refaults=2000, tables={MEMORY_LIMITS: {limit: ReachedLimit(50)}, MEMORY_USERS: users})
    assert "cgroup /searchpod is at its limit of 160 MiB, where logshipper (pid 8) has 128 MiB" in finding.summary
    assert finding.short == "cgroup /searchpod at its memory limit of 160 MiB: 2.00k pages/s read again"
    (largest,) = [fact for fact in finding.facts if fact.name == "largest"]
    assert largest.value == 128 * MB
    assert largest.text == "logshipper (pid 8) has most of its memory: 128 MiB, 48 MiB more than before"


def test_the_short_text_has_the_end_of_a_long_cgroup_and_the_device():
    limit = MemoryLimit("/kubepods.slice/pod1234/searchpod", "max", 160 * MB)
    (finding,) = thrash(swap_ins=300, tables={MEMORY_LIMITS: {limit: ReachedLimit(50)}})
    assert finding.short == "sdb: cgroup …/searchpod at its memory limit of 160 MiB"


def test_without_a_limit_the_host_is_short():
    (finding,) = thrash(swap_ins=300)
    assert finding.summary == "sdb: 300 pages/s are read again from swap, for want of memory"
    assert any("add memory" in step.what for step in finding.steps)


def test_a_swap_device_that_is_not_known():
    (finding,) = thrash(swap_ins=300, devices=(disk(),))
    assert (finding.device, finding.summary) == ("", "300 pages/s are read again from swap, for want of memory")


@pytest.mark.parametrize(
    "more",
    [
        {"stalled": 0.2},
        {"reclaims": 5},
        {"tables": {MEMORY_LIMITS: {MemoryLimit("/app", "max", 200 * MB): ReachedLimit(5)}}},
    ],
)
def test_pages_of_files_that_come_back_need_more_evidence(more):
    (finding,) = thrash(refaults=2000, **more)
    assert finding.device == ""
    assert "2.00k pages/s of files are read again, for want of memory" in finding.summary
    assert not any("zram" in step.what for step in finding.steps)


def test_pages_from_swap_and_from_files_are_one_finding_of_one_device():
    """The least rate of swap is 100 a second: around it the finding was once of the swap device, once of the host."""
    devices = {thrash(swap_ins=rate, refaults=2000, stalled=0.3)[0].device for rate in (60, 90, 300)}
    assert devices == {"sdb"}
    assert thrash(swap_ins=3, refaults=2000, stalled=0.3)[0].device == "", "hardly any of them is from swap"


def cached(*, reloads=820, refaults=45, hits=820, read_bytes=4096, reads=850, in_flight=0.1, other=None):
    """Return the findings of a cgroup that reads a file; all numbers are per second. `other`: reads of another disk."""
    limit = MemoryLimit("/app", "max", 160 * MB)
    time_us = round(5 * S * in_flight)
    load = {"kernel": {Flow("sda", "read"): Completed(5 * reads, 5 * reads * read_bytes, time_us)}}
    if other is not None:
        load["kernel"][Flow("sdb", "read")] = other
    host = context(reloads=reloads, refaults=refaults, stalled=0.001)
    frames = lasting(
        12, host_context=host, tables={MEMORY_LIMITS: {limit: ReachedLimit(5 * hits)} if hits else {}}, **load
    )
    return found(ID, frames, [disk(), disk("sdb")])


def test_a_cgroup_that_reads_a_file_somewhat_larger_than_its_limit_at_random():
    (finding,) = cached()
    assert finding.severity == "warning"
    assert finding.summary == (
        "820 pages/s of files are read again, for want of memory; cgroup /app is at its limit of 160 MiB"
    )
    assert finding.short == "cgroup /app at its memory limit of 160 MiB: 820 pages/s read again"
    assert {fact.name: fact.value for fact in finding.facts}["file_reloads"] == 820


def test_a_program_that_reads_again_from_a_slow_disk_most_of_the_time():
    """160 reads of 4 KiB a second of a disk that takes 6 ms; the same from a fast one is no harm."""
    slow = {"reloads": 160, "refaults": 8, "hits": 160, "reads": 160}
    (finding,) = cached(**slow, in_flight=0.95)
    assert finding.summary.startswith("160 pages/s of files are read again, for want of memory; cgroup /app is at its")
    assert finding.share == pytest.approx(0.95, abs=0.01)
    assert cached(**slow, in_flight=0.02) == []
    for size in (4096, 1 << 20):  # a slow disk that has nothing to do with it
        assert cached(**slow, in_flight=0.02, other=Completed(100, 100 * size, 5 * S)) == []
    assert cached(**slow | {"hits": 40}, in_flight=0.95) == []


SEARCHPOD = MemoryLimit("/searchpod", "max", 40 * MB)
ELASTIC, OTHER = Faulting("/searchpod", "elasticsearch/7"), Faulting("/", "java/9")


def mapped(blocks=3, *, us=6300, reloads=75, faults=75, others=400, begin=0):
    """A cgroup that reads pages of a mapped file again, 4 KiB at a time, beside reloads of others; all per second."""
    load = {
        Flow("loop0", "read"): Completed(5 * 75, 5 * 75 * 4096, 5 * 75 * us),
        Flow("vda", "read"): Completed(5 * 380, 5 * 380 * 12_000, 5 * 380 * 150),
    }
    tables = {
        MEMORY_LIMITS: {SEARCHPOD: ReachedLimit(5 * 75, 5 * reloads), MemoryLimit("/b", "max", 9): ReachedLimit(5000)},
        MAJOR_FAULTS: {ELASTIC: 5 * faults, OTHER: 5000},
        MEMORY_USERS: {MemoryUser("/searchpod", "elasticsearch/7"): UsedMemory(2, 2 * 139 * MB)},  # four mappings
    }
    before = lasting(begin, host_context=context(reloads=others), kernel=done("vda", 5 * 380))
    frames = lasting(blocks, host_context=context(reloads=others + reloads), tables=tables, kernel=load)
    return found(ID, [*before, *shifted(frames, 5 * begin)], [disk("loop0"), disk("vda")])


@pytest.mark.parametrize("begin", [0, 4, 9])
def test_a_mapped_file_that_a_cgroup_at_its_limit_reads_again_beside_reloads_of_others(begin):
    """The limit of the cgroup was lowered: 75 of 475 reloads a second are its, of a device that takes 6.3 ms."""
    (finding,) = mapped(begin=begin)
    assert (finding.severity, finding.device, finding.also) == ("warning", "", ("loop0",))
    assert finding.short == "elasticse… waits in page faults: cgroup /searchpod at its 40 MiB limit"
    assert finding.summary == (
        "75.0 pages/s of files are read again, for want of memory; cgroup /searchpod is at its limit of 40 MiB; "
        "elasticsearch (pid 7) waits in page faults, for pages of its mapped files"
    )
    assert {fact.name: fact.value for fact in finding.facts}["cgroup_reloads"] == 75.0


def test_it_is_known_after_two_blocks():
    assert mapped(2, begin=6)
    assert mapped(1, begin=6) == []


def test_reads_of_files_that_are_not_mapped_are_no_page_faults():
    (finding,) = mapped(faults=3)
    assert "elasticsearch (pid 7) waits most" in finding.summary
    assert finding.short.startswith("cgroup /searchpod at its memory limit of 40 MiB: 75.0 pages/s read again")


@pytest.mark.parametrize(
    "load",
    [
        pytest.param({"us": 150}, id="a fast device"),
        pytest.param({"reloads": 0}, id="a limit that nothing is read again for"),
        pytest.param({"reloads": 10}, id="few pages"),
    ],
)
def test_a_cgroup_at_its_limit_without_harm_beside_reloads_of_others(load):
    assert mapped(**load) == []


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(
            {"reloads": 3, "refaults": 0, "hits": 30_000, "read_bytes": 131_072, "reads": 940}, id="read once"
        ),
        pytest.param({"reloads": 30_000, "hits": 30_000, "read_bytes": 131_072, "reads": 940}, id="scanned again"),
        pytest.param({"hits": 0}, id="no limit"),
        pytest.param({"hits": 40}, id="a limit that others reach"),
        pytest.param({"reads": 50}, id="reads that are too few"),
        pytest.param({"reloads": 300, "hits": 300}, id="few"),
    ],
)
def test_a_cgroup_at_its_limit_by_its_nature_is_no_finding(load):
    assert cached(**load) == []


@pytest.mark.parametrize(
    "rates",
    [
        {"swap_outs": 5000},  # cold pages that are swapped out once
        {"swap_ins": 50, "swap_outs": 50},
        {"refaults": 5000},  # a file that is larger than memory
        {"refaults": 100, "stalled": 0.3},
        {"swap_ins": 5000, "blocks": 1},  # so far a burst
        {},
    ],
)
def test_no_finding(rates):
    assert thrash(**rates) == []


def test_hosts_of_a_fleet_are_apart():
    frames = lasting(12, host_context=context(swap_ins=300, host="db1:") | context(host="db2:"))
    devices = (disk("db1:sdb", reports=AREA), disk("db2:sdb", reports=AREA))
    (finding,) = found(ID, frames, devices, backend="fleet")
    assert finding.device == "db1:sdb"


def test_what_the_swap_device_does_gets_no_advice_of_its_own():
    small = {SizeClass("sda", "write", 4096): IssuedIO(500, 500 * 4096, hist({20_000: 500}))}
    tables = {SIZES: small, PATTERNS: {Flow("sda", "write"): Pattern(500, 10)}}
    load = {"histograms": timed("sda", ((500, {"hba": 20_000}),), "write"), "kernel": done("sda", 500, "write")}
    frames = lasting(12, tables=tables, **load)
    assert len(found("small-random-writes", frames, [disk()])) == 1
    assert found("small-random-writes", frames, [disk(reports=AREA)]) == []
    partition = disk(reports=(DeviceReport(SWAP, "sda2", "/proc/swaps"),))
    (writes,) = found("small-random-writes", frames, [partition])
    cause = Finding(ID, "warning", "sda", "", (), Where("overview"), (), "")
    assert unexplained([writes, cause]) == (cause,)


def test_without_counts_of_pages_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of([frame()]))[MEMORY]
    assert MEMORY not in not_evaluated(facts_of([frame(host_context=context())]))
