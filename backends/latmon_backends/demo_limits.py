"""The limits of the demo's devices, as sysfs would tell them: disks behind an HBA, SSDs, and a LUN cut down to 3."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from latmon.model import Limit

_QUEUE = (
    Limit("write_cache", "write back", "queue/write_cache"),
    Limit("rq_affinity", 1, "queue/rq_affinity"),
    Limit("iostats", 1, "queue/iostats"),
)


def _scsi(
    depth: int, host: str, can_queue: int, *, scheduler: str = "mq-deadline", requests: int = 64
) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", requests, "queue/nr_requests"),
        Limit("scheduler", scheduler, "queue/scheduler"),
        Limit("wbt_lat_usec", 75_000, "queue/wbt_lat_usec"),
        *_QUEUE,
        Limit("nr_tags", can_queue, "mq/0/nr_tags"),
        Limit("hardware queues", 1, "mq"),
        Limit("queue_depth", depth, "device/queue_depth"),
        Limit("queue_type", "simple", "device/queue_type"),
        Limit("can_queue", can_queue, f"{host}/can_queue"),
        Limit("cmd_per_lun", 7, f"{host}/cmd_per_lun"),
        Limit("nr_hw_queues", 1, f"{host}/nr_hw_queues"),
        Limit("host_tagset", 0, f"{host}/host_tagset"),
    )


def _nvme(controller: str) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", 1023, "queue/nr_requests"),
        Limit("scheduler", "none", "queue/scheduler"),
        Limit("wbt_lat_usec", 2_000, "queue/wbt_lat_usec"),
        *_QUEUE,
        Limit("nr_tags", 1023, "mq/0/nr_tags"),
        Limit("hardware queues", 8, "mq"),
        Limit("sqsize", 1023, f"{controller}/sqsize"),
        Limit("queue_count", 9, f"{controller}/queue_count"),
    )


LIMITS: Mapping[str, tuple[Limit, ...]] = MappingProxyType(
    {
        "nvme0n1": _nvme("nvme0"),
        "nvme1n1": _nvme("nvme1"),
        **{f"sd{letter}": _scsi(64, "host2", 9_680) for letter in "abcd"},
        "sde": _scsi(64, "host2", 9_680, requests=256),
        "sdf": _scsi(3, "host3", 1_024, scheduler="none", requests=1_024),
    },
)
"""By device; a volume has none."""
