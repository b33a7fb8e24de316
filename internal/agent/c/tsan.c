/* tsan.c: the interface of ThreadSanitizer's runtime, for programs that gcc or clang built with -fsanitize=thread and that are linked with the shared one (libtsan.so). Go makes that the name of
 * the agent's library for such a program (internal/agent/instrumented.go), so the real one is never loaded, and these functions are what the compiler's calls come to. For all
 * others the names are taken away.
 *
 * Accesses are told as what they are: a plain one neither orders nor is an atomic's, whatever instruction it is; an atomic one orders as the program says. Stacks are walked, as everywhere, so
 * entries and exits of functions are nothing here. Locks, threads and what libc does are seen by their functions (mutex.c, libmem.c, ...).
 *
 * Interface: gcc's libsanitizer, tsan_interface.h, tsan_interface_atomic.h, sanitizer/tsan_interface.h, and the dynamic annotations. What is not here, Go must know (instrumented.go): the
 * program is refused then.
 *
 * Ground rules: as access.c's; the calls are ordinary ones, so vector registers are free. */
#include "access.h"
#include "called.h"
#include "full.h"
#include "race.h"
#include "fd.h"
#include "os.h"
#include "proc.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Exported where the agent is the program's runtime: Go knows them by the section. */
#define RS_RUNTIME __attribute__((visibility("protected"), section("rs_tsan")))

enum { RSP = 4, RBP = 5, RCX = 1 };
enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST }; /* memory_order */

/* Begins the definition of an exported function. */
#define TSAN(ret, name, ...) \
	RS_RUNTIME ret name(__VA_ARGS__); \
	RS_RUNTIME ret name(__VA_ARGS__)

RS_TLS struct { uint32_t reads, writes; } ignored;

static inline bool acquires(int order) { return (order & 0x7fff) != RELAXED && (order & 0x7fff) != RELEASE; }
static inline bool releases(int order) { return (order & 0x7fff) >= RELEASE; }

/* fp is the frame of the function that the program called, pc where it returns to. */
static __attribute__((noinline)) void tell(const volatile void *p, size_t n, unsigned kind, uintptr_t pc, const uint64_t *fp)
{
	struct rs_access_context x = {.site = pc - 1, .addr = {(uintptr_t)p}, .data = kind, .info = kind & REPEATED ? 1 : n};
	x.gpr[RCX] = n;
	x.gpr[RSP] = (uintptr_t)fp + 16;
	x.gpr[RBP] = fp[0];
	rs_access(&x);
}

/* What AnnotateBenignRace was told of. */
enum { BENIGN = 256 };
static struct { uintptr_t lo, hi; } benign[BENIGN];
static uint32_t benign_count;

static bool is_benign(uintptr_t p)
{
	for (uint32_t i = 0, n = __atomic_load_n(&benign_count, __ATOMIC_ACQUIRE); i < n && i < BENIGN; i++)
		if (benign[i].lo <= p && p < __atomic_load_n(&benign[i].hi, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static inline void plain(const volatile void *p, size_t n, unsigned kind, uintptr_t pc, const uint64_t *fp)
{
	bool write = kind & WRITE;
	if (RS_UNLIKELY(write ? ignored.writes : ignored.reads) || !n || !rs_active || is_benign((uintptr_t)p))
		return;
	if (!rs_full_at_once((uintptr_t)p, n, kind | REPEATED, pc, fp))
		tell(p, n, kind | REPEATED, pc, fp);
}

#define PLAIN(p, n, kind) plain(p, n, kind, RS_CALLER(), __builtin_frame_address(0))
#define ATOMICALLY(p, n, kind) tell(p, n, (kind) | ATOMIC, RS_CALLER(), __builtin_frame_address(0))

/* --- plain accesses ---------------------------------------------------------------------------------------------------------------- */

#define BOTH(before, size, after) \
	TSAN(void, __tsan_##before##read##size##after, const void *p) { PLAIN(p, size, READ); } \
	TSAN(void, __tsan_##before##write##size##after, void *p) { PLAIN(p, size, WRITE); }
#define BY_PC(size) \
	TSAN(void, __tsan_read##size##_pc, const void *p, void *pc) { plain(p, size, READ, (uintptr_t)pc, __builtin_frame_address(0)); } \
	TSAN(void, __tsan_write##size##_pc, void *p, void *pc) { plain(p, size, WRITE, (uintptr_t)pc, __builtin_frame_address(0)); }
BOTH(, 1, ) BOTH(, 2, ) BOTH(, 4, ) BOTH(, 8, ) BOTH(, 16, )
BOTH(unaligned_, 2, ) BOTH(unaligned_, 4, ) BOTH(unaligned_, 8, ) BOTH(unaligned_, 16, )
BOTH(volatile_, 1, ) BOTH(volatile_, 2, ) BOTH(volatile_, 4, ) BOTH(volatile_, 8, ) BOTH(volatile_, 16, )
BOTH(unaligned_volatile_, 2, ) BOTH(unaligned_volatile_, 4, ) BOTH(unaligned_volatile_, 8, ) BOTH(unaligned_volatile_, 16, )
BY_PC(1) BY_PC(2) BY_PC(4) BY_PC(8) BY_PC(16)

TSAN(void, __tsan_read_range, const void *p, size_t n) { PLAIN(p, n, READ); }
TSAN(void, __tsan_write_range, void *p, size_t n) { PLAIN(p, n, WRITE); }

/* clang's instrumentation of both a read and a write of the same bytes. */
#define READ_WRITE(before, size) \
	TSAN(void, __tsan_##before##read_write##size, void *p) { PLAIN(p, size, WRITE); }
READ_WRITE(, 1) READ_WRITE(, 2) READ_WRITE(, 4) READ_WRITE(, 8) READ_WRITE(, 16)
READ_WRITE(unaligned_, 2) READ_WRITE(unaligned_, 4) READ_WRITE(unaligned_, 8) READ_WRITE(unaligned_, 16)

TSAN(void, __tsan_vptr_read, void **p) { PLAIN(p, 8, READ); }
/* A constructor's or destructor's: one that changes nothing is the compiler's doing. */
TSAN(void, __tsan_vptr_update, void **p, void *to)
{
	if (__atomic_load_n(p, __ATOMIC_RELAXED) != to)
		PLAIN(p, 8, WRITE);
}

TSAN(void *, __tsan_memset, void *to, int x, size_t n)
{
	void *p = to;
	PLAIN(to, n, WRITE);
	__asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(x) : "memory");
	return to;
}

static void *moved(void *to, const void *from, size_t n)
{
	void *p = to;
	if ((uintptr_t)to - (uintptr_t)from < n) {
		p = (char *)to + n - 1;
		from = (const char *)from + n - 1;
		__asm__ volatile("std\n\trep movsb\n\tcld" : "+D"(p), "+S"(from), "+c"(n) : : "memory");
	} else
		__asm__ volatile("rep movsb" : "+D"(p), "+S"(from), "+c"(n) : : "memory");
	return to;
}

TSAN(void *, __tsan_memmove, void *to, const void *from, size_t n)
{
	PLAIN(from, n, READ);
	PLAIN(to, n, WRITE);
	return moved(to, from, n);
}

TSAN(void *, __tsan_memcpy, void *to, const void *from, size_t n)
{
	PLAIN(from, n, READ);
	PLAIN(to, n, WRITE);
	return moved(to, from, n);
}

/* --- atomic accesses --------------------------------------------------------------------------------------------------------------- */

/* A release is told before it is made, an acquire after: whoever sees what was written comes later. All are made sequentially consistent, which is never less than what was asked for. */
static inline unsigned order_of(int order) { return (acquires(order) ? 0 : NO_TAKE) | (releases(order) ? 0 : NO_GIVE); }
#define LOADED(p, order) ATOMICALLY(p, sizeof *(p), READ | (order_of(order) & NO_TAKE) | NO_GIVE)
#define CHANGES(p, order) ATOMICALLY(p, sizeof *(p), READ | WRITE | order_of(order))

#define FETCH(bits, type, name, change) \
	TSAN(type, __tsan_atomic##bits##_fetch_##name, volatile type *p, type v, int order) \
	{ \
		type old = load##bits(p), new; \
		CHANGES(p, order); \
		do \
			new = change; \
		while (!swap##bits(p, &old, new)); \
		return old; \
	}
/* One that finds another value than expected is a load, and told as such. */
#define COMPARE(bits, type, name) \
	TSAN(bool, __tsan_atomic##bits##_compare_exchange_##name, volatile type *p, type *expected, type v, int order, int failed) \
	{ \
		type old = load##bits(p); \
		if (old == *expected) { \
			CHANGES(p, order); \
			old = *expected; \
			if (swap##bits(p, &old, v)) \
				return true; \
		} \
		LOADED(p, failed); \
		*expected = old; \
		return false; \
	}
#define ATOMICS(bits, type) \
	TSAN(type, __tsan_atomic##bits##_load, const volatile type *p, int order) \
	{ \
		type v = load##bits((volatile type *)p); \
		LOADED(p, order); \
		return v; \
	} \
	TSAN(void, __tsan_atomic##bits##_store, volatile type *p, type v, int order) \
	{ \
		type old = load##bits(p); \
		ATOMICALLY(p, sizeof *p, WRITE | NO_TAKE | (order_of(order) & NO_GIVE)); \
		while (!swap##bits(p, &old, v)) \
			; \
	} \
	TSAN(type, __tsan_atomic##bits##_compare_exchange_val, volatile type *p, type expected, type v, int order, int failed) \
	{ \
		type old = load##bits(p); \
		if (old == expected) { \
			CHANGES(p, order); \
			if (swap##bits(p, &old, v)) \
				return old; \
		} \
		LOADED(p, failed); \
		return old; \
	} \
	COMPARE(bits, type, strong) COMPARE(bits, type, weak) \
	TSAN(type, __tsan_atomic##bits##_exchange, volatile type *p, type v, int order) \
	{ \
		type old = load##bits(p); \
		CHANGES(p, order); \
		while (!swap##bits(p, &old, v)) \
			; \
		return old; \
	} \
	FETCH(bits, type, add, (type)(old + v)) FETCH(bits, type, sub, (type)(old - v)) FETCH(bits, type, and, (type)(old & v)) FETCH(bits, type, or, (type)(old | v)) \
	FETCH(bits, type, xor, (type)(old ^ v)) FETCH(bits, type, nand, (type)~(old & v))

#define PLAIN_SIZE(bits, type) \
	static inline type load##bits(volatile type *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); } \
	static inline bool swap##bits(volatile type *p, type *old, type new) { return __atomic_compare_exchange_n(p, old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); } \
	ATOMICS(bits, type)

/* There is one instruction for 16 bytes, which writes: so does libtsan's load. */
static inline bool swap128(volatile __uint128_t *p, __uint128_t *old, __uint128_t new)
{
	uint64_t lo = (uint64_t)*old, hi = (uint64_t)(*old >> 64);
	bool done;
	__asm__ volatile("lock cmpxchg16b %1" : "=@ccz"(done), "+m"(*p), "+a"(lo), "+d"(hi) : "b"((uint64_t)new), "c"((uint64_t)(new >> 64)) : "memory");
	*old = (__uint128_t)hi << 64 | lo;
	return done;
}

static inline __uint128_t load128(volatile __uint128_t *p)
{
	__uint128_t v = 0;
	swap128(p, &v, 0);
	return v;
}

PLAIN_SIZE(8, uint8_t)
PLAIN_SIZE(16, uint16_t)
PLAIN_SIZE(32, uint32_t)
PLAIN_SIZE(64, uint64_t)
ATOMICS(128, __uint128_t)

static void fence(int order)
{
	struct rs_thread *t = rs_active ? rs_self() : NULL;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (t && (acquires(order) || releases(order)))
		rs_full_fence(t, acquires(order), releases(order));
}

TSAN(void, __tsan_atomic_thread_fence, int order) { fence(order); }
TSAN(void, __tsan_atomic_signal_fence, int order) { (void)order; }

/* --- what the program says itself ----------------------------------------------------------------------------------------------------- */

/* A channel of its own for each address. No descriptor's has these bits. */
static void says(const volatile void *p, bool gives)
{
	struct rs_thread *t = rs_active ? rs_self() : NULL;
	uint64_t channel = (uintptr_t)p | 5ull << 60;
	if (!t)
		return;
	if (gives)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, channel, RS_CHANNEL_OTHER, -1);
	else
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, channel, RS_CHANNEL_OTHER, -1);
}

static void ignore(int reads, int writes)
{
	ignored.reads += (uint32_t)reads;
	ignored.writes += (uint32_t)writes;
}

TSAN(void, __tsan_acquire, void *p) { says(p, false); }
TSAN(void, __tsan_release, void *p) { says(p, true); }
TSAN(void, AnnotateHappensBefore, const char *file, int line, uintptr_t p) { (void)file, (void)line, says((void *)p, true); }
TSAN(void, AnnotateHappensAfter, const char *file, int line, uintptr_t p) { (void)file, (void)line, says((void *)p, false); }
TSAN(void, WTFAnnotateHappensBefore, const char *file, int line, uintptr_t p) { (void)file, (void)line, says((void *)p, true); }
TSAN(void, WTFAnnotateHappensAfter, const char *file, int line, uintptr_t p) { (void)file, (void)line, says((void *)p, false); }
TSAN(void, __tsan_ignore_thread_begin, void) { ignore(1, 1); }
TSAN(void, __tsan_ignore_thread_end, void) { ignore(-1, -1); }
TSAN(void, AnnotateIgnoreReadsBegin, const char *file, int line) { (void)file, (void)line, ignore(1, 0); }
TSAN(void, AnnotateIgnoreReadsEnd, const char *file, int line) { (void)file, (void)line, ignore(-1, 0); }
TSAN(void, AnnotateIgnoreWritesBegin, const char *file, int line) { (void)file, (void)line, ignore(0, 1); }
TSAN(void, AnnotateIgnoreWritesEnd, const char *file, int line) { (void)file, (void)line, ignore(0, -1); }

static void is_said_benign(uintptr_t p, uintptr_t n)
{
	uint32_t i = __atomic_fetch_add(&benign_count, 1, __ATOMIC_ACQ_REL);
	if (i < BENIGN) {
		benign[i].lo = p;
		__atomic_store_n(&benign[i].hi, p + n, __ATOMIC_RELEASE);
	}
}
TSAN(void, AnnotateBenignRace, const char *file, int line, uintptr_t p, const char *why) { (void)file, (void)line, (void)why, is_said_benign(p, 8); }
TSAN(void, AnnotateBenignRaceSized, const char *file, int line, uintptr_t p, uintptr_t n, const char *why) { (void)file, (void)line, (void)why, is_said_benign(p, n); }
TSAN(void, WTFAnnotateBenignRaceSized, const char *file, int line, uintptr_t p, uintptr_t n, const char *why) { (void)file, (void)line, (void)why, is_said_benign(p, n); }

/* Locks of the program's own: who unlocks, for reading or for writing, comes before whoever locks next. */
TSAN(void, __tsan_mutex_create, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_destroy, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_pre_lock, void *p, unsigned flags) { (void)p, (void)flags; }
enum { TRY_FAILED = 1 << 5 }; /* __tsan_mutex_try_lock_failed */
TSAN(void, __tsan_mutex_post_lock, void *p, unsigned flags, int recursion)
{
	(void)recursion;
	if (!(flags & TRY_FAILED))
		says(p, false);
}
TSAN(int, __tsan_mutex_pre_unlock, void *p, unsigned flags)
{
	(void)flags;
	says(p, true);
	return 0;
}
TSAN(void, __tsan_mutex_post_unlock, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_pre_signal, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_post_signal, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_pre_divert, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, __tsan_mutex_post_divert, void *p, unsigned flags) { (void)p, (void)flags; }
TSAN(void, AnnotateRWLockCreate, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateRWLockCreateStatic, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateRWLockDestroy, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateRWLockAcquired, const char *file, int line, uintptr_t p, uintptr_t writes) { (void)file, (void)line, (void)writes, says((void *)p, false); }
TSAN(void, AnnotateRWLockReleased, const char *file, int line, uintptr_t p, uintptr_t writes) { (void)file, (void)line, (void)writes, says((void *)p, true); }

/* --- nothing to us -------------------------------------------------------------------------------------------------------------------- */

static bool used;
TSAN(void, __tsan_init, void) { used = true; }
TSAN(int, RunningOnValgrind, void) { return 0; }
TSAN(const char *, ThreadSanitizerQuery, const char *query) { return rs_os_equal(query, "pure_happens_before", sizeof "pure_happens_before") ? "1" : "0"; }
TSAN(void, __tsan_func_entry, void *pc) { (void)pc; }
TSAN(void, __tsan_func_exit, void) {}
TSAN(void, __tsan_flush_memory, void) {}
TSAN(void, AnnotateThreadName, const char *file, int line, const char *name) { (void)file, (void)line, (void)name; }
/* Orders that a program wants left out are kept: fewer races, and none that is none. */
TSAN(void, AnnotateIgnoreSyncBegin, const char *file, int line) { (void)file, (void)line; }
TSAN(void, AnnotateIgnoreSyncEnd, const char *file, int line) { (void)file, (void)line; }
TSAN(void, AnnotateFlushState, const char *file, int line) { (void)file, (void)line; }
TSAN(void, AnnotateNewMemory, const char *file, int line, uintptr_t p, uintptr_t n) { (void)file, (void)line, (void)p, (void)n; }
TSAN(void, AnnotateNoOp, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateCondVarSignal, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateCondVarSignalAll, const char *file, int line, uintptr_t p) { (void)file, (void)line, (void)p; }
TSAN(void, AnnotateCondVarWait, const char *file, int line, uintptr_t p, uintptr_t lock) { (void)file, (void)line, (void)p, (void)lock; }
/* Fibers are told apart by their stacks, and what a thread runs is that thread's. */
TSAN(void *, __tsan_get_current_fiber, void) { return &ignored; }
TSAN(void *, __tsan_create_fiber, unsigned flags)
{
	(void)flags;
	return &ignored;
}
TSAN(void, __tsan_destroy_fiber, void *fiber) { (void)fiber; }
TSAN(void, __tsan_switch_to_fiber, void *fiber, unsigned flags) { (void)fiber, (void)flags; }
TSAN(void, __tsan_set_fiber_name, void *fiber, const char *name) { (void)fiber, (void)name; }

/* --- libc's functions that the program has from libtsan --------------------------------------------------------------------------------- */

/* libtsan has no versions, so the program asks for them without one, and would be given the oldest that libc has, or none where libc has several (dl-lookup.c, check_match): these go on to
 * today's, as libtsan's do. None that the agent itself calls, which would come here; what has a version 2.2.5 that is the same code as today's needs none. */
#define TODAY(name) \
	static void *real_##name; \
	static const struct rs_called_real real_row_##name = {#name, &real_##name}; \
	static const struct rs_called_real *const real_at_##name __attribute__((section("rs_called_reals"), used)) = &real_row_##name; \
	static __attribute__((naked, used, section("rs_tsan"))) void today_##name(void) \
	{ \
		__asm__("jmp *%0" : : "m"(real_##name)); \
	} \
	__asm__(".globl " #name "\n.protected " #name "\n.type " #name ", @function\n.set " #name ", today_" #name "\n");
TODAY(fmemopen) TODAY(glob) TODAY(glob64) TODAY(lgamma) TODAY(lgammaf) TODAY(lgammal) TODAY(pthread_attr_getaffinity_np) TODAY(pthread_barrierattr_getpshared)
TODAY(pthread_condattr_getclock) TODAY(pthread_getname_np) TODAY(pthread_mutexattr_getprioceiling) TODAY(pthread_mutexattr_getprotocol) TODAY(pthread_mutexattr_getrobust)
TODAY(realpath) TODAY(regexec) TODAY(sched_getaffinity)

/* In programs without libtsan it is linked in from libc_nonshared.a. */
extern int __cxa_atexit(void (*f)(void *), void *arg, void *dso);
TSAN(int, atexit, void (*f)(void)) { return __cxa_atexit((void (*)(void *))(void *)f, NULL, NULL); }

/* A file that is about to be executed may be watched as this process is: it is the same, so it calls no function of its runtime's that is not here. */
bool rs_tsan_again(int fd)
{
	struct stat own, other;
	return used && RS_SYS4(SYS_newfstatat, AT_FDCWD, "/proc/self/exe", &own, 0) == 0 && RS_SYS2(SYS_fstat, fd, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}
