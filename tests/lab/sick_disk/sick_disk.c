// SPDX-License-Identifier: GPL-2.0
/*
 * sick_disk: blk-mq disks without data, sick0, sick1, ..., each with a mechanism by which real disks lost time.
 *
 * A disk serves a read or write for `us` microseconds by a timer of the CPU that issued it, then raises its interrupt,
 * whose handler, sick_disk.N, completes it. The mechanisms:
 *   plain    no more than that
 *   chained  the handler of another interrupt (sick_mux/N) calls that handler, after that of a stranger
 *            (sick_stranger/N), which takes `stranger` microseconds and returns IRQ_NONE
 *   shared   that stranger's handler is on the same interrupt, before the disk's
 *   threaded the handler wakes a thread, sick_done/N, which completes it on the CPU `cpu`
 *   softirq  the handler raises the softirq NET_RX, which completes it; where `late` is 1, the thread raises it and
 *            doesn't wake ksoftirqd, so it runs after the next interrupt
 *   single   the disk serves one request at a time, the oldest one, or, where `sorted` is 1, the next one by LBA: an old
 *            one at a lower address waits
 *   polled   requests that are polled complete without an interrupt, in the poll of the program that waits for them
 * With any mechanism, where the parameter isn't 0:
 *   rare     one of so many requests takes `times` times as long
 *   random   a request takes as many microseconds as one of `drawn`, each as often: a distribution; their order is
 *            mixed, and the same in each round, so that the mean of some rounds is known
 *   most     the driver refuses a request while it has so many
 *   gate     the driver stops its queue, and runs it once in so many milliseconds
 *   again    one of so many requests is sent back, and again after AGAIN_MS
 *   lost     so many requests are not completed (within an hour)
 * All but `mechanism` and `cpu` can be changed while it runs; with 0 in all but `us` a disk is its own healthy twin. For one CPU:
 * an interrupt that came while the handler runs on another one would be lost.
 */
#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/version.h>

#define MOST 20
#define STRIDE 37			/* of the order of `drawn`: prime to their number */
#define AGAIN_MS 50
#define LOST_NS (3600ULL * NSEC_PER_SEC)
#define SECTORS (1024 * 2048)

static int cpu;			/* of the threads */
module_param(cpu, int, 0444);
static int disks = 1;
module_param(disks, int, 0444);
static char *mechanism[MOST];
module_param_array(mechanism, charp, NULL, 0444);
static int us[MOST];
module_param_array(us, int, NULL, 0644);
static int stranger[MOST];
module_param_array(stranger, int, NULL, 0644);
static int sorted[MOST];
module_param_array(sorted, int, NULL, 0644);
static int late[MOST];
module_param_array(late, int, NULL, 0644);
static int rare[MOST];
module_param_array(rare, int, NULL, 0644);
static int times[MOST];
module_param_array(times, int, NULL, 0644);
static int most[MOST];
module_param_array(most, int, NULL, 0644);
static int random[MOST];
module_param_array(random, int, NULL, 0644);
static int drawn[100];
static int draws;
module_param_array(drawn, int, &draws, 0644);
static int gate[MOST];
module_param_array(gate, int, NULL, 0644);
static int again[MOST];
module_param_array(again, int, NULL, 0644);
static int lost[MOST];
module_param_array(lost, int, NULL, 0644);

struct command {
	struct hrtimer timer;
	struct sick *of;
	struct list_head entry;
	bool sent_back;
};

struct sick {
	int number;
	const char *how;
	struct platform_device *parent;
	struct blk_mq_tag_set set;
	struct gendisk *disk;
	spinlock_t lock;
	struct list_head due;		/* served, to be completed */
	struct list_head waiting;	/* of `single`: to be served, the oldest first */
	struct command *served;
	sector_t at;
	unsigned int count, seen;
	atomic_t taken;			/* requests that it has */
	struct hrtimer gate_timer;
	struct work_struct gating;
	struct net_device *net;		/* of `softirq` */
	struct napi_struct napi;
	struct task_struct *thread;
	wait_queue_head_t wake;
	int mux, mine, strange;
	char names[3][24];
};

static struct sick *all[MOST];

static bool is(const struct sick *one, const char *how)
{
	return !strcmp(one->how, how);
}

/* Complete what is due. */
static void complete_due(struct sick *one)
{
	struct command *command;
	unsigned long flags;

	for (;;) {
		spin_lock_irqsave(&one->lock, flags);
		command = list_first_entry_or_null(&one->due, struct command, entry);
		if (command)
			list_del_init(&command->entry);
		spin_unlock_irqrestore(&one->lock, flags);
		if (!command)
			return;
		atomic_dec(&one->taken);	/* first: the end of a request sends refused ones again */
		blk_mq_end_request(blk_mq_rq_from_pdu(command), BLK_STS_OK);
	}
}

static bool is_any_due(struct sick *one)
{
	return !list_empty_careful(&one->due);
}

static irqreturn_t handle_mux(int irq, void *cookie)
{
	struct sick *one = cookie;

	generic_handle_irq(one->strange);
	generic_handle_irq(one->mine);
	return IRQ_HANDLED;
}

static irqreturn_t handle_stranger(int irq, void *cookie)
{
	struct sick *one = cookie;
	const u64 end = ktime_get_ns() + READ_ONCE(stranger[one->number]) * 1000ULL;

	/* Not udelay(): it pauses, and an emulated CPU leaves its loop at each pause. */
	while (ktime_get_ns() < end)
		;
	return IRQ_NONE;
}

static irqreturn_t handle_mine(int irq, void *cookie)
{
	struct sick *one = cookie;

	if (!is_any_due(one))
		return IRQ_NONE;
	if (one->net && !READ_ONCE(late[one->number]))
		napi_schedule(&one->napi);
	else if (one->thread)
		wake_up(&one->wake);
	else
		complete_due(one);
	return IRQ_HANDLED;
}

static int poll(struct napi_struct *napi, int budget)
{
	napi_complete_done(napi, 0);
	complete_due(container_of(napi, struct sick, napi));
	return 0;
}

/* Raise the softirq as drivers did that forgot to enable bottom halves: neither it nor ksoftirqd runs. */
static void raise_late(struct sick *one)
{
	local_bh_disable();
	napi_schedule(&one->napi);
	local_irq_disable();
	_local_bh_enable();
	local_irq_enable();
}

/* A request is due, and no softirq is raised for it. */
static bool is_to_do(struct sick *one)
{
	return is_any_due(one) && !(one->net && test_bit(NAPI_STATE_SCHED, &one->napi.state));
}

static int complete_in_thread(void *cookie)
{
	struct sick *one = cookie;

	while (!kthread_should_stop()) {
		wait_event_interruptible(one->wake, is_to_do(one) || kthread_should_stop());
		if (one->net)
			raise_late(one);
		else
			complete_due(one);
	}
	return 0;
}

static void serve_next(struct sick *one);

/* The device is done with a request, or it is time to send one again. */
static enum hrtimer_restart served(struct hrtimer *timer)
{
	struct command *command = container_of(timer, struct command, timer);
	struct request *rq = blk_mq_rq_from_pdu(command);
	struct sick *one = command->of;
	unsigned long flags;

	if (command->sent_back) {
		blk_mq_kick_requeue_list(rq->q);
		return HRTIMER_NORESTART;
	}
	spin_lock_irqsave(&one->lock, flags);
	list_add_tail(&command->entry, &one->due);
	if (one->served == command)
		one->served = NULL;
	spin_unlock_irqrestore(&one->lock, flags);
	if (!(rq->cmd_flags & REQ_POLLED))
		generic_handle_irq(one->mux ?: one->mine);
	if (is(one, "single"))
		serve_next(one);
	return HRTIMER_NORESTART;
}

static void serve(struct command *command)
{
	struct sick *one = command->of;
	const int number = one->number, each = READ_ONCE(rare[number]);
	u64 ns = READ_ONCE(us[number]) * 1000ULL;

	if (READ_ONCE(random[number]) && draws)
		ns = READ_ONCE(drawn[one->count++ * STRIDE % draws]) * 1000ULL;
	if (each && one->count++ % each == 0)
		ns *= READ_ONCE(times[number]);
	if (READ_ONCE(lost[number]) > 0) {
		WRITE_ONCE(lost[number], lost[number] - 1);
		ns = LOST_NS;
	}
	hrtimer_start(&command->timer, ns_to_ktime(ns), HRTIMER_MODE_REL_HARD);
}

/* Serve the oldest request; sorted: the next one by LBA from where the last one was, else the lowest. */
static void serve_next(struct sick *one)
{
	struct command *command, *next = NULL, *lowest = NULL;
	unsigned long flags;

	spin_lock_irqsave(&one->lock, flags);
	if (!one->served) {
		list_for_each_entry(command, &one->waiting, entry) {
			sector_t at = blk_rq_pos(blk_mq_rq_from_pdu(command));

			if (at >= one->at && (!next || at < blk_rq_pos(blk_mq_rq_from_pdu(next))))
				next = command;
			if (!lowest || at < blk_rq_pos(blk_mq_rq_from_pdu(lowest)))
				lowest = command;
		}
		next = next ?: lowest;
		if (!READ_ONCE(sorted[one->number]))
			next = list_first_entry_or_null(&one->waiting, struct command, entry);
		if (next) {
			list_del_init(&next->entry);
			one->served = next;
			one->at = blk_rq_pos(blk_mq_rq_from_pdu(next));
		}
	} else {
		next = NULL;
	}
	spin_unlock_irqrestore(&one->lock, flags);
	if (next)
		serve(next);
}

/* Send one of `again` requests back, once; return whether. */
static bool is_sent_back(struct sick *one, struct request *rq)
{
	struct command *command = blk_mq_rq_to_pdu(rq);
	const int each = READ_ONCE(again[one->number]);

	if (command->sent_back || !each || one->seen++ % each) {
		command->sent_back = false;
		return false;
	}
	command->sent_back = true;
	blk_mq_requeue_request(rq, false);
	hrtimer_start(&command->timer, ms_to_ktime(AGAIN_MS), HRTIMER_MODE_REL_HARD);
	return true;
}

/* Run the stopped queue once. */
static void run_once(struct work_struct *work)
{
	struct sick *one = container_of(work, struct sick, gating);

	blk_mq_start_stopped_hw_queues(one->disk->queue, false);
	if (READ_ONCE(gate[one->number]))
		blk_mq_stop_hw_queues(one->disk->queue);
}

static enum hrtimer_restart open_gate(struct hrtimer *timer)
{
	struct sick *one = container_of(timer, struct sick, gate_timer);
	const int ms = READ_ONCE(gate[one->number]);

	schedule_work(&one->gating);
	if (!ms)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ms_to_ktime(ms));
	return HRTIMER_RESTART;
}

static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	struct request *rq = data->rq;
	struct command *command = blk_mq_rq_to_pdu(rq);
	struct sick *one = hctx->queue->queuedata;
	const int room = READ_ONCE(most[one->number]);
	unsigned long flags;

	if (atomic_inc_return(&one->taken) > room && room) {
		atomic_dec(&one->taken);
		return BLK_STS_DEV_RESOURCE;
	}
	command->of = one;
	INIT_LIST_HEAD(&command->entry);
	blk_mq_start_request(rq);
	if (is_sent_back(one, rq)) {
		atomic_dec(&one->taken);
		return BLK_STS_OK;
	}
	if (READ_ONCE(gate[one->number]) && !hrtimer_active(&one->gate_timer))
		hrtimer_start(&one->gate_timer, 0, HRTIMER_MODE_REL_HARD);
	if (!is(one, "single")) {
		serve(command);
		return BLK_STS_OK;
	}
	spin_lock_irqsave(&one->lock, flags);
	list_add_tail(&command->entry, &one->waiting);
	spin_unlock_irqrestore(&one->lock, flags);
	serve_next(one);
	return BLK_STS_OK;
}

static void prepare(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	timer->function = function;
#endif
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
typedef int node_t;
#else
typedef unsigned int node_t;
#endif

static int init_request(struct blk_mq_tag_set *set, struct request *rq, unsigned int queue, node_t node)
{
	struct command *command = blk_mq_rq_to_pdu(rq);

	prepare(&command->timer, served);
	return 0;
}

static int poll_queue(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch)
{
	struct sick *one = hctx->queue->queuedata;
	const bool found = is_any_due(one);

	complete_due(one);
	return found;
}

/* Queue 0 is for all requests; of `polled` queue 1 is for polled ones. */
static void map_queues(struct blk_mq_tag_set *set)
{
	set->map[HCTX_TYPE_DEFAULT].nr_queues = 1;
	blk_mq_map_queues(&set->map[HCTX_TYPE_DEFAULT]);
	if (set->nr_maps > HCTX_TYPE_POLL) {
		set->map[HCTX_TYPE_POLL].nr_queues = 1;
		set->map[HCTX_TYPE_POLL].queue_offset = 1;
		blk_mq_map_queues(&set->map[HCTX_TYPE_POLL]);
	}
}

static const struct blk_mq_ops operations = {
	.queue_rq = queue_rq,
	.init_request = init_request,
	.map_queues = map_queues,
	.poll = poll_queue,
};
static const struct block_device_operations methods = { .owner = THIS_MODULE };

/* Add a handler to an interrupt, a new one for 0; return the interrupt. */
static int interrupt(struct sick *one, int which, const char *name, irq_handler_t handler, int irq)
{
	const bool is_new = !irq;
	int error;

	if (is_new) {
		irq = irq_alloc_desc(NUMA_NO_NODE);
		if (irq < 0)
			return irq;
		irq_set_chip_and_handler(irq, &dummy_irq_chip, handle_simple_irq);
	}
	snprintf(one->names[which], sizeof(one->names[which]), name, one->number);
	error = request_irq(irq, handler, IRQF_SHARED, one->names[which], one);
	if (error && is_new)
		irq_free_desc(irq);
	return error ?: irq;
}

static void without_interrupt(struct sick *one, int irq, bool is_last)
{
	if (irq <= 0)
		return;
	free_irq(irq, one);
	if (is_last)
		irq_free_desc(irq);
}

static int begin_completion(struct sick *one)
{
	if (is(one, "chained") || is(one, "shared"))
		one->strange = interrupt(one, 1, "sick_stranger/%d", handle_stranger, 0);
	if (is(one, "chained"))
		one->mux = interrupt(one, 2, "sick_mux/%d", handle_mux, 0);
	if (one->strange < 0 || one->mux < 0)
		return -ENOSPC;
	if (is(one, "softirq")) {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
		one->net = alloc_netdev_dummy(0);
#else
		one->net = kzalloc(sizeof(*one->net), GFP_KERNEL);
		if (one->net)
			init_dummy_netdev(one->net);
#endif
		if (!one->net)
			return -ENOMEM;
		netif_napi_add(one->net, &one->napi, poll);
		napi_enable(&one->napi);
	}
	if (is(one, "threaded") || one->net) {
		struct task_struct *thread = kthread_create(complete_in_thread, one, "sick_done/%d", one->number);

		if (IS_ERR(thread))
			return PTR_ERR(thread);
		kthread_bind(thread, cpu);
		one->thread = thread;
		wake_up_process(thread);
	}
	one->mine = interrupt(one, 0, "sick_disk.%d", handle_mine, is(one, "shared") ? one->strange : 0);
	return one->mine < 0 ? one->mine : 0;
}

static void end_completion(struct sick *one)
{
	without_interrupt(one, one->mux, true);
	without_interrupt(one, one->mine, one->mine != one->strange);
	if (one->thread)
		kthread_stop(one->thread);
	if (one->net) {
		napi_disable(&one->napi);
		netif_napi_del(&one->napi);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
		free_netdev(one->net);
#else
		kfree(one->net);
#endif
	}
	without_interrupt(one, one->strange, true);
}

static struct gendisk *allocated(struct sick *one)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	struct queue_limits limits = { .logical_block_size = 512 };

	return blk_mq_alloc_disk(&one->set, &limits, one);
#else
	return blk_mq_alloc_disk(&one->set, one);
#endif
}

static int add(int number)
{
	struct sick *one = kzalloc(sizeof(*one), GFP_KERNEL);
	int error;

	if (!one)
		return -ENOMEM;
	all[number] = one;
	one->number = number;
	one->how = mechanism[number] ?: "plain";
	spin_lock_init(&one->lock);
	INIT_LIST_HEAD(&one->due);
	INIT_LIST_HEAD(&one->waiting);
	init_waitqueue_head(&one->wake);
	prepare(&one->gate_timer, open_gate);
	INIT_WORK(&one->gating, run_once);
	one->parent = platform_device_register_simple("sick_disk", number, NULL, 0);
	if (IS_ERR(one->parent))
		return PTR_ERR(one->parent);
	one->set.ops = &operations;
	one->set.nr_hw_queues = is(one, "polled") ? 2 : 1;
	one->set.nr_maps = is(one, "polled") ? HCTX_MAX_TYPES : 1;
	one->set.queue_depth = 64;
	one->set.numa_node = NUMA_NO_NODE;
	one->set.cmd_size = sizeof(struct command);
	error = blk_mq_alloc_tag_set(&one->set);
	if (error)
		return error;
	error = begin_completion(one);
	if (error)
		return error;
	one->disk = allocated(one);
	if (IS_ERR(one->disk))
		return PTR_ERR(one->disk);
	one->disk->fops = &methods;
	one->disk->private_data = one;
	snprintf(one->disk->disk_name, DISK_NAME_LEN, "sick%d", number);
	set_capacity(one->disk, SECTORS);
	return device_add_disk(&one->parent->dev, one->disk, NULL);
}

static void drop(int number)
{
	struct sick *one = all[number];

	if (!one)
		return;
	gate[number] = 0;	/* its timer runs once more at most */
	hrtimer_cancel(&one->gate_timer);
	if (!IS_ERR_OR_NULL(one->disk)) {
		cancel_work_sync(&one->gating);
		blk_mq_start_stopped_hw_queues(one->disk->queue, true);
		del_gendisk(one->disk);
		put_disk(one->disk);
	}
	end_completion(one);
	if (one->set.tags)
		blk_mq_free_tag_set(&one->set);
	if (!IS_ERR_OR_NULL(one->parent))
		platform_device_unregister(one->parent);
	kfree(one);
	all[number] = NULL;
}

static int __init begin(void)
{
	int number, error;

	if (disks < 1 || disks > MOST)
		return -EINVAL;
	for (number = 0; number < disks; number++) {
		error = add(number);
		if (error) {
			for (; number >= 0; number--)
				drop(number);
			return error;
		}
	}
	return 0;
}

static void __exit end(void)
{
	int number;

	for (number = 0; number < disks; number++)
		drop(number);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("Disks without data that lose time as real ones did");
MODULE_LICENSE("GPL");
