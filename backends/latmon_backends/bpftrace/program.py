"""bpftrace programs assembled from whole scripts, and the tiers of the always-on probe.

Knows how a script is laid out (a block's braces stand at the beginning of a line) and nothing of what it measures.

A variant is chosen by trying it; only what can be looked up for nothing (no kprobes at all) spares an attempt. Knows
the probes by their manifests and starts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.manifest.loader import Manifest, load
from latmon.support.paths import data_dir
from latmon_backends.bpftrace import kernel_hooks
from latmon_backends.tracer.programs import outliers, pace

_BLOCK = re.compile(r"^(BEGIN|END)\s*\{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
_HOOKS = re.compile(r"^((?:raw)?tracepoint:[^{/]+|k(?:ret)?probe:[^{/]+)", re.MULTILINE)
_COMMA = re.compile(r"\s*,\s*")
_OWN = re.compile(r"^(?:BEGIN|END|interval:)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A probe with its values."""

    manifest: Manifest
    values: Mapping[str, int | str]

    @property
    def hooks(self) -> tuple[str, ...]:
        """What its text attaches to, BEGIN, END and intervals apart; a manifest's list is for people."""
        return tuple(hook for found in _HOOKS.findall(self.text()) for hook in _COMMA.split(found.strip()))

    def text(self) -> str:
        return self.manifest.program(self.values)


@dataclass(frozen=True, slots=True)
class Program:
    """What one bpftrace runs, and how many keys each of its maps may have."""

    scripts: tuple[Script, ...]
    map_keys: int

    @property
    def hooks(self) -> tuple[str, ...]:
        """Of all scripts; two scripts on one hook are two attached probes."""
        return tuple(hook for script in self.scripts for hook in script.hooks)

    @property
    def attaches(self) -> int:
        """How many probes the tool attaches beside the hooks."""
        return len(_OWN.findall(self.text()))

    def text(self) -> str:
        """The bodies of BEGIN and END are put together: up to 0.23 a program has one of each."""
        texts = [script.text() for script in self.scripts]
        if len(texts) == 1:
            return texts[0]
        found = [(match[1], match[2]) for text in texts for match in _BLOCK.finditer(text)]
        bodies = {kind: "".join(body for name, body in found if name == kind) for kind in ("BEGIN", "END")}
        begin, end = (f"{kind}\n{{\n{body}}}\n" if body else "" for kind, body in bodies.items())
        return begin + "".join(_BLOCK.sub("", text) for text in texts) + end

    def script_at(self, line: int) -> Script | None:
        """Whose a line of the text (from 1) is, by the nearest map that is named; None for a line that isn't there."""
        lines = self.text().splitlines()
        if not 0 < line <= len(lines):
            return None
        near = sorted(range(len(lines)), key=lambda at: abs(at - line + 1))
        owners = (script for at in near for script in self.scripts if f"@{script.manifest.name}_" in lines[at])
        return next(owners, None)


_KPROBES = (
    (
        "kprobe:blk_update_request, kprobe:nvme_complete_batch_req",
        '(uint64)reg("ip") - (uint64)kaddr("blk_update_request") > 16',
    ),
    ("kprobe:blk_update_request", "1 == 0"),
)
_MEMBER = re.compile(r"\bdisk\b|rq_disk", re.IGNORECASE)
_STAMP = re.compile(r"io_start_time_ns")


@dataclass(frozen=True, slots=True)
class Variant:
    """A probe with its values. `only_after`, where given, must be found in the refusal of the variant before."""

    manifest: Manifest
    values: dict[str, int | str]
    only_after: re.Pattern[str] | None = None

    @property
    def name(self) -> str:
        words = [str(v) for k, v in self.values.items() if k in ("disk", "request", "hooks")]
        return " ".join([self.manifest.name, *words])

    @property
    def knows_clock(self) -> bool:
        """Its script was told how far its clock is ahead of the requests' stamps, which a suspend changes."""
        return "ahead_ns" in self.values

    def with_clock(self, ahead_ns: int) -> Variant:
        """The same, told anew where it must know."""
        return replace(self, values=self.values | {"ahead_ns": ahead_ns}) if self.knows_clock else self

    @property
    def script(self) -> Script:
        return Script(self.manifest, self.values)

    def program(self) -> str:
        return self.script.text()


def variants(
    interval_ms: int,
    ahead_ns: int,
    sys: Path = Path("/sys"),
    probes: Path | None = None,
    threshold_us: int | None = None,
) -> Iterator[Variant]:
    """From the best to the last. `ahead_ns`: how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC."""
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    base = pace(interval_ms) | outliers(threshold_us) | {"ahead_ns": ahead_ns}
    stamps = load(directory / "block_a.yaml")
    yield fitted(stamps, base | {"disk": "q->disk"})
    yield fitted(stamps, base | {"disk": "rq_disk"}, _MEMBER)
    yield from pointers(interval_ms, sys, probes, _STAMP, threshold_us)
    if has_kprobes(sys):
        kernel = load(directory / "block_b.yaml")
        for disk in ("q->disk", "rq_disk"):
            for hooks, batch in _KPROBES:
                yield fitted(kernel, base | {"disk": disk, "hooks": hooks, "batch": batch})
    yield fitted(load(directory / "block_c.yaml"), base)


def pointers(
    interval_ms: int,
    sys: Path,
    probes: Path | None = None,
    only_after: re.Pattern[str] | None = None,
    threshold_us: int | None = None,
) -> Iterator[Variant]:
    """Tier A': for requests without stamps; which argument is the request is read from BTF, never guessed."""
    issued = kernel_hooks.request_argument((sys / "kernel/btf/vmlinux"), "block_rq_issue")
    if issued is None:
        return
    directory = (data_dir("probes") if probes is None else probes) / "linux"
    manifest = load(directory / "block_ap.yaml")
    base = pace(interval_ms) | outliers(threshold_us)
    for disk, after in (("q->disk", only_after), ("rq_disk", _MEMBER)):
        yield fitted(manifest, base | {"disk": disk, "request": f"arg{issued}"}, after)


def fitted(manifest: Manifest, values: dict[str, int | str], only_after: re.Pattern[str] | None = None) -> Variant:
    """The probe with those of the values that it takes."""
    taken = {parameter.name for parameter in manifest.parameters}
    return Variant(manifest, {name: value for name, value in values.items() if name in taken}, only_after)


def has_kprobes(sys: Path = Path("/sys")) -> bool:
    """False where the kernel was built without kprobes: perf has no such event source then."""
    return (sys / "bus/event_source/devices/kprobe").exists() or (sys / "kernel/kprobes").exists()
