"""What a capture without a screen says of findings: a line when one is new, and all of them when it ends.

Rules are asked as everywhere; nothing of it is recorded. Knows neither terminal nor file.
"""

from __future__ import annotations

from collections.abc import Iterator

from latmon.findings.finding import NOTICE, Finding
from latmon.findings.needs import by_kind, who_judged
from latmon.findings.registry import RULES
from latmon.findings.thresholds import Settings
from latmon.findings.told import Told, told
from latmon.findings.watch import Watch
from latmon.model import Frame, Origin
from latmon.quantities import show_duration

MAX_SAID = 20
"""New ones that are told while it runs, and findings that are told at its end."""


class Found:
    """Fed with the frames of one capture, in order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._watch: Watch | None = None
        self._begun_us: int | None = None
        self._said: set[tuple[str, str]] = set()
        self._failed: set[str] = set()

    def begin(self, origin: Origin) -> None:
        """Another capture."""
        self._watch, self._begun_us = Watch(origin, (), self._settings), None
        self._said, self._failed = set(), set()

    def take(self, frame: Frame) -> Iterator[str]:
        """The next frame; a sentence for each finding that wasn't there before, notices at the end alone."""
        if self._watch is None:
            return
        self._begun_us = frame.mono_us - frame.dt_us if self._begun_us is None else self._begun_us
        if not self._watch.take(frame):
            return
        yield from self._failures(self._watch)
        for one in self._watch.current:
            if one.severity != NOTICE and one.key not in self._said and len(self._said) < MAX_SAID:
                self._said.add(one.key)
                yield f"finding after {show_duration(frame.mono_us - self._begun_us)}: {_named(one)}"

    def all_told(self) -> Iterator[str]:
        """The most urgent first; which rules could judge is told as well, unless it was too short for any."""
        if self._watch is None:
            return
        long_enough = self._watch.judged > 0
        self._watch.finish()
        found = told(self._watch.episodes)
        yield from self._failures(self._watch)
        who, why = self._judged(self._watch)
        if not found and long_enough:
            yield f"no finding; {who}; {why}" if why else f"no finding, by {who}"
        for one in found[:MAX_SAID]:
            yield f"finding, {_long(one)}: {_named(one.finding)}"
        if len(found) > MAX_SAID:
            yield f"and {len(found) - MAX_SAID:,} more findings, which `latmon report` tells"
        if found and why:
            yield f"{who}; {why}"

    def _failures(self, watch: Watch) -> Iterator[str]:
        """Each once."""
        for rule, words in watch.failed.items():
            if rule not in self._failed:
                self._failed.add(rule)
                yield f"rule {rule} failed: {words}; the other rules go on"

    def _judged(self, watch: Watch) -> tuple[str, str]:
        off = self._settings.off
        return who_judged(len(RULES) - len(off), by_kind(watch.silent - off), watch.failed)


def _named(one: Finding) -> str:
    return f"{one.severity}, {one.id}: {one.summary}"


def _long(one: Told) -> str:
    seconds = round(one.end_wall - one.begin_wall)
    lasted = f"for {show_duration(seconds * 1_000_000)}" if seconds else "once"
    return lasted if one.episodes == 1 else f"{one.episodes:,} times"
