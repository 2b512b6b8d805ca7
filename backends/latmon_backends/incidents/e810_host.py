"""The host of e810 and of e810-healthy: NVMe over RDMA with one I/O at a time, and a local drive beside it.

The network card is all that differs. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon import __version__
from latmon.model import Device, Limit, Missing, Origin
from latmon_backends.incidents import drawing

HZ = 250
TICK_US = 1_000_000 // HZ
THRESHOLD_US = 2_000
REMOTE, LOCAL = "nvme0n1", "nvme1n1"
THRESHOLDS_US = {REMOTE: THRESHOLD_US, LOCAL: THRESHOLD_US}
ABSENT = (
    Missing("requeue", "no request was refused"),
    Missing("completion", "no thread completes I/Os here"),
    Missing("resume", "who waits for io_submit's I/O is not woken by its completion alone"),
)


class Card(NamedTuple):
    """A network card with its driver."""

    driver: str
    version: str
    model: str
    address: str
    vector: str
    """As its driver names the interrupt of a completion queue."""


E810 = Card("irdma", "1.15.11", "E810-C 100GbE", "0000:5e:00.0", "irdma-ceq-3")
MELLANOX = Card("mlx5_core", "5.8-1.1.2", "ConnectX-6 Dx 100GbE", "0000:5e:00.0", "mlx5_comp3@pci:0000:5e:00.0")


def devices(card: Card) -> tuple[Device, ...]:
    """The remote namespace and the local drive."""
    return (
        Device(
            REMOTE,
            259,
            0,
            driver="nvme-rdma",
            controller=f"{card.driver} {card.version}",
            model="zStorage demo volume",
            serial="DEMO-VOL-0",
            limits=_limits(128, 8),
        ),
        Device(
            LOCAL,
            259,
            1,
            driver="nvme",
            controller="0000:41:00.0",
            model="SSD 1920G",
            serial="DEMO-SSD-1",
            limits=_limits(1_023, 8),
        ),
    )


def origin(card: Card) -> Origin:
    """Of the host with this card."""
    queue: Mapping[str, str] = {"scheduler": "none", "rq_affinity": "1", "nomerges": "0", "io_poll": "0"}
    return drawing.origin(
        "demo-hygon-03",
        "4.19.90-demo",
        hz=HZ,
        settings={
            "tool": {"latmon": __version__},
            "kernel": {
                "system": "Linux",
                "release": "4.19.90-demo",
                "machine": "x86_64",
                "hz": str(HZ),
                "preemption": "voluntary",
                "clocksource": "tsc",
            },
            f"module {card.driver}": {"version": card.version, "adapter": card.model},
            "module nvme_rdma": {"version": "1.0", "register_always": "Y"},
            f"device {REMOTE}": {**queue, "nr_requests": "128", "transport": "rdma"},
            f"device {LOCAL}": {**queue, "nr_requests": "1023", "transport": "pcie"},
        },
        threshold_us=THRESHOLD_US,
    )


def _limits(requests: int, queues: int) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", requests, "queue/nr_requests"),
        Limit("scheduler", "none", "queue/scheduler"),
        Limit("rq_affinity", 1, "queue/rq_affinity"),
        Limit("nr_tags", requests, "mq/0/nr_tags"),
        Limit("hardware queues", queues, "mq"),
    )
