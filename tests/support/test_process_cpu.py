"""latmon's CPU time, against real processes and a made-up /proc."""

import os
import subprocess
import sys
import time

from latmon.support.process import OwnCpu, own_cost


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def process(proc, pid, ticks, children=()):
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, children)))
    user, system, *waited = ticks
    fields = ["S", "1", *["0"] * 9, user, system, *(waited or (0, 0)), "20"]
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b (c) {' '.join(map(str, fields))}\n")


def test_children_and_their_children_count(tmp_path):
    clock = Clock()
    before_s = time.process_time()
    process(tmp_path, 10, (0, 0), children=[11])
    process(tmp_path, 11, (100, 50), children=[12])
    process(tmp_path, 12, (0, 0, 0, 0))
    cpu = OwnCpu(tmp_path, 10, clock)
    process(tmp_path, 12, (20, 10, 15, 5))
    clock.now = 1.0
    ticks = os.sysconf("SC_CLK_TCK")
    percent = cpu.percent()
    of_this_process = 100 * (time.process_time() - before_s)
    assert 100 * 50 / ticks <= percent <= 100 * 50 / ticks + of_this_process + 0.1


def test_a_child_that_vanished_makes_nothing_negative(tmp_path):
    clock = Clock()
    process(tmp_path, 10, (0, 0), children=[11])
    process(tmp_path, 11, (900, 900))
    cpu = OwnCpu(tmp_path, 10, clock)
    process(tmp_path, 10, (0, 0))
    clock.now = 1.0
    assert cpu.percent() == 0.0


def test_no_time_passed_is_no_percentage(tmp_path):
    assert OwnCpu(tmp_path, 10, Clock()).percent() is None


def test_a_busy_child_is_seen():
    cpu = OwnCpu()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            guard = time.monotonic() + 60
            while (percent := cpu.percent() or 0) <= 15 and time.monotonic() < guard:  # of a core that others use
                time.sleep(0.4)
            assert percent > 15
        finally:
            busy.kill()


def test_the_time_of_a_child_that_has_ended_is_kept():
    before = own_cost()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    after = own_cost()
    assert after.cpu_s - before.cpu_s >= 0.29
    assert after.resident > 1 << 20


def test_the_cost_without_linuxs_proc_is_this_processs(tmp_path):
    cost = own_cost(tmp_path)
    assert cost.cpu_s > 0
    assert cost.resident > 1 << 20


def test_memory_is_unknown_without_proc_and_psutil(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert own_cost(tmp_path).resident is None
