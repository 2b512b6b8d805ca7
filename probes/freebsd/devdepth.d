/*
 * devdepth: how many I/Os a disk's driver and device have, at each new one and over the time.
 *
 * Nothing is counted here: the kernel's own statistics count what a disk was given and what it gave back, and both
 * probes come after their count. The time at a depth is the time since the disk's last event, in microseconds of one
 * clock, so that no rounding adds up.
 *
 * Read by latmon through devdepth.yaml. Depths as map keys: exact to 256, from 257 on index 257 + 8 per octave, 288 for
 * 3841 and more.
 */
BEGIN
{
	devdepth_n = 0;
	devdepth_at = timestamp;
	devdepth_since[(uint64_t)0] = (uint64_t)0;
	printf("@@ ready devdepth %d\n", timestamp);
}

/* With this one, and before it one less. */
io:::start
/args[1]->unit_number >= 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->now = timestamp / 1000;
	this->since = devdepth_since[(uint64_t)arg1];
	this->depth = (uint32_t)(args[1]->start_count - args[1]->end_count);
	this->coded = this->depth <= 256 ? this->depth :
	    this->depth <= 512 ? 257 + (((this->depth - 1) >> 5) & 7) :
	    this->depth <= 1024 ? 265 + (((this->depth - 1) >> 6) & 7) :
	    this->depth <= 2048 ? 273 + (((this->depth - 1) >> 7) & 7) :
	    this->depth <= 4096 ? 281 + (((this->depth - 1) >> 8) & 7) : 288;
	@devdepth_issue[this->dev, this->coded] = count();
	this->depth = this->depth > 0 ? this->depth - 1 : 0;
	this->coded = this->depth <= 256 ? this->depth :
	    this->depth <= 512 ? 257 + (((this->depth - 1) >> 5) & 7) :
	    this->depth <= 1024 ? 265 + (((this->depth - 1) >> 6) & 7) :
	    this->depth <= 2048 ? 273 + (((this->depth - 1) >> 7) & 7) :
	    this->depth <= 4096 ? 281 + (((this->depth - 1) >> 8) & 7) : 288;
	@devdepth_driver[this->dev, this->coded] =
	    sum(this->since != 0 && this->now > this->since ? this->now - this->since : 0);
	devdepth_since[(uint64_t)arg1] = this->now;
}

/* Until now there was one more. */
io:::done
/args[1]->unit_number >= 0/
{
	this->dev = strjoin(stringof(args[1]->device_name), lltostr(args[1]->unit_number));
	this->now = timestamp / 1000;
	this->since = devdepth_since[(uint64_t)arg1];
	this->depth = (uint32_t)(args[1]->start_count - args[1]->end_count) + 1;
	this->coded = this->depth <= 256 ? this->depth :
	    this->depth <= 512 ? 257 + (((this->depth - 1) >> 5) & 7) :
	    this->depth <= 1024 ? 265 + (((this->depth - 1) >> 6) & 7) :
	    this->depth <= 2048 ? 273 + (((this->depth - 1) >> 7) & 7) :
	    this->depth <= 4096 ? 281 + (((this->depth - 1) >> 8) & 7) : 288;
	@devdepth_driver[this->dev, this->coded] =
	    sum(this->since != 0 && this->now > this->since ? this->now - this->since : 0);
	devdepth_since[(uint64_t)arg1] = this->now;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/devdepth_n < 2 || timestamp - devdepth_at >= {{gate_ns}}/
{
	devdepth_at = timestamp;
	printf("@@ tick devdepth %d %d\n", devdepth_n, timestamp);
	printa("@@S devdepth_issue\t%s\t%d\t%@d\n", @devdepth_issue);
	printa("@@S devdepth_driver\t%s\t%d\t%@d\n", @devdepth_driver);
	printf("@@ done devdepth\n");
	devdepth_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last devdepth %d %d\n", devdepth_n, timestamp);
	printa("@@S devdepth_issue\t%s\t%d\t%@d\n", @devdepth_issue);
	printa("@@S devdepth_driver\t%s\t%d\t%@d\n", @devdepth_driver);
	printf("@@ done devdepth\n");
}
