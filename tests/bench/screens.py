"""A program in a pseudo terminal, its every byte with the time it came, and what a terminal makes of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyte

ROOT = Path(__file__).resolve().parents[2]
_LEAVE_S = 8.0
LATMON = (sys.executable, "-P", "-m", "latmon")
ROOTS = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
SYNCHRONISED = re.compile(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+p?")
"""Private sequences, some of which pyte would draw as text."""


def environment(**more: str) -> dict[str, str]:
    """This environment, with the checkout's two roots and without a user's settings; byte code is compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": ROOTS, "XDG_CONFIG_HOME": "/nonexistent", "TERM": "xterm-256color", **more}


@dataclass(slots=True)
class Screen:
    """`chunks` are (seconds since the start, bytes)."""

    process: subprocess.Popen[bytes]
    rows: int
    columns: int
    chunks: list[tuple[float, bytes]] = field(default_factory=list)
    master: int = -1
    began: float = 0.0

    def press(self, keys: bytes) -> float:
        """Type the keys; returns when, in seconds since the start."""
        at = time.monotonic() - self.began
        os.write(self.master, keys)
        return at

    def cpu_ms(self) -> float:
        """CPU time of all threads of the process so far."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6

    @property
    def size(self) -> int:
        return sum(len(chunk) for _, chunk in self.chunks)

    def first(self, pattern: str) -> float | None:
        """Seconds until the terminal showed something that matches."""
        screen = pyte.Screen(self.columns, self.rows)
        stream = pyte.ByteStream(screen)
        for at, chunk in self.chunks:
            stream.feed(SYNCHRONISED.sub(b"", chunk))
            if re.search(pattern, "\n".join(screen.display)):
                return at
        return None

    def wait_for(self, pattern: str, seconds: float) -> float | None:
        """Return `first` as soon as it is there."""
        deadline = time.monotonic() + seconds
        while (at := self.first(pattern)) is None and time.monotonic() < deadline:
            time.sleep(0.2)
        return at


@contextlib.contextmanager
def shown(
    words: Sequence[str], *, rows: int = 24, columns: int = 80, environ: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Screen]:
    """The program on a terminal of its own, ended by hang-up at the latest."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd="/",
        env=environment(**environ),
        preexec_fn=_lead,  # noqa: PLW1509 - two system calls; no lock of ours can be held across them
    )
    os.close(slave)
    screen = Screen(process, rows, columns, master=master, began=began)
    reader = threading.Thread(target=_read, args=(master, began, screen.chunks), daemon=True)
    reader.start()
    try:
        yield screen
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_S)
        process.kill()
        process.wait()
        os.close(master)


def _lead() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(master: int, began: float, chunks: list[tuple[float, bytes]]) -> None:
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(master, 1 << 16):
            chunks.append((time.monotonic() - began, data))
