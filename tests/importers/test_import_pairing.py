"""Pairing of issue and completion: operations on one sector at the same time, and an I/O at the time 0.

The right totals are those of a separate awk program, whose key is device, sector and operation.
"""

import random
import subprocess

import pytest
from test_imports import frames, only, read

from latmon.importers.values import ImportOptions, Remark, op_of
from latmon.model.frame import Series

ALL = ImportOptions(threshold_us=0)
LETTERS = {"R": "read", "WS": "write", "DS": "discard", "FWS": "write", "RA": "read"}
ISSUED, COMPLETED = "block_rq_issue", "block_rq_complete"
FTRACE = "     fio-77      [001] .....  {s}.{us:06}: {event}: 8,0 {rwbs} {size}() {sector} + 8 be,0,4 [fio]"
TRACE_CMD = "  fio-77    [001] {s}.{us:06}: {event}:       8,0 {rwbs} {size}() {sector} + 8 [fio]"
PERF = "  fio    77 [001] {s}.{us:06}: block:{event}: 8,0 {rwbs} {size}() {sector} + 8 [fio]"
BLKPARSE = "  8,0    1 {line:8}  {s:4}.{us:06}000    77  {action}  {rwbs} {sector} + 8 [fio]"
AWK_EVENTS = """
/block_rq_/ {
    for (i = 1; i <= NF; i++) {
        if ($i ~ /block_rq_/) { is_issue = $i ~ /issue/; time = $(i - 1) + 0; rwbs = $(i + 2) }
        if ($i == "+") sector = $(i - 1)
    }
    take()
}
"""
AWK_BLKPARSE = """
$6 == "D" || $6 == "C" { is_issue = $6 == "D"; time = $4; rwbs = $7; sector = $8; take() }
"""
AWK_PAIRS = """
function take() {
    if (substr(rwbs, 1, 2) == "FW") rwbs = substr(rwbs, 2)
    op = substr(rwbs, 1, 1)
    key = sector " " op
    if (is_issue) { begun[key] = time; is_open[key] = 1; return }
    if (!is_open[key]) return
    us = int((time - begun[key]) * 1000000 + 0.5)
    is_open[key] = 0
    n[op]++
    sum[op] += us
    if (us > most[op]) most[op] = us
}
END { for (op in n) print op, n[op], sum[op], most[op] }
"""


def trace(seed, form):
    """Return a trace in which I/Os of several operations are in flight on few sectors, one of each at a time."""
    rng = random.Random(seed)
    in_flight: dict[tuple[int, str], str] = {}
    us = 0 if "line" in form else 10_000_000
    lines = []
    for line in range(1, 401):
        sector, rwbs = 8 * rng.randrange(4), rng.choice(list(LETTERS))
        key = sector, LETTERS[rwbs]
        is_issue = key not in in_flight
        rwbs = in_flight.setdefault(key, rwbs)
        if not is_issue:
            del in_flight[key]
        event, action, size = (ISSUED, "D", "4096 ") if is_issue else (COMPLETED, "C", "")
        lines.append(
            form.format(
                s=us // 1_000_000,
                us=us % 1_000_000,
                event=event,
                action=action,
                rwbs=rwbs,
                size=size,
                sector=sector,
                line=line,
            )
        )
        us += rng.randrange(1, 20_000)
    return "".join(f"{line}\n" for line in lines)


def by_awk(program, text):
    """Return op -> count, sum and maximum in microseconds."""
    done = subprocess.run(
        ["awk", program + AWK_PAIRS],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
    rows = (line.split() for line in done.stdout.splitlines())
    return {LETTERS.get(op, LETTERS.get(f"{op}S")): tuple(map(int, numbers)) for op, *numbers in rows}


def totals(text):
    found: dict[str, list[int]] = {}
    for frame in frames(text):
        for series, histogram in frame.histograms.items():
            if series.stage == "total":
                total = found.setdefault(series.op, [0, 0, 0])
                total[0] += histogram.count
                total[1] += histogram.sum
                total[2] = max(total[2], histogram.max)
    return {op: tuple(total) for op, total in found.items()}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("form", "program"),
    [(FTRACE, AWK_EVENTS), (TRACE_CMD, AWK_EVENTS), (PERF, AWK_EVENTS), (BLKPARSE, AWK_BLKPARSE)],
    ids=["ftrace", "trace-cmd", "perf", "blkparse"],
)
def test_ios_of_several_operations_on_one_sector_are_not_mixed(form, program, seed):
    text = trace(seed, form)
    right = by_awk(program, text)
    assert sorted(right) == ["discard", "read", "write"]
    assert totals(text) == right


REVERSED = """    a-1  [002]  10.000000: block_rq_issue: 65,192 WS 8192 () 1000 + 16 [a]
    b-2  [002]  10.500000: block_rq_issue: 65,192 R 8192 () 1000 + 16 [b]
    c-3  [004]  10.600000: block_rq_complete: 65,192 R () 1000 + 16 [0]
    c-3  [004]  12.000000: block_rq_complete: 65,192 WS () 1000 + 16 [0]
"""


def test_a_read_that_overtakes_a_write_of_its_sector():
    assert totals(REVERSED) == {"read": (1, 100_000, 100_000), "write": (1, 2_000_000, 2_000_000)}


def test_a_completion_of_another_operation_leaves_the_issue_open():
    lines = REVERSED.splitlines(keepends=True)
    other = "    c-3  [004]  90.000000: block_rq_issue: 65,192 R 8192 () 7 + 16 [a]\n"
    other += "    c-3  [004]  90.000100: block_rq_complete: 65,192 R () 7 + 16 [0]\n"
    found = read(lines[0] + lines[2].replace("10.600000", "80.000000") + other)
    (frame,) = found.frames()
    assert {series.op: histogram.max for series, histogram in frame.histograms.items()} == {"read": 100}
    assert "line 4: 1 block_rq_complete without a block_rq_issue, 1 the other way" in frame.health.notice


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_remark_on_the_whole_text_names_its_last_line(end):
    lines = REVERSED.splitlines()
    found = read("\n".join([lines[0], lines[1], lines[2]]) + end)
    (remark,) = (remark for remark in found.found if isinstance(remark, Remark) and "the other way" in remark.text)
    assert (remark.where.first, remark.where.last, len(found.lines)) == (3, 3, 3)


def test_a_partial_completion_keeps_its_operation():
    text = """  8,0    1        1     0.000000000   236  D   R 0 + 16 [dd]
  8,0    1        2     0.000100000   236  D  WS 8 + 8 [dd]
  8,0    1        3     0.001000000     0  C   R 0 + 8 [0]
  8,0    1        4     0.002000000     0  C   R 8 + 8 [0]
  8,0    1        5     0.003000000     0  C  WS 8 + 8 [0]
"""
    assert totals(text) == {"read": (1, 2000, 2000), "write": (1, 2900, 2900)}


@pytest.mark.parametrize("begin", ["D", "Q"])
def test_an_io_that_begins_at_the_time_zero_has_its_time(begin):
    """The first event of each trace of blktrace is at 0.000000000."""
    issue = "  8,0    1        2     0.000000500   236  D   R 0 + 8 [dd]\n" if begin == "Q" else ""
    text = f"  8,0    1        1     0.000000000   236  {begin}   R 0 + 8 [dd]\n{issue}"
    text += "  8,0    1        3     0.008332001     0  C   R 0 + 8 [0]\n"
    frame = only(frames(text, ALL))
    assert frame.histograms[Series("8:0", "read", "total")].sum == 8332
    assert frame.histograms[Series("8:0", "read", "hba")].sum in (8332, 8331)
    outlier = only(frame.outliers)
    assert (outlier.total_us, outlier.wall) == (8332, 0.0)


def test_an_io_that_begins_at_the_time_zero_and_ends_in_a_later_second_begins_there():
    text = "  8,0    1        1     0.000000000   236  D   R 0 + 8 [dd]\n"
    text += "  8,0    1        2     7.250000000     0  C   R 0 + 8 [0]\n"
    frame = only(frames(text))
    assert frame.wall == 8
    assert only(frame.outliers).wall == 0.0


def test_an_io_of_ftrace_at_the_time_zero():
    text = "    a-1  [000]  0.000000: block_rq_issue: 8,0 R 4096 () 0 + 8 [a]\n"
    text += "    a-1  [000]  3.000250: block_rq_complete: 8,0 R () 0 + 8 [0]\n"
    frame = only(frames(text))
    assert totals(text) == {"read": (1, 3_000_250, 3_000_250)}
    assert only(frame.outliers).wall == 0.0


def test_a_row_of_a_tool_that_ended_at_the_time_zero_began_there():
    head = "TIME(s)     COMM           PID     DISK    T    SECTOR     BYTES     LAT(ms)\n"
    row = "0.000000    fio            5120    sda     R    4112       4096    150.000\n"
    assert only(only(frames(head + row)).outliers).wall == 0.0


def test_times_of_slow_ios_are_moved_by_the_start_as_their_windows_are():
    text = "  8,0    1        1     0.000000000   236  D   R 0 + 8 [dd]\n"
    text += "  8,0    1        2     7.250000000     0  C   R 0 + 8 [0]\n"
    frame = only(frames(text, ImportOptions(start=1_700_000_000.0)))
    assert frame.wall == 1_700_000_008
    assert only(frame.outliers).wall == 1_700_000_000


@pytest.mark.parametrize(
    ("rwbs", "op"),
    [
        ("R", "read"),
        ("RAM", "read"),
        ("W", "write"),
        ("FWFS", "write"),
        ("WSM", "write"),
        ("D", "discard"),
        ("DE", "discard"),
        ("F", "flush"),
        ("FF", "flush"),
        ("N", "other"),
        ("ZA", "write"),
        ("ZR", "other"),
        ("ZRA", "other"),
        ("ZF", "other"),
    ],
)
def test_the_first_letters_are_the_operation(rwbs, op):
    assert op_of(rwbs) == op


def test_a_trace_whose_first_number_of_a_cpu_is_zero_is_one_trace():
    text = "  8,0    1        1     0.000000000   236  D   R 0 + 8 [dd]\n"
    text += "  8,0    0        0     0.000100000   236  D   W 64 + 8 [dd]\n"
    text += "  8,0    1        2     0.001000000     0  C   R 0 + 8 [0]\n"
    text += "  8,0    0        1     0.002000000     0  C   W 64 + 8 [0]\n"
    assert totals(text) == {"read": (1, 1000, 1000), "write": (1, 1900, 1900)}
    assert not any(frame.marks for frame in frames(text))


def test_a_second_with_an_earlier_issue_stays_behind_the_second_before_it():
    """An I/O of the second second was issued before the I/Os that end in the first one."""
    steps = [
        (0, ISSUED, "WS", 100), (100_000, ISSUED, "R", 200), (250_000, COMPLETED, "R", 200),
        (1_000_000, COMPLETED, "WS", 100), (1_100_000, ISSUED, "R", 300), (3_200_000, COMPLETED, "R", 300),
    ]  # fmt: skip
    lines = [
        FTRACE.format(s=us // 1_000_000, us=us % 1_000_000, event=event, rwbs=rwbs, size="", sector=sector)
        for us, event, rwbs, sector in steps
    ]
    taken = frames("\n".join(lines), ALL)
    assert [frame.wall for frame in taken] == [1.0, 2.0, 4.0]
    assert [frame.outliers[0].total_us for frame in taken] == [150_000, 1_000_000, 2_100_000]
