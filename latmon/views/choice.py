"""What the user chose to look at, as one frozen value. Pure: keys and widgets are elsewhere."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from latmon.model import OPS, Device, Outlier
from latmon.views.cursor import Cursor, Picked

WINDOWS_US = tuple(s * 1_000_000 for s in (15, 30, 60, 120, 300, 600))
SORTS = ("unlike", "p99", "max", "IOPS", "MB/s", "out", "name")
OP_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (("all", OPS), *((op, (op,)) for op in OPS))
PANELS = ("overview", "maps", "zoom")
SCREENS = ("overview", "stages", "outstanding", "outliers", "interrupts", "findings")
ASIDES = ("audit", "order")
"""What the outstanding screen shows instead of a device's depths."""
FindingKey = tuple[str, str, int]
"""Rule, device, and when it began: each time that it was found is another line."""
_CLOSER = {"stages": "stage", "outliers": "outlier", "interrupts": "delays"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The state of the screen that a user set; `globs`, `backend` and `sweep` come from the start and never change."""

    screen: str = "overview"
    opened: bool = False
    """The screen's closer look: a device's stages, an outlier's waterfall, a vector's delays."""
    top: int = 0
    """Lines scrolled in a closer look."""
    panel: str = "overview"
    selected: str = ""
    offered: str = ""
    """What a screen opened on by itself: while it is the selected one, the user has selected none."""
    pattern: str = ""
    sort: str = "unlike"
    op: str = "all"
    window_us: int = 60_000_000
    threshold_us: int | None = None
    globs: tuple[str, ...] = ()
    backend: str = "auto"
    """The one that was asked for."""
    sweep: bool = False
    """Heat maps overwrite their oldest column instead of moving to the left."""
    stages: str = "auto"
    """One of STAGES_MODES."""
    order: str = "newest"
    outlier: Outlier | None = None
    """The picked one; the first of the log until the user picks."""
    cursor: Cursor | None = None
    """On the map of the selected device."""
    region: Picked | None = None
    """What the log of outliers is about; None: all."""
    fold: str = ""
    """What the sub-second-offset map in place of the heat map is of: `second`, `tick`; empty: the heat map."""
    part: int = 0
    row: Hashable | None = None
    """The selected table of the interrupts screen, and what its selected row is about."""
    first_cpu: int = 0
    busy: bool = False
    """Depths of busy time alone."""
    aside: str = ""
    """One of ASIDES, on the outstanding screen."""
    finding: FindingKey | None = None
    """The selected one; the first of the list until the user selects."""
    band: tuple[int | None, int | None] | None = None
    """Latencies that are marked on the map of the selected device; None: no bound."""
    back: Choice | None = None
    """Where Esc leads from a finding's evidence."""
    landed: tuple[bool, ...] = ()
    """The depth at which it was shown."""

    @property
    def context(self) -> str:
        """What keys are about: the screen, its closer look, or the cursor on its map.

        `tables`: those parts of the interrupts screen that have no closer look.
        """
        if self.screen == "overview" and self.cursor is not None:
            return "cursor"
        if self.screen == "overview" and self.panel == "zoom":
            return "zoom"
        if self.screen == "outstanding" and self.aside:
            return self.aside
        if self.screen == "interrupts" and not self.opened and self.part:
            return "tables"
        return _CLOSER.get(self.screen, self.screen) if self.opened else self.screen

    @property
    def depth(self) -> tuple[bool, ...]:
        """What Esc goes back from, one by one."""
        return self.opened, bool(self.aside), self.cursor is not None, self.region is not None, self.panel == "zoom"

    @property
    def is_selected(self) -> bool:
        """Whether the user selected the device himself."""
        return self.selected not in ("", self.offered)

    @property
    def ops(self) -> tuple[str, ...]:
        return dict(OP_CHOICES)[self.op]

    @property
    def op_label(self) -> str:
        return "all ops" if self.op == "all" else self.op


def after(options: tuple[str, ...], now: str) -> str:
    """The next of several options, round and round."""
    return options[(options.index(now) + 1) % len(options)]


def window_beside(now_us: int, step: int) -> int:
    """The next longer (step 1) or shorter (-1) window, stopping at the ends."""
    at = min(range(len(WINDOWS_US)), key=lambda i: abs(WINDOWS_US[i] - now_us))
    return WINDOWS_US[min(max(at + step, 0), len(WINDOWS_US) - 1)]


def shown(devices: Iterable[Device], choice: Choice) -> list[Device]:
    """The devices that the command line and the filter let through."""
    return [d for d in devices if _allowed(d, choice.globs) and matches(d, choice.pattern)]


def matches(device: Device, pattern: str) -> bool:
    """A glob when it has a wildcard, else a part of the name, label, driver or model; capitals don't matter."""
    if not pattern:
        return True
    wanted = pattern.lower()
    words = [w.lower() for w in (device.name, device.label, device.driver, device.model) if w]
    if any(c in wanted for c in "*?["):
        return any(fnmatchcase(w, wanted) for w in words)
    return any(wanted in w for w in words)


def _allowed(device: Device, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatchcase(n, g) for g in globs for n in (device.name, device.label) if n)
