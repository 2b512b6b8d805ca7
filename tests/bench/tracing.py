"""bpftrace under test: its versions, latmon's programs, the peers' scripts, a running one and its programs' run time.

Everything runs behind latmon's own shim, so that no bpftrace outlives this process, however it ends. Run time is
switched on for as long as a file stays open (BPF_ENABLE_STATS, Linux 5.8), and read from the fdinfo of who loaded a
program: the kernel takes our use of it back when the file closes, and leaves kernel.bpf_stats_enabled as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import processes

from latmon.support import host
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace import tracer
from latmon_backends.bpftrace.program import BpftraceProgram, BpftraceTool, Tracepoints
from latmon_backends.probe.launcher import open_stats
from latmon_backends.tracer import programs as tracer_programs

ROOT = Path(__file__).resolve().parents[2]
_ATTACH_S = 60.0
_SETTLE_S = 0.4

BIOLATENCY = """
tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete {
	$s = @start[args->dev, args->sector];
	if ($s) { @us[args->dev] = hist((nsecs - $s) / 1000); delete(@start[args->dev, args->sector]); }
}
END { clear(@start); }
"""
"""The plain way: a start per (dev, sector), one histogram per device, neither queue nor bytes nor maxima."""

PLAIN_MAP = """
rawtracepoint:block_rq_issue { @start[arg0] = nsecs; }
rawtracepoint:block_rq_complete {
	$s = @start[arg0];
	if ($s) { @us = hist((nsecs - $s) / 1000); delete(@start[arg0]); }
}
END { clear(@start); }
"""
"""The plain way by request pointer: a start per request, one histogram."""

BIOSNOOP = """
tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete {
	$s = @start[args->dev, args->sector];
	if ($s) {
		$us = (nsecs - $s) / 1000;
		printf("%lld %d %s %lld %d %lld\\n", nsecs, args->dev, args->rwbs, args->sector, args->nr_sector, $us);
		delete(@start[args->dev, args->sector]);
	}
}
END { clear(@start); }
"""
"""One printed line per I/O."""

BIOTOP = """
tracepoint:block:block_rq_issue { @start[args->dev, args->sector] = (nsecs, pid, comm); }
tracepoint:block:block_rq_complete {
	$s = @start[args->dev, args->sector];
	if ($s.0) {
		@us[$s.1, $s.2, args->dev, args->rwbs] = stats((nsecs - $s.0) / 1000);
		@bytes[$s.1, $s.2, args->dev, args->rwbs] = sum(args->nr_sector * 512);
		delete(@start[args->dev, args->sector]);
	}
}
interval:s:1 { print(@us); print(@bytes); clear(@us); clear(@bytes); }
END { clear(@start); }
"""
"""I/Os, bytes and mean latency per process, device and op, printed each second."""

FILESLOWER = (
    "".join(
        f"""
tracepoint:syscalls:sys_enter_{call} {{ @start[tid] = nsecs; }}
tracepoint:syscalls:sys_exit_{call} {{
	$s = @start[tid];
	if ($s) {{
		$us = (nsecs - $s) / 1000;
		if ($us >= 10000) {{ printf("%lld %s %d {call} %lld %lld\\n", nsecs, comm, pid, args->ret, $us); }}
		delete(@start[tid]);
	}}
}}
"""
        for call in ("read", "write", "pread64", "pwrite64")
    )
    + "END { clear(@start); }\n"
)
"""A line per read and write of 10 ms or more. bcc's has kprobes in the VFS and the name of the file."""


_ON_BLOCK_IO = {"5": "tracepoint", "17": "raw tracepoint"}
"""prog_type: bpftrace's BEGIN and END are uprobes (2), which are there long before the others; an interval is 7."""


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """Have run times counted while this is open. OSError without the privilege or before Linux 5.8."""
    fd = open_stats()
    try:
        yield
    finally:
        os.close(fd)


@dataclasses.dataclass(frozen=True, slots=True)
class Spent:
    """Runs and run time of one program since it was loaded."""

    ns: int
    runs: int

    def since(self, earlier: Spent) -> Spent:
        return Spent(self.ns - earlier.ns, self.runs - earlier.runs)


def programs(pid: int) -> dict[int, Spent]:
    """Program id -> what it spent, of the programs on block I/O that process `pid` holds."""
    programs: dict[int, Spent] = {}
    for entry in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            fields = dict(line.split(":\t", 1) for line in entry.read_text().splitlines() if ":\t" in line)
        except OSError:  # closed between the two
            continue
        if fields.get("prog_type") in _ON_BLOCK_IO:
            programs[int(fields["prog_id"])] = Spent(int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return programs


def program_name(program: int) -> str:
    """Return bpftool's name, such as block_rq_issue, 15 characters at most; its id without bpftool."""
    try:
        text = subprocess.run(["bpftool", "prog", "show", "id", str(program), "-j"], capture_output=True, check=True)
        return str(json.loads(text.stdout)["name"])
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError):
        return str(program)


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A program and the tool that runs it."""

    name: str
    tool: BpftraceTool
    text: str

    @property
    def label(self) -> str:
        return f"{self.name}, bpftrace {self.tool.version}"


def tools(scratch: Path) -> dict[str, BpftraceTool]:
    """Version ("0.17", "0.23") -> tool: the host's own, and Debian 13's from a chroot."""
    wrapper = scratch / "bpftrace-trixie"
    wrapper.write_text(f'#!/bin/sh\nexec sh "{ROOT}/tests/lab/bpftrace-in" trixie "$@"\n')
    wrapper.chmod(0o755)
    bpftrace_tools = [bpftrace_program.find(), bpftrace_program.find({bpftrace_program.VARIABLE: str(wrapper)})]
    return {".".join(tool.version.split(".")[:2]): tool for tool in bpftrace_tools}


def always_on(tier: str, tool: BpftraceTool) -> Script:
    """latmon's probe of that tier as latmon starts it, one tick per second."""
    ahead_ns = host.suspended_us() * 1000
    variant = next(variant for variant in bpftrace_program.variants(1000, ahead_ns) if variant.manifest.tier == tier)
    return Script(f"latmon tier {tier}", tool, variant.text())


def on_demand(tier: str, tool: BpftraceTool, groups: tuple[str, ...]) -> Script:
    """latmon's deep probes of these groups, for every device and request, put together as latmon does it."""
    sys, on_demand_manifests = Path("/sys"), tracer.on_demand_manifests()
    tracepoints = Tracepoints(sys)
    words = tracer.words(tracepoints, sys)
    wanted = [on_demand_manifest for on_demand_manifest in on_demand_manifests if on_demand_manifest.group in groups]
    choice = tracer.choose(wanted, tier, tracepoints.has, words)
    values = tracer_programs.pace(1000) | tracer_programs.outliers(None) | {"one_in": 1, "any_dev": 1}
    values |= tracer.sampling(1)
    scripts = tuple(tracer.script(manifest, tracepoints.has, words, values) for manifest in choice.manifests)
    program = BpftraceProgram(scripts, tool.map_keys)
    given_groups = [group for group in groups if any(manifest.group == group for manifest in choice.manifests)]
    return Script(f"latmon tier {tier}: {', '.join(given_groups)}", tool, program.text())


def empty(script: Script, *, looks: bool = False) -> Script:
    """Return programs on the same hooks without a statement, or with one look into a map and nothing else.

    The first is what the kernel takes to call them, the second what the least condition of theirs takes.
    """
    hooks = dict.fromkeys(bpftrace_program.hooks_in(script.text))
    body = "{ if (@off != 0) { @n++; } }" if looks else "{ }"
    name = f"{'one look into a map' if looks else 'empty programs'} on the {len(hooks)} hooks of {script.name}"
    text = "".join(f"{hook} {body}\n" for hook in hooks)
    return Script(name, script.tool, f"BEGIN {{ @off = (uint64)0; }}\n{text}" if looks else text)


class Running:
    """A script that is attached."""

    def __init__(self, script: Script, pid: int) -> None:
        self.script, self.pid = script, pid
        self._names = {program: program_name(program) for program in programs(pid)}
        self._before = programs(pid)

    def begin(self) -> None:
        self._before = programs(self.pid)

    def spent(self) -> dict[str, Spent]:
        """Program name -> what it spent since `begin`; programs that never ran are left out."""
        now = programs(self.pid)
        differences = {self._names[program]: now[program].since(self._before[program]) for program in now}
        return {name: spent for name, spent in differences.items() if spent.runs}

    def each(self) -> list[tuple[str, Spent]]:
        """Return the same as `spent`, for programs of which several have one name."""
        now = programs(self.pid)
        return [(self._names[program], now[program].since(self._before[program])) for program in now]


def ns_per_io(spent: dict[str, Spent]) -> float:
    """All programs together, per run of the busiest: the kernel skips a completion's program now and then."""
    busiest = max((one.runs for one in spent.values()), default=0)
    return sum(one.ns for one in spent.values()) / busiest if busiest else 0.0


@contextlib.contextmanager
def running(script: Script) -> Iterator[Running]:
    """The script, from attached to gone."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            script.tool.command(script.text),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            start_new_session=True,
        )
        try:
            pid = attached(process, _hooks(script.text), _ATTACH_S)
            if pid is None:
                complaints.seek(0)
                raise RuntimeError(f"{script.label} did not start: {complaints.read()[-500:]!r}")
            yield Running(script, pid)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(10)


def attached(process: subprocess.Popen[bytes], wanted: int, seconds: float) -> int | None:
    """The bpftrace below `process`, once it has so many programs on block I/O; None when that takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        for pid in processes.descendants(process.pid, "bpftrace"):
            if len(programs(pid)) >= wanted:
                time.sleep(_SETTLE_S)
                return pid
        time.sleep(0.05)
    return None


def _hooks(text: str) -> int:
    return sum(line.startswith(("tracepoint:", "rawtracepoint:")) for line in text.splitlines())
