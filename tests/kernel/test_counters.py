import itertools

import pytest
from fake_host import FakeHost, columns
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latmon.model.frame import Completed, Flow, Frame, Outstanding
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.support.errors import UnavailableError
from latmon_backends.kernel.block_devices import BlockDevices
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
    assert [sample.wall for sample in samples[1:]] == [1_700_000_001.0 + set_by_s, 1_700_000_002.0 + set_by_s]


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


def test_a_loop_that_gets_a_file_that_is_not_chosen_is_removed(host):
    path = host.disk("loop0", (7, 0))
    host.write(f"{path}/loop/backing_file", "/mine.img\n")
    kernel = sampler(host, "/mine.img")
    before = kernel.sample()
    assert [device.name for device in before.devices] == ["loop0"]
    host.write(f"{path}/loop/backing_file", "/another.img\n")
    interval = difference(before, kernel.sample())
    assert (interval.removed, interval.devices, interval.kernel) == (("loop0",), (), {})


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


def nvme_path(host, name):
    return host.disk(name, (0, 0))


def test_hidden_nvme_paths_all_have_number_0_0_and_each_is_counted(host):
    """A kernel prints 0:0 for each of them, so that a number is no key."""
    host.disk("nvme0n1", (259, 3), mq=False)
    host.disk("nvme1n1", (259, 2), mq=False)
    nvme_path(host, "nvme0c0n1")
    nvme_path(host, "nvme1c1n1")
    host.disk("nvme2n1", (259, 4))
    kernel = sampler(host)
    before = kernel.sample()
    for name, reads in (("nvme0c0n1", 300), ("nvme1c1n1", 100), ("nvme2n1", 7)):
        host.count(name, columns(reads))
    interval = difference(before, kernel.sample())
    assert {flow.device: done.count for flow, done in interval.kernel.items() if flow.op == "read"} == {
        "nvme0c0n1": 300,
        "nvme1c1n1": 100,
        "nvme2n1": 7,
        "nvme0n1": 0,
        "nvme1n1": 0,
    }
    assert {device.name: device.members for device in kernel.devices if device.kind == "nvme-head"} == {
        "nvme0n1": ("nvme0c0n1",),
        "nvme1n1": ("nvme1c1n1",),
    }
    assert kernel.numbered(0) is None


@pytest.mark.parametrize("reads", [1_000_029, 2**60])
def test_a_device_whose_counter_is_wrong_has_no_value_and_the_others_are_complete(host, reads):
    host.virtio()
    host.mptsas()
    host.disk("md0", (9, 0), mq=False)
    host.count("vda", columns(1_000_030, 5))
    kernel = sampler(host)
    before = kernel.sample()
    host.count("vda", columns(reads, 75))
    host.count("sda", columns(7))
    after = kernel.sample()
    interval = difference(before, after)
    assert {flow.device for flow in interval.kernel} == {"sda", "md0"}
    assert interval.kernel[Flow("sda", "read")].count == 7
    assert interval.undecoded == 1
    host.count("vda", columns(reads + 70, 80))
    assert difference(after, kernel.sample()).kernel[Flow("vda", "read")].count == 70


@pytest.mark.parametrize("name", ["dm-0", "md0", "sda"])
def test_a_device_made_anew_within_an_interval_is_known_by_its_diskseq(host, name):
    """Its counters have risen, so that they alone don't show it."""
    path = host.disk(name, (252, 0), mq=False)
    host.write(f"{path}/diskseq", "20\n")
    host.count(name, columns(10))
    kernel = sampler(host)
    before = kernel.sample()
    host.write(f"{path}/diskseq", "21\n")
    host.count(name, columns(500))
    assert difference(before, kernel.sample()).kernel[Flow(name, "read")].count == 500


@pytest.mark.parametrize(("name", "removable"), [("loop0", "0\n"), ("nbd0", "0\n"), ("sr0", "1\n"), ("sdb", "1\n")])
def test_another_medium_has_a_new_diskseq_and_the_device_counts_on(host, name, removable):
    """Seen of loops on 6.18: losetup -d and losetup of the same device leave its counters as they are."""
    path = host.disk(name, (7, 0))
    host.write(f"{path}/loop/backing_file", "/a.img\n")
    host.write(f"{path}/removable", removable)
    host.write(f"{path}/diskseq", "20\n")
    host.count(name, columns(1_000))
    kernel = sampler(host)
    before = kernel.sample()
    host.write(f"{path}/diskseq", "22\n")
    host.count(name, columns(1_005))
    assert difference(before, kernel.sample()).kernel[Flow(name, "read")].count == 5


def test_a_zram_that_was_reset_counts_from_its_beginning(host):
    """Seen on 6.18: its counters are 0 again, and neither its diskseq nor its inode changes."""
    path = host.disk("zram0", (253, 0), mq=False)
    host.write(f"{path}/diskseq", "20\n")
    host.count("zram0", columns(0, 5_000))
    kernel = sampler(host)
    before = kernel.sample()
    host.count("zram0", columns(0, 50))
    assert difference(before, kernel.sample()).kernel[Flow("zram0", "write")].count == 50


def test_a_line_that_a_reading_leaves_out_does_not_bring_the_past_when_it_is_back(host):
    host.virtio()
    host.mptsas()
    host.count("sda", columns(1_000_000))
    kernel = sampler(host)
    samples = [kernel.sample()]
    diskstats = host.proc / "diskstats"
    text = diskstats.read_text()
    diskstats.write_text("".join(line for line in text.splitlines(True) if "sda" not in line))
    samples.append(kernel.sample())
    host.count("sda", columns(1_000_070))
    samples.append(kernel.sample())
    differences = [difference(*pair) for pair in itertools.pairwise(samples)]
    assert [Flow("sda", "read") in difference.kernel for difference in differences] == [False, False]
    assert [difference.removed for difference in differences] == [(), ()]
    assert [difference.undecoded for difference in differences] == [1, 1]
    host.count("sda", columns(1_000_090))
    assert difference(samples[-1], kernel.sample()).kernel[Flow("sda", "read")].count == 20


def test_without_an_identity_a_device_with_a_past_is_not_new(tmp_path):
    """Without sysfs nothing shows whether its line was only missing before."""
    host = FakeHost(tmp_path)
    host.virtio()
    host.mptsas()
    host.count("sda", columns(1_000_000))
    (host.sys / "block").rename(tmp_path / "away")
    kernel = sampler(host)
    text = (host.proc / "diskstats").read_text()
    (host.proc / "diskstats").write_text("".join(line for line in text.splitlines(True) if "sda" not in line))
    before = kernel.sample()
    (host.proc / "diskstats").write_text(f"{text}   8   16 sdb {' '.join(map(str, columns(30)))}\n")
    found = difference(before, kernel.sample()).kernel
    assert {flow.device for flow in found} == {"vda", "sdb"}
    assert found[Flow("sdb", "read")].count == 30


def test_a_device_replaced_between_its_line_and_its_identity_has_its_own_counters(host, monkeypatch):
    host.mptsas()
    host.count("sda", columns(1_000_000))
    kernel = sampler(host)
    before = kernel.sample()
    refresh = BlockDevices.refresh

    def replaced_first(block, lines, mono_us):
        if "gone-0" not in {path.name for path in host.proc.parent.iterdir()}:
            host.unplug("sda")
            host.mptsas()
            host.count("sda", columns(3))
        return refresh(block, lines, mono_us)

    monkeypatch.setattr(BlockDevices, "refresh", replaced_first)
    after = kernel.sample()
    assert difference(before, after).kernel[Flow("sda", "read")].count == 3
    host.count("sda", columns(9))
    assert difference(after, kernel.sample()).kernel[Flow("sda", "read")].count == 6


@pytest.mark.parametrize("gauge", ["4294967295        0\n", "       0 4294967294\n", f"{2**64} 0\n", "-1 0\n"])
def test_a_gauge_below_0_is_unknown(host, gauge):
    path = host.virtio()
    host.write(f"{path}/inflight", gauge)
    host.count("vda", columns(in_flight=7))
    assert sampler(host).sample().outstanding == {"vda": Outstanding(None, None)}


def test_a_column_of_i_os_in_flight_below_0_leaves_the_driver_s_own(host):
    path = host.virtio()
    host.write(f"{path}/inflight", "1 2\n")
    host.count("vda", columns(in_flight=2**32 - 1))
    assert sampler(host).sample().outstanding == {"vda": Outstanding(3, None)}


HUGE = st.sampled_from((0, 1, 9, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**5000))
NUMBERS = st.one_of(HUGE, st.integers(0, 2**65))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_a_recording_can_not_hold_never_leaves_the_sampler(tmp_path_factory, data):
    host = FakeHost(tmp_path_factory.mktemp("host"))
    vda, loop = host.virtio(), host.disk("loop0", (7, 0))
    host.write(f"{loop}/loop/backing_file", "/a.img\n")
    cgroup = host.write("cgroup/one/io.max").parent
    host.write("proc/self/mountinfo", f"27 1 0:22 / {cgroup.parent} rw - cgroup2 cgroup2 rw\n")
    kernel = sampler(host)
    kernel.read_cgroups()
    kernel.read_processes()

    def number():
        return format_whole(data.draw(NUMBERS))

    samples = []
    for _ in range(4):
        (host.proc / "diskstats").write_text(
            f"254 0 vda {' '.join(number() for _ in range(17))}\n7 0 loop0 {' '.join(map(str, columns(7)))}\n"
        )
        host.write(f"{vda}/inflight", f"{number()} {number()}\n")
        host.write(f"{vda}/device/ioerr_cnt", f"0x{data.draw(NUMBERS):x}\n")
        host.write("cgroup/one/io.max", f"254:0 rbps={number()} wiops={number()}\n")
        host.write("cgroup/one/io.stat", f"254:0 rbytes={number()} wbytes={number()} rios={number()} wios={number()}\n")
        host.write("cgroup/one/io.pressure", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number()}\n")
        host.write("proc/pressure/io", f"some avg10=0.00 total={number()}\nfull avg10=0.00 total={number()}\n")
        host.write("proc/stat", f"cpu {' '.join(number() for _ in range(10))}\n")
        host.write("proc/vmstat", f"nr_free 1\nnr_dirty {number()}\nnr_writeback {number()}\nallocstall {number()}\n")
        host.write("proc/net/snmp", f"Tcp: RetransSegs\nTcp: {number()}\n")
        host.write("proc/net/rpc/nfs", f"net 0 0\nrpc 5 {number()} 0\n")
        for place in ("70", "70/task/70"):
            host.write(f"proc/{place}/io", f"read_bytes: {number()}\nwrite_bytes: {number()}\n")
        samples.append(kernel.sample())
    for before, after in itertools.pairwise(samples):
        interval = difference(before, after)
        frame = Frame(
            seq=0,
            wall=after.wall,
            mono_us=after.mono_us,
            dt_us=interval.dt_us,
            kernel=interval.kernel,
            outstanding=interval.outstanding,
            depths=interval.depths,
            cgroup_limits=interval.cgroup_limits,
            host_context=interval.host_context,
            devices=kernel.devices,
            tables=interval.tables,
        )
        assert Flow("loop0", "read") in interval.kernel
        assert decode_frame(parse(to_bytes(encode_frame(frame)))).kernel == interval.kernel


def format_whole(number):
    """Return a number's digits, also where there are more than Python converts."""
    return str(number) if number < 10**4000 else f"1{'0' * 5000}"
