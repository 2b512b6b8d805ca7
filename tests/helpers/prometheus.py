"""A real Prometheus for tests: the one in PATH, else Debian's package unpacked beside the checkout, never installed."""

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


class Prometheus:
    """A server that scrapes these addresses every second."""

    def __init__(self, directory, *targets, rules=""):
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "latmon", "static_configs": [{"targets": list(targets)}]}],
            "rule_files": [str(rules)] if rules else [],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self._log = (directory / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--enable-feature=native-histograms",
            ],
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
        )

    def __enter__(self):
        assert wait_for(self._ready, every=0.2), Path(self._log.name).read_text()
        return self

    def __exit__(self, *_exc):
        self._process.terminate()
        self._process.wait(60)
        self._log.close()

    def _ready(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=10).status == 200
        return False

    def query(self, text, **more):
        """The result of an instant query."""
        words = urllib.parse.urlencode({"query": text, **more})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]
