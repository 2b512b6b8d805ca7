"""Several scripts in one process: each has its own ticks, and a complete interval is reported once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.framer import UNKNOWN
from latmon.manifest import load
from latmon.model.frame import Series, Thread
from latmon.model.histogram import bucket_index
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.handlers import Handler
from latmon.model.measurements.softirqs import SoftirqCpu
from latmon_backends.bpftrace.probe import BpftraceDecoder
from latmon_backends.probe import tick_protocol
from latmon_backends.probe.events import Attached, HelperFailed, Lost, MapPrinted, Printed, UndecodedLine
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.tick_protocol import ANY_TABLE, Losses, OnDemandSurroundings, OnDemandTicks

PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
NAMES = ("stages_c", "wakeups_c", "irqs_c", "softirqs_c")
MANIFESTS = [load(PROBES / f"{name}.yaml") for name in NAMES]
SDA = 8 << 20
HBA = Series("sda", "read", "hba")


class Run:
    """A process of four scripts whose counting has begun."""

    def __init__(self, proc, ahead_us=0, begin=True):
        self.proc = proc
        around = OnDemandSurroundings(map_keys=100, ahead_us=lambda _: ahead_us)
        self.ticks = OnDemandTicks(MANIFESTS, {SDA: "sda"}.get, Threads(proc), around)
        for name in NAMES if begin else ():
            self.tick(name, 0)
        self.ticks.taken()

    def line(self, text):
        self.ticks.take(Printed(text))

    def map(self, script, role, **values):
        """By its role, so that the scripts may name their maps as they like."""
        spec = next(
            spec
            for manifest in MANIFESTS
            for spec in manifest.maps
            if manifest.name == script and spec.role == role and spec.stages in ((), ("hba",), ("resume",))
        )
        rows = {}
        for key, value in values.items():
            parts = dict(part.split("=") for part in key.split(";"))
            rows[str(sum(int(n) << spec.part(name).shift for name, n in parts.items()))] = value
        self.ticks.take(MapPrinted(spec.name, rows))

    def hba(self, count, us=1000):
        self.map("stages_c", "histogram", **{f"dev={SDA};bucket={bucket_index(us)}": count})

    def begin(self, script, number, at_us=None):
        self.line(f"tick {script} {number} {(number * 1_000_000 if at_us is None else at_us) * 1000}")

    def tick(self, script, number, **maps):
        self.begin(script, number)
        if "hba" in maps:
            self.hba(maps["hba"])
        self.line(f"done {script}")

    def count(self):
        histogram = self.ticks.taken().interval.traced.histograms.get(HBA)
        return 0 if histogram is None else histogram.count


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


# Ticks


def test_each_script_counts_from_its_first_tick_at_or_after_a_time(run):
    """A process that takes over from another one counts nothing that the other one has counted."""
    run.tick("stages_c", 1, hba=5)
    run.tick("irqs_c", 1)
    run.ticks.count_from(2_500_000)
    run.tick("stages_c", 2, hba=7)
    assert run.ticks.counting == ()
    assert (run.count(), run.ticks.taken().ticks) == (0, 0)
    run.tick("stages_c", 3, hba=10)
    assert run.ticks.counting == (3_000_000,)
    run.tick("irqs_c", 3)
    assert run.ticks.counting == (3_000_000, 3_000_000)
    run.tick("stages_c", 4, hba=14)
    assert (run.ticks.counting, run.ticks.counts_since) == ((4_000_000, 3_000_000), (3_000_000, 3_000_000))
    window = run.ticks.taken()
    assert (window.interval.traced.histograms[HBA].count, window.begun_us, window.until_us) == (4, 3_000_000, 4_000_000)


def test_what_was_completed_is_reported_once(run):
    run.tick("stages_c", 1, hba=3)
    window = run.ticks.taken()
    assert window.interval.traced.histograms[HBA].count == 3
    assert (window.ticks, window.losses) == (1, Losses())
    assert run.count() == 0
    run.tick("stages_c", 2, hba=5)
    assert run.count() == 2


def test_a_tick_that_is_being_printed_waits_for_its_end(run):
    run.begin("stages_c", 1)
    run.hba(3)
    assert (run.ticks.taken().ticks, run.count()) == (0, 0)
    run.line("done stages_c")
    assert run.count() == 3


def test_several_ticks_are_one_window(run):
    for number in range(1, 4):
        run.tick("stages_c", number, hba=number)
    window = run.ticks.taken()
    assert window.ticks == 3
    assert window.interval.traced.histograms[HBA].count == 3


def test_scripts_tick_each_for_itself_and_their_lines_mix(run):
    run.begin("stages_c", 1)
    run.begin("softirqs_c", 1, 1_100_000)
    run.hba(2)
    run.map("softirqs_c", "softirq_run", **{f"vec=4;cpu=1;bucket={bucket_index(9)}": 7})
    run.line("done softirqs_c")
    found = run.ticks.taken()
    assert found.interval[SOFTIRQS][SoftirqCpu("BLOCK", 1)].run.count == 7
    assert found.interval.traced.histograms == {}
    run.line("done stages_c")
    assert run.count() == 2


def test_records_before_a_scripts_first_tick_are_dropped(tmp_path):
    run = Run(tmp_path, begin=False)
    run.hba(9)
    run.tick("stages_c", 0, hba=9)
    assert (run.ticks.taken().ticks, run.count()) == (0, 0)
    run.tick("stages_c", 1, hba=10)
    assert run.count() == 1


def test_a_tick_whose_first_line_is_torn_counts_with_the_next(run):
    run.line("tick stages_c x 1")
    run.hba(3)
    run.line("done stages_c")
    window = run.ticks.taken()
    assert (window.losses.undecoded, window.ticks) == (1, 0)
    run.tick("stages_c", 2)
    assert run.count() == 3


def test_stamps_of_boottime_are_put_on_the_monotonic_clock(tmp_path):
    run = Run(tmp_path, ahead_us=400_000)
    run.line("late wakeups_c 12 120 9000000000 1500 0 120 0 1 kworker/0:1H")
    run.tick("wakeups_c", 1)
    run.tick("wakeups_c", 2)
    window = run.ticks.taken()
    run.tick("wakeups_c", 3)
    assert run.ticks.taken().begun_us == 1_600_000
    assert window.records[0].get("woken_ns") == 8_600_000_000


# Records, threads, handlers


def test_slow_resumed_and_late_come_as_they_are(run):
    run.line("slow stages_c 1 2")
    run.line("late wakeups_c 12 120 9000 1500 0 -1 0 1 kworker/0:1H")
    run.line("resumed wakeups_c 8388608 2048 9000 700 4711 120 my program")
    window = run.ticks.taken()
    assert [(record.kind, record.text) for record in window.records] == [
        ("late", "kworker/0:1H"),
        ("resumed", "my program"),
    ]
    assert window.losses.undecoded == 1
    assert run.ticks.taken().records == ()


def test_a_flood_of_records_is_bounded_and_counted(run, monkeypatch):
    monkeypatch.setattr(tick_protocol, "MAX_RECORDS", 3)
    for _ in range(5):
        run.line("late wakeups_c 12 120 9000 1500 0 -1 0 1 x")
    window = run.ticks.taken()
    assert (len(window.records), window.losses.unkept, window.losses.dropped) == (3, 2, 0)


def test_a_handlers_record_names_it(run):
    spec = next(spec for spec in MANIFESTS[2].maps if spec.role == "handler_run")
    number = 11 << 28 | 77
    key = str(number << spec.part("handler").shift | 1 << spec.part("returned").shift | bucket_index(20))
    for tick, line in enumerate(("", f"handler irqs_c {number} 11 11 nvme0q1"), 1):
        run.begin("irqs_c", tick)
        run.line(line)
        run.ticks.take(MapPrinted(spec.name, {key: 30 * tick}))
        run.line("done irqs_c")
        handlers = run.ticks.taken().interval[HANDLERS]
        name = Handler(11, "nvme0q1") if line else UNKNOWN
        assert {handler: runs.run.count for handler, runs in handlers.items()} == {name: 30}


def test_a_threads_record_names_it(run):
    run.line("thread wakeups_c 12 49 ksoftirqd/0")
    run.begin("wakeups_c", 1)
    run.map("wakeups_c", "wakeup", **{"thread=12;bucket=5": 2})
    run.map("wakeups_c", "wakeup_instead", **{"thread=12;other=0": 1})
    run.line("done wakeups_c")
    (wakeups,) = run.ticks.taken().interval[WAKEUPS].values()
    assert wakeups.thread == Thread(12, "ksoftirqd/0", "", 49, kernel=False)
    assert (wakeups.delay.count, wakeups.instead) == (2, {"idle": 1})


# Losses and the end


def test_losses(run):
    for event in (
        Lost(3),
        Lost(-1),
        HelperFailed("x", -7, ""),
        HelperFailed("x", -2, ""),
        UndecodedLine("?"),
        Attached(4),
    ):
        run.ticks.take(event)
    run.ticks.take(MapPrinted("nobody", {}))
    run.ticks.take(MapPrinted("stages_c_path", {str(n): 1 for n in range(100)}))
    assert run.ticks.taken().losses == Losses(
        lost=3, map_full=2, undecoded=3, full=frozenset((ANY_TABLE, "stages_c_path"))
    )
    assert run.ticks.taken().losses == Losses()


def test_lines_of_unknown_scripts_are_ignored(run):
    for text in (
        "",
        "tick",
        "tick nobody 1 1",
        "done nobody",
        "ready stages_c 1",
        "stages_c",
        "slow",
        "hello stages_c 1",
    ):
        run.line(text)
    assert run.ticks.taken().losses == Losses()


def test_the_end_is_complete_without_a_done(run):
    run.tick("stages_c", 1, hba=1)
    run.ticks.end()
    run.line("last stages_c 2 1500000000")
    run.hba(4)
    run.ticks.take(MapPrinted("stages_c_tick", {"": 2}))
    window = run.ticks.taken()
    assert window.interval.traced.histograms[HBA].count == 4
    assert window.losses == Losses()


def test_a_tick_that_broke_off_is_not_complete(run):
    run.begin("stages_c", 1)
    run.hba(4)
    run.ticks.end()
    assert (run.ticks.taken().ticks, run.count()) == (0, 0)


def test_a_window_begins_with_the_earliest_of_its_scripts(run):
    assert run.ticks.taken().begun_us == 0
    for name, number, at_us in (("stages_c", 1, 1_000_000), ("irqs_c", 1, 1_300_000)):
        run.begin(name, number, at_us)
        run.line(f"done {name}")
    run.ticks.taken()
    for number, at_us in ((2, 2_200_000), (3, 3_600_000)):
        run.begin("irqs_c", number, at_us)
        run.line("done irqs_c")
    assert run.ticks.taken().begun_us == 1_300_000
    run.tick("irqs_c", 4)
    run.tick("stages_c", 4)
    assert run.ticks.taken().begun_us == 1_000_000
    assert run.ticks.taken().begun_us == 0


@given(st.lists(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode()))))
def test_no_output_raises(tmp_path_factory, portions):
    run = Run(tmp_path_factory.getbasetemp())
    decoder = BpftraceDecoder()
    for portion in portions:
        for event in decoder.feed(b'{"type": "printf", "data": "late wakeups_c ' + portion + b'"}\n' + portion + b"\n"):
            run.ticks.take(event)
    window = run.ticks.taken()
    assert window.losses.undecoded + len(window.records) >= 0


# Slow bios


DM = 253 << 20


@pytest.fixture
def bios(tmp_path):
    """A process of one script for bios, where sda is timed by its requests and dm-0 by its bios alone."""
    around = OnDemandSurroundings(map_keys=100, timed=lambda name: name == "sda")
    ticks = OnDemandTicks([load(PROBES / "bios_c.yaml")], {SDA: "sda", DM: "dm-0"}.get, Threads(tmp_path), around)

    def text(*what):
        for one in what:
            if one == "slow":
                ticks.take(Printed(f"slow bios_c {DM} 0 R 1 4096 1000000 31000000 30000 30000 0 0 4711 0 dd"))
            elif isinstance(one, int):
                ticks.take(MapPrinted("bios_c_above", {str(DM << 16): one}))
            else:
                ticks.take(Printed(one))
        window = ticks.taken()
        return len(window.records), sum(window.interval[ABOVE].values())

    return text


def test_a_slow_bio_is_reported_with_the_tick_that_counts_it(bios):
    assert bios("slow", "tick bios_c 0 1000000", 1, "done bios_c") == (0, 0)  # before its counting began
    assert bios("slow", "slow") == (0, 0)
    assert bios("tick bios_c 1 2000000", 3, "done bios_c", "slow") == (2, 2)
    assert bios("tick bios_c 2 3000000", 4, "done bios_c") == (1, 1)


def test_bios_of_a_device_that_is_timed_by_its_requests_are_nothing(tmp_path):
    around = OnDemandSurroundings(map_keys=100, timed=lambda _: True)
    ticks = OnDemandTicks([load(PROBES / "bios_c.yaml")], {SDA: "sda"}.get, Threads(tmp_path), around)
    for number in (0, 1):
        ticks.take(Printed(f"slow bios_c {SDA} 0 R 1 4096 1000000 31000000 30000 30000 0 0 4711 0 dd"))
        ticks.take(Printed(f"tick bios_c {number} 1000000"))
        for name in ("above", "same"):
            ticks.take(MapPrinted(f"bios_c_{name}", {str(SDA << 16): number}))
        ticks.take(Printed("done bios_c"))
    window = ticks.taken()
    assert (window.records, window.interval[ABOVE], window.interval.traced.histograms) == ((), {}, {})


@pytest.mark.parametrize(
    ("comm", "expected"),
    [("kworker/u8:1-loop2", "kworker/u8:1"), ("kworker/0:1H", "kworker/0:1H"), ("log-writer", "log-writer")],
)
def test_a_kworker_is_one_process_whatever_it_works_on(comm, expected):
    assert tick_protocol._worker(comm) == expected


def test_a_script_that_cleared_its_threads_counts_them_from_0(run):
    """Two ticks of one window: the second has more of the thread than the first, and no more than that."""
    run.line("thread wakeups_c 12 49 ksoftirqd/0")
    run.tick("wakeups_c", 0)
    run.ticks.taken()
    for number, count in ((1, 2), (2, 3)):
        run.begin("wakeups_c", number)
        run.map("wakeups_c", "wakeup", **{"thread=12;bucket=5": count})
        run.line("done wakeups_c")
        run.line("cleared wakeups_c")
    (wakeups,) = run.ticks.taken().interval[WAKEUPS].values()
    assert wakeups.delay.count == 5
