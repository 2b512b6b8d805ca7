"""recursion_misses from fdinfo: each program once, unknown where it can't be read."""

from latmon_backends.skipped import Skipped


def fdinfo(proc, pid, number, **fields):
    directory = proc / str(pid) / "fdinfo"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / str(number)).write_text("".join(f"{name}:\t{value}\n" for name, value in fields.items()))


def children(proc, pid, *others):
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, others)))


def test_misses_are_counted_from_call_to_call_and_each_program_once(tmp_path):
    children(tmp_path, 10, 11)
    fdinfo(tmp_path, 11, 5, prog_type=17, prog_id=7, recursion_misses=100)
    fdinfo(tmp_path, 11, 6, prog_type=17, prog_id=8, recursion_misses=0)
    fdinfo(tmp_path, 11, 9, prog_type=17, prog_id=7, recursion_misses=100)
    fdinfo(tmp_path, 11, 3, link_type="raw_tracepoint", prog_id=7)
    skipped = Skipped(10, tmp_path)
    assert skipped.since_last() is None
    fdinfo(tmp_path, 11, 5, prog_type=17, prog_id=7, recursion_misses=104)
    fdinfo(tmp_path, 11, 9, prog_type=17, prog_id=7, recursion_misses=104)
    assert skipped.since_last() == 4
    assert skipped.since_last() == 0


def test_what_cannot_be_read_is_unknown_not_zero(tmp_path):
    skipped = Skipped(10, tmp_path)
    assert (skipped.since_last(), skipped.since_last()) == (None, None)


def test_a_kernel_that_does_not_count_says_nothing(tmp_path):
    fdinfo(tmp_path, 10, 5, prog_type=17, prog_id=7, run_cnt=3)
    skipped = Skipped(10, tmp_path)
    assert (skipped.since_last(), skipped.since_last()) == (None, None)
