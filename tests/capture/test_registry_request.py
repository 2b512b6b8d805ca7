"""A request survives its way to the collector."""

from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon.capture.registry import Request

EVERYTHING = Request(
    backend="bpftrace",
    options=Options(250_000, ("nvme*", "sd\n[a]"), 100_000, Path("/p"), Path("/s")),
    record=Path("/tmp/ä b"),
    duration_us=5,
    max_size=7,
    redact=True,
    scenario="host",
    seed=12,
    commands=("record", "clock"),
)


@pytest.mark.parametrize("request_", [Request(), EVERYTHING])
def test_round_trip(request_):
    line = request_.encode()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert Request.decode(line) == request_
