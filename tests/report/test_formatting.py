"""Sentences on I/Os in flight, how texts are wrapped, and quantiles of wide buckets."""

import pytest

from latmon.report.columns import cell
from latmon.report.html_elements import quantile
from latmon.report.in_flight import MOST, DeviceInFlight, at_the_end, in_flight_by_device, not_completed
from latmon.report.model.latency import Quantiles
from latmon.support.text import WIDTH, wrapped
from latmon.views.lines import wrap

S = 1_000_000


def test_a_device_s_rows_are_one_and_the_oldest_is_first():
    rows = [("sda", 1, 3 * S, False), ("loop3", 2, 40 * S, True), ("sda", 4, 50 * S, False), ("sdb", 1, S // 2, False)]
    assert in_flight_by_device(rows) == [
        DeviceInFlight("sda", 5, 50 * S, at_least=False),
        DeviceInFlight("loop3", 2, 40 * S, at_least=True),
    ]


def test_no_device_has_an_old_io():
    assert in_flight_by_device([("sda", 1, S - 1, False)]) == []
    assert (at_the_end([]), not_completed([])) == ("", "")


def test_sentences():
    device_in_flight, two = (
        DeviceInFlight("sda", 1, 40 * S, at_least=False),
        DeviceInFlight("loop3", 2, 65 * S, at_least=True),
    )
    assert not_completed([device_in_flight]) == "sda: 1 I/O in flight for 40 s, not completed"
    assert at_the_end([two, device_in_flight]) == "loop3: 2 I/Os, the oldest for at least 65 s; sda: 1 I/O for 40 s"


def test_more_devices_than_a_line_has_room_for_are_a_number():
    each = [DeviceInFlight(f"sd{n}", 1, S, at_least=False) for n in range(MOST + 3)]
    assert at_the_end(each).endswith("sd3: 1 I/O for 1 s; 3 more devices")


@pytest.mark.parametrize(
    ("top_us", "text", "page"), [(150, "~130us", "~ 130 us"), (129, "129us", "129 us"), (None, "~130us", "~ 130 us")]
)
def test_a_quantile_of_a_wide_bucket_is_not_above_the_maximum(top_us, text, page):
    latency = Quantiles(
        count=1, p50=128, p90=None, p99=None, p99_9=None, p99_99=None, max=top_us, mean=None, octave_parts=1
    )
    assert (cell(latency, "p50"), quantile(latency, "p50")) == (text, page)


@pytest.mark.parametrize("unit", ["us", "ms", "s", "min", "IOPS", "kB", "MB/s", "GiB"])
def test_a_number_and_its_unit_are_in_one_line(unit):
    before = "a" * (WIDTH - 5)
    assert wrapped(f"{before} 629 {unit} of it") == [before, f"  629 {unit} of it"]
    assert wrapped(f"{before} 629 stuck") == [f"{before} 629", "  stuck"]
    assert wrap(f"{before} 629 {unit} of it", WIDTH) == [before, f"629 {unit} of it"]
    assert wrap(f"629 {unit}", 4)[0] == "629", "not truncated where both have no place"
