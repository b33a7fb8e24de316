/* heap_all.c: every entry of the malloc family, in the places where malloc is called at odd times. Prints properties, not addresses. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

static void say(const char *what, void *p, size_t align, size_t n)
{
	volatile char *c = p;
	if (p && n)
		c[0] = 1, c[n - 1] = 2;
	printf("%s %d %d %d\n", what, p != NULL, p && (uintptr_t)p % align == 0, p && malloc_usable_size(p) >= n);
}

static void *volatile handed[64];

static void *churn(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	for (int i = 0; i < 20000; i++) {
		int k = rand_r(&seed) % 64;
		void *p = __atomic_exchange_n(&handed[k], NULL, __ATOMIC_SEQ_CST);
		if (rand_r(&seed) & 1)
			p = realloc(p, rand_r(&seed) % 5000 + 1);
		else
			free(p), p = malloc(rand_r(&seed) % 200 + 1);
		if (p)
			*(volatile char *)p = 1;
		p = __atomic_exchange_n(&handed[k], p, __ATOMIC_SEQ_CST);
		free(p);
	}
	return NULL;
}

int main(void)
{
	void *volatile big = (void *)(SIZE_MAX / 2);
	void *p = NULL, *q;
	say("malloc", p = malloc(100), 16, 100);
	say("realloc", p = realloc(p, 10000), 16, 10000);
	say("realloc shrink", p = realloc(p, 10), 16, 10);
	free(p);
	say("malloc 0", p = malloc(0), 16, 0);
	free(p);
	say("calloc", p = calloc(10, 100), 16, 1000);
	for (int i = 1; i < 999; i++)
		if (((char *)p)[i])
			return 1;
	free(p);
	errno = 0;
	p = calloc((size_t)big, 4);
	printf("calloc overflow %d %d\n", p == NULL, errno == ENOMEM);
	errno = 0;
	p = reallocarray(NULL, (size_t)big, 4);
	printf("reallocarray overflow %d %d\n", p == NULL, errno == ENOMEM);
	errno = 0;
	p = malloc((size_t)big);
	printf("malloc too much %d %d\n", p == NULL, errno == ENOMEM);
	p = malloc(64);
	strcpy(p, "kept");
	q = realloc(p, (size_t)big);
	printf("realloc too much %d %s\n", q == NULL, (char *)p);
	free(p);
	say("reallocarray", p = reallocarray(NULL, 10, 100), 16, 1000);
	free(p);
	say("memalign", p = memalign(4096, 100), 4096, 100);
	free(p);
	say("aligned_alloc", p = aligned_alloc(64, 640), 64, 640);
	free(p);
	printf("posix_memalign bad %d\n", posix_memalign(&p, 3, 10) == EINVAL);
	printf("posix_memalign %d\n", posix_memalign(&p, 256, 1000));
	say("  its block", p, 256, 1000);
	free(p);
	say("valloc", p = valloc(10), 4096, 10);
	free(p);
	say("pvalloc", p = pvalloc(10), 4096, 4096);
	free(p);
	say("__libc_malloc", p = __libc_malloc(77), 16, 77);
	free(p);
	p = malloc(77);
	__libc_free(p);
	p = strdup("libc's own malloc");
	puts(p);
	free(p);
	errno = 77;
	free(malloc(10));
	printf("errno kept by free %d\n", errno == 77);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	q = mremap(p, 8192, 65536, MREMAP_MAYMOVE);
	printf("mmap %d mremap %d munmap %d bad %d\n", p != MAP_FAILED, q != MAP_FAILED, munmap(q, 65536), munmap((void *)1, 10) == -1 && errno == EINVAL);
	void *brk0 = sbrk(0);
	printf("sbrk %d brk %d\n", sbrk(4096) == brk0, brk(brk0));

	pthread_t t[4];
	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 20; i++) {
		pid_t c = fork();
		if (c == 0) {
			free(malloc(100));
			free(malloc(100000));
			_exit(7);
		}
		int st;
		waitpid(c, &st, 0);
		if (WEXITSTATUS(st) != 7)
			printf("child %x\n", st);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
