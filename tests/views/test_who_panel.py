"""The panel of cgroups: rows and shares, one that is opened, reasons for an empty one, every size, hostile names."""

import re
from dataclasses import replace

import pytest
from frames import CONTAINER, ODD, ORIGIN, Lazy, frame, host, on_demand_host
from panels import inside

from latmon.analysis.attribution import issuer_rows
from latmon.findings.episodes import Episode
from latmon.findings.rule import Finding, Where
from latmon.model import measurements
from latmon.model.frame import ISSUERS, PROCESSES, Missing, Outlier, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.support.text import is_clean
from latmon.tui.commands import STEPS
from latmon.views.findings_state import CurrentFindings
from latmon.views.lines import BLANK, plain, width
from latmon.views.panels.outliers import log
from latmon.views.panels.who import who_panel
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import Selection

FRAMES = Lazy(on_demand_host, 8, 12)
HOSTILE = "[/red]x[@click=quit]y漢字" * 9
SERVICE = "/system.slice/postgresql.service"


def scene(frames, origin=ORIGIN, **selected):
    scene = Scene(Selection(screen="who", **selected))
    scene.store.origin = origin
    for current_frame in frames:
        scene.append(current_frame)
    return scene


def text(made, size=(80, 24)):
    return "\n".join(inside(screen_lines(made, (), *size)))


def of(*values, size=4096):
    return IssuedIO(len(values), len(values) * size, Histogram.record(values))


# Rows


def test_a_row_is_all_of_a_cgroup_and_shares_are_of_the_time():
    found = {
        Issuer("sda", "read", "/a"): of(100, 100),
        Issuer("sda", "write", "/a"): of(200),
        Issuer("sdb", "read", "/a"): of(400),
        Issuer("sda", "read", "/b", "web"): of(400),
        Issuer("sda", "read", OTHERS): of(800),
        Issuer("sda", "read", "/a", "", 7, "fio"): of(100),
    }
    first, second, third = issuer_rows(found, {"sda", "sdb"})
    assert [(issuer_row.issuer.cgroup, issuer_row.ios, issuer_row.share) for issuer_row in (first, second, third)] == [
        ("/a", 4, 0.4),
        (OTHERS, 1, 0.4),
        ("/b", 1, 0.2),
    ]
    assert {name: (each.ios, each.share) for name, each in first.devices.items()} == {"sda": (3, 0.25), "sdb": (1, 1.0)}
    assert (first.bytes, first.latency.max, third.issuer.name) == (4 * 4096, 400, "web")
    (process,) = issuer_rows(found, {"sda"}, processes=True)
    assert (process.issuer.pid, process.ios, process.share) == (7, 1, 1.0)


def test_a_process_has_one_row_whatever_its_name_and_cgroup_were():
    found = {
        Issuer("sda", "write", "/a", "", 7, "fio"): of(100, 200),
        Issuer("sda", "read", "/a", "", 7, "fio: worker"): of(100),
        Issuer("sdb", "write", "/", "", 7, "fio"): of(50),
        Issuer("sda", "write", "/a", "", 8, "fio"): of(100),
        Issuer("sda", "write", "a:/a", "", 7, "fio"): of(100),
    }
    rows = issuer_rows(found, {"sda", "sdb"}, processes=True, by_pid=True)
    assert [(row.issuer.pid, row.issuer.comm, row.issuer.cgroup, row.ios) for row in rows] == [
        (7, "fio", "/a", 4),
        (8, "fio", "/a", 1),
        (7, "fio", "a:/a", 1),
    ]
    assert len({row.key for row in rows}) == 3
    assert len(issuer_rows(found, {"sda", "sdb"}, processes=True)) == 5, "in a report a pid may be used again"


def test_a_cgroup_is_behind_others_for_a_share_of_its_time_on_each_device():
    found = {Issuer(name, "read", "/a"): of(us) for name, us in (("sda", 300), ("sdb", 100))}
    found |= {Issuer("sda", "read", "/b"): of(9), Issuer("sda", "read", "/a", "", 7, "fio"): of(300)}
    behind = {Behind("sda", "/a", "/b"): 80, Behind("sda", "/a", "/a"): 20, Behind("sdb", "/a", "/a"): 5}
    first, second = issuer_rows(found, {"sda", "sdb"}, behind=behind)
    assert first.behind == {"/b": pytest.approx(0.6), "/a": pytest.approx(0.4)}
    assert second.behind == {}
    assert not issuer_rows(found, {"sda"}, processes=True, behind=behind)[0].behind
    assert issuer_rows(found, {"sdb"}, behind=behind)[0].behind == {"/a": 1.0}


def test_an_opened_cgroup_names_those_that_it_is_behind():
    behind = {Behind(ODD, CONTAINER, SERVICE): 900, Behind(ODD, CONTAINER, CONTAINER): 100}
    given_scene = scene([replace(frame, tables={**frame.tables, measurements.BEHIND: behind}) for frame in FRAMES])
    given_scene.choose(STEPS["its_devices"](given_scene.view, 0))
    said = " ".join(text(given_scene).split())
    assert (
        "while its I/Os were in flight, the device served postgresql.service for 90%, its own I/Os for 10% of the time"
        in said
    )


def test_ops_and_devices_are_selected():
    found = {
        Issuer("sda", "read", "/a"): of(1),
        Issuer("sda", "write", "/b"): of(2),
        Issuer("sdb", "read", "/c"): of(3),
    }
    assert [issuer_row.issuer.cgroup for issuer_row in issuer_rows(found, {"sda"}, ("read",))] == ["/a"]
    assert issuer_rows(found, ()) == []


def test_without_sums_the_share_is_of_the_buckets_middles():
    slow = Histogram.of({100: 10})
    rows = issuer_rows(
        {Issuer("sda", "read", "/a"): IssuedIO(10, 1, slow), Issuer("sda", "read", "/b"): of(5)}, {"sda"}
    )
    assert rows[0].share == pytest.approx(1, abs=0.001)


def test_ios_that_nothing_timed_have_neither_share_nor_latency():
    (issuer_row,) = issuer_rows({Issuer("sda", "read", "/a"): IssuedIO(10, 4096)}, {"sda"})
    assert (issuer_row.ios, issuer_row.share, issuer_row.latency.count) == (10, None, 0)


# The panel


def test_cgroups_and_the_devices_of_the_selected_one():
    shown = text(scene(FRAMES))
    lines = shown.splitlines()
    assert lines[1].startswith("─ who  2 cgroups with I/O")
    assert re.match(r" (web-1|postgresql.service) has \d+% of the time of I/Os", lines[2])
    assert "▸web-1" in lines[4]
    assert "postgresql.service" in lines[5]
    assert "others, or no cgroup" in lines[6]
    assert "─ web-1  its devices" in shown
    assert f" cgroup {CONTAINER[:40]}" in shown
    assert f" {ODD} " in shown


def test_a_row_with_little_is_dim_and_a_single_one_has_no_sentence():
    little = {Issuer(ODD, "read", "/small"): of(10), Issuer(ODD, "read", "/large"): of(*[9_000] * 40)}
    rows = screen_lines(scene([frame.with_tables({measurements.ISSUERS: little}) for frame in FRAMES]), BLANK, 80, 24)
    small = next(line for line in rows if plain(line).startswith(" /small"))
    large = next(line for line in rows if plain(line)[1:].startswith("/large"))
    roles = {span.role for span in small if span.text.strip() and "▏" not in span.text}
    assert roles <= {"dim", "area"}
    assert "strong" in {span.role.partition("/")[0] for span in large}
    assert any(plain(line).startswith(" /large has >99% of the time of I/Os") for line in rows)
    alone = {Issuer(ODD, "read", "/large"): of(*[9_000] * 40)}
    shown = text(scene([frame.with_tables({measurements.ISSUERS: alone}) for frame in FRAMES]))
    assert "of the time of I/Os" not in shown


def test_the_finding_on_an_issuer_is_the_first_row():
    given_scene = scene(FRAMES)
    finding = Finding(
        "noisy-neighbour", "warning", ODD, "x", (), Where("who", ODD), (), "", short=f"{ODD}: /a delays /b"
    )
    episode = Episode(worst=finding, last=finding, begin_us=0, end_us=0, begin_wall=0.0, end_wall=0.0)
    view = replace(given_scene.view, found=CurrentFindings((episode,), evaluated=True))
    lines = [plain(line) for line in who_panel(view, 80, 20)]
    assert lines[0].startswith(f" ! {ODD}: /a delays /b")
    assert lines[1].startswith(" who ")


def test_keys_select_and_open_a_cgroup():
    made = scene(FRAMES)
    made.choose(STEPS["issuer"](made.view, 1))
    assert made.selection.row == (SERVICE, 0, "")
    assert "▸postgresql.service" in text(made)
    made.choose(STEPS["its_devices"](made.view, 0))
    assert made.selection.context == "issuer"
    assert "▸nvme0n1" in text(made)
    made.choose(STEPS["scroll"](made.view, 1))
    assert "▸nvme1n1" in text(made)
    made.append(
        replace(
            FRAMES[-1],
            seq=99,
            mono_us=FRAMES[-1].mono_us + 10**9,
            tables={**FRAMES[-1].tables, measurements.ISSUERS: {}},
        )
    )
    assert "by cgroup" in text(made)
    made.choose(STEPS["leave"](made.view, 0))
    assert (made.selection.screen, made.selection.opened) == ("who", False)


@pytest.mark.parametrize(
    ("cgroup", "shown"), [("db1:others", "db1:others, or no cgroup"), ("db1:/x:others", "db1:/x:others")]
)
def test_a_cgroup_of_a_fleet_whose_name_ends_as_that_of_the_others_is_itself(cgroup, shown):
    given_scene = scene(
        [frame.with_tables({measurements.ISSUERS: {Issuer(ODD, "read", cgroup): of(100)}}) for frame in FRAMES]
    )
    line = next(line for line in text(given_scene, (120, 24)).splitlines() if "db1" in line)
    assert f"{shown} " in line
    assert ("or no cgroup" in line) == ("or no cgroup" in shown)


def test_one_op_and_a_filter():
    assert "web-1" not in text(scene(FRAMES, op="read"))
    assert "only reads" in text(scene(FRAMES, op="read"))
    assert "web-1" not in text(scene(FRAMES, pattern="nvme0n1"))
    assert "passes the filter" in text(scene(FRAMES, op="discard"))


FIO, OTHER = (ODD, "write", CONTAINER, "web-1", 4711, "fio"), (ODD, "read", OTHERS, "", 0, OTHERS)


def traced():
    its = {Issuer(*FIO): of(100, 300), Issuer(*OTHER): of(50)}
    return [
        replace(
            frame,
            traced=Traced(one_in=1),
            tables={**frame.tables, measurements.ISSUERS: {**frame[measurements.ISSUERS], **its}},
        )
        for frame in FRAMES
    ]


def test_processes_of_a_cgroup_and_all_of_them():
    given_scene = scene(traced())
    assert "fio 4711" in text(given_scene, (120, 40))
    assert "other processes" not in text(given_scene, (120, 40))
    given_scene.choose(STEPS["processes"](given_scene.view, 0))
    shown = text(given_scene, (140, 30)).splitlines()
    assert shown[1].startswith("─ who  1 process with I/O")
    words = [word for word in shown[3].split() if "▆" not in word]
    assert words[:4] == ["▸fio", "4711", "24", "0.1"]
    assert "web-1" in shown[3]
    assert "other processes" in shown[4]
    given_scene.choose(STEPS["its_devices"](given_scene.view, 0))
    assert "fio 4711  its devices" in text(given_scene)
    assert CONTAINER[:40] in text(given_scene)
    given_scene.choose(STEPS["leave"](given_scene.view, 0))
    given_scene.choose(STEPS["processes"](given_scene.view, 0))
    assert "2 cgroups" in text(given_scene)


@pytest.mark.parametrize("processes", [None, True])
def test_on_sunos_it_names_the_scripts_and_the_processes_of_slow_ios(processes):
    absent = tuple(Missing(name, "this system has no D script for that") for name in (ISSUERS, PROCESSES))
    origin = replace(ORIGIN, kernel="SunOS 5.11", untraced=absent)
    slow_ios = tuple(Outlier(0.0, 1, "nvme0n1", "read", 50_000, comm=comm) for comm in ("oracle", "dbw0", "oracle"))
    frames = [replace(frame, outliers=slow_ios) for frame in host(2, 1)]
    shown = " ".join(text(scene(frames, origin, processes=processes)).split())
    assert "The script sd names the process of each slow I/O (screen 4) once it has completed, vop_files that" in shown
    named = re.findall("(oracle|dbw0) +([0-9]) ▆+ +([0-9.]+ms) ▆+ +([0-9.]+ms) nvme0n1", shown)
    assert named == [("oracle", "2", "100ms", "50.0ms"), ("dbw0", "1", "50.0ms", "50.0ms")]
    assert shown.index("oracle") < shown.index("No D script"), "what is known is first"


def test_on_sunos_without_a_slow_io_and_a_finding_it_says_so():
    absent = tuple(Missing(name, "this system has no D script for that") for name in (ISSUERS, PROCESSES))
    given_scene = scene(host(2, 1), replace(ORIGIN, kernel="SunOS 5.11", untraced=absent))
    assert "no slow I/O completed in the last 60 s" in text(given_scene)
    assert "next steps" not in text(given_scene)


@pytest.mark.parametrize(
    ("frames", "missing", "says"),
    [
        (FRAMES, "", "none has completed"),
        (FRAMES, "it needs kernel BTF", "it needs kernel BTF"),
        (host(2, 3), "", "I/Os of processes"),
    ],
)
def test_without_processes_it_says_why(frames, missing, says):
    origin = replace(ORIGIN, untraced=(Missing(PROCESSES, missing),)) if missing else ORIGIN
    assert says in " ".join(text(scene(frames, origin, processes=True)).split())


@pytest.mark.parametrize(
    ("frames", "origin", "says"),
    [
        ([], None, "starting"),
        ([replace(frame(1), kernel={}, seen={})], ORIGIN, "no I/O completed in the last 60 s"),
        (host(2, 3), ORIGIN, "none was counted by cgroup"),
        (
            [
                replace(
                    frame,
                    tables={
                        **frame.tables,
                        measurements.ISSUERS: {Issuer("sda", "read", OTHERS, "", 7, "fio"): of(900)},
                    },
                )
                for frame in host(2, 3)
            ],
            ORIGIN,
            "or this host has none; Tab shows those of processes",
        ),
        (host(2, 3), replace(ORIGIN, untraced=(Missing(ISSUERS, "it needs kernel BTF"),)), "it needs kernel BTF"),
    ],
)
def test_an_empty_panel_says_why(frames, origin, says):
    assert says in " ".join(text(scene(frames, origin, processes=False)).split())


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 36), (160, 50), (200, 60)])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("processes", [False, True])
def test_it_fits_everywhere_and_is_clean(size, opened, processes):
    names = [HOSTILE[:200], "/" + "x" * 250, "/漢字/サービス.service", "#17"]
    found = {Issuer(f"d{n}", "read", name, HOSTILE[:40]): of(2**31, 1) for n, name in enumerate(names)}
    found |= {issuer._replace(pid=2**22 - n, comm=HOSTILE[:60]): done for n, (issuer, done) in enumerate(found.items())}
    row = (names[0], 2**22, HOSTILE[:60]) if processes else (names[0], 0, "")
    given_scene = scene(
        [replace(frame(1), tables={**frame(1).tables, measurements.ISSUERS: found})],
        row=row,
        opened=opened,
        processes=processes,
    )
    lines = screen_lines(given_scene, (), *size)
    assert len(lines) == size[1]
    assert all(width(line) <= size[0] for line in lines)
    assert all(is_clean(span.text) for line in lines for span in line)


def slow(one, **changed):
    return replace(max(one.outliers, key=lambda o: o.total_us), **changed)


def test_keys_lead_from_an_issuer_to_its_slow_ios_and_files_and_back():
    frames = [
        replace(
            frame, outliers=(slow(frame, device=ODD, pid=4711, comm="fio"), slow(frame, device=ODD, pid=4, comm="dd"))
        )
        for frame in traced()
    ]
    given_scene = scene(frames)
    for keys in ((), ("processes",)):  # a cgroup has the I/Os of its processes
        for name in (*keys, "its_devices"):
            given_scene.choose(STEPS[name](given_scene.view, 0))
        given_scene.choose(STEPS["its_outliers"](given_scene.view, 0))
        assert given_scene.selection.context == "outliers"
        whose = "fio 4711" if keys else "web-1"
        assert f"slow I/Os {ODD}, by {whose}" in text(given_scene)
        assert {row.outlier.pid for row in log(given_scene.view).rows} == {4711}
        given_scene.choose(STEPS["read"](given_scene.view, 0))
        assert given_scene.selection.context == "outlier"
        for context in ("outliers", "issuer"):
            given_scene.choose(STEPS["leave"](given_scene.view, 0))
            assert given_scene.selection.context == context
        given_scene.choose(STEPS["its_files"](given_scene.view, 0))
        assert given_scene.selection.context == "files"
        given_scene.choose(STEPS["leave"](given_scene.view, 0))
        given_scene.choose(STEPS["leave"](given_scene.view, 0))
        assert given_scene.selection.context == "who"


def test_an_issuer_without_known_processes_has_no_slow_ios_of_others():
    given_scene = scene(FRAMES)
    given_scene.choose(STEPS["its_devices"](given_scene.view, 0))
    given_scene.choose(STEPS["its_outliers"](given_scene.view, 0))
    shown = text(given_scene, (140, 40))
    assert f"no outlier was logged in {ODD}, by web-1" in " ".join(shown.split())
    empty = scene(host(2, 3))
    before = empty.selection
    assert STEPS["its_outliers"](empty.view, 0) is before
    assert STEPS["its_files"](empty.view, 0) is before


def test_bytes_of_processes_without_a_probe_are_marked_so():
    """No I/O, device or latency of them is known: none of these is 0."""
    issued_ios_by_issuer = {Issuer("", "read", SERVICE, "", 7, "dd"): IssuedIO(0, 5_000_000)}
    frames = [replace(frame(0), tables={**frame(0).tables, measurements.ISSUERS: issued_ios_by_issuer})]
    shown = text(scene(frames, processes=True), (160, 50))
    assert "bytes by /proc/PID/io of processes only: the tracer times them, and has not run in this window" in shown
    (line,) = [line for line in shown.splitlines() if "dd 7" in line and "5" in line][:1]
    assert line.split("dd 7")[1].split()[0] == "5.00", line
    heads = next(line for line in shown.splitlines() if line.lstrip("│ ").startswith("process"))
    assert not {"I/Os", "p99", "max", "share", "on"} & set(heads.split())
    assert "dd 7" not in text(scene(frames, processes=True, pattern="sda"), (160, 50)), "its device is not known"
    opened = scene(frames, processes=True, opened=True, row=("", 7, ""))
    assert "not known" in text(opened, (160, 50))


COUNTED = {
    Issuer(ODD, "read", SERVICE): IssuedIO(10, 4096),
    Issuer(ODD, "read", OTHERS, "", 7, "fio"): IssuedIO(30, 8192),
    Issuer(ODD, "read", OTHERS, "", 8, "dd"): IssuedIO(10, 40_960),
}


def test_processes_are_listed_where_no_io_is_timed_by_cgroup():
    """Columns without any value are left out, and a line says why."""
    tier_c = replace(ORIGIN, tier="C")
    given_scene = scene([frame.with_tables({measurements.ISSUERS: COUNTED}) for frame in FRAMES], tier_c)
    shown = text(given_scene, (100, 30))
    assert "2 processes with I/O" in shown
    assert "I/Os and bytes of processes only: to time I/Os of a process needs tier A, bpftrace 0.19 or newer" in shown
    heads = next(line for line in shown.splitlines() if line.startswith(" process"))
    assert heads.split() == ["process", "I/Os", "MB", "on"]
    assert " dd 8 moves 83% of the bytes; most I/Os: fio 7, 75%" in shown
    first, second = (
        next(line for line in shown.splitlines() if line[1:].startswith(name)) for name in ("fio 7", "dd 8")
    )
    assert first.count("▆") > second.count("▆") / 2
    given_scene.choose(STEPS["processes"](given_scene.view, 0))
    shown = text(given_scene, (100, 30))
    assert "1 cgroup with I/O" in shown
    assert "times no I/O of a cgroup: to time that needs tier A, bpftrace 0.19 or newer" in " ".join(shown.split())
    assert " - " not in shown
    given_scene.choose(STEPS["processes"](given_scene.view, 0))
    assert "2 processes" in text(given_scene, (100, 30))


def test_an_opened_process_stays_one_when_cgroups_become_timed():
    given_scene = scene([frame.with_tables({measurements.ISSUERS: COUNTED}) for frame in FRAMES])
    given_scene.choose(STEPS["its_devices"](given_scene.view, 0))
    assert given_scene.selection.processes is True
    assert "fio 7  its devices" in text(given_scene)


def test_cgroups_are_listed_where_they_are_timed():
    assert scene(traced()).view.lists_processes is False
    assert scene(FRAMES).view.lists_processes is False
