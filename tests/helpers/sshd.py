"""Throw-away ssh servers on the loopback interface: own keys, ports and configuration, ended with this process."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""sshd wants this directory, which only its service makes."""
_START_S = 20.0
PROGRAM = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach it."""

    port: int
    directory: Path
    pid: int = 0

    def words(self, command: str) -> list[str]:
        """`ssh -t` that runs `command` there."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "Compression=no")
        words = ["ssh", "-F", "none", "-t", "-p", str(self.port), "-i", str(self.directory / "user")]
        words += [word for option in options for word in ("-o", option)]
        return [*words, f"{getpass.getuser()}@127.0.0.1", command]


def client(path: Path, servers: Mapping[str, Server], known: Path | None = None) -> tuple[str, ...]:
    """Write a configuration in which each server is a host, and return the words of ssh with it.

    `known`: a file of host keys, of which a server must have one; without it all keys are good.
    """
    lines = [
        f"StrictHostKeyChecking {'no' if known is None else 'yes'}",
        f"UserKnownHostsFile {known or '/dev/null'}",
        "GlobalKnownHostsFile /dev/null",
        "LogLevel ERROR",
        f"User {getpass.getuser()}",
    ]
    for name, one in servers.items():
        lines += [f"Host {name}", "HostName 127.0.0.1", f"Port {one.port}", f"IdentityFile {one.directory / 'user'}"]
    path.write_text("\n".join(lines) + "\n")
    return ("ssh", "-F", str(path))


@contextlib.contextmanager
def server(
    scratch: Path, name: str = "ssh", variables: Mapping[str, str] | None = None, *, keys: bool = True
) -> Iterator[Server]:
    """Run a server for this user, whose sessions have these environment variables; without `keys` by a password."""
    directory = scratch / name
    directory.mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
    made = os.geteuid() == 0 and not _PRIVILEGE_SEPARATION.exists()
    if made:
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    port = _free_port()
    configuration = directory / "config"
    configuration.write_text(_configuration(directory, port, variables or {}, keys=keys))
    process = subprocess.Popen(
        [PROGRAM or "sshd", "-D", "-e", "-f", str(configuration)], stderr=(directory / "log").open("wb")
    )
    try:
        _wait(port)
        yield Server(port, directory, process.pid)
    finally:
        process.terminate()
        process.wait(5)
        shutil.rmtree(directory)
        if made:
            _PRIVILEGE_SEPARATION.rmdir()


def _configuration(directory: Path, port: int, variables: Mapping[str, str], *, keys: bool) -> str:
    # not SetEnv: bash reads its user's .bashrc in such sessions, which may set PATH
    words = " ".join(f"{key}={value}" for key, value in variables.items())
    forced = f'ForceCommand /usr/bin/env {words} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {directory / 'host'}",
        f"AuthorizedKeysFile {directory / 'user.pub'}",
        f"PermitRootLogin {'prohibit-password' if keys else 'yes'}",
        f"PubkeyAuthentication {'yes' if keys else 'no'}",
        f"PasswordAuthentication {'no' if keys else 'yes'}",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
        *([forced] if variables else []),
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
