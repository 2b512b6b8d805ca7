"""Distributions as other tools print them: edges of rows, impossible rows, units between tables. Totals are awk's."""

import json
import re
import subprocess
from dataclasses import replace

import pytest
from report_json import summarised

from latmon.diff.command import compared
from latmon.diff.output import render
from latmon.importers.registry import import_command, read_text
from latmon.importers.values import ImportedTable, ImportOptions, Remark
from latmon.model.histogram import MAX_US, bucket_bounds
from latmon.recording.reader import open_recording
from latmon.report.text import render_text
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE

OCTAVES = {7: 3, 8: 0, 9: 10, 10: 100, 11: 0, 12: 1, 14: 2}
"""Exponent of a row's upper edge in us -> I/Os."""
SUFFIXES = ("", "K", "M", "G", "T", "P", "E")
ZPOOL_ROWS = (
    "1ns 3ns 7ns 15ns 31ns 63ns 127ns 255ns 511ns 1us 2us 4us 8us 16us 32us 65us 131us 262us 524us 1ms 2ms 4ms 8ms "
    "16ms 33ms 67ms 134ms 268ms 536ms 1s 2s 4s 8s 17s 34s 68s 137s"
)
BRACKETS = "/^\\[/ { n += $3 } END { print n }"
BARS = "/\\|@/ { n += $NF } END { print n }"
ARROWS = "/->/ { n += $5 } END { print n }"
COUNTS = 'BEGIN { RS = "," } /count/ { gsub(/[^0-9]/, ""); n += $0 } END { print n }'
GROWN = '/"\\+Inf"/ { n = $2 - before; before = $2 } END { print n }'
FIRST_COLUMN = "/^[0-9]+[nums]+s? / { n += $2 } END { print n }"
SCRIPT = "io:::done { @[x] = quantize(timestamp - start[arg0]); }\n"
NS, US = 10, 0
"""Steps from an exponent of us to that of the unit."""


def total(text, program):
    """Return what an awk program prints for a text: a count that no code of latmon has made."""
    return int(subprocess.run(["awk", program], input=text, capture_output=True, text=True, check=True).stdout)


def edge(exponent):
    return f"{1 << exponent % 10}{SUFFIXES[exponent // 10]}"


def rows_of(by_octave):
    """Return every row from the first to the last octave, the empty ones too: (exponent of the upper edge, I/Os)."""
    return [(at, by_octave.get(at, 0)) for at in range(min(by_octave), max(by_octave) + 1)]


def bpftrace_text(by_octave, step, name="@lat"):
    lines = [f"[{edge(at + step - 1)}, {edge(at + step)}) {n:>12} |@@@ |" for at, n in rows_of(by_octave)]
    return "\n".join([f"{name}:", *lines, "", ""])


def bpftrace_json(by_octave, step, name="@lat"):
    rows = [{"min": 1 << at + step - 1, "max": (1 << at + step) - 1, "count": n} for at, n in rows_of(by_octave)]
    return json.dumps({"type": "hist", "data": {name: rows}}) + "\n"


def quantize(by_octave, step, key="  sda"):
    rows = [(min(by_octave) - 2, 0), *((at - 1, n) for at, n in rows_of(by_octave)), (max(by_octave), 0)]
    lines = [f"{1 << at + step:>16} |@@ {n:>40}" for at, n in rows]
    return "\n".join([key, "           value  ------------- Distribution ------------- count    ", *lines, "", ""])


def log2(by_octave, step, unit, inclusive=True):
    lines = [f"     {unit:<19} : count     distribution"]
    low = 0
    for at in range(1, max(by_octave) + step + 1):
        high = (1 << at) - 1 if inclusive else 1 << at
        lines.append(f"{low:>12} -> {high:<12} : {by_octave.get(at - step, 0):<8} |***   |")
        low = 1 << at
    return "\n".join(["Tracing block device I/O... Hit Ctrl-C to end.", "", *lines, "", ""])


def dictionary(by_octave, step, unit):
    ends = [(1 << at) - 1 for at in range(1, max(by_octave) + step + 1)]
    begins = [0, *(end + 1 for end in ends)]
    rows = [
        f"{{'interval-start': {low}, 'interval-end': {high}, 'count': {by_octave.get(at - step, 0)}}}"
        for at, (low, high) in enumerate(zip(begins, ends, strict=False), 1)
    ]
    return f"{{'ts': '2026-05-01 10:00:00', 'val_type': '{unit}', 'data': [{', '.join(rows)}]}}\n"


def scrape(by_octave, step, seconds, digits=15):
    """Return two scrapes of ebpf_exporter: `seconds` is that of the unit."""
    scrapes = []
    for factor, wall in ((1, 1_700_000_000_000), (2, 1_700_000_010_000)):
        counted, lines = 0, ["# TYPE ebpf_exporter_bio_latency_seconds histogram"]
        for at, n in [(0, 0), *rows_of(by_octave), ("+Inf", 0)]:
            counted += n * factor
            le = at if at == "+Inf" else f"{(1 << at + step) * seconds:.{digits}g}"
            name = "ebpf_exporter_bio_latency_seconds_bucket"
            lines.append(f'{name}{{device="sda",operation="read",le="{le}"}} {counted} {wall}')
        scrapes.append("\n".join(lines) + "\n")
    return "".join(scrapes)


def finer(by_octave, step):
    """Return hist(x, 3): each octave has eight rows, and its I/Os are in the last of them."""
    lines = []
    for at, n in rows_of(by_octave):
        low, part = 1 << at + step - 1, 1 << at + step - 4
        for eighth in range(8):
            first = low + eighth * part
            lines.append(f"[{kibi(first)}, {kibi(first + part)}) {n if eighth == 7 else 0:>12} |@ |")
    return "\n".join(["@lat:", *lines, "", ""])


def kibi(value):
    power = 0
    while value % 1024 == 0:
        value, power = value // 1024, power + 1
    return f"{value}{SUFFIXES[power]}"


def zpool(by_octave):
    """Return the table of zpool iostat -w: a row is named by its last ns, in three digits."""
    head = "tank         total_wait\nlatency      read  write\n----------  -----  -----\n"
    rows = [f"{name:<10}  {by_octave.get(bits - 10, 0):>5}      0" for bits, name in enumerate(ZPOOL_ROWS.split(), 1)]
    return f"$ zpool iostat -w tank\n{head}" + "\n".join(rows) + f"\n{'-' * 60}\n"


IN_NS = {
    "bpftrace": (bpftrace_text(OCTAVES, NS), ImportOptions(unit="ns"), BRACKETS),
    "bpftrace, keyed": (bpftrace_text(OCTAVES, NS, "@ns[sda, R]"), ImportOptions(), BRACKETS),
    "bpftrace, finer": (finer(OCTAVES, NS), ImportOptions(unit="ns"), BRACKETS),
    "bpftrace-json": (bpftrace_json(OCTAVES, NS, "@nsecs"), ImportOptions(), COUNTS),
    "dtrace": (SCRIPT + quantize(OCTAVES, NS), ImportOptions(), BARS),
    "bcc": (log2(OCTAVES, NS, "nsecs"), ImportOptions(), ARROWS),
    "bcc -j": (dictionary(OCTAVES, NS, "nsecs"), ImportOptions(), COUNTS),
    "perf-tools": (log2(OCTAVES, NS, ">=(ns) .. <(ns)", inclusive=False), ImportOptions(), ARROWS),
    "prometheus": (scrape(OCTAVES, NS, 1e-9), ImportOptions(), GROWN),
    "zpool": (zpool(OCTAVES), ImportOptions(first_report="keep"), FIRST_COLUMN),
}
IN_US = {
    "bpftrace": (bpftrace_text(OCTAVES, US, "@us"), ImportOptions()),
    "dtrace": (quantize(OCTAVES, US), ImportOptions(unit="us")),
    "bcc": (log2(OCTAVES, US, "usecs"), ImportOptions()),
    "prometheus": (scrape(OCTAVES, US, 1e-6), ImportOptions()),
}


def read(text, options=None):
    return read_text(text.encode(), "text", options or ImportOptions())


def only(found):
    (value,) = found
    return value


def histogram(text, options=None):
    """Return the only histogram of a text's only frame that has any."""
    frame = only(frame for frame in read(text, options).frames() if frame.histograms)
    return only(frame.histograms.values())


def by_edges(histogram):
    return {bucket_bounds(index, histogram.bits): n for index, n in histogram.buckets}


def recorded(tmp_path, text, options, name):
    (tmp_path / name).write_text(text)
    out = tmp_path / f"{name}.latmon.jsonl.gz"
    code = import_command(tmp_path / name, out, options)
    return code, out


def latencies(recording):
    return only(only(summarised(recording)["devices"].values())["ops"].values())["latency_us"]


# edges


@pytest.mark.parametrize("name", IN_NS)
def test_powers_of_two_of_ns_are_in_the_octave_of_us_that_ends_with_them(tmp_path, name):
    text, options, program = IN_NS[name]
    actual_histogram = histogram(text, options)
    assert actual_histogram.count == total(text, program) == sum(OCTAVES.values())
    assert by_edges(actual_histogram.coarsen(0)) == {(1 << at - 1, 1 << at): n for at, n in OCTAVES.items() if n}
    assert actual_histogram.bits == (3 if name == "bpftrace, finer" else 0)
    code, out = recorded(tmp_path, text, options, "in_ns")
    q = latencies(open_recording(out))
    assert (q["p50"], q["max_bound"]) == (1_049, 16_777)  # 2^20 and 2^24 ns
    report = " ".join(render_text(summarised(open_recording(out)).report).split())
    assert "powers of two of ns are counted as those of us, 2.4 % below" in report
    assert code == EXIT_DONE


@pytest.mark.parametrize("name", IN_US)
def test_powers_of_two_of_us_are_where_they_were(name):
    text, options = IN_US[name]
    actual_histogram = histogram(text, options)
    assert by_edges(actual_histogram) == {(1 << at - 1, 1 << at): n for at, n in OCTAVES.items() if n}
    assert "powers of two of ns" not in only(read(text, options).frames()).health.notice


@pytest.mark.parametrize("name", [name for name in IN_NS if name not in ("zpool", "bpftrace, finer")])
def test_diff_of_one_distribution_in_us_and_ns_is_no_change(tmp_path, name):
    text, options, _ = IN_NS[name]
    _, a = recorded(tmp_path, bpftrace_text(OCTAVES, US), replace(options, device="sda", op="read", unit="us"), "a")
    _, b = recorded(tmp_path, text, replace(options, device="sda", op="read"), "b")
    report = compared([str(a), str(b)])
    text = render(report)
    assert "x2" not in text
    assert "x0.5" not in text
    shifts = only(report.changes).shift_us.values()
    assert [shift.b_us for shift in shifts] == [shift.a_us for shift in shifts]


@pytest.mark.parametrize("digits", [6, 7, 12])
@pytest.mark.parametrize(("step", "seconds"), [(NS, 1e-9), (US, 1e-6)])
def test_an_edge_of_a_bucket_may_be_rounded(digits, step, seconds):
    text = scrape(OCTAVES, step, seconds, digits)
    assert by_edges(histogram(text)) == {(1 << at - 1, 1 << at): n for at, n in OCTAVES.items() if n}


# impossible rows, and rows beyond the last edge

USUAL = {10: 1_000, 11: 40}
"""Exponent of a row's upper edge in us -> I/Os."""


def far(exponent, count=12):
    """Return the usual I/Os and a row that ends at 2^exponent us, which is 12 of them."""
    return USUAL | {exponent: count}


IMPOSSIBLE = {
    "bcc, us": (log2(far(54), US, "usecs"), ImportOptions()),
    "bcc, ms": (log2(far(44), US, "msecs"), ImportOptions()),
    "bcc -j": (dictionary(far(55), US, "usecs"), ImportOptions()),
    "bcc, keyed": (log2(far(54), US, "usecs").replace("\n\n", "\n\ndisk = 'sdb'\n", 1), ImportOptions()),
    "bpftrace, ns": (bpftrace_text(far(54), NS, "@ns[sda]"), ImportOptions()),
    "bpftrace, option": (bpftrace_text(far(44), US), ImportOptions(unit="ms")),
    "bpftrace-json": (bpftrace_json(far(54), NS, "@ns"), ImportOptions()),
    "bpftrace-json, quoted": (
        bpftrace_json(far(54), NS, "@ns").replace(f"{2**63}", f'"{2**63}"').replace(f"{2**64 - 1}", f'"{2**64 - 1}"'),
        ImportOptions(),
    ),
    "dtrace": (SCRIPT + quantize(far(53), NS), ImportOptions()),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_times_are_named_and_left_out(tmp_path, name):
    text, options = IMPOSSIBLE[name]
    code, out = recorded(tmp_path, text, options, "far")
    assert code == EXIT_INCOMPLETE
    recording = open_recording(out)
    assert latencies(recording)["count"] == sum(USUAL.values())
    report = " ".join(render_text(summarised(recording).report).split())
    assert "12 of 1,052 took" in report
    assert "which is impossible" in report
    assert "min" not in report.partition("coverage")[2].replace("not understood", "")
    assert "bimodal" not in report.partition("not evaluated")[0]


def test_times_below_0_and_of_centuries_are_one_remark():
    text = "@ns[sda]:\n" + "".join(
        f"{bounds:<24} {count} |@@|\n"
        for bounds, count in (
            ("(..., 0)", 7),
            ("[0]", 1),
            ("[1]", 8),
            *((f"[{1 << at}, {2 << at})", 4 if at == 63 else 0) for at in range(1, 64)),
        )
    )
    found = read(text)
    assert [histogram.count for frame in found.frames() for histogram in frame.histograms.values()] == [9]
    (remark,) = (remark for remark in found.found if isinstance(remark, Remark) and remark.is_incomplete)
    words = f"7 of 20 took less than 0 ns and 4 of 20 took {1 << 63} ns or more, which is impossible"
    assert remark.text.startswith(words)
    assert remark.count == 11
    assert found.exit_code == EXIT_INCOMPLETE


def test_an_interval_with_impossible_times_alone_keeps_its_length():
    prints_of = [(5, USUAL), (10, {54: 12}), (15, USUAL)]
    text = "".join(f"10:00:{second:02}\n{bpftrace_text(rows, NS, '@ns')}" for second, rows in prints_of)
    found = read(text)
    frames = list(found.frames())
    assert [frame.dt_us for frame in frames] == [5_000_000] * 3
    assert [histogram.count for frame in frames for histogram in frame.histograms.values() if histogram] == [1_040] * 2
    assert found.exit_code == EXIT_INCOMPLETE


def test_the_other_table_of_a_print_with_impossible_times_is_whole():
    text = bpftrace_text(far(54), NS, "@ns[sda]") + bpftrace_text(USUAL, NS, "@ns[sdb]")
    frame = only(read(text).frames())
    assert {series.device: histogram.count for series, histogram in frame.histograms.items()} == {
        "ns[sda]": 1_040,
        "ns[sdb]": 1_040,
    }
    assert total(text, BRACKETS) == 2 * 1_040 + 12


def test_an_event_that_took_decades_is_left_out():
    head = "TIME(s)  COMM  PID  DISK  T  SECTOR  BYTES  LAT(ms)\n"
    rows = "".join(f"{at}.5  fio  10  sda  R  {at * 8}  4096  {ms}\n" for at, ms in ((1, "0.5"), (2, "999999999999.0")))
    found = read(head + rows)
    assert sum(histogram.count for frame in found.frames() for histogram in frame.histograms.values()) == 1
    assert found.exit_code == EXIT_INCOMPLETE


BEYOND = {
    "bcc, us": (log2(far(34), US, "usecs"), ImportOptions(), MAX_US),
    "bcc, ms": (log2(far(24), US, "msecs"), ImportOptions(), MAX_US),
    "bpftrace, ns": (bpftrace_text(far(33), NS, "@ns"), ImportOptions(), MAX_US),
    "bpftrace-json, s": (bpftrace_json(far(13), US), ImportOptions(unit="s"), 4_096_000_000),
    "dtrace": (quantize(far(40), US), ImportOptions(unit="us"), MAX_US),
    "prometheus": (scrape(far(34), US, 1e-6), ImportOptions(), MAX_US),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_row_beyond_the_last_edge_is_at_least_that(tmp_path, name):
    text, options, from_us = BEYOND[name]
    code, out = recorded(tmp_path, text, options, "beyond")
    assert code == EXIT_DONE
    recording = open_recording(out)
    q = latencies(recording)
    assert (q["count"], q["open_from"], q["or_more"]) == (1_052, from_us, ["p99", "p99.9", "max"])
    assert "max_bound" not in q
    report = " ".join(render_text(summarised(recording).report).split())
    assert ("≥71min" if from_us == MAX_US else "≥68min") in report
    assert "72 min" not in report
    assert "at most" not in report.partition("not evaluated")[0]


def test_an_open_row_is_a_finding_from_its_lower_edge_on(tmp_path):
    rows = "".join(f"{at:>10} |@ {n}\n" for at, n in ((0, 0), (1, 99_000), (2, 0), (3, 0)))
    text = f"value  ------------- Distribution ------------- count\n{rows}  >= 1000 |@ 700\n"
    _, out = recorded(
        tmp_path,
        text.replace("         2 ", "         10 ").replace("  3 ", "  100 "),
        ImportOptions(unit="ms"),
        "open",
    )
    report = " ".join(render_text(summarised(open_recording(out)).report).split())
    assert "700 of 99.7k I/Os take" in report
    assert "67 min" not in report
    assert "the slowest took" not in report


# upper edges that are the next row's begin


def exclusive(unit, rows, above="latency"):
    lines = [f"{low:>10} -> {high:<10} : {n:<8} |**    |" for low, high, n in rows]
    return "\n".join([above, f"        {unit:<16} : count    distribution", *lines, "", ""])


DOUBLING = [(0, 1), (1, 2), *((1 << at, 2 << at) for at in range(1, 24))]
EXCLUSIVE = {
    "µs": (exclusive("µs", [(*edges, n) for n, edges in enumerate(DOUBLING)]), 1),
    "usecs": (exclusive("usecs", [(*edges, n % 5) for n, edges in enumerate(DOUBLING)]), 1),
    "nsecs": (exclusive("nsecs", [(*edges, 10 * (n > 12)) for n, edges in enumerate(DOUBLING)]), 2**-10),
    "msecs": (exclusive("msecs", [(*edges, n % 3) for n, edges in enumerate(DOUBLING[:9])]), 1_000),
    "two rows": (exclusive("usecs", [(0, 1, 4), (1, 2, 7)]), 1),
    "keyed": (exclusive("usecs", [(*edges, 1 + n % 4) for n, edges in enumerate(DOUBLING)], "disk = 'sda'"), 1),
}


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_an_upper_edge_may_be_the_next_rows_begin(name):
    text, unit_us = EXCLUSIVE[name]
    actual_histogram = histogram(text)
    assert actual_histogram.count == total(text, ARROWS)
    highest = only(table for table in read(text).found if isinstance(table, ImportedTable)).rows[-1]
    assert highest.high == max(int(line.split()[2]) for line in text.splitlines() if "->" in line)
    last_us = highest.high * unit_us
    assert last_us <= actual_histogram.max_bound <= 1.13 * last_us


def test_an_upper_edge_in_a_dictionary_may_be_the_next_rows_begin():
    text = dictionary(OCTAVES, US, "usecs")
    ends_at_begins = re.sub(r"'interval-end': (\d+)", lambda end: f"'interval-end': {int(end[1]) + 1}", text)
    assert ends_at_begins != text
    assert by_edges(histogram(ends_at_begins)) == by_edges(histogram(text))


def test_bpftraces_json_may_have_the_next_rows_begin():
    text = bpftrace_json(OCTAVES, US, "@us")
    ends_at_begins = re.sub(r'"max": (\d+)', lambda end: f'"max": {int(end[1]) + 1}', text)
    assert by_edges(histogram(ends_at_begins)) == by_edges(histogram(text))


def test_edges_of_both_kinds_in_one_table_are_damage():
    rows = [(0, 1, 4), (1, 2, 7), (2, 3, 5), (4, 8, 1)]
    found = read(exclusive("usecs", rows) + exclusive("usecs", [(0, 1, 4), (2, 3, 7)]))
    assert [histogram.count for frame in found.frames() for histogram in frame.histograms.values()] == [11]
    assert found.exit_code == EXIT_INCOMPLETE


# units between tables

DISKS = ("sda", "sdb", "nvme0n1")
TIMES = ("2026 Mar  1 10:00:00", "2026 Mar  1 10:00:05", "2026 Mar  1 10:00:10")


def prints(between, table, times=TIMES):
    """Return a print at each time with a table of each disk and a line below each."""
    parts = [
        f"{wall}\n" + "".join(table(at * 10 + number, disk) + between for number, disk in enumerate(DISKS, 1))
        for at, wall in enumerate(times, 1)
    ]
    return "\n".join(parts) + "\n"


def linear(count, disk):
    rows = "".join(f"{at:>16} |@@ {n}\n" for at, n in ((0, 0), (10, count), (20, 3), (30, 0)))
    return f"  {disk}\n           value  ------------- Distribution ------------- count    \n{rows}"


def octaves_of(count, disk):
    return quantize({3: count, 4: 3}, US, f"  {disk}").rstrip("\n") + "\n"


def keyed_map(count, disk):
    return bpftrace_text({3: count, 4: 3}, US, f"@[{disk}]").rstrip("\n") + "\n"


def bcc_table(count, disk):
    rows = f"         0 -> 1          : {count:<8} |**** |\n         2 -> 3          : 3        |*    |\n"
    return f"disk = '{disk}'\n     usecs               : count     distribution\n{rows}"


UNITS_BETWEEN = {
    "(ms)": (prints("        (ms)\n", linear), BARS),
    "blank, (us)": (prints("\n  (us)\n\n", octaves_of), BARS),
    "[usecs]": (prints("[usecs]\n\n", octaves_of), BARS),
    "times are in": (prints("times are in milliseconds\n", linear), BARS),
    "unit: ns": (prints("unit: ns\n\n", octaves_of), BARS),
    "latency (ms)": (prints("\nlatency (ms)\n\n", linear), BARS),
    "bpftrace": (prints("(us)\n\n", keyed_map, ("10:00:00", "10:00:05", "10:00:10")), BRACKETS),
    "bcc": (prints("(usecs)\n\n", bcc_table, ("10:00:00", "10:00:05", "10:00:10")), ARROWS),
}


@pytest.mark.parametrize("name", UNITS_BETWEEN)
def test_a_unit_below_each_table_does_not_end_the_print(name):
    text, program = UNITS_BETWEEN[name]
    found = read(text)
    frames = list(found.frames())
    assert [frame.dt_us for frame in frames] == [5_000_000] * 3
    assert [frame.wall - frames[0].wall for frame in frames] == [0, 5, 10]
    assert {len(frame.histograms) for frame in frames} == {len(DISKS)}
    assert sum(histogram.count for frame in frames for histogram in frame.histograms.values()) == total(text, program)
    assert not found.left
    unit = {table.unit for table in found.found if isinstance(table, ImportedTable)}
    assert len(unit) == 1


def test_a_unit_directly_behind_a_table_is_not_the_key_of_the_next():
    table = linear(5, "sda").split("\n", 1)[1]
    frames = list(read(f"{table}(ms)\n{table}(ms)\n").frames())
    assert [list(frame.histograms) for frame in frames] == [[only(frames[0].histograms)]] * 2


def test_each_table_has_the_unit_that_is_nearest():
    text = f"(us)\n{octaves_of(5, 'sda')}\n(ms)\n{octaves_of(6, 'sdb')}"
    units = [table.unit for table in read(text).found if isinstance(table, ImportedTable)]
    assert units == ["us", "ms"]


# last rows of tools that have no higher one


def limited(by_octave, sentence="Attaching 1 probe...", name="@ns"):
    return f"{sentence}\n\n\n" + bpftrace_text(by_octave, 0, name)


LAST = {31: 3, 32: 5}


@pytest.mark.parametrize("text", [limited(LAST), limited(LAST, "Attaching 5 probes..."), limited(LAST, "", "@ns[sda]")])
def test_the_last_row_of_an_earlier_bpftrace_is_open(tmp_path, text):
    code, out = recorded(tmp_path, text, ImportOptions(), "old")
    q = latencies(open_recording(out))
    assert (q["count"], q["open_from"], q["or_more"]) == (8, 2_147_483, ["p50", "max"])
    assert code == EXIT_DONE


@pytest.mark.parametrize(
    "text",
    [limited(LAST, "Attached 2 probes"), limited(LAST) + bpftrace_text({33: 1}, 0, "@other_ns"), limited({31: 8})],
)
def test_a_row_of_a_later_bpftrace_ends(tmp_path, text):
    _, out = recorded(tmp_path, text, ImportOptions(), "new")
    assert "≥" not in render_text(summarised(open_recording(out)).report)


def test_the_row_of_2g_in_a_linear_table_ends():
    text = "@ns:\n[0, 2G) 4 |@ |\n[2G, 4G) 5 |@ |\n"
    table = only(table for table in read(text).found if isinstance(table, ImportedTable))
    assert (table.kind, table.rows[-1].high) == ("lhist", 1 << 32)


BLOCK = "Tracing block device I/O... Hit Ctrl-C to end."
SLOTS = {
    "funclatency": ("Tracing vfs_read.  Hit Ctrl-C to exit", "nsecs", 25),
    "runqlat": ("Tracing run queue latency... Hit Ctrl-C to end.", "usecs", 26),
    "biolatency": (BLOCK, "usecs", 27),
    "biolatency -m": (BLOCK, "msecs", 27),
    "ext4dist": ("Tracing ext4 operation latency... Hit Ctrl-C to end.", "usecs", 32),
    "without a sentence": ("", "usecs", 26),
}
"""MAX_SLOTS in the headers of libbpf-tools."""


@pytest.mark.parametrize("name", SLOTS)
def test_the_last_row_of_libbpf_tools_is_open(name):
    sentence, unit, slots = SLOTS[name]
    text = log2({slots - 2: 40, slots: 6}, US, unit).replace(BLOCK, sentence)
    short = text.replace(": count     dist", ": count    dist")
    assert short != text
    tables = [
        only(imported_table for imported_table in read(each).found if isinstance(imported_table, ImportedTable))
        for each in (text, short)
    ]
    assert [table.count for table in tables] == [total(text, ARROWS)] * 2
    assert [table.rows[-1].high for table in tables] == [1 << slots, None]


@pytest.mark.parametrize(("name", "slots"), [("biolatency", 25), ("biolatency", 26), ("runqlat", 25), ("ext4dist", 27)])
def test_a_row_below_the_last_one_of_its_tool_ends(name, slots):
    sentence, unit, _ = SLOTS[name]
    text = log2({slots - 2: 40, slots: 6}, US, unit).replace(BLOCK, sentence)
    found = read(text.replace(": count     dist", ": count    dist")).found
    table = only(table for table in found if isinstance(table, ImportedTable))
    assert (table.count, table.rows[-1].high) == (total(text, ARROWS), 1 << slots)


def test_the_last_row_of_zpool_is_open(tmp_path):
    _, out = recorded(tmp_path, zpool({20: 50, 27: 4}), ImportOptions(first_report="keep"), "pool")
    q = latencies(open_recording(out))
    assert (q["count"], q["open_from"], q["or_more"]) == (54, 68_719_476, ["max"])


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "".join(f"@ms_{n}:\n[1]   5 |@@|\n\n" for n in range(12)),
            ["unit ms by the title in line 1 and others like it, for 12 tables"],
        ),
        ("".join(f"@ms_{n}:\n[1]   5 |@@|\n\n" for n in range(1)), ["unit ms by the title in line 1"]),
        (
            "".join(f"@{unit}_{n}:\n[1]   5 |@@|\n\n" for n in range(2) for unit in ("us", "ms")),
            [
                "unit us by the title in line 1 and others like it, for 2 tables",
                "unit ms by the title in line 4 and others like it, for 2 tables",
            ],
        ),
        (
            "".join(log2(USUAL, US, "usecs") + "\n" for _ in range(3)),
            ["unit us by the head of the table, for 3 tables"],
        ),
    ],
)
def test_a_unit_is_named_once_for_each_reason(tmp_path, capsys, text, sentences):
    path = tmp_path / "ticket.txt"
    path.write_text(text)
    import_command(path, tmp_path / "out.latmon.jsonl.gz", ImportOptions())
    shown = [line for line in capsys.readouterr().err.splitlines() if "unit " in line and "assumed: " in line]
    assert [line.partition("assumed: ")[2] for line in shown] == sentences
