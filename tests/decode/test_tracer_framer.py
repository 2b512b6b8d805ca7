"""Maps of on-demand scripts: stages by the total, paths, requests that are not followed, tables, several scripts."""

import json
from collections import Counter
from functools import partial

import pytest
from frame_sums import FrameSums
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.framer import UNKNOWN, TracerFramer, TracerInterval, joined
from latmon.decode.tables import Record
from latmon.manifest import load
from latmon.model.frame import Flow, Frame, Missing, Series, Thread
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.measurements import ABOVE, HANDLERS, SOFTIRQS
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu
from latmon.recording.validate import MAX_LABEL
from latmon.support.paths import data_dir

VDA, SDB, GONE = 254 << 20, 8 << 20 | 16, 7 << 20
NAMES = {VDA: "vda", SDB: "sdb"}
DEV = {"shift": 16, "bits": 32, "decoder": "dev_t"}
OP = {"shift": 8, "bits": 8, "decoder": "op"}
BUCKET = {"shift": 0, "bits": 8, "decoder": "bucket"}
TREE = {
    "purpose": "a test",
    "platform": "linux",
    "tool": "bpftrace",
    "tier": "A",
    "cost": "moderate",
    "clock": "monotonic",
    "hooks": ["tracepoint:a:b"],
    "requirements": ["root"],
    "group": "stages",
    "keys": {
        "request": {"dev": DEV, "op": OP, "bucket": BUCKET},
        "way": {"dev": DEV, "path": {"shift": 0, "bits": 8, "decoder": "integer"}},
        "device": {"dev": {"shift": 0, "bits": 32, "decoder": "dev_t"}},
        "run": {
            "handler": {"shift": 10, "bits": 42, "decoder": "integer"},
            "returned": {"shift": 8, "bits": 2, "decoder": "integer"},
            "bucket": BUCKET,
        },
        "vector": {
            "vec": {"shift": 24, "bits": 8, "decoder": "integer"},
            "cpu": {"shift": 8, "bits": 16, "decoder": "integer"},
            "bucket": BUCKET,
        },
        "where": {
            "vec": {"shift": 24, "bits": 8, "decoder": "integer"},
            "cpu": {"shift": 8, "bits": 16, "decoder": "integer"},
            "context": {"shift": 0, "bits": 8, "decoder": "integer"},
        },
    },
    "paths": ["hard interrupt", "BLOCK softirq"],
    "unfollowed": ["batched completion"],
    "contexts": ["irq_exit", "timer"],
    "absent": {"resume": "not here"},
    "includes": {"hba": ["irq"]},
}
MAPS = {
    "hba": {"role": "histogram", "stages": ["hba"], "key": "request"},
    "hba_sum": {"role": "sum", "stages": ["hba"], "key": "request"},
    "rest": {"role": "histogram", "stages": ["unaccounted"], "key": "request"},
    "by": {"role": "by_total", "stages": ["hba", "unaccounted"], "key": "request"},
    "path": {"role": "path", "key": "way"},
    "off": {"role": "off", "key": "request"},
    "left": {"role": "suppressed", "key": "device"},
    "run": {"role": "handler_run", "key": "run"},
    "run_sum": {"role": "handler_sum", "key": "run"},
    "before": {"role": "handler_before", "key": "run"},
    "delay": {"role": "softirq_delay", "key": "vector"},
    "delay_sum": {"role": "softirq_delay_sum", "key": "vector"},
    "ran": {"role": "softirq_ran_in", "key": "where"},
    "raised": {"role": "softirq_raised_in", "key": "where", "contexts": ["irq", "softirq", "other"]},
}


def made(directory, name="tiny", **changes):
    tree = {"name": name, **TREE, "maps": {f"{name}_{key}": spec for key, spec in MAPS.items()}, **changes}
    (directory / f"{name}.bt").write_text("BEGIN { }\n")
    path = directory / f"{name}.yaml"
    path.write_text(json.dumps(tree))
    return load(path)


@pytest.fixture
def manifest(tmp_path):
    return partial(made, tmp_path)


@pytest.fixture
def framer(manifest):
    return TracerFramer(manifest(), NAMES.get)


def thread(pid):
    return Thread(pid, "", "", -1)


def interval(framer, **maps):
    for name, values in maps.items():
        framer.printed(f"tiny_{name}", values)
    return framer.interval(None, thread)


def key(us=None, dev=VDA, op=0):
    return dev << 16 | op << 8 | (0 if us is None else bucket_index(us))


def way(code, dev=VDA):
    return dev << 16 | code


def run(handler, returned=1, us=0):
    return handler << 10 | returned << 8 | bucket_index(us)


def at(vec, cpu, low=0):
    return vec << 24 | cpu << 8 | low


# Stages


def test_stages_and_what_is_unaccounted_are_series(framer):
    traced = interval(framer, hba={key(100): 3}, hba_sum={key(): 300}, rest={key(5, SDB, 1): 2}).traced
    assert traced.histograms == {
        Series("vda", "read", "hba"): Histogram.of({bucket_index(100): 3}, 300),
        Series("sdb", "write", "unaccounted"): Histogram.of({5: 2}),
    }


def test_a_stages_time_by_the_total_of_its_requests(framer):
    first = interval(framer, by={key(1000): 700, key(20000, SDB): 9}).traced
    assert first.by_total[Series("vda", "read", "hba")] == {bucket_index(1000): 700}
    assert first.by_total[Series("sdb", "read", "unaccounted")] == {bucket_index(20000): 9}
    second = interval(framer, by={key(1000): 900, key(20000, SDB): 9}).traced
    assert second.by_total == {
        Series("vda", "read", stage): {bucket_index(1000): 200} for stage in ("hba", "unaccounted")
    }


def test_ops_of_one_name_are_one_sum(framer):
    traced = interval(framer, by={key(1000, op=1): 5, key(1000, op=7): 6}).traced
    assert traced.by_total[Series("vda", "write", "hba")] == {bucket_index(1000): 11}


def test_paths_and_why_others_could_not_be_followed(framer):
    traced = interval(framer, path={way(0): 5, way(1): 6, way(64): 7, way(9): 1, way(99): 2, way(0, SDB): 3}).traced
    assert traced.paths == {
        "vda": {"hard interrupt": 5, "BLOCK softirq": 6, "unknown code 9": 1},
        "sdb": {"hard interrupt": 3},
    }
    assert traced.unfollowed == {"vda": {"batched completion": 7, "unknown code 99": 2}}


def test_a_device_without_a_name_is_left_out_but_its_faults_count(framer):
    actual_interval = interval(
        framer, by={key(5, GONE): 5}, path={way(0, GONE): 1}, hba={key(5, GONE): 1}, off={key(dev=GONE): 2}
    )
    assert (actual_interval.traced.by_total, actual_interval.traced.paths, actual_interval.traced.histograms) == (
        {},
        {},
        {},
    )
    assert actual_interval.traced.off == 2


def test_what_was_suppressed_and_what_is_undecoded(framer):
    actual_interval = interval(framer, left={VDA: 5, SDB: 2}, run={run(1, us=5): -1}, hba={2**63: 1}, nobody={1: 1})
    assert (actual_interval.suppressed, actual_interval.undecoded) == (7, 3)
    assert interval(framer, left={VDA: 6, SDB: 2}).suppressed == 1


def test_a_script_may_look_for_slow_ios_of_its_own_devices(manifest):
    own = {"tiny_above": {"role": "above", "key": "request"}, "tiny_level": {"role": "level", "key": "device"}}
    bios = manifest(group="bios", maps=own)
    tracer_framer = TracerFramer(bios, NAMES.get)
    tracer_interval = joined(
        [interval(tracer_framer, above={key(): 5}, level={SDB: 9000, GONE: 1}), TracerInterval()], [bios]
    )
    assert (tracer_interval[ABOVE], tracer_interval.thresholds_us) == ({Flow("vda", "read"): 5}, {"sdb": 9000})


# Tables


def test_a_handler_is_all_its_runs_and_what_they_returned(framer):
    framer.handler(Record("handler", "tiny", {"handler": 7, "irq": 11}, text="megasas"))
    found = interval(
        framer,
        run={run(7, 0, 20): 30, run(7, 1, 20): 5, run(7, 1, 90): 1, run(7, 3, 90): 2},
        run_sum={run(7, 0): 600, run(7, 1): 190, run(7, 3): 180},
        before={run(7, 0): 4000},
    )[HANDLERS]
    assert found == {
        Handler(11, "megasas"): HandlerRuns(
            Histogram.of({bucket_index(20): 35, bucket_index(90): 3}, 970),
            returned={"none": 30, "handled": 6, "wake": 2},
            before_us=4000,
        )
    }


def test_a_handler_that_another_one_calls_names_the_irq_of_that_one(framer):
    framer.handler(Record("handler", "tiny", {"handler": 7, "irq": 40, "caller": 24}, text="nvme0q1"))
    framer.handler(Record("handler", "tiny", {"handler": 8, "irq": 24, "caller": 24}, text="vmd0"))
    framer.handler(Record("handler", "tiny", {"handler": 9, "irq": 41, "caller": 24}, text="eth0"))
    framer.handler(
        Record("handler", "tiny", {"handler": 9, "irq": 41, "caller": 41}, text="eth0")
    )  # the newer one holds
    found = interval(framer, run={run(7, us=5): 1, run(8, us=9): 1, run(9, us=9): 1})[HANDLERS]
    assert {handler.name: runs.caller for handler, runs in found.items()} == {
        "nvme0q1": 24,
        "vmd0": UNKNOWN_IRQ,
        "eth0": UNKNOWN_IRQ,
    }


def test_a_handlers_pointer_is_known_by_the_bits_that_a_key_holds(framer):
    pointer = 0xFFFF888012345678
    framer.handler(Record("handler", "tiny", {"handler": pointer, "irq": 24}, text="nvme0q1"))
    short = pointer & (1 << 42) - 1
    assert list(interval(framer, run={run(short, us=5): 1})[HANDLERS]) == [Handler(24, "nvme0q1")]


def test_a_handler_whose_record_was_lost_is_counted_all_the_same(framer):
    framer.handler(Record("handler", "tiny", {"irq": 24}))
    assert interval(framer, run={run(9, us=5): 4})[HANDLERS][UNKNOWN].run.count == 4


def test_names_of_handlers_are_bounded_and_what_has_no_room_is_reported(framer, monkeypatch):
    monkeypatch.setattr("latmon.decode.framer._MAX_HANDLERS", 2)
    for number in (7, 8, 9, 9, 8):
        framer.handler(Record("handler", "tiny", {"handler": number, "irq": number}, text=f"irq{number}"))
    actual_interval = interval(framer, run={run(number, us=5): 1 for number in (7, 8, 9)})
    assert {handler.name for handler in actual_interval[HANDLERS]} == {"irq7", "irq8", "unknown"}
    assert actual_interval.undecoded == 2
    assert interval(framer).undecoded == 0


def test_handlers_that_ran_before_an_idle_one_are_nothing(framer):
    assert interval(framer, before={run(7, 0): 4000}, run_sum={run(7, 1): 5})[HANDLERS] == {}


def test_a_sum_is_one_that_its_runs_can_have(framer):
    framer.handler(Record("handler", "tiny", {"handler": 7, "irq": 11}, text="megasas"))
    early = interval(framer, run={}, run_sum={run(7, 1): 20}, before={run(7, 0): 9}, delay_sum={at(4, 0): 15})
    assert (early[HANDLERS], early[SOFTIRQS]) == ({}, {})
    actual_interval = interval(framer, run={run(7, 1, 20): 1}, delay={at(4, 0, 15): 1})
    low, _ = bucket_bounds(bucket_index(20))
    assert actual_interval[HANDLERS][Handler(11, "megasas")].run == Histogram.of({bucket_index(20): 1}, low)
    assert actual_interval[SOFTIRQS][SoftirqCpu("BLOCK", 0)].delay == Histogram.of({15: 1}, bucket_bounds(15)[0])


def test_time_by_the_total_waits_for_its_stage(framer):
    first = interval(framer, rest={}, by={key(1000): 700})
    assert first.traced.histograms == {}
    second = interval(framer, rest={key(700): 1})
    assert second.traced.histograms[Series("vda", "read", "unaccounted")].sum == 700


_RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6)), min_size=1, max_size=30)


@given(_RUNS, st.lists(st.tuples(*[st.integers(0, 30)] * 3), max_size=6))
def test_maps_that_are_printed_at_different_moments_lose_no_run(tmp_path_factory, runs, moments):
    """Each of the three maps holds as many of the runs as there were when it was printed, one after another."""
    framer = TracerFramer(made(tmp_path_factory.mktemp("m")), NAMES.get)
    prints = [*zip(*(sorted(column) for column in zip(*map(sorted, moments), strict=True)), strict=True), (30, 30, 30)]
    reported = []
    for counted, summed, before in prints:
        maps = Counter(run(7, code, us) for code, us in runs[:counted]), Counter(), Counter()
        for code, us in runs[:summed]:
            maps[1][run(7, code)] += us
        for _, us in runs[:before]:
            maps[2][run(7, 0)] += us
        names = ("run", "run_sum", "before")
        actual_interval = interval(framer, **{name: dict(counts) for name, counts in zip(names, maps, strict=True)})
        reported += actual_interval[HANDLERS].values()
    assert sum(one.run.count for one in reported) == len(runs)
    for one in reported:
        low = sum(n * bucket_bounds(index)[0] for index, n in one.run.buckets)
        assert low <= one.run.sum < sum(n * bucket_bounds(index)[1] for index, n in one.run.buckets)


_STAGES = {
    "tiny_total": {"role": "histogram", "stages": ["total"], "key": "request"},
    "tiny_hba": {"role": "histogram", "stages": ["hba"], "key": "request"},
    "tiny_rest": {"role": "histogram", "stages": ["unaccounted"], "key": "request"},
    "tiny_hba_by": {"role": "by_total", "stages": ["hba"], "key": "request"},
    "tiny_rest_by": {"role": "by_total", "stages": ["unaccounted"], "key": "request"},
    "tiny_sum": {"role": "sum", "stages": ["total"], "key": "request"},
}
_REQUESTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=30)


def printed(requests, moments):
    """Each map as of its moment: the number of requests that had completed when it was printed."""
    maps = {name: Counter() for name in _STAGES}
    for n, (hba, rest) in enumerate(requests):
        values = {
            "tiny_total": (key(hba + rest), 1),
            "tiny_hba": (key(hba), 1),
            "tiny_rest": (key(rest), 1),
            "tiny_hba_by": (key(hba + rest), hba),
            "tiny_rest_by": (key(hba + rest), rest),
            "tiny_sum": (key(), hba + rest),
        }
        for moment, (name, (at_key, value)) in zip(moments, values.items(), strict=True):
            if n < moment:
                maps[name][at_key] += value
    return maps


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return made(tmp_path_factory.mktemp("stages"), maps=_STAGES)


@given(_REQUESTS, st.lists(st.tuples(*[st.integers(0, 30)] * len(_STAGES)), max_size=6))
def test_stages_add_up_to_the_total_though_io_stopped(stages, requests, moments):
    """The maps of a tick are printed one after another while requests complete; at the end no more do."""
    framer = TracerFramer(stages, NAMES.get)
    ticks = [tuple(sorted(moment)) for moment in moments]
    ticks = [*zip(*(sorted(column) for column in zip(*ticks, strict=True)), strict=True), *[(30,) * len(_STAGES)] * 2]
    frames = []
    for tick in ticks:
        for name, values in printed(requests, tick).items():
            framer.printed(name, dict(values))
        frames.append(Frame(0, 0.0, 0, 1, traced=framer.interval(None, thread).traced))
    histograms = FrameSums(frames).traced.histograms
    sums = {stage: histograms[Series("vda", "read", stage)].sum for stage in ("hba", "unaccounted", "total")}
    hba, rest = (sum(column) for column in zip(*requests, strict=True))
    assert sums == {"hba": hba, "unaccounted": rest, "total": hba + rest}


def test_softirqs_by_vector_and_cpu(framer):
    found = interval(
        framer,
        delay={at(4, 0, 3): 5, at(4, 1, 3): 6},
        delay_sum={at(4, 0): 15, at(4, 1): 18},
        ran={at(4, 0, 0): 5, at(4, 0, 1): 2, at(4, 0, 9): 1},
        raised={at(4, 0, 1): 3, at(3, 7, 0): 1, at(77, 0, 0): 1},
    )[SOFTIRQS]
    assert found[SoftirqCpu("BLOCK", 1)].delay == Histogram.of({3: 6}, 18)
    assert found[SoftirqCpu("BLOCK", 0)].ran_in == {"irq_exit": 5, "timer": 2, "other": 1}
    assert found[SoftirqCpu("BLOCK", 0)].raised_in == {"softirq": 3}
    assert not found[SoftirqCpu("NET_RX", 7)].run
    assert SoftirqCpu("vector 77", 0) in found


# Several scripts


def test_the_scripts_of_a_process_are_one_value(manifest):
    stages = manifest("tiny")
    bios = manifest("bios", group="bios", includes={"hba": ["queue"]}, absent={"queue": "in hba"}, maps={})
    irqs = manifest("irqs", group="irqs", absent={"queue": "never"}, maps={})
    tracer_framer, other = TracerFramer(stages, NAMES.get), TracerFramer(stages, NAMES.get)
    each = [
        interval(tracer_framer, hba={key(100): 3}, by={key(100): 1}, path={way(0): 1}, off={key(): 1}),
        interval(
            other, hba={key(100): 1, key(5, SDB): 1}, by={key(100): 2}, path={way(0): 2, way(64): 1}, off={key(): 1}
        ),
    ]
    tracer_interval = joined(each, [stages, bios, irqs])
    assert tracer_interval.traced.histograms[Series("vda", "read", "hba")].count == 4
    assert tracer_interval.traced.histograms[Series("sdb", "read", "hba")].count == 1
    assert tracer_interval.traced.by_total[Series("vda", "read", "hba")] == {bucket_index(100): 3}
    assert tracer_interval.traced.paths == {"vda": {"hard interrupt": 3}}
    assert tracer_interval.traced.unfollowed == {"vda": {"batched completion": 1}}
    assert tracer_interval.traced.off == 2
    rest = ("queue", "requeue", "worker", "softirq", "completion")
    unlisted = (Missing(stage, "this probe doesn't hook it") for stage in rest)
    assert tracer_interval.traced.absent == (Missing("resume", "not here"), *unlisted), "irq is in hba"
    assert tracer_interval.traced.includes_of("vda") == {"hba": ("irq",)}
    assert tracer_interval.traced.includes_of("dm-0") == {"hba": ("queue",)}


def test_a_stage_holds_what_it_holds_in_each_script(manifest):
    """A script reports the interrupt's part of an HBA's packets; another one of all commands doesn't."""
    more = manifest("more", includes={"hba": ["irq", "softirq"]}, maps={})
    less = manifest("less", includes={"hba": ["irq"]}, maps={})
    none = manifest("none", includes={}, absent={})
    assert joined([], [more, less]).traced.includes == {"hba": ("irq",)}
    assert joined([], [less, more]).traced.includes == {"hba": ("irq",)}
    assert joined([], [more, none]).traced.includes == {}


def test_of_no_script_there_is_nothing():
    assert joined([], []) == TracerInterval()


RAISED = "\n    bpf_prog_7_softirq_raise+1\n    bpf_trace_run1+2\n    __traceiter_x+3\n    raise_softirq+141"


def test_a_raiser_is_named_by_the_functions_below_those_that_all_raisers_have():
    manifest = load(data_dir("probes") / "linux/softirqs_a.yaml")
    spec = next(map_spec for map_spec in manifest.maps if map_spec.role == "raiser")
    framer = TracerFramer(manifest, NAMES.get)
    stacks = {
        f"4,{RAISED}\n    blk_mq_complete_request+14\n    lo_rw_aio.isra.0+622\n    loop_work+7\n    kthread+1\n": 5,
        f"4,{RAISED}\n    blk_mq_complete_request+14\n    lo_rw_aio.isra.0+9\n    loop_work+7\n": 2,
        f"5,{RAISED}\n    irq_poll_sched+1\n    ib_cq_completion+1\n": 1,
        f"4,{RAISED}": 1,
        f"4,{RAISED}\n    virtblk_done+1\n    vring_interrupt+1\n    __handle_irq_event_percpu+84\n": 7,
        "4,\n    0xffffffff81000000\n": 1,
        "no vector": 9,
    }
    framer.printed(spec.name, framer.by_stack(spec, dict(list(stacks.items())[:1])))
    framer.interval(None, thread)
    framer.printed(spec.name, framer.by_stack(spec, stacks))
    assert framer.interval(None, thread).traced.raisers == {
        "BLOCK": {"blk_mq_complete_request < lo_rw_aio < loop_work": 2, "raise_softirq": 1, "other": 1},
        "IRQ_POLL": {"ib_cq_completion": 1},
    }


def test_the_name_of_a_stack_of_long_names_fits_into_a_recording():
    manifest = load(data_dir("probes") / "linux/stages_a.yaml")
    spec = next(map_spec for map_spec in manifest.maps if map_spec.role == "completer")
    framer = TracerFramer(manifest, NAMES.get)
    frames = "".join(f"    {letter * 300}+1\n" for letter in "abc")
    framer.printed(spec.name, framer.by_stack(spec, {f"{VDA},\n{frames}": 1}))
    ((name, n),) = framer.interval(None, thread).traced.completers["vda"].items()
    assert n == 1
    assert len(name) <= MAX_LABEL
    assert [part[0] for part in name.split(" < ")] == ["a", "b", "c"]


def test_completers_without_room_for_their_names_are_others():
    manifest = load(data_dir("probes") / "linux/stages_a.yaml")
    spec = next(map_spec for map_spec in manifest.maps if map_spec.role == "completer")
    framer = TracerFramer(manifest, NAMES.get)
    stacks = {f"{dev},\n    f{number}+1\n": 1 for number in range(300) for dev in (VDA, GONE)}
    framer.printed(spec.name, framer.by_stack(spec, stacks))
    completers = framer.interval(None, thread).traced.completers
    assert {name: sum(counts.values()) for name, counts in completers.items()} == {"vda": 300}
    assert completers["vda"]["other"] == 300 - 255
