"""Commands: each key of the action table as a function from view state to selection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from latmon.findings.engine import Episode
from latmon.findings.finding import Where
from latmon.model.histogram import bucket_index
from latmon.views.context import Sight, selected
from latmon.views.panels.findings import finding_position, key_of, where
from latmon.views.panels.inflight import NAMED_US, STEP
from latmon.views.panels.interrupts import focused, interrupt_position, names, tables
from latmon.views.panels.outliers import ORDERS, log, outlier_position
from latmon.views.panels.outstanding import ages, audited
from latmon.views.panels.overview import FOLDS
from latmon.views.selection import (
    ASIDES,
    OP_CHOICES,
    PANELS,
    SCREENS,
    SORTS,
    Choice,
    Picked,
    Region,
    after,
    begun,
    picked,
    shown,
    window_beside,
)
from latmon.views.selection import across as band_cursor

_OPS = frozenset(name for name, _ in OP_CHOICES)
_FOREVER_US = 2**63


def chosen(sight: Sight) -> Episode | None:
    """The selected one."""
    every = sight.found.all
    return every[finding_position(sight.found, sight.choice.finding)] if every else None


def found(sight: Sight, by: int) -> Choice:
    """Another finding, stopping at the ends; what is selected stays so when others come."""
    every = sight.found.all
    if not every:
        return sight.choice
    at = min(max(finding_position(sight.found, sight.choice.finding) + by, 0), len(every) - 1)
    return replace(sight.choice, finding=key_of(every[at]), top=0)


def evidence(sight: Sight, _by: int) -> Choice:
    """The view that shows it, on its device and with its region marked; Esc comes back from there."""
    choice, one = sight.choice, chosen(sight)
    if one is None:
        return choice
    finding = one.last if one in sight.found.lasting else one.worst
    there = finding.where
    back = replace(choice, finding=key_of(one), back=None)
    landed = replace(
        view(replace(sight, choice=back), there),
        region=_region(there, where(finding)) if there.screen == "outliers" else None,
        back=back,
    )
    if landed.screen == "overview":
        landed = replace(landed, panel="zoom")
    return replace(landed, landed=landed.depth)


def view(sight: Sight, there: Where) -> Choice:
    """A screen with a device selected and a region marked on its map."""
    choice = sight.choice
    screen, aside = ("outstanding", "order") if there.screen == "order" else (there.screen, "")
    return replace(
        choice,
        screen=screen if screen in SCREENS else SCREENS[0],
        opened=screen == "stages" and bool(there.device),
        top=0,
        aside=aside,
        panel=PANELS[0],
        cursor=None,
        fold="",
        selected=there.device or choice.selected,
        op=there.op if there.op in _OPS else "all",
        pattern=choice.pattern if _is_shown(sight, there.device) else "",
        band=_band(there),
        region=None,
        back=None,
    )


def _is_shown(sight: Sight, device: str) -> bool:
    return not device or any(one.name == device for one in shown(sight.history.store.devices.values(), sight.choice))


def _band(there: Where) -> tuple[int | None, int | None] | None:
    marked = there.screen == "overview" and (there.low_us, there.high_us) != (None, None)
    return (there.low_us, there.high_us) if marked else None


def _region(there: Where, words: str) -> Picked | None:
    """Its outliers, whenever they were: the window is what bounds them."""
    if not there.device:
        return None
    low, high = (0 if us is None else bucket_index(us) for us in (there.low_us, there.high_us))
    region = Region(0, 0, low, high, open_below=there.low_us is None, open_above=there.high_us is None)
    return Picked(there.device, 0, _FOREVER_US, region, words.removeprefix("outliers, "))


FINDINGS_STEPS = {"found": found, "evidence": evidence}


def part(sight: Sight, by: int) -> Choice:
    """The next of the tables that there are."""
    return replace(sight.choice, part=(sight.choice.part + by) % len(tables(sight).parts), row=None)


def line(sight: Sight, by: int) -> Choice:
    """Another row, stopping at the ends; what is selected stays so when rows change places."""
    choice = sight.choice
    some = names(tables(sight), choice.part)
    if not some:
        return choice
    return replace(choice, row=some[min(max(interrupt_position(some, choice.row) + by, 0), len(some) - 1)])


def cpus(sight: Sight, by: int) -> Choice:
    """Other CPUs of the matrix, where they don't all fit."""
    return replace(sight.choice, first_cpu=max(sight.choice.first_cpu + by, 0))


def delays(sight: Sight, _by: int) -> Choice:
    """The selected vector's heat map; the other tables have none."""
    choice = line(sight, 0)
    on_vectors = focused(tables(sight), choice.part) == "softirqs"
    return replace(choice, opened=choice.row is not None and on_vectors)


INTERRUPTS_STEPS = {"part": part, "line": line, "cpus": cpus, "delays": delays}


def pick(sight: Sight, by: int) -> Choice:
    """Another outlier, stopping at the ends; what is picked stays picked when newer ones come."""
    rows = log(sight)
    if not rows.rows:
        return sight.choice
    at = min(max(outlier_position(rows, sight.choice.outlier) + by, 0), len(rows.rows) - 1)
    return replace(sight.choice, outlier=rows.rows[at].outlier, top=0)


def read(sight: Sight, _by: int) -> Choice:
    """The picked outlier's waterfall."""
    return replace(pick(sight, 0), opened=bool(log(sight).rows), top=0)


def order(sight: Sight, _by: int) -> Choice:
    """By time or by total."""
    return replace(sight.choice, order=after(ORDERS, sight.choice.order), outlier=None)


OUTLIERS_STEPS = {"pick": pick, "read": read, "order": order}


def worth_a_look(sight: Sight) -> str:
    """The device that has held an I/O the longest, else one that is held at a limit; empty where there is none."""
    oldest = next(iter(ages(sight)), None)
    if oldest is not None and oldest.age_us >= NAMED_US:
        return oldest.device
    rows = audited(sight)
    full = [one for one in rows if one.held_at is not None] or [one for one in rows if one.at_limit]
    return full[0].device if full else ""


def busy(sight: Sight, _by: int) -> Choice:
    """All time, or busy time alone."""
    return replace(sight.choice, busy=not sight.choice.busy)


def aside(sight: Sight, by: int) -> Choice:
    """The limits' audit or the issue order, and back."""
    wanted = ASIDES[by]
    return replace(sight.choice, aside="" if sight.choice.aside == wanted else wanted, top=0)


def audit_row(sight: Sight, by: int) -> Choice:
    """Another device in the order of the audit, stopping at the ends."""
    names = [one.device for one in audited(sight)]
    if not names:
        return sight.choice
    at = names.index(sight.choice.selected) if sight.choice.selected in names else 0
    return replace(sight.choice, selected=names[min(max(at + by, 0), len(names) - 1)], top=0)


def through(sight: Sight, by: int) -> Choice:
    """Down the list of what is still in flight, not beyond its end; up to where like ones are one line."""
    return replace(sight.choice, top=min(max(sight.choice.top + by * STEP, 0), len(ages(sight)) + STEP))


OUTSTANDING_STEPS = {"busy": busy, "aside": aside, "audit_row": audit_row, "through": through}


def move(sight: Sight, by: int) -> Choice:
    """Another device, stopping at the ends."""
    choice, names = sight.choice, [s.device.name for s in sight.subjects()]
    if not names:
        return choice
    at = names.index(choice.selected) if choice.selected in names else 0
    return replace(choice, selected=names[min(max(at + by, 0), len(names) - 1)], band=None)


def next_panel(sight: Sight, _by: int) -> Choice:
    """The table with one map, or the small maps."""
    return replace(sight.choice, panel="maps" if sight.choice.panel != "maps" else PANELS[0])


def zoom(sight: Sight, _by: int) -> Choice:
    """The selected device alone, and back."""
    return replace(sight.choice, panel=PANELS[0] if sight.choice.panel == "zoom" else "zoom")


def sort(sight: Sight, _by: int) -> Choice:
    """The table by the next column."""
    return replace(sight.choice, sort=after(SORTS, sight.choice.sort))


def fold(sight: Sight, _by: int) -> Choice:
    """The offsets in the second, folded to the kernel's tick, and back to the heat map."""
    return replace(sight.choice, fold=after(FOLDS, sight.choice.fold))


OVERVIEW_STEPS = {"fold": fold, "move": move, "next_panel": next_panel, "zoom": zoom, "sort": sort}


def mark(sight: Sight, _by: int) -> Choice:
    """The device alone and a cursor on its map; with a cursor there, hold this corner or let go of it."""
    choice, drawn, chosen = sight.choice, sight.sweep.drawn, selected(sight.subjects())
    if choice.cursor is not None:
        return replace(choice, cursor=choice.cursor.held())
    if drawn is None or chosen is None or choice.panel == "maps":
        return replace(choice, panel="zoom")
    band, timeline, scale = choice.band, drawn.timeline, drawn.scale
    cursor = band_cursor(band, timeline, scale) if band else begun(timeline, chosen.device.name, scale)
    return replace(choice, panel="zoom", selected=chosen.device.name, cursor=cursor, band=None)


def across(sight: Sight, by: int) -> Choice:
    """To a later or an earlier column."""
    return _moved(sight, by, 0)


def up(sight: Sight, by: int) -> Choice:
    """To a slower or a faster row."""
    return _moved(sight, 0, by)


def grow_across(sight: Sight, by: int) -> Choice:
    """The same with the corner held."""
    return _moved(_holding(sight), by, 0)


def grow_up(sight: Sight, by: int) -> Choice:
    """The same with the corner held."""
    return _moved(_holding(sight), 0, by)


def gather(sight: Sight, _by: int) -> Choice:
    """The outliers in the region."""
    choice, drawn = sight.choice, sight.sweep.drawn
    if choice.cursor is None or drawn is None:
        return choice
    region = picked(choice.cursor, drawn.timeline, choice.selected, drawn.scale)
    return replace(choice, screen="outliers", region=region, outlier=None, opened=False)


def _holding(sight: Sight) -> Sight:
    cursor = sight.choice.cursor
    if cursor is None or cursor.corner is not None:
        return sight
    return replace(sight, choice=replace(sight.choice, cursor=cursor.held()))


def _moved(sight: Sight, columns: int, rows: int) -> Choice:
    choice, drawn = sight.choice, sight.sweep.drawn
    if choice.cursor is None or drawn is None:
        return choice
    return replace(choice, cursor=choice.cursor.moved(columns, rows, drawn.timeline, drawn.scale))


REGION_STEPS = {
    "mark": mark,
    "across": across,
    "up": up,
    "grow_across": grow_across,
    "grow_up": grow_up,
    "gather": gather,
}


def screen(sight: Sight, by: int) -> Choice:
    """The screen of that number in SCREENS; the outstanding I/Os open on the device that is worth the look."""
    choice = replace(
        sight.choice,
        screen=SCREENS[by],
        selected=sight.choice.selected if sight.choice.is_selected else "",
        offered="",
        opened=False,
        top=0,
        cursor=None,
        region=None,
        aside="",
        band=None,
        back=None,
    )
    if choice.screen == "outstanding" and not choice.is_selected and (name := worth_a_look(sight)):
        return replace(choice, selected=name, offered=name)
    return choice


def enter(sight: Sight, _by: int) -> Choice:
    """The closer look at what is selected."""
    return replace(sight.choice, opened=True, top=0)


def leave(sight: Sight, _by: int) -> Choice:
    """One step back: the closer look, the region's outliers, its cursor, the zoom, the filter, the screen.

    From a finding's evidence to the finding.
    """
    choice = sight.choice
    out = _one_back(choice)
    if choice.back is not None and (choice.depth == choice.landed or out is None):
        return replace(choice.back, window_us=choice.window_us, stages=choice.stages)
    panel = PANELS[0] if choice.screen == "overview" else choice.panel
    return out or replace(choice, screen="overview", panel=panel)


def _one_back(choice: Choice) -> Choice | None:
    """None where it is the screen itself."""
    if choice.aside or choice.opened:
        return replace(choice, aside="", opened=False, top=0)
    if choice.region is not None:
        return replace(choice, region=None, screen="overview")
    if choice.cursor is not None:
        return replace(choice, cursor=None)
    if choice.screen == "overview" and choice.panel == "zoom":
        return replace(choice, panel=PANELS[0], band=None)
    if choice.pattern:
        return replace(choice, pattern="")
    return None


def ops(sight: Sight, _by: int) -> Choice:
    """The next op alone, then all."""
    return replace(sight.choice, op=after(tuple(name for name, _ in OP_CHOICES), sight.choice.op))


def window(sight: Sight, by: int) -> Choice:
    """A longer or a shorter window."""
    return replace(sight.choice, window_us=window_beside(sight.choice.window_us, by))


def scroll(sight: Sight, by: int) -> Choice:
    """Lines of a closer look; how many there are is known when it is drawn."""
    return replace(sight.choice, top=max(sight.choice.top + by, 0))


SCREENS_STEPS = {"screen": screen, "enter": enter, "leave": leave, "ops": ops, "window": window, "scroll": scroll}


Step = Callable[[Sight, int], Choice]
"""(what is looked at, how far) -> what to look at."""

STEPS: Mapping[str, Step] = MappingProxyType(
    {
        **SCREENS_STEPS,
        **OVERVIEW_STEPS,
        **OUTSTANDING_STEPS,
        **OUTLIERS_STEPS,
        **INTERRUPTS_STEPS,
        **REGION_STEPS,
        **FINDINGS_STEPS,
    },
)
