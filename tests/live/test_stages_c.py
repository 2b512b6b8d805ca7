"""stages_c on a disk of our own: every request's stages add up, its issuer is known, and its path has a name.

The host's bpftrace by default, 0.23 and 0.27 under the marker `versions`.
"""

import mmap
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from attached import Attached, every_stack, manifest
from bpftraces import ROOT, each_bpftrace
from workload import LoopDevice

from latmon.model.frame import UNACCOUNTED, Series
from latmon.model.histogram import bucket_bounds

MANIFEST = manifest("stages_c")
WRITES, FLUSHES = 400, 10
UNSEEN = "start not seen"
SEEDED = 40
STAGES = ("queue", "requeue", "hba", "irq", "softirq", "completion", UNACCOUNTED)


@pytest.fixture
def loop(tmp_path):
    if not ROOT or shutil.which("losetup") is None or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")
    with LoopDevice(tmp_path / "image", 4 << 20) as device:
        yield device


def number(device):
    found = Path(device.path).stat().st_rdev
    return os.major(found) << 20 | os.minor(found)


def write(path):
    """WRITES direct writes of 4 KiB and FLUSHES flushes; how long the longest of them took, in us."""
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    longest = 0.0
    try:
        with mmap.mmap(-1, 4096) as page:
            for n in range(WRITES):
                begun = time.monotonic()
                os.pwrite(fd, page, n * 4096)
                longest = max(longest, time.monotonic() - begun)
                if n % (WRITES // FLUSHES) == 0:
                    os.fsync(fd)
    finally:
        os.close(fd)
    return longest * 1e6


@each_bpftrace
def test_stages_add_up_and_the_path_has_a_name(suite, loop, tmp_path):
    # From 1 us on every I/O is slow: as many records as there are tokens.
    with Attached(suite, tmp_path, MANIFEST, changed=every_stack, device=number(loop), threshold_us=1) as run:
        longest = write(loop.path)
    interval = run.interval({number(loop): "disk"}.get)
    traced = interval.traced
    assert (interval.undecoded, traced.off) == (0, 0)
    written = {stage: traced.histograms.get(Series("disk", "write", stage)) for stage in (*STAGES, "total")}
    # The kernel skips a few programs (recursion), seldom more than one in a hundred.
    assert WRITES * 0.95 <= written["total"].count <= WRITES + FLUSHES
    assert FLUSHES * 0.5 <= traced.histograms[Series("disk", "flush", "total")].count <= FLUSHES + 1
    followed, lost = sum(traced.paths["disk"].values()), sum(traced.unfollowed.get("disk", {}).values())
    assert lost <= 0.05 * followed
    assert not [name for name in (*traced.paths["disk"], *traced.unfollowed.get("disk", {})) if "unknown" in name]
    # Of all stages together, the requests of a bucket of the total took as long as their bucket.
    for bucket, n in written["total"].buckets:
        took = sum(traced.by_total.get(Series("disk", "write", stage), {}).get(bucket, 0) for stage in STAGES)
        low, high = bucket_bounds(bucket)
        assert n * low <= took < n * high
    # The total's sum comes from the two ends alone.
    parts = sum(sum(traced.by_total.get(Series("disk", "write", stage), {}).values()) for stage in STAGES)
    assert abs(written["total"].sum - parts) <= written["total"].count
    maps = [run.maps.get(spec.name, {}) for spec in MANIFEST.maps if spec.role != "completer"]
    assert {int(key) >> 16 for printed in maps for key in printed} == {number(loop)}
    assert sum(traced.completers["disk"].values()) == followed + lost - traced.unfollowed.get("disk", {}).get(UNSEEN, 0)
    assert all("blk_done_softirq" in chain for chain in traced.completers["disk"])
    assert run.reported("slow")
    for one in run.reported("slow"):
        passed = [one.get(f"{stage}_us") for stage in STAGES]
        assert sum(us for us in passed if us is not None) == one.get("total_us")
        assert one.get("dev") == number(loop)
    writes = [one for one in run.reported("slow") if one.rwbs.startswith("W")]
    assert writes
    for one in writes:
        assert (one.get("pid"), one.get("bytes")) == (os.getpid(), 4096)
        assert one.text == Path("/proc/self/comm").read_text().strip()
        assert one.get("total_us") <= longest + 1


@pytest.mark.slow
@each_bpftrace
def test_a_sampled_request_is_traced_at_all_its_hooks(suite, loop, tmp_path):
    with Attached(suite, tmp_path, MANIFEST, device=number(loop), one_in=4) as run:
        write(loop.path)
    traced = run.interval({number(loop): "disk"}.get).traced
    assert WRITES / 8 <= traced.histograms[Series("disk", "write", "total")].count <= WRITES / 2
    assert traced.unfollowed.get("disk", {}).get(UNSEEN, 0) <= FLUSHES


@pytest.mark.slow
@each_bpftrace
@pytest.mark.parametrize("turn", [0, 1])
def test_leftover_starts_in_either_map_are_not_used(suite, loop, tmp_path, turn):
    left = f"((((nsecs / 1000) - 60000000) & 2147483647) << 32) | {8 << 16}"

    def seeded(text):
        """Add requests that began a minute ago at each sector, in one map or the other, and whose ends were skipped."""
        seeds = "".join(
            f"@stages_c_start{n % 2}[(uint64){number(loop)}, (uint64){n * 8}] = ($left, $left, (uint64)0, comm);\n"
            for n in range(SEEDED)
        )
        own_turn = re.sub(r"\((\$\w+|nsecs) >> 36\) & 1", str(turn), text)
        return own_turn.replace("BEGIN\n{\n", f"BEGIN\n{{\n$left = (uint64)({left});\n{seeds}", 1)

    # Without a filter, which ignores starts from before it was written.
    with Attached(suite, tmp_path, MANIFEST, changed=seeded, any_dev=1) as run:
        longest = write(loop.path)
    traced = run.interval({number(loop): "disk"}.get).traced
    for stage in ("queue", "total"):
        buckets = traced.histograms[Series("disk", "write", stage)].buckets
        assert bucket_bounds(buckets[-1][0])[0] <= longest
    assert traced.histograms[Series("disk", "write", "total")].count >= WRITES * 0.95


@pytest.mark.slow
@each_bpftrace
def test_a_start_from_before_the_device_was_traced_is_not_used(suite, loop, tmp_path):
    """A request that began 2 s ago at each sector, as if its end had not been traced."""

    def seeded(text):
        left = f"((((nsecs / 1000) - 2000000) & 2147483647) << 32) | {8 << 16}"
        seeds = "".join(
            f"@stages_c_start{turn}[(uint64){number(loop)}, (uint64){at * 8}] = ($left, $left, (uint64)0, comm);\n"
            for at in range(SEEDED)
            for turn in (0, 1)
        )
        # Begins are not seen, as of requests in flight when the device is added.
        unseen = text.replace("/args->nr_sector > 0 &&", "/args->nr_sector == 1 &&")
        assert unseen != text
        return unseen.replace("BEGIN\n{\n", f"BEGIN\n{{\n$left = (uint64)({left});\n{seeds}", 1)

    with Attached(suite, tmp_path, MANIFEST, changed=seeded, device=number(loop)) as run:
        write(loop.path)
    traced = run.interval({number(loop): "disk"}.get).traced
    assert Series("disk", "write", "total") not in traced.histograms
    assert traced.unfollowed["disk"][UNSEEN] >= SEEDED


@each_bpftrace
def test_the_always_on_probe_counts_each_slow_one_and_reports_of_some(suite, loop, tmp_path):
    block_c = manifest("block_c")
    with Attached(suite, tmp_path, block_c, threshold_us=1) as run:
        longest = write(loop.path)
    ours = {name: of_device(values, number(loop)) for name, values in run.maps.items() if name.startswith("block_c")}
    reported = [one for one in run.reported("slow") if one.get("dev") == number(loop)]
    above = sum(ours["block_c_above"].values())
    timed = sum(n for key, n in ours["block_c_hba"].items() if key & 255)
    assert above == timed
    # A record of the moment in which the tool ends may be lost.
    assert 0 <= above - len(reported) - sum(ours.get("block_c_suppressed", {}).values()) <= 2
    assert set(ours["block_c_level"].values()) == {1}
    assert reported
    for one in reported:
        assert one.get("done_ns") - one.get("begun_ns") == one.get("total_us") * 1000
        assert one.get("bytes") == (4096 if one.rwbs.startswith("W") else 0)
        assert one.rwbs.startswith("FF") or one.get("total_us") <= longest + 1


def of_device(values, device):
    """All its maps have the device from bit 16 on."""
    return {int(key): n for key, n in values.items() if int(key) >> 16 == device} if isinstance(values, dict) else {}


HOT_READS, ONE_IN = 8000, 16


@each_bpftrace
def test_a_sample_has_its_part_of_the_ios_of_one_hot_block(suite, loop, tmp_path):
    """Sampled by its sector, a block would be in the sample as a whole or not at all."""
    with Attached(suite, tmp_path, MANIFEST, changed=every_stack, device=number(loop), one_in=ONE_IN) as run:
        fd = os.open(loop.path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, 4096) as page:
                for n in range(HOT_READS):
                    os.preadv(fd, [page], 4096 * 7 if n % 2 else 4096 * 11)
        finally:
            os.close(fd)
    traced = run.interval({number(loop): "disk"}.get).traced
    read = {stage: traced.histograms[Series("disk", "read", stage)].count for stage in ("queue", "hba", "total")}
    unseen = traced.unfollowed.get("disk", {}).get(UNSEEN, 0)
    print(f"{read} of {HOT_READS}, {unseen} starts not seen")
    assert 0.8 * HOT_READS / ONE_IN <= read["total"] <= 1.2 * HOT_READS / ONE_IN
    assert read["hba"] == read["total"]
    assert unseen <= 0.05 * read["total"], "what is not in the sample is not a start that was not seen"
