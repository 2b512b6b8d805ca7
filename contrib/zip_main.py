"""Program of the single file latmon-VERSION.pyz: unpacks it once, and runs latmon from the copy.

The probes, the styles of the screen and latmon's other processes need files, so the archive is unpacked into a
directory that is named by its hash: below /var/cache/latmon-pyz as root, else below the user's cache. No user but root
and the one who starts latmon can change the copy; as root, that holds for the archive as well. Python runs the copy
isolated (-I), without PYTHONPATH and modules from the current directory or HOME.

It is `__main__.py` in the archive and in the copy.
"""

import latmon.__main__ as latmon  # from here on Ctrl-C is no traceback

# isort: split
import os
import signal
import sys
from pathlib import Path

signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked in `main`

HERE = Path(__file__).absolute().parent
ROOTS = "/var/cache/latmon-pyz"
_ARCHIVE = "copy it to where only root can write, such as /usr/local/bin, or run it with sudo as the user who owns it"
_COPY = "remove it, or have XDG_CACHE_HOME name a directory of your own"

if sys.version_info < (3, 11):  # noqa: UP036 - this file is run by whatever python3 is
    sys.stderr.write("latmon: Python 3.11 or newer is needed; this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(3)


def copy() -> Path:
    """Return the directory of the unpacked archive. UntrustedError where others can change it, OSError without one."""
    from latmon.support import imports, paths, trust  # noqa: PLC0415 - the copy needs none of these
    from latmon.support.owners import ROOT, owners  # noqa: PLC0415

    is_root = os.geteuid() == 0
    if is_root:
        trust.require_path(HERE, f"latmon, which runs from {HERE},", _ARCHIVE, owners(os.environ))
    imports.guard()
    import hashlib  # noqa: PLC0415
    import io  # noqa: PLC0415
    import zipfile  # noqa: PLC0415

    base = Path(ROOTS) if is_root else paths.cache(os.environ)
    data = HERE.read_bytes()
    found = base / f"pyz-{hashlib.sha256(data).hexdigest()[:32]}"
    before = os.umask(0o022 if is_root else 0o077)  # sudo's user reads root's copy after latmon has become that user
    try:
        base.mkdir(parents=True, exist_ok=True)
        allowed = ROOT | {os.geteuid()}
        trust.require_path(base, f"{base}, where latmon unpacks itself,", _COPY, allowed)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if not _is_whole(found, archive):
                _unpack(archive, found)
        trust.require_path(found, f"{found}, where latmon is unpacked,", _COPY, allowed)
    finally:
        os.umask(before)
    return found


def _is_whole(found: Path, archive) -> bool:  # noqa: ANN001 - ZipFile, which is imported late
    """Return whether each file is there in its size: after a power failure files may be empty."""
    try:
        return all((found / one.filename).stat().st_size == one.file_size for one in archive.infolist())
    except OSError:
        return False


def _unpack(archive, found: Path) -> None:  # noqa: ANN001
    """Unpack beside the final name and rename, so that two starts at the same time don't meet."""
    import shutil  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=found.parent))
    try:
        scratch.chmod(0o700 if os.geteuid() else 0o755)  # mkdtemp's mode would keep sudo's user out
        archive.extractall(scratch)
        try:
            scratch.rename(found)
        except OSError:  # another start was first, or a copy is incomplete
            if not _is_whole(found, archive):
                shutil.rmtree(found)
                scratch.rename(found)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    """Run latmon from the copy; from the archive, replace this process by a Python that does."""
    if HERE.is_dir():
        latmon.main()
    from latmon.support import signals  # noqa: PLC0415
    from latmon.support.errors import LatmonError  # noqa: PLC0415

    signals.install()  # half a copy is removed
    try:
        at = copy()
    except LatmonError as error:
        sys.exit(_refused(str(error)))
    except OSError as error:
        why = f"it can't unpack itself: {error}; have XDG_CACHE_HOME name a directory with 30 MB of space"
        sys.exit(_refused(why))
    signals.leave_if_received()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the first line of the copy: then it ends latmon
    kept = [flag for flag, is_set in (("-S", sys.flags.no_site), ("-B", sys.flags.dont_write_bytecode)) if is_set]
    os.execv(sys.executable, [sys.executable, "-I", *kept, str(at), *sys.argv[1:]])  # noqa: S606 - no shell is meant


def _refused(why: str) -> int:
    sys.stderr.write(f"latmon: {why}\n")
    return 3


if __name__ == "__main__":
    main()
