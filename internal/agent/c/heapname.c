/* heapname.c: the malloc family's rarer members: aligned blocks, the size of a block, glibc's second names. What each does is heap.c's, whose ground rules hold here. */
#include "alloc.h"
#include "core.h"
#include "heap.h"
#include "os.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

RS_EXPORT void cfree(void *p);
RS_EXPORT void cfree(void *p)
{
	if (RS_UNLIKELY(rs_heap_is_early(p) || !rs_real.free))
		return;
	RS_HEAP_GIVE(p, FREE);
	rs_heap_free_real(p, rs_real.cfree ? rs_real.cfree : rs_real.free);
}
RS_OLD(cfree, cfree, "GLIBC_2.2.5");

RS_EXPORT void *memalign(size_t align, size_t n);
RS_EXPORT void *memalign(size_t align, size_t n)
{
	if (RS_UNLIKELY(!rs_real.memalign))
		return rs_heap_early(align, n);
	void *p = rs_heap_memalign_real(rs_real.memalign, align, n, RS_CALLER(), __builtin_frame_address(0));
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT void *aligned_alloc(size_t align, size_t n)
{
	if (RS_UNLIKELY(!rs_real.aligned_alloc))
		return rs_heap_early(align, n);
	void *p = rs_heap_memalign_real(rs_real.aligned_alloc, align, n, RS_CALLER(), __builtin_frame_address(0));
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
	if (RS_UNLIKELY(!rs_real.posix_memalign)) {
		void *p = rs_heap_early(align, n);
		if (p)
			*out = p;
		return p ? 0 : ENOMEM;
	}
	int r;
	if (rs_alloc.on && align % sizeof(void *) == 0 && align && !(align & (align - 1))) {
		int error = errno;
		void *p = rs_heap_memalign_ours(align, n, RS_CALLER(), __builtin_frame_address(0));
		if (p)
			*out = p;
		else
			errno = error;
		r = p ? 0 : ENOMEM;
	} else
		r = rs_real.posix_memalign(out, align, n);
	if (r == 0)
		RS_HEAP_GOT(*out, n, MEMALIGN);
	return r;
}

RS_EXPORT void *valloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.valloc))
		return rs_heap_early(4096, n);
	void *p = rs_alloc.on ? rs_heap_memalign_ours(RS_PAGE, n, RS_CALLER(), __builtin_frame_address(0)) : rs_real.valloc(n);
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT void *pvalloc(size_t n);
RS_EXPORT void *pvalloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.pvalloc))
		return rs_heap_early(4096, (n + 4095) & ~(size_t)4095);
	void *p = rs_alloc.on && n <= PTRDIFF_MAX ? rs_heap_memalign_ours(RS_PAGE, (n + RS_PAGE - 1) & -RS_PAGE, RS_CALLER(), __builtin_frame_address(0)) : rs_real.pvalloc(n);
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT size_t malloc_usable_size(void *p);
RS_EXPORT size_t malloc_usable_size(void *p)
{
	if (rs_heap_is_early(p))
		return rs_heap_early_size(p);
	if (rs_alloc_has((uintptr_t)p))
		return rs_alloc_usable_size(p);
	size_t size = rs_real.malloc_usable_size ? rs_real.malloc_usable_size(p) : 0;
	if (RS_UNLIKELY(rs_config.races) && size && rs_active) {
		struct rs_thread *t = rs_self();
		if (t)
			rs_race_live_usable(t, (uintptr_t)p, size);
	}
	return size;
}

/* glibc's second names, by which some programs reach its allocator past an interposed one. */
RS_EXPORT void *__libc_malloc(size_t n);
RS_EXPORT void *__libc_malloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.__libc_malloc))
		return rs_heap_early(16, n);
	void *p = rs_alloc.on ? rs_alloc_malloc(n) : rs_real.__libc_malloc(n);
	RS_HEAP_GOT(p, n, MALLOC);
	return p;
}

RS_EXPORT void *__libc_calloc(size_t m, size_t n);
RS_EXPORT void *__libc_calloc(size_t m, size_t n)
{
	if (RS_UNLIKELY(!rs_real.__libc_calloc))
		return calloc(m, n);
	void *p = rs_alloc.on ? rs_alloc_calloc(m, n) : rs_real.__libc_calloc(m, n);
	RS_HEAP_GOT(p, m * n, CALLOC);
	return p;
}

RS_EXPORT void *__libc_realloc(void *old, size_t n);
RS_EXPORT void *__libc_realloc(void *old, size_t n)
{
	return rs_heap_resize(rs_real.__libc_realloc, old, n, RS_ALLOC_REALLOC, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT void *__libc_memalign(size_t align, size_t n);
RS_EXPORT void *__libc_memalign(size_t align, size_t n)
{
	if (RS_UNLIKELY(!rs_real.__libc_memalign))
		return rs_heap_early(align, n);
	void *p = rs_heap_memalign_real(rs_real.__libc_memalign, align, n, RS_CALLER(), __builtin_frame_address(0));
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT void *__libc_valloc(size_t n);
RS_EXPORT void *__libc_valloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.__libc_valloc))
		return rs_heap_early(4096, n);
	void *p = rs_alloc.on ? rs_heap_memalign_ours(RS_PAGE, n, RS_CALLER(), __builtin_frame_address(0)) : rs_real.__libc_valloc(n);
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT void *__libc_pvalloc(size_t n);
RS_EXPORT void *__libc_pvalloc(size_t n)
{
	if (RS_UNLIKELY(!rs_real.__libc_pvalloc))
		return rs_heap_early(4096, (n + 4095) & ~(size_t)4095);
	void *p = rs_alloc.on && n <= PTRDIFF_MAX ? rs_heap_memalign_ours(RS_PAGE, (n + RS_PAGE - 1) & -RS_PAGE, RS_CALLER(), __builtin_frame_address(0)) : rs_real.__libc_pvalloc(n);
	RS_HEAP_GOT(p, n, MEMALIGN);
	return p;
}

RS_EXPORT void __libc_free(void *p);
RS_EXPORT void __libc_free(void *p)
{
	if (RS_UNLIKELY(rs_heap_is_early(p) || !rs_real.__libc_free))
		return;
	RS_HEAP_GIVE(p, FREE);
	rs_heap_free_real(p, rs_real.__libc_free);
}
