"""A real kernel in each trouble that a rule names: it is named first, within a minute; the same load without it is not.

Everything is emulated, slowly: that a rule finds it is asserted, never how many microseconds it took.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from guests import CHECKOUT, run

from latmon.model.devices import Inventory
from latmon.model.frame import Frame
from latmon.recording.reader import open_recording
from latmon.recording.rotation import Limits, Rotation

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]
WITHIN_US = 60_000_000
BEHIND_US = 5_000_000
"""What bpftrace may be behind in an emulated guest."""

ROOMY = ("--accel", "icount", "--smp", 1, "--mem", 3072)
"""By a clock that a busy host doesn't disturb. The compiler of several programs needs more memory than a guest has by
default, and crawls without."""


class Guest(NamedTuple):
    """Several loads in one, as long as few probes measure all of them: to start the probes takes minutes."""

    loads: tuple[str, ...]
    on_demand: tuple[str, ...]
    words: tuple[str, ...] = ()
    """Of vm-run."""


GUESTS = {
    "ceiling": Guest(("ceiling",), ("inflight_a", "stages_a", "scsi_a")),
    "disks": Guest(("peers", "depth", "disk"), ("inflight_a", "stages_a", "scsi_a")),
    "threads": Guest(
        ("threads",),
        ("stages_a", "softirqs_a", "wakeups_a"),
        # Two: on one CPU scsi_debug's timer completes what it has without a softirq.
        ("--smp", 2, "--disk", "nvme,latency-ms=10", "--append", "threadirqs"),
    ),
}


class Effect(NamedTuple):
    guest: str
    name: str
    rule: str
    device: int = 0
    """Of those that it makes sick."""


EFFECTS = (
    Effect("ceiling", "ceiling", "outstanding-ceiling"),
    Effect("disks", "depth", "outstanding-ceiling"),
    Effect("disks", "peers", "peer-outlier"),
    Effect("disks", "requeues", "requeue-storm"),
    Effect("disks", "starved", "starved-io"),
    Effect("threads", "hogs", "completion-wakeup", 0),
    Effect("threads", "hogs", "softirq-delay", 1),
)


def cut(recording: Path, begin_us: int, end_us: int, into: Path) -> Path:
    """The windows that end in that span, as a recording of their own."""
    source = open_recording(recording)
    inventory, target = Inventory(), Rotation.create(into, source.origin, Limits())
    first = True
    for one in source:
        if isinstance(one, Frame):
            inventory.note(one)
            if begin_us < one.mono_us <= end_us:
                target.append(inventory.complete(one) if first else one)
                first = False
    target.close("closed")
    return into


def urgent(recording: Path) -> list[tuple[str, str]]:
    """Rule and device of what `latmon report` finds of severity warning or above, as it orders them."""
    words = [sys.executable, "-m", "latmon", "report", "--json", str(recording)]
    ours = os.pathsep.join((str(CHECKOUT), str(CHECKOUT / "backends")))
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": ours}, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["findings"]
    for one in found:
        print(recording.name, one["severity"], one["id"], one["device"], one["summary"])
    return [(one["id"], one["device"]) for one in found if one["severity"] in ("warning", "critical")]


@pytest.fixture(scope="module")
def guests(tmp_path_factory):
    """Each is booted when it is first asked for."""

    @functools.cache
    def booted(name: str):
        directory, guest = tmp_path_factory.mktemp(name), GUESTS[name]
        reported = run(
            directory,
            "trixie",
            ("guest_findings.py", *guest.loads),
            *ROOMY,
            *guest.words,
            on_demand=guest.on_demand,
            packed=True,
        )
        print(reported["stderr"][-2000:])
        return directory, reported["effects"]

    return booted


@pytest.mark.parametrize("effect", EFFECTS, ids=[f"{one.name}: {one.rule}" for one in EFFECTS])
def test_it_is_named_first_and_calm_is_calm(guests, tmp_path, effect):
    directory, effects = guests(effect.guest)
    whole, reported = directory / "all.latmon.jsonl.gz", effects[effect.name]
    began_us, device = reported["sick_us"][0], reported["devices"][effect.device]
    assert urgent(cut(whole, *reported["calm_us"], tmp_path / "calm.latmon.jsonl.gz")) == []
    sick = cut(whole, began_us, began_us + WITHIN_US + BEHIND_US, tmp_path / "sick.latmon.jsonl.gz")
    found = urgent(sick)
    assert [rule for rule, where in found if where == device][:1] == [effect.rule]
    assert {where for _, where in found} <= set(reported["devices"])
