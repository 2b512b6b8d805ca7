"""Who sorts a device's requests by LBA, and what to do where one far away starves for it: steps, each with its risk.

Knows the schedulers of Linux and sd's disksort, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.commands import sd_walk, setting, sysfs
from latmon.findings.finding import Step
from latmon.findings.raising import sd_config
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
        yield from sd_config(
            device,
            "disksort:false",
            "turn disksort off for this product",
            "throughput for a bounded wait: a single spindle seeks more and most I/Os take longer; undone by "
            "taking the line out",
        )
        look = sd_walk(device, "un_f_disksort_disabled")
        yield Step("see that it is off then, un_f_disksort_disabled is 1", commands=(look,))
    elif name is not None:
        yield Step(
            "try without it",
            f"throughput for a bounded wait: a single spindle seeks more; undone by writing {name}",
            (setting(f"{at}/scheduler", "none"),),
        )
    if name in ("mq-deadline", "deadline"):
        yield Step(
            f"or let {name} keep nobody waiting for as long",
            "more seeks; undone by the old value (16); read_expire and write_expire beside it do the same",
            (setting(f"{at}/iosched/fifo_batch", 1),),
        )
