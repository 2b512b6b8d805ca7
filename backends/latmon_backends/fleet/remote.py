"""The ssh connection to one host, the shell script that the host runs, and the choice of what measures there.

The connection is the system's OpenSSH with the user's own configuration, keys and agent; it never asks for anything
(BatchMode). Standard input of the remote command is the lifeline: all that runs there ends when it closes.

The script is sent on standard input and nothing after it before its `ready`, because a shell may read ahead. Its lines
begin with `@`. It runs only programs that no other user can write to, and nothing from what a host sends runs here.
latmon, an archive for a host with Python, or the shell itself measures there.

The archive has latmon's modules, its probes and PyYAML without C code. It is unpacked into a private directory in
memory, which two processes remove: the one that measures, and its shell. psutil is left out: no system with
/proc/diskstats needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shlex
import time
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Self

import yaml

import latmon
from latmon.capture.backend import Options
from latmon.support.errors import LatmonError, UsageError
from latmon.support.paths import data_dir
from latmon.support.text import clean
from latmon_backends.probe.process import Child

MAX_HOSTS = 32
MAX_LABEL = 24
MAX_LINE = 16 * 1024 * 1024
"""Bytes of a line of a host; a window of 1,000 devices has 2 MB."""
_HOST = re.compile(r"(?:ssh://)?(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_\[:][A-Za-z0-9_.:%\[\]-]*")
"""Letters, digits and signs of names and addresses: nothing that a shell or ssh's own expansions read as more."""
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_MAX_NAME = 255
_OPTIONS = (
    *("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
    *("RequestTTY=no", "RemoteCommand=none", "PermitLocalCommand=no", "ClearAllForwardings=yes"),
    *("ForwardAgent=no", "ForwardX11=no", "StdinNull=no", "ForkAfterAuthentication=no"),
)
_SHELL = "exec sh -s"
"""The user's login shell on the host may be any: each of them knows these words."""
_LEAVING_S = 1.5
_AGAIN_S = 0.5
_STDERR_LINES = 20
_PORTION = 1 << 16
_REMEDIES = {
    "Permission denied (": "ssh asks for no password here: set up a key or an agent, or connect first (ControlMaster)",
    "HOST IDENTIFICATION HAS CHANGED": "its key is not the known one: connect with ssh, and find out why first",
    "Host key verification failed": "connect once with ssh to check and keep its key",
}
"""A sign in a line of ssh -> what to do. The first that applies counts: a changed key also fails the verification."""
_LEFT_OUT = frozenset(
    ("tui", "diff", "report", "exporters", "importers", "metrics", "doctor", "demo", "probes", "themes", "tours")
)
"""Directories of latmon and of its backends that no capture without a screen needs, or that have roots of their own."""
_FILES = frozenset({".py", ".yaml", ".bt", ".d"})
_EPOCH = (1980, 1, 1, 0, 0, 0)

RUN_ARCHIVE = """
import os, shutil, sys
where, size = sys.argv[1], int(sys.argv[2])
try:
    data = bytearray()
    while len(data) < size:
        part = os.read(0, min(size - len(data), 1 << 16))
        if not part:
            sys.exit(1)
        data += part
    import io, zipfile
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(where)
    sys.path.insert(0, where)
    sys.dont_write_bytecode = True
    from latmon.cli.main import run
    code = run(sys.argv[3:])
finally:
    shutil.rmtree(where, ignore_errors=True)
sys.exit(code)
"""
"""The program that the host's Python runs: directory, size of the archive, command line of latmon."""
START_S = 30.0
"""Time for a connection and the shell's first answer; ssh itself gives up connecting after 10 s."""
ANSWER_S = 10.0
PINGS = 3
_MAX_HELLO = 20
_MAX_NOISE = 200
"""Lines that a login shell may print before the script's first one, with the script's own."""

_SCRIPT = r"""
LC_ALL=C; export LC_ALL; umask 077; set -f; python=
case $(id -u) in 0) ;; *) PATH=$PATH:$HOME/.local/bin ;; esac
say() { printf '@%s\n' "$*"; }
safe() {
  s=$1; n=0
  while every_step "$s"; do
    test -L "$s" || { s=$(cd -P "${s%/*}/" && pwd)/${s##*/}; every_step "$s"; return; }
    t=$(readlink "$s") || return 1
    case $t in /*) s=$t ;; *) s=${s%/*}/$t ;; esac
    n=$((n + 1)); test $n -le 20 || return 1
  done
  return 1
}
every_step() {
  q=$1
  while :; do
    test -n "$(find -L "${q:-/}" -prune \( -user 0 -o -user "$(id -u)" \) \( -type d -perm -1000 \
      -o ! -perm -2 \( ! -perm -20 -o -group 0 -o -group "$own" \) \) 2>/dev/null)" || return 1
    test -n "$q" || return 0
    q=${q%/*}
  done
}
own=0; test "$(id -gn)" != "$(id -un)" || own=$(id -g)
found() {
  p=$(command -v "$1" 2>/dev/null) || return 0
  case $p in /*) ;; *) return 0 ;; esac
  safe "$p" || { say "refused $1 $p: another user can change it"; return 0; }
  case $1 in python*)
    test -z "$python" || return 0
    "$p" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return 0
    python=$p
    say "python $p"; return 0 ;;
  bpftrace) bpftrace=$p ;;
  esac
  say "$1 $p"
}
facts() {
  set +f
  for b in /sys/block/*; do
    n=${b##*/}
    for f in queue/nr_requests queue/scheduler queue/wbt_lat_usec queue/write_cache queue/rotational \
      queue/max_sectors_kb queue/read_ahead_kb queue/rq_affinity queue/iostats queue/nomerges dm/name dm/uuid md/level \
      loop/backing_file size removable wwid device/wwid device/vendor device/model device/name device/queue_depth \
      device/queue_type device/queue_ramp_up_period; do
      one "$b/$f"
    done
    printf 'l class/block/%s block/%s\n' "$n" "$n"
    for q in "$b"/*/partition; do
      test -f "$q" || continue
      q=${q%/*}; one "$q/partition"
      printf 'l class/block/%s %s\n' "${q##*/}" "${q#/sys/}"
    done
    for q in "$b"/mq/*; do test -d "$q" && printf 'd %s\n' "${q#/sys/}"; one "$q/nr_tags"; done
    for s in "$b"/slaves/*; do
      test -e "$s" || continue
      s=${s##*/}
      test -e "/sys/class/block/$s/partition" && s=$(cd -P "/sys/class/block/$s/.." && pwd) && s=${s##*/}
      printf 'd block/%s/slaves/%s\n' "$n" "$s"
    done
    p=$(cd -P "$b/device" 2>/dev/null && pwd) || continue
    printf 'l block/%s/device %s\n' "$n" "${p#/sys/}"
    above "$p"
  done
  test -d /sys/bus/event_source/devices/kprobe && echo d bus/event_source/devices/kprobe
  for h in /sys/class/scsi_host/*; do
    for f in proc_name can_queue cmd_per_lun nr_hw_queues host_tagset; do one "$h/$f"; done
  done
  set -f
}
one() { test -f "$1" && test -r "$1" && IFS= read -r v <"$1" && printf 'f %s %s\n' "${1#/sys/}" "$v"; } 2>/dev/null
above() {
  p=$1
  while case $p in /sys/devices/*) ;; *) false ;; esac; do
    case $seen in *" $p "*) return ;; esac
    seen="$seen $p "
    printf 'd %s\n' "${p#/sys/}"
    for k in subsystem driver; do
      test -L "$p/$k" && t=$(readlink "$p/$k") && printf 'n %s %s\n' "${p#/sys/}/$k" "${t##*/}"
    done
    for f in transport sqsize queue_count address; do one "$p/$f"; done
    p=${p%/*}
  done
}
tick() {
  set +f; names=$(echo /sys/block/*); set -f
  test "$names" = "$before" || { before=$names; seen=; v=$(say facts; facts; say end); printf '%s\n' "$v"; }
  v=$(counts); printf '%s\n' "$v"
}
counts() {
  read -r u _ </proc/uptime
  say "tick $u"
  while IFS= read -r v; do printf 's %s\n' "$v"; done </proc/diskstats
  set +f
  for b in /sys/block/*; do one "$b/inflight"; one "$b/diskseq"; done
  set -f
  one /sys/power/suspend_stats/success
  say end
}
asked() {
  before=
  trap '' USR1
  (
    trap n=0 USR1; n=0
    while test $n -lt $1; do n=$((n + 5)); sleep 5; kill -0 $$ || exit; done
    kill $$
  ) </dev/null >/dev/null 2>&1 &
  w=$!
  while read -r v && test "$v" = now; do kill -USR1 $w; tick; done
  kill $w
}
tool() {
  root=
  if test "$(id -u)" != 0; then
    root='sudo -n'
    command -v sudo >/dev/null || { say denied; return; }
    v=$(sudo -n sh -c : 2>&1 </dev/null) || { say "denied $(printf '%s\n' "$v" | sed -n '$p')"; return; }
    say "rights sudo"
  fi
  say "version $("$bpftrace" --version 2>/dev/null </dev/null | sed -n 1p)"
  b=/sys/kernel/btf; t=
  if test -r $b/vmlinux; then
    t=vmlinux
    for v in io_start_time_ns rq_disk nvme_complete_batch_req; do
      grep -qw $v $b/vmlinux $b/nvme_core 2>/dev/null </dev/null && t="$t $v"
    done
  fi
  say "types $t"
  while read -r _ _ t _; do case $t in tracefs|debugfs) say "tracefs $t" ;; esac; done </proc/self/mounts
  set +f; set -- /sys/devices/system/cpu/cpu[0-9]*; set -f
  say "cpus $#"
  say "ahead $($root sh -c 'cat /proc/timer_list' 2>/dev/null </dev/null |
    sed -n '/^ *\.index: *2$/,/offset/s/^ *\.offset: *\([0-9]*\) nsecs.*/\1/p' | sed -n 1p)"
  t=/proc/self/timens_offsets
  test -r $t && while read -r v w x; do test "$v" = boottime && say "boottime $w $x"; done <$t
}
private() {
  for q in /run "${XDG_RUNTIME_DIR:-/nowhere}" /dev/shm /tmp; do
    test -d "$q" && test -w "$q" || continue
    test -O "$q" || test -k "$q" || continue
    set +f
    for d in "$q"/latmon-fleet.*; do
      w=${d#*/latmon-fleet.}
      test -O "$d" && test ! -L "$d" && ! kill -0 "${w%%.*}" 2>/dev/null && rm -rf "$d"
    done
    set -f
    d=$(mktemp -d "$q/latmon-fleet.$$.XXXXXX" 2>/dev/null) && return 0
  done
  say "end no directory for latmon's files can be made"; exit 1
}
carried() {
  private
  trap 'rm -rf "$d"' EXIT
  trap 'exit 1' HUP INT TERM
  size=$1; shift
  say send
  "$python" -I -c "$run" "$d" "$size" fleet --feed "$@"
}
say hello; say "shell $$"
say "uid $(id -u)"; say "host $(uname -n)"; say "kernel $(uname -sr)"
test -r /proc/sys/kernel/random/boot_id && read -r v </proc/sys/kernel/random/boot_id && say "boot $v"
for n in latmon python3.14 python3.13 python3.12 python3.11 python3 bpftrace; do found $n; done
test -r /proc/diskstats && test -r /proc/uptime && say "counters /proc"
say ready
while read -r what rest; do
  case $what in
    clock) u=; test -r /proc/uptime && read -r u _ </proc/uptime; say "clock $rest ${u:-0} $(date +%s)" ;;
    carried) carried $rest; exit ;;
    latmon) exec "$(command -v latmon)" fleet --feed $rest ;;
    tool) tool; say ready ;;
    asked) asked $rest ;;
  esac
done
"""
"""`found` reports a program by its path unless another user can change it: `every_step` of its path, of each link to it
and of where they lead belongs to root or to this user, and neither others nor a group write to it, but root's or the
user's own group; a directory may be sticky. `tick` prints what the procfs reader reads, in the order of its files and
as a whole, because sshd waits for an answer to each small one. `asked` does it for each line `now` up to another one.
After so many seconds without a line a process beside the shell, in which USR1 begins the count again, ends it: `read`
has a time limit in some shells only. `tool` reports what decides how bpftrace measures there: rights, version, names in
the kernel's types, CPUs, and two distances of clocks. `ahead`: the kernel's CLOCK_BOOTTIME less its CLOCK_MONOTONIC,
which is the offset of the third clock in /proc/timer_list. `boottime`: what a time namespace adds to CLOCK_BOOTTIME, in
s and ns; /proc/uptime has it, stamps of probes don't."""


class HostError(LatmonError):
    """A host can't be measured, or no longer; the reason without the host's name."""


def checked_host(name: str) -> str:
    """Return a host's name as ssh takes it. Raises ValueError for what could be an option or more than a name."""
    if len(name) > _MAX_NAME or not _HOST.fullmatch(name):
        raise ValueError(
            f"{clean(name, 80)!r} is no host name of ssh, such as db-07, root@10.0.0.7 or ssh://db-07:2222"
        )
    return name


def labels(hosts: Sequence[str]) -> dict[str, str]:
    """Return host -> its name on the screen: without user, port and domain where that is unique.

    It has no colon, which separates it from a device's name: `fe80::1` is `fe80--1`.
    UsageError for a host that is named twice, or for too many.
    """
    if len(set(hosts)) < len(hosts):
        twice = next(host for host in hosts if hosts.count(host) > 1)
        raise UsageError(f"{twice} is named twice")
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"{len(hosts)} hosts are more than {MAX_HOSTS}: for those, run latmon exporter on them")
    for shorten in (_short, _without_user):
        short = {host: _without_colon(shorten(host))[-MAX_LABEL:].lstrip("-") for host in hosts}
        if len(set(short.values())) == len(hosts):
            return short
    return {host: f"{at}-{_without_colon(_short(host))}"[:MAX_LABEL] for at, host in enumerate(hosts, 1)}


def _without_colon(name: str) -> str:
    name = name.translate({ord("["): None, ord("]"): None})
    return ("0" + name if name.startswith(":") else name).replace(":", "-")


def _without_user(host: str) -> str:
    return host.removeprefix("ssh://").rpartition("@")[2]


def _short(host: str) -> str:
    name = _without_user(host)
    if host.startswith("ssh://"):
        name = re.sub(r":\d+$", "", name)
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0] or name


def _words(host: str, client: Sequence[str]) -> list[str]:
    """Return the command line of ssh; `client`: its first words."""
    return [*client, "-T", *(word for option in _OPTIONS for word in ("-o", option)), "--", host, _SHELL]


async def start_there(host: str, client: Sequence[str], words: Sequence[str]) -> Child:
    """Start a probe's words on the host, over a connection of its own. OSError where ssh can't be started."""
    script = f"exec {shlex.join(words)}\n".encode()
    return await Child.start(_words(host, client), script=script, environ=os.environ)


class Connection:
    """A running ssh client with `sh -s` on the host."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._complaints: deque[str] = deque(maxlen=_STDERR_LINES)
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, host: str, client: Sequence[str]) -> Self:
        """Start the client. `client`: the words of ssh. HostError where there is none."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *_words(host, client), stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE
            )
        except FileNotFoundError:
            raise HostError("there is no ssh here: install OpenSSH's client") from None
        except OSError as error:
            raise HostError(f"ssh can't be started: {error.strerror}") from error
        return cls(process)

    def send(self, data: bytes) -> None:
        """Send bytes to the remote shell, or to what it runs."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(data)

    async def line(self, within_s: float) -> bytes:
        """Return the next line without its end. HostError at the end, or where none comes in time."""
        try:
            try:
                line = await self._line(within_s)
            except TimeoutError:  # also where this process was stopped meanwhile, and has not read what came
                line = await self._line(_AGAIN_S)
        except TimeoutError:
            raise HostError(f"it does not answer: nothing came for {within_s:.0f} s") from None
        except ValueError:
            raise HostError("it sends lines without an end") from None
        if not line.endswith(b"\n"):
            raise HostError(await self._why())
        return line[:-1]

    async def _line(self, within_s: float) -> bytes:
        stdout = self._process.stdout
        async with asyncio.timeout(within_s):
            return b"" if stdout is None else await stdout.readline()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the client has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()

    async def close(self) -> None:
        """Close the remote side's standard input, which ends it; kill the client if that takes too long.

        Its end is awaited for a bounded time: what it has started, such as a ProxyCommand, may keep its pipes open.
        """
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_LEAVING_S):
                await process.wait()
        except TimeoutError:
            self._kill()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - Process has no close of its own
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await process.wait()
        except asyncio.CancelledError:
            self._kill()
            raise
        finally:
            self._listening.cancel()
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
            await asyncio.wait({self._listening})

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _why(self) -> str:
        """Return why the connection ended: the last line that ssh or the remote command printed, and a remedy."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * _LEAVING_S):
                await self._process.wait()
                await asyncio.shield(self._listening)
        why = self._complaints[-1] if self._complaints else "the connection was closed"
        remedy = next(
            (text for sign, text in _REMEDIES.items() if any(sign in complaint for complaint in self._complaints)), ""
        )
        return f"{why.rstrip('.')}: {remedy}" if remedy else why

    async def _listen(self) -> None:
        stderr = self._process.stderr
        remainder = b""
        while stderr is not None and (portion := await stderr.read(_PORTION)):
            *lines, remainder = (remainder + portion).split(b"\n")
            self._complaints += [_complaint(line) for line in lines if line.strip()]
            remainder = remainder[-_PORTION:]
        if remainder.strip():
            self._complaints.append(_complaint(remainder))


def _complaint(line: bytes) -> str:
    return clean(line.strip().removeprefix(b"ssh: "), 200)


@cache
def archive() -> bytes:
    """Return the archive, the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, file in sorted(_files()):
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files by their names in the archive."""
    roots = {
        "latmon": Path(latmon.__file__).parent,
        "latmon_backends": Path(__file__).parents[1],
        "latmon/probes": data_dir("probes"),
        "yaml": Path(yaml.__file__).parent,
    }
    for name, root in roots.items():
        for file in root.rglob("*"):
            below = file.relative_to(root)
            if file.suffix in _FILES and file.is_file() and below.parts[0] not in _LEFT_OUT:
                yield f"{name}/{below.as_posix()}", file


@dataclass(frozen=True, slots=True)
class HostAnswers:
    """Facts about a host: its answers to the script, clean, and programs with their paths."""

    values: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        return self.values.get(name, "")


@dataclass(frozen=True, slots=True)
class Offset:
    """What a host's clocks lack to ours: of the monotonic one in us, of the wall clock in s; half of a round trip."""

    mono_us: int
    wall_s: float
    error_us: int


async def hello(connection: Connection) -> HostAnswers:
    """Send the script and return the host's answers. HostError without them."""
    connection.send(f"run='{RUN_ARCHIVE}'\n{_SCRIPT}".encode())
    deadline = time.monotonic() + START_S
    values: dict[str, str] = {}
    refused: list[str] = []
    for _ in range(_MAX_NOISE):
        line = clean(await connection.line(max(0.1, deadline - time.monotonic())), 400)
        word, _, remainder = line.removeprefix("@").partition(" ")
        if not line.startswith("@") or ("hello" not in values and word != "hello"):
            continue
        if word == "ready":
            return HostAnswers(values, tuple(refused))
        if word == "refused":
            refused.append(remainder)
        elif len(values) < _MAX_HELLO:
            values[word] = remainder
    raise HostError("its login shell prints text and does not run sh")


async def shell_offset(connection: Connection) -> Offset:
    """Return the offset of CLOCK_BOOTTIME, which the shell can read with a resolution of 10 ms."""
    best: Offset | None = None
    for number in range(PINGS):
        sent_us, sent = time.monotonic_ns() // 1000, time.time()
        connection.send(f"clock {number}\n".encode())
        words = clean(await connection.line(ANSWER_S), 200).split()
        took_us = time.monotonic_ns() // 1000 - sent_us
        try:
            up_us, wall = round(float(words[2]) * 1e6), float(words[3])
        except (IndexError, ValueError, OverflowError):
            raise HostError("its shell has no clock") from None
        offset = Offset(sent_us + took_us // 2 - up_us, sent + took_us / 2e6 - wall, took_us // 2)
        best = offset if best is None or offset.error_us < best.error_us else best
    if best is None:
        raise HostError("its shell has no clock")
    return best


async def tool_facts(connection: Connection, facts: HostAnswers) -> dict[str, str]:
    """Return the facts about a host with those about its bpftrace. HostError where it does not answer."""
    connection.send(b"tool\n")
    values = dict(facts.values)
    deadline = time.monotonic() + START_S
    for _ in range(_MAX_HELLO):
        line = clean(await connection.line(max(0.1, deadline - time.monotonic())), 400)
        word, _, remainder = line.removeprefix("@").partition(" ")
        if word == "ready":
            break
        values[word] = remainder.strip()
    return values


def feed_options(options: Options) -> str:
    """Return the options of a host's latmon; every word is latmon's own or a number."""
    words = ["--interval", f"{options.interval_us}us", "--stages", options.stages]
    if options.threshold_us is not None:
        words += ["--threshold", f"{options.threshold_us}us"]
    return " ".join(words)


async def carry(connection: Connection, options: Options) -> None:
    """Send latmon's own archive, and have the host's Python run it. HostError where there is no room for it."""
    data = archive()
    connection.send(f"carried {len(data)} {feed_options(options)}\n".encode())
    answer = clean(await connection.line(ANSWER_S), 200).removeprefix("@")
    if answer != "send":
        raise HostError(answer.removeprefix("end ") or "it did not take latmon's files")
    connection.send(data)


def asked_command(options: Options) -> bytes:
    """Return the line after which the shell answers each `now`, with the seconds of silence that end it."""
    return f"asked {options.quiet_s:.0f}\n".encode()
