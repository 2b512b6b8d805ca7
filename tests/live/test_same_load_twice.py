"""Equal loads differ in nothing: a capture of a disk of the test, cut into spans, neighbours compared.

Whatever else the host does meanwhile is part of it; one pair of ten may differ on a host with other load.
"""

import os
import shutil
from itertools import pairwise

import pytest
from workload import Capture, LoopDevice, fio

from latmon.diff.blocks import period_of
from latmon.diff.comparison import compare
from latmon.diff.output import render
from latmon.diff.report import pair_report
from latmon.recording.reader import open_recording

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace and fio"),
]
SPANS, WINDOWS = 5, 42
INTERVAL_S = 0.5


def test_neighbouring_spans_of_one_load_are_not_separated(tmp_path):
    with LoopDevice(tmp_path / "image", 64 << 20) as disk:
        job = {"name": "same", "filename": disk.path, "rw": "randrw", "bs": "4k", "rate_iops": "400,200"}
        seconds = int(SPANS * WINDOWS * INTERVAL_S) + 3
        words = ("--backend", "bpftrace", "--device", disk.name, "--interval", f"{INTERVAL_S * 1000:.0f}ms")
        with Capture(tmp_path, *words) as capture:
            fio(tmp_path, seconds, job)
            capture.stop()
        frames = [frame for frame in capture.frames() if any(name.device == disk.name for name in frame.histograms)]
        recording = open_recording(capture.file)
    # the first and the last window have a part of the load
    frames = frames[1 : 1 + SPANS * WINDOWS]
    spans = [
        period_of(f"{at}", recording.origin, recording.devices, frames[at : at + WINDOWS])
        for at in range(0, len(frames) - WINDOWS + 1, WINDOWS)
    ]
    pairs = [compare(a, b) for a, b in pairwise(spans)]
    assert len(pairs) >= SPANS - 2
    assert all(pair.tested and pair.changes for pair in pairs)
    apart = [pair for pair in pairs if any(change.changed for change in pair.changes)]
    assert len(apart) <= 1, "\n".join(render(pair_report(pair)) for pair in apart)
