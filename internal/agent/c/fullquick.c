/* fullquick.c: most accesses that are new in a thread's time: nothing waits to be told before them, they are made from a stack that was walked before, and the cell has room and nothing that races. What
 * full.c and the detector would come to for such a one in several steps is done here in one: the stack is compared with the one that this recipe had last, and its site had with it.
 *
 * Ground rules: as access.c's. Whatever is not so goes to full.c, with nothing done that full.c would not do again. */
#include "full.h"
#include "patch.h"
#include "share.h"

enum { RSP = 4, RBP = 5, MOST_DEPTH = 40 };

static inline struct rs_full_site *place_of(struct rs_full *m, uintptr_t ret, uintptr_t rsp, uint64_t obj)
{
	return &m->site[((ret ^ rsp << 20 ^ obj << 7) * 0x9e3779b97f4a7c15ull >> 40) % RS_FULL_SITES];
}

static inline struct rs_held_slot *held_of(struct rs_full *m, struct rs_full_site *s, uint32_t i) { return i ? &m->second[s - m->site] : &s->first; }

/* Of more locks than a site has places for. */
static __attribute__((noinline)) uint64_t sum_of_held(const struct rs_thread *t, uint32_t n)
{
	uint64_t h = n, factor = 0x9e3779b97f4a7c15ull;
	for (uint32_t i = 0; i < n; i++, factor *= 0xd1342543de82ef95ull)
		h += t->held[i].obj * factor + t->held[i].info * (factor ^ 0xff51afd7ed558ccdull);
	return h ^ h >> 32;
}

static inline bool same_held(const struct rs_thread *t, struct rs_full *m, struct rs_full_site *s)
{
	if (RS_UNLIKELY(s->held > RS_FULL_HELD))
		return s->first.obj == sum_of_held(t, s->held);
	for (uint32_t i = 0; i < s->held && i < RS_FULL_HELD; i++)
		if (t->held[i].obj != held_of(m, s, i)->obj || t->held[i].info != held_of(m, s, i)->info)
			return false;
	return true;
}

/* The stack is the one that the chain was made of. What lies at `at` lay on the thread's stack then, and so does it now. */
static inline bool same_chain(const struct rs_thread *t, const struct rs_full *m, const struct rs_full_site *s, uintptr_t rsp, uintptr_t rbp)
{
	const struct rs_full_chain *c = &m->chain[s->chain % RS_FULL_CHAINS];
	if (c->id != s->chain || c->rsp != rsp || c->number != t->number || c->modules != __atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE) || c->generation != rs_stack_generation || (s->has_rbp && s->rbp != rbp))
		return false;
	for (uint32_t i = c->n < RS_TRAIL ? c->n : RS_TRAIL; i-- > 0;)
		if (((const uint64_t *)rsp)[c->at[i]] != c->word[i])
			return false;
	return true;
}

/* The chain of the remembered stack; 0: it is another now. */
static __attribute__((noinline)) uint64_t chain_of(struct rs_thread *t, struct rs_full *m, const struct rs_access_context *c, const void *walk, uint32_t walked, uint32_t *has_rbp)
{
	struct rs_stack_words x;
	uint32_t modules = __atomic_load_n(&rs_modules_generation, __ATOMIC_ACQUIRE), number = t->number, generation = rs_stack_generation;
	uintptr_t rsp = c->gpr[RSP];
	unsigned n = rs_stack_words(t, walk, walked, c->site, rsp, c->gpr[RBP], rs_config.stack_depth, &x);
	if (!n)
		return 0;
	*has_rbp = x.rbp;
	uint64_t h = rsp;
	/* What lies further out than where the thread's own function returns to is the same as long as that is there, which is one of the words. */
	unsigned kept = 0;
	for (unsigned i = 0; i < n; i++)
		if (!i || rsp + 8ul * x.at[i] < t->outermost) {
			x.at[kept] = x.at[i];
			x.word[kept++] = x.word[i];
		}
	n = kept;
	for (unsigned i = 0; i < n; i++)
		h = (h ^ x.word[i] ^ x.at[i]) * 0x9e3779b97f4a7c15ull;
	struct rs_full_chain *at = &m->chain[h >> 54];
	_Static_assert(RS_FULL_CHAINS == 1 << (64 - 54), "the hash's upper bits choose a place");
	bool same = at->id && at->rsp == rsp && at->n == n && at->number == number && at->modules == modules && at->generation == generation;
	for (unsigned i = 0; i < n && same; i++)
		same = at->at[i] == x.at[i] && at->word[i] == x.word[i];
	if (same)
		return at->id;
	at->id = 0; /* a handler may come in between */
	RS_BARRIER();
	at->rsp = rsp;
	at->n = n;
	at->number = number;
	at->modules = modules;
	at->generation = generation;
	for (unsigned i = 0; i < n; i++) {
		at->at[i] = x.at[i];
		at->word[i] = x.word[i];
	}
	RS_BARRIER();
	return at->id = ++m->chains * RS_FULL_CHAINS | h >> 54;
}

static __attribute__((noinline)) uint32_t site_anew(struct rs_thread *t, struct rs_full *m, struct race_thread *r, struct rs_full_site *s, const struct rs_access_context *c, uintptr_t ret, uint64_t size, unsigned kind)
{
	const void *walk;
	uint32_t walked = rs_stack_remembered(t, c->site, c->gpr[RSP], c->gpr[RBP], rs_config.stack_depth, &walk), held = t->held_count, has_rbp = 0;
	uint64_t chain = walked ? chain_of(t, m, c, walk, walked, &has_rbp) : 0;
	if (!chain)
		return 0;
	s->ret = 0; /* a handler may come in between */
	RS_BARRIER();
	for (uint32_t i = 0; i < held && i < RS_FULL_HELD; i++)
		*held_of(m, s, i) = t->held[i];
	if (RS_UNLIKELY(held > RS_FULL_HELD))
		s->first.obj = sum_of_held(t, held);
	uint32_t stack = rs_stack_holding(t, walked), id;
	race_enter(r, (uintptr_t)__builtin_frame_address(0));
	id = rs_race_intern(r, c->site, size, stack, kind);
	race_leave(r);
	s->mark = *(const uint64_t *)ret;
	s->chain = chain;
	s->rbp = c->gpr[RBP];
	s->has_rbp = has_rbp;
	s->stack = stack;
	s->id = id;
	s->held = held;
	RS_BARRIER();
	s->ret = id ? ret : 0;
	return id;
}

bool rs_full_quick(const struct rs_access_context *c, uintptr_t ret)
{
	struct rs_thread *t = rs_thread_tls;
	unsigned shape = rs_tell_shape(ret), kind = shape & (READ | WRITE);
	uint64_t size = 1ull << (shape >> RS_SHAPE_SIZE), first;
	uintptr_t addr = c->addr[0];
	if (RS_UNLIKELY(!t || t->inside || !rs_active || rs_share_on || shape & (RS_SHAPE_ATOMIC | RS_SHAPE_FENCED) || rs_config.stack_depth - 1u >= MOST_DEPTH))
		return false;
	/* What is found here to be new without anything that races or orders passes a read that was put off, as in tell.c. */
	uint64_t deferred = rs_patch_pointers[RS_PATCH_THREAD_DEFERRED];
	if (RS_UNLIKELY(deferred && (!rs_tell_passes(ret) || (kind & WRITE && deferred != addr))))
		return false;
	struct rs_full *m = t->accesses;
	struct race_thread *r = t->race;
	if (RS_UNLIKELY(!m || !r || m->number != t->number || r->quick.number != t->number || m->busy || r->busy || m->waits.kind || m->epoch != &r->quick.epoch))
		return false;
	const struct rs_full_last *last = m->last;
	if (race_load(&last->cell->e[0]) != last->e || __atomic_load_n(&last->cell->places, __ATOMIC_RELAXED) || (addr & 4095) + size > 4096)
		return false;
	const struct race_page *g = race_page_at(addr >> 12);
	if (!g)
		return false;
	rs_full_keep_page(m, addr >> 12, g);
	m->last = &m->force; /* what a handler accesses comes to rs_full_take */
	m->busy = (uintptr_t)__builtin_frame_address(0);
	RS_BARRIER();
	struct rs_full_site *s = place_of(m, ret, c->gpr[RSP], t->held_count ? t->held[t->held_count - 1].obj : 0);
	uint32_t site = s->ret == ret && s->mark == *(const uint64_t *)ret && s->held == t->held_count && same_held(t, m, s) && same_chain(t, m, s, c->gpr[RSP], c->gpr[RBP]) ? s->id : site_anew(t, m, r, s, c, ret, size, kind);
	first = site ? rs_race_quick(r, g, addr, size, kind, site) : 0;
	if (first) {
		m->store.kind = 0;
		if (size > 8 || addr & (size - 1) || kind == (READ | WRITE)) /* no mov that an atomic could be accessed by */
			last = &m->none;
		else if (kind == READ) {
			rs_full_walked(m, addr, ret, s->stack);
			m->read = (struct rs_full_last){&g->cell[addr >> 3 & (CELLS - 1)], first, addr, ret};
			last = &m->read;
		} else {
			m->write.addr = addr;
			m->write.ret = ret;
			last = &m->write;
		}
	}
	RS_BARRIER();
	m->busy = 0;
	m->last = last;
	return first != 0;
}
