/* sharekey.c: protection keys, and what threads may touch (share.h). Intel SDM vol. 3, 4.6.2; pkeys(7).
 *
 * No two threads have one key: what one of them touched of the other's would not be seen. A thread without a key owns nothing: what it touches is shared.
 *
 * Nobody can change another thread's rights. So a key is taken only from a thread that is in a call that waits, made with all memory open (rs_share_before): such a one says that it is away, and asks, before
 * it gives itself rights to its key again, whether the key is still its own (rs_share_back). All rights that were kept while code of the program could run in between are too old by then and are
 * not given back as they are: those that a handler returns to (rs_share_leave), and those around the agent's calls (rs_share_restore).
 *
 * Whose key is taken: of those away for AWAY_LEAST it is who is so longest. What that costs, calls of pkey_mprotect for what he had, may be a DUTY-th of all time; until that has passed who wants a key has none. */
#include "share.h"
#include "race_core.h"
#include <cpuid.h>

enum { KEYS = 16, PKRU_FEATURE = 9, DENY = 1, BOTH = 3, DUTY = 20, AWAY_LEAST = 1 << 6 /* ticks: 1 to 4 ms */, TICK = 16 /* 2^16 of the processor's counter */ };
#define AWAY (1ull << 63)
#define SINCE (AWAY - (1ull << 32))

/* 0: nobody's; else its thread's number, and, while that is away, AWAY and since when. */
static struct key { uint64_t word; bool ours; } __attribute__((aligned(64))) keys[KEYS];
static uint64_t not_before; /* what the processor's counter says when a key may be taken again */
/* closed: PKRU while code of the program runs; 0: everything is open. mine: the thread's key, or what was its key until it asks; 0: it has none. */
RS_TLS union { struct { uint32_t closed, mine; }; uint64_t both; } own;
RS_TLS uint32_t me;       /* the thread's number, if it has a key */
RS_TLS bool stripped;     /* its key was taken once: there may be blocks that are STRIPPED */
RS_TLS uintptr_t opened;  /* the outermost RS_OPENS; 0: there is none */
RS_TLS bool loose;        /* what is shared is open, while code may run that nobody is told of */
static uint32_t at_pkru; /* in an XSAVE area */
/* The thread's alternate stack as long as the program has set none. A handler starts with key 0 alone: if the program's stack lies in watched memory (coroutines) its first push faults, and that fault
 * needs another stack. */
RS_TLS stack_t spare;
enum { SPARE = 256 << 10 };

bool rs_share_keys(void)
{
	unsigned a, b, c, d;
	enum { OSPKE = 1 << 4 };
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(c & OSPKE) || !__get_cpuid_count(0xd, PKRU_FEATURE, &a, &b, &c, &d) || a < 4)
		return false;
	at_pkru = b;
	unsigned n = 0;
	for (;;) {
		long k = RS_SYS2(SYS_pkey_alloc, 0, 0);
		if (k <= 0 || k >= KEYS)
			break;
		keys[k].ours = true;
		rs_share.deny |= (uint32_t)DENY << 2 * k;
		rs_share.key = (uint8_t)k;
		n++;
	}
	keys[rs_share.key].word = UINT32_MAX;
	return n >= 2;
}

void rs_share_keys_free(void)
{
	for (int k = 1; k < KEYS; k++)
		if (keys[k].ours) {
			RS_SYS1(SYS_pkey_free, k);
			keys[k].ours = false;
		}
	rs_share.deny = 0;
}

static uint32_t all_but(uint8_t key) { return rs_share.deny & ~((uint32_t)BOTH << 2 * key); }

static uint64_t away_now(uint32_t number) { return AWAY | (share_counter() >> TICK << 32 & SINCE) | number; }

/* A handler may do the same at any point of it, and have another key afterwards. */
void rs_share_back(void)
{
	for (;;) {
		uint64_t had = __atomic_load_n(&own.both, __ATOMIC_RELAXED), none = (uint32_t)had ? rs_share.deny : 0;
		uint32_t k = (uint32_t)(had >> 32);
		if (!k)
			return;
		uint64_t w = __atomic_load_n(&keys[k].word, __ATOMIC_RELAXED);
		if (RS_LIKELY(w == me))
			return;
		if ((uint32_t)w == me) {
			if (__atomic_compare_exchange_n(&keys[k].word, &w, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return;
		} else {
			stripped = true;
			__atomic_compare_exchange_n(&own.both, &had, none, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}

void rs_share_go(uint32_t rights)
{
	uint32_t k = own.mine;
	uint64_t w = me;
	/* Who comes here with fewer rights is a handler that nobody closed for: what it returns to has been seen by nobody. */
	if (k && own.closed && !(rights >> 2 * k & BOTH))
		__atomic_compare_exchange_n(&keys[k].word, &w, away_now(me), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Whose key goes, or who ends, and its time. */
struct leaving { uint32_t number; uint16_t rest; };

static void strip(struct share_block *b, void *arg)
{
	const struct leaving *l = arg;
	if (b->state != SHARE_PRIVATE || b->owner != l->number)
		return;
	if (rs_share_tag(b, SHARE_STRIPPED, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
	else
		rs_share_rest_count(b->rest = l->rest, 1);
}

/* A key that was another's, and is now that thread's. */
static uint8_t take(uint32_t number)
{
	uint64_t now = share_counter(), longest = AWAY_LEAST, had = 0;
	uint8_t best = 0;
	for (uint8_t k = 1; k < KEYS; k++) {
		uint64_t w = __atomic_load_n(&keys[k].word, __ATOMIC_RELAXED), age = (((now >> TICK << 32) - w) & SINCE) >> 32;
		if (keys[k].ours && w & AWAY && age >= longest && age < SINCE >> 33) {
			longest = age;
			best = k;
			had = w;
		}
	}
	if (!best || now < not_before || !__atomic_compare_exchange_n(&keys[best].word, &had, number, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return 0;
	struct leaving from = {(uint32_t)had, rs_share_rest((uint32_t)had)};
	rs_share_each(strip, &from);
	rs_share_heap_strip(from.number, best, from.rest);
	rs_share_lent_leave(from.number);
	uint64_t then = share_counter();
	not_before = then + DUTY * (then - now);
	__atomic_fetch_add(&rs_counters->share_keys_taken, 1, __ATOMIC_RELAXED);
	return best;
}

static uint8_t have(uint32_t number, bool takes)
{
	uint8_t got = 0;
	rs_share_back();
	if (own.mine || !own.closed)
		return (uint8_t)own.mine;
	for (uint8_t k = 1; !got && k < KEYS; k++)
		if (keys[k].ours && keys[k].word == 0) {
			__atomic_store_n(&keys[k].word, number, __ATOMIC_RELAXED);
			got = k;
		}
	if (!got && takes)
		got = take(number);
	if (!got || !keys[got].ours) /* what was taken could not be tagged: nothing is watched any more */
		return 0;
	me = number;
	own.mine = got;
	own.closed = all_but(got);
	return got;
}

uint8_t rs_share_key_mine(uint32_t number) { return have(number, true); }
uint8_t rs_share_key_spare(uint32_t number) { return have(number, false); }

bool rs_share_key_free(void)
{
	for (uint8_t k = 1; k < KEYS; k++)
		if (keys[k].ours && __atomic_load_n(&keys[k].word, __ATOMIC_RELAXED) == 0)
			return true;
	return false;
}

uint8_t rs_share_key_held(void)
{
	rs_share_back();
	return own.closed ? (uint8_t)own.mine : 0;
}

uint32_t rs_share_closed(void) { return own.closed; }

/* --- open and closed ------------------------------------------------------------------------------------------------------------------------ */

/* What it does meanwhile may order what it did before, and what others do may order what it does afterwards: both are taken for ordered. */
static void pass_over(void)
{
	if (rs_live_threads > 1)
		rs_race_amnesty();
}

void rs_share_loosen(void)
{
	if (!loose)
		pass_over();
	loose = true;
}

/* Gives the calling thread those rights, but none to a key that was taken from it meanwhile. */
static inline void give(uint32_t rights, bool shared)
{
	uint32_t now;
	do {
		rs_share_back();
		now = __atomic_load_n(&own.closed, __ATOMIC_RELAXED);
		uint32_t want = rights | (shared ? now & ~((uint32_t)BOTH << 2 * rs_share.key) : now);
		if (share_rights() != want)
			share_set_rights(want);
	} while (RS_UNLIKELY(now != __atomic_load_n(&own.closed, __ATOMIC_RELAXED))); /* a handler came in between */
}

void rs_share_restore(uint32_t rights)
{
	if (rights)
		give(rights, true);
	else
		share_set_rights(0);
}

void rs_share_close(void)
{
	give(0, false);
	if (RS_UNLIKELY(loose)) {
		loose = false;
		pass_over();
	}
}

bool rs_share_opened(uintptr_t sp) { return sp < opened; }

void rs_share_open(struct rs_opened *o)
{
	o->did = true;
	o->outer = opened > (uintptr_t)o ? opened : 0;
	if (!o->outer)
		opened = (uintptr_t)o;
	share_set_rights(0);
}

void rs_share_shut(struct rs_opened *o)
{
	if (o->outer)
		return;
	opened = 0;
	rs_share_close();
}

uintptr_t rs_share_enter_handler(void)
{
	uintptr_t was = opened;
	opened = 0;
	rs_share_close();
	return was;
}

void rs_share_leave_handler(uintptr_t was)
{
	opened = was;
	if (was)
		share_set_rights(0);
}

/* --- threads ---------------------------------------------------------------------------------------------------------------------------------- */

RS_TLS uint32_t spawning, closed_before; /* calls that nest; what is closed behind them */

void rs_share_spawn(bool begins)
{
	if (begins && spawning++ == 0) {
		rs_share_back(); /* the child has this thread's variables */
		closed_before = own.closed;
		own.closed = 0;
		if (rs_share_on)
			share_set_rights(0);
	} else if (!begins && --spawning == 0) {
		own.closed = rs_share_on ? closed_before : 0;
		if (rs_share_on)
			share_set_rights(own.closed);
	}
}

const stack_t *rs_share_spare(void) { return spare.ss_sp ? &spare : NULL; }

static void spare_begin(void)
{
	stack_t now;
	if (spare.ss_sp || RS_SYS2(SYS_sigaltstack, NULL, &now) < 0 || !(now.ss_flags & SS_DISABLE) || !(spare.ss_sp = rs_os_map(SPARE)))
		return;
	spare.ss_size = SPARE;
	spare.ss_flags = 0;
	RS_SYS2(SYS_sigaltstack, &spare, NULL);
}

static void spare_end(void)
{
	static const stack_t none = {.ss_flags = SS_DISABLE};
	stack_t now;
	if (!spare.ss_sp || RS_SYS2(SYS_sigaltstack, NULL, &now) < 0 || now.ss_flags & SS_ONSTACK)
		return;
	if (now.ss_sp == spare.ss_sp)
		RS_SYS2(SYS_sigaltstack, &none, NULL);
	rs_os_unmap(spare.ss_sp, SPARE);
	spare.ss_sp = NULL;
}

void rs_share_thread_begin(void)
{
	if (!rs_share.base)
		return;
	own.mine = 0;
	stripped = false;
	if (rs_share_on)
		spare_begin();
	opened = 0;
	loose = false;
	own.closed = rs_share.deny; /* none where nothing is watched any more */
	share_set_rights(own.closed);
}

static void leave_one(struct share_block *b, void *arg)
{
	const struct leaving *l = arg;
	if ((b->state == SHARE_PRIVATE || b->state == SHARE_STRIPPED) && b->owner == l->number) {
		if (rs_share_tag(b, SHARE_UNOWNED, rs_share.key) < 0)
			rs_share_tag(b, SHARE_OPEN, 0); /* its key will be another's */
		else
			rs_share_rest_count(b->rest = l->rest, 1);
	}
	if (b->state == SHARE_UNOWNED && (b->first == l->number || b->owner == l->number))
		b->first = 0;
}

void rs_share_thread_end(uint32_t number)
{
	if (!rs_share_on)
		return;
	rs_share_back();
	own.closed = 0;
	share_set_rights(0);
	spare_end();
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct leaving l = {number, rs_share_rest(number)};
	rs_share_each(leave_one, &l);
	rs_share_heap_end(number, own.mine, stripped, l.rest);
	rs_share_lent_leave(number);
	if (own.mine)
		__atomic_store_n(&keys[own.mine].word, 0, __ATOMIC_RELAXED);
	own.mine = 0;
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

enum { SOFTWARE = 464, MAGIC = 0x46505853, HEADER = 512 }; /* struct _fpx_sw_bytes; the header's first word is XSTATE_BV */

static char *area_of(ucontext_t *uc)
{
	char *area = (char *)uc->uc_mcontext.fpregs;
	return area && *(uint32_t *)(area + SOFTWARE) == MAGIC && *(uint64_t *)(area + SOFTWARE + 8) >> PKRU_FEATURE & 1 ? area : NULL;
}

void rs_share_leave(ucontext_t *uc)
{
	char *area = area_of(uc);
	rs_share_back();
	if (!area || !(*(uint64_t *)(area + HEADER) >> PKRU_FEATURE & 1))
		return; /* all was open */
	uint32_t *had = (uint32_t *)(area + at_pkru);
	if (*had)
		*had |= rs_share.deny;
}

bool rs_share_set_frame(ucontext_t *uc, uint32_t pkru)
{
	char *area = area_of(uc);
	if (!area)
		return false;
	*(uint64_t *)(area + HEADER) |= 1ull << PKRU_FEATURE;
	*(uint32_t *)(area + at_pkru) = pkru;
	return true;
}
