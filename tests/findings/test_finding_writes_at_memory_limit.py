"""writes-at-memory-limit: a cgroup whose limit is full of pages that are to be written, and limits that do no harm."""

import pytest
from finding_cases import S, facts_of, found, hist, lasting

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import MEMORY
from latmon.findings.rules.swap_thrash import ID as SWAP_THRASH
from latmon.findings.rules.writes_at_memory_limit import ID
from latmon.model.host_context import interval_value
from latmon.model.measurements import FILE_TIMES, FILES, MEMORY_LIMITS, MEMORY_WRITERS
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.memory import MemoryLimit, MemoryWriter, ReachedLimit, Unwritten

MB = 1 << 20
LIMIT = MemoryLimit("/mis_ingest", "max", 18 * MB)


def load(*, hits=400, looks=2, unwritten=7 * MB, stalled=0.1, host="", blocks=12, writers=None, tables=None):
    """Frames of 5 s; `hits`: per second; `unwritten`: bytes at a look; `writers`: process -> looks."""
    cgroup = f"{host}{LIMIT.cgroup}"
    processes = {"ingest/7": looks} if writers is None else writers
    seen = {MemoryWriter(cgroup, process): Unwritten(n, n * unwritten) for process, n in processes.items()}
    context = {f"{host}swap_ins": interval_value(0, 5 * S), f"{host}unwritten_reclaims": interval_value(500, 5 * S)}
    if stalled is not None:
        context[f"{host}psi_memory_some"] = interval_value(round(stalled * 5 * S), 5 * S)
    rows = {
        MEMORY_LIMITS: {LIMIT._replace(cgroup=cgroup): ReachedLimit(5 * hits)} if hits else {},
        MEMORY_WRITERS: seen,
    }
    return lasting(blocks, host_context=context, tables=rows | (tables or {}))


def test_the_cgroup_its_program_and_what_it_waits_for():
    (finding,) = found(ID, load())
    assert (finding.severity, finding.device) == ("warning", "")
    assert finding.summary == (
        "cgroup /mis_ingest is at its memory limit of 18 MiB, 39% of which is written data that is not yet on the "
        "disk: writes of ingest (pid 7) reclaim memory and wait for write-back"
    )
    assert finding.short == "memory limit too small for the writes of ingest: cgroup /mis_ingest, 18 MiB"
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["limit_hits"] == 24_000
    assert facts["unwritten"] == pytest.approx(0.389, abs=0.001)
    assert facts["unwritten_reclaims"] == 100
    assert facts["stalled"] == 0.1
    assert finding.share == pytest.approx(0.1)
    steps = [step.what for step in finding.steps]
    assert steps[0].startswith("give cgroup /mis_ingest more memory than 18 MiB")
    assert "O_DIRECT" in steps[1]
    text = " ".join((finding.summary, finding.short, *steps, *(fact.text for fact in finding.facts)))
    assert "swap" not in text
    assert "faster" not in text


def test_it_is_not_swap_thrash():
    assert found(SWAP_THRASH, load()) == []


def test_where_writes_were_traced_it_says_how_long_they_slept_in_reclaim():
    key = ("sda", "write", "/data", "ext4")
    traced = {
        FILES: {FileSeries(*key, "unknown"): hist({10_000: 100})},
        FILE_TIMES: {FilePart(*key, "memory"): 800_000},
    }
    (finding,) = found(ID, load(tables=traced))
    assert {fact.name: fact.value for fact in finding.facts}["slept_for_memory"] == pytest.approx(0.8, abs=0.01)


def test_the_process_of_most_looks_is_named():
    (finding,) = found(ID, load(writers={"sh/3": 1, "ingest/7": 3}))
    assert "writes of ingest (pid 7)" in finding.summary


def test_a_host_without_psi():
    (finding,) = found(ID, load(stalled=None))
    assert "stalled" not in {fact.name for fact in finding.facts}


def test_a_host_of_a_fleet():
    (finding,) = found(ID, load(host="db1:"), backend="fleet")
    assert finding.summary.startswith("db1: cgroup /mis_ingest is at its memory limit of 18 MiB")


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"unwritten": 1 * MB}, id="pages that are on the disk, as of a scan"),
        pytest.param({"unwritten": 0}, id="nothing to write"),
        pytest.param({"hits": 1}, id="reached now and then"),
        pytest.param({"hits": 0}, id="a large limit"),
        pytest.param({"stalled": 0.005}, id="nothing waits"),
        pytest.param({"blocks": 1}, id="a burst so far"),
    ],
)
def test_no_finding(values):
    assert found(ID, load(**values)) == []


def test_a_burst_is_none():
    assert found(ID, [*load(hits=0, writers={}, blocks=11), *load(blocks=1)]) == []


def test_without_the_host_s_counters_it_is_not_evaluated():
    assert ID in not_evaluated(facts_of(lasting(2)))[MEMORY]
