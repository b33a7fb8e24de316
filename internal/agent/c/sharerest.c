/* sharerest.c: sharing that ends, and what goes from one thread to the next (share.h).
 *
 * What a thread has for its own is withdrawn from it at its releases (it rests). All that its owner did untold comes before those, so where who touches it next knows of the release nothing is to be pardoned:
 * it is shared from then on, and no access of it was lost.
 *
 * A page that is shared is lent to a thread that alone accessed it for long: then its accesses cost nothing. What was told of the page is kept, so when another touches it, which shares it again,
 * races with what was told are found as before; atomics are told at all times (rs_share_heap_atomic), so that what went untold in between are movs, which order nothing for certain. Not found is a race
 * with bytes that the thread accessed while it had the page, and in that way never before. Each time that a page comes back it must be asked for twice as often before it is lent again.
 *
 * Nothing rests where all keys are taken: what rests and whose owner has lost its key meanwhile is shared, with a pardon, when that touches it. What a thread loses with its key knows since when, too: all of it is one pardon.
 *
 * What resting costs: the owner takes a fault where it touches that again. So a release does this only when what all threads' took, faults included, is a DUTY-th of the time that has passed; and memory that was taken
 * back n times rests each 2^n-th time only, SHARE_NEVER of them never: a stack, on which the kernel must be able to put a signal's frame.
 *
 * Ground rules: as share.c. */
#include "share.h"
#include "race_core.h"

enum { RESTS = 1 << 12, DUTY = 20, FAULT = 4 /* what the kernel's part of a fault costs, in what ours does */ };

static struct { uint64_t epoch; uint32_t users; } rests[RESTS]; /* a thread's time by the detector; free if there are no users */
static uint32_t last;
static uint64_t not_before; /* what the processor's counter says when a thread's memory may rest again */
RS_TLS uint32_t round_of;   /* how often the thread's has */

uint16_t rs_share_rest(uint32_t number)
{
	const struct race_thread *t = rs_race_of(number);
	for (uint32_t i = 0; t && i < RESTS; i++) {
		last = last + 1 < RESTS ? last + 1 : 1;
		if (rests[last].users == 0) {
			rests[last].epoch = t->ended ? t->end : race_load(&t->quick.epoch);
			return (uint16_t)last;
		}
	}
	return 0;
}

void rs_share_rest_count(uint16_t rest, int more)
{
	if (rest)
		rests[rest].users += (uint32_t)more;
}

/* A thread knows what it did itself, but others may not: what it did there may have released something to them. */
bool rs_share_rest_known(uint16_t rest, uint32_t number)
{
	const struct race_thread *t = rest && number ? rs_race_of(number) : NULL;
	uint64_t e = rests[rest].epoch;
	if (rest && race_load(&rs_race_floor[race_slot(e)]) >= race_time(e))
		return true;
	return t && t->slot != race_slot(e) && race_knows(t, e);
}

bool rs_share_ended(uint32_t number)
{
	const struct race_thread *t = rs_race_of(number);
	return !t || t->ended;
}

/* Locked. */
static void charge(uint64_t now, uint64_t cost)
{
	uint64_t from = not_before > now ? not_before : now;
	__atomic_store_n(&not_before, from + cost, __ATOMIC_RELAXED);
}

void rs_share_took_back(uint64_t since)
{
	charge(share_counter(), DUTY * FAULT * (share_counter() - since));
}

struct resting { uint32_t number; uint16_t rest; uintptr_t sp; };

static void rest_one(struct share_block *b, void *arg)
{
	const struct resting *r = arg;
	if (b->state != SHARE_PRIVATE || b->owner != r->number || !rs_share_rests(b->again, round_of) || r->sp - rs_share_address(b) < rs_share_bytes(b))
		return;
	if (rs_share_tag(b, SHARE_RESTING, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
	else
		rs_share_rest_count(b->rest = r->rest, 1);
}

void rs_share_alone(uint32_t number, uint64_t page)
{
	uintptr_t p = page << SHARE_PAGE_BITS;
	if (!rs_share_on || !(rs_share_bits(p) & SHARE_JUDGED) || rs_in_vfork() || rs_sandboxed)
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block(p);
	if (rs_share_on && rs_share_is_heap(p))
		rs_share_heap_lend(p, number);
	else if (rs_share_on && b)
		rs_share_lend(b, p, number);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

void rs_share_release(uint32_t number)
{
	uint64_t now = share_counter();
	if (!rs_share_on || now < __atomic_load_n(&not_before, __ATOMIC_RELAXED) || rs_in_vfork() || rs_sandboxed)
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	uint8_t key = rs_share_on && now >= not_before && rs_share_key_free() ? rs_share_key_held() : 0;
	struct resting r = {number, key ? rs_share_rest(number) : 0, (uintptr_t)__builtin_frame_address(0)};
	if (r.rest) {
		round_of++;
		rs_share_each(rest_one, &r);
		rs_share_heap_rest(number, key, round_of, r.rest, r.sp);
		__atomic_fetch_add(&rs_counters->share_rests, 1, __ATOMIC_RELAXED);
	}
	if (key) {
		uint64_t then = share_counter();
		charge(then, DUTY * (then - now));
	}
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}
