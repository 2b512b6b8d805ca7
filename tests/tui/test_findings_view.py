"""Findings on the screen: below the title, in their list, on the time axis, and from each to its evidence and back."""

import asyncio
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from frames import ODD, ORIGIN, START_MONO, START_WALL, Lazy, Source, host, on_demand_host
from test_app import make, painted, screen, settled, whole
from test_screens import press, text

from latmon.findings import engine
from latmon.findings.episodes import Episode
from latmon.findings.rule import (
    AGE,
    CRITICAL,
    DEFAULT,
    LATENCIES,
    MISSING,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Moment,
    Rule,
    Step,
    Where,
)
from latmon.findings.rules import RULES
from latmon.model.frame import Series
from latmon.model.histogram import Histogram
from latmon.model.inflight import InFlight, InFlightList
from latmon.recording.archive import Archive, Stamp
from latmon.support.errors import LatmonError
from latmon.support.units import clock
from latmon.tui.app import FindingsEvaluation
from latmon.tui.canvas import Canvas
from latmon.tui.commands import STEPS
from latmon.tui.time_travel import Travel
from latmon.views import findings_state
from latmon.views.findings_state import CurrentFindings, findings_at
from latmon.views.lines import plain, width
from latmon.views.panels.findings import evidence, findings_panel, key_of, listed
from latmon.views.panels.stages import stages_panel
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import SCREENS, Selection
from latmon.views.verdict import verdict

BEGUN = replace(ORIGIN, start_mono_us=START_MONO, start_wall=START_WALL)
FRAMES = Lazy(on_demand_host, 6, 12, ios=8)
S = 1_000_000
WAKE_UP = Finding(
    "completion-wakeup",
    CRITICAL,
    ODD,
    f"{ODD}: 97% of the time of I/Os above 100 ms is waiting for the completion thread emlxs_thread (prio 97), woken "
    "but not run; the device itself took 85 us",
    (Fact("tail", 0.97, "97% of the time of I/Os above 100 ms", "share", 31), Fact("prio", 97, "its priority is 97")),
    Where("overview", ODD, "write", 65_536, None),
    (Step("raise the thread's priority", "other threads wait instead"), Step("see what ran instead")),
    "a wake-up delay that is as long for threads of other drivers",
    0.97,
)
_QUEUE = Where("outstanding", "nvme1n1")
CEILING = replace(WAKE_UP, id="outstanding-ceiling", severity=WARNING, device="nvme1n1", where=_QUEUE)
SEEN = replace(WAKE_UP, id="bimodal-tail", severity=NOTICE, device="nvme2n1", where=Where("outliers", ODD, "", 100_000))


def lasting(one, begin=20, end=55, **changed):
    episode = Episode(
        worst=one,
        last=one,
        begin_us=START_MONO + begin * S,
        end_us=START_MONO + end * S,
        begin_wall=START_WALL + begin,
        end_wall=START_WALL + end,
    )
    return replace(episode, **changed)


def current(*now, over=(), **changed):
    return CurrentFindings(tuple(map(lasting, now)), tuple(over), evaluated=True, span_us=60 * S, **changed)


def text_of(lines):
    return "\n".join(plain(line) for line in lines)


def flat(lines):
    return " ".join(text_of(lines).split())


def test_a_finding_on_a_device_without_load_is_behind_the_others_of_its_severity():
    """Rules look at a minute: I/O of a device that ended half a minute ago is found for as long."""
    ended = replace(CEILING, device="nvme2n1", share=0.99)
    host = replace(CEILING, device="", share=0.1)
    current_findings = current(WAKE_UP, ended, CEILING, host).busy_first(frozenset({"nvme1n1"}))
    assert [episode.last for episode in current_findings.lasting] == [WAKE_UP, CEILING, host, ended]
    assert WAKE_UP.severity == CRITICAL, "a more urgent one stays first"
    with_another = replace(ended, also=("nvme1n1",))
    current_findings = current(with_another, CEILING).busy_first(frozenset({"nvme1n1"}))
    assert [episode.last for episode in current_findings.lasting] == [with_another, CEILING]


@pytest.mark.parametrize("size", [(80, 20), (120, 34), (160, 44)])
@pytest.mark.parametrize("opened", [False, True])
def test_the_finding_of_the_selected_device_is_below_its_stages(size, opened):
    scene = Scene(Selection(screen="stages", opened=opened, selected=ODD))
    scene.store.origin = BEGUN
    for frame in FRAMES:
        scene.append(frame)
    view = replace(scene.view, found=current(CEILING, WAKE_UP))
    output = flat(stages_panel(view, *size))
    assert "woken but not run; the device itself took 85 us" in output
    assert "nvme1n1 queue" not in output, "no finding of another device"


@pytest.fixture
def ruled(monkeypatch):
    """One rule with a known answer in place of all."""

    def rule(evaluate, name="completion-wakeup"):
        monkeypatch.setattr(engine, "RULES", (Rule(name, "", evaluate, LATENCIES),))

    return rule


def slow(facts, _limits):
    """Found while there were slow writes in the last minute; with the number of I/Os and the time."""
    writes = facts.latency(SICK, "write")
    if writes.max and writes.max > 70_000:
        yield replace(WAKE_UP, device=SICK, summary=f"{SICK}: {writes.count} writes by {facts.end_us - START_MONO}")


def scene(frames, selection=Selection(), **options):  # noqa: B008  frozen
    scene = Scene(selection, findings=DEFAULT, **options)
    scene.opened(BEGUN)
    for frame in frames:
        scene.append(frame)
    return scene


# ---- the verdict below the title


def verdict_of(*found, size=(80, 24), past=(), **selection):
    """The rows of the verdict with these findings at a time."""
    scene = Scene(Selection(**selection))
    scene.store.origin = BEGUN
    for frame in FRAMES:
        scene.append(frame)
    view = replace(scene.view, found=replace(current(*found), kept=tuple(past)))
    return verdict(view, (), *size)


def short(finding, text):
    return replace(finding, short=f"{finding.device}: {text}")


STUCK = short(WAKE_UP, "up to 1.24 s late: emlxs_thread was not run, zpool-data had its CPU")
FULL, LATE = short(CEILING, "3 I/Os in flight at most, 12.3 wait above"), short(SEEN, "31 of 400 take long")


@pytest.mark.parametrize("size", [(40, 10), (60, 16), (80, 24), (160, 50)])
def test_the_worst_one_is_whole_on_any_screen(size):
    lines, named, _ = verdict_of(STUCK, FULL, LATE, size=size)
    assert named[0] == STUCK
    assert len(lines) <= 3
    assert {width(line) for line in lines} == {size[0]}
    assert text_of(lines).startswith("!! nvme5n1: up to 1.24 s late")
    assert STUCK.short in flat(lines)
    assert "…" not in flat(lines)


def test_findings_have_a_row_each_with_the_key_that_shows_them():
    lines, named, _ = verdict_of(STUCK, FULL)
    assert named == [STUCK, FULL]
    assert plain(lines[1]).startswith(" ! nvme1n1: 3 I/Os in flight at most")
    assert plain(lines[1]).rstrip().endswith("3 shows")
    assert {span.role.partition("/")[2] for span in lines[0]} == {"critical"}
    assert {span.role.partition("/")[2] for span in lines[1]} == {"warning"}


def test_others_are_counted_and_that_of_the_selected_device_is_the_second_one():
    others = [short(replace(CEILING, device=f"nvme{number}n1"), "is full") for number in (2, 3, 4)]
    lines, named, _ = verdict_of(STUCK, *others)
    assert named == [STUCK, others[0]]
    assert plain(lines[-1]).strip() == "+2 more: 6 shows"
    assert verdict_of(STUCK, *others, selected="nvme4n1").named == [STUCK, others[2]]
    assert plain(verdict_of(STUCK, *others, size=(80, 12)).lines[-1]).rstrip().endswith(("+3 more", "CPU"))


def test_a_notice_is_one_dim_row_below_what_else_is_known():
    lines, named, _ = verdict_of(LATE)
    assert named == []
    assert {span.role for span in lines[-1] if span.text.strip()} <= {"dim", "accent"}
    assert plain(lines[-1]).startswith(" · nvme2n1: 31 of 400 take long")
    assert "quiet" not in text_of(lines), "there is no threshold"


@pytest.mark.parametrize(("size", "rows"), [((80, 24), 2), ((80, 12), 1)])
def test_a_notice_about_all_of_the_host_is_said_first(size, rows):
    busy = replace(SEEN, device="", short="all CPUs are busy: programs wait for one 97% of the time")
    lines, named, _ = verdict_of(LATE, busy, size=size, threshold_us=9_000_000_000)
    assert plain(lines[0]).startswith(f" · {busy.short}")
    assert named == []
    assert len(lines) == rows
    assert "quiet" not in text_of(lines)
    assert "no finding" not in text_of(lines)
    assert rows == 1 or plain(lines[1]).startswith(" ○ nothing above 150 min for 12 s")


def test_a_host_is_quiet_only_where_that_is_known():
    fast = 9_000_000_000
    assert text_of(verdict_of(threshold_us=fast).lines).startswith(" ● quiet: nothing above 150 min for 12 s")
    scene = Scene(Selection(threshold_us=fast))
    assert text_of(verdict(scene.view, (), 80, 24).lines) == " ○ waiting for the backend"
    scene.store.origin = BEGUN
    assert "waiting for the first 1 s of data" in text_of(verdict(scene.view, (), 80, 24).lines)
    for frame in FRAMES:
        scene.append(frame)
    lacking = replace(current(), not_evaluated={LATENCIES: ("starved-io", "io-errors")}, rules=28)
    shown = text_of(verdict(replace(scene.view, found=lacking), (), 80, 24).lines)
    assert "quiet: " in shown
    assert "2 of 28 rules not evaluated" in " ".join(shown.split())
    assert "quiet" not in text_of(verdict(replace(scene.view, found=current()), ("coverage 80%",), 80, 24).lines)
    assert "coverage 80%" in text_of(verdict(replace(scene.view, found=current()), ("coverage 80%",), 80, 24).lines)
    unknown = text_of(verdict(replace(scene.view, found=CurrentFindings()), (), 80, 24).lines)
    assert "quiet" not in unknown
    assert re.search("no rule is evaluated|rules are evaluated after 2 s", unknown)


def test_ios_above_the_threshold_are_counted_where_no_rule_found_anything():
    shown = text_of(verdict_of(threshold_us=1_000).lines)
    assert re.search(r"no finding in .*; \S+ above 1(\.\d+)? ms in 12 s, (most )?on nvme5n1", shown)
    assert "quiet" not in shown


def test_the_strip_has_the_finding_whole_in_eight_lines(ruled):
    sentence = f"{SICK}: {'a wait for the completion thread that was woken and not run ' * 3}.".replace(" .", ".")
    ruled(lambda *_: [replace(WAKE_UP, device=SICK, summary=sentence)])
    given_scene = scene(host(8, 70, odd=SICK, ios=20))
    given_scene.findings_state.finish()
    lines = given_scene.draw_strip(80)
    assert len(lines) == 8
    assert sentence.partition(": ")[2] in flat(lines)
    assert "…" not in flat(lines)
    assert sum(plain(line).startswith((" nvme", "▸nvme")) for line in lines) == 2


def test_numbers_older_than_two_evaluations_have_their_time(ruled):
    """Rules are asked at the ends of blocks; the lines beside it show the newest frame."""
    ruled(lambda *_: (STUCK,))
    given_scene = scene(host(3, 23))
    assert "nvme5n1: up to 1.24 s late" in press(given_scene)
    assert "evaluated" not in press(given_scene)
    given_scene.findings_state.at_once = False
    for frame in host(3, 33)[23:]:
        given_scene.append(frame)
    assert "evaluated 13 s ago" in press(given_scene)
    assert "1 finding" not in press(given_scene)
    assert "6: 1 finding" in press(given_scene, "screen:3")


@pytest.mark.parametrize(("age_s", "shown"), [(24, "24 s"), (20, "20 s"), (90, "20 s"), (None, "20 s")])
def test_an_age_in_the_verdict_is_that_of_the_device_table(age_s, shown):
    """Rules are evaluated every 5 s; an I/O that is much older is none that the finding counts."""
    scene = Scene(Selection())
    scene.store.origin = BEGUN
    for frame in FRAMES:
        if age_s is not None:
            held = InFlight(ODD, "write", frame.mono_us - age_s * S, issued=True)
            frame = replace(frame, in_flight=InFlightList((held,), {1: 1, 10: 1, 60: 0}, 0))  # noqa: PLW2901
        scene.append(frame)
    template = f"{ODD}: a write stuck for {AGE} in the driver or below"
    finding = replace(STUCK, short=template.replace(AGE, "20 s"), age_us=20 * S, short_of_age=template)
    found = replace(current(finding), until_wall=FRAMES[-1].wall - 4)
    lines = verdict(replace(scene.view, found=found), (), 80, 24).lines
    assert f"a write stuck for {shown} in the driver" in text_of(lines)


def test_a_notice_stays_off_the_map():
    assert current(SEEN).urgent == ()
    assert current(WAKE_UP, SEEN).urgent == (WAKE_UP,)


# ---- the list


def test_an_empty_list_says_what_could_not_be_evaluated(ruled):
    ruled(lambda *_: ())
    given_scene = scene(host(3, 20))
    shown = " ".join(press(given_scene, "screen:5").split())
    assert "none now" in shown
    assert "No finding in the last 20 s, all that was captured by now." in shown
    evaluated = sum(rule.needs == LATENCIES or not rule.needs for rule in RULES)
    assert f"{evaluated} of {len(RULES)} rules evaluated for 3 devices." in shown
    assert "Not evaluated: starved-io, completion-wakeup, late-resume" in shown
    assert "stages are not traced: press S, or --stages all." in shown
    assert "outstanding I/Os were not counted" in shown


@pytest.mark.parametrize("list_of", ["kept", "over"])
def test_no_finding_now_is_said_with_the_time_of_the_latest_one(list_of):
    scene = Scene(Selection(screen="findings"))
    scene.store.origin = BEGUN
    for frame in FRAMES:
        scene.append(frame)
    ended = (lasting(WAKE_UP, 20, 40), lasting(CEILING, 20, 55))
    view = replace(scene.view, found=replace(current(), **{list_of: ended}))
    shown = flat(findings_panel(view, 80, 20))
    assert f"No finding now; the latest below was found at {clock(START_WALL + 55)}." in shown
    assert "No finding in the last" not in shown
    assert "no finding in" not in text_of(verdict(view, (), 80, 24).lines)


@pytest.mark.parametrize(("now", "chosen"), [((CEILING,), None), ((), WAKE_UP.key), ((WAKE_UP,), WAKE_UP.key)])
def test_the_list_opens_at_the_chosen_finding_unless_only_others_are_active(now, chosen):
    """An ended one that was read before is not selected above a current one."""
    scene = Scene(Selection(finding=key_of(lasting(WAKE_UP))))
    ended = () if WAKE_UP in now else (lasting(WAKE_UP),)
    view = replace(scene.view, found=current(*now, over=ended))
    opened = STEPS["screen"](view, SCREENS.index("findings"))
    assert (opened.finding[:2] if opened.finding else None) == chosen


def test_before_the_first_block_nothing_is_known(ruled):
    ruled(lambda *_: ())
    shown = press(scene(host(3, 1)), "screen:5")
    assert "nothing is evaluated yet" in shown
    assert "No finding" not in shown


@pytest.mark.parametrize(("cells", "rows"), [(40, 8), (80, 20), (160, 46)])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_the_list_fits_and_the_selected_one_is_whole(cells, rows, at):
    over = [lasting(replace(CEILING, device=f"sd{i}"), 1 + i, 10 + i) for i in range(9)]
    lines = listed(current(WAKE_UP, CEILING, over=over), at, cells, rows)
    assert len(lines) <= rows
    assert all(width(line) <= cells for line in lines)
    assert sum(plain(line).startswith("▸") for line in lines) == 1
    shown = text_of(lines)
    assert ("outstanding-ceil" in shown) == ("outstanding-ceiling" in shown), "an id is whole or left out"


def test_a_severity_is_a_sign_and_a_word_and_what_is_over_has_both_times():
    shown = text_of(listed(current(WAKE_UP, CEILING, SEEN, over=[lasting(CEILING, 5, 9)]), 0, 160, 46))
    since = shown.splitlines()
    assert "▸!! nvme5n1 kernel thread ran late   critical since " in shown
    assert "  ! nvme1n1 driver limit reached     warning since " in shown
    assert "  · nvme2n1 two groups of latencies  notice since " in shown
    assert [line.rstrip().rsplit(" ", 1)[-1] for line in since if " since " in line] == [
        "completion-wakeup", "outstanding-ceiling", "bimodal-tail"
    ]  # fmt: skip
    assert len({line.rstrip() and len(line.rstrip()) for line in since if " since " in line}) == 1
    assert f"warning {clock(START_WALL + 5)} to {clock(START_WALL + 9)}  outstanding-ceiling" in shown


def test_a_finding_that_is_kept_has_its_time_and_its_evidence_and_is_dim():
    current_findings = current(SEEN, kept=(lasting(CEILING, 5, 9),), over=[lasting(WAKE_UP, 1, 4)])
    lines = listed(current_findings, 1, 100, 40)
    shown = text_of(lines)
    assert "findings  1 now, 1 kept, 1 earlier" in shown
    assert f"▸ ! nvme1n1 driver limit reached  warning as of {clock(START_WALL + 9)}" in shown
    assert "nvme1n1 driver limit reached  outstanding-ceiling  next steps" in shown
    roles = {span.role for line in lines for span in line if "nvme1n1" in span.text and "as of" not in span.text}
    assert roles == {"dim", "dim/sel", "strong"}, "strong in the heading of its evidence alone"


def test_one_that_is_kept_has_the_time_of_its_wait_where_it_is_about_one():
    """Not that of the block after which it was found."""
    event = replace(CEILING, at=Moment(START_MONO + 6 * S, START_WALL + 6))
    current_findings = current(SEEN, kept=(lasting(event, 5, 9),))
    assert f"warning as of {clock(START_WALL + 6)}" in text_of(listed(current_findings, 1, 100, 40))


def test_one_that_comes_again_has_the_number_of_its_times():
    again = lasting(CEILING, 50, 55, repeats=3, first_us=START_MONO - 35 * S)
    found = replace(current(), lasting=(again,))
    assert f"since {clock(START_WALL + 50)}, again, 4th time in 90 s" in text_of(listed(found, 0, 120, 40))
    assert f"since {clock(START_WALL + 50)} (4th)" in text_of(listed(found, 0, 74, 40))
    kept = replace(current(), kept=(again,))
    assert f"as of {clock(START_WALL + 55)}, 4 times in 90 s" in text_of(listed(kept, 0, 100, 40))


@pytest.mark.parametrize(
    ("episodes", "text"),
    [
        ({"kept": (lasting(FULL, 5, 9),)}, f"12.3 wait above, as of {clock(START_WALL + 9)}"),
        (
            {"lasting": (lasting(FULL, 50, 55, repeats=3, first_us=START_MONO - 35 * S),)},
            "12.3 wait above, again, 4th time in 90 s",
        ),
    ],
)
def test_the_first_screen_has_a_finding_that_is_kept_or_comes_again(episodes, text):
    found = replace(current(), **episodes)
    scene = Scene(Selection())
    scene.store.origin = BEGUN
    for frame in FRAMES:
        scene.append(frame)
    lines, named, _ = verdict(replace(scene.view, found=found), (), 80, 24)
    assert text in flat(lines)
    assert named == [FULL]
    roles = {span.role.partition("/")[0] for line in lines for span in line if span.text.strip()}
    assert ("strong" in roles) == ("kept" not in episodes)


def test_the_evidence_has_sample_sizes_risks_and_what_would_refute_it():
    shown = flat(listed(current(WAKE_UP), 0, 160, 46))
    assert "97% of the time of I/Os above 100 ms (of 31)" in shown
    assert "Enter shows it: overview, nvme5n1, write, 65.5ms and more" in shown
    assert "1 raise the thread's priority (risk: other threads wait instead)" in shown
    assert "refuted by a wake-up delay that is as long for threads of other drivers" in shown


@pytest.mark.parametrize("cells", [40, 80, 160])
def test_a_command_keeps_its_blanks_and_has_lines_of_its_own(cells):
    line = 'ssd-config-list = "VENDOR  PRODUCT", "disksort:false";'
    step = Step("set it in ssd.conf", "it needs a reboot", (line, "iostat -En"))
    shown = [plain(spans) for spans in evidence(replace(WAKE_UP, steps=(step,)), cells)]
    at = next(i for i, one in enumerate(shown) if line[:20] in one)
    joined = "".join(one[9:] for one in shown[at:]).replace(" (not run", "(not run")
    assert joined.startswith(f"{line}(not run here)iostat -En(not run here)")
    assert all(len(one) <= cells for one in shown[at:] if one.startswith(" " * 9))
    assert "it needs a reboot)" in " ".join(" ".join(shown[:at]).split())


def test_the_next_step_is_seen_on_a_small_screen_and_the_key_that_shows_more():
    facts = tuple(Fact("n", i, f"number {i} of many") for i in range(16))
    shown = text_of(listed(current(replace(WAKE_UP, facts=facts), CEILING), 0, 80, 20))
    assert "1 raise the thread's priority" in shown
    assert re.search(r" … PgDn: \d+ more lines", shown)


def test_a_finding_at_the_first_evaluation_may_have_begun_before():
    found = CurrentFindings(
        (lasting(WAKE_UP, begin=5),), evaluated=True, span_us=60 * S, firsts=frozenset({START_MONO + 5 * S})
    )
    assert f"since {clock(START_WALL + 5)} or before" in text_of(listed(found, 0, 160, 46))
    assert f"since ≤{clock(START_WALL + 5)}" in text_of(listed(found, 0, 80, 20))
    assert found.moments == []


def test_every_rule_names_the_input_that_it_needs():
    assert {rule.needs for rule in RULES} == set(MISSING)


# ---- to the evidence and back


def shows(one):
    return lambda *_: (one,)


def test_enter_marks_the_latencies_on_the_map_and_esc_comes_back(ruled):
    ruled(shows(WAKE_UP))
    given_scene = scene(FRAMES)
    assert "!! nvme5n1: 97% of" in text(given_scene)
    before = press(given_scene, "screen:5")
    shown = press(given_scene, "evidence")
    assert given_scene.selection.context == "zoom"
    assert (given_scene.selection.selected, given_scene.selection.op) == (ODD, "write")
    assert " nvme5n1 region " in shown
    assert " and more" in shown
    press(given_scene, "mark")  # the region is the cursor's
    assert given_scene.selection.context == "cursor"
    assert given_scene.selection.cursor.corner is not None
    press(given_scene, "leave")
    assert given_scene.selection.context == "zoom"
    assert press(given_scene, "leave") == before


@pytest.mark.parametrize(
    ("where", "context", "seen"),
    [
        (Where("stages", ODD), "stage", f" {ODD} stages"),
        (Where("outstanding", ODD), "outstanding", ODD),
        (Where("outliers", ODD, "", 100_000), "outliers", f"slow I/Os {ODD}, 100ms and more"),
        (Where("interrupts"), "interrupts", "softirq"),
        (Where("overview", ODD), "zoom", f"─ {ODD} "),
    ],
)
def test_each_screen_can_be_the_evidence(ruled, where, context, seen):
    ruled(shows(replace(WAKE_UP, where=where)))
    given_scene = scene(FRAMES, Selection(screen="findings", pattern="nvme0"))
    assert seen in press(given_scene, "evidence")
    assert given_scene.selection.context == context
    press(given_scene, "leave")
    assert (given_scene.selection.context, given_scene.selection.pattern) == ("findings", "nvme0")


def test_what_is_opened_at_the_evidence_is_closed_first(ruled):
    ruled(shows(replace(WAKE_UP, where=Where("outliers", ODD))))
    given_scene = scene(FRAMES, Selection(screen="findings"))
    press(given_scene, "evidence", "read")
    assert given_scene.selection.context == "outlier"
    press(given_scene, "leave")
    assert given_scene.selection.context == "outliers"
    press(given_scene, "leave")
    assert given_scene.selection.context == "findings"
    press(given_scene, "evidence", "screen:1", "leave")
    assert given_scene.selection.context == "overview"


def test_a_device_with_a_finding_is_the_first_of_those_unlike_their_peers(ruled):
    ruled(shows(replace(WAKE_UP, device="nvme2n1")))
    given_scene = scene(host(4, 6))
    assert [subject.device.name for subject in given_scene.view.subjects()][:2] == ["nvme2n1", "nvme0n1"]
    given_scene.choose(replace(given_scene.selection, sort="name"))
    assert given_scene.view.subjects()[0].device.name == "nvme0n1"
    ruled(shows(replace(SEEN, device="nvme2n1", id="completion-wakeup")))
    assert scene(host(4, 6)).view.subjects()[0].device.name == "nvme2n1", "a notice, too"


def test_the_rows_are_in_the_order_of_the_verdict(ruled):
    others = [short(replace(WAKE_UP, device=name), "is late") for name in ("nvme3n1", "nvme1n1")]
    ruled(lambda *_: [*others, short(replace(WAKE_UP, device="nvme0n1", severity=NOTICE), "is odd")])
    given_scene = scene(host(4, 6))
    named = [finding.device for finding in (*given_scene.view.found.shown, *given_scene.view.found.notices)]
    assert [subject.device.name for subject in given_scene.view.subjects()][:3] == named
    assert given_scene.view.subjects()[0].selection.selected == named[0]


def test_a_device_with_an_io_above_the_threshold_is_the_first_in_the_second_second():
    frames = host(4, 2)
    slow = Series("nvme2n1", "read", "total")
    frames[1] = replace(frames[1], histograms=frames[1].histograms | {slow: Histogram.record([900_000])})
    scene = Scene(Selection(threshold_us=500_000))
    scene.opened(BEGUN)
    for frame in frames:
        scene.append(frame)
    assert scene.view.subjects()[0].device.name == "nvme2n1"


def test_a_replay_ranks_its_rows_when_the_first_findings_are_known(ruled):
    """Before, rows are in the order of names: another order a second later would move them all."""
    ruled(shows(replace(WAKE_UP, device="nvme2n1")))
    busiest = Series("nvme3n1", "read", "total")
    frames = [
        replace(frame, histograms=frame.histograms | {busiest: Histogram.record([90_000] * 90)}) for frame in host(4, 6)
    ]
    scene = Scene(Selection(), mode="REPLAY", findings=DEFAULT)
    scene.opened(BEGUN)
    orders = []
    for frame in frames:
        scene.append(frame)
        orders.append([subject.device.name for subject in scene.view.subjects()])
    by_name = [f"nvme{number}n1" for number in range(4)]
    assert orders[0] == by_name
    assert orders[2:] == [orders[-1]] * 4
    assert orders[-1][0] == "nvme2n1"


def test_rows_stay_while_an_earlier_time_is_read_and_evaluated(ruled):
    ruled(shows(replace(WAKE_UP, device="nvme2n1")))
    given_scene = scene(host(4, 90))

    def rows():
        return [(subject.device.name, subject.selection.selected) for subject in given_scene.view.subjects()]

    live = rows()
    assert live[0] == ("nvme2n1", "nvme2n1")
    given_scene.at_once = given_scene.findings_state.at_once = False
    given_scene.pause()
    given_scene.travel(given_scene.archive.stamps[20])
    seen = [rows()]
    while given_scene.towards is not None:
        given_scene.proceed()
        seen.append(rows())
    while given_scene.findings_state.is_pending:
        given_scene.findings_state.proceed()
        seen.append(rows())
    assert seen == [live] * len(seen)


def test_keys_go_through_the_list_and_the_selected_one_stays(ruled):
    other = replace(CEILING, id="completion-wakeup")
    ruled(lambda *_: (WAKE_UP, other))
    made = scene(FRAMES[:6], Selection(screen="findings"))
    press(made, "found:1", "found:1")
    assert made.selection.finding[:2] == other.key
    for frame in FRAMES[6:]:
        made.append(frame)
    assert "▸ ! nvme1n1 kernel thread ran late  warning" in press(made, "scroll:10")
    press(made, "found:-1")
    assert (made.selection.finding[:2], made.selection.top) == (WAKE_UP.key, 0)


# ---- in time


SICK = "nvme1n1"


class Played(Source):
    """A replay."""

    speed = 1

    def past(self):
        return Archive()

    def hold(self):
        pass

    def go_on(self, _mono_us):
        raise AssertionError

    async def gone_on(self):
        pass


def some(seconds=140):
    """Slow writes from second 50 to 60."""
    quick, ill = host(2, seconds, ios=4), host(2, 60, odd=SICK, ios=4)
    return [ill[i] if 50 <= i < 60 else quick[i] for i in range(seconds)]


TIME = Lazy(some)


def test_a_finding_has_a_mark_where_it_began_and_where_it_was_last_seen(ruled):
    ruled(slow)
    given_scene = scene(TIME[:70])
    axis = text(given_scene).splitlines()
    assert sum("!" in line for line in axis if "└" in line) == 1
    assert "2 findings" not in text(given_scene)
    given_scene.travel(given_scene.archive.stamps[54])
    assert f"found: kernel thread ran late on {SICK}" in text(given_scene)


@pytest.mark.parametrize(
    ("second", "jumped"),
    [
        (77, False),
        pytest.param(54, False, marks=pytest.mark.slow),
        pytest.param(77, True, marks=pytest.mark.slow),
        pytest.param(136, True, marks=pytest.mark.slow),
    ],
)
def test_an_earlier_time_is_evaluated_as_it_was_then(ruled, second, jumped):
    ruled(slow)
    then = scene(TIME[: second + 1], Selection(screen="findings"))
    if jumped:  # it was not shown: there are only the recording's frames
        given_scene = Scene(Selection(screen="findings"), findings=DEFAULT, mode="REPLAY")
        archive = Archive()
        for frame in TIME:
            archive.append(frame)
        given_scene.opened(BEGUN, archive)
    else:
        given_scene = scene(TIME, Selection(screen="findings"))
    given_scene.travel(given_scene.archive.stamps[second])
    current_findings = given_scene.findings_state.current
    assert [episode.last for episode in current_findings.lasting] == [
        episode.last for episode in then.findings_state.current.lasting
    ]
    assert current_findings.span_us == then.findings_state.current.span_us
    if second != 136:  # its end is behind the window
        assert text_of(screen_lines(given_scene, (), 80, 24)[1:-4]) == text_of(screen_lines(then, (), 80, 24)[1:-4])


def test_one_that_is_over_is_shown_where_it_was(ruled):
    ruled(slow)
    given_scene = scene(TIME, Selection(screen="findings"))
    press(given_scene, "evidence")
    travel = Travel(given_scene, Source([]), str, str, aside=str)
    travel.to_finding()
    assert given_scene.at is not None
    assert START_MONO + 110 * S < given_scene.at.mono_us <= START_MONO + 125 * S
    assert given_scene.selection.context == "zoom"


def later(frames, **options):
    """A scene whose frames are not evaluated yet."""
    scene = Scene(Selection(screen="findings"), findings=DEFAULT, **options)
    scene.findings_state.at_once = False
    scene.opened(BEGUN)
    for frame in frames:
        scene.append(frame)
    return scene


def test_rules_are_evaluated_in_idle_time_from_the_first_minute_on(ruled):
    ruled(slow)
    given_scene = later(TIME[:70])
    assert given_scene.findings_state.current.evaluated is False
    waits, painted = [], []
    evaluating = FindingsEvaluation(
        given_scene.findings_state, lambda after, call: waits.append((after, call)), lambda: painted.append(1), str
    )
    evaluating.wake()
    evaluating.wake()
    assert len(waits) == 1
    while waits:
        after, call = waits.pop()
        assert after >= 0.02
        call()
    assert painted
    assert given_scene.findings_state.is_pending is False
    assert given_scene.findings_state._edge.evaluated == 15
    assert given_scene.findings_state.current == scene(TIME[:70]).findings_state.current


def test_who_is_late_leaves_out_older_blocks_and_says_how_far_it_got(ruled):
    ruled(slow)
    scene = later(TIME[:70])
    while scene.findings_state._edge.evaluated < 3:
        scene.findings_state.proceed()
    assert f"evaluated up to {clock(START_WALL + 10)}, 60 s behind" in text(scene)
    for frame in TIME[70:]:
        scene.append(frame)
    scene.findings_state.finish()
    assert scene.findings_state._edge.evaluated <= 6
    assert "behind" not in text(scene)


def test_only_what_was_found_first_after_a_hole_may_have_begun_before(ruled):
    ruled(slow)
    made = later(TIME[:70])
    made.findings_state.finish()  # began in the sight of all
    for frame in TIME[70:110]:
        made.append(frame)
    made.findings_state.finish()
    assert made.findings_state._begun.mono_us > START_MONO + 70 * S
    assert "since ≤" not in text(made)
    assert f"since {clock(START_WALL + 55)}" in text(made)
    assert [moment.mono_us for moment in made.findings_state.current.moments] == [START_MONO + 55 * S]
    unseen = later(TIME[:100])
    unseen.findings_state.finish()
    assert "critical since ≤" in text(unseen)


def test_another_boot_is_another_time(ruled):
    ruled(slow)
    given_scene = scene(TIME[:80])
    again = [replace(frame, mono_us=frame.mono_us - 50 * S, wall=frame.wall + 1000) for frame in TIME[60:75]]
    for one in again:
        given_scene.append(one)
    findings_state = given_scene.findings_state
    assert findings_state._first_us == findings_state._begun.mono_us == START_MONO + 10 * S
    then = findings_at(findings_state._edge, Stamp(again[0].mono_us, again[0].wall), DEFAULT)
    assert [episode.end_us for episode in then.over] == [START_MONO + 80 * S]
    assert then.lasting == ()


class Gone(Archive):
    """A recording that was removed."""

    def frames(self, *_args, **_options):
        raise LatmonError("cannot read x: it is gone")
        yield


def gone(made):
    there = Gone()
    for frame in TIME:
        there.append(frame)
    made.archive = there
    return there.stamps


def test_pictures_that_come_faster_than_they_are_painted_do_not_stop_the_evaluation(ruled, monkeypatch):
    """A picture each 20 ms, as over a held key: a part is due within half a second."""
    ruled(slow)
    made, now_s = later(TIME[:70]), [100.0]
    monkeypatch.setattr("latmon.tui.app.time.monotonic", lambda: now_s[0])
    waits, begun = [], []
    evaluating = FindingsEvaluation(made.findings_state, lambda after, call: waits.append((after, call)), str, str)
    monkeypatch.setattr(made.findings_state, "proceed", lambda: begun.append(now_s[0]) or True)
    evaluating.wake()
    due_s = now_s[0] + waits[-1][0]
    for _ in range(100):
        now_s[0] += 0.02
        evaluating.wake()
        if waits and now_s[0] >= due_s:
            waits.pop()[1]()
            due_s = now_s[0] + waits[-1][0]
    assert len(begun) >= 3
    assert all(later_s - first_s < 0.6 for first_s, later_s in pairwise([100.0, *begun]))


def test_a_time_that_cannot_be_evaluated_has_no_finding_of_now(ruled):
    ruled(slow)
    scene = later(TIME[:70])
    scene.findings_state.finish()
    scene.at = scene.archive.stamps[30]
    gone(scene)
    scene.findings_state.look(scene.archive, BEGUN, scene.at, 60 * S)
    output, painted, waits = [], [], []
    evaluating = FindingsEvaluation(
        scene.findings_state, lambda _, call: waits.append(call), lambda: painted.append(1), output.append
    )
    evaluating.wake()
    while waits:
        waits.pop()()
    assert output == ["cannot read x: it is gone"]
    assert painted
    assert "Not evaluated: cannot read x: it is gone." in text(scene)
    assert SICK not in text(scene).split("findings", 1)[1].splitlines()[2]


def test_what_a_rule_does_not_catch_does_not_end_judging(monkeypatch):
    monkeypatch.setattr("latmon.tui.app._PAINTED_S", 0.0)
    scene = later(TIME[:6])
    waits = []
    evaluating = FindingsEvaluation(scene.findings_state, lambda _, call: waits.append(call), str, str)
    evaluating.wake()
    scene.findings_state._edge.taking = lambda _: iter(lambda: 1 / 0, 0)
    with pytest.raises(ZeroDivisionError):
        waits.pop()()
    evaluating.wake()
    assert len(waits) == 1


def test_a_rule_that_failed_is_named(ruled):
    ruled(lambda *_: ())
    given_scene = scene(host(1, 10), Selection(screen="findings"))
    given_scene.findings_state._edge.failed = {"peer-outlier": "division by zero"}
    given_scene.findings_state._shown = (None, given_scene.findings_state.current)
    assert "Not evaluated: peer-outlier: division by zero." in flat(screen_lines(given_scene, (), 160, 40))


def test_space_in_a_replay_whose_file_is_gone_says_so(ruled):
    ruled(slow)
    scene = later(TIME[:20], mode="REPLAY")
    scene.at_once = False
    stamps = gone(scene)
    reported = []
    travel = Travel(scene, Played([]), reported.append, str, aside=str)
    scene.travel(stamps[72])
    travel.hold(0)
    assert travel.arrive()
    assert reported == ["cannot read x: it is gone"]
    assert scene.edge.until_us == stamps[19].mono_us


def test_a_replay_that_goes_on_judges_the_minute_before_in_parts(ruled):
    ruled(slow)
    given_scene = later(TIME[:20], mode="REPLAY")
    archive = Archive()
    for frame in TIME:
        archive.append(frame)
    given_scene.archive = archive
    given_scene.travel(archive.stamps[72])
    given_scene.go_on()
    assert "evaluating the minute before" in text(given_scene)
    for frame in TIME[73:80]:
        given_scene.findings_state.take(frame, BEGUN)
    given_scene.findings_state.finish()
    assert [episode.last for episode in given_scene.findings_state.current.lasting] == [
        episode.last for episode in scene(TIME[:80]).findings_state.current.lasting
    ]


def test_no_rule_is_asked_where_none_is_wanted():
    scene = Scene(Selection(screen="findings"))
    scene.opened(BEGUN)
    for frame in FRAMES:
        scene.append(frame)
    assert scene.findings_state.is_pending is False
    assert "nothing is evaluated" in text(scene)


def test_the_health_line_counts_them_where_there_is_room(ruled):
    ruled(lambda *_: (WAKE_UP, replace(CEILING, id="completion-wakeup"), replace(SEEN, id="completion-wakeup")))
    given_scene = scene(FRAMES, Selection(screen="outliers"))
    assert "6: 2 findings" in text(given_scene, (160, 50))


# ---- pictures


async def _evaluated(pilot, keys):
    await settled(pilot)
    pilot.app.scene.findings_state.finish()
    pilot.app._repaint()
    await pilot.press(*keys)
    await painted(pilot)


@pytest.fixture
def as_many_rules_as_in_the_pictures(monkeypatch):
    monkeypatch.setattr(findings_state, "RULES", RULES[:1] * 18)
    newer = (
        "dirty-throttled",
        "swap-thrash",
        "slow-journal",
        "not-the-disk",
        "late-resume",
        "cpu-throttled",
        "hung-file-system",
        "full-file-system",
        "file-system-errors",
        "read-only-file-system",
        "low-io-priority",
        "command-timeouts",
    )
    monkeypatch.setattr(engine, "NEEDS", {rule: need for rule, need in engine.NEEDS.items() if rule not in newer})


@pytest.mark.parametrize(
    ("keys", "size", "depth"),
    [
        ((), (80, 24), "none"),
        (("6",), (80, 24), "16"),
        pytest.param(("6",), (160, 50), "256", marks=pytest.mark.slow),
        pytest.param(("6", "enter"), (80, 24), "256", marks=pytest.mark.slow),
    ],
    ids=["overview-none", "list-16", "list-wide", "evidence"],
)
@pytest.mark.usefixtures("as_many_rules_as_in_the_pictures")
def test_pictures_of_findings(snap_compare, ruled, keys, size, depth):
    ruled(lambda *_: (WAKE_UP, replace(CEILING, id="completion-wakeup")))
    app = make(Source(FRAMES, origin=BEGUN), depth=depth, findings=DEFAULT)
    assert snap_compare(whole(app), terminal_size=size, run_before=lambda pilot: _evaluated(pilot, keys))


async def test_the_app_judges_between_pictures(ruled):
    ruled(slow)
    app = make(Source(TIME[:12], origin=BEGUN), findings=DEFAULT)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        async with asyncio.timeout(60):
            while app.scene.findings_state.is_pending:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.02)
        assert app.scene.findings_state.current.evaluated


# ---- copies of commands, and the bell


COMMANDED = replace(
    WAKE_UP,
    steps=(Step("see it", commands=("ps -eLo tid,comm | grep -w emlxs", "chrt -p 17")), Step("ask", commands=("top",))),
)


async def test_a_key_copies_one_command_after_the_other(ruled):
    ruled(lambda *_: (COMMANDED,))
    app = make(Source(FRAMES, origin=BEGUN), findings=DEFAULT)
    async with app.run_test(size=(120, 40)) as pilot:
        await _evaluated(pilot, ("6",))
        for number, command in enumerate((*COMMANDED.steps[0].commands, "top", COMMANDED.steps[0].commands[0])):
            await pilot.press("c")
            assert app.clipboard == command
            assert f"sent command {number % 3 + 1} of 3 to the terminal's clipboard: {command}" in screen(app)


async def test_without_a_command_nothing_is_copied(ruled):
    ruled(lambda *_: (WAKE_UP,))
    app = make(Source(FRAMES, origin=BEGUN), findings=DEFAULT)
    async with app.run_test(size=(120, 40)) as pilot:
        await _evaluated(pilot, ("6", "c"))
        assert app.clipboard == ""
        assert "no next step here has a command to copy" in screen(app)


@pytest.mark.parametrize(
    ("bell", "severity", "rings"),
    [
        (True, CRITICAL, 1),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((True, WARNING, 0), (False, CRITICAL, 0))),
    ],
)
async def test_the_bell_rings_once_for_a_new_critical_finding(ruled, monkeypatch, bell, severity, rings):
    ruled(lambda *_: (replace(WAKE_UP, severity=severity),))
    app, rung = make(Source(FRAMES, origin=BEGUN), findings=DEFAULT, bell=bell), []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        async with asyncio.timeout(60):
            while app.scene.findings_state.is_pending:  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.02)
        app._evaluated()
        await painted(pilot)
        assert len(rung) == rings


async def test_a_click_on_a_finding_below_the_title_opens_it(ruled):
    ruled(lambda *_: (STUCK,))
    app = make(Source(FRAMES, origin=BEGUN), findings=DEFAULT)
    async with app.run_test(size=(80, 24)) as pilot:
        await _evaluated(pilot, ())
        y = next(y for y, line in enumerate(screen(app).splitlines()) if line.startswith("!! nvme5n1"))
        await pilot.click(Canvas, offset=(10, y))
        await painted(pilot)
        selection = app.scene.selection
        assert selection.screen == "findings"
        assert selection.finding is not None
        assert selection.finding[:2] == (STUCK.id, STUCK.device)
