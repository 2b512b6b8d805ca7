"""A small deterministic host for the TUI's tests: any number of equal disks, one of them odd if asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from random import Random
from types import MappingProxyType
from typing import Any, Self

from traced import HANDLERS, softirqs, together, traced, wakeups

from latmon.model import measurements
from latmon.model.frame import (
    UNACCOUNTED,
    Completed,
    Device,
    Flow,
    Frame,
    Health,
    Missing,
    Origin,
    Outlier,
    Outstanding,
    Series,
    Traced,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.model.measurements.wakeups import by_thread
from latmon.recording.codec import encode_frame, to_bytes
from latmon.support.errors import UnavailableError

_HOSTS = 8
"""Hosts whose frames are kept for the next test that asks for the same; they are equal each time, and frozen."""
SECOND = 1_000_000
START_WALL = 1_767_582_000.0
START_MONO = 86_400 * SECOND

ORIGIN = Origin(
    backend="bpftrace",
    host="db-07",
    kernel="6.12.107-amd64",
    latmon="0.1.0",
    tool="bpftrace 0.23.2",
    tier="A",
    measured=MappingProxyType({"queue": ("requeue",), "hba": ("irq", "softirq", "completion"), "total": ()}),
    absent=(Missing("irq", "measured only with --stages all"),),
    latency_from="queued",
    hz=250,
)
PROCFS = Origin(
    backend="procfs",
    host="db-07",
    kernel="6.12.107-amd64",
    latmon="0.1.0",
    absent=(Missing("total", "the kernel counts I/Os and their summed time only"),),
    reason="bpftrace isn't installed: apt-get install bpftrace",
)


def disks(n: int) -> tuple[Device, ...]:
    return tuple(
        Device(f"nvme{i}n1", 259, i, driver="nvme", controller=f"0000:{i:02x}:00.0", model="SSD 1920G", serial=f"S{i}")
        for i in range(n)
    )


def frame(
    number: int,
    histograms: dict[Series, Histogram] | None = None,
    *,
    devices: tuple[Device, ...] = (),
    outstanding: dict[str, Outstanding] | None = None,
    health: Health | None = None,
    gap: str = "",
    late_us: int = 0,
    removed: tuple[str, ...] = (),
) -> Frame:
    """Second `number` of the test host, counted by the kernel as the probe saw it."""
    given = histograms or {}
    seen = {
        Flow(s.device, s.op): Completed(h.count, h.count * 8192, h.sum) for s, h in given.items() if s.stage == "total"
    }
    return Frame(
        seq=number,
        wall=START_WALL + number,
        mono_us=START_MONO + number * SECOND + late_us,
        dt_us=SECOND,
        histograms=given,
        seen=seen,
        kernel=seen,
        outstanding=outstanding or {},
        devices=devices,
        removed=removed,
        health=health or Health(probes_attached=3, probes_wanted=3, self_cpu_percent=1.8),
        gap=gap,
    )


def host(n: int, seconds: int, *, odd: str = "", seed: int = 1, ios: int = 200) -> list[Frame]:
    """`seconds` frames of `n` equal disks; `odd` gets three I/Os of 80 to 400 ms each second."""
    return list(_host(n, seconds, odd, seed, ios))


@lru_cache(_HOSTS)
def _host(n: int, seconds: int, odd: str, seed: int, ios: int) -> tuple[Frame, ...]:
    rng = Random(seed)
    everyone = disks(n)
    frames = []
    for second in range(1, seconds + 1):
        histograms = {}
        for device in everyone:
            for op, share in (("read", 0.6), ("write", 0.4)):
                values = [int(rng.lognormvariate(4.6, 0.5)) + 20 for _ in range(int(ios * share))]
                if device.name == odd and op == "write":
                    values += [rng.randrange(80_000, 400_000) for _ in range(3)]
                histograms[Series(device.name, op, "total")] = Histogram.record(values)
                histograms[Series(device.name, op, "hba")] = Histogram.record(values)
        busy = {d.name: Outstanding(rng.randrange(8), rng.randrange(3)) for d in everyone}
        frames.append(frame(second, histograms, devices=everyone if second == 1 else (), outstanding=busy))
    return tuple(frames)


class Lazy(Sequence[Frame]):
    """Frames that are made when a test reads them: each worker imports all modules of tests, and runs few of them."""

    def __init__(self, make: Callable[..., list[Frame]], *args: int, **options: int) -> None:
        self._make, self._args, self._options = make, args, options

    @cached_property
    def _frames(self) -> list[Frame]:
        return self._make(*self._args, **self._options)

    def __getitem__(self, at: Any) -> Any:
        return self._frames[at]

    def __len__(self) -> int:
        return len(self._frames)


_LINES: dict[int, tuple[Frame, bytes]] = {}
_MOST_LINES = 1000


def line_of(frame: Frame) -> bytes:
    """Return a frame's line in a recording, as a collector sends it: a scene without it encodes each frame again."""
    found = _LINES.get(id(frame))
    if found is None:
        if len(_LINES) >= _MOST_LINES:
            _LINES.clear()
        found = _LINES[id(frame)] = frame, to_bytes(encode_frame(frame))  # the frame too: its id stays its own
    return found[1]


class Source:
    """A backend that yields given frames at once, or as a test releases them; then ends, or stays open."""

    def __init__(
        self,
        frames: Iterable[Frame],
        *,
        origin: Origin = ORIGIN,
        stay: bool = True,
        pace: float = 0.0,
        refuse: str = "",
    ) -> None:
        self.origin = origin
        self.line: bytes | None = None
        self.closed = False
        self._frames = list(frames)
        self._stay = stay
        self._pace = pace
        self._refuse = refuse

    async def __aenter__(self) -> Self:
        if self._refuse:
            raise UnavailableError(self._refuse)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.closed = True

    async def frames(self) -> AsyncIterator[Frame]:
        for i, frame in enumerate(self._frames):
            self.line = line_of(frame)
            yield frame
            if self._pace and i >= 60:
                await asyncio.sleep(self._pace)
        if self._stay:
            await asyncio.Event().wait()


ODD = "nvme5n1"
"""The device whose slow I/Os wait for their softirq in `deep_host`."""


def on_demand_host(n: int, seconds: int, *, seed: int = 1, ios: int = 60) -> list[Frame]:
    """`host`, with three outliers a second of one disk and all traced values: stages, handlers, softirqs, wake-ups."""
    return list(_on_demand_host(n, seconds, seed, ios))


@lru_cache(_HOSTS)
def _on_demand_host(n: int, seconds: int, seed: int, ios: int) -> tuple[Frame, ...]:
    rng = Random(seed)
    return tuple(_requested(frame, rng, n) for frame in host(n, seconds, seed=seed, ios=ios))


def _requested(frame: Frame, rng: Random, n: int) -> Frame:
    outliers = tuple(sorted((_slow(frame, rng, number) for number in range(3)), key=lambda o: o.mono_us))
    traces = [_trace(f"nvme{i}n1", rng, outliers if f"nvme{i}n1" == ODD else ()) for i in range(n)]
    writes = Series(ODD, "write", "total")
    with_slow = merge([frame.histograms[writes], Histogram.record([o.total_us for o in outliers])])
    return replace(
        frame,
        histograms={**frame.histograms, writes: with_slow},
        outliers=outliers,
        thresholds_us=MappingProxyType({f"nvme{i}n1": 1000 for i in range(n)}),
        traced=together(*traces),
        health=replace(frame.health, suppressed=1, probe_cpu_percent=1.2),
        tables={
            **frame.tables,
            measurements.ABOVE: {Flow(ODD, "write"): 4},
            measurements.HANDLERS: HANDLERS,
            measurements.SOFTIRQS: softirqs(),
            measurements.WAKEUPS: by_thread(wakeups()),
            measurements.ISSUERS: _issuers(with_slow, n),
        },
    )


CONTAINER = f"/system.slice/docker-{'3f2a91c0' * 8}.scope"


def _issuers(slow: Histogram, n: int) -> dict[Issuer, IssuedIO]:
    """The writes of the odd disk are a container's, the reads of each disk a service's and, a few, of no cgroup."""
    issuers = {Issuer(ODD, "write", CONTAINER, "web-1"): IssuedIO(slow.count, 65_536 * slow.count, slow)}
    few, many = Histogram.record((90, 95)), Histogram.record((80, 85, 90, 120, 400))
    for device in (f"nvme{i}n1" for i in range(n)):
        issuers[Issuer(device, "read", "/system.slice/postgresql.service")] = IssuedIO(5, 20_480, many)
        issuers[Issuer(device, "read", OTHERS)] = IssuedIO(2, 8192, few)
    return issuers


def _trace(name: str, rng: Random, slow: tuple[Outlier, ...]) -> Traced:
    ios = [
        {"queue": rng.randrange(1, 5), "hba": int(rng.lognormvariate(4.5, 0.4)), "irq": 4, UNACCOUNTED: 1}
        for _ in range(40)
    ]
    ios += [{**o.stages_us, UNACCOUNTED: o.unaccounted_us} for o in slow]
    paths = {name: {"BLOCK softirq": len(ios)} if slow else {"hard interrupt": len(ios)}}
    return traced(ios, name, paths=paths, unfollowed={name: {"polled": 1}} if slow else {}, one_in=1)


def _slow(frame: Frame, rng: Random, number: int) -> Outlier:
    took, begun_us = rng.randrange(80_000, 400_000), frame.mono_us - frame.dt_us + rng.randrange(590_000)
    stages = {"queue": 3, "hba": 85, "irq": 6, "softirq": took - 96}
    return Outlier(
        wall=frame.wall - (frame.mono_us - begun_us) / 1e6,
        mono_us=begun_us,
        device=ODD,
        op="write",
        total_us=took,
        stages_us=MappingProxyType(stages),
        unaccounted_us=2,
        flags=("sync",),
        sector=81_920_448 + 8 * number,
        bytes=8192,
        pid=4211,
        comm="ora_lgwr",
        cpu_issue=3,
        cpu_complete=2,
        outstanding_at_issue=number,
        overtaken_by=12,
        path="BLOCK softirq",
    )


class Commands:
    """The session of a live capture that keeps the user's commands."""

    def __init__(self):
        self.sent = []

    def of(self, name):
        """Return the arguments of a command, call by call."""
        return [value for one, value in self.sent if one == name]

    def toggle_recording(self):
        self.sent.append(("toggle_recording", None))

    def set_stages(self, mode):
        self.sent.append(("set_stages", mode))

    def request_tracing(self, devices, *, files=False):
        self.sent.append(("request_tracing", (devices, files)))

    def mark(self, text, span=None):  # noqa: ARG002 - as of a session
        self.sent.append(("mark", text))

    def read_settings(self):
        self.sent.append(("read_settings", None))
