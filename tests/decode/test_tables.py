"""Wake-ups by thread, and the threads that ran instead. Other tables are tested with their script's maps."""

from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.tables import declared_rows, handlers, thread_label, wakeups
from latmon.manifest import ROLES, KeyPart, MapSpec
from latmon.model.frame import Thread
from latmon.model.histogram import TOP, Histogram
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.handlers import Handler
from latmon.model.measurements.softirqs import VECTORS
from latmon.model.measurements.wakeups import Wakeups

THREADS = {
    12: Thread(12, "ksoftirqd/0", "other", 120),
    40: Thread(40, "hog", "fifo", 49, kernel=False),
    41: Thread(41, "hog", "fifo", 49, kernel=False),
}
DELAY = MapSpec("w_delay", "wakeup", key=(KeyPart("thread", 8, 32, "integer"), KeyPart("bucket", 0, 8, "bucket")))
SUM = MapSpec("w_sum", "wakeup_sum", key=DELAY.key)
INSTEAD = MapSpec(
    "w_instead", "wakeup_instead", key=(KeyPart("thread", 24, 24, "integer"), KeyPart("other", 0, 24, "integer"))
)
RAN = MapSpec("w_ran", "wakeup_ran", key=INSTEAD.key)


def thread(pid):
    return THREADS.get(pid, Thread(pid, "", "", -1))


def test_a_threads_delays_and_who_ran_instead():
    gains = [
        (DELAY, {12 << 8 | 3: 5, 12 << 8 | 60: 2, 9 << 8 | 1: 1}),
        (SUM, {12 << 8: 1560, 9 << 8: 1}),
        (INSTEAD, {12 << 24 | 40: 1, 12 << 24 | 41: 2, 12 << 24: 3, 12 << 24 | 77: 1}),
        (RAN, {12 << 24 | 40: 700, 12 << 24 | 41: 500, 12 << 24: 300}),
    ]
    instead = {"hog (prio 49)": 3, "idle": 3, "pid 77": 1}
    ran_us = {"hog (prio 49)": 1200, "idle or not known": 300}
    assert list(wakeups(gains, thread).values()) == [
        Wakeups(Thread(9, "", "", -1), Histogram.of({1: 1}, 1)),
        Wakeups(THREADS[12], Histogram.of({3: 5, 60: 2}, 1560), instead, ran_us),
    ]


def test_a_thread_that_was_not_woken_has_no_row():
    assert wakeups([(INSTEAD, {12 << 24 | 40: 1}), (SUM, {12 << 8: 5}), (DELAY, {})], thread) == {}


def test_who_a_thread_is():
    assert thread_label(thread, 40) == "hog (prio 49)"
    assert thread_label(thread, 40, 98) == "hog (prio 98)"
    assert thread_label(thread, 77, 120) == "pid 77 (prio 120)"
    assert thread_label(thread, 77) == "pid 77"
    assert thread_label(thread, 0, 120) == ""


def test_the_vectors_are_numbered_as_in_the_kernel():
    assert (VECTORS.index("NET_RX"), VECTORS.index("BLOCK"), VECTORS.index("IRQ_POLL"), VECTORS[9]) == (3, 4, 5, "RCU")


def layout(role):
    """Every part 8 bits wide."""
    decoders = {"bucket": "bucket", "dev": "dev_t", "op": "op"}
    return tuple(KeyPart(name, 8 * n, 8, decoders.get(name, "integer")) for n, name in enumerate(ROLES[role]))


ANY = [MapSpec(role, role, key=layout(role)) for role in ROLES if role.startswith(("handler", "softirq", "wakeup"))]


@given(st.lists(st.tuples(st.sampled_from(ANY), st.dictionaries(st.integers(0, 2**24), st.integers(1, 2**62)))))
def test_no_keys_are_too_odd_and_every_run_is_counted(gains):
    counted = {role: sum(sum(c.values()) for s, c in gains if s.role == role) for role in ROLES}
    actual_handlers = handlers(gains, lambda number: Handler(number, "x"), {})
    assert sum(runs.run.count for runs in actual_handlers.values()) == counted["handler_run"]
    assert sum(sum(runs.returned.values()) for runs in actual_handlers.values()) == counted["handler_run"]
    rows = declared_rows(SOFTIRQS, [pair for pair in gains if pair[0].role in SOFTIRQS.roles], {}).rows
    assert sum(runs.delay.count for runs in rows.values()) == counted["softirq_delay"]
    assert sum(runs.run.count for runs in rows.values()) == counted["softirq_run"]
    assert sum(sum(runs.ran_in.values()) for runs in rows.values()) == counted["softirq_ran_in"]
    assert sum(row.delay.count for row in wakeups(gains, thread).values()) == counted["wakeup"]
    assert all(index <= max(TOP, 255) for runs in rows.values() for index, _ in runs.run.buckets)
