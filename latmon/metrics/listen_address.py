"""The exporter listens on a TCP address, a unix socket, or the socket that systemd passes."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from latmon.support import output_files
from latmon.support.errors import UnavailableError

PORT = 9750
DEFAULT = f"127.0.0.1:{PORT}"
UNIX = "unix:"
_SYSTEMD = "systemd"
_FIRST_PASSED = 3
"""Number of the first file descriptor that systemd passes (sd_listen_fds(3))."""
_BACKLOG = 128
"""Connections that wait to be accepted; beyond these a client waits for a second, and more, to try again."""
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address of the exporter: host and port, the path of a unix socket, or the socket that systemd passes."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Parse `HOST:PORT`, `[::1]:PORT`, `:PORT`, `unix:PATH` or `systemd`. Raises ValueError."""
        if text == _SYSTEMD:
            return cls()
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > 100:  # noqa: PLR2004  sun_path: 108
                raise ValueError(f"{text!r}: the path of a unix socket begins with / and has at most 100 bytes")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) <= _MAX_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT, unix:/PATH or {_SYSTEMD}")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r}: an IPv6 address is written in brackets, as [::1]:{PORT}")
        return cls(host or "0.0.0.0", int(port))  # noqa: S104  the user asked for all addresses

    @property
    def is_local(self) -> bool:
        """Return whether only this host can reach it."""
        return not self.port or self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        if self.path:
            return f"{UNIX}{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else "the socket of systemd"

    def listen(self, environ: Mapping[str, str], gid: int | None = None) -> socket.socket:
        """Return a listening socket; `gid`: group of a unix socket, where latmon is root.

        Raises UnavailableError with the reason where that is impossible.
        """
        try:
            return self._listen(environ, gid)
        except OSError as error:
            raise UnavailableError(f"can't listen on {self}: {error.strerror or error}") from None

    def _listen(self, environ: Mapping[str, str], gid: int | None) -> socket.socket:
        if self.path:
            output_files.require(Path(self.path), f"the socket {self.path}")
            with _creating(0o660, gid):
                return _unix_socket(self.path, gid)
        if not self.port:
            return _passed_socket(environ)
        family, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        return listening


@contextmanager
def _creating(mode: int, gid: int | None) -> Iterator[None]:
    """Create files with this mode and group inside of the block.

    chmod and chown take a path, which another user who can write to a directory of it could point elsewhere.
    """
    umask, own = os.umask(0o777 & ~mode), os.getegid()
    try:
        if gid is not None:
            os.setegid(gid)
        yield
    finally:
        os.setegid(own)
        os.umask(umask)


def _unix_socket(path: str, gid: int | None) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
    except OSError:
        if not _removed(Path(path), gid):
            raise
        listening.bind(path)
    listening.listen(_BACKLOG)
    return listening


def _removed(path: Path, gid: int | None) -> bool:
    """Remove a socket without a listener; return whether it was one.

    Root removes only one with the owner and group that `_creating` gives it (the directory's, where that sets the
    group): sudo's user could otherwise replace the socket of a stopped service. The directory is opened once, because
    another user who can rename a part of the path could otherwise have the socket of another service removed. Systems
    without /proc/self/fd remove none.
    """
    with suppress(OSError):
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            link = Path(f"/proc/self/fd/{directory}", path.name)
            stat_result = link.lstat()
            above = os.fstat(directory)
            group = above.st_gid if above.st_mode & stat.S_ISGID else gid
            is_own = gid is None or (stat_result.st_uid, stat_result.st_gid) == (os.geteuid(), group)
            if stat.S_ISSOCK(stat_result.st_mode) and is_own and not _has_listener(link):
                os.unlink(path.name, dir_fd=directory)
                return True
        finally:
            os.close(directory)
    return False


def _has_listener(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def _passed_socket(environ: Mapping[str, str]) -> socket.socket:
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS") != "1":
        raise UnavailableError(
            "--listen systemd: systemd passed no socket, or more than one; see latmon-exporter.socket"
        )
    os.set_inheritable(_FIRST_PASSED, False)
    return socket.socket(fileno=_FIRST_PASSED)
