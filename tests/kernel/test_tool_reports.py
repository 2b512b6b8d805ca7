"""Reports by tools: the output of nvme-cli, smartctl and dmsetup, which of them runs, when, and as whom."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from latmon.model.frame import Device, DeviceReport
from latmon.support.errors import UnavailableError, UntrustedError
from latmon_backends.kernel import block_devices
from latmon_backends.kernel.block_devices import REPORTS_PERIOD_S, BlockDevices, ToolReports, read_logs

GOLDEN = Path(__file__).resolve().parents[1] / "golden/drives"
NVME = (GOLDEN / "nvme-smart-log.json").read_bytes()
SMARTCTL = (GOLDEN / "smartctl-attributes.json").read_bytes()
"""In the tools' own formats: those of nvme-cli 2 and smartmontools 7.3."""


def tools(*there, refuse=()):
    def find(name, _variable, _environ):
        if name in refuse:
            raise UntrustedError(f"{name} can be changed by others")
        if name not in there:
            raise UnavailableError(f"{name} is not installed")
        return Path(f"/usr/sbin/{name}")

    return find


class Ran:
    """Answers by tool, and the commands that were run."""

    def __init__(self, **answers):
        self.answers, self.commands = answers, []

    def __call__(self, words):
        self.commands.append(words)
        answer = self.answers[Path(words[0]).name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_nvme_cli_comes_before_smartctl():
    ran = Ran(nvme=NVME, smartctl=SMARTCTL)
    logs = read_logs(("nvme0n1",), ran, tools("nvme", "smartctl"))
    assert ran.commands == [
        ("/usr/sbin/nvme", command, "/dev/nvme0n1", "--output-format=json") for command in ("smart-log", "id-ctrl")
    ]
    assert logs["nvme0n1"] == (
        DeviceReport("critical_warning", 0, "nvme"),
        DeviceReport("media_errors", 0, "nvme"),
        DeviceReport("num_err_log_entries", 17, "nvme"),
        DeviceReport("warning_temp_time", 12, "nvme"),
        DeviceReport("critical_comp_time", 0, "nvme"),
        DeviceReport("thm_temp1_trans_count", 3, "nvme"),
        DeviceReport("thm_temp2_trans_count", 0, "nvme"),
    )


def test_smartctl_reads_what_nvme_cli_can_not():
    ran = Ran(nvme=subprocess.TimeoutExpired("nvme", 5), smartctl=SMARTCTL)
    logs = read_logs(("nvme0n1",), ran, tools("nvme", "smartctl"))
    assert [device_report.source for device_report in logs["nvme0n1"]] == ["smartctl"] * 5
    assert {device_report.name: device_report.value for device_report in logs["nvme0n1"]}["media_errors"] == 2


@pytest.mark.parametrize(
    "output",
    [
        *(b"", b"not json", b"[]", b'"x"', b"7", b"{}", b"[" * 100_000),
        *(
            b'{"media_errors": %s}' % value
            for value in (b'"many"', b'","', b"-1", b"true", b"1e3", b"9223372036854775808")
        ),
    ],
)
def test_output_that_is_no_log_is_left_out(output):
    assert read_logs(("nvme0n1",), Ran(nvme=output), tools("nvme")) == {}


def test_quoted_numbers_are_numbers():
    output = json.dumps({"media_errors": "1,234", "num_err_log_entries": "9" * 40}).encode()
    device_reports = read_logs(("nvme0n1",), Ran(nvme=output), tools("nvme"))["nvme0n1"]
    assert [(device_report.name, device_report.value) for device_report in device_reports] == [("media_errors", 1234)]


def test_a_tool_that_others_can_change_is_not_run():
    ran = Ran(nvme=NVME)
    assert read_logs(("nvme0n1",), ran, tools("nvme", refuse=("nvme",))) == {}
    assert ran.commands == []


class Nvme:
    """nvme-cli with an answer for each of its commands."""

    def __init__(self, **answers):
        self.answers, self.commands = answers, []

    def __call__(self, words):
        self.commands.append(words[1:-2])
        return json.dumps(self.answers.get(words[1].replace("-", "_"), {})).encode()


AMAZON = {
    "total_read_ops": 238,
    "total_write_ops": 17_000,
    "ebs_volume_performance_exceeded_iops": 31_000_000,
    "ebs_volume_performance_exceeded_tp": 0,
    "ec2_instance_ebs_performance_exceeded_iops": 0,
    "ec2_instance_ebs_performance_exceeded_tp": 200_000,
    "volume_queue_length": 1,
    "read_io_latency_histogram": {"bins": [{"lower": 0, "upper": 1, "count": 0}]},
}
"""As `nvme amzn stats -o json` of nvme-cli 2.11 prints it (plugins/amzn/amzn-nvme.c), with one of its bins."""


def test_a_volume_of_amazon_reports_the_time_at_its_limits():
    nvme = Nvme(amzn=AMAZON)
    logs = read_logs(("nvme1n1",), nvme, tools("nvme"), models={"nvme1n1": "Amazon Elastic Block Store"})
    assert nvme.commands == [("smart-log",), ("amzn", "stats")]
    assert logs["nvme1n1"] == (
        DeviceReport("ebs_volume_performance_exceeded_iops", 31_000_000, "nvme"),
        DeviceReport("ebs_volume_performance_exceeded_tp", 0, "nvme"),
        DeviceReport("ec2_instance_ebs_performance_exceeded_iops", 0, "nvme"),
        DeviceReport("ec2_instance_ebs_performance_exceeded_tp", 200_000, "nvme"),
    )


def test_a_vendor_s_page_is_not_read_of_other_drives():
    nvme = Nvme(amzn=AMAZON)
    assert read_logs(("nvme0n1",), nvme, tools("nvme"), models={"nvme0n1": "SSD 990"}) == {}
    assert nvme.commands == [("smart-log",), ("id-ctrl",)]


@pytest.mark.parametrize(("oacs", "read"), [(0x17, True), (0x07, False), ("0x17", False), (None, False)])
def test_a_running_self_test_is_read_of_drives_that_have_one(oacs, read):
    log = {"Current Device Self-Test Operation": 2, "Current Device Self-Test Completion": 37}
    nvme = Nvme(id_ctrl={"oacs": oacs}, self_test_log=log)
    logs = read_logs(("nvme0n1",), nvme, tools("nvme"))
    reports = (DeviceReport("self_test", 2, "nvme"), DeviceReport("self_test_percent", 37, "nvme"))
    assert logs == ({"nvme0n1": reports} if read else {})
    assert (("self-test-log",) in nvme.commands) is read


def at_once(_name, read):
    """Run a reading at once instead of on a thread."""
    done = Future()
    done.set_result(read())
    return done


def logs(asked, *, root=True):
    """Return reports of drives; `asked` is given the drives of each reading."""

    def read(drives, *, multipath, **_):
        asked.append((*drives, *(["multipath"] if multipath else [])))
        return {name: (DeviceReport("media_errors", len(asked), "nvme"),) for name in drives}

    return ToolReports(read, lambda: root, at_once)


def known(*names, **models):
    """Return a host's devices by name; `models`: the model of some."""
    return {name: Device(name, 8, 0, model=models.get(name.replace("-", "_"), "")) for name in names}


def test_drives_are_read_at_the_start_and_every_five_minutes():
    asked = []
    tool_reports = logs(asked)
    for now_s in range(0, 2 * REPORTS_PERIOD_S, 10):
        tool_reports.refresh(known("nvme0n1", "sda", "nvme0c0n1", "nvme0n1p1", "../nvme0n1"), {}, 100 + now_s)
    assert asked == [("nvme0n1",)] * 2
    assert [report.value for report in tool_reports.of("nvme0n1", 0)] == [2]
    assert tool_reports.of("sda", 0) == ()


def test_without_root_nothing_is_read():
    asked = []
    tool_reports = logs(asked, root=False)
    tool_reports.refresh(known("nvme0n1"), {}, 100)
    assert asked == []


def test_a_drive_that_is_gone_has_no_log():
    asked = []
    tool_reports = logs(asked)
    for now_s, names in (
        (0, ("nvme0n1", "nvme1n1")),
        (REPORTS_PERIOD_S, ("nvme1n1",)),
        (REPORTS_PERIOD_S + 10, ("nvme1n1",)),
    ):
        tool_reports.refresh(known(*names), {}, now_s)
    assert tool_reports.of("nvme0n1", 0) == ()
    assert tool_reports.of("nvme1n1", 0)


def test_another_drive_of_the_name_has_no_log_until_its_own_is_read():
    asked = []
    tool_reports = logs(asked)
    tool_reports.refresh(known("nvme0n1"), {"nvme0n1": 7}, 0)
    tool_reports.refresh(known("nvme0n1"), {"nvme0n1": 9}, 10)
    assert tool_reports.of("nvme0n1", 7)
    assert tool_reports.of("nvme0n1", 9) == ()
    tool_reports.refresh(known("nvme0n1"), {"nvme0n1": 9}, REPORTS_PERIOD_S)
    assert tool_reports.of("nvme0n1", 9) == ()
    tool_reports.refresh(known("nvme0n1"), {"nvme0n1": 9}, REPORTS_PERIOD_S + 10)
    assert [report.value for report in tool_reports.of("nvme0n1", 9)] == [2]


def test_a_log_that_is_not_read_again_is_dropped():
    root = True
    tool_reports = ToolReports(lambda *_, **__: {"nvme0n1": (DeviceReport("media_errors", 1, "nvme"),)}, lambda: root)
    tool_reports.refresh(known("nvme0n1"), {}, 100)
    tool_reports._reading.result(60)
    root = False
    tool_reports.refresh(known("nvme0n1"), {}, 100)
    tool_reports.refresh(known("nvme0n1"), {}, 99 + 2 * REPORTS_PERIOD_S)
    assert tool_reports.of("nvme0n1", 0)
    tool_reports.refresh(known("nvme0n1"), {}, 100 + 2 * REPORTS_PERIOD_S)
    assert tool_reports.of("nvme0n1", 0) == ()


def printing(script):
    return (sys.executable, "-c", script)


def test_the_output_of_a_tool_is_read_to_its_end():
    script = (
        "import os, sys; sys.stderr.write('no'); "
        "print(os.environ['LC_ALL'], os.getpid() == os.getsid(0), 'x' * 100_000); sys.exit(4)"
    )
    assert block_devices._run(printing(script)) == b"C True " + b"x" * 100_000 + b"\n"


def test_a_tool_without_an_end_is_ended(monkeypatch):
    monkeypatch.setattr(block_devices, "_MAX_TOOL_OUTPUT", 100_000)
    with pytest.raises(OSError, match="prints more than 100000 bytes"):
        block_devices._run(printing("while True: print('x' * 1000)"))
    monkeypatch.setattr(block_devices, "_TOOL_TIMEOUT_S", 0.3)
    with pytest.raises(subprocess.TimeoutExpired):
        block_devices._run(printing("import time; time.sleep(600)"))


MULTIPATH = b"""mpatha: 0 209715200 multipath 2 0 0 0 2 1 A 0 1 2 8:16 A 0 0 1 E 0 1 2 8:32 F 3 0 1
mpathb: 0 419430400 multipath 2 0 0 1 alua 1 1 A 0 2 2 8:48 A 1 0 1 65:64 A 0 0 1
odd: 0 8 linear
worse: 0 8 multipath 2 0
"""
"""As dmsetup 1.02 prints dm-mpath's status: a path per group, and two in one group behind ALUA."""


def test_paths_of_multipath_devices_are_counted():
    ran = Ran(dmsetup=MULTIPATH)
    logs = read_logs((), ran, tools("dmsetup"), multipath=True)
    assert ran.commands == [("/usr/sbin/dmsetup", "status", "--noflush", "--target", "multipath")]
    assert {name: tuple(device_report.value for device_report in log) for name, log in logs.items()} == {
        "mpatha": (2, 1, 3),
        "mpathb": (2, 0, 1),
    }
    assert [device_report.name for device_report in logs["mpatha"]] == ["paths", "paths_failed", "path_failures"]


@pytest.mark.parametrize(
    "answer", [OSError("gone"), subprocess.TimeoutExpired("dmsetup", 5), b"", b"No devices found\n"]
)
def test_without_multipath_devices_there_are_none(answer):
    assert read_logs((), Ran(dmsetup=answer), tools("dmsetup"), multipath=True) == {}
    assert read_logs(("sda",), Ran(), tools("dmsetup")) == {}
    assert read_logs((), Ran(), tools(), multipath=True) == {}


def test_dmsetup_runs_only_where_there_is_a_multipath_device():
    asked = []
    tool_reports = logs(asked)
    tool_reports.refresh(known("dm-0", "dm-1", "nvme0n1", dm_0="lvm", dm_1="crypt"), {}, 100)
    tool_reports.refresh(known("dm-0", "dm-1", dm_0="lvm", dm_1="multipath"), {}, 100 + REPORTS_PERIOD_S)
    assert asked == [("nvme0n1",), ("multipath",)]


def test_drives_of_another_host_are_not_asked_for_here(tmp_path):
    assert BlockDevices(tmp_path, tmp_path)._tools is None
    assert BlockDevices(Path("/proc"), Path("/sys"))._tools is not None


ZPOOL = b"""  pool: tank
 state: ONLINE
  scan: scrub in progress since Sun Jul 25 16:07:49 2021
\t403M / 405M scanned at 100M/s, 68.4M / 405M issued at 10.0M/s
\t0B repaired, 16.91% done, 00:00:04 to go
config:

\tNAME            STATE     READ WRITE CKSUM
\ttank            ONLINE       0     0     0
\t  mirror-0      ONLINE       0     0     0
\t    /dev/sda1   ONLINE       0     0     0
\t    /dev/nvme0n1p1  ONLINE       0     0     0

errors: No known data errors

  pool: quiet
 state: ONLINE
  scan: scrub repaired 0B in 00:00:01 with 0 errors on Sun Jul 25 16:07:49 2021
config:

\tNAME        STATE     READ WRITE CKSUM
\tquiet       ONLINE       0     0     0
\t  /dev/sdb1 ONLINE       0     0     0
"""
"""In the form of OpenZFS 2.1's zpool_main.c."""


def test_a_scrub_is_reported_of_the_disks_of_its_pool():
    ran = Ran(zpool=ZPOOL)
    logs = read_logs((), ran, tools("zpool"), pool_disks={"sda", "sdb", "nvme0n1"})
    assert ran.commands == [("/usr/sbin/zpool", "status", "-LP")]
    scrub = (DeviceReport("zfs_scan", "zfs scrub of tank", "zpool"), DeviceReport("zfs_scan_percent", 16, "zpool"))
    assert logs == {"sda": scrub, "nvme0n1": scrub}


@pytest.mark.parametrize(
    "output", [b"", b"no pools available\n", b"  pool: x\n  scan: scrub paused since now\n", b"\xff"]
)
def test_pools_without_a_scan_report_nothing(output):
    assert read_logs((), Ran(zpool=output), tools("zpool"), pool_disks={"sda"}) == {}
