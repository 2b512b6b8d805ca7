"""Who sorts a device's requests by LBA, and what to do where one far away starves for it: steps, each with its risk.

Knows the schedulers of Linux and sd's disksort, and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.finding import Step
from latmon.limits import elevator, number
from latmon.model import Device

_SORTING = ("mq-deadline", "bfq", "deadline", "cfq")


def sorter(device: Device) -> str | None:
    """The name of what sorts them; None where nothing is known to."""
    if any(one.name == "un_f_disksort_disabled" and number(one.value) == 0 for one in device.limits):
        return "disksort"
    name = elevator(device.limits)
    return name if name in _SORTING else None


def unsorting(device: Device) -> Iterator[Step]:
    """Bounded waits for fewer seeks: the trade-off is in the risk."""
    name, at = sorter(device), f"/sys/block/{device.name}/queue"
    if name == "disksort":
        yield Step(
            "turn disksort off: disksort:false in sd.conf (sd-config-list), or un_f_disksort_disabled with mdb -kw",
            "throughput for a bounded wait: a single spindle seeks more and most I/Os take longer; mdb writes into the "
            "kernel",
        )
    elif name is not None:
        yield Step(
            f"try without it: echo none > {at}/scheduler",
            f"throughput for a bounded wait: a single spindle seeks more; undone by writing {name}",
        )
    if name in ("mq-deadline", "deadline"):
        yield Step(
            f"or let {name} wait less: read_expire, write_expire and fifo_batch in {at}/iosched",
            "more seeks the smaller they are; undone by the old values",
        )
