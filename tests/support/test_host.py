import gzip
from pathlib import Path

import pytest

from latmon.support import host
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


@pytest.mark.skipif(not Path("/proc/self/ns/pid").is_symlink(), reason="needs namespaces")
def test_this_process_can_be_asked():
    assert isinstance(host.container(), str)
