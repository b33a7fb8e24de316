// Crashes where the time stamp counter is later than the clock, which is read after it: never, but in a re-execution, which is given the clock's times of the recording. The counter is read by code that is made here, which nobody patches. later blocked: with all
// signals blocked.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 60, CLOSE = 20000 };

static uint64_t (*counter)(void);

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000l};
	nanosleep(&ts, NULL);
}

/* Both, of nearly the same moment. */
static int64_t both(uint64_t *tsc)
{
	int64_t before, after;
	do {
		before = now_ns();
		*tsc = counter();
		after = now_ns();
	} while (after - before > CLOSE);
	return before;
}

int main(int argc, char **argv)
{
	sigset_t all;
	sigfillset(&all);
	if (argc > 1 && strcmp(argv[1], "blocked") == 0)
		sigprocmask(SIG_SETMASK, &all, NULL);
	static const char code[] = {0x0f, 0x31, 0x48, (char)0xc1, (char)0xe2, 0x20, 0x48, 0x09, (char)0xd0, (char)0xc3}; /* rdtsc; shl $32, %rdx; or %rdx, %rax; ret */
	void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return 1;
	memcpy(made, code, sizeof code);
	counter = (uint64_t (*)(void))made;
	uint64_t c0, c1, c;
	int64_t t0 = both(&c0);
	pause_ms(200);
	int64_t t1 = both(&c1);
	double ns = (double)(t1 - t0) / (double)(c1 - c0);
	int64_t sum = 0;
	for (int r = 0; r < ROUNDS; r++) {
		pause_ms(5);
		c = counter();
		int64_t clock = now_ns(), tsc = t0 + (int64_t)((double)(c - c0) * ns);
		if (tsc - clock > 10000000)
			*(volatile int *)0 = 1;
		sum += r;
	}
	printf("%ld\n", (long)sum);
	return 0;
}
