/* allocask.c: what programs ask of malloc beside blocks, where the heap is our own: malloc_trim, mallinfo.
 *
 * Ground rules: as heap.c. malloc_stats, malloc_info and mallopt stay libc's, and say and change nothing of ours. */
#include "alloc.h"
#include <errno.h>
#include <limits.h>
#include <malloc.h>

RS_EXPORT int malloc_trim(size_t pad)
{
	if (!rs_alloc.on)
		return rs_real.malloc_trim ? rs_real.malloc_trim(pad) : 0;
	bool ours = rs_alloc_trim();
	return (rs_real.malloc_trim && rs_real.malloc_trim(pad)) || ours;
}

RS_EXPORT struct mallinfo2 mallinfo2(void)
{
	if (!rs_alloc.on && rs_real.mallinfo2)
		return rs_real.mallinfo2();
	struct rs_alloc_counts c;
	rs_alloc_count(&c);
	return (struct mallinfo2){.arena = c.held - c.huge, .ordblks = c.spans, .hblks = c.huge_blocks, .hblkhd = c.huge, .uordblks = c.held - c.free - c.huge, .fordblks = c.free, .keepcost = 0};
}

/* As glibc's, of figures that do not fit: what is left of them. */
RS_EXPORT struct mallinfo mallinfo(void)
{
	if (!rs_alloc.on && rs_real.mallinfo)
		return rs_real.mallinfo();
	struct mallinfo2 m = mallinfo2();
	return (struct mallinfo){.arena = (int)m.arena, .ordblks = (int)m.ordblks, .hblks = (int)m.hblks, .hblkhd = (int)m.hblkhd, .uordblks = (int)m.uordblks, .fordblks = (int)m.fordblks};
}
RS_ALIAS(__libc_mallinfo, mallinfo);
