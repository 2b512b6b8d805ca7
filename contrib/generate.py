"""Generator of the rules for Prometheus and of the dashboard for Grafana: `python contrib/generate.py` writes both.

One table of expressions serves both, so that a panel shows what an alert is about. Rules of rates look back 5 min; with
a scrape interval of 1 min that are five samples. No rule records a native histogram: Prometheus 2.42 refuses a sum of
rates whose buckets and count differ by a rounding ("histogram's observation count should be at least ...").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
RULES = HERE / "prometheus" / "latmon.rules.yml"
DASHBOARD = HERE / "grafana" / "latmon.json"
_HEAD = "# Made by contrib/generate.py: change that, or a copy of this.\n"

SLOW_S = 0.1
"""p99 of a host from which on it is slow."""
OUTLIER_SHARE = 0.01
"""Share of the I/Os above their device's threshold, which is 8 times its mean latency at least."""
TIMES = 4
"""Times the median p99 of all devices of its model, at which a device is slower than its peers."""
PEERS = 4
"""Devices of a model at least, whose median is compared."""
LEAST_IOPS = 1
"""A device with fewer I/Os per second is compared with no other."""
COVERAGE = 0.95
"""Share of the kernel's completions that the probe counted, below which an alert fires."""

_LATENCY = "latmon_io_latency_seconds"
DEVICE_IOPS = "instance_device:latmon_kernel_completed_ios:rate5m"
DEVICE_COVERAGE = "instance_device:latmon_coverage:ratio5m"
DEVICE_P99 = f"instance_device_model:{_LATENCY}:p99_5m"
MODEL_P99 = f"model:{_LATENCY}:p99_5m_median"
MODEL_DEVICES = f"model:{_LATENCY}:p99_5m_count"
HOST_IOPS = "instance:latmon_kernel_completed_ios:rate5m"
HOST_P99 = f"instance:{_LATENCY}:p99_5m"
HOST_OUTLIERS = "instance:latmon_outliers:rate5m"
_JOIN = 'on (job, instance, device) group_left (model, driver) latmon_device_info{model!=""}'
_OF_MODEL = "on (job, model, driver) group_left ()"

_RATE = f'rate({_LATENCY}{{stage="total"}}[5m])'
RECORDED: Mapping[str, str] = {
    DEVICE_IOPS: "rate(latmon_kernel_completed_ios_total[5m])",
    # NaN, which a device without I/O has, is not >= 0
    DEVICE_COVERAGE: f"rate(latmon_probe_completed_ios_total[5m]) / {DEVICE_IOPS} >= 0",
    DEVICE_P99: f"(histogram_quantile(0.99, sum without (op, stage, includes) ({_RATE})) >= 0) * {_JOIN}",
    MODEL_P99: f"quantile by (job, model, driver) (0.5, {DEVICE_P99})",
    MODEL_DEVICES: f"count by (job, model, driver) ({DEVICE_P99})",
    HOST_IOPS: f"sum without (device) ({DEVICE_IOPS})",
    HOST_P99: f"histogram_quantile(0.99, sum without (device, op, stage, includes) ({_RATE})) >= 0",
    HOST_OUTLIERS: "sum without (device) (rate(latmon_outliers_total[5m]))",
}
"""Name -> expression, in the order of evaluation."""

_LOST = ("lost_events", "map_full", "undecoded_lines")
LOST = " + ".join(f"rate(latmon_{one}_total[5m])" for one in _LOST)
_FAILED = 'latmon_failed_ios_total{op=~"read|write|flush",status!~"requeued by dm|would block"}'
# A device has no such counter before its first failure: an increase needs two values.
FAILED = f"increase({_FAILED}[5m]) > 0 or {_FAILED} unless {_FAILED} offset 5m"
TIMES_PEERS = f"{DEVICE_P99} / {_OF_MODEL} {MODEL_P99}"


def rules(interval: str = "1m", hold: str = "") -> dict[str, Any]:
    """Return the groups of rules; `hold` replaces the times for which alerts must last."""
    recorded = [{"record": name, "expr": expression} for name, expression in RECORDED.items()]
    alerts = [_alert(one, hold) for one in _ALERTS]
    return {
        "groups": [
            {"name": "latmon-recording", "interval": interval, "rules": recorded},
            {"name": "latmon-alerts", "interval": interval, "rules": alerts},
        ]
    }


_ALERTS: tuple[tuple[str, ...], ...] = (
    (
        "LatmonFinding",
        'latmon_finding{severity=~"warning|critical"} == 1',
        "2m",
        "",
        "{{ $labels.instance }}: {{ $labels.rule }} on {{ $labels.device }}",
        "docs/FINDINGS.md describes the rule. On the host, `sudo latmon` shows the evidence and the next steps.",
    ),
    (
        "LatmonFailedIOs",
        FAILED,
        "1m",
        "critical",
        "{{ $labels.instance }}: {{ $labels.op }} on {{ $labels.device }} fails ({{ $labels.status }})",
        "A program or a file system lost data, or goes without. On the host, `sudo latmon` shows the evidence.",
    ),
    (
        "LatmonHostSlow",
        f"{HOST_P99} > {SLOW_S}",
        "10m",
        "warning",
        "{{ $labels.instance }}: one I/O in a hundred takes {{ $value | humanizeDuration }} or longer",
        "",
    ),
    (
        "LatmonOutliers",
        f"{HOST_OUTLIERS} / {HOST_IOPS} > {OUTLIER_SHARE}",
        "10m",
        "warning",
        "{{ $labels.instance }}: {{ $value | humanizePercentage }} of the I/Os are above the device's threshold",
        "",
    ),
    (
        "LatmonSlowerThanPeers",
        (
            f"{TIMES_PEERS} > {TIMES} and on (job, model, driver) {MODEL_DEVICES} >= {PEERS} "
            f"and on (job, instance, device) {DEVICE_IOPS} >= {LEAST_IOPS}"
        ),
        "15m",
        "warning",
        "{{ $labels.instance }}: p99 of {{ $labels.device }} is {{ $value | humanize }} times the median of its model",
        "Model {{ $labels.model }}. Its load may differ, too: compare IOPS and I/Os in flight first.",
    ),
    (
        "LatmonDown",
        'up{job="latmon"} == 0',
        "5m",
        "warning",
        "{{ $labels.instance }}: Prometheus can't scrape latmon exporter",
        "On the host: `systemctl status latmon-exporter`.",
    ),
    (
        "LatmonCoverage",
        f"{DEVICE_COVERAGE} < {COVERAGE}",
        "10m",
        "warning",
        "{{ $labels.instance }}: latmon counted {{ $value | humanizePercentage }} of the I/Os of {{ $labels.device }}",
        "The latencies of the others are missing. `latmon doctor` checks the host.",
    ),
    (
        "LatmonLostEvents",
        f"{LOST} > 0",
        "10m",
        "warning",
        "{{ $labels.instance }}: the probe lost {{ $value | humanize }} events per second",
        "Latencies are incomplete. docs/NUMBERS.md has the meaning of each counter.",
    ),
)
"""Name, expression, time that it must last, severity, summary, description."""


def _alert(one: tuple[str, ...], hold: str) -> dict[str, Any]:
    name, expression, lasts, severity, summary, more = one
    return {
        "alert": name,
        "expr": expression,
        "for": hold or lasts,
        **({"labels": {"severity": severity}} if severity else {}),  # a finding has its own
        "annotations": {"summary": summary, **({"description": more} if more else {})},
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard, for Grafana 10 or newer, which draws native histograms as heat maps."""
    panels: list[dict[str, Any]] = []
    top = 0
    for height, row in _ROWS:
        width = 24 // len(row)
        for at, (kind, title, unit, queries) in enumerate(row):
            place = {"x": at * width, "y": top, "w": width, "h": height}
            panels.append(_panel(len(panels) + 1, kind, title, unit, queries) | {"gridPos": place})
        top += height
    return {
        "uid": "latmon",
        "title": "I/O latency (latmon)",
        "tags": ["latmon", "storage"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_SOURCE, _variable("job", "up"), _variable("instance", 'up{job="$job"}')]},
        "panels": panels,
    }


_SOURCE = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
_FROM = {"type": "prometheus", "uid": "${datasource}"}


def _variable(name: str, series: str) -> dict[str, Any]:
    query = f"label_values({series}, {name})"
    default = {"current": {"text": "latmon", "value": "latmon"}} if name == "job" else {}
    return {
        "name": name,
        "type": "query",
        "datasource": _FROM,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        **default,
    }


def _panel(number: int, kind: str, title: str, unit: str, queries: Iterable[tuple[str, str]]) -> dict[str, Any]:
    form = {"heatmap": "heatmap", "table": "table"}.get(kind, "time_series")
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _FROM,
            "expr": expression,
            "legendFormat": legend,
            "format": form,
            "instant": kind in ("table", "stat"),
            "range": kind not in ("table", "stat"),
        }
        for at, (legend, expression) in enumerate(queries)
    ]
    options = {"options": {"yAxis": {"unit": unit}, "calculate": False}} if kind == "heatmap" else {}
    defaults = {"unit": unit, "min": 0} if kind == "timeseries" else {"unit": unit}
    return {
        "id": number,
        "type": kind,
        "title": title,
        "datasource": _FROM,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
        **options,
    }


_ALL, _ONE = '{job="$job"}', '{job="$job",instance="$instance"}'
_TOTAL = f'{_LATENCY}{{job="$job",instance="$instance",stage="total"}}'
_BY_DEVICE = f"sum by (device) (rate({_TOTAL}[$__rate_interval]))"
_ROWS = (
    (
        4,
        (
            ("stat", "Hosts that are scraped", "short", (("", f"sum(up{_ALL})"),)),
            ("stat", "Findings that stand", "short", (("", f"count(latmon_finding{_ALL})"),)),
            ("stat", "Slowest host, p99", "s", (("", f"max({HOST_P99}{_ALL})"),)),
            ("stat", "Lowest coverage", "percentunit", (("", f"min({DEVICE_COVERAGE}{_ALL})"),)),
        ),
    ),
    (
        8,
        (
            ("timeseries", "p99 of the ten slowest hosts", "s", (("{{instance}}", f"topk(10, {HOST_P99}{_ALL})"),)),
            (
                "timeseries",
                "Outliers of the ten hosts with most",
                "ops",
                (("{{instance}}", f"topk(10, {HOST_OUTLIERS}{_ALL})"),),
            ),
        ),
    ),
    (
        8,
        (
            (
                "table",
                "Findings",
                "short",
                (("", f"max by (instance, device, rule, severity) (latmon_finding{_ALL})"),),
            ),
            (
                "table",
                "Devices by their p99 in times the median of their model",
                "short",
                (("", f"topk(20, {DEVICE_P99}{_ALL} / {_OF_MODEL} {MODEL_P99})"),),
            ),
        ),
    ),
    (10, (("heatmap", "Latency of all I/Os of $instance", "s", (("", f"sum(rate({_TOTAL}[$__rate_interval]))"),)),)),
    (
        8,
        (
            (
                "timeseries",
                "p50 and p99 per device of $instance",
                "s",
                (
                    ("{{device}} p50", f"histogram_quantile(0.5, {_BY_DEVICE})"),
                    ("{{device}} p99", f"histogram_quantile(0.99, {_BY_DEVICE})"),
                ),
            ),
            ("timeseries", "IOPS per device of $instance", "iops", (("{{device}}", f"histogram_count({_BY_DEVICE})"),)),
            (
                "timeseries",
                "I/Os in flight per device of $instance",
                "short",
                (("{{device}} {{where}}", f"latmon_outstanding_ios{_ONE}"),),
            ),
        ),
    ),
    (
        8,
        (
            (
                "timeseries",
                "Coverage of $instance",
                "percentunit",
                (("{{device}}", f"{DEVICE_COVERAGE}{_ONE}"),),
            ),
            (
                "timeseries",
                "Events that the probe of $instance lost",
                "ops",
                tuple((one, f"rate(latmon_{one}_total{_ONE}[$__rate_interval])") for one in _LOST),
            ),
            (
                "timeseries",
                "CPU time of latmon on $instance",
                "percentunit",
                (("", f"rate(latmon_cpu_seconds_total{_ONE}[$__rate_interval])"),),
            ),
            (
                "timeseries",
                "Memory of latmon on $instance",
                "bytes",
                (("", f"latmon_resident_memory_bytes{_ONE}"),),
            ),
        ),
    ),
)
"""Height of a row, and its panels: kind, title, unit, (legend, expression)."""


def files() -> dict[Path, str]:
    """Return the text of each generated file."""
    listed = yaml.safe_dump(rules(), sort_keys=False, width=160, allow_unicode=False)
    return {RULES: _HEAD + listed, DASHBOARD: json.dumps(dashboard(), indent=2) + "\n"}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
