"""The exporter on the real kernel, scraped by a real Prometheus: counts to the last I/O, quantiles within 4.5 %."""

import http.client
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from prometheus import Prometheus, free_port, program
from prometheus_client.parser import text_string_to_metric_families
from terminal import environment, latmon, wait_for
from workload import CROWDED, LoopDevice, crowded, diskstats, fio, gained

from latmon.model.histogram import TOP, Histogram, bucket_bounds

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not all(map(shutil.which, ("bpftrace", "fio", "losetup"))), reason="needs bpftrace and fio"),
]
LIMIT = 1.045
"""A bucket of schema 4, which is 4.4 % wide."""
FAMILY = "latmon_io_latency_seconds"


def scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def values(text, name, **labels):
    families = text_string_to_metric_families(text)
    samples = [one for family in families for one in family.samples if one.name == name]
    return [one.value for one in samples if labels.items() <= one.labels.items()]


def bounded():
    """The words that start a command with no more capabilities than the systemd unit gives."""
    unit = Path(__file__).parents[2] / "contrib/systemd/latmon-exporter.service"
    (line,) = [one for one in unit.read_text().splitlines() if one.startswith("CapabilityBoundingSet=")]
    names = [one.removeprefix("CAP_").lower() for one in line.partition("=")[2].split()]
    words = ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set=-all,{','.join(f'+{n}' for n in names)}"]
    able = shutil.which("setpriv") and not subprocess.run([*words, "true"], check=False, capture_output=True).returncode
    return words if able else []


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """An exporter and a Prometheus beside a load whose I/Os the kernel counts; what both reported after it."""
    home = tmp_path_factory.mktemp("exporter")
    port, said = free_port(), home / "stderr"
    program("prometheus")
    with LoopDevice(home / "disk") as disk, said.open("w") as err:
        command = [*bounded(), *latmon("exporter", "--listen", f"127.0.0.1:{port}", "--device", disk.name)]
        exporter = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=err, env=environment())
        try:
            assert wait_for(lambda: "serves /metrics" in said.read_text(), 300), said.read_text()
            with Prometheus(home, f"127.0.0.1:{port}") as server:
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
    for q, found in quantiles.items():
        assert 1 / LIMIT <= found * 1e6 / own.quantile(q) <= LIMIT, q


def test_promtool_finds_nothing_wrong(measured):
    _, _, text, *_ = measured
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
