/*
 * resume_d: from the end of an I/O to its waiting thread running again, per device and op: the stage resume.
 *
 * Portable: io:::wait-start and wait-done are in biowait(), or what a Linux has in its place; so it measures I/Os that
 * a thread waits for by itself, not asynchronous ones. Read by latmon through resume_d.yaml; keys are printed as columns:
 * device, op.
 *
 * Histograms are of eight times the microseconds: so llquantize(, 2, 3, 34, 16) has latmon's own buckets.
 */
BEGIN
{
	resume_d_n = 0;
	resume_d_at = timestamp;
	resume_d_cpu = cpu;
	resume_d_tokens = 20;
	resume_d_waited[(uint64_t)0] = (uint64_t)1;
	resume_d_waited[(uint64_t)0] = 0;
	resume_d_ended[(uint64_t)0] = (uint64_t)1;
	resume_d_ended[(uint64_t)0] = 0;
	printf("@@ ready resume_d %d\n", timestamp);
}

io:::wait-start
{
	resume_d_waited[(uint64_t)arg0] = 1;
}

io:::done
/resume_d_waited[(uint64_t)arg0] != 0/
{
	resume_d_ended[(uint64_t)arg0] = (uint64_t)timestamp;
}

/*
 * Without a predicate. What makes the next clauses count is emptied before anything of the I/O is read and set last, so that
 * a read that faults leaves them nothing of another I/O.
 */
io:::wait-done
{
	this->resume_d_ended = (uint64_t)0;
	this->resume_d_us = (uint64_t)0;
	this->resume_d_dev = {{dev}};
	this->resume_d_code = {{code}};
	this->resume_d_op = this->resume_d_code < 4 ? this->resume_d_code : this->resume_d_code == 7 ? 1 : 9;
	this->resume_d_ended = resume_d_ended[(uint64_t)arg0];
	this->resume_d_us = this->resume_d_ended != 0 && this->resume_d_ended < timestamp ?
	    (timestamp - this->resume_d_ended) / 1000 : 0;
	resume_d_waited[(uint64_t)arg0] = 0;
	resume_d_ended[(uint64_t)arg0] = 0;
}

io:::wait-done
/this->resume_d_ended != 0/
{
	@resume_d_resume[this->resume_d_dev, this->resume_d_op] = llquantize(this->resume_d_us * 8, 2, 3, 34, 16);
	@resume_d_sum[this->resume_d_dev, this->resume_d_op] = sum(this->resume_d_us);
}

io:::wait-done
/this->resume_d_us >= 1000 && resume_d_tokens > 0/
{
	resume_d_tokens--;
	printf("@@ resumed resume_d %u {{form}} %d %d %d %d %s\n", arg0, this->resume_d_dev, args[0]->b_blkno,
	    this->resume_d_ended, this->resume_d_us, curlwpsinfo->pr_pri, execname);
}

/* 20 records at once, 100 a second. */
profile-{{step_ms}}ms
/cpu == resume_d_cpu/
{
	this->resume_d_tokens = resume_d_tokens + ({{step_ms}} + 9) / 10;
	resume_d_tokens = this->resume_d_tokens < 20 ? this->resume_d_tokens : 20;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little. On each CPU, because Oracle's tick-N fires on one of its choice, on an idle host never:
 * the CPU that ticked last goes on, another one takes over where it is late.
 */
profile-{{step_ms}}ms
/(resume_d_n < 2 && cpu == resume_d_cpu) ||
    timestamp - resume_d_at >= {{gate_ns}} + (cpu == resume_d_cpu ? 0 : 150000000)/
{
	resume_d_at = timestamp;
	resume_d_cpu = cpu;
	printf("@@ tick resume_d %d %d\n", resume_d_n, timestamp);
	printa("@@Q resume_d_resume\t{{form}}\t%d\t%@d@@E\n", @resume_d_resume);
	printa("@@S resume_d_sum\t{{form}}\t%d\t%@d\n", @resume_d_sum);
	printf("@@ done resume_d\n");
	resume_d_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last resume_d %d %d\n", resume_d_n, timestamp);
	printa("@@Q resume_d_resume\t{{form}}\t%d\t%@d@@E\n", @resume_d_resume);
	printa("@@S resume_d_sum\t{{form}}\t%d\t%@d\n", @resume_d_sum);
	printf("@@ done resume_d\n");
}
