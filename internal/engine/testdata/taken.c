/* taken.c: where trampolines of a library lay that has gone the program maps memory of its own, runs instructions there that fault, and its handler asks where they are. taken LIBRARY */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MOST = 1 << 16, PAGE = 4096 };
static uintptr_t places[MOST + 1]; /* of the library's trampolines: the client says them; before, how many */
static sigjmp_buf out;
static volatile uintptr_t at, wrong;

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	wrong += (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] != at || (uintptr_t)info->si_addr != at;
	siglongjmp(out, 1);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 1;
	int (*tell)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGILL, &sa, NULL);
	void *h = dlopen(argv[1], RTLD_NOW);
	int s = ((int (*)(int))dlsym(h, "parts"))(1);
	if (tell)
		tell((uintptr_t)places);
	dlclose(h);
	uintptr_t mapped = 0;
	volatile uintptr_t tried = 0;
	for (volatile uintptr_t i = 1; i <= places[0]; i++) {
		uintptr_t page = places[i] & -(uintptr_t)PAGE;
		if (page != mapped && mmap((void *)page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)page)
			continue;
		mapped = page;
		if (places[i] % PAGE == PAGE - 1)
			continue;
		at = places[i];
		memcpy((void *)at, "\x0f\x0b", 2); /* ud2 */
		tried++;
		if (!sigsetjmp(out, 1))
			((void (*)(void))at)();
	}
	if (tell)
		tell(tried);
	printf("parts %d, wrong %lu\n", s, (unsigned long)wrong);
	return 0;
}
