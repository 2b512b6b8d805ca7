"""A throw-away guest from the host's side: what it sees of us, the script it runs, and the JSON that comes back."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import psutil
import yaml

from latmon.manifest import load
from latmon_backends.bpftrace.tracer import stem

CHECKOUT = Path(__file__).resolve().parents[2]
SHARED = (
    "latmon",
    "backends",
    "probes",
    "themes",
    "tests/helpers/terminal.py",
    "tests/helpers/workload.py",
    "tests/lab",
)
TIMEOUT_S = 4 * 3600
ATTEMPTS = 3
PACKED = "latmon.tar"
UNPACK = f'mkdir /tmp/checkout && tar -xf /host/{PACKED} -C /tmp/checkout && exec "$@"'
EMULATORS_FAULT = "Oops: int3"
"""Emulated CPUs now and then run into the breakpoint by which the kernel patches its own code while they run it."""


HANDLERS = (
    "-device megasas,id=h9,addr=0xa -device scsi-hd,bus=h9.0,drive=d9 "
    "-drive driver=null-co,read-zeroes=on,size=1G,if=none,id=d9"
)
"""A disk controller 4 slots behind that of the first `--disk`, so on its line where there are no MSIs."""


def build_module(name, directory, release="trixie"):
    """Build NAME.ko there, which the guest sees as /host; return the error, empty if there is none."""
    words = ["sh", CHECKOUT / "tests/lab/build-module", release, CHECKOUT / "tests/lab" / name, directory]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stderr[-300:] if done.returncode else ""


def stage(directory):
    """What the guest sees of us, and what we need: PyYAML, pure Python where it has to be, and psutil, whose wheels
    are for any Python 3."""
    for name in SHARED:
        source, there = CHECKOUT / name, directory / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, there)
    shutil.copytree(
        Path(yaml.__file__).parent, directory / "yaml", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copytree(Path(psutil.__file__).parent, directory / "psutil", ignore=shutil.ignore_patterns("__pycache__"))


def probes(checkout, on_demand, without=()):
    """Return the files of the always-on probes and of these on-demand ones, in all variants but those with a letter of
    `without`."""
    stems = (path.stem for path in (checkout / "probes/linux").glob("*.yaml"))
    names = [one for one in stems if stem(one) in ("block", *on_demand) and not one.endswith(tuple(without))]
    return {file for name in names for file in load(checkout / f"probes/linux/{name}.yaml").files}


def keep(directory, on_demand):
    """Select these on-demand probes only: an emulated guest takes minutes to compile all of them."""
    kept = probes(directory, on_demand)
    for manifest in (directory / "probes/linux").glob("*.yaml"):
        if manifest not in kept:
            manifest.unlink()


def pack(directory):
    """All of it as one file: an emulated guest takes minutes to read many over 9p."""
    with tarfile.open(directory / PACKED, "w") as archive:
        for name in {Path(shared).parts[0] for shared in (*SHARED, "yaml", "psutil")}:
            archive.add(directory / name, name)


def run(directory, release, script, *words, on_demand=None, kernel=None, packed=False, tier=None):
    """The result of `script` (words, relative to tests/lab) in a guest with these options of vm-run.

    `on_demand`: its on-demand probes, without their variant's letter; None: all of them. `kernel`: of which release;
    None: the same. `packed`: the guest copies us to its memory first. `tier`: "B" where it could do better.
    The directory keeps the guest's output (`log`).
    """
    stage(directory)
    if on_demand is not None:
        keep(directory, on_demand)
    name, *arguments = script
    root = "/host"
    if packed:
        pack(directory)
        root = "/tmp/checkout"
    lesser = (f"LATMON_BPFTRACE={root}/tests/lab/bpftrace-b",) if tier == "B" else ()
    script = ["env", f"PYTHONPATH={root}:{root}/backends", *lesser, "python3", f"{root}/tests/lab/{name}"]
    inside = [*(("sh", "-c", UNPACK, "sh") if packed else ()), *script, *arguments, "/host/result"]
    console = directory / "console"
    guest = ["bash", CHECKOUT / "tests/lab/vm-run", "--suite", release, "--kernel", kernel or release]
    guest += ["--console", console, "--timeout", TIMEOUT_S, "--share", directory]
    log = directory / "log"
    for _ in range(ATTEMPTS):
        with log.open("w") as written:
            done = subprocess.run(
                [str(word) for word in (*guest, *words, "--", *inside)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if EMULATORS_FAULT not in console.read_text(errors="replace"):
            break
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
    return json.loads((directory / "result").read_text())
