"""Strategies and samples of what on-demand probes report, for tests of its codec, its sums and its readers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from derived import why_impossible
from hypothesis import strategies as st
from recorded import COUNTS, DEVICE_NAMES, NAMES, OP_NAMES, frame, histograms

from latmon.model.frame import (
    FILE_OPS,
    FILE_WAITS,
    STAGES,
    UNACCOUNTED,
    FileOperation,
    FileSystem,
    Flow,
    Frame,
    Health,
    Missing,
    Outlier,
    Series,
    Thread,
    Traced,
    Wait,
)
from latmon.model.histogram import MAX_US, Histogram, bucket_index
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS, TABLES, WAKEUPS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.model.table import AnyTable, Cell, Meaning, Part, Unit
from latmon.recording.validate import MAX_SPAN_US, MAX_WALL

_STAGE_NAMES = st.sampled_from((*STAGES, UNACCOUNTED))
_PIDS = st.integers(0, 2**22)
_PRIORITIES = st.integers(-1, 139)
_OPTIONAL = st.none() | COUNTS
_FEW = st.lists(NAMES, max_size=2).map(tuple)


def maps(keys, values, size=4):
    return st.dictionaries(keys, values, max_size=size).map(MappingProxyType)


_NAMED = maps(NAMES, COUNTS)
_INCLUDES = maps(st.sampled_from(STAGES), _FEW)
_SERIES = st.builds(Series, DEVICE_NAMES, OP_NAMES, _STAGE_NAMES)
_SUMS = st.dictionaries(st.integers(0, bucket_index(MAX_US)), st.integers(1, 2**40), max_size=5).map(MappingProxyType)
_DEVICE_COUNTS = maps(DEVICE_NAMES, _NAMED)
TRACED = st.builds(
    Traced,
    histograms=maps(_SERIES, histograms()),
    by_total=maps(_SERIES, _SUMS),
    unfollowed=_DEVICE_COUNTS,
    paths=_DEVICE_COUNTS,
    admission_causes=_DEVICE_COUNTS,
    completers=_DEVICE_COUNTS,
    raisers=_DEVICE_COUNTS,
    off=COUNTS,
    one_in=st.integers(0, 1024),
    devices=_FEW,
    includes=_INCLUDES,
    absent=st.lists(st.builds(Missing, NAMES, NAMES), max_size=2).map(tuple),
)
WAITS = st.builds(Wait, _STAGE_NAMES, NAMES, _PIDS, _PRIORITIES, COUNTS, COUNTS, NAMES)
OUTLIERS = st.builds(
    Outlier,
    st.floats(0, MAX_WALL),
    COUNTS,
    DEVICE_NAMES,
    OP_NAMES,
    COUNTS,
    stages_us=maps(_STAGE_NAMES, COUNTS),
    unaccounted_us=COUNTS,
    flags=_FEW,
    sector=_OPTIONAL,
    bytes=_OPTIONAL,
    pid=_OPTIONAL,
    comm=NAMES,
    cpu_issue=_OPTIONAL,
    cpu_complete=_OPTIONAL,
    outstanding_at_issue=_OPTIONAL,
    overtaken_by=_OPTIONAL,
    path=NAMES,
    includes=_INCLUDES,
    waits=st.lists(WAITS, max_size=2).map(tuple),
)


def _parts(part: Part) -> st.SearchStrategy[Any]:
    if part.meaning is Meaning.DEVICE:
        return DEVICE_NAMES
    if part.names:
        return st.sampled_from(part.names)
    if part.highest is None:
        return NAMES
    if part.is_power_of_two:
        return st.sampled_from((4096, 65_536, 1 << 20, 0))
    return st.integers(part.lowest, min(part.highest, 2**22))


def _contents(cell: Cell) -> st.SearchStrategy[Any]:
    if cell.is_histogram:
        return histograms().map(lambda histogram: histogram.coarsen(cell.bits))
    if cell.unit is Unit.NAMED:
        return _NAMED
    if cell.unit is not Unit.FACT:
        return COUNTS
    if isinstance(cell.unknown, bool):
        return st.booleans()
    return _FEW if isinstance(cell.unknown, tuple) else _parts(cell.part)


@st.composite
def _declared_value(draw: st.DrawFn, table: AnyTable, key: Any) -> Any:
    """Return a value of a row of a declared table; its first count is raised until I/Os can have it."""
    cells = [getattr(key, cell.name) if cell.of_key else draw(_contents(cell)) for cell in table.value.cells]
    if why_impossible(table, value := table.value.make(*cells)):
        cells[0] = max(cell.count if isinstance(cell, Histogram) else cell for cell in cells)
        value = table.value.make(*cells)
    return value


def _declared(table: AnyTable) -> st.SearchStrategy[Any]:
    keys = st.lists(st.tuples(*map(_parts, table.parts)).map(table.key_of), max_size=4, unique=True)

    def rows(drawn: list[Any]) -> st.SearchStrategy[Any]:
        values = st.tuples(*(_declared_value(table, key) for key in drawn))
        return values.map(lambda contents: MappingProxyType(dict(zip(drawn, contents, strict=True))))

    return keys.flatmap(rows)


DECLARED = st.fixed_dictionaries({table: _declared(table) for table in TABLES if not table.attribute})
"""Rows of all declared tables."""
FILE_OPERATIONS = st.builds(
    FileOperation,
    st.floats(0, MAX_WALL),
    COUNTS,
    st.sampled_from(FILE_OPS),
    COUNTS,
    st.sampled_from(FILE_WAITS),
    st.builds(FileSystem, NAMES, NAMES, DEVICE_NAMES),
    NAMES,
    st.none() | _PIDS,
    NAMES,
    st.none() | COUNTS,
    st.none() | COUNTS,
    DEVICE_NAMES,
    st.none() | st.tuples(COUNTS, COUNTS).map(lambda some: (min(some), max(some))),
    st.lists(WAITS, max_size=2).map(tuple),
)
ON_DEMAND_FRAMES = st.builds(
    Frame,
    COUNTS,
    st.floats(0, MAX_WALL),
    COUNTS,
    st.integers(1, MAX_SPAN_US),
    outliers=st.lists(OUTLIERS, max_size=3).map(tuple),
    thresholds_us=maps(DEVICE_NAMES, COUNTS),
    traced=TRACED,
    tables=DECLARED,
    file_operations=st.lists(FILE_OPERATIONS, max_size=3).map(tuple),
    files_left_out=COUNTS,
    health=st.builds(Health, suppressed=COUNTS, probe_cpu_percent=st.none() | st.floats(0, 1e6, allow_nan=False)),
)

NVME, DISK = Flow("nvme0n1", "read"), Flow("sdc", "write")


def of(*values: int) -> Histogram:
    return Histogram.record(values)


def traced_disk(fast: int = 98, slow: int = 2) -> Traced:
    """sdc: `fast` writes of 100 us in the device, `slow` ones that wait 30 ms for their softirq as well."""
    histograms = {
        "queue": of(*[3] * (fast + slow)),
        "hba": of(*[90] * (fast + slow)),
        "softirq": of(*[7] * fast, *[30_000] * slow),
        "total": of(*[100] * fast, *[30_093] * slow),
    }
    quick, late = bucket_index(100), bucket_index(30_093)
    sums = {
        "queue": {quick: 3 * fast, late: 3 * slow},
        "hba": {quick: 90 * fast, late: 90 * slow},
        "softirq": {quick: 7 * fast, late: 30_000 * slow},
    }
    return Traced(
        {Series(*DISK, stage): histogram for stage, histogram in histograms.items()},
        {Series(*DISK, stage): one for stage, one in sums.items()},
        paths={"sdc": {"BLOCK softirq": fast + slow}},
        one_in=1,
    )


def outlier(mono_us: int = 10_000_000, **changed: object) -> Outlier:
    """A write on sdc that waited 1.2 s for its completion thread."""
    wanted: dict[str, object] = {
        "wall": 1_000_000.0 + mono_us / 1e6,
        "mono_us": mono_us,
        "device": "sdc",
        "op": "write",
        "total_us": 1_238_999,
        "stages_us": {"queue": 3, "hba": 85, "irq": 6, "completion": 1_238_903},
        "unaccounted_us": 2,
        "flags": ("sync",),
        "sector": 81_920_448,
        "bytes": 2048,
        "pid": 4211,
        "comm": "ora_lgwr",
        "cpu_issue": 3,
        "cpu_complete": 11,
        "outstanding_at_issue": 3,
        "overtaken_by": 4,
        "path": "irq thread",
        "waits": (Wait("completion", "emlxs_thread", 77, 97, 10_000_094, 1_238_738, "zpool-data (prio 99)"),),
    }
    return Outlier(**(wanted | changed))  # type: ignore[arg-type]


KERNEL = Thread(77, "emlxs_thread", "fifo", 97)
PROGRAM = Thread(4211, "ora_lgwr", "other", 120, kernel=False)
ON_DEMAND = frame(
    0,
    outliers=(outlier(),),
    thresholds_us={"sdc": 20_000},
    traced=traced_disk(),
    tables={
        ABOVE: {Flow("sdc", "write"): 31},
        HANDLERS: {
            Handler(16, "uhci_hcd"): HandlerRuns(
                of(20, 21), returned={"none": 2}, device="0000:00:01.2", shared_with=("nvme0q1",)
            )
        },
        WAKEUPS: by_thread((Wakeups(KERNEL, of(1500), {"zpool-data (prio 99)": 1}), Wakeups(PROGRAM, of(40)))),
        SOFTIRQS: {SoftirqCpu("BLOCK", 1): SoftirqRuns(of(3990), of(12), {"ksoftirqd": 1}, {"irq": 1})},
    },
    health=Health(suppressed=12, probe_cpu_percent=1.5),
)
