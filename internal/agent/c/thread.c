/* thread.c: threads: their beginning and end, who they are, and the pthread and C11 functions about them.
 *
 * A thread's last event must come after the program's own destructors. It is sent from the destructor of a key of ours, which arms itself
 * again until the last of the PTHREAD_DESTRUCTOR_ITERATIONS rounds; C++'s thread_local destructors, cleanup handlers and unwinding all come
 * before the first. The key is the last of the first block: later in a round than the program's first 31 keys, and no memory is needed for it. */
#include "opened.h"
#include "access.h"
#include "alloc.h"
#include "called.h"
#include "calls.h"
#include "core.h"
#include "cover.h"
#include "guardfork.h"
#include "guardthread.h"
#include "patch.h"
#include "sync.h"
#include "thread.h"
#include "share.h"
#include <errno.h>
#include <sys/auxv.h>
#include <sys/resource.h>

enum { DESCRIPTOR = 2304 };         /* glibc's struct pthread, at most */
static uint32_t next_number = 1;
static uint32_t blocked_threads;
static pthread_key_t end_key;
static bool have_key;
RS_TLS bool over;                  /* this thread has sent its last event */
RS_TLS bool adopting;
uint32_t rs_live_threads;          /* those about to be created included */
bool rs_threaded;

static int (*real_key_create)(pthread_key_t *, void (*)(void *));
static int (*real_key_delete)(pthread_key_t);
static int (*real_setspecific)(pthread_key_t, const void *);

uint32_t rs_thread_of(pthread_t handle)
{
	struct rs_handle_view v;
	return rs_handle_read(handle, &v) && !(v.who & GONE) ? rs_who_number(v.who) : 0;
}

/* --- beginning ------------------------------------------------------------------------------------------------------------------- */

static void end_round(void *value);

void rs_thread_init(void)
{
	enum { LAST_OF_FIRST_BLOCK = 31 };
	pthread_key_t keys[LAST_OF_FIRST_BLOCK + 1];
	int n = 0;
	real_key_create = (int (*)(pthread_key_t *, void (*)(void *)))rs_real_find("pthread_key_create", "");
	real_key_delete = (int (*)(pthread_key_t))rs_real_find("pthread_key_delete", "");
	real_setspecific = (int (*)(pthread_key_t, const void *))rs_real_find("pthread_setspecific", "");
	if (!real_key_create || !real_key_delete || !real_setspecific)
		return;
	while (n <= LAST_OF_FIRST_BLOCK && real_key_create(&keys[n], end_round) == 0)
		if (keys[n++] >= LAST_OF_FIRST_BLOCK)
			break;
	if (n == 0)
		return;
	end_key = keys[--n];
	/* The libc of a namespace of dlmopen has keys of its own in the same storage of a thread. Which libc's value it is, only the count of how often
	 * the key was made tells. */
	for (int i = 0; i < 64; i++)
		if (real_key_delete(end_key) != 0 || real_key_create(&end_key, end_round) != 0)
			return;
	have_key = true;
	while (n)
		real_key_delete(keys[--n]);
	if (rs_thread_tls)
		real_setspecific(end_key, rs_thread_tls);
}

static void fill(struct rs_thread *t, uint32_t number)
{
	t->number = number;
	t->emit_sp = t->nested = t->inside = t->vfork_depth = t->end_rounds = 0;
	t->slow = 1;
	t->held_count = 0;
	t->locks_taken = 0;
	t->exit_value = (uint64_t)PTHREAD_CANCELED; /* unless it returns or calls pthread_exit */
	t->handle = NULL;
	t->stack_end = 0;
	for (unsigned lane = 0; lane < 2; lane++)
		t->slot->lane[lane].pending = 0; /* whatever the thread before left open */
	t->slot->wait_kind = 0;
	t->slot->wait_word = 0;
	t->slot->wait_obj = 0;
	t->slot->held_count = 0;
	t->slot->number = number;
	rs_calls_claim(t);
}

/* On the thread itself, until rs_leave: its signal handlers are not seen, above all not before its first event or after its last one. */
static void hide(struct rs_thread *t)
{
	t->inside = 0;
	rs_enter(t);
}

static void own_handle(struct rs_thread *t)
{
	struct rs_handle *h = rs_handle_new();
	if (h) {
		__atomic_store_n(&h->who, WHO(t->number, 0), __ATOMIC_RELEASE);
		rs_handle_list(h, t->number, pthread_self());
	}
	t->handle = h;
}

/* On the thread itself: from here on it is known. */
static void go_live(struct rs_thread *t, bool with_key)
{
	t->tid = rs_os_tid();
	t->slot->tid = t->tid;
	__atomic_store_n(&t->slot->state, 1, __ATOMIC_RELEASE);
	rs_thread_tls = t;
	t->frames = (struct rs_race_frames){rs_own_quiet, ~0ull, 0};
	rs_own_by(&t->frames);
	t->outermost = ~(uintptr_t)0;
	rs_calls_enter(t);
	if (have_key && with_key)
		real_setspecific(end_key, t);
	rs_sync_new_segment(t);
}

void rs_thread_say_start(struct rs_thread *t)
{
	RS_EMIT(t, THREAD_START, thread_start, t->number, t->tid, (uint64_t)pthread_self(), t->stack_lo, t->stack_hi);
}

/* The first thread. Its stack grows down from where the environment begins, and nothing else is mapped in the 128 MiB below: the kernel sees to
 * that. */
struct rs_thread *rs_thread_main(int sock, uintptr_t stack_hi, long *why)
{
	struct rs_thread *t = rs_region_claim(sock, why);
	if (!t)
		return NULL;
	struct rlimit64 r = {8 << 20, 0};
	RS_SYS4(SYS_prlimit64, 0, RLIMIT_STACK, 0, &r);
	uint64_t most = 120ull << 20, size = r.rlim_cur < most ? r.rlim_cur : most;
	t->stack_hi = stack_hi;
	t->stack_lo = (stack_hi - size + RS_PAGE) & -RS_PAGE;
	fill(t, next_number++);
	const char *last = (const char *)getauxval(AT_EXECFN); /* the kernel counts from behind this, which it puts there first (fs/exec.c, do_execveat_common) */
	if (last && r.rlim_cur < most)
		t->stack_end = (((uintptr_t)last + rs_length(last) + sizeof(uint64_t) + RS_PAGE) & -RS_PAGE) - (r.rlim_cur & -RS_PAGE);
	rs_live_threads++;
	go_live(t, true);
	own_handle(t);
	return t;
}

static void *thread_main(void *p);
static int thread_main_c11(void *p);

/* Made by our wrappers, and not yet at its first step: it is in a handler. Its descriptor says what glibc is to call. How many are on their way would not tell whether this is one of them, and is another number when an epoch is executed again. */
static bool is_to_begin(void)
{
	uint64_t word;
	for (uintptr_t at = pthread_self(), end = at + DESCRIPTOR; at < end; at += sizeof word) {
		/* glibc's is not larger, and may be smaller. */
		if (at % RS_PAGE == 0 && !rs_peek(&word, at, sizeof word))
			break;
		word = *(const uint64_t *)at;
		if (word == (uintptr_t)thread_main || word == (uintptr_t)thread_main_c11)
			return true;
	}
	return false;
}

/* A thread that glibc made for itself (timers, asynchronous I/O, name look-ups), or that was there before us. Its stack's lower end is not known: only
 * what lies above the first sight of it is taken for granted. */
static struct rs_thread *adopt(void)
{
	long why;
	adopting = true;
	__atomic_store_n(&rs_threaded, true, __ATOMIC_RELAXED);
	/* Who has which place in a region is an order. */
	rs_guard_threads_lock((uintptr_t)__builtin_frame_address(0) + 16);
	struct rs_thread *t = rs_region_claim(-1, &why);
	if (t) {
		t->stack_hi = pthread_self();
		t->stack_lo = (uintptr_t)__builtin_frame_address(0) & -RS_PAGE;
		if (t->stack_hi - t->stack_lo > 64 << 20) /* another stack than glibc's own */
			t->stack_lo = t->stack_hi;
		fill(t, __atomic_fetch_add(&next_number, 1, __ATOMIC_RELAXED));
		__atomic_fetch_add(&rs_live_threads, 1, __ATOMIC_RELAXED);
		own_handle(t);
		hide(t);
		/* In a thread of another libc the place of the key may be of use to that libc: then we do not see its end. */
		go_live(t, !rs_namespaces);
		if (!rs_namespaces)
			rs_guard_thread_begin(true);
		rs_thread_say_start(t);
		rs_leave(t);
	}
	rs_guard_threads_unlock();
	adopting = false;
	if (t) /* which libc made for itself */
		rs_patch_threads(false);
	return t;
}

/* Is the frame gone in which mark was taken? Certain if the stack has been unwound beyond it. If it has grown again since, look_for_handler says
 * to look for the signal frame that must lie in between if mark's frame was merely interrupted: the kernel's copy of the registers, whose rsp
 * is close to mark and whose cs is that of user code. A leftover of an old one makes us say no, which is the harmless answer. */
bool rs_left_behind(struct rs_thread *t, uintptr_t mark, bool look_for_handler)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0), size = t->stack_hi - t->stack_lo;
	if (mark - t->stack_lo >= size || sp - t->stack_lo >= size)
		return false;
	if (sp <= mark && (!look_for_handler || mark - sp > 256 << 10))
		return false;
	stack_t alternate;
	if (RS_SYS2(SYS_sigaltstack, 0, &alternate) < 0 || alternate.ss_flags & SS_ONSTACK || rs_guard_alt_has(sp))
		return false;
	enum { RSP, RIP, FLAGS, CS }; /* neighbours in the kernel's struct sigcontext */
	for (const uint64_t *p = (const uint64_t *)(sp & -8ul); (uintptr_t)(p + 4) < mark; p++)
		if (mark - p[RSP] + 512 < 8192 && (p[CS] & 0xffff) == 0x33 && p[FLAGS] & 2 && p[FLAGS] < 1u << 22)
			return false;
	return true;
}

struct rs_thread *rs_self_slow(void)
{
	struct rs_thread *t = rs_thread_tls;
	if (t) { /* inside the agent, or in a handler that interrupted it, or it was left by longjmp */
		if (!rs_left_behind(t, t->inside_sp, false))
			return NULL;
		t->inside = 0;
		return t;
	}
	if (!rs_active || over || adopting || rs_sandboxed || rs_in_vfork() || is_to_begin())
		return NULL;
	t = adopt();
	RS_GUARD_FORGET();
	return t;
}

static void begin(struct rs_handle *h)
{
	struct rs_thread *t = h->t;
	/* glibc puts the thread's descriptor at the upper end of its stack. A stack from its cache may be larger than asked for: then we know less
	 * than there is, and never more. */
	uintptr_t self = pthread_self(), top = (self + DESCRIPTOR + RS_PAGE - 1) & -RS_PAGE;
	t->stack_hi = self;
	t->stack_lo = h->stack_size < top ? top - (h->stack_size & -RS_PAGE) : self;
	if (t->stack_lo > self)
		t->stack_lo = self;
	t->handle = h;
	rs_handle_list(h, t->number, self);
	hide(t);
	go_live(t, true);
	rs_share_thread_begin();
	rs_guard_thread_begin(h->own_stack);
	rs_thread_say_start(t);
	rs_leave(t);
}

/* All that is to be known of the thread before the program's function runs; apart, so that nothing of it is in the frames below, or in registers. */
static __attribute__((noinline)) void first_steps(struct rs_thread *t, uintptr_t outermost, void *(**start)(void *), thrd_start_t *start_c11, void **arg)
{
	struct rs_handle *h = t->handle; /* glibc keeps t: of a thread its place is the same when it is executed again */
	*start = h->start;
	*start_c11 = h->start_c11;
	*arg = h->arg;
	rs_trap_thread(h->trap_blocked);
	begin(h);
	t->outermost = outermost;
}

static void *thread_main(void *p)
{
	void *(*start)(void *);
	thrd_start_t start_c11;
	void *arg;
	first_steps(p, (uintptr_t)__builtin_frame_address(0), &start, &start_c11, &arg);
	RS_GUARD_FORGET();
	void *value = start(arg);
	if (rs_thread_tls)
		rs_thread_tls->exit_value = (uint64_t)value;
	return value;
}

static int thread_main_c11(void *p)
{
	void *(*start)(void *);
	thrd_start_t start_c11;
	void *arg;
	first_steps(p, (uintptr_t)__builtin_frame_address(0), &start, &start_c11, &arg);
	RS_GUARD_FORGET();
	int value = start_c11(arg);
	if (rs_thread_tls)
		rs_thread_tls->exit_value = (uint64_t)(int64_t)value;
	return value;
}

/* --- end ---------------------------------------------------------------------------------------------------------------------------- */

static void end(struct rs_thread *t, uintptr_t sp)
{
	struct rs_handle *h = t->handle;
	rs_guard_thread_end(sp);
	rs_sync_thread_end(t);
	__atomic_fetch_add(&rs_counters->locks_taken, t->locks_taken, __ATOMIC_RELAXED);
	t->slot->locks_taken = 0;
	hide(t);
	rs_lines_thread_end(t);
	RS_EMIT(t, THREAD_EXIT, thread_exit, t->exit_value);
	if (h)
		rs_handle_change(h, t->number, ENDED, 0, 0);
	over = true;
	rs_share_thread_end(t->number);
	rs_alloc_thread_end();
	rs_calls_leave();
	rs_own_by(NULL);
	rs_thread_tls = NULL;
	__atomic_fetch_sub(&rs_live_threads, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&t->slot->state, 2, __ATOMIC_RELEASE);
	rs_region_unclaim(t);
}

static void end_round(void *value)
{
	struct rs_thread *t = rs_thread_tls;
	if (!t)
		return;
	if (t->inside && rs_left_behind(t, t->inside_sp, false))
		t->inside = 0; /* cancelled in the middle of something */
	enum { ROUNDS = 4 }; /* glibc's PTHREAD_DESTRUCTOR_ITERATIONS */
	if (++t->end_rounds < ROUNDS)
		real_setspecific(end_key, value);
	else
		end(t, (uintptr_t)__builtin_frame_address(0) + 16);
	RS_GUARD_FORGET();
}

void rs_thread_after_fork(struct rs_thread *t)
{
	blocked_threads = 0;
	rs_live_threads = t ? 1 : 0;
	rs_threaded = false;
	if (t) {
		t->tid = rs_os_tid();
		t->slot->tid = t->tid;
		t->emit_sp = t->nested = 0;
		t->locks_taken = t->slot->locks_taken = 0;
	}
	rs_handles_after_fork(t ? t->handle : NULL);
}

/* --- waiting ------------------------------------------------------------------------------------------------------------------------------- */

struct rs_wait rs_wait_begin(struct rs_thread *t, unsigned kind, uintptr_t obj, uint32_t stack)
{
	struct rs_slot *s = t->slot;
	if (RS_UNLIKELY(rs_guard_on) && rs_guard_follows())
		return (struct rs_wait){0}; /* the slot is as the recording left it */
	struct rs_wait before = {s->wait_kind, s->wait_stack, s->wait_obj, false};
	if (before.kind == 0) {
		uint32_t blocked = __atomic_add_fetch(&blocked_threads, 1, __ATOMIC_RELAXED);
		before.urgent = blocked >= rs_live_threads;
	}
	before.urgent |= t->held_count > 0;
	s->locks_taken = t->locks_taken;
	s->wait_obj = obj;
	s->wait_stack = stack;
	__atomic_store_n(&s->wait_kind, kind, __ATOMIC_RELEASE);
	__atomic_store_n(&s->wait_seq, s->wait_seq + 1, __ATOMIC_RELEASE);
	return before;
}

void rs_wait_end(struct rs_thread *t, const struct rs_wait *before)
{
	struct rs_slot *s = t->slot;
	if (RS_UNLIKELY(rs_guard_on) && rs_guard_follows())
		return;
	if (before->kind == 0)
		__atomic_sub_fetch(&blocked_threads, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&s->wait_seq, s->wait_seq + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&s->wait_kind, before->kind, __ATOMIC_RELEASE);
	s->wait_obj = before->obj;
	s->wait_stack = before->stack;
}

/* --- pthread_create ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t default_stack_size(void)
{
	pthread_attr_t a;
	size_t n = 0;
	if (pthread_attr_init(&a) == 0) {
		pthread_attr_getstacksize(&a, &n);
		pthread_attr_destroy(&a);
	}
	return n;
}

/* Everything the new thread needs is made ready by its creator, whose `creates` is its node then. NULL: the thread will not be seen. */
static __attribute__((noinline)) struct rs_thread *prepare(struct rs_thread *t, bool detached, uint32_t stack, uintptr_t start, uint64_t stack_size)
{
	struct rs_handle *h = rs_handle_new();
	long why = -ENOMEM;
	__atomic_store_n(&rs_threaded, true, __ATOMIC_RELAXED);
	uint32_t number = __atomic_fetch_add(&next_number, 1, __ATOMIC_RELAXED);
	RS_EMIT(t, THREAD_CREATE, thread_create, number, detached, stack, start);
	struct rs_thread *child = h ? rs_region_claim(-1, &why) : NULL;
	if (!child) {
		rs_notice(t, why == -EMFILE ? RS_NOTICE_TOO_MANY_THREADS : RS_NOTICE_THREAD_UNSEEN, (int)-why, number);
		if (h)
			rs_handle_drop(h);
		return NULL;
	}
	fill(child, number);
	h->t = child;
	child->handle = h;
	h->settled_at = detached ? stack : 0;
	h->stack_size = stack_size;
	__atomic_store_n(&h->who, WHO(number, detached ? DETACHED : 0), __ATOMIC_RELEASE);
	__atomic_fetch_add(&rs_live_threads, 1, __ATOMIC_RELAXED);
	t->creates = h;
	return child;
}

static __attribute__((noinline)) void start_with(struct rs_thread *child, void *(*start)(void *), void *arg, bool trap_blocked, bool own_stack)
{
	struct rs_handle *h = child->handle;
	h->start = start;
	h->arg = arg;
	h->trap_blocked = trap_blocked;
	h->own_stack = own_stack;
}

static __attribute__((noinline)) void start_c11_with(struct rs_thread *child, thrd_start_t start, void *arg, bool trap_blocked)
{
	struct rs_handle *h = child->handle;
	h->start_c11 = start;
	h->arg = arg;
	h->trap_blocked = trap_blocked;
}

/* After the real function: handle is what it gave, if error is 0. number: read before, since the thread may have ended and its node serve another. */
static void created(struct rs_thread *t, uint32_t number, uint64_t handle, int error)
{
	struct rs_handle *h = t->creates;
	if (error) {
		__atomic_fetch_sub(&rs_live_threads, 1, __ATOMIC_RELAXED);
		rs_region_unclaim(h->t);
		rs_handle_drop(h);
		RS_EMIT(t, THREAD_CREATE_FAILED, thread_create_failed, number, (uint32_t)error);
	} else
		rs_handle_list(h, number, handle); /* unless the thread was quicker; by now it may have ended */
}

/* A thread that is not seen has this handle from now on: what is known of an earlier one with it is not about this one. */
static int unseen(uint64_t handle, int error)
{
	if (!error && rs_active)
		rs_handle_unlist(handle);
	return error;
}

static __attribute__((noinline)) int create(pthread_t *restrict handle, const pthread_attr_t *restrict attr, void *(*start)(void *), void *restrict arg, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t || !rs_active) {
		rs_guard_out(RS_GUARD_LOST_THREAD);
		int r = rs_real.pthread_create(handle, attr, start, arg);
		rs_guard_in();
		return unseen(r ? 0 : *handle, r);
	}
	struct rs_handle *outer = t->creates; /* a handler's creation in the middle of another */
	rs_patch_threads(true);
	rs_guard_fork_creates(RS_SITE_SP(at));
	bool followed = rs_guard_create_begin(RS_SITE_SP(at));
	RS_GUARD_FORGET();
	rs_share_globals();
	rs_share_argument(arg);
	int detached = PTHREAD_CREATE_JOINABLE;
	size_t stack_size = 0;
	bool own_stack = false;
	if (attr) {
		void *lo;
		size_t n;
		own_stack = rs_guard_on && pthread_attr_getstack(attr, &lo, &n) == 0 && (uintptr_t)lo + n != 0;
		pthread_attr_getdetachstate(attr, &detached);
		pthread_attr_getstacksize(attr, &stack_size);
		rs_share_attributes(attr);
	} else
		stack_size = default_stack_size();
	rs_cover_stack(stack_size);
	struct rs_thread *child = prepare(t, detached == PTHREAD_CREATE_DETACHED, rs_site_stack(t, at), (uintptr_t)start, stack_size);
	if (rs_config.stack_depth && child)
		rs_frames_origin(t, child, at.pc, at.fp);
	rs_sync_new_segment(t);
	if (!child) {
		RS_GUARD_FORGET();
		int r = rs_real.pthread_create(handle, attr, start, arg);
		rs_guard_create_end(followed);
		return unseen(r ? 0 : *handle, r);
	}
	uint32_t number = child->number;
	sigset_t set;
	start_with(child, start, arg, rs_trapping && rs_trap_blocked() && (!attr || pthread_attr_getsigmask_np(attr, &set) != 0), own_stack);
	int r;
	do {
		RS_GUARD_FORGET();
		r = rs_real.pthread_create(handle, attr, thread_main, child);
	} while (r == EAGAIN && rs_guard_create_retry(RS_SITE_SP(at)));
	created(t, number, r ? 0 : *handle, r);
	t->creates = outer;
	rs_guard_create_end(followed);
	return r;
}

RS_EXPORT int pthread_create(pthread_t *restrict handle, const pthread_attr_t *restrict attr, void *(*start)(void *), void *restrict arg)
{
	int r = create(handle, attr, start, arg, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int create_c11(thrd_t *handle, thrd_start_t start, void *arg, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t || !rs_active) {
		rs_guard_out(RS_GUARD_LOST_THREAD);
		int r = rs_real.thrd_create(handle, start, arg);
		rs_guard_in();
		return unseen(r == thrd_success ? *handle : 0, r);
	}
	struct rs_handle *outer = t->creates; /* a handler's creation in the middle of another */
	rs_patch_threads(true);
	rs_guard_fork_creates(RS_SITE_SP(at));
	bool followed = rs_guard_create_begin(RS_SITE_SP(at));
	RS_GUARD_FORGET();
	rs_share_globals();
	rs_share_argument(arg);
	struct rs_thread *child = prepare(t, false, rs_site_stack(t, at), (uintptr_t)start, default_stack_size());
	if (rs_config.stack_depth && child)
		rs_frames_origin(t, child, at.pc, at.fp);
	rs_sync_new_segment(t);
	if (!child) {
		RS_GUARD_FORGET();
		int r = rs_real.thrd_create(handle, start, arg);
		rs_guard_create_end(followed);
		return unseen(r == thrd_success ? *handle : 0, r);
	}
	uint32_t number = child->number;
	start_c11_with(child, start, arg, rs_trapping && rs_trap_blocked());
	int r;
	do {
		RS_GUARD_FORGET();
		r = rs_real.thrd_create(handle, thread_main_c11, child);
	} while (r == thrd_error && rs_guard_create_retry(RS_SITE_SP(at)));
	created(t, number, r == thrd_success ? *handle : 0, r == thrd_success ? 0 : r == thrd_nomem ? ENOMEM : EAGAIN);
	t->creates = outer;
	rs_guard_create_end(followed);
	return r;
}

RS_EXPORT int thrd_create(thrd_t *handle, thrd_start_t start, void *arg)
{
	int r = create_c11(handle, start, arg, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

RS_EXPORT __attribute__((noreturn)) void pthread_exit(void *value)
{
	if (rs_thread_tls)
		rs_thread_tls->exit_value = (uint64_t)value;
	rs_guard_unwinds(RS_SITE_SP(RS_SITE));
	RS_GUARD_FORGET();
	rs_real.pthread_exit(value);
	__builtin_unreachable();
}

RS_EXPORT __attribute__((noreturn)) void thrd_exit(int value)
{
	if (rs_thread_tls)
		rs_thread_tls->exit_value = (uint64_t)(int64_t)value;
	rs_guard_unwinds(RS_SITE_SP(RS_SITE));
	RS_GUARD_FORGET();
	rs_real.thrd_exit(value);
	__builtin_unreachable();
}
