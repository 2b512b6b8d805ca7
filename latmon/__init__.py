"""latmon: a terminal UI that shows where I/O latency hides on a host."""

__version__ = "0.1.0"
