"""Throw-away ssh servers: own keys, ports and configuration, ended with this process.

They listen on the loopback interface, or as hosts in network namespaces of their own, each with a link to a namespace
for the client.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PRIVILEGE_SEPARATION = Path("/run/sshd")
"""sshd wants this directory, which only its service makes."""
_START_S = 20.0
PROGRAM = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Net:
    """A network namespace with an interface `eth0`."""

    name: str
    address: str = _LOOPBACK

    def words(self, *command: str) -> list[str]:
        """Return the words that run a command in it, which sees this host's /sys: `ip netns exec` mounts another."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *command]

    def ip(self, *words: str) -> None:
        _run("ip", "-n", self.name, *words)

    def shape(self, *words: str) -> bool:
        """Have the host send slowly; return whether this kernel has this kind of queue."""
        return not subprocess.run(
            ["tc", "-n", self.name, "qdisc", "replace", "dev", "eth0", "root", *words], check=False, capture_output=True
        ).returncode


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def can_have_nets() -> bool:
    """Return whether this user can make network namespaces with links between them."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc", "nsenter"))):
        return False
    try:
        with nets("x"):
            return True
    except subprocess.CalledProcessError:
        return False


@contextlib.contextmanager
def nets(*names: str) -> Iterator[tuple[Net, dict[str, Net]]]:
    """Make a namespace for the client, and one for each host with a link to it; yield both."""
    ours = [f"latmon-{os.getpid()}-{name}" for name in ("here", *names)]
    given_net = Net(ours[0])
    try:
        for one in ours:
            _run("ip", "netns", "add", one)
            _run("ip", "-n", one, "link", "set", "lo", "up")
        hosts = {}
        for at, name in enumerate(names, 1):
            hosts[name] = one = Net(ours[at], f"198.18.{at}.2")  # RFC 2544: for tests
            given_net.ip("link", "add", f"to{at}", "type", "veth", "peer", "name", "eth0", "netns", one.name)
            for net, link, address in ((given_net, f"to{at}", f"198.18.{at}.1"), (one, "eth0", one.address)):
                net.ip("address", "add", f"{address}/30", "dev", link)
                net.ip("link", "set", link, "up")
        yield given_net, hosts
    finally:
        for one in ours:
            subprocess.run(["ip", "netns", "delete", one], check=False, capture_output=True)


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach it."""

    port: int
    directory: Path
    pid: int = 0
    address: str = _LOOPBACK

    def words(self, command: str) -> list[str]:
        """`ssh -t` that runs `command` there."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "Compression=no")
        words = ["ssh", "-F", "none", "-t", "-p", str(self.port), "-i", str(self.directory / "user")]
        words += [word for option in options for word in ("-o", option)]
        return [*words, f"{getpass.getuser()}@{self.address}", command]


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
    for name, server in servers.items():
        lines += [
            f"Host {name}",
            f"HostName {server.address}",
            f"Port {server.port}",
            f"IdentityFile {server.directory / 'user'}",
        ]
    path.write_text("\n".join(lines) + "\n")
    return ("ssh", "-F", str(path))


@contextlib.contextmanager
def server(
    scratch: Path,
    name: str = "ssh",
    variables: Mapping[str, str] | None = None,
    *,
    keys: bool = True,
    net: Net | None = None,
    before: Sequence[str] = (),
) -> Iterator[Server]:
    """Run a server for this user, whose sessions have these environment variables; without `keys` by a password.

    `net`: where it is a host, with the client in `nets`; `before`: words that start the server's command.
    """
    directory = scratch / name
    directory.mkdir()
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
    made = os.geteuid() == 0 and not _PRIVILEGE_SEPARATION.exists()
    if made:
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    port, address = (_free_port(), _LOOPBACK) if net is None else (22, net.address)
    configuration = directory / "config"
    configuration.write_text(_configuration(directory, (address, port), variables or {}, keys=keys))
    words = [*before, PROGRAM or "sshd", "-D", "-e", "-f", str(configuration)]
    log = directory / "log"
    process = subprocess.Popen(words if net is None else net.words(*words), stderr=log.open("wb"))
    try:
        _wait(log)
        yield Server(port, directory, process.pid, address)
    finally:
        process.terminate()
        process.wait(5)
        shutil.rmtree(directory)
        if made:
            _PRIVILEGE_SEPARATION.rmdir()


def _configuration(directory: Path, at: tuple[str, int], variables: Mapping[str, str], *, keys: bool) -> str:
    words = " ".join(f"{key}={value}" for key, value in variables.items())
    forced = f'ForceCommand /usr/bin/env {words} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    lines = [
        f"ListenAddress {at[0]}:{at[1]}",
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
        "MaxStartups 100",
        "SetEnv SHLVL=2",  # at level 1 bash reads its user's .bashrc, which may set PATH and take seconds
        *([forced] if variables else []),
    ]
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if b"Server listening on" in log.read_bytes():
            return
        time.sleep(0.05)
    raise RuntimeError("the ssh server did not start")
