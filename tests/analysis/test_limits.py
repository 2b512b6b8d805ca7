"""The limits audit: remarks name settings that are wrong, and a kernel's defaults get none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from latmon.analysis.limits import audit
from latmon.model.frame import MOUNTED_SYNC, Device, DeviceReport, Limit
from latmon.model.inflight import Depths

HELD = Depths({0: 1000, 3: 9000}, {0: 1000, 13: 9000})
EASY = Depths({0: 1000, 1: 7000, 2: 2000}, {0: 10_000})
_WHERE = {"queue_depth": "device", "queue_type": "device", "sqsize": "nvme0", "queue_count": "nvme0", "nr_tags": "mq/0"}
_HOST = ("can_queue", "cmd_per_lun", "nr_hw_queues", "host_tagset")
COMMON = {"nr_requests": 256, "wbt_lat_usec": 2000, "write_cache": "write back", "rq_affinity": 1, "iostats": 1}
FC = COMMON | {
    "scheduler": "none", "queue_depth": 32, "queue_type": "simple", "nr_tags": 2048, "hardware queues": 1,
    "can_queue": 2048, "cmd_per_lun": 30, "nr_hw_queues": 1, "host_tagset": 0,
}  # fmt: skip


def device(name="sda", driver="lpfc", *, host="host0", kind="disk", timed=True, **values):
    values = {key.replace("hardware_", "hardware "): value for key, value in values.items()}
    limits = tuple(
        Limit(key, value, f"{host if key in _HOST else _WHERE.get(key, 'queue')}/{key}")
        for key, value in values.items()
    )
    return Device(name, 8, 0, kind, driver, timed=timed, limits=limits)


def off(*devices, **depths):
    """Device -> ids of what is off."""
    return {audited.device: {remark.id for remark in audited.off} for audited in audit(devices, depths)}


DEFAULTS = {
    "virtio-blk": device(
        "vda", "virtio_blk", **COMMON | {"scheduler": "mq-deadline", "nr_tags": 128, "hardware queues": 1}
    ),
    "virtio-blk of 4 queues": device(
        "vda", "virtio_blk", **COMMON | {"scheduler": "none", "nr_tags": 256, "hardware queues": 4}
    ),
    "NVMe": device(
        "nvme0n1",
        "nvme",
        **COMMON
        | {
            "scheduler": "none",
            "nr_requests": 1023,
            "nr_tags": 1023,
            "hardware queues": 8,
            "sqsize": 1023,
            "queue_count": 9,
        },
    ),
    "SATA SSD": device(
        "sda",
        "ahci",
        **FC
        | {
            "scheduler": "mq-deadline",
            "nr_requests": 64,
            "nr_tags": 32,
            "can_queue": 32,
            "cmd_per_lun": 1,
            "rotational": 0,
        },
    ),
    "SATA disk without scheduler": device(
        "sda",
        "ahci",
        **FC
        | {
            "nr_requests": 32,
            "nr_tags": 32,
            "can_queue": 32,
            "cmd_per_lun": 1,
            "wbt_lat_usec": 75_000,
            "rotational": 1,
        },
    ),
    "SATA disk behind megaraid": device(
        "sdc",
        "megaraid_sas",
        **FC | {"queue_depth": 32, "can_queue": 967, "nr_tags": 967, "cmd_per_lun": 256, "host_tagset": 1},
    ),
    "NVMe behind megaraid": device(
        "sdd",
        "megaraid_sas",
        **FC | {"queue_depth": 64, "can_queue": 967, "nr_tags": 967, "cmd_per_lun": 256, "host_tagset": 1},
    ),
    "loop": device(
        "loop0",
        "",
        kind="loop",
        **COMMON | {"scheduler": "none", "nr_requests": 128, "nr_tags": 128, "hardware queues": 1},
    ),
    "USB stick": device(
        "sdb",
        "usb-storage",
        **COMMON
        | {
            "nr_requests": 2,
            "scheduler": "mq-deadline",
            "queue_depth": 1,
            "queue_type": "none",
            "nr_tags": 1,
            "can_queue": 1,
            "cmd_per_lun": 1,
        },
    ),
    "FC LUN": device(
        **FC | {"lpfc.lpfc_lun_queue_depth": 30, "lpfc.lpfc_tgt_queue_depth": 0, "lpfc.host_tagset_enable": 1}
    ),
    "zram": device("zram0", "", kind="zram", timed=False, iostats=0),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_usual_defaults_are_not_off(name):
    one = DEFAULTS[name]
    assert off(one, **{one.name: EASY}) == {one.name: set()}


@pytest.mark.parametrize(
    ("changed", "driver", "found"),
    [
        ({"queue_depth": 7, "cmd_per_lun": 30}, "lpfc", "depth-below-minimum"),
        ({"un_throttle": 3, "un_min_throttle": 8}, "emlxs", "depth-below-minimum"),
        ({"queue_depth": 4, "cmd_per_lun": 3}, "lpfc", "depth-low"),
        ({"queue_depth": 1, "cmd_per_lun": 1}, "ahci", "depth-low"),
        ({"sqsize": 7}, "nvme", "depth-low"),
        ({"lpfc.lpfc_lun_queue_depth": 3}, "lpfc", "global-setting"),
        ({"queue_type": "none"}, "lpfc", "tagged-queueing-off"),
        ({"scheduler": "mq-deadline"}, "nvme", "scheduler-sorts"),
        ({"scheduler": "bfq"}, "lpfc", "scheduler-sorts"),
        ({"scheduler": "bfq", "rotational": 0}, "ahci", "scheduler-sorts"),
        ({"nr_requests": 4}, "lpfc", "requests-below-depth"),
        ({"max_sectors_kb": 4}, "lpfc", "requests-small"),
        ({"iostats": 0}, "lpfc", "blind"),
        ({"rq_affinity": 0}, "lpfc", "completes-anywhere"),
    ],
)
def test_what_is_off_is_remarked(changed, driver, found):
    assert off(device(driver=driver, **FC | changed)) == {"sda": {found}}


def test_a_wall_at_few_is_a_ceiling_whatever_the_limit_says():
    (limited,) = audit([device(**FC | {"queue_depth": 3, "cmd_per_lun": 3})], {"sda": HELD})
    assert (limited.limited_to, limited.most, limited.usual, limited.queued, limited.bound.value) == (3, 3, 3, 13, 3)
    assert limited.remarks[0].text == "at its limit of 3 (device/queue_depth) while more I/Os waited"
    (hidden,) = audit([device(**FC)], {"sda": HELD})
    assert hidden.remarks[0].id == "ceiling-reached"
    assert "though its limit is 32 (device/queue_depth)" in hidden.remarks[0].text
    (unknown,) = audit([device(**COMMON)], {"sda": HELD})
    assert "no limit is known" in unknown.remarks[0].text


def test_an_application_that_sends_few_reaches_no_ceiling():
    serial = Depths({0: 100, 3: 9900}, {0: 10_000})
    assert off(device(**FC), sda=serial) == {"sda": set()}


def test_a_host_limit_that_several_share():
    few = [device(name, **FC | {"can_queue": 3}) for name in ("sda", "sdb")]
    assert off(*few) == {name: {"host-limit-shared"} for name in ("sda", "sdb")}
    other = [
        device("sda", host="host0", **FC | {"can_queue": 32}),
        device("sdb", host="host1", **FC | {"can_queue": 32}),
    ]
    assert off(*other) == {"sda": set(), "sdb": set()}
    (audited, _) = audit([device(name, **FC | {"can_queue": 48}) for name in ("sda", "sdb")], {})
    assert [r.note for s in audited.settings for r in s.remarks if r.id == "host-limit-shared"] == [True]


def test_one_setting_for_all_while_one_needs_it():
    all_low = [device(name, **FC | {"queue_depth": 3, "cmd_per_lun": 3}) for name in ("sda", "sdb", "sdc")]
    rows = {audited.device: audited for audited in audit(all_low, {"sda": HELD, "sdb": EASY})}
    text = next(r.text for r in rows["sdb"].off if r.id == "global-setting")
    assert text == "3 is the same on all 3 devices of its host: it penalises all; only sda reaches it"


def test_what_the_scheduler_does_by_default_before_an_adapter_is_a_note():
    (audited,) = audit([device(**FC | {"scheduler": "mq-deadline"})], {})
    assert audited.off == ()
    assert [r.id for s in audited.settings for r in s.remarks if s.limit.name == "scheduler"] == ["scheduler-sorts"]


def test_every_setting_has_a_row_and_what_was_not_looked_at_is_not_known():
    (audited,) = audit([device(**FC), Device("sdz", 8, 1)], {})
    assert [row.limit.name for row in audited.settings] == list(FC)
    assert (audited.most, audited.usual, audited.queued, audited.limited_to) == (None, None, None, None)


def test_a_depth_that_a_driver_sets_for_a_kind_is_a_note_and_one_that_only_this_one_has_is_off():
    """megaraid_sas begins with 256 and sets 32 for SATA, 64 for NVMe."""
    values = FC | {"queue_depth": 32, "can_queue": 967, "nr_tags": 967, "cmd_per_lun": 256}
    sata = [replace(device(name, "megaraid_sas", **values), model="ST8000") for name in ("sda", "sdb")]
    raid = replace(device("sdc", "megaraid_sas", **values | {"queue_depth": 256}), model="PERC H755")
    rows = {audited.device: audited for audited in audit([*sata, raid], {})}
    assert [row.off for row in rows.values()] == [(), (), ()]
    assert [r.id for s in rows["sda"].settings for r in s.remarks if s.limit.name == "queue_depth"] == [
        "depth-below-minimum"
    ]
    fell = replace(device("sdd", "megaraid_sas", **values | {"queue_depth": 16}), model="ST8000")
    assert off(*sata, raid, fell) == {"sda": set(), "sdb": set(), "sdc": set(), "sdd": {"depth-below-minimum"}}


def test_without_a_scheduler_waiting_above_full_tags_is_unknown():
    """The kernel counts no request for who waits for a tag: nothing is queued, and yet 12 of 16 wait."""
    full = Depths({0: 100, 4: 9900}, {0: 10_000})
    values = COMMON | {"scheduler": "none", "nr_requests": 4, "nr_tags": 128, "hardware_queues": 1}
    (audited,) = audit([device("vda", "virtio_blk", **values)], {"vda": full})
    assert (audited.limited_to, audited.at_limit, [r.id for r in audited.remarks]) == (None, True, ["at-limit"])
    text = "at its limit of 4 for most of the busy time; I/Os that wait above aren't counted here (queue/nr_requests)"
    assert [(r.text, r.note) for r in audited.remarks] == [(text, False)]
    (many,) = audit(
        [device("vda", "virtio_blk", **values | {"nr_requests": 128})], {"vda": Depths({128: 9000}, {0: 9000})}
    )
    assert (many.at_limit, many.off) == (True, ())
    (free,) = audit([device("vda", "virtio_blk", **values)], {"vda": EASY})
    assert (free.at_limit, free.remarks) == (False, ())


def test_at_a_depth_of_the_device_who_waits_has_a_request_and_is_counted():
    full = Depths({0: 100, 4: 9900}, {0: 10_000})
    (audited,) = audit([device(**FC | {"queue_depth": 4, "cmd_per_lun": 3})], {"sda": full})
    assert (audited.at_limit, audited.limited_to) == (False, None)


def test_a_bucket_s_end_is_reported_as_the_limit_that_lies_in_it():
    top = Depths({0: 100, 1024: 9900}, {0: 100, 16: 9900}, most=None)
    (audited,) = audit([device(**FC | {"queue_depth": 1023, "nr_requests": 2048})], {"sda": top})
    assert (audited.limited_to, audited.most, audited.usual) == (1023, 1023, 1023)


def test_tags_that_all_queues_share_are_not_multiplied():
    values = FC | {"nr_requests": 64, "hardware_queues": 8, "nr_hw_queues": 8, "queue_depth": 128}
    assert off(device(**values)) == {"sda": set()}
    assert off(device(**values | {"host_tagset": 1})) == {"sda": {"requests-below-depth"}}


def test_a_depth_that_fell_is_off_wherever_it_is():
    """A QUEUE FULL lowers it, and sysfs keeps no maximum."""
    values = FC | {"queue_depth": 16, "cmd_per_lun": 30}
    (same,), (fell,) = (audit([device(**values)], {}, {"sda": had}) for had in (16, 30))
    assert (same.off, [r.id for r in fell.off]) == ((), ["depth-below-minimum"])
    assert fell.off[0].text == "16 is below the 30 that its host begins with (cmd_per_lun), and was 30"


# ---- sd of illumos and Solaris

SICK = {"un_throttle": 3, "un_saved_throttle": 3, "un_min_throttle": 8, "un_f_opt_queueing": 1, "m_notag": 0xFFFF}
HEALTHY = {
    "un_throttle": 0x100, "un_saved_throttle": 0x100, "un_min_throttle": 8, "un_f_opt_queueing": 0, "m_notag": 0xFFC0,
}  # fmt: skip


def remarks_of(one):
    """Setting -> id and text of its remark, and whether it is a note."""
    (row,) = audit([one], {})
    return {s.limit.name: (r.id, r.text, r.note) for s in row.settings for r in s.remarks}


def test_sd_without_tags_is_off_by_all_three_signs():
    """mpt_sas of Solaris 11 below ESX; Solaris 10 on the same adapter was healthy."""
    assert remarks_of(device("sd0", "sd", **SICK)) == {
        "un_throttle": ("depth-below-minimum", "3 is below its own minimum of 8 (un_min_throttle)", False),
        "un_f_opt_queueing": (
            "tagged-queueing-off",
            "1: tagged queueing is off, only the adapter queues; sd sends it 3 at most",
            False,
        ),
        "m_notag": ("tagged-queueing-off", "0xffff: no target of the adapter has tagged queueing", False),
    }
    assert remarks_of(device("sd0", "sd", **HEALTHY)) == {}


def test_sd_s_throttle_that_fell_reports_from_what():
    fell = device("sd0", "sd", **HEALTHY | {"un_throttle": 3})
    text = "3 is below its own minimum of 8 (un_min_throttle), and was 256 (un_saved_throttle)"
    assert remarks_of(fell) == {"un_throttle": ("depth-below-minimum", text, False)}
    far = device("sd0", "sd", **HEALTHY | {"un_throttle": 20})
    text = "20 of 256 (un_saved_throttle): sd lowers it for a device that is full"
    assert remarks_of(far) == {"un_throttle": ("depth-low", text, False)}
    assert remarks_of(device("sd0", "sd", **HEALTHY | {"un_throttle": 200})) == {}
    assert remarks_of(device("sd0", "sd", un_throttle=2))["un_throttle"][0] == "depth-low"


def test_values_as_a_debugger_prints_them():
    printed = {key: f"{value:#x}" for key, value in SICK.items()}
    assert remarks_of(device("sd0", "sd", **printed)) == remarks_of(device("sd0", "sd", **SICK))
    (row,) = audit([device("sd0", "sd", **printed)], {"sd0": HELD})
    assert (row.bound.value, row.limited_to) == (3, 3)
    assert remarks_of(device("sd0", "sd", **HEALTHY | {"un_throttle": "256 0x", "m_notag": "0xzz"})) == {}


def test_sd_sorts_by_default_and_before_a_cache_that_is_off():
    """Nothing is to be sorted where one command goes after the other; a CD-ROM is no disk."""
    note = ("scheduler-sorts", "0: sd sorts by LBA (disksort): an I/O far away may starve", True)
    assert remarks_of(device("ssd1", "ssd", un_f_disksort_disabled=0)) == {"un_f_disksort_disabled": note}
    text = "0: sd sorts by LBA before a device with its own cache (disksort): an I/O far away may starve"
    for cache in ({"un_f_write_cache_enabled": 1}, {"write_cache": "write back"}):
        cached = device("ssd1", "ssd", un_f_disksort_disabled=0, un_throttle=256, **cache)
        assert remarks_of(cached) == {"un_f_disksort_disabled": ("scheduler-sorts", text, False)}
    assert remarks_of(device("ssd1", "ssd", un_f_disksort_disabled=1)) == {}
    assert "un_f_disksort_disabled" not in remarks_of(device("ssd1", "ssd", un_f_disksort_disabled=0, un_throttle=1))
    cd = replace(device("sd9", "sd", **SICK, un_f_disksort_disabled=0), kind="other")
    assert set(remarks_of(cd)) == {"m_notag"}


@pytest.mark.parametrize(
    ("driver", "values", "name", "value", "text"),
    [
        ("sd", {"un_saved_throttle": 20}, "sd:sd", "20", "20 in /etc/system applies to every disk of the driver"),
        ("ssd", {"un_saved_throttle": 20}, "ssd:ssd", "0x14", "20 in /etc/system applies to every disk"),
        pytest.param("sd", {"un_saved_throttle": 64}, "sd:sd", "20", "", id="sd.conf gives this product its own"),
        pytest.param("sd", {"un_saved_throttle": 256}, "sd:sd", "256", "", id="the default"),
        pytest.param("sd", {"un_saved_throttle": 20}, "ssd:ssd", "20", "", id="of the other driver"),
        pytest.param("sd", {"un_saved_throttle": 256}, "sd:sd", "& ~0xff", "", id="no number"),
    ],
)
def test_a_global_throttle_penalises_all_disks(driver, values, name, value, text):
    """Seen: never set [s]sd_max_throttle in /etc/system, set the throttle of each device in [s]sd.conf."""
    module, _, begin = name.partition(":")
    settings = {f"module {module}": {f"/etc/system {begin}_max_throttle": value}}
    (row,) = audit([device(f"{driver}1", driver, **HEALTHY | values)], {}, settings=settings)
    texts = [r.text for s in row.settings for r in s.remarks if r.id == "global-setting"]
    assert (len(texts), "".join(texts)[: len(text)]) == (bool(text), text)
    assert [s.limit.source for s in row.settings if s.limit.name.endswith("d_max_throttle")] in ([], ["/etc/system"])


def test_the_bound_of_sd_is_its_throttle():
    (row,) = audit([device("sd0", "sd", **SICK)], {"sd0": HELD})
    assert (row.bound.name, row.bound.value, row.limited_to, row.queued) == ("un_throttle", 3, 3, 13)
    assert row.remarks[0].text == "at its limit of 3 (queue/un_throttle) while more I/Os waited"
    assert [remark.id for remark in row.remarks] == ["ceiling-reached"]


def test_a_mount_that_makes_each_write_synchronous_is_remarked():
    device = Device("sda", 8, 0, limits=(Limit("nr_requests", 64, "queue/nr_requests"),))
    device = replace(device, reports=(DeviceReport(MOUNTED_SYNC, "/srv/db", "/proc/self/mountinfo"),))
    (audited,) = audit([device], {})
    assert [remark.text for remark in audited.remarks] == [
        "/srv/db is mounted with sync: each write there waits for the disk"
    ]
