"""What a device's limits come to: the most I/Os that its driver can hold at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.model import Limit


def ceiling(limits: Iterable[Limit]) -> Limit | None:
    """The least of what bounds the I/Os in the driver, and where it was read; None where nothing is known to.

    Tags are counted per hardware queue unless the host shares one set among them (host_tagset); `can_queue` is then of
    the whole host, and otherwise of each of its queues (include/scsi/scsi_host.h). `nr_requests` bounds what waits in
    a scheduler, not what the driver holds, and `cmd_per_lun` is only what queue_depth begins with.
    """
    known = {one.name: one for one in limits if isinstance(one.value, int)}
    shared = known["host_tagset"].value == 1 if "host_tagset" in known else False
    bounds = [known[name] for name in ("queue_depth",) if name in known]
    for name, queues in (("nr_tags", "hardware queues"), ("can_queue", "nr_hw_queues")):
        if name in known:
            bounds.append(_of_all(known[name], None if shared else known.get(queues)))
    return min(bounds, key=lambda one: int(one.value), default=None)


def _of_all(one: Limit, queues: Limit | None) -> Limit:
    if queues is None or queues.value == 1:
        return one
    return Limit(one.name, int(one.value) * int(queues.value), f"{one.source} x {queues.value} {queues.name}")
