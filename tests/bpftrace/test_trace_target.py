"""The target of `latmon trace`: a disk's sectors by a partition, a range, a file, and what is refused."""

import pytest
from fake_host import FakeHost
from hypothesis import given
from hypothesis import strategies as st

from latmon.capture.backend import TraceRequest
from latmon.support.errors import UnavailableError, UsageError
from latmon_backends.bpftrace.trace import BlockRange, covered, trace_target


@pytest.fixture
def host(tmp_path):
    fake_host = FakeHost(tmp_path)
    for name, number in (("sda", (8, 0)), ("sdb", (8, 16))):
        path = fake_host.disk(name, number, size=10_000)
        fake_host.write(f"{path}/dev", f"{number[0]}:{number[1]}\n")
    fake_host.partition("sda", "sda1", (8, 1))
    path = (fake_host.sys / "class/block/sda1").resolve().relative_to(tmp_path.resolve())
    fake_host.write(f"{path}/start", "2048\n")
    fake_host.write(f"{path}/size", "4096\n")
    fake_host.disk("dm-0", (253, 0), mq=False)
    fake_host.link("sys/devices/virtual/block/dm-0/slaves/sda1", str(path))
    return fake_host


def target(host, device="sda", **fields):
    return trace_target(TraceRequest(device, 1, 1, 1, proc=host.proc, sys=host.sys, **fields))


def test_a_whole_disk(host):
    actual_trace_target = target(host)
    assert (
        actual_trace_target.disk,
        actual_trace_target.number,
        actual_trace_target.by,
        actual_trace_target.wanted,
    ) == ("sda", 8 << 20, 0, "")


def test_a_partition_is_its_sectors_of_the_disk(host):
    actual_trace_target = target(host, "sda1")
    assert (actual_trace_target.disk, actual_trace_target.by, actual_trace_target.wanted) == ("sda", 1, "2048-6143")


def test_a_range_of_a_partition_begins_with_it(host):
    assert target(host, "sda1", lba=(0, 7)).wanted == "2048-2055"
    assert target(host, "sda", lba=(0, 7)).wanted == "0-7"


def test_a_range_outside_of_the_device_is_refused(host):
    with pytest.raises(UsageError, match="sda1 has the sectors 0 to 4095"):
        target(host, "sda1", lba=(0, 4096))


def test_an_unknown_device_is_refused_with_those_that_are_there(host):
    with pytest.raises(UnavailableError, match=r"no block device 'sdz'; there are: .*sda, sda1, sdb"):
        target(host, "sdz")


def test_a_device_without_requests_is_refused_with_those_below(host):
    with pytest.raises(UnavailableError, match="dm-0 has no requests of its own: trace what is below it: sda1"):
        target(host, "dm-0")


def test_a_process_that_is_not_there_is_refused(host):
    with pytest.raises(UnavailableError, match="no such process"):
        target(host, pid=4242)
    host.write("proc/4242/stat")
    assert (target(host, pid=4242).by, target(host, pid=4242).wanted) == (2, "4242-4242")


def test_a_file_elsewhere_is_refused(host, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 4096)
    with pytest.raises(UsageError, match="--file"):
        target(host, file=tmp_path / "file")
    with pytest.raises(UnavailableError, match="No such file"):
        target(host, file=tmp_path / "none")
    with pytest.raises(UnavailableError, match="Is a directory"):
        target(host, file=tmp_path)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 50)), min_size=1, max_size=60), st.integers(1, 20))
def test_covering_ranges_have_every_extent_and_as_few_others_as_they_say(extents, most):
    ranges = [BlockRange(first, first + length - 1) for first, length in extents]
    block_ranges, more = covered(ranges, most)
    assert 1 <= len(block_ranges) <= most
    sectors = {at for block_range in ranges for at in range(block_range.low, block_range.high + 1)}
    covering = [at for block_range in block_ranges for at in range(block_range.low, block_range.high + 1)]
    assert len(covering) == len(set(covering)) == len(sectors) + more
    assert sectors <= set(covering)
