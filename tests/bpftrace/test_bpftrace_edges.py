"""The begin and end of a capture: on-demand counts before it begins, and what is awaited at its end."""

import asyncio
from types import SimpleNamespace

import pytest

from latmon.capture.backend import Options
from latmon.decode.framer import TracerInterval
from latmon.model.frame import Flow, Traced
from latmon.model.inflight import PROBE, SYSFS, Depths
from latmon.model.measurements import ABOVE
from latmon.support.errors import ProbeGoneError
from latmon_backends.bpftrace.backend import BpftraceAlwaysOn
from latmon_backends.bpftrace.program import BpftraceTool, has_ring_buffer
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.probe_backend import with_probe
from latmon_backends.tracer.windows import without_earlier

SECOND = 1_000_000
BEGAN_US = 100 * SECOND
TABLES = {ABOVE: {Flow("dm-0", "read"): 3}}


def reported(begun_us):
    interval = TracerInterval(Traced(off=5), tables=TABLES, suppressed=2, undecoded=7)
    return TracerWindow(interval, ("a record",), Losses(lost=4, undecoded=1), ticks=1, begun_us=begun_us)


def test_what_began_before_the_capture_is_of_no_window():
    window = without_earlier(BEGAN_US, reported(BEGAN_US - 1))
    assert window.interval == TracerInterval(tables=TABLES, suppressed=2, undecoded=7)
    assert window.records == ("a record",)
    assert window.losses == Losses(lost=4, undecoded=1)


@pytest.mark.parametrize("window", [reported(BEGAN_US), reported(BEGAN_US + 9 * SECOND), TracerWindow()])
def test_what_began_within_it_counts(window):
    assert without_earlier(BEGAN_US, window) is window


class Telling:
    """A probe that prints a line each 10 ms until it is asked to end."""

    def __init__(self):
        self.reported, self._asked, self.killed = 0, False, False
        self.reported_three = asyncio.Event()

    def end(self):
        self._asked = True

    async def was_killed(self):
        return self.killed

    def decoded(self):
        return None

    async def next(self):
        await asyncio.sleep(0.01)
        if self._asked:
            return None
        self.reported += 1
        if self.reported == 3:
            self.reported_three.set()
        return self.reported


@pytest.fixture
def always():
    taken = []
    bpftrace_always_on = BpftraceAlwaysOn(Options(), None, None, None)
    bpftrace_always_on.probe = Telling()
    bpftrace_always_on._ticks = SimpleNamespace(
        end=lambda: None, ask=lambda: None, take=taken.append, last=lambda: taken, saw_last_line=True
    )
    return bpftrace_always_on


async def test_the_always_on_probe_outlasts_the_on_demand_ones(always):
    on_demand = asyncio.create_task(always.probe.reported_three.wait())
    await always.read_until_done(on_demand, 60)
    assert on_demand.done()
    assert (await always.last())[:3] == [1, 2, 3]


async def test_it_does_not_wait_for_ever(always):
    on_demand = asyncio.create_task(asyncio.sleep(600))
    await asyncio.wait_for(always.read_until_done(on_demand, 0.05), 30)
    on_demand.cancel()
    assert await always.last()


async def test_in_a_hurry_it_ends_with_them(always):
    on_demand = asyncio.create_task(asyncio.sleep(60))
    await always.read_until_done(on_demand, 0)
    on_demand.cancel()
    assert await always.last() == []


async def test_a_probe_that_ends_without_its_last_line_had_ended_by_itself(always):
    """Asked to end, it prints its maps once more, however late that is read."""
    always._ticks.saw_last_line = False
    with pytest.raises(ProbeGoneError, match="bpftrace had ended"):
        await always.last()


async def test_a_probe_that_the_shim_killed_was_there_to_the_end(always):
    always._ticks.saw_last_line = False
    always.probe.killed = True
    assert await always.last() == []


ONLINE = [
    ("0-1", []),
    ("0", []),
    ("0-1", []),
    ("0-2", []),  # others may follow
    ("0-2", [1, 2]),
    ("0-2", []),
    ("", []),  # not known
    ("0-2", []),
]


def test_cpus_whose_lines_are_lost_are_those_that_came_online(tmp_path):
    """bpftrace 0.17 has a buffer for each CPU that was online when it started."""
    tool = BpftraceTool("bpftrace", sudo=False, mount_tracefs=False, map_keys=1, reported="0.17.0")
    bpftrace_always_on = BpftraceAlwaysOn(Options(sys=tmp_path), tool, None, None)
    file = tmp_path / "devices/system/cpu/online"
    file.parent.mkdir(parents=True)
    for text, new in ONLINE:
        file.write_text(f"{text}\n")
        assert bpftrace_always_on._new_cpus() == new, text


@pytest.mark.parametrize(
    ("version", "kernel", "has"),
    [("0.17.0", "6.1.0-9-amd64", False), ("0.18.1", "5.4.0", False), ("0.18.1", "5.10.0", True), ("", "6.1", False)],
)
def test_which_tools_have_one_buffer_for_all_cpus(version, kernel, has):
    tool = BpftraceTool("/nonexistent", sudo=False, mount_tracefs=False, map_keys=1, reported=version)
    assert has_ring_buffer(tool, kernel) == has


def test_looks_of_the_probe_become_milliseconds_of_the_interval():
    """Some of them are dropped on a busy CPU: a second in which fewer were taken weighs no less."""
    sampled = {"sda": Depths({0: 1000}), "sdb": Depths({1: 1000}, {2: 1000})}
    reported = {"sda": Depths({0: 25, 3: 75}, {13: 100}, {3: 9}, source=PROBE), "sdc": Depths({1: 99}, source=PROBE)}
    found = with_probe(sampled, reported, 1_000_000, 10_000)
    assert found["sda"] == Depths({0: 250, 3: 750}, {13: 1000}, {3: 9}, source=PROBE)
    assert found["sdb"] == sampled["sdb"]
    assert found["sdc"].in_driver == {1: 1000}


def test_a_device_that_the_probe_did_not_look_at_keeps_its_samples():
    """It looks at the first eight; of others it counts what comes and goes."""
    sampled = {"sda": Depths({1: 1000}, {2: 1000})}
    found = with_probe(sampled, {"sda": Depths(at_issue={2: 9}, source=PROBE)}, 1_000_000, 4000)
    assert found == {"sda": Depths({1: 1000}, {2: 1000}, {2: 9}, source=SYSFS)}


def test_a_few_looks_do_not_replace_the_samples_of_a_long_interval():
    """The probe began at the end of the interval."""
    sampled = {"sda": Depths({1: 10_000}, {2: 10_000})}
    reported = {name: Depths({0: 3}, {0: 3}, {2: 9}, source=PROBE) for name in ("sda", "sdb")}
    found = with_probe(sampled, reported, 10_000_000, 4000)
    assert found["sda"] == Depths({1: 10_000}, {2: 10_000}, {2: 9}, source=SYSFS)
    assert found["sdb"] == Depths(at_issue={2: 9}, source=PROBE), "three samples are too few to report"


@pytest.mark.parametrize("looks", [{0: 1, 1: 1, 2: 1}, dict.fromkeys(range(256), 1), {0: 249, 7: 1}, {5: 3000}])
def test_milliseconds_of_looks_add_up_to_the_interval(looks):
    depths = with_probe({}, {"sda": Depths(looks, looks, source=PROBE)}, 1_000_700, 500_000)["sda"]
    assert sum(depths.in_driver.values()) == sum(depths.queued.values()) == 1000
    assert all(depths.in_driver.values())


def test_an_interval_whose_counts_were_set_right_is_sampled_alone():
    """The kernel skipped the programs of completions: what was counted before it was noticed never was in flight."""
    reported = {"sda": Depths({3: 200, 12: 50}, {0: 250}, {12: 9}, most=300, corrected=9, source=PROBE)}
    found = with_probe({"sda": Depths({3: 1000}, {0: 1000})}, reported, 1_000_000, 4000)
    assert found == {"sda": Depths({3: 1000}, {0: 1000}, corrected=9)}
