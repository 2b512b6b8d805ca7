"""Settings of the synthetic host: what a header of a real one holds, the same at every call."""

from __future__ import annotations

from types import MappingProxyType

from latmon import __version__
from latmon.mark import Settings

_DISK = {
    "scheduler": "mq-deadline",
    "nr_requests": "256",
    "rq_affinity": "1",
    "nomerges": "0",
    "wbt_lat_usec": "75000",
    "max_sectors_kb": "1280",
    "read_ahead_kb": "128",
    "write_cache": "write through",
    "rotational": "1",
    "io_poll": "0",
    "queue_depth": "32",
    "queue_type": "simple",
    "rev": "SN04",
    "hba version_fw": "16.00.11.00",
}

_SSD = {
    "scheduler": "none",
    "nr_requests": "1023",
    "rq_affinity": "1",
    "nomerges": "0",
    "max_sectors_kb": "512",
    "read_ahead_kb": "128",
    "write_cache": "write through",
    "rotational": "0",
    "io_poll": "0",
    "io_timeout": "30000",
    "firmware_rev": "EDA53W0Q",
}

SETTINGS: Settings = MappingProxyType(
    {
        "tool": MappingProxyType({"latmon": __version__}),
        "kernel": MappingProxyType(
            {
                "system": "Linux",
                "release": "6.12.0-demo",
                "version": "#1 SMP PREEMPT_DYNAMIC",
                "machine": "x86_64",
                "hz": "250",
                "preemption": "voluntary",
                "clocksource": "tsc",
                "cpus": "0-15",
                "boot mitigations": "auto",
            }
        ),
        "module mpt3sas": MappingProxyType(
            {"version": "48.100.00.00", "max_queue_depth": "-1", "max_sgl_entries": "-1", "perf_mode": "-1"}
        ),
        "module scsi_mod": MappingProxyType({"use_blk_mq": "Y", "max_luns": "512"}),
        **{f"device {name}": MappingProxyType(_DISK) for name in ("sda", "sdb", "sdc", "sdd", "sde")},
        **{f"device {name}": MappingProxyType(_SSD) for name in ("nvme0n1", "nvme1n1")},
    }
)
