/* wild_d: calls of several functions, as wake-ups of a thread of its name: for tests, in a guest. */
BEGIN
{
	wild_d_n = 0;
	wild_d_at = timestamp;
	printf("@@ ready wild_d %d\n", timestamp);
}

fbt:scsi_mod:scsi_done*:entry
{
	@wild_d_delay["wild_d"] = llquantize(8, 2, 3, 34, 16);
}

tick-{{step_ms}}ms
/wild_d_n < 2 || timestamp - wild_d_at >= {{gate_ns}}/
{
	wild_d_at = timestamp;
	printf("@@ tick wild_d %d %d\n", wild_d_n, timestamp);
	printa("@@Q wild_d_delay\t%s\t%@d@@E\n", @wild_d_delay);
	printf("@@ done wild_d\n");
	wild_d_n++;
}

END
{
	printf("@@ last wild_d %d %d\n", wild_d_n, timestamp);
	printa("@@Q wild_d_delay\t%s\t%@d@@E\n", @wild_d_delay);
	printf("@@ done wild_d\n");
}
