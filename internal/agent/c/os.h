/* os.h: the agent's one door to the OS. Raw system calls: no errno, no libc, safe in signal handlers. Return values are the
 * kernel's: negative errno on failure. */
#ifndef RS_OS_H
#define RS_OS_H
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

extern uint32_t rs_share_on __attribute__((visibility("hidden")));
/* Calls have something done around them: memory of the program's is watched by protection keys, which the kernel honours, so that they are made with all of them open (share.h); or the kernel would give them to the
 * program (dispatch.h). */
extern uint32_t rs_os_detour __attribute__((visibility("hidden")));
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));
/* Past rs_os_detour6, which is made of it. */
static inline long rs_os_raw6(long n, long a, long b, long c, long d, long e, long f)
{
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
}
static inline long rs_sys6(long n, long a, long b, long c, long d, long e, long f)
{
	if (__builtin_expect(!!rs_os_detour, 0))
		return rs_os_detour6(n, a, b, c, d, e, f);
	return rs_os_raw6(n, a, b, c, d, e, f);
}
#define RS_SYS0(n) rs_sys6(n, 0, 0, 0, 0, 0, 0)
#define RS_SYS1(n, a) rs_sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define RS_SYS2(n, a, b) rs_sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define RS_SYS3(n, a, b, c) rs_sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RS_SYS4(n, a, b, c, d) rs_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RS_SYS5(n, a, b, c, d, e) rs_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RS_SYS6(n, a, b, c, d, e, f) rs_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* CLOCK_MONOTONIC's. */
static inline uint64_t rs_os_now_ns(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ns of the processor's time that a thread of this process has had. 0: nobody knows. */
static inline uint64_t rs_os_cpu_ns(uint32_t tid)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, (int)(~tid << 3 | 6 /* CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED */), &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The program's own calls, where a function of ours makes them in place of libc's: they go by the hook of patched sites where that is in use (syshook.c). */
extern uint32_t rs_calls_on __attribute__((visibility("hidden")));
extern uint32_t rs_hook_on __attribute__((visibility("hidden"))); /* rs_calls_on, rs_share_on or rs_dispatch_on */
long rs_hooked_sys6(long n, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));
static inline long rs_program_sys6(long n, long a, long b, long c, long d, long e, long f)
{
	return __builtin_expect(!!rs_hook_on, 0) ? rs_hooked_sys6(n, a, b, c, d, e, f) : rs_sys6(n, a, b, c, d, e, f);
}
#define RS_PROGRAM1(n, a) rs_program_sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define RS_PROGRAM2(n, a, b) rs_program_sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define RS_PROGRAM3(n, a, b, c) rs_program_sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RS_PROGRAM4(n, a, b, c, d) rs_program_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RS_PROGRAM5(n, a, b, c, d, e) rs_program_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RS_PROGRAM6(n, a, b, c, d, e, f) rs_program_sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Anonymous private memory, zeroed, counted as the agent's; NULL on failure. */
void *rs_os_map(size_t bytes);
/* Of things of which there are several, made by whichever thread comes first: where rs_os_place was called each has its place by its number, so that a re-execution, in which other mappings of ours come in another order, has it there, too. */
enum { RS_OS_NUMBERED_BYTES = 1 << 16 };
#define RS_OS_NUMBERED 0x2f0000000000ul
/* Numbers: of heaps and their quarantines, by id; of threads, by rs_thread.number. */
#define RS_OS_HEAP(id) ((id) & 0x3fff)
#define RS_OS_QUARANTINE(id) (0x4000 | ((id) & 0x3fff))
#define RS_OS_UNWIND_CACHE(number) (0x8000 + 2 * ((number) & 0x3fffff))
#define RS_OS_RECENT(number) (0x8001 + 2 * ((number) & 0x3fffff))
void *rs_os_map_numbered(uint32_t number, size_t bytes);
/* Memory that is the agent's as if it had been had by rs_os_map. */
void rs_os_own(uintptr_t at, size_t bytes);
void rs_os_unmap(void *p, size_t bytes);
#endif
