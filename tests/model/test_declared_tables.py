"""A declared table needs no other code to be summed, recorded, redacted, merged, exported and selected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from latmon.model.measurements import TABLES
from latmon.model.table import DEVICE, TEXT, Table, latencies

RUN = Path(__file__).parents[1] / "helpers/declared_run.py"


def test_a_table_of_a_test_travels_from_a_probes_map_to_each_reader(tmp_path):
    done = subprocess.run([sys.executable, RUN, tmp_path], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    hidden = met.pop("redacted")
    assert met == {
        "probe": 20,
        "screen": 60,
        "sums": 180,
        "roll-ups": [60] * len(met["roll-ups"]),
        "recording": True,
        "fleet": [[["a:sda", "write", 3], 1], [["b:sda", "write", 3], 1]],
        "fleet's owners": [["a:sda", "a:/web"], ["b:sda", "b:/web"]],
        "refused": {},
        "weighed": 17,
        "selected": [1, 0],
        "csv": [["level", "sda", "write", "3", "", "1"]],
    }
    assert met["roll-ups"]
    ((device, cgroup),) = hidden
    assert device == "sda"
    assert "/web" not in cgroup


class _Key(NamedTuple):
    device: str
    name: str


def test_a_part_that_is_not_declared_is_a_mistake_of_the_declaration():
    with pytest.raises(TypeError, match="its key has 2 fields, 1 are declared"):
        Table("odd", _Key, (DEVICE,), latencies(), group="odd", export_name="odd")
    assert Table("even", _Key, (DEVICE, TEXT), latencies(), group="even", export_name="even").part_names == _Key._fields


def test_no_two_tables_have_a_name_in_common():
    for names in ([table.name for table in TABLES], [table.export_name for table in TABLES]):
        assert len(set(names)) == len(names)
