"""`latmon check`: every damage is named with its place and what is lost; the copy has every line that can be read."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from recorded import ORIGIN, frame

from latmon.cli.check import HEADLESS, WRONG, check_command, repair, survey
from latmon.cli.main import run as main
from latmon.model.frame import Device, Frame, Mark, Series, Thread, Traced
from latmon.model.histogram import EMPTY, Histogram
from latmon.model.measurements import DEVICE_COUNTERS, ERRORS, FAILED_BY, HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.device_counters import DeviceCounters
from latmon.model.measurements.errors import FailedBy, FailedIO
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.recording.codec import End, Gap, encode_frame, encode_note, encode_origin, to_bytes
from latmon.recording.members import head_of, pack
from latmon.recording.parts import CapturePart, as_part, beginning_after
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError

GOLDEN = Path(__file__).parents[1] / "golden"
COUNT, FEW = 12, 4
REMEDY = "--repair -o OUT` writes a clean copy"


def window(seq, **changed):
    given_frame = frame(seq, **changed)
    return pack(to_bytes(encode_frame(given_frame)), given_frame.mono_us, given_frame.mono_us)


def aside(line):
    return pack(line if isinstance(line, bytes) else to_bytes(line), 5_000_000, 5_000_000)


HEADER = aside(encode_origin(ORIGIN))


def closing(count):
    return aside(encode_note(End("closed", count)))


def recorded(path, count=COUNT):
    writer = Writer.create(path, ORIGIN)
    for seq in range(count):
        writer.append(frame(seq))
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """So small that it can be damaged in thousands of ways."""
    path = tmp_path_factory.mktemp("short") / "r"
    writer = Writer.create(path, ORIGIN)
    for seq in range(FEW):
        writer.append(frame(seq, histograms={Series("sda", "read", "total"): Histogram.record([900 + seq, 2])}))
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("whole") / "r")


def offsets(data):
    found, at = [], 0
    while (head := head_of(data[at : at + 64])) is not None:
        found.append(at)
        at += head.length
    return found


def lines_in(path):
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


class Checked:
    """The output of `latmon check` on these bytes, and their repaired copy."""

    def __init__(self, directory, data, capsys, lost):
        self.path, self.copy = directory / "r", directory / "copy"
        self.path.write_bytes(data)
        self.code = main(["check", str(self.path)])
        self.out, self.err = capsys.readouterr()
        self.damages = [row.removeprefix("damage   ") for row in self.out.splitlines() if row.startswith("damage ")]
        self.repaired = main(["check", str(self.path), "--repair", "-o", str(self.copy)])
        self.said = capsys.readouterr()
        if self.repaired == 0:
            assert main(["check", str(self.copy)]) == 0
            assert "\nclean  " in capsys.readouterr().out
            assert items_in(self.copy, Frame) == [one for one in items_in(self.path, Frame) if one.seq not in lost]
        assert self.path.read_bytes() == data


def items_in(path, kind):
    return [item for item in open_recording(path) if isinstance(item, kind)]


@pytest.fixture
def check(tmp_path, capsys):
    def checked(data, lost=()):
        """`lost`: the numbers of windows that a reader takes and the copy leaves out."""
        (tmp_path / "copy").unlink(missing_ok=True)
        return Checked(tmp_path, data, capsys, lost)

    return checked


def test_a_clean_recording_is_reported_and_copied_line_for_line(whole, check):
    check_report = check(whole)
    assert (check_report.code, check_report.damages, check_report.err) == (0, [], "")
    rows = dict(row.split(None, 1) for row in check_report.out.splitlines())
    assert rows["host"] == "box, kernel 6.1.0"
    assert rows["backend"] == "test, by hand, tier A"
    assert (rows["from"], rows["to"]) == ("1970-01-12T13:46:40.000Z", "1970-01-12T13:46:52.000Z")
    assert rows["windows"] == "12, 12 s in all"
    assert rows["size"] == f"{len(whole)} bytes ({len(whole) / 1024:.1f} KiB) in 14 members"
    assert rows["closed"] == "yes (closed)"
    assert rows["clean"] == "everything in it can be read"
    assert check_report.repaired == 0
    assert check_report.copy.read_bytes() == whole


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("recording-*.gz")), ids=lambda path: path.name)
def test_every_release_s_recording_is_clean(path, check):
    check_report = check(path.read_bytes())
    assert (check_report.code, check_report.repaired) == (0, 0)
    assert lines_in(check_report.copy) == lines_in(path)


def test_a_killed_recording_is_mildly_damaged(whole, check):
    check_report = check(whole[: offsets(whole)[-1]])
    assert check_report.code == 5
    assert check_report.damages == [f"byte {offsets(whole)[-1]} (1970-01-12T13:46:52.000Z): {UNCLOSED}"]
    assert "1 place, every complete window can be read" in check_report.out
    assert REMEDY in check_report.out
    assert lines_in(check_report.copy)[:-1] == lines_in(check_report.path)
    assert items_in(check_report.copy, End) == [End("repaired", COUNT)]


def test_a_damaged_member_is_named_with_its_place_and_its_time(whole, check):
    starts = offsets(whole)
    data = bytearray(whole)
    data[starts[4] + 60] ^= 16
    check_report = check(bytes(data))
    assert check_report.code == 5
    assert check_report.damages == [
        f"byte {starts[4]} (1970-01-12T13:46:43.000Z): damaged, to byte {starts[5] - 1}; 1 s lost",
        f"byte {starts[-1]} (1970-01-12T13:46:52.000Z): the closing line counts 12 windows, and 11 can be read",
    ]
    assert "2 places, 1 s lost" in check_report.out
    kinds = [json.loads(line)["type"] for line in lines_in(check_report.copy)]
    assert kinds == ["header", *["window"] * 3, "gap", *["window"] * 8, "end"]
    last = frame(2)
    assert items_in(check_report.copy, Gap) == [Gap("damaged", 1.0, last.mono_us, last.wall)]
    whole_lines = gzip.decompress(whole).splitlines(keepends=True)
    assert lines_in(check_report.copy)[:4] + lines_in(check_report.copy)[5:-1] == whole_lines[:4] + whole_lines[5:-1]


def test_damage_that_goes_on_is_one(whole, check):
    starts = offsets(whole)
    data = bytearray(whole)
    for at in (3, 4, 5, 8):
        data[starts[at] + 60] ^= 16
    check_report = check(bytes(data))
    assert [damage.partition(": ")[2] for damage in check_report.damages[:2]] == [
        f"damaged, to byte {starts[6] - 1}; 3 s lost",
        f"damaged, to byte {starts[9] - 1}; 1 s lost",
    ]


def test_damage_on_both_sides_of_a_mark_counts_its_time_once(check):
    mark = aside(b'{"type":"mark","text":"here","mono":7000001,"t":1}\n')
    broken = [bytearray(window(seq)) for seq in (1, 2)]
    for one in broken:
        one[60] ^= 4
    check_report = check(HEADER + window(0) + broken[0] + mark + broken[1] + window(3) + closing(4))
    assert [("2 s lost" in damage) for damage in check_report.damages] == [True, False, False]
    assert [type(item).__name__ for item in open_recording(check_report.copy)] == [
        "Frame",
        "Mark",
        "Gap",
        "Frame",
        "End",
    ]


def test_time_that_a_gap_line_reports_is_not_lost_twice(check):
    gap = aside(encode_note(Gap("enospc", 2.0, 6_000_000, 1_000_001.0)))
    check_report = check(HEADER + window(0) + window(1)[:-20] + gap + window(4) + closing(2))
    assert "1 s lost" in check_report.damages[0]
    assert [one.seconds for one in items_in(check_report.copy, Gap)] == [2.0, 1.0]


def test_the_loss_of_a_recording_whose_clock_begins_at_zero_is_counted(check):
    """An import has no clock of a kernel: its first window begins at 0."""
    header = aside(encode_origin(replace(ORIGIN, start_mono_us=0)))
    first, second = (replace(frame(seq), mono_us=1_000_000 * (seq + 1)) for seq in range(2))
    broken = bytearray(pack(to_bytes(encode_frame(first)), first.mono_us, first.mono_us))
    broken[60] ^= 4
    remainder = pack(to_bytes(encode_frame(second)), second.mono_us, second.mono_us)
    check_report = check(header + broken + remainder + closing(2))
    assert "1 s lost" in check_report.damages[0]


@pytest.mark.slow
def test_a_tail_reports_what_it_held(whole, check):
    check_report = check(whole[: offsets(whole)[-2] + 70])
    assert "cut off" in check_report.damages[0]
    assert "1 s lost" in check_report.damages[0]
    assert items_in(check_report.copy, Gap)[0].seconds == 1.0


def test_what_a_tail_held_is_not_made_up(whole, check):
    check_report = check(whole[: offsets(whole)[-1]] + b"rubbish")
    assert "the loss is unknown" in check_report.damages[0]
    assert items_in(check_report.copy, Gap) == []


def test_lines_that_no_reader_takes_are_left_out_and_named(check):
    back = to_bytes(encode_frame(frame(0)))
    nonsense = b'{"type":"window","seq":-1}\nno JSON\n'
    text = to_bytes(encode_frame(frame(1))) + back + nonsense + to_bytes(encode_frame(frame(3)))
    check_report = check(HEADER + pack(text, frame(1).mono_us, frame(3).mono_us) + closing(2))
    place, when = f"byte {len(HEADER)}, line", "of the member there (1970-01-12T13:46:42.000Z):"
    assert check_report.damages == [
        f"{place} 2 {when} a window goes back in time and is left out; 1 s lost",
        f"{place} 3 {when} 'seq' is not a whole number of 0 or more",
        f"{place} 4 {when} a line is not JSON",
    ]
    assert [json.loads(line)["type"] for line in lines_in(check_report.copy)] == [
        "header",
        "window",
        "gap",
        "window",
        "end",
    ]


@pytest.mark.parametrize("dt", [0, 2**62])
def test_a_window_of_no_length_or_of_ages_is_left_out(check, dt):
    given_frame = frame(1)
    odd = pack(to_bytes(encode_frame(given_frame) | {"dt": dt}), given_frame.mono_us, given_frame.mono_us)
    check_report = check(HEADER + window(0) + odd + window(2) + closing(3))
    assert check_report.code == 5
    assert f"'dt' is {dt} us, and a window lasts 1 us to 100 years; 1 s lost" in check_report.damages[0]


LATENCIES = Histogram.record([900] * 9 + [90_000])
SERIES = Series("sda", "read", "total")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"max": 800}, "sda read total has a maximum of 800 us, and its highest bucket is 81920 to 90111"),
        ({"max": 100_000}, "a maximum of 100000 us"),
        ({"sum": 89_983}, "sda read total has a sum of 89983 us, and its buckets allow 89984 to 98742"),
        ({"sum": 98_743}, "a sum of 98743 us"),
    ],
)
def test_sums_and_maxima_that_no_latencies_have_are_named(check, changed, text):
    latencies = Histogram.of(dict(LATENCIES.buckets), LATENCIES.sum, LATENCIES.max)
    data = HEADER + window(0, histograms={SERIES: replace(latencies, **changed)}) + window(1) + closing(2)
    check_report = check(data, lost={0})
    assert check_report.code == 5
    assert text in check_report.damages[0]


@pytest.mark.parametrize("name", ["traced", HANDLERS, SOFTIRQS, WAKEUPS])
def test_those_of_traced_stages_interrupts_and_threads_too(check, name):
    sick = Histogram.of({20: 3}, 10**6)
    run = HandlerRuns(sick, returned={"handled": 3})
    reported = {
        "traced": Traced({SERIES: sick}, one_in=1),
        HANDLERS: {Handler(30, "mpt3sas0"): run},
        SOFTIRQS: {SoftirqCpu("BLOCK", 1): SoftirqRuns(EMPTY, sick, {}, {})},
        WAKEUPS: by_thread([Wakeups(Thread(7, "kworker", "normal", 120, kernel=True), sick)]),
    }
    fields = {name: reported[name]} if isinstance(name, str) else {"tables": {name: reported[name]}}
    check_report = check(HEADER + window(0, **fields) + window(1) + closing(2), lost={0})
    assert check_report.code == 5
    assert "a sum of 1000000 us" in check_report.damages[0]


FAILED = FailedIO("sda", "read", "time-out")


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({ERRORS: {FAILED: 100}}, ""),
        ({ERRORS: {FAILED: 5000}}, "sda read has more failed I/Os than completed ones"),
        ({ERRORS: {FAILED: 7}, FAILED_BY: {FailedBy(*FAILED, "/a"): 4, FailedBy(*FAILED, "/b"): 3}}, ""),
        (
            {ERRORS: {FAILED: 7}, FAILED_BY: {FailedBy(*FAILED, "/a"): 4, FailedBy(*FAILED, "/b"): 4}},
            "sda read has more failed I/Os of cgroups than failed ones",
        ),
        ({FAILED_BY: {FailedBy(*FAILED, "/a"): 1}}, "more failed I/Os of cgroups than failed ones"),
        ({DEVICE_COUNTERS: {"sda": DeviceCounters(1_400_000)}}, ""),
        ({DEVICE_COUNTERS: {"sda": DeviceCounters(9_000_000)}}, "sda has I/O for longer than its window"),
    ],
)
def test_counts_that_contradict_each_other_are_named(check, tables, words):
    check_report = check(HEADER + window(0, tables=tables) + window(1) + closing(2), lost={0} if words else ())
    assert check_report.code == (5 if words else 0)
    assert not words or words in check_report.damages[0]


def test_a_key_that_a_line_has_twice_is_named(check):
    line = to_bytes(encode_frame(frame(0)))
    twice = line.replace(b'{"type"', b'{"seq":0,"type"', 1)
    check_report = check(HEADER + pack(twice, frame(0).mono_us, frame(0).mono_us) + window(1) + closing(2), lost={0})
    assert "has the key 'seq' twice" in check_report.damages[0]


def test_a_count_that_sums_would_cut_off_is_refused(check):
    line = encode_frame(frame(0)) | {"errors": [["sda", "read", "time-out", 1 << 60]]}
    odd = pack(to_bytes(line), frame(0).mono_us, frame(0).mono_us)
    check_report = check(HEADER + odd + window(1) + closing(2), lost={0})
    assert check_report.code == 5


def test_what_an_import_moved_to_our_buckets_is_not_held_against_them(check):
    imported = aside(encode_origin(replace(ORIGIN, backend="import")))
    odd = window(0, histograms={SERIES: replace(LATENCIES, sum=1)})
    assert check(imported + odd + closing(1)).code == 0


@pytest.mark.parametrize("changed", [{"host": "other"}, {"boot_id": "of another boot"}])
def test_windows_behind_a_header_of_another_host_are_left_out(check, changed):
    foreign = aside(encode_origin(replace(ORIGIN, **changed)))
    mark = aside(encode_note(Mark("of the other", 8_000_000, 1.0)))
    data = HEADER + window(0) + closing(1) + foreign + window(1) + mark + closing(1) + HEADER + window(3) + closing(1)
    check_report = check(data)
    assert check_report.code == 5
    assert len(check_report.damages) == 1
    assert f"a second header, of another host or boot ({changed.get('host', 'box')})" in check_report.damages[0]
    assert [one.seq for one in items_in(check_report.copy, Frame)] == [0, 3]
    assert items_in(check_report.copy, Mark) == []


def test_a_roll_up_of_another_host_is_not_added_up(minutes, check):
    foreign = pack(to_bytes(encode_origin(replace(ORIGIN, host="other"))), 0, 0)
    check_report = check(minutes[: offsets(minutes)[3]] + foreign + minutes[offsets(minutes)[3] :])
    assert check_report.code == 5
    assert [one.seq for one in open_recording(check_report.path).summed()] == [0, 1]


def test_wrong_stamps_are_named_and_mended(check):
    line = to_bytes(encode_frame(frame(1)))
    check_report = check(HEADER + window(0) + pack(line, 0, 1) + closing(2))
    assert ["stamps" in damage for damage in check_report.damages] == [True]
    assert check_report.copy.read_bytes()[len(HEADER + window(0)) :].startswith(window(1))


def test_what_a_later_version_added_is_kept_byte_for_byte(check):
    later = b'{"type":"picture", "png" : "\\u001b[31m", "kept":1e400}\n{"kind":"?"}\n'
    reported = encode_frame(frame(0)) | {"later": [1, 2]}
    reported["h"]["picture"] = [3]
    text = json.dumps(reported).encode()  # other blanks than ours
    check_report = check(HEADER + aside(later) + pack(text, frame(0).mono_us, frame(0).mono_us) + window(1)[:-1])
    assert "2 lines that a later version added (picture, no type)" in check_report.out
    assert b"".join(lines_in(check_report.copy)[1:4]) == later + text + b"\n"


@pytest.mark.parametrize(
    ("version", "remedy"),
    [([2, 0], "use a newer latmon"), ([1, 0], "read it with the checkout that wrote it, or record again")],
)
def test_another_version_is_refused_in_one_sentence(tmp_path, capsys, version, remedy):
    path = tmp_path / "r"
    path.write_bytes(aside(encode_origin(ORIGIN) | {"format": version}) + window(0))
    for words in ((), ("--repair", "-o", str(tmp_path / "copy"))):
        assert main(["check", str(path), *words]) == 5
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert remedy in err
    assert not (tmp_path / "copy").exists()


def test_a_lost_header_becomes_one_that_says_unknown(whole, check):
    check_report = check(whole[offsets(whole)[1] :])
    assert check_report.damages == [f"byte 0: {HEADLESS}"]
    origin = open_recording(check_report.copy).origin
    assert (origin.host, origin.backend, origin.kernel) == ("unknown",) * 3
    assert lines_in(check_report.copy)[1:-1] == lines_in(check_report.path)[:-1]
    assert items_in(check_report.copy, Gap) == []


def test_two_recordings_in_one_file(check):
    second = HEADER + window(4) + window(5) + closing(2)
    check_report = check(HEADER + window(0) + closing(1) + second)
    assert check_report.code == 0
    check_report = check(HEADER + window(0) + closing(1) + second[: -len(closing(2))])
    assert [UNCLOSED in damage for damage in check_report.damages] == [True]
    assert [one.windows for one in items_in(check_report.copy, End)] == [1, 2]


def test_a_recording_that_is_being_written_is_not_damaged(tmp_path, capsys):
    path, copy = tmp_path / "r", tmp_path / "copy"
    writer = Writer.create(path, ORIGIN)
    for seq in range(3):
        writer.append(frame(seq))
    with path.open("ab") as file:
        file.write(window(3)[:100])
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "closed   not yet: a live latmon is writing it" in out
    assert "clean    everything in it can be read so far" in out
    assert main(["check", str(path), "--repair", "-o", str(copy)]) == 0
    writer.close()
    assert items_in(copy, Frame) == [frame(seq) for seq in range(3)]
    assert main(["check", str(copy)]) == 0


@pytest.fixture(scope="module")
def minutes(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("minutes") / "r", 125)


def kinds(data):
    starts = [*offsets(data), len(data)]
    return [
        (at, json.loads(line)["type"])
        for at, end in pairwise(starts)
        for line in gzip.decompress(data[at:end]).splitlines()
    ]


def test_roll_ups_are_checked_and_made_again(minutes, check):
    check_report = check(minutes)
    assert (check_report.code, check_report.copy.read_bytes()) == (0, minutes)
    reported = kinds(minutes)
    rolled = [at for at, kind in reported if kind == "minute"]
    assert len(rolled) == 1
    assert "later version" not in check_report.out
    data = bytearray(minutes)
    data[[at for at, kind in reported if kind == "window" and at < rolled[0]][-9] + 70] ^= 1
    check_report = check(bytes(data))
    assert [damage.partition(": ")[2].partition(",")[0] for damage in check_report.damages] == [
        "damaged",
        "the closing line counts 125 windows",
    ]
    assert "minute" not in [kind for _, kind in kinds(check_report.copy.read_bytes())]


@pytest.mark.slow
def test_a_roll_up_that_lies_is_named_and_mended(minutes, check):
    at = next(at for at, kind in kinds(minutes) if kind == "minute")
    head = head_of(minutes[at : at + 64])
    text = gzip.decompress(minutes[at : at + head.length]).replace(b'"n":', b'"n": ')
    later = text[:-2] + b',"later":1}\n'
    lie = text.replace(b'"bytes":[', b'"bytes":[1')
    fewer = text.replace(b'"windows":60', b'"windows":59')
    gone = text.replace(b'"sums":', b'"removed":["sda"],"sums":')
    for reported, code in ((later, 0), (lie, 5), (fewer, 5), (gone, 5)):
        member = pack(reported, head.first_us, head.last_us, head.stands_for)
        check_report = check(minutes[:at] + member + minutes[at + head.length :])
        assert check_report.code == code, check_report.out
        if code:
            assert check_report.damages[0].startswith(f"byte {at} (")
            assert WRONG in check_report.damages[0]
        # those behind it keep their places, as long as its length is the same
        assert check_report.copy.read_bytes()[: len(minutes) - 200] == minutes[: len(minutes) - 200]


def test_the_copy_is_private(whole, check):
    assert check(whole).copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["itself", "file", "link", "dangling", "fifo", "directory", "nowhere", "device"])
def test_a_copy_goes_nowhere_but_to_a_new_file(tmp_path, capsys, whole, kind):
    path, out = tmp_path / "r", tmp_path / "copy"
    path.write_bytes(whole)
    make = {
        "itself": lambda: None,
        "file": lambda: out.write_bytes(b"precious"),
        "link": lambda: out.symlink_to(path),
        "dangling": lambda: out.symlink_to(tmp_path / "gone"),
        "fifo": lambda: os.mkfifo(out),
        "directory": out.mkdir,
        "nowhere": lambda: None,
        "device": lambda: None,
    }
    make[kind]()
    out = {"itself": path, "nowhere": tmp_path / "no" / "copy", "device": Path("/dev/full")}.get(kind, out)
    assert main(["check", str(path), "--repair", "-o", str(out)]) == 3
    text = capsys.readouterr()
    assert text.out == ""
    assert text.err.startswith(f"latmon: can't write {out}: ")
    assert text.err.count("\n") == 1
    assert path.read_bytes() == whole
    assert kind != "file" or out.read_bytes() == b"precious"
    assert not (tmp_path / "gone").exists()


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, whole, capsys, monkeypatch):
    path, out = tmp_path / "r", tmp_path / "copy"
    path.write_bytes(whole)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["check", str(path), "--repair", "-o", str(out)]) == 3
    assert capsys.readouterr().err == f"latmon: can't write {out}: No space left on device\n"
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "text"), [(["--repair"], "--repair needs -o OUT"), (["-o", "x"], "-o needs --repair")]
)
def test_a_copy_needs_both_words(words, text, capsys):
    assert main(["check", "r", *words]) == 2
    assert text in capsys.readouterr().err


def test_what_is_no_recording_is_refused(tmp_path, capsys):
    (tmp_path / "r").write_bytes(b"hello")
    assert main(["check", str(tmp_path / "r"), "--repair", "-o", str(tmp_path / "copy")]) == 5
    assert "is not a latmon recording" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_strings_of_a_recording_can_do_nothing_to_a_terminal(tmp_path, capsys):
    path = tmp_path / "r"
    evil = "\x1b]52;c;aGk=\x07[/red]\u202e../../etc"
    header = encode_origin(ORIGIN) | dict.fromkeys(("host", "kernel", "backend", "tool", "tier", "latmon"), evil)
    end = aside(encode_note(End(evil, 1)))
    path.write_bytes(aside(header) + aside({"type": evil}) + window(0, devices=(Device(evil, 8, 0),)) + end)
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert "../../etc" in out


def test_thousands_of_damages_are_counted(check):
    check_report = check(HEADER + aside(b"nonsense\n" * 5000) + window(0) + closing(1))
    assert len(check_report.damages) == 1001
    assert check_report.damages[-1] == "and 4000 more damaged places"
    assert "5000 places" in check_report.out


def test_a_lock_that_is_given_back(tmp_path, whole):
    path = tmp_path / "r"
    path.write_bytes(whole)
    check_report = survey(open_recording(path))
    assert (check_report.clean, check_report.live) == (True, False)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# what readers read, the copy has, and check names a damage wherever they do


def agree(path, copy):
    """The number of windows that can be read."""
    recording = open_recording(path)
    items = list(recording)
    read = [item for item in items if isinstance(item, Frame)]
    copy.unlink(missing_ok=True)
    check_report = repair(recording, copy)
    assert check_report.windows == len(read)
    assert not (recording.damage and check_report.clean), recording.damage
    repaired = open_recording(copy)
    kept = list(repaired)
    assert repaired.damage == []
    assert [item for item in kept if isinstance(item, Frame)] == read
    assert [item for item in kept if isinstance(item, Mark)] == [item for item in items if isinstance(item, Mark)]
    assert kept[-1].windows == len(read)
    return len(read)


@pytest.mark.parametrize("step", [21, pytest.param(1, marks=pytest.mark.slow)])
def test_cut_at_every_byte_of_the_last_members(tmp_path, short, step):
    starts = offsets(short)
    for size in range(starts[-3], len(short), step):
        (tmp_path / "r").write_bytes(short[:size])
        complete = sum(start <= size for start in starts[1:]) - 1
        assert agree(tmp_path / "r", tmp_path / "copy") == min(complete, FEW)


@pytest.mark.parametrize("flips", [20, pytest.param(3000, marks=pytest.mark.slow)])
def test_flipped_bits(tmp_path, short, flips):
    rng = random.Random(20 + flips)
    for _ in range(flips):
        data = bytearray(short)
        data[rng.randrange(len(short))] ^= 1 << rng.randrange(8)
        (tmp_path / "r").write_bytes(data)
        assert agree(tmp_path / "r", tmp_path / "copy") >= FEW - 1


def test_pieces_of_recordings_in_any_order(tmp_path, short):
    """Members thrown together, cut and overwritten: whatever is read is copied."""
    rng = random.Random(3)
    starts = [*offsets(short), len(short)]
    for _ in range(15):
        picked = [rng.randrange(len(starts) - 1) for _ in range(rng.randrange(1, 12))]
        pieces = [short[starts[i] : starts[i + 1] - rng.choice((0, 0, 0, 9))] for i in picked]
        (tmp_path / "r").write_bytes(b"".join(pieces))
        try:
            open_recording(tmp_path / "r")
        except RecordingError:
            continue
        agree(tmp_path / "r", tmp_path / "copy")


# what was packed again by something else


@pytest.mark.parametrize("packed", [gzip.compress, lambda text: text])
def test_lines_that_were_packed_again_are_imported(tmp_path, short, packed):
    path, lines, copy = tmp_path / "r", tmp_path / "lines", tmp_path / "copy"
    (tmp_path / "was").write_bytes(short)
    path.write_bytes(packed(gzip.decompress(short)))
    with pytest.raises(RecordingError, match=r"packed again; `zcat -f .*r \| latmon import - -o OUT` makes"):
        open_recording(path)
    assert main(["check", str(path)]) == 5
    lines.write_bytes(gzip.decompress(short))
    assert main(["import", str(lines), "-o", str(copy)]) == 0
    was, now = ([frame for frame in open_recording(at) if isinstance(frame, Frame)] for at in (tmp_path / "was", copy))
    assert [replace(frame, seq=0) for frame in now] == [replace(frame, seq=0) for frame in was]
    assert main(["check", str(copy)]) == 0


def test_lines_that_were_cut_are_imported_as_far_as_they_go(tmp_path, short, capsys):
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    lines.write_bytes(gzip.decompress(short)[:-400])
    assert main(["import", str(lines), "-o", str(copy)]) == 4
    assert "a line is not JSON" in capsys.readouterr().err
    assert 0 < sum(isinstance(one, Frame) for one in open_recording(copy)) < FEW


def test_lines_of_others_and_bombs_are_refused(tmp_path):
    path = tmp_path / "r"
    for text in (b"", b"{}\n", b'{"type":"window"}\n', b" " * 20_000_000, b'{"type":"header","format":[2,0]}\n'):
        path.write_bytes(gzip.compress(text))
        with pytest.raises(RecordingError):
            check_command([path])


# ---- the parts of a capture


def part(number, windows, capture="c1"):
    """A part with a window per number of `windows`."""
    began = beginning_after(frame(windows[0] - 1), ORIGIN) if windows[0] else ORIGIN
    header = aside(encode_origin(as_part(began, CapturePart(number, capture, "x"))))
    return header + b"".join(map(window, windows)) + closing(len(windows))


PARTS = {"x.gz": part(1, range(3)), "x.part0002.gz": part(2, range(3, 6)), "x.part0003.gz": part(3, range(6, 9))}


@pytest.fixture
def parts(tmp_path):
    for name, data in PARTS.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in PARTS]


def checked_together(paths, capsys):
    code = main(["check", *map(str, paths)])
    return code, capsys.readouterr().out


def test_the_parts_of_a_capture_are_checked_together_in_any_order(parts, capsys):
    for paths in (parts, parts[::-1]):
        code, out = checked_together(paths, capsys)
        assert code == 0
        assert out.count("windows  3, 3 s in all\n") == 3
        assert out.count("clean    everything in it can be read\n") == 3
        assert out.splitlines()[-1] == "parts    3 of one capture; none is missing between them"
    assert main(["report", *map(str, parts)]) == 0, "what report takes"


def test_a_missing_part_and_a_damaged_one_are_named(parts, capsys):
    code, out = checked_together([parts[0], parts[2]], capsys)
    assert code == 5
    assert out.splitlines()[-1] == "parts    2 of one capture; 1 part is missing before x.part0003.gz"
    data = PARTS["x.part0002.gz"]
    parts[1].write_bytes(data[: len(data) // 2])
    code, out = checked_together(parts, capsys)
    assert code == 5
    assert out.count("damaged  ") == 1
    assert out.splitlines()[-1] == "parts    3 of one capture; none is missing between them"


def test_a_part_that_was_never_written_is_no_damage(parts, capsys):
    parts[2].write_bytes(b"")
    code, out = checked_together(parts, capsys)
    assert code == 0
    assert "clean    empty: latmon ended as it began this part, and nothing is lost" in out
    assert out.splitlines()[-1] == "parts    2 of one capture; none is missing between them"


def test_files_that_are_no_parts_are_checked_one_by_one(tmp_path, parts, whole, capsys):
    alone, other, rubbish = tmp_path / "alone", tmp_path / "other", tmp_path / "rubbish"
    alone.write_bytes(whole)
    other.write_bytes(part(2, range(3, 6), "c2"))
    rubbish.write_bytes(b"rubbish")
    code, out = checked_together([parts[0], alone], capsys)
    assert code == 0
    assert out.splitlines()[-1] == f"parts    not one capture: {alone} is no part of a capture: read it by itself"
    code, out = checked_together([parts[0], other], capsys)
    assert code == 0
    assert "is a part of another capture than" in out.splitlines()[-1]
    code, out = checked_together([parts[0], rubbish, tmp_path / "absent"], capsys)
    assert code == 5
    assert out.count("damaged  ") == 2


def test_a_copy_is_of_one_file(parts, tmp_path, capsys):
    assert main(["check", *map(str, parts), "--repair", "-o", str(tmp_path / "copy")]) == 2
    assert "--repair copies one recording: name one FILE" in capsys.readouterr().err
