import itertools

import pytest
from fake_host import FakeHost, columns

from latmon.model.frame import Completed, Flow, Outstanding
from latmon.support.errors import UnavailableError
from latmon_backends.kernel.counters import FrameClock, KernelSampler, difference


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


def sampler(host, *globs):
    ticks = itertools.count(5_000_000, 1_000_000)
    return KernelSampler(host.proc, host.sys, globs, FrameClock(lambda: next(ticks), lambda: 1_700_000_000.0))


def test_what_completed_between_two_samples(host):
    host.virtio()
    host.count("vda", columns(100, 200))
    kernel = sampler(host)
    before = kernel.sample()
    host.count("vda", columns(103, 200, flushes=4))
    interval = difference(before, kernel.sample())
    assert interval.dt_us == 1_000_000
    assert interval.kernel == {
        Flow("vda", "read"): Completed(3, 3 * 4096, 6000, merged=0),
        Flow("vda", "write"): Completed(0, 0, 0, merged=0),
        Flow("vda", "discard"): Completed(0, 0, 0, merged=0),
        Flow("vda", "flush"): Completed(4, 0, 8000, merged=0),
    }


@pytest.mark.parametrize("set_by_s", [3600, -7200, 0.5])
def test_a_clock_that_is_set_changes_no_interval(host, set_by_s):
    host.virtio()
    ticks = itertools.count(5_000_000, 1_000_000)
    walls = iter((1_700_000_000.0, 1_700_000_001.0 + set_by_s, 1_700_000_002.0 + set_by_s))
    kernel = KernelSampler(host.proc, host.sys, (), FrameClock(lambda: next(ticks), lambda: next(walls)))
    samples = []
    for reads in (100, 103, 106):
        host.count("vda", columns(reads))
        samples.append(kernel.sample())
    for before, after in itertools.pairwise(samples):
        interval = difference(before, after)
        assert interval.dt_us == 1_000_000
        assert interval.kernel[Flow("vda", "read")].count == 3
    assert [one.wall for one in samples[1:]] == [1_700_000_001.0 + set_by_s, 1_700_000_002.0 + set_by_s]


def test_partitions_are_not_counted_again(host):
    host.virtio()
    host.partition("vda", "vda1", (254, 1))
    kernel = sampler(host)
    before = kernel.sample()
    host.count("vda1", columns(5))
    assert {flow.device for flow in difference(before, kernel.sample()).kernel} == {"vda"}


def test_queued_and_in_driver_are_reported_apart(host):
    path = host.virtio()
    host.count("vda", columns(in_flight=99))
    host.write(f"{path}/inflight", "10 6\n")
    assert sampler(host).sample().outstanding == {"vda": Outstanding(16, 83)}


def test_on_an_older_kernel_the_queue_is_unknown(tmp_path):
    host = FakeHost(tmp_path, queued_in_column=False)
    host.virtio()
    assert sampler(host).sample().outstanding == {"vda": Outstanding(0, None)}


def test_a_bio_based_device_has_no_queue_of_its_own(host):
    host.disk("md0", (9, 0), mq=False)
    assert sampler(host).sample().outstanding == {"md0": Outstanding(0, None)}


def test_globs_choose_by_name_or_label(host):
    host.virtio()
    host.mptsas()
    path = host.disk("dm-0", (252, 0), mq=False)
    host.write(f"{path}/dm/name", "vg0-root\n")
    sample = sampler(host, "sd*", "vg0-*").sample()
    assert sample.shown == {"sda", "dm-0"}
    assert {device.name for device in sample.devices} == {"sda", "dm-0"}
    assert set(sample.outstanding) == {"sda", "dm-0"}


def test_an_unplugged_device_that_was_not_chosen_is_not_news(host):
    host.virtio()
    host.mptsas()
    kernel = sampler(host, "vda")
    kernel.sample()
    host.unplug("sda")
    assert kernel.sample().removed == ()


def test_a_device_plugged_in_between_counts_from_its_first_io(host):
    host.virtio()
    kernel = sampler(host)
    before = kernel.sample()
    host.mptsas()
    host.count("sda", columns(7))
    interval = difference(before, kernel.sample())
    assert interval.kernel[Flow("sda", "read")].count == 7
    assert [device.name for device in interval.devices] == ["sda"]
    assert {device.name for device in kernel.devices} == {"vda", "sda"}


def test_an_old_loop_that_gets_a_file_does_not_bring_its_past(host):
    path = host.disk("loop0", (7, 0))
    host.count("loop0", columns(1000))
    kernel = sampler(host)
    before = kernel.sample()
    host.write(f"{path}/loop/backing_file", "/a.img\n")
    host.count("loop0", columns(1002))
    assert difference(before, kernel.sample()).kernel[Flow("loop0", "read")].count == 2


def test_an_unplugged_device_is_gone_from_every_number(host):
    host.virtio()
    host.mptsas()
    kernel = sampler(host)
    before = kernel.sample()
    host.unplug("sda")
    interval = difference(before, kernel.sample())
    assert interval.removed == ("sda",)
    assert {flow.device for flow in interval.kernel} == {"vda"} == set(interval.outstanding)


def test_a_reset_is_not_negative(host):
    host.virtio()
    host.count("vda", columns(1000))
    kernel = sampler(host)
    before = kernel.sample()
    host.count("vda", columns(2))
    assert difference(before, kernel.sample()).kernel[Flow("vda", "read")].count == 2


def test_another_drive_in_the_same_place_counts_from_its_beginning(host):
    host.mptsas()
    host.count("sda", columns(10))
    kernel = sampler(host)
    before = kernel.sample()
    host.unplug("sda")
    host.mptsas()
    host.count("sda", columns(12))
    assert difference(before, kernel.sample()).kernel[Flow("sda", "read")].count == 12


def test_a_disk_that_the_kernel_does_not_count_is_unknown_not_idle(host):
    path = host.virtio()
    host.write(f"{path}/queue/iostats", "0\n")
    kernel = sampler(host)
    before = kernel.sample()
    interval = difference(before, kernel.sample())
    assert interval.kernel == {}
    assert interval.outstanding == {"vda": Outstanding(None, None)}
    host.write(f"{path}/queue/iostats", "1\n")
    half_counted = kernel.sample()
    assert difference(before, half_counted).kernel == {}
    assert difference(half_counted, kernel.sample()).kernel


def test_zram_counts_for_itself_whatever_iostats_says(host):
    path = host.disk("zram0", (253, 0), mq=False)
    host.write(f"{path}/queue/iostats", "0\n")
    kernel = sampler(host)
    before = kernel.sample()
    assert difference(before, kernel.sample()).kernel == {}
    host.count("zram0", columns(0, 9))
    assert difference(before, kernel.sample()).kernel[Flow("zram0", "write")].count == 9


def test_lines_not_understood_are_counted(host):
    with (host.proc / "diskstats").open("a") as file:
        file.write("what is this\n")
    assert sampler(host).sample().undecoded == 1


def test_counters_that_cannot_be_read_are_one_sentence(host):
    kernel = sampler(host)
    (host.proc / "diskstats").unlink()
    with pytest.raises(UnavailableError, match="counters can't be read"):
        kernel.sample()
