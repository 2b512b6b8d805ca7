"""Cgroups: limits of both versions, what counts towards them, hostile names, the cost of looking; containers' names."""

import os
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_host import FakeHost

from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer, container_id
from latmon.support.text import is_clean
from latmon_backends.kernel import cgroups
from latmon_backends.kernel.cgroups import CgroupReader, difference, walk
from latmon_backends.kernel.counters import KernelSampler
from latmon_backends.kernel.counters import difference as counters_of

S = 1_000_000
LOOP = {"7:0": "loop0"}


def at_once(call):
    done = Future()
    done.set_result(call())
    return done


class Host(FakeHost):
    """One with a hierarchy of each version below `cg1` and `cg 2`."""

    def __init__(self, root):
        super().__init__(root)
        self.root = root
        self.write("proc/self/mountinfo", self.mounts())
        for mount in ("cg1", "cg 2"):
            (root / mount).mkdir()

    def mounts(self):
        v2 = str(self.root / "cg 2").replace(" ", r"\040")
        lines = (
            f"25 1 0:20 / {self.root}/memory rw shared:1 - cgroup cgroup rw,memory",
            f"26 1 0:21 / {self.root}/cg1 rw - cgroup cgroup rw,blkio",
            f"27 1 0:22 / {v2} rw shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate",
            f"28 1 0:22 / {self.root}/again rw - cgroup2 cgroup2 rw",
            "29 1 254:0 / / rw - ext4 /dev/root rw",
            "cut short",
        )
        return "\n".join(lines) + "\n"

    def v1(self, name, limits, ios=(0, 0, 0), size=4096):
        for file in ("read_iops", "read_bps", "write_iops", "write_bps"):
            self.write(f"cg1/{name}/blkio.throttle.{file}_device", limits.get(file, ""))
        for file, factor in (("io_serviced", 1), ("io_service_bytes", size)):
            rows = zip(("Read", "Write", "Discard"), ios, strict=True)
            text = "".join(f"7:0 {row} {n * factor}\n" for row, n in rows)
            self.write(
                f"cg1/{name}/blkio.throttle.{file}", f"{text}7:0 Sync 9\n7:0 Total {sum(ios)}\nTotal {sum(ios)}\n"
            )

    def v2(self, name, limit, stat="", stalled_us=None):
        self.write(f"cg 2/{name}/io.max", limit)
        self.write(f"cg 2/{name}/io.stat", stat)
        if stalled_us is not None:
            text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\nfull avg10=0.00 total=0\n"
            self.write(f"cg 2/{name}/io.pressure", text)

    def processes(self, directory, *named):
        self.write(f"{directory}/cgroup.procs", "".join(f"{pid}\n" for pid, _ in named))
        for pid, comm in named:
            self.write(f"proc/{pid}/comm", comm + b"\n")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def one(limits):
    (limit,) = limits
    return limit


def test_version_1_has_a_file_per_limit_and_counts_discards_as_writes(host):
    host.v1("slow", {"read_iops": "7:0 50\n", "write_bps": "7:0 1048576\n9:9 7\n"}, (10, 20, 1))
    reader = CgroupReader(host.proc, at_once)
    read, write = reader.sample(S, LOOP)
    assert (read.cgroup, read.device, read.op, read.ios_per_s, read.bytes_per_s) == ("/slow", "loop0", "read", 50, None)
    assert (write.op, write.ios_per_s, write.bytes_per_s, write.version) == ("write", None, 1 << 20, 1)
    assert [(row.ios, row.bytes) for row in (read, write)] == [(10, 40_960), (21, 20 * 4096)]
    assert read.root == str(host.root / "cg1")
    assert read.stalled_us is None
    before = (read, write)
    host.v1("slow", {"read_iops": "7:0 50\n", "write_bps": "7:0 1048576\n"}, (60, 20, 1))
    row = one(difference(before, reader.sample(2 * S, LOOP)))
    assert (row.op, row.ios, row.bytes) == ("read", 50, 50 * 4096)


def test_version_2_has_limits_and_counts_in_one_line_each(host):
    limit = "7:0 rbps=max wbps=1048576 riops=100 wiops=max\n8:0 rbps=max wbps=max riops=max wiops=max\n"
    host.v2("a.slice", limit, "7:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=3 cost.usage=5\n", 700)
    host.v2("a.slice/b.scope", "")
    reader = CgroupReader(host.proc, at_once)
    read, write = reader.sample(S, LOOP)
    assert (read.ios_per_s, read.bytes_per_s, read.ios, read.bytes) == (100, None, 1, 4096)
    assert (write.ios_per_s, write.bytes_per_s, write.ios, write.bytes) == (None, 1 << 20, 5, 8192)
    assert (read.stalled_us, read.version, read.root) == (700, 2, str(host.root / "cg 2"))
    host.v2("a.slice", limit, "7:0 rbytes=8192 wbytes=8192 rios=2 wios=2 dios=3\n", 900)
    row = one(difference((read, write), reader.sample(2 * S, LOOP)))
    assert (row.op, row.ios, row.bytes, row.stalled_us) == ("read", 1, 4096, 200)


def test_a_cgroup_without_the_controller_ends_the_walk(host, monkeypatch):
    host.write("cg 2/off/deep/io.max", "7:0 riops=5\n")  # no kernel has this: its parent has no io.max
    host.v2("on/deep", "7:0 riops=5\n")
    host.v2("on", "")
    assert [limited.name for limited in walk(host.proc)] == ["/on/deep"]
    monkeypatch.setattr(cgroups, "MAX_CGROUPS", 3)
    assert walk(host.proc) is None


def test_too_many_limits_are_not_read(host, monkeypatch):
    for name in "abc":
        host.v1(name, {"read_iops": "7:0 50\n"})
    assert len(walk(host.proc)) == 3
    monkeypatch.setattr(cgroups, "MAX_LIMITED", 2)
    assert walk(host.proc) is None


def test_processes_of_the_cgroups_below_are_named_by_frequency(host):
    host.v2("a", "7:0 riops=5\n", "7:0 rios=1")
    host.write("cg 2/a/b/cgroup.procs", "0\n11\n12\nx\n")
    host.processes("cg 2/a", (1, b"one"), (2, b"\x1b]52;c;x\x07"))
    for pid in (11, 12):
        host.write(f"proc/{pid}/comm", "fio\n")
    row = one(CgroupReader(host.proc, at_once).sample(S, LOOP))
    assert row.names[0] == "fio"
    assert all(map(is_clean, row.names))
    assert len(row.names) == 3


def test_processes_are_looked_for_every_5_s_while_there_is_io(host):
    host.v1("slow", {"read_iops": "7:0 50\n"}, (1, 0, 0))
    reader = CgroupReader(host.proc, at_once)
    assert one(reader.sample(S, LOOP)).names == ()
    host.processes("cg1/slow", (7, b"fio"))
    assert one(reader.sample(7 * S, LOOP)).names == (), "no I/O"
    host.v1("slow", {"read_iops": "7:0 50\n"}, (2, 0, 0))
    assert one(reader.sample(8 * S, LOOP)).names == ("fio",)
    host.processes("cg1/slow", (8, b"dd"))
    host.v1("slow", {"read_iops": "7:0 50\n"}, (3, 0, 0))
    assert one(reader.sample(9 * S, LOOP)).names == ("fio",)
    assert one(reader.sample(13 * S, LOOP)).names == ("dd",)


def test_hostile_names_are_data(host):
    odd = b"\x1b]52;c;x\x07\xff$(reboot)".decode("utf-8", "surrogateescape")
    for name in (odd, "x" * 200 + "/" + "y" * 200):
        host.v1(name, {"read_iops": "7:0 50\n"})
    rows = CgroupReader(host.proc, at_once).sample(S, LOOP)
    assert {row.cgroup for row in rows} == {
        r"/\x1b]52;c;x\x07\xff$(reboot)",
        "…" + "x" * 54 + "/" + "y" * 200,
    }


def test_new_limits_are_found_by_the_next_walk_and_gone_cgroups_have_none(host):
    reader = CgroupReader(host.proc, at_once)
    assert reader.sample(S, LOOP) == ()
    host.v1("slow", {"read_iops": "7:0 50\n"})
    assert reader.sample(2 * S, LOOP) == ()
    assert len(reader.sample(3 * S, LOOP)) == 1
    (host.root / "cg1/slow").rename(host.root / "gone")
    assert reader.sample(4 * S, LOOP) == ()


def slowly(spent_us):
    """Run walks at once, as if each took so much CPU time."""

    def run(call):
        done = Future()
        done.set_result(call()._replace(spent_us=spent_us))
        return done

    return run


def first_seen(reader, from_s, to_s):
    """Return the second of the first sample with a limit, one sample a second; None without."""
    return next((at for at in range(from_s, to_s) if reader.sample(at * S, LOOP)), None)


@pytest.mark.parametrize(
    ("spent_us", "seconds"),
    [
        pytest.param(1_000, 2, id="1 ms: every 2 s"),
        pytest.param(20_000, 4, id="20 ms: every 4 s, 0.5 % of a CPU"),
        pytest.param(900_000, 30, id="as seldom as every 30 s"),
    ],
)
def test_walks_are_as_often_as_their_cost_allows(host, spent_us, seconds):
    reader = CgroupReader(host.proc, slowly(spent_us))
    host.v1("slow", {})
    assert reader.sample(0, LOOP) == ()
    host.v1("slow", {"read_iops": "7:0 50\n"})
    assert first_seen(reader, 1, 40) == seconds


def test_walks_of_too_many_cgroups_are_as_seldom_as_their_cost_demands(host, monkeypatch):
    """Without a known limit, too: 20,000 cgroups take 1.6 s of CPU."""
    monkeypatch.setattr(cgroups, "MAX_CGROUPS", 1)
    host.v1("a", {"read_iops": "7:0 50\n"})
    host.v1("b", {})
    walks = []

    def run(call):
        walks.append(call)
        return slowly(1_600_000)(call)

    reader = CgroupReader(host.proc, run)
    assert [reader.sample(at * S, LOOP) for at in range(61)] == [None] * 61
    assert len(walks) == 3


def test_cgroups_with_i_o_are_looked_at_between_walks_that_take_long(host):
    reader = CgroupReader(host.proc, slowly(900_000))
    for ios in (5, 9, 12):
        host.v1("busy", {}, (ios, 0, 0))
        host.v1("idle", {}, (7, 0, 0))
        reader.sample(30 * S * (ios // 4), LOOP)  # the walks at 30, 60 and 90 s
    host.v1("busy", {"read_iops": "7:0 50\n"}, (12, 0, 0))
    host.v1("idle", {"read_iops": "7:0 50\n"}, (7, 0, 0))
    assert first_seen(reader, 91, 120) == 92
    assert [row.cgroup for row in reader.sample(95 * S, LOOP)] == ["/busy"]
    assert sorted(row.cgroup for row in reader.sample(121 * S, LOOP)) == ["/busy", "/idle"]


def test_other_devices_and_recreated_cgroups_have_no_row(host):
    host.v1("slow", {"read_iops": "7:0 50\n"}, (9, 0, 0))
    reader = CgroupReader(host.proc, at_once)
    assert reader.sample(S, {"8:0": "sda"}) == ()
    before = reader.sample(S, LOOP)
    host.v1("slow", {"read_iops": "7:0 50\n"}, (2, 0, 0))
    assert difference(before, reader.sample(2 * S, LOOP)) == ()
    assert difference(None, before) is None
    assert difference(before, None) is None


def test_a_limit_above_any_device_is_none_as_max_is(host):
    """The kernel accepts up to 2^64 - 2; a recording holds less than 2^63."""
    limit = f"7:0 rbps={2**63} wbps={2**64 - 2} riops=100 wiops={'9' * 5000}\n"
    host.v2("a", limit, "7:0 rbytes=4096 rios=1 wbytes=4096 wios=1\n")
    row = one(CgroupReader(host.proc, at_once).sample(S, LOOP))
    assert (row.op, row.ios_per_s, row.bytes_per_s) == ("read", 100, None)


@pytest.mark.parametrize("reads", [2**63 + 5, 2**60, 0, "9" * 5000])
def test_counters_of_a_limit_that_can_not_be_give_no_row(host, reads):
    host.v2("a", "7:0 riops=100\n", "7:0 rbytes=40960 rios=10\n", 700)
    reader = CgroupReader(host.proc, at_once)
    before = reader.sample(S, LOOP)
    host.v2("a", "7:0 riops=100\n", f"7:0 rbytes=81920 rios={reads}\n", 800)
    between = reader.sample(2 * S, LOOP)
    assert difference(before, between) == ()
    host.v2("a", "7:0 riops=100\n", "7:0 rbytes=122880 rios=30\n", 900)
    after = reader.sample(3 * S, LOOP)
    assert [row.ios for row in difference(before, after)] == [20]


def test_a_time_of_waiting_that_fell_is_unknown(host):
    host.v2("a", "7:0 riops=100\n", "7:0 rbytes=40960 rios=10\n", 700)
    reader = CgroupReader(host.proc, at_once)
    before = reader.sample(S, LOOP)
    host.v2("a", "7:0 riops=100\n", "7:0 rbytes=81920 rios=20\n", 650)
    row = one(difference(before, reader.sample(2 * S, LOOP)))
    assert (row.ios, row.stalled_us) == (10, None)


def test_a_walk_that_hangs_leaves_the_limits_known_before(host):
    host.v1("slow", {"read_iops": "7:0 50\n"})
    walks = []

    def run(call):
        walks.append(at_once(call) if not walks else Future())
        return walks[-1]

    reader = CgroupReader(host.proc, run)
    for seconds in (1, 40, 80, 120):
        assert len(reader.sample(seconds * S, LOOP)) == 1


def test_without_a_hierarchy_limits_are_not_read(tmp_path):
    assert CgroupReader(FakeHost(tmp_path).proc, at_once).sample(S, LOOP) is None


def test_the_kernel_s_sampler_reports_them_by_device(host):
    host.disk("vda", (7, 0))
    host.v1("slow", {"read_iops": "7:0 50\n"}, (10, 0, 0))
    sampler = KernelSampler(host.proc, host.sys)
    sampler._cgroups = CgroupReader(host.proc, at_once)
    before = sampler.sample()
    host.v1("slow", {"read_iops": "7:0 50\n"}, (60, 0, 0))
    interval = counters_of(before, sampler.sample())
    assert [(row.cgroup, row.device, row.ios) for row in interval.cgroup_limits] == [("/slow", "vda", 50)]


# I/Os of all cgroups


def counted_by(reader, at_us):
    return reader.sample(at_us, LOOP)


def test_version_1_counts_the_ios_of_a_cgroup_alone(host):
    reader = cgroups.CgroupIos(host.proc, host.root, at_once)
    host.v1("a", {}, (10, 5, 2))
    host.v1("a/b", {}, (1, 0, 0))
    before = counted_by(reader, S)
    host.v1("a", {}, (13, 5, 3))
    host.v1("a/b", {}, (2, 0, 0))
    issued_ios_by_issuer = cgroups.ios_between(before, counted_by(reader, 2 * S))
    assert issued_ios_by_issuer == {
        Issuer("loop0", "read", "/a"): IssuedIO(3, 3 * 4096),
        Issuer("loop0", "discard", "/a"): IssuedIO(1, 4096),
        Issuer("loop0", "read", "/a/b"): IssuedIO(1, 4096),
    }


def test_version_2_counts_a_cgroup_with_those_below_it(host):
    host.write("proc/self/mountinfo", "\n".join(host.mounts().splitlines()[2:]))
    path = f"/machine.slice/libpod-{ID}.scope"
    host.write("var/lib/containers/storage/overlay-containers/containers.json", PODMAN % ID)
    host.v2("", "", "7:0 rbytes=40960 wbytes=0 rios=10 wios=0\n9:9 rios=5\n")
    host.v2("machine.slice", "", "7:0 rbytes=20480 rios=5\n")
    host.v2(path[1:], "", "7:0 rbytes=8192 rios=2\n")
    reader = cgroups.CgroupIos(host.proc, host.root, at_once)
    before = counted_by(reader, S)
    host.v2("", "", "7:0 rbytes=81920 wbytes=0 rios=20 wios=0\n9:9 rios=50\n")
    host.v2("machine.slice", "", "7:0 rbytes=40960 rios=10\n")
    host.v2(path[1:], "", "7:0 rbytes=24576 rios=6\n")
    after = counted_by(reader, 2 * S)
    assert cgroups.ios_between(before, after) == {
        Issuer("loop0", "read", "/"): IssuedIO(5, 20_480),
        Issuer("loop0", "read", "/machine.slice"): IssuedIO(1, 4096),
        Issuer("loop0", "read", path, "db-1"): IssuedIO(4, 16_384),
    }
    # of one that is gone, or new, the I/Os are those of the cgroup above it
    gone = {name: one for name, one in after.items() if name != path}
    for pair in ((before, gone), (gone, after)):
        names = {issuer.cgroup for issuer in cgroups.ios_between(*pair)}
        assert path not in names
    assert cgroups.ios_between(before, gone)[Issuer("loop0", "read", "/machine.slice")].count == 5


@pytest.mark.parametrize(
    "now",
    [
        pytest.param("rbytes=90000 rios=9", id="I/Os fell while bytes rose"),
        pytest.param("rbytes=90000 rios=9223372036854775813", id="2^63 and more"),
        pytest.param(f"rbytes={2**60} rios=11", id="more bytes than any device"),
    ],
)
def test_counters_of_a_cgroup_that_can_not_be_count_nothing(host, now):
    host.write("proc/self/mountinfo", "\n".join(host.mounts().splitlines()[2:]))
    host.v2("", "")
    host.v2("a", "", "7:0 rbytes=40960 rios=10 wbytes=0 wios=0\n")
    reader = cgroups.CgroupIos(host.proc, host.root, at_once)
    before = counted_by(reader, S)
    host.v2("a", "", f"7:0 {now} wbytes=4096 wios=1\n")
    issued_ios_by_issuer = cgroups.ios_between(before, counted_by(reader, 2 * S))
    assert issued_ios_by_issuer == {Issuer("loop0", "write", "/a"): IssuedIO(1, 4096)}


def test_ios_of_too_many_cgroups_or_of_none_are_not_counted(host, monkeypatch):
    assert cgroups.ios_between(None, {}) == cgroups.ios_between({}, None) == {}
    for name in "abc":
        host.v1(name, {})
    monkeypatch.setattr(cgroups, "MAX_COUNTED", 3)
    assert counted_by(cgroups.CgroupIos(host.proc, host.root, at_once), S) is None
    host.write("proc/self/mountinfo", "")
    assert counted_by(cgroups.CgroupIos(host.proc, host.root, at_once), S) is None


# Names


def test_cgroups_are_numbered_by_their_directories(host):
    for name in ("cg1/a/b", "cg 2/c"):
        (host.root / name).mkdir(parents=True)
    numbered = {
        number: path for path, number in ((name, (host.root / f"cg1{name}").stat().st_ino) for name in ("/a", "/a/b"))
    }
    numbers = cgroups.numbers(host.proc)
    assert numbered.items() <= numbers.items()
    assert set(numbers.values()) == {"/", "/a", "/a/b"}  # of version 1, which has the controller here
    host.write("proc/self/mountinfo", "\n".join(host.mounts().splitlines()[2:]))
    assert set(cgroups.numbers(host.proc).values()) == {"/", "/c"}
    host.write("proc/self/mountinfo", "")
    assert cgroups.numbers(host.proc) == {}


def test_a_new_cgroup_is_found_when_it_is_asked_for(host):
    walks = []
    names = cgroups.CgroupNames(host.proc, host.root, lambda call: walks.append(1) or at_once(call))
    (host.root / "cg1/a").mkdir()
    number = (host.root / "cg1/a").stat().st_ino
    assert [names.named(number) for _ in range(3)] == [("/a", "")] * 3
    assert names.named(1 << 32 | number) == ("/a", "")  # a generation, before 5.5
    before = len(walks)
    assert [names.named(12345678) for _ in range(3)] == [("#12345678", "")] * 3
    assert len(walks) == before + 1  # one that no walk finds is gone
    (host.root / "cg1/a").rmdir()
    assert names.named(number) == ("/a", "")


def test_a_slow_walk_delays_no_frame(host, monkeypatch):
    monkeypatch.setattr(cgroups, "_PATIENCE_S", 0.001)
    walking = Future()
    names = cgroups.CgroupNames(host.proc, host.root, lambda _call: walking)
    assert names.named(5) == ("#5", "")
    walking.set_result({5: "/late"})
    assert names.named(5) == ("/late", "")


def test_names_of_containers_are_read_for_those_that_are_asked_for(host, monkeypatch):
    """A user may have thousands of cgroups with such names, and a list of 4 MB for each to be looked up in."""
    read = []
    monkeypatch.setattr(cgroups, "container_name", lambda path, _root: read.append(path) or "web")
    paths = [f"/docker/{number:064x}" for number in range(3)]
    for path in (*paths, "/a"):
        (host.root / f"cg1{path}").mkdir(parents=True)
    names = cgroups.CgroupNames(host.proc, host.root, at_once)
    found = [names.named((host.root / f"cg1{path}").stat().st_ino) for path in (paths[1], paths[1], "/a")]
    assert found == [(paths[1], "web"), (paths[1], "web"), ("/a", "")]
    assert read == [paths[1]]


def test_a_file_of_names_that_hangs_delays_no_frame_and_no_number(host, monkeypatch):
    monkeypatch.setattr(cgroups, "_PATIENCE_S", 0.001)
    started = []
    names = cgroups.ContainerNames(host.root, lambda _call: started.append(Future()) or started[-1])
    one, other = f"/docker/{ID}", f"/docker/{ID[::-1]}"
    assert [names.name(path) for path in (one, other, one, "/a")] == ["", "", "", ""]
    assert len(started) == 1
    started[0].set_result("web")
    assert [names.name(path) for path in (other, one)] == ["", "web"]
    assert len(started) == 2


ID, POD = "3f2a91c0" * 8, "1b2c3d4e-1111-2222-3333-123456789abc"
UID = POD.replace("-", "_")
CGROUPS = {
    "docker": (f"/docker/{ID}", f"/system.slice/docker-{ID}.scope"),
    "podman": (
        f"/machine.slice/libpod-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/libpod_parent/libpod-{ID}",
    ),
    "kubelet": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{UID}.slice/crio-{ID}.scope/container",
        f"/kubepods/besteffort/pod{POD}/{ID}",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID}.slice/docker-{ID}.scope",
    ),
}
"""Paths as the runtimes name them, with the drivers systemd and cgroupfs."""
DOCKER = (
    '{"StreamConfig":{},"State":{"Running":true,"Pid":812},"ID":"%s","Created":"2026-01-05T10:00:00Z",'
    '"Name":"/web-1","Driver":"overlay2"}'
)
PODMAN = (
    '[{"id":"aa","names":["other"]},'
    '{"id":"%s","names":["db-1"],"image":"b4","metadata":"{}","created":"2026-01-05T10:00:00Z"}]'
)


@pytest.mark.parametrize("path", [path for paths in CGROUPS.values() for path in paths])
def test_the_id_of_a_container_is_in_its_cgroup(path):
    assert container_id(path) == ID
    assert Issuer("sda", "read", path).name.endswith(f" {ID[:12]}")


@pytest.mark.parametrize("path", ["/", "/system.slice/nginx.service", f"/a/{ID}b", f"/a/{ID[1:]}", "#17"])
def test_other_cgroups_are_no_containers(path, tmp_path):
    assert (container_id(path), cgroups.container_name(path, tmp_path)) == ("", "")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CGROUPS["docker"][0], "docker 3f2a91c03f2a"),
        (CGROUPS["podman"][1], "podman 3f2a91c03f2a"),
        (CGROUPS["kubelet"][0], "containerd 3f2a91c03f2a"),
        (CGROUPS["kubelet"][1], "cri-o 3f2a91c03f2a"),
        (CGROUPS["kubelet"][2], "container 3f2a91c03f2a"),
        ("/system.slice/nginx.service", "nginx.service"),
        ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/system.slice/a.service/worker", "a.service/worker"),
        ("/system.slice", "/system.slice"),
        ("/", "/"),
    ],
)
def test_a_cgroup_without_a_container_s_name_has_a_short_one(path, name):
    assert Issuer("sda", "read", path).name == name


@pytest.mark.parametrize("path", CGROUPS["docker"])
def test_docker_s_name(host, path):
    host.write(f"var/lib/docker/containers/{ID}/config.v2.json", DOCKER % ID)
    assert cgroups.container_name(path, host.root) == "web-1"


@pytest.mark.parametrize("path", CGROUPS["podman"])
def test_podman_s_name(host, path):
    host.write("var/lib/containers/storage/overlay-containers/containers.json", PODMAN % ID)
    assert cgroups.container_name(path, host.root) == "db-1"


def test_podman_s_name_of_a_user_s_container(host, monkeypatch):
    monkeypatch.setattr(cgroups.pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_dir="/home/ann"))
    host.write("home/ann/.local/share/containers/storage/overlay-containers/containers.json", PODMAN % ID)
    path = "/user.slice/user-{0}.slice/user@{0}.service/user.slice/libpod-{1}.scope/container"
    assert cgroups.container_name(path.format(os.getuid(), ID), host.root) == "db-1"
    another = path.format(os.getuid() + 1, ID)  # it is not this user's file: a link may lead there
    assert cgroups.container_name(another, host.root) == ""


@pytest.mark.parametrize("path", CGROUPS["kubelet"])
def test_the_kubelet_s_names(host, path):
    host.write(f"var/log/pods/prod_web-0_{POD}/nginx/0.log", "")
    assert cgroups.container_name(path, host.root) == "prod/web-0"  # of a sandbox, which has no log
    (host.root / "var/log/containers").mkdir()
    (host.root / f"var/log/containers/web-0_prod_nginx-{ID}.log").symlink_to(
        f"/var/log/pods/prod_web-0_{POD}/nginx/0.log"
    )
    assert cgroups.container_name(path, host.root) == "prod/web-0/nginx"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"Name":7}', "[" * 100_000, '{"Name":"/\\u001b[31m\\u202ered"}'])
def test_a_file_with_nonsense_gives_no_name_or_a_clean_one(host, text):
    host.write(f"var/lib/docker/containers/{ID}/config.v2.json", text)
    host.write("var/lib/containers/storage/overlay-containers/containers.json", text)
    assert is_clean(cgroups.container_name(CGROUPS["docker"][0], host.root))


def process(host, pid, *threads, comm="dd", cgroup="0::/web.service\n", ended=0):
    """(read, written) of each thread, and the bytes that children which have ended read."""
    sums = [sum(thread[at] for thread in threads) for at in range(2)]
    places = {"": (sums[0] + ended, sums[1])} | {f"task/{pid + at}": thread for at, thread in enumerate(threads)}
    for name, (read, written) in places.items():
        directory = host.proc / str(pid) / name
        directory.mkdir(exist_ok=True, parents=True)
        lines = ("rchar: 9", "syscr: 1", f"read_bytes: {read}", f"write_bytes: {written}", "cancelled_write_bytes: 0")
        (directory / "io").write_text("\n".join((*lines, "")))
    (host.proc / str(pid) / "comm").write_text(f"{comm}\n")
    (host.proc / str(pid) / "cgroup").write_text(cgroup)


def test_bytes_of_processes_are_the_growth_of_their_counters(host):
    process(host, 7, (4096, 0), (4096, 0))
    process(host, 80, (0, 0), comm="idle")
    process(host, 90, (1 << 20, 1 << 20), comm="old")
    reader = cgroups.ProcessIos(host.proc)
    before = reader.sample()
    process(host, 7, (12_288, 512), (4096, 0), ended=1 << 30)
    process(host, 90, (100, 0), comm="new", cgroup="12:pids:/x\n7:blkio:/one\n0::/two\n")
    process(host, 100, (0, 4096), comm="born")
    after = reader.sample()
    assert cgroups.bytes_between(None, after) == {}
    assert cgroups.bytes_between(before, None) == {}
    assert cgroups.bytes_between(before, after) == {
        Issuer("", "read", "/web.service", "", 7, "dd"): IssuedIO(0, 8192),
        Issuer("", "write", "/web.service", "", 7, "dd"): IssuedIO(0, 512),
        Issuer("", "read", "/one", "", 90, "new"): IssuedIO(0, 100),
        Issuer("", "write", "/web.service", "", 100, "born"): IssuedIO(0, 4096),
    }


@pytest.mark.parametrize("read", [(1 << 20) - 4096, 1 << 60, 10**30])
def test_bytes_of_a_process_that_can_not_be_are_not_counted(host, read):
    process(host, 90, (1 << 20, 0))
    reader = cgroups.ProcessIos(host.proc)
    before = reader.sample()
    process(host, 90, (read, 0))
    assert cgroups.bytes_between(before, reader.sample()) == {}


def test_processes_whose_files_this_user_may_not_read_are_not_known(host):
    assert cgroups.ProcessIos(host.proc).sample() is None
    process(host, 7, (0, 0))
    (host.proc / "7/io").write_text("")
    assert cgroups.ProcessIos(host.proc).sample() is None


def test_bytes_that_this_process_writes_are_those_of_the_kernel(tmp_path):
    reader, size = cgroups.ProcessIos(Path("/proc")), 8 << 20
    before = reader.sample()
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
    issued_ios_by_issuer = cgroups.bytes_between(before, reader.sample())
    own = [
        issued_io.bytes
        for issuer, issued_io in issued_ios_by_issuer.items()
        if (issuer.pid, issuer.op) == (os.getpid(), "write")
    ]
    if not own:
        pytest.skip("the directory for tests is on no device, or the kernel counts no I/O of processes")
    assert own == [pytest.approx(size, rel=0.05)]
