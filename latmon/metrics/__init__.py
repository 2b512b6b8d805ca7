"""Metrics for Prometheus: families with their text and protobuf forms, and the exporter that serves a live capture."""
