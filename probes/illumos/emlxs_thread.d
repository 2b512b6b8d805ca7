/*
 * emlxs_thread: how long the completion threads of an Emulex HBA wait for a CPU after they were woken, and who had it.
 *
 * emlxs has a thread for each completion queue: the interrupt puts packets on the queue and signals it (cv_signal),
 * and until it runs all of them wait. Its priority is two below the highest of the system's class, so 97, and threads
 * of task queues and of ZFS at 99 go first. Read by latmon through emlxs_thread.yaml; a thread's name is its port and
 * channel.
 *
 * Wake-up to running, not the time in resume or cv_wait: that is how long a thread was off its CPU, which an idle one
 * is for seconds, because nothing was there to do.
 */
BEGIN
{
	emlxs_thread_n = 0;
	emlxs_thread_at = timestamp;
	emlxs_thread_tokens = 40;
	emlxs_thread_period = 1;
	emlxs_thread_port[(uint64_t)0] = 0;
	emlxs_thread_channel[(uint64_t)0] = 0;
	emlxs_thread_woken[(uint64_t)0] = (uint64_t)0;
	emlxs_thread_instead_pri[(uint64_t)0] = 0;
	emlxs_thread_who[(uint64_t)0] = "-1";
	emlxs_thread_said[(uint64_t)0] = 0;
	emlxs_thread_on[(uint64_t)0] = (uint64_t)0;
	printf("@@ ready emlxs_thread %d\n", timestamp);
}

/* (hba, channel): whose completion thread this is. Before its first run it has no name and is not counted. */
fbt:emlxs:emlxs_proc_channel:entry
{
	emlxs_thread_port[(uint64_t)curthread] = ((emlxs_hba_t *)arg0)->ddiinst + 1;
	emlxs_thread_channel[(uint64_t)curthread] = ((CHANNEL *)arg1)->channelno;
}

/* (the thread that is woken). Its start function is compared first: that is all that other threads' wake-ups pay. */
sched:::wakeup
/(uint64_t)((kthread_t *)arg0)->t_startpc == (uint64_t)&emlxs`emlxs_thread &&
    emlxs_thread_port[(uint64_t)arg0]/
{
	emlxs_thread_woken[(uint64_t)arg0] = (uint64_t)timestamp;
}

/*
 * (the next thread), in the thread that leaves the CPU: what ran where the completion thread should have, and for how
 * long since it was switched to. Threads of the kernel's own process are all called sched, so they are known by their
 * start function.
 */
sched:::off-cpu
/(uint64_t)((kthread_t *)arg0)->t_startpc == (uint64_t)&emlxs`emlxs_thread && emlxs_thread_woken[(uint64_t)arg0] &&
    timestamp - emlxs_thread_woken[(uint64_t)arg0] >= 1000000/
{
	emlxs_thread_instead_pri[(uint64_t)arg0] = (int)((kthread_t *)curthread)->t_pri;
	emlxs_thread_who[(uint64_t)arg0] = pid != 0 ? execname : "-1";
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)arg0] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)arg0])));
	this->woken = emlxs_thread_woken[(uint64_t)arg0];
	this->on = emlxs_thread_on[(uint64_t)cpu];
	this->begin = this->on == 0 ? (uint64_t)timestamp : this->on > this->woken ? this->on : this->woken;
	@emlxs_thread_rest[this->thread] = sum((this->begin - this->woken) / 1000);
}

sched:::off-cpu
/(uint64_t)((kthread_t *)arg0)->t_startpc == (uint64_t)&emlxs`emlxs_thread && emlxs_thread_woken[(uint64_t)arg0] &&
    timestamp - emlxs_thread_woken[(uint64_t)arg0] >= 1000000 && pid != 0/
{
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)arg0] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)arg0])));
	this->woken = emlxs_thread_woken[(uint64_t)arg0];
	this->on = emlxs_thread_on[(uint64_t)cpu];
	this->begin = this->on == 0 ? (uint64_t)timestamp : this->on > this->woken ? this->on : this->woken;
	@emlxs_thread_instead[this->thread, execname] = count();
	@emlxs_thread_ran[this->thread, execname] = sum((timestamp - this->begin) / 1000);
}

/* The priority of the process that had the CPU. */
sched:::off-cpu
/emlxs_thread_tokens > 0 && (uint64_t)((kthread_t *)arg0)->t_startpc == (uint64_t)&emlxs`emlxs_thread &&
    emlxs_thread_woken[(uint64_t)arg0] && timestamp - emlxs_thread_woken[(uint64_t)arg0] >= 1000000 && pid != 0/
{
	printf("@@ thread emlxs_thread %s\t%d\t%s\n", execname, (int)((kthread_t *)curthread)->t_pri, execname);
}

sched:::off-cpu
/(uint64_t)((kthread_t *)arg0)->t_startpc == (uint64_t)&emlxs`emlxs_thread && emlxs_thread_woken[(uint64_t)arg0] &&
    timestamp - emlxs_thread_woken[(uint64_t)arg0] >= 1000000 && pid == 0/
{
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)arg0] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)arg0])));
	this->woken = emlxs_thread_woken[(uint64_t)arg0];
	this->on = emlxs_thread_on[(uint64_t)cpu];
	this->begin = this->on == 0 ? (uint64_t)timestamp : this->on > this->woken ? this->on : this->woken;
	@emlxs_thread_instead_kernel[this->thread, (uint64_t)((kthread_t *)curthread)->t_startpc] = count();
	@emlxs_thread_ran_kernel[this->thread, (uint64_t)((kthread_t *)curthread)->t_startpc] =
	    sum((timestamp - this->begin) / 1000);
}

/* Each thread's switch, after what reads the one before. */
sched:::off-cpu
{
	emlxs_thread_on[(uint64_t)cpu] = (uint64_t)timestamp;
}

/* Again now and then: a line can be lost, and the priority can be changed (priocntl, dispadmin). */
sched:::on-cpu
/(uint64_t)((kthread_t *)curthread)->t_startpc == (uint64_t)&emlxs`emlxs_thread &&
    emlxs_thread_woken[(uint64_t)curthread] &&
    emlxs_thread_said[(uint64_t)curthread] != (int)((kthread_t *)curthread)->t_pri + 1000 * emlxs_thread_period/
{
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)curthread] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)curthread])));
	emlxs_thread_said[(uint64_t)curthread] = (int)((kthread_t *)curthread)->t_pri + 1000 * emlxs_thread_period;
	printf("@@ thread emlxs_thread %s\t%d\t%s\n", this->thread, (int)((kthread_t *)curthread)->t_pri, this->thread);
}

sched:::on-cpu
/emlxs_thread_tokens > 0 && (uint64_t)((kthread_t *)curthread)->t_startpc == (uint64_t)&emlxs`emlxs_thread &&
    emlxs_thread_woken[(uint64_t)curthread] && timestamp - emlxs_thread_woken[(uint64_t)curthread] >= 1000000/
{
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)curthread] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)curthread])));
	emlxs_thread_tokens--;
	printf("@@ late emlxs_thread %s\t%d\t%d\t%d\t%s\t%d\t%s\n", this->thread, (int)((kthread_t *)curthread)->t_pri,
	    emlxs_thread_woken[(uint64_t)curthread], (timestamp - emlxs_thread_woken[(uint64_t)curthread]) / 1000,
	    emlxs_thread_who[(uint64_t)curthread], emlxs_thread_instead_pri[(uint64_t)curthread], this->thread);
}

sched:::on-cpu
/(uint64_t)((kthread_t *)curthread)->t_startpc == (uint64_t)&emlxs`emlxs_thread &&
    emlxs_thread_woken[(uint64_t)curthread]/
{
	this->thread = strjoin(strjoin("emlxs", lltostr(emlxs_thread_port[(uint64_t)curthread] - 1)),
	    strjoin("_channel", lltostr(emlxs_thread_channel[(uint64_t)curthread])));
	this->us = (timestamp - emlxs_thread_woken[(uint64_t)curthread]) / 1000;
	@emlxs_thread_delay[this->thread] = llquantize(this->us * 8, 2, 3, 34, 16);
	@emlxs_thread_sum[this->thread] = sum(this->us);
	emlxs_thread_woken[(uint64_t)curthread] = 0;
	emlxs_thread_instead_pri[(uint64_t)curthread] = 0;
	emlxs_thread_who[(uint64_t)curthread] = 0;
}

/* Records: 40 at once, 80 a second. */
tick-{{step_ms}}ms
{
	this->tokens = emlxs_thread_tokens + ({{step_ms}} * 2 + 24) / 25;
	emlxs_thread_tokens = this->tokens < 40 ? this->tokens : 40;
	emlxs_thread_period = 1 + emlxs_thread_n / 60;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/emlxs_thread_n < 2 || timestamp - emlxs_thread_at >= {{gate_ns}}/
{
	emlxs_thread_at = timestamp;
	printf("@@ tick emlxs_thread %d %d\n", emlxs_thread_n, timestamp);
	printa("@@Q emlxs_thread_delay\t%s\t%@d@@E\n", @emlxs_thread_delay);
	printa("@@S emlxs_thread_sum\t%s\t%@d\n", @emlxs_thread_sum);
	printa("@@S emlxs_thread_instead\t%s\t%s\t%@d\n", @emlxs_thread_instead);
	printa("@@S emlxs_thread_instead_kernel\t%s\t%a\t%@d\n", @emlxs_thread_instead_kernel);
	printa("@@S emlxs_thread_ran\t%s\t%s\t%@d\n", @emlxs_thread_ran);
	printa("@@S emlxs_thread_ran\t%s\tidle or not known\t%@d\n", @emlxs_thread_rest);
	printa("@@S emlxs_thread_ran_kernel\t%s\t%a\t%@d\n", @emlxs_thread_ran_kernel);
	printf("@@ done emlxs_thread\n");
	emlxs_thread_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last emlxs_thread %d %d\n", emlxs_thread_n, timestamp);
	printa("@@Q emlxs_thread_delay\t%s\t%@d@@E\n", @emlxs_thread_delay);
	printa("@@S emlxs_thread_sum\t%s\t%@d\n", @emlxs_thread_sum);
	printa("@@S emlxs_thread_instead\t%s\t%s\t%@d\n", @emlxs_thread_instead);
	printa("@@S emlxs_thread_instead_kernel\t%s\t%a\t%@d\n", @emlxs_thread_instead_kernel);
	printa("@@S emlxs_thread_ran\t%s\t%s\t%@d\n", @emlxs_thread_ran);
	printa("@@S emlxs_thread_ran\t%s\tidle or not known\t%@d\n", @emlxs_thread_rest);
	printa("@@S emlxs_thread_ran_kernel\t%s\t%a\t%@d\n", @emlxs_thread_ran_kernel);
	printf("@@ done emlxs_thread\n");
}
