// The agent's own heap alone, built with its sources: what no program can see from outside. Each test ends with "ok NAME"; a check that fails says so and the status is 1.
#include "../../alloc_core.h"
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What os.h refers to, of which the allocator needs nothing. */
uint32_t rs_share_on, rs_os_detour;
volatile uint8_t *rs_dispatch_open(void) { return NULL; }
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }
uint32_t rs_calls_on;
long rs_hooked_sys6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }

struct rs_real_table rs_real;
struct rs_ctl *rs_ctl __attribute__((visibility("hidden"))); /* os.c: no session */
__thread struct rs_thread *rs_thread_tls;
uint32_t rs_sandboxed, rs_live_threads = 2;
static struct rs_region counters;
struct rs_region *rs_counters = &counters;

#define CHECK(x) do { if (!(x)) { printf("line %d: %s is not so\n", __LINE__, #x); exit(1); } } while (0)

static uintptr_t got(size_t n) { return (uintptr_t)rs_alloc_malloc(n); }
static void put(uintptr_t p) { rs_alloc_free((void *)p); }

static uint64_t seed = 1;
static uint64_t next(void) { return seed = seed * 6364136223846793005ull + 1442695040888963407ull; }

static void *alone(void *(*f)(void *), void *arg)
{
	pthread_t t;
	void *r;
	CHECK(pthread_create(&t, NULL, f, arg) == 0 && pthread_join(t, &r) == 0);
	return r;
}

/* --- addresses: the same calls give the same offsets; a hash of them is printed, for two runs to be compared. */

static void addresses(void)
{
	enum { N = 3000 };
	static uintptr_t live[N];
	uint64_t hash = 0;
	for (int i = 0; i < 300000; i++) {
		uintptr_t *at = &live[next() % N];
		uint64_t r = next() >> 16;
		if (*at && r % 3 == 0)
			*at = (uintptr_t)rs_alloc_realloc((void *)*at, 1 + r % 5000);
		else {
			if (*at)
				put(*at);
			size_t n = r % 1000 ? r % 2000 : r % 4000000;
			*at = r % 7 ? got(n) : (uintptr_t)rs_alloc_memalign(64, n);
		}
		CHECK(rs_alloc_has(*at));
		hash = (hash ^ (*at - rs_alloc.base)) * 0x9e3779b97f4a7c15ull;
	}
	printf("hash %llx\n", (unsigned long long)hash);
}

/* --- owners: a block is its thread's; who gets it when another thread frees it. */

static uintptr_t passed;
static uint32_t first_owner;

static void *allocates(void *arg)
{
	(void)arg;
	passed = got(100);
	first_owner = rs_alloc_own();
	CHECK(first_owner && rs_alloc_owner(passed) == first_owner);
	return NULL;
}

static void *ends(void *arg)
{
	allocates(arg);
	rs_alloc_thread_end();
	CHECK(rs_alloc_own() == 0);
	/* Late calls work, and cost nobody a heap. */
	free(rs_alloc_malloc(10));
	put(passed);
	return NULL;
}

static void *frees(void *arg)
{
	put(passed);
	return arg;
}

static void owners(void)
{
	put(got(100)); /* this thread has heap 1 */
	CHECK(rs_alloc_own() == 1);
	alone(allocates, NULL);
	CHECK(first_owner == 2 && rs_alloc_owner(passed) == 2 && rs_alloc_owner((uintptr_t)&passed) == 0);
	put(passed);
	bool mine = false;
	uintptr_t block[500];
	for (int i = 0; i < 500; i++) {
		block[i] = got(100);
		mine |= block[i] == passed;
	}
	CHECK(mine == rs_alloc.foreign);
	for (int i = 0; i < 500; i++)
		put(block[i]);
	/* The thread has gone without a word, its heap is nobody's; of one that ends, it is the next one's. */
	alone(ends, NULL);
	CHECK(first_owner == 3);
	alone(ends, NULL);
	CHECK(first_owner == 3);
	/* What others free comes back to its heap, whoever has that. */
	uintptr_t mine_first = got(2000);
	passed = mine_first;
	alone(frees, NULL);
	bool back = false;
	for (int i = 0; i < 200 && !back; i++)
		back = got(2000) == mine_first;
	CHECK(back == !rs_alloc.foreign);
}

/* --- blocks: block_of for each byte that can be asked, in and out of use. */

static void blocks(void)
{
	static const size_t sizes[] = {0, 1, 16, 17, 100, 144, 1000, 1024, 1025, 4096, 5000, 32768, 32769, 100000, 524288, 524289, 1 << 20, 3000000};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uintptr_t p = got(sizes[i]), b;
		size_t n = rs_alloc_usable_size((void *)p), m;
		CHECK(n >= sizes[i] && p % 16 == 0);
		CHECK(sizes[i] < 16 || sizes[i] > 32768 || n <= sizes[i] + sizes[i] / 8 + 15);
		for (size_t at = 0; at < n; at += at < 64 ? 1 : n / 50 + 1)
			CHECK(rs_alloc_block_of(p + at, &b, &m) && b == p && m == n);
		CHECK(rs_alloc_block_of(p + n - 1, &b, &m) && b == p);
		for (size_t align = 16; align <= 4 << 20; align *= 2) {
			uintptr_t q = (uintptr_t)rs_alloc_memalign(align, sizes[i]);
			CHECK(q % align == 0 && rs_alloc_has(q) && rs_alloc_usable_size((void *)q) >= sizes[i]);
			CHECK(rs_alloc_block_of(q, &b, &m) && b == q);
			put(q);
		}
		put(p);
		if (n > 32768)
			CHECK(!rs_alloc_block_of(p, &b, &m));
	}
	struct rs_alloc_counts c;
	rs_alloc_trim();
	rs_alloc_count(&c);
	CHECK(c.huge == 0 && c.free <= c.held);
}

/* --- zero: calloc after everything was dirty. */

static void zero(void)
{
	for (int round = 0; round < 3; round++)
		for (size_t n = 1; n < 6000000; n += n / 3 + 1) {
			unsigned char *p = rs_alloc_malloc(n), *q;
			memset(p, 0xff, n);
			put((uintptr_t)p);
			q = rs_alloc_calloc(1, n);
			for (size_t i = 0; i < n; i++)
				CHECK(q[i] == 0);
			memset(q, 0xff, n);
			put((uintptr_t)q);
			if (n % 5 == 0)
				rs_alloc_trim();
		}
	CHECK(rs_alloc_calloc(SIZE_MAX / 2, 3) == NULL);
}

/* --- untouched: nothing is written to blocks but by the program. */

static void untouched(void)
{
	enum { N = 5000 };
	static unsigned char *p[N];
	for (int i = 0; i < N; i++) {
		p[i] = rs_alloc_malloc(200);
		memset(p[i], i, 200);
	}
	for (int i = 0; i < N; i++)
		put((uintptr_t)p[i]);
	for (int i = 0; i < N; i++)
		for (int k = 0; k < 200; k++)
			CHECK(p[i][k] == (unsigned char)i);
}

/* --- limits: when there are no addresses, or no memory, blocks are libc's, and malloc fails where libc's does. */

static long none(uintptr_t at, size_t bytes, uint32_t owner)
{
	(void)at, (void)bytes, (void)owner;
	return -ENOMEM;
}
static long stays(uintptr_t from, uintptr_t to, size_t bytes)
{
	(void)from, (void)to, (void)bytes;
	return -1;
}

static void limits(void)
{
	CHECK(rs_alloc.reserved <= 1ul << 30); /* main set a limit */
	size_t total = 0;
	uintptr_t p;
	while (rs_alloc_has(p = got(10 << 20)))
		total += 10 << 20;
	CHECK(p && total > rs_alloc.reserved / 2 && total <= rs_alloc.reserved);
	free((void *)p);
	for (total = 0; rs_alloc_has(p = got(3000)); total += 3000)
		;
	CHECK(p && total > 0);
	free((void *)p);
	CHECK(got(1ul << 40) == 0 && got(SIZE_MAX) == 0 && rs_alloc_memalign(1ul << 40, 1ul << 40) == NULL);
}

static void no_memory(void)
{
	uintptr_t first = got(5000000);
	memset((void *)first, 7, 5000000);
	put(got(3000)); /* a span there is */
	rs_alloc_source.commit = none;
	uintptr_t p;
	unsigned n = 0;
	while (rs_alloc_has(p = got(3000)))
		n++;
	CHECK(p && n > 0 && n < 1000);
	free((void *)p);
	unsigned char *moved = rs_alloc_realloc((void *)first, 500000000); /* libc's by now */
	CHECK(moved && !rs_alloc_has((uintptr_t)moved));
	for (int i = 0; i < 5000000; i++)
		CHECK(moved[i] == 7);
	free(moved);
}

/* --- resize: large blocks grow in place as long as nothing follows; huge ones, too, or they move, and are copied where they cannot be moved. */

static void *grows(void *p) { return rs_alloc_realloc(p, 150000); }

static void resize_large(void)
{
	unsigned char *p = rs_alloc_malloc(60000);
	uintptr_t was = (uintptr_t)p, block;
	size_t size;
	memset(p, 7, 60000);
	p = rs_alloc_realloc(p, 120000);
	CHECK((uintptr_t)p == was && rs_alloc_block_of(was + 119999, &block, &size) && block == was && size >= 120000 && rs_alloc_usable_size(p) == size);
	memset(p + 60000, 7, 60000);
	unsigned char *other = rs_alloc_malloc(60000); /* in the units behind it, the lowest that are free */
	CHECK(!((uintptr_t)other - was < size) && (uintptr_t)other - was < RS_CHUNK);
	memset(other, 9, 60000);
	pthread_t t;
	void *moved;
	CHECK(pthread_create(&t, NULL, grows, p) == 0 && pthread_join(t, &moved) == 0);
	p = moved;
	CHECK((uintptr_t)p != was);
	for (int i = 0; i < 120000; i++)
		CHECK(p[i] == 7);
	for (int i = 0; i < 60000; i++)
		CHECK(other[i] == 9);
	put((uintptr_t)p);
	put((uintptr_t)other);
	for (int k = 0; k < 20; k++) {
		unsigned char *q = rs_alloc_calloc(1, 48000 + 16000 * (size_t)k);
		for (int i = 0; i < 48000 + 16000 * k; i++)
			CHECK(q[i] == 0);
		memset(q, 3, 48000 + 16000 * (size_t)k);
		q = rs_alloc_realloc(q, 80000 + 16000 * (size_t)k);
		memset(q, 3, 80000 + 16000 * (size_t)k);
		put((uintptr_t)q);
	}
}

static void resize(void)
{
	resize_large();
	for (int round = 0; round < 2; round++) {
		unsigned char *p = rs_alloc_malloc(600000);
		uintptr_t was = (uintptr_t)p;
		for (int i = 0; i < 600000; i++)
			p[i] = (unsigned char)(i * 7);
		p = rs_alloc_realloc(p, 5 << 20);
		CHECK((uintptr_t)p == was); /* nothing follows */
		void *wall = rs_alloc_malloc(2 << 20);
		p = rs_alloc_realloc(p, 20 << 20);
		CHECK((uintptr_t)p != was);
		memset(p + (5 << 20), 1, 15 << 20);
		for (int i = 0; i < 600000; i++)
			CHECK(p[i] == (unsigned char)(i * 7));
		p = rs_alloc_realloc(p, 700000);
		CHECK(rs_alloc_usable_size(p) < 800000);
		p = rs_alloc_realloc(p, 1000);
		for (int i = 0; i < 1000; i++)
			CHECK(p[i] == (unsigned char)(i * 7));
		put((uintptr_t)wall);
		put((uintptr_t)p);
		unsigned char *q = rs_alloc_calloc(1, 30 << 20);
		for (int i = 0; i < 30 << 20; i++)
			CHECK(q[i] == 0);
		put((uintptr_t)q);
		rs_alloc_source.move = stays;
	}
}

/* --- order: locks are told before and after they are had, and when they are given back; guard: bytes that are wrong, quarantine. */

static unsigned before, after, freed, last;
static void tell_before(uint32_t lock) { before++, last = lock; }
static void tell_after(uint32_t lock)
{
	after++;
	CHECK(lock == last);
}

static void tell_free(void)
{
	freed++;
	CHECK(freed <= after);
}

static void order(void)
{
	put(got(64));
	rs_alloc_order = (struct rs_alloc_order){tell_before, tell_after, tell_free};
	for (int i = 0; i < 1000; i++)
		put(got(64));
	CHECK(before == 0); /* quick paths take none */
	for (int i = 0; i < 1000; i++)
		got(64);
	CHECK(before > 2 && before == after && after == freed);
}

static uintptr_t wrong_block, wrong_at;
static size_t wrong_n;
static bool wrong_freed;
static void wrong(void *arg, const struct rs_alloc_wrong *w)
{
	(void)arg;
	wrong_block = w->block, wrong_n = w->known ? w->size : 0, wrong_at = w->first, wrong_freed = w->freed;
}
static void wrong_at_free(const struct rs_alloc_wrong *w) { wrong(NULL, w); }

static void guard(void)
{
	static const size_t sizes[] = {0, 1, 15, 16, 100, 1000, 5000, 40000, 2000000};
	uintptr_t keep[sizeof sizes / sizeof *sizes];
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		keep[i] = got(sizes[i]);
		memset((void *)keep[i], 0x5a, sizes[i]);
		CHECK(rs_alloc_usable_size((void *)keep[i]) == sizes[i]);
	}
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 0);
	rs_alloc_found = wrong_at_free;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t past = 0; past < 16; past++) {
			unsigned char *at = (unsigned char *)keep[i] + sizes[i] + past, was = *at;
			*at ^= 0x10;
			CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 1 && wrong_block == keep[i] && !wrong_freed);
			CHECK(past < 8 || sizes[i] <= 1000 ? wrong_n == sizes[i] : wrong_n == 0 || wrong_n == sizes[i]);
			CHECK(wrong_n == 0 || wrong_at == (uintptr_t)at || (past >= 8 && wrong_at > keep[i] + sizes[i]));
			*at = was;
		}
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 0);
	/* In quarantine: not handed out again, and looked at. */
	uintptr_t p = got(100);
	put(p);
	for (int i = 0; i < 500; i++)
		CHECK(got(100) != p);
	((unsigned char *)p)[50] ^= 1;
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 1 && wrong_block == p && wrong_freed && wrong_at == p + 50);
	wrong_block = 0;
	for (int i = 0; i < 3000 && !wrong_block; i++)
		put(got(1000));
	CHECK(wrong_block == p && wrong_freed);
	p = got(77);
	((unsigned char *)p)[77] = 1;
	wrong_block = 0;
	put(p);
	CHECK(wrong_block == p && !wrong_freed && wrong_n == 77);
	/* Lengthened where it lies: what is behind it now is looked at, and not what was. */
	p = got(40000);
	CHECK((uintptr_t)rs_alloc_realloc((void *)p, 90000) == p && rs_alloc_usable_size((void *)p) == 90000);
	memset((void *)p, 0x5a, 90000);
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 0);
	((unsigned char *)p)[90000] ^= 1;
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 1 && wrong_block == p && !wrong_freed && wrong_n == 90000 && wrong_at == p + 90000);
	wrong_block = 0;
	CHECK((uintptr_t)rs_alloc_realloc((void *)p, 120000) == p && wrong_block == p && wrong_n == 90000);
	put(p);
	CHECK(rs_alloc_check(SIZE_MAX, wrong, NULL) == 0);
	p = (uintptr_t)rs_alloc_realloc((void *)keep[5], 3000);
	CHECK(((unsigned char *)p)[999] == 0x5a && rs_alloc_usable_size((void *)p) == 3000);
}

/* --- ends: what is no block ends the program as libc does. */

static void expect_abort(const char *what, uintptr_t p)
{
	pid_t child = fork();
	if (child == 0) {
		close(2);
		rs_alloc_free_doubtful((void *)p);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
		printf("%s is taken\n", what);
		exit(1);
	}
}

static void ends_program(void)
{
	uintptr_t p = got(100), q = got(100), huge = got(2000000), mid = got(100000);
	expect_abort("the inside of a block", p + 16);
	expect_abort("an odd address", p + 8);
	expect_abort("the inside of a huge block", huge + 4096);
	expect_abort("a huge block's second chunk", huge + RS_CHUNK);
	put(p);
	expect_abort("a freed block", p);
	put(huge);
	put(mid);
	expect_abort("a freed huge block", huge);
	expect_abort("a freed large block", mid);
	passed = q;
	alone(frees, NULL);
	if (!rs_alloc.foreign)
		expect_abort("a block that another thread freed", q);
	expect_abort("what was never handed out", rs_alloc.base + rs_alloc.limit - 16);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } tests[] = {
		{"addresses", addresses}, {"owners", owners}, {"blocks", blocks}, {"zero", zero}, {"untouched", untouched}, {"limits", limits}, {"no_memory", no_memory},
		{"resize", resize}, {"order", order}, {"guard", guard}, {"ends", ends_program},
	};
	rs_real.malloc = malloc, rs_real.calloc = calloc, rs_real.realloc = realloc, rs_real.free = free, rs_real.memalign = memalign;
	if (argc != 3)
		return 2;
	if (strcmp(argv[1], "limits") == 0) {
		struct rlimit r = {4ul << 30, 4ul << 30};
		CHECK(setrlimit(RLIMIT_AS, &r) == 0);
	}
	CHECK(rs_alloc_begin((uint32_t)strtoul(argv[2], NULL, 0)));
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		if (strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			printf("ok %s\n", argv[1]);
			return 0;
		}
	return 2;
}
