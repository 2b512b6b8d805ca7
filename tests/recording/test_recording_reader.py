"""Damaged, hostile and unfinished recordings: everything else is read, the damage noted, never a traceback."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import resource
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from hostile import cases, mutated
from on_demand_frames import ON_DEMAND
from recorded import ORIGIN, frame

from latmon.model.frame import Frame, Health, Mark
from latmon.recording.codec import End, Gap, encode_frame, encode_origin, to_bytes
from latmon.recording.members import MAX_TEXT, Members, head_of, pack
from latmon.recording.reader import UNCLOSED, open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import EXIT_UNREADABLE, RecordingError

ROOT = Path(__file__).parents[2]
HEADER = pack(to_bytes(encode_origin(ORIGIN)), 0, 0)
END = pack(b'{"type":"end","reason":"closed","windows":1}\n', 0, 0)
COUNT = 6


def member(seq, **changed):
    given_frame = frame(seq, **changed)
    return pack(to_bytes(encode_frame(given_frame)), given_frame.mono_us, given_frame.mono_us)


def raw(line: bytes):
    return pack(line, 0, 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "r"
    writer = Writer.create(path, ORIGIN)
    for seq in range(COUNT):
        writer.append(frame(seq))
    writer.close()
    return path.read_bytes()


def offsets(data):
    """Return the begin of each member, by the lengths in the heads."""
    found, at = [], 0
    while (head := head_of(data[at : at + 64])) is not None:
        found.append(at)
        at += head.length
    return found


@pytest.fixture
def read(tmp_path):
    def reading(data):
        (tmp_path / "r").unlink(missing_ok=True)
        (tmp_path / "r").write_bytes(data)
        recording = open_recording(tmp_path / "r")
        items = list(recording)
        return [item.seq for item in items if isinstance(item, Frame)], recording, items

    return reading


def test_a_whole_file_has_no_damage(whole, read):
    seqs, recording, items = read(whole)
    assert seqs == list(range(COUNT))
    assert items[-1] == End("closed", COUNT)
    assert recording.damage == []
    assert len(offsets(whole)) == COUNT + 2


def test_it_can_be_read_again(whole, read):
    _, recording, items = read(whole)
    assert list(recording) == items


def test_cut_at_every_byte_of_the_last_members(whole, read):
    starts = offsets(whole)
    for size in range(starts[-3], len(whole)):
        complete = sum(start <= size for start in starts[1:]) - 1
        seqs, recording, _ = read(whole[:size])
        assert seqs == list(range(min(complete, COUNT)))
        assert recording.damage[-1] == UNCLOSED
        assert len(recording.damage) == (1 if size in starts else 2)


def test_cut_at_any_byte_of_the_header_is_one_sentence(whole, read):
    for size in range(offsets(whole)[1]):
        with pytest.raises(RecordingError) as refusal:
            read(whole[:size])
        assert refusal.value.exit_code == EXIT_UNREADABLE
        assert "\n" not in str(refusal.value)


def test_any_flipped_bit_costs_one_window_at_most(whole, read):
    rng = random.Random(7)
    starts = offsets(whole)
    for _ in range(400):
        at = rng.randrange(starts[1], len(whole))
        data = bytearray(whole)
        data[at] ^= 1 << rng.randrange(8)
        seqs, recording, _ = read(bytes(data))
        assert len(seqs) >= COUNT - 1
        assert len(seqs) == COUNT or recording.damage


def test_a_flipped_bit_in_the_header_costs_the_header(whole, read):
    rng = random.Random(8)
    end = offsets(whole)[1]
    headless = 0
    for _ in range(100):
        data = bytearray(whole)
        data[rng.randrange(end)] ^= 1 << rng.randrange(8)
        seqs, recording, _ = read(bytes(data))
        assert seqs == list(range(COUNT))
        if recording.origin != ORIGIN:
            headless += 1
            assert recording.origin.host == "unknown"
            assert "header" in recording.damage[0]
    assert headless > 50


def test_rubbish_between_members_is_stepped_over(whole, read):
    starts = [*offsets(whole), len(whole)]
    rng = random.Random(9)
    parts = [whole[a:b] + rng.randbytes(rng.randrange(1, 200_000)) for a, b in pairwise(starts)]
    seqs, recording, _ = read(b"".join(parts))
    assert seqs == list(range(COUNT))
    assert len(recording.damage) == COUNT + 2


def test_half_a_member_in_the_middle(whole, read):
    starts = offsets(whole)
    seqs, recording, _ = read(whole[: starts[4]] + whole[starts[4] : starts[4] + 60] + whole[starts[5] :])
    assert seqs == [seq for seq in range(COUNT) if seq != 3]
    assert recording.damage == [f"bytes {starts[4]} to {starts[4] + 59}: damaged"]


def test_members_are_hopped_over_without_unpacking(whole, read):
    _, recording, _ = read(whole)
    unpacked = []
    with recording.path.open("rb") as file:
        unpacked = list(Members(file, pytest.fail).texts(frame(COUNT - 2).mono_us))
    assert len(unpacked) == 3
    later = [item.seq for item in recording.since(frame(COUNT - 3).mono_us) if isinstance(item, Frame)]
    assert later == list(range(COUNT - 3, COUNT))


def test_a_recording_that_was_killed_says_so(read):
    _, recording, items = read(HEADER + member(0))
    assert items == [frame(0)]
    assert recording.damage == ["ended without a closing line (killed?)"]


def test_lines_of_a_later_version_are_passed_over(read):
    later = raw(b'{"type":"picture","png":"..."}\n{"type":["window"]}\n{"kind":"?"}\n')
    seqs, recording, _ = read(HEADER + later + member(0) + END)
    assert (seqs, recording.damage) == ([0], [])


def test_gaps_and_marks_are_in_their_place(read):
    lines = b'{"type":"gap","reason":"enospc","s":2.5,"mono":4,"t":1}\n{"type":"mark","text":"here"}\n'
    _, _, items = read(HEADER + member(0) + raw(lines) + member(1) + END)
    assert items[1:3] == [Gap("enospc", 2.5, 4, 1.0), Mark("here")]


def test_format_1_0_is_refused_in_one_sentence(read):
    older = raw(to_bytes(encode_origin(ORIGIN) | {"format": [1, 0]}))
    with pytest.raises(RecordingError, match=r"its format is 1\.0, which no release wrote, .* or record again$"):
        read(older + member(0))


def test_a_newer_major_version_is_refused_in_one_sentence(read):
    newer = raw(to_bytes(encode_origin(ORIGIN) | {"format": [2, 0]}))
    with pytest.raises(RecordingError, match=r"its format is 2\.0 and this latmon reads 1\.x: use a newer latmon"):
        read(newer + member(0))


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_newer_header_that_was_packed_or_spaced_by_hand_names_its_version(read, packed):
    newer = json.dumps(encode_origin(ORIGIN) | {"format": [2, 0]}, separators=(", ", " : ")).encode()
    with pytest.raises(RecordingError, match=r"its format is 2\.0 and this latmon reads 1\.x: use a newer latmon"):
        read(packed(newer + b"\n"))
    with pytest.raises(RecordingError, match="it was unpacked or packed again"):
        read(packed(newer.replace(b"[2, 0]", b"[1, 1]")))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"hello\n", b"\x1f\x8b", gzip.compress(b"hello"), gzip.compress(b'{"a":1}'), os.urandom(300_000)],
    ids=["empty", "nul", "text", "magic", "gzip", "json", "noise"],
)
def test_what_is_no_recording_is_refused(read, data):
    with pytest.raises(RecordingError, match="is not a latmon recording"):
        read(data)


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device"])
def test_what_is_no_file_is_refused_and_does_not_hang(tmp_path, kind):
    path = Path("/dev/zero") if kind == "device" else tmp_path / "r"
    {"directory": path.mkdir, "fifo": lambda: os.mkfifo(path)}.get(kind, lambda: None)()
    with pytest.raises(RecordingError, match=str(path)):
        open_recording(path)


@pytest.mark.parametrize("reads", range(4))
def test_a_disk_that_fails_is_a_sentence(tmp_path, monkeypatch, whole, reads):
    """It may fail at any read; /proc/self/mem fails at the first one."""
    path, left, real = tmp_path / "r", [reads], os.pread
    path.write_bytes(whole if reads else b"text")

    def failing(*args):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args)

    monkeypatch.setattr(os, "pread", failing)
    for one in (path, Path("/proc/self/mem")):
        with pytest.raises(RecordingError, match=r"can't be read: Input/output error$"):
            list(open_recording(one))


def test_time_does_not_go_backwards(read):
    seqs, recording, _ = read(HEADER + member(3) + member(1) + member(3) + member(4) + END)
    assert seqs == [3, 4]
    assert ["back in time" in damage for damage in recording.damage] == [True, True]


def test_notes_are_bounded(read):
    seqs, recording, _ = read(HEADER + raw(b"nonsense\n" * 5000) + member(0) + END)
    assert seqs == [0]
    assert len(recording.damage) == 101
    assert recording.damage[-1] == "and 4900 more damaged places"


def test_a_recording_of_two_is_read_through(read):
    seqs, recording, _ = read(HEADER + member(0) + END + HEADER + member(1) + END)
    assert (seqs, recording.damage) == ([0, 1], [])


HOSTILE = {
    "bomb": lambda: raw(b" " * (MAX_TEXT + 1)),
    "lines": lambda: raw(b"{}\n" * 1_000_000),
    "empty lists": lambda: raw(b'{"type":"window","h":{"rows":[' + b"[]," * 2_700_000 + b"[]]}}\n"),
    "long line": lambda: raw(b'{"type":"window","gap":"' + b"x" * 12_000_000 + b'"}\n'),
    "labels": lambda: raw(
        b'{"type":"window","seq":1,"t":1,"mono":1,"dt":1,"h":{"rows":['
        + b",".join(b'["d%d","r"]' % row for row in range(400_000))
        + b"]}}\n"
    ),
    "deep": lambda: raw(b'{"type":' + b"[" * 1_000_000 + b"\n"),
    "digits": lambda: raw(b'{"type":"window","seq":' + b"9" * 10_000 + b"}\n"),
    "far stamp": lambda: raw(to_bytes({**encode_frame(frame(0)), "t": 1e300})),
    "head only": lambda: HEADER[:36] * 20_000,
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in ("bomb", "labels") else pytest.mark.slow) for one in HOSTILE],
)
def test_a_hostile_recording_takes_neither_memory_nor_time(tmp_path, name):
    path = tmp_path / "r"
    path.write_bytes(HEADER + HOSTILE[name]() + member(10**6) + END)
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[2])
        from pathlib import Path
        from latmon.recording.reader import open_recording
        recording = open_recording(Path(sys.argv[1]))
        seqs = [getattr(item, "seq", None) for item in recording]
        assert 10**6 in seqs, recording.damage
        assert recording.damage or sys.argv[3] in ("lines", "far stamp"), sys.argv[3]
        # Not ru_maxrss: that is inherited from the process that forked it.
        status = Path("/proc/self/status").read_text()
        print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(ROOT), name],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 256 * 1024


def test_a_sparse_file_of_2_gib_is_refused_or_read_to_its_end(tmp_path):
    path = tmp_path / "r"
    path.write_bytes(HEADER + member(0))
    os.truncate(path, 2**31)
    recording = open_recording(path)
    assert [item.seq for item in recording if isinstance(item, Frame)] == [0]
    assert "too much damage" in recording.damage[-2]


def test_health_counts_survive(read):
    _, _, items = read(HEADER + member(0, health=Health(lost_events=3)) + END)
    assert items[0].health.lost_events == 3


@pytest.mark.parametrize(("seed", "count"), cases(200))
def test_a_mutated_recording_is_read_or_refused_in_one_sentence(tmp_path, seed, count):
    """Of each release's recordings and of a traced window: a line beside its neighbours, or the bytes of the file."""
    files = [path.read_bytes() for path in (Path(__file__).parents[1] / "golden").glob("recording-*.gz")]
    texts = [gzip.decompress(data).splitlines(keepends=True) for data in files]
    texts.append([to_bytes(encode_origin(ORIGIN)), to_bytes(encode_frame(ON_DEMAND))])
    lines = [line for text in texts for line in text]
    draw, path, refusals, windows = random.Random(seed), tmp_path / "r.gz", [], 0
    splinters = (
        b"{",
        b"[",
        b"null",
        b"-1",
        b"1e999",
        b"9" * 40,
        b'"h":',
        b'"t":',
        b'"',
        b"\\ud800",
        b"\x1f\x8b\x08\x04",
    )
    for at in range(count):
        path.unlink(missing_ok=True)  # ext4 writes a file to the disk that is truncated and closed
        if at % 8:
            text = draw.choice(texts)
            first = draw.randrange(1, len(text))
            some_lines = [text[0], *text[first : first + 3]]
            where = draw.randrange(len(some_lines))
            some_lines[where] = mutated(some_lines[where], draw, lines, splinters)
            path.write_bytes(b"".join(map(raw, some_lines)))
        else:
            path.write_bytes(mutated(draw.choice(files), draw, files, splinters))
        try:
            windows += sum(isinstance(item, Frame) for item in open_recording(path))
        except RecordingError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < count
    assert windows > count // 4, "what is not mutated is read"
    assert all(len(refusal.splitlines()) == 1 for refusal in refusals)
