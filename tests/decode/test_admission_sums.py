"""admission_ap's maps: the wait for a request and the latency with it are series of their own, with their own count."""

from latmon.decode.framer import TracerFramer
from latmon.manifest.loader import load
from latmon.model.frame import STAGES, Series
from latmon.model.histogram import bucket_index
from latmon.model.stages import FROM_SUBMISSION
from latmon.support.paths import data_dir

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
    found = framer.interval(None, lambda _: None)
    whole, wait = (found.traced.histograms[Series("sda", "read", one)] for one in ("whole", "admission"))
    assert (whole.count, whole.sum, wait.count, wait.sum) == (10, 5900, 10, 4900)
    assert wait.buckets[0] == (0, 9)
    assert (found.undecoded, found.traced.by_total) == (0, {})


def test_neither_is_a_stage_of_the_total():
    assert not set(FROM_SUBMISSION) & set(STAGES)
    assert set(MANIFEST.stages) == set(FROM_SUBMISSION)
