/* raceblock.c: heap blocks, and those that were freed and not handed out again, as internal/race has them in memory.go. One lock for all. */
#include "race_core.h"

struct block { uint64_t addr, size; uint32_t stack, thread, free_stack, free_thread, next, seq; uint8_t lives, freed; };
struct link { uint32_t block, next; };
enum { BUCKETS = 1 << 16, HUGE_PAGES = 64, MAX_FREED = 1 << 15, UNMAPS_FROM = 128 << 10 }; /* M_MMAP_THRESHOLD: free may unmap such a block, and another thing be mapped there unseen */
static struct race_pool blocks = {.size = sizeof(struct block), .shift = 12}, links = {.size = sizeof(struct link), .shift = 13};
static uint32_t by_addr[BUCKETS], by_page[BUCKETS], huge, heap_lock, freed_at, seqs;
static struct { uint32_t block, seq; } freed[MAX_FREED];
static bool unseen;

static inline unsigned hash(uint64_t x) { return (unsigned)(x * 0x9e3779b97f4a7c15ull >> 48); }
static inline struct block *block(uint32_t i) { return race_at(&blocks, i); }
static inline uint64_t end_of(const struct block *b) { return b->addr + b->size < b->addr ? ~0ull : b->addr + b->size; }

static bool link_in(uint32_t *head, uint32_t b)
{
	uint32_t i = rs_race_get(&links);
	if (!i)
		return false;
	*(struct link *)race_at(&links, i) = (struct link){b, *head};
	*head = i;
	return true;
}

static void link_out(uint32_t *head, uint32_t b)
{
	for (; *head; head = &((struct link *)race_at(&links, *head))->next) {
		struct link *l = race_at(&links, *head);
		if (l->block == b) {
			uint32_t i = *head;
			*head = l->next;
			rs_race_put(&links, i);
			return;
		}
	}
}

static void each_head(const struct block *b, uint32_t i, void (*fn)(uint32_t *head, uint32_t b))
{
	if (!b->size)
		return;
	uint64_t first = b->addr >> 12, last = (end_of(b) - 1) >> 12;
	if (last - first >= HUGE_PAGES)
		fn(&huge, i);
	else
		for (uint64_t page = first; page <= last; page++)
			fn(&by_page[hash(page)], i);
}

static void in(uint32_t *head, uint32_t b)
{
	if (!link_in(head, b))
		rs_race_amnesty();
}

static void add(const struct block *b)
{
	uint32_t i = rs_race_get(&blocks);
	if (!i) {
		rs_race_amnesty();
		return;
	}
	*block(i) = *b;
	block(i)->lives = 1;
	block(i)->seq = ++seqs;
	block(i)->next = by_addr[hash(b->addr)];
	by_addr[hash(b->addr)] = i;
	each_head(b, i, in);
}

static void drop(uint32_t i)
{
	struct block *b = block(i);
	for (uint32_t *link = &by_addr[hash(b->addr)]; *link; link = &block(*link)->next)
		if (*link == i) {
			*link = b->next;
			break;
		}
	each_head(b, i, link_out);
	b->lives = 0;
	rs_race_put(&blocks, i);
}

/* A block that shares a byte with [lo,hi); 0: none. */
static uint32_t within(uint64_t lo, uint64_t hi, bool only_freed)
{
	uint64_t first = lo >> 12, last = (hi - 1) >> 12;
	for (uint32_t l = huge; l; l = ((struct link *)race_at(&links, l))->next) {
		const struct block *b = block(((struct link *)race_at(&links, l))->block);
		if (b->addr < hi && lo < end_of(b) && (b->freed || !only_freed))
			return ((struct link *)race_at(&links, l))->block;
	}
	if (last - first >= blocks.next) {
		for (uint32_t i = 1; i < blocks.next; i++)
			if (block(i)->lives && block(i)->addr < hi && lo < end_of(block(i)) && (block(i)->freed || !only_freed))
				return i;
		return 0;
	}
	for (uint64_t page = first; page <= last; page++)
		for (uint32_t l = by_page[hash(page)]; l; l = ((struct link *)race_at(&links, l))->next) {
			uint32_t i = ((struct link *)race_at(&links, l))->block;
			if (block(i)->addr < hi && lo < end_of(block(i)) && (block(i)->freed || !only_freed))
				return i;
		}
	for (uint32_t i = by_addr[hash(lo)]; i; i = block(i)->next)
		if (block(i)->addr == lo && !block(i)->size && (block(i)->freed || !only_freed))
			return i;
	return 0;
}

/* History, places, objects. */
static void forget(uint64_t lo, uint64_t hi)
{
	rs_race_close(lo, hi);
	rs_race_forget_history(lo, hi);
	rs_race_drop_objects(lo, hi);
}

static void forget_blocks(uint64_t lo, uint64_t hi)
{
	for (uint32_t i; (i = within(lo, hi, false)) != 0; drop(i)) {
		struct block *b = block(i);
		if (b->freed && b->size < UNMAPS_FROM)
			rs_race_set_freed(b->addr, end_of(b), false);
	}
}

void rs_race_alloc(struct race_thread *t, uint64_t addr, uint64_t size, uint32_t stack)
{
	uint64_t hi = addr + size < addr ? ~0ull : addr + size;
	if (!rs_race_lock(&heap_lock)) {
		rs_race_amnesty();
		rs_race_set_freed(addr, hi - addr < 1u << 30 ? hi : addr + (1u << 30), false); /* at least it is not taken for freed */
		forget(addr, hi);
		return;
	}
	forget_blocks(addr, size ? hi : addr + 1);
	if (size)
		forget(addr, hi);
	add(&(struct block){.addr = addr, .size = size, .stack = stack, .thread = t->quick.number});
	rs_race_unlock(&heap_lock);
}

/* The block there that is not freed; 0: none. Under the lock. */
static uint32_t living(uint64_t addr)
{
	uint32_t i = by_addr[hash(addr)];
	while (i && (block(i)->addr != addr || block(i)->freed))
		i = block(i)->next;
	return i;
}

void rs_race_adopt(struct race_thread *t, uint64_t addr, uint64_t size, uint32_t stack)
{
	if (!size || addr + size < addr || !rs_race_lock(&heap_lock))
		return;
	if (!within(addr, addr + size, false))
		add(&(struct block){.addr = addr, .size = size, .stack = stack, .thread = t->quick.number});
	rs_race_unlock(&heap_lock);
}

void rs_race_grow(uint64_t addr, uint64_t size)
{
	if (!rs_race_lock(&heap_lock)) {
		rs_race_amnesty();
		return;
	}
	uint32_t i = living(addr);
	if (i && addr + size > end_of(block(i))) {
		struct block b = *block(i);
		uint64_t lo = end_of(&b), hi = addr + size;
		drop(i);
		forget_blocks(lo, hi);
		forget(lo, hi);
		b.size = size;
		add(&b);
	}
	rs_race_unlock(&heap_lock);
}

/* Only so many are known as freed; under the lock. */
static void keep_freed(uint32_t i)
{
	uint32_t at = freed_at++ % MAX_FREED, old = freed[at].block;
	if (old && block(old)->lives && block(old)->freed && block(old)->seq == freed[at].seq) {
		if (block(old)->size < UNMAPS_FROM)
			rs_race_set_freed(block(old)->addr, end_of(block(old)), false);
		drop(old);
	}
	freed[at].block = i;
	freed[at].seq = block(i)->seq;
}

void rs_race_blocks_unseen(void)
{
	bool locked = rs_race_lock(&heap_lock);
	unseen = true;
	for (unsigned k = 0; k < MAX_FREED && freed[k].block && locked; k++) {
		struct block *b = block(freed[k].block);
		if (b->lives && b->freed && b->seq == freed[k].seq) {
			if (b->size < UNMAPS_FROM)
				rs_race_set_freed(b->addr, end_of(b), false);
			drop(freed[k].block);
		}
	}
	if (locked)
		rs_race_unlock(&heap_lock);
}

void rs_race_was_freed(uint64_t addr, uint64_t size, uint32_t stack, uint32_t thread)
{
	if (!size || size >= UNMAPS_FROM || unseen || addr + size < addr || !rs_race_lock(&heap_lock))
		return;
	if (!within(addr, addr + size, false)) {
		add(&(struct block){.addr = addr, .size = size, .freed = 1, .free_stack = stack, .free_thread = thread});
		uint32_t i = within(addr, addr + size, true);
		if (i) {
			keep_freed(i);
			rs_race_set_freed(addr, addr + size, true);
		}
	}
	rs_race_unlock(&heap_lock);
}

void rs_race_free(struct race_thread *t, uint64_t addr, uint32_t stack, uint8_t kind)
{
	(void)kind;
	if (!rs_race_lock(&heap_lock)) {
		rs_race_amnesty();
		return;
	}
	uint32_t i = living(addr);
	if (i && addr) {
		struct block *b = block(i);
		uint64_t hi = end_of(b);
		/* Marked first, then looked at: an access that comes meanwhile finds the mark, or is found. (They were looked at first: of an access and a free at once one in ten was lost.) */
		if (b->size < UNMAPS_FROM && !unseen)
			rs_race_set_freed(addr, hi, true);
		rs_race_check_free(t, &(struct race_block_ref){addr, hi - addr, stack});
		if (hi > addr)
			forget(addr, hi);
		if (unseen) {
			drop(i);
			rs_race_unlock(&heap_lock);
			return;
		}
		b->freed = 1;
		b->free_stack = stack;
		b->free_thread = t->quick.number;
		keep_freed(i);
	}
	rs_race_unlock(&heap_lock);
}

void rs_race_replace(uint64_t lo, uint64_t hi)
{
	if (lo >= hi)
		return;
	if (!rs_race_lock(&heap_lock)) {
		rs_race_amnesty();
		rs_race_set_freed(lo, hi - lo < 1u << 30 ? hi : lo + (1u << 30), false);
		forget(lo, hi);
		return;
	}
	forget_blocks(lo, hi);
	forget(lo, hi);
	rs_race_unlock(&heap_lock);
}

bool rs_race_freed_at(uint64_t lo, uint64_t hi, struct race_freed *out)
{
	if (!rs_race_lock(&heap_lock))
		return false;
	uint32_t i = within(lo, hi, true);
	if (i)
		*out = (struct race_freed){block(i)->addr, block(i)->size, block(i)->free_stack, block(i)->free_thread};
	rs_race_unlock(&heap_lock);
	return i != 0;
}

void rs_race_blocks_after_fork(void)
{
	heap_lock = blocks.lock = links.lock = 0;
}
