"""Behind a real sudo: the shim starts from a terminal's ticket; `sudo latmon` starts probes after it gave up root.

And what a user who may only run latmon through sudo can't make it run as root.

A throw-away user with a rule of its own; both are gone afterwards.
"""

import os
import pty
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from latmon.model.frame import Frame, Mark
from latmon.recording.reader import open_recording
from latmon.support.errors import RecordingError
from latmon.support.process import descendants

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
NAME = "latmon-test"
PASSWORD = secrets.token_hex(8)
RULES = Path("/etc/sudoers.d/latmon-test")
pytestmark = [
    pytest.mark.sudo,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a user and a rule"),
    pytest.mark.skipif(not (shutil.which("sudo") and RULES.parent.is_dir()), reason="there is no sudo here"),
    pytest.mark.skipif(not shutil.which("useradd"), reason="there is no useradd here"),
    pytest.mark.skipif(
        not Path(PYTHON).exists()
        or subprocess.run([PYTHON, "-c", "import enum; enum.StrEnum"], capture_output=True, check=False).returncode
        or not ROOT.stat().st_mode & 0o005,
        reason="needs a Python 3.11 and a checkout that every user can read",
    ),
]
# What latmon does: a process group of its own in the terminal's session, and the child from there.
CODE = """
import asyncio, os
from latmon_backends.probe.process import Child, shimmed

async def main():
    words = shimmed(["sh", "-c", "id -u; exec sleep 60"], {}, sudo=True, mount_tracefs=False)
    child = await Child.start(words)
    said = await child.read()
    print("said", said, "" if said else await child.complaints(), flush=True)
    begun = asyncio.get_running_loop().time()
    await child.stop()
    print("stopped", round(asyncio.get_running_loop().time() - begun, 1), await child.returncode(), flush=True)

os.setpgid(0, 0)
asyncio.run(main())
"""


@pytest.fixture
def user():
    """Makes the user with this rule."""

    def made(rule):
        subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", NAME], check=True, capture_output=True)
        subprocess.run(["chpasswd"], input=f"{NAME}:{PASSWORD}", text=True, check=True)
        RULES.write_text(f"{NAME} ALL=(ALL) {rule}\n")
        RULES.chmod(0o440)

    yield made
    RULES.unlink(missing_ok=True)
    subprocess.run(["userdel", NAME], check=True, capture_output=True)
    shutil.rmtree(f"/run/sudo/ts/{NAME}", ignore_errors=True)
    Path(f"/run/sudo/ts/{NAME}").unlink(missing_ok=True)


def on_a_terminal(before="", seconds=15.0):
    """Output of that user's login on a terminal of its own: `before`, then the child. The password when asked."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
    script = f'{before} env PYTHONPATH={path} {PYTHON} -c "$CODE"; echo over'
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir("/")
        words = ["setpriv", "--reuid", NAME, "--regid", NAME, "--init-groups", "sh", "-c", script]
        os.execvpe(words[0], words, {**os.environ, "CODE": CODE, "HOME": "/", "TERM": "dumb"})
    text, asked, until = "", False, time.monotonic() + seconds
    while "over\r\n" not in text and time.monotonic() < until:
        try:
            text += os.read(terminal, 4096).decode()
        except OSError:
            break
        if "password for" in text and not asked:
            asked = True
            os.write(terminal, f"{PASSWORD}\n".encode())
    os.close(terminal)
    os.waitpid(pid, 0)
    return text


def test_a_rule_without_a_password(user):
    user("NOPASSWD: ALL")
    text = on_a_terminal()
    assert "said b'0" in text, text
    assert "stopped 0." in text or "stopped 1." in text, text


@pytest.mark.parametrize("kind", ["tty", "global"])
def test_the_ticket_of_the_terminal_is_found(user, kind):
    user(f"ALL\nDefaults:{NAME} timestamp_type={kind}")
    text = on_a_terminal("sudo -v;")
    assert "said b'0" in text, text


def test_without_a_ticket_the_reason_is_reported(user):
    user("ALL")
    assert "a password is required" in on_a_terminal()


class Sudoed:
    """`sudo latmon --record FILE --stages all`, as sudo leaves it: root with the user's number in the environment."""

    def __init__(self, directory):
        directory.chmod(0o777)
        self.file = directory / "a.latmon.jsonl.gz"
        words = [PYTHON, "-m", "latmon", "--backend", "bpftrace", "--stages", "all", "--record", str(self.file)]
        path = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"}
        ids = subprocess.run(["id", "-u", NAME], capture_output=True, text=True, check=True).stdout.strip()
        self.uid = int(ids)
        self.said = directory / "said"
        with self.said.open("w") as text:
            self.process = subprocess.Popen(
                words, env=env | {"SUDO_UID": ids, "SUDO_GID": ids}, stdin=subprocess.DEVNULL, stderr=text, cwd="/"
            )

    def frames(self):
        try:
            return [item for item in open_recording(self.file) if isinstance(item, Frame)]
        except (OSError, RecordingError):
            return []

    def until(self, wanted, seconds=60.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.said.read_text()
            if frames := [frame for frame in self.frames() if wanted(frame)]:
                return frames[0]
            time.sleep(0.2)
        raise AssertionError("no such frame")

    def family(self):
        """Return the started processes: pid -> argument list."""
        return {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(self.process.pid)}


@pytest.fixture
def sudoed(user):
    if not shutil.which("bpftrace") or subprocess.run([PYTHON, "-c", "import yaml"], check=False).returncode:
        pytest.skip("needs bpftrace, and PyYAML for the system's Python")
    user("NOPASSWD: ALL")
    with tempfile.TemporaryDirectory() as directory:  # pytest's own are closed to all but root
        sudoed = Sudoed(Path(directory))
        yield sudoed
        sudoed.process.kill()
        sudoed.process.wait()


def test_root_is_given_up_and_probes_are_started_all_the_same(sudoed):
    frame = sudoed.until(lambda frame: frame.traced.one_in)
    assert frame.health.skipped is not None, "the kernel's counters are root's to read"
    owner = Path(f"/proc/{sudoed.process.pid}").stat().st_uid
    assert owner == sudoed.uid
    family = sudoed.family()
    always = [pid for pid, words in family.items() if words.startswith(b"/usr/bin/bpftrace") and b"@block_" in words]
    (starter,) = [pid for pid, words in family.items() if b"root_helper" in words]
    assert Path(f"/proc/{starter}").stat().st_uid == 0
    assert sudoed.until(lambda frame: frame.health.probe_cpu_percent is not None)
    os.kill(always[0], signal.SIGKILL)
    assert "was started again" in sudoed.until(lambda frame: frame.gap == "probe-restart").health.notice
    family = sudoed.family()
    sudoed.process.kill()
    sudoed.process.wait()
    probes = {pid for pid, words in family.items() if not words.startswith(b"sh")}
    assert not alive(probes, 60.0), "a probe or the process with root"
    assert not alive(set(family), 3.0), "a shell that waits for one"


def alive(pids, seconds):
    """Return the processes that still run when the time is over."""
    end = time.monotonic() + seconds
    while (left := {pid for pid in pids if Path(f"/proc/{pid}").exists()}) and time.monotonic() < end:
        time.sleep(0.05)
    return left


LATMON = """#!/bin/sh
exec {python} -P -c 'import sys; sys.dont_write_bytecode = True; sys.path[:0] = ["{root}", "{root}/backends"]
from latmon.__main__ import main
sys.exit(main())' "$@"
"""


class Eve:
    """A user with a home and a tool of her own; the tool leaves a mark with the uid that ran it."""

    def __init__(self, home):
        self.home, self.tool = home, home / "tool"
        self.tool.write_text(f'#!/bin/sh\nid -u >>{home}/ran\nexec bpftrace "$@"\n')
        self.tool.chmod(0o755)

    @property
    def config(self):
        path = self.home / ".config/latmon/config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def ran(self):
        path = self.home / "ran"
        return path.read_text().split() if path.exists() else []

    def own(self, *paths):
        subprocess.run(["chown", "-R", f"{NAME}:", *(paths or (self.home,))], check=True)

    def sudo(self, *words, **environ):
        """Run it as the user types it, with the user's environment; the real sudo decides which variables pass."""
        kept = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", "HOME": self.home, **environ}.items()]
        return subprocess.run(
            ["setpriv", "--reuid", NAME, "--regid", NAME, "--init-groups", "env", "-i", *kept, "sudo", "-n", *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd=self.home,
            text=True,
            timeout=240,
            check=False,
        )


@pytest.fixture
def installed():
    """latmon where root alone writes, which is all that the rule allows."""
    path = Path("/usr/local/bin/latmon-test")
    path.write_text(LATMON.format(python=PYTHON, root=ROOT))
    path.chmod(0o755)
    yield path
    path.unlink()


@pytest.fixture
def eve(user, installed):
    if subprocess.run([PYTHON, "-c", "import yaml"], check=False).returncode:
        pytest.skip("needs PyYAML for the system's Python")
    user(f"NOPASSWD:SETENV: {installed}, {PYTHON}")
    home = Path("/home") / NAME
    home.mkdir()
    made = Eve(home)
    made.own()
    yield made
    shutil.rmtree(home)


@pytest.fixture
def wrapper():
    """A tool in Python that root installed: Python looks for modules in HOME."""
    path = Path("/usr/local/bin/latmon-test-tool")
    path.write_text(f'#!{PYTHON}\nimport os, sys\nos.execvp("bpftrace", ["bpftrace", *sys.argv[1:]])\n')
    path.chmod(0o755)
    yield path
    path.unlink()


def leave_usercustomize(eve):
    """Python runs this module when HOME is hers; it leaves a mark where it runs as root."""
    script = "import sysconfig; print(sysconfig.get_path('purelib', 'posix_user', {'userbase': '.local'}))"
    below = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    (eve.home / below).mkdir(parents=True)
    (eve.home / below / "usercustomize.py").write_text(
        f"import os\nif not os.geteuid(): open('{eve.home}/ran', 'a').write('python')\n"
    )


@pytest.mark.parametrize("words", [("doctor",), ("--record", "f", "--duration", "1s")], ids=["doctor", "record"])
def test_a_trusted_tool_in_python_runs_nothing_of_the_users_home(eve, installed, wrapper, words):
    leave_usercustomize(eve)
    eve.own()
    done = eve.sudo(f"LATMON_BPFTRACE={wrapper}", installed, *words)
    assert done.returncode == 0, done.stderr
    assert eve.ran == []


@pytest.mark.parametrize(
    "words", [("doctor",), ("--record", "f.latmon.jsonl.gz", "--duration", "1s")], ids=["doctor", "record"]
)
def test_nothing_of_the_users_home_runs_as_root(eve, installed, words):
    """Neither the tool of her settings nor what Python looks for in a home directory."""
    eve.config.write_text(f"bpftrace: {eve.tool}\ndtrace: {eve.tool}\ninterval: 500ms\n")
    leave_usercustomize(eve)
    eve.own()
    done = eve.sudo(installed, *words)
    assert done.returncode == 0, done.stderr
    assert eve.ran == []
    assert f"{eve.config}: bpftrace and dtrace are ignored under sudo" in done.stderr + done.stdout
    if words[0] == "--record":
        recording = open_recording(eve.home / words[1])
        assert recording.origin.interval_us == 500_000, "her other settings count"
        assert (eve.home / words[1]).stat().st_uid == eve.home.stat().st_uid


@pytest.mark.parametrize("words", [("doctor",), ("doctor", "--self-test"), ("--record", "f", "--duration", "1s")])
@pytest.mark.parametrize("how", ["-E", "VARIABLE=VALUE"])
def test_a_variable_that_sudo_lets_through_names_no_tool_of_the_users(eve, installed, words, how):
    if how == "-E":
        done = eve.sudo("-E", installed, *words, LATMON_BPFTRACE=eve.tool)
    else:
        done = eve.sudo(f"LATMON_BPFTRACE={eve.tool}", installed, *words)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith(
        f"latmon: LATMON_BPFTRACE={eve.tool} is not used as root, because {eve.home} belongs to"
    )
    assert len(done.stderr.splitlines()) == 1
    assert eve.ran == []


def test_without_setenv_the_variable_does_not_arrive(eve, installed):
    done = eve.sudo(installed, "probes", "list", LATMON_BPFTRACE=eve.tool)
    assert done.returncode == 0, done.stderr


def test_a_checkout_of_the_users_own_runs_until_others_can_change_it(eve):
    checkout = eve.home / "checkout"
    for name in ("latmon", "backends", "probes", "schemas", "themes", "tours"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["chmod", "-R", "o-w,g+w", checkout], check=True)  # her own group's, as the umask 002 makes it
    eve.own()
    words = (PYTHON, "-P", "-c", LATMON.format(python="", root=checkout).split("'")[1], "probes", "list")
    assert (done := eve.sudo(*words)).returncode == 0, done.stderr
    module = checkout / "latmon/capture/collector.py"
    module.chmod(0o666)
    done = eve.sudo(*words)
    assert done.returncode == 3
    assert f"{module} can be written to by every user" in done.stderr
    module.chmod(0o644)
    os.chown(checkout / "probes/linux/block_a.bt", 65534, 65534)
    done = eve.sudo(*words)
    assert done.returncode == 3
    assert "block_a.bt belongs to " in done.stderr


WHO = (
    "id -un > who",
    "pwd >> who",
    "echo $HOME >> who",
    "grep NoNewPrivs /proc/self/status >> who",
    "sudo -n id -u >> who",
    "exit 9",
)


def test_a_command_that_is_measured_runs_as_the_user_and_its_exit_code_is_passed_on(user):
    user("NOPASSWD: SETENV: ALL")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        directory = Path(name)
        shutil.chown(directory, NAME)
        directory.chmod(0o755)
        path = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
        words = ["sudo", "-n", f"PYTHONPATH={path}", PYTHON, "-P", "-m", "latmon", "--backend", "procfs"]
        words += ["--record", f"{name}/x.gz", "--", "sh", "-c", "; ".join(WHO)]
        done = subprocess.run(
            ["su", NAME, "-c", f"cd {name} && exec {shlex.join(words)}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 9, done.stderr
        who = (directory / "who").read_text().split()
        assert who[:2] == [NAME, name]
        assert who[3:] == ["NoNewPrivs:", "0", "0"], "its own sudo still works"
        assert "sh: exit code 9 after" in done.stderr
        texts = [mark.text for mark in open_recording(directory / "x.gz") if isinstance(mark, Mark)]
        assert [text.partition(" after")[0] for text in texts][1:] == ["sh: exit code 9"]
        assert (directory / "x.gz").owner() == NAME
