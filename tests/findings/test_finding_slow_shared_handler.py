"""slow-shared-handler: a switch's handler before a drive's, and neighbours on a vector that do no harm."""

from dataclasses import replace

import pytest
from finding_cases import disk, found, hist, lasting, timed, traced

from latmon.model.measurements import HANDLERS
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon_backends.fleet.merge import HostFrame, merged_frame

RULE = "slow-shared-handler"
DRIVE = disk("nvme13n1", controller="PCI 0000:02:00.0")
STRANGER, MINE = Handler(109, "switchtec0"), Handler(109, "nvme13q1")


def shared(run_us=13, n=1000, *, none=None, before=None, device="nvme13n1", stranger_s="0000:b3:00.1", with_=()):
    none = n if none is None else none
    runs = HandlerRuns(
        hist({run_us: n}),
        returned={"none": none, "handled": n - none},
        before_us=0,
        device=stranger_s,
        shared_with=(MINE.name,),
    )
    mine = HandlerRuns(
        hist({2: n}),
        returned={"handled": n},
        before_us=run_us * n if before is None else before,
        device=device,
        shared_with=with_ or (STRANGER.name,),
    )
    return {STRANGER: runs, MINE: mine}


def evaluated(handlers, slow_irq=600, hba=63, devices=(DRIVE,)):
    load = ((990, {"hba": hba, "irq": 15}), (10, {"hba": hba, "irq": slow_irq}))
    frames = lasting(traced=traced("nvme13n1", load), tables={HANDLERS: handlers})
    return found(RULE, frames, devices)


def test_the_victim_is_named_with_the_stranger():
    (finding,) = evaluated(shared())
    assert (finding.severity, finding.device, finding.where.screen) == ("critical", "nvme13n1", "interrupts")
    assert finding.summary == (
        "nvme13n1: its interrupts wait for the handler switchtec0, which shares their vector and runs 13 us on "
        "average, up to 13 us, mostly not handled (IRQ_NONE); 90% of the time of I/Os above 80 us passes in interrupts"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert (facts["before_each"].value, facts["before_each"].of) == (13, 12_000)
    assert facts["not_its_own"].text == "100% of its runs were not handled (IRQ_NONE)"
    assert "modprobe -r switchtec" in finding.steps[0].text
    assert all(step.risk for step in finding.steps)
    assert finding.share == pytest.approx(1000 * 13 / (990 * 78 + 10 * 663), rel=0.1), "of the device's I/O time"


def test_on_a_host_of_a_fleet_the_module_is_the_handlers():
    load = ((990, {"hba": 63, "irq": 15}), (10, {"hba": 63, "irq": 600}))
    frames = lasting(traced=traced("nvme13n1", load), tables={HANDLERS: shared()}, devices=(DRIVE,))
    merged = [
        merged_frame(
            [HostFrame("db1", frame, 0)], seq=frame.seq, wall=frame.wall, mono_us=frame.mono_us, dt_us=frame.dt_us
        )[0]
        for frame in frames
    ]
    (finding,) = found(RULE, merged, (replace(DRIVE, name="db1:nvme13n1"),), backend="fleet")
    assert finding.device == "db1:nvme13n1"
    assert finding.steps[0].commands == ("modprobe -r switchtec",)


@pytest.mark.parametrize(
    ("hba", "severities"),
    [
        pytest.param(100, ["warning"], id="a tenth of the time"),
        pytest.param(220, ["notice"], id="5 percent"),
        pytest.param(260, [], id="below: a disk's own time is long"),
    ],
)
def test_by_the_share_of_the_time(hba, severities):
    assert [finding.severity for finding in evaluated(shared(), slow_irq=15, hba=hba)] == severities


@pytest.mark.parametrize(
    "handlers",
    [
        pytest.param(shared(run_us=1), id="quick"),
        pytest.param(shared(n=8), id="too few runs: 96"),
        pytest.param(shared(none=400), id="mostly its own device's"),
        pytest.param(shared(before=0), id="it runs behind the disk's"),
        pytest.param(shared(device="0000:00:1f.6"), id="no disk behind the other"),
        pytest.param(shared(stranger_s="0000:02:00.0"), id="the disk's own second handler"),
        pytest.param(shared(with_=("eth0",)), id="not known to share the vector"),
    ],
)
def test_handlers_that_do_no_harm(handlers):
    assert not evaluated(handlers)


def called(*callers):
    """The handlers of `shared` on irqs of their own, as behind VMD; `callers`: whose handlers call them."""
    (_, stranger), (_, mine) = shared().items()
    pair = zip((Handler(110, STRANGER.name), MINE), (stranger, mine), callers, strict=True)
    return {handler: replace(runs, caller=caller) for handler, runs, caller in pair}


def test_handlers_that_another_handler_calls_share_its_interrupt():
    (finding,) = evaluated(called(24, 24))
    assert (finding.severity, finding.device) == ("critical", "nvme13n1")
    assert "handler switchtec0, which irq 24 calls before theirs and runs 13 us on average" in finding.summary
    assert finding.facts[0].text == "irq 24 calls switchtec0 and nvme13q1 one after the other"
    assert "grep '^ *24:' /proc/interrupts" in finding.steps[-1].text


@pytest.mark.parametrize("callers", [(24, 25), (24, -1), (-1, -1)])
def test_handlers_of_other_irqs_with_other_callers_are_no_neighbours(callers):
    assert not evaluated(called(*callers))


def test_the_work_of_the_calling_handler_is_no_time_of_a_quick_neighbour():
    """Since the entry of the caller 50 us pass in each interrupt, of which the neighbour takes 3."""
    quick = {handler: replace(runs, caller=24) for handler, runs in shared(run_us=3, before=50_000).items()}
    own_irq = {
        (Handler(110, STRANGER.name) if handler == STRANGER else handler): runs for handler, runs in quick.items()
    }
    assert not evaluated(own_irq, slow_irq=15, hba=100)


def idle(ios, us=44, interrupts=12_000):
    """A minute in which so many I/Os are done and the shared vector fires all the time, mostly without an I/O."""
    return found(
        RULE,
        lasting(histograms=timed("nvme13n1", ((ios, {"hba": us}),)), tables={HANDLERS: shared(n=interrupts)}),
        [DRIVE],
    )


def test_an_idle_disk_is_no_victim():
    """Seen: a warning for 50 s, with 100% of the time of 3 reads of 44 us."""
    assert not [one.summary for one in idle(3)]


def test_only_interrupts_that_completed_an_io_count():
    """The counted runs are as many as the I/Os: 13 us of each of 96,000, whatever the vector did beside them."""
    (one,) = idle(8_000, us=60)
    facts = {fact.name: fact for fact in one.facts}
    assert facts["before_each"].value == pytest.approx(13)
    assert one.share == pytest.approx(13 / 60)
    assert not idle(8_000, us=261)


@pytest.mark.parametrize(
    ("ios", "us", "fires"),
    [
        pytest.param(8, 20, False, id="96 I/Os"),
        pytest.param(9, 100, False, id="1.4 ms lost by 108 I/Os"),
        pytest.param(64, 100, False, id="9.98 ms lost"),
        pytest.param(65, 100, True, id="10.1 ms lost"),
    ],
)
def test_the_least_that_is_a_finding(ios, us, fires):
    assert bool(idle(ios, us)) is fires


def test_a_disk_controller_s_handler_is_named_with_its_disks_and_stays_loaded():
    others = [disk(name, controller="PCI 0000:b3:00.1") for name in ("sdx", "sdy")]
    (finding,) = evaluated(shared(), devices=(DRIVE, *others))
    assert "wait for the handler switchtec0 (of sdx, sdy), which shares their vector" in finding.summary
    assert {fact.name: fact.value for fact in finding.facts}["handler_of"] == "sdx, sdy"
    assert not any("modprobe -r" in step.text for step in finding.steps)
    assert "a vector of its own" in finding.steps[0].text


def test_a_drive_with_two_shared_vectors_is_one_finding():
    handlers = shared(before=8_000)
    second = {Handler(110, one.name): runs for one, runs in shared().items()}
    for both in (handlers | second, second | handlers):
        (finding,) = evaluated(both, slow_irq=15)
        assert finding.facts[0].text.startswith("switchtec0 shares irq 110")


def test_no_runs_at_all_divide_nothing():
    found(
        RULE,
        lasting(traced=traced("nvme13n1", ((9, {"hba": 9}),)), tables={HANDLERS: shared(n=0)}),
        [DRIVE],
        {"runs": 0},
    )


def test_all_disks_behind_an_hba_are_its_victims():
    """A list of names may have been cut; the HBA's address gives the others."""
    disks = [disk(name, controller="0000:3b:00.0") for name in ("sda", "sdb")]
    load = ((1000, {"hba": 63, "irq": 15}),)
    parts = {**timed("sda", load), **timed("sdb", load)}
    for device in ("0000:3b:00.0", "sda and 1 more"):
        (finding,) = found(RULE, lasting(histograms=parts, tables={HANDLERS: shared(n=2000, device=device)}), disks)
        assert finding.summary.startswith("sda (and 1 more disks of its handler): its interrupts wait for")
        assert finding.share == pytest.approx(13 / 78)
        assert finding.also == ("sdb",)
