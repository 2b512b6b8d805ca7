"""Parts that bpftrace and DTrace probes share: process, always-on probe, tick protocol, frames, outliers."""
