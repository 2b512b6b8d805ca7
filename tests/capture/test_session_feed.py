"""The lines between collector and UI: whole, split, dropped, and what dropping must not lose."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.capture import session
from latmon.capture.session import Lines, Outlet, decode_end, end_line
from latmon.model.frame import Device, Frame, Origin
from latmon.recording.codec import decode_frame, decode_origin
from latmon.recording.json_line import parse
from latmon.support.errors import EXIT_INCOMPLETE, LatmonError

SDA, SDB = Device("sda", 8, 0), Device("sdb", 8, 16)


class Pipe:
    """A transport whose other end reads only on request."""

    def __init__(self):
        self.waiting = 0
        self.closing = False
        self.lines = []

    def write(self, data):
        self.lines.append(data)

    def get_write_buffer_size(self):
        return self.waiting

    def is_closing(self):
        return self.closing


def frame(seq, devices=(), removed=()):
    return Frame(seq, float(seq), seq * 1_000_000, 1_000_000, devices=devices, removed=removed)


def frames_in(pipe):
    return [decode_frame(parse(line)) for line in pipe.lines]


@given(
    st.lists(st.binary().map(lambda b: b.replace(b"\n", b"")), max_size=6), st.lists(st.integers(0, 200), max_size=6)
)
def test_lines_come_back_however_they_were_cut(lines, cuts):
    data = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = Lines()
    actual_lines = [line for a, b in pairwise(edges) for line in reader.feed(data[a:b])]
    assert actual_lines == lines


def test_byte_by_byte():
    reader = Lines()
    assert [line for byte in b"ab\n\nc\n" for line in reader.feed(bytes([byte]))] == [b"ab", b"", b"c"]


def test_a_line_of_megabytes_is_nothing_special():
    reader = Lines()
    big = b"x" * 3_000_000
    assert reader.feed(big[:1_000_000]) == []
    assert reader.feed(big[1_000_000:] + b"\n") == [big]


def test_an_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(session, "MAX_LINE", 1000)
    reader = Lines()
    reader.feed(b"x" * 900)
    with pytest.raises(LatmonError, match="longer than 1000 bytes"):
        reader.feed(b"x" * 200)


def test_the_end_line_is_one_clean_line():
    line = end_line("a\nb\x1b[31m" + "c" * 9000, EXIT_INCOMPLETE)
    assert line.count(b"\n") == 1
    reason, code = decode_end(parse(line.strip()))
    assert reason.isprintable()
    assert len(reason) == session.MAX_REASON
    assert code == EXIT_INCOMPLETE


def test_a_nonsense_end_is_a_failure():
    assert decode_end({"exit": "0"}) == ("", 1)


def test_what_the_outlet_writes_is_the_recordings_own_header_and_windows():
    pipe = Pipe()
    outlet = Outlet(pipe)
    origin = Origin("demo", "h", "k", "0")
    outlet.opened(origin)
    assert decode_origin(parse(pipe.lines.pop())) == origin
    outlet.offer(frame(1, (SDA,)))
    assert frames_in(pipe) == [frame(1, (SDA,))]


def test_a_full_pipe_drops_whole_frames_and_the_next_one_says_how_many():
    pipe = Pipe()
    outlet = Outlet(pipe)
    outlet.offer(frame(1))
    pipe.waiting = session.MAX_BACKLOG + 1
    outlet.offer(frame(2))
    outlet.offer(frame(3))
    pipe.waiting = 0
    outlet.offer(frame(4))
    outlet.offer(frame(5))
    assert [(frame.seq, frame.health.dropped_frames) for frame in frames_in(pipe)] == [(1, 0), (4, 2), (5, 0)]


def test_devices_that_came_and_went_in_dropped_frames_still_arrive():
    pipe = Pipe()
    outlet = Outlet(pipe)
    outlet.offer(frame(1, (SDA,)))
    pipe.waiting = session.MAX_BACKLOG + 1
    outlet.offer(frame(2, (SDB,)))
    outlet.offer(frame(3, (), ("sda",)))
    pipe.waiting = 0
    outlet.offer(frame(4))
    last = frames_in(pipe)[-1]
    assert last.devices == (SDB,)
    assert last.removed == ("sda",)


def test_nothing_is_written_into_a_closed_pipe():
    pipe = Pipe()
    pipe.closing = True
    outlet = Outlet(pipe)
    outlet.offer(frame(1))
    outlet.end("over", 0)
    assert pipe.lines == []
