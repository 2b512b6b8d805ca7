"""Cost of programs, measured for a short time, and BPF_ENABLE_STATS itself."""

import os
import platform

import pytest

from latmon_backends.bpftrace.program import BpftraceTool
from latmon_backends.probe import launcher
from latmon_backends.probe.launcher import Direct, ProgramTotals
from latmon_backends.tracer import demand
from latmon_backends.tracer.demand import Measured

TOOL = BpftraceTool("/bin/false", sudo=False, mount_tracefs=False, map_keys=1)


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(demand, "cpu_ns", lambda _pid: 0)


class Told:
    """A launcher whose programs have run for so long, and so often, at each reading."""

    def __init__(self, *readings, counts=True, runs=()):
        self.readings, self.counts, self.switched = list(readings), counts, []
        self.runs, self.skipped = list(runs), 0

    async def totals(self, _pid):
        self.skipped += 3
        runs = self.runs.pop(0) if self.runs else None
        return ProgramTotals(run_ns=self.readings.pop(0), runs=runs, skipped=self.skipped)

    async def count_time(self, *, on):
        self.switched.append(on)
        return on and self.counts


async def test_percent_of_one_cpu_and_the_counting_is_given_back():
    reported = Told(1_000, 5_001_000)
    (found,) = await demand.measure(reported, [7], 0.05)
    assert 2 < found.percent <= 10
    assert found.skipped == 6
    assert reported.switched == [True, False]


async def test_calls_of_programs_and_the_process_cost_too(monkeypatch):
    process_ns = iter((7_000_000, 9_000_000))
    monkeypatch.setattr(demand, "cpu_ns", lambda _pid: next(process_ns))
    # 5 ms of run time, 3 ms for 60,000 calls, 2 ms of the process.
    (found,) = await demand.measure(Told(0, 5_000_000, runs=(40_000, 100_000)), [7], 0.05)
    assert 5 < found.percent <= 20


async def test_what_cannot_be_read_is_not_known():
    assert await demand.measure(Told(None, 5), [7], 0.0) == (Measured(None, 6),)
    without = Told(1, 2, counts=False)
    assert await demand.measure(without, [7, 8]) == (Measured(None, 3), Measured(None, 6))


async def test_a_counter_that_went_back_is_nothing():
    assert await demand.measure(Told(5, 1), [7], 0.001) == (Measured(0.0, 6),)


async def test_the_counting_is_given_back_whatever_happens():
    reported = Told(1)
    with pytest.raises(IndexError):
        await demand.measure(reported, [7], 0.0)
    assert reported.switched == [True, False]


def test_a_machine_whose_call_has_no_known_number(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        launcher.open_stats()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have run times counted")
async def test_counting_is_a_file_that_is_ours_alone():
    direct = Direct(TOOL)
    if not await direct.count_time(on=True):
        pytest.skip("this kernel or container has no BPF_ENABLE_STATS")
    assert not os.get_inheritable(direct._stats)
    assert await direct.count_time(on=True)
    await direct.close()
    assert direct._stats < 0
