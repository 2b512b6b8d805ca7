"""DTrace's parts one by one: columns as keys, names as devices, what is in flight, limits, which scripts and tool."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fake_dtrace import HEADER, manifests
from fake_host import FakeHost

from latmon.capture.backend import Options
from latmon.decode.framer import ProbeInterval
from latmon.decode.tables import Record, thread_label
from latmon.decode.tables import record as decoded
from latmon.manifest import Parameter
from latmon.model.frame import NAMED_FROM, NOT_KNOWN, Device, Flow, Limit, Missing, Outstanding, Thread, pid_of
from latmon.model.histogram import TOP, bucket_index
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.paths import data_dir
from latmon_backends import probe_backend
from latmon_backends.dtrace import probe as dtrace_decoder
from latmon_backends.dtrace import program
from latmon_backends.dtrace.backend import InFlightGauge, NamedThreads
from latmon_backends.dtrace.probe import DtraceDecoder, Maps, NamedDevices, NoCounters, NumberedNames
from latmon_backends.dtrace.program import DtraceTool, examined, find, is_listed
from latmon_backends.kernel.counters import KernelSampler
from latmon_backends.probe.events import CountedMap, HandlerNamed, Printed, UndecodedLine
from latmon_backends.probe.outliers import Outliers
from latmon_backends.probe.process import answer, shimmed
from latmon_backends.probe_backend import ReportedLimits
from tests.helpers.dtrace_text_writer import record, scalar, table

SD, INTR, THREADS = (next(one for one in manifests() if one.name == name) for name in ("sd", "intr", "emlxs_thread"))
BITS = {spec.name: spec for one in (SD, INTR, THREADS) for spec in one.maps}


@pytest.fixture
def names():
    return NumberedNames()


@pytest.fixture
def events(names):
    maps, decoder = Maps((SD, INTR, THREADS), names), DtraceDecoder()

    def taken(text):
        events = [
            event for part in (decoder.feed(text.encode()), decoder.close()) for one in part for event in maps.take(one)
        ]
        return [*events, *maps.close()]

    return taken


def read(name, key):
    """A key's parts but its name's number, by names."""
    return {part.name: part.read(key) for part in BITS[name].key}


# ---- columns and tables


def test_a_table_is_buckets_of_microseconds(events, names):
    (event,) = events(table("sd_total", ("sd2", 0), {0: 3, 7: 1, 1000: 2, 42_000: 1}))
    assert {(read("sd_total", key)["bucket"], n) for key, n in event.values.items()} == {
        (bucket_index(us), n) for us, n in ((0, 3), (7, 1), (1000, 2), (42_000, 1))
    }
    assert {names.name(read("sd_total", key)["dev"]) for key in event.values} == {"sd2"}


@pytest.mark.parametrize("family", ["illumos", "oracle"])
def test_what_is_below_and_above_all_rows(events, family):
    (event,) = events(table("sd_total", ("sd2", 1), {0: 5, 1 << 40: 2}, family))
    assert {read("sd_total", key)["bucket"]: n for key, n in event.values.items()} == {0: 5, TOP: 2}


def test_times_below_zero_are_no_times(events):
    rows = "@@Q sd_total\tsd2\t0\t\n" + f"{'value':>16}  ------------- Distribution ------------- count    \n"
    rows += f"{'-16':>16} |{'@' * 20:<40} 4        \n{'-8':>16} |{'':<40} 0        \n@@E\n"
    reported = events(rows)
    assert [undecoded_line for undecoded_line in reported if isinstance(undecoded_line, UndecodedLine)] == [
        UndecodedLine("4 times below 0")
    ]
    assert not any(counted_map.values for counted_map in reported if isinstance(counted_map, CountedMap))


def test_a_map_is_whole_when_a_line_of_ours_comes(events):
    text = scalar("sd_sum", ("sd2", 0), 7) + scalar("sd_sum", ("sd0", 1), 9) + record("done", "sd")
    first, done = events(text)
    assert (first.name, sorted(first.values.values()), done) == ("sd_sum", [7, 9], Printed("done sd"))


@pytest.mark.parametrize(
    "text",
    [
        scalar("sd_nothing", ("sd2", 0), 1),
        scalar("sd_sum", ("sd2",), 1),
        scalar("sd_sum", ("sd2", 0, 0), 1),
        scalar("sd_sum", ("sd2", "read"), 1),
        scalar("sd_sum", ("sd2", -1), 1),
        scalar("sd_sum", ("sd2", 256), 1),
        scalar("sd_total", ("sd2", 0), 1),
        table("sd_sum", ("sd2", 0), {5: 1}),
        table("sd_total", ("sd2",), {5: 1}),
    ],
    ids=[
        "unknown",
        "few",
        "many",
        "word",
        "negative",
        "no room",
        "a number for a table",
        "a table for a number",
        "few of a table",
    ],
)
def test_what_the_manifest_does_not_have_is_not_understood(events, text):
    assert [type(event) for event in events(text)] == [UndecodedLine]


def test_names_end_and_are_clean(names, monkeypatch):
    monkeypatch.setattr(dtrace_decoder, "MAX_NAMES", 3)
    assert [names.number(name) for name in ("sd\x1b[31m0", "sd1", "sd2", "sd1")] == [1, 2, 0, 2]
    assert [names.name(number) for number in (0, 1, 3, -1)] == [None, names.name(1), None, None]
    assert "\x1b" not in names.name(1)


def test_handlers_are_named_once(events):
    lines = (
        scalar("intr_sum", ("emlxs0", 1), 5)
        + scalar("intr_sum", ("emlxs0", 0), 5)
        + scalar("intr_waited", ("ipmi0",), 5)
    )
    reported = [handler_named for handler_named in events(lines) if isinstance(handler_named, HandlerNamed)]
    assert reported == [HandlerNamed("intr", 1, "emlxs0"), HandlerNamed("intr", 2, "ipmi0")]


def test_records_have_numbers_for_names(events, names):
    first, late, none = events(
        record("slow", "sd", -35, "266338304", 0, 8, 8192, 1, 2, 10, 5, 0, 5, 261, 4711, text="oracle db")
        + "@@ late emlxs_thread emlxs0_channel4\t97\t5\t1900\toracle db\t99\temlxs0_channel4\n"
        + record("other", "sd", "sd2")
    )
    assert first.text == f"slow sd -35 {names.number('266338304')} 0 8 8192 1 2 10 5 0 5 261 4711 oracle db"
    number, other = (NAMED_FROM + names.number(one) for one in ("emlxs0_channel4", "oracle db"))
    assert late.text == f"late emlxs_thread {number} 97 5 1900 {other} 99 emlxs0_channel4"
    assert none.text == "other sd sd2"
    assert events(record("slow", "sd", 1, -1, 0))[0].text == "slow sd 1 -1 0"


def test_a_thread_that_is_a_name_has_no_pid(events, names):
    (event,) = events(scalar("emlxs_thread_instead", ("emlxs0_channel4", "oracle"), 3))
    parts = read("emlxs_thread_instead", next(iter(event.values)))
    assert [pid_of(parts["thread"]), pid_of(parts["other"])] == [None, None]
    assert names.name(parts["other"] - NAMED_FROM) == "oracle"
    assert pid_of(4711) == 4711
    assert (
        thread_label(lambda pid: Thread(pid, names.name(pid - NAMED_FROM), "", 60), parts["other"])
        == "oracle (prio 60)"
    )


@pytest.mark.parametrize("script", ["dtrace/wakeups_d.d", "illumos/emlxs_thread.d"])
def test_the_rest_of_the_waits_is_no_thread_s(events, names, script):
    text = (data_dir("probes") / script).read_text()
    assert text.count(f"\\t{NOT_KNOWN}\\t%@d") == 2  # at each tick, and at the end
    (event,) = events(scalar("emlxs_thread_ran", ("emlxs0_channel4", NOT_KNOWN), 3))
    other = read("emlxs_thread_ran", next(iter(event.values)))["other"]
    assert thread_label(lambda pid: Thread(pid, names.name(pid - NAMED_FROM), "", -1), other) == NOT_KNOWN


# ---- devices


@pytest.fixture
def linux(tmp_path):
    host = FakeHost(tmp_path)
    host.virtio()
    host.partition("vda", "vda1", (254, 1))
    return host


def test_devices_of_linux_by_name_partition_and_number(linux, names):
    counters = KernelSampler(linux.proc, linux.sys, ())
    devices = NamedDevices(counters, names, (), linux.sys)
    devices.sample()
    actual_devices = [devices.numbered(names.number(name)) for name in ("vda", "vda1", str(254 << 20))]
    assert [device.name for device in actual_devices] == ["vda"] * 3
    assert devices.is_counted("vda")
    assert devices.numbered(names.number(str(9 << 20))) is None
    assert devices.put_fresh(()) == ()
    devices.close()


def test_devices_that_only_probes_know(names, tmp_path):
    devices = NamedDevices(NoCounters(), names, ("sd*", "zfs:*"), tmp_path)
    devices.require_selected()
    devices.sample()
    sd2, pool, port = (devices.numbered(names.number(name)) for name in ("sd2", "zfs:rpool", "emlxs0"))
    assert [(device.driver, device.timed) for device in (sd2, pool, port)] == [
        ("sd", False),
        ("zfs", False),
        ("emlxs", False),
    ]
    assert [devices.selects(device) for device in (sd2, pool, port)] == [True, True, False]
    devices.times("sd2")
    assert [(device.name, device.timed) for device in devices.put_fresh(())] == [("sd2", True), ("zfs:rpool", False)]
    assert devices.put_fresh(()) == ()
    assert devices.numbered(names.number("sd2")).timed
    assert devices.numbered(0) is None
    assert devices.numbered(77) is None
    assert devices.numbered(names.number("12345")) is None


def test_devices_have_an_end(names, tmp_path, monkeypatch):
    monkeypatch.setattr("latmon_backends.dtrace.probe.MAX_DEVICES", 1)
    devices = NamedDevices(NoCounters(), names, (), tmp_path)
    assert devices.numbered(names.number("sd0")).name == "sd0"
    assert devices.numbered(names.number("sd1")) is None


# ---- in flight

READ = Flow("sd2", "read")


def test_in_flight_is_what_began_less_what_ended():
    gauge = InFlightGauge()
    gauge.take(ProbeInterval(started={READ: 100}, ended={READ: 59}))
    assert gauge.fill({}) == {"sd2": Outstanding(None, 41)}
    gauge.take(ProbeInterval(started={READ: 10}, ended={READ: 12, Flow("mpt0", "read"): 5}))
    assert gauge.fill({}) == {"sd2": Outstanding(None, 39)}
    known = {"sd2": Outstanding(3, 30)}
    assert gauge.fill(known) == known
    gauge.take(ProbeInterval(), dropped=True)
    assert gauge.fill({}) == {}


def test_from_the_issue_on_they_are_in_the_driver():
    gauge = InFlightGauge(from_issue=True)
    gauge.take(ProbeInterval(started={READ: 3}, ended={READ: 1}))
    assert gauge.fill({}) == {"sd2": Outstanding(2, None)}
    assert InFlightGauge().fill({}) == {}


# ---- limits


def limit(dev, name, value):
    return Record("limit", "sd_limits", {"dev": dev, "value": value}, "", name)


def test_limits_are_put_to_their_devices_when_they_change():
    sd2 = Device("sd2", 0, 0, limits=(Limit("own", 1, "x"),))
    reported = ReportedLimits({1: "sd2"}.get)
    reported.take([limit(1, "un_throttle", 256), limit(2, "un_throttle", 3), Record("slow", "sd", {"dev": 1})])
    (device,) = reported.put((), {"sd2": sd2})
    assert device.limits == (*sd2.limits, Limit("un_throttle", 256, "sd_limits"))
    reported.take([limit(1, "un_throttle", 256)])
    assert reported.put((), {"sd2": sd2}) == ()
    reported.take([limit(1, "un_throttle", 8)])
    assert reported.put((), {}) == ()
    assert reported.put((), {"sd2": sd2})[0].limits[-1] == Limit("un_throttle", 8, "sd_limits")
    assert reported.put((sd2,), {"sd2": sd2})[0].limits[-1].value == 8


def test_limits_have_an_end(monkeypatch):
    monkeypatch.setattr(probe_backend, "_MOST", 2)
    reported = ReportedLimits(lambda _: "sd2")
    reported.take([limit(1, name, 1) for name in "abc"])
    assert [limit.name for limit in reported.put((), {"sd2": Device("sd2", 0, 0)})[0].limits] == ["a", "b"]


# ---- which scripts


def test_a_systems_own_scripts_come_first():
    found = {system: program.manifests(system) for system in ("linux", "illumos", "freebsd")}
    assert [manifest.name for manifest in program.always_on(found["illumos"])] == ["sd", "io_d"]
    assert program.always_on(found["freebsd"])[0].name == "devstat"
    assert program.always_on(found["linux"])[0].name == "requests_d"
    assert not {"sd", "devstat"} & {manifest.name for manifest in found["linux"]}


def chosen(*changed, has=lambda _: None, **rest):
    one = next(manifest for manifest in manifests() if manifest.name == "sd_depth")
    found = [replace(one, **({"hooks": ("io:::start",)} | change)) for change in changed]
    return program.choose(found, has, **rest)


def test_which_on_demand_scripts_run():
    both = chosen({"name": "a"}, {"name": "b", "unless": ("a",)})
    assert ([manifest.name for manifest in both.manifests], both.missing) == (["a"], ())
    instead = chosen({"name": "a"}, {"name": "b", "unless": ("a",)}, refused={"a": "no"})
    assert ([manifest.name for manifest in instead.manifests], instead.missing) == (["b"], (Missing("a", "no"),))
    none = chosen({"name": "a"}, has=lambda _: False)
    assert none.missing == (Missing("a", "there is no probe io:::start here"),)
    costly = {"name": "a", "cost": "invasive"}
    assert chosen(costly).missing == (Missing("a", f"{program.INVASIVE} a"),)
    assert [manifest.name for manifest in chosen(costly, invasive=("a",)).manifests] == ["a"]
    needs = chosen({"name": "a", "needs": ("b",)})
    assert needs.missing == (Missing("a", "needs b"),)
    assert chosen({"name": "a", "group": "always"}).manifests == ()


def test_an_invasive_name_that_is_none():
    with pytest.raises(UsageError, match="there is none at all"):
        program.check_invasive(("x",), ())
    with pytest.raises(UsageError, match="there are sd"):
        program.check_invasive(("x",), (replace(SD, cost="invasive"),))
    program.check_invasive(("sd",), (replace(SD, cost="invasive"),))


def test_fillings_are_the_first_words_then_the_second():
    words = (Parameter("a", words=("1", "2")), Parameter("b", words=("x",)), Parameter("n", 0, 9))
    scripts = list(program.fillings(replace(SD, parameters=words), {"n": 3}, "linux"))
    assert [dict(script.values) for script in scripts] == [{"n": 3, "a": "1", "b": "x"}, {"n": 3, "a": "2", "b": "x"}]
    assert [script.name for script in scripts] == ["sd 1", "sd 2"]
    assert [script.name for script in program.fillings(SD, {}, "illumos")] == ["sd"]


# ---- the tool


def test_the_words_of_a_program_and_of_a_listing():
    words = DtraceTool("/usr/sbin/dtrace", "illumos").command("BEGIN {}")
    assert words[-2:] == ["-n", "BEGIN {}"]
    assert {"-q", "dynvarsize=32m", "switchrate=10hz", "LC_ALL=C"} <= set(words)
    assert "sudo" not in words
    on_linux = DtraceTool("dtrace", "linux", sudo=True, mount_debugfs=True).command("BEGIN {}")
    assert on_linux[:2] == ["sudo", "-n"]
    assert "unshare" in on_linux
    assert "switchrate=10hz" not in on_linux
    assert DtraceTool("dtrace", "freebsd").listing(["a", "b"])[-5:] == ["-l", "-n", "a", "-n", "b"]


LISTED = "\n".join(
    (
        HEADER,
        f"{9:>5} {'io':>10} {'genunix':>17} {'bdev_strategy':>33} start",
        f"{77:>5} {'fbt':>10} {'emlxs':>17} {'emlxs_proc_channel':>33} entry",
        f"{78:>5} {'sdt':>10} {'sd':>17} {'sd_start_cmds':>33} scsi-transport-dispatch",
        f"{5:>5} {'rawtp':>10} {'block':>17} {'':>33} block_rq_complete",
        f"{1:>5} {'dtrace':>10} {'':>17} {'':>33} BEGIN",
    )
)


@pytest.mark.parametrize(
    ("hook", "there"),
    [
        ("io:::start", True),
        ("io:::done", False),
        ("fbt:emlxs:emlxs_proc_channel:entry", True),
        ("fbt:emlxs:emlxs_*:entry", True),
        ("fbt::emlxs_proc_channe?:entry", True),
        ("fbt:emlxs:emlxs_proc_channel:return", False),
        ("fbt:fcp:*:entry", False),
        ("sdt:::scsi-transport-dispatch", True),
        ("rawtp:block::block_rq_complete", True),
        ("BEGIN", True),
        ("fbt:emlxs:emlxs.proc.channel:entry", False),
    ],
)
def test_which_hooks_there_are(hook, there):
    assert is_listed(hook, LISTED) == there


async def test_which_version_it_is_and_whose(tmp_path):
    path = tmp_path / "dtrace"
    path.touch(0o755)

    async def of(text):
        path.write_text(f"#!/bin/sh\n{text}\n")
        return (await examined(DtraceTool(str(path), "linux"))).version

    assert await of("echo 'dtrace: D 2.0.7'") == "2.0.7"
    assert await of("echo 'dtrace: Sun D 1.13' >&2") == "1.13"
    assert await of("exit 1") == ""
    assert await of("yes D 2.") == ""
    with pytest.raises(UnavailableError, match="is SystemTap's program of that name, not DTrace: name DTrace's in"):
        await of("echo 'Usage: dtrace [--help] [-h | -G] [-C [-I<Path>]] -s File.d [-o <File>]' >&2")


async def test_what_is_asked_is_bounded():
    words = shimmed(["yes"], {}, sudo=False)
    assert await answer(words, within_s=60, most=1000) == "y\n" * 500
    async with asyncio.timeout(30):
        assert await answer(shimmed(["sleep", "600"], {}, sudo=False), within_s=0.2, most=1000) == ""


def test_a_key_has_as_many_digits_as_a_number(events):
    (event,) = events("@@S sd_bytes\tsd2\t" + "9" * 6000 + "\t1\n")
    assert isinstance(event, UndecodedLine)


def test_the_tool_of_each_system(tmp_path, monkeypatch):
    tool = tmp_path / "dtrace"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    environ = {"LATMON_DTRACE": str(tool)}
    monkeypatch.setattr(program.shutil, "which", lambda _: "/usr/bin/sudo")
    for system, name, sudo in (("SunOS", "illumos", False), ("FreeBSD", "freebsd", True), ("Linux", "linux", True)):
        dtrace_tool = find(environ, tmp_path, euid=1000, system=system)
        assert (dtrace_tool.path, dtrace_tool.system, dtrace_tool.sudo) == (str(tool), name, sudo)
    assert not find(environ, tmp_path, euid=0, system="FreeBSD").sudo
    with pytest.raises(UnavailableError, match="no D scripts for Darwin"):
        find(environ, tmp_path, system="Darwin")
    monkeypatch.setattr(program, "find_tool", _none)
    for system, text in (("SunOS", "part of the system"), ("FreeBSD", "kldload dtraceall"), ("Linux", "install")):
        with pytest.raises(UnavailableError, match=text):
            find({}, Path("/nonexistent"), system=system)


def _none(*_):
    raise UnavailableError("not there")


def test_an_hbas_packet_is_its_disks_io_with_issuer_and_stages(names):
    """sd and emlxs_sli4 print the buf of one I/O: both records are one outlier, with the thread that it waited for."""
    stages = (1_238_999, 3, 85, 6, 1_238_903, 2)
    text = (
        record(
            "slow",
            "sd",
            -35,
            "sd0",
            1,
            4096,
            2048,
            1_000,
            1_239_018_000,
            1_239_017,
            3,
            0,
            1_239_014,
            0,
            5102,
            text="lgwr",
        )
        + record(
            "slow", "emlxs_sli4", 2**64 - 35, "sd0", 1, 2048, 9_000, 1_239_008_000, *stages, 11, 0, "emlxs0_channel3"
        )
        + "@@ thread emlxs_thread zpool-data\t99\tzpool-data\n"
        + "@@ late emlxs_thread emlxs0_channel3\t97\t103000\t1238738\tzpool-data\t99\temlxs0_channel3\n"
    )
    scripts = {
        manifest.name: manifest for manifest in manifests() if manifest.name in ("sd", "emlxs_sli4", "emlxs_thread")
    }
    maps, decoder = Maps(scripts.values(), names), DtraceDecoder()
    lines = [event.text for one in decoder.feed(text.encode()) for event in maps.take(one)]
    records = [decoded(line, scripts[line.split()[1]].records[line.split()[0]]) for line in lines]
    threads = NamedThreads(Options(), names)
    threads.learn(records[2])
    joined = Outliers(scripts.values(), names.name, threads)
    joined.take(records)
    (outlier,) = joined.take_ready(100.0, 2_000_000, hold=0).outliers
    assert (outlier.device, outlier.op, outlier.sector, outlier.bytes, outlier.pid, outlier.comm) == (
        "sd0",
        "write",
        4096,
        2048,
        5102,
        "lgwr",
    )
    assert (outlier.total_us, outlier.unaccounted_us) == (1_238_999, 2)
    assert outlier.stages_us == {"queue": 3, "hba": 85, "irq": 6, "completion": 1_238_903}
    (wait,) = outlier.waits
    assert (wait.thread, wait.delay_us, wait.instead) == ("emlxs0_channel3", 1_238_738, "zpool-data (prio 99)")
