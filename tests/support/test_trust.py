"""Files that root may use, with real owners and modes; tests with another owner need root."""

import argparse
import ast
import asyncio
import contextlib
import errno
import functools
import os
import py_compile
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from latmon.capture import registry
from latmon.cli import config
from latmon.cli.config import Config
from latmon.doctor import checks, selftest
from latmon.manifest import load
from latmon.support import trust
from latmon.support.errors import UntrustedError
from latmon.support.paths import regular
from latmon.support.privileges import Invoker
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool
from latmon_backends.bpftrace.program import version as bpftrace_version
from latmon_backends.kernel import kstat
from latmon_backends.probe import launcher, process
from latmon_backends.probe.launcher import Script
from latmon_backends.root_helper import Starter

ROOT = Path(__file__).resolve().parents[2]
EVE = 64_123
"""A uid that no user of this host has."""
MINE = frozenset({0, os.getuid()})
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def tool(tmp_path):
    """DIRECTORY/tool, both only the tests' user's; what it runs leaves a mark."""
    directory = tmp_path / "directory"
    directory.mkdir(mode=0o755)
    path = directory / "tool"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    path.chmod(0o755)
    return path


def give(path):
    os.chown(path, EVE, EVE, follow_symlinks=False)


def found(path, allowed=MINE):
    flaw = trust.flaw(path, allowed)
    return (flaw.at, flaw.why) if flaw else None


def test_a_file_that_only_its_owner_can_change(tool):
    assert found(tool) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root's own files are root's")
def test_a_users_file_is_not_roots(tool):
    assert "belongs to" in trust.flaw(tool).why


@as_root
def test_a_file_of_another_user_names_the_owner_and_the_remedy(tool):
    give(tool)
    assert found(tool) == (tool, f"belongs to uid {EVE}")
    assert trust.flaw(tool).mend == f"chown root {tool}"
    assert found(tool, frozenset({0, EVE})) is None


@as_root
def test_a_directory_of_another_user(tool):
    give(tool.parent)
    assert found(tool) == (tool.parent, f"belongs to uid {EVE}")


@pytest.mark.parametrize("of", [lambda tool: tool, lambda tool: tool.parent], ids=["file", "directory"])
@pytest.mark.parametrize(("mode", "who"), [(0o757, "every user"), (0o777, "every user"), (0o775, "the group")])
def test_what_others_can_write_to(tool, of, mode, who):
    if os.geteuid() == 0:
        os.chown(of(tool), 0, EVE)
    elif who == "the group":
        pytest.skip("only root can give a file to a group that isn't its own")
    of(tool).chmod(mode)
    at, why = found(tool)
    assert at == of(tool)
    assert why.startswith(f"can be written to by {who}")
    assert f"mode {mode:04o}, owner " in why
    assert trust.flaw(tool, MINE).mend.endswith(str(at))


@as_root
def test_the_group_of_root_is_root(tool):
    for path in (tool, tool.parent):
        path.chmod(0o775)
    assert found(tool) is None


@as_root
def test_a_group_of_the_users_own_has_no_other_member():
    """A group as most distributions make one for each user; 65534 is a user that every host has."""
    nobody = trust.pwd.getpwuid(65534)
    group = trust.grp.getgrgid(nobody.pw_gid)
    alone = not [one for one in trust.pwd.getpwall() if one.pw_gid == group.gr_gid and one.pw_uid != 65534]
    is_own = alone and not group.gr_mem and group.gr_name == nobody.pw_name
    assert trust._has_others(group.gr_gid, frozenset({0, 65534})) is not is_own
    assert trust._has_others(nobody.pw_gid, frozenset({0})) is True
    assert trust._has_others(EVE, frozenset({0, EVE})) is True, "a group that this host doesn't list"


def entry(name, uid, gid):
    return trust.pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("gid", "name", "members", "others"),
    [
        (1000, "ada", [], False),
        (1000, "ada", ["eve"], True),
        (50, "staff", [], False),
        (50, "staff", ["ada", "root"], False),
        (50, "staff", ["eve"], True),
        (1001, "eve", [], True),
        (70_000, "domain users", [], True),
        (0, "root", [], False),
        (0, "wheel", ["root", "eve"], True),
    ],
)
def test_members_of_a_group(monkeypatch, gid, name, members, others):
    users = [entry("root", 0, 0), entry("sync", 5, 0), entry("ada", 1000, 1000), entry("eve", 1001, 1001)]
    monkeypatch.setattr(trust.pwd, "getpwall", lambda: users)
    monkeypatch.setattr(trust.grp, "getgrgid", lambda gid: trust.grp.struct_group((name, "x", gid, members)))
    assert trust._has_others(gid, frozenset({0, 1000})) is others


@as_root
def test_an_access_list_hides_behind_the_groups_bits(tool):
    """user::rwx user:EVE:rwx group::r-x mask::rwx other::r-x, as `setfacl -m u:EVE:rwx` makes it."""
    entries = [(0x01, 7, 2**32 - 1), (0x02, 7, EVE), (0x04, 5, 2**32 - 1), (0x10, 7, 2**32 - 1), (0x20, 5, 2**32 - 1)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    try:
        os.setxattr(tool, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error}")
    assert "access list" in found(tool)[1]
    assert trust.flaw(tool).mend == f"setfacl -b {tool}"


@as_root
def test_a_sticky_directory_keeps_others_off_what_is_roots(tool):
    tool.parent.chmod(0o1777)
    assert found(tool) is None
    give(tool)
    assert found(tool) == (tool, f"belongs to uid {EVE}")


@as_root
def test_a_sticky_directory_of_another_user_is_not_trusted(tool):
    tool.parent.chmod(0o1777)
    give(tool.parent)
    assert found(tool) == (tool.parent, f"belongs to uid {EVE}")


def test_what_is_not_there_can_be_made_by_whoever_can_write_there(tool):
    assert found(tool.parent / "missing/bin") is None
    tool.parent.chmod(0o1777)
    assert found(tool.parent / "missing/bin")[0] == tool.parent
    assert trust.flaw(tool.parent / "missing", MINE).mend == "", "/tmp has to stay as it is"


@as_root
def test_the_directory_of_a_link_counts_as_its_targets(tool, tmp_path):
    eves = tmp_path / "eves"
    eves.mkdir()
    link = eves / "link"
    link.symlink_to(tool)
    assert found(link) is None
    give(eves)
    assert found(link) == (eves, f"belongs to uid {EVE}")
    ours = tmp_path / "ours"
    ours.symlink_to("eves/link")
    assert found(ours)[0] == eves


@as_root
def test_a_link_of_another_user_in_a_sticky_directory(tool, tmp_path):
    tmp_path.chmod(0o1777)
    link = tmp_path / "link"
    link.symlink_to(tool.parent)
    assert found(link / "tool") is None
    give(link)
    assert found(link / "tool") == (link, f"belongs to uid {EVE}")


@as_root
def test_a_way_back_up_is_the_real_directorys(tmp_path):
    on_demand = tmp_path / "deep/er"
    on_demand.mkdir(parents=True)
    give(on_demand.parent)
    (tmp_path / "link").symlink_to(on_demand)
    assert found(tmp_path / "link/../../directory/tool")[0] == on_demand.parent
    assert found(tmp_path / "deep/../deep")[0] == on_demand.parent
    assert found(tmp_path / "deep/../link")[0] == on_demand.parent
    os.chown(on_demand.parent, 0, 0)
    assert found(tmp_path / "link/../../deep") is None


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "loop" in found(tmp_path / "a")[1]


def test_what_can_not_be_examined_is_not_trusted(tool, monkeypatch):
    """A file server that doesn't know root refuses to examine a file."""
    real = os.stat

    def refusing(path, **more):
        if path == tool.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, **more)

    monkeypatch.setattr(os, "stat", refusing)
    assert found(tool) == (tool, "can't be examined: Permission denied")


def test_a_path_into_a_zip_file_is_as_good_as_the_file(tool):
    assert found(tool / "latmon/__init__.py") is None
    tool.chmod(0o757)
    assert found(tool / "latmon/__init__.py")[0] == tool


STARTS = {
    "bpftrace --version": lambda tool: bpftrace_version(str(tool)),
    "doctor": lambda tool: checks.run([str(tool)]),
    "kstat": lambda tool: kstat.runner({**os.environ, "LATMON_KSTAT": str(tool)})(()),
    "self-test": lambda _tool: selftest._start(None, os.environ).communicate(),
    "probe": lambda tool: asyncio.run(
        process.answer(process.shimmed([str(tool)], {}, sudo=False), within_s=60, most=1)
    ),
}
"""Each way to start a program while latmon is root; the self-test finds `unshare` in PATH."""


@as_root
class TestTools:
    """Tools that find_tool accepts as root."""

    def find(self, **environ):
        return trust.find_tool("tool", "LATMON_BPFTRACE", environ)

    def test_named(self, tool):
        assert self.find(LATMON_BPFTRACE=str(tool)) == tool
        give(tool)
        sentence = f"LATMON_BPFTRACE={tool} is not used as root, because {tool} belongs to uid {EVE}: `chown root"
        with pytest.raises(UntrustedError, match=sentence) as refused:
            self.find(LATMON_BPFTRACE=str(tool))
        assert refused.value.exit_code == 3

    def test_the_search_path_has_only_directories_of_roots(self, tool, tmp_path):
        eves = tmp_path / "eves"
        shutil.copytree(tool.parent, eves)
        give(eves)
        assert self.find(PATH=f"{eves}:{tool.parent}") == tool
        with pytest.raises(UntrustedError, match=f"{eves} belongs to uid {EVE}"):
            self.find(PATH=f"{eves}:/usr/bin")
        assert trust.environment({"PATH": f"{eves}:/usr/bin"})["PATH"].startswith("/usr/bin:")

    @pytest.mark.parametrize("options", ["", " -e"])
    def test_the_interpreter_of_a_wrapper(self, tool, tmp_path, options):
        wrapper = tmp_path / "wrapper"
        wrapper.write_text(f"#! {tool}{options}\n")
        wrapper.chmod(0o755)
        assert self.find(LATMON_BPFTRACE=str(wrapper)) == wrapper
        give(tool)
        with pytest.raises(UntrustedError, match=f"with the interpreter {tool} is not used as root"):
            self.find(LATMON_BPFTRACE=str(wrapper))

    def test_an_interpreter_in_the_current_directory(self, tool):
        tool.write_text("#!bin/sh\n")
        with pytest.raises(UntrustedError, match="relative to the current directory"):
            self.find(LATMON_BPFTRACE=str(tool))

    def test_a_tool_gets_roots_home_and_nothing_for_python(self):
        environ = {
            "PATH": "/usr/bin",
            "HOME": "/home/eve",
            "XDG_CONFIG_HOME": "/home/eve/c",
            "PYTHONPATH": "/x",
            "A": "b",
        }
        got = trust.environment(environ)
        assert got["HOME"] == trust.pwd.getpwuid(0).pw_dir
        assert got.keys() == {"PATH", "HOME", "USER", "LOGNAME", "A"}

    @pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
    def test_every_child_gets_roots_home(self, tmp_path, start, monkeypatch):
        """Under sudo HOME is the user's while latmon is still root; Python and Perl run code from it."""
        tool = tmp_path / "unshare"
        tool.write_text(f'#!/bin/sh\necho "$HOME $USER ${{PYTHONUSERBASE-unset}}" >{tmp_path}/got\n')
        tool.chmod(0o755)
        eves = {"HOME": "/home/eve", "USER": "eve", "PYTHONUSERBASE": "/home/eve", "PATH": f"{tmp_path}:/usr/bin:/bin"}
        for name, value in eves.items():
            monkeypatch.setenv(name, value)
        start(tool)
        root = trust.pwd.getpwuid(0)
        assert (tmp_path / "got").read_text() == f"{root.pw_dir} {root.pw_name} unset\n"

    def test_a_third_partys_backend_is_not_imported(self, tmp_path, monkeypatch):
        package = tmp_path / "eves_backend"
        package.mkdir()
        (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Backend: ...\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(registry, "_foreign", lambda: {"eve": "eves_backend:Backend"})
        give(package / "__init__.py")
        with pytest.raises(UntrustedError, match=f"__init__.py belongs to uid {EVE}"):
            registry.load("eve")
        assert not (tmp_path / "ran").exists()
        os.chown(package / "__init__.py", 0, 0)
        (package / "loop").symlink_to("loop")
        with pytest.raises(UntrustedError, match="loop of symbolic links"):
            registry.load("eve")
        (package / "loop").unlink()
        assert registry.load("eve").__name__ == "Backend"

    def test_a_backend_in_a_package_without_a_first_file_is_not_imported(self, tmp_path, monkeypatch):
        package = tmp_path / "eves_namespace"
        package.mkdir()
        (package / "backend.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Backend: ...\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(registry, "_foreign", lambda: {"eve": "eves_namespace.backend:Backend"})
        give(package / "backend.py")
        with pytest.raises(UntrustedError, match=f"backend.py belongs to uid {EVE}"):
            registry.load("eve")
        assert not (tmp_path / "ran").exists()
        os.chown(package / "backend.py", 0, 0)
        assert registry.load("eve").__name__ == "Backend"

    @pytest.mark.parametrize("places", [None, [], ["/nonexistent/eves"]])
    def test_a_backend_whose_files_can_not_be_found_is_not_imported(self, places, monkeypatch):
        """An import hook of its own may find modules outside of all paths."""
        spec = ModuleSpec("eves", None)
        spec.submodule_search_locations = places
        monkeypatch.setattr(trust, "find_spec", lambda _name: spec)
        with pytest.raises(UntrustedError, match="the files of eves can't be found"):
            trust.require_package("eves")


def test_every_program_is_started_with_the_checked_environment():
    """All but the collector and ssh: the one becomes the user, whose HOME it needs, and is started with -s, the other
    runs as the user, after root was given up."""
    starts = {
        (path.name, next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "env"), ""))
        for tree in ("latmon", "backends")
        for path in (ROOT / tree).rglob("*.py")
        if re.search(r"\b(subprocess|asyncio)\.", text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if re.fullmatch(r"run|Popen|create_subprocess_\w+", call.func.attr)
        if ast.unparse(call.func).startswith(("subprocess.", "asyncio.create"))
    }
    assert {name for name, env in starts if "environment(" not in env} == {"session.py", "remote.py"}
    assert len(starts) > len(STARTS)


def test_a_plain_user_names_the_tool_freely(tool, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tool.parent.chmod(0o777)
    assert trust.find_tool("tool", "LATMON_BPFTRACE", {"LATMON_BPFTRACE": str(tool)}) == tool


class TestConfig:
    """Files of settings: `bpftrace` and `dtrace` decide what runs as root, the others don't."""

    @pytest.fixture
    def shared(self):
        """A directory that every user may read, unlike pytest's own."""
        with tempfile.TemporaryDirectory() as made:
            Path(made).chmod(0o755)
            yield Path(made)

    def load(self, shared, text, user=None, system=""):
        own = shared / "cfg/latmon/config.yaml"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(text)
        (shared / "system.yaml").write_text(system)
        return config.load({"XDG_CONFIG_HOME": str(shared / "cfg")}, shared / "system.yaml", user)

    @as_root
    def test_under_sudo_the_users_tools_do_not_count_and_all_else_does(self, shared):
        eve = Invoker(EVE, EVE, (EVE,), "/", "eve")
        text = "theme: light\nbpftrace: /eve/tool\ndtrace: /eve/tool\n"
        got = self.load(shared, text, eve, "bpftrace: /opt/bpftrace\n")
        assert got.values == {"theme": "light", "bpftrace": "/opt/bpftrace"}
        assert got.named_in == {"bpftrace": shared / "system.yaml", "theme": shared / "cfg/latmon/config.yaml"}
        assert got.ignored == (
            f"{shared}/cfg/latmon/config.yaml: bpftrace and dtrace are ignored under sudo, because eve can change "
            f"that file and the tool runs as root: name the tool in {shared}/system.yaml instead"
        )

    @as_root
    def test_under_sudo_the_users_file_is_read_as_that_user(self, shared):
        eve = Invoker(EVE, EVE, (EVE,), "/", "eve")
        self.load(shared, "theme: light\n")
        (shared / "cfg/latmon/config.yaml").chmod(0o600)
        with pytest.raises(config.UsageError, match="Permission denied"):
            config.load({"XDG_CONFIG_HOME": str(shared / "cfg")}, shared / "system.yaml", eve)

    def test_a_file_that_counts_is_remembered(self, shared):
        got = self.load(shared, "bpftrace: /a\n", None, "bpftrace: /b\ndtrace: /c\n")
        assert got == Config({"bpftrace": "/a", "dtrace": "/c"})
        assert got.named_in["bpftrace"] == shared / "cfg/latmon/config.yaml"
        assert got.named_in["dtrace"] == shared / "system.yaml"
        assert got.ignored == ""


def test_a_pipe_is_not_waited_for_even_where_it_replaces_a_file(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"abc")
    assert regular(tmp_path / "file", 2) == b"ab"
    with pytest.raises(OSError, match="not a regular file"):
        regular(tmp_path / "pipe", 10)
    status = (tmp_path / "file").stat()
    monkeypatch.setattr(Path, "stat", lambda _path: status)
    with pytest.raises(OSError, match="not a regular file"):
        regular(tmp_path / "pipe", 10)


@as_root
class TestProbes:
    """Scripts that become part of what runs as root."""

    @pytest.fixture
    def program(self, tmp_path):
        for name in ("block_a.yaml", "block_c.yaml", "block_c.bt"):
            shutil.copy(ROOT / "probes/linux" / name, tmp_path)
        values = {"step_ms": 200, "gate_ns": 900_000_000, "threshold_us": 0}
        return BpftraceProgram((Script(load(tmp_path / "block_c.yaml"), values),), 4096)

    @pytest.mark.parametrize("name", ["block_c.yaml", "block_c.bt", "block_a.yaml"])
    def test_one_from_outside_must_be_roots(self, program, tmp_path, name, monkeypatch):
        assert launcher.trusted(program) is program
        monkeypatch.setenv("SUDO_UID", str(EVE))
        give(tmp_path / name)
        with pytest.raises(UntrustedError, match=f"the probe {tmp_path}/{name} is not used as root"):
            launcher.trusted(program)

    def test_one_of_the_installations_may_be_the_invoking_users(self, tmp_path, monkeypatch):
        monkeypatch.setattr(trust, "_CHECKOUT", tmp_path)
        script = tmp_path / "probes/a.bt"
        script.parent.mkdir()
        script.touch()
        give(script)
        trust.require_script(script, {"SUDO_UID": str(EVE)})
        with pytest.raises(UntrustedError):
            trust.require_script(script, {"SUDO_UID": str(EVE + 1)})

    def test_the_process_that_kept_root_refuses_one_that_others_can_write_to(self, program, tmp_path):
        tool = tmp_path / "bpftrace"
        tool.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        tool.chmod(0o755)
        manifest = program.scripts[0].manifest
        starter = Starter(
            BpftraceTool(str(tool), sudo=False, mount_tracefs=False, map_keys=4096), 1, {"block_c": manifest}
        )
        (tmp_path / "block_c.bt").chmod(0o666)
        request = {"start": {"keys": 4096, "joined": True, "scripts": [["block_c", dict(program.scripts[0].values)]]}}
        reply, files = starter.answer(request)
        assert "block_c.bt can be written to by every user" in reply["error"]
        assert (files, starter.children) == ((), {})
        assert not (tmp_path / "ran").exists()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """One without its tests, for all tests: what they change they change back."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("latmon", "backends", "probes", "schemas", "themes", "tours"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    subprocess.run(["chmod", "-R", "g-w,o-w", checkout], check=True)
    return checkout


@contextlib.contextmanager
def changed(path, mode=0, owner=0):
    """With these bits of mode added and that owner."""
    before = stat.S_IMODE(path.stat().st_mode)
    os.chown(path, owner, owner)
    path.chmod(before | mode)
    yield
    os.chown(path, 0, 0)
    path.chmod(before)


def probes_list(checkout, **how):
    return latmon(checkout, ("probes", "list"), **how)


def latmon(checkout, words, cwd="/", python=sys.executable, flags=(), **environ):
    path = os.pathsep.join((str(checkout), str(checkout / "backends")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    return subprocess.run(
        [python, *flags, "-m", "latmon", *words],
        env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def refused(done, *text):
    assert done.returncode == 3, done
    assert done.stdout == ""
    assert done.stderr.startswith("latmon: ")
    assert len(done.stderr.splitlines()) == 1
    assert all(one in done.stderr for one in text), done.stderr
    return True


GUARD = """
from latmon.support import trust
from latmon.support.errors import UntrustedError
try:
    trust.require_installation()
except UntrustedError as error:
    sys.stderr.write(str(error))
"""


@as_root
class TestInstallation:
    """Checks of latmon's own files."""

    def test_roots_below_a_sticky_directory(self, checkout):
        with changed(checkout.parent, 0o1777):
            assert probes_list(checkout).returncode == 0

    def test_the_invoking_users(self, checkout):
        subprocess.run(["chown", "-R", f"{EVE}:{EVE}", checkout], check=True)
        try:
            eves = probes_list(checkout, SUDO_UID=str(EVE), SUDO_GID=str(EVE))
            roots = probes_list(checkout)
            adas = probes_list(checkout, SUDO_UID="64124", SUDO_GID="64124")
        finally:
            subprocess.run(["chown", "-R", "0:0", checkout], check=True)
        assert eves.returncode == 0, eves.stderr
        assert refused(roots, str(checkout), f"belongs to uid {EVE}", "install latmon as root")
        assert refused(adas, f"belongs to uid {EVE}")

    @pytest.mark.parametrize("name", ["latmon/tui/app.py", "backends", "probes/linux/block_a.bt", "probes/linux"])
    def test_what_every_user_can_write_to(self, checkout, name):
        path = checkout / name
        with changed(path, 0o002):
            done = probes_list(checkout)
        assert refused(done, f"{path} can be written to by every user", f"chmod o-w {path}", "owner root")

    @pytest.mark.parametrize(
        "name",
        [
            "pyvenv.cfg",
            "lib/python/more.pth",
            "lib/python/sitecustomize.py",
            "lib/python/sitecustomize.pyc",
            "lib/python/__pycache__",
            "lib/python/__pycache__/typing_extensions.cpython-399.pyc",
            *("lib/python/" + package for package in ("textual/css", "rich/text.py", "yaml/more/late.py")),
        ],
    )
    def test_what_every_user_can_write_to_in_its_environment(self, checkout, tmp_path, name):
        """Packages replace the installed ones; a start runs none of their code before it checked them."""
        prefix = tmp_path / "prefix"
        path = prefix / name
        path.parent.mkdir(parents=True)
        path.mkdir() if name.endswith(("css", "__")) else path.touch()
        if len(parts := Path(name).parts) > len(("lib", "python", "file")):
            prefix.joinpath(*parts[:3], "__init__.py").touch()
        code = f"import sys; sys.prefix = {str(prefix)!r}; sys.path.append({str(prefix)!r} + '/lib/python')\n{GUARD}"
        words = [sys.executable, "-c", code]
        environ = {**os.environ, "PYTHONPATH": f"{prefix}/lib/python:{checkout}", "PYTHONDONTWRITEBYTECODE": "1"}
        run = functools.partial(
            subprocess.run, words, env=environ, cwd="/", capture_output=True, text=True, check=False
        )
        assert run().stderr == ""
        path.chmod(0o777 if path.is_dir() else 0o666)
        assert f"{path} can be written to by every user" in run().stderr

    def test_all_packages_that_latmon_imports_are_checked(self):
        names = {"latmon"}
        for name in (todo := ["latmon"]):
            wanted = [Requirement(one) for one in metadata.requires(name) or []]
            new = {
                one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": "linkify"})
            } - names
            names |= new
            todo += new
        installed = metadata.packages_distributions()
        ours = {package for package, owners in installed.items() if names.intersection(owners)}
        wanted = {package for package in ours if not package.startswith(("_", "latmon"))}
        assert wanted <= set(trust._OTHERS)

    def test_a_current_directory_that_was_removed(self, checkout, tmp_path):
        words = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; exec {sys.executable} -m latmon"
        path = os.pathsep.join((str(checkout), str(checkout / "backends")))
        environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["sh", "-c", f"{words} probes list"], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def test_a_compiled_module_of_another_user(self, checkout):
        compiled = checkout / "latmon/__pycache__/cli.cpython-399.pyc"
        compiled.parent.mkdir(exist_ok=True)
        compiled.touch()
        with changed(compiled, owner=EVE):
            assert refused(probes_list(checkout), f"{compiled} belongs to uid {EVE}")

    @pytest.mark.parametrize("words", [("--version",), ("--help",), ("report", "missing"), ("probes", "list")])
    def test_byte_code_of_another_user_of_pythons_own_library(self, checkout, tmp_path, words):
        """The library is not in a list: what a command imports is checked when it does."""
        source = shutil.copy(argparse.__file__, tmp_path)
        path = os.pathsep.join(map(str, (tmp_path, checkout, checkout / "backends")))
        compiled = Path(py_compile.compile(source))
        assert probes_list(checkout, PYTHONPATH=path).returncode == 0
        give(compiled)
        assert refused(latmon(checkout, words, PYTHONPATH=path), f"{compiled} belongs to uid {EVE}: `rm {compiled}`")

    def test_a_probe_that_is_a_link_out_of_it_follows_the_rule_for_tools(self, checkout, tmp_path):
        script = checkout / "probes/linux/block_c.bt"
        outside = script.rename(tmp_path / "outside.bt")
        script.symlink_to(outside)
        good = probes_list(checkout)
        give(outside)
        bad = probes_list(checkout, SUDO_UID=str(EVE), SUDO_GID=str(EVE))
        os.chown(outside, 0, 0)
        outside.rename(script)
        assert good.returncode == 0
        assert refused(bad, f"{outside} belongs to uid {EVE}")

    def test_a_directory_of_another_user_that_python_looks_in(self, checkout, tmp_path):
        eves = tmp_path / "eves"
        eves.mkdir()
        give(eves)
        assert refused(probes_list(checkout, cwd=eves), f"{eves} belongs to", "start latmon in another directory")
        assert probes_list(checkout, cwd=eves, flags=["-P"]).returncode == 0
        path = os.pathsep.join(map(str, (checkout, checkout / "backends", eves)))
        assert refused(probes_list(checkout, PYTHONPATH=path), f"{eves} belongs to uid {EVE}")
