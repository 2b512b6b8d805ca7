"""Stages in guests with incidents made on purpose: the right stage has the time, and no other.

Everything is emulated, slowly: shares, ratios, names and milliseconds are asserted, never microseconds.
"""

import os
import shutil
from itertools import takewhile

import pytest
from guests import HANDLERS, build_module, run
from workload import buckets_apart

DELAY_MS = 25
IOPS = 50
TRACED = ("queue", "requeue", "hba", "irq", "softirq", "completion", "unaccounted")
"""What adds up to a traced request's total."""
DISKS = ("nvme", "ahci", "mptsas1068", "megasas", "virtio-scsi", "virtio-blk")
SOFTIRQ_DRIVERS = ("ahci", "mptsas", "megaraid_sas")
"""One hardware queue each: requests complete in the BLOCK softirq, whatever the kernel."""

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]


def incident(directory, name, *words, release="trixie", **options):
    reported = run(directory, release, ("guest_stages.py", name), *words, **options)
    print(reported["report"]["health"], reported["stderr"][-2000:])
    return reported


def reads(reported, device):
    return reported["report"]["devices"][device]["ops"]["read"]


def sums(read):
    """Return the traced requests' time by stage in us, with `unaccounted`."""
    found = {stage: one["sum"] for stage, one in read["stages"].items()}
    return found | {"unaccounted": read.get("unaccounted", {}).get("sum", 0)}


def p50_ms(read, stage):
    return read["stages"][stage]["p50"] / 1000


def by_driver(reported):
    return {
        device.get("driver"): name
        for name, device in reported["report"]["devices"].items()
        if name in reported["issued"]
    }


@pytest.fixture(scope="module", params=["trixie", "sid"])
def every_driver(request, tmp_path_factory):
    words = [word for kind in DISKS for word in ("--disk", kind)]
    return incident(tmp_path_factory.mktemp("drivers"), "drivers", *words, release=request.param)


def test_each_driver_s_own_path(every_driver):
    reported, actual_by_driver = every_driver, by_driver(every_driver)
    for driver, name in actual_by_driver.items():
        read = reads(reported, name)
        print(driver, name, read["count"], {k: (v["count"], v["p50"], v["p99"]) for k, v in read["stages"].items()})
        print("   ", read["stages_absent"])
    for driver, name in actual_by_driver.items():
        read = reads(reported, name)
        assert read["stages"]["hba"]["count"] >= 0.9 * read["count"], driver
    assert "softirq" not in reads(reported, actual_by_driver["nvme"])["stages"]
    assert "hard interrupt" in reads(reported, actual_by_driver["nvme"])["stages_absent"]["softirq"]
    for driver in SOFTIRQ_DRIVERS:
        stages = reads(reported, actual_by_driver[driver])["stages"]
        assert stages["softirq"]["count"] >= 0.9 * stages["hba"]["count"], driver


def test_the_stages_add_up(every_driver):
    """Each stage is cut to whole microseconds in the kernel: less than 1 us of each stage and request is missing."""
    for name in every_driver["issued"].keys() - {"volume"}:
        read = reads(every_driver, name)
        parts, total = sums(read), read["of"]["latency_us"]
        missing = total["sum"] - sum(parts.get(stage, 0) for stage in TRACED)
        print(name, total["count"], total["sum"], "missing", missing, parts)
        assert abs(missing) <= len(TRACED) * total["count"], (name, parts, total)
    assert every_driver["report"]["health"]["untraced_share"] < 0.1


def test_a_volume_has_its_own_time(every_driver):
    """The kernel skips a program whose interrupt comes while the same program runs on its CPU, and counts that."""
    read, health = reads(every_driver, every_driver["volume"]), every_driver["report"]["health"]
    print(read["stages"]["hba"], "of", every_driver["issued"]["volume"], "skipped", health["skipped"])
    assert read["stages"]["hba"]["count"] >= 0.9 * every_driver["issued"]["volume"]


def test_slow_disks_are_slow_in_hba(tmp_path):
    kinds = ("nvme", "mptsas1068", "megasas", "virtio-scsi")
    words = [word for kind in kinds for word in ("--disk", f"{kind},latency-ms={DELAY_MS}")]
    reported = incident(tmp_path, "threads", *words)
    for name in reported["issued"]:
        read = reads(reported, name)
        parts = sums(read)
        print(name, parts)
        assert p50_ms(read, "hba") >= DELAY_MS
        assert parts["hba"] >= 0.8 * sum(parts.get(stage, 0) for stage in TRACED)


def test_a_disk_that_completes_from_a_timer_is_slow_in_hba(tmp_path):
    reported = incident(tmp_path, "debug_delay")
    read = reads(reported, reported["device"])
    parts = sums(read)
    print(parts, reported["report"]["devices"][reported["device"]]["traced"])
    assert p50_ms(read, "hba") >= DELAY_MS
    assert parts["hba"] >= 0.8 * sum(parts.get(stage, 0) for stage in TRACED)


def test_a_volume_that_waits_is_slow_and_its_disk_is_not(tmp_path):
    reported = incident(tmp_path, "dm_delay")
    assert p50_ms(reads(reported, reported["volume"]), "hba") >= DELAY_MS
    below = reads(reported, reported["member"])
    for one in (reads(reported, reported["volume"]), below):
        print(one["count"], one.get("latency_us", ""), one["stages"].get("hba"))
    assert below["latency_us"]["p50"] / 1000 < DELAY_MS / 3


def test_threaded_interrupts(tmp_path):
    reported = incident(tmp_path, "threads", "--disk", "nvme", "--disk", "mptsas1068", "--append", "threadirqs")
    threads = {wakeup["thread"]: wakeup for wakeup in reported["report"]["wakeups"]}
    print({name: (thread["policy"], thread["priority"], thread["count"]) for name, thread in threads.items()})
    (nvme,) = [name for name in reported["issued"] if name.startswith("nvme")]
    assert reads(reported, nvme)["stages"]["completion"]["count"] >= 0.9 * reads(reported, nvme)["count"]
    irq_threads = [thread for name, thread in threads.items() if name.startswith("irq/") and "nvme" in name]
    assert irq_threads
    assert all((irq_thread["policy"], irq_thread["priority"]) == ("fifo", 49) for irq_thread in irq_threads)
    assert any(name.startswith("ksoftirqd/") and thread["priority"] == 120 for name, thread in threads.items())


def test_hogs_keep_threads_from_their_cpus(tmp_path):
    reported = incident(tmp_path, "pressed", "--disk", "nvme", "--disk", "mptsas1068", "--append", "threadirqs")
    devices = [name for name in reported["report"]["devices"] if name.startswith(("nvme", "sd"))]
    for name in devices:
        parts = sums(reads(reported, name))
        print(name, parts)
        waiting = parts.get("completion", 0) + parts.get("softirq", 0) + parts.get("resume", 0)
        assert waiting > 2 * parts["hba"], parts
    late = [wait for outlier in reported["report"]["outliers"] for wait in outlier["waits"]]
    print(*late[:10], sep="\n")
    threads = [wait for wait in late if wait["thread"].startswith("irq/")]
    waiters = [wait for wait in late if wait["thread"] == "fio"]
    assert {(wait["stage"], wait["priority"]) for wait in threads} == {("completion", 49)}
    assert any(wait["instead"] == "hog (prio 39)" for wait in threads), threads[:3]
    # In an emulated guest few waiters are woken as soon after the completion as it takes to separate them from others.
    assert {(wait["stage"], wait["priority"]) for wait in waiters} <= {("resume", 120)}
    woken = [wakeup for wakeup in reported["report"]["wakeups"] if wakeup["thread"] == "fio"]
    assert {one["priority"] for one in woken} == {120}
    assert any("hog (prio 39)" in one["instead"] for one in woken), woken[:3]


def test_a_stranger_on_the_vector_is_named(tmp_path):
    if error := build_module("slow_handler", tmp_path):
        pytest.skip(f"the module can't be built: {error}")
    # One CPU: with so many interrupts two emulated ones sooner or later run into code that the other is patching.
    words = ("--smp", "1", "--disk", "nvme", "--append", "pci=nomsi", "--qemu", HANDLERS)
    reported = incident(tmp_path, "shared", *words)
    rows = {irq["handler"]: irq for irq in reported["report"]["irqs"] if irq["irq"] == reported["irq"]}
    ran = [interrupts(text, reported["irq"]) for text in reported["interrupts"]]
    for name, one in rows.items():
        print(name, one["device"], one["count"], one["returned"], one["run_us"], one["before_us"], one["shared_with"])
    print("interrupts", ran)
    assert set(rows) == {"slow_handler", "nvme0q0", "nvme0q1", "megasas0"}
    for name, one in rows.items():
        assert set(one["shared_with"]) == rows.keys() - {name}
        assert one["count"] == pytest.approx(ran[1] - ran[0], rel=0.05, abs=10), name
        assert sum(one["returned"].values()) == one["count"]
    slow, admin, own, other = (rows[name] for name in ("slow_handler", "nvme0q0", "nvme0q1", "megasas0"))
    for one in (slow, admin, other):
        assert one["returned"] == {"none": one["count"]}
    assert own["returned"]["handled"] >= 0.95 * own["count"]
    assert [one["device"] for one in (slow, admin, own, other)] == [None, *[*reported["issued"]] * 2, "sda"]
    assert slow["run_us"]["p50"] >= reported["us"] / 2 ** (1 / 8)
    # The disk's own other queue comes before it as well.
    strangers = own["before_us"] - admin["run_us"]["sum"]
    print("victim time", strangers, "slow_handler", slow["run_us"]["sum"])
    assert strangers == pytest.approx(slow["count"] * slow["run_us"]["mean"], rel=0.1)


def interrupts(text, irq):
    """How often it came on all CPUs, by /proc/interrupts."""
    (line,) = [line.split() for line in text.splitlines() if line.split()[0] == f"{irq}:"]
    return sum(int(word) for word in takewhile(str.isdecimal, line[1:]))


def test_irq_poll_is_seen(tmp_path):
    reported = incident(tmp_path, "irq_poll")
    print(reported["report"]["softirqs"]["IRQ_POLL"])
    assert reported["report"]["softirqs"]["IRQ_POLL"]["count"] > 100
    # The one path of the multipath device that fio was given: the device itself has bios only.
    traced = {name: device.get("traced", {}).get("paths", {}) for name, device in reported["report"]["devices"].items()}
    (device,) = [name for name, paths in traced.items() if "IRQ_POLL softirq" in paths]
    print(device, traced[device], sums(reads(reported, device)))
    stages = reads(reported, device)["stages"]
    assert stages["softirq"]["count"] >= 0.9 * stages["hba"]["count"]
    assert traced[device]["IRQ_POLL softirq"] >= 0.9 * sum(traced[device].values())


def test_the_oldest_tools(tmp_path):
    """bpftrace 0.17 has no raw tracepoints with a clock: tracepoints alone, keyed by device and sector."""
    reported = incident(tmp_path, "threads", "--disk", "nvme", "--disk", "megasas", release="bookworm")
    assert reported["report"]["health"]["tier"] == "B"
    actual_by_driver = by_driver(reported)
    for driver, name in actual_by_driver.items():
        read, parts = reads(reported, name), sums(reads(reported, name))
        total = read["of"]["latency_us"]
        print(driver, name, read["count"], total["count"], total["sum"], parts, read["stages_absent"])
        print("   ", reported["report"]["devices"][name]["traced"])
        assert total["count"] >= 0.9 * read["count"]
        missing = total["sum"] - sum(parts.get(stage, 0) for stage in TRACED)
        assert abs(missing) <= len(TRACED) * total["count"], (name, parts, total)
        assert read["stages"]["resume"]["count"] > 0
    assert "hard interrupt" in reads(reported, actual_by_driver["nvme"])["stages_absent"]["softirq"]
    stages = reads(reported, actual_by_driver["megaraid_sas"])["stages"]
    assert stages["softirq"]["count"] >= 0.9 * stages["hba"]["count"]


@pytest.mark.parametrize("release", ["trixie"])
def test_the_wait_for_a_cgroup_s_limit_is_admission_and_names_the_cgroup(tmp_path, release):
    reported = incident(
        tmp_path,
        "throttled",
        *("--disk", "virtio-blk"),
        release=release,
        on_demand=("stages", "admission"),
        packed=True,
    )
    device = reported["device"]
    read, fio = reads(reported, device), reported["fio"][device]
    assert read["admission_us"]["includes"] == ["throttling"]
    latency_whole_us = read["latency_whole_us"]
    assert latency_whole_us["count"] >= 0.9 * fio["count"]
    assert buckets_apart(latency_whole_us["p50"], fio["p50"]) <= 2
    assert buckets_apart(latency_whole_us["p99"], fio["p99"]) <= 2
    # The rest is what fio would see without the limit.
    assert read["admission_us"]["sum"] >= 0.9 * latency_whole_us["sum"]
    found = {finding["id"]: finding for finding in reported["report"]["findings"]}
    assert "cgroup /slow.slice (fio" in found["io-throttled"]["summary"]
    assert f"throttled at {IOPS} reads/s" in found["io-throttled"]["summary"]
    assert not [one for one in found.values() if one["severity"] == "warning" and one["id"] != "io-throttled"]


def test_the_wait_for_iocost_is_admission(tmp_path):
    """iocost lets the submitting task sleep, which the stack at sched_switch tells."""
    reported = incident(
        tmp_path, "costed", *("--disk", "virtio-blk"), on_demand=("stages", "admission", "admission_waits"), packed=True
    )
    device = reported["device"]
    read, fio = reads(reported, device), reported["fio"][device]
    print(fio, read["latency_whole_us"], read["admission_us"], reported["report"]["devices"][device]["traced"])
    latency_whole_us = read["latency_whole_us"]
    assert latency_whole_us["count"] >= 0.9 * fio["count"]
    assert buckets_apart(latency_whole_us["p50"], fio["p50"]) <= 2
    assert buckets_apart(latency_whole_us["p99"], fio["p99"]) <= 2
    assert (
        read["admission_us"]["sum"] >= 0.5 * latency_whole_us["sum"]
    )  # the emulated disk takes some milliseconds, too
    causes = reported["report"]["devices"][device]["traced"]["admission_causes"]
    assert causes["iocost"] >= 0.9 * sum(causes.values())
