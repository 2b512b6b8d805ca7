/*
 * illumos: the types that latmon's scripts use, each with as many of its members; only for compiling, the offsets are not
 * the kernel's. Read by stubs.py. Files are below usr/src/uts/common of illumos-gate.
 *
 * usr/src/lib/libdtrace/common/io.d.in, sched.d.in: what args[] are translated to has the same members on Linux
 * keeps io:::start
 * keeps io:::done
 * keeps io:::wait-start
 * keeps io:::wait-done
 * keeps sched:::wakeup
 * keeps sched:::on-cpu
 * keeps sched:::off-cpu
 * keeps sched:::enqueue
 * keeps sched:::dequeue
 * sys/autoconf.h
 * kernel devnamesp: struct devnames *
 * functions, whose address is compared
 * kernel emlxs_thread: char
 * kernel fcp_cmd_callback: char
 * kernel cbe_fire: char
 */

/* sys/ddi_impldefs.h */
struct dev_info {
	unsigned int devi_major;
	int devi_instance;
};

/* sys/autoconf.h */
struct devnames {
	char *dn_name;
};

/* sys/types.h: lldaddr_t */
union lldaddr {
	int64_t _f;
};

/* sys/buf.h */
struct buf {
	int b_flags;
	size_t b_bcount;
	size_t b_resid;
	union lldaddr _b_blkno;
	struct dev_info *b_dip;
	int b_error;
	void *b_private;
};

/* sys/scsi/conf/device.h */
struct scsi_device {
	struct dev_info *sd_dev;
};

/* sys/scsi/targets/sddef.h */
struct sd_lun {
	struct scsi_device *un_sd;
	struct buf *un_retry_bp;
	void *un_reset_throttle_timeid;
	long un_ncmds_in_driver;
	short un_ncmds_in_transport;
	short un_in_callback;
	short un_throttle;
	short un_saved_throttle;
	short un_busy_throttle;
	short un_min_throttle;
	unsigned int un_tagflags;
	unsigned int un_f_opt_queueing;
	unsigned int un_f_arq_enabled;
	unsigned int un_f_use_adaptive_throttle;
	unsigned int un_f_disksort_disabled;
	unsigned int un_f_write_cache_enabled;
};

struct sd_xbuf {
	struct sd_lun *xb_un;
};

/* sys/scsi/impl/transport.h */
struct scsi_hba_tran {
	struct dev_info *tran_hba_dip;
	void *tran_hba_private;
};

/* sys/scsi/scsi_address.h */
struct scsi_address {
	struct scsi_hba_tran *a_hba_tran;
};

/* sys/scsi/scsi_pkt.h */
struct scsi_pkt {
	struct scsi_address pkt_address;
	unsigned char *pkt_cdbp;
};

/* mpt of Solaris 11, whose source is not public */
struct mpt {
	unsigned short m_notag;
	unsigned short m_nowide;
	unsigned short m_props_update;
};

/* sys/klwp.h */
struct lrusage {
	unsigned long nvcsw;
};

typedef struct _klwp {
	struct lrusage lwp_ru;
} klwp_t;

/* sys/thread.h */
typedef struct _kthread {
	short t_pri;
	void *t_startpc;
	struct _klwp *t_lwp;
} kthread_t;

/* sys/taskq_impl.h */
typedef struct taskq {
	char tq_name[32];
	unsigned int tq_instance;
	short tq_pri;
} taskq_t;

/* sys/callo.h */
typedef struct callout {
	void *c_func;
} callout_t;

/* sys/uio.h */
typedef struct uio {
	union lldaddr _uio_offset;
	long uio_resid;
} uio_t;

/* sys/refstr_impl.h */
struct refstr {
	unsigned int rs_size;
	unsigned int rs_refcnt;
	char rs_string[1];
};

/* sys/vfs.h */
struct vfs {
	struct refstr *vfs_mntpt;
};

/* sys/vnode.h */
struct vnodeops {
	char *vnop_name;
};

/* sys/vnode.h: enum vtype */
typedef struct vnode {
	void *v_data;
	struct vfs *v_vfsp;
	int v_type;
	struct vnodeops *v_op;
	char *v_path;
} vnode_t;

/* fs/zfs/sys/spa_impl.h */
struct spa {
	char spa_name[256];
};

/* fs/zfs/sys/dmu_objset.h */
struct objset {
	struct spa *os_spa;
};

/* fs/zfs/sys/zfs_vfsops.h */
struct zfsvfs {
	struct objset *z_os;
};

/* fs/zfs/sys/zfs_znode.h */
typedef struct znode {
	struct zfsvfs *z_zfsvfs;
} znode_t;

/* sys/fibre-channel/fc_types.h, impl/fc_fcaif.h */
typedef struct fc_packet {
	unsigned short pkt_tran_type;
	void *pkt_comp;
	void *pkt_cmd;
	unsigned long pkt_datalen;
	void *pkt_fca_private;
} fc_packet_t;

/* sys/fibre-channel/fca/emlxs/emlxs_fc.h */
typedef struct emlxs_port {
	struct emlxs_hba *hba;
} emlxs_port_t;

typedef struct emlxs_buf {
	fc_packet_t *pkt;
	emlxs_port_t *port;
} emlxs_buf_t;

typedef struct emlxs_hba {
	int ddiinst;
	unsigned int sli_mode;
	emlxs_buf_t **fc_table;
} emlxs_hba_t;

typedef struct emlxs_channel {
	unsigned short channelno;
} CHANNEL;

/* sys/fibre-channel/fca/emlxs/emlxs_queue.h */
typedef struct CQE_CmplWQ {
	unsigned short RequestTag;
} CQE_CmplWQ_t;

/* usr/src/lib/libdtrace/common/io.d.in: a name is all that is asked of it */
translator devinfo_t < struct buf *B > {
	dev_major = (int)B->b_dip->devi_major;
	dev_minor = 0;
	dev_instance = B->b_dip->devi_instance;
	dev_name = "sd";
	dev_statname = "sd0";
	dev_pathname = "/devices";
};
