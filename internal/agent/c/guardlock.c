/* guardlock.c: libc's own low-level locks (of streams, random numbers, time zones, the environment) while `guard` keeps a log, locks with the same protocol that programs make themselves (Rust's), and those of the agent's heap. See guardlog.h; internal/hook/locks.go finds where
 * libc takes them, made.go where programs do.
 *
 * In a nutshell. libc takes such a lock by a locked cmpxchg of its word from 0 to 1; who finds it taken makes it 2 and waits for it by a futex; who gives it back writes 0 and, if it was 2, wakes one. Where it is taken, libc jumps
 * here. The words' protocol stays libc's: what is not patched goes together with what is. Where one is given back that somebody waits for, the patch wakes by itself and leaves nothing on the stack (locks.go). That a lock is taken is an event with a ticket, raised while it is held; who must wait
 * does so here, in a wait of guard's. Who waited leaves 2 behind: whether a word that is not 0 is 1 or 2 says how long somebody waited, and is not the same in a re-execution (rs_guard_same_lock).
 *
 * libc's own way, without an event: before there is a second thread; in a thread that no epoch can follow; in what the agent does between before and after of another event; in what is under the lock of threads' births and ends.
 *
 * Ground rules: guard.h's; general registers only. What lies below the stack pointer is afterwards the same whichever way was gone. */
#include "guardrace.h"
#include "guardlog.h"
#include "guardsync.h"
#include "guardtry.h"
#include "alloc.h"
#include "sync.h"
#include "world.h"
#include <sys/single_threaded.h>

enum { SLOW, DONE, NATIVE };
unsigned rs_guard_lock_quick(uint32_t *word) RS_HIDDEN;
unsigned rs_guard_lock_slow(uint32_t *word, uintptr_t sp) RS_HIDDEN;

#define TAKE(reg) "popq " reg "\n	movq $0, -8(%rsp)\n	"

/* From a site's trampoline: rdi is the word's address. On the stack: where it goes on, rdi, what is to be stored, the red zone. Keeps all registers; rax and the flags are as behind the instruction. */
__asm__(".text\n.p2align 4\n.globl rs_lock_hook\n.hidden rs_lock_hook\n.type rs_lock_hook, @function\n"
	"rs_lock_hook:\n"
	".cfi_startproc\n"
	"	testq %rax, %rax\n"
	"	jne 5f\n"
	"	cmpl $0, rs_guard_on(%rip)\n"
	"	je 5f\n"
	"	cmpl $1, 16(%rsp)\n"
	"	jne 5f\n"
	"	pushq %rcx\n	pushq %rdx\n	pushq %rsi\n	pushq %rdi\n	pushq %r8\n	pushq %r9\n	pushq %r10\n	pushq %r11\n"
	".cfi_adjust_cfa_offset 64\n"
	"	call rs_guard_lock_quick\n"
	"6:	cmpl $1, %eax\n"
	"	jb 2f\n"
	/* Of what was saved nothing stays below: what calls of before left in registers is not the same in a recording and in its re-execution. */
	"1:	" TAKE("%r11") TAKE("%r10") TAKE("%r9") TAKE("%r8") TAKE("%rdi") TAKE("%rsi") TAKE("%rdx") TAKE("%rcx")
	".cfi_adjust_cfa_offset -64\n"
	"	movl $0, %eax\n"
	"	jne 5f\n"
	"	cmpl %eax, %eax\n"
	"	ret\n"
	".cfi_adjust_cfa_offset 64\n"
	"2:" RS_HOOK_KEEPS_BELOW
	"	movq 40(%rsp), %rdi\n"
	"	leaq 8 + 64 + 24 + 128(%rsp), %rsi\n"
	"	call rs_guard_lock_slow\n"
	RS_HOOK_PUTS_BELOW
	"	cmpl $1, %eax\n"
	"	jmp 1b\n"
	".cfi_adjust_cfa_offset -64\n"
	/* libc's way. */
	"5:	pushq %rcx\n"
	".cfi_adjust_cfa_offset 8\n"
	"	movl 24(%rsp), %ecx\n"
	"	lock cmpxchgl %ecx, (%rdi)\n"
	"	popq %rcx\n"
	".cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_lock_hook, .-rs_lock_hook\n");

static bool take(uint32_t *word, uint32_t as)
{
	uint32_t zero = 0;
	return as == 1 ? __atomic_compare_exchange_n(word, &zero, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) : __atomic_exchange_n(word, as, __ATOMIC_ACQUIRE) == 0;
}

/* A leaf that needs no more registers than it may change. */
unsigned rs_guard_lock_quick(uint32_t *word)
{
	struct rs_guard_log *t = rs_guard_mine;
	const struct rs_guard_world *w = rs_guard_view.world;
	if (__libc_single_threaded)
		return NATIVE;
	if (RS_UNLIKELY(!t || !t->tid))
		return SLOW;
	if (RS_UNLIKELY(t->outside || t->inner || t->doing & RS_GUARD_ORDERED))
		return NATIVE;
	uint32_t mode = __atomic_load_n(&w->mode, __ATOMIC_ACQUIRE);
	if (RS_UNLIKELY(mode != RS_GUARD_RECORD))
		return mode == RS_GUARD_OFF ? NATIVE : SLOW;
	struct rs_guard_object *o = rs_guard_object(rs_guard_libc_key((uintptr_t)word));
	if (RS_UNLIKELY(!o))
		return SLOW;
	__atomic_store_n(&t->inner, RS_GUARD_INNER, __ATOMIC_RELEASE);
	RS_BARRIER();
	uint32_t at = t->at;
	bool done = __atomic_load_n(&w->mode, __ATOMIC_ACQUIRE) == RS_GUARD_RECORD && !__atomic_load_n(&w->ending, __ATOMIC_ACQUIRE) && at < RS_GUARD_NEARLY_EVENTS && take(word, 1);
	if (RS_LIKELY(done)) {
		const uint64_t what = RS_GUARD_WHAT(word, RS_GUARD_LIBC);
		uint32_t ticket = __atomic_fetch_add(&o->ticket, 1, __ATOMIC_ACQ_REL);
		struct rs_guard_event *last = &t->event[at] - 1;
		uint32_t more = (uint32_t)-last->result;
		/* at 0: what lies there is another's. */
		if (last->what == what && at > 0 && more < RS_GUARD_RUN && last->ticket + more + 1 == ticket)
			last->result = -(int32_t)(more + 1);
		else {
			t->event[at] = (struct rs_guard_event){what, ticket, 0};
			__atomic_store_n(&t->at, at + 1, __ATOMIC_RELEASE);
		}
	}
	RS_BARRIER();
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	return done ? DONE : SLOW;
}

unsigned rs_guard_lock_slow(uint32_t *word, uintptr_t sp)
{
	const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
	struct rs_guard_log *t = rs_guard_self();
	if (!t || rs_guard_mode() == RS_GUARD_OFF || t->outside || t->inner || t->doing & RS_GUARD_ORDERED)
		return NATIVE;
	t->sp = sp;
	/* libc may have all signals blocked, and here it may stand. */
	RS_SYS4(SYS_rt_sigprocmask, 1 /* SIG_UNBLOCK */, &stops, NULL, 8);
	for (uint32_t as = 1;;) {
		rs_guard_before(t, (uintptr_t)word, RS_GUARD_LIBC, NULL);
		bool done = take(word, as);
		if (!done && as == 1)
			done = take(word, as = 2);
		if (done) {
			/* What libc does between is told by nobody. */
			RS_GUARD_TAKES((uintptr_t)word, false);
			RS_GUARD_GIVES((uintptr_t)word, false);
			rs_guard_after(t, (uintptr_t)word, RS_GUARD_LIBC, 0, true);
			return DONE;
		}
		/* Whoever waits here as well is woken by who is woken, as the word is 2. */
		rs_guard_sleep(t, word, 2, CLOCK_MONOTONIC, NULL);
	}
}

/* Who made it 2 has taken it since, or stands before that. */
bool rs_guard_same_lock(uint64_t at, uint32_t was, uint32_t is)
{
	const uint64_t what = RS_GUARD_WHAT(at, RS_GUARD_LIBC);
	if ((was != 1 && was != 2) || (is != 1 && is != 2))
		return false;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->pending == what)
			return true;
		for (uint32_t k = 0; k < t->at; k++)
			if (t->event[k].what == what)
				return true;
	}
	return false;
}

/* --- the agent's heap -------------------------------------------------------------------------------------------------------------------- */

enum { LOCKS = 1 << 12 /* no address, and above the objects of calls */ };
static void heap_before(uint32_t lock)
{
	struct rs_guard_log *t = rs_guard_self();
	if (t)
		rs_guard_before(t, LOCKS + lock, RS_GUARD_HEAP, NULL);
	RS_CLEAR_BELOW(768);
	RS_NO_REGISTERS();
}

static void heap_free(void)
{
	rs_guard_try_gave();
	RS_CLEAR_BELOW(768);
	RS_NO_REGISTERS();
}

static void heap_after(uint32_t lock)
{
	struct rs_guard_log *t = rs_guard_self();
	if (t)
		rs_guard_after(t, LOCKS + lock, RS_GUARD_HEAP, 0, true);
	RS_CLEAR_BELOW(768);
	RS_NO_REGISTERS();
}

void rs_guard_heap_begin(void) { rs_alloc_order = (struct rs_alloc_order){heap_before, heap_after, heap_free}; }
