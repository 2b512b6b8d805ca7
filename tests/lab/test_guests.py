"""latmon in throw-away guests: stock Debian kernels with their own bpftrace, and the drivers of real controllers.

Everything is emulated, slowly: counts, ratios and names are asserted, never microseconds.
"""

import os
import shutil
import threading
import time

import psutil
import pytest
from guests import build_module, run
from workload import buckets_apart

COUNTS = ("guest_counts.py",)
SHARE = {"A": 0.995, "B": 0.985, "C": 0.985}
CONTROLLERS = {
    "nvme": "nvme",
    "ahci": "ahci",
    "mptsas1068": "mptsas",
    "megasas": "megaraid_sas",
    "virtio-blk": "virtio_blk",
}
"""Emulated controller -> the Linux driver that it gets."""
GUESTS = {"bookworm": ("0.17", "6.1.", "B"), "trixie": ("0.23", "6.12.", "A"), "sid": ("0.27", "7.", "A")}
"""Debian release -> its bpftrace, kernel, and the tier they give."""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]


@pytest.fixture(scope="module", params=GUESTS)
def guest(request, tmp_path_factory):
    disks = [word for kind in CONTROLLERS for word in ("--disk", kind)]
    return request.param, run(tmp_path_factory.mktemp(request.param), request.param, COUNTS, *disks)


def test_the_best_tier_runs(guest):
    release, reported = guest
    bpftrace, kernel, tier = GUESTS[release]
    health = reported["report"]["health"]
    print(reported["report"]["host"], health, reported["report"]["gaps"], "skipped by the kernel:", reported["skipped"])
    assert reported["kernel"].startswith(kernel)
    assert reported["report"]["host"]["tool"].startswith(f"bpftrace {bpftrace}")
    assert health["tier"] == tier, reported["report"].get("reason")
    assert health["coverage"] >= SHARE[tier] - 0.005
    assert [health[name] for name in ("lost_events", "map_full", "undecoded_lines")] == [0, 0, 0]
    assert reported["report"]["gaps"] == []


def test_every_driver_s_ios_are_counted_and_timed(guest):
    _, reported = guest
    share = SHARE[reported["report"]["health"]["tier"]]
    wrong = []
    for name, issued in reported["issued"].items():
        kernel, ops = reported["diskstats"][name], reported["report"]["devices"][name]["ops"]
        for op, (count, size) in issued.items():
            there, seen, timed = kernel[op][0], ops[op]["count"], ops[op]["latency_us"]["count"]
            sent = there - (kernel["flush"][0] if op == "write" else 0)
            print(f"{name:8} {op:8} fio {count:6} diskstats {there:6} seen {seen:6} timed {timed:6} of {sent:6}")
            right = there >= count and share * there - 2 <= seen <= there and share * sent - 2 <= timed <= sent
            if not right or (size and abs(ops[op]["bytes"] - kernel[op][1]) > 0.02 * kernel[op][1]):
                wrong.append((name, op, ops[op], kernel[op]))
    assert wrong == []


def test_every_disk_is_named_with_its_controller(guest):
    _, reported = guest
    devices = reported["report"]["devices"]
    found = {devices[name].get("driver"): devices[name] for name in reported["issued"]}
    print({name: [devices[name].get(key) for key in ("driver", "controller", "model", "serial")] for name in devices})
    assert set(found) == set(CONTROLLERS.values())
    for number, driver in enumerate(CONTROLLERS.values()):
        assert f"LATMON{number}" in found[driver].get("serial", ""), found[driver]
        assert found[driver]["controller"]
        assert found[driver]["timed"] is True


def test_a_volume_is_timed_at_its_member(guest):
    _, reported = guest
    volume = reported["volume"]
    device = reported["report"]["devices"][volume["name"]]
    assert (device["label"], device["kind"], device["timed"]) == ("lab", "dm", False)
    assert device["members"] == [volume["member"]]
    assert "latency_us" not in device["ops"]["read"]
    assert device["ops"]["read"]["kernel"]["count"] >= 0.9 * volume["reads"]


TWO_PATHS = (
    "-device nvme-subsys,id=s0,nqn=two-paths "
    "-device nvme,id=c0,serial=TWOPATHS,subsys=s0 -device nvme,id=c1,serial=TWOPATHS,subsys=s0 "
    "-drive driver=null-co,read-zeroes=on,size=1G,if=none,id=mp "
    "-device nvme-ns,drive=mp,bus=c0,nsid=1,shared=on"
)


def test_two_paths_to_one_nvme_disk(tmp_path):
    """The requests pass below, at a path that cannot be opened; the disk that people use is named beside it."""
    reported = run(tmp_path, "trixie", COUNTS, "--disk", "nvme", "--qemu", TWO_PATHS)
    devices = reported["report"]["devices"]
    print(
        {
            name: {key: device[key] for key in device if key not in ("ops", "outstanding")}
            for name, device in devices.items()
        }
    )
    print({name: {op: device["ops"][op]["count"] for op in device["ops"]} for name, device in devices.items()})
    (head,) = [name for name, device in devices.items() if device["kind"] == "nvme-head"]
    paths = devices[head]["members"]
    assert len(paths) == 2
    assert all(devices[path]["kind"] == "nvme-path" and devices[path]["serial"] == "TWOPATHS" for path in paths)
    timed = sum(devices[path]["ops"].get("read", {"latency_us": {"count": 0}})["latency_us"]["count"] for path in paths)
    assert timed >= SHARE["A"] * reported["issued"][head]["read"][0] - 2


def pause(asks, seconds):
    """Stop the guest's emulator for so long once the guest asks for it."""
    deadline = time.monotonic() + 3600
    while not asks.exists():
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)
    guests = [child for child in psutil.Process().children(recursive=True) if child.name().startswith("qemu")]
    for guest in guests:
        guest.suspend()
    time.sleep(seconds)
    for guest in guests:
        guest.resume()


def test_a_clock_step_and_a_paused_machine_lose_nothing(tmp_path):
    pausing = threading.Thread(target=pause, args=(tmp_path / "pause", 12.0), daemon=True)
    pausing.start()
    reported = run(tmp_path, "trixie", ("guest_clock.py",), "--disk", "nvme", on_demand=())
    read = reported["report"]["devices"][reported["disk"]]["ops"]["read"]
    print({name: value for name, value in reported.items() if name != "report"}, read["count"])
    assert reported["paused_s"] > 8
    assert reported["exit"] == 0, reported["stderr"]
    assert reported["gaps"] == reported["report"]["gaps"] == []
    assert max(reported["late_us"]) > 8_000_000
    assert any(3590 < step < 3610 for step in reported["steps_s"])
    assert reported["issued"] <= reported["diskstats"]
    assert read["count"] == reported["diskstats"]


def test_cgroups_of_version_2_have_the_ios_of_fio_and_of_io_stat(tmp_path):
    words = (*COUNTS, "cgroups")
    reported = run(tmp_path, "trixie", words, "--disk", "nvme", "--append", "no_timer_check", on_demand=(), packed=True)
    rows = {one["cgroup"]: one for one in reported["reported"]}
    for name, issued in reported["issued"].items():
        ((op, (count, size)),) = issued.items()
        lines = (line.split() for line in reported["io.stat"][name].splitlines())
        (pairs,) = [pairs for number, *pairs in lines if number == reported["number"]]
        kernel = {key: int(value) for key, _, value in (pair.partition("=") for pair in pairs)}
        row = rows[f"/{name}"]
        print(name, op, "fio", count, size, "io.stat", kernel, "latmon", row["count"], row["bytes"])
        assert row["count"] == pytest.approx(count, rel=0.01)
        assert row["bytes"] == pytest.approx(size, rel=0.01)
        assert row["count"] == pytest.approx(kernel[f"{op[0]}ios"], rel=0.01)
        assert row["bytes"] == pytest.approx(kernel[f"{op[0]}bytes"], rel=0.01)
        assert row["latency_us"]["count"] == pytest.approx(count, rel=0.01)


def test_operations_on_files_of_nfs_are_those_of_fio(tmp_path):
    """Counted where programs wait. The I/O below is the server's, so its device is none that their threads use."""
    words, kept = (*COUNTS, "nfs"), ("files",)
    reported = run(
        tmp_path, "trixie", words, "--disk", "nvme", "--append", "no_timer_check", on_demand=kept, packed=True
    )
    print({name: value for name, value in reported.items() if name != "health"})
    assert reported["exit"] == 0, reported["stderr"]
    assert [reported["health"][name] for name in ("lost_events", "map_full", "undecoded_lines")] == [0, 0, 0]
    its = {tuple(name.split("|")): count for name, count in reported["files"].items()}
    on_nfs = {name: count for name, count in its.items() if name[2] == "/mnt/nfs"}
    assert {name[3] for name in on_nfs} == {"nfs4"}
    assert {name[0] for name in on_nfs} == {""}, "no block device of this host"
    counts = {op: sum(n for name, n in on_nfs.items() if name[1] == op) for op in ("read", "write", "fsync")}
    issued = reported["issued"]
    assert counts["read"] == issued["reads"]["read"]["count"]
    assert counts["write"] == issued["writes"]["write"]["count"]
    assert counts["fsync"] - issued["writes"]["flush"]["count"] in range(3), "fio syncs a file that it lays out"
    assert all(name[4] != "device" for name in on_nfs), "the server issues the I/O"
    unknown = {name[1]: n for name, n in on_nfs.items() if name[4] == "unknown"}
    assert unknown["fsync"] == counts["fsync"]
    assert unknown["read"] > counts["read"] / 2, "few direct reads get their answer before their thread sleeps"


def test_operations_on_files_of_zfs_are_those_of_fio_and_of_strace(tmp_path):
    """OpenZFS is built once per kernel. Its own threads do the I/O of a sync, so no sync waits for a device."""
    if why := build_module("zfs", tmp_path):
        pytest.skip(f"OpenZFS can't be built: {why}")
    words, kept = (*COUNTS, "zfs"), ("files",)
    machine = ("--disk", "nvme", "--append", "no_timer_check")
    reported = run(tmp_path, "trixie", words, *machine, on_demand=kept, packed=True)
    print({name: value for name, value in reported.items() if name not in ("health", "strace")})
    assert reported["exit"] == 0, reported["stderr"]
    assert [reported["health"][name] for name in ("lost_events", "map_full", "undecoded_lines")] == [0, 0, 0]
    kinds = {name.split("|")[3] for name in reported["files"] if name.split("|")[2] == "/mnt/zfs"}
    assert kinds == {"zfs"}
    by_fio, by_strace = reported["reported"]
    reads, writes = reported["issued"]["reads"], reported["issued"]["writes"]
    assert by_fio["read"][0] == reads["read"]["count"]
    assert by_fio["write"][0] == writes["write"]["count"]
    assert by_fio["fsync"][0] - writes["flush"]["count"] in range(3), "fio syncs a file that it lays out"
    assert buckets_apart(by_fio["read"][1], reads["read"]["p99"]) <= 2
    assert {op: count for op, (count, _) in by_strace.items()} == {
        op: len(seconds) for op, seconds in reported["strace"].items()
    }
    assert min(reported["arc"]) > 0
