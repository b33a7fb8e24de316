/* full.c: memory accesses where the agent looks for races itself (rs_config.races): what tell.c did not find to be nothing new.
 *
 * All are told to the detector before they are made. So whoever sees what was written has a later time, if it looks again when it has: atomic instructions are told once more when they have been made, and reads that
 * may be an atomic's if anything changed until then, which is seen when the thread next accesses memory or tells anything; reads of which that cannot be seen are told then only. What the thread told before in its
 * time is nothing new as long as the shadow's cell has nobody else's accesses (FastTrack's same epoch), which tell.c looks at itself.
 *
 * Ground rules: as access.c's. */
#include "full.h"
#include "patch.h"
#include "share.h"
#include <errno.h>

enum { RSP = 4, RBP = 5 };
static const struct race_cell nothing;
static const uint64_t no_page = ~0ull; /* a number, of no page */
static const uint64_t no_epoch = ~0ull; /* of nobody: every access comes here */

static struct rs_full *full_of(struct rs_thread *t)
{
	struct rs_full *m = t->accesses;
	if (RS_UNLIKELY(!m)) {
		if (!(m = rs_os_map(sizeof *m))) {
			rs_notice(t, RS_NOTICE_NO_MEMORY, ENOMEM, sizeof *m);
			return NULL;
		}
		m->none.cell = m->force.cell = m->write.cell = &nothing;
		m->force.e = 1;
		for (unsigned log = 0; log < RS_FULL_SIZES - 1; log++)
			for (unsigned at = 0; at + (1u << log) <= 8; at++)
				m->mask[log][at] = (uint8_t)(((1u << (1u << log)) - 1) << at);
		for (unsigned i = 0; i < RS_FULL_PAGES; i++)
			m->page[i] = (const struct race_page *)&no_page;
		m->last = &m->force;
		m->epoch = &no_epoch;
		t->accesses = m;
	}
	if (RS_UNLIKELY(m->number != t->number)) {
		m->last = &m->force;
		m->waits.kind = m->store.kind = 0;
		m->busy = 0;
		m->number = t->number;
	}
	return m;
}

static bool unchanged(const struct rs_full_last *l) { return race_load(&l->cell->e[0]) == l->e && !__atomic_load_n(&l->cell->places, __ATOMIC_RELAXED); }

static struct touch touch_of(const struct rs_full_last *l, unsigned kind)
{
	unsigned shape = rs_tell_shape(l->ret);
	return (struct touch){.addr = l->addr, .pc = rs_tell_site(l->ret), .size = 1ull << (shape >> RS_SHAPE_SIZE), .ret = l->ret, .kind = (uint8_t)kind};
}

static inline unsigned walked_at(uintptr_t addr, uintptr_t ret) { return (unsigned)((addr ^ ret << 3) * 0x9e3779b97f4a7c15ull >> 40) % RS_FULL_WALKED; }

/* The stack that a read like this had in this time; 0: not remembered. A handler may write in between: then of one of the two. */
static uint32_t walked(const struct rs_full *m, const struct touch *a)
{
	unsigned i = walked_at(a->addr, a->ret);
	return m->walked[i].addr == a->addr && m->walked[i].ret == a->ret && m->walked[i].epoch == race_load(m->epoch) ? m->walked[i].stack : 0;
}

void rs_full_walked(struct rs_full *m, uintptr_t addr, uintptr_t ret, uint32_t stack)
{
	unsigned i = walked_at(addr, ret);
	m->walked[i].epoch = no_epoch;
	RS_BARRIER();
	m->walked[i].addr = addr;
	m->walked[i].ret = ret;
	m->walked[i].stack = stack;
	RS_BARRIER();
	m->walked[i].epoch = race_load(m->epoch);
}

/* What tell.c let pass last becomes what waits to be told, if it is a read that has to be looked at, or a store. */
static void settle(struct rs_full *m)
{
	const struct rs_full_last *l = m->last;
	m->last = &m->force;
	RS_BARRIER();
	if (l == &m->read) {
		m->store.kind = 0;
		if (!unchanged(l)) {
			m->waits = touch_of(l, READ);
			m->waits.stack = walked(m, &m->waits);
		}
	} else if (l == &m->write)
		m->store = touch_of(l, WRITE);
}

static void tell(struct rs_thread *t, const struct touch *a)
{
	if (rs_share_on && a->kind & (ATOMIC | FENCE))
		rs_share_atomic(a->kind & FENCE ? 0 : a->addr);
	rs_race_live_access(t, a->addr, a->size, (unsigned)a->kind | a->order | (a->fenced ? RS_RACE_FENCED : 0), a->pc, a->stack);
}

static uint32_t stack_of(struct rs_thread *t, const struct rs_access_context *c, unsigned kind)
{
	return rs_stack_holding(t, kind & CALLED ? rs_stack_called(t, c->next, c->site + 1, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth)
						 : rs_stack_here(t, c->site, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth));
}

static void fence(struct rs_thread *t, struct rs_full *m, const struct rs_access_context *c, bool nested)
{
	struct touch a = {.pc = c->site, .kind = FENCE};
	if (!nested && m->store.kind) { /* that it was told is long ago if it was nothing new */
		m->store.stack = stack_of(t, c, FENCE);
		tell(t, &m->store);
		m->store.kind = 0;
	}
	tell(t, &a);
}

static inline bool in_one_cell(const struct touch *a) { return a->size <= 8 && (a->addr & 7) + a->size <= 8; }

/* What could be an access of an atomic, as the detector has it. */
static inline bool is_mov(const struct touch *a)
{
	return (a->kind == READ || a->kind == WRITE) && a->size && a->size <= 8 && !(a->size & (a->size - 1)) && !(a->addr & (a->size - 1));
}

void rs_full_keep_page(struct rs_full *m, uint64_t number, const struct race_page *g)
{
	m->page[rs_full_page_at(number)] = g;
}

/* What tell.c may find from now on: the page, and what is known of the cell. Returns whether the access itself is. */
static bool remember(struct rs_full *m, struct rs_race_thread *r, const struct touch *a)
{
	uint64_t number = a->addr >> 12, e = race_load(&r->epoch);
	unsigned at = a->addr >> 3 & (RS_FULL_SEEN - 1), mask;
	struct rs_race_masks k;
	const struct race_page *g = race_page_at(number);
	if (!g)
		return false;
	rs_full_keep_page(m, number, g);
	const struct race_cell *c = &g->cell[a->addr >> 3 & (CELLS - 1)];
	uint64_t info = __atomic_load_n(&c->info[0], __ATOMIC_ACQUIRE), first = race_load(&c->e[0]);
	if (!in_one_cell(a) || !rs_race_masks(r, a->addr >> 3, &k))
		return false;
	m->seen[at].epoch = ~0ull;
	RS_BARRIER();
	m->seen[at].what = (uint64_t)a->addr >> 19 << 24 | (uint64_t)k.mov << 16 | (uint64_t)k.write << 8 | k.read;
	RS_BARRIER();
	m->seen[at].first = first;
	m->seen[at].info = info;
	RS_BARRIER();
	m->seen[at].epoch = e;
	mask = race_mask(a->addr >> 3, a->addr, a->addr + a->size);
	return !(mask & ~(unsigned)(!(a->kind & WRITE) ? k.read : is_mov(a) ? k.mov : k.write));
}

static bool known(struct rs_full *m, struct rs_race_thread *r, const struct touch *a)
{
	struct rs_race_masks k;
	bool all = remember(m, r, a);
	if (in_one_cell(a))
		return all;
	if (a->size > 64 || a->addr + a->size < a->addr)
		return false;
	for (uint64_t cell = a->addr >> 3; cell <= (a->addr + a->size - 1) >> 3; cell++)
		if (!rs_race_masks(r, cell, &k) || race_mask(cell, a->addr, a->addr + a->size) & ~(unsigned)(!(a->kind & WRITE) ? k.read : k.write))
			return false;
	return true;
}

static void tell_waiting(struct rs_thread *t, struct rs_full *m)
{
	struct touch a = m->waits;
	m->waits.kind = 0;
	RS_BARRIER();
	if (a.kind) {
		tell(t, &a);
		struct rs_race_thread *r = a.kind == READ ? rs_race_live_thread(t) : NULL;
		if (r)
			remember(m, r, &a);
	}
}

/* A read that is nothing new becomes the last one, if one cell has all of it; false: it does not. */
static bool last_read(struct rs_full *m, struct rs_race_thread *r, const struct touch *a)
{
	const struct race_page *g = race_page_at(a->addr >> 12);
	if (!a->ret || !in_one_cell(a) || !g)
		return false;
	const struct race_cell *c = &g->cell[a->addr >> 3 & (CELLS - 1)];
	m->read = (struct rs_full_last){c, race_load(&c->e[0]), a->addr, a->ret};
	return remember(m, r, a); /* and so it was when this was noted */
}

/* kind: with FENCED. nested: in a handler that interrupted this very function. Returns what tell.c is to look at next. */
static const struct rs_full_last *one(struct rs_thread *t, struct rs_full *m, const struct rs_access_context *c, struct touch a, unsigned kind, bool nested)
{
	a.kind = (uint8_t)(kind & (READ | WRITE | ATOMIC | REPEATED | CALLED));
	a.fenced = kind & FENCED;
	a.order = kind & ORDER;
	if (!(kind & (READ | WRITE)) || a.addr == 0 || a.size == 0)
		return &m->none;
	struct rs_race_thread *r = rs_race_live_thread(t);
	if (!r)
		return &m->none;
	m->epoch = &r->epoch;
	m->store.kind = 0;
	bool old = !(kind & (ATOMIC | FENCED)) && known(m, r, &a);
	if (!old)
		a.stack = stack_of(t, c, kind);
	if (nested) {
		tell(t, &a);
		return &m->none;
	}
	const struct rs_full_last *last = &m->none;
	if (!(kind & (WRITE | ATOMIC))) {
		/* One that cannot be an atomic's acquires nothing: that it comes early makes no difference. The others are told early where it can be seen whether anything changed until they were made. */
		bool early = !is_mov(&a) || (a.ret && in_one_cell(&a));
		if (!old && early) {
			rs_full_walked(m, a.addr, a.ret, a.stack);
			tell(t, &a);
		}
		if (!is_mov(&a)) {
			if (!old)
				remember(m, r, &a);
			return last;
		}
		if (early && last_read(m, r, &a))
			last = &m->read;
		else {
			if (!a.stack)
				a.stack = walked(m, &a);
			m->waits = a;
		}
	} else {
		if (!old) {
			tell(t, &a);
			remember(m, r, &a);
		}
		if (kind & ATOMIC && kind & READ && !(kind & NO_TAKE)) {
			a.kind = ATOMIC | DONE;
			m->waits = a;
		} else if (a.kind == WRITE)
			m->store = a;
	}
	return last;
}

/* A read that is followed by a write to its bytes, with nothing between the two but reads of the program's, is put off by its recipe (internal/access, pairs.go). It has been made by the time that anything else is told,
 * and whoever is told then, and finds something new that the detector must look at, has it told first, as has each event. Where the write and the reads in between find nothing that could order or race it makes no
 * difference, and it is dropped behind the write. */
static inline uint64_t *deferred(void) { return &rs_patch_pointers[RS_PATCH_THREAD_DEFERRED]; }

static __attribute__((noinline)) void tell_deferred(void)
{
	uint64_t *d = deferred();
	struct rs_access_context x = {.addr = {d[0]}, .site = rs_tell_site(d[1])};
	unsigned shape = rs_tell_shape(d[1]), kind = READ;
	struct touch a = {.addr = d[0], .pc = x.site, .size = 1ull << (shape >> RS_SHAPE_SIZE), .ret = d[1]};
	x.gpr[RSP] = d[2];
	x.gpr[RBP] = d[3];
	d[0] = 0;
	RS_BARRIER();
	rs_full_take(&x, &(struct accesses){.count = 1, .a = &a, .kind = &kind});
}

bool rs_full_where(struct rs_thread *t, struct rs_frame *out)
{
	const struct rs_full *m = t->accesses;
	const struct rs_access_context *c = m ? m->at : NULL;
	if (c)
		*out = (struct rs_frame){.pc = c->site + 1, .rsp = c->gpr[RSP], .rbp = c->gpr[RBP], .has_rbp = true};
	return c != NULL;
}

static void thread_wanted(void *arg) { *(struct rs_thread **)arg = rs_self(); }

void rs_full_take(const struct rs_access_context *c, const struct accesses *list)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(!t || t->inside))
		rs_vectors_kept(thread_wanted, &t);
	if (!t || !rs_active)
		return;
	/* A descriptor is no memory that could be shared. */
	if (rs_share_on && list->a[0].addr < RS_FD_PLACE && !rs_share_asked(t->number, list))
		return;
	struct rs_full *m = full_of(t);
	if (!m)
		return;
	if (RS_UNLIKELY(*deferred()))
		tell_deferred();
	/* On another stack than its own (an alternate one, a coroutine's), of which nobody says when another thread accesses it. */
	if (RS_UNLIKELY(c->gpr[RSP] - t->stack_lo >= t->stack_hi - t->stack_lo))
		t->frames = (struct rs_race_frames){rs_own_told, 0, 1};
	bool nested = m->busy && !rs_left_behind(t, m->busy, true);
	uintptr_t before = m->busy;
	const struct rs_full_last *last = &m->none;
	m->busy = (uintptr_t)__builtin_frame_address(0);
	m->at = NULL;
	RS_BARRIER();
	if (!nested) {
		settle(m); /* and what handlers access comes here */
		tell_waiting(t, m);
	}
	for (unsigned i = 0; i < list->count; i++) {
		if (i && !nested) /* not made yet: it is told as if it had found something new */
			tell_waiting(t, m);
		if (list->kind[i] & FENCE)
			fence(t, m, c, nested);
		else {
			m->at = nested ? NULL : c;
			RS_BARRIER();
			last = one(t, m, c, list->a[i], list->kind[i], nested);
			RS_BARRIER();
			m->at = NULL;
		}
	}
	RS_BARRIER();
	m->busy = nested ? before : 0;
	if (!nested)
		m->last = m->waits.kind ? &m->force : last;
}

void rs_full_event(struct rs_thread *t, unsigned id)
{
	struct rs_full *m = t->accesses;
	(void)id;
	if (m->number != t->number) {
		m->last = &m->force;
		return;
	}
	bool idle = !m->busy;
	if (RS_UNLIKELY(*deferred()) && idle && !t->emit_sp)
		tell_deferred();
	if (idle)
		settle(m);
	m->store.kind = 0;
	if (idle && !t->emit_sp)
		tell_waiting(t, m);
	if (idle)
		m->last = m->waits.kind ? &m->force : &m->none;
}

/* What is known of the access without a look at more than the cell's first point, as in tell.c. */
static inline bool known_at_once(const struct rs_full *m, uint64_t e, uintptr_t p, uint8_t mask, bool write)
{
	const struct race_page *g = race_page_at(p >> 12);
	if (!g)
		return false;
	const struct race_cell *c = &g->cell[p >> 3 & (CELLS - 1)];
	uint64_t info = __atomic_load_n(&c->info[0], __ATOMIC_ACQUIRE), first = race_load(&c->e[0]);
	unsigned at = p >> 3 & (RS_FULL_SEEN - 1);
	if (__atomic_load_n(&c->places, __ATOMIC_RELAXED) || __atomic_load_n(&c->lock, __ATOMIC_RELAXED) || g->number != p >> 12)
		return false;
	if ((first & EPOCH) == e && !(mask & ~(first >> MASK_BITS)) && (race_kind((uint8_t)info) == POINT_WRITE || (!write && race_kind((uint8_t)info) == POINT_READ)))
		return true;
	return m->seen[at].epoch == e && m->seen[at].first == first && m->seen[at].info == info && m->seen[at].what >> 24 == p >> 19 && !(mask & ~(m->seen[at].what >> (write ? 8 : 0)));
}

bool rs_full_at_once(uintptr_t p, size_t n, unsigned kind, uintptr_t pc, const uint64_t *fp)
{
	struct rs_thread *t = rs_thread_tls;
	struct rs_race_thread *r = t && !t->inside ? t->race : NULL;
	struct rs_full *m = r ? t->accesses : NULL;
	if (!m || r->number != t->number || m->number != t->number || n > 8 - (p & 7) || m->busy || m->waits.kind || m->last == &m->read || *deferred() || rs_race_inside(r))
		return false;
	uint8_t mask = (uint8_t)(((1u << n) - 1) << (p & 7));
	if (known_at_once(m, race_load(&r->epoch), p, mask, kind & WRITE))
		return true;
	struct touch a = {.addr = p, .size = n, .kind = (uint8_t)kind};
	struct rs_access_context x; /* what rs_full_where asks for */
	x.site = pc - 1;
	x.gpr[RSP] = (uintptr_t)fp + 16;
	x.gpr[RBP] = fp[0];
	m->last = &m->force; /* what a handler accesses comes to rs_full_take */
	m->store.kind = 0;
	m->epoch = &r->epoch;
	m->busy = (uintptr_t)__builtin_frame_address(0);
	m->at = &x;
	RS_BARRIER();
	if (!remember(m, r, &a)) {
		uint32_t stack = rs_stack_holding(t, rs_stack_here(t, x.site, x.gpr[RSP], x.gpr[RBP], rs_config.stack_depth));
		rs_race_access(r, p, n, kind, x.site, stack);
	}
	RS_BARRIER();
	m->at = NULL;
	m->busy = 0;
	return true;
}

void rs_full_fence(struct rs_thread *t, bool acquires, bool releases)
{
	struct rs_full *m = full_of(t);
	struct rs_race_thread *r = m ? rs_race_live_thread(t) : NULL;
	if (!r)
		return;
	if (!m->busy) {
		if (*deferred())
			tell_deferred();
		settle(m);
		m->store.kind = 0;
		tell_waiting(t, m);
	}
	rs_race_fence(r, acquires, releases);
}
