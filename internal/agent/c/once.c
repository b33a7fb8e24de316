/* once.c: pthread_once (std::call_once), call_once, and the guards of C++ function-local statics.
 *
 * Who runs an initialiser "holds" the once, so that a circle through it can be seen. The initialiser is the program's code: it may
 * throw, be cancelled, jump away. pthread_once therefore gets a routine of ours, which calls the program's in a guarded frame.
 */
#include "opened.h"
#include "sync.h"
#include "core.h"
#include "guardsync.h"

/* glibc: bit 1 of the control is set when it is done; bit 0 while somebody runs the routine. */
enum { IN_PROGRESS = 1, DONE = 2 };

struct once_run {
	struct rs_guard g;
	struct once_run *outer;
	uintptr_t obj;
	void (*routine)(void);
	uint32_t stack;
	bool ran, waiting, ordered; /* ordered: guardsync.c */
	struct rs_pending w;
};

static void hold(struct rs_thread *t, uintptr_t obj, unsigned kind, uint32_t stack)
{
	rs_object_seen(t, obj, kind);
	RS_EMIT(t, ONCE_BEGIN, once_begin, obj, (uint8_t)kind);
	rs_acquired(t, obj, kind, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK, stack);
}

static void let_go(struct rs_thread *t, uintptr_t obj, unsigned kind, bool done)
{
	int i = rs_held_find(t, obj);
	if (i >= 0)
		rs_held_remove(t, i);
	RS_EMIT(t, ONCE_END, once_end, obj, (uint8_t)kind, done);
}

/* Keeps `guard` a log: true: the caller makes it, and waits for nobody. Called whatever is so, and its frame cleared: what lies below the program's stack pointer does not say whether the thread waited. */
#define FRAME 128
#define DEEPEST 1024 /* of what tells that it is made, and that it is being made */
static __attribute__((noinline)) bool ordered(uintptr_t obj, int of, bool done, uintptr_t sp)
{
	if (done && !rs_guard_follows())
		return false;
	char *below = rs_guard_below;
	if (below)
		RS_KEEP_BELOW(below);
	int r = rs_guard_make(obj, of, sp);
	if (below)
		RS_PUT_BELOW(below);
	return r == RS_GUARD_TO_MAKE;
}

/* --- pthread_once ----------------------------------------------------------------------------------------------------------------- */

static void undone(struct rs_thread *t, struct rs_guard *g)
{
	struct once_run *run = (struct once_run *)g;
	rs_sync_of(t)->once = run->outer;
	if (rs_guard_on)
		rs_guard_make_over(run->obj); /* who is woken looks again in a while, when the library has taken it back */
	let_go(t, run->obj, RS_OBJECT_ONCE, false);
}

/* What glibc calls as the initialiser. */
static void routine(void)
{
	struct rs_thread *t = rs_thread_tls;
	struct once_run *run = rs_sync_of(t)->once;
	if (run->waiting) { /* it was another's, who gave up, or was left behind by a fork */
		run->waiting = false;
		rs_want_end(t, &run->w, 0);
	}
	run->ran = true;
	if (run->ordered)
		rs_guard_make_began(run->obj);
	else if (rs_guard_on && rs_live_threads > 1)
		rs_guard_lost(RS_GUARD_LOST_ONCE);
	run->g.type = RS_GUARD_ONCE;
	run->g.undo = undone;
	hold(t, run->obj, RS_OBJECT_ONCE, run->stack);
	rs_guard_push(t, &run->g);
	if (rs_guard_on)
		RS_CLEAR_BELOW(DEEPEST);
	uintptr_t opened = rs_share_on ? rs_share_enter_handler() : 0;
	rs_guarded(run->routine, 0, 0, 0, 0);
	if (opened)
		rs_share_leave_handler(opened);
	rs_guard_pop(t, &run->g);
	let_go(t, run->obj, RS_OBJECT_ONCE, true);
}

int rs_once(pthread_once_t *once, void (*program_routine)(void), struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	bool makes = false;
	if (rs_guard_on && t) {
		makes = ordered((uintptr_t)once, RS_GUARD_OF_ONCE, __atomic_load_n((int *)once, __ATOMIC_ACQUIRE) & DONE, RS_SITE_SP(at));
		RS_CLEAR_BELOW(FRAME);
		RS_NO_REGISTERS();
	}
	int now = __atomic_load_n((int *)once, __ATOMIC_ACQUIRE);
	if (!t || (now & DONE && !rs_config.all))
		return REAL(pthread_once)(once, program_routine);
	rs_sync_ready(t);
	struct rs_sync_state *s = rs_sync_of(t);
	if (!s) {
		if (makes)
			rs_guard_make_began((uintptr_t)once);
		return REAL(pthread_once)(once, program_routine);
	}
	struct once_run run = {.outer = s->once, .obj = (uintptr_t)once, .routine = program_routine, .ordered = makes};
	if (!(now & DONE))
		run.stack = rs_site_stack(t, at);
	/* Between this look and glibc's another thread may begin: then we wait unannounced, for as long as an initialiser takes. */
	if ((now & (DONE | IN_PROGRESS)) == IN_PROGRESS) {
		run.waiting = true;
		run.w = (struct rs_pending){.obj = (uintptr_t)once, .kind = RS_OBJECT_ONCE, .stack = run.stack};
		rs_want(t, &run.w);
	}
	s->once = &run;
	int r = REAL(pthread_once)(once, routine);
	s->once = run.outer;
	if (makes && !run.ran)
		rs_guard_make_began(run.obj);
	if (rs_guard_on) {
		rs_guard_make_over(run.obj);
		RS_CLEAR_BELOW(DEEPEST);
	}
	if (run.waiting)
		rs_want_end(t, &run.w, r);
	if (!run.ran && rs_config.all) {
		rs_object_seen(t, (uintptr_t)once, RS_OBJECT_ONCE);
		RS_EMIT(t, ONCE_SEEN, once_seen, (uintptr_t)once, RS_OBJECT_ONCE);
	}
	return r;
}

RS_EXPORT int pthread_once(pthread_once_t *once, void (*program_routine)(void)) { return rs_once(once, program_routine, RS_SITE); }
RS_OLD_NAME(__pthread_once, pthread_once, "GLIBC_2.2.5");

/* --- __cxa_guard_* -------------------------------------------------------------------------------------------------------------------- */

/* The first byte of a guard is part of the C++ ABI: set when the variable is made, and then the compiler does not call at all. The rest of the
 * first word is the library's; libstdc++ and libc++abi both use the second byte while somebody makes it.
 *
 * A library that is dlopened with RTLD_LOCAL calls us too, but its libstdc++ is out of our reach. For it this is libstdc++'s
 * protocol, so that both can work on one guard. */
enum { GUARD_DONE = 1, GUARD_PENDING = 0x100, GUARD_WAITING = 0x10000 };

static int own_acquire(uint32_t *g)
{
	for (;;) {
		uint32_t was = 0;
		if (__atomic_compare_exchange_n(g, &was, GUARD_PENDING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return 1;
		if (was == GUARD_DONE)
			return 0;
		if (was == GUARD_PENDING
		    && !__atomic_compare_exchange_n(g, &was, GUARD_PENDING | GUARD_WAITING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			if (was == GUARD_DONE)
				return 0;
			if (was == 0)
				continue;
		}
		RS_PROGRAM6(SYS_futex, g, 0 /* FUTEX_WAIT */, GUARD_PENDING | GUARD_WAITING, 0, 0, 0);
	}
}

static void own_end(uint32_t *g, uint32_t value)
{
	if (__atomic_exchange_n(g, value, __ATOMIC_ACQ_REL) & GUARD_WAITING)
		RS_PROGRAM3(SYS_futex, g, 1 /* FUTEX_WAKE */, 0x7fffffff);
}

static int real_acquire(uint64_t *g) { return REAL(__cxa_guard_acquire) ? rs_real.__cxa_guard_acquire(g) : own_acquire((uint32_t *)g); }

int __cxa_guard_acquire(uint64_t *g);
RS_EXPORT int __cxa_guard_acquire(uint64_t *g)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return real_acquire(g);
	rs_sync_ready(t);
	bool makes = false;
	if (rs_guard_on) {
		makes = ordered((uintptr_t)g, RS_GUARD_OF_STATIC, __atomic_load_n((uint32_t *)g, __ATOMIC_ACQUIRE) & GUARD_DONE, RS_SITE_SP(RS_SITE));
		RS_CLEAR_BELOW(FRAME);
		RS_NO_REGISTERS();
	}
	uint32_t now = __atomic_load_n((uint32_t *)g, __ATOMIC_ACQUIRE);
	uint32_t stack = now & GUARD_DONE ? 0 : rs_site_stack(t, RS_SITE);
	bool wait = !(now & 0xff) && (now & 0xff00);
	struct rs_pending w = {.obj = (uintptr_t)g, .kind = RS_OBJECT_GUARD, .stack = stack};
	if (wait)
		rs_want(t, &w);
	rs_enter(t); /* it waits through syscall() */
	int r = real_acquire(g);
	rs_leave(t);
	if (wait)
		rs_want_end(t, &w, 0);
	if (makes)
		rs_guard_make_began((uintptr_t)g);
	if (r) {
		if (rs_guard_on && !makes && rs_live_threads > 1)
			rs_guard_lost(RS_GUARD_LOST_ONCE);
		hold(t, (uintptr_t)g, RS_OBJECT_GUARD, stack);
		if (rs_guard_on)
			RS_CLEAR_BELOW(DEEPEST);
	} else if (rs_config.all) {
		rs_object_seen(t, (uintptr_t)g, RS_OBJECT_GUARD);
		RS_EMIT(t, ONCE_SEEN, once_seen, (uintptr_t)g, RS_OBJECT_GUARD);
	}
	return r;
}

static void guard_end(uint64_t *g, bool done)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	void (*real)(uint64_t *) = done ? REAL(__cxa_guard_release) : REAL(__cxa_guard_abort);
	if (t) {
		rs_sync_ready(t);
		let_go(t, (uintptr_t)g, RS_OBJECT_GUARD, done);
		rs_enter(t);
	}
	if (real)
		real(g);
	else
		own_end((uint32_t *)g, done ? GUARD_DONE : 0);
	if (rs_guard_on) {
		rs_guard_make_over((uintptr_t)g);
		RS_CLEAR_BELOW(DEEPEST);
	}
	if (t)
		rs_leave(t);
}

void __cxa_guard_release(uint64_t *g);
void __cxa_guard_abort(uint64_t *g);
RS_EXPORT void __cxa_guard_release(uint64_t *g) { guard_end(g, true); }
RS_EXPORT void __cxa_guard_abort(uint64_t *g) { guard_end(g, false); }
