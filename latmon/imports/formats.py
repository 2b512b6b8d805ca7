"""The formats by name: who recognises a text, and who reads it. A new one is a module and a line here.

A format of lines takes what it knows of a document and leaves the rest to the others; a whole one has the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from latmon.errors import RecordingError, UsageError
from latmon.imports import (
    blkparse,
    bpftrace,
    bpftrace_json,
    dtrace,
    emlxs,
    fio,
    ftrace,
    iostat,
    iostat_json,
    latmon_csv,
    latmon_jsonl,
    max_sd,
    scsi,
    taskq,
    vscsistats,
)
from latmon.imports.found import Asked, Found
from latmon.text import clean


class Format(NamedTuple):
    """`whole`: such a text is nothing else beside."""

    name: str
    purpose: str
    sniff: Callable[[str], bool]
    read: Callable[[Sequence[str], Asked], Iterator[Found]]
    whole: bool = False


FORMATS = tuple(
    Format(*one)
    for one in (
        (
            "latmon-jsonl",
            "latmon's own lines, as `export --to jsonl` writes them",
            latmon_jsonl.sniff,
            latmon_jsonl.read,
            True,
        ),
        ("latmon-csv", "latmon's own buckets, as `export --to csv --buckets`", latmon_csv.sniff, latmon_csv.read, True),
        ("fio", "fio --output-format=json+", fio.sniff, fio.read, True),
        ("iostat-json", "iostat -o JSON (Linux), with -x or without", iostat_json.sniff, iostat_json.read, True),
        ("bpftrace-json", "bpftrace -f json: hist, lhist", bpftrace_json.sniff, bpftrace_json.read, True),
        ("vscsistats", "vscsiStats -p all -c (ESX)", vscsistats.sniff, vscsistats.read),
        ("dtrace", "DTrace: quantize, lquantize, llquantize", dtrace.sniff, dtrace.read),
        ("bpftrace", "bpftrace: hist, lhist", bpftrace.sniff, bpftrace.read),
        ("emlxsoverhead", "emlxsoverhead.d: seven columns", emlxs.sniff, emlxs.read),
        ("scsi.d", "scsi.d: commands and their times (Solaris)", scsi.sniff, scsi.read),
        ("max_sd", "max_sd.d: the most commands queued to a LUN", max_sd.sniff, max_sd.read),
        ("taskq", "kstat -c taskq, with -p or without", taskq.sniff, taskq.read),
        ("iostat", "iostat of Linux, with -x or without; -x and -xn of Solaris and illumos", iostat.sniff, iostat.read),
        ("blkparse", "blkparse's lines: D to C, Q to C", blkparse.sniff, blkparse.read),
        ("ftrace", "ftrace, trace-cmd report: time from an event to another", ftrace.sniff, ftrace.read),
    )
)
NAMES = tuple(one.name for one in FORMATS)


def named(name: str) -> Format:
    """UsageError naming all of them."""
    found = next((one for one in FORMATS if one.name == name), None)
    if found is None:
        raise UsageError(f"--from: there is no format {clean(name)!r}; the formats are {', '.join(NAMES)}")
    return found


def recognised(lines: Sequence[str], name: str) -> tuple[Format, ...]:
    """All formats that have something in the text; RecordingError where none has."""
    text = "\n".join(lines)
    for one in FORMATS:
        if one.whole and one.sniff(text):
            return (one,)
    found = tuple(one for one in FORMATS if not one.whole and one.sniff(text))
    if not found:
        raise RecordingError(
            f"no table of a known tool was found in {name}: `latmon import --help` lists the formats, --from names one"
        )
    return found
