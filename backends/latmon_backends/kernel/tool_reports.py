"""Reports of devices that only tools read, where latmon is root and they are installed.

These are the health logs of NVMe drives by nvme-cli, else by smartctl, and the paths of multipath devices by dmsetup. A
thread runs them at the start and every five minutes. A health log is an admin command, which waits in no I/O queue; the
paths are kept by the kernel. Not read: logs of ATA and SCSI disks, because an ATA disk stops its queued commands for
it, which would be measured as latency; vendors' log pages, because a drive without them adds an entry to its error log.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from latmon.model.frame import Device, DeviceReport
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.process import SideThread
from latmon.support.text import clean
from latmon.support.trust import environment, find_tool

PERIOD_S = 300
_KEPT_S = 2 * PERIOD_S
"""Age at which a log is dropped that can't be read again: latmon is root no longer, or a tool hangs."""
_TIMEOUT_S = 5.0
_MAX_DRIVES = 64
_MAX_OUTPUT = 1 << 20
"""Bytes; a tool that prints more is ended, and its output is not used."""
_NAME = re.compile(r"nvme\d{1,4}n\d{1,4}")
_TOOLS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("nvme", ("smart-log", "/dev/{}", "--output-format=json"), ()),
    ("smartctl", ("--json", "--attributes", "/dev/{}"), ("nvme_smart_health_information_log",)),
)
"""Name of a tool, its arguments for a drive, and the keys under which its JSON has the log. The best one is first."""
_VALUES = (
    *("critical_warning", "media_errors", "num_err_log_entries", "warning_temp_time", "critical_comp_time"),
    *("thm_temp1_trans_count", "thm_temp2_trans_count"),
)
"""Values by nvme-cli's names, most of which smartctl has as well (NVMe base specification, SMART log)."""
_QUOTED = re.compile(r"\d[\d,]{0,24}", re.ASCII)
"""A number as some versions of nvme-cli print it."""
_PATH = re.compile(r"(?<= )\d+:\d+ ([AF]) (\d{1,18})(?= )")
"""A path in the status of a multipath device: its number, active or failed, how often it failed (dm-mpath.c)."""
Run = Callable[[tuple[str, ...]], bytes]
"""Runs a program and returns what it prints. Raises OSError, subprocess.TimeoutExpired."""
Logs = Mapping[str, tuple[DeviceReport, ...]]


def _run(words: tuple[str, ...]) -> bytes:
    """Return what a program prints, without errors; its exit code isn't read, because smartctl's has a bit per entry.

    Its session is its own, so that it gets no signal and no input from the terminal.
    """
    until, output = time.monotonic() + _TIMEOUT_S, b""
    with subprocess.Popen(  # noqa: S603 - an absolute path of root's own, and a name that was checked
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment(os.environ), "LC_ALL": "C"},
        start_new_session=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101 - for mypy
        prints = select.poll()
        prints.register(child.stdout, select.POLLIN)
        try:
            while len(output) <= _MAX_OUTPUT:
                if not prints.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise subprocess.TimeoutExpired(words, _TIMEOUT_S)
                if not (part := os.read(child.stdout.fileno(), 1 << 16)):
                    return output
                output += part
        finally:
            child.kill()
    raise OSError(f"{words[0]} prints more than {_MAX_OUTPUT} bytes")


def read_logs(
    names: Iterable[str],
    run: Run = _run,
    find: Callable[[str, str, Mapping[str, str]], Path] = find_tool,
    *,
    multipath: bool = False,
) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the logs of these drives, and with `multipath` the paths by the names of multipath devices.

    What can't be read is left out.
    """
    found: dict[str, tuple[DeviceReport, ...]] = {}
    for tool, arguments, keys in _TOOLS:
        for name in names:
            if name in found or not _NAME.fullmatch(name):
                continue
            output = _output(run, find, tool, *(one.format(name) for one in arguments))
            if some := tuple(parse(output, keys, tool)):
                found[name] = some
    if multipath:
        found |= _paths(run, find)
    return found


def _output(run: Run, find: Callable[[str, str, Mapping[str, str]], Path], tool: str, *arguments: str) -> bytes:
    """Return what a tool prints; nothing where it isn't installed, isn't root's own or fails."""
    try:
        return run((str(find(tool, "", {"PATH": os.environ.get("PATH", os.defpath)})), *arguments))
    except (UnavailableError, UntrustedError, OSError, subprocess.TimeoutExpired):
        return b""


def _paths(run: Run, find: Callable[[str, str, Mapping[str, str]], Path]) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the paths of all multipath devices, by their dm name.

    dmsetup asks the kernel for the status of all dm devices and prints those of the target. Without --noflush, dm-thin
    and dm-cache commit their metadata for that, which writes to the disks that are measured.
    """
    output = _output(run, find, "dmsetup", "status", "--noflush", "--target", "multipath")
    return {
        name: paths for line in output.splitlines() if (name := _named(line)) and (paths := tuple(parse_paths(line)))
    }


def _named(line: bytes) -> str:
    return clean(line.partition(b": ")[0]) if b" multipath " in line else ""


def parse_paths(line: bytes) -> Iterator[DeviceReport]:
    """Yield the numbers of paths and of failed ones, and how often paths failed, of a line of `dmsetup status`."""
    each = _PATH.findall(f"{line.partition(b' multipath ')[2].decode('ascii', 'replace')} ")
    if each:
        yield DeviceReport("paths", len(each), "dmsetup")
        yield DeviceReport("paths_failed", sum(state == "F" for state, _ in each), "dmsetup")
        yield DeviceReport("path_failures", sum(int(failures) for _, failures in each), "dmsetup")


def parse(output: bytes, keys: tuple[str, ...], tool: str) -> Iterator[DeviceReport]:
    """Yield the values of a tool's JSON; none of anything else."""
    try:
        value: Any = json.loads(output)
    except (ValueError, RecursionError):
        return
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    for name in _VALUES if isinstance(value, dict) else ():
        number = value.get(name)
        if isinstance(number, str) and _QUOTED.fullmatch(number):
            number = int(number.replace(",", ""))
        if type(number) is int and 0 <= number < 1 << 63:
            yield DeviceReport(name, number, tool)


class ToolReports:
    """The latest logs, read on a thread that is started by `refresh`."""

    def __init__(
        self,
        read: Callable[..., Logs] = read_logs,
        is_root: Callable[[], bool] = lambda: os.geteuid() == 0,
    ) -> None:
        """Take the function that reads them: as `read_logs`, with names of drives and `multipath`."""
        self._read, self._is_root = read, is_root
        self._reading: Future[Logs] | None = None
        self._due_s = self._read_s = 0
        self._logs: Logs = {}
        self._generations: Mapping[str, int] = {}
        """Drive -> its generation when the log was read."""
        self._reading_of: Mapping[str, int] = {}
        """Drive -> its generation when the reading began that goes on now."""

    def of(self, name: str, generation: int) -> tuple[DeviceReport, ...]:
        """Return the latest values of a drive, or of a multipath device by its dm name.

        None where none were read, and none of an earlier drive of that name.
        """
        return self._logs.get(name, ()) if self._generations.get(name, generation) == generation else ()

    def refresh(self, devices: Mapping[str, Device], generations: Mapping[str, int], now_s: int) -> None:
        """Use what was read, and read again when it is due. While a reading hangs, there is no other one."""
        if self._reading is not None and self._reading.done():
            self._logs, self._generations, self._read_s = self._reading.result(), self._reading_of, now_s
            self._reading = None
        if self._logs and now_s - self._read_s >= _KEPT_S:
            self._logs = {}
        if self._reading is not None or now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        drives = tuple(name for name in devices if _NAME.fullmatch(name))[:_MAX_DRIVES]
        multipath = any(one.model == "multipath" for one in devices.values())
        if (drives or multipath) and self._is_root():
            self._reading_of = {name: generations.get(name, 0) for name in drives}
            thread = SideThread("tool reports")
            self._reading = thread.submit(self._read, drives, multipath=multipath)
            thread.shutdown()
