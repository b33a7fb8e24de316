/* real_heap.h: real functions that heap.c, new.c and vm.c interpose. The operators are found by their mangled names; new.c explains
 * what happens where there are none in the global scope. */
struct mallinfo;
struct mallinfo2;
#define RS_REAL_HEAP \
	R(int, malloc_trim, "", (size_t)) \
	R(struct mallinfo, mallinfo, "", (void)) \
	R(struct mallinfo2, mallinfo2, "", (void)) \
	R(void *, malloc, "", (size_t)) \
	R(void *, calloc, "", (size_t, size_t)) \
	R(void *, realloc, "", (void *, size_t)) \
	R(void *, reallocarray, "", (void *, size_t, size_t)) \
	R(void, free, "", (void *)) \
	R(void, cfree, "GLIBC_2.2.5", (void *)) \
	R(void *, memalign, "", (size_t, size_t)) \
	R(void *, aligned_alloc, "", (size_t, size_t)) \
	R(int, posix_memalign, "", (void **, size_t, size_t)) \
	R(void *, valloc, "", (size_t)) \
	R(void *, pvalloc, "", (size_t)) \
	R(size_t, malloc_usable_size, "", (void *)) \
	R(void *, __libc_malloc, "", (size_t)) \
	R(void *, __libc_calloc, "", (size_t, size_t)) \
	R(void *, __libc_realloc, "", (void *, size_t)) \
	R(void *, __libc_memalign, "", (size_t, size_t)) \
	R(void *, __libc_valloc, "", (size_t)) \
	R(void *, __libc_pvalloc, "", (size_t)) \
	R(void, __libc_free, "", (void *)) \
	R(void *, mmap, "", (void *, size_t, int, int, int, off_t)) \
	R(int, munmap, "", (void *, size_t)) \
	R(void *, mremap, "", (void *, size_t, size_t, int, ...)) \
	R(int, brk, "", (void *)) \
	R(int, mlockall, "", (int)) \
	R(void *, sbrk, "", (intptr_t))
