"""The variants and their order, on hosts that have this and lack that."""

import re
from pathlib import Path

import pytest
from synthetic_btf import kernel

from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace.program import Variant, has_kprobes, is_for, lacking, of_remote, pointers, variants
from latmon_backends.tracer.programs import pace

ALWAYS = ["block_a q->disk", "block_a rq_disk"]
MEMBERS = [
    "Struct/union of type 'struct request_queue' does not contain a field named 'disk'",
    "struct request has no member named 'rq_disk'",
]
STAMPS = ["Struct/union of type 'struct request' does not contain a field named 'io_start_time_ns'"]
OTHERS = ["Invalid probe type made it to attachpoint parser", "bpftrace ended with status 1"]


@pytest.fixture
def host(tmp_path):
    """A /sys with a kernel's BTF and kprobes, or without."""

    def made(*issue, kprobes=False):
        (tmp_path / "kernel/btf").mkdir(parents=True)
        if issue:
            (tmp_path / "kernel/btf/vmlinux").write_bytes(kernel(*issue))
        if kprobes:
            (tmp_path / "bus/event_source/devices/kprobe").mkdir(parents=True)
        return tmp_path

    return made


def names(sys):
    return [variant.name for variant in variants(1000, 0, sys)]


def test_without_btf_and_kprobes(host):
    assert names(host()) == [*ALWAYS, "block_c"]


@pytest.mark.parametrize(("issue", "request_is"), [(("rq",), "arg0"), (("q", "rq"), "arg1")])
def test_with_btf_the_request_is_the_argument_that_btf_says(host, issue, request_is):
    sys = host(*issue)
    actual_variants = {variant.name: variant for variant in variants(1000, 0, sys)}
    expected = [f"block_ap q->disk {request_is}", f"block_ap rq_disk {request_is}"]
    assert list(actual_variants) == [*ALWAYS, *expected, "block_c"]
    program = actual_variants[expected[1]].text()
    assert f"@block_ap_start[{request_is}] = nsecs(monotonic)" in program
    assert "$rq->rq_disk" in program
    assert "q->disk" not in program
    assert "@block_ap_start[arg0]" in program  # of the completion, whose first argument it always is


def test_with_kprobes(host):
    actual_names = names(host(kprobes=True))
    assert actual_names[:2] == ALWAYS
    assert actual_names[-1] == "block_c"
    assert [name.split()[0] for name in actual_names[2:-1]] == ["block_b"] * 4
    assert "nvme_complete_batch_req" in actual_names[2]
    assert "nvme_complete_batch_req" not in actual_names[3]


def test_the_variants_of_one_manifest(host):
    sys = host("q", "rq", kprobes=True)
    all_names = names(sys)
    manifests = dict.fromkeys(name.partition(" ")[0] for name in all_names)
    assert [variant.name for name in manifests for variant in variants(1000, 0, sys, manifest=name)] == all_names
    assert not list(variants(1000, 0, sys, manifest="block_z"))


def test_every_program_has_its_values(host):
    for variant in variants(250, 123_456_789, host("q", "rq", kprobes=True)):
        program = variant.text()
        assert "interval:ms:83" in program
        assert ">= 209000000)" in program
        assert "{{" not in program
        if variant.manifest.tier == "B":
            assert "nsecs - 123456789" in program


@pytest.mark.parametrize(
    ("interval_ms", "step_ms", "gate_ms"),
    [(100, 100, 50), (200, 200, 100), (250, 125, 188), (1000, 200, 900), (60000, 200, 59900)],
)
def test_a_script_wakes_often_enough_and_prints_once_an_interval(interval_ms, step_ms, gate_ms):
    assert pace(interval_ms) == {"step_ms": step_ms, "gate_ns": gate_ms * 10**6}


@pytest.mark.parametrize("refusal", MEMBERS)
def test_where_the_disk_is_elsewhere_the_next_variant_looks_there(refusal):
    _, second, *_ = variants(1000, 0)
    assert second.only_after.search(refusal)


@pytest.mark.parametrize("refusal", [*STAMPS, *OTHERS])
def test_any_other_refusal_spares_the_attempt(refusal):
    _, second, *_ = variants(1000, 0)
    assert not second.only_after.search(refusal)


def tried(sys, refuse):
    """The variants that are tried, by the rule of `only_after`; `refuse`: variant -> its refusal."""
    done, before = [], ""
    for variant in variants(1000, 0, sys):
        if variant.only_after is not None and not variant.only_after.search(before):
            continue
        done.append(variant.name)
        before = refuse(variant)
        if before is None:
            return done
    return done


def test_a_bpftrace_without_raw_tracepoints_gets_to_the_last_at_once(host):
    refuse = lambda variant: None if variant.manifest.tier == "C" else OTHERS[0]  # noqa: E731 - one line
    assert tried(host("rq"), refuse) == ["block_a q->disk", "block_c"]


def test_a_kernel_without_stamps(host):
    refuse = lambda variant: STAMPS[0] if variant.manifest.tier == "A" else None  # noqa: E731
    assert tried(host("rq"), refuse) == ["block_a q->disk", "block_ap q->disk arg0"]


def old_kernel(variant: Variant):
    """RHEL 8 of old: no stamp, the disk in the request; the compiler names what it meets first."""
    if variant.manifest.tier == "A":
        return STAMPS[0]
    return None if variant.values.get("disk") == "rq_disk" or variant.manifest.tier == "C" else MEMBERS[0]


def test_a_kernel_without_stamps_and_with_the_disk_elsewhere(host):
    assert tried(host("q", "rq"), old_kernel)[-1] == "block_ap rq_disk arg1"


def test_pointers_alone(host):
    assert next(variant.only_after for variant in pointers(1000, host("rq"))) is None


def test_kprobes_are_looked_for_and_not_guessed(tmp_path):
    assert not has_kprobes(tmp_path)
    (tmp_path / "kernel/kprobes").mkdir(parents=True)
    assert has_kprobes(tmp_path)


STAMPED = {"vmlinux", "io_start_time_ns"}
BATCH = "nvme_complete_batch_req"


@pytest.mark.parametrize(
    ("version", "types", "first", "why"),
    [
        ("0.19.1", STAMPED, "block_a q->disk", ""),
        ("0.27.1", {*STAMPED, "rq_disk"}, "block_a rq_disk", ""),
        ("0.17.0", STAMPED, "block_b q->disk kprobe:blk_update_request", "bpftrace 0.19 or newer, and this is 0.17.0"),
        ("0.17.0", {*STAMPED, "rq_disk", BATCH}, f"block_b rq_disk kprobe:blk_update_request, kprobe:{BATCH}", "0.19"),
        ("0.23.2", {"vmlinux"}, "block_c", "a stamp of their issue"),
        ("0.23.2", set(), "block_c", "BTF"),
        ("", STAMPED, "block_b q->disk kprobe:blk_update_request", "0.19"),
    ],
)
def test_facts_about_another_host_decide_what_is_tried_there(host, version, types, first, why):
    tool, all_variants = remote_tool(version=f"bpftrace v{version or '0.1'}"), [*variants(1000, 0, host(kprobes=True))]
    fitting = [variant for variant in all_variants if not lacking(variant, tool, types) and is_for(variant, types)]
    assert fitting[0].name == first
    assert fitting[-1].name == "block_c"
    assert len({variant.manifest.name for variant in fitting}) == len(fitting)
    assert why in lacking(all_variants[0], tool, types)


def remote_tool(**facts: str):
    return of_remote({"bpftrace": "/usr/bin/bpftrace", "cpus": "4", "ahead": "0", **facts}, 8)


def test_the_tool_of_another_host_is_as_its_shell_reports():
    tool = remote_tool(version="bpftrace v0.23.2", tracefs="tracefs")
    assert (tool.version, tool.sudo, tool.mount_tracefs) == ("0.23.2", False, False)
    assert tool.command("BEGIN { }")[:2] == ["sh", "-c"]
    tool = remote_tool(version="bpftrace v0.23.2", rights="sudo")
    assert (tool.sudo, tool.mount_tracefs) == (True, True)
    assert tool.command("BEGIN { }")[:2] == ["sudo", "-n"]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"denied": ""}, "there is no sudo"),
        ({"denied": "sudo: a password is required"}, "a password is required.*NOPASSWD"),
        ({"version": "hello"}, "prints no version"),
        ({"version": "bpftrace v0.23.2", "ahead": ""}, "timer_list"),
        ({"version": "bpftrace v0.23.2", "ahead": "9" * 300}, "timer_list"),
    ],
)
def test_another_host_without_what_a_probe_needs(facts, why):
    with pytest.raises(UnavailableError, match=why):
        remote_tool(**facts)


@pytest.mark.skipif(not Path("/sys/kernel/btf/vmlinux").exists(), reason="this kernel has no BTF")
def test_the_list_for_this_host():
    names = [variant.name for variant in variants(1000, 0)]
    assert re.match("block_a ", names[0])
    assert names[-1] == "block_c"


def test_a_clock_is_reported_again_only_to_who_must_know(host):
    actual_variants = {variant.manifest.name: variant for variant in variants(1000, 5, host("q", "rq", kprobes=True))}
    assert "nsecs - 7;" in actual_variants["block_b"].with_clock(7).text()
    assert actual_variants["block_c"].with_clock(7) == actual_variants["block_c"]
