"""`latmon exporter` as a process: on TCP and unix sockets, with TLS and passwords, beside clients that misbehave."""

import base64
import gzip
import http.client
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace

import bcrypt
import psutil
import pytest
from prometheus import free_port
from prometheus_client.parser import text_string_to_metric_families
from terminal import environment, latmon, wait_for
from test_families import messages

from latmon.cli import commands
from latmon.cli.main import run as main
from latmon.findings.rule import Settings
from latmon.metrics import connections as connections_module
from latmon.metrics import families as metric_families
from latmon.metrics import passwords as passwords_module
from latmon.metrics import server as module
from latmon.metrics.connections import address_of
from latmon.metrics.families import PROTOBUF, HostMetrics
from latmon.metrics.listen_address import ListenAddress
from latmon.metrics.passwords import Attempt, Passwords, Verdict
from latmon.metrics.server import Server, wants_protobuf
from latmon.metrics.web_config import WebConfig
from latmon.model.frame import Completed, Device, Flow, Frame, Limit, Origin, Outstanding, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements import ABOVE, ERRORS, FILE_SYSTEM_ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.model.measurements.file_system_errors import WRONG_CHECKSUM, FileSystemError
from latmon.support import privileges
from latmon.support.errors import UnavailableError
from latmon.support.process import Cost

MODERN = (
    f"{PROTOBUF.replace(' ', '')};q=0.7,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.2"
)


HASHED = bcrypt.hashpw(b"geheim", b"$2b$04$" + b"." * 22).decode()
"""By a fixed salt: names of tests are the same in each worker."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("latmon")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


def get(connection, path="/metrics", **headers):
    connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.headers


@contextmanager
def exporter(directory, listen, *words, backend="demo", **environ):
    """The process, once it serves metrics; it must end with 0 on SIGTERM and leave no process."""
    said = directory / "stderr"
    command = latmon("exporter", "--backend", backend, "--listen", listen, *words)
    with said.open("w") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=err, stderr=err, env=environment(**environ)
        )
    try:
        assert wait_for(lambda: "serves /metrics" in said.read_text() or process.poll() is not None), said.read_text()
        assert process.poll() is None, said.read_text()
        yield process
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, said.read_text()
        assert children
        assert wait_for(lambda: not any(child.is_running() for child in children))
        assert "Traceback" not in said.read_text()
    finally:
        process.kill()
        process.wait()


QUICK = ("--interval", "200ms")
"""Options of tests that need only a first frame of counters."""


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    number = free_port()
    with exporter(tmp_path_factory.mktemp("exporter"), f"127.0.0.1:{number}"):
        assert wait_for(lambda: get(http.client.HTTPConnection("127.0.0.1", number))[0] == 200)
        yield number


def ask(port, path="/metrics", **headers):
    return get(http.client.HTTPConnection("127.0.0.1", port, timeout=60), path, **headers)


def test_text_has_every_family_in_few_series(port):
    assert wait_for(lambda: b"latmon_finding{" in ask(port)[1])
    status, body, headers = ask(port)
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    families = {one.name: one for one in text_string_to_metric_families(body.decode())}
    there = {"latmon_build_info", "latmon_io_latency_seconds", "latmon_outstanding_ios", "latmon_probe_completed_ios"}
    assert there <= set(families)
    stages = {sample.labels["stage"] for sample in families["latmon_io_latency_seconds"].samples}
    assert stages == {"total"}
    text = body.decode()
    for word in ("pid", "comm", "sector"):
        assert f'{word}="' not in text


def test_protobuf_is_sent_where_it_is_asked_for(port):
    status, body, headers = ask(port, Accept=MODERN)
    assert (status, headers["Content-Type"]) == (200, PROTOBUF)
    names = [dict(message)[1] for message in messages(body)]
    assert b"latmon_io_latency_seconds" in names
    assert len(names) == len(set(names))
    series = sum(sum(number == 4 for number, _ in message) for message in messages(body))
    assert series < 250


def test_24_devices_are_fewer_than_250_series():
    """With everything that a host of 24 devices may have, but more than one finding."""
    names = [f"sd{letter}" for letter in "abcdefghijklmnopqrstuvwx"]
    limits = (Limit("queue_depth", 32, "queue_depth"),)
    flows = [Flow(name, op) for name in names for op in ("read", "write")]
    frame = Frame(
        0,
        1e9,
        10**6,
        10**6,
        histograms={Series(*flow, "total"): Histogram.record([100]) for flow in flows},
        seen={flow: Completed(1, 4096) for flow in flows},
        kernel={flow: Completed(1, 4096) for flow in flows},
        thresholds_us=dict.fromkeys(names, 1000),
        outstanding={name: Outstanding(1, 2) for name in names},
        devices=tuple(
            Device(name, 8, at, "disk", "sd", "0000:01:00.0", "M", limits=limits) for at, name in enumerate(names)
        ),
    )
    metrics = HostMetrics(Origin("bpftrace", "h", "k", "l"), Settings())
    metrics.add(frame)
    counts = {family.name: len(family.samples) for family in metrics.families()}
    assert (
        counts["latmon_device_info"] == counts["latmon_outstanding_limit"] == counts["latmon_probe_completed_ios"] == 24
    )
    assert counts["latmon_io_latency_seconds"] == counts["latmon_outstanding_ios"] == 48
    assert 220 < sum(counts.values()) < 250
    (info,) = [family for family in metrics.families() if family.name == "latmon_device_info"]
    assert info.samples[0].labels == {"device": "sda", "model": "M", "driver": "sd", "controller": "0000:01:00.0"}


@pytest.mark.parametrize("resident", [2**20, None])
def test_the_cpu_time_is_sent_where_the_memory_is_not_known(monkeypatch, resident):
    monkeypatch.setattr(metric_families, "own_cost", lambda: Cost(1.5, resident))
    families = HostMetrics(Origin("procfs", "h", "k", "l"), Settings()).families()
    found = {
        family.name: family.samples[0].value
        for family in families
        if family.name.endswith(("cpu_seconds", "memory_bytes"))
    }
    memory = {} if resident is None else {"latmon_resident_memory_bytes": resident}
    assert found == {"latmon_cpu_seconds": 1.5, **memory}


def test_a_device_that_gets_the_name_of_a_removed_one_begins_at_0():
    metrics = HostMetrics(Origin("bpftrace", "h", "k", "l"), Settings(), stages=True)

    def add(seq, ios, *, devices=(), removed=()):
        histograms_by_series = {Series("sda", "read", "total"): Histogram.record([100] * ios)} if ios else {}
        done = {Flow("sda", "read"): Completed(ios, 4096 * ios)} if ios else {}
        tables = {
            "seen": done,
            "kernel": done,
            "tables": {
                ABOVE: dict.fromkeys(done, ios),
                ERRORS: {FailedIO("sda", "read", "time-out"): ios},
                FILE_SYSTEM_ERRORS: {FileSystemError("sda", "btrfs", WRONG_CHECKSUM): ios},
            },
            "thresholds_us": {"sda": 1},
        }
        traced = Traced(histograms=histograms_by_series)
        at = 10**6 * (seq + 1)
        metrics.add(
            Frame(
                seq,
                1e9,
                at,
                10**6,
                histograms=histograms_by_series,
                traced=traced,
                devices=devices,
                removed=removed,
                **tables,
            )
        )

    def counts():
        names = (
            "io_latency_seconds",
            "traced_latency_seconds",
            "probe_completed_ios",
            "kernel_completed_ios",
            "outliers",
            "failed_ios",
            "file_system_errors",
        )
        families = {family.name.removeprefix("latmon_"): family.samples for family in metrics.families()}
        values = [metric_sample.value for name in names for metric_sample in families.get(name, ())]
        return [one.count if isinstance(one, Histogram) else one for one in values]

    first, second = (Device("sda", 8, 0, "disk", "sd", model=model) for model in "MN")
    add(0, 1000, devices=(first,))
    assert counts() == [1000] * 7
    add(1, 0, removed=("sda",))
    add(2, 5)  # ended after the removal
    assert counts() == []
    add(3, 7, devices=(second,))
    assert counts() == [7] * 7
    add(4, 2, devices=(first,), removed=("sda",))
    assert counts() == [2] * 7
    (failed,) = next(family.samples for family in metrics.families() if family.name == "latmon_failed_ios")
    assert failed.labels == {"device": "sda", "op": "read", "status": "time-out"}
    (actual_metric_sample,) = next(
        family.samples for family in metrics.families() if family.name == "latmon_file_system_errors"
    )
    assert actual_metric_sample.labels == {"device": "sda", "finder": "btrfs", "error": "wrong checksum"}
    add(5, 2, devices=(replace(first, label="x"),))
    assert counts() == [4] * 7


def test_gzip(port):
    _, body, headers = ask(port, Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).startswith(b"# HELP latmon_build_info")


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/metrics?x=1", 200), ("/../etc/passwd", 404), ("/x", 404)])
def test_paths(port, path, status):
    assert ask(port, path)[0] == status


def test_other_methods_are_refused(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/metrics", body="x" * 100)
    assert connection.getresponse().status == 501


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["nothing", "half a header"])
def test_idle_connections_keep_no_scraper_away(port, sent):
    idle = []
    try:
        for _ in range(60):
            connection = socket.create_connection(("127.0.0.1", port))
            idle.append(connection)
            connection.sendall(sent)
            assert ask(port)[0] == 200
    finally:
        for connection in idle:
            connection.close()


def test_clients_that_read_nothing_keep_no_scraper_away(port):
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    try:
        for connection in silent:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert ask(port)[0] == 200
    finally:
        for connection in silent:
            connection.close()


def test_a_header_is_read_no_further_than_any_scraper_s(port):
    """Of a hundred such lines of 24 clients the exporter took 777 MiB."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, pytest.raises(ConnectionError):
        client.sendall(b"GET /metrics HTTP/1.1\r\n" + 98 * (b"X: " + b"x" * 65_000 + b"\r\n"))
    assert ask(port, X="x" * 17_000)[0] == 431
    assert ask(port, X="x" * 8_000)[0] == 200


def test_gzip_is_not_sent_to_a_client_that_refuses_it(port):
    for accepted, packed in (("gzip;q=0", None), ("br, gzip; q=0.0", None), ("br;q=1, gzip;q=0.1", "gzip")):
        assert ask(port, Accept_Encoding=accepted)[2].get("Content-Encoding") == packed


SLOW_HASH = bcrypt.hashpw(b"geheim", b"$2b$08$" + b"." * 22)


def basic(user, password):
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


RIGHT, WRONG = basic("ann", "geheim"), basic("ann", "falsch")


@pytest.fixture
def passwords():
    """A check whose hash takes some milliseconds."""
    checked = Passwords({"ann": SLOW_HASH})
    yield checked
    checked.close()


@pytest.fixture
def small_budget(monkeypatch):
    """A budget of about one hash."""
    monkeypatch.setattr(passwords_module, "_BUDGET_S", 0.02)


@pytest.mark.usefixtures("small_budget")
def test_wrong_passwords_take_little_of_a_cpu_and_keep_no_known_client_away(passwords):
    assert passwords.begin_attempt(RIGHT, "192.0.2.1").verdict(60) is Verdict.RIGHT
    begun, cpu = time.monotonic(), time.process_time()
    for _ in range(24):
        assert passwords.begin_attempt(WRONG, "192.0.2.2").verdict(60) is Verdict.WRONG
        assert passwords.begin_attempt(RIGHT, "192.0.2.1").is_decided
    assert time.process_time() - cpu < 0.3 * (time.monotonic() - begun)


@pytest.mark.usefixtures("small_budget")
def test_few_attempts_wait_and_an_address_without_wrong_ones_goes_first(passwords):
    assert passwords.begin_attempt(WRONG, "192.0.2.1").verdict(60) is Verdict.WRONG
    from_attacker = [passwords.begin_attempt(basic("ann", f"{number}"), "192.0.2.1") for number in range(8)]
    assert sum(attempt.is_decided for attempt in from_attacker) >= 3
    first_of_another = passwords.begin_attempt(RIGHT, "192.0.2.9")
    assert first_of_another.verdict(60) is Verdict.RIGHT
    assert not all(attempt.is_decided for attempt in from_attacker)
    assert {attempt.verdict(60) for attempt in from_attacker} == {Verdict.UNCHECKED, Verdict.WRONG}


def test_slow_hashes_of_one_address_leave_a_budget_for_another():
    """At bcrypt's usual cost a hash takes 0.3 s of CPU; after a wrong one the next waited for ten times as long."""
    passwords = Passwords({"ann": SLOW_HASH})
    try:
        for _ in range(20):
            passwords._note(Attempt("192.0.2.1"), 0.3, is_right=False)
            if not passwords._has_budget(Attempt("192.0.2.1")):
                break
        assert not passwords._has_budget(Attempt("192.0.2.1"))
        assert passwords._has_budget(Attempt("192.0.2.2"))
        assert passwords.begin_attempt(RIGHT, "192.0.2.2").verdict(60) is Verdict.RIGHT
    finally:
        passwords.close()


def test_an_attempt_whose_connection_ended_takes_no_place(passwords):
    assert passwords.begin_attempt(WRONG, "192.0.2.1").verdict(60) is Verdict.WRONG
    for number in range(20):
        attempt = passwords.begin_attempt(basic("ann", f"{number}"), "192.0.2.1")
        attempt.decide(Verdict.UNCHECKED)
    assert passwords.begin_attempt(RIGHT, "192.0.2.1").verdict(60) is Verdict.RIGHT


def test_the_end_waits_for_a_hash(passwords):
    """A daemon thread that hashes while the interpreter ends aborts the process."""
    attempt = passwords.begin_attempt(WRONG)
    passwords.close()
    assert not passwords._hasher.is_alive()
    assert attempt.verdict(0) in (Verdict.WRONG, Verdict.UNCHECKED)


def test_what_a_password_makes_bcrypt_raise_ends_no_other_check(passwords, monkeypatch):
    """bcrypt 3.2 refuses a NUL byte; memory may end."""
    errors = iter([ValueError("NUL bytes are not allowed in password"), MemoryError()])

    def fail(*_):
        raise next(errors)

    with monkeypatch.context() as patch:
        patch.setattr(bcrypt, "checkpw", fail)
        assert passwords.begin_attempt(basic("ann", "a\0b"), "192.0.2.1").verdict(60) is Verdict.WRONG
        assert passwords.begin_attempt(basic("ann", "ab"), "192.0.2.1").verdict(60) is Verdict.UNCHECKED
    assert passwords.begin_attempt(RIGHT, "192.0.2.2").verdict(60) is Verdict.RIGHT


def test_a_password_that_is_not_checked_in_time_is_told_so(passwords, monkeypatch):
    assert module._PASSWORD_S < module._TIMEOUT_S
    checking, is_over = threading.Event(), threading.Event()

    def wait(*_):
        checking.set()
        return is_over.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr(bcrypt, "checkpw", wait)
        passwords.begin_attempt(WRONG, "192.0.2.1")
        assert checking.wait(60)
        attempt = passwords.begin_attempt(RIGHT, "192.0.2.2")
        assert attempt.verdict(0.01) is Verdict.UNCHECKED
        assert attempt.is_decided
        is_over.set()


@pytest.mark.parametrize(
    ("client_address", "address"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        ("", ""),
    ],
)
def test_the_address_that_a_client_is_counted_by(client_address, address):
    assert address_of(client_address) == address


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_wrong_passwords_of_many_addresses_keep_no_known_client_away(tmp_path):
    """Attackers send complete requests, wait for the answer, and begin again."""
    hashed = bcrypt.hashpw(b"geheim", b"$2b$10$" + b"." * 22).decode()
    config, number = web_config(tmp_path, f"basic_auth_users: {{ann: {hashed}}}\n"), free_port()
    is_over = threading.Event()
    answers = Counter()

    def attack(address):
        turn = 0
        while not is_over.is_set():
            turn += 1
            with (
                suppress(OSError, http.client.HTTPException),
                socket.create_connection(("127.0.0.1", number), timeout=10, source_address=(address, 0)) as client,
            ):
                header = basic("ann", f"{address} {turn}")
                client.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: {header}\r\n\r\n".encode())
                answers[answered(client)] += 1

    with exporter(tmp_path, f"127.0.0.1:{number}", *QUICK, "--web-config", str(config), backend="procfs"):
        assert wait_for(lambda: ask(number, Authorization=RIGHT)[0] == 200)
        attackers = [threading.Thread(target=attack, args=(f"127.0.1.{host}",)) for host in range(1, 61)]
        for attacker in attackers:
            attacker.start()
        try:
            assert wait_for(lambda: answers[b"401"] >= 2)
            begun = time.monotonic()
            assert [ask(number, Authorization=RIGHT)[0] for _ in range(20)] == [200] * 20
            assert time.monotonic() - begun < 60  # an answer took 10 s and more, or never came
        finally:
            is_over.set()
            for attacker in attackers:
                attacker.join()
        assert set(answers) <= {b"401", b"503", b""}
        assert wait_for(lambda: ask(number, Authorization=RIGHT)[0] == 200)


@pytest.fixture
def many_files():
    """Room for a thousand connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_verbose_log_has_the_requests_and_a_file_what_stderr_has(tmp_path):
    number, log = free_port(), tmp_path / "log"
    with exporter(tmp_path, f"127.0.0.1:{number}", *QUICK, "--verbose", "--log-file", str(log), backend="procfs"):
        assert wait_for(lambda: ask(number)[0] == 200)
        assert wait_for(lambda: '"GET /metrics HTTP/1.1" 200' in log.read_text())
    logged = [line.partition("]: ")[2] for line in log.read_text().splitlines()]
    printed = [line.removeprefix("latmon: ") for line in (tmp_path / "stderr").read_text().splitlines()]
    assert sorted(logged) == sorted(printed)
    assert any(line.startswith(f"127.0.0.1:{number} serves /metrics") for line in logged)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_a_thousand_connections_cost_no_thread_and_no_memory(tmp_path):
    number, open_sockets = free_port(), []
    with exporter(tmp_path, f"127.0.0.1:{number}") as process:
        assert wait_for(lambda: ask(number)[0] == 200)
        of_it = psutil.Process(process.pid)
        before_mb = of_it.memory_info().rss / 1e6
        try:
            for _ in range(1000):
                current_open_socket = socket.create_connection(("127.0.0.1", number), timeout=120)
                open_sockets.append(current_open_socket)
                with suppress(OSError):  # refused already
                    current_open_socket.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            assert of_it.num_threads() < 50
            answers = Counter(answered(open_socket) for open_socket in open_sockets)
        finally:
            for current_open_socket in open_sockets:
                current_open_socket.close()
        assert set(answers) == {b""}, answers  # each made way for a later one
        assert wait_for(lambda: ask(number)[0] == 200, seconds=120, every=0.5)
        assert wait_for(lambda: of_it.num_threads() < 10)
        assert of_it.memory_info().rss / 1e6 < before_mb + 30
        assert of_it.num_fds() < 40


def answered(connection):
    """Return the status that a connection got, b"" where it was closed without one."""
    try:
        return connection.recv(100)[9:12]
    except ConnectionResetError:
        return b""


def test_a_unix_socket(tmp_path):
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as stale:  # of an exporter that was killed
        stale.bind(str(path))
    with exporter(tmp_path, f"unix:{path}", *QUICK, backend="procfs"):
        assert path.stat().st_mode & 0o777 == 0o660
        assert wait_for(lambda: get(_Unix(str(path)))[0] == 200)
        assert main(["exporter", "--backend", "demo", "--listen", f"unix:{path}"]) == 3  # in use
    assert not path.exists()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_socket_of_a_killed_exporter_stays(tmp_path, kind):
    path, other = tmp_path / "x.sock", tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(other))
    path.write_text("kept") if kind == "file" else path.symlink_to(other)
    with pytest.raises(UnavailableError, match="Address already in use"):
        ListenAddress(path=str(path)).listen({}, None)
    assert path.read_text() == "kept" if kind == "file" else path.is_symlink()
    assert other.is_socket()


@pytest.mark.parametrize("own", [True, False])
def test_root_removes_no_socket_of_another_service(tmp_path, own):
    """sudo's user names the path: what root has made with that user's group is an exporter's, anything else is not."""
    gid, path = 12_345 if os.geteuid() == 0 else os.getgid(), tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    os.chown(path, -1, gid)
    if own:
        ListenAddress(path=str(path)).listen({}, gid).close()
    else:
        with pytest.raises(UnavailableError, match="Address already in use"):
            ListenAddress(path=str(path)).listen({}, gid + 1)
    assert path.is_socket()


@pytest.mark.parametrize("umask", [0, 0o77])
def test_a_unix_socket_has_its_mode_and_group_from_the_start(tmp_path, monkeypatch, umask):
    """Without a path that is changed later, which another user could point to another file."""
    gid, path = 12_345 if os.geteuid() == 0 else os.getgid(), tmp_path / "x.sock"
    for name in ("chmod", "chown", "lchown"):
        monkeypatch.delattr(os, name)
    before, own = os.umask(umask), os.getegid()
    try:
        with ListenAddress(path=str(path)).listen({}, gid):
            found = path.stat()
        assert (os.umask(umask), os.getegid()) == (umask, own)
    finally:
        os.umask(before)
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, gid)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    home = tmp_path_factory.mktemp("tls")
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]
    names = [
        "-subj",
        "/CN=localhost",
        "-keyout",
        str(home / "key.pem"),
        "-out",
        str(home / "cert.pem"),
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run(["openssl", *words, *names], check=True, capture_output=True)
    return home


def web_config(home, text):
    path = home / "web.yml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@contextmanager
def serving(web):
    """A server in this process, without metrics, and its port."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(listening, web, lambda *_: None)
    accepting = threading.Thread(target=server.serve_forever, args=(0.01,))
    accepting.start()
    try:
        yield server, listening.getsockname()[1]
    finally:
        server.shutdown()
        accepting.join()
        server.server_close()


def test_a_client_that_begins_no_tls_can_be_cut(certificate, monkeypatch):
    monkeypatch.setattr(module, "_TIMEOUT_S", 120.0)
    config = web_config(certificate, "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n")
    with (
        serving(WebConfig.load(config)) as (server, port),
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert wait_for(lambda: server._connections._open)
        (connection,) = server._connections._open
        assert wait_for(lambda: isinstance(connection.channel, ssl.SSLSocket))
        connection.cut()
        assert wait_for(lambda: not server._connections._open)


def test_a_request_without_room_is_told_so_before_its_connection_ends(monkeypatch):
    assert module._ROOM_S < module._TIMEOUT_S / 2
    monkeypatch.setattr(module, "_ROOM_S", 0.05)
    with serving(WebConfig()) as (server, port):
        server.metrics = HostMetrics(Origin("demo", "h", "6.1", "0"), Settings())
        for _ in range(module._MAX_REQUESTS):
            assert server.room.acquire(blocking=False)
        assert ask(port)[:2] == (503, b"too many requests at a time\n")
        server.room.release()
        assert ask(port)[0] == 200


def test_where_all_requests_are_complete_the_oldest_makes_way(monkeypatch):
    """Clients of complete requests that wait for room: the new one is answered, and the oldest cut."""
    monkeypatch.setattr(connections_module, "MAX_OF_ADDRESS", 3)
    for name in ("_ROOM_S", "_TIMEOUT_S"):
        monkeypatch.setattr(module, name, 60.0)
    with serving(WebConfig()) as (server, port):
        server.metrics = HostMetrics(Origin("demo", "h", "6.1", "0"), Settings())
        for _ in range(module._MAX_REQUESTS):
            assert server.room.acquire(blocking=False)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(3)]
        try:
            for number, client in enumerate(clients, 1):
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert wait_for(lambda n=number: sum(one.attempt is not None for one in server._connections._open) == n)
            assert ask(port, "/")[0] == 200
            server.room.release()
            assert [answered(client) for client in clients] == [b"", b"200", b"200"]
        finally:
            for client in clients:
                client.close()


def test_a_connection_whose_thread_can_not_be_started_is_forgotten(monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with serving(WebConfig()) as (server, port):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(1) == b""
        assert not server._connections._open
        assert not server._by_socket
        assert ask(port, "/")[0] == 200


def test_tls_and_a_password(tmp_path, certificate):
    text = f"tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\nbasic_auth_users:\n  ann: {HASHED}\n"
    config, port = web_config(certificate, text), free_port()
    context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))

    def asked(user="", password="", header=""):
        headers = {"Authorization": header or basic(user, password)} if user or header else {}
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
        return get(connection, **headers)[0]

    with exporter(tmp_path, f"localhost:{port}", *QUICK, "--web-config", str(config), backend="procfs"):
        assert wait_for(lambda: asked("ann", "geheim") == 200)
        assert [asked(), asked("ann", "wrong"), asked("bob", "geheim"), asked("ann", "geheim")] == [401, 401, 401, 200]
        assert asked(header="Basic \xe9") == 401
        with socket.create_connection(("localhost", port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"latmon_" not in plain.recv(4096)
        assert asked("ann", "geheim") == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls_server_config: {cert_file: a, key_file: b}", "No such file"),
        ("tls_server_config: {cert_file: a}", "cert_file and key_file belong together"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher: x}", "unknown key or value 'cipher'"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: SSL3}", "min_version: 'SSL3' is not one of"),
        ("http_server_config: {}", "unknown key 'http_server_config'"),
        ("basic_auth_users: {ann: geheim}", "ann: no bcrypt hash"),
        (f"basic_auth_users: {{ann: {HASHED[:20]}}}", "ann: no bcrypt hash"),
        (f"basic_auth_users: {{ann: {HASHED[:-1]}}}", "ann: no bcrypt hash"),
        (f"basic_auth_users: {{ann: {HASHED.replace('$04$', '$99$')}}}", "ann: no bcrypt hash"),
        ("basic_auth_users: [ann]", "expected names with bcrypt hashes"),
        ("a: b: c", "web.yml:1: not valid YAML"),
        ("- x", "expected keys"),
    ],
)
def test_a_wrong_web_config_is_named_with_its_key(tmp_path, capsys, text, words):
    path = web_config(tmp_path, text)
    assert main(["exporter", "--backend", "demo", "--web-config", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert words in said


def test_root_obeys_no_web_config_of_others(tmp_path, capsys):
    path = web_config(tmp_path, "{}")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(path, 12_345, 12_345)
    assert main(["exporter", "--backend", "demo", "--web-config", str(path)]) == 3
    assert "12345" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_under_sudo_no_mistake_quotes_a_file_that_the_user_can_not_read(tmp_path, capsys, monkeypatch):
    nobody = privileges.invoker({"SUDO_UID": "65534", "SUDO_GID": "65534"}, 0)
    monkeypatch.setattr(commands, "_user", lambda: nobody)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    path = web_config(tmp_path, "root:$y$j9T$S3CRET:1::")
    path.chmod(0o600)
    assert main(["exporter", "--backend", "demo", "--web-config", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"--web-config {path}: Permission denied" in said
    assert "S3CRET" not in said


def test_an_empty_web_config_asks_for_nothing(tmp_path):
    actual_web_config = WebConfig.load(web_config(tmp_path, ""))
    assert (actual_web_config.tls, dict(actual_web_config.users)) == (None, {})


@pytest.mark.parametrize(
    ("text", "shown", "local"),
    [
        ("127.0.0.1:9750", "127.0.0.1:9750", True),
        ("[::1]:9750", "[::1]:9750", True),
        (":9750", "0.0.0.0:9750", False),
        ("db-07:80", "db-07:80", False),
        ("unix:/run/x", "unix:/run/x", True),
        ("systemd", "the socket of systemd", True),
    ],
)
def test_addresses(text, shown, local):
    assert (str(ListenAddress.parse(text)), ListenAddress.parse(text).is_local) == (shown, local)


@pytest.mark.parametrize(
    "text", ["", "9750", "x:", "x:0", "x:65536", "x:1\u0661", "::1:9750", "unix:x", "unix:/" + 120 * "x"]
)
def test_no_address(text, capsys):
    assert main(["exporter", "--listen", text]) == 2
    assert "--listen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (MODERN, True),
        ("", False),
        ("text/plain", False),
        (
            f"text/plain;q=0.9,{PROTOBUF.replace(' ', '')};q=0.1",
            False,
        ),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", False),
        ("application/vnd.google.protobuf;q=x", False),
    ],
)
def test_what_is_asked_for(accept, wanted):
    assert wants_protobuf(accept) is wanted


@pytest.mark.slow
def test_systemd_passes_its_socket(tmp_path):
    """As systemd does it: descriptor 3, LISTEN_PID and LISTEN_FDS; and it is told when metrics are there."""
    with socket.socket() as listening, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        command = latmon("exporter", "--backend", "demo", "--listen", "systemd")
        passing = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True);"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])"
        )
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                passing,
                str(listening.fileno()),
                *command,
            ],
            pass_fds=[listening.fileno()],
            env=environment(NOTIFY_SOCKET=str(tmp_path / "notify")),
            stderr=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(100) == b"READY=1"
            assert manager.recv(100) == b"WATCHDOG=1"
            assert wait_for(lambda: ask(listening.getsockname()[1])[0] == 200)
        finally:
            process.terminate()
            assert process.wait(60) == 0
