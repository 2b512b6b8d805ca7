"""Next steps of findings: commands are data, those that were not run are marked, and none contradicts a case."""

import ast
import re
from pathlib import Path

import pytest
from finding_cases import disk

import latmon.findings
from latmon.findings.evidence import raise_limit
from latmon.findings.rule import RAN, Finding, Step, Where, on_its_host, ran, setting, sysfs, threads
from latmon.findings.rules.starved_io import unsorting

RULES = sorted(Path(latmon.findings.__file__).parent.glob("*.py"))
TOOLS = (
    *(
        "echo",
        "cat",
        "grep",
        "egrep",
        "zgrep",
        "dmesg",
        "mdb",
        "iostat",
        "mpstat",
        "psrset",
        "smartctl",
        "nvme",
        "lspci",
    ),
    *("fio", "modprobe", "modinfo", "chrt", "taskset", "ionice", "dmsetup", "multipath", "fmdump", "fmadm", "ps"),
    *("update_drv", "bpftrace"),
)
COMMAND = re.compile(rf"(?:^|[:;,(] ?)(?:{'|'.join(TOOLS)}) |/sys/|/etc/system|[\w)]\s*\|\s*\w")
"""What a line to copy looks like."""
LIMITS = ("queue_depth", "nr_requests", "queue_type", "un_throttle", "un_f_opt_queueing", "m_notag", "max_queues")


def of_sun(driver):
    return disk("sd1", limits={"un_throttle": 3, "un_f_disksort_disabled": 0}, driver=driver)


def steps_of(device):
    return [*unsorting(device), *(step for name in LIMITS for step in raise_limit(device, name))]


@pytest.mark.parametrize("module", RULES, ids=lambda path: path.stem)
def test_no_command_hides_in_the_words_of_a_step(module):
    for call in (one for one in ast.walk(ast.parse(module.read_text())) if isinstance(one, ast.Call)):
        if getattr(call.func, "id", "") == "Step":
            words = [
                part.value
                for what in call.args[:1]
                for part in ast.walk(what)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            assert not COMMAND.search("".join(words)), words


def test_a_command_that_was_not_run_says_so():
    step = Step("look", commands=("lspci -vv", "iostat -xn 5"))
    assert step.text == "look: lspci -vv, iostat -xn 5 (not run here)"
    assert Step("is it full?", commands=("lspci -vv",)).text == "is it full? lspci -vv"
    assert Step("wait").text == "wait"


@pytest.mark.parametrize(
    ("line", "was_run"),
    [
        (setting(f"{sysfs('sda')}/queue/scheduler", "none"), True),
        (setting(f"{sysfs('nvme0n1')}/queue/nr_requests", 256), True),
        (setting(f"{sysfs('sda')}/device/queue_depth", 32), False),
        (threads("zpool-data", is_sun=True), False),
        (threads("kworker/0:1H", is_sun=False), True),
        ("echo none > /sys/block/sda/queue/scheduler; reboot", False),
        ("ionice -p 1 && reboot", False),
        ("smartctl -x /dev/sda", False),
    ],
)
def test_only_what_is_in_the_table_was_run(line, was_run):
    assert ran(line) is was_run


@pytest.mark.parametrize(("driver", "conf"), [("ssd", "ssd"), ("sd", "sd"), ("mpt_sas", "sd"), ("", "sd")])
def test_sd_is_set_per_product_in_the_file_of_its_driver_and_never_for_all(driver, conf):
    steps = steps_of(of_sun(driver))
    text = " ".join(step.text for step in steps)
    assert "/etc/system" not in text
    assert "max_throttle" not in text
    lists = [line for step in steps for line in step.commands if "config-list" in line]
    assert lists
    assert all(line.startswith(f"{conf}-config-list = ") for line in lists)
    assert f"in {conf}.conf" in text
    assert f"update_drv -vf {conf} (not run here)" in text
    assert f"*{conf}_state::walk" in text


def test_a_smaller_throttle_comes_with_disksort_off():
    from latmon.findings.rules.starved_io import _below_sd  # noqa: PLC0415  its steps alone

    lines = [line for step in _below_sd(of_sun("ssd")) for line in step.commands if "throttle-max" in line]
    assert lines == ['ssd-config-list = "VENDOR  PRODUCT", "throttle-max:2, disksort:false";']


def test_known_bugs_and_patches_are_named():
    text = " ".join(step.text for step in raise_limit(of_sun("mpt_sas"), "un_throttle"))
    for name in ("24764515", "25485763", "11.3.17.5.0", "2238101.1"):
        assert name in text


def test_all_commands_of_solaris_say_that_they_were_not_run():
    for step in steps_of(of_sun("ssd")):
        assert all(not ran(line) for line in step.commands if "config-list" in line or "mdb" in line)
    assert len(set(RAN)) == len(RAN)


def test_a_step_on_a_host_of_a_fleet_names_it_and_its_command_is_typed_there():
    steps = (Step("allow more", commands=(setting(f"{sysfs('db-07:sda')}/queue/nr_requests", 64), "lspci -s 07:00.0")),)
    finding = Finding("outstanding-ceiling", "warning", "db-07:sda", "", (), Where("overview"), steps, "")
    (step,) = on_its_host(finding).steps
    assert step.what == "on db-07: allow more"
    assert step.commands == ("echo 64 > /sys/block/sda/queue/nr_requests", "lspci -s 07:00.0")
