"""The exporter: serves a live capture's metrics over HTTP, on an address, a unix socket or one that systemd passes.

The collector, which opens the probes, is a process of its own (capture/session.py). This one drops root before it
reads a request, and opens no other connection. TLS and passwords come from a file in the format that Prometheus'
exporters share (exporter-toolkit, docs/web-configuration.md).
"""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import sys
import syslog
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from latmon import __version__
from latmon.capture.registry import Request
from latmon.capture.session import Session, followed, until_signal
from latmon.findings.rule import Settings
from latmon.metrics.connections import Connection, Connections, address_of
from latmon.metrics.families import BOUNDS_US, PROTOBUF, TEXT, HostMetrics, prometheus_text, protobuf
from latmon.metrics.listen_address import ListenAddress
from latmon.metrics.passwords import Passwords, Verdict
from latmon.metrics.web_config import WebConfig
from latmon.support import privileges
from latmon.support.errors import EXIT_DONE
from latmon.support.streams import Log
from latmon.support.text import clean

_TIMEOUT_S = 5.0
"""Longest time of one request, from the connection to the last byte."""
_MAX_REQUESTS = 8
"""Complete requests that are answered at the same time; further ones wait for at most _ROOM_S."""
_ROOM_S = 2.0
"""Less than _TIMEOUT_S: what remains is for the answer that there was no room."""
_PASSWORD_S = 3.0
"""Longest time that a password waits to be checked; less than _TIMEOUT_S, too."""
_MAX_HEADER = 16 * 1024
"""Bytes of a request's line and header; http.server itself takes a hundred lines of 64 KiB."""
_READY = b"no interval has ended yet\n"
_PAGE = """<!doctype html><meta charset="utf-8"><title>latmon</title><h1>latmon {version}</h1>
<p><a href="/metrics">Metrics</a> of this host's I/O latency, for Prometheus.</p>
"""


class _Header:
    """A client's bytes up to the end of the header, at most _MAX_HEADER."""

    def __init__(self, received: BufferedIOBase) -> None:
        self._received = received
        self._left = _MAX_HEADER

    def readline(self, max_bytes: int) -> bytes:
        """Return a line; LineTooLong, which http.server answers with status 431, where the header is longer."""
        if not self._left:
            raise LineTooLong("header")
        line = self._received.readline(min(max_bytes, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._received.close()


class _Handler(BaseHTTPRequestHandler):
    """Handler of one connection, which has one request."""

    server_version = f"latmon/{__version__}"
    sys_version = ""
    timeout = _TIMEOUT_S
    server: Server

    def setup(self) -> None:
        """Bound what is read of the client."""
        super().setup()
        self.rfile: Any = _Header(self.rfile)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        verdict = self.server.verdict(self.connection, self.headers.get("Authorization", ""))
        if verdict is Verdict.UNCHECKED:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"too many wrong passwords: try again later\n", TEXT, body=body)
            return
        if verdict is Verdict.WRONG:
            refused = {"WWW-Authenticate": 'Basic realm="latmon"'}
            self._send(HTTPStatus.UNAUTHORIZED, b"a right user and password are needed\n", TEXT, refused, body=body)
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
    for order, listed in enumerate(accept.lower().split(",")):
        kind, *options = (text.strip() for text in listed.split(";"))
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

    def __init__(self, listening: socket.socket, web: WebConfig, log: Log) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._web, self.log = web, log
        self._passwords = Passwords(web.users)
        self.metrics: HostMetrics | None = None
        """None before the first interval has ended."""
        self.room = threading.BoundedSemaphore(_MAX_REQUESTS)
        self._connections = Connections()
        self._by_socket: dict[socket.socket, Connection] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if need be in the place of another one."""
        connection = Connection(address_of(client_address), request)
        self._by_socket[request] = connection
        if not self._connections.admit(connection):
            self._by_socket.pop(request, None)
            self.shutdown_request(request)
            return
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
                if connection.is_cut:
                    connection.cut()
                request.do_handshake()
            self._by_socket[request] = connection
            super().process_request_thread(request, client_address or ("", 0))
        except (OSError, RuntimeError):  # a client left or speaks no TLS; no thread can be started
            self.shutdown_request(request)
        finally:
            self._by_socket.pop(request, None)
            self._connections.remove(connection)
            ending.cancel()

    def verdict(self, request: socket.socket, authorization: str) -> Verdict:
        """Return whether the client of a complete request is let in; `authorization`: its header of that name."""
        connection = self._by_socket[request]
        connection.attempt = self._passwords.begin_attempt(authorization, connection.address)
        if connection.is_cut:
            connection.cut()
        verdict = connection.attempt.verdict(_PASSWORD_S)
        if verdict is Verdict.RIGHT:
            self._connections.let_in(connection)
        return verdict

    def server_close(self) -> None:
        """Close the socket, and end the thread that checks passwords."""
        super().server_close()
        self._passwords.close()

    def handle_error(self, *_request: Any) -> None:
        """Print nothing about a client that left; a mistake here is one line without a traceback."""
        error = sys.exception()
        if not isinstance(error, OSError | ValueError):
            self.log(syslog.LOG_ERR, f"a request failed: {type(error).__name__}: {clean(str(error), 200)}")


def serve(
    request: Request,
    settings: Settings,
    address: ListenAddress,
    web: WebConfig,
    *,
    user: privileges.Invoker | None,
    log: Log,
) -> int:
    """Serve a capture until a signal ends it; return the exit code. `user`: the account that root becomes."""
    listening = address.listen(os.environ, None if user is None else user.gid)
    session = Session(request)
    try:
        privileges.drop_all(user)
        if not address.is_local and (web.tls is None or not web.users):
            log(syslog.LOG_WARNING, f"{address} can be reached from other hosts without TLS or a password")
        with Server(listening, web, log) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stages = request.options.stages != "basic"
            try:
                asyncio.run(until_signal(_serve(session, server, settings, log, address, stages=stages)))
            finally:
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
