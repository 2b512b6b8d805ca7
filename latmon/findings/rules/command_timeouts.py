"""command-timeouts: commands to a device time out, or the kernel resets it, because it does not answer.

A command that times out has waited for the whole of the driver's timer, 30 s by default. Then it is aborted or its
device is reset, and it is sent again. Programs see I/Os that take so long, and mostly no error. SCSI counts its
time-outs, NVMe logs them, and what the kernel did is in its log. It is critical where the kernel gave the device up.
That a device reports a reset and nothing timed out is a notice: another host may have done it. No finding: commands
that are slow and complete in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from latmon.findings.evidence import kernel_log_facts, kernel_log_step
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    NOTICE,
    RECOVERIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
)
from latmon.model import measurements
from latmon.model.frame import Device
from latmon.model.measurements import recoveries
from latmon.support.units import counted, spelled

ID = "command-timeouts"
_REFUTED = (
    "its counter of time-outs (device/iotmo_cnt) stays, and the kernel's log has neither time-out nor reset of it"
)
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        recoveries.TIMED_OUT: "timed_out",
        recoveries.POLLED: "interrupts_lost",
        recoveries.ABORTED: "aborted",
        recoveries.RESET: "resets",
        recoveries.REPORTED_RESET: "resets_reported",
        recoveries.PATH_FAILED: "path_failures",
        recoveries.GIVEN_UP: "given_up",
    }
)
"""Event -> name of its fact."""
_TIMERS_US: Mapping[str, int] = MappingProxyType({"io_timeout": 1000, "timeout": 1_000_000})
"""Settings of a device after which a command times out, with their units: queue/io_timeout (block/blk-sysfs.c, ms), and
device/timeout, which sets it for SCSI (drivers/scsi/scsi_sysfs.c, s)."""


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device with events."""
    by_device: dict[str, dict[str, int]] = {}
    for row, count in facts[measurements.RECOVERIES].items():
        if count:
            by_device.setdefault(row.device, {})[row.event] = count
    for name in sorted(by_device):
        if sum(by_device[name].values()) >= limits["events"]:
            yield _finding(facts, facts.device(name), by_device[name])


def _finding(facts: Facts, device: Device, events: Mapping[str, int]) -> Finding:
    clauses = [_clause(event, events[event]) for event in recoveries.EVENTS if event in events]
    *earlier, last = clauses
    summary = f"{', '.join(earlier)} and {last}" if earlier else last
    return Finding(
        id=ID,
        severity=_severity(events),
        device=device.name,
        summary=f"{device.name}: {summary}",
        facts=tuple(_evidence(facts, device, events)),
        where=Where("overview", device.name),
        steps=tuple(_steps(device, events)),
        refuted_by=_REFUTED,
        # Of a command that times out nearly all of its time is the wait for that.
        share=1.0 if recoveries.TIMED_OUT in events else 0.0,
        short=_short(device.name, events),
    )


def _short(device: str, events: Mapping[str, int]) -> str:
    """Return the short text: first what did most harm, that the device was given up or that commands timed out."""
    most_harm = sorted(events, key=lambda event: (event != recoveries.GIVEN_UP, recoveries.EVENTS.index(event)))
    first, *others = (_clause(event, events[event]) for event in most_harm)
    return short_text(device, first, *(f", {clause}" for clause in others))


def _severity(events: Mapping[str, int]) -> Severity:
    if recoveries.GIVEN_UP in events:
        return CRITICAL
    return NOTICE if events.keys() == {recoveries.REPORTED_RESET} else WARNING


def _clause(event: str, count: int) -> str:
    """Return a clause of the summary: `2 time-outs of commands`, `the kernel reset it twice`."""
    were = "was" if count == 1 else "were"
    times = {1: "once", 2: "twice"}.get(count, f"{count:,} times")
    clauses = {
        recoveries.TIMED_OUT: f"{counted(count, 'time-out')} of commands",
        recoveries.POLLED: f"{count:,} of them {were} completed without an interrupt",
        recoveries.ABORTED: f"{counted(count, 'abort')} {were} tried",
        recoveries.RESET: f"the kernel reset it {times}",
        recoveries.REPORTED_RESET: f"it reported a reset {times}",
        recoveries.PATH_FAILED: f"it failed as a path {times}",
        recoveries.GIVEN_UP: "the kernel gave it up",
    }
    return clauses[event]


def _evidence(facts: Facts, device: Device, events: Mapping[str, int]) -> Iterator[Fact]:
    for event in recoveries.EVENTS:
        if event in events:
            yield Fact(_NAMES[event], events[event], f"{event}: {events[event]:,} in the last minute")
    newest = facts.window[-1]
    still = sum(count for row, count in newest[measurements.RECOVERIES].items() if row.device == device.name)
    yield Fact("still", still, f"in the last {spelled(newest.span_us)}: {still:,}")
    if (timer_us := _timer_us(facts, device)) is not None:
        yield Fact("timer", timer_us, f"a command times out after {spelled(timer_us)}", "us")
    for report in device.reports:
        if report.name == "iotmo_cnt" and isinstance(report.value, int) and report.value:
            yield Fact("iotmo_cnt_in_all", report.value, f"in all: iotmo_cnt {report.value:,}")
        elif report.name in ("state", "ana_state"):
            yield Fact(report.name, report.value, f"{report.name.replace('_', ' ')}: {report.value}")
    yield from kernel_log_facts(facts, device.name)


def _timer_us(facts: Facts, device: Device) -> int | None:
    """Return the time after which a command times out, as it was set when the capture began; None where not known."""
    settings = facts.origin.settings.get(f"device {device.name}", {})
    for name, unit_us in _TIMERS_US.items():
        value = settings.get(name, "")
        if value.isdecimal():
            return int(value) * unit_us
    return None


def _steps(device: Device, events: Mapping[str, int]) -> Iterator[Step]:
    name = f"/dev/{device.name}" if plain(device.name) else "DEVICE"
    is_nvme = device.name.startswith("nvme")
    yield kernel_log_step("read what the kernel's log has about it: the commands, the resets, the state afterwards")
    if recoveries.POLLED in events:
        yield Step(
            "find out why its interrupts get lost: firmware of the drive, the platform's interrupts, a virtual machine",
            commands=("cat /proc/interrupts",),
        )
    yield Step("look whether other devices behind the same adapter, cable, switch or target have them then, too")
    if is_nvme:
        yield Step("read the drive's own logs", commands=(f"nvme error-log {name}", f"smartctl -x {name}"))
    else:
        yield Step("read the drive's own logs", commands=(f"smartctl -x {name}",))
    yield Step("of a virtual disk, or a volume of an array, look at what it lies on: its own I/Os take as long")
    yield Step(
        "leave the timer as it is until the cause is known",
        "a longer one hides time-outs and lets programs wait longer; a shorter one resets a device that is only slow",
    )


RULE = Rule(
    ID,
    "commands to a device time out, or the kernel resets it",
    evaluate,
    needs=RECOVERIES,
    thresholds={"events": Threshold(1, "times", "time-outs, aborts, resets, failed paths in the last minute at least")},
)
