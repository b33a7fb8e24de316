// Says whether the handler of glibc's signal for changed ids (33) is the same before and behind the first thread that is made, as of the kernel. Natively it is not: glibc sets its own then. In a recording it is the agent's.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t of_setxid(void)
{
	struct { uint64_t handler, flags, restorer, mask; } a = {0};
	syscall(SYS_rt_sigaction, 33, NULL, &a, 8);
	return a.handler;
}

static void *does_nothing(void *arg) { return arg; }

int main(void)
{
	pthread_t t;
	uint64_t before = of_setxid();
	pthread_create(&t, NULL, does_nothing, NULL);
	uint64_t behind = of_setxid();
	pthread_join(t, NULL);
	printf("%s\n", before && behind == before ? "the same" : "another");
	return 0;
}
