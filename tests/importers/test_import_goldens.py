"""Totals of each golden by a pattern of its own, and the table of docs/IMPORT.md that lists the goldens.

./bootstrap python tests/importers/test_import_goldens.py        prints the table
"""

import csv
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from latmon.importers.registry import read_text
from latmon.importers.values import ImportOptions
from latmon.support.errors import LatmonError

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/imports"
HERE, SOURCES = "the tool, run for it", "hand, after its sources"


def rows(pattern: str, flags: re.RegexFlag = re.MULTILINE) -> Callable[[str], int]:
    """Return the sum of what the group of a pattern matches."""
    return lambda text: sum(int(one) for one in re.findall(pattern, text, flags))


def lines(pattern: str) -> Callable[[str], int]:
    """Return the number of lines that a pattern matches."""
    return lambda text: len(re.findall(pattern, text, re.MULTILINE))


def grown(pattern: str) -> Callable[[str], int]:
    """Return by how much counters grew, whose name and value are the groups of a pattern."""

    def total(text: str) -> int:
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        for name, value in re.findall(pattern, text, re.MULTILINE):
            last[name] = float(value.replace(",", ""))
            first.setdefault(name, last[name])
        return round(sum(last[name] - first[name] for name in last))

    return total


def rates(*columns: str, since: int = 1, seconds: float = 1.0) -> Callable[[str], int]:
    """Return rates of columns x seconds, summed over the rows of all reports but the first `since`."""

    def total(text: str) -> int:
        head, report, found = list[str](), 0, 0.0
        for line in text.splitlines():
            words = line.split()
            if {*columns} & {*words}:
                report += not head or words == head or words[-1] in ("Device", "DEV")
                head = words
            elif head and len(words) == len(head) and report > since and words[0] != "Average:":
                found += sum(float(words[head.index(column)]) for column in columns if column in head)
        return round(found * seconds)

    return total


def buckets(*signs: tuple[int, str]) -> Callable[[str], int]:
    """Return the sum of counters of a latency monitor: of logs by their numbers, with signs, `Active` or `Static`."""

    def total(text: str) -> int:
        logs = text.split('"Feature Status"')
        return sum((1 if at > 0 else -1) * _counters(logs[abs(at)], kind) for at, kind in signs)

    return total


def _counters(log: str, kind: str) -> int:
    blocks = re.findall(rf'"{kind} Bucket Counter: Bucket \d": ?{{([^}}]*)}}', log)
    return sum(int(one) for block in blocks for one in re.findall(r": ?(\d+)", block))


def esxtop(text: str) -> int:
    """Return reads and writes of disks by esxtop's rates and the time since the sample before, 1 s for the first."""
    head, *samples = csv.reader(text.splitlines())
    disk = re.compile(
        r"\\(Physical Disk (SCSI Device|NFS Volume)\([^\\]+|Virtual Disk\([^\\]+:scsi\d+:\d+)\)\\(Reads|Writes)/sec"
    )
    places = [at for at, name in enumerate(head) if disk.search(name)]
    times = [datetime.strptime(sample[0], "%m/%d/%Y %H:%M:%S").replace(tzinfo=UTC) for sample in samples]
    seconds = [1.0, *((b - a).total_seconds() for a, b in pairwise(times))]
    return sum(round(float(sample[at]) * s) for sample, s in zip(samples, seconds, strict=True) for at in places)


def awk(program: str) -> Callable[[str], int]:
    """Return what an awk program prints for a text; `add(rate)` adds I/Os, rounded, of `s` seconds."""
    whole = f"function add(rate) {{ n += int(rate * s + .5) }} BEGIN {{ s = 1 }} {program} END {{ print n }}"

    def total(text: str) -> int:
        done = subprocess.run(["awk", whole], input=text, capture_output=True, text=True, check=True)
        return int(done.stdout)

    return total


class Golden(NamedTuple):
    """A golden: what printed it, whether it ran or was written after the tool's sources, its total by a pattern."""

    format: str
    tool: str
    origin: str
    total: Callable[[str], int] | int
    off: int = 0
    """By how much rounded rates may differ."""


ARROWS = rows(r"^\s*\d+ +-> +\d+ +: +(\d+) +\|")
SMART = grown(r'"?(host_(?:read|write)_commands)"?\s*: ?([\d,]+)')
KSTAT = grown(r"^(\w+:\d+:\w+:(?:reads|writes))\s+(\d+)")
NODE = grown(r"^(node_disk_(?:reads|writes|discards)_completed_total\S+|node_disk_flush_requests_total\S+) (\S+)")
GOLDENS = {
    "bcc_biolatency_flags.txt": Golden("bcc", "biolatency (libbpf-tools 0.26)", HERE, ARROWS),
    "bcc_ext4dist.txt": Golden("bcc", "ext4dist (libbpf-tools 0.26)", HERE, ARROWS),
    "bcc_runqlat.txt": Golden("bcc", "runqlat (bcc 0.26)", HERE, ARROWS),
    "bcc_runqlat_pids.txt": Golden("bcc", "runqlat (libbpf-tools 0.26)", HERE, ARROWS),
    "iolatency.txt": Golden("bcc", "iolatency (perf-tools 1.0.1)", HERE, rows(r"^\s*\d+ +-> +\d+ +: (\d+) +\|")),
    "events_files.txt": Golden("events", "ext4slower, fileslower (bcc)", SOURCES, 11),
    "events_iosnoop.txt": Golden(
        "events", "iosnoop (perf-tools 1.0.1)", HERE, lines(r"^\d+\.\d+ +\d+\.\d+ .* [\d.]+$")
    ),
    "fio.json": Golden("fio", "fio 3.33", HERE, rows(r'"\d+" ?: ?(\d+)')),
    "fio_means.json": Golden("fio", "fio 3.33", HERE, rows(r'"total_ios" ?: ?(\d+)')),
    "fio_normal.txt": Golden("fio", "fio 3.33", HERE, rows(r'"total_ios" ?: ?(\d+)')),
    "iostat_x.txt": Golden("iostat", "iostat -x (sysstat 12.6.1)", HERE, rates("r/s", "w/s", "d/s"), off=12),
    "iostat_y.txt": Golden("iostat", "iostat -xy (sysstat 12.6.1)", HERE, rates("r/s", "w/s", "d/s", since=0), off=12),
    "iostat_plain.txt": Golden("iostat", "iostat (sysstat 12.6.1)", HERE, rates("tps"), off=12),
    "prometheus_node.txt": Golden("prometheus", "node_exporter", SOURCES, NODE),
    "prometheus_scrapes.txt": Golden("prometheus", "node_exporter 1.5.0", HERE, NODE),
    "kstat_disks.txt": Golden("kstat", "kstat -p (Perl)", SOURCES, KSTAT),
    "kstat_dates.txt": Golden("kstat", "kstat -p -T d (Perl)", SOURCES, KSTAT),
    "kstat_ns.txt": Golden("kstat", "kstat -p -T u (C)", SOURCES, KSTAT),
    "smart_log.txt": Golden("smart-log", "nvme smart-log -o json", SOURCES, SMART),
    "smart_log_fio.txt": Golden("smart-log", "nvme smart-log -o json (nvme-cli 2.13)", HERE, SMART),
    "smart_log_text.txt": Golden("smart-log", "nvme smart-log (nvme-cli 2.13)", SOURCES, SMART),
    "latency_monitor.txt": Golden(
        "latency-monitor",
        "nvme ocp latency-monitor-log (nvme-cli 2.3)",
        SOURCES,
        buckets(
            (1, "Active"), (1, "Static"), (2, "Active"), (-1, "Active"), (3, "Active"), (3, "Static"), (-2, "Active")
        ),
    ),
    "latency_monitor_old.txt": Golden(
        "latency-monitor",
        "nvme ocp latency-monitor-log, first layout",
        SOURCES,
        buckets((1, "Active"), (1, "Static"), (2, "Active"), (-1, "Active")),
    ),
    "latency_monitor_v4.txt": Golden(
        "latency-monitor",
        "nvme ocp latency-monitor-log, log page version 4",
        SOURCES,
        buckets((1, "Active"), (1, "Static")),
    ),
    "esxtop.txt": Golden("esxtop", "esxtop -b", SOURCES, esxtop),
    "esxtop_nfs.txt": Golden("esxtop", "esxtop -b, volumes of NFS", SOURCES, esxtop),
    "esxtop_paths.txt": Golden("esxtop", "esxtop -b, paths and worlds", SOURCES, esxtop),
    "sadf_d.txt": Golden("sadf", "sadf -d (sysstat 12.6.1)", HERE, awk('BEGIN { FS = ";" } !/^#/ { add($5) }')),
    "sadf_dh.txt": Golden(
        "sadf",
        "sadf -dh (sysstat 12.6.1)",
        HERE,
        awk('BEGIN { FS = ";" } !/^#/ { for (at = 5; at <= NF; at += 9) add($at) }'),
    ),
    "sadf.json": Golden(
        "iostat-json",
        "sadf -j (sysstat 12.6.1)",
        HERE,
        awk('match($0, /"tps": [0-9.]+/) { add(substr($0, RSTART + 7, RLENGTH - 7)) }'),
    ),
    "pmrep_iostat.txt": Golden(
        "iostat",
        "pmrep :iostat-dktx (PCP 6.0.3)",
        HERE,
        awk('$2 == "vda" && $3 != "N/A" { add($3); add($9); add($15); add($21) }'),
    ),
    "freebsd_iostat_x.txt": Golden(
        "iostat", "iostat -x (FreeBSD)", SOURCES, awk("BEGIN { s = 5 } /^a?da/ && seen[$1]++ { add($2); add($3) }")
    ),
    "gstat.txt": Golden("gstat", "gstat -b", SOURCES, awk("/^dT/ { s = $2 + 0 } /[|]/ { add($3); add($6) }")),
    "gstat_csv.txt": Golden(
        "gstat", "gstat -C", SOURCES, awk('BEGIN { FS = ","; s = 1.012 } NR > 1 { add($5); add($8) }')
    ),
    "iostat_macos.txt": Golden(
        "iostat-bsd", "iostat (macOS)", SOURCES, awk("BEGIN { s = 2 } /^ *[0-9]/ && row++ { add($2); add($5) }")
    ),
    "aix_iostat_d.txt": Golden(
        "iostat-aix", "iostat -D (AIX)", SOURCES, awk("BEGIN { s = 5 } / [rw]ps/ { getline; add($1) }")
    ),
    "aix_iostat_ld.txt": Golden("iostat-aix", "iostat -lD (AIX)", SOURCES, awk("/^hdisk/ { add($7); add($13) }")),
    "nfsiostat.txt": Golden(
        "nfsiostat",
        "nfsiostat (nfs-utils 2.6)",
        SOURCES,
        awk("/mounted on/ { report++ } /avg RTT/ { getline; if (report > 1) add($1) }"),
    ),
    "atop_dsk.txt": Golden("atop", "atop -P DSK (atop 2.8)", HERE, awk("/^DSK/ && row++ { n += $9 + $11 + $13 }")),
    "biotop.txt": Golden("biotop", "biotop (bcc)", SOURCES, awk("/ [RW] .*xvd/ { n += $(NF - 2) }")),
    "systemtap_log.txt": Golden("systemtap", "@hist_log (SystemTap)", SOURCES, awk("/^ *[0-9]+ [|]/ { n += $NF }")),
    "systemtap_linear.txt": Golden(
        "systemtap", "@hist_linear (SystemTap)", SOURCES, awk("/^ *>?[0-9]+ [|]/ { n += $NF }")
    ),
    "hist_trigger.txt": Golden("hist-trigger", "hist of tracefs, .log2", SOURCES, awk("/hitcount: / { n += $NF }")),
    "hist_trigger_buckets.txt": Golden(
        "hist-trigger", "hist of tracefs, .buckets", SOURCES, awk("/hitcount: / { n += $NF }")
    ),
    "cyclictest.txt": Golden(
        "cyclictest",
        "cyclictest -h (rt-tests 2.4)",
        HERE,
        awk("/^[0-9]/ { n += $2 + $3 } /# Histogram Overflows/ { n += $4 + $5 }"),
    ),
    "rtla_timerlat.txt": Golden("rtla", "rtla timerlat hist", SOURCES, awk("/^([0-9]|over)/ { n += $3 + $5 }")),
    "sysbench.txt": Golden("sysbench", "sysbench fileio --histogram (1.0.20)", HERE, awk("/[|]/ { n += $NF }")),
    "pg_test_fsync.txt": Golden(
        "pg_test_fsync",
        "pg_test_fsync (PostgreSQL 15)",
        HERE,
        awk("match($0, /[0-9.]+ ops.sec/) { add(substr($0, RSTART, RLENGTH)) }"),
    ),
    "fio_text.txt": Golden(
        "fio-text",
        "fio --output-format=normal --status-interval=2 (3.33)",
        HERE,
        awk("match($0, /total=[0-9]+,[0-9]+/) { split(substr($0, RSTART + 6), c, /,/); n = c[1] + c[2] }"),
    ),
    "fio_lat.log": Golden("fio-lat-log", "fio --write_lat_log (3.33)", HERE, awk("/, [01], 4096,/ { n++ }")),
    "fio_hist.log": Golden(
        "fio-hist-log",
        "fio --write_hist_log, log_hist_coarseness=4 (3.33)",
        HERE,
        awk('BEGIN { FS = "," } { for (at = 4; at <= NF; at++) n += $at }'),
    ),
    "ioping.txt": Golden("ioping", "ioping (1.3)", HERE, awk("/request=/ && !/warmup/ { n++ }")),
    "ioping_raw.txt": Golden("ioping", "ioping -q -p 5 (1.3)", HERE, awk("NF == 10 { n += $1 }")),
    "strace.txt": Golden(
        "strace",
        "strace -f -ttt -T -y (6.1)",
        HERE,
        awk("/ (write|fsync)\\([0-9]+<[/]var.*<[0-9.]+>$|(write|fsync) resumed/ { n++ }"),
    ),
    "strace_r.txt": Golden(
        "strace", "strace -r -T (6.1)", HERE, awk("/ (write|fsync|read)\\([0-9].* = [0-9]+ <[0-9.]+>$/ { n++ }")
    ),
    "etcd.txt": Golden("prometheus", "etcd's metrics", SOURCES, grown(r'^(etcd\S+le="\+Inf"\}) (\d+)')),
    "trace_cmd.txt": Golden("ftrace", "trace-cmd 3.1.6", HERE, 28),
}


def taken(name: str) -> int:
    """Return the I/Os of an import: timed ones, else counted ones; those of a stage within others are not added."""
    frames = list(read_text((GOLDEN / name).read_bytes(), name, ImportOptions()).frames())
    counts = [h.count for frame in frames for s, h in frame.histograms.items() if s.stage in ("total", "hba", "resume")]
    return sum(counts) or sum(done.count for frame in frames for done in frame.kernel.values())


def expected(name: str) -> int:
    total = GOLDENS[name].total
    return total if isinstance(total, int) else total((GOLDEN / name).read_text())


def table() -> str:
    """Return the rows of the documents' table."""
    made = [
        "| format | output of | file in tests/golden/imports | made by | I/Os |",
        "|---|---|---|---|---|",
    ]
    for name, one in sorted(GOLDENS.items(), key=lambda item: (item[1].format, item[0])):
        made.append(f"| `{one.format}` | {one.tool} | {name} | {one.origin} | {taken(name):,} |")
    return "\n".join(made)


@pytest.mark.parametrize("name", GOLDENS)
def test_the_total_of_a_golden_is_that_of_another_pattern(name):
    assert taken(name) > 0
    assert abs(taken(name) - expected(name)) <= GOLDENS[name].off


def test_each_format_of_a_golden_has_the_table_of_the_documents():
    assert table() in (ROOT / "docs/IMPORT.md").read_text(), "run tests/importers/test_import_goldens.py"


REFUSED = {
    "a single scrape of node_exporter": ("prometheus_node.txt", 1, "a single scrape of Prometheus has only sums"),
    "a single smart log": ("smart_log_text.txt", 1, "a single smart log has only sums since the begin"),
    "a single reading of kstat": ("kstat_dates.txt", 1, "a single reading of kstat has only sums since the begin"),
}
"""Each has a golden, how many of its readings are imported, and the sentence that refuses them."""
BEGINS = {"prometheus_node.txt": "2024-03-01 1", "smart_log_text.txt": "zzz", "kstat_dates.txt": "Fri Nov"}


@pytest.mark.parametrize("what", REFUSED)
def test_a_single_reading_is_refused_in_a_sentence(what):
    name, number, sentence = REFUSED[what]
    parts = re.split(rf"(?m)^(?={re.escape(BEGINS[name])})", (GOLDEN / name).read_text())
    with pytest.raises(LatmonError, match=sentence):
        read_text("".join(parts[: number + 1]).encode(), name, ImportOptions())


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
