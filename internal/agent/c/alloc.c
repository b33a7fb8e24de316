/* alloc.c: the agent's own heap (alloc.h): its beginning, heaps and threads, locks, fork, and what malloc and its kin do beyond the quick paths.
 *
 * Ground rules that bite here: called wherever the program calls malloc: before main, in fork's handlers, at a thread's end, in signal handlers. The OS only through os.h; libc only for blocks that
 * cannot be had here, and for its message and abort. Nothing here sends events, looks at rs_self, or depends on a session that still lives.
 *
 * Signal handlers: beyond the quick paths the thread has no heap (rs_alloc_enter), so a handler that interrupts there gets libc's blocks, and what it frees goes
 * home by the ways for other threads' blocks. One that interrupts a quick path is as undefined as with glibc. */
#include "alloc_core.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)

struct rs_alloc_view rs_alloc;
struct rs_alloc_tables rs_alloc_tables;
struct rs_alloc_order rs_alloc_order;
__thread const char *rs_alloc_says;
uint8_t rs_alloc_class_of[RS_ALLOC_QUICK / 16 + 1];

static struct rs_alloc_heap nobody; /* its stacks are [NULL, NULL): empty, and full */
__thread struct rs_alloc_heap *rs_alloc_mine = &nobody;
RS_TLS enum { OUTSIDE, INSIDE, OVER } state; /* OVER: the thread has given its heap away */

enum { FIRST_CAP = 8 };

/* --- locks -------------------------------------------------------------------------------------------------------------------- */

/* FORKING: by a thread that is about to fork. */
enum { FREE, HELD, CONTENDED, FORKING };
enum { SLICE_MS = 1000, FORK_MS = 2, NO_END = UINT32_MAX };
static uint32_t forker; /* who has them all, to fork; 0: nobody yet */

/* glibc's fork takes locks of its own behind our handler, those of streams and of the name service, whose holders may wait for the allocator. glibc takes its own allocator's last, and nobody tells us when that is. So who waits for a thread that
 * itself waits within its fork may have its lock: nothing is changed there, and the memory is not being copied. */
static bool forker_waits(void)
{
	uint32_t tid = LOAD(forker);
	return tid && rs_os_in_futex(tid);
}

static bool swap(uint32_t *l, uint32_t from, uint32_t to) { return __atomic_compare_exchange_n(l, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); }

/* Waits in slices. False: not within so many. of_forker: it may be taken from one that waits. */
static __attribute__((noinline)) bool lock_slowly(uint32_t *l, unsigned ms, uint32_t slices, bool of_forker)
{
	for (uint32_t waited = 0;;) {
		uint32_t now = __atomic_load_n(l, __ATOMIC_RELAXED);
		if (now == FREE && swap(l, FREE, CONTENDED))
			return true;
		if (now == FREE || (now == HELD && !swap(l, HELD, CONTENDED)))
			continue;
		if (now == FORKING && of_forker && waited > 0 && forker_waits() && swap(l, FORKING, CONTENDED))
			return true;
		if (slices != NO_END && waited == slices)
			return false;
		waited++;
		rs_os_wait(l, now == FORKING ? FORKING : CONTENDED, false, now == FORKING && of_forker ? FORK_MS : ms);
	}
}

static void lock_word(uint32_t *l, bool of_forker)
{
	if (RS_UNLIKELY(!swap(l, FREE, HELD)))
		lock_slowly(l, SLICE_MS, NO_END, of_forker);
}

void rs_alloc_lock(uint32_t *l, uint32_t id)
{
	if (RS_UNLIKELY(rs_alloc_order.before != NULL))
		rs_alloc_order.before(id);
	lock_word(l, true);
	if (RS_UNLIKELY(rs_alloc_order.after != NULL))
		rs_alloc_order.after(id);
}

void rs_alloc_unlock(uint32_t *l)
{
	if (RS_UNLIKELY(__atomic_exchange_n(l, FREE, __ATOMIC_RELEASE) == CONTENDED))
		rs_os_wake(l, false);
	if (RS_UNLIKELY(rs_alloc_order.free != NULL))
		rs_alloc_order.free();
}

/* As glibc ends a program whose heap is broken: by the same calls, which are the program's own, so that of an epoch that is executed again the message is not written again. */
void rs_alloc_abort(const char *what)
{
	rs_alloc_says = what;
	struct iovec piece[2] = {{(void *)(uintptr_t)what, rs_os_length(what)}, {"\n", 1}};
	syscall(SYS_writev, 2, piece, 2);
	abort();
}

/* --- heaps ---------------------------------------------------------------------------------------------------------------------- */

static struct rs_alloc_heap *make_heap(uint32_t id)
{
	size_t slots = 0;
	for (unsigned c = 0; c < RS_ALLOC_CLASSES; c++)
		slots += T.cap[c];
	struct rs_alloc_heap *h = rs_os_map_numbered(RS_OS_HEAP(id), sizeof *h + slots * sizeof(uintptr_t));
	if (!h)
		return NULL;
	uintptr_t *at = (uintptr_t *)(h + 1);
	for (unsigned c = 0; c < RS_ALLOC_CLASSES; c++) {
		h->bin[c].top = h->bin[c].bottom = at;
		h->bin[c].limit = at + (T.cap[c] < FIRST_CAP ? T.cap[c] : FIRST_CAP);
		at += T.cap[c];
	}
	h->id = id;
	return h;
}

static uint32_t lowest_heap = 1; /* those below are taken */

/* The lowest that no thread has, or a new one. */
static struct rs_alloc_heap *find_heap(bool new)
{
	struct rs_alloc_heap *h = NULL;
	rs_alloc_lock(&T.lock, 0);
	uint32_t id = new ? T.heaps : lowest_heap;
	while (id < T.heaps && T.heap[id]->taken)
		id++;
	if (!new)
		lowest_heap = id;
	if (id < T.heaps)
		h = T.heap[id];
	else if (id < HEAPS_MOST && (h = make_heap(id)) != NULL) {
		__atomic_store_n(&T.heap[id], h, __ATOMIC_RELEASE);
		__atomic_store_n(&T.heaps, id + 1, __ATOMIC_RELEASE);
	}
	if (h)
		h->taken = 1;
	rs_alloc_unlock(&T.lock);
	return h;
}

struct rs_alloc_heap *rs_alloc_enter(void)
{
	if (RS_UNLIKELY(state != OUTSIDE))
		return NULL;
	struct rs_alloc_heap *h = rs_alloc_mine;
	state = INSIDE;
	RS_BARRIER();
	rs_alloc_mine = &nobody;
	RS_BARRIER();
	if (RS_UNLIKELY(!h->id) && !(h = find_heap(false))) {
		state = OUTSIDE;
		return NULL;
	}
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
	RS_BARRIER();
	return h;
}

void rs_alloc_leave(struct rs_alloc_heap *h)
{
	RS_BARRIER();
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
	rs_alloc_mine = h;
	RS_BARRIER();
	state = OUTSIDE;
}

uint32_t rs_alloc_common_heap;
static struct rs_alloc_heap *common; /* under its lock, which is had before those of heaps; `taken` for good */
static uint32_t common_lock;

void *rs_alloc_common(size_t n, size_t align, bool zero)
{
	struct rs_alloc_heap *h = V.on && !V.extra ? rs_alloc_enter() : NULL;
	if (!h)
		return NULL;
	lock_word(&common_lock, true);
	if (!common && (common = find_heap(true)))
		__atomic_store_n(&rs_alloc_common_heap, common->id, __ATOMIC_RELAXED);
	void *p = common ? rs_plain_alloc(common, n, align > 16 ? align : 16, zero) : NULL;
	rs_alloc_unlock(&common_lock);
	rs_alloc_leave(h);
	return p;
}

void rs_alloc_thread_end(void)
{
	struct rs_alloc_heap *h = rs_alloc_mine;
	if (state != OUTSIDE)
		return;
	state = OVER;
	RS_BARRIER();
	rs_alloc_mine = &nobody;
	RS_BARRIER();
	if (!h->id)
		return;
	/* In the allocator, for who looks at blocks: what is about to go home is on no stack. */
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
	RS_BARRIER();
	rs_slab_idle(h);
	RS_BARRIER();
	__atomic_store_n(&h->seq, h->seq + 1, __ATOMIC_RELAXED);
	rs_alloc_lock(&T.lock, 0);
	h->taken = 0;
	if (h->id < lowest_heap)
		lowest_heap = h->id;
	rs_alloc_unlock(&T.lock);
}

/* --- fork --------------------------------------------------------------------------------------------------------------------------- */

RS_TLS bool fork_locked;    /* by this thread: another one may wait to fork */
static uint32_t fork_heaps; /* of who has them */

enum { WAIT_MS = 5 };

/* waits: how many are left. */
static bool lock_patiently(uint32_t *l, unsigned *waits)
{
	for (; !swap(l, FREE, HELD); --*waits)
		if (*waits == 0)
			return false;
		else if (lock_slowly(l, WAIT_MS, 1, false))
			break;
	return true;
}

static uint32_t still_heaps;

bool rs_alloc_still(unsigned ms)
{
	uint32_t id = 1;
	unsigned waits = ms / WAIT_MS;
	if (!V.reserved || state == INSIDE)
		return false;
	for (;;) {
		for (; id < __atomic_load_n(&T.heaps, __ATOMIC_ACQUIRE); id++)
			if (!lock_patiently(&T.heap[id]->lock, &waits))
				goto give_up;
		if (!lock_patiently(&T.lock, &waits))
			goto give_up;
		if (id == T.heaps)
			break;
		rs_alloc_unlock(&T.lock);
	}
	still_heaps = id;
	return true;
give_up:
	while (id-- > 1)
		rs_alloc_unlock(&T.heap[id]->lock);
	return false;
}

void rs_alloc_go(void)
{
	rs_alloc_unlock(&T.lock);
	for (uint32_t id = 1; id < still_heaps; id++)
		rs_alloc_unlock(&T.heap[id]->lock);
}

static void lock_to_fork(uint32_t *l)
{
	lock_word(l, false);
	if (__atomic_exchange_n(l, FORKING, __ATOMIC_RELAXED) == CONTENDED)
		rs_os_wake(l, false); /* they wait for another value */
}

/* Unless somebody else has it. */
static void unlock_behind_fork(uint32_t *l)
{
	uint32_t ours = FORKING;
	if (__atomic_compare_exchange_n(l, &ours, FREE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		rs_os_wake(l, false);
}

/* A fork in a handler that interrupted the allocator has no way to wait for what its own thread holds. */
void rs_alloc_before_fork(void)
{
	if (!V.reserved || state == INSIDE)
		return;
	lock_to_fork(&common_lock);
	/* Heaps first, as all do who take both. */
	for (uint32_t id = 1;;) {
		for (; id < __atomic_load_n(&T.heaps, __ATOMIC_ACQUIRE); id++)
			lock_to_fork(&T.heap[id]->lock);
		lock_to_fork(&T.lock);
		if (id == T.heaps)
			break;
		unlock_behind_fork(&T.lock);
	}
	fork_heaps = T.heaps;
	fork_locked = true;
	__atomic_store_n(&forker, rs_os_tid(), __ATOMIC_RELAXED);
}

/* The kernel copies one page after the other while other threads run. So what another thread's heap says, and what lies in blocks that it was about, need not be of one moment: the blocks on its stacks and in its quarantine
 * are left alone for good, and of blocks that are older than the fork nothing is told. */
static void forget_blocks(struct rs_alloc_heap *h)
{
	for (unsigned class = 0; class < RS_ALLOC_CLASSES; class++)
		h->bin[class].top = h->bin[class].bottom;
	if (h->quarantine)
		rs_alloc_guard_forget(h->quarantine);
	h->seq &= ~1u;
}

void rs_alloc_after_fork(bool child)
{
	if (!V.reserved)
		return;
	if (child) {
		bool torn = fork_locked && T.lock != FORKING;
		forker = 0;
		for (uint32_t id = 1; id < T.heaps; id++) {
			struct rs_alloc_heap *h = T.heap[id];
			torn |= fork_locked && id < fork_heaps && h->lock != FORKING;
			h->lock = 0;
			if (h == common) { /* nobody asks for blocks of it any more, and it may have been in the middle of something */
				forget_blocks(h);
				continue;
			}
			if (h == rs_alloc_mine || state == INSIDE) { /* which of them is this thread's and is to be had again, is not known here */
				torn |= h != rs_alloc_mine;
				continue;
			}
			if (h->taken)
				forget_blocks(h);
			torn |= h->taken;
			h->taken = 0;
		}
		T.lock = common_lock = 0;
		fork_locked = false;
		lowest_heap = 1;
		rs_alloc_guard_fork(torn);
	} else if (fork_locked) {
		uint32_t heaps = fork_heaps; /* the next one's, when it has the last */
		fork_locked = false;
		__atomic_store_n(&forker, 0, __ATOMIC_RELAXED);
		unlock_behind_fork(&T.lock);
		for (uint32_t id = 1; id < heaps; id++)
			unlock_behind_fork(&T.heap[id]->lock);
		unlock_behind_fork(&common_lock);
	}
}

/* --- blocks --------------------------------------------------------------------------------------------------------------------------- */

static void clear(uintptr_t p, size_t n)
{
	typedef long long two __attribute__((vector_size(16)));
	if (n >= 512) {
		rs_os_clear((void *)seen(p), n);
		return;
	}
	for (size_t i = 0; i < n; i += 16) /* blocks are of whole 16 bytes */
		*(volatile two *)(seen(p) + i) = (two){0, 0};
}

static void copy(uintptr_t to, uintptr_t from, size_t n)
{
	typedef long long two __attribute__((vector_size(16)));
	if (n >= 1024) {
		rs_os_copy((void *)seen(to), (const void *)seen(from), n);
		return;
	}
	for (size_t i = 0; i < n; i += 16)
		*(volatile two *)(seen(to) + i) = *(volatile two *)(seen(from) + i);
}

void *rs_plain_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool zero)
{
	size_t m = n > align ? n : align;
	unsigned class = m <= RS_ALLOC_LARGEST && align <= RS_UNIT ? class_of(m ? m : 1) : RS_ALLOC_CLASSES;
	while (class < RS_ALLOC_CLASSES && align > 16 && T.size[class] & (align - 1))
		class++;
	if (class == RS_ALLOC_CLASSES) {
		bool clean = false;
		uintptr_t p = rs_huge_alloc(h, n > RS_ALLOC_LARGEST ? n : RS_ALLOC_LARGEST + 1, align, &clean);
		/* Pages that the program will not touch are better not there. */
		if (p && zero && !clean && purge(p, (n + RS_PAGE - 1) & -RS_PAGE) != 0)
			rs_os_clear((void *)seen(p), n);
		return (void *)p;
	}
	struct rs_alloc_bin *b = &h->bin[class];
	uintptr_t p = b->top != b->bottom ? *--b->top : rs_slab_refill(h, class);
	if (p && zero && (class < RS_ALLOC_PAGED || !rs_slab_clean(p, n)))
		clear(p, n);
	return (void *)p;
}

void rs_plain_free(struct rs_alloc_heap *h, void *block)
{
	uintptr_t p = (uintptr_t)block;
	unsigned kind = V.unit[unit_index(p)] & 0xff, class = kind - 1;
	if (kind == RS_ALLOC_HUGE) {
		rs_huge_free(p);
		return;
	}
	if (class >= RS_ALLOC_CLASSES)
		rs_alloc_abort("free(): invalid pointer");
	bool own = h && (V.foreign || V.owner[chunk_index(p)] == h->id);
	if (class >= RS_ALLOC_PAGED && (own || V.foreign))
		rs_slab_dirty(p, T.size[class]);
	if (class >= RS_ALLOC_WHOLE && (V.foreign ? state != INSIDE || h : own)) {
		rs_slab_home(p);
	} else if (own) {
		struct rs_alloc_bin *b = &h->bin[class];
		if (b->top == b->limit)
			rs_slab_flush(h, class, false);
		*b->top = p;
		RS_BARRIER();
		b->top++;
	} else if (V.foreign && state != INSIDE) {
		rs_slab_home(p);
	} else {
		rs_slab_remote(p);
	}
}

static void *alloc(size_t n, size_t align, bool zero)
{
	struct rs_alloc_heap *h = V.on ? rs_alloc_enter() : NULL;
	if (RS_UNLIKELY(!h))
		return NULL;
	void *p = RS_UNLIKELY(V.extra) ? rs_alloc_guard_alloc(h, n, align, zero) : rs_plain_alloc(h, n, align, zero);
	rs_alloc_leave(h);
	return p;
}

void *rs_alloc_malloc_slow(size_t n)
{
	if (RS_LIKELY(n <= RS_ALLOC_LARGEST && !V.extra)) {
		struct rs_alloc_bin *b = &rs_alloc_mine->bin[class_of(n ? n : 1)];
		if (RS_LIKELY(b->top != b->bottom))
			return (void *)*--b->top;
	}
	void *p = V.extra ? rs_alloc_guard_quick(n, false, 0) : NULL;
	if (RS_LIKELY(p != NULL))
		return p;
	p = alloc(n, 16, false);
	return RS_LIKELY(p != NULL) ? p : rs_real.malloc(n);
}

void *rs_alloc_calloc(size_t m, size_t n)
{
	size_t total;
	if (RS_UNLIKELY(__builtin_mul_overflow(m, n, &total)))
		return rs_real.calloc(m, n);
	if (RS_LIKELY(total <= RS_ALLOC_QUICK && !V.extra)) {
		struct rs_alloc_bin *b = &rs_alloc_mine->bin[rs_alloc_class_of[(total + 15) >> 4]];
		if (RS_LIKELY(b->top != b->bottom)) {
			uintptr_t p = *--b->top;
			clear(p, total);
			return (void *)p;
		}
	}
	void *p = V.extra ? rs_alloc_guard_quick(total, true, 0) : NULL;
	if (RS_LIKELY(p != NULL))
		return p;
	p = alloc(total, 16, true);
	return RS_LIKELY(p != NULL) ? p : rs_real.calloc(m, n);
}

/* align: a power of two. */
void *rs_alloc_memalign(size_t align, size_t n)
{
	void *p = alloc(n, align > 16 ? align : 16, false);
	return RS_LIKELY(p != NULL) ? p : rs_real.memalign(align, n);
}

static void tell_wrong(const struct rs_alloc_wrongs *wrong)
{
	for (unsigned i = 0; i < wrong->n && rs_alloc_found; i++)
		rs_alloc_found(&wrong->e[i]);
}

static __attribute__((noinline)) void guarded_free(void *p, unsigned when)
{
	struct rs_alloc_wrongs wrong;
	wrong.n = 0;
	struct rs_alloc_heap *h = rs_alloc_enter();
	rs_alloc_guard_free(h, p, when, &wrong);
	if (h)
		rs_alloc_leave(h);
	tell_wrong(&wrong);
}

void rs_alloc_free_slow(void *p)
{
	if (RS_UNLIKELY(V.extra)) {
		guarded_free(p, RS_NOTICED_FREE);
		return;
	}
	struct rs_alloc_heap *h = rs_alloc_enter();
	rs_plain_free(h, p);
	if (h)
		rs_alloc_leave(h);
}

/* Is it in no block that is out, for certain? */
static bool is_free(uintptr_t p)
{
	unsigned kind = V.unit[unit_index(p)] & 0xff;
	if (kind == RS_ALLOC_HUGE)
		return p & (RS_CHUNK - 1);
	if (kind == 0 || p & 15 || !rs_slab_out(p))
		return true;
	size_t n;
	enum rs_guard_state says = V.extra ? rs_guard_state(p, rs_guard_whole(p), &n) : RS_GUARD_NONE;
	if (RS_LIKELY(says != RS_GUARD_NONE))
		return says == RS_GUARD_GONE;
	const struct rs_alloc_bin *b = &rs_alloc_mine->bin[kind - 1];
	for (const uintptr_t *at = b->bottom; at < b->top; at++)
		if (*at == p)
			return true;
	return false;
}

void rs_alloc_doubt(void *p, const char *what)
{
	if (is_free((uintptr_t)p))
		rs_alloc_abort(what);
}

void rs_alloc_free_doubtful(void *p)
{
	if (is_free((uintptr_t)p)) {
		uintptr_t block = (uintptr_t)p;
		size_t n;
		rs_alloc_block_of((uintptr_t)p, &block, &n);
		rs_alloc_abort((uintptr_t)p & 15 || (V.unit[unit_index((uintptr_t)p)] & 0xff) == 0 || block != (uintptr_t)p ? "free(): invalid pointer" : "free(): double free detected in tcache 2");
	}
	rs_alloc_free(p);
}

static size_t size_of(uintptr_t p)
{
	unsigned kind = V.unit[unit_index(p)] & 0xff;
	if (kind == RS_ALLOC_HUGE)
		return chunk_at(chunk_index(p))->run_bytes;
	return kind && kind <= RS_ALLOC_CLASSES ? T.size[kind - 1] : 0;
}

size_t rs_alloc_usable_size(void *p) { return RS_UNLIKELY(V.extra) ? rs_alloc_guard_usable((uintptr_t)p) : size_of((uintptr_t)p); }

static __attribute__((noinline)) bool guarded_resize(uintptr_t *p, size_t n)
{
	struct rs_alloc_wrongs wrong;
	wrong.n = 0;
	struct rs_alloc_heap *h = rs_alloc_enter();
	if (!h)
		return false;
	bool done = rs_alloc_guard_resize(h, p, n, &wrong);
	rs_alloc_leave(h);
	tell_wrong(&wrong);
	return done;
}

/* Where the block can be had with another size without its bytes being copied; NULL: nowhere. */
static void *resized_in_place(uintptr_t p, size_t n, size_t was)
{
	/* A little less than there is stays; libc's gives back what is more than 32 bytes too many, but has less to choose from. */
	if (was <= RS_ALLOC_LARGEST && n <= was && (n >= was - was / 8 || class_of(n) == class_of(was)))
		return (void *)p;
	bool huge = was > RS_ALLOC_LARGEST && n > RS_ALLOC_LARGEST, longer = n > was && n <= RS_ALLOC_LARGEST && class_of(was) >= RS_ALLOC_WHOLE;
	struct rs_alloc_heap *h = huge || longer ? rs_alloc_enter() : NULL;
	if (!h)
		return NULL;
	uintptr_t to = huge ? rs_huge_resize(h, p, n) : rs_slab_extend(h, p, class_of(n)) ? p : 0;
	rs_alloc_leave(h);
	return (void *)to;
}

void *rs_alloc_common_realloc(void *old, size_t n)
{
	uintptr_t p = (uintptr_t)old;
	if (n == 0 || V.extra || size_of(p) == 0)
		return NULL;
	size_t was = rs_alloc_usable_size(old);
	void *new = LOAD(V.owner[chunk_index(p)]) == __atomic_load_n(&rs_alloc_common_heap, __ATOMIC_RELAXED) ? resized_in_place(p, n, was) : NULL;
	if (new || !(new = rs_alloc_common(n, 16, false)))
		return new;
	copy((uintptr_t)new, p, was < n ? was : n);
	rs_alloc_free(old);
	return new;
}

void *rs_alloc_realloc(void *old, size_t n)
{
	uintptr_t p = (uintptr_t)old;
	if (n == 0) {
		rs_alloc_free(old);
		return NULL;
	}
	if (size_of(p) == 0)
		rs_alloc_abort("realloc(): invalid pointer");
	size_t was = rs_alloc_usable_size(old);
	if (!V.extra) {
		void *same = resized_in_place(p, n, was);
		if (same)
			return same;
	}
	if (V.extra && V.on && guarded_resize(&p, n))
		return (void *)p;
	void *new = V.on ? rs_alloc_malloc(n) : rs_real.malloc(n);
	if (!new)
		return NULL;
	if (RS_UNLIKELY(!rs_alloc_has((uintptr_t)new)) && rs_alloc_source.away) {
		rs_os_copy(new, (void *)seen(p), was < n ? was : n);
		rs_alloc_free(old);
		return new;
	}
	if (V.extra) {
		rs_os_copy(new, old, was < n ? was : n); /* not one byte more: there are guard bytes behind */
		guarded_free(old, RS_NOTICED_REALLOC);
		return new;
	}
	copy((uintptr_t)new, p, was < n ? was : n);
	rs_alloc_free(old);
	return new;
}

RS_GENERAL bool rs_alloc_block_of(uintptr_t p, uintptr_t *block, size_t *size)
{
	if (!rs_alloc_has(p))
		return false;
	uint32_t unit = unit_index(p);
	unsigned word = __atomic_load_n(&V.unit[unit], __ATOMIC_RELAXED), kind = word & 0xff;
	if (kind && kind <= RS_ALLOC_CLASSES) {
		uintptr_t first = unit_address(unit - (word >> 8));
		*size = T.size[kind - 1];
		*block = first + (p - first) / *size * *size;
		return rs_slab_out(*block);
	}
	uint32_t owner = LOAD(V.owner[chunk_index(p)]);
	for (uint32_t i = chunk_index(p) + 1; owner && i-- > 0 && LOAD(V.owner[i]) == owner;) {
		kind = __atomic_load_n(&V.unit[i * UNITS], __ATOMIC_RELAXED) & 0xff;
		if (kind == 0)
			continue;
		*block = chunk_address(i);
		*size = chunk_at(i)->run_bytes;
		return kind == RS_ALLOC_HUGE && p - *block < *size;
	}
	return false;
}

/* --- what programs ask ------------------------------------------------------------------------------------------------------------------ */

bool rs_alloc_trim(void)
{
	struct rs_alloc_heap *h = rs_alloc_enter();
	if (h) {
		rs_slab_idle(h);
		rs_alloc_leave(h);
	}
	for (uint32_t id = 1; id < __atomic_load_n(&T.heaps, __ATOMIC_ACQUIRE); id++) {
		rs_alloc_lock(&T.heap[id]->lock, id);
		rs_slab_purge(T.heap[id]);
		rs_alloc_unlock(&T.heap[id]->lock);
	}
	return rs_runs_purge();
}

void rs_alloc_count(struct rs_alloc_counts *c)
{
	*c = (struct rs_alloc_counts){0};
	rs_runs_count(c);
	for (uint32_t i = 0, n = (uint32_t)(LOAD(V.limit) >> RS_CHUNK_BITS); i < n; i++) {
		uint32_t owner = LOAD(V.owner[i]);
		if (!owner || __atomic_load_n(&V.unit[i * UNITS], __ATOMIC_RELAXED) == RS_ALLOC_HUGE)
			continue;
		for (unsigned u = 0; u < UNITS; u++) {
			unsigned word = __atomic_load_n(&V.unit[i * UNITS + u], __ATOMIC_RELAXED), kind = word & 0xff;
			if (kind == RS_ALLOC_HUGE)
				break;
			if (kind == 0) { /* of a run's later chunks nothing is said here, and they count as free */
				c->free += RS_UNIT;
			} else if (word >> 8 == 0) {
				const struct span *s = span_at(i * UNITS + u);
				c->free += (size_t)(LOAD(s->free) + LOAD(s->fresh)) * T.size[kind - 1];
				c->spans++;
			}
		}
	}
	/* Runs' later chunks: all but the first of each. */
	size_t rest = 0;
	for (uint32_t i = 0, n = (uint32_t)(LOAD(V.limit) >> RS_CHUNK_BITS); i < n; i++)
		if (LOAD(V.owner[i]) && __atomic_load_n(&V.unit[i * UNITS], __ATOMIC_RELAXED) == RS_ALLOC_HUGE)
			rest += ((chunk_at(i)->run_bytes + RS_CHUNK - 1) >> RS_CHUNK_BITS) - 1;
	c->free -= rest * RS_CHUNK < c->free ? rest * RS_CHUNK : c->free;
	if (c->free > c->held)
		c->free = c->held;
}

/* --- beginning ---------------------------------------------------------------------------------------------------------------------------- */

static void make_classes(void)
{
	for (unsigned c = 0; c < RS_ALLOC_CLASSES; c++) {
		unsigned e = c < 8 ? 0 : 7 + (c - 8) / 8;
		uint32_t size = c < 8 ? 16 * (c + 1) : c < RS_ALLOC_WHOLE ? (9 + (c - 8) % 8) << (e - 3) : (c - RS_ALLOC_WHOLE + 3) * RS_UNIT;
		unsigned u = 1;
		while (u < UNITS && (u * RS_UNIT < size || u * RS_UNIT % size > u * RS_UNIT / 16))
			u++;
		T.size[c] = size;
		T.units[c] = (uint8_t)u;
		T.total[c] = (uint16_t)(u * RS_UNIT / size);
		T.cap[c] = size <= 256 ? 128 : size <= 1024 ? 64 : size <= 4096 ? 8 : c < RS_ALLOC_WHOLE ? 2 : 1;
	}
	for (unsigned i = 0; i <= RS_ALLOC_QUICK / 16; i++)
		rs_alloc_class_of[i] = (uint8_t)class_of(i ? i * 16 : 1);
}

bool rs_alloc_begin(uint32_t word)
{
	static const char no[] = "its heap is libc's: the agent's own cannot have the addresses it needs";
	uint64_t most = 256ull << 30, least = 256ull << 20;
	struct rlimit64 r;
	if (RS_SYS4(SYS_prlimit64, 0, RLIMIT_AS, 0, &r) == 0 && r.rlim_cur != RLIM64_INFINITY)
		while (most > r.rlim_cur / 4)
			most /= 2; /* the rest is the program's own, as what does not fit here is libc's */
	long why = -ENOMEM;
	if (rs_alloc_source.base)
		most = least = rs_alloc_source.bytes;
	for (; most >= least && why < 0; most /= 4)
		why = rs_runs_begin(most, word >> 8);
	if (why < 0) {
		rs_os_say(no, why);
		return false;
	}
	make_classes();
	T.heaps = 1;
	V.foreign = (word & 0xff) == RS_ALLOCATOR_FREER;
	rs_alloc_guard_begin(word);
	__atomic_store_n(&V.on, 1, __ATOMIC_RELEASE);
	return true;
}

void rs_alloc_stop(void) { __atomic_store_n(&V.on, 0, __ATOMIC_SEQ_CST); }
