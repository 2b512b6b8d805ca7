"""`--redact`: removes names of owner, volumes and programs from a frame; kernel threads and handlers stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from latmon.model.frame import Device, Frame, Origin, Outlier, Thread, Wait, Wakeups
from latmon.model.histogram import merge
from latmon.model.inflight import StillInFlight

REDACTED = "redacted"
_ADDRESS = re.compile(r"\b(\w*addr)=[^,\s]+")
_PROGRAMS = Thread(0, REDACTED, "", 120, kernel=False)
"""Replacement of all threads of programs: pids are private, too, so they are one."""


def private_origin(origin: Origin) -> Origin:
    """Return the origin without the host's name and boot, marked as redacted."""
    hidden = MappingProxyType({**origin.extra, "redacted": True})
    return replace(origin, host=REDACTED, boot_id="", extra=hidden)


def private_device(device: Device) -> Device:
    """Return a device without volume names, serial numbers and addresses of network storage."""
    return replace(device, serial="", label="", controller=_ADDRESS.sub(rf"\1={REDACTED}", device.controller))


def private_frame(frame: Frame) -> Frame:
    """Return a frame without programs' names and pids; its wake-ups say which threads are the kernel's."""
    kernel = frozenset(one.thread.comm for one in frame.wakeups if one.thread.kernel)
    return replace(
        frame,
        devices=tuple(private_device(one) for one in frame.devices),
        outliers=tuple(_outlier(one, kernel) for one in frame.outliers),
        wakeups=_wakeups(frame.wakeups, kernel),
        in_flight=_in_flight(frame.in_flight),
    )


def _in_flight(still: StillInFlight | None) -> StillInFlight | None:
    if still is None:
        return None
    oldest = (one._replace(pid=None, comm=REDACTED if one.comm else "") for one in still.oldest)
    return replace(still, oldest=tuple(oldest))


def _outlier(one: Outlier, kernel: frozenset[str]) -> Outlier:
    waits = tuple(_wait(wait, kernel) for wait in one.waits)
    return replace(one, pid=None, comm=REDACTED if one.comm else "", waits=waits)


def _wait(one: Wait, kernel: frozenset[str]) -> Wait:
    # who waits for an I/O is its issuer; who completes it is a thread of the kernel's
    hidden = one if one.stage != "resume" else replace(one, thread=REDACTED, pid=0)
    return replace(hidden, instead=_instead(one.instead, kernel))


def _wakeups(wakeups: tuple[Wakeups, ...], kernel: frozenset[str]) -> tuple[Wakeups, ...]:
    reported = [replace(one, instead=_named(one.instead, kernel)) for one in wakeups]
    programs = [one for one in reported if not one.thread.kernel]
    kept = tuple(one for one in reported if one.thread.kernel)
    if not programs:
        return kept
    instead = {name: sum(one.instead.get(name, 0) for one in programs) for one in programs for name in one.instead}
    return (*kept, Wakeups(_PROGRAMS, merge(one.delay for one in programs), instead))


def _named(instead: Mapping[str, int], kernel: frozenset[str]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, n in instead.items():
        hidden = _instead(name, kernel)
        found[hidden] = found.get(hidden, 0) + n
    return found


def _instead(name: str, kernel: frozenset[str]) -> str:
    """Return `comm (prio N)` with its priority, which distinguishes real-time threads from others."""
    comm, bracket, priority = name.rpartition(" (prio ")
    if not bracket:
        return name if name in kernel or not name else REDACTED
    return name if comm in kernel else f"{REDACTED}{bracket}{priority}"
