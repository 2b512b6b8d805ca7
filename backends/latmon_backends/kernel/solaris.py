"""Settings of illumos and Solaris: /etc/system, driver .conf files, prtconf -v, kstat, and variables by mdb -k.

Everything is only read. What a file asks for has the file's name before it (`/etc/system sd_max_throttle`), because the
kernel reads files at boot; a variable's name alone is its present value.

Formats as in illumos-gate, usr/src: man/man5/system.5 and driver.conf.5, cmd/prtconf/pdevinfo.c (dump_devs,
dump_prop_list).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Device
from latmon.support.errors import UnavailableError, UntrustedError
from latmon.support.paths import matching, text
from latmon.support.text import clean
from latmon.support.trust import require
from latmon_backends.kernel.kstat import output, parse_pairs

Sections = dict[str, dict[str, str]]
Run = Callable[[tuple[str, ...], bytes], bytes]
"""Words and standard input -> standard output; UnavailableError where there is none."""
Setting = tuple[str, str, str]
"""Module, name, value."""
MAX_VALUE = 256
_MAX_SETTINGS = 300
"""One source gives at most so many settings."""
_DRIVERS = re.compile(
    r"s?sd|scsi_vhci|fp|fcp|emlxs|qlc|lpfc|bfa|fcoei?|mpt(_sas\d?)?|pmcs|mr_sas|lmrc|aac|arcmsr|cpqary3|smartpqi|ahci|sata"
    r"|nvme|blkdev|vioblk|vioscsi|pvscsi|cmdk|iscsi|srpc|zfs"
)
"""Drivers between a disk and its hardware."""
_CONF = ("kernel/drv/*.conf", "platform/*/kernel/drv/*.conf", "etc/driver/drv/*.conf")
_SYSTEM = ("etc/system", "etc/system.d/*")
_SET = re.compile(r"set\s+(?:(\w+):)?(\w+)\s*([=|&]\s*[~-]?\s*\w+)")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#[^\n]*|;|[^;"#]+|.', re.DOTALL)
_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+', re.DOTALL)
_PROPERTY = re.compile(r"([^\s=;\"]+)\s*=\s*(.+)", re.DOTALL)
_NODE = re.compile(r" *\S.*?, instance #(\d+)(?: \(driver name: (\w+)\))?")
_NAME = re.compile(r" +name='([^']+)' type=(\w+)(?: items=(\d+))?.*")
_VALUE = re.compile(r" +value=(.*)")
_IDENTIFIES = re.compile(
    r"ww[np]n?|serial|guid|devid|port-?name|initiator|target-?port|bind|sas-?addr|mac-?addr", re.IGNORECASE
)
"""Names of addresses: a recording has none of them, even without --redact."""
_INQUIRY = {"inquiry-vendor-id": "vendor", "inquiry-product-id": "model", "inquiry-revision-id": "rev"}
_KSTATS = ("zfs:0:arcstats:c_max", "zfs:0:arcstats:c_min")
_VARIABLE = re.compile(r"(\w+):\s+(-?\d+)\s*")
_VARIABLES = (
    *("sd_max_throttle", "sd_io_time", "ssd_max_throttle", "ssd_io_time", "user_reserve_hint_pct"),
    *("zfs_vdev_max_pending", "zfs_vdev_min_pending", "zfs_vdev_max_active"),
    *(f"zfs_vdev_{kind}_max_active" for kind in ("sync_read", "sync_write", "async_read", "async_write", "scrub")),
)
"""Limits of commands in flight and of the time that each may take; a kernel has some of them."""


def read_all(devices: Iterable[Device], into: Sections, root: Path = Path("/"), run: Run | None = None) -> None:
    """Add all settings, the quickest source first, because a source that hangs leaves those before it."""
    run = run or run_trusted
    disks = {device.name for device in devices}
    for found in (_system(root), _confs(root), _limits(run), _properties(run, disks), _variables(run)):
        for section, name, value in islice((one for one in found if not _IDENTIFIES.search(one[1])), _MAX_SETTINGS):
            into.setdefault(section, {})[clean(name, MAX_VALUE)] = clean(value, MAX_VALUE)


def _section(module: str) -> str:
    return f"module {module}" if module else "kernel"


def _system(root: Path) -> Iterator[Setting]:
    """Yield the variables that /etc/system sets at boot."""
    for path in (path for glob in _SYSTEM for path in matching(root, glob)):
        for module, name, value in system(text(path)):
            yield _section(module), f"/{path.relative_to(root)} {name}", value


def system(lines: str) -> Iterator[Setting]:
    """Yield module, variable and value of each `set`; a module is empty where none is named."""
    for line in lines.splitlines():
        found = _SET.match(line.strip())  # comments begin with * or #
        if found is not None:
            yield found[1] or "", found[2], found[3].removeprefix("=").strip()


def _confs(root: Path) -> Iterator[Setting]:
    """Yield the properties that the files of disk drivers give all their instances."""
    for path in (path for glob in _CONF for path in matching(root, glob)):
        if _DRIVERS.fullmatch(path.stem):
            for name, value in conf(text(path)):
                yield _section(path.stem), f"{path.name} {name}", value


def conf(whole: str) -> Iterator[tuple[str, str]]:
    """Yield the properties of a driver.conf(5) that are of no single node; blanks in strings are kept."""
    parts: list[str] = []
    for part in (*_TOKEN.findall(whole), ";"):
        if part == ";":
            found = _PROPERTY.fullmatch(_BLANKS.sub(lambda found: found[1] or " ", "".join(parts)).strip())
            # A node has several properties in one entry: name, parent or class, and an address.
            if found is not None and sum(one.count("=") for one in parts if not one.startswith('"')) == 1:
                yield found[1], found[2]
            parts = []
        elif not part.startswith("#"):
            parts.append(part)


def _limits(run: Run) -> Iterator[Setting]:
    """Yield the bounds of ZFS's cache."""
    for id_, values in parse_pairs(output_of(run, "/usr/bin/kstat", "-p", *_KSTATS)).values.items():
        for name, value in values.items():
            yield _section(id_.module), f"{id_.name} {name}", value


class Property(NamedTuple):
    """A property of one instance of a driver; `value` is decimal where it is one integer."""

    driver: str
    instance: int
    name: str
    value: str


def _properties(run: Run, disks: set[str]) -> Iterator[Setting]:
    """Yield the identity of disks, and the properties of their adapters' drivers."""
    printed = output_of(run, "/usr/sbin/prtconf", "-vD").decode("utf-8", "replace")
    for one in properties(printed):
        node = f"{one.driver}{one.instance}"
        if node in disks:
            if one.name in _INQUIRY:
                yield f"device {node}", _INQUIRY[one.name], one.value
        elif _DRIVERS.fullmatch(one.driver) and one.name not in _INQUIRY and one.driver not in ("sd", "ssd"):
            yield _section(one.driver), f"{node} {one.name}", one.value


def properties(printed: str) -> Iterator[Property]:
    """Yield the strings and integers of the nodes that have a driver, from `prtconf -vD`."""
    node: tuple[str, int] | None = None
    name = kind = ""
    for line in printed.splitlines():
        if found := _NODE.fullmatch(line):
            node = (found[2], int(found[1])) if found[2] else None
        elif found := _NAME.fullmatch(line):
            name, kind = (found[1], found[2]) if found[2] in ("int", "int64", "string") else ("", "")
        elif node is not None and name and (found := _VALUE.fullmatch(line)):
            yield Property(*node, name, _value(kind, found[1].strip()))
            name = ""
        elif line.lstrip().startswith("Device Minor Nodes"):
            node = None  # properties of its minor nodes and layers follow


def _value(kind: str, printed: str) -> str:
    if kind == "string":
        return printed.strip("'")
    if not re.fullmatch(r"[0-9a-f]{8}|[0-9a-f]{16}", printed):
        return printed
    return str(int.from_bytes(bytes.fromhex(printed), "big", signed=True))


def _variables(run: Run) -> Iterator[Setting]:
    """Yield present values of kernel variables: to read them takes root, and mdb without -w, which can't write."""
    if os.geteuid() != 0:
        return
    asked = "".join(f"{name}/D\n" for name in _VARIABLES)
    for line in (
        output_of(run, "/usr/bin/mdb", "-S", "-k", given=asked.encode()).decode("utf-8", "replace").splitlines()
    ):
        found = _VARIABLE.fullmatch(line)
        if found is not None:
            module = found[1].partition("_")[0]
            yield _section(module if module in ("sd", "ssd", "zfs") else ""), found[1], found[2]


def run_trusted(words: tuple[str, ...], given: bytes) -> bytes:
    """Run a program that no other user can change. Raises UntrustedError, UnavailableError."""
    require(Path(words[0]), words[0])
    return output(words, given=given)


def output_of(run: Run, *words: str, given: bytes = b"") -> bytes:
    """Return a program's output, empty where it is missing or fails, or where others can change what root would run."""
    try:
        return run(words, given)
    except (UnavailableError, UntrustedError):
        return b""
