"""cpu-throttled: programs with I/O that use up their CPU quota, and what is no harm."""

import pytest
from finding_cases import facts_of, found, frame, lasting, timed

from latmon.findings.engine import not_evaluated, unexplained
from latmon.findings.rule import QUOTAS, Finding, Where
from latmon.model.measurements import CPU_QUOTAS, ISSUERS
from latmon.model.measurements.cpu_quotas import CpuQuota, QuotaPeriods
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer

RULE = "cpu-throttled"
POD = CpuQuota("/pod-orders", "orders-api/7", 16_000, 100_000)
ISSUED = {
    Issuer("loop0", "read", "/", "", 7, "orders-api"): IssuedIO(200, 819_200),
    Issuer("sdb", "read", "/", "", 9, "backup"): IssuedIO(9000, 9_000_000),
}


def minute(*, throttled=49, io_bytes=819_200, issued=True, blocks=12):
    tables = {CPU_QUOTAS: {POD: QuotaPeriods(50, throttled, 2_400_000, io_bytes)}}
    tables |= {ISSUERS: ISSUED} if issued else {}
    return lasting(blocks, histograms=timed("loop0", ((200, {"hba": 2900}),)), tables=tables)


def test_the_cgroup_its_quota_and_its_program_are_named():
    (finding,) = found(RULE, minute())
    assert (finding.severity, finding.device, finding.also) == ("warning", "", ("loop0",))
    assert finding.summary == (
        "orders-api of cgroup /pod-orders used up its CPU quota (16 ms of 100 ms) in 98% of the periods: "
        "it runs late, whenever its I/Os on loop0 (mean 2.9 ms) are completed"
    )
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["throttled"] == "it was used up in 588 of 600 periods (cpu.stat)"
    texts = " ".join(step.text for step in finding.steps)
    assert "no faster disk helps" in texts
    assert "smartctl" not in texts


def test_where_no_probe_counts_by_process_no_device_is_named():
    (finding,) = found(RULE, minute(issued=False))
    assert finding.also == ()
    assert finding.summary.startswith("orders-api of cgroup /pod-orders used up")


def test_a_server_of_fuse_is_what_its_file_system_waits_for():
    row = CpuQuota("/volsvc", "volume-daemon/7", 4_000, 100_000)
    tables = {CPU_QUOTAS: {row: QuotaPeriods(50, 47, 2_400_000, 0, 900_000)}}
    (finding,) = found(RULE, lasting(12, histograms=timed("loop0", ((200, {"hba": 98_000}),)), tables=tables))
    assert finding.summary == (
        "volume-daemon of cgroup /volsvc used up its CPU quota (4 ms of 100 ms) in 94% of the periods: "
        "it serves a FUSE file system, so that all I/O of that file system waits for it"
    )


def test_it_is_known_early_where_it_was_so_from_the_start():
    assert [finding.also for finding in found(RULE, minute(blocks=2))] == [("loop0",)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(minute(throttled=0), id="the quota is not reached"),
        pytest.param(minute(throttled=5), id="it is seldom reached"),
        pytest.param(minute(io_bytes=0), id="no I/O"),
        pytest.param([*minute(throttled=0)[:11], frame(160, tables=minute()[0].tables)], id="a burst"),
    ],
)
def test_others_are_not_found(frames):
    assert found(RULE, frames) == []


def test_without_a_quota_it_is_not_evaluated():
    assert RULE in not_evaluated(facts_of(lasting(2)))[QUOTAS]
    assert QUOTAS not in not_evaluated(facts_of(minute(throttled=0)))
    assert QUOTAS not in not_evaluated(facts_of(lasting(2), counted=(CPU_QUOTAS.name,)))


def test_it_explains_that_the_program_runs_late():
    (given_finding,) = found(RULE, minute())
    late = Finding("late-resume", "notice", "loop0", "loop0: x", (), Where("stages", "loop0"), (), "", 0.9)
    assert [finding.id for finding in unexplained((late, given_finding))] == [RULE]
