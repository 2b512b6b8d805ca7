"""What to do about a limit that is too low, by its name: steps of the rules on queues, each with its risk.

Knows the kernels' names of limits and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.finding import Step
from latmon.model import Device

_FULL = "the device may answer that its queue is full, and who shares it waits longer; undone by the old value"


def raising(device: Device, name: str) -> Iterator[Step]:
    """Of the limit `name` that a device has reached, or that is too low for it."""
    driver = device.driver or "its driver"
    if name in ("queue_depth", "cmd_per_lun"):
        yield Step(f"raise it: echo 32 > /sys/block/{device.name}/device/queue_depth", _FULL)
        yield Step(
            f"find out who lowered it: a parameter of {driver}, a udev rule, or a full queue in the kernel's log"
        )
    elif name == "nr_requests":
        yield Step(
            f"raise it: echo 256 > /sys/block/{device.name}/queue/nr_requests",
            "memory, and a longer queue for all of its users; undone by the old value",
        )
    elif name == "queue_type":
        yield Step(f"echo simple > /sys/block/{device.name}/device/queue_type", "a device that can't do it may hang")
    elif name in ("un_throttle", "un_f_opt_queueing", "m_notag"):
        yield Step("read m_notag of the adapter and un_f_opt_queueing of the disk with mdb -k: is tagged queueing off?")
        yield Step("update the adapter's driver where it is: a known bug of some versions", "a reboot")
        yield Step("else raise the throttle in sd.conf or /etc/system (sd_max_throttle)", f"a reboot; {_FULL}")
    else:
        yield Step(
            f"raise the parameter of {driver} that sets {name} (modinfo -p lists them) and load it anew",
            "all of its disks are gone while it is loaded",
        )
