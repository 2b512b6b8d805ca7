"""The prometheus backend: latencies of many hosts from a Prometheus that scrapes their exporters.

Rows are the slowest hosts, chosen by a recorded p99 (contrib/prometheus), or the devices of one host. A frame is the
increase between two evaluations of the cumulative native histograms, read back into latmon's buckets by the edges that
latmon/metrics/families.py sends; nothing is extrapolated. Both clocks of a frame are Prometheus': microseconds since
1970. The past is read by range queries, as far back as the store reaches.

Source: prometheus.io/docs/prometheus/latest/querying/api, with its form of native histograms.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from latmon import __version__
from latmon.aggregate.request_age import Waiting
from latmon.manifest import TABLE_ROLES
from latmon.metrics.families import SCHEMA, native_index
from latmon.model.frame import (
    STAGES,
    Completed,
    Device,
    Flow,
    Frame,
    Health,
    Missing,
    Origin,
    Outstanding,
    Series,
)
from latmon.model.histogram import TOP, Histogram, bucket_bounds
from latmon.recording.archive import MAX_MOMENTS, Stamps, TimelineEvent
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.process import SideThread
from latmon.support.text import clean

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

P = ParamSpec("P")
T = TypeVar("T")

HOST_P99 = "instance:latmon_io_latency_seconds:p99_5m"
"""The recorded series by which hosts are chosen; contrib/prometheus/latmon.rules.yml records it."""
RULES = "contrib/prometheus/latmon.rules.yml"
MAX_HOSTS = 32
"""Hosts on one screen."""
_TIMEOUT_S, _PAST_TIMEOUT_S = 30.0, 5.0
"""Time limit of a query with its answer, and of one of an earlier time, during which the screen waits."""
_FIRST_S, _FIRST_FRAMES = 600, 40
"""Time that the first screen shows, and its frames at most: an answer of 32 hosts has 0.2 MB per frame."""
_MAX_STAMPS = 200_000
"""Earlier frames at most: a month of 15 s."""
_USUAL_STEP_S, _MAX_STEP_S = 15, 60
_CHOOSE_S = 60.0
"""Time between two choices of the slowest hosts."""
_OLDEST_S, _HOUR_S, _MINUTE_S = 30 * 86_400, 3600, 60
"""Span and steps of the search for the oldest sample."""
_LATENCY = "latmon_io_latency_seconds"
_NAME, _MAX_NAME = "instance", 80
_HOST_AND_PORT = re.compile(r"(?:\[(.+)\]|([^:]+)):\d+")
"""An instance as Prometheus makes it of a target. An IPv6 address has brackets."""
_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""Characters that RE2 gives a meaning (QuoteMeta of Go's regexp)."""
_NO_STAGES = (
    "Prometheus has total latencies; the stages and outliers of single I/Os are on the host: "
    "key E on screen 1 (latmon fleet), or `sudo latmon` there"
)
_NO_ANSWER = "no answer"
_LATE = "look how busy the server is, and whether `curl` gets an answer from this URL"
_NOT_PROMETHEUS = "the answer is not Prometheus'"
_MAX_BYTES, _MAX_REFUSAL = 16 << 20, 1 << 20
"""Bytes that are read of an answer, twice those of 32 hosts, and of a refusal. JSON takes 20 times that memory."""
_MAX_SERIES, _MAX_LABELS = 100_000, 64
"""Series of an answer: 32 hosts with 24 devices have 17,000 with classic buckets. Labels of one of them."""
_PORTION = 1 << 16
_MOST_IOS = 1 << 53
"""I/Os of a histogram at most: Prometheus' numbers are floats, which don't have each larger number."""

Labels = Mapping[str, str]
Point = tuple[float, Any]
"""Evaluation time in s since 1970, and a number as text or a histogram as JSON."""
_Answer = tuple[Labels, list[Point]]
"""A series of an answer: its labels and points."""
_NAMED = 3
"""Findings that the notice names."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a Prometheus: `https://USER@HOST:PORT/PREFIX`, with the user's password."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str, password: str = "") -> Address:
        """Parse a URL; UsageError for one that is not http or https, or that has a password in it."""
        try:
            parts = urllib.parse.urlsplit(text)
            host, port, user, secret = parts.hostname, parts.port, parts.username, parts.password
        except ValueError as error:
            raise UsageError(f"--url: {clean(text, 200)}: {error}") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise UsageError(f"--url: {clean(text, 200)!r} is not http://HOST:9090 or https://USER@HOST/PREFIX")
        if secret is not None:
            raise UsageError("--url: a password in a command line is seen by others: use --password-file FILE")
        name = f"[{host}]" if ":" in host else host
        place = name if port is None else f"{name}:{port}"
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", urllib.parse.unquote(user or ""), password)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses to follow an answer to another address: only the server of `--url` is asked."""

    def redirect_request(self, *words: Any, **_more: Any) -> None:
        """Raise URLError with the address; urllib passes it last."""
        raise urllib.error.URLError(f"it redirects to {words[-1]}: if that is right, name it with --url")


class _Bytes(io.RawIOBase):
    """Bytes of an answer until a time on the monotonic clock; then TimeoutError.

    A socket's own limit is of each read: a server that sends a byte now and then would never reach it, in a status, a
    header, the size of a chunk or what follows the last one.
    """

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._sock.settimeout(_time_left(self._end))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedAnswer(HTTPResponse):
    """An answer whose status, headers and body have to be there at `end`."""

    def __init__(self, sock: socket.socket, *, end: float, method: str | None = None) -> None:
        super().__init__(sock, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_Bytes(sock, end))


class _Connection(HTTPConnection):
    """A connection for one question: all of it, from the server's name to the end of the answer, has one time limit."""

    def __init__(self, host: str, port: int | None = None, *, timeout: float = _TIMEOUT_S, **more: Any) -> None:
        super().__init__(host, port, timeout=timeout, **more)
        self._end = time.monotonic() + timeout
        self.response_class = partial(_TimedAnswer, end=self._end)  # type: ignore[assignment]
        self._create_connection = self._connected

    def _connected(self, address: tuple[str, int], *_: Any) -> socket.socket:
        """Return a socket. The resolver has no time limit, and a name may have many addresses that don't answer."""
        host, port = address
        side = SideThread("resolver")
        resolved = side.submit(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
        side.shutdown()
        failure = OSError(f"{host} has no address")
        for family in resolved.result(_time_left(self._end)):
            try:
                sock = socket.create_connection((str(family[-1][0]), port), _time_left(self._end))
            except OSError as error:
                failure = error
            else:
                sock.settimeout(_time_left(self._end))
                return sock
        raise failure


class _TlsConnection(_Connection, HTTPSConnection):
    """A connection as above with TLS, whose handshake has the time limit of the socket."""


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_TlsConnection, req)


def _time_left(end: float) -> float:
    """Return the seconds until `end`; TimeoutError where none are left."""
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Client:
    """Queries of one Prometheus. Each blocks until the whole answer is there, or `timeout_s` is over."""

    def __init__(self, address: Address, timeout_s: float = _TIMEOUT_S) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects, _Http, _Https)

    def at(self, query: str, when: float) -> list[_Answer]:
        """Return the series of an instant query. Raises UnavailableError with URL and reason."""
        return self._ask("query", {"query": query, "time": f"{when:.3f}"})

    def between(self, query: str, span: tuple[float, float], step: float) -> list[_Answer]:
        """Return the series of a range query. Raises UnavailableError with URL and reason."""
        begin, end = (f"{bound:.3f}" for bound in span)
        return self._ask("query_range", {"query": query, "start": begin, "end": end, "step": f"{step:g}"})

    def _ask(self, path: str, words: Mapping[str, str]) -> list[_Answer]:
        url = f"{self._address.url}/api/v1/{path}"
        request = urllib.request.Request(url, urllib.parse.urlencode(words).encode())  # noqa: S310  http or https
        if self._address.user:
            pair = f"{self._address.user}:{self._address.password}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                data = json.loads(self._body(answer))
        except urllib.error.HTTPError as error:
            raise self._failure(_reason(error)) from None
        except RecursionError:
            raise self._failure(_NOT_PROMETHEUS) from None
        except (OSError, ValueError, HTTPException) as error:  # URLError is an OSError, JSONDecodeError a ValueError
            raise self._failure(self._why(error)) from None
        try:
            series = data["data"]["result"]
            if len(series) > _MAX_SERIES:
                raise self._failure(f"the answer has {len(series):,} series: select fewer hosts (--select)")
            if any(len(labelled["metric"]) > _MAX_LABELS for labelled in series):
                raise self._failure(f"the answer has a series of more than {_MAX_LABELS} labels")
            return [_answer(labelled) for labelled in series]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            raise self._failure(_NOT_PROMETHEUS) from None

    def _why(self, error: Exception) -> str:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return f"no complete answer within {self._timeout_s:g} s: {_LATE}"
        return (reason.strerror if isinstance(reason, OSError) else "") or str(reason) or type(error).__name__

    def _body(self, answer: HTTPResponse) -> bytes:
        """Return the bytes of an answer."""
        body = bytearray()  # no list of parts, each of which may be a chunk of a byte
        while part := answer.read1(_PORTION):
            body += part
            if len(body) > _MAX_BYTES:
                raise self._failure(f"the answer has more than {_MAX_BYTES:,} bytes: select fewer hosts (--select)")
        if answer.length:
            raise self._failure(f"the answer ended {answer.length:,} bytes too early")
        return bytes(body)

    def _failure(self, reason: str) -> UnavailableError:
        return UnavailableError(f"{self._address.url}: {clean(reason, 300)}")


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the sentence of Prometheus in a refusal, else the status; also where it is not complete in time."""
    body = bytearray()
    try:
        while len(body) < _MAX_REFUSAL and (part := error.read1(_PORTION)):
            body += part
        text = json.loads(body)["error"]
    except (OSError, ValueError, KeyError, TypeError, HTTPException, RecursionError):
        text = {401: "a user and a password are needed, or one is wrong"}.get(error.code, error.reason)
    return f"{error.code}: {text}"


def _answer(answer: Mapping[str, Any]) -> _Answer:
    """Return a series of an answer. Raises ValueError, or another error of a wrong type or key, for anything else.

    The values of its labels are clean, but for the instance, which queries need as it is: see `Rows`.
    """
    alone = [answer[key] for key in ("value", "histogram") if key in answer]
    points = [(float(at), value) for at, value in (*alone, *answer.get("values", ()), *answer.get("histograms", ()))]
    labels = {}
    for label, text in answer["metric"].items():
        text.encode()  # half of a surrogate pair can't be sent back in a query
        labels[label] = text if label == _NAME else clean(text, _MAX_NAME)
    if not points or not all(math.isfinite(at) for at, _ in points):
        raise ValueError(points)
    for _, value in points:
        if not isinstance(value, dict):
            float(value)
    return labels, points


def _number(answer: _Answer) -> float:
    """Return the first value of a series; NaN for a histogram."""
    value = answer[1][0][1]
    return math.nan if isinstance(value, dict) else float(value)


@cache
def _edges() -> Mapping[int, int]:
    """Return the index of schema 4 -> the bucket that is sent as it; bucket 0 is the zero bucket."""
    return {native_index(bucket_bounds(index)[1]): index for index in range(1, TOP + 1)}


def read_back(value: Any) -> Histogram | None:
    """Return a cumulative native histogram in latmon's buckets; None where it has other edges, or is a number.

    Its sum is unknown where it is 0 in spite of latencies of 1 us or more.
    """
    if not isinstance(value, dict):
        return None
    counts: dict[int, int] = {}
    try:
        for _, low, high, n in value.get("buckets", ()):
            counts[_bucket(float(low), float(high))] = round(float(n))
        total = float(value.get("sum", "nan"))
    except (TypeError, ValueError, OverflowError, LookupError):
        return None
    if min(counts.values(), default=0) < 0 or sum(counts.values()) > _MOST_IOS:
        return None
    is_known = math.isfinite(total) and (total > 0 or not any(counts))
    return Histogram.of(counts, round(total * 1e6) if is_known else None)


def _bucket(low: float, high: float) -> int:
    """Return the bucket that is sent with these edges in s. LookupError, ValueError or OverflowError for others.

    A store that has merged buckets, to have fewer, has some of the same upper edges.
    """
    if high <= 1e-6:  # noqa: PLR2004  the threshold of the zero bucket
        return 0
    exact, before = ((1 << SCHEMA) * math.log2(edge) for edge in (high, low))
    if abs(exact - round(exact)) > 1e-6 or abs(exact - before - 1) > 1e-6:  # noqa: PLR2004
        raise LookupError(high)
    return _edges()[round(exact)]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the screen: hosts, or the devices of one host where `host` is not empty.

    Hosts are instances as Prometheus has them, which may have any character: `clean` makes a name of one.
    """

    names: tuple[str, ...]
    hosts: int
    """All hosts that Prometheus knows, shown or not."""
    host: str = ""

    @property
    def label(self) -> str:
        """Return the label whose values are the names."""
        return "device" if self.host else _NAME

    @property
    def matcher(self) -> str:
        """Return the label matcher of the hosts."""
        label_values = (self.host,) if self.host else self.names
        return f"{_NAME}=~{json.dumps('|'.join(map(_escaped, label_values)), ensure_ascii=False)}"

    def instance_of(self, name: str) -> str:
        """Return the instance of a shown name; empty where there is none."""
        return next((instance for instance in self.names if clean(instance, _MAX_NAME) == name), "")


def _escaped(text: str) -> str:
    """Return the text for a regular expression of RE2, which refuses a backslash before most other characters."""
    return _META.sub(r"\\\g<0>", text)


@dataclass(slots=True)
class _Tables:
    """Values of one evaluation: cumulative latencies at both ends of a frame, and the I/Os in flight at its end."""

    earlier: dict[Series, Histogram] = field(default_factory=dict)
    later: dict[Series, Histogram] = field(default_factory=dict)
    waiting: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    unread: int = 0
    """Histograms whose edges are not latmon's."""


class PrometheusStore:
    """Frames of one set of rows, made of queries."""

    def __init__(self, client: Client, rows: Rows, step_s: int) -> None:
        self._client, self.rows, self.step_s = client, rows, step_s

    @property
    def about(self) -> str:
        """Return a sentence about the rows and their resolution."""
        rows = self.rows
        shown = clean(rows.host, _MAX_NAME) or (
            f"all {rows.hosts:,} hosts"
            if rows.hosts == len(rows.names)
            else f"the {len(rows.names)} of {rows.hosts:,} hosts with the highest p99 of 5 min"
        )
        return f"{shown}, one frame per {self.step_s} s, latencies within 4.4 %, no single I/Os"

    def _queries(self, length_s: int) -> tuple[str, str, str]:
        """Return the queries of frames of this length: the latencies at the begin and the end, and the I/Os in flight.

        Both sums have the same devices, those whose count didn't decrease: otherwise one that is new, or that returns,
        would bring its I/Os of all times into one frame. The difference itself isn't left to Prometheus, which can't
        subtract native histograms (2.42), and `increase` extrapolates.
        """
        by, matcher = self.rows.label, self.rows.matcher
        end = f'{_LATENCY}{{stage="total",{matcher}}}'
        begin = f"{end} offset {length_s}s"
        both = f"(histogram_count({end}) >= histogram_count({begin}))"
        return (
            f"sum by ({by}, op) ({begin} and {both})",
            f"sum by ({by}, op) ({end} and {both})",
            f"sum by ({by}, where) (latmon_outstanding_ios{{{matcher}}})",
        )

    def frames(self, begin: float, end: float, length_s: int = 0) -> tuple[Frame, ...]:
        """Return the frames from begin to end; `length_s`: one that is not the interval.

        Without any latencies that both ends of a frame have, its time is not covered: no exporter was scraped.
        """
        length = length_s or self.step_s
        all_tables = {begin + length * (number + 1): _Tables() for number in range(int(end - begin) // length)}
        before, after, in_flight = self._queries(length)
        for tables, name, labels, value in self._values(before, all_tables, length):
            if (histogram := read_back(value)) is not None:
                tables.earlier[_series(name, labels)] = histogram
        for tables, name, labels, value in self._values(after, all_tables, length):
            if (histogram := read_back(value)) is None:
                tables.unread += 1
            else:
                tables.later[_series(name, labels)] = histogram
        for tables, name, labels, value in self._values(in_flight, all_tables, length):
            if not isinstance(value, dict):
                n = float(value)
                if 0 <= n <= _MOST_IOS:
                    tables.waiting[name][labels.get("where", "")] = int(n)
        return tuple(self._frame(when, all_table, length) for when, all_table in all_tables.items() if all_table.later)

    def _values(
        self, query: str, tables_by_time: Mapping[float, _Tables], length_s: int
    ) -> Iterator[tuple[_Tables, str, Labels, Any]]:
        """Yield the tables of a time, the row, the labels and the value of each point."""
        if not tables_by_time:
            return
        first, last = min(tables_by_time), max(tables_by_time)
        alone = first == last
        series = self._client.at(query, last) if alone else self._client.between(query, (first, last), length_s)
        for labels, points in series:
            name = clean(labels.get(self.rows.label, ""), _MAX_NAME)
            for when, value in points:
                if when in tables_by_time:
                    yield tables_by_time[when], name, labels, value

    def _frame(self, when: float, tables: _Tables, length_s: int) -> Frame:
        histograms: dict[Series, Histogram] = {}
        for series, histogram in tables.later.items():
            try:
                more = histogram.difference(tables.earlier[series])
            except (KeyError, ValueError):  # an exporter was started again: its first interval is not known
                continue
            if more:
                total = None if more.sum is None else more.within(more.sum)
                histograms[series] = replace(more, sum=total)
        return Frame(
            seq=round(when) // self.step_s,
            wall=when,
            mono_us=round(when * 1e6),
            dt_us=length_s * 1_000_000,
            histograms=MappingProxyType(histograms),
            seen={Flow(series.device, series.op): Completed(more.count, 0) for series, more in histograms.items()},
            outstanding=MappingProxyType(
                {
                    name: Outstanding(counts.get("driver"), counts.get("queue"))
                    for name, counts in tables.waiting.items()
                }
            ),
            health=Health(undecoded_lines=tables.unread, notice=self.about),
        )


def _series(name: str, labels: Labels) -> Series:
    return Series(name, labels.get("op", ""), "total")


class Stored:
    """The Past of a Prometheus: each call of `frames` is a range query, which blocks."""

    def __init__(self, store: PrometheusStore, devices: tuple[Device, ...], oldest: float, newest: float) -> None:
        self.moments: deque[TimelineEvent] = deque(maxlen=MAX_MOMENTS)
        self.scanned = 1.0
        self._store, self._devices = store, devices
        begin = max(round(oldest), round(newest) - _MAX_STAMPS * store.step_s)
        steps = range(begin, round(newest) + 1, store.step_s)
        self._stamps = Stamps([step * 1_000_000 for step in steps], list(map(float, steps)), [0] * len(steps))

    @property
    def stamps(self) -> Stamps:
        return self._stamps

    def change(self, store: PrometheusStore, devices: tuple[Device, ...]) -> None:
        """Read other rows from now on."""
        self._store, self._devices = store, devices

    def add(self, frame: Frame) -> None:
        """Add the time of a live frame."""
        if not len(self._stamps) or frame.mono_us > self._stamps[-1].mono_us:
            self._stamps.add(frame)

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:  # noqa: ARG002
        """See Past. Raises UnavailableError where Prometheus doesn't answer."""
        step = self._store.step_s
        begin, end = after_us // 1_000_000 // step * step, until_us // 1_000_000 // step * step
        if end > begin:
            yield from self._store.frames(float(begin), float(end))

    def known(self, at_us: int) -> tuple[Device, ...]:  # noqa: ARG002
        """See Past: the rows of now."""
        return self._devices

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:  # noqa: ARG002
        """See Past: ages of I/Os are never known."""
        return None


class PrometheusBackend:
    """Backend of the rows of one Prometheus. `select`: a glob of instances; one that matches a single host opens it."""

    def __init__(
        self,
        url: str,
        password: str = "",
        select: str = "",
        interval_us: int | None = None,
        devices: Sequence[str] = (),
        *,
        brief: bool = False,
        quick: bool = False,
    ) -> None:
        """Prepare queries. `brief`: begin with one interval; `quick`: and `frames` ends after it, to be shown then."""
        self._brief_begin, self._begins_quick, self._quick = brief or quick, quick, quick
        self._address = Address.parse(url, password)
        self._client, self._select, self._globs = Client(self._address), select, tuple(devices)
        self._step_s = 0 if interval_us is None else max(round(interval_us / 1e6), 1)
        self._host = ""
        self._store: PrometheusStore | None = None
        self._past: Stored | None = None
        self._origin: Origin | None = None
        self._devices: dict[str, Device] = {}
        self._oldest = 0.0
        self._first: tuple[Frame, ...] = ()
        self._end = 0.0
        """Time up to which the first frames were read."""
        self._failure = ""
        self._changed = asyncio.Event()

    @property
    def origin(self) -> Origin:
        """See Backend."""
        if self._origin is None:
            raise UnavailableError(f"{self._address.url} was not asked yet")
        return self._origin

    def past(self) -> Stored:
        """See Archived."""
        if self._past is None:
            raise UnavailableError(f"{self._address.url} was not asked yet")
        return self._past

    async def __aenter__(self) -> Self:
        self._changed, self._quick = asyncio.Event(), self._begins_quick  # of this event loop
        await self._aside(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Do nothing: no connection stays open between two queries."""

    def open_row(self, name: str) -> bool:
        """See Grouped."""
        if self._store is None or self._store.rows.host:
            return False
        instance = self._store.rows.instance_of(name)
        if not instance:
            return False
        self._host = instance
        self._changed.set()
        return True

    def close_row(self) -> bool:
        """See Grouped."""
        if not self._host:
            return False
        self._host = ""
        self._changed.set()
        return True

    def host_of(self, name: str) -> str:
        """See Grouped: the instance, whose port is the exporter's, without it."""
        rows = self._rows_store().rows
        instance = rows.host or rows.instance_of(name)
        target = _HOST_AND_PORT.fullmatch(instance)
        return target[1] or target[2] if target else instance

    async def regroup(self) -> None:
        """See Grouped."""
        self._changed.clear()
        before, devices = self._rows_store(), self._devices
        try:
            await self._aside(self._read, time.time())
        except UnavailableError as error:  # the rows stay, and the next frame names the reason
            self._store, self._devices, self._host = before, devices, before.rows.host
            self._failure = clean(str(error), 300)

    async def _aside(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the call's result, from a thread that the end of the process does not wait for."""
        thread = SideThread("prometheus")
        future = asyncio.get_running_loop().run_in_executor(thread, partial(call, *args, **kwargs))
        thread.shutdown()
        return await future

    def _read(self, now: float) -> None:
        """Choose rows, and read their last 10 min."""
        if not self._oldest:
            self._oldest = self._find_oldest(now)
        self._begin(self._choose(now), now, _FIRST_S)

    def _open(self) -> None:
        """Choose rows, and read their last interval where that is enough, else all that is shown."""
        now = time.time()
        rows = self._choose(now)
        if not self._step_s:
            query = f"latmon_build_info{{{replace(rows, names=rows.names[:1]).matcher}}}[{_FIRST_S}s]"
            ends = [at for _, points in self._client.at(query, now) for at, _ in points]
            steps = sorted(later - earlier for earlier, later in pairwise(ends))
            step = steps[len(steps) // 2] if steps else _USUAL_STEP_S
            self._step_s = min(max(round(step), 1), _MAX_STEP_S)
        if self._brief_begin:
            self._begin(rows, now, self._step_s)
        else:
            self._read(now)

    def _find_oldest(self, now: float) -> float:
        """Return the time of the oldest sample, to the minute."""
        oldest = now
        for step, reach in ((_HOUR_S, _OLDEST_S), (_MINUTE_S, _HOUR_S)):
            span = (oldest // step * step - reach, oldest)
            answers = self._client.between("count(latmon_build_info)", span, step)
            oldest = min((oldest, *(max(at, span[0]) for _, points in answers for at, _ in points)))
        return oldest

    def _begin(self, rows: Rows, now: float, shown_s: int) -> None:
        """Make the store, past and origin of rows, and read their last `shown_s` seconds."""
        self._show(rows, now)
        of_all = self._client.at(f"count by (latency_from) (latmon_build_info{{{rows.matcher}}})", now)
        begins = {labels.get("latency_from", "") for labels, _ in of_all}
        step = self._step_s
        many = -(-shown_s // (step * _FIRST_FRAMES)) * step
        end = self._end = float(self._grid())
        self._first = self._rows_store().frames(end - shown_s // many * many, end, many)
        begin = min(self._oldest or now, *(frame.wall - frame.dt_us / 1e6 for frame in self._first), now) // step * step
        self._past = Stored(self._brief(rows), tuple(self._devices.values()), begin, now // step * step)
        self._origin = Origin(
            backend="prometheus",
            host=clean(rows.host or urllib.parse.urlsplit(self._address.url).netloc, _MAX_NAME),
            kernel="",
            latmon=__version__,
            tool="Prometheus",
            interval_us=self._step_s * 1_000_000,
            start_wall=begin,
            start_mono_us=round(begin * 1e6),
            measured=MappingProxyType({"total": ()}),
            absent=tuple(Missing(stage, _NO_STAGES) for stage in STAGES if stage != "total"),
            untraced=tuple(Missing(name, _NO_STAGES) for name in (*STAGES, *TABLE_ROLES) if name != "total"),
            latency_from="issue" if begins == {"issue"} else "queued",
        )

    def _rows_store(self) -> PrometheusStore:
        if self._store is None:
            raise UnavailableError(f"{self._address.url} was not asked yet")
        return self._store

    def _brief(self, rows: Rows) -> PrometheusStore:
        return PrometheusStore(Client(self._address, _PAST_TIMEOUT_S), rows, self._step_s)

    def _number(self, query: str, when: float) -> float:
        """Return the value of a query for one number; 0 where nothing is found."""
        answers = self._client.at(query, when)
        number = _number(answers[0]) if answers else 0.0
        return number if math.isfinite(number) else 0.0

    def _choose(self, when: float) -> Rows:
        """Return the rows. Raises UnavailableError where there is no host, or no rule to choose some of many by."""
        pattern = _regex(self._select) if self._select else ".*"
        selector = f"{{{_NAME}=~{json.dumps(pattern, ensure_ascii=False)}}}"
        hosts = round(self._number(f"count(count by ({_NAME}) (latmon_build_info{selector}))", when))
        if hosts < 1:
            which = f"no host is named {self._select!r}" if self._select else "it scrapes no latmon exporter"
            raise UnavailableError(f"{self._address.url}: {which} (docs/EXPORTER.md)")
        query = f"topk({MAX_HOSTS}, max by ({_NAME}) ({HOST_P99}{selector}))"
        slowest = sorted(self._client.at(query, when), key=_number, reverse=True)
        names = [answer[0].get(_NAME, "") for answer in slowest]
        if hosts <= MAX_HOSTS:
            answers = self._client.at(f"count by ({_NAME}) (latmon_build_info{selector})", when)
            names += sorted({answer[0].get(_NAME, "") for answer in answers} - set(names))
        if not names:
            raise UnavailableError(f"{self._address.url}: {hosts:,} hosts, and nothing to choose by: load {RULES}")
        host = self._host or (names[0] if hosts == 1 else "")
        rows = Rows(tuple(names), hosts, host)
        if not self._number(f"count({_LATENCY}{{{rows.matcher}}})", when):
            raise UnavailableError(
                f"{self._address.url}: no native histograms: start Prometheus with --enable-feature=native-histograms"
            )
        return rows

    def _show(self, rows: Rows, when: float) -> None:
        self._store = PrometheusStore(self._client, rows, self._step_s)
        self._devices = {device.name: device for device in (self._of_host(rows, when) if rows.host else _hosts(rows))}

    def _of_host(self, rows: Rows, when: float) -> Iterator[Device]:
        """Yield the devices of a host."""
        answers = self._client.at(f"latmon_device_info{{{rows.matcher}}}", when)
        for number, (labels, _) in enumerate(sorted(answers, key=lambda answer: answer[0].get("device", ""))):
            name, driver, model, controller = (
                labels.get(key, "") for key in ("device", "driver", "model", "controller")
            )
            if not self._globs or any(fnmatchcase(name, glob) for glob in self._globs):
                yield Device(name, 0, number, driver=driver, model=model, controller=controller)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames of the last 10 min at once, then one per interval until other rows are opened."""
        first, end = self._first, self._end
        notice = self._failure or await self._aside(self._notice, end)
        self._failure = ""
        devices = tuple(self._devices.values())
        for frame in first:
            yield self._sent(frame, devices, (), notice)
            devices = ()
        if devices:  # the shortest frame: nothing is known of the time before the start, so that nothing is missing
            yield self._sent(Frame(round(end) // self._step_s, end, round(end * 1e6), 1), devices, (), notice)
        if self._quick:  # the rest is read while this is shown
            self._quick = False
            return
        live = _Live(end, time.monotonic())
        while not await self._is_over(live.when + self._step_s):
            yield await self._aside(self._next, live)

    def _grid(self) -> int:
        """Return the newest time whose scrapes are over, a multiple of the interval."""
        return round((time.time() - self._lag_s) // self._step_s * self._step_s)

    @property
    def _lag_s(self) -> float:
        return min(self._step_s / 5, 2.0)

    async def _is_over(self, due: float) -> bool:
        """Wait for the time of the next evaluation; return whether other rows were opened meanwhile."""
        try:
            async with asyncio.timeout(max(due + self._lag_s - time.time(), 0.01)):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _next(self, live: _Live) -> Frame:
        """Return the frame that ends at the newest evaluation time."""
        when = max(float(self._grid()), live.when + self._step_s)
        length_s = round(when - live.when)
        added: tuple[Device, ...] = ()
        removed: tuple[str, ...] = ()
        try:
            if time.monotonic() - live.chosen > _CHOOSE_S:
                added, removed = self._choose_again(when)
                live.chosen = time.monotonic()
            frames = self._rows_store().frames(live.when, when, length_s)
            notice = self._notice(when)
        except UnavailableError as error:
            frames, notice = (), clean(str(error), 300)
        live.when = when
        gap = Frame(round(when) // self._step_s, when, round(when * 1e6), length_s * 1_000_000, gap=_NO_ANSWER)
        late = length_s >= 2 * self._step_s
        frame = replace(frames[-1], late=late) if frames else gap
        return self._sent(frame, added, removed, notice)

    def _choose_again(self, when: float) -> tuple[tuple[Device, ...], tuple[str, ...]]:
        """Choose the rows again; return the new devices and the names of those that are gone."""
        earlier_devices = self._devices
        self._show(self._choose(when), when)
        if self._past is not None:
            self._past.change(self._brief(self._rows_store().rows), tuple(self._devices.values()))
        added = tuple(device for name, device in self._devices.items() if earlier_devices.get(name) != device)
        return added, tuple(name for name in earlier_devices if name not in self._devices)

    def _sent(self, frame: Frame, devices: tuple[Device, ...], removed: tuple[str, ...], notice: str) -> Frame:
        """Return the frame of rows that are shown, with their changes and the notice."""
        if self._past is not None:
            self._past.add(frame)
        shown = {series: histogram for series, histogram in frame.histograms.items() if series.device in self._devices}
        health = replace(frame.health, notice=notice)
        return replace(frame, histograms=shown, devices=devices, removed=removed, health=health)

    def _notice(self, when: float) -> str:
        """Return what is on the screen, and the findings of the exporters."""
        store = self._rows_store()
        try:
            answers = self._client.at(f"latmon_finding{{{store.rows.matcher}}}", when)
        except UnavailableError as error:
            return f"{store.about}; findings: {clean(str(error), 300)}"
        known = sorted(_finding(labels, store.rows) for labels, _ in answers)
        text = f"; {len(known)} finding{'s' * (len(known) != 1)}: {', '.join(known[:_NAMED])}" if known else ""
        return f"{store.about}{text}"


@dataclass(slots=True)
class _Live:
    """Times of the last evaluation and of the last choice of rows."""

    when: float
    chosen: float


def _finding(labels: Labels, rows: Rows) -> str:
    rule, device = labels.get("rule", ""), labels.get("device", "")
    host = "" if rows.host else f"{clean(labels.get(_NAME, ''), _MAX_NAME)} "
    return f"{rule} on {host}{device}"


def _hosts(rows: Rows) -> Iterator[Device]:
    for number, name in enumerate(rows.names):
        yield Device(clean(name, _MAX_NAME), 0, number, kind="host")


def _regex(glob: str) -> str:
    """Return the regular expression (RE2) of a glob of `*` and `?`."""
    return "".join({"*": ".*", "?": "."}.get(character) or _escaped(character) for character in glob)
