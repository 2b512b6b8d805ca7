/*
 * scsi_pkt: the SCSI mid layer: how long each command was with its HBA, from scsi_transport to the completion call, and how
 * long until the target driver gave the packet back. Per HBA and op, with what sd.d can't see: flushes, UNMAP, and other
 * target drivers' commands.
 *
 * Read by latmon through scsi_pkt.yaml. Columns of a key: HBA (mpt_sas0, fcp1, scsi_vhci0), op (0 read, 1 write, 2 flush,
 * 3 discard, 9 other). Histograms are of eight times the microseconds, so that llquantize(, 2, 3, 34, 16) has latmon's own
 * buckets. Maps are cumulative.
 *
 * The key is the packet's address. A retry is sent as the same packet: its last time counts. With multipathing a command
 * is here twice, as scsi_vhci's and as the path's: their difference is what multipathing takes.
 *
 * scsi_hba_pkt_comp is where most HBA drivers end a command; one that calls the completion itself is timed to
 * scsi_destroy_pkt, which is after the target driver's own work. A command that is waited for without an interrupt
 * (FLAG_NOINTR, of crash dumps and at attach) has no completion call either.
 *
 * Each this-> is set in the clause that uses it: one that isn't has the value of an earlier probe.
 */
BEGIN
{
	scsi_pkt_n = 0;
	scsi_pkt_at = timestamp;
	scsi_pkt_tokens = 40;
	scsi_pkt_begun[(uint64_t)0] = (uint64_t)0;
	scsi_pkt_done[(uint64_t)0] = (uint64_t)0;
	scsi_pkt_begun[(uint64_t)0] = 0;
	scsi_pkt_done[(uint64_t)0] = 0;
	printf("@@ ready scsi_pkt %d\n", timestamp);
}

fbt::scsi_transport:entry
/arg0 != 0 && ((struct scsi_pkt *)arg0)->pkt_cdbp != 0 && ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran != 0 &&
    ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip != 0/
{
	scsi_pkt_begun[(uint64_t)arg0] = (uint64_t)timestamp;
	scsi_pkt_done[(uint64_t)arg0] = 0;
}

/* Twice for a packet that is completed, sent again as it is, and completed: the last one counts. */
fbt::scsi_hba_pkt_comp:entry
/scsi_pkt_begun[(uint64_t)arg0] != 0/
{
	scsi_pkt_done[(uint64_t)arg0] = (uint64_t)timestamp;
}

/*
 * Stamps of two CPUs can be out of order by some nanoseconds: a time below 0 is made 0, and not 2^64 ns.
 */
fbt::scsi_destroy_pkt:entry
/scsi_pkt_begun[(uint64_t)arg0] != 0/
{
	this->pkt_cdb = ((struct scsi_pkt *)arg0)->pkt_cdbp;
	this->pkt_code = this->pkt_cdb[0];
	this->op = this->pkt_code == 0x35 || this->pkt_code == 0x91 ? 2 : this->pkt_code == 0x42 ? 3 :
	    this->pkt_code >> 5 != 0 && this->pkt_code >> 5 != 1 && this->pkt_code >> 5 != 4 && this->pkt_code >> 5 != 5 ? 9 :
	    (this->pkt_code & 0x1f) == 0x08 ? 0 : (this->pkt_code & 0x1f) == 0x0a ? 1 : 9;
	this->pkt_dip = (struct dev_info *)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip;
	this->pkt_name = strjoin(stringof(`devnamesp[this->pkt_dip->devi_major].dn_name), lltostr(this->pkt_dip->devi_instance));
	this->pkt_now = (uint64_t)timestamp;
	this->pkt_begun = scsi_pkt_begun[(uint64_t)arg0] < this->pkt_now ? scsi_pkt_begun[(uint64_t)arg0] : this->pkt_now;
	this->pkt_done = scsi_pkt_done[(uint64_t)arg0] == 0 || scsi_pkt_done[(uint64_t)arg0] > this->pkt_now ? this->pkt_now :
	    scsi_pkt_done[(uint64_t)arg0] > this->pkt_begun ? scsi_pkt_done[(uint64_t)arg0] : this->pkt_begun;
	this->pkt_us = (this->pkt_now - this->pkt_begun) / 1000;
	this->pkt_hba_us = (this->pkt_done - this->pkt_begun) / 1000;
	@scsi_pkt_total[this->pkt_name, this->op] = llquantize(this->pkt_us * 8, 2, 3, 34, 16);
	@scsi_pkt_sum[this->pkt_name, this->op] = sum(this->pkt_us);
	@scsi_pkt_max[this->pkt_name, this->op, scsi_pkt_n & 1] = max(((uint64_t)scsi_pkt_n << 32) |
	    (this->pkt_us < 4294967295 ? this->pkt_us : 4294967295));
	@scsi_pkt_hba[this->pkt_name, this->op] = llquantize(this->pkt_hba_us * 8, 2, 3, 34, 16);
	@scsi_pkt_hba_sum[this->pkt_name, this->op] = sum(this->pkt_hba_us);
	@scsi_pkt_level[this->pkt_name] = max({{threshold_us}} ? {{threshold_us}} : 10000);
}

/*
 * Outliers: all are counted; at most 40 at once and 80 a second are printed. The suppressed are counted before the print,
 * because the print takes the token.
 */
fbt::scsi_destroy_pkt:entry
/scsi_pkt_begun[(uint64_t)arg0] != 0 &&
    timestamp >= scsi_pkt_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->pkt_cdb = ((struct scsi_pkt *)arg0)->pkt_cdbp;
	this->pkt_code = this->pkt_cdb[0];
	this->op = this->pkt_code == 0x35 || this->pkt_code == 0x91 ? 2 : this->pkt_code == 0x42 ? 3 :
	    this->pkt_code >> 5 != 0 && this->pkt_code >> 5 != 1 && this->pkt_code >> 5 != 4 && this->pkt_code >> 5 != 5 ? 9 :
	    (this->pkt_code & 0x1f) == 0x08 ? 0 : (this->pkt_code & 0x1f) == 0x0a ? 1 : 9;
	this->pkt_dip = (struct dev_info *)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip;
	this->pkt_name = strjoin(stringof(`devnamesp[this->pkt_dip->devi_major].dn_name), lltostr(this->pkt_dip->devi_instance));
	@scsi_pkt_above[this->pkt_name, this->op] = count();
	@scsi_pkt_suppressed[this->pkt_name] = sum(scsi_pkt_tokens > 0 ? 0 : 1);
}

/*
 * Where a command reads or writes is in its CDB: 21 bits in group 0 (6 bytes), 32 in groups 1 (10 bytes) and 5 (12 bytes),
 * 64 in group 4 (16 bytes); in the target's blocks, from the disk's beginning.
 */
fbt::scsi_destroy_pkt:entry
/scsi_pkt_tokens > 0 && scsi_pkt_begun[(uint64_t)arg0] != 0 &&
    timestamp >= scsi_pkt_begun[(uint64_t)arg0] + ({{threshold_us}} ? {{threshold_us}} : 10000) * 1000/
{
	this->pkt_cdb = ((struct scsi_pkt *)arg0)->pkt_cdbp;
	this->pkt_code = this->pkt_cdb[0];
	this->op = this->pkt_code == 0x35 || this->pkt_code == 0x91 ? 2 : this->pkt_code == 0x42 ? 3 :
	    this->pkt_code >> 5 != 0 && this->pkt_code >> 5 != 1 && this->pkt_code >> 5 != 4 && this->pkt_code >> 5 != 5 ? 9 :
	    (this->pkt_code & 0x1f) == 0x08 ? 0 : (this->pkt_code & 0x1f) == 0x0a ? 1 : 9;
	this->pkt_dip = (struct dev_info *)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip;
	this->pkt_name = strjoin(stringof(`devnamesp[this->pkt_dip->devi_major].dn_name), lltostr(this->pkt_dip->devi_instance));
	this->pkt_group = this->pkt_cdb[0] >> 5;
	this->pkt_lba = this->op > 1 ? (uint64_t)0 : this->pkt_group == 0 ?
	    ((uint64_t)this->pkt_cdb[1] & 0x1f) << 16 | (uint64_t)this->pkt_cdb[2] << 8 | (uint64_t)this->pkt_cdb[3] :
	    (uint64_t)this->pkt_cdb[2] << 24 | (uint64_t)this->pkt_cdb[3] << 16 | (uint64_t)this->pkt_cdb[4] << 8 |
	    (uint64_t)this->pkt_cdb[5];
	this->pkt_lba = this->op > 1 || this->pkt_group != 4 ? this->pkt_lba : this->pkt_lba << 32 |
	    (uint64_t)this->pkt_cdb[6] << 24 | (uint64_t)this->pkt_cdb[7] << 16 | (uint64_t)this->pkt_cdb[8] << 8 |
	    (uint64_t)this->pkt_cdb[9];
	this->pkt_now = (uint64_t)timestamp;
	this->pkt_begun = scsi_pkt_begun[(uint64_t)arg0] < this->pkt_now ? scsi_pkt_begun[(uint64_t)arg0] : this->pkt_now;
	this->pkt_done = scsi_pkt_done[(uint64_t)arg0] == 0 || scsi_pkt_done[(uint64_t)arg0] > this->pkt_now ? this->pkt_now :
	    scsi_pkt_done[(uint64_t)arg0] > this->pkt_begun ? scsi_pkt_done[(uint64_t)arg0] : this->pkt_begun;
	scsi_pkt_tokens--;
	printf("@@ slow scsi_pkt %u %s %d %d %d %d %d %d %d\n", (uint64_t)arg0, this->pkt_name, this->op, this->pkt_lba,
	    this->pkt_begun, this->pkt_now, (this->pkt_now - this->pkt_begun) / 1000,
	    (this->pkt_done - this->pkt_begun) / 1000, cpu);
}

fbt::scsi_destroy_pkt:entry
/scsi_pkt_begun[(uint64_t)arg0] != 0/
{
	scsi_pkt_begun[(uint64_t)arg0] = 0;
	scsi_pkt_done[(uint64_t)arg0] = 0;
}

tick-{{step_ms}}ms
{
	this->tokens = scsi_pkt_tokens + ({{step_ms}} * 2 + 24) / 25;
	scsi_pkt_tokens = this->tokens < 40 ? this->tokens : 40;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/scsi_pkt_n < 2 || timestamp - scsi_pkt_at >= {{gate_ns}}/
{
	scsi_pkt_at = timestamp;
	printf("@@ tick scsi_pkt %d %d\n", scsi_pkt_n, timestamp);
	printa("@@Q scsi_pkt_total\t%s\t%d\t%@d@@E\n", @scsi_pkt_total);
	printa("@@Q scsi_pkt_hba\t%s\t%d\t%@d@@E\n", @scsi_pkt_hba);
	printa("@@S scsi_pkt_sum\t%s\t%d\t%@d\n", @scsi_pkt_sum);
	printa("@@S scsi_pkt_hba_sum\t%s\t%d\t%@d\n", @scsi_pkt_hba_sum);
	printa("@@S scsi_pkt_max\t%s\t%d\t%d\t%@d\n", @scsi_pkt_max);
	printa("@@S scsi_pkt_above\t%s\t%d\t%@d\n", @scsi_pkt_above);
	printa("@@S scsi_pkt_suppressed\t%s\t%@d\n", @scsi_pkt_suppressed);
	printa("@@S scsi_pkt_level\t%s\t%@d\n", @scsi_pkt_level);
	printf("@@ done scsi_pkt\n");
	scsi_pkt_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last scsi_pkt %d %d\n", scsi_pkt_n, timestamp);
	printa("@@Q scsi_pkt_total\t%s\t%d\t%@d@@E\n", @scsi_pkt_total);
	printa("@@Q scsi_pkt_hba\t%s\t%d\t%@d@@E\n", @scsi_pkt_hba);
	printa("@@S scsi_pkt_sum\t%s\t%d\t%@d\n", @scsi_pkt_sum);
	printa("@@S scsi_pkt_hba_sum\t%s\t%d\t%@d\n", @scsi_pkt_hba_sum);
	printa("@@S scsi_pkt_max\t%s\t%d\t%d\t%@d\n", @scsi_pkt_max);
	printa("@@S scsi_pkt_above\t%s\t%d\t%@d\n", @scsi_pkt_above);
	printa("@@S scsi_pkt_suppressed\t%s\t%@d\n", @scsi_pkt_suppressed);
	printa("@@S scsi_pkt_level\t%s\t%@d\n", @scsi_pkt_level);
	printf("@@ done scsi_pkt\n");
}
