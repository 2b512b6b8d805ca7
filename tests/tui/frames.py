"""A small deterministic host for the TUI's tests: any number of equal disks, one of them odd if asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from random import Random
from types import MappingProxyType
from typing import Self

from latmon.errors import UnavailableError
from latmon.histogram import Histogram
from latmon.model import Completed, Device, Flow, Frame, Health, Missing, Origin, Outstanding, Series

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
    return frames


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
        for i, one in enumerate(self._frames):
            yield one
            if self._pace and i >= 60:
                await asyncio.sleep(self._pace)
        if self._stay:
            await asyncio.Event().wait()
