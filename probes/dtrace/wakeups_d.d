/*
 * wakeups_d: waking to running of kernel threads, from the sched provider alone.
 *
 * Portable. off-cpu names the thread that comes next, so that on-cpu isn't needed, which has no events on a Linux
 * without kprobes. In both probes arg0 is the thread's address on every system. Read by latmon through wakeups_d.yaml;
 * keys are printed as columns: thread, other thread. Names can have blanks, so TABs separate a record's fields.
 *
 * Histograms are of eight times the microseconds: so llquantize(, 2, 3, 34, 16) has latmon's own buckets.
 */
BEGIN
{
	wakeups_d_n = 0;
	wakeups_d_at = timestamp;
	wakeups_d_cpu = cpu;
	wakeups_d_lates = 20;
	wakeups_d_woken[(uint64_t)0] = (uint64_t)1;
	wakeups_d_woken[(uint64_t)0] = 0;
	wakeups_d_told[(uint64_t)0] = (int64_t)1;
	wakeups_d_told[(uint64_t)0] = 0;
	wakeups_d_on[(uint64_t)0] = (uint64_t)1;
	wakeups_d_on[(uint64_t)0] = 0;
	printf("@@ ready wakeups_d %d\n", timestamp);
}

sched:::wakeup
/{{kernel}}/
{
	wakeups_d_woken[(uint64_t)arg0] = (uint64_t)timestamp;
}

/*
 * Without a predicate and without anything that can fault, so what it sets is always this switch's. A thread that was woken before it had left
 * its CPU waits for nothing: its stamp is dropped when it leaves. Of a wait only the last thread's turn is known.
 */
sched:::off-cpu
{
	wakeups_d_woken[(uint64_t)curthread] = 0;
	this->wakeups_d_woken = wakeups_d_woken[(uint64_t)arg0];
	this->wakeups_d_us = this->wakeups_d_woken != 0 && this->wakeups_d_woken < timestamp ?
	    (timestamp - this->wakeups_d_woken) / 1000 : 0;
	this->wakeups_d_on = wakeups_d_on[(uint64_t)cpu];
	wakeups_d_on[(uint64_t)cpu] = (uint64_t)timestamp;
	this->wakeups_d_ran = this->wakeups_d_on == 0 ? 0 : this->wakeups_d_on <= this->wakeups_d_woken ?
	    this->wakeups_d_us : (timestamp - this->wakeups_d_on) / 1000;
}

/* A thread's priority is printed when it changes, and again every 64 ticks: a line can be lost. */
sched:::off-cpu
/this->wakeups_d_woken != 0 &&
    wakeups_d_told[(uint64_t)arg0] != (wakeups_d_n / 64 + 1) * 100000 + {{priority}}/
{
	wakeups_d_told[(uint64_t)arg0] = (int64_t)((wakeups_d_n / 64 + 1) * 100000 + {{priority}});
	printf("@@ thread wakeups_d {{form}}\t%d\t{{form}}\n", {{thread}}, {{priority}}, {{thread}});
}

sched:::off-cpu
/this->wakeups_d_us >= 1000/
{
	@wakeups_d_instead[{{thread}}, {{other}}] = count();
	@wakeups_d_ran[{{thread}}, {{other}}] = sum(this->wakeups_d_ran);
	@wakeups_d_rest[{{thread}}] = sum(this->wakeups_d_us - this->wakeups_d_ran);
}

sched:::off-cpu
/this->wakeups_d_us >= 1000 && wakeups_d_lates > 0/
{
	wakeups_d_lates--;
	printf("@@ late wakeups_d {{form}}\t%d\t%d\t%d\t%d\t{{form}}\n", {{thread}}, {{priority}}, this->wakeups_d_woken,
	    this->wakeups_d_us, curlwpsinfo->pr_pri, {{thread}});
}

sched:::off-cpu
/this->wakeups_d_woken != 0/
{
	@wakeups_d_delay[{{thread}}] = llquantize(this->wakeups_d_us * 8, 2, 3, 34, 16);
	@wakeups_d_sum[{{thread}}] = sum(this->wakeups_d_us);
	wakeups_d_woken[(uint64_t)arg0] = 0;
}

/* 20 records at once, 100 a second. */
profile-{{step_ms}}ms
/cpu == wakeups_d_cpu/
{
	this->wakeups_d_lates = wakeups_d_lates + ({{step_ms}} + 9) / 10;
	wakeups_d_lates = this->wakeups_d_lates < 20 ? this->wakeups_d_lates : 20;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little. On each CPU, because Oracle's tick-N fires on one of its choice, on an idle host never:
 * the CPU that ticked last goes on, another one takes over where it is late.
 */
profile-{{step_ms}}ms
/(wakeups_d_n < 2 && cpu == wakeups_d_cpu) ||
    timestamp - wakeups_d_at >= {{gate_ns}} + (cpu == wakeups_d_cpu ? 0 : 150000000)/
{
	wakeups_d_at = timestamp;
	wakeups_d_cpu = cpu;
	printf("@@ tick wakeups_d %d %d\n", wakeups_d_n, timestamp);
	printa("@@Q wakeups_d_delay\t{{form}}\t%@d@@E\n", @wakeups_d_delay);
	printa("@@S wakeups_d_sum\t{{form}}\t%@d\n", @wakeups_d_sum);
	printa("@@S wakeups_d_instead\t{{form}}\t{{form}}\t%@d\n", @wakeups_d_instead);
	printa("@@S wakeups_d_ran\t{{form}}\t{{form}}\t%@d\n", @wakeups_d_ran);
	printa("@@S wakeups_d_ran\t{{form}}\tidle or not known\t%@d\n", @wakeups_d_rest);
	printf("@@ done wakeups_d\n");
	wakeups_d_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last wakeups_d %d %d\n", wakeups_d_n, timestamp);
	printa("@@Q wakeups_d_delay\t{{form}}\t%@d@@E\n", @wakeups_d_delay);
	printa("@@S wakeups_d_sum\t{{form}}\t%@d\n", @wakeups_d_sum);
	printa("@@S wakeups_d_instead\t{{form}}\t{{form}}\t%@d\n", @wakeups_d_instead);
	printa("@@S wakeups_d_ran\t{{form}}\t{{form}}\t%@d\n", @wakeups_d_ran);
	printa("@@S wakeups_d_ran\t{{form}}\tidle or not known\t%@d\n", @wakeups_d_rest);
	printf("@@ done wakeups_d\n");
}
