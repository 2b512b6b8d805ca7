"""Who sorts a device's requests by LBA, and what to do where one far away starves for it: steps, each with its risk.

Knows the schedulers of Linux and sd's disksort, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.finding import Step
from latmon.findings.raising import sysfs
from latmon.limits import elevator, number
from latmon.model import Device

_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")


def sorter(device: Device) -> str | None:
    """The name of what sorts them; None where nothing is known to."""
    if any(one.name == "un_f_disksort_disabled" and number(one.value) == 0 for one in device.limits):
        return "disksort"
    name = elevator(device.limits)
    return name if name in _SORTING else None


def classes(device: Device) -> bool:
    """Whether its scheduler lets the idle class (ionice) wait for all others."""
    return elevator(device.limits) in ("mq-deadline", "bfq", "cfq")


def unsorting(device: Device) -> Iterator[Step]:
    """Bounded waits for fewer seeks: the trade-off is in the risk."""
    name, at = sorter(device), f"{sysfs(device.name)}/queue"
    if name == "disksort":
        yield Step(
            "turn disksort off in sd.conf, with vendor (8 characters) and product as iostat -En tells: "
            'sd-config-list = "VENDOR  PRODUCT", "disksort:false"; then update_drv -vf sd, or a reboot',
            "throughput for a bounded wait: a single spindle seeks more and most I/Os take longer; undone by "
            "taking the line out",
        )
    elif name is not None:
        yield Step(
            f"try without it: echo none > {at}/scheduler",
            f"throughput for a bounded wait: a single spindle seeks more; undone by writing {name}",
        )
    if name in ("mq-deadline", "deadline"):
        yield Step(
            f"or let {name} keep nobody waiting for as long: echo 1 > {at}/iosched/fifo_batch",
            "more seeks; undone by the old value (16); read_expire and write_expire beside it do the same",
        )
