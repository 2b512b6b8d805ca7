// SPDX-License-Identifier: GPL-2.0
/*
 * slow_handler: a stranger on a device's interrupt vector. It never has anything to do and says so (IRQ_NONE), but takes
 * `us` microseconds to find out, like a driver whose handler reads a register over a slow bus.
 */
#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/module.h>

static int irq = -1;
module_param(irq, int, 0444);
MODULE_PARM_DESC(irq, "the shared interrupt to sit on");
static int us = 20;
module_param(us, int, 0444);
MODULE_PARM_DESC(us, "microseconds that each run takes");

static irqreturn_t look(int number, void *cookie)
{
	const u64 end = ktime_get_ns() + us * 1000ULL;

	/* Not udelay(): it pauses, and an emulated CPU leaves its loop at each pause. */
	while (ktime_get_ns() < end)
		;
	return IRQ_NONE;
}

static int __init sit_down(void)
{
	return request_irq(irq, look, IRQF_SHARED, "slow_handler", &irq);
}

static void __exit stand_up(void)
{
	free_irq(irq, &irq);
}

module_init(sit_down);
module_exit(stand_up);
MODULE_DESCRIPTION("A shared interrupt handler that is slow and never handles anything");
MODULE_LICENSE("GPL");
