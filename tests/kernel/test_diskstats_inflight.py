import pytest
from fake_host import FakeHost

from latmon.model.frame import Outstanding
from latmon_backends.kernel.diskstats import column_has_queued, in_driver, outstanding


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


def test_a_kernel_with_the_old_function_counts_the_driver_only(tmp_path):
    old = FakeHost(tmp_path, queued_in_column=False)
    assert not column_has_queued(old.proc, old.sys)


@pytest.mark.parametrize(
    ("release", "expected"),
    [("6.1.0-50-amd64", False), ("6.9.12", False), ("6.10.0", True), ("6.12.107+deb13-amd64", True), ("odd", False)],
)
def test_the_old_function_stayed_for_a_while_without_a_caller(tmp_path, release, expected):
    host = FakeHost(tmp_path, queued_in_column=False)
    host.write("proc/sys/kernel/osrelease", f"{release}\n")
    assert column_has_queued(host.proc, host.sys) is expected


def test_a_kernel_without_it_counts_queued_requests_too(host):
    assert column_has_queued(host.proc, host.sys)


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("ffff T blk_mq_in_flight\nffff T blk_mq_in_flight_rw\n", False),
        ("ffff T blk_mq_in_flight_rw\n", True),
        ("ffff T blk_mq_in_driver_rw\n", True),
        ("ffff T something\n", False),
    ],
)
def test_kallsyms_answers_where_there_is_no_btf(host, symbols, expected):
    (host.sys / "kernel/btf/vmlinux").unlink()
    host.write("proc/kallsyms", symbols)
    assert column_has_queued(host.proc, host.sys) is expected


def test_kallsyms_is_asked_when_btf_names_no_block_layer(host):
    host.write("sys/kernel/btf/vmlinux", "\0int\0char\0")
    host.write("proc/kallsyms", "0 T blk_mq_in_flight_rw\n")
    assert column_has_queued(host.proc, host.sys)


def test_without_any_symbols_the_queue_stays_unknown(host):
    (host.sys / "kernel/btf/vmlinux").unlink()
    assert not column_has_queued(host.proc, host.sys)


def test_in_driver_is_reads_and_writes(tmp_path):
    (tmp_path / "inflight").write_text("       3       13\n")
    assert in_driver(tmp_path / "inflight") == 16


@pytest.mark.parametrize("text", ["", "3\n", "a b\n"])
def test_an_unreadable_gauge_is_unknown(tmp_path, text):
    (tmp_path / "inflight").write_text(text)
    assert in_driver(tmp_path / "inflight") is None
    assert in_driver(tmp_path / "gone/inflight") is None


def test_what_is_not_in_the_driver_is_queued():
    assert outstanding(16, 99, has_queued=True) == Outstanding(16, 83)
    assert outstanding(16, 15, has_queued=True) == Outstanding(16, 0)
    assert outstanding(16, 16, has_queued=False) == Outstanding(16, None)
    assert outstanding(None, 16, has_queued=True) == Outstanding(None, None)
