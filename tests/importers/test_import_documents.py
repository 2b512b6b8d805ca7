"""Whole documents of an incident: tables of several tools in prose, each with its lines, and runs kept apart."""

import gzip
import html
from dataclasses import replace

import pytest
from report_json import summarised
from test_imports import EMLXS, GOLDEN, INDENTED, POWERS, SCSI, SLOW, STRIPPED, TASKQ, frames, only, read, table

from latmon.cli.main import run as main
from latmon.importers.frames import _join_waits
from latmon.importers.registry import import_command, read_text
from latmon.importers.values import Counts, ImportedTable, ImportOptions, Limits, Message, moment
from latmon.model.frame import Flow, Frame, Limit, Series
from latmon.recording.reader import open_recording
from latmon.support.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_UNREADABLE, EXIT_USAGE, RecordingError

PROSE = "The log writer waited for its disk, and nobody knew why.\n"
HBA = f"""{PROSE}
Warning: log write elapsed time 836ms, size 2KB

{PROSE}
TIMESTAMP            TOTAL(us)        EMLXS(us)        I/O START(us)    I/O INTR(us)     QUEUE(us)        I/O DONE(us)
[...truncated...]
{EMLXS * 8}[...truncated...]

@[caller,probefunc,stackdepth] = quantize((timestamp - self->ts_started[caller,probefunc,stackdepth])/1000000) ;

unix`swtch+0x165 resume 4
{table(STRIPPED.items())}
{PROSE}
resume(ms)
{table(INDENTED.items())}
kstat -c taskq
{TASKQ}
{PROSE}
prio: 97
"""
SETTINGS = f"""{PROSE}
CAT(vmcore.0/11X)>  sdump 0xffffc100081310c0 sd_lun | egrep 'throttle|queue'
&nbsp; short un_throttle = 3 <=== in iostat, too
&nbsp; short un_min_throttle = 8
&nbsp; timeout_id_t un_reset_throttle_timeid = NULL
&nbsp; unsigned :1 un_f_opt_queueing = 1
{PROSE}
CAT(vmcore.0/10X)> sdump  0xffffffff853ed000 sd_lun | egrep 'throttle|queue'
  short un_throttle = 0x100 <=== of 256
  unsigned int :1 un_f_opt_queueing = 0
# echo '*sd_state::walk softstate | ::print -at "struct sd_lun" un_f_disksort_disabled' | mdb -k
300000ad46b unsigned un_f_disksort_disabled = 0
60000e23f2b unsigned un_f_disksort_disabled = 1
"""


def test_an_incident_of_an_hba_has_all_of_its_tables():
    found = read(HBA)
    all_frames = list(found.frames())
    log, slow, swtch, resume, queue, prio = all_frames
    assert log.outliers[0].total_us == 836_000
    assert len(slow.outliers) == 8
    assert [only(one.histograms) for one in (swtch, resume)] == [Series("emlxs", "other", "resume")] * 2
    assert [only(one.histograms.values()).count for one in (swtch, resume)] == [2342, 15_230]
    assert only(queue.taskqs).priority == 99
    assert "prio: 97" in only(prio.marks).text
    assert found.exit_code == EXIT_DONE
    assert all(not HBA.splitlines()[at - 1][:1].isdigit() for at in found.left)


def test_waits_of_threads_are_taken_with_the_completions_that_waited(tmp_path):
    """resume(ms) and `prio:` name no device: the text's only I/Os that waited for their completion are emlxs'."""
    (tmp_path / "text").write_text(HBA)
    out = tmp_path / "out.latmon.jsonl.gz"
    import_command(tmp_path / "text", out, ImportOptions())
    summary = summarised(open_recording(out))
    (finding,) = summary["findings"]
    assert (finding["id"], finding["device"]) == ("completion-wakeup", "emlxs")
    assert "threads took up to 2.1 s to resume" in finding["summary"]
    assert finding["evidence"]["priority"]["value"] == 97
    assert finding["evidence"]["resume_max"]["samples"] == 15_230 + 2342
    assert "completion-wakeup" not in str(summary["findings_by"])


def test_a_wait_of_threads_without_an_upper_edge_is_that_or_more(tmp_path):
    rows = "".join(f"{label} |@@ {n}\n" for label, n in (("  < 0", 0), ("    0", 900), ("  500", 20), ("  >= 1000", 5)))
    linear = f"           value  ------------- Distribution ------------- count\n{rows}"
    (tmp_path / "text").write_text(HBA.replace(table(INDENTED.items()), linear))
    out = tmp_path / "out.latmon.jsonl.gz"
    import_command(tmp_path / "text", out, ImportOptions())
    (finding,) = summarised(open_recording(out))["findings"]
    assert "threads took 1 s or more to resume" in finding["summary"]
    assert "took 1 s or more in the same text" in finding["evidence"]["resume_max"]["text"]


def test_waits_of_threads_are_no_devices_where_two_could_be_theirs():
    found = read(HBA.replace(EMLXS * 8, EMLXS * 8) + SCSI)
    assert found.built.reports["emlxs"][0].name in ("source", "thread_priority")
    other = replace(next(o for w in found.built.windows for o in w.outliers if o.device == "emlxs"), device="qlc")
    found.built.windows[0].outliers.append(other)
    before = [set(window.tables) for window in found.built.windows]
    _join_waits(found.built)
    assert [set(window.tables) for window in found.built.windows] == before


def test_a_bubble_in_a_table_of_minutes_is_a_finding_without_blocks(tmp_path):
    """Such as quantize() in ms at the end of ten minutes: its window has all I/Os, and no op is named."""
    source, out = tmp_path / "text", tmp_path / "out.latmon.jsonl.gz"
    source.write_text(f"the times are milliseconds:\n6597960853440\n{table(zip(POWERS, SLOW, strict=True))}")
    import_command(source, out, ImportOptions())
    (finding,) = summarised(open_recording(out))["findings"]
    assert (finding["id"], finding["severity"]) == ("bimodal-tail", "warning")
    assert "302 of 378k I/Os take" in finding["summary"]
    assert "in one table" in finding["evidence"]["blocks"]["text"]


def test_what_was_taken_is_named_with_its_lines(tmp_path, capsys):
    (tmp_path / "text").write_text(HBA)
    assert import_command(tmp_path / "text", tmp_path / "out", ImportOptions()) == EXIT_DONE
    text = capsys.readouterr().err
    lines = HBA.splitlines()
    begin = next(n for n, line in enumerate(lines, 1) if line.startswith("TIMESTAMP"))
    assert f"lines {begin} to {begin + 9}: emlxsoverhead" in text
    assert f"line {lines.index('prio: 97') + 1}: sd-settings" in text
    assert "line 3: events" in text
    assert "line 1: not understood: The log writer waited" in text


def test_settings_of_a_driver_are_those_of_its_device():
    found = read(SETTINGS)
    limits = {device.name: device.limits for frame in found.frames() for device in frame.devices}
    assert limits == {
        "device1": (
            Limit("un_throttle", 3, "struct sd_lun, vmcore.0/11X"),
            Limit("un_min_throttle", 8, "struct sd_lun, vmcore.0/11X"),
            Limit("un_f_opt_queueing", 1, "struct sd_lun, vmcore.0/11X"),
        ),
        "device2": (
            Limit("un_throttle", 256, "struct sd_lun, vmcore.0/10X"),
            Limit("un_f_opt_queueing", 0, "struct sd_lun, vmcore.0/10X"),
        ),
        "device3": (Limit("un_f_disksort_disabled", 0, "struct sd_lun"),),
        "device4": (Limit("un_f_disksort_disabled", 1, "struct sd_lun"),),
    }
    assert [limits.where.first for limits in found.found if isinstance(limits, Limits)] == [4, 11, 14, 15]


def test_settings_of_an_adapter_are_not_those_of_the_disk_before_them():
    """Each group of them is of another adapter: a working host's after that of the slow one."""
    ours, theirs = "   ushort_t m_notag = 0xffff\n", "mpt\n   ushort_t m_notag = 0xffc0\n"
    found = read(
        SETTINGS.replace(PROSE, f"{PROSE}{ours}", 1).replace("CAT(vmcore.0/10X)>", f"{theirs}CAT(vmcore.0/10X)>")
    )
    limits = {device.name: (device.kind, device.limits) for frame in found.frames() for device in frame.devices}
    assert limits["mpt1"] == ("other", (Limit("m_notag", 0xFFFF, "struct mpt"),))
    assert limits["mpt2"] == ("other", (Limit("m_notag", 0xFFC0, "struct mpt"),))
    kind, of_disk = limits["device1"]
    assert (kind, len(of_disk)) == ("disk", 3)


def test_settings_alone_are_judged(tmp_path):
    """No I/O is counted in them, so none is idle; what was not measured is in no evidence."""
    (tmp_path / "text").write_text(SETTINGS)
    out = tmp_path / "out.latmon.jsonl.gz"
    assert import_command(tmp_path / "text", out, ImportOptions()) == EXIT_DONE
    (finding,) = summarised(open_recording(out))["findings"]
    assert (finding["id"], finding["device"]) == ("queue-depth-misconfigured", "device1")
    assert [*finding["evidence"]] == ["un_throttle", "un_f_opt_queueing"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            PROSE * 4 + "在58225.458457这个时间点 58225.462423 才调用\n",
            "none of its 5 lines is of a format that is read",
        ),
        (
            PROSE
            + "max_vec write read\n2 8,080 MB/s 15,460 MB/s\n4 5,540 MB/s 13,670 MB/s\n8 4,540 MB/s 13,430 MB/s\n",
            "lines 3 to 5: rates, no latencies",
        ),
        (PROSE + "0us - 100us    12\n100us - 1ms    7\n1ms - 9ms    1\n", "lines 2 to 4: like a distribution of no"),
    ],
)
def test_prose_without_a_table_is_refused_with_the_reason(text, why):
    with pytest.raises(RecordingError, match=why) as refused:
        read(text)
    assert refused.value.exit_code == EXIT_UNREADABLE


def golden(name):
    return (GOLDEN / name).read_text()


ALL = ("bcc_biolatency.txt", "iostat_x.txt", "events_disks.txt", "fio.json", "zpool_w.txt", "prometheus_node.txt",
       "kstat_disks.txt", "esxtop.txt", "sar_d.txt", "smart_log.txt", "bpftrace_stacks.txt")  # fmt: skip


def totals(found):
    """Return I/Os by device, op and stage of all windows."""
    sums = {}
    for frame in found.frames():
        for key, histogram in frame.histograms.items():
            sums[key] = sums.get(key, 0) + histogram.count
        for key, done in frame.kernel.items():
            sums[key] = sums.get(key, 0) + done.count
    return {key: n for key, n in sums.items() if n}


def test_a_ticket_with_all_tools_has_what_each_alone_has():
    asked = ImportOptions(unit="us")
    found = read("".join(f"{PROSE}\n{golden(name).rstrip()}\n\n" for name in ALL), asked)
    alone = {}
    for name in ALL:
        for key, n in totals(read(golden(name), asked)).items():
            alone[key] = alone.get(key, 0) + n
    assert totals(found) == alone
    assert found.exit_code == EXIT_DONE
    assert found.built.windows


def test_a_distribution_that_is_not_known_is_named_beside_all_others():
    unknown = "latency   reads\n0us - 100us    12\n100us - 1ms    7\n1ms - 9ms    1\n"
    found = read(
        "".join(f"{PROSE}\n{golden(name).rstrip()}\n\n" for name in ALL) + PROSE + unknown, ImportOptions(unit="us")
    )
    assert found.exit_code == EXIT_INCOMPLETE
    last = len(found.lines)
    assert only(found.unknown) == f"lines {last - 2} to {last} look like a distribution of no known format: left out"


def test_a_message_is_at_its_time():
    text = golden("iostat_x.txt") + "\n2016-04-07T12:13:04Z x Device naa.6 performance has deteriorated. "
    text += "I/O latency increased from average value of 18 microseconds to 190 microseconds.\n"
    found = read(text)
    assert isinstance(next(message for message in found.found if isinstance(message, Message)), Message)
    assert found.built.windows[-1].wall == 1_460_031_184
    assert frames(text)[0].kernel[Flow("loop0", "read")].count


def timed(name, times):
    """Return tables of biolatency or reports of iostat at these seconds of 2024-03-01 10:00."""
    head = "Device            r/s     w/s     rkB/s     wkB/s   r_await w_await  aqu-sz  %util\n"
    row = "sda              {}.00    0.00     12.00      0.00      0.10    0.00    0.00   0.10\n"
    table = "     usecs               : count     distribution\n         0 -> 1          : {:<8} |***|\n"
    texts = []
    for n in times:
        text = head + row.format(10 + n) if name == "iostat" else "Tracing block device I/O...\n" * (n == times[0])
        date = f"2024-03-01T10:00:{n:02}Z\n" if name == "iostat" else f"10:00:{n:02}\n"
        texts.append(date + text if name == "iostat" else f"{text}\n{date}{table.format(100 + n)}")
    return "\n".join(texts) + "\n"


def test_tables_of_one_incident_are_on_one_time_axis():
    found = read(timed("iostat", [1, 2, 3, 4]) + PROSE + timed("bcc", [2, 3, 4]))
    all_frames = list(found.frames())
    assert [frame.wall - 1_709_287_200 for frame in all_frames] == [2, 3, 4]  # the first report is since the boot
    assert [frame.kernel[Flow("sda", "read")].count for frame in all_frames] == [12, 13, 14]
    assert [only(frame.histograms.values()).count for frame in all_frames] == [102, 103, 104]
    assert [frame.dt_us for frame in all_frames] == [1_000_000] * 3


def test_two_runs_of_one_time_stay_apart():
    all_frames = frames(timed("bcc", [2, 3]) + "2024-03-01T10:00:03Z\n" + timed("bcc", [2, 3]))
    assert [only(frame.histograms.values()).count for frame in all_frames] == [102, 103, 102, 103]


def test_windows_that_would_overlap_are_not_joined_either():
    """The disks of 21:10:40 were counted again where a later time made the order of the text stand."""
    lines = golden("sar_d.txt").splitlines()
    head = lines.pop(7)
    lines.insert(8, head)  # a row comes before the head of its report
    at = next(n for n, line in enumerate(lines) if line.startswith("21:10:41"))
    lines[at] = lines[at].replace("21:10:41", "21:10:01")
    found = read("\n".join(lines) + "\n")
    rows = sum(
        completed.count for counts in found.found if isinstance(counts, Counts) for completed in counts.kernel.values()
    )
    assert sum(one.count for frame in found.frames() for one in frame.kernel.values()) == rows


def pairs(number, us):
    """Return ftrace's lines of `number` completions that waited `us` for their softirq."""
    lines = ["# tracer: nop"]
    for n in range(number):
        begin = 58_225_000_000 + n * 10_000
        for at, event in ((begin, "ib_cq_completion_softirq"), (begin + us + n % 7, "nvme_rdma_send_done")):
            second, part = divmod(at, 1_000_000)
            lines.append(f"          <idle>-0     [003] d.h.  {second}.{part:06}: {event} <-x")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("hz", "ids"), [(250, ["tick-quantum"]), (1000, []), (None, [])])
def test_pairs_just_below_a_tick_are_a_finding_where_the_tick_is_known(tmp_path, hz, ids):
    source, out = tmp_path / "trace.txt", tmp_path / "a.latmon.jsonl.gz"
    source.write_text(pairs(600, 3966))
    asked = ImportOptions(events=("ib_cq_completion_softirq", "nvme_rdma_send_done"), hz=hz)
    assert import_command(source, out, asked) == EXIT_DONE
    assert [finding["id"] for finding in summarised(open_recording(out))["findings"]] == ids


def test_pairs_that_are_a_wait_for_a_softirq_are_judged_as_one(tmp_path):
    source, out = tmp_path / "trace.txt", tmp_path / "a.latmon.jsonl.gz"
    source.write_text(pairs(600, 3966))
    asked = ImportOptions(events=("ib_cq_completion_softirq", "nvme_rdma_send_done"), hz=250, stage="softirq")
    import_command(source, out, asked)
    summary = summarised(open_recording(out))
    (finding,) = summary["findings"]
    assert finding["id"] == "tick-quantum"
    assert "100% of I/Os wait just below one tick of 1/250 s (3.97 ms) for the softirq; which one" in finding["summary"]
    assert "tick-quantum" not in str(summary["findings_by"])


@pytest.mark.parametrize("text", ["0", "x", "10001", "²"])
def test_a_wrong_number_of_ticks_is_refused(tmp_path, capsys, text):
    (tmp_path / "a").write_text(pairs(1, 1))
    assert main(["import", str(tmp_path / "a"), "-o", str(tmp_path / "b"), "--hz", text]) == EXIT_USAGE
    assert "is not a number of ticks per second such as 250" in " ".join(capsys.readouterr().err.split())


def test_what_comes_before_the_first_time_lies_just_before_it(tmp_path):
    """In 1970 it would make a gap of decades."""
    (tmp_path / "text").write_text(HBA)
    out = tmp_path / "out.latmon.jsonl.gz"
    assert import_command(tmp_path / "text", out, ImportOptions()) == EXIT_DONE
    assert not summarised(open_recording(out))["gaps"]


def by_line(change):
    return lambda text: "\n".join(map(change, text.split("\n")))


DECORATED = {
    "the ends of lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "colours": by_line(lambda line: f"\x1b[0;32m{line}\x1b[0m\x1b[K"),
    "colours without their escape characters": by_line(lambda line: f"[1;32m{line}[0m"),
    "quoted in a mail": by_line(lambda line: f"> {line}"),
    "quoted twice": by_line(lambda line: f">> {line}"),
    "a Markdown fence": lambda text: f"As seen:\n```text\n{text}\n```\nand so on.\n",
    "a Markdown block": lambda text: f"As seen:\n\n{by_line(lambda line: f'    {line}')(text)}\n\nand so on.\n",
    "HTML": lambda text: f"<pre>\n{html.escape(text)}</pre>",
    "blanks of HTML": lambda text: text.replace(" ", "&nbsp;").replace("\n", "<br/>\n"),
    "tabs as blanks": lambda text: text.expandtabs(8),
    "blanks at the ends": by_line(lambda line: f"{line}   "),
}
ENCODED = {
    "UTF-8 with a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-16 of the other order": lambda text: text.encode("utf-16-be"),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip in two parts": lambda text: gzip.compress(text.encode()[:90]) + gzip.compress(text.encode()[90:]),
    "NULs at the end": lambda text: text.encode() + b"\0" * 100,
}
CARRIED = (
    *("bcc_biolatency.txt", "bcc_ext4dist.txt", "bpftrace.txt", "btt.txt", "esxtop.txt", "events_files.txt"),
    *("fio_normal.txt", "iostat_x.txt", "iostat_y.txt", "kstat_disks.txt", "prometheus_node.txt", "smart_log.txt"),
)
"""One golden of most formats."""


def sums_of(raw: bytes) -> tuple[int, int, int]:
    all_frames = list(read_text(raw, "text", ImportOptions(unit="us")).frames())
    timed = sum(h.count for frame in all_frames for h in frame.histograms.values())
    return timed, sum(done.count for frame in all_frames for done in frame.kernel.values()), len(all_frames)


@pytest.mark.parametrize("name", CARRIED)
def test_what_a_mail_or_a_ticket_adds_changes_no_number(name):
    text = (GOLDEN / name).read_text()
    sums = sums_of(text.encode())
    assert sums[0] + sums[1] > 0
    for how, change in DECORATED.items():
        assert sums_of(change(text).encode()) == sums, how
    for how, encode in ENCODED.items():
        assert sums_of(encode(text)) == sums, how


def test_a_bucket_that_begins_like_a_quote_or_a_colour_stays_one():
    rows = "value  ------------- Distribution ------------- count\n< 1 | 0\n1 |@@ 5\n2 |@@ 4\n>= 3 |@ 2\n"
    (imported_table,) = (
        thing for thing in read(rows, ImportOptions(unit="ms")).found if isinstance(thing, ImportedTable)
    )
    assert imported_table.count == 11
    bpftrace = "@us: \n[512, 1K)  5 |@|\n[1K, 2K)  7 |@|\n"
    assert only(only(frames(bpftrace)).histograms.values()).count == 12


def test_lines_of_a_quoted_text_keep_their_numbers():
    found = read(f"{PROSE}> a mail\n> {(GOLDEN / 'iostat_y.txt').read_text()}".replace("\n", "\n> "))
    assert found.spans[0][0] >= 3
    assert found.lines[1] == "a mail"


@pytest.mark.parametrize(
    "line",
    [
        "Fri Nov 27 12:01:00 UTC 2026",
        "Fri Nov 27 12:01:00 PM UTC 2026",
        "Fri 27 Nov 2026 12:01:00 PM UTC",
        "Fri, 27 Nov 2026 13:01:00 +0100",
        "zzz ***Fri Nov 27 12:01:00 UTC 2026",
        "zzz ***Fri Nov 27 12:01:00 PM UTC 2026",
        "zzz *** 2026-11-27 12:01:00",
        "1795780860",
    ],
)
def test_a_line_of_date_or_of_oswatcher_is_a_time(line):
    assert moment(line) == 1795780860.0


@pytest.mark.parametrize("prose", ["", PROSE])
def test_times_and_names_above_logs_of_a_drive_are_taken_with_them(prose):
    text = (GOLDEN / "smart_log.txt").read_text()
    for minute in (0, 1):
        text = text.replace(f"2024-03-01 10:0{minute}:00", f"zzz ***Fri Nov 27 12:0{minute}:00 UTC 2026")
    found = read(prose + text)
    frame = only(list(found.frames()))
    assert (frame.wall, frame.dt_us) == (1795780860.0, 60_000_000)
    assert list(found.left) == ([1] if prose else [])


def test_a_time_above_the_logs_of_several_drives_is_that_of_each():
    log = "Smart Log for NVME device:{} namespace-id:ffffffff\ncritical_warning : 0\n" + "".join(
        f"{name} : {{}}\n"
        for name in ("Data Units Read", "Data Units Written", "host_read_commands", "host_write_commands")
    )
    text = ""
    for minute, count in enumerate((10, 40)):
        text += f"zzz ***Fri Nov 27 12:0{minute}:00 UTC 2026\n"
        text += "\n".join(log.format(name, *[count] * 4) for name in ("nvme0n1", "nvme1n1"))
    frame = only(frames(text))
    assert (frame.wall, frame.dt_us) == (1795780860.0, 60_000_000)
    assert {flow.device: done.count for flow, done in frame.kernel.items()} == {"nvme0n1": 30, "nvme1n1": 30}


@pytest.mark.parametrize("first_line", [0, 1])
def test_reports_below_a_time_of_oswatcher_follow_it(first_line):
    """The time is above the first report, which is of the time since the boot, and the reports are 1 s apart.

    OSWatcher may leave out the header, so the next time begins the next run.
    """
    text = (GOLDEN / "iostat_x.txt").read_text().split("\n", first_line)[-1]
    times = ("zzz ***Fri Nov 27 12:00:00 UTC 2026\n", "\nzzz ***Fri Nov 27 12:00:30 UTC 2026\n")
    all_frames = frames("".join(time + text for time in times))
    assert [round(frame.wall - 1795780800) for frame in all_frames] == [1, 2, 3, 31, 32, 33]


def test_two_incidents_in_one_file_are_named_and_not_added_up(tmp_path, capsys):
    text = "2024-03-01 10:00:00\n" + (GOLDEN / "iostat_y.txt").read_text()
    (tmp_path / "text").write_text(f"{text}{PROSE}{text.replace('2024-03-01', '2024-11-02')}")
    import_command(tmp_path / "text", tmp_path / "out", ImportOptions())
    all_frames = [frame for frame in open_recording(tmp_path / "out") if isinstance(frame, Frame)]
    assert len(all_frames) == 2 * len(frames(text))
    assert all(frame.dt_us < 2_000_000 for frame in all_frames)
    shown = capsys.readouterr().err
    assert "2 incidents, because there is nothing between 2024-03-01T10:00Z and 2024-11-02T09:59Z" in shown


@pytest.mark.parametrize("rows", ["", "latency : count\n 1ms - 2ms : 20\n 2ms - 4ms : 30\n 4ms - 8ms : 3\n"])
def test_the_last_lines_state_what_exit_code_4_means_and_how_to_read_the_recording(tmp_path, capsys, rows):
    (tmp_path / "text").write_text(f"{(GOLDEN / 'bcc_ext4dist.txt').read_text()}\n{rows}")
    code = import_command(tmp_path / "text", tmp_path / "out", ImportOptions())
    *_, before, last = capsys.readouterr().err.splitlines()
    assert last == f"latmon: to read it: latmon report {tmp_path / 'out'}"
    assert ("exit code 4: a part of the text is missing" in before) is bool(rows)
    assert code == (EXIT_INCOMPLETE if rows else EXIT_DONE)
