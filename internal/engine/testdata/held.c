/* held.c: a handler holds a thread that it interrupted in one instruction while that is unpatched and much else is patched; then the thread goes on where it was. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { ROUNDS = 12, BYTES = 1 << 20 };

static int (*patch)(uintptr_t);
static volatile int stop, seen, held, go;
static unsigned bad;
static unsigned char buf[BYTES];
extern char site[];

static void on_signal(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	(void)sig, (void)info;
	if ((uintptr_t)uc->uc_mcontext.gregs[REG_RIP] == (uintptr_t)site) {
		held = 1;
		while (!go)
			sched_yield();
	}
	seen = 1;
}

/* The prefixes make room for a jump. */
static void *fill(void *arg)
{
	(void)arg;
	for (unsigned char v = 1; !stop; v++) {
		unsigned char *p = buf;
		unsigned long n = BYTES;
		__asm__ volatile(".globl site\nsite: .byte 0x2e, 0x2e, 0x2e, 0xf3, 0xaa" : "+D"(p), "+c"(n) : "a"(v) : "memory");
		if (p != buf + BYTES || n || buf[0] != v || buf[BYTES / 2] != v || buf[BYTES - 1] != v)
			bad++;
	}
	return NULL;
}

int main(void)
{
	pthread_t t;
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	patch = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, fill, NULL);
	int failed = 0;
	for (int i = 0; i < ROUNDS; i++) {
		for (held = go = 0; !held;) {
			seen = 0;
			pthread_kill(t, SIGUSR1);
			while (!seen && !held)
				sched_yield();
		}
		if (patch && patch(1))
			failed++;
		go = 1;
		while (!seen)
			sched_yield();
		if (patch && patch(0))
			failed++;
	}
	stop = 1;
	pthread_join(t, NULL);
	printf("bad %u, failed %d\n", bad, failed);
	return 0;
}
