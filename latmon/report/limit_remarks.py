"""Limits of devices that are off, in words; usual defaults and their effects are in the JSON alone."""

from __future__ import annotations

from collections.abc import Iterator

from latmon.report.model.device import Device
from latmon.report.model.report import Report
from latmon.support.text import wrapped

MAX_REMARKS = 40


def lines(report: Report) -> list[str]:
    """Return the sentences as the text report's lines."""
    sentences = off(report)
    if not sentences:
        return []
    more = [f"and {len(sentences) - MAX_REMARKS:,} more (--json has them)"] if len(sentences) > MAX_REMARKS else []
    return [
        "limits that are off:",
        *(part for line in (*sentences[:MAX_REMARKS], *more) for part in wrapped(line, "  ")),
    ]


def off(report: Report) -> list[str]:
    """Return a sentence for each limit that is off."""
    return [
        f"{name}{_model(device)}: {text}"
        for name, device in report.devices.items()
        for text in (*_of_device(device), *_of_settings(device))
    ]


def _of_device(device: Device) -> Iterator[str]:
    yield from (remark.text for remark in device.limits_remarks if not remark.note)


def _of_settings(device: Device) -> Iterator[str]:
    for setting in device.limits or ():
        for remark in setting.remarks:
            if not remark.note:
                yield f"{setting.limit.name} {remark.text} ({setting.limit.source})"


def _model(device: Device) -> str:
    return f" ({device.model})" if device.model else ""
