"""Settings of Solaris and illumos, from texts in the formats of their files and tools; none of them has run here."""

import os
import platform

import pytest

from latmon.capture.backend import Options
from latmon.model.frame import Device
from latmon.support.errors import UnavailableError
from latmon_backends.kernel import settings
from latmon_backends.kernel.settings import driver_conf, etc_system, properties

SYSTEM = """\
* Begin MDD root info (do not edit)
rootdev:/pseudo/md@0:0,0,blk
set sd:sd_max_throttle=20
set ssd:ssd_io_time = 0x1e  * half a minute
  set zfs:zfs_vdev_max_pending=10
set user_reserve_hint_pct=80
set maxphys & ~0xff
forceload: drv/lpfc
# set sd:sd_max_throttle=1
set
"""
SD_CONF = """\
#
# Copyright; with a semicolon
name="sd" class="scsi" class_prop="atapi"
\ttarget=0 lun=0;
name="sd" parent="iscsi" target=0;
sd-config-list =
    "DGC     RAID 5", "throttle-max:32, disksort:false",   # CLARiiON; VNX
    "SUN     a#b\\"c", "retries-timeout:1";
allow-bus-device-reset=0;
ddi-forceattach=1
"""
PRTCONF = """\
System Configuration:  Oracle Corporation  i86pc
Memory size: 8192 Megabytes
System Peripherals (Software Nodes):

i86pc (driver name: rootnex)
    System properties:
        name='relative-addressing' type=int items=1
            value=00000001
    pci, instance #0 (driver name: npe)
        Driver properties:
            name='pci-msi-capid-pointer' type=int items=1
                value=00000050
        pci10df,f100, instance #0 (driver name: emlxs)
            Driver properties:
                name='num-iocbs' type=int items=1
                    value=00000400
                name='link-speed' type=int items=1
                    value=ffffffff
                name='fm-capable' type=boolean dev=none
                name='initiator-port' type=string items=1
                    value='w10000000c9000000'
                name='fw-version' type=string items=1
                    value='1.1.43.3'
            Hardware properties:
                name='reg' type=int items=2
                    value=00040000.00000000
                name='device-id' type=byte items=2
                    value=f1.00
            fp, instance #0 (driver name: fp)
                disk, instance #2 (driver name: sd)
                    Driver properties:
                        name='device-nblocks' type=int64 items=1
                            value=0000000001000000
                    Hardware properties:
                        name='inquiry-vendor-id' type=string items=1
                            value='VMware'
                        name='inquiry-product-id' type=string items=1
                            value='Virtual disk'
                        name='inquiry-revision-id' type=string items=1
                            value='1.0'
                    Paths from multipath bus adapters:
                        Path 3: /pci@0,0/fp@0,0/disk@w5,0
                        fp#0 (online)
                            name='path-class' type=string items=1
                                value='primary'
                    Device Minor Nodes:
                        dev=(31,128)
                            dev_path=/pci@0,0/fp@0,0/disk@w5,0:a
                        Minor properties:
                            name='inquiry-vendor-id' type=string items=1
                                value='another'
        pci8086,1, instance #1 (driver not attached)
            Hardware properties:
                name='num-iocbs' type=int items=1
                    value=00000001
"""
MDB = """\
sd_max_throttle:
sd_max_throttle:                256             
zfs_vdev_max_pending:
zfs_vdev_max_pending:           10              
user_reserve_hint_pct:
user_reserve_hint_pct:          80              
"""  # noqa: W291 - as mdb prints it
KSTAT = "zfs:0:arcstats:c_max\t4294967296\n"
SD2 = Device("sd2", 0, 2, driver="sd")


@pytest.fixture
def root(tmp_path):
    for name, text in {
        "etc/system": SYSTEM,
        "kernel/drv/sd.conf": SD_CONF,
        "kernel/drv/asy.conf": "not-a-disk=1;",
        "etc/driver/drv/emlxs.conf": 'num-iocbs=1024; # more\nfcp-bind-WWPN="10000000c9000000:lpfc0t1";',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def tools(printed):
    ran = []

    def run(words, given):
        ran.append((words[0], given))
        if words[0] not in printed:
            raise UnavailableError(f"{words[0]} can't be run")
        return printed[words[0]].encode()

    return run, ran


PRINTED = {"/usr/bin/kstat": KSTAT, "/usr/sbin/prtconf": PRTCONF, "/usr/bin/mdb": MDB}


def test_all_sources_by_the_module_that_they_set(root, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found: settings.Sections = {"kernel": {"release": "5.11"}}
    settings.solaris([SD2], found, root, tools(PRINTED)[0])
    assert found == {
        "kernel": {
            "release": "5.11",
            "/etc/system user_reserve_hint_pct": "80",
            "/etc/system maxphys": "& ~0xff",
            "user_reserve_hint_pct": "80",
        },
        "module sd": {
            "/etc/system sd_max_throttle": "20",
            "sd.conf sd-config-list": (
                '"DGC     RAID 5", "throttle-max:32, disksort:false", "SUN     a#b\\"c", "retries-timeout:1"'
            ),
            "sd.conf allow-bus-device-reset": "0",
            "sd.conf ddi-forceattach": "1",
            "sd_max_throttle": "256",
        },
        "module ssd": {"/etc/system ssd_io_time": "0x1e"},
        "module zfs": {
            "/etc/system zfs_vdev_max_pending": "10",
            "arcstats c_max": "4294967296",
            "zfs_vdev_max_pending": "10",
        },
        "module emlxs": {
            "emlxs.conf num-iocbs": "1024",
            "emlxs0 num-iocbs": "1024",
            "emlxs0 link-speed": "-1",
            "emlxs0 fw-version": "1.1.43.3",
            "emlxs0 reg": "00040000.00000000",
        },
        "device sd2": {"vendor": "VMware", "model": "Virtual disk", "rev": "1.0"},
    }


@pytest.mark.parametrize("without", [(), *((one,) for one in PRINTED), tuple(PRINTED)])
def test_a_tool_that_is_missing_leaves_the_others(root, without, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found: settings.Sections = {}
    run, ran = tools({name: text for name, text in PRINTED.items() if name not in without})
    settings.solaris([SD2], found, root, run)
    assert [name for name, _ in ran] == list(PRINTED)
    assert found["module sd"]["/etc/system sd_max_throttle"] == "20"
    assert ("device sd2" in found) == ("/usr/sbin/prtconf" not in without)
    assert ("sd_max_throttle" in found["module sd"]) == ("/usr/bin/mdb" not in without)


def test_only_root_asks_mdb_and_only_for_values(root, monkeypatch):
    run, ran = tools(PRINTED)
    monkeypatch.setattr(os, "geteuid", lambda: 100)
    settings.solaris([SD2], {}, root, run)
    assert "/usr/bin/mdb" not in dict(ran)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    settings.solaris([SD2], {}, root, run)
    asked = dict(ran)["/usr/bin/mdb"].decode().split()
    assert "sd_max_throttle/D" in asked
    assert all(line.endswith("/D") and line[:-2].isidentifier() for line in asked)


@pytest.mark.parametrize(
    "text", ["", ";;;", "=", '"', 'a="', "a=1 b=2", "#", "x", 'name="sd" class="scsi"', "\\", "\0=\0" * 1000]
)
def test_a_damaged_file_has_no_settings(text):
    assert list(etc_system(text)) == []
    assert [name for name, _ in driver_conf(text)] in ([], ["a"])
    assert list(properties(text)) == []


async def test_they_are_the_settings_of_a_capture_there(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "system", lambda: "SunOS")
    monkeypatch.setattr(settings, "solaris", lambda devices, into: into.update({"module sd": {"a": devices[0].name}}))
    found = await settings.bounded(Options(proc=tmp_path, sys=tmp_path), [SD2], {"tool": {"dtrace": "1.13"}})
    assert found["module sd"] == {"a": "sd2"}
    assert "clock" in found
