"""read-ahead-off: buffered reads of a page each, and reads that only look like them."""

import pytest
from finding_cases import disk, done, found, frame, timed

from latmon.model import measurements
from latmon.model.frame import Flow
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon.model.measurements.patterns import Pattern

RULE = "read-ahead-off"
READS = Flow("sda", "read")
OFF = {"read_ahead_kb": 0}


def findings(*, settings=OFF, ahead=1000, sequential=1000, size=4096, us=2500):
    """Return the findings on 200 reads a second of `size` bytes that take `us`."""
    tables = {
        measurements.PATTERNS: {READS: Pattern(issued=1000, sequential=sequential, ahead=ahead)},
        measurements.ISSUERS: {Issuer("sda", "read", "/", pid=9, comm="etl-import"): IssuedIO(1000, 1000 * size)},
    }
    values = {
        "tables": tables,
        "histograms": timed("sda", [(1000, {"total": us})]),
        "kernel": done("sda", 1000, size=size),
    }
    return found(RULE, [frame(100 + 5 * at, **values) for at in range(6)], [disk("sda", settings)])


def test_a_reader_of_single_pages_is_named_with_the_setting():
    (finding,) = findings()
    assert finding.summary == (
        "sda: etl-import reads in order, but in I/Os of 4 KiB one after the other, 819 kB/s, because read_ahead_kb is 0"
    )
    facts = {fact.name: fact.value for fact in finding.facts}
    assert facts["in_flight"] == pytest.approx(0.5, rel=0.05)
    assert finding.steps[0].commands == ("echo 128 > /sys/block/sda/queue/read_ahead_kb",)


@pytest.mark.parametrize(
    "reads",
    [
        {"settings": {"read_ahead_kb": 128}},
        {"settings": {}},
        {"ahead": 100},  # O_DIRECT
        {"sequential": 100},  # a database whose read-ahead is small on purpose
        {"size": 131_072},
        {"us": 200},  # hardly in flight
    ],
)
def test_other_reads_are_no_finding(reads):
    assert findings(**reads) == []
