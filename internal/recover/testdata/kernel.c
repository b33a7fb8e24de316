// What the kernel does to a thread: signal handlers on its stack and on another one, handlers that change the interrupted registers, system calls that
// write memory, fork, vfork, jumps out of handlers, repeated string instructions under signals, and code that no file has.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static long table[256];
static volatile long handled;
static sigjmp_buf out;

static void count(int sig, siginfo_t *info, void *ctx) {
	(void)info, (void)ctx;
	handled += table[sig & 255] + 1;
}

// It moves rbx, which the interrupted code addresses memory with.
static void shift(int sig, siginfo_t *info, void *ctx) {
	(void)sig, (void)info;
	ucontext_t *u = ctx;
	u->uc_mcontext.gregs[REG_RBX] += 64;
}

static void leave(int sig) {
	(void)sig;
	siglongjmp(out, 1);
}

__attribute__((noinline)) static long shifted(long n) {
	long r;
	asm volatile("mov %1, %%rbx; mov $62, %%eax; syscall; mov (%%rbx), %0" // kill(self, SIGUSR2)
		: "=&r"(r)
		: "r"(&table[n]), "D"(getpid()), "S"(SIGUSR2)
		: "rax", "rbx", "rcx", "r11", "memory");
	return r;
}

__attribute__((noinline)) static long piped(int rd, int wr) {
	long local[4] = {1, 2, 3, 4}, index = 5;
	write(wr, &(long){77}, sizeof(long));
	read(rd, &index, sizeof index); // the kernel writes to the stack
	syscall(SYS_getcpu, &local[1], &local[2], NULL);
	return table[index & 255] + table[local[1] & 255];
}

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 60;
	for (int i = 0; i < 256; i++)
		table[i] = i;
	stack_t alt = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&alt, NULL);
	sigaction(SIGUSR1, &(struct sigaction){.sa_sigaction = count, .sa_flags = SA_SIGINFO}, NULL);
	sigaction(SIGVTALRM, &(struct sigaction){.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART}, NULL);
	sigaction(SIGUSR2, &(struct sigaction){.sa_sigaction = shift, .sa_flags = SA_SIGINFO}, NULL);
	sigaction(SIGHUP, &(struct sigaction){.sa_handler = leave}, NULL);
	setitimer(ITIMER_VIRTUAL, &(struct itimerval){{0, 4000}, {0, 4000}}, NULL);
	int fd[2];
	if (pipe(fd) != 0)
		return 1;
	volatile long sum = 0;
	static char from[1 << 14], to[1 << 14];
	for (volatile int i = 0; i < rounds; i++) {
		raise(SIGUSR1);
		sum += shifted(i & 127);
		sum += piped(fd[0], fd[1]);
		void *d = to, *s = from;
		unsigned long n = sizeof to;
		asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
		sum += table[((char *)d - to + i) & 255];
		if (sigsetjmp(out, 1) == 0)
			raise(SIGHUP);
		for (int k = 0; k < 200; k++)
			sum += table[(sum + k) & 255];
	}
	// mov rax, [rdi + rsi*8]; ret
	static const uint8_t made[] = {0x48, 0x8b, 0x04, 0xf7, 0xc3};
	long (*load)(long *, long) = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(load, made, sizeof made);
	for (int i = 0; i < 200; i++)
		sum += load(table, i);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 100; i++)
			sum += table[(sum * i) & 255];
		_exit(0);
	}
	waitpid(child, NULL, 0);
	if ((child = vfork()) == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	waitpid(child, NULL, 0);
	setitimer(ITIMER_VIRTUAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	return handled > 0 ? 0 : 1;
}
