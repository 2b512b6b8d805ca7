"""Each golden behind each thing that comes between a tool and a file: the numbers are those of the plain text.

A product of all samples and all wrappers, so that no format can forget one of them.
"""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import pytest
from test_import_damage import GOLDENS, asked
from test_import_unwrap import MAILS, STAMPS, stamped
from test_imports import read

from latmon.importers.registry import Read

PROSE = "The disks were slow on Tuesday, see below.\n\n"


def mailed(text: str) -> str:
    """Return a text as an answer quotes it."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def behind(form: str) -> Callable[[str], str]:
    return lambda text: stamped(text, form)


WRAPPERS: dict[str, Callable[[str], str]] = {
    "prose around it": lambda text: f"{PROSE}{text}\nThanks,\nAnn\n",
    "lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "a quote": mailed,
    "Markdown": lambda text: f"{PROSE}```\n{text}\n```\n",
    "a Markdown block of four blanks": lambda text: PROSE + "".join(f"    {line}\n" for line in text.split("\n")),
    "a block of reStructuredText": lambda text: (
        f"{PROSE}.. code-block:: text\n\n" + "".join(f"  {line}".rstrip() + "\n" for line in text.split("\n"))
    ),
    "a Markdown block of tabs": lambda text: (
        PROSE + "".join(f"\t{line}\n" if line else "\n" for line in text.split("\n"))
    ),
    "a fence right below": lambda text: f"{PROSE}```console\n{text.rstrip()}\n```\nWhat is slow here?\n",
    "HTML": lambda text: f"<pre>{html.escape(text)}</pre>\n",
    "a colour": lambda text: f"\x1b[0m{text.replace(chr(10), chr(27) + '[0m' + chr(10))}",
    "a prompt and the next one": lambda text: f"ann@db1:~$ cat out.txt\n{text}\nann@db1:~$ \n",
    "starship": lambda text: f"\u276f cat out.txt\n{text}\n\u276f \n",
    **{how: behind(form) for how, form in STAMPS.items()},
    **MAILS,
}
JSON_OF_ONE_LINE = 2_000
"""Characters of a line above which only mails are tried: nobody puts a time before such a line."""


def numbers(found: Read) -> dict[tuple[str, ...], list[int]]:
    """Return the counts, times and bytes of each series of an import."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for frame in found.frames():
        for series, histogram in frame.histograms.items():
            row = sums.setdefault(("timed", *series), [0, 0])
            row[0] += histogram.count
            row[1] += histogram.sum or 0
        for flow, done in frame.kernel.items():
            row = sums.setdefault(("counted", *flow), [0, 0, 0])
            row[0] += done.count
            row[1] += done.bytes
            row[2] += done.time_us or 0
    return sums


@cache
def plain(name: str) -> dict[tuple[str, ...], list[int]]:
    return numbers(read(GOLDENS[name], asked(name)))


def is_wrapped_so(name: str, how: str) -> bool:
    """Return whether the wrapper is one that such a text can have."""
    return how in MAILS or max(map(len, GOLDENS[name].split("\n"))) <= JSON_OF_ONE_LINE


PAIRS = [(name, how) for name in GOLDENS for how in WRAPPERS if is_wrapped_so(name, how)]


@pytest.mark.parametrize("name", GOLDENS)
def test_what_came_between_a_tool_and_the_file_changes_no_number(name):
    failed = {}
    for golden, how in PAIRS:
        if golden == name:
            wrapped = numbers(read(WRAPPERS[how](GOLDENS[name]), asked(name)))
            if wrapped != plain(name):
                failed[how] = {key: (wrapped.get(key), row) for key, row in plain(name).items()}
    assert not failed


def test_a_stamp_is_the_time_of_what_it_stands_before():
    """Of formats whose own lines have no time, by the stamp of the first line."""
    for name in ("freebsd_iostat_x.txt", "gstat.txt", "aix_iostat_d.txt", "nfsiostat.txt", "systemtap_log.txt"):
        frames = list(read(stamped(GOLDENS[name], "%Y-%m-%dT%H:%M:%S.%f000Z "), asked(name)).frames())
        assert datetime.fromtimestamp(frames[-1].wall, UTC).date().isoformat() == "2022-07-04", name


OF_A_LOCALE = (
    *("iostat_x.txt", "iostat_y.txt", "iostat_plain.txt", "iostat_s.txt", "iostat_h.txt", "iostat_sxh.txt"),
    *("sar_d.txt", "sar_dp.txt", "sadf_d.txt", "sadf_dh.txt", "pmrep_iostat.txt", "zpool_lv.txt"),
    *("freebsd_iostat_x.txt", "iostat_macos.txt"),
)
"""Goldens of tools that print numbers as their locale does."""


@pytest.mark.parametrize("name", OF_A_LOCALE)
def test_decimal_commas_change_no_number(name):
    text = re.sub(r"(?<=\d)\.(?=\d\d?(?:[\s;kMG%]|$))", ",", GOLDENS[name])
    assert "," in text
    assert numbers(read(text, asked(name))) == plain(name)
