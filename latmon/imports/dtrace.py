"""What DTrace prints of quantize(), lquantize() and llquantize(), alone or pasted into a document.

`dtrace_dump` reads the tables; here they get their unit, their time and what they are about. A scalar is no latency and
is named as left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from latmon.dtrace_rows import Scalar
from latmon.imports import times
from latmon.imports.dtrace_dump import Distribution, tables
from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Table, Where
from latmon.text import clean

_HEADER = re.compile(r"[ \t]*value[ \t]+-+ Distribution -+[ \t]+count[ \t]*$", re.MULTILINE)
_RUN = re.compile(r"dtrace: (?:script|description) \S{1,256} matched \d+ probes?")
_DROPS = re.compile(r"dtrace: (\d{1,15}) (?:\w+ ){0,4}drops?\b")
"""libdtrace's sentence on full buffers: `dtrace: 5 aggregation drops on CPU 1`."""
_NOISE = re.compile(r"dtrace: (?:script|description) .*matched \d+ probe|\^C$|\[\.\.\.truncated\.\.\.\]$")
_TITLE = 200


def sniff(head: str) -> bool:
    """A table's head is unlike anything else."""
    return _HEADER.search(head) is not None


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Tables in their order, runs and times between them."""
    del asked
    found = [one for one in tables("\n".join(lines)) if isinstance(one, Distribution | Scalar)]
    distributions = [one for one in found if isinstance(one, Distribution)]
    columns = {line for one in distributions for line in range(one.key_line, one.last + 1)}
    events: list[tuple[int, Found]] = [(one.line, _table(one)) for one in distributions]
    for at, line in enumerate(lines, 1):
        if at in columns:
            continue
        wall = times.moment(line)
        if wall is not None:
            events.append((at, Moment(Where(at, at, wall))))
        elif _RUN.match(line.strip()):
            events.append((at, Moment(Where(at, at), clean(f"line {at}: {line.strip()}", _TITLE))))
        elif (lost := _DROPS.match(line.strip())) is not None:
            events.append(
                (at, Remark(Where(at, at), f"DTrace lost data: {clean(line.strip(), 100)}", lost=int(lost[1])))
            )
        elif _NOISE.match(line.strip()):
            events.append((at, Passed(Where(at, at))))
    if distributions:
        events += (
            (one.line, Remark(Where(one.line, one.line), f"{_title(one.keys)}: a count, no latency"))
            for one in found
            if isinstance(one, Scalar) and one.keys and _is_aggregation(lines[one.line - 1])
        )
    yield from (one for _, one in sorted(events, key=lambda pair: pair[0]))


def _is_aggregation(line: str) -> bool:
    """As the default printer makes it: a key of two blanks and 50 columns, then 16 for the value."""
    return line.startswith("  ") and len(line.rstrip()) >= 60  # noqa: PLR2004


def _table(one: Distribution) -> Table:
    return Table(Where(one.key_line, one.last), _title(one.keys), one.kind, one.rows)


def _title(keys: tuple[str, ...]) -> str:
    return clean(" ".join(key.replace("\n", " ") for key in keys).strip(), _TITLE)
