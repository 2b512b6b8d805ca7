"""noisy-neighbour: a cgroup for which others wait, and loads that only look like one."""

from dataclasses import replace

import pytest
from finding_cases import disk, facts_of, found, frame, hist

from latmon.findings.engine import not_evaluated
from latmon.model import measurements
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer

RULE = "noisy-neighbour"
BACKUP, WEB, DB = "/system.slice/backup.service", "/system.slice/web.service", "/db"
SDA = disk()


def issued(*rows, device="sda", size=4096):
    """(cgroup, I/Os, us of each, and optionally their size) -> a frame's issuers."""
    return {
        Issuer(device, "read", group): IssuedIO(n, n * (more[0] if more else size), hist({us: n}))
        for group, n, us, *more in rows
    }


def loads(quiet, busy, *, blocks=(6, 6)):
    rows = [*[quiet] * blocks[0], *[busy] * blocks[1]]
    return [frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*row)}) for at, row in enumerate(rows)]


QUIET = ((WEB, 500, 200), (DB, 300, 300))
BUSY = ((WEB, 400, 2000), (DB, 300, 310), (BACKUP, 2000, 3000, 65_536))


def test_who_waits_for_whom_and_how_much():
    (finding,) = found(RULE, loads(QUIET, BUSY), [SDA])
    assert finding.summary == (
        "sda: reads of web.service take 10.0 x as long while backup.service is busy, "
        "which then has 87% of the device's time"
    )
    facts = {fact.name: fact for fact in finding.facts}
    assert facts["waited_us"].value == 6 * 400 * 1800
    assert facts["cgroup"].value == BACKUP
    assert (facts["mean_1_us"].value, facts["mean_1_us"].of) == (2000, 2400)
    assert "mean_2_us" not in facts  # DB did not wait
    assert (finding.where.screen, finding.where.device) == ("who", "sda")
    assert "backup.service" in finding.steps[0].commands[0]
    assert finding.share == pytest.approx(0.9 * 30 / 60)


def test_a_neighbour_that_comes_and_goes_is_found_although_the_others_catch_up_behind_it():
    """Others with a rate issue what has waited at once: most I/Os of the block in which it ends are fast."""
    quiet, busy = ((WEB, 500, 1_400),), ((WEB, 85, 60_000), (BACKUP, 2_000, 80_000))
    mixed = ((WEB, 2_000, 1_100), (BACKUP, 500, 80_000))
    rows = [quiet, busy, mixed, quiet, quiet, busy, mixed, quiet, quiet, busy, mixed, quiet]
    frames = [frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*row)}) for at, row in enumerate(rows)]
    (finding,) = found(RULE, frames, [SDA])
    facts = {fact.name: fact for fact in finding.facts}
    assert (facts["mean_1_us"].value, facts["mean_1_us"].of) == (60_000, 3 * 85)


def test_one_that_comes_twice_for_12_s_is_found_in_its_second_time():
    """The I/Os of each block of a real backup, whose device served one at a time, and of a reader with a rate."""
    rows = [
        ((WEB, 903, 2_276), (BACKUP, 900, 40_000)),
        ((WEB, 300, 1_065),),
        ((WEB, 499, 1_262),),
        ((WEB, 397, 5_083), (BACKUP, 1_300, 40_000)),
        ((WEB, 165, 30_216), (BACKUP, 3_700, 40_000)),
        ((WEB, 155, 32_055), (BACKUP, 3_700, 40_000)),
    ]
    frames = [frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*row)}) for at, row in enumerate(rows)]
    (finding,) = found(RULE, frames, [SDA])
    assert {fact.name: fact.value for fact in finding.facts}["mean_1_us"] == pytest.approx(31_100, rel=0.05)


def test_one_block_in_which_the_device_stalls_is_not_the_neighbour():
    rows = [((WEB, 500, 1_000),)] * 6
    rows += [((WEB, 500, 1_200), (BACKUP, 1_000, 3_000))] * 5 + [((WEB, 300, 12_000), (BACKUP, 1_000, 30_000))]
    frames = [frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*row)}) for at, row in enumerate(rows)]
    assert found(RULE, frames, [SDA]) == []


def test_one_that_is_busy_in_parts_of_blocks_alone_is_evaluated_by_all_of_them():
    rows = [((WEB, 500, 200),)] * 6
    rows += [((WEB, 400, 2000), (BACKUP, n, 3000)) for n in (2000, 1000, 1000, 1000, 1000, 1000)]
    frames = [frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*row)}) for at, row in enumerate(rows)]
    (finding,) = found(RULE, frames, [SDA])
    assert {fact.name: fact for fact in finding.facts}["mean_1_us"].of == 6 * 400


def served(**shares):
    """Return what the device did while traced I/Os of web.service were in flight, by name, in a frame."""
    names = {"web": WEB, "backup": BACKUP, "db": DB}
    return {Behind("sda", WEB, names[name]): us for name, us in shares.items()}


def test_the_time_behind_the_neighbour_is_evidence():
    behind = served(web=10_000, backup=70_000, db=20_000) | {Behind("sdb", WEB, BACKUP): 10**6}
    frames = [replace(frame, tables={**frame.tables, measurements.BEHIND: behind}) for frame in loads(QUIET, BUSY)]
    (finding,) = found(RULE, frames, [SDA])
    (fact,) = (fact for fact in finding.facts if fact.name == "behind_1")
    assert fact.value == 0.7
    assert fact.text == "for 70% of the time of I/Os of web.service the device served those of backup.service"


@pytest.mark.parametrize(
    ("behind", "is_found"),
    [
        pytest.param(served(web=80_000, backup=15_000), False, id="hardly behind it"),
        pytest.param(served(web=80_000, db=70_000, backup=15_000), False, id="behind another one"),
        pytest.param(served(web=800, backup=150), True, id="too few traced to know"),
        pytest.param({}, True, id="not traced"),
    ],
)
def test_what_was_traced_and_is_not_behind_it_did_not_wait_for_it(behind, is_found):
    frames = [replace(frame, tables={**frame.tables, measurements.BEHIND: behind}) for frame in loads(QUIET, BUSY)]
    assert bool(found(RULE, frames, [SDA])) is is_found


def test_several_wait_and_the_slowest_is_named():
    busy = ((WEB, 400, 2000), (DB, 300, 9000), (BACKUP, 2000, 30_000))
    (finding,) = found(RULE, loads(QUIET, busy), [SDA])
    assert "reads of /db and 1 more cgroup take 30.0 x as long" in finding.summary


def test_it_may_come_first_and_end():
    (finding,) = found(RULE, loads(BUSY, QUIET), [SDA])
    assert "backup.service is busy" in finding.summary


@pytest.mark.parametrize(
    ("quiet", "busy", "blocks"),
    [
        pytest.param(BUSY, BUSY, (6, 6), id="always busy"),
        pytest.param(QUIET, ((WEB, 500, 210), (BACKUP, 2000, 3000)), (6, 6), id="nobody waits"),
        pytest.param(QUIET, ((WEB, 5, 2000), (BACKUP, 2000, 3000)), (6, 6), id="too few to know"),
        pytest.param(QUIET, ((WEB, 1500, 2000), (BACKUP, 2000, 3000)), (6, 6), id="more I/Os of its own"),
        pytest.param(QUIET, ((WEB, 400, 2000, 1 << 20), (BACKUP, 2000, 3000)), (6, 6), id="larger I/Os of its own"),
        pytest.param(QUIET, ((WEB, 400, 2000), (BACKUP, 200, 3000)), (6, 6), id="no more of the time than the others"),
        pytest.param(QUIET, ((WEB, 400, 2000), (OTHERS, 2000, 3000)), (6, 6), id="no cgroup"),
        pytest.param(((WEB, 500, 20),), ((WEB, 400, 90), (BACKUP, 2000, 300)), (6, 6), id="70 us more"),
        pytest.param(((WEB, 500, 200),), ((WEB, 500, 2000),), (6, 6), id="alone"),
    ],
)
def test_no_neighbour(quiet, busy, blocks):
    assert found(RULE, loads(quiet, busy, blocks=blocks), [SDA]) == []


def test_a_tail_alone_is_not_the_neighbour_s():
    """A few I/Os of 100 ms make the mean 5 times as long, and the median as before."""
    slow = {Issuer("sda", "read", WEB): IssuedIO(400, 1, hist({200: 396, 100_000: 4}))}
    frames = [
        frame(
            100 + 5 * at,
            tables={measurements.ISSUERS: issued(*QUIET) if at < 6 else slow | issued((BACKUP, 2000, 3000))},
        )
        for at in range(12)
    ]
    assert found(RULE, frames, [SDA]) == []


@pytest.mark.parametrize(
    ("group", "container", "command"),
    [
        ("/system.slice/more.slice/backup.service", "", "systemctl set-property --runtime backup.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/web.service", "", ""),
        (f"/docker/{'3f2a91c0' * 8}", "ssh.service", ""),
        ("a:/system.slice/web.service", "", ""),
        ("/", "", ""),
    ],
)
def test_a_command_is_for_a_unit_of_the_system_alone(group, container, command):
    busy = issued((WEB, 400, 2000)) | {
        one._replace(container=container): done for one, done in issued((group, 2000, 3000)).items()
    }
    frames = [
        frame(100 + 5 * at, tables={measurements.ISSUERS: issued(*QUIET) if at < 6 else busy}) for at in range(12)
    ]
    (finding,) = found(RULE, frames, [SDA])
    commands = [text for step in finding.steps for text in step.commands]
    assert bool(commands) is bool(command)
    assert all(text.startswith(command) for text in commands)
    assert all("only reads" not in step.risk for step in finding.steps)
    assert ("IOAccounting" in finding.steps[0].what) is (group == "/")


def mixed(reads, writes, us=(5000, 100)):
    """Return reads, which are slow, and writes of a service."""
    counts = zip(("read", "write"), (reads, writes), us, strict=True)
    return {Issuer("sda", op, WEB): IssuedIO(n, n * 4096, hist({one: n})) for op, n, one in counts}


def test_more_reads_than_before_are_slower_without_a_neighbour():
    """A mean and a median of reads and writes are 50 times as long, because most are reads now."""
    busy = issued((BACKUP, 2000, 6000))
    frames = [
        frame(100 + 5 * at, tables={measurements.ISSUERS: mixed(100, 900) if at < 6 else mixed(800, 150) | busy})
        for at in range(12)
    ]
    assert found(RULE, frames, [SDA]) == []


def test_reads_may_wait_while_writes_do_not():
    busy = issued((BACKUP, 2000, 60_000))
    slow = mixed(100, 900, (30_000, 100))
    frames = [
        frame(100 + 5 * at, tables={measurements.ISSUERS: mixed(100, 900) if at < 6 else slow | busy})
        for at in range(12)
    ]
    (finding,) = found(RULE, frames, [SDA])
    assert "reads of web.service take 6.0 x as long" in finding.summary


def test_another_device_s_load_is_not_on_this_one():
    frames = [
        frame(
            100 + 5 * at,
            tables={
                measurements.ISSUERS: issued((WEB, 500, 200 if at < 6 else 2000))
                | issued((BACKUP, 2000, 3000), device="sdb")
            },
        )
        for at in range(12)
    ]
    assert found(RULE, frames, [SDA, disk("sdb")]) == []


def test_without_latencies_by_cgroup_it_is_not_evaluated():
    counted = {Issuer("sda", "read", WEB): IssuedIO(5, 1)}
    for issuers in ({}, counted):
        assert not_evaluated(facts_of([frame(100, tables={measurements.ISSUERS: issuers})]))["issuers"] == (RULE,)
    assert "issuers" not in not_evaluated(facts_of([frame(100, tables={measurements.ISSUERS: issued(*QUIET)})]))


def test_one_that_was_busy_for_a_single_block_is_a_notice():
    (finding,) = found(RULE, loads(QUIET, BUSY, blocks=(11, 1)), [SDA])
    assert finding.severity == "notice"
    (finding,) = found(RULE, loads(QUIET, BUSY, blocks=(10, 2)), [SDA])
    assert finding.severity == "warning"
