"""Cost of many hosts: `./bootstrap python tests/bench/hosts.py HOSTS DEVICES INTERVAL_S WARM_S`, without root.

Simulated exporters (tests/helpers/many_hosts.py), a real Prometheus with the rules, latmon's screen on a terminal. It
prints samples and series per host, memory and CPU of Prometheus, and the times from the command to the first host and
from Enter to the first device.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in (".", "backends", "tests/helpers", "contrib")]

import generate  # noqa: E402
import psutil  # noqa: E402
import yaml  # noqa: E402
from many_hosts import name_of  # noqa: E402
from prometheus import Prometheus, free_port  # noqa: E402
from terminal import Terminal, latmon, wait_for  # noqa: E402

SLOW, ROUNDS = name_of(3)[:5].encode(), 3


def main() -> None:
    hosts, devices, interval, warm = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="latmon-hosts-") as scratch:
        home, port = Path(scratch), free_port()
        rules = home / "rules.yml"
        rules.write_text(yaml.safe_dump(generate.rules(interval=f"{interval}s")))
        paths = [(f"/{host}/metrics", name_of(host)) for host in range(hosts)]
        simulated = subprocess.Popen(
            [sys.executable, ROOT / "tests/helpers/many_hosts.py", *map(str, (port, hosts, devices, interval))]
        )
        try:
            target = f"127.0.0.1:{port}"
            with Prometheus(home, target, rules=rules, interval=f"{interval}s", paths=paths) as server:
                time.sleep(warm)
                _cost(server, hosts, interval)
                for _ in range(ROUNDS):
                    _screen(home, server.url)
        finally:
            simulated.terminate()
            simulated.wait()


def _number(server: Prometheus, query: str) -> float:
    found = server.query(query)
    return float(found[0]["value"][1]) if found else float("nan")


def _cost(server: Prometheus, hosts: int, interval: int) -> None:
    """Print the cost of one more interval."""
    process = psutil.Process(server.process.pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(2 * interval)
    after, took = process.cpu_times(), time.monotonic() - began
    cpu_s = (after.user + after.system - before.user - before.system) / took
    up, samples = _number(server, "sum(up)"), _number(server, "avg(scrape_samples_scraped)")
    series = _number(server, 'count({job="latmon"})')
    print(f"{hosts} hosts, {up:.0f} up; every {interval} s; load {psutil.getloadavg()[0]:.1f}")
    print(f"samples per scrape {samples:.0f}; series {series:.0f}, per host {series / hosts:.0f}")
    per_scrape = f"{cpu_s * interval / hosts * 1e3:.2f} ms per scrape"
    print(f"Prometheus: {process.memory_info().rss / 1e6:.0f} MB, {cpu_s:.3f} CPUs, {per_scrape} with the rules")
    found = server.query("sum(scrape_duration_seconds)")
    print(f"sum of scrape durations {float(found[0]['value'][1]):.2f} s", flush=True)


def _screen(home: Path, url: str) -> None:
    began = time.monotonic()
    with Terminal(latmon("--backend", "prometheus", "--url", url), home) as terminal:
        _share_priority(terminal.leader.pid)
        assert wait_for(lambda: SLOW in terminal.output), terminal.output
        first = time.monotonic() - began
        time.sleep(1.5)
        before, began = len(terminal.output), time.monotonic()
        terminal.type(b"\r")
        # the findings name sda, no other device
        assert wait_for(lambda: b"sdb" in terminal.output[before:]), terminal.output
        print(f"first screen {first:.2f} s; devices after Enter {time.monotonic() - began:.2f} s", flush=True)
        terminal.type(b"q")
        terminal.left(5)


def _share_priority(pid: int) -> None:
    """Give a session the nice value of this one (autogroups, sched(7)): on a crowded host the bench may have a better
    one, as by `setsid sh -c 'echo -12 >/proc/self/autogroup; exec ./bootstrap python tests/bench/hosts.py ...'`."""
    with contextlib.suppress(OSError, IndexError):  # no autogroups, or no right to it
        nice = Path("/proc/self/autogroup").read_text().split()[2]
        Path(f"/proc/{pid}/autogroup").write_text(nice)


if __name__ == "__main__":
    main()
