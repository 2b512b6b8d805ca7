"""Keys -> choice: what each step of the action table makes of what the user looks at. Pure; changes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from latmon.tui.steps import findings, interrupts, outliers, outstanding, overview, region, screens
from latmon.views.choice import Choice
from latmon.views.sight import Sight

Step = Callable[[Sight, int], Choice]
"""(what is looked at, how far) -> what to look at."""

STEPS: Mapping[str, Step] = MappingProxyType(
    {
        **screens.STEPS,
        **overview.STEPS,
        **outstanding.STEPS,
        **outliers.STEPS,
        **interrupts.STEPS,
        **region.STEPS,
        **findings.STEPS,
    },
)
