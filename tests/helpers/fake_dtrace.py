"""A dtrace that plays what scripts print: goldens in its place, tick by tick, with all stamps moved to now.

`Fake(directory)` writes the program; run by itself this file is the program. It finds the scripts in the program text
that it is given by what they print. Knows none of latmon's decoders.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from functools import cache
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden/dtrace"
HEADER = f"{'ID':>5} {'PROVIDER':>10} {'MODULE':>17} {'FUNCTION':>33} NAME"
ENDINGS = {signal.SIGTERM, signal.SIGINT}


@cache
def manifests():
    """All of latmon's; read once, for that takes longer than what a test does with them."""
    from latmon.manifest import load_all  # noqa: PLC0415 - the program itself runs without
    from latmon.support.paths import data_dir  # noqa: PLC0415

    return load_all(data_dir("probes"))


class Fake:
    """A stand-in for dtrace. Its configuration, JSON beside the program, may be changed before it is started."""

    def __init__(self, directory, **changes):
        self.path, self.log, self.go = directory / "dtrace", directory / "dtrace.log", directory / "go"
        stamps = {
            manifest.name: {
                kind: [n for n, name in enumerate(spec.fields) if name.endswith("_ns")] for kind, spec in records
            }
            for manifest in manifests()
            for records in [manifest.records.items()]
            if manifest.tool == "dtrace"
        }
        self.config = {
            "version": "dtrace: Sun D 1.13",
            "stamps": stamps,
            "goldens": {},
            "pace": 0.1,
            # Ticks go on without new records until this file exists.
            "go": "",
            # A function that its D hasn't.
            "lacks": "",
            # None: every hook that is asked for.
            "hooks": None,
            # How long a listing takes, and how far its clock is ahead.
            "listing_s": 0,
            "clock_s": 0,
            # By script: text on stderr, with status 1.
            "refused": {},
            # By script and tick: text on stderr.
            "said": {},
            # By script and tick: so many seconds after its stamp.
            "late": {},
            # By script: the tick after which it ends by itself, or prints nothing more.
            "dies": {},
            "silent": {},
            "log": str(self.log),
        } | changes
        self.path.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {Path(__file__).resolve()} "$0.json" "$@"\n')
        self.path.chmod(0o755)
        self.change()

    def change(self, **changes):
        self.config.update(changes)
        self.path.with_name("dtrace.json").write_text(json.dumps(self.config))

    def release(self):
        """Create the file that `go` waits for."""
        self.go.with_suffix(".new").write_text(str(time.monotonic_ns()))
        self.go.with_suffix(".new").rename(self.go)

    def runs(self):
        """The scripts of each program that was started, one after the other."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]


# The program


def listed(config, hooks):
    """DTrace's listing: a description without a module gets that of its function."""
    print(HEADER)
    missing = 0
    for number, hook in enumerate(hooks):
        provider, module, function, name = hook.split(":")
        if config["hooks"] is not None and hook not in config["hooks"]:
            print(f"dtrace: failed to match {hook}: No probe matches description", file=sys.stderr)
            missing = 1
            continue
        print(f"{number + 7:>5} {provider:>10} {module or 'genunix':>17} {function or 'some_function':>33} {name}")
    return missing


class Story:
    """One script's golden: its output at each tick, and at the end."""

    def __init__(self, name, text, stamps):
        self.name, self.stamps = name, stamps
        done = f"@@ done {name}\n"
        reported = [part + done for part in text.split("\n", 1)[1].split(done) if part.strip()]
        self.ticks = [one for one in reported if f"@@ last {name} " not in one]
        (self.last,) = [one for one in reported if f"@@ last {name} " in one]

    def tick(self, at, number, now_ns, news):
        """Tick `at`; without news its maps alone, as they were."""
        return self.moved(
            self.ticks[min(at, len(self.ticks) - 1)], "tick", number, now_ns, news and at < len(self.ticks)
        )

    def end(self, at, number, now_ns):
        """Its last output, after the records of the ticks from `at` on, which were not printed."""
        unreported = (self.moved(tick, "tick", number, now_ns) for tick in self.ticks[at:])
        records = (line for one in unreported for line in one.splitlines(keepends=True) if self._is_record(line))
        return "".join(records) + self.moved(self.last, "last", number, now_ns)

    def _is_record(self, line):
        return line.startswith("@@ ") and line.split(" ")[1] in self.stamps

    def moved(self, text, kind, number, now_ns, news=True):
        match = re.search(rf"^@@ {kind} {self.name} ([0-9]+) ([0-9]+)$", text, re.MULTILINE)
        ahead = now_ns - int(match[2])
        later = number - int(match[1]) << 32
        lines = []
        for line in text.splitlines(keepends=True):
            words = line.split(" ")
            if later and line.startswith(f"@@S {self.name}_max\t"):  # a maximum has its tick's number
                key, most = line.rsplit("\t", 1)
                lines.append(f"{key}\t{int(most) + later}\n")
            elif words[0] != "@@" or words[1] == "done":
                lines.append(line)
            elif words[1] == kind:
                lines.append(f"@@ {kind} {self.name} {number} {now_ns}\n")
            elif news:
                between = "\t" if "\t" in line else " "  # names may have blanks
                fields = line.split(" ", 3)[3].split(between)
                for at in self.stamps.get(words[1], ()):
                    fields[at] = str(int(fields[at]) + ahead)
                lines.append(" ".join(words[:3]) + " " + between.join(fields))
        return "".join(lines)


class Moments:
    """When ticks are: all programs that wait for the same file have theirs at the same time from then on."""

    def __init__(self, config):
        self.pace_ns, self.go = int(config["pace"] * 1e9), config["go"]
        self.now_ns, self.went = time.monotonic_ns(), not config["go"]

    def held(self, at):
        """Whether nothing new may be printed yet."""
        if at == 1 and not self.went and Path(self.go).exists():
            self.now_ns, self.went = int(Path(self.go).read_text(encoding="utf-8")), True
        return at == 1 and not self.went

    def next(self, at):
        """Seconds until the tick after `at`."""
        now = time.monotonic_ns()
        waits = self.held(at)
        step = 0 if at == 0 else min(self.pace_ns, 50_000_000) if waits else self.pace_ns
        self.now_ns = max(self.now_ns + step, now) if waits or at == 0 else self.now_ns + step
        return max(0.0, (self.now_ns - now) / 1e9), waits


def play(config, names):
    stories = []
    for name in names:
        golden = config["goldens"].get(name)
        nothing = f"@@ ready {name} 1\n@@ tick {name} 0 2\n@@ done {name}\n@@ last {name} 1 3\n@@ done {name}\n"
        text = (GOLDEN / golden).read_text(encoding="utf-8") if golden else nothing
        stories.append(Story(name, text, config["stamps"].get(name, {})))
    say("".join(f"@@ ready {one.name} {time.monotonic_ns()}\n" for one in stories))
    moments, ahead_ns = Moments(config), int(config["clock_s"] * 1e9)
    at = number = 0
    before = -1
    while True:
        for one in stories:
            if number > config["silent"].get(one.name, number):
                continue
            time.sleep(config["late"].get(one.name, {}).get(str(number), 0))
            say(one.tick(at, number, moments.now_ns + ahead_ns, news=at != before))
            if output := config["said"].get(one.name, {}).get(str(number)):
                print(output, file=sys.stderr, flush=True)
            if number == config["dies"].get(one.name):
                print("dtrace: processing aborted: Abort due to systemic unresponsiveness", file=sys.stderr, flush=True)
                return 1
        before = at
        wait_s, waits = moments.next(at)
        number += 1
        if signal.sigtimedwait(ENDINGS, wait_s):
            break
        at += not waits
    for one in stories:
        say(one.end(before + 1, number, moments.now_ns + ahead_ns))
    say("\n")
    return 0


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def main(arguments):
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    path, *words = arguments
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    if words == ["-V"]:
        print(config["version"])
        return 0
    if (lacks := config["lacks"]) and lacks in words[-1]:
        told = f"dtrace: invalid probe specifier {words[-1]}: in action list: undefined function name: {lacks}"
        print(told, file=sys.stderr)
        return 1
    if words[0] == "-e":
        return 0
    if words[0] == "-l":
        time.sleep(config["listing_s"])
        return listed(config, [word for flag, word in zip(words[1::2], words[2::2], strict=True) if flag == "-n"])
    names = re.findall(r"@@ ready (\w+)", words[-1])
    with Path(config["log"]).open("a", encoding="utf-8") as log:
        print(json.dumps(names), file=log)
    for name in names:
        if name in config["refused"]:
            print(config["refused"][name].replace("PROGRAM", words[-1]), file=sys.stderr)
            return 1
    return play(config, names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
