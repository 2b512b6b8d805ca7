"""Admission on a disk of our own: fio's latency is the whole one, and a wait for a tag is admission.

The host's bpftrace by default, 0.23 and 0.27 under the marker `versions`; raw tracepoints came with 0.18.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from attached import Attached, manifest
from bpftraces import each_bpftrace, tool
from test_stages_c import loop, number  # noqa: F401 - a fixture is found by its name

from latmon.analysis.attribution import submission_of
from latmon.decode.tables import by_stack, context_name

MANIFEST = manifest("admission_ap")
READS, SECTORS = 100, (4 << 20) // 512
QUEUED = "admission_ap_queued"


def keeping(program):
    """Return the program without the line that empties its map of bios at the end."""
    assert f"clear(@{QUEUED});" in program
    return program.replace(f"clear(@{QUEUED});", "")


@pytest.fixture
def raw_tracepoints(suite, tmp_path):
    """Skip where fio is missing or the suite's bpftrace has no raw tracepoints with a clock."""
    if shutil.which("fio") is None:
        pytest.skip("needs fio")
    if tool(suite, tmp_path).version < "0.19":
        pytest.skip("this bpftrace has no raw tracepoints with a clock")


def fio(device, jobs):
    """Return the mean latency, in us, of READS reads by each of so many threads."""
    done = subprocess.run(
        [
            *("fio", "--name=t", f"--filename={device.path}", "--readonly", "--rw=randread", "--bs=4k", "--direct=1"),
            *("--ioengine=psync", "--thread", "--group_reporting", f"--numjobs={jobs}", f"--number_ios={READS}"),
            *("--size=4m", "--output-format=json"),
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)["jobs"][0]["read"]["lat_ns"]["mean"] / 1000


@each_bpftrace
@pytest.mark.usefixtures("raw_tracepoints")
@pytest.mark.parametrize("jobs", [1, 32])
def test_a_wait_for_a_tag_is_admission(suite, loop, tmp_path, jobs):  # noqa: F811
    Path(f"/sys/block/{loop.name}/queue/nr_requests").write_text("4")
    with Attached(suite, tmp_path, MANIFEST, changed=keeping, disk="q->disk", bio="arg0", device=number(loop)) as run:
        mean_us = fio(loop, jobs)
    # Of a bio that has completed nothing is kept. Other disks may have some in flight, beyond the sectors of this one.
    assert [sector for _, sector in run.maps.get(QUEUED, {}).values() if sector < SECTORS] == []
    submission = submission_of(run.interval({number(loop): "disk"}.get).traced, "disk", ("read",))
    assert READS * jobs * 0.95 <= submission.whole.count == submission.admission.count <= READS * jobs
    # A thread of fio runs again some time after the completion.
    assert submission.whole.mean <= mean_us
    assert submission.share > 0.5 if jobs > 1 else submission.share < 0.2
    if jobs > 1:
        assert submission.whole.mean >= 0.4 * mean_us


@each_bpftrace
@pytest.mark.usefixtures("raw_tracepoints")
def test_the_cause_of_the_wait_is_named(suite, loop, tmp_path):  # noqa: F811
    Path(f"/sys/block/{loop.name}/queue/nr_requests").write_text("4")
    waits = manifest("admission_waits_a")
    (spec,) = waits.maps
    with Attached(suite, tmp_path, waits, disk="bi_bdev->bd_disk", bio="arg0", device=number(loop)) as run:
        mean_us = fio(loop, 32)
    (us,) = by_stack(spec, run.maps[spec.name], []).items()
    assert context_name(spec, us[0]) == "no tag free"
    # The rest is the service of the I/O, and fio's wait for a CPU.
    assert 0.4 * mean_us <= us[1] / (READS * 32) <= mean_us


@each_bpftrace
@pytest.mark.usefixtures("raw_tracepoints")
def test_one_bio_in_so_many_is_noted(suite, loop, tmp_path):  # noqa: F811
    with Attached(suite, tmp_path, MANIFEST, disk="q->disk", bio="arg0", device=number(loop), one_in=8) as run:
        fio(loop, 16)
    submission = submission_of(run.interval({number(loop): "disk"}.get).traced, "disk", ("read",))
    # 1,600 reads: 200 on average, and 13 is their standard deviation.
    assert 100 <= submission.whole.count <= 300
