"""Task queues of illumos and Solaris: `kstat -c taskq`, in its long form or with -p.

What one reading tells is what there is now; how long tasks waited is kept nowhere. Facts as in latmon_backends'
kstat_taskqs, which reads a live system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from latmon.imports.found import Asked, Found, Passed, Queues, Remark, Where
from latmon.model import Taskq
from latmon.text import clean

_MODULE = re.compile(r"\s*module:\s+(\S{1,64})\s+instance:\s+(\d{1,10})\s*")
_NAME = re.compile(r"\s*name:\s+(\S.{0,63}?)\s+class:\s+(\S{1,64})\s*")
_VALUE = re.compile(r"\s*([a-z_]{2,32})\s+(-?\d{1,20}(?:\.\d{1,12})?)\s*")
_PAIR = re.compile(r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):([a-z_]{2,32})[\t ]+(\S{1,64})\s*")
_NEEDED = ("tasks", "executed", "maxtasks", "nactive", "priority", "threads")
_MAX = 2**63 - 1
_MOST = 1024


def sniff(head: str) -> bool:
    """The class, or a statistic that only task queues have."""
    lines = head.split("\n")
    return any((name := _NAME.fullmatch(one)) and name[2] == "taskq" for one in lines) or any(
        (pair := _PAIR.fullmatch(one)) and pair[4] in ("maxtasks", "nactive") for one in lines
    )


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """All queues of a reading together; one that comes again begins the next."""
    del asked
    found: dict[tuple[str, int], dict[str, str]] = {}
    first = last = 0
    instance, current = 0, None
    for at, line in enumerate(lines, 1):
        module, name, pair = _MODULE.fullmatch(line), _NAME.fullmatch(line), _PAIR.fullmatch(line)
        value = _VALUE.fullmatch(line) if current is not None else None
        if pair and pair[4] != "class":
            key = (pair[3], int(pair[2]))
            if pair[4] in found.get(key, {}) or len(found) >= _MOST:
                yield from _reading(found, first, last)
                found = {}
            found.setdefault(key, {})[pair[4]] = pair[5]
        elif pair:
            pass  # its class is known by what it tells
        elif module:
            instance, current = int(module[2]), None
        elif name and name[2] == "taskq":
            key = (name[1], instance)
            if key in found or len(found) >= _MOST:
                yield from _reading(found, first, last)
                found = {}
            current = found.setdefault(key, {})
        elif value and current is not None:
            current[value[1]] = value[2]
        else:
            current = None
            continue
        yield Passed(Where(at, at))
        first, last = (at, at) if len(found) <= 1 and sum(map(len, found.values())) <= 1 else (first or at, at)
    yield from _reading(found, first, last)


def _reading(found: Mapping[tuple[str, int], Mapping[str, str]], first: int, last: int) -> Iterator[Found]:
    told = {key: one for key, values in found.items() if (one := _taskq(*key, values)) is not None}
    if told:
        yield Queues(Where(first, last), tuple(told.values()))
    for name, _ in found.keys() - told.keys():
        yield Remark(Where(first, last), f"task queue {clean(name)}: some of {', '.join(_NEEDED)} is missing", 1)


def _taskq(name: str, instance: int, values: Mapping[str, str]) -> Taskq | None:
    """None where a statistic is missing or out of range."""
    numbers = [int(values[key]) for key in _NEEDED if values.get(key, "").isdecimal() and int(values[key]) <= _MAX]
    if len(numbers) < len(_NEEDED):
        return None
    tasks, executed, most, active, priority, threads = numbers
    waiting = max(tasks - executed - active, 0)
    return Taskq(clean(name), instance, threads, priority, active, waiting, most, executed)
