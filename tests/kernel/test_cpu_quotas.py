"""CPU quotas of cgroups and the I/O of their processes, from files like those of /proc and /sys/fs/cgroup."""

import pytest
from cgroup_host import CgroupHost, at_once, put

from latmon.capture.mounts import MountTable, mounts_of
from latmon.model.measurements import CPU_QUOTAS
from latmon.model.measurements.cpu_quotas import CpuQuota, QuotaPeriods
from latmon_backends.kernel import cgroups, cpu_quotas, memory
from latmon_backends.kernel.bounded_sums import tables_between
from latmon_backends.kernel.cgroups import CgroupReader, numbers
from latmon_backends.kernel.cpu_quotas import QuotaReader

S = 1_000_000


class Host(CgroupHost):
    def __init__(self, root, version):
        super().__init__(root, version, "cpu")

    def quota(self, name, quota_us, periods, throttled, throttled_us):
        path = self.cgroups / name
        if self.version == 2:
            put(path / "cpu.max", f"{quota_us or 'max'} 100000\n")
            last = f"throttled_usec {throttled_us}"
        else:
            put(path / "cpu.cfs_quota_us", f"{quota_us or -1}\n")
            put(path / "cpu.cfs_period_us", "100000\n")
            last = f"throttled_time {throttled_us * 1000}"
        put(path / "cpu.stat", f"nr_periods {periods}\nnr_throttled {throttled}\n{last}\n")

    def process(self, pid, name, size, cgroup):
        put(self.proc / str(pid) / "comm", f"{name}\n")
        put(self.proc / str(pid) / "io", f"rchar: 9\nread_bytes: {size}\nwrite_bytes: 0\ncancelled_write_bytes: 0\n")
        with (self.cgroups / cgroup / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_periods_and_ios_between_two_looks(tmp_path, version):
    host, clock = Host(tmp_path, version), [0]
    reader = QuotaReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    host.quota("pod", 16_000, 0, 0, 0)
    samples = []
    for second in range(12):
        clock[0] = second * S
        host.quota("pod", 16_000, 10 + 10 * second, 5 + 9 * second, 84_000 * second)
        host.quota("roomy", 60_000, 10 + 10 * second, 0, 0)
        host.quota("free", 0, 10 + 10 * second, 9 * second, 0)
        (host.cgroups / "pod/cgroup.procs").unlink(missing_ok=True)
        host.process(7, "orders-api", 4096 * second, "pod")
        host.process(8, "sh", second, "pod")
        samples.append(reader.sample(clock[0]))
    rows = tables_between(samples[0], samples[-1])[CPU_QUOTAS]
    pod = {key: value for key, value in rows.items() if key.cgroup == "/pod"}
    quota_periods = QuotaPeriods(*(sum(getattr(row, name) for row in pod.values()) for name in QuotaPeriods.__slots__))
    assert (quota_periods.periods, quota_periods.throttled, quota_periods.throttled_us) == (100, 90, 840_000)
    assert CpuQuota("/pod", "orders-api/7", 16_000, 100_000) in pod
    assert quota_periods.io_bytes > 0
    assert {key.cgroup for key in rows} == {"/pod", "/roomy"}
    assert sum(rows[key].throttled for key in rows if key.cgroup == "/roomy") == 0


def test_a_server_of_fuse_counts_by_its_system_calls(tmp_path):
    """It reads and writes no device: its files are in memory, or another host's."""
    host, clock = Host(tmp_path, 2), [0]
    reader = QuotaReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    (host.proc / "7/fd").mkdir(parents=True)
    (host.proc / "7/fd/5").symlink_to("/dev/fuse")
    samples = []
    for second in range(12):
        clock[0] = second * S
        host.quota("volume", 4_000, 10 + 10 * second, 5 + 9 * second, 84_000 * second)
        (host.cgroups / "volume/cgroup.procs").unlink(missing_ok=True)
        host.process(7, "volume-daemon", 0, "volume")
        put(host.proc / "7/io", f"rchar: {4096 * second}\nwchar: {4096 * second}\nread_bytes: 0\nwrite_bytes: 0\n")
        samples.append(reader.sample(clock[0]))
    rows = tables_between(samples[0], samples[-1])[CPU_QUOTAS]
    gained = rows[CpuQuota("/volume", "volume-daemon/7", 4_000, 100_000)]
    assert gained.io_bytes == 0
    assert gained.served_bytes > 0


@pytest.mark.parametrize(
    ("fdinfo", "is_server"),
    [("mnt_id: 24\n", True), ("fuse_connection:\t41\n", True), ("fuse_connection:\t42\n", False)],
)
def test_a_server_is_that_of_a_mount_where_the_kernel_names_the_connection(tmp_path, fdinfo, is_server):
    (tmp_path / "7/fd").mkdir(parents=True)
    (tmp_path / "7/fd/5").symlink_to("/dev/fuse")
    put(tmp_path / "7/fdinfo/5", fdinfo)
    put(
        tmp_path / "7/mountinfo",
        "42 30 0:41 / /mnt/x rw - fuse.sshfs host: rw\n43 30 0:42 / /run rw - tmpfs tmpfs rw\n",
    )
    assert cpu_quotas._serves_fuse(tmp_path / "7") == is_server


def test_a_look_is_not_begun_before_it_is_due(tmp_path):
    host, clock, looks = Host(tmp_path, 2), [0], []
    reader = QuotaReader(
        host.proc, MountTable(host.proc), lambda call: looks.append(1) or at_once(call), lambda: clock[0]
    )
    for ms in range(0, 4000, 250):
        clock[0] = ms * 1000
        reader.sample(clock[0])
    assert len(looks) <= 3


def test_another_quota_starts_over(tmp_path):
    host, clock = Host(tmp_path, 2), [0]
    reader = QuotaReader(host.proc, MountTable(host.proc), at_once, lambda: clock[0])
    for second in range(8):
        clock[0] = second * S
        host.quota("pod", 16_000 if second < 4 else 50_000, 10 * second + 10, second, 0)
        reader.sample(clock[0])
    quotas = {key.quota_us: row.periods for key, row in reader.sample(clock[0])[CPU_QUOTAS].items()}
    assert sum(quotas.values()) < 70
    assert 16_000 in quotas


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_all_readers_give_a_cgroup_the_same_name(tmp_path, version, short):
    """Findings join the rows of several readers by it. A long one keeps its end, which names the container."""
    path = "kubepods/pod7" if short else "/".join(f"{'nested-' * 12}{n}" for n in range(14)) + "/docker-\x1b7.scope"
    host = Host(tmp_path, version)
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,cpu,memory,blkio"
    put(host.proc / "self/mountinfo", f"30 1 0:26 / {host.cgroups} rw - {kind}\n")
    host.quota(path, 16_000, 10, 5, 84_000)
    place = host.cgroups / path
    if version == 2:
        for level in (*(host.cgroups / path).parents, place):
            if level.is_relative_to(host.cgroups):
                put(level / "io.max", "")
        put(place / "io.max", "7:0 rbps=max wbps=max riops=50 wiops=max\n")
        put(place / "io.stat", "7:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n")
        put(place / "memory.max", "4096\n")
        put(place / "memory.events.local", "max 3\n")
    else:
        put(place / "blkio.throttle.read_iops_device", "7:0 50\n")
        put(place / "blkio.throttle.io_serviced", "7:0 Read 1\n")
        put(place / "memory.limit_in_bytes", "4096\n")
        put(place / "memory.failcnt", "3\n")
    put(host.proc / "7/cgroup", f"0::/{path}\n" if version == 2 else f"3:blkio,memory:/{path}\n0::/\n")
    put(host.proc / "7/stat", f"7 (dd) {'S ' + '1 ' * 8}900 0 5 0 1 1 0 0 20 0 1 0 5 1 1\n")
    (cgroup,) = cpu_quotas.look(host.proc, mounts_of(host.proc), S).readings
    assert cgroup in numbers(host.proc).values()
    assert cgroup in {row.cgroup for row in CgroupReader(host.proc, at_once).sample(S, {"7:0": "loop0"})}
    assert {limit.cgroup for limit in memory.look(host.proc, mounts_of(host.proc), S).hits} == {cgroup}
    assert memory.MemoryReader(host.proc, MountTable(host.proc), at_once)._faulting(7, "dd").cgroup == cgroup
    assert cgroups._own_cgroup(host.proc / "7/cgroup") == cgroup
    if short:
        assert cgroup == "/kubepods/pod7"
    else:
        assert len(cgroup) == 256
        assert cgroup.startswith("…")
        assert cgroup.endswith(r"/docker-\x1b7.scope")
