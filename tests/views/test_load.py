"""The host's load below a map: by itself where the map is large, asked for on a small screen, with what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from frames import ORIGIN, PROCFS, host
from panels import scene
from test_panels import text

from latmon.model.frame import DeviceReport, shown_reports
from latmon.model.host_context import interval_value
from latmon.tui.commands import load
from latmon.views.selection import Selection

ASKED = Selection(load=True)


def loaded(*values, name="", devices=2, origin=ORIGIN):
    """A host whose windows have these values, each for as many seconds as there are others."""
    frames = host(devices, 12 * len(values))
    named = [{name + key: one for key, one in some.items()} for some in values for _ in range(12)]
    return frames, [replace(frame, host_context=some) for frame, some in zip(frames, named, strict=True)], origin


def drawn(made, size, selection=Selection()):  # noqa: B008  frozen
    _, frames, origin = made
    return text(scene(frames, selection, origin), size).splitlines()


def share(value):
    return interval_value(round(value * 1_000_000), 1_000_000)


BUSY = {"psi_cpu_some": share(0.5), "steal": share(0.1), "psi_io_some": share(0), "dirty": interval_value(2 << 30, 1)}
QUIET = {"psi_cpu_some": share(0), "steal": share(0), "psi_io_some": share(0), "dirty": interval_value(10**6, 1)}


def test_a_large_screen_has_strips_and_the_key_of_the_other_values():
    lines = drawn(loaded(QUIET, BUSY), (160, 50))
    (cpu,) = (one for one in lines if "PSI cpu some" in one)
    assert "50%, max 50% PSI cpu some" in cpu
    assert any("10%, max 10% CPU steal" in one for one in lines)
    assert any("dirty" in one and "2GiB, max 2GiB" in one for one in lines)
    assert any(one.strip("│ ") == "L shows all values of the host" for one in lines)


def test_a_small_screen_has_them_when_asked_for():
    made = loaded(QUIET, BUSY)
    assert not any(" steal " in one for one in drawn(made, (80, 24)))
    lines = drawn(made, (80, 24), ASKED)
    assert len(lines) == 24
    assert any(line.startswith("  cpu ") and "50%, max 50%" in line for line in lines)
    assert any("not measured here" in line for line in lines)


def test_a_strip_is_below_its_columns_and_noise_is_low():
    lines = drawn(loaded(QUIET, {**BUSY, "steal": share(0.02)}), (80, 24), ASKED)
    rows = {name: next(one for one in lines if one.startswith(f"{name:>5} ")) for name in ("cpu", "steal")}
    bars = {name: one[6 : one.index("│")].rstrip() for name, one in rows.items()}
    assert not bars["cpu"][: -len(bars["cpu"]) // 2 - 1].strip(), "the first half had none"
    assert set(bars["cpu"].split()[0]) == {"▇"}
    assert set(bars["steal"].split()[0]) == {"▁"}


def test_without_any_a_screen_is_as_ever():
    frames = host(2, 24)
    made = frames, frames, ORIGIN
    assert not any("load of the host" in one for one in drawn(made, (160, 50)))
    assert any("load of the host: not measured here" in one for one in drawn(made, (80, 24), ASKED))


def test_a_source_without_distributions_has_them_too():
    lines = drawn(loaded(QUIET, BUSY, origin=PROCFS), (160, 50))
    assert any("PSI cpu some" in line for line in lines)


def test_of_a_fleet_those_of_the_devices_host_are_shown():
    made = loaded(QUIET, BUSY, name="other:")
    assert not any("PSI cpu some" in one for one in drawn(made, (160, 50)))


def test_a_large_map_keeps_its_lines_where_nothing_is_high():
    low = {
        **QUIET,
        "psi_cpu_some": share(0.2),
        "dirty": interval_value(9 * 10**8, 1),
        "arc": interval_value(1 << 40, 1),
    }
    made = loaded(low, low)
    _, frames, origin = made
    without = frames, [replace(frame, host_context={}) for frame in frames], origin
    assert drawn(made, (160, 50)) == drawn(without, (160, 50))
    given_scene = scene(frames)
    text(given_scene, (160, 50))
    assert load(given_scene.view, 0).load
    lines = drawn(made, (160, 50), ASKED)
    assert any("20%, max 20% PSI cpu some" in line for line in lines)
    assert any("1TiB" in line for line in lines)


def test_values_that_are_low_or_have_no_room_are_named():
    busy = {**BUSY, "psi_io_some": share(0.01)}
    quiet = {**BUSY, "psi_io_some": share(0)}
    lines = drawn(loaded(quiet), (160, 50), ASKED)
    assert any("always 0: PSI io some; not measured here: PSI memory some, " in line for line in lines)
    every = {**busy, "psi_memory_some": share(0.2), "writeback": interval_value(10**9, 1)}
    assert any("no room for CPU steal, dirty pages, writeback" in one for one in drawn(loaded(every), (80, 24), ASKED))


def test_a_value_that_is_no_longer_measured_has_no_present_one():
    _, frames, _ = loaded(BUSY)
    later = host(2, 200)
    made = (
        None,
        [replace(frame, host_context=frames[at].host_context if at < 12 else {}) for at, frame in enumerate(later)],
        ORIGIN,
    )
    lines = drawn(made, (160, 50), replace(ASKED, window_us=600_000_000))
    assert any("-, max 50% PSI cpu some" in line for line in lines)


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (100, 24), (160, 50), (200, 80)])
@pytest.mark.parametrize("selection", [ASKED, Selection(load=True, apart=True), Selection(load=True, panel="zoom")])
def test_every_size_is_filled_exactly(size, selection):
    assert len(drawn(loaded(QUIET, BUSY), size, selection)) == size[1]


def test_the_key_hides_what_is_shown_and_shows_what_is_hidden():
    _, frames, _ = loaded(QUIET, BUSY)
    for size, shown in (((160, 50), False), ((80, 24), True)):
        given_scene = scene(frames)
        text(given_scene, size)
        assert load(given_scene.view, 0).load is shown


def test_the_key_hides_it_where_reads_and_writes_are_apart_and_shows_it_from_small_maps():
    _, frames, _ = loaded(QUIET, BUSY)
    given_scene = scene(frames, Selection(load=True, apart=True))
    assert "CPU steal" in text(given_scene, (160, 50))
    assert load(given_scene.view, 0).load is False
    assert load(replace(given_scene.view, selection=Selection(load=True, panel="maps")), 0).load is True


def test_the_best_of_a_link_is_shown_where_it_is_at_less():
    assert shown_reports({"state": "live", "link_width": 4, "link_width_best": 4}) == ["state", "link_width"]
    assert shown_reports({"link_width": 2, "link_width_best": 4}) == ["link_width", "link_width_best"]


def test_what_the_device_reports_is_below_the_load():
    reports = (DeviceReport("state", "live", "nvme0/state"), DeviceReport("link_width", 2, "x"))
    _, frames, _ = loaded(QUIET, BUSY)
    devices = tuple(
        replace(device, reports=(*reports, DeviceReport("link_width_best", 4, "x"))) for device in frames[0].devices
    )
    frames[0] = replace(frames[0], devices=devices)
    for size, selection in (((160, 50), Selection()), ((80, 24), ASKED)):
        lines = drawn((None, frames, ORIGIN), size, selection)
        assert len(lines) == size[1]
        assert any("nvme0n1 reports: state live, link_width 2, link_width_best 4 " in f"{line} " for line in lines)


def test_a_sweep_has_the_newest_value_as_now():
    _, frames, _ = loaded(QUIET, BUSY, QUIET)
    lines = drawn((None, frames, ORIGIN), (160, 50), Selection(sweep=True))
    assert any("0%, max 50% PSI cpu some" in line for line in lines)
