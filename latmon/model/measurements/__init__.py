"""The measurements that a frame holds per key: a module each, and TABLES, over which everything generic loops.

To add one: a module here, its table in TABLES, and a probe that prints it.
"""

from __future__ import annotations

from latmon.model.measurements.above import ABOVE
from latmon.model.measurements.behind import BEHIND
from latmon.model.measurements.completions import KERNEL, LATENCIES, SEEN
from latmon.model.measurements.errors import ERRORS
from latmon.model.measurements.files import FILES
from latmon.model.measurements.handlers import HANDLERS
from latmon.model.measurements.issuers import ISSUERS
from latmon.model.measurements.patterns import PATTERNS
from latmon.model.measurements.sizes import SIZES
from latmon.model.measurements.softirqs import SOFTIRQS
from latmon.model.measurements.traced import (
    ADMISSION_CAUSES,
    COMPLETERS,
    PATHS,
    RAISERS,
    STAGE_TIMES,
    TRACED_LATENCIES,
    UNFOLLOWED,
)
from latmon.model.measurements.wakeups import WAKEUPS
from latmon.model.table import AnyTable

TABLES: tuple[AnyTable, ...] = (
    *(LATENCIES, SEEN, KERNEL),
    *(TRACED_LATENCIES, STAGE_TIMES, UNFOLLOWED, PATHS, ADMISSION_CAUSES, COMPLETERS, RAISERS),
    *(ABOVE, ERRORS, HANDLERS, SOFTIRQS, WAKEUPS, ISSUERS, BEHIND, SIZES, PATTERNS, FILES),
)
"""All of them, in the order of a recording's line."""

__all__ = [
    "ABOVE",
    "ADMISSION_CAUSES",
    "BEHIND",
    "COMPLETERS",
    "ERRORS",
    "FILES",
    "HANDLERS",
    "ISSUERS",
    "KERNEL",
    "LATENCIES",
    "PATHS",
    "PATTERNS",
    "RAISERS",
    "SEEN",
    "SIZES",
    "SOFTIRQS",
    "STAGE_TIMES",
    "TABLES",
    "TRACED_LATENCIES",
    "UNFOLLOWED",
    "WAKEUPS",
]
