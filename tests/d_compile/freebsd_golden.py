"""Output of FreeBSD's scripts for a few I/Os: writes tests/golden/dtrace/freebsd-*.txt.

Not recorded: no FreeBSD ran them. The lines are those of the scripts' formats, the tables those of the illumos family.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from latmon.manifest import load
from tests.d_compile.d_output import Output

TESTS = Path(__file__).parents[1]
PROBES = TESTS.parent / "probes" / "freebsd"
GOLDEN = TESTS / "golden" / "dtrace"
BEGUN = 5_000_000_000_000
MS, TICK_NS = 1_000_000, 1_000_000_000
THRESHOLD = 10_000
EIO_CODE = 261
"""256 and EIO, as devstat.d counts any failure."""


class Io(NamedTuple):
    """One I/O: times in us; `first_ns` when the driver got it, counted from the probe's start; cam: by CAM at all."""

    bio: int
    dev: str
    op: int
    offset: int
    size: int
    first_ns: int
    waited: int
    queue: int
    requeue: int
    hba: int
    completion: int
    cam: int = 1
    depth: int = 1

    @property
    def driver(self) -> int:
        return self.queue + self.requeue + self.hba + self.completion


_A, _B, _C, _D = (0xFFFFF80003A00000 + n * 0x180 for n in range(4))
IOS = [
    [
        Io(_A, "da0", 0, 4096, 4096, 150 * MS, 3, 12, 0, 480, 21),
        Io(_B, "da0", 0, 81920, 16384, 151 * MS, 0, 2, 0, 510, 19, depth=2),
        Io(_C, "nda0", 1, 1 << 30, 131072, 160 * MS, 41, 0, 0, 83, 4),
        Io(_D, "nvd1", 0, 512, 512, 170 * MS, 1, 0, 0, 77, 0, cam=0),
    ],
    [
        Io(_A, "da0", 1, 40960, 65536, 1150 * MS, 9000, 1200, 6000, 14300, 30),
        Io(_C, "nda0", 2, 0, 0, 1300 * MS, 0, 0, 0, 0, 2, depth=1),
        Io(_B, "ada0", 3, 1 << 20, 1 << 20, 1400 * MS, 5, 0, 0, 5200, 0, cam=0),
    ],
]
_OVER = Io(_D, "da0", 0, 8192, 4096, 1200 * MS - 200_000, 0, 0, 0, 495, 18)
"""Begun 200 us before the last tick, and done after it."""


def devstat() -> str:
    out = Output(load(PROBES / "devstat.yaml"), BEGUN)

    def begun(io: Io) -> None:
        out.added("started", (io.dev, io.op))

    def one(io: Io) -> None:
        key, us, at = (io.dev, io.op), io.driver, BEGUN + io.first_ns
        if io is not _OVER:
            begun(io)
        out.timed("total", key, us)
        out.added("sum", key, us)
        out.largest("max", (*key, out.ticks & 1), out.ticks << 32 | us)
        out.added("bytes", key, io.size)
        out.largest("level", (io.dev,), THRESHOLD)
        if us >= THRESHOLD:
            out.added("above", key)
            out.added("suppressed", (io.dev,), 0)
            done = at + us * 1000
            out.record("slow", io.bio, *key, io.offset // 512, io.size, at, done, us, 2, 0)

    def unmatched_and_failed() -> None:
        out.added("unmatched", ("da0", 0))
        failed = Io(_D, "nvd1", 0, 1024, 512, 120 * MS, 1, 0, 0, 30_000, 0, cam=0)
        begun(failed)
        out.added("failed", (failed.dev, failed.op, EIO_CODE))
        out.added("untimed", (failed.dev, failed.op))

    return _run(out, one, unmatched_and_failed, begun)


def devdepth() -> str:
    out = Output(load(PROBES / "devdepth.yaml"), BEGUN)

    def one(io: Io) -> None:
        out.added("issue", (io.dev, io.depth))
        out.added("driver", (io.dev, io.depth), io.driver)
        out.added("driver", (io.dev, io.depth - 1), io.first_ns // 1000)

    return _run(out, one)


def geom() -> str:
    out = Output(load(PROBES / "geom.yaml"), BEGUN)

    def one(io: Io) -> None:
        _stages(out, io, {"queue": io.waited, "hba": io.driver})
        out.added("path", (io.dev, 0))

    return _run(out, one, lambda: out.added("path", ("da0", 64)))


def cam(name: str) -> str:
    out = Output(load(PROBES / f"{name}.yaml"), BEGUN)
    out.record("limit", "da0", 254, "openings")
    out.record("limit", "nda0", 1024, "openings")

    def one(io: Io) -> None:
        if not io.cam:
            _stages(
                out,
                io,
                {"queue": io.waited, "requeue": 0, "hba": io.driver, "completion": 0},
                reported=("queue", "hba"),
            )
        else:
            stages = {
                "queue": io.waited + io.queue,
                "requeue": io.requeue,
                "hba": io.hba,
                "completion": io.completion,
            }
            reported = tuple(stage for stage in stages if stage != "requeue" or io.requeue)
            _stages(out, io, stages, reported)
        out.added("path", (io.dev, 2 if not io.cam else 0 if io.dev == "nda0" else 1))

    return _run(out, one, lambda: out.added("path", ("da0", 64)))


def _stages(out: Output, io: Io, stages: dict[str, int], reported: tuple[str, ...] = ("queue", "hba")) -> None:
    key, us = (io.dev, io.op), sum(stages.values())
    for stage in reported:
        out.timed(stage, key, stages[stage])
        out.timed(f"{stage}_by", key, us, stages[stage])
    out.timed("total", key, us)
    out.added("sum", key, us)
    out.largest("level", (io.dev,), THRESHOLD)
    if us >= THRESHOLD:
        out.added("above", key)
        out.added("suppressed", (io.dev,), 0)
        done = BEGUN + io.first_ns + io.driver * 1000
        times = (done - us * 1000, done, us, *stages.values())
        out.record("slow", io.bio, *key, io.offset // 512, io.size, *times, 2)


def _run(
    out: Output,
    one: Callable[[Io], None],
    first: Callable[[], None] = lambda: None,
    begun: Callable[[Io], None] = lambda _: None,
) -> str:
    out.tick(BEGUN + 100 * MS)
    first()
    for n, some in enumerate(IOS):
        for io in some:
            one(io)
        if some is IOS[-1]:
            begun(_OVER)
        out.tick(BEGUN + (200 * MS if n == 0 else 200 * MS + n * TICK_NS))
    one(_OVER)
    return out.end(BEGUN + 2 * TICK_NS + 300 * MS)


def texts() -> dict[str, str]:
    """By script."""
    return {"devstat": devstat(), "devdepth": devdepth(), "geom": geom(), "cam": cam("cam"), "cam_fbt": cam("cam_fbt")}


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for script, text in texts().items():
        (GOLDEN / f"freebsd-{script}.txt").write_text(text, encoding="ascii")
