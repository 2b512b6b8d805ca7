"""The decoder of marked DTrace output: a real stream in any portions, edges of all distributions, anything else."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode import dtrace_aggregation
from latmon.decode.dtrace_aggregation import PrintedRow, Row, Scalar, bounded, kind_of
from latmon.support.text import is_clean
from latmon_backends.dtrace import probe as dtrace_decoder
from latmon_backends.dtrace.probe import DtraceDecoder, OutputLine, PrintedTable
from latmon_backends.probe.events import UndecodedLine

GOLDEN = Path(__file__).resolve().parents[1] / "golden/dtrace"
STREAM = (GOLDEN / "36_sentinels.out").read_bytes()
HEAD = b"           value  ------------- Distribution ------------- count    \n"


def events(data, portion=None):
    decoder = DtraceDecoder()
    step = portion or len(data) or 1
    events = [event for at in range(0, len(data), step) for event in decoder.feed(data[at : at + step])]
    return events + decoder.close()


def table(*rows, name="m", end=b"@@E\n"):
    """One distribution as DTrace prints it."""
    lines = b"".join(b"%16s |%-40s %-9d\n" % (label.encode(), b"@" * 3, count) for label, count in rows)
    return b"@@Q %s\tvda\t0\t\n%s%s%s" % (name.encode(), HEAD, lines, end)


def one(data):
    (event,) = events(data)
    return event


def edges(*labels):
    return [(row.low, row.high) for row in one(table(*((label, 1) for label in labels))).rows]


# Portions


def test_the_stream_gives_the_same_events_whole_and_byte_by_byte():
    whole_events = events(STREAM)
    assert events(STREAM, 1) == whole_events
    assert not [event for event in whole_events if isinstance(event, UndecodedLine)]
    assert all(event.whole for event in whole_events if isinstance(event, PrintedTable))


def test_any_portions_give_the_same_events():
    draw, whole_events = random.Random(4), events(STREAM)
    for _ in range(20):
        decoder, found, at = DtraceDecoder(), [], 0
        while at < len(STREAM):
            size = draw.choice((1, 7, 100, 5000))
            found += decoder.feed(STREAM[at : at + size])
            at += size
        assert found + decoder.close() == whole_events


# What the kernel counted twice


def last(kind):
    """Return the maps printed at the end, by name and keys."""
    return {(event.name, event.keys): event for event in events(STREAM) if isinstance(event, kind)}


def test_distributions_have_what_the_same_clause_counted():
    scalars, tables = last(Scalar), last(PrintedTable)
    assert len(tables) == 6
    for (name, keys), table in tables.items():
        counted = scalars["io_x_count", keys].value
        assert sum(row.count for row in table.rows) == counted, name
    assert scalars["io_x_all", ()].value == 6966
    assert {keys: scalars["io_x_count", keys].value for name, keys in tables if name == "io_x_pow"} == {
        ("vda", "0"): 6032,
        ("vda", "1"): 913,
        ("vda", "3"): 21,
    }


def test_every_row_that_is_in_the_text_is_in_the_tables():
    actual_events = [event for event in events(STREAM) if isinstance(event, PrintedTable)]
    in_text = [int(line.split()[-1]) for line in STREAM.split(b"\n") if b"|" in line]
    assert [row.count for event in actual_events for row in event.rows] == in_text
    assert len(in_text) == 1108


def test_sums_lie_within_the_edges():
    scalars, tables = last(Scalar), last(PrintedTable)
    for keys in (("vda", "0"), ("vda", "1"), ("vda", "3")):
        total = scalars["io_x_sum", keys].value
        eighths, powers = tables["io_x_total", keys].rows, tables["io_x_pow", keys].rows
        assert sum(row.low * row.count for row in eighths) / 8 <= total + 8 * len(eighths)
        assert total <= sum(row.high * row.count for row in eighths if row.count) / 8
        assert sum(row.low * row.count for row in powers) <= total <= sum(row.high * row.count for row in powers)


def test_the_lines_of_a_tick():
    lines = [event.text for event in events(STREAM) if isinstance(event, OutputLine)]
    assert lines[0] == "ready io_x 47617220184322"
    kinds = Counter(text.split()[0] for text in lines)
    assert kinds["tick"] == kinds["done"] > 9
    assert (kinds["ready"], kinds["last"]) == (1, 1)


# Lines


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"@@S m\tvda\t0\t123", Scalar("m", ("vda", "0"), 123)),
        (b"@@S m\t-9223372036854775808", Scalar("m", (), -(2**63))),
        (b"@@S m\t\t5\t1", Scalar("m", ("", "5"), 1)),
        ("@@S m\tnaïve-µs\t1".encode(), Scalar("m", ("naïve-µs",), 1)),
        (b"@@S m\tbad\xff\t1", Scalar("m", ("bad\ufffd",), 1)),
        (b"@@ slow io_x 1 2 a name with blanks ", OutputLine("slow io_x 1 2 a name with blanks ")),
        (b"@@ \x1b[2J", OutputLine("\x1b[2J")),
    ],
)
def test_a_line_of_ours(line, event):
    assert one(line + b"\n") == event


@pytest.mark.parametrize(
    "line",
    [
        *(b"@@", b"@@E", b"@@T 1", b"@@S", b"@@S ", b"@@S m", b"@@S m\tx", b"@@S m\t1.5", b"@@S m\t1 ", b"@@S \t1"),
        *(b"@@S m\t" + b"9" * 21, b"@@S m\t1_000", "@@S m\t٣".encode(), b"@@Q \tvda\t", b"@@Qm", b" @@ x", b"text"),
        *(b"\xff\xfe\0\x1b[2J", b"            1024 |@@@    12   ", HEAD.strip(), b"x" * 9999),
    ],
)
def test_a_line_that_is_not_understood_is_counted(line):
    event = one(line + b"\n")
    assert isinstance(event, UndecodedLine)
    assert is_clean(event.line)
    assert len(event.line) <= 200


def test_blank_lines_say_nothing():
    rows = table(("1", 0), ("2", 7), ("4", 0))
    assert one(b"\n \n\n" + rows + b"\n\n") == one(rows)


def test_a_key_is_what_stands_between_tabs():
    assert one(b"@@Q m\t\n" + HEAD + b"               1 | 0\n@@E\n").keys == ()
    assert one(b"@@Q m\t\t\n" + HEAD + b"               1 | 0\n@@E\n").keys == ("",)
    assert one(table(("1", 5))).keys == ("vda", "0")


# Tables without their end


@pytest.mark.parametrize(
    "end", [b"", b"@@ tick x 1 2\n", b"@@S m\t1\n", b"noise\n", b"@@Q other\tx\t\n", b" 5 | 1", HEAD]
)
def test_a_table_without_its_end_is_not_whole(end):
    actual_events = [event for event in events(table(("1", 0), ("2", 7), end=end)) if isinstance(event, PrintedTable)]
    assert actual_events[0] == PrintedTable("m", ("vda", "0"), (Row(1, 2, 0), Row(2, 4, 7)), whole=False)
    assert not any(event.whole for event in actual_events)


@pytest.mark.parametrize("step", [40, pytest.param(3, marks=pytest.mark.slow)])
def test_every_cut_loses_at_most_the_last_line(step):
    ending = STREAM[STREAM.rindex(b"@@ last") :]
    whole_events = events(ending)
    for cut in range(20, len(ending), step):
        actual_events = events(ending[:cut])
        while actual_events and (
            isinstance(actual_events[-1], UndecodedLine) or not getattr(actual_events[-1], "whole", True)
        ):
            actual_events.pop()
        assert actual_events == whole_events[: len(actual_events)]


def test_a_table_needs_its_header_and_rows():
    assert not one(b"@@Q m\tx\t\n@@E\n".replace(b"@@E\n", HEAD + b"@@E\n")).whole
    by_key = events(table(("1", 1)).replace(b"value", b"  key"))
    assert by_key[0] == PrintedTable("m", ("vda", "0"), (), whole=False)
    assert all(isinstance(event, UndecodedLine) for event in by_key[1:])


def test_labels_in_no_order_are_not_understood():
    for labels in (
        ("4", "2"),
        ("1", "1"),
        (">= 5", "6"),
        ("1", "< 2"),
        ("1", "<= 2"),
        ("-1", "-5"),
        ("2", "abs() < 1"),
    ):
        event = one(table(*((label, 1) for label in labels)))
        assert event == UndecodedLine("m vda 0: labels that don't go together")


# Edges


def test_quantize_mirrors_its_buckets_below_0():
    assert edges("-4", "-2", "-1", "0", "1", "2", "4") == [
        *((-7, -3), (-3, -1), (-1, 0), (0, 1)),
        *((1, 2), (2, 4), (4, 8)),
    ]


def test_the_ends_of_quantize_hold_all_of_64_bits():
    large = 1 << 62
    assert edges(str(large // 2), str(large)) == [(large // 2, large), (large, 2 * large)]
    assert edges(str(-large), str(-large // 2)) == [(-2 * large, 1 - large), (1 - large, 1 - large // 2)]


def test_lquantize_does_not():
    assert edges("-6", "-4", "-2") == [(-6, -4), (-4, -2), (-2, None)]
    assert edges("< -10", "-10", "0", "10", ">= 20") == [(None, -10), (-10, 0), (0, 10), (10, 20), (20, None)]
    assert edges("< 60000", "60000") == [(None, 60000), (60000, None)]


def test_llquantize_has_steps_that_change():
    assert edges("8", "9", "10", "15", "20") == [(8, 9), (9, 10), (10, 15), (15, 20), (20, None)]
    assert edges("900", "1000", ">= 2000") == [(900, 1000), (1000, 2000), (2000, None)]


def test_oracles_llquantize_mirrors_too_and_names_what_is_too_small():
    assert edges("<= -10000", "-9000", "-1000", "-900", "-100", "abs() < 100", "100", "200") == [
        *((None, -9999), (-9999, -8999), (-8999, -999), (-999, -899), (-899, -99)),
        *((-99, 100), (100, 200), (200, None)),
    ]
    assert edges("-960", "-896", "-832", "-704")[0] == (None, -959)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (("-1", "0", "1"), "quantize"),
        (("2", "3", "4", "5"), "lquantize"),
        (("90", ">= 100"), "lquantize"),
        (("< 0", "0"), ""),
        (("7",), ""),
        (("abs() < 8", "8", "9"), "llquantize"),
        (("9000000", "9500000", ">= 10000000"), "lquantize"),  # even that is unknown
        (("90", "100", "200"), "llquantize"),
    ],
)
def test_what_labels_report_of_the_kind(labels, kind):
    printed = PrintedRow()
    assert all(printed.take(f"{label} | 1") for label in labels)
    assert kind_of(printed) == kind
    assert bounded(printed)


@pytest.mark.parametrize(
    ("line", "label", "count"),
    [
        ("              64 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 123456789017", 64, 123456789017),
        ("              64             @@@@@@@@|                     -5       ", 64, -5),
        ("             128                     |@@@@@@@@@@@@         7        ", 128, 7),
        ("4611686018427387904 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 1", 4611686018427387904, 1),
        ("-1 |                                         0", -1, 0),
        ("              16 |\u2588\u2588\u2588\u2589                                     7        ", 16, 7),
        ("\t16\t|@@\t7", 16, 7),
    ],
)
def test_rows(line, label, count):
    printed = PrintedRow()
    assert printed.take(line)
    assert (printed.labels, printed.counts) == ([label], [count])


@pytest.mark.parametrize(
    "line",
    [
        *(
            "16 |@@ x",
            "16 |@@",
            "x |@@ 1",
            "16 @@ 1",
            "16|@@ 1",
            "16 |@@1",
            "16 |x 1",
            "= 16 | 1",
            "1 | 2 | 3",
            "+1 | 1",
        ),
        *("1_0 | 1", "\u0661 | 1", "1" * 21 + " | 1", "1 | " + "1" * 21, "1.5 | 2", "", "|", " | 1", "- | 1"),
        *("vda       |    1|         1|1", "        1     < 0 : \u2581\u2581\u2581\u2581 \u2581: >= 40    | 32001"),
    ],
)
def test_no_rows(line):
    assert not PrintedRow().take(line)


# Bounds


def test_a_line_that_is_too_long_is_given_up_in_any_portions_and_the_next_one_is_read():
    long = b"@@ " + b"x" * dtrace_decoder.MAX_LINE + b"\n@@ next\n"
    wanted = [UndecodedLine("a line longer than 1 MiB"), OutputLine("next")]
    assert events(long) == events(long, 4096) == events(long, 1 << 19) == wanted
    assert events(b"y" * (dtrace_decoder.MAX_LINE + 1)) == wanted[:1]
    assert len(events(b"@@ " + b"x" * (dtrace_decoder.MAX_LINE - 3) + b"\n")[0].text) == dtrace_decoder.MAX_LINE - 3


def test_what_is_kept_is_bounded(monkeypatch):
    for module in (dtrace_decoder, dtrace_aggregation):
        monkeypatch.setattr(module, "MAX_ROWS", 50)
    monkeypatch.setattr(dtrace_decoder, "MAX_KNOWN", 20)
    decoder = DtraceDecoder()
    for count in (0, 1):
        found = decoder.feed(table(*((str(label), count) for label in range(3, 100))))
        assert (len(found[0].rows), found[0].whole) == (50, False)
        assert len(found) == 1 + 47 + 1
        assert len(decoder._empty) <= 20
    for _ in range(300):
        decoder.feed(b"x" * 10_000)
        assert len(decoder._whole_lines._rest) <= dtrace_decoder.MAX_LINE


def test_a_row_is_remembered_by_all_of_its_bytes():
    decoder = DtraceDecoder()
    first = decoder.feed(table(("1", 0), ("2", 5), ("4", 0)))
    assert decoder.feed(table(("1", 0), ("2", 5), ("4", 0))) == first
    assert sum(row.count for row in decoder.feed(table(("1", 1), ("2", 0), ("4", 2)))[0].rows) == 3
    open_ended = table(("< 0", 0), ("0", 0), (">= 5", 0))
    assert decoder.feed(open_ended) == decoder.feed(open_ended) == events(open_ended)
    assert decoder._empty.keys() == {line for line in decoder._empty if b"<" not in line and b">" not in line}


@pytest.mark.parametrize("filler", [b" ", b"@", b"|", b"1", b"-", b"1 ", b"@ ", b"< ", "\u2588".encode()])
def test_a_hostile_line_costs_little(filler):
    line = filler * (100_000 // len(filler))
    for way in (b"", b"1 ", b"1 |", b"1 |@ "):
        events(b"@@Q m\tx\t\n" + HEAD + way + line + b"\n@@E\n@@S " + line + b"\n@@ " + line)


# Anything


SPLINTERS = (
    *(b"@@", b"@@E\n", b"@@S ", b"@@Q ", b"@@ ", b"\t", b"\n", b"|", b">= ", b"< ", b"<= ", b"abs() < ", b"-", b" "),
    *(b"\xff", b"\xe2\x96\x88", b"9" * 30, b"-1", b"0", HEAD, b"value", b"_", b"\r", b"\0", b"\x1b["),
)


def mutated(data, draw):
    data = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at, way = int(draw.random() * len(data)), draw.randrange(5)
        if way == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif way == 1:  # a line is lost
            end = data.find(b"\n", at)
            del data[at : end + 1 if end >= 0 else None]
        elif way == 2:
            data[at:at] = draw.choice(SPLINTERS)
        elif way == 3:
            data[at : at + 1] = data[-draw.randrange(1, 60) :]
        else:
            del data[max(1, at) :]
    return bytes(data)


def decode_mutants(count, seed):
    draw, decoder = random.Random(seed), DtraceDecoder()
    lines = [line + b"\n" for line in STREAM.split(b"\n")[10:26]]
    inputs = [
        b"".join(lines),
        table(("-2", 0), ("-1", 3), ("0", 0), ("1", 4)),
        table(("< 0", 0), ("0", 3), (">= 9", 0)),
    ]
    inputs += [table(("<= -9", 1), ("-8", 3), ("abs() < 8", 0), ("8", 4)), *lines]
    for _ in range(count):
        for event in decoder.feed(mutated(draw.choice(inputs), draw)):
            if isinstance(event, UndecodedLine):
                assert is_clean(event.line)
            elif isinstance(event, PrintedTable):
                assert all(row.high == other.low for row, other in zip(event.rows, event.rows[1:], strict=False))


@pytest.mark.parametrize("mutants", [30_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutants_never_raise(mutants):
    decode_mutants(mutants, seed=2)


@given(st.binary(max_size=300), st.integers(1, 20))
def test_any_bytes_in_any_portions(data, portion):
    assert events(data, portion) == events(data)


@given(
    st.lists(st.sampled_from([*SPLINTERS, *re.split(rb"(?<=\n)", STREAM[500:2500])]), max_size=30), st.integers(1, 40)
)
def test_any_lines_in_any_portions(parts, portion):
    data = b"".join(parts)
    assert events(data, portion) == events(data)
