"""Parsers of the values of options and of the config's keys. Each raises ValueError with a sentence on a wrong text.

A Kind describes its values as JSON Schema, too: the values of the config's keys are of kinds. Modules that only some
commands need are imported late.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from latmon.support import paths
from latmon.support.streams import STANDARD
from latmon.support.units import duration_us, show_duration, size_bytes

T_co = TypeVar("T_co", covariant=True)
Json = dict[str, Any]
MIN_INTERVAL_US = 100_000
MAX_INTERVAL_US = 60_000_000
MIN_HISTORY_US = 60_000_000
MAX_HISTORY_US = 86_400_000_000
MAX_BUDGET = 100.0
MAX_FILTER = 40
"""Characters of a filter, as on the screen."""
MIN_SIZE = 2 * 1024 * 1024
"""The smallest size: one complete part and the one that is written, of 1 MiB each."""
MIN_MEMORY = 64 << 20
MIN_KEEP_US = 60_000_000
MAX_DIGITS = 18
MAX_GLOB = 255
MAX_IOS = 1_000_000
"""I/Os of one trace: 400 MB of the tool's output, and some 60 MB of a recording."""
MAX_IOS_PER_S = 20_000
MAX_PID = (1 << 22) - 1
MIN_HZ, MAX_HZ = 24, 10_000
"""Values of CONFIG_HZ that kernels are built with."""


class Kind(Protocol[T_co]):
    """A kind of value that an option and a key of the config may have."""

    def __call__(self, text: str) -> T_co:
        """Parse a text. Raises ValueError with a sentence."""

    def schema(self) -> Json:
        """Return the JSON Schema of the values that a config may have."""


class Name(Kind[str]):
    """A printable text, of which some values may be known; what uses it looks it up."""

    def __init__(self, known: Callable[[], Sequence[str]] = tuple) -> None:
        self._known = known

    def __call__(self, text: str) -> str:
        if not text or not text.isprintable():
            raise ValueError(f"{text!r} is not a name")
        return text

    def schema(self) -> Json:
        known = list(self._known())
        return {"type": "string", "examples": known} if known else {"type": "string"}


class ToolPath(Name):
    """An absolute path of a program; where it is used, it is checked."""

    def schema(self) -> Json:
        return {"type": "string", "pattern": "^/"}


class Directory(Kind[Path]):
    """An absolute path of a directory."""

    def __call__(self, text: str) -> Path:
        if not text.startswith("/") or not text.isprintable():
            raise ValueError(f"{text!r} is not the absolute path of a directory")
        return Path(text)

    def schema(self) -> Json:
        return {"type": "string", "pattern": "^/"}


class Flag(Kind[bool]):
    """True or false."""

    def __call__(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is not true or false")
        return text.lower() == "true"

    def schema(self) -> Json:
        return {"type": "boolean"}


class Duration(Kind[int]):
    """A duration in us; `what` names it in the sentence on one outside its limits, without which there are none."""

    def __init__(self, what: str = "", limits_us: Callable[[], tuple[int, int]] | None = None) -> None:
        self._what = what
        self._limits_us = limits_us

    def __call__(self, text: str) -> int:
        value_us = duration_us(text)
        if self._limits_us is not None:
            shortest, longest = self._limits_us()
            if not shortest <= value_us <= longest:
                limits = f"{show_duration(shortest)} to {show_duration(longest)}"
                raise ValueError(f"{text!r} is not {self._what} from {limits}")
        return value_us

    def schema(self) -> Json:
        return {"type": ["string", "number"], "pattern": r"^\s*[0-9.]+\s*(us|µs|ms|s|m|min|h)?\s*$"}


class CpuPercent(Kind[float]):
    """A share of one CPU in percent; 0: no limit."""

    def __call__(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= MAX_BUDGET:
            raise ValueError(f"{text!r} is not a share of one CPU from 0 (no limit) to {MAX_BUDGET:g} percent")
        return value

    def schema(self) -> Json:
        return {"type": "number", "minimum": 0, "maximum": MAX_BUDGET}


class OneOf(Kind[str]):
    """One of some names, in any case."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self.names = names

    def __call__(self, text: str) -> str:
        return _one_of(text, self.names())

    def schema(self) -> Json:
        return {"enum": list(self.names())}


class Filter(Kind[str]):
    """Words of a filter that could be typed on the screen."""

    def __call__(self, text: str) -> str:
        if not text.isprintable() or len(text) > MAX_FILTER:
            raise ValueError(f"{text[:MAX_FILTER]!r} is not a filter of at most {MAX_FILTER} printable characters")
        return text.strip()

    def schema(self) -> Json:
        return {"type": "string", "maxLength": MAX_FILTER}


class Columns(Kind[tuple[str, ...]]):
    """Titles of the device table's columns: `IOPS,p99,max`, in a config also a list."""

    def names(self) -> Sequence[str]:
        """Return the titles."""
        from latmon.views.device_table import TITLES  # noqa: PLC0415  only a command with a screen pays for its modules

        return TITLES

    def __call__(self, text: str) -> tuple[str, ...]:
        return tuple(_one_of(title.strip(), self.names()) for title in text.split(","))

    def schema(self) -> Json:
        titles = {"type": "array", "items": {"enum": list(self.names())}, "minItems": 1}
        return {"anyOf": [titles, {"type": "string"}]}


class ScreenName(OneOf):
    """A screen by the name that the screen itself has, `in-flight`, or by that of the code, `outstanding`."""

    def __init__(self, screens: Callable[[], Sequence[str]]) -> None:
        super().__init__(lambda: tuple(map(written_title, screens())))
        self._screens = screens

    def __call__(self, text: str) -> str:
        written = text.lower().replace(" ", "-").replace("/", "")
        for screen in self._screens():
            if written in (screen, written_title(screen)):
                return screen
        return super().__call__(text)

    def schema(self) -> Json:
        return {"enum": list(dict.fromkeys((*self.names(), *self._screens())))}


class Screen(ScreenName):
    """A screen by its name or its number."""

    def __init__(self) -> None:
        super().__init__(screen_names)

    def __call__(self, text: str) -> str:
        by_number = {str(number): name for number, name in enumerate(numbered_screens(), 1)}
        return super().__call__(by_number.get(text, text))

    def schema(self) -> Json:
        names = super().schema()["enum"]
        return {"enum": [*names, *range(1, len(numbered_screens()) + 1)]}


class Number:
    """A whole number from 1; `what` names it in the sentence on another."""

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most

    def __call__(self, text: str) -> int:
        if not (_is_number(text) and 1 <= int(text) <= self._most):
            raise ValueError(f"{text!r} is not {self._what} from 1 to {self._most:,}")
        return int(text)


class Size:
    """A size in bytes; `limit` names the smallest one, and why, in the sentence on a smaller."""

    def __init__(self, least: int, limit: str) -> None:
        self._least = least
        self._limit = limit

    def __call__(self, text: str) -> int:
        size = size_bytes(text)
        if size < self._least:
            raise ValueError(f"{text!r} is less than {self._limit}")
        return size


def _one_of(text: str, names: Sequence[str]) -> str:
    for name in names:
        if name.lower() == text.lower():
            return name
    raise ValueError(f"{text!r} is not one of {', '.join(names)}")


def written_title(screen: str) -> str:
    """Return the name of a screen as an option's value: `in-flight`, `slow-ios`."""
    from latmon.findings.rule import screen_title  # noqa: PLC0415  as in Columns

    return screen_title(screen).lower().replace(" ", "-").replace("/", "")


def screen_names() -> Sequence[str]:
    """Return the names of all screens."""
    from latmon.views.selection import ASIDES, PANELS, SCREENS  # noqa: PLC0415  as in Columns

    return tuple(dict.fromkeys((*PANELS, *SCREENS, *ASIDES)))


def numbered_screens() -> Sequence[str]:
    """Return the names of the screens that have a number, from 1."""
    from latmon.views.selection import SCREENS  # noqa: PLC0415  as in Columns

    return SCREENS


def sort_names() -> Sequence[str]:
    """Return the sort orders of the device table."""
    from latmon.views.selection import SORTS  # noqa: PLC0415  as in Columns

    return SORTS


def window_limits_us() -> tuple[int, int]:
    """Return the shortest and the longest window of the screen."""
    from latmon.views.selection import WINDOWS_US  # noqa: PLC0415  as in Columns

    return WINDOWS_US[0], WINDOWS_US[-1]


def positive_duration(text: str) -> int:
    """Parse a duration above zero, in us."""
    value_us = duration_us(text)
    if value_us <= 0:
        raise ValueError(f"{text!r} is not a duration above zero")
    return value_us


def objective(text: str) -> int:
    """Parse the latency of a service-level objective, in us."""
    value_us = duration_us(text)
    if not value_us:
        raise ValueError("expected a duration above 0, such as 20ms")
    return value_us


def age(text: str) -> int:
    """Parse the age up to which parts are kept, which may be in days, in us."""
    days = text.strip()[:-1] if text.strip()[-1:] in ("d", "D") else ""
    try:
        value_us = duration_us(f"{days}h") * 24 if days else duration_us(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a duration, such as 7d or 12h") from None
    if value_us < MIN_KEEP_US:
        raise ValueError(f"{text!r} is less than a minute, too little to keep")
    return value_us


def moment(text: str) -> float:
    """Parse a time of day, in seconds since the epoch."""
    from latmon.importers.values import moment as imported_moment  # noqa: PLC0415  no other command needs it

    wall = imported_moment(text)
    if wall is None:
        raise ValueError(f"{text!r} is not a time such as 2026-04-07T12:13:04Z")
    return wall


def speed(text: str) -> float:
    """Parse how many times as fast a recording is played."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r} is not a speed such as 1, 0.5 or 60")
    return value


def cast_speed(text: str) -> float:
    """Parse how many times as fast a cast is played."""
    value = speed(text)
    if value == 0:
        raise ValueError(f"{text!r} is not a speed above 0, such as 10, which a cast needs")
    return value


def screen_size(text: str) -> tuple[int, int]:
    """Parse the columns and lines of a screen: `80x24`."""
    columns, _, lines = text.partition("x")
    if not (_is_number(columns) and _is_number(lines)):
        raise ValueError(f"{text!r} is not a size such as 80x24")
    size = int(columns), int(lines)
    from latmon.exporters.registry import SIZES  # noqa: PLC0415  of pictures alone

    (least_x, least_y), (most_x, most_y) = SIZES
    if not (least_x <= size[0] <= most_x and least_y <= size[1] <= most_y):
        raise ValueError(f"{text!r} is not a size from {least_x}x{least_y} to {most_x}x{most_y}")
    return size


def seed(text: str) -> int:
    """Parse the number that selects a host of a demo."""
    if not _is_number(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def sectors(text: str) -> tuple[int, int]:
    """Parse the first and the last sector of a range."""
    low, dash, high = (part.strip() for part in text.partition("-"))
    if not (dash and _is_number(low) and _is_number(high)):
        raise ValueError(f"{text!r} is not a range of sectors such as 2048-4095")
    if int(low) > int(high):
        raise ValueError(f"{text!r} ends before it begins")
    return int(low), int(high)


def hz(text: str) -> int:
    """Parse the ticks per second of a kernel."""
    if not (text.isdecimal() and len(text) <= len(str(MAX_HZ)) and MIN_HZ <= int(text) <= MAX_HZ):
        raise ValueError(f"{text!r} is not a number of ticks per second such as 250")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def events(text: str) -> tuple[str, str]:
    """Parse the names of two events: `block_rq_issue,block_rq_complete`."""
    begin, comma, end = (part.strip() for part in text.partition(","))
    if not (begin and comma and end):
        raise ValueError(f"{text!r} is not two events such as block_rq_issue,block_rq_complete")
    return begin, end


def setting(text: str) -> str:
    """Return the name of a setting of a host."""
    if not text.strip():
        raise ValueError("expected the name of a setting, as `latmon diff A B` lists it")
    return text


def span(text: str) -> str:
    """Return the name of a recording, or of a part of it."""
    if not text or "\0" in text:
        raise ValueError("expected the name of a recording, or FILE@NOTE")
    return text


def glob(text: str) -> str:
    """Return a pattern of names."""
    if not 0 < len(text) <= MAX_GLOB:  # a pattern of 100,000 brackets takes minutes to compile
        raise ValueError(f"expected a device name or a pattern such as 'nvme*', of at most {MAX_GLOB} characters")
    return text


def host(text: str) -> str:
    """Return a host as ssh takes it."""
    from latmon.capture import registry  # noqa: PLC0415  no other command needs it

    return registry.load_target("fleet", "latmon_backends.fleet.remote:checked_host")(text)  # type: ignore[no-any-return]  # the type of a loaded function is not known


def address(text: str) -> Any:
    """Parse the address that the exporter listens on."""
    from latmon.metrics.listen_address import ListenAddress  # noqa: PLC0415  no other command needs it

    return ListenAddress.parse(text)


def file(text: str) -> Path:
    """Return the path of a file."""
    if not text or "\0" in text:
        raise ValueError("expected the name of a file")
    return Path(text)


def log_file(text: str) -> Path:
    """Return the absolute path of a log."""
    if text == "-":
        raise ValueError("expected the name of a file: what is logged is on stderr without the option, too")
    return file(text).absolute()


def new_file(text: str) -> Path:
    """Return the absolute path of a new file, whose directory exists where it is named as one, or STANDARD."""
    if text.endswith("/") and not paths.is_directory(Path(text)):  # else a file would get the name of the directory
        raise ValueError(f"there is no directory {text}: make it first")
    return new_path(text)


def new_path(text: str) -> Path:
    """Return the absolute path of a new file or directory, or STANDARD."""
    if not text or "\0" in text:
        raise ValueError("expected the name of a file that doesn't exist yet, or - for standard output")
    return STANDARD if text == "-" else Path(text).absolute()


def word(text: str) -> str:
    """Return a word of a command as it is."""
    return text
