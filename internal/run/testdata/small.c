// Handlers on a small alternate stack: "small KIND BYTES": so many more than AT_MINSIGSTKSZ. Memory below the stack has a pattern. Prints how many handlers there were, and "intact" or how many bytes below were written; and to stderr, with "used", how deep they came.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BELOW = 32 << 10, TIMES = 400 };
static char kind;
static volatile int handled, sink, sum;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void handler(int sig)
{
	struct timespec now;
	(void)sig;
	handled++;
	if (kind == 'c')
		sink = clock_gettime(CLOCK_MONOTONIC, &now);
	else if (kind == 'w')
		sink = (int)write(1, "", 0);
	else if (kind == 'm') {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
}

static void *other(void *unused)
{
	for (int i = 0; i < TIMES; i++) {
		pthread_mutex_lock(&lock);
		sum++;
		pthread_mutex_unlock(&lock);
		usleep(200);
	}
	return unused;
}

int main(int argc, char **argv)
{
	kind = argc > 1 ? argv[1][0] : 'n';
	size_t size = getauxval(AT_MINSIGSTKSZ) + (argc > 2 ? (size_t)atoi(argv[2]) : 0);
	char *p = mmap(NULL, 2 * BELOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t wrong = 0, used = size;
	pthread_t t;
	memset(p, 0x5a, 2 * BELOW);
	stack_t s = {.ss_sp = p + BELOW, .ss_size = size};
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
	if (sigaltstack(&s, NULL) != 0 || sigaction(SIGUSR1, &a, NULL) != 0 || pthread_create(&t, NULL, other, NULL) != 0)
		return 1;
	handler(0); // functions are bound here
	handled = 0;
	for (int i = 0; i < TIMES; i++) {
		if (i % 2)
			pthread_kill(pthread_self(), SIGUSR1);
		else
			raise(SIGUSR1);
		usleep(200);
	}
	pthread_join(t, NULL);
	for (int i = 0; i < BELOW; i++)
		wrong += p[i] != 0x5a;
	while (used && p[BELOW + size - used] == 0x5a)
		used--;
	printf("%d ", handled);
	if (wrong)
		printf("%zu bytes written below\n", wrong);
	else
		puts("intact");
	if (argc > 3)
		fprintf(stderr, "%c: %zu of %zu bytes used\n", kind, used, size);
}
