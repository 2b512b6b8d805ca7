"""The help page: keys, the meaning of each number, and what is not measured here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from latmon.model.frame import Missing, Origin
from latmon.model.stages import FACTS, STAGES, called
from latmon.support.host import priority_scales
from latmon.views.device_table import MEANINGS
from latmon.views.lines import BLANK, Line, Span, cell, wrap

Pairs = Iterable[tuple[str, str]]
_TWO = 72
"""Least cells of a page with two columns of keys."""
_KEYS = 12
"""Cells before a text in them."""
_FROM = {
    "queued": "latency (total) runs from the moment the request was queued in the block layer "
    "(Solaris, illumos: handed to the disk's driver) to its completion",
    "issue": "latency (total) runs from the issue to the driver to completion: time queued above it is not in it",
}
_MERGED = (
    "on Linux the io provider reports the end of a request's first bio only: bios merged into it are seen, not timed"
)
_STAGES = (
    *((one.name, one.help) for one in FACTS),
    ("total", "to completion, in every table and map; an outlier's runs to its waiter where `resume` is known"),
    ("", "stages follow each other and add up to the total; a stage counts only the I/Os that pass it"),
    ("┊", "the labels of the time axis that all stages share; heights are their I/Os, logarithmic, on one scale"),
)
_OUTSTANDING = (
    ("↑ ↓", "select the device; 3 selects one with an I/O in flight for 10 s, else one limited by a setting"),
    ("in the driver", "share of the time with this many I/Os in driver and device; busy: of the time with any"),
    ("at issue", "the number at each issue to the driver, this I/O included; only a probe measures it"),
    (
        "mean latency",
        "time to completion of the I/Os that arrived with this many outstanding: in the driver, queued",
    ),
    ("", "and the new one"),
    (
        "queued",
        "share of the time with this many above the driver: in the block layer (Solaris: in sd's queue); on Linux",
    ),
    ("", "`or finishing`: includes those that the device has completed and that wait for a softirq"),
    ("wait, active", "iostat of Solaris has the queue as wait (time: wsvc_t), the driver as actv (time: asvc_t)"),
    (
        "┄ limit",
        "the lowest limit of the driver. More in the queue at that depth: the limit is reached",
    ),
    ("mode, max", "the number with the most time; the largest number seen"),
    (
        "IOPS = ..",
        "Little's law, from three measurements; `+ 2 stuck`: in flight, and older than any I/O that completed",
    ),
    ("age", "since its begin; WSF are op and flags; the list is of all devices, oldest first"),
    ("4s 1s now", "a bar from an I/O's begin to now, logarithmic; in the alarm colour from the threshold on"),
    ("≥", "at least this long: nothing completed since; no probe follows it, or it began earlier (see latmon doctor)"),
    ("30x", "30 equal I/Os, with the age of the oldest; PgDn lists each"),
    ("overtaken by", "I/Os of the device that began later and have completed"),
    (
        "audit: usual",
        "the number in the driver for most of the busy time; max: the largest; queue: the largest above it",
    ),
    ("limited", "limited to: the number in the driver while more were queued; blank: not seen"),
    ("off", "the problem by name, explained below the table at its setting; notes are usual defaults"),
)
_FILES = (
    (
        "time",
        "of the system call of a read, write, open, sync (fsync, fdatasync), close: what the program waits for",
    ),
    ("own I/O", "the thread slept for I/O, and had issued some in this operation"),
    ("most else", "what else it did longest: it waited for a lock, the journal, other I/O, a CPU, or it ran"),
    ("cached", "not split: the thread did not sleep and issued no I/O: no device kept it waiting"),
    ("I/O+waits", "the thread issued I/O to a device and slept: for that I/O, for locks such as a file's, for a CPU"),
    ("unknown", "it slept without I/O of its own: a lock, the I/O of a journal or of a server; or read ahead"),
    ("NFS call", "a call of the NFS client that ended; round trip: network and server"),
    ("queue", "before its last transmission: in the client, or waiting for an answer that did not come"),
    ("its slow I/O", "outliers of the same process and device, begun meanwhile, in the sectors that the thread issued"),
)
_WHO = (
    ("cgroup", "as the kernel charges I/O (io.stat); a container has its name where the host's files may be read"),
    ("", "a cgroup without the io controller counts as its parent; writeback, as who dirtied the pages (version 2)"),
    ("share", "of the time of all I/Os, and so of those in flight; below it, of the device's time"),
    ("others", "I/Os of no cgroup, such as flushes, and those of cgroups for which the probe had no room"),
    (
        "process",
        "that submitted an I/O, counted while this screen is open; its cgroup is the one that the kernel charges",
    ),
    ("kworker", "submits writeback, and I/Os that a cgroup's limit held back: they are of the programs in that cgroup"),
    ("- for p99", "the kernel's own counters (tiers C and D) time no I/O of a cgroup"),
)
_FINDINGS = (
    ("!! critical", "I/Os that a program waits for are stuck, or nearly all of their time is lost"),
    ("! warning", "I/Os are slow because of it; the overview shows the most urgent one, and how many more"),
    ("· notice", "worth knowing; only in the list"),
    ("when", "rules are evaluated every 5 s, over the last minute; `or before`: no rule was evaluated before that"),
    ("not evaluated", "a rule's inputs are not measured here: no finding doesn't mean no problem"),
    ("(of 31)", "sample size of a number"),
    ("back in time", "the findings of that time; marked where they cover less than a minute"),
)
_HEALTH = (
    (
        "coverage",
        "completions that the probe saw, of those the kernel counted; below 99.9 %: see docs/COVERAGE.md",
    ),
    ("probes", "attached, of those requested here"),
    ("lost", "events that the probe tool could not deliver; the numbers lack them"),
    (
        "stages off",
        "tracing starts with a screen that shows stages, or with S; a notice reports if the budget ended it",
    ),
    ("tracing", "the devices whose requests the tracer follows, and one in how many of them"),
    ("traced", "share of the timed I/Os that the tracer followed too"),
    ("not followed", "of the traced I/Os, those whose path could not be followed: their time is queue and unaccounted"),
    ("not listed", "on screen 4, which has so many a second; they are counted above the threshold too"),
    ("unmatched", "completions without a start, or of a device without a name: seen, not timed"),
    ("map full", "I/Os that the probe had no room for: they are counted, not timed"),
    ("stale", "begins of I/Os that were removed because their completion was never seen"),
    ("undecoded", "lines of the probe tool, counters of a device or files of the kernel that make no sense"),
    ("dropped frames", "intervals that this screen did not receive in time; a recording has them"),
    ("skipped", "probe runs that the kernel skipped, because programs nested; coverage shows their effect"),
    ("records dropped", "details of outliers without room: which thread was woken late; no count is wrong"),
    ("cpu", "of one CPU: the collector and its probe; the process that draws this screen is not in it"),
    ("tracing cpu", "of one CPU: the time of the tracer's programs and process, which the budget limits"),
    ("● ○", "recording, with the file's name; not recording, and why it stopped"),
)
"""Facts of the page of details; those that limit the numbers are on the health line."""
_MOUSE = (
    ("click", "selects a row; opens the selected one; presses a key of the last line; goes to a time on the strip"),
    ("", "below a map; on a cell of the map: lists its outliers; on the title of a column: sorts by it; on a finding"),
    ("", "below the title of the screen: opens it"),
    ("drag", "on the map: marks a region, whose outliers Enter lists"),
    ("wheel", "the row above or below"),
)
_NUMBERS = (
    ("p50 p99 p99.9", "upper bound of its bucket, never more than the max"),
    ("digits", "two, rounded up; a bucket is at most 12.5 % wide, by size 25 %, with `~` half an octave or more"),
    ("-", "not known: no distribution here, or too few I/Os (p99 needs 100, p99.9 needs 1,000)"),
    ("max", "exact; with ≤ the bound of the highest bucket, where the source had no exact maximum; - without a bound"),
    (
        "kmean",
        "tier C: mean by the kernel's counters, from the request's begin, failed I/Os too; quantiles begin at issue",
    ),
    (
        "depth",
        "I/Os in the driver now, of its limit (by sysfs or a probe); queue: I/Os above it",
    ),
    (
        "devices",
        "in a table of groups: their number, those with I/O, sums; the latencies are of the group's worst device",
    ),
    ("failed", "I/Os that failed in the window; counted and not timed (shown as soon as one failed)"),
    *MEANINGS,
    (
        "reads writes",
        "their shares of the I/Os; others: flushes, discards and other ops; column `mix`: each op by name",
    ),
    (
        "volumes",
        "an I/O of a volume (dm, md, a ZFS pool) is counted again at its disks: don't add up their rows",
    ),
    (
        "peers",
        "third slowest I/O, as a multiple of that of like devices; of a finding on it, the ratio that the finding has",
    ),
    ("trend", "the slowest I/O (without distributions the mean) of each twelfth of the window, one scale for all"),
    (
        "in flight",
        "I/Os not yet completed, by age; ≥: without a probe, at least this long: none completed since",
    ),
    ("own: bpftrace", "an I/O of latmon or of its probe tool; findings ignore it"),
    (
        "heat map",
        "a column is a span of time, the newest at the right edge (config sweep: true: at ▲now, over the oldest)",
    ),
    (
        "",
        "a row is a range of latency, its nominal lower edge at the left (64us, 4ms); a cell is half a row. The lowest",
    ),
    ("", "row has the fastest 0.1 %, too. At the right are the I/Os per row on a logarithmic scale, and quantiles:"),
    (
        "",
        "those of one row are joined (`p50-max 3.97ms`), or in rows beside it, where └ ├ ┌ lead to the row they are of",
    ),
    (
        "",
        "each device has scales of its own, small maps of a page share theirs; ┄ is the threshold, unless far away",
    ),
    ("", "a wide map reaches back beyond the window; its marks, its histogram and all numbers are those of the window"),
    ("above", "the threshold: each I/O is counted. Unless all of its bucket are recorded, shares of stages begin at"),
    ("", "the next bound, as does `above 2.05ms (┄2ms)`, where it isn't the threshold that the probe counts by"),
    (
        "service",
        "issue to completion, where irq, softirq and completion are not measured apart from hba (D2C of btt)",
    ),
    ("Q2C", "queue to completion: the whole time of an I/O without a request (dm, md, zram)"),
    ("hba+", "hba with its interrupt"),
    ("48+", "the last colour is so many I/Os or more; four fifths of the columns have no more in any cell"),
    ("above", "I/Os above the threshold: the alarm colour, on the map too. Ages of I/Os in flight have it from there"),
    ("", "on; without a threshold only a maximum above its peers has it"),
    (">256us", "the same on small maps, for which the I/Os of all of them count: it begins at one latency on all"),
    (
        "▫ in flight",
        "an I/O that has not completed, at its age in that column; only where a probe follows each request",
    ),
    ("^ in flight", "on small maps: for longer than the range that the completed I/Os of all of them need"),
    ("max >45s", "an I/O has been in flight for that long; without such a probe it is the least age"),
    ("IOPS, depth", "below a large map: I/Os per second of each column, and the most I/Os in the driver"),
    (
        "cpu io mem",
        "load of the host (L): PSI some, the share of the time in which a task waited for it; irq: PSI full; recl:",
    ),
    ("", "direct reclaims; wback: pages in writeback; tcp: retransmits of all of the host's connections"),
    ("╎", "time without data"),
    (
        "┃",
        "in the strip below a map, which is the whole recording or history: the end of the window that is shown. The",
    ),
    ("", "height is the slowest I/O of each part, on a logarithmic scale; M and ! are marks and findings"),
    (
        "M ! R S C L G W",
        "on a time axis: a mark, a finding's begin or end, a probe's restart, a suspended host, a clock that was set,",
    ),
    ("", "losses, a gap, a wide window that was read late; it is named at the cursor or the step"),
    (
        "PAUSED 13:04:12",
        "the screen of that time, and the time since then (in a replay: to the end); data keeps arriving",
    ),
    (
        "bars",
        "of a histogram: logarithmic, so that one I/O is visible beside a million; of a share: in proportion",
    ),
)


_NO_KEYS: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = ((), ())


def pages(
    sections: Sequence[tuple[str, Pairs]],
    origin: Origin | None,
    width: int,
    *,
    brief: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]] = _NO_KEYS,
    wanted: str = "",
) -> list[Line]:
    """Return the help page: the keys of this screen beside those of all screens, then every section.

    `sections`: keys and their effects, by title, which a search finds: without one each key is on the page once;
    `brief`: (keys, title) of this screen and of all screens.
    `wanted`: only rows with these words.
    """
    help_pages = [
        *(sections if wanted.strip() or brief == _NO_KEYS else ()),
        ("Mouse (--no-mouse leaves it to the terminal)", _MOUSE),
        ("Numbers", _NUMBERS),
        ("Health of the capture (I)", _HEALTH),
        ("Outstanding I/O", _OUTSTANDING),
        ("Files (2, F)", _FILES),
        ("Who issued the I/Os (7)", _WHO),
        ("Findings", _FINDINGS),
        ("Stages of a traced I/O", _STAGES),
    ]
    help_pages += [] if origin is None else _about(origin)
    lines: list[Line] = [] if wanted.strip() else _brief(*brief, width)
    lines += _sections(help_pages, width, wanted)[0 if lines else 1 :]
    return lines or [BLANK, (Span(f"  no key and no number has these words: {wanted}"),)]


def meaning(name: str) -> str:
    """Return the meaning of a fact of the health line; empty where there is none."""
    return dict(_HEALTH).get(name, "")


def source(origin: Origin, width: int) -> list[Line]:
    """Return what a source is, and what it doesn't measure."""
    return _sections(_about(origin), width)


def _about(origin: Origin) -> list[tuple[str, Pairs]]:
    return [
        ("This source", _source(origin)),
        ("Not measured here", _missing(origin.absent)),
        ("Probes not attached", _missing(origin.probes_missing)),
    ]


def _sections(shown_sections: Sequence[tuple[str, Pairs]], width: int, wanted: str = "") -> list[Line]:
    """Return the sections that have rows with the wanted words, each below a blank line."""
    lines: list[Line] = []
    for title, pairs in shown_sections:
        rows = _pairs(_with(wanted, title, pairs), width)
        if rows:
            lines += [BLANK, (Span(f" {title}", "strong"),), *rows]
    return lines


def _brief(keys_here: Sequence[tuple[str, str]], everywhere: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """Return two columns of keys with titles; on a narrow screen one below the other."""
    if not keys_here and not everywhere:
        return []
    across, room = 2 if width >= _TWO else 1, brief_cells(width)
    cells = room + _KEYS
    columns = [
        [
            [Span(cell(f" {title}", cells), "strong")],
            *([Span(f"  {keys:<{_KEYS - 3}} ", "accent"), Span(cell(text, room))] for keys, text in rows),
        ]
        for title, rows in (("This screen", keys_here), ("Everywhere", everywhere))
    ]
    if across == 1:
        return [tuple(row) for column in columns for row in column]
    blank = [Span(" " * cells)]
    return [(*left, *right) for left, right in zip_longest(*columns, fillvalue=blank)]


def brief_cells(width: int) -> int:
    """Return the cells of a text in the columns of keys."""
    return width // (2 if width >= _TWO else 1) - _KEYS


def _with(wanted: str, title: str, pairs: Pairs) -> Pairs:
    """Return the rows whose title, name and text have all the wanted words; rows without a name belong to the last."""
    words = wanted.lower().split()
    groups: list[list[tuple[str, str]]] = []
    for pair in pairs:
        if pair[0] or not groups:
            groups.append([])
        groups[-1].append(pair)
    for group in groups:
        text = " ".join(part for pair in (("", title), *group) for part in pair).lower()
        if all(word in text for word in words):
            yield from group


def _source(origin: Origin) -> Pairs:
    yield (
        "backend",
        ", ".join(w for w in (origin.tool or origin.backend, f"tier {origin.tier}" if origin.tier else "") if w),
    )
    if origin.reason:
        yield "why", origin.reason
    yield "host", f"{origin.host}, kernel {origin.kernel}, latmon {origin.latmon}"
    yield "priorities", f"of threads: {priority_scales(origin.kernel)[0]}"
    if origin.latency_from in _FROM:
        yield "latency", _FROM[origin.latency_from]
    if origin.extra.get("probe") == "io_d":
        yield "merged", _MERGED
    for stage in STAGES:
        if stage in origin.measured:
            included = origin.measured[stage]
            name = called(stage, included)
            about = f"{name.sentence}; " if name.sentence != name.column else ""
            yield name.column, f"{about}measured; includes {', '.join(included)}" if included else "measured"


def _missing(missing: tuple[Missing, ...]) -> Pairs:
    """Return the names, and below them their reason: it is often the same one."""
    names_by_reason: dict[str, list[str]] = {}
    for missing_stage in missing:
        names_by_reason.setdefault(missing_stage.reason, []).append(missing_stage.name)
    short = {why: names for why, names in names_by_reason.items() if len(names) == 1}
    long_reasons = [("", f"{', '.join(names)}: {why}") for why, names in names_by_reason.items() if why not in short]
    return [*((names[0], why) for why, names in short.items()), *long_reasons]


def _pairs(pairs: Pairs, width: int) -> list[Line]:
    lines: list[Line] = []
    for name, text in pairs:
        for i, part in enumerate(wrap(text, max(width - 19, 20))):
            lines.append((Span(f"  {name if i == 0 else '':<15} ", "accent"), Span(part, "text")))
    return lines
