/* handle.c: which thread a pthread_t is of, while it lives and for a while after. Reading takes no lock as a rule, a thread's state is one word and changes
 * without; the lists change under a lock with signals blocked, since a thread that is interrupted may be held for long, and by whom it will be let go
 * (pthread_kill) asks here. Nodes never go back to the kernel. */
#include "core.h"
#include "thread.h"

enum { PER_CHUNK = 512, BUCKETS = 256, MAX_GONE = 4096 };

static struct rs_handle *bucket[BUCKETS], *free_handles;
static struct rs_handle *fresh, *fresh_end;      /* never used */
static struct rs_handle *gone_first, *gone_last; /* in the order in which they will be forgotten */
static struct rs_handle *going;                  /* GONE, and not in that list yet: pushed without the lock */
static struct rs_handle *ready;                  /* one free node, to be had without the lock */
static uint32_t gone_count;
static struct rs_lock lock;
static uint32_t version;                         /* odd while the lists change; for readers without the lock */

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)

static unsigned hash(uint64_t handle) { return (unsigned)((handle >> 6) * 0x9e3779b97f4a7c15ull >> 56) & (BUCKETS - 1); }

/* --- under the lock -------------------------------------------------------------------------------------------------------------- */

static struct rs_handle *find(uint64_t handle)
{
	for (struct rs_handle *h = bucket[hash(handle)]; h; h = h->next)
		if (h->handle == handle)
			return h;
	return NULL;
}

static void free_handle(struct rs_handle *h)
{
	__atomic_store_n(&h->handle, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&h->who, 0, __ATOMIC_RELAXED);
	h->next = free_handles;
	free_handles = h;
}

static void unlist(struct rs_handle *h)
{
	for (struct rs_handle **p = &bucket[hash(h->handle)]; *p; p = &(*p)->next)
		if (*p == h) {
			__atomic_store_n(p, h->next, __ATOMIC_RELAXED);
			break;
		}
	__atomic_fetch_and(&h->who, ~(uint64_t)LISTED, __ATOMIC_RELAXED);
	__atomic_store_n(&h->handle, 0, __ATOMIC_RELAXED);
}

static void forget_handle(struct rs_handle *h)
{
	unlist(h);
	/* One that is GONE is in a list, or will be in a moment. */
	uint64_t who = LOAD(h->who);
	while (!(who & GONE))
		if (__atomic_compare_exchange_n(&h->who, &who, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			free_handle(h); /* it ended without our noticing */
			return;
		}
}

static void put_in_line(struct rs_handle *h)
{
	h->older = NULL;
	if (gone_last)
		gone_last->older = h;
	else
		gone_first = h;
	gone_last = h;
	if (++gone_count <= MAX_GONE)
		return;
	h = gone_first;
	gone_first = h->older;
	gone_count--;
	if (LOAD(h->who) & LISTED)
		unlist(h);
	free_handle(h);
}

static struct rs_handle *take_free(void)
{
	struct rs_handle *h = free_handles;
	if (h) {
		free_handles = h->next;
		return h;
	}
	if (fresh == fresh_end) {
		if (!(fresh = fresh_end = rs_os_map(PER_CHUNK * sizeof *fresh)))
			return NULL;
		fresh_end += PER_CHUNK;
	}
	return fresh++;
}

static uint64_t take(void)
{
	uint64_t mask = rs_os_no_signals();
	rs_lock(&lock);
	__atomic_store_n(&version, version + 1, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return mask;
}

/* What can be done while the lock is held anyway is done now. */
static void give(uint64_t mask)
{
	for (struct rs_handle *h = __atomic_exchange_n(&going, NULL, __ATOMIC_ACQ_REL), *next; h; h = next) {
		next = h->older;
		put_in_line(h);
	}
	if (!LOAD(ready))
		__atomic_store_n(&ready, take_free(), __ATOMIC_RELEASE);
	__atomic_store_n(&version, version + 1, __ATOMIC_RELEASE);
	rs_unlock(&lock);
	rs_os_signals(mask);
}

/* --- for all --------------------------------------------------------------------------------------------------------------------- */

struct rs_handle *rs_handle_new(void)
{
	struct rs_handle *h = __atomic_exchange_n(&ready, NULL, __ATOMIC_ACQ_REL);
	if (!h) {
		uint64_t mask = take();
		h = take_free();
		give(mask);
	}
	if (h)
		rs_os_clear(h, sizeof *h);
	return h;
}

void rs_handle_drop(struct rs_handle *h)
{
	uint64_t mask = take();
	free_handle(h);
	give(mask);
}

void rs_handle_list(struct rs_handle *h, uint32_t number, uint64_t handle)
{
	uint64_t who = LOAD(h->who);
	if (rs_who_number(who) != number || who & (LISTED | GONE))
		return;
	uint64_t mask = take();
	who = LOAD(h->who);
	if (rs_who_number(who) == number && !(who & (LISTED | GONE))) {
		struct rs_handle *old = find(handle);
		if (old)
			forget_handle(old);
		h->handle = handle;
		h->next = bucket[hash(handle)];
		__atomic_fetch_or(&h->who, LISTED, __ATOMIC_RELEASE);
		__atomic_store_n(&bucket[hash(handle)], h, __ATOMIC_RELEASE);
	}
	give(mask);
}

void rs_handle_unlist(uint64_t handle)
{
	uint64_t mask = take();
	struct rs_handle *h = find(handle);
	if (h)
		forget_handle(h);
	give(mask);
}

/* A change in between means to look again. Whoever changes the lists may lose its processor in the middle, for longer than looking again makes sense:
 * then with the lock, as signal handlers may too, since its holder is never interrupted by one. */
bool rs_handle_read(uint64_t handle, struct rs_handle_view *v)
{
	struct rs_handle *h;
	for (int i = 0; i < 100; i++) {
		uint32_t before = LOAD(version);
		h = LOAD(bucket[hash(handle)]);
		for (int steps = 0; h && h->handle != handle && steps < 100000; steps++)
			h = LOAD(h->next);
		*v = (struct rs_handle_view){h, h ? LOAD(h->who) : 0, h ? __atomic_load_n(&h->settled_at, __ATOMIC_RELAXED) : 0};
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && before == __atomic_load_n(&version, __ATOMIC_RELAXED))
			return h != NULL;
		__builtin_ia32_pause();
	}
	uint64_t mask = take();
	h = find(handle);
	*v = (struct rs_handle_view){h, h ? LOAD(h->who) : 0, h ? h->settled_at : 0};
	give(mask);
	return h != NULL;
}

bool rs_handle_change(struct rs_handle *h, uint32_t number, uint32_t set, uint32_t clear, uint32_t unless)
{
	uint64_t old = LOAD(h->who), new;
	do {
		if (rs_who_number(old) != number || old & unless)
			return false;
		new = (old & ~(uint64_t)clear) | set;
		if (new & JOINED || (new & DETACHED && new & ENDED))
			new |= GONE;
	} while (!__atomic_compare_exchange_n(&h->who, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	if (new & ~old & GONE) {
		h->older = __atomic_load_n(&going, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(&going, &h->older, h, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
	}
	return true;
}

void rs_handle_settle(struct rs_handle *h, uint32_t number, uint32_t set, uint32_t clear, uint32_t unless, uint32_t stack)
{
	uint64_t who = LOAD(h->who);
	if (rs_who_number(who) != number || who & unless)
		return;
	__atomic_store_n(&h->settled_at, stack, __ATOMIC_RELAXED); /* before the node can be another's; only misuse does two of these at once */
	rs_handle_change(h, number, set, clear, unless);
}

/* The other threads' nodes may be in the middle of a change: they are left alone for good. */
void rs_handles_after_fork(struct rs_handle *own)
{
	lock.word = 0;
	version = 0;
	rs_os_clear(bucket, sizeof bucket);
	free_handles = fresh = fresh_end = gone_first = gone_last = going = ready = NULL;
	gone_count = 0;
	if (own) {
		own->handle = pthread_self();
		own->who = WHO(rs_who_number(own->who), (own->who & DETACHED) | LISTED);
		own->next = NULL;
		bucket[hash(own->handle)] = own;
	}
}
