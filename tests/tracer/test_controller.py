"""The tracer's process, with shell scripts in place of bpftrace: when it starts, what frames contain, what ends it."""

import asyncio
import contextlib
import re
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from synthetic_btf import ENUM, Btf

from latmon.capture.backend import Options
from latmon.capture.mounts import MountTable
from latmon.decode.framer import TracerInterval, unnamed_cgroup
from latmon.model.frame import FILES, TRACER_STARTING, Completed, Device, Flow, Frame, Health
from latmon.model.inflight import InFlightList
from latmon.model.measurements import ABOVE
from latmon_backends.bpftrace.program import BpftraceTool
from latmon_backends.bpftrace.tracer import BpftracePrograms, ScriptInventory, TracerHost
from latmon_backends.probe import outliers
from latmon_backends.probe.launcher import SAMPLE, Direct, ProgramTotals
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.tick_protocol import TracerWindow
from latmon_backends.tracer import controller
from latmon_backends.tracer import demand as tracer_budget
from latmon_backends.tracer.controller import OnDemand
from latmon_backends.tracer.demand import LOOKED_S, PAUSE_S, Want
from latmon_backends.tracer.notices import traced_text
from latmon_backends.tracer.programs import Target, TracerSample
from latmon_backends.tracer.run import SampleSince, TracerRun, sampled_over

DEVICES = {
    "sda": Device("sda", 8, 0),
    "sdb": Device("sdb", 8, 16),
    "dm-0": Device("dm-0", 253, 0, kind="dm", members=("sda", "sdb"), timed=False),
}
NO_AGES = "dm-0: the ages of its I/Os in flight are not known: needs tier A: bpftrace 0.19 or newer, kernel BTF"
INVENTORY = ScriptInventory(Options(sys=Path("/nonexistent")))
TICKS = r"""
ready() { echo '{"type": "printf", "data": "ready x 1"}'; }
tick() { echo "{\"type\": \"printf\", \"data\": \"tick stages_c $1 ${1}000000\"}"
         echo '{"type": "printf", "data": "done stages_c"}'; }
ready; tick 1
"""
LIVES = TICKS + "n=1; trap 'exit 0' TERM; while :; do n=$((n + 1)); tick $n; sleep 0.05; done"
_NOW_NS = "$(awk '{printf \"%.0f\", $1 * 1e9}' /proc/uptime)"
BY_THE_CLOCK = TICKS.replace("${1}000000", _NOW_NS) + LIVES.removeprefix(TICKS)
"""Ticks at their own time: a window's sample is known by that of its ticks."""


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch):
    monkeypatch.setattr(controller, "LOOK_S", 0.02)
    monkeypatch.setattr(tracer_budget, "FIRST_AFTER_S", 1e9)
    monkeypatch.setattr(tracer_budget, "PHASE_S", 0.01)


class Filtered(Direct):
    """A process whose filter of devices can be written, which that of a shell script can't: what was written."""

    def __init__(self, tool):
        super().__init__(tool)
        self.written = {}
        self.changes = []

    @property
    def writes_maps(self):
        return True

    async def trace_devices(self, _pid, traced):
        self.written |= traced
        self.changes.append(traced)
        return True

    @property
    def traced(self):
        return {number for number, on in self.written.items() if on}


class Measured(Filtered):
    """A process whose programs take these percents of a CPU, one after the other, which a real one can't be made to."""

    def __init__(self, tool, *percents, skipped=None):
        super().__init__(tool)
        self.percents, self.counting = list(percents), []
        self._ns, self._skipped = 0, skipped

    async def totals(self, _pid):
        if self._ns % 2:
            self._ns += 2 * int(1e12 * self.percents[0])  # in 10 ms, or a little more
        self._ns += 1
        return ProgramTotals(run_ns=self._ns, runs=0, skipped=self._skipped)

    async def count_time(self, *, on):
        self.counting.append(on)
        return on


@pytest.fixture
async def on_demand(tmp_path):
    """Make an OnDemand whose tool is these lines of shell; each program that is run is kept."""
    made = []

    def make(
        lines=LIVES,
        *,
        mode="auto",
        launcher=Filtered,
        devices=DEVICES,
        globs=(),
        budget=5.0,
        limit=0.0,
        clock=time.monotonic,
    ):
        path = tmp_path / "bpftrace"
        keep = f'for word; do :; done; printf "%s\\0" "$word" >> {tmp_path}/programs\n'
        path.write_text(f"#!/bin/sh\n{keep}{lines}\n")
        path.chmod(0o755)
        roots = {"sys": tmp_path, "proc": tmp_path}
        options = Options(stages=mode, devices=globs, budget_percent=budget, max_overhead=limit, **roots)
        tracer_host = TracerHost(
            tier="C",
            always_on={},
            devices=lambda: devices,
            selects=lambda device: not globs or device.name in globs,
            device_name={device.major << 20 | device.minor: name for name, device in devices.items()}.get,
            threads=Threads(tmp_path),
            cgroup=unnamed_cgroup,
            mounts=MountTable(tmp_path),
        )
        tool = BpftraceTool(str(path), sudo=False, mount_tracefs=False, map_keys=8192)
        programs = BpftracePrograms(options, tracer_host, INVENTORY)
        on_demand = OnDemand(options, launcher(tool), programs, clock, always_on=lambda: 1)
        made.append(on_demand)
        on_demand.begin()
        return on_demand

    yield make
    for current_on_demand in made:
        await current_on_demand.close()


@pytest.fixture
def programs(tmp_path):
    def read():
        kept = tmp_path / "programs"
        return kept.read_text().split("\0")[:-1] if kept.exists() else []

    return read


FRAME = Frame(seq=1, wall=0.0, mono_us=1_000_000, dt_us=1_000_000)


class Seen(list):
    """Frames, one after the other, until one is as wanted, with their notices."""

    @property
    def notice(self):
        return "\n".join(one.health.notice for one in self if one.health.notice)


async def until(on_demand, wanted, frame=FRAME, seconds=60.0):
    seen = Seen()
    async with asyncio.timeout(seconds):
        while not seen or not wanted(seen[-1]):
            await asyncio.sleep(0.02)
            seen.append(with_tracer(on_demand, frame))
    return seen


def with_tracer(on_demand, frame):
    """Return the frame with what the tracer says about itself."""
    part = on_demand.part(frame)
    return replace(frame, traced=part.traced, in_flight=part.in_flight, health=part.health)


def traced(frame):
    return frame.traced.one_in > 0


class Refuses(Filtered):
    async def trace_devices(self, _pid, traced):
        self.changes.append(traced)
        return False


async def test_all_traces_a_sample_of_a_fast_disk(on_demand, programs):
    """Without a restart; a slower rate makes it finer again."""
    tracer = on_demand(BY_THE_CLOCK, mode="all")
    await until(tracer, traced)
    for ios, one_in in ((100_000, 64), (7_000, 4), (100, 1)):
        await until(tracer, lambda frame, wanted=one_in: frame.traced.one_in == wanted, busy(ios))
        assert tracer._launcher.written[SAMPLE] == one_in - 1
    assert len(programs()) == 1


async def test_where_no_sample_can_be_written_each_one_is_traced(on_demand, programs):
    tracer = on_demand(mode="all", launcher=Refuses)
    await until(tracer, traced)
    await until(tracer, lambda _frame: bool(tracer._launcher.changes), busy(100_000))
    seen = [with_tracer(tracer, busy(100_000)) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert {frame.traced.one_in for frame in seen} <= {0, 1}
    assert (len(tracer._launcher.changes), len(programs())) == (1, 1)


def busy(ios):
    return replace(FRAME, seen={Flow("sda", "read"): Completed(ios, 0)})


async def test_all_is_from_the_start_and_for_every_device(on_demand, programs):
    seen = await until(on_demand(mode="all"), traced)
    assert len(seen) == 1 or seen[0].traced.one_in == 0  # a busy host looks when it has begun already
    assert {one.reason for frame in seen[1:-1] for one in frame.traced.absent} <= {"the tracer is starting"}
    assert seen.notice == f"tracing stages of all devices: --stages all; {NO_AGES}"
    assert seen[-1].traced.devices == ()
    assert (seen[-1].health.probes_attached, seen[-1].health.probes_wanted) != (0, 0)
    (program,) = programs()
    assert "BEGIN" in program
    assert "@order_c_" in program


async def test_basic_starts_nothing(on_demand, programs):
    tracer = on_demand(mode="basic")
    tracer.request_tracing(("sda",))
    await asyncio.sleep(0.2)
    assert with_tracer(tracer, FRAME) == FRAME
    assert programs() == []


async def test_who_looks_is_served_and_the_kernel_filters(on_demand, programs):
    tracer = on_demand()
    await asyncio.sleep(0.1)
    assert programs() == []
    tracer.request_tracing(("sdb",))
    seen = await until(tracer, traced)
    assert seen[-1].traced.devices == ("sdb",)
    assert seen.notice == "tracing stages of sdb while this screen is open"
    assert tracer._launcher.traced == {8 << 20 | 16}
    assert "@traced[(uint64)4294967296] = (uint64)0;" in programs()[0]


async def test_a_device_without_requests_is_traced_at_its_members(on_demand):
    tracer = on_demand()
    tracer.request_tracing(("dm-0",))
    assert (await until(tracer, traced))[-1].traced.devices == ("dm-0", "sda", "sdb")


async def test_bios_are_traced_unless_all_devices_have_requests_and_some_are_wanted(on_demand, programs):
    only = {"sda": DEVICES["sda"]}
    await until(on_demand(mode="all", devices=only), traced)
    for devices in (DEVICES, only):
        tracer = on_demand(devices=devices)
        tracer.request_tracing(("sda",))
        await until(tracer, traced)
    assert ["@bios_c_" in program for program in programs()] == [True, True, False]


async def test_the_first_device_without_requests_takes_the_scripts_for_bios_in(on_demand, programs):
    devices = {"sda": DEVICES["sda"]}
    tracer = on_demand(BY_THE_CLOCK, devices=devices)
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    devices["dm-0"] = DEVICES["dm-0"]
    tracer.request_tracing(("dm-0",))
    seen = await until(tracer, lambda frame: "took over" in frame.health.notice)
    assert "another tracer took over for a device without requests" in seen.notice
    assert "dm-0" in (await until(tracer, traced))[-1].traced.devices
    assert ["@bios_c_" in program for program in programs()] == [False, True]


async def test_operations_on_files_are_traced_once_a_screen_shows_them(on_demand, programs):
    tracer = on_demand(BY_THE_CLOCK)
    tracer.request_tracing(("sda",))
    without = (await until(tracer, traced))[-1].traced.absent
    assert {missing.name for missing in without} >= {FILES}
    assert "while a live screen 2 is open" in next(missing.reason for missing in without if missing.name == FILES)
    tracer.request_tracing(("sda",), files=True)
    seen = await until(tracer, lambda frame: traced(frame) and FILES not in {each.name for each in frame.traced.absent})
    assert not [frame for frame in seen if {each.reason for each in frame.traced.absent} & {TRACER_STARTING}]
    seen += await until(tracer, lambda frame: "took over" in frame.health.notice)
    assert "another tracer took over for operations on files" in seen.notice
    assert re.search(r"interrupts, softirqs and wake-ups were not counted for up to \d+\.\d s", seen.notice)
    assert "no stage was traced" not in seen.notice
    # The first one's filter is emptied once; the second one has its own.
    sda = 8 << 20
    assert tracer._launcher.changes == [{sda: True}, {sda: True}, {SAMPLE: 0}, {sda: 0}]
    assert ["@files_c_" in program for program in programs()] == [False, True]
    tracer._demand._looked_at_files -= LOOKED_S
    tracer.request_tracing(("sda",))
    for _ in range(5):
        await until(tracer, traced)
    assert len(programs()) == 2, "a restart for a screen that was left would only lose data"


def created(name, major, minor=0, **others):
    return Device(name, major, minor, timed=False, **others)


async def test_a_volume_that_is_created_later_is_followed_by_the_program_that_runs(on_demand, programs):
    """Its filter leaves out the majors of devices with requests, never dm's: other volumes may have none."""
    devices = {"sda": DEVICES["sda"], "dm-0": Device("dm-0", 253, 0, kind="dm"), "loop0": Device("loop0", 7, 0)}
    tracer = on_demand(mode="all", devices=devices)
    await until(tracer, traced)
    devices |= {"dm-1": created("dm-1", 253, 1, kind="dm"), "zram0": created("zram0", 252)}
    seen = await until(tracer, lambda frame: "dm-1" in frame.health.notice)
    assert "dm-1, zram0: the ages of its I/Os in flight are not known" in seen.notice
    (program,) = programs()
    assert {int(number) for number in re.findall(r"\$major != (\d+)", program)} == {0, 7, 8}


async def test_a_device_that_can_not_be_followed_is_named_once_as_long_as_it_is_there(on_demand, programs):
    devices = {"nvme0n1": Device("nvme0n1", 259, 0)}
    tracer = on_demand(mode="all", devices=devices)
    await until(tracer, traced)
    for _ in range(2):
        devices["nvme1n1"] = created("nvme1n1", 259, 1, kind="nvme-head")
        seen = await until(tracer, lambda frame: frame.health.notice)
        text = "its bios are not traced: its major, 259, had only devices with requests before"
        assert seen.notice == f"nvme1n1: {text}"
        del devices["nvme1n1"]
        seen = await until(tracer, lambda _: not tracer._notices._unfollowed)
        assert seen.notice == ""
    assert len(programs()) == 1


async def test_a_device_that_the_kernels_filter_lacks_is_taken_in(on_demand, programs):
    devices = {"sda": DEVICES["sda"]}
    tracer = on_demand(mode="all", devices=devices, globs=("sda", "sdb"))
    await until(tracer, traced)
    devices["sdb"] = DEVICES["sdb"]
    await until(tracer, lambda frame: "sdb" in frame.traced.devices)
    del devices["sda"]
    await until(tracer, lambda frame: frame.traced.devices == ("sdb",))
    sda, sdb = 8 << 20, 8 << 20 | 16
    assert tracer._launcher.traced == {sdb}
    # An entry that stays keeps its time: starts from before it are not used.
    assert tracer._launcher.changes == [{sda: True}, {sdb: True}, {sda: False}]
    assert len(programs()) == 1


def test_what_was_in_flight_when_a_device_was_added_is_not_known():
    """The list of all devices has one begin."""
    now = [1.0]

    class Listed:
        def taken(self):
            return TracerWindow(TracerInterval(in_flight=InFlightList(since_us=500_000)), ticks=1)

    def target(*numbers):
        return Target(tuple(f"sd{n}" for n in numbers), numbers, filtered=True)

    def since(*numbers):
        now[0] += 1
        run.retarget(Want(), target(*numbers))
        return run.taken().interval.in_flight.since_us

    run = TracerRun(None, Listed(), Want(), target(1, 2), sample=TracerSample(), left_out=(), clock=lambda: now[0])
    assert [since(1), since(1, 3), since(3), since(), since(2)] == [500_000, 3_000_000, 3_000_000, 5_000_000, 5_000_000]


@pytest.mark.parametrize(
    ("changes", "followed"),
    [
        ([(1, 3)], ("sd1",)),
        ([(1,), (1, 2)], ("sd1",)),
        ([(1, 2, 3)], ("sd1", "sd2")),
        ([()], ("sd1", "sd2")),
        ([(3,)], None),
        ([(3,), (1, 2)], None),
    ],
)
def test_only_of_devices_that_were_traced_all_the_time_what_is_in_flight_is_known(changes, followed):
    class Listed:
        def taken(self):
            return TracerWindow(TracerInterval(in_flight=InFlightList()), ticks=1)

    def target(*numbers):
        return Target(tuple(f"sd{n}" for n in numbers), numbers, filtered=True)

    run = TracerRun(None, Listed(), Want(), target(1, 2), sample=TracerSample(), left_out=(), clock=lambda: 1.0)
    for numbers in changes:
        run.retarget(Want(), target(*numbers))
    waiting = run.taken().interval.in_flight
    assert (waiting and waiting.devices) == followed
    assert run.taken().interval.in_flight.devices == tuple(f"sd{n}" for n in changes[-1])


async def test_the_users_globs_are_a_filter_as_well(on_demand):
    assert (await until(on_demand(mode="all", globs=("sdb",)), traced))[-1].traced.devices == ("sdb",)


MANY = {f"sd{n}": Device(f"sd{n}", 8, 16 * n) for n in range(6)}


class Refused(Direct):
    """A process whose filter of devices turns out not to be writable."""

    writes_maps = True

    async def trace_devices(self, _pid, _traced):
        return False


class WithoutRights(Refused):
    writes_maps = False


async def test_where_no_filter_can_be_written_one_program_is_compiled(on_demand, programs):
    """Without root the kernel opens no map by its number, which is known before the first program is."""
    tracer = on_demand(devices=MANY, launcher=WithoutRights)
    tracer.request_tracing(("sd0",))
    seen = await until(tracer, traced)
    assert seen.notice == "tracing stages of all devices: the tracer's filter can't be written here"
    assert ["1 == 1 || @traced[" in program for program in programs()] == [True]


async def test_all_are_traced_where_the_filter_can_not_be_written_and_it_is_reported(on_demand, programs):
    tracer = on_demand(devices=MANY, launcher=Refused)
    tracer.request_tracing(("sd0",))
    seen = await until(tracer, traced)
    assert seen.notice == "tracing stages of all devices: the tracer's filter can't be written here"
    assert seen[-1].traced.devices == ()
    tracer.request_tracing(("sd1",))
    await asyncio.sleep(0.2)
    assert (await until(tracer, traced))[-1].traced.devices == ()
    assert ["1 == 1 || @traced[" in program for program in programs()] == [False, True]


class FailsOnce(Filtered):
    """A process whose filter can't be written the first time."""

    failed = False

    async def trace_devices(self, pid, traced):
        failed, self.failed = self.failed, True
        return failed and await super().trace_devices(pid, traced)


async def test_a_filter_that_could_not_be_written_is_tried_again_after_a_while(on_demand, programs):
    """A start meanwhile compiles one program, not two."""
    later_s = [0.0]
    tracer = on_demand(devices=MANY, launcher=FailsOnce, clock=lambda: time.monotonic() + later_s[0])
    devices = []
    for name, later_s[0] in (("sd0", 0.0), ("sd1", 60.0), ("sd2", 60.0 + PAUSE_S)):
        tracer.set_stages("auto")
        tracer.request_tracing((name,))
        devices.append((await until(tracer, traced))[-1].traced.devices)
        tracer.set_stages("basic")
        await until(tracer, lambda _: not tracer.runs)
    assert devices == [(), (), ("sd2",)]
    assert ["1 == 1 || @traced[" in program for program in programs()] == [False, True, True, False]


class EndsOnce(FailsOnce):
    """A process that ends before its filter is written, the first time."""

    async def trace_devices(self, pid, traced):
        if not self.failed:
            first = psutil.Process(pid)
            for child in (*first.children(recursive=True), first):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        return await super().trace_devices(pid, traced)


async def test_the_end_of_a_process_is_no_reason_to_trace_all_devices(on_demand, programs):
    tracer = on_demand(launcher=EndsOnce)
    tracer.request_tracing(("sda",))
    seen = await until(tracer, lambda frame: len(programs()) > 1 and traced(frame))
    assert seen[-1].traced.devices == ("sda",)
    assert "the tracer ended and is restarted" in seen.notice
    assert ["1 == 1 || @traced[" in program for program in programs()] == [False, False]


class Unanswered(Direct):
    """A process whose filter takes long to be written."""

    writes_maps = True

    def __init__(self, tool):
        super().__init__(tool)
        self.asked, self.pid = asyncio.Event(), 0

    async def trace_devices(self, pid, _traced):
        self.pid = pid
        self.asked.set()
        await asyncio.sleep(3600)


async def test_a_process_whose_filter_is_being_written_is_ended_with_the_capture(on_demand):
    tracer = on_demand(launcher=Unanswered)
    tracer.request_tracing(("sda",))
    async with asyncio.timeout(60):
        await tracer._launcher.asked.wait()
    await tracer.close()
    assert not psutil.pid_exists(tracer._launcher.pid)


HIDDEN = {name: Device(name, 0, 0, kind="nvme-path") for name in ("nvme0c0n1", "nvme1c1n1")}


async def test_a_hidden_path_without_a_number_does_not_have_all_devices_traced(on_demand):
    """Its number 0 is the filter's key for all devices."""
    tracer = on_demand(devices=DEVICES | HIDDEN)
    tracer.request_tracing(("nvme0c0n1", "sda"))
    assert (await until(tracer, traced))[-1].traced.devices == ("sda",)
    assert tracer._launcher.traced == {8 << 20}


async def test_all_devices_are_traced_for_a_hidden_path_alone_and_it_is_reported(on_demand):
    tracer = on_demand(devices=DEVICES | HIDDEN)
    tracer.request_tracing(("nvme0c0n1",))
    seen = await until(tracer, traced)
    assert seen.notice.startswith("tracing stages of all devices: the kernel gives nvme0c0n1 no number")


async def test_a_device_that_is_not_there_is_reported(on_demand):
    tracer = on_demand()
    tracer.request_tracing(("sdx",))
    seen = await until(tracer, traced)
    assert seen.notice == f"tracing stages of all devices: sdx not found; {NO_AGES}"


BIOS = (
    TICKS.replace("stages_c", "bios_c")
    + r"""
say() { echo "{\"type\": \"printf\", \"data\": \"$1\"}"; }
map() { echo "{\"type\": \"map\", \"data\": {\"@bios_c_$1\": {\"$DM\": $2, \"$SDA\": $3}}}"; }
slow() { say "slow bios_c $1 0 R $2 4096 1000000 31000000 30000 30000 0 0 4711 0 dd"; }
DM=$((253 << 20)) SDA=$((8 << 20))
echo '{"type": "lost_events", "data": {"events": 5}}'
say "tick bios_c 2 2000000"
slow $DM 1; slow $DM 2; slow $SDA 3
DM=$((DM << 16)) SDA=$((SDA << 16))
map above 5 7; map suppressed 3 6; map level 20000 10
say "done bios_c"
trap 'exit 0' TERM; while :; do sleep 0.05; done"""
)


async def test_slow_bios_are_counted_and_reported_beside_the_requests(on_demand):
    read, dm = Flow("sda", "read"), Flow("dm-0", "read")
    frame = replace(
        FRAME, tables={ABOVE: {read: 2}}, thresholds_us={"sda": 9_000}, health=Health(suppressed=1, lost_events=1)
    )
    tracer, windows = on_demand(BIOS, mode="all"), []
    async with asyncio.timeout(60):
        while not windows or not windows[-1].interval[ABOVE]:
            await asyncio.sleep(0.02)
            part = tracer.part(frame)
            windows.append(part.window)
    reported = windows[-1].interval
    assert reported[ABOVE] == {dm: 5}
    assert reported.thresholds_us == {"dm-0": 20_000}
    assert part.health.suppressed == 1 + 3
    assert part.health.lost_events + sum(window.losses.lost for window in windows[:-1]) == 1 + 5
    records = [record for window in windows for record in window.records]
    assert {record.get("dev") for record in records} == {253 << 20}
    assert len(records) + 3 == reported[ABOVE][dm]


async def test_a_frame_names_whose_requests_are_followed(on_demand, monkeypatch):
    """The reported ones of the wanted device and its members: none was there for bios."""
    tracer = on_demand()
    tracer.request_tracing(("dm-0",))
    await until(tracer, traced)
    window = TracerWindow(TracerInterval(in_flight=InFlightList(devices=("dm-0", "sda")), ages_of=("inflight",)))
    tracer._process.taken = lambda: window
    assert with_tracer(tracer, FRAME).in_flight.devices == ("sda",)
    run = tracer._process.run
    reported = TracerWindow(TracerInterval(in_flight=InFlightList()), ticks=1)
    monkeypatch.setattr(run._ticks, "taken", lambda: reported)
    assert run.taken().interval.in_flight.devices == run.target.devices == ("dm-0", "sda", "sdb")


async def test_other_devices_are_taken_in(on_demand, programs):
    tracer = on_demand()
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    tracer.request_tracing(("sdb",))
    seen = await until(tracer, lambda frame: frame.traced.devices == ("sda", "sdb"))
    assert seen.notice == "", "the screen names the devices that are traced"
    tracer.request_tracing(())
    seen = await until(tracer, lambda frame: frame.traced.devices == ())
    assert "tracing stages" not in seen.notice
    assert all(frame.traced.one_in == 1 for frame in seen if not frame.traced.absent)
    assert tracer._launcher.traced == {0}
    assert len(programs()) == 1


async def test_a_window_names_the_devices_that_were_traced_in_a_part_of_it(on_demand):
    tracer = on_demand()
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    run = tracer._process.run
    run.retarget(run.want, replace(run.target, devices=("sdb",), numbers=(8 << 20 | 16,)))
    assert run._devices == ("sda", "sdb")
    run.retarget(run.want, replace(run.target, devices=(), numbers=()))
    run.retarget(run.want, replace(run.target, devices=("sdb",), numbers=(8 << 20 | 16,)))
    assert run._devices == ()


async def test_tracing_stops_when_no_screen_shows_stages(on_demand):
    tracer = on_demand()
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    tracer.set_stages("auto")
    seen = await until(
        tracer,
        lambda frame: "no longer traced: no open screen shows them" in frame.health.notice,
    )
    assert not tracer.runs
    assert seen[-1].traced.absent == ()


async def test_slow_devices_are_traced_by_themselves(on_demand):
    tracer = on_demand()
    slow = [
        Frame(
            seq=n,
            wall=0.0,
            mono_us=n * 10**6,
            dt_us=10**6,
            tables={ABOVE: {Flow("sda", "read"): 1}},
            thresholds_us={"sda": 20_000},
        )
        for n in range(3)
    ]
    for frame in slow:
        tracer.part(frame)
    seen = await until(tracer, traced)
    assert seen.notice == "tracing stages of sda: I/Os above 20 ms"


async def test_an_end_is_reported_and_mended_and_not_for_ever(on_demand, programs):
    tracer = on_demand(TICKS + "sleep 0.4; tick 2; echo 'ERROR: out of luck' >&2; exit 1", mode="all")
    seen = await until(tracer, lambda frame: "not traced for" in frame.health.notice)
    assert seen.notice.count("ended and is restarted (out of luck)") == 3
    assert "ended 4 times within a minute, the last time: out of luck" in seen.notice
    assert len(programs()) == 4
    paused = (await until(tracer, lambda _: True))[-1]
    assert "ended 4 times" in paused.traced.absent[0].reason
    tracer.set_stages("all")
    await until(tracer, lambda _: tracer.runs)  # the user's word ends the pause


async def test_where_the_kernel_takes_no_joined_program_the_scripts_are_apart(on_demand, programs):
    """None of them is left out."""
    joined = (
        "case $word in *softirq_exit*softirq_exit*) ;; *) echo 'ERROR: Error loading program: x' >&2; exit 1;; esac\n"
    )
    seen = await until(on_demand(joined + LIVES, mode="all"), traced)
    assert "without" not in seen.notice
    assert len(programs()) == 2


async def test_a_silent_process_is_replaced(on_demand, monkeypatch):
    monkeypatch.setattr(controller, "_SILENT_S", 0.5)
    monkeypatch.setattr(controller, "_SILENT_TICKS", 0)
    seen = await until(
        on_demand(TICKS + "exec sleep 60", mode="all"), lambda frame: "printed nothing" in frame.health.notice
    )
    assert "is restarted" in seen.notice


async def test_a_process_is_not_silent_while_its_reader_is_stopped(on_demand, programs):
    """An hour passes between two readings."""
    stopped_s = [0.0]
    tracer = on_demand(mode="all", clock=lambda: time.monotonic() + stopped_s[0])
    seen = await until(tracer, traced)
    for _ in range(3):
        stopped_s[0] += 3600
        await asyncio.sleep(0.1)
        seen += await until(tracer, traced)
    assert "printed nothing" not in seen.notice
    assert len(programs()) == 1


async def test_a_script_that_is_refused_is_left_out(on_demand, programs):
    no = "stdin:1:1-2: ERROR: tracepoint not found: irq:irq_handler_entry"
    refuses = f"case $word in *irq_handler_entry*) echo '{no}' >&2; exit 1;; esac\n"
    ticks = LIVES.replace("stages_c", "wakeups_c")
    seen = await until(on_demand(refuses + ticks, mode="all"), traced)
    assert "without irqs: tracepoint not found: irq:irq_handler_entry" in seen.notice
    assert "@irqs_c_" not in programs()[-1]
    assert "@wakeups_c_" in programs()[-1]


async def test_where_none_runs_it_is_reported_once_and_tried_again_later(on_demand, programs):
    tracer = on_demand("echo 'ERROR: no' >&2; exit 1", mode="all")
    seen = await until(tracer, lambda frame: "no script of the tracer runs here" in frame.health.notice)
    tries = len(programs())
    await asyncio.sleep(0.2)
    assert len(programs()) == tries
    assert "no" in seen[-1].traced.absent[0].reason
    tracer.set_stages("auto")
    assert with_tracer(tracer, FRAME).traced.absent == ()


async def test_a_lack_of_rights_is_no_scripts_fault(on_demand, programs):
    tracer = on_demand(
        "echo 'ERROR: bpftrace currently only supports running as the root user.' >&2; exit 1", mode="all"
    )
    await until(tracer, lambda frame: "root user" in frame.health.notice)
    assert len(programs()) == 1


async def test_many_requests_are_sampled_from_the_beginning(on_demand, programs):
    tracer = on_demand()
    busy = Frame(seq=1, wall=0.0, mono_us=1, dt_us=10**6, seen={Flow("sda", "read"): Completed(100_000, 0)})
    tracer.part(busy)
    tracer.request_tracing(())
    seen = await until(tracer, traced, busy)
    assert seen[-1].traced.one_in == 16
    assert seen.notice == f"tracing stages of all devices, one I/O in 16 while this screen is open; {NO_AGES}"
    assert "@stages_c_" in programs()[-1]
    # It takes the arrival of each request from stages_c.
    assert "@order_c_" not in programs()[-1]


def test_the_kernel_reports_where_a_requests_flags_are(tmp_path):
    assert INVENTORY.flag_bits == outliers.USUAL
    btf = Btf()
    rows = [btf.name("__REQ_SYNC"), 3, btf.name("__REQ_FUA"), 5]
    btf.add(ENUM, "req_flag_bits", 4, rows=2, more=rows)
    (tmp_path / "kernel/btf").mkdir(parents=True)
    (tmp_path / "kernel/btf/vmlinux").write_bytes(btf.blob())
    assert ScriptInventory(Options(sys=tmp_path)).flag_bits == {"sync": 3, "fua": 5}


@pytest.fixture
def measuring(monkeypatch):
    monkeypatch.setattr(tracer_budget, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(tracer_budget, "EVERY_S", 0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("measuring")
async def test_above_the_budget_requests_alone_then_a_sample_then_nothing(on_demand, programs):
    tracer = on_demand(launcher=lambda tool: Measured(tool, 1.0))
    tracer.request_tracing((), files=True)
    seen = await until(tracer, lambda frame: "has no budget" in frame.health.notice)
    assert "the budget is 5 %" in seen.notice
    assert {frame.traced.one_in for frame in seen} <= {0, 1, 4}
    assert "tracing stages of all devices, only requests while" in seen.notice
    assert "tracing stages of all devices, one I/O in 4, only requests" in seen.notice
    lean = [{one.name for one in frame.traced.absent} for frame in seen if frame.traced.one_in]
    assert lean[0] == set()
    assert {"resume", "handlers"} < lean[-1]
    assert ["@irqs_c_" in program for program in programs()] == [True, False, False]
    assert any(frame.health.probe_cpu_percent for frame in seen)
    after = (await until(tracer, lambda _: True))[-1]
    assert "budget" in after.traced.absent[0].reason
    assert tracer._launcher.counting[-1] is False


@pytest.mark.slow
@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize("budget", [0.0, 30.0])
async def test_a_limit_below_the_budget_is_what_the_notice_names(on_demand, budget):
    tracer = on_demand(launcher=lambda tool: Measured(tool, 1.0), budget=budget, limit=5.0)
    tracer._always_on = None  # all probes together are not measured here, so that the tracer's own cost is evaluated
    tracer.request_tracing(())
    seen = await until(tracer, lambda frame: "are not traced for" in frame.health.notice)
    assert "tracing took" in seen.notice
    assert "--max-overhead is 5 %" in seen.notice
    assert "budget" not in seen.notice


@pytest.mark.slow
@pytest.mark.usefixtures("measuring")
async def test_above_the_limit_of_all_probes_the_tracer_goes_and_then_the_capture(on_demand, programs):
    tracer = on_demand(mode="all", launcher=lambda tool: Measured(tool, 1.0), limit=5.0)
    seen = await until(tracer, lambda _: tracer.too_dear)
    assert "stages are not traced for 1 min: the probes took" in seen.notice
    assert "--max-overhead is 5 %" in tracer.too_dear
    assert len(programs()) == 1
    assert tracer.pid is None
    counted = len(tracer._launcher.counting)
    await asyncio.sleep(0.3)
    assert len(tracer._launcher.counting) == counted  # the capture ends: nothing is left to measure


@pytest.mark.slow
@pytest.mark.usefixtures("measuring")
async def test_below_the_limit_nothing_is_stopped(on_demand, monkeypatch):
    # a real process's time comes in ticks of 10 ms, each of which is more than all of the short phase here
    monkeypatch.setattr(tracer_budget, "cpu_ns", lambda _pid: 0)
    tracer = on_demand(mode="all", launcher=lambda tool: Measured(tool, 0.0), limit=50.0)
    seen = await until(tracer, lambda _: len(tracer._launcher.counting) > 8)
    assert not tracer.too_dear
    assert "not traced for" not in seen.notice
    await until(tracer, traced)


@pytest.mark.usefixtures("measuring")
async def test_a_limit_that_can_not_be_measured_is_reported_once(on_demand):
    class Uncounted(Filtered):
        asked = 0

        async def count_time(self, *, on):
            self.asked += on
            return False

    tracer = on_demand(mode="basic", launcher=Uncounted, limit=5.0)
    seen = await until(tracer, lambda _: tracer._launcher.asked > 3)
    assert seen.notice.count("--max-overhead is not kept") == 1
    assert not tracer.too_dear


async def test_decoding_is_part_of_the_time_for_reading(on_demand):
    tracer = on_demand(mode="all")
    await until(tracer, traced)
    run = tracer._process.run
    assert run.read_ns > run.probe.decode_ns > 0


@pytest.mark.usefixtures("measuring")
async def test_without_a_budget_it_is_measured_no_more_often(on_demand, monkeypatch):
    monkeypatch.setattr(tracer_budget, "EVERY_S", 1e9)
    tracer, steps = on_demand(launcher=lambda tool: Measured(tool, 1.0), budget=0.0), []
    step = tracer._step

    async def counted():
        await step()
        steps.append(tracer)

    monkeypatch.setattr(tracer, "_step", counted)
    tracer.request_tracing(())
    await until(tracer, lambda frame: frame.health.probe_cpu_percent)
    steps.clear()
    await until(tracer, lambda _: len(steps) > 3)
    assert tracer._launcher.counting == [True, False]


@pytest.mark.usefixtures("measuring")
async def test_runs_that_the_kernel_left_out_are_added_to_those_of_the_always_on_probe(on_demand):
    tracer = on_demand(mode="all", launcher=lambda tool: Measured(tool, 0.0, skipped=7))
    frame = replace(FRAME, health=Health(skipped=2))
    seen = await until(tracer, lambda frame: frame.health.probe_cpu_percent is not None, frame)
    seen += await until(tracer, lambda frame: frame.health.skipped == 2, frame)
    assert sum(frame.health.skipped - 2 for frame in seen) == 7


@pytest.mark.usefixtures("measuring")
async def test_an_explicit_all_knows_no_budget(on_demand):
    tracer = on_demand(launcher=lambda tool: Measured(tool, 1.0), mode="all")
    await until(tracer, lambda frame: frame.health.probe_cpu_percent)
    await asyncio.sleep(0.3)
    assert tracer.runs
    assert with_tracer(tracer, FRAME).traced.one_in == 1


@pytest.mark.usefixtures("measuring")
async def test_what_cannot_be_measured_is_not_known(on_demand):
    tracer = on_demand(mode="all")
    tracer._launcher.count_time = lambda **_: asyncio.sleep(0, False)
    seen = await until(tracer, traced)
    assert {frame.health.probe_cpu_percent for frame in seen} == {None}


@pytest.mark.parametrize("lines", [LIVES, "exec sleep 60"], ids=["while it runs", "while it starts"])
async def test_it_ends_in_time(on_demand, lines):
    tracer = on_demand(lines, mode="all")
    await (it_runs(tracer) if lines == LIVES else asyncio.sleep(0.1))
    async with asyncio.timeout(30):
        await tracer.close()
    assert not tracer.runs


async def test_a_mistake_of_ours_ends_the_on_demand_probes_and_nothing_else(on_demand, monkeypatch):
    monkeypatch.setattr(BpftracePrograms, "target", None)
    tracer = on_demand(mode="all")
    seen = await until(tracer, lambda frame: "failed" in frame.health.notice)
    assert "TypeError" in seen[-1].traced.absent[0].reason
    assert (await until(tracer, lambda _: True)).notice == ""


# Ends


SLOW = "trap 'sleep 0.8; echo > ${0%/*}/ended; exit 0' TERM; "
SLOW_END = LIVES.replace("trap 'exit 0' TERM; ", SLOW)


async def it_runs(on_demand, *, yes=True):
    async with asyncio.timeout(60):
        while on_demand.runs != yes:  # noqa: ASYNC110 - it has no event for that
            await asyncio.sleep(0.02)


def lives_on(pid):
    return Path(f"/proc/{pid}").exists()


async def test_quitting_during_a_stop_waits_for_it_and_leaves_no_process(on_demand, tmp_path):
    tracer = on_demand(SLOW_END)
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    run = tracer._process.run
    tracer.set_stages("basic")
    await asyncio.sleep(0.3)
    await tracer.close()
    assert not tracer.runs
    assert not lives_on(run.probe.pid)
    assert run._reading.done()
    assert (tmp_path / "ended").exists()


async def test_quitting_during_compilation_leaves_no_process(on_demand, tmp_path):
    tracer = on_demand(SLOW + "echo > ${0%/*}/begun; while :; do sleep 0.02; done")
    tracer.request_tracing(("sda",))
    async with asyncio.timeout(60):
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - a file is no event
            await asyncio.sleep(0.02)
    steering = tracer._steering
    ending = asyncio.create_task(tracer.finish())
    await asyncio.wait({ending}, timeout=0.2)
    ending.cancel()
    await asyncio.wait({ending})
    await tracer.close()
    assert steering.done()
    assert (tmp_path / "ended").exists()


async def test_what_no_frame_has_taken_yet_survives_the_stop(on_demand):
    tracer = on_demand(LIVES)
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    await asyncio.sleep(0.3)
    tracer.set_stages("basic")
    await it_runs(tracer, yes=False)
    part = tracer.part(FRAME)
    assert part.window.ticks > 1
    assert (part.traced.one_in, part.traced.devices) == (1, ("sda",))
    assert with_tracer(tracer, FRAME).traced.one_in == 0


SAYS_ITS_LAST = (
    TICKS.replace("stages_c", "bios_c")
    + r"""
say() { echo "{\"type\": \"printf\", \"data\": \"$1\"}"; }
map() { echo "{\"type\": \"map\", \"data\": {\"@bios_c_$1\": {\"$2\": $3}}}"; }
last() {
    say "slow bios_c $((253 << 20)) 0 R 1 4096 1000000 31000000 30000 30000 0 0 4711 0 dd"
    say "last bios_c 2 2000000"
    map above $((253 << 36)) 5; map own 0 1
}
trap 'last; exit 0' TERM; while :; do sleep 0.05; done"""
)


async def test_what_they_say_to_their_end_is_reported_with_the_next_frame(on_demand):
    tracer = on_demand(SAYS_ITS_LAST, mode="all")
    await it_runs(tracer)
    tracer.set_stages("basic")
    await it_runs(tracer, yes=False)
    window = tracer.part(FRAME).window
    assert window.interval[ABOVE] == {Flow("dm-0", "read"): 5}
    assert len(window.records) == 1
    assert window.losses.undecoded == 0


async def test_the_last_frame_has_what_a_stop_that_was_under_way_still_brings(on_demand):
    tracer = on_demand(SAYS_ITS_LAST.replace("'last;", "'sleep 0.5; last;"), mode="all")
    await it_runs(tracer)
    tracer.set_stages("basic")
    await asyncio.sleep(0.2)
    await tracer.finish()
    assert tracer.part(FRAME).window.interval[ABOVE] == {Flow("dm-0", "read"): 5}


@pytest.mark.slow
@pytest.mark.usefixtures("measuring")
async def test_whatever_begins_again_says_how_long_nothing_was_traced(on_demand):
    hole = r"no stage was traced for \d\.\d s: the tracer was restarted "
    dear = on_demand(launcher=lambda tool: Measured(tool, 1.0))
    dear.request_tracing(())
    seen = await until(dear, lambda frame: "to cost less" in frame.health.notice)
    assert re.search(hole + "to cost less", seen.notice)
    dies = on_demand(TICKS + "sleep 0.4; exit 1", mode="all")
    seen = await until(dies, lambda frame: "no stage was" in frame.health.notice)
    assert re.search(hole + "after its end", seen.notice)


async def test_a_restart_that_the_backend_needs_is_no_death(on_demand, programs):
    """Also one that is asked for while the process starts."""
    tracer = on_demand(mode="all")
    tracer.restart("CPU 1 came online")
    for number in range(1, 3):
        await until(tracer, traced)
        tracer.restart(f"CPU {number} came online")
        reason = f"the tracer was restarted: CPU {number} came online"
        await until(tracer, lambda frame, reason=reason: reason in frame.health.notice)
    assert len(programs()) == 3


async def test_a_restart_during_the_start_is_done_after_it(on_demand, programs):
    tracer = on_demand("sleep 0.3;" + LIVES, mode="all")
    await until(tracer, lambda _: bool(programs()))
    tracer.restart("CPU 1 came online")
    await until(tracer, lambda frame: "restarted: CPU 1 came online" in frame.health.notice)
    assert len(programs()) == 2


VOLUME = {
    **{name: Device(name, 8, 16 * at) for at, name in enumerate(("a1", "a2", "a3", "a4", "a5", "sdw", "sdx", "sdy"))},
    "md0": Device("md0", 9, 0, kind="md", members=("a1", "a2", "a3", "a4", "a5"), timed=False),
}


async def test_many_devices_fit_the_filter(on_demand, programs):
    tracer = on_demand(devices=VOLUME)
    for name in ("a1", "sdw", "sdx", "sdy", "md0"):
        tracer.request_tracing((name,))
    seen = await until(tracer, lambda frame: set(frame.traced.devices) == VOLUME.keys())
    assert "tracing stages of a1, md0, sdw, sdx, sdy while this screen is open" in seen.notice
    assert len(programs()) == 1


async def test_a_pause_that_is_over_is_no_reason_any_more(on_demand):
    tracer = on_demand("exec sleep 60")
    tracer._paused_until = tracer._clock() - 1
    tracer.request_tracing(("sda",))
    await until(tracer, lambda frame: frame.traced.absent)
    tracer.set_stages("all")
    assert {missing.reason for missing in with_tracer(tracer, FRAME).traced.absent} == {"the tracer is starting"}


# A window without a tick


async def test_a_window_of_which_nothing_was_reported_is_not_traced(on_demand, tmp_path):
    go = tmp_path / "go"
    tracer = on_demand(TICKS + f"tick 2; while [ ! -e {go} ]; do sleep 0.02; done; tick 3; exec sleep 60", mode="all")
    await until(tracer, lambda frame: frame.traced.one_in == 1)
    silent = with_tracer(tracer, FRAME)
    assert silent.traced.one_in == 0
    assert {missing.reason for missing in silent.traced.absent} == {"the tracer printed nothing in this interval"}
    go.touch()
    late = replace(FRAME, mono_us=9_000_000)
    seen = await until(tracer, lambda frame: frame.traced.one_in == 1, late)
    assert "the tracer's output was late: the window includes the 8.0 s before it" in seen.notice


async def test_late_output_is_reported_once_and_when_it_is_twice_as_late(on_demand):
    tracer, notices = on_demand(), []
    tracer.request_tracing(("sda",))
    await until(tracer, traced)
    for late_s in (0.9, 1.1, 1.3, 2.0, 2.3, 1.1, 9.0):
        window = TracerWindow(begun_us=50_000_000 - int(late_s * 1e6))
        tracer._process.taken = lambda window=window: window
        notices.append(with_tracer(tracer, replace(FRAME, mono_us=51_000_000)).health.notice)
    assert [notice.rpartition("includes ")[2] for notice in notices] == [
        *("", "the 1.1 s before it", "", "", "the 2.3 s before it", "", "the 9.0 s before it")
    ]


@pytest.mark.parametrize(
    ("devices", "why", "text"),
    [
        (2, "I/Os above 20 ms", "tracing stages of sd0, sd1: I/Os above 20 ms"),
        (
            9,
            "I/Os above 20 ms",
            "tracing stages of sd0, sd1 and 7 more: I/Os above 20 ms",
        ),
        (99, f"{'a' * 20} (sd0); {'b' * 40} (sd1)", f"tracing stages of sd0, sd1 and 97 more: {'a' * 20} (sd0)"),
        (9, "c" * 99, "tracing stages of sd0, sd1, sd2, sd3, sd4, sd5, sd6, sd7 and 1 more"),
    ],
)
def test_what_is_traced_and_why_is_one_line(devices, why, text):
    want = Want(tuple(f"sd{n}" for n in range(devices)), why)
    run = TracerRun(None, None, want, Target(), sample=TracerSample(), left_out=(), clock=lambda: 0.0)
    assert traced_text(run) == text
    assert len(text) <= 78


async def test_a_frame_waits_a_little_for_what_is_reported_of_its_interval(on_demand, tmp_path):
    go = tmp_path / "go"
    tracer = on_demand(TICKS + f"tick 2; while [ ! -e {go} ]; do sleep 0.02; done; tick 3; exec sleep 60", mode="all")
    await until(tracer, lambda frame: frame.traced.one_in == 1)
    begun = time.monotonic()
    await tracer.wait_for_tick(0.1)
    assert time.monotonic() - begun > 0.09
    waiting = asyncio.ensure_future(tracer.wait_for_tick(600))
    await asyncio.sleep(0.05)
    go.touch()
    await waiting
    assert with_tracer(tracer, FRAME).traced.one_in == 1


async def test_no_frame_waits_for_probes_that_have_not_begun(on_demand):
    tracer = on_demand("exec sleep 60", mode="all")
    async with asyncio.timeout(30):
        await tracer.wait_for_tick(600)


@pytest.mark.parametrize(
    ("begin_us", "end_us", "one_in"),
    [
        (0, 1_000_000, 1),
        (1_000_000, 2_000_000, 2),  # half of it each I/O, half of it one in 16: 53 %
        (1_900_000, 2_900_000, 16),
        (2_000_000, 4_000_000, 24),  # 1 s of one in 16, 1 s of one in 48
        (9_000_000, 9_000_000, 48),
    ],
)
def test_a_window_names_the_sample_that_was_traced_in_it(begin_us, end_us, one_in):
    """Also where it is read after the next change, as on a host that is busy."""
    samples = [SampleSince(0, 1), SampleSince(1_500_000, 16), SampleSince(3_000_000, 48)]
    assert sampled_over(samples, begin_us, end_us) == one_in
