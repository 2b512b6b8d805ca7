"""The cache of the probe that an earlier start chose: what it keeps, what it refuses, and a start that uses it."""

import json
import os
import stat
from pathlib import Path

import pytest

from latmon.capture.backend import Options
from latmon_backends.bpftrace import backend
from latmon_backends.bpftrace.backend import BpftraceAlwaysOn, ProbeCache, cache_key
from latmon_backends.bpftrace.program import BpftraceTool
from latmon_backends.probe.process import RefusedError

TOOL = os.path.realpath("/bin/sh")
REFUSED = {"block_a q->disk": "Unknown function: nsecs"}


@pytest.fixture
def cache(tmp_path):
    return ProbeCache(tmp_path / "cache")


def kept(cache, refused=REFUSED, key="k"):
    cache.write(key, "block_c", "/usr/bin/bpftrace", refused)
    return cache.read(key)


def test_a_choice_is_kept_with_its_refusals_for_its_key(cache):
    found = kept(cache)
    assert (found.probe, found.tool, found.refused) == ("block_c", "/usr/bin/bpftrace", REFUSED)
    assert cache.read("another") is None


def test_only_the_owner_can_read_or_write_it(cache):
    kept(cache)
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert [path.name for path in cache.directory.iterdir()] == [cache.path.name]


def test_the_newest_entries_are_kept(cache):
    for number in range(20):
        kept(cache, key=str(number))
    assert [number for number in range(20) if cache.read(str(number))] == list(range(12, 20))


@pytest.mark.parametrize(
    "why", ["Cannot allocate memory", "Resource temporarily unavailable", "Device or resource busy"]
)
def test_nothing_is_kept_after_a_refusal_that_may_pass(cache, why):
    assert kept(cache, {"block_a q->disk": why}) is None


def test_an_old_choice_is_tried_again(cache, monkeypatch):
    found = kept(cache)
    monkeypatch.setattr(backend.time, "time", lambda: found.wall + 40 * 86_400)
    assert cache.read("k") is None
    monkeypatch.setattr(backend.time, "time", lambda: found.wall - 3600)  # a clock that was wrong
    assert cache.read("k") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[", b"[]", b"{}", b'{"schema":"latmon.probes/1"}', b'{"schema":"x","entries":[]}', b"[" * 5000],
)
def test_bad_content_is_ignored_and_replaced(cache, content):
    kept(cache)
    cache.path.write_bytes(content)
    assert cache.read("k") is None
    assert kept(cache) is not None


@pytest.mark.parametrize(
    "change", [{"refused": []}, {"wall": "soon"}, {"probe": None}, {"key": 5}], ids=lambda change: next(iter(change))
)
def test_a_bad_entry_is_no_choice(cache, change):
    kept(cache)
    tree = json.loads(cache.path.read_text())
    tree["entries"][0] |= change
    cache.path.write_text(json.dumps(tree))
    found = cache.read("k")
    assert found is None or found.probe == "None"


def test_texts_are_cleaned(cache):
    kept(cache, {"block_a q->disk": "red \x1b[31m" + "x" * 1000})
    (why,) = cache.read("k").refused.values()
    assert "\x1b" not in why
    assert len(why) <= 300


@pytest.mark.parametrize("which", ["file", "directory"])
def test_what_others_can_write_to_is_ignored(cache, which):
    kept(cache)
    (cache.path if which == "file" else cache.directory).chmod(0o777)
    assert cache.read("k") is None
    cache.write("k", "block_a q->disk", "/usr/bin/bpftrace", {})
    assert json.loads(cache.path.read_text())["entries"][0]["probe"] == "block_c"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_ignores_what_belongs_to_another_user(cache):
    kept(cache)
    os.chown(cache.path, 65534, 65534)
    assert cache.read("k") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_follows_no_link_of_another_user(cache, tmp_path):
    kept(cache)
    real = tmp_path / "elsewhere"
    cache.directory.rename(real)
    cache.directory.symlink_to(real)
    os.chown(cache.directory, 65534, 65534, follow_symlinks=False)
    tmp_path.chmod(0o1777)
    assert cache.read("k") is None


def test_a_file_that_is_no_file_is_ignored(cache):
    cache.directory.mkdir()
    os.mkfifo(cache.path)
    assert cache.read("k") is None


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert kept(ProbeCache(tmp_path / "file/cache")) is None


def test_root_has_a_directory_that_no_variable_changes(monkeypatch):
    environ = {"XDG_CACHE_HOME": "/somewhere", "HOME": "/home/eve"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ProbeCache.of(environ).directory == backend.ROOT_CACHE
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert ProbeCache.of(environ).directory == Path("/somewhere/latmon")


@pytest.fixture
def host(tmp_path):
    """A tool, the kernel's types and the scripts."""
    (tmp_path / "kernel/btf").mkdir(parents=True)
    (tmp_path / "linux").mkdir()
    for name in ("bpftrace", "kernel/btf/vmlinux", "linux/block_a.bt"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", ["bpftrace", "kernel/btf/vmlinux", "linux/block_a.bt", "linux/block_z.yaml"])
def test_the_key_changes_with_the_tool_the_types_and_the_scripts(host, name):
    before = cache_key(str(host / "bpftrace"), host, host)
    assert before == cache_key(str(host / "bpftrace"), host, host)
    (host / name).write_text("changed")
    assert before != cache_key(str(host / "bpftrace"), host, host)


def test_the_key_changes_with_the_kernel(host, monkeypatch):
    before = cache_key(str(host / "bpftrace"), host, host)
    kernel = backend.platform.uname()._replace(version="#2 SMP")
    monkeypatch.setattr(backend.platform, "uname", lambda: kernel)
    assert before != cache_key(str(host / "bpftrace"), host, host)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("self/status", "CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n"),
        ("self/status", "CapEff:\t000001ffffffffff\nCapAmb:\t000001ffffffffff\n"),
        ("kernel/security/lockdown", "none [integrity] confidentiality\n"),
        ("bus/event_source/devices/kprobe/type", "8\n"),
    ],
    ids=["fewer capabilities", "capabilities for a user's tool", "lockdown", "kprobes"],
)
def test_the_key_changes_with_what_the_tool_may_do(host, name, text):
    def written(name, text):
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(text)

    written("self/status", "CapEff:\t000001ffffffffff\nCapAmb:\t0000000000000000\n")
    written("kernel/security/lockdown", "[none] integrity confidentiality\n")
    before = cache_key(str(host / "bpftrace"), host, host, host)
    assert before == cache_key(str(host / "bpftrace"), host, host, host)
    written(name, text)
    assert before != cache_key(str(host / "bpftrace"), host, host, host)


def test_without_the_tool_there_is_no_key(host):
    assert cache_key(str(host / "missing"), host, host) == ""


class Starts(BpftraceAlwaysOn):
    """The always-on probe of a tool that refuses some scripts; the real choice, without a process."""

    def __init__(self, cache, refusing, **options):
        tool = BpftraceTool(TOOL, sudo=False, mount_tracefs=False, map_keys=9000)
        super().__init__(Options(), tool, None, None, choices=cache, **options)
        self.refusing, self.tried = refusing, []

    async def _start(self, script):
        self.tried.append(script.manifest.name)
        if script.manifest.name in self.refusing:
            raise RefusedError("Unknown function: nsecs")
        self.script = script


async def test_the_second_start_tries_one_script(cache):
    first, second = Starts(cache, {"block_a"}), Starts(cache, {"block_a"})
    refused = await first.choose()
    assert first.tried[0] == "block_a"
    assert len(first.tried) > 1
    assert await second.choose() == refused == REFUSED
    assert second.tried == first.tried[-1:]
    assert second.why_lesser(refused) == first.why_lesser(refused) != ""


async def test_a_known_script_that_fails_is_followed_by_all_and_replaced(cache):
    await Starts(cache, set()).choose()
    changed, after = Starts(cache, {"block_a"}), Starts(cache, {"block_a"})
    assert await changed.choose() == REFUSED
    assert changed.tried[:2] == ["block_a", "block_a"]
    await after.choose()
    assert after.tried == changed.tried[-1:]


async def test_the_doctor_tries_all_and_replaces_the_choice(cache):
    await Starts(cache, {"block_a"}).choose()
    better = Starts(cache, set(), tries_all=True)
    await better.choose()
    assert better.tried == ["block_a"]
    assert cache.read(cache_key(TOOL)).probe == "block_a q->disk"


async def test_a_name_that_no_script_has_is_ignored(cache):
    cache.write(cache_key(TOOL), "sh -c reboot", "/bin/sh", {})
    start = Starts(cache, set())
    assert await start.choose() == {}
    assert start.tried == ["block_a"]


async def test_a_tool_without_a_key_is_tried_each_time(cache, monkeypatch):
    monkeypatch.setattr(backend, "cache_key", lambda *_, **__: "")
    for _ in range(2):
        start = Starts(cache, {"block_a"})
        await start.choose()
        assert len(start.tried) > 1


def test_the_doctor_names_the_choice_and_its_file(cache):
    assert cache.shown("k") == ""
    kept(cache)
    assert cache.shown("k").startswith(f"a start tries block_c first, by {cache.path}: ")
