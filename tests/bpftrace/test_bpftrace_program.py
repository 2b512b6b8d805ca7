"""The right bpftrace is run with the right privileges, and its errors become one sentence."""

import re
from pathlib import Path

import pytest

from latmon.manifest import load
from latmon.support.errors import UnavailableError
from latmon.support.paths import data_dir
from latmon.support.text import clean, is_clean
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.program import (
    BpftraceProgram,
    BpftraceTool,
    find,
    is_privilege,
    map_keys,
    reason,
    version,
)
from latmon_backends.probe.launcher import Script

GOLDEN = Path(__file__).resolve().parents[1] / "golden/bpftrace"
REFUSALS = sorted(
    path for path in GOLDEN.glob("*/*.err") if path.with_suffix(".rc").read_text().strip() in ("1", "134")
)
NOT_ROOT = {
    "0.17.0": "ERROR: bpftrace currently only supports running as the root user.",
    "0.27.1": "ERROR: Missing CAP_DAC_READ_SEARCH capability, please run bpftrace as the root user.",
}


@pytest.fixture
def proc(tmp_path):
    """A /proc whose mounts are these file systems."""

    def made(*kinds):
        (tmp_path / "proc/self").mkdir(parents=True)
        lines = [f"none /mounted/{kind} {kind} rw 0 0\n" for kind in ("proc", *kinds)]
        (tmp_path / "proc/self/mounts").write_text("".join(lines))
        return tmp_path / "proc"

    return made


@pytest.fixture
def tool(tmp_path):
    """A program that prints the version of bpftrace 0.23.2."""

    def made(directory="bin", says="bpftrace v0.23.2"):
        path = tmp_path / directory / "bpftrace"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho '{says}'\n")
        path.chmod(0o755)
        return path

    return made


@pytest.fixture(autouse=True)
def no_tool_of_the_host(monkeypatch):
    monkeypatch.setattr("latmon.support.trust._ADMIN", ())


def complaints(path):
    return [clean(line, 300) for line in path.read_bytes().split(b"\n") if line.strip()]


# Finding it


def test_the_search_path(tool, proc):
    path = tool()
    bpftrace_tool = find({"PATH": f"/nowhere:{path.parent}"}, proc(), euid=0)
    assert (bpftrace_tool.path, bpftrace_tool.version, bpftrace_tool.sudo) == (str(path), "0.23.2", False)


def test_a_wrapper_by_its_absolute_path(tool, proc):
    wrapper = tool("wrappers").rename(tool().with_name("bpftrace of sid"))
    bpftrace_tool = find({"PATH": str(wrapper.parent), "LATMON_BPFTRACE": str(wrapper)}, proc(), euid=0)
    assert bpftrace_tool.path == str(wrapper)
    assert bpftrace_tool.command("BEGIN { }")[-6:] == [str(wrapper), "-f", "json", "--no-warnings", "-e", "BEGIN { }"]


@pytest.mark.parametrize("search", ["", ".", ":", "bin", "./bin:.", "../x/bin"])
def test_never_from_the_current_directory(tool, proc, monkeypatch, search):
    monkeypatch.chdir(tool().parent)
    monkeypatch.setattr(bpftrace_program, "install_command", lambda package: f"apt-get install {package}")
    with pytest.raises(UnavailableError, match=r"^bpftrace is not installed: apt-get install bpftrace\.$"):
        find({"PATH": search}, proc(), euid=0)


@pytest.mark.parametrize("named", ["bpftrace", "./bpftrace", "bin/bpftrace"])
def test_a_relative_name_is_refused_by_its_variable(tool, proc, monkeypatch, named):
    monkeypatch.chdir(tool().parent)
    with pytest.raises(UnavailableError, match="LATMON_BPFTRACE must be an absolute path"):
        find({"PATH": str(tool("other").parent), "LATMON_BPFTRACE": named}, proc(), euid=0)


def test_a_named_tool_that_is_not_there(proc, tmp_path):
    with pytest.raises(UnavailableError, match=r"LATMON_BPFTRACE names .*none, which can't be run"):
        find({"LATMON_BPFTRACE": str(tmp_path / "none")}, proc(), euid=0)


def test_root_starts_no_other_program_in_place_of_the_tool(proc):
    """`/bin/sh -f json` runs a file of the current directory; a user without root starts what they like."""
    with pytest.raises(UnavailableError, match=r"LATMON_BPFTRACE: /bin/sh is no bpftrace: .* prints no version of it"):
        find({"LATMON_BPFTRACE": "/bin/sh"}, proc(), euid=0)


@pytest.mark.parametrize(
    ("command", "says"),
    [("apt-get install bpftrace", "apt-get install bpftrace"), ("", "install the package bpftrace")],
)
def test_what_to_type_to_get_it(proc, monkeypatch, command, says):
    monkeypatch.setattr(bpftrace_program, "install_command", lambda _package: command)
    with pytest.raises(UnavailableError, match=f": {says}\\.$"):
        find({"PATH": ""}, proc(), euid=0)


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("bpftrace v0.17.0", "0.17.0"),
        ("bpftrace v0.24", "0.24"),
        ("bpftrace 0.27.1-dirty", "0.27.1"),
        ("false (GNU coreutils) 9.1", ""),
        ("who knows", ""),
        ("", ""),
    ],
)
def test_versions(tool, says, found):
    assert version(str(tool(says=says))) == found


def test_a_version_that_can_not_be_had(tmp_path):
    assert version(str(tmp_path / "none")) == ""
    (tmp_path / "text").write_text("no program")
    assert version(str(tmp_path / "text")) == ""


# Its rights and surroundings


@pytest.mark.parametrize(("euid", "sudo"), [(0, None), (0, "/usr/bin/sudo"), (1000, None), (1000, "/usr/bin/sudo")])
def test_sudo_only_where_it_is_needed_and_there(tool, proc, monkeypatch, euid, sudo):
    monkeypatch.setattr(bpftrace_program.shutil, "which", lambda *_, **__: sudo)
    bpftrace_tool = find({"LATMON_BPFTRACE": str(tool())}, proc(), euid=euid)
    assert bpftrace_tool.sudo is (euid != 0 and sudo is not None)
    assert (bpftrace_tool.command("x")[:2] == ["sudo", "-n"]) is bpftrace_tool.sudo


PROBING = 1 << 39 | 1 << 38 | 1 << 2 | 1 << 1


@pytest.fixture
def found(tool, proc, monkeypatch):
    """Return the command of a plain user with sudo and these ambient capabilities."""
    monkeypatch.setattr(bpftrace_program.shutil, "which", lambda *_, **__: "/usr/bin/sudo")

    def finding(ambient, version_of, kinds):
        path, root = tool(says=f"bpftrace v{version_of}"), proc(*kinds)
        (root / "self/status").write_text(f"CapEff:\t{2**41 - 1:016x}\nCapAmb:\t{ambient:016x}\n")
        return find({"LATMON_BPFTRACE": str(path)}, root, euid=1000)

    return finding


@pytest.mark.parametrize(
    ("ambient", "version_of", "kinds", "sudo"),
    [
        (PROBING, "0.27.1", ("tracefs",), False),
        (PROBING, "0.25", ("tracefs",), False),
        (PROBING, "0.24.2", ("tracefs",), True),
        (PROBING, "unknown", ("tracefs",), True),
        (PROBING, "0.27.1", (), True),
        (PROBING | 1 << 21, "0.27.1", (), False),
        (1 << 21 | 1 << 2 | 1 << 1, "0.27.1", ("tracefs",), False),
        (PROBING & ~(1 << 39), "0.27.1", ("tracefs",), True),
        (0, "0.27.1", ("tracefs",), True),
    ],
)
def test_capabilities_that_the_tool_inherits_do_instead_of_sudo(found, ambient, version_of, kinds, sudo):
    assert found(ambient, version_of, kinds).sudo is sudo


@pytest.mark.parametrize(
    ("kinds", "mount"), [((), True), (("tracefs",), False), (("debugfs",), False), (("debugfs", "tracefs"), False)]
)
def test_tracefs_is_mounted_where_it_is_missing(tool, proc, kinds, mount):
    bpftrace_tool = find({"LATMON_BPFTRACE": str(tool())}, proc(*kinds), euid=0)
    assert bpftrace_tool.mount_tracefs is mount
    assert ("unshare" in bpftrace_tool.command("x")) is mount


def test_where_mounts_are_not_known_nothing_is_mounted(tool, tmp_path):
    assert not find({"LATMON_BPFTRACE": str(tool())}, tmp_path / "none", euid=0).mount_tracefs


def test_the_command_sets_the_map_limit_by_both_names():
    words = BpftraceTool("/usr/bin/bpftrace", sudo=False, mount_tracefs=False, map_keys=9000).command("BEGIN { }")
    environment = dict(word.split("=") for word in words[words.index("env") + 1 : words.index("/usr/bin/bpftrace")])
    keys = {name: value for name, value in environment.items() if name.startswith("BPFTRACE")}
    assert keys == {"BPFTRACE_MAP_KEYS_MAX": "9000", "BPFTRACE_MAX_MAP_KEYS": "9000"}


@pytest.mark.parametrize(
    ("cpus", "keys"), [(1, 65536), (2, 65536), (16, 65536), (17, 61680), (64, 16384), (128, 8192), (512, 8192)]
)
def test_keys_per_map_are_limited_by_their_memory(cpus, keys):
    assert map_keys(cpus, devices=1000) == keys


@pytest.mark.parametrize("keys", [8192, 16384, 65536])
def test_cgroups_leave_room_in_a_map_for_the_ios_of_none(tmp_path, keys):
    """Two ops of 14 octaves each are what a busy cgroup has after hours: a full map loses the devices' tails."""
    for variant in bpftrace_program.variants(1000, 0, tmp_path, map_keys=keys):
        if "pairs" in variant.values:
            assert 0 < variant.values["pairs"] * 2 * 14 * 8 < 0.75 * keys


@pytest.mark.parametrize(("devices", "keys"), [(0, 16384), (8, 16384), (24, 32768), (56, 65536), (5000, 65536)])
def test_keys_per_map_grow_with_the_devices(devices, keys):
    assert map_keys(2, devices) == keys


@pytest.mark.parametrize("devices", [1, 8, 24, 56])
def test_keys_per_map_hold_every_bucket_of_four_ops_of_each_device(devices):
    assert map_keys(2, devices) >= devices * 4 * 27 * 8


# Its complaints


@pytest.mark.parametrize("path", REFUSALS, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_every_refusal_comes_to_one_sentence(path):
    why = reason(complaints(path), int(path.with_suffix(".rc").read_text()))
    assert is_clean(why)
    assert 10 < len(why) < 250
    assert "RLIMIT_MEMLOCK" not in why
    assert not why.startswith(("ERROR", "FATAL", "WARNING", "~", "scripts/"))
    assert not why.endswith(".")
    assert not is_privilege(why)


@pytest.mark.parametrize(
    ("capture", "why"),
    [
        ("0.17.0/23_rawtp", "Invalid probe type made it to attachpoint parser"),
        ("0.17.0/25_tuple_key_missing_tp", "tracepoint not found: nosuch:nosuch"),
        ("0.17.0/16_histbits", "hist() requires one argument (2 provided)"),
        ("0.23.2/21_fentry", "fentry/fexit not available for your kernel version"),
        ("0.27.1/25_tuple_key_missing_tp", "No matches for tracepoint nosuch:nosuch"),
        ("0.27.1/26_syntax", "syntax: expected expression"),
    ],
)
def test_refusals_that_users_meet(capture, why):
    assert reason(complaints(GOLDEN / f"{capture}.json.err"), 1) == why


def test_a_warning_counts_only_when_there_is_no_error():
    lines = ["WARNING: something about it", "stdin:1:1-2: ERROR: the very reason."]
    assert reason(lines, 1) == "the very reason"
    assert reason(lines[:1], 1) == "something about it"


def test_without_an_error_the_last_line_is_the_reason():
    assert reason(["first", "sudo: a password is required"], 1) == "sudo: a password is required"
    assert reason(["Killed."], 137) == "Killed"


@pytest.mark.parametrize("version_of", NOT_ROOT)
def test_without_a_word_the_status_is_the_reason(version_of):
    noise = [line for line in complaints(GOLDEN / version_of / "09_printf.json.err") if "RLIMIT" in line]
    assert noise
    assert reason(noise, 137) == reason([], 137) == "bpftrace ended with status 137"


@pytest.mark.parametrize(
    "line",
    [
        *NOT_ROOT.values(),
        *("sudo: a password is required", "Sorry, user x is not allowed to execute '/bin/sh' as root on host."),
        *("unshare: unshare failed: Operation not permitted", "ERROR: Could not create map: Operation not permitted"),
    ],
)
def test_what_more_rights_would_help(line):
    assert is_privilege(reason([line], 1))


def test_a_refusal_of_sudo_names_neither_user_nor_host():
    why = reason(["Sorry, user ann is not allowed to execute '/bin/sh -c x' as root on db-07."], 1)
    assert why == "sudo: this user is not allowed to execute sh as root"


SCRIPTS = ("inflight_a", "stages_a", "wakeups_a")
VALUES = {
    **dict.fromkeys(("any_dev", "one_in", "read_one_in"), 1),
    "step_ms": 200,
    "gate_ns": 900_000_000,
    "sample_us": 3719,
    "threshold_us": 0,
    "disk": "q->disk",
    "request": "arg0",
    "prev": "arg1",
    "next": "arg2",
    "coarse": 0,
    "sync": 11,
    "ahead": 19,
}


def made_of(*names, joined=True):
    scripts = [Script.fitted(load(data_dir("probes") / "linux" / f"{name}.yaml"), VALUES) for name in names]
    return BpftraceProgram(tuple(scripts), 4096, joined)


def test_scripts_on_one_tracepoint_are_one_program(monkeypatch):
    """Each statement is there, in the order of the scripts; no variable of one is another's; calls are made once."""
    monkeypatch.setattr(bpftrace_program, "_LARGE", 100)
    apart, joined = made_of(*SCRIPTS, joined=False), made_of(*SCRIPTS)
    assert apart.hooks.count("rawtracepoint:block_rq_complete") == 3
    assert sorted(joined.hooks) == sorted(set(apart.hooks))
    text = joined.text()
    block = text[text.index("rawtracepoint:block_rq_complete\n{") :].partition("\n}\n")[0]
    at = [block.index(f"@{one}") for one in ("inflight_a_out[", "stages_a_total[", "wakeups_a_mark[")]
    assert at == sorted(at)
    variables = [set(re.findall(r"\$\w+", part)) for part in re.split(r"^(?=\t\$rq_\d+ =)", block, flags=re.MULTILINE)]
    assert variables[1] & variables[2] <= {"$coarser", "$clock", "$stamp", "$tag"}
    once = bpftrace_program._ONCE
    assert [block.count(call) for call in once.values()] == [1] * len(once)
    plain = re.compile(r"(\$\w+?)_\d+\b")
    called = re.compile("|".join(rf"\t{re.escape(f'{variable} = {call};')}\n" for variable, call in once.items()))
    lines = [plain.sub(r"\1", called.sub("", one)).splitlines() for one in (text, apart.text())]
    gone = len(apart.hooks) - len(joined.hooks)
    assert len(lines[1]) - len(lines[0]) in range(gone, 3 * gone + 1), "headers and braces"


def test_a_large_block_stays_a_program_of_its_own():
    """The verifier would follow its paths once more for each path of those before it."""
    text = made_of("inflight_a", "stages_a", "sizes_a", "wakeups_a").text()
    blocks = text.split("rawtracepoint:block_rq_complete\n")[1:]
    assert ["@stages_a_total[" in block.partition("\n}\n")[0] for block in blocks] == [False, True, False]


def test_a_predicate_becomes_a_condition():
    script = (
        "tracepoint:a:b\n/args->x &&\n\targs->y/\n{\n\t$v = 1;\n}\ntracepoint:a:b { $v = comm; }\ntracepoint:c:d { }\n"
    )
    assert bpftrace_program._joined(script) == (
        "tracepoint:a:b\n{\n\tif (args->x &&\n\targs->y) {\n\t$v_0 = 1;\n\t}\n\t$v_1 = comm;\n}\ntracepoint:c:d { }\n"
    )
