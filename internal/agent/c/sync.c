/* sync.c: what all synchronisation objects have in common in a thread: its state, its held list, the orders it has sent, its waits.
 *
 * Ground rules that bite here: no allocation on hot paths (the state is mapped at a thread's first lock and handed on when the
 * thread is gone); async-signal-safe throughout; nothing is freed that another thread may look at.
 */
#include "sync.h"
#include "core.h"
#include <bits/local_lim.h> /* PTHREAD_DESTRUCTOR_ITERATIONS; a freestanding limits.h lacks it */

uint32_t rs_quick;

/* Every state ever made. Only grows. */
static struct rs_sync_state *states;

/* --- state ----------------------------------------------------------------------------------------------------------------- */

static void adopt(struct rs_sync_state *s, struct rs_thread *t)
{
	s->thread = t;
	s->slot = t->slot;
	s->tid = t->tid;
	s->number = t->number;
	s->held_lost = 0;
	s->wait_obj = 0;
	s->misuses = 0;
	s->segment++; /* what the former thread sent does not count for this one */
	s->guards = 0;
	s->once = NULL;
	t->slot->moments = (uintptr_t)s->moment;
	__atomic_store_n(&s->ended, 0, __ATOMIC_RELEASE);
}

void rs_sync_prepare(struct rs_thread *t)
{
	static uint32_t checked; /* 0: not yet, 1: somebody was or is at it */
	struct rs_sync_state *s = rs_sync_of(t);
	if (!s) {
		s = rs_os_map(sizeof *s);
		if (!s)
			return;
		struct rs_sync_state *head = __atomic_load_n(&states, __ATOMIC_RELAXED);
		s->ended = 1;
		s->orders = s->order_own;
		s->order_lines = RS_ORDER_LINES;
		do
			s->next = head;
		while (!__atomic_compare_exchange_n(&states, &head, s, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	}
	adopt(s, t);
	if (!t->held) {
		t->held = t->slot->held;
		t->held_cap = RS_HELD_FIRST;
	}
	t->order_cache = s;
	uint32_t zero = 0;
	if (__atomic_load_n(&checked, __ATOMIC_RELAXED) == 0
	    && __atomic_compare_exchange_n(&checked, &zero, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
	    && !rs_config.all && rs_mutex_verify(t))
		__atomic_store_n(&rs_quick, 1, __ATOMIC_RELEASE);
}

void rs_sync_new_segment(struct rs_thread *t)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (s)
		s->segment++;
}

void rs_sync_after_fork(struct rs_thread *t)
{
	for (struct rs_sync_state *s = states; s; s = s->next) {
		if (t && s == t->order_cache)
			continue;
		s->ended = 1;
		s->slot = NULL; /* its region is the parent's */
		s->wait_obj = 0;
	}
	if (!t)
		return;
	struct rs_sync_state *s = rs_sync_of(t);
	if (s) {
		s->slot = t->slot;
		s->slot->moments = (uintptr_t)s->moment;
		s->tid = t->tid;
		s->number = t->number;
		s->segment++;
		s->wait_obj = 0;
	}
	t->slot->held_count = t->held_count; /* the list came along with the slot (region.c) */
}

/* --- looking at other threads ------------------------------------------------------------------------------------------------ */

static bool slot_holds(const struct rs_slot *slot, uintptr_t obj)
{
	uint32_t n = __atomic_load_n(&slot->held_count, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < n && i < RS_HELD_IN_SLOT; i++)
		if (__atomic_load_n(&slot->held[i].obj, __ATOMIC_RELAXED) == obj)
			return true;
	return false;
}

static bool lives(const struct rs_sync_state *s)
{
	return !__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) && s->slot && __atomic_load_n(&s->slot->state, __ATOMIC_RELAXED) == 1;
}

struct rs_sync_state *rs_sync_holder(uint32_t tid, uintptr_t obj)
{
	for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next)
		if (s->tid == tid && lives(s) && slot_holds(s->slot, obj))
			return s;
	return NULL;
}

struct rs_sync_state *rs_sync_other_holder(struct rs_thread *t, uintptr_t obj)
{
	for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next)
		if (s->thread != t && lives(s) && slot_holds(s->slot, obj))
			return s;
	return NULL;
}

/* The stack of the i-th lock that s's thread holds, which may go on meanwhile. */
static uint32_t moment_of_other(const struct rs_sync_state *s, uint32_t i, uintptr_t obj)
{
	struct rs_thread *self = rs_thread_tls;
	struct rs_moment m = s->moment[i];
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	const struct rs_held_slot *h = &s->slot->held[i];
	if (!self || __atomic_load_n(&h->obj, __ATOMIC_RELAXED) != obj || RS_INFO_STACK(__atomic_load_n(&h->info, __ATOMIC_RELAXED)) != RS_STACK_LATER)
		return 0;
	return rs_moment_stack(self, &m, false);
}

uint32_t rs_slot_held_stack(const struct rs_slot *slot, uintptr_t obj)
{
	uint32_t n = __atomic_load_n(&slot->held_count, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < n && i < RS_HELD_IN_SLOT; i++) {
		if (__atomic_load_n(&slot->held[i].obj, __ATOMIC_RELAXED) != obj)
			continue;
		uint32_t stack = RS_INFO_STACK(__atomic_load_n(&slot->held[i].info, __ATOMIC_RELAXED));
		if (stack != RS_STACK_LATER)
			return stack;
		for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next)
			if (s->slot == slot && lives(s))
				return moment_of_other(s, i, obj);
		return 0;
	}
	return 0;
}

void rs_sync_cond_waiters(uintptr_t cond, uintptr_t mutex, unsigned *with, unsigned *without, struct rs_sync_state **sample)
{
	*with = *without = 0;
	*sample = NULL;
	for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next) {
		if (__atomic_load_n(&s->wait_obj, __ATOMIC_ACQUIRE) != cond || !lives(s))
			continue;
		if (__atomic_load_n(&s->wait_mutex, __ATOMIC_RELAXED) == mutex) {
			++*with;
		} else {
			++*without;
			*sample = s;
		}
	}
}

struct rs_sync_state *rs_sync_waits_at(uintptr_t obj)
{
	for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next)
		if (__atomic_load_n(&s->wait_obj, __ATOMIC_ACQUIRE) == obj && lives(s))
			return s;
	return NULL;
}

struct rs_sync_state *rs_sync_waits_with(uintptr_t mutex)
{
	for (struct rs_sync_state *s = __atomic_load_n(&states, __ATOMIC_ACQUIRE); s; s = s->next)
		if (__atomic_load_n(&s->wait_obj, __ATOMIC_ACQUIRE) != 0 && lives(s) && __atomic_load_n(&s->wait_mutex, __ATOMIC_RELAXED) == mutex)
			return s;
	return NULL;
}

/* --- held list --------------------------------------------------------------------------------------------------------------- */

/* Twice the room. The first array is the slot's; a larger one is given back when it is outgrown. */
static bool held_grow(struct rs_thread *t)
{
	struct rs_sync_state *s = rs_sync_of(t);
	uint32_t cap = t->held_cap ? t->held_cap * 2 : 256;
	if (t->held_cap == 0 && s && !t->held) { /* the state was there first */
		t->held = t->slot->held;
		t->held_cap = RS_HELD_FIRST;
		return true;
	}
	struct rs_held_slot *more = rs_os_map(cap * sizeof *more);
	if (!more) {
		if (s)
			s->held_lost = 1;
		rs_notice(t, RS_NOTICE_NO_MEMORY, ENOMEM, cap * sizeof *more);
		return false;
	}
	struct rs_held_slot *old = t->held;
	uint32_t old_cap = t->held_cap;
	for (uint32_t i = 0; i < t->held_count; i++)
		more[i] = old[i];
	t->held = more;
	__asm__ volatile("" ::: "memory");
	t->held_cap = cap;
	if (old && old != t->slot->held)
		rs_os_unmap(old, old_cap * sizeof *old);
	return true;
}

void rs_held_remove(struct rs_thread *t, int at)
{
	struct rs_sync_state *s = rs_sync_of(t);
	uint32_t n = t->held_count;
	for (uint32_t i = (uint32_t)at + 1; i < n; i++) {
		uint64_t info = t->held[i].info;
		if (rs_moment_used(info)) /* then i is an index of it */
			s->moment[i - 1] = s->moment[i];
		rs_held_write(t, i - 1, t->held[i].obj, info);
	}
	rs_held_count(t, n - 1);
}

uint32_t rs_held_stack_at(struct rs_thread *t, uint32_t i)
{
	uint64_t info = t->held[i].info;
	if (RS_INFO_STACK(info) != RS_STACK_LATER)
		return RS_INFO_STACK(info);
	uint32_t stack = rs_moment_stack(t, &rs_sync_of(t)->moment[i], true);
	rs_held_write(t, i, t->held[i].obj, (info & ~(uint64_t)RS_STACK_LATER) | stack);
	return stack;
}

uint32_t rs_held_stack(struct rs_thread *t, uintptr_t obj)
{
	int i = rs_held_find(t, obj);
	return i < 0 ? 0 : rs_held_stack_at(t, (uint32_t)i);
}

/* Where a tail is about to be sent, before its event is begun: walking emits. */
static void settle(struct rs_thread *t)
{
	for (uint32_t i = 0; i < t->held_count; i++)
		rs_held_stack_at(t, i);
}

/* Copies n bytes of our own memory that may be unmapped: a lock in a held list may lie in memory that another thread gave back. */
bool rs_read_safely(void *to, uintptr_t from, size_t n)
{
	if (rs_sandboxed) /* no system call that a filter may not know */
		return false;
	struct { void *base; size_t len; } local = {to, n}, remote = {(void *)from, n};
	return RS_SYS6(SYS_process_vm_readv, RS_SYS0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)n;
}

/* Does the object itself say that it is locked, where possible by this thread? */
static bool still_held(const struct rs_thread *t, uintptr_t obj, unsigned kind)
{
	union { pthread_mutex_t m; pthread_rwlock_t rw; pthread_spinlock_t spin; } u;
	switch (kind) {
	case RS_OBJECT_MUTEX:
		/* Robust: ending with it held is what they are for. Shared: the owner may be another process's. */
		return rs_read_safely(&u.m, obj, sizeof u.m) && (u.m.__data.__kind & ~(512 | 3)) == 0 && u.m.__data.__lock != 0
			&& (uint32_t)u.m.__data.__owner == t->tid;
	case RS_OBJECT_RWLOCK:
		return rs_read_safely(&u.rw, obj, sizeof u.rw) && u.rw.__data.__shared == 0
			&& ((uint32_t)u.rw.__data.__cur_writer == t->tid || (u.rw.__data.__cur_writer == 0 && u.rw.__data.__readers >> 3 != 0));
	case RS_OBJECT_SPIN:
		return rs_read_safely((void *)&u.spin, obj, sizeof u.spin) && u.spin != 1;
	}
	return false;
}

/* Entries about which held lists are known to lie (RS_OBJ_VOID), or do: locks may be given back past us. Called where a tail is about to be sent. */
static void held_purge(struct rs_thread *t)
{
	bool lies = __atomic_load_n(&rs_bypassed, __ATOMIC_RELAXED);
	for (int i = (int)t->held_count - 1; i >= 0; i--)
		if (rs_object_has(rs_object_find(t->held[i].obj), RS_OBJ_VOID) || (lies && !still_held(t, t->held[i].obj, RS_INFO_KIND(t->held[i].info))))
			rs_held_remove(t, i);
}

/* How many of the newest `n` entries fit into a record with `fixed` words. */
static uint32_t tail_entries(struct rs_thread *t, uint32_t n, unsigned fixed)
{
	uint32_t most = (RS_MAX_RECORD_WORDS - fixed) / 2;
	if (n <= most)
		return n;
	rs_notice(t, RS_NOTICE_LIMIT, 0, n);
	return most;
}

/* Writes held[end-n, end). */
static void put_tail(uint64_t *w, const struct rs_thread *t, uint32_t end, uint32_t n)
{
	for (uint32_t i = end - n; i < end; i++) {
		*w++ = t->held[i].obj;
		*w++ = t->held[i].info & RS_INFO_SENT;
	}
}

static void tail_seen(struct rs_thread *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		rs_object_seen(t, t->held[i].obj, RS_INFO_KIND(t->held[i].info));
}

static void tail_frames(struct rs_thread *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		rs_frames_lock(t, t->held[i].obj, RS_INFO_STACK(t->held[i].info));
}

/* --- orders ------------------------------------------------------------------------------------------------------------------ */

static inline uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9fb21c651e98df25ull;
	return h ^ h >> 32;
}

typedef uint32_t tags4 __attribute__((vector_size(16)));

/* Whether tag is among those of the line and of this segment. */
static inline bool in_line(const struct rs_order_line *l, uint32_t segment, uint32_t tag)
{
	const tags4 *v = (const tags4 *)l->tag, want = {tag, tag, tag, tag};
	tags4 same = (tags4)(v[0] == want) | (tags4)(v[1] == want) | (tags4)(v[2] == want) | (tags4)(v[3] == want);
	typedef float floats4 __attribute__((vector_size(16)));
	return __builtin_ia32_movmskps((floats4)same) != 0 && l->tag[0] == segment;
}

/* Puts tag in if there is room, or if it must; false: it gave no room. */
static bool into_line(struct rs_order_line *l, uint32_t segment, uint32_t tag, bool must, uint32_t *lost)
{
	if (l->tag[0] != segment) {
		for (unsigned i = 1; i < RS_ORDER_TAGS; i++)
			l->tag[i] = 0;
		l->tag[0] = segment;
	}
	for (unsigned i = 1; i < RS_ORDER_TAGS; i++)
		if (l->tag[i] == 0) {
			l->tag[i] = tag;
			return true;
		}
	if (!must)
		return false;
	l->tag[1 + ++*lost % (RS_ORDER_TAGS - 1)] = tag;
	return true;
}

static inline struct rs_order_line *line_of(const struct rs_sync_state *s, uint64_t h) { return &s->orders[(h >> 40) & (s->order_lines - 1)]; }

/* The last entry of the held list has just been added: says so, unless this thread has with the same list in this segment. What is sent with the same
 * locks held lies in one line, so that the locks of a large array cost one miss of the cache; what finds no room there is elsewhere. */
static void order(struct rs_thread *t, unsigned how)
{
	struct rs_sync_state *s = rs_sync_of(t);
	uint32_t n = t->held_count - 1, segment = 0, tag = 0;
	uint64_t held = 0, all = 0;
	uintptr_t obj = t->held[n].obj;
	if (RS_LIKELY(s != NULL)) {
		for (uint32_t i = 0; i < n; i++) {
			uint64_t o = t->held[i].obj;
			/* Stack ids are left out: the first stacks seen are as good as any. */
			held = mix(held, o ^ (uint64_t)rs_object_generation(o) << 32 ^ (uint64_t)RS_INFO_MODE(t->held[i].info) << 63);
		}
		all = mix(held ^ how, obj ^ (uint64_t)rs_object_generation(obj) << 32 ^ (uint64_t)RS_INFO_MODE(t->held[n].info) << 63);
		segment = (uint32_t)s->segment | 1u << 31; /* never 0, and never a tag */
		tag = ((uint32_t)all | 1) & ~(1u << 31);
		if (RS_LIKELY(in_line(line_of(s, held), segment, tag)) || in_line(line_of(s, all), segment, tag))
			return;
	}
	held_purge(t);
	n = t->held_count;
	if (n == 0 || t->held[n - 1].obj != obj)
		return; /* the new one itself is void */
	n--;
	if (n > 0) {
		tail_seen(t, n + 1);
		settle(t);
		tail_frames(t, n + 1);
		uint64_t info = t->held[n].info;
		uint32_t sent = tail_entries(t, n, RS_ORDER_WORDS);
		uint64_t *w = rs_reserve(t, RS_EV_ORDER, RS_ORDER_WORDS + 2 * sent);
		if (w) {
			rs_put_order(w, obj, (uint8_t)RS_INFO_KIND(info), (uint8_t)RS_INFO_MODE(info), (uint8_t)how, RS_INFO_STACK(info), sent);
			put_tail(w + RS_ORDER_WORDS, t, n, sent);
			rs_commit(t);
		}
	}
	if (!s || into_line(line_of(s, held), segment, tag, false, &s->order_lost))
		return;
	into_line(line_of(s, all), segment, tag, true, &s->order_lost);
	if (s->order_lost >= RS_ORDER_LINES * RS_ORDER_TAGS && s->order_lines == RS_ORDER_LINES) {
		struct rs_order_line *more = rs_os_map(RS_ORDER_LINES_MORE * sizeof *more);
		s->order_lost = 0; /* without memory: not at every order */
		if (more) { /* what was sent is sent once more; a handler in between may do so with its own */
			s->orders = more;
			__asm__ volatile("" ::: "memory");
			s->order_lines = RS_ORDER_LINES_MORE;
		}
	}
}

/* A nesting that no deadlock can come of is of no use to anybody: because the thread does not wait for good, or because it comes before whatever another
 * thread will ever do. What is still held when there is another is told with what is taken then. */
static inline bool makes_order(unsigned how) { return how != RS_HOW_TRY && how != RS_HOW_TIMED && __atomic_load_n(&rs_threaded, __ATOMIC_RELAXED); }

void rs_acquired_at(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned mode, unsigned how, struct rs_site at)
{
	rs_sync_ready(t);
	uint32_t n = t->held_count;
	struct rs_sync_state *s = rs_sync_of(t);
	if (RS_UNLIKELY(rs_config.all || n >= t->held_cap || (n && rs_held_find(t, obj) >= 0) || !s)) {
		rs_acquired(t, obj, kind, mode, how, rs_site_stack(t, at));
		return;
	}
	t->locks_taken++;
	uint64_t info = RS_INFO(0, mode, kind) | rs_moment_take(t, s, n, at);
	rs_held_put(t, obj, info);
	if (RS_LIKELY(rs_moment_used(info)) && RS_UNLIKELY(*(volatile uintptr_t *)&s->moment[n].rsp != (uintptr_t)at.fp + 16))
		rs_moment_again(t, s, n, at);
	if (n > 0 && makes_order(how))
		order(t, how);
}

void rs_acquired(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned mode, unsigned how, uint32_t stack)
{
	t->locks_taken++;
	rs_sync_ready(t);
	if (t->held_count) {
		int i = rs_held_find(t, obj);
		if (i >= 0) {
			/* Taken again without having been given up. Read locks nest; anything else is a stale entry: the object was
			 * given up by somebody else, or made anew. */
			uint64_t info = t->held[i].info;
			if (mode == RS_MODE_SHARED && RS_INFO_MODE(info) == RS_MODE_SHARED) {
				t->held[i].info = info + RS_INFO_AGAIN;
				if (rs_config.all) {
					rs_object_seen(t, obj, kind);
					RS_EMIT(t, ACQUIRE, acquire, obj, (uint8_t)kind, (uint8_t)mode, RS_HOW_RECURSIVE, stack);
				}
				return;
			}
			rs_held_remove(t, i);
		}
	}
	if (t->held_count < t->held_cap || held_grow(t)) {
		rs_held_put(t, obj, RS_INFO(stack, mode, kind));
		if (t->held_count > 1 && !rs_config.all && makes_order(how))
			order(t, how);
	}
	if (rs_config.all && kind <= RS_OBJECT_SPIN) { /* the others have events of their own */
		rs_object_seen(t, obj, kind);
		rs_frames_lock(t, obj, stack);
		RS_EMIT(t, ACQUIRE, acquire, obj, (uint8_t)kind, (uint8_t)mode, (uint8_t)how, stack);
	}
}

/* --- waits and guards ----------------------------------------------------------------------------------------------------------- */

static void emit_want(struct rs_thread *t, const struct rs_pending *w, bool urgent)
{
	held_purge(t);
	uint32_t n = t->held_count;
	tail_seen(t, n);
	settle(t);
	tail_frames(t, n);
	rs_frames_lock(t, w->obj, w->stack);
	uint32_t sent = tail_entries(t, n, RS_WANT_WORDS);
	uint64_t *r = rs_reserve(t, RS_EV_WANT, RS_WANT_WORDS + 2 * sent);
	if (r) {
		uint64_t now = r[0] >> 8;
		rs_put_want(r, w->obj, w->kind, w->mode, w->how, w->stack, 0, w->value, sent);
		put_tail(r + RS_WANT_WORDS, t, n, sent);
		/* A deadlock stays; so at most one bell in some 20 milliseconds, and Go's own rounds find the rest. */
		static uint64_t last_urgent;
		if (urgent && now - __atomic_load_n(&last_urgent, __ATOMIC_RELAXED) > 1u << 26) {
			__atomic_store_n(&last_urgent, now, __ATOMIC_RELAXED);
			rs_commit_urgent(t);
		} else {
			rs_commit(t);
		}
	}
}

/* Forgets guards whose frames were left by siglongjmp: they lie below `here` on the same stack, and their memory may be anything. */
static void drop_dead(struct rs_thread *t, struct rs_sync_state *s, uintptr_t here)
{
	static const struct rs_wait none;
	if (!rs_on_own_stack(t, here))
		return; /* a handler on its own stack, a coroutine: nothing can be told */
	while (s->guards > 0 && s->guards <= RS_GUARDS) {
		uintptr_t g = (uintptr_t)s->guard[s->guards - 1].g;
		if (!rs_on_own_stack(t, g) || g > here)
			return;
		s->guards--;
		if (s->guard[s->guards].type == RS_GUARD_WAIT) {
			uintptr_t obj = t->slot->wait_obj;
			s->wait_obj = 0;
			rs_wait_end(t, &none);
			RS_EMIT(t, WANT_END, want_end, obj, EINTR);
		} else {
			s->once = NULL;
		}
	}
}

void rs_guard_push(struct rs_thread *t, struct rs_guard *g)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (!s)
		return;
	drop_dead(t, s, (uintptr_t)g);
	uint32_t n = s->guards;
	do { /* again if a handler used the place before the count told of it */
		if (n < RS_GUARDS) {
			s->guard[n].g = g;
			s->guard[n].type = g->type;
		}
		*(volatile uint32_t *)&s->guards = n + 1;
	} while (n < RS_GUARDS && *(struct rs_guard *volatile *)&s->guard[n].g != g);
}

void rs_guard_pop(struct rs_thread *t, struct rs_guard *g)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (!s || s->guards == 0)
		return;
	if (s->guards > RS_GUARDS || s->guard[s->guards - 1].g == g)
		s->guards--;
}

static inline bool shows(const struct rs_pending *w)
{
	return w->kind == RS_OBJECT_COND || w->kind == RS_OBJECT_BARRIER || w->kind == RS_OBJECT_SEM;
}

static void wait_visible(struct rs_sync_state *s, const struct rs_pending *w)
{
	if (!s || !shows(w))
		return;
	s->wait_mutex = w->mutex;
	s->wait_stack = w->stack;
	__atomic_store_n(&s->wait_obj, w->obj, __ATOMIC_RELEASE);
}

void rs_want(struct rs_thread *t, struct rs_pending *w)
{
	w->g.type = RS_GUARD_WAIT;
	rs_guard_push(t, &w->g);
	rs_object_seen(t, w->obj, w->kind);
	w->before = rs_wait_begin(t, w->kind, w->obj, w->stack);
	emit_want(t, w, w->before.urgent);
	wait_visible(rs_sync_of(t), w);
}

/* The wait is over; an outer one (this was in a signal handler) goes on. */
void rs_want_end(struct rs_thread *t, struct rs_pending *w, int error)
{
	struct rs_sync_state *s = rs_sync_of(t);
	rs_guard_pop(t, &w->g);
	if (s && shows(w))
		__atomic_store_n(&s->wait_obj, 0, __ATOMIC_RELEASE);
	rs_wait_end(t, &w->before);
	RS_EMIT(t, WANT_END, want_end, w->obj, (uint32_t)error);
	if (!s || s->guards == 0 || s->guards > RS_GUARDS || s->guard[s->guards - 1].type != RS_GUARD_WAIT)
		return;
	struct rs_pending *outer = (struct rs_pending *)s->guard[s->guards - 1].g;
	emit_want(t, outer, false);
	wait_visible(s, outer);
}

/* Values of the Itanium unwinding ABI, which unwind.h would give us together with a need for libgcc_s. */
enum { UA_CLEANUP_PHASE = 2, URC_CONTINUE_UNWIND = 8 };

int rs_guard_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
{
	(void)version, (void)exception_class, (void)exception, (void)context;
	struct rs_thread *t = rs_thread_tls;
	struct rs_sync_state *s = t ? rs_sync_of(t) : NULL;
	if ((actions & UA_CLEANUP_PHASE) && s && s->guards && --s->guards < RS_GUARDS) {
		struct rs_guard *g = s->guard[s->guards].g;
		if (g->undo)
			g->undo(t, g);
	}
	return URC_CONTINUE_UNWIND;
}

/* In assembler: only so is the personality certain to be that of the frame that makes the call, with every compiler. */
__asm__(".text\n"
	".p2align 4\n"
	".globl rs_guarded\n"
	".hidden rs_guarded\n"
	".type rs_guarded, @function\n"
	"rs_guarded:\n"
	".cfi_startproc\n"
	".cfi_personality 0x1b, rs_guard_personality\n" /* pcrel | sdata4 */
	"push %rbp\n"
	".cfi_def_cfa_offset 16\n"
	".cfi_offset %rbp, -16\n"
	"mov %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"mov %rdi, %rax\n"
	"mov %rsi, %rdi\n"
	"mov %rdx, %rsi\n"
	"mov %rcx, %rdx\n"
	"mov %r8, %rcx\n"
	"call *%rax\n"
	"pop %rbp\n"
	".cfi_def_cfa %rsp, 8\n"
	"ret\n"
	".cfi_endproc\n"
	".size rs_guarded, .-rs_guarded\n");

/* --- misuse ------------------------------------------------------------------------------------------------------------------------ */

void rs_misuse(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned what, int result, uint32_t stack, uint32_t stack2, uint64_t aux, uint32_t other)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (!rs_config.misuse)
		return;
	rs_object_seen(t, obj, kind);
	rs_stack_tell(t, stack);
	rs_stack_tell(t, stack2);
	if (kind <= RS_OBJECT_SEM)
		rs_frames_lock(t, obj, stack);
	/* A program that breaks a rule in a loop must not keep the bell ringing. */
	if (!s || s->misuses++ < 64)
		RS_EMIT_URGENT(t, MISUSE, misuse, obj, (uint8_t)kind, (uint8_t)what, (uint32_t)result, stack, stack2, aux, other);
	else
		RS_EMIT(t, MISUSE, misuse, obj, (uint8_t)kind, (uint8_t)what, (uint32_t)result, stack, stack2, aux, other);
}

/* --- end of a thread ------------------------------------------------------------------------------------------------------------------ */

/* Whether a thread's end gives obj up: a robust mutex that it owns, whose next owner is told and comes after all that the thread did. */
static bool left_to_next(const struct rs_thread *t, uintptr_t obj, unsigned kind)
{
	enum { ROBUST = 16, TID_MASK = 0x3fffffff };
	pthread_mutex_t m;
	return kind == RS_OBJECT_MUTEX && rs_read_safely(&m, obj, sizeof m) && m.__data.__kind & ROBUST && ((uint32_t)m.__data.__lock & TID_MASK) == t->tid;
}

void rs_sync_thread_end(struct rs_thread *t)
{
	struct rs_sync_state *s = rs_sync_of(t);
	/* else the process ends: then it may hold what it likes, other threads run on, and this one runs its destructors */
	bool ends = t->end_rounds >= PTHREAD_DESTRUCTOR_ITERATIONS;
	held_purge(t);
	if (t->held_count) {
		uint32_t n = t->held_count, sent = tail_entries(t, n, RS_HOLDS_WORDS);
		tail_seen(t, n);
		settle(t);
		uint64_t *w = rs_reserve(t, RS_EV_HOLDS, RS_HOLDS_WORDS + 2 * sent);
		if (w) {
			rs_put_holds(w, sent);
			put_tail(w + RS_HOLDS_WORDS, t, n, sent);
			rs_commit(t);
		}
		for (uint32_t i = 0; ends && i < n; i++) {
			unsigned kind = RS_INFO_KIND(t->held[i].info);
			if (left_to_next(t, t->held[i].obj, kind))
				rs_releasing(t, t->held[i].obj, kind, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK);
			else if (still_held(t, t->held[i].obj, kind))
				rs_misuse(t, t->held[i].obj, kind, RS_MISUSE_EXIT_HOLDING_LOCK, 0, 0, rs_held_stack_at(t, i), 0, 0);
		}
	}
	if (!ends)
		return;
	/* The next thread gets the same stack, and what it has there are new objects. (The first thread's stack is nobody else's.) */
	if (t->stack_hi > t->stack_lo && t->tid != (uint32_t)RS_SYS0(SYS_getpid)) {
		t->held_count = 0;
		t->slot->held_count = 0;
		rs_sync_memory_gone(t, t->stack_lo, t->stack_hi - t->stack_lo, 0);
	}
	if (!s)
		return;
	if (t->held && !rs_held_in_slot(t)) { /* a list that grew */
		struct rs_held_slot *big = t->held;
		uint32_t cap = t->held_cap;
		t->held_cap = RS_HELD_FIRST;
		t->held = t->slot->held;
		rs_os_unmap(big, cap * sizeof *big);
	}
	__atomic_store_n(&s->ended, 1, __ATOMIC_RELEASE);
}
