"""A simulated device with a queue: frames of one second of it under open and closed loads.

Requests are served by so many servers in the order of their arrival. Latencies include the wait, so that they follow
the depth as those of a real device do. Depths are exact.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from dataclasses import dataclass
from itertools import count

from latmon.model.frame import Completed, Device, Flow, Frame, Series
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.inflight import PROBE, Depths

S = 1_000_000
WALL = 1_700_000_000.0
BEGIN_S = 100


@dataclass(frozen=True)
class Open:
    """A load that does not wait for its I/Os: random arrivals, `rate(second)` of them per second."""

    rate: object
    op: str = "read"
    size: int = 4096
    is_paced: bool = False


@dataclass(frozen=True)
class Closed:
    """Threads that each issue the next I/O when the last one is done, after `think_us`; `threads(second)` of them."""

    threads: object
    op: str = "read"
    size: int = 4096
    think_us: int = 0


def lognormal(median_us, spread=0.4, tail=0.0, times=30):
    """Service times: log-normal around `median_us(second)`, a share `tail` of them `times` as long."""

    def service(rng, second, op):
        us = median_us(second) if callable(median_us) else median_us
        us = us[op] if isinstance(us, dict) else us
        return us * math.exp(rng.gauss(0, spread)) * (times if tail and rng.random() < tail else 1)

    return service


def frames_of(rng, seconds, loads, service, *, servers=1, name="sda", has_depths=True):
    """Yield one frame per second."""
    yield from QueuedDevice(rng, loads, service, servers=servers, name=name, has_depths=has_depths).frames(seconds)


class QueuedDevice:
    """The device with its events: arrivals, completions, and the issues of threads."""

    def __init__(self, rng, loads, service, *, servers, name, has_depths):
        self.rng, self.service, self.servers, self.name, self.has_depths = rng, service, servers, name, has_depths
        self.events, self.order, self.busy, self.waiting = [], count(), 0, deque()
        self.threads = Counter()
        self.last_us = 0.0
        self._start_second()
        for load in loads:
            self._later(0.0, self._arrivals if isinstance(load, Open) else self._start_threads, load)

    def frames(self, seconds):
        second = 0
        while second < seconds:
            now, _, act, load, began = heapq.heappop(self.events)
            while now >= (second + 1) * S and second < seconds:
                self._count_depth((second + 1) * S)
                yield self._frame(second)
                self._start_second()
                second += 1
            self._count_depth(now)
            act(now, load, began)

    def _start_second(self):
        self.latencies, self.done, self.depths = {}, Counter(), Counter()

    def _count_depth(self, now):
        self.depths[self.busy + len(self.waiting)] += now - self.last_us
        self.last_us = now

    def _later(self, us, act, load, began=0.0):
        heapq.heappush(self.events, (us, next(self.order), act, load, began))

    def _arrivals(self, now, load, _began):
        rate = load.rate(now / S)
        gap_us = S / 10
        if rate > 0:
            self._arrive(now, load)
            gap_us = S / rate if load.is_paced else self.rng.expovariate(rate / S)
        self._later(now + gap_us, self._arrivals, load)

    def _start_threads(self, now, load, _began):
        while self.threads[load] < load.threads(now / S):
            self.threads[load] += 1
            self._arrive(now, load)
        self._later(now + S / 2, self._start_threads, load)

    def _arrive(self, now, load, _began=0.0):
        if self.busy < self.servers:
            self.busy += 1
            self._serve(now, load, now)
        else:
            self.waiting.append((load, now))

    def _serve(self, now, load, began):
        us = max(self.service(self.rng, now / S, load.op), 1)
        self._later(now + us, self._complete, load, began)

    def _complete(self, now, load, began):
        self.latencies.setdefault(load.op, Counter())[bucket_index(int(now - began))] += 1
        self.done[load.op, "ios"] += 1
        self.done[load.op, "bytes"] += load.size
        if self.waiting:
            self._serve(now, *self.waiting.popleft())
        else:
            self.busy -= 1
        if isinstance(load, Closed):
            if self.threads[load] > load.threads(now / S):
                self.threads[load] -= 1
            else:
                self._later(now + load.think_us, self._arrive, load)

    def _frame(self, second):
        name = self.name
        done = {Flow(name, op): Completed(self.done[op, "ios"], self.done[op, "bytes"]) for op in self.latencies}
        depths = {depth: round(us / 1000) for depth, us in self.depths.items() if us >= 500}
        return Frame(
            second,
            WALL + BEGIN_S + second + 1,
            (BEGIN_S + second + 1) * S,
            S,
            histograms={Series(name, op, "total"): Histogram.of(counts) for op, counts in self.latencies.items()},
            kernel=done,
            seen=done,
            depths={name: Depths(depths, {}, source=PROBE)} if self.has_depths else {},
            devices=(Device(name, 8, 0, driver="sd"),) if second == 0 else (),
        )
