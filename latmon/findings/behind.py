"""Which block devices are behind an interrupt's handler, and whose a kernel thread is by its name. No judgment."""

from __future__ import annotations

import re

from latmon.findings.facts import Facts

_MORE = re.compile(r" and \d+ more$")
_IRQ_THREAD = re.compile(r"irq/(\d+)-")


def devices_of(facts: Facts, text: str) -> tuple[str, ...]:
    """Block devices behind a handler, by its controller's address or a list of names that may have been cut."""
    listed = set(_MORE.sub("", text).split(", "))
    at = {one.name: (one.controller.split() or [""])[-1] for one in facts.devices.values()}
    behind = {text, *(address for name, address in at.items() if name in listed)} - {""}
    return tuple(name for name, address in at.items() if name in listed or address in behind)


def serves(facts: Facts, comm: str, device: str) -> bool:
    """Whether a thread's name ties it to a device: its interrupt's thread, or one with its own or its driver's name."""
    if irq := _IRQ_THREAD.match(comm):
        behind = [devices_of(facts, runs.device) for one, runs in facts.handlers.items() if one.irq == int(irq[1])]
        if any(behind):
            return any(device in some for some in behind)
    known = facts.devices.get(device)
    return any(
        name and re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z])", comm)
        for name in (device, known.driver if known else "")
    )
