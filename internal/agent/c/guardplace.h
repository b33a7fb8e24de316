/* guardplace.h: how threads take places of their own, of which a log is one and an alternate stack another (guardlog.c, guardstack.c). Includes nothing of the agent's: tested by itself (ctest/testdata/guard_place.c). */
#ifndef RS_GUARDPLACE_H
#define RS_GUARDPLACE_H
#include <stddef.h>
#include <stdint.h>

/* The index of a place that is the caller's from here on; most: all are taken. tid: that of the first place, 0 where it is nobody's; the next one's is so many bytes behind it. used: so many were ever used. Who finds none among these makes room for one more, and then takes
 * a place as all do: by the time it comes to that, the room may be another's. */
static inline uint32_t rs_guard_take_place(uint32_t *tid, size_t bytes, uint32_t *used, uint32_t most, uint32_t own)
{
	for (uint32_t n = __atomic_load_n(used, __ATOMIC_ACQUIRE);;) {
		for (uint32_t i = 0, none = 0; i < n; i++, none = 0) {
			uint32_t *t = (uint32_t *)((char *)tid + i * bytes);
			if (!__atomic_load_n(t, __ATOMIC_RELAXED) && __atomic_compare_exchange_n(t, &none, own, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				return i;
		}
		if (n >= most)
			return most;
		if (__atomic_compare_exchange_n(used, &n, n + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			n++;
	}
}
#endif
