/*
 * sd_order: the order in which sd or ssd gives a disk's I/Os to the HBA, in windows of consecutive ones.
 *
 * Read by latmon through sd_order.yaml; a line is  @@ issue sd_order WINDOW DEVICE OP SECTOR BYTES SENT QUEUED  with times
 * of the clock in nanoseconds, but QUEUED, the wait since the hand-over to the driver, in microseconds.
 *
 * A window begins with each tick: at most 128 I/Os of a disk, and 1,024 of all disks. The static probe is in sd_start_cmds,
 * before the HBA is called, and has one name for sd and ssd; a command that is sent again counts once more. The key of a
 * start is the buf's address, as in sd.d.
 */
BEGIN
{
	sd_order_n = 0;
	sd_order_at = timestamp;
	sd_order_window = timestamp;
	sd_order_left = 1024;
	sd_order_begun[(uint64_t)0] = (uint64_t)0;
	sd_order_of[(uint64_t)0] = (uint64_t)0;
	sd_order_count[(uint64_t)0] = 0;
	printf("@@ ready sd_order %d\n", timestamp);
}

io:::start
/arg0 != 0 && ((struct buf *)arg0)->b_dip != 0/
{
	sd_order_begun[(uint64_t)arg0] = (uint64_t)timestamp;
}

/* The disk's first one in this window. */
sdt:::scsi-transport-dispatch
/sd_order_begun[(uint64_t)arg0] != 0 && sd_order_of[(uint64_t)((struct buf *)arg0)->b_dip] != sd_order_window/
{
	sd_order_of[(uint64_t)((struct buf *)arg0)->b_dip] = sd_order_window;
	sd_order_count[(uint64_t)((struct buf *)arg0)->b_dip] = 0;
}

sdt:::scsi-transport-dispatch
/sd_order_begun[(uint64_t)arg0] != 0 && sd_order_left > 0 && sd_order_count[(uint64_t)((struct buf *)arg0)->b_dip] < 128/
{
	this->op = (((struct buf *)arg0)->b_flags & B_READ) != 0 ? 0 : 1;
	this->begun = sd_order_begun[(uint64_t)arg0];
	this->now = (uint64_t)timestamp > this->begun ? (uint64_t)timestamp : this->begun;
	sd_order_left--;
	sd_order_count[(uint64_t)((struct buf *)arg0)->b_dip]++;
	printf("@@ issue sd_order %d %s %d %d %d %d %d\n", sd_order_window,
	    xlate <devinfo_t> ((struct buf *)arg0).dev_statname, this->op, ((struct buf *)arg0)->_b_blkno._f,
	    ((struct buf *)arg0)->b_bcount, this->now, (this->now - this->begun) / 1000);
}

fbt::biodone:entry
/sd_order_begun[(uint64_t)arg0] != 0/
{
	sd_order_begun[(uint64_t)arg0] = 0;
}

/* Without maps: that it runs. A window that is not full goes on in the next: nothing is missing between the two. */
tick-{{step_ms}}ms
/sd_order_n < 2 || timestamp - sd_order_at >= {{gate_ns}}/
{
	sd_order_at = timestamp;
	sd_order_window = timestamp;
	sd_order_left = 1024;
	printf("@@ tick sd_order %d %d\n@@ done sd_order\n", sd_order_n, timestamp);
	sd_order_n++;
}

END
{
	printf("@@ last sd_order %d %d\n@@ done sd_order\n", sd_order_n, timestamp);
}
