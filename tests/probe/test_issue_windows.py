"""`issue` records to runs of consecutive issues: what a probe left out lies between two runs, never in one."""

from pathlib import Path

import pytest

from latmon.decode.tables import Record
from latmon.manifest import load
from latmon.model.inflight import Issue
from latmon_backends.probe import tick_protocol
from latmon_backends.probe.events import Printed
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.tick_protocol import WINDOW, IssueWindows, Losses, OnDemandSurroundings, OnDemandTicks
from latmon_backends.tracer.windows import with_records_of

SDA, SDB = 8 << 20, (8 << 20) | 16
PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
FIELDS = ("window_ns", "dev", "op", "sector", "bytes", "issued_ns", "queued_us")


def record(window, at_us, dev=SDA, **fields):
    reported = dict(zip(FIELDS, (window, dev, 0, at_us * 8, 4096, at_us * 1000 + 999, 7), strict=True)) | fields
    return Record("issue", "order_a", {name: value for name, value in reported.items() if value is not None})


@pytest.fixture
def windows():
    return IssueWindows({SDA: "sda", SDB: "sdb"}.get)


def fill(windows, window, begin_us, count=WINDOW, dev=SDA):
    for n in range(count):
        assert windows.take(record(window, begin_us + n, dev))


def spans(windows):
    return {device: (run[0].mono_us, run[-1].mono_us, len(run)) for device, run in windows.taken().items()}


def test_a_record_is_an_issue(windows):
    windows.take(record(5, 1000, op=7, queued_us=3_200_000))
    assert windows.taken() == {"sda": (Issue(1000, 8000, 4096, "write", 3_200_000),)}


def test_they_are_reported_once_and_in_order(windows):
    for at in (3, 1, 2):
        windows.take(record(5, at))
    assert [one.mono_us for one in windows.taken()["sda"]] == [1, 2, 3]
    assert windows.taken() == {}


def test_a_window_that_was_not_filled_goes_on_in_the_next(windows):
    """With few I/Os the probe reported all of them."""
    fill(windows, 1, 0, 100)
    fill(windows, 2, 1000, 100)
    assert spans(windows) == {"sda": (0, 1099, 200)}


def test_behind_a_full_window_some_were_left_out(windows):
    fill(windows, 1, 0, WINDOW)
    fill(windows, 2, 1000, 20)
    assert spans(windows) == {"sda": (0, WINDOW - 1, WINDOW)}


def test_of_equal_runs_the_newer(windows):
    fill(windows, 1, 0)
    fill(windows, 2, 1000)
    assert spans(windows) == {"sda": (1000, 1000 + WINDOW - 1, WINDOW)}


def test_devices_have_windows_of_their_own(windows):
    fill(windows, 1, 0, 10)
    fill(windows, 1, 100, 20, SDB)
    assert spans(windows) == {"sda": (0, 9, 10), "sdb": (100, 119, 20)}


def test_a_device_that_is_not_wanted_is_not_reported(windows):
    assert windows.take(record(1, 1, dev=99))
    assert windows.taken() == {}


@pytest.mark.parametrize("name", FIELDS)
def test_one_that_lacks_something_is_none(windows, name):
    assert not windows.take(record(1, 1, **{name: None}))
    assert windows.taken() == {}


def test_no_more_are_kept_than_there_is_room_for(windows, monkeypatch):
    monkeypatch.setattr(tick_protocol, "MAX_ISSUES", 3)
    assert [windows.take(record(1, at)) for at in range(5)] == [True, True, True, False, False]
    assert spans(windows) == {"sda": (0, 2, 3)}
    assert windows.take(record(2, 9))


# Output of the tracer


@pytest.fixture
def ticks(tmp_path):
    manifests = [load(PROBES / f"{name}.yaml") for name in ("stages_c", "order_c")]
    around = OnDemandSurroundings(map_keys=100, ahead_us=lambda _: 500)
    return OnDemandTicks(manifests, {SDA: "sda"}.get, Threads(tmp_path), around)


def test_a_line_of_the_probe_is_reported_on_our_clock_without_a_tick(ticks):
    ticks.take(Printed(f"issue order_c 9 {SDA} 0 800 4096 1500000 3200000"))
    window = ticks.taken()
    assert window.issues == {"sda": (Issue(1000, 800, 4096, "read", 3_200_000),)}
    assert (window.records, window.losses) == ((), Losses())
    assert ticks.taken().issues == {}


def test_one_that_is_torn_is_counted(ticks):
    ticks.take(Printed(f"issue order_c 9 {SDA} 0 800"))
    window = ticks.taken()
    assert (window.issues, window.losses.undecoded) == ({}, 1)


def test_what_a_process_reported_to_its_end_is_not_lost(ticks):
    ticks.take(Printed(f"issue order_c 9 {SDA} 0 800 4096 1500000 32"))
    earlier = ticks.taken()
    later = tick_protocol.TracerWindow(ticks=1, issues={"sdb": earlier.issues["sda"]})
    assert with_records_of(earlier, later).issues.keys() == {"sda", "sdb"}


def test_the_scripts_have_the_same_window():
    for name in ("order_a", "order_c"):
        text = (PROBES / f"{name}.bt").read_text()
        assert f"$taken < {WINDOW}" in text
        assert f"(uint64){WINDOW + 1}" in text
