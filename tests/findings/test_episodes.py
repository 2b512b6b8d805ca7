"""A finding that is not found any more: refuted, not refuted because nothing measured it, or one that comes again."""

import pytest
from finding_cases import BEGIN_S, frame, traced

from latmon.findings import engine
from latmon.findings.engine import RuleEngine
from latmon.findings.episodes import REFUTED_AFTER_US, STAYS_US, UNREFUTED_US, summarise_episodes
from latmon.findings.rule import WARNING, Finding, Where
from latmon.model.frame import FILES, Missing, Origin, Series, Traced
from latmon.support.units import ordinal

S = 1_000_000
ORIGIN = Origin("demo", "host", "6.1", "0", interval_us=S, start_mono_us=BEGIN_S * S)
TRACED_RULE, LATENCY_RULE, FILES_RULE = "starved-io", "peer-outlier", "fsync-bound"


class Host:
    """A rule engine whose frames of 5 s are a block each; rules report what `found` has."""

    def __init__(self, monkeypatch):
        self.found = []
        self.engine = RuleEngine(ORIGIN)
        self.at_s = BEGIN_S
        evaluated = lambda *_: iter([tuple(self.found)])  # noqa: E731
        monkeypatch.setattr(engine, "evaluate_rules", evaluated)

    def run(self, blocks, *names, is_traced=True, absent=(), devices=(), block_s=5):
        """Measure some blocks, in which rules report findings on these devices, or rules with devices."""
        self.found = [named(*name) if isinstance(name, tuple) else named(name) for name in names]
        for _ in range(blocks):
            self.at_s += block_s
            measured = traced("sda", ((3, {"hba": 90}),))
            left_out = tuple(Missing(name, "left out") for name in absent)
            measured = Traced(measured.histograms, measured.by_total, one_in=1, devices=devices, absent=left_out)
            self.engine.take(frame(self.at_s, dt_us=block_s * S, traced=measured if is_traced else Traced()))

    def pause(self, seconds):
        self.at_s += seconds

    @property
    def kept(self):
        return [(episode.worst.id, episode.end_us // S - BEGIN_S) for episode in self.engine.kept]

    @property
    def spans(self):
        return [(episode.begin_us // S - BEGIN_S, episode.end_us // S - BEGIN_S) for episode in self.engine.episodes]


def named(rule, device="sda", **changed):
    return Finding(rule, WARNING, device, "s", (), Where("overview"), (), "r", **changed)


@pytest.fixture
def host(monkeypatch):
    return Host(monkeypatch)


def test_a_finding_whose_inputs_are_measured_is_refuted_by_the_next_block(host):
    host.run(4, TRACED_RULE)
    host.run(1)
    assert host.engine.lasting == ()
    assert host.spans == [(5, 20)]
    host.run(1, TRACED_RULE)
    assert host.spans == [(5, 20), (30, 30)]


def test_a_finding_of_a_single_block_is_kept_for_half_a_minute(host):
    host.run(1, LATENCY_RULE)
    for _ in range(STAYS_US // S // 5 - 1):
        host.run(1)
        assert (host.kept, host.engine.lasting) == ([(LATENCY_RULE, 5)], ())
    host.run(1)
    assert host.kept == []


def test_a_finding_that_is_found_again_is_not_kept_beside_itself(host):
    host.run(1, LATENCY_RULE)
    host.run(1)
    host.run(1, LATENCY_RULE)
    assert (host.kept, len(host.engine.lasting)) == ([], 1)


def test_a_finding_stays_while_its_inputs_are_not_measured(host):
    host.run(4, TRACED_RULE, LATENCY_RULE)
    host.run(3, is_traced=False)
    assert host.kept == [(TRACED_RULE, 20)]
    assert "starved-io" in engine.not_evaluated(host.engine.facts)["traced"], "it is reported as not evaluated, too"


def test_it_goes_on_where_it_is_found_again(host):
    host.run(4, TRACED_RULE)
    host.run(2, is_traced=False)
    host.run(2, TRACED_RULE)
    assert host.kept == []
    assert host.spans == [(5, 40)]
    (one,) = host.engine.lasting
    assert (one.repeats, one.found_us) == (0, 30 * S)


def test_it_is_refuted_once_its_inputs_were_measured_for_long_enough(host):
    host.run(4, TRACED_RULE)
    host.run(6, is_traced=False)
    host.run(REFUTED_AFTER_US // S // 5 - 1)
    assert host.kept == [(TRACED_RULE, 20)], "rules ask for what lasts some blocks"
    host.run(1)
    assert host.kept == []
    assert host.spans == [(5, 20)]


def test_what_is_traced_of_another_device_refutes_nothing(host):
    host.run(4, TRACED_RULE)
    host.run(5, devices=("sdb",))
    assert host.kept == [(TRACED_RULE, 20)]
    host.run(3, devices=("sda", "sdb"))
    assert host.kept == []


def test_a_tracer_without_operations_on_files_refutes_no_finding_about_them(host):
    host.run(4, FILES_RULE)
    host.run(5, absent=(FILES,))
    assert host.kept == [(FILES_RULE, 20)]
    host.run(3)
    assert host.kept == []


def test_it_is_forgotten_after_ten_minutes(host):
    host.run(4, TRACED_RULE)
    host.run(UNREFUTED_US // S // 5, is_traced=False)
    assert host.kept == [(TRACED_RULE, 20)]
    host.run(1, is_traced=False)
    assert host.kept == []


def test_a_gap_refutes_nothing_and_what_is_found_after_it_is_another_episode(host):
    host.run(4, LATENCY_RULE, TRACED_RULE)
    host.pause(3)
    host.run(2, LATENCY_RULE)
    assert host.kept == [(TRACED_RULE, 20)]
    assert [one.repeats for one in host.engine.lasting] == [0], "nothing is known of the time between them"
    assert (5, 20) in host.spans
    host.run(3)
    assert host.kept == [(LATENCY_RULE, 33), (TRACED_RULE, 20)]
    host.run(3)
    assert host.kept == []


def test_an_unrefuted_finding_does_not_go_on_across_a_gap(host):
    host.run(1, TRACED_RULE)
    host.run(1, is_traced=False)
    host.pause(400)
    host.run(1, TRACED_RULE)
    assert host.spans == [(5, 5), (415, 415)]
    assert [episode.repeats for episode in host.engine.lasting] == [0]


def test_another_boot_ends_all(host):
    host.run(4, TRACED_RULE)
    host.at_s -= 100
    host.run(1)
    assert host.kept == []


def test_a_finding_that_comes_again_is_counted_and_kept(host):
    host.run(2, LATENCY_RULE)
    host.run(3)
    assert host.kept == [(LATENCY_RULE, 10)], "the first one has simply ended"
    host.run(2, LATENCY_RULE)
    (one,) = host.engine.lasting
    assert (one.repeats, one.repeated_us) == (1, 35 * S)
    host.run(3)
    assert host.kept == [(LATENCY_RULE, 35)]
    host.run(2, LATENCY_RULE)
    (one,) = host.engine.lasting
    assert (one.repeats, one.repeated_us, host.kept) == (2, 60 * S, [])
    host.run(11)
    assert host.kept == [(LATENCY_RULE, 60)]
    host.run(2)
    assert host.kept == [], "it does not come any more"
    (summary,) = summarise_episodes(host.engine.episodes)
    assert (summary.episodes, summary.found_us, summary.of_s) == (3, 30 * S, 60)


def test_the_time_of_its_episodes_begins_with_its_first_block(host):
    """The first one has 20 s, because its frame has: it was found for 30 s of 65 s."""
    host.run(1, LATENCY_RULE, block_s=20)
    host.run(3)
    host.run(1, LATENCY_RULE)
    host.run(4)
    host.run(1, LATENCY_RULE)
    (summary,) = summarise_episodes(host.engine.episodes)
    assert (summary.episodes, summary.found_us, summary.of_s) == (3, 30 * S, 65)


def test_one_that_comes_after_a_long_time_is_no_repetition(host):
    host.run(2, LATENCY_RULE)
    host.run(61)
    host.run(2, LATENCY_RULE)
    assert [one.repeats for one in host.engine.lasting] == [0]


def test_the_limit_of_another_state_is_no_repetition(host):
    host.found = []
    for limit in ("10", "20"):
        host.run(0)
        host.found = [named(LATENCY_RULE, state=("cgroup", limit))]
        for _ in range(2):
            host.at_s += 5
            host.engine.take(frame(host.at_s))
    assert [one.repeats for one in host.engine.lasting] == [0]
    assert len(host.spans) == 2


def test_facts_keep_the_sums_of_their_window(host):
    """The running sums move on with the next block."""
    host.run(3)
    facts = host.engine.facts
    host.run(2)
    assert facts.traced.histograms[Series("sda", "read", "hba")].count == 9


def test_the_state_with_the_longest_time_is_reported(host):
    """Of a capture the longest is the headline, also where another minute lost more of the time."""
    for peak_us, share in ((1_240_000, 0.9), (1_410_000, 0.4), (900_000, 0.5)):
        host.found = [named(TRACED_RULE, peak_us=peak_us, share=share)]
        host.at_s += 5
        host.engine.take(frame(host.at_s, dt_us=5 * S, traced=traced("sda", ((3, {"hba": 90}),))))
    (summary,) = summarise_episodes(host.engine.episodes)
    assert (summary.finding.peak_us, summary.finding.share) == (1_410_000, 0.4)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (22, "22nd"), (113, "113th")],
)
def test_ordinals(number, text):
    assert ordinal(number) == text
