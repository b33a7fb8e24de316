/* access.c: memory accesses, as recipes in front of instructions tell them (internal/access).
 *
 * A thread tells an access once between two of its other events, or releases by atomic instructions: what it does again to the same bytes teaches no detector anything (FastTrack's same epoch), unless
 * they are atomic; a read also when what it finds has changed, since a plain load may be one of an atomic, too. Writes and atomic instructions are told before they are made, so that
 * whoever sees what was written has a later time; for the same reason reads are told when they have been made, which is when the thread next tells anything, and atomic instructions
 * are told to be done. What was told is noted twice: by bytes here (struct cell), and by address and size for tell.c, which finds there what need not come here.
 *
 * Runs between instructions of the program and in its signal handlers, on its stack, with its vector registers: they are saved where something else than this file, ring.c, stack.c,
 * unwind.c and os.c is called (rs_vectors_kept). */
#include "access.h"
#include "share.h"
#include <errno.h>

enum { RCX = 1, RSP = 4, RBP = 5, DIRECTION = 1 << 10 };
enum { CELL_PAGES = 8, CELLS = 512 << CELL_PAGES, MOST = 8 }; /* an access of more cells is not remembered */
struct cell { uintptr_t number; uint64_t value; uint32_t epoch; uint8_t read, written, moved; bool looked; }; /* 8 bytes: which; what was in them, if anybody looked. moved: written by a mov that may be an atomic's, and so order */
struct memory {
	struct rs_told told;
	uint64_t changes;          /* rs_access_changes as of `told` */
	uint32_t number;           /* of the thread */
	uint32_t epoch;            /* its events of other kinds and its releases, counted from 1 on */
	uint32_t turn;             /* told.stamp >> STAMP */
	uintptr_t busy;            /* where on the stack take() began; 0: it does not run */
	struct touch waits;        /* a read, or an atomic instruction's end; kind 0: none */
	struct touch store;        /* a plain store after which the thread accessed nothing else, for a fence that may follow */
	struct cell cell[CELLS];
	struct rs_lines *lines;    /* lines.c */
};

/* Cells that atomic instructions have accessed, hashed. Set before the first such instruction is made, so whoever sees what it wrote sees the bit. */
enum { ATOMIC_BITS = 19 };
static uint64_t atomics[1 << (ATOMIC_BITS - 6)];
uint64_t rs_access_changes = 1;

static inline uint64_t scatter(uint64_t x) { return x * 0x9e3779b97f4a7c15ull; }

static inline bool is_atomic(uintptr_t cell)
{
	uint64_t h = scatter(cell) >> (64 - ATOMIC_BITS);
	return __atomic_load_n(&atomics[h >> 6], __ATOMIC_RELAXED) >> (h & 63) & 1;
}

static void now_atomic(uintptr_t cell)
{
	uint64_t h = scatter(cell) >> (64 - ATOMIC_BITS);
	if (is_atomic(cell))
		return;
	__atomic_fetch_or(&atomics[h >> 6], 1ull << (h & 63), __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&rs_access_changes, 1, __ATOMIC_SEQ_CST);
}

static inline uintptr_t first_cell(const struct touch *a) { return a->addr >> 3; }
static inline uintptr_t last_cell(const struct touch *a) { return (a->addr + a->size - 1) >> 3; }

static bool any_atomic(const struct touch *a)
{
	for (uintptr_t c = first_cell(a); c <= last_cell(a); c++)
		if (is_atomic(c))
			return true;
	return false;
}

static void tell(struct rs_thread *t, const struct touch *a)
{
	RS_EMIT(t, ACCESS, access, a->addr, a->size, a->pc, a->stack, a->kind);
}

/* --- whose bytes are written --------------------------------------------------------------------------------------------------------- */

/* For each cell which thread has written to it, by pages, hashed: 0 nobody, SEVERAL. A thread writes to a cell for the first time in an epoch only after it is noted here. So if that was nobody or
 * I before my read and is the same when the read is made, then it found what I wrote myself, or what was there from the start: there is nothing to tell. */
enum { OWNER_PAGES = 14, SEVERAL = 0xffff };
static uint16_t (*owners)[512];

static uint16_t *owner_of(uintptr_t cell)
{
	return &owners[scatter(cell >> 9) >> (64 - OWNER_PAGES)][cell & 511];
}

static void make_owners(void)
{
	void *p = rs_os_map(sizeof *owners << OWNER_PAGES), *none = NULL;
	/* Who comes second loses address space, once. */
	if (p)
		__atomic_compare_exchange_n(&owners, (uint16_t(**)[512])&none, p, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void written_by(uint32_t number, const struct touch *a)
{
	uint16_t me = number < SEVERAL ? (uint16_t)number : SEVERAL;
	for (uintptr_t c = first_cell(a); owners && c <= last_cell(a); c++) {
		uint16_t *o = owner_of(c), was = __atomic_load_n(o, __ATOMIC_RELAXED);
		while (was != me && was != SEVERAL &&
			!__atomic_compare_exchange_n(o, &was, was ? SEVERAL : me, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			;
	}
}

/* Nobody but the thread has written to the cell. */
static bool is_own(uint32_t number, uintptr_t cell)
{
	uint16_t o = owners ? __atomic_load_n(owner_of(cell), __ATOMIC_RELAXED) : SEVERAL;
	return o == 0 || (o == number && o != SEVERAL);
}

/* The word of owners in which the cell's lies. */
static const uint64_t *owner_word(uintptr_t cell) { return (const uint64_t *)((uintptr_t)owner_of(cell) & -8ul); }

/* --- what tell.c finds ------------------------------------------------------------------------------------------------------------------ */

enum { STAMP = 48 }; /* the program's addresses have fewer bits */

static struct rs_told_entry *place_for(struct memory *m, const struct touch *a)
{
	unsigned table = (unsigned)__builtin_ctzll(a->size) + (a->kind & WRITE ? RS_TOLD_SIZES : 0);
	return &m->told.table[table][(a->addr << rs_told_shift[table] & (sizeof m->told.table[0] - 32)) / 32];
}

/* Whether the recipe's entry looks for it. */
static bool in_tables(const struct touch *a) { return a->ret && !(a->kind & ATOMIC) && a->size <= 16; }

static void note(struct memory *m, const struct touch *a, const uint64_t *watch, uint64_t value)
{
	struct rs_told_entry *e = place_for(m, a);
	e->key = 0;
	RS_BARRIER();
	e->watch = watch;
	e->value = value;
	e->ret = a->ret;
	RS_BARRIER();
	e->key = a->addr ^ m->told.stamp;
}

/* A read whose owner is asked for when it has been made; false: it is not the thread's own. */
static bool note_own(struct memory *m, const struct touch *a)
{
	uintptr_t c = first_cell(a);
	if (c != last_cell(a) || !is_own(m->number, c))
		return false;
	const uint64_t *word = owner_word(c);
	uint64_t v = __atomic_load_n(word, __ATOMIC_RELAXED);
	if (!is_own(m->number, c)) /* since v was read */
		return false;
	note(m, a, word, v);
	return true;
}

/* Nothing that is in the tables holds any more. */
static void turn(struct memory *m)
{
	if (++m->turn >> (64 - STAMP)) {
		rs_os_clear(m->told.table, sizeof m->told.table);
		m->turn = 1;
	}
	m->told.stamp = (uint64_t)m->turn << STAMP;
}

/* What was found in the tables last becomes what waits to be told, if it is a read that has to be looked at, or a store. */
static void settle(struct memory *m)
{
	struct rs_told_entry *e = m->told.last;
	m->told.last = &m->told.none;
	if (e == &m->told.none || e == &m->told.force)
		return;
	unsigned table = (unsigned)((size_t)(e - m->told.table[0]) / RS_TOLD_PLACES), shape = rs_tell_shape(e->ret);
	struct touch a = {.addr = e->key ^ m->told.stamp, .pc = rs_tell_site(e->ret), .size = 1ull << table % RS_TOLD_SIZES, .ret = e->ret, .known = true,
		.kind = shape & (READ | WRITE)};
	m->store.kind = 0;
	if (table >= RS_TOLD_SIZES) {
		if (a.kind == WRITE)
			m->store = a;
	} else if (e->watch != (const uint64_t *)(a.addr & -8ul)) {
		if (*e->watch != e->value && !note_own(m, &a))
			m->waits = a;
	} else
		m->waits = a;
}

/* --- telling ------------------------------------------------------------------------------------------------------------------------------ */

/* By pages, so that little of the table is touched where little is accessed. */
static inline uint64_t place_of(uintptr_t cell) { return scatter(cell >> 9) >> (64 - CELL_PAGES) << 9 | (cell & 511); }

/* Whether the cell of a read that was told before, and made again just now, has another value than when this was asked last; and notes it for tell.c. first: it was not told before. */
static bool has_changed(struct memory *m, const struct touch *a, bool first)
{
	uintptr_t c = first_cell(a);
	struct cell *in = &m->cell[place_of(c)];
	uint64_t v = __atomic_load_n((const uint64_t *)(c << 3), __ATOMIC_RELAXED);
	bool same = in->number == c && in->looked && in->value == v;
	if (in->number == c) {
		in->value = v;
		in->looked = true;
	}
	if (in->number == c && in->epoch == m->epoch && in_tables(a) && !is_atomic(c) && (first || a->known))
		note(m, a, (const uint64_t *)(c << 3), v);
	return !same;
}

/* unmade: perhaps the access was not made, and its memory must not be looked at. */
static void tell_waiting(struct rs_thread *t, struct memory *m, bool unmade)
{
	struct touch a = m->waits;
	m->waits.kind = 0;
	RS_BARRIER();
	if (!a.kind)
		return;
	bool one = first_cell(&a) == last_cell(&a), plain = a.kind == READ;
	if (!a.known) {
		if (plain && one && !unmade && !is_own(m->number, first_cell(&a)))
			has_changed(m, &a, true); /* what it has when it is told */
		tell(t, &a);
	} else if (one && (unmade || has_changed(m, &a, false) || any_atomic(&a)))
		tell(t, &a);
}

/* Whether it was told before, and that it is from now on. */
static bool is_known(struct memory *m, const struct touch *a)
{
	uintptr_t first = first_cell(a), last = last_cell(a);
	bool known = true, mov = a->kind == WRITE && a->size <= 8 && !(a->size & (a->size - 1)) && !(a->addr & (a->size - 1));
	if (last - first >= MOST)
		return false;
	for (uintptr_t c = first; c <= last; c++) {
		uint8_t mask = 0xff;
		if (c == first)
			mask &= (uint8_t)(0xff << (a->addr & 7));
		if (c == last)
			mask &= (uint8_t)(0xff >> (7 - ((a->addr + a->size - 1) & 7)));
		struct cell *in = &m->cell[place_of(c)];
		if (in->number != c || in->epoch != m->epoch) {
			in->epoch = 0; /* a handler may come in between */
			RS_BARRIER();
			in->number = c;
			in->read = in->written = in->moved = in->looked = 0;
			RS_BARRIER();
			in->epoch = m->epoch;
		}
		if (is_atomic(c)) {
			known = false;
		} else if (a->kind & WRITE) { /* one that is no mov does not stand for one */
			known = known && ((mov ? in->moved : in->written) & mask) == mask;
			in->written |= mask;
			in->moved |= mov ? mask : 0;
		} else {
			known = known && ((in->written | in->read) & mask) == mask;
			in->read |= mask;
		}
	}
	return known;
}

static uint32_t stack_of(struct rs_thread *t, const struct rs_access_context *c, unsigned kind)
{
	if (kind & CALLED)
		return rs_stack_called(t, c->next, c->site + 1, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth);
	return rs_stack_here(t, c->site, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth);
}

/* Whoever takes what the thread released just now knows nothing of what it does from here on: that is told again. */
static void released(struct memory *m)
{
	m->epoch++;
	turn(m);
}

static void fence(struct rs_thread *t, struct memory *m, const struct rs_access_context *c, bool nested)
{
	struct touch a = {.pc = c->site, .kind = FENCE};
	if (!nested && m->store.kind) {
		for (uintptr_t cell = first_cell(&m->store); cell <= last_cell(&m->store); cell++)
			now_atomic(cell);
		if (m->store.known)
			m->store.stack = stack_of(t, c, FENCE);
		tell(t, &m->store);
		m->store.kind = 0;
		released(m);
	}
	tell(t, &a);
}

/* kind: with FENCED. nested: in a handler that interrupted this very function. */
static void one(struct rs_thread *t, struct memory *m, const struct rs_access_context *c, struct touch a, unsigned kind, bool nested)
{
	a.kind = (uint8_t)(kind & (READ | WRITE | ATOMIC | REPEATED | CALLED));
	if (!(kind & (READ | WRITE)) || a.addr == 0 || a.size == 0)
		return;
	m->store.kind = 0;
	if (kind & WRITE)
		written_by(t->number, &a);
	if (kind & (ATOMIC | FENCED)) {
		for (uintptr_t cell = first_cell(&a); cell <= last_cell(&a); cell++)
			now_atomic(cell);
	} else if (!nested) {
		bool known = is_known(m, &a), noted = false, tables = in_tables(&a) && !any_atomic(&a);
		if (tables && kind == WRITE)
			note(m, &a, &m->told.none.value, 0);
		else if (tables && kind == READ)
			noted = note_own(m, &a);
		if (known) {
			a.known = true;
			if (kind == WRITE)
				m->store = a;
			else if (kind == READ && !noted)
				m->waits = a;
			return;
		}
	}
	a.stack = stack_of(t, c, kind);
	bool releases = kind & (ATOMIC | FENCED) || (kind == WRITE && any_atomic(&a));
	if (nested) {
		tell(t, &a);
		if (releases)
			released(m);
	} else if (kind == READ) {
		m->waits = a;
	} else {
		tell(t, &a);
		if (releases)
			released(m);
		if (kind & ATOMIC && kind & READ) {
			a.kind = ATOMIC | DONE;
			m->waits = a;
		} else if (kind == WRITE)
			m->store = a;
	}
}

/* --- entries ----------------------------------------------------------------------------------------------------------------------------- */

static void thread_wanted(void *arg) { *(struct rs_thread **)arg = rs_self(); }

static struct memory *memory_of(struct rs_thread *t)
{
	struct memory *m = t->accesses;
	if (RS_UNLIKELY(!m)) {
		if (!owners)
			make_owners();
		if (!(m = rs_os_map(sizeof *m))) {
			rs_notice(t, RS_NOTICE_NO_MEMORY, ENOMEM, sizeof *m);
			return NULL;
		}
		m->told.none.watch = &m->told.none.value;
		m->told.force.watch = &m->told.force.key;
		m->told.force.key = 1;
		m->told.last = &m->told.none;
		t->accesses = m;
	}
	if (RS_UNLIKELY(m->number != t->number)) {
		m->told.seen = 0;
		m->waits.kind = m->store.kind = 0;
		m->told.last = &m->told.none;
		m->busy = 0;
		m->epoch++;
		turn(m);
		m->number = t->number;
	}
	return m;
}

static void take(const struct rs_access_context *c, const struct accesses *list)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(!t || t->inside))
		rs_vectors_kept(thread_wanted, &t);
	if (!t || !rs_active)
		return;
	struct memory *m = memory_of(t);
	if (!m)
		return;
	bool nested = m->busy && !rs_left_behind(t, m->busy, true);
	uintptr_t before = m->busy;
	if (rs_config.lines) { /* seen stays 0: every access comes here. What a handler does that interrupted this is not counted. */
		if (nested)
			return;
		m->busy = (uintptr_t)__builtin_frame_address(0);
		RS_BARRIER();
		rs_lines_take(t, &m->lines, list);
		RS_BARRIER();
		m->busy = 0;
		return;
	}
	m->told.seen = 0; /* what handlers tell comes here */
	m->busy = (uintptr_t)__builtin_frame_address(0);
	RS_BARRIER();
	uint64_t changes = __atomic_load_n(&rs_access_changes, __ATOMIC_SEQ_CST);
	if (!nested) {
		settle(m);
		if (m->changes != changes) {
			turn(m);
			m->changes = changes;
		}
		tell_waiting(t, m, false);
	}
	for (unsigned i = 0; i < list->count; i++) {
		if (i && !nested) /* not made yet: it is told as if it had found something new */
			tell_waiting(t, m, true);
		if (list->kind[i] & FENCE)
			fence(t, m, c, nested);
		else
			one(t, m, c, list->a[i], list->kind[i], nested);
	}
	RS_BARRIER();
	m->busy = nested ? before : 0;
	if (!nested) {
		m->told.last = m->waits.kind ? &m->told.force : &m->told.none;
		RS_BARRIER();
		m->told.seen = m->changes;
	}
}

static void take_all(const struct rs_access_context *c, const struct accesses *list)
{
	if (!list->count)
		return;
	if (rs_config.races)
		rs_full_take(c, list);
	else
		take(c, list);
}

/* Apart: the list is large. */
static __attribute__((noinline)) void take_lanes(const struct rs_access_context *c)
{
	struct touch a[RS_LANES_MOST];
	unsigned kind[RS_LANES_MOST];
	struct accesses list = {.a = a, .kind = kind};
	rs_lanes(c, &list);
	take_all(c, &list);
}

/* All this runs on the program's stack, which natively needs no room for it: an interpreter may use up its first thread's at its start, to have it. What is accessed there is not told. */
enum { CRAMPED = 8192 };
static uint64_t not_told;

static bool cramped(const struct rs_access_context *c)
{
	struct rs_thread *t = rs_thread_tls;
	if (!t || RS_LIKELY((uintptr_t)c - t->stack_end >= CRAMPED))
		return false;
	__atomic_fetch_add(&not_told, 1, __ATOMIC_RELAXED);
	return true;
}

void rs_access_end(struct rs_thread *t)
{
	uint64_t n = __atomic_exchange_n(&not_told, 0, __ATOMIC_RELAXED);
	if (n)
		rs_notice(t, RS_NOTICE_STACK_SHORT, 0, n);
}

void rs_access(const struct rs_access_context *c)
{
	if (cramped(c))
		return;
	if (RS_UNLIKELY(c->data & RS_TAKES_OURS)) {
		rs_share_taken();
		return;
	}
	if (c->data & RS_LANES) {
		take_lanes(c);
		return;
	}
	struct touch touches[2] = {0};
	unsigned kinds[2];
	struct accesses list = {.count = c->data >> 16 ? 2 : 1, .a = touches, .kind = kinds};
	for (unsigned i = 0; i < list.count; i++) {
		struct touch *a = &list.a[i];
		list.kind[i] = c->data >> 16 * i & 0xffff;
		a->addr = c->addr[i];
		a->pc = c->site;
		a->size = c->info >> 32 * i & 0xffff;
		if (list.kind[i] & REPEATED) {
			if (c->flags & DIRECTION)
				a->addr -= a->size * (c->gpr[RCX] - 1);
			a->size *= c->gpr[RCX];
		}
	}
	take_all(c, &list);
}

void rs_access_told(struct rs_access_context *c, uintptr_t ret)
{
	if (cramped(c) || (rs_config.races && RS_LIKELY(rs_full_quick(c, ret))))
		return;
	unsigned shape = rs_tell_shape(ret), kind = (shape & (RS_SHAPE_READ | RS_SHAPE_WRITE | RS_SHAPE_ATOMIC)) | (shape & RS_SHAPE_FENCED ? FENCED : 0);
	struct touch a = {.addr = c->addr[0], .pc = c->site, .size = 1ull << (shape >> RS_SHAPE_SIZE), .ret = ret};
	take_all(c, &(struct accesses){.count = 1, .a = &a, .kind = &kind});
}

void rs_access_event(struct rs_thread *t, unsigned id)
{
	struct memory *m = t->accesses;
	if (rs_config.races) {
		rs_full_event(t, id);
		return;
	}
	if (rs_config.lines)
		return;
	m->told.seen = 0;
	RS_BARRIER();
	if (m->number != t->number)
		return;
	bool idle = !m->busy;
	if (idle)
		settle(m);
	m->epoch++;
	turn(m);
	m->store.kind = 0;
	if (idle && !t->emit_sp)
		tell_waiting(t, m, id == RS_EV_SIGNAL_ENTER);
	if (idle) {
		m->told.last = m->waits.kind ? &m->told.force : &m->told.none;
		m->changes = __atomic_load_n(&rs_access_changes, __ATOMIC_SEQ_CST);
		RS_BARRIER();
		m->told.seen = m->changes;
	}
}
