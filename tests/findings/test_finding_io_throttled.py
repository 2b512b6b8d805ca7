"""io-throttled: a cgroup at its limit, one far below it, and one that reached it for a moment."""

import pytest
from finding_cases import S, disk, facts_of, found, frame, hist, lasting, timed

from latmon.aggregate.accumulator import Accumulator
from latmon.findings.engine import RuleEngine, not_evaluated
from latmon.findings.episodes import summarise_episodes
from latmon.model.frame import CgroupLimit, Origin, Series, Traced
from latmon.model.inflight import Depths

RULE = "io-throttled"
LOOP = disk("loop0", major=7, minor=0, driver="")
ROOT = "/sys/fs/cgroup/blkio"


def limited(ios=250, size=4096, **changed):
    """Return reads of a block of 5 s under a limit of 50 per second, version 1."""
    values = {"ios_per_s": 50, "bytes_per_s": None, "processes": 2, "names": ("fio",), "root": ROOT, "version": 1}
    return CgroupLimit(
        **{"cgroup": "/slow", "device": "loop0", "op": "read"} | values | changed, ios=ios, bytes=ios * size
    )


def blocks(*counts, **changed):
    """Return a frame of 5 s for each count of I/Os; None for a block without any."""
    rows = [() if n is None else (limited(n, **changed),) for n in counts]
    return [frame(100 + 5 * at, cgroup_limits=row) for at, row in enumerate(rows)]


def test_cgroup_limit_rate_processes_and_lifting_are_named():
    histograms = timed("loop0", ((250, {"hba": 600}),))
    depths = {"loop0": Depths({0: 4850, 1: 150})}
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(),), histograms=histograms, depths=depths), [LOOP])
    assert (finding.severity, finding.device, finding.share) == ("warning", "loop0", 1.0)
    assert finding.summary == "loop0: cgroup /slow (fio) is throttled at 50 reads/s, which it reached for 60 s"
    assert [fact.text for fact in finding.facts] == [
        "cgroup: /slow (version 1)",
        "configured: at most 50 reads/s (blkio.throttle.read_iops_device)",
        "it did 50.0 reads/s in that time",
        "processes in it: 2: fio",
        "loop0 takes 600 us on average for a read after the wait for the limit, which no total contains",
        "loop0 had nothing to do 97% of the time",
    ]
    assert [step.commands for step in finding.steps] == [
        (f"cat {ROOT}/slow/blkio.throttle.read_iops_device",),
        (f"echo '7:0 0' > {ROOT}/slow/blkio.throttle.read_iops_device",),
    ]


@pytest.mark.parametrize("includes", [(), ("throttling",)])
def test_the_wait_is_named_where_it_is_traced(includes):
    waits = {
        Series("loop0", "read", stage): hist({us: 9}) for stage, us in (("whole", 320_000), ("admission", 319_000))
    }
    trace = Traced(waits, one_in=1, includes={"admission": includes})
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(),), traced=trace), [LOOP])
    texts = [fact.text for fact in finding.facts]
    assert ("a read on loop0 waits 319 ms on average before its request exists" in texts) is bool(includes)


def test_version_2_has_one_file_and_the_time_that_tasks_waited():
    row = limited(100, size=1 << 20, ios_per_s=None, bytes_per_s=20 << 20, version=2, root="/sys/fs/cgroup", op="write")
    (finding,) = found(RULE, lasting(cgroup_limits=(row,)), [LOOP])
    assert finding.summary == "loop0: cgroup /slow (fio) is throttled at 21 MB/s of writes, which it reached for 60 s"
    assert finding.steps[1].commands == ("echo '7:0 wbps=max' > /sys/fs/cgroup/slow/io.max",)
    assert not any("io.pressure" in fact.text for fact in finding.facts)
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(stalled_us=4_900_000, version=2),)), [LOOP])
    assert "one of its tasks or more waited for I/O 98% of that time (io.pressure)" in [f.text for f in finding.facts]


@pytest.mark.parametrize(
    ("counts", "fires"),
    [
        pytest.param([250] * 12, True, id="at the limit"),
        pytest.param([237] * 12, True, id="95 %, less one I/O"),
        pytest.param([236] * 12, False, id="less"),
        pytest.param([25] * 12, False, id="far below"),
        pytest.param([25, 250, 250, 25, 25], False, id="10 s: a moment"),
        pytest.param([25, 250, 250, 250, 25], True, id="15 s"),
        pytest.param([250], False, id="the first block"),
        pytest.param([250, 250], True, id="all the time since the capture began"),
        pytest.param([247, 246], False, id="a rate near the limit, for 10 s"),
        pytest.param([240] * 12, True, id="a rate near the limit, for a minute"),
        pytest.param([250, 250, 25], False, id="a burst that began before the capture, and ends"),
        pytest.param([None, 250, 250], False, id="10 s"),
        pytest.param([1000, None, None, None], True, id="counted when submitted, done in 20 s"),
        pytest.param([500, None, None, None], False, id="done in 10 s"),
        pytest.param([], False, id="no I/O"),
    ],
)
def test_thresholds(counts, fires):
    assert bool(found(RULE, blocks(*counts) or lasting(cgroup_limits=()), [LOOP])) is fires


def seconds(n, ios=50, **changed):
    return [frame(101 + at, dt_us=S, cgroup_limits=(limited(ios, **changed),)) for at in range(n)]


def first_found(frames):
    """Return the number of frames after which the rule engine has the finding; None for none."""
    engine = RuleEngine(Origin("bpftrace", "h", "6.1", "0", interval_us=S, start_mono_us=100 * S), (LOOP,))
    for at, current_frame in enumerate(frames, 1):
        engine.take(current_frame)
        if any(each.id == RULE for each in engine.current):
            return at
    return None


def test_a_limit_that_is_reached_from_the_begin_on_is_found_after_five_seconds():
    assert first_found(seconds(20)) == 5
    unread, first = frame(101, dt_us=S), frame(101, dt_us=S, cgroup_limits=())
    assert first_found([unread, *seconds(20)[1:]]) == 5, "limits were not read in the first second"
    assert first_found([first, *seconds(20)[1:]]) == 15, "no I/O in the first second"


@pytest.mark.parametrize(
    ("ios_of_a_second", "seconds_of_it"),
    [
        pytest.param(48, 11, id="a program that does nearly as many by itself"),
        pytest.param(49, 11, id="one less than the limit"),
        pytest.param(50, 4, id="a burst of 4 s"),
        pytest.param(50_000, 0, id="without a limit"),
    ],
)
def test_there_is_no_early_false_alarm(ios_of_a_second, seconds_of_it):
    burst = seconds(seconds_of_it, ios_of_a_second)
    after = [frame(101 + at, dt_us=S, cgroup_limits=()) for at in range(seconds_of_it, 20)]
    assert first_found([*burst, *after]) is None


def test_a_burst_that_was_found_early_is_taken_back():
    """It lasted for 7 s: after 10 s it is known to be a burst."""
    engine = RuleEngine(Origin("bpftrace", "h", "6.1", "0", interval_us=S, start_mono_us=100 * S), (LOOP,))
    found_after = []
    for at, one in enumerate([*seconds(7), *(frame(101 + at, dt_us=S, cgroup_limits=()) for at in range(7, 20))], 1):
        engine.take(one)
        found_after += [at] if any(each.id == RULE for each in engine.current) else []
    assert found_after == [5, 6, 7, 8, 9]


def test_a_low_limit_is_reached_in_spite_of_whole_ios():
    assert found(RULE, blocks(*[4, 5, 6, 5], ios_per_s=1), [LOOP])
    megabytes = {"size": 1 << 20, "ios_per_s": None, "bytes_per_s": 1 << 20}
    assert found(RULE, blocks(*[4, 5, 6, 5], **megabytes), [LOOP])
    assert not found(RULE, blocks(*[3, 3, 3, 3], **megabytes), [LOOP])


def test_of_two_limits_the_one_that_is_reached_is_named():
    (finding,) = found(RULE, blocks(*[250] * 12, bytes_per_s=10**9), [LOOP])
    assert "throttled at 50 reads/s" in finding.summary
    (finding,) = found(RULE, blocks(*[250] * 12, ios_per_s=10**6, bytes_per_s=50 * 4096), [LOOP])
    assert "throttled at 205 kB/s of reads" in finding.summary


def test_one_finding_per_device_names_the_others():
    rows = tuple(limited(cgroup=f"/c{n}", device=device) for device in ("sda", "sdb") for n in range(6))
    findings = found(RULE, lasting(cgroup_limits=rows), [disk("sda"), disk("sdb")])
    assert [finding.device for finding in findings] == ["sda", "sdb"]
    assert findings[0].summary.endswith("; 5 more limits reached")
    assert sum(fact.name.startswith("other_") for fact in findings[0].facts) == 3


@pytest.mark.parametrize("name", ["/a;reboot", "/$(id)", "/x y", "/…tail", "/a'b"])
def test_an_odd_name_is_in_no_command(name):
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(cgroup=name),)), [LOOP])
    commands = [line for step in finding.steps for line in step.commands]
    assert all("/sys/fs/cgroup/blkio/CGROUP/" in line for line in commands)
    assert not any(name in line for line in commands)


def test_a_redacted_recording_has_no_path_in_commands():
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(cgroup="/redacted-1a2b", root=""),)), [LOOP])
    assert finding.steps[0].commands == ("cat /CGROUPS/CGROUP/blkio.throttle.read_iops_device",)


def test_a_long_path_is_short_in_the_sentence():
    path = f"/kubepods.slice/{'x' * 80}/cri-7.scope"
    (finding,) = found(RULE, lasting(cgroup_limits=(limited(cgroup=path),)), [LOOP])
    assert "cgroup .../cri-7.scope (fio)" in finding.summary
    assert finding.facts[0].value == path


def test_where_limits_are_not_read_the_rule_is_not_evaluated():
    assert not_evaluated(facts_of(lasting()))["cgroups"] == (RULE,)
    assert "cgroups" not in not_evaluated(facts_of(lasting(cgroup_limits=())))
    assert "cgroups" not in not_evaluated(facts_of(lasting(), kernel="SunOS 5.11"))


def test_frames_of_one_second_make_the_same_blocks():
    frames = [frame(100 + n, dt_us=S, cgroup_limits=(limited(50),)) for n in range(30)]
    (finding,) = found(RULE, frames, [LOOP])
    assert finding.summary.endswith("reached for 30 s")


def test_a_limit_that_is_changed_begins_a_new_episode():
    """Four limits in turn, of 25 s each: each sentence is true of its own time."""
    limits = (100, 300, 150, 600)
    engine = RuleEngine(Origin("bpftrace", "h", "6.1", "0", interval_us=S, start_mono_us=100 * S), (LOOP,))
    at = 100
    for limit in limits:
        for _ in range(25):
            at += 1
            engine.take(frame(at, dt_us=S, cgroup_limits=(limited(limit, ios_per_s=limit),)))
    engine.finish()
    episodes = [episode for episode in engine.episodes if episode.key[0] == RULE]
    for episode, limit in zip(episodes, limits, strict=True):
        shown = f"throttled at {limit} reads/s, which it reached for"
        assert shown in episode.last.summary
        assert shown in episode.worst.summary
        rate = next(fact.value for fact in episode.last.facts if fact.name == "rate")
        assert rate == pytest.approx(limit, rel=0.01)
    assert [round(episode.end_wall - episode.begin_wall) for episode in episodes[1:]] == [20] * 3
    summaries = [
        finding_summary.finding.summary
        for finding_summary in summarise_episodes(engine.episodes)
        if finding_summary.finding.id == RULE
    ]
    assert len(summaries) == len(limits)


def test_a_limit_that_is_changed_while_another_cgroup_waits_longer_begins_a_new_episode():
    """The longest throttled cgroup is /a at 100, /b, then /a at 200."""
    engine = RuleEngine(Origin("bpftrace", "h", "6.1", "0", interval_us=S, start_mono_us=100 * S), (LOOP,))
    at = 100
    for cgroup, limit in (("/a", 100), ("/b", 70), ("/a", 200)):
        for _ in range(40):
            at += 1
            row = limited(limit, cgroup=cgroup, ios_per_s=limit)
            engine.take(frame(at, dt_us=S, cgroup_limits=(row,)))
    engine.finish()
    before, after = (episode for episode in engine.episodes if episode.key[0] == RULE)
    assert [*before.states.values()] == ["100 reads/s", "70 reads/s"]
    assert "cgroup /a (fio) is throttled at 200 reads/s" in after.worst.summary
    assert "200 reads/s" not in before.worst.summary


def test_limits_in_turn_of_a_few_seconds_each_are_named_together():
    rows = [limited(5 * limit, ios_per_s=limit) for limit in (100, 100, 300, 300, 150, 150)]
    frames = [frame(100 + 5 * at, cgroup_limits=(row,)) for at, row in enumerate(rows)]
    idle = [frame(70 + 5 * at, cgroup_limits=()) for at in range(6)]
    (finding,) = found(RULE, [*idle, *frames], [LOOP])
    assert finding.summary == (
        "loop0: cgroup /slow (fio) is throttled at 150 reads/s, which it reached for 10 s, "
        "and before that at 2 other limits for 20 s"
    )
    texts = [fact.text for fact in finding.facts]
    assert "earlier in this minute it was throttled at 100 reads/s for 10 s" in texts
    assert "earlier in this minute it was throttled at 300 reads/s for 10 s" in texts


def test_i_os_of_two_limits_in_one_block_are_not_added():
    """A change in the middle of a block: neither limit was reached for all of it."""
    accumulator = Accumulator()
    for at, limit in enumerate((100, 100, 100, 50, 50), 101):
        accumulator.add(frame(at, dt_us=S, cgroup_limits=(limited(limit, ios_per_s=limit),)))
    rows = accumulator.cgroup_limits.rows
    assert [(row.ios_per_s, row.ios) for row in rows] == [(100, 300), (50, 100)]
