"""The measurements that a frame holds per key: a module each, and TABLES, over which everything generic loops.

To add one: a module here, its table in TABLES, and a probe that prints it.
"""

from __future__ import annotations

from latmon.model.measurements.above import ABOVE
from latmon.model.measurements.behind import BEHIND
from latmon.model.measurements.completions import KERNEL, LATENCIES, SEEN
from latmon.model.measurements.cpu_quotas import CPU_QUOTAS
from latmon.model.measurements.cpu_waits import CPU_WAITS
from latmon.model.measurements.device_counters import DEVICE_COUNTERS
from latmon.model.measurements.dirtiers import DIRTIERS
from latmon.model.measurements.errors import ERRORS, FAILED_BY
from latmon.model.measurements.file_sleeps import FILE_SLEEPS, JOURNAL_SIZES, LOCK_HOLDERS
from latmon.model.measurements.file_system_errors import DAMAGED_FILES, FILE_SYSTEM_ERRORS
from latmon.model.measurements.file_system_space import FILE_SYSTEM_SPACE
from latmon.model.measurements.files import FILE_TIMES, FILES
from latmon.model.measurements.handlers import HANDLERS
from latmon.model.measurements.hung_operations import HUNG_OPERATIONS
from latmon.model.measurements.io_priorities import IO_PRIORITIES
from latmon.model.measurements.issuers import ISSUERS
from latmon.model.measurements.journals import JOURNAL_WRITERS, JOURNALS, SYNCS, XFS_LOGS
from latmon.model.measurements.maintenance import MAINTENANCE, Maintenance
from latmon.model.measurements.memory import MAJOR_FAULTS, MEMORY_LIMITS, MEMORY_USERS, MEMORY_WRITERS
from latmon.model.measurements.nfs import NFS_OPERATIONS, NFS_REQUESTS
from latmon.model.measurements.patterns import PATTERNS
from latmon.model.measurements.recoveries import RECOVERIES
from latmon.model.measurements.server_waits import FILE_SERVERS, SERVER_WAITS
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
from latmon.model.measurements.written import WRITTEN
from latmon.model.table import AnyTable

TABLES: tuple[AnyTable, ...] = (
    *(LATENCIES, SEEN, KERNEL),
    *(TRACED_LATENCIES, STAGE_TIMES, UNFOLLOWED, PATHS, ADMISSION_CAUSES, COMPLETERS, RAISERS),
    *(ABOVE, ERRORS, FAILED_BY, HANDLERS, SOFTIRQS, WAKEUPS),
    *(ISSUERS, BEHIND, SIZES, PATTERNS, FILES, FILE_TIMES, DEVICE_COUNTERS),
    MAINTENANCE,
    *(DIRTIERS, MEMORY_LIMITS, MAJOR_FAULTS, MEMORY_WRITERS, MEMORY_USERS, JOURNALS, SYNCS, XFS_LOGS),
    *(CPU_QUOTAS, HUNG_OPERATIONS, RECOVERIES, IO_PRIORITIES, NFS_OPERATIONS, NFS_REQUESTS),
    *(FILE_SYSTEM_SPACE, WRITTEN, SERVER_WAITS, FILE_SERVERS, CPU_WAITS),
    *(FILE_SYSTEM_ERRORS, DAMAGED_FILES),
    *(FILE_SLEEPS, LOCK_HOLDERS, JOURNAL_SIZES, JOURNAL_WRITERS),
)
"""All of them, in the order of a recording's line."""


def require_distinct(tables: tuple[AnyTable, ...]) -> None:
    """Raise TypeError where two tables have one name, or one name in exports and in the roles of probes' maps."""
    for attribute in ("name", "export_name"):
        names = [getattr(table, attribute) for table in tables]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise TypeError(f"several tables have the {attribute} {', '.join(sorted(twice))}")


require_distinct(TABLES)

__all__ = [
    "ABOVE",
    "ADMISSION_CAUSES",
    "BEHIND",
    "COMPLETERS",
    "CPU_QUOTAS",
    "CPU_WAITS",
    "DAMAGED_FILES",
    "DEVICE_COUNTERS",
    "DIRTIERS",
    "ERRORS",
    "FAILED_BY",
    "FILES",
    "FILE_SERVERS",
    "FILE_SLEEPS",
    "FILE_SYSTEM_ERRORS",
    "FILE_SYSTEM_SPACE",
    "FILE_TIMES",
    "HANDLERS",
    "HUNG_OPERATIONS",
    "IO_PRIORITIES",
    "ISSUERS",
    "JOURNALS",
    "JOURNAL_SIZES",
    "JOURNAL_WRITERS",
    "KERNEL",
    "LATENCIES",
    "LOCK_HOLDERS",
    "MAINTENANCE",
    "MAJOR_FAULTS",
    "MEMORY_LIMITS",
    "MEMORY_USERS",
    "MEMORY_WRITERS",
    "NFS_OPERATIONS",
    "NFS_REQUESTS",
    "PATHS",
    "PATTERNS",
    "RAISERS",
    "RECOVERIES",
    "SEEN",
    "SERVER_WAITS",
    "SIZES",
    "SOFTIRQS",
    "STAGE_TIMES",
    "SYNCS",
    "TABLES",
    "TRACED_LATENCIES",
    "UNFOLLOWED",
    "WAKEUPS",
    "WRITTEN",
    "XFS_LOGS",
    "Maintenance",
]
