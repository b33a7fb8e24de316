// A program that uses protection keys itself, where there are some: memory that a thread closes to itself faults in that thread, and in no other.
#include "../run.h"
#include <setjmp.h>
#include <signal.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
long beside;
static void *is_beside(void *p)
{
	beside++; // race beside
	return p;
}
static sigjmp_buf out;
static void leaves(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}
static void *opens(void *p)
{
	*(volatile int *)p = 2;
	return p;
}
static void uses_keys(void)
{
	int key = pkey_alloc(0, 0);
	if (key < 0)
		return; // this processor, or kernel, has none, or no more
	volatile int *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = 1;
	MUST(pkey_mprotect((void *)page, 4096, PROT_READ | PROT_WRITE, key) == 0);
	pthread_t t;
	pthread_create(&t, 0, opens, (void *)page);
	pthread_join(t, 0);
	MUST(*page == 2 && pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
	signal(SIGSEGV, leaves);
	if (!sigsetjmp(out, 1)) {
		use(*page);
		abort();
	}
	signal(SIGSEGV, SIG_DFL);
	MUST(pkey_set(key, 0) == 0 && *page == 2);
	pkey_free(key);
}

int main(void)
{
	uses_keys();
	both(is_beside, is_beside);
	puts("done");
	return 0;
}
