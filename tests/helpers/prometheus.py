"""A real Prometheus for tests: the one in PATH, else Debian's package unpacked beside the checkout, never installed.

An Alertmanager is only used where it is installed.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from terminal import wait_for

ROOT = Path(__file__).resolve().parents[2]
_UNPACKED = ROOT / ".cache/prometheus"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def program(name):
    """The path of `prometheus` or `promtool`; skips the test where there is none to be had."""
    if found := shutil.which(name):
        return found
    path = _UNPACKED / "usr/bin" / name
    if not path.exists() and shutil.which("apt-get"):
        _UNPACKED.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["apt-get", "-q", "download", "prometheus"], cwd=_UNPACKED, capture_output=True, check=False
        )
        for package in _UNPACKED.glob("prometheus_*.deb") if not got.returncode else ():
            subprocess.run(["dpkg", "-x", package, _UNPACKED], check=True)
            package.unlink()
    if not path.exists():
        pytest.skip(f"needs {name}: no package of it is to be had")
    return str(path)


class _Server:
    """A server with an HTTP port of its own, from when it is ready to the end of the block."""

    def __init__(self, directory, command, *, port):
        self.url = f"http://127.0.0.1:{port}"
        self._log = (directory / f"{Path(command[0]).name}.log").open("w")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL)

    def __enter__(self):
        assert wait_for(self._ready, every=0.2), Path(self._log.name).read_text()
        return self

    def __exit__(self, *_exc):
        self.process.terminate()
        self.process.wait(60)
        self._log.close()

    def _ready(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=10).status == 200
        return False


class Alertmanager(_Server):
    """A server that posts all alerts at once to the address `hook`."""

    def __init__(self, directory, hook):
        found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        if not found:
            pytest.skip("needs alertmanager")
        at_once = {"group_wait": "0s", "group_interval": "1s", "group_by": ["..."]}
        config = {
            "route": {"receiver": "hook", **at_once},
            "receivers": [{"name": "hook", "webhook_configs": [{"url": hook}]}],
        }
        (directory / "alertmanager.yml").write_text(json.dumps(config))
        port = free_port()
        words = [
            f"--config.file={directory / 'alertmanager.yml'}",
            f"--storage.path={directory / 'alerts'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        super().__init__(directory, [found, *words], port=port)


class Agent(_Server):
    """Prometheus in agent mode: it scrapes, and writes on to a server."""

    def __init__(self, directory, config):
        port = free_port()
        (directory / "agent.yml").write_text(json.dumps(config))
        words = [
            "--enable-feature=agent,native-histograms",
            f"--config.file={directory / 'agent.yml'}",
            f"--storage.agent.path={directory / 'agent'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        super().__init__(directory, [program("prometheus"), *words], port=port)


class Prometheus(_Server):
    """A server that scrapes these addresses every second."""

    def __init__(self, directory, *targets, rules="", alertmanager="", interval="1s", paths=(), receives=False):
        """`paths`: (path, label `instance`) of metrics that one target has several of; `receives`: by remote write."""
        port = free_port()
        named = [
            {"source_labels": ["__meta_path"], "target_label": "__metrics_path__"},
            {"source_labels": ["__meta_instance"], "target_label": "instance"},
        ]
        several = [
            {"targets": list(targets), "labels": {"__meta_path": path, "__meta_instance": name}} for path, name in paths
        ]
        job = {"job_name": "latmon", "static_configs": several or [{"targets": list(targets)}]}
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "scrape_configs": [{**job, "relabel_configs": named} if paths else job],
            "rule_files": [str(rules)] if rules else [],
        }
        if alertmanager:
            address = alertmanager.removeprefix("http://")
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        words = [
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=native-histograms",
            *(["--web.enable-remote-write-receiver"] if receives else []),
        ]
        super().__init__(directory, [program("prometheus"), *words], port=port)

    def query(self, text, **more):
        """The result of an instant query."""
        words = urllib.parse.urlencode({"query": text, **more})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]
