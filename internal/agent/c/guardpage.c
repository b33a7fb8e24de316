/* guardpage.c: pages that are watched by taking the right to write to them, for machines whose breakpoints are never hit. See guardpage.h. General registers only.
 *
 * A store to such a page is a fault, at whose end the store has been made, the page is as it was, and its unit is told as a breakpoint would tell it: behind the instruction. Three ways, the first that can be gone:
 *  - a plain mov is made by us;
 *  - the instruction is led to a copy of what it changes by the register that its address comes from, and stepped there; what it left in the copy goes to its place. No other thread can write meanwhile;
 *  - the page is opened, the instruction stepped, and the page closed. What another thread wrote to a unit in between is known as lost.
 * We write to closed pages by /proc/self/mem, which may (FOLL_FORCE), or open them for a moment where that cannot be had. One lock orders all that, so an instruction that reads and writes is one piece for all other stores.
 *
 * Both signals are forced on the thread: where one is blocked it kills. So they are open on all threads of an excursion (rs_os_open), on a stack in the arena. */
#include "guardpage.h"
#include "alloc.h"
#include "guardlog.h"
#include "guardrseq.h"
#include "guardstore.h"
#include "guardthread.h"
#include "checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>

enum { PAGES = 64, PATIENCE_MS = 5000 /* of handlers; signals take about as much again */, WIDEST = 64, TF = 0x100, DF = 0x400, WRITES = 2 /* of a fault's error */, NONE = 16 };
enum { FREE, CALL /* the kernel writes, or changes the map */, LED /* its store goes to the copy */, OPENED };

struct page {
	uint64_t at;
	uint64_t spent_ns;
	int32_t prot;              /* the program's; -1: it is not mapped */
	uint32_t closed, state;    /* RS_GUARD_PAGE_… */
};

static struct pages {
	char copy[2 * RS_PAGE];    /* the store lies in it as in its page: aligned alike */
	uint32_t armed, count;
	uint32_t lock;             /* futex: 0, the owner's tid, or with WAITED */
	uint32_t doing;            /* the owner's */
	uint64_t stores;
	uint64_t begun_ns;
	struct rs_guard_store store;
	uint64_t delta;            /* in the register */
	uint64_t fault;
	char was[WIDEST];
	struct piece { uint64_t lo, n; } call;
	struct page page[PAGES];
} *pages;
#define WAITED 0x80000000u

static struct page *page_of(uint64_t a)
{
	for (uint32_t i = 0; i < pages->count; i++)
		if (pages->page[i].at == (a & -(uint64_t)RS_PAGE))
			return &pages->page[i];
	return NULL;
}

static bool meets(const struct page *p, uint64_t lo, uint64_t n) { return p->at < lo + n && lo < p->at + RS_PAGE; }

static bool meets_any(uint64_t lo, uint64_t n)
{
	for (uint32_t i = 0; i < pages->count; i++)
		if (meets(&pages->page[i], lo, n))
			return true;
	return false;
}

/* A stop may come in between, and then all begins anew. */
static void lock(void)
{
	uint32_t tid = rs_os_tid(), word = 0;
	while (!__atomic_compare_exchange_n(&pages->lock, &word, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (word & WAITED || __atomic_compare_exchange_n(&pages->lock, &word, word | WAITED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			struct timespec ts = {0, 1000000};
			RS_SYS4(SYS_futex, &pages->lock, FUTEX_WAIT_PRIVATE, word | WAITED, &ts);
		}
		word = 0;
	}
}

static void unlock(void)
{
	pages->doing = FREE;
	if (__atomic_exchange_n(&pages->lock, 0, __ATOMIC_ACQ_REL) & WAITED)
		RS_SYS3(SYS_futex, &pages->lock, FUTEX_WAKE_PRIVATE, 1);
}

static bool mine(void) { return (__atomic_load_n(&pages->lock, __ATOMIC_ACQUIRE) & ~WAITED) == rs_os_tid(); }

static long set(struct page *p, bool closed)
{
	/* A stop may come in between: then it is opened once more. */
	if (closed)
		__atomic_store_n(&p->closed, 1, __ATOMIC_RELEASE);
	long r = RS_SYS3(SYS_mprotect, p->at, RS_PAGE, closed ? p->prot & ~PROT_WRITE : p->prot);
	if (closed ? r < 0 : r == 0)
		__atomic_store_n(&p->closed, 0, __ATOMIC_RELEASE);
	return r;
}

/* It can be, and is to be, closed. */
static bool to_close(const struct page *p) { return !p->closed && p->state == RS_GUARD_PAGE_WATCHED && p->prot >= 0 && p->prot & PROT_WRITE; }

static void open_pages(uint64_t lo, uint64_t n)
{
	for (uint32_t i = 0; i < pages->count; i++)
		if (pages->page[i].closed && meets(&pages->page[i], lo, n))
			set(&pages->page[i], false);
}

static void close_pages(void)
{
	for (uint32_t i = 0; i < pages->count; i++)
		if (to_close(&pages->page[i]) && set(&pages->page[i], true) < 0)
			pages->page[i].state = RS_GUARD_PAGE_LOCKED;
}

/* --- our own writes ------------------------------------------------------------------------------------------------------------------------ */

static bool by_vm(long call, uint64_t at, const void *p, size_t n)
{
	struct iovec local = {(void *)(uintptr_t)p, n}, remote = {(void *)at, n};
	return RS_SYS6(call, rs_os_tid(), &local, 1, &remote, 1, 0) == (long)n;
}

/* The lock is ours. What cannot be written is not: it never faults. */
static void write_there(uint64_t to, const void *from, size_t n)
{
	long fd = RS_SYS4(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0), r = fd;
	if (fd >= 0) {
		r = RS_SYS4(SYS_pwrite64, fd, from, n, to);
		RS_SYS1(SYS_close, fd);
	}
	if (r == (long)n)
		return;
	open_pages(to, n);
	if (!by_vm(SYS_process_vm_writev, to, from, n) && meets_any(to, 1) && meets_any(to + n - 1, 1))
		rs_os_copy((void *)to, from, n);
	close_pages();
}

/* As far as it can be read. */
static size_t read_there(uint64_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0);
	if (r == -EPERM || r == -ENOSYS || r == -EACCES) {
		uint64_t left = RS_PAGE - at % RS_PAGE;
		r = (long)(n < left ? n : left);
		rs_os_copy(to, (const void *)at, (size_t)r);
	}
	return r < 0 ? 0 : (size_t)r;
}

bool rs_guard_page_put(void *to, const void *from, size_t n)
{
	if (!pages || !pages->armed || !meets_any((uintptr_t)to, n))
		return false;
	bool nested = mine();
	if (!nested)
		lock();
	write_there((uintptr_t)to, from, n);
	if (!nested)
		unlock();
	return true;
}

/* --- a store -------------------------------------------------------------------------------------------------------------------------------- */

/* The lock is ours, and is given up. */
static void over(void)
{
	struct page *p = page_of(pages->fault);
	pages->stores++;
	p->spent_ns += rs_os_now_ns() - pages->begun_ns;
	if (p->spent_ns > PATIENCE_MS * 1000000ull && p->state == RS_GUARD_PAGE_WATCHED) {
		p->state = RS_GUARD_PAGE_HOT;
		if (p->closed)
			set(p, false);
	}
	unlock();
}

/* Elements of a rep up to the next unit, or the page's end: nobody is told of them. */
static bool elements(const struct rs_instruction *in, const struct rs_guard_store *s, uint64_t *g)
{
	char bytes[512];
	bool moves = in->op < 0xaa;
	uint64_t end = (s->at & -(uint64_t)RS_PAGE) + RS_PAGE, unit = rs_guard_watch_next_unit(s->at), size = s->bytes;
	if (!s->string || in->odd != 0xf3 || in->length != 2 + (in->rex != 0) + in->small || g[REG_EFL] & DF)
		return false;
	uint64_t n = ((unit < end ? unit : end) - s->at) / size, src = g[REG_RSI];
	if (unit <= s->at || n < 2)
		return false;
	if (n > sizeof bytes / size)
		n = sizeof bytes / size;
	if (n > g[REG_RCX])
		n = g[REG_RCX];
	if (moves && src < s->at && (s->at - src) / size < n)
		n = (s->at - src) / size;
	if (moves)
		n = n ? read_there(src, bytes, n * size) / size : 0;
	else
		for (uint64_t i = 0; i < n; i++)
			rs_os_copy(bytes + i * size, &g[REG_RAX], size);
	if (n < 2)
		return false;
	write_there(s->at, bytes, n * size);
	g[REG_RDI] += n * size;
	g[REG_RSI] += moves ? n * size : 0;
	if (!(g[REG_RCX] -= n))
		g[REG_RIP] += in->length;
	return true;
}

/* As the fault says: at its first byte, where it comes into the page, or (masked) further in. */
static bool agrees(const struct rs_guard_store *s, uint64_t fault) { return fault - s->at < (s->bytes ? s->bytes : WIDEST); }

/* What the mask is, from the frame's XSAVE area. */
static bool mask_of(const ucontext_t *uc, unsigned k, uint64_t *mask)
{
	enum { SOFTWARE = 464, MAGIC = 0x46505853, HEADER = 512, MASKS = 5 };
	const char *fp = (const char *)uc->uc_mcontext.fpregs;
	uint32_t eax = 0xd, ebx, ecx = MASKS, edx;
	if (!fp || *(const uint32_t *)(fp + SOFTWARE) != MAGIC || !(*(const uint64_t *)(fp + HEADER) >> MASKS & 1))
		return false;
	__asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
	rs_os_copy(mask, fp + ebx + 8 * k, 8);
	return eax >= 64;
}

static void begin_store(ucontext_t *uc, uint64_t fault)
{
	struct pages *p = pages;
	uint64_t *g = (uint64_t *)uc->uc_mcontext.gregs;
	struct rs_instruction in;
	uint8_t code[15];
	p->fault = fault;
	bool known = rs_decode(&in, code, read_there(g[REG_RIP], code, sizeof code)) && rs_guard_store(&in, g, &p->store) && agrees(&p->store, fault);
	struct rs_guard_store *s = &p->store;
	uint64_t mask = 0;
	if (known && s->mask && mask_of(uc, s->mask, &mask))
		rs_guard_store_masked(s, mask);
	if (known && elements(&in, s, g)) {
		over();
		return;
	}
	if (known && s->plain) {
		write_there(s->at, &s->value, s->bytes);
		g[REG_RIP] += in.length;
		if (rs_guard_watch_meets(s->at, s->bytes))
			rs_guard_watch_stored(s->at, s->bytes, uc);
		over();
		return;
	}
	if (!known)
		*s = (struct rs_guard_store){.at = fault, .r = NONE};
	p->doing = s->r < NONE ? LED : OPENED;
	if (p->doing == LED) {
		uint64_t to = (uint64_t)p->copy + s->at % RS_PAGE;
		rs_os_clear(p->was, sizeof p->was);
		read_there(s->at, p->was, sizeof p->was);
		rs_os_copy((void *)to, p->was, sizeof p->was);
		p->delta = to - s->at;
		g[rs_guard_store_register(s->r)] += (uint64_t)((int64_t)p->delta >> s->scale);
	} else {
		open_pages(fault, 1);
	}
	g[REG_EFL] |= TF;
}

/* The instruction has not run: it cannot, in this way or at all. */
static void undo(uint64_t *g)
{
	if (pages->doing == LED)
		g[rs_guard_store_register(pages->store.r)] -= (uint64_t)((int64_t)pages->delta >> pages->store.scale);
	g[REG_EFL] &= ~(uint64_t)TF;
}

bool rs_guard_page_fault(const siginfo_t *info, ucontext_t *uc)
{
	struct pages *w = pages;
	uint64_t *g = (uint64_t *)uc->uc_mcontext.gregs, at = (uint64_t)info->si_addr;
	if (!w || !w->armed)
		return false;
	struct page *p = info->si_code == SEGV_ACCERR && g[REG_ERR] & WRITES ? page_of(at) : NULL;
	if (mine() && w->doing != CALL) {
		/* In the step: of something else, or an instruction that writes to two pages. */
		undo(g);
		if (p && p->closed) {
			if (w->doing == LED)
				open_pages(w->fault, 1);
			w->doing = OPENED;
			open_pages(at, 1);
			g[REG_EFL] |= TF;
			return true;
		}
		close_pages();
		over();
		return false;
	}
	if (!p)
		return false;
	if (mine()) {
		/* Our own, around a call. */
		open_pages(at, 1);
		return true;
	}
	lock();
	if (!p->closed) {
		bool may = p->prot >= 0 && p->prot & PROT_WRITE;
		unlock();
		return may; /* it has been opened */
	}
	w->begun_ns = rs_os_now_ns();
	begin_store(uc, at);
	return true;
}

static void led(ucontext_t *uc)
{
	struct pages *p = pages;
	struct rs_guard_store *s = &p->store;
	char *is = p->copy + s->at % RS_PAGE;
	uint32_t lo = s->first, hi = s->bytes;
	if (s->flags)
		is[1] &= ~(TF >> 8);
	if (!hi) {
		for (hi = WIDEST; hi > 0 && is[hi - 1] == p->was[hi - 1];)
			hi--;
		while (lo < hi && is[lo] == p->was[lo])
			lo++;
	}
	if (lo < hi)
		write_there(s->at + lo, is + lo, hi - lo);
	/* A store of the same is one, too. */
	if (rs_guard_watch_meets(s->at + lo, hi > lo ? hi - lo : 1))
		rs_guard_watch_stored(s->at + lo, hi > lo ? hi - lo : 1, uc);
}

bool rs_guard_page_stepped(ucontext_t *uc)
{
	struct pages *p = pages;
	uint64_t *g = (uint64_t *)uc->uc_mcontext.gregs;
	if (!p || !p->armed || !mine() || (p->doing != LED && p->doing != OPENED))
		return false;
	undo(g);
	if (p->doing == LED) {
		led(uc);
	} else {
		close_pages();
		uint64_t at = p->store.at, n = p->store.bytes ? p->store.bytes : WIDEST;
		if (rs_guard_watch_meets(at, p->store.bytes ? n : 1))
			rs_guard_watch_stored(at, p->store.bytes ? n : 1, uc);
		for (uint32_t i = 0; i < p->count; i++)
			rs_guard_watch_unseen(p->page[i].at, RS_PAGE, false);
	}
	over();
	return true;
}

/* --- calls --------------------------------------------------------------------------------------------------------------------------------------- */

void rs_guard_page_call(uintptr_t lo, size_t n)
{
	if (!pages || !pages->armed || !meets_any(lo, n))
		return;
	lock();
	pages->doing = CALL;
	open_pages(lo, n);
}

/* What changed in [lo,lo+n) is no write (map), or is told by who knows what the kernel wrote; elsewhere in these pages it is lost. */
void rs_guard_page_called(uintptr_t lo, size_t n, bool map)
{
	if (!pages || !pages->armed || !mine() || pages->doing != CALL)
		return;
	close_pages();
	for (uint32_t i = 0; i < pages->count; i++) {
		const struct page *p = &pages->page[i];
		uint64_t end = p->at + RS_PAGE, from = p->at < lo ? lo : p->at, to = end < lo + n ? end : lo + n;
		if (from >= to) {
			continue;
		}
		if (map)
			rs_guard_watch_unseen(from, to - from, true);
		rs_guard_watch_unseen(p->at, from - p->at, false);
		rs_guard_watch_unseen(to, end - to, false);
	}
	unlock();
}

void rs_guard_page_mapped(uintptr_t lo, size_t n, int prot)
{
	for (uint32_t i = 0; pages && pages->armed && i < pages->count; i++) {
		struct page *p = &pages->page[i];
		if (!meets(p, lo, n))
			continue;
		p->prot = prot;
		__atomic_store_n(&p->closed, 0, __ATOMIC_RELEASE);
	}
}

/* Where a call that is made again may write, or change the map: all of it in one piece. What only the kernel could say of other pointers is taken for a little behind them. */
static struct piece touches(const struct rs_call *c)
{
	enum { LITTLE = 16 << 10 };
	const uint64_t *a = c->arg;
	struct piece p = {a[0], a[1]};
	if (c->number == SYS_mmap || c->number == SYS_munmap || c->number == SYS_mprotect || c->number == SYS_madvise)
		return p;
	if (c->number == SYS_mremap) {
		uint64_t to = a[3] & MREMAP_FIXED ? a[4] : a[0], hi = a[0] + (a[1] > a[2] ? a[1] : a[2]);
		p.lo = to < a[0] ? to : a[0];
		p.n = (to + a[2] > hi ? to + a[2] : hi) - p.lo;
		return p;
	}
	if (c->number == SYS_brk) {
		uint64_t now = (uint64_t)RS_SYS1(SYS_brk, 0);
		p.lo = now < a[0] ? now : a[0];
		p.n = now < a[0] ? a[0] - now : now - a[0];
		return p;
	}
	p = (struct piece){UINT64_MAX, 0};
	for (unsigned i = 0; i < 6; i++) {
		if (!meets_any(a[i], LITTLE) || a[i] > UINT64_MAX - LITTLE)
			continue;
		uint64_t hi = p.n ? p.lo + p.n : 0;
		p.lo = a[i] < p.lo ? a[i] : p.lo;
		p.n = (a[i] + LITTLE > hi ? a[i] + LITTLE : hi) - p.lo;
	}
	return p;
}

void rs_guard_page_before(const struct rs_call *c)
{
	if (RS_LIKELY(!pages || !pages->armed))
		return;
	struct piece p = touches(c);
	if (!p.n || !meets_any(p.lo, p.n))
		return;
	rs_guard_page_call(p.lo, p.n);
	pages->call = p;
}

static uint64_t up(uint64_t a) { return (a + RS_PAGE - 1) & -(uint64_t)RS_PAGE; }

void rs_guard_page_after(const struct rs_call *c)
{
	const uint64_t *a = c->arg;
	bool failed = (uint64_t)c->result > -4096ull, map = true;
	if (RS_LIKELY(!pages || !pages->armed) || !mine() || pages->doing != CALL)
		return;
	struct piece p = pages->call;
	if (failed || c->number == SYS_madvise) {
	} else if (c->number == SYS_mmap) {
		rs_guard_page_mapped(a[0], a[1], (int)a[2]);
	} else if (c->number == SYS_munmap) {
		rs_guard_page_mapped(a[0], a[1], -1);
	} else if (c->number == SYS_mprotect) {
		rs_guard_page_mapped(a[0], a[1], (int)a[2] & (PROT_READ | PROT_WRITE | PROT_EXEC));
	} else if (c->number == SYS_mremap) {
		/* What moves is a heap's block, nearly always. */
		rs_guard_page_mapped(a[0], up(a[1]), -1);
		rs_guard_page_mapped((uint64_t)c->result, up(a[2]), PROT_READ | PROT_WRITE);
	} else if (c->number == SYS_brk) {
		rs_guard_page_mapped(up(p.lo), up(p.lo + p.n) - up(p.lo), (uint64_t)c->result == p.lo ? -1 : PROT_READ | PROT_WRITE);
	} else {
		map = false;
	}
	rs_guard_page_called(p.lo, p.n, map);
}

/* --- the heap's own ------------------------------------------------------------------------------------------------------------------------------- */

static struct rs_alloc_source heap;

static long heap_commit(uintptr_t at, size_t bytes, uint32_t owner)
{
	rs_guard_page_call(at, bytes);
	long r = heap.commit(at, bytes, owner);
	if (r == 0)
		rs_guard_page_mapped(at, bytes, PROT_READ | PROT_WRITE);
	rs_guard_page_called(at, bytes, true);
	return r;
}

static void heap_decommit(uintptr_t at, size_t bytes)
{
	rs_guard_page_call(at, bytes);
	heap.decommit(at, bytes);
	rs_guard_page_mapped(at, bytes, PROT_NONE);
	rs_guard_page_called(at, bytes, true);
}

static long heap_purge(uintptr_t at, size_t bytes)
{
	rs_guard_page_call(at, bytes);
	long r = heap.purge(at, bytes);
	rs_guard_page_called(at, bytes, true);
	return r;
}

/* Copied, then: what mremap moves the kernel leaves unregistered, and with it the memory beside the new place (checkpage.c), all of which the next checkpoint would have to look at. */
static long heap_move(uintptr_t from, uintptr_t to, size_t bytes)
{
	(void)from, (void)to, (void)bytes;
	return -EOPNOTSUPP;
}

/* --- the coordinator ---------------------------------------------------------------------------------------------------------------------------- */

long rs_guard_pages_begin(void)
{
	struct pages *p = rs_guard_map(RS_ARENA_OWN, sizeof *p);
	if (!p)
		return -ENOMEM;
	pages = p;
	if (rs_alloc_source.commit == heap_commit)
		return 0; /* a forked child's parent's are the same */
	heap = rs_alloc_source;
	rs_alloc_source.commit = heap_commit;
	rs_alloc_source.decommit = heap_decommit;
	rs_alloc_source.purge = heap_purge;
	rs_alloc_source.move = heap_move;
	return 0;
}

/* The kernel writes to it whenever it likes: rseq's areas. */
static bool kernels(uint64_t page)
{
	const uint64_t *left;
	unsigned n = rs_checkpoint_left(&left);
	uint32_t tid;
	uint64_t rseq;
	for (unsigned i = 0; i < n; i++)
		if (left[2 * i] < page + RS_PAGE && page < left[2 * i] + left[2 * i + 1])
			return true;
	for (uint32_t i = 0; rs_guard_threads_birth(i, &tid, &rseq); i++)
		if (rseq && rseq < page + RS_PAGE && page < rseq + rs_rseq_area())
			return true;
	return false;
}

long rs_guard_pages_arm(const uint64_t *address, unsigned n)
{
	struct pages *w = pages;
	w->count = 0;
	w->lock = w->doing = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = address[i] & -(uint64_t)RS_PAGE;
		if (page_of(at))
			continue;
		if (w->count == PAGES)
			return -E2BIG;
		w->page[w->count++] = (struct page){.at = at, .prot = rs_checkpoint_protection(at), .state = kernels(at) ? RS_GUARD_PAGE_KERNELS : RS_GUARD_PAGE_WATCHED};
	}
	w->armed = 1;
	close_pages();
	return 0;
}

void rs_guard_pages_disarm(void)
{
	if (!pages || !pages->armed)
		return;
	for (uint32_t i = 0; i < pages->count; i++)
		if (pages->page[i].closed)
			set(&pages->page[i], false);
	pages->armed = 0;
}

unsigned rs_guard_page_state(uint64_t address)
{
	const struct page *p = page_of(address);
	return p ? p->state : RS_GUARD_PAGE_WATCHED;
}

bool rs_guard_page_there(uint64_t address)
{
	const struct page *p = page_of(address);
	return !p || (p->prot >= 0 && p->prot & PROT_READ);
}

uint64_t rs_guard_pages_stores(void) { return pages ? pages->stores : 0; }

uint64_t rs_guard_pages_signals(void) { return pages && pages->armed ? 1ull << (SIGSEGV - 1) | 1ull << (SIGTRAP - 1) : 0; }
