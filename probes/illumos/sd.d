/*
 * sd: time of every block I/O from its hand-over to its end, and of those that sd or ssd sent to the HBA also how long it
 * waited in the driver's queue, how long it was sent again and again, and how long HBA and device had it. Per device and op.
 *
 * Read by latmon through sd.yaml. Columns of a key: device (sd2, ssd0), op (0 read, 1 write). Histograms are of eight times
 * the microseconds, so that llquantize(, 2, 3, 34, 16) has latmon's own buckets. Maps are cumulative.
 *
 * The key is the buf's address, the same at all three hooks. Why these three:
 * - io:::start and not sdstrategy: disks of other drivers (NVMe's blkdev, virtio's, cmdk) are here too, with a total alone.
 *   A buf without b_dip is an NFS or SMB request and left out.
 * - the static probe in sd_start_cmds, just before the HBA is called, and not the function: it is in sd and ssd under one
 *   name and has the buf. It fires again for each retry, so the first and the last time are kept.
 * - biodone's entry and not io:::done: raw asynchronous I/O (aphysio, what a database on raw disks does) has a start, but
 *   no done, for only done looks at B_STARTED, and aphysio doesn't set it. Nor sdintr: it ends an attempt, not the I/O.
 *
 * Stamps of two CPUs can be out of order by some nanoseconds: what would be a time below 0 is 0, and not 2^64 ns.
 *
 * Each this-> is set in the clause that uses it: one that isn't has the value of an earlier probe.
 */
BEGIN
{
	sd_n = 0;
	sd_at = timestamp;
	sd_tokens = 80;
	sd_next[(uint64_t)0] = (uint64_t)0;
	sd_begun[(uint64_t)0] = (uint64_t)0;
	sd_first[(uint64_t)0] = (uint64_t)0;
	sd_sent[(uint64_t)0] = (uint64_t)0;
	sd_pid[(uint64_t)0] = (uint64_t)0;
	sd_comm[(uint64_t)0] = "";
	sd_begun[(uint64_t)0] = 0;
	sd_first[(uint64_t)0] = 0;
	sd_sent[(uint64_t)0] = 0;
	sd_pid[(uint64_t)0] = 0;
	sd_comm[(uint64_t)0] = 0;
	printf("@@ ready sd %d\n", timestamp);
}

/* The buf's earlier I/O ended unseen, or a layer hands its buf on as it is: counted, so that it isn't in flight for ever. */
io:::start
/sd_begun[(uint64_t)arg0] != 0/
{
	@sd_untimed[args[1]->dev_statname, (args[0]->b_flags & B_READ) != 0 ? 0 : 1] = count();
}

io:::start
/arg0 != 0 && ((struct buf *)arg0)->b_dip != 0/
{
	sd_begun[(uint64_t)arg0] = (uint64_t)timestamp;
	sd_first[(uint64_t)arg0] = 0;
	sd_sent[(uint64_t)arg0] = 0;
	sd_pid[(uint64_t)arg0] = (uint64_t)pid;
	sd_comm[(uint64_t)arg0] = execname;
	@sd_started[args[1]->dev_statname, (args[0]->b_flags & B_READ) != 0 ? 0 : 1] = count();
}

sdt:::scsi-transport-dispatch
/sd_begun[(uint64_t)arg0] != 0/
{
	sd_first[(uint64_t)arg0] = sd_first[(uint64_t)arg0] != 0 ? sd_first[(uint64_t)arg0] : (uint64_t)timestamp;
	sd_sent[(uint64_t)arg0] = (uint64_t)timestamp;
}

/* Begun before this script: 0x2000000 is B_STARTED, set between start and done. */
fbt::biodone:entry
/arg0 != 0 && sd_begun[(uint64_t)arg0] == 0 && (((struct buf *)arg0)->b_flags & 0x2000000) != 0 &&
    ((struct buf *)arg0)->b_dip != 0/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	@sd_unmatched[xlate <devinfo_t> ((struct buf *)arg0).dev_statname, this->op] = count();
}

/*
 * Outliers: all are counted. At most 20 of a disk at once and 50 a second are printed, so that a disk full of them hides no
 * other's, and of all disks 80 at once and 400 a second. The suppressed are counted before the print, because the print
 * takes the token.
 */
fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0 &&
    timestamp >= sd_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->sd_dev = xlate <devinfo_t> ((struct buf *)arg0).dev_statname;
	@sd_above[this->sd_dev, this->op] = count();
	@sd_suppressed[this->sd_dev] = sum(sd_tokens > 0 &&
	    sd_next[(uint64_t)((struct buf *)arg0)->b_dip] <= timestamp + 380000000 ? 0 : 1);
}

/* Of an I/O that no sd sent neither queue, retry nor HBA is known: -1. */
fbt::biodone:entry
/sd_tokens > 0 && sd_begun[(uint64_t)arg0] != 0 &&
    sd_next[(uint64_t)((struct buf *)arg0)->b_dip] <= timestamp + 380000000 &&
    timestamp >= sd_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->begun = sd_begun[(uint64_t)arg0];
	this->sent = sd_sent[(uint64_t)arg0] < this->begun ? this->begun :
	    sd_sent[(uint64_t)arg0] < timestamp ? sd_sent[(uint64_t)arg0] : (uint64_t)timestamp;
	this->first = sd_first[(uint64_t)arg0] < this->begun ? this->begun :
	    sd_first[(uint64_t)arg0] < this->sent ? sd_first[(uint64_t)arg0] : this->sent;
	this->sd_key = (uint64_t)((struct buf *)arg0)->b_dip;
	this->errno = ((struct buf *)arg0)->b_error;
	this->status = (((struct buf *)arg0)->b_flags & 4) == 0 ? 0 : 256 + (this->errno == 0 ? 5 :
	    this->errno == 145 ? 110 : this->errno == 48 ? 95 : this->errno & 255);
	sd_tokens--;
	sd_next[this->sd_key] = (sd_next[this->sd_key] > timestamp ? sd_next[this->sd_key] : (uint64_t)timestamp) + 20000000;
	printf("@@ slow sd %d %s %d %d %d %d %d %d %d %d %d %d %d %s\n", arg0,
	    xlate <devinfo_t> ((struct buf *)arg0).dev_statname, this->op, ((struct buf *)arg0)->_b_blkno._f,
	    ((struct buf *)arg0)->b_bcount, this->begun, timestamp, (timestamp - this->begun) / 1000,
	    sd_first[(uint64_t)arg0] != 0 ? (int64_t)((this->first - this->begun) / 1000) : -1,
	    sd_first[(uint64_t)arg0] != 0 ? (int64_t)((this->sent - this->first) / 1000) : -1,
	    sd_sent[(uint64_t)arg0] != 0 ? (int64_t)((timestamp - this->sent) / 1000) : -1, this->status,
	    sd_pid[(uint64_t)arg0],
	    sd_comm[(uint64_t)arg0]);
}

/*
 * A failed I/O (4 is B_ERROR) is no fast one: it is counted with its errno and not timed. Its errno has the number that
 * it has on Linux: ETIMEDOUT is 145 here, ENOTSUP 48. A driver that tells none means EIO, as in geterror().
 */
fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0 && (((struct buf *)arg0)->b_flags & 4) != 0/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->sd_dev = xlate <devinfo_t> ((struct buf *)arg0).dev_statname;
	this->errno = ((struct buf *)arg0)->b_error;
	this->status = 256 + (this->errno == 0 ? 5 : this->errno == 145 ? 110 : this->errno == 48 ? 95 : this->errno & 255);
	@sd_failed[this->sd_dev, this->op, this->status] = count();
	@sd_untimed[this->sd_dev, this->op] = count();
}

fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0 && (((struct buf *)arg0)->b_flags & 4) == 0/
{
	this->sd_buf = (struct buf *)arg0;
	this->op = (this->sd_buf->b_flags & B_READ) != 0 ? 0 : 1;
	this->sd_dev = xlate <devinfo_t> ((struct buf *)arg0).dev_statname;
	this->us = timestamp > sd_begun[(uint64_t)arg0] ? (timestamp - sd_begun[(uint64_t)arg0]) / 1000 : 0;
	@sd_total[this->sd_dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@sd_sum[this->sd_dev, this->op] = sum(this->us);
	@sd_max[this->sd_dev, this->op, sd_n & 1] = max(((uint64_t)sd_n << 32) |
	    (this->us < 4294967295 ? this->us : 4294967295));
	@sd_bytes[this->sd_dev, this->op] = sum(this->sd_buf->b_bcount > this->sd_buf->b_resid ?
	    this->sd_buf->b_bcount - this->sd_buf->b_resid : 0);
	@sd_level[this->sd_dev] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0 && sd_first[(uint64_t)arg0] != 0 && (((struct buf *)arg0)->b_flags & 4) == 0/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->sd_dev = xlate <devinfo_t> ((struct buf *)arg0).dev_statname;
	this->queue = sd_first[(uint64_t)arg0] > sd_begun[(uint64_t)arg0] ?
	    (sd_first[(uint64_t)arg0] - sd_begun[(uint64_t)arg0]) / 1000 : 0;
	this->hba = timestamp > sd_sent[(uint64_t)arg0] ? (timestamp - sd_sent[(uint64_t)arg0]) / 1000 : 0;
	@sd_queue[this->sd_dev, this->op] = llquantize(this->queue * 8, 2, 3, 34, 16);
	@sd_queue_sum[this->sd_dev, this->op] = sum(this->queue);
	@sd_hba[this->sd_dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@sd_hba_sum[this->sd_dev, this->op] = sum(this->hba);
}

/* Sent more than once: TRAN_BUSY, QUEUE FULL, an error, or the next part of a transfer that was too long for one DMA. */
fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0 && sd_sent[(uint64_t)arg0] != sd_first[(uint64_t)arg0] &&
    (((struct buf *)arg0)->b_flags & 4) == 0/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->sd_dev = xlate <devinfo_t> ((struct buf *)arg0).dev_statname;
	this->again = sd_sent[(uint64_t)arg0] > sd_first[(uint64_t)arg0] ?
	    (sd_sent[(uint64_t)arg0] - sd_first[(uint64_t)arg0]) / 1000 : 0;
	@sd_requeue[this->sd_dev, this->op] = llquantize(this->again * 8, 2, 3, 34, 16);
	@sd_requeue_sum[this->sd_dev, this->op] = sum(this->again);
}

fbt::biodone:entry
/sd_begun[(uint64_t)arg0] != 0/
{
	sd_begun[(uint64_t)arg0] = 0;
	sd_first[(uint64_t)arg0] = 0;
	sd_sent[(uint64_t)arg0] = 0;
	sd_pid[(uint64_t)arg0] = 0;
	sd_comm[(uint64_t)arg0] = 0;
}

tick-{{step_ms}}ms
{
	this->tokens = sd_tokens + {{step_ms}} * 2 / 5;
	sd_tokens = this->tokens < 80 ? this->tokens : 80;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/sd_n < 2 || timestamp - sd_at >= {{gate_ns}}/
{
	sd_at = timestamp;
	printf("@@ tick sd %d %d\n", sd_n, timestamp);
	printa("@@Q sd_total\t%s\t%d\t%@d@@E\n", @sd_total);
	printa("@@Q sd_queue\t%s\t%d\t%@d@@E\n", @sd_queue);
	printa("@@Q sd_requeue\t%s\t%d\t%@d@@E\n", @sd_requeue);
	printa("@@Q sd_hba\t%s\t%d\t%@d@@E\n", @sd_hba);
	printa("@@S sd_sum\t%s\t%d\t%@d\n", @sd_sum);
	printa("@@S sd_queue_sum\t%s\t%d\t%@d\n", @sd_queue_sum);
	printa("@@S sd_requeue_sum\t%s\t%d\t%@d\n", @sd_requeue_sum);
	printa("@@S sd_hba_sum\t%s\t%d\t%@d\n", @sd_hba_sum);
	printa("@@S sd_max\t%s\t%d\t%d\t%@d\n", @sd_max);
	printa("@@S sd_bytes\t%s\t%d\t%@d\n", @sd_bytes);
	printa("@@S sd_started\t%s\t%d\t%@d\n", @sd_started);
	printa("@@S sd_failed\t%s\t%d\t%d\t%@d\n", @sd_failed);
	printa("@@S sd_untimed\t%s\t%d\t%@d\n", @sd_untimed);
	printa("@@S sd_unmatched\t%s\t%d\t%@d\n", @sd_unmatched);
	printa("@@S sd_above\t%s\t%d\t%@d\n", @sd_above);
	printa("@@S sd_suppressed\t%s\t%@d\n", @sd_suppressed);
	printa("@@S sd_level\t%s\t%@d\n", @sd_level);
	printf("@@ done sd\n");
	sd_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last sd %d %d\n", sd_n, timestamp);
	printa("@@Q sd_total\t%s\t%d\t%@d@@E\n", @sd_total);
	printa("@@Q sd_queue\t%s\t%d\t%@d@@E\n", @sd_queue);
	printa("@@Q sd_requeue\t%s\t%d\t%@d@@E\n", @sd_requeue);
	printa("@@Q sd_hba\t%s\t%d\t%@d@@E\n", @sd_hba);
	printa("@@S sd_sum\t%s\t%d\t%@d\n", @sd_sum);
	printa("@@S sd_queue_sum\t%s\t%d\t%@d\n", @sd_queue_sum);
	printa("@@S sd_requeue_sum\t%s\t%d\t%@d\n", @sd_requeue_sum);
	printa("@@S sd_hba_sum\t%s\t%d\t%@d\n", @sd_hba_sum);
	printa("@@S sd_max\t%s\t%d\t%d\t%@d\n", @sd_max);
	printa("@@S sd_bytes\t%s\t%d\t%@d\n", @sd_bytes);
	printa("@@S sd_started\t%s\t%d\t%@d\n", @sd_started);
	printa("@@S sd_failed\t%s\t%d\t%d\t%@d\n", @sd_failed);
	printa("@@S sd_untimed\t%s\t%d\t%@d\n", @sd_untimed);
	printa("@@S sd_unmatched\t%s\t%d\t%@d\n", @sd_unmatched);
	printa("@@S sd_above\t%s\t%d\t%@d\n", @sd_above);
	printa("@@S sd_suppressed\t%s\t%@d\n", @sd_suppressed);
	printa("@@S sd_level\t%s\t%@d\n", @sd_level);
	printf("@@ done sd\n");
}
