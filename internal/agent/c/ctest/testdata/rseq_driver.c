// As a newer glibc: the first thread's rseq area is registered with BYTES (0: with none). Prints with how many it was found, how many glibc 2.36's were, and whether it is registered as it was.
#define _GNU_SOURCE
#include "../../guardrseq.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t rs_os_detour;
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }

static char area[256] __attribute__((aligned(64)));

int main(int argc, char **argv)
{
	unsigned bytes = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	char *glibcs = (char *)__builtin_thread_pointer() + __rseq_offset;
	rs_rseq_find((uintptr_t)glibcs);
	printf("%u ", rs_rseq_bytes);
	if (syscall(SYS_rseq, glibcs, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) != 0 || (bytes && syscall(SYS_rseq, area, bytes, 0, RSEQ_SIG) != 0))
		return 1;
	rs_rseq_find((uintptr_t)area);
	printf("%u ", rs_rseq_bytes);
	if (syscall(SYS_rseq, area, bytes ? bytes : 32, bytes ? RSEQ_FLAG_UNREGISTER : 0, RSEQ_SIG) != 0)
		return 2;
	puts("as it was");
	return 0;
}
