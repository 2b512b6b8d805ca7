"""Hostile recordings cost each command that reads one no traceback and no memory, and the good window is found."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hostile
import pytest
from frames import on_demand_host
from hostile import GOOD, HOSTILE, member
from recorded import ORIGIN

from latmon.cli.main import run as main
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram
from latmon.model.packed import tables_of
from latmon.recording import bounds, codec, validate
from latmon.recording.codec import encode_origin, to_bytes
from latmon.recording.reader import open_recording
from latmon.recording.writer import Writer

MAX_KB = 256 * 1024
FIRST_S = 2.0
QUICK = ("evil strings",)
REFUSED = ("new labels in each window",)
RUN = Path(__file__).parents[1] / "helpers/hostile_run.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc/self/status")


def run(*words):
    """Its output, in two parts: before the memory that it took, and that."""
    done = subprocess.run(
        [sys.executable, RUN, *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    *text, peak = done.stderr.splitlines()
    assert int(peak) <= MAX_KB
    assert all(line.isprintable() for line in (*done.stdout.splitlines(), *text))
    return done.returncode, done.stdout, text


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in HOSTILE])
def test_every_reader_bears_it(tmp_path, name):
    path, copy = tmp_path / "r", tmp_path / "copy"
    hostile.write(path, name)
    code, out, _ = run("check", path)
    assert code == (0 if name == "evil strings" else 5)
    assert ("damage " in out) == (code == 5)
    assert run("check", path, "--repair", "-o", copy)[0] == 0
    assert run("check", copy)[0] == 0
    if name in REFUSED:
        assert run("report", path)[0] == run("replay", path)[0] == 5
        return
    seqs = [[item.seq for item in open_recording(one) if isinstance(item, Frame)] for one in (path, copy)]
    assert seqs[0] == seqs[1]
    assert seqs[0][-1] == GOOD
    assert run("report", path)[0] == 0
    _, out, _ = run("replay", path)
    first, last = map(float, out.split())
    assert last == GOOD
    # one that has nothing else that can be read is read to its end before the first screen: 1 GiB takes its time
    assert first < FIRST_S or hostile.WINDOWS.get(name, 1) == 1
    assert {one.name for one in tmp_path.iterdir()} == {"r", "copy"}


def _labels(path, kind, windows):
    """A thousand new names in each window, as text: to encode 10^6 of them takes longer than to refuse them."""
    series = b'{"m":"%s","l":["d%d","read"],"n":1,"b":[1,1]}'
    device = b'{"name":"d%d","major":8,"minor":1}'
    woken = b'"h":[],"wakeups":{"rows":[%s],"b":[' + b",".join([b"3"] + [b"256"] * 999) + b'],"n":['
    woken += b",".join([b"1"] * 1000) + b"]}"
    issued = b'"h":[],"issuers":{"by":[["/a"]],"rows":[%s]}'
    parts = [member(to_bytes(encode_origin(ORIGIN)), 0)]
    for seq in range(windows):
        names = range(1000 * seq, 1000 * seq + 1000)
        rows = {
            "series": lambda names=names: b",".join(series % (b"s%d" % one, one % 100) for one in names),
            "devices": lambda names=names: b",".join(device % one for one in names),
            "threads": lambda names=names: b",".join(b'[%d,"t%d","other",120,true,{}]' % (one, one) for one in names),
            "issuers": lambda names=names: b",".join(b'[0,"sda","op%d",1,1]' % one for one in names),
        }[kind]()
        key = {"series": b'"h":[%s]', "devices": b'"h":[],"devices":[%s]', "threads": woken, "issuers": issued}[kind]
        at = 6_000_000 + seq * 1_000_000
        window = b'{"type":"window","seq":%d,"t":%d,"mono":%d,"dt":1000000,' % (seq, 1_000_001 + seq, at)
        parts.append(member(window + key % rows + b"}\n", at))
    path.write_bytes(b"".join(parts))


COMMANDS = (
    ("report", "F"),
    ("report", "F", "--json"),
    ("report", "F", "--html", "OUT"),
    ("diff", "F", "F"),
    ("export", "F", "--to", "jsonl", "-o", "OUT"),
    ("export", "F", "--to", "openmetrics", "-o", "OUT"),
    ("check", "F"),
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["series", "devices", "threads", "issuers"])
def test_labels_without_end_are_refused_where_no_host_has_so_many(tmp_path, capsys, monkeypatch, kind):
    """By every command, and nothing behind that window is decoded."""
    path, decoded = tmp_path / "r", []
    for cap in ("MAX_SERIES", "MAX_DEVICES", "MAX_KINDS", "MAX_THREADS"):
        monkeypatch.setattr(validate, cap, 2500)
    monkeypatch.setattr(validate, "THREADS_PER_WINDOW", 0)
    real = codec.decode_frame
    monkeypatch.setattr(codec, "decode_frame", lambda *args, **how: decoded.append(1) or real(*args, **how))
    _labels(path, kind, 6)
    for words in COMMANDS:
        decoded.clear()
        code = main([{"F": str(path), "OUT": str(tmp_path / "OUT")}.get(one, one) for one in words])
        out, err = capsys.readouterr()
        assert (code, len(decoded) <= 3) == (5, True), words
        assert "more than any host has" in (out if words[0] == "check" else err)
        assert words[0] == "check" or (len(err.splitlines()), out) == (1, ""), words
    assert {one.name for one in tmp_path.iterdir()} == {"r"}
    assert main(["check", str(path), "--repair", "-o", str(tmp_path / "OUT")]) == 0
    assert [one.seq for one in open_recording(tmp_path / "OUT") if isinstance(one, Frame)] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["series", "devices", "threads", "issuers"])
@pytest.mark.parametrize("words", [*COMMANDS, ("replay", "F")], ids=" ".join)
def test_a_million_labels_cost_no_command_much(tmp_path, kind, words):
    """2 s of CPU and 256 MiB on a quiet host; CPU on a busy one is slower, by less than a factor of 4."""
    path = tmp_path / "r"
    _labels(path, kind, 1000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, _, _ = run(*({"F": path, "OUT": tmp_path / "OUT"}.get(one, one) for one in words))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert code == 5
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 8


@pytest.mark.slow
def test_a_hole_of_2_gib_is_looked_behind(tmp_path):
    path = tmp_path / "r"
    hostile.write(path, "time goes back")
    data = path.read_bytes()
    with path.open("wb") as file:
        file.write(data[:-600])
        file.seek(2**31, os.SEEK_SET)
        file.write(data)
    code, out, _ = run("check", path)
    assert code == 5
    assert "to byte 2147483647" in out
    assert run("check", path, "--repair", "-o", tmp_path / "copy")[0] == 0
    assert run("report", path)[0] == 0


def _buckets(path, devices, per_window=1000):
    """Every bucket of the latencies of `devices`, a thousand of them in a window: a few repeated bytes for gzip."""
    line = {"type": "window", "dt": 1_000_000}
    parts = [member(to_bytes(encode_origin(ORIGIN)), 0)]
    for seq, first in enumerate(range(0, devices, per_window)):
        at = 6_000_000 + seq * 1_000_000
        rows = [[f"d{number}", "read"] for number in range(first, min(first + per_window, devices))]
        slots = [0, *[1] * 239, *([17, *[1] * 239] * (len(rows) - 1))]
        table = {"rows": rows, "b": slots, "n": [1] * len(slots)}
        parts.append(member(to_bytes(line | {"seq": seq, "t": 1_000_001 + seq, "mono": at, "h": table}), at))
    parts.append(member(to_bytes(codec.encode_note(codec.End("closed", seq + 1))), at))
    path.write_bytes(b"".join(parts))


@pytest.mark.parametrize("words", [*COMMANDS, ("replay", "F")], ids=" ".join)
def test_more_buckets_than_any_host_has_are_refused(tmp_path, words):
    """1.4 million buckets in 60 kB; `run` compares the memory."""
    path = tmp_path / "r"
    _buckets(path, 6000)
    code, out, err = run(*({"F": path, "OUT": tmp_path / "OUT"}.get(word, word) for word in words))
    assert code == 5
    assert words[0] == "replay" or "more than any host has" in out + "".join(err)


@pytest.mark.slow
@pytest.mark.parametrize("words", [*COMMANDS, ("replay", "F")], ids=" ".join)
def test_as_many_buckets_as_are_read_cost_no_command_much(tmp_path, words):
    path = tmp_path / "r"
    _buckets(path, 2000)
    assert run(*({"F": path, "OUT": tmp_path / "OUT"}.get(word, word) for word in words))[0] == 0


@pytest.fixture
def few_buckets(monkeypatch):
    monkeypatch.setattr(bounds, "MAX_BUCKETS", 1000)
    monkeypatch.setattr(bounds, "_UNCOUNTED", 250)
    monkeypatch.setattr(bounds, "_MOST_READ", 1250)


def _busy(seq: int, series: int) -> Frame:
    """Return a window in which each series has 30 buckets, other ones in each second."""
    histogram = Histogram.of({(seq * 7 + at * 5) % 200: 1 for at in range(30)})
    latencies = {Series(f"d{number}", "read", "total"): histogram for number in range(series)}
    kernel = {Flow(f"d{number}", "read"): Completed(30, 512) for number in range(series)}
    return Frame(seq, 1_000_000.0 + seq, 6_000_000 + seq * 1_000_000, 1_000_000, latencies, kernel=kernel)


@pytest.mark.usefixtures("few_buckets")
def test_a_writer_leaves_out_what_a_reader_would_refuse_and_reports_it(tmp_path, capsys):
    path = tmp_path / "r.latmon.jsonl.gz"
    writer = Writer.create(path, ORIGIN)
    for seq in range(99):
        writer.append(_busy(seq, 20))
    writer.append(replace(_busy(99, 20), histograms=_busy(0, 20).histograms))
    writer.close()
    assert writer.left_out
    frames = [item for item in open_recording(path) if isinstance(item, Frame)]
    assert len(frames) == 100
    assert frames[0].histograms == _busy(0, 20).histograms
    assert all(frame.kernel == _busy(seq, 20).kernel for seq, frame in enumerate(frames)), "counts are complete"
    assert not frames[-2].histograms
    assert frames[-1].histograms == frames[0].histograms, "what is known already is still written"
    (notice,) = {frame.health.notice for frame in frames} - {""}
    assert "latencies are missing in the recording from here on" in notice
    for words in (("check", path), ("report", path), ("diff", path, path)):
        assert main([*map(str, words)]) == 0, capsys.readouterr()


@pytest.mark.usefixtures("few_buckets")
@pytest.mark.parametrize("begin", range(0, 100, 9))
def test_a_reader_that_begins_later_takes_the_rest(tmp_path, begin):
    writer = Writer.create(tmp_path / "r", ORIGIN)
    position = validate.ReadPosition()
    for seq in range(100):
        writer.append(_busy(seq, 20))
    writer.close()
    frames = [item for item in open_recording(tmp_path / "r") if isinstance(item, Frame)]
    for frame in frames[begin:]:
        validate.admit(frame, position)


@pytest.mark.usefixtures("few_buckets")
def test_what_is_left_out_is_left_out_of_every_table():
    """Each table of a traced window: what is admitted after it has no more buckets than the bound."""
    bound = bounds.BucketBound()
    for one in on_demand_host(24, 12):
        kept, left_out = bound.fitting(one)
        assert bound.buckets <= 1000
    assert left_out
    smaller, whole = tables_of(kept), tables_of(one)
    assert len(kept.histograms) < len(one.histograms)
    assert [name for name, table in whole.items() if table and len(smaller.get(name, ())) >= len(table)] == []
