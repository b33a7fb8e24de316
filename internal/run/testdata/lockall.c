// Locks all of its memory, and says what of it is there then that was never touched: an array of its own, what it maps later, and no more than it has.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64, SIZE = PAGES * 4096 };
static char array[SIZE] __attribute__((aligned(4096)));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int present(void *p)
{
	unsigned char is[PAGES];
	int n = 0;
	mincore(p, SIZE, is);
	for (int i = 0; i < PAGES; i++)
		n += is[i] & 1;
	return n;
}

static long kilobytes(void)
{
	char line[200];
	long n = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, f))
		sscanf(line, "VmRSS: %ld", &n);
	fclose(f);
	return n;
}

int main(void)
{
	if (mlockall(-1) == 0 || mlockall(0) == 0)
		puts("what is no flag was taken");
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
		puts("refused");
		return 1;
	}
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("%d of the array, %d of what was mapped later, %s\n", present(array), present(p), kilobytes() < 1 << 20 ? "no more" : "much more");
	fflush(stdout);
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		memset(array, i, sizeof array);
		memset(p, i, SIZE);
		pthread_mutex_unlock(&lock);
		usleep(2000);
	}
	munlockall();
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("%d of what was mapped since\n", present(p));
	return 4;
}
