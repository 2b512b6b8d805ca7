"""The limits audit as a table: a device's bound beside what was seen; below it the selected one's settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from latmon.audit import Audited, Remark, Setting
from latmon.views.columns import Field, table
from latmon.views.lines import BLANK, Line, Span, cut, fit, wrap
from latmon.views.units import UNKNOWN, count, whole

_NAME, _VALUE, _SOURCE = 16, 12, 22
_BOUNDS = frozenset(
    {
        *("queue_depth", "can_queue", "cmd_per_lun", "nr_tags", "hardware queues", "nr_requests", "sqsize"),
        *("queue_count", "un_throttle", "un_saved_throttle", "un_min_throttle"),
    }
)
_LEAST = 4
"""Lines of the table: titles and three devices."""


def limits_table(
    rows: Sequence[Audited], selected: str, width: int, height: int, *, top: int = 0, why: str = ""
) -> list[Line]:
    """Devices at the top, the selected one's settings below; `why`: what no row means."""
    title: Line = (Span(" limits", "accent"), Span("  as configured, beside what was seen", "dim"))
    if not rows:
        return [fit(title, width), BLANK, *((Span(f"  {text}"),) for text in wrap(why, width - 4))][:height]
    at = next((i for i, one in enumerate(rows) if one.device == selected), 0)
    settings = _settings(rows[at], width)
    devices = min(len(rows) + 1, max(height - 2 - len(settings), _LEAST))
    lines = [title, *table(_FIELDS, rows, at, (width, devices), why=why)]
    left = height - len(lines) - 1
    return [fit(line, width) for line in (*lines, BLANK, *cut(settings, left, top))][:height]


def _settings(one: Audited, width: int) -> list[Line]:
    """Of one device: remarks on it as a whole, then each setting with its own."""
    lines: list[Line] = [(Span(f" {one.device} settings", "strong"),)]
    for remark in one.remarks:
        lines += _said(remark, width, 1)
    for setting in sorted(one.settings, key=_rank):
        lines += _setting(setting, width)
    return lines


def _rank(setting: Setting) -> int:
    """What is off first, then what bounds the driver, then notes."""
    said = min((remark.note for remark in setting.remarks), default=2)
    return said if said == 0 else 1 if setting.limit.name in _BOUNDS else 1 + said


def _setting(setting: Setting, width: int) -> list[Line]:
    limit = setting.limit
    value = count(limit.value) if isinstance(limit.value, int) else limit.value
    head = f" {limit.name:<{_NAME}} {value:<{_VALUE}} {limit.source:<{_SOURCE}} "
    off = any(not remark.note for remark in setting.remarks)
    told: Line = (Span(head, "strong" if off else "text"),)
    if not setting.remarks:
        return [told]
    beside = width - len(head) - 1
    if len(setting.remarks) == 1 and len(setting.remarks[0].text) <= beside:
        return [(*told, *_said(setting.remarks[0], width, 0)[0])]
    return [told, *(line for remark in setting.remarks for line in _said(remark, width, 3))]


def _said(remark: Remark, width: int, indent: int) -> list[Line]:
    role, mark = ("dim", "") if remark.note else ("bad", "! ")
    parts = wrap(mark + remark.text, max(width - indent - 1, 10))
    return [(Span(" " * (indent if not i else indent + len(mark))), Span(part, role)) for i, part in enumerate(parts)]


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _value(name: str) -> Field[Audited]:
    def make(one: Audited, _cells: int) -> str:
        found = next((s.limit.value for s in one.settings if s.limit.name == name), None)
        return UNKNOWN if found is None else whole(found) if isinstance(found, int) else found

    return Field(_TITLES.get(name, name), max(len(_TITLES.get(name, name)), 5), make, rank=2)


def _off(one: Audited, _cells: int) -> Line:
    notes = sum(remark.note for s in one.settings for remark in s.remarks)
    if one.off:
        return (Span("! " + ", ".join(remark.id for remark in one.off), "bad"),)
    return (Span(f"{notes} note{'s' * (notes != 1)}" if notes else "nothing off", "dim"),)


_TITLES = {"nr_requests": "requests", "queue_type": "tags"}
_FIELDS: tuple[Field[Audited], ...] = (
    Field("device", 8, lambda one, _: one.device, right=False, most=9),
    Field("limit", 5, lambda one, _: _number(int(one.bound.value)) if one.bound else UNKNOWN),
    Field("limit's name", 12, lambda one, _: one.bound.name if one.bound else "", rank=1, right=False, role="dim"),
    Field("most", 5, lambda one, _: _number(one.most)),
    Field("usual", 5, lambda one, _: _number(one.usual)),
    Field("queue", 5, lambda one, _: _number(one.queued)),
    Field("held", 4, lambda one, _: "" if one.held_at is None else whole(one.held_at), role="strong"),
    _value("nr_requests"),
    Field("scheduler", 11, lambda one, c: str(_value("scheduler").make(one, c)), rank=1, right=False, role="dim"),
    Field("off", 11, _off, right=False, most=60),
)
