"""When the tracer is wanted, and for which devices."""

from latmon_backends.tracer.demand import LOOKED_S, Demand, Suspect, Want

SDA = Suspect("sda", "I/Os above 20 ms")


def test_auto_wants_nothing_by_itself():
    assert Demand("auto").wanted((), 0.0) is None


def test_a_suspect_is_wanted_and_why():
    assert Demand("auto").wanted((SDA, Suspect("sdb", SDA.why)), 0.0) == Want(("sda", "sdb"), SDA.why, files=True)


def test_who_looks_is_forgotten_a_minute_after_the_last_look():
    demand = Demand("auto")
    demand.request_tracing(("sdb",), 0.0)
    demand.request_tracing(("sdb",), 30.0)
    assert demand.wanted((), 29 + LOOKED_S) == Want(("sdb",), "while this screen is open")
    assert demand.wanted((), 30 + LOOKED_S) is None


def test_who_looks_and_suspects_are_wanted_together():
    demand = Demand("auto")
    demand.request_tracing(("sdz",), 0.0)
    assert demand.wanted((SDA,), 0.0) == Want(("sda", "sdz"), SDA.why, files=True)


def test_operations_on_files_are_wanted_while_a_screen_shows_them_or_a_device_is_suspicious():
    demand = Demand("auto")
    assert demand.wanted((SDA,), 0.0) == Want(("sda",), SDA.why, files=True)
    demand.request_tracing(("sdb",), 0.0, files=True)
    demand.request_tracing(("sdb",), 30.0)
    assert demand.wanted((), LOOKED_S - 1).files
    assert not demand.wanted((), LOOKED_S).files
    demand.request_tracing((), LOOKED_S, files=True)
    assert demand.wanted((SDA,), LOOKED_S) == Want((), "while this screen is open", files=True)


def test_a_few_reasons_are_named():
    suspects = tuple(Suspect(f"sd{n}", f"I/Os above {n} ms") for n in range(6))
    want = Demand("auto").wanted(suspects, 0.0)
    assert want.devices == tuple(suspect.device for suspect in suspects)
    assert want.why == "I/Os above 0 ms (sd0); I/Os above 1 ms (sd1); I/Os above 2 ms (sd2)"


def test_looking_at_all_devices():
    demand = Demand("auto")
    demand.request_tracing((), 0.0)
    assert demand.wanted((), 1.0) == Want((), "while this screen is open")
    assert demand.wanted((SDA,), 1.0) == Want((), "while this screen is open", files=True)
    assert demand.wanted((SDA,), LOOKED_S) == Want(("sda",), SDA.why, files=True)


def test_basic_is_never_and_all_is_always():
    demand = Demand("basic")
    demand.request_tracing(("sda",), 0.0)
    assert demand.wanted((SDA,), 0.0) is None
    demand.set_mode("all")
    assert demand.wanted((), 0.0) == Want((), "--stages all", forced=True, files=True)
    demand.set_mode("auto")
    assert demand.wanted((), 0.0) is None
