/*
 * io_d: time from an I/O's hand-over to the block layer to its end, per device and op, from the io provider alone.
 *
 * Portable: every system with DTrace has io:::start and io:::done, and arg0 is the same buf or bio in both. Read by latmon
 * through io_d.yaml; keys are printed as columns: device, op. Op: 0 read, 1 write, 2 flush, 3 discard, 9 other.
 *
 * Histograms are of eight times the microseconds: so llquantize(, 2, 3, 34, 16) has latmon's own buckets.
 */
BEGIN
{
	io_d_n = 0;
	io_d_at = timestamp;
	io_d_cpu = cpu;
	io_d_tokens = 40;
	io_d_begun[(uint64_t)0] = (uint64_t)1;
	io_d_begun[(uint64_t)0] = 0;
	io_d_pid[(uint64_t)0] = (uint64_t)1;
	io_d_pid[(uint64_t)0] = 0;
	io_d_owner[(uint64_t)0] = (uint64_t)0;
	io_d_name[(uint64_t)0] = "";
	printf("@@ ready io_d %d\n", timestamp);
}

/*
 * The first clause of each probe has no predicate. What makes the next ones count is emptied before anything of the I/O is
 * read and set last, so that a read that faults leaves them nothing of another I/O.
 *
 * An address that is used again while its first I/O still has an entry: the end of that I/O was not seen. On Linux only the
 * first bio of a request has an end, so these are mostly the bios that were merged into another's request.
 */
io:::start
{
	this->io_d_before = (uint64_t)0;
	this->io_d_owner = ((uint64_t)pid << 32) | ((timestamp >> 30) & 0xffffffff);
	this->io_d_dev = {{dev}};
	this->io_d_code = {{code}};
	this->io_d_bytes = (uint64_t)args[0]->b_bcount;
	this->io_d_op = this->io_d_code == 1 && this->io_d_bytes == 0 ? 2 : this->io_d_code < 4 ? this->io_d_code :
	    this->io_d_code == 7 ? 1 : 9;
	this->io_d_before = io_d_begun[(uint64_t)arg0];
	io_d_begun[(uint64_t)arg0] = (uint64_t)timestamp;
	io_d_pid[(uint64_t)arg0] = (uint64_t)pid;
	@io_d_started[this->io_d_dev, this->io_d_op] = count();
	@io_d_bytes[this->io_d_dev, this->io_d_op] = sum(this->io_d_bytes);
}

io:::start
/this->io_d_before != 0/
{
	@io_d_untimed[this->io_d_dev, this->io_d_op] = count();
}

/*
 * Names of processes are kept in 1024 slots and are set again once a second (2^30 ns): a name for each I/O would cost as
 * much as all the rest, and one for each process would never be freed.
 */
io:::start
/io_d_owner[(uint64_t)pid & 1023] != this->io_d_owner/
{
	io_d_owner[(uint64_t)pid & 1023] = this->io_d_owner;
	io_d_name[(uint64_t)pid & 1023] = execname;
}

io:::done
{
	this->io_d_kind = 0;
	this->io_d_us = (uint64_t)0;
	this->io_d_dev = {{dev}};
	this->io_d_code = {{code}};
	this->io_d_bytes = (uint64_t)args[0]->b_bcount;
	this->io_d_op = this->io_d_code == 1 && this->io_d_bytes == 0 ? 2 : this->io_d_code < 4 ? this->io_d_code :
	    this->io_d_code == 7 ? 1 : 9;
	this->io_d_begun = io_d_begun[(uint64_t)arg0];
	this->io_d_us = this->io_d_begun != 0 && this->io_d_begun < timestamp ? (timestamp - this->io_d_begun) / 1000 : 0;
	this->io_d_kind = this->io_d_begun != 0 ? 2 : 1;
}

/* Begun before this script, or split off another I/O. */
io:::done
/this->io_d_kind == 1/
{
	@io_d_unmatched[this->io_d_dev, this->io_d_op] = count();
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
io:::done
/this->io_d_us >= ({{threshold_us}} ? {{threshold_us}} : 10000)/
{
	@io_d_above[this->io_d_dev, this->io_d_op] = count();
	@io_d_suppressed[this->io_d_dev] = sum(io_d_tokens > 0 ? 0 : 1);
}

io:::done
/this->io_d_us >= ({{threshold_us}} ? {{threshold_us}} : 10000) && io_d_tokens > 0/
{
	this->io_d_pid = io_d_pid[(uint64_t)arg0];
	io_d_tokens--;
	printf("@@ slow io_d %u {{form}} %d %d %d %d %d %d %d %d %s\n", arg0, this->io_d_dev, this->io_d_op,
	    args[0]->b_blkno, this->io_d_bytes, this->io_d_begun, timestamp, this->io_d_us, cpu, this->io_d_pid,
	    (io_d_owner[this->io_d_pid & 1023] >> 32) == this->io_d_pid ? io_d_name[this->io_d_pid & 1023] : "");
}

io:::done
/this->io_d_kind == 2/
{
	@io_d_total[this->io_d_dev, this->io_d_op] = llquantize(this->io_d_us * 8, 2, 3, 34, 16);
	@io_d_sum[this->io_d_dev, this->io_d_op] = sum(this->io_d_us);
	@io_d_max[this->io_d_dev, this->io_d_op, io_d_n & 1] = max(((uint64_t)io_d_n << 32) |
	    (this->io_d_us < 4294967295 ? this->io_d_us : 4294967295));
	io_d_begun[(uint64_t)arg0] = 0;
	io_d_pid[(uint64_t)arg0] = 0;
}

/* What counts as slow on each device that is used: one end in 64 is enough to say it. */
io:::done
/((timestamp >> 8) & 63) == 0 && this->io_d_kind/
{
	@io_d_level[this->io_d_dev] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

profile-{{step_ms}}ms
/cpu == io_d_cpu/
{
	this->tokens = io_d_tokens + ({{step_ms}} * 2 + 24) / 25;
	io_d_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little. On each CPU, because Oracle's tick-N fires on one of its choice, on an idle host never:
 * the CPU that ticked last goes on, another one takes over where it is late.
 */
profile-{{step_ms}}ms
/(io_d_n < 2 && cpu == io_d_cpu) ||
    timestamp - io_d_at >= {{gate_ns}} + (cpu == io_d_cpu ? 0 : 150000000)/
{
	io_d_at = timestamp;
	io_d_cpu = cpu;
	printf("@@ tick io_d %d %d\n", io_d_n, timestamp);
	printa("@@Q io_d_total\t{{form}}\t%d\t%@d@@E\n", @io_d_total);
	printa("@@S io_d_sum\t{{form}}\t%d\t%@d\n", @io_d_sum);
	printa("@@S io_d_max\t{{form}}\t%d\t%d\t%@d\n", @io_d_max);
	printa("@@S io_d_started\t{{form}}\t%d\t%@d\n", @io_d_started);
	printa("@@S io_d_bytes\t{{form}}\t%d\t%@d\n", @io_d_bytes);
	printa("@@S io_d_untimed\t{{form}}\t%d\t%@d\n", @io_d_untimed);
	printa("@@S io_d_unmatched\t{{form}}\t%d\t%@d\n", @io_d_unmatched);
	printa("@@S io_d_above\t{{form}}\t%d\t%@d\n", @io_d_above);
	printa("@@S io_d_suppressed\t{{form}}\t%@d\n", @io_d_suppressed);
	printa("@@S io_d_level\t{{form}}\t%@d\n", @io_d_level);
	printf("@@ done io_d\n");
	io_d_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last io_d %d %d\n", io_d_n, timestamp);
	printa("@@Q io_d_total\t{{form}}\t%d\t%@d@@E\n", @io_d_total);
	printa("@@S io_d_sum\t{{form}}\t%d\t%@d\n", @io_d_sum);
	printa("@@S io_d_max\t{{form}}\t%d\t%d\t%@d\n", @io_d_max);
	printa("@@S io_d_started\t{{form}}\t%d\t%@d\n", @io_d_started);
	printa("@@S io_d_bytes\t{{form}}\t%d\t%@d\n", @io_d_bytes);
	printa("@@S io_d_untimed\t{{form}}\t%d\t%@d\n", @io_d_untimed);
	printa("@@S io_d_unmatched\t{{form}}\t%d\t%@d\n", @io_d_unmatched);
	printa("@@S io_d_above\t{{form}}\t%d\t%@d\n", @io_d_above);
	printa("@@S io_d_suppressed\t{{form}}\t%@d\n", @io_d_suppressed);
	printa("@@S io_d_level\t{{form}}\t%@d\n", @io_d_level);
	printf("@@ done io_d\n");
}
