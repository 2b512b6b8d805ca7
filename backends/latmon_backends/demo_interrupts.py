"""The demo's interrupts, softirqs and wake-ups, made of the very times that its I/Os spent there. Draws nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.histogram import EMPTY, Histogram, merge
from latmon.model import Handler, HandlerRuns, SoftirqCpu, SoftirqRuns, Thread, Wakeups
from latmon_backends.demo_host import DEVICES, HBA
from latmon_backends.demo_outliers import BACKUP, COMPLETER, COMPLETER_PID, HOG, PROGRAMS
from latmon_backends.demo_splits import SHARED_US, Load
from latmon_backends.synthetic import Group, histogram

_SHARED_IRQ = 16
_NVME_IRQ = 64
_RUN_US = 5
_WAKING_US = 15
_LATE_US = 1000
_SLOW, _OURS = "uhci_hcd:usb3", "mpt3sas0"
_CPUS = 8


def _always(runs: int, delay_us: int, run_us: int) -> SoftirqRuns:
    def constant(us: int) -> Histogram:
        return histogram([Group(runs, us)])

    return SoftirqRuns(constant(delay_us), constant(run_us), {"irq_exit": runs}, {"irq": runs})


_BACKGROUND = {
    SoftirqCpu(vector, cpu): _always(runs, delay, run)
    for vector, runs, delay, run in (("TIMER", 250, 1, 3), ("SCHED", 90, 2, 4), ("RCU", 60, 2, 2))
    for cpu in range(_CPUS)
}
"""What a host does anyway: the same in every window, and one object for all of them."""


def handlers(loads: Iterable[Load]) -> dict[Handler, HandlerRuns]:
    """The NVMe devices' own vectors, and the disks' one, which a slow handler shares."""
    disks: list[Group] = []
    drives: dict[str, list[Group]] = {}
    for load in loads:
        times = [Group(one.size, one.irq) for one in load.splits if one.irq is not None]
        device = load.drawn.flow.device
        if device.startswith("nvme"):
            drives.setdefault(device, []).extend(times)
        else:
            disks += times
    found = {_nvme(device): HandlerRuns(*_handled(times), device=device) for device, times in drives.items()}
    return found | (_shared(disks) if disks else {})


def softirqs(loads: Iterable[Load]) -> dict[SoftirqCpu, SoftirqRuns]:
    """BLOCK on the CPU of each disk, and what a host does anyway."""
    waits: dict[int, list[Group]] = {}
    for load in loads:
        times = [Group(one.size, max(0, one.softirq - _RUN_US)) for one in load.splits if one.softirq is not None]
        if times:
            waits.setdefault(_cpu(load.drawn.flow.device), []).extend(times)
    return _BACKGROUND | {SoftirqCpu("BLOCK", cpu): _block(times) for cpu, times in sorted(waits.items())}


def wakeups(loads: Iterable[Load]) -> tuple[Wakeups, ...]:
    """The completion thread, and the programs that wait for their reads and flushes."""
    late: list[Group] = []
    resumed: dict[tuple[str, int], list[Histogram]] = {}
    for load in loads:
        late += [
            Group(one.size, max(0, one.completion - _WAKING_US)) for one in load.splits if one.completion is not None
        ]
        if load.resume:
            resumed.setdefault(PROGRAMS.get(load.drawn.flow.device, BACKUP), []).append(load.resume)
    return (*_completer(late), *(_program(comm, pid, parts) for (comm, pid), parts in resumed.items()))


def _completer(late: list[Group]) -> Iterator[Wakeups]:
    if late:
        thread = Thread(COMPLETER_PID, COMPLETER, "other", 120)
        yield Wakeups(thread, histogram(late), {HOG: sum(one.size for one in late)})


def _program(comm: str, pid: int, parts: list[Histogram]) -> Wakeups:
    return Wakeups(Thread(pid, comm, "other", 120, kernel=False), merge(parts))


def _handled(times: list[Group]) -> tuple[Histogram, dict[str, int]]:
    return histogram(times) if times else EMPTY, {"handled": sum(one.size for one in times)}


def _shared(times: list[Group]) -> dict[Handler, HandlerRuns]:
    count = sum(one.size for one in times)
    own, returned = _handled([Group(one.size, max(0, one.us - SHARED_US)) for one in times])
    slow = HandlerRuns(histogram([Group(count, SHARED_US)]), {"none": count}, 0, "0000:00:1d.0", (_OURS,))
    return {
        Handler(_SHARED_IRQ, _SLOW): slow,
        Handler(_SHARED_IRQ, _OURS): HandlerRuns(own, returned, count * SHARED_US, HBA, (_SLOW,)),
    }


def _block(times: list[Group]) -> SoftirqRuns:
    count = sum(one.size for one in times)
    late = sum(one.size for one in times if one.us >= _LATE_US)
    # raised in an interrupt it would run when that one ends: what waits for the tick was raised elsewhere
    ran_in, raised_in = (
        {here: count - late, **({there: late} if late else {})}
        for here, there in (("irq_exit", "timer"), ("irq", "other"))
    )
    return SoftirqRuns(histogram(times), histogram([Group(count, _RUN_US)]), ran_in, raised_in)


def _nvme(device: str) -> Handler:
    number = next(at for at, one in enumerate(DEVICES) if one.name == device)
    return Handler(_NVME_IRQ + number, f"nvme{number}q1")


def _cpu(device: str) -> int:
    return next(at for at, one in enumerate(DEVICES) if one.name == device) % _CPUS
