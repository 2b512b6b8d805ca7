"""The published incidents, one module each."""
