"""Values of 1 us to 1 h through the very lines of the probes that sort them, on real bpftrace.

The lines are cut out of the scripts, so that a script that changes is what is tested.
"""

import asyncio
import re

import pytest
from bpftraces import TIMEOUT_S, each_bpftrace, tool
from fake_dtrace import manifests

from latmon.decode.framer import Framer
from latmon.model.frame import Series
from latmon.model.histogram import MAX_US, TOP, Histogram, bucket_index
from latmon_backends.bpftrace.probe import BpftraceDecoder
from latmon_backends.probe.events import MapPrinted
from latmon_backends.probe.process import Child

MANIFESTS = [one for one in manifests() if one.path.parent.name == "linux"]
SORTING = re.compile(
    r"(?P<clamp>if \(\$\w > 4294967295\) \{ \$\w = 4294967295; \}\s*)?"
    r"\$v = \$(?P<value>\w); \$e = \(uint64\)0;.*?"
    r"\$(?P<index>\w) = \$(?P=value);\s*"
    r"if \(\$e >= 3\) \{ \$(?P=index) = [^}]*\}",
    re.DOTALL,
)
SHIFTING = re.compile(
    r"\$v = \(\$(?P<value>\w+) >> 3\) \| 1;.*?\$(?P<index>\w+) = \(\$e << 3\) \+ \(\$(?P=value) >> \$e\);", re.DOTALL
)
"""The same without a branch, for programs whose values would make too many paths for the kernel's verifier. What they
sort is below 2^32 by then."""
CLAMP = "if ($value > 4294967295) { $value = 4294967295; } "
ENDS = re.compile(r"if \(\$e >= 3\)|= \(\$e << 3\) \+ ")
NO_INDEX = {"path", "why", "in", "other", "how"}
"""Counted by something else than a time."""
COUNTED = re.compile(r"\| \$(\w+)\] = count\(\)")
NAMED = (
    *(0, 1, 2, 7, 8, 9, 15, 16, 255, 256, 1023, 1024, 65_535, 65_536, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(10_000_000, 3_600_000_000, 2**40, 2**63 - 1, 2**63, 2**64 - 1),
)
VALUES = sorted({*NAMED, *(2**n + step for n in range(34) for step in (-1, 0, 1))})


def sortings(manifest):
    """The lines that make an index of a value, once per value that the script sorts; value and index by one name."""
    for match, before in found_in(manifest.source):
        renamed = match[0].replace(f"${match['index']} =", "$index =")
        yield before + " ".join(re.sub(rf"\${match['value']}\b", "$value", renamed).split())


def found_in(script):
    """Each place where a value is sorted, and what makes the value one that it sorts."""
    yield from ((match, "" if match["clamp"] else CLAMP) for match in SORTING.finditer(script))
    yield from ((match, CLAMP) for match in SHIFTING.finditer(script))


DISTINCT = sorted({lines for manifest in MANIFESTS for lines in sortings(manifest)})


UNTIMED = "processes_c"
"""It counts at the submission, in bucket 0."""
SORTED = [
    one
    for one in MANIFESTS
    if one.name != UNTIMED and any("bucket" in {part.name for part in spec.key} for spec in one.maps)
]


@pytest.mark.parametrize("manifest", SORTED, ids=lambda manifest: manifest.name)
def test_every_index_that_a_script_uses_is_made_by_lines_that_are_tested(manifest):
    script = manifest.source
    tested = {match["index"] for match, _ in found_in(script)}
    counted = set(COUNTED.findall(script)) - NO_INDEX
    assert tested
    assert counted <= tested
    assert len(list(sortings(manifest))) == len(ENDS.findall(script))


def program(lines):
    """Sorts one value per interval, as tier A's probe would for a device of the value's number."""
    values = "\n".join(f"\t@value[{n}] = (uint64){value};" for n, value in enumerate(VALUES))
    return f"""
BEGIN
{{
	@next = (uint64)0;
{values}
}}
interval:us:500
{{
	$n = @next;
	if ($n < {len(VALUES)}) {{
		$value = @value[$n];
		$k = (uint64)$n << 16;
		{lines}
		@block_a_same[$k | $index] = count();
		@block_a_hba_sum[$k] = sum($value);
		@block_a_max[$k] = max($value);
		@next++;
	}} else {{
		exit();
	}}
}}
END {{ clear(@value); }}
"""


async def sorted_by(which, text):
    framer = Framer(next(m for m in MANIFESTS if m.name == "block_a"), lambda number: f"v{number}")
    child, decoder = await Child.start(which.command(text)), BpftraceDecoder()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while portion := await child.read():
                for event in decoder.feed(portion):
                    if isinstance(event, MapPrinted):
                        framer.printed(event.name, event.integers())
            assert await child.returncode() == 0, await child.complaints()
    finally:
        await child.stop()
    return framer.interval(0).histograms


@each_bpftrace
@pytest.mark.parametrize("lines", DISTINCT, ids=lambda _: "lines")
async def test_every_value_lands_in_its_bucket_with_exact_sum_and_maximum(suite, lines, tmp_path):
    histograms_by_series = await sorted_by(tool(suite, tmp_path), program(lines))
    wrong = {}
    for n, value in enumerate(VALUES):
        clamped = min(value, MAX_US)
        expected = Histogram.of({bucket_index(value): 1}, clamped, clamped)
        histogram = histograms_by_series.get(Series(f"v{n}", "read", "total"))
        if histogram != expected:
            wrong[value] = histogram
    assert not wrong
    assert len(VALUES) > 100
    assert histograms_by_series[Series(f"v{VALUES.index(2**32)}", "read", "total")].buckets == ((TOP, 1),)
