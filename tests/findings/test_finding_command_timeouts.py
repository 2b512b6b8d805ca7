"""command-timeouts: commands that a device does not answer, resets, and what is no such thing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from finding_cases import disk, done, facts_of, found, frame, lasting, timed

from latmon.findings.engine import RuleEngine, not_evaluated
from latmon.findings.rule import RECOVERIES as INPUT
from latmon.findings.rules.command_timeouts import ID
from latmon.model.frame import DeviceReport, Mark, Origin
from latmon.model.measurements import RECOVERIES
from latmon.model.measurements.recoveries import (
    ABORTED,
    EVENTS,
    GIVEN_UP,
    PATH_FAILED,
    POLLED,
    REPORTED_RESET,
    RESET,
    TIMED_OUT,
    Recovery,
)

COUNTED = (RECOVERIES.name,)
LOAD = {"histograms": timed("sda", ((50, {"hba": 900}),)), "kernel": done("sda", 50)}


def of_events(*rows, device="sda", blocks=1, known=None):
    """Findings about a device with so many events (event, number) in each block."""
    events = {Recovery(device, event): number for event, number in rows}
    frames = lasting(blocks, tables={RECOVERIES: events}, **LOAD)
    return found(ID, frames, [known or disk(device)], counted=COUNTED)


@pytest.mark.parametrize(
    ("rows", "severity", "summary"),
    [
        ([(TIMED_OUT, 1)], "warning", "1 time-out of commands"),
        ([(TIMED_OUT, 17), (ABORTED, 17)], "warning", "17 time-outs of commands and 17 aborts were tried"),
        (
            [(TIMED_OUT, 8), (ABORTED, 1), (RESET, 2)],
            "warning",
            "8 time-outs of commands, 1 abort was tried and the kernel reset it twice",
        ),
        (
            [(TIMED_OUT, 12), (REPORTED_RESET, 3), (GIVEN_UP, 1)],
            "critical",
            "12 time-outs of commands, it reported a reset 3 times and the kernel gave it up",
        ),
        (
            [(TIMED_OUT, 2), (POLLED, 1)],
            "warning",
            "2 time-outs of commands and 1 of them was completed without an interrupt",
        ),
        ([(REPORTED_RESET, 1)], "notice", "it reported a reset once"),
        ([(PATH_FAILED, 1)], "warning", "it failed as a path once"),
    ],
)
def test_what_happened_is_said_in_its_order(rows, severity, summary):
    (finding,) = of_events(*rows)
    assert (finding.severity, finding.device) == (severity, "sda")
    assert finding.summary == f"sda: {summary}"


def test_each_event_has_a_clause_and_a_fact():
    (finding,) = of_events(*((event, 2) for event in EVENTS))
    assert len(finding.facts) == len(EVENTS) + 1
    assert [fact.value for fact in finding.facts] == [2] * len(EVENTS) + [2 * len(EVENTS)]


def test_the_events_of_a_minute_are_added_up_and_those_of_the_last_block_are_apart():
    (finding,) = of_events((TIMED_OUT, 3), blocks=12)
    facts = {fact.name: fact.value for fact in finding.facts}
    assert (facts["timed_out"], facts["still"]) == (36, 3)
    assert finding.share == 1.0


def test_the_timer_and_what_the_device_reports_are_evidence():
    reports = (DeviceReport("iotmo_cnt", 41, "device/iotmo_cnt"), DeviceReport("state", "running", "device/state"))
    frames = lasting(1, tables={RECOVERIES: {Recovery("sda", TIMED_OUT): 3}}, **LOAD)
    line = Mark("sd 0:0:0:0: Power-on or device reset occurred", frames[0].mono_us, frames[0].wall, device="sda")
    counted = Mark("3 commands timed out (device/iotmo_cnt)", frames[0].mono_us, frames[0].wall, device="sda")
    settings = {"device sda": {"timeout": "30"}}
    origin = Origin("test", "here", "6.12.0", "0", counted=COUNTED, settings=settings)
    engine = RuleEngine(origin, (replace(disk(), reports=reports),))
    engine.take(replace(frames[0], marks=(line, counted)))
    engine.finish()
    (finding,) = engine.current
    facts = {fact.name: (fact.value, fact.text) for fact in finding.facts}
    assert facts["timer"] == (30_000_000, "a command times out after 30 s")
    assert facts["iotmo_cnt_in_all"] == (41, "in all: iotmo_cnt 41")
    assert facts["state"] == ("running", "state: running")
    assert facts["kernel_log"][0] == line.text  # not the mark of the counter, which no log has


@pytest.mark.parametrize(
    ("settings", "timer_us"),
    [
        ({"io_timeout": "4000", "timeout": "4"}, 4_000_000),
        ({"io_timeout": "2500"}, 2_500_000),
        ({"timeout": "30"}, 30_000_000),
        ({"timeout": "x"}, None),
    ],
)
def test_the_timer_is_in_ms_or_of_scsi_in_s(settings, timer_us):
    origin = Origin("test", "here", "6.12.0", "0", counted=COUNTED, settings={"device sda": settings})
    engine = RuleEngine(origin, (disk(),))
    engine.take(lasting(1, tables={RECOVERIES: {Recovery("sda", TIMED_OUT): 3}}, **LOAD)[0])
    engine.finish()
    (finding,) = engine.current
    assert {fact.name: fact.value for fact in finding.facts}.get("timer") == timer_us


def test_steps_name_the_logs_of_the_drive():
    (finding,) = of_events((TIMED_OUT, 1), (POLLED, 1), device="nvme0n1", known=disk("nvme0n1"))
    commands = [command for step in finding.steps for command in step.commands]
    assert commands == [
        *("dmesg | tail -n 50", "cat /proc/interrupts"),
        *("nvme error-log /dev/nvme0n1", "smartctl -x /dev/nvme0n1"),
    ]


def test_a_quiet_device_has_no_finding_and_without_a_source_the_rule_is_not_evaluated():
    assert found(ID, lasting(12, **LOAD), [disk()], counted=COUNTED) == []
    assert ID in not_evaluated(facts_of([frame(**LOAD)]))[INPUT]
    assert INPUT not in not_evaluated(facts_of([frame(**LOAD)], counted=COUNTED))


def test_a_slow_device_that_reports_the_same_is_named_once():
    """device-disagrees would name it for the state, too."""
    slow = {"histograms": timed("sda", ((180, {"hba": 1_000}), (20, {"hba": 40_000})))}
    frames = lasting(12, tables={RECOVERIES: {Recovery("sda", RESET): 1}}, **slow)
    blocked = replace(disk(), reports=(DeviceReport("state", "blocked", "device/state"),))
    engine = RuleEngine(Origin("test", "here", "6.12.0", "0", counted=COUNTED), (blocked,))
    for each in frames:
        engine.take(each)
    engine.finish()
    assert [finding.id for finding in engine.current if finding.device == "sda"] == [ID]
