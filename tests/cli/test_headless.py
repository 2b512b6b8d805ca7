"""Progress lines of a headless capture."""

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from recorded import ORIGIN, frame

from latmon.capture.collector import CaptureCounts, Outcome
from latmon.capture.registry import Request, compiling
from latmon.cli.headless import RecordingProgress, _Picture, _progress, _Recording
from latmon.model.frame import Completed, Flow, Health, Outstanding
from latmon.model.redaction import Redaction
from latmon.support.errors import EXIT_DONE, EXIT_FAILED, EXIT_INCOMPLETE
from latmon.support.streams import NORMAL, QUIET, VERBOSE, ServiceLog
from latmon.views.lines import plain
from latmon.views.selection import ScreenOptions


class Tty(io.StringIO):
    def isatty(self):
        return True


def run(out, path, outcome, **tally):
    progress = RecordingProgress(path, out)
    progress.opened(ORIGIN)
    counted = CaptureCounts()
    for seq in range(1):
        given_frame = frame(seq)
        counted.note(given_frame)
        for name, value in tally.items():
            setattr(counted, name, value)
        progress.offer(given_frame, counted)
    progress.ended(outcome)
    return out.getvalue()


def test_a_file_gets_whole_lines(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 3400)
    text = run(io.StringIO(), tmp_path / "x", Outcome("ended after 1s as asked", EXIT_DONE))
    assert text.splitlines() == [
        f"latmon: recording to {tmp_path / 'x'} with by hand",
        "latmon: recorded 1 s, 100 I/Os, 3.3 KiB",
        "latmon: ended after 1s as asked",
    ]


def test_a_slow_start_says_what_it_waits_for(tmp_path):
    out = io.StringIO()
    RecordingProgress(tmp_path / "x", out).starting()
    assert "nothing is recorded yet" in out.getvalue()
    assert "up to half a minute" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("backend", "system", "words"),
    [
        ("auto", "Linux", "the probe tool compiles"),
        ("bpftrace", "Linux", "bpftrace compiles"),
        ("auto", "SunOS", "dtrace compiles"),
        ("dtrace", "Linux", "dtrace compiles"),
        ("procfs", "Linux", ""),
    ],
)
def test_what_compiles_is_the_chosen_backend_s_tool(backend, system, words):
    assert compiling(backend, system).startswith(words)
    assert bool(compiling(backend, system)) is bool(words)


def test_nothing_is_reported_to_compile_where_nothing_does(tmp_path):
    out = io.StringIO()
    RecordingProgress(tmp_path / "x", out).starting("procfs")
    assert out.getvalue() == "latmon: starting, nothing is recorded yet\n"


def test_where_the_file_lies_is_reported_once_and_first(tmp_path):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out)
    progress.remark("it lies on vda")
    progress.starting("procfs")
    for notice in ("it lies on vda", "slow; it lies on vda", "slower"):
        progress.offer(replace(frame(0), health=Health(notice=notice)), CaptureCounts())
    assert out.getvalue().splitlines() == [
        "latmon: it lies on vda",
        "latmon: starting, nothing is recorded yet",
        "latmon: slow",
        "latmon: slower",
    ]


def test_where_it_is_redacted_notices_name_no_path(tmp_path):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out, redaction=Redaction())
    progress.remark("/home/ann lies on vda")
    progress.offer(
        replace(frame(0), health=Health(notice="/usr/ann/b is slow; /home/ann lies on vda")), CaptureCounts()
    )
    progress.ended(Outcome("the disk of /usr/ann is full", EXIT_FAILED))
    assert [line for line in out.getvalue().splitlines() if "recorded" not in line] == [
        "latmon: redacted lies on vda",
        "latmon: redacted is slow",
        "latmon: the disk of redacted is full",
    ]


def test_a_terminal_gets_one_line_that_is_written_over(tmp_path):
    text = run(Tty(), tmp_path / "x", Outcome("over"))
    assert text.count("\r") == 3
    assert text.count("\n") == 3
    assert text.endswith("latmon: over\n")


def test_losses_are_numbers_and_a_verdict(tmp_path):
    text = run(io.StringIO(), tmp_path / "x", Outcome("over", EXIT_INCOMPLETE), lost_events=1200, gaps=2)
    assert "1,200 events lost, 2 gaps" in text
    assert text.endswith("latmon: over; 2 gaps: the recording is incomplete\n")


def test_a_terminal_that_is_gone_does_not_end_the_capture(tmp_path):
    class Gone(Tty):
        def write(self, _text):
            raise OSError(5, "Input/output error")

    run(Gone(), tmp_path / "x", Outcome("over"))


def test_no_foreign_byte_reaches_the_terminal(tmp_path):
    text = run(io.StringIO(), tmp_path / "x\x1b[31m", Outcome("over\x07"))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_outliers_and_traced_stages_are_in_the_line(tmp_path):
    text = run(io.StringIO(), tmp_path / "x", Outcome("over"), above=1310, suppressed=12, one_in=8)
    assert "100 I/Os, 0 B, 1,310 outliers (12 left out), stages of 1 in 8 traced" in text


def test_a_notice_is_a_line_of_its_own_on_a_terminal_too(tmp_path):
    for out in (io.StringIO(), Tty()):
        progress = RecordingProgress(tmp_path / "x", out)
        progress.offer(frame(0, health=Health(notice="--threshold without effect")), CaptureCounts())
        assert "latmon: --threshold without effect\n" in out.getvalue()


def test_a_capture_that_ends_with_what_was_just_reported_says_it_once(tmp_path):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out)
    progress.offer(frame(0, health=Health(notice="bpftrace ended 4 times")), CaptureCounts())
    progress.ended(Outcome("bpftrace ended 4 times", EXIT_FAILED))
    assert out.getvalue().count("bpftrace ended 4 times") == 1
    progress.ended(Outcome("bpftrace ended 4 times", EXIT_INCOMPLETE))
    assert out.getvalue().endswith("latmon: the recording is incomplete\n")
    progress.ended(Outcome("over"))
    assert out.getvalue().endswith("latmon: over\n")


def test_who_still_waits_at_the_end_is_named(tmp_path):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out)
    idle = {Flow("loop3", "write"): Completed(0, 0)}
    for seq in range(41):
        given_frame = replace(
            frame(seq), kernel=idle, outstanding={"loop3": Outstanding(2, 0), "sda": Outstanding(9, 0)}
        )
        progress.offer(given_frame, CaptureCounts())
    progress.ended(Outcome("over"))
    assert out.getvalue().splitlines() == [
        "latmon: recorded 41 s, 0 I/Os, 0 B",
        "latmon: loop3: 2 I/Os, the oldest in flight for at least 40 s, not completed",
        "latmon: over",
    ]


def test_one_of_each_trouble_is_in_the_singular():
    line = _progress(1, replace(CaptureCounts(), lost_events=1, map_full=1, gaps=1, late=1), 0, stages=False)
    assert line.endswith("1 event lost, 1 map update lost, 1 gap, 1 window read late")
    assert _progress(1, replace(CaptureCounts(), late=2000), 0, stages=False).endswith("2,000 windows read late")


# ---- one picture


def picture(*frames, duration_us=None):
    picture, ended = _Picture(Request(duration_us=duration_us), ScreenOptions(), (80, 24)), []
    picture.capture.stop = lambda reason, **_: ended.append(reason)
    picture.opened(replace(ORIGIN, interval_us=1_000_000))
    for current_frame in frames:
        picture.offer(current_frame, CaptureCounts())
    return "\n".join(map(plain, picture.lines())), ended


def probed(one):
    return replace(one, health=Health(probes_attached=1, probes_wanted=1))


def test_a_probes_first_window_is_left_out_of_a_picture():
    first, second = probed(frame(0)), probed(frame(1))
    assert picture(first)[1] == []
    shown, ended = picture(first, second)
    assert ended == ["the first window is complete"]
    assert f"{sum(done.count for done in second.seen.values()):,} I/Os" in shown
    assert next(iter(first.devices)).name in shown, "devices that it alone names"


def test_the_kernels_first_window_is_a_picture():
    assert picture(frame(0))[1] == ["the first window is complete"]


def test_a_picture_of_one_window_shows_it():
    shown, ended = picture(probed(frame(0)), duration_us=1_000_000)
    assert ended == []
    assert next(iter(frame(0).devices)).name in shown


def test_without_a_window_there_is_no_picture():
    assert picture() == ("", [])


STEPS = ["recorded 60 s", "recorded 120 s"]
LOGGED = {
    QUIET: ["the recording is incomplete"],
    NORMAL: ["recording to", "recorded 122 s", "the recording is incomplete"],
    VERBOSE: ["recording to", "latmon 0.1.0, kernel", *STEPS, "recorded 122 s", "the recording is incomplete"],
}


@pytest.mark.parametrize("least", LOGGED)
def test_a_log_has_as_much_as_was_asked_for(tmp_path, least):
    out = io.StringIO()
    progress = RecordingProgress(tmp_path / "x", out, None, ServiceLog(out, least=least))
    progress.opened(ORIGIN)
    for seq in range(122):
        progress.offer(frame(seq), CaptureCounts())
    progress.ended(Outcome("", EXIT_INCOMPLETE))
    lines = out.getvalue().splitlines()
    assert [text in line for text, line in zip(LOGGED[least], lines, strict=True)] == [True] * len(lines), lines


def test_a_quiet_log_has_no_line_of_progress_on_a_terminal(tmp_path):
    out = Tty()
    progress = RecordingProgress(tmp_path / "x", out, None, ServiceLog(out, least=QUIET))
    progress.opened(ORIGIN)
    progress.offer(frame(0), CaptureCounts())
    progress.ended(Outcome("done", EXIT_DONE))
    assert out.getvalue() == ""


@pytest.mark.parametrize("name", ["r", "a: b", "a stopped: b", "not recording: b"])
def test_a_file_that_nothing_is_written_to_is_named_at_once_and_so_is_its_return(tmp_path, name):
    out = io.StringIO()
    progress = _Recording(Request("demo"), tmp_path / name, None, ServiceLog(out, least=QUIET))
    progress.capture = SimpleNamespace(recording=True, recorded_bytes=0)
    progress.opened(ORIGIN)
    failed = "nothing is written: Input/output error"
    for seq, trouble in enumerate(["", "", failed, failed, "", ""]):
        progress.offer(frame(seq, health=Health(recording=name, recording_trouble=trouble)), CaptureCounts())
    assert out.getvalue().splitlines() == [f"latmon: {name}: {failed}", f"latmon: {name} is written again"]
