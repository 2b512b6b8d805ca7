"""Limits of devices that are off, in words; usual defaults and their effects are in the JSON alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from latmon.report.model.device import Device, LimitDifference
from latmon.report.model.report import Report
from latmon.support.text import wrapped

MAX_REMARKS = 40
_BIT_MAPS = ("m_notag", "m_nowide")


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


def differences(devices: Mapping[str, Device]) -> tuple[LimitDifference, ...]:
    """Return the settings that several devices have in different values, by name."""
    values: defaultdict[str, dict[str, int | str]] = defaultdict(dict)
    for name, device in devices.items():
        for setting in device.limits or ():
            values[setting.limit.name][name] = setting.limit.value
    return tuple(LimitDifference(name, values[name]) for name in sorted(values) if len({*values[name].values()}) > 1)


def compared(report: Report) -> list[str]:
    """Return the settings that differ, as the text report's lines."""
    if not report.limits_differ:
        return []
    lines = ["settings that differ between the devices of this text:"]
    for setting in report.limits_differ[:MAX_REMARKS]:
        each = [
            f"{device}{_dump(report.devices[device], setting.name)} {_value(setting.name, value)}"
            for device, value in setting.values.items()
        ]
        lines += wrapped(f"{setting.name}: {', '.join(each)}", "  ")
    return lines


def _dump(device: Device, name: str) -> str:
    """Return the dump that a setting is from, where its text names it: ` (vmcore.0/11X)`."""
    sources = (setting.limit.source for setting in device.limits or () if setting.limit.name == name)
    dump = next(sources, "").partition(", ")[2]
    return f" ({dump})" if dump else ""


def _value(name: str, value: int | str) -> str:
    """Return a value; that of a bit map of targets in hexadecimal, as the adapter's driver has it."""
    return f"{value:#x}" if isinstance(value, int) and name.startswith(_BIT_MAPS) else f"{value}"


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
