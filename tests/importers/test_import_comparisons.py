"""Comparisons that the authors of a text draw are drawn: priorities of threads, settings of two dumps."""

import pytest

from latmon.importers.registry import import_command
from latmon.importers.values import ImportOptions
from latmon.recording.reader import open_recording
from latmon.report.reading import summarise
from latmon.report.text import render_text

HEADS = ("TIMESTAMP", "TOTAL(us)", "EMLXS(us)", "I/O START(us)", "I/O INTR(us)", "QUEUE(us)", "I/O DONE(us)")
ROW = ("2016 Apr  7 12:13:04", "1238999", "1238914", "3", "6", "1238738", "165")
EMLXS = "\n".join("".join(f"{word:<21}" for word in words) for words in (HEADS, *[ROW] * 8))
TASKQ = """module: unix                            instance: 0
name:   {name}                  class:    taskq
crtime                          1453.363526517
executed                        0
maxtasks                        8
nactive                         8
nalloc                          8
pid                             0
priority                        99
snaptime                        1199076.69870013
tasks                           8
threads                         8
totaltime                       0
"""
DUMPS = """CAT(vmcore.0/11X)>  sdump 0xffffc100081310c0 sd_lun | egrep 'throttle'
  short un_throttle = 3
  short un_min_throttle = 8
CAT(vmcore.0/10X)> sdump  0xffffffff853ed000 sd_lun | egrep 'throttle'
  short un_throttle = 0x100
  short un_min_throttle = 8
"""


@pytest.fixture
def report(tmp_path):
    def make(text):
        source, out = tmp_path / "post.txt", tmp_path / "x.latmon.jsonl.gz"
        source.write_text(text)
        import_command(source, out, ImportOptions())
        return summarise(open_recording(out))

    return make


def test_a_priority_is_beside_that_of_another_driver_s_completion_threads(report):
    given_report = report(
        f"{EMLXS}\nqlc has task queues:\n\n{TASKQ.format(name='qlc_0_comp_thd')}\nemlxs has not:\n\nprio: 97\n"
    )
    (finding,) = (finding for finding in given_report.evaluated.findings if finding.id == "completion-wakeup")
    assert (finding.evidence["priority"].value, finding.evidence["other_priority"].value) == (97, 99)
    assert "qlc_0_comp_thd, kstat -c taskq in the same text" in finding.evidence["other_priority"].text


def test_a_queue_that_completes_no_io_is_no_comparison(report):
    given_report = report(f"{EMLXS}\nother queues:\n\n{TASKQ.format(name='zio_write_issue')}\nand:\n\nprio: 97\n")
    (finding,) = (finding for finding in given_report.evaluated.findings if finding.id == "completion-wakeup")
    assert "other_priority" not in finding.evidence


def test_settings_of_two_dumps_are_side_by_side(report):
    given_report = report(DUMPS)
    (differs,) = given_report.limits_differ
    assert differs.name == "un_throttle"
    assert sorted(differs.values.values()) == [3, 256]
    text = " ".join(render_text(given_report).split())
    assert "un_throttle: device1 (vmcore.0/11X) 3, device2 (vmcore.0/10X) 256" in text
    assert "un_min_throttle: device1" not in text, "they have it in common"
