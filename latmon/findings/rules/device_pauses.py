"""device-pauses: a device completes no I/O for a while, again and again, and is fast between these pauses.

An SSD that collects garbage, a path that is retried, firmware, an array that fails over. Neither p50 nor p99 shows it,
as less than 1 % of the I/Os wait. Evidence are slow I/Os that end at the same moment (pauses.py). Devices that pause at
the same time have a cause in common: a controller, or the host where all of them do. No finding: a flush or a discard
that takes long, a full queue or a scheduler's, a burst that is drained, late completions, a pause that goes on
(starved-io), one or two pauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.findings.evidence import hardware_steps, host_before, kernel_log_facts, kernel_log_step, lost_share
from latmon.findings.facts import Facts
from latmon.findings.pauses import DevicePauses, PauseGroup, all_pauses, groups_of
from latmon.findings.rule import (
    CRITICAL,
    LATENCIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    plain,
    short_text,
)
from latmon.model.devices import HOST_SEPARATOR, thread_of
from latmon.model.host_context import added
from latmon.model.stages import plural_of_op
from latmon.support.units import duration, in_words, part, spelled

ID = "device-pauses"
_STEAL = "steal"
"""Value of CONTEXT."""
_REFUTED = (
    "an I/O of it that completes in a pause; a program or a freeze that holds its I/Os (a frozen file system, a "
    "suspended volume); or no I/O before each pause: a disk that spins up"
)
_HYPERVISOR = Step(
    "in a virtual machine: see in the hypervisor's log whether it was suspended then, for a snapshot or a migration, "
    "and how its storage was",
    commands=("grep ^cpu /proc/stat",),
)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, or per group of devices that pause at the same time."""
    for group in groups_of(facts, all_pauses(facts, limits), limits):
        yield _finding(facts, group, limits)


def _finding(facts: Facts, group: PauseGroup, limits: Thresholds) -> Finding:
    pauses = group.devices[0]
    others = [other.device for other in group.devices[1:]]
    is_of_host = bool(others) and not group.served
    host = host_before(facts, pauses.device)
    period_us = pauses.period_us(limits["regular"])
    about = host.replace(HOST_SEPARATOR, ": ") if is_of_host else f"{pauses.device}: "
    often = f"{len(pauses.pauses)} times in {_rough(facts.span_us)}"
    period_text = "" if period_us is None else f", about every {_rough(period_us)}"
    cause = _cause(facts, group, limits)
    return Finding(
        id=ID,
        severity=_severity(pauses, limits),
        device="" if is_of_host else pauses.device,
        summary=f"{about}{_subject(group, is_of_host=is_of_host)} {_length_text(pauses, limits)}, "
        f"{often}{period_text}; "
        f"{_ios_text(pauses)} each time; half of all take less than {spelled(pauses.median_us)}: {cause}",
        facts=tuple(_facts(facts, group, period_us)),
        where=Where("outliers", pauses.device, "", min(pauses.lengths_us)),
        steps=tuple(_steps(facts, group)),
        refuted_by=_REFUTED,
        share=lost_share(pauses.waited_us, facts.latency(pauses.device)),
        also=(*([pauses.device] if is_of_host else []), *others, *group.volumes),
        short=short_text(
            host.rstrip(HOST_SEPARATOR) if is_of_host else pauses.device,
            f"{_short_subject(group, is_of_host=is_of_host)} {_short_length(pauses, limits)}",
            f", {often}",
            f", every {_rough(period_us)}" if period_us is not None else "",
            f"; {_ios_text(pauses)}",
        ),
    )


def _rough(us: float) -> str:
    return in_words(duration(us, 2))


def _severity(pauses: DevicePauses, limits: Thresholds) -> Severity:
    long_pauses = sum(length_us >= limits["critical_us"] for length_us in pauses.lengths_us)
    return CRITICAL if long_pauses > 1 else WARNING


def _subject(group: PauseGroup, *, is_of_host: bool) -> str:
    names = [pauses.device for pauses in group.devices]
    if is_of_host:
        return f"all {len(names)} devices with I/O ({', '.join(names)}) complete no I/O at the same time, for"
    if len(names) > 1:
        return f"it and {', '.join(names[1:])} complete no I/O at the same time, for"
    return "completes no I/O for"


def _short_subject(group: PauseGroup, *, is_of_host: bool) -> str:
    return f"{len(group.devices)} devices complete no I/O for" if is_of_host else "completes no I/O for"


def _is_as_long(pauses: DevicePauses, limits: Thresholds) -> bool:
    return max(pauses.lengths_us) - min(pauses.lengths_us) <= limits["regular"] * pauses.length_us


def _length_text(pauses: DevicePauses, limits: Thresholds) -> str:
    if _is_as_long(pauses, limits):
        return spelled(pauses.length_us)
    return f"{spelled(min(pauses.lengths_us))} to {spelled(max(pauses.lengths_us))}"


def _short_length(pauses: DevicePauses, limits: Thresholds) -> str:
    return _length_text(pauses, limits) if _is_as_long(pauses, limits) else f"up to {spelled(max(pauses.lengths_us))}"


def _ios_text(pauses: DevicePauses) -> str:
    """Return how many wait: `4 to 12 I/Os wait`; probes record no more than a few of many."""
    fewest, io = min(pauses.ios), max(pauses.ios)
    least = "" if pauses.are_all_recorded else "at least "
    op = next(iter(pauses.ops)) if len(pauses.ops) == 1 else ""
    if io == 1:
        return f"{least}1 {op or 'I/O'} waits"
    number = f"{io:,}" if fewest == io else f"{fewest:,} to {io:,}"
    return f"{least}{number} {plural_of_op(op) if op else 'I/Os'} wait"


def _cause(facts: Facts, group: PauseGroup, limits: Thresholds) -> str:
    """Return where the cause is: it isn't the load."""
    pauses = group.devices[0]
    if _is_stolen(facts, pauses, limits):
        return "the hypervisor ran others for as long (CPU steal)"
    if len(group.devices) > 1:
        controller = _controller(facts, group)
        if controller:
            return f"their controller ({controller}), or what they share behind it"
        return "what they share, or the host" if not group.served else "what they share"
    thread = thread_of(pauses.device, facts.device(pauses.device).driver)
    return f"{thread or 'the device'} or what is below it"


def _controller(facts: Facts, group: PauseGroup) -> str:
    """Return the controller of all these devices; empty where it is not one, or not known."""
    controllers = {facts.device(pauses.device).controller for pauses in group.devices}
    return controllers.pop() if len(controllers) == 1 else ""


def _steal(facts: Facts, device: str) -> float | None:
    """Return the share of the CPU time that the hypervisor gave to others; None where it is not measured."""
    value = added(block.host_context for block in facts.window).get(host_before(facts, device) + _STEAL)
    return None if value is None else value.ratio


def _is_stolen(facts: Facts, pauses: DevicePauses, limits: Thresholds) -> bool:
    steal = _steal(facts, pauses.device)
    return steal is not None and steal * facts.span_us >= limits["stolen"] * sum(pauses.lengths_us)


def _facts(facts: Facts, group: PauseGroup, period_us: float | None) -> Iterator[Fact]:
    pauses = group.devices[0]
    count = len(pauses.pauses)
    yield Fact("pauses", count, f"{count:,} times no I/O of {pauses.device} ended while some waited", "times")
    paused_us = sum(pauses.lengths_us)
    text = f"the longest pause took {{}}, all of them together {spelled(paused_us)} of {spelled(facts.span_us)}"
    yield from duration_facts(
        ("longest_us", max(pauses.lengths_us), text, None),
        ("shortest_us", min(pauses.lengths_us), "the shortest one took {}", None),
        ("period_us", period_us, "from one pause to the next: {} on average, at regular times", None),
    )
    io = max(pauses.ios)
    text = f"at most {io:,} of the slow I/Os that were recorded waited in one pause ({', '.join(sorted(pauses.ops))})"
    yield Fact("ios", io, text, "ios", sum(pauses.ios))
    yield from duration_facts(
        ("median_us", pauses.median_us, f"half of all I/Os of {pauses.device} take less than {{}}", None)
    )
    if pauses.overtaken is not None:
        text = f"I/Os that came later and ended before the first that had waited: {pauses.overtaken:,} at most"
        yield Fact("overtaken", pauses.overtaken, text, "ios")
    silent = sum(pause.silent_windows for pause in pauses.pauses)
    if silent:
        yield Fact("silent_windows", silent, f"windows of the capture without any completion in a pause: {silent:,}")
    yield from _fact_of_others(group)
    steal = _steal(facts, pauses.device)
    if steal:
        yield Fact(_STEAL, round(steal, 3), f"CPU steal: {part(steal)} of the CPU time of the host", "share")
    yield from kernel_log_facts(facts, pauses.device)


def _fact_of_others(group: PauseGroup) -> Iterator[Fact]:
    others = [pauses.device for pauses in group.devices[1:]]
    if others:
        yield Fact("same_time", ", ".join(others), f"at the same time {', '.join(others)} completed no I/O")
    if group.volumes:
        yield Fact("volumes", ", ".join(group.volumes), f"built on it, and waited for it: {', '.join(group.volumes)}")
    if group.served:
        text = f"had I/Os and did not pause then: {', '.join(group.served)}"
        yield Fact("served", ", ".join(group.served), text)


def _steps(facts: Facts, group: PauseGroup) -> Iterator[Step]:
    device = group.devices[0].device
    if len(group.devices) > 1:
        yield _HYPERVISOR
    yield kernel_log_step(f"read the kernel's log for {device} at the time of a pause: resets, retries, path changes")
    if len(group.devices) > 1:
        yield Step(
            "look at what these devices share: adapter, expander, cable, switch, array, and its firmware",
            commands=("lspci -vv",),
        )
        return
    steps = _sun_steps() if facts.is_sun else _drive_steps(device)
    yield from hardware_steps(facts, device, steps)


def _sun_steps() -> Iterator[Step]:
    yield Step("read the devices' errors, and the paths", commands=("iostat -En", "fmdump -e", "mpathadm list lu"))
    yield Step("compare the drive's firmware with its maker's newest")


def _drive_steps(device: str) -> Iterator[Step]:
    name = f"/dev/{device if plain(device) else 'DEVICE'}"
    is_nvme = device.rpartition(HOST_SEPARATOR)[2].startswith("nvme")
    nvme_logs = [f"nvme smart-log {name}", f"nvme error-log {name}"] if is_nvme else []
    yield Step(
        "read the drive's own log: errors that it retries, heat, spare blocks, its firmware's version",
        commands=(f"smartctl -x {name}", *nvme_logs),
    )
    yield Step(
        "compare its firmware with the maker's newest: pauses at regular times are a known fault of firmware",
        "an update may need a reboot, and a backup",
    )
    yield Step(
        "an SSD without free blocks collects garbage while I/Os wait: see how full it is, and whether it is trimmed",
        commands=(f"lsblk -D {name}", "systemctl list-timers fstrim.timer"),
    )
    yield Step(
        "look at its paths: one that fails is retried before another one is used; then at ports and switch of the SAN",
        commands=("multipath -ll", "dmsetup info", "grep -H . /sys/class/fc_host/*/statistics/link_failure_count"),
    )
    yield _HYPERVISOR


RULE = Rule(
    ID,
    "a device completes no I/O for a while, again and again, and is fast in between",
    evaluate,
    needs=LATENCIES,
    explained_by=("command-timeouts", "starved-io", "maintenance", "outside-limit"),
    thresholds={
        "pause_us": Threshold(300_000, "us", "a read or write waits in a pause at least"),
        "times": Threshold(20, "times", "the median of the device's I/Os, at least"),
        "pauses": Threshold(3, "pauses", "in the last minute at least"),
        "together": Threshold(0.1, "share", "of a pause, in which those that waited end, at most"),
        "recorded": Threshold(
            0.5, "share", "of a pause is the outlier threshold at most, else it needs a silent window"
        ),
        "overtaken": Threshold(5, "ios", "that came later and ended before one that waited, at most"),
        "driver": Threshold(0.8, "share", "of the wait is in driver and device at least, where stages are known"),
        "most": Threshold(0.8, "share", "of the I/Os that take as long wait in a pause at least"),
        "paused": Threshold(0.5, "share", "of the time from the first to the last pause at most: else it is slow"),
        "regular": Threshold(0.2, "share", "of their mean, by which times between pauses vary at most to be named"),
        "same_time": Threshold(0.8, "share", "of the pauses of one of two devices, in which both pause, at least"),
        "stolen": Threshold(0.5, "times", "the pauses is the CPU steal at least, to be named as the cause"),
        "critical_us": Threshold(5_000_000, "us", "two pauses as long make it critical"),
    },
)
