"""The prometheus backend: frames of simulated hosts from a real Prometheus, and errors of a server that fails."""

import base64
import contextlib
import json
import os
import re
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import generate
import many_hosts
import pytest
import yaml
from emulated import Watched
from hypothesis import given
from hypothesis import strategies as st
from prometheus import Prometheus, free_port
from terminal import Terminal, environment, latmon, wait_for
from test_fleet import client_bin, needs_ssh, servers, tools_in

from latmon.capture.backend import Grouped
from latmon.cli.main import run as main
from latmon.metrics.families import native_index
from latmon.model.frame import Frame, Series
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.recording.codec import Gap
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, UnavailableError, UsageError
from latmon_backends import prometheus
from latmon_backends.prometheus import Address, Client, PrometheusBackend, PrometheusStore, Rows, read_back

HOSTS, DEVICES = 8, 2
SLOW = many_hosts.name_of(many_hosts.SLOW)


@pytest.fixture(scope="module", params=["", pytest.param("sid", marks=pytest.mark.slow)], ids=["installed", "sid"])
def url(tmp_path_factory, request):
    """A Prometheus that has scraped hosts for some seconds, and knows their p99; also one of the third generation."""
    home = tmp_path_factory.mktemp("hosts")
    rules = home / "rules.yml"
    rules.write_text(yaml.safe_dump(generate.rules(interval="2s")))
    with many_hosts.Hosts(HOSTS, DEVICES) as hosts:
        target = f"127.0.0.1:{hosts.server_port}"
        served = Prometheus(home, target, rules=rules, interval="2s", paths=hosts.paths, suite=request.param)
        with served as server:
            slowest = f"count({prometheus.HOST_P99})"
            assert wait_for(lambda: [one["value"][1] for one in server.query(slowest)] == [f"{HOSTS}"], every=0.5)
            yield server.url


async def some_frames(backend, least):
    """The first frames with I/Os, as many as asked for."""
    found = []
    async for frame in backend.frames():
        if frame.histograms:
            found.append(frame)
        if len(found) >= least:
            return found
    raise AssertionError("frames ended")


def test_the_names_of_the_rules_are_the_generators():
    assert prometheus.HOST_P99 == generate.HOST_P99
    assert generate.RULES.match(prometheus.RULES)


def as_json(latencies):
    """A native histogram as Prometheus prints it."""
    histogram = Histogram.record(latencies)
    edges = [bucket_bounds(index)[1] for index, _ in histogram.buckets]
    highs = [1e-6 if edge == 1 else 2 ** (native_index(edge) / 16) for edge in edges]
    buckets = [
        [0, repr(high / 2 ** (1 / 16)), repr(high), str(n)]
        for high, (_, n) in zip(highs, histogram.buckets, strict=True)
    ]
    return {"count": str(histogram.count), "sum": repr(histogram.sum / 1e6), "buckets": buckets}, histogram


class _Returning(many_hosts.Hosts):
    """One host; its second device is away for some scrapes, and returns with its old totals."""

    def __init__(self):
        super().__init__(1, 2)
        self.scrapes = 0
        self.encoded = self._next

    def _next(self, shape, _seconds):
        self.scrapes += 1
        self.devices = 1 if 3 < self.scrapes <= 6 else 2
        return self._encoded(shape, self.scrapes)


@pytest.mark.slow
def test_a_device_that_returns_does_not_bring_its_totals_into_one_frame(tmp_path):
    name = many_hosts.name_of(0)
    with _Returning() as host:
        target = f"127.0.0.1:{host.server_port}"
        with Prometheus(tmp_path, target, interval="1s", paths=host.paths) as server:
            begin, client = int(time.time()), Client(Address.parse(server.url))
            assert wait_for(lambda: host.scrapes > 8, every=0.2)
            end = int(time.time())
            hosts, devices = (PrometheusStore(client, Rows((name,), 1, one), 1) for one in ("", name))
            single = {frame.wall: frame.histograms for frame in devices.frames(begin, end)}
            frames = [frame for frame in hosts.frames(begin, end) if frame.histograms]
    assert len(frames) > 4
    for frame in frames:
        both = frame.histograms[Series(name, "read", "total")].count
        assert both <= 2 * single[frame.wall][Series("sda", "read", "total")].count


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60))
def test_a_histogram_is_read_back_exactly(latencies):
    value, histogram = as_json(latencies)
    actual_histogram = read_back(value)
    assert (actual_histogram.buckets, actual_histogram.sum) == (histogram.buckets, histogram.sum)


@pytest.mark.parametrize(
    "value",
    [
        *("1", 3, None, [], {"buckets": 3}, {"buckets": [[0, "0", "0.001"]]}),
        *({"buckets": [[0, "0", "1e-6", n]]} for n in ("-1", "1e300", "9007199254740994")),
    ],
)
def test_odd_values_are_no_histograms(value):
    assert read_back(value) is None


@pytest.mark.parametrize("text", ["+Inf", "NaN", "-Inf"])
def test_a_sum_that_is_no_number_is_not_known(text):
    assert read_back({"sum": text, "buckets": [[0, "0", "1e-6", "1"]]}).sum is None


def test_a_sum_of_0_is_known_only_of_latencies_below_1_us():
    below, above = [0, "0", "1e-6", "5"], as_json([1000])[0]["buckets"][0]
    assert read_back({"sum": "0", "buckets": [below]}).sum == 0
    assert read_back({"sum": "0", "buckets": [below, above]}).sum is None


@pytest.mark.parametrize("high", ["0.0011", "+Inf", "NaN", "x", "1e-7x"])
def test_edges_that_are_not_latmons_are_not_read(high):
    assert read_back({"count": "1", "sum": "1", "buckets": [[0, "0", high, "1"]]}) is None


def test_buckets_that_a_store_has_merged_are_not_read():
    """Two of schema 4 are one of schema 3, with the upper edge of the second."""
    high = next(edge for index in range(100, 140) if (edge := native_index(bucket_bounds(index)[1])) % 2 == 0)
    narrow, wide = ([0, repr(2 ** ((high - width) / 16)), repr(2 ** (high / 16)), "1"] for width in (1, 2))
    assert read_back({"sum": "1", "buckets": [narrow]})
    assert read_back({"sum": "1", "buckets": [wide]}) is None


async def test_the_slowest_hosts_are_rows(url, monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_HOSTS", 6)
    async with PrometheusBackend(url, interval_us=2_000_000) as backend:
        assert isinstance(backend, Grouped)
        frames = await some_frames(backend, 2)
        names = list(backend._devices)
        assert len(names) == 6
        assert names[0] == SLOW
        assert frames[-1].health.notice.startswith(f"the 6 of {HOSTS} hosts with the highest p99 of 5 min")
        assert f"1 finding: peer-outlier on {SLOW} sda" in frames[-1].health.notice
        assert {one.name for one in backend.origin.absent} >= {"queue", "hba"}
        assert all(frame.outstanding[SLOW].in_driver == 2 * DEVICES for frame in frames)


async def test_counts_of_a_host_are_exact(url):
    """Each interval has a whole number of the simulation's seconds, bucket by bucket."""
    async with PrometheusBackend(url, select=SLOW, interval_us=2_000_000) as backend:
        frames = await some_frames(backend, 2)
        assert backend.origin.host == SLOW
        assert [(device.name, device.model) for device in backend._devices.values()] == [("sda", "M"), ("sdb", "M")]
        for frame in frames:
            for op in ("read", "write"):
                histogram = frame.histograms[Series("sda", op, "total")]
                expected = many_hosts.per_second(many_hosts.SLOW, op)
                (seconds,) = {n / expected[index] for index, n in histogram.buckets}
                assert histogram.buckets == many_hosts.latency(many_hosts.SLOW, op, int(seconds)).buckets
                assert histogram.sum == many_hosts.latency(many_hosts.SLOW, op, int(seconds)).sum
                assert frame.seen["sda", op].count == histogram.count


@pytest.mark.slow
async def test_the_past_has_the_same_frames(url):
    async with PrometheusBackend(url, select=SLOW, interval_us=2_000_000) as backend:
        live = await some_frames(backend, 2)
        past, step_us = backend.past(), 2_000_000
        last = live[-1]
        stored = list(past.frames(last.mono_us - 2 * step_us, last.mono_us))
        assert [frame.mono_us for frame in stored] == [last.mono_us - step_us, last.mono_us]
        cumulative = [sum(histogram.count for histogram in frame.histograms.values()) for frame in stored]
        assert all(n % 1600 == 0 for n in cumulative)
        assert past.stamps[-1].mono_us >= last.mono_us
        assert past.stamps[0].mono_us < last.mono_us
        assert len(past.known(last.mono_us)) == DEVICES


async def test_a_quick_start_is_one_interval_and_then_all(url, monkeypatch):
    monkeypatch.setattr(prometheus, "_FIRST_S", 60)
    async with PrometheusBackend(url, interval_us=2_000_000, quick=True) as backend:
        quick = [frame async for frame in backend.frames()]
        assert [frame.dt_us for frame in quick if frame.histograms] == [2_000_000]
        assert len(quick[0].devices) == HOSTS
        await backend.regroup()
        assert {frame.dt_us for frame in backend._first} == {2_000_000}
        assert len(backend._first) > 1
        assert await some_frames(backend, 1)
        assert len(backend.past().stamps) > 1


@pytest.mark.slow
async def test_a_host_is_opened_and_left(url):
    async with PrometheusBackend(url, interval_us=2_000_000) as backend:
        assert not backend.close_row()
        assert not backend.open_row("unknown")
        assert backend.open_row(SLOW)
        await backend.regroup()
        frames = await some_frames(backend, 1)
        assert {histogram.device for histogram in frames[0].histograms} == {"sda", "sdb"}
        assert backend.origin.host == SLOW
        assert not backend.open_row("sda")
        assert backend.close_row()
        await backend.regroup()
        assert len(backend._devices) == HOSTS


@pytest.mark.parametrize(
    ("select", "why"), [("x*", "no host is named 'x*'"), ("host-00[", "no host is named"), (r"\d+", "no host is named")]
)
async def test_no_host_that_matches(url, select, why):
    with pytest.raises(UnavailableError, match=why.replace("*", r"\*")):
        await PrometheusBackend(url, select=select).__aenter__()


async def test_the_interval_is_that_of_the_scrapes(url):
    async with PrometheusBackend(url, select="*-000?") as backend:
        assert 2 <= backend.origin.interval_us / 1e6 <= 4  # more where the machine was stopped for a while
        assert len(backend._devices) == HOSTS


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.headers.get("Authorization"))
        status, body = self.server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for part in [body] if isinstance(body, bytes) else body:
                self.wfile.write(part)

    do_GET = do_POST  # noqa: N815  as http.server names them

    def log_message(self, *_words):
        pass


@pytest.fixture
def fake():
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    server.seen, server.answer = [], (200, b"{}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


ODD = (
    '{"metric": {}, "value": ["x"]}',
    '{"metric": {}, "value": [1, "x"]}',
    '{"metric": {}, "value": [1, [2]]}',
    '{"metric": {}, "value": [1e999, "1"]}',
    f'{{"metric": {{}}, "value": [1{"0" * 400}, "1"]}}',
    '{"metric": {}, "values": []}',
    '{"metric": {}}',
    '{"metric": 3, "value": [1, "1"]}',
    '{"metric": ["instance"], "value": [1, "1"]}',
    '{"metric": {"instance": 3}, "value": [1, "1"]}',
    '{"metric": {"instance": "\\ud800"}, "value": [1, "1"]}',
    '{"value": [1, "1"]}',
    '"x"',
    "7",
)


def _found(one):
    return 200, f'{{"data": {{"result": [{one}]}}}}'.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, b"no"), "401: a user and a password are needed"),
        ((503, b"no"), "503: Service Unavailable"),
        ((422, json.dumps({"error": "query timed\x1b out"}).encode()), "422: query timed"),
        ((200, b"<html>"), "Expecting value"),
        ((200, b"{}"), "the answer is not Prometheus'"),
        ((200, b"[]"), "the answer is not Prometheus'"),
        ((200, b'{"data": {"result": 7}}'), "the answer is not Prometheus'"),
        *((_found(one), "the answer is not Prometheus'") for one in ODD),
        ((200, b"[" * 100_000), "the answer is not Prometheus'"),
        ((422, b"[" * 100_000), "422: "),
        ((200, b" " * 3_000), "the answer has more than 2,000 bytes: select fewer hosts (--select)"),
        (
            _found(",".join(['{"metric": {}, "value": [1, "1"]}'] * 4)),
            "the answer has 4 series: select fewer hosts (--select)",
        ),
        (
            _found('{"metric": {"a": "1", "b": "2"}, "value": [1, "1"]}'),
            "the answer has a series of more than 1 labels",
        ),
    ],
)
def test_a_failure_has_the_address_and_the_reason(fake, monkeypatch, answer, reason):
    if "bytes" in reason:
        monkeypatch.setattr(prometheus, "_MAX_BYTES", 2_000)
    if "series" in reason:
        monkeypatch.setattr(prometheus, "_MAX_SERIES", 3)
        monkeypatch.setattr(prometheus, "_MAX_LABELS", 1)
    fake.answer, url = answer, f"http://127.0.0.1:{fake.server_port}"
    with pytest.raises(UnavailableError) as raised:
        Client(Address.parse(url)).at("up", 0)
    assert str(raised.value).startswith(f"{url}: {reason}")
    assert "\x1b" not in str(raised.value)


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "nothing": (b"", b""),
    "status": (b"", b"H"),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks": (_CHUNKED, b"1\r\n \r\n"),
    "chunk's size": (_CHUNKED + b"1;", b"a"),
    "trailer": (_CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n"),
}
"""Answers that never end: how each begins, and what follows again and again."""
REFUSED = (b"HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a")
HANDSHAKE = (b"\x16\x03\x03\x40\x00", b"\0")
"""A record of TLS whose 16 KiB come one by one."""


@contextlib.contextmanager
def endless(begin, part, pause_s=0.02):
    """The port of a server that sends `part` until its client is gone; it reads no question."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send(connection):
        with contextlib.suppress(OSError), connection:
            connection.sendall(begin)
            while True:
                connection.sendall(part)
                time.sleep(pause_s)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=send, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


FAST = ("continue", "chunks", "trailer")
"""Those that nothing else limits, however fast they come."""


@pytest.mark.parametrize(("kind", "pause_s"), [*((kind, 0.02) for kind in ENDLESS), *((kind, 0) for kind in FAST)])
def test_an_answer_that_never_ends_has_a_time_limit(kind, pause_s):
    """A screen that waits for an earlier time takes no key."""
    begun = time.monotonic()
    with endless(*ENDLESS[kind], pause_s) as port:
        client = Client(Address.parse(f"http://127.0.0.1:{port}"), 0.5)
        with pytest.raises(
            UnavailableError, match=rf"^http://127.0.0.1:{port}: no complete answer within 0\.5 s: look"
        ):
            client.at("up", 0)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("scheme", "answer", "reason"),
    [("http", REFUSED, "503: Service Unavailable"), ("https", HANDSHAKE, "within 0.5 s")],
)
def test_a_refusal_and_a_handshake_that_never_end_have_a_time_limit(scheme, answer, reason):
    begun = time.monotonic()
    with endless(*answer) as port, pytest.raises(UnavailableError, match=reason):
        Client(Address.parse(f"{scheme}://127.0.0.1:{port}"), 0.5).at("up", 0)
    assert time.monotonic() - begun < 20


def test_a_resolver_that_does_not_answer_has_a_time_limit(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_more: time.sleep(10))
    with pytest.raises(UnavailableError, match=r"^http://db1:9090: no complete answer within 0\.1 s"):
        Client(Address.parse("http://db1:9090"), 0.1).at("up", 0)


def test_each_address_of_a_name_is_tried(fake, monkeypatch):
    fake.answer = 200, b'{"data": {"result": []}}'
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in ("127.0.0.2", "127.0.0.1")]
    resolve = socket.getaddrinfo
    names = {"db1": addresses}
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *words, **more: names.get(host) or resolve(host, *words, **more)
    )
    assert Client(Address.parse(f"http://db1:{fake.server_port}")).at("up", 0) == []


def test_another_address_is_not_asked(fake):
    fake.answer, url = (302, b""), f"http://127.0.0.1:{fake.server_port}"
    with pytest.raises(UnavailableError, match=rf"^{url}: it redirects to {url}/other: if that is right, name it with"):
        Client(Address.parse(url.replace("//", "//ann@"), "geheim")).at("up", 0)
    assert len(fake.seen) == 1


@pytest.mark.parametrize("value", ["-5", "1e300", "NaN", "+Inf"])
def test_ios_in_flight_that_none_can_be_are_unknown(monkeypatch, value):
    client = Client(Address("http://127.0.0.1:1"))
    latencies = [({"device": "sda", "op": "read"}, [(2.0, as_json([1000])[0])])]
    answers = iter((latencies, latencies, [({"device": "sda", "where": "driver"}, [(2.0, value)])]))
    monkeypatch.setattr(client, "at", lambda *_words: next(answers))
    (frame,) = PrometheusStore(client, Rows(("h",), 1, "h"), 2).frames(0.0, 2.0)
    assert not frame.outstanding


@pytest.mark.parametrize("value", ["NaN", "1e999", "-1", "0"])
async def test_a_number_of_hosts_that_is_none(fake, value):
    fake.answer = _found(f'{{"metric": {{}}, "value": [1, "{value}"]}}')
    with pytest.raises(UnavailableError, match=f"http://127.0.0.1:{fake.server_port}: it scrapes no latmon exporter"):
        await PrometheusBackend(f"http://127.0.0.1:{fake.server_port}").__aenter__()


def test_nothing_listens():
    with pytest.raises(UnavailableError, match=r"^http://\S+: Connection refused$"):
        Client(Address.parse(f"http://127.0.0.1:{free_port()}")).at("up", 0)


def test_a_password_is_sent_to_this_server_alone(fake):
    fake.answer = 200, b'{"data": {"result": []}}'
    address = Address.parse(f"http://ann%40x@127.0.0.1:{fake.server_port}/prom/", "geheim")
    assert "geheim" not in repr(address)
    assert address.url.endswith("/prom")
    assert Client(address).at("up", 0) == []
    assert fake.seen == [f"Basic {base64.b64encode(b'ann@x:geheim').decode()}"]


@pytest.mark.parametrize(
    "text", ["", "host:9090", "ftp://host", "file:///etc/passwd", "http://", "http://h:x", "http://h?x", "http://[::1"]
)
def test_no_url(text):
    with pytest.raises(UsageError, match="--url"):
        Address.parse(text)


def test_a_password_on_the_command_line_is_refused():
    with pytest.raises(UsageError, match="--password-file"):
        Address.parse("http://ann:geheim@host")


OF_H = ("--backend", "prometheus", "--url", "http://h")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backend", "prometheus"], "--backend prometheus needs --url URL"),
        (["--url", "http://h"], "--url needs --backend prometheus"),
        (["--select", "h"], "--select needs --backend prometheus"),
        ([*OF_H, "--threshold", "1s"], "goes without --threshold, which needs a host's own data"),
        ([*OF_H, "--record", "x", "--tui"], "goes without --tui, which needs a capture of this host: take --record"),
        ([*OF_H, "--inline", "--record", "x"], "--inline goes without --record"),
        ([*OF_H, "--inline", "--duration", "9s"], "--inline goes without --duration"),
        ([*OF_H, "--bell"], "goes without --bell, which needs rules that are evaluated here"),
        (["exporter", "--backend", "prometheus"], "--backend: there is no 'prometheus'"),
    ],
)
def test_options_that_do_not_fit(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def run(*words, **more):
    done = subprocess.run(latmon(*words), capture_output=True, text=True, check=False, env=environment(**more))
    assert "Traceback" not in done.stderr
    return done


def test_one_screen_of_hosts_is_printed(url):
    done = run("--backend", "prometheus", "--url", url, "--once", COLUMNS="120", LINES="70")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"(?m)^│?[▸ ](host-\d+) ", done.stdout)) == list(map(many_hosts.name_of, range(HOSTS)))
    assert f"all {HOSTS} hosts" in done.stdout
    assert f"peer-outlier on {SLOW} sda" in done.stdout


@pytest.mark.slow
def test_a_host_is_recorded_and_reported(url, tmp_path, monkeypatch, capsys):
    """From the start on, with the exact counts of some seconds of the simulation."""
    path = tmp_path / "x.latmon.jsonl.gz"
    words = ["--backend", "prometheus", "--url", url, "--select", SLOW, "--record", str(path), "--duration", "5s"]
    done = run(*words, "--interval", "2s")
    assert "measured: latmon's own writes" not in done.stderr
    recording = open_recording(path)
    items = list(recording)
    frames = [item for item in items if isinstance(item, Frame)]
    gaps = [item for item in items if isinstance(item, Gap) or (isinstance(item, Frame) and item.gap)]
    assert done.returncode == (EXIT_INCOMPLETE if gaps else EXIT_DONE), done.stderr  # a crowded machine scrapes late
    assert not recording.damage
    assert recording.origin.backend == "prometheus"
    assert {device.name for frame in frames for device in frame.devices} == {"sda", "sdb"}
    timed = [histogram for frame in frames for histogram in frame.histograms.values()]
    assert timed
    assert all(histogram.count > 0 and histogram.count % 400 == 0 for histogram in timed)
    assert main(["report", str(path)]) == 0
    report = capsys.readouterr().out
    assert report.count("one frame per 2 s") == 1
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["replay", str(path), "--once"]) == 0
    shown = capsys.readouterr().out
    (titles,) = [line for line in shown.splitlines() if "MB/s" in line and "p99" in line]
    (row,) = [line for line in shown.splitlines() if line.startswith("▸sd")]
    assert row[: titles.index("MB/s") + 4].rstrip().endswith("-")


@pytest.mark.slow
def test_a_strip_of_hosts_is_shown(url, tmp_path):
    """On a terminal, until q."""
    with Terminal(latmon("--backend", "prometheus", "--url", url, "--inline"), tmp_path) as terminal:
        assert wait_for(lambda: SLOW.encode() in terminal.output, 120, every=0.2), terminal.output
        terminal.type(b"q")
        assert terminal.status() == 0


@pytest.mark.slow
@needs_ssh
def test_a_host_is_opened_over_ssh_and_left_again(url, tmp_path):
    """E on a host shows it by `latmon fleet`, whose q leads back; where ssh fails, its reason stays until Enter."""
    with servers(tmp_path, **{SLOW: tools_in(tmp_path / "1")}) as (client, _):
        path = f"{client_bin(tmp_path, client)}:{os.environ['PATH']}"
        words = latmon("--backend", "prometheus", "--url", url, "--interval", "2s")
        with Terminal(words, tmp_path, size=(40, 160), PATH=path) as terminal:
            shown = Watched(lambda: terminal.output, 160, 40)

            def shows(text):
                return wait_for(lambda: text in "\n".join(shown.lines()), every=0.2), shown.lines()

            assert all(shows(f"▸{SLOW}"))
            terminal.type(b"\r")
            assert all(shows(f"E: `latmon fleet {SLOW}`, over ssh"))
            assert all(shows("sdb"))
            terminal.type(b"E")
            assert all(shows("tier D")), "the host's shell measures"
            terminal.type(b"q")
            assert all(shows("sdb")), "the devices that were open"
            terminal.type(b"\x1b")
            assert all(shows("▸host"))
            terminal.type(b"\x1b[B")
            terminal.type(b"E")
            assert all(shows("Enter: back to the hosts of the Prometheus"))
            other = re.search(r"no host can be measured: (\S+): Could not resolve", "\n".join(shown.lines()))[1]
            terminal.type(b"\r")
            assert all(shows(f"▸{other}")), "the selected row"
            terminal.type(b"q")
            assert terminal.status() == 0
            assert not terminal.left()


@pytest.mark.parametrize(
    ("instance", "host"),
    [("db-7:9750", "db-7"), ("db-7", "db-7"), ("[fe80::1]:9750", "fe80::1"), ("fe80::1", "fe80::1"), ("", "")],
)
def test_the_port_of_an_exporter_is_not_that_of_ssh(instance, host):
    backend = PrometheusBackend("http://127.0.0.1:1")
    backend._store = PrometheusStore(backend._client, Rows(tuple(filter(None, [instance])), 1), 1)
    assert backend.host_of(instance) == host
    assert not backend.host_of("another")


async def test_rows_that_can_not_be_read_leave_those_before(url):
    async with PrometheusBackend(url, interval_us=2_000_000, quick=True) as backend:
        quick = [frame async for frame in backend.frames()]
        address, backend._client._address = backend._client._address, Address("http://127.0.0.1:1")
        assert backend.open_row(SLOW)
        await backend.regroup()
        backend._client._address = address
        again = await anext(backend.frames())
        assert again.health.notice.startswith("http://127.0.0.1:1: ")
        assert (again.histograms, again.devices) == (quick[0].histograms, quick[0].devices)
        assert backend.origin.host != SLOW
        assert backend.open_row(SLOW)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"), [(None, "Connection refused"), ("header", "no complete answer within 1 s")]
)
async def test_an_outage_is_a_gap_with_its_reason(url, answer, reason):
    server = contextlib.nullcontext(1) if answer is None else endless(*ENDLESS[answer])
    async with PrometheusBackend(url, select=SLOW, interval_us=2_000_000) as backend:
        frames = backend.frames()
        last = await anext(frames)
        while not last.histograms or last.dt_us != 2_000_000:
            last = await anext(frames)
        client = backend._store._client
        address, client._timeout_s = client._address, 1
        with server as port:
            client._address = Address(f"http://127.0.0.1:{port}")
            gone = await anext(frames)
        assert gone.gap == "no answer"
        assert gone.health.notice.startswith(f"http://127.0.0.1:{port}: {reason}")
        assert gone.mono_us - gone.dt_us == last.mono_us
        client._address, client._timeout_s = address, 30
        again = await anext(frames)
        assert again.mono_us - again.dt_us >= gone.mono_us
        assert again.histograms


HOSTILE = ("db\x1b]52;c;x\x07", "db\u00a01", "db\u202e2")
"""Instances that a terminal would obey, or that no decoder of the screen takes as they are."""


async def test_hosts_whose_labels_a_terminal_would_obey_are_shown_and_opened(tmp_path):
    with many_hosts.Hosts(len(HOSTILE), 1) as hosts:
        target = f"127.0.0.1:{hosts.server_port}"
        paths = [(path, name) for (path, _), name in zip(hosts.paths, HOSTILE, strict=True)]
        rules = tmp_path / "rules.yml"
        rules.write_text(yaml.safe_dump(generate.rules(interval="1s")))
        with Prometheus(tmp_path, target, rules=rules, paths=paths) as server:
            assert wait_for(lambda: len(server.query(prometheus.HOST_P99)) == len(HOSTILE), every=0.5)
            shown = run("--backend", "prometheus", "--url", server.url, "--once", COLUMNS="120", LINES="40")
            assert shown.returncode == 0, shown.stderr
            assert all(line.isprintable() for line in shown.stdout.splitlines())
            backend = PrometheusBackend(server.url, interval_us=1_000_000)
            async with backend:
                (first,) = await some_frames(backend, 1)
                names = sorted({series.device for series in first.histograms})
                assert len(names) == len(HOSTILE)
                for name in names:
                    assert name.isprintable()
                    assert backend.open_row(name)
                    await backend.regroup()
                    assert backend.origin.host == name
                    (frame,) = await some_frames(backend, 1)
                    assert {series.device for series in frame.histograms} == {"sda"}
                    assert frame.health.notice.isprintable()
                    assert backend.close_row()
                    await backend.regroup()
