/* vm.c: mmap, munmap, mremap, brk, sbrk, mlockall.
 *
 * Ground rules: the real call decides, errno is its own. What libc maps for itself (thread stacks, malloc's arenas, stdio) is not seen
 * here, nor what the program maps by syscall(). In filtered mode only the end of memory matters: sync objects in it are gone.
 */
#include "share.h"
#include "uring.h"
#include "guard.h"
#include "patch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

static void gone(struct rs_thread *t, void *p, size_t n)
{
	if (t && n)
		rs_sync_memory_unmapped(t, (uintptr_t)p, n);
}

static void *map(void *want, size_t n, int prot, int flags, int fd, off_t off, uintptr_t pc, void *fp)
{
	struct rs_thread *t = rs_active ? rs_self() : NULL;
	if (t && (flags & MAP_FIXED)) /* replaces what was there; a failing call leaves it, then the objects are only forgotten */
		gone(t, want, n);
	void *p = rs_real.mmap(want, n, prot, flags, fd, off);
	if (RS_UNLIKELY(rs_share_on))
		p = rs_share_mapped(p, n, prot, flags, want);
	if (t && rs_config.all && p != MAP_FAILED) {
		uint32_t stack = rs_stack_from(t, pc, fp, rs_config.stack_depth);
		RS_EMIT(t, MMAP, mmap, (uintptr_t)p, n, (uint32_t)prot, (uint32_t)flags, (uint32_t)fd, stack);
		rs_uring_mapped((uintptr_t)p, fd, (uint64_t)off);
	}
	return p;
}

RS_EXPORT void *mmap(void *want, size_t n, int prot, int flags, int fd, off_t off)
{
	if (RS_UNLIKELY(!rs_real.mmap))
		rs_real_init();
	return map(want, n, prot, flags, fd, off, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT void *mmap64(void *want, size_t n, int prot, int flags, int fd, off_t off)
{
	if (RS_UNLIKELY(!rs_real.mmap))
		rs_real_init();
	return map(want, n, prot, flags, fd, off, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT int munmap(void *p, size_t n)
{
	if (RS_UNLIKELY(!rs_real.munmap))
		rs_real_init();
	struct rs_thread *t = rs_active ? rs_self() : NULL;
	if (t) {
		gone(t, p, n);
		if (rs_config.all)
			RS_EMIT(t, MUNMAP, munmap, (uintptr_t)p, n);
	}
	return rs_real.munmap(p, n);
}

RS_EXPORT void *mremap(void *old, size_t old_n, size_t n, int flags, ...)
{
	void *want = NULL;
	if (flags & MREMAP_FIXED) {
		va_list ap;
		va_start(ap, flags);
		want = va_arg(ap, void *);
		va_end(ap);
	}
	if (RS_UNLIKELY(!rs_real.mremap))
		rs_real_init();
	struct rs_thread *t = rs_active ? rs_self() : NULL;
	if (t) {
		if (flags & MREMAP_FIXED)
			gone(t, want, n);
		if (flags & (MREMAP_MAYMOVE | MREMAP_FIXED))
			gone(t, old, old_n);
		else if (n < old_n)
			gone(t, (char *)old + n, old_n - n);
	}
	void *p = rs_real.mremap(old, old_n, n, flags, want);
	if (t && rs_config.all && p != MAP_FAILED)
		RS_EMIT(t, MREMAP, mremap, (uintptr_t)old, old_n, (uintptr_t)p, n);
	return p;
}

RS_EXPORT int brk(void *end)
{
	if (RS_UNLIKELY(!rs_real.brk))
		rs_real_init();
	int r = rs_real.brk(end);
	struct rs_thread *t = rs_active && rs_config.all && r == 0 ? rs_self() : NULL;
	if (t)
		RS_EMIT(t, BRK, brk, (uintptr_t)end);
	return r;
}

RS_EXPORT void *sbrk(intptr_t by)
{
	if (RS_UNLIKELY(!rs_real.sbrk))
		rs_real_init();
	void *was = rs_real.sbrk(by);
	struct rs_thread *t = rs_active && rs_config.all && by && was != (void *)-1 ? rs_self() : NULL;
	if (t)
		RS_EMIT(t, BRK, brk, (uintptr_t)was + (uintptr_t)by);
	return was;
}

/* All that is mapped and lies outside of [lo, hi) is had and locked. What cannot be is as mlockall would leave it: there when it is touched. */
static void lock_around(uintptr_t lo, uintptr_t hi)
{
	char text[1024];
	uintptr_t from = 0, number = 0;
	enum { NUMBER, REST } in = NUMBER;
	long n, fd = RS_SYS4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	while ((n = RS_SYS3(SYS_read, fd, text, sizeof text)) > 0)
		for (const char *p = text; p < text + n; p++) {
			if (in == REST) {
				in = *p == '\n' ? NUMBER : REST;
			} else if (*p == '-') {
				from = number;
				number = 0;
			} else if (*p == ' ') {
				if (number <= lo || from >= hi)
					RS_SYS2(SYS_mlock, from, number - from);
				number = 0;
				in = REST;
			} else {
				number = number << 4 | (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
			}
		}
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
	rs_os_clear(text, sizeof text); /* of an epoch: what is left on a stack is compared */
}

/* The kernel has at once what it locks: of what `guard` reserves for its logs, gigabytes that hardly any program fills. So all is locked as it is touched, and what is not guard's touched here. */
RS_EXPORT int mlockall(int flags)
{
	uintptr_t lo = rs_guard_lo(), hi = rs_guard_hi();
	if (RS_UNLIKELY(!rs_real.mlockall))
		rs_real_init();
	if (!hi || rs_sandboxed || !(flags & MCL_CURRENT) || flags & MCL_ONFAULT)
		return rs_real.mlockall(flags);
	int r = rs_real.mlockall(flags | MCL_ONFAULT);
	if (r != 0)
		return r;
	lock_around(lo, hi);
	return flags & MCL_FUTURE ? rs_real.mlockall(MCL_FUTURE) : 0;
}

/* Other names of the same functions that libc exports: of before POSIX had the name, and for its own libraries. */
RS_ALIAS(__mmap, mmap);
RS_ALIAS(__munmap, munmap);
RS_ALIAS(__sbrk, sbrk);

/* --- the heap's place ------------------------------------------------------------------------------------------------------------ */

long rs_vm_move_heap(uintptr_t from, uintptr_t to)
{
	struct rlimit64 data;
	if (from >= to || to % RS_PAGE)
		return -EINVAL;
	long personality = RS_SYS1(SYS_personality, 0xffffffff), r = RS_SYS4(SYS_prlimit64, 0, RLIMIT_DATA, 0, &data);
	if (personality < 0 || personality & ADDR_NO_RANDOMIZE)
		return -EPERM;
	if (r < 0 || data.rlim_cur != RLIM64_INFINITY)
		return -ENOMEM;
	if ((uintptr_t)RS_SYS1(SYS_brk, 0) != from)
		return -EBUSY;
	if ((uintptr_t)RS_SYS1(SYS_brk, to) != to)
		return -ENOMEM;
	from = (from + RS_PAGE - 1) & -RS_PAGE;
	return from < to ? RS_SYS2(SYS_munmap, from, to - from) : 0;
}

/* Of the addresses below 2 GiB the kernel's choice, those from 1 GiB on, are where the heap of a program that is not PIE may grow, and what programs that want such addresses are given themselves. So
 * ours are below 0x7000'0000, where brk is left room that it hardly needs (internal/engine/memory.go); as random as the kernel's are, by where the page lies. Behind large arrays brk begins higher up, where nobody moves it, and
 * ours would be in its way: then they are at the end of the 2 GiB, or below brk. Negative: there is no place. */
long rs_vm_map_shared(long near, long bytes, int fd)
{
	enum { FLAGS = MAP_SHARED | MAP_NORESERVE, NO_REPLACE = 0x100000 /* MAP_FIXED_NOREPLACE; before Linux 4.17 a hint */ };
	/* moved: from there on (heapLow and heapRandom of memory.go) the engine leaves the heap where it is */
	const uintptr_t moved = 0x61000000, room = 0xb000000, random = 1ul << 25, end = 0x80000000, brk = (uintptr_t)RS_SYS1(SYS_brk, 0), away = (uintptr_t)bytes + ((uintptr_t)near & (random - 1));
	const uintptr_t below[] = {0x70000000, end, brk};
	long r = -ENOMEM;
	for (unsigned i = 0; i <= sizeof below / sizeof *below; i++) {
		bool any = i == sizeof below / sizeof *below || near <= 0 || away >= random << 2; /* as the kernel likes */
		if (!any && (below[i] > end || below[i] <= away))
			continue;
		uintptr_t wish = any ? 0 : (below[i] - away) & -RS_PAGE;
		r = RS_SYS6(SYS_mmap, wish, bytes, PROT_READ | PROT_WRITE, any ? FLAGS | MAP_32BIT : FLAGS | NO_REPLACE, fd, 0);
		uintptr_t at = (uintptr_t)r;
		if (r > 0 && (any || at == wish) && (brk < moved || brk >= at + (uintptr_t)bytes || at >= brk + room))
			return r;
		if (r > 0) {
			RS_SYS2(SYS_munmap, r, bytes);
			r = -ENOMEM;
		}
		if (any)
			break;
	}
	return r;
}
