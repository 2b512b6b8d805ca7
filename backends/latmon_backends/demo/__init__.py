"""The demo backend: synthetic hosts, and the published incidents, one module each."""
