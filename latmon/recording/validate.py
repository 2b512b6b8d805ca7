"""Validation of untrusted JSON: one check per shape, and order checks from window to window.

Owns the caps. A value that is not what it should be is a RecordingError that names its key; a string that passed is
clean. Knows no line type.

RecordingError on nonsense, as everywhere; knows no line type.

Owns the bounds of what one recording may name. Knows no file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from latmon.model.frame import Flow, Frame, Missing, Origin, Series
from latmon.model.histogram import BITS, MAX_COUNT, MAX_US, Histogram, bucket_index
from latmon.model.packed import names
from latmon.support.errors import RecordingError, TooManyError
from latmon.support.text import clean

MAX_LINE = 8 * 1024 * 1024
"""A window of 24 devices is 17 kB. The worst JSON (`[],[],...`) takes 21 times its size in memory: 170 MB here."""
MAX_LABEL = 256
MAX_SENTENCE = 1024
MAX_ITEMS = 16_384
"""Series, devices or counts in one window: 900 devices with all their ops and stages, and ten times that idle."""
MAX_NUMBER = 1e100
MAX_DEPTH = 8
MAX_WALL = 253_402_300_799.0
"""The last second of the year 9999: beyond it no calendar that would show it goes on."""
MAX_SPAN_US = 100 * 365 * 86_400_000_000
"""A window's length: an imported table may hold what was counted since a boot years ago."""
Json = Mapping[str, Any]


def parse(line: bytes) -> dict[str, Any]:
    """A JSON object, or RecordingError: no NaN, no depth, no number that takes a minute to convert."""
    if len(line) > MAX_LINE:
        raise RecordingError(f"a line of {len(line)} bytes is longer than any of ours")
    try:
        value = _DECODER.decode(line.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise RecordingError("a line is nested too deeply") from None
    except ValueError:
        raise RecordingError("a line is not JSON") from None
    if not isinstance(value, dict):
        raise RecordingError("a line is not a JSON object")
    return value


def may_hold_booleans(line: bytes) -> bool:
    """False where no value in this JSON is true or false."""
    return b"true" in line or b"false" in line


def integer(line: Json, key: str, default: int = 0, low: int = 0, high: int = MAX_COUNT) -> int:
    """A whole number within bounds; absent is the default."""
    return whole(line.get(key, default), key, low, high)


def optional_integer(line: Json, key: str) -> int | None:
    """A whole number; absent or null is None."""
    return None if line.get(key) is None else whole(line[key], key)


def whole(value: Any, key: str, low: int = 0, high: int = MAX_COUNT) -> int:
    """`value` itself, if it is an integer within bounds."""
    if type(value) is not int or not low <= value <= high:
        raise RecordingError(f"{key!r} is not a whole number of {low} or more" if low >= 0 else f"{key!r} is no number")
    return value


def flag(line: Json, key: str) -> bool:
    """True or false; absent is false."""
    value = line.get(key, False)
    if not isinstance(value, bool):
        raise RecordingError(f"{key!r} is neither true nor false")
    return value


def span(line: Json, key: str) -> int:
    """How long a window is, in microseconds; absent is 0, which no window is."""
    value = integer(line, key)
    if not 0 < value <= MAX_SPAN_US:
        raise RecordingError(f"{key!r} is {value} us, and a window lasts 1 us to 100 years")
    return value


def number(line: Json, key: str, default: float = 0.0) -> float:
    """A finite number; absent is the default."""
    return real(line.get(key, default), key)


def wall(line: Json, key: str) -> float:
    """Seconds since 1970 that a clock can show, and no span of time is longer; absent is 0."""
    value = number(line, key)
    if not 0 <= value <= MAX_WALL:
        raise RecordingError(f"{key!r} is no time between 1970 and the year 9999")
    return value


def optional_number(line: Json, key: str) -> float | None:
    """A number of 0 or more that can still be summed; absent or null is None."""
    value = None if line.get(key) is None else real(line[key], key)
    if value is not None and not 0 <= value <= MAX_NUMBER:
        raise RecordingError(f"{key!r} is not a number from 0 to {MAX_NUMBER:g}")
    return value


def real(value: Any, key: str) -> float:
    """`value` as a finite float."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    if type(value) is int and -MAX_COUNT <= value <= MAX_COUNT:
        return float(value)
    raise RecordingError(f"{key!r} is no number")


def sentence(line: Json, key: str) -> str:
    """Text for a person: cut when too long."""
    value = line.get(key, "")
    if not isinstance(value, str):
        raise RecordingError(f"{key!r} is no text")
    return clean(value[: MAX_SENTENCE + 1], MAX_SENTENCE)


def label(value: Any, key: str) -> str:
    """A name that is a key somewhere: refused when too long, because two cut names may be the same."""
    if type(value) is str and len(value) <= MAX_LABEL:
        return value if value.isprintable() else clean(value, MAX_LABEL)
    if not isinstance(value, str):
        raise RecordingError(f"{key!r} is no text")
    raise RecordingError(f"{key!r} is a name of {len(value)} characters")


def labels(line: Json, key: str) -> tuple[str, ...]:
    """A list of names; absent is empty."""
    return tuple(label(one, key) for one in items(line, key))


def items(line: Json, key: str) -> list[Any]:
    """A list that is not too long; absent is empty."""
    value = line.get(key, [])
    if not isinstance(value, list):
        raise RecordingError(f"{key!r} is no list")
    if len(value) > MAX_ITEMS:
        raise RecordingError(f"{key!r} has {len(value)} entries, and {MAX_ITEMS} are the most")
    return value


def objects(line: Json, key: str) -> list[Json]:
    """A list of objects; absent is empty."""
    found = items(line, key)
    if not all(isinstance(one, dict) for one in found):
        raise RecordingError(f"{key!r} has an entry that is no object")
    return found


def mapping(line: Json, key: str) -> Json:
    """An object with no more keys than a list may have entries; absent is empty."""
    value = line.get(key, {})
    if not isinstance(value, dict):
        raise RecordingError(f"{key!r} is no object")
    if len(value) > MAX_ITEMS:
        raise RecordingError(f"{key!r} has {len(value)} entries, and {MAX_ITEMS} are the most")
    return value


def cleaned(value: Any, depth: int = MAX_DEPTH) -> Any:
    """JSON that we don't understand but keep: every string in it clean, every size within the caps."""
    if isinstance(value, str):
        return clean(value[: MAX_SENTENCE + 1], MAX_SENTENCE)
    if isinstance(value, float):
        return real(value, "a number")
    if type(value) is int:
        return whole(value, "a number", -MAX_COUNT)
    if isinstance(value, list | dict) and (depth == 0 or len(value) > MAX_ITEMS):
        raise RecordingError("an unknown key holds more than is kept")
    if isinstance(value, list):
        return [cleaned(one, depth - 1) for one in value]
    if isinstance(value, dict):
        return {label(key, "an unknown key"): cleaned(one, depth - 1) for key, one in value.items()}
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


MAX_BITS = 5
"""895 buckets; k = 6 would be beyond 1024."""
TOPS = {bits: bucket_index(MAX_US, bits) for bits in range(MAX_BITS + 1)}
LABELS = 2

Key = TypeVar("Key")
Value = TypeVar("Value")


def histogram(line: Json) -> Histogram:
    """Sum, maximum and flat pairs of bucket and count."""
    bits = integer(line, "k", BITS, high=MAX_BITS)
    flat = items(line, "b")
    if len(flat) % 2 or not {*map(type, flat)} <= {int}:
        raise RecordingError("'b' is not a list of bucket indices and counts")
    indices, counts = flat[::2], flat[1::2]
    if indices and (indices[0] < 0 or indices[-1] > TOPS[bits] or sorted(set(indices)) != indices):
        raise RecordingError("'b' has bucket indices out of order or out of range")
    if counts and (min(counts) < 1 or sum(counts) > MAX_COUNT):
        raise RecordingError("'b' has a count below 1 or beyond all measure")
    if integer(line, "n", sum(counts)) != sum(counts):
        raise RecordingError("'n' is not the sum of the counts in 'b'")
    total, maximum = optional_integer(line, "sum"), optional_integer(line, "max")
    return Histogram(tuple(zip(indices, counts, strict=True)), total, maximum, bits)


def series(line: Json) -> Series:
    """`l` and `m`."""
    device, op = flow(line)
    return Series(device, op, label(line.get("m"), "m"))


def flow(line: Json) -> Flow:
    """`l`: a device and an op."""
    found = labels(line, "l")
    if len(found) != LABELS:
        raise RecordingError("'l' is not a device and an op")
    return Flow(*found)


def is_known(line: Json) -> bool:
    """False for a series with more labels than ours: a later minor version's, not to be mixed up with one of ours."""
    found = line.get("l")
    return not (isinstance(found, list) and len(found) > LABELS)


def measured(line: Json) -> MappingProxyType[str, tuple[str, ...]]:
    """Stage -> the stages that it includes."""
    return once([(label(stage, "measured"), labels(line, stage)) for stage in line])


def missing(line: Json, key: str) -> tuple[Missing, ...]:
    """What is not measured, and why."""
    found = objects(line, key)
    return tuple(Missing(label(one.get("name"), key), sentence(one, "reason")) for one in found)


def once(pairs: list[tuple[Key, Value]]) -> MappingProxyType[Key, Value]:
    """A mapping of `pairs`; RecordingError when two are about the same thing, because one of them would vanish."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RecordingError("a window names one thing twice")
    return MappingProxyType(found)


UNKNOWN = "unknown"
"""The host of a recording whose header is lost."""
MAX_DEVICES = 8_192
"""In one recording: a device costs a report more than its series do. 5,000 are the most that anybody has."""
MAX_KINDS = 512
"""Pairs of an op and a stage in one recording: ours have 60."""
MAX_SERIES = 65_536
"""In one recording: a reader's memory grows with their number. Who adds up threads sets his own limit."""
MAX_THREADS, THREADS_PER_WINDOW = 65_536, 256
"""In one recording, and so many more for each of its windows. A tracer's maps are never cleared and hold 65,536 keys at
most, so only a tracer that is started again can name more threads than that."""


@dataclass
class Course:
    """How far one reading has come: what the next window is held against."""

    mono_us: int = -1
    ended: bool = False
    host: tuple[str, str] | None = None
    """Host and boot of the first header."""
    is_foreign: bool = False
    """The latest header is of another host or boot: no window behind it belongs to this recording."""
    series: set[tuple[Any, ...] | str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    kinds: set[tuple[str, str]] = field(default_factory=set)
    windows: int = 0
    threads: set[int] = field(default_factory=set)
    """Pids of those whose wake-ups are timed."""


def enter(origin: Origin, course: Course) -> None:
    """Note a header. RecordingError when it is of another host or boot: what is behind it is left out.

    The header of a repaired copy whose own was lost names no host.
    """
    host = origin.host, origin.boot_id
    if course.host is None and origin.host != UNKNOWN:
        course.host = host
    course.is_foreign = course.host is not None and host != course.host
    if course.is_foreign:
        named = clean(origin.host)
        raise RecordingError(f"a second header, of another host or boot ({named}): what is behind it is left out")


def admit(frame: Frame, course: Course, also: Iterable[str] = ()) -> None:
    """RecordingError for a window that goes back in time; TooManyError where a recording names too much to be read on.

    `also`: what else is named beside the frame.
    """
    if frame.mono_us <= course.mono_us:
        raise RecordingError("a window goes back in time and is left out")
    found: set[tuple[Any, ...] | str] = {*frame.histograms, *frame.seen, *frame.kernel}
    found.update(frame.outstanding, frame.depths, frame.issues, (one.name for one in frame.devices), names(frame), also)
    new = found - course.series
    if len(course.series) + len(new) > MAX_SERIES:
        raise TooManyError(f"a window brings the recording's series beyond {MAX_SERIES}, more than any host has")
    devices = {_device_of(one) for one in new} - course.devices
    if len(course.devices) + len(devices) > MAX_DEVICES:
        raise TooManyError(f"a window brings the recording's devices beyond {MAX_DEVICES}, more than any host has")
    kinds = {(one.op, one.stage) for one in new if isinstance(one, Series)} - course.kinds
    if len(course.kinds) + len(kinds) > MAX_KINDS:
        raise TooManyError(f"a window brings the recording's ops and stages beyond {MAX_KINDS}, more than any host has")
    course.windows += 1
    course.threads.update(one.thread.pid for one in frame.wakeups)
    if len(course.threads) > (most := MAX_THREADS + THREADS_PER_WINDOW * course.windows):
        raise TooManyError(f"a window brings the recording's threads beyond {most}, more than any host has")
    course.mono_us = frame.mono_us
    course.kinds |= kinds
    course.series |= new
    course.devices |= devices


def _device_of(found: tuple[Any, ...] | str) -> str:
    """Whose it is; empty for what is no device's."""
    return found.device if isinstance(found, Series | Flow) else found if isinstance(found, str) else ""
