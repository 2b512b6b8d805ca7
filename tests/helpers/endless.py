"""Valid recordings of some kilobytes that need much memory: the same bytes again, with other numbers in the names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from recorded import ORIGIN

from latmon.recording.codec import End, encode_note, encode_origin, to_bytes
from latmon.recording.members import pack

LONG = "\N{CJK UNIFIED IDEOGRAPH-20000}" * 240
"""A name of the most memory: each of its characters takes four bytes."""
_BEGIN_US = 6_000_000
_SECOND_US = 1_000_000


def write(path: Path, contents: Iterator[str], header: bytes = to_bytes(encode_origin(ORIGIN))) -> None:
    """Write a window for each text, which has its keys after `dt`."""
    parts = [pack(header, 0, 0)]
    at_us = _BEGIN_US
    for number, content in enumerate(contents):
        at_us = _BEGIN_US + number * _SECOND_US
        head = f'"type":"window","seq":{number},"t":{1_000_001 + number},"mono":{at_us},"dt":{_SECOND_US}'
        parts.append(pack(f"{{{head},{content}}}\n".encode(), at_us, at_us))
    parts.append(pack(to_bytes(encode_note(End("closed", len(parts) - 1))), at_us, at_us))
    path.write_bytes(b"".join(parts))


def _table(rows: list[str]) -> str:
    """Return a table of rows that each have one I/O in the same bucket."""
    return f'{{"rows":[{",".join(rows)}],"b":[3{",256" * (len(rows) - 1)}],"n":[1{",1" * (len(rows) - 1)}]}}'


def buckets(devices: int) -> Iterator[str]:
    """Yield windows of a thousand devices with I/Os in each of 240 buckets."""
    first, next_row = ",".join(["0", *["1"] * 239]), ",".join(["17", *["1"] * 239])
    for start in range(0, devices, 1000):
        names = range(start, min(start + 1000, devices))
        rows = ",".join(f'["d{number}","read"]' for number in names)
        slots = ",".join([first, *[next_row] * (len(names) - 1)])
        counts = ",".join(["1"] * (240 * len(names)))
        yield f'"h":{{"rows":[{rows}],"b":[{slots}],"n":[{counts}]}}'


def _series() -> Iterator[str]:
    for window in range(1000):
        rows = [f'["d{number % 500}","op{1000 * window + number}"]' for number in range(1000)]
        yield f'"h":{_table(rows)}'


def _long_names() -> Iterator[str]:
    for window in range(60):
        rows = [f'["{LONG}{1000 * window + number}","read"]' for number in range(1000)]
        yield f'"h":{_table(rows)}'


def _devices() -> Iterator[str]:
    for window in range(1000):
        names = range(1000 * window, 1000 * window + 1000)
        devices = ",".join(f'{{"name":"d{number}","major":8,"minor":1}}' for number in names)
        yield f'"devices":[{devices}]'


def _threads() -> Iterator[str]:
    instead = ",".join(f'"n{number}":1' for number in range(80))
    for window in range(60):
        rows = [f'[{1000 * window + number},"t","other",120,true,{{{instead}}}]' for number in range(1000)]
        yield f'"wakeups":{_table(rows)}'


def _issuers() -> Iterator[str]:
    for window in range(130):
        rows = ",".join(f'[0,"sda","{LONG}{1000 * window + number}",1,1]' for number in range(1000))
        yield f'"issuers":{{"by":[["/a"]],"rows":[{rows}]}}'


def _behind() -> Iterator[str]:
    for window in range(100):
        rows = ",".join(f'["sda","/a{window}","/b{number}",5]' for number in range(15_000))
        yield f'"behind":[{rows}]'


def _reports() -> Iterator[str]:
    reports = ",".join(f'["r{number}",1,"s"]' for number in range(2000))
    for window in range(40):
        names = range(40 * window, 40 * window + 40)
        devices = ",".join(f'{{"name":"d{number}","major":8,"minor":1,"reports":[{reports}]}}' for number in names)
        yield f'"devices":[{devices}]'


def _depths() -> Iterator[str]:
    pairs = ",".join(f"{depth},1" for depth in range(4000))
    for window in range(20):
        names = range(40 * window, 40 * window + 40)
        devices = ",".join(f'"d{number}":{{"d":[{pairs}],"q":[{pairs}],"i":[{pairs}]}}' for number in names)
        yield f'"depths":{{{devices}}}'


SHAPES: Mapping[str, Callable[[], Iterator[str]]] = {
    "buckets": lambda: buckets(6000),
    "series": _series,
    "long names": _long_names,
    "devices": _devices,
    "threads": _threads,
    "issuers": _issuers,
    "behind": _behind,
    "reports": _reports,
    "depths": _depths,
}


def header_of_lists() -> bytes:
    """Return a header with two million empty lists under a key that no latmon has written."""
    lists = "[" + ",".join(["[]"] * 1400) + "]"
    header = to_bytes(encode_origin(ORIGIN)).decode().rstrip().removesuffix("}")
    return f'{header},"later":[{",".join([lists] * 1400)}]}}\n'.encode()
