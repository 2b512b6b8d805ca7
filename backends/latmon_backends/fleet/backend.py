"""The fleet backend: one frame per interval of all hosts, with the state of those that fail as the notice.

The interval is this host's own. A frame is made a part of an interval after its end, so that those of the hosts have
arrived; a host's devices leave the frame when it has sent none for some seconds, and return with it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Self

from latmon import __version__
from latmon.capture.backend import HostPart, Options
from latmon.model.devices import host_and_device, of_devices
from latmon.model.frame import Frame, Origin, Traced
from latmon.model.table import Meaning, Tables
from latmon.support.errors import UnavailableError
from latmon.support.text import clean
from latmon_backends.fleet.host import Host, Probes
from latmon_backends.fleet.merge import (
    MAX_TEXT,
    HostFrame,
    merged_frame,
    merged_origin,
    named,
    without_counts,
)
from latmon_backends.fleet.remote import labels

OPENING_S = 12.0
"""Time for the first connections; ssh gives up after 10 s. Hosts that take longer appear when they answer."""
COMPILING_S = 30.0
"""Time for the probes of hosts that answered."""
OTHERS_S = 3.0
"""Time that hosts with frames wait for the others on a screen; they appear when they are ready."""
_LOOK_S = 0.05
STAGGER_S = 0.05
"""Pause between two connections at the start: each costs an ssh client a key exchange."""
_DELAY, _LATEST, _SLACK = 0.35, 0.8, 0.2
"""Shares of an interval: from its end to its frame, the same where a host's is late, and around its end where a frame
may count for the next one."""
SSH = ("ssh",)
_MOST_STATES, _MOST_NEWS = 4, 32
_TURN_US = 3_000_000
"""A screen has two lines for a frame's notice: each state and each remark comes first for so long, in its turn."""


class FleetBackend:
    """Frames of several hosts; a `latmon.capture.backend.Backend` that traces on demand."""

    def __init__(
        self,
        options: Options,
        hosts: Sequence[str],
        client: Sequence[str] = SSH,
        probes: Probes | None = None,
        *,
        patient: bool = True,
        patience_s: float | None = None,
        waiting: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`hosts`: names as ssh takes them; `client`: the words that start ssh; `probes`: of hosts without latmon.

        `patient`: begin with all hosts that can be measured; else with those that have frames OTHERS_S after the first.
        `patience_s`: begin after this time at the latest. `waiting` gets the states of hosts that are waited for.
        """
        self._patient, self._patience_s, self._waiting = patient, patience_s, waiting
        self._options = replace(options, devices=())
        self._globs = options.devices
        named_hosts = enumerate(labels(hosts).items())
        self._hosts = [
            Host(name, label, self._options, client, number=at, probes=probes) for at, (name, label) in named_hosts
        ]
        self._running: list[asyncio.Task[None]] = []
        self._shown: dict[str, tuple[str, ...]] = {}
        """Label -> devices that the frames have now."""
        self._latest: dict[str, HostFrame] = {}
        self._origin = Origin(backend="fleet", host="", kernel="", latmon=__version__)
        self._news: deque[str] = deque(maxlen=_MOST_NEWS)
        """Remarks that have not had their turn, and since when the first one has it."""
        self._turn_us = 0
        self._seq = 0
        self._end_us = 0

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        """Wait for the first connections. UnavailableError where no host can be measured."""
        self._running = [asyncio.create_task(_delayed(host, at * STAGGER_S)) for at, host in enumerate(self._hosts)]
        try:
            await self._settled()
            self._require_one()
        except BaseException:
            await self.__aexit__()
            raise
        self._end_us = time.monotonic_ns() // 1000
        known = {host.label: host.origin for host in self._hosts if host.origin is not None}
        begun = time.time(), self._end_us
        origin = merged_origin(known, len(self._hosts), self._options.interval_us, begun)
        if any(host.origin is None and not host.reason for host in self._hosts):
            origin = _with_latencies(origin)
        self._origin = replace(origin, extra=self._options.fixed)
        return self

    async def _settled(self) -> None:
        """Wait until each host has its first frame or has failed, as long as that may take.

        On a screen not longer than OTHERS_S after the first one.
        """
        begun, first = time.monotonic(), math.inf
        while True:
            now = time.monotonic()
            open_ones = [host for host in self._hosts if not host.is_settled]
            patience_s = self._patience_s
            if patience_s is None:
                patience_s = COMPILING_S if any(open_one.has_answered for open_one in open_ones) else OPENING_S
            if not self._patient and any(host.is_settled and host.is_shown for host in self._hosts):
                first = min(first, now)
            if not open_ones or now - begun > patience_s or now - first > OTHERS_S:
                self._waiting(())
                return
            self._waiting([open_one.state for open_one in open_ones])
            await asyncio.sleep(_LOOK_S)

    def _require_one(self) -> None:
        if all(host.reason for host in self._hosts):
            raise UnavailableError(f"no host can be measured: {'; '.join(host.state for host in self._hosts)}")

    async def __aexit__(self, *exc: object) -> None:
        """End all connections, and with them what runs on the hosts."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield one frame per interval without end."""
        interval_us = self._options.interval_us
        while True:
            now_us = time.monotonic_ns() // 1000
            missed = max(0, now_us - self._end_us - round((1 + _DELAY) * interval_us)) // interval_us
            end_us = self._end_us + (1 + missed) * interval_us
            await asyncio.sleep(max(0, end_us + round(_DELAY * interval_us) - now_us) / 1e6)
            await self._late_ones(end_us)
            yield self._frame(end_us, late=missed > 0)

    async def _late_ones(self, end_us: int) -> None:
        """Wait for the frames of hosts that sent one in the interval before."""
        interval_us = self._options.interval_us
        latest_us, slack_us = end_us + round(_LATEST * interval_us), round(_SLACK * interval_us)
        while any(host.is_shown and not host.has_frame(end_us + slack_us) for host in self._hosts):
            if time.monotonic_ns() // 1000 > latest_us:
                return
            await asyncio.sleep(min(_LOOK_S, interval_us / 1e7))

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        """Trace these devices on their hosts (empty: all of all hosts)."""
        by_host: dict[str, list[str]] = {}
        for device in devices:
            label, name = host_and_device(device)
            by_host.setdefault(label, []).append(name)
        for host in self._hosts:
            if not devices or host.label in by_host:
                host.request_tracing(by_host.get(host.label, []), files=files)

    def set_stages(self, mode: str) -> None:
        for host in self._hosts:
            host.set_stages(mode)

    @property
    def labels(self) -> Sequence[str]:
        """See OfHosts."""
        return [host.label for host in self._hosts]

    @property
    def states(self) -> Sequence[str]:
        """See OfHosts."""
        return [host.state for host in self._hosts if host.state]

    def taken_by_host(self) -> Sequence[HostPart]:
        """See OfHosts."""
        return [part for host in self._hosts for part in host.recorded()]

    def _frame(self, end_us: int, *, late: bool) -> Frame:
        interval_us, begin_us, self._end_us = self._options.interval_us, self._end_us, end_us
        parts: list[HostFrame] = []
        gone: list[str] = []
        for host in self._hosts:
            if late:
                host.excuse()
            host_frames = host.taken(end_us, round(_SLACK * interval_us))
            if host.is_shown and host_frames and host.label not in self._shown:
                host_frames = [host.complete(host_frames[-1])]  # earlier ones are of intervals before this one
            if host.is_shown and host_frames:
                self._shown[host.label], self._latest[host.label] = host_frames[-1].devices, host_frames[-1]
            elif host.is_shown and host.label in self._shown:
                host_frames = [without_counts(self._latest[host.label])]
            elif not host.is_shown and host.label in self._shown:
                gone += [named(host.label, device) for device in self._shown.pop(host.label)]
            if host.is_shown:
                parts += host_frames
        wall = time.time() - (time.monotonic_ns() // 1000 - end_us) / 1e6
        parts = [_selected(host_frame, self._globs) for host_frame in parts] if self._globs else parts
        frame, refused = merged_frame(parts, seq=self._seq, wall=wall, mono_us=end_us, dt_us=end_us - begin_us)
        for label in refused:  # the next frame has all its devices
            gone += [named(label, device) for device in self._shown.pop(label, ())]
        self._seq += 1
        health = replace(frame.health, notice=self._notice(refused, frame.health.notice))
        return replace(frame, removed=(*frame.removed, *gone), health=health, late=frame.late or late)

    def _notice(self, refused: Mapping[str, str], theirs: str) -> str:
        """Return a remark, states of silent hosts, why frames were refused by label, and remarks that wait.

        Remarks are the hosts' own notices and what was found about them.
        """
        states = deque(state for host in self._hosts if (state := host.state))
        states += [f"{label}: its frame is left out: {why}" for label, why in refused.items()]
        states.rotate(-(self._end_us // _TURN_US))
        more = [f"{len(states) - _MOST_STATES} more hosts send none"] if len(states) > _MOST_STATES else []
        if not self._news:
            self._turn_us = self._end_us
        elif self._end_us - self._turn_us >= _TURN_US:
            self._news.popleft()
            self._turn_us = self._end_us
        notices = (*filter(None, [theirs]), *(text for host in self._hosts for text in host.news()))
        self._news += [text for text in notices if text not in self._news]
        first, *waiting = self._news or [""]
        texts = (first, *list(states)[:_MOST_STATES], *more, *waiting)
        return clean("; ".join(filter(None, texts)), MAX_TEXT)


def _with_latencies(origin: Origin) -> Origin:
    """Return the origin of a fleet with hosts that are still starting: their probes may measure latencies and stages.

    An origin does not change later, and a screen shows nothing that its origin lacks. Devices whose host turns out to
    have counters alone have their own reason.
    """
    measured = {"total": (), **origin.measured}
    absent = tuple(missing for missing in origin.absent if missing.name not in measured)
    return replace(origin, measured=measured, absent=absent, untraced=(), reason="")


def _of_devices(tables: Tables) -> Tables:
    """Return the declared tables whose rows have a device."""
    return {table: rows for table, rows in tables.items() if table.of_meaning(Meaning.DEVICE)}


def _selected(part: HostFrame, globs: tuple[str, ...]) -> HostFrame:
    """Return the frame with those devices alone whose name, with or without the host, matches."""

    def keeps(name: str) -> bool:
        return any(fnmatchcase(named(part.label, name), glob) or fnmatchcase(name, glob) for glob in globs)

    if part.devices and all(map(keeps, part.devices)):
        return part
    kept, frame = tuple(filter(keeps, part.devices)), of_devices(part.frame, keeps)
    if not kept:  # then its interrupts, softirqs and threads complete no I/O that is shown
        frame = replace(frame, taskqs=None, tables=_of_devices(frame.tables))
        frame = replace(frame, traced=Traced(absent=frame.traced.absent), in_flight=None)
    traced, in_flight = frame.traced, frame.in_flight
    frame = replace(frame, traced=replace(traced, devices=tuple(filter(keeps, traced.devices)) or kept))
    if in_flight is not None:
        frame = replace(frame, in_flight=replace(in_flight, devices=tuple(filter(keeps, in_flight.devices)) or kept))
    return replace(part, frame=frame, devices=kept)


async def _delayed(host: Host, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    await host.run()
