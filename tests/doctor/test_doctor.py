import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from latmon.capture.backend import Options, ProbeCost, ProbeReport
from latmon.capture.registry import Request
from latmon.doctor import checks as doctor_checks
from latmon.doctor import command
from latmon.doctor.checks import Check, Output, Place, Status, run
from latmon.model.frame import Frame, Missing, Traced
from latmon.support.errors import UnavailableError
from latmon_backends.probe import launcher
from latmon_backends.probe_backend import ProbeBackend

USER = 1000
PROBING = 1 << 39 | 1 << 38 | 1 << 2 | 1 << 1


class Host:
    """A directory that a Place looks at, and the commands that it answers."""

    def __init__(self, root):
        self.root = root
        self.answers = {}
        self.place = Place(
            proc=root / "proc",
            sys=root / "sys",
            etc=root / "etc",
            boot=root / "boot",
            root=root,
            environ={"PATH": str(root / "bin")},
            uid=0,
            platform="linux",
            run=lambda command: self.answers.get(tuple(command)[-1], Output(127, "")),
        )

    def write(self, path, text=""):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def config(self, *lines):
        self.write("proc/sys/kernel/osrelease", "6.1\n")
        self.write("boot/config-6.1", "\n".join(lines) + "\n")

    def tool(self, version="bpftrace v0.23.2\n", code=0):
        path = self.write("bin/bpftrace")
        path.chmod(0o755)
        self.answers["--version"] = Output(code, version)
        return path

    def dtrace(self, trial=Output(0, ""), version="dtrace: Oracle D 2.0\n", system="linux"):  # noqa: B008 - frozen
        path = self.write("bin/dtrace")
        path.chmod(0o755)
        self.answers |= {"-V": Output(0, version), "BEGIN": trial}
        self.place = replace(self.place, platform=system)
        return path

    def as_user(self):
        self.place = replace(self.place, uid=USER)


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setattr("latmon.support.trust._ADMIN", ())
    return Host(tmp_path)


def test_a_tool_of_today(host):
    path = host.tool()
    assert doctor_checks.bpftrace(host.place) == Check("bpftrace", Status.OK, f"v0.23.2 ({path})")


@pytest.mark.parametrize(
    ("release", "remedy"),
    [
        ("ID=debian", "sudo apt-get install bpftrace"),
        ("ID=fedora", "sudo dnf install bpftrace"),
        ("ID=arch", "sudo pacman -S bpftrace"),
        ("ID=other", "install bpftrace with this system's package manager"),
    ],
)
def test_no_tool_names_the_command_of_this_distribution(host, release, remedy):
    host.write("etc/os-release", release)
    host.as_user()
    bpftrace = doctor_checks.bpftrace(host.place)
    assert (bpftrace.status, bpftrace.remedy) == (Status.MISSING, remedy)


def test_root_needs_no_sudo(host):
    host.write("etc/os-release", "ID=debian")
    assert doctor_checks.bpftrace(host.place).remedy == "apt-get install bpftrace"


def test_a_tool_that_does_not_run_says_what_it_reported(host):
    host.tool("error while loading shared libraries: \x1b[31mlibbcc.so\n", 127)
    bpftrace = doctor_checks.bpftrace(host.place)
    assert bpftrace.status is Status.MISSING
    assert "libbcc" in bpftrace.what
    assert bpftrace.what.isprintable()


def test_an_old_tool_is_degraded(host):
    host.tool("bpftrace v0.14.0\n")
    assert doctor_checks.bpftrace(host.place).status is Status.DEGRADED


def test_a_named_tool_that_is_missing_is_not_installed_but_named_again(host):
    place = replace(host.place, environ={"LATMON_BPFTRACE": "./bpftrace"})
    bpftrace = doctor_checks.bpftrace(place)
    assert "absolute path" in bpftrace.what
    assert "LATMON_BPFTRACE" in bpftrace.remedy


def test_a_dtrace_that_runs(host):
    path = host.dtrace()
    host.write("proc/self/mounts", "debugfs /sys/kernel/debug debugfs rw 0 0\n")
    assert doctor_checks.dtrace_tool(host.place) == Check("dtrace", Status.OK, f"2.0 ({path})")


@pytest.mark.parametrize(
    ("text", "words", "remedy"),
    [
        (
            'dtrace: invalid probe specifier BEGIN: "io.d", line 134: failed to resolve vmlinux`major_names: Unknown\n',
            "without CONFIG_KALLSYMS_ALL",
            "CONFIG_KALLSYMS_ALL=y",
        ),
        ("dtrace: failed to initialize dtrace: DTrace device not available on system\n", "device not available", ""),
    ],
)
def test_a_dtrace_that_can_not_be_used_says_why_in_a_sentence(host, text, words, remedy):
    host.dtrace(Output(1, text))
    dtrace_tool = doctor_checks.dtrace_tool(host.place)
    assert dtrace_tool.status is Status.DEGRADED
    assert words in dtrace_tool.what
    assert "major_names" not in dtrace_tool.what
    assert remedy in dtrace_tool.remedy


def test_a_dtrace_that_needs_root_points_to_the_privilege(host):
    host.dtrace(Output(1, "sudo: a password is required\n"))
    host.as_user()
    assert doctor_checks.dtrace_tool(host.place).what.endswith("it needs root: see `privilege`")


def test_that_debugfs_is_mounted_for_dtrace_alone_is_reported(host):
    host.dtrace()
    assert "debugfs mounted for itself" in doctor_checks.dtrace_tool(host.place).what
    assert "gets debugfs" not in doctor_checks.dtrace_tool(replace(host.place, platform="sunos5")).what


def test_a_dtrace_that_hangs_is_not_ok(host):
    host.dtrace(Output(124, ""))
    dtrace_tool = doctor_checks.dtrace_tool(host.place)
    assert "30 s" in dtrace_tool.what
    assert dtrace_tool.remedy


def test_a_dtrace_that_was_named_is_named_again(host):
    path = host.dtrace(version="Usage\n")
    named = replace(host.place, environ={**host.place.environ, "LATMON_DTRACE": str(path)})
    assert doctor_checks.dtrace_tool(named).remedy.startswith("set LATMON_DTRACE")
    assert "install" in doctor_checks.dtrace_tool(host.place).remedy


def test_debian_has_its_dtrace_in_sid(host):
    host.write("etc/os-release", "ID=debian\n")
    assert doctor_checks.dtrace_tool(host.place).remedy == "Debian sid has it; see docs/DTRACE.md"


@pytest.mark.parametrize(("letter", "status"), [("A", Status.OK), ("", Status.DEGRADED)])
def test_what_a_named_dtrace_would_measure_with_stands_beside_bpftrace(host, letter, status):
    load, _ = asked({"dtrace": letter})
    probe_report = ProbeReport("A", "fine")
    assert command.beside(host.place, probe_report, load) == ()
    named = replace(host.place, environ={**host.place.environ, "LATMON_DTRACE": "/opt/dtrace"})
    (made,) = command.beside(named, probe_report, load)
    assert made.status is status
    assert command.beside(named, ProbeReport("", "none"), load) == ()


@pytest.mark.parametrize(
    ("system", "remedy"),
    [("linux", "install dtrace with"), ("sunos5", "part of the system"), ("freebsd14", "kldload dtraceall")],
)
def test_no_dtrace(host, system, remedy):
    dtrace_tool = doctor_checks.dtrace_tool(replace(host.place, platform=system))
    assert dtrace_tool.status is Status.MISSING
    assert remedy in dtrace_tool.remedy


def test_on_linux_dtrace_has_a_line_where_there_is_one(host):
    def names():
        return [check.name for check in command.all_checks(host.place, EXPLAINED)]

    assert "dtrace" not in names()
    host.place = replace(host.place, environ={**host.place.environ, "LATMON_DTRACE": "/no/such"})
    assert "dtrace" in names()
    host.place = replace(host.place, environ={"PATH": str(host.root / "bin")})
    host.dtrace()
    assert "dtrace" in names()
    host.dtrace(version="Usage dtrace [--help] [-h | -G] [-C [-I<Path>]] -s File.d [-o <File>]\n")
    assert "dtrace" not in names()


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (
            Output(0, "7:\t-bash\nflags = <none>\n\tE: basic,dtrace_kernel,dtrace_proc\n\tI: basic\n"),
            Status.OK,
            "dtrace_k",
        ),
        (Output(0, "7:\t-bash\n\tE: all\n\tI: basic\n"), Status.OK, "dtrace_kernel"),
        (Output(0, "7:\t-bash\n\tE: all,!dtrace_kernel\n"), Status.DEGRADED, "without the privilege"),
        (Output(0, "7:\t-bash\n\tE: basic\n\tL: all\n"), Status.DEGRADED, "without the privilege dtrace_kernel"),
        (Output(127, ""), Status.DEGRADED, "ppriv doesn't list"),
    ],
)
def test_the_privileges_of_solaris(host, answer, status, words):
    host.as_user()
    host.answers["ppriv $$"] = answer
    dtrace_privilege = doctor_checks.dtrace_privilege(replace(host.place, platform="sunos5"))
    assert dtrace_privilege.status is status
    assert words in dtrace_privilege.what
    assert ("defaultpriv=basic,dtrace_kernel" in dtrace_privilege.remedy) is (status is not Status.OK)


def test_freebsd_wants_root_or_sudo(host):
    there = replace(host.place, platform="freebsd15")
    assert doctor_checks.dtrace_privilege(there).what == "root"
    host.answers[":"] = Output(0, "")
    assert doctor_checks.dtrace_privilege(replace(there, uid=USER)).what.startswith("sudo starts")


def test_freebsd_s_modules(host):
    host.as_user()
    assert doctor_checks.dtrace_modules(host.place).remedy == "sudo kldload dtraceall"
    host.answers["dtraceall"] = Output(0, "")
    assert doctor_checks.dtrace_modules(host.place).status is Status.OK


@pytest.mark.parametrize(
    ("answer", "status"),
    [(Output(0, "global\n"), Status.OK), (Output(0, "web1\n"), Status.DEGRADED), (Output(127, ""), Status.OK)],
)
def test_a_zone_has_none_of_the_kernel_s_probes(host, answer, status):
    host.answers["zonename"] = answer
    assert doctor_checks.dtrace_zone(host.place).status is status


def test_packages_are_named_with_their_versions(host, monkeypatch):
    assert [check.status for check in doctor_checks.packages(host.place)] == [Status.OK] * 3
    monkeypatch.setattr(doctor_checks, "_PACKAGES", ("surely-not-installed",))
    (missing,) = doctor_checks.packages(host.place)
    assert (missing.status, missing.remedy) == (Status.MISSING, "pip install 'surely-not-installed'")


def test_python(host):
    assert doctor_checks.python(host.place).status is Status.OK


def capabilities(host, bits, ambient=0):
    host.write("proc/self/status", f"Name:\tx\nCapEff:\t{bits:016x}\nCapBnd:\t0\nCapAmb:\t{ambient:016x}\n")


def test_root(host):
    capabilities(host, 2**41 - 1)
    assert doctor_checks.privilege(host.place).what == "root"


def test_root_of_a_container_can_not_trace(host):
    capabilities(host, 0xA80425FB)
    assert doctor_checks.privilege(host.place).status is Status.DEGRADED


@pytest.mark.parametrize(("ambient", "status"), [(PROBING, Status.OK), (0, Status.DEGRADED)])
def test_capabilities_are_enough_when_the_probe_inherits_them(host, ambient, status):
    host.as_user()
    capabilities(host, PROBING, ambient)
    assert doctor_checks.privilege(host.place).status is status


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (Output(0, ""), Status.OK, "sudo starts"),
        (Output(1, "Sorry, user x is not allowed to execute"), Status.DEGRADED, "may not start a shell"),
        (Output(1, "sudo: a password is required"), Status.DEGRADED, "requires a password"),
        (Output(127, ""), Status.DEGRADED, "not installed"),
    ],
)
def test_sudo_is_asked_for_what_starts_the_probe(host, answer, status, words):
    host.as_user()
    host.place = replace(host.place, run=lambda command: {"sudo -n sh -c :": answer}[" ".join(command)])
    privilege = doctor_checks.privilege(host.place)
    assert privilege.status is status
    assert words in privilege.what


def test_diskstats(host):
    assert doctor_checks.diskstats(host.place).status is Status.MISSING
    host.write("proc/diskstats", " 8 0 sda 1\n")
    assert doctor_checks.diskstats(host.place).status is Status.OK
    assert doctor_checks.diskstats(replace(host.place, platform="freebsd14")).status is Status.DEGRADED
    solaris = replace(host.place, platform="sunos5")
    assert "psutil" in doctor_checks.diskstats(solaris).what
    host.answers["disk"] = Output(0, "sd:0:sd0:reads\t1\n")
    assert doctor_checks.diskstats(solaris).status is Status.OK


def test_iostats_that_are_off_are_named_with_the_command(host):
    host.write("sys/block/sda/queue/iostats", "0\n")
    host.write("sys/block/zram0/queue/iostats", "0\n")
    assert doctor_checks.iostats(host.place).status is Status.OK
    (host.root / "sys/block/sda/mq").mkdir()
    host.as_user()
    iostats = doctor_checks.iostats(host.place)
    assert iostats.status is Status.DEGRADED
    assert "sda" in iostats.what
    assert "zram0" not in iostats.what
    assert iostats.remedy == "sudo sh -c 'echo 1 > /sys/block/sda/queue/iostats'"


def test_btf(host):
    assert doctor_checks.btf(host.place).status is Status.DEGRADED
    host.write("sys/kernel/btf/vmlinux")
    assert doctor_checks.btf(host.place).status is Status.OK


def test_tracefs(host):
    assert doctor_checks.tracefs(host.place).status is Status.MISSING
    host.write("proc/filesystems", "nodev\tproc\nnodev\ttracefs\n")
    (host.root / "sys/kernel/tracing").mkdir(parents=True)
    unmounted = doctor_checks.tracefs(host.place)
    assert (unmounted.status, unmounted.remedy) == (
        Status.DEGRADED,
        "mount -t tracefs tracefs /sys/kernel/tracing",
    )
    host.write("sys/kernel/debug/tracing/events/block/enable")
    assert doctor_checks.tracefs(host.place).what == "/sys/kernel/debug/tracing"
    host.write("sys/kernel/tracing/events/block/enable")
    assert doctor_checks.tracefs(host.place).what == "/sys/kernel/tracing"


def test_kprobes_are_no_condition(host):
    assert doctor_checks.kprobes(host.place).status is Status.OK
    host.config("# CONFIG_KPROBES is not set")
    assert "only tier B" in doctor_checks.kprobes(host.place).what
    host.config("CONFIG_KPROBES=y")
    assert doctor_checks.kprobes(host.place).what == "the kernel has them"


@pytest.mark.parametrize(
    ("state", "config", "status"),
    [
        ("1\n", "", Status.OK),
        ("2\n", "", Status.OK),
        ("0\n", "", Status.DEGRADED),
        ("", "", Status.DEGRADED),
        ("", "CONFIG_BPF_JIT_ALWAYS_ON=y", Status.OK),
    ],
)
def test_jit(host, state, config, status):
    host.write("proc/sys/net/core/bpf_jit_enable", state)
    host.config(config)
    assert doctor_checks.jit(host.place).status is status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("[none] integrity confidentiality\n", Status.OK),
        ("none [integrity] confidentiality\n", Status.OK),
        ("none integrity [confidentiality]\n", Status.MISSING),
    ],
)
def test_lockdown(host, text, status):
    host.write("sys/kernel/security/lockdown", text)
    assert doctor_checks.lockdown(host.place).status is status


def test_lockdown_that_can_not_be_read_is_unknown(host):
    (host.root / "sys/kernel/security").mkdir(parents=True)
    assert doctor_checks.lockdown(host.place).remedy == "mount -t securityfs securityfs /sys/kernel/security"
    host.config("# CONFIG_SECURITY_LOCKDOWN_LSM is not set")
    assert doctor_checks.lockdown(host.place).status is Status.OK


def test_tick(host):
    assert doctor_checks.tick(host.place).status is Status.DEGRADED
    host.config("CONFIG_HZ=1000")
    assert doctor_checks.tick(host.place).what == "1000 ticks per second"


def test_container(host):
    assert doctor_checks.container(host.place).what == "none"
    host.write(".dockerenv")
    assert doctor_checks.container(host.place).status is Status.DEGRADED


@pytest.mark.parametrize(
    ("environ", "size", "status", "words"),
    [
        ({"TERM": "xterm-256color"}, (160, 50), Status.OK, "160x50, 256 colours"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, (80, 24), Status.OK, "true colour"),
        ({"TERM": "linux", "NO_COLOR": "1"}, (80, 24), Status.OK, "no colours"),
        ({"TERM": "screen"}, (79, 24), Status.DEGRADED, "small"),
        ({"TERM": "dumb"}, (80, 24), Status.DEGRADED, "can't be drawn on"),
        ({}, (80, 24), Status.DEGRADED, "(unset)"),
    ],
)
def test_terminal(host, environ, size, status, words):
    terminal = doctor_checks.terminal(replace(host.place, environ=environ), size)
    assert terminal.status is status
    assert words in terminal.what


def test_a_pipe_is_not_the_terminal(host, monkeypatch):
    monkeypatch.setattr(doctor_checks, "_size", lambda: None)
    terminal = doctor_checks.terminal(replace(host.place, environ={"TERM": "xterm"}))
    assert terminal.status is Status.REMARK  # a pipe is not the terminal that the screen is drawn on
    assert "not checked" in terminal.what


@pytest.mark.parametrize(
    ("letter", "why", "status", "words"),
    [
        ("A", "rawtracepoints attach", Status.OK, "A, rawtracepoints attach"),
        ("C", "", Status.OK, "C"),
        ("D", "no BTF", Status.DEGRADED, "counters only: no BTF"),
        ("", "needs root", Status.DEGRADED, "counters only: needs root"),
    ],
)
def test_the_tier_is_what_the_backend_says(host, letter, why, status, words):
    tier_check = command.tier_check(
        command.report(host.place, lambda _name, _target: lambda _environ: ProbeReport(letter, why))
    )
    assert tier_check.status is status
    assert tier_check.what.endswith(words)


def asked(by_backend):
    """The explanations of each backend, and the backends that were asked."""
    names = []

    def load(name, target):
        names.append(name)
        assert target == f"latmon_backends.{name}.backend:explain"
        letter = by_backend[name]
        return lambda _environ, reason="": SimpleNamespace(tier=letter, why=reason or name)

    return load, names


@pytest.mark.parametrize(
    ("by_backend", "expected", "why"),
    [
        ({"bpftrace": "C"}, ["bpftrace"], "bpftrace"),
        ({"bpftrace": "", "dtrace": "A"}, ["bpftrace", "dtrace"], "bpftrace"),
        ({"bpftrace": "", "dtrace": ""}, ["bpftrace", "dtrace"], "bpftrace"),
    ],
)
def test_on_linux_dtrace_is_asked_where_bpftrace_does_not_run(host, by_backend, expected, why):
    host.dtrace()
    load, names = asked(by_backend)
    assert command.report(host.place, load).why == why
    assert names == expected


@pytest.mark.parametrize("system", ["sunos5", "freebsd15"])
def test_elsewhere_dtrace_alone_is_asked(host, system):
    load, names = asked({"dtrace": "A"})
    assert command.report(replace(host.place, platform=system), load).tier == "A"
    assert names == ["dtrace"]


def test_a_backend_that_cannot_be_loaded_is_a_reason(host):
    def refuse(_name, _target):
        raise UnavailableError("it isn't there.")

    probe_report = command.report(host.place, refuse)
    assert command.tier_check(probe_report).what == "D, the kernel's counters only: it isn't there."
    assert command.matrix(probe_report) == []


def stage(name, always, a, c):
    return SimpleNamespace(stage=name, always=always, traced={"A": a, "C": c})


EXPLAINED = SimpleNamespace(
    tier="B",
    why="",
    stages=(
        stage("hba", "yes, with irq in it", "stages_a", "stages_c"),
        stage("irq", "no: not separated", "stages_a", "no: no such hook"),
        stage("softirq", "no: not separated", "stages_a", "no: no such hook"),
    ),
    hooks={"stages_a": ("rawtracepoint:x",), "stages_c": ("tracepoint:block:y", "tracepoint:irq:z")},
    drivers={"nvme": "hard interrupt: hba, irq"},
    ages={"A": "inflight_a, bio_ages_a", "C": "no: needs tier A"},
    kept="a start tries block_c first, by /var/cache/latmon/x.json",
)


def test_stage_by_stage_what_measures_it_and_why_not():
    head, *rows = (line.split() for line in command.matrix(EXPLAINED))
    assert " ".join(head) == "stage always traced, tier A traced, tier C (here)"
    assert [" ".join(row) for row in rows] == [
        "hba yes stages_a stages_c",
        "irq - stages_a -",
        "softirq - stages_a -",
        "hba always: with irq in it",
        "irq, softirq not traced: no such hook",
        'in flight: ages are "at least", the waiting threads are not known: needs tier A',
        "nvme completes: hard interrupt: hba, irq",
    ]


def test_without_an_always_on_probe_no_tier_is_the_hosts():
    without = SimpleNamespace(**vars(EXPLAINED) | {"tier": "", "why": "needs root"})
    assert "(here)" not in "".join(command.matrix(without))
    assert command.as_values(without)[0]["here"] == ""
    assert "not known: no script of the tracer runs here" in command.in_flight(without)


def test_where_requests_are_followed_that_is_reported():
    on_a = SimpleNamespace(**vars(EXPLAINED) | {"tier": "A'"})
    assert command.in_flight(on_a).startswith("each I/O's age and its issuer, while the tracer runs (inflight_a,")


def test_dtrace_has_one_kind_of_on_demand_probes():
    one = SimpleNamespace(stage="resume", always="no: not separated", traced={"dtrace": "resume_d"})
    made = SimpleNamespace(
        tier="C",
        why="",
        stages=(one,),
        hooks={"resume_d": ("io:::wait-start",), "wakeups_d": ("sched:::wakeup",)},
        drivers={},
        ages={"dtrace": "no: no D script follows each I/O"},
    )
    head, row, flight = command.matrix(made)
    assert (head.split(), row.split()) == (
        ["stage", "always", "traced,", "dtrace", "(here)"],
        ["resume", "-", "resume_d"],
    )
    assert flight.endswith("no D script follows each I/O")
    assert command.as_values(made)[0]["here"] == "dtrace"


def found(**statuses):
    status = {"python": Status.OK, "diskstats": Status.OK, "tier": Status.OK} | statuses
    return [Check(name, each, "what", "" if each is Status.OK else "mend") for name, each in status.items()]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({}, True),
        ({"tier": Status.DEGRADED}, True),
        ({"diskstats": Status.MISSING}, True),
        ({"diskstats": Status.MISSING, "tier": Status.DEGRADED}, False),
        ({"python": Status.MISSING}, False),
    ],
)
def test_usable_when_anything_can_measure(monkeypatch, capsys, statuses, expected):
    monkeypatch.setattr(command, "all_checks", lambda *_: found(**statuses))
    monkeypatch.setattr(command, "report", lambda *_, **_backend: EXPLAINED)
    monkeypatch.setattr(command, "beside", lambda *_: ())
    assert command.doctor_command(as_json=False) == (0 if expected else 3)
    assert ("can measure here" in capsys.readouterr().out) is expected


def test_text_has_each_check_and_its_remedy():
    lines = command.render_text(found(tier=Status.DEGRADED), EXPLAINED).splitlines()
    assert lines[0] == "latmon can measure here; to improve: tier."
    assert lines[2].split() == ["python", "ok", "what"]
    assert lines[4].split() == ["tier", "degraded", "what"]
    assert lines[5].split() == ["->", "mend"]
    assert lines[7].startswith("stage")


def test_what_would_be_better_than_a_lesser_tier():
    why = "tier C, because tier A needs bpftrace 0.19 or newer, and this is 0.17.0"
    check = command.tier_check(SimpleNamespace(**vars(EXPLAINED) | {"tier": "C", "why": why}))
    assert check.status is Status.REMARK
    assert check.what == (
        "C, because tier A needs bpftrace 0.19 or newer, and this is 0.17.0; not measured: irq, softirq, exact ages of "
        "I/Os in flight"
    )
    assert check.remedy.startswith("for tier A install a newer bpftrace")
    refused = "tier C, because tier A is refused: bpftrace 0.23.2 ERROR loading"
    assert not command.tier_check(SimpleNamespace(**vars(EXPLAINED) | {"tier": "C", "why": refused})).remedy


def test_on_a_terminal_lines_are_folded_below_what_they_are_about(monkeypatch):
    monkeypatch.setattr(command.host, "name", lambda: "vm")
    monkeypatch.setattr(command.host, "kernel", lambda: "Linux 6.1")
    checks = [Check("bpftrace", Status.OK, "word " * 30, "remedy " * 20), *found()]
    lines = command.render_text(checks, EXPLAINED, 60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[2:6] == [
        f"bpftrace   ok        {'word ' * 8}".rstrip(),
        *(f"{'':21}{'word ' * n}".rstrip() for n in (8, 8, 6)),
    ]
    assert lines[6].split()[:2] == ["->", "remedy"]
    assert lines[10].split()[:2] == ["python", "ok"]


def test_json_is_for_scripts():
    reported = json.loads(command.render_json(found(tier=Status.DEGRADED), EXPLAINED))
    assert (reported["schema"], reported["usable"]) == ("latmon.doctor/1", True)
    assert reported["checks"][0] == {"name": "python", "status": "ok", "what": "what"}
    assert reported["checks"][2]["remedy"] == "mend"
    assert reported["stages"][0] == {
        "stage": "hba",
        "always": "yes, with irq in it",
        "traced": {"A": "stages_a", "C": "stages_c"},
        "here": "C",
    }
    assert reported["hooks"]["stages_a"] == ["rawtracepoint:x"]


def test_what_later_starts_try_first_is_a_line_where_it_is_kept(host):
    (line,) = (one.what for one in command.all_checks(host.place, EXPLAINED) if one.name == "probe cache")
    assert line == EXPLAINED.kept
    nothing = SimpleNamespace(**vars(EXPLAINED) | {"kept": ""})
    assert "probe cache" not in {one.name for one in command.all_checks(host.place, nothing)}


def test_every_check_runs_on_a_host_with_nothing(host):
    host.root.joinpath("proc").mkdir()
    checks = command.all_checks(host.place, EXPLAINED)
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.what.isprintable() for check in checks)


@pytest.mark.parametrize(("system", "own"), [("sunos5", "zone"), ("freebsd14", "modules"), ("netbsd10", "dtrace")])
def test_on_another_system_dtrace_is_the_tool_and_the_linux_checks_are_left_out(host, system, own):
    names = [check.name for check in command.all_checks(replace(host.place, platform=system), EXPLAINED)]
    assert {"btf", "bpftrace", "kprobes"}.isdisjoint(names)
    assert {"dtrace", "privilege", "diskstats", "terminal", "tier", own} <= set(names)


def test_commands_are_run_without_input():
    assert run(["cat"]) == Output(0, "")
    assert run(["/no/such/command"]).code == 127
    assert run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Output(3, "out\nerr\n")


COSTS = (
    ProbeCost("always-on probe", 5.0, 10_000, cpu_ns=5_000_000, run_ns=20_000_000, runs=20_000, calls_ns=1_000_000),
    ProbeCost("tracer", 5.0, 10_000, cpu_ns=0, run_ns=100_000_000, runs=40_000, calls_ns=2_000_000, one_in=4),
    ProbeCost("latmon", 5.0, 10_000, cpu_ns=50_000_000),
)


def cells(line):
    return line.split()[-6:]


def test_the_cost_of_each_probe_and_of_latmon():
    text = command.overhead_lines(command.Overhead("", "bpftrace 0.23.2, tier A", COSTS[::2], COSTS))
    rows = {line.strip().partition("  ")[0]: line for line in text if "  2,000" in line}
    assert cells(rows["always-on probe"]) == ["2,000", "2,000", "0.40", "0.02", "0.10", "0.52"]
    assert cells(rows["tracer, one I/O in 4"]) == ["2,000", "10,000", "2.00", "0.04", "0.00", "2.04"]
    assert cells(rows["latmon"]) == ["2,000", "-", "-", "-", "1.00", "1.00"]
    assert max(map(len, text)) <= 80


def test_without_io_there_is_no_cost_per_io():
    idle = tuple(replace(probe_cost, ios=0) for probe_cost in COSTS[::2])
    text = command.overhead_lines(command.Overhead("", "bpftrace", idle, (), "a reason"))
    assert "ns/IO is not known: no I/O was completed meanwhile" in text
    assert "with stages: not measured: a reason" in text
    assert cells(next(line for line in text if "always-on" in line))[:2] == ["0", "-"]


class CostedBackend:
    """A backend whose cost is made up, and whose tracer starts with the third frame, or never."""

    origin = SimpleNamespace(tool="bpftrace 0.23.2", tier="A", backend="bpftrace", reason="")

    def __init__(self, reason=""):
        self.mode, self.reason, self.modes = "basic", reason, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def set_stages(self, mode):
        self.modes.append(mode)

    async def cost(self, _frames, _seconds):
        return COSTS if self.modes else COSTS[::2]

    async def frames(self):
        for at in range(5):
            starting = Missing("hba", "the probes are starting" if not self.reason else self.reason)
            yield Frame(at, 0.0, at, 1, traced=Traced(one_in=int(at > 1 and not self.reason), absent=(starting,)))


@pytest.mark.parametrize("reason", ["", "no tracer for it"])
def test_the_cost_is_measured_without_and_with_stages(monkeypatch, reason):
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    backend, progress = CostedBackend(reason), []
    monkeypatch.setattr(command.registry, "opened", lambda _request: backend)
    monkeypatch.setattr(command, "TRACER_STARTING", "the probes are starting")
    overhead = command.measure_overhead(Request("auto"), progress.append)
    assert (overhead.alone, overhead.traced) == (COSTS[::2], () if reason else COSTS)
    assert (overhead.untraced, overhead.measured_with) == (reason, "bpftrace 0.23.2, tier A")
    assert backend.modes == ["all"]
    assert command.overhead_values(overhead)["without_stages"][0]["run_ns"] == 20_000_000


def test_no_cost_without_root_or_without_a_probe(monkeypatch):
    monkeypatch.setattr(command.os, "geteuid", lambda: USER)
    refused = command.measure_overhead(Request("auto"), str)
    assert "only root can read the run time of probes" in refused.refused
    assert command.overhead_lines(refused)[0].startswith("overhead  MISSING")
    assert command.overhead_values(refused)["measured"] is False
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    refused = command.measure_overhead(Request("procfs", Options(stages="basic")), str)
    assert "procfs has no probes whose cost could be measured" in refused.refused


async def test_probes_that_end_before_their_cost_is_measured_are_named(monkeypatch):
    monkeypatch.setattr(launcher, "counted_time", nullcontext)

    async def none():
        for _ in ():
            yield

    with pytest.raises(UnavailableError, match="the probes ended while they were measured"):
        await ProbeBackend.cost(SimpleNamespace(), none(), 1.0)
