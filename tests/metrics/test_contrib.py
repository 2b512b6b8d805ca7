"""contrib: the unit for systemd, Prometheus' rules and Grafana's dashboard, read by the programs that they are for."""

import configparser
import json
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.request
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import generate
import many_hosts
import pytest
import yaml
from prometheus import ROOT, Agent, Alertmanager, Prometheus, free_port, program
from terminal import wait_for
from test_server import exporter

from latmon.cli import arguments, values
from latmon.metrics import listen_address
from latmon_backends.bpftrace.backend import ROOT_CACHE
from latmon_backends.prometheus import read_back

SYSTEMD = Path(generate.__file__).parent / "systemd"
UNITS = tuple(sorted(SYSTEMD.iterdir()))
PANELS = generate.dashboard()["panels"]
QUERIES = [(panel["title"], one["expr"]) for panel in PANELS for one in panel["targets"]]


def unit(name):
    config_parser = configparser.ConfigParser(strict=False, interpolation=None)
    config_parser.optionxform = str
    config_parser.read(SYSTEMD / name)
    return config_parser


@pytest.mark.parametrize("path", list(generate.files()), ids=lambda path: path.name)
def test_a_generated_file_is_what_the_generator_writes(path):
    assert path.read_text("utf-8") == generate.files()[path], "run python contrib/generate.py"


def test_the_unit_starts_a_command_line_that_exists():
    service = unit("latmon-exporter.service")
    program, *words = shlex.split(service["Service"]["ExecStart"])
    assert Path(program).name == "latmon"
    args = arguments.parse(words)
    assert (args.command, str(args.listen)) == ("exporter", "the socket of systemd")
    assert service["Unit"]["Requires"] == "latmon-exporter.socket"
    assert unit("latmon-exporter.socket")["Socket"]["ListenStream"] == listen_address.DEFAULT
    assert "latmon-exporter.socket" in Path(listen_address.__file__).read_text()
    assert int(service["Service"]["WatchdogSec"]) > values.MAX_INTERVAL_US / 1e6


def test_the_unit_of_a_watch_starts_a_command_line_that_exists(tmp_path):
    service = unit("latmon-watch.service")["Service"]
    states = f"/var/lib/{service['StateDirectory']}"  # systemd makes it before the start
    (tmp_path / "states").mkdir()
    _, *words = shlex.split(service["ExecStart"].replace(states, str(tmp_path / "states")))
    assert arguments.parse(words).command == "watch"
    assert int(service["WatchdogSec"]) > values.MAX_INTERVAL_US / 1e6
    assert "AF_INET" in service["RestrictAddressFamilies"]


@pytest.mark.parametrize("name", ["latmon-exporter.service", "latmon-watch.service"])
def test_the_units_can_keep_the_choice_of_a_probe(name):
    service = unit(name)["Service"]
    assert service["ProtectSystem"] == "strict"
    assert Path("/var/cache", service["CacheDirectory"]) == ROOT_CACHE


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    for path in UNITS:
        installed = path.read_text().replace("/usr/local/bin/latmon", shutil.which("true"))
        (tmp_path / path.name).write_text(installed)
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / path.name for path in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", [path for path in UNITS if path.suffix == ".service"], ids=lambda one: one.name)
def test_systemd_finds_the_units_hardened(path):
    """`security --offline` adds up what a service may do, from 0 to 10; without any hardening it is 9.6."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=40", path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("needs systemd 250")
    assert done.returncode == 0, done.stdout[-200:]


def test_promtool_accepts_the_rules():
    done = subprocess.run([program("promtool"), "check", "rules", generate.RULES], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


SDK = "grafana-foundation-sdk"


def unpacked_sdk(version):
    """Grafana's types of one of its releases (PyPI, Apache 2.0), as a wheel beside the checkout, never installed."""
    home = ROOT / ".cache/grafana" / version.partition("!")[2]
    if not any(home.glob("*.whl")):
        words = ["download", "-q", "--no-deps", "-d", home, f"{SDK}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", *words], check=False, capture_output=True)
    path = next(home.glob("*.whl"), None)
    return path or pytest.skip(f"needs {SDK} {version}: it is not to be had")


def lost(ours, theirs, at="dashboard"):
    """The places of ours whose values are another one, or missing, in theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [place for key, one in ours.items() for place in lost(one, theirs.get(key), f"{at}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [place for n, pair in pairs for place in lost(*pair, f"{at}[{n}]")]
    return [] if ours == theirs else [at]


def strangers(value, hint=None, at="dashboard"):
    """The places whose values are none of the words that Grafana's types list."""
    words = next((one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, Enum)), None)
    if words is not None and value is not None:
        return [] if value in {*words, *(word.value for word in words)} else [f"{at} = {value!r}"]
    if isinstance(value, list):
        return [place for n, one in enumerate(value) for place in strangers(one, at=f"{at}[{n}]")]
    hints = get_type_hints(type(value)) if hasattr(value, "__dict__") else {}
    fields = vars(value).items() if hints else ()
    return [place for key, one in fields for place in strangers(one, hints.get(key), f"{at}.{key}")]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1769699998!10.1.0", "1769699379!11.6.0"])
def test_grafanas_own_types_take_the_dashboard(version, monkeypatch):
    """Each field is known to the types of the panel, the query and the variable that it is in, and each word is."""
    monkeypatch.syspath_prepend(unpacked_sdk(version))
    try:
        import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
        types = import_module("grafana_foundation_sdk.models.dashboard")
        encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder()

        def taken(ours):
            dashboard = types.Dashboard.from_json(ours)
            return lost(ours, json.loads(encoder.encode(dashboard))) + strangers(dashboard)

        assert taken(generate.dashboard()) == []
        wrong = generate.dashboard()
        wrong["panels"][0]["targets"][0] |= {"expresion": "up", "format": "histogram"}
        wrong["panels"][0]["tittle"] = "x"
        first = "dashboard.panels[0]"
        unknown = [f"{first}.targets[0].expresion", f"{first}.tittle"]
        assert taken(wrong) == [*unknown, f"{first}.targets[0].format_val = 'histogram'"]
    finally:
        for name in [module for module in sys.modules if module.startswith("grafana_foundation_sdk")]:
            del sys.modules[name]


def series(name, values, **labels):
    inside = ",".join(f'{key}="{text}"' for key, text in {"job": "latmon", **labels}.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def expected(name, labels, summary, *, more="", at="30m"):
    annotations = {"summary": summary} | ({"description": more} if more else {})
    one = {"exp_labels": {"job": "latmon", "severity": "warning", **labels}, "exp_annotations": annotations}
    return {"eval_time": at, "alertname": name, "exp_alerts": [one]}


def fires():
    """Per alert a host that it fires for; and hosts for which it doesn't."""
    disk = {"device": "sda", "driver": "sd", "model": "M"}
    p99, iops = generate.DEVICE_P99, generate.DEVICE_IOPS
    peers = [series(p99, "0.002x60", instance=f"h{n}", **disk) for n in range(40)]
    yield (
        [
            *peers,
            series(p99, "0.02x60", instance="odd", **disk),
            series(iops, "50x60", instance="odd", device="sda"),
            series(p99, "0.02x60", instance="idle", **disk),
            series(iops, "0.5x60", instance="idle", device="sda"),
            series(p99, "0.02x60", instance="own", **disk | {"model": "N"}),
            series(iops, "50x60", instance="own", device="sda"),
        ],
        expected(
            "LatmonSlowerThanPeers",
            {"instance": "odd", **disk},
            "odd: p99 of sda is 10 times the median of its model",
            more="Model M. Its load may differ, too: compare IOPS and I/Os in flight first.",
        ),
    )
    yield (
        [series(generate.HOST_P99, "0.25x60", instance="a"), series(generate.HOST_P99, "0.05x60", instance="b")],
        expected("LatmonHostSlow", {"instance": "a"}, "a: one I/O in a hundred takes 250ms or longer"),
    )
    yield (
        [
            *(series(generate.HOST_OUTLIERS, f"{n}x60", instance=name) for name, n in (("a", 5), ("b", 0.5))),
            *(series(generate.HOST_IOPS, "100x60", instance=name) for name in ("a", "b")),
        ],
        expected("LatmonOutliers", {"instance": "a"}, "a: 5% of the I/Os are above the device's threshold"),
    )
    yield (
        [series("up", "0x60", instance="a"), series("up", "1x60", instance="b")],
        expected(
            "LatmonDown",
            {"instance": "a"},
            "a: Prometheus can't scrape latmon exporter",
            more="On the host: `systemctl status latmon-exporter`.",
        ),
    )
    kernel, probe = (f"latmon_{one}_completed_ios_total" for one in ("kernel", "probe"))
    yield (  # after ten good hours half an hour with half of the I/Os, which are 98 % of all
        [
            *(series(kernel, "0+60x640", instance=name, device="sda") for name in ("a", "b")),
            series(probe, "0+60x600 36030+30x40", instance="a", device="sda"),
            series(probe, "0+60x640", instance="b", device="sda"),
        ],
        expected(
            "LatmonCoverage",
            {"instance": "a", "device": "sda"},
            "a: latmon counted 50% of the I/Os of sda",
            more="The latencies of the others are missing. `latmon doctor` checks the host.",
            at="630m",
        ),
    )
    lost = [f"latmon_{one}_total" for one in ("lost_events", "map_full", "undecoded_lines")]
    yield (
        [
            series(lost[0], "0+60x60", instance="a"),
            *(series(name, "7x60", instance="a") for name in lost[1:]),
            *(series(name, "7x60", instance="b") for name in lost),
        ],
        expected(
            "LatmonLostEvents",
            {"instance": "a"},
            "a: the probe lost 1 events per second",
            more="Latencies are incomplete. docs/NUMBERS.md has the meaning of each counter.",
        ),
    )
    failed, io = "latmon_failed_ios_total", {"device": "sda", "op": "read", "status": "time-out"}
    for growth, at in (("0+3x60", "30m"), ("_x28 1+0x30", "30m")):  # growing; there since two minutes ago
        yield (
            [
                series(failed, growth, instance="a", **io),
                series(failed, "7x60", instance="b", **io),
                series(failed, growth, instance="c", **io | {"status": "requeued by dm"}),
                series(failed, growth, instance="d", **io | {"op": "discard"}),
            ],
            expected(
                "LatmonFailedIOs",
                {"instance": "a", "severity": "critical", **io},
                "a: read on sda fails (time-out)",
                more="A program or a file system lost data, or goes without. On the host, `sudo latmon` shows the "
                "evidence.",
                at=at,
            ),
        )
    found = {"rule": "starved-io", "device": "sda"}
    yield (
        [
            series("latmon_finding", "1x60", instance="a", **found, severity="warning"),
            series("latmon_finding", "1x60", instance="b", **found, severity="notice"),
        ],
        expected(
            "LatmonFinding",
            {"instance": "a", **found},
            "a: starved-io on sda",
            more="docs/FINDINGS.md describes the rule. On the host, `sudo latmon` shows the evidence and the next "
            "steps.",
        ),
    )


def test_each_alert_fires_for_its_host_alone(tmp_path):
    cases = list(fires())
    named = {rule["alert"] for rule in generate.rules()["groups"][1]["rules"]}
    assert {one["alertname"] for _, one in cases} == named
    tests = [{"interval": "1m", "input_series": given, "alert_rule_test": [one]} for given, one in cases]
    path = tmp_path / "tests.yml"
    path.write_text(json.dumps({"rule_files": [str(generate.RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([program("promtool"), "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.alerts += json.loads(data)["alerts"]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words):
        pass


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A demo's exporter, a Prometheus with the rules of each second, an Alertmanager; the server and the alerts."""
    home = tmp_path_factory.mktemp("contrib")
    program("prometheus")
    rules = home / "rules.yml"
    rules.write_text(yaml.safe_dump(generate.rules(interval="1s", hold="1s")))
    hook = HTTPServer(("127.0.0.1", 0), _Hook)
    hook.alerts = []
    threading.Thread(target=hook.serve_forever, args=(0.02,), daemon=True).start()
    port = free_port()
    with (
        Alertmanager(home, f"http://127.0.0.1:{hook.server_port}/") as alerts,
        exporter(home, f"127.0.0.1:{port}"),
        Prometheus(home, f"127.0.0.1:{port}", rules=rules, alertmanager=alerts.url) as prometheus,
    ):
        yield prometheus, hook.alerts
    hook.shutdown()


@pytest.mark.slow
def test_a_finding_arrives_at_the_end_of_the_alerts_path(watched):
    _, alerts = watched
    assert wait_for(lambda: [alert for alert in alerts if alert["labels"]["alertname"] == "LatmonFinding"], every=0.2)
    first = next(alert for alert in alerts if alert["labels"]["alertname"] == "LatmonFinding")
    assert first["status"] == "firing"
    assert first["labels"]["severity"] in ("warning", "critical")
    assert first["annotations"]["summary"].endswith(f"{first['labels']['rule']} on {first['labels']['device']}")


@pytest.mark.slow
@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_panel_has_data(watched, title, query):
    server, _ = watched
    (host,) = wait_for(lambda: server.query('up{job="latmon"} == 1'), every=0.2)
    for name, text in {"job": "latmon", "instance": host["metric"]["instance"], "__rate_interval": "10s"}.items():
        query = query.replace(f"${name}", text)
    assert wait_for(lambda: server.query(query), every=0.2), title


@pytest.mark.slow
def test_each_recorded_name_has_data(watched):
    server, _ = watched
    for name in generate.RECORDED:
        assert wait_for(lambda name=name: server.query(name), every=0.2), name
    with urllib.request.urlopen(f"{server.url}/api/v1/rules", timeout=60) as answer:
        groups = json.load(answer)["data"]["groups"]
    assert {rule["name"]: rule.get("lastError", "") for group in groups for rule in group["rules"]} == dict.fromkeys(
        (*generate.RECORDED, *(rule["alert"] for rule in generate.rules()["groups"][1]["rules"])), ""
    )


def test_each_panel_has_a_title_and_a_unit_and_a_place():
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert all(
            target["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for target in panel["targets"]
        )


@pytest.mark.slow
def test_an_agent_sends_native_histograms_on_with_their_exact_counts(tmp_path):
    """The configuration of contrib, with other addresses."""
    config = yaml.safe_load((Path(generate.__file__).parent / "prometheus/agent.yml").read_text())
    (job,), (write,) = config["scrape_configs"], config["remote_write"]
    assert job["static_configs"] == [{"targets": [listen_address.DEFAULT]}]
    with many_hosts.Hosts(1, 1) as host, Prometheus(tmp_path, receives=True) as store:
        job |= {"metrics_path": "/0/metrics", "scrape_interval": "1s", "scrape_timeout": "1s"}
        job["static_configs"] = [{"targets": [f"127.0.0.1:{host.server_port}"]}]
        write["url"] = f"{store.url}/api/v1/write"
        series = 'latmon_io_latency_seconds{op="read"}'
        with Agent(tmp_path, config):
            wait = wait_for(lambda: store.query(series), 120, every=0.5)
    (one,) = wait
    stored = read_back(one["histogram"][1])
    expected = many_hosts.per_second(0, "read")
    (seconds,) = {n / expected[index] for index, n in stored.buckets}
    assert stored.buckets == many_hosts.latency(0, "read", int(seconds)).buckets
