"""Every D script against its manifest, by their texts; DTrace itself runs in tests/live/test_d_compile.py."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from fake_dtrace import manifests

from latmon.decode.framer import Framer
from latmon.decode.tables import record
from latmon.manifest import Manifest, load
from latmon.model.frame import Series
from latmon.model.histogram import BITS
from latmon.model.measurements.errors import ERRORS, FailedIO
from latmon_backends.dtrace.probe import DtraceDecoder, Maps, NumberedNames
from latmon_backends.probe.events import CountedMap, Printed, UndecodedLine
from tests.d_compile import d_output, freebsd_golden
from tests.d_compile.checks import faults
from tests.d_compile.d_text import assigned, clauses, locals_read, members, tokens
from tests.helpers import illumos_golden

PROBES = Path(__file__).parents[2] / "probes"
SCRIPTS = [one for one in manifests() if one.tool == "dtrace"]
KEPT = PROBES.parent / "tests/golden/dtrace"
GOLDENS = sorted(path.stem for path in KEPT.glob("*-*.txt") if path.stem.partition("-")[0] in ("freebsd", "illumos"))
UNREPORTED = {
    "illumos-emlxs_thread": {"emlxs_thread_ran", "emlxs_thread_ran_kernel"},
    "illumos-sd": {"sd_failed", "sd_requeue", "sd_requeue_sum", "sd_untimed"},
}
"""Maps of which a golden has nothing: nothing of the kind happens in it, or the script got them later."""


@pytest.mark.parametrize("manifest", SCRIPTS, ids=lambda one: one.name)
def test_script_and_manifest_say_the_same(manifest):
    assert faults(manifest) == []


@pytest.mark.parametrize("manifest", SCRIPTS, ids=lambda one: one.name)
def test_every_histogram_is_by_octaves_where_there_is_no_llquantize(manifest):
    fine, coarse = (replace(manifest, bits=bits).source for bits in (BITS, 0))
    assert coarse.count(" quantize(") == fine.count("llquantize(")
    assert re.sub(r" (?:ll)?quantize\(", "", fine).replace(", 2, 3, 34, 16", "") == coarse.replace(" quantize(", "")


def test_every_script_has_a_manifest():
    assert {manifest.script for manifest in SCRIPTS} == set(PROBES.rglob("*.d"))


def test_names_are_unique_over_all_directories():
    names = [manifest.name for manifest in SCRIPTS]
    assert sorted(names) == sorted(set(names))


# A checker that finds nothing in good scripts must find what is planted in one.


@pytest.fixture
def geom(tmp_path):
    """The manifest of a copy of geom whose text is changed, or an entry of the manifest."""

    def changed(old: str = "", new: str = "", count: int = 1, **entries: object) -> Manifest:
        text = (PROBES / "freebsd/geom.d").read_text()
        assert old in text
        (tmp_path / "geom.d").write_text(text.replace(old, new, count) if old else text)
        return replace(load(PROBES / "freebsd/geom.yaml"), path=tmp_path / "geom.yaml", **entries)

    return changed


def test_the_copy_is_without_fault(geom):
    assert faults(geom()) == []


CONDITIONAL = "/args[1]->unit_number >= 0/\n{\n\tgeom_begun[strlen(this->dev)] = 0;"
PLANTED = [
    ("stale this->", "\tthis->us = this->queue + this->hba;\n", "", "this->us is read before this clause sets it"),
    (
        "a local that another clause sets",
        "geom_tokens--;",
        "geom_tokens = this->tokens;",
        "this->tokens is read before",
    ),
    ("set too late", "\tthis->up = this->top->bio_parent;\n", "", "this->up is read before"),
    (
        "in a predicate",
        "/args[1]->unit_number >= 0 && geom_begun",
        "/this->top != 0 && geom_begun",
        "this->top in a predicate",
    ),
    (
        "set on a condition",
        "/args[1]->unit_number >= 0/\n{\n\tgeom_begun[(uint64_t)arg0] = 0;",
        CONDITIONAL,
        "this->dev is read",
    ),
    ("clear", "\tgeom_n++;\n", "\tgeom_n++;\n\tclear(@geom_sum);\n", "clear() before the end"),
    ("trunc", "\tgeom_n++;\n", "\tgeom_n++;\n\ttrunc(@geom_sum, 0);\n", "trunc() before the end"),
    ("exit", "\tgeom_n++;\n", "\tgeom_n++;\n\texit(0);\n", "exit()"),
    ("global of another", "geom_tokens--;", "other_tokens--;", "other_tokens doesn't begin with geom_"),
    ("map of another", "@geom_sum[", "@sum[", "@sum doesn't begin with geom_"),
    ("thread's variable", "geom_tokens--;", "self->at = 1;", "self->at doesn't begin with geom_"),
    ("no first value", "\tgeom_tokens = 40;\n", "", "BEGIN gives geom_tokens no value"),
    ("unknown member", "bio_bcount", "bio_count", "member bio_count is in no type of freebsd.d"),
    ("keys", "@geom_level[this->dev]", "@geom_level[this->dev, 1]", "@geom_level has 2 keys, the manifest 1 columns"),
    ("columns", "geom_sum\\t%s\\t%d\\t", "geom_sum\\t%s\\t", "@geom_sum prints 1 columns of 2"),
    ("conversion", "geom_path\\t%s\\t%d", "geom_path\\t%s\\t%s", "@geom_path: path is printed with %s"),
    ("kind", "@@S geom_sum", "@@Q geom_sum", "@geom_sum: not a line of the protocol"),
    ("end of a table", "@geom_hba);\n\tprinta", "@geom_queue);\n\tprinta", "@geom_hba must be printed alike twice"),
    ("buckets", "this->queue * 8, 2, 3, 34, 16)", "this->queue, 2, 3, 34, 16)", "not llquantize(us * 8, 2, 3, 34, 16)"),
    ("quantize", "llquantize(this->queue * 8, 2, 3, 34, 16)", "quantize(this->queue)", "not llquantize"),
    ("a field too few", "%d %d %d %d %d\\n", "%d %d %d %d\\n", "slow has 11 fields, the line 10"),
    ("a name's place", "@@ slow geom %u %s %d", "@@ slow geom %u %d %s", "slow: op is printed with %s"),
    ("another's line", "@@ done geom", "@@ done devstat", "not a line of ours"),
    ("unmarked line", "@@ done geom", "done geom", "not a line of ours"),
    ("record", "@@ slow geom", "@@ late geom", "the manifest has no record late"),
    ("hook", "io:::start", "io:::wait-start", "hooks io:::wait-start, which the manifest doesn't name"),
    ("a byte of UTF-8", "one for each piece", "one for each piece \u00b5", "is not ASCII alone"),
    ("pragma", "BEGIN\n", "#pragma D option quiet\nBEGIN\n", "#pragma"),
    ("if", "geom_tokens--;", "if (geom_tokens) geom_tokens--;", "if is not for every DTrace"),
    ("order", '\tprintf("@@ done geom\\n");\n\tgeom_n++;\n', "\tgeom_n++;\n", "maps are printed between tick and done"),
]


@pytest.mark.parametrize(("old", "new", "fault"), [one[1:] for one in PLANTED], ids=[one[0] for one in PLANTED])
def test_a_planted_fault_is_found(geom, old, new, fault):
    assert any(fault in one for one in faults(geom(old, new))), faults(geom(old, new))


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({"hooks": ("io:::start",)}, "hooks io:::done, which the manifest doesn't name"),
        ({"hooks": ("io:::start", "io:::done", "fbt::g_down:entry")}, "which the script doesn't hook"),
        ({"sources": ("freebsd-src sys/kern/subr_devstat.c",)}, "not FILE: SYMBOLS"),
        ({"sources": ("freebsd-src sys/kern/subr_devstat.c: io:::start",)}, "no source of io:::done"),
        ({"maps": ()}, "@geom_queue is not in the manifest"),
        ({"records": {}}, "the manifest has no record slow"),
    ],
)
def test_what_a_manifest_leaves_out_is_found(geom, entries, fault):
    assert any(fault in one for one in faults(geom(**entries))), faults(geom(**entries))


def test_what_a_clause_that_always_runs_before_sets_is_no_fault(geom):
    sets = "io:::done\n/args[1]->unit_number >= 0/\n{\n\tthis->mine = 1;\n}\n\n"
    reads = "io:::done\n/this->mine == 1 && args[1]->unit_number >= 0/\n{\n\tgeom_tokens = this->mine;\n}\n\n"
    last = "tick-{{step_ms}}ms\n{\n\tthis->tokens"
    assert faults(geom(last, sets + reads + last)) == []
    assert [fault.partition(": ")[2] for fault in faults(geom(last, reads + sets + last))] != []
    elsewhere = sets.replace("io:::done", "io:::start")
    assert any("this->mine" in fault for fault in faults(geom(last, elsewhere + reads + last)))


# The little D that the checks read.


def test_clauses():
    begin = '/* a { */\nBEGIN\n{\n\tx = "}";\n}\n'
    text = begin + "fbt:a:b:entry,\nio:::start\n/arg0 / 2 > 1 && y/\n{\n\tx++; z[1, 2] = f(3);\n}\n"
    first, second = clauses(text)
    assert (first.hooks, first.predicate, first.line) == (("BEGIN",), (), 2)
    assert first.statements == (("x", "=", '"}"'),)
    assert second.hooks == ("fbt:a:b:entry", "io:::start")
    assert second.predicate == tokens("arg0 / 2 > 1 && y")
    assert [assigned(statement).name for statement in second.statements] == ["x", "z"]
    assert assigned(second.statements[1]).keys == (("1",), ("2",))


@pytest.mark.parametrize("text", ["BEGIN { x = 1;", "BEGIN", "io:::start /x { y = 1; }"])
def test_what_is_no_clause_is_refused(text):
    with pytest.raises(ValueError, match="line 1"):
        clauses(text)


def test_members_are_of_structs():
    given_tokens = tokens("this->a->b.c + self->d + ((struct e *)arg0)->f[1].g")
    assert members(given_tokens) == ["b", "c", "f", "g"]
    assert locals_read(given_tokens) == ["a"]


# What the scripts would print on systems that this host isn't.


def kept(golden):
    return (KEPT / f"{golden}.txt").read_text(encoding="ascii")


@cache
def of(golden):
    """The manifest of the script that prints it."""
    system, _, name = golden.partition("-")
    return load(PROBES / system / f"{name}.yaml")


@pytest.mark.parametrize(("system", "generator"), [("freebsd", freebsd_golden), ("illumos", illumos_golden)])
def test_golden_texts_are_what_is_written_down(system, generator):
    texts = {
        f"{system}-{name.removeprefix('illumos-').removesuffix('.txt')}": text
        for name, text in generator.texts().items()
    }
    assert texts.keys() <= {*GOLDENS}
    assert [golden for golden, text in texts.items() if text != kept(golden)] == [], (
        "write them again: python -m tests.d_compile.freebsd_golden, tests.helpers.illumos_golden"
    )


@pytest.mark.parametrize("golden", GOLDENS)
def test_golden_text_has_the_lines_of_the_script(golden):
    """Every format of the script, with its values in their places, and nothing else."""
    formats = re.findall(r'print[fa]\("(@@[^"]*)"', of(golden).text)
    lines = {part for one in formats for part in one.replace("\\t", "\t").replace("%@d@@E\\n", "").split("\\n") if part}
    known = re.compile("|".join(re.sub("%@?[sduaS]", r"[^\\t ]+", re.escape(line)) for line in lines))
    reported = [line for line in kept(golden).splitlines() if line.startswith("@@") and line != "@@E"]
    assert [line for line in reported if not known.fullmatch(line)] == []
    assert len([line for line in reported if line.startswith(f"@@ tick {of(golden).name} ")]) >= 2


@pytest.mark.parametrize("golden", GOLDENS)
def test_golden_text_is_decoded_whole(golden):
    manifest = of(golden)
    decoder, maps = DtraceDecoder(), Maps([manifest], NumberedNames())
    reported = [*decoder.feed(kept(golden).encode()), *decoder.close()]
    events = [event for one in reported for event in maps.take(one)] + list(maps.close())
    assert not [event for event in events if isinstance(event, UndecodedLine)]
    counted = {event.name for event in events if isinstance(event, CountedMap)}
    assert {spec.name for spec in manifest.maps} - counted == UNREPORTED.get(golden, set())
    lines = [event.text for event in events if isinstance(event, Printed)]
    assert lines[0].startswith(f"ready {manifest.name} ")
    for kind, spec in manifest.records.items():
        assert all(record(line, spec) for line in lines if line.split()[0] == kind)


def intervals(golden):
    """What a framer makes of each tick's maps, and of those behind the last line."""
    manifest, names, number = of(golden), NumberedNames(), 0
    decoder, maps, framer = DtraceDecoder(), Maps([manifest], names), Framer(manifest, names.name)
    for event in (event for one in decoder.feed(kept(golden).encode()) for event in maps.take(one)):
        if isinstance(event, CountedMap):
            framer.printed(event.name, event.values)
        elif event.text.startswith(("tick ", "last ")):
            number = int(event.text.split()[2])
        elif event.text.startswith("done "):
            yield framer.interval(number)


def test_the_maximum_of_each_interval_is_exact():
    """Also of one whose slowest I/O is faster than that of an earlier interval."""
    reads = Series("sd2", "read", "total")
    assert [interval.histograms[reads].max for interval in intervals("illumos-sd")] == [
        42962,
        43931,
        44668,
        44258,
        44236,
        45045,
    ]


def test_a_failed_io_is_counted_by_its_status_and_not_timed():
    of_both = list(intervals("freebsd-devstat"))
    failed = [probe_interval.tables.get(ERRORS, {}) for probe_interval in of_both]
    assert [dict(rows) for rows in failed if rows] == [{FailedIO("nvd1", "read", "I/O error"): 1}]
    reads = Series("nvd1", "read", "total")
    assert [
        probe_interval.histograms[reads].count for probe_interval in of_both if reads in probe_interval.histograms
    ] == [1]


@pytest.mark.parametrize(
    ("us", "label"), [(0, 0), (1, 8), (2, 16), (15, 120), (16, 128), (17, 128), (18, 144), (1000, 7680)]
)
def test_rows_as_llquantize_makes_them(us, label):
    assert d_output.label(us) == label
