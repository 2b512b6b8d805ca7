"""Man pages and completions have each command and option, and the programs that read them accept them."""

import os
import pty
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import manual
import pytest

from latmon.cli import arguments


@pytest.fixture(scope="module")
def share(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("share")
    manual.write(directory)
    return directory


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"no {program} here")


def output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def offered(share: Path, line: str) -> list[str]:
    """What bash proposes at the end of the line; an empty last word is a blank at its end."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _latmon latmon;printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return output("bash", "-c", script, "bash", str(share / manual.BASH), *line.split(" ")).split()


def test_each_command_has_a_page_with_its_options(share):
    pages = {path.name: path.read_text("utf-8") for path in (share / manual.MAN).iterdir()}
    assert set(pages) == {f"latmon{name and '-' + name}.1" for name in arguments.parsers()}
    assert "\\fB\\-q\\fR, \\fB\\-\\-quiet\\fR\nlog warnings" in pages["latmon-watch.1"]
    assert "\\-\\-feed" not in pages["latmon-fleet.1"], "it is for latmon alone"
    assert ".SH EXIT STATUS\n" in pages["latmon.1"]


@needs("groff")
def test_groff_has_no_warning(share):
    for path in sorted((share / manual.MAN).iterdir()):
        assert output("groff", "-man", "-ww", "-K", "utf8", "-Tutf8", "-z", str(path)) == ""
    shown = output("groff", "-man", "-K", "utf8", "-Tascii", "-P-c", str(share / manual.MAN / "latmon-export.1"))
    assert "latmon export host.latmon.jsonl.gz --to csv -o host.csv" in shown


def test_a_line_of_text_is_no_request_of_roff():
    assert manual.roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert manual.roff("'x \\n -") == "\\&'x \\(rsn \\-"


@needs("bash")
def test_bash_proposes_commands_options_and_values(share, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("host.latmon.jsonl.gz").touch()
    assert {"replay", "report", "doctor", "help", "--record"} <= {*offered(share, "latmon ")}
    assert offered(share, "latmon rep") == ["replay", "report"]
    assert offered(share, "latmon --sta") == ["--stages"]
    assert offered(share, "latmon --stages ") == ["auto", "basic", "all"]
    assert offered(share, "latmon export --to c") == ["csv", "cast"]
    assert offered(share, "latmon report ho") == ["host.latmon.jsonl.gz"]
    assert offered(share, "latmon import x -o ho") == ["host.latmon.jsonl.gz"]
    assert "show" in offered(share, "latmon probes ")
    assert offered(share, "latmon fleet --fee") == []
    assert offered(share, "latmon --interval ") == []


@needs("bash")
@pytest.mark.parametrize("typed", ["latmon report my", "latmon report my\\ fi", 'latmon report "my fi', "latmon -o my"])
def test_a_shell_that_a_user_types_in_completes_a_name_with_blanks(share, tmp_path, typed):
    """readline itself, on a terminal: it escapes what the completion proposes."""
    (tmp_path / "my file.latmon.jsonl.gz").touch()
    (tmp_path / "rc").write_text(f"PS1='ready> '; source '{share / manual.BASH}'\n")
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.execlp("bash", "bash", "--noprofile", "--rcfile", "rc", "-i")
    try:
        drawn = _drawn_until(terminal, b"ready> ")
        os.write(terminal, typed.encode() + b"\t")
        drawn = _drawn_until(terminal, b".gz")
        assert b"my\\ file.latmon.jsonl.gz" in drawn or b'"my file.latmon.jsonl.gz' in drawn
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _drawn_until(terminal: int, wanted: bytes) -> bytes:
    """Return what the shell draws up to these bytes; without them all that it draws in a minute."""
    drawn, until = b"", time.monotonic() + 60
    while wanted not in drawn and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            drawn += os.read(terminal, 4096)
    return drawn


@needs("zsh")
def test_zsh_reads_its_completion(share):
    output("zsh", "-n", str(share / manual.ZSH))


@needs("fish")
def test_fish_proposes_commands_and_options(share):
    def proposed(line):
        listed = output("fish", "--no-config", "-c", f"source {share / manual.FISH}; complete -C'{line}'")
        return {line.split("\t")[0] for line in listed.splitlines()}

    assert {"replay", "help"} <= proposed("latmon ")
    assert proposed("latmon report --ht") == {"--html"}
    assert {"auto", "basic", "all"} <= proposed("latmon --stages ")


def test_values_are_those_that_the_check_accepts():
    for parser in arguments.parsers().values():
        for action in manual.shown(parser):
            for value in manual.values(action):
                assert action.type is None or action.type(value) is not None
