"""The exporter on the real kernel, scraped by a real Prometheus: counts to the last I/O, quantiles within 4.5 %.

One exporter in the quick tests; in the slow ones three beside a recording, on two releases of Prometheus.
"""

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from http import HTTPStatus
from pathlib import Path

import generate
import pytest
from prometheus import Prometheus, free_port, program
from prometheus_client.parser import text_string_to_metric_families
from terminal import environment, latmon, wait_for
from workload import CROWDED, Capture, LoopDevice, crowded, diskstats, fio, gained

from latmon.model.frame import Series
from latmon.model.histogram import TOP, Histogram, bucket_bounds, merge
from latmon_backends.prometheus import Address, Client, PrometheusStore, Rows

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace and fio"),
]
COUNTED_TOGETHER_S = 4
"""The first three windows, of 3.1 s, may have no counters of the kernel: those were read at other times."""
LIMIT = 1.045
"""A bucket of schema 4, which is 4.4 % wide."""
APART_US = 5
"""What the probe of one process adds to the latencies that the probe of another measures: its program runs between."""
FAMILY = "latmon_io_latency_seconds"


def scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    text = response.read().decode()
    return text if response.status == HTTPStatus.OK else ""  # before the end of the first interval


def values(text, name, **labels):
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return [sample.value for sample in samples if labels.items() <= sample.labels.items()]


def bounded():
    """The words that start a command with no more capabilities than the systemd unit gives."""
    unit = Path(__file__).parents[2] / "contrib/systemd/latmon-exporter.service"
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("CapabilityBoundingSet=")]
    names = [word.removeprefix("CAP_").lower() for word in line.partition("=")[2].split()]
    words = ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set=-all,{','.join(f'+{n}' for n in names)}"]
    able = shutil.which("setpriv") and not subprocess.run([*words, "true"], check=False, capture_output=True).returncode
    return words if able else []


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """An exporter and a Prometheus beside a load whose I/Os the kernel counts; what both reported after it."""
    home = tmp_path_factory.mktemp("exporter")
    program("prometheus")
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(LoopDevice(home / "disk"))
        port = stack.enter_context(exporting(home, disk.name))
        server = stack.enter_context(Prometheus(home, f"127.0.0.1:{port}"))
        before, at = diskstats(), {"filename": disk.path, "iodepth": 4}
        fio(home, 3, {"name": "mixed", "rw": "randrw", **at})
        done = gained(before, diskstats(), disk.name)
        count = sum(one.count for one in done.values())
        name = f'latmon_kernel_completed_ios_total{{device="{disk.name}"}}'
        assert wait_for(lambda: [float(one["value"][1]) for one in server.query(name)] == [count], every=0.5)
        histograms = wait_for(lambda: server.query(f'{FAMILY}{{op="read"}}'))
        quantiles = {
            q: float(server.query(f'histogram_quantile({q}, {FAMILY}{{op="read"}})')[0]["value"][1])
            for q in (0.5, 0.9, 0.99)
        }
        yield disk.name, done, scrape(port), histograms, quantiles


@contextlib.contextmanager
def exporting(home, device):
    """An exporter of one device, from when all it counts is exact to the end of the block; its port."""
    port, said = free_port(), home / f"stderr-{device}"
    with said.open("w") as err:
        command = [*bounded(), *latmon("exporter", "--listen", f"127.0.0.1:{port}", "--device", device)]
        exporter = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=err, env=environment())
        try:
            assert wait_for(lambda: "serves /metrics" in said.read_text(), 300, every=0.2), said.read_text()
            measured_s = "latmon_measured_seconds_total"
            assert wait_for(lambda: sum(values(scrape(port), measured_s)) >= COUNTED_TOGETHER_S, every=0.5)
            yield port
        finally:
            exporter.send_signal(signal.SIGTERM)
            assert exporter.wait(60) == 0
    assert "Traceback" not in said.read_text()


def read_back(histogram):
    """Buckets of latmon from those of Prometheus, by the edges that latmon sent."""
    by_edge = {round(bucket_bounds(index)[1]): index for index in range(TOP + 1)}
    counts = Counter()
    for _, low, high, n in histogram["buckets"]:
        (inside,) = [index for edge, index in by_edge.items() if float(low) * 1e6 < edge <= float(high) * 1e6]
        counts[inside] += round(float(n))
    return Histogram.of(counts)


def test_every_read_is_counted(measured):
    device, done, text, histograms, _ = measured
    seen = values(text, f"{FAMILY}_count", device=device, op="read", stage="total")
    (_, stored) = histograms[0]["histogram"]
    assert seen == [float(stored["count"])]
    least = 0.985 - (CROWDED if crowded() else 0.05)
    assert least * done["read"].count <= seen[0] <= done["read"].count
    assert read_back(stored).count == seen[0]


def test_quantiles_of_promql_are_latmons(measured):
    *_, histograms, quantiles = measured
    own = read_back(histograms[0]["histogram"][1])
    for q, quantile in quantiles.items():
        assert 1 / LIMIT <= quantile * 1e6 / own.quantile(q) <= LIMIT, q


def test_promtool_finds_nothing_wrong(measured):
    _, _, text, *_ = measured
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LOADED_S = 20
DEPTHS = 1, 4, 16
RANKS = 0.05
"""Share of the I/Os that may be in another bucket of the recording: its probe is another one, and near the edge of a
bucket a microsecond decides. Of reads that took 26 us it was 0.03, else 0.001 at most."""


def totals(port, device):
    """Op -> I/Os of an exporter's device, as text has them."""
    text = scrape(port)
    return {op: sum(values(text, f"{FAMILY}_count", device=device, op=op, stage="total")) for op in ("read", "write")}


def settled(server, ports):
    """A time, in whole s since 1970, at which Prometheus has all I/Os of the exporters, whose devices are idle."""

    def has_all():
        stored = {
            (one["metric"]["instance"], one["metric"]["op"]): float(one["histogram"][1]["count"])
            for one in server.query(FAMILY)
        }
        return all(
            stored.get((f"127.0.0.1:{port}", op)) == n
            for device, port in ports.items()
            for op, n in totals(port, device).items()
        )

    time.sleep(2.5)  # an exporter's interval is 1 s, and so is that of the scrapes
    assert wait_for(has_all, every=0.5)
    time.sleep(2.5)
    return int(time.time()) - 1


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["", "sid"], ids=["installed", "sid"])
def test_three_exporters_a_report_and_promql_agree(suite, tmp_path):
    """The devices are idle before and after the load, so that a range query, the recording and the frames of the
    backend have the same I/Os, whenever each of them begins and ends."""
    program("prometheus", suite)
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(LoopDevice(tmp_path / f"disk-{depth}", 64 << 20)) for depth in DEPTHS]
        ports = {disk.name: stack.enter_context(exporting(tmp_path, disk.name)) for disk in disks}
        hosts = {device: f"127.0.0.1:{port}" for device, port in ports.items()}
        server = stack.enter_context(Prometheus(tmp_path, *hosts.values(), suite=suite))
        jobs = [
            {"name": disk.name, "filename": disk.path, "rw": "randrw", "iodepth": depth, "rate_iops": "300,300"}
            for disk, depth in zip(disks, DEPTHS, strict=True)
        ]
        fio(tmp_path, 1, *jobs)  # a series begins with its first I/Os, of which no range query knows
        capture = stack.enter_context(Capture(tmp_path, *(f"--device={disk.name}" for disk in disks)))
        before, begin = {name: totals(port, name) for name, port in ports.items()}, settled(server, ports)
        fio(tmp_path, LOADED_S, *jobs)
        end = settled(server, ports)
        after = {name: totals(port, name) for name, port in ports.items()}
        assert capture.stop() == 0
        reported, recorded = capture.report()["devices"], capture.frames()
        rows = Rows(tuple(hosts.values()), len(hosts))
        frames = PrometheusStore(Client(Address.parse(server.url)), rows, 1).frames(float(begin), float(end))
        for device, host in hosts.items():
            for op in ("read", "write"):
                gained = after[device][op] - before[device][op]
                histograms = [frame.histograms.get(Series(host, op, "total"), Histogram()) for frame in frames]
                assert sum(histogram.count for histogram in histograms) == gained > 1000
                again = reported[device]["ops"][op]["latency_us"]
                least = 0.985 - (CROWDED if crowded() else 0.05)
                assert least < again["count"] / gained < 1 / least
                other = merge([frame.histograms.get(Series(device, op, "total"), Histogram()) for frame in recorded])
                own = merge(histograms)
                for q in (0.5, 0.9, 0.99):
                    series = f'{FAMILY}{{instance="{host}",op="{op}"}}'
                    (answer,) = server.query(f"histogram_quantile({q}, rate({series}[{end - begin}s]))", time=end)
                    promql = float(answer["value"][1]) * 1e6
                    low, high = other.quantile(q - RANKS), other.quantile(min(q + RANKS, 0.998))
                    shown = f"{host} {op} p{q * 100:g}: {promql:.0f} us by PromQL, {own.quantile(q)} us read back"
                    print(f"{shown}, {again[f'p{q * 100:g}']} us reported")
                    assert 1 / LIMIT <= promql / own.quantile(q) <= LIMIT
                    assert low / LIMIT - APART_US <= promql <= high * LIMIT + APART_US
        for port in ports.values():
            check = [program("promtool", suite), "check", "metrics"]
            done = subprocess.run(check, input=scrape(port), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        check = [program("promtool", suite), "check", "rules", generate.RULES]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 0
