"""`latmon import`: the registry of formats, and the command that turns another tool's text into a recording.

A format of lines reads the lines that it knows and leaves the others to other formats; a `whole` one is alone.
Assumptions are in the recording: in its `reason`, in notices, and as tables that the scale can't represent.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from latmon import __version__
from latmon.capture import target
from latmon.importers import (
    aix,
    bcc,
    benchmarks,
    blktrace,
    bpftrace,
    bsd,
    calls,
    counters,
    dtrace,
    esx,
    fio,
    fio_logs,
    iostat,
    latmon,
    nfs,
    realtime,
    sadf,
    source,
    systemtap,
    tops,
    triggers,
    unwrap,
    values,
    zpool,
)
from latmon.importers.frames import Built, ImportedWindow, frames, windows, without_impossible, without_negative
from latmon.importers.source import keep, lowered, open_ends
from latmon.importers.values import (
    RELATIVE_BELOW,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    SeriesNames,
    TextSpan,
    Times,
)
from latmon.model.frame import ASSUMED_LENGTH, RUNS, Flow, Frame, Origin, Series, missing_stages
from latmon.model.inflight import MEANS
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.packed_tables import MAX_IN_TABLE
from latmon.recording.validate import MAX_WALL
from latmon.recording.writer import Writer
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, LatmonError, RecordingError, UsageError
from latmon.support.streams import STANDARD, Progress, message, named
from latmon.support.text import clean
from latmon.support.units import counted, rfc3339


class Format(NamedTuple):
    """Format of a tool's output; `whole`: a text of it has no other format."""

    name: str
    purpose: str
    sniff: Callable[[str], bool]
    read: Callable[[Sequence[str], ImportOptions], Iterator[Found]]
    whole: bool = False


FORMATS = tuple(
    Format(*one)
    for one in (
        (
            "latmon-jsonl",
            "latmon's own lines, as `export --to jsonl` writes them",
            latmon.sniff_jsonl,
            latmon.read_jsonl,
            True,
        ),
        ("latmon-csv", "latmon's own buckets, as `export --to csv --buckets`", latmon.sniff_csv, latmon.read_csv, True),
        ("fio", "fio --output-format=json+, json or normal,json+", fio.sniff_fio, fio.read_fio),
        ("iostat-json", "iostat -o JSON, with -x or without; sadf -j", iostat.sniff_json, iostat.read_json),
        ("bpftrace-json", "bpftrace -f json: hist, lhist", bpftrace.sniff_json, bpftrace.read_json),
        ("vscsistats", "vscsiStats -p all -c (ESX)", esx.sniff_histograms, esx.read_histograms),
        ("esxtop", "esxtop -b (ESX): disk devices, NFS volumes and virtual disks", esx.sniff_esxtop, esx.read_esxtop),
        ("vmkernel", "vmkernel.log (ESX): devices whose latency changed", esx.sniff_vmkernel, esx.read_vmkernel),
        ("dtrace", "DTrace: quantize, lquantize, llquantize", dtrace.sniff, dtrace.read),
        ("bcc", "bcc, libbpf-tools and perf-tools: biolatency, ext4dist, runqlat, ...", bcc.sniff, bcc.read),
        ("events", "biosnoop, ext4slower, iosnoop and others: a row for each I/O", bcc.sniff_events, bcc.read_events),
        ("bpftrace", "bpftrace: hist, lhist", bpftrace.sniff_text, bpftrace.read_text),
        ("emlxsoverhead", "emlxsoverhead.d: seven columns", dtrace.sniff_emlxs, dtrace.read_emlxs),
        ("scsi.d", "scsi.d: commands and their times (Solaris)", dtrace.sniff_scsi, dtrace.read_scsi),
        ("max_sd", "max_sd.d: the most commands queued to a LUN", dtrace.sniff_max_sd, dtrace.read_max_sd),
        (
            "sd-settings",
            "settings of sd by mdb or sdump (Solaris)",
            dtrace.sniff_settings,
            dtrace.read_settings,
        ),
        ("taskq", "kstat -c taskq, with -p or without", dtrace.sniff_taskq, dtrace.read_taskq),
        (
            "iostat",
            "iostat of Linux, with -x or without; -x of Solaris, illumos and FreeBSD; pmrep :iostat-dktx",
            iostat.sniff_text,
            iostat.read_text,
        ),
        ("gstat", "gstat -b, gstat -C (FreeBSD)", bsd.sniff_gstat, bsd.read_gstat),
        ("iostat-bsd", "iostat of FreeBSD and macOS without -x: no times", bsd.sniff_plain, bsd.read_plain),
        ("fio-text", "fio's text for people: means of jobs", fio_logs.sniff_text, fio_logs.read_text),
        ("fio-lat-log", "fio --write_lat_log: each I/O", fio_logs.sniff_lat, fio_logs.read_lat),
        ("fio-hist-log", "fio --write_hist_log", fio_logs.sniff_hist, fio_logs.read_hist),
        ("ioping", "ioping: its requests; raw lines (-B, -p)", calls.sniff_ioping, calls.read_ioping),
        ("strace", "strace -T: calls that read, write or sync files", calls.sniff_strace, calls.read_strace),
        ("systemtap", "SystemTap: @hist_log, @hist_linear", systemtap.sniff, systemtap.read),
        ("hist-trigger", "histogram triggers of the kernel (.log2, .buckets)", triggers.sniff, triggers.read),
        ("cyclictest", "cyclictest -h", realtime.sniff_cyclictest, realtime.read_cyclictest),
        ("rtla", "rtla timerlat hist", realtime.sniff_rtla, realtime.read_rtla),
        ("sysbench", "sysbench --histogram", benchmarks.sniff_sysbench, benchmarks.read_sysbench),
        ("pg_test_fsync", "pg_test_fsync: means of methods", benchmarks.sniff_pg, benchmarks.read_pg),
        ("iostat-aix", "iostat -D, -lD (AIX)", aix.sniff, aix.read),
        ("nfsiostat", "nfsiostat (nfs-utils)", nfs.sniff, nfs.read),
        ("atop", "atop -P DSK: no times", tops.sniff_atop, tops.read_atop),
        ("biotop", "biotop (bcc, libbpf-tools)", tops.sniff_biotop, tops.read_biotop),
        ("sadf", "sadf -d FILE -- -d: sar's disks with semicolons", sadf.sniff, sadf.read),
        ("prometheus", "scrapes of node_exporter, ebpf_exporter", counters.sniff_prometheus, counters.read_prometheus),
        ("kstat", "kstat -p of disks, twice (Solaris, illumos)", counters.sniff_kstat, counters.read_kstat),
        ("smart-log", "nvme smart-log, as text or -o json, twice", counters.sniff_smart, counters.read_smart),
        (
            "latency-monitor",
            "nvme ocp latency-monitor-log -o json: slow I/Os by the drive's own clock",
            counters.sniff_ocp,
            counters.read_ocp,
        ),
        ("zpool", "zpool iostat, with -l, -v, -q or -w", zpool.sniff, zpool.read),
        ("blkparse", "blkparse's lines: D to C, Q to C; its summary", blktrace.sniff_blkparse, blktrace.read_blkparse),
        ("btt", "btt: Q2C, D2C and others, their means and counts", blktrace.sniff_btt, blktrace.read_btt),
        (
            "ftrace",
            "ftrace, trace-cmd report, perf script: time from an event to another",
            blktrace.sniff_ftrace,
            blktrace.read_ftrace,
        ),
    )
)
NAMES = tuple(one.name for one in FORMATS)


def format_named(name: str) -> Format:
    """Return a format; UsageError naming all of them."""
    found_format = next((chosen_format for chosen_format in FORMATS if chosen_format.name == name), None)
    if found_format is None:
        raise UsageError(f"--from: there is no format {clean(name)!r}; the formats are {', '.join(NAMES)}")
    return found_format


def _has_time(line: str) -> bool:
    """Return whether a tool prints the time at the begin of such a line itself."""
    is_row = iostat.is_head_of_sar(line) or dtrace.is_emlxs(line) or esx.is_vmkernel(line)
    return is_row or calls.has_time(line)


def _is_text(text: str) -> bool:
    """Return whether a format recognises a text."""
    return any(known_format.sniff(text) for known_format in FORMATS)


_COMMANDS = (
    "iostat",
    "nfsiostat",
    "gstat",
    "sadf",
    "pmrep",
    "atop",
    "biotop",
    "zpool",
    "sar",
    *(name for tracer in bcc.TRACERS for name in tracer.commands.split()),
)
_TOOLS = unwrap.Tools(
    _is_text, _has_time, re.compile(rf"(?:{'|'.join(_COMMANDS)}|{bcc.FILE_SYSTEM.pattern})(?:-bpfcc|\.py)?")
)


def recognised(lines: Sequence[str], name: str) -> tuple[Format, ...]:
    """Return all formats that have something in the text; RecordingError if none has."""
    text = "\n".join(lines)
    for known_format in FORMATS:
        if known_format.whole and known_format.sniff(text):
            return (known_format,)
    formats = tuple(known_format for known_format in FORMATS if not known_format.whole and known_format.sniff(text))
    if not formats:
        raise RecordingError(
            f"no table of a known tool was found in {name} ({source.why_nothing(lines)}): "
            "`latmon import --help` lists the formats, --from names one"
        )
    return formats


SHOWN = 20
_SEARCHED = 10_000
"""Lines in which a refusal looks for the one that a format recognised."""
MAX_FOUND = 60_000
"""With the lines of the largest text they take some 200 MB."""
_NAMED = 200
_SENTENCE = 1000
_ISSUE = frozenset({"scsi.d"})
_SUN = frozenset({"emlxsoverhead", "scsi.d", "max_sd", "taskq"})
_QUEUED = frozenset({"emlxsoverhead"})


@dataclass(frozen=True, slots=True)
class Read:
    """Text of an import, and what was found in it."""

    name: str
    lines: Sequence[str]
    chosen: Sequence[Format]
    found: Sequence[Found]
    left: Sequence[int]
    """Lines that no format took."""
    spans: Sequence[tuple[int, int, str]]
    """First and last line of what each format took, and its name."""
    distributions: Sequence[tuple[int, int]]
    """First and last lines of what among them looks like a distribution."""
    built: Built
    names: SeriesNames
    options: ImportOptions

    @property
    def undecoded(self) -> int:
        """Return the number of lines that were not understood and of values that were left out."""
        return len(self.left) + sum(row.count > 0 for row in self.found if isinstance(row, Remark))

    @property
    def unknown(self) -> list[str]:
        """Return sentences on distributions of no known format."""
        each = (
            f"lines {first} to {last} look" if last > first else f"line {first} looks"
            for first, last in self.distributions[:SHOWN]
        )
        return [f"{place} like a distribution of no known format: left out" for place in each]

    @property
    def exit_code(self) -> int:
        """Return 4 if events were lost or a distribution of the text is not in the recording."""
        remarks = [row for row in self.found if isinstance(row, Remark)]
        incomplete = self.distributions or any(remark.lost or remark.is_incomplete for remark in remarks)
        return EXIT_INCOMPLETE if incomplete else EXIT_DONE

    def frames(self) -> Iterator[Frame]:
        """Yield the recording's frames; the first one has a notice of the text that was left out."""
        missed = f"{self.undecoded:,} lines of {len(self.lines):,} were not understood or left out"
        notice = "; ".join((f"imported from {self.name}: {missed}", *self.unknown))
        for seq, frame in enumerate(frames(self.built, self.options)):
            yield _with_notice(frame, notice, self.undecoded) if seq == 0 and self.undecoded else frame


def read_text(
    raw: bytes,
    name: str,
    options: ImportOptions,
    from_format: str = "",
    progress: Callable[[int, int], None] = lambda _done, _lines: None,
) -> Read:
    """Return the text with what was found; RecordingError if nothing in it is known. `progress`: of lines."""
    options = replace(options, name=name)
    lines, numbers = source.lines(raw, name)
    text = unwrap.unwrapped(lines, numbers, _TOOLS, options.start)
    chosen = (format_named(from_format),) if from_format else recognised(text.lines, name)
    rows, left, spans = _found(text, chosen, options, progress)
    shown = unwrap.lines_of_file(lines, numbers)
    names = SeriesNames(options)
    built = windows(rows, options, names, left, _sources(rows, spans))
    keep(built)
    if not built.windows:
        raise RecordingError(_nothing_in(name, text, chosen, rows))
    return Read(
        name=name,
        lines=shown,
        chosen=chosen,
        found=rows,
        left=left,
        spans=spans,
        distributions=source.blocks(shown, left),
        built=built,
        names=names,
        options=options,
    )


_LACKS = {
    "fio": "it has no job with I/Os",
    "iostat-json": "none of its statistics has a disk: run iostat without -c, or sadf -j FILE -- -d",
    "bpftrace-json": "none of its maps is a hist or an lhist with a count",
    "vscsistats": "none of its histograms is of latencies or of outstanding I/Os with a count",
    "esxtop": "none of its columns is one of a disk device, an NFS volume or a virtual disk",
    "dtrace": "no row with a count is below its head",
    "bcc": "no row with a count is below its head",
    "events": "no row of an I/O is below its head",
    "bpftrace": "no map of hist() or lhist() has a row with a count",
    "emlxsoverhead": "no row is below its head",
    "scsi.d": "it has no line of a command's end (`<-`)",
    "fio-text": "it has no job with I/Os",
    "fio-lat-log": "it has no row of a single I/O",
    "fio-hist-log": "it has no row with a count",
    "ioping": "it has no request",
    "strace": "it has no call that reads, writes or syncs a file: run strace -T -e trace=desc",
    "systemtap": "no row with a count is below its head",
    "hist-trigger": "none of its keys is a time",
    "cyclictest": "it has no row of a histogram: run cyclictest -h 1000",
    "rtla": "it has no row of a histogram",
    "sysbench": "no row is below its head",
    "pg_test_fsync": "it has no row of a method",
    "gstat": "no row of a disk is below its head",
    "iostat-bsd": "no row is below its head",
    "iostat-aix": "no disk has numbers for reads, writes and the queue",
    "nfsiostat": "no mount has numbers",
    "atop": "its only sample is since the boot (--first-report keep)",
    "biotop": "no row is below its head",
    "sadf": "no row of a disk is below its head",
    "iostat": "no row of a disk is below its head; iostat -z prints none of an idle disk",
    "prometheus": (
        "no sample is a counter of node_exporter's disks (node_disk_...) or a bucket of ebpf_exporter "
        "with a label device, disk or dev"
    ),
    "kstat": "no device has reads, writes, nread, nwritten, rlentime and wlentime in two samples",
    "smart-log": "no log has a log of its drive before it",
    "latency-monitor": "the drive counted no I/O above its thresholds",
    "zpool": "no row of a pool or a vdev is below its head",
    "blkparse": "it has no completion (C) of an I/O whose begin (D or Q) it has",
    "btt": "no row of Q2C has a count",
    "ftrace": "it has no end (block_rq_complete) of an I/O whose begin (block_rq_issue) it has; --events names others",
}
"""Reason why a text has no value although a format recognised one of its lines."""


def _nothing_in(name: str, text: unwrap.Unwrapped, chosen: Sequence[Format], rows: Sequence[Found]) -> str:
    """Return why nothing was taken of a text that formats recognised, as a sentence."""
    formats = " or ".join(chosen_format.name for chosen_format in chosen)
    remarks = [row for row in rows if isinstance(row, Remark) and (row.is_incomplete or row.lost or row.count)]
    remarks.sort(key=lambda remark: not remark.is_incomplete)
    reasons = [f"line {remarks[0].where.first}: {remarks[0].text}"] if remarks else []
    whole_text = "\n".join(text.lines)
    is_explained = bool(reasons) or any(chosen_format.sniff(whole_text) for chosen_format in chosen)
    if not is_explained:  # --from names a format that isn't the text's
        reasons = [text.worded(source.why_nothing(text.lines))]
    elif not reasons:
        reasons = [
            f"{_where_recognised(text, chosen_format)}{_LACKS[chosen_format.name]}"
            for chosen_format in chosen
            if chosen_format.name in _LACKS
        ]
    why = "".join(f"; {reason}" for reason in reasons)
    return f"no table, time or count of {formats} was found in {name}{why}; `latmon import --help` lists the formats"


def _where_recognised(text: unwrap.Unwrapped, chosen_format: Format) -> str:
    """Return the first line by which a format recognises a text, as the begin of a sentence; empty if none alone is."""
    for at, (line, below) in enumerate(pairwise((*text.lines[:_SEARCHED], "")), 1):
        if chosen_format.sniff(f"{line}\n{below}"):
            is_below = chosen_format.sniff(below) and not chosen_format.sniff(line)
            return f"line {text.number(at + is_below)} is of {chosen_format.name}, but "
    return ""


def import_command(path: Path, out: Path, options: ImportOptions, from_format: str = "") -> int:
    """Write the recording and return the exit code. RecordingError if nothing in the file is known."""
    target.refuse(out)
    name = clean(path.name, 100)
    with Progress(f"reading {name}") as progress:
        raw = source.read(path, {esx.ESXTOP_BEGIN: esx.narrowed}, progress)
        read = read_text(raw, name, options, from_format, progress)
    _validate(read)
    all_frames = read.frames()
    first = next(all_frames)
    writer = Writer.create(out, origin(read, first))
    with Progress(f"writing {named(out)}") as progress:
        try:
            for done, frame in enumerate(chain((first,), all_frames), 1):
                writer.append_whole(frame)
                progress(done, len(read.built.windows))
            writer.close_whole()
        finally:
            with suppress(OSError):
                writer.close()
    _print_summary(read, out)
    return read.exit_code


def _validate(read: Read) -> None:
    """Raise RecordingError if a window has a value that a reader of recordings refuses; nothing is written then."""
    for number, frame in enumerate(read.frames(), 1):
        try:
            decode_frame(parse(to_bytes(encode_frame(frame))))
        except RecordingError as error:
            where = f"window {number} of {len(read.built.windows):,} from {read.name}"
            raise RecordingError(f"{where} can't be recorded: {error}; import the text in parts") from None


def _found(
    text: unwrap.Unwrapped, chosen: Sequence[Format], options: ImportOptions, progress: Callable[[int, int], None]
) -> tuple[list[Found], list[int], list[tuple[int, int, str]]]:
    """Return all that the formats found, in the order of the text, the lines that none of them knew, and the others.

    All lines are those of the file.
    """
    try:
        rows, left, spans = _found_in(text.lines, chosen, options, progress)
    except LatmonError as error:
        raise type(error)(text.worded(str(error))) from None
    numbered_rows = [*text.remarks, *(text.numbered(thing) for thing in rows)]
    numbered_rows.sort(key=lambda thing: thing.where.first)
    return numbered_rows, text.left(left), text.spans(spans)


def _found_in(
    lines: Sequence[str], chosen: Sequence[Format], options: ImportOptions, progress: Callable[[int, int], None]
) -> tuple[list[Found], list[int], list[tuple[int, int, str]]]:
    """Return what `_found` does, in lines as formats read them."""
    taken = bytearray(len(lines) + 2)
    kept: list[Found] = []
    spans: list[tuple[int, int, str]] = []
    for read, tried_format in enumerate(chosen):
        mine = []
        for thing in tried_format.read(lines, options):
            where = thing.where
            progress(read * len(lines) + where.last, len(chosen) * len(lines))
            span = slice(where.first, min(where.last, len(lines)) + 1)
            if not isinstance(thing, Passed | Remark) and not tried_format.whole and any(taken[span]):
                continue  # an earlier format had these lines
            mine.append((span, not isinstance(thing, Passed)))
            if len(kept) >= MAX_FOUND:
                raise RecordingError(f"it has more than {MAX_FOUND:,} tables, times and remarks; import it in parts")
            if not isinstance(thing, Passed):
                kept.append(thing)
        for span, _ in mine:
            taken[span] = b"\1" * len(taken[span])
        spans += _joined(lines, mine, tried_format.name)
    left = [at for at, line in enumerate(lines, 1) if not taken[at] and not values.is_separator(line)]
    kept, left = source.torn(lines, kept, left)
    kept = [part for thing in kept for part in _checked(thing)]
    if any(isinstance(row, ImportedTable) and not row.unit for row in kept):
        context = None if options.unit else values.Context(lines)
        kept = [_with_unit(row, context) if isinstance(row, ImportedTable) else row for row in kept]
    kept = [part for thing in kept for part in _possible(thing, options.unit)]
    kept.sort(key=lambda thing: thing.where.first)
    return kept, left, sorted(spans)


def _sources(rows: Sequence[Found], spans: Sequence[tuple[int, int, str]]) -> dict[str, str]:
    """Return the format of each device, where the text has several; a device of two of them has none.

    A format with tools of several layers is followed by the layer: `bcc disk`.
    """
    formats: dict[str, set[str]] = {}
    by_format: dict[str, list[tuple[int, int]]] = {}
    for first, last, name in spans:
        by_format.setdefault(name, []).append((first, last))
    for row in rows:
        of: list[Series | Flow] = []
        if isinstance(row, Times):
            of += row.histograms
        elif isinstance(row, Counts):
            of += row.kernel
        elif isinstance(row, ImportedTable) and row.series is not None:
            of.append(row.series)
        names = {name for name, format_spans in by_format.items() if of and _is_in(row.where.first, format_spans)}
        if isinstance(row, Times | ImportedTable) and row.layer:
            names = {f"{name} {row.layer}" for name in names}
        for key in of:
            formats.setdefault(key.device, set()).update(names)
    if len({name for format_names in formats.values() for name in format_names}) < 2:  # noqa: PLR2004
        return {}
    return {device: next(iter(format_names)) for device, format_names in formats.items() if len(format_names) == 1}


def _is_in(line: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether one of the spans has the line; they are in order, and no two have a line in common."""
    at = bisect_right(spans, line, key=lambda span: span[0])
    return at > 0 and line <= spans[at - 1][1]


def _joined(lines: Sequence[str], spans: Sequence[tuple[slice, bool]], name: str) -> Iterator[tuple[int, int, str]]:
    """Yield adjacent spans of a format that have a value as one, with blank and trivial lines between them."""
    first, last, has_value = 0, 0, False
    for start, stop, value in sorted((span.start, span.stop, value) for span, value in spans):
        if last and start > last and any(not values.is_separator(lines[at - 1]) for at in range(last, start)):
            if has_value:
                yield first, last - 1, name
            last, has_value = 0, False
        first = first if last else start
        last, has_value = max(last, stop), has_value or value
    if has_value:
        yield first, last - 1, name


def _checked(thing: Found) -> tuple[Found, ...]:
    """Return a table without counts below 0, and instead of a value that a recording can't have a remark."""
    where = TextSpan(thing.where.first, thing.where.last)
    if thing.where.wall is not None and not 0 <= thing.where.wall <= MAX_WALL:
        return (Remark(where, "a time after the year 9999: its values are left out", 1, is_incomplete=True),)
    if max(_numbers(thing), default=0) > MAX_IN_TABLE:
        return (Remark(where, f"a number above {MAX_IN_TABLE:,}: its values are left out", 1, is_incomplete=True),)
    if not isinstance(thing, ImportedTable):
        return (thing,)
    table, remarks = without_negative(thing)
    return (table, *remarks)


def _possible(thing: Found, unit: str) -> tuple[Found, ...]:
    """Return a table without the rows of times that no I/O can take, and a remark on them; `unit`: of --unit."""
    if not isinstance(thing, ImportedTable) or thing.at_issue or not (thing.unit or unit):
        return (thing,)
    unit = thing.unit or unit
    table, remarks = without_impossible(thing, unit)
    return (table, *remarks)


def _numbers(thing: Found) -> Iterator[int]:
    """Yield the numbers of a thing that a recording limits."""
    if isinstance(thing, ImportedTable):
        yield from (thing.count, thing.sum_us or 0, thing.max_us or 0)
    elif isinstance(thing, Times):
        for histogram in thing.histograms.values():
            yield from (histogram.count, histogram.sum or 0)
    if isinstance(thing, Times | Counts):
        for done in (thing.seen if isinstance(thing, Times) else thing.kernel).values():
            yield from (done.count, done.bytes, done.time_us or 0, done.queue_us or 0)


def _with_unit(table: ImportedTable, context: values.Context | None) -> ImportedTable:
    """Return a table with its unit, by its title or by the lines around it; None: `--unit` replaces these lines."""
    if table.unit or table.at_issue:
        return table
    unit, where = values.of_title(table.title), f"the title in line {table.where.first}"
    if not unit and context is not None:
        unit, where = context.unit(table.where.first, table.where.last, table.kind)
    return replace(table, unit=unit, unit_from=where)


def _runs(windows: Sequence[ImportedWindow]) -> list[str]:
    """Return the parts of a recording that are a run each, as `latmon diff FILE@PART` takes them; none of one.

    What comes before the first mark of a run is one, too, where it has I/Os.
    """
    timed = [window for window in windows if window.tables or window.times or window.kernel or window.seen]
    marks = [clean(window.run.partition(":")[0]) for window in timed if window.run]
    if timed and marks and not timed[0].run:
        marks = [f"..{marks[0]}", *marks]
    return marks if len(set(marks)) == len(marks) > 1 else []


def _with_notice(frame: Frame, notice: str, undecoded: int) -> Frame:
    health = frame.health
    text = "; ".join(filter(None, (notice, health.notice)))
    count = health.undecoded_lines + undecoded
    return replace(frame, health=replace(health, notice=clean(text, _SENTENCE), undecoded_lines=count))


def origin(read: Read, first: Frame) -> Origin:
    """Return the header. Host, kernel and the begin of a latency are unknown unless the tool reports them."""
    name, chosen, built, options = read.name, read.chosen, read.built, read.options
    tools = {chosen_format.name for chosen_format in chosen}
    formats = " and ".join(chosen_format.name for chosen_format in chosen)
    imported: dict[str, Any] = {
        "file": name,
        "formats": [chosen_format.name for chosen_format in chosen],
        "assumed": _assumed(read),
    }
    if built.kept:
        imported["tables"] = built.kept
    if built.assumed:
        imported[ASSUMED_LENGTH] = _assumed_length(read)
    if runs := _runs(built.windows):
        imported[RUNS] = runs
    ends = open_ends(built)
    if ends:
        imported["open"] = [{"series": list(series), "from_us": us} for series, us in ends.items()]
    in_powers_of_ns = lowered(built)
    if in_powers_of_ns:
        imported["powers_of_ns"] = [list(series) for series in in_powers_of_ns]
    reason = clean("; ".join((f"imported from {name} ({formats})", *_assumed(read))), _SENTENCE)
    if built.origin is not None:
        extra = {**built.origin.extra, "imported": imported}
        hz = options.hz or built.origin.hz
        return replace(built.origin, reason=reason, extra=extra, host=options.host or built.origin.host, hz=hz)
    stages = {series.stage for window in built.windows for series in (*window.tables, *window.times)}
    return Origin(
        backend="import",
        host=clean(options.host or "unknown"),
        kernel="SunOS" if _is_sun(read) else "unknown",
        latmon=__version__,
        tool=clean(formats),
        hz=options.hz,
        interval_us=Counter(
            imported_window.dt_us or options.interval_us for imported_window in built.windows
        ).most_common(1)[0][0],
        start_wall=max(0.0, first.wall - first.dt_us / 1e6),
        start_mono_us=max(0, first.mono_us - first.dt_us),
        measured={stage: _includes(stage, tools) for stage in sorted(stages)} | built.measured,
        absent=missing_stages({*stages, *built.measured}, {}, otherwise="not in the imported text"),
        latency_from="issue" if tools <= _ISSUE else "queued" if tools <= _QUEUED else "",
        reason=reason,
        extra={"imported": imported},
    )


def _is_sun(read: Read) -> bool:
    """Return whether only Solaris and illumos print such a text: settings that findings name are different there."""
    depths = (depth for window in read.built.windows for depth in window.depths.values())
    by_means = any(depth.source == MEANS and depth.queued for depth in depths)
    return by_means or not _SUN.isdisjoint(chosen_format.name for chosen_format in read.chosen)


def _includes(stage: str, tools: set[str]) -> tuple[str, ...]:
    return ("irq", "softirq", "completion") if stage == "hba" and tools == {"blkparse"} else ()


def _assumed(read: Read) -> list[str]:
    """Return sentences on values that the text lacks."""
    built, names, options = read.built, read.names, read.options
    sentences = _units(built)[:SHOWN]
    sentences += list(names.assumed.values())[:SHOWN]
    if options.start is None and any(
        window.wall is not None and window.wall < RELATIVE_BELOW for window in built.windows
    ):
        sentences.append("its times have no date and are placed in 1970: --start TIME sets their begin")
    no_time = [window for window in built.windows if window.wall is None and window.whole is None]
    if no_time:
        unknown = options.start is None and built.windows[0] in no_time
        dated = any(window.wall is not None and window.wall >= RELATIVE_BELOW for window in built.windows)
        begin = ", the first of them just before the first time" if dated else " from 1970 on"
        begin = begin if unknown else ""
        lengths = sorted({window.dt_us or options.interval_us for window in no_time})
        lengths_text = " to ".join(dict.fromkeys(f"{us / 1e6:g}" for us in (lengths[0], lengths[-1])))
        each = f"each is taken as {lengths_text} s{begin}, and its rates depend on that"
        sentences.append(f"{len(no_time):,} of {_windows(read)} without a time: {each} (--interval, --start)")
    elif built.assumed:
        sentences.append(f"{_assumed_length(read)} (--interval)")
    if built.not_kept:
        sentences.append(f"{built.not_kept:,} more tables whose printed form is not kept")
    sentences += _apart(read)
    return [clean(sentence, 200) for sentence in sentences]


def _units(built: Built) -> list[str]:
    """Return a sentence on each unit and its reason, with the first line and the number of tables."""
    reasons: dict[tuple[str, str], list[str]] = {}
    tables: Counter[tuple[str, str]] = Counter()
    for (unit, where), number in built.units.items():
        reason = unit, unwrap.NUMBERED.sub("", where)
        reasons.setdefault(reason, []).append(where or "the format")
        tables[reason] += number
    sentences = []
    for (unit, kind), wheres in reasons.items():
        number = tables[unit, kind]
        others = " and others like it" if len(wheres) > 1 else ""
        each = f", for {number:,} tables" if number > 1 else ""
        sentences.append(f"unit {unit} by {wheres[0]}{others}{each}")
    return sentences


def _assumed_length(read: Read) -> str:
    length = f"{read.options.interval_us / 1e6:g} s"
    return f"{_windows(read, read.built.assumed)} taken as {length} long, because the text doesn't have the length"


_APART_S = 86_400.0
_MOST_GAPS = 3


def _apart(read: Read) -> list[str]:
    """Return a sentence on times more than a day apart, as a text of several incidents has them."""
    ends = [(window.wall, (window.dt_us or 0) / 1e6) for window in read.built.windows if window.wall is not None]
    gaps = [(end, begin - dt) for (end, _), (begin, dt) in pairwise(ends) if begin - dt - end > _APART_S]
    gap_texts = [f"{rfc3339(end, 'minutes')} and {rfc3339(begin, 'minutes')}" for end, begin in gaps[:_MOST_GAPS]]
    return [f"{len(gaps) + 1} incidents, because there is nothing between {', '.join(gap_texts)}"] if gaps else []


def _print_summary(read: Read, out: Path) -> None:
    """Print on stderr what was read, assumed and not understood."""
    lines, rows, left = read.lines, read.found, read.left
    tables = [row for row in rows if isinstance(row, ImportedTable)]
    formats = ", ".join(chosen_format.name for chosen_format in read.chosen)
    _print(f"{read.name}: {formats}; {_windows(read)} in {named(out)}")
    _print_some(
        [
            f"lines {first} to {last}: {name}" if last > first else f"line {first}: {name}"
            for first, last, name in read.spans
        ],
        "parts of the text more",
    )
    _print_some(
        [
            f"line {imported_table.where.first}: table {imported_table.title}".rstrip()
            + f": {imported_table.count:,} in {len(imported_table.rows):,} rows"
            for imported_table in tables
        ],
        f"tables more, {sum(table.count for table in tables):,} in all of them",
    )
    for text in _assumed(read):
        _print(f"assumed: {text}")
    _print_some([f"line {row.where.first}: {row.text}" for row in rows if isinstance(row, Remark)], "remarks more")
    beside = {
        at + off
        for imported_table in tables
        for at in (imported_table.where.first, imported_table.where.last)
        for off in (-2, -1, 1, 2)
    }
    # lines that may have belonged to a table come before prose
    for at in sorted(sorted(left, key=lambda at: at not in beside)[:SHOWN]):
        _print(f"line {at}: not understood: {clean(lines[at - 1].strip()[:_NAMED], 60)}")
    for text in read.unknown:
        _print(text)
    if left:
        _print(f"{len(left):,} of {len(lines):,} lines were not understood (prose, prompts, other output)")
    if read.exit_code == EXIT_INCOMPLETE:
        _print("exit code 4: a part of the text is missing or was lost; the lines above name it")
    if out != STANDARD:
        _print(f"to read it: latmon report {named(out)}")


def _print_some(texts: Sequence[str], more: str) -> None:
    for text in texts[:SHOWN]:
        _print(text)
    if len(texts) > SHOWN:
        _print(f"and {len(texts) - SHOWN:,} {more}")


def _windows(read: Read, shown_count: int | None = None) -> str:
    number = len(read.built.windows)
    of = "" if shown_count is None else f"{shown_count:,} of "
    return f"{of}{counted(number, 'window')} {'is' if (number if shown_count is None else shown_count) == 1 else 'are'}"


def _print(text: str) -> None:
    message(text, _SENTENCE)
