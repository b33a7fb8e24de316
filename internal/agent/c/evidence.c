/* evidence.c: what is told of heap blocks that were written where nobody may write.
 *
 * Ground rules that bite here: called from free and at the process's end, perhaps in a handler: no libc, no allocation; facts only. */
#include "evidence.h"
#include "alloc.h"
#include "core.h"
#include "heap.h"
#include <errno.h>

enum { AT_ONCE = 32, LATER = 16, MOST = 4096, MOST_OF_CHILD = 1 << 20 };

void (*rs_evidence_found)(const struct rs_evidence *e, unsigned n);

static uint32_t count;

uint32_t rs_evidence_count(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

/* Found where nothing can be told (a vfork child, inside the agent): told when next it can. */
static struct rs_alloc_wrong later[LATER];
static uint32_t later_count, later_told;

static bool known(uintptr_t block, size_t *n, uint32_t *stack) { return rs_heap_known(block, n, stack) || rs_alloc_noted(block, n, stack); }

static bool made(struct rs_thread *t, const struct rs_alloc_wrong *w, struct rs_evidence *to)
{
	uint32_t number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
	if (number > MOST)
		return false;
	struct rs_evidence e = {
		.kind = w->freed ? RS_EVIDENCE_FREED_WRITE : RS_EVIDENCE_OVERFLOW, .noticed = w->when, .number = number, .block = w->block, .size = w->size, .bad = w->first, .bytes_wrong = w->wrong,
		.freed = w->freed, .known = w->known, .more = w->more, .alloc_stack = w->alloc_stack, .free_stack = w->free_stack, .alloc_thread = w->alloc_thread, .free_thread = w->free_thread, .shown = w->shown};
	rs_os_copy(e.was, w->was, sizeof e.was);
	rs_os_copy(e.is, w->is, sizeof e.is);
	size_t n;
	if (!e.alloc_stack && !w->freed)
		known(w->block, &n, &e.alloc_stack);
	if (w->next && known(w->next, &e.next_size, &e.next_stack)) {
		e.next = w->next;
		if (w->apart && !w->freed)
			e.kind = RS_EVIDENCE_UNDERFLOW;
	}
	if (w->pc)
		e.stack = rs_stack_from(t, w->pc, w->fp, rs_config.stack_depth);
	*to = e;
	return true;
}

static void tell_one(struct rs_thread *t, const struct rs_evidence *e)
{
	rs_stack_tell(t, e->alloc_stack);
	rs_stack_tell(t, e->free_stack);
	rs_stack_tell(t, e->next_stack);
	uint64_t *words = rs_reserve(t, RS_EV_EVIDENCE, RS_EVIDENCE_WORDS + (2 * e->shown + 7) / 8);
	if (!words)
		return;
	rs_put_evidence(words, (uint8_t)e->kind, (uint8_t)e->noticed, (uint8_t)(e->known | e->more << 1), e->number, e->alloc_thread, e->free_thread, e->block, e->size, e->bad, e->bytes_wrong, e->stack, e->alloc_stack, e->free_stack, e->next,
		e->next_size, e->next_stack, 2 * e->shown);
	uint8_t bytes[sizeof e->was + sizeof e->is];
	rs_os_copy(bytes, e->was, e->shown);
	rs_os_copy(bytes + e->shown, e->is, e->shown);
	rs_put_bytes(words + RS_EVIDENCE_WORDS, bytes, 2 * e->shown);
	rs_commit_urgent(t);
}

static void tell(struct rs_thread *t, const struct rs_alloc_wrong *w)
{
	struct rs_evidence e;
	if (!made(t, w, &e))
		return;
	if (rs_evidence_found)
		rs_evidence_found(&e, 1);
	tell_one(t, &e);
}

static void tell_later(struct rs_thread *t)
{
	for (uint32_t i = __atomic_load_n(&later_told, __ATOMIC_RELAXED); i < LATER && i < __atomic_load_n(&later_count, __ATOMIC_ACQUIRE); i++) {
		if (!__atomic_compare_exchange_n(&later_told, &(uint32_t){i}, i + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
		tell(t, &later[i]);
	}
}

static void found(const struct rs_alloc_wrong *w)
{
	struct rs_thread *t = rs_self();
	if (t) {
		tell(t, w);
		return;
	}
	uint32_t i = __atomic_load_n(&later_count, __ATOMIC_RELAXED);
	if (i < LATER) { /* two at once: one is lost */
		later[i] = *w;
		later[i].pc = 0;
		__atomic_store_n(&later_count, i + 1, __ATOMIC_RELEASE);
	}
}

struct batch { unsigned n, noticed; bool more; struct rs_alloc_wrong e[AT_ONCE]; unsigned evidences; struct rs_evidence evidence[AT_ONCE]; };

static void keep(void *arg, const struct rs_alloc_wrong *w)
{
	struct batch *b = arg;
	if (b->n == AT_ONCE) {
		b->more = true;
		return;
	}
	b->e[b->n] = *w;
	b->e[b->n++].when = (uint8_t)b->noticed;
}

/* What is told by then is told when all of the allocator's locks are free again. */
void rs_evidence_check(struct rs_thread *t, unsigned noticed)
{
	if (RS_LIKELY(!rs_alloc.extra) || !rs_alloc_found)
		return;
	tell_later(t);
	bool child = rs_process.start == RS_START_FORK;
	if (child && noticed == RS_NOTICED_EXEC) /* its blocks are mostly its parent's */
		return;
	struct batch *b = rs_os_map(sizeof *b);
	if (!b) {
		rs_notice(t, RS_NOTICE_HEAP_UNCHECKED, ENOMEM, 0);
		return;
	}
	b->noticed = noticed;
	/* A thread that was killed, or whose handler ended the process, in the allocator keeps its locks. */
	if (rs_alloc_check(child ? MOST_OF_CHILD : SIZE_MAX, keep, b) < 0)
		rs_notice(t, RS_NOTICE_HEAP_UNCHECKED, 0, 0);
	if (b->more)
		rs_notice(t, RS_NOTICE_LIMIT, 0, AT_ONCE);
	for (unsigned i = 0; i < b->n; i++)
		b->evidences += made(t, &b->e[i], &b->evidence[b->evidences]);
	if (b->evidences && rs_evidence_found)
		rs_evidence_found(b->evidence, b->evidences);
	for (unsigned i = 0; i < b->evidences; i++)
		tell_one(t, &b->evidence[i]);
	rs_os_unmap(b, sizeof *b);
}

bool rs_evidence_block(struct rs_thread *t, uintptr_t p, struct rs_evidence *to)
{
	struct rs_alloc_wrong w;
	if (!rs_alloc_at(p, &w))
		return false;
	struct rs_evidence e = {.block = w.block, .size = w.size, .freed = w.freed, .alloc_stack = w.alloc_stack, .free_stack = w.free_stack, .alloc_thread = w.alloc_thread, .free_thread = w.free_thread};
	size_t n;
	if (!w.freed)
		known(w.block, &n, &e.alloc_stack);
	rs_stack_tell(t, e.alloc_stack);
	rs_stack_tell(t, e.free_stack);
	*to = e;
	return true;
}

static bool asked(uintptr_t block, size_t *n)
{
	uint32_t stack;
	return rs_heap_known(block, n, &stack) || (rs_alloc_giving.block == block && rs_heap_gone(block, n));
}

void rs_evidence_begin(void)
{
	rs_alloc_asked = asked;
	rs_alloc_found = found;
}
