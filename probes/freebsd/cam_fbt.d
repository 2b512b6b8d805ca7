/*
 * cam_fbt: the time above CAM, in CAM and the device, and in CAM's completion, on kernels without CAM's own probes.
 *
 * As cam, by the functions themselves: a driver's call of one is seen, a call that the compiler inlined is not.
 *
 * Read by latmon through cam_fbt.yaml.
 */
BEGIN
{
	cam_fbt_n = 0;
	cam_fbt_at = timestamp;
	cam_fbt_tokens = 40;
	cam_fbt_begun[(uint64_t)0] = (uint64_t)0;
	cam_fbt_waited[(uint64_t)0] = (int64_t)0;
	cam_fbt_first[(uint64_t)0] = (uint64_t)0;
	cam_fbt_sent[(uint64_t)0] = (uint64_t)0;
	cam_fbt_back[(uint64_t)0] = (uint64_t)0;
	cam_fbt_by[(uint64_t)0] = (uint64_t)0;
	cam_fbt_openings[(uint64_t)0] = 0;
	cam_fbt_told[(uint64_t)0] = (uint64_t)0;
	printf("@@ ready cam_fbt %d\n", timestamp);
}

/* What an I/O left behind whose end was not seen is not this one's, which has the same address. */
io:::start
/args[1]->unit_number >= 0/
{
	cam_fbt_begun[(uint64_t)arg0] = timestamp;
	cam_fbt_first[(uint64_t)arg0] = 0;
	cam_fbt_sent[(uint64_t)arg0] = 0;
	cam_fbt_back[(uint64_t)arg0] = 0;
	cam_fbt_by[(uint64_t)arg0] = 0;
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
	cam_fbt_waited[(uint64_t)arg0] = this->waited > 0 ? this->waited : 0;
}

/* Once per try: the first ends the queue, the last begins the device's time. A retry has the same bio. */
fbt::xpt_action:entry
/cam_fbt_begun[(uint64_t)((union ccb *)arg0)->ccb_h.periph_priv.entries[1].ptr] != 0/
{
	this->bio = (uint64_t)((union ccb *)arg0)->ccb_h.periph_priv.entries[1].ptr;
	cam_fbt_first[this->bio] = cam_fbt_first[this->bio] != 0 ? cam_fbt_first[this->bio] : timestamp;
	cam_fbt_sent[this->bio] = timestamp;
}

/* How many commands the device may have at once: printed when it changes, once a second at most. */
fbt::xpt_action:entry
/cam_fbt_begun[(uint64_t)((union ccb *)arg0)->ccb_h.periph_priv.entries[1].ptr] != 0 &&
    ((union ccb *)arg0)->ccb_h.path->periph != 0 &&
    cam_fbt_openings[(uint64_t)((union ccb *)arg0)->ccb_h.path->device] !=
    ((union ccb *)arg0)->ccb_h.path->device->ccbq.dev_openings +
    ((union ccb *)arg0)->ccb_h.path->device->ccbq.dev_active &&
    timestamp - cam_fbt_told[(uint64_t)((union ccb *)arg0)->ccb_h.path->device] >= 1000000000/
{
	this->path = ((union ccb *)arg0)->ccb_h.path;
	this->openings = this->path->device->ccbq.dev_openings + this->path->device->ccbq.dev_active;
	cam_fbt_openings[(uint64_t)this->path->device] = this->openings;
	cam_fbt_told[(uint64_t)this->path->device] = timestamp;
	printf("@@ limit cam_fbt %s %d openings\n",
	    strjoin(stringof(this->path->periph->periph_name), lltostr(this->path->periph->unit_number)), this->openings);
}

fbt::xpt_done:entry,
fbt::xpt_done_direct:entry
/cam_fbt_sent[(uint64_t)((union ccb *)arg0)->ccb_h.periph_priv.entries[1].ptr] != 0/
{
	this->bio = (uint64_t)((union ccb *)arg0)->ccb_h.periph_priv.entries[1].ptr;
	cam_fbt_back[this->bio] = timestamp;
	cam_fbt_by[this->bio] = (uint64_t)curthread;
}

/* Without a CCB of its own, not by CAM or as one of several joined discards, all is the driver's and device's time. */
io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] != 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->begun = cam_fbt_begun[(uint64_t)arg0];
	this->back = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_back[(uint64_t)arg0] : timestamp;
	this->first = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_first[(uint64_t)arg0] : this->begun;
	this->sent = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_sent[(uint64_t)arg0] : this->begun;
	this->queue = cam_fbt_waited[(uint64_t)arg0] + (int64_t)(this->first - this->begun) / 1000;
	this->requeue = (int64_t)(this->sent - this->first) / 1000;
	this->hba = (int64_t)(this->back - this->sent) / 1000;
	this->completion = (int64_t)(timestamp - this->back) / 1000;
	this->us = this->queue + this->requeue + this->hba + this->completion;
	this->by = cam_fbt_by[(uint64_t)arg0];
	@cam_fbt_queue[this->dev, this->op] = llquantize(this->queue * 8, 2, 3, 34, 16);
	@cam_fbt_hba[this->dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@cam_fbt_total[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@cam_fbt_queue_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->queue);
	@cam_fbt_hba_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->hba);
	@cam_fbt_sum[this->dev, this->op] = sum(this->us);
	@cam_fbt_level[this->dev] = max(({{threshold_us}} ? {{threshold_us}} : 10000));
	@cam_fbt_path[this->dev, this->by == 0 ? 2 : this->by == (uint64_t)curthread ? 0 : 1] = count();
}

io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] != 0 && cam_fbt_back[(uint64_t)arg0] != 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->begun = cam_fbt_begun[(uint64_t)arg0];
	this->back = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_back[(uint64_t)arg0] : timestamp;
	this->first = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_first[(uint64_t)arg0] : this->begun;
	this->sent = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_sent[(uint64_t)arg0] : this->begun;
	this->queue = cam_fbt_waited[(uint64_t)arg0] + (int64_t)(this->first - this->begun) / 1000;
	this->requeue = (int64_t)(this->sent - this->first) / 1000;
	this->hba = (int64_t)(this->back - this->sent) / 1000;
	this->completion = (int64_t)(timestamp - this->back) / 1000;
	this->us = this->queue + this->requeue + this->hba + this->completion;
	@cam_fbt_completion[this->dev, this->op] = llquantize(this->completion * 8, 2, 3, 34, 16);
	@cam_fbt_completion_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->completion);
}

io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] != 0 &&
    cam_fbt_back[(uint64_t)arg0] != 0 &&
    cam_fbt_sent[(uint64_t)arg0] != cam_fbt_first[(uint64_t)arg0]/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->begun = cam_fbt_begun[(uint64_t)arg0];
	this->back = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_back[(uint64_t)arg0] : timestamp;
	this->first = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_first[(uint64_t)arg0] : this->begun;
	this->sent = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_sent[(uint64_t)arg0] : this->begun;
	this->queue = cam_fbt_waited[(uint64_t)arg0] + (int64_t)(this->first - this->begun) / 1000;
	this->requeue = (int64_t)(this->sent - this->first) / 1000;
	this->hba = (int64_t)(this->back - this->sent) / 1000;
	this->completion = (int64_t)(timestamp - this->back) / 1000;
	this->us = this->queue + this->requeue + this->hba + this->completion;
	@cam_fbt_requeue[this->dev, this->op] = llquantize(this->requeue * 8, 2, 3, 34, 16);
	@cam_fbt_requeue_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->requeue);
}

/* In flight when the probe began, or its entry was dropped. */
io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] == 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	@cam_fbt_path[this->dev, 64] = count();
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] != 0 &&
    timestamp + (uint64_t)cam_fbt_waited[(uint64_t)arg0] * 1000 >=
    cam_fbt_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	@cam_fbt_above[this->dev, this->op] = count();
	@cam_fbt_suppressed[this->dev] = sum(cam_fbt_tokens > 0 ? 0 : 1);
}

io:::done
/args[1]->unit_number >= 0 && cam_fbt_begun[(uint64_t)arg0] != 0 &&
    cam_fbt_tokens > 0 &&
    timestamp + (uint64_t)cam_fbt_waited[(uint64_t)arg0] * 1000 >=
    cam_fbt_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->cmd = args[0]->bio_cmd;
	this->op = this->cmd == 1 ? 0 : this->cmd == 2 ? 1 : this->cmd == 5 ? 2 : this->cmd == 3 ? 3 : 9;
	this->begun = cam_fbt_begun[(uint64_t)arg0];
	this->back = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_back[(uint64_t)arg0] : timestamp;
	this->first = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_first[(uint64_t)arg0] : this->begun;
	this->sent = cam_fbt_back[(uint64_t)arg0] != 0 ? cam_fbt_sent[(uint64_t)arg0] : this->begun;
	this->queue = cam_fbt_waited[(uint64_t)arg0] + (int64_t)(this->first - this->begun) / 1000;
	this->requeue = (int64_t)(this->sent - this->first) / 1000;
	this->hba = (int64_t)(this->back - this->sent) / 1000;
	this->completion = (int64_t)(timestamp - this->back) / 1000;
	this->us = this->queue + this->requeue + this->hba + this->completion;
	cam_fbt_tokens--;
	printf("@@ slow cam_fbt %u %s %d %d %d %d %d %d %d %d %d %d %d\n", (uint64_t)arg0, this->dev, this->op,
	    args[0]->bio_offset / 512, args[0]->bio_bcount, timestamp - this->us * 1000, timestamp, this->us, this->queue,
	    this->requeue, this->hba, this->completion, cpu);
}

io:::done
/args[1]->unit_number >= 0/
{
	cam_fbt_begun[(uint64_t)arg0] = 0;
	cam_fbt_waited[(uint64_t)arg0] = 0;
	cam_fbt_first[(uint64_t)arg0] = 0;
	cam_fbt_sent[(uint64_t)arg0] = 0;
	cam_fbt_back[(uint64_t)arg0] = 0;
	cam_fbt_by[(uint64_t)arg0] = 0;
}

tick-{{step_ms}}ms
{
	this->tokens = cam_fbt_tokens + ({{step_ms}} * 2 + 24) / 25;
	cam_fbt_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/cam_fbt_n < 2 || timestamp - cam_fbt_at >= {{gate_ns}}/
{
	cam_fbt_at = timestamp;
	printf("@@ tick cam_fbt %d %d\n", cam_fbt_n, timestamp);
	printa("@@Q cam_fbt_queue\t%s\t%d\t%@d@@E\n", @cam_fbt_queue);
	printa("@@Q cam_fbt_requeue\t%s\t%d\t%@d@@E\n", @cam_fbt_requeue);
	printa("@@Q cam_fbt_hba\t%s\t%d\t%@d@@E\n", @cam_fbt_hba);
	printa("@@Q cam_fbt_completion\t%s\t%d\t%@d@@E\n", @cam_fbt_completion);
	printa("@@Q cam_fbt_total\t%s\t%d\t%@d@@E\n", @cam_fbt_total);
	printa("@@Q cam_fbt_queue_by\t%s\t%d\t%@d@@E\n", @cam_fbt_queue_by);
	printa("@@Q cam_fbt_requeue_by\t%s\t%d\t%@d@@E\n", @cam_fbt_requeue_by);
	printa("@@Q cam_fbt_hba_by\t%s\t%d\t%@d@@E\n", @cam_fbt_hba_by);
	printa("@@Q cam_fbt_completion_by\t%s\t%d\t%@d@@E\n", @cam_fbt_completion_by);
	printa("@@S cam_fbt_sum\t%s\t%d\t%@d\n", @cam_fbt_sum);
	printa("@@S cam_fbt_path\t%s\t%d\t%@d\n", @cam_fbt_path);
	printa("@@S cam_fbt_above\t%s\t%d\t%@d\n", @cam_fbt_above);
	printa("@@S cam_fbt_suppressed\t%s\t%@d\n", @cam_fbt_suppressed);
	printa("@@S cam_fbt_level\t%s\t%@d\n", @cam_fbt_level);
	printf("@@ done cam_fbt\n");
	cam_fbt_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last cam_fbt %d %d\n", cam_fbt_n, timestamp);
	printa("@@Q cam_fbt_queue\t%s\t%d\t%@d@@E\n", @cam_fbt_queue);
	printa("@@Q cam_fbt_requeue\t%s\t%d\t%@d@@E\n", @cam_fbt_requeue);
	printa("@@Q cam_fbt_hba\t%s\t%d\t%@d@@E\n", @cam_fbt_hba);
	printa("@@Q cam_fbt_completion\t%s\t%d\t%@d@@E\n", @cam_fbt_completion);
	printa("@@Q cam_fbt_total\t%s\t%d\t%@d@@E\n", @cam_fbt_total);
	printa("@@Q cam_fbt_queue_by\t%s\t%d\t%@d@@E\n", @cam_fbt_queue_by);
	printa("@@Q cam_fbt_requeue_by\t%s\t%d\t%@d@@E\n", @cam_fbt_requeue_by);
	printa("@@Q cam_fbt_hba_by\t%s\t%d\t%@d@@E\n", @cam_fbt_hba_by);
	printa("@@Q cam_fbt_completion_by\t%s\t%d\t%@d@@E\n", @cam_fbt_completion_by);
	printa("@@S cam_fbt_sum\t%s\t%d\t%@d\n", @cam_fbt_sum);
	printa("@@S cam_fbt_path\t%s\t%d\t%@d\n", @cam_fbt_path);
	printa("@@S cam_fbt_above\t%s\t%d\t%@d\n", @cam_fbt_above);
	printa("@@S cam_fbt_suppressed\t%s\t%@d\n", @cam_fbt_suppressed);
	printa("@@S cam_fbt_level\t%s\t%@d\n", @cam_fbt_level);
	printf("@@ done cam_fbt\n");
}
