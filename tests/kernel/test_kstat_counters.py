"""Disks, counters and gauges from kstat's output, on illumos and on Solaris. The output is synthetic."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from latmon.model.frame import Completed, Device, Flow, Outstanding
from latmon.support.errors import UnavailableError
from latmon_backends.kernel import kstat
from latmon_backends.kernel.counters import FrameClock, difference
from latmon_backends.kernel.kstat import KstatSampler
from latmon_backends.kernel.system import Sampler

GOLDEN = Path(__file__).parents[1] / "golden" / "kstat"


class Machine:
    """Answers as kstat would, the given files one after the other."""

    def __init__(self, *disks: str, errors: str = "illumos-device-error-synthetic") -> None:
        self.disks = [(GOLDEN / f"{name}-synthetic.txt").read_bytes() for name in disks]
        self.errors = (GOLDEN / f"{errors}.txt").read_bytes()
        self.asked: list[tuple[str, ...]] = []
        self.now = 0

    def run(self, words: tuple[str, ...]) -> bytes:
        self.asked.append(words)
        if words[-1] == "device_error":
            return self.errors
        return self.disks.pop(0) if len(self.disks) > 1 else self.disks[0]

    def sampler(self, *globs: str) -> KstatSampler:
        return KstatSampler(globs, FrameClock(self.tick, lambda: 5.0), self.run)

    def tick(self) -> int:
        self.now += 1_000_000
        return self.now


ILLUMOS = ("illumos-disk-1", "illumos-disk-2")
SOLARIS = ("solaris-disk-1", "solaris-disk-2")


def test_disks_have_names_models_and_kinds():
    sampler: Sampler = Machine(*ILLUMOS).sampler()
    sampler.sample()
    sampler.start()
    assert {
        device.name: (device.kind, device.driver, device.model, device.serial, device.timed)
        for device in sampler.devices
    } == {
        "blkdev0": ("disk", "blkdev", "SAMSUNG MZQL21T9HCJR-00A07", "S64GNE0R000000", True),
        "sd2": ("disk", "sd", "VMware Virtual disk", "6000c29abc", True),
        "sd10": ("other", "sd", "NECVMWar VMware IDE CDR10", "", True),
        "rpool": ("other", "zfs", "", "", False),
    }
    assert [device.name for device in sampler.devices] == ["blkdev0", "sd2", "sd10", "rpool"]
    sampler.require_selected()
    sampler.close()


def test_what_completed_between_two_samples_has_no_time_of_its_own():
    sampler = Machine(*ILLUMOS).sampler()
    before, after = sampler.sample(), sampler.sample()
    interval = difference(before, after)
    assert interval.kernel[Flow("sd2", "read")] == Completed(300, 300 * 4096, None)
    assert interval.kernel[Flow("sd2", "write")] == Completed(30, 30 * 4096, None)
    assert interval.kernel[Flow("sd10", "read")] == Completed(0, 0, None)
    assert interval.dt_us == 1_000_000
    assert (interval.undecoded, interval.depths) == (0, {})


def test_counts_of_32_bits_wrap():
    sampler = Machine(*ILLUMOS).sampler()
    interval = difference(sampler.sample(), sampler.sample())
    assert interval.kernel[Flow("blkdev0", "read")] == Completed(16, 16 * 8192, None)


def test_actv_and_wait_are_what_the_driver_has_and_what_is_queued():
    sampler = Machine(*ILLUMOS).sampler()
    assert sampler.sample().outstanding["sd2"] == Outstanding(in_driver=3, queued=13)


def test_solaris_counts_alike():
    """Its kstat, in Perl, prints times of disks in seconds."""
    sampler = Machine(*SOLARIS).sampler()
    first = sampler.sample()
    interval = difference(first, sampler.sample())
    assert first.outstanding["ssd0"] == Outstanding(in_driver=3, queued=13)
    assert sum(done.count for flow, done in interval.kernel.items() if flow.device == "ssd0") == 2


def test_identity_is_asked_for_only_when_disks_come_or_go():
    machine = Machine(*ILLUMOS)
    sampler = machine.sampler()
    first = sampler.sample()
    assert (len(first.devices), first.removed) == (4, ())
    assert sampler.sample().devices == ()
    assert [words[-1] for words in machine.asked] == ["disk", "device_error", "disk"]
    machine.disks = [b"".join(line for line in machine.disks[0].splitlines(True) if not line.startswith(b"sd:10"))]
    gone = sampler.sample()
    assert (gone.devices, gone.removed, set(gone.counters)) == ((), ("sd10",), {"blkdev0", "sd2", "rpool"})
    assert machine.asked[-1][-1] == "device_error"


def test_a_disk_attached_again_begins_again():
    machine = Machine(*ILLUMOS)
    machine.disks[1] = machine.disks[1].replace(b"sd:2:sd2:crtime\t41.1", b"sd:2:sd2:crtime\t4900.1")
    sampler = machine.sampler()
    interval = difference(sampler.sample(), sampler.sample())
    assert interval.kernel[Flow("sd2", "read")].count == 1300


def test_a_reading_that_fails_later_is_made_up_for_by_the_next():
    machine = Machine(*ILLUMOS)
    working, fail = machine.run, [False]

    def run(words: tuple[str, ...]) -> bytes:
        if fail[0]:
            raise UnavailableError("kstat can't be run: it hangs.")
        return working(words)

    sampler = KstatSampler((), FrameClock(machine.tick, lambda: 5.0), run)
    first = sampler.sample()
    fail[0] = True
    second = sampler.sample()
    nothing = difference(first, second)
    assert {done.count for done in nothing.kernel.values()} == {0}
    assert (nothing.undecoded, nothing.outstanding, nothing.removed, second.devices) == (1, {}, (), ())
    fail[0] = False
    assert difference(second, sampler.sample()).kernel[Flow("sd2", "read")].count == 300
    fail[0] = True
    with pytest.raises(UnavailableError):
        KstatSampler((), FrameClock(machine.tick, lambda: 5.0), run).sample()


def test_globs_select_and_a_mistyped_one_is_reported():
    sampler = Machine(*ILLUMOS).sampler("sd*")
    assert set(sampler.sample().shown) == {"sd2", "sd10"}
    assert sampler.selects(Device("sd7", 0, 7))
    none = Machine(*ILLUMOS).sampler("nvme*")
    none.sample()
    with pytest.raises(UnavailableError, match=r"No device matches --device nvme.*blkdev0, rpool, sd10, sd2"):
        none.require_selected()


def test_without_a_disk_there_is_nothing_to_watch():
    machine = Machine(*ILLUMOS)
    machine.disks = [b""]
    sampler = machine.sampler()
    assert sampler.sample().shown == frozenset()
    with pytest.raises(UnavailableError, match="kstat names none"):
        sampler.require_selected()


@pytest.mark.parametrize(
    ("was", "made", "found"),
    [
        (b"rcnt\t3", b"rcnt\t4294967295", Outstanding(None, 13)),
        (b"wcnt\t13", b"wcnt\t-1", Outstanding(3, None)),
        (b"wcnt\t13", b"wcnt\tmany", Outstanding(3, None)),
    ],
)
def test_a_gauge_that_went_below_nothing_is_not_known(was, made, found):
    machine = Machine(*ILLUMOS)
    machine.disks[0] = machine.disks[0].replace(was, made)
    assert machine.sampler().sample().outstanding["sd2"] == found


@pytest.mark.parametrize("number", [b"-5", b"x", b"", b"99999999999999999999", b"1.5"])
def test_a_disk_whose_counters_make_no_sense_is_left_out_and_counted(number):
    machine = Machine(*ILLUMOS)
    machine.disks[0] = machine.disks[0].replace(b"sd2:nread\t4096000", b"sd2:nread\t" + number)
    sample = machine.sampler().sample()
    assert set(sample.shown) == {"blkdev0", "sd10", "rpool"}
    assert sample.undecoded == 1


def test_counters_that_went_back_report_nothing_new():
    machine = Machine("illumos-disk-2", "illumos-disk-1")
    sampler = machine.sampler()
    interval = difference(sampler.sample(), sampler.sample())
    assert all(done.count < 2**31 for done in interval.kernel.values())


@pytest.mark.parametrize("name", ["reads", "nread"])
def test_a_disk_whose_counter_fell_has_no_value_and_the_others_are_complete(name):
    machine = Machine(*ILLUMOS)
    was = int(re.search(rb"sd:2:sd2:%b\t(\d+)" % name.encode(), machine.disks[0])[1])
    machine.disks[1] = re.sub(rb"(sd:2:sd2:%b\t)\d+" % name.encode(), rb"\g<1>%d" % (was - 1), machine.disks[1])
    sampler = machine.sampler()
    interval = difference(sampler.sample(), sampler.sample())
    assert "sd2" not in {flow.device for flow in interval.kernel}
    assert interval.kernel[Flow("blkdev0", "read")].count == 16
    assert interval.undecoded == 1


def tool(path: Path, body: str) -> dict[str, str]:
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return {kstat.VARIABLE: str(path)}


def test_the_tool_that_the_user_names_is_run(tmp_path):
    run = kstat.runner(tool(tmp_path / "kstat", "import sys; print(*sys.argv[1:])"))
    assert run(("-p", "-c", "disk")) == b"-p -c disk\n"
    nothing = kstat.runner(tool(tmp_path / "none", "raise SystemExit(1)"))
    assert nothing(()) == b""


def test_a_tool_that_fails_hangs_or_is_not_there_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    failing = tool(tmp_path / "bin/kstat", "import sys; sys.stderr.write('no such class\\n'); sys.exit(2)")
    with pytest.raises(UnavailableError, match="kstat failed: no such class"):
        kstat.runner(failing)(())
    monkeypatch.setattr(kstat, "_TIMEOUT_S", 0.2)
    with pytest.raises(UnavailableError, match="can't be run"):
        kstat.runner(tool(tmp_path / "b", "import time; time.sleep(60)"))(())
    monkeypatch.setattr(kstat, "_USUAL", tmp_path / "nowhere")
    with pytest.raises(UnavailableError, match="not installed"):
        kstat.runner({"PATH": str(tmp_path)})
    with pytest.raises(UnavailableError, match="absolute"):
        kstat.runner({kstat.VARIABLE: "kstat"})
