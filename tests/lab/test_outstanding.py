"""Outstanding I/O in guests: disks with few tags, requests that are held for half a minute, an elevator's victims.

Everything is emulated, slowly: counts, limits and seconds are asserted, never microseconds.
"""

import itertools
import os
import shutil
from typing import NamedTuple

import pytest
from guests import run

IODEPTH = 16
HELD_S = 30
WITHIN_S = 2
"""No later after it began an age list has something of a request."""
ENDING_S = 4
"""Between two looks in an emulated guest, and between the end of an I/O and that of `dd`."""
STARTING_S = 4
"""What an emulated guest may take from the decision to start `dd` to its read."""
STRAY = 0.01
"""Of the busy moments, and of the requests."""
LISTED_US = 500_000
"""Younger ones are no news."""
CONTROLLERS = {
    "nvme": "nr_tags",
    "mptsas": "queue_depth",
    "megaraid_sas": "queue_depth",
    "virtio_scsi": "queue_depth",
    "virtio_blk": "nr_tags",
    "ahci": "queue_depth",
    "vmw_pvscsi": "queue_depth",
    "sym53c8xx": "queue_depth",
    "usb-storage": "queue_depth",
    "scsi_debug": "queue_depth",
}
"""Linux driver -> the file in sysfs that has its limit; tags are those of each hardware queue."""
KNOWN = {"ahci": 32, "usb-storage": 1, "sym53c8xx": 16, "mptsas": 64, "virtio_scsi": 128}
"""Limits that the driver or its device was written with."""
DISKS = ("nvme", "mptsas1068", "megasas", "megasas-gen2", "virtio-scsi", "virtio-blk", "ahci", "pvscsi", "lsi", "usb")

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]


ON_DEMAND = {
    "ceilings": ("inflight", "stages"),
    "controllers": (),
    "held": ("inflight", "bios", "bio_ages"),
    "created": ("inflight", "bios", "bio_ages"),
    "overtaken": ("inflight", "stages", "order"),
}
"""Incident -> the on-demand probes that show it."""


def incident(directory, name, *arguments, disks=(), release="trixie", cpus=2):
    words = ["--smp", cpus, *(word for kind in disks for word in ("--disk", kind))]
    return run(directory, release, ("guest_outstanding.py", name, *arguments), *words, on_demand=ON_DEMAND[name])


def remarks(device):
    rows = (device, *device["limits"])
    return {
        limits_remark["id"]
        for row in rows
        for limits_remark in (*row.get("limits_remarks", ()), *row.get("remarks", ()))
    }


PROCFS = ("--backend", "procfs")
BASIC = ("--backend", "bpftrace", "--stages", "basic")
FOLLOWING = ("--backend", "bpftrace", "--stages", "all")


@pytest.fixture(scope="module", params=[PROCFS, FOLLOWING], ids=["procfs", "bpftrace"])
def ceilings(request, tmp_path_factory):
    """By gauges that an emulated host reads once a second, and by a probe that sees every request."""
    reported = incident(tmp_path_factory.mktemp("ceilings"), "ceilings", *request.param, disks=["usb,latency-ms=100"])
    for part in ("alone", "beside"):
        print(reported[part]["stderr"][-1000:], reported[part]["issued"], reported[part]["report"]["health"])
        for name in reported[part]["issued"]:
            print(name, reported[part]["by_hand"][name], reported[part]["report"]["devices"][name])
    return reported


def disk(reported, part, which):
    return reported[part]["report"]["devices"][reported["names"][which]]


def assert_is_the_most(depths, limit):
    """But for moments: SCSI gives a command's place away before the block layer hears that it is complete, and between
    the readings of two counts, in which an emulated CPU may pause, one I/O can end and the next begin."""
    assert limit <= depths["max"] <= limit + 1
    above = sum(share for depth, share in depths["busy_time_share"].items() if int(depth) > limit)
    assert above < STRAY
    issues = {int(depth): n for depth, n in depths.get("at_issue", {}).items()}
    assert sum(n for depth, n in issues.items() if depth > limit) <= STRAY * sum(issues.values())


@pytest.mark.parametrize(("part", "which", "waiting"), [("alone", "can_queue", 3), ("beside", "queue_depth", 13)])
def test_a_driver_that_takes_three(ceilings, part, which, waiting):
    """With can_queue 3 the scheduler has twice as many requests; the other ten reads have none yet."""
    device = disk(ceilings, part, which)
    hand = ceilings[part]["by_hand"][ceilings["names"][which]]
    depths = device["outstanding"]
    assert hand[which] == "3"
    assert (depths["busy_mode"], depths["held_at"], depths["limit"]) == (3, 3, 3)
    assert_is_the_most(depths, 3)
    assert which in depths["limit_source"]
    assert depths["queued"]["busy_mode"] == waiting
    assert 0 < depths["queued"]["mean"] <= depths["queued"]["max"] <= IODEPTH
    assert "ceiling-reached" in remarks(device)


@pytest.mark.parametrize(("part", "which"), [("alone", "can_queue"), ("beside", "queue_depth"), ("beside", "free")])
def test_little_s_law_holds(ceilings, part, which):
    name = ceilings["names"][which]
    report = ceilings[part]["report"]
    law = report["devices"][name]["outstanding"].get("littles_law")
    print(law)
    if law is None and report["backend"] == "procfs":
        return  # the kernel's counters have no longest I/O, and the window may be too short for the mean one
    assert law["agrees"]
    assert law["iops"] * report["duration_s"] == pytest.approx(ceilings[part]["issued"][name], rel=0.1)
    if which == "queue_depth":
        assert law["lift"]["limit"] == 3
        assert law["lift"]["depth"] == pytest.approx(IODEPTH, abs=3)
        assert law["lift"]["iops"] == pytest.approx(law["lift"]["most"] * law["lift"]["depth"] / 3, rel=0.01)
    if which == "free":
        assert "lift" not in law


def test_a_driver_that_takes_all(ceilings):
    device = disk(ceilings, "beside", "free")
    depths = device["outstanding"]
    print(depths)
    if depths["source"] == "probe":
        assert depths["max"] == max(map(int, depths["at_issue"])) == IODEPTH
    assert 3 < depths["max"] <= IODEPTH
    assert depths["limit"] > IODEPTH
    assert depths["queued"]["mode"] == 0
    assert depths["queued"]["mean"] < depths["mean"] / 2
    assert "held_at" not in depths
    assert "ceiling-reached" not in remarks(device)


def test_usb_storage_takes_one(ceilings):
    device = disk(ceilings, "beside", "usb")
    depths = device["outstanding"]
    assert (depths["busy_mode"], depths["held_at"], depths["limit"]) == (1, 1, 1)
    assert_is_the_most(depths, 1)
    assert depths["queued"]["busy_mode"] == 1  # nr_requests is 2


def test_ten_controllers_limits(tmp_path):
    reported = incident(tmp_path, "controllers", *PROCFS, disks=[f"{kind},latency-ms=20" for kind in DISKS])
    devices = {name: reported["report"]["devices"][name] for name in reported["issued"]}
    assert {device["driver"] for device in devices.values()} == CONTROLLERS.keys()
    assert len(devices) == len(DISKS) + 1
    for name, current_device in devices.items():
        hand, depths, driver = reported["by_hand"][name], current_device["outstanding"], current_device["driver"]
        print(name, driver, depths["limit"], depths["limit_source"], "max", depths["max"], hand)
        decides = CONTROLLERS[driver]
        limit = int(hand[decides]) * (int(hand["queues"]) if decides == "nr_tags" else 1)
        assert depths["limit"] == limit == KNOWN.get(driver, limit)
        assert 0 < depths["max"] <= limit
        rows = {row["name"]: row for row in current_device["limits"]}
        assert {key: str(rows[key]["value"]) for key in hand.keys() & rows.keys()} == {
            key: hand[key] for key in hand.keys() & rows.keys()
        }
        assert rows.keys() >= hand.keys() - {"queues", "driver"}


WAITING = {"silent": (1000, True), "behind": (9000, False), "top": (2000, None), "never": (3000, None)}
"""Reader -> the block of 4 KiB that it reads, and whether the driver has it at first."""


@pytest.fixture(scope="module", params=["trixie", "sid"])
def followed(request, tmp_path_factory):
    reported = incident(tmp_path_factory.mktemp("held"), "held", *FOLLOWING, release=request.param)
    _print(reported)
    return reported


@pytest.fixture(scope="module", params=[PROCFS, BASIC], ids=["procfs", "bpftrace"])
def unfollowed(request, tmp_path_factory):
    reported = incident(tmp_path_factory.mktemp("held"), "held", *request.param)
    _print(reported)
    return reported


def _print(reported):
    print(reported["stderr"][-1000:], reported["names"], reported["readers"], reported["report"]["health"])
    for frame in reported["frames"]:
        rows = [(row["device"], row["age_us"], row["at_least"], row["count"]) for row in frame["ages"]]
        print(frame["end_us"], rows, frame["older"])


def while_it_waits(reported, reader, within_us):
    """The frames that end while it waits, from so long after it began."""
    one = reported["readers"][reader]
    until = one["ended_us"] or reported["frames"][-1]["end_us"] + 1
    return [frame for frame in reported["frames"] if one["began_us"] + within_us <= frame["end_us"] < until - 1_000_000]


@pytest.mark.parametrize("reader", ["silent", "top"])
def test_something_is_in_the_age_list_soon(followed, reader):
    """From 2 s after it began, by the gauges if the probe is late: from the second frame that saw it in flight."""
    one = followed["readers"][reader]
    frames = while_it_waits(followed, reader, 0)[1:]
    assert len(frames) >= HELD_S // 3
    for frame in frames:
        if frame["end_us"] >= one["began_us"] + WITHIN_S * 1_000_000:
            assert one["device"] in {row["device"] for row in frame["ages"]}


@pytest.mark.parametrize("reader", WAITING)
def test_a_held_request_is_in_the_age_list(followed, reader):
    """From 2 s after it began, at each of the probe's looks until it ends, however late a frame has the news."""
    one = followed["readers"][reader]
    found = reported_of(followed, _where(one))
    assert found, "never"
    began_us = found[0][1]["request"]["began_us"]
    until_us = one["ended_us"] or followed["frames"][-1]["end_us"]
    looks = [
        frame["at_us"]
        for frame in followed["frames"]
        if frame["at_us"] and began_us + WITHIN_S * 1_000_000 <= frame["at_us"] < until_us - ENDING_S * 1_000_000
    ]
    assert len(looks) >= HELD_S // 3
    assert set(looks) <= {frame["at_us"] for frame, _ in found}
    assert 0 <= began_us - one["began_us"] <= STARTING_S * 1_000_000
    for frame, row in found:
        request = row["request"]
        assert (row["at_least"], row["count"], request["op"], request["bytes"]) == (False, 1, "read", 4096)
        assert (request["pid"], request["comm"]) == (one["pid"], "dd")
        assert abs(request["began_us"] - began_us) <= 1000
        assert row["age_us"] == min(frame["at_us"], frame["end_us"]) - request["began_us"]
    ages = [row["age_us"] for _, row in found]
    assert all(younger < older for younger, older in itertools.pairwise(ages))
    assert ages[-1] >= (HELD_S - ENDING_S) * 1_000_000


def _of(row):
    return row["device"], row["request"]["sector"]


def _where(one):
    return one["device"], one["sector"]


def reported_of(reported, where):
    """(frame, row) for each frame that has a request there."""
    each = ((frame, row) for frame in reported["frames"] for row in frame["ages"] if "request" in row)
    return [(frame, row) for frame, row in each if _of(row) == where]


def test_a_volume_that_is_suspended_holds_it(followed):
    """The kernel counts nothing in flight there; only the bio shows it."""
    top, bottom = followed["readers"]["top"], followed["names"]["bottom"]
    assert all(frame["outstanding"].get(bottom, (0, 0))[0] in (0, None) for frame in followed["frames"])
    above = {frame["at_us"] for frame, _ in reported_of(followed, _where(top))}
    below = {frame["at_us"] for frame, _ in reported_of(followed, (bottom, top["sector"]))}
    assert len(above ^ below) <= 2  # it goes on to the second a moment after it came to the first


def test_where_a_held_request_is(followed):
    """The disk takes one at a time: the second waits in the block layer until the first is over."""
    silent, behind = followed["readers"]["silent"], followed["readers"]["behind"]
    over_us = silent["ended_us"]
    assert {row["request"]["issued"] for _, row in reported_of(followed, _where(silent))} == {True}
    each = [(frame["at_us"], row["request"]["issued"]) for frame, row in reported_of(followed, _where(behind))]
    assert {issued for at_us, issued in each if at_us < over_us - ENDING_S * 1_000_000} == {False}
    assert {issued for at_us, issued in each if at_us > over_us + ENDING_S * 1_000_000} == {True}


def test_the_report_has_what_never_completed_and_what_did_at_last(followed):
    report, readers = followed["report"], followed["readers"]
    longest = report["devices"][readers["top"]["device"]]["in_flight_longest"]
    assert longest["sector"] == readers["top"]["sector"]
    held_us = readers["top"]["ended_us"] - readers["top"]["began_us"]
    assert (HELD_S - ENDING_S) * 1_000_000 <= longest["age_us"] <= held_us
    for reader in ("never", "behind"):
        device = report["devices"][readers[reader]["device"]]
        (row,) = device["in_flight"]
        assert (row["sector"], row["pid"], row["comm"], row["at_least"]) == (
            readers[reader]["sector"],
            readers[reader]["pid"],
            "dd",
            False,
        )
        assert device["in_flight_oldest_us"] == row["age_us"] >= HELD_S * 1_000_000
    assert report["devices"][readers["top"]["device"]]["in_flight"] == []
    older = report["health"]["in_flight_older"]
    assert (older["1 s"], older["10 s"], older["60 s"]) == (2, 2, 0)


class Claim(NamedTuple):
    """I/Os of a device that are reported to wait at least so long."""

    count: int
    age_us: int


def claims(frame, device):
    return [Claim(row["count"], row["age_us"]) for row in frame["ages"] if row["device"] == device]


@pytest.mark.parametrize("reader", ["silent", "top"])
def test_at_least_so_long(unfollowed, reader):
    """From the first frame that saw it in flight, and never more than is true."""
    one = unfollowed["readers"][reader]
    first = next(frame["end_us"] for frame in unfollowed["frames"] if any(frame["outstanding"].get(one["device"], ())))
    assert one["began_us"] < first
    frames = [frame for frame in while_it_waits(unfollowed, reader, 0) if frame["end_us"] >= first + LISTED_US]
    assert frames[-1]["end_us"] - first >= (HELD_S - 2 * STARTING_S) * 1_000_000
    for frame in frames:
        oldest = claims(frame, one["device"])[0]
        assert oldest.age_us == frame["end_us"] - first <= frame["end_us"] - one["began_us"]
        assert oldest.count <= 1 + (reader == "silent")  # who came before that frame ended is in it


def test_nothing_else_is_claimed(unfollowed):
    """No row of a device that is reported as idle, or of more I/Os than were held."""
    names, readers = unfollowed["names"], unfollowed["readers"]
    held = {readers["silent"]["device"]: 2, readers["top"]["device"]: 1}
    for frame in unfollowed["frames"]:
        for row in frame["ages"]:
            assert row["at_least"] is True
            assert "request" not in row
            assert row["device"] in held
        for device, count in held.items():
            assert sum(claim.count for claim in claims(frame, device)) <= count
    devices = unfollowed["report"]["devices"]
    (row,) = devices[names["silent"]]["in_flight"]
    assert row.keys() == {"age_us", "at_least", "count"}
    assert (row["at_least"], row["count"]) == (True, 1)
    assert devices[names["top"]]["in_flight"] == []
    longest = devices[names["top"]]["in_flight_longest"]
    assert longest["at_least"] is True
    assert longest["age_us"] >= (HELD_S - 2 * STARTING_S) * 1_000_000
    for name in ("never", "bottom"):
        assert not devices[names[name]].get("in_flight")
        assert "in_flight_longest" not in devices[names[name]]


class Event(NamedTuple):
    """Event of blktrace: G request made for an I/O, I in the scheduler, D sent to the driver, C completed."""

    action: str
    sector: int
    seconds: float


def events(text):
    lines = filter(None, map(str.split, text.splitlines()))
    return [Event(words[0], int(words[2]), float(words[4])) for words in lines if words[0] in "GIDC"]


def overtakers(found, sector, action):
    """Requests whose `action` came later than that of the victim, and that completed earlier; and those that came
    earlier and completed later."""
    began = {one.sector: one.seconds for one in found if one.action == action}
    ended = {one.sector: one.seconds for one in found if one.action == "C"}
    both = [one for one in began if one in ended and one != sector]
    later = [one for one in both if began[one] > began[sector] and ended[one] < ended[sector]]
    still = [one for one in both if began[one] < began[sector] and ended[one] > ended[sector]]
    return len(later), len(still)


def still_before(found, sector):
    """Requests that were there when the victim came."""
    began = {one.sector: one.seconds for one in found if one.action == "G"}
    ended = {one.sector: one.seconds for one in found if one.action == "C"}
    came = began[sector]
    return sum(began[one] < came < ended[one] for one in began if one in ended)


@pytest.fixture(scope="module", params=["trixie", "sid"])
def created(request, tmp_path_factory):
    reported = incident(tmp_path_factory.mktemp("created"), "created", *FOLLOWING, release=request.param)
    print(reported["stderr"][-1000:], reported["device"], reported["writers"], reported["report"]["health"])
    for frame in reported["frames"]:
        print(frame["end_us"], frame["at_us"], frame["older"], frame["traced"], frame["removed"], frame["notice"])
    return reported


def looks_while(reported, began_us, ended_us):
    """The probe's looks from the time after which it must know of I/Os that began then; the time of each, once."""
    until_us = ended_us - ENDING_S * 1_000_000
    return {
        frame["at_us"]: frame
        for frame in reported["frames"]
        if frame["at_us"] and began_us + (STARTING_S + WITHIN_S) * 1_000_000 <= frame["at_us"] < until_us
    }


def test_a_volume_that_is_created_meanwhile_is_followed(created):
    """Its suspension holds four writes: each is in the list at every look, and then a finding is about the volume."""
    writers, device = created["writers"], created["device"]
    began_us, ended_us = max(writer["began_us"] for writer in writers), min(writer["ended_us"] for writer in writers)
    looks = looks_while(created, began_us, ended_us)
    assert len(looks) >= HELD_S // 3
    for frame in looks.values():
        rows = [row for row in frame["ages"] if row["device"] == device]
        assert {row["request"]["sector"] for row in rows} == {writer["sector"] for writer in writers}
        assert {row["request"]["op"] for row in rows} == {"write"}
    assert max(row["age_us"] for frame in looks.values() for row in frame["ages"]) >= 20_000_000
    findings = [finding for finding in created["report"]["findings"] if finding["device"] == device]
    assert "starved-io" in {finding["id"] for finding in findings}


def test_its_writes_are_counted_once_and_the_tracer_is_not_restarted(created):
    volume, disk, again = created["device"], "nullb0", created["again"]
    counted = {name: sum(frame["traced"].get(name, 0) for frame in created["frames"]) for name in (volume, disk)}
    by_kernel = {name: sum(frame["writes"].get(name, 0) for frame in created["frames"]) for name in (volume, disk)}
    print(counted, by_kernel)
    assert again == volume  # one number, two volumes
    assert counted[volume] == by_kernel[volume] == 2 * 300 + 4
    assert by_kernel[disk] == 2 * 300 + 4
    assert volume in {name for frame in created["frames"] for name in frame["removed"]}
    notices = "; ".join(frame["notice"] for frame in created["frames"])
    assert "nothing was traced" not in notices
    assert "not traced" not in notices
    assert created["frames"][-1]["ages"] == []


@pytest.fixture(scope="module")
def overtaken(tmp_path_factory):
    # One CPU: of two emulated ones one runs into code that the kernel patches on the other, under this load each time.
    reported = incident(tmp_path_factory.mktemp("overtaken"), "overtaken", cpus=1)
    print(reported["stderr"][-1000:], reported["report"]["health"], reported["victims"])
    return reported


def test_an_elevator_s_victims_were_overtaken_as_often_as_blktrace_says(overtaken):
    """Overtaking: the block layer made a request (G), the scheduler took it (I) after the victim, and it completed (C)
    before it. latmon counts at block_io_start, which lies between G and I."""
    actual_events, outliers = events(overtaken["events"]), overtaken["report"]["outliers"]
    for outlier in outliers:
        print(
            outlier["op"],
            outlier["sector"],
            outlier["total_us"],
            outlier["outstanding_at_issue"],
            outlier["overtaken_by"],
        )
    for victim in overtaken["victims"]:
        counts = [overtakers(actual_events, victim["sector"], action) for action in "GI"]
        print(victim, counts)
        (outlier,) = [
            row for row in outliers if (row["device"], row["sector"]) == (overtaken["device"], victim["sector"])
        ]
        assert all(still == 0 for _, still in counts)
        assert min(count for count, _ in counts) > IODEPTH
        assert outlier["op"] == victim["op"]
        assert min(count for count, _ in counts) <= outlier["overtaken_by"] <= max(count for count, _ in counts)
        assert outlier["outstanding_at_issue"] == still_before(actual_events, victim["sector"])
        assert outlier["stages_us"]["queue"] > 0.9 * outlier["total_us"]
        for _, row in reported_of(overtaken, (overtaken["device"], victim["sector"])):
            print("while it waited:", row)
            assert row["request"]["overtaken_by"] <= outlier["overtaken_by"]


def test_the_order_of_issue_is_blktrace_s(overtaken):
    """Each window of issues is a piece of the sequence of D events; of windows that blktrace was there for."""
    driven = [event.sector for event in events(overtaken["events"]) if event.action == "D"]
    windows = [frame["issued"].get(overtaken["device"], []) for frame in overtaken["frames"]]
    covered = [window for window in windows if window and set(window) <= set(driven)]
    print(len(windows), [len(window) for window in covered])
    assert covered
    for window in covered:
        begin = driven.index(window[0])
        assert driven[begin : begin + len(window)] == window
