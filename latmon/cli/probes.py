"""`latmon probes`: purpose, requirements and cost of each probe, from the manifests.

Runs nothing: whether a probe can run here is doctor's question.
"""

from __future__ import annotations

from latmon.manifest.loader import Manifest, load_all
from latmon.model.stages import called
from latmon.support.errors import EXIT_DONE, UsageError
from latmon.support.paths import data_dir

_TABLES = {
    "handler_run": "run time of each interrupt handler, by what it returned",
    "handler_before": "how long other handlers of its vector ran first",
    "softirq_delay": "raise to entry of each softirq vector, by CPU",
    "softirq_run": "run time of each softirq vector, by CPU",
    "wakeup": "waking to running of threads",
    "depth_driver": "how many requests a device has in the driver, and how many wait, over time",
    "depth_issue": "how many the driver has when one is issued",
    "depth_time": "how long a request took, by how many the device had when it came",
}
"""What a map of a role says, where it is no stage of an I/O."""

_TOLD = {
    "issue": "bursts of neighbours as they go to the driver",
    "waiting": "requests that have not completed, the oldest of them",
    "slow": "each I/O above the threshold, as far as the rate limit lets it",
    "resumed": "who waited for a slow I/O, and how long until it ran again",
    "late": "wake-ups of 1 ms and more",
    "limit": "limits of each device, as its driver has them",
}


def list_probes() -> int:
    """One line per probe on stdout; the exit code."""
    manifests = load_all(data_dir("probes"))
    rows = [(one.name, one.platform, one.cost, one.purpose) for one in manifests]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return EXIT_DONE


def show(name: str | None) -> int:
    """A probe's manifest in words, or those of a group; UsageError for a name that isn't there."""
    manifests = load_all(data_dir("probes"))
    found = [one for one in manifests if one.name == name] or [one for one in manifests if name in _groups(one)]
    if not found:
        wanted = f"there is no probe {name!r}" if name else "probes show needs a NAME"
        raise UsageError(f"{wanted}; the probes are {', '.join(one.name for one in manifests)}")
    print("\n\n".join("\n".join(f"{key:<9} {text}" for key, text in _lines(one)) for one in found))
    return EXIT_DONE


def _groups(probe: Manifest) -> tuple[str, str]:
    """Names under which a report says that it is missing: its group's, and its own without the tier."""
    return probe.group, probe.name.removesuffix(f"_{probe.tier.lower()}")


def _lines(probe: Manifest) -> list[tuple[str, str]]:
    lines = [
        ("name", probe.name),
        *([("group", probe.group)] if probe.group not in ("", probe.name) else []),
        ("purpose", probe.purpose),
        ("platform", f"{probe.platform}, {probe.tool}, tier {probe.tier}"),
        ("cost", probe.cost),
        *(("needs", need) for need in probe.requirements),
        *(("part of", f"{name}, in one program with it") for name in _partners(probe)),
        *(("measures", _measured(stage, probe)) for stage in _stages(probe)),
        *(("measures", what) for what in _tables(probe)),
        *(("tells", _TOLD[kind]) for kind in probe.records if kind in _TOLD),
        *(("absent", f"{stage}: {why}") for stage, why in probe.absent.items()),
        *(("note", note) for note in probe.notes),
        *(("source", source) for source in probe.sources),
        *(("has run", where) for where in _ran(probe)),
        ("script", str(probe.script)),
    ]
    keys = ["", *(key for key, _ in lines)]
    return [("" if key == before else key, text) for before, (key, text) in zip(keys, lines, strict=False)]


def _ran(probe: Manifest) -> tuple[str, ...]:
    """Where a D script has really run: most systems that they are for are not at hand. bpftrace's run in the tests."""
    if probe.tool != "dtrace":
        return probe.ran_on
    return tuple(f"on {where}" for where in probe.ran_on) or ("nowhere yet",)


def _partners(probe: Manifest) -> tuple[str, ...]:
    """Probes it can't do without. The stages' probe tells what is in flight; `needs` can't say that: it is later."""
    return probe.needs or (("stages_" + probe.tier.lower(),) if probe.group == "inflight" else ())


def _stages(probe: Manifest) -> list[str]:
    return list(dict.fromkeys(stage for one in probe.maps if one.role == "histogram" for stage in one.stages))


def _tables(probe: Manifest) -> list[str]:
    roles = {one.role for one in probe.maps}
    return [what for role, what in _TABLES.items() if role in roles]


def _measured(stage: str, probe: Manifest) -> str:
    included = probe.includes.get(stage, ())
    return f"{called(stage, included).both}, with {', '.join(included)} in it" if included else stage
