"""The interrupts view as text: softirqs per CPU, shared vectors, wake-ups, and the delay map with the tick in it."""

from dataclasses import replace
from itertools import product

import pytest
from frames import ORIGIN, PROCFS, SECOND, START_MONO, frame, host, on_demand_host
from traced import HANDLERS, HOSTILE, runs, softirqs, wakeups

from latmon.aggregate.accumulator import summed
from latmon.model.frame import Taskq, Thread
from latmon.model.histogram import Histogram
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon.support.text import is_clean
from latmon.tui.commands import STEPS
from latmon.views.axes import Timeline, extent, latency_scale
from latmon.views.heatmap import OPS, RAMP, Ink, MapStyle, delay_frames, delay_map, room, tick_us
from latmon.views.lines import plain, table, width
from latmon.views.panels import interrupts as handlers_view
from latmon.views.panels import interrupts as softirqs_view
from latmon.views.panels import interrupts as wakeups_view
from latmon.views.panels.interrupts import (
    PARTS,
    TASKQS,
    InterruptTables,
    interrupts,
    interrupts_of,
    needed,
    shares,
    tables,
)
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection

SIZES = [(40, 7), (40, 10), (60, 12), (80, 18), (120, 30), (160, 45), (400, 120)]
WHY = "interrupts are not traced: press S, or --stages all"
SHOWN = interrupts_of(softirqs(), HANDLERS, wakeups(), 60)


def text(lines):
    return "\n".join(plain(line) for line in lines)


# ---- softirqs


def test_the_longest_wait_comes_first_and_its_cpu_is_named():
    first = SHOWN.vectors[0]
    assert (first.name, first.worst, first.delay.max) == ("BLOCK", 2, 3900)
    assert first.per_second == 21
    assert first.ran_in["timer"] == pytest.approx(60 / 1260)


def test_few_cpus_are_numbers():
    lines = text(softirqs_view.matrix(SHOWN.vectors, 0, (80, 8), RAMP)).splitlines()
    assert lines == [
        " softirq     /s    p50    p99    max  irq tick task   cpu0   cpu1   cpu2   cpu3 ",
        "▸BLOCK     21.0   22us 3.90ms 3.90ms  92%   5%   3%   39us   39us 3.90ms   39us ",
        " NET_RX    20.0   22us   39us   39us  97%   0%   3%   39us   39us   39us   39us ",
        " TIMER     20.0   22us   39us   39us  97%   0%   3%   39us   39us   39us   39us ",
    ]


@pytest.mark.parametrize("first", [0, 60, 127, 10_000])
def test_many_cpus_are_glyphs_that_scroll(first):
    many = softirqs_view.vectors(softirqs(128, 77), 60)
    lines = text(softirqs_view.matrix(many, 0, (80, 8), RAMP, first_cpu=first)).splitlines()
    assert f"CPU {min(first, 110)}-{min(first, 110) + 17} of 128" in lines[0]
    seen = lines[1].split()[-1]
    assert len(set(seen)) == (2 if first == 60 else 1)
    assert len(seen) == 18


def test_each_of_several_cpus_has_a_title_above_its_cells():
    vectors = softirqs_view.vectors(softirqs(8, 3), 60)
    for cells, title in ((80, "c0 c1 c2 c3"), (120, "c0  c1  c2  c3")):
        heads, row, *_ = text(softirqs_view.matrix(vectors, 0, (cells, 8), RAMP)).splitlines()
        assert title in heads
        begin, each = heads.index("c0"), title.index("c1")
        assert [row[begin + each * cpu + each - 1] for cpu in range(8)] == [" "] * 8
        assert " " not in [row[begin + each * cpu] for cpu in range(8)]


def test_names_are_near_their_numbers_and_reasons_are_whole():
    lines = text(table(wakeups_view.WAKEUP_FIELDS, SHOWN.threads, 0, (220, 8), why="")).splitlines()
    assert lines[0].index(" pid") < 40
    why = "wake-ups are not traced: " + "no numbers were published for it, and none are made up " * 2
    assert text(table(wakeups_view.WAKEUP_FIELDS, (), 0, (80, 3), why=why)).split() == why.split()


def test_cpus_without_a_delay_are_blank_and_few_waits_have_their_longest():
    quiet = {
        SoftirqCpu("BLOCK", 0): SoftirqRuns(runs(5, 4000), runs(1, 2)),
        SoftirqCpu("BLOCK", 1): SoftirqRuns(Histogram(), Histogram()),
    }
    vector = softirqs_view.vectors(quiet, 0)[0]
    assert vector.p99_us == {0: 4000}
    assert (vector.per_second, vector.ran_in) == (0, {})
    assert "  -" in text(softirqs_view.matrix([vector], 0, (80, 8), RAMP))
    nothing = softirqs_view.vectors({SoftirqCpu("BLOCK", 1): SoftirqRuns(Histogram(), Histogram())}, 60)
    assert text(softirqs_view.matrix(nothing, 0, (80, 8), Ink())).split()[-1] == "-"


# ---- handlers


def test_the_culprit_on_a_shared_vector_comes_first():
    """The slow handler that never handles anything, then the one that waits behind it."""
    assert [r.handler.name for r in SHOWN.handlers] == ["slow_none", "nvme0q0", "nvme0q1"]
    assert SHOWN.handlers[0].is_mostly_not_handled
    assert not SHOWN.handlers[1].is_mostly_not_handled
    assert SHOWN.handlers[1].waited_us == 81_900 / 60


def test_handlers_at_100():
    lines = text(table(handlers_view.HANDLER_FIELDS, SHOWN.handlers, 1, (100, 8), why="")).splitlines()
    assert lines[0].split() == [
        "irq",
        "handler",
        "device",
        "/s",
        "p50",
        "p99",
        "max",
        "not",
        "handled",
        "wait/s",
        "shared",
        "with",
    ]
    assert lines[1].split()[:9] == ["11", "slow_none", "-", "66.7", "21us", "21us", "21us", "100%", "nvme0q0,"]
    assert lines[2].startswith("▸  11 nvme0q0 ")
    assert "1.36ms" in lines[2]


@pytest.mark.parametrize(
    ("affinity", "effective", "width", "shown"),
    [
        ("0-7", "3", 100, "3 of 0-7"),
        ("0-63,128-191", "3", 80, "3"),
        ("3", "3", 100, "3"),
        ("0-3", "", 100, "0-3"),
        ("", "", 100, None),
    ],
)
def test_the_cpus_of_a_vector_are_beside_its_handlers(affinity, effective, width, shown):
    handler = HandlerRuns(runs(3), affinity=affinity, effective_affinity=effective)
    rows = handlers_view.handler_rows({Handler(5, "nvme0q1"): handler}, 1)
    titles, line = text(table(handlers_view.handler_fields(rows), rows, 0, (width, 8), why="")).splitlines()[:2]
    if shown is None:
        assert "CPU" not in titles
    else:
        end = titles.index("CPU") + len("CPU")
        assert line[:end].endswith(f" {shown}")


@pytest.mark.parametrize(("driver", "head"), [("nvme", "culprit  none"), ("nvme-tcp", "late NET_RX softirq")])
def test_the_network_softirq_counts_where_a_device_completes_in_it(driver, head):
    late = {SoftirqCpu("NET_RX", 0): SoftirqRuns(runs(*[2_000] * 9), runs(5))}
    scene = Scene(Selection(screen="interrupts"))
    scene.store.origin = ORIGIN
    for each in on_demand_host(6, 5):
        devices = tuple(replace(device, driver=driver) for device in each.devices)
        scene.append(replace(each, devices=devices, tables={SOFTIRQS: late}))
    assert head in text(screen_lines(scene, (), 80, 40))


def test_a_handler_alone_is_no_culprit():
    alone = handlers_view.handler_rows({Handler(5, "x"): HandlerRuns(runs(3), returned={"none": 1})}, 1)[0]
    assert not alone.is_mostly_not_handled
    assert handlers_view.handler_rows({Handler(5, "x"): HandlerRuns(Histogram())}, 0)[0].not_handled is None


# ---- wake-ups


def test_who_waited_longest_and_who_ran_instead():
    lines = text(table(wakeups_view.WAKEUP_FIELDS, SHOWN.threads, 0, (120, 8), why="")).splitlines()
    assert lines[1].startswith("▸emlxs_thread ")
    assert "after zpool-data (prio 99) x8, swapper/3 x1" in lines[1]
    assert lines[1].split()[2:6] == ["other", "97", "502", "32us"]


def test_threads_whose_times_are_known_are_shown_with_them():
    late = Wakeups(Thread(7, "x", "other", 120), runs(9), {"b": 8}, {"a (prio 99)": 2_500_000, "b": 400_000})
    (line,) = text(table(wakeups_view.WAKEUP_FIELDS, [late], 0, (120, 2), why="")).splitlines()[1:]
    assert line.rstrip().endswith(" 9us a (prio 99) 2.50s, b 400ms")


@pytest.mark.parametrize(
    ("name", "priority", "output"),
    [
        ("fifo", 49, "fifo 50"),
        ("rr", 98, "rr 1"),
        ("other", 100, "nice -20"),
        ("batch", 139, "batch 19"),
        ("other", 97, "other"),
        ("deadline", -1, "deadline"),
        ("", 120, "-"),
    ],
)
def test_a_policy_is_as_an_admin_sets_it(name, priority, output):
    assert wakeups_view.policy(Wakeups(Thread(1, "x", name, priority), Histogram())) == output


# ---- the three together


@pytest.mark.parametrize("focus", PARTS)
def test_the_parts_share_the_space(focus):
    for height in range(1, 40):
        given = shares(SHOWN, focus, height)
        assert sum(given.values()) <= height
        assert focus in given
        if height >= 9:
            assert set(given) == set(PARTS)
            assert all(lines >= 3 for lines in given.values())
        if height >= needed(SHOWN):
            assert sum(given.values()) == needed(SHOWN) == 15


def test_who_ran_instead_and_what_columns_mean_are_whole_at_80():
    thread = Thread(812, "emlxs_thread", "other", 97)
    interrupt_tables = interrupts_of(
        softirqs(), HANDLERS, (Wakeups(thread, runs(9), {"a-kernel-thread (prio 99)": 9}),), 60
    )
    output = text(interrupts(interrupt_tables, 80, 9, RAMP))
    assert "of 3" in output
    assert "after a-kernel-thread (prio 99) x9" in output
    for words in ("ran in irq, tick, or a task (ksoftirqd)", "other handlers ran before it", "120 nice 0"):
        assert words in output


def test_hidden_rows_are_counted():
    screen = text(interrupts(SHOWN, 80, 10, RAMP, focus="handlers", selected=2))
    assert " softirqs  1 of 3" in screen
    assert "▸  24 nvme0q1" in screen


def test_nothing_traced_says_why():
    assert text(interrupts(InterruptTables(), 80, 18, RAMP, why=WHY)).strip() == WHY
    interrupt_tables = InterruptTables(threads=SHOWN.threads)
    assert text(interrupts(interrupt_tables, 80, 18, RAMP, why=WHY)).count(WHY) == 2


@pytest.mark.parametrize("focus", PARTS)
def test_every_size_fits_and_is_clean(focus):
    hostile = interrupts_of(
        {SoftirqCpu(HOSTILE, c): SoftirqRuns(runs(2**32 - 1), runs(0), {HOSTILE: 3}) for c in range(300)},
        {
            Handler(10**6, HOSTILE): HandlerRuns(
                runs(1), returned={"none": 1}, before_us=2**40, device=HOSTILE, shared_with=(HOSTILE, "日本語" * 5)
            )
        },
        [Wakeups(Thread(4_194_304, HOSTILE, "other", 120), runs(2**32 - 1), {HOSTILE: 10**9})],
        1e-6,
    )
    for size, ink, shown in product(SIZES, (Ink(), RAMP), (SHOWN, hostile, InterruptTables())):
        for selected in (0, 2, 99):
            lines = interrupts(shown, *size, ink, focus=focus, selected=selected, first_cpu=250, why=WHY)
            assert 0 < len(lines) <= size[1]
            assert all(width(line) <= size[0] for line in lines)
            assert all(is_clean(span.text) for line in lines for span in line)


# ---- task queues

LOOPS = Taskq("qlc_0_comp_thd", 0, threads=8, priority=99, active=8, waiting=0, most=8, ever=0, span_us=10 * SECOND)
ZIO = Taskq("zio_write_intr", 3, 8, 99, 8, 322, 300, 6200, 10 * SECOND, 1530, 1200, 24_000)
QUEUES = replace(SHOWN, taskqs=summed([(LOOPS, ZIO)]))


@pytest.mark.parametrize("cells", [80, 160])
def test_what_waits_for_a_thread_and_what_is_no_queue(cells):
    lines = text(interrupts(QUEUES, cells, 22, RAMP, focus=TASKQS, selected=1)).splitlines()
    assert lines[15].split()[:2] == ["task", "queues"]
    inst = (["instance"], ["3"], ["0"]) if cells == 160 else ([], [], [])
    assert lines[16].split() == ["task", "queue", *inst[0], "prio", "thr", "active", "waiting", "max", "done/s", "run"]
    assert lines[17].split() == ["zio_write_intr", *inst[1], "99", "8", "8", "322", "300", "120", "20us"]
    assert lines[18].split() == ["▸qlc_0_comp_thd", *inst[2], "99", "8", "8", "0", "8", "-", "-", "permanent", "loops"]


def test_a_host_without_task_queues_has_three_parts_and_an_idle_one_says_so():
    assert SHOWN.parts == PARTS
    assert "task queue" not in text(interrupts(SHOWN, 80, 24, RAMP))
    idle = replace(SHOWN, taskqs=())
    assert idle.parts == (*PARTS, TASKQS)
    assert text(interrupts(idle, 80, 24, RAMP)).splitlines()[-1].strip() == "task queues: none was busy"
    assert needed(idle) == needed(SHOWN) + 1


@pytest.mark.parametrize("focus", PARTS)
def test_a_table_without_rows_is_one_row_with_its_reason_below_the_others(focus):
    interrupt_tables = replace(SHOWN, threads=())
    reasons = {"wake-ups": "wake-ups: the tracer runs and recorded none of them in this time"}
    lines = text(interrupts(interrupt_tables, 80, 24, RAMP, focus=focus, reasons=reasons)).splitlines()
    assert lines[-1].rstrip() == " wake-ups: the tracer runs and recorded none of them in this time"
    assert sum("wake-ups" in line for line in lines) == 1
    assert needed(interrupt_tables) == sum(len(rows) + 2 for rows in (SHOWN.vectors, SHOWN.handlers)) + 1


def test_a_long_reason_is_whole():
    reason = "handlers are not traced: " + "their hooks are not in this kernel, which was built without them " * 3
    lines = text(interrupts(replace(SHOWN, handlers=()), 80, 40, RAMP, reasons={"handlers": reason})).splitlines()
    shown = " ".join(" ".join(lines).split())
    assert shown.endswith(reason.strip())


def test_where_nothing_is_traced_the_reason_is_reported_once():
    screen = text(interrupts(replace(InterruptTables(), taskqs=QUEUES.taskqs), 80, 24, RAMP, why=WHY))
    assert screen.count(WHY) == 1
    assert "▸zio_write_intr" in screen
    lines = text(interrupts(InterruptTables(taskqs=()), 80, 24, RAMP, why=WHY)).splitlines()
    assert [line.strip() for line in lines] == [
        "",
        WHY,
        "",
        "task queues: none was busy",
    ]


@pytest.mark.parametrize(("traced", "parts"), [(True, 4), (False, 1)])
def test_a_window_adds_up_its_readings_and_tab_goes_through_the_parts_there_are(traced, parts):
    made = Scene(Selection(screen="interrupts"))
    made.store.origin = ORIGIN
    for current_frame in on_demand_host(6, 30):
        queues = {5: (LOOPS, ZIO), 15: (LOOPS, ZIO)}.get(current_frame.seq)
        on_demand = {} if traced else {"tables": {}}
        made.append(replace(current_frame, taskqs=queues, **on_demand))
    shown = tables(made.view)
    assert [(s.last.name, s.executed) for s in shown.taskqs or ()] == [("zio_write_intr", 2400), ("qlc_0_comp_thd", 0)]
    for step in (*["part"] * (parts - 1), "line"):
        made.choose(STEPS[step](made.view, 1))
    assert "▸qlc_0_comp_thd" in text(screen_lines(made, (), 80, 40))
    made.choose(STEPS["delays"](made.view, 0))
    assert not made.selection.opened
    made.choose(STEPS["part"](made.view, 1))
    assert made.selection.part == 0


@pytest.mark.parametrize("focus", [*PARTS, TASKQS])
def test_task_queues_fit_everywhere_and_are_clean(focus):
    huge = 2**63 - 1
    hostile = summed([[Taskq(HOSTILE, at, huge, huge, huge, huge, huge, huge, 1, huge, 1, huge) for at in range(99)]])
    for size, others in product([(10, 1), (40, 2), *SIZES], (SHOWN, InterruptTables())):
        for queues in (QUEUES.taskqs, hostile, ()):
            for selected in (0, 98, 200):
                lines = interrupts(replace(others, taskqs=queues), *size, RAMP, focus=focus, selected=selected, why=WHY)
                assert 0 < len(lines) <= size[1]
                assert all(width(line) <= size[0] for line in lines)
                assert all(is_clean(span.text) for line in lines for span in line)


# ---- delays


DELAYS = [(START_MONO + i * SECOND, {"BLOCK": runs(*[5, 30] * 20, *[3_900] * (i % 3))}) for i in range(30)]


def delays(vector="BLOCK", hz=250, ink=RAMP, cells=80):
    timeline = Timeline(SECOND, 31, OPS, delay_frames(DELAYS, frame(29)))
    style = MapStyle(latency_scale(extent(timeline.counts("BLOCK")), 12), 256, 1, ink)
    return text(delay_map(timeline, vector, style, cells, hz=hz, over_us=30 * SECOND))


def test_the_tick_is_a_line_with_its_time():
    lines = delays().splitlines()
    assert lines[0].startswith(" BLOCK delay  1,230 waits in 30 s, ┄ tick 4.00ms (CONFIG_HZ=250)")
    tick = next(line for line in lines if line.startswith("  4ms┤"))
    assert tick[6:13] == "┄┄··┄··"
    assert lines[-1].lstrip().startswith("└")


def test_without_hz_there_is_no_line():
    assert "┄" not in delays(hz=None)
    assert "CONFIG_HZ not known" in delays(hz=None)
    assert (tick_us(None), tick_us(1000), tick_us(250)) == (None, 1000, 4000)


def test_a_vector_that_never_waited_says_so():
    assert "no delayed run in the last 30 s" in delays("NET_RX")


def test_delays_keep_their_time_and_holes():
    late = [*DELAYS[:3], (START_MONO + 9 * SECOND, DELAYS[4][1])]
    frames = list(delay_frames(late, replace(frame(9), wall=frame(9).wall)))
    assert [f.wall for f in frames] == [frame(i).wall for i in (0, 1, 2, 9)]
    assert len(Timeline(SECOND, 31, OPS, frames).columns) > 4
    assert room(80) == 68


@pytest.mark.parametrize(
    ("kernel", "has", "has_not"),
    [
        ("SunOS 5.11", "a higher prio runs first: TS IA FSS 0-59, SYS 60-99, RT 100-159", "nice"),
        ("FreeBSD 14.1", "a lower prio runs first: interrupt threads from 0, idle from 224", "nice"),
        ("6.18.44", "prio 0-98 real time, 120 nice 0; lower runs first", "SYS"),
    ],
)
@pytest.mark.parametrize("columns", [80, 160])
def test_priorities_are_explained_by_the_platform_of_the_host(kernel, has, has_not, columns):
    shown = interrupts_of({}, {}, wakeups()[:2], 60)
    output = text(interrupts(shown, columns, 24, RAMP, focus="wake-ups", why=WHY, kernel=kernel))
    title = next(line for line in output.splitlines() if line.startswith(" wake-ups"))
    assert has_not not in title
    assert has in title if columns == 80 else "runs first" in title


def test_a_recording_of_solaris_has_its_own_scale_on_the_screen():
    scene = Scene(Selection(screen="interrupts"))
    scene.store.origin = replace(ORIGIN, kernel="SunOS 5.11")
    for current_frame in on_demand_host(6, 30):
        scene.append(current_frame)
    titles = [line for line in map(plain, scene.draw(80, 24).body) if line.startswith(" wake-ups")]
    assert "SYS 60-99" in titles[0]
    assert "nice" not in titles[0]


@pytest.mark.parametrize(
    ("mode", "says"),
    [("auto", "interrupts: not traced yet: this screen requests it"), ("basic", "(--stages basic): press S")],
)
def test_before_the_tracer_starts_the_screen_says_what_it_waits_for(mode, says):
    scene = Scene(Selection(screen="interrupts", stages=mode))
    scene.store.origin = ORIGIN
    for each in host(2, 3):
        scene.append(each)
    assert says in " ".join(text(screen_lines(scene, (), 80, 24)).split())


def test_while_the_probes_start_no_other_reason_is_given():
    scene = Scene(Selection(screen="interrupts"))
    scene.preview(PROCFS, host(2, 1)[0])
    shown = " ".join(text(screen_lines(scene, (), 80, 24)).split())
    assert "the probes that time each I/O are starting" in shown
    assert "latmon doctor" not in shown
