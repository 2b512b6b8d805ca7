/*
 * taskqs: how long a task waits in a task queue until one of its threads begins with it, per queue.
 *
 * The name is the queue's own and its instance, as kstat -c taskq shows them (unix:INSTANCE:NAME), so that it can be
 * looked up there with its threads, its limits and its priority. Read by latmon through taskqs.yaml.
 *
 * What never comes by here: a driver's loop that was handed to a queue once and runs for ever, waiting on its own
 * condition variable. qlc's completion threads are such (qlc_0_comp_thd: executed 0, totaltime 0, all threads active):
 * neither kstat nor this script measures their latency.
 *
 * A task is known by its entry's address: an entry is used again only after its task began, so a stamp is never
 * another's.
 */
BEGIN
{
	taskqs_n = 0;
	taskqs_at = timestamp;
	taskqs_tokens = 40;
	taskqs_period = 1;
	taskqs_put[(uint64_t)0] = (uint64_t)0;
	taskqs_said[(uint64_t)0] = 0;
	printf("@@ ready taskqs %d\n", timestamp);
}

/*
 * (queue, entry) and, for a queue that makes threads as it needs them, (bucket, entry): the entry is all that is
 * needed.
 */
sdt:::taskq-enqueue,
sdt:::taskq-d-enqueue
{
	taskqs_put[(uint64_t)arg1] = (uint64_t)timestamp;
}

/* (queue, entry) */
sdt:::taskq-exec-start
/taskqs_put[(uint64_t)arg1] && taskqs_said[(uint64_t)arg0] != taskqs_period/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	taskqs_said[(uint64_t)arg0] = taskqs_period;
	printf("@@ thread taskqs %s %d %s\n", this->thread, (int)this->tq->tq_pri, this->thread);
}

sdt:::taskq-exec-start
/taskqs_tokens > 0 && taskqs_put[(uint64_t)arg1] && timestamp - taskqs_put[(uint64_t)arg1] >= 10000000/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	taskqs_tokens--;
	printf("@@ late taskqs %s %d %d %d %s\n", this->thread, (int)this->tq->tq_pri, taskqs_put[(uint64_t)arg1],
	    (timestamp - taskqs_put[(uint64_t)arg1]) / 1000, this->thread);
}

sdt:::taskq-exec-start
/taskqs_put[(uint64_t)arg1]/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	this->us = (timestamp - taskqs_put[(uint64_t)arg1]) / 1000;
	@taskqs_delay[this->thread] = llquantize(this->us * 8, 2, 3, 34, 16);
	@taskqs_sum[this->thread] = sum(this->us);
	taskqs_put[(uint64_t)arg1] = 0;
}

/* (queue, bucket, entry): the same for a queue that makes threads as it needs them. */
sdt:::taskq-d-exec-start
/taskqs_put[(uint64_t)arg2] && taskqs_said[(uint64_t)arg0] != taskqs_period/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	taskqs_said[(uint64_t)arg0] = taskqs_period;
	printf("@@ thread taskqs %s %d %s\n", this->thread, (int)this->tq->tq_pri, this->thread);
}

sdt:::taskq-d-exec-start
/taskqs_tokens > 0 && taskqs_put[(uint64_t)arg2] && timestamp - taskqs_put[(uint64_t)arg2] >= 10000000/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	taskqs_tokens--;
	printf("@@ late taskqs %s %d %d %d %s\n", this->thread, (int)this->tq->tq_pri, taskqs_put[(uint64_t)arg2],
	    (timestamp - taskqs_put[(uint64_t)arg2]) / 1000, this->thread);
}

sdt:::taskq-d-exec-start
/taskqs_put[(uint64_t)arg2]/
{
	this->tq = (taskq_t *)arg0;
	this->thread = strjoin(strjoin("taskq:", stringof(this->tq->tq_name)),
	    strjoin(".", lltostr(this->tq->tq_instance)));
	this->us = (timestamp - taskqs_put[(uint64_t)arg2]) / 1000;
	@taskqs_delay[this->thread] = llquantize(this->us * 8, 2, 3, 34, 16);
	@taskqs_sum[this->thread] = sum(this->us);
	taskqs_put[(uint64_t)arg2] = 0;
}

/* Records: 40 at once, 80 a second. */
tick-{{step_ms}}ms
{
	this->tokens = taskqs_tokens + ({{step_ms}} * 2 + 24) / 25;
	taskqs_tokens = this->tokens < 40 ? this->tokens : 40;
	taskqs_period = 1 + taskqs_n / 60;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/taskqs_n < 2 || timestamp - taskqs_at >= {{gate_ns}}/
{
	taskqs_at = timestamp;
	printf("@@ tick taskqs %d %d\n", taskqs_n, timestamp);
	printa("@@Q taskqs_delay\t%s\t%@d@@E\n", @taskqs_delay);
	printa("@@S taskqs_sum\t%s\t%@d\n", @taskqs_sum);
	printf("@@ done taskqs\n");
	taskqs_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last taskqs %d %d\n", taskqs_n, timestamp);
	printa("@@Q taskqs_delay\t%s\t%@d@@E\n", @taskqs_delay);
	printa("@@S taskqs_sum\t%s\t%@d\n", @taskqs_sum);
	printf("@@ done taskqs\n");
}
