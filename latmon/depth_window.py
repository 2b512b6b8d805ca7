"""A window over the depth log with running sums, of those devices alone that somebody asks for.

A window of more than a minute forgets in the log's stretches: `span_us` of a sum is how much time it really is of.
"""

from __future__ import annotations

from latmon.depth_log import DepthLog, Entry
from latmon.depth_sums import DepthSum

PATIENCE = 8
"""A sum that nobody read in so many steps is given up."""


class DepthWindow:
    """Sums over the last `length_us` of a log; it is only brought up to date when it is asked."""

    def __init__(self, length_us: int, log: DepthLog, until_us: int = 0) -> None:
        self.length_us = length_us
        self._log = log
        self._sums: dict[str, DepthSum] = {}
        self._unread: dict[str, int] = {}
        self._until_us = self._begin_us = 0
        self._restart(until_us)

    def advance(self, until_us: int) -> None:
        """Up to the frame that ends at `until_us`."""
        if until_us == self._until_us:
            return
        fine_us = self._log.fine_from_us
        if until_us < self._until_us or fine_us is None or self._until_us < fine_us:
            self._restart(until_us)
            return
        leaving = self._log.final(self._begin_us, until_us - self.length_us)
        if any(one.begin_us < self._begin_us for one in leaving[:1]):
            self._restart(until_us)
            return
        self._give_up()
        come = self._log.between(self._until_us, until_us)
        for name, sums in self._sums.items():
            for one in come:
                if name in one.told:
                    sums.add(one.told[name], one.mono_us)
            for one in leaving:
                if name in one.told:
                    sums.remove(one.told[name], one.mono_us)
        self._until_us = until_us
        self._begin_us = leaving[-1].mono_us if leaving else self._begin_us

    @property
    def entries(self) -> list[Entry]:
        """Of all devices, oldest first."""
        return self._log.between(self._begin_us, self._until_us)

    def read(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """The device's sum, begun now where nobody asked for it of late; None where nobody counted.

        `brief`: the latency by depth may be missing.
        """
        self._unread[device] = 0
        had = self._sums.get(device)
        if had is None or (had.brief and not brief):
            sums = self._sums[device] = DepthSum(brief=brief)
            for one in self.entries:
                if device in one.told:
                    sums.add(one.told[device], one.mono_us)
        found = self._sums[device]
        return found if found.span_us else None

    def _restart(self, until_us: int) -> None:
        """Sum anew: time went back, or the log's entries are no longer those that were added."""
        self._sums, self._unread = {}, {}
        self._until_us = until_us
        self._begin_us = until_us - self.length_us
        some = self._log.between(self._begin_us, until_us)
        if some and some[0].begin_us < self._begin_us:
            self._begin_us = some[0].begin_us

    def _give_up(self) -> None:
        for name in list(self._sums):
            self._unread[name] += 1
            if self._unread[name] > PATIENCE:
                del self._sums[name], self._unread[name]
