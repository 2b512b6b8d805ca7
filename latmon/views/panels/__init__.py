"""Panels: what each screen shows between title and status lines."""
