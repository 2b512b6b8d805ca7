"""Windows of a device's consecutive issues, from `issue` records: which of them belong together, how many are kept.

A probe tells at most WINDOW issues of a device before it begins the next window. One that was not filled goes on in the
next: nothing was left out between them. Must not know the probes, nor what the order says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from latmon.manifest import op_name
from latmon.outstanding import Issue
from latmon.records import Record

WINDOW = 128
"""As in probes/linux/order_a.bt and order_c.bt."""
MAX_ISSUES = 4096
"""Kept for one interval, of all devices."""
_Windows = dict[int, list[Issue]]


class IssueWindows:
    """Takes records in any order; answers with one run of each device."""

    def __init__(self, device_name: Callable[[int], str | None]) -> None:
        self._device_name = device_name
        self._windows: defaultdict[str, _Windows] = defaultdict(dict)
        self._kept = 0

    def take(self, record: Record) -> bool:
        """False where it can't be kept."""
        issued = _issue(record)
        window, number = record.get("window_ns"), record.get("dev")
        if issued is None or window is None or number is None or self._kept >= MAX_ISSUES:
            return False
        device = self._device_name(number)
        if device is not None:
            self._windows[device].setdefault(window, []).append(issued)
            self._kept += 1
        return True

    def taken(self) -> Mapping[str, tuple[Issue, ...]]:
        """Of each device the longest run of consecutive issues since the last call, the newer of equals."""
        found = {device: max(reversed(list(_runs(windows))), key=len) for device, windows in self._windows.items()}
        self._windows.clear()
        self._kept = 0
        return found


def _runs(windows: _Windows) -> Iterator[tuple[Issue, ...]]:
    run: list[Issue] = []
    for _, issues in sorted(windows.items()):
        run += issues
        if len(issues) >= WINDOW:
            yield tuple(sorted(run))
            run = []
    if run:
        yield tuple(sorted(run))


def _issue(record: Record) -> Issue | None:
    issued, sector, size = record.get("issued_ns"), record.get("sector"), record.get("bytes")
    op, queued = record.get("op"), record.get("queued_us")
    if issued is None or sector is None or size is None or op is None or queued is None:
        return None
    return Issue(issued // 1000, sector, size, op_name(op), queued)
