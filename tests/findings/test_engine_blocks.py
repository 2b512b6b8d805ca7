"""Blocks of the rule engine: the same for a late start, and evaluation in parts equals evaluation at once."""

from dataclasses import replace

from finding_cases import frame

from latmon.findings.engine import RuleEngine
from latmon.findings.rule import DEFAULT
from latmon.findings.rules import RULES
from latmon.model.devices import IdleRows, WithIdle
from latmon.model.frame import Completed, Device, Flow, Origin
from latmon.model.measurements import KERNEL

S = 1_000_000
ORIGIN = Origin("demo", "host", "6.1", "0", interval_us=S, start_mono_us=100 * S + 300_000)


def seconds(first, last):
    return [frame(n + 0.3, dt_us=S) for n in range(first, last)]


def ends(watch):
    return [block.end_us for block in watch._blocks]


def test_one_who_begins_late_has_the_same_blocks():
    early, late = RuleEngine(ORIGIN), RuleEngine(ORIGIN)
    for current_frame in seconds(101, 190):
        early.take(current_frame)
    for current_frame in seconds(122, 190):
        late.take(current_frame)
    assert ends(early) == ends(late)
    assert len(ends(early)) == 12
    assert early.facts.span_us == late.facts.span_us == 60 * S


def test_a_block_has_the_rows_of_idle_devices_as_the_window_has():
    idle = IdleRows.of([Device("sda", 8, 0), Device("sdb", 8, 16)], ("read",), has_queued=True)
    engine = RuleEngine(ORIGIN, (), DEFAULT)
    for current_frame in seconds(101, 112):
        engine.take(replace(current_frame, kernel=WithIdle({Flow("sda", "read"): Completed(1, 512)}, idle.kernel)))
    assert engine.facts is not None
    for rows in (engine.facts[KERNEL], engine.facts.blocks[-1][KERNEL]):
        assert set(rows) == {Flow("sda", "read"), Flow("sdb", "read")}
        assert rows[Flow("sdb", "read")] == Completed(0, 0, 0, merged=0)


def test_evaluation_in_parts_equals_evaluation_at_once():
    parts, quiet = RuleEngine(ORIGIN, (), DEFAULT), RuleEngine(ORIGIN)
    quiet.quiet = True
    for current_frame in seconds(101, 112):
        assert sum(1 for _ in parts.taking(current_frame)) in (0, len(RULES) + 1)
        assert quiet.take(current_frame) is False
    assert (parts.evaluated, quiet.evaluated) == (3, 0)
    assert [end / S for end in ends(quiet)] == [102.3, 105.3, 110.3], "short ones first"
    assert ends(quiet) == ends(parts)
