"""Simulated exporters: one process that serves /HOST/metrics of many hosts in the exporter's own protobuf.

Counts grow with the time since the start, by a fixed distribution per host and op. `python many_hosts.py PORT HOSTS
DEVICES STEP_S` serves until it is ended, with counts that grow every STEP_S seconds.
"""

import gzip
import random
import sys
import threading
import time
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from latmon.metrics.families import COUNTER, GAUGE, HISTOGRAM, PROTOBUF, Family, MetricSample, protobuf
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index

SHAPES = 10
"""Different hosts; the others are equal to one of them."""
SLOW = 3
"""The shape of the slow hosts."""


def name_of(host):
    return f"host-{host:04}"


@lru_cache(64)
def per_second(shape, op):
    """Bucket -> I/Os per second."""
    spread = random.Random(f"{shape}{op}")
    middle = {"read": 300, "write": 150}[op] * (40 if shape == SLOW else 1)
    found = {}
    for _ in range(400):
        index = bucket_index(round(spread.lognormvariate(0, 0.7) * middle))
        found[index] = found.get(index, 0) + 1
    return found


def latency(shape, op, seconds):
    counts = {index: n * seconds for index, n in per_second(shape, op).items()}
    return Histogram.of(counts, sum(bucket_bounds(index)[0] * n for index, n in counts.items()))


def families(shape, devices, seconds):
    names = [f"sd{chr(97 + at)}" for at in range(devices)]
    about = {"version": "1", "backend": "bpftrace", "tool": "bpftrace", "tier": "A", "kernel": "6.1"}
    yield Family("latmon_build_info", GAUGE, "", (MetricSample(about, 1),))
    kinds = [{"device": name, "model": "M", "driver": "sd", "controller": "0000:01:00.0"} for name in names]
    yield Family("latmon_device_info", GAUGE, "", tuple(MetricSample(kind, 1) for kind in kinds))
    metric_samples = tuple(
        MetricSample({"device": name, "op": op, "stage": "total"}, latency(shape, op, seconds))
        for name in names
        for op in ("read", "write")
    )
    yield Family("latmon_io_latency_seconds", HISTOGRAM, "", metric_samples, "seconds")
    waiting = tuple(
        MetricSample({"device": name, "where": where}, 2) for name in names for where in ("driver", "queue")
    )
    yield Family("latmon_outstanding_ios", GAUGE, "", waiting)
    for name, kind, value in (
        ("latmon_outstanding_limit", GAUGE, 32),
        ("latmon_outliers", COUNTER, seconds),
        ("latmon_kernel_completed_ios", COUNTER, 800 * seconds),
        ("latmon_probe_completed_ios", COUNTER, 800 * seconds),
    ):
        yield Family(name, kind, "", tuple(MetricSample({"device": name}, value) for name in names))
    for name in ("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_records"):
        yield Family(f"latmon_{name}", COUNTER, "", (MetricSample({}, 0),))
    yield Family("latmon_cpu_seconds", COUNTER, "", (MetricSample({}, seconds / 50),), "seconds")
    yield Family("latmon_resident_memory_bytes", GAUGE, "", (MetricSample({}, 2e8),), "bytes")
    if shape == SLOW:
        found = {"rule": "peer-outlier", "device": "sda", "severity": "warning"}
        yield Family("latmon_finding", GAUGE, "", (MetricSample(found, 1),))


class Hosts(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, hosts, devices, port=0, step_s=1):
        self.began, self.step_s = time.time(), step_s
        self.encoding = threading.Lock()
        self.encoded = lru_cache(2 * SHAPES)(self._encoded)
        self.devices = devices
        self.paths = [(f"/{host}/metrics", name_of(host)) for host in range(hosts)]
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, *_request):
        """A scrape that ran out of time is Prometheus' to report."""

    def _encoded(self, shape, seconds):
        return gzip.compress(protobuf(families(shape, self.devices, seconds)), 1)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.shutdown()
        super().__exit__(*exc)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        shape = int(self.path.split("/")[1]) % SHAPES
        with self.server.encoding:  # else each of a thousand scrapes would encode the same
            elapsed = int(time.time() - self.server.began)
            data = self.server.encoded(shape, elapsed // self.server.step_s * self.server.step_s + 1)
        self.send_response(200)
        for name, text in (("Content-Type", PROTOBUF), ("Content-Encoding", "gzip"), ("Content-Length", len(data))):
            self.send_header(name, str(text))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_words):
        pass


if __name__ == "__main__":
    port, hosts, devices, step_s = map(int, sys.argv[1:])
    Hosts(hosts, devices, port, step_s).serve_forever()
