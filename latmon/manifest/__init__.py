"""Manifests of probes: schema and loader."""
