"""Cost of a fleet: `./bootstrap python tests/bench/fleet.py HOSTS SECONDS sh|latmon`, with openssh-server.

The hosts are names of one ssh server here. On those of `sh` the shell reads this machine's own counters; those of
`latmon` send a frame a second of 24 disks with all that tracing on demand adds, from a program that only sends.
It prints the time to the first screen with all hosts, how often the screen's clock changed, and the CPU time of
latmon's processes; that of the hosts, which are on this machine, is no part of it.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "backends", "tests/helpers", "tests/bench")]

import sshd  # noqa: E402
from emulated import Watched  # noqa: E402
from frames import ORIGIN, on_demand_host  # noqa: E402
from processes import cpu_s, memory_mb  # noqa: E402
from terminal import Terminal, latmon, wait_for  # noqa: E402

from latmon.recording.codec import IdleWriter, encode_origin, to_bytes  # noqa: E402

DEVICES, FRAMES, SIZE = 24, 60, (160, 50)
_CLOCK = re.compile(r"(\d\d:\d\d:\d\d) \S+ +last")
_LOOK_S, _START_S, _SETTLES_S = 0.2, 120.0, 10.0
_TOOLS = ("sh", "id", "uname", "find", "cat", "date", "sleep", "readlink", "mktemp", "rm", "sed")
_SENDER = """
import json, os, select, sys, time

def put(value):
    print(json.dumps(value, separators=(",", ":")), flush=True)

header, *frames = map(json.loads, open(sys.argv[1]))
put(header)
number, due = 0, time.monotonic()
while True:
    while select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
        sent = os.read(0, 65536)
        if not sent:
            sys.exit()
        for line in sent.splitlines():
            if "clock" in (asked := json.loads(line)):
                now_us = time.monotonic_ns() // 1000
                put({"type": "clock", "n": asked["clock"], "mono": now_us, "wall": time.time()})
    due += 1
    times = {"seq": number, "mono": time.monotonic_ns() // 1000, "wall": round(time.time(), 6)}
    put({**frames[number % len(frames)], **times})
    number += 1
"""
"""Sends a file's lines as `latmon fleet --feed` does, with this host's times, until standard input ends."""


def main() -> None:
    hosts, seconds, kind = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    names = [f"host{at:02}" for at in range(hosts)]
    with tempfile.TemporaryDirectory(prefix="latmon-fleet-", dir="/var/tmp") as scratch:
        home = Path(scratch)
        _fill(home / "tools", kind)
        with sshd.server(home, "server", {"PATH": str(home / "tools")}) as server:
            client = sshd.client(home / "client", dict.fromkeys(names, server))
            (home / "bin").mkdir()
            _write(home / "bin/ssh", f'exec {shutil.which("ssh")} -F {client[2]} "$@"')
            begun = time.monotonic()
            words, path = latmon("fleet", *names), f"{home / 'bin'}:/usr/bin:/bin"
            with Terminal(words, home, size=SIZE[::-1], PATH=path) as terminal:
                watched = Watched(lambda: terminal.output, *SIZE)
                shown = re.compile(rf" (hosts|of) {hosts} ")
                all_shown = wait_for(lambda: shown.search(" ".join(watched.lines())), _START_S, _LOOK_S)
                took = time.monotonic() - begun
                print(
                    f"{hosts} hosts, {kind}: first screen with all {took:.1f} s" if all_shown else "not all are shown"
                )
                time.sleep(_SETTLES_S)
                _watch(terminal, watched, seconds)
                terminal.type(b"q")
                print(f"left after q: {terminal.left()}")


def _watch(terminal: Terminal, watched: Watched, seconds: float) -> None:
    """Print the pace of the screen and what latmon's processes take."""
    pids = {"screen": terminal.screen, "collector": terminal.collector}
    clients = [pid for pid, _ in terminal.processes("ssh -F")]
    every = (*pids.values(), *clients)
    before, begun = {pid: cpu_s(pid) for pid in every}, time.monotonic()
    ticks: dict[str, float] = {}
    while time.monotonic() - begun < seconds:
        if match := _CLOCK.search(watched.lines()[0]):
            ticks.setdefault(match[1], time.monotonic())
        time.sleep(_LOOK_S)
    took = time.monotonic() - begun
    percent = {pid: 100 * (cpu_s(pid) - before[pid]) / took for pid in every}
    gap = max((after - one for one, after in itertools.pairwise(ticks.values())), default=took)
    print(f"the clock changed {len(ticks)} times in {took:.0f} s, at most {gap:.1f} s apart")
    for name, pid in pids.items():
        print(f"{name}: {percent[pid]:.1f} % of a CPU, {memory_mb(pid):.0f} MB")
    print(f"{len(clients)} clients of ssh: {sum(percent[pid] for pid in clients):.1f} % of a CPU")
    print("\n".join(watched.lines()), flush=True)


def _fill(tools: Path, kind: str) -> None:
    """Make the directory that is a host's PATH."""
    tools.mkdir()
    for name in _TOOLS:
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    if kind == "latmon":
        writer = IdleWriter()
        lines = [encode_origin(ORIGIN), *map(writer.encode, on_demand_host(DEVICES, FRAMES))]
        (tools / "feed").write_bytes(b"".join(map(to_bytes, lines)))
        (tools / "send.py").write_text(_SENDER)
        _write(tools / "latmon", f"exec {sys.executable} -I {tools}/send.py {tools}/feed")


def _write(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


if __name__ == "__main__":
    main()
