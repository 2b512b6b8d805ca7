"""Connections of the exporter's clients: how many are open, and which one makes way for a new one.

A request is complete within milliseconds. A connection without one makes way first, the oldest before others, so that
idle connections, however many, keep no scraper away. Where all are complete, the oldest makes way, too: refusing the
new one would let clients that read nothing keep a scraper away. Last come clients whose address was let in before, and
then those that are let in now.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from latmon.metrics.passwords import Attempt, Verdict

MAX_CONNECTIONS, MAX_OF_ADDRESS = 24, 16
"""Connections at the same time, in all and of one address; for a new one beyond these another one is closed."""
_MAX_THREADS = 2 * MAX_CONNECTIONS
"""Threads of connections, also of those that were cut and have not ended yet."""
_CUT_S = 1.0
"""Longest time that a new connection waits for a thread to end."""
_MAX_KNOWN = 64
"""Addresses that are remembered as let in before."""


@dataclass(slots=True, eq=False)
class Connection:
    """A client's connection. `channel`: its socket, from the handshake on that of TLS."""

    address: str
    channel: socket.socket
    is_known: bool = False
    """Whether its address was let in before."""
    attempt: Attempt | None = None
    """The user and password of its request, once that was read to its end."""
    is_let_in: bool = False
    is_cut: bool = False

    @property
    def merits(self) -> tuple[bool, bool, bool]:
        """Return why it stays: the connection with the least merits makes way."""
        return self.is_let_in, self.is_known, self.attempt is not None

    def cut(self) -> None:
        """End the connection under its thread, whose next call of the socket fails.

        The thread cuts again after it has set `channel` or `attempt`, if the connection was cut meanwhile.
        SSLSocket.shutdown would take TLS away first: the thread could then write in plain text.
        """
        self.is_cut = True
        with suppress(OSError):
            socket.socket.shutdown(self.channel, socket.SHUT_RDWR)
        if self.attempt is not None:
            self.attempt.decide(Verdict.UNCHECKED)


class Connections:
    """Connections that are open, in the order in which they came, and the threads that serve them."""

    def __init__(self) -> None:
        self._open: dict[Connection, None] = {}
        self._threads = 0
        self._known: dict[str, None] = {}
        """Addresses that were let in, the latest last."""
        self._changed = threading.Condition()

    def admit(self, connection: Connection) -> bool:
        """Add a connection, and cut the one that makes way for it, if there are too many.

        Return False, and don't add it, where the threads of others don't end.
        """
        with self._changed:
            leaving = self._least(self._crowd(connection.address))
            if leaving is not None:
                del self._open[leaving]
                leaving.cut()
            if not self._changed.wait_for(lambda: self._threads < _MAX_THREADS, _CUT_S):
                return False
            connection.is_known = connection.address in self._known
            self._open[connection] = None
            self._threads += 1
            return True

    def let_in(self, connection: Connection) -> None:
        """Note that a client named the right password."""
        with self._changed:
            connection.is_let_in = True
            self._known.pop(connection.address, None)
            self._known[connection.address] = None
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was closed, and whose thread ends."""
        with self._changed:
            self._open.pop(connection, None)
            self._threads -= 1
            self._changed.notify_all()

    def _crowd(self, address: str) -> list[Connection]:
        """Return the connections of which one makes way for a new one of that address; empty where there is room."""
        of_address = [connection for connection in self._open if connection.address == address]
        if len(of_address) >= MAX_OF_ADDRESS:
            return of_address
        return list(self._open) if len(self._open) >= MAX_CONNECTIONS else []

    def _least(self, crowd: Iterable[Connection]) -> Connection | None:
        """Return the one that makes way: of those with equal merits the oldest."""
        return min(crowd, key=lambda connection: connection.merits, default=None)


def address_of(client_address: object) -> str:
    """Return the address that a client is counted by: of IPv6 the network of 64 bits, which one host can have whole.

    `client_address`: that of socket.accept; empty for a unix socket.
    """
    if not isinstance(client_address, tuple) or not client_address:
        return ""
    host = str(client_address[0]).partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
