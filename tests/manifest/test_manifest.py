"""Manifests: the shipped ones agree with their scripts, and a wrong one is refused by file and key."""

import re
from pathlib import Path
from random import Random

import pytest
import yaml
from fake_dtrace import manifests
from hostile import YAML_SPLINTERS, cases, mutated
from hypothesis import given
from hypothesis import strategies as st

from latmon import manifest as manifest_module
from latmon.manifest import MAX_BYTES, KeyPart, Parameter, RecordSpec, load, load_all, op_name
from latmon.model.frame import STAGES, missing_stages
from latmon.model.histogram import bucket_index
from latmon.support.errors import ManifestError

PROBES = Path(__file__).resolve().parents[2] / "probes"
SHIPPED = [manifest for manifest in manifests() if manifest.tool == "bpftrace"]
MINIMAL = {
    "name": "tiny",
    "purpose": "a test",
    "platform": "linux",
    "tool": "bpftrace",
    "tier": "A",
    "cost": "cheap",
    "clock": "monotonic",
    "latency_from": "queued",
    "hooks": ["tracepoint:a:b"],
    "requirements": ["root"],
    "key": {
        "dev": {"shift": 16, "bits": 32, "decoder": "dev_t"},
        "op": {"shift": 8, "bits": 8, "decoder": "op"},
        "bucket": {"shift": 0, "bits": 8, "decoder": "bucket"},
    },
    "maps": {"tiny_all": {"role": "histogram", "stages": ["total"]}},
}
MACROS = {
    "irqs_a": r"^\t\t\$v = \$(u);(?:.*\n)+?.*\$e >= 3.*$",
    "stages_a": r"^\t*\$v = \(\$(t) >> 3\)(?:.*\n)+?.*\$e << 3.*$",
}
"""A script, and the macro in it that computes the bucket of a value."""
each_shipped = pytest.mark.parametrize("manifest", SHIPPED, ids=lambda manifest: manifest.name)
ALWAYS = [manifest for manifest in SHIPPED if manifest.group == "always"]
each_always_on = pytest.mark.parametrize("manifest", ALWAYS, ids=lambda manifest: manifest.name)


@pytest.fixture
def write(tmp_path):
    (tmp_path / "tiny.bt").write_text("BEGIN { }\n")

    def written(text):
        path = tmp_path / "tiny.yaml"
        path.write_bytes(text if isinstance(text, bytes) else yaml.safe_dump(text, sort_keys=False).encode())
        return path

    return written


def changed(*path, value):
    """MINIMAL with one value set, or with the key left out for None."""
    tree = yaml.safe_load(yaml.safe_dump(MINIMAL))
    table = tree
    for key in path[:-1]:
        table = table.setdefault(key, {})
    if value is None:
        del table[path[-1]]
    else:
        table[path[-1]] = value
    return tree


# Columns


@pytest.fixture
def columns(tmp_path):
    (tmp_path / "tiny.d").write_text("BEGIN { }\n/* A comment\n   of two lines */\ntick-{{step}}ms { }\n")
    path = tmp_path / "tiny.yaml"

    def loaded(**changes):
        tree = {**MINIMAL, "tool": "dtrace", "hooks": ["io:::done"], "key": ["dev", "op", "bucket"], **changes}
        path.write_text(yaml.safe_dump(tree))
        return load(path)

    return loaded


def test_columns_are_packed_without_meeting(columns):
    given_columns = columns()
    assert given_columns.script.name == "tiny.d"
    (spec,) = given_columns.maps
    assert [part.name for part in spec.columns] == ["dev", "op"]
    values = {"dev": 2**32 - 1, "op": 9, "bucket": 231}
    key = sum(part.put(values[part.name]) for part in spec.key)
    assert {part.name: part.read(key) for part in spec.key} == values
    assert spec.part("dev").decoder == "name"
    assert spec.part("op").put(256) is None and spec.part("op").put(-1) is None  # noqa: PT018 - one fact


def test_columns_are_dtraces_alone(write):
    with pytest.raises(ManifestError, match="key: must be a table of keys"):
        load(write({**MINIMAL, "key": ["dev", "op", "bucket"]}))


@pytest.mark.parametrize("names", [["dev", "dev"], ["thread", "other", "bucket"]])
def test_columns_that_do_not_fit(columns, names):
    with pytest.raises(ManifestError, match="key: names a part twice, or more than 63 bits"):
        columns(key=names)


@pytest.mark.parametrize("hook", ["fbt:::entry", "fbt:sd::entry", "fbt:sd:sd_*:entry", "fbt::sd?start:return"])
def test_a_hook_on_many_functions_is_invasive(columns, hook):
    with pytest.raises(ManifestError, match=r"more than one function: its cost must be invasive"):
        columns(hooks=[hook])
    assert columns(hooks=[hook], cost="invasive", group="stages").cost == "invasive"


def test_what_always_runs_is_not_invasive(columns):
    for group in ({}, {"group": "always"}):
        with pytest.raises(ManifestError, match=r"cost: a probe that always runs can't be invasive"):
            columns(cost="invasive", **group)


def test_a_hook_on_one_function_of_several_modules_is_not(columns):
    assert columns(hooks=["fbt:*sd:sd_start_cmds:entry", "io:::start"]).cost == "cheap"


def test_comments_of_a_d_script_are_left_out(columns):
    given_columns = columns(parameters={"step": {"type": "integer", "low": 1, "high": 200}})
    assert given_columns.program({"step": 97}) == "BEGIN { }\ntick-97ms { }\n"


RANGES = st.tuples(st.integers(0, 300), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(RANGES, min_size=1, max_size=5), RANGES)
def test_a_parameter_of_ranges_is_a_condition_that_one_of_them_overlaps(ranges, wanted):
    text = Parameter("wanted", most=5).check(",".join(f"{low}-{high}" for low, high in ranges))
    low, high = wanted
    # In Python a negative number has the highest bit of any width.
    found = eval(text.replace("(uint64)", "").replace("$low", str(low)).replace("$high", str(high)))
    assert found is any(low <= end and high >= begin for begin, end in ranges)


def test_without_ranges_every_number_is_wanted():
    assert Parameter("wanted", most=5).check("") == "1 == 1"


@pytest.mark.parametrize("value", ["8", "9-8", "1-2,", "1-2;3-4", "1-2,1-2,1-2", f"0-{1 << 62}", "1 == 1", 7, "-1-2"])
def test_other_texts_are_no_ranges(value):
    with pytest.raises(ManifestError, match="wanted takes at most 2 ranges"):
        Parameter("wanted", most=2).check(value)


def test_a_default_is_taken_where_no_value_is_given_and_checked(write):
    one = dict(MINIMAL, parameters={"step": {"type": "integer", "low": 1, "high": 9, "default": 4}})
    path = write(one)
    path.with_suffix(".bt").write_text("interval:ms:{{step}} { }\n")
    assert load(path).program({}) == "interval:ms:4 { }\n"
    assert load(path).program({"step": 5}) == "interval:ms:5 { }\n"
    one["parameters"]["step"]["default"] = 10
    with pytest.raises(ManifestError, match=r"parameters\.step: default: .*from 1 to 9"):
        load(write(one))


# The shipped ones


def test_the_tiers_have_their_probes():
    assert {manifest.tier for manifest in ALWAYS} == {"A", "A'", "B", "C"}
    assert [manifest.name for manifest in SHIPPED] == sorted(manifest.name for manifest in SHIPPED)


@each_shipped
def test_every_parameter_of_the_script_is_declared_and_used(manifest):
    places = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", manifest.source))
    assert places == {parameter.name for parameter in manifest.parameters}


@each_shipped
def test_every_map_that_the_script_prints_is_declared_and_the_other_way_round(manifest):
    printed = set(re.findall(r"print\(@(\w+)\)", manifest.text))
    assert printed == {spec.name for spec in manifest.maps}


@each_shipped
def test_no_count_that_is_printed_loses_increments(manifest):
    """`@n++` on several CPUs does, `count()` does not (findings/bpftrace-counters-lose-increments.sh)."""
    printed, clause, lossy = {spec.name for spec in manifest.maps}, "", set()
    for line in manifest.text.splitlines():
        if re.match(r"[A-Za-z]", line):
            clause = line
        if not clause.startswith(("interval:", "BEGIN", "END")):
            lossy |= set(re.findall(r"@(\w+)(?:\[[^]]*\])*\s*(?:\+\+|--|[+-]=)", line))
    assert not lossy & printed


@each_always_on
def test_the_maximum_is_of_a_tick_beside_that_of_the_tick_before(manifest):
    name = f"{manifest.name}_max"
    assert [spec.name for spec in manifest.maps if spec.role == "max"] == [name]
    kept = rf"@{name}\[\$[ks] \| \(\$tick & 1\)\] = max\(\(\$tick << 32\) \| \$[tu]\);"
    assert len(re.findall(kept, manifest.text)) == 1
    assert len(re.findall(rf"@{name}\b", manifest.text)) == 2, "kept once, printed once, never cleared"


@each_always_on
def test_every_stage_is_measured_or_absent_with_a_reason(manifest):
    actual_missing_stages = missing_stages(manifest.stages, manifest.absent, manifest.includes)
    inside = {inner for stages in manifest.includes.values() for inner in stages}
    assert {*manifest.stages, *inside, *(missing_stage.name for missing_stage in actual_missing_stages)} == set(STAGES)
    assert all(missing_stage.reason for missing_stage in actual_missing_stages)


@each_shipped
def test_a_manifest_describes_only_its_own_stages(manifest):
    measured = set(manifest.stages)
    assert not measured & manifest.absent.keys()
    assert manifest.includes.keys() <= measured
    assert all(spec.rest_of in {"", *measured} for spec in manifest.maps)


@each_shipped
def test_the_hooks_are_those_of_the_script(manifest):
    script = manifest.text
    words = {parameter.name: parameter.words for parameter in manifest.parameters}
    hooks = re.findall(r"^((?:raw)?tracepoint:[\w:{}]+|kprobe:\w+)", script, re.MULTILINE)
    hooks += [hook for several in words.get("hooks", ()) for hook in several.split(", ")]
    named = {hook.partition(",")[0] for hook in manifest.hooks}
    choices = [{re.sub(r"\{\{\w+\}\}", word, hook) for word in words.get(_place(hook), ("",))} for hook in hooks]
    assert named <= set().union(*choices)
    assert all(choice & named for choice in choices)


def _place(hook):
    match = re.search(r"\{\{(\w+)\}\}", hook)
    return match and match[1]


@each_shipped
def test_the_scripts_that_it_needs_are_there(manifest):
    assert set(manifest.needs) <= {manifest.name for manifest in SHIPPED} - {manifest.name}


@each_shipped
def test_every_record_that_the_script_prints_is_declared_with_its_fields(manifest):
    script = manifest.text
    lines = re.findall(r'printf\(\s*"(\w+) ' + manifest.name + r' ([^"]*)\\n"', script)
    records = [(kind, fields.split()) for kind, fields in lines if kind not in {"ready", "tick", "last"}]
    assert {kind for kind, _ in records} == manifest.records.keys()
    for kind, fields in records:
        spec = manifest.records[kind]
        assert len(fields) == len(spec.fields) + bool(spec.text), kind


@each_always_on
def test_a_packed_key_is_taken_apart(manifest):
    parts = {part.name: part for part in manifest.keys[""]}
    key = (254 << 20 | 3) << 16 | 9 << 8 | 239
    found = {name: part.read(key) for name, part in parts.items() if name not in ("slot", "status")}
    assert found == {"dev": 254 << 20 | 3, "op": 9, "bucket": 239}


@each_shipped
def test_the_program_has_no_place_left(manifest):
    values = {p.name: p.words[0] if p.words else p.low for p in manifest.parameters if p.default is None}
    program = manifest.program(values)
    assert "{{" not in program
    for name in values:
        with pytest.raises(ManifestError, match=name):
            manifest.program({key: value for key, value in values.items() if key != name})


# Keys, records and names of codes


ON_DEMAND = {
    "keys": {
        "request": MINIMAL["key"],
        "thread": {
            "thread": {"shift": 8, "bits": 32, "decoder": "integer"},
            "bucket": {"shift": 0, "bits": 8, "decoder": "bucket"},
        },
        "at": {
            "vec": {"shift": 32, "bits": 8, "decoder": "integer"},
            "cpu": {"shift": 8, "bits": 16, "decoder": "integer"},
            "context": {"shift": 0, "bits": 8, "decoder": "integer"},
        },
    },
    "maps": {
        "tiny_all": {"role": "by_total", "stages": ["hba", "unaccounted"], "key": "request"},
        "tiny_off": {"role": "off", "key": "request"},
        "tiny_woken": {"role": "wakeup", "key": "thread"},
        "tiny_ran": {"role": "softirq_ran_in", "key": "at"},
        "tiny_raised": {"role": "softirq_raised_in", "key": "at", "contexts": ["irq", "other"]},
    },
    "paths": ["hard interrupt", "BLOCK softirq"],
    "unfollowed": ["batched completion"],
    "contexts": ["irq_exit", "timer"],
    "records": {
        "slow": {"fields": ["dev", "op", "rwbs", "total_us"], "text": "comm"},
        "handler": {"fields": ["handler", "irq"], "text": "name"},
    },
    "needs": ["big"],
    "group": "stages",
}


def on_demand(*path, value=None):
    tree = {key: value for key, value in MINIMAL.items() if key not in {"key", "latency_from"}} | ON_DEMAND
    tree = yaml.safe_load(yaml.safe_dump(tree, sort_keys=False))
    table = tree
    for key in path[:-1]:
        table = table.setdefault(key, {})
    if path and value is None:
        del table[path[-1]]
    elif path:
        table[path[-1]] = value
    return tree


def test_a_on_demand_manifest(write):
    manifest = load(write(on_demand()))
    assert (manifest.latency_from, manifest.needs, manifest.group) == ("", ("big",), "stages")
    by_total, off, woken, ran, raised = manifest.maps
    assert by_total.stages == ("hba", "unaccounted")
    assert manifest.stages == ("hba",)
    assert (off.role, off.part("dev").shift) == ("off", 16)
    assert [part.name for part in woken.key] == ["thread", "bucket"]
    assert (ran.contexts, raised.contexts) == (("irq_exit", "timer"), ("irq", "other"))
    assert manifest.records["slow"] == RecordSpec("slow", ("dev", "op", "rwbs", "total_us"), "comm")


def test_a_path_code_has_its_name(write):
    manifest = load(write(on_demand()))
    names = {code: manifest.path_name(code) for code in (-1, 0, 1, 2, 63, 64, 65, 10**9)}
    assert names == {
        -1: "",
        0: "hard interrupt",
        1: "BLOCK softirq",
        2: "",
        63: "",
        64: "batched completion",
        65: "",
        10**9: "",
    }


def test_an_unquoted_off_is_the_role(write):
    text = yaml.safe_dump(on_demand()).replace("'off'", "off")
    assert "role: off" in text
    assert load(write(text.encode())).maps[1].role == "off"


def test_a_single_layout_need_not_be_named(write):
    tree = on_demand("keys", value={"request": MINIMAL["key"]})
    tree["maps"] = {"tiny_all": {"role": "above"}}
    assert [part.name for part in load(write(tree)).maps[0].key] == ["dev", "op", "bucket"]


def test_a_map_that_names_no_layout_has_that_of_key(write):
    tree = on_demand("keys", value={"thread": {"thread": {"shift": 0, "bits": 31, "decoder": "integer"}}})
    tree["key"] = MINIMAL["key"]
    tree["maps"] = {"tiny_all": {"role": "above"}, "tiny_woken": {"role": "wakeup_sum", "key": "thread"}}
    names = [[part.name for part in spec.key] for spec in load(write(tree)).maps]
    assert names == [["dev", "op", "bucket"], ["thread"]]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("keys",), None, "manifest: key 'key' is missing"),
        (("keys", "thread", "colour"), {}, "keys.thread: unknown key 'colour'"),
        (("keys", "thread", "bucket"), None, "maps.tiny_woken: role wakeup needs bucket in its key"),
        (("maps", "tiny_woken", "key"), "nobody", "maps.tiny_woken: must be one of request, thread, at, not 'nobody'"),
        (("maps", "tiny_woken", "key"), None, "maps.tiny_woken: must name its key, one of request, thread, at"),
        (("maps", "tiny_woken", "key"), "at", "maps.tiny_woken: role wakeup needs thread, bucket in its key"),
        (("maps", "tiny_off", "role"), True, "maps.tiny_off: must be one of histogram"),
        (("maps", "tiny_ran", "contexts"), "irq", "maps.tiny_ran: must be a list"),
        (("group",), "always", "manifest: key 'latency_from' is missing"),
        (("group",), "deep", "group: must be one of always"),
        (("latency_from",), "birth", "latency_from: must be one of queued, issue"),
        (("records", "fast"), {"fields": []}, "records: unknown key 'fast'"),
        (("records", "slow", "fields"), ["dev", "colour"], "records.slow: must be one of request, dev"),
        (("records", "slow", "fields"), ["dev", "dev"], "records.slow: names a field twice"),
        (("records", "slow", "text"), "name", "records.slow: must be one of comm, not 'name'"),
        (("records", "handler"), {"text": "name"}, "records.handler: key 'fields' is missing"),
        (("paths",), ["x"] * 65, "paths: must have at most 64"),
        (("unfollowed",), [5], "unfollowed: must be text"),
        (("needs",), "big", "needs: must be a list"),
    ],
)
def test_a_wrong_key_of_a_on_demand_manifest_is_named(write, path, value, message):
    with pytest.raises(ManifestError, match=r"^tiny\.yaml: .*" + re.escape(message)):
        load(write(on_demand(*path, value=value)))


# Values that go into a script


def test_an_integer_parameter():
    parameter = Parameter("n", low=100, high=60_000)
    assert (parameter.check(100), parameter.check(60_000)) == ("100", "60000")
    for wrong in (99, 60_001, -1, "100", "100; system()", 100.0, True, None):
        with pytest.raises(ManifestError, match="parameter n takes an integer from 100 to 60000"):
            parameter.check(wrong)
    with pytest.raises(ManifestError):
        Parameter("n", low=0, high=1).check(True)


def test_a_word_parameter():
    parameter = Parameter("disk", words=("q->disk", "rq_disk"))
    assert parameter.check("rq_disk") == "rq_disk"
    for wrong in ("rq_disk ", "", "q->disk); system(1", 0):
        with pytest.raises(ManifestError, match="parameter disk takes one of q->disk, rq_disk"):
            parameter.check(wrong)


@given(st.integers(0, 63), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_a_part_reads_its_bits(shift, bits, key):
    assert KeyPart("x", shift, bits, "op").read(key) == int(f"{key:0200b}"[200 - shift - bits : 200 - shift], 2)


@pytest.mark.parametrize(
    ("number", "op"),
    [(0, "read"), (1, "write"), (2, "flush"), (3, "discard"), (5, "other"), (7, "write"), (9, "other"), (255, "other")],
)
def test_ops(number, op):
    assert op_name(number) == op


# Wrong ones


def test_the_smallest_manifest(write):
    manifest = load(write(MINIMAL))
    assert (manifest.name, manifest.parameters, manifest.notes, manifest.absent) == ("tiny", (), (), {})


@pytest.mark.parametrize("key", list(MINIMAL))
def test_a_missing_key(write, key):
    with pytest.raises(ManifestError, match=f"tiny.yaml: manifest: key '{key}' is missing"):
        load(write(changed(key, value=None)))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("colour",), "red", "manifest: unknown key 'colour'"),
        (("name",), "other", "name: must be the file's: tiny"),
        (("platform",), "plan9", "platform: must be one of linux, illumos, freebsd, portable, not 'plan9'"),
        (("cost",), ["cheap"], "cost: must be one of cheap"),
        (("clock",), 1, "clock: must be one of monotonic, boottime"),
        (("hooks",), "tracepoint:a:b", "hooks: must be a list"),
        (("hooks",), [1], "hooks: must be text"),
        (("purpose",), "  ", "purpose: must be text"),
        (("key",), ["dev"], "key: must be a table"),
        (("key", "dev"), 16, "key.dev: must be a table"),
        (("key", "op", "shift"), "8", "key.op: must be an integer"),
        (("key", "op", "shift"), -1, "key.op: must lie from 0 to 63"),
        (("key", "op", "bits"), 0, "key.op: must lie from 1 to 64"),
        (("key", "op", "bits"), 10**9, "key.op: must lie from 1 to 64"),
        (("key", "op", "bits"), True, "key.op: must be an integer"),
        (("key", "op", "decoder"), "pid", "key.op: must be one of dev_t, op, bucket"),
        (("key", "op"), None, "key: key 'op' is missing"),
        (("maps",), [], "maps: must be a table"),
        (("maps", "other_all"), {"role": "bytes"}, "maps.other_all: a map's name begins with tiny_"),
        (("maps", 5), {"role": "bytes"}, "maps.5: a map's name begins with tiny_"),
        (("maps", "tiny_all"), {"role": "median"}, "maps.tiny_all: must be one of histogram"),
        (("maps", "tiny_all"), {"role": "histogram"}, "histogram, sum, max, by_total feed stages"),
        (("maps", "tiny_all", "role"), "bytes", "histogram, sum, max, by_total feed stages"),
        (("maps", "tiny_all", "stages"), ["nirvana"], "maps.tiny_all: must be one of queue"),
        (("maps", "tiny_all", "rest_of"), "nirvana", "maps.tiny_all: must be one of queue"),
        (("maps", "tiny_all", "functions"), {"f": "x"}, "cause and file_asleep have functions, nothing else has"),
        (("maps", "tiny_all", "skips"), ["f"], "a completer and a raiser have skips, nothing else has"),
        (("maps", "tiny_all", "slot"), 0, "maps.tiny_all: unknown key 'slot'"),
        (("absent",), {"nirvana": "why"}, "absent: unknown key 'nirvana'"),
        (("absent",), {"irq": ""}, "absent.irq: must be text"),
        (("includes",), {"hba": ["nirvana"]}, "includes.hba: must be one of"),
        (("parameters",), {"n": {"type": "float"}}, "parameters.n: must be one of integer, word"),
        (("parameters",), {"n": {"type": "integer", "low": 1}}, "parameters.n: must be an integer"),
        (("parameters",), {"n": {"type": "word"}}, "parameters.n: must be a list"),
        (("notes",), "one", "notes: must be a list"),
    ],
)
def test_a_wrong_key_is_named(write, path, value, message):
    with pytest.raises(ManifestError, match=r"^tiny\.yaml: .*" + re.escape(message)):
        load(write(changed(*path, value=value)))


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"- 1", b"\xff", b"a: b: c", b"{", b"purpose: 2026-02-31", b"x: !!bool x", b"x: !!timestamp x"),
        *(b"x: !!int x", b"? [a]\n: b", b"!!python/object/apply:os.system [id]", b"&a [*a]", b"[" * 5000),
        *(b"x: 0b_", b"x: " + b"9" * 5000, b"\0", b"a: 1\n---\nb: 2"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(write, text):
    with pytest.raises(ManifestError, match=r"^tiny\.yaml: ") as refusal:
        load(write(text))
    assert "\n" not in str(refusal.value)


def test_a_bomb_of_aliases_costs_nothing(write):
    rows = [b"a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)]
    with pytest.raises(ManifestError, match="aliases are not allowed"):
        load(write(b"\n".join(rows)))


def test_a_key_that_is_there_twice(write):
    tree = yaml.safe_dump(changed("cost", value="cheap")).encode()
    with pytest.raises(ManifestError, match=r"^tiny\.yaml: .*key 'cost' is there twice"):
        load(write(tree + b"cost: moderate\n"))


def variant(directory, **keys):
    """A manifest beside `tiny` that extends it."""
    (directory / "other.bt").write_text("BEGIN { }\n")
    path = directory / "other.yaml"
    path.write_text(yaml.safe_dump({"name": "other", "extends": "tiny", **keys}))
    return path


def evaluated(program, name, value):
    """The bucket that the program's expanded macro computes, by Python."""
    lines = [line.strip().replace("$", "") for line in program.splitlines() if "$" in line]
    text = "\n".join(line.replace("(uint64)", "") for line in lines)
    text = re.sub(r"if \((.+?)\) \{ (.+) \}", r"if \1: \2", text)
    text = re.sub(r"\((\d+ - v)\)", r"(\1 & 0xffffffffffffffff)", text)
    known = {name: value}
    exec(text, {}, known)
    return known["i" if "i" in known else "b"]


@pytest.mark.parametrize("script", MACROS)
@given(value=st.integers(0, 2**32 - 1))
def test_the_bucket_macros_are_latmons_bucket_index(script, value):
    shipped = next(manifest for manifest in SHIPPED if manifest.name == script)
    program = shipped.program(
        {p.name: p.words[0] if p.words else p.low for p in shipped.parameters if p.default is None}
    )
    macro = re.search(MACROS[script], program, re.MULTILINE)
    assert evaluated(macro[0], macro[1], value) == bucket_index(value)
    assert "bucket(" not in program


DIFFERENCE_IN_US = re.compile(r"\(\$?[\w.]+ - \$?[\w.]+\) / 1000")


def elapsed_us(begin_ns, end_ns):
    """Evaluate the macro's expansion by Python."""
    expanded = manifest_module._ELAPSED.sub(manifest_module._US_BETWEEN, "elapsed_us($begin, $end)")
    return eval(expanded.replace("$", "").replace("/", "//"), {"begin": begin_ns, "end": end_ns})


@given(begin_ns=st.integers(0, 2**62), parts_ns=st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
def test_times_between_consecutive_stamps_add_up_to_the_time_between_the_outer_ones(begin_ns, parts_ns):
    stamps = [begin_ns, *(begin_ns + sum(parts_ns[: count + 1]) for count in range(len(parts_ns)))]
    assert sum(map(elapsed_us, stamps, stamps[1:])) == elapsed_us(stamps[0], stamps[-1])


@pytest.mark.parametrize("length_ns", [300, 2_500, 4_999, 13_200])
def test_a_time_between_two_stamps_is_right_on_average(length_ns):
    """Over all phases of the clock within its microsecond; (end - begin) // 1000 would be 0.3 to 0.999 us low."""
    times_us = [elapsed_us(begin_ns, begin_ns + length_ns) for begin_ns in range(1000)]
    assert sum(times_us) * 1000 == length_ns * len(times_us)


@each_shipped
def test_no_script_truncates_the_difference_of_two_stamps(manifest):
    assert not DIFFERENCE_IN_US.findall(manifest.source)
    assert "elapsed_us" not in manifest.source, "each use of the macro was expanded"


def test_a_variant_lists_its_differences(write, tmp_path):
    parameters = {"step": {"type": "integer", "low": 1, "high": 2}, "gone": {"type": "integer", "low": 1, "high": 2}}
    parent = load(write({**MINIMAL, "parameters": parameters, "notes": ["one"], "absent": {"irq": "a", "hba": "b"}}))
    path = variant(
        tmp_path,
        tier="C",
        notes=["two"],
        latency_from=None,
        group="stages",
        parameters={"gone": None, "step": {"type": "integer", "low": 3, "high": 4}},
        maps={"other_bytes": {"role": "bytes"}},
        absent={"irq": "c"},
    )
    manifest = load(path)
    assert (manifest.name, manifest.tier, manifest.notes, manifest.latency_from) == ("other", "C", ("two",), "")
    assert (manifest.purpose, manifest.hooks, manifest.keys) == (parent.purpose, parent.hooks, parent.keys)
    assert manifest.parameters == (Parameter("step", 3, 4),), "an entry is replaced as a whole"
    assert [spec.name for spec in manifest.maps] == ["other_all", "other_bytes"], "the parent's maps get its name"
    assert manifest.absent == {"irq": "c", "hba": "b"}
    assert set(manifest.files) == {path, tmp_path / "other.bt", parent.path}
    assert parent == load(tmp_path / "tiny.yaml")


def derived(directory, script, text="BEGIN { }\n"):
    """A manifest that extends `tiny` and has no script of its own, but changes of its parent's."""
    path = variant(directory, script=script)
    path.with_suffix(".bt").unlink()
    (directory / "tiny.bt").write_text(text)
    return path


def test_a_variant_without_a_script_changes_its_parents(write, tmp_path):
    write(MINIMAL)
    text = "// tiny\nkprobe:a { @tiny_all = count(); }\nEND { print(@tiny_all); }\n"
    manifest = load(derived(tmp_path, {"kprobe:a": "kprobe:b", "count()": "sum(1)"}, text))
    assert manifest.source == "kprobe:b { @other_all = sum(1); }\nEND { print(@other_all); }\n"
    assert set(manifest.files) == {tmp_path / one for one in ("other.yaml", "tiny.yaml", "tiny.bt")}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({"nowhere": "x"}, "other.yaml: script: tiny.bt has no 'nowhere'"),
        ({"BEGIN": 1}, "other.yaml: script: must be a table of texts and their replacements"),
        (["BEGIN"], "other.yaml: script: must be a table of keys"),
    ],
)
def test_changes_that_cannot_be_made(write, tmp_path, script, why):
    write(MINIMAL)
    with pytest.raises(ManifestError, match=f"^{re.escape(why)}"):
        load(derived(tmp_path, script)).source  # noqa: B018  it is made here


def test_changes_without_a_parent(write):
    with pytest.raises(ManifestError, match="script: replaces texts of a parent's script, and it extends none"):
        load(write({**MINIMAL, "script": {"BEGIN": "END"}}))


def test_a_variant_of_a_variant(write, tmp_path):
    write(MINIMAL)
    variant(tmp_path, tier="C")
    (tmp_path / "third.bt").write_text("BEGIN { }\n")
    (tmp_path / "third.yaml").write_text("name: third\nextends: other\nclock: boottime\n")
    manifest = load(tmp_path / "third.yaml")
    assert (manifest.tier, manifest.clock, [spec.name for spec in manifest.maps]) == ("C", "boottime", ["third_all"])


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("none", "other.yaml: extends: there is no manifest 'none' in its directory"),
        ("../tiny", "other.yaml: extends: there is no manifest '../tiny' in its directory"),
        (["tiny"], "other.yaml: extends: must be text"),
        ("other", "other.yaml: extends: a cycle, other extends other"),
    ],
)
def test_a_variant_without_its_parent(write, tmp_path, parent, message):
    write(MINIMAL)
    with pytest.raises(ManifestError, match=re.escape(message)):
        load(variant(tmp_path, extends=parent))


def test_two_manifests_that_extend_each_other(write, tmp_path):
    path = write({**MINIMAL, "extends": "other"})
    for one in (path, variant(tmp_path)):
        with pytest.raises(ManifestError, match="extends: a cycle"):
            load(one)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tier": None}, "other.yaml: manifest: key 'tier' is missing"),
        ({"nonsense": 1}, "other.yaml: manifest: unknown key 'nonsense'"),
        ({"maps": {"tiny_more": {"role": "bytes"}}}, "other.yaml: maps.tiny_more: a map's name begins with other_"),
        ({"maps": ["tiny"]}, "other.yaml: maps: must be a table of keys"),
    ],
)
def test_a_wrong_variant_is_named_with_its_key(write, tmp_path, keys, message):
    write(MINIMAL)
    with pytest.raises(ManifestError, match=re.escape(message)):
        load(variant(tmp_path, **keys))


def test_a_variant_of_no_manifest(write, tmp_path):
    for text, message in (("- 1\n", r"tiny\.yaml is not a table of keys"), ("a: [\n", r"tiny\.yaml: not YAML")):
        write(text.encode())
        with pytest.raises(ManifestError, match=message):
            load(variant(tmp_path))


@pytest.mark.parametrize("key", ["needs", "unless"])
def test_a_partner_that_is_not_there(write, key):
    path = write(changed(key, value=["nobody"]))
    with pytest.raises(ManifestError, match=r"^tiny\.yaml: .*there is no probe 'nobody'"):
        load_all(path.parent)


def test_a_file_that_is_too_large(write):
    with pytest.raises(ManifestError, match="larger than 64 KiB"):
        load(write(b"#" * (MAX_BYTES + 1)))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ManifestError, match=r"none\.yaml: No such file"):
        load(tmp_path / "none.yaml")


def test_a_manifest_without_its_script(write):
    path = write(MINIMAL)
    path.with_suffix(".bt").unlink()
    with pytest.raises(ManifestError, match=r"no script tiny\.bt beside it"):
        load(path)


SPLINTERS = (*YAML_SPLINTERS, b"extends: tiny\n", b"../../etc/passwd", b"shift", b"maps:", b"script: {a: b}\n")


@pytest.mark.parametrize(("seed", "count"), cases(300))
def test_a_mutated_manifest_is_read_or_refused_by_its_file(write, seed, count):
    text, draw, refusals = yaml.safe_dump(MINIMAL, sort_keys=False).encode(), Random(seed), []
    path = write(text)
    for _ in range(count):
        path.unlink()  # ext4 writes a file to the disk that is truncated and closed
        path.write_bytes(mutated(text, draw, [text], SPLINTERS))
        try:
            load(path)
        except ManifestError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < count
    assert all("tiny.yaml" in refusal for refusal in refusals)
