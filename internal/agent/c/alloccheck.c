/* alloccheck.c: a look at all blocks with guard bytes, while other threads may run.
 *
 * Ground rules that bite here: the OS only through os.h, nothing allocates; nothing is written but the allocator's locks. All of these are held, so that no memory is given back and no span
 * made or dropped meanwhile; threads go on without them for a while, from their stacks of free blocks.
 *
 * What must never be told is a block that is being handed out or freed at this moment. A block whose last word says that it is out has its pattern, so that a wrong byte there is the program's, if word and pattern were
 * read without the allocator in between: of which each heap's count of entries (seq) tells. A block without such a word may be one that is about to be handed out: it is one that is out if at one moment no thread
 * was in the allocator, and the block on no stack and in no quarantine. Of what is torn by a fork rs_guard_look tells nothing. */
#include "alloc_core.h"

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)

/* How often threads entered and left the allocator; *inside: some are in it. */
static uint64_t entries(bool *inside)
{
	uint64_t sum = 0;
	unsigned odd = 0;
	for (uint32_t id = 1; id < T.heaps; id++) {
		uint32_t seq = __atomic_load_n(&T.heap[id]->seq, __ATOMIC_ACQUIRE);
		sum += seq;
		odd |= seq & 1;
	}
	*inside = odd;
	return sum;
}

static bool kept_back(uintptr_t p)
{
	unsigned class = (V.unit[unit_index(p)] & 0xff) - 1u;
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_alloc_heap *h = T.heap[id];
		if (class < RS_ALLOC_CLASSES)
			for (const uintptr_t *at = h->bin[class].bottom, *top = LOAD(h->bin[class].top); at < top; at++)
				if (LOAD(*at) == p)
					return true;
		const struct rs_quarantine *q = h->quarantine;
		for (uint32_t i = q ? LOAD(q->first) : 0, end = q ? LOAD(q->end) : 0; i != end; i++)
			if (LOAD(q->kept[i % RS_QUARANTINED].block) == p)
				return true;
	}
	return false;
}

enum { TRIES = 100 };

static void pause_a_little(void)
{
	if (!rs_sandboxed)
		RS_SYS0(SYS_sched_yield);
}

/* Is p out, and wrong, for certain? */
static bool certain(uintptr_t p, struct rs_alloc_wrong *w)
{
	for (unsigned i = 0; i < TRIES; i++) {
		bool inside, still;
		uint64_t before = entries(&inside);
		size_t n;
		RS_BARRIER();
		bool live = rs_guard_state(p, rs_guard_whole(p), &n) == RS_GUARD_LIVE;
		if (!rs_guard_look(p, w) || (!live && kept_back(p)))
			return false;
		RS_BARRIER();
		if (entries(&still) == before && (live || !inside))
			return true;
		pause_a_little();
	}
	return false;
}

static bool certain_freed(const struct rs_quarantine *q, uint32_t at, struct rs_alloc_wrong *w)
{
	for (unsigned i = 0; i < TRIES; i++) {
		bool inside;
		uint64_t before = entries(&inside);
		RS_BARRIER();
		struct rs_kept k = q->kept[at % RS_QUARANTINED];
		bool there = at - LOAD(q->first) < LOAD(q->end) - LOAD(q->first);
		RS_BARRIER();
		if (!there || !rs_alloc_has(k.block) || !rs_guard_look_freed(&k, w))
			return false;
		RS_BARRIER();
		if (entries(&inside) == before)
			return true;
		pause_a_little();
	}
	return false;
}

struct look { void (*found)(void *arg, const struct rs_alloc_wrong *w); void *arg; size_t left, count; };

static void look_at(struct look *l, uintptr_t p)
{
	struct rs_alloc_wrong w;
	l->left -= l->left != 0;
	if (RS_LIKELY(!rs_guard_look(p, &w)) || !certain(p, &w))
		return;
	l->count++;
	l->found(l->arg, &w);
}

static void look_at_span(struct look *l, uint32_t unit, unsigned class)
{
	const struct span *s = span_at(unit);
	uintptr_t p = unit_address(unit);
	for (unsigned i = 0; i + s->fresh < s->total && l->left; i++, p += T.size[class])
		if (rs_slab_out(p))
			look_at(l, p);
}

long rs_alloc_check(size_t most, void (*found)(void *arg, const struct rs_alloc_wrong *w), void *arg)
{
	enum { PATIENCE_MS = 200 };
	struct look l = {.found = found, .arg = arg, .left = most};
	if (!V.extra || !rs_alloc_still(PATIENCE_MS))
		return -1;
	for (uint32_t u = 0, end = (uint32_t)(V.limit >> RS_UNIT_BITS); u < end && l.left; u++) {
		unsigned word = V.unit[u], kind = word & 0xff;
		if (kind == 0 || word >> 8 || !V.owner[u / UNITS])
			continue;
		if (kind == RS_ALLOC_HUGE)
			look_at(&l, unit_address(u));
		else
			look_at_span(&l, u, kind - 1);
	}
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_quarantine *q = T.heap[id]->quarantine;
		for (uint32_t i = q ? LOAD(q->first) : 0, end = q ? LOAD(q->end) : 0; i != end && l.left; i++) {
			struct rs_kept k = q->kept[i % RS_QUARANTINED];
			struct rs_alloc_wrong w;
			l.left--;
			if (RS_LIKELY(!rs_alloc_has(k.block) || !rs_guard_look_freed(&k, &w)) || !certain_freed(q, i, &w))
				continue;
			l.count++;
			l.found(l.arg, &w);
		}
	}
	rs_alloc_go();
	return (long)l.count;
}

static bool kept_at(uintptr_t block, struct rs_kept *k)
{
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_quarantine *q = T.heap[id]->quarantine;
		for (uint32_t i = q ? LOAD(q->first) : 0, end = q ? LOAD(q->end) : 0; i != end; i++) {
			*k = q->kept[i % RS_QUARANTINED];
			RS_BARRIER();
			if (k->block == block && i - LOAD(q->first) < LOAD(q->end) - LOAD(q->first))
				return true;
		}
	}
	return false;
}

static struct rs_alloc_wrong as_freed(const struct rs_kept *k)
{
	return (struct rs_alloc_wrong){.block = k->block, .size = k->n, .known = true, .freed = true, .alloc_thread = rs_kept_alloc_thread(k), .free_thread = k->free_thread, .alloc_stack = k->alloc_stack, .free_stack = k->free_stack};
}

void rs_alloc_each_kept(bool (*fn)(const struct rs_alloc_wrong *w))
{
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_quarantine *q = T.heap[id]->quarantine;
		bool more = true;
		for (uint32_t i = q ? LOAD(q->end) : 0, first = q ? LOAD(q->first) : 0; i != first && more; i--) {
			const struct rs_kept *k = &q->kept[(i - 1) % RS_QUARANTINED];
			struct rs_alloc_wrong w = as_freed(k);
			more = !rs_alloc_has(k->block) || fn(&w);
		}
	}
}

bool rs_alloc_at(uintptr_t p, struct rs_alloc_wrong *w)
{
	uintptr_t block;
	size_t size, n;
	struct rs_kept k;
	if (!V.extra || !rs_alloc_block_of(p, &block, &size))
		return false;
	switch (rs_guard_state(block, rs_guard_whole(block), &n)) {
	case RS_GUARD_LIVE:
		rs_guard_look(block, w);
		return true;
	case RS_GUARD_GONE:
		if (!kept_at(block, &k))
			return false;
		*w = as_freed(&k);
		return true;
	default:
		return false;
	}
}
