"""Clocks on the screen are local time: the tests live in UTC."""

from local_time import _utc  # noqa: F401  a fixture of each test
