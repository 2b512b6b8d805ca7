"""Status lines: title, health, notices, position in time. Pure; the clock is that of the frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from latmon.aggregate.history import Window
from latmon.model.frame import Device, Frame, Health, Origin
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.inflight import Ages
from latmon.support.text import is_clean
from latmon.support.units import UNKNOWN, duration, part
from latmon.timetravel.events import Moment
from latmon.views.context import OFF, Sight, tracing_state
from latmon.views.device_table import Subject
from latmon.views.empty import unknown_quantiles
from latmon.views.lines import Line, Span, cell, cell_len, fit, width, wrap
from latmon.views.panels import inflight
from latmon.views.panels.findings import urgent
from latmon.views.panels.inflight import worst
from latmon.views.units import clock, count, percent, span

if TYPE_CHECKING:
    from latmon.views.context import Sight

_MINUTE_S, _HOUR_S = 60, 3600
_MOST_WORDS = 3


def whole(us: int) -> str:
    """0:05, 3:20, 1:03:20: a distance in time in whole seconds."""
    seconds = round(us / 1e6)
    minutes, rest = divmod(seconds, _MINUTE_S)
    hours = f"{minutes // 60}:{minutes % 60:02}" if seconds >= _HOUR_S else str(minutes)
    return f"{hours}:{rest:02}"


def happened(sight: Sight) -> str:
    """What happened beside the I/O where the cursor is, or at the time that is looked at; empty where nothing did."""
    some = _here(sight)
    said = list(dict.fromkeys(f"{clock(one.wall)} {one.text}" for one in some))
    more = f"; and {len(said) - _MOST_WORDS} more" if len(said) > _MOST_WORDS else ""
    return "; ".join(said[:_MOST_WORDS]) + more


def _here(sight: Sight) -> list[Moment]:
    cursor, drawn = sight.choice.cursor, sight.sweep.drawn
    if cursor is not None and drawn is not None:
        column = next((c for c in drawn.timeline.columns if c.number == cursor.at.column), None)
        return column.moments if column is not None else []
    last = sight.history.window.last
    if not sight.away or last is None:
        return []
    some = [*sight.history.moments(), *sight.found.moments]
    return [one for one in some if last.mono_us - last.dt_us < one.mono_us <= last.mono_us]


GOOD_COVERAGE = 0.99
NOTHING = Ages()
TWICE = 1.005
"""Above it the probe saw more than the kernel counted: two counters read a moment apart differ by less."""
_ALL = 0.99
"""What two probes count of the same I/Os differs at a window's ends."""
_MIN_RECORDING = 12
_QUIET = ("not recording ", "no rec ", "○")
"""The longest that fits: whether it records is never cut."""


@dataclass(frozen=True, slots=True)
class Mode:
    """LIVE, REPLAY, DEMO, PAUSED or ENDED, how much time is behind what is shown, what is paused or why it ended."""

    word: str = "LIVE"
    behind_us: int = 0
    why: str = ""
    wall: float = math.nan
    """Where it is paused."""
    reading: bool = False
    """Whether more of that time is being read."""


class Fact(NamedTuple):
    """Words of the health line; where they don't all fit, those of the least weight go first."""

    text: str
    bad: bool = False
    weight: int = 1
    """-1: it is told elsewhere; 0: nothing happened; 1: how it is set; 2: what numbers are to be read by."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """What the deep probes do now: for one request in how many, of which devices (empty: all), and how well."""

    one_in: int = 0
    devices: tuple[str, ...] = ()
    share: float | None = None
    """I/Os that were traced, of those that these devices did; None: not known."""
    lost: float | None = None
    """Of the traced requests those whose path could not be followed."""
    asked: bool = False
    """The screen is about what they tell: that they are off is worth a word."""
    starting: bool = False
    """They were asked for and trace nothing yet."""
    stages: bool = True
    """Whether they can trace any here; else they tell of threads and interrupts alone."""

    @property
    def facts(self) -> list[Fact]:
        """Words for the health line."""
        if not self.stages:
            return [Fact("no stages here")] if self.asked else []
        if not self.one_in:
            return [Fact("stages starting")] if self.starting else [Fact("stages off")] if self.asked else []
        who = ",".join(self.devices[:2]) + ("…" if len(self.devices) > 2 else "") or "all"  # noqa: PLR2004  two names fit
        some = f" 1 in {self.one_in}" if self.one_in > 1 else ""
        found = [Fact(f"tracing{'' if some and not self.devices else ' ' + who}{some}")]
        if self.share is not None and self.share < _ALL:
            found.append(Fact(f"traced {part(self.share)}", weight=2))
        if self.lost is not None:
            found.append(Fact(f"not followed {part(self.lost)}", weight=2 if self.lost else 0))
        return found


def title(origin: Origin | None, window: Window, mode: Mode, cells: int) -> Line:
    """Host, kernel, backend, time and window at the left; the mode at the right, where it can't be cut."""
    right = _mode(mode)
    if origin is None:
        return _split((Span(" latmon", "accent"), Span("  starting", "dim")), right, cells)
    last = window.last
    tier = f"tier {origin.tier}" if origin.tier else ""
    kernel, tool = _short(origin.kernel), origin.tool or origin.backend
    how = (f"{kernel}  {tool} {tier}".rstrip(), f"{tool} {tier}".rstrip(), f"{origin.backend} {tier}".rstrip(), tier)
    ends = (
        Span(f"  {clock(last.wall if last else math.nan)}"),
        Span(f"  last {span(window.length_us)} ", "dim"),
    )
    # what tool it is, and its kernel, the help screen tells too
    who = (Span(" latmon", "accent"), Span(f"  {origin.host}", "strong"))
    lines = [(*who, Span(f"  {one}" if one else "", "dim"), *end) for end in (ends, ends[1:]) for one in (*how, "")]
    return _split(next((one for one in lines if width(one) + width(right) <= cells), lines[-1]), right, cells)


def health(
    origin: Origin | None,
    window: Window,
    devices: dict[str, Device],
    cells: int,
    tracing: Tracing = Tracing(),
    *,
    ages: Ages = NOTHING,
    found: int = 0,
) -> Line:
    """How far the numbers can be trusted: what is wrong stands out and comes first, what is unknown is `-`.

    `found`: findings that are more than notices; a word where there is room, as they have a screen.
    """
    if origin is None:
        return fit((Span(" backend starting", "dim"),), cells)
    state = window.health()
    # the first tick is short, and its two counters are read apart: half an interval is too short to compare them
    compared = 2 * window.covered_us >= origin.interval_us
    ratio = window.coverage(devices) if compared else None
    facts = sorted(_facts(origin, state, ratio, tracing), key=lambda fact: not fact.bad)
    facts += [Fact(f"{count(found)} finding{'s' * (found > 1)}", weight=-1)] if found else []
    room = cells - (_MIN_RECORDING + 3 if state.recording else len(_QUIET[-1]) + 1)
    facts = [*_waiting(ages, room - sum(len(fact.text) + 2 for fact in facts if fact.bad) - 1), *facts]
    spans: list[Span] = [Span(" ")]
    for fact in _fitting(facts, room):
        spans += [Span(fact.text, "bad" if fact.bad else "dim"), Span("  ")]
    if state.recording:
        room = max(cells - width(tuple(spans)) - 3, _MIN_RECORDING)
        name = cell(state.recording, min(room, cell_len(state.recording)))
        return _split(tuple(spans), (Span(f"● {name} ", "accent"),), cells)
    room = cells - width(tuple(spans[:-1])) - 1
    quiet = next((text for text in _QUIET if len(text) <= room), _QUIET[-1])
    return _split(tuple(spans[:-1]), (Span(f" {quiet}", "dim"),), cells)


def headline(subject: Subject, cells: int, above: int | None = None) -> Line:
    """The selected device above its map: what is counted, over which time, and why a quantile is missing.

    `above`: its I/Os above the threshold where each was counted; else the map's buckets tell.
    """
    device, choice = subject.device, subject.choice
    histogram = subject.window.latency(device.name, choice.ops)
    counted = histogram or subject.is_counted
    words = [f"{count(histogram.count if histogram else subject.ios)} I/Os" if counted else "I/Os not counted"]
    if choice.threshold_us is not None and histogram:
        words.append(_above(histogram, choice.threshold_us, above))
    if subject.times_peers is not None:
        words.append(f"3rd slowest {subject.times_peers:.0f}x peers'")
    if why := unknown_quantiles(histogram):
        words.append(why)
    who = " ".join(w for w in (device.label, device.driver, device.model) if w)
    left = (Span(f" {device.name}", "accent"), Span(f" {choice.op_label}  {', '.join(words)} "))
    right = (Span(f"{who} ", "dim"),)
    return _split(left, right if who and width(left) + width(right) <= cells else (), cells)


def _fitting(facts: Sequence[Fact], room: int) -> list[Fact]:
    """As many as fit; what is bad stays, and of what weighs the same the last goes first."""
    kept = list(facts)
    while sum(len(fact.text) + 2 for fact in kept) - 1 > room:
        going = [i for i, fact in enumerate(kept) if not fact.bad]
        if not going:
            break
        del kept[min(going, key=lambda i: (kept[i].weight, -i))]
    return kept


def _facts(origin: Origin, state: Health, coverage: float | None, tracing: Tracing) -> list[Fact]:
    attached, wanted = state.probes_attached, state.probes_wanted
    facts = [Fact(f"probes {attached}/{wanted}" if wanted else f"{origin.backend}, no probe", attached < wanted)]
    facts.append(_coverage(coverage))
    facts.append(Fact(f"lost {count(state.lost_events)}", state.lost_events > 0, 0))
    facts += tracing.facts
    if state.suppressed:
        facts.append(Fact(f"left out {count(state.suppressed)}", weight=2))
    facts.append(Fact(f"unmatched {count(state.unmatched)}", weight=2 if state.unmatched else 0))
    rare = (
        ("map full", state.map_full),
        ("stale", state.stale),
        ("undecoded", state.undecoded_lines),
        ("dropped frames", state.dropped_frames),
    )
    facts += [Fact(f"{label} {count(n)}", bad=True) for label, n in rare if n]
    if state.skipped:
        facts.append(Fact(f"skipped {count(state.skipped)}", weight=2))
    if state.dropped_records:
        facts.append(Fact(f"records dropped {count(state.dropped_records)}", weight=2))
    own = state.self_cpu_percent
    facts.append(Fact(f"cpu {UNKNOWN if own is None else f'{own:.1f}%'}", weight=0 if own is None else 1))
    if state.probe_cpu_percent is not None:
        facts.append(Fact(f"tracing cpu {state.probe_cpu_percent:.1f}%"))
    return facts


def _waiting(ages: Ages, room: int) -> list[Fact]:
    """The oldest in flight with the counts, briefer where half of the line has no room for them."""
    *told, shortest = inflight.in_words(ages) or ("",)
    bad = (ages.oldest_us or 0) >= inflight.NAMED_US
    half = (one for one in told if len(one) <= room // 2)
    text = next(half, next((one for one in reversed(told) if len(one) <= room), shortest))
    return [Fact(text, bad, 2)] if text else []


def _coverage(ratio: float | None) -> Fact:
    if ratio is None:
        return Fact(f"coverage {UNKNOWN}")
    if ratio > TWICE:
        return Fact(f"coverage {percent(ratio)}: counted twice", bad=True)
    return Fact(f"coverage {percent(min(ratio, 1.0))}", ratio < GOOD_COVERAGE, 2)


def _above(histogram: Histogram, threshold_us: int, counted: int | None) -> str:
    """How many there were; buckets tell it for the first of their bounds at or above the threshold."""
    if counted is not None:
        return f"{count(counted)} above {duration(threshold_us)}"
    low, high = bucket_bounds(bucket_index(threshold_us, histogram.bits), histogram.bits)
    bound = low if low == threshold_us else high
    slow = sum(n for index, n in histogram.buckets if bucket_bounds(index, histogram.bits)[0] >= bound)
    of = "" if bound == threshold_us else f" (┄{duration(threshold_us)})"
    return f"{count(slow)} above {duration(bound)}{of}"


def _mode(mode: Mode) -> Line:
    if mode.word == "PAUSED":
        behind = f"{whole(mode.behind_us)} {'to the end' if mode.why == 'REPLAY' else 'behind'}"
        behind = "reading …" if mode.reading else behind
        return (Span(f"{f'{mode.why} ' if mode.why else ''}PAUSED {clock(mode.wall)}, {behind} ", "accent"),)
    if mode.word == "ENDED":
        return (Span(f"ENDED{': ' + mode.why if mode.why else ''} ", "accent"),)
    return (
        (Span(f"{mode.word} ", "strong"), Span("● ", "accent"))
        if mode.word == "LIVE"
        else (Span(f"{mode.word} ", "strong"),)
    )


def _split(left: Line, right: Line, cells: int) -> Line:
    """`right` at the right edge; `left` is cut when both don't fit."""
    room = cells - width(right)
    if room <= 0:
        return fit(right, cells)
    line = (*fit(left, room), *right)
    assert all(is_clean(s.text) for s in line), "a foreign string passed the decoder uncleaned"  # noqa: S101  the drawing gate
    return line


def _short(kernel: str) -> str:
    """6.12.107 of 6.12.107-amd64: the rest is on the help screen."""
    return kernel.split("-", 1)[0]


NOTICE_US = 8_000_000
"""A notice stands so long, by the frames' clock."""


class Told:
    """Of one run of frames."""

    def __init__(self) -> None:
        self.tracing = ""
        """What the deep probes do as of the newest frame."""
        self._notices: list[tuple[int, str]] = []
        self._recording: str | None = None

    def copy(self) -> Told:
        """Return another one that says the same, and goes on by itself."""
        other = Told()
        other.tracing, other._notices, other._recording = self.tracing, self._notices.copy(), self._recording
        return other

    def add(self, frame: Frame) -> None:
        """The next frame."""
        since = frame.mono_us - NOTICE_US
        said = "; ".join(one for one in (self._on_recording(frame), frame.health.notice) if one)
        self._notices = [(at, text) for at, text in self._notices if at > since and text != said]
        if said:
            self._notices.append((frame.mono_us, said))
        self.tracing = tracing_state(frame)

    def _on_recording(self, frame: Frame) -> str:
        """Return a notice with the whole name of the file where a recording begins or ends, else nothing."""
        before, now = self._recording, frame.health.recording
        self._recording = now
        if now == before or (before is None and (frame.seq or not now)):  # a look at an earlier time begins anywhere
            return ""
        return now if " stopped: " in now else f"recording to {now}" if now else f"recording ended: {before}"

    @property
    def notice(self) -> str:
        """The newest one that stands; a frame's sentences are parted by "; "."""
        return self._notices[-1][1] if self._notices else ""


ROOMY = 20
"""Rows from which on a finding has two lines on the overview."""
_MOST, _LONGEST = 2, 4
"""Lines of several sentences, and of one alone: it is longer where a tool's message is in it."""


def finding(sight: Sight, width: int, height: int, *, toured: bool) -> list[Line]:
    """The most urgent one, on the overview alone. `toured`: a tour's text takes the room."""
    if sight.choice.screen != "overview":
        return []
    last, judged = sight.history.window.last, sight.found.until_wall
    as_of = clock(judged) if last is not None and last.wall - judged >= 1 else ""
    return urgent(sight.found.urgent, width, 2 if height >= ROOMY and not toured else 1, as_of)


def notices(sight: Sight, told: Told, width: int, *, reading: str, message: str, toured: bool) -> list[Line]:
    """Return the most urgent of what is being read, a message, an event, I/Os in flight and how the capture is made."""
    notice = happened(sight) or told.notice
    lasting = sight.origin.reason if sight.origin else ""
    if told.tracing.startswith(OFF):
        lasting = f"stages: {told.tracing}"
    # the list itself is on the outstanding screen
    waits = worst(sight.history.ages) if sight.choice.screen != "outstanding" else ""
    text = reading or message or notice or waits or ("" if toured else lasting)
    role = "strong" if reading or message else "bad" if notice or waits else "dim"
    return [(Span(f" {line}", role),) for line in _sentences(text, width - 2)]


def _sentences(text: str, cells: int) -> list[str]:
    """Return as many of the sentences as fit, each of them whole, and the number of the others."""
    parts = text.split("; ")
    for many in range(len(parts), 0, -1):
        more = f" (+{len(parts) - many} more)" if many < len(parts) else ""
        lines = wrap("; ".join(parts[:many]) + more, cells)
        if len(lines) <= _MOST:
            return lines
    first = wrap(parts[0], cells)
    return first if len(first) <= _LONGEST else [*first[: _LONGEST - 1], cell(" ".join(first[_LONGEST - 1 :]), cells)]
