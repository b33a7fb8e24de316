/* guardwatch.c: hardware breakpoints in a re-execution, by perf or by debug registers that Go sets, or pages in their place (guardpage.c), and what they tell. See guardwatch.h. General registers only.
 *
 * SIGTRAP is a signal that queues once: two breakpoints of one instruction would be one signal. So what is watched at once lies farther apart than any instruction writes, and the kernel's own counts are compared with
 * what was told. A blocked SIGTRAP would come later, at another instruction (and says so: late); in a re-execution it is open on all threads.
 * A trap of a debug register does not say which one it was: then one unit is watched at once. */
#include "guardwatch.h"
#include "checkpoint.h"
#include "guarddebug.h"
#include "guardlog.h"
#include "guardpage.h"
#include "guardstack.h"
#include "guardstep.h"
#include "patch.h"
#include "world.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/uio.h>

enum { REGISTERS = 4, APART = 72 /* an instruction writes 64 bytes at most */, TRIES = 3, STACK = 64 << 10 };
enum { MAGIC = 0x72735754, DATA_AT = 24, TYPE_AT = 32, FLAGS_AT = 36 /* in siginfo_t: si_perf_data, _type, _flags */, TYPE_BREAKPOINT = 5, FLAG_ASYNC = 1 };

struct thread {
	uint32_t tid;              /* 0: not in this re-execution */
	uint32_t quiet;            /* != 0: it copies what the kernel wrote */
	int32_t fd[REGISTERS];
	char *stack;               /* for SIGTRAP */
	void *cache;               /* for rs_walk: the thread's own is the program's memory */
	stack_t alternate;         /* what the program has */
};
static struct watch {
	struct rs_guard_watched of, last; /* last: of what is over */
	uint32_t asked, over, armed; /* over: last is of something */
	uint32_t requests;
	long answer;               /* of rs_guard_watch */
	uint32_t run;              /* of the breakpoints: a signal of an earlier one is known by it */
	uint32_t order;
	uint32_t chosen, unit[RS_GUARD_UNITS];
	uint64_t told[RS_GUARD_UNITS];
	uint32_t failed;           /* tries of this round that diverged */
	uint32_t room;             /* as many at once */
	int32_t refusal;           /* why the last excursion had no breakpoints: 0, or a negative errno */
	int32_t given_up;          /* likewise, of some of its units */
	uint32_t registers;        /* UNTRIED, HIT, DEAD */
	bool debug;                /* the kernel has refused breakpoints by perf: those of Go's are used */
	bool pages;                /* no breakpoint is ever hit */
	bool steps;                /* armed: for steps */
	uint32_t threads;
	struct thread thread[RS_WORLD_THREADS];
} *watch;

enum { UNTRIED, HIT, DEAD }; /* of breakpoints */

bool (*rs_guard_watch_told)(const struct rs_guard_watched *of);

const struct rs_guard_watched *rs_guard_watched(void) { return watch && watch->over ? &watch->last : NULL; }

int32_t rs_guard_watch_refusal(void) { return !watch ? 0 : watch->refusal ? watch->refusal : watch->given_up; }

bool rs_guard_watch_answered(void) { return watch && watch->over && watch->last.request == watch->of.request; }

long rs_guard_watch_begin(void)
{
	struct watch *w = rs_guard_map(RS_ARENA_OWN, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->room = REGISTERS;
	watch = w;
	long r = rs_guard_debug_begin();
	if (r == 0)
		r = rs_guard_pages_begin();
	return r < 0 ? r : rs_guard_step_begin();
}

/* --- what is asked for ---------------------------------------------------------------------------------------------------------------- */

long rs_guard_watch(const struct rs_guard_watch *asked, unsigned n)
{
	if (!watch)
		return -ESRCH;
	return rs_guard_mode() == RS_GUARD_REPLAY ? watch->answer : rs_guard_watch_next(asked, n);
}

long rs_guard_watch_next(const struct rs_guard_watch *asked, unsigned n)
{
	struct watch *w = watch;
	rs_os_clear(&w->of, sizeof w->of);
	w->room = REGISTERS;
	w->debug = w->pages = false;
	w->given_up = 0;
	w->failed = 0;
	w->asked = 0;
	w->of.request = ++w->requests;
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = asked[i].address, left = asked[i].bytes;
		if (left == 0 || at + left < at)
			return w->answer = -EINVAL;
		while (left > 0) {
			uint32_t size = 1;
			while (size < 8 && at % (2 * size) == 0 && 2 * size <= left)
				size *= 2;
			if (w->of.units == RS_GUARD_UNITS) {
				w->of.units = 0;
				return w->answer = -E2BIG;
			}
			struct rs_guard_unit *u = &w->of.unit[w->of.units++];
			u->address = at;
			u->bytes = size;
			u->watch = i;
			at += size;
			left -= size;
		}
	}
	w->asked = 1;
	return w->answer = 0;
}

static struct rs_guard_unit *unit(uint32_t k) { return &watch->of.unit[watch->unit[k]]; }

/* --- on threads of the program -------------------------------------------------------------------------------------------------------------- */

/* The memory may be gone by now: false. Where that cannot be asked it is taken for there: this thread, or a call of its, has just written it. */
static bool read_unit(const struct rs_guard_unit *u, uint64_t *v)
{
	struct iovec to = {v, u->bytes}, from = {(void *)u->address, u->bytes};
	long r = rs_sandboxed ? -EPERM : RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &to, 1, &from, 1, 0);
	if (r == -EPERM || r == -ENOSYS || r == -EACCES) {
		rs_os_copy(v, (const void *)u->address, u->bytes);
		return true;
	}
	return r == (long)u->bytes;
}

static uint64_t value_of(const struct rs_guard_unit *u)
{
	uint64_t v = 0;
	read_unit(u, &v);
	return v;
}

static struct thread *self(void)
{
	uint32_t tid = rs_os_tid();
	for (uint32_t i = 0; i < watch->threads; i++)
		if (watch->thread[i].tid == tid)
			return &watch->thread[i];
	return NULL;
}

/* Without a look at the thread's pointer to its log, which is the program's memory, and may be set first by us. */
static uint64_t events_of(uint32_t tid)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->tid == tid)
			return rs_guard_log(i)->at;
	return 0;
}

/* frames: room for one more. Nothing of the thread's own is changed. */
static uint32_t walk(const struct thread *t, struct rs_frame *f, bool exact, uint64_t *frames, unsigned n)
{
	struct rs_thread copy;
	if (!rs_thread_tls || !t || !t->cache)
		return 0;
	rs_os_copy(&copy, rs_thread_tls, sizeof copy);
	copy.unwind_cache = t->cache;
	return rs_walk(&copy, f, exact, frames, n, NULL);
}

static struct rs_guard_hit *begin_hit(struct rs_guard_unit *u)
{
	struct rs_guard_hit *h = &u->hit[__atomic_fetch_add(&u->count, 1, __ATOMIC_ACQ_REL) % RS_GUARD_HITS];
	__atomic_store_n(&h->order, 0, __ATOMIC_RELEASE);
	h->address = u->address;
	h->unit = (uint32_t)(u - watch->of.unit);
	h->tid = rs_os_tid();
	h->after = value_of(u);
	h->before = __atomic_exchange_n(&u->last, h->after, __ATOMIC_ACQ_REL);
	h->event = events_of(h->tid);
	h->late = 0;
	h->thread = rs_thread_tls ? rs_thread_tls->number : 0;
	return h;
}

static void end_hit(struct rs_guard_hit *h)
{
	__atomic_store_n(&h->order, __atomic_add_fetch(&watch->order, 1, __ATOMIC_ACQ_REL), __ATOMIC_RELEASE);
}

static void hit(uint32_t k, bool late, ucontext_t *uc)
{
	struct rs_guard_unit *u = unit(k);
	struct thread *t = self();
	__atomic_fetch_add(&watch->told[k], 1, __ATOMIC_RELAXED);
	if (t && t->quiet) {
		__atomic_fetch_add(&u->quiet, 1, __ATOMIC_RELAXED);
		return;
	}
	struct rs_guard_hit *h = begin_hit(u);
	const greg_t *g = uc->uc_mcontext.gregs;
	struct rs_frame f = {.pc = (uintptr_t)g[REG_RIP], .rsp = (uintptr_t)g[REG_RSP], .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true,
			     .gregs = (const uint64_t *)g};
	h->call = -1;
	h->pc = f.pc;
	h->late = late;
	for (unsigned i = 0; i < sizeof h->gregs / 8; i++)
		h->gregs[i] = (uint64_t)g[i];
	h->frames = walk(t, &f, true, h->frame, RS_GUARD_HIT_FRAMES);
	if (!h->frames) {
		h->frame[0] = rs_patch_pc(h->pc);
		h->frames = 1;
	}
	h->words = rs_guard_watch_told ? rs_guard_step_words(rs_thread_tls, (uint64_t)g[REG_RSP], h->frame, h->frames, h->word) : 0;
	end_hit(h);
}

bool rs_guard_watch_hit(const siginfo_t *info, ucontext_t *uc)
{
	uint64_t data = *(const uint64_t *)((const char *)info + DATA_AT);
	if (*(const uint32_t *)((const char *)info + TYPE_AT) != TYPE_BREAKPOINT || data >> 32 != MAGIC)
		return false;
	struct watch *w = watch;
	uint32_t k = (uint32_t)data % REGISTERS;
	if (w && w->armed && (uint32_t)data / REGISTERS == w->run && k < w->chosen)
		hit(k, *(const uint32_t *)((const char *)info + FLAGS_AT) & FLAG_ASYNC, uc);
	return true;
}

bool rs_guard_watch_ever(void) { return watch && watch->run; }

bool rs_guard_watch_debug(const siginfo_t *info, ucontext_t *uc)
{
	bool now;
	if (!rs_guard_debug_trap(info, &now))
		return false;
	if (now && watch->armed && watch->debug && !watch->pages && watch->chosen)
		hit(0, false, uc);
	return true;
}

static bool meets(const struct rs_guard_unit *u, uintptr_t p, size_t n) { return n > 0 && p < u->address + u->bytes && u->address < p + n; }

static bool meets_any(const void *p, size_t n)
{
	for (uint32_t k = 0; k < watch->chosen; k++)
		if (meets(unit(k), (uintptr_t)p, n))
			return true;
	return false;
}

void rs_guard_watch_stored(uint64_t at, size_t n, ucontext_t *uc)
{
	for (uint32_t k = 0; k < watch->chosen; k++)
		if (meets(unit(k), at, n))
			hit(k, false, uc);
}

bool rs_guard_watch_meets(uint64_t at, size_t n) { return meets_any((const void *)at, n); }

uint64_t rs_guard_watch_next_unit(uint64_t at)
{
	uint64_t next = UINT64_MAX;
	for (uint32_t k = 0; k < watch->chosen; k++) {
		const struct rs_guard_unit *u = unit(k);
		if (u->address + u->bytes > at && u->address < next)
			next = u->address;
	}
	return next;
}

void rs_guard_watch_unseen(uint64_t at, size_t n, bool fresh)
{
	for (uint32_t k = 0; k < watch->chosen; k++) {
		struct rs_guard_unit *u = unit(k);
		uint64_t is = 0;
		if (!meets(u, at, n) || !rs_guard_page_there(u->address) || !read_unit(u, &is))
			continue;
		if (__atomic_exchange_n(&u->last, is, __ATOMIC_ACQ_REL) != is && !fresh)
			__atomic_fetch_add(&u->lost, 1, __ATOMIC_RELAXED);
	}
}

/* The program's, which the hook's own frame (rs_hook_c) keeps: the last one below c. */
static uintptr_t callers_rbp(const struct rs_call *c)
{
	const uintptr_t *fp = __builtin_frame_address(0);
	while (fp[0] > (uintptr_t)fp && fp[0] < (uintptr_t)c)
		fp = (const uintptr_t *)fp[0];
	return fp[0];
}

void rs_guard_watch_wrote(const struct rs_call *c, const void *p, size_t n)
{
	struct watch *w = watch;
	if (RS_LIKELY(!w || !w->armed) || !meets_any(p, n))
		return;
	for (uint32_t k = 0; k < w->chosen; k++) {
		struct rs_guard_unit *u = unit(k);
		if (!meets(u, (uintptr_t)p, n))
			continue;
		/* A function of the vdso has no frame of the hook's: from here then, and the first is ours. */
		const uintptr_t *here = __builtin_frame_address(0);
		struct rs_frame f = {.pc = here[1], .rsp = (uintptr_t)(here + 2), .rbp = here[0], .has_rbp = true};
		if (c->next)
			f = (struct rs_frame){.pc = c->next, .rsp = (uintptr_t)c + RS_CALL_FRAME, .rbp = callers_rbp(c), .has_rbp = true};
		uint64_t frames[RS_GUARD_HIT_FRAMES + 1];
		struct rs_guard_hit *h = begin_hit(u);
		h->call = (int32_t)c->number;
		h->pc = c->next;
		rs_os_clear(h->gregs, sizeof h->gregs);
		uint32_t m = walk(self(), &f, false, frames, RS_GUARD_HIT_FRAMES + 1), from = c->next == 0;
		h->frame[0] = c->next;
		h->frames = 1;
		for (uint32_t i = from; i < m && i - from < RS_GUARD_HIT_FRAMES; i++) {
			h->frame[i - from] = frames[i];
			h->frames = i - from + 1;
		}
		end_hit(h);
	}
}

void rs_guard_watch_put(const struct rs_call *c, void *to, const void *from, size_t n)
{
	struct watch *w = watch;
	struct thread *t = RS_LIKELY(!w || !w->armed) || !meets_any(to, n) ? NULL : self();
	if (rs_guard_page_put(to, from, n)) {
		rs_guard_watch_wrote(c, to, n);
		return;
	}
	if (t)
		t->quiet = 1;
	RS_BARRIER();
	rs_os_copy(to, from, n);
	RS_BARRIER();
	if (t) {
		t->quiet = 0;
		rs_guard_watch_wrote(c, to, n);
	}
}

bool rs_guard_watch_altstack(const struct rs_call *c, long result)
{
	struct thread *t = watch && watch->armed ? self() : NULL;
	const stack_t *new = (const stack_t *)c->arg[0];
	stack_t *old = (stack_t *)c->arg[1];
	if (!t || result < 0)
		return t != NULL;
	stack_t was = t->alternate;
	uintptr_t sp = (uintptr_t)c + RS_CALL_FRAME;
	bool on = was.ss_size && sp > (uintptr_t)was.ss_sp && sp - (uintptr_t)was.ss_sp <= was.ss_size;
	if (new && new->ss_flags & SS_DISABLE)
		t->alternate = (stack_t){.ss_flags = SS_DISABLE};
	else if (new)
		t->alternate = (stack_t){.ss_sp = new->ss_sp, .ss_flags = new->ss_flags, .ss_size = new->ss_size};
	if (old) {
		rs_os_clear(old, sizeof *old); /* its padding too, as the kernel does */
		old->ss_sp = was.ss_sp;
		old->ss_flags = was.ss_flags | (on ? SS_ONSTACK : 0);
		old->ss_size = was.ss_size;
	}
	return true;
}

/* --- the coordinator -------------------------------------------------------------------------------------------------------------------------- */

static long open_one(uint32_t tid, const struct rs_guard_unit *u, unsigned k)
{
	struct perf_event_attr a;
	rs_os_clear(&a, sizeof a);
	a.type = PERF_TYPE_BREAKPOINT;
	a.size = sizeof a;
	a.bp_type = 2; /* HW_BREAKPOINT_W */
	a.bp_addr = u->address;
	a.bp_len = u->bytes;
	a.sample_period = 1;
	a.exclude_kernel = a.exclude_hv = 1;
	a.sigtrap = a.remove_on_exec = 1;
	a.sig_data = (uint64_t)MAGIC << 32 | (uint32_t)(watch->run * REGISTERS + k);
	return RS_SYS5(SYS_perf_event_open, &a, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* One that only counts, of this task: no signal. */
static uint32_t try_registers(void)
{
	uint64_t word = 0, n = 0;
	struct perf_event_attr a;
	rs_os_clear(&a, sizeof a);
	a.type = PERF_TYPE_BREAKPOINT;
	a.size = sizeof a;
	a.bp_type = 2; /* HW_BREAKPOINT_W */
	a.bp_addr = (uintptr_t)&word;
	a.bp_len = sizeof word;
	a.exclude_kernel = a.exclude_hv = 1;
	long fd = RS_SYS5(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return fd == -ENOENT ? DEAD : UNTRIED;
	*(volatile uint64_t *)&word = 1;
	long r = RS_SYS3(SYS_read, fd, &n, sizeof n);
	RS_SYS1(SYS_close, fd);
	return r != sizeof n ? UNTRIED : n ? HIT : DEAD;
}

bool rs_guard_registers_hit(void)
{
	if (watch->registers == UNTRIED && !rs_sandboxed)
		watch->registers = try_registers();
	return watch->registers != DEAD;
}

/* told: by unit; or NULL. */
static void close_all(uint64_t counted[REGISTERS])
{
	for (uint32_t i = 0; i < watch->threads; i++) {
		struct thread *t = &watch->thread[i];
		for (uint32_t k = 0; t->tid && k < REGISTERS; k++) {
			uint64_t n = 0;
			if (t->fd[k] < 0)
				continue;
			if (counted && RS_SYS3(SYS_read, t->fd[k], &n, 8) == 8)
				counted[k] += n;
			RS_SYS1(SYS_close, t->fd[k]);
			t->fd[k] = -1;
		}
	}
}

static uint64_t distance(uint64_t a, uint64_t b) { return a < b ? b - a : a - b; }

/* Which units are watched now. */
static void choose(void)
{
	struct watch *w = watch;
	w->chosen = 0;
	for (uint32_t i = 0; i < w->of.units && w->chosen < (w->pages ? RS_GUARD_UNITS : w->debug ? 1 : w->room); i++) {
		bool near = w->of.unit[i].state != RS_GUARD_UNIT_WANTED;
		for (uint32_t k = 0; k < w->chosen && !w->pages; k++)
			near = near || distance(w->of.unit[i].address, w->of.unit[w->unit[k]].address) < APART;
		if (!near)
			w->unit[w->chosen++] = i;
	}
}

/* Those of Go's are set last, when nothing of the threads is to be made any more. */
static long open_all(void)
{
	struct watch *w = watch;
	struct rs_world_thread *t;
	w->run = (w->run + 1) & (UINT32_MAX / REGISTERS);
	w->threads = 0;
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++) {
		struct thread *own = &w->thread[i];
		own->tid = t->tid;
		own->quiet = 0;
		for (uint32_t k = 0; k < REGISTERS; k++)
			own->fd[k] = -1;
		w->threads = i + 1;
		for (uint32_t k = 0; t->tid && k < w->chosen && !w->debug && !w->pages; k++) {
			long fd = open_one(t->tid, unit(k), k);
			if (fd < 0)
				return fd;
			own->fd[k] = (int32_t)fd;
		}
		if (t->tid && !own->stack && !((own->stack = rs_guard_map(RS_ARENA_OWN, STACK)) && (own->cache = rs_guard_map(RS_ARENA_OWN, rs_walk_cache_bytes))))
			return -ENOMEM;
	}
	const struct rs_guard_unit *u = &w->of.unit[w->unit[0]];
	return w->debug && w->chosen ? rs_guard_debug_set(u->address, u->bytes) : 0;
}

/* At the checkpoint. */
static uint64_t first_value(const struct rs_guard_unit *u)
{
	char page[RS_PAGE];
	uint64_t v = 0, at = u->address & (RS_PAGE - 1);
	if (rs_checkpoint_read(page, u->address - at) == 0)
		rs_os_copy(&v, page + at, u->bytes);
	return v;
}

static void refused(long error)
{
	struct rs_guard_watched *of = &watch->of;
	watch->refusal = (int32_t)error;
	of->error = (int32_t)error;
	of->refused = error == -EPERM || error == -EACCES ? RS_GUARD_WATCH_DENIED :
		error == -ENOSPC || error == -EBUSY ? RS_GUARD_WATCH_NO_REGISTER :
		error == -ENODEV || error == -ENOENT || error == -EOPNOTSUPP || error == -ENOSYS || error == -EINVAL ? RS_GUARD_WATCH_NO_DEVICE :
		error == -EMFILE || error == -ENFILE ? RS_GUARD_WATCH_NO_DESCRIPTOR : RS_GUARD_WATCH_OTHER;
	for (uint32_t i = 0; i < of->units; i++)
		if (of->unit[i].state == RS_GUARD_UNIT_WANTED)
			of->unit[i].state = RS_GUARD_UNIT_REFUSED;
}

static bool wanted(void)
{
	for (uint32_t i = 0; watch && watch->asked && i < watch->of.units; i++)
		if (watch->of.unit[i].state == RS_GUARD_UNIT_WANTED)
			return true;
	return false;
}

static void arm_pages(void)
{
	uint64_t address[RS_GUARD_UNITS];
	for (uint32_t k = 0; k < watch->chosen; k++)
		address[k] = unit(k)->address;
	rs_guard_pages_arm(address, watch->chosen);
	rs_guard_debug_again();
}

/* SIGTRAP of the threads that go on now: open, and on a stack of ours. */
static void set_stacks(void)
{
	struct rs_world_thread *t;
	for (uint32_t i = 0; (t = rs_world_thread(i)) && i < watch->threads; i++) {
		struct thread *own = &watch->thread[i];
		if (!t->tid || t->order != RS_WORLD_BACK)
			continue;
		ucontext_t *uc = &t->out->uc;
		own->alternate = uc->uc_stack;
		uc->uc_stack = (stack_t){.ss_sp = own->stack, .ss_size = STACK};
		uc->uc_sigmask.__val[0] &= ~(1ul << (SIGTRAP - 1) | rs_guard_pages_signals());
	}
}

void rs_guard_watch_arm(void)
{
	struct watch *w = watch;
	long r, perf = 0;
	bool steps = rs_guard_step_wanted();
	if (!wanted() && !steps)
		return;
	w->refusal = 0;
	w->pages = !steps && (w->pages || !rs_guard_registers_hit());
	for (;;) {
		choose();
		if (steps)
			w->chosen = 0;
		if ((r = rs_sandboxed ? -EACCES : open_all()) == 0 && (!steps || (r = rs_guard_step_arm()) == 0))
			break;
		close_all(NULL);
		/* Some registers may be free, or some descriptors. */
		if ((r == -ENOSPC || r == -EMFILE || r == -ENFILE || r == -ENOMEM) && w->room > 1 && !steps && !w->debug) {
			w->room /= 2;
		} else if (r != -ENOSPC && !steps && !w->debug && !rs_sandboxed) {
			w->debug = true;
			perf = r;
		} else {
			rs_guard_step_over();
			refused(w->debug && perf ? perf : r);
			return;
		}
	}
	for (uint32_t k = 0; k < w->chosen; k++) {
		struct rs_guard_unit *u = unit(k);
		u->count = u->lost = u->quiet = 0;
		rs_os_clear(u->hit, sizeof u->hit);
		u->last = first_value(u);
		w->told[k] = 0;
	}
	w->order = 0;
	w->of.tries++;
	w->of.pages = w->pages;
	if (w->chosen > w->of.at_once)
		w->of.at_once = w->chosen;
	if (w->pages)
		arm_pages();
	set_stacks();
	w->steps = steps;
	__atomic_store_n(&w->armed, 1, __ATOMIC_SEQ_CST);
}

bool rs_guard_watch_slows(void) { return watch && watch->armed && (watch->pages || watch->steps); }

/* What the program has for signals: it takes effect when the thread goes on from a copy of the frame that lies elsewhere; from a frame on an alternate stack the kernel changes none. */
static void give_stacks_back(void)
{
	struct rs_world_thread *t;
	for (uint32_t i = 0; (t = rs_world_thread(i)) && i < watch->threads; i++) {
		struct thread *own = &watch->thread[i];
		if (t->tid && !t->unborn && own->tid == t->tid && t->uc->uc_stack.ss_sp == own->stack)
			t->uc->uc_stack = own->alternate;
	}
}

/* Where perf is refused nobody could try before: somebody wrote, and no register was hit. */
static void look_whether_dead(void)
{
	for (uint32_t k = 0; watch->debug && k < watch->chosen; k++) {
		const struct rs_guard_unit *u = unit(k);
		uint64_t is = 0;
		if (u->count == 0 && u->quiet == 0 && read_unit(u, &is) && is != u->last)
			watch->registers = DEAD;
	}
}

void rs_guard_watch_disarm(bool stopped)
{
	struct watch *w = watch;
	uint64_t counted[REGISTERS] = {0};
	if (!w || !w->armed)
		return;
	close_all(counted);
	if (w->pages && stopped)
		for (uint32_t k = 0; k < w->chosen; k++)
			rs_guard_watch_unseen(unit(k)->address, unit(k)->bytes, false);
	else if (!w->pages && stopped)
		look_whether_dead();
	rs_guard_pages_disarm();
	rs_guard_debug_clear();
	rs_guard_debug_again();
	rs_guard_step_disarm();
	if (stopped)
		give_stacks_back();
	for (uint32_t k = 0; k < w->chosen && !w->pages; k++) {
		struct rs_guard_unit *u = unit(k);
		u->lost = counted[k] > w->told[k] ? counted[k] - w->told[k] : 0;
	}
	__atomic_store_n(&w->armed, 0, __ATOMIC_SEQ_CST);
}

static void give_up(struct rs_guard_unit *u, int32_t error)
{
	watch->given_up = watch->of.error = error;
	watch->of.refused = error == -ETIME ? RS_GUARD_WATCH_HOT : RS_GUARD_WATCH_OTHER;
	u->state = RS_GUARD_UNIT_REFUSED;
}

bool rs_guard_watch_more(bool identical)
{
	struct watch *w = watch;
	if (rs_guard_step_wanted())
		return rs_guard_step_more() || wanted();
	if (!wanted())
		return false;
	if (!w->pages && w->chosen && w->registers == DEAD)
		return true;
	bool whole = identical;
	w->of.rounds += identical;
	for (uint32_t k = 0; k < w->chosen; k++) {
		struct rs_guard_unit *u = unit(k);
		if (w->pages && rs_guard_page_state(u->address) != RS_GUARD_PAGE_WATCHED) {
			give_up(u, rs_guard_page_state(u->address) == RS_GUARD_PAGE_HOT ? -ETIME : -EADDRINUSE);
		} else if (w->pages && u->lost) {
			whole = false;
		} else if (identical) {
			u->round = w->of.rounds;
			u->state = RS_GUARD_UNIT_WATCHED;
		}
	}
	w->failed = whole ? 0 : w->failed + 1;
	for (uint32_t i = 0; w->failed == TRIES && i < w->of.units; i++)
		if (w->of.unit[i].state == RS_GUARD_UNIT_WANTED)
			w->of.unit[i].state = RS_GUARD_UNIT_DIVERGED;
	return wanted() || (rs_guard_watch_told && rs_guard_watch_told(&w->of));
}

void rs_guard_watch_over(void)
{
	struct watch *w = watch;
	rs_guard_step_over();
	if (!w || !w->asked)
		return;
	for (uint32_t i = 0; i < w->of.units; i++)
		if (w->of.unit[i].state == RS_GUARD_UNIT_WANTED)
			w->of.unit[i].state = RS_GUARD_UNIT_DIVERGED; /* it came to no end, or was not begun */
	rs_os_copy(&w->last, &w->of, sizeof w->last);
	w->over = 1;
	w->asked = 0;
}
