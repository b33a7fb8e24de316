/* lines.c: accesses counted by cache line, instruction and thread (rs_config.lines), for analyses of what threads share (internal/tool).
 *
 * How often a line moves is what a directory of caches without bounds would count (MSI): a thread has a line from when it touches it until another writes to it; to write it must be the only
 * one that has it. The directory forgets a line where another takes its place, and takes threads whose numbers differ by a multiple of 32 for one.
 *
 * Ground rules: as access.c's. */
#include "access.h"

enum { LINE_BITS = 6, ENTRIES = 1 << 14, PROBES = 8, DIRECTORY_BITS = 18 };

struct entry { uint64_t line, pc, read, written, reads, writes, moved, first, last; }; /* pc 0: free */
struct rs_lines {
	struct rs_lines *next;     /* of all, which are never given back */
	uint64_t process;          /* whose counts these are: not those of a forked child's parent */
	uint32_t number;           /* the thread's */
	struct entry entry[ENTRIES];
};
static struct rs_lines *all;
static uint64_t *directory;        /* the line's upper bits, and in the lower half which threads have it */

static inline uint64_t ticks(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return ((uint64_t)hi << 32 | lo) & ~0ull >> 8;
}

static void tell(struct rs_thread *t, uint32_t by, struct entry *e)
{
	struct entry now = *e;
	e->pc = 0;
	if (now.pc)
		RS_EMIT(t, LINE, line, now.line << LINE_BITS, now.pc, now.read, now.written, now.reads, now.writes, now.moved, now.first, now.last, by);
}

static void tell_all(struct rs_thread *t, struct rs_lines *l)
{
	for (unsigned i = 0; i < ENTRIES && l->process == rs_process.id; i++)
		if (l->entry[i].pc)
			tell(t, l->number, &l->entry[i]);
}

/* Whether the line comes to the thread, which has it from now on. */
static bool moves(uint32_t number, uint64_t line, bool writes)
{
	uint64_t *d = &directory[line & ((1 << DIRECTORY_BITS) - 1)], tag = (line >> DIRECTORY_BITS) << 32, me = 1u << (number & 31);
	uint64_t was = __atomic_load_n(d, __ATOMIC_RELAXED), is;
	do {
		if (was >> 32 != tag >> 32 || (uint32_t)was == 0)
			is = tag | me;
		else
			is = writes ? tag | me : was | me;
		if (is == was)
			return false;
	} while (!__atomic_compare_exchange_n(d, &was, is, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return was >> 32 == tag >> 32 && (uint32_t)was != 0;
}

static struct entry *entry_of(struct rs_thread *t, struct rs_lines *l, uint64_t line, uint64_t pc)
{
	uint64_t h = ((line ^ pc << 20) * 0x9e3779b97f4a7c15ull) >> 40;
	for (unsigned i = 0; i < PROBES; i++) {
		struct entry *e = &l->entry[(h + i) % ENTRIES];
		if (e->pc == pc && e->line == line)
			return e;
		if (!e->pc) {
			*e = (struct entry){.line = line, .pc = pc};
			return e;
		}
	}
	struct entry *e = &l->entry[h % ENTRIES];
	tell(t, l->number, e);
	*e = (struct entry){.line = line, .pc = pc};
	return e;
}

static void one(struct rs_thread *t, struct rs_lines *l, const struct touch *a, unsigned kind)
{
	uint64_t end = a->addr + a->size, now = ticks();
	for (uint64_t line = a->addr >> LINE_BITS; line <= (end - 1) >> LINE_BITS; line++) {
		uint64_t lo = line << LINE_BITS, mask = ~0ull;
		if (a->addr > lo)
			mask &= ~0ull << (a->addr - lo);
		if (end < lo + 64)
			mask &= ~0ull >> (lo + 64 - end);
		struct entry *e = entry_of(t, l, line, a->pc);
		if (!e->first)
			e->first = now;
		e->last = now;
		e->moved += moves(l->number, line, kind & WRITE);
		if (kind & READ) {
			e->read |= mask;
			e->reads++;
		}
		if (kind & WRITE) {
			e->written |= mask;
			e->writes++;
		}
	}
}

static struct rs_lines *lines_of(const struct rs_thread *t, struct rs_lines **own)
{
	struct rs_lines *l = *own;
	if (RS_UNLIKELY(!directory)) {
		void *p = rs_os_map(sizeof *directory << DIRECTORY_BITS);
		uint64_t *none = NULL;
		if (p) /* who comes second loses address space, once */
			__atomic_compare_exchange_n(&directory, &none, p, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		if (!directory)
			return NULL;
	}
	if (RS_UNLIKELY(!l)) {
		if (!(l = rs_os_map(sizeof *l)))
			return NULL;
		l->process = rs_process.id;
		l->number = t->number;
		l->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(&all, &l->next, l, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
		*own = l;
	}
	if (RS_UNLIKELY(l->process != rs_process.id)) {
		rs_os_clear(l->entry, sizeof l->entry);
		l->process = rs_process.id;
	}
	l->number = t->number;
	return l;
}

void rs_lines_take(struct rs_thread *t, struct rs_lines **own, const struct accesses *list)
{
	struct rs_lines *l = lines_of(t, own);
	for (unsigned i = 0; l && i < list->count; i++)
		if (list->kind[i] & (READ | WRITE) && list->a[i].addr && list->a[i].size && list->a[i].addr + list->a[i].size > list->a[i].addr)
			one(t, l, &list->a[i], list->kind[i]);
}

void rs_lines_thread_end(struct rs_thread *t)
{
	if (!rs_config.lines)
		return;
	for (struct rs_lines *l = __atomic_load_n(&all, __ATOMIC_ACQUIRE); l; l = l->next)
		if (l->number == t->number)
			tell_all(t, l);
}

void rs_lines_process_end(struct rs_thread *t)
{
	if (!rs_config.lines)
		return;
	for (struct rs_lines *l = __atomic_load_n(&all, __ATOMIC_ACQUIRE); l; l = l->next)
		tell_all(t, l);
}
