/*
 * geom: the time in GEOM above each disk, and the time in the disk's driver and device.
 *
 * A bio that reaches a disk is a clone, one for each piece. Its own stamp is set when it is handed to the driver, that
 * of each bio above it when it was given to GEOM; the topmost is the one that the file system or device node made. The
 * wait in GEOM is the difference of these two stamps, and each piece is counted once, at its disk. The rest is timed
 * between the two probes, for the stamps' clock can't be read here.
 *
 * Read by latmon through geom.yaml. Histograms are of eight times the microseconds; a map *_by adds a stage's
 * microseconds up in the bucket of the total.
 */
BEGIN
{
	geom_n = 0;
	geom_at = timestamp;
	geom_tokens = 40;
	geom_begun[(uint64_t)0] = (uint64_t)0;
	geom_waited[(uint64_t)0] = (int64_t)0;
	printf("@@ ready geom %d\n", timestamp);
}

/* A bio above without a stamp never went through GEOM: a device node's reader made it. */
io:::start
/args[1]->unit_number >= 0/
{
	geom_begun[(uint64_t)arg0] = timestamp;
	this->top = args[0];
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->up = this->top->bio_parent;
	this->top = this->up != 0 && this->up->bio_t0.sec != 0 ? this->up : this->top;
	this->waited = ((int64_t)args[0]->bio_t0.sec - (int64_t)this->top->bio_t0.sec) * 1000000 +
	    (int64_t)(((args[0]->bio_t0.frac >> 32) * 1000000) >> 32) -
	    (int64_t)(((this->top->bio_t0.frac >> 32) * 1000000) >> 32);
	geom_waited[(uint64_t)arg0] = this->waited > 0 ? this->waited : 0;
}

io:::done
/args[1]->unit_number >= 0 && geom_begun[(uint64_t)arg0] != 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->queue = geom_waited[(uint64_t)arg0];
	this->hba = (int64_t)(timestamp - geom_begun[(uint64_t)arg0]) / 1000;
	this->us = this->queue + this->hba;
	@geom_queue[this->dev, this->op] = llquantize(this->queue * 8, 2, 3, 34, 16);
	@geom_hba[this->dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@geom_total[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@geom_queue_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->queue);
	@geom_hba_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->hba);
	@geom_sum[this->dev, this->op] = sum(this->us);
	@geom_level[this->dev] = max(({{threshold_us}} ? {{threshold_us}} : 10000));
	@geom_path[this->dev, 0] = count();
}

/* In flight when the probe began, or its entry was dropped. */
io:::done
/args[1]->unit_number >= 0 && geom_begun[(uint64_t)arg0] == 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	@geom_path[this->dev, 64] = count();
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
io:::done
/args[1]->unit_number >= 0 && geom_begun[(uint64_t)arg0] != 0 &&
    timestamp + (uint64_t)geom_waited[(uint64_t)arg0] * 1000 >=
    geom_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	@geom_above[this->dev, this->op] = count();
	@geom_suppressed[this->dev] = sum(geom_tokens > 0 ? 0 : 1);
}

io:::done
/args[1]->unit_number >= 0 && geom_begun[(uint64_t)arg0] != 0 &&
    geom_tokens > 0 &&
    timestamp + (uint64_t)geom_waited[(uint64_t)arg0] * 1000 >=
    geom_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->queue = geom_waited[(uint64_t)arg0];
	this->hba = (int64_t)(timestamp - geom_begun[(uint64_t)arg0]) / 1000;
	this->us = this->queue + this->hba;
	geom_tokens--;
	printf("@@ slow geom %u %s %d %d %d %d %d %d %d %d %d\n", (uint64_t)arg0, this->dev, this->op,
	    args[0]->bio_offset / 512, args[0]->bio_bcount, timestamp - this->us * 1000, timestamp, this->us, this->queue,
	    this->hba, cpu);
}

io:::done
/args[1]->unit_number >= 0/
{
	geom_begun[(uint64_t)arg0] = 0;
	geom_waited[(uint64_t)arg0] = 0;
}

tick-{{step_ms}}ms
{
	this->tokens = geom_tokens + ({{step_ms}} * 2 + 24) / 25;
	geom_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/geom_n < 2 || timestamp - geom_at >= {{gate_ns}}/
{
	geom_at = timestamp;
	printf("@@ tick geom %d %d\n", geom_n, timestamp);
	printa("@@Q geom_queue\t%s\t%d\t%@d@@E\n", @geom_queue);
	printa("@@Q geom_hba\t%s\t%d\t%@d@@E\n", @geom_hba);
	printa("@@Q geom_total\t%s\t%d\t%@d@@E\n", @geom_total);
	printa("@@Q geom_queue_by\t%s\t%d\t%@d@@E\n", @geom_queue_by);
	printa("@@Q geom_hba_by\t%s\t%d\t%@d@@E\n", @geom_hba_by);
	printa("@@S geom_sum\t%s\t%d\t%@d\n", @geom_sum);
	printa("@@S geom_path\t%s\t%d\t%@d\n", @geom_path);
	printa("@@S geom_above\t%s\t%d\t%@d\n", @geom_above);
	printa("@@S geom_suppressed\t%s\t%@d\n", @geom_suppressed);
	printa("@@S geom_level\t%s\t%@d\n", @geom_level);
	printf("@@ done geom\n");
	geom_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last geom %d %d\n", geom_n, timestamp);
	printa("@@Q geom_queue\t%s\t%d\t%@d@@E\n", @geom_queue);
	printa("@@Q geom_hba\t%s\t%d\t%@d@@E\n", @geom_hba);
	printa("@@Q geom_total\t%s\t%d\t%@d@@E\n", @geom_total);
	printa("@@Q geom_queue_by\t%s\t%d\t%@d@@E\n", @geom_queue_by);
	printa("@@Q geom_hba_by\t%s\t%d\t%@d@@E\n", @geom_hba_by);
	printa("@@S geom_sum\t%s\t%d\t%@d\n", @geom_sum);
	printa("@@S geom_path\t%s\t%d\t%@d\n", @geom_path);
	printa("@@S geom_above\t%s\t%d\t%@d\n", @geom_above);
	printa("@@S geom_suppressed\t%s\t%@d\n", @geom_suppressed);
	printa("@@S geom_level\t%s\t%@d\n", @geom_level);
	printf("@@ done geom\n");
}
