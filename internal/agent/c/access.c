/* access.c: memory accesses, as recipes in front of instructions tell them (internal/access).
 *
 * A thread tells an access once between two of its other events: what it does again to the same bytes teaches no detector anything (FastTrack's same epoch), unless
 * they are atomic; a read also when what it finds has changed, since a plain load may be one of an atomic, too. Writes and atomic instructions are told before they are made, so that whoever sees what was written has a later time; for the same reason reads
 * are told when they have been made, which is when the thread next tells anything, and atomic instructions are told to be done.
 * Runs between instructions of the program and in its signal handlers, on its stack: no system calls but those of the ring. */
#include "core.h"
#include <errno.h>

struct rs_access_context { uint64_t gpr[16], flags, site, next, addr[2], data, outer, info; }; /* recipe.Context */
enum { RCX = 1, RSP = 4, RBP = 5, DIRECTION = 1 << 10 };
/* Bits of the event's kind, and of a recipe's data, which has 16 bits for each access. */
enum { READ = 1, WRITE = 2, ATOMIC = 4, FENCE = 8, REPEATED = 16, DONE = 32, FENCED = 64 };

enum { CELLS = 4096, MOST = 8 }; /* an access of more cells is not remembered */
struct told { uintptr_t addr, pc; uint64_t size; uint32_t stack; uint8_t kind; bool known; }; /* known: told before, and only worth it if the bytes have changed */
struct memory {
	uint32_t number;           /* of the thread */
	uint32_t epoch;            /* its events of other kinds, counted from 1 on */
	uintptr_t busy;            /* where on the stack rs_access began; 0: it does not run */
	struct told waits;         /* a read, or an atomic instruction's end; kind 0: none */
	struct told store;         /* a plain store after which the thread accessed nothing else, for a fence that may follow */
	struct { uintptr_t number; uint64_t value; uint32_t epoch; uint8_t read, written; bool looked; } cell[CELLS]; /* of 8 bytes: which of them; what was in them, if anybody looked */
};

/* Cells that atomic instructions have accessed, hashed. Set before the first such instruction is made, so whoever sees what it wrote sees the bit. */
enum { ATOMIC_BITS = 19 };
static uint64_t atomics[1 << (ATOMIC_BITS - 6)];

static inline uint64_t scatter(uint64_t x) { return x * 0x9e3779b97f4a7c15ull; }

static inline bool is_atomic(uintptr_t cell)
{
	uint64_t h = scatter(cell) >> (64 - ATOMIC_BITS);
	return __atomic_load_n(&atomics[h >> 6], __ATOMIC_RELAXED) >> (h & 63) & 1;
}

static void now_atomic(uintptr_t cell)
{
	uint64_t h = scatter(cell) >> (64 - ATOMIC_BITS);
	if (!is_atomic(cell))
		__atomic_fetch_or(&atomics[h >> 6], 1ull << (h & 63), __ATOMIC_SEQ_CST);
}

static void tell(struct rs_thread *t, const struct told *a)
{
	RS_EMIT(t, ACCESS, access, a->addr, a->size, a->pc, a->stack, a->kind);
}

static inline uint64_t place_of(uintptr_t cell) { return scatter(cell) >> 52; }
_Static_assert(CELLS == 1 << (64 - 52), "the hash's upper bits choose a cell");

/* Whether the cell of a read that was told before, and made again just now, has another value than when this was asked last. */
static bool has_changed(struct memory *m, const struct told *a)
{
	uintptr_t c = a->addr >> 3;
	uint64_t at = place_of(c), v;
	if (m->cell[at].number != c)
		return true;
	v = __atomic_load_n((const uint64_t *)(c << 3), __ATOMIC_RELAXED);
	bool changed = !m->cell[at].looked || m->cell[at].value != v;
	m->cell[at].value = v;
	m->cell[at].looked = true;
	return changed;
}

/* unmade: perhaps the access was not made, and its memory must not be looked at. */
static void tell_waiting(struct rs_thread *t, struct memory *m, bool unmade)
{
	struct told a = m->waits;
	m->waits.kind = 0;
	RS_BARRIER();
	if (!a.kind)
		return;
	if (!a.known || (a.addr >> 3 == (a.addr + a.size - 1) >> 3 && (unmade || has_changed(m, &a))))
		tell(t, &a);
}

/* Whether it was told before, and that it is from now on. */
static bool is_known(struct memory *m, uintptr_t addr, uint64_t size, unsigned kind)
{
	uintptr_t first = addr >> 3, last = (addr + size - 1) >> 3;
	bool known = true;
	if (last - first >= MOST)
		return false;
	for (uintptr_t c = first; c <= last; c++) {
		uint8_t mask = 0xff;
		if (c == first)
			mask &= (uint8_t)(0xff << (addr & 7));
		if (c == last)
			mask &= (uint8_t)(0xff >> (7 - ((addr + size - 1) & 7)));
		uint64_t at = place_of(c);
		if (m->cell[at].number != c || m->cell[at].epoch != m->epoch) {
			m->cell[at].epoch = 0; /* a handler may come in between */
			RS_BARRIER();
			m->cell[at].number = c;
			m->cell[at].read = m->cell[at].written = m->cell[at].looked = 0;
			RS_BARRIER();
			m->cell[at].epoch = m->epoch;
		}
		if (is_atomic(c)) {
			known = false;
		} else if (kind & WRITE) {
			known = known && (m->cell[at].written & mask) == mask;
			m->cell[at].written |= mask;
		} else {
			known = known && ((m->cell[at].written | m->cell[at].read) & mask) == mask;
			m->cell[at].read |= mask;
		}
	}
	return known;
}

static uint32_t stack_of(struct rs_thread *t, const struct rs_access_context *c)
{
	return rs_stack_here(t, c->site, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth);
}

/* nested: in a handler that interrupted this very function. */
static void one(struct rs_thread *t, struct memory *m, const struct rs_access_context *c, unsigned i, bool nested)
{
	unsigned kind = c->data >> 16 * i & 0xffff;
	struct told a = {.addr = c->addr[i], .pc = c->site, .size = c->info >> 32 * i & 0xffff, .kind = (uint8_t)(kind & (READ | WRITE | ATOMIC | FENCE))};
	if (kind & FENCE) {
		if (!nested && m->store.kind) {
			for (uintptr_t cell = m->store.addr >> 3; cell <= (m->store.addr + m->store.size - 1) >> 3; cell++)
				now_atomic(cell);
			tell(t, &m->store);
		}
		a.addr = a.size = 0;
		tell(t, &a);
		m->store.kind = 0;
		return;
	}
	if (kind & REPEATED) {
		if (c->gpr[RCX] == 0)
			return;
		if (c->flags & DIRECTION)
			a.addr -= a.size * (c->gpr[RCX] - 1);
		a.size *= c->gpr[RCX];
	}
	if (!(kind & (READ | WRITE)) || a.addr == 0 || a.size == 0)
		return;
	m->store.kind = 0;
	if (kind & (ATOMIC | FENCED))
		for (uintptr_t cell = a.addr >> 3; cell <= (a.addr + a.size - 1) >> 3; cell++)
			now_atomic(cell);
	else if (!nested && is_known(m, a.addr, a.size, kind)) {
		if (kind == WRITE)
			m->store = a, m->store.stack = stack_of(t, c);
		else if (kind == READ) {
			a.known = true;
			m->waits = a;
		}
		return;
	}
	kind &= ~(unsigned)FENCED;
	a.stack = stack_of(t, c);
	if (nested) {
		tell(t, &a);
		return;
	}
	if (kind == READ) {
		m->waits = a;
		return;
	}
	tell(t, &a);
	if (kind & ATOMIC) {
		a.kind = ATOMIC | DONE;
		m->waits = a;
	} else if (kind == WRITE)
		m->store = a;
}

void rs_access(const struct rs_access_context *c)
{
	struct rs_thread *t = rs_self();
	if (!t || !rs_active)
		return;
	struct memory *m = t->accesses;
	if (RS_UNLIKELY(!m)) {
		if (!(m = rs_os_map(sizeof *m))) {
			rs_notice(t, RS_NOTICE_NO_MEMORY, ENOMEM, sizeof *m);
			return;
		}
		t->accesses = m;
	}
	if (RS_UNLIKELY(m->number != t->number)) {
		m->waits.kind = m->store.kind = 0;
		m->busy = 0;
		m->epoch++;
		m->number = t->number;
	}
	bool nested = m->busy && !rs_left_behind(t, m->busy, true);
	uintptr_t before = m->busy;
	m->busy = (uintptr_t)__builtin_frame_address(0);
	RS_BARRIER();
	if (!nested)
		tell_waiting(t, m, false);
	one(t, m, c, 0, nested);
	if (c->data >> 16) {
		if (!nested) /* not made yet: it is told as if it had found something new */
			tell_waiting(t, m, true);
		one(t, m, c, 1, nested);
	}
	RS_BARRIER();
	m->busy = nested ? before : 0;
}

void rs_access_event(struct rs_thread *t, unsigned id)
{
	struct memory *m = t->accesses;
	if (m->number != t->number)
		return;
	m->epoch++;
	m->store.kind = 0;
	if (!m->busy && !t->emit_sp)
		tell_waiting(t, m, id == RS_EV_SIGNAL_ENTER);
}
