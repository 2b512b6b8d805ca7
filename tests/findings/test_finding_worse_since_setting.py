"""worse-since-setting: a setting that was changed, what it did to throughput and latency, and what is no harm."""

from dataclasses import replace

import pytest
from finding_cases import WALL, hist

from latmon.findings.engine import NEEDS, RuleEngine
from latmon.findings.rule import Settings
from latmon.findings.rules.worse_since_setting import ID
from latmon.model.frame import Completed, Device, Flow, Frame, Limit, Origin, Series

S = 1_000_000
ALONE = Settings(off=frozenset(NEEDS) - {ID})
CHANGED_S = 40


def device(value, name="read_ahead_kb", source="queue/read_ahead_kb"):
    return Device("sda", 8, 0, limits=(Limit("nr_requests", 128, "queue/nr_requests"), Limit(name, value, source)))


def seconds(before, after, *, count=75, now=0, op="read", **changed):
    """Yield a frame per second: `before` and `after` are (IOPS, bytes of an I/O, us of an I/O)."""
    for second in range(count):
        iops, size, us = before if second < CHANGED_S else after
        frame = Frame(second, WALL + second, (second + 1) * S, S)
        rows = (device(128, **changed),) if second == 0 else ()
        rows = (device(now, **changed),) if second == CHANGED_S + 5 else rows
        flow = Flow("sda", op)
        yield replace(
            frame,
            devices=rows,
            histograms={Series("sda", op, "total"): hist({us: iops})},
            seen={flow: Completed(iops, iops * size, iops * us)},
            kernel={flow: Completed(iops, iops * size, iops * us)},
        )


def findings(frames):
    engine = RuleEngine(Origin("test", "here", "6.1", "0", interval_us=S, start_mono_us=0), settings=ALONE)
    first = None
    for second, frame in enumerate(frames):
        engine.take(frame)
        if engine.current and first is None:
            first = second
    assert not engine.failed
    return engine.current, first


WITH_READ_AHEAD, WITHOUT = (33, 131_072, 2_000), (210, 4_096, 3_500)
"""Of a program that reads a file from its begin to its end, on a device of 3.5 ms: 66 reads of 64 KiB a second."""


def test_read_ahead_that_is_off_is_named_with_what_it_did():
    (finding,), first = findings(seconds(WITH_READ_AHEAD, WITHOUT))
    assert first - CHANGED_S <= 30
    assert (finding.severity, finding.device) == ("warning", "sda")
    assert finding.summary.startswith("sda: since read_ahead_kb 128 -> 0 (seen at ")
    assert "reads move 860 kB/s instead of 4.33 MB/s, in I/Os of 4 KiB instead of 128 KiB" in finding.summary
    assert finding.short == "sda: read_ahead_kb 128 -> 0: read bytes/s fell to 20%"
    commands = [command for step in finding.steps for command in step.commands]
    assert commands == ["echo 128 > /sys/block/sda/queue/read_ahead_kb"]
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["size"] == 4_096
    assert facts["in_flight"] == pytest.approx(0.74, abs=0.02)


def test_it_stays_for_as_long_as_the_harm_does():
    """It went after a minute, when the time before the change was no more among the blocks."""
    (finding,), _ = findings(seconds(WITH_READ_AHEAD, WITHOUT, count=400))
    assert finding.short == "sda: read_ahead_kb 128 -> 0: read bytes/s fell to 20%"


def test_it_goes_where_the_old_value_comes_back():
    frames = [
        *seconds(WITH_READ_AHEAD, WITHOUT, count=200),
        *(
            replace(frame, seq=200 + frame.seq, wall=200 + frame.wall, mono_us=200 * S + frame.mono_us)
            for frame in seconds(WITH_READ_AHEAD, WITH_READ_AHEAD, count=100, now=128)
        ),
    ]
    assert findings(frames)[0] == ()


def test_of_two_changes_it_is_not_known_which_one_did_it():
    frames = list(seconds(WITH_READ_AHEAD, WITHOUT, count=200))
    frames[60] = replace(frames[60], devices=(device(4),))
    assert findings(frames)[0] == ()


def _later(frames, by_s):
    """Yield the frames later, without another change."""
    for frame in frames:
        mono_us = by_s * S + frame.mono_us
        yield replace(frame, seq=by_s + frame.seq, wall=by_s + frame.wall, mono_us=mono_us, devices=())


REQUESTS = {"name": "max_sectors_kb", "source": "queue/max_sectors_kb", "now": 256}
AT_ONCE, LONGER = (100, 65_536, 2_000), (100, 65_536, 20_000)


def test_a_disk_that_slows_long_after_the_change_is_not_slow_by_it():
    """It compared the last minute with that of before the change for an hour: also where it was good in between."""
    long_after = [*seconds(AT_ONCE, AT_ONCE, count=600, **REQUESTS)]
    long_after += _later(seconds(LONGER, LONGER, count=120, **REQUESTS), 600)
    assert findings(long_after) == ((), None)


def test_harm_that_went_away_and_other_harm_later_is_not_the_changes():
    frames = [
        *seconds(AT_ONCE, LONGER, count=200, **REQUESTS),
        *_later(seconds(AT_ONCE, AT_ONCE, count=150, **REQUESTS), 200),
        *_later(seconds(LONGER, LONGER, count=150, **REQUESTS), 350),
    ]
    current, first = findings(frames)
    assert first is not None
    assert current == ()


def test_a_pause_of_the_load_does_not_end_the_harm():
    frames = list(seconds(AT_ONCE, LONGER, count=400, **REQUESTS))
    frames[200:300] = [replace(frame, histograms={}, seen={}, kernel={}) for frame in frames[200:300]]
    (finding,), _ = findings(frames)
    assert "since max_sectors_kb 128 -> 256" in finding.summary
    assert finding.short.endswith("reads take 10x as long")


def test_ios_that_take_longer_since_then():
    setting = {"name": "scheduler", "source": "queue/scheduler", "now": "bfq"}
    (finding,), _ = findings(seconds((200, 4_096, 2_000), (150, 4_096, 9_000), **setting))
    assert "reads take 9 ms on average instead of 2 ms" in finding.summary
    assert finding.short == "sda: scheduler 128 -> bfq: reads take 4.5x as long"


def test_other_settings_make_no_smaller_ios():
    """A scan that ended, and random reads since then, while somebody set a scheduler."""
    setting = {"name": "scheduler", "source": "queue/scheduler", "now": "none"}
    assert findings(seconds((200, 1 << 20, 4_000), (8_000, 4_096, 120), **setting))[0] == ()


def test_a_link_that_fell_is_nobodys_setting():
    link = {"name": "link_speed", "source": "", "now": "2.5 GT/s"}
    assert findings(seconds((200, 4_096, 2_000), (150, 4_096, 9_000), **link))[0] == ()


@pytest.mark.parametrize(
    ("before", "after", "now"),
    [
        pytest.param(WITH_READ_AHEAD, WITHOUT, 128, id="no setting changed"),
        pytest.param(WITH_READ_AHEAD, WITH_READ_AHEAD, 0, id="no harm"),
        pytest.param(WITH_READ_AHEAD, (5, 131_072, 2_000), 0, id="a load that wants less"),
        pytest.param((200, 4_096, 2_000), (900, 4_096, 9_000), 0, id="a load that became more"),
        pytest.param((200, 4_096, 2_000), (60, 131_072, 9_000), 0, id="a load of larger I/Os"),
        pytest.param((200, 4_096, 200), (200, 4_096, 600), 0, id="fast before and after"),
        pytest.param((1, 131_072, 9_000), (1, 4_096, 900_000), 0, id="few I/Os"),
    ],
)
def test_no_finding(before, after, now):
    assert findings(seconds(before, after, now=now))[0] == ()


def test_a_value_that_a_shell_would_read_is_in_no_command():
    frames = seconds(WITH_READ_AHEAD, WITHOUT, now=0, source="queue/$(id)")
    (finding,), _ = findings(frames)
    assert not any(step.commands for step in finding.steps)
