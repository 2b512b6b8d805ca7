"""Readers of /proc and sysfs."""
