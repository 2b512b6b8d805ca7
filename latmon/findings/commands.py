"""Commands that steps of several rules offer, one line that can be copied, and which foreign names may stand in one."""

from __future__ import annotations

import re

from latmon.model import Device

FIO = "fio --name=t --readonly --rw=randread --bs=4k --direct=1 --time_based --runtime=10"
RAN = (
    "echo {} > /sys/block/{}/queue/nr_requests",
    "echo {} > /sys/block/{}/queue/scheduler",
    "echo {} > /sys/block/{}/queue/iosched/fifo_batch",
    "echo {} > /sys/block/{}/queue/wbt_lat_usec",
    "echo {} > /proc/irq/{}/smp_affinity_list",
    "ps -eLo tid,cls,rtprio,psr,pcpu,comm",
    "ps -eLo tid,cls,rtprio,psr,pcpu,comm | grep -w {}",
    "taskset -cp {} {}",
    "chrt -f -p 50 {}",
    "ionice -p {}",
    "bpftrace -e 'tracepoint:irq:softirq_raise /args->vec == {}/ { @[kstack] = count() } interval:s:5 { exit() }'",
    "bpftrace -e 'tracepoint:irq:softirq_raise { @[kstack] = count() } interval:s:5 { exit() }'",
    "grep '^ *{}:' /proc/interrupts",
    "cat /proc/interrupts",
    "grep -H . /sys/module/{}/parameters/*",
    "grep CONFIG_HZ= /boot/config-$(uname -r) || zgrep CONFIG_HZ= /proc/config.gz",
    f"{FIO} --filename=/dev/{{}} --ioengine=libaio --iodepth={{}}",
    "dmesg | grep -iE 'full|busy'",
    "dmesg | tail -n 50",
    "lspci -vv",
)
"""Commands that tests/live/test_next_step_commands.py runs on Linux, {} being a name or number; no other was run."""
_RAN = re.compile("|".join(r"[^\s;|&]+".join(map(re.escape, line.split("{}"))) for line in RAN))
_PLAIN = re.compile(r"[\w!.:-]+", re.ASCII)


def ran(line: str) -> bool:
    """Return whether a command is one that was run, but for the names and numbers in it."""
    return bool(_RAN.fullmatch(line))


def plain(name: str) -> bool:
    """Nothing in it means something to a shell; a leading dash would be an option."""
    return bool(_PLAIN.fullmatch(name)) and not name.startswith("-")


def sysfs(name: str) -> str:
    """A disk's directory; of one with an odd name the place for it."""
    return f"/sys/block/{name if plain(name) else 'DEVICE'}"


def setting(path: str, value: int | str) -> str:
    """Return the command that writes a value to a file of sysfs or procfs."""
    return f"echo {value} > {path}"


def threads(called: str, *, is_sun: bool) -> str:
    """Return the command that shows class, priority and CPU of threads: of one, given as comm (prio N), or of all."""
    name = called.rpartition(" (prio ")[0]
    only = f" | grep -w {name}" if plain(name) else ""
    columns = "pid,lwp,class,pri,psr,comm" if is_sun else "tid,cls,rtprio,psr,pcpu,comm"
    return f"ps -eLo {columns}{only}"


def sd_driver(device: Device) -> str:
    """Return the disk driver that has a Solaris device: ssd for Fibre Channel disks on SPARC, else sd."""
    return "ssd" if device.driver == "ssd" or device.name.startswith("ssd") else "sd"


def sd_walk(device: Device, *fields: str) -> str:
    """Return the line that prints fields of sd_lun, of all disks of the device's driver."""
    walk = f"*{sd_driver(device)}_state::walk softstate"
    return f"""echo '{walk} | ::print -at "struct sd_lun" {" ".join(fields)}' | mdb -k"""
