"""The shell script that a host runs, and the negotiation of what measures there: its latmon, or the shell itself.

The script is sent on standard input and nothing after it before its `ready`, because a shell may read ahead. Its lines
begin with `@`. It runs only programs that no other user can write to, and nothing from what a host sends runs here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon.capture.backend import Options
from latmon.support.text import clean
from latmon_backends.fleet.bundle import RUN, archive
from latmon_backends.fleet.ssh import Connection, HostError

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
      queue/max_sectors_kb queue/rq_affinity queue/iostats queue/nomerges dm/name dm/uuid md/level loop/backing_file \
      size wwid device/wwid device/vendor device/model device/name device/queue_depth device/queue_type \
      device/queue_ramp_up_period; do
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
  for b in /sys/block/*; do one "$b/inflight"; done
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
the kernel's types, CPUs, and how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, which is the offset of the third clock
in /proc/timer_list."""


@dataclass(frozen=True, slots=True)
class HostFacts:
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


async def hello(connection: Connection) -> HostFacts:
    """Send the script and return the host's answers. HostError without them."""
    connection.send(f"run='{RUN}'\n{_SCRIPT}".encode())
    deadline = time.monotonic() + START_S
    values: dict[str, str] = {}
    refused: list[str] = []
    for _ in range(_MAX_NOISE):
        line = clean(await connection.line(max(0.1, deadline - time.monotonic())), 400)
        word, _, rest = line.removeprefix("@").partition(" ")
        if not line.startswith("@") or ("hello" not in values and word != "hello"):
            continue
        if word == "ready":
            return HostFacts(values, tuple(refused))
        if word == "refused":
            refused.append(rest)
        elif len(values) < _MAX_HELLO:
            values[word] = rest
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


async def tool_facts(connection: Connection, facts: HostFacts) -> dict[str, str]:
    """Return the facts about a host with those about its bpftrace. HostError where it does not answer."""
    connection.send(b"tool\n")
    values = dict(facts.values)
    deadline = time.monotonic() + START_S
    for _ in range(_MAX_HELLO):
        line = clean(await connection.line(max(0.1, deadline - time.monotonic())), 400)
        word, _, rest = line.removeprefix("@").partition(" ")
        if word == "ready":
            break
        values[word] = rest.strip()
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
