"""Limits of cgroups: recorded and read again, summed; where none were read, nothing is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import NAMES, frame

from latmon.aggregate import accumulator
from latmon.aggregate.accumulator import Accumulator
from latmon.model.frame import CgroupLimit
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
COUNTS = st.integers(0, 2**40)
LIMITS = st.builds(
    CgroupLimit, NAMES, NAMES, NAMES, st.none() | st.integers(1, 2**40), st.none() | st.integers(1, 2**40),
    COUNTS, COUNTS, COUNTS, st.lists(NAMES, max_size=3).map(tuple), st.none() | COUNTS, NAMES, st.sampled_from((1, 2)),
)  # fmt: skip
GOOD = ["/a", "sda", "read", 50, None, 49, 4096, 2, ["fio"], None, "/sys/fs/cgroup", 2]


@given(st.none() | st.lists(LIMITS, max_size=4).map(tuple))
def test_what_was_read_comes_back_as_it_was(limits):
    given_frame = replace(frame(0), cgroup_limits=limits)
    assert decode_frame(parse(to_bytes(encode_frame(given_frame)))) == given_frame


def test_none_read_is_not_no_limit():
    assert "cgroup_limits" not in encode_frame(frame(0))
    assert encode_frame(replace(frame(0), cgroup_limits=()))["cgroup_limits"] == []
    (cgroup_limit,) = decode_frame(WINDOW | {"cgroup_limits": [[*GOOD, "more of a later version"]]}).cgroup_limits
    assert (cgroup_limit.cgroup, cgroup_limit.ios_per_s, cgroup_limit.bytes_per_s, cgroup_limit.names) == (
        "/a",
        50,
        None,
        ("fio",),
    )
    assert parse(to_bytes(encode_frame(replace(frame(0), cgroup_limits=(cgroup_limit,)))))["cgroup_limits"] == [GOOD]


@pytest.mark.parametrize(
    "limits",
    [
        *({}, "x", 3, [3], [GOOD[:-1]]),
        *([[*GOOD[:at], bad, *GOOD[at + 1 :]]] for at in (*range(3, 8), 9, 11) for bad in (-1, 2**63, 1.5, "1")),
        *([[*GOOD[:at], 7, *GOOD[at + 1 :]]] for at in (0, 1, 2, 8, 10)),
        *([[*GOOD[:at], 0, *GOOD[at + 1 :]]] for at in (3, 4, 11)),
    ],
)
def test_nonsense_is_refused(limits):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | {"cgroup_limits": limits})


def test_a_name_is_clean():
    (cgroup_limit,) = decode_frame(WINDOW | {"cgroup_limits": [["/\x1b]52;c;x\x07", *GOOD[1:]]]}).cgroup_limits
    assert is_clean(cgroup_limit.cgroup)


def test_counts_add_up_under_one_limit_with_the_latest_processes(monkeypatch):
    first = CgroupLimit("/a", "sda", "read", 50, None, 49, 4096, 1, ("dd",), 7)
    later = replace(first, ios=51, bytes=8192, names=("fio",), stalled_us=3)
    changed = replace(first, ios_per_s=60, ios=60)
    sums = Accumulator()
    assert sums.cgroup_limits.rows is None
    for limits in ((first,), None, (later, replace(later, op="write")), (changed,)):
        sums.add(replace(frame(0), cgroup_limits=limits))
    assert sums.frame.cgroup_limits == (
        replace(later, ios=100, bytes=12_288, stalled_us=10),
        replace(later, op="write"),
        changed,
    )
    monkeypatch.setattr(accumulator, "MAX_LIMITS", 3)
    sums.add(replace(frame(0), cgroup_limits=(later, replace(later, cgroup="/b"))))
    assert sums.cgroup_limits.left_out == 1
    assert len(sums.cgroup_limits.rows) == 3
