"""admission_ap's maps: the wait for a request and the latency with it are series of their own, with their own count."""

from latmon.decode.framer import TracerFramer
from latmon.manifest import load
from latmon.model.frame import STAGES, Series
from latmon.model.histogram import bucket_index
from latmon.model.stages import FROM_SUBMISSION
from latmon.support.paths import data_dir
from latmon.views.anatomy import causes_text

MANIFEST = load(data_dir("probes") / "linux/admission_ap.yaml")
SDA = 8 << 20


def key(us=0, op=0):
    return SDA << 16 | op << 8 | bucket_index(us)


def test_requests_that_did_not_wait_count_as_0():
    framer = TracerFramer(MANIFEST, {SDA: "sda"}.get)
    maps = {
        "whole": {key(100): 9, key(5000): 1},
        "whole_us": {key() & ~255: 5900},
        "wait": {key(4900): 1},
        "wait_us": {key() & ~255: 4900},
    }
    for name, values in maps.items():
        framer.printed(f"admission_ap_{name}", values)
    tracer_interval = framer.interval(None, lambda _: None)
    histogram, wait = (tracer_interval.traced.histograms[Series("sda", "read", one)] for one in ("whole", "admission"))
    assert (histogram.count, histogram.sum, wait.count, wait.sum) == (10, 5900, 10, 4900)
    assert wait.buckets[0] == (0, 9)
    assert (tracer_interval.undecoded, tracer_interval.traced.by_total) == (0, {})


WAITS = load(data_dir("probes") / "linux/admission_waits_a.yaml")
(US,) = WAITS.maps
SCHEDULED = (
    "\\n        bpf_prog_5f_rawtracepoint_sched_switch_2+805\\n        __schedule+1560\\n        io_schedule+63\\n"
)


def test_a_wait_has_the_name_of_the_innermost_known_function():
    """Stacks as bpftrace 0.23 prints them."""
    printed = {
        f"{SDA},{SCHEDULED}        blk_mq_get_tag+281\\n        blk_mq_submit_bio+1392\\n": 700,
        f"{SDA},{SCHEDULED}        blk_mq_get_tag.isra.0+281\\n        blk_mq_alloc_requests+1\\n": 50,
        f"{SDA},{SCHEDULED}        rq_qos_wait+173\\n        wbt_wait+176\\n        __rq_qos_throttle+35\\n": 200,
        f"{SDA},{SCHEDULED}        preempt_schedule+3\\n        blk_mq_submit_bio+1870\\n": 50,
        "no device": 1000,
    }
    framer = TracerFramer(WAITS, {SDA: "sda"}.get)
    framer.printed(US.name, framer.by_stack(US, printed))
    tracer_interval = framer.interval(None, lambda _: None)
    assert tracer_interval.traced.admission_causes == {
        "sda": {"no tag free": 750, "writeback throttling": 200, "other": 50}
    }
    causes = tracer_interval.traced.admission_causes["sda"]
    assert causes_text(causes, 990) == "75% no tag free, 20% writeback throttling, 5% other"
    assert causes_text(causes, 10_000) == "8% no tag free", "most of the time is of no task's wait"
    assert causes_text({}, 0) == causes_text({}, 10) == causes_text({"iocost": 0}, 0) == ""


def test_neither_is_a_stage_of_the_total():
    assert not set(FROM_SUBMISSION) & set(STAGES)
    assert set(MANIFEST.stages) == set(FROM_SUBMISSION)
