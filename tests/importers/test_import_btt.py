"""btt of disks that it takes for volumes, by their major, and rows with a mark behind them.

The texts in tests/golden/btt are of btt 1.2.0: `fio` of a virtio disk under fio, the others of
traces with known times. The right values are those of a separate awk program over their rows.
"""

import subprocess

import pytest
from test_imports import GOLDEN, frames, only, read

from latmon.support.errors import EXIT_DONE

BTT = GOLDEN.parent / "btt"
AWK_ALL = r"""
$1 ~ /^Q2C(dm)?$/ && NF == 5 { print $1, $5, int($3 * $5 * 1000000 + 0.5) }
"""
AWK_DEVICES = r"""
$2 == "MIN" { step = $1 }
/Per Process|Per Device|All Devices/ { section = $2 " " $3 }
section ~ /^Per Device/ && step ~ /^Q2C(dm)?$/ && /^\(/ {
    sub(/\( */, ""); sub(/, */, ":"); sub(/\)/, "")
    print $1, $5, int($3 * $5 * 1000000 + 0.5)
}
"""
AWK_SIZES = r"""
/Merge Information/ { is_on = 1 }
is_on && /^ \(/ { sub(/\( */, ""); sub(/, */, ":"); sub(/\)/, ""); print $1, $NF * 512 }
"""
NAMES = {
    "virtio": {"Q2Cdm": "254:0"},
    "virtio253": {"Q2Cdm": "253:16"},
    "fio": {"Q2Cdm": "254:16"},
    "md": {"Q2Cdm": "9:1"},
    "two": {"Q2Cdm": "all disks"},
    "mixed": {"Q2Cdm": "254:0", "Q2C": "8:0"},
    "three": {"Q2Cdm": "253:0", "Q2C": "all disks"},
}
"""File -> row of all devices -> the device that it is of."""


def text_of(name):
    return (BTT / f"{name}.txt").read_text()


def by_awk(program, text):
    done = subprocess.run(["awk", program], input=text, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def kernel_of(text):
    return {flow.device: done for flow, done in only(frames(text)).kernel.items()}


@pytest.mark.parametrize("name", NAMES)
def test_times_of_all_devices_are_of_the_disks_and_of_what_btt_takes_for_volumes(name):
    text = text_of(name)
    rows = by_awk(AWK_ALL, text)
    sizes = {device: int(size) for device, size in by_awk(AWK_SIZES, text)}
    kernel = kernel_of(text)
    assert {row[0] for row in rows} == set(NAMES[name])
    assert len(kernel) == len(rows)
    for step, number, us in rows:
        done = kernel[NAMES[name][step]]
        assert (done.count, done.time_us) == (int(number), int(us))
    assert sum(done.bytes for done in kernel.values()) == sum(sizes.values())
    assert read(text).exit_code == EXIT_DONE


@pytest.mark.parametrize("name", ["two_a", "mixed_a", "three_a"])
def test_times_of_each_device_are_taken_where_btt_prints_them(name):
    rows = {device: (int(number), int(us)) for device, number, us in by_awk(AWK_DEVICES, text_of(name))}
    assert len(rows) in (2, 3)
    assert {name: (done.count, done.time_us) for name, done in kernel_of(text_of(name)).items()} == rows


def test_the_time_in_the_driver_is_that_of_virtio_disks_where_there_are_no_others():
    done = kernel_of(text_of("fio"))["254:16"]
    assert (done.count, done.bytes) == (200, 1600 * 512)
    assert (done.time_us, done.queue_us) == (36_658, 36_658 - 32_690)


def test_the_time_in_the_driver_of_disks_and_volumes_together_is_of_neither():
    found = read(text_of("mixed"))
    assert {done.queue_us for done in only(found.frames()).kernel.values()} == {None}
    assert "D2C" not in only(found.frames()).health.notice


MARKS = (" *", "  <-- slow", " !!", "\t# of one device", "  ← here", " (see above)", " this one")


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("name", ["fio", "mixed", "two_a"])
def test_a_mark_behind_a_row_changes_nothing(name, mark):
    lines = text_of(name).splitlines()
    marked = [f"{line}{mark}" if line[:1] in "Q(D " and line[-1:].isdigit() else line for line in lines]
    assert marked != lines
    assert kernel_of("\n".join(marked)) == kernel_of(text_of(name))
