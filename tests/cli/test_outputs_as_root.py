"""A root shell writes below no link and no directory of another user, whatever option names the file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDING = str(ROOT / "tests/golden/recording-1.1.latmon.jsonl.gz")
FOREIGN = str(ROOT / "tests/golden/imports/bcc_biolatency.txt")
NOBODY = 65534
PROCFS = ("--backend", "procfs", "--interval", "100ms")
OUT = "OUT"
"""The file that a command is to write."""
OUTPUTS = {
    "record": (*PROCFS, "--duration", "200ms", "--record", OUT),
    "log": (*PROCFS, "--duration", "200ms", "--record", "elsewhere", "--log-file", OUT),
    "watch": ("watch", *PROCFS, "--record", OUT),
    "fleet": ("fleet", "host.invalid", "--timeout", "1s", "--record", OUT),
    "demo recording": ("demo", "serialised", "--duration", "1s", "--record", OUT),
    "demo picture": ("demo", "serialised", "--duration", "1s", "--svg", OUT),
    "demo film": ("demo", "serialised", "--duration", "1s", "--cast", OUT),
    "report page": ("report", RECORDING, "--html", OUT),
    "diff page": ("diff", RECORDING, RECORDING, "--html", OUT),
    "export": ("export", RECORDING, "--to", "csv", "-o", OUT),
    "import": ("import", FOREIGN, "-o", OUT),
    "repair": ("check", RECORDING, "--repair", "-o", OUT),
    "socket": ("exporter", *PROCFS, "--listen", f"unix:{OUT}"),
}
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def target(tmp_path):
    """A directory of root's, such as one whose files root runs."""
    directory = tmp_path / "target"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def link(tmp_path, target):
    """A link of another user's to it, in a directory like /tmp."""
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    path = sticky / "link"
    path.symlink_to(target)
    os.lchown(path, NOBODY, NOBODY)
    return path


@pytest.fixture
def latmon(tmp_path):
    """The command in a root shell that may be another user's by its environment."""

    def run(*words, code=None, cwd=tmp_path, **environ):
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SUDO_", "XDG_", "TMP"))}
        roots = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
        homes = {"HOME": str(tmp_path), "PYTHONPATH": roots}
        start = ["-m", "latmon"] if code is None else ["-c", code]
        return subprocess.run(
            [sys.executable, *start, *words],
            env={**own, **homes, **environ},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.parametrize("place", ["a link", "a directory"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_no_output_goes_where_another_user_decides(latmon, tmp_path, link, output, place):
    if place == "a directory":
        link.unlink()
        link.mkdir()
        os.chown(link, NOBODY, NOBODY)
    words = [word.replace(OUT, str(link / "out")) for word in OUTPUTS[output]]
    done = latmon(*words)
    assert done.returncode == 3, done.stderr
    *_, sentence = done.stderr.splitlines()
    assert f"{link}/out is not written as root, because {link} belongs to " in sentence
    assert "(uid 65534): name a file in a directory that only root can change" in sentence
    assert not list(link.iterdir())
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("output", [name for name in OUTPUTS if name not in ("watch", "fleet", "socket")])
def test_in_a_directory_like_tmp_each_output_is_written(latmon, link, output):
    path = link.parent / "out"
    done = latmon(*(word.replace(OUT, str(path)) for word in OUTPUTS[output]))
    assert done.returncode in (0, 4), done.stderr  # a busy host may leave a gap
    assert path.stat().st_uid == 0
    assert path.stat().st_size


def test_a_crash_log_goes_below_no_link_of_another_user(latmon, link, target):
    """Below a HOME such as /tmp."""
    link.rename(link.parent / ".local")
    code = "from latmon.cli import main; main._keep = lambda _, path: path; main.install(); 1 / 0"
    done = latmon(code=code, HOME=str(link.parent))
    assert done.stderr.endswith("/.local/state/latmon/crash.log\n")
    assert str(link.parent) not in done.stderr
    log = f"Path({str(link.parent)!r}, '.local/x')"
    code = f"from pathlib import Path; from latmon.cli import main; print(main._keep('', {log}))"
    done = latmon(code=code, HOME=str(link.parent))
    assert "the details could not be kept: " in done.stdout
    assert "belongs to nobody" in done.stdout
    assert not list(target.iterdir())


def test_the_config_is_not_edited_below_a_link_of_another_user(latmon, link, target):
    link.rename(link.parent / ".config")
    done = latmon("config", "edit", HOME=str(link.parent), EDITOR="true")
    assert done.returncode == 3
    assert f"because {link.parent}/.config belongs to nobody (uid 65534)" in done.stderr
    assert "set XDG_CONFIG_HOME to a directory that only root can change" in done.stderr
    assert not list(target.iterdir())


def test_temporary_files_are_not_where_another_user_decides(latmon, link, target):
    code = "import tempfile; from latmon.cli import commands; commands._guard_root(); print(tempfile.gettempdir())"
    done = latmon(code=code, TMPDIR=str(link))
    assert done.returncode == 0, done.stderr
    assert str(link) not in done.stdout
    done = latmon(code=code, TMPDIR=str(link.parent))
    assert done.stdout == f"{link.parent}\n"
    done = latmon("demo", "serialised", "--duration", "1s", "--svg", "-", TMPDIR=str(link))
    assert done.returncode == 0, done.stderr
    assert not list(target.iterdir())


def test_what_root_names_no_place_for_is_not_in_another_users_directory(latmon, tmp_path):
    """Pictures, and recordings by a key."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    code = "import os; from latmon.capture import target; print(target.default_directory(os.environ))"
    done = latmon(code=code, cwd=theirs)
    assert done.stdout == f"{tmp_path}/.local/state/latmon/recordings\n", done.stderr
    assert not list(theirs.iterdir())


def watch(latmon, tmp_path, text, *owned):
    path = tmp_path / "settings/latmon/config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for name in owned:
        os.chown(tmp_path / name, NOBODY, NOBODY)
    return latmon("watch", "--backend", "demo", XDG_CONFIG_HOME=str(tmp_path / "settings"))


def test_a_config_of_another_user_names_no_directory(latmon, tmp_path, target):
    text = f"on_finding: {{record: 60s, directory: {target}}}\n"
    done = watch(latmon, tmp_path, text, "settings/latmon/config.yaml")
    path = tmp_path / "settings/latmon/config.yaml"
    assert done.returncode == 3
    assert done.stderr == (
        f"latmon: on_finding: directory: {target} in {path} is not used as root, because {path} belongs to "
        f"nobody (uid 65534): `chown root {path}`, or name the directory in /etc/xdg/latmon/config.yaml instead\n"
    )


@pytest.mark.parametrize("owned", ["link", "cwd"])
def test_recordings_of_findings_go_where_only_root_decides(latmon, tmp_path, link, owned):
    text = f"on_finding: {{record: 60s, directory: {link}}}\n" if owned == "link" else "on_finding: {record: 60s}\n"
    done = watch(latmon, tmp_path, text, *([] if owned == "link" else ["."]))
    at = link if owned == "link" else tmp_path
    assert done.returncode == 3
    assert "is not " in done.stderr
    assert f"as root, because {at} belongs to nobody (uid 65534)" in done.stderr
