"""Texts as they arrive: behind times, prompts and encodings, with dates of other locales. Totals are awk's.

Files of tests/golden/carried are output of sysstat 12.6 behind ts of moreutils 0.67 and gawk 5.2, and in the locales
of glibc 2.36 at 2022-07-04 23:59:58 (faketime).
"""

import re
import subprocess
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_imports import GOLDEN, frames, read, remarks

from latmon.importers import mail
from latmon.importers.values import ImportOptions
from latmon.model.frame import Completed, Flow
from latmon.support.errors import EXIT_DONE, LatmonError, RecordingError

CARRIED = Path(__file__).parents[1] / "golden" / "carried"
JULY = datetime(2022, 7, 4, 23, 59, 59, tzinfo=UTC).timestamp()
ROW = r"""
function number(cell) { sub(",", ".", cell); return cell + 0 }
$NAME ~ /^\[?[0-9:]*\]?vda$/ {
    if (report++) for (n = 1; n <= 19; n += 6) ios += int(number($(NAME + n)) * S + .5)
}
END { print ios }
"""
"""Reads, writes, discards and flushes of iostat -x in all reports but the first, of S seconds each."""


def awk(program, text, **variables):
    options = [word for name, value in variables.items() for word in ("-v", f"{name}={value}")]
    done = subprocess.run(["awk", *options, program], input=text, capture_output=True, text=True, check=True)
    return int(done.stdout)


def ios(every):
    return sum(done.count for frame in every for done in frame.kernel.values())


def timed(every):
    return sum(histogram.count for frame in every for histogram in frame.histograms.values())


@pytest.mark.parametrize(
    ("name", "column", "seconds", "first"),
    [
        ("iostat_ts.txt", 4, 1, "2026-11-29 00:01:32"),
        ("iostat_ts_epoch.txt", 2, 1, ""),
        ("iostat_kubectl.txt", 2, 2, ""),
        ("iostat_journald.txt", 6, 2, "2026-11-29 00:01:33"),
    ],
)
def test_a_time_before_each_line_is_the_time_of_its_report(name, column, seconds, first):
    text = (CARRIED / name).read_text()
    found = read(text)
    all_frames = list(found.frames())
    assert {name for frame in all_frames for name in (flow.device for flow in frame.kernel)} == {"vda"}
    assert [frame.dt_us for frame in all_frames] == [seconds * 1_000_000] * len(all_frames)
    assert ios(all_frames) == awk(ROW, text, NAME=column, S=seconds) > 0
    if first:
        assert all_frames[0].wall == datetime.fromisoformat(f"{first}+00:00").timestamp()
    assert found.exit_code == EXIT_DONE
    assert not found.left


@pytest.mark.parametrize("form", ["{},", "{};", "{}|", "{}-", "{}>", "{}=", "{} - ", "{} | ", "{}, ", "<{}>", "{{{}}}"])
@pytest.mark.parametrize("wall", ["10:00:1{}", "2026-03-01T10:00:1{}", "2026-03-01 10:00:1{}"])
def test_a_sign_behind_the_time_is_no_part_of_a_device(form, wall):
    reports = (
        "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await "
        "wareq-sz  aqu-sz  %util\n"
        "vda  10.00 100.00 0.00 0.00 1.00 10.00 5.00 50.00 0.00 0.00 2.00 10.00 0.02 1.00\n"
        "\n"
    )
    lines = [f"{form.format(wall.format(second))}{line}\n" for second in (2, 4, 6) for line in reports.split("\n")[:-1]]
    all_frames = frames("".join(lines))
    assert [frame.wall % 60 for frame in all_frames] == [12, 14, 16]
    assert [frame.kernel for frame in all_frames] == [all_frames[0].kernel] * 3
    counts = {flow: done.count for flow, done in all_frames[0].kernel.items()}
    assert counts == {Flow("vda", "read"): 20, Flow("vda", "write"): 10}


@pytest.mark.parametrize("sign", [",", ";", "|", "-", "]"])
def test_a_sign_behind_the_time_of_rows_that_awk_chose_is_no_part_of_a_device(sign):
    head = "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s  aqu-sz  %util\n"
    row = "vda  10.00 100.00 0.00 0.00 1.00 10.00 5.00 50.00 0.02 1.00\n"
    begin = "[" if sign == "]" else ""
    all_frames = frames(head + "".join(f"{begin}18:01:1{second}{sign}{row}" for second in (2, 4, 6)))
    assert [frame.wall % 60 for frame in all_frames] == [12, 14, 16]
    counts = [{flow: done.count for flow, done in frame.kernel.items()} for frame in all_frames]
    assert counts == [{Flow("vda", "read"): 20, Flow("vda", "write"): 10}] * 3


def test_a_time_in_brackets_without_a_blank_is_no_part_of_a_device():
    text = (CARRIED / "iostat_awk.txt").read_text()
    all_frames = frames(text)
    assert ios(all_frames) == awk(f"BEGIN {{ report = 1 }} {ROW}", text, NAME=1, S=1)
    assert [frame.wall % 60 for frame in all_frames] == [32, 33, 34]


def test_rows_that_awk_chose_have_times_and_their_head_has_none():
    head, rows = "Device r/s w/s r_await w_await\n", (("18:01:12", 10), ("18:01:14", 40), ("18:01:16", 25))
    lines = (f"[{clock}]{name} {rate}.00 0.00 1.00 0.00\n" for clock, rate in rows for name in ("sda", "sdb"))
    all_frames = frames(head + "".join(lines), ImportOptions(first_report="keep"))
    assert [frame.wall % 86_400 for frame in all_frames] == [64_872, 64_874, 64_876]
    assert [frame.kernel[Flow("sdb", "read")].count for frame in all_frames] == [20, 80, 50]
    assert {frame.dt_us for frame in all_frames} == {2_000_000}


def test_rows_of_a_list_of_ios_keep_their_head_above_many_times():
    head = "2022-07-04T18:01:10.5Z TIME(s)     COMM  PID  DISK    T SECTOR     BYTES  LAT(ms)\n"
    rows = (f"2022-07-04T18:01:{10 + n}.5Z {n}.000000 dd 71 sda W 20{n}48 4096 {n}.50\n" for n in range(9))
    all_frames = frames(head + "".join(rows))
    assert timed(all_frames) == 9
    assert [histogram.count for frame in all_frames for histogram in frame.histograms.values()] == [1] * 9


def test_plain_reports_behind_times_of_day_are_not_those_of_sar():
    text = (CARRIED / "iostat_ts_clock.txt").read_text()
    all_frames = frames(text)
    rows = '$2 == "vda" && report++ { ios += $3 } END { print int(ios + .5) }'
    assert ios(all_frames) == awk(rows, text)
    assert all_frames[0].wall == datetime(2026, 11, 29, 0, 1, 32, tzinfo=UTC).timestamp()  # the date of the header


STAMPS = {
    "strftime of awk": "[%H:%M:%S]",
    "a date in brackets": "[%Y-%m-%d %H:%M:%S] ",
    "ts": "%b %d %H:%M:%S ",
    "ts of the time": "%H:%M:%S ",
    "ts of the epoch": "%s.%f ",
    "kubectl logs --timestamps": "%Y-%m-%dT%H:%M:%S.%f000Z ",
    "the log of a container": "%Y-%m-%dT%H:%M:%S.%f000Z stdout F ",
    "journalctl": "%b %d %H:%M:%S host7 run.sh[12]: ",
    "journalctl -o short-full": "%a %Y-%m-%d %H:%M:%S UTC host7 run.service[12]: ",
    "journalctl -o short-iso": "%Y-%m-%dT%H:%M:%S+0000 host7 run.sh[12]: ",
    "logger": "%b %d %H:%M:%S host7 root: ",
    "rsyslog": "%Y-%m-%dT%H:%M:%S.%f+00:00 host7 run.sh[12]: ",
}
OUTPUTS = (
    *("bcc_biolatency.txt", "bcc_ext4dist.txt", "bpftrace.txt", "btt.txt", "events_files.txt", "events_iosnoop.txt"),
    *("fio_normal.txt", "iostat_plain.json", "iostat_plain.txt", "iostat_s.txt", "iostat_x.txt", "iostat_y.txt"),
    *("kstat_disks.txt", "prometheus_node.txt", "sar_d.txt", "sar_dp.txt", "smart_log.txt", "smart_log_text.txt"),
    *("trace_cmd.txt", "zpool_lv.txt", "zpool_w.txt", "iolatency.txt"),
)


def stamped(text, form):
    """Return lines with times 0.1 ms apart, as one output of a tool has them."""
    lines = []
    for number, line in enumerate(text.split("\n")):
        when = datetime.fromtimestamp(1_656_950_472.1 + number / 10_000, UTC)
        lines.append(f"{when.strftime(form)}{line}".rstrip())
    return "\n".join(lines)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_time_before_each_line_changes_no_number_of_any_format(name):
    text = (GOLDEN / name).read_text()
    asked = ImportOptions(unit="us")
    whole_frames = frames(text, asked)
    assert ios(whole_frames) + timed(whole_frames) > 0
    for how, form in STAMPS.items():
        all_frames = frames(stamped(text, form), asked)
        assert (ios(all_frames), timed(all_frames), len(all_frames)) == (
            ios(whole_frames),
            timed(whole_frames),
            len(whole_frames),
        ), how


@pytest.mark.parametrize(
    "text",
    [
        "[18:01:12] <ann> the disk was slow\n[18:01:14] <bob> 10 s\n[18:01:20] <ann> and now?\n",
        "Jul 04 18:01:12 host kernel: nvme0: I/O 12 QID 3 timeout\nJul 04 18:01:13 host kernel: reset\n",
        "2022-07-04T18:01:12Z GET /a 200 5\n2022-07-04T18:01:13Z GET /b 200 7\n",
    ],
)
def test_a_log_beside_a_table_gives_it_no_time(text):
    table = (GOLDEN / "iostat_y.txt").read_text()
    alone, beside = read(table), read(f"{text}\n{table}")
    assert [frame.kernel for frame in beside.frames()] == [frame.kernel for frame in alone.frames()]
    assert [frame.wall for frame in beside.frames()] == [frame.wall for frame in alone.frames()]
    assert {*range(1, text.count("\n") + 1)} <= {*beside.left}


def test_lines_behind_times_are_named_by_their_numbers_in_the_file():
    text = stamped((GOLDEN / "iostat_x.txt").read_text(), "%Y-%m-%dT%H:%M:%SZ ") + "\nprose 1\n"
    found = read(text)
    assert text.split("\n")[found.left[-1] - 1] == "prose 1" == found.lines[found.left[-1] - 1]
    row = next(at for at, line in enumerate(text.split("\n"), 1) if "loop0" in line or "vda" in line)
    damaged = read(
        "\n".join(re.sub(r"\.\d\d", ".x", line) if at == row else line for at, line in enumerate(text.split("\n"), 1))
    )
    assert row in {remark.where.first for remark in remarks(damaged) if "can't be read" in remark.text}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *(("en_GB", "from day to day"), ("en_IN", "from day to day"), ("fr_FR", "commas"), ("es_ES", "commas")),
        *(("it_IT", "commas"), ("pt_PT", "commas"), ("de_DE", ""), ("nl_NL", ""), ("en_US", "")),
    ],
)
def test_dates_of_other_locales_are_the_days_that_sysstat_printed(name, reason):
    text = (CARRIED / f"iostat_{name}.txt").read_text()
    found = read(text)
    all_frames = list(found.frames())
    assert [frame.wall for frame in all_frames] == [JULY, JULY + 1]
    assert ios(all_frames) == awk(ROW, text, NAME=1, S=1) > 0
    assert reason in " ".join(remark.text for remark in remarks(found))


DATED = """Linux 5.13.0 (h) \t{0}/22 \t_x86_64_\t(4 CPU)

{0}/22 10:48:10
Device r/s w/s r_await w_await
sda 10.00 0.00 1.00 0.00

{0}/22 10:48:12
Device r/s w/s r_await w_await
sda 20.00 0.00 1.00 0.00
"""


@pytest.mark.parametrize(
    ("date", "start", "day", "words"),
    [
        ("13/07", None, "2022-07-13", "a number above 12"),
        ("07/13", None, "2022-07-13", ""),
        ("04/07", None, "2022-04-07", "--start 2022-07-04"),
        ("04/07", "2022-07-01", "2022-07-04", "--start"),
        ("04/07", "2022-04-07", "2022-04-07", ""),
        ("04/04", None, "2022-04-04", ""),
    ],
)
def test_a_date_that_may_be_two_days_is_named_unless_another_shows_the_order(date, start, day, words):
    begin = None if start is None else datetime.fromisoformat(f"{start}T00:00:00+00:00").timestamp()
    found = read(DATED.format(date), ImportOptions(start=begin))
    (frame,) = found.frames()
    assert frame.wall == datetime.fromisoformat(f"{day}T10:48:12+00:00").timestamp()
    texts = " ".join(remark.text for remark in remarks(found))
    assert words in texts
    assert ("may be" in texts) is (date == "04/07" and start is None)


def test_one_date_above_12_decides_for_the_whole_log():
    days = [DATED.format(f"{day:02}/07") for day in (11, 12, 13)]
    walls = [frame.wall for frame in frames("\n".join(days))]
    assert [datetime.fromtimestamp(wall, UTC).strftime("%m-%d") for wall in walls] == ["07-11", "07-12", "07-13"]
    first = frames("\n".join(DATED.format(f"{day:02}/07") for day in (1, 2, 3)))
    assert [datetime.fromtimestamp(frame.wall, UTC).month for frame in first] == [7, 7, 7]


ZPOOL = """              capacity  operations  bandwidth   total_wait     disk_wait    syncq_wait    asyncq_wait  scrub
pool        alloc   free   read  write   read  write   read  write   read  write   read  write   read  write   wait
----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----
tank        1,09T   723G     61    100  1,50M  2,50M  3,5ms    5ms    2ms    4ms  1,5us    1us      -  500us      -
----------  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----  -----
tank        1,09T   723G     10      0  1,50M      0  3,5ms      -    2ms      -  1,5us      -      -      -      -
"""
PROMPTS = (
    *("\u276f ", "\u279c  ~ ", "\u279c  data git:(main) \u2717 ", "\u03bb ", "  \u03bb  sudo ", "~ \u00bb "),
    *(
        "\u2570\u2500\u25cb ",
        "\u2570\u2500\u276f ",
        "[I] ann@nas ~> LC_ALL=C ",
        "nas% doas ",
        "18:01:12 ann@nas:~$ time ",
    ),
    *("\ue0b0 ~ \ue0b0 ", "PS C:\\> ", "[root@nas ~]# ", "\u25b6 ", "bash-5.2$ sudo -n /sbin/", "ann@nas \u2192 sudo "),
)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("behind", ["", " | tee out.txt", " > out 2>&1", "              \u2714  18:01:12"])
def test_a_command_is_read_behind_any_prompt(prompt, behind):
    all_frames = frames(f"~/lab\n{prompt}zpool iostat -vly tank 5 2{behind}\n{ZPOOL}")
    assert [frame.dt_us for frame in all_frames] == [5_000_000, 5_000_000]
    assert [frame.kernel[Flow("tank", "read")].count for frame in all_frames] == [305, 50]
    assert all_frames[0].kernel[Flow("tank", "read")] == Completed(305, 7_864_320, 1_067_500, 457_500)
    rows = "/^tank/ { ios += 5 * ($4 + $5) } END { print ios }"
    assert ios(all_frames) == awk(rows, ZPOOL)


@pytest.mark.parametrize("prompt", ["\u276f ", "\u279c  ~ ", "$ "])
def test_other_tools_take_their_command_behind_any_prompt(prompt):
    iostat = f"{prompt}iostat -dxy vda 2 2\nDevice r/s w/s r_await w_await\nvda 10.00 0.00 1.00 0.00\n"
    (frame,) = frames(iostat)
    assert (frame.dt_us, ios([frame])) == (2_000_000, 20)
    rows = "     usecs               : count     distribution\n         0 -> 1          : 5        |****|\n"
    (frame,) = frames(f"{prompt}sudo xfsdist-bpfcc 5 1\n{rows}")
    assert {series.device for series in frame.histograms} == {"xfs"}


@pytest.mark.parametrize(
    "prose",
    [
        "I think that zpool iostat -vly tank 5 shows it",
        "Here\u2019s what I ran, zpool iostat -vly tank 5",
        "at 50 % load we started zpool iostat. It printed 5",
    ],
)
def test_a_command_in_prose_is_none(prose):
    all_frames = frames(f"{prose}\n{ZPOOL}", ImportOptions(first_report="keep"))
    assert [frame.dt_us for frame in all_frames] == [1_000_000, 1_000_000]


@pytest.mark.parametrize("prompt", ["# ", "\u276f ", "", "root@nas:~# sudo "])
def test_a_head_on_the_line_of_its_command_is_read(prompt):
    all_frames = frames(f"{prompt}zpool iostat -vly tank 5{ZPOOL}")
    assert [frame.dt_us for frame in all_frames] == [5_000_000, 5_000_000]
    text = (GOLDEN / "iostat_y.txt").read_text()
    body = text[text.index("Linux ") :]
    joined = read(f"{prompt}iostat -xy 1{body}")
    assert ios(joined.frames()) == ios(frames(f"$ iostat -xy 1\n{body}"))
    assert not joined.left
    rows = "Device r/s w/s r_await w_await\nsda 10.00 0.00 1.00 0.00\n"
    assert ios(frames(f"{prompt}iostat -dxy 2 {rows}")) == 20


def letter(text, encoding, html=False):
    """Return a mail with a text, as Python's email package encodes it."""
    message = EmailMessage()
    message["Subject"] = "slow = late"
    message["From"] = "ann@example.org"
    message.set_content(f"As seen:\n\n{text}", cte=encoding)
    if html:
        message.add_alternative(f"<pre>{text}</pre>", subtype="html", cte=encoding)
    return message.as_string()


MAILS = {
    "quoted-printable": lambda text: letter(text, "quoted-printable"),
    "base64": lambda text: letter(text, "base64"),
    "text and HTML": lambda text: letter(text, "quoted-printable", html=True),
    "the body without its head": lambda text: letter(text, "quoted-printable").partition("\n\n")[2],
    "an mbox": lambda text: f"From a\n{letter('a = b', '7bit')}\nFrom b\n{letter(text, 'quoted-printable')}\nFrom c\n",
    "two mails one after the other": lambda text: letter("x" * 90, "quoted-printable") + letter(text, "base64"),
    "lines of a network": lambda text: letter(text, "quoted-printable").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("how", MAILS)
@pytest.mark.parametrize(
    "name", ["bcc_biolatency.txt", "bpftrace.txt", "iostat_x.txt", "sar_d.txt", "zpool_lv.txt", "trace_cmd.txt"]
)
def test_a_raw_mail_has_the_numbers_of_its_text(how, name):
    text = (GOLDEN / name).read_text()
    asked = ImportOptions(unit="us")
    whole_frames, all_frames = frames(text, asked), frames(MAILS[how](text), asked)
    assert (ios(all_frames), timed(all_frames), len(all_frames)) == (
        ios(whole_frames),
        timed(whole_frames),
        len(whole_frames),
    )
    assert ios(whole_frames) + timed(whole_frames) > 0


def test_lines_of_a_mail_are_named_by_their_numbers_in_the_file():
    text = letter((GOLDEN / "iostat_x.txt").read_text() + "\nprose at 1\n", "quoted-printable")
    found = read(text)
    assert found.lines[found.left[-1] - 1] == text.split("\n")[found.left[-1] - 1] == "prose at 1"


@pytest.mark.parametrize(
    "text", ["fio --iodepth=32 --bs=4k\n", "a = b\n" * 9, "=" * 76 + "\nx\n", "rate=20\nrate=21\n", "d=3D and a=b\n"]
)
def test_an_equals_sign_is_no_encoding(text):
    assert mail.decoded(text.encode()) == (text.encode(), [])


@given(st.text(alphabet="=3DA \n-:Fromxy\r", max_size=300))
def test_any_text_is_decoded_to_numbered_lines(text):
    raw, numbers = mail.decoded(f"Content-Transfer-Encoding: quoted-printable\n\n{text}".encode())
    assert not numbers or len(numbers) == raw.count(b"\n") + 1
    assert numbers == sorted(numbers)


@given(st.lists(st.sampled_from([*STAMPS.values(), "", "x"])), st.sampled_from(OUTPUTS))
def test_any_mixture_of_stamps_is_read_or_refused_in_a_sentence(forms, name):
    lines = (GOLDEN / name).read_text().split("\n")[:60]
    when = datetime(2022, 7, 4, tzinfo=UTC)
    text = "\n".join(when.strftime(forms[at % len(forms)]) + line if forms else line for at, line in enumerate(lines))
    try:
        found = read(text, ImportOptions(unit="us"))
    except LatmonError:
        return
    assert all(1 <= at <= len(found.lines) for at in found.left)


def test_a_restart_of_the_host_in_sar_begins_another_run():
    text = (CARRIED / "sar_restart.txt").read_text()
    rows = '$2 == "vda" && $1 != "Average:" { ios += int($3 + .5) } END { print ios }'
    compact = re.sub(r"Average:.*\n", "", text).replace("\n\n00:01:33     LINUX", "\n00:01:33     LINUX")
    for shown in (text, compact, f"{text}00:01:36  COM a comment of 5 words\n", compact.replace("\t(2 CPU)", "")):
        found = read(shown)
        all_frames = list(found.frames())
        assert ios(all_frames) == awk(rows, text)
        assert [frame.dt_us for frame in all_frames] == [1_000_000] * 4
        assert [bool(frame.marks) for frame in all_frames] == [False, False, True, False]
        assert (found.exit_code, found.left) == (EXIT_DONE, [])


@pytest.mark.parametrize(
    ("end", "windows", "words"),
    [
        ("\n", 3, "taken as idle"),
        ("\n$ exit\n", 3, "taken as idle"),
        ("", 2, "idle or cut off"),
    ],
)
def test_an_empty_report_at_the_end_is_a_window_unless_the_text_may_be_cut_off(end, windows, words):
    head, row = "Device r/s w/s r_await w_await\n", "sda 10.00 0.00 1.00 0.00\n\n"
    found = read(f"$ iostat -dxyz 2 3\n{head}{row}{head}{row}{head}{end}")
    all_frames = list(found.frames())
    assert len(all_frames) == windows
    assert ios(all_frames) == 40
    assert words in " ".join(remark.text for remark in remarks(found))


HEAD = "Device r/s w/s r_await w_await\n"
REFUSED = {
    "a head without rows": (f"prose\n{HEAD}", "line 2 is of iostat, but no row of a disk is below its head"),
    "idle reports only": (f"{HEAD}\n{HEAD}\n", "iostat -z prints none of an idle disk"),
    "the CPU alone": ("avg-cpu: %user %nice\n 1.0 2.0\n", "line 1: iostat's shares of the CPU.* run iostat -x"),
    "another table of sar": (
        "\n10:00:01 AM CPU %user %nice\n",
        "line 2: a table of sar that is not of devices: run sar -d",
    ),
    "rows of sar alone": ("10:00:01 sda" + " 1.00" * 7 + "\n", "line 1: a row of sar .* copy the head, too"),
    "rows of sar below a head without a time": (
        (
            "          DEV       tps  rd_sec/s  wr_sec/s  avgrq-sz  avgqu-sz     await     svctm     %util\n"
            "12:10:01 PM    dev8-0     10.00     80.00    160.00     24.00      0.03      3.00      1.00      1.00\n"
        ),
        "line 2: rows of sar without a head that has its time: 1, left out",
    ),
    "a head without rows above a blank line": (
        f"{HEAD}\n10:00:01 sda {'1.00 ' * 7}\n",
        "line 3: rows of sar without a head that has its time: 1, left out",
    ),
    "a head of zpool alone": (ZPOOL.partition("-----")[0], "line 1 is of zpool, but no row of a pool"),
    "sizes of zpool": ("tank sync_read sync_write\n", "line 1: sizes of requests .* run zpool iostat -w"),
    "metrics without a device": (
        'node_disk_reads_completed_total{instance="a"} 5\n',
        "line 1 is of prometheus, but no sample is a counter .* with a label device, disk or dev",
    ),
    "metrics of a web server": ('http_seconds_bucket{le="+Inf"} 9\n', "with a label device, disk or dev"),
    "a head of bcc alone": ("     usecs               : count     distribution\n", "line 1: the table .* has no row"),
    "a value of bpftrace": ("@us: 5\n", "line 1: a single value of bpftrace, no distribution"),
    "a map without rows": ("@us:\n", "line 1: a map of bpftrace without a row"),
    "a head of a list alone": (
        "TIME(s)     COMM  PID  DISK    T SECTOR     BYTES  LAT(ms)\n",
        "line 1 is of events, but no row of an I/O is below its head",
    ),
    "a head of DTrace alone": ("  value  ------------- Distribution ------------- count\n", "no row with a count"),
    "begins without ends": (
        " a-1  [002]  10.000000: block_rq_issue: 65,192 WS 8192 () 1000 + 16 [a]\n",
        "the trace has block_rq_issue and no block_rq_complete",
    ),
    "queued I/Os alone": (
        "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n",
        r"line 1 is of blkparse, but it has no completion \(C\)",
    ),
    "JSON that was cut off": (
        'prose\n{"fio version":"fio-3.28",\n"jobs":[{"jobname":"a"',
        "damaged or cut off in line 3",
    ),
    "a smart log that was cut off": (
        "Smart Log for NVME device:nvme0 namespace-id:ffffffff\ncritical_warning : 0\n",
        "line 1: a smart log has no number for host_read_commands",
    ),
    "fio for people": (
        "a: (groupid=0, jobs=1): err= 0\n",
        r"fio's report for people: run fio with --output-format=json\+",
    ),
    "prose": ("nothing here\n", "none of its 1 lines is of a format that is read"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_its_line_the_true_reason_and_what_to_do(what):
    text, words = REFUSED[what]
    with pytest.raises(RecordingError, match=words) as error:
        read(text)
    assert "counts are rates" not in str(error.value)


def test_a_format_that_is_not_the_texts_is_refused_for_that_reason():
    with pytest.raises(RecordingError, match="none of its 1 lines is of a format"):
        read("nothing here\n", name="iostat")


ZPOOL_07 = """rpool        total_wait     disk_wait    sync_queue    async_queue
latency      read  write   read  write   read  write   read  write  scrub
----------  -----  -----  -----  -----  -----  -----  -----  -----  -----
16us            4      0      4      0      5      0      0      0      0
33us            7      0      7      0     10     20      0      0      0
65us            8      9      8      9      0      0      0     11      3
"""


def test_heads_of_zfs_on_linux_07_are_read():
    (frame,) = frames(ZPOOL_07)
    counts = {(series.op, series.stage): histogram.count for series, histogram in frame.histograms.items()}
    assert counts == {
        ("read", "total"): 19,
        ("write", "total"): 9,
        ("read", "hba"): 19,
        ("write", "hba"): 9,
        ("read", "queue"): 15,
        ("write", "queue"): 31,
        ("other", "queue"): 3,
    }
    assert sum(counts.values()) == awk("/us / { for (n = 2; n <= NF; n++) ios += $n } END { print ios }", ZPOOL_07)


@pytest.mark.parametrize("typed", ["/dev/nvme1n1", "nvme1n1", "/dev/ng1n1", "/dev/disk/by-id/nvme-eui.0025385b71b0"])
def test_a_smart_log_names_its_device_as_it_was_typed(typed):
    text = (GOLDEN / "smart_log_text.txt").read_text()
    assert "device:nvme0 " in text
    whole_frames, all_frames = (
        frames(text),
        frames(text.replace("device:nvme0 ", f"device:{typed} ").replace("/dev/nvme0", "it")),
    )
    assert ios(all_frames) == ios(whole_frames) > 0
    assert typed.rpartition("/")[2] in {flow.device for frame in all_frames for flow in frame.kernel}


@pytest.mark.parametrize(
    "stamp",
    ["Nov 05 10:48:{} ", "Nov 05 10:48:{} host iostat[77]: ", "2022-11-05T10:48:{}.123456Z ", "[2022-11-05 10:48:{}] "],
)
@pytest.mark.parametrize(
    ("date", "is_comma"), [("05/11/2022", True), ("05/11/22", True), ("05.11.2022", True), ("05/11/22", False)]
)
def test_a_date_of_another_locale_behind_a_time_has_its_day_first(stamp, date, is_comma):
    """iostat -t behind ts, journald and kubectl: the tool's own date is of its locale."""
    if not is_comma and "2022" not in stamp:
        pytest.skip("nothing in the text says which number is the day")
    row = ("Device r/s rkB/s r_await w/s wkB/s w_await", "sda 10.00 640.00 1.50 2.00 16.00 3.00")
    lines = [(10, f"Linux 5.13.0 (h) \t{date} \t_x86_64_\t(4 CPU)"), (10, "")]
    lines += [(second, text) for second in (10, 12) for text in (f"{date} 10:48:{second}", *row, "")]
    text = "\n".join(stamp.format(second) + line for second, line in lines)
    text = text.replace(".00", ",00").replace(".50", ",50") if is_comma else text
    taken = frames(text, ImportOptions(first_report="keep"))
    expected = datetime(2022, 11, 5, 10, 48, 10, tzinfo=UTC).timestamp()
    assert [frame.wall for frame in taken] == [expected, expected + 2]
    assert [frame.dt_us for frame in taken] == [2_000_000, 2_000_000]


@pytest.mark.parametrize("time", ["", "Fri 27 Nov 2026 04:{}:51 PM UTC\n", "Fri Nov 27 16:{}:51 UTC 2026\n"])
def test_smart_logs_without_an_empty_line_between_them_are_two(time):
    """`while :; do date; nvme smart-log /dev/nvme0; sleep 60; done`: nvme-cli 2 ends a log without an empty line."""
    log = (
        "Smart Log for NVME device:nvme0 namespace-id:ffffffff\nData Units Read\t: {}0\n"
        "Data Units Written\t: 70\nhost_read_commands\t: {}00\nhost_write_commands\t: 5\n"
    )
    all_frames = frames("".join(time.format(minute) + log.format(minute, minute) for minute in (28, 29, 31)))
    assert [frame.kernel[Flow("nvme0", "read")].count for frame in all_frames] == [100, 200]
