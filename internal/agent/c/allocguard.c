/* allocguard.c: bytes behind each block that nobody writes, and freed blocks that are kept back for a while.
 *
 * Ground rules that bite here: the OS only through os.h, nothing allocates. Here, and only here, the allocator writes to the program's pages: not for memory that a
 * protection key may close.
 *
 * A block of n bytes lies in one of a usual size, and all that it does not need, at least V.guard bytes, is guard: a pattern (the first PATTERN bytes of it), and in the last
 * eight how much it is and who allocated it, so that n is known again. That last word is written when all else is in place, and made another when the block is freed, before all else: whoever
 * finds it as of a block that is out finds its pattern whole, unless the program wrote there. The first FREED bytes of a block in quarantine are a pattern, too.
 * No byte of the patterns is 0, 0xff or ASCII: what a program writes by mistake should show. */
#include "alloc_core.h"

enum { PATTERN = 256, FREED = 128, SLACK_BITS = 20, THREAD_BITS = 16, GENERATION_BITS = 4, BODY_BITS = SLACK_BITS + THREAD_BITS + GENERATION_BITS, CHECK_BITS = 64 - BODY_BITS };

static size_t quarantine_bytes;
void (*rs_alloc_found)(const struct rs_alloc_wrong *w);
bool (*rs_alloc_asked)(uintptr_t block, size_t *n);
__thread struct rs_alloc_giving rs_alloc_giving;

/* --- patterns ------------------------------------------------------------------------------------------------------------- */

static uint8_t byte_of(uint64_t word, uintptr_t at) { return (uint8_t)(word >> (at & 7) * 8); }

typedef uint64_t any_word __attribute__((may_alias, aligned(1)));
typedef unsigned long long two __attribute__((vector_size(16), may_alias));
typedef two any_two __attribute__((aligned(1)));

/* The pattern's eight bytes from `at` on. */
static inline uint64_t turned(uint64_t word, uintptr_t at)
{
	unsigned by = (at & 7) * 8;
	return word >> by | word << (-by & 63);
}

static inline two both(uint64_t word) { return (two){word, word}; }

/* Ends overlap, so that there are no odd bytes but in less than a word. */
static inline void fill(uintptr_t from, uintptr_t to, uint64_t word)
{
	if (RS_UNLIKELY(to - from < 8)) {
		for (; from < to; from++)
			*(volatile uint8_t *)from = byte_of(word, from);
		return;
	}
	uint64_t first = turned(word, from), last = turned(word, to);
	if (to - from < 16) {
		*(volatile any_word *)from = first;
		*(volatile any_word *)(to - 8) = last;
		return;
	}
	*(volatile any_two *)from = both(first);
	*(volatile any_two *)(to - 16) = both(last);
	for (from = (from + 15) & ~(uintptr_t)15; to - from >= 16; from += 16)
		*(volatile two *)from = both(word);
}

static inline bool is_filled(uintptr_t from, uintptr_t to, uint64_t word)
{
	if (RS_UNLIKELY(to - from < 8)) {
		for (; from < to; from++)
			if (*(volatile const uint8_t *)from != byte_of(word, from))
				return false;
		return true;
	}
	uint64_t first = turned(word, from), last = turned(word, to);
	if (to - from < 16)
		return ((*(volatile const any_word *)from ^ first) | (*(volatile const any_word *)(to - 8) ^ last)) == 0;
	two wrong = (*(volatile const any_two *)from ^ both(first)) | (*(volatile const any_two *)(to - 16) ^ both(last)), other = {0, 0};
	for (from = (from + 15) & ~(uintptr_t)15; to - from >= 32; from += 32) {
		wrong |= *(volatile const two *)from ^ both(word);
		other |= *(volatile const two *)(from + 16) ^ both(word);
	}
	if (to - from >= 16)
		wrong |= *(volatile const two *)from ^ both(word);
	wrong |= other;
	return (wrong[0] | wrong[1]) == 0;
}

/* The first byte of [from, to) that is not of the pattern; to: none. */
static uintptr_t first_wrong(uintptr_t from, uintptr_t to, uint64_t word)
{
	if (RS_LIKELY(is_filled(from, to, word)))
		return to;
	while (from < to && *(volatile const uint8_t *)from == byte_of(word, from))
		from++;
	return from;
}

static void note(struct rs_alloc_wrong *w, uintptr_t from, uintptr_t to, uint64_t word)
{
	for (uintptr_t at = first_wrong(from, to, word); at < to; at = first_wrong(at + 1, to, word)) {
		if (!w->first) {
			w->first = at;
			w->shown = to - at < sizeof w->was ? (uint32_t)(to - at) : (uint32_t)sizeof w->was;
			for (uint32_t i = 0; i < w->shown; i++) {
				w->was[i] = byte_of(word, at + i);
				w->is[i] = *(volatile const uint8_t *)(at + i);
			}
		}
		w->wrong++;
	}
}

/* --- the last word ---------------------------------------------------------------------------------------------------------- */

static uint64_t *last_word(uintptr_t p, size_t size) { return (uint64_t *)(p + size - 8); }

/* What a state adds to the word: bits of the check, turned. As input to its hash, two states would be the same word for one block in 2^24. */
#define STATE_BITS(state) ((uint64_t)(state) * 0x5a5a5500ull << 32 >> (64 - CHECK_BITS) << (64 - CHECK_BITS))

/* slack, thread and generation (together: who), and a check over both and the block. */
static inline uint64_t word_of(uintptr_t p, uint32_t slack, uint32_t who, enum rs_guard_state state)
{
	uint64_t key = (p >> 4) * 0x9e3779b97f4a7c15ull, body = slack | (uint64_t)who << SLACK_BITS;
	uint64_t check = ((body + 1) * 0xc2b2ae3d27d4eb4full ^ key) * 0x9e3779b97f4a7c15ull;
	return ((body ^ key >> CHECK_BITS) | check >> (64 - CHECK_BITS) << (64 - CHECK_BITS)) ^ STATE_BITS(state);
}

static inline uint64_t body_of(uintptr_t p, uint64_t w) { return (w ^ (p >> 4) * 0x9e3779b97f4a7c15ull >> CHECK_BITS) & ((1ull << BODY_BITS) - 1); }

static inline enum rs_guard_state read_word(uintptr_t p, size_t size, size_t *n, uint32_t *who)
{
	uint64_t w = *(volatile uint64_t *)last_word(p, size), body = body_of(p, w);
	uint32_t slack = (uint32_t)body & ((1u << SLACK_BITS) - 1);
	*who = (uint32_t)(body >> SLACK_BITS);
	*n = size - slack;
	if (slack > size || slack < V.guard)
		return RS_GUARD_NONE;
	uint64_t state = w ^ word_of(p, slack, *who, RS_GUARD_NONE);
	return state == STATE_BITS(RS_GUARD_LIVE) ? RS_GUARD_LIVE : state == STATE_BITS(RS_GUARD_GONE) ? RS_GUARD_GONE : RS_GUARD_NONE;
}

enum rs_guard_state rs_guard_state(uintptr_t p, size_t size, size_t *n)
{
	uint32_t who;
	return read_word(p, size, n, &who);
}

size_t rs_guard_whole(uintptr_t p)
{
	unsigned kind = V.unit[unit_index(p)] & 0xff;
	return kind == RS_ALLOC_HUGE ? chunk_at(chunk_index(p))->run_bytes : kind && kind <= RS_ALLOC_CLASSES ? T.size[kind - 1] : 0;
}

/* The block that follows p's in its span. */
static uintptr_t next_of(uintptr_t p)
{
	unsigned word = V.unit[unit_index(p)], class = (word & 0xff) - 1;
	if (class >= RS_ALLOC_CLASSES)
		return 0;
	uint32_t unit = unit_index(p) - (word >> 8);
	const struct span *s = span_at(unit);
	uintptr_t next = p + T.size[class];
	return (next - unit_address(unit)) / T.size[class] < (uintptr_t)s->total - s->fresh ? next : 0;
}

static inline uintptr_t pattern_end(uintptr_t p, size_t size, size_t n) { return size - 8 - n < PATTERN ? p + size - 8 : p + n + PATTERN; }

static inline void note_block(uintptr_t p, size_t size, size_t n, uint32_t stack)
{
	size_t more = size - n - V.guard + 1;
	__atomic_store_n(rs_alloc_note_of(p), (uint32_t)(more < RS_NOTE_LENGTH_MOST ? more : RS_NOTE_LENGTH_MOST) * (RS_NOTE_STACK + 1) | (stack <= RS_NOTE_STACK ? stack : 0), __ATOMIC_RELAXED);
}

static inline uint32_t noted_stack(uintptr_t p) { return __atomic_load_n(rs_alloc_note_of(p), __ATOMIC_RELAXED) & RS_NOTE_STACK; }

/* The length that is noted of a block whose last word does not tell, or else that heap.c knows; false: it is not known. */
static bool length_of(uintptr_t p, size_t size, size_t *n)
{
	uint32_t more = __atomic_load_n(rs_alloc_note_of(p), __ATOMIC_RELAXED) / (RS_NOTE_STACK + 1);
	if (more && more < RS_NOTE_LENGTH_MOST && size >= V.guard + more - 1) {
		*n = size - V.guard - (more - 1);
		return true;
	}
	return rs_alloc_asked && rs_alloc_asked(p, n) && *n <= size - V.guard;
}

bool rs_alloc_noted(uintptr_t p, size_t *n, uint32_t *stack)
{
	size_t size = V.note && rs_alloc_has(p) && p % 16 == 0 ? rs_guard_whole(p) : 0;
	if (!size || rs_guard_state(p, size, n) != RS_GUARD_LIVE)
		return false;
	*stack = noted_stack(p);
	return true;
}

static inline void place(uintptr_t p, size_t size, size_t n, uint32_t who, enum rs_guard_state state)
{
	fill(p + n, pattern_end(p, size, n), RS_GUARD_WORD);
	RS_BARRIER();
	*(volatile uint64_t *)last_word(p, size) = word_of(p, (uint32_t)(size - n), who, state);
}

static uint32_t self(void)
{
	const struct rs_thread *t = rs_thread_tls;
	return t && t->number < 1u << THREAD_BITS ? t->number : 0;
}

enum { GENERATIONS = 1 << GENERATION_BITS }; /* in the last one all is taken as torn */
static uint32_t who_now(void) { return self() | (uint32_t)V.generation << THREAD_BITS; }
static uint32_t thread_of(uint32_t who) { return who & ((1u << THREAD_BITS) - 1); }
uint32_t rs_kept_alloc_thread(const struct rs_kept *k) { return thread_of((uint32_t)(body_of(k->block, k->word) >> SLACK_BITS)); }
/* Older than a fork, in a child of several threads. */
static bool is_torn(uint32_t who) { return V.torn && (who >> THREAD_BITS != V.generation || V.generation == GENERATIONS - 1); }

/* --- looking ------------------------------------------------------------------------------------------------------------------ */

/* Some of its bytes are wrong. */
static void lost_word(struct rs_alloc_wrong *w, uintptr_t last)
{
	w->more = true;
	if (!w->first) {
		w->first = last;
		w->wrong = 1;
	}
}

bool rs_guard_look(uintptr_t p, struct rs_alloc_wrong *w)
{
	size_t size = rs_guard_whole(p);
	*w = (struct rs_alloc_wrong){.block = p, .known = true};
	uint32_t who;
	enum rs_guard_state state = read_word(p, size, &w->size, &who);
	if (state == RS_GUARD_GONE || (state == RS_GUARD_LIVE ? is_torn(who) : V.torn))
		return false;
	w->alloc_thread = thread_of(who);
	if (RS_LIKELY(state == RS_GUARD_LIVE)) {
		uintptr_t end = pattern_end(p, size, w->size);
		if (RS_LIKELY(first_wrong(p + w->size, end, RS_GUARD_WORD) == end))
			return false;
		note(w, p + w->size, end, RS_GUARD_WORD);
	} else {
		uintptr_t last = (uintptr_t)last_word(p, size);
		w->alloc_thread = 0;
		w->known = length_of(p, size, &w->size);
		if (w->known) {
			note(w, p + w->size, pattern_end(p, size, w->size), RS_GUARD_WORD);
			w->apart = !w->first && last - (p + w->size) >= 8;
		} else {
			w->size = size - V.guard;
			w->apart = first_wrong(last - 8, last, RS_GUARD_WORD) == last;
		}
		lost_word(w, last);
	}
	w->alloc_stack = noted_stack(p);
	w->next = next_of(p);
	return true;
}

bool rs_guard_look_freed(const struct rs_kept *k, struct rs_alloc_wrong *w)
{
	uintptr_t p = k->block, content = p + (k->n < FREED ? k->n : FREED);
	size_t size = rs_guard_whole(p);
	if (!size)
		return false;
	uintptr_t end = pattern_end(p, size, k->n);
	bool ended = *(volatile const uint64_t *)last_word(p, size) != k->word;
	if (RS_LIKELY(!ended && first_wrong(p, content, RS_FREED_WORD) == content && first_wrong(p + k->n, end, RS_GUARD_WORD) == end))
		return false;
	*w = (struct rs_alloc_wrong){.block = p, .size = k->n, .known = true, .freed = true, .alloc_thread = rs_kept_alloc_thread(k), .free_thread = k->free_thread, .alloc_stack = k->alloc_stack,
		.free_stack = k->free_stack, .when = RS_NOTICED_QUARANTINE};
	note(w, p, content, RS_FREED_WORD);
	note(w, p + k->n, end, RS_GUARD_WORD);
	if (ended)
		lost_word(w, (uintptr_t)last_word(p, size));
	w->next = next_of(p);
	return true;
}

uintptr_t rs_alloc_check_block(uintptr_t p, size_t *n)
{
	struct rs_alloc_wrong w;
	bool wrong = rs_guard_look(p, &w);
	*n = w.known ? w.size : 0;
	return wrong ? w.first : 0;
}

static void add(struct rs_alloc_wrongs *out, const struct rs_alloc_wrong *w)
{
	if (out->n < sizeof out->e / sizeof out->e[0])
		out->e[out->n++] = *w;
}

/* --- blocks ------------------------------------------------------------------------------------------------------------------- */

void *rs_alloc_guard_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool zero)
{
	if (n > (size_t)PTRDIFF_MAX - V.guard)
		return NULL;
	uintptr_t p = (uintptr_t)rs_plain_alloc(h, n + V.guard, align, zero);
	if (p) {
		note_block(p, rs_guard_whole(p), n, 0);
		place(p, rs_guard_whole(p), n, who_now(), RS_GUARD_LIVE);
	}
	return (void *)p;
}

size_t rs_alloc_guard_usable(uintptr_t p)
{
	size_t size = rs_guard_whole(p), n;
	if (!size)
		return 0;
	if (rs_guard_state(p, size, &n) != RS_GUARD_NONE || length_of(p, size, &n))
		return n;
	return size - V.guard;
}

/* A child that is forked meanwhile finds what another thread was about not in quarantine, or still there, never twice. */
static void leave_quarantine(struct rs_alloc_heap *h, struct rs_quarantine *q, struct rs_alloc_wrongs *out)
{
	struct rs_kept k = q->kept[q->first % RS_QUARANTINED];
	struct rs_alloc_wrong w;
	if (rs_guard_look_freed(&k, &w))
		add(out, &w);
	size_t size = rs_guard_whole(k.block);
	RS_BARRIER();
	q->first++;
	RS_BARRIER();
	q->bytes -= size < q->bytes ? size : q->bytes;
	rs_plain_free(h, (void *)k.block);
}

static void enter_quarantine(struct rs_alloc_heap *h, struct rs_quarantine *q, const struct rs_kept *k, size_t size, struct rs_alloc_wrongs *out)
{
	while (q->end - q->first == RS_QUARANTINED || (q->end != q->first && q->bytes + size > quarantine_bytes))
		leave_quarantine(h, q, out);
	q->kept[q->end % RS_QUARANTINED] = *k;
	q->bytes += size;
	RS_BARRIER();
	q->end++;
}

void rs_alloc_guard_free(struct rs_alloc_heap *h, void *block, unsigned when, struct rs_alloc_wrongs *out)
{
	uintptr_t p = (uintptr_t)block;
	size_t size = rs_guard_whole(p), n = 0;
	if (!size) {
		rs_plain_free(h, block);
		return;
	}
	const struct rs_alloc_giving *g = rs_alloc_giving.block == p ? &rs_alloc_giving : NULL;
	struct rs_kept k = {.block = p, .alloc_stack = g && g->alloc_stack ? g->alloc_stack : noted_stack(p), .free_stack = g ? g->free_stack : 0, .free_thread = (uint16_t)self()};
	uint32_t who;
	enum rs_guard_state state = read_word(p, size, &n, &who);
	if (state == RS_GUARD_GONE)
		rs_alloc_abort("free(): double free detected in tcache 2");
	if (state == RS_GUARD_NONE) {
		n = size - V.guard;
		who = 0;
	}
	struct rs_alloc_wrong w;
	if (RS_UNLIKELY(rs_guard_look(p, &w))) {
		w.alloc_stack = k.alloc_stack;
		w.when = when;
		w.pc = g ? g->pc : 0;
		w.fp = g ? g->fp : NULL;
		add(out, &w);
		n = w.size;
		place(p, size, n, who, RS_GUARD_GONE);
	} else if (RS_UNLIKELY(V.torn)) {
		place(p, size, n, who, RS_GUARD_GONE);
	} else {
		*(volatile uint64_t *)last_word(p, size) = word_of(p, (uint32_t)(size - n), who, RS_GUARD_GONE);
	}
	RS_BARRIER();
	if (h && quarantine_bytes && !h->quarantine)
		h->quarantine = rs_os_map_numbered(RS_OS_QUARANTINE(h->id), sizeof *h->quarantine);
	if (!h || !h->quarantine || size > quarantine_bytes) {
		rs_plain_free(h, block);
		return;
	}
	k.n = (uint32_t)n;
	k.word = *(volatile uint64_t *)last_word(p, size);
	k.class = (uint8_t)V.unit[unit_index(p)];
	fill(p, p + (n < FREED ? n : FREED), RS_FREED_WORD);
	enter_quarantine(h, h->quarantine, &k, size, out);
}

/* --- quick paths ---------------------------------------------------------------------------------------------------------------- */

/* The heap stays the thread's meanwhile, as in alloc.h's quick paths, and its count is odd for who looks at blocks (alloccheck.c). */
static inline void begin(struct rs_alloc_heap *h)
{
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
	RS_BARRIER();
}

static inline void end(struct rs_alloc_heap *h)
{
	RS_BARRIER();
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
}

void *rs_alloc_guard_quick(size_t n, bool zero, uint32_t stack)
{
	struct rs_alloc_heap *h = rs_alloc_mine;
	if (RS_UNLIKELY(n > (size_t)RS_ALLOC_QUICK - V.guard))
		return NULL;
	unsigned class = rs_alloc_class_of[(n + V.guard + 15) >> 4];
	struct rs_alloc_bin *b = &h->bin[class];
	if (RS_UNLIKELY(b->top == b->bottom))
		return NULL;
	begin(h);
	uintptr_t p = *--b->top;
	for (uintptr_t at = p; zero && at < p + n; at += 16)
		*(volatile two *)at = (two){0, 0};
	note_block(p, T.size[class], n, stack);
	place(p, T.size[class], n, who_now(), RS_GUARD_LIVE);
	end(h);
	return (void *)p;
}

/* Makes room in quarantine; false: not all, and what is left takes more than this. */
static inline bool make_room(struct rs_alloc_heap *h, struct rs_quarantine *q, size_t size)
{
	while (q->end - q->first == RS_QUARANTINED || (q->end != q->first && q->bytes + size > quarantine_bytes)) {
		const struct rs_kept *k = &q->kept[q->first % RS_QUARANTINED];
		uintptr_t p = k->block;
		unsigned class = k->class - 1u;
		if (RS_UNLIKELY(class >= RS_ALLOC_PAGED))
			return false;
		struct rs_alloc_bin *b = &h->bin[class];
		size_t whole = T.size[class];
		if (RS_UNLIKELY(b->top == b->limit || *(volatile uint64_t *)last_word(p, whole) != k->word || !is_filled(p, p + (k->n < FREED ? k->n : FREED), RS_FREED_WORD) ||
				!is_filled(p + k->n, pattern_end(p, whole, k->n), RS_GUARD_WORD)))
			return false;
		RS_BARRIER();
		q->first++;
		RS_BARRIER();
		q->bytes -= whole < q->bytes ? whole : q->bytes;
		*b->top = p;
		RS_BARRIER();
		b->top++;
	}
	/* The next to leave were written long ago. */
	const struct rs_kept *soon = &q->kept[(q->first + 8) % RS_QUARANTINED];
	__builtin_prefetch((const void *)soon->block);
	__builtin_prefetch((const void *)(soon->block + soon->n));
	return true;
}

void rs_alloc_guard_prefetch(const void *block)
{
	uintptr_t p = (uintptr_t)block;
	unsigned class = (V.unit[unit_index(p)] & 0xff) - 1u;
	__builtin_prefetch(block, 1);
	if (class < RS_ALLOC_PAGED)
		__builtin_prefetch(last_word(p, T.size[class]), 1);
}

bool rs_alloc_guard_free_quick(void *block, uint32_t alloc_stack, uint32_t free_stack)
{
	uintptr_t p = (uintptr_t)block;
	struct rs_alloc_heap *h = rs_alloc_mine;
	struct rs_quarantine *q = h->quarantine;
	unsigned class = (V.unit[unit_index(p)] & 0xff) - 1u;
	if (RS_UNLIKELY(!q || !V.foreign || V.torn || class >= RS_ALLOC_PAGED))
		return false;
	size_t size = T.size[class], n;
	uint32_t who;
	if (RS_UNLIKELY(size > quarantine_bytes || read_word(p, size, &n, &who) != RS_GUARD_LIVE || !is_filled(p + n, pattern_end(p, size, n), RS_GUARD_WORD)))
		return false;
	begin(h);
	bool room = make_room(h, q, size);
	if (RS_LIKELY(room)) {
		uint64_t word = *(volatile uint64_t *)last_word(p, size) ^ STATE_BITS(RS_GUARD_LIVE) ^ STATE_BITS(RS_GUARD_GONE);
		*(volatile uint64_t *)last_word(p, size) = word;
		RS_BARRIER();
		fill(p, p + (n < FREED ? n : FREED), RS_FREED_WORD);
		q->kept[q->end % RS_QUARANTINED] = (struct rs_kept){.block = p, .word = word, .n = (uint32_t)n, .alloc_stack = alloc_stack, .free_stack = free_stack, .free_thread = (uint16_t)self(), .class = (uint8_t)(class + 1)};
		q->bytes += size;
		RS_BARRIER();
		q->end++;
	}
	end(h);
	return room;
}

/* In place; false: not possible, and nothing was done. */
bool rs_alloc_guard_resize(struct rs_alloc_heap *h, uintptr_t *block, size_t n, struct rs_alloc_wrongs *out)
{
	uintptr_t p = *block;
	size_t size = rs_guard_whole(p), was;
	if (n > (size_t)PTRDIFF_MAX - V.guard)
		return false;
	bool huge = (V.unit[unit_index(p)] & 0xff) == RS_ALLOC_HUGE && n + V.guard > RS_ALLOC_LARGEST;
	unsigned class = size <= RS_ALLOC_LARGEST && n + V.guard <= RS_ALLOC_LARGEST ? class_of(n + V.guard) : RS_ALLOC_CLASSES;
	bool same = class < RS_ALLOC_CLASSES && T.size[class] == size;
	bool longer = class < RS_ALLOC_CLASSES && T.size[class] > size && class_of(size) >= RS_ALLOC_WHOLE;
	if ((!huge && !same && !longer) || rs_guard_state(p, size, &was) == RS_GUARD_GONE)
		return false;
	struct rs_alloc_wrong w;
	if (RS_UNLIKELY(rs_guard_look(p, &w))) {
		const struct rs_alloc_giving *g = rs_alloc_giving.block == p ? &rs_alloc_giving : NULL;
		w.alloc_stack = g && g->alloc_stack ? g->alloc_stack : w.alloc_stack;
		w.pc = g ? g->pc : 0;
		w.fp = g ? g->fp : NULL;
		w.when = RS_NOTICED_REALLOC;
		add(out, &w);
	}
	uint64_t *last = last_word(p, size), kept = *last;
	*(volatile uint64_t *)last = word_of(p, 0, 0, RS_GUARD_NONE);
	if (huge)
		p = rs_huge_resize(h, p, n + V.guard);
	if (p == 0 || (longer && !rs_slab_extend(h, p, class))) {
		*(volatile uint64_t *)last = kept;
		out->n = 0; /* the free that follows says it */
		return false;
	}
	note_block(p, rs_guard_whole(p), n, 0);
	place(p, rs_guard_whole(p), n, who_now(), RS_GUARD_LIVE);
	*block = p;
	return true;
}

void rs_alloc_guard_fork(bool torn)
{
	if (!torn)
		return;
	V.torn = true;
	if (V.generation < GENERATIONS - 1)
		V.generation++;
}

void rs_alloc_guard_forget(struct rs_quarantine *q)
{
	q->first = q->end;
	q->bytes = 0;
}

void rs_alloc_guard_begin(uint32_t word)
{
	enum { LEAST = 16 }; /* eight of pattern before the last word */
	V.guard = (word >> 8 & 0xff) * 8;
	quarantine_bytes = (size_t)(word >> 16) << 16;
	V.extra = V.guard || quarantine_bytes;
	if (V.extra && V.guard < LEAST)
		V.guard = LEAST;
}
