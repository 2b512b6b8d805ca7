"""What to do about a limit that is too low, by its name: steps of the rules on queues, each with its risk.

Knows the kernels' names of limits and no rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.commands import plain, sd_driver, sd_walk, setting, sysfs
from latmon.findings.finding import Step
from latmon.model import Device

_FULL = "the device may answer that its queue is full, and who shares it waits longer; undone by the old value"
_MPT_SAS = (
    "update the adapter's driver where it is. Known: Solaris 11's mpt_sas under VMware's LSI Logic SAS, bug 24764515 "
    "(tagged command queuing disabled for SCSI-2 and SPC targets), patch 25485763, in 11.3.17.5.0; Doc ID 2238101.1"
)


def raising(device: Device, name: str) -> Iterator[Step]:
    """Of the limit `name` that a device has reached, or that is too low for it."""
    driver, at = device.driver or "its driver", sysfs(device.name)
    if name in ("queue_depth", "cmd_per_lun"):
        yield Step("raise it", _FULL, (setting(f"{at}/device/queue_depth", 32),))
        yield Step(
            f"find out who lowered it: a parameter of {driver}, a udev rule, or a full queue in the kernel's log"
        )
    elif name == "nr_requests":
        risk = "memory, and a longer queue for all of its users; undone by the old value"
        yield Step("raise it", risk, (setting(f"{at}/queue/nr_requests", 256),))
    elif name == "queue_type":
        yield Step(
            "turn tags on",
            "a device that can't do it may hang; undone by echo none",
            (setting(f"{at}/device/queue_type", "simple"),),
        )
    elif name in ("un_throttle", "un_f_opt_queueing", "m_notag"):
        look = sd_walk(device, "un_throttle", "un_min_throttle", "un_f_opt_queueing")
        yield Step("read what sd is set to; is tagged queueing off (un_f_opt_queueing 1)?", commands=(look,))
        yield Step(_MPT_SAS, "a reboot")
        yield from sd_config(
            device,
            "throttle-max:64",
            "else raise the throttle of this product's LUNs alone: a global one would hold for all disks",
            f"a reboot; {_FULL}",
        )
    else:
        lists = f"grep -H . /sys/module/{driver if plain(driver) else 'DRIVER'}/parameters/*"
        yield Step(
            f"raise the parameter of {driver} that sets {name}, and load it anew",
            "all of its disks are gone while it is loaded; undone by the old value and another load",
            (lists,),
        )


def sd_config(device: Device, properties: str, what: str, risk: str) -> Iterator[Step]:
    """Return the step that sets properties of one product's LUNs, in the configuration file of their driver."""
    driver = sd_driver(device)
    yield Step(
        f"{what}; in {driver}.conf, with vendor (8 characters) and product as iostat -En shows them, then load it anew "
        "or reboot",
        risk,
        (f'{driver}-config-list = "VENDOR  PRODUCT", "{properties}";', f"update_drv -vf {driver}"),
    )
