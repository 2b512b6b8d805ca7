"""Bytes per second to the terminal: 8 devices, 80x24, 1 Hz, for several kinds of terminal, also through ssh."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from disks import loops, trickle
from figures import Figure, Section
from screens import LATMON, ROOTS, Screen, shown

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import sshd

LIMIT_KB = 8.0
_TERMS = ("xterm-256color", "linux", "screen")
_DEVICES = 8
_WARM_UP_S, _SECONDS = 8.0, 5.0
_PATIENCE_S = 25.0
_LIVE = (*LATMON, "--backend", "bpftrace")
_DEMO = (*LATMON, "demo")
_PEERS = (("top", "-d", "1"), ("iostat", "-x", "1"))


def measure(scratch: Path, rounds: int) -> Iterator[Section]:
    figures = []
    with loops(_DEVICES, 16) as paths, trickle(paths, 40), sshd.server(scratch) as server:
        device = Path(paths[0]).name
        for term in _TERMS:
            figures += _local(term, device, rounds)
            figures += _remote(server, term, device, rounds)
    yield Section(
        title=f"Bytes to the terminal, {_DEVICES} devices, 80x24, 1 Hz",
        method=(
            f"Live bpftrace on {_DEVICES} loop devices, 80 I/Os per second each; what reaches the terminal after the"
            f" first {_WARM_UP_S:.0f} s, {_SECONDS:.0f} s per run, all of a kind at the same time. kB are 1,000 bytes."
            " ssh: a server of our own on the loopback interface, no compression, `ssh -t`; the bytes are those that"
            " ssh hands to the terminal."
        ),
        figures=figures,
    )


def _local(term: str, device: str, rounds: int) -> list[Figure]:
    with ExitStack() as stack:
        screens = [stack.enter_context(shown(words, environ={"TERM": term})) for words in (_LIVE, _DEMO, *_PEERS)]
        live, demo, *peers = _rates(screens, device, rounds)
    return [
        Figure(f"{term}: latmon", live, "kB/s", LIMIT_KB, 2),
        Figure(f"{term}: latmon demo", demo, "kB/s", LIMIT_KB, 2),
        *(Figure(f"{term}: peer {words[0]}", rate, "kB/s", None, 2) for words, rate in zip(_PEERS, peers, strict=True)),
    ]


def _remote(server: sshd.Server, term: str, device: str, rounds: int) -> list[Figure]:
    command = f"PYTHONPATH={shlex.quote(ROOTS)} exec {shlex.join(_LIVE)}"
    with shown(server.words(command), environ={"TERM": term}) as screen:
        (live,) = _rates([screen], device, rounds)
    return [Figure(f"{term}: latmon, ssh -t", live, "kB/s", LIMIT_KB, 2)]


def _rates(screens: Sequence[Screen], device: str, rounds: int) -> list[tuple[float, ...]]:
    """Per screen: kB per second in each round, once the first shows data."""
    if screens[0].wait_for(rf"{device}\b.*\d", _PATIENCE_S) is None:
        raise RuntimeError("latmon showed no data")
    time.sleep(_WARM_UP_S)
    rates: list[list[float]] = [[] for _ in screens]
    for _ in range(rounds):
        before, began = [screen.size for screen in screens], time.monotonic()
        time.sleep(_SECONDS)
        passed = time.monotonic() - began
        for rate, screen, size in zip(rates, screens, before, strict=True):
            rate.append((screen.size - size) / passed / 1000)
    return [tuple(rate) for rate in rates]
