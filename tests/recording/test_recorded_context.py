"""The host's context: recorded and read again, summed; a host without it records nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import NAMES, frame

from latmon.aggregate.accumulator import Accumulator
from latmon.model.host_context import ContextValue, interval_value
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
COUNTS = st.integers(0, 2**60)
VALUES = st.builds(interval_value, COUNTS, st.integers(1, 2**60)) | st.builds(
    ContextValue, COUNTS, st.integers(1, 2**60), st.floats(0, 1e90)
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_what_was_measured_comes_back_as_it_was(values):
    given_frame = replace(frame(0), host_context=values)
    assert decode_frame(parse(to_bytes(encode_frame(given_frame)))) == given_frame


def test_a_host_without_it_records_nothing():
    assert "host_context" not in encode_frame(frame(0))
    assert encode_frame(replace(frame(0), host_context={"steal": interval_value(1, 4)}))["host_context"] == [
        ["steal", 1, 4]
    ]


@pytest.mark.parametrize(
    "rows",
    [
        *({}, "x", 3, [3], [["steal", 1]], [["steal", 1, 2], ["steal", 1, 2]]),
        *([["steal", *numbers]] for numbers in ((-1, 2), (1, 0), (1.5, 2), (2**63, 2), (1, 2, -1.0), (1, 2, "x"))),
        [[3, 1, 2]],
    ],
)
def test_nonsense_is_refused(rows):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | {"host_context": rows})


def test_a_name_is_clean():
    assert all(map(is_clean, decode_frame(WINDOW | {"host_context": [["\x1b]52;c;x\x07", 1, 2]]}).host_context))


def test_values_add_up_and_the_highest_interval_is_kept():
    sums = Accumulator()
    for values in ({"steal": interval_value(10, 100)}, {}, {"steal": interval_value(0, 100)}):
        sums.add(replace(frame(0), host_context=values))
    assert sums.frame.host_context == {"steal": ContextValue(10, 200, 0.1)}
