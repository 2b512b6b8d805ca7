"""A throw-away ssh server on the loopback interface: its own keys, port and configuration, ended with this process."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""sshd wants this directory, which only its service makes."""
_START_S = 5.0


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach it."""

    port: int
    directory: Path

    def words(self, command: str) -> list[str]:
        """`ssh -t` that runs `command` there."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "Compression=no")
        words = ["ssh", "-F", "none", "-t", "-p", str(self.port), "-i", str(self.directory / "user")]
        return [*words, *(word for option in options for word in ("-o", option)), "root@127.0.0.1", command]


@contextlib.contextmanager
def server(scratch: Path) -> Iterator[Server]:
    directory = scratch / "ssh"
    directory.mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
    made = not _PRIVILEGE_SEPARATION.exists()
    _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    port = _free_port()
    configuration = directory / "config"
    configuration.write_text(_configuration(directory, port))
    process = subprocess.Popen(
        [shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "sshd", "-D", "-e", "-f", str(configuration)],
        stderr=(directory / "log").open("wb"),
    )
    try:
        _wait(port)
        yield Server(port, directory)
    finally:
        process.terminate()
        process.wait(5)
        shutil.rmtree(directory)
        if made:
            _PRIVILEGE_SEPARATION.rmdir()


def _configuration(directory: Path, port: int) -> str:
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {directory / 'host'}",
        f"AuthorizedKeysFile {directory / 'user.pub'}",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
    ]
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("the ssh server did not start")
