/* raceevent.c: what each event orders: the table of internal/race (sync.go, thread.go, memory.go), which TestAgentEvents holds it against, event by event.
 *
 * This process alone is seen. What comes through other processes may come from our own threads; so once there may be others that are watched, all channels count as one, as
 * objects do that processes share. */
#include "race_core.h"

enum what { AN_OBJECT, A_KEY, A_HANDLER, A_FUTEX, A_CHANNEL, AN_ACTION, A_THREADS_SIGNAL, A_PROCESSS_SIGNAL, OF_GUARD };
struct object { uint64_t id; uint32_t what, kind, next, count, phase; bool shared; struct race_stamp w, r; };
struct phase { uint32_t arrived, uses; struct race_stamp s; };
enum { BUCKETS = 1 << 14, PAGES = 1 << 12, MAX_OBJECTS = 1 << 21, CHANNELS = 1 << 15, SHARED = 256 };
static struct race_pool objects = {.size = sizeof(struct object), .shift = 10}, phases = {.size = sizeof(struct phase), .shift = 8};
static struct { uint32_t lock, head; } bucket[BUCKETS];
static uint32_t on_page[PAGES], shared_lock, phase_lock, process_id, channels;
static struct race_stamp shared;     /* of all objects that processes share */
static struct race_stamp sent;       /* of channels and signals while there were no others */
static bool others;                  /* there may be other watched processes */
static struct { uint64_t lo, hi; } mapped[SHARED]; /* shared mappings */
static uint32_t mapped_count;
uint32_t rs_race_loads;
static bool mapped_lost;             /* some are not remembered: every object may be shared */

static inline unsigned hash(uint64_t id, uint32_t what) { return (unsigned)((id ^ (uint64_t)what << 57) * 0x9e3779b97f4a7c15ull >> 50); }
static inline struct object *object(uint32_t i) { return race_at(&objects, i); }

static bool in_shared_memory(uint64_t addr)
{
	bool in = mapped_lost;
	for (uint32_t i = 0; i < mapped_count && !in; i++)
		in = mapped[i].lo <= addr && addr < mapped[i].hi;
	return in;
}

/* phase_lock is held. */
static void leave_phase(uint32_t i)
{
	struct phase *p = race_at(&phases, i);
	if (i && --p->uses == 0) {
		rs_race_drop(&p->s);
		rs_race_put(&phases, i);
	}
}

static void drop_phase(uint32_t i)
{
	if (i && rs_race_lock(&phase_lock)) {
		leave_phase(i);
		rs_race_unlock(&phase_lock);
	}
}

static void remove(unsigned b, uint64_t id, uint32_t what);

/* A channel is not known to be gone: others may have it, and who closes the last descriptor is not told. So of more than there should be the oldest of the bucket goes, and what it told everybody knows from then on. */
static void oldest_goes(unsigned b)
{
	uint32_t oldest = 0;
	for (uint32_t i = bucket[b].head; i; i = object(i)->next)
		if (object(i)->what == A_CHANNEL)
			oldest = i;
	if (!oldest)
		return;
	rs_race_floor_stamp(&object(oldest)->w);
	rs_race_floor_stamp(&object(oldest)->r);
	remove(b, object(oldest)->id, A_CHANNEL);
}

/* The object, of a bucket that is locked. kind 0: whatever it is. fresh: a new one in its place. NULL: no memory. */
static struct object *find(unsigned b, uint64_t id, uint32_t what, uint32_t kind, bool fresh)
{
	uint32_t i = bucket[b].head;
	while (i && (object(i)->id != id || object(i)->what != what))
		i = object(i)->next;
	if (i && !fresh && (!kind || object(i)->kind == kind))
		return object(i);
	if (!i) {
		if (what == A_CHANNEL && __atomic_load_n(&channels, __ATOMIC_RELAXED) >= CHANNELS)
			oldest_goes(b);
		if (objects.next >= MAX_OBJECTS || !(i = rs_race_get(&objects)))
			return NULL;
		*object(i) = (struct object){.id = id, .what = what, .next = bucket[b].head};
		bucket[b].head = i;
		if (what == AN_OBJECT)
			__atomic_fetch_add(&on_page[id >> 12 & (PAGES - 1)], 1, __ATOMIC_SEQ_CST);
		if (what == A_CHANNEL)
			__atomic_fetch_add(&channels, 1, __ATOMIC_RELAXED);
	}
	struct object *o = object(i);
	rs_race_drop(&o->w);
	rs_race_drop(&o->r);
	drop_phase(o->phase);
	o->kind = kind;
	o->count = o->phase = 0;
	o->shared = what == AN_OBJECT && in_shared_memory(id);
	return o;
}

static void remove(unsigned b, uint64_t id, uint32_t what)
{
	for (uint32_t *link = &bucket[b].head; *link; link = &object(*link)->next)
		if (object(*link)->id == id && object(*link)->what == what) {
			uint32_t i = *link;
			struct object *o = object(i);
			*link = o->next;
			rs_race_drop(&o->w);
			rs_race_drop(&o->r);
			drop_phase(o->phase);
			if (what == AN_OBJECT)
				__atomic_fetch_sub(&on_page[id >> 12 & (PAGES - 1)], 1, __ATOMIC_SEQ_CST);
			if (what == A_CHANNEL)
				__atomic_fetch_sub(&channels, 1, __ATOMIC_RELAXED);
			rs_race_put(&objects, i);
			return;
		}
}

static void forget_object(uint64_t addr)
{
	unsigned b = hash(addr, AN_OBJECT);
	if (!rs_race_lock(&bucket[b].lock)) {
		rs_race_amnesty();
		return;
	}
	remove(b, addr, AN_OBJECT);
	rs_race_unlock(&bucket[b].lock);
}

void rs_race_drop_objects(uint64_t lo, uint64_t hi)
{
	if (hi - lo > 1ull << 24) { /* a look at each of a table is cheaper */
		for (unsigned b = 0; b < BUCKETS; b++) {
			if (!bucket[b].head || !rs_race_lock(&bucket[b].lock))
				continue;
			for (uint32_t i = bucket[b].head, next; i; i = next) {
				next = object(i)->next;
				if (object(i)->what == AN_OBJECT && lo <= object(i)->id && object(i)->id < hi)
					remove(b, object(i)->id, AN_OBJECT);
			}
			rs_race_unlock(&bucket[b].lock);
		}
		return;
	}
	for (uint64_t a = lo; a < hi;) {
		uint64_t end = (a | 4095) + 1;
		if (__atomic_load_n(&on_page[a >> 12 & (PAGES - 1)], __ATOMIC_ACQUIRE))
			for (uint64_t at = a; at < end && at < hi; at++)
				if (bucket[hash(at, AN_OBJECT)].head)
					forget_object(at);
		a = end;
	}
}

static void give_shared(struct race_thread *t)
{
	if (!rs_race_lock(&shared_lock)) {
		rs_race_amnesty();
		return;
	}
	rs_race_give(&shared, t);
	rs_race_unlock(&shared_lock);
}

/* By a channel or a signal: a process that is made later may bring it back. */
static void give_sent(struct race_thread *t)
{
	if (!rs_race_lock(&shared_lock)) {
		rs_race_amnesty();
		return;
	}
	rs_race_give(others ? &shared : &sent, t);
	rs_race_unlock(&shared_lock);
}

static void take_both(struct race_thread *t, bool of_shared, bool of_sent)
{
	if (!rs_race_lock(&shared_lock)) {
		rs_race_amnesty();
		return;
	}
	if (of_shared)
		rs_race_take(t, &shared, false);
	if (of_sent)
		rs_race_take(t, &sent, false);
	rs_race_unlock(&shared_lock);
}

static void take_shared(struct race_thread *t) { take_both(t, true, others); }

bool rs_race_object_shared(uint64_t addr, uint32_t kind)
{
	unsigned b = hash(addr, AN_OBJECT);
	if (in_shared_memory(addr))
		return true;
	if (!rs_race_lock(&bucket[b].lock))
		return true; /* so nothing is said of it */
	uint32_t i = bucket[b].head;
	while (i && (object(i)->id != addr || object(i)->what != AN_OBJECT))
		i = object(i)->next;
	bool is = i && object(i)->kind == kind && object(i)->shared;
	rs_race_unlock(&bucket[b].lock);
	return is;
}

/* What t did comes before whoever takes the object. */
static void give(struct race_thread *t, uint32_t what, uint64_t id, uint32_t kind, unsigned mode)
{
	unsigned b = hash(id, what);
	if (!rs_race_lock(&bucket[b].lock)) {
		rs_race_amnesty();
		return;
	}
	struct object *o = find(b, id, what, kind, false);
	bool away = !o || o->shared;
	if (!away)
		rs_race_give_later(mode == RS_MODE_SHARED ? &o->r : &o->w, t);
	rs_race_unlock(&bucket[b].lock);
	if (away)
		give_shared(t);
}

static void take(struct race_thread *t, uint32_t what, uint64_t id, uint32_t kind, unsigned mode)
{
	unsigned b = hash(id, what);
	if (!rs_race_lock(&bucket[b].lock)) {
		rs_race_amnesty();
		return;
	}
	struct object *o = find(b, id, what, kind, false);
	bool away = !o || o->shared;
	if (!away) {
		rs_race_take(t, &o->w, false);
		if (mode != RS_MODE_SHARED)
			rs_race_take(t, &o->r, false);
	}
	rs_race_unlock(&bucket[b].lock);
	if (away)
		take_shared(t);
}

static void init(const uint64_t *w)
{
	uint64_t addr = rs_get_init_obj(w);
	unsigned b = hash(addr, AN_OBJECT), flags = rs_get_init_flags(w), kind = rs_get_init_kind(w);
	if (!rs_race_lock(&bucket[b].lock)) {
		rs_race_amnesty();
		return;
	}
	struct object *o = find(b, addr, AN_OBJECT, kind, !(flags & RS_OBJ_FLAG_STATIC));
	if (o) {
		o->shared = o->shared || flags & (RS_OBJ_FLAG_PSHARED | RS_OBJ_FLAG_NAMED);
		if (kind == RS_OBJECT_BARRIER)
			o->count = rs_get_init_value(w);
	}
	rs_race_unlock(&bucket[b].lock);
}

/* --- barriers: all arrivals of a phase come before all departures of it ---------------------------------------------------- */

static void arrive(struct race_thread *t, const uint64_t *w)
{
	uint64_t addr = rs_get_barrier_arrive_obj(w);
	unsigned b = hash(addr, AN_OBJECT);
	uint32_t count = rs_get_barrier_arrive_count(w);
	if (!rs_race_lock(&bucket[b].lock)) {
		rs_race_amnesty();
		return;
	}
	struct object *o = find(b, addr, AN_OBJECT, RS_OBJECT_BARRIER, false);
	bool away = !o || o->shared, locked = rs_race_lock(&phase_lock);
	leave_phase(locked ? t->phase : 0);
	t->phase = 0;
	if (!away && locked) {
		if (!count)
			count = o->count;
		struct phase *p = o->phase ? race_at(&phases, o->phase) : NULL;
		if (p && count && p->arrived >= count) {
			leave_phase(o->phase);
			o->phase = 0;
			p = NULL;
		}
		if (!p && (o->phase = rs_race_get(&phases)) != 0) {
			p = race_at(&phases, o->phase);
			p->uses = 1; /* the object's */
		}
		if (p) {
			p->arrived++;
			p->uses++;
			t->phase = o->phase;
			rs_race_give(&p->s, t);
		}
	}
	if (locked)
		rs_race_unlock(&phase_lock);
	rs_race_unlock(&bucket[b].lock);
	if (away)
		give_shared(t);
	else if (!t->phase)
		rs_race_amnesty();
}

static void leave(struct race_thread *t)
{
	if (!t->phase) {
		take_shared(t);
		return;
	}
	if (!rs_race_lock(&phase_lock)) {
		rs_race_amnesty();
		return;
	}
	rs_race_take(t, &((struct phase *)race_at(&phases, t->phase))->s, false);
	leave_phase(t->phase);
	t->phase = 0;
	rs_race_unlock(&phase_lock);
}

/* --- signals ------------------------------------------------------------------------------------------------------------------ */

static void signal_taken(struct race_thread *t, uint32_t sig, int32_t code)
{
	enum { USER = 0, QUEUE = -1, TKILL = -6 };
	take(t, A_THREADS_SIGNAL, (uint64_t)t->quick.number << 32 | sig, 0, 0);
	take(t, A_PROCESSS_SIGNAL, (uint64_t)process_id << 32 | sig, 0, 0);
	if (others)
		take_shared(t);
	bool fault = sig == 4 || sig == 5 || sig == 7 || sig == 8 || sig == 11; /* SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV: of an instruction of its own */
	if (code != USER && code != QUEUE && code != TKILL && !fault)
		rs_race_take_all(t); /* a timer, a child, input: who asked for it is not told */
}

/* --- threads, processes ----------------------------------------------------------------------------------------------------------- */

static void thread_create(struct race_thread *t, uint32_t child)
{
	if (!child || child == t->quick.number)
		return;
	if (!rs_race_common && t->slot == 0)
		rs_race_common = race_time(race_load(&t->quick.epoch));
	t->tmp.of = 0;
	rs_race_give(&t->tmp, t);
	struct race_thread *c = rs_race_new(child, &t->tmp);
	if (c)
		c->created = true;
	else
		rs_race_amnesty();
}

static void thread_start(const uint64_t *w)
{
	uint32_t self = rs_get_thread_start_self(w);
	uint64_t lo = rs_get_thread_start_stack_lo(w), hi = rs_get_thread_start_stack_hi(w);
	struct race_thread *t = rs_race_of(self);
	if (!self)
		return;
	if (!t || t->ended) {
		if (!(t = rs_race_new(self, NULL))) {
			rs_race_amnesty();
			return;
		}
		rs_race_take_all(t);
	}
	t->started = true;
	if (self != 1 && hi > lo)
		rs_race_replace(lo, hi);
}

static void join(struct race_thread *t, uint32_t target)
{
	struct race_thread *o = rs_race_of(target);
	if (o && o != t) {
		rs_race_thread_ends(o);
		t->tmp.of = 0;
		rs_race_give(&t->tmp, o);
		rs_race_take(t, &t->tmp, false);
	} else if (rs_race_gone(target))
		rs_race_take_ended(t);
}

/* A child was made of which rs_race_fork_begins did not know: what it brought back up to here nobody took. */
static void process_alone_no_more(void)
{
	if (!others)
		rs_race_amnesty();
	others = true;
}

void rs_race_fork_begins(void) { others = true; }

/* Events that are not of a living thread alone. True: it was one. */
static bool of_process(uint32_t number, const uint64_t *w)
{
	struct race_thread *t, *o;
	switch ((uint8_t)w[0]) {
	case RS_EV_THREAD_CREATE:
		if ((t = rs_race_self(number)))
			thread_create(t, rs_get_thread_create_child(w));
		return true;
	case RS_EV_THREAD_CREATE_FAILED:
		if ((o = rs_race_of(rs_get_thread_create_failed_child(w))) && !o->started && !o->ended)
			rs_race_unborn(o);
		return true;
	case RS_EV_THREAD_START:
		thread_start(w);
		return true;
	case RS_EV_THREAD_EXIT:
		if ((t = rs_race_self(number)))
			rs_race_thread_ends(t);
		return true;
	case RS_EV_THREAD_JOIN:
		if ((t = rs_race_self(number)) && rs_get_thread_join_result(w) == 0)
			join(t, rs_get_thread_join_target(w));
		return true;
	case RS_EV_THREAD_CANCEL:
		t = rs_race_self(number);
		o = rs_race_of(rs_get_thread_cancel_target(w));
		if (t && o && o != t && !o->ended && rs_get_thread_cancel_result(w) == 0) {
			t->tmp.of = 0;
			rs_race_give(&t->tmp, t);
			rs_race_take(o, &t->tmp, false);
		}
		return true;
	case RS_EV_PROCESS:
		process_id = rs_get_process_pid(w);
		if (rs_get_process_parent_id(w))
			others = true;
		if (!rs_race_of(number ? number : 1))
			rs_race_new(number ? number : 1, NULL);
		return true;
	case RS_EV_FORK:
		process_alone_no_more();
		if ((t = rs_race_self(number)))
			give_shared(t);
		return true;
	case RS_EV_WAIT:
		if ((t = rs_race_self(number)))
			take_both(t, others, true); /* a signal of this process's may have ended the other, which nobody saw made if there are no others */
		return true;
	case RS_EV_PROCESS_END:
		return true;
	case RS_EV_INIT:
		if ((t = rs_race_self(number)))
			rs_race_object_access(t, w);
		init(w);
		return true;
	case RS_EV_DESTROY:
		if ((t = rs_race_self(number)))
			rs_race_object_access(t, w);
		if (rs_get_destroy_result(w) == 0)
			forget_object(rs_get_destroy_obj(w));
		return true;
	}
	return false;
}

/* --- memory ------------------------------------------------------------------------------------------------------------------------ */

static void shared_memory(uint64_t lo, uint64_t hi, bool is)
{
	if (!rs_race_lock(&shared_lock)) {
		mapped_lost = true;
		return;
	}
	for (uint32_t i = 0; i < mapped_count;) {
		uint64_t a = mapped[i].lo, b = mapped[i].hi;
		if (a >= hi || lo >= b) {
			i++;
			continue;
		}
		mapped[i] = mapped[--mapped_count];
		if (a < lo && mapped_count < SHARED)
			mapped[mapped_count].lo = a, mapped[mapped_count++].hi = lo;
		if (b > hi && mapped_count < SHARED)
			mapped[mapped_count].lo = hi, mapped[mapped_count++].hi = b;
		else if (b > hi)
			mapped_lost = true;
		i = 0;
	}
	if (is && mapped_count < SHARED)
		mapped[mapped_count].lo = lo, mapped[mapped_count++].hi = hi;
	else if (is)
		mapped_lost = true;
	rs_race_unlock(&shared_lock);
}

static void replace(uint64_t lo, uint64_t size, bool is_shared)
{
	uint64_t hi = lo + size < lo ? ~0ull : lo + size;
	if (!size)
		return;
	rs_race_replace(lo, hi);
	shared_memory(lo, hi, is_shared);
}

static void memory(struct race_thread *t, const uint64_t *w)
{
	enum { MAP_SHARED_KIND = 1, MAP_KIND = 0xf };
	switch ((uint8_t)w[0]) {
	case RS_EV_ALLOC:
		rs_race_alloc(t, rs_get_alloc_addr(w), rs_get_alloc_size(w), rs_get_alloc_stack(w));
		break;
	case RS_EV_FREE:
		rs_race_free(t, rs_get_free_addr(w), rs_get_free_stack(w), rs_get_free_kind(w));
		break;
	case RS_EV_MMAP:
		replace(rs_get_mmap_addr(w), rs_get_mmap_len(w), (rs_get_mmap_mflags(w) & MAP_KIND & ~2u) == MAP_SHARED_KIND);
		break;
	case RS_EV_FD_OPEN:
		replace(RS_FD_PLACE + 8ull * (uint32_t)rs_get_fd_open_fd(w), 8, false);
		break;
	case RS_EV_MUNMAP:
		replace(rs_get_munmap_addr(w), rs_get_munmap_len(w), false);
		break;
	case RS_EV_MREMAP:
		if (rs_get_mremap_addr(w) != rs_get_mremap_old(w))
			replace(rs_get_mremap_old(w), rs_get_mremap_old_len(w), false);
		break;
	case RS_EV_MODULE:
		if (rs_get_module_end(w) > rs_get_module_base(w))
			replace(rs_get_module_base(w), rs_get_module_end(w) - rs_get_module_base(w), false);
		if (t->quick.number != __atomic_load_n(&rs_race_loads, __ATOMIC_RELAXED))
			rs_race_give_others(t);
		break;
	}
}

/* The first byte of a guard is read by compiled code itself, which calls only if it is not set (Itanium C++ ABI 3.3.3): an acquire. */
static void guard(struct race_thread *t, uint64_t addr)
{
	uint32_t at[PLACES];
	rs_race_learn(t, addr, addr + 1, PLACE_ATOMIC);
	for (unsigned i = 0, n = rs_race_places(addr, addr + 1, PLACE_ATOMIC, at); i < n; i++)
		rs_race_place_give(at[i], t);
}

/* --- the table --------------------------------------------------------------------------------------------------------------------- */

static void of_thread(struct race_thread *t, const uint64_t *w)
{
	switch ((uint8_t)w[0]) {
	case RS_EV_ACQUIRE:
		if (rs_get_acquire_how(w) != RS_HOW_RECURSIVE)
			take(t, AN_OBJECT, rs_get_acquire_obj(w), rs_get_acquire_kind(w), rs_get_acquire_mode(w));
		break;
	case RS_EV_RELEASE:
		if (rs_get_release_how(w) != RS_HOW_RECURSIVE)
			give(t, AN_OBJECT, rs_get_release_obj(w), rs_get_release_kind(w), rs_get_release_mode(w));
		break;
	case RS_EV_COND_SIGNAL: give(t, AN_OBJECT, rs_get_cond_signal_cond(w), RS_OBJECT_COND, 0); break;
	case RS_EV_COND_WOKEN:
		if (rs_get_cond_woken_result(w) == 0)
			take(t, AN_OBJECT, rs_get_cond_woken_cond(w), RS_OBJECT_COND, 0);
		break;
	case RS_EV_BARRIER_ARRIVE: arrive(t, w); break;
	case RS_EV_BARRIER_LEAVE: leave(t); break;
	case RS_EV_SEM_POST: give(t, AN_OBJECT, rs_get_sem_post_obj(w), RS_OBJECT_SEM, 0); break;
	case RS_EV_SEM_WAIT: take(t, AN_OBJECT, rs_get_sem_wait_obj(w), RS_OBJECT_SEM, 0); break;
	case RS_EV_ONCE_BEGIN: take(t, AN_OBJECT, rs_get_once_begin_obj(w), rs_get_once_begin_kind(w), 0); break;
	case RS_EV_ONCE_END:
		if (rs_get_once_end_kind(w) == RS_OBJECT_GUARD)
			guard(t, rs_get_once_end_obj(w));
		give(t, AN_OBJECT, rs_get_once_end_obj(w), rs_get_once_end_kind(w), 0);
		break;
	case RS_EV_ONCE_SEEN: take(t, AN_OBJECT, rs_get_once_seen_obj(w), rs_get_once_seen_kind(w), 0); break;
	case RS_EV_FUTEX_WAKE: give(t, A_FUTEX, rs_get_futex_wake_obj(w), 0, 0); break;
	case RS_EV_FUTEX_WAIT:
		if (rs_get_futex_wait_result(w) == 0)
			take(t, A_FUTEX, rs_get_futex_wait_obj(w), 0, 0);
		break;
	case RS_EV_CHANNEL_RELEASE:
		give(t, A_CHANNEL, rs_get_channel_release_channel(w), 0, 0);
		give_sent(t);
		break;
	case RS_EV_CHANNEL_ACQUIRE:
		take(t, A_CHANNEL, rs_get_channel_acquire_channel(w), 0, 0);
		if (others)
			take_shared(t);
		break;
	case RS_EV_KEY_CREATE: give(t, A_KEY, rs_get_key_create_key(w), 0, 0); break;
	case RS_EV_KEY_DESTRUCTOR: take(t, A_KEY, rs_get_key_destructor_key(w), 0, 0); break;
	case RS_EV_ATEXIT_ADD: give(t, A_HANDLER, rs_get_atexit_add_fn(w), 0, 0); break;
	case RS_EV_ATEXIT_RUN: take(t, A_HANDLER, rs_get_atexit_run_fn(w), 0, 0); break;
	case RS_EV_SIGACTION: give(t, AN_ACTION, rs_get_sigaction_sig(w), 0, 0); break;
	case RS_EV_SIGNAL_SEND:
		if (rs_get_signal_send_target(w))
			give(t, A_THREADS_SIGNAL, (uint64_t)rs_get_signal_send_target(w) << 32 | rs_get_signal_send_sig(w), 0, 0);
		else
			give(t, A_PROCESSS_SIGNAL, (uint64_t)rs_get_signal_send_pid(w) << 32 | rs_get_signal_send_sig(w), 0, 0);
		give_sent(t);
		break;
	case RS_EV_SIGNAL_ENTER:
		take(t, AN_ACTION, rs_get_signal_enter_sig(w), 0, 0);
		signal_taken(t, rs_get_signal_enter_sig(w), (int32_t)rs_get_signal_enter_code(w));
		break;
	case RS_EV_SIGNAL_TAKEN: signal_taken(t, rs_get_signal_taken_sig(w), (int32_t)rs_get_signal_taken_code(w)); break;
	default: memory(t, w);
	}
}

void rs_race_event(uint32_t number, const uint64_t *w)
{
	uint8_t id = (uint8_t)w[0];
	if (id == RS_EV_ACCESS || id == RS_EV_STACK || id == RS_EV_STACK_HOLDING || id == RS_EV_PAD || id == RS_EV_RACE || id == RS_EV_FRAME || id == RS_EV_NOTICE)
		return;
	struct race_thread *t = rs_race_of(number);
	if (t && t->busy) { /* a handler that came in the middle of this */
		rs_race_amnesty();
		if (id == RS_EV_ALLOC && rs_get_alloc_size(w) < 1u << 30)
			rs_race_set_freed(rs_get_alloc_addr(w), rs_get_alloc_addr(w) + rs_get_alloc_size(w), false);
		return;
	}
	if (t)
		race_enter(t, (uintptr_t)__builtin_frame_address(0));
	if (t)
		t->store_size = 0;
	if (!of_process(number, w)) {
		struct race_thread *self = rs_race_self(number);
		if (self) {
			rs_race_object_access(self, w);
			of_thread(self, w);
		} else if (number && !t && !rs_race_gone(number))
			rs_race_amnesty(); /* more threads than there are clocks for */
	}
	if (t)
		race_leave(t);
}

/* The thread, in the detector; NULL: it is there already, or there is none. */
static struct race_thread *enter(uint32_t number, void *frame)
{
	struct race_thread *t = rs_race_self(number);
	if (!t || t->busy) {
		rs_race_amnesty();
		return NULL;
	}
	race_enter(t, (uintptr_t)frame);
	return t;
}

void rs_race_order(uint32_t number, uint64_t object_id, bool gives, bool takes, bool is_shared)
{
	struct race_thread *t = enter(number, __builtin_frame_address(0));
	if (!t)
		return;
	t->store_size = 0;
	if (takes)
		take(t, OF_GUARD, object_id, 0, is_shared ? RS_MODE_SHARED : RS_MODE_EXCLUSIVE);
	if (gives)
		give(t, OF_GUARD, object_id, 0, is_shared ? RS_MODE_SHARED : RS_MODE_EXCLUSIVE);
	race_leave(t);
}

void rs_race_lives(uint32_t number, uintptr_t addr, uint64_t size, uint32_t stack)
{
	struct race_thread *t = enter(number, __builtin_frame_address(0));
	if (!t)
		return;
	rs_race_adopt(t, addr, size, stack);
	race_leave(t);
}

void rs_race_usable(struct rs_race_thread *t, uintptr_t addr, uint64_t size)
{
	struct race_thread *self = (struct race_thread *)t;
	if (self->busy) { /* a handler that came in the middle of this */
		rs_race_amnesty();
		rs_race_set_freed(addr, addr + (size < 1u << 30 ? size : 1u << 30), false);
		return;
	}
	race_enter(self, (uintptr_t)__builtin_frame_address(0));
	rs_race_grow(addr, size);
	race_leave(self);
}

void rs_race_after_fork(uint32_t number)
{
	shared_lock = phase_lock = objects.lock = phases.lock = 0;
	for (unsigned b = 0; b < BUCKETS; b++) {
		bucket[b].lock = 0;
		for (uint32_t i = bucket[b].head; i; i = object(i)->next)
			object(i)->w = object(i)->r = (struct race_stamp){0};
	}
	shared = sent = (struct race_stamp){0};
	others = true;
	rs_race_threads_after_fork();
	rs_race_shadow_after_fork();
	rs_race_places_after_fork();
	rs_race_blocks_after_fork();
	rs_race_found_after_fork();
	rs_race_new(number, NULL);
}
