/* sharelent.c: pages of blocks that are not the heap's (variables, what the program has mapped) lent to one thread, as shareheap.c lends the heap's (sharerest.c says what that is). The block stays SHARED: what
 * of its pages is lent is noted here, by page of the region.
 *
 * Ground rules: as share.c. All locked. */
#include "share.h"
#include <sys/mman.h>

enum { MOST_TIMES = 8, EDGES = 12000 /* between pages that are lent and those that are not, each of which may be a mapping's end */ };

static struct lent { uint32_t owner; uint8_t times, asks; } *lents; /* owner 0: it is not lent; times: how often it was */
static uint32_t edges;

static uint32_t index_of(const struct share_block *b, uintptr_t p) { return b->page + (uint32_t)((p - rs_share_address(b)) >> SHARE_PAGE_BITS); }
static uintptr_t address_of(const struct share_block *b, uint32_t i) { return rs_share_address(b) + ((uintptr_t)(i - b->page) << SHARE_PAGE_BITS); }

/* Of the page's two sides those whose neighbour is that thread's. */
static uint32_t beside(const struct share_block *b, uint32_t i, uint32_t owner)
{
	return (uint32_t)(i > b->page && lents[i - 1].owner == owner) + (uint32_t)(i + 1 < b->page + b->pages && lents[i + 1].owner == owner);
}

bool rs_share_lent_begin(void) { return (lents = rs_share_sparse(sizeof *lents * SHARE_PAGES)) != NULL; }

uint32_t rs_share_lent_to(const struct share_block *b, uintptr_t p) { return b->lends && b->state == SHARE_SHARED ? __atomic_load_n(&lents[index_of(b, p)].owner, __ATOMIC_RELAXED) : 0; }

void rs_share_lend(struct share_block *b, uintptr_t p, uint32_t number)
{
	uint32_t i = index_of(b, p), before = rs_share_closed();
	struct lent *l = &lents[i];
	if (b->state != SHARE_SHARED || l->owner || l->times == MOST_TIMES || ++l->asks >> l->times == 0 || edges > EDGES)
		return;
	uint8_t key = rs_share_key_spare(number);
	if (rs_share_closed() != before && share_rights() == before)
		share_set_rights(rs_share_closed());
	uintptr_t at = address_of(b, i);
	if (!key || RS_SYS4(SYS_pkey_mprotect, at, RS_PAGE, PROT_READ | PROT_WRITE, key) < 0)
		return;
	edges += 2;
	edges -= 2 * beside(b, i, number);
	__atomic_store_n(&l->owner, number, __ATOMIC_RELAXED);
	l->times++;
	l->asks = 0;
	b->lends = 1;
	__atomic_store_n(&rs_share.table[at >> SHARE_PAGE_BITS], b->at ? SHARE_GLOBAL : 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&rs_counters->share_lent, 1, __ATOMIC_RELAXED);
}

static void forget(const struct share_block *b, uint32_t i)
{
	edges += 2 * beside(b, i, lents[i].owner);
	edges -= 2;
	__atomic_store_n(&lents[i].owner, 0, __ATOMIC_RELAXED);
}

uint32_t rs_share_take_back(struct share_block *b, uintptr_t p)
{
	uint32_t i = index_of(b, p), owner = rs_share_lent_to(b, p);
	uintptr_t at = address_of(b, i);
	if (!owner)
		return 0;
	forget(b, i);
	/* Closed first, as in shareheap.c. */
	if (RS_SYS4(SYS_pkey_mprotect, at, RS_PAGE, PROT_READ | PROT_WRITE, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
	else
		__atomic_store_n(&rs_share.table[at >> SHARE_PAGE_BITS], (b->at ? SHARE_GLOBAL : 0) | SHARE_JUDGED, __ATOMIC_RELEASE);
	return owner;
}

void rs_share_lent_forget(struct share_block *b)
{
	for (uint32_t i = b->page; b->lends && i < b->page + b->pages; i++)
		if (lents[i].owner)
			forget(b, i);
	b->lends = 0;
}

static void leave(struct share_block *b, void *arg)
{
	const uint32_t *number = arg;
	for (uint32_t i = b->page; b->lends && b->state == SHARE_SHARED && i < b->page + b->pages; i++)
		if (lents[i].owner == *number)
			rs_share_take_back(b, address_of(b, i));
}

void rs_share_lent_leave(uint32_t number) { rs_share_each(leave, &number); }
