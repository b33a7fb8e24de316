// Signal handlers in all the ways in which a program can tell when, where and with what they run: handlers KIND. Each kind states with MUST what natively always holds, for so many rounds of some milliseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROUNDS = 40 };
#define MUST(x) do { if (!(x)) { dprintf(2, "handlers.c:%d: %s: errno %d\n", __LINE__, #x, errno); _exit(3); } } while (0)

static volatile sig_atomic_t ran, depth, deepest;
static uint64_t hash;
static void mix(uint64_t x) { hash = (hash ^ x) * 0x9e3779b97f4a7c15ull + 1; }

static void on(int sig, void (*f)(int, siginfo_t *, void *), int flags, const sigset_t *mask)
{
	struct sigaction sa = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | flags};
	if (mask)
		sa.sa_mask = *mask;
	MUST(sigaction(sig, &sa, NULL) == 0);
}

static sigset_t of(int sig)
{
	sigset_t s;
	sigemptyset(&s);
	if (sig)
		sigaddset(&s, sig);
	return s;
}

static void count(int sig, siginfo_t *info, void *context)
{
	char text[64];
	(void)context;
	memset(text, sig, sizeof text); // a frame of its own
	ran++;
	mix((uint64_t)sig + (uint64_t)info->si_code + (uint64_t)(unsigned char)text[9]);
}

static void nap(long us)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += us * 1000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

// Who waits is sent signals by another thread, or by a timer, until it says that it has had one: the first may come before the wait.
static pthread_t waiter;
static int asks, over;
static pthread_mutex_t ask_lock = PTHREAD_MUTEX_INITIALIZER; // no atomics: their order is not known to anybody
static int exchange(int *at, int value)
{
	pthread_mutex_lock(&ask_lock);
	int was = *at;
	*at = value;
	pthread_mutex_unlock(&ask_lock);
	return was;
}
static int is_over(void)
{
	pthread_mutex_lock(&ask_lock);
	int is = over;
	pthread_mutex_unlock(&ask_lock);
	return is;
}

static void *sender(void *arg)
{
	sigset_t all;
	(void)arg;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (!is_over()) {
		nap(2000);
		pthread_mutex_lock(&ask_lock);
		if (asks)
			pthread_kill(waiter, asks);
		pthread_mutex_unlock(&ask_lock);
	}
	return NULL;
}
static void ask(int sig) { exchange(&asks, sig); }
static void enough(void) { exchange(&asks, 0); }

// Calls that return EINTR, whatever the flags.
static void sleeps(int flags)
{
	on(SIGUSR1, count, flags, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		struct timespec t = {5, 0}, left = {0, 0};
		struct timeval v = {5, 0};
		struct pollfd none = {-1, 0, 0};
		int was = ran;
		ask(SIGUSR1);
		int e = r % 3 == 0 ? nanosleep(&t, &left) : r % 3 == 1 ? poll(&none, 1, 5000) : select(0, NULL, NULL, NULL, &v);
		MUST(e < 0 && errno == EINTR && ran > was);
		enough();
		/* What is left is all of it, and the timer's slack of 50 us, where the signal came as the sleep began (natively seen: 5.000049 s). */
		MUST(r % 3 || (left.tv_sec == 4 && left.tv_nsec > 0) || (left.tv_sec == 5 && left.tv_nsec < 1000000));
	}
}

// Calls that are made again, or not.
static int pipes[2];
static void feed(int sig, siginfo_t *info, void *context)
{
	count(sig, info, context);
	MUST(write(pipes[1], "x", 1) == 1);
}

static void reads(int flags)
{
	char c = 0;
	MUST(pipe(pipes) == 0);
	on(SIGUSR1, flags ? feed : count, flags, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		int was = ran;
		ask(SIGUSR1);
		ssize_t n = read(pipes[0], &c, 1);
		MUST(flags ? n == 1 && c == 'x' : ran > was && n < 0 && errno == EINTR);
		enough();
	}
}

static sem_t sem;
static void post(int sig, siginfo_t *info, void *context)
{
	count(sig, info, context);
	sem_post(&sem);
}

static void semaphores(int flags)
{
	sem_init(&sem, 0, 0);
	on(SIGUSR1, flags ? post : count, flags, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		int was = ran;
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_sec += 5;
		ask(SIGUSR1);
		int e = r % 2 && !flags ? sem_timedwait(&sem, &t) : sem_wait(&sem);
		MUST(flags ? e == 0 : ran > was && e < 0 && errno == EINTR);
		enough();
	}
}

// Waits that a handler interrupts and nothing sees: a mutex, a condition, a thread's end.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static void *holds(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	ask(SIGUSR1);
	while (sem_wait(&sem))
		;
	enough();
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void waits(int flags)
{
	sem_init(&sem, 0, 0);
	on(SIGUSR1, post, flags, NULL);
	for (int r = 0; r < ROUNDS / 2; r++) {
		pthread_t t;
		ran = 0;
		pthread_mutex_lock(&lock);
		sigset_t s = of(SIGUSR1), old;
		pthread_sigmask(SIG_BLOCK, &s, &old);
		MUST(pthread_create(&t, NULL, holds, NULL) == 0);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		if (r % 2)
			pthread_cond_wait(&cond, &lock);
		else {
			pthread_mutex_unlock(&lock);
			nap(500);
			pthread_mutex_lock(&lock);
		}
		pthread_mutex_unlock(&lock);
		MUST(pthread_join(t, NULL) == 0);
	}
}

// What a thread sends itself has been handled when the call returns, in order, nested, and masked as it is to be.
static void nested(int sig, siginfo_t *info, void *context)
{
	sigset_t now;
	count(sig, info, context);
	if (++depth > deepest)
		deepest = depth;
	MUST(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
	if (sig == SIGUSR1) { // SIGUSR2 is masked
		int was = ran;
		MUST(sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGRTMIN));
		MUST(raise(SIGUSR2) == 0 && ran == was);
		MUST(raise(SIGRTMIN) == 0 && ran == was + 1);
	} else if (sig == SIGRTMIN + 1 && depth < 4) { // SA_NODEFER
		int was = ran;
		MUST(!sigismember(&now, SIGRTMIN + 1) && raise(sig) == 0 && ran > was);
	}
	depth--;
}

static void selves(int flags)
{
	sigset_t two = of(SIGUSR2), blocked = of(SIGRTMIN + 2), old, pending;
	on(SIGUSR1, nested, flags, &two);
	on(SIGUSR2, nested, flags, NULL);
	on(SIGRTMIN, nested, flags, NULL);
	on(SIGRTMIN + 1, nested, flags | SA_NODEFER, NULL);
	on(SIGRTMIN + 2, count, flags, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		int was = ran;
		MUST(raise(SIGUSR1) == 0 && ran == was + 3); // itself, SIGRTMIN in it, SIGUSR2 behind it
		MUST(pthread_kill(pthread_self(), SIGUSR2) == 0 && ran == was + 4);
		deepest = 0;
		MUST(raise(SIGRTMIN + 1) == 0 && ran == was + 8 && deepest == 4);
		MUST(pthread_sigmask(SIG_BLOCK, &blocked, &old) == 0);
		for (int i = 0; i < 3; i++)
			MUST(pthread_sigqueue(pthread_self(), SIGRTMIN + 2, (union sigval){.sival_int = i}) == 0);
		MUST(ran == was + 8 && sigpending(&pending) == 0 && sigismember(&pending, SIGRTMIN + 2));
		MUST(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0 && ran == was + 11);
		MUST(sigpending(&pending) == 0 && !sigismember(&pending, SIGRTMIN + 2));
		mix((uint64_t)ran);
		nap(3000);
	}
}

// Left by siglongjmp, with the mask and without.
static sigjmp_buf out;
static void leaves(int sig, siginfo_t *info, void *context)
{
	count(sig, info, context);
	siglongjmp(out, sig);
}

static void jumps(int flags)
{
	sigset_t now;
	on(SIGUSR1, leaves, flags, NULL);
	on(SIGUSR2, leaves, flags, NULL);
	for (volatile int r = 0; r < ROUNDS; r++) {
		int sig = sigsetjmp(out, r % 2);
		if (!sig) {
			if (r % 4 < 2)
				raise(SIGUSR1);
			else {
				ask(SIGUSR2);
				nap(5000000);
			}
			MUST(0);
		}
		enough();
		pthread_sigmask(SIG_BLOCK, NULL, &now);
		MUST(sigismember(&now, sig) == !(r % 2));
		on(SIGUSR2, count, flags, NULL); // one more may wait
		sigemptyset(&now);
		pthread_sigmask(SIG_SETMASK, &now, NULL);
		on(SIGUSR2, leaves, flags, NULL);
		nap(2000);
		mix((uint64_t)r);
	}
}

// On which stack, with what in the context; and what is changed there counts.
static char other[64 << 10] __attribute__((aligned(16)));
static void looks(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	char here;
	count(sig, info, context);
	bool on_other = (uintptr_t)&here - (uintptr_t)other < sizeof other, context_there = (uintptr_t)uc - (uintptr_t)other < sizeof other;
	MUST(on_other == (sig == SIGUSR2) && context_there == on_other);
	MUST(uc->uc_stack.ss_sp == other && uc->uc_stack.ss_size == sizeof other);
	MUST(((uintptr_t)__builtin_frame_address(0) & 15) == 0 && (void *)&uc->uc_mcontext.fpregs->mxcsr > (void *)uc);
	MUST(!sigismember(&uc->uc_sigmask, sig) && sigismember(&uc->uc_sigmask, SIGHUP));
	MUST(info->si_signo == sig && info->si_pid == getpid());
	sigaddset(&uc->uc_sigmask, SIGTERM);
	double d = 1; // the program's vector registers are not ours to keep
	for (int i = 0; i < 50; i++)
		d = d * 1.5 + sig;
	mix((uint64_t)d);
}

static void stacks(int flags)
{
	stack_t ss = {.ss_sp = other, .ss_size = sizeof other}, is;
	sigset_t hup = of(SIGHUP), term = of(SIGTERM), now;
	MUST(sigaltstack(&ss, NULL) == 0 && pthread_sigmask(SIG_BLOCK, &hup, NULL) == 0);
	on(SIGUSR1, looks, flags, NULL);
	on(SIGUSR2, looks, flags | SA_ONSTACK, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		double x = r + 0.5, y = x * 3;
		int sig = r % 2 ? SIGUSR1 : SIGUSR2, was = ran;
		if (r % 4 < 2)
			MUST(raise(sig) == 0);
		else {
			ask(sig);
			struct timespec t = {5, 0};
			MUST(nanosleep(&t, NULL) < 0 && errno == EINTR);
		}
		MUST(ran > was && y == (r + 0.5) * 3);
		enough();
		pthread_sigmask(SIG_BLOCK, NULL, &now);
		MUST(sigismember(&now, SIGTERM) && !sigismember(&now, sig) && sigaltstack(NULL, &is) == 0 && is.ss_sp == other);
		pthread_sigmask(SIG_UNBLOCK, &term, NULL);
		nap(2000);
	}
}

// Each value in order, from another thread, to one that works.
static volatile int next_value;
static void in_order(int sig, siginfo_t *info, void *context)
{
	count(sig, info, context);
	MUST(info->si_code == SI_QUEUE && info->si_value.sival_int == next_value && info->si_pid == getpid() && info->si_uid == getuid());
	next_value++;
}

static int written;
static void *queues(void *arg)
{
	for (int i = 0; i < ROUNDS * 10; i++) {
		written = i; // the handler's thread reads it
		while (pthread_sigqueue(waiter, SIGRTMIN, (union sigval){.sival_int = i}))
			nap(1000);
		if (i % 10 == 0)
			nap(3000);
	}
	return arg;
}

static void values(int flags)
{
	pthread_t t;
	sigset_t s = of(SIGRTMIN), old;
	on(SIGRTMIN, in_order, flags, NULL);
	pthread_sigmask(SIG_BLOCK, &s, &old);
	MUST(pthread_create(&t, NULL, queues, NULL) == 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	while (next_value < ROUNDS * 10) {
		pthread_mutex_lock(&lock);
		mix((uint64_t)next_value);
		pthread_mutex_unlock(&lock);
		MUST(getppid() > 0);
	}
	pthread_join(t, NULL);
	MUST(written == next_value - 1);
	hash = 0;
}

// Without calls or locks: the handler is waited for.
static void computes(int flags)
{
	on(SIGALRM, count, flags, NULL);
	for (int r = 0; r < ROUNDS / 4; r++) {
		int was = ran;
		struct itimerval t = {{0, 0}, {0, 3000}};
		setitimer(ITIMER_REAL, &t, NULL);
		for (volatile uint64_t i = 0; ran == was; i++)
			;
		nap(2000);
	}
}

// A timer while the thread works.
static void timers(int flags)
{
	struct itimerval t = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
	on(SIGALRM, count, flags, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
	while (ran < ROUNDS * 4) {
		pthread_mutex_lock(&lock);
		free(malloc(100));
		pthread_mutex_unlock(&lock);
		MUST(getppid() > 0);
	}
	setitimer(ITIMER_REAL, &off, NULL);
	hash = 0, ran = 0;
}

static void once_only(int flags)
{
	for (int r = 0; r < ROUNDS; r++) {
		struct sigaction is;
		int was = ran;
		on(SIGUSR1, count, flags | (int)SA_RESETHAND, NULL);
		MUST(raise(SIGUSR1) == 0 && ran == was + 1 && sigaction(SIGUSR1, NULL, &is) == 0 && is.sa_handler == SIG_DFL);
		nap(2000);
	}
}

// Waits with a mask of their own: both signals are handled in it.
static void suspends(int flags)
{
	sigset_t none = of(0), both = of(SIGUSR1), old;
	sigaddset(&both, SIGUSR2);
	on(SIGUSR1, count, flags, NULL);
	on(SIGUSR2, count, flags, NULL);
	pthread_sigmask(SIG_BLOCK, &both, &old);
	for (int r = 0; r < ROUNDS; r++) {
		int was = ran;
		struct timespec t = {5, 0};
		raise(SIGUSR1);
		raise(SIGUSR2);
		MUST(ran == was && (r % 2 ? sigsuspend(&none) : ppoll(NULL, 0, &t, &none)) < 0 && errno == EINTR && ran == was + 2);
		sigset_t now;
		pthread_sigmask(SIG_BLOCK, NULL, &now);
		MUST(sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2));
		nap(2000);
	}
}

// In functions of the vdso, which are calls of their own kind.
static void clocks(int flags)
{
	on(SIGUSR1, count, flags, NULL);
	for (int r = 0; r < ROUNDS; r++) {
		struct timespec t, before = {0, 0};
		int was = ran;
		for (ask(SIGUSR1); ran < was + 3; before = t) {
			clock_gettime(CLOCK_MONOTONIC, &t);
			MUST(t.tv_sec > before.tv_sec || (t.tv_sec == before.tv_sec && t.tv_nsec >= before.tv_nsec));
		}
		enough();
	}
}

// A fault's handler that goes on elsewhere.
static void faults(int flags)
{
	on(SIGSEGV, leaves, flags, NULL);
	for (volatile int r = 0; r < ROUNDS; r++) {
		if (!sigsetjmp(out, 1)) {
			*(volatile int *)(8L * (r + 1)) = 1;
			MUST(0);
		}
		nap(2000);
	}
}

static const struct kind { const char *name; void (*f)(int flags); int flags; } kinds[] = {
	{"sleeps", sleeps, 0}, {"sleeps-restart", sleeps, SA_RESTART}, {"reads", reads, 0}, {"reads-restart", reads, SA_RESTART}, {"semaphores", semaphores, 0}, {"semaphores-restart", semaphores, SA_RESTART},
	{"waits", waits, 0}, {"selves", selves, 0}, {"jumps", jumps, 0}, {"stacks", stacks, 0}, {"values", values, SA_RESTART}, {"computes", computes, SA_RESTART}, {"timers", timers, SA_RESTART},
	{"once", once_only, 0}, {"suspends", suspends, 0}, {"faults", faults, 0}, {"clocks", clocks, 0},
};

int main(int argc, char **argv)
{
	pthread_t t;
	waiter = pthread_self();
	MUST(argc == 2 && pthread_create(&t, NULL, sender, NULL) == 0);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(argv[1], kinds[i].name))
			kinds[i].f(kinds[i].flags);
	exchange(&over, 1);
	pthread_join(t, NULL);
	printf("%s\n", argv[1]); // how many came is not the same in each run
	return 0;
}
