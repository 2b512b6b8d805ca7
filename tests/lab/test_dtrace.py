"""DTrace in a guest, where it has the probes that need kprobes: waits, all of sched, functions.

Everything is emulated, slowly: counts, names and milliseconds are asserted, never microseconds.
"""

import os
import shutil

import pytest
from guests import run

LEAST = 0.995
ENDS_SEEN = 0.9
"""Where interrupts come while the same program runs on its CPU the kernel skips it."""
DELAY_MS = 25

pytestmark = [
    pytest.mark.lab,
    pytest.mark.dtrace,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: guests are built with debootstrap"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-system-x86_64", "debootstrap"))), reason="needs qemu and debootstrap"
    ),
]


def captured(directory, always, invasive):
    # One CPU: DTrace changes the kernel's code as it starts, which a second emulated one may be running.
    script = ("guest_dtrace.py", always, invasive)
    reported = run(directory, "sid", script, "--disk", "nvme", "--smp", "1", kernel="trixie")
    print(reported["report"]["health"], reported["stderr"][-2000:])
    print(reported["kernel_reads"], {name: read(reported, name)["count"] for name in reported["kernel_reads"]})
    return reported


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("requests"), "requests_d", "harmless")


@pytest.fixture(scope="module")
def ios(tmp_path_factory):
    return captured(tmp_path_factory.mktemp("ios"), "io_d", "invasive")


def read(reported, name):
    return reported["report"]["devices"][name]["ops"]["read"]


def threads(reported):
    return {wakeup["thread"]: wakeup for wakeup in reported["report"]["wakeups"]}


def test_every_request_is_counted(requests):
    devices = requests["devices"]
    for name in (devices["disk"], devices["member"]):
        counted, kernel = read(requests, name)["stages"]["hba"]["count"], requests["kernel_reads"][name]
        print(name, counted, "of", kernel)
        assert LEAST * kernel <= counted <= kernel + 1
    assert requests["report"]["health"]["tier"] == "A"
    assert read(requests, devices["member"])["stages"]["hba"]["p50"] >= DELAY_MS * 1000
    assert requests["report"]["health"]["lost_events"] == 0


@pytest.mark.xfail(reason="one capture had no resume at all, though the same scripts alone reported all 400 reads")
def test_the_waits_of_threads_are_the_stage_resume(requests):
    devices = requests["devices"]
    for name in (devices["disk"], devices["volume"]):
        resumed, kernel = read(requests, name)["stages"]["resume"]["count"], requests["kernel_reads"][name]
        print(name, resumed, "of", kernel)
        assert 0.95 * kernel <= resumed <= 1.02 * kernel
    assert "resume" not in read(requests, devices["member"])["stages"]


def test_kernel_threads_have_names_and_priorities(requests):
    actual_threads = threads(requests)
    print({name: (thread["priority"], thread["count"], thread["p50"]) for name, thread in actual_threads.items()})
    assert actual_threads["ksoftirqd/0"]["priority"] == 120
    assert actual_threads["migration/0"]["priority"] == 0
    assert any(name.startswith("kworker/") and thread["priority"] == 120 for name, thread in actual_threads.items())
    assert any(
        name.startswith("kworker/") and name.endswith("H") and thread["priority"] == 100
        for name, thread in actual_threads.items()
    )
    assert all(thread["p50"] is not None for thread in actual_threads.values() if thread["count"] > 1)


def test_hooks_that_need_kprobes_are_there(requests):
    assert set(requests["hooks"]) == {
        "io:vmlinux:wait-start",
        "io:vmlinux:wait-done",
        "sched:vmlinux:on-cpu",
        "fbt:vmlinux:submit_bio_wait:entry",
    }
    assert requests["report"]["health"]["probes_missing"] == [
        {"name": "wild_d", "reason": "it is invasive and needs an explicit --invasive wild_d"}
    ]


@pytest.mark.parametrize("which", ["requests", "ios"])
def test_nothing_is_left_behind(which, request):
    reported = request.getfixturevalue(which)
    assert (reported["exit"], reported["before"], reported["after"]) == (0, "", "")


def test_an_io_through_a_volume_is_one_of_each_device(ios):
    devices = ios["devices"]
    counted = {name: read(ios, name)["count"] for name in devices.values()}
    print(counted, ios["kernel_reads"])
    for name in devices.values():
        kernel = ios["kernel_reads"][name]
        assert ENDS_SEEN * kernel <= counted[name] <= kernel + 1, name
    assert ios["report"]["health"]["tier"] == "C"


def test_an_invasive_script_runs_where_it_is_asked_for(ios, requests):
    """Each read of the SCSI disk ends in one of the functions that its hook means, or in two."""
    calls = threads(ios)["wild_d"]["count"]
    print(calls, "calls", ios["kernel_reads"][ios["devices"]["member"]], "reads")
    assert calls >= ENDS_SEEN * ios["kernel_reads"][ios["devices"]["member"]]
    assert "wild_d" not in threads(requests)
