"""The terminal UI: the only package that may import textual."""
