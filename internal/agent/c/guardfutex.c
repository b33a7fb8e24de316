/* guardfutex.c: words that programs wait for by futexes and change by locked instructions of their own (Rust's RwLock and Once, C++20's semaphores, latches and atomic waits) while `guard` keeps a log. See guardlog.h; internal/hook/words.go
 * finds the instructions.
 *
 * In a nutshell. The program's own instruction is executed where its trampoline lies, between two hooks. In a recording the first takes the word's object, for a few instructions, and the second writes down an event with a ticket and gives the object back; so the order of tickets is that of the changes. A cmpxchg
 * that changed nothing is an event without one, which may be missing in a re-execution (rs_guard_is_chance). In a re-execution the first hook waits for the event's turn. A loop of the program's may come there with another value than it had in the recording, as loads are in no order: its cmpxchg fails then, really or because we say so, it loads again, and with its turn it finds what it found. What an instruction
 * found (of a cmpxchg: what it left) is written down, too. A re-execution waits until that is there (the program may also store plainly), and a cmpxchg leaves what it left: loops keep in registers what others had seen.
 * What is taken for such a word by mistake is ordered as well, and costs some nanoseconds: nothing else is done than the program does.
 *
 * As it is natively, without an event: in a process with one thread, where the trampoline does not even call the hooks (rs_guard_words_alone); in a thread that no epoch can follow; in what the agent does between before and after of another event.
 *
 * Ground rules: guard.h's; general registers only; all registers and flags are the program's. What lies below the stack pointer is afterwards the same whichever way was gone. */
#include "guardlog.h"
#include "guardquick.h"
#include "guardsignal.h"
#include "guardsync.h"
#include "guardtry.h"
#include <sys/single_threaded.h>

enum { SLOW, DONE };
enum { BYTES = 3 /* of QUEUE: a power of two */, STORES = 8 /* likewise: it reads nothing */, COMPARES = 16 /* a cmpxchg */, QUEUE = 32 /* of a queue beside a futex: what it does is ordered whatever it is, loads as well (internal/hook/free.go) */, SITE = 0x1ff << 8 /* bits of the instruction's address */ }; /* from bit 24 on: how far behind where the hook returns to what follows the instruction lies */
enum { ZF = 1 << 14 /* as lahf leaves it in ax */ };
/* The program's, as the hook has them on the stack. */
struct saved { uint64_t r11, r10, r9, r8, rdi, rsi, rdx, rcx, flags, rax, returns, info, rdi_then, stores /* of a cmpxchg: what it is to store */; };
unsigned rs_guard_futex_quick(const uint32_t *word, uint32_t info) RS_HIDDEN;
unsigned rs_guard_futex_slow(uint32_t *word, uint32_t info, struct saved *saved, uintptr_t sp) RS_HIDDEN;
unsigned rs_guard_futex_quick_over(uint32_t flags, uint32_t found) RS_HIDDEN;
unsigned rs_guard_futex_slow_over(uint32_t flags, uint32_t found, uintptr_t sp) RS_HIDDEN;

#define TAKE(reg) "popq " reg "\n	movq $0, -8(%rsp)\n	"
/* name: of the hook; get, more: the arguments of quick and of slow, where the registers of the program's are 64 bytes above the stack pointer; 72 in slow. Of what was saved nothing stays below, as in guardlock.c. */
#define HOOK(name, quick, slow, get, more, past) \
	__asm__(".text\n.p2align 4\n.globl " name "\n.hidden " name "\n.type " name ", @function\n" \
		name ":\n" \
		".cfi_startproc\n" \
		"	pushq %rax\n" \
		".cfi_adjust_cfa_offset 8\n" \
		"	lahf\n" \
		"	seto %al\n" \
		"	cmpl $0, rs_guard_on(%rip)\n" \
		"	je 5f\n" \
		"	pushq %rax\n	pushq %rcx\n	pushq %rdx\n	pushq %rsi\n	pushq %rdi\n	pushq %r8\n	pushq %r9\n	pushq %r10\n	pushq %r11\n" \
		".cfi_adjust_cfa_offset 72\n" \
		get \
		"	call " quick "\n" \
		"6:	testl %eax, %eax\n" \
		"	je 2f\n" \
		"1:	" TAKE("%r11") TAKE("%r10") TAKE("%r9") TAKE("%r8") TAKE("%rdi") TAKE("%rsi") TAKE("%rdx") TAKE("%rcx") TAKE("%rax") \
		".cfi_adjust_cfa_offset -72\n" \
		/* overflows with 1, not with 0 */ \
		"5:	cmpb $-127, %al\n" \
		"	sahf\n" \
		"	popq %rax\n" \
		"	movq $0, -8(%rsp)\n" \
		".cfi_adjust_cfa_offset -8\n" \
		"	ret\n" \
		past \
		".cfi_adjust_cfa_offset 80\n" \
		"2:" RS_HOOK_KEEPS_BELOW \
		more \
		"	call " slow "\n" \
		RS_HOOK_PUTS_BELOW \
		"	cmpl $2, %eax\n" \
		"	jne 1b\n" \
		"	jmp 7b\n" \
		".cfi_endproc\n" \
		".size " name ", .-" name "\n");

#define BACK TAKE("%r11") TAKE("%r10") TAKE("%r9") TAKE("%r8") TAKE("%rdi") TAKE("%rsi") TAKE("%rdx") TAKE("%rcx") TAKE("%rax")
/* From a trampoline: rdi is the word's address. On the stack: where it goes on, what the instruction is, rdi, what it is to store, the red zone. Where the instruction is not to be executed (7) the hook returns behind it, with the red zone's end as the stack pointer. */
HOOK("rs_futex_hook", "rs_guard_futex_quick", "rs_guard_futex_slow",
	"	movl 88(%rsp), %esi\n",
	"	movq 40(%rsp), %rdi\n"
	"	movl 96(%rsp), %esi\n"
	"	leaq 8(%rsp), %rdx\n"
	"	leaq 8 + 72 + 8 + 32 + 128(%rsp), %rcx\n",
	".cfi_adjust_cfa_offset 80\n"
	"7:	movzbl 91(%rsp), %eax\n"
	"	addq 80(%rsp), %rax\n"
	"	movq %rax, 88(%rsp)\n"
	"	" BACK
	".cfi_adjust_cfa_offset -72\n"
	"	cmpb $-127, %al\n"
	"	sahf\n"
	"	popq %rax\n"
	".cfi_adjust_cfa_offset -8\n"
	"	movq 16(%rsp), %rdi\n"
	"	leaq 8(%rsp), %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	ret $144\n"
	".cfi_adjust_cfa_offset 8\n")
/* Behind the instruction. On the stack: where it goes on, the red zone. */
HOOK("rs_futex_over_hook", "rs_guard_futex_quick_over", "rs_guard_futex_slow_over",
	"	movl 64(%rsp), %edi\n"
	"	movl 72(%rsp), %esi\n",
	"	movl 72(%rsp), %edi\n"
	"	movl 80(%rsp), %esi\n"
	"	leaq 8 + 72 + 8 + 8 + 128(%rsp), %rdx\n",
	"7:\n")

static inline uint32_t load(uint64_t word) { return __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE); }
/* Of what an instruction of a queue's reads or writes: no more than that, and its low half. */
static inline uint32_t load_of(uint64_t word, uint32_t info)
{
	switch (info & BYTES) {
	case 0: return __atomic_load_n((const uint8_t *)word, __ATOMIC_ACQUIRE);
	case 1: return __atomic_load_n((const uint16_t *)word, __ATOMIC_ACQUIRE);
	default: return load(word);
	}
}
static inline uint64_t object_of(uint64_t word, uint32_t info) { return word | (uint64_t)(info & SITE) << 39; }
_Static_assert((uint64_t)SITE << 39 == 0x1ffull << 47, "above an address");

/* --- one thread ------------------------------------------------------------------------------------------------------------------------------ */

/* What the trampolines look at: not 0, then __libc_single_threaded is set. Only ever of the main thread, whose variables are there until the process ends; it says nothing of a thread that a process has without libc's knowledge. */
__thread uint32_t rs_guard_words_alone;
__thread uint32_t rs_guard_queues_alone;
static struct { uint32_t *at, asked, kept, end; } alone;

static void are_alone(void)
{
	alone.asked = 1;
	if (rs_os_tid() == rs_os_pid()) {
		alone.at = &rs_guard_words_alone;
		rs_guard_words_alone = 1;
		rs_guard_queues_alone |= RS_GUARD_QUEUES_ONE;
	}
}

/* What is made may be another process. */
void rs_guard_words_begin(void)
{
	rs_guard_words_alone = alone.asked = 0;
	rs_guard_queues_alone &= ~(uint32_t)RS_GUARD_QUEUES_ONE;
}

void rs_guard_words_keep(bool end)
{
	uint32_t is = alone.at ? *alone.at : 0;
	if (end)
		alone.end = is;
	else
		alone.kept = is;
}

void rs_guard_words_back(bool end)
{
	if (alone.at)
		*alone.at = end ? alone.end : alone.kept;
}

/* --- what to order queues costs ---------------------------------------------------------------------------------------------------------------- */

/* Each such access costs so much. More than a fiftieth of the threads' time is too much; few are never, nor are a process's first. */
enum { ACCESS_NS = 12, PARTS = 50, FEW = 1 << 16, LOOK = 1 << 12, AGAIN = 32 /* epochs; twice as many each time that it was too much again */, MOST_AGAIN = 1024, FREE = 1 << 20 /* of a process's are: short programs end before the bound could spare them anything */ };
static inline bool is_dear(uint64_t accesses, uint64_t cpu_ns) { return accesses >= FEW && accesses * ACCESS_NS * PARTS > cpu_ns; }

static void *behind_pointer(const struct rs_guard_log *t, const uint32_t *mine)
{
	uint64_t tp;
	__asm__("mov %%fs:0, %0" : "=r"(tp));
	return (void *)(t->tp + ((uintptr_t)mine - tp));
}

void rs_guard_queues_new(bool lost)
{
	struct rs_guard_world *w = rs_guard_world();
	uint64_t accesses = 0, cpu_ns = 0;
	for (uint32_t i = 0; i < w->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		accesses += t->queues;
		cpu_ns += t->tid ? rs_os_cpu_ns(t->tid) - t->cpu.from : 0;
	}
	if (w->queues_passed) {
		w->queues_passed -= !lost; /* of one that was it is not known what it would have cost */
	} else if (is_dear(accesses, cpu_ns) && accesses <= FREE - w->queues_used) {
		w->queues_used += (uint32_t)accesses;
	} else if (is_dear(accesses, cpu_ns) && !w->queues_always) {
		w->queues_again = w->queues_again == 0 ? AGAIN : w->queues_again < MOST_AGAIN ? w->queues_again * 2 : MOST_AGAIN;
		w->queues_passed = w->queues_again;
	} else if (!lost) {
		w->queues_again = 0;
	}
	if (w->queues_passed && w->session)
		__atomic_fetch_add(&rs_counters->guard_queues, 1, __ATOMIC_RELAXED);
}

void rs_guard_queues_tell(void)
{
	const struct rs_guard_world *w = rs_guard_world();
	for (uint32_t i = 0; w->session && i < w->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid && t->tp && t->state != RS_GUARD_UNBORN && !t->gave_up)
			*(uint32_t *)behind_pointer(t, &rs_guard_queues_alone) = (w->queues_passed ? RS_GUARD_QUEUES_PASSED : 0) | (alone.at && *alone.at && alone.at == behind_pointer(t, &rs_guard_words_alone) ? RS_GUARD_QUEUES_ONE : 0);
	}
}

void rs_guard_queues_mine(void)
{
	if (rs_guard_world()->queues_passed)
		rs_guard_queues_alone |= RS_GUARD_QUEUES_PASSED;
}

/* In a recording, now and then. Who finds the epoch lost does no more for it; where it is too much it ends soon. */
static void look(struct rs_guard_log *t)
{
	const struct rs_guard_world *w = rs_guard_world();
	t->queues_look = t->queues + LOOK;
	if (w->queues_always)
		return;
	if (rs_guard_is_lost(w))
		rs_guard_queues_alone |= RS_GUARD_QUEUES_PASSED;
	else if (t->queues > FREE - w->queues_used && is_dear(t->queues, rs_os_cpu_ns(t->tid) - t->cpu.from) && !__atomic_load_n(&w->soon, __ATOMIC_RELAXED))
		rs_guard_poke_soon();
}

/* --- quick, in a recording: leaves that need no more registers than they may change --------------------------------------------------------- */

static inline void goes_on(struct rs_guard_log *t, struct rs_guard_object *o)
{
	t->changes = 0;
	t->changes_object = NULL;
	RS_BARRIER();
	if (o)
		__atomic_store_n(&o->busy, 0, __ATOMIC_RELEASE);
	RS_BARRIER();
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
}

static inline void begins(struct rs_guard_log *t, struct rs_guard_object *o, uint64_t word, uint32_t info)
{
	t->changes_info = info;
	t->changes_object = o;
	t->changes_found = info & QUEUE ? info & STORES ? 0 : load_of(word, info) : info & COMPARES ? 0 : load(word);
	t->changes = object_of(word, info);
}

unsigned rs_guard_futex_quick(const uint32_t *word, uint32_t info)
{
	struct rs_guard_log *t = rs_guard_mine;
	if (__libc_single_threaded)
		return alone.asked ? DONE : SLOW;
	if (RS_UNLIKELY(!t || !t->tid))
		return SLOW;
	if (RS_UNLIKELY(t->outside || t->inner || t->doing & RS_GUARD_ORDERED))
		return DONE;
	if (info & QUEUE && RS_UNLIKELY(++t->queues >= t->queues_look))
		return SLOW;
	struct rs_guard_object *o = rs_guard_object(rs_guard_futex_key((uintptr_t)word));
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(t)))
		return SLOW;
	t->changes_object = o; /* before it has it: a handler that comes in here gives it back, and if it was another's, the epoch is lost anyhow */
	RS_BARRIER();
	if (RS_UNLIKELY(__atomic_exchange_n(&o->busy, 1, __ATOMIC_ACQUIRE))) {
		t->changes_object = NULL;
		rs_guard_end_quickly(t);
		return SLOW;
	}
	begins(t, o, (uintptr_t)word, info);
	return DONE;
}

/* A word of a queue that a thread finds as it has left it is one more of a run: as it looks again and again, or nobody else was there. */
static inline void queue_over(struct rs_guard_log *t, struct rs_guard_object *o, struct rs_guard_event *last)
{
	const uint64_t object = t->changes, word = RS_GUARD_ADDRESS(object), what = RS_GUARD_WHAT(object, RS_GUARD_QUEUE), run = RS_GUARD_WHAT(word, RS_GUARD_QUEUE_RUN), above = 0x1ffull << 47;
	const uint32_t ticket = rs_guard_ticket_alone(o), more = (uint32_t)-last->result, found = t->changes_found;
	const bool same = t->at > 0 && (t->changes_info & STORES || found == t->queue_left);
	if (same && last->what == run && more < RS_GUARD_RUN && last->ticket + more + 1 == ticket)
		last->result = -(int32_t)(more + 1);
	else if (same && (last->what & ~above) == (what & ~above) && last->ticket + 1 == ticket)
		rs_guard_append_quickly(t, run, ticket, 0);
	else
		rs_guard_append_quickly(t, what, ticket, (int32_t)found);
	t->queue_left = load_of(word, t->changes_info);
}

unsigned rs_guard_futex_quick_over(uint32_t flags, uint32_t found)
{
	struct rs_guard_log *t = rs_guard_mine;
	if (!t || !t->changes)
		return DONE;
	struct rs_guard_object *o = t->changes_object;
	uint32_t at = t->at;
	if (RS_UNLIKELY(!o || at >= t->quick || __atomic_load_n(&rs_guard_view.world->mode, __ATOMIC_ACQUIRE) != RS_GUARD_RECORD))
		return SLOW;
	const uint64_t object = t->changes, what = RS_GUARD_WHAT(object, RS_GUARD_CHANGE);
	struct rs_guard_event *last = &t->event[at] - 1; /* at 0: what lies there is another's */
	if (t->changes_info & QUEUE) {
		queue_over(t, o, last);
	} else if (RS_UNLIKELY(t->changes_info & COMPARES && !(flags & ZF))) {
		const uint64_t not = RS_GUARD_WHAT(object, RS_GUARD_CHANGE_NOT);
		if (at == 0 || last->what != not || (uint32_t)last->result != found)
			rs_guard_append_quickly(t, not, RS_GUARD_UNORDERED, (int32_t)found);
	} else {
		const uint64_t run = RS_GUARD_WHAT(RS_GUARD_ADDRESS(object), RS_GUARD_CHANGE_RUN);
		uint32_t ticket = rs_guard_ticket_alone(o), more = (uint32_t)-last->result;
		if (at > 0 && last->what == run && more < RS_GUARD_RUN && last->ticket + more + 1 == ticket)
			last->result = -(int32_t)(more + 1);
		else if (at > 0 && (last->what & ~(0x1ffull << 47)) == (what & ~(0x1ffull << 47)) && last->ticket + 1 == ticket)
			rs_guard_append_quickly(t, run, ticket, 0);
		else
			rs_guard_append_quickly(t, what, ticket, (int32_t)(t->changes_info & COMPARES ? load(RS_GUARD_ADDRESS(object)) : t->changes_found));
	}
	goes_on(t, o);
	return DONE;
}

void rs_guard_word_left(struct rs_guard_log *t)
{
	struct rs_guard_object *o = t->changes_object;
	t->changes_object = NULL;
	t->changes = 0;
	if (o)
		__atomic_store_n(&o->busy, 0, __ATOMIC_RELEASE);
}

/* --- all else ------------------------------------------------------------------------------------------------------------------------------- */

/* Who has it gives it back some instructions later, but it may have no processor. False: it has not for so long (its thread was ended there); or nobody will read of it. */
static bool take(struct rs_guard_object *o)
{
	enum { SPINS = 64, LOOKS = 256 };
	const uint64_t patience_ns = 200000000;
	uint64_t since = 0;
	for (unsigned n = 0; __atomic_exchange_n(&o->busy, 1, __ATOMIC_ACQUIRE); n++) {
		if (n < SPINS) {
			__builtin_ia32_pause();
			continue;
		}
		/* A handler that the kernel began between a thread's two hooks may have come here itself. */
		if (rs_guard_is_lost(rs_guard_world()))
			return false;
		RS_SYS0(SYS_sched_yield);
		if (n % LOOKS != 0)
			continue;
		uint64_t now = rs_os_now_ns();
		since = since ? since : now;
		if (now - since > patience_ns) {
			__atomic_store_n(&o->busy, 0, __ATOMIC_RELEASE); /* or all others would wait as long, each time */
			return false;
		}
	}
	return true;
}

static void moment(struct rs_guard_log *t)
{
	enum { MOMENT_NS = 50000, SECOND = 1000000000 };
	struct timespec until = {0};
	uint32_t none = 0;
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &until);
	until.tv_nsec += MOMENT_NS;
	if (until.tv_nsec >= SECOND)
		until.tv_nsec -= SECOND, until.tv_sec++;
	rs_guard_sleep_in_try(t, &none, 0, &until);
}

/* What it found there may have been stored plainly, which is in no order. Behind its turn. */
static void wait_found(struct rs_guard_log *t, uint64_t word, uint32_t found, uint32_t info)
{
	const uint64_t patience_ns = 20000000, since = rs_os_now_ns();
	while ((info & QUEUE ? load_of(word, info) : load(word)) != found && !__atomic_load_n(&rs_guard_world()->ending, __ATOMIC_ACQUIRE) && rs_os_now_ns() - since < patience_ns)
		moment(t);
	t->inner = RS_GUARD_INNER;
	RS_BARRIER();
}

/* The kind of the thread's next event, if it is of this instruction and word; 0. Where the recording ended before such an instruction it may have been either. */
static unsigned next_kind(const struct rs_guard_log *t, uint64_t object, uint32_t info)
{
	const unsigned one = info & QUEUE ? RS_GUARD_QUEUE : RS_GUARD_CHANGE, run = info & QUEUE ? RS_GUARD_QUEUE_RUN : RS_GUARD_CHANGE_RUN;
	uint32_t at = rs_guard_next_at(t);
	uint64_t next = at < t->end ? t->event[at].what : t->pending_end;
	return next == RS_GUARD_WHAT(object, one) ? one : next == RS_GUARD_WHAT(RS_GUARD_ADDRESS(object), run) ? run : 0;
}

/* As a cmpxchg that finds this. */
static void fail(struct saved *saved, uint32_t found)
{
	uint64_t ax = (uint32_t)saved->rax;
	__asm__ volatile("cmpl %k1, %k0\n\tlahf\n\tseto %%al" : "+a"(ax) : "r"(found) : "cc");
	saved->flags = ax & ~(uint64_t)ZF;
	saved->rax = found;
}

enum { PAST = 2 };
#define ABOVE (0x1ffull << 47)
/* A re-execution comes to a cmpxchg. as: the object of the event that it may be. True: it fails, if it failed then with what it found then, or if it was nowhere: what was loaded before had another value then. */
static bool fails(struct rs_guard_log *t, uint64_t object, struct saved *saved, uint64_t *as)
{
	const uint64_t not = RS_GUARD_WHAT(object, RS_GUARD_CHANGE_NOT);
	uint32_t to = rs_guard_next_at(t);
	for (uint32_t at = t->at; at < to; at++)
		if (t->event[at].what == not) {
			rs_guard_try_before(t);
			rs_guard_pass_over(t, at);
			rs_guard_try_waited(t);
			fail(saved, (uint32_t)t->event[at].result);
			__atomic_store_n(&t->at, at + 1, __ATOMIC_RELEASE);
			rs_guard_try_behind(t);
			return true;
		}
	if (next_kind(t, object, COMPARES) || __atomic_load_n(&rs_guard_world()->ending, __ATOMIC_ACQUIRE))
		return false;
	/* By another instruction: loops that look, and functions for who finds a lock taken, do the same elsewhere. It is the same when it is its turn and it does what was done; or the recording ended before it, and it stands there, too. */
	const uint64_t next = to < t->end ? t->event[to].what : t->pending_end;
	if ((next & ~ABOVE) == (RS_GUARD_WHAT(object, RS_GUARD_CHANGE) & ~ABOVE)) {
		*as = next & 0xffffffffffffffull;
		return false;
	}
	/* What it loaded then was another word's value, and it will not come where it was. */
	if (rs_guard_strays(t)) {
		rs_guard_diverged(t, to < t->end ? RS_GUARD_EVENT : RS_GUARD_MORE, next, RS_GUARD_WHAT(object, RS_GUARD_CHANGE));
		return false;
	}
	moment(t);
	fail(saved, load(RS_GUARD_ADDRESS(object)));
	return true;
}

/* What a thread keeps in registers it may have from what it had loaded before its turn: that it has slept, as others had asked for that by then. In a re-execution it may load later, finds the word as it is when it is its turn, and comes to another instruction for ever. So its cmpxchg, which was nowhere, finds one after the other what the word held since the thread's last event: then it had loaded
 * one of these. */
struct value { uint32_t ticket, value; };

/* Each once, the first ones by their tickets. */
static unsigned note(struct value *list, unsigned n, uint32_t ticket, uint32_t value)
{
	unsigned at = 0;
	while (at < n && list[at].value != value)
		at++;
	if (at == n && n < RS_GUARD_HELD)
		n++;
	else if (at = at < n ? at : n - 1, list[at].ticket <= ticket)
		return n;
	for (; at > 0 && list[at - 1].ticket > ticket; at--)
		list[at] = list[at - 1];
	list[at] = (struct value){ticket, value};
	return n;
}

static bool says_what(const struct rs_guard_event *e, uint64_t word)
{
	return RS_GUARD_ADDRESS(e->what) == word && (e->what >> 56 == RS_GUARD_CHANGE || e->what >> 56 == RS_GUARD_QUEUE);
}

/* Of what came between the thread's last event of that word and the one that is next; first what it found itself there, without a change. */
static void look_back(struct rs_guard_log *t, uint64_t word)
{
	struct value list[RS_GUARD_HELD];
	unsigned n = 0;
	uint32_t from = 0, to = t->event[t->at].ticket, at = t->at;
	for (; at > 0; at--) {
		const struct rs_guard_event *e = &t->event[at - 1];
		if (RS_GUARD_ADDRESS(e->what) != word || e->what >> 56 < RS_GUARD_CHANGE)
			continue;
		if (e->what >> 56 == RS_GUARD_CHANGE_NOT)
			n = note(list, n, 0, (uint32_t)e->result);
		if (rs_guard_is_chance(e))
			continue;
		from = e->ticket + rs_guard_more(e);
		break;
	}
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *o = rs_guard_log(i);
		for (uint32_t k = 0; o->tid && k < o->end; k++)
			if (says_what(&o->event[k], word) && o->event[k].ticket >= from && o->event[k].ticket < to)
				n = note(list, n, o->event[k].ticket, (uint32_t)o->event[k].result);
	}
	t->held.at = t->at + 1;
	t->held.n = n;
	t->held.next = 0;
	for (unsigned i = 0; i < n; i++)
		t->held.value[i] = list[i].value;
}

/* True: *value is another one than it holds now. */
static bool held(struct rs_guard_log *t, uint64_t word, uint32_t is, uint32_t *value)
{
	if (t->held.at != t->at + 1)
		look_back(t, word);
	while (t->held.next < t->held.n)
		if ((*value = t->held.value[t->held.next++]) != is)
			return true;
	return false;
}

/* PAST: the instruction is not to be executed. */
unsigned rs_guard_futex_slow(uint32_t *at, uint32_t info, struct saved *saved, uintptr_t sp)
{
	const uint64_t word = (uintptr_t)at;
	uint64_t object;
	struct rs_guard_log *t = rs_guard_self();
	if (__libc_single_threaded) {
		are_alone();
		return DONE;
	}
	if (!t || rs_guard_mode() == RS_GUARD_OFF || t->outside || t->inner || t->doing & RS_GUARD_ORDERED)
		return DONE;
	t->sp = sp;
	const bool queue = info & QUEUE;
	if (queue && rs_guard_queues_alone)
		return DONE; /* the first time that it looks */
	if (queue && rs_guard_mode() == RS_GUARD_RECORD && t->queues >= t->queues_look) {
		look(t);
		if (rs_guard_queues_alone)
			return DONE;
	}
	const unsigned one = queue ? RS_GUARD_QUEUE : RS_GUARD_CHANGE;
	unsigned kind = one;
	struct rs_guard_event was;
	do {
		object = object_of(word, info);
		was = (struct rs_guard_event){.ticket = RS_GUARD_UNORDERED};
		/* No rollback comes between what is decided here and what is done. */
		__atomic_store_n(&t->inner, RS_GUARD_INNER, __ATOMIC_RELEASE);
		RS_BARRIER();
		bool replay = rs_guard_mode() == RS_GUARD_REPLAY;
		if (replay && rs_guard_signals(t, RS_GUARD_WHAT(object, one)))
			continue;
		if (replay && !queue && info & COMPARES && fails(t, object, saved, &object)) {
			rs_guard_no_act(t);
			return PAST;
		}
		kind = replay ? next_kind(t, object, info) : 0;
		kind = kind ? kind : one;
		if (replay)
			rs_guard_pass_over(t, rs_guard_next_at(t));
		rs_guard_before(t, kind == one ? object : word, kind, &was);
	} while (!was.what && was.ticket == RS_GUARD_UNORDERED);
	struct rs_guard_object *o = NULL;
	if (!was.what) {
		struct rs_guard_slot *s = rs_guard_slot(rs_guard_futex_key(word), true);
		o = s ? &rs_guard_view.objects[s - rs_guard_view.slots] : NULL;
		t->changes_object = o;
		RS_BARRIER();
		if (o && !take(o)) {
			rs_guard_lost(RS_GUARD_LOST_KIND);
			t->changes_object = o = NULL;
		}
	} else if ((queue ? !(info & STORES) : !(info & COMPARES)) && kind == one) /* of a run's others it is what this thread has left there */
		wait_found(t, word, (uint32_t)was.result, info);
	/* By another instruction than then, and it does another thing: it was nowhere. */
	if (!queue && was.what && object != object_of(word, info) && (load(word) != (uint32_t)saved->rax || (uint32_t)saved->stores != (uint32_t)was.result)) {
		uint32_t is = load(word), then;
		const bool knows = (uint32_t)saved->rax == is;
		if (knows && held(t, word, is, &then)) {
			fail(saved, then);
			rs_guard_no_act(t);
			return PAST;
		}
		fail(saved, is);
		if (rs_guard_strays(t))
			rs_guard_diverged(t, RS_GUARD_EVENT, was.what, RS_GUARD_WHAT(object_of(word, info), RS_GUARD_CHANGE));
		else
			moment(t);
		rs_guard_no_act(t);
		return PAST;
	}
	begins(t, o, word, info);
	t->changes = object;
	return DONE;
}

unsigned rs_guard_futex_slow_over(uint32_t flags, uint32_t found, uintptr_t sp)
{
	struct rs_guard_log *t = rs_guard_self();
	if (!t || !t->changes)
		return DONE;
	const uint64_t object = t->changes, word = RS_GUARD_ADDRESS(object);
	const bool compares = t->changes_info & COMPARES, replay = rs_guard_mode() == RS_GUARD_REPLAY;
	t->sp = sp;
	if (t->changes_info & QUEUE) {
		unsigned is = replay ? next_kind(t, object, QUEUE) : RS_GUARD_QUEUE;
		rs_guard_after_still(t, is == RS_GUARD_QUEUE_RUN ? word : object, is ? is : RS_GUARD_QUEUE, is == RS_GUARD_QUEUE_RUN ? 0 : (int32_t)t->changes_found, true);
		t->queue_left = load_of(word, t->changes_info);
		goes_on(t, t->changes_object);
		return DONE;
	}
	if (compares && !(flags & ZF)) {
		if (!replay)
			rs_guard_after_still(t, object, RS_GUARD_CHANGE_NOT, (int32_t)found, false);
		goes_on(t, t->changes_object);
		return DONE;
	}
	unsigned kind = replay ? next_kind(t, object, 0) : RS_GUARD_CHANGE;
	uint32_t result = 0, at = rs_guard_next_at(t);
	if (kind == RS_GUARD_CHANGE)
		result = compares ? load(word) : t->changes_found;
	if (kind == RS_GUARD_CHANGE && replay && compares && at < t->end && (uint32_t)t->event[at].result != result) {
		/* What loops keep in registers of what they have seen (that somebody waits) is another thing here, and others go by the word. */
		result = (uint32_t)t->event[at].result;
		__atomic_store_n((uint32_t *)word, result, __ATOMIC_RELEASE);
	}
	rs_guard_after_still(t, kind == RS_GUARD_CHANGE_RUN ? word : object, kind ? kind : RS_GUARD_CHANGE, (int32_t)result, true);
	goes_on(t, t->changes_object);
	return DONE;
}
