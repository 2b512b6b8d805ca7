"""Stages that the host can't measure are marked so, and no key is offered for them."""

import io
from dataclasses import replace

import pytest
from frames import ORIGIN, host
from panels import scene
from test_screens import press
from traced import wakeups

from latmon.capture.collector import CaptureCounts
from latmon.cli.headless import RecordingProgress
from latmon.model.frame import STAGES, Missing, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import by_thread
from latmon.views.anatomy import NO_WAITER, anatomy
from latmon.views.selection import Selection
from latmon_backends.dtrace import program

NONE = program.NONE_THERE
LINUX = program.manifests("linux")


def chosen(has):
    on_demand = [manifest for manifest in LINUX if manifest.group != "always"]
    return program.untraced(program.choose(on_demand, has), on_demand)


HERE = replace(ORIGIN, backend="dtrace", untraced=chosen(lambda _: None))


def test_of_d_scripts_on_linux_only_waiters_and_threads_are_traced():
    others = {
        "softirqs",
        "handlers",
        "issues",
        "issuers",
        "processes",
        "sizes",
        "files",
        "journals",
        "journal_writers",
        "syncs",
        "xfs_logs",
    }
    assert {one.name for one in HERE.untraced} == {*STAGES[:-2], *others}
    assert {one.reason for one in HERE.untraced} == {NONE}
    assert not HERE.traces_stages


def test_a_script_without_its_hook_is_the_reason():
    reasons = {one.name: one.reason for one in chosen(lambda hook: "wait" not in hook)}
    assert reasons["resume"] == "resume_d: there is no probe io:::wait-start here"


@pytest.mark.parametrize("one_in", [0, 1])
def test_what_will_never_come_is_not_promised(one_in):
    frames = [
        replace(frame, traced=Traced(one_in=one_in)).with_tables({WAKEUPS: by_thread(wakeups())})
        for frame in host(3, 5)
    ]
    given_scene = scene(frames, Selection(), HERE)
    text = press(given_scene, "screen:1", size=(160, 50))
    assert f"stages are not traced: {NONE}" in text
    assert "no stages here" in text
    text += press(given_scene, "screen:4", size=(160, 50))
    assert f"handlers are not traced: {NONE}" in text
    assert "emlxs_thread" in text
    text += press(given_scene, "screen:2", "aside:1", size=(160, 50))
    assert "issues of" in text
    assert "nothing was completed yet" not in text
    assert "press S" not in text


def test_resume_is_shown_where_it_alone_is_traced_else_why_not():
    traced = Traced(one_in=1, histograms={Series("sda", "read", "resume"): Histogram.record([30, 40])})
    origin = replace(HERE, absent=(Missing("resume", "resume_d measures it"),))

    def row(traced):
        rows = anatomy("sda", ("read",), traced, origin).rows
        return next(row for row in rows if row.stage == "resume")

    assert row(Traced(one_in=1)).reason == NO_WAITER
    assert row(Traced()).reason == "resume_d measures it"
    assert row(traced).histogram.count == 2


@pytest.mark.parametrize(("origin", "text"), [(ORIGIN, True), (HERE, False)])
def test_the_end_of_a_capture_reports_of_stages_that_were_traced(tmp_path, origin, text):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out)
    progress.opened(origin)
    progress.offer(host(1, 1)[0], CaptureCounts(frames=1, one_in=1))
    assert ("stages traced" in progress._line) is text
