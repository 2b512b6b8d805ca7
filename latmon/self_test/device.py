"""The device: a loop device of our own on a file system that can be frozen, all of it in memory, seen by nobody else.

A shell in a mount namespace of its own makes all of it, holds what is written, and takes all of it away when its
standard input closes: so it does when we are killed. If that shell itself is killed, a second one thaws, for nothing
that was written would ever end; the loop devices stay then, and we name ours. No file is made on any disk: the images
are in a tmpfs that ends with the namespace. Knows nothing of what is written or measured.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latmon.errors import UnavailableError
from latmon.text import clean
from latmon.tools import search_path

SYS_BLOCK = Path("/sys/class/block")
COMMAND = "sudo latmon doctor --self-test"
SIZE = 16 << 20
"""Bytes of the device."""
_TOOLS = ("unshare", "mount", "umount", "losetup", "truncate", "mkfifo")
_FILE_SYSTEMS = (
    ("ext4", "64M", ("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0")),
    ("xfs", "320M", ("mkfs.xfs", "-q", "-f")),
    ("btrfs", "256M", ("mkfs.btrfs", "-q", "-f")),
)
"""Name, size of its image (what is not written takes no memory), how it is made: those that can be frozen."""
_MOUNT_POINTS = ("/tmp", "/run", "/mnt")  # noqa: S108  covered in a namespace of our own, nothing is written below it
_ANSWER_S = 30.0
_ENDED_S = 15.0
_SYS_ADMIN = 21
"""The capability that mounting takes."""
_CONTAINERS = (Path("/run/.containerenv"), Path("/.dockerenv"))

# $1: where the tmpfs is mounted; $2: the device's size; $3: a file system or nothing; $4: its image's size; then its
# mkfs. A line on stdin is for how long writes are to be held, in seconds. SIGPIPE would end the shell without its trap,
# Ctrl-C and a hang-up are the business of who started it. A loop device that is still in use is detached when it no
# longer is: the mounts end with the namespace. On a busy host each program that is started takes its time. The second
# shell reads a pipe that only the first one has open for writing: it ends with that one, however that one ends.
_SHELL = """
set -eu
trap '' PIPE INT HUP
at=$1 size=$2 fs=$3 room=$4 upper= lower= frozen=
shift 4
undo() {
    set +e
    exec 2>/dev/null
    [ -z "$frozen" ] || fsfreeze -u "$at/fs"
    losetup -d $upper $lower
}
trap undo EXIT
trap 'exit 1' TERM
mount -t tmpfs -o size=512m,mode=0700 latmon-self-test "$at"
mkdir "$at/fs"
if [ -n "$fs" ]; then
    truncate -s "$room" "$at/lower"
    "$@" "$at/lower" >/dev/null
    lower=$(losetup --find --show "$at/lower")
    mount -t "$fs" "$lower" "$at/fs"
fi
truncate -s "$size" "$at/fs/latmon-self-test"
mkfifo "$at/alive"
(
    trap - EXIT TERM
    read -r _ <"$at/alive" || :
    [ -z "$fs" ] || fsfreeze -u "$at/fs"
) </dev/null >/dev/null 2>&1 &
exec 9>"$at/alive"
upper=$(losetup --find --show "$at/fs/latmon-self-test")
echo "ready $upper"
while read -r seconds; do
    frozen=1
    fsfreeze -f "$at/fs"
    echo frozen
    sleep "$seconds" 9>&-
    fsfreeze -u "$at/fs"
    frozen=
    echo thawed
done
"""


@dataclass(frozen=True, slots=True)
class Own:
    """The device, while it is there."""

    path: Path
    holds: bool
    """Whether what is written can be held."""
    how: str
    shell: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        return self.path.name

    def hold(self, us: int) -> None:
        """From when this returns on nothing that is written completes, for that long from a moment ago."""
        assert self.shell.stdin is not None  # noqa: S101  it was started with pipes
        with contextlib.suppress(BrokenPipeError):  # then it answers nothing
            self.shell.stdin.write(b"%.3f\n" % (us / 1e6))
            self.shell.stdin.flush()
        _expect(self.shell, "frozen")

    def held(self) -> None:
        """Waits until it is over."""
        _expect(self.shell, "thawed")

    def written(self) -> int:
        """Writes that the kernel's own counters say have completed."""
        return int((SYS_BLOCK / self.name / "stat").read_text().split()[4])


def refuse(platform: str, uid: int, environ: Mapping[str, str], dev: Path = Path("/dev")) -> None:
    """UnavailableError where no device can be made, with what to do."""
    if platform != "linux":
        raise UnavailableError(f"the self-test makes a loop device of Linux, and this is {platform}.")
    if uid != 0:
        raise UnavailableError(f"the self-test makes a loop device of its own, which takes root: {COMMAND}")
    missing = [tool for tool in _TOOLS if _find(tool, environ) is None]
    if missing:
        raise UnavailableError(
            f"the self-test makes its device with {', '.join(missing)}, which can't be found: install util-linux."
        )
    if not (dev / "loop-control").exists():
        raise UnavailableError(
            "the self-test needs a loop device, and there is no /dev/loop-control: modprobe loop; "
            "in a container, run it on the host instead."
        )


@contextlib.contextmanager
def made(environ: Mapping[str, str], say: Callable[[str], None]) -> Iterator[Own]:
    """The device; gone when this is left, or it is said that it isn't. UnavailableError says why there is none."""
    system = file_system(environ)
    shell = _start(system, environ)
    name = "its device"
    try:
        own = _own(shell, "" if system is None else system[0])
        name = str(own.path)
        yield own
    finally:
        gone = _end(shell)
        if name != "its device" or not gone:
            say(f"{name} is gone again" if gone else left(name, shell.pid))


def left(name: str, pid: int) -> str:
    """What is said of a device that is still there."""
    return (
        f"{name} may still be there: process {pid} takes it away when it can; if there is no such process, "
        "`losetup -d` what `losetup -a` lists of latmon-self-test, then of /lower"
    )


def file_system(environ: Mapping[str, str]) -> tuple[str, str, Sequence[str]] | None:
    """The first that can be made and frozen here; None: writes can't be held."""
    if _find("fsfreeze", environ) is None:
        return None
    return next((one for one in _FILE_SYSTEMS if _find(one[2][0], environ)), None)


def _find(tool: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(tool, path=search_path(environ))


def _start(system: tuple[str, str, Sequence[str]] | None, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    name, room, make = system or ("", "0", ())
    at = next((one for one in _MOUNT_POINTS if Path(one).is_dir()), "/")
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SHELL, "latmon-self-test"]
    pipe = subprocess.PIPE
    # A session of its own: neither Ctrl-C nor a hang-up of the terminal may end it before its work is undone.
    return subprocess.Popen(  # noqa: S603  our own words, no shell but the one above
        [*words, at, str(SIZE), name, room, *make],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env={**environ, "PATH": search_path(environ), "LC_ALL": "C"},
        start_new_session=True,
    )


def _own(shell: subprocess.Popen[bytes], system: str) -> Own:
    path = Path(_expect(shell, "ready"))
    on = f" on {system}" if system else ""
    what = "frozen to hold writes" if system else "whose writes can't be held"
    return Own(path, bool(system), f"a loop device{on} in memory, {what}", shell)


def _expect(shell: subprocess.Popen[bytes], word: str) -> str:
    """What the shell says after that word; UnavailableError where it says anything else."""
    assert shell.stdout is not None  # noqa: S101  it was started with pipes
    ready, _, _ = select.select([shell.stdout], [], [], _ANSWER_S)
    line = clean(_line(shell.stdout.fileno())) if ready else ""
    said, _, rest = line.partition(" ")
    if said == word:
        return rest
    raise UnavailableError(_why(shell, word))


def _line(file: int) -> bytes:
    """Unbuffered, so that a second line is still seen by select."""
    line = b""
    while (byte := os.read(file, 1)) not in (b"", b"\n"):
        line += byte
    return line


def _why(shell: subprocess.Popen[bytes], word: str) -> str:
    _end(shell)
    complaints = shell.stderr.read() if shell.stderr and shell.poll() is not None else b""
    lines = [line for line in complaints.decode("utf-8", "replace").splitlines() if line.strip()]
    why = clean(lines[-1].strip().rstrip("."), 300) if lines else f"nothing was heard for {_ANSWER_S:.0f} s"
    what = "can't make its device" if word == "ready" else "can't hold what is written to its device"
    return f"the self-test {what}: {why}{'; in a container, run it on the host instead' if _contained() else ''}."


def _contained(status: Path = Path("/proc/self/status"), marks: Sequence[Path] = _CONTAINERS) -> bool:
    """Whether this looks like a container: it says so, or root may not mount."""
    try:
        found = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
        may = bool(int(found.split()[1], 16) >> _SYS_ADMIN & 1)
    except (OSError, StopIteration, ValueError, IndexError):
        may = True
    return not may or any(mark.exists() for mark in marks)


def _end(shell: subprocess.Popen[bytes]) -> bool:
    """Its input closes, so it undoes what it did; never killed, for then nobody would. Whether it has."""
    if shell.stdin is not None:
        with contextlib.suppress(OSError):
            shell.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        shell.wait(_ENDED_S)
    return shell.returncode is not None and shell.returncode >= 0
