/*
 * sd_depth: how many commands sd or ssd has given to the HBA and how many wait in the driver, per disk: at each command that
 * is sent, and over time, in microseconds spent at each depth.
 *
 * Read by latmon through sd_depth.yaml. Columns of a key: device (sd2, ssd0), depth: exact to 256, from 257 on index
 * 257 + 8 per octave, the first for 257 to 288. Maps are cumulative.
 *
 * Which counters: un_ncmds_in_transport is what sd_start_cmds compares with un_throttle, so only that shows whether the
 * throttle is reached. un_ncmds_in_driver is that and the wait queue together, so it may be far above it. What is just
 * being completed is still in it, but in neither of the two: it is in un_in_callback.
 *
 * Which hooks: the static probe before the HBA is called and biodone's entry, where both counters have gone down. They have
 * one name for sd and ssd, and there is no such pair for each command in any other layer. So time is divided at what is
 * sent and what completes; what only joins a full queue meanwhile is seen at the next completion.
 *
 * Each this-> is set in the clause that uses it: one that isn't has the value of an earlier probe.
 */
BEGIN
{
	sd_depth_n = 0;
	sd_depth_at = timestamp;
	sd_depth_un[(uint64_t)0] = (uint64_t)0;
	sd_depth_since[(uint64_t)0] = (uint64_t)0;
	sd_depth_sent[(uint64_t)0] = (uint64_t)0;
	sd_depth_waited[(uint64_t)0] = (uint64_t)0;
	sd_depth_un[(uint64_t)0] = 0;
	sd_depth_since[(uint64_t)0] = 0;
	sd_depth_sent[(uint64_t)0] = 0;
	sd_depth_waited[(uint64_t)0] = 0;
	printf("@@ ready sd_depth %d\n", timestamp);
}

/* The disk is kept under the buf's address: when the buf is done, its sd_xbuf is already gone. */
sdt:::scsi-transport-dispatch
/arg0 != 0 && ((struct buf *)arg0)->b_private != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un->un_sd != 0 &&
    ((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un->un_sd->sd_dev != 0/
{
	sd_depth_un[(uint64_t)arg0] = (uint64_t)((struct sd_xbuf *)((struct buf *)arg0)->b_private)->xb_un;
}

/* The one that is sent is already counted. */
sdt:::scsi-transport-dispatch
/sd_depth_un[(uint64_t)arg0] != 0/
{
	this->depth_un = (struct sd_lun *)sd_depth_un[(uint64_t)arg0];
	this->depth_dip = (struct dev_info *)this->depth_un->un_sd->sd_dev;
	this->depth = (uint64_t)this->depth_un->un_ncmds_in_transport;
	this->depth_v = this->depth > 65536 ? 65535 : this->depth - 1;
	this->depth_e = this->depth_v >> 15 ? 15 : this->depth_v >> 14 ? 14 : this->depth_v >> 13 ? 13 :
	    this->depth_v >> 12 ? 12 : this->depth_v >> 11 ? 11 : this->depth_v >> 10 ? 10 : this->depth_v >> 9 ? 9 : 8;
	this->depth_k = this->depth <= 256 ? this->depth :
	    257 + ((this->depth_e - 8) << 3) + ((this->depth_v >> (this->depth_e - 3)) & 7);
	@sd_depth_issue[strjoin(stringof(`devnamesp[this->depth_dip->devi_major].dn_name),
	    lltostr(this->depth_dip->devi_instance)), this->depth_k] = count();
}

/*
 * From the last event to this one the depths were what that one left. More than 10 s without any command are not counted:
 * a disk without any I/O has no depth. What is left of a microsecond is kept for the next time.
 */
sdt:::scsi-transport-dispatch,
fbt::biodone:entry
/sd_depth_un[(uint64_t)arg0] != 0 && sd_depth_since[sd_depth_un[(uint64_t)arg0]] != 0/
{
	this->depth_key = sd_depth_un[(uint64_t)arg0];
	this->depth_dip = (struct dev_info *)((struct sd_lun *)this->depth_key)->un_sd->sd_dev;
	this->depth_us = ((uint64_t)timestamp - sd_depth_since[this->depth_key]) / 1000;
	this->depth_us = this->depth_us > 10000000 && sd_depth_sent[this->depth_key] + sd_depth_waited[this->depth_key] == 0
	    ? 0 : this->depth_us;
	@sd_depth_driver[strjoin(stringof(`devnamesp[this->depth_dip->devi_major].dn_name),
	    lltostr(this->depth_dip->devi_instance)), sd_depth_sent[this->depth_key]] = sum(this->depth_us);
	@sd_depth_queued[strjoin(stringof(`devnamesp[this->depth_dip->devi_major].dn_name),
	    lltostr(this->depth_dip->devi_instance)), sd_depth_waited[this->depth_key]] = sum(this->depth_us);
}

/* What this event leaves: sent, then waiting, both as indexes. At biodone this command's own callback is still counted. */
sdt:::scsi-transport-dispatch,
fbt::biodone:entry
/sd_depth_un[(uint64_t)arg0] != 0/
{
	this->depth_key = sd_depth_un[(uint64_t)arg0];
	this->depth_un = (struct sd_lun *)this->depth_key;
	this->depth = (uint64_t)this->depth_un->un_ncmds_in_transport;
	this->depth_v = this->depth > 65536 ? 65535 : this->depth - 1;
	this->depth_e = this->depth_v >> 15 ? 15 : this->depth_v >> 14 ? 14 : this->depth_v >> 13 ? 13 :
	    this->depth_v >> 12 ? 12 : this->depth_v >> 11 ? 11 : this->depth_v >> 10 ? 10 : this->depth_v >> 9 ? 9 : 8;
	this->depth_k = this->depth <= 256 ? this->depth :
	    257 + ((this->depth_e - 8) << 3) + ((this->depth_v >> (this->depth_e - 3)) & 7);
	this->depth_own = probename == "entry" && this->depth_un->un_in_callback > 0 ? 1 : 0;
	this->depth_left = (int64_t)this->depth_un->un_ncmds_in_driver - this->depth_un->un_ncmds_in_transport -
	    this->depth_un->un_in_callback + this->depth_own;
	sd_depth_sent[this->depth_key] = this->depth_k;
	this->depth = this->depth_left > 0 ? (uint64_t)this->depth_left : 0;
	this->depth_v = this->depth > 65536 ? 65535 : this->depth - 1;
	this->depth_e = this->depth_v >> 15 ? 15 : this->depth_v >> 14 ? 14 : this->depth_v >> 13 ? 13 :
	    this->depth_v >> 12 ? 12 : this->depth_v >> 11 ? 11 : this->depth_v >> 10 ? 10 : this->depth_v >> 9 ? 9 : 8;
	this->depth_k = this->depth <= 256 ? this->depth :
	    257 + ((this->depth_e - 8) << 3) + ((this->depth_v >> (this->depth_e - 3)) & 7);
	sd_depth_waited[this->depth_key] = this->depth_k;
	sd_depth_since[this->depth_key] = (uint64_t)timestamp - (sd_depth_since[this->depth_key] == 0 ? 0 :
	    ((uint64_t)timestamp - sd_depth_since[this->depth_key]) % 1000);
}

fbt::biodone:entry
/sd_depth_un[(uint64_t)arg0] != 0/
{
	sd_depth_un[(uint64_t)arg0] = 0;
}

/*
 * A short step and a gate: the first two ticks, where counting begins and the first data, come at once, and a step that
 * the kernel drops costs little.
 */
tick-{{step_ms}}ms
/sd_depth_n < 2 || timestamp - sd_depth_at >= {{gate_ns}}/
{
	sd_depth_at = timestamp;
	printf("@@ tick sd_depth %d %d\n", sd_depth_n, timestamp);
	printa("@@S sd_depth_issue\t%s\t%d\t%@d\n", @sd_depth_issue);
	printa("@@S sd_depth_driver\t%s\t%d\t%@d\n", @sd_depth_driver);
	printa("@@S sd_depth_queued\t%s\t%d\t%@d\n", @sd_depth_queued);
	printf("@@ done sd_depth\n");
	sd_depth_n++;
}

/* What is printed after this line, all maps once more, belongs to the interval that was not finished. */
END
{
	printf("@@ last sd_depth %d %d\n", sd_depth_n, timestamp);
	printa("@@S sd_depth_issue\t%s\t%d\t%@d\n", @sd_depth_issue);
	printa("@@S sd_depth_driver\t%s\t%d\t%@d\n", @sd_depth_driver);
	printa("@@S sd_depth_queued\t%s\t%d\t%@d\n", @sd_depth_queued);
	printf("@@ done sd_depth\n");
}
