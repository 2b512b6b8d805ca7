"""Mutations of every sample: an import of a damaged text with exit 0 has the counts of the whole one, or a new remark.

A digit that became another digit can't be seen and is not tried; neither are deleted rows that no tool would miss.
"""

import random
import re
import time
from functools import cache

import pytest
from test_imports import GOLDEN, PAIR, SAMPLES, read

from latmon.importers.registry import Read, origin
from latmon.importers.values import ImportOptions, Remark
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, RecordingError, UsageError

SEED = 13
GOLDENS = {path.name: path.read_text() for path in sorted(GOLDEN.iterdir())}
TEXTS = GOLDENS | SAMPLES
EVENTS = {"ftrace": PAIR.events, "ftrace_lost.txt": ("block_rq_issue", "block_rq_complete")}
WRONG = "x;\N{REPLACEMENT CHARACTER}"
ROW = re.compile(r'\s*(?:[\[(]?-?\d[\d.,:)KMG ]*(?:\s|\Z)|\w+\s+\d|.{1,20}\s\[\d+\]|"|\{"disk_device)')
INNER = {"bpftrace": "[", "bcc": " -> ", "iolatency": " -> ", "systemtap_linear": "0 |"}
SINGLE = (
    *("emlxsoverhead", "scsi.d", "max_sd", "esxtop.txt", "esxtop_nfs.txt", "esxtop_paths.txt"),
    *(
        "biotop.txt",
        "iostat_macos.txt",
        "pmrep_iostat.txt",
        "pg_test_fsync.txt",
        *("fio_text.txt", "fio_lat.log", "fio_hist.log", "ioping.txt", "ioping_raw.txt", "strace.txt", "strace_r.txt"),
        "events_disks.txt",
        "events_files.txt",
        "events_async.txt",
        "events_iosnoop.txt",
        "zpool_zfs23_lp.txt",
    ),
)
"""Each row of these is an I/O, a sample or a number by itself."""


def asked(name: str) -> ImportOptions:
    key = "sector" if name == "ftrace_lost.txt" else ""
    return ImportOptions(unit="us", events=EVENTS.get(name), key=key)


def counted(found: Read) -> list[int]:
    """All I/O counts of all windows, without the names of their series."""
    each = [h.count for frame in found.frames() for h in frame.histograms.values()]
    each += [done.count for frame in found.frames() for done in (*frame.kernel.values(), *frame.seen.values())]
    each += [n for frame in found.frames() for depths in frame.depths.values() for n in depths.at_issue.values()]
    return sorted(count for count in each if count)


def remarks(found: Read) -> set[str]:
    """Return what is printed about a text: remarks, and the assumptions of its header."""
    assumed = origin(found, next(found.frames())).extra["imported"]["assumed"]
    return {remark.text for remark in found.found if isinstance(remark, Remark)} | {*assumed}


@cache
def whole(name: str) -> tuple[list[int], set[str]]:
    found = read(TEXTS[name], asked(name))
    return counted(found), remarks(found)


def evaluate(name: str, at: int, damaged: str) -> None:
    try:
        found = read(damaged, asked(name))
    except (RecordingError, UsageError):
        return
    if found.exit_code == EXIT_DONE and counted(found) != whole(name)[0]:
        assert remarks(found) - whole(name)[1], f"{name} line {at}: {TEXTS[name].splitlines()[at - 1]}"


def damage_a_digit(name: str, rng: random.Random) -> None:
    text = TEXTS[name]
    place = rng.choice([n for n, one in enumerate(text) if one.isdecimal()])
    evaluate(name, text.count("\n", 0, place) + 1, text[:place] + rng.choice(WRONG) + text[place + 1 :])


def rows(name: str) -> list[int]:
    """Lines, from 0, whose absence shows.

    INNER tools print no bucket beyond the first and the last one; the row before the last one of lquantize() may be
    where llquantize's steps become longer.
    """
    lines = TEXTS[name].split("\n") if name not in SINGLE else []
    every = [at for at, line in enumerate(lines[:-1]) if ROW.match(line) and not lines[at + 1].startswith(">=")]
    inner = next((mark for tool, mark in INNER.items() if tool in name), "")
    return [at for at in every if inner in lines[at - 1] and inner in lines[at + 1]] if inner else every


def delete_a_row(name: str, rng: random.Random) -> None:
    lines = TEXTS[name].split("\n")
    at = rng.choice(rows(name))
    evaluate(name, at + 1, "\n".join(lines[:at] + lines[at + 1 :]))


@pytest.mark.parametrize("name", TEXTS)
def test_a_damaged_digit_is_never_silent(name):
    rng = random.Random(f"{SEED} {name}")
    for _ in range(10):
        damage_a_digit(name, rng)


@pytest.mark.parametrize("name", [name for name in TEXTS if rows(name)])
def test_a_deleted_row_is_never_silent(name):
    rng = random.Random(f"{SEED} {name}")
    for _ in range(6):
        delete_a_row(name, rng)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_many_mutations_are_never_silent(name):
    rng = random.Random(f"{SEED + 1} {name}")
    for _ in range(300):
        damage_a_digit(name, rng)
        if rows(name):
            delete_a_row(name, rng)


@pytest.mark.parametrize(
    "text",
    ["7" * 40_000, f"==================== All Devices ====================\n{'- ' * 40_000}x"],
    ids=["digits", "a ruler in btt's output"],
)
def test_a_long_line_takes_time_in_proportion_to_its_length(text):
    """CPU time, with a margin of 50: each of them took a minute by a pattern that tried each pair of positions."""
    begun = time.process_time()
    with pytest.raises(RecordingError):
        read(text, name="btt" if "=" in text else "")
    assert time.process_time() - begun < 5


CUT_OUT = {
    "bcc": (
        "     usecs               : count     distribution\n"
        + "".join(
            f"{low:>10} -> {high:<10} : {n:<8} |***|\n"
            for low, high, n in ((0, 1, 5), (2, 3, 7), (4, 7, 9), (8, 15, 2), (16, 31, 1))
        ),
        "the table all disks is damaged in line 4",
    ),
    "bpftrace": (
        "@us:\n[1]   5 |@@|\n[2, 4)   7 |@@|\n[4, 8)   9 |@@|\n[8, 16)   2 |@@|\n[16, 32)   1 |@@|\n",
        "the table @us is damaged in line 4",
    ),
}


@pytest.mark.parametrize("mark", ["...", "   ...", "[...]", "[... 2 lines ...]"])
@pytest.mark.parametrize("name", CUT_OUT)
def test_a_table_whose_middle_was_replaced_by_a_mark_is_left_out(name, mark):
    text, words = CUT_OUT[name]
    lines = text.splitlines(keepends=True)
    whole_table = text.replace("@us", "@other_us")
    found = read("".join([*lines[:3], f"{mark}\n", *lines[5:], "\n\n", whole_table]), ImportOptions(unit="us"))
    assert {*counted(found)} == {24}
    assert found.exit_code == EXIT_INCOMPLETE
    assert any(words in remark for remark in remarks(found))
    assert not found.left
