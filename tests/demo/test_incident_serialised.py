"""Three at a time against 256: the published rates, and Little's law between them."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from depth_sums import merge_depths

from latmon.analysis.limits import audit, ceiling, wall
from latmon.model.histogram import merge
from latmon_backends.demo.serialised import DATA, SERIALISED, SERIALISED_HEALTHY

WINDOWS = 12


@pytest.fixture(scope="module")
def sick():
    return list(islice(SERIALISED.frames(Random(1)), WINDOWS))


@pytest.fixture(scope="module")
def healthy():
    return list(islice(SERIALISED_HEALTHY.frames(Random(1)), WINDOWS))


def stage(frames, name):
    return merge(h for f in frames for s, h in f.histograms.items() if (s.device, s.stage) == (DATA, name))


def mean(counts):
    return sum(depth * n for depth, n in counts.items()) / sum(counts.values())


def test_a_thousand_reads_against_a_hundred_and_forty_thousand(sick, healthy):
    assert stage(sick, "total").count / WINDOWS == pytest.approx(1_000, rel=0.01)
    assert stage(healthy, "total").count / WINDOWS == pytest.approx(140_000, rel=0.01)
    assert stage(sick, "hba").mean == pytest.approx(3_000, rel=0.05)
    assert stage(healthy, "hba").mean == pytest.approx(1_800, rel=0.05)
    assert stage(sick, "queue").sum > 0.9 * stage(sick, "total").sum
    assert stage(healthy, "queue").mean < 3


def test_three_in_the_driver_while_dozens_wait(sick):
    depths = merge_depths(f.depths[DATA] for f in sick)
    limit = ceiling(next(d for d in sick[0].devices if d.name == DATA).limits)
    assert (limit.name, limit.value, depths.highest, wall(depths, limit)) == ("un_throttle", 3, 3, 3)
    assert mean(depths.queued) == pytest.approx(45, abs=1)
    assert all(f.outstanding[DATA].in_driver <= 3 for f in sick)


def test_in_health_the_limit_of_256_is_no_wall(healthy):
    depths = merge_depths(f.depths[DATA] for f in healthy)
    limit = ceiling(next(d for d in healthy[0].devices if d.name == DATA).limits)
    assert (limit.value, wall(depths, limit)) == (256, None)
    assert depths.in_driver.get(256, 0) < 0.01 * sum(depths.in_driver.values())
    assert mean(depths.queued) < 1


@pytest.mark.parametrize("frames", ["sick", "healthy"])
def test_depths_are_what_littles_law_makes_of_rate_and_time(frames, request):
    reported = request.getfixturevalue(frames)
    depths = merge_depths(f.depths[DATA] for f in reported)
    assert mean(depths.in_driver) == pytest.approx(stage(reported, "hba").sum / 1e6 / WINDOWS, rel=0.02)
    assert sum(depths.at_issue.values()) == stage(reported, "total").count


def test_what_is_off_is_the_throttle_and_the_tags(sick, healthy):
    off = {name: {advice.id for advice in row.off} for row in audit(sick[0].devices, {}) for name in [row.device]}
    assert off[DATA] == {"depth-below-minimum", "tagged-queueing-off"}
    assert not [advice for row in audit(healthy[0].devices, {}) for advice in row.off]
