"""device-disagrees: a device is slow, and it or its link reports errors, less than its best link, or a bad state.

sysfs has these reports (Device.reports): SCSI error and time-out counters, PCIe AER counters and link, states of
devices and paths; the health log of an NVMe drive has warnings, media errors and times of heat. Counters began long
ago, so that only their growth counts, in the last minutes that were measured. A link is compared with the best that
both of its ends can do: a fast drive in a slow slot is as fast as it can be there.
No finding: a device that is slow and reports nothing, and one that reports errors and is fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.evidence import kernel_log_facts, kernel_log_step
from latmon.findings.facts import GROWN_US, Facts
from latmon.findings.rule import (
    LATENCIES,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
)
from latmon.model.frame import Device
from latmon.support.units import counted, spelled

ID = "device-disagrees"
_BAD_STATES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "state": frozenset(
            (
                *("blocked", "created-blocked", "quiesce", "offline", "transport-offline", "cancel", "deleted"),  # SCSI
                *("resetting", "connecting", "deleting", "deleting (no IO)", "dead"),  # NVMe
            )
        ),
        "access_state": frozenset(("standby", "unavailable", "offline", "transitioning")),
        "ana_state": frozenset(("inaccessible", "persistent-loss", "change")),
    }
)
"""Words of scsi_sysfs.c, nvme/host/sysfs.c and nvme/host/multipath.c. A word that isn't here says nothing."""
_WARNINGS = (
    "few spare blocks",
    "temperature is beyond a threshold",
    "reliability is degraded",
    "read-only",
    "the backup of volatile memory failed",
    "persistent memory is read-only or unreliable",
)
"""Bits of critical_warning, from the lowest on (NVMe base specification, SMART log)."""
_PARTS = ("link_speed", "link_width")
_REFUTED = "the reports stay as they are while the latency changes: the link and the errors are old and harmless"


class _Counter(NamedTuple):
    """A counter of errors: one and several of them in words, the threshold of its growth, whether one ends an I/O."""

    one: str
    several: str
    least: str
    is_severe: bool


_COUNTERS: Mapping[str, _Counter] = MappingProxyType(
    {
        "iotmo_cnt": _Counter("command timed out", "commands timed out", "severe", True),
        "aer_fatal": _Counter("fatal PCIe error", "fatal PCIe errors", "severe", True),
        "aer_nonfatal": _Counter("uncorrected PCIe error", "uncorrected PCIe errors", "severe", True),
        "media_errors": _Counter("media error", "media errors", "severe", True),
        "critical_comp_time": _Counter(
            "minute above the critical temperature", "minutes above the critical temperature", "severe", True
        ),
        "thm_temp2_trans_count": _Counter("heavy thermal throttling", "heavy thermal throttlings", "severe", True),
        "thm_temp1_trans_count": _Counter("light thermal throttling", "light thermal throttlings", "severe", False),
        "warning_temp_time": _Counter(
            "minute above the warning temperature", "minutes above the warning temperature", "severe", False
        ),
        "path_failures": _Counter("failure of a path", "failures of paths", "severe", True),
        "ioerr_cnt": _Counter("command with an error", "commands with errors", "errors", False),
        "aer_correctable": _Counter("corrected PCIe error", "corrected PCIe errors", "errors", False),
    }
)
"""ioerr_cnt counts commands of monitors that a drive doesn't know as well, so that a few say nothing."""


class _Remark(NamedTuple):
    """A report that speaks against the device, in words."""

    name: str
    value: int | str
    text: str
    is_severe: bool = False


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per slow device with remarks."""
    for name in facts.busy:
        device = facts.device(name)
        if not device.reports and not device.members:
            continue
        latency = facts.latency(name)
        p99_us = latency.quantile(0.99)
        if latency.count < limits["ios"] or p99_us is None or p99_us < limits["slow_us"]:
            continue
        if remarks := [*_remarks(facts, device, limits), *_of_members(facts, device)]:
            yield _finding(facts, device, remarks, p99_us)


def _remarks(facts: Facts, device: Device, limits: Thresholds) -> Iterator[_Remark]:
    grown = facts.grown.get(device.name, {})
    for name, counter in _COUNTERS.items():
        if (n := grown.get(name, 0)) >= limits[counter.least]:
            words = counter.one if n == 1 else counter.several
            yield _Remark(name, n, f"{n:,} {words} in the readings of {spelled(GROWN_US)} ({name})", counter.is_severe)
    for name, bad in _BAD_STATES.items():
        state = device.reported_value(name)
        if state is not None and state in bad:
            yield _Remark(name, state, f"{name.replace('_', ' ')} is {state}", True)
    if failed := device.reported_value("paths_failed"):
        paths = device.report("paths")
        yield _Remark("paths_failed", failed, f"{failed} of {paths.value if paths else '-'} paths failed", True)
    warning = device.reported_value("critical_warning")
    if isinstance(warning, int) and warning > 0:
        warnings = ", ".join(text for bit, text in enumerate(_WARNINGS) if warning >> bit & 1) or f"bits {warning:#x}"
        yield _Remark("critical_warning", warning, f"its health log has a critical warning: {warnings}", True)
    for name in _PARTS:
        now, best = device.reported_value(name), device.reported_value(f"{name}_best")
        if now is not None and best is not None and _amount(now) < _amount(best):
            yield _Remark(
                name, now, f"its PCIe link runs at {_of_link(now)}, and both of its ends can do {_of_link(best)}"
            )


def _of_members(facts: Facts, device: Device) -> Iterator[_Remark]:
    """Yield the bad states of a volume's disks and of paths. Standby (ALUA, ANA) of a path is none."""
    for member in device.members:
        state = facts.device(member).reported_value("state")
        if state in _BAD_STATES["state"]:
            yield _Remark(f"state_of_{member}", state, f"state of {member} below it is {state}", True)


def _of_link(value: int | str) -> str:
    return counted(value, "lane") if isinstance(value, int) else value


def _amount(value: int | str) -> float:
    """Return the number of a speed or a width; infinity for a text without one."""
    try:
        return float(str(value).partition(" ")[0])
    except ValueError:
        return float("inf")


def _finding(facts: Facts, device: Device, remarks: list[_Remark], p99_us: int) -> Finding:
    more = f" and {counted(len(remarks) - 1, 'more report')}" if len(remarks) > 1 else ""
    return Finding(
        id=ID,
        severity=WARNING if any(remark.is_severe for remark in remarks) else NOTICE,
        device=device.name,
        summary=f"{device.name}: p99 is {spelled(p99_us)}, and the device reports: {remarks[0].text}{more}",
        facts=(
            Fact("p99", p99_us, f"p99 is {spelled(p99_us)}", "us", facts.latency(device.name).count),
            *(Fact(remark.name, remark.value, remark.text) for remark in remarks),
            *(
                Fact(f"{report.name}_in_all", report.value, f"in all: {report.name} {report.value:,}")
                for report in device.reports
                if report.name in _COUNTERS and isinstance(report.value, int) and report.value
            ),
            *kernel_log_facts(facts, device.name),
        ),
        where=Where("overview", device.name),
        steps=tuple(_steps(device)),
        refuted_by=_REFUTED,
        short=short_text(
            device.name, f"p99 is {spelled(p99_us)}, and it reports faults of its own", f": {remarks[0].text}"
        ),
    )


def _steps(device: Device) -> Iterator[Step]:
    name = device.name if plain(device.name) else "DEVICE"
    yield kernel_log_step("read the kernel's messages about the device and its link")
    yield Step("read the drive's own logs", commands=(f"smartctl -x /dev/{name}",))
    if any(report.name.startswith(("link_", "aer_")) for report in device.reports):
        yield Step("compare LnkCap with LnkSta, and read the error status", commands=("lspci -vv",))


RULE = Rule(
    ID,
    "a device is slow, and it or its link reports errors, a bad state or a degraded link",
    evaluate,
    needs=LATENCIES,
    explained_by=("command-timeouts",),
    thresholds={
        "slow_us": Threshold(20_000, "us", "p99 at least"),
        "ios": Threshold(100, "ios", "in the last minute at least"),
        "errors": Threshold(10, "times", "commands with an error, or corrected PCIe errors, in ten minutes at least"),
        "severe": Threshold(
            1, "times", "time-outs, uncorrected PCIe errors, media errors, throttlings in ten minutes at least"
        ),
    },
)
