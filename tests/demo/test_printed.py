"""No frame of a demo holds what the scripts of its platform don't print, or what its kernel's counters don't have.

What they can is taken from the manifests, from the scripts' texts and from the lists of the readers of /proc and sysfs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from latmon.model import measurements
from latmon.model.frame import UNACCOUNTED, Completed, Flow, Frame, Outlier, Outstanding, Taskq
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, SYSFS
from latmon.model.measurements import HANDLERS, SOFTIRQS, WAKEUPS
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.handlers import HandlerRuns
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer
from latmon_backends.demo import host_window
from latmon_backends.demo.backend import INCIDENTS
from latmon_backends.demo.scenario import HostFacts
from latmon_backends.kernel import block_devices, settings

pytestmark = pytest.mark.xdist_group("demo")
FEW = 30
"""Windows, with the first drain of `emulex`."""
HOSTS = {"host": host_window.host, **{name: one.host for name, one in INCIDENTS.items()}}
KERNEL = ("system", "release", "version", "machine", "hz", "preemption", "clocksource", "cpus", "smt", "governor")
SYSFS_LIMITS = {*block_devices._QUEUE, *block_devices._SCSI, *block_devices._HOST, *block_devices._NVME_LIMIT}


def frames(name: str, windows: int) -> list[Frame]:
    if name == "host":
        return list(islice(host_window.frames(Random(1), Random(2)), windows))
    return list(islice(INCIDENTS[name].frames(Random(1)), windows))


class Printable:
    """Outputs that the scripts of a host have, by their manifests."""

    def __init__(self, host: HostFacts) -> None:
        always, *traced = host.scripts
        self.host, self.always = host, set(always.stages)
        self.traced = {
            s for manifest in traced for spec in manifest.maps if spec.role == "histogram" for s in spec.stages
        }
        self.by_total = {
            s for manifest in traced for spec in manifest.maps if spec.role == "by_total" for s in spec.stages
        }
        self.paths = {path for manifest in traced for path in (*manifest.paths, *manifest.unfollowed)}
        self.roles = {spec.role for manifest in traced for spec in manifest.maps}
        self.fields = {
            kind: {f for script in host.scripts if kind in script.records for f in script.records[kind].fields}
            for kind in ("slow", "resumed", "late", "waiting", "issue", "limit", "handler", "file")
        }
        self.texts = {manifest.name: manifest.text for manifest in traced}
        self.follows = bool(self.fields["waiting"])

    def beyond(self, frame: Frame) -> Iterator[str]:
        """Yield what a frame has in addition."""
        yield from (f"histogram {s}" for s in frame.histograms if s.stage not in self.always)
        traced = frame.traced
        yield from (f"traced {s}" for s in traced.histograms if s.stage not in self.traced)
        by_total = self.by_total | ({"total"} if self.by_total else set())
        yield from (f"by total {s}" for s in traced.by_total if s.stage not in by_total)
        for paths in (*traced.paths.values(), *traced.unfollowed.values()):
            yield from (f"path {path}" for path in paths if path not in self.paths)
        for outlier in frame.outliers:
            yield from self._of_outlier(outlier)
        yield from self._of_tables(frame)
        yield from self._of_counters(frame)

    def _of_outlier(self, outlier: Outlier) -> Iterator[str]:
        slow, late = self.fields["slow"], self.fields["late"]
        known = {f"{stage}_us" for stage in outlier.stages_us} - {"resume_us"}
        yield from (f"outlier {name}" for name in known - slow)
        values = {
            "sector": outlier.sector, "bytes": outlier.bytes, "pid": outlier.pid, "cpu_issue": outlier.cpu_issue,
            "cpu_complete": outlier.cpu_complete, "path": outlier.path or None,
        }  # fmt: skip
        yield from (f"outlier {name}" for name, value in values.items() if value is not None and name not in slow)
        if outlier.flags and not slow & {"flags", "rwbs"}:
            yield "outlier flags"
        if (outlier.outstanding_at_issue, outlier.overtaken_by) != (None, None) and not (
            self.follows and "overtaken" in slow
        ):
            yield "outlier overtaken"
        if "resume" in outlier.stages_us and not self.fields["resumed"]:
            yield "outlier resume"
        if outlier.waits and not (late and slow & {"thread"}):
            yield "outlier waits"
        if any(wait.instead for wait in outlier.waits) and "instead" not in late:
            yield "outlier wait instead"

    def _of_tables(self, frame: Frame) -> Iterator[str]:
        has = {
            "handler_run": frame[HANDLERS],
            "handler_before": [handler_runs for handler_runs in frame[HANDLERS].values() if handler_runs.before_us],
            "softirq_delay": frame[SOFTIRQS],
            "wakeup": frame[WAKEUPS],
            "wakeup_instead": [wakeups for wakeups in frame[WAKEUPS].values() if wakeups.instead],
            "wakeup_ran": [wakeups for wakeups in frame[WAKEUPS].values() if wakeups.ran_us],
            "depth_driver": [depths for depths in frame.depths.values() if depths.source == PROBE],
            "depth_issue": [depths for depths in frame.depths.values() if depths.at_issue],
            "depth_ios": [depths for depths in frame.depths.values() if depths.latency],
            "depth_since": frame.in_flight,
            "process": [issuer for issuer in frame[measurements.ISSUERS] if issuer.is_process],
            "behind": frame[measurements.BEHIND],
            "size_latency": frame[measurements.SIZES],
            "pattern": frame[measurements.PATTERNS],
            "file": frame[measurements.FILES],
        }
        yield from (role for role, table in has.items() if table and role not in self.roles)
        if frame.issues and not self.fields["issue"]:
            yield "issues"
        if frame.file_operations and not self.fields["file"]:
            yield "slow operations on files"
        if "caller" not in self.fields["handler"] and any(
            handler_runs.caller >= 0 for handler_runs in frame[HANDLERS].values()
        ):
            yield "handlers called by others"

    def _of_counters(self, frame: Frame) -> Iterator[str]:
        sun, release = self.host.is_sun, self.host.release
        health = frame.health
        yield from ("cost" for one in (health.probe_ns_per_io, health.probe_cpu_percent) if one is not None)
        if sun and (frame.cgroup_limits is not None or health.skipped is not None):
            yield "counters of Linux"
        if not sun and frame.taskqs is not None:
            yield "task queues"
        yield from (f"time of {f}" for f, completed in frame.kernel.items() if sun and completed.time_us is not None)
        ops = {"read", "write"} if sun else {"read", "write", "discard", *(["flush"] if release >= (5, 5) else [])}
        yield from (f"kernel {f}" for f in frame.kernel if f.op not in ops)
        if not sun and release < (6, 10):
            yield from (
                f"queued of {n}" for n, outstanding in frame.outstanding.items() if outstanding.queued is not None
            )
            yield from (
                f"queued of {n}" for n, depths in frame.depths.items() if depths.source == SYSFS and depths.queued
            )
        for device in frame.devices:
            yield from (f"{device.name} {field}" for field in ("controller",) if sun and device.controller)
            for limit in device.limits:
                script = self.texts.get(limit.source)
                known = limit.name in SYSFS_LIMITS | {"nr_tags", "hardware queues"} if script is None else True
                if (sun and script is None) or not known or (script and not re.search(rf"\b{limit.name}\b", script)):
                    yield f"{device.name} limit {limit.name}"


def of_settings(host: HostFacts) -> Iterator[str]:
    """Yield the settings that no reader of this platform returns."""
    drivers = {name for device in host.devices for name in settings._variants(device.driver)}
    for section, values in host.origin.settings.items():
        kind, _, name = section.partition(" ")
        known = {
            "tool": {"latmon"},
            "kernel": {key for key in values if key in KERNEL or key.startswith("boot ")},
            "module": set(values) if name in {*drivers, *settings._ALWAYS, "vmd"} else set(),
            "device": {*settings._QUEUE, *settings._DEVICE, "scheduler", "hba version_fw"},
        }.get(kind, set())
        if host.is_sun:
            read = {one for one in settings._VARIABLES if one.startswith(f"{name}_")} if kind == "module" else set()
            known = known - {"hz", "cpus"} if kind in ("tool", "kernel") else read
        yield from (f"{section} {key}" for key in values if key not in known)
    if host.is_sun and host.origin.hz is not None:
        yield "hz"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * one.endswith("-healthy")) for one in HOSTS]
)
def test_a_demo_shows_what_its_scripts_print_and_no_more(name, whole_period):
    host = HOSTS[name]()
    printable = Printable(host)
    assert list(of_settings(host)) == []
    for frame in whole_period[:FEW] if name == "host" else frames(name, FEW):
        assert list(printable.beyond(frame)) == []
        assert frame.health.undecoded_lines == 0
        assert frame.health.map_full == 0


@pytest.mark.parametrize("name", ["emulex", "serialised", "bubbles"])
def test_a_demo_of_solaris_has_settings_of_its_disks_driver(name):
    assert HOSTS[name]().origin.settings["module sd"] == {"sd_max_throttle": "256", "sd_io_time": "60"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bubbles", "qumulo", "host"])
def test_so_it_is_when_something_happens(name):
    printable = Printable(HOSTS[name]())
    assert [what for frame in frames(name, 600 if name == "bubbles" else 130) for what in printable.beyond(frame)] == []


PROCESS = Issuer("sd1", "read", "/a", "", 7, "a")
READS_OF_FILES = FileSeries("sd1", "read", "/", "zfs", "device")

SLOW = Outlier(1.0, 1, "sd1", "write", 100, {"hba": 100})
PLANTED = {
    "histogram": lambda f: replace(f, histograms={s._replace(stage="irq"): one for s, one in f.histograms.items()}),
    "outlier overtaken": lambda f: replace(f, outliers=(replace(SLOW, overtaken_by=3),)),
    "outlier irq_us": lambda f: replace(f, outliers=(replace(SLOW, stages_us={"irq": 3}),)),
    "outlier cpu_complete": lambda f: replace(f, outliers=(replace(SLOW, cpu_complete=0),)),
    "outlier flags": lambda f: replace(f, outliers=(replace(SLOW, flags=("sync",)),)),
    "outlier path": lambda f: replace(f, outliers=(replace(SLOW, path="HBA interrupt"),)),
    "handler_run": lambda f: replace(f, tables={HANDLERS: {next(iter(f.kernel)): HandlerRuns(Histogram())}}),
    "depth_ios": lambda f: replace(f, depths={"sd1": replace(f.depths["sd1"], latency={1: (1, 1)})}),
    "depth_since": lambda f: replace(f, in_flight=True),
    "process": lambda f: f.with_tables({measurements.ISSUERS: {PROCESS: IssuedIO(1, 512)}}),
    "size_latency": lambda f: f.with_tables({measurements.SIZES: {1: 1}}),
    "pattern": lambda f: f.with_tables({measurements.PATTERNS: {1: 1}}),
    "file": lambda f: f.with_tables({measurements.FILES: {READS_OF_FILES: Histogram()}}),
    "slow operations on files": lambda f: replace(f, file_operations=(SLOW,)),
    "time of": lambda f: replace(f, kernel={Flow("sd1", "read"): Completed(1, 1, 1)}),
    "cost": lambda f: replace(f, health=replace(f.health, probe_ns_per_io=560.0)),
    "sd1 limit m_notag": lambda f: replace(f, devices=(_with_limit(f),)),
}  # fmt: skip


def _with_limit(frame):
    device = next(device for device in frame.devices if device.name == "sd1")
    return replace(device, limits=(device.limits[0]._replace(name="m_notag"),))


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_found(what):
    (frame,) = frames("serialised", 1)
    printable = Printable(HOSTS["serialised"]())
    found = list(printable.beyond(PLANTED[what](frame)))
    assert [one for one in found if one.startswith(what)]
    assert UNACCOUNTED not in printable.traced
    assert not [
        *printable.beyond(
            replace(frame, outstanding={"sd1": Outstanding(1, 2)}, taskqs=(Taskq("q", 0, 1, 1, 1, 1, 1, 1),))
        )
    ]
