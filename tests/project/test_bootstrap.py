"""The bootstrap script on hosts that are made of stand-in commands; a real Debian is tests/lab/fresh-debian's."""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
REAL = ("sh", "dirname", "cksum", "cat", "mkdir", "rm", "rmdir", "sed", "cp", "ln", "touch", "grep", "tail")
SHELLS = [
    pytest.param(
        command, marks=[pytest.mark.skipif(not shutil.which(command[0]), reason=f"no {command[0]} here"), *more]
    )
    for command, *more in ((["dash"],), (["busybox", "sh"],), (["bash", "--posix"], pytest.mark.slow))
]

RUNS = "from latmon.__main__ import main; main()"
INSTALLING = "python -P -m pip install --quiet --disable-pip-version-check --no-warn-script-location"

# A Python: what it can do is decided by files in $HOST; it is copied into the environments that it makes.
PYTHON = r"""#!/bin/sh
echo "python $*" >>"$HOST/calls"
case "$*" in
-c*|"-m pip"*|"-m venv"*|"-m virtualenv"*) touch "$HOST/unsafe" ;; # would import from the current directory
esac
case $* in "-P -c from latmon"*) ;; -P*) shift ;; esac
case "$*" in
--version) echo "Python 3.13.0" ;;
*"sys.exit(sys.version_info"*) [ ! -e "$HOST/old-python" ] ;;
*"python%d.%d-venv"*) echo python3.13-venv ;;
"-c import ensurepip, venv") [ ! -e "$HOST/no-ensurepip" ] ;;
"-m venv "*)
    for last; do :; done
    mkdir -p "$last/bin" && touch "$last/pyvenv.cfg" && cp "$0" "$last/bin/python"
    case "$*" in *--without-pip*) touch "$HOST/no-pip-inside" ;; esac
    [ ! -e "$HOST/venv-fails" ]
    ;;
"-m pip --python "*" --version") [ -e "$HOST/host-pip" ] ;;
"-m pip --version") [ ! -e "$HOST/no-pip-inside" ] ;;
"-m pip "*install*) [ ! -e "$HOST/pip-fails" ] ;;
"-m virtualenv"*) exit 1 ;;
*"import psutil, textual, yaml") [ ! -e "$HOST/noexec" ] || { printf 'Traceback\nfailed to map\n' >&2; exit 1; } ;;
"-m ruff check"*) [ ! -e "$HOST/lint-fails" ] ;;
"-m mypy") [ ! -e "$HOST/types-fails" ] ;;
"-P -c from latmon"*) shift 3; echo "latmon in $PWD:"; for a; do echo "<$a>"; done ;;
"-m pytest"*) echo "1 passed"; exit "$(cat "$HOST/pytest-exit" 2>/dev/null || echo 0)" ;;
esac
"""
MANAGER = r"""#!/bin/sh
echo "${0##*/} $*" >>"$HOST/calls"
case "$*" in *install*|-S*) ;; *) exit 0 ;; esac
[ ! -e "$HOST/install-fails" ] || { echo "E: no such luck"; exit 100; }
case "$*" in
*venv*) rm -f "$HOST/no-ensurepip" ;;
*) for last; do :; done; cp "$HOST/stub" "$HOST/bin/$last" ;;
esac
"""


class Host:
    """A host in a directory: `bin` is its whole PATH, `checkout` has the script."""

    def __init__(self, directory: Path, shell: list[str]) -> None:
        self.directory = directory
        self.checkout = directory / "a check out"
        self.checkout.mkdir()
        shutil.copy(REPO / "bootstrap", self.checkout)
        shutil.copy(REPO / "pyproject.toml", self.checkout)
        (self.checkout / "contrib").mkdir()
        for lock in REPO.glob("contrib/*.lock"):
            shutil.copy(lock, self.checkout / "contrib")
        (directory / "bin").mkdir()
        self.shell = [shutil.which(shell[0]), *shell[1:]]
        for name in REAL:
            (directory / "bin" / name).symlink_to(shutil.which(name))
        self.stub("stub", at=directory)
        self.command("python3", PYTHON)
        self.be("root")
        self.command("uname", "#!/bin/sh\necho Linux\n")
        for name in ("mount", "chown"):
            self.stub(name)

    def command(self, name: str, text: str, at: Path | None = None) -> None:
        path = (at or self.directory / "bin") / name
        path.write_text(text)
        path.chmod(0o755)

    def stub(self, name: str, at: Path | None = None) -> None:
        self.command(name, '#!/bin/sh\necho "${0##*/} $*" >>"$HOST/calls"\n', at)

    def be(self, user: str) -> None:
        self.command("id", f"#!/bin/sh\necho {0 if user == 'root' else 1000}\n")

    def mark(self, *names: str) -> None:
        for name in names:
            (self.directory / name).touch()

    def bootstrap(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        (self.directory / "calls").unlink(missing_ok=True)
        return subprocess.run(
            [*self.shell, str(self.checkout / "bootstrap"), *args],
            env={"PATH": str(self.directory / "bin"), "HOST": str(self.directory)} | env,
            cwd=self.directory,
            text=True,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    @property
    def calls(self) -> list[str]:
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def calls_of(self, name: str) -> list[str]:
        return [call for call in self.calls if call.split()[0] == name]


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path, ["dash"] if shutil.which("dash") else ["sh"])


@pytest.fixture
def debian(host) -> Host:
    host.command("apt-get", MANAGER)
    return host


@pytest.mark.parametrize("shell", SHELLS, ids=lambda command: command[0])
def test_the_first_run_sets_up_and_the_second_only_runs(debian, shell):
    debian.shell = [shutil.which(shell[0]), *shell[1:]]
    debian.mark("no-ensurepip")
    first = debian.bootstrap("run", "--device", "sd*", "a b", "")
    assert first.returncode == 0, first.stderr
    assert first.stdout == f"latmon in {debian.directory}:\n<--device>\n<sd*>\n<a b>\n<>\n"
    assert [call.removeprefix(INSTALLING) for call in debian.calls if "pip" in call and "install" in call] == [
        " --require-hashes -r contrib/requirements.lock -r contrib/build.lock",
        " --no-deps --no-build-isolation --editable .",
    ]
    assert debian.calls_of("apt-get") == [
        "apt-get -qq update",
        "apt-get -qq -y --no-install-recommends install python3-venv",
        "apt-get -qq -y --no-install-recommends install bpftrace",
    ]
    assert "installing with the host's package manager: apt-get install bpftrace" in first.stderr

    second = debian.bootstrap("run")
    assert debian.calls == [f"python -P -c {RUNS}"]
    assert second.stderr == ""


def test_no_python_that_sets_up_imports_from_the_current_directory(debian):
    """Root may run it in a directory of another user's, who could have a venv.py there."""
    debian.mark("no-ensurepip")
    assert debian.bootstrap("run").returncode == 0
    assert any("-m venv" in call for call in debian.calls)
    assert not (debian.directory / "unsafe").exists()


@pytest.mark.parametrize("name", ["pyproject.toml", "contrib/requirements.lock", "contrib/build.lock"])
def test_a_changed_list_of_packages_installs_again(debian, name):
    debian.bootstrap("run")
    with (debian.checkout / name).open("a") as file:
        file.write("# changed\n")
    debian.bootstrap("run")
    assert any("install" in call for call in debian.calls_of("python"))
    assert not any("-m venv" in call for call in debian.calls)


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_environment_of_the_tests_has_hashes_too(debian, user):
    debian.be(user)
    assert debian.bootstrap("python").returncode == 0
    assert f"{INSTALLING} --require-hashes -r contrib/dev.lock" in debian.calls
    assert debian.bootstrap("run").returncode == 0
    assert debian.calls_of("python") == [f"python -P -c {RUNS}"], "it has what a run needs"


@pytest.mark.skipif(os.geteuid() != 0, reason="a user's byte code is that user's")
def test_root_takes_byte_code_only_from_what_is_checked(debian):
    debian.bootstrap("run")
    debian.command("python", '#!/bin/sh\necho "<${PYTHONPYCACHEPREFIX-none}>"\n', debian.checkout / ".venv/bin")
    assert debian.bootstrap("run", PYTHONPYCACHEPREFIX="/tmp/cache").stdout == "<none>\n"


def wheel(directory):
    """Write a wheel of one empty module; return its hash."""
    path = directory / "tiny-1-py3-none-any.whl"
    texts = {
        "tiny.py": "",
        "tiny-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n",
        "tiny-1.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tiny-1.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(not find_spec("ensurepip"), reason="this Python makes no environment with pip")
@pytest.mark.parametrize("is_right", [True, False])
def test_pip_installs_no_file_with_another_hash(tmp_path, is_right):
    """A real pip, without a network; latmon itself is not installed, because its build tools are not in the lock."""
    checkout, wheels = tmp_path / "checkout", tmp_path / "wheels"
    (checkout / "contrib").mkdir(parents=True)
    wheels.mkdir()
    digest = wheel(wheels)
    for name in ("bootstrap", "pyproject.toml"):
        shutil.copy(REPO / name, checkout)
    (checkout / "contrib/build.lock").touch()
    (checkout / "contrib/requirements.lock").write_text(f"tiny==1 --hash=sha256:{digest if is_right else 'a' * 64}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "LATMON_"))}
    environ = {**kept, "PYTHON": sys.executable, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = subprocess.run(
        [checkout / "bootstrap", "run"], env=environ, capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 1, done.stderr
    assert bool([*checkout.glob(".venv/lib/*/site-packages/tiny.py")]) == is_right
    assert ("DO NOT MATCH THE HASHES" in done.stderr) != is_right
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bootstrap: pip could not install the packages of contrib/requirements.lock")
    assert "a file whose hash differs is not the one that latmon was tested with" in last


def test_a_moved_checkout_installs_again(debian):
    debian.bootstrap("run")
    debian.checkout = debian.checkout.rename(debian.directory / "moved")
    debian.bootstrap("run")
    assert any("install" in call for call in debian.calls_of("python"))


def test_an_interrupted_set_up_is_finished_next_time(debian):
    debian.mark("pip-fails")
    failed = debian.bootstrap("run")
    assert failed.returncode == 1
    assert "PIP_FIND_LINKS" in failed.stderr
    (debian.directory / "pip-fails").unlink()
    assert debian.bootstrap("run").returncode == 0


def test_a_venv_whose_python_is_gone_is_made_again(debian):
    debian.bootstrap("run")
    (debian.checkout / ".venv/bin/python").unlink()
    (debian.checkout / ".venv/bin/python").symlink_to("/nonexistent/python3")
    assert debian.bootstrap("run").returncode == 0
    assert any("-m venv" in call for call in debian.calls)


def test_another_place_may_be_relative(debian):
    assert debian.bootstrap("run", LATMON_VENV="else where/venv").returncode == 0
    assert (debian.directory / "else where/venv/bin/python").exists()
    assert not (debian.checkout / ".venv").exists()


EVE = 64_123
"""A uid that no user of this host has."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("shell", SHELLS, ids=lambda command: command[0])
class TestFilesOfOthers:
    """The bootstrap as root, with real owners and modes, starts nothing that another user can change."""

    @pytest.fixture
    def ready(self, debian, shell):
        debian.shell = [shutil.which(shell[0]), *shell[1:]]
        for name in ("ls", "find"):
            (debian.directory / "bin" / name).symlink_to(shutil.which(name))
        assert debian.bootstrap("run").returncode == 0
        return debian

    def refused(self, host, text, **env):
        done = host.bootstrap("run", **env)
        assert done.returncode == 3, done.stderr
        assert "is not used as root, because " in done.stderr
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert host.calls == [], "something was run"
        return True

    @pytest.mark.parametrize("name", [".", ".venv", ".venv/bin", ".venv/bin/python"])
    def test_of_another_user(self, ready, name):
        path = ready.checkout / name
        os.chown(path, EVE, EVE)
        assert self.refused(ready, f"{path if name != '.' else ready.checkout} belongs to uid {EVE}: ")
        assert self.refused(ready, f"belongs to uid {EVE}: ", SUDO_UID="64124")
        assert ready.bootstrap("run", SUDO_UID=str(EVE)).returncode == 0

    @pytest.mark.parametrize("name", [".", ".venv", ".venv/bin/python"])
    def test_that_others_can_write_to(self, ready, name):
        path = ready.checkout / name
        path.chmod(0o757)
        assert self.refused(ready, "can be written to by every user: chmod o-w ")
        os.chown(path, 0, EVE)
        path.chmod(0o775)
        assert self.refused(ready, f"can be written to by the group {EVE}: chmod g-w ")
        assert ready.bootstrap("run", SUDO_UID=str(EVE)).returncode == 0, "a group of the user's own"
        os.chown(path, 0, 0)
        assert ready.bootstrap("run").returncode == 0, "root's own group"

    @pytest.mark.parametrize(
        "name", ["bootstrap", "pyproject.toml", ".venv/lib/more.pth", "hatch_build.py", ".git/x/y"]
    )
    def test_a_file_that_pip_or_python_reads(self, ready, name):
        path = ready.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        (path.parent / "link").symlink_to(path)
        assert ready.bootstrap("run").returncode == 0
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(0o646)
        assert self.refused(ready, f"{path} can be written to by every user: chmod o-w {path}")
        os.chown(path, 0, EVE)
        path.chmod(0o664)
        assert self.refused(ready, f"{path} can be written to by the group {EVE}: chmod g-w {path}")
        os.chown(path, EVE, EVE)
        path.chmod(mode)
        assert self.refused(ready, f"{path} belongs to uid {EVE}: ")
        assert ready.bootstrap("run", SUDO_UID=str(EVE)).returncode == 0

    def test_a_file_in_an_environment_elsewhere(self, ready):
        env = {"LATMON_VENV": str(ready.directory / "venv")}
        assert ready.bootstrap("run", **env).returncode == 0
        (ready.directory / "venv/pyvenv.cfg").chmod(0o666)
        assert self.refused(ready, "/venv/pyvenv.cfg can be written to by every user", **env)

    def test_an_environment_behind_a_link(self, ready):
        there, link = ready.directory / "there", ready.directory / "link"
        there.mkdir()
        (ready.checkout / ".venv").rename(there / "venv")
        link.symlink_to(there)
        env = {"LATMON_VENV": str(link / "venv")}
        assert ready.bootstrap("run", **env).returncode == 0
        os.chown(there, EVE, EVE)
        assert self.refused(ready, f"{there} belongs to uid {EVE}: ", **env)
        os.chown(there, 0, 0)
        os.chown(link, EVE, EVE, follow_symlinks=False)
        assert self.refused(ready, f" belongs to uid {EVE}: ", **env)

    def test_a_sticky_directory_as_tmp(self, ready):
        tmp = ready.directory / "tmp"
        tmp.mkdir()
        tmp.chmod(0o1777)
        env = {"LATMON_VENV": str(tmp / "venv")}
        assert ready.bootstrap("run", **env).returncode == 0, "one that isn't there yet"
        assert ready.bootstrap("run", **env).returncode == 0
        os.chown(tmp / "venv", EVE, EVE)
        assert self.refused(ready, f"{tmp}/venv belongs to uid {EVE}: ", **env)


def test_a_directory_that_is_no_venv_is_never_removed(debian):
    precious = debian.directory / "home"
    precious.mkdir()
    (precious / "thesis").touch()
    result = debian.bootstrap("run", LATMON_VENV=str(precious))
    assert result.returncode == 3
    assert "no Python environment" in result.stderr
    assert (precious / "thesis").exists()


MANAGERS = {
    "apt-get": ("apt-get -qq -y --no-install-recommends install bpftrace", "apt-get install bpftrace"),
    "dnf": ("dnf -q -y install bpftrace", "dnf install bpftrace"),
    "pacman": ("pacman -S --noconfirm --needed bpftrace", "pacman -S bpftrace"),
}


@pytest.mark.parametrize("manager", MANAGERS)
class TestBpftrace:
    def test_root_installs_it_and_says_so(self, host, manager):
        call, command = MANAGERS[manager]
        host.command(manager, MANAGER)
        result = host.bootstrap("run")
        assert call in host.calls
        assert f"installing with the host's package manager: {command}" in result.stderr

    def test_a_user_is_reported_the_command(self, host, manager):
        host.command(manager, MANAGER)
        host.be("nobody")
        result = host.bootstrap("run")
        assert result.returncode == 0
        assert f"going on with the kernel's counters (procfs). To have it: sudo {MANAGERS[manager][1]}" in result.stderr
        assert host.calls_of(manager) == []

    def test_failing_is_reported_with_its_reason_and_not_tried_at_every_start(self, host, manager):
        host.command(manager, MANAGER)
        host.mark("install-fails")
        first = host.bootstrap("run")
        assert first.returncode == 0
        assert "no such luck" in first.stderr
        assert first.stderr.splitlines()[-1].endswith(f"To try again: {MANAGERS[manager][1]}")
        second = host.bootstrap("run")
        assert "could not be" in second.stderr
        assert host.calls == [f"python -P -c {RUNS}"]


def test_a_host_without_a_known_package_manager_goes_on(host):
    result = host.bootstrap("run")
    assert result.returncode == 0
    assert "no apt-get, dnf or pacman" in result.stderr


NO_PROBES = ["demo", "replay f", "report f", "diff f g", "check f", "export f", "import f", "probes", "--version", "x"]


def test_what_probes_nothing_changes_nothing_on_the_host(debian):
    for args in NO_PROBES:
        assert debian.bootstrap("run", *args.split()).returncode == 0
        assert debian.calls_of("apt-get") == [], args


@pytest.mark.parametrize("args", ["", "--record f", "--device sda", "doctor"])
def test_what_probes_has_bpftrace_installed(debian, args):
    assert debian.bootstrap("run", *args.split()).returncode == 0
    assert debian.calls_of("apt-get") != []


def test_a_named_bpftrace_is_enough(debian):
    assert "not installed" not in debian.bootstrap("run", LATMON_BPFTRACE="/opt/bpftrace").stderr
    assert debian.calls_of("apt-get") == []


def test_no_python_says_what_to_install(debian):
    debian.mark("old-python")
    result = debian.bootstrap("run")
    assert result.returncode == 3
    assert "no Python 3.11 or newer found" in result.stderr
    assert "apt-get install python3" in result.stderr


def test_a_newer_python_beside_an_old_one_is_found(debian):
    debian.mark("old-python")
    debian.command("python3.13", PYTHON.replace("old-python", "nothing"))
    assert debian.bootstrap("run").returncode == 0


def test_a_named_python_must_do(debian):
    result = debian.bootstrap("run", PYTHON="nosuch")
    assert result.returncode == 3
    assert "PYTHON=nosuch" in result.stderr


class TestDebianWithoutVenv:
    def test_root_installs_python3_venv_and_says_so(self, debian):
        debian.mark("no-ensurepip")
        result = debian.bootstrap("run", "--version")
        assert result.returncode == 0, result.stderr
        assert debian.calls_of("apt-get")[-1] == "apt-get -qq -y --no-install-recommends install python3-venv"
        assert "apt-get install python3-venv" in result.stderr

    def test_another_python_has_a_package_of_its_own(self, debian):
        debian.mark("no-ensurepip", "old-python")
        debian.command("python3.13", PYTHON.replace("old-python", "nothing"))
        debian.bootstrap("run", "--version")
        assert debian.calls_of("apt-get")[-1].endswith("install python3.13-venv")

    def test_a_user_gets_the_one_command(self, debian):
        debian.mark("no-ensurepip")
        debian.be("nobody")
        result = debian.bootstrap("run")
        assert result.returncode == 3
        assert result.stderr.splitlines()[-1].endswith("(as root: apt-get install python3-venv)")
        assert not (debian.checkout / ".venv").exists()

    def test_virtualenv_will_do(self, debian):
        debian.mark("no-ensurepip")
        debian.be("nobody")
        debian.command(
            "virtualenv", '#!/bin/sh\necho "virtualenv $*" >>"$HOST/calls"\nshift 3\nexec python3 -m venv "$@"\n'
        )
        assert debian.bootstrap("run").returncode == 0
        assert debian.calls_of("virtualenv")

    def test_the_hosts_pip_will_do(self, debian):
        debian.mark("no-ensurepip", "host-pip")
        debian.be("nobody")
        result = debian.bootstrap("run")
        assert result.returncode == 0, result.stderr
        venv = debian.checkout / ".venv"
        assert f"python -P -m venv --without-pip {venv}" in debian.calls
        assert any(f"-m pip --python {venv}/bin/python install" in call for call in debian.calls)

    def test_root_without_a_working_apt_falls_back(self, debian):
        debian.mark("no-ensurepip", "host-pip", "install-fails")
        result = debian.bootstrap("run", "--version")
        assert result.returncode == 0
        assert "could not install python3-venv; trying to do without" in result.stderr


def test_a_venv_that_fails_is_one_sentence(debian):
    debian.mark("venv-fails")
    result = debian.bootstrap("run")
    assert result.returncode == 1
    assert "could not make the Python environment" in result.stderr


def test_packages_that_cannot_be_loaded_name_the_way_out(debian):
    debian.mark("noexec")
    result = debian.bootstrap("run")
    assert result.returncode == 3
    assert "LATMON_VENV" in result.stderr
    assert result.stderr.endswith("(failed to map)\n")


@pytest.fixture
def read_only(debian):
    """A host whose user can't write to the checkout."""
    debian.checkout.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)
    for path in (debian.directory, *debian.directory.parents):
        if path.name.startswith(("pytest-", "popen-")):
            path.chmod(0o755)
    debian.directory.chmod(0o777)
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root writes anywhere")
        words = ("--reuid=65534", "--regid=65534", "--clear-groups", "--")
        debian.shell = [shutil.which("setpriv"), *words, *debian.shell]
    yield debian
    debian.checkout.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make it for another user")
def test_another_user_runs_what_root_set_up(debian, request):
    assert debian.bootstrap("run").returncode == 0
    user = request.getfixturevalue("read_only")
    assert user.bootstrap("run", "demo").returncode == 0
    python = user.checkout / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/root/python-of-root/bin/python")
    refused = user.bootstrap("run", "demo")
    assert refused.returncode == 3
    assert refused.stderr.startswith(
        f"bootstrap: {user.checkout}/.venv was made with a Python that this user can't run"
    )
    assert "LATMON_VENV" in refused.stderr


def test_a_read_only_checkout_is_reported_and_another_place_works(read_only):
    refused = read_only.bootstrap("run", "demo")
    assert refused.returncode == 3, refused.stderr
    assert "can't write to" in refused.stderr
    assert "LATMON_VENV" in refused.stderr
    assert read_only.bootstrap("run", "demo", LATMON_VENV=str(read_only.directory / "venv")).returncode == 0


def test_a_venv_made_through_sudo_is_given_to_its_owner(debian):
    debian.bootstrap("run", SUDO_UID="1000", SUDO_GID="100")
    assert debian.calls_of("chown") == [f"chown -hR 1000:100 {debian.checkout}/.venv"]


class TestTest:
    def test_lint_comes_first_and_pytest_has_the_last_word(self, debian):
        result = debian.bootstrap("test", "-k", "one thing")
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1] == "1 passed"
        words = sorted(call.split()[2] for call in debian.calls[-6:-1])
        assert words == ["from", "mypy", "pytest", "ruff", "ruff"]
        assert debian.calls[-1].startswith("python -m pytest -n logical ")
        assert debian.calls[-1].endswith(" -k one thing")
        assert f"{INSTALLING} --require-hashes -r contrib/dev.lock" in debian.calls

    def test_its_exit_code_is_pytests(self, debian):
        (debian.directory / "pytest-exit").write_text("1")
        assert debian.bootstrap("test").returncode == 1

    @pytest.mark.parametrize(("check", "named"), [("lint", "ruff-check"), ("types", "mypy")])
    def test_failed_lint_is_named_and_stops_before_the_tests(self, debian, check, named):
        debian.mark(f"{check}-fails")
        result = debian.bootstrap("test")
        assert result.returncode == 1
        assert f"these checks failed: {named}\n" in result.stderr
        assert not any("-m pytest -n" in call for call in debian.calls)

    def test_a_new_checkout_is_compiled_once_for_all_workers(self, debian):
        debian.bootstrap("test")
        (debian.checkout / "tests/__pycache__").mkdir(parents=True)
        assert "python -m pytest --collect-only -qq" in debian.calls
        debian.bootstrap("test")
        assert "python -m pytest --collect-only -qq" not in debian.calls

    def test_root_installs_what_the_live_tests_need_one_by_one(self, debian):
        debian.bootstrap("test")
        assert [c.split()[-1] for c in debian.calls_of("apt-get")] == ["update", "bpftrace", "fio", "tmux"]
        debian.bootstrap("test")
        assert debian.calls_of("apt-get") == []

    def test_a_user_is_reported_that_live_tests_are_skipped(self, debian):
        debian.be("nobody")
        result = debian.bootstrap("test")
        assert result.returncode == 0
        assert "the live tests will be skipped; they also need: bpftrace fio tmux" in result.stderr
        assert debian.calls_of("apt-get") == []

    def test_the_test_environment_is_enough_to_run(self, debian):
        debian.bootstrap("test")
        debian.bootstrap("run")
        assert debian.calls == [f"python -P -c {RUNS}"]


def test_nonsense_prints_the_usage(debian):
    for args in ([], ["nonsense"]):
        result = debian.bootstrap(*args)
        assert result.returncode == 2
        assert "./bootstrap run [ARGS...]" in result.stderr
        assert result.stdout == ""


@pytest.mark.slow  # a time, which a busy host makes longer
def test_a_second_start_costs_little(debian):
    debian.bootstrap("run")
    best = min(_seconds(debian) for _ in range(3))
    assert best < 0.2, f"{best:.3f} s from the command to latmon"


def _seconds(host: Host) -> float:
    start = time.monotonic()
    host.bootstrap("run")
    return time.monotonic() - start


def test_the_makefile_passes_arguments_on(debian):
    if not shutil.which("make"):
        pytest.skip("no make here")
    shutil.copy(REPO / "Makefile", debian.checkout)
    debian.bootstrap("run")
    result = subprocess.run(
        [shutil.which("make"), "-s", "run", "ARGS=demo --seed 3"],
        cwd=debian.checkout,
        env={"PATH": str(debian.directory / "bin"), "HOST": str(debian.directory)},
        text=True,
        capture_output=True,
        check=True,
    )
    assert result.stdout.splitlines()[1:] == ["<demo>", "<--seed>", "<3>"]
