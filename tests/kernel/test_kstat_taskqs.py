"""Reported task queues and their values. The output is synthetic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from latmon.model.frame import Taskq
from latmon_backends.kernel import kstat
from latmon_backends.kernel.counters import FrameClock
from latmon_backends.kernel.kstat import EVERY_US, TaskqSampler, is_of_io

GOLDEN = Path(__file__).parents[1] / "golden" / "kstat"
FIRST, SECOND = ((GOLDEN / f"solaris-taskq-{n}-synthetic.txt").read_bytes() for n in (1, 2))


class Machine:
    def __init__(self, *readings: bytes) -> None:
        self.readings, self.now, self.asked = list(readings), 0, 0

    def run(self, words: tuple[str, ...]) -> bytes:
        assert words == ("-p", "-c", "taskq")
        self.asked += 1
        return self.readings.pop(0)

    @property
    def sampler(self) -> TaskqSampler:
        return TaskqSampler(FrameClock(lambda: self.now, lambda: 0.0), self.run)


def read(*readings: bytes) -> tuple[Taskq, ...]:
    """The result of the last reading."""
    machine = Machine(*readings)
    sampler = machine.sampler
    reported = None
    for _ in readings:
        reported = sampler.sample()
        machine.now += EVERY_US
    assert reported is not None
    return reported


def test_it_is_read_every_ten_seconds():
    machine = Machine(FIRST, SECOND)
    sampler = machine.sampler
    assert sampler.sample() is not None
    machine.now = EVERY_US - 1
    assert sampler.sample() is None
    assert machine.asked == 1
    machine.now = EVERY_US
    assert sampler.sample() is not None


def test_permanent_loops_are_no_items_of_a_queue():
    """QLogic's completion threads of Solaris 11.3: each of the 8 tasks is a loop, none has ever ended."""
    qlc = next(taskq for taskq in read(FIRST, SECOND) if taskq.name == "qlc_0_comp_thd")
    assert (qlc.threads, qlc.active, qlc.waiting, qlc.priority, qlc.ever) == (8, 8, 0, 99, 0)
    assert (qlc.tasks, qlc.executed, qlc.time_us) == (0, 0, 0)
    assert qlc.loops


def test_counts_are_those_since_the_reading_before():
    zio = next(taskq for taskq in read(FIRST, SECOND) if taskq.name == "zio_write_intr")
    assert zio == Taskq(
        "zio_write_intr",
        0,
        threads=8,
        priority=99,
        active=8,
        waiting=322,
        most=300,
        ever=6200,
        span_us=EVERY_US,
        tasks=1530,
        executed=1200,
        time_us=24_000,
    )
    assert not zio.loops


def test_of_a_first_reading_only_what_is_now_is_known():
    reported = read(FIRST)
    assert {taskq.name for taskq in reported} == {"zio_write_intr", "qlc_0_comp_thd"}
    assert {(taskq.span_us, taskq.tasks, taskq.executed, taskq.time_us) for taskq in reported} == {(0, 0, 0, None)}


def test_the_busy_ones_are_reported_those_of_io_first():
    assert [(taskq.name, taskq.instance) for taskq in read(FIRST, SECOND)] == [
        ("zio_write_intr", 0),
        ("qlc_0_comp_thd", 0),
        ("callout_taskq", 0),
    ]


def test_no_busy_queue_is_not_the_same_as_none_read():
    idle = b"".join(line for line in FIRST.splitlines(True) if b"idle_taskq" in line)
    assert read(idle, idle) == ()


def test_a_queue_made_again_has_counts_of_its_own():
    again = SECOND.replace(b"zio_write_intr:crtime\t60.1", b"zio_write_intr:crtime\t1199080.5")
    zio = next(taskq for taskq in read(FIRST, again) if taskq.name == "zio_write_intr")
    assert (zio.span_us, zio.executed, zio.time_us, zio.ever) == (0, 0, None, 6200)


@pytest.mark.parametrize("name", ["executed", "tasks", "totaltime"])
def test_counters_of_a_queue_that_fell_are_not_known(name):
    second = re.sub(rb"(zio_write_intr:%b\t)\d+" % name.encode(), rb"\g<1>7", SECOND)
    zio = next(taskq for taskq in read(FIRST, second) if taskq.name == "zio_write_intr")
    assert (zio.span_us, zio.executed, zio.time_us) == (0, 0, None)


def test_there_are_no_more_than_a_screen_takes(monkeypatch):
    monkeypatch.setattr(kstat, "MAX_REPORTED", 1)
    assert [taskq.name for taskq in read(FIRST, SECOND)] == ["zio_write_intr"]


@pytest.mark.parametrize("number", [b"-1", b"x", b"9" * 20])
def test_a_queue_that_makes_no_sense_is_counted(number):
    machine = Machine(FIRST.replace(b"qlc_0_comp_thd:nactive\t8", b"qlc_0_comp_thd:nactive\t" + number))
    sampler = machine.sampler
    assert "qlc_0_comp_thd" not in {taskq.name for taskq in sampler.sample() or ()}
    assert sampler.undecoded == 1


@pytest.mark.parametrize(
    "name", ["qlc_0_comp_thd", "emlxs0", "emlxs_thread", "mpt_sas3", "zio_read_intr_3", "zfs_vn_rele_taskq", "sd_drain"]
)
def test_queues_of_io_are_known_by_their_names(name):
    assert is_of_io(name)


@pytest.mark.parametrize("name", ["callout_taskq", "sdpib_taskq", "zfsx", "system_taskq", "timeout_taskq", ""])
def test_others_are_not(name):
    assert not is_of_io(name)
