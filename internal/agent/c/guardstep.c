/* guardstep.c: single steps of a thread shortly before its crash, in a re-execution. See guardstep.h. General registers only.
 *
 * A step that is taken in the agent's code ends them until the agent is left, where a breakpoint waits: at the return address of the call, or behind the system call. That breakpoint is opened by the thread itself, as it is known there and then; its
 * descriptor is moved out of the way at once, since descriptors that the program opens must have the numbers that they had. Steps and breakpoints are one signal that queues once; both say the same, the state before the next instruction.
 *
 * Where there are no breakpoints of the processor's (guardbreak.h) the handler counts, and the coordinator sets the one behind what is not stepped. The write of a return address is then the call that made it, with that stack pointer: told when the call has been
 * made. */
#include "guardstep.h"
#include "guardbreak.h"
#include "guarddebug.h"
#include "guardlog.h"
#include "guardsys.h"
#include "guardwatch.h"
#include "pointer.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <sys/uio.h>

enum { ANCHORS = 3, RETURN = ANCHORS /* the breakpoint behind what is not stepped: four registers there are */, HOT = 1 << 16 /* an anchor that is met so often costs too much */, LONG = 2000 /* steps of a call, from which on it is passed by */, MOST = 40000 /* steps from one anchor on */, TRIES = 2, PATIENCE_MS = 10000 /* after that it is left at what is known */ };
enum { STORE = RETURN + 1 /* in software, of a write that is looked into: at the instruction */, BREAKS, SERVED_MS = 100, SERVED_TIMES = 20 };
_Static_assert((int)BREAKS == (int)RS_GUARD_BREAKS, "numbers of breakpoints in software");
enum { NOTHING, COUNT, STEP };
enum { EXECUTE = 4, WRITE = 2 /* HW_BREAKPOINT_X, _W */, TF = 0x100, RF = 0x10000 };
enum { MAGIC = 0x72735753, DATA_AT = 24, TYPE_AT = 32, TYPE_BREAKPOINT = 5 };
#ifndef TRAP_TRACE
#define TRAP_TRACE 2
#endif

/* call: that writes there; 0: not known. set: in software it has a breakpoint; begins: at `begin`, not at `call`. */
struct anchor { uint64_t address, call, begin, count, now, others; uint32_t type, hot, met; int32_t fd; bool set, begins, last /* its last time counts */; };

static struct stepping {
	uint32_t phase, armed;     /* of the next re-execution; of this one */
	uint32_t tid, tries;
	bool soft;                 /* breakpoints of this re-execution are int3 */
	int32_t blind;             /* memory cannot be read as it should: a negative errno */
	uint64_t begun_ms, descriptors; /* descriptors: that there is room for; 0: not known */
	int32_t sig;
	uint32_t run;
	int32_t back;              /* the thread's descriptor of the breakpoint behind what is not stepped (in software: 0); -1: none */
	uint64_t back_rsp;         /* the stack pointer there */
	uint64_t back_at;          /* in software: the question for it, by its number, and the coordinator's answer */
	uint32_t asked, served, granted; /* served: futex */
	long answer;
	uint64_t end[17];          /* where steps are to end: the crash, or where those that were looked at begin */
	uint64_t crash[17];
	uint32_t inner;            /* the latter, or a write, or the call that aborts */
	uint64_t condition[ANCHORS]; /* to an abort: what may have been compared last */
	uint32_t conditions;
	uint64_t top;              /* where the return address of the function that aborts is */
	bool loose;                /* of the end the instruction and the stack pointer are known, and no more */
	bool called;               /* the end is a call of a function of ours that crashed, */
	uint64_t function, fault;  /* with this address */
	uint64_t place;            /* what is written there; 0: it is the crash that steps are for */
	uint64_t behind[17];       /* the write */
	struct anchor write;
	struct rs_guard_step_word word[RS_GUARD_STEP_WORDS]; /* of the stack, where return addresses are, the innermost first: the one that the function's last call had, and of the calls of itself and its callers */
	uint32_t words, used;      /* used: of them, so far */
	uint64_t returned;         /* where the function's last call came back; 0: not known, or tried */
	struct anchor anchor[ANCHORS];
	uint32_t anchors;
	uint32_t running, left;    /* left: steps, until the next anchor */
	bool spent;                /* of the last anchor that was met there were none left */
	uint64_t call, call_back, call_rsp; /* a call that can be passed by: the number of its first step, and where it comes back; call_back 0: none */
	uint32_t call_word;        /* where its return address is */
	uint64_t n, peak;          /* steps; how many there were at most: of what was passed by the places were used */
	struct rs_guard_step step[RS_GUARD_STEPS];
} *stepping;
bool (*rs_guard_stepped)(void);
bool rs_guard_step_read(uint64_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	if (RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0) != (long)n)
		return false;
	rs_guard_break_hide(at, to, n);
	return true;
}

static long breakpoint(uint32_t tid, uint32_t type, uint64_t at, uint64_t period, uint32_t k)
{
	struct perf_event_attr a;
	rs_os_clear(&a, sizeof a);
	a.type = PERF_TYPE_BREAKPOINT;
	a.size = sizeof a;
	a.bp_type = type;
	a.bp_addr = at;
	a.bp_len = 8;
	a.sample_period = period;
	a.exclude_kernel = a.exclude_hv = 1;
	a.sigtrap = a.remove_on_exec = 1;
	a.sig_data = (uint64_t)MAGIC << 32 | (uint32_t)(stepping->run * (RETURN + 1) + k);
	return RS_SYS5(SYS_perf_event_open, &a, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* --- on the thread --------------------------------------------------------------------------------------------------------------------------- */

static void close_back(struct stepping *s)
{
	if (s->back >= 0 && !s->soft)
		RS_SYS1(SYS_close, s->back);
	s->back = -1;
}

static void find_words(struct stepping *s, struct rs_thread *t, const greg_t *g)
{
	uint64_t pcs[RS_GUARD_STEP_WORDS];
	struct rs_frame f = {.pc = (uintptr_t)g[REG_RIP], .rsp = (uintptr_t)g[REG_RSP], .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true, .gregs = (const uint64_t *)g};
	unsigned n = rs_walk(t, &f, true, pcs, RS_GUARD_STEP_WORDS, NULL);
	s->words = rs_guard_step_words(t, (uint64_t)g[REG_RSP], pcs, n, s->word);
	s->used = 0;
	if (!s->words || !s->word[0].call || !rs_guard_step_read(s->word[0].at, &s->returned, sizeof s->returned))
		s->returned = 0;
}

static uint64_t now_ms(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

/* The next anchors, further out. A call that the thread was in when the epoch began was written before: where none of the first is met it is where it came back. False: there are no more. */
static bool choose(struct stepping *s)
{
	if ((s->used == s->words && !(s->used && s->returned)) || now_ms() - s->begun_ms > PATIENCE_MS)
		return false;
	s->anchors = 0;
	s->tries = 0;
	if (s->conditions) {
		for (; s->anchors < s->conditions; s->anchors++)
			s->anchor[s->anchors] = (struct anchor){.address = s->condition[s->anchors], .type = EXECUTE, .last = true};
		s->conditions = 0;
		return true;
	}
	if (s->used && s->returned) {
		s->anchor[s->anchors++] = (struct anchor){.address = s->returned, .type = EXECUTE, .last = true};
		s->returned = 0;
		return true;
	}
	if (s->used == 0)
		s->anchor[s->anchors++] = (struct anchor){.address = s->end[REG_RIP], .type = EXECUTE};
	else
		s->used--; /* to know which call through it is the last */
	while (s->anchors < ANCHORS && s->used < s->words)
		s->anchor[s->anchors++] = (struct anchor){.address = s->word[s->used].at, .call = s->word[s->used].call, .begin = s->word[s->used].begin, .type = WRITE}, s->used++;
	return true;
}

long rs_guard_step(struct rs_thread *t, int sig, const greg_t *g, const uint64_t *fault)
{
	struct stepping *s = stepping;
	if (!s)
		return -ESRCH;
	if (rs_guard_mode() == RS_GUARD_REPLAY) {
		if (s->tid == rs_os_tid())
			close_back(s);
		return s->answer;
	}
	if (s->blind)
		return s->blind;
	s->tid = rs_os_tid();
	s->sig = sig;
	s->n = s->peak = 0;
	s->back = -1;
	for (unsigned i = 0; i < sizeof s->end / 8; i++)
		s->end[i] = s->crash[i] = (uint64_t)g[i];
	s->inner = s->loose = sig == SIGABRT;
	s->called = fault != NULL;
	if (fault)
		s->fault = *fault, s->loose = true;
	s->place = 0;
	s->begun_ms = now_ms();
	find_words(s, t, g);
	/* The return address of the call that aborts, or crashes, lies where those of the function's other calls lay. */
	s->conditions = s->inner ? rs_guard_step_conditions(t, (uint64_t)g[REG_RIP], s->condition, ANCHORS) : 0;
	if (s->loose && s->words) {
		s->returned = 0;
		s->words--;
		for (uint32_t i = 0; i < s->words; i++)
			s->word[i] = s->word[i + 1];
	}
	s->top = s->words ? s->word[0].at : (uint64_t)g[REG_RSP];
	choose(s);
	s->phase = COUNT;
	return s->answer = 0;
}

void rs_guard_step_stands(void)
{
	if (stepping && stepping->armed && stepping->tid == rs_os_tid())
		close_back(stepping);
}

/* In the other registers functions of the agent leave what they like. */
static bool same_place(const uint64_t *gregs, const uint64_t *end)
{
	static const uint8_t kept[] = {REG_RIP, REG_RSP, REG_RBP, REG_RBX, REG_R12, REG_R13, REG_R14, REG_R15};
	for (unsigned i = 0; i < sizeof kept; i++)
		if (gregs[kept[i]] != end[kept[i]])
			return false;
	return true;
}

static bool is_end(const struct stepping *s, const uint64_t *gregs)
{
	return s->loose ? gregs[REG_RIP] == s->end[REG_RIP] && gregs[REG_RSP] == s->end[REG_RSP] : same_place(gregs, s->end);
}

long rs_guard_step_write(uint32_t tid, uint64_t place, const uint64_t *behind, uint64_t pc, const struct rs_guard_step_word *word, unsigned words)
{
	struct stepping *s = stepping;
	s->tid = tid;
	s->place = place;
	s->inner = 1;
	s->loose = s->called = false;
	rs_os_copy(s->behind, behind, sizeof s->behind);
	rs_os_copy(s->end, behind, sizeof s->end);
	s->end[REG_RIP] = pc;
	rs_os_copy(s->word, word, words * sizeof *word);
	s->words = words;
	s->used = 0;
	s->returned = 0;
	if (!choose(s))
		return -ENOENT;
	s->phase = COUNT;
	return 0;
}

static void keep(struct stepping *s, const greg_t *g, unsigned what)
{
	struct rs_guard_step *k = &s->step[s->n % RS_GUARD_STEPS];
	const struct rs_guard_step *last = s->n ? &s->step[(s->n - 1) % RS_GUARD_STEPS] : NULL;
	if (last && last->what == what && rs_os_equal(last->gregs, g, sizeof last->gregs))
		return; /* a step and a breakpoint at once */
	rs_os_copy(k->gregs, g, sizeof k->gregs);
	k->what = what;
	if (++s->n > s->peak)
		s->peak = s->n;
}

/* Was this step a call that returns there? */
static bool called(const struct rs_guard_step *k, uint64_t to)
{
	struct rs_instruction in;
	uint8_t code[15];
	uint64_t pc = k->gregs[REG_RIP];
	return k->what == RS_GUARD_STEP_ONE && to > pc && to - pc <= sizeof code && rs_guard_step_read(pc, code, to - pc) && rs_decode(&in, code, to - pc) && in.length == to - pc && rs_guard_step_calls(&in);
}

/* The agent's first instruction is about to run: where the program goes on behind it, and its stack pointer there. 0: not known. */
static uint64_t way_out(const struct stepping *s, const greg_t *g, uint64_t *rsp)
{
	uint64_t to, next = rs_hook_next(g);
	*rsp = (uint64_t)g[REG_RSP] + (next ? 0 : 8);
	if (next)
		return s->soft ? rs_hook_exit() : next; /* next lies in a trampoline, which may show the same memory as others */
	if (!rs_guard_step_read((uint64_t)g[REG_RSP], &to, sizeof to))
		return 0;
	/* A call that was seen pushed it; ld.so may have run since. */
	for (uint32_t i = 1; i <= s->n && i <= RS_GUARD_STEPS; i++) {
		const struct rs_guard_step *k = &s->step[(s->n - i) % RS_GUARD_STEPS];
		if (k->gregs[REG_RSP] == (uint64_t)g[REG_RSP] + 8 && called(k, to))
			return to;
	}
	/* Or the steps began with its write, of which the processor tells behind the call. */
	for (uint32_t k = 0; k < s->anchors && !s->soft; k++)
		if (s->anchor[k].type == WRITE && s->anchor[k].address == (uint64_t)g[REG_RSP] && __atomic_load_n(&s->anchor[k].met, __ATOMIC_ACQUIRE) && rs_guard_step_behind_call(to))
			return to;
	return 0;
}

/* As if it had never been among the program's descriptors, but for a moment. Not beyond the table that the kernel has for them: where threads share it, another table comes with a grace period of RCU, which on a busy machine took
 * three seconds, in which the thread stood and the others gave up waiting for it. */
static int32_t out_of_the_way(const struct stepping *s, long fd)
{
	enum { HIGH = 8, USUAL = 1024 };
	uint64_t limit[2] = {0};
	RS_SYS4(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, NULL, limit);
	if (limit[0] > USUAL)
		limit[0] = USUAL; /* the kernel's table grows with the number */
	if (limit[0] > s->descriptors && s->descriptors)
		limit[0] = s->descriptors;
	long high = limit[0] > HIGH ? RS_SYS3(SYS_fcntl, fd, 1030 /* F_DUPFD_CLOEXEC */, limit[0] - HIGH) : -EMFILE;
	RS_SYS1(SYS_close, fd);
	return high < 0 ? -1 : (int32_t)high;
}

/* A thread has no way to text but by a descriptor, which the program would see. The coordinator looks once in a millisecond; woken, sooner. What it has set stays: the next one is often there. */
static void ask_for_back(struct stepping *s, uint64_t to)
{
	s->back_at = to;
	s->back = 0;
	if (rs_guard_break_is(RETURN, to))
		return;
	uint32_t asked = __atomic_add_fetch(&s->asked, 1, __ATOMIC_SEQ_CST), served;
	RS_SYS3(SYS_futex, &rs_guard_world()->ended, FUTEX_WAKE_PRIVATE, 1);
	for (int i = 0; (served = __atomic_load_n(&s->served, __ATOMIC_ACQUIRE)) != asked && s->armed && i < SERVED_TIMES; i++) {
		struct timespec ts = {0, SERVED_MS * 1000000};
		RS_SYS4(SYS_futex, &s->served, FUTEX_WAIT_PRIVATE, served, &ts);
	}
	if (served != asked || !s->granted)
		s->back = -1;
}

/* No steps from here to there. */
static void pass(struct stepping *s, const greg_t *g, uint64_t to, uint64_t rsp)
{
	s->back_rsp = rsp;
	if (s->soft && to) {
		ask_for_back(s, to);
	} else {
		long fd = to ? breakpoint(s->tid, EXECUTE, to, 1, RETURN) : -1;
		s->back = fd < 0 ? -1 : out_of_the_way(s, fd);
	}
	keep(s, g, s->back < 0 ? RS_GUARD_STEP_BREAK : RS_GUARD_STEP_CALL);
}

/* May a call with its return address in this word be passed by? Not the one that the crash is in. */
static bool other_call(const struct stepping *s, uint32_t word)
{
	if (word == 0)
		return true;
	for (uint32_t k = 0; k < s->anchors; k++)
		if (s->anchor[k].type == WRITE && s->anchor[k].address == s->word[word].at)
			return (!s->soft || s->anchor[k].set) && !__atomic_load_n(&s->anchor[k].met, __ATOMIC_ACQUIRE);
	return false;
}

/* Looks whether the step that was just kept is a call's first, or behind it. */
static void look_at_call(struct stepping *s, const greg_t *g)
{
	uint64_t rsp = (uint64_t)g[REG_RSP];
	if (s->call_back && rsp >= s->call_rsp)
		s->call_back = 0;
	if (s->n < 2 || s->step[(s->n - 2) % RS_GUARD_STEPS].gregs[REG_RSP] != rsp + 8)
		return;
	for (uint32_t i = 0; i < s->words && !s->call_back; i++)
		if (rsp == s->word[i].at && other_call(s, i) && rs_guard_step_read(rsp, &s->call_back, sizeof s->call_back)) {
			bool call = s->soft ? called(&s->step[(s->n - 2) % RS_GUARD_STEPS], s->call_back) : rs_guard_step_behind_call(s->call_back);
			s->call_back = call ? s->call_back : 0;
			s->call_rsp = rsp + 8;
			s->call = s->n - 1;
			s->call_word = i;
		}
}

/* Where it goes on behind what is done from here, with which stack pointer: a call, or a function, if this is its beginning. */
static bool comes_back(const struct stepping *s, const greg_t *g, uint64_t *to, uint64_t *rsp)
{
	struct rs_instruction in;
	uint8_t code[15];
	uint64_t pc = (uint64_t)g[REG_RIP];
	size_t n = RS_PAGE - pc % RS_PAGE < sizeof code ? RS_PAGE - pc % RS_PAGE : sizeof code;
	*rsp = (uint64_t)g[REG_RSP] + 8;
	if (s->place)
		return false;
	if (s->soft && rs_guard_step_read(pc, code, n) && rs_decode(&in, code, n) && rs_guard_step_calls(&in)) {
		*to = pc + in.length;
		*rsp = (uint64_t)g[REG_RSP];
		return true;
	}
	return rs_guard_step_read((uint64_t)g[REG_RSP], to, sizeof *to) && (s->soft ? rs_guard_step_call_before(rs_thread_tls, *to, true) != 0 : rs_guard_step_behind_call(*to));
}

/* Before an instruction, of a breakpoint or a step. first: the instruction's last time but one. */
static void step(struct stepping *s, greg_t *g, bool first)
{
	g[REG_EFL] &= ~(greg_t)TF;
	s->running = 0;
	if (rs_guard_step_ours((uint64_t)g[REG_RIP])) {
		uint64_t rsp, to = way_out(s, g, &rsp);
		pass(s, g, to, rsp);
		return;
	}
	if (s->left == 0) {
		s->spent = true;
		keep(s, g, RS_GUARD_STEP_BREAK);
		return;
	}
	keep(s, g, RS_GUARD_STEP_ONE);
	s->left--;
	/* All that is wanted, if it is the last time: if it is a function's beginning, that comes back otherwise; before a write's last time comes an anchor. */
	if (s->inner && !first && is_end(s, (const uint64_t *)g)) {
		uint64_t to, rsp;
		bool known = comes_back(s, g, &to, &rsp);
		s->call_back = 0;
		pass(s, g, known ? to : 0, rsp);
		return;
	}
	look_at_call(s, g);
	if (s->call_back && s->n - s->call > LONG) {
		uint64_t to = s->call_back;
		s->call_back = 0;
		if (other_call(s, s->call_word)) {
			s->n = s->call;
			pass(s, g, to, s->call_rsp);
			return;
		}
	}
	s->running = 1;
	g[REG_EFL] |= TF;
}

/* The crash itself meets the instruction, too. In software steps may begin there: the first thing to ask is what it used. */
static uint64_t period(const struct stepping *s, const struct anchor *a)
{
	if (s->phase == COUNT)
		return s->place ? 1 : HOT;
	return a->hot ? 0 : a->count - (a->type == EXECUTE && !a->last && a->count > s->soft);
}

/* call: in software, the registers before the call that wrote there. */
static void anchor(struct stepping *s, struct anchor *a, greg_t *g, const greg_t *call)
{
	__atomic_store_n(&a->met, 1, __ATOMIC_RELEASE);
	s->left = MOST;
	s->spent = false;
	if (s->back >= 0 && rs_guard_step_ours((uint64_t)g[REG_RIP]))
		return;
	if (!s->running && s->n)
		keep(s, g, RS_GUARD_STEP_BREAK);
	if (!s->running && call)
		keep(s, call, RS_GUARD_STEP_ONE);
	close_back(s);
	step(s, g, s->place && a->type == EXECUTE && period(s, a) < a->count);
}

/* Of a crash the kernel counts, up to the end; of a write it is done here, up to the last time that it was made. */
static void count(struct stepping *s, uint32_t k, const greg_t *g)
{
	if (k < ANCHORS) {
		struct anchor *a = &s->anchor[k];
		if (!s->place || ++a->now >= HOT)
			__atomic_store_n(&a->hot, 1, __ATOMIC_RELEASE);
	} else if (same_place((const uint64_t *)g, s->behind)) {
		for (uint32_t i = 0; i < s->anchors; i++)
			s->anchor[i].count = s->anchor[i].now;
	}
}

/* --- in software, on any thread ---------------------------------------------------------------------------------------------------------------- */

/* Steps have ended here, before this very instruction. */
static bool passed(const struct stepping *s, const greg_t *g)
{
	const struct rs_guard_step *last = s->n && !s->running ? &s->step[(s->n - 1) % RS_GUARD_STEPS] : NULL;
	return last && last->what != RS_GUARD_STEP_ONE && rs_os_equal(last->gregs, g, sizeof last->gregs);
}

/* Breakpoint k, as the processor would tell it: before the instruction, or (a call, the hook's exit) behind it. True: there was a step. */
static bool tell(struct stepping *s, uint32_t k, uint64_t at, greg_t *g, const greg_t *call)
{
	if (k < ANCHORS) {
		struct anchor *a = &s->anchor[k];
		a->now++;
		if (s->armed == COUNT && a->now >= HOT) {
			__atomic_store_n(&a->hot, 1, __ATOMIC_RELEASE);
		} else if (s->armed == STEP && a->now == period(s, a) && passed(s, call ? call : g)) {
			__atomic_store_n(&a->met, 1, __ATOMIC_RELEASE); /* the processor's signal would be lost in the step's, too */
		} else if (s->armed == STEP && a->now == period(s, a)) {
			anchor(s, a, g, call);
			return true;
		}
	} else if (k == STORE) {
		if (same_place((const uint64_t *)g, s->end) && rs_pointer_stores((const uint64_t *)g) == s->place)
			for (uint32_t i = 0; i < s->anchors; i++)
				s->anchor[i].count = s->anchor[i].now;
	} else if (s->back >= 0 && (uint64_t)g[REG_RSP] == s->back_rsp && at == s->back_at) {
		close_back(s);
		step(s, g, false);
		return true;
	}
	return false;
}

static void met(struct stepping *s, const struct rs_guard_break *b, greg_t *g)
{
	greg_t before[17];
	uint64_t at = (uint64_t)g[REG_RIP];
	uint32_t there = rs_guard_break_there(b), behind = BREAKS;
	for (uint32_t k = 0; k < BREAKS; k++) {
		bool call = k < ANCHORS && s->anchor[k].type == WRITE && !s->anchor[k].begins;
		if (!(there & 1u << k))
			continue;
		if (!call && !(k == RETURN && rs_guard_step_ours(at)))
			tell(s, k, at, g, NULL);
		else if (!call || (uint64_t)g[REG_RSP] == s->anchor[k].address + 8)
			behind = k;
	}
	rs_os_copy(before, g, sizeof before);
	if (!rs_guard_break_past(b, g))
		return;
	if ((behind == BREAKS || !tell(s, behind, at, g, behind < ANCHORS ? before : NULL)) && g[REG_EFL] & TF)
		step(s, g, false);
}

/* Threads that only come by cost time, too. */
static void count_others(struct stepping *s, uint32_t there)
{
	for (uint32_t k = 0; k < ANCHORS; k++)
		if (there & 1u << k && __atomic_add_fetch(&s->anchor[k].others, 1, __ATOMIC_RELAXED) >= 4 * (uint64_t)HOT)
			__atomic_store_n(&s->anchor[k].hot, 1, __ATOMIC_RELEASE);
}

bool rs_guard_step_int3(ucontext_t *uc)
{
	struct stepping *s = stepping;
	greg_t *g = uc->uc_mcontext.gregs;
	const struct rs_guard_break *b = s ? rs_guard_break_hit(g) : NULL;
	uint32_t there = b ? rs_guard_break_there(b) : 0;
	if (!there)
		return b != NULL;
	if (s->armed && s->tid == rs_os_tid()) {
		met(s, b, g);
	} else {
		count_others(s, there);
		rs_guard_break_past(b, g);
	}
	return true;
}

bool rs_guard_step_is_of(uint32_t tid) { return stepping && stepping->tid == tid; }

bool rs_guard_step_trap(const siginfo_t *info, ucontext_t *uc)
{
	struct stepping *s = stepping;
	greg_t *g = uc->uc_mcontext.gregs;
	uint64_t data = *(const uint64_t *)((const char *)info + DATA_AT);
	if (!s || !s->tid)
		return false;
	if (info->si_code == TRAP_TRACE) {
		if (s->tid != rs_os_tid() || !(g[REG_EFL] & TF) || !s->armed)
			return false;
		uint64_t copy = rs_guard_break_show(g), pc = (uint64_t)g[REG_RIP];
		step(s, g, false);
		if (copy && (uint64_t)g[REG_RIP] == pc)
			g[REG_RIP] = (greg_t)copy;
		return true;
	}
	if (*(const uint32_t *)((const char *)info + TYPE_AT) != TYPE_BREAKPOINT || data >> 32 != MAGIC)
		return false;
	uint32_t k = (uint32_t)data % (RETURN + 1);
	if (!s->armed || (uint32_t)data / (RETURN + 1) != s->run)
		return true;
	g[REG_EFL] |= RF; /* the instruction at an execution breakpoint runs now */
	if (s->armed == COUNT) {
		count(s, k, g);
	} else if (k != RETURN) {
		anchor(s, &s->anchor[k], g, NULL);
	} else if (s->back >= 0 && (uint64_t)g[REG_RSP] == s->back_rsp) {
		close_back(s);
		step(s, g, false);
	}
	return true;
}

/* --- the coordinator --------------------------------------------------------------------------------------------------------------------------- */

long rs_guard_step_begin(void)
{
	struct stepping *s = rs_guard_map(RS_ARENA_OWN, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->back = s->write.fd = -1;
	uint64_t word;
	struct iovec to = {&word, sizeof word}, from = {s, sizeof word};
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &to, 1, &from, 1, 0);
	s->blind = r < 0 ? (int32_t)r : 0;
	stepping = s;
	return rs_guard_breaks_begin();
}

bool rs_guard_step_wanted(void) { return stepping && stepping->phase != NOTHING; }

static void close_anchor(struct anchor *a)
{
	if (a->fd >= 0)
		RS_SYS1(SYS_close, a->fd);
	a->fd = -1;
}

static long arm_registers(struct stepping *s)
{
	for (uint32_t i = 0; i < s->anchors; i++) {
		struct anchor *a = &s->anchor[i];
		uint64_t p = period(s, a);
		long fd = p ? breakpoint(s->tid, a->type, a->address, p, i) : -1;
		/* An address that no breakpoint can have: the crash may have been a jump there. */
		if (p && fd < 0 && fd != -EINVAL) {
			for (uint32_t k = 0; k < i; k++)
				close_anchor(&s->anchor[k]);
			return fd;
		}
		a->fd = fd < 0 ? -1 : (int32_t)fd;
	}
	if (s->place && s->phase == COUNT) {
		long fd = breakpoint(s->tid, WRITE, s->place & -8ull, 1, RETURN);
		s->write.fd = fd < 0 ? -1 : (int32_t)fd;
	}
	return 0;
}

/* Where there can be none it is done without, as of an address that no breakpoint can have. From here on int3 may be met where the agent has signals blocked. */
static long arm_breaks(struct stepping *s)
{
	long r = 0;
	rs_os_open = 1ull << (SIGTRAP - 1);
	for (uint32_t i = 0; i < s->anchors && r >= 0; i++) {
		struct anchor *a = &s->anchor[i];
		uint64_t at = a->type == WRITE ? a->call : a->address;
		r = at && period(s, a) ? rs_guard_break_set(i, at) : -EINVAL;
		a->begins = r == -EINVAL && a->begin && period(s, a);
		if (a->begins)
			r = rs_guard_break_set(i, a->begin);
		a->set = r == 0;
		r = r == -EINVAL ? 0 : r;
	}
	if (r == 0 && s->place && s->phase == COUNT)
		r = rs_guard_break_set(STORE, s->end[REG_RIP]);
	return r == -EINVAL ? 0 : r;
}

/* The size of the kernel's table for the program's: the coordinator has one of its own. */
static uint64_t descriptors(void)
{
	char text[1024];
	uint64_t n = 0;
	const char *p = rs_guard_read(AT_FDCWD, "/proc/self/status", text, sizeof text) > 0 ? text : "";
	while (*p && !(p[0] == '\n' && p[1] == 'F' && p[2] == 'D' && p[3] == 'S'))
		p++;
	for (p += *p != 0; *p && *p != '\n'; p++)
		n = *p >= '0' && *p <= '9' ? n * 10 + (uint64_t)(*p - '0') : n;
	return n;
}

long rs_guard_step_arm(void)
{
	struct stepping *s = stepping;
	s->descriptors = descriptors();
	s->run = (s->run + 1) & (UINT32_MAX / (2 * (RETURN + 1)));
	s->n = s->peak = s->left = s->running = 0;
	s->spent = false;
	s->call_back = 0;
	s->back = -1;
	for (uint32_t i = 0; i < s->anchors; i++)
		s->anchor[i].fd = -1, s->anchor[i].met = 0, s->anchor[i].now = s->anchor[i].others = 0;
	s->write.fd = -1;
	s->soft = !rs_guard_registers_hit();
	long r = s->soft ? 0 : arm_registers(s);
	s->soft = s->soft || r < 0;
	if (s->soft && (r = arm_breaks(s)) < 0) {
		rs_guard_step_disarm();
		s->phase = NOTHING;
		return r;
	}
	__atomic_store_n(&s->armed, s->phase, __ATOMIC_SEQ_CST);
	return 0;
}

static void poll_breaks(struct stepping *s)
{
	uint32_t asked = __atomic_load_n(&s->asked, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < s->anchors; i++)
		if (__atomic_load_n(&s->anchor[i].hot, __ATOMIC_ACQUIRE))
			rs_guard_break_clear(i);
	if (asked != s->served) {
		s->granted = rs_guard_break_set(RETURN, s->back_at) == 0;
		__atomic_store_n(&s->served, asked, __ATOMIC_RELEASE);
		RS_SYS3(SYS_futex, &s->served, FUTEX_WAKE_PRIVATE, 1);
	}
}

void rs_guard_step_poll(void)
{
	struct stepping *s = stepping;
	if (s && s->armed && s->soft) {
		poll_breaks(s);
		return;
	}
	for (uint32_t i = 0; s && s->armed && i < s->anchors; i++) {
		struct anchor *a = &s->anchor[i];
		uint64_t n = 0;
		if (s->armed == COUNT && __atomic_load_n(&a->hot, __ATOMIC_ACQUIRE))
			close_anchor(a);
		else if (s->armed == STEP && a->fd >= 0 && RS_SYS3(SYS_read, a->fd, &n, 8) == 8 && n >= period(s, a))
			__atomic_store_n(&a->met, 1, __ATOMIC_RELEASE); /* in a step its own signal is lost */
	}
}

void rs_guard_step_disarm(void)
{
	struct stepping *s = stepping;
	if (!s)
		return;
	for (uint32_t i = 0; i < s->anchors; i++) {
		struct anchor *a = &s->anchor[i];
		uint64_t n = 0;
		if (s->armed == COUNT && s->soft && !s->place)
			a->count = a->now;
		else if (s->armed == COUNT && !s->place)
			a->count = a->fd >= 0 && RS_SYS3(SYS_read, a->fd, &n, 8) == 8 ? n : 0;
		close_anchor(a);
	}
	close_anchor(&s->write);
	if (s->soft) {
		rs_guard_breaks_clear();
		rs_guard_debug_again();
	}
	__atomic_store_n(&s->armed, NOTHING, __ATOMIC_SEQ_CST);
}

const struct rs_guard_step *rs_guard_step_back(uint32_t i)
{
	const struct stepping *s = stepping;
	return s && i < s->n && s->n - i + RS_GUARD_STEPS > s->peak ? &s->step[(s->n - 1 - i) % RS_GUARD_STEPS] : NULL;
}

const uint64_t *rs_guard_step_crash(void) { return stepping->crash; }
int rs_guard_step_signal(void) { return stepping->sig; }

bool rs_guard_step_called(uint64_t *function, uint64_t *fault)
{
	*function = stepping->function, *fault = stepping->fault;
	return stepping->called;
}

uint64_t rs_guard_step_top(void) { return stepping->top; }

/* The next steps are to end where these begin. */
static void from_first(struct stepping *s)
{
	const struct rs_guard_step *k;
	for (uint32_t i = 0; (k = rs_guard_step_back(i)) && k->what != RS_GUARD_STEP_BREAK; i++)
		if (k->what == RS_GUARD_STEP_ONE)
			rs_os_copy(s->end, k->gregs, sizeof s->end);
	s->inner = 1;
	s->loose = s->called = false;
}

/* The call behind the end, or a pass that did not come back; of a call of ours, also the way there: the linker's table, perhaps the linker. */
static void to_end(struct stepping *s)
{
	const struct rs_guard_step *k = rs_guard_step_back(0);
	if (s->called)
		s->function = k && k->what != RS_GUARD_STEP_ONE ? k->gregs[REG_RIP] : 0;
	while (s->n && s->step[(s->n - 1) % RS_GUARD_STEPS].what != RS_GUARD_STEP_ONE)
		s->n--;
	uint32_t i = 0;
	while (s->called && (k = rs_guard_step_back(i)) && k->what == RS_GUARD_STEP_ONE && !is_end(s, k->gregs))
		i++;
	if (k && i && is_end(s, k->gregs))
		s->n -= i;
}

/* From the function's own call on there are more steps to the end than are made: who begins further out has to make these, too, and once more there are as many. (All came by, so it was not another way that it took.) */
static bool too_long(const struct stepping *s)
{
	bool met = s->spent && !s->place && s->used > 1;
	for (uint32_t i = 0; i < s->anchors && met; i++)
		met = s->anchor[i].type != WRITE || s->anchor[i].hot || !s->anchor[i].count || __atomic_load_n(&s->anchor[i].met, __ATOMIC_ACQUIRE);
	return met;
}

bool rs_guard_step_more(void)
{
	struct stepping *s = stepping;
	uint32_t was = s->phase;
	s->phase = NOTHING;
	if (was == COUNT) {
		for (uint32_t i = 0; i < s->anchors; i++)
			if (!s->anchor[i].hot && s->anchor[i].count > (s->anchor[i].type == EXECUTE && !s->anchor[i].last && !s->soft))
				s->phase = STEP, s->returned = s->anchor[i].type == WRITE ? 0 : s->returned;
		if (s->phase == NOTHING && choose(s))
			s->phase = COUNT;
		return s->phase != NOTHING;
	}
	to_end(s);
	const struct rs_guard_step *last = rs_guard_step_back(0);
	bool late = now_ms() - s->begun_ms > PATIENCE_MS, good = last && is_end(s, last->gregs), whole = good && rs_guard_stepped();
	/* Not good if another thread made it another way, or steps were too many, as they may be, too, where this one waits for others, awake. */
	bool again = !good && ++s->tries < TRIES;
	if (!good && too_long(s) && (!again || rs_guard_world()->logs == 1))
		return false;
	if (again && !late)
		s->phase = COUNT;
	else if (!whole && choose(s))
		s->phase = COUNT;
	if (good && s->phase == COUNT)
		from_first(s);
	return s->phase == COUNT;
}

void rs_guard_step_over(void)
{
	if (stepping)
		stepping->phase = NOTHING;
}
