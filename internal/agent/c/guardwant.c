/* guardwant.c: what threads wait for while `guard` keeps a log, and wrong uses of what they wait for. See guardwant.h; docs/decisions.md, 42.
 *
 * In a nutshell. While a log is kept nobody notes what is held, and a wait costs a futex and no more. That a wait has lasted the coordinator sees: the thread is in the same one at several of its looks. It wakes it, and the thread itself
 * tells what it waits for, with its stack, and whose that is by the object's own words (`want`, how=late). Who has told looks again each half second, as long as the object has an owner, and tells again if that is another one, or has told of another wait
 * since: so of a circle of threads that wait each has in the end named an owner that waited already, which is what makes it a deadlock (internal/detect/late.go).
 *
 * Only a recording tells; a re-execution does not know of it. What is done here is done between before and after of no event, so that no checkpoint comes in between, and on a stack of ours: on the program's it would leave what a re-execution does not. The slot
 * and the log, where Go and the coordinator see the wait, are as the recording left them.
 *
 * Misuse: certain by the object's own words alone, as they were before the call. Owners are named by their thread ids, which Go knows. */
#include "guardwant.h"
#include "sync.h"

enum { LOOKS = 2 /* of the coordinator that find a thread in one wait, behind the first, before it is to tell */, AGAIN = 1 /* likewise, of one that it has told of */, SLICES = 20 /* likewise, of those that end by themselves */ };

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

/* Each caller of ours has a frame with the caller's rbp right below the return address (RS_SITE; RS_GUARD_SLOWLY). */
static struct rs_site site_of(uintptr_t sp) { return (struct rs_site){*(const uintptr_t *)(sp - 8), (void *)(sp - 16)}; }

/* --- waits ------------------------------------------------------------------------------------------------------------------ */

static bool has_owner(const struct rs_guard_want *w) { return w->kind == RS_OBJECT_MUTEX || w->kind == RS_OBJECT_RWLOCK; }

/* What `want` has as its value: who has it, where that is known; of a barrier how many it is for. */
static uint32_t value_of(const struct rs_guard_want *w)
{
	switch (w->kind) {
	case RS_OBJECT_MUTEX: return (uint32_t)LOAD(((const pthread_mutex_t *)w->object)->__data.__owner);
	case RS_OBJECT_RWLOCK: return (uint32_t)LOAD(((const pthread_rwlock_t *)w->object)->__data.__cur_writer);
	case RS_OBJECT_BARRIER: return ((const uint32_t *)w->object)[2]; /* struct barrier */
	}
	return 0;
}

static struct rs_guard_log *log_of(uint32_t tid)
{
	const struct rs_guard_world *world = rs_guard_world();
	for (uint32_t i = 0, n = world ? LOAD(world->logs) : 0; tid && i < n && i < RS_GUARD_LOGS; i++)
		if (LOAD(rs_guard_log(i)->tid) == tid)
			return rs_guard_log(i);
	return NULL;
}

bool rs_guard_is_thread(uint32_t tid)
{
	const struct rs_guard_log *t = log_of(tid);
	return t && LOAD(t->state) != RS_GUARD_KEPT;
}

struct telling { struct rs_guard_log *log; struct rs_guard_want *w; struct rs_thread *t; uint32_t value, wants; int result; };

static void apart(const struct rs_guard_log *t, void (*f)(struct telling *), struct telling *a)
{
	/* The one on which it ends is free until then. */
	char *top = t->end_stack;
	if (!top) {
		f(a);
		return;
	}
	__asm__ volatile("movq %%rsp, %%rbx\n\tmovq %[top], %%rsp\n\tcall *%[f]\n\tmovq %%rbx, %%rsp"
			 : "+D"(a)
			 : [top] "r"(top), [f] "r"(f)
			 : "rax", "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "memory", "cc");
}

static void tell(struct telling *a)
{
	struct rs_guard_want *w = a->w;
	struct rs_thread *t = a->t;
	uint32_t stack = rs_site_stack(t, site_of(w->sp));
	bool first = !w->told;
	if (first) {
		rs_object_seen(t, w->object, w->kind);
		__atomic_store_n(&t->slot->wait_word, (uintptr_t)w->word, __ATOMIC_RELEASE);
		w->before = rs_wait_begin(t, w->kind, w->object, stack);
		w->told = true;
		a->log->told_sp = w->sp;
	}
	uint64_t *r = rs_reserve(t, RS_EV_WANT, RS_WANT_WORDS);
	if (r) {
		rs_put_want(r, w->object, (uint8_t)w->kind, (uint8_t)w->mode, RS_HOW_LATE, stack, 0, a->value, 0);
		rs_commit(t);
	}
	w->owner = a->value, w->owner_wants = a->wants;
	/* Who waits for what this thread has sees that, and tells once more: behind our word. */
	if (first)
		STORE(a->log->wants, a->log->wants + 1);
}

static void over(struct telling *a)
{
	struct rs_thread *t = a->t;
	rs_wait_end(t, &a->w->before);
	__atomic_store_n(&t->slot->wait_word, 0, __ATOMIC_RELEASE);
	a->log->told_sp = 0;
	RS_EMIT(t, WANT_END, want_end, a->w->object, (uint32_t)a->result);
}

/* The thread told of a wait that is not this one: one that a handler interrupts, which stays what it waits for; or one that was left by a jump. */
static bool tells_already(struct rs_guard_log *t, struct rs_thread *self)
{
	static const struct rs_wait none;
	if (!t->told_sp)
		return false;
	if (!rs_left_behind(self, t->told_sp, true))
		return true;
	uintptr_t object = self->slot->wait_obj;
	apart(t, over, &(struct telling){t, &(struct rs_guard_want){.object = object, .before = none}, self, 0, 0, EINTR});
	return false;
}

static void tell_now(struct rs_guard_log *t, struct rs_guard_want *w)
{
	if (!rs_guard_begin_act(t))
		return;
	STORE(t->tell, 0);
	struct rs_thread *self = rs_self();
	uint32_t value = value_of(w);
	const struct rs_guard_log *owner = has_owner(w) ? log_of(value) : NULL;
	/* Who has ended will not tell of another. */
	uint32_t wants = owner && LOAD(owner->state) != RS_GUARD_KEPT ? LOAD(owner->wants) : UINT32_MAX;
	if (self && (w->told ? value != w->owner || wants != w->owner_wants : !tells_already(t, self)))
		apart(t, tell, &(struct telling){t, w, self, value, wants, 0});
	rs_guard_no_act(t);
}

void rs_guard_want_over(struct rs_guard_log *t, struct rs_guard_want *w, int result)
{
	STORE(t->may_tell, 0);
	if (!w->told || !rs_guard_begin_act(t))
		return;
	w->told = false;
	struct rs_thread *self = rs_self();
	if (self)
		apart(t, over, &(struct telling){t, w, self, 0, 0, result});
	rs_guard_no_act(t);
}

long rs_guard_want_sleep(struct rs_guard_log *t, struct rs_guard_want *w, uint32_t *word, uint32_t value, int clock, const struct timespec *abstime)
{
	if (!w->kind || abstime || rs_guard_follows())
		return rs_guard_sleep(t, word, value, clock, abstime);
	if (!w->number)
		w->number = ++t->waits ? t->waits : ++t->waits;
	w->word = word;
	/* Of what has no owner all is told. */
	STORE(t->may_tell, !w->told || has_owner(w) ? w->number : 0);
	long r = rs_guard_sleep(t, word, value, clock, NULL);
	if (RS_UNLIKELY(LOAD(t->tell)))
		tell_now(t, w);
	return r;
}

void rs_guard_want_slice(struct rs_guard_log *t, struct rs_guard_want *w, uint32_t *word, uint32_t value, const struct timespec *until)
{
	w->word = word;
	rs_guard_sleep(t, word, value, CLOCK_MONOTONIC, until);
	if (!w->told && ++w->slices >= SLICES)
		tell_now(t, w);
}

/* --- the coordinator --------------------------------------------------------------------------------------------------------- */

void rs_guard_want_look(void)
{
	static struct { uint32_t tid, wait, looks; } seen[RS_GUARD_LOGS];
	const struct rs_guard_world *world = rs_guard_world();
	uint32_t n = world && LOAD(world->mode) == RS_GUARD_RECORD ? LOAD(world->logs) : 0;
	for (uint32_t i = 0; i < n && i < RS_GUARD_LOGS; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		uint32_t tid = LOAD(t->tid), wait = LOAD(t->may_tell);
		if (!tid || !wait || seen[i].tid != tid || seen[i].wait != wait) {
			seen[i].tid = tid, seen[i].wait = wait, seen[i].looks = 0;
		} else if (++seen[i].looks >= (t->told_sp ? AGAIN : LOOKS)) {
			seen[i].looks = 0;
			STORE(t->tell, 1);
		}
	}
	/* All of them are asked before one is woken: several sleep on one word. */
	for (uint32_t i = 0; i < n && i < RS_GUARD_LOGS; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		uint32_t *word = t->wait;
		if (LOAD(t->tell) && LOAD(t->state) == RS_GUARD_WAITS && word)
			RS_SYS3(SYS_futex, word, 1 | 128 /* FUTEX_WAKE_PRIVATE */, INT32_MAX);
	}
}

/* --- misuse ------------------------------------------------------------------------------------------------------------------- */

enum { TYPE = 3, NO_ELISION = 512 };

static void misuse(uintptr_t object, unsigned kind, unsigned what, int result, uint64_t aux, uintptr_t sp)
{
	struct rs_thread *t = rs_config.misuse ? rs_self() : NULL;
	if (!t)
		return;
	rs_sync_ready(t);
	rs_misuse(t, object, kind, what, result, rs_site_stack(t, site_of(sp)), 0, aux, 0);
}

/* Of mutexes that do not tell the program themselves. Ours by its own words, or taken by nobody who is a thread of ours (by another process, before a fork): nothing is said. */
void rs_guard_check_unlock(const pthread_mutex_t *m, uintptr_t sp)
{
	int kind = LOAD(m->__data.__kind);
	const struct rs_guard_log *t = rs_guard_self();
	uint32_t owner = (uint32_t)LOAD(m->__data.__owner);
	if (!t || (kind & ~(TYPE | NO_ELISION)) != 0 || (kind & TYPE) == PTHREAD_MUTEX_ERRORCHECK || owner == t->tid)
		return;
	int result = (kind & TYPE) == PTHREAD_MUTEX_RECURSIVE ? EPERM : 0;
	if (owner == 0 && LOAD(m->__data.__lock) == 0)
		misuse((uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_UNLOCK_NOT_LOCKED, result, 0, sp);
	else if (owner && rs_guard_is_thread(owner))
		misuse((uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_UNLOCK_NOT_OWNER, result, owner, sp);
}

void rs_guard_check_rwlock_unlock(const pthread_rwlock_t *rw, uintptr_t sp)
{
	enum { WRLOCKED = 2, READERS = 3 /* shift */ };
	uint32_t readers = LOAD(rw->__data.__readers), writer = (uint32_t)LOAD(rw->__data.__cur_writer);
	const struct rs_guard_log *t = rw->__data.__shared ? NULL : rs_guard_self();
	if (!t || writer == t->tid)
		return;
	if (!writer && readers >> READERS == 0 && !(readers & WRLOCKED))
		misuse((uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_UNLOCK_NOT_LOCKED, 0, 0, sp);
	else if (writer && rs_guard_is_thread(writer))
		misuse((uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_UNLOCK_READ_WRITE, 0, writer, sp);
}

void rs_guard_full_count(uintptr_t object, unsigned kind, uint64_t count, uintptr_t sp)
{
	if (kind == RS_OBJECT_MUTEX)
		misuse(object, kind, RS_MISUSE_RECURSION_OVERFLOW, EAGAIN, count, sp);
	else
		misuse(object, kind, RS_MISUSE_SEM_BAD_COUNT, EOVERFLOW, count, sp);
}

void rs_guard_check_wait(const pthread_cond_t *c, const pthread_mutex_t *m, uintptr_t sp)
{
	int kind = LOAD(m->__data.__kind);
	if ((kind & ~(TYPE | NO_ELISION)) == 0 && (kind & TYPE) != PTHREAD_MUTEX_ERRORCHECK && !LOAD(m->__data.__owner) && !LOAD(m->__data.__lock))
		misuse((uintptr_t)c, RS_OBJECT_COND, RS_MISUSE_COND_WAIT_UNLOCKED, (kind & TYPE) == PTHREAD_MUTEX_RECURSIVE ? EPERM : 0, (uintptr_t)m, sp);
}
