/*
 * callouts: run time of what timeout(9F) calls, per function.
 *
 * A callout that runs long holds up those behind it in its table, and a driver's watchdog that does so is as good a
 * culprit as an interrupt handler: it is shown among them, as "callout:MODULE`FUNCTION". Read by latmon through
 * callouts.yaml; returned is always 1, histograms are of eight times the microseconds.
 *
 * The function is read at the start: at the end the callout may have been armed again for another function.
 */
BEGIN
{
	callouts_n = 0;
	callouts_at = timestamp;
	printf("@@ ready callouts %d\n", timestamp);
}

/* self->, because callouts of the real-time table run at interrupt level and interrupt those of the other. */
sdt:::callout-start
{
	self->callouts_func = (uint64_t)((callout_t *)arg0)->c_func;
	self->callouts_begun = (uint64_t)timestamp;
}

sdt:::callout-end
/self->callouts_begun/
{
	this->us = (timestamp - self->callouts_begun + 500) / 1000;
	@callouts_run[self->callouts_func, 1] = llquantize(this->us * 8, 2, 3, 34, 16);
	@callouts_sum[self->callouts_func, 1] = sum(this->us);
	self->callouts_func = 0;
	self->callouts_begun = 0;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/callouts_n < 2 || timestamp - callouts_at >= {{gate_ns}}/
{
	callouts_at = timestamp;
	printf("@@ tick callouts %d %d\n", callouts_n, timestamp);
	printa("@@Q callouts_run\tcallout:%a\t%d\t%@d@@E\n", @callouts_run);
	printa("@@S callouts_sum\tcallout:%a\t%d\t%@d\n", @callouts_sum);
	printf("@@ done callouts\n");
	callouts_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last callouts %d %d\n", callouts_n, timestamp);
	printa("@@Q callouts_run\tcallout:%a\t%d\t%@d@@E\n", @callouts_run);
	printa("@@S callouts_sum\tcallout:%a\t%d\t%@d\n", @callouts_sum);
	printf("@@ done callouts\n");
}
