/* guardsync.c: synchronisation objects while `guard` keeps a log, in recording and re-execution. See guardlog.h.
 *
 * An object is taken by its real function that cannot block, and who must wait does so in waits of ours (slots, by the object's address): glibc never blocks here. So a thread that a rollback finds waiting looks again at what it
 * is to wait for, and the bytes of the program's objects do not depend on who waited how long: a lock has no mark of waiters, a condition is not touched at all. Conditions and barriers are therefore ours altogether.
 *
 * Not followed: objects shared between processes, robust mutexes and those with a protocol; an epoch in which a thread is cancelled. */
#include "sync.h"
#include "guardlog.h"
#include "guardquick.h"
#include "guardrace.h"
#include "guardsync.h"
#include "guardtry.h"
#include "guardwant.h"
#include <time.h>

static struct rs_guard_log *self(uintptr_t sp)
{
	struct rs_guard_log *t = rs_guard_self();
	if (RS_UNLIKELY(!t))
		t = rs_guard_spare();
	if (t)
		t->sp = sp;
	return t;
}

static int pass(void)
{
	rs_guard_lost(RS_GUARD_LOST_KIND);
	return RS_GUARD_PASS;
}

static bool fits(const pthread_mutex_t *m) { return (m->__data.__kind & ~(TYPE | NO_ELISION)) == 0; }

/* --- slots ---------------------------------------------------------------------------------------------------------------- */

static void lock_slot(struct rs_guard_slot *s)
{
	while (__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE))
		RS_SYS0(SYS_sched_yield);
}

static void unlock_slot(struct rs_guard_slot *s) { __atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE); }

static void wake_slot(struct rs_guard_slot *s, int most)
{
	__atomic_fetch_add(&s->seq, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &s->seq, 1 | 128 /* FUTEX_WAKE_PRIVATE */, most);
}

static struct rs_guard_slot *waited_for(uintptr_t object)
{
	const struct rs_guard_object *o = rs_guard_object(object);
	return o && __atomic_load_n(&o->waits, __ATOMIC_SEQ_CST) ? &rs_guard_view.slots[o - rs_guard_view.objects] : NULL;
}

static void some_wait(struct rs_guard_slot *s)
{
	__atomic_store_n(&s->waiters, 1, __ATOMIC_SEQ_CST);
	rs_guard_will_wait(s);
}

/* Who was woken says again that somebody may wait, before it tries: until then nobody calls the kernel in vain. most: who is not woken must be woken by those who are, when they let go. */
static void wake(uintptr_t object, int most)
{
	struct rs_guard_slot *s = waited_for(object);
	if (!s)
		return;
	__atomic_store_n(&rs_guard_view.objects[s - rs_guard_view.slots].waits, 0, __ATOMIC_RELAXED);
	if (__atomic_exchange_n(&s->waiters, 0, __ATOMIC_SEQ_CST))
		wake_slot(s, most);
}

/* Whether a wait is to end because the thread is cancelled, and that counts now. */
static bool cancelled(struct rs_guard_log *t)
{
	if (RS_LIKELY(!__atomic_load_n(&t->cancelled, __ATOMIC_SEQ_CST)) || rs_guard_mode() == RS_GUARD_REPLAY)
		return false;
	int state, ours;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_setcancelstate(state, &ours);
	return state == PTHREAD_CANCEL_ENABLE;
}

/* It does not return, but in a thread that is on its way out already. */
static void be_cancelled(struct rs_guard_log *t)
{
	__atomic_store_n(&t->cancelled, 0, __ATOMIC_RELAXED);
	REAL(pthread_testcancel)();
}

/* --- what is taken: mutexes, rwlocks, semaphores ---------------------------------------------------------------------------- */

/* A wait that goes on where the lock has changed hands: where there are many threads and few processors, that one was not among them for a while says nothing. But not for ever: what is slow under the lock is so for one after the other. What does not count is the time in which it stood at
 * ends of epochs: so may who has the lock. */
struct patience { const struct rs_guard_order *lock; uint32_t seen, seconds, most; uint64_t stood_ns; struct timespec until; };

static void wait_from_now(struct patience *p)
{
	p->seen = __atomic_load_n(&p->lock->hands, __ATOMIC_RELAXED);
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &p->until);
	p->until.tv_sec += p->seconds;
}

static bool goes_on(const struct rs_guard_log *t, struct patience *p)
{
	enum { LITTLE = 1000000, SECOND = 1000000000 };
	if (!p)
		return false;
	uint64_t more = t->stood_ns - p->stood_ns;
	p->stood_ns += more;
	if (__atomic_load_n(&p->lock->hands, __ATOMIC_RELAXED) != p->seen && p->most > p->seconds) {
		p->most -= p->seconds;
		wait_from_now(p);
		return true;
	}
	if (more < LITTLE)
		return false;
	more += (uint64_t)p->until.tv_nsec;
	p->until.tv_sec += (time_t)(more / SECOND);
	p->until.tv_nsec = (long)(more % SECOND);
	return true;
}

struct taking {
	uintptr_t object;
	unsigned kind;
	int op, clock;
	const struct timespec *abstime;
	int (*try)(uintptr_t object); /* 0: taken; EBUSY: wait; else the result */
	bool interrupted;             /* a handler ends the wait, and so does a cancellation: the result is ECANCELED */
	struct patience *patience;    /* whose `until` is abstime */
};

static int try_read(uintptr_t rw) { return REAL(pthread_rwlock_tryrdlock)((pthread_rwlock_t *)rw); }

/* Of an rwlock of the one kind where writers that wait keep readers out: its slot's `lock` is how many want it. A re-execution knows who came first. */
static int try_read_last(uintptr_t rw)
{
	const struct rs_guard_slot *s = rs_guard_slot(rw, true);
	return s && __atomic_load_n(&s->lock, __ATOMIC_SEQ_CST) && rs_guard_mode() != RS_GUARD_REPLAY ? EBUSY : try_read(rw);
}

static int take_it(struct rs_guard_log *t, const struct taking *k, struct rs_guard_want *w)
{
	/* Of a semaphore several may be posted before one that was woken could say so. */
	const bool counted = k->kind == RS_GUARD_SEM;
	long over = 0; /* how its wait ended, while a handler was to run first */
	for (struct rs_guard_slot *s = NULL;;) {
		struct rs_guard_event was;
		bool again = rs_guard_before(t, k->object, k->kind, &was) && was.what;
		if (again && was.result != 0) {
			rs_guard_after(t, k->object, k->kind, was.result, false);
			return was.result;
		}
		if (s && !counted)
			some_wait(s); /* there may be others yet */
		int r = k->try(k->object);
		if (r == EBUSY && over && !again) {
			rs_guard_after(t, k->object, k->kind, (int)-over, false);
			return (int)-over;
		}
		if (r == EBUSY && k->op == RS_GUARD_TIMED && !again && !rs_valid_timeout(k->abstime))
			r = EINVAL;
		if (r != EBUSY || (k->op == RS_GUARD_TRY && !again)) {
			rs_guard_after(t, k->object, k->kind, r, r == 0);
			return r;
		}
		s = rs_guard_slot(k->object, true);
		if (!s) {
			rs_guard_no_act(t);
			RS_SYS0(SYS_sched_yield);
			continue;
		}
		uint32_t seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
		if (counted) {
			if (k->interrupted)
				__atomic_store_n(&t->cancel_wait, &s->seq, __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&s->waiters, 1, __ATOMIC_SEQ_CST);
			rs_guard_will_wait(s);
			seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
		} else
			some_wait(s);
		r = k->try(k->object);
		long e = r != EBUSY ? 0 : k->interrupted && cancelled(t) ? -ECANCELED : rs_guard_want_sleep(t, w, &s->seq, seq, k->clock, again || k->op != RS_GUARD_TIMED ? NULL : k->abstime);
		if (counted)
			__atomic_fetch_sub(&s->waiters, 1, __ATOMIC_SEQ_CST);
		if (r == EBUSY) {
			bool ends = (e == -ETIMEDOUT && !goes_on(t, k->patience)) || e == -ECANCELED || (e == -EINTR && k->interrupted);
			if (ends && __atomic_load_n(&t->signals, __ATOMIC_ACQUIRE)) {
				over = e;
				continue;
			}
			if (!ends || !rs_guard_begin_act(t))
				continue;
			r = k->try(k->object);
			r = r == EBUSY ? (int)-e : r;
		}
		rs_guard_after(t, k->object, k->kind, r, r == 0);
		return r;
	}
}

static struct rs_guard_want want(const struct rs_guard_log *t, const struct taking *k)
{
	static const uint8_t kinds[RS_GUARD_KINDS] = {[RS_GUARD_MUTEX] = RS_OBJECT_MUTEX, [RS_GUARD_COND_WAKE] = RS_OBJECT_MUTEX, [RS_GUARD_RWLOCK] = RS_OBJECT_RWLOCK, [RS_GUARD_SEM] = RS_OBJECT_SEM};
	bool reads = k->try == try_read || k->try == try_read_last;
	return (struct rs_guard_want){.object = k->object, .kind = k->op == RS_GUARD_LOCK ? kinds[k->kind] : 0, .mode = reads ? RS_MODE_SHARED : RS_MODE_EXCLUSIVE, .sp = t->sp};
}

static int take(struct rs_guard_log *t, const struct taking *k)
{
	struct rs_guard_want w = want(t, k);
	int r = take_it(t, k, &w);
	rs_guard_want_end(t, &w, r);
	if (r == 0 && k->kind != RS_GUARD_ORDER)
		RS_GUARD_TAKES(k->object, k->try == try_read || k->try == try_read_last);
	return r;
}

/* --- quick acts -------------------------------------------------------------------------------------------------------------- */

bool rs_guard_mutex_quick(pthread_mutex_t *m) { return rs_guard_takes_quickly(m); }
int rs_guard_mutex_quick_unlock(pthread_mutex_t *m) { return rs_guard_gives_quickly(m); }

int rs_guard_mutex_wake(pthread_mutex_t *m)
{
	wake((uintptr_t)m, 1);
	return 0;
}

int rs_guard_mutex_wake_all(pthread_mutex_t *m)
{
	quick_wake(m);
	return rs_guard_mutex_wake(m);
}

uint32_t rs_rwlock_quick, rs_sem_quick;

void rs_guard_sync_begin(void)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return;
	rs_sync_ready(t); /* looks whether rs_quick holds */
	rs_rwlock_quick = rs_rwlock_verify(t);
	rs_sem_quick = rs_sem_verify();
}

void rs_guard_sync_begun(void)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return;
	t->slow = 1;
	rs_held_count(t, 0);
}

static int try_mutex(uintptr_t m) { return REAL(pthread_mutex_trylock)((pthread_mutex_t *)m); }
static int try_write(uintptr_t rw) { return REAL(pthread_rwlock_trywrlock)((pthread_rwlock_t *)rw); }

static int try_sem(uintptr_t sem)
{
	int kept = errno, r = REAL(sem_trywait)((sem_t *)sem) == 0 ? 0 : errno == EAGAIN ? EBUSY : errno;
	errno = kept;
	return r;
}

static int try_order(uintptr_t lock) { return __atomic_exchange_n((uint32_t *)lock, 1, __ATOMIC_ACQUIRE) ? EBUSY : 0; }

bool rs_guard_order_lock(struct rs_guard_log *t, struct rs_guard_order *lock, uint32_t seconds, uint32_t most)
{
	struct patience p = {.lock = lock, .seconds = seconds, .most = most, .stood_ns = t->stood_ns};
	wait_from_now(&p);
	return take(t, &(struct taking){(uintptr_t)&lock->word, RS_GUARD_ORDER, RS_GUARD_TIMED, CLOCK_MONOTONIC, &p.until, try_order, false, &p}) == 0;
}

void rs_guard_order_unlock(struct rs_guard_order *lock)
{
	__atomic_store_n(&lock->hands, lock->hands + 1, __ATOMIC_RELAXED);
	__atomic_exchange_n(&lock->word, 0, __ATOMIC_SEQ_CST);
	wake((uintptr_t)&lock->word, 1);
}

/* False: a handler that ran first has it. */
static bool take_alone(struct rs_guard_log *t, pthread_mutex_t *m)
{
	rs_guard_before(t, 0, RS_GUARD_ALONE, NULL);
	if (REAL(pthread_mutex_trylock)(m) != 0) {
		rs_guard_no_act(t);
		return false;
	}
	rs_guard_after(t, 0, RS_GUARD_ALONE, 0, false);
	RS_GUARD_TAKES((uintptr_t)m, false);
	return true;
}

static int again(pthread_mutex_t *m, int op, uintptr_t sp)
{
	int r = op == RS_GUARD_TRY ? REAL(pthread_mutex_trylock)(m) : REAL(pthread_mutex_lock)(m);
	if (r == EAGAIN)
		rs_guard_full_count((uintptr_t)m, RS_OBJECT_MUTEX, m->__data.__count, sp);
	return r;
}

int rs_guard_mutex_lock(pthread_mutex_t *m, int op, int clock, const struct timespec *abstime, uintptr_t sp)
{
	if (!fits(m))
		return pass();
	struct rs_guard_log *t = self(sp);
	int type = m->__data.__kind & TYPE;
	if (!t)
		return RS_GUARD_PASS;
	/* This thread's already: what comes of it, it alone knows. */
	if ((type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK) && (uint32_t)m->__data.__owner == t->tid)
		return again(m, op, sp);
	if (rs_guard_alone(m) && take_alone(t, m))
		return 0;
	return take(t, &(struct taking){(uintptr_t)m, RS_GUARD_MUTEX, op, clock < 0 ? CLOCK_REALTIME : clock, abstime, try_mutex, false, NULL});
}

int rs_guard_mutex_unlock(pthread_mutex_t *m)
{
	if (!fits(m))
		return RS_GUARD_PASS;
	RS_GUARD_GIVES((uintptr_t)m, false);
	int r = REAL(pthread_mutex_unlock)(m);
	if (r == 0)
		wake((uintptr_t)m, 1);
	rs_guard_try_gave();
	return r;
}

int rs_guard_rwlock_lock(pthread_rwlock_t *rw, bool write, int op, int clock, const struct timespec *abstime, uintptr_t sp)
{
	if (rw->__data.__shared)
		return pass();
	struct rs_guard_log *t = self(sp);
	/* Its own for writing (EDEADLK), or a timeout that is refused. */
	if (!t || (op != RS_GUARD_TRY && (uint32_t)rw->__data.__cur_writer == t->tid) || (op == RS_GUARD_TIMED && (!rs_valid_timeout(abstime) || !rs_valid_clock(clock))))
		return RS_GUARD_PASS;
	bool last = rw->__data.__flags == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
	struct rs_guard_slot *s = last && write && op != RS_GUARD_TRY ? rs_guard_slot((uintptr_t)rw, true) : NULL;
	if (s)
		__atomic_fetch_add(&s->lock, 1, __ATOMIC_SEQ_CST);
	int r = take(t, &(struct taking){(uintptr_t)rw, RS_GUARD_RWLOCK, op, clock < 0 ? CLOCK_REALTIME : clock, abstime, write ? try_write : last ? try_read_last : try_read, false, NULL});
	if (s && __atomic_sub_fetch(&s->lock, 1, __ATOMIC_SEQ_CST) == 0 && r != 0)
		wake((uintptr_t)rw, INT32_MAX);
	return r;
}

int rs_guard_rwlock_unlock(pthread_rwlock_t *rw)
{
	if (rw->__data.__shared)
		return RS_GUARD_PASS;
	RS_GUARD_GIVES((uintptr_t)rw, !rw->__data.__cur_writer);
	int r = REAL(pthread_rwlock_unlock)(rw);
	wake((uintptr_t)rw, INT32_MAX);
	rs_guard_try_gave();
	return r;
}

int rs_guard_rwlock_wake(pthread_rwlock_t *rw)
{
	wake((uintptr_t)rw, INT32_MAX);
	return 0;
}

int rs_guard_sem_wait(sem_t *sem, int op, int clock, const struct timespec *abstime, uintptr_t sp)
{
	if (!quick_sem_private(sem))
		return pass();
	struct rs_guard_log *t = self(sp);
	if (!t || (op == RS_GUARD_TIMED && (!rs_valid_timeout(abstime) || !rs_valid_clock(clock))))
		return RS_GUARD_PASS;
	if (op != RS_GUARD_TRY)
		REAL(pthread_testcancel)();
	int r;
	while ((r = take(t, &(struct taking){(uintptr_t)sem, RS_GUARD_SEM, op, clock < 0 ? CLOCK_REALTIME : clock, abstime, try_sem, op != RS_GUARD_TRY, NULL})) == ECANCELED)
		be_cancelled(t);
	if (r == 0)
		return 0;
	errno = r == EBUSY ? EAGAIN : r;
	return -1;
}

/* The ticket before the act: whoever gets what is posted has a later one. */
int rs_guard_sem_post(sem_t *sem, uintptr_t sp)
{
	if (!quick_sem_private(sem))
		return pass();
	struct rs_guard_log *t = self(sp);
	if (!t)
		return RS_GUARD_PASS;
	rs_guard_before(t, (uintptr_t)sem, RS_GUARD_SEM_POST, NULL);
	RS_GUARD_GIVES((uintptr_t)sem, false);
	rs_guard_after(t, (uintptr_t)sem, RS_GUARD_SEM_POST, 0, true);
	int r = REAL(sem_post)(sem);
	if (r != 0 && errno == EOVERFLOW)
		rs_guard_full_count((uintptr_t)sem, RS_OBJECT_SEM, INT32_MAX, sp);
	rs_guard_sem_wake(sem);
	return r;
}

int rs_guard_sem_wake(sem_t *sem)
{
	struct rs_guard_slot *s = waited_for((uintptr_t)sem);
	if (s && __atomic_load_n(&s->waiters, __ATOMIC_SEQ_CST))
		wake_slot(s, 1);
	return 0;
}

int rs_guard_sem_wake_all(sem_t *sem)
{
	RS_PROGRAM3(SYS_futex, sem, 1 | 128 /* FUTEX_WAKE_PRIVATE */, 1);
	return rs_guard_sem_wake(sem);
}

int rs_guard_sem_value(sem_t *sem, int *value, uintptr_t sp)
{
	struct rs_guard_log *t = self(sp);
	struct rs_guard_event was;
	if (!t)
		return RS_GUARD_PASS;
	bool again = rs_guard_before(t, (uintptr_t)sem, RS_GUARD_SEM_VALUE, &was) && was.what;
	int r = REAL(sem_getvalue)(sem, value);
	if (again)
		*value = was.result;
	rs_guard_after(t, (uintptr_t)sem, RS_GUARD_SEM_VALUE, *value, false);
	return r;
}

/* --- spin locks ------------------------------------------------------------------------------------------------------------------ */

int rs_guard_spin_lock(pthread_spinlock_t *l, bool try, uintptr_t sp)
{
	enum { SPINS = 100 };
	struct rs_guard_log *t = self(sp);
	if (!t)
		return RS_GUARD_PASS;
	for (;;) {
		struct rs_guard_event was;
		bool again = rs_guard_before(t, (uintptr_t)l, RS_GUARD_SPIN, &was) && was.what;
		int r = again && was.result != 0 ? was.result : REAL(pthread_spin_trylock)(l);
		if (r == 0 || (again && was.result != 0) || (try && !again)) {
			rs_guard_after(t, (uintptr_t)l, RS_GUARD_SPIN, r, r == 0);
			if (r == 0)
				RS_GUARD_TAKES((uintptr_t)l, false);
			return r;
		}
		rs_guard_no_act(t);
		for (int i = 0; i < SPINS && __atomic_load_n((const volatile int *)l, __ATOMIC_RELAXED) <= 0; i++)
			__asm__ volatile("pause");
		if (__atomic_load_n((const volatile int *)l, __ATOMIC_RELAXED) <= 0)
			RS_SYS0(SYS_sched_yield);
	}
}

/* --- conditions -------------------------------------------------------------------------------------------------------------------- */

enum { SHARED = 1, MONOTONIC = 2, WAITERS = 3 /* shift: those of before us, in glibc */ };

static void enqueue(struct rs_guard_slot *s, uint32_t index)
{
	struct rs_guard_node *n = rs_guard_node(index);
	n->next = 0;
	n->signalled = 0;
	if (s->tail)
		rs_guard_node(s->tail - 1)->next = (uint16_t)(index + 1);
	else
		s->head = (uint16_t)(index + 1);
	s->tail = (uint16_t)(index + 1);
}

static void dequeue(struct rs_guard_slot *s, uint32_t index)
{
	uint16_t before = 0;
	for (uint16_t i = s->head; i; before = i, i = rs_guard_node(i - 1)->next)
		if (i == index + 1) {
			uint16_t next = rs_guard_node(index)->next;
			if (before)
				rs_guard_node(before - 1)->next = next;
			else
				s->head = next;
			if (!next)
				s->tail = before;
			return;
		}
}

/* The thread is no longer in the queue: 0: signalled; ETIMEDOUT: its time was over; ECANCELED. */
static int wait_signal(struct rs_guard_log *t, struct rs_guard_slot *s, pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime, struct rs_guard_want *w)
{
	struct rs_guard_node *n = rs_guard_node(t->index);
	int expired = 0;
	__atomic_store_n(&t->cancel_wait, &n->signalled, __ATOMIC_SEQ_CST);
	for (;;) {
		if (rs_guard_pause(t, (uintptr_t)m, RS_GUARD_COND_WAKE))
			continue;
		bool replay = rs_guard_mode() == RS_GUARD_REPLAY && !rs_guard_is_spare(t);
		if (replay && rs_guard_next(t) == RS_GUARD_WHAT(c, RS_GUARD_COND_TIMEOUT)) {
			struct rs_guard_event was;
			if (!rs_guard_before(t, (uintptr_t)c, RS_GUARD_COND_TIMEOUT, &was))
				continue;
			expired = was.what && was.result ? was.result : ETIMEDOUT;
		} else if (__atomic_load_n(&n->signalled, __ATOMIC_ACQUIRE) == RS_GUARD_SIGNALLED)
			return 0;
		else if (replay || !expired) {
			uint32_t look = RS_GUARD_TO_LOOK;
			__atomic_compare_exchange_n(&n->signalled, &look, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
			if (cancelled(t))
				expired = ECANCELED;
			else if (rs_guard_want_sleep(t, w, &n->signalled, 0, clock, replay ? NULL : abstime) == -ETIMEDOUT)
				expired = ETIMEDOUT;
			continue;
		} else if (!rs_guard_begin_act(t))
			continue;
		lock_slot(s);
		bool late = n->signalled == RS_GUARD_SIGNALLED;
		if (!late) {
			dequeue(s, t->index);
			rs_guard_after(t, (uintptr_t)c, RS_GUARD_COND_TIMEOUT, expired == ECANCELED ? ECANCELED : 0, true);
		}
		unlock_slot(s);
		rs_guard_no_act(t);
		return late ? 0 : expired;
	}
}

/* There is no room for another object: a wait that is over soon, as all may be. glibc's own would give the mutex back without waking who waits for it here. */
static int wait_briefly(struct rs_guard_log *t, pthread_mutex_t *m, int clock, const struct timespec *abstime)
{
	const struct timespec slice = {0, 1000000};
	struct timespec now = {0};
	rs_guard_mutex_unlock(m);
	RS_SYS2(SYS_clock_gettime, clock, &now);
	bool late = abstime && (now.tv_sec > abstime->tv_sec || (now.tv_sec == abstime->tv_sec && now.tv_nsec >= abstime->tv_nsec));
	if (!late)
		RS_SYS2(SYS_nanosleep, &slice, NULL);
	take(t, &(struct taking){(uintptr_t)m, RS_GUARD_COND_WAKE, RS_GUARD_LOCK, CLOCK_REALTIME, NULL, try_mutex, false, NULL});
	return late ? ETIMEDOUT : 0;
}

int rs_guard_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime, uintptr_t sp)
{
	unsigned flags = c->__data.__wrefs;
	if (!fits(m) || flags & SHARED)
		return pass();
	if (abstime && (!rs_valid_timeout(abstime) || !rs_valid_clock(clock)))
		return RS_GUARD_PASS;
	struct rs_guard_log *t = self(sp);
	if (!t)
		return RS_GUARD_PASS;
	if (clock < 0)
		clock = flags & MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME;
	REAL(pthread_testcancel)();
	if ((m->__data.__kind & TYPE) == PTHREAD_MUTEX_ERRORCHECK && (uint32_t)m->__data.__owner != t->tid)
		return EPERM;
	rs_guard_check_wait(c, m, sp);
	struct rs_guard_slot *s = rs_guard_slot((uintptr_t)c, true);
	if (!s)
		return wait_briefly(t, m, clock, abstime);
	rs_guard_before(t, (uintptr_t)c, RS_GUARD_COND, NULL);
	lock_slot(s);
	enqueue(s, t->index);
	rs_guard_after(t, (uintptr_t)c, RS_GUARD_COND, 0, true);
	unlock_slot(s);
	m->__data.__nusers++; /* as glibc: who waits is a user, so that it is not destroyed (EBUSY) */
	rs_guard_mutex_unlock(m);
	struct rs_guard_want w = {.object = (uintptr_t)c, .kind = abstime ? 0 : RS_OBJECT_COND, .sp = sp};
	int how = wait_signal(t, s, c, m, clock, abstime, &w);
	rs_guard_want_end(t, &w, how);
	RS_GUARD_TAKES((uintptr_t)c, false);
	take(t, &(struct taking){(uintptr_t)m, RS_GUARD_COND_WAKE, RS_GUARD_LOCK, CLOCK_REALTIME, NULL, try_mutex, false, NULL});
	m->__data.__nusers--;
	if (how == ECANCELED) {
		be_cancelled(t);
		return 0;
	}
	return how;
}

int rs_guard_cond_signal(pthread_cond_t *c, bool all, uintptr_t sp)
{
	unsigned flags = __atomic_load_n(&c->__data.__wrefs, __ATOMIC_RELAXED);
	if (flags & SHARED)
		return pass();
	struct rs_guard_log *t = self(sp);
	struct rs_guard_slot *s = t ? rs_guard_slot((uintptr_t)c, true) : NULL;
	if (!s)
		return RS_GUARD_PASS;
	rs_guard_before(t, (uintptr_t)c, RS_GUARD_COND_SIGNAL, NULL);
	RS_GUARD_GIVES((uintptr_t)c, false);
	lock_slot(s);
	uint16_t first = s->head;
	if (all || !first)
		s->head = s->tail = 0;
	else if (!(s->head = rs_guard_node(first - 1)->next))
		s->tail = 0;
	/* Who sees it may wait again, and be in a queue again: next is read before. */
	for (uint16_t i = first, next; i; i = all ? next : 0) {
		struct rs_guard_node *n = rs_guard_node(i - 1);
		next = n->next;
		__atomic_store_n(&n->signalled, RS_GUARD_SIGNALLED, __ATOMIC_RELEASE);
		RS_SYS3(SYS_futex, &n->signalled, 1 | 128, 1);
	}
	rs_guard_after(t, (uintptr_t)c, RS_GUARD_COND_SIGNAL, all, true);
	unlock_slot(s);
	/* Some wait in glibc since before there was a log; that more wake up than were to be is nothing that a program may mind. */
	if (RS_UNLIKELY(flags >> WAITERS)) {
		rs_guard_lost(RS_GUARD_LOST_KIND);
		return all ? REAL(pthread_cond_broadcast)(c) : REAL(pthread_cond_signal)(c);
	}
	return 0;
}

/* --- barriers --------------------------------------------------------------------------------------------------------------------------- */

/* glibc's, see barrier.c: who fills the round is the serial thread there too. */
struct barrier { uint32_t in, current_round, count; int32_t shared; uint32_t out; };

int rs_guard_barrier_wait(pthread_barrier_t *barrier, uintptr_t sp)
{
	struct barrier *b = (struct barrier *)barrier;
	if (b->shared)
		return pass();
	struct rs_guard_log *t = self(sp);
	struct rs_guard_slot *s = t ? rs_guard_slot((uintptr_t)b, true) : NULL;
	if (!s)
		return RS_GUARD_PASS;
	rs_guard_before(t, (uintptr_t)b, RS_GUARD_BARRIER, NULL);
	RS_GUARD_GIVES((uintptr_t)b, false);
	lock_slot(s);
	uint32_t end = b->current_round + b->count;
	bool full = ++b->in == end;
	if (full)
		__atomic_store_n(&b->current_round, end, __ATOMIC_RELEASE);
	rs_guard_after(t, (uintptr_t)b, RS_GUARD_BARRIER, full, true);
	unlock_slot(s);
	if (full && __atomic_load_n(&s->waiters, __ATOMIC_SEQ_CST))
		wake_slot(s, INT32_MAX);
	struct rs_guard_want w = {.object = (uintptr_t)b, .kind = RS_OBJECT_BARRIER, .sp = sp};
	for (;;) {
		if (rs_guard_pause(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE))
			continue;
		__atomic_fetch_add(&s->waiters, 1, __ATOMIC_SEQ_CST);
		uint32_t seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
		bool over = (int32_t)(__atomic_load_n(&b->current_round, __ATOMIC_SEQ_CST) - end) >= 0;
		if (!over)
			rs_guard_want_sleep(t, &w, &s->seq, seq, CLOCK_MONOTONIC, NULL);
		__atomic_fetch_sub(&s->waiters, 1, __ATOMIC_SEQ_CST);
		if (over)
			break;
	}
	rs_guard_want_end(t, &w, 0);
	rs_guard_before(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE, NULL);
	rs_guard_after(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE, 0, false);
	RS_GUARD_TAKES((uintptr_t)b, false);
	/* When the last one has left, the barrier may be destroyed, and gone. */
	uint32_t in = __atomic_load_n(&b->in, __ATOMIC_RELAXED);
	if (__atomic_add_fetch(&b->out, 1, __ATOMIC_SEQ_CST) == in && __atomic_load_n(&s->waiters, __ATOMIC_SEQ_CST))
		wake_slot(s, INT32_MAX);
	return full ? PTHREAD_BARRIER_SERIAL_THREAD : 0;
}

/* glibc's destroy waits until who leaves last sets the barrier back, which is done here by nobody. */
void rs_guard_barrier_settle(pthread_barrier_t *barrier, uintptr_t sp)
{
	const struct barrier *b = (const struct barrier *)barrier;
	struct rs_guard_log *t = b->shared ? NULL : self(sp);
	struct rs_guard_slot *s = t ? rs_guard_slot((uintptr_t)b, true) : NULL;
	if (!s)
		return;
	for (bool over = false; !over;) {
		if (rs_guard_pause(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE))
			continue;
		__atomic_fetch_add(&s->waiters, 1, __ATOMIC_SEQ_CST);
		uint32_t seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
		over = __atomic_load_n(&b->out, __ATOMIC_SEQ_CST) == __atomic_load_n(&b->in, __ATOMIC_SEQ_CST);
		if (!over)
			rs_guard_sleep(t, &s->seq, seq, CLOCK_MONOTONIC, NULL);
		__atomic_fetch_sub(&s->waiters, 1, __ATOMIC_SEQ_CST);
	}
	rs_guard_before(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE, NULL);
	rs_guard_after(t, (uintptr_t)b, RS_GUARD_BARRIER_LEAVE, 0, false);
}

/* --- what is made once ------------------------------------------------------------------------------------------------------------------ */

/* An event is only who makes it. That it is made already, programs see without a call (a guard's first byte), so in a re-execution who is to find it made waits until it is. */
enum { MADE, FREE, MAKING };
enum { ONCE_MAKING = 1, ONCE_MADE = 2, STATIC_MADE = 0xff, STATIC_MAKING = 0xff00 };
static int made(uintptr_t object, int of)
{
	uint32_t now = __atomic_load_n((const uint32_t *)object, __ATOMIC_ACQUIRE);
	if (of == RS_GUARD_OF_ONCE)
		return now & ONCE_MADE ? MADE : now & ONCE_MAKING ? MAKING : FREE;
	return now & STATIC_MADE ? MADE : now & STATIC_MAKING ? MAKING : FREE;
}

/* Threads without a log do not wake us, and an initialiser that was left is taken back by the library behind us: so waits end by themselves, too. */
static void wait_made(struct rs_guard_log *t, struct rs_guard_slot *s, uintptr_t object, int of, struct rs_guard_want *w)
{
	enum { SLICE_NS = 50000000, SECOND = 1000000000 };
	struct timespec until = {0};
	uint32_t seq = __atomic_load_n(&s->seq, __ATOMIC_SEQ_CST);
	some_wait(s);
	int now = made(object, of);
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_NS;
	until.tv_sec += until.tv_nsec / SECOND;
	until.tv_nsec %= SECOND;
	if (now != MADE)
		rs_guard_want_slice(t, w, &s->seq, seq, &until);
}

/* Takes the slot, if nobody makes the object. */
static bool begin_make(struct rs_guard_slot *s, uintptr_t object, int of)
{
	if (made(object, of) != FREE || __atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE))
		return false;
	if (made(object, of) == FREE)
		return true;
	unlock_slot(s);
	return false;
}

static int make(struct rs_guard_log *t, struct rs_guard_slot *s, uintptr_t object, int of, struct rs_guard_want *w)
{
	const uint64_t what = RS_GUARD_WHAT(object, RS_GUARD_MAKES);
	for (;;) {
		bool replay = rs_guard_mode() == RS_GUARD_REPLAY;
		bool last = replay && rs_guard_next_at(t) == t->end && t->pending_end == what, mine = replay && rs_guard_next(t) == what;
		if (!last && made(object, of) == MADE)
			return RS_GUARD_MADE;
		if (made(object, of) == MAKING && s->head == t->index + 1)
			return RS_GUARD_PASS;
		if ((!replay || last || __atomic_load_n(&rs_guard_world()->ending, __ATOMIC_ACQUIRE)) && rs_guard_pause(t, object, RS_GUARD_MAKES))
			continue;
		if (t->at >= RS_GUARD_NEARLY_EVENTS && rs_guard_full(t, object, RS_GUARD_MAKES))
			continue;
		if (mine ? rs_guard_before(t, object, RS_GUARD_MAKES, NULL) : !replay && rs_guard_begin_act(t)) {
			if (begin_make(s, object, of)) {
				s->head = (uint16_t)(t->index + 1);
				rs_guard_after(t, object, RS_GUARD_MAKES, 0, true);
				return RS_GUARD_TO_MAKE;
			}
		}
		rs_guard_no_act(t);
		wait_made(t, s, object, of, w);
	}
}

int rs_guard_make(uintptr_t object, int of, uintptr_t sp)
{
	struct rs_guard_log *t = self(sp);
	struct rs_guard_slot *s = t ? rs_guard_slot(object, true) : NULL;
	if (!s)
		return RS_GUARD_PASS;
	struct rs_guard_want w = {.object = object, .kind = of == RS_GUARD_OF_ONCE ? RS_OBJECT_ONCE : RS_OBJECT_GUARD, .sp = sp};
	int r = make(t, s, object, of, &w);
	rs_guard_want_end(t, &w, 0);
	return r;
}

void rs_guard_make_began(uintptr_t object)
{
	struct rs_guard_slot *s = rs_guard_slot(object, false);
	if (s)
		unlock_slot(s);
}

void rs_guard_make_over(uintptr_t object) { wake(object, INT32_MAX); }

bool rs_guard_follows(void) { return rs_guard_mode() == RS_GUARD_REPLAY; }
