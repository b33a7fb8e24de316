/* Runs programs, given as lists of events and accesses on standard input, through the agent's race detector, each in a process of its own, and prints the races. All
 * numbers are 64-bit words. A program: how many items, how many pages are kept at most. An item: thread<<32 | words, and the words: those of an event's record, or with
 * words = 0 an access: address, size, kind, pc, stack. */
#define _GNU_SOURCE 1
#include "../../race_core.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

static uint64_t word(void)
{
	uint64_t w;
	if (fread(&w, sizeof w, 1, stdin) != 1)
		exit(0);
	return w;
}

/* As fullquick.c tells an access, every other time: in one step if that is enough for it. */
static bool quick(struct rs_race_thread *t, const uint64_t *w, uint64_t turn)
{
	uint64_t addr = w[0], size = w[1];
	struct race_page *g = race_page_at(addr >> 12);
	if (turn % 2 || !g || !size || size > 64 || (addr & 4095) + size > 4096 || (w[2] != RS_RACE_READ && w[2] != RS_RACE_WRITE && w[2] != (RS_RACE_READ | RS_RACE_WRITE)))
		return false;
	return rs_race_quick((struct race_thread *)t, g, addr, size, (unsigned)w[2], rs_race_intern((struct race_thread *)t, w[3], size, (uint32_t)w[4], (unsigned)w[2]));
}

static void run(const uint64_t *w, uint64_t items, uint64_t max_pages)
{
	struct rs_race_config config = {.max_pages = (uint32_t)max_pages};
	struct rs_race_found f;
	struct rs_race_counts counts;
	rs_race_begin(&config);
	while (items--) {
		uint32_t thread = (uint32_t)(*w >> 32), n = (uint32_t)*w;
		w++;
		if (n) {
			rs_race_event(thread, w);
			w += n;
			continue;
		}
		struct rs_race_thread *t = rs_race_thread(thread);
		if (t && !quick(t, w, items))
			rs_race_access(t, w[0], w[1], (unsigned)w[2], w[3], (uint32_t)w[4]);
		w += 5;
	}
	rs_race_end();
	while (rs_race_next(&f))
		printf("%u %u %u %u %lx %lx %lx %u %lx %lx %lx %u %u\n", f.rule, f.kind, f.kind2, f.by, f.addr, f.size, f.pc, f.by2, f.addr2, f.size2, f.pc2, f.stack, f.stack2);
	rs_race_count(&counts);
	printf("counts %lu %lu %lu\n", counts.amnesties, counts.unsaid, counts.evicted_pages);
	fflush(stdout);
}

int main(void)
{
	for (;;) {
		uint64_t items = word(), max_pages = word(), room = 1 << 16, n = 0, *w = malloc(room * 8);
		for (uint64_t i = 0; i < items; i++) {
			if (n + 4096 > room)
				w = realloc(w, (room *= 2) * 8);
			w[n++] = word();
			for (uint64_t k = (uint32_t)w[n - 1] ? (uint32_t)w[n - 1] : 5; k; k--)
				w[n++] = word();
		}
		pid_t pid = fork();
		if (pid == 0) {
			run(w, items, max_pages);
			_exit(0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		printf("end %d\n", status);
		fflush(stdout);
		free(w);
	}
}
