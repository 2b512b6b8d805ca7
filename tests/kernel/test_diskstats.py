import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.frame import Completed
from latmon.model.measurements.device_counters import DeviceCounters
from latmon_backends.kernel.diskstats import Counters, DeviceNumber, device_difference, difference, parse

LINE_6_18 = (
    b" 254 0 vda 1436870 12207 17533770 634211 1496406 71637 33117968 632104 3 113044 1302165"
    b" 36911 24 4471136 29546 95118 6302\n"
)
LINE_4_18 = b"   8 0 sda 10 0 80 20 30 0 240 60 2 5 80 7 0 56 14\n"
LINE_4_4 = b"   8 0 sda 10 0 80 20 30 0 240 60 2 5 80\n"


def totals(count, size, ms, merged=0):
    return Completed(count, size, 1000 * ms, merged=merged)


def counters(reads=0, sectors=0, ms=0, name="sda", **ops):
    return Counters(name, {"read": totals(reads, sectors * 512, ms), **ops})


def test_a_line_of_today_has_four_ops_and_bytes():
    line = parse(LINE_6_18).counters["vda"]
    assert line == Counters(
        "vda",
        {
            "read": totals(1436870, 17533770 * 512, 634211, 12207),
            "write": totals(1496406, 33117968 * 512, 632104, 71637),
            "discard": totals(36911, 4471136 * 512, 29546, 24),
            "flush": totals(95118, 0, 6302),
        },
        in_flight=3,
        number=DeviceNumber(254, 0),
        active_us=113_044_000,
    )


def test_an_op_that_the_kernel_does_not_count_is_absent_not_zero():
    assert set(parse(LINE_4_4).counters["sda"].ops) == {"read", "write"}
    assert set(parse(LINE_4_18).counters["sda"].ops) == {"read", "write", "discard"}
    assert parse(LINE_4_18).counters["sda"].in_flight == 2


def test_columns_of_a_later_kernel_are_ignored():
    assert parse(LINE_6_18.replace(b"\n", b" 1 2 3\n")) == parse(LINE_6_18)


def test_what_is_not_a_line_is_counted_and_the_rest_kept():
    reading = parse(b"rubbish\n 8 0 sda 1 2 3\n 8 x sda 1\n\n" + LINE_4_18)
    assert reading.undecoded == 3
    assert list(reading.counters) == ["sda"]


def test_a_hostile_name_is_cleaned():
    (line,) = parse(LINE_4_4.replace(b"sda", b"s\x1b[31m")).counters.values()
    assert line.name == "s\\x1b[31m"


@given(st.binary())
def test_no_bytes_break_the_parser(raw):
    assert parse(raw).undecoded <= len(raw.splitlines())


def test_the_difference_is_what_completed_between():
    assert difference(counters(5, 80, 9), counters(8, 104, 19)) == {"read": totals(3, 24 * 512, 10)}


def test_merges_are_counted_beside_the_requests_that_they_went_into():
    before, after = (Counters("sda", {"write": totals(n, 0, 0, merged)}) for n, merged in ((5, 40), (7, 55)))
    assert difference(before, after) == {"write": totals(2, 0, 0, 15)}


def test_a_device_not_seen_before_counts_from_its_beginning():
    assert difference(None, counters(8, 64, 16)) == {"read": totals(8, 64 * 512, 16)}


def test_another_name_at_the_same_place_is_another_device():
    assert difference(counters(5, name="sdb"), counters(8)) == {"read": totals(8, 0, 0)}


def test_a_counter_that_fell_is_a_reset_of_the_whole_device():
    before = counters(1000, 8000, 500, write=totals(3, 30, 3))
    after = counters(4, 32, 8, write=totals(5, 50, 5))
    assert difference(before, after) == {"read": totals(4, 32 * 512, 8), "write": totals(5, 50, 5)}


def test_a_large_disk_that_was_replugged_is_no_wrap():
    assert difference(counters(2**31 + 9, 2**32 - 1), counters(2, 16)) == {"read": totals(2, 16 * 512, 0)}


def test_the_time_wraps_at_32_bits_of_milliseconds_everywhere():
    assert difference(counters(5, 8, 2**32 - 10), counters(6, 16, 5)) == {"read": totals(1, 8 * 512, 15)}


def test_a_time_that_fell_is_not_known():
    found = difference(counters(5, 8, 100), counters(6, 16, 99))
    assert found == {"read": Completed(1, 8 * 512, None, merged=0)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((1_000_030, 8_000_240), (1_000_029, 8_000_232), id="lxcfs adds up fewer cgroups"),
        pytest.param((1_000_030, 8_000_240), (1_000_099, 8_000_232), id="only the sectors fell"),
        pytest.param((9, 72), (8, 64), id="a small counter fell a little"),
        pytest.param((1_000_000, 8_000_000), (50_000, 400_000), id="a large cgroup went"),
        pytest.param((1_000_000, 8_000_000), (900, 7_999_000), id="only one counter is near 0"),
        pytest.param((1_000_000, 100), (900, 8_000_000), id="a second one rose"),
    ],
)
def test_counters_that_fell_without_a_restart_give_no_value(before, after):
    assert difference(counters(*before), counters(*after)) is None


def test_one_op_that_fell_leaves_out_the_whole_device():
    before = counters(1_000_030, 8_000_240, write=totals(7, 7 * 4096, 3))
    after = counters(1_000_029, 8_000_232, write=totals(9, 9 * 4096, 5))
    assert difference(before, after) is None


@pytest.mark.parametrize(
    ("reads", "sectors", "merged"),
    [
        (2**63 + 5, 40, 0),
        (2**63 + 4, 40, 0),
        (6, 2**63 - 1, 0),
        (6, 2**64 - 1, 0),
        (2**60, 2**60, 0),
        (6, 48, 2**62),
    ],
)
def test_what_a_recording_can_not_hold_gives_no_value(reads, sectors, merged):
    broken = Counters("sda", {"read": Completed(reads, sectors * 512, 0, merged=merged)})
    assert difference(counters(5, 40), broken) is None
    assert difference(None, broken) is None


@pytest.mark.parametrize("column", [b"-1", b"18446744073709551616", b"9" * 5000])
def test_a_number_that_no_kernel_prints_is_not_understood(column):
    raw = LINE_4_4 + LINE_4_18.replace(b"sda", b"sdb").replace(b" 30 ", b" %b " % column, 1)
    reading = parse(raw)
    assert (reading.undecoded, list(reading.counters)) == (1, ["sda"])


@pytest.mark.parametrize("column", [b"4294967295", b"-1", b"18446744073709551615"])
def test_a_gauge_that_went_below_0_is_not_known(column):
    line = LINE_4_18.replace(b" 60 2 5", b" 60 %b 5" % column)
    assert parse(line).counters["sda"].in_flight is None


def test_hidden_disks_have_one_number_and_a_line_each():
    raw = (
        b"0 0 nvme1c1n1 100 0 800 200 0 0 0 0 0 0 0 0 0 0 0\n"
        b"0 0 nvme0c0n1 300 0 2400 900 0 0 0 0 0 0 0 0 0 0 0\n"
        b"259 2 nvme1n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    counters = parse(raw).counters
    assert {name: line.ops["read"].count for name, line in counters.items()} == {
        "nvme1c1n1": 100,
        "nvme0c0n1": 300,
        "nvme1n1": 0,
    }


def test_counts_wrap_at_32_bits_on_a_32_bit_kernel():
    before, after = counters(2**32 - 2, 2**32 - 16), counters(3, 24)
    assert difference(before, after, word=2**32) == {"read": totals(5, 40 * 512, 0)}


BEFORE = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**32 - 1))
MORE = st.tuples(*[st.integers(0, 2**31 - 1)] * 3)


@given(BEFORE, MORE)
def test_whatever_was_added_is_what_comes_out(before, more):
    count, sectors, ms = (a + b for a, b in zip(before, more, strict=True))
    expected = {"read": totals(more[0], more[1] * 512, more[2])}
    assert difference(counters(*before), counters(count, sectors, ms % 2**32)) == expected


def test_the_time_with_any_io_is_that_between_two_readings():
    before, after = Counters("vda", {}, active_us=4_000), Counters("vda", {}, active_us=9_000)
    assert device_difference(before, after) == DeviceCounters(5_000)
    assert device_difference(None, after) == DeviceCounters(9_000)
    wrapped = Counters("vda", {}, active_us=1_000)
    almost = Counters("vda", {}, active_us=(2**32 - 1) * 1000)
    assert device_difference(almost, wrapped) == DeviceCounters(2_000)
