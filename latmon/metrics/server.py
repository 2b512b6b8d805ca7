"""The exporter: serves a live capture's metrics over HTTP, on an address, a unix socket or one that systemd passes.

The collector, which opens the probes, is a process of its own (capture/session.py). This one drops root before it
reads a request, and opens no other connection. TLS and passwords come from a file in the format that Prometheus'
exporters share (exporter-toolkit, docs/web-configuration.md).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import gzip
import hashlib
import hmac
import os
import re
import socket
import ssl
import stat
import sys
import syslog
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from latmon import __version__
from latmon.capture.registry import Request
from latmon.capture.session import Session, followed, until_signal
from latmon.findings.rule import Settings
from latmon.metrics.families import BOUNDS_US, PROTOBUF, TEXT, HostMetrics, prometheus_text, protobuf
from latmon.support import output_files, privileges, strict_yaml, trust
from latmon.support.errors import EXIT_DONE, UnavailableError, UsageError
from latmon.support.streams import Log
from latmon.support.text import clean

PORT = 9750
DEFAULT = f"127.0.0.1:{PORT}"
UNIX = "unix:"
_SYSTEMD = "systemd"
_FIRST_PASSED = 3
"""Number of the first file descriptor that systemd passes (sd_listen_fds(3))."""
_TIMEOUT_S = 5.0
"""Longest time of one request, from the connection to the last byte."""
_MAX_REQUESTS = 8
"""Complete requests that are answered at the same time; further ones wait for at most _ROOM_S."""
_ROOM_S = 2.0
"""Less than _TIMEOUT_S: what remains is for the answer that there was no room."""
_MAX_CONNECTIONS, _MAX_OF_PEER = 24, 16
"""Connections at the same time, in all and of one address; for a new one beyond these an older one is closed."""
_CUT_S = 1.0
"""Time for the thread of a connection to end once that was cut."""
_MAX_HASHED = 4
"""Passwords of one address that wait for their hash."""
_HASHING_SHARE = 0.1
"""Share of a CPU that wrong passwords may take at most."""
_BACKLOG = 128
"""Connections that wait to be accepted; beyond these a client waits for a second, and more, to try again."""
_MAX_PORT = 65_535
_READY = b"no interval has ended yet\n"
_PAGE = """<!doctype html><meta charset="utf-8"><title>latmon</title><h1>latmon {version}</h1>
<p><a href="/metrics">Metrics</a> of this host's I/O latency, for Prometheus.</p>
"""


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
        one = socket.socket(family, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(_BACKLOG)
        return one


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
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.bind(path)
    except OSError:
        if not _removed(Path(path), gid):
            raise
        one.bind(path)
    one.listen(_BACKLOG)
    return one


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
            there = Path(f"/proc/self/fd/{directory}", path.name)
            found = there.lstat()
            above = os.fstat(directory)
            group = above.st_gid if above.st_mode & stat.S_ISGID else gid
            is_own = gid is None or (found.st_uid, found.st_gid) == (os.geteuid(), group)
            if stat.S_ISSOCK(found.st_mode) and is_own and not _has_listener(there):
                os.unlink(path.name, dir_fd=directory)
                return True
        finally:
            os.close(directory)
    return False


def _has_listener(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        try:
            one.connect(str(path))
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


_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_TLS, _USERS = "tls_server_config", "basic_auth_users"
_HASH = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")
"""A bcrypt hash: version, cost, 22 characters of salt and 31 of the hash."""
_TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")


@dataclass(frozen=True, slots=True)
class Web:
    """Contents of the file of --web-config: TLS, and user -> bcrypt hash of the password."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Web:
        """Read a file. Raises UsageError with file and key, UntrustedError where root would obey another user's."""
        if os.geteuid() == 0:
            trust.require_path(path, f"--web-config {path}", "let root own it")
        try:
            values = strict_yaml.parse(path, path.read_bytes())
        except OSError as error:
            raise UsageError(f"--web-config {path}: {error.strerror}") from None
        if not isinstance(values, dict) or (unknown := [one for one in values if one not in (_TLS, _USERS)]):
            what = f"unknown key {unknown[0]!r}" if isinstance(values, dict) else "expected keys"
            raise UsageError(f"--web-config {path}: {what}; the keys are {_TLS} and {_USERS}")
        return cls(_tls(path, values.get(_TLS)), _users(path, values.get(_USERS)))


def _tls(path: Path, values: Any) -> ssl.SSLContext | None:
    if values is None:
        return None
    where = f"--web-config {path}: {_TLS}"
    texts = values if isinstance(values, dict) else {}
    if not texts or (unknown := [key for key in texts if key not in _TLS_KEYS or not isinstance(texts[key], str)]):
        named = f"unknown key or value {unknown[0]!r}" if texts else "expected keys"
        raise UsageError(f"{where}: {named}; the keys are {', '.join(_TLS_KEYS)}, each a text")
    files = {key: path.parent / texts[key] for key in ("cert_file", "key_file", "client_ca_file") if key in texts}
    clients, least = texts.get("client_auth_type", "NoClientCert"), texts.get("min_version", "TLS12")
    for key, value, known in (("client_auth_type", clients, _CLIENTS), ("min_version", least, _VERSIONS)):
        if value not in known:
            raise UsageError(f"{where}: {key}: {value!r} is not one of {', '.join(known)}")
    if not {"cert_file", "key_file"} <= files.keys():
        raise UsageError(f"{where}: cert_file and key_file belong together")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[least]
    try:
        context.load_cert_chain(files["cert_file"], files["key_file"])
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except OSError as error:  # ssl.SSLError is one
        names = ", ".join(map(str, files.values()))
        raise UsageError(f"{where}: {names}: {clean(error.strerror or str(error), 200)}") from None
    context.verify_mode = _CLIENTS[clients]
    return context


def _users(path: Path, values: Any) -> Mapping[str, bytes]:
    where = f"--web-config {path}: {_USERS}"
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(one, str) for pair in values.items() for one in pair):
        raise UsageError(f"{where}: expected names with bcrypt hashes of their passwords")
    users = {name: text.encode() for name, text in values.items()}
    if users:
        for name, text in values.items():
            if not _is_hash(text, where):
                raise UsageError(
                    f"{where}: {clean(name, 80)}: no bcrypt hash: it has 60 characters from $2 on (htpasswd -nB NAME)"
                )
    return users


def _is_hash(text: str, where: str) -> bool:
    """Return whether bcrypt can compare a password with this; it accepts a truncated hash, which no password has."""
    if not _HASH.fullmatch(text):
        return False
    try:
        _bcrypt(where).checkpw(b"", text.encode())
    except ValueError:
        return False
    return True


def _bcrypt(where: str) -> Any:
    try:
        return import_module("bcrypt")
    except ImportError:
        raise UnavailableError(f"{where}: passwords need the package bcrypt: pip install 'latmon[auth]'") from None


class Passwords:
    """Check of user names and passwords; a pair that was right is not hashed again."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users
        self._key = os.urandom(32)
        self._right: set[bytes] = set()
        self._hashing = threading.Lock()
        """One hash at a time, with a pause after a wrong password: they must not take much of a CPU."""
        self._waiting: Counter[str] = Counter()
        """Address -> its passwords that wait for their hash."""
        self._counting = threading.Lock()

    def allow(self, header: str, peer: str = "") -> bool:
        """Return whether the header Authorization names a user with the right password.

        A password that was right before is not hashed again, and never waits. Of an address _MAX_HASHED passwords wait
        for their hash; more are refused.
        """
        if not self._users:
            return True
        kind, _, coded = header.partition(" ")
        try:
            user, colon, password = base64.b64decode(coded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        if kind.lower() != "basic" or not colon:
            return False
        seen = hmac.digest(self._key, f"{user}\0{password}".encode(), hashlib.sha256)
        if seen in self._right:
            return True
        with self._counting:
            if self._waiting[peer] >= _MAX_HASHED:
                return False
            self._waiting[peer] += 1
        try:
            right = self._is_right(user, password)
        finally:
            with self._counting:
                self._waiting[peer] -= 1
                if not self._waiting[peer]:
                    del self._waiting[peer]
        if right:
            self._right.add(seen)
        return right

    def _is_right(self, user: str, password: str) -> bool:
        # An unknown user takes as long as a known one.
        expected = self._users.get(user) or next(iter(self._users.values()))
        with self._hashing:
            begun = time.monotonic()
            right = bool(_bcrypt(_USERS).checkpw(password.encode()[:72], expected)) and user in self._users
            if not right:
                time.sleep((time.monotonic() - begun) * (1 / _HASHING_SHARE - 1))
        return right


@dataclass(slots=True, eq=False)
class _Connection:
    """A client's connection. `channel`: its socket, from the handshake on that of TLS."""

    peer: str
    channel: socket.socket
    is_complete: bool = False
    """Whether its request was read to its end."""
    ended: threading.Event = field(default_factory=threading.Event)

    def cut(self) -> None:
        """End the connection under its thread, whose next call of the socket fails.

        SSLSocket.shutdown would take TLS away first: the thread could then write in plain text.
        """
        with suppress(OSError):
            socket.socket.shutdown(self.channel, socket.SHUT_RDWR)


class _Connections:
    """Connections that are open, in the order in which they came.

    A request is complete within milliseconds. One that isn't makes way for a new one, the oldest first, so that idle
    connections, however many, keep no scraper away. Where all are complete, the oldest makes way, too: refusing the new
    one would let clients that read nothing keep a scraper away.
    """

    def __init__(self) -> None:
        self._open: dict[_Connection, None] = {}
        self._lock = threading.Lock()

    def admit(self, connection: _Connection) -> None:
        """Add a connection, and cut the one that makes way for it, if there are too many."""
        with self._lock:
            crowd = self._crowd(connection.peer)
            oldest = self._take_oldest(crowd) if crowd else None
            self._open[connection] = None
        if oldest is not None:
            oldest.cut()
            oldest.ended.wait(_CUT_S)  # else a flood has more threads than connections

    def remove(self, connection: _Connection) -> None:
        """Forget a connection that was closed."""
        with self._lock:
            self._open.pop(connection, None)
        connection.ended.set()

    def _crowd(self, peer: str) -> list[_Connection]:
        """Return the connections of which one makes way for a new one of that address; empty where there is room."""
        of_peer = [connection for connection in self._open if connection.peer == peer]
        if len(of_peer) >= _MAX_OF_PEER:
            return of_peer
        return list(self._open) if len(self._open) >= _MAX_CONNECTIONS else []

    def _take_oldest(self, connections: list[_Connection]) -> _Connection:
        incomplete = [connection for connection in connections if not connection.is_complete]
        oldest = (incomplete or connections)[0]
        del self._open[oldest]
        return oldest


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection, which has one request."""

    server_version = f"latmon/{__version__}"
    sys_version = ""
    timeout = _TIMEOUT_S
    server: Server

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self.server.note_complete(self.connection)
        if not self.server.passwords.allow(self.headers.get("Authorization", ""), self.client_address[0]):
            refused = {"WWW-Authenticate": 'Basic realm="latmon"'}
            self._send(HTTPStatus.UNAUTHORIZED, b"a user and a password are needed\n", TEXT, refused, body=body)
            return
        path = self.path.partition("?")[0]
        if path == "/":
            page = _PAGE.format(version=__version__).encode()
            self._send(HTTPStatus.OK, page, "text/html; charset=utf-8", body=body)
        elif path != "/metrics":
            self._send(HTTPStatus.NOT_FOUND, b"there are / and /metrics\n", TEXT, body=body)
        elif self.server.metrics is None:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, _READY, TEXT, body=body)
        else:
            self._metrics(self.server.metrics, body=body)

    def _metrics(self, metrics: HostMetrics, *, body: bool) -> None:
        if not self.server.room.acquire(timeout=_ROOM_S):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"too many requests at a time\n", TEXT, body=body)
            return
        try:
            kind, data, packed = self._encoded(metrics)
        finally:  # before it is sent: a client that reads slowly keeps no other one waiting
            self.server.room.release()
        self._send(HTTPStatus.OK, data, kind, packed, body=body)

    def _encoded(self, metrics: HostMetrics) -> tuple[str, bytes, Mapping[str, str]]:
        """Return the kind and the bytes of an answer, and the header of its compression."""
        families = metrics.families()
        if wants_protobuf(self.headers.get("Accept", "")):
            kind, data = PROTOBUF, protobuf(families)
        else:
            lines = prometheus_text(families, BOUNDS_US)
            kind, data = TEXT, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        if wants_gzip(self.headers.get("Accept-Encoding", "")):
            return kind, gzip.compress(data, 1, mtime=0), {"Content-Encoding": "gzip"}
        return kind, data, {}

    def _send(
        self, status: HTTPStatus, data: bytes, kind: str, more: Mapping[str, str] | None = None, *, body: bool
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log a request where the log is verbose: a scrape every few seconds is no news."""
        self.server.log(syslog.LOG_DEBUG, f"{self.client_address[0] or 'a unix socket'}: {format % args}")


def wants_gzip(accept_encoding: str) -> bool:
    """Return whether a client takes gzip: it is listed, and its weight isn't 0 (RFC 9110, 12.5.3)."""
    for coding in accept_encoding.lower().split(","):
        name, *options = (text.strip() for text in coding.split(";"))
        if name == "gzip":
            return _weight(options) > 0
    return False


def _weight(options: Iterable[str]) -> float:
    """Return the weight `q` of an option of a client; 1 where it has none, 0 where it is no number."""
    values = dict(text.partition("=")[::2] for text in options)
    try:
        return float(values.get("q", "1"))
    except ValueError:
        return 0.0


def wants_protobuf(accept: str) -> bool:
    """Return whether the first format that a scraper accepts and that exists here is protobuf."""
    ranked = []
    for order, one in enumerate(accept.lower().split(",")):
        kind, *options = (text.strip() for text in one.split(";"))
        values = dict(text.partition("=")[::2] for text in options)
        if kind == "application/vnd.google.protobuf":
            if values.get("proto") != "io.prometheus.client.metricfamily" or values.get("encoding") != "delimited":
                continue
        elif kind not in ("text/plain", "text/*", "*/*"):
            continue
        ranked.append((-_weight(options), order, kind))
    return bool(ranked) and min(ranked)[2].endswith("protobuf")


class Server(ThreadingMixIn, TCPServer):
    """HTTP server on a socket that listens already; each request has a thread and a limit of time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, web: Web, log: Log) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._web, self.log = web, log
        self.passwords = Passwords(web.users)
        self.metrics: HostMetrics | None = None
        """None before the first interval has ended."""
        self.room = threading.BoundedSemaphore(_MAX_REQUESTS)
        self._connections = _Connections()
        self._by_socket: dict[socket.socket, _Connection] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if need be in the place of an older one."""
        peer = client_address[0] if client_address else ""
        connection = _Connection(peer, request)
        self._by_socket[request] = connection
        self._connections.admit(connection)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started (pids.max)
            self._by_socket.pop(request, None)
            self._connections.remove(connection)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its thread, also the handshake of TLS."""
        connection = self._by_socket.pop(request)
        ending = threading.Timer(_TIMEOUT_S, connection.cut)
        ending.daemon = True
        try:
            ending.start()
            request.settimeout(_TIMEOUT_S)
            if self._web.tls is not None:
                # The handshake is a step of its own: it can be cut while it waits for the client.
                tls = self._web.tls
                request = tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                connection.channel = request
                request.do_handshake()
            self._by_socket[request] = connection
            super().process_request_thread(request, client_address or ("", 0))
        except (OSError, RuntimeError):  # a client left or speaks no TLS; no thread can be started
            self.shutdown_request(request)
        finally:
            self._by_socket.pop(request, None)
            self._connections.remove(connection)
            ending.cancel()

    def note_complete(self, request: socket.socket) -> None:
        """Note that the request of a connection was read to its end."""
        self._by_socket[request].is_complete = True

    def handle_error(self, *_request: Any) -> None:
        """Print nothing about a client that left; a mistake here is one line without a traceback."""
        error = sys.exception()
        if not isinstance(error, OSError | ValueError):
            self.log(syslog.LOG_ERR, f"a request failed: {type(error).__name__}: {clean(str(error), 200)}")


def serve(
    request: Request,
    settings: Settings,
    address: ListenAddress,
    web: Web,
    *,
    user: privileges.Invoker | None,
    log: Log,
) -> int:
    """Serve a capture until a signal ends it; return the exit code. `user`: the account that root becomes."""
    listening = address.listen(os.environ, None if user is None else user.gid)
    session = Session(request)
    try:
        privileges.drop_all(user)
        server = Server(listening, web, log)
        if not address.is_local and (web.tls is None or not web.users):
            log(syslog.LOG_WARNING, f"{address} can be reached from other hosts without TLS or a password")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stages = request.options.stages != "basic"
        asyncio.run(until_signal(_serve(session, server, settings, log, address, stages=stages)))
        server.shutdown()
    finally:
        session.close()
        if address.path:
            with suppress(OSError):
                Path(address.path).unlink()
    return EXIT_DONE


async def _serve(
    session: Session, server: Server, settings: Settings, log: Log, address: ListenAddress, *, stages: bool
) -> None:
    """Count the frames of a session."""
    async with session.feed as feed:
        origin = feed.origin
        log(syslog.LOG_INFO, f"{address} serves /metrics, measured with {origin.tool or origin.backend}")
        metrics = HostMetrics(origin, settings, stages=stages)
        async for frame in followed(feed, log):
            metrics.add(frame)
            server.metrics = metrics
