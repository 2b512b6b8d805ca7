/*
 * devstat: from a disk's driver to the completion, per disk and op, for every I/O of every disk.
 *
 * The kernel's device statistics see the same bio when GEOM hands it to the disk's driver and when the driver gives it
 * back, so its address is the key. GEOM's own statistics of providers and consumers come through the same two probes:
 * they have unit -1 and no name, and are left out.
 *
 * Read by latmon through devstat.yaml. Histograms are of eight times the microseconds: so llquantize(, 2, 3, 34, 16)
 * has latmon's own buckets.
 */
BEGIN
{
	devstat_n = 0;
	devstat_at = timestamp;
	devstat_tokens = 40;
	devstat_begun[(uint64_t)0] = (uint64_t)0;
	printf("@@ ready devstat %d\n", timestamp);
}

io:::start
/args[1]->unit_number >= 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	devstat_begun[(uint64_t)arg0] = timestamp;
	@devstat_started[this->dev, this->op] = count();
}

/*
 * A failed I/O (1 is BIO_ERROR) is no fast one: it is counted and not timed. 261 is EIO, whatever the error is: bio_error
 * is a member of struct bio up to FreeBSD 14, and of a struct in it later.
 */
io:::done
/args[1]->unit_number >= 0 && devstat_begun[(uint64_t)arg0] != 0 && (args[0]->bio_flags & 1) != 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	@devstat_failed[this->dev, this->op, 261] = count();
	@devstat_untimed[this->dev, this->op] = count();
}

io:::done
/args[1]->unit_number >= 0 && devstat_begun[(uint64_t)arg0] != 0 && (args[0]->bio_flags & 1) == 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->us = timestamp > devstat_begun[(uint64_t)arg0] ? (timestamp - devstat_begun[(uint64_t)arg0]) / 1000 : 0;
	@devstat_total[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@devstat_sum[this->dev, this->op] = sum(this->us);
	@devstat_max[this->dev, this->op, devstat_n & 1] = max(((uint64_t)devstat_n << 32) |
	    (this->us < 4294967295 ? this->us : 4294967295));
	@devstat_bytes[this->dev, this->op] = sum(args[0]->bio_bcount - args[0]->bio_resid);
	@devstat_level[this->dev] = max(({{threshold_us}} ? {{threshold_us}} : 10000));
}

/* In flight when the probe began, or its entry was dropped. */
io:::done
/args[1]->unit_number >= 0 && devstat_begun[(uint64_t)arg0] == 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	@devstat_unmatched[this->dev, this->op] = count();
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
io:::done
/args[1]->unit_number >= 0 && devstat_begun[(uint64_t)arg0] != 0 &&
    timestamp >= devstat_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	@devstat_above[this->dev, this->op] = count();
	@devstat_suppressed[this->dev] = sum(devstat_tokens > 0 ? 0 : 1);
}

io:::done
/args[1]->unit_number >= 0 && devstat_begun[(uint64_t)arg0] != 0 &&
    devstat_tokens > 0 &&
    timestamp >= devstat_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->begun = devstat_begun[(uint64_t)arg0];
	devstat_tokens--;
	printf("@@ slow devstat %u %s %d %d %d %d %d %d %d %d\n", (uint64_t)arg0, this->dev, this->op,
	    args[0]->bio_offset / 512, args[0]->bio_bcount, this->begun, timestamp, (timestamp - this->begun) / 1000, cpu,
	    (args[0]->bio_flags & 1) != 0 ? 261 : 0);
}

io:::done
/args[1]->unit_number >= 0/
{
	devstat_begun[(uint64_t)arg0] = 0;
}

tick-{{step_ms}}ms
{
	this->tokens = devstat_tokens + ({{step_ms}} * 2 + 24) / 25;
	devstat_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/devstat_n < 2 || timestamp - devstat_at >= {{gate_ns}}/
{
	devstat_at = timestamp;
	printf("@@ tick devstat %d %d\n", devstat_n, timestamp);
	printa("@@Q devstat_total\t%s\t%d\t%@d@@E\n", @devstat_total);
	printa("@@S devstat_sum\t%s\t%d\t%@d\n", @devstat_sum);
	printa("@@S devstat_max\t%s\t%d\t%d\t%@d\n", @devstat_max);
	printa("@@S devstat_bytes\t%s\t%d\t%@d\n", @devstat_bytes);
	printa("@@S devstat_started\t%s\t%d\t%@d\n", @devstat_started);
	printa("@@S devstat_failed\t%s\t%d\t%d\t%@d\n", @devstat_failed);
	printa("@@S devstat_untimed\t%s\t%d\t%@d\n", @devstat_untimed);
	printa("@@S devstat_unmatched\t%s\t%d\t%@d\n", @devstat_unmatched);
	printa("@@S devstat_above\t%s\t%d\t%@d\n", @devstat_above);
	printa("@@S devstat_suppressed\t%s\t%@d\n", @devstat_suppressed);
	printa("@@S devstat_level\t%s\t%@d\n", @devstat_level);
	printf("@@ done devstat\n");
	devstat_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last devstat %d %d\n", devstat_n, timestamp);
	printa("@@Q devstat_total\t%s\t%d\t%@d@@E\n", @devstat_total);
	printa("@@S devstat_sum\t%s\t%d\t%@d\n", @devstat_sum);
	printa("@@S devstat_max\t%s\t%d\t%d\t%@d\n", @devstat_max);
	printa("@@S devstat_bytes\t%s\t%d\t%@d\n", @devstat_bytes);
	printa("@@S devstat_started\t%s\t%d\t%@d\n", @devstat_started);
	printa("@@S devstat_failed\t%s\t%d\t%d\t%@d\n", @devstat_failed);
	printa("@@S devstat_untimed\t%s\t%d\t%@d\n", @devstat_untimed);
	printa("@@S devstat_unmatched\t%s\t%d\t%@d\n", @devstat_unmatched);
	printa("@@S devstat_above\t%s\t%d\t%@d\n", @devstat_above);
	printa("@@S devstat_suppressed\t%s\t%@d\n", @devstat_suppressed);
	printa("@@S devstat_level\t%s\t%@d\n", @devstat_level);
	printf("@@ done devstat\n");
}
