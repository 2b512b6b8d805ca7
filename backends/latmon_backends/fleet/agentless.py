"""Frames of a host without latmon: counters that its shell prints when asked, read by the reader of /proc and sysfs.

What the shell prints about devices is kept as a tree of small files below a private directory, in which names are
checked: the reader takes its roots as arguments.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from latmon import __version__
from latmon.capture.backend import Options
from latmon.model.frame import STAGES, Device, Frame, Health, Missing, Origin
from latmon.support import trust
from latmon.support.errors import UnavailableError
from latmon_backends.fleet.remote import HostFacts, Offset
from latmon_backends.fleet.ssh import HostError
from latmon_backends.kernel.counters import FrameClock, KernelSampler, Sample, difference, monotonic_us

_NO_DISTRIBUTION = "the kernel's counters are sums without a distribution: only the mean is known"
_NO_STAGES = "the kernel's counters don't separate stages: this needs latmon on the host"
_PATH = re.compile(r"[A-Za-z0-9!][A-Za-z0-9_.:!,@+-]*(?:/[A-Za-z0-9!][A-Za-z0-9_.:!,@+-]*){0,30}")
"""A path of sysfs: no part begins with a dot, so that none leads out of the tree."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MAX_ENTRIES = 200_000
"""Files and directories of a host; 1,000 devices have 40,000."""
_MAX_VALUE = 4096
_MAX_BYTES = 32 << 20
"""Sum of all values in the tree; 1,000 devices have 1 MB."""
_MAX_LINES = 32_768
"""Lines of /proc/diskstats: disks and partitions; 1,000 disks have some thousand."""
_MAX_DISKSTATS = 512
"""Bytes of such a line."""
_GAUGE, _MAX_GAUGE = "inflight", 64
"""The file that a tick reports of each device, and its size."""
_SUSPENDS = "power/suspend_stats/success"
"""Number of suspends since the boot."""
_TOO_MANY = "it reports more devices than any host has"
_MAX_ANSWER = _MAX_ENTRIES + 2 * _MAX_LINES
"""Lines up to the end of a tick, with those about devices."""
_UPTIME_US = 10_000
"""Resolution of /proc/uptime, which is cut off there."""
_DRIFT_FRAMES = 60
_PREFIX = "latmon-fleet-"


def private_directory(environ: Mapping[str, str]) -> TemporaryDirectory[str]:
    """Return a new directory for the tree, in memory where that is possible: on a slow disk each frame would wait.

    Those of latmons that were killed are removed. `su` and `sudo -E` keep another user's runtime directory; that user
    could put a link in the place of the new one, and root would write below its target.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and trust.flaw(Path(runtime), trust.ROOT | {os.geteuid()}):
        runtime = ""
    places = (runtime, "/dev/shm")  # noqa: S108  the directory in it is private
    parent = next((one for one in places if one and Path(one).is_dir() and os.access(one, os.W_OK | os.X_OK)), None)
    for one in Path(parent).glob(f"{_PREFIX}*") if parent else ():
        pid = one.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and one.lstat().st_uid == os.geteuid():
                shutil.rmtree(one)
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
        word, _, rest = text.partition(" ")
        if word in ("@facts", "@tick"):
            self._begin(word, rest)
        elif word == "@end":
            return self._ended()
        elif word == "s" and self._section == "@tick":
            if len(self._diskstats) >= _MAX_LINES:
                raise HostError(_TOO_MANY)
            self._diskstats.append(rest[:_MAX_DISKSTATS])
        elif self._section:
            self._entry(word, rest)
        else:
            self.undecoded += 1
        return False

    def _begin(self, word: str, rest: str) -> None:
        self._section, self._diskstats = word, []
        if word == "@facts":
            self._fresh, self._size = {}, 0
            return
        try:
            up_us = round(float(rest) * 1e6)
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

    def _entry(self, word: str, rest: str) -> None:
        """Note a file (f), a directory (d), a link to a directory of the tree (l) or a link to a name (n)."""
        path, _, value = rest.partition(" ")
        known = {"f": None, "d": None, "l": _PATH, "n": _NAME}
        wanted = known.get(word, _NAME)
        if word not in known or not _PATH.fullmatch(path) or (wanted is not None and not wanted.fullmatch(value)):
            self.undecoded += 1
            return
        if self._section == "@tick":
            file = self._root / "sys" / path
            if path == _SUSPENDS:
                self._count_suspends(value)
            elif self._gauges.get(path) == value:  # most devices are idle
                return
            elif word == "f" and file.name == _GAUGE and file.parent.is_dir() and not file.is_symlink():
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
        for one in (*sysfs.glob("*"), *sysfs.glob("block/*"), *sysfs.glob("block/*/*")):
            is_kept = one == sysfs / "block" or (one.parent == sysfs / "block" and one.name in staying)
            if one.is_symlink() or (one.exists() and not one.is_dir()):
                one.unlink()
            elif one.exists() and not is_kept:
                shutil.rmtree(one)
        for place in (sysfs / "block", sysfs / "class/block", sysfs / "devices", self._root / "proc"):
            place.mkdir(parents=True, exist_ok=True)
        order = sorted(self._fresh.items(), key=lambda one: "dlfn".index(one[0][0]))
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
        facts: HostFacts,
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
        known = {one.name: one for one in (*self._news, *interval.devices)}
        frame = Frame(
            seq=self._seq,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=interval.dt_us,
            kernel=interval.kernel,
            outstanding=interval.outstanding,
            devices=tuple(one for name, one in known.items() if name not in interval.removed),
            removed=interval.removed,
            health=Health(undecoded_lines=interval.undecoded + tree.undecoded),
            late=interval.dt_us >= 2 * self._options.interval_us,
        )
        self._seq, self._news, tree.undecoded = self._seq + 1, (), 0
        return frame
