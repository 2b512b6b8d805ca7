/*
 * requests_d: time in the block layer's queue and in driver and device, per device and op, for every request.
 *
 * Stateless: a request carries its own stamps, so nothing is kept between issue and completion, and no dynamic variable
 * can be dropped. Read by latmon through requests_d.yaml; keys are printed as columns: dev_t, op. A number costs half
 * of the disk's name, which would be 256 bytes in every key.
 *
 * Histograms are of eight times the microseconds: so llquantize(, 2, 3, 34, 16) has latmon's own buckets.
 */
BEGIN
{
	requests_d_n = 0;
	requests_d_at = timestamp;
	requests_d_cpu = cpu;
	requests_d_tokens = 40;
	printf("@@ ready requests_d %d\n", timestamp);
}

/*
 * (rq, error, nr_bytes). This clause has no predicate. The kind, without which the next ones count nothing, is emptied
 * before anything of the request is read and set last, so that a read that faults leaves them nothing of another request.
 * A read of the request costs 45 ns, so each field is read once.
 *
 * Kind: 0 driver-private (SG_IO, NVMe admin: no disk behind some of them, and not in diskstats); 1 not the end of its
 * request: a partial completion, or the second end of a write with a preflush, with nothing left of it; 2 timed, without
 * time in the queue: most requests go straight to the driver under one stamp; 3 timed, with it; 4 never sent to the
 * driver: the empty write that carries a flush, counted as in diskstats; 5 data without a stamp, or with one of the future.
 */
rawtp:block::block_rq_complete
{
	this->kind = 0;
	this->rq = (struct request *)arg0;
	this->flags = this->rq->cmd_flags;
	this->op = this->flags & 0xff;
	this->left = this->rq->__data_len;
	this->issued = this->rq->io_start_time_ns;
	this->begun = this->rq->start_time_ns;
	this->begun = this->begun != 0 && this->begun + 1000 <= this->issued ? this->begun : this->issued;
	this->what = this->op >= 32 ? 0 :
	    arg2 < this->left || (this->left == 0 && this->op != 2 && this->issued != 0) ? 1 :
	    this->issued == 0 || this->issued > timestamp ? (this->left == 0 ? 4 : 5) : this->begun == this->issued ? 2 : 3;
	this->op = this->op < 4 ? this->op : this->op == 7 ? 1 : 9;
	/* major and first_minor are gendisk's first two ints since 2.6: one read instead of two. */
	this->disk = this->what ? *(uint64_t *)this->rq->{{disk}} : 0;
	this->dev = ((this->disk & 0xfff) << 20) | ((this->disk >> 32) & 0xfffff);
	this->hba = this->what == 2 || this->what == 3 ? (timestamp - this->issued) / 1000 : 0;
	this->queue = this->what == 3 ? (this->issued - this->begun) / 1000 : 0;
	this->kind = this->what;
}

rawtp:block::block_rq_complete
/this->kind && arg2 > 0/
{
	@requests_d_bytes[this->dev, this->op] = sum(arg2);
}

rawtp:block::block_rq_complete
/this->kind == 2/
{
	@requests_d_same[this->dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@requests_d_hba_sum[this->dev, this->op] = sum(this->hba);
	@requests_d_max[this->dev, this->op, requests_d_n & 1] = max(((uint64_t)requests_d_n << 32) |
	    (this->hba < 4294967295 ? this->hba : 4294967295));
}

rawtp:block::block_rq_complete
/this->kind == 3/
{
	@requests_d_hba[this->dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@requests_d_queue[this->dev, this->op] = llquantize(this->queue * 8, 2, 3, 34, 16);
	@requests_d_total[this->dev, this->op] = llquantize((this->hba + this->queue) * 8, 2, 3, 34, 16);
	@requests_d_hba_sum[this->dev, this->op] = sum(this->hba);
	@requests_d_queue_sum[this->dev, this->op] = sum(this->queue);
	@requests_d_max[this->dev, this->op, requests_d_n & 1] = max(((uint64_t)requests_d_n << 32) |
	    (this->hba + this->queue < 4294967295 ? this->hba + this->queue : 4294967295));
}

rawtp:block::block_rq_complete
/this->kind == 4/
{
	@requests_d_untimed[this->dev, this->op] = count();
}

rawtp:block::block_rq_complete
/this->kind == 5/
{
	@requests_d_unmatched[this->dev, this->op] = count();
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
rawtp:block::block_rq_complete
/this->hba + this->queue >= ({{threshold_us}} ? {{threshold_us}} : 10000) && (this->kind == 2 || this->kind == 3)/
{
	@requests_d_above[this->dev, this->op] = count();
	@requests_d_suppressed[this->dev] = sum(requests_d_tokens > 0 ? 0 : 1);
}

rawtp:block::block_rq_complete
/this->hba + this->queue >= ({{threshold_us}} ? {{threshold_us}} : 10000) && (this->kind == 2 || this->kind == 3) &&
    requests_d_tokens > 0/
{
	requests_d_tokens--;
	printf("@@ slow requests_d %u %d %d %d %d %d %d %d %d %d %d %d\n", arg0, this->dev, this->op, this->flags,
	    this->rq->__sector, this->left, this->begun, timestamp, this->hba + this->queue, this->queue, this->hba, cpu);
}

/* What counts as slow on each device that is used: one completion in 64 is enough to say it. */
rawtp:block::block_rq_complete
/((timestamp >> 8) & 63) == 0 && this->kind/
{
	@requests_d_level[this->dev] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

profile-{{step_ms}}ms
/cpu == requests_d_cpu/
{
	this->tokens = requests_d_tokens + ({{step_ms}} * 2 + 24) / 25;
	requests_d_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little. On each CPU, because Oracle's tick-N fires on one of its choice, on an idle host never:
 * the CPU that ticked last goes on, another one takes over where it is late.
 */
profile-{{step_ms}}ms
/(requests_d_n < 2 && cpu == requests_d_cpu) ||
    timestamp - requests_d_at >= {{gate_ns}} + (cpu == requests_d_cpu ? 0 : 150000000)/
{
	requests_d_at = timestamp;
	requests_d_cpu = cpu;
	printf("@@ tick requests_d %d %d\n", requests_d_n, timestamp);
	printa("@@Q requests_d_same\t%d\t%d\t%@d@@E\n", @requests_d_same);
	printa("@@Q requests_d_hba\t%d\t%d\t%@d@@E\n", @requests_d_hba);
	printa("@@Q requests_d_queue\t%d\t%d\t%@d@@E\n", @requests_d_queue);
	printa("@@Q requests_d_total\t%d\t%d\t%@d@@E\n", @requests_d_total);
	printa("@@S requests_d_hba_sum\t%d\t%d\t%@d\n", @requests_d_hba_sum);
	printa("@@S requests_d_queue_sum\t%d\t%d\t%@d\n", @requests_d_queue_sum);
	printa("@@S requests_d_max\t%d\t%d\t%d\t%@d\n", @requests_d_max);
	printa("@@S requests_d_bytes\t%d\t%d\t%@d\n", @requests_d_bytes);
	printa("@@S requests_d_untimed\t%d\t%d\t%@d\n", @requests_d_untimed);
	printa("@@S requests_d_unmatched\t%d\t%d\t%@d\n", @requests_d_unmatched);
	printa("@@S requests_d_above\t%d\t%d\t%@d\n", @requests_d_above);
	printa("@@S requests_d_suppressed\t%d\t%@d\n", @requests_d_suppressed);
	printa("@@S requests_d_level\t%d\t%@d\n", @requests_d_level);
	printf("@@ done requests_d\n");
	requests_d_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last requests_d %d %d\n", requests_d_n, timestamp);
	printa("@@Q requests_d_same\t%d\t%d\t%@d@@E\n", @requests_d_same);
	printa("@@Q requests_d_hba\t%d\t%d\t%@d@@E\n", @requests_d_hba);
	printa("@@Q requests_d_queue\t%d\t%d\t%@d@@E\n", @requests_d_queue);
	printa("@@Q requests_d_total\t%d\t%d\t%@d@@E\n", @requests_d_total);
	printa("@@S requests_d_hba_sum\t%d\t%d\t%@d\n", @requests_d_hba_sum);
	printa("@@S requests_d_queue_sum\t%d\t%d\t%@d\n", @requests_d_queue_sum);
	printa("@@S requests_d_max\t%d\t%d\t%d\t%@d\n", @requests_d_max);
	printa("@@S requests_d_bytes\t%d\t%d\t%@d\n", @requests_d_bytes);
	printa("@@S requests_d_untimed\t%d\t%d\t%@d\n", @requests_d_untimed);
	printa("@@S requests_d_unmatched\t%d\t%d\t%@d\n", @requests_d_unmatched);
	printa("@@S requests_d_above\t%d\t%d\t%@d\n", @requests_d_above);
	printa("@@S requests_d_suppressed\t%d\t%@d\n", @requests_d_suppressed);
	printa("@@S requests_d_level\t%d\t%@d\n", @requests_d_level);
	printf("@@ done requests_d\n");
}
