"""Network cards behind NVMe over TCP and RDMA: the interface of each controller, its driver and versions.

An interface is the one that the connection names, else that of the longest route to its target; rules of policy routing
are not read. Below a bond or a VLAN its cards are taken. Versions are those that `ethtool -i` shows.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
import sys as python
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from latmon.support.paths import matching, text
from latmon.support.text import clean
from latmon_backends.kernel import block_devices

_FABRICS = ("tcp", "rdma")
_SIOCETHTOOL, _GDRVINFO = 0x8946, 3
_DRVINFO = struct.Struct("=I32s32s32s32s32s12x20x")
"""struct ethtool_drvinfo: cmd, driver, version, fw_version, bus_info, erom_version."""
_IFREQ = struct.Struct("16sP16x")
_NAME = 15
_UP, _REJECT = 0x1, 0x200
_DEPTH = 4
"""A VLAN on a bond on two cards is three deep."""


class DriverInfo(NamedTuple):
    """Versions of a card's driver and firmware, and its bus address, as `ethtool -i` shows them."""

    version: str
    firmware: str
    bus: str


def cards(
    proc: Path, sys: Path, asked: Callable[[str], DriverInfo | None] | None = None
) -> Mapping[str, Mapping[str, str]]:
    """Return interface -> driver, version, firmware, device and its controllers."""
    behind: defaultdict[str, list[str]] = defaultdict(list)
    for controller in block_devices.names(sys / "class/nvme"):
        directory = sys / "class/nvme" / controller
        if block_devices.attribute(directory / "transport") in _FABRICS:
            interface = _interface(block_devices.attribute(directory / "address"), proc)
            for name in dict.fromkeys(_cards_below(interface, sys, _DEPTH)):
                behind[name].append(controller)
    return {name: _card(name, sys, asked or driver_info) | {"controllers": ", ".join(c)} for name, c in behind.items()}


def driver_info(interface: str) -> DriverInfo | None:
    """Ask an interface's driver; None where it doesn't exist or can't be asked. Needs no privilege."""
    info = array.array("B", bytes(_DRVINFO.size))
    struct.pack_into("=I", info, 0, _GDRVINFO)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = _IFREQ.pack(os.fsencode(interface)[:_NAME], info.buffer_info()[0])
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    except OSError:
        return None
    _, _, version, firmware, bus, _ = _DRVINFO.unpack(info)
    return DriverInfo(*(clean(one.split(b"\0")[0]) for one in (version, firmware, bus)))


def _card(name: str, sys: Path, asked: Callable[[str], DriverInfo | None]) -> dict[str, str]:
    device = sys / "class/net" / name / "device"
    driver, path = block_devices.link(device / "driver"), device.resolve()
    info = asked(name)
    # An interface of this name may be another one: in a container, or in another network namespace.
    if info is None or info.bus not in path.parts:
        info = DriverInfo(block_devices.attribute(sys / "module" / driver.replace("-", "_") / "version"), "", "")
    found = {"driver": driver, "version": info.version, "firmware": info.firmware, "device": clean(path.name)}
    return {key: value for key, value in found.items() if value and value != "N/A"}


def _cards_below(interface: str, sys: Path, depth: int) -> Iterator[str]:
    """Yield the interfaces with a device of their own below a bond, a VLAN or a bridge; the interface if it has one."""
    directory = sys / "class/net" / interface
    if not interface or "/" in interface or not depth:
        return
    if (directory / "device").exists():
        yield interface
    for lower in sorted(matching(directory, "lower_*")):
        yield from _cards_below(lower.name.removeprefix("lower_"), sys, depth - 1)


def _interface(address: str, proc: Path) -> str:
    """Return the interface of a connection such as `traddr=10.0.0.2,trsvcid=4420,src_addr=10.0.0.1`."""
    named = dict(one.strip().partition("=")[::2] for one in address.split(","))
    if named.get("host_iface"):
        return named["host_iface"]
    try:
        target = ipaddress.ip_address(named.get("traddr", ""))
    except ValueError:
        return ""
    if isinstance(target, ipaddress.IPv6Address) and target.scope_id:
        return target.scope_id
    routes = _routes4(proc) if isinstance(target, ipaddress.IPv4Address) else _routes6(proc)
    fitting = [one for one in routes if target in one.network]
    best = max(fitting, key=lambda one: (one.network.prefixlen, -one.metric), default=None)
    return "" if best is None else clean(best.interface)


class _Route(NamedTuple):
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    metric: int
    interface: str


def _routes4(proc: Path) -> Iterator[_Route]:
    for line in text(proc / "net/route").splitlines()[1:]:
        words = line.split()
        try:
            name, flags, metric = words[0], int(words[3], 16), int(words[6])
            base, mask = (int(word, 16).to_bytes(4, python.byteorder) for word in (words[1], words[7]))
            network = ipaddress.IPv4Network((base, int.from_bytes(mask, "big").bit_count()), strict=False)
        except (ValueError, IndexError, OverflowError):
            continue
        if flags & _UP and not flags & _REJECT:
            yield _Route(network, metric, name)


def _routes6(proc: Path) -> Iterator[_Route]:
    for line in text(proc / "net/ipv6_route").splitlines():
        words = line.split()
        try:
            flags, metric = int(words[8], 16), int(words[5], 16)
            network = ipaddress.IPv6Network((bytes.fromhex(words[0]), int(words[1], 16)), strict=False)
        except (ValueError, IndexError):
            continue
        if flags & _UP and not flags & _REJECT:
            yield _Route(network, metric, words[9])
