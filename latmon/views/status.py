"""Status lines: title, health, headline, notices, and a tour's text. Pure; the clock is that of the frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from latmon.aggregate.history import Window
from latmon.analysis.threshold import Slower, is_above
from latmon.model.coverage import counts_twice
from latmon.model.frame import FILES, TRACER_STARTING, Device, Frame, Health, Origin
from latmon.model.inflight import Ages
from latmon.recording.archive import TimelineEvent
from latmon.support.units import UNKNOWN, clock, part, spelled, with_unit
from latmon.views.context import (
    MEASURING,
    OFF,
    InFlightAbove,
    ViewState,
    no_distribution,
    no_map,
    no_threshold,
    selected,
    tracing_state,
    unknown_quantiles,
)
from latmon.views.device_table import Subject
from latmon.views.heatmap import TAIL
from latmon.views.help import meaning, source
from latmon.views.lines import (
    BLANK,
    FRAME,
    Line,
    Span,
    cell,
    cell_len,
    cut,
    empty_panel,
    ends,
    fit,
    heading,
    highlighted,
    paragraph,
    width,
    wrap,
)
from latmon.views.panels.inflight import NAMED_US, counted, in_words
from latmon.views.units import count, percent, span, zone

if TYPE_CHECKING:
    from latmon.views.context import ViewState

_MINUTE_S, _HOUR_S = 60, 3600
_APART = 2
"""Blanks between the two sides of the header."""
_MOST_WORDS = 3
NONE_ABOVE = InFlightAbove()
GOOD_COVERAGE = 0.99
NOTHING = Ages()
_MIN_RECORDING = 12
_QUIET = "not recording "
"""Text without a recording; it is left out where other words need its cells, unless a recording has stopped."""
BEST_TIER = "A"
_OF_TIER: Mapping[str, str] = MappingProxyType({"C": "queue not timed", "D": "counters only"})
"""Tier -> what it lacks (docs/NUMBERS.md)."""
_FILTER = 24
"""Cells of a filter in the title, at most."""
NOTICE_US = 8_000_000
"""A notice is shown for this time, by the frames' clock."""
TALL = 20
"""Rows from which on a text that lasts has a row of its own."""
ANSWER = " » "
"""Sign before the answer to a key."""
_TRACED_SCREENS = ("stages", "outstanding", "outliers", "interrupts", "who")
"""Screens whose values the tracer measures, at least in part."""
_STARTS_AGAIN: Mapping[str, str] = MappingProxyType(
    {
        "auto": "S S traces again, without a budget",
        "basic": "S traces again, without a budget",
        "all": "S traces again, on demand",
    },
)
"""Stages mode -> the key that ends a pause of the tracer."""
_FIRST_KEY = 4
"""Spans of the first key of a tour: the gap before it, the key, its name and the time."""


def whole(us: int) -> str:
    """Return a duration in whole seconds: 5 s, 3:20 min, 1:03:20 h."""
    seconds = round(us / 1e6)
    minutes, remainder = divmod(seconds, _MINUTE_S)
    if not minutes:
        return f"{remainder} s"
    return (
        f"{minutes // 60}:{minutes % 60:02}:{remainder:02} h" if seconds >= _HOUR_S else f"{minutes}:{remainder:02} min"
    )


def happened(view: ViewState) -> str:
    """Return the events at the cursor, or at the time that is shown; empty where there is none."""
    timeline_events = _here(view)
    text = list(
        dict.fromkeys(f"{clock(timeline_event.wall)} {timeline_event.text}" for timeline_event in timeline_events)
    )
    more = f"; and {len(text) - _MOST_WORDS} more" if len(text) > _MOST_WORDS else ""
    return "; ".join(text[:_MOST_WORDS]) + more


def _here(view: ViewState) -> list[TimelineEvent]:
    cursor, drawn = view.selection.cursor, view.latency_map.drawn
    if cursor is not None and drawn is not None:
        column = next((c for c in drawn.timeline.columns if c.number == cursor.at.column), None)
        shown = selected(view.subjects())
        return [] if column is None else column.events(shown.device.name if shown is not None else "")
    last = view.history.window.last
    if not view.away or last is None:
        return []
    timeline_events = [*view.history.moments(), *view.found.moments]
    return [
        timeline_event
        for timeline_event in timeline_events
        if last.mono_us - last.dt_us < timeline_event.mono_us <= last.mono_us
    ]


@dataclass(frozen=True, slots=True)
class ScreenMode:
    """The mode in the title: STARTING, LIVE, REPLAY, DEMO, PAUSED, NO DATA or ENDED.

    `behind_us`: distance to the newest frame.

    `why`: the mode that is paused, or why the capture ended.
    """

    word: str = "LIVE"
    behind_us: int = 0
    why: str = ""
    wall: float = math.nan
    """The time at which it is paused."""
    reading: bool = False
    """Whether more of that time is being read."""


class HealthWord(NamedTuple):
    """A word of the health line; where they don't all fit, the last ones are dropped."""

    text: str
    bad: bool = False
    matters: bool = False
    """A caveat on the numbers, which is on the health line; the others are on the page of details only."""
    name: str = ""
    """Its name on the help page, where its text does not begin with it."""
    is_alarm: bool = False
    """An I/O in flight for longer than the threshold."""

    @property
    def role(self) -> str:
        return TAIL if self.is_alarm else "bad" if self.bad else "dim"


@dataclass(frozen=True, slots=True)
class Tracing:
    """The state of the tracer: one request in how many, of which devices (empty: all), and its losses."""

    one_in: int = 0
    devices: tuple[str, ...] = ()
    share: float | None = None
    """Share of the devices' I/Os that were traced; None: not known."""
    lost: float | None = None
    """Share of the traced requests whose path could not be followed."""
    requested: bool = False
    """The screen shows traced values: it reports when tracing is off."""
    starting: bool = False
    """Tracing was requested and has not begun."""
    stages: bool = True
    """Whether stages can be traced here; else only threads and interrupts are."""

    @property
    def facts(self) -> list[HealthWord]:
        """Return the words for the health line and the details."""
        if not self.stages:
            return [HealthWord("no stages here", matters=self.requested, name="stages off")]
        if not self.one_in:
            text = "stages starting" if self.starting else "stages off"
            return [HealthWord(text, matters=self.starting or self.requested, name="stages off")]
        who = ",".join(self.devices[:2]) + ("…" if len(self.devices) > 2 else "") or "all"  # noqa: PLR2004  two names fit
        sampled_text = f" 1 in {self.one_in}" if self.one_in > 1 else ""
        text = f"tracing{'' if sampled_text and not self.devices else ' ' + who}{sampled_text}"
        facts = [HealthWord(text, matters=bool(sampled_text or self.devices), name="tracing")]
        if self.share is not None:
            facts.append(HealthWord(f"traced {part(self.share)}", name="traced"))
        if self.lost is not None:
            facts.append(HealthWord(f"not followed {part(self.lost)}", name="not followed"))
        return facts


_HOST_PART, _LEAST_HOST = 3, 10
"""Part of the title that the host's name has at most, one in so many cells, and cells that it has at least."""


def title(
    origin: Origin | None,
    window: Window,
    mode: ScreenMode,
    cells: int,
    *,
    screen: str = "",
    devices: int = 0,
    filters: Sequence[str] = (),
) -> Line:
    """Return the header: screen, host, kernel and tier at the left; time, window and the mode, never cut, at the right.

    `screen`: the name of the screen; `devices`: their number, as the table has it; `filters`: what leaves
    out I/Os or devices.
    """
    shown = _mode(mode)
    name: Line = (Span(" latmon", "strong"), Span(f" {screen}" if screen else "", "accent"))
    for text in filters:
        name = (*name, Span("  "), Span(cell(text, min(cell_len(text), _FILTER)), "accent"))
    if origin is None:
        return highlighted(_split(name, shown, cells))
    tier, brief_tier = _tier_words(origin)
    many = f"{count(devices)} device{'s' * (devices != 1)}" if devices else ""
    # the help screen names the tool and the kernel too
    kernel = f"kernel {_short(origin.kernel)}" if origin.kernel else ""
    how = ((kernel, many, tier), (many, tier), (tier,), (brief_tier,), ())
    wall = window.last.wall if window.last else math.nan
    now, over = Span(clock(wall), "strong"), Span(f"  last {span(window.length_us)}  ")
    zoned = Span(f"{clock(wall)} {zone(wall)}".rstrip(), "strong")
    # a name of 47 characters, as clouds give, would leave no place for the time
    host = cell(origin.host, min(cell_len(origin.host), max(cells // _HOST_PART, _LEAST_HOST)))
    who = (*name, Span(f"  {host}", "strong"))
    title_variants = [
        ((*who, Span(f"  {', '.join(filter(None, words))}".rstrip(), "dim")), (*end, *shown))
        for end in ((zoned, over), (now, over), (over,), ())
        for words in how
    ]
    if mode.word == "PAUSED":  # the mode names the time
        title_variants = [title_variants[0], *title_variants[2 * len(how) :]]
    left, right = next(
        (variant for variant in title_variants if width((*variant[0], *variant[1])) + _APART <= cells),
        title_variants[-1],
    )
    return highlighted(_split(left, right, cells))


def _tier_words(origin: Origin) -> tuple[str, str]:
    """Return what the tier lacks, with the key that explains it, in a long and a short text.

    The best tier lacks nothing. A source without tiers is named by its tool.
    """
    if not origin.tier:
        tool = origin.tool or origin.backend
        return tool, tool
    if origin.tier == BEST_TIER:
        return "", ""
    lacks = _OF_TIER.get(origin.tier, f"tier {origin.tier}")
    return f"{lacks}, key I says why", f"{lacks} (key I)"


def health(
    origin: Origin | None,
    window: Window,
    devices: dict[str, Device],
    cells: int,
    tracing: Tracing = Tracing(),
    *,
    ages: Ages = NOTHING,
    found: str = "",
    ended: bool = False,
    threshold_us: int | None = None,
) -> Line:
    """Return what limits the numbers: problems come first and are highlighted, an unknown number is `-`.

    The page of details has the rest. `ages`: I/Os in flight that no line above names; `found`: `not_shown` of findings.
    `ended`: nothing is recorded any more. `threshold_us`: I/Os in flight for longer have the alarm colour.
    """
    if origin is None:
        return fit((Span(" backend starting", "dim"),), cells)
    state = window.health()
    facts = [
        health_fact
        for health_fact in health_facts(origin, window, devices, tracing)
        if health_fact.bad or health_fact.matters
    ]
    facts.sort(key=lambda fact: not fact.bad)
    recording = state.recording_state if state.records and not ended else ""
    stopped = bool(state.recording_trouble) and not state.records and not ended
    room = cells - ends(cells) - (_MIN_RECORDING + 3 if recording else len(_QUIET) + 1 if stopped else 0)
    kept = [fact for fact in facts if fact.bad]
    facts[len(kept) : len(kept)] = [HealthWord(found)] if found else []
    facts = [*_waiting(ages, room - sum(len(fact.text) + 2 for fact in kept) - 1, threshold_us), *facts]
    spans: list[Span] = []
    for fact in _fitting(facts, room):
        spans += [Span("  " if spans else " "), Span(fact.text, fact.role)]
    room = cells - ends(cells) - width(tuple(spans))
    if recording:
        name = cell(recording, min(max(room - 3, _MIN_RECORDING), cell_len(recording)))
        return _sides(tuple(spans), (Span(f"● {name} ", "accent"),), cells)
    if len(_QUIET) > room and not stopped:
        return heading(tuple(spans), cells)
    return _sides(tuple(spans), (Span(_QUIET, "bad" if stopped else "dim"),), cells)


def not_shown(found: int) -> str:
    """Return the number of findings on a screen without the verdict, with the key of theirs; empty for none."""
    return f"6: {count(found)} finding{'s' * (found > 1)}" if found else ""


def details(view: ViewState, tracing: Tracing, cells: int, room: int) -> list[Line]:
    """Return the page of details: each health fact with its meaning, and what this source measures."""
    origin, window = view.origin, view.history.window
    if origin is None:
        return empty_panel("backend starting", cells, room)
    facts = health_facts(origin, window, view.history.store.devices, tracing)
    names = ((fact, fact.name or fact.text.rsplit(" ", 1)[0]) for fact in facts)
    rows = [(health_word.text, meaning(name), "bad" if health_word.bad else "strong") for health_word, name in names]
    state = window.health()
    shown = f"{'●' if state.records else '○'} {state.recording_state or 'not recording'}"
    rows.append((shown, meaning("● ○"), "strong"))
    lines = [heading((Span(" capture", "strong"), Span("  how far the numbers are to be trusted", "dim")), cells)]
    side = min(max(len(text) for text, *_ in rows), cells // 2) + 3
    for text, sentence, role in rows:
        beside = wrap(sentence, max(cells - side - 1, 10)) or [""]
        lines.append((Span(f"  {cell(text, side - 2)}", role), Span(beside[0], "dim")))
        lines += [(Span(f"{'':{side}}{part}", "dim"),) for part in beside[1:]]
    return cut([*lines, *source(origin, cells)], room, view.selection.top, key="PgDn: ")


def headline(
    subject: Subject,
    cells: int,
    above: Slower | None = None,
    legends: Sequence[Line] = (BLANK,),
    *,
    column_us: int = 0,
    automatic_us: int | None = None,
    in_flight: InFlightAbove = NONE_ABOVE,
) -> Line:
    """Return the headline of the selected device's map: its I/Os, and why a quantile is missing.

    `above`: its I/Os above the threshold; None without one. `in_flight`: those that have not completed.
    `automatic_us`: the threshold by which its outliers are logged.
    `legends`: of which the first that fits is at the right edge. Model, driver and the time of a column (`column_us`,
    with the keys that change it; 0: not shown) are left out where a longer legend fits without them.
    """
    device, selection = subject.device, subject.selection
    histogram = subject.window.latency(device.name, selection.ops)
    counted = histogram or subject.is_counted
    ios = f"{count(histogram.count if histogram else subject.ios)} I/Os" if counted else "I/Os not counted"
    said: list[Span] = [Span(f"  {ios}")]
    if histogram:
        said += [Span(", "), _above(above, selection.threshold_us, automatic_us, in_flight)]
    if why := unknown_quantiles(histogram):
        said.append(Span(f", {why}"))
    who = ", ".join(w for w in (device.label, device.model, device.driver) if w)
    name = Span(f" {device.name}{'' if selection.op == 'all' else f' {selection.op}'}", "strong")
    model = Span(f" {who}" if who else "", "dim")
    column = (Span(f"  1 column = {spelled(column_us)}", "dim"), Span(" + -", "accent")) if column_us else ()
    variants: list[Line] = [
        (name, model, *said, *column),
        (name, model, *said),
        (name, *said, *column),
        (name, *said),
    ]

    def fits(spans: Line, legend: Line) -> bool:
        return width(spans) + width(legend) + _APART * bool(legend) + ends(cells) <= cells

    left = next((spans for spans in variants if fits(spans, legends[0])), variants[-1])
    return heading(left, cells, *(legend for legend in legends if fits(left, legend)))


def _fitting(facts: Sequence[HealthWord], room: int) -> list[HealthWord]:
    """Return the words that fit; problems are kept, of the others the last one is dropped first."""
    kept = list(facts)
    while sum(len(fact.text) + 2 for fact in kept) - 1 > room:
        going = [i for i, fact in enumerate(kept) if not fact.bad]
        if not going:
            break
        del kept[going[-1]]
    return kept


def health_facts(
    origin: Origin, window: Window, devices: dict[str, Device], tracing: Tracing = Tracing()
) -> list[HealthWord]:
    """Return all facts on the reliability of the numbers; those of the health line are bad or matter."""
    state = window.health()
    # the first tick is short, and its two counters are read apart: half an interval is too short to compare them
    compared = 2 * window.covered_us >= origin.interval_us
    attached, wanted = state.probes_attached, state.probes_wanted
    facts = [_coverage(window.coverage(devices) if compared else None, window.covered_us)]
    text = f"probes {attached}/{wanted}" if wanted else f"{origin.backend}, no probe"
    facts.append(HealthWord(text, attached < wanted, matters=not wanted, name="probes"))
    facts.append(HealthWord(f"lost {count(state.lost_events)}", state.lost_events > 0))
    facts += tracing.facts
    not_listed = f"{count(state.suppressed)} slow I/O{'s' * (state.suppressed != 1)} not listed"
    facts.append(HealthWord(not_listed, matters=state.suppressed > 0, name="not listed"))
    facts.append(HealthWord(f"unmatched {count(state.unmatched)}"))
    rare = (
        ("map full", state.map_full),
        ("stale", state.stale),
        ("undecoded", state.undecoded_lines),
        ("dropped frames", state.dropped_frames),
    )
    facts += [HealthWord(f"{label} {count(n or 0)}", bad=bool(n)) for label, n in rare]
    if state.full_tables:
        named = ", ".join(state.full_tables)
        facts.append(HealthWord(f"tracer's tables full: {named}", matters=True, name="tracer's tables full"))
    facts.append(HealthWord(f"skipped {UNKNOWN if state.skipped is None else count(state.skipped)}"))
    facts.append(HealthWord(f"records dropped {count(state.dropped_records)}", matters=state.dropped_records > 0))
    own = state.self_cpu_percent
    facts.append(HealthWord(f"cpu {UNKNOWN if own is None else f'{own:.1f}%'}"))
    if state.probe_cpu_percent is not None:
        facts.append(HealthWord(f"tracing cpu {state.probe_cpu_percent:.1f}%"))
    return facts


def _waiting(ages: Ages, room: int, threshold_us: int | None) -> list[HealthWord]:
    """Return the oldest I/O in flight with the numbers, where one is older than 1 s, as long as there is room.

    It is an alarm from the threshold on.
    """
    if not counted(ages):
        return []
    variants = in_words(ages)
    text = next((variant for variant in variants if len(variant) <= room), variants[-1])
    oldest_us = ages.oldest_us or 0
    return [HealthWord(text, oldest_us >= NAMED_US, matters=True, is_alarm=is_above(oldest_us, threshold_us))]


def _coverage(ratio: float | None, covered_us: int) -> HealthWord:
    if ratio is None:
        return HealthWord(f"coverage {UNKNOWN}")
    if counts_twice(ratio, covered_us):
        return HealthWord(f"coverage {percent(ratio)}: counted twice", bad=True, name="coverage")
    return HealthWord(f"coverage {percent(min(ratio, 1.0))}", ratio < GOOD_COVERAGE)


def _above(above: Slower | None, threshold_us: int | None, automatic_us: int | None, in_flight: InFlightAbove) -> Span:
    """Return the number of I/Os above the threshold, in the colour that they have on the map.

    Where some are in flight, those that completed are said to be done, so that the number contradicts no other one.
    """
    if above is None or threshold_us is None:
        return Span(no_threshold(() if automatic_us is None else (automatic_us,)), "dim")
    of = "" if above.bound_us == threshold_us else f" (┄{with_unit(threshold_us)})"
    ios, bound = count(above.ios), f"above {with_unit(above.bound_us)}{of}"
    if in_flight.ios:
        least = "at least " if in_flight.is_least else ""
        return Span(f"{ios} done, {least}{count(in_flight.ios)} in flight {bound}", TAIL)
    return Span(f"{ios} {bound}", TAIL if above.ios else "text")


def _mode(mode: ScreenMode) -> Line:
    if mode.word == "PAUSED":
        behind = f"{whole(mode.behind_us)} {'to the end' if mode.why == 'REPLAY' else 'behind'}"
        behind = "reading …" if mode.reading else behind
        return (Span(f"{f'{mode.why} ' if mode.why else ''}PAUSED {clock(mode.wall)}, {behind} ", "accent"),)
    if mode.word == "ENDED":
        return (Span(f"ENDED{': ' + mode.why if mode.why else ''} ", "accent"),)
    if mode.word == "NO DATA":
        return (Span(f"NO DATA for {spelled(mode.behind_us)} ", "accent"),)
    dot = (Span("● ", "accent"),) if mode.word == "LIVE" else ()
    return (*dot, Span(f"{mode.word} ", "strong"))


def _split(left: Line, right: Line, cells: int) -> Line:
    """Return `right` at the right edge; `left` is cut when both don't fit."""
    room = cells - width(right)
    if room <= 0:
        return fit(right, cells)
    return (*fit(left, room), *right)


def _sides(left: Line, right: Line, cells: int) -> Line:
    """Return a heading with `right` whole; `left` is cut when both don't fit."""
    room = cells - ends(cells) - width(right)
    return heading(left if width(left) <= room else fit(left, max(room, 0)), cells, right)


def _short(kernel: str) -> str:
    """Return 6.12.107 of 6.12.107-amd64; the help screen has the rest."""
    return kernel.split("-", 1)[0]


class Notices:
    """The notices and the tracer's state of a run of frames."""

    def __init__(self) -> None:
        self.tracing = ""
        """State of the tracer as of the newest frame."""
        self.directory = ""
        """Directory of the next recording; empty where it isn't known."""
        self._notices: list[tuple[int, str]] = []
        self.recorded = ""
        """File that is recorded to, with its directory where that is known; empty where none is."""
        self._health: Health | None = None
        """That of the newest frame."""
        self._where = ""

    def copy(self) -> Notices:
        """Return an independent copy."""
        other = Notices()
        other.tracing, other._notices, other._health = self.tracing, self._notices.copy(), self._health
        other.directory, other.recorded, other._where = self.directory, self.recorded, self._where
        return other

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        since = frame.mono_us - NOTICE_US
        caption = "; ".join(
            notice_text for notice_text in (self._on_recording(frame), frame.health.notice) if notice_text
        )
        self.recorded = f"{frame.health.recording}{self._where}" if frame.health.records else ""
        self._notices = [(at, text) for at, text in self._notices if at > since and text != caption]
        if caption:
            self._notices.append((frame.mono_us, caption))
        self.tracing = tracing_state(frame)

    def _on_recording(self, frame: Frame) -> str:
        """Return a notice with the file's whole name and directory where a recording begins or ends, else nothing."""
        before, now = self._health, frame.health
        self._health = now
        state = now.recording_state
        if before is not None and state == before.recording_state:
            return ""
        if before is not None and now.recording and now.recording == before.recording:  # its trouble begins or ends
            return f"recording to {state}"
        ended_in, self._where = self._where, f" in {self.directory}" if state and self.directory else ""
        if before is None:  # the view of an earlier time begins anywhere
            return "" if frame.seq or not state else self._begun(now)
        return self._begun(now) if state else f"recording ended: {before.recording_state}{ended_in}"

    def _begun(self, health: Health) -> str:
        """Return a notice of a recording that has begun, or that did not."""
        return f"recording to {health.recording_state}{self._where}" if health.records else health.recording_state

    @property
    def notice(self) -> str:
        """Return the newest notice that is still shown; a frame's sentences are joined by "; "."""
        return self._notices[-1][1] if self._notices else ""


_MOST, _LONGEST = 2, 4
"""Lines of several sentences, and of a single one, which is longer where it has a tool's message."""


def lasting(view: ViewState, reported: Notices, *, toured: bool) -> str:
    """Return what holds for the whole capture: that stages are off, or how it is made; empty for nothing."""
    if toured:
        return ""
    if stopped := _stopped(view):
        return stopped
    if reported.tracing.startswith(OFF):
        return f"stages: {reported.tracing}"
    return view.origin.reason if view.origin and not _is_explained(view) else ""


def _stopped(view: ViewState) -> str:
    """Return since when the values of the screen are not traced, why, and how to start it; empty where they are."""
    selection = view.selection
    if view.tracing.startswith(TRACER_STARTING) or selection.screen not in _TRACED_SCREENS:
        return ""
    is_files = selection.aside == FILES
    since = view.history.untraced_since(files=is_files)
    if since is None:
        return ""
    what = "operations on files" if is_files else "stages"
    why = view.tracing.removeprefix(f"{OFF}: ") if view.tracing != MEASURING else view.history.why_no_files
    because = f": {why}" if why else ""
    if view.recorded:
        return f"{what} were not traced after {clock(since.wall)}{because}"
    return f"{what} are not traced since {clock(since.wall)}{because}; {_STARTS_AGAIN[selection.stages]}"


def with_lasting(health_line: Line, text: str, origin: Origin | None, cells: int) -> Line | None:
    """Return the health line with a text that lasts in its gap; None where it doesn't fit.

    Of a demo, whose mode is in the title, the first word is enough.
    """
    brief = (text.replace(":", ",").partition(",")[0],) if origin is not None and origin.backend == "demo" else ()
    at = next((at for at, piece in enumerate(health_line) if piece.role == FRAME and piece.text.isspace()), -1)
    for variant in (text, *brief) if at >= 0 else ():
        room = len(health_line[at].text) - cell_len(variant) - _APART
        if room > ends(cells):
            return (*health_line[:at], Span(f"  {variant}", "dim"), Span(" " * room, FRAME), *health_line[at + 1 :])
    return None


def notices(view: ViewState, reported: Notices, width: int, *, reading: str, message: str, lasts: str) -> list[Line]:
    """Return the most urgent of: time being read, message, event, and `lasts`, for which the health line has no room.

    A frame's notice follows a message, so that the answer to a key and that of the next key are both shown. The
    message has a sign, so that it isn't overlooked beside a notice or where one was before.
    """
    notice = happened(view) or reported.notice
    if message and not reading:
        lines = _answer(message, width)
        if notice == reported.notice:  # it is not about the same event as the message
            lines += [(Span(f" {line}", "text"),) for line in _sentences(notice, width - 2)]
        return lines
    role = "strong" if reading or notice else "dim"
    return [(Span(f" {line}", role),) for line in _sentences(reading or notice or lasts, width - 2)]


def _answer(message: str, cells: int) -> list[Line]:
    """Return the answer to a key with a sign before it."""
    signs = [Span(ANSWER, "accent"), Span(" " * len(ANSWER))]
    lines = _sentences(message, cells - len(ANSWER) - 1)
    return [(signs[min(at, 1)], Span(line, "strong")) for at, line in enumerate(lines)]


def _is_explained(view: ViewState) -> bool:
    """Return whether the panel has the reason for a source without distributions, in place of a map."""
    if view.origin is None or view.selection.screen != "overview" or not no_distribution(view.origin):
        return False
    shown = selected(view.subjects())
    return shown is not None and no_map(shown, view.origin) == no_distribution(view.origin)


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


class TourBanner(NamedTuple):
    """Text of a tour's stop, shown above the health line. `place`: 2/5."""

    place: str
    title: str
    text: str
    keys: Line = ()
    points: tuple[str, ...] = ()
    """Names of the parts that the text is about (views/spotlight.py); empty: the whole screen."""
    context: str = ""
    """Context of keys of the screen with those parts."""


def banner_lines(banner: TourBanner, cells: int) -> list[Line]:
    """Return a line with the place and the keys, then the text."""
    place, title = Span(f" {banner.place} ", "accent"), Span(banner.title, "strong")
    keys = (Span("  "), *banner.keys) if banner.keys else ()
    first = keys[:_FIRST_KEY]
    variants: tuple[tuple[Line, Line], ...] = (
        ((place, Span(" "), title), (*keys, Span(" "))),
        ((place, title), keys),
        ((place, title), first),
        ((place,), keys),
    )
    left, keys = next(
        (variant for variant in variants if sum(map(width, variant)) + ends(cells) <= cells), variants[-1]
    )
    return [_sides(left, keys, cells), *paragraph(banner.text, cells)]
