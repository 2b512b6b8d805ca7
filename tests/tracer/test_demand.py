"""When the tracer is wanted, and for which devices."""

import pytest

from latmon_backends.tracer.demand import LOOKED_S, Demand, Suspect, Want

SDA = Suspect("sda", "I/Os above 20 ms")


def test_auto_wants_nothing_by_itself():
    assert Demand("auto").wanted((), 0.0) is None


def test_a_suspect_is_wanted_and_why():
    assert Demand("auto").wanted((SDA, Suspect("sdb", SDA.why)), 0.0) == Want(("sda", "sdb"), "I/Os above 20 ms")


def test_who_looks_is_forgotten_a_minute_after_the_last_look():
    demand = Demand("auto")
    demand.request_tracing(("sdb",), 0.0)
    demand.request_tracing(("sdb",), 30.0)
    assert demand.wanted((), 29 + LOOKED_S) == Want(("sdb",), "while this screen is open")
    assert demand.wanted((), 30 + LOOKED_S) is None


def test_who_looks_comes_before_suspects_and_there_are_four_at_most():
    demand = Demand("auto")
    for n in range(6):
        demand.request_tracing((f"sd{n}",), float(n))
    want = demand.wanted((SDA,), 6.0)
    assert want.devices == ("sd2", "sd3", "sd4", "sd5")
    assert want.left == ("sd1", "sd0", "sda")
    demand = Demand("auto")
    demand.request_tracing(("sdz",), 0.0)
    assert demand.wanted((SDA,), 0.0) == Want(("sda", "sdz"), SDA.why)


def test_of_too_many_suspects_those_that_are_traced_stay():
    suspects = tuple(Suspect(f"sd{n}", "I/Os above 20 ms") for n in range(6))
    demand = Demand("auto")
    assert demand.wanted(suspects, 0.0).devices == ("sd0", "sd1", "sd2", "sd3")
    want = demand.wanted(suspects, 0.0, traced=("sd1", "sd3", "sd4", "sd5"))
    assert want.devices == ("sd1", "sd3", "sd4", "sd5")
    assert want.left == ("sd0", "sd2")


def test_who_is_clearly_worse_displaces_who_is_traced():
    traced = tuple(Suspect(f"sd{n}", SDA.why, 30.0 + n) for n in range(4))
    demand = Demand("auto")

    def want(busy_us):
        return demand.wanted((Suspect("sdz", SDA.why, busy_us), *traced), 0.0, tuple(one.device for one in traced))

    assert want(60.0).left == ("sdz",)
    assert want(200.0).left == ("sdz",)
    assert want(900.0).left == ("sd3",)
    assert want(900.0).devices == ("sd0", "sd1", "sd2", "sdz")
    demand.request_tracing(("sdy",), 0.0)
    assert want(9_000.0).devices == ("sd0", "sd1", "sdy", "sdz")


def test_suspects_are_traced_in_the_order_of_the_screen():
    small = tuple(Suspect(f"loop{n}", SDA.why, 900.0, 0.3) for n in range(5))
    some = (*small, Suspect("sda", SDA.why, 10.0, 0.002), Suspect("vda", SDA.why, 50.0, 0.5))
    some += (Suspect("sdz", SDA.why, 1.0, 0.02, 7.0), Suspect("sdy", SDA.why, 1.0, 0.02))
    want = Demand("auto").wanted(some, 0.0)
    assert want.devices == ("loop0", "sdy", "sdz", "vda")
    assert want.left == ("loop1", "loop2", "loop3", "loop4", "sda")


def test_looking_at_all_devices():
    demand = Demand("auto")
    demand.request_tracing((), 0.0)
    assert demand.wanted((SDA,), 1.0) == Want((), "while this screen is open")
    assert demand.wanted((SDA,), LOOKED_S) == Want(("sda",), SDA.why)


def test_basic_is_never_and_all_is_always():
    demand = Demand("basic")
    demand.request_tracing(("sda",), 0.0)
    assert demand.wanted((SDA,), 0.0) is None
    demand.set_mode("all")
    assert demand.wanted((), 0.0) == Want((), "--stages all", forced=True)
    demand.set_mode("auto")
    assert demand.wanted((), 0.0) is None


@pytest.mark.parametrize(
    ("runs", "wanted", "covers"),
    [
        (("sda", "sdb"), ("sda",), True),
        (("sda",), ("sda", "sdb"), False),
        ((), (), True),
        (("sda",), (), False),
        ((), ("sda",), True),
    ],
    ids=["fewer", "more", "all", "from some to all", "from all to some"],
)
def test_what_runs_will_do(runs, wanted, covers):
    assert Want(runs).covers(Want(wanted)) is covers


def test_a_forced_probe_is_not_an_unforced_one():
    assert not Want(forced=False).covers(Want(forced=True))
