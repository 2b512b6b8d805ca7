"""What to do about a limit that is too low, by its name: steps of the rules on queues, each with its risk.

Knows the kernels' names of limits and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.commands import plain
from latmon.findings.finding import Step
from latmon.model import Device

_MDB = (
    """echo '*sd_state::walk softstate | ::print -at "struct sd_lun" un_throttle un_min_throttle un_f_opt_queueing' """
    "| mdb -k"
)
_FULL = "the device may answer that its queue is full, and who shares it waits longer; undone by the old value"


def sysfs(device: str) -> str:
    """A device's directory; the reader puts in a name that isn't plain."""
    return f"/sys/block/{device if plain(device) else 'DEVICE'}"


def raising(device: Device, name: str) -> Iterator[Step]:
    """Of the limit `name` that a device has reached, or that is too low for it."""
    driver, at = device.driver or "its driver", sysfs(device.name)
    if name in ("queue_depth", "cmd_per_lun"):
        yield Step(f"raise it: echo 32 > {at}/device/queue_depth", _FULL)
        yield Step(
            f"find out who lowered it: a parameter of {driver}, a udev rule, or a full queue in the kernel's log"
        )
    elif name == "nr_requests":
        yield Step(
            f"raise it: echo 256 > {at}/queue/nr_requests",
            "memory, and a longer queue for all of its users; undone by the old value",
        )
    elif name == "queue_type":
        yield Step(
            f"turn tags on: echo simple > {at}/device/queue_type",
            "a device that can't do it may hang; undone by echo none",
        )
    elif name in ("un_throttle", "un_f_opt_queueing", "m_notag"):
        yield Step(f"read what sd is set to: {_MDB}: is tagged queueing off (un_f_opt_queueing 1)?")
        yield Step("update the adapter's driver where it is: a known bug of some versions", "a reboot")
        yield Step(
            "else raise the throttle in /etc/system: set sd:sd_max_throttle = 64",
            f"a reboot, and all of sd's disks have it; {_FULL}",
        )
    else:
        lists = f"modinfo -p {driver}" if plain(driver) else "modinfo -p"
        yield Step(
            f"raise the parameter of {driver} that sets {name}, and load it anew: {lists}",
            "all of its disks are gone while it is loaded; undone by the old value and another load",
        )
