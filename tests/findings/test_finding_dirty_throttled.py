"""dirty-throttled: who is paused, who dirties, and hosts where only the dirty pages are known."""

import pytest
from finding_cases import S, disk, done, facts_of, found, frame, lasting

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import DIRTY
from latmon.findings.rules.dirty_throttled import ID
from latmon.model.host_context import interval_value
from latmon.model.measurements import DIRTIERS
from latmon.model.measurements.dirtiers import Dirtied, Dirtier

COUNTED = (DIRTIERS.name,)
MB = 1_000_000


def pages(dirty, writeback, background, limit):
    """Host context of a frame, in MB."""
    names = ("dirty", "writeback", "dirty_background", "dirty_limit")
    return {name: interval_value(n * MB, 1) for name, n in zip(names, (dirty, writeback, background, limit))}  # noqa: B905


def paused(*rows, blocks=12, context=None, **origin):
    """Findings where each block of 5 s has these rows: (process, ms of pauses, MB dirtied)."""
    table = {Dirtier("sda", process): Dirtied(ms * 1000, mb * MB) for process, ms, mb in rows}
    context = pages(900, 100, 500, 1000) if context is None else context
    frames = lasting(blocks, tables={DIRTIERS: table}, kernel=done("sda", 100, "write", MB), host_context=context)
    return found(ID, frames, [disk()], **{"counted": COUNTED, **origin})


def test_the_victim_and_the_program_that_dirties_most_are_named():
    (finding,) = paused(("dd/7", 500, 150), ("db/9", 1000, 1))
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary == (
        "sda: db (pid 9) is paused 20% of the time, because dirty pages are near their limit; dd (pid 7) dirties the "
        "most, 30 MB/s"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["paused_1"] == 12 * S
    assert facts["paused_2"] == 6 * S
    assert (facts["dirty_limit"], facts["written_bytes"]) == (1000 * MB, 1200 * MB)
    assert any("dd (pid 7)" in step.what and "ionice" in step.what for step in finding.steps)
    assert finding.share == pytest.approx(0.2)


def test_processes_of_a_loop_are_one_program():
    (finding,) = paused(("dd/7", 300, 100), ("dd/8", 300, 100), ("db/9", 500, 1))
    assert "; dd dirties the most, 40 MB/s" in finding.summary


def test_a_copy_that_only_holds_itself_up_is_a_notice():
    (finding,) = paused(("cp/7", 3000, 400), ("cron/9", 10, 1))
    assert finding.severity == "notice"
    assert "cp (pid 7) is paused 60% of the time" in finding.summary
    assert "it dirties the most" in finding.summary


def test_a_small_limit_is_a_warning_and_its_step_raises_it():
    (finding,) = paused(("cp/7", 3000, 400), context=pages(30, 10, 16, 32))
    assert finding.severity == "warning"
    assert any("raise vm.dirty_bytes" in step.what for step in finding.steps)


@pytest.mark.parametrize(
    "case",
    [
        {"rows": (("cp/7", 0, 400), ("db/9", 0, 1))},  # the disk keeps up
        {"rows": (("cp/7", 200, 400),)},  # 4 %
        {"rows": (("cp/7", 5000, 400),), "blocks": 1},  # a burst so far
        {"rows": ()},
    ],
)
def test_no_finding(case):
    assert paused(*case["rows"], blocks=case.get("blocks", 12)) == []


def test_pages_far_below_the_host_s_limits_are_of_a_limit_of_the_device():
    (finding,) = paused(("cp/7", 3000, 400), context=pages(30, 10, 500, 1000))
    assert any(step.commands == ("grep -H . /sys/block/sda/bdi/*",) for step in finding.steps)
    assert not any("dirty_background" in step.what for step in finding.steps)


def test_other_devices_whose_writers_are_paused_are_evidence():
    rows = {
        Dirtier("sda", "db/9"): Dirtied(2 * S, MB),
        Dirtier("sdb", "dd/7"): Dirtied(3 * S, 90 * MB),
        Dirtier("sdc", "sh/8"): Dirtied(0, MB),
    }
    frames = lasting(12, tables={DIRTIERS: rows}, host_context=pages(900, 100, 500, 1000))
    first, second = found(ID, frames, [disk(), disk("sdb")], counted=COUNTED)
    assert {fact.name: fact.value for fact in first.facts}["also_paused"] == "sdb"
    assert {fact.name: fact.value for fact in second.facts}["also_paused"] == "sda"


def test_many_threads_are_paused_at_a_time():
    (finding,) = paused(("db/9", 20_000, 100), ("cp/7", 500, 400))
    assert "db (pid 9) is paused in 4.0 threads at a time" in finding.summary
    assert finding.share == 1.0


def test_a_redacted_recording_has_no_names():
    (finding,) = paused(("", 2000, 400))
    assert finding.summary.startswith("sda: a program is paused 40% of the time")


def test_without_a_probe_the_pages_of_the_host_show_that_writers_are_paused():
    frames = lasting(12, host_context=pages(700, 100, 500, 1000))
    (finding,) = found(ID, frames, [disk()])
    assert (finding.severity, finding.device) == ("notice", "")
    assert finding.summary.startswith("763 MiB are dirty or being written, of a limit of 954 MiB")
    assert found(ID, lasting(12, host_context=pages(600, 100, 500, 1000)), [disk()]) == []


def test_a_fleet_has_the_limits_of_the_host():
    table = {Dirtier("db1:sda", "dd/7"): Dirtied(2 * S, MB)}
    context = {f"db1:{name}": value for name, value in pages(900, 100, 16, 32).items()}
    frames = lasting(12, tables={DIRTIERS: table}, host_context=context)
    (finding,) = found(ID, frames, [disk("db1:sda")], counted=COUNTED, backend="fleet")
    assert finding.severity == "warning"


def test_without_dirty_pages_the_rule_is_not_evaluated():
    assert ID in not_evaluated(facts_of([frame()]))[DIRTY]
    assert DIRTY not in not_evaluated(facts_of([frame()], counted=COUNTED))
    assert DIRTY not in not_evaluated(facts_of([frame(host_context=pages(1, 1, 5, 10))]))
    assert found(ID, lasting(12), [disk()]) == []


def test_who_dirties_little_of_what_is_written_does_not_fill_the_limit():
    """A program that made files of 600 bytes was said to dirty the most, 6.53 kB/s of the 300 kB/s of metadata."""
    table = {Dirtier("sda", "maildrop/7"): Dirtied(1 * S, 33_000)}
    frames = lasting(
        12, tables={DIRTIERS: table}, kernel=done("sda", 900, "write", 2048), host_context=pages(30, 10, 500, 1000)
    )
    (finding,) = found(ID, frames, [disk()], counted=COUNTED)
    assert finding.summary == (
        "sda: maildrop (pid 7) is paused 20% of the time, because dirty pages are near a limit of sda's own, or of a "
        "cgroup; maildrop (pid 7) dirties 6.6 kB/s, which is little of what sda writes, such as metadata"
    )
    assert "dirties the most" not in finding.short
    strict = {"device sda": {"bdi strict_limit": "1"}}
    (finding,) = found(ID, frames, [disk()], counted=COUNTED, settings=strict)
    assert "because dirty pages are near a limit of sda's own (strict_limit); maildrop" in finding.summary
