"""Outliers, stages, interrupts and wake-ups in a window line: there and back, old readers, nonsense, redaction."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_demand_frames import KERNEL, ON_DEMAND, ON_DEMAND_FRAMES, PROGRAM, of, outlier
from recorded import ORIGIN, frame

from latmon.model import measurements
from latmon.model.frame import NOT_KNOWN, FileOperation, FileSplit, FileSystem, Frame, Wait
from latmon.model.measurements import HANDLERS, WAKEUPS
from latmon.model.measurements.behind import Behind
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.model.measurements.handlers import UNKNOWN_IRQ
from latmon.model.measurements.issued_io import IssuedIO
from latmon.model.measurements.issuers import OTHERS, Issuer
from latmon.model.measurements.wakeups import Wakeups, by_thread
from latmon.model.packed import Packed
from latmon.model.redaction import Redaction
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

GOLDEN = Path(__file__).parents[1] / "golden" / "recording-1.1-stages.latmon.jsonl.gz"
WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
OUTLIER = {"t": 1.0, "mono": 1, "l": ["sda", "read"], "us": 5}
ESCAPE = "\x1b]52;c;x\x07[/red]"
KEYS = {
    "above",
    "thresholds",
    "outliers",
    "traced",
    "irqs",
    "softirqs",
    "wakeups",
    "issuers",
    "behind",
    "sizes",
    "patterns",
}
KEYS |= {"files", "file_operations", "files_left_out"}


def encode_on_demand(given_frame: Frame) -> dict:
    return {key: value for key, value in encode_frame(given_frame).items() if key in KEYS}


def write(path: Path) -> None:
    writer = Writer.create(path, ORIGIN)
    writer.append(ON_DEMAND)
    writer.close()


@settings(max_examples=settings.default.max_examples // 4)  # each is a frame of every table
@given(ON_DEMAND_FRAMES)
def test_what_on_demand_probes_report_comes_back_as_it_was(one):
    assert decode_frame(parse(to_bytes(encode_frame(one)))) == one


def test_a_frame_without_on_demand_values_has_no_line_of_them():
    assert not KEYS & set(encode_frame(frame(0)))


def test_a_reader_of_the_first_release_sees_the_frame_it_knows():
    line = {key: value for key, value in encode_frame(ON_DEMAND).items() if key not in KEYS}
    plain = decode_frame(line)
    assert (plain.histograms, plain.seen, plain.kernel) == (ON_DEMAND.histograms, ON_DEMAND.seen, ON_DEMAND.kernel)
    assert plain.traced.one_in == 0


def test_an_outlier_reads_as_documented():
    (line,) = encode_frame(ON_DEMAND)["outliers"]
    assert (line["l"], line["us"], line["pid"], line["comm"]) == (["sdc", "write"], 1_238_999, 4211, "ora_lgwr")
    assert line["stages_us"] == {"queue": 3, "hba": 85, "irq": 6, "completion": 1_238_903}
    assert line["waits"][0]["instead"] == "zpool-data (prio 99)"
    assert "includes" not in line


@pytest.mark.parametrize("key", ["completers", "raisers"])
def test_of_more_stacks_than_a_reader_takes_the_rarest_are_others(key):
    """Tracers that followed each other within a minute may have named different ones."""
    stacks = {f"f{number} < g": 1 + number for number in range(300)}
    traced = replace(ON_DEMAND.traced, **{key: {"sdc": stacks}})
    back = getattr(decode_frame(parse(to_bytes(encode_frame(replace(ON_DEMAND, traced=traced))))).traced, key)["sdc"]
    assert len(back) <= 256
    assert sum(back.values()) == sum(stacks.values())
    assert back["other"] == sum(n for name, n in stacks.items() if name not in back)
    assert back["f299 < g"] == 300


def test_an_outlier_of_latmons_own_says_so():
    line = encode_frame(replace(ON_DEMAND, outliers=(replace(outlier(), own=True), outlier())))
    assert [outlier.get("own") for outlier in line["outliers"]] == [True, None]
    assert [outlier.own for outlier in decode_frame(parse(to_bytes(line))).outliers] == [True, False]
    line = parse(to_bytes(line))
    line["outliers"][0]["own"] = "no"
    with pytest.raises(RecordingError, match="'own' is neither true nor false"):
        decode_frame(line)


def test_the_golden_recording_is_read():
    recording = open_recording(GOLDEN)
    assert next(iter(recording)) == ON_DEMAND
    assert recording.damage == []


HIST = {"b": [1], "n": [1]}
BAD_TABLES = (
    {"b": [1]},
    {"b": [1], "n": [1, 1]},
    {"b": [-1], "n": [1]},
    {"b": [4, 0], "n": [1, 1]},
    {"b": [4, -3], "n": [1, 1]},
    {"b": [4.0], "n": [1]},
    {"b": [True], "n": [1]},
    {"b": [10**30], "n": [1]},
    {"b": [512], "n": [1]},
    {"b": [250], "n": [1]},
    {"b": [1] * 600_000, "n": [1] * 600_000},
    {"b": [1], "n": [0]},
    {"b": [1], "n": [2**60]},
    {"b": [1], "n": [None]},
    HIST | {"sum": [1]},
    HIST | {"sum": [1, -2]},
    HIST | {"max": [1, 2**60]},
    HIST | {"max": [1, None]},
)
"""Of two rows."""


@pytest.mark.parametrize(
    "changed",
    [
        {"above": {"sda": 1}},
        {"above": [["sda", "read"]]},
        {"above": [["sda", "read", -1]]},
        {"above": [["sda", "read", 1]] * 2},
        {"thresholds": {"sda": "1ms"}},
        {"thresholds": [1]},
        {"outliers": [1]},
        {"outliers": [{}] * 20_000},
        {"outliers": [OUTLIER | {"t": 1e18}]},
        {"outliers": [OUTLIER | {"us": -1}]},
        {"outliers": [OUTLIER | {"l": ["sda"]}]},
        {"outliers": [OUTLIER | {"comm": "x" * 1000}]},
        {"outliers": [OUTLIER | {"sector": 1.5}]},
        {"outliers": [OUTLIER | {"stages_us": {f"s{n}": 1 for n in range(100)}}]},
        {"outliers": [OUTLIER | {"stages_us": {"hba": None}}]},
        {"outliers": [OUTLIER | {"flags": ["sync"] * 100}]},
        {"outliers": [OUTLIER | {"waits": [{"stage": "hba", "thread": "x"}] * 100}]},
        {"outliers": [OUTLIER | {"waits": [{"stage": "hba", "thread": "x", "pid": 2**60}]}]},
        {"traced": [1]},
        {"traced": {"one_in": -1}},
        {"traced": {"one_in": 2**60}},
        {"traced": {"off": True}},
        {"traced": {"histograms": [1]}},
        {"traced": {"histograms": {"rows": [["sda", "read"]]}}},
        {"traced": {"histograms": {"rows": [["sda", "read", "hba"]]}}},
        {"traced": {"histograms": {"rows": [["sda", "read", ["hba"]]] * 2}}},
        {"traced": {"histograms": {"rows": [["sda", "read", ["hba"] * 20_000]]}}},
        {"traced": {"histograms": {"rows": [["sda", 1, ["hba"]]]} | HIST}},
        {"traced": {"histograms": {"rows": [], "b": [1], "n": [1]}}},
        {"traced": {"by_total": {"rows": [["sda", "read", ["hba"]]], "b": [300], "n": [1]}}},
        *({"traced": {"histograms": {"rows": [["sda", "read", ["hba", "irq"]]]} | one}} for one in BAD_TABLES),
        {"traced": {"paths": {"sda": {"x": "y"}}}},
        {"traced": {"unfollowed": {"sda": [1]}}},
        {"irqs": [1]},
        {"irqs": {"rows": [[1]]}},
        {"irqs": {"rows": [[1, 2, 0, "", [], {}]]}},
        {"irqs": {"rows": [[-2, "x", 0, "", [], {}]]}},
        {"irqs": {"rows": [[1, "x", 0, "", [], {}]], "b": "?"}},
        {"irqs": {"rows": [[1, "x", 0, "", [], {}]] * 2}},
        {"irqs": {"rows": [[1, "x", 0, "", ["y"] * 100, {}]]}},
        {"irqs": {"rows": [[1, "x", 0, "", [], []]]}},
        {"softirqs": {"rows": [["BLOCK", 2**40, {}, {}]]}},
        {"softirqs": {"rows": [["BLOCK", 1, {str(n): 1 for n in range(100)}, {}]]}},
        {"softirqs": {"rows": [["BLOCK", 1, {}, {}]], "run": HIST | {"n": [0]}}},
        {"wakeups": {"rows": [[1, "x", "", 0, 1, {}]]}},
        {"wakeups": {"rows": [[1, "x", "", 2**40, True, {}]]}},
        {"wakeups": {"rows": [[1, "x", "", 0, True, {}]] * 2} | HIST},
        {"health": {"suppressed": -1}},
    ],
)
def test_nonsense_is_refused(changed):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | changed)


def test_what_a_later_version_adds_is_ignored():
    line = parse(to_bytes(encode_frame(ON_DEMAND)))
    line["outliers"][0]["mood"] = "bad"
    line["traced"]["histograms"]["median"] = "?"
    line["traced"]["seen_from"] = [1]
    line["irqs"]["rows"][0] += [UNKNOWN_IRQ, "", "", "storm"]
    line["wakeups"]["storm"] = True
    assert decode_frame(line) == ON_DEMAND


def _poisoned(value):
    """Every string of a line as something that a terminal would obey."""
    if isinstance(value, str):
        return f"{ESCAPE}{value}"
    if isinstance(value, dict):
        return {key if key.islower() else _poisoned(key): _poisoned(inner) for key, inner in value.items()}
    return [_poisoned(one) for one in value] if isinstance(value, list) else value


def test_no_string_can_do_anything_but_be_shown():
    line = {**WINDOW, **_poisoned(json.loads(json.dumps(encode_on_demand(ON_DEMAND))))}
    text = json.dumps(encode_frame(decode_frame(line)), ensure_ascii=False)
    assert ESCAPE[1:4] in text
    assert is_clean(text)


_KEYS = st.sampled_from(["rows", "n", "b", "pid", "run"])
_SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(encode_on_demand(ON_DEMAND))), _SCRAPS, max_size=3), st.data())
def test_any_json_is_a_value_or_one_sentence(scraps, data):
    with contextlib.suppress(RecordingError):
        decode_frame(WINDOW | scraps)
    line = json.loads(json.dumps(encode_on_demand(ON_DEMAND)))
    one = data.draw(st.sampled_from([line["outliers"][0], line["traced"], line["irqs"], line["wakeups"]]))
    one[data.draw(st.sampled_from(list(one)))] = data.draw(_SCRAPS)
    with contextlib.suppress(RecordingError):
        decode_frame(WINDOW | line)


def redacted(path, one):
    writer = Writer.create(path, ORIGIN, redaction=Redaction())
    writer.append(one)
    writer.close()
    (actual_frame,) = [item for item in open_recording(path) if isinstance(item, Frame)]
    return actual_frame


def test_how_long_other_threads_ran_is_recorded_where_it_is_known():
    """The golden recording, of an earlier version, has none of it."""
    known = Wakeups(PROGRAM, of(60), {"hog (prio 49)": 1}, {"hog (prio 49)": 50, NOT_KNOWN: 10})
    wait = Wait("completion", "irq/24-nvme0", 24, 49, 1, 60, "hog (prio 49)", 50)
    rows = by_thread((Wakeups(KERNEL, of(5)), known))
    given_frame = replace(frame(0), tables={WAKEUPS: rows}, outliers=(replace(outlier(), waits=(wait,)),))
    line = parse(to_bytes(encode_frame(given_frame)))
    assert [len(row) for row in line["wakeups"]["rows"]] == [6, 7]
    (row,) = line["outliers"]
    assert row["waits"][0]["ran_us"] == 50
    assert decode_frame(line) == given_frame


def test_redacting_hides_programs_and_keeps_what_diagnoses(tmp_path):
    late = Wakeups(replace(PROGRAM, pid=5), of(60), {"emlxs_thread": 1}, {"emlxs_thread": 40, NOT_KNOWN: 5})
    tables = ON_DEMAND.with_tables({WAKEUPS: by_thread((*ON_DEMAND[WAKEUPS].values(), late))})
    waiter = Wait("resume", "ora_lgwr", 4211, 120, 1, 2, "emlxs_thread (prio 97)")
    tables = replace(tables, outliers=(replace(outlier(), waits=(*outlier().waits, waiter)),))
    kept = redacted(tmp_path / "r", tables)
    assert "ora_lgwr" not in str(kept)
    assert "4211" not in str(kept)
    assert kept.outliers[0].waits[0].thread == "emlxs_thread"
    assert kept.outliers[0].waits[0].instead == "redacted (prio 99)"
    assert kept.outliers[0].waits[1].instead == "emlxs_thread (prio 97)"
    threads = list(kept[WAKEUPS].values())
    assert threads[0].thread == KERNEL
    assert (threads[1].thread.comm, threads[1].delay.count) == ("redacted", 2)
    assert threads[1].instead == {"emlxs_thread": 1}
    assert threads[1].ran_us == {"emlxs_thread": 40, NOT_KNOWN: 5}
    assert kept[HANDLERS] == tables[HANDLERS]


POD = "/kubepods.slice/kubepods-pod1/cri-containerd-1.scope"
ISSUED = {
    Issuer("sda", "read", "/"): IssuedIO(3, 12_288, of(40, 41, 900)),
    Issuer("sdb", "write", POD, "prod/web-0/nginx"): IssuedIO(2, 8192, of(7, 8)),
    Issuer("sda", "read", POD, "prod/web-0/nginx"): IssuedIO(1, 512, of(5)),
    Issuer("sda", "read", OTHERS): IssuedIO(4, 1),
    Issuer("sda", "read", "/", "", 77, "fio"): IssuedIO(3, 12_288, of(40, 41, 900)),
}


def test_an_issuer_is_named_once_in_a_window():
    line = parse(to_bytes(encode_frame(replace(frame(0), tables={**frame(0).tables, measurements.ISSUERS: ISSUED}))))
    issuers = line["issuers"]
    assert issuers["by"] == [["/"], [POD, "prod/web-0/nginx"], [OTHERS], ["/", "", 77, "fio"]]
    assert issuers["rows"][1:4] == [[1, "sdb", "write", 2, 8192], [1, "sda", "read", 1, 512], [2, "sda", "read", 4, 1]]
    assert decode_frame(line)[measurements.ISSUERS] == ISSUED


@pytest.mark.parametrize(
    "window",
    [
        {"sizes": {"rows": [["sda", "read", -1, 1, 1]], "b": [5], "n": [1], "e": [1]}},
        {"sizes": {"rows": [["sda", "read", 4096, 1, 1]] * 2}},
        {"patterns": [["sda", "read", 1, 1, 1, 1]]},
        {"patterns": [["sda", "read", 1, 1, 1, 1, -1]]},
        {"patterns": [["sda", "read", 1, 1, 1, 1, 1]] * 2},
        {"patterns": [["sda", "read", 5, 1, 6, 1, 1]]},
        {"sizes": {"rows": [["sda", "read", 4097, 1, 1]]}},
    ],
)
def test_nonsense_about_sizes_is_refused(window):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | window)


@pytest.mark.parametrize(
    "issuers",
    [
        {"by": [["/"]], "rows": [[1, "sda", "read", 1, 1]]},
        {"by": [["/"]], "rows": [[0, "sda", "read", 1, 1]], "b": [5], "n": [2]},
        {"by": [["/"], ["/"]], "rows": [[0, "sda", "read", 1, 1], [1, "sda", "read", 1, 1]]},
        {"by": [["/" * 300]], "rows": []},
        {"by": [["/"]], "rows": [[0, "sda", "read", -1, 1]]},
    ],
)
def test_nonsense_about_issuers_is_refused(issuers):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | {"issuers": issuers})


def test_redacting_hides_cgroups_and_containers_and_keeps_them_apart(tmp_path):
    kept = redacted(tmp_path / "r", replace(frame(0), tables={**frame(0).tables, measurements.ISSUERS: ISSUED}))
    assert not [word for word in ("kubepods", "nginx", "fio") if word in str(kept)]
    assert {one.cgroup for one in kept[measurements.ISSUERS]} >= {"/", OTHERS}
    assert len({one.cgroup for one in kept[measurements.ISSUERS]}) == 3
    assert sum(done.bytes for done in kept[measurements.ISSUERS].values()) == 12_288 + 8192 + 512 + 1
    assert kept[measurements.ISSUERS][Issuer("sda", "read", "/")] == ISSUED[Issuer("sda", "read", "/")]


def test_redacting_names_the_same_cgroup_the_same_in_both_tables(tmp_path):
    behind = {Behind("sda", "/", POD): 5, Behind("sda", POD, OTHERS): 7}
    kept = redacted(
        tmp_path / "r",
        replace(frame(0), tables={**frame(0).tables, measurements.ISSUERS: ISSUED, measurements.BEHIND: behind}),
    )
    (hidden,) = {one.cgroup for one in kept[measurements.ISSUERS]} - {"/", OTHERS}
    assert kept[measurements.BEHIND] == {Behind("sda", "/", hidden): 5, Behind("sda", hidden, OTHERS): 7}


def test_redacting_adds_up_a_cgroup_that_was_recorded_with_and_without_its_container_s_name(tmp_path):
    both = {Issuer("sda", "read", POD, name): IssuedIO(2, 512, of(5, 6)) for name in ("", "web")}
    kept = redacted(tmp_path / "r", replace(frame(0), tables={**frame(0).tables, measurements.ISSUERS: both}))
    assert list(kept[measurements.ISSUERS].values()) == [IssuedIO(4, 1024, of(5, 5, 6, 6))]


def test_a_packed_table_is_asked_without_histograms_and_read_in_one_pass(monkeypatch):
    histograms = {key: of(us) for us, key in ((3, "a"), (90, "b"), (7000, "c"))}
    packed = Packed.of(histograms)
    monkeypatch.setattr(Packed, "_made", lambda *_: pytest.fail("a histogram was made"))
    assert ("a" in packed, "d" in packed) == (True, False)
    assert dict(packed.items()) == histograms


DATA = FileSystem("/home/ann/db", "ext4", "sda")
DONE = {
    FileSeries("sda", "fsync", DATA.mount, "ext4", "device"): of(900, 4_000),
    FileSeries("sda", "read", DATA.mount, "ext4", "cached"): of(1, 2),
    FileSeries("", "read", "0:52", "", "unknown"): of(7),
}
SYNC = FileOperation(
    2.0,
    77,
    "fsync",
    4_000,
    "device",
    DATA,
    "salaries.db",
    4211,
    "ann-db",
    disk="sda",
    sectors=(8, 24),
    waits=(Wait("resume", "ann-db", 4212, 139, 80, 3_900, "ann-sort (prio 120)", 3_000),),
    split=FileSplit(600, 20, 3_300, 3_000, "lock", "down_write < ext4_file_write_iter", "ann-copy", 4213),
)
TIMES = {
    FilePart("sda", "fsync", DATA.mount, "ext4", "own I/O"): 600,
    FilePart("sda", "fsync", DATA.mount, "ext4", "lock"): 3_300,
}


OPERATION = {"t": 1, "mono": 1, "op": "read", "us": 1, "wait": "cached", "on": ["/"] * 3}


def test_a_file_system_is_named_once_in_a_window():
    given_frame = replace(
        frame(0),
        file_operations=(SYNC,),
        files_left_out=3,
        tables={**frame(0).tables, measurements.FILES: DONE, measurements.FILE_TIMES: TIMES},
    )
    line = parse(to_bytes(encode_frame(given_frame)))
    assert line["files"]["by"] == [[*DATA], ["0:52", "", ""]]
    assert line["files"]["rows"] == [[0, "fsync", "device"], [0, "read", "cached"], [1, "read", "unknown"]]
    assert line["file_times"][1] == ["sda", "fsync", DATA.mount, "ext4", "lock", 3_300]
    assert line["file_operations"][0]["split"][:5] == [600, 20, 3_300, 3_000, "lock"]
    assert decode_frame(line) == given_frame


@pytest.mark.parametrize(
    "key",
    [
        {"files": {"by": [["/", "ext4", "sda"]], "rows": [[1, "read", "cached"]]}},
        {"files": {"by": [["/", "ext4"]], "rows": []}},
        {"files": {"by": [["/", "ext4", "sda"]], "rows": [[0, "read", "cached"], [0, "read", "cached"]]}},
        {"files_left_out": -1},
        {"file_operations": [{"t": 1.0, "mono": 1, "op": "read", "us": 1, "wait": "cached"}]},
        {
            "file_operations": [
                {"t": 1, "mono": 1, "op": "read", "us": 1, "wait": "cached", "on": ["/"] * 3, "sectors": [1]}
            ]
        },
        {"file_operations": [OPERATION | {"sectors": [1, 2, 3, 4]}]},
        {"file_operations": [OPERATION | {"sectors": [9, 8]}]},
    ],
)
def test_nonsense_about_files_is_refused(key):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | key)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"wait": "x"}, "'wait' is none of cached, device, unknown"), ({"op": 3}, "'op' is none of read, write, open")],
)
def test_an_unknown_op_or_wait_is_refused_by_name(changed, said):
    assert decode_frame(WINDOW | {"file_operations": [OPERATION]}).file_operations[0].op == "read"
    with pytest.raises(RecordingError, match=said):
        decode_frame(WINDOW | {"file_operations": [OPERATION | changed]})
    row = {"op": "read", "wait": "cached"} | changed
    files = {"by": [["/", "ext4", "sda"]], "rows": [[0, *row.values()]]}
    with pytest.raises(RecordingError, match=said):
        decode_frame(WINDOW | {"files": files})


def test_a_hostile_path_in_a_recording_is_cleaned():
    operation = OPERATION | {"on": [ESCAPE] * 3, "path": ESCAPE, "comm": ESCAPE}
    (file_operation,) = decode_frame(WINDOW | {"file_operations": [operation]}).file_operations
    assert all(map(is_clean, (file_operation.path, file_operation.comm, *file_operation.file_system)))


def test_redacting_hides_files_and_mounts_and_keeps_them_apart(tmp_path):
    kept = redacted(
        tmp_path / "r", replace(frame(0), file_operations=(SYNC,), tables={**frame(0).tables, measurements.FILES: DONE})
    )
    assert not [word for word in ("ann", "salaries", "4211") if word in str(kept)]
    assert len({one.mount for one in kept[measurements.FILES]}) == 2
    assert {one.mount for one in kept[measurements.FILES]} >= {"0:52"}
    (operation,) = kept.file_operations
    assert operation.file_system.mount in {one.mount for one in kept[measurements.FILES]}
    assert (operation.path, operation.total_us) == ("redacted", 4_000)
    assert (operation.waits[0].pid, operation.waits[0].delay_us) == (0, 3_900)
