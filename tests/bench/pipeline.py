"""All of latmon in one process, on a clock of its own: seconds of a large host from a probe's output to the screen.

The collector's part decodes what large_host.Disks prints, reads the directory's counters and encodes the frame; the
screen's part decodes it, adds it to the history, evaluates the rules and draws. CPU time is measured of each.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from large_host import MAPS, Disks, LargeHost, line

from latmon.capture.session import Lines
from latmon.decode.framer import Framer
from latmon.findings.rule import DEFAULT
from latmon.model.frame import Health, Origin
from latmon.recording.codec import IdleReader, IdleWriter, decode_origin, encode_origin, to_bytes
from latmon.recording.json_line import parse
from latmon.views.lines import BLANK, Line
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection
from latmon_backends.bpftrace import program
from latmon_backends.bpftrace.probe import BpftraceDecoder
from latmon_backends.kernel.counters import FrameClock, KernelSampler
from latmon_backends.probe.always_on import FrameBuilder
from latmon_backends.probe.tick_protocol import Surroundings, Ticks

SIZE = (160, 50)
COLLECTOR, SCREEN = ("decode", "frame", "encode"), ("read", "history", "draw", "rules")
"""Parts of a second whose CPU time is measured."""
_START_WALL = 1_700_000_000.0
_KEYS = 65_536


class Pipeline:
    """The path of a second of a host, `spent_s` with the CPU time of its parts."""

    def __init__(self, host: LargeHost, selection: Selection | None = None) -> None:
        self._proc = host.root / "proc/diskstats"
        self._disks = Disks(host.disks, host.busy, host.per_second)
        self._now_us = 1_000_000
        self.spent_s: Counter[str] = Counter()
        self.bytes = 0
        clock = FrameClock(lambda: self._now_us, lambda: _START_WALL + self._now_us / 1e6)
        self._sampler = KernelSampler(host.root / "proc", host.root / "sys", clock=clock)
        self._builder = FrameBuilder(self._sampler, host.root / "sys", lambda: 0)
        manifest = self._manifest = next(program.variants(1000, 0)).manifest
        framer = Framer(manifest, self._builder.device_name, self._builder.has_several_queues)
        around = Surroundings(lambda: self._now_us, lambda _: 0, self._sampler.sample, _KEYS, 1_000_000)
        self._decoder, self._ticks = BpftraceDecoder(), Ticks(manifest, framer, around)
        origin = Origin(
            "bpftrace",
            "bench",
            "Linux 6.12.0",
            "0",
            tier="A",
            start_wall=_START_WALL + 1,
            start_mono_us=1_000_000,
            measured={stage: manifest.includes.get(stage, ()) for stage in manifest.stages},
            latency_from=manifest.latency_from,
        )
        self.scene = Scene(selection or Selection(), findings=DEFAULT)
        self.scene.findings_state.at_once = False
        self.scene.opened(decode_origin(parse(to_bytes(encode_origin(origin)))))
        self.lines: list[Line] = []
        self._feed, self._writer, self._reader = Lines(), IdleWriter(), IdleReader()

    def seconds(self, many: int) -> None:
        """Pass so many seconds through all parts."""
        for _ in range(many):
            self._now_us += 1_000_000
            for frame in self._collected():
                self._shown(frame)

    def _collected(self) -> Iterator[bytes]:
        """Yield the lines of the frames of a second."""
        disks, tick = self._disks, self._disks.tick
        disks.second()
        self._proc.write_text(disks.diskstats())
        names = [f"block_a_{one}" for one in MAPS]
        begin, end = line(f"tick block_a {tick} {self._now_us * 1000}"), line("done block_a")
        printed = "".join(f"{one}\n" for one in (begin, *disks.printed(names), end)).encode()
        with self._of("decode"):
            windows = [window for event in self._decoder.feed(printed) if (window := self._ticks.take(event))]
        for window in windows:
            with self._of("frame"):
                frame = self._builder.make(window, self._manifest, Health())
            with self._of("encode"):
                text = to_bytes(self._writer.encode(frame))
            self.bytes += len(text)
            yield text

    def _shown(self, text: bytes) -> None:
        scene, state = self.scene, self.scene.findings_state
        with self._of("read"):
            (whole,) = self._feed.feed(text)
            frame = self._reader.decode(parse(whole))
        with self._of("history"):
            scene.append(frame, whole)
        with self._of("draw"):
            self.lines = screen_lines(scene, BLANK, *SIZE)
        with self._of("rules"):
            while state.is_pending:
                state.proceed()

    @contextmanager
    def _of(self, part: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.spent_s[part] += time.process_time() - began
