"""Support: errors, units, text, paths, processes, privileges. Knows no I/O latency."""
