/*
 * vop_files: reads, writes, opens and syncs of files as programs wait for them, per mounted file system of any type.
 *
 * The VOP layer is the one that zfs, ufs, nfs and the others share: what a process waits for in its system call, without
 * the call's own way. Read by latmon through vop_files.yaml; a file system is TYPE:MOUNT POINT, call 0 read, 1 write, 2
 * open, 3 fsync, histograms are of eight times the microseconds.
 *
 * What a thread waited for follows from two facts: whether it began an I/O in between (io:::start), and whether it slept
 * (its voluntary switches). wait 0: it did neither; 1: both; 2: the rest. ZFS begins its I/O in threads of its own, so
 * there a sleep is of wait 2; zfs_slow and the disks' scripts have the same moment below.
 *
 * A file system on another one (lofs) calls the same functions again: vop_files_in counts them, and the outermost is
 * timed. Threads without an LWP, which are the kernel's own, are left out.
 */
BEGIN
{
	vop_files_n = 0;
	vop_files_at = timestamp;
	vop_files_tokens = 40;
	printf("@@ ready vop_files %d\n", timestamp);
}

fbt::fop_read:entry,
fbt::fop_write:entry,
fbt::fop_open:entry,
fbt::fop_fsync:entry
/((kthread_t *)curthread)->t_lwp != 0/
{
	self->vop_files_in++;
}

/* (vnode, uio, flags, credentials, caller) */
fbt::fop_read:entry,
fbt::fop_write:entry
/self->vop_files_in == 1/
{
	self->vop_files_vp = (uint64_t)arg0;
	self->vop_files_uio = (uint64_t)arg1;
	self->vop_files_size = (int64_t)((uio_t *)arg1)->uio_resid;
	self->vop_files_offset = (int64_t)((uio_t *)arg1)->_uio_offset._f;
}

/* (where the vnode is, which the file system may replace, mode, credentials, caller) */
fbt::fop_open:entry
/self->vop_files_in == 1/
{
	self->vop_files_vp = (uint64_t)*(vnode_t **)arg0;
	self->vop_files_uio = 0;
	self->vop_files_size = -1;
	self->vop_files_offset = -1;
}

/* (vnode, flag, credentials, caller) */
fbt::fop_fsync:entry
/self->vop_files_in == 1/
{
	self->vop_files_vp = (uint64_t)arg0;
	self->vop_files_uio = 0;
	self->vop_files_size = -1;
	self->vop_files_offset = -1;
}

fbt::fop_read:entry
/self->vop_files_in == 1/
{
	self->vop_files_call = 0;
}

fbt::fop_write:entry
/self->vop_files_in == 1/
{
	self->vop_files_call = 1;
}

fbt::fop_open:entry
/self->vop_files_in == 1/
{
	self->vop_files_call = 2;
}

fbt::fop_fsync:entry
/self->vop_files_in == 1/
{
	self->vop_files_call = 3;
}

fbt::fop_read:entry,
fbt::fop_write:entry,
fbt::fop_open:entry,
fbt::fop_fsync:entry
/self->vop_files_in == 1/
{
	self->vop_files_switches = (uint64_t)((kthread_t *)curthread)->t_lwp->lwp_ru.nvcsw;
	self->vop_files_io = 0;
	self->vop_files_begun = (uint64_t)timestamp;
}

io:::start
/self->vop_files_in/
{
	self->vop_files_io = 1;
}

/*
 * The outermost call of a regular file (VREG), or the sync of a directory (VDIR), that succeeded, is timed: wait is its
 * kind of wait + 1. Not where all is in memory: proc, tmpfs and the like.
 */
fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/self->vop_files_in == 1 && self->vop_files_begun && arg1 == 0 && ((vnode_t *)self->vop_files_vp)->v_vfsp != 0 &&
    (((vnode_t *)self->vop_files_vp)->v_type == 1 ||
    (((vnode_t *)self->vop_files_vp)->v_type == 2 && self->vop_files_call == 3))/
{
	this->fstype = stringof(((vnode_t *)self->vop_files_vp)->v_op->vnop_name);
	this->mount = stringof(((vnode_t *)self->vop_files_vp)->v_vfsp->vfs_mntpt->rs_string);
	self->vop_files_dev = strjoin(this->fstype, strjoin(":", this->mount));
	this->slept = (uint64_t)((kthread_t *)curthread)->t_lwp->lwp_ru.nvcsw != self->vop_files_switches;
	this->memory = this->fstype == "proc" || this->fstype == "tmpfs" || this->fstype == "ctfs" || this->fstype == "objfs" ||
	    this->fstype == "mntfs" || this->fstype == "sharefs" || this->fstype == "bootfs" || this->fstype == "dev";
	self->vop_files_wait = this->memory ? 0 : this->slept ? (self->vop_files_io ? 2 : 3) : self->vop_files_io ? 3 : 1;
	self->vop_files_us = (timestamp - self->vop_files_begun) / 1000;
}

/*
 * Slow operations: all are counted, some are printed. The suppressed are counted before the print, because the print
 * takes the token.
 */
fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/self->vop_files_in == 1 && self->vop_files_wait && self->vop_files_us >= ({{threshold_us}} ? {{threshold_us}} : 10000)/
{
	@vop_files_suppressed[self->vop_files_dev] = sum(vop_files_tokens > 0 ? 0 : 1);
}

fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/vop_files_tokens > 0 && self->vop_files_in == 1 && self->vop_files_wait && self->vop_files_uio &&
    self->vop_files_us >= ({{threshold_us}} ? {{threshold_us}} : 10000)/
{
	self->vop_files_size -= (int64_t)((uio_t *)self->vop_files_uio)->uio_resid;
}

/*
 * The path is the one that the vnode was last looked up by, below the mount point. %S prints no byte as it is that could
 * end the line.
 */
fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/vop_files_tokens > 0 && self->vop_files_in == 1 && self->vop_files_wait &&
    ((vnode_t *)self->vop_files_vp)->v_path != 0 &&
    self->vop_files_us >= ({{threshold_us}} ? {{threshold_us}} : 10000)/
{
	this->mount = stringof(((vnode_t *)self->vop_files_vp)->v_vfsp->vfs_mntpt->rs_string);
	this->vpath = stringof(((vnode_t *)self->vop_files_vp)->v_path);
	this->at = this->mount == "/" ? 1 : strlen(this->mount) + 1;
	printf("@@ path vop_files %d\t%d\t%S\n", tid, strlen(this->vpath), substr(this->vpath, this->at));
}

fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/vop_files_tokens > 0 && self->vop_files_in == 1 && self->vop_files_wait &&
    self->vop_files_us >= ({{threshold_us}} ? {{threshold_us}} : 10000)/
{
	vop_files_tokens--;
	printf("@@ file vop_files %d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", tid, self->vop_files_dev,
	    self->vop_files_call, self->vop_files_wait - 1, self->vop_files_begun, self->vop_files_us,
	    self->vop_files_size, self->vop_files_offset, pid, execname);
}

fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/self->vop_files_in == 1 && self->vop_files_wait/
{
	this->us = self->vop_files_us;
	this->wait = self->vop_files_wait - 1;
	@vop_files_took[self->vop_files_dev, this->wait, self->vop_files_call] = llquantize(this->us * 8, 2, 3, 34, 16);
	@vop_files_sum[self->vop_files_dev, this->wait, self->vop_files_call] = sum(this->us);
	@vop_files_max[self->vop_files_dev, this->wait, self->vop_files_call, vop_files_n & 1] =
	    max(((uint64_t)vop_files_n << 32) | (this->us < 4294967295 ? this->us : 4294967295));
}

/* In a clause of its own: where a name can't be read (the file system is being unmounted), the ones above end. */
fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/self->vop_files_in == 1/
{
	self->vop_files_vp = 0;
	self->vop_files_uio = 0;
	self->vop_files_size = 0;
	self->vop_files_offset = 0;
	self->vop_files_call = 0;
	self->vop_files_switches = 0;
	self->vop_files_io = 0;
	self->vop_files_begun = 0;
	self->vop_files_dev = 0;
	self->vop_files_wait = 0;
	self->vop_files_us = 0;
}

fbt::fop_read:return,
fbt::fop_write:return,
fbt::fop_open:return,
fbt::fop_fsync:return
/self->vop_files_in/
{
	self->vop_files_in--;
}

/* Records: 40 at once, 80 a second. */
tick-{{step_ms}}ms
{
	this->tokens = vop_files_tokens + ({{step_ms}} * 2 + 24) / 25;
	vop_files_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/vop_files_n < 2 || timestamp - vop_files_at >= {{gate_ns}}/
{
	vop_files_at = timestamp;
	printf("@@ tick vop_files %d %d\n", vop_files_n, timestamp);
	printa("@@Q vop_files_took\t%s\t%d\t%d\t%@d@@E\n", @vop_files_took);
	printa("@@S vop_files_sum\t%s\t%d\t%d\t%@d\n", @vop_files_sum);
	printa("@@S vop_files_max\t%s\t%d\t%d\t%d\t%@d\n", @vop_files_max);
	printa("@@S vop_files_suppressed\t%s\t%@d\n", @vop_files_suppressed);
	printf("@@ done vop_files\n");
	vop_files_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last vop_files %d %d\n", vop_files_n, timestamp);
	printa("@@Q vop_files_took\t%s\t%d\t%d\t%@d@@E\n", @vop_files_took);
	printa("@@S vop_files_sum\t%s\t%d\t%d\t%@d\n", @vop_files_sum);
	printa("@@S vop_files_max\t%s\t%d\t%d\t%d\t%@d\n", @vop_files_max);
	printa("@@S vop_files_suppressed\t%s\t%@d\n", @vop_files_suppressed);
	printf("@@ done vop_files\n");
}
