"""A source whose rows are hosts: Enter opens the devices of one, Esc goes back; each has frames of its own."""

import asyncio
from dataclasses import replace

from frames import ORIGIN, host
from test_app import PATIENCE_S, make, painted, screen

from latmon.capture.backend import Grouped
from latmon.recording.archive import Archive

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
