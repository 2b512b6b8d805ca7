/*
 * mpt_flags: which targets of an mpt HBA are refused tagged queuing, by the driver's own bit maps: m_notag (a bit per target
 * that doesn't seem to support tagged commands), m_nowide (no wide transfers), m_props_update (properties not reported yet).
 * Printed when the HBA is given a command, every 10 s at most.
 *
 * Read by latmon through mpt_flags.yaml; a line is  @@ limit mpt_flags HBA VALUE NAME,  with the HBA as mpt0.
 *
 * How to read it: 65535 (0xffff) in m_notag is tagged queuing refused for all 16 targets, the disks' un_throttle is then 3 or
 * 1 (sd_limits); on a healthy host only targets that don't exist have their bit set (65472, 0xffc0, with six disks).
 *
 * Only for the driver mpt, whose source is not public: the three names are from a published dump. illumos' own mpt_sas has
 * no such members. mpt's _info, which modinfo calls, is hooked only so that this script is left out where no mpt is loaded:
 * without it the type isn't known either, and nothing of the program would compile.
 */
BEGIN
{
	mpt_flags_n = 0;
	mpt_flags_at = timestamp;
	mpt_flags_asked = 0;
	mpt_flags_told[(uint64_t)0] = (uint64_t)0;
	mpt_flags_told[(uint64_t)0] = 0;
	printf("@@ ready mpt_flags %d\n", timestamp);
}

fbt:mpt:_info:entry
{
	mpt_flags_asked++;
}

fbt::scsi_transport:entry
/arg0 != 0 && ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran != 0 &&
    timestamp - mpt_flags_told[(uint64_t)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran] >= 10000000000 &&
    ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip != 0 &&
    ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_private != 0 &&
    stringof(`devnamesp[((struct dev_info *)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran->tran_hba_dip)->devi_major].dn_name)
    == "mpt"/
{
	this->mpt_tran = ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran;
	this->mpt = (struct mpt *)this->mpt_tran->tran_hba_private;
	this->mpt_instance = ((struct dev_info *)this->mpt_tran->tran_hba_dip)->devi_instance;
	printf("@@ limit mpt_flags mpt%d %d m_notag\n", this->mpt_instance, this->mpt->m_notag);
	printf("@@ limit mpt_flags mpt%d %d m_nowide\n", this->mpt_instance, this->mpt->m_nowide);
	printf("@@ limit mpt_flags mpt%d %d m_props_update\n", this->mpt_instance, this->mpt->m_props_update);
}

/* Another driver's HBA isn't asked again for 10 s either: then its name needn't be compared at each command. */
fbt::scsi_transport:entry
/arg0 != 0 && ((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran != 0 &&
    timestamp - mpt_flags_told[(uint64_t)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran] >= 10000000000/
{
	mpt_flags_told[(uint64_t)((struct scsi_pkt *)arg0)->pkt_address.a_hba_tran] = (uint64_t)timestamp;
}

/* Without maps: that it runs. */
tick-{{step_ms}}ms
/mpt_flags_n < 2 || timestamp - mpt_flags_at >= {{gate_ns}}/
{
	mpt_flags_at = timestamp;
	printf("@@ tick mpt_flags %d %d\n@@ done mpt_flags\n", mpt_flags_n, timestamp);
	mpt_flags_n++;
}

END
{
	printf("@@ last mpt_flags %d %d\n@@ done mpt_flags\n", mpt_flags_n, timestamp);
}
