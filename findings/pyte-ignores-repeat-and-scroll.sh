#!/bin/sh
# One would guess: a screen that pyte computes from a program's output is the one that a terminal shows, so a test with
# pyte sees what a user sees in tmux.
#
# What happens (pyte 0.8.2, tmux 3.3a): pyte has neither REP (CSI n b, the last character again n times), which terminfo
# offers for xterm-256color, nor SU (CSI n S, scroll up): it drops both without a word, and tmux does both. And cells
# that DCH (CSI n P) brings in at the end of a line have the present background in tmux, and none in pyte. So a program
# that saves bytes by them is right on a terminal and wrong in its tests, and the other way round.
#
# Needs python3 with pip, and tmux, else it exits with 77. Fails if the behaviour has changed.
set -eu

for tool in python3 tmux; do
    command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 77; }
done
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$home/packages" pyte==0.8.2 2>"$home/pip.log" || {
    tail -n 2 "$home/pip.log" >&2
    echo "needs pip and pyte 0.8.2" >&2
    exit 77
}

python3 - "$home" <<'PYTHON'
import os
import pathlib
import subprocess
import sys
import time

home = sys.argv[1]
sys.path.insert(0, f"{home}/packages")
import pyte  # noqa: E402

COLUMNS, LINES = 20, 4
OUTPUTS = {
    "REP": b"ab\x1b[3b|",
    "SU": b"1\r\n2\r\n3\x1b[1S",
    "DCH": b"\x1b[44mabcdefghijklmnopqrst\x1b[5G\x1b[2P\x1b[0m",
}
BLUE = "44m"


def pyte_screen(output):
    screen = pyte.Screen(COLUMNS, LINES)
    pyte.ByteStream(screen).feed(output)
    last = screen.buffer[0][COLUMNS - 1]
    return [line.rstrip() for line in screen.display], last.bg == "blue"


def tmux_screen(name, output):
    pathlib.Path(home, "output").write_bytes(output)
    tmux = ["tmux", "-S", f"{home}/{name}.socket", "-f", "/dev/null"]
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    size = ["-x", f"{COLUMNS}", "-y", f"{LINES}"]
    command = f"cat {home}/output; touch {home}/{name}.shown; sleep 30"
    try:
        subprocess.run([*tmux, "new-session", "-d", *size, command], check=True, env=environment)
        while not pathlib.Path(home, f"{name}.shown").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        capture = [*tmux, "capture-pane", "-p", "-N"]
        plain = subprocess.run(capture, check=True, capture_output=True, text=True, env=environment).stdout
        colours = subprocess.run([*capture, "-e"], check=True, capture_output=True, text=True, env=environment).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, env=environment)
    first = colours.splitlines()[0]
    return [line.rstrip() for line in plain.splitlines()], BLUE in first and "49m" not in first and first.endswith("  ")


seen = {}
for name, output in OUTPUTS.items():
    seen[name] = pyte_screen(output), tmux_screen(name, output)
version = subprocess.run(["tmux", "-V"], check=True, capture_output=True, text=True).stdout.strip()
print(f"pyte 0.8.2, {version}")
for name, screens in seen.items():
    for emulator, (lines, is_blue) in zip(("pyte", "tmux"), screens):
        background = f", end of the line {'blue' if is_blue else 'without background'}" if name == "DCH" else ""
        print(f"{name:3} {emulator}: {lines}{background}")
(pyte_rep, _), (tmux_rep, _) = seen["REP"]
(pyte_su, _), (tmux_su, _) = seen["SU"]
(_, pyte_blue), (_, tmux_blue) = seen["DCH"]
texts = pyte_rep[0], tmux_rep[0], pyte_su[0], tmux_su[0]
if (*texts, pyte_blue, tmux_blue) != ("ab|", "abbbb|", "1", "2", False, True):
    sys.exit("the behaviour has changed")
PYTHON
