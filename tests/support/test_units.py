"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.support.units import duration_us, show_duration, show_size, size_bytes, speed


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1s", 1_000_000),
        ("250ms", 250_000),
        ("5m", 300_000_000),
        ("1h", 3_600_000_000),
        ("2", 2_000_000),
        ("1.5s", 1_500_000),
        ("0.1s", 100_000),
        (" 10 MS ", 10_000),
        ("100us", 100),
        ("2min", 120_000_000),
    ],
)
def test_durations(text, us):
    assert duration_us(text) == us


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "1 s 2", "nan", "٣s", "1d", "1s\n2", "9" * 40, "1_0s"])
def test_what_is_no_duration_is_quoted(text):
    with pytest.raises(ValueError, match="is not a duration such as 250ms"):
        duration_us(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("2G", 2 << 30), ("100k", 102_400), ("7", 7), ("1MiB", 1 << 20), ("1MB", 1 << 20)],
)
def test_sizes(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1X", "1s"])
def test_what_is_no_size_is_quoted(text):
    with pytest.raises(ValueError, match="is not a size such as 512M"):
        size_bytes(text)


@given(st.integers(1, 10**12))
def test_a_shown_duration_reads_back_to_six_digits(us):
    assert duration_us(show_duration(us)) == pytest.approx(us, rel=1e-6)


@pytest.mark.parametrize(
    ("us", "shown"), [(1_000_000, "1s"), (250_000, "250ms"), (1_500_000, "1.5s"), (60_000_000, "1min"), (0, "0s")]
)
def test_shown_durations(us, shown):
    assert show_duration(us) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (12_800, "12.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (200 << 20, "200 MiB"),
        (3_400_000, "3.2 MiB"),
        (10**13, "9.1 TiB"),
        (2**60, "1048576 TiB"),
    ],
)
def test_shown_sizes(count, shown):
    assert show_size(count) == shown


@pytest.mark.parametrize(
    ("bytes_per_s", "shown"),
    [(0, "0 B/s"), (0.3, "0.3 B/s"), (820, "820 B/s"), (409_600, "410 kB/s"), (6.12e6, "6.12 MB/s"), (2e7, "20 MB/s")],
)
def test_speeds(bytes_per_s, shown):
    assert speed(bytes_per_s) == shown
