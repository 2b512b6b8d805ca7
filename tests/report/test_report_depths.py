"""Depths in a report: at a limit, below one, and how often I/Os were queued."""

from __future__ import annotations

import re

import pytest
from recorded import ORIGIN, frame
from report_json import summarised
from test_report import record

from latmon.model.frame import Device, Limit
from latmon.model.inflight import PROBE, Depths
from latmon.report.text import render_text

NONE = Limit("scheduler", "none", "queue/scheduler")
TAGS = Limit("nr_tags", 512, "mq/0/nr_tags")


def disk(*limits, **values):
    return Device("sda", 254, 0, driver="virtio_blk", limits=(NONE, *limits), **values)


@pytest.fixture
def reported(tmp_path):
    """The summary of five seconds with these depths."""

    def summary(depths, device, *more):
        frames = [
            frame(n, depths={"sda": one}, devices=(device,) if n == 0 else ())
            for n, one in enumerate((*[depths] * 5, *more))
        ]
        return summarised(record(tmp_path / f"r{len([*tmp_path.iterdir()])}", *frames, origin=ORIGIN))

    return summary


@pytest.mark.parametrize("limit", [254, 512, 1023])
@pytest.mark.parametrize("most", [None, "counted"])
def test_a_limit_is_never_exceeded_by_the_end_of_a_bucket(reported, limit, most):
    end = {254: 254, 512: 512, 1023: 1024}[limit]
    depths = Depths({0: 50, end: 950}, {0: 50, 2000: 950}, {end: 9}, most=limit if most else None, source=PROBE)
    outstanding = reported(depths, disk(TAGS._replace(value=limit)))["devices"]["sda"]["outstanding"]
    assert (
        outstanding["max"],
        outstanding["mode"],
        outstanding["busy_mode"],
        outstanding["held_at"],
        outstanding["limit"],
    ) == (limit,) * 5
    assert outstanding["mean"] == pytest.approx(0.95 * limit, rel=0.07)


def test_at_the_tags_without_a_scheduler_the_report_doesn_t_say_that_more_is_not_sent(reported):
    summary = reported(Depths({0: 10, 4: 990}, {0: 1000}), disk(TAGS, Limit("nr_requests", 4, "queue/nr_requests")))
    outstanding = summary["devices"]["sda"]["outstanding"]
    assert (outstanding["at_limit"], outstanding["limit"], "held_at" in outstanding) == (True, 4, False)
    text = " ".join(render_text(summary.report).split())
    assert "at its limit of 4 for most of the busy time; I/Os that wait above aren't counted here" in text


def test_when_the_most_were_seen(reported):
    low, high = Depths({1: 1000}, {0: 1000}), Depths({1: 900, 9: 100}, {0: 1000})
    summary = reported(low, disk(TAGS), high, low, high)
    outstanding = summary["devices"]["sda"]["outstanding"]
    assert (outstanding["max"], outstanding["max_at"]) == (9, "1970-01-12T13:46:46.000Z")
    assert "max 9 (reached by 1970-01-12T13:46:46.000Z), mostly 1" in " ".join(render_text(summary.report).split())


def test_what_is_queued_now_and_then_doesn_t_read_as_always(reported):
    rarely = Depths({1: 1000}, {0: 997, 1: 3})
    text = " ".join(render_text(reported(rarely, disk(TAGS)).report).split())
    assert "queued above it: any for <1% of the time, max 1, then mostly 1 (100%); mean of all time 0.003" in text


def test_the_most_frequent_depth_is_mostly_there_only_for_half_of_the_time(reported):
    spread = Depths({0: 100, 1: 80, 2: 70, 3: 50}, {0: 700, 1: 110, 2: 100, 3: 90})
    text = " ".join(render_text(reported(spread, disk(TAGS)).report).split())
    assert "most often 1 (40.00% of the busy time)" in text
    assert "then most often 1 (36.67%)" in text
    assert "mostly" not in text


def test_depths_at_issue_are_there_without_a_busy_sample(reported):
    idle = Depths({0: 1000}, {0: 1000}, {1: 30, 3: 10}, source=PROBE)
    text = render_text(reported(idle, disk(TAGS)).report)
    assert "in the driver: none in any sample, up to 3 at issue; limited to 512" in text
    none = render_text(reported(Depths({0: 1000}, {0: 1000}), disk(TAGS)).report)
    assert "in the driver: none was seen; limited to 512" in none


def test_a_depth_at_issue_that_was_never_a_busy_one_has_a_row_or_is_counted(reported):
    few = render_text(reported(Depths({0: 900, 1: 100}, {}, {1: 30, 7: 10}, source=PROBE), disk(TAGS)).report)
    assert re.search(r"^ +7 +0% +25%", few, re.MULTILINE)
    many = Depths({0: 900, 1: 100}, {}, dict.fromkeys(range(1, 21), 5), source=PROBE)
    assert "and 12 more depths" in render_text(reported(many, disk(TAGS)).report)


def test_a_remark_names_the_model(reported):
    limited = disk(Limit("queue_depth", 3, "device/queue_depth"), model="LUN 7")
    text = " ".join(render_text(reported(Depths({3: 1000}, {9: 1000}), limited).report).split())
    assert "sda (LUN 7): at its limit of 3 (device/queue_depth) while more I/Os waited" in text


def test_a_ceiling_of_a_few_seconds_is_reported_in_a_long_recording(reported):
    """The driver's number of I/Os waits: only the rest of the time without I/O proves that both were at once."""
    idle = Depths({0: 1000}, {0: 1000})
    outstanding = reported(Depths({0: 20, 3: 980}, {0: 30, 3: 970}), disk(TAGS), *[idle] * 55)["devices"]["sda"][
        "outstanding"
    ]
    assert (outstanding["held_at"], outstanding["limit"]) == (3, 512)


def test_a_queue_depth_that_fell_meanwhile_is_reported(tmp_path):
    began = [Limit("cmd_per_lun", 30, "host0/cmd_per_lun"), Limit("queue_depth", 30, "device/queue_depth")]
    lowered = [began[0], began[1]._replace(value=17)]
    frames = [frame(n, devices=(disk(*(lowered if n else began)),)) for n in range(3)]
    text = " ".join(render_text(summarised(record(tmp_path / "r", *frames, origin=ORIGIN)).report).split())
    assert "sda: queue_depth 17 is below the 30 that its host begins with (cmd_per_lun), and was 30" in text
