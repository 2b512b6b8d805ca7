"""The head of the interrupts screen: what delayed I/O most, and what ran meanwhile."""

from dataclasses import replace

import pytest
from traced import HANDLERS, runs, softirqs, wakeups

from latmon.model.frame import NOT_KNOWN, Outlier, Thread, Wait
from latmon.model.histogram import Histogram
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon.views.heatmap import RAMP
from latmon.views.lines import plain, width
from latmon.views.panels.culprit import culprit, culprit_lines
from latmon.views.panels.interrupts import handler_rows, interrupts, interrupts_of, vectors, wakeup_rows

LATE = Wakeups(
    Thread(7, "late_thread", "other", 120), runs(*[9_000] * 10, 20), {}, {"a (prio 49)": 60_000, "b": 20_000}
)


NETWORK = vectors({SoftirqCpu("NET_RX", 3): SoftirqRuns(runs(2_000, *[10] * 9_000), runs(5))}, 60)
"""One delay of 2 ms in 9,001."""


def slow_io(**values):
    return Outlier(0.0, 1_000_000, "sda", "read", 12_000, **values)


def drawn(found, cells=100, threshold_us=None):
    return [plain(line).rstrip() for line in culprit_lines(found, cells, threshold_us)]


def roles(found, threshold_us=None, outliers=()):
    bar = culprit_lines(found, 100, threshold_us, outliers)[1]
    return {role: len(text) for text, role, _ in bar if text.startswith("▆")}


def test_a_late_thread_has_a_bar_from_woken_to_ran_of_what_ran_instead():
    actual_culprit = culprit((), (), [LATE], 10)
    assert actual_culprit.lost_us == pytest.approx(10 * 9_000 / 10, rel=0.1)
    head, bar, legend = drawn(actual_culprit)
    assert head.startswith(" culprit a (prio 49)  had the CPU of late_thread: 10 waits ≥ 1 ms, up to 9ms, 87 ms in all")
    assert bar.startswith(" woken ▆")
    assert bar.endswith("▆ ran")
    assert legend == " ■ a (prio 49) 75% 60.0ms  ■ b 25% 20.0ms"
    cells = roles(actual_culprit, 1_000)
    assert cells["tail"] == 3 * cells["area"]


@pytest.mark.parametrize("ran", [{}, {NOT_KNOWN: 90_000, "a": 10_000}, {"a": 40_000, "b": 35_000, "c": 25_000}])
def test_a_late_thread_is_no_culprit_where_it_is_not_known_what_had_its_cpu(ran):
    actual_culprit = culprit((), (), [Wakeups(LATE.thread, LATE.delay, {}, ran)], 10)
    assert drawn(actual_culprit)[0].startswith(" late late_thread  10 waits ≥ 1 ms for a CPU, up to 9ms, 87 ms in all")


def test_the_alarm_colour_is_for_waits_that_can_exceed_the_threshold():
    actual_culprit = culprit((), (), [LATE], 10)
    assert "tail" in roles(actual_culprit, 9_000)
    assert "tail" not in roles(actual_culprit, 20_000)


def test_without_a_threshold_the_alarm_colour_is_for_waits_of_slow_ios():
    """Any wait of 1 ms had it."""
    late = culprit((), (), [LATE], 10)
    wait = Wait("completion", "late_thread", 7, 120, 1_000_000, 9_000)
    assert "tail" in roles(late, None, [slow_io(waits=(wait,))])
    assert "tail" not in roles(late)
    assert "tail" not in roles(late, None, [slow_io(waits=(replace(wait, thread="another"),))])
    softirq = culprit(vectors(softirqs(), 60), (), (), 60)
    assert "tail" in roles(softirq, None, [slow_io(stages_us={"softirq": 3_900}, path="BLOCK softirq")])
    for other in ({"stages_us": {"softirq": 3_900}, "path": "IRQ_POLL softirq"}, {"stages_us": {"hba": 3_900}}):
        assert "tail" not in roles(softirq, None, [slow_io(**other)])
    handler = culprit((), handler_rows(HANDLERS, 60), (), 60)
    assert "tail" in roles(handler, None, [slow_io(stages_us={"irq": 1_360})])
    assert "tail" not in roles(handler, None, [slow_io(stages_us={"irq": 20})])


def test_received_packets_delay_only_devices_behind_a_network():
    """NET_RX, which every host has, was the culprit in the alarm colour on a host with local disks."""
    assert culprit(NETWORK, (), (), 60) is None
    assert culprit(NETWORK, (), (), 60, {"NET_RX"}).name == "NET_RX softirq"
    fleet = [replace(NETWORK[0], name=f"{host}:NET_RX") for host in ("a", "b")]
    assert culprit(fleet, (), (), 60, {"b:NET_RX"}).name == "b:NET_RX softirq"


def test_idle_time_is_last_and_many_threads_are_others():
    ran = {NOT_KNOWN: 90_000} | {f"t{number}": 1_000 * (9 - number) for number in range(7)}
    actual_culprit = culprit((), (), [Wakeups(LATE.thread, LATE.delay, {}, ran)], 10)
    assert drawn(actual_culprit, 120)[2].split("■")[1:] == [
        " t0 7% 9.00ms  ",
        " t1 6% 8.00ms  ",
        " t2 5% 7.00ms  ",
        " t3 5% 6.00ms  ",
        " others 9% 12.0ms  ",
        " idle or not known 68% 90.0ms",
    ]
    counted = culprit((), (), [Wakeups(LATE.thread, LATE.delay, {"a": 9, "b": 1})], 10)
    assert drawn(counted)[2] == " ■ after a 90% x9  ■ after b 10% x1"
    assert "not known" in drawn(culprit((), (), [Wakeups(LATE.thread, LATE.delay)], 10))[1]


def test_the_most_time_per_second_is_the_culprit():
    rows = handler_rows(HANDLERS, 60)
    late = vectors(softirqs(), 60)
    assert culprit((), rows, (), 60).name == "slow_none"
    said = "irq 11: handled nothing in 100% of its runs, nvme0q0 waited for it 1.36 ms of each second"
    assert said in drawn(culprit((), rows, (), 60), 120)[0]
    found = culprit(late, rows, (), 60)
    assert (found.name, found.begin) == ("BLOCK softirq", "raised")
    assert drawn(found)[0].startswith(" late BLOCK softirq ")
    assert "60 waits ≥ 1 ms on CPU 2" in drawn(found)[0]
    assert "at the end of an interrupt 92%" in drawn(found)[2]
    assert culprit(late, rows, wakeups(), 60).late == "emlxs_thread"


def test_handlers_behind_one_interrupt_have_its_number():
    """Of VMD: the handlers of the switch and the drive have own numbers, and are called by one interrupt."""
    behind = {
        Handler(53, "vmd"): HandlerRuns(runs(*[20] * 100)),
        Handler(95, "switchtec0"): HandlerRuns(runs(*[900] * 100), shared_with=("nvme13q1",), caller=53),
        Handler(109, "nvme13q1"): HandlerRuns(
            runs(*[2] * 100), shared_with=("switchtec0",), before_us=90_000, caller=53
        ),
    }
    rows = handler_rows(behind, 1)
    assert "culprit switchtec0  irq 53: nvme13q1 waited" in drawn(culprit((), rows, (), 1), 120)[0]
    lines = [plain(line) for line in interrupts(interrupts_of({}, behind, [], 1), 120, 20, RAMP, focus="handlers")]
    numbers = {
        name: next(line for line in lines if name in line[5:18]).replace("▸", " ").split()[0] for _, name in behind
    }
    assert numbers == dict.fromkeys(("vmd", "switchtec0", "nvme13q1"), "53")


def test_nothing_late_is_stated_and_its_rows_are_dim():
    prompt = Wakeups(Thread(8, "prompt", "other", 120), runs(20, 30))
    assert culprit((), (), [prompt], 60) is None
    assert drawn(None) == [" culprit  none: no I/O had to wait for 1 ms"]
    lines = interrupts(interrupts_of({}, {}, [LATE, prompt], 60), 100, 20, RAMP, focus="softirqs")
    by_name = {name: next(line for line in lines if name in plain(line)) for name in ("late_thread", "prompt")}
    assert {role for text, role, _ in by_name["prompt"] if text.strip()} == {"dim"}
    assert "text" in {role for text, role, _ in by_name["late_thread"] if text.strip()}


def test_rows_are_by_the_time_of_late_waits():
    once = Wakeups(Thread(9, "once", "other", 120), runs(50_000))
    assert [wakeup_row.thread.comm for wakeup_row in wakeup_rows([once, LATE])] == ["late_thread", "once"]
    timer = culprit((vector for vector in vectors(softirqs(), 60) if vector.name != "BLOCK"), (), (), 60)
    assert timer is None


@pytest.mark.parametrize("cells", [20, 40, 80, 200])
def test_it_fits(cells):
    huge = Wakeups(Thread(1, "日本語" * 9, "other", 1), Histogram.record([10**9] * 3), {}, {"x" * 90: 10**9})
    for actual_culprit in (None, culprit((), (), [huge], 1), culprit((), handler_rows(HANDLERS, 60), (), 60)):
        assert all(width(line) <= cells for line in culprit_lines(actual_culprit, cells, None))
