"""BTF: which argument is the request, by count of parameters; an enum's names and values; from blobs small and real."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_btf import ENUM, INT, STRUCT, TYPEDEF, Btf, kernel

from latmon.support.text import is_clean
from latmon_backends.bpftrace.program import btf_arguments, enumerators, request_argument

REAL = Path("/sys/kernel/btf/vmlinux")


def asked(tmp_path, blob, tracepoint="block_rq_issue"):
    path = tmp_path / "vmlinux"
    path.write_bytes(blob)
    return request_argument(path, tracepoint)


@pytest.mark.parametrize(("issue", "index"), [(("rq",), 0), (("q", "rq"), 1)])
def test_the_request_is_found_by_the_count_of_arguments(tmp_path, issue, index):
    assert asked(tmp_path, kernel(*issue)) == index


@pytest.mark.parametrize("issue", [(), ("q", "rq", "more")])
def test_any_other_count_is_not_known(tmp_path, issue):
    assert asked(tmp_path, kernel(*issue)) is None


def test_a_tracepoint_that_is_not_there(tmp_path):
    assert asked(tmp_path, kernel("rq"), "block_rq_insert") is None
    assert asked(tmp_path, kernel("rq"), "block_rq") is None  # a typedef of something else
    assert asked(tmp_path, kernel("rq"), "block_rq_iss") is None


def test_arguments_are_counted_with_the_first_that_every_one_has():
    assert btf_arguments(kernel("q", "rq"), "btf_trace_block_rq_issue") == 3
    assert btf_arguments(kernel("rq"), "btf_trace_block_rq_complete") == 4


def test_a_name_that_is_not_a_typedef(tmp_path):
    btf = Btf()
    btf.add(STRUCT, "btf_trace_block_rq_issue", 8)
    assert asked(tmp_path, btf.blob()) is None


def test_typedefs_in_a_circle_end(tmp_path):
    btf = Btf()
    btf.add(TYPEDEF, "btf_trace_block_rq_issue", 2)
    btf.add(TYPEDEF, "other", 1)
    assert asked(tmp_path, btf.blob()) is None


def test_a_target_that_does_not_exist(tmp_path):
    for target in (0, 2, 0xFFFFFFFF):
        btf = Btf()
        btf.add(TYPEDEF, "btf_trace_block_rq_issue", target)
        assert asked(tmp_path, btf.blob()) is None


def test_a_kind_from_the_future_is_not_guessed_over(tmp_path):
    btf = Btf()
    btf.add(20, "novelty")
    btf.tracepoint("block_rq_issue", ("rq", 1))
    assert asked(tmp_path, btf.blob()) is None


def test_what_cannot_be_read_is_not_known(tmp_path):
    assert request_argument(tmp_path / "none", "block_rq_issue") is None
    assert request_argument(tmp_path, "block_rq_issue") is None
    for blob in (b"", b"\x9f\xeb", b"\xeb\x9f" + kernel("rq")[2:], bytes(100), b"\x9f\xeb" + b"\xff" * 100):
        assert asked(tmp_path, blob) is None


def test_a_truncated_blob_says_none_or_the_truth(tmp_path):
    blob = kernel("q", "rq")
    for size in range(len(blob)):
        assert asked(tmp_path, blob[:size]) in (None, 1)


@given(st.data())
def test_garbage_ends_and_never_raises(tmp_path_factory, data):
    blob = bytearray(kernel("q", "rq"))
    for _ in range(data.draw(st.integers(1, 8))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "garbage"
    path.write_bytes(blob)
    assert request_argument(path, "block_rq_issue") in (None, 0, 1)


def test_a_header_that_promises_more_than_there_is(tmp_path):
    blob = kernel("rq")
    for field in range(8, 24, 4):
        assert asked(tmp_path, blob[:field] + struct.pack("<I", 0xFFFFFFF0) + blob[field + 4 :]) in (None, 0)


# Enums


def flags():
    btf = Btf()
    btf.add(INT, "int", 4, more=(32,))
    btf.add(ENUM, "req_op", 4, rows=1, more=(btf.name("REQ_OP_READ"), 0))
    rows = [("__REQ_SYNC", 11), ("__REQ_META", 12), ("__REQ_NR_BITS", 30)]
    more = [word for name, value in rows for word in (btf.name(name), value)]
    btf.add(ENUM, "req_flag_bits", 4, rows=len(rows), more=more)
    return btf.blob()


def enum(tmp_path, blob, name="req_flag_bits"):
    path = tmp_path / "vmlinux"
    path.write_bytes(blob)
    return enumerators(path, name)


def test_an_enums_names_and_values(tmp_path):
    assert enum(tmp_path, flags()) == {"__REQ_SYNC": 11, "__REQ_META": 12, "__REQ_NR_BITS": 30}
    assert enum(tmp_path, flags(), "req_op") == {"REQ_OP_READ": 0}


def test_an_enum_that_is_not_there_has_no_names(tmp_path):
    assert enum(tmp_path, flags(), "req_flags") == enum(tmp_path, kernel("rq")) == {}
    assert enumerators(tmp_path / "none", "req_flag_bits") == {}


def test_a_truncated_enum_is_not_read(tmp_path):
    blob = flags()
    whole = enum(tmp_path, blob)
    for size in range(len(blob)):
        assert set(enum(tmp_path, blob[:size]).values()) <= set(whole.values())


@given(st.data())
def test_garbage_in_an_enum_never_raises(tmp_path_factory, data):
    blob = bytearray(flags())
    for _ in range(data.draw(st.integers(1, 8))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    for name, value in enum(tmp_path_factory.getbasetemp(), bytes(blob)).items():
        assert is_clean(name)
        assert 0 <= value < 2**32


@pytest.mark.skipif(not REAL.exists(), reason="this kernel has no BTF")
def test_the_flags_of_the_kernel_that_runs_here():
    actual_enumerators = enumerators(REAL, "req_flag_bits")
    if not actual_enumerators:
        pytest.skip("this kernel's BTF has no req_flag_bits: its block layer is a module or is not there")
    assert {"__REQ_SYNC", "__REQ_META", "__REQ_FUA", "__REQ_PREFLUSH", "__REQ_RAHEAD"} <= actual_enumerators.keys()
    assert 8 <= actual_enumerators["__REQ_SYNC"] < actual_enumerators["__REQ_NR_BITS"] < 64


@pytest.mark.skipif(not REAL.exists(), reason="this kernel has no BTF")
def test_the_kernel_that_runs_here():
    actual_request_argument = request_argument(REAL, "block_rq_issue")
    if actual_request_argument is None:
        pytest.skip("this kernel's BTF has no block_rq_issue: its block layer is a module or is not there")
    assert actual_request_argument in (0, 1)
    assert request_argument(REAL, "block_rq_requeue") == actual_request_argument
    assert btf_arguments(REAL.read_bytes(), "btf_trace_block_rq_complete") == 4


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists() or shutil.which("bpftool") is None, reason="needs kernel BTF and bpftool")
def test_bpftool_agrees():
    dump = subprocess.run(
        ["bpftool", "btf", "dump", "file", REAL, "format", "raw"], capture_output=True, text=True, check=False
    ).stdout
    if "btf_trace_block_rq_issue" not in dump:
        pytest.skip("this bpftool can't read this kernel's BTF")
    types = {line.split("]")[0][1:]: line for line in dump.splitlines() if line.startswith("[")}
    (typedef,) = [line for line in types.values() if "TYPEDEF 'btf_trace_block_rq_issue'" in line]
    pointer = types[typedef.rpartition("type_id=")[2]]
    function = types[pointer.rpartition("type_id=")[2]]
    assert f"vlen={btf_arguments(REAL.read_bytes(), 'btf_trace_block_rq_issue')}" in function
