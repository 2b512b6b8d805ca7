"""An always-on probe is restarted when it is silent, never because its reader was stopped."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.frame import Completed, Flow
from latmon.support.errors import ProbeGoneError
from latmon_backends.probe import always_on
from latmon_backends.probe.always_on import ProbeSupervisor
from latmon_backends.probe.process import LOOK_S, RefusedError, Silence


class Probe:
    """A probe that prints `text` after so many seconds of the loop's time; None ends it."""

    def __init__(self, text, after_s):
        self.text, self.after_s, self.stopped = text, after_s, False

    def decoded(self):
        return None

    async def next(self):
        await asyncio.sleep(self.after_s)
        return self.text

    async def complaint(self):
        return "Killed"

    async def stop(self):
        self.stopped = True


@pytest.fixture
def frames():
    return SimpleNamespace(gap="", notice="")


@pytest.fixture
def kept(frames, monkeypatch):
    monkeypatch.setattr(always_on, "LOOK_S", 0.1)
    monkeypatch.setattr("latmon_backends.probe.process.LOOK_S", 0.1)
    return ProbeSupervisor("bpftrace", frames, 1000, 0.3)


async def test_a_reader_that_was_stopped_reads_on(kept):
    probe = Probe("a tick", 0.05)
    asyncio.get_running_loop().call_soon(time.sleep, 1.0)
    assert await kept.next(probe) == "a tick"
    assert not probe.stopped


async def test_a_silent_probe_is_stopped(kept):
    probe = Probe("a tick", 60)
    assert await kept.next(probe) is None
    assert probe.stopped
    with pytest.raises(ProbeGoneError, match="bpftrace had ended: it printed nothing for"):
        kept.check()


async def test_until_another_one_runs_nothing_is_counted(kept, frames):
    assert await kept.next(Probe(None, 0)) is None
    with pytest.raises(ProbeGoneError, match="Killed"):
        kept.check()

    async def start():
        with pytest.raises(ProbeGoneError):
            kept.check()

    assert await kept.restart(Probe(None, 0), start)
    kept.check()
    assert frames.gap == "probe-restart"


async def test_one_that_can_not_be_started_again_is_gone(kept):
    async def start():
        raise RefusedError("no room")

    assert not await kept.restart(Probe(None, 0), start)
    with pytest.raises(ProbeGoneError):
        kept.check()


def test_silence_counts_only_time_with_a_running_reader():
    now = [0.0]
    silence = Silence(lambda: now[0])
    reported = []
    for passed in (LOOK_S, 12.0, 3600.0, LOOK_S / 2):
        now[0] += passed
        reported.append(silence.look())
    assert reported == [LOOK_S, 2 * LOOK_S, 3 * LOOK_S, 3.5 * LOOK_S]
    silence.reset()
    assert silence.look() == 0


READ = Flow("sda", "read")


@pytest.mark.parametrize(
    ("seen", "kernel", "expected"),
    [
        pytest.param(3, Completed(7, 7 * 4096 + 512, 0), 24 * 512, id="3 of 7 with a mean of 4,169 bytes"),
        pytest.param(7, Completed(7, 7 * 4096 + 512, 0), 7 * 4096 + 512, id="all of them: exactly the kernel's"),
        pytest.param(1, Completed(3, 2 * 512, 0), 512, id="less than a sector on average"),
    ],
)
def test_bytes_of_the_ios_that_the_probe_saw_are_whole_sectors(seen, kernel, expected):
    estimated = always_on._with_bytes({READ: Completed(seen, 0)}, {READ: kernel})
    assert estimated[READ] == Completed(seen, expected)


@given(seen=st.integers(0, 10**6), count=st.integers(1, 10**6), sectors=st.integers(0, 10**9))
def test_bytes_are_never_a_part_of_a_sector(seen, count, sectors):
    estimated = always_on._with_bytes({READ: Completed(seen, 0)}, {READ: Completed(count, sectors * 512, 0)})
    assert estimated[READ].bytes % 512 == 0
    assert abs(estimated[READ].bytes - seen * sectors * 512 / count) <= 256
