"""The bpftrace backend: the best always-on probe that runs here, as frames beside the kernel's own counters.

Owns the choice among the variants, the tick protocol (`ready`, `tick` .. maps .. `done`, `last` .. maps), restarts, and
what makes an interval's frame. Parsing, differences, identity and the process itself are other modules'.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from latmon import __version__, host
from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.framing import Framer, Interval
from latmon.model import Flow, Frame, Health, Missing, Origin, Series
from latmon_backends import bpftrace_tiers, bpftrace_tool, sampler
from latmon_backends.bpftrace_json import (
    Decoder,
    Event,
    HelperFailed,
    Lost,
    MapPrinted,
    Printed,
    Undecoded,
)
from latmon_backends.bpftrace_tiers import Variant
from latmon_backends.bpftrace_tool import Tool
from latmon_backends.child import Child
from latmon_backends.sampler import KernelSampler, Sample

_READY_S = 30.0
"""How long a busy host may take to compile and attach."""
_ALIVE_S = 0.25
"""Up to 0.23 the ready line comes before the attaching: a refusal follows it at once."""
_RESTARTS, _WITHIN_S = 3, 60.0
_MAP_FULL = -7
_SLEPT_US = 100_000
Key = TypeVar("Key", Flow, Series)
Value = TypeVar("Value")


class _RefusedError(Exception):
    """A variant that doesn't run here, and why."""


@dataclass
class _Losses:
    """What went wrong since the frame before."""

    lost: int = 0
    map_full: int = 0
    undecoded: int = 0

    def take(self) -> _Losses:
        taken = replace(self)
        self.lost = self.map_full = self.undecoded = 0
        return taken


@dataclass(frozen=True, slots=True)
class _Tick:
    """A tick line: its number, when it was printed (CLOCK_MONOTONIC), and the kernel's counters as it was read."""

    number: int
    mono_us: int
    sample: Sample


class BpftraceBackend:
    """Frames from one bpftrace process. Times come from the kernel's stamps, never from when a line was read."""

    def __init__(
        self, options: Options, find_tool: Callable[[], Tool] = bpftrace_tool.find, only: tuple[str, ...] = ()
    ) -> None:
        """`only` names the manifests that may be tried; empty means all."""
        self._options, self._find_tool, self._only = options, find_tool, only
        self._sampler = KernelSampler(options.proc, options.sys, options.devices)
        self._decoder = Decoder()
        self._events: deque[Event] = deque()
        self._losses = _Losses()
        self._origin = Origin(backend="bpftrace", host=host.name(), kernel=host.kernel(), latmon=__version__)
        self._last: _Tick | None = None
        self._seq = 0
        self._gap = ""
        self._notice = ""
        self._slept_us = host.suspended_us()
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        self._tool = await asyncio.to_thread(self._find_tool)
        self._sampler.sample()
        refusals = await self._choose()
        manifest = self._variant.manifest
        self._origin = replace(
            self._origin,
            tool=f"bpftrace {self._tool.version}".strip(),
            tier=manifest.tier,
            interval_us=self._options.interval_us,
            start_wall=time.time(),
            start_mono_us=sampler.monotonic_us(),
            boot_id=host.boot_id(self._options.proc),
            hz=host.hz(self._options.proc),
            measured={stage: manifest.includes.get(stage, ()) for stage in _stages(self._variant)},
            absent=tuple(Missing(stage, why) for stage, why in manifest.absent.items()),
            latency_from=manifest.latency_from,
            reason=self._why_lesser(refusals),
            extra={"probe": self._variant.name, "refused": refusals},
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._child.stop()

    async def frames(self) -> AsyncIterator[Frame]:
        """One frame per tick; ends with a notice when the probe can't be kept running."""
        while True:
            event = await self._next()
            if event is None:
                if not await self._restart():
                    yield self._farewell()
                    return
            elif (frame := self._frame_of(event)) is not None:
                yield frame

    async def finish(self) -> Frame | None:
        """Ends the probe; the frame of the interval that was begun, so that the totals are those at the end."""
        self._child.end()
        closing: _Tick | None = None
        while (event := await self._next()) is not None:
            if isinstance(event, Printed) and event.text.startswith("last "):
                closing = self._tick(event.text)
            elif isinstance(event, Printed):
                continue  # a tick on the way out: its maps count, its frame is this one
            else:
                self._frame_of(event)
        return None if closing is None or self._last is None else self._close(closing)

    # Choosing a variant

    async def _choose(self) -> dict[str, str]:
        """Starts the first variant that runs; what the others said, by name."""
        refusals: dict[str, str] = {}
        interval_ms = self._options.interval_us // 1000
        for variant in bpftrace_tiers.variants(interval_ms, host.suspended_us() * 1000, self._options.sys):
            if self._only and variant.manifest.name not in self._only:
                continue
            before = next(reversed(refusals.values()), "")
            if variant.only_after is not None and not variant.only_after.search(before) and not self._only:
                continue
            try:
                await self._start(variant)
            except _RefusedError as refusal:
                refusals[variant.name] = str(refusal)
                if bpftrace_tool.is_privilege(str(refusal)):
                    raise UnavailableError(_no_privilege(str(refusal), sudo=self._tool.sudo)) from refusal
            else:
                return refusals
        why = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
        raise UnavailableError(f"bpftrace {self._tool.version} runs none of the probes here: {why}.")

    async def _start(self, variant: Variant) -> None:
        """Runs the variant until its ready line; _RefusedError when it ends before."""
        self._decoder, self._variant = Decoder(), variant
        self._events.clear()
        self._framer = Framer(variant.manifest, self._device_name, self._has_several_queues)
        self._last = None
        try:
            self._child = await Child.start(self._tool.command(variant.program()))
        except OSError as error:
            raise _RefusedError(f"the shell can't be started: {error.strerror}") from error
        try:
            await self._until_ready()
        except BaseException:
            await self._child.stop()
            raise

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_S):
                while (event := await self._next()) is not None:
                    if isinstance(event, Printed) and event.text.startswith("ready "):
                        await self._stays()
                        return
        except TimeoutError:
            raise _RefusedError(f"it was not ready within {_READY_S:.0f} s") from None
        raise _RefusedError(await self._complaint())

    async def _stays(self) -> None:
        reading = asyncio.ensure_future(self._child.read())
        done, _ = await asyncio.wait({reading}, timeout=_ALIVE_S)
        if done and not (portion := reading.result()):
            raise _RefusedError(await self._complaint())
        if done:
            self._events.extend(self._decoder.feed(portion))
        self._reading = None if done else reading

    async def _complaint(self) -> str:
        return bpftrace_tool.reason(await self._child.complaints(), await self._child.returncode())

    def _why_lesser(self, refusals: Mapping[str, str]) -> str:
        tier = self._variant.manifest.tier
        if tier == "A" or not refusals:
            return ""
        return f"tier {tier}, because tier A can't be had: {next(iter(refusals.values()))}"

    # Reading

    _reading: asyncio.Future[bytes] | None = None

    async def _next(self) -> Event | None:
        """The next event; None at the end of the output."""
        while not self._events:
            reading, self._reading = self._reading, None
            portion = await (reading or self._child.read())
            if not portion:
                self._events.extend(self._decoder.close())
                return self._events.popleft() if self._events else None
            self._events.extend(self._decoder.feed(portion))
        return self._events.popleft()

    def _frame_of(self, event: Event) -> Frame | None:
        """Takes one event in; a frame when it completes an interval."""
        match event:
            case MapPrinted(name=name):
                values = event.integers()
                self._losses.map_full += len(values) >= self._tool.map_keys
                if name.removeprefix(self._variant.manifest.name).lstrip("_") not in ("tick", "start", "flush"):
                    self._framer.printed(name, values)
            case Lost(events=events):
                self._losses.lost += events
            case HelperFailed(code=code):
                self._losses.map_full += code == _MAP_FULL
            case Undecoded():
                self._losses.undecoded += 1
            case Printed(text=text) if text.startswith("tick "):
                self._ticking = self._tick(text)
            case Printed(text=text) if text.startswith("done "):
                return self._done()
            case _:
                pass
        return None

    _ticking: _Tick | None = None

    def _tick(self, text: str) -> _Tick | None:
        words = text.split()
        if len(words) != 4 or not (words[2].isdigit() and words[3].isdigit()):  # noqa: PLR2004 - tick PROBE NUMBER NS
            self._losses.undecoded += 1
            return None
        ahead = host.suspended_us() if self._variant.manifest.clock == "boottime" else 0
        return _Tick(int(words[2]), int(words[3]) // 1000 - ahead, self._sampler.sample())

    def _done(self) -> Frame | None:
        """The end of a tick's maps.

        When the reader was stopped, queued ticks carry the maps of the moment they were printed at last: they are taken
        together into one wide interval, up to the first tick that came in time.
        """
        tick, self._ticking = self._ticking, None
        if tick is None:
            return None
        late = sampler.monotonic_us() - tick.mono_us > max(self._options.interval_us, 500_000)
        if self._last is not None and late:
            self._gap = self._gap or "reader-late"
            return None
        return self._close(tick)

    # Making frames

    def _close(self, tick: _Tick) -> Frame:
        in_order = self._last is None or tick.number == self._last.number + 1
        interval = self._framer.interval(tick.number % 4 if in_order and not self._gap else None)
        frame = self._frame(tick, interval)
        self._last, self._gap, self._notice = tick, "", ""
        self._seq += 1
        return frame

    def _frame(self, tick: _Tick, interval: Interval) -> Frame:
        now = tick.sample
        lag_us = max(0, now.mono_us - tick.mono_us)
        # Until the first tick it isn't known when the probe was attached: the kernel's counters begin at that tick.
        kernel = sampler.difference(self._last.sample, now).kernel if self._last is not None else {}
        started_us = tick.mono_us - self._options.interval_us if self._last is None else self._last.mono_us
        slept, self._slept_us = self._slept_us, host.suspended_us()
        gap = "suspended" if self._slept_us - slept > _SLEPT_US else self._gap
        return Frame(
            seq=self._seq,
            wall=now.wall - lag_us / 1e6,
            mono_us=tick.mono_us,
            dt_us=max(1, tick.mono_us - started_us),
            histograms=_selected(interval.histograms, self._is_selected),
            seen=_selected(interval.seen, self._is_selected),
            kernel=kernel,
            outstanding=now.outstanding,
            devices=self._sampler.devices if self._seq == 0 else now.devices,
            removed=now.removed,
            health=self._health(interval, now),
            gap=gap,
        )

    def _health(self, interval: Interval, now: Sample) -> Health:
        losses = self._losses.take()
        wanted = len(self._variant.manifest.hooks)
        return Health(
            probes_attached=wanted,
            probes_wanted=wanted,
            lost_events=losses.lost,
            map_full=losses.map_full,
            unmatched=interval.unmatched + interval.unnamed,
            undecoded_lines=losses.undecoded + interval.undecoded + now.undecoded,
            notice=self._notice,
        )

    def _device_name(self, number: int) -> str | None:
        device = self._sampler.block.device(number >> 20, number & 0xFFFFF)
        return None if device is None else device.name

    def _is_selected(self, name: str) -> bool:
        device = self._sampler.block.devices.get(name)
        return device is not None and self._sampler.selects(device)

    def _has_several_queues(self, name: str) -> bool:
        return sum(1 for _ in (self._options.sys / "block" / name / "mq").glob("[0-9]*")) > 1

    # Keeping it running

    async def _restart(self) -> bool:
        """After an end nobody asked for: again, at most three times a minute, with a gap to show for it."""
        why = await self._complaint()
        await self._child.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._notice = f"bpftrace ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        try:
            await self._start(self._variant)
        except _RefusedError as refusal:
            self._notice = f"bpftrace ended and could not be started again: {refusal}"
            return False
        self._gap, self._notice = "probe-restart", f"bpftrace was started again, it had ended: {why}"
        return True

    def _farewell(self) -> Frame:
        """The last frame says why there are no more."""
        now = self._sampler.sample()
        return Frame(
            seq=self._seq,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=1 if self._last is None else max(1, now.mono_us - self._last.mono_us),
            outstanding=now.outstanding,
            health=Health(probes_wanted=len(self._variant.manifest.hooks), notice=self._notice),
            gap="probe-restart",
        )


def _stages(variant: Variant) -> list[str]:
    fed = {stage for spec in variant.manifest.maps for stage in spec.stages}
    return sorted(fed)


def _selected(table: Mapping[Key, Value], wanted: Callable[[str], bool]) -> dict[Key, Value]:
    return {key: value for key, value in table.items() if wanted(key.device)}


def _no_privilege(why: str, *, sudo: bool) -> str:
    how = "run `sudo latmon`" if not sudo else "run `sudo latmon`, or allow `sudo -n bpftrace`"
    return f"bpftrace needs root ({why}): {how}."
