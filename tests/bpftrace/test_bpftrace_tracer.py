"""Each host gets its on-demand scripts, whose texts become one program."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from latmon.capture.backend import Options
from latmon.support.errors import ManifestError
from latmon.support.host import cpus
from latmon_backends.bpftrace import tracer
from latmon_backends.bpftrace.program import BpftraceProgram, Tracepoints, hooks_of
from latmon_backends.bpftrace.tracer import (
    ScriptInventory,
    _system_calls,
    choose,
    on_demand_manifests,
    sampling,
    script,
    stem,
    with_found,
)
from latmon_backends.probe.launcher import Script

FOUND = on_demand_manifests()
NAMES = {one.name for one in FOUND}
VALUES = {
    **dict.fromkeys(("any_dev", "one_in"), 1),
    **{f"skip{n}": n for n in range(8)},
    "step_ms": 200,
    "sample_us": 1000,
    "read_one_in": 1,
    "gate_ns": 900_000_000,
    "threshold_us": 0,
    **dict.fromkeys(("slots", "sync", "ahead"), 16),
    "coarse": 0,
}
WORDS = {"timer_context": (1,), **_system_calls("x86_64")}


def everything(_hook):
    return True


def nothing_known(_hook):
    return None


def without(*events):
    return lambda hook: hook.rpartition(":")[2] not in events


NAMES_OF_PATHS = {"names_ext4", "names_fuse", "names_xfs"}
"""They run where file_systems can't."""


def names(choice):
    return [manifest.name for manifest in choice.manifests]


def missing(choice):
    return {one.name: one.reason for one in choice.missing}


@pytest.mark.parametrize("has", [everything, nothing_known])
def test_with_raw_tracepoints_the_better_variants(has):
    chosen = names(choose(FOUND, "A", has, WORDS))
    # Its part of a completion comes first.
    assert chosen[:2] == ["inflight_a", "stages_a"]
    assert {stem(name) for name in chosen} == {stem(name) for name in NAMES} - {
        "who",
        "names_ext4",
        "names_fuse",
        "names_xfs",
    }
    better = {stem(manifest.name) for manifest in FOUND if manifest.tier == "A"}
    assert all(name.endswith("_a") for name in chosen if stem(name) in better)


@pytest.mark.parametrize("tier", ["B", "C"])
def test_without_them_the_lesser_and_why(tier):
    choice = choose(FOUND, tier, everything, WORDS)
    assert names(choice) == [name for name in names(choice) if name.endswith("_c")]
    assert "stages_c" in names(choice)
    assert "needs tier A" in missing(choice)["workers"]


def test_a_refused_script_gives_way_to_its_lesser_variant_and_takes_along_what_needs_it():
    choice = choose(FOUND, "A", everything, WORDS, {"stages_a": "too large"})
    assert "stages_c" in names(choice)
    assert not [manifest for manifest in choice.manifests if "stages_a" in manifest.needs]
    assert missing(choice)["workers"] == "needs stages_a"


def test_admission_comes_after_the_stages_and_is_missing_without_raw_tracepoints():
    chosen = names(choose(FOUND, "A", everything, WORDS))
    assert chosen.index("stages_a") < chosen.index("admission_a")
    assert "admission_ap" in names(choose(FOUND, "A", without("submit_bio_noacct"), WORDS))
    assert missing(choose(FOUND, "C", everything, WORDS))["admission"].startswith("needs tier A")


def test_a_kernel_without_a_tracepoint():
    choice = choose(FOUND, "A", without("irq_handler_exit"), WORDS)
    assert not {"irqs_a", "irqs_c"} & set(names(choice))
    assert missing(choice)["irqs"] == "this kernel has no tracepoint irq:irq_handler_exit"


@pytest.mark.parametrize("tier", ["A", "C"])
def test_without_kprobes_the_tracepoints_of_file_systems_tell_where_a_path_leads(tier):
    def has(hook):
        return not hook.startswith("kprobe:") and not hook.endswith("fuse_request_send")

    choice = choose(FOUND, tier, has, WORDS)
    letter = tier.lower()
    assert [
        name for name in names(choice) if stem(name) in ("file_systems", "names_ext4", "names_fuse", "names_xfs")
    ] == [
        f"names_ext4_{letter}",
        f"names_xfs_{letter}",
    ]
    assert missing(choice)["file_systems"] == "this kernel has no kprobes"
    assert missing(choice)["names_fuse"] == "this kernel has no tracepoint fuse:fuse_request_send"
    assert not NAMES_OF_PATHS & missing(choose(FOUND, tier, everything, WORDS)).keys()


def test_a_script_that_costs_too_much_on_many_cpus_gives_way_to_a_lesser_one():
    dear = [replace(manifest, max_cpus=16) if manifest.name == "inflight_a" else manifest for manifest in FOUND]
    choice = choose(dear, "A", everything, WORDS, cpus=10_000)
    assert missing(choice)["inflight"].startswith("costs too much on more than ")
    assert {"stages_a", "who_a"} < set(names(choice))


def test_sums_are_read_more_seldom_where_that_costs_more():
    assert sampling(16) == {"sample_us": 3719, "read_one_in": 1}
    assert sampling(64) == {"sample_us": 14_876, "read_one_in": 4}
    assert sampling(100_000) == {"sample_us": 200_000, "read_one_in": 1024}


def test_what_another_script_does_as_well_is_neither_chosen_nor_missing():
    choice = choose(FOUND, "A", everything, WORDS, cpus=2)
    assert "inflight_a" in names(choice)
    assert "who" not in {*missing(choice), *map(stem, names(choice))}
    assert "who_a" in names(choose(FOUND, "A", everything, WORDS, {"inflight_a": "Cannot cast"}))


CPUS = [("0-3\n", {0, 1, 2, 3}), ("0\n", {0}), ("0,2-5\n", {0, 2, 3, 4, 5}), ("", set()), ("none\n", set())]


@pytest.mark.parametrize(("text", "found"), CPUS)
def test_which_cpus_there_are(tmp_path, text, found):
    assert cpus("online", tmp_path) == set()
    directory = tmp_path / "devices/system/cpu"
    directory.mkdir(parents=True)
    (directory / "online").write_text(text)
    assert cpus("online", tmp_path) == found
    (directory / "possible").write_text(text)
    assert ScriptInventory(Options(sys=tmp_path)).cpus == (len(found) or None)


def test_what_a_script_needs_stands_before_it():
    chosen = names(choose(FOUND, "A", everything, WORDS))
    for manifest in FOUND:
        if manifest.name in chosen:
            assert all(chosen.index(need) < chosen.index(manifest.name) for need in manifest.needs), manifest.name


def test_a_word_is_chosen_by_what_the_kernel_has():
    stages = next(manifest for manifest in FOUND if manifest.name == "stages_c")
    assert "block_io_start" in script(stages, everything, WORDS, VALUES).text()
    old = script(stages, without("block_io_start"), WORDS, VALUES).text()
    assert "tracepoint:block:block_getrq" in old
    assert "block_io_start" not in old


def test_what_the_always_on_probe_found_is_better_than_a_guess():
    stages = next(manifest for manifest in FOUND if manifest.name == "stages_a")
    found = with_found({"disk": ("q->disk", "bi_disk")}, {"disk": "rq_disk"})
    assert "rq_disk" in script(stages, everything, found, VALUES).text()


def test_an_unknown_value_is_reported():
    stages = next(manifest for manifest in FOUND if manifest.name == "stages_c")
    with pytest.raises(ManifestError, match="known for one_in"):
        script(stages, everything, WORDS, {name: value for name, value in VALUES.items() if name != "one_in"})


# One program of many scripts


@pytest.mark.parametrize("tier", ["A", "C"])
def test_one_program_has_one_begin_and_one_end(tier):
    chosen = choose(FOUND, tier, everything, WORDS).manifests
    program = BpftraceProgram(tuple(script(manifest, everything, WORDS, VALUES) for manifest in chosen), 4096)
    text = program.text()
    assert len(re.findall(r"^BEGIN", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^END", text, re.MULTILINE)) == 1
    assert "{{" not in text
    assert len(text) < 128 * 1024, "one argument of a command line holds no more"
    for current_manifest in chosen:
        assert (f"tick {current_manifest.name} " in text) == bool(current_manifest.maps), current_manifest.name
    depth = 0
    for char in re.sub(r'"[^"\n]*"', "", text):
        depth += (char == "{") - (char == "}")
        assert depth >= 0
    assert depth == 0


def test_hooks_are_those_of_the_text():
    manifest = next(manifest for manifest in FOUND if manifest.name == "softirqs_c")
    words = {"timer_entry": ("irq:irq_handler_entry",), "timer_exit": ("irq:irq_handler_exit",), "timer_context": (0,)}
    hooks = hooks_of(script(manifest, everything, words, VALUES))
    assert "tracepoint:irq_vectors:local_timer_entry" not in hooks
    assert hooks.count("tracepoint:irq:softirq_raise") == 1


@pytest.mark.parametrize("tier", ["A", "C"])
def test_no_program_uses_more_maps_than_the_kernel_lets_it(tier):
    """MAX_USED_MAPS is 64, and bpftrace 0.23 adds up to four. clear() and print() are user space's."""
    chosen = choose(FOUND, tier, everything, WORDS).manifests
    text = BpftraceProgram(tuple(script(manifest, everything, WORDS, VALUES) for manifest in chosen), 4096).text()
    blocks = re.sub(r"(?:clear|print)\(@\w+\)", "", text).split("\n}\n")
    assert {"BEGIN", "END"} <= {block.split()[0] for block in blocks if block.strip()}
    for block in blocks:
        assert len(set(re.findall(r"@\w+", block))) <= 60, block[:60]


def test_a_line_reports_its_script(monkeypatch):
    chosen = choose(FOUND, "C", everything, WORDS).manifests
    program = BpftraceProgram(tuple(script(manifest, everything, WORDS, VALUES) for manifest in chosen), 4096)
    text = program.text()  # made once: each question would make it again
    monkeypatch.setattr(BpftraceProgram, "text", lambda _: text)
    lines = enumerate(text.splitlines(), 1)
    owners = {at: owner[1] for at, line in lines if (owner := re.search(r"@([a-z]+_c)_", line))}
    borders = [pair for pair in pairwise(owners) if owners[pair[0]] != owners[pair[1]]]
    assert len(borders) >= len(chosen)
    for at in {at for pair in borders for at in pair}:
        assert program.script_at(at).manifest.name == owners[at]
    assert program.script_at(0) is None
    assert program.script_at(10**6) is None


def test_a_list_of_hooks_is_several():
    class Two:
        @staticmethod
        def program(_values):
            return "tracepoint:a:b,\nrawtracepoint:c\n{\n}\nkprobe:d, kprobe:e { }\ninterval:ms:5 { }\n"

    assert hooks_of(Script(Two(), {})) == ("tracepoint:a:b", "rawtracepoint:c", "kprobe:d", "kprobe:e")


# What the kernel has


@pytest.fixture
def sys(tmp_path):
    (tmp_path / "kernel/btf").mkdir(parents=True)
    (tmp_path / "kernel/btf/vmlinux").write_bytes(b"\0btf_trace_block_rq_issue\0bi_disk\0")
    (tmp_path / "kernel/btf/nvme").write_bytes(b"\0btf_trace_nvme_sq\0")
    return tmp_path


def test_tracefs_knows_exactly(sys):
    (sys / "kernel/tracing/events/block/block_rq_issue").mkdir(parents=True)
    tracepoints = Tracepoints(sys)
    asked = ("tracepoint:block:block_rq_issue", "rawtracepoint:block_rq_issue", "tracepoint:nvme:nvme_sq", "kprobe:x")
    assert [tracepoints.has(hook) for hook in asked] == [True, True, False, False]
    (sys / "kernel/kprobes").mkdir()
    assert tracepoints.has("kprobe:x") is None


def test_without_tracefs_the_kernels_types_and_its_modules_report(sys):
    (sys / "kernel/tracing").mkdir()
    tracepoints = Tracepoints(sys)
    asked = ("tracepoint:block:block_rq_issue", "rawtracepoint:nvme_sq", "tracepoint:scsi:scsi_dispatch_cmd_done")
    assert [tracepoints.has(hook) for hook in asked] == [True, True, False]
    assert "bi_disk" in tracepoints


def test_without_both_one_has_to_try(tmp_path):
    assert Tracepoints(tmp_path).has("tracepoint:block:block_rq_issue") is None


def test_a_timer_without_tracepoints_is_another_kernels(sys):
    words = tracer.words(Tracepoints(sys), sys, "x86_64")
    assert (words["timer_entry"][0], words["timer_context"]) == ("irq:irq_handler_entry", (0,))
    unknown = sys / "unknown"
    assert tracer.words(Tracepoints(unknown), unknown, "x86_64")["timer_context"] == (1,)
    assert tracer.words(Tracepoints(unknown), unknown, "s390x")["timer_context"] == (0,)
