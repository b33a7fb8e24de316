/* An allocator that is not glibc's but answers to glibc's second names too, as tcmalloc and mimalloc do. Its blocks are aligned to 8, as the
 * C standard allows for small ones, and a block may lie in its own static data. With -DLIBRARY the allocator, without it the program. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY

static uint64_t area[1 << 16];
static size_t used;

void *malloc(size_t n)
{
	size_t words = (n + 7) / 8 + 1;
	size_t at = __atomic_fetch_add(&used, words, __ATOMIC_RELAXED);
	if (at + words > sizeof area / sizeof *area)
		return NULL;
	area[at] = n;
	return &area[at + 1];
}

void free(void *p) { (void)p; }

void *calloc(size_t m, size_t n) { return malloc(m * n); }

void *realloc(void *old, size_t n)
{
	char *p = malloc(n);
	if (p && old)
		for (size_t i = 0; i < n && i < ((uint64_t *)old)[-1]; i++)
			p[i] = ((char *)old)[i];
	return p;
}

size_t malloc_usable_size(void *p) { return p ? ((uint64_t *)p)[-1] : 0; }

void *__libc_malloc(size_t) __attribute__((alias("malloc")));
void __libc_free(void *) __attribute__((alias("free")));
void *__libc_calloc(size_t, size_t) __attribute__((alias("calloc")));
void *__libc_realloc(void *, size_t) __attribute__((alias("realloc")));

/* Interposes functions of libc, which it calls by their second names. Under the agent, which had these names too, it called itself (swipl). */
void *__sbrk(intptr_t);
int __close(int);
int __sigaction(int, const struct sigaction *, struct sigaction *);
pid_t __waitpid(pid_t, int *, int);

void *sbrk(intptr_t by) { return __sbrk(by); }
int close(int fd) { return __close(fd); }
int sigaction(int sig, const struct sigaction *new, struct sigaction *old) { return __sigaction(sig, new, old); }
pid_t waitpid(pid_t pid, int *status, int options) { return __waitpid(pid, status, options); }

#else

int main(void)
{
	struct sigaction sa = {.sa_handler = SIG_IGN};
	printf("%d %d", sbrk(0) != (void *)-1, close(dup(1)));
	printf(" %d", sigaction(SIGUSR1, &sa, NULL));
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(3);
	int st = 0;
	printf(" %d %x\n", waitpid(child, &st, 0) == child, st);
	int odd = 0;
	for (int i = 0; i < 100; i++) {
		char *p = malloc(i % 2 ? 8 : 16), *q = strdup("a string of libc's");
		odd += (uintptr_t)p % 16 != 0 || (uintptr_t)q % 16 != 0;
		free(q);
		free(realloc(p, 40));
	}
	printf("%s\n", odd ? "aligned to 8" : "aligned to 16");
	return 0;
}

#endif
