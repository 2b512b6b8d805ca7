"""full-file-system: file systems without a free block or inode, and those with room or that nobody uses."""

import pytest
from finding_cases import facts_of, found, frame, lasting

from latmon.findings.engine import not_evaluated
from latmon.findings.rule import SHORT_CELLS, SPACE
from latmon.findings.rules.full_file_system import ID
from latmon.model.measurements import DIRTIERS, FILE_SYSTEM_SPACE, ISSUERS
from latmon.model.measurements.dirtiers import Dirtied, Dirtier
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import Issuer

MB = 1 << 20
VAR = SpaceOf("sda", "/var", "ext4")


def look(*, size=500 * MB, available=0, free=0, inodes=32_768, free_inodes=20_000, written=MB, active=1):
    return SpaceLooks(1, size, available, max(free, available), inodes, free_inodes, written, active)


def load(*looks, row=VAR, tables=None):
    """Frames of 5 s, one per look."""
    return [
        frame(100 + 5 * n, tables={FILE_SYSTEM_SPACE: {row: seen}} | (tables or {})) for n, seen in enumerate(looks)
    ]


def facts_by_name(finding):
    return {fact.name: fact.value for fact in finding.facts}


def process(name, written, device="sda", pid=7):
    return {Issuer(device, "write", "/app", "", pid, name): IssuedIO(1, written)}


def test_a_full_one_in_use():
    (finding,) = found(ID, load(look(), look()))
    assert (finding.severity, finding.device) == ("critical", "sda")
    assert finding.summary == (
        "sda: /var (ext4) is full: 0 of 500 MiB are free for ordinary users: new blocks can't be allocated (ENOSPC)"
    )
    assert finding.short == "/var is full: 0 of 500 MiB free; no new blocks"
    assert "preallocated files" in finding.refuted_by
    values = facts_by_name(finding)
    assert values["available_bytes"] == 0
    assert values["free_inodes"] == 20_000
    assert values["written_bytes"] == MB
    assert "root_bytes" not in values
    text = " ".join(step.text for step in finding.steps)
    for command in ("df -h /var", "df -i /var", "du -xh", "lsof -w +aL1 /var"):
        assert command in text
    assert "tune2fs" not in text


def test_preallocated_files_that_are_overwritten_are_a_warning():
    """800 MiB per look succeed: of virtual machines, of databases."""
    seen = look(written=800 * MB)
    (finding,) = found(ID, load(*[seen] * 12))
    assert finding.severity == "warning"
    assert finding.summary.endswith(
        "new blocks can't be allocated (ENOSPC); 800 MiB per look are written to blocks that files have already"
    )
    assert finding.short == "/var is full: 0 of 500 MiB free; writes go to old blocks"
    assert facts_by_name(finding)["overwritten_bytes"] == 800 * MB


def test_files_that_are_written_where_no_inode_is_free_are_a_warning():
    looks = [look(available=available * MB, free_inodes=0, written=800 * MB) for available in (300, 290, 280)]
    (finding,) = found(ID, load(*looks))
    assert finding.severity == "warning"
    assert finding.short == "/var is full: 0 of 32,768 inodes free; writes go to existing files"


@pytest.mark.parametrize(
    ("looks", "severity"),
    [
        pytest.param([look(written=MB)] * 3, "critical", id="a trickle, as of the journal"),
        pytest.param([look(written=MB + 1)] * 3, "warning", id="more than a trickle"),
        pytest.param([look(written=4 * MB), look(written=0), look(written=0), look(written=0)], "critical", id="mean"),
        pytest.param([look(available=100 * MB)] + [look(written=9 * MB)] * 3, "critical", id="it filled up in view"),
        pytest.param([look(available=4 * MB)] + [look(written=9 * MB)] * 3, "critical", id="the last of it, in view"),
        pytest.param(
            [look(written=9 * MB), look(available=40_960, written=9 * MB), look(written=9 * MB)],
            "critical",
            id="blocks are freed and taken",
        ),
        pytest.param([look(free=mb * MB, written=9 * MB) for mb in (25, 20, 15)], "critical", id="root takes the rest"),
        pytest.param(
            [look(free=25 * MB - kb * 1024, written=9 * MB) for kb in (0, 4, 40)], "warning", id="blocks of metadata"
        ),
    ],
)
def test_severity_by_what_is_written_and_what_is_free(looks, severity):
    (finding,) = found(ID, load(*looks))
    assert finding.severity == severity
    assert ("overwritten_bytes" in facts_by_name(finding)) is (severity == "warning")


def test_of_two_full_ones_that_with_failing_calls_is_named():
    images = SpaceOf("sda", "/images", "xfs")
    tables = {FILE_SYSTEM_SPACE: {images: look(written=800 * MB), VAR: look(available=4096)}}
    (finding,) = found(ID, [frame(100 + 5 * n, tables=tables) for n in range(3)])
    assert finding.state == ("/var", "full")


def test_reserved_blocks_are_free_for_root_only():
    (finding,) = found(ID, load(look(free=25 * MB), look(free=25 * MB)))
    assert finding.summary.endswith("new blocks can't be allocated (ENOSPC), except root's")
    assert facts_by_name(finding)["root_bytes"] == 12.5 * MB, "2.5 % are the file system's own"
    assert any("tune2fs -m 1" in step.text for step in finding.steps)


@pytest.mark.parametrize(
    ("kind", "free"),
    [
        pytest.param("ext4", 10 * MB, id="the reserve of ext4 itself, as after mkfs -m 0"),
        pytest.param("btrfs", 74 * MB, id="metadata of btrfs"),
    ],
)
def test_what_nobody_can_use(kind, free):
    (finding,) = found(ID, load(look(free=free), look(free=free), row=VAR._replace(kind=kind)))
    assert "root" not in finding.summary
    assert not any("tune2fs" in step.text for step in finding.steps)


def test_without_an_inode():
    seen = look(available=300 * MB, free_inodes=0)
    (finding,) = found(ID, load(seen, seen))
    assert finding.severity == "critical"
    assert finding.short == "/var is full: 0 of 32,768 inodes free; no new files"
    assert any("find /var -xdev" in step.text for step in finding.steps)


def test_a_file_system_without_a_limit_of_inodes():
    seen = look(available=300 * MB, inodes=0, free_inodes=0)
    assert found(ID, load(seen, seen)) == []


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        pytest.param({ISSUERS: process("orderd", 9 * MB)}, "orderd (pid 7)", id="a process of the disk"),
        pytest.param(
            {ISSUERS: process("kworker/u8:1", 99 * MB) | process("orderd", 9 * MB)}, "orderd (pid 7)", id="write-back"
        ),
        pytest.param({DIRTIERS: {Dirtier("sda", "orderd/7"): Dirtied(0, 9 * MB)}}, "orderd (pid 7)", id="dirty pages"),
        pytest.param(
            {ISSUERS: {Issuer("sda", "write", "/system.slice/orderd.service"): IssuedIO(1, 9 * MB)}},
            "cgroup orderd.service",
            id="cgroups only",
        ),
        pytest.param({ISSUERS: process("orderd", 9 * MB, device="sdb")}, "", id="another disk"),
        pytest.param({ISSUERS: {Issuer("sda", "write", "/"): IssuedIO(1, 9 * MB)}}, "", id="the root cgroup"),
    ],
)
def test_who_wrote_most(tables, name):
    (finding,) = found(ID, load(look(), look(), tables=tables))
    values = facts_by_name(finding)
    assert values.get("writer", "") == name
    assert ("wrote most" in finding.summary) is bool(name)
    assert ("orderd" in finding.short) is bool(name)


def test_a_program_that_dirtied_far_more_than_a_direct_one_wrote_is_named():
    tables = {ISSUERS: process("sqlite-log", 4096), DIRTIERS: {Dirtier("sda", "dump/9"): Dirtied(0, 4 << 30)}}
    (finding,) = found(ID, load(look(), look(), tables=tables))
    assert facts_by_name(finding)["writer"] == "dump (pid 9)"


def test_one_that_is_not_written_is_a_notice():
    (finding,) = found(ID, load(look(active=0, written=0), look(active=0, written=0)))
    assert finding.severity == "notice"
    assert finding.short == "/var is full: 0 of 500 MiB free; nothing is written"


def test_a_nearly_full_one_to_which_writes_go_on_is_a_notice_with_the_time_left():
    (finding,) = found(ID, load(look(available=16 * MB), look(available=4 * MB), look(available=2 * MB)))
    assert finding.severity == "notice"
    assert finding.short == "/var is nearly full: 2 MiB of 500 MiB free"
    (fact,) = [fact for fact in finding.facts if fact.name == "available_before_bytes"]
    assert fact.value == 16 * MB
    assert fact.text == "16 MiB were free 10 s before: at that rate none is in 1.43 s"


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([look(available=100 * MB)] * 12, id="room"),
        pytest.param([look(available=4 * MB, active=0)] * 12, id="nearly full, and nobody writes"),
        pytest.param([look(available=100 * MB)] * 11 + [look()], id="full at one look"),
        pytest.param([look()] * 11 + [look(available=100 * MB)], id="full before"),
        pytest.param([look(), look(available=100 * MB)] * 6 + [look()], id="full now and then"),
    ],
)
def test_no_finding(looks):
    assert found(ID, load(*looks)) == []


def test_one_that_no_look_sees_any_more():
    later = [frame(100 + 5 * n) for n in range(2, 6)]
    assert found(ID, [*load(look(), look()), *later]) == []


def test_of_a_disk_s_file_systems_the_fullest_in_use_is_named():
    idle, nearly = SpaceOf("sda", "/boot", "ext4"), SpaceOf("sda", "/srv", "xfs")
    tables = {FILE_SYSTEM_SPACE: {idle: look(active=0), nearly: look(available=MB), VAR: look()}}
    (finding,) = found(ID, [frame(100 + 5 * n, tables=tables) for n in range(3)])
    assert finding.state == ("/var", "full")


def test_a_long_mount_point_keeps_its_end_within_the_line():
    row = VAR._replace(mount="/var/lib/kubelet/pods/0123456789/volumes/kubernetes.io~csi/orders/mount")
    (finding,) = found(ID, load(look(), look(), row=row, tables={ISSUERS: process("x" * 40, MB)}))
    assert len(finding.short) <= SHORT_CELLS
    assert "csi/orders/mount is full: 0 of 500 MiB free" in finding.short
    assert any("df -h /MOUNT" in step.text for step in finding.steps)


def test_a_host_of_a_fleet():
    row = SpaceOf("db1:sda", "db1:/var", "ext4")
    (finding,) = found(ID, load(look(), look(), row=row), backend="fleet")
    assert finding.short == "db1: /var is full: 0 of 500 MiB free; no new blocks"
    assert finding.summary.startswith("db1:sda: /var (ext4) is full")
    assert "df -h /var" in finding.steps[0].text


def test_a_hidden_mount_point():
    (finding,) = found(ID, load(look(), look(), row=VAR._replace(mount="")))
    assert finding.short.startswith("a file system is full")


def test_it_is_evaluated_where_space_is_read():
    assert ID in not_evaluated(facts_of(lasting(2)))[SPACE]
    assert SPACE not in not_evaluated(facts_of(lasting(2), counted=(FILE_SYSTEM_SPACE.name,)))
