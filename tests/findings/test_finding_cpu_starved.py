"""cpu-starved: a program with I/O that waits for a CPU, and what looks like it and isn't."""

from dataclasses import replace

import pytest
from finding_cases import S, facts_of, found, lasting

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import CPU_WAITS as CPU_WAITS_READ
from latmon.findings.rules.cpu_starved import ID
from latmon.model.measurements import CPU_WAITS, ISSUERS
from latmon.model.measurements.cpu_waits import IDLE, SHARES, CpuWait, CpuWaiter
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer

API = CpuWaiter("apiserver/7", "/besteffort", SHARES, 2, "1", 0, "cc1plus/9")
PLAIN = CpuWaiter("apiserver/7", "/", "", 0, "", 0, "")


def waits(row=API, *, waited=3.9, ran=0.02, runs_per_s=20, looked=1.0, io_per_s=4096):
    """Return the waits of a block of 5 s: threads that wait and run on average, while they were looked at."""
    us = round(5 * S * looked)
    return {
        CPU_WAITS: {row: CpuWait(us, round(us * ran), round(us * waited), round(us * runs_per_s / S), 5 * io_per_s)}
    }


def starved(blocks=12, tables=None, **case):
    return found(ID, lasting(blocks, tables=tables or waits(**case)))


def test_who_waits_for_a_cpu_for_what_and_why():
    (finding,) = starved()
    assert (finding.severity, finding.device) == ("warning", "")
    assert finding.short == "apiserver waits 195 ms each time for a CPU: cc1plus runs, cpu.shares 2"
    assert finding.summary == (
        "apiserver does I/O and waits 195 ms for a CPU each time before it runs, 99% of the time in which it could "
        "run: cc1plus runs there; its cgroup /besteffort has cpu.shares 2 (usual: 1024); it may use CPU 1 only"
    )
    facts = {fact.name: fact.text for fact in finding.facts}
    assert facts["run_us"] == "then it runs for 1 ms on average"
    assert facts["waiting"] == "3.9 of its threads wait at a time, on average"
    assert "no faster disk helps" in finding.steps[0].what
    assert len(finding.short) <= 76


def test_a_program_with_no_known_reason():
    (finding,) = starved(row=PLAIN)
    assert finding.short == "apiserver waits 195 ms each time for a CPU"
    assert "with a higher nice value" in finding.steps[-1].what


@pytest.mark.parametrize(
    ("reason", "text", "step"),
    [
        ({"nice": 19}, "nice 19", "if it must be done sooner, run it with the usual nice value"),
        (
            {"cgroup": "/batch", "weight_file": IDLE, "weight": 1},
            "cpu.idle 1",
            "if it must be done sooner, set cpu.idle of cgroup /batch to 0",
        ),
    ],
)
def test_a_program_that_was_set_to_run_after_the_others_is_a_notice(reason, text, step):
    (finding,) = starved(row=PLAIN._replace(**reason, is_background=1))
    assert finding.severity == "notice"
    assert finding.short == f"apiserver waits 195 ms each time for a CPU, {text}"
    assert finding.steps[-1].what == step


def test_a_program_that_was_not_set_so_is_named_first():
    background = waits(row=PLAIN._replace(process="updatedb/9", nice=19, is_background=1), waited=4.9)[CPU_WAITS]
    (finding,) = starved(tables={CPU_WAITS: waits(row=PLAIN)[CPU_WAITS] | background})
    assert (finding.severity, finding.short) == ("warning", "apiserver waits 195 ms each time for a CPU")


KWORKER = CpuWaiter("kworker_1:1/23", "/", "", 0, "1", 0, "rtlogger/9", 0, "SCHED_FIFO 50")


def test_a_kernel_thread_behind_a_real_time_program():
    """Shares as of a SCHED_FIFO program that has a CPU for 95 % of each second."""
    (finding,) = starved(row=KWORKER, waited=0.4, ran=0.001, runs_per_s=2, io_per_s=0)
    assert (finding.severity, finding.device) == ("warning", "")
    assert finding.short == "kworker/1:1 waits 200 ms each time for a CPU: rtlogger runs, SCHED_FIFO 50"
    assert finding.summary == (
        "kworker/1:1 does I/O of others and waits 200 ms for a CPU each time before it runs, >99% of the time in "
        "which it could run: rtlogger runs there; that has the real-time policy SCHED_FIFO 50; it may use CPU 1 only"
    )
    assert "chrt -ao -p 0 9" in finding.steps[1].commands
    assert "io_bytes" not in {fact.name for fact in finding.facts}


@pytest.mark.parametrize(
    ("in_row", "name"),
    [
        ("ksoftirqd_1", "ksoftirqd/1"),
        ("jbd2_sda1-8", "jbd2/sda1-8"),
        ("md0_raid1", "md0_raid1"),
        ("scsi_eh_0", "scsi_eh_0"),
        ("dmcrypt_write_253:0", "dmcrypt_write/253:0"),
    ],
)
def test_a_kernel_thread_has_the_name_that_ps_shows(in_row, name):
    (finding,) = starved(row=KWORKER._replace(process=f"{in_row}/9"), waited=0.4, ran=0.001, runs_per_s=2, io_per_s=0)
    assert finding.summary.startswith(f"{name} does I/O of others")


def test_a_kernel_thread_that_seldom_waits_is_not_found():
    assert starved(row=KWORKER, waited=0.05, ran=0.001, runs_per_s=0.2, io_per_s=0) == []


def test_a_program_with_io_is_named_before_a_kernel_thread():
    kernel = waits(row=KWORKER, waited=0.9, ran=0.001, runs_per_s=2, io_per_s=0)[CPU_WAITS]
    behind = API._replace(weight_file="", weight=0, instead="rtlogger/9", instead_policy="SCHED_FIFO 50")
    program = waits(row=behind, waited=0.8)[CPU_WAITS]
    (finding,) = starved(tables={CPU_WAITS: kernel | program})
    assert finding.short == "apiserver waits 40 ms each time for a CPU: rtlogger runs, SCHED_FIFO 50"
    assert "kworker/1:1 waits, too: 450 ms on average" in [fact.text for fact in finding.facts]


def test_redaction_changes_no_finding():
    (named,) = starved(row=API)
    (redacted,) = starved(row=API._replace(process="", instead="", cgroup=""))
    assert (named.severity, named.device) == (redacted.severity, redacted.device)


def test_processes_of_one_name_are_one_program():
    tables = {
        CPU_WAITS: {
            PLAIN._replace(process=f"worker/{pid}"): CpuWait(5 * S, 5_000, round(0.3 * 5 * S), 30, 4096)
            for pid in (1, 2, 3)
        }
    }
    (finding,) = starved(tables=tables)
    assert finding.short == "worker waits 50 ms each time for a CPU"
    waiting = next(fact for fact in finding.facts if fact.name == "waiting")
    assert waiting.value == pytest.approx(0.9)


def test_the_device_of_the_program_is_affected_too():
    issuer = Issuer("sda", "read", "/", "", 7, "apiserver")
    (finding,) = starved(tables=waits() | {ISSUERS: {issuer: IssuedIO(50, 50 * 4096)}})
    assert finding.also == ("sda",)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"ran": 0.3, "waited": 9.0}, id="it computes: a job of a build"),
        pytest.param({"ran": 0.05, "waited": 0.6}, id="it has a part of its time that is not small"),
        pytest.param({"io_per_s": 200}, id="nearly no I/O"),
        pytest.param({"runs_per_s": 1000}, id="short waits"),
        pytest.param({"waited": 0.3}, id="it seldom waits"),
        pytest.param({"blocks": 1}, id="the first block"),
    ],
)
def test_others_are_not_found(case):
    assert starved(**case) == []


@pytest.mark.parametrize(("blocks_with_waits", "findings"), [(1, 0), (2, 0), (3, 1)])
def test_waits_of_a_part_of_the_minute_are_a_burst(blocks_with_waits, findings):
    frames = lasting(12)
    first = len(frames) - blocks_with_waits
    ending = [replace(frame, tables={**frame.tables, **waits()}) for frame in frames[first:]]
    assert len(found(ID, [*frames[:first], *ending])) == findings


def test_a_long_list_of_cpus_is_their_number():
    (finding,) = starved(row=API._replace(cpus="128 CPUs"))
    assert "it may use 128 CPUs only" in finding.summary


def test_without_psi_or_schedstat_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of(lasting(12)))[CPU_WAITS_READ]
