"""A recording that ends while I/Os are in flight reports them: on stderr, in its last window, in the report."""

import os
import shutil
import subprocess

import pytest
from test_sampled_depths import SIZE, disk, frozen, held  # noqa: F401 - a fixture is found by its name
from workload import Capture, wait_for

from latmon.aggregate.request_age import Waiting

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("bpftrace", "losetup"))), reason="needs bpftrace and losetup"),
]
SLOW_US = 2_500_000
WINDOWS = 3


def ages(frames):
    waiting = Waiting()
    for frame in frames:
        waiting.add(frame)
    return waiting.ages.oldest


@pytest.mark.slow  # 20 s; a frame without a look is tests/tracer/test_controller_last_look.py's
@frozen
def test_requests_in_flight_are_reported_to_the_end(disk, tmp_path):  # noqa: F811
    with held(disk, tmp_path) as (inner, thaw):
        words = ("--backend", "bpftrace", "--stages", "all", "--device", inner.name)
        with Capture(tmp_path, *words) as capture:
            followed = wait_for_list(capture)
            write = ["dd", "if=/dev/zero", f"of={inner.path}", "bs=4096", "seek=9", "count=1", "oflag=direct"]
            with subprocess.Popen(write, stderr=subprocess.DEVNULL) as writer:
                try:
                    wait_for(lambda: any(age.age_us > SLOW_US for age in ages(capture.frames())), 30, 0.2)
                    assert capture.stop() == 0, capture.stderr
                finally:
                    thaw()
            frames, text = capture.frames(), capture.report()
    (given_age,) = ages(frames)
    assert (given_age.device, given_age.count) == (inner.name, 1)
    assert given_age.age_us > SLOW_US
    assert f"latmon: {inner.name}: 1 I/O in flight for " in capture.stderr
    (row,) = text["devices"][inner.name]["in_flight"]
    assert row["age_us"] == given_age.age_us
    if followed:
        assert not given_age.at_least
        assert (row["op"], row["sector"], row["bytes"], row["pid"]) == ("write", 72, 4096, writer.pid)
    else:
        assert given_age.at_least


def wait_for_list(capture):
    """Whether a probe follows requests here: it has looked once by its third window."""
    wait_for(lambda: sum(bool(frame.traced.one_in) for frame in capture.frames()) >= WINDOWS, 30, 0.2)
    return any(frame.in_flight is not None for frame in capture.frames())
