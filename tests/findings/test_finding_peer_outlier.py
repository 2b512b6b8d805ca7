"""peer-outlier: like drives with all the noise that drives have, and one of them that is sick."""

from random import Random

import pytest
from finding_cases import BEGIN_S, disk, done, found, frame, hist, lasting, shifted
from like_drives import NOISES, Host, Sick, watched

from latmon.analysis.peers import Measure, above, above_in, beyond, counts_of, octaves, slowest_of, tail_of
from latmon.model.frame import Device, DeviceReport, Outlier, Series
from latmon.model.histogram import Histogram

RULE = "peer-outlier"
NAMES = [f"sd{letter}" for letter in "abcdef"]


def drives(names=NAMES, **changed):
    return [disk(name, **({"model": "SSD 1920G"} | changed)) for name in names]


def loads(usual, odd=None, op="read", names=NAMES):
    """us -> count for all, and for the last of them."""
    return {Series(name, op, "total"): hist(odd if odd and name == names[-1] else usual) for name in names}


def evaluated(usual, odd, blocks=12, devices=None, **more):
    return found(RULE, lasting(blocks, histograms=loads(usual, odd, **more)), devices or drives())


USUAL = {100: 950, 200: 48, 300: 2}


# ---- one that is slower altogether, and what is like it


def test_one_of_six_with_a_far_slower_median_is_found():
    (finding,) = evaluated(USUAL, {2_000: 998, 4_000: 2})
    assert (finding.severity, finding.device) == ("warning", "sdf")
    assert finding.summary == "sdf: half of its reads take 1.92 ms or longer, 20 times what its 5 peers' take (104 us)"
    assert finding.share > 0.9
    assert (finding.where.screen, finding.where.device, finding.where.op) == ("overview", "sdf", "read")


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ({100: 990, 9_000: 10}, "the means differ less: 186 us against 100 us"),
        ({100: 450, 500: 450, 100_000: 100}, "the means: 10.5 ms against 100 us"),
    ],
)
def test_the_means_differ_less_only_if_they_do(odd, text):
    (finding,) = evaluated({100: 1000}, odd)
    assert next(fact.text for fact in finding.facts if fact.name == "mean_us") == text


@pytest.mark.parametrize(
    ("ios", "slow", "text"),
    [
        pytest.param(600, 6, "one read in a hundred takes", id="6 of 600 are 1 %"),
        pytest.param(600, 5, "one read in 200 takes", id="3 of 600: the third slowest, not 0.1 %"),
        pytest.param(1140, 11, "one read in 380 takes", id="3 of 1,140"),
        pytest.param(3600, 12, "one read in 900 takes", id="4 of 3,600: 0.1 % rounded up"),
        pytest.param(12_000, 12, "one read in a thousand takes", id="12 of 12,000"),
        pytest.param(120, 12, "one read in ten takes", id="12 of 120"),
    ],
)
def test_the_share_that_is_named_is_the_one_that_was_compared(ios, slow, text):
    frames = [
        frame(
            BEGIN_S + 5 * n,
            histograms=loads({100: ios // 12}, {100: ios // 12 - 1, 9_000: 1} if n < slow else None),
        )
        for n in range(12)
    ]
    (finding,) = found(RULE, frames, drives())
    assert finding.summary.startswith(f"sdf: {text} 8.19 ms or longer")


@pytest.mark.parametrize(("us", "n"), [(370, 0), (480, 1)])
def test_two_doublings_are_the_least(us, n):
    """Buckets are compared, by where they end: 104 us and 4 times as much."""
    assert len(evaluated({100: 1000}, {us: 1000})) == n


@pytest.mark.parametrize(("blocks", "n"), [(4, 0), (5, 1)])
def test_five_blocks_of_six_drives_are_no_chance(blocks, n):
    assert len(evaluated(USUAL, {2_000: 1000}, blocks)) == n


def test_one_bad_moment_is_no_sick_device():
    frames = lasting(12, histograms=loads(USUAL))
    bad = lasting(2, histograms=loads(USUAL, {50_000: 200, 100: 800}))
    assert found(RULE, [*frames[:5], *shifted(bad, 25), *frames[7:]], drives()) == []


def test_a_moment_that_is_slow_for_all_peers_is_no_finding():
    slow = {us * 50: n for us, n in USUAL.items()}
    frames = [frame(BEGIN_S + 5 * n, histograms=loads(slow if n % 3 == 0 else USUAL)) for n in range(12)]
    assert found(RULE, frames, drives()) == []


@pytest.mark.parametrize(
    "devices",
    [
        [*drives(NAMES[:3]), *drives(NAMES[3:], driver="nvme")],
        [*drives(NAMES[:3]), *drives(NAMES[3:], model="HDD 8T")],
        [*drives(NAMES[:3]), *drives(NAMES[3:], kind="loop")],
    ],
    ids=["driver", "model", "kind"],
)
def test_only_like_devices_are_compared(devices):
    assert evaluated(USUAL, {2_000: 1000}, devices=devices) == []


@pytest.mark.parametrize(("n", "found_"), [(3, 0), (4, 1)])
def test_three_peers_are_needed(n, found_):
    assert len(evaluated(USUAL, {2_000: 1000}, names=NAMES[:n], devices=drives(NAMES[:n]))) == found_


def test_ops_are_compared_apart():
    """A drive that only writes isn't the slow one of the readers."""
    reported = {**loads(USUAL, names=NAMES[:5]), Series("sdf", "write", "total"): hist({5_000: 1000})}
    assert found(RULE, lasting(histograms=reported), drives()) == []
    flushes = loads({100: 100}, {9_000: 100}, op="flush")
    assert found(RULE, lasting(histograms={**loads(USUAL), **flushes}), drives()) == []


@pytest.mark.parametrize(("ios", "n"), [(99, 0), (100, 1)])
def test_a_hundred_ios_are_needed(ios, n):
    frames = lasting(9, histograms=loads({100: 10}, {2_000: 10}))
    frames.append(frame(BEGIN_S + 45, histograms=loads({100: ios - 90}, {2_000: ios - 90})))
    assert len(found(RULE, frames, drives())) == n


# ---- another load


def test_larger_ios_are_another_load():
    def case(size):
        flows = {flow: one for name in NAMES[:5] for flow, one in done(name, 1000).items()}
        return found(
            RULE,
            lasting(histograms=loads(USUAL, {2_000: 1000}), seen={**flows, **done("sdf", 1000, size=size)}),
            drives(),
        )

    assert len(case(4096)) == 1
    assert len(case(4700)) == 1
    assert case(4720) == []
    assert case(3500) == []


def test_a_hot_device_has_more_to_do():
    assert evaluated({100: 100}, {2_000: 151}) == []
    assert evaluated({100: 100}, {2_000: 150})[0].severity == "warning"


@pytest.mark.parametrize(("ios", "n"), [(24, 0), (30, 1)])
def test_a_device_with_hardly_anything_in_flight_has_another_load(ios, n):
    """Its 2 ms are 20 times as long as the peers' 100 us: with as many in flight it would do a twentieth."""
    assert len(evaluated({100: 1000}, {2_000: ios})) == n


def test_a_closed_loop_that_is_slow_does_fewer_and_is_found():
    assert len(evaluated({100: 1000}, {2_000: 50})) == 1


def test_a_thousand_drives_are_sorted_once():
    tails = {f"sd{n}": 7.0 + n % 7 / 10 for n in range(1000)} | {"odd": 12.0, "none": None}
    odd = beyond(tails, Measure())
    assert list(odd) == ["odd"]
    assert (odd["odd"].peers, odd["odd"].middle) == (1000, pytest.approx(7.3))
    assert odd["odd"].bar == pytest.approx(7.3 + 2)
    assert beyond({"a": 1.0}, Measure(peers=0)) == {}


# ---- evidence


def test_what_a_stripe_waits_for_is_reported():
    reported = {fact.name: fact.value for fact in evaluated(USUAL, {2_000: 1000})[0].facts}
    assert reported["stripe_median_us"] == 2048
    assert reported["stripe_median_without_us"] == 104
    assert reported["stripe_p99_without_us"] == 208
    assert reported["blocks"] == 12
    equal = {fact.name for fact in evaluated(USUAL, {100: 950, 200: 10, 2_000: 40})[0].facts}
    assert "stripe_median_us" not in equal
    assert "stripe_p99_us" in equal


def test_the_slowest_of_n_is_the_product_of_distributions():
    """Two dice: the greater is at most 3 in 9 of 36 throws."""
    counts = counts_of([Histogram.record(range(1, 7))])
    both = slowest_of([counts, counts])
    assert sum(n for us, n in both.items() if us <= 3) == pytest.approx(1e6 * 9 / 36, abs=1)
    assert tail_of(both, 1) == tail_of(counts, 1)
    assert slowest_of([counts, {}]) == slowest_of([]) == {}


def test_what_is_built_on_it_is_named():
    md = Device("md0", 9, 0, "md", members=tuple(NAMES), timed=False)
    (finding,) = evaluated(USUAL, {2_000: 1000}, devices=[*drives(), md])
    assert any(fact.text.startswith("md0 is built on it and on 5 of its peers") for fact in finding.facts)


# ---- the noise that drives have


@pytest.mark.parametrize("name", ["lognormal", "Pareto 1.2"])
def test_equal_drives_are_left_alone(name):
    assert watched(Host(NOISES[name], 8).seconds(Random(1), 30), RULE)[0] == []


def test_a_hundredth_of_slow_ios_is_found_soon():
    (first, *_), _ = watched(Host(NOISES["Pareto 2"], 12, odd="nvme7n1").seconds(Random(2), 25), RULE)
    assert first[0] <= 25
    assert first[1:] == (RULE, "nvme7n1")


@pytest.mark.parametrize("seed", range(4))
def test_a_hundredth_of_slow_ios_is_found_soon_at_50_ios_per_second(seed):
    """Half a slow I/O per second: of 20 seeds the slowest takes 35 s, half 25 s."""
    host = Host(NOISES["lognormal"], 8, ios=50, odd="nvme1n1")
    (first, *_), _ = watched(host.seconds(Random(seed), 35), RULE)
    assert first[1:] == (RULE, "nvme1n1")


LATER = {f"nvme{i}n1": i % 6 * 3 for i in range(8)}


@pytest.mark.parametrize(("odd", "found_"), [("", []), ("nvme3n1", ["nvme3n1"])])
def test_averages_that_differ_by_15_us_are_no_tail(odd, found_):
    host = Host(NOISES["narrow"], 8, odd=odd, later=LATER, sick=Sick(0.002, 30))
    assert [device for _, _, device in watched(host.seconds(Random(3), 30), RULE)[0]] == found_


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NOISES))
def test_a_thousand_intervals_of_24_equal_drives_give_no_finding(name):
    assert watched(Host(NOISES[name]).seconds(Random(name), 1000), RULE)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NOISES if name != "Pareto 1.2"])
@pytest.mark.parametrize("seed", range(5))
def test_one_drive_with_a_hundredth_at_twenty_times_is_found_in_thirty_intervals(name, seed):
    """Under Pareto 1.2 that is but a third more of what all have."""
    (first, *_), _ = watched(Host(NOISES[name], odd="nvme7n1").seconds(Random(seed), 30), RULE)
    assert first[1:] == (RULE, "nvme7n1")


@pytest.mark.parametrize("bits", [0, 3])
@pytest.mark.parametrize("bar", [-1.0, 0.0, octaves(40), octaves(40) + 0.01, octaves(239), 99.0])
def test_ios_above_a_bar_are_those_whose_bucket_ends_above_it(bits, bar):
    histogram = Histogram.of({0: 1, 39: 2, 40: 4, 41: 8, 239: 16}).coarsen(bits)
    counts = counts_of((histogram,))
    assert (
        above_in(histogram, bar) == above(counts, bar) == sum(n for index, n in counts.items() if octaves(index) > bar)
    )


@pytest.mark.parametrize(("hba_us", "is_advised"), [(95_000, True), (5_000, False)])
def test_hardware_is_compared_only_where_the_drive_takes_the_time(hba_us, is_advised):
    slow = Outlier(0.0, 0, "sdf", "read", 100_000, {"queue": 100_000 - hba_us, "hba": hba_us})
    histograms = loads(USUAL, {2_000: 900, 100_000: 100})
    (finding,) = found(RULE, lasting(12, histograms=histograms, outliers=(slow,)), drives())
    text = " | ".join(step.text for step in finding.steps)
    assert ("firmware" in text, "peer's slot" in text) == (is_advised, is_advised)
    assert "interrupt vector" in text


def test_a_drive_is_found_in_its_rack():
    at = "enclosure/2:0:8:0/Slot 05"
    reports = (
        DeviceReport("slot", "5 (Slot 05) of enclosure 2:0:8:0", at),
        DeviceReport("by_path", "pci-0000:00:07.0-sas-phy5-lun-0", "disk/by-path"),
    )
    devices = [*drives()[:-1], disk("sdf", model="SSD 1920G", reports=reports)]
    (finding,) = evaluated({100: 1000}, {2_000: 900, 100_000: 100}, devices=devices)
    (step,) = [step for step in finding.steps if "turn its light on" in step.what]
    place = "slot 5 (Slot 05) of enclosure 2:0:8:0, by-path/pci-0000:00:07.0-sas-phy5-lun-0"
    assert f"find the drive ({place})" in step.what
    assert step.commands == ("ledctl locate=/dev/sdf", f"echo 1 > '/sys/class/{at}/locate'")
    cut = (reports[0]._replace(source="enclosure/2:0:8:0/a long na…"),)
    devices = [*drives()[:-1], disk("sdf", model="SSD 1920G", reports=cut)]
    (finding,) = evaluated({100: 1000}, {2_000: 900, 100_000: 100}, devices=devices)
    (step,) = [step for step in finding.steps if "turn its light on" in step.what]
    assert step.commands == ("ledctl locate=/dev/sdf",)
    (unknown,) = evaluated({100: 1000}, {2_000: 900, 100_000: 100})
    assert not any("light" in step.what for step in unknown.steps)
