"""The bpftrace backend."""
