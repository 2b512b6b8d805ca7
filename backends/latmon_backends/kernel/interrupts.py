"""Interrupt handlers: the device each serves, and which handlers share a vector.

/proc/interrupts is not used: it counts every irq on every CPU, and its names have no separator. The CPUs of a vector
are in /proc/irq (Documentation/core-api/irq/irq-affinity.rst), two small files, which are read as seldom as the rest of
the vectors: a change by irqbalance is seen after a minute at most. A handler's device is
shown as the block devices of the controller, else as its PCI address. A controller that is no PCI function
(virtio-mmio, a platform device) is known by its name, which its handler has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Device
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.support.paths import content
from latmon.support.text import MAX_CELLS, clean
from latmon_backends.kernel.block_devices import link, names, number

_AGAIN = 60
"""Calls after which the vectors are read again though no handler is new: a driver may have left one."""
_MOST_SHARED = 32
"""Handlers of a vector that are named, further ones are counted: a recording refuses 65 names."""
_CPUS = re.compile(r"[0-9,-]{1,200}", re.ASCII)
"""A list of CPUs; a longer one is left out: a host of hundreds of CPUs writes ranges."""
_INSTANCE = re.compile(r"[a-z][a-z_]*\d+")
_ADDRESS = re.compile(r"[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""It matches the address of a PCI function."""
_CALLED = {
    **dict.fromkeys(("mptsas", "mptspi", "mptfc"), "ioc"),
    "megaraid_sas": "megasas",
    "mpt3sas": "mpt2sas",
    "vmw_pvscsi": "pvscsi",
}
"""Driver -> the name of its handlers, where it differs."""
Words = frozenset[str]


class Affinity(NamedTuple):
    """CPUs that a vector may interrupt, and those that its controller chose."""

    allowed: str = ""
    effective: str = ""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Handlers and PCI functions by vector."""

    actions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """irq -> names of its handlers, in the order in which the kernel calls them."""
    functions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """irq -> PCI addresses that use it."""
    affinities: Mapping[int, Affinity] = field(default_factory=dict)


class Interrupts:
    """Reader of the host's vectors, which are read again when a new handler appears."""

    def __init__(self, sys: Path, proc: Path | None = None) -> None:
        """Read below these directories; without `proc` no affinities."""
        self._sys, self._proc = sys, proc
        self._vectors = Vectors()
        self._words: dict[str, tuple[Words, Words]] = {}
        self._known: set[Handler] = set()
        self._called: dict[int, dict[Handler, None]] = {}
        """Irq -> the handlers that its handler calls."""
        self._left = 0

    def reported(
        self, handlers: Mapping[Handler, HandlerRuns], devices: Mapping[str, Device]
    ) -> dict[Handler, HandlerRuns]:
        """Add devices, and the handlers that share the vector. `devices`: the block devices by name."""
        if handlers:
            self._refresh(set(handlers))
        for handler, runs in handlers.items():
            if runs.caller != UNKNOWN_IRQ:
                self._called.setdefault(runs.caller, {})[handler] = None
        behind = _behind(devices.values())
        return {
            handler: replace(
                runs,
                device=self._device(handler, behind),
                shared_with=_first((*self._others(handler), *self._siblings(handler, runs))),
                affinity=self._affinity(handler).allowed,
                effective_affinity=self._affinity(handler).effective,
            )
            for handler, runs in handlers.items()
        }

    def _siblings(self, handler: Handler, runs: HandlerRuns) -> tuple[str, ...]:
        """Return the handlers on other irqs that the same handler calls."""
        called = self._called.get(runs.caller, {})
        return tuple(called_handler.name for called_handler in called if called_handler.irq != handler.irq)

    def _refresh(self, handlers: set[Handler]) -> None:
        self._left -= 1
        if self._left <= 0 or not handlers <= self._known:
            self._known = handlers if self._left <= 0 else self._known | handlers
            irqs = {handler.irq for handler in self._known}
            self._vectors = Vectors(
                {irq: actions(self._sys, irq) for irq in irqs},
                functions(self._sys),
                {irq: affinity(self._proc, irq) for irq in irqs if self._proc is not None},
            )
            self._words.clear()
            if self._left <= 0:
                self._called.clear()
            self._left = _AGAIN

    def _affinity(self, handler: Handler) -> Affinity:
        return self._vectors.affinities.get(handler.irq, Affinity())

    def _others(self, handler: Handler) -> tuple[str, ...]:
        """Return the vector's other handlers; one may have the same name."""
        action_names = list(self._vectors.actions.get(handler.irq, ()))
        if handler.name in action_names:
            action_names.remove(handler.name)
        return tuple(action_names)

    def _device(self, handler: Handler, behind: Mapping[str, list[str]]) -> str:
        address = self._function(handler)
        named = (
            name_list for name, name_list in behind.items() if not address and _begins(handler.name, frozenset({name}))
        )
        return listed(behind.get(address) or next(named, ())) or address

    def _function(self, handler: Handler) -> str:
        """Return the PCI function on the vector that matches the handler's name, or the only one if nothing is shared.

        Exclusion does not work: a function may have no handler, and a handler no function.
        """
        functions = self._vectors.functions.get(handler.irq, ())
        if len(functions) == 1 and not self._others(handler):
            return functions[0]
        mine = [other for other in functions if _begins(handler.name, self._words_of(other)[0])]
        mine = mine or [other for other in functions if _begins(handler.name, self._words_of(other)[1])]
        return mine[0] if len(mine) == 1 else ""

    def _words_of(self, address: str) -> tuple[Words, Words]:
        if address not in self._words:
            self._words[address] = _words(self._sys / "bus/pci/devices" / address)
        return self._words[address]


def listed(several: Sequence[str]) -> str:
    """Return as many of the names as fit, and the number of the others: an HBA may have hundreds of disks."""
    text, shown = ", ".join(several), len(several)
    while len(text) > MAX_CELLS and shown > 1:
        shown -= 1
        text = f"{', '.join(several[:shown])} and {len(several) - shown} more"
    return clean(text)


def actions(sys: Path, irq: int) -> tuple[str, ...]:
    """Return the names of an irq's handlers, in the order in which the kernel calls them."""
    listed = content(sys / f"kernel/irq/{irq}/actions").strip()
    return tuple(clean(name) for name in listed.split(b",")) if listed else ()


def affinity(proc: Path, irq: int) -> Affinity:
    """Return the CPUs of an irq; empty where the kernel has none, as of a vector for each CPU."""
    files = ("smp_affinity_list", "effective_affinity_list")
    texts = (clean(content(proc / f"irq/{irq}" / name).strip()) for name in files)
    return Affinity(*(text if _CPUS.fullmatch(text) else "" for text in texts))


def functions(sys: Path) -> dict[int, tuple[str, ...]]:
    """Return irq -> addresses of PCI functions, from their MSIs, else from their line."""
    names_by_irq: defaultdict[int, list[str]] = defaultdict(list)
    root = sys / "bus/pci/devices"
    for address in names(root):
        irqs = [int(name) for name in names(root / address / "msi_irqs") if name.isdecimal()]
        for irq in irqs or [number(root / address / "irq") or 0]:
            if irq > 0:
                names_by_irq[irq].append(address)
    return {irq: tuple(addresses) for irq, addresses in names_by_irq.items()}


def _words(function: Path) -> tuple[Words, Words]:
    """Return the words in its handlers' names: of this instance (`nvme0`, `virtio1`), and of its driver."""
    below = {name for name in names(function) if _INSTANCE.fullmatch(name)}
    for kind in ("nvme", "net"):
        below |= set(names(function / kind))
    driver = link(function / "driver")
    return frozenset({clean(function.name), *below}), frozenset({driver, _CALLED.get(driver, "")} - {""})


def _begins(handler: str, words: Words) -> bool:
    """Return whether a handler's name matches: nvme1 begins nvme1q0, not nvme10q0; ahci has the address in brackets."""
    return any(
        handler.startswith(word) and not (word[-1].isdigit() and handler[len(word) : len(word) + 1].isdigit())
        for word in words
    ) or any(f"[{word}]" in handler for word in words)


def _first(handlers: tuple[str, ...]) -> tuple[str, ...]:
    left = len(handlers) - _MOST_SHARED
    return (*handlers[:_MOST_SHARED], f"{left} more") if left > 0 else handlers


def _behind(devices: Iterable[Device]) -> dict[str, list[str]]:
    """Return PCI address, or name of another controller -> block devices, by the last or first word of its text."""
    names_by_address: defaultdict[str, list[str]] = defaultdict(list)
    for device in devices:
        if device.controller:
            words = device.controller.split()
            names_by_address[words[-1] if _ADDRESS.fullmatch(words[-1]) else words[0]].append(device.name)
    return {
        address: sorted(device_names, key=lambda name: (len(name), name))
        for address, device_names in names_by_address.items()
    }
