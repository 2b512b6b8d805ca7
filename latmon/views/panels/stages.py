"""The stages screen: all devices' stages, or the selected one's row by row."""

from __future__ import annotations

from latmon.deep import total_of
from latmon.model import STAGES
from latmon.views import empty, stages
from latmon.views.anatomy import Anatomy, anatomy
from latmon.views.lines import Line
from latmon.views.sight import Sight, no_rows, sentence
from latmon.views.table import Subject

_PATH = tuple(one for one in STAGES if one not in ("resume", "total"))


def stages_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """A row per device; opened, a row per stage."""
    subjects = sight.subjects()
    if not subjects or sight.origin is None:
        return sentence(no_rows(sight), width, room)
    why = empty.not_traced(
        "stages", sight.origin, _PATH, mode=sight.choice.stages, recorded=sight.recorded, state=sight.tracing
    )
    if empty.no_distribution(sight.origin):
        return sentence(why, width, room)  # a table would count its I/Os as 0
    chosen = subjects[0].choice.selected
    if not sight.choice.opened:
        several = [_anatomy(sight, s, detailed=s.device.name == chosen) for s in subjects]
        return stages.overview(several, chosen, width, room, sight.ink, why=why)
    one = next(s for s in subjects if s.device.name == chosen)
    return stages.device(_anatomy(sight, one), width, room, sight.ink, why=why, top=sight.choice.top)


def _anatomy(sight: Sight, subject: Subject, *, detailed: bool = True) -> Anatomy:
    assert sight.origin is not None  # noqa: S101  drawn only once there is a row
    origin, choice, name, deep = sight.origin, sight.choice, subject.device.name, sight.history.deep
    return sight.history.made(
        ("anatomy", name, choice.op, choice.threshold_us, detailed),
        lambda: anatomy(
            name,
            choice.ops,
            deep.traced,
            origin,
            total=sight.history.window.latency(name, choice.ops),
            # asked for only where nothing is traced: asking begins a sum
            basic={} if total_of(deep.traced, name, choice.ops) else deep.basic,
            cut_us=choice.threshold_us,
            op_label=choice.op_label,
            detailed=detailed,
        ),
    )
