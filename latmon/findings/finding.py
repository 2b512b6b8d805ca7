"""The finding as a frozen value: one sentence, its evidence, next steps with their commands, and what would refute it.

Owns the severities and their order. Knows no rule, no frame and no screen.

`engine.Watch` is fed with frames; engine.py lists the rules, rule.py all of their numbers. Nothing of it is
recorded: an old recording profits from a new rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.frame import Device

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
NOT_RUN = " (not run here)"
_RAN = re.compile("|".join(r"[^\s;|&]+".join(map(re.escape, line.split("{}"))) for line in RAN))
_PLAIN = re.compile(r"[\w!.:-]+", re.ASCII)


def ran(line: str) -> bool:
    """Return whether a command is one that was run, but for the names and numbers in it."""
    return bool(_RAN.fullmatch(line))


def marked(line: str) -> str:
    """Return a command as a person reads it: one that was not run says so."""
    return line if ran(line) else line + NOT_RUN


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


NOTICE, WARNING, CRITICAL = "notice", "warning", "critical"
SEVERITIES = (NOTICE, WARNING, CRITICAL)
"""Worth knowing; I/Os are slow for this; I/Os that somebody waits for are stuck, or nearly all of the time is lost."""


class Fact(NamedTuple):
    """A number that gave it away. `name` is its key in a report, `said` the words that a person reads."""

    name: str
    value: float | str
    said: str
    unit: str = ""
    """us, ios, share (0..1), per_s; empty for a plain number or a text."""
    of: int | None = None
    """How many samples it is of; None where it is a setting or one of a kind."""


class Step(NamedTuple):
    """What to do next, what may go wrong with it, and commands to copy, which never stand in `what`."""

    what: str
    risk: str = "none: it only looks"
    commands: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return what a person reads: what to do, then the commands, and which of them were not run here."""
        lines = ", ".join(map(marked, self.commands))
        between = " " if self.what.endswith("?") else ": "
        return f"{self.what}{between}{lines}" if lines else self.what


class Where(NamedTuple):
    """The view that shows the evidence: a screen of the TUI, what is selected there, and the region on its map."""

    screen: str
    """overview, stages, outstanding, outliers, interrupts."""
    device: str = ""
    op: str = ""
    """Empty: all."""
    low_us: int | None = None
    high_us: int | None = None
    """Of the latencies that it is about; None: no bound."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found in a window. Equal ones in windows that follow each other are one episode (engine.py)."""

    id: str
    severity: str
    device: str
    """Empty: the host's."""
    summary: str
    """One sentence without its full stop: who, what, how much, why."""
    facts: tuple[Fact, ...]
    where: Where
    steps: tuple[Step, ...]
    refuted_by: str
    """What would show that it is something else."""
    share: float = 0.0
    """Which part of the time of the I/Os that it is about it explains, 0..1."""
    also: tuple[str, ...] = ()
    """Other devices that it is about: what it explains on them needn't be told either."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same finding in another window."""
        return self.id, self.device

    @property
    def weight(self) -> tuple[int, float]:
        """Greater is more urgent."""
        return SEVERITIES.index(self.severity), self.share

    @property
    def rank(self) -> tuple[int, float, tuple[str, str]]:
        """To sort by, the most urgent one first: by severity, then by the share of time they explain."""
        return -self.weight[0], -self.weight[1], self.key


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The most urgent one first."""
    return tuple(sorted(findings, key=lambda one: one.rank))


def sized(said: str, of: int | None) -> str:
    """What is said, and how many samples it is of where that isn't said."""
    if of is None or any(re.search(rf"(?<![\d.,]){text}(?!\d|[.,]\d)", said) for text in (str(of), f"{of:,}")):
        return said
    return f"{said} (of {of:,})"
