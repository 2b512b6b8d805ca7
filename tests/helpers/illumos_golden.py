"""Output of the scripts of probes/illumos in two known incidents at once, as text: no Solaris can be run here.

Two disks, simulated. sd2: a database reads with 41 I/Os in flight, but sd was refused tagged queuing and lets the HBA
have 3. sd0: a sequential writer keeps a disk of throttle 2 busy, sd sorts its queue by block number, and a write
200 I/Os back waits until the writer pauses. `python -m tests.helpers.illumos_golden` writes
tests/golden/dtrace/illumos-*.txt.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.helpers.dtrace_text_writer import Key, record, scalars, tables

GOLDEN = Path(__file__).parents[1] / "golden" / "dtrace"
BOOT = 48_032_509_654_911
"""The scripts' start, in nanoseconds since the host's."""
TICKS = [97_048, 194_112, 1_261_020, 2_328_447, 3_395_101]
END = 3_612_870
"""Microseconds after the start, as all times of the simulation."""
PAUSE = 2_700_000
STEP = 97_000
THRESHOLD = 10_000
READ, WRITE, FLUSH = 0, 1, 2
SCRUBBED = 27_262_976
"""Ticks in which a disk answers late: a tool reads it past sd's queue, so that only scsi_pkt reports it."""
PACKETS = (1 << 64) - (1 << 44)


@dataclass
class Io:
    """One buf. Times in microseconds after the scripts' start."""

    disk: Disk
    op: int
    sector: int
    bytes: int
    begun: int
    address: int
    sent: int = -1
    done: int = -1


@dataclass
class Disk:
    """One sd_lun."""

    name: str
    hba: str
    throttle: int
    pid: int
    comm: str
    choose: Callable[[Disk], Io]
    waiting: list[Io] = field(default_factory=list)
    sent: list[Io] = field(default_factory=list)
    head: int = 0


def in_turn(disk: Disk) -> Io:
    return disk.waiting[0]


def sorted_by_block(disk: Disk) -> Io:
    """One way only: the nearest above what was sent last, and what lies behind it when there is none."""
    ahead = [one for one in disk.waiting if one.sector >= disk.head]
    return min(ahead or disk.waiting, key=lambda one: one.sector)


class Host:
    """Runs both disks to END; `ios` are all I/Os, `depths` what sd_depth's hooks see."""

    def __init__(self) -> None:
        self.random = random.Random(4)
        self.ios: list[Io] = []
        self.depths: list[tuple[int, Disk, str, int, int]] = []
        self._free = [-(1 << 45) + 320 * at for at in range(64)]
        self._sequence = 4_194_304
        self.database = Disk("sd2", "mpt0", 3, 4711, "oracle", in_turn)
        self.backup = Disk("sd0", "mpt0", 2, 902, "dd", sorted_by_block)
        self._run()

    def _run(self) -> None:
        now = -200_000
        for _ in range(41):
            self._begin(self.database, now)
        for _ in range(12):
            self._begin(self.backup, now)
        late = False
        while True:
            self._send(now)
            ending = min((one for disk in (self.database, self.backup) for one in disk.sent), key=lambda one: one.done)
            now = ending.done
            if now >= END:
                return
            disk = ending.disk
            disk.sent.remove(ending)
            self._free.append(ending.address)
            if disk is self.database or now < PAUSE or now > PAUSE + 300_000:
                self._begin(disk, now)
            if not late and now > 300_000:
                late = True
                self._begin(self.backup, now, back=True)
            self.depths.append((now, disk, "done", len(disk.sent), len(disk.waiting)))
            if not self.backup.sent and not self.backup.waiting and now > PAUSE + 300_000:
                self._begin(self.backup, now)

    def _begin(self, disk: Disk, now: int, back: bool = False) -> None:
        if disk is self.database:
            sector, size, op = self.random.randrange(0, 1 << 28) * 16, 8192, READ
        else:
            self._sequence += 0 if back else 128
            sector, size, op = self._sequence - 200 * 128 if back else self._sequence, 65536, WRITE
        io = Io(disk, op, sector, size, now, self._free.pop(0))
        disk.waiting.append(io)
        self.ios.append(io)

    def _send(self, now: int) -> None:
        for disk in (self.database, self.backup):
            while disk.waiting and len(disk.sent) < disk.throttle:
                one = disk.choose(disk)
                disk.waiting.remove(one)
                disk.sent.append(one)
                disk.head = one.sector
                one.sent = now + 3
                one.done = now + self.random.randrange(2_400, 3_700) // (1 if disk is self.database else 3)
                self.depths.append((one.sent, disk, "sent", len(disk.sent), len(disk.waiting)))


def clock(us: int) -> int:
    return BOOT + 1000 * us


def steps() -> Iterator[tuple[str, int, int]]:
    """(kind, number, microseconds) of each time that maps are printed."""
    for number, at in enumerate(TICKS):
        yield "tick", number, at
    yield "last", len(TICKS), END


def story(script: str, lines: list[tuple[int, str]], maps: Callable[[int], str]) -> str:
    """Record lines in their order of time between the ticks; `maps` prints what was counted until then."""
    text = record("ready", script, clock(0))
    reported = sorted(lines)
    for kind, number, at in steps():
        text += "".join(line for when, line in reported if when <= at)
        reported = [(when, line) for when, line in reported if when > at]
        text += record(kind, script, number, clock(at)) + maps(at) + record("done", script)
    return text + "\n"


def sd(host: Host) -> str:
    mine = sorted((io for io in host.ios if io.begun >= 0 and 0 <= io.done < END), key=lambda io: io.done)
    lines: list[tuple[int, str]] = []
    silent: list[Io] = []
    tokens, filled, following = 80, 0, defaultdict[str, int](int)
    for one in mine:
        while filled + STEP <= one.done:
            tokens, filled = min(tokens + 97 * 2 // 5, 80), filled + STEP
        if one.done - one.begun < THRESHOLD:
            continue
        if not tokens or following[one.disk.name] > one.done + 380_000:
            silent.append(one)
            continue
        tokens -= 1
        following[one.disk.name] = max(following[one.disk.name], one.done) + 20_000
        times = one.done - one.begun, one.sent - one.begun, 0, one.done - one.sent
        stamps = clock(one.begun), clock(one.done)
        what: tuple[Key, ...] = (one.address, one.disk.name, one.op, one.sector, one.bytes)
        lines.append((one.done, record("slow", "sd", *what, *stamps, *times, 0, one.disk.pid, text=one.disk.comm)))

    def maps(at: int) -> str:
        done = [one for one in mine if one.done <= at]
        ever = [io for io in host.ios if io.begun < 0 <= io.done <= at]
        slow = [one for one in done if one.done - one.begun >= THRESHOLD]
        spans = {
            "total": spread(done, lambda one: one.done - one.begun),
            "queue": spread(done, lambda one: one.sent - one.begun),
            "hba": spread(done, lambda one: one.done - one.sent),
        }
        return (
            "".join(tables(f"sd_{stage}", span) for stage, span in spans.items())
            + scalars("sd_sum", added(spans["total"]))
            + scalars("sd_queue_sum", added(spans["queue"]))
            + scalars("sd_hba_sum", added(spans["hba"]))
            + scalars("sd_max", maxima((one.done, (one.disk.name, one.op), one.done - one.begun) for one in done))
            + scalars("sd_bytes", counted(done, lambda one: one.bytes))
            + scalars("sd_started", counted([io for io in host.ios if 0 <= io.begun <= at]))
            + scalars("sd_unmatched", counted(ever))
            + scalars("sd_above", counted(slow))
            + scalars("sd_suppressed", by_disk(silent, slow))
            + scalars("sd_level", {(one.disk.name,): THRESHOLD for one in done})
        )

    return story("sd", lines, maps)


def spread(ios: list[Io], us: Callable[[Io], int]) -> dict[tuple[Key, ...], Counter[int]]:
    found: dict[tuple[Key, ...], Counter[int]] = defaultdict(Counter)
    for io in ios:
        found[(io.disk.name, io.op)][us(io)] += 1
    return found


def maxima(ended: Iterable[tuple[int, tuple[Key, ...], int]]) -> dict[tuple[Key, ...], int]:
    """The maxima of the ticks, in the entries of even and odd ones; `ended`: (end, key, time) of I/Os."""
    found: dict[tuple[Key, ...], int] = {}
    for end, key, us in ended:
        tick = sum(one < end for one in TICKS)
        found[*key, tick & 1] = max(tick << 32 | us, found.get((*key, tick & 1), 0))
    return found


def added(found: dict[tuple[Key, ...], Counter[int]]) -> dict[tuple[Key, ...], int]:
    return {key: sum(us * count for us, count in times.items()) for key, times in found.items()}


def counted(ios: list[Io], weight: Callable[[Io], int] = lambda _: 1) -> dict[tuple[Key, ...], int]:
    found: dict[tuple[Key, ...], int] = defaultdict(int)
    for io in ios:
        found[(io.disk.name, io.op)] += weight(io)
    return found


def by_disk(silent: list[Io], slow: list[Io]) -> dict[tuple[Key, ...], int]:
    """A disk whose outliers were all reported has a 0."""
    left_out = {id(one) for one in silent}
    found: dict[tuple[Key, ...], int] = defaultdict(int)
    for one in slow:
        found[(one.disk.name,)] += id(one) in left_out
    return found


def sd_depth(host: Host) -> str:
    def maps(at: int) -> str:
        issue: Counter[tuple[Key, ...]] = Counter()
        driver: Counter[tuple[Key, ...]] = Counter()
        queued: Counter[tuple[Key, ...]] = Counter()
        before: dict[str, tuple[int, int, int]] = {}
        for when, disk, kind, sent, waiting in host.depths:
            if not 0 <= when <= at:
                continue
            if disk.name in before:
                since, had, waited = before[disk.name]
                driver[(disk.name, had)] += when - since
                queued[(disk.name, waited)] += when - since
            before[disk.name] = when, sent, waiting
            if kind == "sent":
                issue[(disk.name, sent)] += 1
        return (
            scalars("sd_depth_issue", issue) + scalars("sd_depth_driver", driver) + scalars("sd_depth_queued", queued)
        )

    return story("sd_depth", [], maps)


def sd_order(host: Host) -> str:
    """The first 128 of a disk after each tick, those that began while the script ran."""
    lines: list[tuple[int, str]] = []
    for begin, end in zip([0, *TICKS], [*TICKS, END], strict=True):
        for name in ("sd2", "sd0"):
            sent = (io for io in host.ios if io.disk.name == name and io.begun >= 0 and begin <= io.sent < end)
            for one in sorted(sent, key=lambda one: one.sent)[:128]:
                what = (clock(begin), name, one.op, one.sector, one.bytes, clock(one.sent), one.sent - one.begun)
                lines.append((one.sent, record("issue", "sd_order", *what)))
    return story("sd_order", lines, lambda _: "")


LIMITS = {
    "sd2": (3, 3, 0, 8, 0, 0, 1, 1, 0, 1, 0, 0, 0),
    "sd0": (2, 2, 0, 8, 0, 16384, 0, 1, 0, 0, 1, 0, 0),
}
LIMIT_NAMES = (
    *("un_throttle", "un_saved_throttle", "un_busy_throttle", "un_min_throttle", "un_reset_throttle_timeid"),
    *("un_tagflags", "un_f_opt_queueing", "un_f_arq_enabled", "un_f_use_adaptive_throttle", "un_f_disksort_disabled"),
    *("un_f_write_cache_enabled", "throttle_reductions", "retries"),
)


def sd_limits(host: Host) -> str:
    lines = []
    for name, values in LIMITS.items():
        first = min(when for when, disk, kind, *_ in host.depths if disk.name == name and kind == "sent" and when >= 0)
        reported = [
            record("limit", "sd_limits", name, v, text=what) for what, v in zip(LIMIT_NAMES, values, strict=True)
        ]
        lines.append((first, "".join(reported)))
    return story("sd_limits", lines, lambda _: "")


def mpt_flags(host: Host) -> str:
    first = min(when for when, _, kind, *_ in host.depths if kind == "sent" and when >= 0)
    flags = {"m_notag": 0xFFFF, "m_nowide": 0xE080, "m_props_update": 0}
    reported = "".join(record("limit", "mpt_flags", "mpt0", value, text=what) for what, value in flags.items())
    return story("mpt_flags", [(first, reported)], lambda _: "")


class Command(NamedTuple):
    """One packet: when it was sent, came back, was given back; in microseconds."""

    sent: int
    back: int
    done: int
    op: int
    sector: int = 0

    @property
    def us(self) -> int:
        return self.done - self.sent


def commands(host: Host) -> list[Command]:
    """sd's as the mid layer sees them; each half second a flush of the database's disk, each second a tool's read."""
    commands = [
        Command(io.sent + 1, io.done - 4, io.done, io.op, io.sector)
        for io in host.ios
        if io.sent >= 0 and io.done < END
    ]
    commands += [Command(at, at + 14_870, at + 14_874, FLUSH) for at in range(410_000, END - 20_000, 500_000)]
    return commands + [Command(at, at + 31_008, at + 31_012, READ, SCRUBBED) for at in range(700_000, END, 1_000_000)]


def scsi_pkt(host: Host) -> str:
    all_commands = commands(host)
    slow = []
    for at, command in enumerate(all_commands):
        if command.us >= THRESHOLD:
            times = clock(command.sent), clock(command.done), command.us, command.back - command.sent
            slow.append(
                (command.done, record("slow", "scsi_pkt", PACKETS - at, "mpt0", command.op, command.sector, *times, 1))
            )

    def maps(at: int) -> str:
        total: dict[tuple[Key, ...], Counter[int]] = defaultdict(Counter)
        hba: dict[tuple[Key, ...], Counter[int]] = defaultdict(Counter)
        above: Counter[tuple[Key, ...]] = Counter()
        ended = [command for command in all_commands if command.sent >= 0 and command.done <= at]
        for one in ended:
            total[("mpt0", one.op)][one.us] += 1
            hba[("mpt0", one.op)][one.back - one.sent] += 1
            if one.us >= THRESHOLD:
                above[("mpt0", one.op)] += 1
        return (
            tables("scsi_pkt_total", total)
            + tables("scsi_pkt_hba", hba)
            + scalars("scsi_pkt_sum", added(total))
            + scalars("scsi_pkt_hba_sum", added(hba))
            + scalars("scsi_pkt_max", maxima((one.done, ("mpt0", one.op), one.us) for one in ended))
            + scalars("scsi_pkt_above", above)
            + scalars("scsi_pkt_suppressed", {("mpt0",): 0} if above else {})
            + scalars("scsi_pkt_level", {("mpt0",): THRESHOLD} if total else {})
        )

    return story("scsi_pkt", slow, maps)


SCRIPTS = (sd, sd_depth, sd_order, sd_limits, scsi_pkt, mpt_flags)


def texts() -> dict[str, str]:
    host = Host()
    return {f"illumos-{script.__name__}.txt": script(host) for script in SCRIPTS}


if __name__ == "__main__":
    for name, text in texts().items():
        (GOLDEN / name).write_text(text, encoding="ascii")
