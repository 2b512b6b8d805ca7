/*
 * zfs_slow: what a process waits for in ZFS: read, write and fsync of a file, per pool.
 *
 * The top of the way down: it holds the ARC, the transaction group's throttle and the intent log, and all I/O of the
 * pool that the process waits for. Against the same moment at the pool's disks it shows whether the time is in ZFS or
 * below. There is no one-to-one: a read may need no I/O or many, a write is written later. Read by latmon through
 * zfs_slow.yaml; device zfs:POOL, op 0 read, 1 write, 2 fsync, histograms are of eight times the microseconds.
 *
 * zil_commit is not hooked: it may end in a jump to its second half, and then its return fires for the calls alone
 * that had nothing to do. fsync holds it, and so does a write to a file that was opened with O_DSYNC.
 */
BEGIN
{
	zfs_slow_n = 0;
	zfs_slow_at = timestamp;
	zfs_slow_tokens = 40;
	printf("@@ ready zfs_slow %d\n", timestamp);
}

/* (vnode, uio, flags, credentials, caller) */
fbt:zfs:zfs_read:entry
{
	self->zfs_slow_vp = (uint64_t)arg0;
	self->zfs_slow_bytes = (uint64_t)((uio_t *)arg1)->uio_resid;
	self->zfs_slow_op = 0;
	self->zfs_slow_begun = (uint64_t)timestamp;
}

fbt:zfs:zfs_write:entry
{
	self->zfs_slow_vp = (uint64_t)arg0;
	self->zfs_slow_bytes = (uint64_t)((uio_t *)arg1)->uio_resid;
	self->zfs_slow_op = 1;
	self->zfs_slow_begun = (uint64_t)timestamp;
}

/* (vnode, flag, credentials, caller) */
fbt:zfs:zfs_fsync:entry
{
	self->zfs_slow_vp = (uint64_t)arg0;
	self->zfs_slow_bytes = 0;
	self->zfs_slow_op = 2;
	self->zfs_slow_begun = (uint64_t)timestamp;
}

/*
 * Outliers: all are counted, some are printed. The suppressed are counted before the print, because the print takes the
 * token.
 */
fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zfs_fsync:return
/self->zfs_slow_begun && timestamp - self->zfs_slow_begun >= ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->zp = (znode_t *)((vnode_t *)self->zfs_slow_vp)->v_data;
	this->dev = strjoin("zfs:", stringof(this->zp->z_zfsvfs->z_os->os_spa->spa_name));
	@zfs_slow_above[this->dev, self->zfs_slow_op] = count();
	@zfs_slow_suppressed[this->dev] = sum(zfs_slow_tokens > 0 ? 0 : 1);
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zfs_fsync:return
/zfs_slow_tokens > 0 && self->zfs_slow_begun &&
    timestamp - self->zfs_slow_begun >= ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->zp = (znode_t *)((vnode_t *)self->zfs_slow_vp)->v_data;
	this->dev = strjoin("zfs:", stringof(this->zp->z_zfsvfs->z_os->os_spa->spa_name));
	this->now = (uint64_t)timestamp;
	this->us = (this->now - self->zfs_slow_begun) / 1000;
	zfs_slow_tokens--;
	printf("@@ slow zfs_slow %u %s %d %d %d %d %d %d %d %d %s\n", self->zfs_slow_vp, this->dev, self->zfs_slow_op,
	    self->zfs_slow_bytes, self->zfs_slow_begun, this->now, this->us, this->us, cpu, pid, execname);
}

fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zfs_fsync:return
/self->zfs_slow_begun/
{
	this->zp = (znode_t *)((vnode_t *)self->zfs_slow_vp)->v_data;
	this->dev = strjoin("zfs:", stringof(this->zp->z_zfsvfs->z_os->os_spa->spa_name));
	this->us = (timestamp - self->zfs_slow_begun) / 1000;
	@zfs_slow_same[this->dev, self->zfs_slow_op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@zfs_slow_by[this->dev, self->zfs_slow_op] = llquantize(this->us * 8, 2, 3, 34, 16, this->us);
	@zfs_slow_sum[this->dev, self->zfs_slow_op] = sum(this->us);
	@zfs_slow_max[this->dev, self->zfs_slow_op, zfs_slow_n & 1] = max(((uint64_t)zfs_slow_n << 32) |
	    (this->us < 4294967295 ? this->us : 4294967295));
	@zfs_slow_level[this->dev] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

/*
 * In a clause of its own: where the pool's name can't be read (the file system is being unmounted), the one above
 * ends.
 */
fbt:zfs:zfs_read:return,
fbt:zfs:zfs_write:return,
fbt:zfs:zfs_fsync:return
/self->zfs_slow_begun/
{
	self->zfs_slow_vp = 0;
	self->zfs_slow_bytes = 0;
	self->zfs_slow_op = 0;
	self->zfs_slow_begun = 0;
}

/* Records: 40 at once, 80 a second. */
tick-{{step_ms}}ms
{
	this->tokens = zfs_slow_tokens + ({{step_ms}} * 2 + 24) / 25;
	zfs_slow_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/zfs_slow_n < 2 || timestamp - zfs_slow_at >= {{gate_ns}}/
{
	zfs_slow_at = timestamp;
	printf("@@ tick zfs_slow %d %d\n", zfs_slow_n, timestamp);
	printa("@@Q zfs_slow_same\t%s\t%d\t%@d@@E\n", @zfs_slow_same);
	printa("@@Q zfs_slow_by\t%s\t%d\t%@d@@E\n", @zfs_slow_by);
	printa("@@S zfs_slow_sum\t%s\t%d\t%@d\n", @zfs_slow_sum);
	printa("@@S zfs_slow_max\t%s\t%d\t%d\t%@d\n", @zfs_slow_max);
	printa("@@S zfs_slow_above\t%s\t%d\t%@d\n", @zfs_slow_above);
	printa("@@S zfs_slow_suppressed\t%s\t%@d\n", @zfs_slow_suppressed);
	printa("@@S zfs_slow_level\t%s\t%@d\n", @zfs_slow_level);
	printf("@@ done zfs_slow\n");
	zfs_slow_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last zfs_slow %d %d\n", zfs_slow_n, timestamp);
	printa("@@Q zfs_slow_same\t%s\t%d\t%@d@@E\n", @zfs_slow_same);
	printa("@@Q zfs_slow_by\t%s\t%d\t%@d@@E\n", @zfs_slow_by);
	printa("@@S zfs_slow_sum\t%s\t%d\t%@d\n", @zfs_slow_sum);
	printa("@@S zfs_slow_max\t%s\t%d\t%d\t%@d\n", @zfs_slow_max);
	printa("@@S zfs_slow_above\t%s\t%d\t%@d\n", @zfs_slow_above);
	printa("@@S zfs_slow_suppressed\t%s\t%@d\n", @zfs_slow_suppressed);
	printa("@@S zfs_slow_level\t%s\t%@d\n", @zfs_slow_level);
	printf("@@ done zfs_slow\n");
}
