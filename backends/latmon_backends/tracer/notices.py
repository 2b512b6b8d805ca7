"""Sentences and counts of the tracer for the next frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon.support.text import listed
from latmon_backends.tracer.demand import LOOKED_AT
from latmon_backends.tracer.programs import TracerSample
from latmon_backends.tracer.run import TracerRun

_NAMED = 8
"""A notice names so many devices."""
_LINE = 78
"""Characters of a notice on one line of a screen of 80 cells."""


@dataclass(slots=True)
class TracerNotices:
    """Sentences and counts for the next frame."""

    _notices: list[str] = field(default_factory=list)
    _skipped: int | None = None
    _unfollowed: Mapping[str, str] = field(default_factory=dict)

    def add(self, notice: str) -> None:
        self._notices.append(notice)

    def add_unfollowed(self, unfollowed: Mapping[str, str]) -> None:
        """Report devices that can't be followed, by their reason, once as long as the reason stays."""
        fresh = {name: why for name, why in unfollowed.items() if self._unfollowed.get(name) != why}
        for why in dict.fromkeys(fresh.values()):
            self.add(f"{', '.join(name for name in fresh if fresh[name] == why)}: {why}")
        self._unfollowed = dict(unfollowed)

    def add_skipped(self, runs: int | None) -> None:
        """Add runs that the kernel skipped; None: not known."""
        if runs is not None:
            self._skipped = runs + (self._skipped or 0)

    def taken(self) -> str:
        notices, self._notices = self._notices, []
        return "; ".join(notices)

    def taken_skipped(self, others: int | None) -> int | None:
        """Return the skipped runs since the last call, with those of other programs."""
        reported, self._skipped = [count for count in (self._skipped, others) if count is not None], None
        return sum(reported) if reported else None


def traced_text(run: TracerRun) -> str:
    """Return what is traced and why, in one line; devices and reasons without room are left out."""
    why = run.target.why_all or run.want.why
    because = f" {why}" if why == LOOKED_AT else f": {why}"
    names = [] if run.target.why_all else [listed(run.want.devices, most) for most in (_NAMED, 2, 1)]
    texts = [
        f"tracing stages of {whom or 'all devices'}{_sampled(run.sample)}{reason}"
        for reason in (because, because.partition("; ")[0], "")
        for whom in names or [""]
    ]
    return next((text for text in texts if len(text) <= _LINE), texts[-1])


def _sampled(sample: TracerSample) -> str:
    one_in = f", one I/O in {sample.one_in}" if sample.one_in > 1 else ""
    if sample.lean:
        return f"{one_in}, only requests"
    return one_in if sample.files else f"{one_in}, without operations on files"
