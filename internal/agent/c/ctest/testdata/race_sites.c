/* The detector's sites, and when times begin. Exits with 1 and says what is wrong. */
#define _GNU_SOURCE 1
#include "../../race_core.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* os.h's system calls look whether memory is watched by keys. */
uint32_t rs_os_detour;
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f);
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }

void *rs_os_map(size_t bytes);
void *rs_os_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

enum { STACKS = 400, PCS = 256, SITES = 2 * STACKS * PCS };
static uint32_t id[SITES];
static bool is[4 << 20];

static void fail(const char *what, uint64_t n)
{
	printf("%s: %lu\n", what, n);
	exit(1);
}

/* A site of each stack and instruction; sizes and kinds differ with these. */
static uint32_t one(struct race_thread *t, unsigned i)
{
	unsigned pc = i % PCS, stack = i / PCS % STACKS;
	return rs_race_intern(t, 0x401000 + pc * 4, 1u << (pc & 3), 1 + stack, pc & 4 ? RS_RACE_READ : RS_RACE_WRITE);
}

static void lock_and_unlock(struct rs_race_thread *t)
{
	uint64_t take[16] = {RS_EV_ACQUIRE}, give[16] = {RS_EV_RELEASE};
	rs_put_acquire(take, 0x1000, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK, 0);
	rs_race_event(t->number, take);
	rs_put_release(give, 0x1000, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK);
	rs_race_event(t->number, give);
}

int main(void)
{
	struct rs_race_config config = {.max_pages = 0};
	rs_race_begin(&config);
	struct rs_race_thread *a = rs_race_thread(1);
	uint64_t began = a->epoch;
	lock_and_unlock(a);
	if (a->epoch != began)
		fail("a time began while there was one thread", a->epoch - began);
	struct rs_race_thread *b = rs_race_thread(2);
	if (a->epoch == began)
		fail("no time of the first began with the second", began);
	began = a->epoch;
	lock_and_unlock(a);
	if (a->epoch == began)
		fail("no time began where another thread may come to know it", began);
	struct race_thread *of[] = {(struct race_thread *)a, (struct race_thread *)b};
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < SITES; i++) {
			struct race_thread *t = of[i / (SITES / 2)];
			uint32_t n = one(t, i);
			if (!n || (round && n != id[i]) || (!round && is[n]))
				fail("another number in round", round);
			id[i] = n;
			is[n] = true;
			const struct race_site *s = rs_race_site(n);
			if (s->pc != 0x401000 + i % PCS * 4 || s->stack != 1 + i / PCS % STACKS || s->thread != t->quick.number || s->size != 1u << (i % PCS & 3))
				fail("another site", i);
		}
	return 0;
}
