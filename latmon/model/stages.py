"""The table of stages: names, letters, fills, colours and help; and the names of stages that include others.

Keys of JSON and of recordings are STAGES and carry `includes`. `service` is D2C of btt (blktrace), driver to
completion, and `Q2C` btt's own word, queue to completion. The order of the table is the order in which an I/O passes
the stages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

T = TypeVar("T")
UNACCOUNTED = "unaccounted"
"""The rest of a traced request's total after its stages. It is always shown, and it is not a stage."""
WORKER = "worker"
"""The waits for a CPU of kernel threads that send an I/O to the driver, are a part of it, or complete the I/O."""
THROTTLING = "throttling"
"""The wait for a cgroup's limit (blk-throttle), which admission includes where a hook before it exists."""
AFTER_LIMIT = "*"
"""Mark at the name of a row that begins after the wait for a cgroup's limit, and lacks it."""
OPS = ("read", "write", "flush", "discard", "other")
"""Ops of I/Os, by the numbers that a probe's keys have."""
STAGES_MODES = ("auto", "basic", "all")
"""auto: on demand, or while a device looks suspicious; basic: never; all: always, for every device."""


class StageColour(NamedTuple):
    """A stage's colour: as rgb, of xterm's 256, and of the first 16.

    Stages are categories. They have the colours of Okabe and Ito, which every kind of colour vision can
    distinguish, and never the steps of a heat map.
    """

    rgb: str
    xterm: int
    ansi: int


class StageFacts(NamedTuple):
    """Facts of a stage that screens and reports show."""

    name: str
    letter: str
    """The first cell of its part of a bar; a blank for one that is in no bar."""
    fill: str
    """The other cells, without colours."""
    colour: StageColour
    help: str
    """Its begin and its end."""
    not_passed: str = ""
    """Text in place of its numbers where no I/O passed it; empty for the general one."""
    short: str = ""
    """Name in at most seven cells, where `name` is longer."""
    above_driver: bool = False
    """Whether an I/O that is in it has not reached the driver, or was refused by it."""


ADMISSION, WHOLE = "admission", "whole"
FROM_SUBMISSION = (ADMISSION, WHOLE)
"""Series of traced requests that begin with the submission of their first bio: the time until the request exists, and
the latency with it. The total begins with the request, so neither is a part of it, and no sum has both."""
FACTS = (
    StageFacts(
        ADMISSION,
        " ",
        " ",
        StageColour("#0072b2", 25, 6),
        "before the total: from the submission until the I/O has a request (writeback throttling, iocost, no tag free)",
        short="admit",
    ),
    StageFacts(
        "queue",
        "q",
        "·",
        StageColour("#56b4e9", 74, 14),
        "from the request's begin until the driver gets it",
        above_driver=True,
    ),
    StageFacts(
        "requeue",
        "r",
        ":",
        StageColour("#f0e442", 185, 3),
        "from the first time the driver got it until the last: it was refused in between",
        "no request was refused by the driver",
        above_driver=True,
    ),
    StageFacts(
        WORKER,
        "k",
        "+",
        StageColour("#875fff", 99, 4),
        "waited for a CPU: a kernel thread that it needs (kblockd, loop) was woken or preempted, and ran later",
        "no wait of a kernel thread was traced",
    ),
    StageFacts(
        "hba",
        "h",
        "░",
        StageColour("#999999", 246, 7),
        "from the driver until the interrupt that completes it: driver, its thread if it has one, controller, device",
    ),
    StageFacts(
        "irq",
        "i",
        "▒",
        StageColour("#cc79a7", 175, 13),
        "from the interrupt until its handler is done (Linux: raised the softirq), with earlier handlers on its vector",
    ),
    StageFacts(
        "softirq",
        "s",
        "▓",
        StageColour("#d55e00", 166, 9),
        "Linux: from the raise to the entry (the wait, also for ksoftirqd), and until the request is completed",
    ),
    StageFacts(
        "completion",
        "c",
        "█",
        StageColour("#e69f00", 214, 11),
        "a completion thread's wait and work, where a thread completes requests",
        short="compl",
    ),
    StageFacts(
        "resume",
        "w",
        "=",
        StageColour("#009e73", 36, 2),
        "from the completion until the thread that waited for it runs",
        "no thread was seen to wait for it",
    ),
    StageFacts(
        UNACCOUNTED,
        "?",
        "?",
        StageColour("#5c6370", 241, 8),
        "the rest of the total that no stage explains: always shown, never part of another stage",
        "nothing is left over",
        "unacc",
    ),
)
FACTS_OF: Mapping[str, StageFacts] = MappingProxyType({stage_facts.name: stage_facts for stage_facts in FACTS})
_PARTS = tuple(stage_facts.name for stage_facts in FACTS if stage_facts.name not in (ADMISSION, UNACCOUNTED))
STAGES = (*_PARTS, "total")
"""Keys of histograms: the stages, and `total` for the latency itself."""
MEASURED_STAGES = _PARTS
"""Stages that a probe can measure, in the order in which an I/O passes them."""
ABOVE_DRIVER = tuple(stage_facts.name for stage_facts in FACTS if stage_facts.above_driver)


class Name(NamedTuple):
    """Displayed names: `column` has at most seven cells where the stage includes others."""

    column: str
    sentence: str
    letter: str
    """In a bar."""

    @property
    def both(self) -> str:
        """Return `service (issue to completion)`, or the only name."""
        return self.column if self.column == self.sentence else f"{self.column} ({self.sentence})"


_PLAIN = {stage_facts.name: Name(stage_facts.name, stage_facts.name, stage_facts.letter) for stage_facts in FACTS}
_WITH_INTERRUPT = Name("hba+", "hba with its interrupt", "h")
_DRIVER_TO_COMPLETION = Name("service", "issue to completion", "d")
_QUEUE_TO_COMPLETION = Name("Q2C", "queue to completion", "b")
_INTERVALS = (_WITH_INTERRUPT, _DRIVER_TO_COMPLETION, _QUEUE_TO_COMPLETION)
_HBA = STAGES.index("hba")
COLUMNS = (*STAGES[: _HBA + 1], *(name.column for name in _INTERVALS), *STAGES[_HBA + 1 : -1], UNACCOUNTED)
"""All column names, in the order in which an I/O passes the stages."""
STAGE_OF: Mapping[str, str] = MappingProxyType(
    {name: name for name in _PLAIN} | {name.column: "hba" for name in _INTERVALS}
)
"""Column name -> stage."""
LETTERS: Mapping[str, str] = MappingProxyType({name.column: name.letter for name in (*_PLAIN.values(), *_INTERVALS)})
"""Column name -> its letter in a bar."""


def plural_of_op(op: str) -> str:
    """Return what I/Os of an op are called: reads, flushes, other I/Os."""
    return {"flush": "flushes", "other": "other I/Os"}.get(op, f"{op}s")


def place_of_op(op: str) -> int:
    """Return the place of an op in OPS; behind all of them for one that a later release added."""
    return OPS.index(op) if op in OPS else len(OPS)


def drawn_as(column: str) -> StageFacts:
    """Return the stage whose colour and fill a column has: that of unaccounted time for a later version's."""
    return FACTS_OF.get(STAGE_OF.get(column, column), FACTS_OF[UNACCOUNTED])


def colour_number(column: str) -> int:
    """Return the number of a stage's colour, from 1 in the order of the table, by its column name."""
    return FACTS.index(drawn_as(column)) + 1


def called(stage: str, includes: Collection[str] = ()) -> Name:
    """Return the names of a stage whose time includes that of these neighbours."""
    if stage != "hba" or not includes:
        return _PLAIN.get(stage, Name(stage, stage, ""))
    if "completion" not in includes:
        return _WITH_INTERRUPT
    return _QUEUE_TO_COMPLETION if "queue" in includes else _DRIVER_TO_COMPLETION


def why_unmeasured(
    stage: str, passed: Collection[str], reasons: Mapping[str, str], includes: Mapping[str, Collection[str]]
) -> str:
    """Return why a stage has no number although I/Os passed others; empty where it is measured and none passed it."""
    if stage in reasons:
        return reasons[stage]
    holder = next((outer for outer, inner in includes.items() if stage in inner and outer in passed), "")
    return f"its time is in {called(holder, includes[holder]).both}" if holder else ""


def by_column(parts: Mapping[str, T], includes: Mapping[str, Collection[str]]) -> dict[str, T]:
    """Return stage -> value as column name -> value, in the same order."""
    return {called(stage, includes.get(stage, ())).column: value for stage, value in parts.items()}


class StageSum(NamedTuple):
    """Sum of one I/O's stages and its unaccounted time, in us."""

    parts: Mapping[str, int]
    """Time by column name, the unaccounted time last."""
    whole: int
    missing: int
    """Total less the sum: 0 where they add up, negative where the stages are longer than the total."""


def stage_sum(
    stages_us: Mapping[str, int], includes: Mapping[str, Collection[str]], unaccounted_us: int, total_us: int
) -> StageSum:
    """Return the sum of an I/O's stages beside its total."""
    parts = by_column(stages_us, includes) | {UNACCOUNTED: unaccounted_us}
    total = sum(stages_us.values()) + unaccounted_us
    return StageSum(parts, total, total_us - total)


def explained(stage: str, includes: Collection[str]) -> str:
    """Return the sentence below a table on a stage that includes others; empty for one that includes none."""
    if not includes:
        return ""
    name, inside = called(stage, includes), ", ".join(includes)
    return f"{name.both} includes {inside}"
