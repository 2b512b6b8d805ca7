"""Steps among findings, and from one to its evidence."""

from __future__ import annotations

from dataclasses import replace

from latmon.findings.finding import Where
from latmon.findings.watch import Episode
from latmon.histogram import bucket_index
from latmon.views.choice import OP_CHOICES, PANELS, SCREENS, Choice, shown
from latmon.views.cursor import Picked
from latmon.views.findings import where
from latmon.views.panels.findings import key_of, position
from latmon.views.region import Region
from latmon.views.sight import Sight

_OPS = frozenset(name for name, _ in OP_CHOICES)
_FOREVER_US = 2**63


def chosen(sight: Sight) -> Episode | None:
    """The selected one."""
    every = sight.found.all
    return every[position(sight.found, sight.choice.finding)] if every else None


def found(sight: Sight, by: int) -> Choice:
    """Another finding, stopping at the ends; what is selected stays so when others come."""
    every = sight.found.all
    if not every:
        return sight.choice
    at = min(max(position(sight.found, sight.choice.finding) + by, 0), len(every) - 1)
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


STEPS = {"found": found, "evidence": evidence}
