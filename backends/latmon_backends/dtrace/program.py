"""The dtrace tool and its programs: assembled from whole scripts, and which scripts are for this system.

The tool has a path, privileges, options and messages: drops, faults, refusals. It runs nothing but `-V`. Of a message
that repeats the program (`-n`) only the reason is kept. All texts are clean.

D allows any number of BEGIN and END clauses, which run in their order. A script that is left out is listed with its
reason.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from latmon.manifest import TABLE_ROLES, Manifest, load_all
from latmon.model.frame import STAGES, Missing
from latmon.model.histogram import BITS
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.host import install_command
from latmon.support.paths import data_dir
from latmon.support.text import clean
from latmon.support.trust import find_tool
from latmon_backends.probe.launcher import AnyProgram, Script, Values
from latmon_backends.probe.process import answer, is_mounted, shimmed
from latmon_backends.tracer.programs import ChosenScripts

VARIABLE = "LATMON_DTRACE"
PLATFORMS = {"Linux": "linux", "SunOS": "illumos", "FreeBSD": "freebsd"}
"""uname's name of a system -> a manifest's."""
_VERSION = re.compile(r"D (\d{1,6}(?:\.\d{1,6}){1,3})", re.ASCII)
_OTHERS = "[-h | -G]"
"""Part of the usage text of SystemTap's `dtrace`, which makes headers of probes."""
_ANSWERS_S = 10.0
_LOG_LINEAR = "BEGIN { @ = llquantize(8, 2, 3, 34, 16); }"
"""A complaint of the compiler repeats what doesn't compile."""
_OPTIONS = {
    # A start for each I/O in flight, and for each that never completes.
    "dynvarsize": "32m",
    "aggsize": "8m",
    "bufsize": "1m",
    "strsize": "64",
}
_TIMELY = {"linux": {}, "illumos": {"switchrate": "10hz", "aggrate": "10hz"}}
"""Lines come a second late otherwise. On Linux they come at once, and higher rates make it lose ticks."""
_GRACE_S = 0.6
"""Its last output comes within 10 ms. Detaching takes 2 to 17 s; killing it is quicker."""
_REMOVE_EVENTS = (
    "for f in kprobe_events uprobe_events; do f=/sys/kernel/tracing/$f; "
    '[ -w $f ] && sed -n "s,^[^:]*:\\(dt_${p}_[^ ]*\\) .*,-:\\1,p" $f | while read -r e; do echo "$e" >>$f; done; '
    "done 2>/dev/null; "
)
"""The kernel keeps the events that a killed dtrace made for its BEGIN and END, and for fbt, until it restarts."""
MAX_REASON = 200
_DROPS = re.compile(
    r"(?:\[DTRACEDROP_[A-Z]++\] )?([0-9]{1,20}) ((?:jstack\(\)/ustack\(\) )?[a-z ]+?)s?(?: in ERROR probe enabling)?"
    r"(?: on CPU (?:([0-9]{1,6})|#)| with non-empty (?:rinsing|dirty) list| \((?:available|no spec)[a-z() ]+\))?"
)
_LOST = {
    "drop": "principal",
    "aggregation drop": "aggregation",
    "dynamic variable drop": "dynamic",
    "speculative drop": "speculation",
    "failed speculation": "speculation",
    "jstack()/ustack() string table overflow": "stkstrtab",
    "error": "error",
}
_FAULTS = (
    re.compile(r"error in [^ ]++ for probe ID [0-9]++ \(([^()]*+)\): (.++)"),
    re.compile(r"error on enabled probe ID [0-9]++ \(ID [0-9]++: ([^()]*+)\): (.++)"),
)
_STARTED = re.compile(r"(?:script|description) '.*' matched ([0-9]{1,9}) probes?", re.DOTALL)
_REASONS = (
    re.compile(r"failed to compile script [^\n]*?: (line [0-9]++: .++)", re.DOTALL),
    re.compile(r"failed to compile script [^\n]*?: (.++)", re.DOTALL),
    re.compile(r"failed to initialize dtrace: (.++)", re.DOTALL),
    re.compile(r"failed to enable '.*': (.++)", re.DOTALL),
    re.compile(
        r"((?:failed|could not|unable|cannot|can't|invalid option|no probes specified|processing aborted).*+)",
        re.DOTALL,
    ),
    re.compile(r"(run as root .*+)", re.DOTALL),
)
_BEGINNINGS = (": probe description ", ": syntax error", ": in action list", ": in predicate", ": line ")
_END_OF_PROGRAM = re.compile(r"\}\s*: ")
_LIBRARY = re.compile(r'"[^"]+\.d", line [0-9]+: ')
_TAG = re.compile(r"\[D[A-Z]*+_[A-Z0-9_]++\] ")
_REPEATING = ("dtrace: invalid probe specifier ", "dtrace: description '", "dtrace: failed to enable '")
_PRIVILEGE = (
    "additional privileges",
    "run as root",
    "operation not permitted",
    "permission denied",
    "a password is required",
)
PORTABLE = ("illumos", "linux", "freebsd")
"""The order of the words of a portable script."""
MAP_KEYS = 65_536
"""An aggregation is limited by its memory alone, and drops are reported; more keys count as a full map."""
NONE_THERE = "this system has no D script for that"
INVASIVE = "it is invasive and needs an explicit --invasive"


@dataclass(frozen=True, slots=True)
class DtraceTool:
    """The installed dtrace and how it must be started."""

    name: ClassVar[str] = "dtrace"
    """The tool's name in manifests."""
    path: str
    system: str
    """The system's name in manifests."""
    sudo: bool = False
    mount_debugfs: bool = False
    version: str = ""
    """`2.0.7`; empty before `examined`, and where the tool doesn't print it."""
    has_llquantize: bool = True
    """Whether its histograms have latmon's buckets; Solaris 10 has only quantize(), one bucket per octave."""

    def running(self, program: AnyProgram) -> list[str]:
        """Return the words that run a program."""
        return self.command(program.text())

    def command(self, program: str) -> list[str]:
        """Return the words that run `program`, given as text: a chroot or a wrapper needs no file of ours."""
        options = _OPTIONS | _TIMELY.get(self.system, _TIMELY["illumos"])
        return self._words(
            ["-q", *(word for key, value in options.items() for word in ("-x", f"{key}={value}"))], program
        )

    def listing(self, hooks: Sequence[str]) -> list[str]:
        """Return the words that list those of the probes that exist; the others are named on stderr."""
        return self._words(["-l", *(word for hook in hooks for word in ("-n", hook))])

    def compiling(self, program: str) -> list[str]:
        """Return the words that compile a program and don't run it."""
        return self._words(["-e", "-q"], program)

    def _words(self, options: Sequence[str], program: str | None = None) -> list[str]:
        words = [self.path, *options, *(() if program is None else ("-n", program))]
        after = _REMOVE_EVENTS if self.system == "linux" else ""
        environment = {"LC_ALL": "C"}
        return shimmed(
            words, environment, sudo=self.sudo, mount_debugfs=self.mount_debugfs, grace_s=_GRACE_S, after=after
        )


def find(
    environ: Mapping[str, str] = os.environ,
    proc: Path = Path("/proc"),
    euid: int | None = None,
    system: str = platform.system(),
) -> DtraceTool:
    """Find the tool that LATMON_DTRACE names, else `dtrace`; UnavailableError where it or its scripts are missing."""
    if system not in PLATFORMS:
        raise UnavailableError(f"There are no D scripts for {system or 'this system'}: only for {_systems()}.")
    try:
        path = str(find_tool("dtrace", VARIABLE, environ))
    except UnavailableError as error:
        if environ.get(VARIABLE):
            raise
        raise UnavailableError(f"dtrace is not installed: {_remedy(PLATFORMS[system])}.") from error
    euid = os.geteuid() if euid is None else euid
    return DtraceTool(
        path=path,
        system=PLATFORMS[system],
        sudo=euid != 0 and system != "SunOS" and shutil.which("sudo") is not None,
        mount_debugfs=system == "Linux" and not is_mounted("debugfs", proc),
    )


async def examined(tool: DtraceTool) -> DtraceTool:
    """Return the tool with its version and abilities. UnavailableError where it is another program of that name."""
    printed = await answer(shimmed([tool.path, "-V"], {"LC_ALL": "C"}, sudo=False), within_s=_ANSWERS_S, most=4096)
    match = _VERSION.search(printed)
    if match is None and _OTHERS in printed:
        raise UnavailableError(
            f"{tool.path} is SystemTap's program of that name, not DTrace: name DTrace's in {VARIABLE}."
        )
    # Versions of D don't show it: illumos has it since 1.7, Oracle's port to Linux since 1.6.4 (dt_open.c of each).
    complaint = (
        "" if tool.system != "illumos" else await answer(tool.compiling(_LOG_LINEAR), within_s=_ANSWERS_S, most=4096)
    )
    return replace(tool, version=match[1] if match else "", has_llquantize="llquantize" not in complaint)


def is_listed(hook: str, listed: str) -> bool:
    """Return whether `dtrace -l` listed a probe of this description, in which an empty part and `*` mean any."""
    wanted = hook.split(":")
    wanted = [""] * (4 - len(wanted)) + wanted
    patterns = [re.compile(_pattern(part)) for part in wanted]
    for line in listed.splitlines():
        words = line.split()
        if not words or not words[0].isdecimal():
            continue
        # ID PROVIDER MODULE FUNCTION NAME, of which the two in the middle may be blank.
        module, function, *_ = [*words[2:-1], "", ""]
        found = (words[1], module, function, words[-1])
        other = (words[1], "", module, words[-1])
        if any(
            all(p.fullmatch(at) for p, at in zip(patterns, names_of_hook, strict=True))
            for names_of_hook in (found, other)
        ):
            return True
    return False


def _pattern(part: str) -> str:
    return ".*" if not part else re.escape(part).replace(r"\*", ".*").replace(r"\?", ".")


def _systems() -> str:
    return "Linux, Solaris, illumos and FreeBSD"


def _remedy(system: str) -> str:
    if system == "linux":
        return install_command("dtrace") or "install the package dtrace (Oracle's DTrace 2.0 or newer)"
    return "it is part of the system" if system == "illumos" else "load it with `kldload dtraceall`"


@dataclass(frozen=True, slots=True)
class Drops:
    """Lost data: records (`principal`), `aggregation`, `dynamic` (variables), `speculation`, `stkstrtab`, `error`.

    `cpu` is None where none is named.
    """

    kind: str
    count: int
    cpu: int | None


@dataclass(frozen=True, slots=True)
class Fault:
    """A clause that failed once at run time; tracing goes on."""

    probe: str
    what: str


@dataclass(frozen=True, slots=True)
class Started:
    """A program that matched this number of probes."""

    probes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The sentence why DTrace does not trace, or no longer."""

    reason: str


@dataclass(frozen=True, slots=True)
class Other:
    """Anything else."""

    text: str


Message = Drops | Fault | Started | Refused | Other


def messages(stderr: str) -> Iterator[Message]:
    """Yield the messages of `stderr`: lines, but one that repeats the program extends to the next `dtrace: `."""
    for one in re.split(r"^(?=dtrace: )", stderr, flags=re.MULTILINE):
        parts = [one] if one.startswith(_REPEATING) else one.split("\n")
        yield from (message(part) for part in parts if part.strip())


def reason(complaints: Sequence[str], status: int) -> str:
    """Return why dtrace ended, from the end of its stderr: one sentence without a full stop or the program's text."""
    printed = "\n".join(complaints)
    found = [message for message in messages(printed) if isinstance(message, Refused | Other)]
    for complaint in found:
        if isinstance(complaint, Refused):
            return complaint.reason.strip(" .")
    if _END_OF_PROGRAM.search(printed):  # the program is longer than what is kept of stderr
        return _sentence(_after_the_program(printed)).strip(" .")
    others = [complaint.text for complaint in found if isinstance(complaint, Other)]
    return others[-1].strip(" .") if others else f"dtrace ended with status {status}"


def message(text: str) -> Message:
    """Decode one message, of one line or of several."""
    printed = text.strip().removeprefix("dtrace: ")
    if (match := _DROPS.fullmatch(printed)) and match[2] in _LOST:
        return Drops(_LOST[match[2]], int(match[1]), None if match[3] is None else int(match[3]))
    for fault in _FAULTS:
        if match := fault.fullmatch(printed):
            return Fault(clean(match[1], MAX_REASON), clean(match[2], MAX_REASON))
    if match := _STARTED.fullmatch(printed):
        return Started(int(match[1]))
    why = _why(printed)
    return Other(_sentence(printed)) if why is None else Refused(_sentence(why))


def _why(printed: str) -> str | None:
    if printed.startswith("invalid probe specifier "):
        return _after_the_program(printed)
    return next((match[1] for pattern in _REASONS if (match := pattern.fullmatch(printed))), None)


def _after_the_program(printed: str) -> str:
    """Return the text after the repeated program, which ends in a brace, or after a repeated probe."""
    if ends := list(_END_OF_PROGRAM.finditer(printed)):
        return printed[ends[-1].end() :]
    at = max(printed.rfind(beginning) for beginning in _BEGINNINGS)
    if at >= 0:
        return printed[at + 2 :]
    return printed.rpartition(": ")[2] if ": " in printed else "the program is refused"


def _sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return clean(" ".join(_TAG.sub("", line[: 4 * MAX_REASON]).split()), MAX_REASON)


def is_privilege(text: str) -> bool:
    """Return whether DTrace lacks privileges."""
    printed = text.lower()
    return any(words in printed for words in _PRIVILEGE)


def is_library(text: str) -> bool:
    """Return whether DTrace can't compile a file of its own library, which it reads for every program."""
    return _LIBRARY.match(text) is not None


@dataclass(frozen=True, slots=True)
class NamedScript(Script):
    """A script whose name has the words that were chosen for its parameters, where there is a choice."""

    @property
    def name(self) -> str:
        words = (str(self.values[parameter.name]) for parameter in self.manifest.parameters if len(parameter.words) > 1)
        return " ".join((self.manifest.name, *words))


def fillings(manifest: Manifest, values: Values, system: str = "") -> Iterator[Script]:
    """Yield the script with the possible words of its parameters, the likeliest first.

    The first words of all its parameters belong to one kernel, and so do the second ones. Where a parameter has fewer
    words, its last stays. Each word of a portable script belongs to one system.
    """
    choices = {parameter.name: parameter.words for parameter in manifest.parameters if parameter.words}
    order = list(range(max(map(len, choices.values()), default=1)))
    if manifest.platform == "portable" and system in PORTABLE[: len(order)]:
        order.insert(0, order.pop(PORTABLE.index(system)))
    for at in order:
        chosen = {name: words[min(at, len(words) - 1)] for name, words in choices.items()}
        yield NamedScript.fitted(manifest, {**values, **chosen})


@dataclass(frozen=True, slots=True)
class DtraceProgram:
    """Scripts that one dtrace process runs. The first begins with a clause: dtrace -n takes no declaration first."""

    scripts: tuple[Script, ...]

    @property
    def hooks(self) -> tuple[str, ...]:
        """Hooks of all scripts; two scripts on one hook are two clauses."""
        return tuple(hook for script in self.scripts for hook in script.manifest.hooks)

    @property
    def map_keys(self) -> int:
        return MAP_KEYS

    @property
    def joined(self) -> bool:
        return False

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(script.manifest for script in self.scripts)

    def text(self) -> str:
        return "".join(script.text() for script in self.scripts)


def manifests(system: str, probes: Path | None = None, *, has_llquantize: bool = True) -> tuple[Manifest, ...]:
    """Load all D scripts for a system, its own before the portable ones; ManifestError for a malformed file."""
    found_manifests = [
        manifest for manifest in load_all(data_dir("probes") if probes is None else probes) if manifest.tool == "dtrace"
    ]
    fitting = [manifest for manifest in found_manifests if manifest.platform in (system, "portable")]
    fitting.sort(key=lambda manifest: (manifest.platform == "portable", manifest.name))
    # A portable script has the clock of the system that it runs on.
    bits = BITS if has_llquantize else 0
    return tuple(
        replace(manifest, clock="hrtime" if system == "freebsd" else manifest.clock, bits=bits) for manifest in fitting
    )


def always_on(found_manifests: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Return the always-on scripts, the best first: by tier, then the system's own before the portable ones.

    A script with a better one for this system (`unless`) is left out, even if that one is refused.
    """
    names = {manifest.name for manifest in found_manifests}
    fitting = (
        manifest for manifest in found_manifests if manifest.group == "always" and not names & set(manifest.unless)
    )
    return tuple(sorted(fitting, key=lambda manifest: manifest.tier))


def check_invasive(names: Sequence[str], found_manifests: Sequence[Manifest]) -> None:
    """Raise UsageError for a name that none of the invasive scripts has."""
    known = {manifest.name for manifest in found_manifests if manifest.cost == "invasive"}
    for name in names:
        if name not in known:
            raise UsageError(f"--invasive: there is no invasive probe {name!r} here; {_listed(known)}")


def choose(
    found_manifests: Sequence[Manifest],
    has: Callable[[str], bool | None],
    invasive: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
) -> ChosenScripts:
    """Choose the tracer's scripts whose hooks exist, without those that another one replaces.

    `has` None: not known, so the script is tried. `invasive`: scripts that the user allows. `refused`: scripts that
    were tried -> why they don't run.
    """
    chosen: dict[str, Manifest] = {}
    missing: list[Missing] = []
    for manifest in sorted(
        (found_manifest for found_manifest in found_manifests if found_manifest.group != "always"),
        key=lambda found_manifest: bool(found_manifest.unless),
    ):
        if chosen.keys() & set(manifest.unless):
            continue
        why = (refused or {}).get(manifest.name, "")
        if not why and manifest.cost == "invasive" and manifest.name not in invasive:
            why = f"{INVASIVE} {manifest.name}"
        if not why and (lacking := [hook for hook in manifest.hooks if has(hook) is False]):
            why = f"there is no probe {lacking[0]} here"
        if not why and (absent := [name for name in manifest.needs if name not in chosen]):
            why = f"needs {absent[0]}"
        if why:
            missing.append(Missing(manifest.name, why))
        else:
            chosen[manifest.name] = manifest
    return ChosenScripts(tuple(chosen.values()), tuple(missing))


def why_not(what: str, choice: ChosenScripts, found_manifests: Sequence[Manifest]) -> str:
    """Return why no chosen script measures a stage or a table: why others don't run, else the scripts' own reason."""
    refusals = [
        f"{missing.name}: {missing.reason}"
        for missing in choice.missing
        for able in found_manifests
        if able.name == missing.name and measures(able, what)
    ]
    reasons = (
        manifest.absent[what] for manifest in choice.manifests if manifest.group != "bios" and what in manifest.absent
    )
    return "; ".join(refusals) or next(reasons, "") or NONE_THERE


def measures(manifest: Manifest, what: str) -> bool:
    """Return whether a script measures a stage of requests, or has a table."""
    if what in STAGES:
        return manifest.group != "bios" and what in manifest.stages
    return any(
        name.startswith(TABLE_ROLES[what]) for name in (*(spec.role for spec in manifest.maps), *manifest.records)
    )


def untraced(choice: ChosenScripts, found_manifests: Sequence[Manifest]) -> tuple[Missing, ...]:
    """Return what no chosen script measures; a stage that is included in another one counts as measured."""
    included = {
        inner
        for manifest in choice.manifests
        for stage in manifest.stages
        for inner in manifest.includes.get(stage, ())
    }
    names = (*(stage for stage in STAGES if stage != "total" and stage not in included), *TABLE_ROLES)
    lacking = (name for name in names if not any(measures(manifest, name) for manifest in choice.manifests))
    on_demand = [manifest for manifest in found_manifests if manifest.group != "always"]
    return tuple(Missing(name, why_not(name, choice, on_demand)) for name in lacking)


def _listed(known: set[str]) -> str:
    return f"there are {', '.join(sorted(known))}" if known else "there is none at all"
