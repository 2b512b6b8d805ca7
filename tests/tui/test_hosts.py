"""A source whose rows are hosts: Enter opens the devices of one, Esc goes back; each has frames of its own."""

import asyncio
from dataclasses import replace

from frames import ORIGIN, Source, host
from test_app import PATIENCE_S, make, painted, screen, settled

from latmon.capture.backend import Grouped
from latmon.recording.archive import Archive
from latmon.views.selection import Selection
from latmon_backends.fleet.merge import HostFrame, merged_frame, merged_origin

HOSTS, DEVICES = 2, 4


class Hosts:
    """Two rows that can be opened; an opened one has four devices, and times before those of the rows."""

    def __init__(self):
        self._changed = asyncio.Event()
        self.opened, self.origin, self._past = "", ORIGIN, Archive()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    def past(self):
        return self._past

    def open_row(self, name):
        if self.opened:
            return False
        self.opened = name
        self._changed.set()
        return True

    def close_row(self):
        if not self.opened:
            return False
        self.opened = ""
        self._changed.set()
        return True

    def host_of(self, name):
        return self.opened or name

    async def regroup(self):
        self._changed.clear()
        self.origin, self._past = replace(ORIGIN, host=self.opened or ORIGIN.host), Archive()

    async def frames(self):
        for frame in host(DEVICES if self.opened else HOSTS, 3 if self.opened else 5):
            yield frame
        await self._changed.wait()


async def shows(pilot, devices):
    async with asyncio.timeout(PATIENCE_S):
        while len(pilot.app.scene.store.devices) != devices:
            await pilot.pause(0.02)
    await painted(pilot)


async def test_enter_opens_a_host_and_escape_leaves_it():
    source = Hosts()
    assert isinstance(source, Grouped)
    app = make(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, HOSTS)
        assert app.scene.archive is source.past()
        await pilot.press("escape")
        assert app.scene.store.origin is ORIGIN
        await pilot.press("down", "enter")
        await shows(pilot, DEVICES)
        name = source.opened
        assert app.scene.store.origin.host == name
        assert f"devices of {name}; Esc: all hosts" in screen(app)
        assert app.scene.archive is source.past()
        assert app.scene.store.frames[-1].mono_us == host(DEVICES, 3)[-1].mono_us
        await pilot.press("enter")
        assert app.scene.selection.panel == "zoom"
        assert source.opened
        await pilot.press("escape")
        assert source.opened
        await pilot.press("escape")
        await shows(pilot, HOSTS)
        assert app.scene.store.origin.host == ORIGIN.host
        assert app.scene.ended is None


async def test_a_host_is_opened_over_ssh_and_the_screen_goes_on_with_its_selection():
    source = Hosts()
    app = make(source)
    async with app.run_test(size=(160, 50)) as pilot:
        await shows(pilot, HOSTS)
        assert "E ssh" in screen(app).splitlines()[-1]
        await pilot.press("enter")
        await shows(pilot, DEVICES)
        assert f"E: `latmon fleet {source.opened}`, over ssh" in screen(app)
        await pilot.press("down", "E")
        await pilot.pause()
        assert (app.visited, app.return_code) == (source.opened, 0)
        assert app.resumed(app._options).selection == app.scene.selection


async def test_a_row_whose_host_is_gone_does_not_end_the_screen(monkeypatch):
    source = Hosts()
    monkeypatch.setattr(source, "host_of", lambda _name: "")
    app = make(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await shows(pilot, HOSTS)
        await pilot.press("E")
        assert "no host of the Prometheus is selected" in screen(app)
        assert app.return_code is None


async def test_a_screen_of_one_host_opens_none_over_ssh():
    app = make(Source(host(DEVICES, 3)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert "E ssh" not in screen(app)
        await pilot.press("E")
        assert "only a host of a Prometheus is opened over ssh" in screen(app)
        assert not app.visited


def fleet(*names):
    """Frames of hosts with four devices each, merged; the first host has a slow one."""
    hosts = [host(DEVICES, 5, odd="nvme2n1" * (name == names[0]), seed=at) for at, name in enumerate(names)]
    for at, frames in enumerate(zip(*hosts, strict=True)):
        parts = [HostFrame(name, frame, 0, number=n) for n, (name, frame) in enumerate(zip(names, frames, strict=True))]
        now = frames[0]
        frame, _ = merged_frame(parts, seq=at, wall=now.wall, mono_us=now.mono_us, dt_us=now.dt_us)
        yield frame


NAMES = ("database-07", "database-08", "web-1")


def fleet_app(group="host"):
    origin = merged_origin(dict.fromkeys(NAMES, ORIGIN), len(NAMES), 1_000_000, (0.0, 0))
    return make(Source(fleet(*NAMES), origin=origin), selection=Selection(backend="fleet", group=group))


def rows(app):
    return [line.split()[0].lstrip("▸") for line in screen(app).splitlines() if line.startswith(("▸", " "))]


async def test_enter_opens_a_host_of_a_fleet_and_escape_leads_back_to_all():
    app = fleet_app()
    async with app.run_test(size=(80, 30)) as pilot:
        await settled(pilot)
        shown = rows(app)
        assert set(NAMES) <= set(shown)
        assert shown.index(NAMES[0]) < shown.index(NAMES[1])  # the one with the worst device first
        assert "hosts 3, with 12 devices" in screen(app)
        await pilot.press("enter")
        await painted(pilot)
        opened = [row for row in rows(app) if row.startswith("nvme")]
        assert sorted(opened) == [f"nvme{n}n1" for n in range(DEVICES)]
        assert f"of {NAMES[0]}" in screen(app)
        await pilot.press("escape")
        await painted(pilot)
        assert set(NAMES) <= set(rows(app))
        await pilot.press("escape")
        await painted(pilot)
        assert f"{NAMES[0]}:nvme2" in screen(app)


async def test_the_group_key_has_hosts_only_where_there_are_several():
    app = fleet_app(group="")
    async with app.run_test(size=(120, 30)) as pilot:
        await settled(pilot)
        assert f"{NAMES[0]}:nvme2n1 " in screen(app)  # in full
        await pilot.press("b")
        assert app.scene.selection.group == "host"
        await pilot.press("b")
        assert app.scene.selection.group == "controller"
    assert Selection().next_group == "controller"


async def test_the_help_names_the_way_to_a_host_and_back():
    app = fleet_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await settled(pilot)
        await pilot.press("question_mark", *"host")
        await pilot.pause(0.2)
        shown = screen(app)
    assert "the devices of a host or a group" in shown
    assert "back, also to all hosts or groups" in shown
