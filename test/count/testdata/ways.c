// One instruction that touches memory, in `touch`, run a known number of times in each of the ways that a program has: by threads, in children, in handlers, before it is killed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static long cell;
static long *target = &cell;

__attribute__((noinline)) static void touch(int n)
{
	do {
		__asm__ volatile("lock addq $1, (%0)" : : "r"(target) : "memory", "cc");
	} while (--n);
}

// Adds one to *to and locks only where it is told to: a branch leads behind the prefix, here and in code that nothing describes and only a pointer leads to.
__attribute__((noinline)) static void perhaps(long *to, int lock)
{
	__asm__ volatile("test %0, %0; je 1f; .byte 0xf0; 1: addq $1, (%1)" : : "r"(lock), "r"(to) : "memory", "cc");
}

__asm__(".text\n"
	".Lundescribed: test %esi, %esi; je .Lbehind; jmp described\n"
	".type described, @function\n"
	"described: .byte 0xf0; .Lbehind: addq $1, (%rdi); ret\n"
	".size described, . - described\n"
	".section .data.rel.local, \"aw\"\n"
	".balign 8; undescribed: .quad .Lundescribed\n"
	".text\n");
extern void (*const volatile undescribed)(long *, int) __attribute__((visibility("hidden")));

static void *thread(void *n)
{
	touch(*(int *)n);
	return NULL;
}

static void handler(int sig)
{
	(void)sig;
	touch(3);
}

// The memory is made accessible, and the instruction runs again.
static void repair(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	mprotect((void *)((long)info->si_addr & -4096), 4096, PROT_READ | PROT_WRITE);
}

static jmp_buf out;
static void leave(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void wait_all(void)
{
	int status;
	while (wait(&status) > 0)
		if (status)
			exit(1);
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	touch(1000);
	if (!strcmp(way, "threads")) {
		pthread_t t[8];
		int n = 20000;
		for (int i = 0; i < 8; i++)
			pthread_create(&t[i], NULL, thread, &n);
		for (int i = 0; i < 8; i++)
			pthread_join(t[i], NULL);
	} else if (!strcmp(way, "fork")) {
		for (int i = 0; i < 3; i++)
			if (!fork()) {
				touch(500);
				if (i == 2) {
					if (!fork()) {
						touch(50);
						execl(argv[0], argv[0], "plain", (char *)NULL);
						_exit(1);
					}
					wait_all();
				}
				_exit(0);
			}
		touch(7);
		wait_all();
		touch(9);
	} else if (!strcmp(way, "libraries")) {
		// Opened and closed again and again, in the program and in a child, whose code is patched apart from then on.
		for (int i = 0; i < 5; i++) {
			void *lib = dlopen("libz.so.1", RTLD_NOW);
			if (!lib)
				return 1;
			unsigned long (*crc)(unsigned long, const char *, unsigned) = dlsym(lib, "crc32");
			if (crc(0, "abc", 3) != 0x352441c2)
				return 1;
			touch(10);
			if (i == 3 && !fork()) {
				touch(20);
				void *second = dlopen("libm.so.6", RTLD_NOW);
				double (*root)(double) = dlsym(second, "cbrt");
				if (root(8) != 2 || crc(0, "abc", 3) != 0x352441c2)
					_exit(1);
				touch(30);
				_exit(0);
			}
			if (i < 4)
				dlclose(lib);
		}
		wait_all();
	} else if (!strcmp(way, "signals")) {
		signal(SIGUSR1, handler);
		for (int i = 0; i < 100; i++)
			raise(SIGUSR1);
	} else if (!strcmp(way, "repair")) {
		struct sigaction sa = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
		sigaction(SIGSEGV, &sa, NULL);
		target = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		touch(10);
	} else if (!strcmp(way, "leave")) {
		signal(SIGSEGV, leave);
		long *good = target;
		for (volatile int i = 0; i < 10; i++)
			if (!sigsetjmp(out, 1)) {
				target = (long *)8;
				touch(1);
			}
		target = good;
	} else if (!strcmp(way, "behind")) {
		for (int i = 0; i < 3000; i++) {
			perhaps(target, i % 3 == 0);
			undescribed(target, i % 3 == 1);
		}
		if (cell != 1000 + 6000)
			return 1;
	} else if (!strcmp(way, "kill")) {
		kill(getpid(), SIGKILL);
	} else if (!strcmp(way, "crash")) {
		target = NULL;
		touch(5);
	} else if (!strcmp(way, "exit")) {
		_exit(3);
	}
	return 0;
}
