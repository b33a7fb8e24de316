/* order.h: orders threads by means the detector does not see: atomics and sched_yield. `reach(n)` says that step n is done,
 * `await(n)` waits until it is. */
#ifndef ORDER_H
#define ORDER_H
#include <sched.h>
static int order_step;
static inline void reach(int n) { __atomic_store_n(&order_step, n, __ATOMIC_SEQ_CST); }
static inline void await(int n)
{
	while (__atomic_load_n(&order_step, __ATOMIC_SEQ_CST) < n)
		sched_yield();
}
/* One more thread has arrived; waits for all n of them. */
static int order_met;
static inline void meet(int n)
{
	__atomic_add_fetch(&order_met, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&order_met, __ATOMIC_SEQ_CST) < n)
		sched_yield();
}
#endif
