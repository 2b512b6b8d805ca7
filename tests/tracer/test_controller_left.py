"""Windows of two tracer processes between two frames are merged: counts are added, facts are the newest."""

from latmon.decode.framer import TracerInterval
from latmon.model.frame import Flow, Handler, HandlerRuns, Series, SoftirqCpu, SoftirqRuns, Thread, Traced, Wakeups
from latmon.model.histogram import Histogram
from latmon_backends.probe.tick_protocol import Losses, TracerWindow
from latmon_backends.tracer.controller import EMPTY_WINDOW, merged

HBA = Series("sda", "read", "hba")
DM = Flow("dm-0", "read")
IRQ = Handler(11, "ahci")
CPU = SoftirqCpu("BLOCK", 1)
WORKER = Thread(12, "kworker/0:1H", "", 100)


def window(us, one_in, begun_us, device="sda"):
    took = Histogram.record([us])
    interval = TracerInterval(
        Traced({HBA: took}, {HBA: {4: us}}, {"sda": {"timer": 1}}, {"sda": {"IPI": 2}}, 1, one_in, devices=(device,)),
        {IRQ: HandlerRuns(took, {"handled": 1}, 5)},
        {CPU: SoftirqRuns(took, took, {"hardirq": 1}, {"task": 1})},
        (Wakeups(WORKER, took, {"idle": 1}),),
        suppressed=2,
        undecoded=3,
        above={DM: 4},
        thresholds_us={f"t{us}": us},
    )
    return TracerWindow(interval, (f"record {us}",), Losses(1, 2, 3, 4), 1, begun_us)


def test_with_nothing_it_is_itself():
    one = window(10, 1, 5)
    assert merged(EMPTY_WINDOW, one) is one
    assert merged(one, EMPTY_WINDOW) is one


def test_counts_are_added():
    whole = merged(window(10, 1, 5), window(30, 16, 9, "sdb"))
    found, both = whole.interval, Histogram.record([10, 30])
    assert (whole.records, whole.losses, whole.ticks) == (("record 10", "record 30"), Losses(2, 4, 6, 8), 2)
    assert whole.begun_us == 5
    assert found.traced.histograms == {HBA: both}
    assert found.traced.by_total == {HBA: {4: 40}}
    assert (found.traced.unfollowed, found.traced.paths) == ({"sda": {"timer": 2}}, {"sda": {"IPI": 4}})
    assert found.handlers == {IRQ: HandlerRuns(both, {"handled": 2}, 10)}
    assert found.softirqs == {CPU: SoftirqRuns(both, both, {"hardirq": 2}, {"task": 2})}
    assert found.wakeups == (Wakeups(WORKER, both, {"idle": 2}),)
    assert (found.suppressed, found.undecoded, found.above) == (4, 6, {DM: 8})
    assert found.thresholds_us == {"t10": 10, "t30": 30}
    assert (found.traced.off, found.traced.rates) == (2, (1, 16))
    assert (found.traced.one_in, found.traced.devices) == (16, ("sdb",))


def test_until_a_new_tracer_reports_the_previous_list_is_kept():
    whole = merged(window(10, 4, 5), TracerWindow(losses=Losses(lost=1)))
    assert (whole.interval.traced.one_in, whole.interval.traced.devices) == (4, ("sda",))
    assert whole.losses.lost == 2
