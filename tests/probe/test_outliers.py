"""Outliers: records of two probes on one I/O become one row that adds up, within two ticks, whatever is missing."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.tables import Record, record
from latmon.manifest import load
from latmon.model.frame import Outlier, Wait
from latmon.support.text import is_clean
from latmon_backends.probe import outliers
from latmon_backends.probe.outliers import HOLD, Outliers, ReadyOutliers, Threads

PROBES = Path(__file__).resolve().parents[2] / "probes/linux"
PATHS = {"paths": ("hard interrupt", "BLOCK softirq"), "unfollowed": ("batched completion",)}
ALWAYS = replace(load(PROBES / "block_a.yaml"), includes={"hba": ("irq", "softirq"), "queue": ("requeue",)})
ON_DEMAND = replace(load(PROBES / "stages_a.yaml"), includes={"queue": ("requeue",), "softirq": ("net",)}, **PATHS)
BIOS = load(PROBES / "bios_a.yaml")
SDA, DM, GHOST = 8 << 20, 253 << 20, 7 << 20
NAMES = {SDA: "sda", DM: "dm-0"}
WALL, NOW_US = 1_700_000_000.0, 50_000_000
DONE_NS = 40_000_000_000


@pytest.fixture
def joined(tmp_path):
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_text("77 (hog) R 2 0 0 0 -1 64 0 0 0 0 0 0 0 0 -51 " + "0 " * 22 + "1 0 0\n")
    return Outliers([ALWAYS, ON_DEMAND, BIOS], NAMES.get, Threads(tmp_path))


def slow(probe="block_a", comm="", **fields):
    known = {"request": 0xFFFF888000001000, "dev": SDA, "op": 1, "sector": 2048, "done_ns": DONE_NS, "total_us": 9000}
    return Record("slow", probe, {k: v for k, v in (known | fields).items() if v is not None}, text=comm)


def always(**fields):
    return slow(**{"flags": 1 | 1 << 11, "bytes": 4096, "queue_us": 1000, "hba_us": 7999, "cpu_complete": 1} | fields)


def on_demand(**fields):
    known = {"queue_us": 1000, "hba_us": 5000, "irq_us": 10, "softirq_us": 2985, "path": 1, "pid": 4711, "cpu_issue": 0}
    return slow("stages_a", **{"comm": "fio", **known, **fields})


def resumed(us=500, thread=4711, **fields):
    known = {"request": 0xFFFF888000001000, "dev": SDA, "sector": 2048, "done_ns": DONE_NS}
    return Record(
        "resumed", "wakeups_a", {**known, "resume_us": us, "thread": thread, "priority": 120, **fields}, text="fio"
    )


def late(thread=4711, woken_us=DONE_NS // 1000 + 1, delay_us=490, comm="fio", **fields):
    known = {"thread": thread, "priority": 120, "woken_ns": woken_us * 1000, "delay_us": delay_us}
    return Record("late", "wakeups_a", {**known, **fields}, text=comm)


def take_ready(joined, ticks=HOLD + 1, hold=HOLD, **how):
    """Return the outliers of as many ticks, together."""
    found = [joined.take_ready(WALL, NOW_US, hold, **how) for _ in range(ticks)]
    return ReadyOutliers(
        tuple(outlier for each in found for outlier in each.outliers),
        sum(each.dropped for each in found),
        sum(each.lost for each in found),
        sum(each.undecoded for each in found),
    )


def only(joined, *records):
    joined.take(records)
    (outlier,) = take_ready(joined).outliers
    return outlier


# One I/O


def test_the_always_on_probe_alone(joined):
    joined.take([always()])
    assert take_ready(joined, 1, hold=0) == ReadyOutliers(
        (
            Outlier(
                wall=WALL - 10.009,
                mono_us=39_991_000,
                device="sda",
                op="write",
                total_us=9000,
                stages_us={"queue": 1000, "hba": 7999},
                unaccounted_us=1,
                flags=("sync",),
                sector=2048,
                bytes=4096,
                cpu_complete=1,
                includes={"hba": ("irq", "softirq"), "queue": ("requeue",)},
            ),
        )
    )


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ((always(status=0),), ""),
        ((always(status=10),), "I/O error"),
        ((always(status=0), on_demand(status=0)), ""),
        ((always(status=3), on_demand(status=3)), "no space"),
        ((always(status=256 + 110),), "time-out"),  # an errno, by tier C
        ((always(),), ""),
    ],
)
def test_a_slow_one_that_failed_has_its_status(joined, records, status):
    assert only(joined, *records).status == status


def test_of_both_the_on_demand_probes_stages_win_and_the_rest_adds_up(joined):
    outlier = only(joined, always(), on_demand(total_us=9001, done_ns=DONE_NS + 900))
    assert outlier.stages_us == {"queue": 1000, "hba": 5000, "irq": 10, "softirq": 2985}
    assert (outlier.total_us, outlier.unaccounted_us) == (9001, 6)
    assert sum(outlier.stages_us.values()) + outlier.unaccounted_us == outlier.total_us
    assert (outlier.pid, outlier.comm, outlier.path, outlier.bytes) == (4711, "fio", "BLOCK softirq", 4096)
    assert (outlier.cpu_issue, outlier.cpu_complete, outlier.flags) == (0, 1, ("sync",))
    assert outlier.includes == {"queue": ("requeue",), "softirq": ("net",)}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_records_come_in_any_order_and_up_to_two_ticks_apart(joined, order):
    records = [always(), on_demand(), resumed()]
    found = []
    for n in order:
        found.append(joined.take_ready(WALL, NOW_US).outliers)
        joined.take([records[n]])
    found.append(joined.take_ready(WALL, NOW_US).outliers)
    assert [len(each) for each in found] == [0, 0, 0, 1]
    assert found[-1][0].stages_us["resume"] == 500


def test_what_is_whole_waits_no_longer_and_what_is_not_waits_two_ticks(joined):
    joined.take([always(), on_demand(), resumed(), always(request=5, sector=9)])
    assert [len(joined.take_ready(WALL, NOW_US).outliers) for _ in range(4)] == [1, 0, 1, 0]


def test_a_resume_extends_the_total(joined):
    outlier = only(joined, always(), resumed(us=700))
    assert (outlier.total_us, outlier.stages_us["resume"], outlier.mono_us) == (9700, 700, 39_991_000)
    assert sum(outlier.stages_us.values()) + outlier.unaccounted_us == outlier.total_us


def test_what_the_on_demand_probe_alone_reports_was_not_above_the_threshold(joined):
    joined.take([on_demand(), resumed()])
    assert take_ready(joined) == ReadyOutliers()


def test_bios_speak_for_themselves(joined):
    outlier = only(joined, slow("bios_a", dev=DM, hba_us=9000, pid=5, comm="dd"))
    assert (outlier.device, outlier.stages_us, outlier.comm) == ("dm-0", {"hba": 9000}, "dd")


def test_without_the_requests_address_its_place_does(joined):
    outlier = only(joined, always(request=None), on_demand(request=None), resumed(request=None))
    assert outlier.comm == "fio"
    assert "resume" in outlier.stages_us


@pytest.mark.parametrize(
    "other",
    [
        {"done_ns": DONE_NS + 60_000},
        {"request": 1},
        {"dev": DM},
        {"request": 1, "sector": 4096},
        {"request": None, "sector": None},
    ],
)
def test_another_request_is_not_the_same(joined, other):
    assert only(joined, always(), on_demand(**other)).comm == ""


def test_a_tag_that_is_used_again_at_once_is_another_request(joined):
    """Both of one address, the second begun when the first was done."""
    again, short = DONE_NS + 300_000, 290_000
    joined.take([always(begun_ns=DONE_NS - 9_000_400, bytes=1), always(done_ns=again, begun_ns=again - short, bytes=2)])
    joined.take(
        [
            on_demand(
                done_ns=again + 900, begun_ns=again - short + 400, comm="second", total_us=290, hba_us=90, queue_us=1
            )
        ]
    )
    assert [(outlier.bytes, outlier.comm) for outlier in take_ready(joined).outliers] == [(1, ""), (2, "second")]


def test_a_request_whose_tag_is_reported_of_another_begin_has_no_on_demand_stages(joined):
    outlier = only(joined, always(begun_ns=DONE_NS - 9_000_000), on_demand(begun_ns=DONE_NS - 8_990_000))
    assert (outlier.comm, outlier.stages_us) == ("", {"queue": 1000, "hba": 7999})


def test_the_same_begin_may_be_reported_with_an_interrupt_between_the_two_ends(joined):
    stamps = {"begun_ns": DONE_NS - 9_000_000, "done_ns": DONE_NS + 80_000_000}
    assert only(joined, always(begun_ns=DONE_NS - 9_001_000), on_demand(**stamps)).comm == "fio"


def test_begins_are_not_compared_where_the_one_is_the_issue(joined):
    """Without addresses: the always-on probe's I/O begins at its issue there, the tracer's when it is queued."""
    joined.take([always(request=None, begun_ns=DONE_NS - 8_000_000)])
    joined.take([on_demand(request=None, begun_ns=DONE_NS - 9_000_000, done_ns=DONE_NS + 45_000)])
    assert [outlier.comm for outlier in take_ready(joined).outliers] == ["fio"]


def test_a_waiter_is_that_of_the_request_that_was_done_then(joined):
    joined.take([always(), resumed(done_ns=DONE_NS + 300_000)])
    assert [outlier.stages_us.get("resume") for outlier in take_ready(joined).outliers] == [None]


def test_of_several_at_one_place_the_closest_in_time_is_meant(joined):
    joined.take([always(done_ns=DONE_NS + n * 400_000, request=None, bytes=n) for n in range(3)])
    joined.take([on_demand(done_ns=DONE_NS + 410_000, request=None)])
    assert [outlier.comm for outlier in take_ready(joined).outliers] == ["", "fio", ""]


def test_two_of_one_probe_are_two(joined):
    joined.take([always(), always()])
    assert len(take_ready(joined).outliers) == 2


def test_they_come_in_the_order_in_which_they_began(joined):
    joined.take([always(request=n, sector=n, total_us=total) for n, total in ((1, 5000), (2, 9000), (3, 7000))])
    assert [outlier.sector for outlier in take_ready(joined).outliers] == [2, 3, 1]


def test_one_that_could_not_be_followed_says_why(joined):
    outlier = only(joined, always(), on_demand(path=64, hba_us=None, irq_us=None, softirq_us=None))
    assert (outlier.path, outlier.stages_us, outlier.unaccounted_us) == ("batched completion", {"queue": 1000}, 8000)
    assert only(joined, always(), on_demand(path=63)).path == "unknown code 63"


def test_stages_that_exceed_the_total_are_not_believed(joined):
    outlier = only(joined, always(), on_demand(hba_us=99_000))
    assert outlier.stages_us == {"queue": 1000, "hba": 7999}
    outlier = only(joined, always(hba_us=99_000))
    assert (outlier.stages_us, outlier.unaccounted_us) == ({}, 9000)


def test_flags_by_letters(joined):
    one = replace(always(flags=None), rwbs="FWFSM")
    assert only(joined, one).flags == ("sync", "fua", "meta", "preflush")


def test_flags_by_the_bits_that_are_given(tmp_path):
    joined = Outliers([ALWAYS], NAMES.get, Threads(tmp_path), {"meta": 9})
    assert only(joined, always(flags=1 << 9)).flags == ("meta",)


def test_without_a_total_its_begin_reports_it(joined):
    assert only(joined, always(total_us=None, begun_ns=DONE_NS - 8_999_500)).total_us == 8999


def test_an_op_that_is_not_reported_is_other(joined):
    assert only(joined, always(op=None)).op == "other"


def test_counts_of_its_device(joined):
    outlier = only(joined, always(), on_demand(outstanding=31, overtaken=0))
    assert (outlier.outstanding_at_issue, outlier.overtaken_by) == (31, 0)


def test_times_that_are_not_their_own_are_left_out(tmp_path):
    joined = Outliers([ALWAYS], NAMES.get, Threads(tmp_path), times=lambda _, op: op != "flush")
    joined.take([always(op=2), always(op=1)])
    assert [outlier.op for outlier in take_ready(joined).outliers] == ["write"]


def test_scripts_that_are_started_later(tmp_path):
    joined = Outliers([ALWAYS], NAMES.get, Threads(tmp_path))
    joined.take([on_demand()])
    joined.add([ON_DEMAND])
    joined.take([always(), on_demand()])
    ready_outliers = take_ready(joined)
    assert (len(ready_outliers.outliers), ready_outliers.undecoded) == (1, 1)


# Threads that it waited for

HOG = "hog (prio 49)"


def test_the_waiters_wake_up(joined):
    outlier = only(joined, always(), resumed(), late(instead=77, instead_priority=49, ran_us=400))
    assert outlier.waits == (Wait("resume", "fio", 4711, 120, 40_000_001, 490, HOG, 400, instead_policy="fifo"),)


def test_how_long_the_other_thread_ran_may_be_unknown(joined):
    outlier = only(joined, always(), resumed(), late(instead=77, instead_priority=49))
    assert outlier.waits == (Wait("resume", "fio", 4711, 120, 40_000_001, 490, HOG, instead_policy="fifo"),)


@pytest.mark.parametrize(
    ("comm", "stage"),
    [
        ("kworker/1:2H", "completion"),
        ("irq/24-nvme0q1", "completion"),
        ("ksoftirqd/1", "softirq"),
        ("ktimers/0", "softirq"),
    ],
)
def test_the_completing_threads_wake_up(joined, comm, stage):
    woken = DONE_NS // 1000 - 3000
    outlier = only(joined, late(12, woken, 2900, comm, instead=0), always(), on_demand(thread=12))
    assert outlier.waits == (Wait(stage, comm, 12, 120, woken, 2900),)


def test_waits_come_in_their_order_and_without_what_is_not_known(joined):
    woken = DONE_NS // 1000 - 3000
    wakes = [late(comm="", priority=None), late(12, woken, 2900, "kworker")]
    wakes[0].fields.pop("priority")
    outlier = only(joined, always(), on_demand(thread=12), resumed(), *wakes)
    assert [(wait.pid, wait.thread, wait.priority) for wait in outlier.waits] == [(12, "kworker", 120), (4711, "", -1)]


@pytest.mark.parametrize(
    "other",
    [
        late(99),
        late(woken_us=DONE_NS // 1000 - 5000),
        late(delay_us=9000),
        late(12, DONE_NS // 1000 - 20_000, 5000),
        late(12, DONE_NS // 1000 - 3000, 9000),
    ],
)
def test_other_wake_ups_are_not_its_own(joined, other):
    assert only(joined, always(), on_demand(thread=12), resumed(), other).waits == ()


def test_of_hundreds_of_wake_ups_the_longest_are_reported(joined):
    woken = [late(woken_us=DONE_NS // 1000 - 8000 + n, delay_us=10 + n) for n in range(300)]
    waits = only(joined, always(), on_demand(thread=4711), *woken).waits
    assert [wait.delay_us for wait in waits] == list(range(278, 310))


def test_a_wake_up_may_be_reported_a_tick_before_its_request(joined):
    joined.take([late(12, DONE_NS // 1000 - 3000, 2900, "kworker")])
    assert take_ready(joined, 1) == ReadyOutliers()
    assert len(only(joined, always(), on_demand(thread=12)).waits) == 1
    assert only(joined, always(), on_demand(thread=12)).waits == ()


# What can't be


@pytest.mark.parametrize(
    "odd",
    [
        always(done_ns=None),
        always(total_us=None),
        always(total_us=None, begun_ns=DONE_NS + 1),
        always(total_us=DONE_NS // 1000 + 1),
        slow("nobody"),
        resumed(us=None),
    ],
)
def test_it_is_counted_and_reports_nothing(joined, odd):
    joined.take([Record(odd.kind, odd.probe, {k: v for k, v in odd.fields.items() if v is not None})])
    assert take_ready(joined) == ReadyOutliers(undecoded=1)


def test_an_outlier_of_a_device_without_a_name_is_dropped(joined):
    joined.take([always(dev=GHOST)])
    assert take_ready(joined) == ReadyOutliers()


def test_what_waits_is_bounded(joined, monkeypatch):
    monkeypatch.setattr(outliers, "MAX_WAITING", 3)
    joined.take([always(request=n, sector=n) for n in range(1, 6)])
    joined.take([late(n) for n in range(5)])
    joined.take([resumed(request=n, sector=n + 100) for n in range(5)])
    ready_outliers = take_ready(joined)
    assert (len(ready_outliers.outliers), ready_outliers.dropped, ready_outliers.lost) == (3, 2, 4)
    joined.take([slow("bios_a", request=n, sector=n) for n in range(1, 5)])
    assert take_ready(joined).dropped == 1
    joined.take([on_demand(request=n, sector=n) for n in range(1, 5)])
    assert (ready_outliers := take_ready(joined)).lost == 1
    assert ready_outliers.dropped == 0


def test_nothing_is_kept_that_is_reported(joined):
    joined.take([always(), on_demand(), resumed(request=9, sector=9), late()])
    take_ready(joined, HOLD + 2)
    assert not any((joined._reported, joined._places, joined._resumed, joined._late))


SPECS = [
    spec
    for manifest in (ALWAYS, ON_DEMAND, BIOS, load(PROBES / "wakeups_a.yaml"))
    for spec in manifest.records.values()
]
small = st.one_of(
    st.integers(-2, 300), st.sampled_from([SDA, DM, DONE_NS, DONE_NS + 5, 2**31, 2**40, 2**62, 2**64 - 1])
)


@st.composite
def lines(draw):
    spec = draw(st.sampled_from(SPECS))
    probe = draw(st.sampled_from(["block_a", "stages_a", "bios_a", "wakeups_a", "x"]))
    fields = draw(st.lists(small, min_size=len(spec.fields), max_size=len(spec.fields)))
    return record(f"{spec.kind} {probe} {' '.join(map(str, fields))} {draw(st.text(max_size=20))}", spec)


@given(st.lists(st.one_of(st.none(), lines()), max_size=12))
def test_any_lines_become_rows_that_add_up(tmp_path_factory, ticks):
    joined = Outliers([ALWAYS, ON_DEMAND, BIOS], NAMES.get, Threads(tmp_path_factory.getbasetemp()))
    found = []
    for tick in [*ticks, None, None, None, None]:
        if tick is None:
            found.extend(joined.take_ready(WALL, NOW_US).outliers)
        else:
            joined.take([tick])
    for row in found:
        assert sum(row.stages_us.values()) + row.unaccounted_us == row.total_us
        assert row.unaccounted_us >= 0
        assert row.mono_us >= 0
        assert all(is_clean(text) for text in (row.comm, row.path, *(w.thread + w.instead for w in row.waits)))


# A flood


def test_a_traced_outlier_replaces_one_without_stages(joined):
    joined.take(
        [always(request=1, sector=8), always(request=2, sector=16, total_us=9500), on_demand(request=3, sector=24)]
    )
    actual_outliers = take_ready(joined, flood=True).outliers
    assert len(actual_outliers) == 2
    assert sorted(outlier.sector for outlier in actual_outliers) == [16, 24]
    (whole,) = (outlier for outlier in actual_outliers if outlier.sector == 24)
    assert whole.stages_us["softirq"] == 2985
    assert whole.pid == 4711


@pytest.mark.parametrize("fields", [{"total_us": 8999}, {"op": 0}, {"dev": DM}, {"queue_us": 1002}])
def test_it_is_above_the_threshold_and_of_the_same_kind(joined, fields):
    joined.take([always(request=1, sector=8), on_demand(request=3, sector=24, **fields)])
    (outlier,) = take_ready(joined, flood=True).outliers
    assert outlier.sector == 8


def test_an_outlier_that_both_probes_report_replaces_no_other(joined):
    joined.take([always(), on_demand(), always(request=1, sector=8)])
    assert [outlier.sector for outlier in take_ready(joined, flood=True).outliers] == [2048, 8]
