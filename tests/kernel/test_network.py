"""Network cards behind NVMe over fabrics, from a /proc and a /sys made by hand, and this host's own driver."""

import os
import struct
import sys as python
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon_backends.kernel import settings
from latmon_backends.kernel.settings import DriverInfo, driver_info, network_cards

TO = "traddr=192.0.2.7,trsvcid=4420"
UP = 1


def word(address):
    """Return an IPv4 address as /proc/net/route prints it on this machine."""
    return f"{struct.unpack('=I', bytes(map(int, address.split('.'))))[0]:08X}"


class Host:
    """Cards eth0 (ice) and eth1 (mlx5_core), and controllers as they are added."""

    def __init__(self, root):
        self.proc, self.sys = root / "proc", root / "sys"
        self.routes, self.answers = [], {}
        for name, driver, at in (("eth0", "ice", "0000:18:00.0"), ("eth1", "mlx5_core", "0000:3b:00.0")):
            device = self.sys / "devices/pci0000:00" / at
            device.mkdir(parents=True)
            (self.sys / "bus/drivers" / driver).mkdir(parents=True)
            (device / "driver").symlink_to(self.sys / "bus/drivers" / driver)
            self.interface(name)
            (self.sys / "class/net" / name / "device").symlink_to(device)
        version = self.sys / "module/ice/version"
        version.parent.mkdir(parents=True)
        version.write_text("1.14.9\n")

    def interface(self, name, *lower):
        directory = self.sys / "class/net" / name
        directory.mkdir(parents=True)
        for one in lower:
            (directory / f"lower_{one}").symlink_to(self.sys / "class/net" / one)

    def controller(self, name, transport, address):
        directory = self.sys / "class/nvme" / name
        directory.mkdir(parents=True)
        (directory / "transport").write_text(f"{transport}\n")
        (directory / "address").write_text(f"{address}\n")

    def route(self, interface, base, mask, flags=UP, metric=0):
        self.routes.append(f"{interface}\t{word(base)}\t00000000\t{flags:04X}\t0\t0\t{metric}\t{word(mask)}\t0\t0\t0")
        (self.proc / "net").mkdir(parents=True, exist_ok=True)
        (self.proc / "net/route").write_text("\n".join(["Iface\tDestination\tGateway", *self.routes, ""]))

    def cards(self):
        return network_cards(self.proc, self.sys, self.answers.get)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_the_connection_names_its_interface(host):
    host.controller("nvme0", "tcp", f"{TO},host_iface=eth1,src_addr=192.0.2.1")
    host.controller("nvme1", "rdma", f"{TO},host_iface=eth1")
    host.controller("nvme2", "pcie", "0000:5e:00.0")
    host.controller("nvme3", "tcp", "traddr=nonsense")
    host.answers["eth1"] = DriverInfo("6.12.0", "22.36.1010", "0000:3b:00.0")
    assert host.cards() == {
        "eth1": {
            "driver": "mlx5_core",
            "version": "6.12.0",
            "firmware": "22.36.1010",
            "device": "0000:3b:00.0",
            "controllers": "nvme0, nvme1",
        }
    }


def test_else_the_longest_route_decides(host):
    host.controller("nvme0", "tcp", TO)
    assert host.cards() == {}
    host.route("eth0", "0.0.0.0", "0.0.0.0")
    assert [*host.cards()] == ["eth0"]
    host.route("eth1", "192.0.2.0", "255.255.255.0", metric=100)
    assert [*host.cards()] == ["eth1"]
    host.route("eth0", "192.0.2.0", "255.255.255.0", metric=50)
    assert [*host.cards()] == ["eth0"]
    host.route("eth1", "192.0.2.7", "255.255.255.255", flags=0)
    assert [*host.cards()] == ["eth0"], "a route that is down"


def test_routes_of_ipv6_and_a_link_s_own_address(host):
    (host.proc / "net").mkdir(parents=True)
    line = "{} {} " + "0" * 32 + " 00 " + "0" * 32 + " 00000100 00000001 00000000 {:08x} {}\n"
    local = "20010db8" + "0" * 24
    routes = line.format("0" * 32, "00", UP, "eth1") + line.format(local, "40", UP, "eth0")
    (host.proc / "net/ipv6_route").write_text(routes + line.format(local, "80", UP | 0x200, "lo") + "torn\n")
    for name, address in (("nvme0", "2001:db8::7"), ("nvme1", "2001:db9::7"), ("nvme2", "fe80::1%eth1")):
        host.controller(name, "tcp", f"traddr={address},trsvcid=4420")
    assert {name: card["controllers"] for name, card in host.cards().items()} == {
        "eth0": "nvme0",
        "eth1": "nvme1, nvme2",
    }


def test_below_a_vlan_on_a_bond_are_the_cards(host):
    host.interface("bond0", "eth0", "eth1")
    host.interface("bond0.12", "bond0")
    host.interface("loop0", "loop0")
    host.controller("nvme0", "tcp", f"{TO},host_iface=bond0.12")
    host.controller("nvme1", "tcp", f"{TO},host_iface=loop0")
    assert {name: card["controllers"] for name, card in host.cards().items()} == {"eth0": "nvme0", "eth1": "nvme0"}


def test_the_driver_of_another_interface_of_the_same_name_is_not_asked(host):
    host.controller("nvme0", "tcp", f"{TO},host_iface=eth0")
    host.answers["eth0"] = DriverInfo("9.9", "N/A", "0000:99:00.0")
    found = {"driver": "ice", "version": "1.14.9", "device": "0000:18:00.0", "controllers": "nvme0"}
    assert host.cards() == {"eth0": found}


def test_the_card_is_a_section_and_its_driver_a_module(host):
    host.controller("nvme0", "tcp", f"{TO},host_iface=eth0")
    sections = {}
    settings.read_all(Options(proc=host.proc, sys=host.sys), (), sections)
    assert sections["network eth0"]["version"] == sections["module ice"]["version"] == "1.14.9"
    assert "192.0.2.7" not in str(sections)


@pytest.mark.skipif(python.platform != "linux", reason="needs Linux")
def test_a_driver_of_this_very_host_answers():
    assert driver_info("no-such-card") is driver_info(os.fsdecode(b"eth\xff")) is None
    real = [path.parents[1].name for path in Path("/sys/class/net").glob("*/device/driver")]
    if not real:
        pytest.skip("no network card here")
    assert any(info and info.version and info.bus for info in map(driver_info, real))
