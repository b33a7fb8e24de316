// cancel.cc: threads that are cancelled while they compute, and the ids of a process changed meanwhile (glibc's signals 32 and 33): destructors run, nothing else is disturbed.
#include <cstdio>
#include <pthread.h>
#include <csignal>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static int made, gone;
struct Guard {
	Guard() { __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED); }
	~Guard() { __atomic_add_fetch(&gone, 1, __ATOMIC_RELAXED); }
};

static volatile int running, stop;
static volatile long shared[64];

static long spin(volatile long *p)
{
	long n = 0;
	running = 1; // before, a cancellation would find code for which no cleanup is stated
	do {
		p[n & 63] += p[(n * 7) & 63] + 1;
		n++;
	} while (!stop);
	return n;
}

// dense reads bytes by instructions of one byte, to each of which there is a jump: no room but for int3 at most of them.
__asm__(".text\n.globl dense\n.type dense, @function\ndense:\n.cfi_startproc\n	mov %rdi, %rdx\n	movl $1, (%rsi)\n	xor %ecx, %ecx\n"
	"again:\n	mov %rdx, %rdi\n	mov %rdx, %rsi\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n	cmp $1000+\\n, %ecx\n	je byte\\n\n.endr\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nbyte\\n:	lodsb\n.endr\n"
	"	jmp again\n	ret\n.cfi_endproc\n.size dense, .-dense\n");
extern "C" long dense(volatile long *p, volatile int *running);
static long spins_densely(volatile long *p) { return dense(p, &running); }

static long (*volatile spinning)(volatile long *) = spin; // who calls it may not know that nothing is thrown

__attribute__((noinline)) static long outer(volatile long *p, int depth)
{
	Guard g;
	return (depth ? outer(p, depth - 1) : spinning(p)) + p[2];
}

static void *cancelled(void *)
{
	int old;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	outer(shared, 3);
	return nullptr;
}

// Cancelled while it handles our SIGTRAP, most of the time.
static long (*volatile trapping)(volatile long *) = spins_densely;
static void *trapped(void *)
{
	int old;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	Guard g;
	return (void *)trapping(shared);
}

static void *deferred(void *)
{
	Guard g;
	running = 1;
	for (;;) {
		for (int i = 0; i < 1000; i++)
			shared[i & 63] += i;
		pthread_testcancel();
	}
}

static void *sums(void *)
{
	volatile long own[64] = {0};
	running = 1;
	long n = 0;
	while (!stop) {
		for (int i = 0; i < 1000; i++)
			own[i & 63] += 1;
		n += 1000;
	}
	long all = 0;
	for (int i = 0; i < 64; i++)
		all += own[i];
	return (void *)(all - n);
}

static pthread_t start(void *(*f)(void *))
{
	pthread_t t;
	running = 0;
	pthread_create(&t, nullptr, f, nullptr);
	while (!running)
		sched_yield();
	return t;
}

int main(int argc, char **)
{
	if (argc > 1) { // as children of posix_spawn have it, those of make among them
		struct { void (*handler)(int); unsigned long flags, restorer, mask; } ignore = {SIG_IGN, 0, 0, 0};
		for (int sig = 32; sig <= 33; sig++)
			syscall(SYS_rt_sigaction, sig, &ignore, nullptr, 8);
	}
	for (int i = 0; i < 100; i++) {
		void *result;
		pthread_t t = start(i % 4 == 3 ? deferred : i % 4 == 2 ? trapped : cancelled);
		for (int j = 0; j < i; j++)
			sched_yield();
		if (pthread_cancel(t))
			std::printf("not cancelled\n");
		pthread_join(t, &result);
		if (result != PTHREAD_CANCELED)
			std::printf("%d: ended with %p\n", i, result);
	}
	std::printf("made %d, gone %d\n", made, gone);
	pthread_t list[3];
	for (pthread_t &t : list)
		t = start(sums);
	int failed = 0;
	for (int i = 0; i < 100; i++) // each waits until three threads that compute have run
		failed += setresuid((uid_t)-1, geteuid(), (uid_t)-1) != 0;
	stop = 1;
	for (pthread_t t : list) {
		void *wrong;
		pthread_join(t, &wrong);
		std::printf("wrong by %ld\n", (long)wrong);
	}
	std::printf("failed %d\n", failed);
	return 0;
}
