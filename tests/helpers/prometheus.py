"""A real Prometheus for tests: the one in PATH, else Debian's package unpacked beside the checkout, never installed.

That of another Debian release is unpacked in the same way; its lists of packages are read apart from the host's.

An Alertmanager is only used where it is installed.
"""

import contextlib
import getpass
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
    with socket.socket() as given_socket:
        given_socket.bind(("127.0.0.1", 0))
        return given_socket.getsockname()[1]


def program(name, suite=""):
    """The path of `prometheus` or `promtool`, of a Debian release if named; skips the test where there is none."""
    program = "" if suite else shutil.which(name)
    if program:
        return program
    home = _UNPACKED / suite
    path = home / "usr/bin" / name
    if not path.exists() and shutil.which("apt-get"):
        home.mkdir(parents=True, exist_ok=True)
        apart = _lists_of(suite, home / "apt") if suite else []
        for package in dict.fromkeys((name, "prometheus")):  # promtool has a package of its own since Debian 14
            _unpack(package, home, apart)
    if not path.exists():
        pytest.skip(f"needs {name}{f' of Debian {suite}' if suite else ''}: no package of it is to be had")
    return str(path)


def _unpack(name, home, apart):
    """Unpack a package, if there is one; `apart`: of apt-get's options."""
    subprocess.run(["apt-get", "-q", *apart, "download", name], cwd=home, capture_output=True, check=False)
    for package in home.glob(f"{name}_*.deb"):
        subprocess.run(["dpkg", "-x", package, home], check=True)
        package.unlink()


def _lists_of(suite, home):
    """apt-get's options for another release, whose lists of packages it reads first."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (home / name).mkdir(parents=True, exist_ok=True)
    sources = home / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] http://deb.debian.org/debian {suite} main\n")
    values = {
        "Dir::State": home / "state",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": getpass.getuser(),
    }
    options = [word for key, value in values.items() for word in ("-o", f"{key}={value}")]
    subprocess.run(["apt-get", "-q", *options, "update"], capture_output=True, check=False)
    return options


_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


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
        path = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        if not path:
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
        super().__init__(directory, [path, *words], port=port)


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

    def __init__(
        self, directory, *targets, rules="", alertmanager="", interval="1s", paths=(), receives=False, suite=""
    ):
        """`paths`: (path, label `instance`) of metrics that one target has several of; `receives`: by remote write;
        `suite`: the Debian release that it is of."""
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
        super().__init__(directory, [program("prometheus", suite), *words], port=port)

    def query(self, text, **more):
        """The result of an instant query."""
        words = urllib.parse.urlencode({"query": text, **more})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]
