"""queue-depth-misconfigured: settings that are off, whether that is felt, and ordinary ones."""

import re

import pytest
from finding_cases import depths, disk, done, found, frame, hist, lasting

from latmon.findings.engine import RuleEngine, unexplained
from latmon.findings.rule import Settings
from latmon.model.frame import Origin, Series, Traced

RULE = "queue-depth-misconfigured"
LOW = {"queue_depth": 3, "cmd_per_lun": 7}


def used(queued_ms=0, full_ms=0, count=10, depth=3, name="sda"):
    reported = depths({depth: full_ms, 1: 5000 - full_ms}, {0: 5000 - queued_ms, 5: queued_ms})
    return {"depths": {name: reported}, "kernel": done(name, count)}


def test_a_device_that_is_used_and_set_low_is_a_notice():
    (finding,) = found(RULE, lasting(**used()), [disk(limits=LOW)])
    assert (finding.severity, finding.device, finding.where.screen, finding.share) == (
        "notice",
        "sda",
        "outstanding",
        0,
    )
    assert finding.summary == "sda: queue_depth of 3 is below the 7 that its host begins with (cmd_per_lun)"
    assert "/sys/block/sda/device/queue_depth" in finding.steps[0].text


@pytest.mark.parametrize(
    ("queued_ms", "full_ms", "severity"),
    [
        pytest.param(550, 550, "warning", id="both"),
        pytest.param(450, 5000, "notice", id="hardly anything waits"),
        pytest.param(5000, 450, "notice", id="what waits doesn't wait for the bound"),
    ],
)
def test_it_is_a_warning_where_it_is_felt(queued_ms, full_ms, severity):
    (finding,) = found(RULE, lasting(**used(queued_ms, full_ms)), [disk(limits=LOW)])
    assert finding.severity == severity
    assert ("I/Os wait for it" in finding.summary) is (severity == "warning")


def test_what_the_kernel_does_not_count_is_no_zero():
    frames = lasting(depths={"sda": depths({3: 5000})}, kernel=done("sda", 10))
    (finding,) = found(RULE, frames, [disk(limits=LOW)])
    assert {fact.name for fact in finding.facts} == {"queue_depth", "full"}


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"queue_depth": 64, "cmd_per_lun": 7}, id="an ordinary disk"),
        pytest.param({"queue_depth": 32, "scheduler": "mq-deadline"}, id="a scheduler is another rule's"),
        pytest.param({"nr_tags": 128, "nr_requests": 128, "scheduler": "none"}, id="virtio, loop"),
        pytest.param({"iostats": 0, "rq_affinity": 0}, id="not about depths"),
        pytest.param({}, id="nothing is known"),
    ],
)
def test_an_ordinary_device_is_none(limits):
    assert not found(RULE, lasting(**used(5000, 5000, depth=64)), [disk(limits=limits)])


def test_a_device_without_i_o_is_none():
    assert not found(RULE, lasting(**used(count=0)), [disk(limits=LOW)])
    assert not found(RULE, lasting(), [disk(limits=LOW)])


def test_t5_a_throttle_below_its_minimum():
    limits = {"un_throttle": 3, "un_min_throttle": 8, "un_f_opt_queueing": 1}
    (finding,) = found(RULE, lasting(**used()), [disk(limits=limits)])
    assert finding.summary == (
        "sda: un_throttle of 3 is below its own minimum of 8 (un_min_throttle); one more setting is wrong"
    )
    assert [fact.name for fact in finding.facts][:2] == ["un_throttle", "un_f_opt_queueing"]


@pytest.mark.parametrize(("value", "fires"), [("20", True), ("256", False)])
def test_a_global_throttle_of_solaris(value, fires):
    settings = {"module sd": {"/etc/system sd_max_throttle": value}}
    limits = {"un_throttle": int(value), "un_saved_throttle": int(value), "un_min_throttle": 8}
    findings = found(RULE, lasting(**used()), [disk(limits=limits)], settings=settings, kernel="SunOS 5.11")
    assert [finding.summary for finding in findings] == [
        "sda: sd_max_throttle of 20 in /etc/system applies to every disk of the driver: it penalises all"
    ][:fires]
    assert not fires or "throttle-max:32" in findings[0].steps[1].text


@pytest.mark.parametrize(("n", "findings"), [(3, 3), (4, 1)])
def test_what_many_have_in_common_is_one_finding(n, findings):
    names = [f"sd{letter}" for letter in "abcdef"[:n]]
    values = {
        "depths": {name: depths({1: 5000}) for name in names},
        "kernel": {flow: one for name in names for flow, one in done(name, 9).items()},
    }
    given_findings = found(RULE, lasting(**values), [disk(name, LOW) for name in names])
    assert len(given_findings) == findings
    assert given_findings[0].device == ("" if findings == 1 else "sda")
    assert given_findings[0].summary.startswith(
        "sda, sdb and 2 more: queue_depth" if findings == 1 else "sda: queue_depth"
    )


def test_a_host_that_its_devices_share():
    limits = {"queue_depth": 32, "can_queue": (16, "host0/can_queue")}
    (finding,) = found(RULE, lasting(**used()), [disk("sda", limits), disk("sdb", limits)])
    assert finding.summary == (
        "sda: can_queue is short: 2 devices share 16, and the sum of their depths is 64: a busy one takes from the "
        "others"
    )


@pytest.mark.parametrize(("blocks", "severity"), [(1, "notice"), (2, "warning")])
def test_a_first_burst_is_no_warning(blocks, severity):
    assert [finding.severity for finding in found(RULE, lasting(blocks, **used(5000, 5000)), [disk(limits=LOW)])] == [
        severity
    ]


def test_of_many_the_one_that_is_held_is_another_rule_s():
    names = ("sda", "sdb", "sdc", "sdd")
    values = {
        "depths": {name: depths({1: 5000}) for name in names} | used(5000, 5000)["depths"],
        "kernel": {flow: one for name in names for flow, one in done(name, 9).items()},
    }
    assert [finding.severity for finding in found(RULE, lasting(**values), [disk(name, LOW) for name in names])] == [
        "notice"
    ]


def test_the_host_s_is_of_the_one_that_feels_it_most():
    """Five of 256 devices wait; another group of settings is in the same finding."""
    names = ("sda", "sdb", "sdc", "sdd", "sde")
    others = {"nr_tags": (64, "mq/0/nr_tags"), "nr_requests": 4}
    more = [disk(f"vd{letter}", others) for letter in "abcd"]
    some = used(5000, 5000, name="sdc")["depths"] | {"vda": depths({1: 5000})}
    values = {
        "depths": {name: depths({1: 5000}) for name in names} | some,
        "kernel": {flow: one for name in (*names, "vda") for flow, one in done(name, 9).items()},
    }
    (finding,) = found(RULE, lasting(1, **values), [*(disk(name, LOW) for name in names), *more])
    reported = {fact.name: fact for fact in finding.facts}
    assert finding.device == ""
    assert reported["queued"].text == "sdc: I/Os wait above the driver 100% of the time"
    assert reported["devices"].value == 6
    (finding,) = found(RULE, lasting(**values), [*(disk(name, LOW) for name in names), *more])
    assert "sdc" not in finding.also, "outstanding-ceiling reports it"


def test_idle_ones_have_the_same_setting():
    """Else the first of them to do something would be reported by itself, and the host's once four have."""
    (finding,) = found(RULE, lasting(**used()), [disk(f"sd{letter}", LOW) for letter in "abcd"])
    assert (finding.device, finding.summary.partition(":")[0]) == ("", "sda")


@pytest.mark.parametrize(
    ("admission_us", "full_ms", "severity"),
    [
        pytest.param(36_000, 5000, "warning", id="they wait for one of its requests"),
        pytest.param(36_000, 200, "notice", id="they wait for something else: the driver has room"),
        pytest.param(20, 5000, "notice", id="they hardly wait"),
    ],
)
def test_i_os_that_wait_for_a_request(admission_us, full_ms, severity):
    waits = {
        Series("sda", "read", stage): hist({us: 90})
        for stage, us in (("whole", 1000 + admission_us), ("admission", admission_us))
    }
    limits = {"nr_tags": 128, "nr_requests": 4, "scheduler": "none"}
    blocks = lasting(**used(0, full_ms, depth=4), traced=Traced(waits, one_in=1))
    (finding,) = found(RULE, blocks, [disk(limits=limits)])
    assert finding.severity == severity
    assert finding.summary.startswith("sda: nr_requests of 4 can't fill the 128 that the driver takes")
    felt = "97% of the time of its I/Os passes before they have a request"
    assert (felt in finding.summary) is (severity == "warning")
    wait = next(fact for fact in finding.facts if fact.name == "wait_us")
    assert wait.text.startswith("an I/O waits")


REQUESTS = {"nr_tags": 128, "nr_requests": 4, "scheduler": "mq-deadline"}


def both(frames):
    """Return severity and rule of what is left of both rules on few requests."""
    every = [
        *found(RULE, frames, [disk(limits=REQUESTS)]),
        *found("outstanding-ceiling", frames, [disk(limits=REQUESTS)]),
    ]
    return [(finding.severity, finding.id) for finding in unexplained(every)]


@pytest.mark.parametrize(
    "reported",
    [
        pytest.param(depths({0: 2788, 4: 2120, 1: 199, 3: 93}, {0: 4638, 4: 362}), id="hardly anything is queued"),
        pytest.param(depths({0: 2788, 4: 2120, 1: 199, 3: 93}, {0: 4000, 4: 1000}), id="more is"),
        pytest.param(depths({0: 1000, 4: 3900, 3: 100}, {0: 1000, 4: 4000}), id="as much as is in the driver"),
    ],
)
def test_too_few_requests_are_one_finding_whatever_is_queued(reported):
    """I/Os that wait for a request aren't queued: the gauge shows requests on their way to the driver."""
    frames = lasting(depths={"sda": reported}, kernel=done("sda", 9))
    assert both(frames[:1]) == [("notice", RULE)]
    for n in (2, 3, 12):
        assert both(frames[:n]) == [("warning", RULE)]
    (finding,) = found(RULE, frames, [disk(limits=REQUESTS)])
    assert re.search(r"the 128 that the driver takes, and all 4 are in use \d+% of the time$", finding.summary)
    assert "queued" not in [fact.name for fact in finding.facts]


@pytest.mark.parametrize(
    ("full_ms", "severities"),
    [
        pytest.param(1000, ["notice", "notice"], id="a burst of a second when the capture begins"),
        pytest.param(1400, ["warning", "notice"], id="a longer one, which is a tenth of 12 s"),
        pytest.param(4000, ["warning", "warning"], id="most of the first seconds"),
    ],
)
def test_an_early_warning_takes_as_long_a_wait_as_a_later_one(full_ms, severities):
    """After 6 s in two blocks, and after 15 s."""

    def part(end_s, dt_s, ms=0):
        reported = depths({0: dt_s * 1000 - ms, 4: ms})
        return frame(end_s, dt_us=dt_s * 10**6, depths={"sda": reported}, kernel=done("sda", 9))

    frames = [part(5, 5, full_ms), part(6, 1), part(10, 4), part(15, 5)]
    assert [both(some)[0][0] for some in (frames[:2], frames)] == severities


@pytest.mark.parametrize(("off", "reported"), [(set(), RULE), ({RULE}, "outstanding-ceiling")])
def test_a_rule_that_is_off_leaves_its_devices_to_the_other_one(off, reported):
    origin = Origin("bpftrace", "h", "6.1", "0", interval_us=5_000_000, start_mono_us=95_000_000)
    engine = RuleEngine(origin, (disk(limits=REQUESTS),), Settings(off=frozenset(off)))
    for current_frame in lasting(depths={"sda": depths({0: 100, 4: 4900}, {0: 5000})}, kernel=done("sda", 9)):
        engine.take(current_frame)
    assert [finding.id for finding in engine.current] == [reported]


def test_a_driver_that_hardly_has_all_requests_is_no_warning():
    frames = lasting(depths={"sda": depths({0: 4700, 4: 300})}, kernel=done("sda", 9))
    assert both(frames) == [("notice", RULE)]


@pytest.mark.parametrize(("scheduler", "requests"), [("none", 128), ("mq-deadline", 256)])
def test_the_kernel_takes_the_number_of_requests_that_the_step_sets(scheduler, requests):
    limits = {"nr_tags": 128, "nr_requests": 4, "scheduler": scheduler}
    (finding,) = found(RULE, lasting(**used(5000, 5000, depth=4)), [disk(limits=limits)])
    assert f"echo {requests} > /sys/block/sda/queue/nr_requests" in finding.steps[0].text
