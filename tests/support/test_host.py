import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import environment
from time_namespace import AHEAD, BOOTTIME_S, MONOTONIC_S, needs_time_namespace

from latmon.support import host
from latmon.support.host import ClockOffsets
from latmon.support.text import is_clean


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_host_has_a_name_and_a_kernel():
    assert host.name()
    assert is_clean(host.name())
    assert host.kernel()


def test_hz_from_the_kernels_own_configuration(tmp_path):
    with gzip.open(tmp_path / "config.gz", "wb") as file:
        file.write(b"# CONFIG_HZ_1000 is not set\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n")
    assert host.hz(tmp_path, tmp_path) == 250


def test_hz_from_boot(tmp_path):
    write(tmp_path / "proc/sys/kernel/osrelease", "6.1.0-29-amd64\n")
    write(tmp_path / "boot/config-6.1.0-29-amd64", "CONFIG_HZ=1000\n")
    write(tmp_path / "boot/config-5.10.0", "CONFIG_HZ=100\n")
    assert host.hz(tmp_path / "proc", tmp_path / "boot") == 1000


@pytest.mark.parametrize("content", [b"", b"not gzip", gzip.compress(b"CONFIG_HZ=250\n", mtime=0)[:-9]])
def test_hz_is_unknown_where_nothing_reports(tmp_path, content):
    (tmp_path / "config.gz").write_bytes(content)
    assert host.hz(tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt-get install x"),
        ("ID=ubuntu\nID_LIKE=debian\n", "apt-get install x"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install x"),
        ("ID=fedora\n", "dnf install x"),
        ("ID=cachyos\nID_LIKE=arch\n", "pacman -S x"),
        ("ID=nixos\n", ""),
        ("", ""),
    ],
)
def test_what_installs_a_package_by_os_release(tmp_path, release, command):
    write(tmp_path / "os-release", release)
    assert host.install_command("x", tmp_path) == command


def test_boot_id(tmp_path):
    assert host.boot_id(tmp_path) == ""
    write(tmp_path / "sys/kernel/random/boot_id", "abc-1\n")
    assert host.boot_id(tmp_path) == "abc-1"


def in_namespace(proc, number):
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to(f"pid:[{number}]")


@pytest.mark.parametrize(
    ("marker", "text", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/1/environ", "PATH=/bin\0container=lxc\0", "lxc"),
        ("proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", "kubepods"),
    ],
)
def test_containers(tmp_path, marker, text, kind):
    in_namespace(tmp_path / "proc", 4026532000)
    assert host.container(tmp_path / "proc", tmp_path) == ""
    write(tmp_path / marker, text)
    assert host.container(tmp_path / "proc", tmp_path) == kind


def test_a_virtual_machine_made_from_a_container_image_is_a_host(tmp_path):
    in_namespace(tmp_path / "proc", 4026531836)
    write(tmp_path / ".dockerenv", "")
    assert host.container(tmp_path / "proc", tmp_path) == ""


def test_suspended_time_is_a_number():
    assert abs(host.suspended_us() - host.suspended_us()) < 1_000_000


TABLE = "monotonic       86400         5\nboottime         -300 500000000\n"
IN_TABLE = ClockOffsets(86_400_000_000_005, -299_500_000_000)


def in_time_namespace(proc, pid, own, children, table=TABLE):
    """Write what /proc has about a process's time namespace, and about that of its children."""
    (proc / str(pid) / "ns").mkdir(parents=True)
    for name, number in (("time", own), ("time_for_children", children)):
        (proc / str(pid) / "ns" / name).symlink_to(f"time:[{number}]")
    (proc / str(pid) / "timens_offsets").write_text(table)


def test_clock_offsets_are_those_of_the_time_namespace(tmp_path):
    in_time_namespace(tmp_path, "self", 7, 7)
    assert host.clock_offsets(tmp_path) == IN_TABLE


def test_a_namespace_of_the_children_alone_moves_no_clock_of_the_process(tmp_path):
    in_time_namespace(tmp_path, "self", 1, 7)
    assert host.clock_offsets(tmp_path) == ClockOffsets()


def test_then_the_process_is_in_the_namespace_of_its_parent_s_children(tmp_path):
    in_time_namespace(tmp_path, "self", 7, 8, "monotonic 1 0\nboottime 1 0\n")
    in_time_namespace(tmp_path, os.getppid(), 7, 7)
    assert host.clock_offsets(tmp_path) == IN_TABLE


@pytest.mark.parametrize("table", ["", "rubbish\n", "monotonic x 0\nboottime 1\n", "tai 9 0\n"])
def test_a_table_without_offsets_moves_no_clock(tmp_path, table):
    in_time_namespace(tmp_path, "self", 7, 7, table)
    assert host.clock_offsets(tmp_path) == ClockOffsets()


def test_a_kernel_without_time_namespaces_moves_no_clock(tmp_path):
    assert host.clock_offsets(tmp_path) == ClockOffsets()


def test_clocks_of_probes_in_a_time_namespace(monkeypatch):
    now_ns, slept_ns = time.monotonic_ns(), 60_000_000_000
    monkeypatch.setattr(host, "clock_offsets", lambda: IN_TABLE)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    clocks = {time.CLOCK_BOOTTIME: now_ns - IN_TABLE.monotonic_ns + slept_ns + IN_TABLE.boottime_ns}
    monkeypatch.setattr(time, "clock_gettime_ns", clocks.__getitem__)
    assert host.suspended_us() == 60_000_000
    assert host.probe_ahead_us("monotonic") == -86_400_000_000
    assert host.probe_ahead_us("boottime") == 60_000_000 - 86_400_000_000
    assert host.boottime_ahead_us() == pytest.approx(60_000_000 - 86_400_000_000 - 299_500_000, abs=2)
    assert host.boottime_ns() == now_ns - IN_TABLE.monotonic_ns + slept_ns


CLOCKS = """
import json, os, pathlib, time
from latmon.support import host
from latmon.support.process import OwnProcesses
now_us = time.monotonic_ns() // 1000
own = OwnProcesses(os.getpid())
own.refresh()
comm = pathlib.Path("/proc/self/comm").read_text().rstrip("\\n")
offsets = host.clock_offsets()
print(json.dumps({
    "offsets_s": [offsets.monotonic_ns / 1e9, offsets.boottime_ns / 1e9],
    "kernel_s": [time.monotonic() + host.probe_ahead_us("monotonic") / 1e6, host.boottime_ns() / 1e9],
    "own": [own.has(os.getpid(), comm, at_us) for at_us in (now_us, now_us - 600_000_000, now_us + 600_000_000)],
}))
"""


def clocks_of(*before):
    """Return what a process finds out about its clocks; `before`: words that start its command."""
    command = [*before, sys.executable, "-c", CLOCKS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@needs_time_namespace
@pytest.mark.parametrize(
    ("before", "offsets_s"),
    [
        ((), [0, 0]),
        (AHEAD, [MONOTONIC_S, BOOTTIME_S]),
        (("unshare", "--time", "--monotonic=86400"), [86_400, 0]),
        (("unshare", "--time", "--boottime=86400"), [0, 86_400]),
    ],
)
def test_clocks_of_a_process_in_a_time_namespace(before, offsets_s):
    """The kernel's clocks are the same, and each process knows when it began, which /proc has on another clock."""
    clocks = clocks_of(*before)
    assert clocks["offsets_s"] == offsets_s
    kernel_s = [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    assert clocks["kernel_s"] == pytest.approx(kernel_s, abs=60)
    assert clocks["own"] == [True, False, True]


NEW_TIME = """
import ctypes, pathlib, subprocess, sys
library = ctypes.CDLL(None, use_errno=True)
assert library.unshare(0x80) == 0, ctypes.get_errno()  # CLONE_NEWTIME
pathlib.Path("/proc/self/timens_offsets").write_text("monotonic 500 0\\nboottime 600 0\\n")
exec(sys.argv[1])
print(subprocess.run([sys.executable, "-c", sys.argv[1]], check=True, capture_output=True, text=True).stdout)
"""


@needs_time_namespace
def test_a_process_that_made_a_time_namespace_for_its_children_is_not_in_it():
    command = [sys.executable, "-c", NEW_TIME, CLOCKS]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    maker, child = (json.loads(line) for line in done.stdout.split("\n") if line)
    assert (maker["offsets_s"], child["offsets_s"]) == ([0, 0], [500, 600])
    assert maker["kernel_s"] == pytest.approx(child["kernel_s"], abs=60)


@pytest.mark.skipif(not Path("/proc/self/ns/pid").is_symlink(), reason="needs namespaces")
def test_this_process_can_be_asked():
    assert isinstance(host.container(), str)
