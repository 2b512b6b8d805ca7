"""A declared table needs no other code to be summed, recorded, redacted, merged, exported and selected."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from derived import declared_rows
from frame_sums import FrameSums

from latmon.model.frame import Frame
from latmon.model.histogram import EMPTY, Histogram
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, TABLES, WAKEUPS, require_distinct
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.packed_frame import pack
from latmon.model.table import DEVICE, TEXT, Meaning, Part, Table, Unit, fact, latencies, record
from latmon.recording.declared_tables import TableCodec
from latmon.support.errors import RecordingError

RUN = Path(__file__).parents[1] / "helpers/declared_run.py"


def test_a_table_of_a_test_travels_from_a_probes_line_to_each_reader(tmp_path):
    done = subprocess.run([sys.executable, RUN, tmp_path], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    roll_ups = met.pop("roll-ups")
    assert roll_ups
    assert set(roll_ups) == {60}
    assert met.pop("jsonl") == 180 + len(roll_ups)
    assert met == {
        "group": True,
        "generated": True,
        "probe": [["sda", "write", "best-effort", 77, 1, 20]],
        "undecoded": 1,
        "always-on": True,
        "screen": 60,
        "sums": 180,
        "weighed": 17,
        "recording": True,
        "redacted": [["sda", "write", "best-effort", 0]],
        "fleet": [[f"{host}:sda", "write", "best-effort", 77, 1] for host in "ab"],
        "refused": {},
        "selected": [1, 0],
        "csv": ["priority", "sda", "write", "best-effort", "77", "1"],
        "openmetrics": ['latmon_priority_latency_seconds_count{device="sda",op="write",level="best-effort"} 180'],
    }


@pytest.mark.parametrize(
    ("part", "codes"),
    [
        (Part(names=("none", "idle"), probe_part="x"), {0: "none", 1: "idle", 2: None}),
        (Part(highest=7, probe_part="x"), {0: 0, 7: 7, 8: None}),
        (Part(probe_part="x", from_code="cpu {}".format), {3: "cpu 3"}),
    ],
)
def test_a_code_stands_for_what_its_part_can_have(part, codes):
    assert {code: part.of_code(code) for code in codes} == codes


class _Key(NamedTuple):
    device: str
    name: str


def test_a_part_that_is_not_declared_is_a_mistake_of_the_declaration():
    with pytest.raises(TypeError, match="its key has 2 fields, 1 are declared"):
        Table("odd", _Key, (DEVICE,), latencies(), group="odd", export_name="odd")
    assert Table("even", _Key, (DEVICE, TEXT), latencies(), group="even", export_name="even").part_names == _Key._fields


class _Wire(NamedTuple):
    number: int
    name: str


@dataclass(frozen=True)
class _Signals:
    delay: Histogram = EMPTY
    run: Histogram = EMPTY
    sent: Mapping[str, int] = field(default_factory=dict)
    owner: str = ""
    taps: tuple[str, ...] = ()
    level: int = -1


_NAME = Part(Meaning.NAME)
SIGNALS = Table(
    "signals",
    _Wire,
    (Part(lowest=-1, highest=9), _NAME),
    record(
        _Signals,
        delay=Unit.LATENCIES,
        run=Unit.LATENCIES,
        sent=Unit.NAMED,
        owner=fact("owner", "", Part(Meaning.LISTED)),
        taps=fact("taps", (), _NAME),
        level=fact("level", -1, Part(lowest=-1, highest=9), is_optional=True),
    ),
    group="signals",
    export_name="signal",
    is_timed=True,
)
"""A table with all kinds of cells."""
WIRE = _Wire(-1, "in")
EARLY = _Signals(Histogram.record([3]), EMPTY, {"up": 2, "down": 1}, "a, b", ("x",), level=3)
LATE = _Signals(Histogram.record([9]), Histogram.record([4]), {"up": 1, "off": 5}, "c")


def test_a_sum_adds_named_counts_and_has_the_latest_facts():
    both = _Signals(Histogram.record([3, 9]), Histogram.record([4]), {"up": 3, "down": 1, "off": 5}, "c")
    assert SIGNALS.sum_rows([(WIRE, EARLY), (WIRE, LATE)]) == {WIRE: both}
    assert SIGNALS.value.scale(LATE, 3) == replace(
        LATE, delay=Histogram.record([9] * 3), run=Histogram.record([4] * 3), sent={"up": 3, "off": 15}
    )


def test_facts_get_new_names_where_their_meaning_has():
    new_names = {
        Meaning.NAME: "h:{}".format,
        Meaning.LISTED: lambda listed: ", ".join(f"h:{name}" for name in listed.split(", ")),
    }
    ((key, value),) = SIGNALS.with_new_names({WIRE: EARLY}, new_names).items()
    assert key == _Wire(-1, "h:in")
    assert value == replace(EARLY, owner="h:a, h:b", taps=("h:x",))


def test_a_line_has_an_object_for_each_histogram_and_no_optional_cell_at_its_default():
    codec = TableCodec(SIGNALS)
    rows = {WIRE: EARLY, _Wire(2, "out"): LATE}
    line = json.loads(json.dumps(codec.encode(rows)))
    assert line["rows"] == [
        [-1, "in", {"up": 2, "down": 1}, "a, b", ["x"], 3],
        [2, "out", {"up": 1, "off": 5}, "c", []],
    ]
    assert (line["delay"]["n"], line["run"]["n"]) == ([1, 1], [1])
    assert codec.decode(line, "signals") == rows


@pytest.mark.parametrize(
    ("cell", "wrong", "why"),
    [
        (0, -2, "'number'"),
        (2, {"up": -1}, "'sent'"),
        (2, {str(n): 1 for n in range(65)}, "'sent' has 65 entries"),
        (3, 5, "'owner' is no text"),
        (4, "x", "'taps' is no list"),
        (4, ["x"] * 65, "'taps' has 65 entries"),
        (5, 10, "'level'"),
    ],
)
def test_a_cell_that_its_declaration_does_not_allow_is_refused(cell, wrong, why):
    codec = TableCodec(SIGNALS)
    line = codec.encode({WIRE: EARLY})
    line["rows"][0][cell] = wrong
    with pytest.raises(RecordingError, match=why):
        codec.decode(line, "signals")


@pytest.mark.parametrize("table", [HANDLERS, SOFTIRQS, WAKEUPS])
def test_a_row_leaves_a_sum_with_its_latencies_and_its_facts(table):
    rnd = random.Random(1)
    early, late = (declared_rows(rnd, table, (), lambda _: Histogram.record([5])) for _ in range(2))
    assert early.keys() - late.keys()
    packed_frames = [pack(Frame(seq, 0.0, seq + 1, 1, tables={table: rows})) for seq, rows in enumerate((early, late))]
    sums = FrameSums()
    for stamp, packed in enumerate(packed_frames):
        sums.add(packed, stamp)
    assert sums[table] == table.sum_rows([*early.items(), *late.items()])
    sums.subtract(packed_frames[0], 0)
    assert sums[table] == late
    assert sums.packed.tables[table].facts.keys() == (late.keys() if table.fact_places else set())


def test_a_table_with_facts_has_no_row_without_latencies():
    with pytest.raises(TypeError, match="it has facts, and rows without latencies"):
        Table("odd", _Wire, (TEXT, TEXT), record(str, name=fact("name", "")), group="odd", export_name="odd")
    untimed = Frame(0, 0.0, 1, 1, tables={HANDLERS: {Handler(1, "x"): HandlerRuns(EMPTY, 5, "sda")}})
    assert FrameSums([untimed])[HANDLERS] == {}


def test_no_two_tables_have_a_name_in_common():
    for names in ([table.name for table in TABLES], [table.export_name for table in TABLES]):
        assert len(set(names)) == len(names)


def test_two_tables_of_one_name_are_refused():
    with pytest.raises(TypeError, match="several tables have the name above"):
        require_distinct((*TABLES, ABOVE))
