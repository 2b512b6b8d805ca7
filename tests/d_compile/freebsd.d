/*
 * FreeBSD: the types that latmon's scripts use, each with as many of its members; only for compiling, the offsets are not
 * the kernel's. Read by stubs.py.
 *
 * sys/kern/subr_devstat.c
 * args io:::start: struct bio *, struct devstat *
 * args io:::done: struct bio *, struct devstat *
 * sys/kern/sched_ule.c, sys/kern/subr_turnstile.c; on-cpu has none
 * args sched:::wakeup: struct thread *, struct proc *
 * args sched:::off-cpu: struct thread *, struct proc *
 * share/man/man4/dtrace_cam.4
 * args cam::xpt:action: union ccb *
 * args cam::xpt:done: union ccb *
 * sys/cam/cam_xpt.h, sys/cam/cam_xpt_sim.h
 * args fbt::xpt_action:entry: union ccb *
 * args fbt::xpt_done:entry: union ccb *
 * args fbt::xpt_done_direct:entry: union ccb *
 */

/* sys/sys/time.h; time_t is 64 bits wide but on i386 */
struct bintime {
	int64_t sec;
	uint64_t frac;
};

/* sys/sys/bio.h */
struct bio {
	uint16_t bio_cmd;
	uint16_t bio_flags;
	int64_t bio_offset;
	long bio_bcount;
	long bio_resid;
	int64_t bio_length;
	struct bio *bio_parent;
	struct bintime bio_t0;
};

/* sys/sys/proc.h */
struct proc {
	int p_flag;
};

struct thread {
	unsigned char td_priority;
	char td_name[20];
};

/* sys/sys/devicestat.h */
struct devstat {
	unsigned int start_count;
	unsigned int end_count;
	char device_name[16];
	int unit_number;
};

/* sys/cam/cam_queue.h */
struct cam_ccbq {
	int allocated;
	int dev_openings;
	int dev_active;
};

/* sys/cam/cam_xpt_internal.h */
struct cam_ed {
	struct cam_ccbq ccbq;
};

/* sys/cam/cam_periph.h */
struct cam_periph {
	char *periph_name;
	uint32_t unit_number;
};

/* sys/cam/cam_xpt_internal.h */
struct cam_path {
	struct cam_periph *periph;
	struct cam_ed *device;
};

/* sys/cam/cam_ccb.h: ccb_priv_entry, ccb_ppriv_area, with names of our own */
union ccb_priv_entry {
	void *ptr;
	unsigned long field;
};

union ccb_ppriv_area {
	union ccb_priv_entry entries[2];
};

/* sys/cam/cam_ccb.h */
struct ccb_hdr {
	uint32_t func_code;
	uint32_t status;
	struct cam_path *path;
	union ccb_ppriv_area periph_priv;
};

union ccb {
	struct ccb_hdr ccb_h;
};
