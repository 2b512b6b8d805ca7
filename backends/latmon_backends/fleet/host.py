"""One host of a fleet: its connection, what measures there, its frames, and its state in words.

A host is connected again after it failed, with growing pauses, and another way if one gave no frame.

The counters of a host without latmon are printed by its shell when asked, and read by the reader of /proc and sysfs.
What the shell prints about devices is kept as a tree of small files below a private directory, in which names are
checked: the reader takes its roots as arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from latmon import __version__
from latmon.capture.backend import Backend, HostPart, Options
from latmon.model.devices import Inventory, named_devices, of_devices
from latmon.model.frame import STAGES, Device, Frame, Health, Missing, Origin
from latmon.recording.codec import IdleReader, decode_frame, decode_origin, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.read_position import ReadPosition, admit
from latmon.recording.validate import MAX_SPAN_US, MAX_WALL, wall, whole
from latmon.support import trust
from latmon.support.errors import LatmonError, RecordingError, UnavailableError
from latmon.support.owners import ROOT
from latmon.support.text import clean
from latmon.support.units import show_duration
from latmon_backends.fleet.merge import HostFrame
from latmon_backends.fleet.remote import (
    Connection,
    HostAnswers,
    HostError,
    Offset,
    asked_command,
    carry,
    feed_options,
    hello,
    shell_offset,
    start_there,
    tool_facts,
)
from latmon_backends.kernel.counters import FrameClock, KernelSampler, Sample, difference, monotonic_us
from latmon_backends.probe.always_on import MeasuredHost
from latmon_backends.probe.process import LOOK_S, Silence

_NO_DISTRIBUTION = "the kernel's counters are sums without a distribution: only the mean is known"
_NO_STAGES = "the kernel's counters don't separate stages: this needs latmon on the host"
_SYSFS_PATH = re.compile(r"[A-Za-z0-9!][A-Za-z0-9_.:!,@+-]*(?:/[A-Za-z0-9!][A-Za-z0-9_.:!,@+-]*){0,30}")
"""A path of sysfs: no part begins with a dot, so that none leads out of the tree."""
_DISKSTATS_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MAX_ENTRIES = 200_000
"""Files and directories of a host; 1,000 devices have 40,000."""
_MAX_VALUE = 4096
_MAX_BYTES = 32 << 20
"""Sum of all values in the tree; 1,000 devices have 1 MB."""
_MAX_LINES = 32_768
"""Lines of /proc/diskstats: disks and partitions; 1,000 disks have some thousand."""
_MAX_DISKSTATS = 512
"""Bytes of such a line."""
_GAUGES, _MAX_GAUGE = ("inflight", "diskseq"), 64
"""The files that a tick reports of each device, and their size."""
_SUSPENDS = "power/suspend_stats/success"
"""Number of suspends since the boot."""
_TOO_MANY = "it reports more devices than any host has"
_MAX_ANSWER = _MAX_ENTRIES + 2 * _MAX_LINES
"""Lines up to the end of a tick, with those about devices."""
_UPTIME_US = 10_000
"""Resolution of /proc/uptime, which is cut off there."""
_DRIFT_FRAMES = 60
_BOOTTIME_OFFSET = re.compile(r"(-?\d{1,12}) (\d{1,9})")
"""Seconds and ns, as a host reports them from its /proc/self/timens_offsets."""
_PREFIX = "latmon-fleet-"
WAYS = ("latmon", "python", "bpftrace", "counters")
"""Ways to measure a host, the best first: its latmon; ours, run by its Python; its bpftrace; its shell."""
Probes = Callable[[Options, MeasuredHost], Backend]
"""Makes a backend of the bpftrace of another host."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before the next connection, after so many failures in a row."""
SLOW_S = 3.0
"""A host is slow after this time without a frame, and after 3 intervals."""
CUT_S = 30.0
"""A silent host's connection is cut after this time, and 3 intervals: ssh's own test takes 15 s, and finds no hanging
program."""
STARTING_S = 120.0
"""Time for the probes of a host to compile."""
_CLOCK_EVERY_S, _CLOCK_AGAIN_S = 30.0, 5.0
"""Time to the next question about a host's clock, after an answer and without one."""
_DRIFT = 100e-6
"""Two clocks differ by less than this share of the time more than when they were compared."""
_SKEW_S = 1.0
"""A wall clock that is off by more is reported; frames have our clock anyway."""
_MOST_WAITING, _MOST_REMARKS = 100, 10
_MAX_UNDECODED = 100
_MAX_DEVICES = 8_192
"""Devices that a host may name as long as a connection lasts. The largest known hosts have 5,000."""
_MAX_REASON = 240
_DEVICE = re.compile(r"[A-Za-z0-9_.:!+-]{1,128}")
_MAX_NAME = 40
_NO_LATMON = "there is no latmon on the host, no Python 3.11 that could run ours, and no bpftrace"
_UNREAD = "its latmon sends what this one can't read"
_COUNTERS = "its host has only the kernel's counters"


def private_directory(environ: Mapping[str, str]) -> TemporaryDirectory[str]:
    """Return a new directory for the tree, in memory where that is possible: on a slow disk each frame would wait.

    Those of latmons that were killed are removed. `su` and `sudo -E` keep another user's runtime directory; that user
    could put a link in the place of the new one, and root would write below its target.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and trust.flaw(Path(runtime), ROOT | {os.geteuid()}):
        runtime = ""
    places = (runtime, "/dev/shm")  # noqa: S108  the directory in it is private
    parent = next(
        (place for place in places if place and Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK)), None
    )
    for path in Path(parent).glob(f"{_PREFIX}*") if parent else ():
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path)
    return TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)


class ShellTree:
    """Files of another host's /proc and /sys, kept below a private directory from the lines that its shell prints."""

    def __init__(self, root: Path, offset: Offset, *, clock: Callable[[], int] = monotonic_us) -> None:
        """`root`: an empty private directory. `offset`: of the host's CLOCK_BOOTTIME."""
        self._root, self._offset, self._clock = root, offset, clock
        self._section = ""
        self._fresh: dict[str, str | None] = {}
        self._size = 0
        self._diskstats: list[str] = []
        self._delays: deque[int] = deque(maxlen=_DRIFT_FRAMES)
        self._least_us = 0
        self._suspends = ""
        self._gauges: dict[str, str] = {}
        """The values in the files of the tick."""
        self.up_us = 0
        """The last tick, on the host's CLOCK_BOOTTIME."""
        self.shift_us = 0
        """CLOCK_MONOTONIC here is ahead of that clock by so much."""
        self.asked_us = 0
        """When the reader asked for the tick, on the clock here."""
        self._lines = 0
        """Lines since the last tick's end."""
        self.undecoded = 0
        """Lines that were not understood. The reader resets it."""

    @property
    def wall(self) -> float:
        """The wall clock here at the last tick."""
        return time.time() - (self._clock() - self.up_us - self.shift_us) / 1e6

    def take(self, line: bytes) -> bool:
        """Take a line; return whether it completes a tick. HostError for what no script of latmon's prints."""
        self._lines += 1
        if self._lines > _MAX_ANSWER:
            raise HostError("it prints lines without the end of a tick")
        text = line.decode("utf-8", "replace")
        word, _, remainder = text.partition(" ")
        if word in ("@facts", "@tick"):
            self._begin(word, remainder)
        elif word == "@end":
            return self._ended()
        elif word == "s" and self._section == "@tick":
            if len(self._diskstats) >= _MAX_LINES:
                raise HostError(_TOO_MANY)
            self._diskstats.append(remainder[:_MAX_DISKSTATS])
        elif self._section:
            self._entry(word, remainder)
        else:
            self.undecoded += 1
        return False

    def _begin(self, word: str, remainder: str) -> None:
        self._section, self._diskstats = word, []
        if word == "@facts":
            self._fresh, self._size = {}, 0
            return
        try:
            up_us = round(float(remainder) * 1e6)
        except (ValueError, OverflowError):
            raise HostError("its clock is no number") from None
        # The clocks drift apart, by 0.2 s in an hour at 50 ppm: the least delay of a minute shows it, against that of
        # the first minute. The first tick is no measure: it waits for the facts before it.
        now_us = self._clock()
        self._delays.append(now_us - up_us)
        least_us = min(self._delays)
        if len(self._delays) < _DRIFT_FRAMES:
            self._least_us = least_us
        shift_us = self._offset.mono_us + least_us - self._least_us
        # The answer was read after the question and before now. Delays alone show too late that a host was paused, and
        # never that its first minute, or the answers about its clock, were slow.
        shift_us = min(max(shift_us, self.asked_us - up_us - _UPTIME_US), now_us - up_us)
        self.up_us, self.shift_us = up_us, shift_us

    def _entry(self, word: str, remainder: str) -> None:
        """Note a file (f), a directory (d), a link to a directory of the tree (l) or a link to a name (n)."""
        path, _, value = remainder.partition(" ")
        known = {"f": None, "d": None, "l": _SYSFS_PATH, "n": _DISKSTATS_NAME}
        wanted = known.get(word, _DISKSTATS_NAME)
        if word not in known or not _SYSFS_PATH.fullmatch(path) or (wanted is not None and not wanted.fullmatch(value)):
            self.undecoded += 1
            return
        if self._section == "@tick":
            file = self._root / "sys" / path
            if path == _SUSPENDS:
                self._count_suspends(value)
            elif self._gauges.get(path) == value:  # most devices are idle
                return
            elif word == "f" and file.name in _GAUGES and file.parent.is_dir() and not file.is_symlink():
                self._gauges[path] = value = value[:_MAX_GAUGE]
                file.write_text(value)
            return
        self._size += min(len(value), _MAX_VALUE)
        if len(self._fresh) >= _MAX_ENTRIES or self._size > _MAX_BYTES:
            raise HostError(_TOO_MANY)
        self._fresh[f"{word} {path}"] = value[:_MAX_VALUE]

    def _count_suspends(self, value: str) -> None:
        """Raise HostError after a suspend: it moves the host's clocks apart, and nothing was counted meanwhile."""
        before, self._suspends = self._suspends, value
        if before not in ("", value):
            raise HostError("it was suspended")

    def _ended(self) -> bool:
        section, self._section = self._section, ""
        if section == "@facts":
            self._build()
        elif section == "@tick":
            self._lines = 0
            (self._root / "proc").mkdir(exist_ok=True)
            (self._root / "proc/diskstats").write_text("\n".join(self._diskstats) + "\n")
        return section == "@tick"

    def _build(self) -> None:
        """Replace the tree.

        The directory of a device that stays is kept: the reader takes another inode for another device, whose counters
        began at 0.
        """
        self._gauges.clear()
        sysfs = self._root / "sys"
        staying = {entry.split("/")[1] for entry in self._fresh if re.match("[fd] block/", entry)}
        for file in (*sysfs.glob("*"), *sysfs.glob("block/*"), *sysfs.glob("block/*/*")):
            is_kept = file == sysfs / "block" or (file.parent == sysfs / "block" and file.name in staying)
            if file.is_symlink() or (file.exists() and not file.is_dir()):
                file.unlink()
            elif file.exists() and not is_kept:
                shutil.rmtree(file)
        for place in (sysfs / "block", sysfs / "class/block", sysfs / "devices", self._root / "proc"):
            place.mkdir(parents=True, exist_ok=True)
        order = sorted(self._fresh.items(), key=lambda path_and_kind: "dlfn".index(path_and_kind[0][0]))
        for entry, value in order:
            word, _, path = entry.partition(" ")
            try:
                self._make(word, sysfs, path, value or "")
            except OSError:  # a file where a directory should be: no sysfs has that
                self.undecoded += 1
        self._fresh = {}

    @staticmethod
    def _make(word: str, sysfs: Path, path: str, value: str) -> None:
        at = sysfs / path
        if word == "d":
            at.mkdir(parents=True, exist_ok=True)
            return
        at.parent.mkdir(parents=True, exist_ok=True)
        if word == "f":
            if not at.is_symlink():
                at.write_text(value)
        elif word == "l":
            at.symlink_to(sysfs / value)
        else:
            at.symlink_to(sysfs / "names" / value)


class ShellCounters:
    """Reader of one host's answers. Times are CLOCK_BOOTTIME of the host, moved by its offset."""

    def __init__(
        self,
        facts: HostAnswers,
        options: Options,
        root: Path,
        offset: Offset,
        reason: str,
        *,
        clock: Callable[[], int] = monotonic_us,
    ) -> None:
        """Keep the tree below `root`, an empty private directory. `reason`: why nothing better measures there."""
        self._options, self._root = options, root
        self.tree = ShellTree(root, offset, clock=clock)
        self._sampler: KernelSampler | None = None
        self._before: Sample | None = None
        self._seq = 0
        self._news: tuple[Device, ...] = ()
        self.origin = Origin(
            backend="procfs",
            host=facts.get("host") or "unknown",
            kernel=facts.get("kernel"),
            latmon=__version__,
            tool="/proc",
            tier="D",
            interval_us=options.interval_us,
            boot_id=facts.get("boot"),
            absent=tuple(Missing(s, _NO_DISTRIBUTION if s == "total" else _NO_STAGES) for s in STAGES),
            reason=reason,
        )

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices as of the last frame."""
        return self._sampler.devices if self._sampler is not None else ()

    @property
    def undecoded(self) -> int:
        """Lines that were not understood since the last frame."""
        return self.tree.undecoded

    def frame(self) -> Frame | None:
        """Return the frame of the interval that the tree's tick ends; None for the first one."""
        tree = self.tree
        if self._sampler is None:
            clock = FrameClock(lambda: tree.up_us + tree.shift_us, lambda: tree.wall)
            self._sampler = KernelSampler(self._root / "proc", self._root / "sys", (), clock)
        try:
            before, now = self._before, self._sampler.sample()
        except UnavailableError as error:
            raise HostError(str(error)) from error
        self._before = now
        if before is None or now.mono_us <= before.mono_us:
            self._news = self._sampler.devices
            return None
        interval = difference(before, now)
        known = {device.name: device for device in (*self._news, *interval.devices)}
        frame = Frame(
            seq=self._seq,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=interval.dt_us,
            kernel=interval.kernel,
            outstanding=interval.outstanding,
            tables=interval.tables,
            devices=tuple(device for name, device in known.items() if name not in interval.removed),
            removed=interval.removed,
            health=Health(undecoded_lines=interval.undecoded + tree.undecoded),
            late=interval.dt_us >= 2 * self._options.interval_us,
        )
        self._seq, self._news, tree.undecoded = self._seq + 1, (), 0
        return frame


class Host:
    """One host. `run` never ends by itself; `taken` returns the frames that came since."""

    def __init__(
        self,
        name: str,
        label: str,
        options: Options,
        client: Sequence[str],
        *,
        number: int = 0,
        probes: Probes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`probes`: None leaves the bpftrace of a host without latmon alone."""
        self.name, self.label, self.number = name, label, number
        self._probes = probes
        self.origin: Origin | None = None
        """Origin of the current or the latest connection."""
        self.reason = ""
        """Why there is no connection; empty while there is one."""
        self.is_settled = self.has_answered = False
        """Whether a first frame came or the first connection failed; whether the host's shell has answered."""
        self._remarks: deque[str] = deque(maxlen=_MOST_REMARKS)
        self._remarked: deque[str] = deque(maxlen=_MOST_REMARKS)
        """Remarks on the host to be shown, and those that were."""
        self._options, self._client, self._clock = options, client, clock
        self._connection: Connection | None = None
        self._waiting: deque[HostFrame] = deque(maxlen=_MOST_WAITING)
        self._inventory = Inventory()
        self._early: deque[Frame] = deque(maxlen=_MOST_WAITING)
        """Frames that came before the offset of the host's clock was known."""
        self._offset = Offset(0, 0.0, 0)
        self._compared = 0.0
        """When the offset was measured."""
        self._skew_s = 0.0
        """Seconds by which the host's wall clock was behind when that was reported."""
        self._untimed = ""
        self._recorded: deque[HostPart] = deque(maxlen=_MOST_WAITING)
        self._recorded_origin: Origin | None = None
        self._is_measured = False
        self._last = clock()
        self._sent = 0.0
        self._undecoded = self._uncounted = 0
        """Undecodable lines of the connection, and since its last frame."""
        self._unread = ""
        """Why the last one of them could not be read."""
        self._takes_commands = self._has_own_clock = self._has_frames = False
        self._useless: dict[str, str] = {}
        """Ways that gave no frame, and why; they are tried again when no way is left."""

    async def run(self) -> None:
        """Connect, and connect again after each failure."""
        failures = 0
        while True:
            begun = self._clock()
            try:
                await self._connected()
            except LatmonError as error:
                self._failed(clean(str(error), _MAX_REASON))
            except Exception as error:  # noqa: BLE001 - a full disk here, or a fault: the other hosts go on
                self._failed(clean(f"{type(error).__name__}: {error}", _MAX_REASON))
            failures = 0 if self._clock() - begun > CUT_S else failures
            await asyncio.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
            failures += 1

    @property
    def state(self) -> str:
        """Return what is wrong with the host, in words; empty while its frames come."""
        if self.reason:
            return f"{self.label}: {self.reason}"
        if self.origin is None:
            return f"{self.label}: {'starting' if self.has_answered else 'connecting'}"
        if not self.is_slow:
            return ""
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - (self._clock() - self._last)))
        return f"{self.label}: no frame since {since}{self._unread and f': {_UNREAD}: {self._unread}'}"

    @property
    def _interval_s(self) -> float:
        return self._options.interval_us / 1e6

    @property
    def is_slow(self) -> bool:
        return self._clock() - self._last > max(SLOW_S, 3 * self._interval_s)

    @property
    def is_shown(self) -> bool:
        """Return whether its devices are measured now."""
        return not self.reason and not self.is_slow and self.origin is not None

    def news(self) -> list[str]:
        """Return remarks on the host that were not returned before."""
        remarks = list(self._remarks)
        self._remarks.clear()
        return remarks

    def _remark(self, text: str, *, again: bool = False) -> None:
        """Add a remark, which is shown once, and again after many others or with `again`."""
        if again or text not in self._remarked:
            self._remarked.append(text)
            self._remarks.append(f"{self.label}: {text}")

    def excuse(self) -> None:
        """Begin to count silence again, because this process was stopped itself."""
        self._last = self._clock()

    def has_frame(self, until_us: int) -> bool:
        """Return whether a frame that ends up to `until_us` waits, by this host's clock."""
        return bool(self._waiting) and self._waiting[0].frame.mono_us + self._waiting[0].shift_us <= until_us

    def taken(self, until_us: int, slack_us: int) -> list[HostFrame]:
        """Return the frames that end up to `until_us`, by this host's clock; one that ends near it counts once.

        A frame that ends within the slack of the boundary goes to the interval that has none yet, so that a host whose
        frames end just at our own boundaries has one in each.
        """
        host_frames: list[HostFrame] = []
        while self._waiting:
            end_us = self._waiting[0].frame.mono_us + self._waiting[0].shift_us
            if end_us > until_us + slack_us or (host_frames and end_us > until_us - slack_us):
                break
            host_frames.append(self._waiting.popleft())
        return host_frames

    def complete(self, part: HostFrame) -> HostFrame:
        """Return the frame with all devices of the host, as for the first one after a pause."""
        return replace(part, frame=self._inventory.complete(part.frame))

    def send(self, command: object) -> None:
        """Send a command to the host's latmon, if that measures there."""
        if self._connection is not None and self._takes_commands:
            self._connection.send(json.dumps(command, separators=(",", ":")).encode() + b"\n")

    def request_tracing(self, devices: Sequence[str], *, files: bool) -> None:
        """Trace these devices of the host (empty: all), or remark why that is impossible."""
        self.send({"deepen": devices, **({"files": True} if files else {})})
        self._note_untraced()

    def set_stages(self, mode: str) -> None:
        """Set the mode of tracing, of this connection and of later ones."""
        self._options = replace(self._options, stages=mode)
        self.send({"stages": mode})
        if mode == "all":
            self._note_untraced()

    def _note_untraced(self) -> None:
        if self.origin is not None and not self.origin.traces_stages:
            self._remark(f"no stages are traced: {self.origin.untraced[0].reason}")

    def _failed(self, reason: str) -> None:
        self.reason = reason
        self._waiting.clear()
        self.is_settled = True

    async def _connected(self) -> None:
        """Follow one connection to its end, which is an error."""
        self._last, self._has_frames = self._clock(), False
        connection = await Connection.open(self.name, self._client)
        try:
            facts = await hello(connection)
            self.has_answered = True
            self._connection = connection
            ways = [way for way in WAYS if way != "bpftrace" or self._probes is not None]
            way = next((way for way in ways if facts.get(way) and way not in self._useless), "")
            try:
                if way == "latmon":
                    connection.send(f"latmon {feed_options(self._options)}\n".encode())
                    await self._follow_latmon(connection)
                elif way == "python":
                    await carry(connection, self._options)
                    await self._follow_latmon(connection)
                elif way == "bpftrace":
                    await self._follow_probe(connection, facts)
                    await self._follow_counters(connection, facts)
                elif way == "counters":
                    await self._follow_counters(connection, facts)
            except LatmonError as error:
                if not self._has_frames:  # then the next connection takes the next way
                    self._useless[way] = str(error)
                raise
            why = next(reversed(self._useless.values()), "") or _nothing(facts)
            self._useless.clear()
            raise HostError(why)
        finally:
            self._connection, self._takes_commands = None, False
            await connection.close()

    async def _follow_latmon(self, connection: Connection) -> None:
        self._takes_commands = self._has_own_clock = True
        position, reader = ReadPosition(), IdleReader()
        named: set[str] = set()
        opened = self._is_measured = False
        self._undecoded = self._uncounted = 0
        self._unread = ""
        self._early.clear()
        while True:
            line = await connection.line(CUT_S + 3 * self._interval_s if opened else STARTING_S)
            try:
                value = parse(line)
                kind = value.get("type")
                if kind == "header":
                    self._opened(_origin(value))
                    opened = True
                    self._ask_clock()
                elif kind == "clock":
                    self._measured(value.get("n"), value.get("mono"), value.get("wall"))
                elif kind == "end":
                    raise HostError(clean(str(value.get("reason", "it has ended")), _MAX_REASON))
                elif kind == "window" and opened:
                    frame = reader.decode(value)
                    admit(frame, position)
                    named |= named_devices(frame)
                    if len(named) > _MAX_DEVICES:
                        raise HostError(f"it has named more than {_MAX_DEVICES:,} devices, more than any host has")
                    self._receive(self._named_safely(frame))
            except RecordingError as error:
                self._undecodable(error)

    async def _follow_probe(self, connection: Connection, facts: HostAnswers) -> None:
        """Follow the host's bpftrace, which has a connection of its own; the shell reads the counters at each tick.

        Returns where it can't run there, with the shell ready for another command.
        """
        assert self._probes is not None  # noqa: S101 - else it is no way
        await self._compare_clocks(connection)
        about = await tool_facts(connection, facts)
        ahead_us = int(about["ahead"]) // 1000 if about.get("ahead", "").isdecimal() else 0
        async with contextlib.AsyncExitStack() as stack:
            root = Path(stack.enter_context(private_directory(os.environ)))
            tree = ShellTree(root, self._offset)
            refresh = partial(_ask, connection, tree)
            connection.send(asked_command(self._options))
            await refresh()
            at = MeasuredHost(
                start=lambda words: start_there(self.name, self._client, words),
                now_us=lambda: time.monotonic_ns() // 1000 - tree.shift_us - ahead_us,
                suspended_us=lambda: ahead_us,
                probe_ahead_us=_probe_clocks(about, ahead_us).__getitem__,
                clock=FrameClock(lambda: tree.up_us - ahead_us, lambda: tree.wall),
                refresh=refresh,
                facts=about,
            )
            backend = self._probes(replace(self._options, proc=root / "proc", sys=root / "sys"), at)
            try:
                async with asyncio.timeout(STARTING_S):
                    await stack.enter_async_context(backend)
            except (LatmonError, TimeoutError) as error:
                self._useless["bpftrace"] = str(error) or f"its bpftrace was not ready within {STARTING_S:.0f} s"
                return connection.send(b"done\n")
            self._has_own_clock = True
            self._opened(backend.origin)
            notice = ""
            try:
                async for frame in self._in_time(backend.frames()):
                    notice = frame.health.notice
                    if not frame.health.probes_attached:  # the last one, which has no interval
                        break
                    self._uncounted, tree.undecoded = tree.undecoded, 0
                    self._take_counted(frame, tree.shift_us + ahead_us)
            except HostError as error:
                notice = str(error)
            notice = notice or "its bpftrace has ended"
            if self._has_frames:
                raise HostError(notice)
            self._useless["bpftrace"] = notice
            return connection.send(b"done\n")

    async def _in_time(self, frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        """Yield the frames. HostError where none comes for as long as a probe may take to start again."""
        patience_s = STARTING_S + 3 * self._interval_s
        while True:
            silence, coming = Silence(), asyncio.ensure_future(anext(frames))
            try:
                while not coming.done():
                    if silence.look() > patience_s:  # of this process's own time: it may have been stopped
                        raise HostError(f"its bpftrace gave no interval for {patience_s:.0f} s")
                    await asyncio.wait({coming}, timeout=LOOK_S)
            finally:
                coming.cancel()
                await asyncio.wait({coming})
            try:
                frame = coming.result()
            except StopAsyncIteration:
                return
            yield frame

    async def _compare_clocks(self, connection: Connection) -> None:
        self._offset = await shell_offset(connection)
        self._check_clock(self._offset)

    async def _follow_counters(self, connection: Connection, facts: HostAnswers) -> None:
        await self._compare_clocks(connection)
        self._has_own_clock = False
        reasons = (*self._useless.values(), *facts.refused, _NO_LATMON)
        reason = clean(reasons[0], _MAX_REASON)
        with private_directory(os.environ) as root:
            counters = ShellCounters(facts, self._options, Path(root), self._offset, reason)
            connection.send(asked_command(self._options))
            self._opened(counters.origin)
            due = time.monotonic()
            while True:
                await _ask(connection, counters.tree)
                frame = counters.frame()
                if frame is not None:
                    self._take_counted(frame, 0)
                now = time.monotonic()
                due += self._interval_s
                due = due if due > now else now + self._interval_s
                await connection.pause(due - now)

    def _opened(self, origin: Origin) -> None:
        self.origin, self.reason = origin, ""
        self._inventory, self._recorded_origin = Inventory(), None
        self._untimed = "" if "total" in origin.measured else origin.reason or _COUNTERS
        self._last = self._clock()
        if origin.reason:
            self._remark(origin.reason)
        if self._options.stages == "all":
            self._note_untraced()

    def _undecodable(self, error: RecordingError) -> None:
        self._undecoded += 1
        self._uncounted += 1
        self._unread = clean(str(error), _MAX_REASON)
        if self._undecoded > _MAX_UNDECODED:
            raise HostError(f"{_UNREAD}: {error}")

    def _ask_clock(self) -> None:
        self._sent = self._clock()
        self.send({"clock": time.monotonic_ns() // 1000})

    def _measured(self, sent_us: object, mono_us: object, its_time: object) -> None:
        """Take the answer to a clock command, whose number is when it was sent. RecordingError for what is no time."""
        now_us = time.monotonic_ns() // 1000
        took_us = now_us - whole(sent_us, "n")
        its_us, its_wall = whole(mono_us, "mono", high=MAX_SPAN_US), wall(its_time, "wall")
        if not 0 <= took_us < CUT_S * 1e6:
            return
        half_us = took_us // 2
        offset = Offset(now_us - half_us - its_us, time.time() - half_us / 1e6 - its_wall, half_us)
        self._check_clock(offset)
        if not self._is_measured or self._is_better(offset):
            self._offset, self._compared, self._is_measured = offset, self._clock(), True
        while self._early:
            self._take(self._early.popleft())

    def _is_better(self, offset: Offset) -> bool:
        """Return whether this offset replaces the known one: it is more exact by now, or the clocks have jumped.

        A round trip of some seconds, on a crowded host, would move all of its frames by half of that.
        """
        known = self._offset
        error_us = known.error_us + _DRIFT * 1e6 * (self._clock() - self._compared)
        has_jumped = abs(offset.mono_us - known.mono_us) > offset.error_us + error_us
        return offset.error_us <= error_us or has_jumped

    def _check_clock(self, offset: Offset) -> None:
        """Remark on a wall clock that is wrong, once, and again after a change or after it was right."""
        error_s = max(_SKEW_S, offset.error_us / 1e6)
        if abs(offset.wall_s) + offset.error_us / 1e6 < _SKEW_S / 2:  # not at the limit, where each answer may differ
            self._skew_s = 0.0
        elif abs(offset.wall_s) > error_s and abs(offset.wall_s - self._skew_s) > error_s:
            self._skew_s = offset.wall_s
            which = "behind" if offset.wall_s > 0 else "ahead"
            self._remark(f"its clock is {_about(abs(offset.wall_s))} {which}", again=True)

    def _record(self, frame: Frame, shift_us: int) -> None:
        """Keep the frame for a recording: its wall clock is ours, so that those of several hosts can be compared."""
        if self.origin is None:
            return
        if self._recorded_origin is None:
            start_us = frame.mono_us - frame.dt_us
            reported = {"offset_us": shift_us, "error_us": self._offset.error_us, "wall_s": self._offset.wall_s}
            self._recorded_origin = replace(
                self.origin,
                start_mono_us=start_us,
                start_wall=_wall(start_us + shift_us),
                extra={**self.origin.extra, "fleet_clock": reported},
            )
        end = _wall(frame.mono_us + shift_us)
        outliers = tuple(replace(outlier, wall=max(0.0, outlier.wall + end - frame.wall)) for outlier in frame.outliers)
        moved = replace(frame, wall=end, outliers=outliers)
        self._recorded.append(HostPart(self.label, self._recorded_origin, moved, self._has_own_clock))

    def recorded(self) -> list[HostPart]:
        """Return the frames since the last call, for recordings."""
        host_parts = list(self._recorded)
        self._recorded.clear()
        return host_parts

    def _receive(self, frame: Frame) -> None:
        """Take a frame of the host's latmon, or keep it until the offset of its clock is known."""
        if self._is_measured:
            self._take(frame)
        else:
            self._inventory.note(frame)
            self._early.append(frame)
            if self._clock() - self._sent > _CLOCK_AGAIN_S:  # the answer was lost, or came too late to be of use
                self._ask_clock()

    def _named_safely(self, frame: Frame) -> Frame:
        """Return the frame without devices whose names a shell reads as more: users copy commands that have them."""
        odd: set[str] = set()

        def keeps(name: str) -> bool:
            if _DEVICE.fullmatch(name):
                return True
            odd.add(name)
            return False

        kept = of_devices(frame, keeps)
        if odd:
            self._remark(f"{clean(min(odd), _MAX_NAME)!r} is no name of a device and is left out")
        return kept if odd else frame

    def _take_counted(self, frame: Frame, shift_us: int) -> None:
        """Take a frame that was made here with what the host's shell prints.

        HostError for counters that no reader takes: the frame of all hosts, and a recording, would be unreadable.
        """
        times = Frame(frame.seq, frame.wall, frame.mono_us, frame.dt_us, removed=frame.removed)
        counted = replace(times, kernel=frame.kernel, outstanding=frame.outstanding, devices=frame.devices)
        try:
            decode_frame(parse(to_bytes(encode_frame(counted))))
        except (RecordingError, ValueError) as error:
            raise HostError(f"its counters are no numbers of a kernel: {clean(str(error), _MAX_REASON)}") from None
        self._take(self._named_safely(frame), shift_us)

    def _take(self, frame: Frame, shift_us: int | None = None) -> None:
        if self._uncounted:
            health = replace(frame.health, undecoded_lines=frame.health.undecoded_lines + self._uncounted)
            frame, self._uncounted = replace(frame, health=health), 0
        self._inventory.note(frame)
        self._last, self.is_settled, self._has_frames, self._unread = self._clock(), True, True, ""
        shift_us = self._offset.mono_us if shift_us is None else shift_us
        self._record(frame, shift_us)
        devices = tuple(device.name for device in self._inventory.complete(frame).devices)
        self._waiting.append(HostFrame(self.label, frame, shift_us, devices, self._untimed, self.number))
        if self._takes_commands and self._clock() - self._sent > _CLOCK_EVERY_S:
            self._ask_clock()


def _probe_clocks(facts: Mapping[str, str], ahead_us: int) -> dict[str, int]:
    """Return how far the clocks of a host's probes are ahead of its CLOCK_BOOTTIME less `ahead_us`.

    `ahead_us`: how far its kernel's CLOCK_BOOTTIME is ahead of its kernel's CLOCK_MONOTONIC. Its shell reads
    CLOCK_BOOTTIME with the offset of its time namespace (see `clock_offsets` in latmon/support/host.py).
    """
    offset = _BOOTTIME_OFFSET.fullmatch(facts.get("boottime", ""))
    offset_us = 0 if offset is None else int(offset[1]) * 1_000_000 + int(offset[2]) // 1000
    return {"monotonic": -offset_us, "boottime": ahead_us - offset_us}


async def _ask(connection: Connection, tree: ShellTree) -> None:
    """Ask the host's shell for a tick, and read its answer into the tree."""
    tree.asked_us = time.monotonic_ns() // 1000
    connection.send(b"now\n")
    while not tree.take(await connection.line(CUT_S)):
        pass


def _origin(header: dict[str, Any]) -> Origin:
    try:
        return decode_origin(header)
    except RecordingError as error:
        raise HostError(f"its latmon sends a header that this one can't read: {error}") from error


def _about(seconds: float) -> str:
    """Return a duration in hours, minutes or seconds: in the largest unit of which there are at least two."""
    unit = next((unit for unit in (3600, 60) if seconds >= 2 * unit), 1)
    return show_duration(round(seconds / unit) * unit * 1_000_000)


def _wall(mono_us: int) -> float:
    """Return the wall clock of this host at a time of its CLOCK_MONOTONIC."""
    return min(max(0.0, round(time.time() - (time.monotonic_ns() // 1000 - mono_us) / 1e6, 6)), MAX_WALL)


def _nothing(facts: HostAnswers) -> str:
    """Return why nothing can measure on a host."""
    if facts.refused:
        return facts.refused[0]
    return f"there is neither a latmon nor /proc/diskstats on this {facts.get('kernel') or 'system'}"
