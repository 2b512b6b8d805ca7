"""Reports of devices that only tools read, where latmon is root and they are installed.

These are the health logs of NVMe drives by nvme-cli, else by smartctl, and the paths of multipath devices by dmsetup. A
thread runs them at the start and every five minutes. A health log is an admin command, which waits in no I/O queue; the
paths are kept by the kernel. Not asked: ATA and SCSI disks, because an ATA disk stops its queued commands for it, which
would be measured as latency; vendors' log pages, because a drive without them adds an entry to its error log.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from latmon.model.frame import DeviceReport
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.process import SideThread
from latmon.support.text import clean
from latmon.support.trust import environment, find_tool

PERIOD_S = 300
_TIMEOUT_S = 5.0
_MAX_DRIVES = 64
_MAX_OUTPUT = 1 << 20
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
"""Runs a program and returns its output. Raises OSError, subprocess.TimeoutExpired."""
Logs = Mapping[str, tuple[DeviceReport, ...]]


def _run(words: tuple[str, ...]) -> bytes:
    done = subprocess.run(  # noqa: S603 - an absolute path of root's own, and a name that was checked
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,  # smartctl's exit code has a bit for each kind of entry in the log
        env={**environment(os.environ), "LC_ALL": "C"},
    )
    return done.stdout[:_MAX_OUTPUT]


def read_logs(
    names: Iterable[str],
    run: Run = _run,
    find: Callable[[str, str, Mapping[str, str]], Path] = find_tool,
) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the logs of these drives, and the paths by the names of multipath devices; what can't be read is left out.

    dmsetup is only run where a name begins with `dm-`.
    """
    found: dict[str, tuple[DeviceReport, ...]] = {}
    for tool, arguments, keys in _TOOLS:
        try:
            path = find(tool, "", {"PATH": os.environ.get("PATH", os.defpath)})
        except (UnavailableError, UntrustedError):
            continue
        for name in names:
            if name in found or not _NAME.fullmatch(name):
                continue
            try:
                output = run((str(path), *(one.format(name) for one in arguments)))
            except (OSError, subprocess.TimeoutExpired):
                continue
            if some := tuple(parse(output, keys, tool)):
                found[name] = some
    if any(name.startswith("dm-") for name in names):
        found |= _paths(run, find)
    return found


def _paths(run: Run, find: Callable[[str, str, Mapping[str, str]], Path]) -> dict[str, tuple[DeviceReport, ...]]:
    """Return the paths of all multipath devices, by their dm name."""
    try:
        path = find("dmsetup", "", {"PATH": os.environ.get("PATH", os.defpath)})
        output = run((str(path), "status", "--target", "multipath"))
    except (UnavailableError, UntrustedError, OSError, subprocess.TimeoutExpired):
        return {}
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
        read: Callable[[tuple[str, ...]], Logs] = read_logs,
        is_root: Callable[[], bool] = lambda: os.geteuid() == 0,
    ) -> None:
        self._read, self._is_root = read, is_root
        self._reading: Future[Logs] | None = None
        self._due_s = 0
        self._logs: dict[str, tuple[DeviceReport, ...]] = {}

    def of(self, name: str) -> tuple[DeviceReport, ...]:
        """Return the latest values of a drive, or of a multipath device by its dm name; none where none were read."""
        return self._logs.get(name, ())

    def refresh(self, names: Iterable[str], now_s: int) -> None:
        """Take over what was read, and read again when it is due. A reading that hangs is the last one."""
        if self._reading is not None and self._reading.done():
            self._logs = dict(self._reading.result())
            self._reading = None
        if self._reading is not None or now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        several = tuple(names)
        drives = tuple(name for name in several if _NAME.fullmatch(name))[:_MAX_DRIVES]
        drives += tuple(name for name in several if name.startswith("dm-"))[:1]
        if drives and self._is_root():
            thread = SideThread("tool reports")
            self._reading = thread.submit(self._read, drives)
            thread.shutdown()
