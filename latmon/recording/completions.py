"""Completed I/Os of a window by device and op: a column of numbers for each count, encoder and decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.model.frame import Completed, Flow
from latmon.model.histogram import MAX_COUNT
from latmon.model.measurements.completions import COMPLETED
from latmon.model.packed import UNKNOWN, numbers
from latmon.model.packed_frame import PackedRows, PackedTable, RowCounts
from latmon.model.table import Table
from latmon.recording import validate
from latmon.recording.packed_tables import each_row, encode_rows, flows_of
from latmon.recording.validate import Line, Read
from latmon.support.errors import RecordingError

_SHORT = {"count": "n", "time_us": "us", "queue_us": "queue"}
"""Cell of COMPLETED -> its key in `seen` and `kernel`, where that is another."""
_COLUMNS = {_SHORT.get(cell.name, cell.name): cell for cell in COMPLETED.cells}
"""Key of a column of `seen` and `kernel` -> its cell."""


def completed_reader(table: Table[Flow, Completed]) -> Read:
    """Return the decoder of `seen` or of `kernel`: a column of numbers for each cell that is known of a row."""

    def read(value: Any, key: str) -> Mapping[Flow, Completed]:
        line = validate.mapping(value, key)
        flows = flows_of(line)
        validate.require_once(flows)
        counts = [UNKNOWN] * (len(flows) * len(_COLUMNS))
        for place, (name, cell) in enumerate(_COLUMNS.items()):
            column = each_row(line, name, len(flows), MAX_COUNT)
            if not cell.may_be_unknown and (len(column) != len(flows) or min(column, default=0) < 0):
                raise RecordingError(f"{key!r} has not a count and bytes for each row")
            counts[place :: len(_COLUMNS)] = column or [UNKNOWN] * len(flows)
        return PackedRows(table, PackedTable(counts=RowCounts(tuple(flows), numbers(counts))), flows)

    return read


def encode_completed(rows: Mapping[Flow, Completed]) -> Line:
    """Return `seen` or `kernel`: columns of numbers, without those of which nothing is known."""
    line = encode_rows(rows)
    columns = zip(*map(COMPLETED.split, rows.values()), strict=True)
    for key, column in zip(_COLUMNS, columns, strict=False):  # no column without a row
        if any(n is not None for n in column):
            line[key] = [UNKNOWN if n is None else n for n in column]
    return line
