"""Which deep scripts run here, and with which values: from their manifests, the always-on tier and what the kernel has.

Pure but for reading manifests. A script that is left out is named with its reason. Starts nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latmon.errors import ManifestError
from latmon.manifest import Manifest, load
from latmon.model import Missing
from latmon.resources import data_dir
from latmon_backends import btf
from latmon_backends.bpftrace_program import Script
from latmon_backends.tracepoints import Tracepoints

GROUPS = ("inflight", "stages", "irqs", "softirqs", "wakeups", "bios", "order")
"""In the order of their text: what is in flight is counted before a completion's stages are told."""
_VARIANTS = {"A": ("A", "C"), "A'": ("A", "C")}
"""Always-on tier -> tiers of deep scripts, the better one first. Where raw tracepoints attach, others do as well."""
_CPUS_EACH = 16
"""Up to so many CPUs sums are read at each request: some 0.1 us for a CPU and a request."""
_LOOK_US = 3719
"""A prime: it shares no period with ticks of 1, 2.5, 4 or 10 ms."""
Has = Callable[[str], bool | None]
"""Whether the kernel has a hook; None: not known."""
Values = Mapping[str, int | str]
Words = Mapping[str, tuple[int | str, ...]]
"""Parameter -> what it is to be on this host; scripts differ in what they take, so the first that one takes counts."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The scripts in the order of their text, and what of the deep probes is missing here."""

    manifests: tuple[Manifest, ...] = ()
    missing: tuple[Missing, ...] = ()


def deep_manifests(probes: Path | None = None) -> tuple[Manifest, ...]:
    """All of them; a file that isn't right is an error, as of every probe."""
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    found = (load(path) for path in sorted(directory.glob("*.yaml")))
    return tuple(one for one in found if one.group in GROUPS)


def choose(
    found: Sequence[Manifest],
    tier: str,
    has: Has,
    words: Words,
    refused: Mapping[str, str] | None = None,
    *,
    cpus: int | None = None,
) -> Choice:
    """One variant of each script, the best that can run; `refused`: those that were tried, and what was said.

    `cpus`: how many the kernel may ever have, as far as that is known.
    """
    chosen: dict[str, Manifest] = {}
    missing: list[Missing] = []
    for stem in _stems(found):
        why = "needs tier A: bpftrace 0.19 or newer, kernel BTF"
        for one in _variants(found, stem, tier):
            if chosen.keys() & set(one.unless):
                break
            why = (refused or {}).get(one.name, "") or _too_many(one, cpus) or _obstacle(one, has, words, chosen)
            if not why:
                chosen[one.name] = one
                break
        else:
            missing.append(Missing(stem, why))
    return Choice(tuple(chosen.values()), tuple(missing))


def script(manifest: Manifest, has: Has, words: Words, values: Values) -> Script:
    """With its values; ManifestError where one is not known."""
    known = _words_of(manifest, has, words)
    unknown = [one.name for one in manifest.parameters if one.name not in {**known, **values}]
    if unknown:
        raise ManifestError(f"nothing is known to be the value of {', '.join(unknown)}")
    taken = {one.name for one in manifest.parameters}
    return Script(manifest, {name: value for name, value in {**known, **values}.items() if name in taken})


def hooks(manifest: Manifest, has: Has, words: Words) -> tuple[str, ...]:
    """What it attaches to here."""
    return tuple(dict.fromkeys(_hooks(manifest, _words_of(manifest, has, words))))


def words(tracepoints: Tracepoints, sys: Path, machine: str = platform.machine()) -> Words:
    """What this kernel calls things."""
    told = tracepoints.has("tracepoint:irq_vectors:local_timer_entry")
    has_timer = machine in ("x86_64", "i686") if told is None else told
    entry, leave = ("local_timer_entry", "local_timer_exit") if has_timer else ("irq_handler_entry", "irq_handler_exit")
    category = "irq_vectors" if has_timer else "irq"
    bio = btf.request_argument(sys / "kernel/btf/vmlinux", "block_bio_queue") or 0
    issued = btf.request_argument(sys / "kernel/btf/vmlinux", "block_rq_issue") or 0
    return {
        "disk": ("q->disk", "bi_disk" if "bi_disk" in tracepoints else "bi_bdev->bd_disk"),
        "request": (f"arg{issued}",),
        "bio": (f"arg{bio}",),
        "queue": (_bio_queue(tracepoints),),
        "timer_entry": (f"{category}:{entry}", entry),
        "timer_exit": (f"{category}:{leave}", leave),
        "timer_context": (int(has_timer),),
    }


def _bio_queue(tracepoints: Tracepoints) -> str:
    """Return the shortest path from a bio to its device's request_queue that this kernel's types have."""
    if "bi_disk" in tracepoints:
        return "bi_disk->queue"
    return "bi_bdev->bd_queue" if "bd_queue" in tracepoints else "bi_bdev->bd_disk->queue"


def possible_cpus(sys: Path) -> int | None:
    """CPUs that a map has a place for, plugged in or not: "0-3" or "0,2-5"; None: not known."""
    try:
        ranges = (sys / "devices/system/cpu/possible").read_text(encoding="ascii").strip().split(",")
        ends = [[int(end) for end in one.split("-")] for one in ranges]
    except (OSError, ValueError):
        return None
    return sum(one[-1] - one[0] + 1 for one in ends)


def looks(cpus: int) -> dict[str, int]:
    """How often sums that are kept per CPU are read, which costs as much as there are CPUs.

    Every 4 ms, 0.25 % of a CPU, and at every request, where there are few. Not quite 4 ms: a load that is periodic
    itself, by the timer's tick for one, is met at all of its phases.
    """
    each = max(1, -(-cpus // _CPUS_EACH))
    return {"sample_us": min(200_000, _LOOK_US * each), "read_one_in": min(1024, each)}


def with_found(words: Words, always_on: Values) -> Words:
    """What the always-on probe found by trying is better than what was looked up."""
    return {
        name: (*((always_on[name],) if name in always_on else ()), *words.get(name, ())) for name in {*words, "disk"}
    }


def _stems(found: Sequence[Manifest]) -> Iterator[str]:
    """Names without their variant's letter, in the order of GROUPS and so that what a script needs is before it."""
    ordered = sorted(found, key=lambda one: (GROUPS.index(one.group), len(one.needs), one.name))
    yield from dict.fromkeys(stem(one.name) for one in ordered)


def stem(name: str) -> str:
    """`stages` of stages_a and stages_c."""
    return name.rpartition("_")[0] or name


def _variants(found: Sequence[Manifest], of: str, tier: str) -> Iterator[Manifest]:
    for letter in _VARIANTS.get(tier, ("C",)):
        yield from (one for one in found if stem(one.name) == of and one.tier == letter)


def _obstacle(one: Manifest, has: Has, words: Words, chosen: Mapping[str, Manifest]) -> str:
    """Why the script can't run; empty when nothing is known against it."""
    absent = next((need for need in one.needs if need not in chosen), "")
    if absent:
        return f"needs {absent}"
    lost = next((hook for hook in _hooks(one, _words_of(one, has, words)) if has(hook) is False), "")
    return f"this kernel has no tracepoint {lost.partition(':')[2]}" if lost else ""


def _too_many(one: Manifest, cpus: int | None) -> str:
    """Why the script costs too much here."""
    if not one.max_cpus or cpus is None or cpus <= one.max_cpus:
        return ""
    return f"costs too much on more than {one.max_cpus} CPUs, this kernel has room for {cpus}"


def _words_of(manifest: Manifest, has: Has, words: Words) -> dict[str, int | str]:
    """Parameters that this host decides: as `words` says, else the first word whose hooks the kernel has."""
    found: dict[str, int | str] = {}
    for one in manifest.parameters:
        fitting = [word for word in words.get(one.name, ()) if not one.words or word in one.words]
        if fitting:
            found[one.name] = fitting[0]
        elif one.words:
            found[one.name] = next(
                (word for word in one.words if _attaches(manifest, {**found, one.name: word}, has)), one.words[0]
            )
    return found


def _attaches(manifest: Manifest, values: Values, has: Has) -> bool:
    return all(has(hook) is not False for hook in _hooks(manifest, values))


def _hooks(manifest: Manifest, values: Values) -> tuple[str, ...]:
    """With anything for the values that don't matter here."""
    others = {one.name: one.words[0] if one.words else one.low for one in manifest.parameters}
    return Script(manifest, {**others, **values}).hooks
