"""What a thread sleeps for in an operation on files, by the functions of its kernel stack.

The kernel leaves out the functions of its scheduler, of semaphores and mutexes (`in_sched_functions()`), in `wchan` and
in `stack`: a thread that waits for the lock of an inode has the function innermost that took it, such as xfs_ilock. A
wait for an event has a function of its own, so that a function of `_LOCKS` is innermost only where a lock is waited
for. A journal's function counts anywhere in the stack: who makes room in a log writes and waits for I/O below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from latmon.model.frame import JOURNAL, LOCK
from latmon.model.measurements.file_sleeps import LOG_SPACE

_LOCKS = re.compile(
    rb"(?:xfs_ilock|xfs_ilock_iocb\w*|xfs_ilock_for_\w+|xfs_ilock_\w+_map_shared|xfs_lock_\w+|xfs_iolock_\w+"
    rb"|ext4_buffered_write_iter|ext4_file_(?:read|write)_iter|ext4_dio_(?:read|write)_\w+|ext4_(?:da_)?map_blocks"
    rb"|ext4_fallocate|ext4_rename2?|ext4_truncate|ext4_ioctl|ext4_setattr"
    rb"|btrfs_inode_lock|btrfs_file_\w+|btrfs_fallocate|f2fs_file_\w+|f2fs_fallocate|ocfs2_file_\w+"
    rb"|generic_file_write_iter|generic_file_llseek\w*|blkdev_write_iter|fdget_pos|__fdget_pos"
    rb"|path_openat|open_last_lookups|lookup_open|lookup_slow|walk_component|lookup_one\w*|lookup_noperm\w*"
    rb"|do_unlinkat|do_rmdir|do_mkdirat|do_mknodat|do_linkat|do_symlinkat|do_renameat2|filename_create|start_creating\w*"
    rb"|__start_(?:creating|removing|dirop)\w*|start_(?:removing|renaming|dirop)\w*|lock_rename\w*|lock_two_\w+|iterate_dir|vfs_\w+"
    rb"|chmod_common|chown_common|do_truncate|super_lock|grab_super\w*|sync_inodes_sb|reconfigure_super|iterate_supers\w*)"
    rb"(?:\.\w+)*"
)
"""Functions that take locks of inodes, directories, file systems, and open files, and that wait for nothing else."""
_JOURNALS = frozenset(
    (
        b"jbd2_log_wait_commit",
        b"wait_transaction_locked",
        b"wait_transaction_switching",
        b"add_transaction_credits",
        b"start_this_handle",
        b"__jbd2_log_wait_for_space",
        b"jbd2_log_do_checkpoint",
        b"do_get_write_access",
        b"jbd2_journal_lock_updates",
        b"xlog_wait_on_iclog",
        b"xlog_state_get_iclog_space",
        b"xlog_grant_head_wait",
        b"xlog_cil_force_seq",
        b"wait_log_commit",
        b"btrfs_wait_for_commit",
        b"wait_current_trans",
        b"f2fs_issue_checkpoint",
    )
)
"""Functions in which a thread waits for a transaction, its commit, or room in a log."""
_ROOM = frozenset((b"__jbd2_log_wait_for_space", b"jbd2_log_do_checkpoint", b"xlog_grant_head_wait"))
"""Those of them that are for room: who makes it writes older changes to their places."""
_OF_SYNCS = frozenset(
    (
        b"ext4_sync_file",
        b"xfs_file_fsync",
        b"xfs_log_force_seq",
        b"btrfs_sync_file",
        b"f2fs_sync_file",
        b"f2fs_do_sync_file",
        b"ocfs2_sync_file",
        b"generic_write_sync",
        b"jbd2_journal_stop",
    )
)
"""Callers of those that wait because the change must be on the disk, also of a write with O_DSYNC and with the mount
option `sync`: jbd2_journal_stop() waits for a commit only then (fs/jbd2/transaction.c h_sync)."""
_IO = re.compile(
    rb"(?:__wait_on_buffer|blk_mq_get_tag|rq_qos_wait|submit_bio_wait|blk_wait_io|bio_await\w*|blk_io_schedule"
    rb"|xfs_buf_iowait|__iomap_dio_rw|iomap_\w+|blkdev_direct_IO|__?inode_dio_wait|balance_dirty_pages)(?:\.\w+)*"
)
"""Functions in which a thread waits for I/O: for that of a checkpoint, or of an operation that has a file's lock."""
_FRAME = re.compile(rb"^\[<\w+>\] ([\w.]+)\+", re.MULTILINE)
_KIND = re.compile(rb"_*(ext4|xfs|btrfs|f2fs|ocfs2)_")


@lru_cache(maxsize=1024)
def may_be_in_operation(function: bytes) -> bool:
    """Return whether a thread that sleeps in a function may wait for a lock, a journal or I/O of a file.

    A host has thousands of threads, and few functions in which they sleep.
    """
    return function in _JOURNALS or _LOCKS.fullmatch(function) is not None or _IO.fullmatch(function) is not None


def functions_of(stack: bytes) -> list[bytes]:
    """Return the functions of /proc/PID/task/TID/stack, the innermost one first."""
    return _FRAME.findall(stack)


def cause_of(function: bytes, stack_of: Callable[[], bytes]) -> str:
    """Return one of SLEEP_CAUSES, or an empty text: it sleeps for something else; `stack_of` reads its stack."""
    if _LOCKS.fullmatch(function):
        return LOCK
    functions = {function, *functions_of(stack_of())}
    if _JOURNALS.isdisjoint(functions):
        return ""
    return JOURNAL if _ROOM.isdisjoint(functions) else LOG_SPACE


def is_sync(stack: bytes) -> bool:
    """Return whether a thread waits for its changes to be on the disk, whatever its system call is."""
    return not _OF_SYNCS.isdisjoint(functions_of(stack))


def kind_of(stack: bytes) -> str:
    """Return the type of file system whose functions a stack has; empty where it has none."""
    for function in functions_of(stack):
        match = _KIND.match(function)
        if match is not None:
            return match[1].decode()
    return ""
