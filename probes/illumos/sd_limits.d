/*
 * sd_limits: what sd or ssd lets a disk have at once, and what it does about it: throttle, tagged queuing, sorting, retries.
 * Printed when a disk sends a command, every 10 s at most, and within a second when its throttle has changed.
 *
 * Read by latmon through sd_limits.yaml; a line is  @@ limit sd_limits DEVICE VALUE NAME.
 *
 * How to read it: un_throttle is the most commands that may be with the HBA, by itself [s]sd_max_throttle (256). At attach
 * a parallel, SAS or SATA disk without tagged queuing (un_tagflags 0) is given 3 at most where the HBA queues by itself
 * (un_f_opt_queueing 1), else 1: below un_min_throttle (8), which is only how far a busy disk's throttle is lowered.
 * un_saved_throttle is what it goes back to, un_reset_throttle_timeid 1 that it is about to. un_f_disksort_disabled 0 with a
 * small throttle is what lets one I/O wait while others pass it; with un_f_write_cache_enabled 1 the disk sorts its writes
 * by itself as well. retries counts commands sent again as un_retry_bp; on x86 the further parts of a transfer that was too
 * long for one DMA are among them.
 *
 * The static probe is in sd_start_cmds, before the HBA is called; it has one name for sd and ssd, where sd_reduce_throttle
 * is ssd_reduce_throttle in ssd. So throttle_reductions counts the commands before which the throttle was lower than at the
 * one before, not the calls: two reductions between two commands are one.
 */
BEGIN
{
	sd_limits_n = 0;
	sd_limits_at = timestamp;
	sd_limits_told[(uint64_t)0] = (uint64_t)0;
	sd_limits_throttle[(uint64_t)0] = 0;
	sd_limits_said[(uint64_t)0] = 0;
	sd_limits_less[(uint64_t)0] = (uint64_t)0;
	sd_limits_again[(uint64_t)0] = (uint64_t)0;
	sd_limits_told[(uint64_t)0] = 0;
	printf("@@ ready sd_limits %d\n", timestamp);
}

sdt:::scsi-transport-dispatch
/arg0 != 0 && ((struct buf *)arg0)->b_private != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un != 0/
{
	this->limits_un = ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un;
	this->limits_key = (uint64_t)this->limits_un;
	sd_limits_less[this->limits_key] += sd_limits_throttle[this->limits_key] > this->limits_un->un_throttle ? 1 : 0;
	sd_limits_again[this->limits_key] += arg0 == (uint64_t)this->limits_un->un_retry_bp ? 1 : 0;
}

sdt:::scsi-transport-dispatch
/arg0 != 0 && ((struct buf *)arg0)->b_private != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un->un_sd != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un->un_sd->sd_dev != 0 &&
    timestamp - sd_limits_told[(uint64_t)((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un] >=
    (sd_limits_said[(uint64_t)((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un] ==
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un->un_throttle ? 10000000000 : 1000000000)/
{
	this->limits_un = ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un;
	this->limits_dip = (struct dev_info *)this->limits_un->un_sd->sd_dev;
	this->limits_name = strjoin(stringof(`devnamesp[this->limits_dip->devi_major].dn_name),
	    lltostr(this->limits_dip->devi_instance));
	printf("@@ limit sd_limits %s %d un_throttle\n", this->limits_name, this->limits_un->un_throttle);
	printf("@@ limit sd_limits %s %d un_saved_throttle\n", this->limits_name, this->limits_un->un_saved_throttle);
	printf("@@ limit sd_limits %s %d un_busy_throttle\n", this->limits_name, this->limits_un->un_busy_throttle);
	printf("@@ limit sd_limits %s %d un_min_throttle\n", this->limits_name, this->limits_un->un_min_throttle);
	printf("@@ limit sd_limits %s %d un_reset_throttle_timeid\n", this->limits_name,
	    this->limits_un->un_reset_throttle_timeid != 0 ? 1 : 0);
	printf("@@ limit sd_limits %s %d un_tagflags\n", this->limits_name, this->limits_un->un_tagflags);
	printf("@@ limit sd_limits %s %d un_f_opt_queueing\n", this->limits_name, this->limits_un->un_f_opt_queueing);
	printf("@@ limit sd_limits %s %d un_f_arq_enabled\n", this->limits_name, this->limits_un->un_f_arq_enabled);
	printf("@@ limit sd_limits %s %d un_f_use_adaptive_throttle\n", this->limits_name,
	    this->limits_un->un_f_use_adaptive_throttle);
	printf("@@ limit sd_limits %s %d un_f_disksort_disabled\n", this->limits_name,
	    this->limits_un->un_f_disksort_disabled);
	printf("@@ limit sd_limits %s %d un_f_write_cache_enabled\n", this->limits_name,
	    this->limits_un->un_f_write_cache_enabled);
	printf("@@ limit sd_limits %s %d throttle_reductions\n", this->limits_name,
	    sd_limits_less[(uint64_t)this->limits_un]);
	printf("@@ limit sd_limits %s %d retries\n", this->limits_name,
	    sd_limits_again[(uint64_t)this->limits_un]);
	sd_limits_told[(uint64_t)this->limits_un] = (uint64_t)timestamp;
	sd_limits_said[(uint64_t)this->limits_un] = this->limits_un->un_throttle;
}

sdt:::scsi-transport-dispatch
/arg0 != 0 && ((struct buf *)arg0)->b_private != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un != 0/
{
	this->limits_un = ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un;
	sd_limits_throttle[(uint64_t)this->limits_un] = this->limits_un->un_throttle;
}

/* Without maps: that it runs. */
tick-{{step_ms}}ms
/sd_limits_n < 2 || timestamp - sd_limits_at >= {{gate_ns}}/
{
	sd_limits_at = timestamp;
	printf("@@ tick sd_limits %d %d\n@@ done sd_limits\n", sd_limits_n, timestamp);
	sd_limits_n++;
}

END
{
	printf("@@ last sd_limits %d %d\n@@ done sd_limits\n", sd_limits_n, timestamp);
}
