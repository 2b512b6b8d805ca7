"""The measurements that a frame holds per key: a module each, and TABLES, over which everything generic loops.

To add one: a module here, its table in TABLES, and a probe that prints it.
"""

from __future__ import annotations

from latmon.model.measurements.above import ABOVE
from latmon.model.measurements.behind import BEHIND
from latmon.model.measurements.files import FILES
from latmon.model.measurements.handlers import HANDLERS
from latmon.model.measurements.issuers import ISSUERS
from latmon.model.measurements.patterns import PATTERNS
from latmon.model.measurements.sizes import SIZES
from latmon.model.measurements.softirqs import SOFTIRQS
from latmon.model.measurements.wakeups import WAKEUPS
from latmon.model.table import AnyTable

TABLES: tuple[AnyTable, ...] = (ABOVE, HANDLERS, SOFTIRQS, WAKEUPS, ISSUERS, BEHIND, SIZES, PATTERNS, FILES)
"""All of them, in the order of a recording's line."""

__all__ = ["ABOVE", "BEHIND", "FILES", "HANDLERS", "ISSUERS", "PATTERNS", "SIZES", "SOFTIRQS", "TABLES", "WAKEUPS"]
