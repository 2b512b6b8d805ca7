"""requeue-storm: a driver that refuses I/Os at a price, and a full ring that costs little."""

import pytest
from finding_cases import disk, done, found, lasting, timed, traced

RULE = "requeue-storm"
SDA = disk(limits={"queue_depth": 64})


def stormy(*, refused=400, wait=20_000, others=600, hba=5_000, size=4096, device=SDA, op="read"):
    load = ((others, {"hba": hba}), (refused, {"queue": 10, "requeue": wait, "hba": hba}))
    completed = done(device.name, refused + others, op, size=size)
    return found(RULE, lasting(traced=traced(device.name, load, op), kernel=completed), [device])


def virtio(**limits):
    return disk("vda", driver="virtio_blk", limits={"nr_tags": 128, "nr_requests": 256, **limits})


def commands(finding):
    return [command for step in finding.steps for command in step.commands]


@pytest.mark.parametrize("op", ["read", "write"])
def test_large_ios_that_fill_a_virtio_ring_are_made_smaller(op):
    """Measured with writes of 1 MiB: nr_requests from 8 to 256 makes no difference, max_sectors_kb does."""
    (finding,) = stormy(size=1 << 20, op=op, device=virtio(max_sectors_kb=1280))
    assert commands(finding) == ["echo 128 > /sys/block/vda/queue/max_sectors_kb"]
    assert "nr_requests" not in "".join(commands(finding))


def test_small_ios_of_virtio_and_large_ones_of_scsi_are_sent_fewer_at_once():
    (finding,) = stormy(device=virtio(max_sectors_kb=1280))
    assert "echo 128 > /sys/block/vda/queue/nr_requests" in commands(finding)
    (finding,) = stormy(size=1 << 20)
    assert "echo 32 > /sys/block/sda/device/queue_depth" in commands(finding)


def test_ios_that_are_as_small_already_are_left_to_the_application():
    (finding,) = stormy(size=1 << 17, device=virtio(max_sectors_kb=128))
    assert commands(finding) == []
    assert [step.what for step in finding.steps] == ["let the application send fewer I/Os at once"]


def test_share_wait_and_cost_are_reported():
    (one,) = stormy()
    assert (one.severity, one.device, one.where.screen) == ("warning", "sda", "stages")
    assert one.summary == (
        "sda: its driver (sd) refused 40% of the I/Os, which waited 20 ms on average to be sent again: 62% of their "
        "time"
    )
    facts = {fact.name: fact for fact in one.facts}
    assert facts["refused"].text == "4,800 of 12,000 traced I/Os were refused once or more"
    assert facts["queue_depth"].text == "queue_depth is 64 (at/queue_depth)"
    assert all(step.risk for step in one.steps)


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        pytest.param({"wait": 4_000, "size": 1 << 20}, ["notice"], id="24 % of the time, of large I/Os"),
        pytest.param(
            {"refused": 860, "others": 140, "hba": 20_000, "wait": 4_000, "size": 1 << 20},
            [],
            id="a full virtio ring: 86 % of large I/Os refused, 15 % of the time",
        ),
        pytest.param({"refused": 440, "others": 560, "wait": 5_105}, ["notice"], id="44 % refused, 31 % of the time"),
        pytest.param({"refused": 950, "others": 50, "wait": 1_000}, [], id="95 % refused, 16 % of the time"),
        pytest.param({"refused": 10, "others": 190, "wait": 990_000}, ["critical"], id="one in twenty, at any price"),
        pytest.param({"refused": 10, "others": 191, "wait": 990_000}, [], id="fewer than one in twenty"),
        pytest.param({"refused": 5, "others": 5}, ["warning"], id="60 of them"),
        pytest.param({"refused": 4, "others": 4}, [], id="48 of them"),
        pytest.param({"wait": 12_700}, ["warning"], id="half of the time"),
        pytest.param({"wait": 12_300}, ["notice"], id="less than half"),
        pytest.param({"wait": 3_200}, ["notice"], id="a fifth"),
        pytest.param({"wait": 3_050}, [], id="less than a fifth"),
        pytest.param({"wait": 200_000}, ["critical"], id="nearly all"),
    ],
)
def test_thresholds(changed, severities):
    assert [one.severity for one in stormy(**changed)] == severities


def test_sums_that_disagree_say_nothing_and_no_config_divides_by_0():
    """Refusals of a burst whose totals came with the block before, which has just left the minute."""
    for total, fires in ((900, True), (899, False)):
        assert bool(found(RULE, lasting(traced=traced("sda", ((100, {"requeue": 900, "total": total}),))))) is fires
    assert not found(RULE, lasting(traced=traced("sda", ((9, {"hba": 9}),))), limits={"ios": 0, "share": 0, "time": 0})


def test_an_odd_name_is_in_no_command():
    load = ((100, {"hba": 90, "requeue": 900}),)
    (finding,) = found(RULE, lasting(traced=traced("a;reboot", load)), [disk("a;reboot", limits={"queue_depth": 64})])
    assert "echo 32 > /sys/block/DEVICE/device/queue_depth" in finding.steps[1].text


def test_without_on_demand_probes_requeues_are_not_separated():
    assert not found(RULE, lasting(histograms=timed("sda", ((400, {"queue": 20_000, "hba": 90}),))), [SDA])
