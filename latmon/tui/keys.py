"""The table of keys, from which bindings, the line of keys and the help are made, and the mouse. Pure.

A click does what keys do, too: its target is with the cells of the main screen (views/lines.py); a cell of a heat map
and a time on the strip are found by their place. It selects a row, opens the selected one, presses a key of the last
line, lists the outliers of a cell of the heat map, and goes to a time on the strip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from textual.binding import Binding

from latmon.findings.rule import screen_title
from latmon.support.units import EXAMPLES
from latmon.tui.commands import FILTER, NOTE, SEEK, STEPS, THRESHOLD, WORDS, Choice, Prompt
from latmon.tui.time_travel import TRAVEL
from latmon.views.context import ViewState, selected
from latmon.views.heatmap import LABEL
from latmon.views.heatmap_state import DrawnMap
from latmon.views.lines import (
    FRAME,
    ORDER,
    SORT,
    Line,
    Span,
    Target,
    cell,
    plain,
    width,
)
from latmon.views.panels.outliers import ORDERS
from latmon.views.selection import (
    OP_CHOICES,
    PANELS,
    SCREENS,
    SORT_WORDS,
    SORTS,
    WINDOWS_US,
    Cursor,
    MapCell,
    Selection,
    picked,
)
from latmon.views.units import span

_MAP = ("overview", "zoom", "cursor")
_LEFT = tuple("│├╭╰┌└")
"""Left ends of the lines of a frame."""
_TITLE = re.compile("[,:;(]")
_OVERVIEW = ("overview", "zoom")
_WAITING = ("outstanding", "audit", "order")
_DEVICES = (*_OVERVIEW, "stages", "stage", "outstanding", "order", "compared")
_TABLES = ("interrupts", "tables")
_LINES = (*_TABLES, "delays")
_CURSOR = ("cursor",)
_FINDINGS = ("findings",)
_WHO = ("who",)
_ISSUER = ("issuer",)
_ISSUERS = (*_WHO, *_ISSUER)
_FILES = ("files",)
_STAGES = ("stages", "stage", "files")
_TOUR = ("tour",)
_PAGES = ("stage", "outlier", "audit", "findings", "details", "compared")
_MARK = "cursor: on the heat map of the selected device, which is shown alone"
_FIRST = ("stop_now", "redraw", "suspend", "next_panel", "part", "processes")
"""Keys with priority over widgets: some always work, and Textual would move the focus with Tab."""
_SECTIONS = (
    ("Keys", ()),
    ("Keys of the overview (1)", _OVERVIEW),
    ("Keys of the marked region on a map (v)", _CURSOR),
    ("Keys of the stages (2)", _STAGES),
    ("Keys of the I/Os in flight (3)", _WAITING),
    ("Keys of the slow I/Os (4)", ("outliers", "outlier")),
    ("Keys of the interrupts (5)", _LINES),
    ("Keys of the findings (6)", _FINDINGS),
    ("Keys of cgroups and processes (7)", _ISSUERS),
    ("Keys of a demo's tour (latmon demo NAME --tour)", _TOUR),
)
_WAYS: Mapping[str, tuple[tuple[str, int], ...]] = MappingProxyType(
    {
        **{name: (("screen", at),) for at, name in enumerate(SCREENS)},
        "zoom": (("screen", 0), ("zoom", 0)),
        "cursor": (("screen", 0), ("mark", 0)),
        "stage": (("screen", 1), ("enter", 0)),
        "files": (("screen", 1), ("aside", 2)),
        "audit": (("screen", 2), ("aside", 0)),
        "order": (("screen", 2), ("aside", 1)),
        "outlier": (("screen", 3), ("read", 0)),
        "tables": (("screen", 4), ("part", 1)),
        "delays": (("screen", 4), ("delays", 0)),
        "issuer": (("screen", 6), ("its_devices", 0)),
    },
)
"""Context -> the actions that lead to it from everywhere."""
_LEAST_KEYS = len(" Esc ?")
"""Cells of the last line that the names of the screens leave to keys."""
_NEAREST = ("Enter", "Tab", "Space", "Esc", ":", "?")
"""Keys of the last line next to the screens, in this order."""
_KEYS_FIRST = ("?", "Esc", ":", "Tab", "Space")
"""The same keys in the order in which they get room; without its name, Enter says nothing."""
_NAMES_FIRST = ("Enter", "Esc", "?", "Tab", "Space", ":")
"""The same keys in the order in which their names get room."""
_WAYS_OUT = ("suspend", "screen", "help", "leave", "stop", "stop_now")
"""Actions of all contexts that are below those of the screen in the brief table: they lead away from it."""
_NOT_BRIEF = ("redraw",)
"""Actions of all contexts that only the sections below the brief table have, which is as high as a small screen."""
_BRIEF_KEYS = 9
"""Cells of the keys in the brief table."""
_FILTER = 24
"""Cells of a filter on the last line, at most."""
_SEEN = 60
"""Characters of a typed line that are shown."""
_USED = ("leave", "screen", "move", "scroll")
"""Actions that change the selection while a comparison is shown."""
_NAMES = 20
"""Cells for names to choose from, without which the keys are left out."""
_MORE = 2
"""Cells of the mark for more names."""
_EXAMPLES_OF: Mapping[str, str] = MappingProxyType(
    {SEEK: EXAMPLES, NOTE: "a note at the present time", THRESHOLD: "10ms, 1s; nothing: none"}
)
"""Purpose of a typed line -> what may be typed."""
_ENTER_OF: Mapping[str, str] = MappingProxyType({SEEK: "go", NOTE: "put", THRESHOLD: "set"})
"""Purpose of a typed line -> what Enter does."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a key: a command of STEPS or TRAVEL with its argument `by`, or an action of the app.

    `keys` are Textual's names, `shown` is the text for users. `does` begins with the action's title, which ends at the
    first comma, colon, semicolon or bracket. `brief`: the text on the last line, empty for none.
    `on`: the contexts in which it works; empty: all.
    """

    name: str
    keys: str
    shown: str
    does: str
    brief: str = ""
    by: int = 0
    on: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the first words of the sentence: `filter` of `filter: show some devices, by ...`."""
        return _TITLE.split(self.does, maxsplit=1)[0].strip()

    @property
    def call(self) -> str:
        """Return the action as Textual calls it."""
        if self.name in STEPS:
            return f"choose({self.name!r}, {self.by})"
        if self.name in _TOUR:
            return f"tour({self.by})"
        return f"travel({self.name!r}, {self.by})" if self.name in TRAVEL else self.name


ACTIONS = (
    Action("screen", "1", "1", "overview: all devices, and a heat map of each", "overview", 0),
    Action("screen", "2", "2", "stages: where the time of each device's I/O goes", "stages", 1),
    Action("screen", "3", "3", "in flight: I/Os not completed yet, their number and limit", "in flight", 2),
    Action("screen", "4", "4", "slow I/Os: one by one, the outliers", "slow I/Os", 3),
    Action("screen", "5", "5", "interrupts: per CPU and device, softirqs and wake-ups", "interrupts", 4),
    Action("screen", "6", "6", "findings: what is wrong, in words", "findings", 5),
    Action("screen", "7", "7", "who: the I/Os of each cgroup, service and container", "who", 6),
    Action(
        "zoom", "enter", "Enter", "only the selected device; the devices of a host or a group", "zoom", on=_OVERVIEW
    ),
    Action("enter", "enter", "Enter", "open the selected device: its stages", "open", on=("stages",)),
    Action("read", "enter", "Enter", "open the selected outlier", "open", on=("outliers",)),
    Action("delays", "enter", "Enter", "delays: a heat map of the softirq vector", "map", on=("interrupts",)),
    Action("evidence", "enter", "Enter", "the evidence: its screen, device and latencies", "show", on=_FINDINGS),
    Action("its_devices", "enter", "Enter", "its devices: those of the selected cgroup", "open", on=("who",)),
    Action(
        "its_outliers", "enter", "Enter", "its outliers: its slow I/Os on the selected device", "outliers", on=_ISSUER
    ),
    Action("its_request", "enter", "Enter", "its request: the slowest I/O of the operation", "request", on=_FILES),
    Action("gather", "enter", "Enter", "outliers of the marked region", "list", on=_CURSOR),
    Action("help", "question_mark,f1,H", "?", "help: keys, and what each number includes", "help"),
    Action("copy", "c", "c", "copy: a command of the next steps (OSC 52); again: the next one", "copy", on=_FINDINGS),
    Action(
        "busy",
        "d",
        "d",
        "busy time: only the time with I/Os in the driver; again: idle time too",
        "busy",
        on=("outstanding",),
    ),
    Action(
        "aside", "a", "a", "the limits of all devices, as configured and as seen; again: back", "audit", 0, on=_WAITING
    ),
    Action(
        "aside",
        "i",
        "i",
        "issue order: in which order I/Os were issued, against LBA; again: back",
        "order",
        1,
        on=_WAITING,
    ),
    Action("mark", "v", "v", _MARK, "mark", on=("zoom",)),
    Action("mark", "v", "v", "pin this corner: the arrows move the other; again: release", "pin", on=_CURSOR),
    Action("next_panel", "tab", "Tab", "small maps: one per device, or the table", "maps", on=_OVERVIEW),
    Action("part", "tab", "Tab", "the next part: softirqs, handlers, wake-ups", "part", 1, on=_TABLES),
    Action("part", "shift+tab", "Shift-Tab", "the part before", by=-1, on=_TABLES),
    Action("processes", "tab", "Tab", "cgroups, or processes: traced while this screen is open", "processes", on=_WHO),
    Action("order", "s", "s", "by time or by total", "order", on=("outliers", *_FILES)),
    Action("pick", "n", "n", "next outlier", "next", 1, on=("outlier", "outliers")),
    Action("pick", "p", "p", "outlier before", "previous", -1, on=("outlier", "outliers")),
    Action(
        "tour",
        "full_stop,greater_than_sign",
        ".",
        "the next stop of the tour; it comes by itself after 15 s",
        "next",
        1,
        on=_TOUR,
    ),
    Action("tour", "comma,less_than_sign", ",", "the stop before", "back", -1, on=_TOUR),
    Action("tour", "escape", "Esc", "end the tour; the demo goes on", "end", 0, on=_TOUR),
    Action("leave", "escape,backspace", "Esc", "back, also to all hosts or groups; clears the filter", "back"),
    Action(
        "aside",
        "F",
        "F",
        "files: what reads, writes, syncs and so on wait for; again: back",
        "files",
        2,
        on=_STAGES,
    ),
    Action(
        "its_files",
        "F",
        "F",
        "files: what all programs wait for, and below it the slow operations of the selected row's processes",
        "files",
        on=_ISSUERS,
    ),
    Action(
        "filter",
        "slash",
        "/",
        "filter: parts of name, driver or model, a glob; !sda or -sda: without it",
        "filter",
    ),
    Action("palette", "colon,ctrl+p", ":", "commands: every action by its name; Enter runs it", "commands"),
    Action("stop", "q", "q", "quit", "quit"),
    Action("stop_now", "ctrl+c,ctrl+q", "Ctrl-C", "quit, whatever is open"),
    Action("suspend", "ctrl+z", "Ctrl-Z", "suspend: back to the shell, whose fg goes on; data keeps arriving"),
    Action("redraw", "ctrl+l", "Ctrl-L", "redraw: all of the screen, after output of another program"),
    Action("stages", "S", "S", "trace stages on demand (auto), never (basic), or always (all)", "stages"),
    Action(
        "visit",
        "E",
        "E",
        "over ssh: `latmon fleet` on the selected host of a Prometheus; its q leads back",
        "ssh",
        on=_OVERVIEW,
    ),
    Action(
        "sort",
        "s",
        "s",
        "sort: worst first, or by p99, max, IOPS, MB/s, share of the limit, name",
        "sort",
        on=_OVERVIEW,
    ),
    Action("mark", "v", "v", _MARK, "mark", on=("overview",)),
    Action("apart", "r", "r", "read and write apart: of the selected device; again: together", "apart", on=_OVERVIEW),
    Action("threshold", "A", "A", "threshold: I/Os above it are slow: they are counted and drawn in the alarm colour"),
    Action("ops", "o", "o", "one op: all I/O, or only read, write, flush, discard, other", "op"),
    Action("hold", "space", "Space", "pause and go on; data keeps arriving", "pause"),
    Action(
        "group",
        "b",
        "b",
        "by group: a row per host of a fleet, per controller with its worst device, per model, per volume",
        "group",
        on=_OVERVIEW,
    ),
    Action("step", "left_square_bracket", "[", "one interval back", by=-1),
    Action("step", "right_square_bracket", "]", "one interval forward", by=1),
    Action("step", "left_curly_bracket", "{", "ten intervals back", by=-10),
    Action("step", "right_curly_bracket", "}", "ten intervals forward", by=10),
    Action("event", "left_parenthesis", "(", "previous event: a finding, a mark, a burst of outliers", by=-1),
    Action("event", "right_parenthesis", ")", "next event: a finding, a mark, a burst of outliers", by=1),
    Action("kind", "x", "x", "kind of events: all, findings, marks, bursts of outliers, for ( and )"),
    Action("end", "g", "g", "the oldest: as far back as is kept", by=-1),
    Action("end", "G", "G", "the newest: back to live", by=1),
    Action("seek", "t", "t", "go to a time: 13:04:12, 13:04, 2026-01-05 13:04, -5min, +10s"),
    Action("save", "w", "w", "save: the window on the screen as a recording"),
    Action("picture", "P", "P", "picture: save what is on the screen as an SVG"),
    Action("note", "m", "m", "set a mark: a note at the present time"),
    Action(
        "fold",
        "f",
        "f",
        "offsets: where in the second events fell, then in the tick: outliers, then issues",
        on=_OVERVIEW,
    ),
    Action(
        "load",
        "L",
        "L",
        "host load: PSI, steal, dirty pages, retransmits below the map; again: without",
        on=_OVERVIEW,
    ),
    Action("compare", "D", "D", "compare: this window is A; after a change again: B beside it; again: back"),
    Action("further", "N", "N", "compare: beside two spans, add what came since as C, D, ...: a sweep"),
    Action("window", "plus,equals_sign", "+", "longer window", by=1),
    Action("window", "minus", "-", "shorter window", by=-1),
    Action("details", "I", "I", "the capture: coverage, losses, cost, what is not measured here; again: back"),
    Action("record", "R", "R", "record: start and stop a recording"),
    Action("theme", "T", "T", "theme: choose one, which is shown at once; Enter keeps it, Esc restores"),
    Action("ramp", "C", "C", "ramp: choose the colours of counts in heat maps, in the same way"),
    Action("view", "V", "V", "saved view: the next one of the config's views"),
    Action("move", "up,k,left,h", "↑ ← k h", "device before", by=-1, on=_DEVICES),
    Action("move", "down,j,right,l", "↓ → j l", "device after", by=1, on=_DEVICES),
    Action("move", "home", "Home", "first device", by=-1000, on=_DEVICES),
    Action("move", "end", "End", "last device", by=1000, on=_DEVICES),
    Action("turn", "pageup", "PgUp", "the small maps before, or ten devices up", by=-1, on=_OVERVIEW),
    Action("turn", "pagedown", "PgDn", "the next small maps, or ten devices down", by=1, on=_OVERVIEW),
    Action("audit_row", "up,k", "↑ k", "row of the audit above", by=-1, on=("audit",)),
    Action("audit_row", "down,j", "↓ j", "row of the audit below", by=1, on=("audit",)),
    Action("audit_row", "home", "Home", "first row of the audit", by=-1000, on=("audit",)),
    Action("audit_row", "end", "End", "last row of the audit", by=1000, on=("audit",)),
    Action("pick", "up,k", "↑ k", "outlier above", by=-1, on=("outliers",)),
    Action("pick", "down,j", "↓ j", "outlier below", by=1, on=("outliers",)),
    Action("pick", "pageup,b", "PgUp", "ten outliers up", by=-10, on=("outliers",)),
    Action("pick", "pagedown,f", "PgDn", "ten outliers down", by=10, on=("outliers",)),
    Action("pick", "home", "Home", "first outlier", by=-100_000, on=("outliers",)),
    Action("pick", "end", "End", "last outlier", by=100_000, on=("outliers",)),
    Action("found", "up,k", "↑ k", "finding above", by=-1, on=_FINDINGS),
    Action("found", "down,j", "↓ j", "finding below", by=1, on=_FINDINGS),
    Action("found", "home", "Home", "first finding", by=-100_000, on=_FINDINGS),
    Action("found", "end", "End", "last finding", by=100_000, on=_FINDINGS),
    Action("issuer", "up,k", "↑ k", "row above", by=-1, on=_WHO),
    Action("issuer", "down,j", "↓ j", "row below", by=1, on=_WHO),
    Action("issuer", "home", "Home", "first row", by=-100_000, on=_WHO),
    Action("issuer", "end", "End", "last row", by=100_000, on=_WHO),
    Action("operation", "up,k", "↑ k", "slow operation above", by=-1, on=_FILES),
    Action("operation", "down,j", "↓ j", "slow operation below", by=1, on=_FILES),
    Action("operation", "pageup,b", "PgUp", "ten slow operations up", by=-10, on=_FILES),
    Action("operation", "pagedown,f", "PgDn", "ten slow operations down", by=10, on=_FILES),
    Action("operation", "home", "Home", "first slow operation", by=-100_000, on=_FILES),
    Action("operation", "end", "End", "last slow operation", by=100_000, on=_FILES),
    Action("line", "up,k", "↑ k", "table row above", by=-1, on=_LINES),
    Action("line", "down,j", "↓ j", "table row below", by=1, on=_LINES),
    Action("line", "home", "Home", "first table row", by=-100_000, on=_LINES),
    Action("line", "end", "End", "last table row", by=100_000, on=_LINES),
    Action("cpus", "left,h", "← h", "CPUs before", by=-1, on=_TABLES),
    Action("cpus", "right,l", "→ l", "CPUs after", by=1, on=_TABLES),
    Action("scroll", "up,k", "↑ k", "up a line", by=-1, on=("outlier", "issuer")),
    Action("scroll", "down,j", "↓ j", "down a line", by=1, on=("outlier", "issuer")),
    Action("through", "pageup,b", "PgUp", "list up: the I/Os in flight", by=-1, on=("outstanding",)),
    Action("through", "pagedown,f", "PgDn", "list down: the I/Os in flight, each by itself", by=1, on=("outstanding",)),
    Action("scroll", "pageup,b", "PgUp", "up ten lines, less on a small screen", by=-10, on=_PAGES),
    Action("scroll", "pagedown,f", "PgDn", "down ten lines, less on a small screen", by=10, on=_PAGES),
    Action("across", "left,h", "← h", "cursor to earlier", by=-1, on=_CURSOR),
    Action("across", "right,l", "→ l", "cursor to later", by=1, on=_CURSOR),
    Action("across", "home", "Home", "cursor to the oldest", by=-1000, on=_CURSOR),
    Action("across", "end", "End", "cursor to the newest", by=1000, on=_CURSOR),
    Action("up", "up,k", "↑ k", "cursor to slower", by=1, on=_CURSOR),
    Action("up", "down,j", "↓ j", "cursor to faster", by=-1, on=_CURSOR),
    Action(
        "grow_across",
        "shift+left",
        "Shift-←",
        "grow the region: its other corner is pinned",
        by=-1,
        on=_CURSOR,
    ),
    Action("grow_across", "shift+right", "Shift-→", "", by=1, on=_CURSOR),
    Action("grow_up", "shift+up", "Shift-↑", "", by=1, on=_CURSOR),
    Action("grow_up", "shift+down", "Shift-↓", "", by=-1, on=_CURSOR),
)


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding]:
    """Return the table as Textual's bindings; a key with several meanings has several of them."""
    return [Binding(a.keys, a.call, a.does, show=False, priority=a.name in _FIRST) for a in actions]


def works(name: str, by: int, context: str) -> bool:
    """Return whether an action works in a context."""
    return any((a.name, a.by) == (name, by) and (not a.on or context in a.on) for a in ACTIONS)


def sections(context: str = "") -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of the help: titles with (keys, effect), that of the context first.

    Each action is in one section.
    """
    keys_by_section: dict[str, list[tuple[str, str]]] = {title: [] for title, _ in _SECTIONS}
    for a in ACTIONS:
        title = next(title for title, contexts in _SECTIONS if set(a.on[:1]) <= set(contexts) or a.on == contexts)
        if not a.does or (a.shown, a.does) not in keys_by_section[title]:
            keys_by_section[title].append((a.shown, a.does))
    titles = [title for title, contexts in _SECTIONS if context in contexts]
    return sorted(keys_by_section.items(), key=lambda section: section[0] not in titles)


class Command(NamedTuple):
    """An entry of the command palette: the keys to press, the sentence, and Textual's calls in order.

    `words`: other words that find it; `group`: one of GROUPS.
    """

    keys: str
    text: str
    calls: tuple[str, ...]
    words: str = ""
    group: str = ""


HERE, VIEWS, TIMES, SHOWN, SAVED, OTHERS = "here", "views", "time", "show", "save", "others"
GROUPS = (HERE, VIEWS, TIMES, SHOWN, SAVED, OTHERS)
"""Groups of commands in the order of the palette: of this screen, and of other ones at the end."""
_GROUP_OF: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("screen", "leave", "details", "help", "palette", "stop", "stop_now", "suspend"), VIEWS)
    | dict.fromkeys(("hold", "step", "event", "kind", "end", "seek", "window", "compare", "further"), TIMES)
    | dict.fromkeys(("save", "picture", "note", "record"), SAVED)
)
"""Action of all contexts -> its group, where that is not SHOWN."""


def commands(context: str, views: Sequence[str] = (), *, touring: bool = False) -> list[Command]:
    """Return every action by GROUPS: those of this context first, then those of all contexts and of other screens.

    Between them are the values of sort, op and window, and the saved `views`. An action of another screen begins with
    the actions that lead there.
    """
    known = [a for a in ACTIONS if a.does and (a.on != _TOUR or touring)]
    actions = [a for a in known if context in a.on or a.on == _TOUR]
    everywhere = [a for a in known if not a.on]
    commands = [Command(a.shown, a.does, (a.call,), f"{a.brief} {a.name}", HERE) for a in actions]
    commands += [
        Command(a.shown, a.does, (a.call,), f"{a.brief} {a.name}", _GROUP_OF.get(a.name, SHOWN)) for a in everywhere
    ]
    orders = {name: f"sort {'' if name == SORTS[0] else 'by '}{words}" for name, words in SORT_WORDS.items()}
    commands += [Command("s", orders[name], (f"setting('sort', {name!r})",), name, SHOWN) for name in SORTS]
    commands += [
        Command("o", f"show {_op(name)}", (f"setting('op', {name!r})",), group=SHOWN) for name, _ in OP_CHOICES
    ]
    commands += [
        Command("+ -", f"window of {span(us)}", (f"setting('window', {us})",), group=TIMES) for us in WINDOWS_US
    ]
    commands += [Command("V", f"saved view {name}", (f"view({name!r})",), group=VIEWS) for name in views]
    known_here = {(a.name, a.by) for a in actions}
    for a in known:
        if a.on and (a.name, a.by) not in known_here:
            way = [_action(*step) for step in _WAYS[a.on[0]]]
            keys = " ".join(action.shown.split()[0] for action in (*way, a))
            calls = tuple(action.call for action in (*way, a))
            commands.append(Command(keys, f"{a.does} ({screen_title(a.on[0])})", calls, a.brief, OTHERS))
    return sorted(commands, key=lambda command: GROUPS.index(command.group))


def _op(name: str) -> str:
    return "all ops" if name == "all" else f"{name} only"


def matching(commands: Iterable[Command], typed: str) -> list[Command]:
    """Return the commands with all typed words, those that begin with them first. Case is ignored."""
    wanted = typed.lower().strip()

    def has(text: str) -> bool:
        return all(word in text.lower() for word in wanted.split())

    def rank(command: Command) -> tuple[bool, ...]:
        text = command.text.lower()
        return not text.startswith(wanted), wanted not in text, not has(text)

    return sorted((command for command in commands if has(f"{command.text} {command.words}")), key=rank)


def _action(name: str, by: int) -> Action:
    return next(a for a in ACTIONS if (a.name, a.by) == (name, by))


def brief_keys(
    context: str, cells: int = 0, *, visiting: bool = False
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return (keys, text) of this context with the screens, and of all contexts; opposite actions share a row.

    The text is the sentence where it fits in `cells`, else the title. `visiting`: as of `foot`.
    """
    own = [a for a in ACTIONS if context in a.on and (visiting or a.name != "visit")]
    ways = [a for a in ACTIONS if a.name in _WAYS_OUT]
    everywhere = [a for a in ACTIONS if not a.on and a.name not in (*_WAYS_OUT, *_NOT_BRIEF)]
    everywhere.sort(key=lambda action: GROUPS.index(_GROUP_OF.get(action.name, SHOWN)))
    return [*_pairs(own, cells), *_pairs(ways, cells)], _pairs(everywhere, cells)


def _pairs(actions: Sequence[Action], cells: int) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    before: Action | None = None
    for a in (action for action in actions if action.does):
        both = f"{before.shown.split()[0]} {a.shown.split()[0]}" if before is not None else ""
        opposite = before is not None and (before.name, before.on, before.by) == (a.name, a.on, -a.by)
        if opposite and a.by and len(both) <= _BRIEF_KEYS:
            _, title = rows.pop()
            more = " ".join(word for word in a.title.split() if word not in title.split())
            rows.append((both, f"{title}, {more}"))
            before = None
        elif a.title not in [title for _, title in rows]:
            rows.append((a.shown.split()[0], a.title))
            before = a
    sentences = {(a.shown.split()[0], a.title): a.does for a in actions if len(a.does) <= cells}
    return [(keys, sentences.get((keys, title), title)) for keys, title in rows]


def key_line(context: str, states: Mapping[str, str], cells: int, now: int = 0) -> Line:
    """Return the last line: the screens by name, then the keys of `_NEAREST`, then others, as many as fit.

    A key of `_NEAREST` without room for its name is the key only. `states` maps an action's name to its current value,
    empty where it has no effect; `now`: number of the screen.
    """
    actions = [a for a in ACTIONS if a.brief and (not a.on or context in a.on) and states.get(a.name, a.brief)]
    texts = {a: f" {states.get(a.name, a.brief)}" for a in actions}
    nearest = _nearest(actions)
    gap = Span(" " * (_GAP if cells >= _WIDE else 1))
    line = _screen_names([a for a in actions if a.name == "screen"], cells - _LEAST_KEYS, now)
    left = cells - width(line)
    shown: dict[str, Line] = {}
    for key in _KEYS_FIRST:
        if key in nearest and len(gap.text) + len(key) <= left:
            shown[key] = (gap, Span(key, "accent"))
            left -= width(shown[key])
    for key in _NAMES_FIRST:
        if key not in nearest:
            continue
        named = (gap, Span(key, "accent"), Span(texts[nearest[key]], "dim"))
        more = width(named) - width(shown.get(key, ()))
        if more <= left:
            shown[key] = named
            left -= more
    for key in _NEAREST:
        line = (*line, *shown.get(key, ()))
    for action in actions:
        if action in nearest.values() or action.name == "screen":
            continue
        entry = (gap, Span(action.shown.split()[0], "accent"), Span(texts[action], "dim"))
        if width(entry) > left:
            break
        line = (*line, *entry)
        left -= width(entry)
    return line


def _nearest(actions: Sequence[Action]) -> dict[str, Action]:
    """Return the actions of the keys of `_NEAREST`; of several actions of a key the first."""
    by_key: dict[str, Action] = {}
    for action in actions:
        key = action.shown.split()[0]
        if key in _NEAREST:
            by_key.setdefault(key, action)
    return by_key


def _screen_names(screens: Sequence[Action], cells: int, now: int) -> Line:
    """Return the numbers and names of the screens, and `…` for those without room."""
    line: Line = ()
    for at, action in enumerate(screens):
        text = Span(f" {screen_title(SCREENS[action.by])}", "strong" if action.by == now else "dim")
        entry = (Span(" "), Span(action.shown, "accent"), text)
        is_last = at + 1 == len(screens)
        if width(line) + width(entry) + (0 if is_last else _MORE) > cells:
            return (*line, Span(" …", "dim"))
        line = (*line, *entry)
    return line


def tour_keys(next_s: int | None) -> Line:
    """Return the keys of a tour, for the banner with its text; `next_s`: when the next stop comes by itself."""
    spans: list[Span] = []
    for action in ACTIONS:
        if action.on != _TOUR or (action.by > 0 and next_s is None):
            continue
        is_next = action.by > 0
        spans += [Span(action.shown.split()[0], "accent"), Span(f" {action.brief}", "dim")]
        spans += [Span(f" in {next_s} s")] if is_next else []
        spans.append(Span(" " * _GAP))
    return tuple(spans[:-1])


_WIDE, _GAP = 100, 2
"""Cells from which on the keys of the last line are `_GAP` cells apart; else one."""


def is_hidden(action: str, name: str) -> bool:
    """Return whether an action, with the name of its first argument or its own, changes what a comparison hides."""
    return action in ("choose", "filter", "view") and name not in _USED


def is_hidden_of(action: Action) -> bool:
    """Return whether an action changes what a comparison hides."""
    return is_hidden(action.call.partition("(")[0], action.name)


def foot(
    view: ViewState,
    open_prompt: Prompt | Choice | None,
    cells: int,
    *,
    switched: bool = True,
    comparing: bool = False,
    visiting: bool = False,
) -> Line:
    """Return the last line.

    `switched`: the stages mode can be changed from here; `comparing`: a comparison is shown; `visiting`: a host of the
    screen can be opened over ssh.
    """
    if isinstance(open_prompt, Choice):
        return choosing(open_prompt, cells)
    if open_prompt is not None:
        return _typing(view, open_prompt, cells)
    selection = view.selection
    states = {
        "sort": "sort",
        "order": selection.order,
        "ops": "op" if selection.screen != "outstanding" else "",
        "leave": "back" if _leads_back(selection) else "",
        "next_panel": "table" if selection.panel == "maps" else "maps",
        "zoom": "open" if selection.lists_groups else "unzoom" if selection.panel == "zoom" else "zoom",
        "group": selection.next_group or "devices",
        "apart": "together" if selection.splits else "apart",
        "processes": "cgroups" if view.lists_processes else "processes",
        "busy": "idle too" if selection.busy else "busy",
        "mark": "release" if selection.cursor and selection.cursor.corner else "pin" if selection.cursor else "mark",
        "hold": "go on" if view.away else "pause",
        "stages": f"stages {selection.stages}" if switched else "",
        "visit": "ssh" if visiting else "",
    }
    if comparing:
        hidden = (a.name for a in ACTIONS if is_hidden_of(a))
        states |= dict.fromkeys(hidden, "") | {"leave": "back"}
    elif selection.pattern:
        states["filter"] = cell(selection.pattern, min(len(selection.pattern), _FILTER))
    context = "compared" if comparing else selection.context
    return key_line(context, states, cells, SCREENS.index(selection.screen))


def _leads_back(selection: Selection) -> bool:
    """Return whether there is something that Esc leaves."""
    is_first = selection.context == "overview" and selection.panel == PANELS[0] and selection.back is None
    return not is_first or selection.details or bool(selection.pattern) or bool(selection.group)


def choosing(choice: Choice, cells: int) -> Line:
    """Return the names to choose from with the present one marked, as many as fit, and the keys."""
    left: Line = (Span(f" {choice.purpose}", "accent"),)
    keys = [(" ← →", " "), (" Enter", " keep "), (" Esc", " restore")]
    right = tuple(span for key, does in keys for span in (Span(key, "accent"), Span(does, "dim")))
    right = right if width(left) + width(right) + _NAMES <= cells else ()
    room = cells - width(left) - width(right)
    names: list[Line] = [
        (Span(f" {'▸' if at == choice.at else ' '}{name}", "strong" if at == choice.at else "dim"),)
        for at, name in enumerate(choice.names)
    ]
    first = 0
    while first < choice.at and sum(map(width, names[first : choice.at + 1])) + 2 * _MORE > room:
        first += 1
    shown: Line = (Span(" …" if first else "", "dim"),)
    for at, name in enumerate(names[first:], first):
        if width(shown) + width(name) + _MORE * (at + 1 < len(names)) > room:
            shown += (Span(" …", "dim"),)
            break
        shown += name
    return (*left, *shown, Span(" " * (room - width(shown))), *right)


def _typing(view: ViewState, open_prompt: Prompt, cells: int) -> Line:
    """Return the line that is typed, with its end; what is beside it is left out where it does not fit."""
    if open_prompt.purpose == FILTER:
        text = f"  {len(view.subjects())} of {len(view.history.store.devices)} devices  "
        does, undoes = "keep", "clear"
    else:
        text = "  " if open_prompt.typed.text else f"  {_EXAMPLES_OF[open_prompt.purpose]}  "
        does, undoes = _ENTER_OF[open_prompt.purpose], "leave"
    keys = (Span("Enter", "accent"), Span(f" {does}  ", "dim"), Span("Esc", "accent"), Span(f" {undoes}", "dim"))
    shown = open_prompt.typed.text[-_SEEN:]
    left = (Span(WORDS[open_prompt.purpose], "accent"), Span(shown, "strong"), Span("█"))
    variants: list[Line] = [(Span(text, "dim"), *keys), (Span("  "), *keys), ()]
    return (*left, *next((spans for spans in variants if width((*left, *spans)) <= cells), ()))


class Spot(NamedTuple):
    """A cell of the screen: its lines as text, those of panels without their frames, and the cell's coordinates."""

    lines: Sequence[str]
    x: int
    y: int


def place(lines: Sequence[Line], x: int, y: int) -> Spot:
    """Return a cell of the screen."""
    is_inside = y < len(lines) and _is_framed(lines[y])
    return Spot([_unframed(line) for line in lines], x - is_inside, y)


def _is_framed(line: Line) -> bool:
    """Return whether a line is of a panel with a frame: the frame begins and ends it."""
    return len(line) > 1 and line[0].role == line[-1].role == FRAME and line[0].text.startswith(_LEFT)


def _unframed(line: Line) -> str:
    """Return the text of a line inside of its frame; a heading begins with a blank in place of its frame line."""
    text = plain(line)
    text = text[1:-1] if _is_framed(line) else text
    return f" {text[1:]}" if line and line[0].role == FRAME and text.startswith("─") else text


def key_at(foot: Line, x: int, context: str) -> Action | None:
    """Return the action of the key that the last line shows at a cell; None between keys."""
    begin, shown = 0, ""
    for text, role, _ in foot:
        if role == "accent":
            shown = text
        begin += len(text)
        if begin > x:
            break
    else:
        return None
    return next((a for a in ACTIONS if a.shown.split()[0] == shown and works(a.name, a.by, context)), None)


def action_of(key: str, context: str) -> Action | None:
    """Return the action of a key in a context."""
    return next((a for a in ACTIONS if key in a.keys.split(",") and works(a.name, a.by, context)), None)


def sorted_by_click(target: Target | None, selection: Selection) -> Selection | None:
    """Return the selection in the order of a title that is clicked; None where it is no title or has no order."""
    if target is None or not target.value:
        return None
    if target.kind == SORT:
        return replace(selection, sort=str(target.value))
    return replace(selection, order=str(target.value)) if target.kind == ORDER else None


def why_not_sorted(target: Target | None) -> str:
    """Return which orders there are, for a title that is clicked and has none; empty elsewhere."""
    if target is None or target.value or target.kind not in (SORT, ORDER):
        return ""
    return f"no order of this column: {', '.join(SORT_WORDS.values() if target.kind == SORT else ORDERS)}"


class Pointed(NamedTuple):
    """A cell of a heat map, and the op of the map: `all` for the map of all ops."""

    cell: MapCell
    op: str = "all"


def map_cell(spot: Spot, view: ViewState) -> Pointed | None:
    """Return the cell of a heat map; None outside of its columns, and in a column without data."""
    selection = view.selection
    if selection.context not in _MAP or selection.panel == "maps" or selection.fold:
        return None
    maps = [(op, heatmap_state.drawn) for op, heatmap_state in view.maps.items() if heatmap_state.drawn is not None]
    for (op, drawn), (x, bottom) in zip(maps, _axes(spot, [drawn.scale.rows for _, drawn in maps]), strict=False):
        if bottom - drawn.scale.rows <= spot.y < bottom:
            cell = _cell_of(spot, x, bottom, drawn)
            return None if cell is None else Pointed(cell, op)
    return None


def _axes(spot: Spot, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (column, line) of the corner below the latency axis of each map, from above.

    An axis is a column of `│` and `┤` that ends at `└` and is as high as the map's `rows`.
    """
    wanted = iter(rows)
    high = next(wanted, 0)
    for bottom, line in enumerate(spot.lines):
        for x in (match.start() for match in re.finditer("└", line)):
            side = [line[x : x + 1] for line in spot.lines[:bottom]]
            if next((n for n, char in enumerate(reversed(side)) if char not in ("│", "┤")), len(side)) == high > 0:
                yield x, bottom
                high = next(wanted, 0)
                break


def _cell_of(spot: Spot, axis: int, bottom: int, drawn: DrawnMap) -> MapCell | None:
    timeline, scale = drawn
    body = spot.lines[bottom - scale.rows : bottom]
    ends = (x for x in range(axis + 2, len(body[0])) if all(line[x : x + 1] == "│" for line in body))
    cells = next(ends, axis + 1) - axis - 1
    if not axis < spot.x <= axis + cells:
        return None
    column = timeline.by_slot()[(spot.x - axis - 1) * timeline.slots // cells]
    if column is None:
        return None
    return MapCell(column.number, scale.first(bottom - 1 - spot.y))


def cursor_at(view: ViewState, corner: MapCell, at: MapCell) -> Selection:
    """Return the selection with a region from one cell to another; the device of the map is selected."""
    chosen = selected(view.subjects())
    name = chosen.device.name if chosen else view.selection.selected
    cursor = Cursor(at, corner if corner != at else None)
    return replace(view.selection, selected=name, cursor=cursor, band=None)


def outliers_of(view: ViewState, pointed: Pointed) -> Selection:
    """Return the selection with the outliers of a cell of a map of one op."""
    drawn, chosen = view.maps[pointed.op].drawn, selected(view.subjects())
    if drawn is None or chosen is None:
        return view.selection
    region = picked(Cursor(pointed.cell), drawn.timeline, chosen.device.name, drawn.scale, pointed.op)
    return replace(
        view.selection, screen="outliers", selected=chosen.device.name, region=region, outlier=None, opened=False
    )


def share_of_strip(there: Spot) -> float | None:
    """Return the share of the whole time before the cell; None where the line is no strip."""
    line = there.lines[there.y]
    end = line.rfind("│")
    if "┃" not in line or not LABEL <= there.x < end:
        return None
    return (there.x - LABEL + 0.5) / (end - LABEL)
