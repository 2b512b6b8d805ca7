"""What is looked at, for a capture that measures more where somebody looks. Pure."""

from __future__ import annotations

from types import MappingProxyType

from latmon.views.choice import Choice

LOOK_S = 10.0
"""Said again so often: a capture forgets after a minute."""
STAGES_SAID = MappingProxyType(
    {
        "auto": "stages auto: traced while somebody looks, or a device looks sick",
        "basic": "stages basic: never traced, only what is always on",
        "all": "stages all: every device is traced, always",
    },
)
STAGES_START = "; the probes are starting, up to a minute"


def looked_at(choice: Choice, shown: str = "") -> tuple[str, ...] | None:
    """Return the devices whose stages are on the screen, empty for all; None where it shows no stages.

    `shown`: the device that the screen selects while the user has selected none.
    """
    selected = choice.selected or shown
    if choice.screen in ("overview", "findings"):
        return None
    if choice.screen == "outstanding" or (choice.screen == "stages" and choice.opened):
        return (selected,) if selected else ()
    if choice.screen == "outliers" and choice.region is not None:
        return (choice.region.device,)
    return ()
