"""Commands: each key of the action table as a function from view state to selection; lines that are typed. Pure.

A prompt is the last line while a filter, a time or a note is entered; a choice is of a theme or a ramp.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.findings.episodes import Episode
from latmon.findings.rule import Where, screen_title
from latmon.model.histogram import bucket_index
from latmon.support.units import LONGEST_THRESHOLD_US, duration_us, show_duration
from latmon.views.context import ViewState, selected
from latmon.views.panels.files import operation_position, operations, slow_requests
from latmon.views.panels.findings import current_first, finding_position, key_of, where
from latmon.views.panels.inflight import STEP, ages
from latmon.views.panels.interrupts import focused, interrupt_position, names, tables
from latmon.views.panels.outliers import ORDERS, log, outlier_position
from latmon.views.panels.outliers import key_of as key_of_outlier
from latmon.views.panels.outstanding import audited
from latmon.views.panels.overview import folds
from latmon.views.panels.who import issued, issuer_position, issuers
from latmon.views.selection import (
    ASIDE_OF,
    ASIDES,
    FOREVER_US,
    OP_CHOICES,
    PANELS,
    SCREENS,
    SORTS,
    FindingKey,
    Picked,
    Region,
    Selection,
    after,
    begun,
    picked,
    shown,
    window_beside,
)
from latmon.views.selection import across as band_cursor

T = TypeVar("T")
_OPS = frozenset(name for name, _ in OP_CHOICES)
_PAGE = 10
"""Rows of the device table that a key turns."""
Step = Callable[[ViewState, int], Selection]
"""(view state, distance) -> selection."""
_MAX = 40
MAX_NOTE = 120
_NEXT = MappingProxyType(
    {
        **dict.fromkeys(("right", "down", "l", "j", "tab", "T", "C"), 1),
        **dict.fromkeys(("left", "up", "h", "k", "shift+tab"), -1),
        "home": -1000,
        "end": 1000,
    }
)


def beside(rows: Sequence[T], at: int, by: int) -> T:
    """Return the row that is `by` rows after row `at`; the first and the last row are the ends."""
    return rows[min(max(at + by, 0), len(rows) - 1)]


def chosen(view: ViewState) -> Episode | None:
    """Return the selected finding; None where there is none."""
    episodes = view.found.all
    return episodes[finding_position(view.found, view.selection.finding)] if episodes else None


def next_commands(view: ViewState) -> Sequence[str]:
    """Return the commands of the selected finding's next steps, in the order of the screen."""
    episode = chosen(view)
    if episode is None:
        return ()
    finding = view.found.evidence_of(episode)
    return [command for step in finding.steps for command in step.commands]


def found(view: ViewState, by: int) -> Selection:
    """Select another finding; it stays selected when others come."""
    episodes, selection = view.found.all, view.selection
    if not episodes:
        return selection
    return replace(
        selection, finding=key_of(beside(episodes, finding_position(view.found, selection.finding), by)), top=0
    )


def selected_finding(view: ViewState) -> FindingKey | None:
    """Return what identifies the selected finding of the list."""
    episode = chosen(view)
    return None if episode is None else key_of(episode)


def listed_finding(view: ViewState, wanted: Hashable) -> Selection:
    """Select a finding of the list by what identifies it."""
    key = next((key_of(episode) for episode in view.found.all if key_of(episode) == wanted), None)
    return replace(view.selection, finding=key or view.selection.finding, top=0)


def shown_finding(view: ViewState, wanted: Hashable) -> Selection:
    """Show the list of findings with one of them selected. `wanted`: its rule and device."""
    shown_at = screen(view, SCREENS.index("findings"))
    episode = next((episode for episode in view.found.all if episode.key == wanted), None)
    return shown_at if episode is None else replace(shown_at, finding=key_of(episode))


def evidence(view: ViewState, _by: int) -> Selection:
    """Show the evidence of the selected finding: its screen and device, its region marked. Esc returns to the list."""
    selection, episode = view.selection, chosen(view)
    if episode is None:
        return selection
    finding = view.found.evidence_of(episode)
    place = finding.where
    back = replace(selection, finding=key_of(episode), back=None)
    landed = replace(
        show_at(replace(view, selection=back), place),
        region=_region(place, where(finding)) if place.screen == "outliers" else None,
        back=back,
    )
    if landed.screen == "overview":
        landed = replace(landed, panel="zoom")
    return replace(landed, landed=landed.depth)


def show_at(view: ViewState, place: Where) -> Selection:
    """Return a screen with a device selected and a region marked on its map."""
    selection = view.selection
    screen = ASIDE_OF.get(place.screen, place.screen)
    return replace(
        selection,
        screen=screen if screen in SCREENS else SCREENS[0],
        opened=screen == "stages" and bool(place.device),
        top=0,
        aside=place.screen if place.screen in ASIDES else "",
        panel=PANELS[0],
        cursor=None,
        fold="",
        selected=place.device or selection.selected,
        op=place.op if place.op in _OPS else "all",
        pattern=selection.pattern if _is_shown(view, place.device) else "",
        band=_band(place),
        region=None,
        back=None,
    )


def _is_shown(view: ViewState, device: str) -> bool:
    return not device or any(
        candidate.name == device for candidate in shown(view.history.store.devices.values(), view.selection)
    )


def _band(place: Where) -> tuple[int | None, int | None] | None:
    marked = place.screen == "overview" and (place.low_us, place.high_us) != (None, None)
    return (place.low_us, place.high_us) if marked else None


def _region(place: Where, words: str) -> Picked | None:
    """Return the region of a finding's outliers; only the window bounds their time."""
    if not place.device:
        return None
    low, high = (0 if us is None else bucket_index(us) for us in (place.low_us, place.high_us))
    region = Region(0, 0, low, high, open_below=place.low_us is None, open_above=place.high_us is None)
    return Picked(place.device, 0, FOREVER_US, region, words.removeprefix(f"{screen_title('outliers')}, "))


def part(view: ViewState, by: int) -> Selection:
    """Select the next table of the interrupts screen."""
    return replace(view.selection, part=(view.selection.part + by) % len(tables(view).parts), row=None)


def line(view: ViewState, by: int) -> Selection:
    """Select another row; it stays selected when rows change places."""
    selection = view.selection
    row_names = names(tables(view), selection.part)
    if not row_names:
        return selection
    return replace(selection, row=beside(row_names, interrupt_position(row_names, selection.row), by))


def cpus(view: ViewState, by: int) -> Selection:
    """Scroll the CPUs of the softirq matrix."""
    return replace(view.selection, first_cpu=max(view.selection.first_cpu + by, 0))


def delays(view: ViewState, _by: int) -> Selection:
    """Open the delay map of the selected softirq vector; rows of other tables have none."""
    selection = line(view, 0)
    on_vectors = focused(tables(view), selection.part) == "softirqs"
    return replace(selection, opened=selection.row is not None and on_vectors)


def issuer(view: ViewState, by: int) -> Selection:
    """Select another cgroup or process; it stays selected when rows change places."""
    selection, issuer_rows = view.selection, issuers(view)
    if not issuer_rows:
        return selection
    return replace(selection, row=beside(issuer_rows, issuer_position(issuer_rows, selection.row), by).key)


def processes(view: ViewState, _by: int) -> Selection:
    """Toggle between a row per cgroup and a row per process."""
    return replace(view.selection, processes=not view.lists_processes, row=None)


def its_devices(view: ViewState, _by: int) -> Selection:
    """Open the selected cgroup or process: its devices."""
    return replace(issuer(view, 0), opened=bool(issuers(view)), processes=view.lists_processes, top=0)


def its_outliers(view: ViewState, _by: int) -> Selection:
    """List the outliers that the opened cgroup's or process's I/Os on the selected device are. Esc returns to it."""
    region = issued(view)
    return view.selection if region is None else _landed(view, screen="outliers", opened=False, region=region)


def its_files(view: ViewState, _by: int) -> Selection:
    """List the operations on files of the selected cgroup or process. Esc returns to it."""
    region = issued(view)
    if region is None:
        return view.selection
    return _landed(view, screen="stages", opened=False, aside="files", row=None, region=region)


def _landed(view: ViewState, **changed: Any) -> Selection:
    """Return a selection that Esc leads back from to the present one."""
    back = replace(issuer(view, 0), back=None)
    landed = replace(back, **changed, outlier=None, top=0, back=back)
    return replace(landed, landed=landed.depth)


def operation(view: ViewState, by: int) -> Selection:
    """Select another slow operation on a file; it stays selected when newer ones come."""
    selection, file_operations = view.selection, operations(view)
    if not file_operations:
        return selection
    return replace(selection, row=beside(file_operations, operation_position(file_operations, selection.row), by))


def its_request(view: ViewState, _by: int) -> Selection:
    """Open the longest request of the selected operation; Esc returns to the operation."""
    selection, file_operations = operation(view, 0), operations(view)
    outliers = (
        slow_requests(view, file_operations[operation_position(file_operations, selection.row)])
        if file_operations
        else []
    )
    if not outliers:
        return selection
    opened = replace(selection, screen="outliers", opened=True, aside="", region=None, outlier=outliers[0], top=0)
    return replace(opened, back=replace(selection, back=None), landed=opened.depth)


def pick(view: ViewState, by: int) -> Selection:
    """Select another outlier; it stays selected when newer ones come."""
    rows = log(view)
    if not rows.rows:
        return view.selection
    row = beside(rows.rows, outlier_position(rows, view.selection.outlier), by)
    return replace(view.selection, outlier=row.outlier, top=0)


def clicked_row(view: ViewState, key: Hashable) -> Selection | None:
    """Return the selection with the row that is clicked: the same one where it is selected, None where it is gone.

    A frame that came between the picture and the click may have taken the row, or its table.
    """
    selection, context = view.selection, view.selection.context
    if context == "outliers":
        outliers = (folded.outlier for folded in log(view).rows)
        clicked = next((outlier for outlier in outliers if key_of_outlier(outlier) == key), None)
        if clicked is None or clicked == pick(view, 0).outlier:
            return None if clicked is None else selection
        return replace(selection, outlier=clicked, top=0)
    if context in ("interrupts", "tables"):
        assert isinstance(key, tuple)  # noqa: S101  the panel makes it
        return _clicked_line(view, *key)
    if context == "who":
        rows: Sequence[Hashable] = [issuer_row.key for issuer_row in issuers(view)]
        selected_row = issuer(view, 0).row
    elif context == "files":
        rows = operations(view)
        selected_row = operation(view, 0).row
    else:
        return None
    if key not in rows:
        return None
    return selection if key == selected_row else replace(selection, row=key)


def _clicked_line(view: ViewState, part_name: str, row: Hashable) -> Selection | None:
    """Return the selection with a row of a table of the interrupts screen, as `clicked_row` does."""
    selection, parts = view.selection, tables(view).parts
    if part_name not in parts or row not in names(tables(view), parts.index(part_name)):
        return None
    is_selected = part_name == focused(tables(view), selection.part) and row == line(view, 0).row
    return selection if is_selected else replace(selection, part=parts.index(part_name), row=row)


def clicked_part(view: ViewState, name: Hashable) -> Selection:
    """Return the selection with another table of the interrupts screen; the same one where it is that one."""
    parts = tables(view).parts
    if name not in parts or name == focused(tables(view), view.selection.part):
        return view.selection
    return replace(view.selection, part=parts.index(str(name)), row=None)


def read(view: ViewState, _by: int) -> Selection:
    """Open the waterfall of the selected outlier."""
    return replace(pick(view, 0), opened=bool(log(view).rows), top=0)


def order(view: ViewState, _by: int) -> Selection:
    """Order outliers by time or by total."""
    return replace(view.selection, order=after(ORDERS, view.selection.order), outlier=None)


def busy(view: ViewState, _by: int) -> Selection:
    """Toggle between all time and busy time only."""
    return replace(view.selection, busy=not view.selection.busy)


def aside(view: ViewState, by: int) -> Selection:
    """Toggle the limits' audit, the issue order, or the operations on files."""
    wanted = ASIDES[by]
    return replace(view.selection, aside="" if view.selection.aside == wanted else wanted, top=0)


def audit_row(view: ViewState, by: int) -> Selection:
    """Select another device in the order of the audit."""
    names = [audited_device.device for audited_device in audited(view)]
    if not names:
        return view.selection
    at = names.index(view.selection.selected) if view.selection.selected in names else 0
    return replace(view.selection, selected=beside(names, at, by), top=0)


def through(view: ViewState, by: int) -> Selection:
    """Scroll the list of I/Os in flight, at most to its end; at the top equal I/Os are folded."""
    return replace(view.selection, top=min(max(view.selection.top + by * STEP, 0), len(ages(view)) + STEP))


def move(view: ViewState, by: int) -> Selection:
    """Select another device."""
    selection, subjects = view.selection, view.subjects()
    if not subjects:
        return selection
    if selection.lists_groups:
        groups, now = view.groups(), subjects[0].selection.selected
        at = next(i for i, group in enumerate(groups) if any(s.device.name == now for s in group.members))
        return replace(selection, selected=beside(groups, at, by).worst.device.name, band=None)
    names = [s.device.name for s in subjects]
    # until the user selects one, the first in the order of devices is, which has another place among small maps
    at = names.index(subjects[0].selection.selected)
    return replace(selection, selected=beside(names, at, by), band=None)


def turn(view: ViewState, by: int) -> Selection:
    """Select the device a page later: the next small maps, or the next rows of the table."""
    return move(view, by * (view.latency_map.page if view.selection.panel == "maps" else _PAGE))


def next_panel(view: ViewState, _by: int) -> Selection:
    """Toggle between the table with one map and the small maps."""
    return replace(view.selection, panel="maps" if view.selection.panel != "maps" else PANELS[0])


def zoom(view: ViewState, _by: int) -> Selection:
    """Open the selected group, or toggle between the selected device alone and all devices."""
    if view.selection.lists_groups and (subject := selected(view.subjects())) is not None:
        inside = next(group for group in view.groups() if any(s is subject for s in group.members))
        return replace(view.selection, within=inside.name)
    return replace(_with_device(view), panel=PANELS[0] if view.selection.panel == "zoom" else "zoom")


def group(view: ViewState, _by: int) -> Selection:
    """Show a row per host, controller, model or volume, or per device."""
    kind = view.selection.next_group
    return replace(view.selection, group=kind, within="", panel=PANELS[0], cursor=None, band=None)


def sort(view: ViewState, _by: int) -> Selection:
    """Sort the table by the next column."""
    return replace(view.selection, sort=after(SORTS, view.selection.sort))


def fold(view: ViewState, _by: int) -> Selection:
    """Cycle through the heat map, the offsets in the second and in the kernel's tick, of one kind of events each."""
    fold_names, now = folds(view), view.selection.fold
    return replace(view.selection, fold=after(fold_names, now) if now in fold_names else "")


def load(view: ViewState, _by: int) -> Selection:
    """Show the host's values below the map of the selected device, or not."""
    selection = view.selection
    is_shown = view.latency_map.has_load and selection.panel == _big(selection.panel)
    return replace(selection, load=not is_shown, fold="", panel=_big(selection.panel))


def mark(view: ViewState, _by: int) -> Selection:
    """Show the selected device alone with a cursor on its map; with a cursor, pin or release a corner."""
    selection, drawn, chosen = view.selection, view.latency_map.drawn, selected(view.subjects())
    if selection.cursor is not None:
        return replace(selection, cursor=selection.cursor.pinned())
    if drawn is None or chosen is None or selection.panel == "maps":
        return replace(selection, panel="zoom")
    band, timeline, scale = selection.band, drawn.timeline, drawn.scale
    cursor = band_cursor(band, timeline, scale) if band else begun(timeline, chosen.device.name, scale)
    return replace(selection, panel="zoom", selected=chosen.device.name, cursor=cursor, band=None)


def across(view: ViewState, by: int) -> Selection:
    """Move the cursor to a later or an earlier column."""
    return _moved(view, by, 0)


def up(view: ViewState, by: int) -> Selection:
    """Move the cursor to a slower or a faster row."""
    return _moved(view, 0, by)


def grow_across(view: ViewState, by: int) -> Selection:
    """Move the cursor to another column, with the corner pinned."""
    return _moved(_with_corner(view), by, 0)


def grow_up(view: ViewState, by: int) -> Selection:
    """Move the cursor to another row, with the corner pinned."""
    return _moved(_with_corner(view), 0, by)


def gather(view: ViewState, _by: int) -> Selection:
    """List the outliers in the region."""
    selection, drawn = view.selection, view.latency_map.drawn
    if selection.cursor is None or drawn is None:
        return selection
    region = picked(selection.cursor, drawn.timeline, selection.selected, drawn.scale, selection.op)
    return replace(selection, screen="outliers", region=region, outlier=None, opened=False)


def _with_corner(view: ViewState) -> ViewState:
    cursor = view.selection.cursor
    if cursor is None or cursor.corner is not None:
        return view
    return replace(view, selection=replace(view.selection, cursor=cursor.pinned()))


def _moved(view: ViewState, columns: int, rows: int) -> Selection:
    selection, drawn = view.selection, view.latency_map.drawn
    if selection.cursor is None or drawn is None:
        return selection
    return replace(selection, cursor=selection.cursor.moved(columns, rows, drawn.timeline, drawn.scale))


def screen(view: ViewState, by: int) -> Selection:
    """Show a screen by its number in SCREENS, with the same device selected."""
    return replace(
        _with_device(view),
        screen=SCREENS[by],
        opened=False,
        details=False,
        top=0,
        cursor=None,
        region=None,
        aside="",
        band=None,
        back=None,
        finding=current_first(view.found, view.selection.finding),
    )


def _with_device(view: ViewState) -> Selection:
    """Return the selection with the marked device, which is the first one by its row until now.

    Else another device would be shown as soon as rows change places.
    """
    subject = selected(view.subjects())
    if view.selection.selected or subject is None:
        return view.selection
    name = subject.device.name
    return replace(view.selection, selected=name, offered=name)


def enter(view: ViewState, _by: int) -> Selection:
    """Open the selected row."""
    return replace(_with_device(view), opened=True, top=0)


def leave(view: ViewState, _by: int) -> Selection:
    """Go back one step: from an opened row, a region's outliers, cursor, zoom, group, filter, groups, or the screen.

    The evidence of a finding leads back to the finding.
    """
    selection = view.selection
    if selection.details:
        return replace(selection, details=False, top=0)
    if not view.subjects() and (selection.pattern.strip() or selection.within):  # the screen says that Esc shows them
        return replace(selection, pattern="") if selection.pattern.strip() else replace(selection, within="")
    out = _one_back(selection)
    if selection.back is not None and (selection.depth == selection.landed or out is None):
        return replace(selection.back, window_us=selection.window_us, stages=selection.stages)
    panel = PANELS[0] if selection.screen == "overview" else selection.panel
    return out or replace(selection, screen="overview", panel=panel)


def _one_back(selection: Selection) -> Selection | None:
    """Return the selection one step back; None where that leaves the screen."""
    if selection.aside:
        return replace(selection, aside="", top=0)
    if selection.opened:
        return replace(selection, opened=False, top=0)
    if selection.region is not None:
        return replace(selection, region=None, screen="overview")
    if selection.cursor is not None:
        return replace(selection, cursor=None)
    is_overview, selection_before = selection.screen == "overview", None
    if is_overview and selection.panel == "zoom":
        selection_before = replace(selection, panel=PANELS[0], band=None)
    elif is_overview and selection.within:
        selection_before = replace(selection, within="")
    elif selection.pattern:
        selection_before = replace(selection, pattern="")
    elif is_overview and selection.group:
        selection_before = replace(selection, group="")
    return selection_before


def ops(view: ViewState, _by: int) -> Selection:
    """Show the next op only, after the last one all."""
    return replace(view.selection, op=after(tuple(name for name, _ in OP_CHOICES), view.selection.op))


def apart(view: ViewState, _by: int) -> Selection:
    """Toggle between reads and writes of the selected device apart and together."""
    selection = replace(view.selection, op="all", cursor=None, band=None, fold="", panel=_big(view.selection.panel))
    return replace(selection, apart=not view.selection.splits)


def _big(panel: str) -> str:
    return PANELS[0] if panel == "maps" else panel


def window(view: ViewState, by: int) -> Selection:
    """Use a longer or a shorter window."""
    return replace(view.selection, window_us=window_beside(view.selection.window_us, by))


def details(view: ViewState, _by: int) -> Selection:
    """Toggle the page on the health of the capture."""
    return replace(view.selection, details=not view.selection.details, top=0)


def scroll(view: ViewState, by: int) -> Selection:
    """Scroll an opened row; the number of its lines is known only when it is drawn."""
    return replace(view.selection, top=max(view.selection.top + by, 0))


STEPS: Mapping[str, Step] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            *(screen, enter, leave, ops, window, details, scroll),
            *(fold, load, move, turn, next_panel, zoom, sort, group, apart),
            *(busy, aside, audit_row, through),
            *(pick, read, order),
            *(part, line, cpus, delays),
            *(issuer, its_devices, its_outliers, its_files, processes),
            *(operation, its_request),
            *(mark, across, up, grow_across, grow_up, gather),
            *(found, evidence),
        )
    },
)
"""The functions of the action table by name."""


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is typed: its text, and whether it is complete."""

    text: str = ""
    done: bool = False
    is_replaced: bool = False
    """Whether typed text takes the place of this one, which is a value to change, and is not added to it."""

    def after(self, key: str, character: str | None, most: int = _MAX) -> InputLine:
        """Return the line after a key: Enter keeps the text, Esc and Ctrl-U clear it, Ctrl-W removes a word.

        `character`: pasted text too.
        """
        if key == "enter":
            return replace(self, done=True)
        if key == "escape":
            return InputLine("", done=True)
        if key == "backspace":
            return InputLine(self.text[:-1])
        if key == "ctrl+w":
            return InputLine("".join(self.text.rstrip().rpartition(" ")[:2]))
        if key == "ctrl+u":
            return InputLine()
        added = "".join(character_typed for character_typed in character or "" if character_typed.isprintable())
        kept = "" if self.is_replaced and added else self.text
        return InputLine((kept + added)[:most], is_replaced=self.is_replaced and not added)


def one_line(text: str) -> str:
    """Return a pasted text without the ends of its lines, for a line that is typed."""
    return " ".join(text.split())


FILTER, SEEK, NOTE, THRESHOLD = "filter", "seek", "note", "threshold"
WORDS = {FILTER: " / ", SEEK: " time ", NOTE: " mark ", THRESHOLD: " threshold "}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line with its purpose; `kept` is false after Esc."""

    purpose: str
    typed: InputLine
    kept: bool = True

    def after(self, key: str, character: str | None) -> Prompt:
        """Return the prompt after a key."""
        typed = self.typed.after(key, character, MAX_NOTE) if self.purpose == NOTE else self.typed.after(key, character)
        return replace(self, typed=typed, kept=key != "escape")


def with_threshold(selection: Selection, text: str) -> Selection:
    """Return the selection with a typed threshold; nothing typed is none. Raises ValueError with the expected form."""
    if not text.strip():
        return replace(selection, threshold_us=None)
    threshold_us = duration_us(text)
    if threshold_us <= 0:
        raise ValueError("a threshold is longer than 0, such as 10ms")
    if threshold_us > LONGEST_THRESHOLD_US:
        raise ValueError(f"a threshold is at most {show_duration(LONGEST_THRESHOLD_US)}")
    return replace(selection, threshold_us=threshold_us)


THEME, RAMP = "theme", "ramp"


@dataclass(frozen=True, slots=True)
class Choice:
    """A name that is chosen from several and shown at once; `kept` is false after Esc."""

    purpose: str
    names: tuple[str, ...]
    at: int = 0
    done: bool = False
    kept: bool = True

    @property
    def name(self) -> str:
        """Return the name that is shown now."""
        return self.names[self.at]

    def after(self, key: str) -> Choice:
        """Return the choice after a key: Enter keeps the name, Esc restores the first one."""
        if key in ("enter", "space"):
            return replace(self, done=True)
        if key in ("escape", "q"):
            return replace(self, done=True, kept=False)
        by = _NEXT.get(key, 0)
        if abs(by) == 1:
            return replace(self, at=(self.at + by) % len(self.names))
        return replace(self, at=min(max(self.at + by, 0), len(self.names) - 1))
