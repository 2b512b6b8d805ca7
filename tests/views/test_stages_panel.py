"""The stages view as text: bars that read without colour, reasons for empty rows, the stages of the tail."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import ORIGIN, PROCFS
from hypothesis import given
from hypothesis import strategies as st
from traced import HOSTILE, NVME, SDC, softirq_ios, together, traced

from latmon.analysis.attribution import PARTS
from latmon.model.frame import OPS, UNACCOUNTED, Device, Flow, Missing, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.patterns import Pattern
from latmon.model.measurements.sizes import SizeClass
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.stages import COLUMNS, FACTS, LETTERS
from latmon.support.text import is_clean
from latmon.views.anatomy import Anatomy, anatomy, largest, share, size_sentences, softirq_sentences, tail_sentence
from latmon.views.bars import TimeAxis, apportion, distribution, legend, role, share_bar, stacked
from latmon.views.context import MEASURING, not_traced
from latmon.views.heatmap import RAMP, Ink
from latmon.views.lines import Field, Span, around, cut, heads, layout, plain, row, width
from latmon.views.panels.stages import device, device_bars, population
from latmon.views.spread import spread

INKS = [Ink(), RAMP]
SIZES = [(40, 7), (40, 10), (60, 12), (80, 20), (100, 30), (160, 45), (400, 120)]
WHY = "stages are not traced: press S, or --stages all"
BASIC = {
    "total": Histogram.record([90] * 500),
    "basic": {
        Series("sda", "read", "queue"): Histogram.record([5] * 500),
        Series("sda", "read", "hba"): Histogram.record([85] * 300),
        Series("sda", "write", "hba"): Histogram.record([85] * 200),
    },
}

ROWS = [*(stage for stage in PARTS if stage != "worker"), "worker"]
"""Of I/Os that waited for no worker."""


def of(device_name, values, **options):
    return anatomy(device_name, OPS, values, ORIGIN, **options)


def text(lines):
    return "\n".join(plain(line) for line in lines)


SLOW, QUICK, UNTRACED = of("sdc", SDC), of("nvme0n1", NVME), of("sda", together(SDC, NVME), **BASIC)


# ---- what a device's time is made of


def test_the_tail_is_what_is_slow_not_what_is_usual():
    assert tail_sentence(SLOW) == "sdc above 22.5 ms: 99% softirq (30 I/Os)"
    assert largest(SLOW.bands[0].parts) == "hba"
    assert SLOW.tail.count + SLOW.bands[0].count + SLOW.bands[1].count == SLOW.total.count == 3031


def test_the_users_threshold_is_the_cut():
    given_anatomy = of("sdc", SDC, cut_us=102_400)
    assert given_anatomy.tail.low_us == 106_496
    assert tail_sentence(given_anatomy).startswith("sdc above 106 ms: 99% softirq (23 I/Os)")
    assert of("sdc", SDC, cut_us=10_000_000).why == "no I/O above the threshold"


def test_one_in_a_million_is_the_whole_tail():
    ios = [{"queue": 1, "hba": 90}] * 1000 + [{"queue": 1, "hba": 90, "softirq": 900_000}]
    assert tail_sentence(of("sdc", traced(ios), cut_us=100_000)) == "sdc above 106 ms: >99% softirq (1 I/O)"


def test_too_few_have_no_tail_and_say_so():
    given_anatomy = of("sdc", traced([{"queue": 1, "hba": 90}] * 20))
    assert given_anatomy.bands == ()
    assert tail_sentence(given_anatomy) == "sdc: no tail: p99 needs 100 I/Os"
    assert "no tail" in text(device_bars([given_anatomy], "sdc", 120, 12, RAMP))


def test_shares_add_up():
    for one in (SLOW, QUICK, UNTRACED):
        assert sum(r.share or 0 for r in one.rows) == pytest.approx(1)
    assert sum(r.tail or 0 for r in SLOW.rows) == pytest.approx(1)
    assert share({}, "hba") is None


def test_a_bar_needs_no_rows():
    brief = of("sdc", SDC, detailed=False)
    assert brief.rows == ()
    assert (brief.bands, brief.whole, brief.total) == (SLOW.bands, SLOW.whole, SLOW.total)
    assert text(device_bars([brief, QUICK], "sdc", 80, 10, RAMP)) == text(
        device_bars([SLOW, QUICK], "sdc", 80, 10, RAMP)
    )


def test_a_stage_without_a_split_by_total_has_no_share():
    without = replace(SDC, by_total={s: by for s, by in SDC.by_total.items() if s.stage != "resume"})
    rows = {r.stage: r for r in of("sdc", without).rows}
    assert (rows["resume"].share, rows["resume"].tail) == (None, None)
    assert rows["resume"].histogram.count == 3031
    assert {r.stage: r for r in QUICK.rows}[UNACCOUNTED].share == 0


def test_a_stage_that_took_no_time_has_no_share_of_it_and_that_is_known():
    ios = [{"queue": 0, "hba": 90, UNACCOUNTED: 0} for _ in range(739)]
    reported = traced(ios, paths={"sdc": {"hard interrupt": 739}})
    sums = {s: by for s, by in reported.by_total.items() if s.stage != "queue"}  # a map prints no sum of 0
    rows = {r.stage: r for r in of("sdc", replace(reported, by_total=sums)).rows}
    assert (rows["queue"].share, rows["queue"].tail) == (0.0, 0.0)
    assert rows["requeue"].share is None


def test_one_ops_stages_are_its_own():
    assert anatomy("sdc", ("read",), SDC, ORIGIN).on_demand is False
    assert anatomy("sdc", ("write",), SDC, ORIGIN).total.count == 3031


def test_a_stage_that_is_not_passed_says_why():
    reasons = {r.stage: r.reason for r in QUICK.rows}
    assert reasons["softirq"] == "n/a: completes by hard interrupt"
    assert reasons["requeue"] == "no request was refused by the driver"
    assert reasons["hba"] == ""
    assert {r.stage: r.reason for r in SLOW.rows}["completion"].startswith("not measured here: ")


def test_without_on_demand_probes_the_basic_stages_hold_their_neighbours():
    rows = {r.stage: r for r in UNTRACED.rows}
    assert rows["hba"].histogram.count == 500
    assert rows["hba"].includes == ("irq", "softirq", "completion")
    assert rows["irq"].reason == "its time is in service (issue to completion)"
    assert rows["hba"].column == "service"
    assert rows["requeue"].reason == "its time is in queue"
    assert rows["resume"].reason == "only the tracer measures it"
    assert UNACCOUNTED not in rows


def test_a_device_beside_the_traced_ones_says_who_is_traced():
    given_anatomy = of("sda", Traced(one_in=1, devices=("sdc",)), **BASIC)
    assert given_anatomy.why == "only sdc is traced"
    assert "only sdc is traced" in text(device(given_anatomy, 80, 20, RAMP, why=WHY))
    two = of("sda", Traced(one_in=1, devices=("sdb", "sdc")), **BASIC)
    assert two.why == "only sdb, sdc are traced"


def test_what_could_not_be_followed_is_a_number():
    assert population(SLOW) == "3,031 I/Os traced, 1 in 4, <1% not followed: polled 12, batched completion 3"
    mixed = of("sdc", replace(SDC, rates=(1, 8)))
    assert population(mixed).startswith("3,031 I/Os traced, 1 in 1 to 8, weighed, <1% not followed")
    assert population(QUICK) == "5,000 I/Os traced, each followed to its end"
    assert population(Anatomy("sda")) == "no I/O on sda"
    assert SLOW.untraced_share == pytest.approx(15 / 3031)


def test_what_could_not_be_followed_is_reported_of_all_ops_also_beside_one_of_them():
    more = traced([{"hba": 9}] * 5, op="read")
    both = replace(SDC, histograms={**SDC.histograms, **more.histograms}, by_total={**SDC.by_total, **more.by_total})
    given_anatomy = anatomy("sdc", ("read",), both, ORIGIN, op_label="read")
    assert given_anatomy.untraced_share == SLOW.untraced_share
    assert population(given_anatomy).startswith("5 I/Os traced, 1 in 4, <1% of all ops not followed: polled 12")


def test_a_volume_has_no_paths_that_could_be_lost():
    given_anatomy = of("dm-0", traced([{"hba": 9}] * 5, "dm-0"))
    assert population(given_anatomy) == "5 I/Os traced"


# ---- the panels


def test_all_devices_at_80():
    assert text(device_bars([SLOW, QUICK, UNTRACED], "sdc", 80, 12, RAMP)).splitlines() == [
        " device       p50 <=p50         p99 p50-p99    >threshold  I/Os most of it      ",
        "▸sdc        120us h░░░░░sw=    23ms h░░░░░s▓w  s▓▓▓▓▓▓▓▓     30  99% softirq    ",
        " nvme0n1    120us h░░░░░░░░   135us h░░░░░░░░  h░░░░░░░░  1.00k  95% hba        ",
        " sda                                           not traced     -                 ",
        " " * 80,
        " sdc above 22.5 ms: 99% softirq (30 I/Os)                                       ",
        " 3,031 I/Os traced, 1 in 4, <1% not followed: polled 12, batched completion 3   ",
        " q· queue  h░ hba  d░ service  i▒ irq  s▓ softirq  w= resume  ?? unaccounted    ",
    ]


def test_one_device_at_80():
    lines = text(device(SLOW, 80, 20, Ink())).splitlines()
    assert lines[1] == " stage            p50    p99    max    I/Os  1us-1s    all I/Os    >22.5 ms     "
    assert lines[7] == " s softirq       18us   23ms  400ms   3,031  ▅▇▆   ▁▃▂ ▆▆▆▆▆▆  93% ▆▆▆▆▆▆▆  99% "
    assert lines[8].startswith(" c completion  not measured here: no completion thread on this path")
    assert [line[3:].split()[0] for line in lines[2:11]] == ["admission", *ROWS][:9]
    assert lines[2].startswith("   admission   not measured here: ")


def submitted(waits, total=100):
    """Return SDC with reads from submission on, which waited so long before their requests."""
    histograms = {
        Series("sdc", "read", "whole"): Histogram.record([wait + total for wait in waits]),
        Series("sdc", "read", "admission"): Histogram.record(waits),
    }
    return replace(SDC, histograms={**SDC.histograms, **histograms})


def test_what_begins_at_submission_leads_and_is_no_part_of_the_total():
    given_anatomy = of("sdc", submitted([300] * 50))
    assert [row.stage for row in given_anatomy.rows] == ["whole", "admission", *ROWS]
    assert (given_anatomy.whole, given_anatomy.bands, given_anatomy.total) == (SLOW.whole, SLOW.bands, SLOW.total)
    lines = text(device(given_anatomy, 120, 34, Ink())).splitlines()
    whole_line = next(line for line in lines if line.startswith("   whole"))
    assert {"whole*", "400us", "50"} <= set(whole_line.split())
    assert any(line.startswith("   admission*") for line in lines)
    assert "sdc: 75% of the time from submission is admission" in "\n".join(lines)
    assert "* whole and admission begin when an I/O is queued; " in "\n".join(lines)
    assert "a cgroup's limit holds it back before that: not measured here" in "\n".join(lines)
    throttling = replace(submitted([300] * 50), includes={"admission": ("throttling",)})
    complete = text(device(of("sdc", throttling), 120, 34, Ink()))
    assert "   whole " in complete
    assert "whole*" not in complete
    assert "* whole" not in complete
    named = replace(
        submitted([300] * 50), admission_causes={"sdc": {"iocost": 150, "no tag free": 14_835, "other": 15}}
    )
    assert "is admission (99% no tag free); total" in text(device(of("sdc", named), 120, 34, Ink()))


def test_latencies_by_size_are_below_the_stages_of_an_op():
    sizes = {
        SizeClass("sdc", "read", 4096): IssuedIO(90, 90 * 4096, Histogram.record([100] * 90).coarsen(2)),
        SizeClass("sdc", "read", 8192): IssuedIO(10, 10 * 8192, Histogram.record([100] * 10).coarsen(2)),
        SizeClass("sdc", "read", 0): IssuedIO(100, 100 << 21, Histogram.record([9000] * 100).coarsen(2)),
        SizeClass("sdc", "write", 4096): IssuedIO(1, 4096),
        SizeClass("sdd", "read", 4096): IssuedIO(5, 5 * 4096),
    }
    patterns = {Flow("sdc", "read"): Pattern(200, 50, 200, 10, 0), Flow("sdc", "flush"): Pattern(4)}
    actual_size_sentences = size_sentences("sdc", ("read", "flush", "discard"), sizes, patterns)
    assert actual_size_sentences == (
        (
            "read by size: 45% up to 4 KiB (p50 100us, p99 -), 5% up to 16 KiB (p50 100us, p99 -), "
            "50% larger (p50 9.00ms, p99 9.00ms); 25% sequential, 5% read ahead, 100% flagged SYNC"
        ),
        "flush: none of them is sequential",
    )
    drawn = " ".join(text(device(replace(of("sdc", SDC), sizes=actual_size_sentences), 120, 40, Ink())).split())
    assert "50% larger (p50 9.00ms, p99 9.00ms); 25% sequential" in drawn


def test_the_functions_that_complete_and_raise_are_below_the_stages():
    raisers = {"BLOCK": {"lo_rw_aio < f": 3}}
    traced = replace(
        SDC, paths={"sdc": {"BLOCK softirq": 9}}, completers={"sdc": {"g < h": 3, "i": 1}}, raisers=raisers
    )
    drawn = " ".join(text(device(of("sdc", traced), 120, 40, Ink())).split())
    assert "sdc is completed by g < h (75%), i (25%)" in drawn
    assert "softirq BLOCK is raised outside of interrupts on this host by lo_rw_aio < f (100%)" in drawn


@pytest.mark.parametrize(
    ("driver", "paths", "vectors"),
    [
        ("nvme-tcp", {"worker thread": 5}, ["NET_RX"]),
        ("nvme-rdma", {"IRQ_POLL softirq": 5}, ["IRQ_POLL"]),
        ("sd", {"BLOCK softirq": 5}, []),
        ("sd", {}, []),
    ],
)
def test_the_delay_of_a_shared_softirq_is_beside_the_devices_that_wait_for_it(driver, paths, vectors):
    runs = SoftirqRuns(Histogram.record([3000] * 1000), Histogram.record([5] * 1000))
    softirqs = {SoftirqCpu(name, cpu): runs for name in ("NET_RX", "IRQ_POLL", "BLOCK") for cpu in (0, 3)}
    actual_softirq_sentences = softirq_sentences(Device("d0", 1, 0, driver=driver), paths, softirqs)
    assert actual_softirq_sentences == tuple(
        f"d0 completes after softirq {name}: it ran 3.00ms (p99), 3.00ms (max) after its raise,"
        " in 2,000 runs for all its users"
        for name in vectors
    )
    assert softirq_sentences(Device("d0", 1, 0, driver=driver), paths, {}) == ()
    drawn = " ".join(text(device(replace(SLOW, softirqs=actual_softirq_sentences), 120, 34, Ink())).split())
    assert all(softirq_sentence in drawn for softirq_sentence in actual_softirq_sentences)


@pytest.mark.parametrize(("name", "vectors"), [("nbd0", 1), ("store1:rbd3", 1), ("sdb", 0)])
def test_a_device_of_the_network_without_a_driver_s_name_completes_after_what_was_received(name, vectors):
    runs = SoftirqRuns(Histogram.record([3000] * 1000), Histogram.record([5] * 1000))
    host = name.rpartition(":")[0]
    vector = f"{host}:NET_RX" if host else "NET_RX"
    assert len(softirq_sentences(Device(name, 1, 0), {}, {SoftirqCpu(vector, 0): runs})) == vectors


@pytest.mark.parametrize(("wait", "warns"), [(12, True), (10, False), (0, False)])
def test_a_large_admission_is_a_warning(wait, warns):
    given_anatomy = of("sdc", submitted([wait] * 50))
    lines = text(device(given_anatomy, 120, 34, Ink()))
    assert ("of the time from submission is admission" in lines) is warns
    assert "not measured here: throttling" not in lines


def test_at_40_the_tail_is_what_stays():
    lines = text(device(SLOW, 40, 10, RAMP)).splitlines()
    assert lines[1].split() == ["stage", "p50", "p99", ">22.5", "ms"]
    assert lines[-1].strip().endswith("more lines")
    assert ">22.5 ms" in text(device_bars([SLOW], "sdc", 40, 10, RAMP))


def test_the_selected_device_stands_below_where_there_is_room():
    lines = text(device_bars([SLOW, QUICK], "nvme0n1", 160, 45, Ink())).splitlines()
    assert lines[4].startswith(" nvme0n1 stages")
    assert "n/a: completes by hard interrupt" in "\n".join(lines)


def test_a_legend_has_the_letters_that_no_stage_has_beside_its_name():
    assert "q▆ queue" not in text(device_bars([SLOW, QUICK], "sdc", 160, 50, Ink()))
    assert "d▆ service" in text(device_bars([SLOW, UNTRACED], "sdc", 160, 50, Ink()))
    assert "q▆ queue" not in text(device(SLOW, 160, 50, Ink()))


@pytest.mark.parametrize("size", [(116, 34), (120, 34), (160, 44), (220, 54)])
def test_stages_share_a_time_axis_and_stand_below_their_labels(size):
    lines = text(device_bars([SLOW, QUICK], "sdc", *size, Ink())).splitlines()
    heads = next(line for line in lines if line.startswith(" stage "))
    places = [heads.index(f" {label} ") + 1 for label in ("1us", "16us", "256us", "4ms", "64ms", "1s")]
    assert len({after - before for before, after in pairwise(places)}) == 1, "labels are evenly apart"
    irq = next(i for i, line in enumerate(lines) if line.startswith(" i irq "))
    bars = {i for line in lines[irq - 1 : irq + 1] for i, char in enumerate(line[: places[-1]]) if char in "▁▂▃▄▅▆▇█"}
    assert places[0] < min(bars) <= max(bars) < places[1], "2 to 8 us"
    assert all(lines[irq][x] == "┊" for x in places if x not in bars)
    requeue = [line for line in lines if line.startswith(" r requeue")]
    assert requeue == [next(line for line in lines if "no request was refused" in line)], "one line"


def test_a_distribution_has_more_lines_on_a_taller_screen_and_one_on_a_dense_one():
    def lines_of(height, width=120):
        lines = text(device_bars([SLOW, QUICK], "sdc", width, height, Ink())).splitlines()
        hba = next(i for i, line in enumerate(lines) if line.startswith(" h hba "))
        before = next(i for i, line in enumerate(lines) if line.startswith(" r requeue"))
        return hba - before

    assert [lines_of(30), lines_of(60)] == [2, 4]
    assert lines_of(30, 80) == 1


@pytest.mark.parametrize("size", [(120, 34), (160, 44)])
def test_counts_by_octave_are_on_the_screen_of_one_device(size):
    assert "I/Os by time in each stage" not in text(device_bars([SLOW, QUICK], "sdc", *size, Ink()))
    lines = text(device(SLOW, *size, Ink())).splitlines()
    assert "I/Os by time in each stage" in "\n".join(lines)
    hba = next(i for i, line in enumerate(lines) if line.startswith(" h hba "))
    assert not set("▁▂▃▄▅▇█┊") & set("".join(lines[hba - 1 : hba + 2])), "a distribution is shown once"
    assert set("▁▂▃▄▅▇█┊") & set(text(device(SLOW, size[0], 20, Ink()))), "in its row where the counts don't fit"


@pytest.mark.parametrize("size", [(160, 70), (300, 100)])
def test_lines_that_the_stages_leave_have_their_counts(size):
    many = device_bars([SLOW, QUICK], "sdc", *size, Ink())
    opened = device(SLOW, *size, Ink())
    for lines in (many, opened):
        shown = text(lines).splitlines()
        title = next(at for at, line in enumerate(shown) if "I/Os by time in each stage" in line)
        assert len(shown) - title > 10
        assert size[1] - len(shown) <= size[1] // 3
    assert set("▁▂▃▄▅▇█┊") & set(text(many).partition("I/Os by time")[0]), "distributions are above, too"


def test_the_stage_with_most_of_the_slow_time_is_bold():
    lines = device(SLOW, 120, 34, Ink())
    assert [span.text for line in lines[2:] for span in line if span.role == "strong" and span.text.isalpha()] == [
        "softirq"
    ]


@pytest.mark.parametrize("width", [80, 100, 116, 120, 160, 220])
def test_a_bar_is_two_blanks_before_the_next_value(width):
    lines = text(device_bars([SLOW, QUICK], "sdc", width, 20, Ink())).splitlines()
    row = next(line for line in lines if line.startswith("▸sdc"))
    assert re.search("[▆a-z]  +23ms ", row)
    assert re.search("[▆a-z]  +30 ", row)


def test_titles_of_bars_name_the_users_threshold():
    fixed = [of("sdc", SDC, cut_us=100_000), of("nvme0n1", NVME, cut_us=100_000)]
    assert "I/Os <=p50" in text(device_bars(fixed, "sdc", 120, 34, Ink()))
    assert "I/Os p50-106ms" in text(device_bars(fixed, "sdc", 120, 34, Ink()))
    assert "I/Os above 106 ms" in text(device_bars(fixed, "sdc", 120, 34, Ink()))
    assert "p50-p99    >threshold" in text(device_bars([SLOW, QUICK], "sdc", 80, 12, Ink()))


def test_many_devices_scroll_to_the_selected_one():
    many = [of(f"sd{i}", traced(softirq_ios(200, 5, i), f"sd{i}")) for i in range(24)]
    lines = text(device_bars(many, "sd20", 80, 12, RAMP)).splitlines()
    assert any(line.startswith("▸sd20 ") for line in lines)
    assert lines[0].startswith("↑7 of 24 ")
    assert text(device_bars(many, "sd0", 80, 12, RAMP)).startswith(" 7 of 24 ")


def test_without_on_demand_probes_one_sentence_reports_how():
    assert WHY in text(device(UNTRACED, 80, 20, RAMP, why=WHY))
    screen = text(device_bars([UNTRACED], "sda", 80, 12, RAMP, why=WHY))
    assert WHY in screen
    assert "q·d░░░" in screen
    assert text(device_bars([], "", 80, 12, RAMP, why=WHY)).strip() == WHY


def test_not_traced_says_what_to_do():
    assert not_traced("stages", ORIGIN) == WHY
    assert not_traced("stages", ORIGIN, mode="basic").startswith("stages are not traced (--stages basic): press S")
    assert "--stages all" in not_traced("stages", ORIGIN, recorded=True)
    assert "the kernel counts I/Os" in not_traced("stages", PROCFS)
    ran = not_traced("stages", ORIGIN, recorded=True, state=MEASURING)
    assert "the tracer ran" in ran
    assert "--stages all" not in ran
    off = not_traced("stages", ORIGIN, recorded=True, state="off: they took 9 % of a CPU")
    assert off == "stages are not in this recording: off: they took 9 % of a CPU"
    assert not_traced("stages", None).startswith("starting")


@pytest.mark.parametrize("ink", INKS)
@pytest.mark.parametrize("size", SIZES)
def test_every_size_fits_and_is_clean(size, ink):
    named = HOSTILE[:20]
    hostile = of(named, traced(softirq_ios(300, 3), named, unfollowed={named: {HOSTILE: 3}}))
    absent = of("x", traced([{"hba": 5}], "x", absent=(Missing("irq", HOSTILE * 3),)))
    for one in (SLOW, QUICK, UNTRACED, hostile, absent, Anatomy("sda")):
        for lines in (device(one, *size, ink, why=WHY), device_bars([one, SLOW], one.device, *size, ink, why=WHY)):
            assert 0 < len(lines) <= size[1]
            assert all(width(line) <= size[0] for line in lines)
            assert all(is_clean(span.text) for line in lines for span in line)


@pytest.mark.parametrize("ink", INKS)
def test_roles_are_ones_that_the_face_has(ink):
    stages = {f"stage{number}" for number in range(1, len(FACTS) + 1)}
    stages |= {f"letter{number}" for number in range(1, len(FACTS) + 1)}
    known = {"text", "dim", "strong", "accent", "bad", "gap", "frame"} | stages
    lines = [*device(SLOW, 160, 60, ink), *device_bars([SLOW, QUICK, UNTRACED], "sdc", 80, 12, ink)]
    used = {span.role.removesuffix("/sel") for line in lines for span in line}
    assert used <= (known if ink.coloured else known - stages)


# ---- bars, columns, histograms


def test_letters_differ_and_so_do_neighbours_without_colour():
    assert len({LETTERS[name] for name in COLUMNS if name != "hba+"}) == len(COLUMNS) - 1
    bar = plain(stacked(dict.fromkeys(PARTS, 1.0), 3 * len(PARTS), RAMP))
    assert bar == "q··r::k++h░░i▒▒s▓▓c██w==???"


def test_a_stages_colour_is_its_own():
    ink = Ink()
    colours = [role(p, ink) for p in PARTS]
    assert len(set(colours)) == len(PARTS)
    assert role("a stage of later", Ink()) == role("unaccounted", Ink())


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=9), st.integers(0, 300))
def test_a_bar_is_as_wide_as_asked(parts, cells):
    given_cells = apportion(parts, cells)
    assert sum(given_cells) == (cells if sum(parts) > 0 else 0)
    assert all(n >= 0 for n in given_cells)
    assert width(stacked(dict(zip(PARTS, parts, strict=False)), cells, RAMP)) == cells


@given(st.one_of(st.none(), st.floats(0, 1)), st.integers(0, 50))
def test_a_share_is_never_drawn_as_nothing(part, cells):
    bar = plain(share_bar(part, cells))
    assert len(bar) == cells
    assert bool(bar.strip()) == bool(part and cells)


@pytest.mark.parametrize("ink", INKS)
@pytest.mark.parametrize("tall", [1, 2, 4])
def test_a_single_io_in_a_distribution_is_seen(ink, tall):
    axis = TimeAxis.even(50, 24)
    columns = axis.columns(Histogram.of({50: 999_999, 150: 1}))
    lines = distribution(columns, axis, ink, most=max(columns), tall=tall)
    assert [width(line) for line in lines] == [50] * tall
    assert sum(char not in " ┊" for char in plain(lines[-1])) == 2
    assert sum(columns) == 1_000_000


@given(
    st.dictionaries(st.integers(0, 232), st.integers(1, 10**6), min_size=1),
    st.integers(10, 200),
    st.integers(20, 32),
    st.sampled_from([0, 1, 3]),
)
def test_columns_of_a_time_axis_add_up(counts, cells, octaves, bits):
    histogram = Histogram.of({index >> 3 - bits: n for index, n in counts.items()}, bits=bits)
    columns = TimeAxis.even(cells, octaves).columns(histogram)
    assert len(columns) == cells
    assert sum(columns) == pytest.approx(histogram.count)


@given(st.integers(8, 200), st.integers(20, 32))
def test_labels_of_a_time_axis_are_at_their_times(cells, octaves):
    axis = TimeAxis.even(cells, octaves)
    assert len(axis.title) == cells
    assert axis.octaves >= octaves
    for x, label in axis.labels.items():
        assert axis.title[x:].startswith(label)
        assert x == pytest.approx(axis.at(1 << round(x * axis.octaves / cells)))


def test_histograms_side_by_side_share_their_rows():
    lines = text(
        spread([("hba", Histogram.record([90] * 9)), ("softirq", Histogram.record([5, 200_000]))], 60, 12, RAMP)
    )
    rows = lines.splitlines()
    assert rows[0].split() == ["hba", "softirq"]
    assert rows[1].split()[:2] == ["64ms│", "1"]
    assert rows[-1].split()[0] == "<16us│"
    assert spread([], 60, 12, RAMP) == []


def test_bars_say_that_they_are_logarithmic():
    lines = text(device(SLOW, 100, 40, RAMP)).splitlines()
    output = next(i for i, line in enumerate(lines) if "bars are logarithmic" in line)
    assert lines[output + 1].split()[:2] == ["queue", "hba"]
    assert "bars are logarithmic" not in text(device(SLOW, 100, 14, RAMP))
    assert "logarithmic counts" in text(device(SLOW, 100, 14, RAMP)).splitlines()[0]


def test_a_legend_takes_the_lines_it_needs():
    lines = legend(PARTS, 40, RAMP)
    assert all(width(line) <= 40 for line in lines)
    assert all(p in text(lines) for p in PARTS)


FIELDS = (
    Field("name", 8, lambda v, _: v, right=False, most=12),
    Field("n", 5, lambda v, _: str(len(v))),
    Field("bar", 6, lambda _, c: (Span("#" * c),), rank=1, most=50),
)


@given(st.integers(1, 200), st.text(st.characters(codec="ascii", categories=["L"]), max_size=30))
def test_columns_never_move_with_their_content(cells, name):
    placed = layout(FIELDS, cells)
    assert width(row(placed, name)) == width(row(placed, "")) == width(heads(placed))
    assert width(heads(placed)) <= max(cells, 10)


def test_words_grow_before_bars():
    assert [cells for _, cells in layout(FIELDS, 40)] == [12, 5, 19]
    assert [cells for _, cells in layout(FIELDS, 17)] == [9, 5]


@given(st.integers(0, 50), st.integers(-5, 60), st.integers(0, 20))
def test_the_selected_row_is_in_sight(total, selected, rows):
    shown = around(total, selected, rows)
    assert len(shown) == min(total, rows)
    assert not shown or 0 <= shown.start < shown.stop <= total
    if shown and 0 <= selected < total:
        assert selected in shown


def test_lines_that_are_left_out_are_counted():
    lines = [(Span(str(i)),) for i in range(10)]
    assert text(cut(lines, 4)) == "0\n1\n2\n … 7 more lines"
    assert text(cut(lines, 4, 6)) == "6\n7\n8\n9"
    assert text(cut(lines, 20)) == text(lines)
    assert cut(lines, 0) == []


def test_a_finding_is_whole_where_the_stages_fit():
    found = [(Span(f"finding line {n}"),) for n in range(3)]
    for height in range(12, 40):
        shown = text(device_bars([SLOW, QUICK], "sdc", 80, height, RAMP, found=found)).splitlines()
        assert len(shown) <= height
        assert [line.strip() for line in shown if "finding line" in line] == [f"finding line {n}" for n in range(3)]
        alone = text(device_bars([SLOW, QUICK], "sdc", 80, height, RAMP)).splitlines()
        assert len(alone) <= height


def test_the_title_has_the_rows_that_are_shown():
    many = [replace(QUICK, device=f"sd{n}") for n in range(40)]
    title, heads, *rows = map(plain, device_bars(many, "sd0", 120, 30, RAMP, title=lambda at: (Span(f"rows {at}"),)))
    assert title == f"rows (1, {rows.index('')})"
    assert heads.startswith(" device")
