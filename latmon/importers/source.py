"""The text of an import as clean lines of bounded size, tables kept as printed, and distributions that no format read.

What a mail, a ticket or a terminal added to a tool's output is removed: quote marks, entities of HTML, colours, the
indentation of a Markdown block. Numbers of lines stay those of the file.

Distributions are recognised by lines of numbers whose first one rises or falls from line to line, by bars, and by the
heads that tools print above them.
"""

from __future__ import annotations

import html
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from latmon.importers import frames, mail, values
from latmon.importers.frames import Built
from latmon.importers.values import Found, ImportedTable, Remark, TextSpan
from latmon.model.frame import Series
from latmon.recording.members import GZIP_WITH_EXTRA
from latmon.support.errors import RecordingError

MAX_BYTES = 32 * 1024 * 1024
MAX_LINES = 400_000
MAX_LINE = 1 << 20
"""Characters of a text's line. JSON may be one line, and has a limit of its own."""
MAX_JSON = 8 * 1024 * 1024
"""The worst JSON takes 21 times its size in memory."""
_GZIP = b"\x1f\x8b"
_WITH_HEADER = 16 + zlib.MAX_WBITS
"""Format of zlib: gzip."""
_HEADER = b'{"type":"header","format":'
"""Begin of a recording of latmon."""
_UTF16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BINARY = (
    (b"\x96\xd5", "a binary file of sar", "sadf -d {} -- -d"),
    (b"\xef\xbe\xed\xfe", "a binary file of atop", "atop -r {} -P DSK"),
    (b"\x00\x00\x00\x84\x50\x05\x26", "an archive of PCP", "pmrep -a {} :iostat-dktx"),
    (b"\xfd7zXZ\0", "compressed by xz", "xz -dc {}"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc {}"),
    (b"BZh", "compressed by bzip2", "bzip2 -dc {}"),
)
"""Begin of a file that is no text, what it is, and the command that makes text of it.

SYSSTAT_MAGIC of sysstat's sa.h, MYMAGIC of atop's rawlog.h, PM_LOG_MAGIC of PCP's libpcp.h behind a length.
"""
_PROBED = 200
"""Bytes that show UTF-16 without a mark: NULs in each odd or each even place."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Escape sequences: colours and titles in a saved session."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


Narrow = Callable[[BinaryIO, str, Callable[[int, int], None]], bytes]
"""Returns what is read of a large file, by its name; the last argument reports progress in bytes."""


def read(path: Path, narrows: Mapping[bytes, Narrow], progress: Callable[[int, int], None]) -> bytes:
    """Return all of the file, or what the reader of files that begin so returns; RecordingError if it is too large."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RecordingError(f"{path} is no plain file; pipe it in with `latmon import - ...`")
            file.seek(0)  # a copy of standard input may share its position with the descriptor that wrote it
            raw = file.read(MAX_BYTES + 1) or b""  # None where nothing can be read yet, such as /proc/kmsg
            narrow = next((narrow for begin, narrow in narrows.items() if raw.startswith(begin)), None)
            if narrow is not None:
                file.seek(0)
                raw = narrow(file, path.name, progress)
    except OSError as error:
        raise RecordingError(f"{path} can't be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise _too_large(str(path))
    return raw


def lines(raw: bytes, name: str) -> tuple[list[str], list[int]]:
    """Return the lines without their ends, and the line of the file that each is (empty: the same ones).

    RecordingError for binary data or too many lines.
    """
    raw = _unpacked(raw, name) if raw.startswith(_GZIP) else raw
    raw = _as_utf8(raw, name).rstrip(b"\0")
    _refuse_binary(raw, name)
    if not raw.strip():
        raise RecordingError(f"{name} is empty")
    if raw.count(b"\n") + raw.count(b"\r") > 2 * MAX_LINES or raw.count(b"\n") >= MAX_LINES:
        raise RecordingError(f"{name} has more than {MAX_LINES:,} lines; import it in parts")
    raw = raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    raw, numbers = mail.decoded(raw)
    text = raw.decode("utf-8", "replace")
    if text.count("\n") >= MAX_LINES:
        raise RecordingError(f"{name} has more than {MAX_LINES:,} lines; import it in parts")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if _RESET.search(text):
        text = _BARE_COLOUR.sub("", text)
    text = _TAG.sub("", _ENTITY.sub(_character, text)).replace("\xa0", " ")
    texts = [line.rstrip(" ") for line in _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).split("\n")]
    if len(texts) > 1 and not texts[-1]:  # what follows the last end of a line is no line
        del texts[-1], numbers[len(texts) :]
    _unquote(texts)
    texts = ["" if _FENCE.fullmatch(text) else text for text in texts]
    _untab(texts)
    _unindent(texts)
    longest = max(map(len, texts))
    if longest > (MAX_JSON if _has_long_lines(texts) else MAX_LINE):
        raise RecordingError(f"{name} has a line of {longest:,} characters, longer than any tool's")
    return texts, numbers


def _refuse_binary(raw: bytes, name: str) -> None:
    """Raise RecordingError if a file is no text."""
    for begin, what, command in _BINARY:
        if raw.startswith(begin):
            raise RecordingError(f"{name} is {what}: import what `{command.format(name)}` prints")
    if b"\0" in raw:
        raise RecordingError(f"{name} is not text: it contains NUL bytes")


def _unpacked(raw: bytes, name: str) -> bytes:
    """Return what is compressed. RecordingError for a damaged file, and for a recording."""
    parts, left, is_whole = bytearray(), raw, True
    while left.startswith(_GZIP) and len(parts) <= MAX_BYTES:
        decompress = zlib.decompressobj(_WITH_HEADER)
        try:
            parts += decompress.decompress(left, MAX_BYTES + 1 - len(parts))
        except zlib.error:
            is_whole = False
            break
        left, is_whole = decompress.unused_data, decompress.eof
    if parts.startswith(_HEADER) and raw.startswith(GZIP_WITH_EXTRA):  # not its lines, packed by hand
        raise RecordingError(f"{name} is a recording of latmon, which needs no import: latmon report {name}")
    if len(parts) > MAX_BYTES:
        raise _too_large(name, "unpacked ")
    if not is_whole or left.strip(b"\0"):
        raise RecordingError(f"{name} is a damaged gzip file: import what `zcat {name}` prints of it")
    return bytes(parts)


def _too_large(name: str, how: str = "") -> RecordingError:
    most = f"{MAX_BYTES >> 20} MiB"
    return RecordingError(f"{name} {how}is larger than {most}; import it in parts, as `split -C 30M` makes them")


def _as_utf8(raw: bytes, name: str) -> bytes:
    """Return UTF-16 text, as Windows writes it, in UTF-8, and any other as it is."""
    code = _UTF16.get(raw[:2], "")
    if not code:
        begin = raw[: min(_PROBED, len(raw) & ~1)]
        nuls = begin[::2].count(0), begin[1::2].count(0)
        if len(begin) and max(nuls) * 4 > len(begin) and min(nuls) == 0:
            code = "utf-16-be" if nuls[0] else "utf-16-le"
    if not code:
        return raw
    try:
        return raw.decode(code).encode()
    except UnicodeDecodeError:
        raise RecordingError(f"{name} is damaged UTF-16: convert it with `iconv -c -f UTF-16 -t UTF-8`") from None


_RESET = re.compile(r"\[0?m(?![\w,])")
_BARE_COLOUR = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3}){0,4})?[mK](?!,)")
"""A colour whose escape character was lost in a copy, in a text that has the end of a colour."""
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#39|#x27|#160);")
_TAG = re.compile(r"</?(?:br|pre|code|tt|p|div|span)(?:\s[^<>\n]{0,200})?\s?/?>", re.IGNORECASE)
_FENCE = re.compile(r" *(?:```+|~~~+)[\w-]{0,20}")
"""Line above or below a block of Markdown."""
_QUOTE = re.compile(r"(?:>(?!=) ?)+")
_QUOTED = 3
"""Adjacent lines that begin with a quote mark: one alone may be a prompt, or a bucket."""
_INDENT = 2
"""Least number of blanks before a line of a block: four in Markdown, two and more in reStructuredText."""


def _character(entity: re.Match[str]) -> str:
    return html.unescape(entity[0])


def _unquote(texts: list[str]) -> None:
    """Remove the quote marks of a mail from adjacent lines that have them."""
    first = 0
    for at, line in enumerate([*texts, ""]):
        if line.startswith(">"):
            continue
        if at - first >= _QUOTED:
            texts[first:at] = [_QUOTE.sub("", text, count=1) for text in texts[first:at]]
        first = at + 1


def _untab(texts: list[str]) -> None:
    """Write the tab before each line of a Markdown block as blanks: one that a blank line precedes, of tabs alone."""
    first = 0
    for at, line in enumerate([*texts, "end"]):
        if line.startswith("\t") or (not line and at > first):
            continue
        is_block = first < at and (first == 0 or not texts[first - 1])
        if is_block and sum(text.startswith("\t") for text in texts[first:at]) >= _QUOTED:
            texts[first:at] = [f"{' ' * _INDENT}{text[1:]}" if text else "" for text in texts[first:at]]
        first = at + 1


def _unindent(texts: list[str]) -> None:
    """Remove the common indentation of each block of lines that a blank line precedes, and of the whole text."""
    first = 0
    for at, line in enumerate([*texts, "end"]):
        if line and not line.startswith(" " * _INDENT):
            if first < at and (first == 0 or not texts[first]):
                _dedent(texts, first, at)
            first = at + 1
    _dedent(texts, 0, len(texts))


def _dedent(texts: list[str], first: int, end: int) -> None:
    indents = [len(text) - len(text.lstrip(" ")) for text in texts[first:end] if text]
    if len(indents) >= _QUOTED and (common := min(indents)):
        texts[first:end] = [text[common:] for text in texts[first:end]]


def _has_long_lines(texts: list[str]) -> bool:
    """Return whether the text begins as JSON, or as the CSV of a host with hundreds of disks."""
    return next((line.lstrip()[:1] for line in texts if line.strip()), "") in ("{", "[", '"')


MAX_KEPT_ROWS = 8_000
"""Rows of all tables that are kept."""


def keep(built: Built) -> None:
    """Add tables that the scale can't represent to `built.kept`, and a notice to the window of each."""
    reported: set[tuple[Series, str]] = set()  # once of each series: a day of windows has the same losses
    for seq, window in enumerate(built.windows):
        for placed in (*window.tables.values(), *window.aside, *window.at_issue):
            lost = frames.lost(placed.table, placed.ranges, frames.bits_of(placed.ranges)) if placed.ranges else ""
            counted = placed not in window.aside
            if not lost and counted and not placed.table.printed:
                continue
            if lost and counted and (placed.series, lost) not in reported:
                reported.add((placed.series, lost))
                window.notices.append(f"line {placed.table.where.first}: {lost}")
            rows = [[frames.label(row), row.count] for row in placed.table.rows]
            if built.kept_rows + len(rows) > MAX_KEPT_ROWS:
                built.not_kept += 1
                continue
            built.kept_rows += len(rows)
            built.kept.append(
                {
                    "seq": seq,
                    "line": placed.table.where.first,
                    "title": placed.table.title,
                    "kind": placed.table.kind,
                    "series": list(placed.series),
                    "counted": counted,
                    "rows": rows,
                    **({"told": dict(placed.table.printed)} if placed.table.printed else {}),
                }
            )


def open_ends(built: Built) -> dict[Series, int]:
    """Return series with I/Os in a row without an upper end, and that row's least lower edge in microseconds."""
    ends: dict[Series, int] = {}
    for window in built.windows:
        for series, placed in window.tables.items():
            for placed_range in placed.ranges:
                if placed_range.is_endless and placed.table.max_us is None:
                    ends[series] = min(ends.get(series, placed_range.first), placed_range.first)
    return ends


def lowered(built: Built) -> list[Series]:
    """Return series with rows whose edges are powers of two of ns, 1.024 times those of their buckets."""
    lowered_series: dict[Series, None] = {}
    for window in built.windows:
        for series, placed in window.tables.items():
            if any(row.is_lowered for row in placed.ranges):
                lowered_series[series] = None
    return list(lowered_series)


_LONGEST = 160
"""Characters of the longest line that may be a bucket."""
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:\s?[A-Za-z%\u00b5\u03bc]{1,5})?")
_WORD = re.compile(r"[A-Za-z\u00b5\u03bc]+")
_UNITS = {"n": 1e-9, "u": 1e-6, "\u00b5": 1e-6, "\u03bc": 1e-6, "m": 1e-3, "s": 1.0}
_POWERS = {unit: 1024.0**n for n, unit in enumerate("KMGTPE", 1)}
_SECONDS = tuple(f"{unit}{word}" for unit in ("", *_UNITS) for word in ("s", "sec", "secs"))
_SIZES = tuple(f"{unit.lower()}{rest}" for unit in _POWERS for rest in ("", "b", "ib"))
_KNOWN = frozenset((*_SECONDS, *_SIZES, "th", "to", "inf", "abs", "or", "more", "less", "than", "overflow"))
"""Words that a bucket's line may have: units, and what some tools print for its edges."""
_BAR = re.compile(r"\d[^|]{0,60}\|[ ]*[@*#\u2580-\u259f]+|\d[^@]{0,60}@{2,}")
_BUCKET = re.compile(r"\s*[\[(]-?\d[\w.]*[KMGTPE]?\s*[,\])]")
_RANGE = re.compile(r"[A-Za-z%\u00b5\u03bc\[(<>]|->|\d\s*(?:-|\.\.)\s*\d")
_HEAD = re.compile(r"-+ Distribution -+|:\s*count\s+distribution\b|\s*Frequency\s*,\s*Histogram Bucket Limit\s*\Z")
_JSON = re.compile(r'"type":\s*"l?hist"')
_ROWS, _ROWS_PLAIN = 3, 5
"""Lines in a row: of a range or with units, of plain columns of numbers."""
_COLUMNS = 3
"""A table with more plain numbers in a line is some other tool's."""
_BETWEEN = 12
"""Lines between a head and its first bucket, or blank ones between two buckets."""
_TORN = 3
"""Lines behind a table in which the rest of it would begin."""


class _Row(NamedTuple):
    """Line that may be a bucket."""

    edges: tuple[float, float]
    """Its first two numbers: which of them is the bucket's depends on the tool."""
    is_range: bool
    """It has a unit, a range or a bar: no mere columns of numbers."""


@dataclass(slots=True)
class _Block:
    """Adjacent lines that may be a distribution; there may be 400,000, so only their bounds are kept."""

    head: int = 0
    """The line of a head that a tool prints above its buckets; 0 without one."""
    first: int = 0
    last: int = 0
    rows: int = 0
    is_range: bool = True
    steps: tuple[int, int] = (0, 0)
    """Direction of the first two numbers of each line: 1 where each is above the one before, -1 below, 0 neither."""
    edges: tuple[float, float] = (0.0, 0.0)

    def add(self, line: int, row: _Row) -> None:
        if self.rows:
            signs = [(now > edge) - (now < edge) for now, edge in zip(row.edges, self.edges, strict=True)]
            kept = [sign if self.rows == 1 or sign == step else 0 for sign, step in zip(signs, self.steps, strict=True)]
            self.steps = kept[0], kept[1]
        self.first, self.last, self.edges = self.first or line, line, row.edges
        self.rows, self.is_range = self.rows + 1, self.is_range and row.is_range

    @property
    def span(self) -> list[tuple[int, int]]:
        """Return its first and last line if it is a distribution, else nothing."""
        if self.head:
            return [(self.head, max(self.head, self.last))]
        least = _ROWS if self.is_range else _ROWS_PLAIN
        return [(self.first, self.last)] if self.rows >= least and any(self.steps) else []


def blocks(lines: Sequence[str], left: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last line, from 1, of all that looks like a distribution among lines that no format read."""
    block_ends: list[tuple[int, int]] = []
    now, before = _Block(), 0
    for at in left:
        text = lines[at - 1]
        if any(lines[n - 1].strip() for n in range(max(before + 1, at - _BETWEEN), at)):
            block_ends += now.span  # lines of something else are between
            now = _Block()
        before = at
        if _is_head(text[:_LONGEST]):
            block_ends += now.span
            now = _Block(head=at)
        elif (row := _row(text)) is not None:
            now.add(at, row)
        elif now.rows or at - now.head > _BETWEEN:
            block_ends += now.span
            now = _Block()
    return [*block_ends, *now.span]


_RATE = re.compile(r"(?<![\d,.])\d[\d,.]{0,30} ?(?:[KMGT]?i?B/s|[KMGT]?B/sec|IOPS)\b")
_FIO_PART = re.compile(r"\bc?lat \([num]sec\) *: min= *\d")
_NAMED_SPANS = 3
_UNREAD = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"avg-cpu:", "iostat's shares of the CPU, without a head of devices: run iostat -x"),
        (
            r"\d{1,2}:\d{2}:\d{2}(?: [AP]M)?\s+(?:CPU|IFACE|kbmem|proc/s|runq-sz|pgpgin|INTR|tps\s+rtps)\b",
            "a table of sar that is not of devices: run sar -d",
        ),
        (r"# hostname;interval;timestamp;", "a table of sadf that is not of devices: run sadf -d FILE -- -d"),
        (
            r"[^;\s#][^;]{0,255};-?\d{1,9};[\d :./TUC-]{8,40};\S+;",
            "a row of sadf -d without the head that names its columns: copy the head, too",
        ),
        (r"\S+\t-?\d+\t[\d :UTC-]{8,40}\t\S+\t\S+\t[\d.,]+", "lines of sadf -p: run sadf -d FILE -- -d"),
        (r"<sysstat\b|<!DOCTYPE sysstat\b", "XML of sysstat: run sadf -d FILE -- -d, or iostat -o JSON"),
        (
            r"\d{1,2}:\d{2}:\d{2}(?: [AP]M)?(?:\s+\S+)?(?:\s+\d+[.,]\d\d){5,}\s*\Z",
            "a row of sar or iostat with its time, without the head that names its columns: copy the head, too",
        ),
        (r"@\w*(?:\[[^\]]*\])?: -?\d+\s*\Z", "a single value of bpftrace, no distribution: use hist() or lhist()"),
        (r"@\w*(?:\[[^\]]*\])?:\s*\Z", "a map of bpftrace without a row of a bucket and its count: copy the rows, too"),
        (
            r"(?:\S+\s+)?sync_read\s+sync_write|.*\bind\s+agg\s+ind\s+agg\b",
            "sizes of requests (zpool iostat -r), no latencies: run zpool iostat -w",
        ),
        (
            (
                r"(?:\[pid +\d+\] |\d+ +)?(?:[\d:.]{8,20} )?"
                r"(?:read|write|pread64|pwrite64|fsync|fdatasync)\(\d+.*\) += -?\d+"
            ),
            "strace without the times of its calls: run strace -T",
        ),
        (r"% time +seconds +usecs/call", "strace -c, sums of calls: run strace -T, which times each"),
        (
            r"osd +(?:commit_latency|fs_commit_latency)\(ms\)",
            "mean latencies of ceph's OSDs, without the number of I/Os that they are of: run iostat -x on their hosts",
        ),
        (r"T: *\d+ \( *\d+\) P: *\d+ I:\d+ C:", "cyclictest's least, mean and longest time: run cyclictest -q -h 1000"),
        (r"# RTLA osnoise histogram", "rtla osnoise, noise of CPUs and no latency: run rtla timerlat hist"),
        (r"DSK \| .{1,40}\| +busy ", "atop's screen, whose avio is busy time by I/Os and no latency: run iostat -x"),
        (
            (
                r"[-\u2504\u2500]{2,}(?:total|usage|system|dsk|io)\S*(?:[-\u2504\u2500]{2,}|/)"
                r'|"(?:dool|[Dd]stat) \S+ CSV output'
            ),
            "dstat or dool, whose rates have no latency: run iostat -x",
        ),
        (r"\[\{\Z", "JSON that no format knows: run ioping without -J"),
        (r"procs -+memory", "vmstat, which times no I/O: run iostat -x"),
        (
            r"\{?\s*\"fio version\"|fio-\d|\S+: \(g(?:roup)?=?\d*\):? ?rw=|\S+: \(groupid=\d+",
            "fio's report for people: run fio with --output-format=json+",
        ),
    )
)
"""Line of a tool whose output is not read -> why, and what to do. Each is tried only where no format has a line."""


def why_nothing(lines: Sequence[str]) -> str:
    """Return what the lines of a text without any table of a known tool are, in words."""
    line_numbers = [at for at, line in enumerate(lines, 1) if line.strip()]
    unknown = [_span(first, last) for first, last in blocks(lines, line_numbers)[:_NAMED_SPANS]]
    if unknown:
        return f"{' and '.join(unknown)}: like a distribution of no known format"
    parts = [at for at in line_numbers if _FIO_PART.search(lines[at - 1], 0, _LONGEST)]
    if parts:
        return f"line {parts[0]}: a part of fio's report, without the line of its job (groupid=0, ...): copy all of it"
    rates = [at for at in line_numbers if len(_RATE.findall(lines[at - 1])) > 1]
    if rates:
        return f"{_span(rates[0], rates[-1])}: rates, no latencies; no other line is one of a format that is read"
    for at in line_numbers:
        for pattern, reason in _UNREAD:
            if pattern.match(lines[at - 1], 0, _LONGEST):
                return f"line {at}: {reason}"
    return f"none of its {len(line_numbers):,} lines is of a format that is read"


def _span(first: int, last: int) -> str:
    return f"lines {first} to {last}" if last > first else f"line {first}"


_CUT_OUT = re.compile(r"\s*[\[(<]?\.\.\.[\w. ]*[\])>]?\s*\Z")
"""A mark of rows that a person took out."""


def torn(lines: Sequence[str], found: Iterable[Found], left: Sequence[int]) -> tuple[list[Found], list[int]]:
    """Replace tables that a damaged row cuts off by remarks; their other rows no longer count as not understood."""
    unknown, kept, gone = set(left), list[Found](), set[int]()
    for row in found:
        lines_after = _rest(lines, row.where.last, unknown) if isinstance(row, ImportedTable) else []
        if not isinstance(row, ImportedTable) or not lines_after:
            kept.append(row)
            continue
        gone.update(lines_after)
        where = TextSpan(row.where.first, lines_after[-1])
        text = f"the table {row.title}".rstrip() + f" is damaged in line {lines_after[0]}: all of it is left out"
        kept.append(Remark(where, text, 1, is_incomplete=True))
    return kept, [at for at in left if at not in gone]


def _rest(lines: Sequence[str], last: int, unknown: set[int]) -> list[int]:
    """Return the lines of a table after its last row that was understood; empty if it ended there."""
    behind: list[int] = []
    rows = 0
    for at in range(last + 1, len(lines) + 1):
        line = lines[at - 1]
        is_row = at in unknown and _is_row(line)
        is_passed = at in unknown or _CUT_OUT.match(line[:_LONGEST]) is not None
        if not is_row and (rows or not is_passed or len(behind) >= _TORN or not line.strip()):
            break
        behind.append(at)
        rows += is_row
    return behind if rows else []


def _is_head(text: str) -> bool:
    """Return whether a line is a head of buckets, or has all of them as JSON. Cheap checks come first."""
    return (("istribution" in text or "Frequency" in text) and _HEAD.search(text) is not None) or (
        '"type"' in text and _JSON.search(text) is not None
    )


def _row(text: str) -> _Row | None:
    """Return the numbers of a bucket's line; None for any other line."""
    if len(text) > _LONGEST or "/s" in text:
        return None  # a rate is no bucket
    if any(word[0].lower() not in _KNOWN for word in _WORD.finditer(text)):
        return None
    has_bar = "|" in text and _BAR.search(text) is not None
    shown = text.partition("|")[0] if has_bar else text
    numbers = _NUMBER.findall(shown)
    if len(numbers) < 2 - has_bar or (":" in text and values.begins(text) is not None):
        return None
    is_range = has_bar or _RANGE.search(shown) is not None
    if len(numbers) > _COLUMNS and not is_range:
        return None
    return _Row((_value(numbers[0]), _value(numbers[min(1, len(numbers) - 1)])), is_range)


def _is_row(text: str) -> bool:
    """Return whether a line after a table may be one of its rows, damaged or not."""
    shown = text[:_LONGEST]
    return bool(_BAR.search(shown) or _BUCKET.match(shown)) or _row(text) is not None


def _value(number: str) -> float:
    """Return a number in seconds if it has a unit, else as it is."""
    if number.isdecimal():
        return float(number)
    digits = re.match(r"-?[\d,]+(?:\.\d+)?", number)
    value = float(digits[0].replace(",", "")) if digits else 0.0
    unit = number[len(digits[0]) :].strip()[:1] if digits else ""
    return value * _UNITS.get(unit, _POWERS.get(unit, 1.0))
