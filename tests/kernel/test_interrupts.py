"""The device of a handler and the others on its vector, in a made-up sysfs."""

from dataclasses import replace

import pytest

from latmon.model.frame import Device
from latmon.model.histogram import Histogram
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon_backends.kernel import interrupts
from latmon_backends.kernel.interrupts import Interrupts, actions, functions, listed

RUNS = HandlerRuns(Histogram.of({5: 1}, 5), returned={"handled": 1}, before_us=7)


class Host:
    """PCI functions and irqs as the kernel shows them."""

    def __init__(self, sys):
        self.sys = sys

    def function(self, address, driver="", irq=0, msi=(), below=()):
        path = self.sys / "bus/pci/devices" / address
        path.mkdir(parents=True)
        (path / "irq").write_text(f"{irq}\n")
        if driver:
            (self.sys / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            (path / "driver").symlink_to(self.sys / "bus/pci/drivers" / driver)
        for number in msi:
            (path / "msi_irqs").mkdir(exist_ok=True)
            (path / "msi_irqs" / str(number)).write_text("msix\n")
        for name in below:
            (path / name).mkdir(parents=True)

    def irq(self, number, names):
        path = self.sys / "kernel/irq" / str(number)
        path.mkdir(parents=True, exist_ok=True)
        (path / "actions").write_text(f"{names}\n")

    def shown(self, *handlers, devices=()):
        """(device, those that share the vector) of each."""
        table = {Handler(irq, name): RUNS for irq, name in handlers}
        found = Interrupts(self.sys).reported(table, {device.name: device for device in devices})
        return [(runs.device, runs.shared_with) for runs in found.values()]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def disk(name, address):
    return Device(name, 8, 0, controller=f"host2 mptsas {address}")


def test_a_vector_of_ones_own(host):
    host.function("0000:00:04.0", "nvme", irq=24, msi=(24, 25), below=("nvme/nvme0",))
    host.irq(25, "nvme0q1")
    assert host.shown((25, "nvme0q1"), devices=[Device("nvme0n1", 259, 0, controller="nvme0 nvme 0000:00:04.0")]) == [
        ("nvme0n1", ())
    ]


def test_a_controller_that_is_no_pci_function_is_known_by_its_name(host):
    vda, vdb = (
        Device(f"vd{letter}", 254, 0, controller=f"virtio{n} virtio_blk") for letter, n in (("a", 1), ("b", 10))
    )
    for irq, name in ((5, "virtio1"), (6, "virtio10"), (7, "eth0")):
        host.irq(irq, name)
    assert host.shown((5, "virtio1"), (6, "virtio10"), (7, "eth0"), devices=[vda, vdb]) == [
        ("vda", ()),
        ("vdb", ()),
        ("", ()),
    ]


def test_several_disks_behind_a_controller_are_all_named_and_none_is_its_address(host):
    host.function("0000:03:00.0", "mptsas", irq=16)
    host.irq(16, "ioc0")
    disks = [disk("sdc", "0000:03:00.0"), disk("sdb", "0000:03:00.0"), disk("sda", "0000:04:00.0")]
    assert host.shown((16, "ioc0"), devices=disks) == [("sdb, sdc", ())]
    assert host.shown((16, "ioc0")) == [("0000:03:00.0", ())]


def test_the_disks_of_a_large_hba_are_as_many_names_as_fit(host):
    host.function("0000:03:00.0", "mpt3sas", msi=(42,))
    host.irq(42, "mpt3sas0-msix0")
    many = [disk(f"sd{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}", "0000:03:00.0") for n in range(60)]
    ((device, _),) = host.shown((42, "mpt3sas0-msix0"), devices=[*many, disk("sdz", "0000:03:00.0")])
    assert device == "sdz, sdaa, sdab, sdac, sdad, sdae, sdaf, sdag, sdah and 52 more"
    assert len(device) <= 64


def test_handlers_that_one_handler_calls_share_its_interrupt(host):
    """Behind VMD each has an irq of its own; one that has not run in this interval is known from before."""
    for irq, name in ((24, "vmd0"), (40, "nvme0q1"), (41, "switchtec0"), (42, "nvme1q1")):
        host.irq(irq, name)
    caller = {40: 24, 41: 24, 42: 25}
    reader = Interrupts(host.sys)

    def shared_with(*handlers):
        table = {handler: replace(RUNS, caller=caller.get(handler.irq, UNKNOWN_IRQ)) for handler in handlers}
        return {handler.name: runs.shared_with for handler, runs in reader.reported(table, {}).items()}

    vmd, drive, switch, other = (
        Handler(24, "vmd0"),
        Handler(40, "nvme0q1"),
        Handler(41, "switchtec0"),
        Handler(42, "nvme1q1"),
    )
    assert shared_with(vmd, drive, switch, other) == {
        "vmd0": (),
        "nvme0q1": ("switchtec0",),
        "switchtec0": ("nvme0q1",),
        "nvme1q1": (),
    }
    assert shared_with(drive) == {"nvme0q1": ("switchtec0",)}


@pytest.mark.parametrize(
    ("names", "text"),
    [((), ""), (("sda", "sdb"), "sda, sdb"), (("x" * 60, "y" * 60), "x" * 60), (("x" * 90,), "x" * 63 + "…")],
)
def test_names_are_listed_in_64_characters(names, text):
    assert listed(names).startswith(text)
    assert len(listed(names)) <= 64


def test_of_hundreds_on_a_vector_the_first_are_named(host):
    host.irq(7, ",".join(f"h{n}" for n in range(300)))
    ((_, others),) = host.shown((7, "h5"))
    assert (others[:2], others[-1], len(others)) == (("h0", "h1"), "267 more", 33)


def test_four_on_one_line_are_reported_apart_by_their_names(host):
    host.function("0000:00:02.0", "virtio-pci", irq=11, below=("virtio0",))
    host.function("0000:00:03.0", "megaraid_sas", irq=11, below=("host1",))
    host.function("0000:00:04.0", "nvme", irq=11, below=("nvme/nvme1",))
    host.irq(11, "virtio0, megaraid_sas,nvme1q0,slow_handler".replace(", ", ","))
    handlers = [(11, name) for name in ("virtio0", "megaraid_sas", "nvme1q0", "slow_handler")]
    assert host.shown(*handlers) == [
        ("0000:00:02.0", ("megaraid_sas", "nvme1q0", "slow_handler")),
        ("0000:00:03.0", ("virtio0", "nvme1q0", "slow_handler")),
        ("0000:00:04.0", ("virtio0", "megaraid_sas", "slow_handler")),
        ("", ("virtio0", "megaraid_sas", "nvme1q0")),
    ]


def test_a_function_without_a_device_has_no_device(host):
    host.function("0000:00:02.0", "virtio-pci", irq=11, below=("virtio0",))
    host.function("0000:00:05.0", "novel", irq=11)
    host.irq(11, "virtio0,slow_handler")
    assert host.shown((11, "slow_handler"), (11, "virtio0")) == [
        ("", ("virtio0",)),
        ("0000:00:02.0", ("slow_handler",)),
    ]


@pytest.mark.parametrize(
    ("driver", "handler"),
    [
        *(("mptsas", "ioc0"), ("megaraid_sas", "megasas"), ("megaraid_sas", "megasas0-msix1"), ("mpt3sas", "mpt2sas0")),
        *(
            ("mpt3sas", "mpt3sas1-msix0"),
            ("ahci", "ahci[0000:00:05.0]"),
            ("uhci_hcd", "uhci_hcd:usb1"),
            ("hpsa", "hpsa0"),
        ),
    ],
)
def test_drivers_by_what_their_handlers_are_called(host, driver, handler):
    host.function("0000:00:05.0", driver, irq=11)
    host.function("0000:00:06.0", "nvme", irq=11, below=("nvme/nvme0",))
    host.irq(11, f"{handler},slow_handler")
    assert host.shown((11, handler), (11, "slow_handler")) == [("0000:00:05.0", ("slow_handler",)), ("", (handler,))]


def test_two_of_one_driver_that_say_no_more_are_not_separated(host):
    host.function("0000:00:05.0", "mptsas", irq=11)
    host.function("0000:00:06.0", "mptsas", irq=11)
    host.irq(11, "ioc0,ioc1")
    assert host.shown((11, "ioc0")) == [("", ("ioc1",))]


def test_nvme1_is_not_nvme10(host):
    host.function("0000:00:04.0", "nvme", irq=11, below=("nvme/nvme1",))
    host.function("0000:00:05.0", "nvme", irq=11, below=("nvme/nvme10",))
    host.irq(11, "nvme1q0,nvme10q0")
    assert [device for device, _ in host.shown((11, "nvme10q0"), (11, "nvme1q0"))] == ["0000:00:05.0", "0000:00:04.0"]


def test_two_of_one_name_share_with_each_other(host):
    host.irq(9, "acpi,acpi,i801_smbus")
    assert host.shown((9, "acpi")) == [("", ("acpi", "i801_smbus"))]


def test_what_is_no_pci_has_no_device(host):
    host.irq(1, "i8042")
    assert host.shown((1, "i8042"), (-1, "unknown")) == [("", ()), ("", ())]


def test_the_runs_stay_as_they_were(host):
    (runs,) = Interrupts(host.sys).reported({Handler(1, "i8042"): RUNS}, {}).values()
    assert (runs.run, runs.returned, runs.before_us) == (RUNS.run, RUNS.returned, RUNS.before_us)


def test_names_are_clean(host):
    host.irq(1, "a\x1b]0;x\x07,b")
    assert actions(host.sys, 1) == ("a\\x1b]0;x\\x07", "b")
    assert actions(host.sys, 2) == ()


def test_a_function_with_msis_does_not_use_its_line(host):
    host.function("0000:00:04.0", irq=24, msi=(40, 41))
    host.function("0000:00:05.0", irq=24)
    host.function("0000:00:06.0", irq=0)
    assert functions(host.sys) == {40: ("0000:00:04.0",), 41: ("0000:00:04.0",), 24: ("0000:00:05.0",)}


def test_sysfs_is_read_again_for_a_new_handler_and_now_and_then(host, monkeypatch):
    looked = []
    monkeypatch.setattr(interrupts, "functions", lambda sys: looked.append(sys) or functions(sys))
    given_interrupts = Interrupts(host.sys)
    first, second = {Handler(1, "a"): RUNS}, {Handler(2, "b"): RUNS}
    given_interrupts.reported({}, {})
    for table in (first, first, second, first, first | second):
        given_interrupts.reported(table, {})
    assert len(looked) == 2
    host.irq(1, "a,new")
    for _ in range(100):
        found = given_interrupts.reported(first, {})
    assert len(looked) == 3
    assert found[Handler(1, "a")].shared_with == ("new",)


def test_the_cpus_of_a_vector_are_read(tmp_path):
    for irq, name, text in (
        (24, "smp_affinity_list", "0-7\n"),
        (24, "effective_affinity_list", "3\n"),
        (25, "smp_affinity_list", "\x1b[2J\n"),
    ):
        file = tmp_path / f"irq/{irq}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    reader = Interrupts(tmp_path / "sys", tmp_path)
    found = reader.reported({Handler(24, "nvme0q1"): RUNS, Handler(25, "nvme0q2"): RUNS}, {})
    assert [(runs.affinity, runs.effective_affinity) for runs in found.values()] == [("0-7", "3"), ("", "")]
