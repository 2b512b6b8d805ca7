/*
 * emlxs_sli4: where the time of a packet goes below the block layer on an Emulex Fibre Channel HBA with SLI-4
 * firmware.
 *
 *     fcp_transport -> emlxs_fca_transport            queue       handing the packet to the adapter
 *     -> emlxs_sli4_msi_intr                          hba         the adapter, the fabric, the array and back
 *     -> emlxs_sli4_process_wqe_cmpl                  irq         the interrupt until the packet is queued
 *     -> emlxs_thread, emlxs_proc_channel             completion  until the completion thread takes it,
 *     -> fcp_cmd_callback                                         and works through what is queued before it
 *
 * An array that answers at once and a total of a second with nearly all of it in completion is a completion thread
 * that doesn't get a CPU; emlxs_thread shows it from the scheduler's side. Read by latmon through emlxs_sli4.yaml; keys
 * are printed as columns: disk, else HBA port, op (0 read, 1 write, 2 flush, 3 discard, 9 other), histograms are of eight
 * times the microseconds.
 *
 * Every packet of a batch is timed from its own stamps, keyed by its address, and every this-> is set in the clause
 * that uses it: a script that clears one stamp per run of the thread sees the first packet only and repeats its
 * numbers.
 */
BEGIN
{
	emlxs_sli4_n = 0;
	emlxs_sli4_at = timestamp;
	emlxs_sli4_tokens = 40;
	emlxs_sli4_begun[(uint64_t)0] = (uint64_t)0;
	emlxs_sli4_sent[(uint64_t)0] = (uint64_t)0;
	emlxs_sli4_intr[(uint64_t)0] = (uint64_t)0;
	emlxs_sli4_put[(uint64_t)0] = (uint64_t)0;
	emlxs_sli4_buf[(uint64_t)0] = (uint64_t)0;
	printf("@@ ready emlxs_sli4 %d\n", timestamp);
}

/*
 * What sd or ssd sends, on the thread that calls the HBA's driver with it a moment later, also through multipathing: the
 * packet is this buf's, and its disk and issuer are known to sd. A driver that is called later, for a packet that waited in
 * fcp, has no buf: such a packet counts for its port.
 */
sdt:::scsi-transport-dispatch
/arg0 != 0 && ((struct buf *)arg0)->b_dip != 0/
{
	self->emlxs_sli4_disk = (uint64_t)arg0;
	self->emlxs_sli4_since_disk = (uint64_t)timestamp;
}

/*
 * (port, packet). Only what ends in fcp_cmd_callback: the packets of logins and name servers have other callbacks, and
 * their stamps would never be taken away. The other stamps are emptied, because a packet's address is used again at
 * once.
 */
fbt:emlxs:emlxs_fca_transport:entry
/((emlxs_port_t *)arg0)->hba->sli_mode >= 4 &&
    (uint64_t)((fc_packet_t *)arg1)->pkt_comp == (uint64_t)&fcp`fcp_cmd_callback/
{
	emlxs_sli4_sent[(uint64_t)arg1] = 0;
	emlxs_sli4_intr[(uint64_t)arg1] = 0;
	emlxs_sli4_put[(uint64_t)arg1] = 0;
	emlxs_sli4_buf[(uint64_t)arg1] = self->emlxs_sli4_disk && timestamp - self->emlxs_sli4_since_disk < 1000000 ?
	    self->emlxs_sli4_disk : (uint64_t)0;
	emlxs_sli4_begun[(uint64_t)arg1] = (uint64_t)timestamp;
	self->emlxs_sli4_disk = 0;
	self->emlxs_sli4_sending = (uint64_t)arg1;
	self->emlxs_sli4_since = (uint64_t)timestamp;
}

/* The packet may have ended, and its address been used for another one, before the function that sent it returns. */
fbt:emlxs:emlxs_fca_transport:return
/self->emlxs_sli4_sending && emlxs_sli4_begun[self->emlxs_sli4_sending] == self->emlxs_sli4_since/
{
	emlxs_sli4_sent[self->emlxs_sli4_sending] = (int)arg1 == 0 ? (uint64_t)timestamp : (uint64_t)0;
	emlxs_sli4_begun[self->emlxs_sli4_sending] = (int)arg1 == 0 ? self->emlxs_sli4_since : (uint64_t)0;
}

fbt:emlxs:emlxs_fca_transport:return
/self->emlxs_sli4_sending/
{
	self->emlxs_sli4_sending = 0;
	self->emlxs_sli4_since = 0;
}

/*
 * The interrupt handlers, with message-signalled interrupts or without. The stamp is never cleared: only they reach the
 * function below, on the same thread, and each sets it again.
 */
fbt:emlxs:emlxs_sli4_msi_intr:entry,
fbt:emlxs:emlxs_sli4_intx_intr:entry
{
	self->emlxs_sli4_at = (uint64_t)timestamp;
}

/*
 * (hba, completion queue, its entry): once a packet. The table of packets may hold none, or a mark for one that was
 * given up (all ones in 32 bits), which is no address.
 */
fbt:emlxs:emlxs_sli4_process_wqe_cmpl:entry
/self->emlxs_sli4_at/
{
	this->sbp = ((emlxs_hba_t *)arg0)->fc_table[((CQE_CmplWQ_t *)arg2)->RequestTag];
	this->key = (uint64_t)this->sbp > 0xffffffff ? (uint64_t)this->sbp->pkt : (uint64_t)0;
	self->emlxs_sli4_of = emlxs_sli4_begun[this->key];
	self->emlxs_sli4_pkt = self->emlxs_sli4_of ? this->key : (uint64_t)0;
	emlxs_sli4_intr[this->key] = self->emlxs_sli4_of ? self->emlxs_sli4_at : (uint64_t)0;
}

/* The thread may have taken the packet already, and its address been used for another one. */
fbt:emlxs:emlxs_sli4_process_wqe_cmpl:return
/self->emlxs_sli4_pkt && emlxs_sli4_begun[self->emlxs_sli4_pkt] == self->emlxs_sli4_of/
{
	emlxs_sli4_put[self->emlxs_sli4_pkt] = (uint64_t)timestamp;
}

fbt:emlxs:emlxs_sli4_process_wqe_cmpl:return
{
	self->emlxs_sli4_pkt = 0;
	self->emlxs_sli4_of = 0;
}

/* The completion thread begins to empty its queue: what it finds then, and what is put there until it sleeps again. */
fbt:emlxs:emlxs_proc_channel:entry
{
	self->emlxs_sli4_drain = (uint64_t)timestamp;
	self->emlxs_sli4_thread = strjoin(strjoin("emlxs", lltostr(((emlxs_hba_t *)arg0)->ddiinst)),
	    strjoin("_channel", lltostr(((CHANNEL *)arg1)->channelno)));
}

/* No interrupt brought it: timed out, aborted or flushed by the driver. */
fbt:fcp:fcp_cmd_callback:entry
/emlxs_sli4_begun[(uint64_t)arg0] && emlxs_sli4_intr[(uint64_t)arg0] == 0/
{
	this->pkt = (fc_packet_t *)arg0;
	this->sbp = (emlxs_buf_t *)this->pkt->pkt_fca_private;
	this->dev = emlxs_sli4_buf[(uint64_t)arg0] ?
	    xlate <devinfo_t> ((struct buf *)emlxs_sli4_buf[(uint64_t)arg0]).dev_statname :
	    strjoin("emlxs", lltostr(this->sbp->port->hba->ddiinst));
	@emlxs_sli4_path[this->dev, 64] = count();
}

/*
 * Outliers: all are counted, some are printed. The suppressed are counted before the print, because the print takes the
 * token.
 */
fbt:fcp:fcp_cmd_callback:entry
/emlxs_sli4_begun[(uint64_t)arg0] && emlxs_sli4_intr[(uint64_t)arg0] &&
    timestamp - emlxs_sli4_begun[(uint64_t)arg0] >= ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->pkt = (fc_packet_t *)arg0;
	this->sbp = (emlxs_buf_t *)this->pkt->pkt_fca_private;
	this->dev = emlxs_sli4_buf[(uint64_t)arg0] ?
	    xlate <devinfo_t> ((struct buf *)emlxs_sli4_buf[(uint64_t)arg0]).dev_statname :
	    strjoin("emlxs", lltostr(this->sbp->port->hba->ddiinst));
	this->code = ((uint8_t *)this->pkt->pkt_cmd)[12];
	this->op = this->code == 0x35 || this->code == 0x91 ? 2 : this->code == 0x42 ? 3 :
	    this->pkt->pkt_tran_type == 4 ? 0 : this->pkt->pkt_tran_type == 5 ? 1 : 9;
	@emlxs_sli4_above[this->dev, this->op] = count();
	@emlxs_sli4_suppressed[this->dev] = sum(emlxs_sli4_tokens > 0 ? 0 : 1);
}

fbt:fcp:fcp_cmd_callback:entry
/emlxs_sli4_tokens > 0 && emlxs_sli4_begun[(uint64_t)arg0] && emlxs_sli4_intr[(uint64_t)arg0] &&
    timestamp - emlxs_sli4_begun[(uint64_t)arg0] >= ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->pkt = (fc_packet_t *)arg0;
	this->sbp = (emlxs_buf_t *)this->pkt->pkt_fca_private;
	this->dev = emlxs_sli4_buf[(uint64_t)arg0] ?
	    xlate <devinfo_t> ((struct buf *)emlxs_sli4_buf[(uint64_t)arg0]).dev_statname :
	    strjoin("emlxs", lltostr(this->sbp->port->hba->ddiinst));
	this->code = ((uint8_t *)this->pkt->pkt_cmd)[12];
	this->op = this->code == 0x35 || this->code == 0x91 ? 2 : this->code == 0x42 ? 3 :
	    this->pkt->pkt_tran_type == 4 ? 0 : this->pkt->pkt_tran_type == 5 ? 1 : 9;
	this->now = (uint64_t)timestamp;
	this->begun = emlxs_sli4_begun[(uint64_t)arg0];
	this->intr = emlxs_sli4_intr[(uint64_t)arg0] <= this->begun ? this->begun :
	    emlxs_sli4_intr[(uint64_t)arg0] < this->now ? emlxs_sli4_intr[(uint64_t)arg0] : this->now;
	this->sent = emlxs_sli4_sent[(uint64_t)arg0] && emlxs_sli4_sent[(uint64_t)arg0] <= this->intr ?
	    emlxs_sli4_sent[(uint64_t)arg0] : this->begun;
	this->put = emlxs_sli4_put[(uint64_t)arg0] >= this->intr && emlxs_sli4_put[(uint64_t)arg0] <= this->now ?
	    emlxs_sli4_put[(uint64_t)arg0] : this->now;
	this->path = self->emlxs_sli4_pkt == (uint64_t)arg0 ? 2 :
	    (uint64_t)((kthread_t *)curthread)->t_startpc != (uint64_t)&emlxs`emlxs_thread ? 3 :
	    self->emlxs_sli4_drain < this->put ||
	    self->emlxs_sli4_drain - this->put < this->now - self->emlxs_sli4_drain ? 1 : 0;
	this->us = (this->now - this->begun) / 1000;
	this->queue = (this->sent - this->begun) / 1000;
	this->hba = (this->intr - this->sent) / 1000;
	this->irq = (this->put - this->intr) / 1000;
	this->completion = (this->now - this->put) / 1000;
	this->rest = this->us - this->queue - this->hba - this->irq - this->completion;
	emlxs_sli4_tokens--;
	printf("@@ slow emlxs_sli4 %u %s %d %d %d %d %d %d %d %d %d %d %d %d %s\n",
	    emlxs_sli4_buf[(uint64_t)arg0] ? emlxs_sli4_buf[(uint64_t)arg0] : (uint64_t)arg0, this->dev, this->op,
	    this->pkt->pkt_datalen, this->begun, this->now, this->us, this->queue, this->hba, this->irq, this->completion,
	    this->rest, cpu, this->path, this->path < 2 ? self->emlxs_sli4_thread : "-1");
}

/*
 * All stages end where the next one begins: in nanoseconds they add up, in whole microseconds the rest is unaccounted.
 */
fbt:fcp:fcp_cmd_callback:entry
/emlxs_sli4_begun[(uint64_t)arg0] && emlxs_sli4_intr[(uint64_t)arg0]/
{
	this->pkt = (fc_packet_t *)arg0;
	this->sbp = (emlxs_buf_t *)this->pkt->pkt_fca_private;
	this->dev = emlxs_sli4_buf[(uint64_t)arg0] ?
	    xlate <devinfo_t> ((struct buf *)emlxs_sli4_buf[(uint64_t)arg0]).dev_statname :
	    strjoin("emlxs", lltostr(this->sbp->port->hba->ddiinst));
	this->code = ((uint8_t *)this->pkt->pkt_cmd)[12];
	this->op = this->code == 0x35 || this->code == 0x91 ? 2 : this->code == 0x42 ? 3 :
	    this->pkt->pkt_tran_type == 4 ? 0 : this->pkt->pkt_tran_type == 5 ? 1 : 9;
	this->now = (uint64_t)timestamp;
	this->begun = emlxs_sli4_begun[(uint64_t)arg0];
	this->intr = emlxs_sli4_intr[(uint64_t)arg0] <= this->begun ? this->begun :
	    emlxs_sli4_intr[(uint64_t)arg0] < this->now ? emlxs_sli4_intr[(uint64_t)arg0] : this->now;
	this->sent = emlxs_sli4_sent[(uint64_t)arg0] && emlxs_sli4_sent[(uint64_t)arg0] <= this->intr ?
	    emlxs_sli4_sent[(uint64_t)arg0] : this->begun;
	this->put = emlxs_sli4_put[(uint64_t)arg0] >= this->intr && emlxs_sli4_put[(uint64_t)arg0] <= this->now ?
	    emlxs_sli4_put[(uint64_t)arg0] : this->now;
	this->path = self->emlxs_sli4_pkt == (uint64_t)arg0 ? 2 :
	    (uint64_t)((kthread_t *)curthread)->t_startpc != (uint64_t)&emlxs`emlxs_thread ? 3 :
	    self->emlxs_sli4_drain < this->put ||
	    self->emlxs_sli4_drain - this->put < this->now - self->emlxs_sli4_drain ? 1 : 0;
	this->us = (this->now - this->begun) / 1000;
	this->queue = (this->sent - this->begun) / 1000;
	this->hba = (this->intr - this->sent) / 1000;
	this->irq = (this->put - this->intr) / 1000;
	this->completion = (this->now - this->put) / 1000;
	this->rest = this->us - this->queue - this->hba - this->irq - this->completion;
	@emlxs_sli4_total[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16);
	@emlxs_sli4_queue[this->dev, this->op] = llquantize(this->queue * 8, 2, 3, 34, 16);
	@emlxs_sli4_hba[this->dev, this->op] = llquantize(this->hba * 8, 2, 3, 34, 16);
	@emlxs_sli4_irq[this->dev, this->op] = llquantize(this->irq * 8, 2, 3, 34, 16);
	@emlxs_sli4_completion[this->dev, this->op] = llquantize(this->completion * 8, 2, 3, 34, 16);
	@emlxs_sli4_unaccounted[this->dev, this->op] = llquantize(this->rest * 8, 2, 3, 34, 16);
	@emlxs_sli4_queue_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->queue);
	@emlxs_sli4_hba_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->hba);
	@emlxs_sli4_irq_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->irq);
	@emlxs_sli4_completion_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->completion);
	@emlxs_sli4_unaccounted_by[this->dev, this->op] = llquantize(this->us * 8, 2, 3, 34, 16, this->rest);
	@emlxs_sli4_sum[this->dev, this->op] = sum(this->us);
	@emlxs_sli4_max[this->dev, this->op, emlxs_sli4_n & 1] = max(((uint64_t)emlxs_sli4_n << 32) |
	    (this->us < 4294967295 ? this->us : 4294967295));
	@emlxs_sli4_path[this->dev, this->path] = count();
	@emlxs_sli4_level[this->dev] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

fbt:fcp:fcp_cmd_callback:entry
/emlxs_sli4_begun[(uint64_t)arg0]/
{
	emlxs_sli4_begun[(uint64_t)arg0] = 0;
	emlxs_sli4_sent[(uint64_t)arg0] = 0;
	emlxs_sli4_intr[(uint64_t)arg0] = 0;
	emlxs_sli4_put[(uint64_t)arg0] = 0;
	emlxs_sli4_buf[(uint64_t)arg0] = 0;
}

/* Records: 40 at once, 80 a second. */
tick-{{step_ms}}ms
{
	this->tokens = emlxs_sli4_tokens + ({{step_ms}} * 2 + 24) / 25;
	emlxs_sli4_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/emlxs_sli4_n < 2 || timestamp - emlxs_sli4_at >= {{gate_ns}}/
{
	emlxs_sli4_at = timestamp;
	printf("@@ tick emlxs_sli4 %d %d\n", emlxs_sli4_n, timestamp);
	printa("@@Q emlxs_sli4_total\t%s\t%d\t%@d@@E\n", @emlxs_sli4_total);
	printa("@@Q emlxs_sli4_queue\t%s\t%d\t%@d@@E\n", @emlxs_sli4_queue);
	printa("@@Q emlxs_sli4_hba\t%s\t%d\t%@d@@E\n", @emlxs_sli4_hba);
	printa("@@Q emlxs_sli4_irq\t%s\t%d\t%@d@@E\n", @emlxs_sli4_irq);
	printa("@@Q emlxs_sli4_completion\t%s\t%d\t%@d@@E\n", @emlxs_sli4_completion);
	printa("@@Q emlxs_sli4_unaccounted\t%s\t%d\t%@d@@E\n", @emlxs_sli4_unaccounted);
	printa("@@Q emlxs_sli4_queue_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_queue_by);
	printa("@@Q emlxs_sli4_hba_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_hba_by);
	printa("@@Q emlxs_sli4_irq_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_irq_by);
	printa("@@Q emlxs_sli4_completion_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_completion_by);
	printa("@@Q emlxs_sli4_unaccounted_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_unaccounted_by);
	printa("@@S emlxs_sli4_sum\t%s\t%d\t%@d\n", @emlxs_sli4_sum);
	printa("@@S emlxs_sli4_max\t%s\t%d\t%d\t%@d\n", @emlxs_sli4_max);
	printa("@@S emlxs_sli4_path\t%s\t%d\t%@d\n", @emlxs_sli4_path);
	printa("@@S emlxs_sli4_above\t%s\t%d\t%@d\n", @emlxs_sli4_above);
	printa("@@S emlxs_sli4_suppressed\t%s\t%@d\n", @emlxs_sli4_suppressed);
	printa("@@S emlxs_sli4_level\t%s\t%@d\n", @emlxs_sli4_level);
	printf("@@ done emlxs_sli4\n");
	emlxs_sli4_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last emlxs_sli4 %d %d\n", emlxs_sli4_n, timestamp);
	printa("@@Q emlxs_sli4_total\t%s\t%d\t%@d@@E\n", @emlxs_sli4_total);
	printa("@@Q emlxs_sli4_queue\t%s\t%d\t%@d@@E\n", @emlxs_sli4_queue);
	printa("@@Q emlxs_sli4_hba\t%s\t%d\t%@d@@E\n", @emlxs_sli4_hba);
	printa("@@Q emlxs_sli4_irq\t%s\t%d\t%@d@@E\n", @emlxs_sli4_irq);
	printa("@@Q emlxs_sli4_completion\t%s\t%d\t%@d@@E\n", @emlxs_sli4_completion);
	printa("@@Q emlxs_sli4_unaccounted\t%s\t%d\t%@d@@E\n", @emlxs_sli4_unaccounted);
	printa("@@Q emlxs_sli4_queue_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_queue_by);
	printa("@@Q emlxs_sli4_hba_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_hba_by);
	printa("@@Q emlxs_sli4_irq_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_irq_by);
	printa("@@Q emlxs_sli4_completion_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_completion_by);
	printa("@@Q emlxs_sli4_unaccounted_by\t%s\t%d\t%@d@@E\n", @emlxs_sli4_unaccounted_by);
	printa("@@S emlxs_sli4_sum\t%s\t%d\t%@d\n", @emlxs_sli4_sum);
	printa("@@S emlxs_sli4_max\t%s\t%d\t%d\t%@d\n", @emlxs_sli4_max);
	printa("@@S emlxs_sli4_path\t%s\t%d\t%@d\n", @emlxs_sli4_path);
	printa("@@S emlxs_sli4_above\t%s\t%d\t%@d\n", @emlxs_sli4_above);
	printa("@@S emlxs_sli4_suppressed\t%s\t%@d\n", @emlxs_sli4_suppressed);
	printa("@@S emlxs_sli4_level\t%s\t%@d\n", @emlxs_sli4_level);
	printf("@@ done emlxs_sli4\n");
}
