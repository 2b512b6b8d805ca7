"""Where the time goes, in guests whose incidents are of our own making: the right stage has it, and no other.

Everything is emulated, slowly: shares, ratios, names and milliseconds are asserted, never microseconds.
"""

import os
import shutil
import subprocess

import pytest
from guests import CHECKOUT, run

DELAY_MS = 25
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


def incident(directory, name, *words, release="trixie"):
    told = run(directory, release, ("guest_stages.py", name), *words)
    print(told["report"]["health"], told["stderr"][-2000:])
    return told


def reads(told, device):
    return told["report"]["devices"][device]["ops"]["read"]


def sums(read):
    return {stage: one["sum"] for stage, one in read["stages"].items()}


def p50_ms(read, stage):
    return read["stages"][stage]["p50"] / 1000


def by_driver(told):
    return {one.get("driver"): name for name, one in told["report"]["devices"].items() if name in told["issued"]}


@pytest.fixture(scope="module", params=["trixie", "sid"])
def every_driver(request, tmp_path_factory):
    words = [word for kind in DISKS for word in ("--disk", kind)]
    return incident(tmp_path_factory.mktemp("drivers"), "drivers", *words, release=request.param)


def test_each_driver_s_own_path(every_driver):
    told, found = every_driver, by_driver(every_driver)
    for driver, name in found.items():
        read = reads(told, name)
        print(driver, name, read["count"], {k: (v["count"], v["p50"], v["p99"]) for k, v in read["stages"].items()})
        print("   ", read["stages_absent"])
    for driver, name in found.items():
        read = reads(told, name)
        assert read["stages"]["hba"]["count"] >= 0.9 * read["count"], driver
    assert "softirq" not in reads(told, found["nvme"])["stages"]
    assert "hard interrupt" in reads(told, found["nvme"])["stages_absent"]["softirq"]
    for driver in SOFTIRQ_DRIVERS:
        stages = reads(told, found[driver])["stages"]
        assert stages["softirq"]["count"] >= 0.9 * stages["hba"]["count"], driver


def test_the_stages_add_up(every_driver):
    for name in every_driver["issued"].keys() - {"volume"}:
        read = reads(every_driver, name)
        parts = sums(read)
        stages = sum(parts.get(stage, 0) for stage in TRACED)
        requests = max(one["count"] for one in read["stages"].values())
        assert 0 <= parts["total"] - stages <= len(TRACED) * requests if "total" in parts else True, (name, parts)
    assert every_driver["report"]["health"]["untraced_share"] < 0.1


def test_a_volume_has_its_own_time(every_driver):
    read = reads(every_driver, every_driver["volume"])
    assert read["stages"]["hba"]["count"] >= 0.9 * every_driver["issued"]["volume"]


def test_slow_disks_are_slow_in_hba(tmp_path):
    kinds = ("nvme", "mptsas1068", "megasas", "virtio-scsi")
    words = [word for kind in kinds for word in ("--disk", f"{kind},latency-ms={DELAY_MS}")]
    told = incident(tmp_path, "threads", *words)
    for name in told["issued"]:
        read = reads(told, name)
        parts = sums(read)
        print(name, parts)
        assert p50_ms(read, "hba") >= DELAY_MS
        assert parts["hba"] >= 0.8 * sum(parts.get(stage, 0) for stage in TRACED)


def test_a_disk_that_completes_from_a_timer_is_slow_in_hba(tmp_path):
    told = incident(tmp_path, "debug_delay")
    read = reads(told, told["device"])
    parts = sums(read)
    assert p50_ms(read, "hba") >= DELAY_MS
    assert parts["hba"] >= 0.8 * sum(parts.get(stage, 0) for stage in TRACED)


def test_a_volume_that_waits_is_slow_and_its_disk_is_not(tmp_path):
    told = incident(tmp_path, "dm_delay")
    assert p50_ms(reads(told, told["volume"]), "hba") >= DELAY_MS
    below = reads(told, told["member"])
    assert below["latency_us"]["p50"] / 1000 < DELAY_MS / 3


def test_threaded_interrupts(tmp_path):
    told = incident(tmp_path, "threads", "--disk", "nvme", "--disk", "mptsas1068", "--append", "threadirqs")
    threads = {one["thread"]: one for one in told["report"]["wakeups"]}
    print({name: (one["policy"], one["priority"], one["count"]) for name, one in threads.items()})
    (nvme,) = [name for name in told["issued"] if name.startswith("nvme")]
    assert reads(told, nvme)["stages"]["completion"]["count"] >= 0.9 * reads(told, nvme)["count"]
    irq_threads = [one for name, one in threads.items() if name.startswith("irq/") and "nvme" in name]
    assert irq_threads
    assert all((one["policy"], one["priority"]) == ("fifo", 49) for one in irq_threads)
    assert any(name.startswith("ksoftirqd/") and one["priority"] == 120 for name, one in threads.items())


def test_hogs_keep_threads_from_their_cpus(tmp_path):
    told = incident(tmp_path, "pressed", "--disk", "nvme", "--disk", "mptsas1068", "--append", "threadirqs")
    devices = [name for name in told["report"]["devices"] if name.startswith(("nvme", "sd"))]
    for name in devices:
        parts = sums(reads(told, name))
        print(name, parts)
        waiting = parts.get("completion", 0) + parts.get("softirq", 0) + parts.get("resume", 0)
        assert waiting > 2 * parts["hba"], parts
    late = [wait for one in told["report"]["outliers"] for wait in one.get("waits", ())]
    assert any(wait["thread"].startswith(("irq/", "ksoftirqd/", "fio")) for wait in late), late[:3]
    assert any("stress-ng" in wait.get("instead", "") for wait in late), late[:3]


def test_a_stranger_on_the_vector_is_named(tmp_path):
    module = subprocess.run(
        ["sh", CHECKOUT / "tests/lab/build-module", "trixie", CHECKOUT / "tests/lab/slow_handler", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    if module.returncode:
        pytest.skip(f"the module can't be built: {module.stderr[-300:]}")
    told = incident(tmp_path, "shared", "--disk", "nvme", "--append", "pci=nomsi")
    rows = {one["handler"]: one for one in told["report"]["irqs"] if one["irq"] == told["irq"]}
    print(rows)
    slow, own = rows["slow_handler"], rows["nvme0q1"]
    assert slow["returned"] == {"none": slow["count"]}
    assert slow["run_us"]["p50"] >= told["us"]
    assert {"nvme0q1", "nvme0q0"} <= set(slow["shared_with"])
    assert own["device"].startswith("nvme")
    taken = slow["count"] * slow["run_us"]["mean"]
    assert own["before_us"] == pytest.approx(taken, rel=0.1)


def test_irq_poll_is_seen(tmp_path):
    told = incident(tmp_path, "irq_poll")
    print(told["report"]["softirqs"]["IRQ_POLL"])
    assert told["report"]["softirqs"]["IRQ_POLL"]["count"] > 100
    (device,) = [name for name in told["issued"] if name.startswith("nvme")]
    stages = reads(told, device)["stages"]
    assert stages["softirq"]["count"] >= 0.9 * stages["hba"]["count"]
