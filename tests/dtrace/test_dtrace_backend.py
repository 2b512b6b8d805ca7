"""DTrace output as frames, from the scripts' goldens played by a stand-in: values of each script, and failures."""

import asyncio
import re
import time
from collections import Counter
from dataclasses import replace

import pytest
from fake_dtrace import GOLDEN, Fake, manifests
from fake_host import FakeHost

from latmon.analysis.limits import audit, ceiling
from latmon.capture.backend import Options
from latmon.model import measurements
from latmon.model.frame import NAMED_FROM, UNACCOUNTED, Flow, Outstanding, Series, pid_of
from latmon.model.histogram import EMPTY, merge
from latmon.model.measurements import ABOVE, HANDLERS, WAKEUPS
from latmon.support.errors import UnavailableError, UsageError
from latmon_backends.dtrace import backend as dtrace_backend
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import COARSE, DtraceBackend
from latmon_backends.dtrace.probe import NoCounters
from latmon_backends.dtrace.program import DtraceTool
from latmon_backends.kernel.kstat import KstatSampler
from tests.helpers.dtrace_text_writer import quantized

ON_DEMAND = {
    "illumos": (
        *("sd_depth", "sd_limits", "scsi_pkt", "mpt_flags", "emlxs_sli4", "emlxs_thread"),
        *("taskqs", "intr", "callouts", "zfs_slow", "vop_files"),
    ),
    "freebsd": ("devdepth", "cam"),
}
SD = ("io:::start", "sdt:::scsi-transport-dispatch", "fbt::biodone:entry")


class Run:
    """One capture's frames; those of the goldens begin once the first one came."""

    def __init__(self, fake, system, **options):
        self.fake, self.system = fake, system
        root = fake.path.parent
        self.options = Options(**{"interval_us": 100_000, "stages": "basic", "proc": root, "sys": root} | options)
        self.frames = []

    def backend(self, **more):
        return DtraceBackend(self.options, find_tool=lambda: DtraceTool(str(self.fake.path), self.system), **more)

    async def take(self, enough, *, finish=True, **more):
        """Frames until `enough` is true of one, and that one."""
        async with asyncio.timeout(120), self.backend(**more) as backend:
            self.origin = backend.origin
            async for frame in backend.frames():
                self.frames.append(frame)
                if len(self.frames) == 1:
                    self.fake.release()
                if enough(frame):
                    break
            if finish:
                self.frames += await backend.finish(30.0)
        return self

    def counts(self):
        return sum((Counter({s: h.count for s, h in frame.histograms.items()}) for frame in self.frames), Counter())

    @property
    def devices(self):
        return {device.name: device for frame in self.frames for device in frame.devices}

    @property
    def notices(self):
        return "; ".join(frame.health.notice for frame in self.frames if frame.health.notice)


@pytest.fixture(autouse=True)
def no_counters(monkeypatch):
    """This host's own are none of the player's."""
    monkeypatch.setattr(program, "load_all", lambda _: manifests())
    monkeypatch.setattr(dtrace_backend, "_counters", lambda _: (NoCounters(), ""))


@pytest.fixture
def run(tmp_path):
    def made(system="illumos", always="sd", on_demand=(), *, options=None, **changes):
        goldens = {name: f"{system}-{name}.txt" for name in (always, *on_demand)}
        fake = Fake(tmp_path, **{"goldens": goldens, "pace": 0.1, "go": str(tmp_path / "go")} | changes)
        return Run(fake, system, **options or {})

    return made


def busy(times):
    """After so many frames in which something was timed."""
    seen = [0]

    def enough(frame):
        seen[0] += bool(frame.histograms)
        return seen[0] == times

    return enough


def after(frames):
    seen = [0]

    def enough(_):
        seen[0] += 1
        return seen[0] == frames

    return enough


def golden(name, pattern):
    """Return the last match of a pattern in a golden: of its last line of maps."""
    text = (GOLDEN / name).read_text()
    return int(re.findall(pattern, text)[-1])


# ---- the always-on script


async def test_sds_disks_their_stages_and_what_is_in_flight(run):
    reported = await run().take(busy(3))
    assert reported.fake.runs() == [["sd"]]
    assert (reported.origin.tool, reported.origin.tier, reported.origin.extra["probe"]) == ("dtrace 1.13", "A", "sd")
    assert reported.origin.reason == ""
    assert reported.origin.measured["hba"] == ("irq", "softirq", "completion")
    counts = reported.counts()
    assert {(s.device, s.op) for s in counts} == {("sd2", "read"), ("sd0", "write")}
    assert {s.stage for s in counts} == {"queue", "hba", "total"}
    for flow in (Flow("sd2", "read"), Flow("sd0", "write")):
        mine = {s.stage: n for s, n in counts.items() if s[:2] == flow}
        assert (
            mine["queue"]
            == mine["hba"]
            == mine["total"]
            == sum(f.seen[flow].count for f in reported.frames if flow in f.seen)
        )
        parts = Counter()
        for frame in reported.frames:
            parts.update({s.stage: h.sum for s, h in frame.histograms.items() if s[:2] == flow})
        assert parts["queue"] + parts["hba"] == pytest.approx(parts["total"], abs=mine["total"])
    assert reported.frames[0].outstanding == {"sd2": Outstanding(None, 41), "sd0": Outstanding(None, 12)}
    assert reported.frames[-2].outstanding["sd2"] == Outstanding(None, 41)
    assert {(d.name, d.driver, d.timed) for d in reported.devices.values()} == {
        ("sd2", "sd", True),
        ("sd0", "sd", True),
    }
    assert [frame.health.undecoded_lines for frame in reported.frames] == [0] * len(reported.frames)
    assert all(frame.dt_us > 0 for frame in reported.frames)


async def test_outliers_have_who_waited_and_when_it_began(run):
    reported = await run().take(busy(3))
    found = [outlier for frame in reported.frames for outlier in frame.outliers]
    first = next(one for one in found if one.device == "sd2")
    assert (first.comm, first.pid, first.op, first.bytes) == ("oracle", 4711, "read", 8192)
    assert sum(first.stages_us.values()) + first.unaccounted_us == first.total_us > 10_000
    assert first.includes == {"hba": ("irq", "softirq", "completion")}
    (late,) = [one for one in found if one.device == "sd0"]
    assert (late.comm, late.pid, late.op) == ("dd", 902, "write")
    assert late.total_us > 2_000_000
    assert late.stages_us["queue"] > 0.99 * late.total_us
    above = sum(sum(frame[ABOVE].values()) for frame in reported.frames)
    assert above == len(found) + sum(frame.health.suppressed for frame in reported.frames)
    assert {us for frame in reported.frames for us in frame.thresholds_us.values()} == {10_000}


async def test_the_last_frame_is_the_rest(run):
    reported = await run(pace=0.1).take(after(1))
    assert len(reported.frames) == 2
    tail = golden("illumos-sd.txt", r"@@S sd_started\tsd2\t0\t([0-9]+)")
    assert reported.counts()["sd2", "read", "total"] > 3000
    assert reported.frames[0].outstanding["sd2"] == Outstanding(None, 41)
    assert tail > reported.counts()["sd2", "read", "total"]


async def test_freebsds_disks_are_in_the_driver_from_the_issue_on(run):
    reported = await run("freebsd", "devstat").take(busy(2))
    assert reported.origin.extra["probe"] == "devstat"
    assert {"da0", "nda0"} <= reported.devices.keys()
    assert {s.stage for s in reported.counts()} == {"hba", "total"}
    assert 1 in [frame.outstanding["da0"].in_driver for frame in reported.frames if "da0" in frame.outstanding]
    assert {one.in_driver for one in reported.frames[-1].outstanding.values()} == {0}
    assert {one.queued for one in reported.frames[-1].outstanding.values()} == {None}


async def test_a_device_comes_with_the_first_frame_that_reports_of_it(run):
    reported = await run("freebsd", "devstat", ON_DEMAND["freebsd"], options={"stages": "all"}).take(busy(1))
    known = set()
    for frame in reported.frames:
        known |= {device.name for device in frame.devices}
        assert {series.device for series in frame.histograms} <= known
        assert {flow.device for flow in (*frame.seen, *frame[ABOVE])} | set(frame.outstanding) <= known


async def test_what_kstat_knows_of_a_disk_comes_with_it(run, monkeypatch):
    def reported(words):
        name = "illumos-device-error-synthetic.txt" if "device_error" in words else "illumos-disk-1-synthetic.txt"
        return (GOLDEN.parent / "kstat" / name).read_bytes()

    monkeypatch.setattr(dtrace_backend, "_counters", lambda options: (KstatSampler(options.devices, run=reported), ""))
    reported_of = await run("illumos", "sd", ("sd_limits",), options={"stages": "all"}).take(busy(1))
    sd2 = reported_of.devices["sd2"]
    assert sd2.model
    assert {"un_throttle"} <= {limit.name for limit in sd2.limits}
    assert {"sd0", "sd2", "sd10", "rpool"} <= reported_of.devices.keys()
    assert reported_of.frames[0].outstanding["sd2"].in_driver is not None
    assert reported_of.frames[0].outstanding["sd0"] == Outstanding(None, 12)


@pytest.mark.slow
async def test_a_dtrace_without_llquantize_counts_by_octaves(run, tmp_path):
    """Solaris 10. Its sums and maxima are exact, a percentile is the end of its octave."""
    coarse = {name: tmp_path / f"{name}.txt" for name in ("sd", "intr")}
    for name, path in coarse.items():
        path.write_text(quantized((GOLDEN / f"illumos-{name}.txt").read_text()))
    made = run(
        goldens={name: str(path) for name, path in coarse.items()}, lacks="llquantize", options={"stages": "all"}
    )
    reported = await made.take(lambda frame: bool(frame.histograms and frame[HANDLERS]))
    assert reported.origin.reason == COARSE
    assert reported.origin.probes_missing == ()
    runs = [one.run for frame in reported.frames for one in frame[HANDLERS].values()]
    histograms = [histogram for frame in reported.frames for histogram in frame.histograms.values()]
    assert {one.bits for one in (*runs, *histograms)} == {0}
    assert all(frame.health.undecoded_lines == 0 for frame in reported.frames)
    reads = merge(frame.histograms.get(Series("sd2", "read", "total"), EMPTY) for frame in reported.frames)
    assert 32768 < reads.max < 65536
    assert reads.quantile(0.5) == reads.max
    assert reads.count * 8192 < reads.sum < reads.count * reads.max


async def test_globs_select(run):
    reported = await run(options={"devices": ("sd2",)}).take(busy(2))
    assert {s.device for s in reported.counts()} == {"sd2"}
    assert {outlier.device for frame in reported.frames for outlier in frame.outliers} == {"sd2"}
    assert set(reported.devices) == {"sd2"}
    assert {name for frame in reported.frames for name in frame.outstanding} == {"sd2"}


async def test_limits_of_what_is_not_selected_are_not_reported(run):
    made = run("illumos", "sd", ON_DEMAND["illumos"], options={"stages": "all", "devices": ("sd0",)})
    reported = await made.take(
        lambda _: len(made.frames) > 4 and any(device.limits for device in made.devices.values())
    )
    assert set(reported.devices) == {"sd0"}


async def test_linux_devices_are_the_kernels_by_their_numbers(run, tmp_path, monkeypatch):
    host = FakeHost(tmp_path / "host")
    host.virtio()
    monkeypatch.undo()
    reported = run("linux", "requests_d", options={"proc": host.proc, "sys": host.sys})
    await reported.take(busy(2), only=("requests_d",))
    assert {s.device for s in reported.counts()} == {"vda"}
    assert {s.stage for s in reported.counts()} >= {"hba", "total"}
    found = [outlier for frame in reported.frames for outlier in frame.outliers]
    above = sum(sum(frame[ABOVE].values()) for frame in reported.frames)
    assert above == len(found) + sum(frame.health.suppressed for frame in reported.frames) > 0
    assert {one.device for one in found} == {"vda"}


async def test_a_window_that_waits_for_the_tracer_as_the_capture_ends_is_a_frame_of_its_own(run):
    reported = run()
    waiting = asyncio.Event()

    async def wait_for_tick(_seconds):
        waiting.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(120), reported.backend() as backend:
        backend._on_demand.wait_for_tick = wait_for_tick
        reported.fake.release()
        following = asyncio.create_task(anext(backend.frames()))
        await waiting.wait()
        following.cancel()
        await asyncio.wait({following})
        cut_off, last = await backend.finish(30.0)
        assert last.seq == cut_off.seq + 1
        assert last.mono_us - last.dt_us == cut_off.mono_us


# ---- the on-demand scripts


@pytest.fixture
async def on_demand(run, monkeypatch):
    """All of illumos' scripts: frames until each has reported, and the last one, which has the slowest I/O."""
    # On a crowded host the fake's last lines come later than a user would wait for them.
    monkeypatch.setattr(dtrace_backend, "_LAST_S", 30.0)
    monkeypatch.setattr(program, "_GRACE_S", 30.0)
    reported = run("illumos", "sd", ON_DEMAND["illumos"], options={"stages": "all", "interval_us": 500_000}, pace=0.3)
    frames, slow = [0], [False]

    def enough(frame):
        frames[0] += bool(frame.histograms)
        totals = (h for s, h in frame.traced.histograms.items() if (s.device, s.stage) == ("emlxs0", "total"))
        slow[0] |= any(h.sum > 1_000_000 for h in totals)
        return frames[0] >= 3 and slow[0]

    return await reported.take(enough)


async def test_all_that_illumos_scripts_report(on_demand):
    always, started = on_demand.fake.runs()
    assert always == ["sd"]
    assert set(ON_DEMAND["illumos"]) <= set(started)
    assert not any(frame.health.undecoded_lines for frame in on_demand.frames)
    _limits(on_demand)
    _depths(on_demand)
    _emulex(on_demand)
    _threads(on_demand)
    _handlers(on_demand)
    _files(on_demand)
    assert {"emlxs0": False, "mpt0": False, "zfs:redo": False, "sd2": True}.items() <= {
        name: device.timed for name, device in on_demand.devices.items()
    }.items()


def _limits(on_demand):
    sd2 = on_demand.devices["sd2"]
    reported = {limit.name: limit.value for limit in sd2.limits}
    assert (reported["un_throttle"], reported["un_min_throttle"], reported["un_f_opt_queueing"]) == (3, 8, 1)
    assert {limit.source for limit in sd2.limits} == {"sd_limits"}
    assert ceiling(sd2.limits).value == 3
    assert {limit.name for limit in on_demand.devices["mpt0"].limits} == {"m_notag", "m_nowide", "m_props_update"}
    depths = {name: one for frame in on_demand.frames for name, one in frame.depths.items()}
    found = {
        audited.device: [remark.text for remark in audited.off]
        for audited in audit(tuple(on_demand.devices.values()), depths)
    }
    assert "3 is below its own minimum of 8 (un_min_throttle)" in " ".join(found["sd2"])
    assert "tagged queueing is off, only the adapter queues; sd sends it 3 at most" in " ".join(found["sd2"])


def _depths(on_demand):
    for name, most in (("sd2", 3), ("sd0", 2)):
        found = [frame.depths[name] for frame in on_demand.frames if name in frame.depths]
        assert found
        assert {depth for one in found for depth in (*one.in_driver, *one.at_issue)} <= set(range(most + 1))
        assert max(depth for one in found for depth in one.in_driver) == most
    held = [frame.depths["sd2"].queued for frame in on_demand.frames if "sd2" in frame.depths]
    assert {depth for one in held for depth in one} <= {37, 38, 39}


def _emulex(on_demand):
    totals, parts = Counter(), Counter()
    for frame in on_demand.frames:
        for series, histogram in frame.traced.histograms.items():
            if series.device == "emlxs0":
                (totals if series.stage == "total" else parts)[series.op] += histogram.sum
                assert series.stage in ("total", "queue", "hba", "irq", "completion", UNACCOUNTED)
    assert parts == totals
    worst = max(
        (outlier for f in on_demand.frames for outlier in f.outliers if outlier.device == "emlxs0"),
        key=lambda o: o.total_us,
    )
    assert (worst.total_us, worst.stages_us["hba"], worst.stages_us["completion"]) == (1_238_999, 85, 1_238_903)
    assert worst.path == "completion thread, most of the time until it ran"
    assert {outlier.device for f in on_demand.frames for outlier in f.outliers} >= {"emlxs0", "zfs:redo", "sd2"}
    above = sum((Counter(frame[ABOVE]) for frame in on_demand.frames), Counter())
    assert {flow.op for flow in above if flow.device == "mpt0"} == {"read", "flush"}
    tails = [f.traced for f in on_demand.frames if any(s.device == "emlxs0" for s in f.traced.by_total)]
    assert tails
    assert all(tail.one_in == 1 and not tail.devices for tail in tails)


def _threads(on_demand):
    found = {one.thread.comm: one for frame in on_demand.frames for one in frame[WAKEUPS].values()}
    channel = found["emlxs0_channel4"]
    assert channel.thread.priority == 97
    assert (channel.thread.pid >= NAMED_FROM, pid_of(channel.thread.pid)) == (True, None)
    assert {"oracle", "zpool-redo", "genunix`taskq_thread"} <= channel.instead.keys()
    assert found["taskq:zio_write_issue.3"].thread.priority == 99
    assert found["taskq:system_taskq.0"].thread.priority == 60


def _files(on_demand):
    """Operations on files are those of Linux: by mount point, op and wait, with slow ones below them."""
    counted = {}
    for frame in on_demand.frames:
        for one, took in frame[measurements.FILES].items():
            counted.setdefault((one.mount, one.kind, one.op, one.wait), []).append(took)
    sync = merge(counted["/export/home", "zfs", "fsync", "unknown"])
    assert (sync.count, sync.max in (None, 836_214)) == (7, True), "an interval of several ticks has no maximum"
    assert counted.keys() >= {("/", "ufs", "read", "device"), ("/net/db1", "nfs4", "write", "unknown")}
    slow = {file_operation.op: file_operation for frame in on_demand.frames for file_operation in frame.file_operations}
    assert (slow["fsync"].path, slow["fsync"].file_system.mount) == (r"ora/redo\n01.log", "/export/home")
    assert (slow["read"].bytes, slow["read"].offset, slow["read"].comm, slow["read"].pid) == (
        8192,
        16384,
        "syslogd",
        411,
    )
    assert sum(frame.files_left_out for frame in on_demand.frames) == 4
    assert "zfs:/export/home" not in on_demand.devices


def _handlers(on_demand):
    found = {handler.name: runs for frame in on_demand.frames for handler, runs in frame[HANDLERS].items()}
    assert {"emlxs0", "mpt_sas0", "ixgbe0", "ipmi0", "unix`cbe_fire", "callout:genunix`setrun"} <= found.keys()
    assert "unknown" not in found
    assert set(found["ipmi0"].returned) == {"none"}
    assert found["mpt_sas0"].before_us > 0


async def test_an_outlier_of_two_probes_that_count_from_elsewhere_is_one(run):
    reported = run(
        "freebsd", "devstat", ON_DEMAND["freebsd"], options={"stages": "all", "interval_us": 500_000}, pace=0.2
    )
    await reported.take(busy(1))
    (one,) = [outlier for frame in reported.frames for outlier in frame.outliers]
    assert one.stages_us == {"queue": 10_200, "requeue": 6_000, "hba": 14_300, "completion": 30}
    assert one.total_us == 30_530
    assert sum(sum(frame[ABOVE].values()) for frame in reported.frames) == 1
    assert {limit.value for limit in reported.devices["da0"].limits if limit.name == "openings"} == {254}


async def test_on_demand_scripts_start_with_a_screen_that_shows_them(run):
    reported = run("illumos", "sd", ("sd_depth",), options={"stages": "auto"})
    async with reported.backend() as backend:
        reported.fake.release()
        backend.request_tracing(("sd2",))
        async for frame in backend.frames():
            reported.frames.append(frame)
            if frame.traced.one_in:
                break
    assert "tracing stages of all devices: D scripts trace all devices" in reported.notices


async def test_scripts_without_their_hooks_are_left_out_and_named(run):
    reported = run("illumos", "sd", options={"stages": "all"}, hooks=[*SD, "sched:::wakeup", "sched:::off-cpu"])
    await reported.take(after(1))
    missing = {one.name: one.reason for one in reported.origin.probes_missing}
    assert missing["emlxs_sli4"] == "there is no probe fbt:emlxs:emlxs_fca_transport:entry here"
    assert {"sd_depth", "sd_limits"} <= set(reported.fake.runs()[1])
    assert not missing.keys() & set(reported.fake.runs()[1])


@pytest.mark.slow
async def test_a_refused_on_demand_script_is_left_out(run):
    no = "dtrace: failed to compile script PROGRAM: line 3: emlxs_sli4_x is no member"
    reported = run("illumos", "sd", ON_DEMAND["illumos"], options={"stages": "all"}, refused={"emlxs_sli4": no})
    await reported.take(after(1))
    assert "emlxs_sli4" in reported.fake.runs()[1]
    assert "emlxs_sli4" not in reported.fake.runs()[-1]
    assert "emlxs_sli4" in {one.name for one in reported.origin.probes_missing}


async def test_a_refusal_without_a_name_leaves_out_only_the_refused_script(run):
    guilty, others = ("mpt_flags", "intr"), ("sd_depth", "taskqs")
    no = dict.fromkeys(guilty, "dtrace: invalid probe specifier PROGRAM: m_notag is no member of it")
    reported = await run("illumos", "sd", guilty + others, options={"stages": "all"}, refused=no).take(after(1))
    assert set(reported.fake.runs()[-1]) >= set(ON_DEMAND["illumos"]) - {"mpt_flags", "intr"}
    missing = {one.name: one.reason for one in reported.origin.probes_missing}
    assert missing == dict.fromkeys(guilty, "m_notag is no member of it")


# ---- what goes wrong


async def test_a_start_is_cancelled_while_dtrace_lists(run):
    made = run(options={"stages": "all"}, listing_s=300)
    opening = asyncio.create_task(made.take(after(1)))
    while not made.fake.runs():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    opening.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_a_clock_that_is_far_from_ours(run, monkeypatch):
    """A clock far behind, as FreeBSD's may be: no frame is late for it, and frames are of latmon's clock."""
    monkeypatch.setattr(program, "load_all", lambda _: [replace(manifest, clock="hrtime") for manifest in manifests()])
    reported = await run(clock_s=-30).take(busy(2))
    now_us = time.monotonic_ns() // 1000
    assert not any(frame.gap for frame in reported.frames)
    assert all(abs(now_us - frame.mono_us) < 20_000_000 for frame in reported.frames)
    assert all(now_us - outlier.mono_us < 60_000_000 for frame in reported.frames for outlier in frame.outliers)


async def test_the_next_script_where_the_best_is_refused_and_why(run):
    refused = {
        "sd": 'dtrace: failed to compile script PROGRAM: line 12: failed to resolve "llquantize": Unknown function'
    }
    reported = await run(refused=refused).take(after(1))
    assert reported.fake.runs() == [["sd"], ["io_d"]] or reported.fake.runs()[-1] == ["io_d"]
    assert reported.origin.extra["probe"] == "io_d"
    assert reported.origin.reason.startswith("io_d, because sd is refused: ")
    assert "Unknown function" in reported.origin.reason


async def test_without_privileges_it_is_one_sentence(run):
    no = {"sd": "dtrace: failed to initialize dtrace: DTrace requires additional privileges"}
    with pytest.raises(UnavailableError, match=r"^dtrace needs more privileges .*usermod -K defaultpriv=") as refused:
        await run(refused=no).take(after(1))
    assert "\n" not in str(refused.value)


async def test_where_no_script_runs_each_reason_is_reported(run):
    no = dict.fromkeys(("sd", "io_d"), "dtrace: failed to compile script PROGRAM: line 1: no")
    with pytest.raises(UnavailableError, match="runs none of the probes here"):
        await run(refused=no).take(after(1))


@pytest.mark.slow
async def test_invasive_scripts_run_only_by_name(run, monkeypatch):
    with pytest.raises(UsageError, match="no invasive probe 'emlxs_thread' here"):
        await run(options={"invasive": ("emlxs_thread",)}).take(after(1))
    actual_manifests = program.manifests("illumos")
    costly = tuple(
        replace(manifest, cost="invasive") if manifest.name == "emlxs_thread" else manifest
        for manifest in actual_manifests
    )
    monkeypatch.setattr(program, "manifests", lambda _, **__: costly)
    reported = await run(options={"stages": "all"}).take(after(1))
    assert not any("emlxs_thread" in scripts for scripts in reported.fake.runs())
    assert "--invasive" in {one.name: one.reason for one in reported.origin.probes_missing}["emlxs_thread"]
    asked = await run(options={"stages": "all", "invasive": ("emlxs_thread",)}).take(after(1))
    assert "emlxs_thread" in asked.fake.runs()[-1]


async def test_drops_and_faults_are_reported(run):
    facts = {
        "2": "dtrace: 17 drops on CPU 3\ndtrace: 4 aggregation drops on CPU 0\n"
        "dtrace: 9 dynamic variable drops\n"
        "dtrace: error on enabled probe ID 7 (ID 30: fbt:sd:sdintr:entry): invalid address (0x8) in action #2"
    }
    reported = await run(said={"sd": facts}, go="").take(after(4))
    health = [frame.health for frame in reported.frames]
    assert sum(one.lost_events for one in health) == 21
    assert sum(one.map_full for one in health) == 9
    assert sum(one.undecoded_lines for one in health) == 1
    assert reported.frames[-1].outstanding == {}


async def test_one_that_dies_is_started_again_with_a_gap(run):
    reported = await run(dies={"sd": 3}, go="").take(lambda frame: bool(frame.gap))
    assert reported.fake.runs() == [["sd"], ["sd"]]
    gap = next(frame for frame in reported.frames if frame.gap)
    assert gap.gap == "probe-restart"
    assert gap.health.notice.startswith("dtrace was started again")
    assert "systemic unresponsiveness" in gap.health.notice


@pytest.mark.slow
async def test_one_that_dies_again_and_again_ends_the_capture(run):
    reported = await run(dies={"sd": 2}, go="", pace=0.02).take(lambda _: False, finish=False)
    assert len(reported.fake.runs()) == 4
    assert "dtrace ended 4 times within a minute" in reported.frames[-1].health.notice


@pytest.mark.slow
async def test_one_that_falls_silent_is_started_again(run, monkeypatch):
    monkeypatch.setattr(dtrace_backend, "_SILENT_S", 0.4)
    reported = await run(silent={"sd": 2}, go="", pace=0.05).take(lambda frame: bool(frame.gap))
    assert "printed nothing for" in reported.notices


async def test_lost_ticks_make_a_longer_interval(run):
    """Time is that of the stamps, not of the numbers or the requested interval."""
    reported = await run(pace=0.25, go="").take(busy(1))
    assert round(reported.frames[-1].dt_us, -4) == 250_000


@pytest.mark.slow
async def test_ticks_that_come_late_are_one_interval(run):
    reported = await run(go="", late={"sd": {"3": 0.9}}, pace=0.05).take(lambda frame: frame.late)
    (late,) = [frame for frame in reported.frames if frame.late]
    assert late.gap == ""
