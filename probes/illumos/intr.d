/*
 * intr: run time of every interrupt handler by what it returned, and what the handlers asked before it took.
 *
 * Also of those that are not handled (unclaimed): it is their time that the others on a shared vector wait for. A
 * handler is known by its device (mpt_sas0), one without a device by its function (genunix`cbe_fire). Read by latmon
 * through intr.yaml; returned: 0 unclaimed, 1 claimed; histograms are of eight times the microseconds.
 *
 * self-> and not the CPU as the key: an interrupt up to the dispatcher's level runs in a thread of its own, and DTrace
 * keeps the thread-local variables of each higher level apart, so a handler that is interrupted by another one keeps
 * its stamp.
 *
 * The probes don't report which handlers share a vector. Those that ran in the same interrupt thread and claimed nothing
 * since the last claim are taken to share it. When the first of them is called again, the chain began again (on a shared
 * vector the kernel calls the whole chain until no handler claims the interrupt), and the handlers before it are dropped.
 */
BEGIN
{
	intr_n = 0;
	intr_at = timestamp;
	self->intr_first = (uint64_t)0;
	self->intr_before = (uint64_t)0;
	printf("@@ ready intr %d\n", timestamp);
}

/* (device, handler, its first argument, its second) */
sdt:::interrupt-start
/self->intr_first == (uint64_t)arg1 + (uint64_t)arg2/
{
	self->intr_before = 0;
}

sdt:::interrupt-start
{
	self->intr_begun = (uint64_t)timestamp;
}

/* (device, handler, its first argument, what it returned). A device without a driver's number has no name. */
sdt:::interrupt-complete
/self->intr_begun && arg0 != 0 && (int)((struct dev_info *)arg0)->devi_major >= 0/
{
	this->dip = (struct dev_info *)arg0;
	this->handler = strjoin(stringof(`devnamesp[this->dip->devi_major].dn_name), lltostr(this->dip->devi_instance));
	this->returned = (uint32_t)arg3 ? 1 : 0;
	this->us = (timestamp - self->intr_begun + 500) / 1000;
	@intr_run[this->handler, this->returned] = llquantize(this->us * 8, 2, 3, 34, 16);
	@intr_sum[this->handler, this->returned] = sum(this->us);
	@intr_waited[this->handler] = sum(this->returned ? (self->intr_before + 500) / 1000 : 0);
}

sdt:::interrupt-complete
/self->intr_begun && (arg0 == 0 || (int)((struct dev_info *)arg0)->devi_major < 0)/
{
	this->returned = (uint32_t)arg3 ? 1 : 0;
	this->us = (timestamp - self->intr_begun + 500) / 1000;
	@intr_own_run[(uint64_t)arg1, this->returned] = llquantize(this->us * 8, 2, 3, 34, 16);
	@intr_own_sum[(uint64_t)arg1, this->returned] = sum(this->us);
}

sdt:::interrupt-complete
/self->intr_begun && (uint32_t)arg3 == 0/
{
	self->intr_first = self->intr_first ? self->intr_first : (uint64_t)arg1 + (uint64_t)arg2;
	self->intr_before = self->intr_before + (uint64_t)timestamp - self->intr_begun;
}

sdt:::interrupt-complete
/(uint32_t)arg3 != 0/
{
	self->intr_first = 0;
	self->intr_before = 0;
}

/* Emptied, because one that the kernel didn't show must not be timed from the interrupt before. */
sdt:::interrupt-complete
{
	self->intr_begun = 0;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/intr_n < 2 || timestamp - intr_at >= {{gate_ns}}/
{
	intr_at = timestamp;
	printf("@@ tick intr %d %d\n", intr_n, timestamp);
	printa("@@Q intr_run\t%s\t%d\t%@d@@E\n", @intr_run);
	printa("@@S intr_sum\t%s\t%d\t%@d\n", @intr_sum);
	printa("@@S intr_waited\t%s\t%@d\n", @intr_waited);
	printa("@@Q intr_own_run\t%a\t%d\t%@d@@E\n", @intr_own_run);
	printa("@@S intr_own_sum\t%a\t%d\t%@d\n", @intr_own_sum);
	printf("@@ done intr\n");
	intr_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last intr %d %d\n", intr_n, timestamp);
	printa("@@Q intr_run\t%s\t%d\t%@d@@E\n", @intr_run);
	printa("@@S intr_sum\t%s\t%d\t%@d\n", @intr_sum);
	printa("@@S intr_waited\t%s\t%@d\n", @intr_waited);
	printa("@@Q intr_own_run\t%a\t%d\t%@d@@E\n", @intr_own_run);
	printa("@@S intr_own_sum\t%a\t%d\t%@d\n", @intr_own_sum);
	printf("@@ done intr\n");
}
