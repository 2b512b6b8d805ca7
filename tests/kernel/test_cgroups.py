"""Limits of cgroups: both versions' files, what counts towards them, hostile names, the cost of looking."""

from concurrent.futures import Future

import pytest
from fake_host import FakeHost

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
    (found,) = limits
    return found


def test_version_1_has_a_file_per_limit_and_counts_discards_as_writes(host):
    host.v1("slow", {"read_iops": "7:0 50\n", "write_bps": "7:0 1048576\n9:9 7\n"}, (10, 20, 1))
    reader = CgroupReader(host.proc, at_once)
    read, write = reader.sample(S, LOOP)
    assert (read.cgroup, read.device, read.op, read.ios_per_s, read.bytes_per_s) == ("/slow", "loop0", "read", 50, None)
    assert (write.op, write.ios_per_s, write.bytes_per_s, write.version) == ("write", None, 1 << 20, 1)
    assert [(row.ios, row.bytes) for row in (read, write)] == [(10, 40_960), (21, 21 * 4096)]
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
    assert reader.sample(30 * S, LOOP) == ()
    assert len(reader.sample(31 * S, LOOP)) == 1
    (host.root / "cg1/slow").rename(host.root / "gone")
    assert reader.sample(32 * S, LOOP) == ()


def test_other_devices_and_recreated_cgroups_have_no_row(host):
    host.v1("slow", {"read_iops": "7:0 50\n"}, (9, 0, 0))
    reader = CgroupReader(host.proc, at_once)
    assert reader.sample(S, {"8:0": "sda"}) == ()
    before = reader.sample(S, LOOP)
    host.v1("slow", {"read_iops": "7:0 50\n"}, (2, 0, 0))
    assert difference(before, reader.sample(2 * S, LOOP)) == ()
    assert difference(None, before) is None
    assert difference(before, None) is None


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
