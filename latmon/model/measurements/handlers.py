"""Runs of interrupt handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.histogram import Histogram
from latmon.model.table import Meaning, Part, Table, Unit, fact, record

UNKNOWN_IRQ = -1
_IRQ = Part(lowest=UNKNOWN_IRQ, highest=1 << 32)
_NAME = Part(Meaning.NAME)


class Handler(NamedTuple):
    """One irqaction: an interrupt's number and the name its driver gave."""

    irq: int
    """UNKNOWN_IRQ where the record that names the handler has not been read yet, or was lost."""
    name: str


@dataclass(frozen=True, slots=True)
class HandlerRuns:
    """A handler's runs in an interval, those included that returned IRQ_NONE: they take time as well."""

    run: Histogram
    before_us: int = 0
    """Victim time: time of the handlers called earlier on the same vector, before runs that this one handled.

    Where another handler calls this one, the time since the entry of that one.
    """
    device: str = ""
    """PCI address of the controller, or its block devices; empty when not known."""
    shared_with: tuple[str, ...] = ()
    """The other handlers on the vector, in the order in which the kernel calls them, then those that `caller` calls."""
    returned: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Return value: none (IRQ_NONE, not handled), handled, wake (its thread) -> runs."""
    caller: int = UNKNOWN_IRQ
    """Irq whose handler calls this one (VMD, MSI demultiplexers); UNKNOWN_IRQ where none does."""
    affinity: str = ""
    """CPUs that its vector may interrupt, such as `0-3,8` (smp_affinity_list); empty when not known."""
    effective_affinity: str = ""
    """CPUs of these that the controller chose (effective_affinity_list): one with MSI on x86; empty when not known."""


HANDLERS = Table(
    "irqs",
    Handler,
    (_IRQ, _NAME),
    record(
        HandlerRuns,
        run=Unit.LATENCIES,
        before_us=Unit.MICROSECONDS,
        device=fact("device", "", Part(Meaning.LISTED)),
        shared_with=fact("shared_with", (), _NAME),
        returned=Unit.NAMED,
        caller=fact("caller", UNKNOWN_IRQ, _IRQ, is_optional=True),
        affinity=fact("affinity", "", is_optional=True),
        effective_affinity=fact("effective_affinity", "", is_optional=True),
    ),
    group="interrupts",
    export_name="handler",
    row_title="an interrupt handler",
    counts_ios=False,
    is_timed=True,
)
"""The tracer counts every run of a handler, whatever its sample is."""
