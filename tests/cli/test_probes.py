"""`latmon probes`, on the real manifests."""

import pytest
from fake_dtrace import manifests

from latmon.doctor import command
from latmon.support.errors import UsageError

FOUND = manifests()
NAMES = [one.name for one in FOUND]


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch):
    monkeypatch.setattr(command, "load_all", lambda _directory: FOUND)


def test_a_line_per_probe(capsys):
    assert command.list_probes() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert len({line.index(one.purpose) for line, one in zip(lines, FOUND, strict=True)}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_probe_can_be_shown(name, capsys):
    assert command.show_probe(name) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"name      {name}\n")
    assert "\npurpose   " in shown
    assert "\ncost      " in shown
    assert any(f"\n{says:<9} " in shown for says in ("measures", "part of", "reports"))
    assert shown.rstrip().endswith((".bt", ".d"))


@pytest.mark.parametrize(
    "probe", [manifest for manifest in FOUND if manifest.tool == "dtrace"], ids=lambda one: one.name
)
def test_a_d_script_says_where_it_has_run_and_where_its_hooks_are_from(probe, capsys):
    assert command.show_probe(probe.name) == 0
    shown = capsys.readouterr().out
    assert ("\nhas run   nowhere yet\n" in shown) is (not probe.ran_on)
    assert all(f"on {where}\n" in shown for where in probe.ran_on)
    assert all(source in shown for source in probe.sources)


@pytest.mark.parametrize(("name", "why"), [("nope", "there is no probe 'nope'"), (None, "probes show needs a NAME")])
def test_mistakes_name_the_probes(name, why):
    with pytest.raises(UsageError, match=why) as refusal:
        command.show_probe(name)
    assert NAMES[0] in str(refusal.value)


@pytest.mark.parametrize(
    ("group", "scripts"),
    [
        ("inflight", ["devdepth", "inflight_a", "sd_depth"]),
        ("order", ["order_a", "order_c", "sd_order"]),
        ("csd", ["csd_a"]),
    ],
)
def test_a_group_s_name_shows_its_scripts(group, scripts, capsys):
    """It is what a report calls missing."""
    assert command.show_probe(group) == 0
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("name ")] == scripts


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("files_c", ("measures", "operations on files by file system", "reports", "each slow operation on a file")),
        ("processes_a", ("cgroups that a device serves while I/Os of another one are in flight",)),
    ],
)
def test_what_a_probe_of_files_or_processes_measures_is_shown(capsys, name, lines):
    assert command.show_probe(name) == 0
    shown = capsys.readouterr().out
    assert not [line for line in lines if line not in shown]
