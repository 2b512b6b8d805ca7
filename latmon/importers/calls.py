"""Importers of ioping and of strace -T: a line is one request or one call, with its time.

ioping prints times with three or four digits, and takes no request into its own sums that it calls a warmup. Its raw
line (-B, -p) has ten numbers, of which the first six are requests, their time in ns, rates, and the least and mean ns;
the last one is the length in ns (ioping(1), "Raw statistics"). Where a text has no request, its last lines are taken:
their number of requests may be rounded.

strace -T prints the time of a call behind its result. Calls that read, write or sync a file are taken, by the path that
-y prints, else by the number of the file. A call that was interrupted by another process's line is joined again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers import values
from latmon.importers.values import (
    Clock,
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    ShortNames,
    TextSpan,
    op_named,
)
from latmon.model.frame import Completed, Outlier
from latmon.support.text import clean

SIZE = r"(?P<size>\d{1,12}(?:\.\d{1,3})?) (?P<unit>[KMGT]iB|bytes?|B)"
UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "min": 6e7, "hour": 3.6e9, "hours": 3.6e9}
REQUEST = re.compile(
    rf"{SIZE} (?P<way><<<|>>>|from|to) (?P<target>.{{1,200}}?)(?: \((?P<device>[^()]{{1,200}})\))?: "
    r"request=\d{1,12} time=(?P<time>\d{1,9}(?:\.\d{1,3})?) (?P<time_unit>ns|us|ms|s|min|hours?)(?P<mark> \([\w ]+\))?"
)
WAYS = {"<<<": "read", "from": "read", ">>>": "write", "to": "write"}
HEAD = re.compile(r"--- (.{1,200}?)(?: \(([^()]{1,200})\))? ioping statistics ---")
TOTAL = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?)( [kMGT])? requests completed in (\d{1,9}(?:\.\d{1,3})?) (ns|us|ms|s|min|hours?), "
    rf"{SIZE} (read|written), .*"
)
OLD_TOTAL = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?)( [kMGT])? requests completed in (\d{1,9}(?:\.\d{1,3})?) (ns|us|ms|s|min|hours?), "
    r"[\d.]{1,12}(?: [kMG])? iops, .*"
)
"""Before ioping 1.0: the time is that of the run, and no sum of requests."""
GENERATED = re.compile(r"generated .{1,40} requests in (\d{1,9}(?:\.\d{1,3})?) (ns|us|ms|s|min|hours?), .*")
BOUNDS = re.compile(
    r"min/avg/max/mdev = (?:[\d.]{1,12} \w{1,5} / (?P<mean>[\d.]{1,12}) (?P<unit>ns|us|ms|s|min|hours?) / .{1,60}"
    r"|[\d.]{1,12}/(?P<old_mean>[\d.]{1,12})/[\d.]{1,12}/[\d.]{1,12} (?P<old_unit>us|ms|s))"
)
THOUSANDS = {"": 1, " k": 10**3, " M": 10**6, " G": 10**9, " T": 10**12}
RAW = re.compile(r"\d{1,18}(?: \d{1,18}){9}")
LEFT_OUT = (" (warmup)", " (too fast)", " (too slow)")
"""Marks of requests that ioping leaves out of its sums; it only names others as (fast) or (slow)."""


def raw_numbers(line: str) -> list[int]:
    """Return the ten numbers of ioping's raw line; empty unless they fit each other."""
    if RAW.fullmatch(line) is None:
        return []
    numbers = [int(word) for word in line.split()]
    count, ns, _, _, least, mean, most = numbers[:7]
    return numbers if count and least <= mean <= most and abs(count * mean - ns) <= count <= numbers[8] else []


def is_like_raw(line: str) -> bool:
    """Return whether a line is a raw one with a damaged number or a missing one."""
    words = line.split(" ")
    return len(words) in (9, 10, 11) and sum(word.isdecimal() for word in words) >= 8  # noqa: PLR2004 - of ten numbers


def sniff_ioping(head: str) -> bool:
    """Return whether there is a request of ioping, its last lines or its raw line."""
    return any(
        ("request=" in line and REQUEST.fullmatch(line)) or HEAD.fullmatch(line) or raw_numbers(line)
        for line in head.split("\n")
    )


def read_ioping(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all requests as one window; the means of raw or last lines where there is none."""
    seconds, names = Seconds(options.threshold_us), ShortNames()
    has_requests = any("request=" in line and REQUEST.fullmatch(line) for line in lines)
    warmups, target = 0, ("ioping", "")
    for at, line in enumerate(lines, 1):
        where = TextSpan(at, at)
        request, head = REQUEST.fullmatch(line) if "request=" in line else None, HEAD.fullmatch(line)
        raw = raw_numbers(line)
        if request is not None:
            is_left_out = request["mark"] in LEFT_OUT
            warmups += is_left_out
            if not is_left_out:
                yield from seconds.add(None, at, at, _request(request, names, options))
        elif head is not None:
            target = (head[1], head[2] or "")
        elif raw and not has_requests:
            flow = options.flow("ioping", values.UNKNOWN_OP)
            done = Completed(raw[0], 0, round(raw[1] / 1000))
            yield Counts(TextSpan(at, at, dt_us=max(1, raw[9] // 1000)), {flow: done}, {})
        elif is_total(line):
            following = lines[at] if at < len(lines) else ""
            device = names.short(_device(*target))
            yield from () if has_requests else _last_lines(at, line, following, device, options)
        elif "request=" in line or (not raw and is_like_raw(line)):
            yield Remark(where, "a line of ioping can't be read: it is left out", 1, is_incomplete=True)
        elif not raw and not is_known(line):
            continue
        yield Passed(where)
    yield from seconds.end()
    if warmups:
        text = f"{warmups:,} requests that ioping calls a warmup, too fast or too slow are left out"
        yield Remark(TextSpan(1, 1), text)


def is_total(line: str) -> bool:
    """Return whether a line has the number of requests of a run."""
    return TOTAL.fullmatch(line) is not None or OLD_TOTAL.fullmatch(line) is not None


def is_known(line: str) -> bool:
    """Return whether a line is another one of ioping's last lines."""
    return GENERATED.fullmatch(line) is not None or BOUNDS.fullmatch(line) is not None


def _last_lines(at: int, line: str, following: str, device: str, options: ImportOptions) -> Iterator[Found]:
    """Yield the sums of a run without single requests."""
    total, old = TOTAL.fullmatch(line), OLD_TOTAL.fullmatch(line)
    if total is not None:
        yield from _total(at, total, following, device, options)
    elif old is not None:
        yield from _old_total(at, old, following, device, options)


def _device(target: str, device: str) -> str:
    """Return the disk of `ext4 /dev/sda1 20 GiB`, else its source (`virtiofs share0 9 GiB`), else what was pinged."""
    words = device.split()
    disk = next((word for word in words if word.startswith("/dev/")), "")
    is_disk = target.startswith("/dev/")
    source = words[1] if len(words) > 1 and not is_disk else target
    return (disk or source).removeprefix("/dev/")


def _request(request: re.Match[str], names: ShortNames, options: ImportOptions) -> Outlier:
    device = names.short(_device(request["target"], request["device"] or ""))
    flow = options.flow(device, WAYS[request["way"]])
    us = round(float(request["time"]) * UNITS_US[request["time_unit"]])
    size = round(float(request["size"]) * values.bytes_of(request["unit"]))
    return Outlier(values.NO_WALL, 0, flow.device, flow.op, us, unaccounted_us=us, bytes=size)


def _total(at: int, total: re.Match[str], following: str, device: str, options: ImportOptions) -> Iterator[Found]:
    """Yield the sums of ioping's last lines, which are as long as the requests that it generated took."""
    thousands = THOUSANDS[total[2] or ""]
    count = round(float(total[1]) * thousands)
    us = round(float(total[3]) * UNITS_US[total[4]])
    size = round(float(total["size"]) * values.bytes_of(total["unit"]))
    generated = GENERATED.fullmatch(following)
    dt_us = round(float(generated[1]) * UNITS_US[generated[2]]) if generated is not None else None
    flow = options.flow(device, "read" if total[7] == "read" else "write")
    yield Counts(TextSpan(at, at, dt_us=dt_us or None), {flow: Completed(count, size, us)}, {})
    if thousands > 1:
        yield Remark(TextSpan(at, at), f"{total[1]}{total[2]} requests: the number is rounded by ioping")


def _old_total(at: int, total: re.Match[str], following: str, device: str, options: ImportOptions) -> Iterator[Found]:
    """Yield the number and the mean of old ioping's last lines."""
    bounds = BOUNDS.fullmatch(following)
    count = round(float(total[1]) * THOUSANDS[total[2] or ""])
    us = None
    if bounds is not None:
        mean, unit = bounds["mean"] or bounds["old_mean"], bounds["unit"] or bounds["old_unit"]
        us = round(float(mean) * UNITS_US[unit] * count)
    dt_us = round(float(total[3]) * UNITS_US[total[4]])
    flow = options.flow(device, values.UNKNOWN_OP)
    yield Counts(TextSpan(at, at, dt_us=dt_us or None), {flow: Completed(count, 0, us)}, {})
    text = f"{total[1]}{total[2] or ''} requests: ioping rounds their number and their mean"
    yield Remark(TextSpan(at, at), text)


CALL_NAMES = {
    **dict.fromkeys(("read", "pread", "pread64", "readv", "preadv", "preadv2"), "read"),
    **dict.fromkeys(("write", "pwrite", "pwrite64", "writev", "pwritev", "pwritev2"), "write"),
    **dict.fromkeys(("fsync", "fdatasync", "sync_file_range", "syncfs", "msync"), "flush"),
}
PREFIX = (
    r"(?:\[pid +(?P<pid>\d{1,10})\] |(?P<bare>\d{1,10}) +)?"
    r"(?:(?P<epoch>\d{9,10}\.\d{6}) |(?P<clock>\d\d:\d\d:\d\d(?:\.\d{6})?) | *(?P<step>\d{1,6}\.\d{6}) )?"
)
RESULT = (
    r"\s*= (?P<result>-?\d{1,19}|0x[\da-f]{1,16}|\?)(?:<[^>]{0,300}>)?"
    r"(?P<error> [A-Z]+ \([^()]*\))? <(?P<time>\d{1,9}\.\d{6})>"
)
CALL = re.compile(rf"{PREFIX}(?P<name>[a-z_]\w{{1,40}})\((?P<arguments>.*)\){RESULT}")
UNFINISHED = re.compile(rf"{PREFIX}(?P<name>[a-z_]\w{{1,40}})\((?P<arguments>.*?),? ?<unfinished \.\.\.>")
RESUMED = re.compile(rf"{PREFIX}<\.\.\. (?P<name>[a-z_]\w{{1,40}}) resumed>(?P<arguments>.*?)\){RESULT}")
EVENT = re.compile(rf"{PREFIX}(?:\+\+\+ exited .*|--- SIG.*|\+\+\+ killed .*)|strace: Process \d+ attached")
BROKEN = re.compile(r"(?:\) *= .{0,60}|resumed.*)<[^<>]{1,20}>\Z|<unfinished \.\.\.>\Z")
TORN = re.compile(rf"{PREFIX}(?:{'|'.join(CALL_NAMES)})\(.*\) *= ")
"""Lines that are calls and can't be read: another one's output is within, or a letter is damaged."""
FILE = re.compile(r"(\d{1,9})(?:<(.{1,400}?)>)?(?=,|\Z)")
NO_FILE = ("pipe:", "socket:", "TCP", "UDP", "UNIX", "NETLINK", "anon_inode:", "/dev/pts/", "/dev/null", "/dev/tty")


def has_time(line: str) -> bool:
    """Return whether a line is a call that strace printed its time before."""
    call = CALL.fullmatch(line) if line.endswith(">") and len(line) < values.LONGEST_LINE else None
    return call is not None and bool(call["epoch"] or call["clock"])


def sniff_strace(head: str) -> bool:
    """Return whether there is a call with its time."""
    return any(
        line.endswith(">") and (CALL.fullmatch(line) or RESUMED.fullmatch(line))
        for line in head.split("\n")
        if ") " in line and len(line) < values.LONGEST_LINE
    )


def read_strace(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the calls of each second as a window; of all together where the text has no times."""
    reader = _StraceReader(options, Clock(options.start), Seconds(options.threshold_us, layer=values.FILE))
    for at, line in enumerate(lines, 1):
        if len(line) < values.LONGEST_LINE:
            yield from reader.take_line(at, line)
    yield from reader.seconds.end()
    yield from reader.remarks()


@dataclass(slots=True)
class _StraceReader:
    """Calls that are not over, and how many were left out."""

    options: ImportOptions
    clock: Clock
    seconds: Seconds
    names: ShortNames = field(default_factory=ShortNames)
    begun: dict[tuple[str, str], tuple[str, float | None]] = field(default_factory=dict)
    """Process and name of an unfinished call -> its arguments and begin."""
    others: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    step_s: float = 0.0
    last: int = 1

    def take_line(self, at: int, line: str) -> Iterator[Found]:
        """Take a line; yield it if it is a call, and the second that is over."""
        call = CALL.fullmatch(line) if line.endswith(">") else None
        resumed = RESUMED.fullmatch(line) if call is None and "resumed>" in line else None
        unfinished = UNFINISHED.fullmatch(line) if line.endswith("<unfinished ...>") else None
        match = call or resumed or unfinished
        if match is None:
            if EVENT.fullmatch(line):
                yield Passed(TextSpan(at, at))
            elif BROKEN.search(line) or TORN.search(line):
                text = "a call can't be read: it is left out (strace -o FILE keeps a program's output apart)"
                yield Remark(TextSpan(at, at), text, 1, is_incomplete=True)
            return
        self.last = at
        yield Passed(TextSpan(at, at))
        begin = self._begin(match)
        process = match["pid"] or match["bare"] or ""
        if unfinished is not None:
            self.begun[process, match["name"]] = (match["arguments"], begin)
            return
        arguments = match["arguments"]
        if resumed is not None:
            arguments, begin = self.begun.pop((process, match["name"]), ("", None))
        yield from self._take_call(at, match, arguments, begin)

    def _begin(self, match: re.Match[str]) -> float | None:
        """Return when a line was begun; None without a time. Steps (-r) are added up."""
        if match["epoch"]:
            return float(match["epoch"])
        if match["clock"]:
            return self.clock.wall(match["clock"])
        if match["step"]:
            self.step_s += float(match["step"])
        return None

    def _take_call(self, at: int, match: re.Match[str], arguments: str, begin: float | None) -> Iterator[Found]:
        op, file = CALL_NAMES.get(match["name"]), FILE.match(arguments)
        path = "" if file is None else file[2] or ""
        if op is None or path.startswith(NO_FILE) or (file is None and match["name"] != "msync"):
            self.others[match["name"]] += 1
            return
        if match["error"] or not match["result"].isdecimal():
            self.failed += 1
            return
        number = file[1] if file is not None else ""
        device = self.names.short(clean(path, 200) or (f"file {number}" if number else match["name"]))
        flow = self.options.flow(device, op_named(op))
        us = round(float(match["time"]) * 1e6)
        outlier = Outlier(
            wall=values.NO_WALL if begin is None else begin,
            mono_us=0,
            device=flow.device,
            op=flow.op,
            total_us=us,
            unaccounted_us=us,
            bytes=int(match["result"]) if op != "flush" else None,
            pid=int(match["pid"] or match["bare"] or 0) or None,
        )
        end_s = None if begin is None else begin + us / 1e6
        yield from self.seconds.add(None if end_s is None else int(end_s), at, at, outlier)

    def remarks(self) -> Iterator[Remark]:
        """Yield remarks on what was left out."""
        where = TextSpan(self.last, self.last)
        if self.others:
            some = ", ".join(name for name, _ in self.others.most_common(3))
            text = f"{self.others.total():,} calls that read, write or sync no file are left out ({some})"
            yield Remark(where, clean(text, 200))
        if self.failed:
            yield Remark(where, f"{self.failed:,} calls that failed are left out")
        if self.begun:
            yield Remark(where, f"{len(self.begun):,} calls have no end in the text")
        if self.step_s:
            yield Remark(where, "the times of strace -r are steps from line to line: its calls are one window")
