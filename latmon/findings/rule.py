"""The rule and its finding as frozen values.

A finding is one sentence with its evidence, next steps, and what would refute it. A rule has an id, the input that it
needs, its thresholds, and a pure function from facts to findings. The config's section `findings` overrides thresholds
or turns a rule off (docs/FINDINGS.md). No rule is named here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from latmon.model.devices import HOST_SEPARATOR
from latmon.support.units import spelled

if TYPE_CHECKING:  # the command line reads the settings of rules and has no facts
    from latmon.findings.baseline import BaselineSource
    from latmon.findings.facts import Facts
    from latmon.model.frame import Device
    from latmon.model.histogram import Histogram

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
    "ionice -c2 -n4 -p {}",
    "bpftrace -e 'tracepoint:irq:softirq_raise /args->vec == {}/ { @[kstack] = count() } interval:s:5 { exit() }'",
    "bpftrace -e 'tracepoint:irq:softirq_raise { @[kstack] = count() } interval:s:5 { exit() }'",
    "grep '^ *{}:' /proc/interrupts",
    "cat /proc/interrupts",
    "grep -H . /sys/module/{}/parameters/*",
    "grep CONFIG_HZ= /boot/config-$(uname -r) || zgrep CONFIG_HZ= /proc/config.gz",
    f"{FIO} --filename=/dev/{{}} --ioengine=libaio --iodepth={{}}",
    "dmesg | grep -iE 'full|busy'",
    "dmesg | tail -n 50",
    "losetup -l /dev/{}",
    "lspci -vv",
    "df -h {}",
    "df -i {}",
    "du -xh --max-depth=2 {} | sort -h | tail -n 20",
    "find {} -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail",
)
"""Commands that tests/live/test_next_step_commands.py runs on Linux, {} being a name or number; no other was run."""
NOT_RUN = " (not run here)"
_RAN = re.compile("|".join(r"[^\s;|&]+".join(map(re.escape, line.split("{}"))) for line in RAN))
_PLAIN = re.compile(r"[\w!.:-]+", re.ASCII)
PLAIN_PATH = re.compile(r"/[\w.@/+:-]*", re.ASCII)
"""A path that is safe in a command."""
Severity = Literal["notice", "warning", "critical"]
NOTICE: Final = "notice"
WARNING: Final = "warning"
CRITICAL: Final = "critical"
SEVERITIES = (NOTICE, WARNING, CRITICAL)
"""Worth knowing; I/Os are slow because of it; I/Os are stuck, or nearly all of the time is lost."""
SCREEN_TITLES: Mapping[str, str] = MappingProxyType({"outstanding": "in flight", "outliers": "slow I/Os"})
"""Screen -> its name for users, where that is another one."""
FLEET = "fleet"
"""The backend whose devices are named HOST:DEVICE."""
SHORT_CELLS = 76
"""Cells of a short text at most, so that it is one line of 80 columns with the sign of its severity."""
PATH_CELLS = 30
"""Cells of a path in a short text."""
AGE = "{age}"
"""Place of an age in a text that is completed later."""
Thresholds = Mapping[str, float]
"""Values of a rule's thresholds by name."""
UNBOUNDED = 1e12
"""Greatest value of a threshold whose unit has no greatest value that makes sense."""
_MAX = {"share": 1.0, "blocks": 12.0, "octaves": 60.0}
"""Unit -> the greatest value that makes sense."""
_MIN = {"share": 0.0, "threads": 0.0, "times": 0.0, "octaves": 0.0}
"""Unit -> the least value that makes sense; 1 for the units of counted things."""


def ran(line: str) -> bool:
    """Return whether a command was run on a test machine, apart from the names and numbers in it."""
    return bool(_RAN.fullmatch(line))


def marked(line: str) -> str:
    """Return a command as users read it, with a mark if it was not run on a test machine."""
    return line if ran(line) else line + NOT_RUN


def plain(name: str) -> bool:
    """Return whether a name is safe in a command: without characters special to a shell, without a leading dash."""
    return bool(_PLAIN.fullmatch(name)) and not name.startswith("-")


def sysfs(name: str) -> str:
    """Return the directory of a block device, with a placeholder for a name that is not safe in a command."""
    return f"/sys/block/{name if plain(name) else 'DEVICE'}"


def setting(path: str, value: int | str) -> str:
    """Return the command that writes a value to a file of sysfs or procfs."""
    return f"echo {value} > {path}"


def threads(comm: str, *, is_sun: bool) -> str:
    """Return the command that shows class, priority and CPU of threads: of those with a name, or of all."""
    only = f" | grep -w {comm}" if plain(comm) else ""
    columns = "pid,lwp,class,pri,psr,comm" if is_sun else "tid,cls,rtprio,psr,pcpu,comm"
    return f"ps -eLo {columns}{only}"


def sd_driver(device: Device) -> str:
    """Return the driver of a Solaris disk: ssd for Fibre Channel disks on SPARC, else sd."""
    return "ssd" if device.driver == "ssd" or device.name.startswith("ssd") else "sd"


def sd_walk(device: Device, *fields: str) -> str:
    """Return the command that prints fields of struct sd_lun for all disks of the device's driver."""
    walk = f"*{sd_driver(device)}_state::walk softstate"
    return f"""echo '{walk} | ::print -at "struct sd_lun" {" ".join(fields)}' | mdb -k"""


class Fact(NamedTuple):
    """A number of the evidence. `name` is its key in a report, `text` the sentence for users."""

    name: str
    value: float | str
    text: str
    unit: str = ""
    """us, ios, share (0..1), per_s; empty for a plain number or a text."""
    of: int | None = None
    """Number of samples; None for a setting or a single value."""


def duration_facts(*rows: tuple[str, float | None, str, int | None]) -> Iterator[Fact]:
    """Yield facts from (name, us, text, samples) where the time is known; `{}` in the text becomes the time."""
    for name, us, text, of in rows:
        if us is not None:
            yield Fact(name, us, text.format(spelled(us)), "us", of)


def longest_fact(name: str, times: Histogram, text: str) -> Iterator[Fact]:
    """Yield the maximum of `times` as `duration_facts` does; where only its bucket is known, as `at most` its bound.

    A maximum without a bound is not known: there is no fact of it.
    """
    if times.is_endless:
        return
    bounded = text if times.max is not None else text.format("at most {}")
    yield from duration_facts((name, times.max_bound, bounded, times.count))


class Step(NamedTuple):
    """A next step: what to do, its risk, and commands to copy, which `what` does not repeat."""

    what: str
    risk: str = "none, it only reads"
    commands: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the text for users: what to do, then the commands, with a mark on those that were not run."""
        lines = ", ".join(map(marked, self.commands))
        between = " " if self.what.endswith("?") else ": "
        return f"{self.what}{between}{lines}" if lines else self.what


def screen_title(screen: str) -> str:
    """Return the name of a screen for users."""
    return SCREEN_TITLES.get(screen, screen)


class Where(NamedTuple):
    """The view that shows the evidence: a screen of the TUI, what is selected there, and the region on its map."""

    screen: str
    """overview, stages, outstanding, outliers, interrupts, who; order and files, which are parts of two of them."""
    device: str = ""
    op: str = ""
    """The op that is selected; empty for all."""
    low_us: int | None = None
    high_us: int | None = None
    """Upper bound of the region's latencies, as `low_us` is the lower one; None for no bound."""


_NAME_CELLS, _WORD_CELLS = 24, 16
"""Cells of a device's name in a short text, and of a name that `within` shortens."""


def within(name: str, cells: int = _WORD_CELLS) -> str:
    """Return a name in at most `cells`, with an ellipsis where its end is left out."""
    return name if len(name) <= cells else f"{name[: cells - 1]}…"


def short_name(device: str) -> str:
    """Return the name of a device for a short text; of HOST:DEVICE the end of the host is left out first."""
    host, separator, name = device.rpartition(":")
    room = _NAME_CELLS - len(separator) - len(name)
    if not separator or room < 2:  # noqa: PLR2004 - a letter and an ellipsis
        return within(device, _NAME_CELLS)
    return f"{within(host, room)}:{name}"


def short_text(device: str, verdict: str, *clauses: str) -> str:
    """Return a short text of at most SHORT_CELLS: the device, the verdict, and the clauses that fit.

    A clause begins with its comma and is whole or left out. The verdict has the number; with a device it has 50 cells
    at most.
    """
    text = f"{short_name(device)}: {verdict}" if device else verdict
    for clause in clauses:
        if len(text) + len(clause) <= SHORT_CELLS:
            text += clause
    return within(text, SHORT_CELLS)


class Moment(NamedTuple):
    """A time on CLOCK_MONOTONIC and as Unix time."""

    mono_us: int
    wall: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for one window. The same finding after consecutive blocks is one episode (engine.py)."""

    id: str
    severity: Severity
    device: str
    """The device that it is about; empty for the host, which a fleet has by its name and a colon (`HOST:`)."""
    summary: str
    """One sentence without its full stop: device, effect, size, cause."""
    facts: tuple[Fact, ...]
    where: Where
    steps: tuple[Step, ...]
    refuted_by: str
    """An observation that would show that the cause is another one."""
    share: float = 0.0
    """The share of the device's I/O time, of a program's time without a device, that is lost to the cause, 0..1.

    Of all I/Os, not of the slow ones (`evidence.lost_share`); 0 where it is not known.
    """
    also: tuple[str, ...] = ()
    """Other affected devices: findings on them that it explains are left out as well."""
    short: str = ""
    """The verdict for the first screen in at most SHORT_CELLS, by `short_text`; each rule gives one."""
    state: tuple[str, str] = ("", "")
    """A subject (a cgroup), and its state (its limit). Another state of the same subject is another episode."""
    explained_by: tuple[str, ...] = ()
    """Rules that explain this finding, in addition to `Rule.explained_by`."""
    began: Moment | None = None
    """When it began, where that is known better than by the block after which it was found."""
    at: Moment | None = None
    """When the longest wait of its sentence was, where one event is its headline."""
    peak_us: int = 0
    """The longest time that its sentence has, where that is its headline: `up to 1.41 s`. 0: another number is."""
    age_us: int = 0
    """Age of the oldest I/O in flight that it counts, or a bound of it; 0: it counts none in flight."""
    short_of_age: str = ""
    """`short` with AGE in place of the age, since a screen is up to a block later than the rules; empty without one."""

    def short_at(self, age_us: int) -> str:
        """Return the short text with a later age of its oldest I/O in flight."""
        return self.short_of_age.replace(AGE, spelled(age_us)) if self.short_of_age else self.short

    @property
    def key(self) -> tuple[str, str]:
        """Return the rule and the device, which identify the finding across windows."""
        return self.id, self.device

    @property
    def block_device(self) -> str:
        """Return the device; empty of a finding about a host, which in a fleet has the host (`HOST:`) in its place."""
        return "" if self.device.endswith(HOST_SEPARATOR) else self.device

    @property
    def weight(self) -> tuple[int, float]:
        """Return the urgency: severity, then share; greater is more urgent."""
        return SEVERITIES.index(self.severity), self.share

    @property
    def worst_of_episode(self) -> tuple[int, int, float]:
        """Return the sort key of the states of one finding: severity, then the headline's time, then share."""
        severity, share = self.weight
        return severity, self.peak_us, share

    @property
    def rank(self) -> tuple[int, float, tuple[str, str]]:
        """Return the sort key that puts the most urgent finding first."""
        return -self.weight[0], -self.weight[1], self.key


def on_its_host(finding: Finding) -> Finding:
    """Return a fleet's finding with the host in each next step, and commands as they are typed there."""
    host, separator, _ = finding.device.partition(":")
    if not separator:
        return finding
    prefix = re.compile(rf"(?<![\w.:-]){re.escape(host)}:")
    steps = tuple(
        step._replace(what=f"on {host}: {step.what}", commands=tuple(prefix.sub("", line) for line in step.commands))
        for step in finding.steps
    )
    return replace(finding, steps=steps)


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Sort findings, the most urgent one first."""
    return tuple(sorted(findings, key=lambda finding: finding.rank))


def sized(caption: str, of: int | None) -> str:
    """Append the number of samples to a text that does not contain it."""
    if of is None or any(re.search(rf"(?<![\d.,]){text}(?!\d|[.,]\d)", caption) for text in (str(of), f"{of:,}")):
        return caption
    return f"{caption} (of {of:,})"


LATENCIES, TRACED, DEPTHS, LIMITS = "latencies", "traced", "depths", "limits"
CGROUPS, ISSUERS, FILES, PATTERNS, ERRORS = "cgroups", "issuers", "files", "patterns", "errors"
FILE_TIMES, RECOVERIES = "file times", "recoveries"
DIRTY, MEMORY, JOURNALS, QUOTAS, HANGS = "dirty", "memory", "journals", "cpu quotas", "hangs"
PRIORITIES, SPACE, PROCESSES, SERVERS, FAULTS = "io priorities", "free space", "processes", "servers", "faults"
CPU_WAITS, CPU_LOAD, MOUNTS = "cpu waits", "cpu load", "mounts"
FILE_SYSTEM_ERRORS, SLEEPS = "file system errors", "sleeps"
"""Inputs: latency histograms; requests traced on demand; counts of outstanding I/Os; limits of drivers, of cgroups;
latencies by cgroup; operations on files; sizes and order of I/Os; the status of each I/O; the parts of the time of
operations on files; time-outs and resets; dirty pages with their limits, or the pauses of who dirties them; pages that
are read again for want of memory; commits of journals; CPU quotas of cgroups; operations on files that hang; I/O
priorities of processes; free space of file systems; latencies by process; waits for the servers of file systems;
major page faults; waits of programs for a CPU; load of the CPUs; mounts of file systems; errors that file systems
find; sleeps in operations on files."""

MISSING: Mapping[str, str] = MappingProxyType(
    {
        LATENCIES: "no latencies were timed",
        TRACED: "stages were not traced",
        DEPTHS: "outstanding I/Os were not counted",
        LIMITS: "no device reported a limit of its driver",
        CGROUPS: "limits of cgroups were not read",
        ISSUERS: "no latencies were timed by cgroup",
        FILES: "no operations on files were traced, which screen 2 and --stages all do",
        FILE_TIMES: "no operation on files was traced whose thread left its CPU, and the stacks of threads were not "
        "read, which needs root",
        PATTERNS: "sizes and order of I/Os were not traced",
        ERRORS: "failed I/Os were not counted",
        FILE_SYSTEM_ERRORS: "errors of file systems were not read, which needs the kernel's log or a counter of them",
        RECOVERIES: "time-outs and resets were not read, which needs the kernel's log or a counter of them",
        DIRTY: "dirty pages were not counted",
        JOURNALS: "commits of journals were not traced",
        HANGS: "the stacks of threads were not read, which needs root",
        SLEEPS: "the functions in which threads sleep were not read, which needs root",
        SERVERS: "the stacks of threads were not read, which needs root, and no NFS mount was in use",
        FAULTS: "major page faults were not counted",
        QUOTAS: "CPU quotas of cgroups were not read",
        CPU_WAITS: "waits of programs for a CPU were not read, which needs PSI and schedstat",
        CPU_LOAD: "the load of the CPUs was not read, which needs PSI and /proc/stat",
        PRIORITIES: "I/O priorities of processes were not read",
        SPACE: "free space of file systems was not read",
        MOUNTS: "mounts of file systems were not read",
        PROCESSES: "no latencies were timed by process, which screen 7 does",
        MEMORY: "pages that are read again for want of memory were not counted",
    }
)
"""Input -> the reason to print for rules that were not evaluated because it is missing."""


class Threshold(NamedTuple):
    """One number of a rule; `meaning` continues the sentence that begins with it: `10 ios | slow ones at least`."""

    value: float
    unit: str
    """us, ios, bytes, share (0..1), times, octaves, blocks, devices, runs, looks, threads."""
    meaning: str

    @property
    def most(self) -> float:
        """Return the greatest value that the config may set."""
        return _MAX.get(self.unit, UNBOUNDED)

    @property
    def least(self) -> float:
        """Return the least value that the config may set: a rule needs one of what it counts."""
        return _MIN.get(self.unit, 1.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding. `evaluate` yields at most one finding per subject for the window that the facts cover."""

    id: str
    fires: str
    """The condition in one sentence without its full stop, for `latmon rules` and docs/FINDINGS.md."""
    evaluate: Callable[[Facts, Thresholds], Iterable[Finding]]
    needs: str
    """The input without which the rule never fires; it is then reported as not evaluated."""
    thresholds: Mapping[str, Threshold] = field(default_factory=lambda: MappingProxyType({}))
    explained_by: tuple[str, ...] = ()
    """Rules whose finding on the same device gives the cause, so that this one is left out."""
    traced_part: str = ""
    """What the tracer must not have left out (`Traced.absent`), beyond requests, for the rule to refute a finding."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The config's section `findings`: values by (rule, threshold), and rules that are off."""

    values: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    off: frozenset[str] = frozenset()
    baseline: BaselineSource | None = None
    """Recordings of other days with which --baseline compares; None without the option."""

    def of(self, rule: Rule) -> dict[str, float]:
        """Return the values of a rule's thresholds by name."""
        return {name: self.values.get((rule.id, name), threshold.value) for name, threshold in rule.thresholds.items()}


DEFAULT = Settings()


def settings_of(section: Mapping[object, object], rules: Iterable[Rule], before: Settings = DEFAULT) -> Settings:
    """Return the config's section `findings` on top of `before`, an earlier file's.

    Raises ValueError that names an unknown rule or threshold, or the range of a value that is out of it.
    """
    known = {rule.id: rule for rule in rules}
    values, off = dict(before.values), set(before.off)
    for name, value in section.items():
        rule = known.get(name) if isinstance(name, str) else None
        if rule is None:
            raise ValueError(f"there is no rule {name!r}; the rules are {', '.join(known)}")
        if value is False or value == "off":
            off.add(rule.id)
        elif isinstance(value, Mapping):
            values |= {(rule.id, str(key)): _number(rule, key, number) for key, number in value.items()}
        elif value is True or value == "on":
            off.discard(rule.id)
        else:
            raise ValueError(f"{rule.id}: expected off, or numbers by name: {', '.join(rule.thresholds)}")
    return Settings(values, frozenset(off))


def _number(rule: Rule, name: object, value: object) -> float:
    threshold = rule.thresholds.get(name) if isinstance(name, str) else None
    if threshold is None:
        raise ValueError(f"{rule.id}: there is no number {name!r}; it has {', '.join(rule.thresholds)}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not threshold.least <= value <= threshold.most:
        limits = f"{threshold.least:g} to {threshold.most:g} ({threshold.unit})"
        raise ValueError(f"{rule.id}: {name}: {value!r} is not a number from {limits}")
    return float(value)
