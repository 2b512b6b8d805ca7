"""What bpftrace and DTrace probes have in common: process, supervisor, tick protocol, frames."""
