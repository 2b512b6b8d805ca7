"""When tier A gives way to tier A': requests without stamps, on a kernel whose types show the request's place."""

from types import SimpleNamespace

import pytest

from latmon.capture.backend import Options
from latmon.decode.framer import ProbeInterval
from latmon.model.frame import Completed, Flow
from latmon_backends.bpftrace import backend as bpftrace_backend
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace.backend import BpftraceAlwaysOn

READ = Flow("sda", "read")


def window(seen, unmatched):
    return SimpleNamespace(interval=ProbeInterval(seen={READ: Completed(seen, 0)}, unmatched=unmatched))


@pytest.fixture
def backend():
    frames = SimpleNamespace(gap="", notice="", device_name=None, has_several_queues=None, is_selected=None)
    counters = SimpleNamespace(sample=None, cgroups=SimpleNamespace(named=None))
    bpftrace_always_on = BpftraceAlwaysOn(Options(), SimpleNamespace(map_keys=1), counters, frames)
    bpftrace_always_on.script = next(iter(bpftrace_program.variants(1000, 0)))
    return bpftrace_always_on


@pytest.mark.parametrize(("seen", "unmatched", "lacks"), [(1000, 900, True), (1000, 400, False), (50, 50, False)])
def test_most_of_enough_requests_decide(backend, seen, unmatched, lacks):
    assert backend._lacks_stamps(window(seen, unmatched)) is lacks


def test_other_tiers_need_no_stamps(backend):
    *_, backend.script = bpftrace_program.variants(1000, 0)
    assert not backend._lacks_stamps(window(1000, 900))


class Running:
    def __init__(self, name=""):
        self.name, self.stopped, self.ready_ns = name, False, 0

    async def stop(self):
        self.stopped = True


async def test_the_probe_with_pointers_replaces_the_one_with_stamps(backend, monkeypatch):
    async def start(_launcher, program, **_):
        return Running(program.scripts[0].manifest.name)

    monkeypatch.setattr(bpftrace_backend.BpftraceProbe, "start", start)
    backend.probe = old = Running()
    await backend._keep_issues()
    if not list(bpftrace_program.pointers(1000, backend._options.sys)):
        pytest.skip("no kernel BTF here")
    assert (old.stopped, backend.probe.name, backend._frames.gap) == (True, "block_ap", "probe-restart")
    assert "tier A'" in backend._frames.notice


async def test_where_pointers_cannot_be_had_the_probe_stays(backend, tmp_path):
    backend._options = Options(sys=tmp_path)
    backend.probe = old = Running()
    await backend._keep_issues()
    assert (old.stopped, backend.probe, backend._frames.gap) == (False, old, "")
    assert "can't be timed" in backend._frames.notice
    assert not backend._lacks_stamps(window(1000, 900))
