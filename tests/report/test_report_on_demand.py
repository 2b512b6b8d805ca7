"""Traced requests, tails, outliers, interrupts and wake-ups in a report; unmeasured values are absent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from on_demand_frames import DISK, ON_DEMAND, of, outlier, traced_disk
from recorded import ORIGIN, frame
from report_json import summarised

from latmon.capture.backend import Options
from latmon.model import measurements
from latmon.model.frame import Device, DeviceReport, FileSplit, Flow, Frame, Health, Missing, Series, Thread, Traced
from latmon.model.histogram import Histogram
from latmon.model.host_context import CONTEXT, interval_value
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.report import interrupts
from latmon.report import outliers as rows
from latmon.report.columns import text_table
from latmon.report.files import OPERATIONS
from latmon.report.interrupts import WAKEUPS
from latmon.report.issuers import process_table, processes
from latmon.report.model.request import LateWakeup
from latmon.report.outliers import waits
from latmon.report.text import render_text
from latmon.report.totals import MAX_REPORTS, Totals
from latmon.support.text import WIDTH
from latmon.support.typed_json import to_json
from latmon.views.units import exact

NEW_KEYS = {"softirqs", "irqs", "wakeups", "wakeups_left_out", "outliers", "outliers_left_out", "host_context"}


@pytest.fixture
def summary_of(tmp_path):
    def made(*frames: Frame, origin=ORIGIN):
        writer = Writer.create(tmp_path / "r", origin)
        for seq, current_frame in enumerate(frames):
            writer.append(replace(current_frame, seq=seq, mono_us=6_000_000 + seq * 1_000_000))
        writer.close()
        summary = summarised(open_recording(tmp_path / "r"))
        json.dumps(summary, allow_nan=False)
        return summary

    return made


def test_cgroups_have_their_devices_and_ops(summary_of):
    issuers = {
        Issuer("sda", "read", "/a"): IssuedIO(2, 8192, of(100, 100)),
        Issuer("sda", "write", "/a"): IssuedIO(1, 512, of(400)),
        Issuer("sdb", "read", "/a"): IssuedIO(1, 4096, of(200)),
        Issuer("sda", "read", "/b", "web"): IssuedIO(1, 1024, of(200)),
        Issuer("sda", "flush", OTHERS): IssuedIO(0, 64),
        Issuer("sda", "read", "/a", "", 7, "fio"): IssuedIO(2, 8192, of(100, 100)),
    }
    behind = {Behind("sda", "/a", "/b"): 30, Behind("sda", "/a", "/a"): 10}
    summary = summary_of(
        *(
            replace(frame(n), tables={**frame(n).tables, measurements.ISSUERS: issuers, measurements.BEHIND: behind})
            for n in range(2)
        )
    )
    first, second, others = summary["cgroups"]
    assert [(one["cgroup"], one["name"], one["count"], one["bytes"]) for one in (first, second, others)] == [
        ("/a", "/a", 8, 25_600),
        ("/b", "web", 2, 2048),
        (OTHERS, "others", 0, 128),
    ]
    assert (first["share"], second["share"]) == (0.8, 0.2)
    ops = {name: device["ops"] for name, device in first["devices"].items()}
    assert {name: {op: part["count"] for op, part in found.items()} for name, found in ops.items()} == {
        "sda": {"read": 4, "write": 2},
        "sdb": {"read": 2},
    }
    assert first["devices"]["sda"]["share"] == 0.75
    assert ops["sda"]["write"]["bytes"] == 1024
    assert not {"share", "latency_us"} & others.keys()
    assert [one["cgroup"] for one in first["behind"]] == ["/b", "/a"]
    assert first["behind"][0] == {"cgroup": "/b", "name": "web", "share": 0.75}
    assert "behind" not in second
    (process,) = summary["processes"]
    assert (process["pid"], process["comm"], process["cgroup"], process["count"]) == (7, "fio", "/a", 4)
    assert process["devices"]["sda"]["ops"]["read"]["bytes"] == 16_384
    table = "\n".join(text_table(process_table(summary.report)))
    assert "behind" not in table, "it is of cgroups alone"
    assert re.search(r"fio 7 +/a +4 ", table)
    assert len(table.splitlines()[0]) <= WIDTH, "a longer row is wrapped"


def test_latencies_by_size_are_of_each_op(summary_of):
    sizes = {
        SizeClass("sdc", "write", 4096): IssuedIO(3, 8192, of(100, 100, 200).coarsen(2)),
        SizeClass("sdc", "write", 8192): IssuedIO(1, 8192, of(400).coarsen(2)),
        SizeClass("sdc", "write", 0): IssuedIO(1, 4 << 20, of(9000).coarsen(2)),
    }
    patterns = {DISK: Pattern(8, 2, 8, 0, 4)}
    summary = summary_of(
        *(
            replace(
                ON_DEMAND,
                seq=n,
                mono_us=n,
                tables={**ON_DEMAND.tables, measurements.SIZES: sizes, measurements.PATTERNS: patterns},
            )
            for n in (1, 2)
        )
    )
    actual_sizes = summary["devices"]["sdc"]["ops"]["write"]["sizes"]
    assert actual_sizes["histogram"] == [
        {"upto": 4096, "count": 6, "bytes": 16_384},
        {"upto": 8192, "count": 2, "bytes": 16_384},
        {"upto": None, "count": 2, "bytes": 8 << 20},
    ]
    assert [(one["upto"], one["count"], one["latency_us"]["sum"]) for one in actual_sizes["latency"]] == [
        (4096, 6, 800),
        (16_384, 2, 800),
        (None, 2, 18_000),
    ]
    assert actual_sizes["pattern"] == {"issued": 16, "sequential": 4, "sync": 16, "ahead": 0, "unaligned": 8}
    text = " ".join(render_text(summary.report).split())
    assert "write by size: 60% up to 4 KiB (p50 120us, p99 -)" in text, "two digits, as every quantile"
    assert "a bucket at most 12.5 % wide (by size 25 %); it is rounded up to two digits" in text
    assert "25% sequential, 100% flagged SYNC, 50% not aligned to physical blocks" in text


def test_unmeasured_values_are_absent(summary_of):
    summary = summary_of(frame(0))
    assert not NEW_KEYS & set(summary)
    assert not {"suppressed", "untraced_share", "traced", "probe_cpu_percent"} & set(summary["health"])
    assert not {"tail", "traced", "above", "threshold_us"} & set(summary["devices"]["sda"])
    assert not {"of", "tail", "unaccounted"} & set(summary["devices"]["sda"]["ops"]["read"])


def from_submission(traced):
    """Return the same with five writes that waited 300 us before their requests."""
    waits = {
        Series("sdc", "write", "whole"): Histogram.record([400] * 5),
        Series("sdc", "write", "admission"): Histogram.record([300] * 5),
    }
    return replace(traced, histograms={**traced.histograms, **waits})


def test_latency_from_submission_is_a_series_of_its_own(summary_of, tmp_path):
    traced = from_submission(ON_DEMAND.traced)
    plain = summary_of(ON_DEMAND)
    (tmp_path / "r").unlink()
    summary = summary_of(replace(ON_DEMAND, traced=traced))
    op = summary["devices"]["sdc"]["ops"]["write"]
    assert (op["latency_whole_us"]["count"], op["latency_whole_us"]["sum"]) == (5, 2000)
    assert op["admission_us"]["sum"] == 1500
    before = plain["devices"]["sdc"]["ops"]["write"]
    assert {key: op[key] for key in before} == before, "nothing else has it"
    shown = render_text(summary.report)
    rows = [shown.index(f"\n    {name} ") for name in ("whole*", "admission*", "of traced")]
    assert rows == sorted(rows)
    assert "* the wait for a cgroup's limit is before both, and not measured here" in " ".join(shown.split())
    (tmp_path / "r").unlink()
    throttling = summary_of(replace(ON_DEMAND, traced=replace(traced, includes={"admission": ("throttling",)})))
    complete = render_text(throttling.report)
    assert "\n    whole " in complete
    assert "whole*" not in complete
    op = throttling["devices"]["sdc"]["ops"]["write"]
    assert op["latency_whole_us"]["includes"] == op["admission_us"]["includes"] == ["throttling"]
    assert "whole: traced I/Os from submission" in shown
    assert "    whole " not in render_text(plain.report)


def test_stages_are_those_of_the_traced_requests(summary_of):
    summary = summary_of(ON_DEMAND, ON_DEMAND)
    write = summary["devices"]["sdc"]["ops"]["write"]
    assert list(write["stages"]) == ["queue", "hba", "softirq"]
    assert write["stages"]["softirq"]["sum"] == 2 * (98 * 7 + 2 * 30_000)
    assert (write["of"]["one_in"], write["of"]["latency_us"]["count"]) == (1, 200)
    parts = sum(stage["sum"] for stage in write["stages"].values())
    assert parts == write["of"]["latency_us"]["sum"]
    assert summary["devices"]["sdc"]["traced"] == {"paths": {"BLOCK softirq": 200}}
    assert list(summary["devices"]["sda"]["ops"]["read"]["stages"]) == ["hba"]


def test_the_tail_says_which_stage_makes_it(summary_of):
    summary = summary_of(ON_DEMAND)
    tail = summary["devices"]["sdc"]["tail"]
    assert tail == summary["devices"]["sdc"]["ops"]["write"]["tail"]
    assert (tail["cut_us"], tail["count"]) == (28_672, 2)
    assert tail["share"]["softirq"] == pytest.approx(0.9969, abs=1e-4)
    assert "sdc above 28.7 ms: >99% softirq (2 I/Os)" in render_text(summary.report)


@pytest.mark.parametrize(("threshold_us", "cut_us", "count"), [(100, 104, 2), (0, 0, 100)])
def test_a_threshold_that_the_user_fixed_is_the_cut(summary_of, threshold_us, cut_us, count):
    summary = summary_of(ON_DEMAND, origin=replace(ORIGIN, extra=Options(threshold_us=threshold_us).fixed))
    tail = summary["devices"]["sdc"]["tail"]
    assert (tail["cut_us"], tail["count"]) == (cut_us, count)


@pytest.mark.parametrize("reported", [-1, True, "1ms", None, 1.5])
def test_what_is_no_threshold_is_none(reported):
    assert replace(ORIGIN, extra={"threshold_us": reported}).threshold_us is None


def test_a_stage_without_a_number_says_why(summary_of):
    nvme = Traced(
        {Series("nvme0n1", "read", stage): of(90) for stage in ("hba", "total")},
        paths={"nvme0n1": {"hard interrupt": 1}},
        one_in=4,
        includes={"hba": ("irq",)},
        absent=(Missing("resume", "no wake-ups here"),),
    )
    summary = summary_of(frame(0, traced=nvme))
    read = summary["devices"]["nvme0n1"]["ops"]["read"]
    assert read["stages_absent"] == {
        "queue": "n/a: completes in the hard interrupt",
        "requeue": "n/a: no request was refused by the driver",
        "worker": "n/a: no wait of a kernel thread was traced",
        "irq": "not measured: its time is in hba+ (hba with its interrupt)",
        "softirq": "n/a: completes in the hard interrupt",
        "completion": "n/a: completes in the hard interrupt",
        "resume": "no wake-ups here",
    }
    assert read["stages"]["hba"]["includes"] == ["irq"]
    text = " ".join(render_text(summary.report).split())
    assert "traced 1 I/Os (1 in 4)" in text
    assert "softirq, completion (completes in the hard interrupt)" in text
    assert "not measured: resume (no wake-ups here)" in text


def test_what_was_not_followed_is_reported_with_its_reasons(summary_of):
    lost = replace(traced_disk(), paths={"sdc": {"BLOCK softirq": 90}}, unfollowed={"sdc": {"polled": 10}}, off=2)
    summary = summary_of(frame(0, traced=lost), frame(1))
    assert summary["health"]["untraced_share"] == 0.1
    assert summary["health"]["traced"] == {"count": 100, "one_in": 1, "unfollowed": {"polled": 10}, "off": 2}
    assert "not followed: 10 polled" in render_text(summary.report)


def test_what_admission_waited_for_is_added_up(summary_of, tmp_path):
    disk = from_submission(ON_DEMAND.traced)
    waited = [replace(disk, admission_causes={"sdc": {"no tag free": us}}) for us in (2800, 800)]
    waited.append(replace(disk, admission_causes={"sdc": {"iocost": 400}}))
    summary = summary_of(*(replace(ON_DEMAND, traced=one) for one in waited))
    assert summary["devices"]["sdc"]["traced"]["admission_causes"] == {"no tag free": 3600, "iocost": 400}
    named = "sdc: 75% of the time from submission is admission (80% no tag free, 9% iocost)"
    assert named in " ".join(render_text(summary.report).split())
    (tmp_path / "r").unlink()
    volume = summary_of(replace(ON_DEMAND, traced=replace(ON_DEMAND.traced, admission_causes={"sdc": {"other": 9}})))
    assert "is admission" not in render_text(volume.report), "a volume's I/Os have no requests"


def test_the_functions_that_complete_and_raise_are_the_most_frequent(summary_of):
    stacks = {f"f{n} < g": 10 - n for n in range(7)}
    disk = replace(
        ON_DEMAND.traced, completers={"sdc": stacks}, raisers={"BLOCK": {"lo_rw_aio < f": 3}, "TIMER": {"x": 1}}
    )
    traced = replace(disk, paths={"sdc": {"BLOCK softirq": 5}})
    summary = summary_of(replace(ON_DEMAND, traced=traced), replace(ON_DEMAND, seq=ON_DEMAND.seq + 1, traced=traced))
    traced = summary["devices"]["sdc"]["traced"]
    assert traced["completers"] == {**{f"f{n} < g": 20 - 2 * n for n in range(5)}, "other": 18}
    assert traced["raisers"] == {"BLOCK": {"lo_rw_aio < f": 6}}
    words = " ".join(render_text(summary.report).split())
    assert "sdc is completed by f0 < g (20%), f1 < g (18%)" in words
    assert "softirq BLOCK is raised outside of interrupts on this host by lo_rw_aio < f (100%)" in words


def test_a_rate_that_changed_is_reported_as_a_range(summary_of):
    rates = (1, 8, 8, 0)
    summary = summary_of(*(frame(n, traced=replace(traced_disk(), one_in=rate)) for n, rate in enumerate(rates)))
    for reported in (summary["health"]["traced"], summary["devices"]["sdc"]["ops"]["write"]["of"]):
        assert (reported["one_in_least"], reported["one_in"]) == (1, 8)
    assert "traced 1,800 I/Os (1 in 1 to 8, weighed)" in " ".join(render_text(summary.report).split())


def test_an_outlier_has_all_that_is_known_of_it(summary_of):
    summary = summary_of(ON_DEMAND)
    (given_outlier,) = summary["outliers"]
    assert given_outlier["time"] == "1970-01-12T13:46:50.000000Z"
    assert (given_outlier["total_us"], sum(given_outlier["stages_us"].values()) + given_outlier["unaccounted_us"]) == (
        1_238_999,
        1_238_999,
    )
    assert (given_outlier["flags"], given_outlier["pid"], given_outlier["comm"], given_outlier["repeats"]) == (
        ["sync"],
        4211,
        "ora_lgwr",
        1,
    )
    assert given_outlier["waits"][0]["instead"] == "zpool-data (prio 99)"
    assert summary["devices"]["sdc"]["above"] == {"write": 31}
    assert summary["devices"]["sdc"]["threshold_us"] == 20_000
    assert summary["health"]["suppressed"] == 12


def test_an_outlier_of_latmons_own_is_a_row_of_its_own_and_says_so(summary_of):
    mine = replace(outlier(), own=True, comm="bpftrace")
    summary = summary_of(frame(0, outliers=(mine, outlier())))
    assert sorted(outlier.get("own", False) for outlier in summary["outliers"]) == [False, True]
    assert "latmon's bpftrace/4211" in render_text(summary.report)
    assert "latmon's ora_lgwr" not in render_text(summary.report)


def test_a_failed_outlier_has_its_status_in_text_and_json(summary_of):
    summary = summary_of(frame(0, outliers=(outlier(status="time-out"),)))
    assert summary["outliers"][0]["status"] == "time-out"
    assert "failed: time-out" in " ".join(render_text(summary.report).split())


def test_an_outlier_that_did_not_fail_has_no_status(summary_of):
    assert "status" not in summary_of(frame(0, outliers=(outlier(),)))["outliers"][0]


def test_the_text_reports_where_an_outliers_total_ends_and_whether_it_was_traced(summary_of):
    bare = replace(outlier(), stages_us={}, unaccounted_us=0, waits=())
    waited = replace(outlier(), stages_us={"hba": 5, "resume": outlier().total_us - 5}, unaccounted_us=0, waits=())
    text = render_text(summary_of(frame(0, outliers=(bare, waited))).report)
    assert text.count("stages were not traced then") == 1
    assert f"total {exact(bare.total_us)} to completion" in text
    assert f"total {exact(waited.total_us)} to its waiter" in text


def test_the_text_says_what_shares_and_means_are_of(summary_of):
    text = " ".join(render_text(summary_of(ON_DEMAND).report).split())
    assert "share: of the summed time of the I/Os whose stages were measured" in text
    assert "of traced: I/Os whose stages were traced" in text


@pytest.mark.parametrize("begins", ["issue", "queued"])
def test_totals_that_begin_elsewhere_are_both_reported(summary_of, begins):
    """On tier C the latency begins at the issue, the traced total with the queue: of as many I/Os they still differ."""
    same = replace(ON_DEMAND, histograms={Series("sdc", "write", "total"): of(*[95] * 98, *[30_095] * 2)})
    text = render_text(summary_of(same, origin=replace(ORIGIN, latency_from=begins)).report)
    assert (["of", "traced"] in [line.split()[:2] for line in text.splitlines()]) is (begins == "issue")
    assert ("begins with the queue" in " ".join(text.split())) is (begins == "issue")


def test_neighbours_are_one_row_and_the_worst_is_the_first(summary_of):
    same = tuple(outlier(10_000_000 + n) for n in range(8))
    summary = summary_of(frame(0, outliers=(outlier(1, total_us=50_000, stages_us={}), *same)), frame(1))
    assert [(outlier["total_us"], outlier["repeats"]) for outlier in summary["outliers"]] == [
        (1_238_999, 8),
        (50_000, 1),
    ]
    assert "x8" in render_text(summary.report)


def test_the_worst_are_kept_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(rows, "MAX_ROWS", 10)
    monkeypatch.setattr(rows, "_KEPT", 40)
    worst = rows.Worst()
    for n in range(500):
        worst.add(outlier(n * 10_000_000, total_us=n, stages_us={}))
    reported = rows.slow_requests(worst)
    assert [row.total_us for row in reported.rows] == list(range(499, 489, -1))
    assert reported.left_out == 490


def test_measured_and_none_is_an_empty_list(summary_of):
    assert summary_of(frame(0, thresholds_us={"sda": 1000}))["outliers"] == []


def test_interrupts_softirqs_and_wakeups_are_summed(summary_of):
    summary = summary_of(ON_DEMAND, ON_DEMAND)
    (irq,) = summary["irqs"]
    assert (irq["irq"], irq["handler"], irq["count"], irq["returned"]) == (16, "uhci_hcd", 4, {"none": 4})
    assert (irq["run_us"]["sum"], irq["shared_with"], irq["device"]) == (82, ["nvme0q1"], "0000:00:01.2")
    block = summary["softirqs"]["BLOCK"]
    assert (block["count"], block["ran_in"], block["cpus"]) == (2, {"ksoftirqd": 2}, {"1": 2})
    assert block["delay_us"]["max"] == 3990
    assert [wakeup["thread"] for wakeup in summary["wakeups"]] == ["emlxs_thread", "ora_lgwr"]
    assert summary["wakeups"][0]["instead"] == {"zpool-data (prio 99)": 2}
    text = render_text(summary.report)
    assert "100% ksoftirqd" in text
    assert "shared with nvme0q1" in " ".join(text.split())


def test_a_table_that_is_cut_says_how_many_more(summary_of):
    woken = tuple(Wakeups(Thread(pid, "x", "", 120), of(1)) for pid in range(20))
    text = render_text(summary_of(frame(0, tables={measurements.WAKEUPS: by_thread(woken)})).report)
    assert "and 8 more (--json has them)" in text
    assert "from woken to running" in text


def test_threads_beyond_a_limit_are_a_number(summary_of, monkeypatch):
    monkeypatch.setattr("latmon.report.wakeup_bound.MAX_THREADS", 5)
    frames = [
        frame(
            seq,
            tables={
                measurements.WAKEUPS: by_thread(Wakeups(Thread(10 * seq + n, "x", "", 120), of(1)) for n in range(4))
            },
        )
        for seq in range(3)
    ]
    summary = summary_of(*frames)
    assert (len(summary["wakeups"]), summary["wakeups_left_out"]) == (5, 7)
    assert "7 wake-ups of other threads" in render_text(summary.report)


def test_wake_ups_that_no_row_reports_are_a_number(monkeypatch):
    monkeypatch.setattr(interrupts, "MAX_THREADS", 2)
    reported = interrupts.wakeups(tuple(Wakeups(Thread(n, "x", "", 120), of(n)) for n in range(5)), left_out=7)
    assert ([row.pid for row in reported.rows], reported.left_out) == ([4, 3], 7 + 3)


def test_the_text_of_anything_fits_a_ticket(summary_of):
    name = "a-very-long-device-name-of-some-multipath-head"
    wide = replace(outlier(), device=name, comm="x" * 64, overtaken_by=10**9, path="y" * 60, sector=10**15)
    runs = HandlerRuns(
        of(3_000_000), returned={"none": 10**9}, before_us=10**12, device="z" * 60, shared_with=("w" * 40,) * 3
    )
    late = Wakeups(Thread(1, "t" * 60, "deadline", -1), of(3_500_000_000), {"i" * 60: 1})
    summary = summary_of(
        frame(
            0,
            devices=(Device(name, 8, 0),),
            thresholds_us={name: 1},
            outliers=(wide,) * 30,
            traced=replace(traced_disk(), unfollowed={"sdc": {"u" * 100: 5}}),
            tables={
                ABOVE: {Flow(name, "write"): 10**12},
                HANDLERS: {Handler(4000, "h" * 60): runs},
                SOFTIRQS: ON_DEMAND[SOFTIRQS],
                measurements.WAKEUPS: by_thread([late]),
            },
            health=Health(suppressed=10**9),
        )
    )
    text = render_text(summary.report)
    assert max(map(len, text.splitlines())) <= 80
    assert "INCOMPLETE" not in text


@pytest.mark.parametrize(
    ("instead", "shown"),
    [
        ("kworker/1:1H (prio 100)", "kworker/1:1H"),
        ("a (prio 1) b (prio 100)", "a (prio 1) b"),  # a thread's name may be any text
        ("fio (prio 120)", "fio (prio 120)"),
        ("x" * 30, "…"),
    ],
)
@pytest.mark.parametrize("ran_us", [0, 40_000])
def test_a_name_that_does_not_fit_is_cut_where_it_can_be_read(summary_of, instead, shown, ran_us):
    times = {instead: ran_us} if ran_us else {}
    wakeups = Wakeups(Thread(14, "ksoftirqd/0", "other", 120), of(206), {instead: 1}, times)
    text = render_text(summary_of(ON_DEMAND.with_tables({measurements.WAKEUPS: by_thread((wakeups,))})).report)
    line = next(line for line in text.splitlines() if line.startswith("ksoftirqd/0"))
    assert line.endswith(shown)
    assert len(line) <= 79
    assert line.count("(") == line.count(")")
    assert ("after " in line) is (not ran_us)


def test_a_thread_that_is_only_known_to_have_run_last_did_not_run_instead(summary_of):
    late = Wakeups(Thread(14, "late", "other", 120), of(206), {"cat (prio 120)": 3})
    timed = replace(late, thread=Thread(15, "timed", "other", 120), ran_us={"hog (prio 120)": 40_000})
    summary = summary_of(ON_DEMAND.with_tables({measurements.WAKEUPS: by_thread((late, timed))}))
    last, longest = ({column.title: column.value(row) for column in WAKEUPS} for row in summary.report.wakeups)
    assert (last["instead"], last["ran instead"]) == ("after cat (prio 120)", None)
    assert last["ran after"] == {"cat (prio 120)": 3}
    assert (longest["instead"], longest["ran after"]) == ("hog (prio 120)", None)
    assert longest["ran instead"] == {"hog (prio 120)": 40_000}


@pytest.mark.parametrize(
    ("ran_us", "words"),
    [
        pytest.param(0, "ran 40.000 ms later, after hog (prio 49)", id="ran last"),
        pytest.param(30_000, "ran 40.000 ms later: hog (prio 49) ran instead for 30.000 ms", id="a part"),
        pytest.param(39_990, "ran 40.000 ms later: hog (prio 49) ran instead", id="all of it"),
    ],
)
def test_a_wait_has_the_thread_that_ran_longest_or_the_one_before_it(ran_us, words):
    wait = LateWakeup(
        stage="irq",
        thread="late",
        pid=7,
        priority=120,
        woken_mono_us=0,
        delay_us=40_000,
        instead="hog (prio 49)",
        ran_us=ran_us or None,
    )
    (sentence,) = waits(SimpleNamespace(waits=(wait,)))
    assert sentence == f"irq: late (prio 120) woken, {words}"


def test_windows_that_are_longer_than_the_interval_are_reported(summary_of):
    interval = ORIGIN.interval_us
    summary = summary_of(frame(0), replace(frame(0), dt_us=2 * interval))
    assert summary["longest_s"] == 2 * interval / 1e6
    assert "2 windows of 1 s, the longest 2.0 s" in " ".join(render_text(summary.report).split())


def test_the_host_s_context_has_means_the_highest_window_and_what_is_missing(summary_of):
    values = [
        {"steal": interval_value(0, 200), "dirty": interval_value(2_000_000, 1)},
        {"steal": interval_value(80, 200)},
    ]
    summary = summary_of(*(replace(frame(0), host_context=context_values) for context_values in values))
    assert summary["host_context"] == {
        "steal": {"unit": "share", "mean": 0.2, "highest": 0.4},
        "dirty": {"unit": "bytes", "mean": 2_000_000, "highest": 2_000_000},
    }
    absent = {one["name"]: one["reason"] for one in summary["host_context_absent"]}
    assert absent.keys() == CONTEXT.keys() - {"steal", "dirty"}
    text = " ".join(render_text(summary.report).split())
    assert "CPU steal 20% 40% CPU time in which the hypervisor ran others" in text
    assert "ZFS ARC (no ZFS module is loaded)" in text


def test_of_a_fleet_the_context_has_the_host_in_its_rows(summary_of):
    summary = summary_of(
        replace(frame(0), host_context={"db1:steal": interval_value(1, 2), "x:y": interval_value(1, 2)})
    )
    assert summary["host_context"].keys() == {"db1:steal"}
    assert "db1 CPU steal" in render_text(summary.report)


def test_without_context_there_is_no_table(summary_of):
    assert not {"host_context", "host_context_absent"} & summary_of(frame(0)).keys()


def test_what_a_device_reports_has_its_first_value_and_whether_it_was_read_until_the_end(summary_of):
    device = Device("sda", 8, 0)
    state, log = DeviceReport("state", "running", "device/state"), DeviceReport("media_errors", 2, "nvme")
    rows = [
        (state,),
        (state, log, DeviceReport("ioerr_cnt", 1, "device/ioerr_cnt")),
        (state, DeviceReport("ioerr_cnt", 5, "device/ioerr_cnt")),
    ]
    summary = summary_of(*(replace(frame(0), devices=(replace(device, reports=row),)) for row in rows))
    assert summary["devices"]["sda"]["reports"] == [
        {"name": "state", "value": "running", "source": "device/state"},
        {"name": "media_errors", "value": 2, "read_until_end": False, "source": "nvme"},
        {"name": "ioerr_cnt", "value": 5, "first": 1, "source": "device/ioerr_cnt"},
    ]
    text = " ".join(render_text(summary.report).split())
    assert (
        "by its own reports: state running, media_errors 2 (not read until the end), ioerr_cnt 5 (1 at first)" in text
    )


def test_a_recording_with_any_number_of_reports_has_some_of_them():
    totals = Totals(1_000_000)
    for at in range(3):
        reports = tuple(DeviceReport(f"x{at}-{of}", 1, "x") for of in range(60))
        totals.add(replace(frame(at), devices=(Device("sda", 8, 0, reports=reports),)))
    assert len(totals.reports["sda"]) == MAX_REPORTS


def test_processes_without_a_probe_have_bytes_alone():
    issued_ios_by_issuer = {Issuer("", "read", "/web.service", "", 7, "dd"): IssuedIO(0, 8192)}
    (row,) = map(to_json, processes(issued_ios_by_issuer, {}).rows)
    assert (row["comm"], row["count"], row["bytes"], row["devices"]) == ("dd", None, 8192, {})
    assert not {"share", "latency_us"} & row.keys()


@pytest.mark.parametrize(("driver", "is_named"), [("usb-storage", True), ("mpt3sas", False)])
def test_a_thread_that_does_a_device_s_io_is_named(summary_of, driver, is_named):
    known = (Device("sdc", 8, 32, driver=driver),)
    text = " ".join(render_text(summary_of(replace(ON_DEMAND, devices=known)).report).split())
    assert ("hba of sdc contains the waits of usb-storage's thread for a CPU" in text) is is_named


@pytest.mark.parametrize(
    ("wait", "device", "text"),
    [("device", "sda", "I/O+waits on sda"), ("device", None, "I/O+waits"), ("cached", "sda", "cached")],
)
def test_a_slow_operation_does_not_wait_for_its_device_alone(wait, device, text):
    column = next(column for column in OPERATIONS if column.title == "waited")
    assert column.value(SimpleNamespace(wait=wait, device=device, split=None)) == text


def test_a_split_operation_has_its_longest_parts_its_longest_sleep_and_who_had_the_lock():
    split = FileSplit(6_000, 1_000, 92_000, 90_000, "lock", "down_write < vfs_write", "python3", 78)
    row = SimpleNamespace(wait="device", device="sda", total_us=100_000, split=split)
    columns = {column.title: column.value(row) for column in OPERATIONS if column.title in ("waited", "longest sleep")}
    assert columns == {
        "waited": "lock 92.000 ms, own I/O 6.000 ms, CPU 1.000 ms",
        "longest sleep": "longest sleep 90.000 ms in down_write < vfs_write, while python3/78 had the file's lock",
    }
