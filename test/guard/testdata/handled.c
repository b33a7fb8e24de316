// Handlers for crashes that say something and then have the process die as it would have, as servers and Rust's programs do. Told is the fault, where it was, in the thread that had it, and with --epochs who wrote the pointer: spoil. Where the
// program goes on nothing is told.
// What each case says of itself is read by the test: the function in which the fault is told; "by epochs": only where handlers are entered by the agent (--epochs); "epochs alone": it is another crash without; "perhaps": who wrote the pointer need not be known.
// case returns: fault
// case old: fault
// case raises: fault by epochs
// case kills: fault by epochs
// case nested: fault by epochs
// case thread: fault
// case stack: fault
// case ontop: fault by epochs
// case aborts: fault epochs alone
// case once: fault by epochs
// case bare: fault by epochs
// case prints: fault
// case grows: fault
// case forks: fault
// case busy: fault
// case joins: fault
// case creates: fault perhaps
// case again: fault perhaps
// case later: fail perhaps
// case clean:
// case jumps:
// case maps:
// case skips:
// case sent:
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { WRONG = 0x18, TIMES = 200, PAGE = 4096 };
static const char *how;
static sigjmp_buf out;
static struct { int *pointer; } *object;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t other;
static sem_t begun;
static unsigned long count, faults;
static int over;

static int is(const char *name) { return strcmp(how, name) == 0; }

__attribute__((noinline)) static void spoil(void) { object->pointer = (int *)WRONG; }

__attribute__((noinline)) static void fault(void) { *object->pointer = 1; }

// As long as any: its length is known.
__attribute__((noinline)) static void store(void *p) { __asm__ volatile("movl $1, (%0)" : : "r"(p) : "memory"); }

// What is asked after it was set is what was set.
static void set_default(int sig)
{
	struct sigaction a, is_now;
	memset(&a, 0, sizeof a);
	a.sa_handler = SIG_DFL;
	a.sa_flags = SA_NODEFER | SA_RESTART;
	sigaddset(&a.sa_mask, SIGUSR1);
	if (sigaction(sig, &a, NULL) || sigaction(sig, NULL, &is_now) || is_now.sa_handler != SIG_DFL || (is_now.sa_flags & ~0x04000000) != a.sa_flags || sigismember(&is_now.sa_mask, SIGUSR1) != 1 || sigismember(&is_now.sa_mask, SIGUSR2))
		_exit(7);
}

// What SA_RESETHAND leaves.
static void check_default(int sig, int flags)
{
	struct sigaction is_now;
	if (sigaction(sig, NULL, &is_now) || is_now.sa_handler != SIG_DFL || (is_now.sa_flags & ~0x04000000) != flags)
		_exit(16);
}

static void bare_handler(int sig)
{
	static const char said[] = "it crashes\n";
	check_default(sig, (int)SA_RESETHAND);
	if (write(1, said, sizeof said - 1) < 0)
		_exit(8);
}

// Others go on while a handler works.
static void *work(void *arg)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&mutex);
		__atomic_fetch_add(&count, 1, __ATOMIC_ACQ_REL);
		pthread_mutex_unlock(&mutex);
		if (count == 1000)
			sem_post(&begun);
	}
	return arg;
}

static void *none(void *arg) { return arg; }

static void await_others(void)
{
	unsigned long now = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
	while (__atomic_load_n(&count, __ATOMIC_ACQUIRE) - now < 1000)
		sched_yield();
}

static void do_more(void)
{
	void *frames[16];
	if (is("prints")) {
		fprintf(stderr, "it has frames: %d\n", backtrace(frames, 16) > 2);
		fflush(stderr);
	}
	for (int i = 0; is("grows") && i < 100000; i++)
		if (!malloc(i % 100))
			_exit(10);
	if (is("forks") && system("echo it asks others"))
		_exit(11);
	if (is("busy"))
		await_others();
	if (is("joins")) {
		__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
		if (pthread_join(other, NULL))
			_exit(12);
	}
	if (is("creates") && (pthread_create(&other, NULL, none, NULL) || pthread_join(other, NULL)))
		_exit(13);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	static const char said[] = "it crashes\n";
	ucontext_t *uc = context;
	if (is("maps")) {
		faults++;
		if (mprotect(info->si_addr, PAGE, PROT_READ | PROT_WRITE))
			_exit(14);
		return;
	}
	if (is("skips")) {
		faults++;
		uc->uc_mcontext.gregs[REG_RIP] += 6; /* movl $1, (%reg) */
		return;
	}
	if (is("jumps") || is("later") || (is("again") && faults++ == 0))
		siglongjmp(out, 1);
	if (write(1, said, sizeof said - 1) < 0 || (info->si_code > 0 && info->si_addr != (void *)WRONG))
		_exit(8);
	if (is("clean"))
		siglongjmp(out, 1);
	do_more();
	if (is("aborts"))
		abort();
	if (is("once")) {
		check_default(sig, (int)SA_RESETHAND | SA_NODEFER | SA_SIGINFO);
		return;
	}
	if (is("old")) {
		if (signal(sig, SIG_DFL) == SIG_ERR)
			_exit(9);
	} else
		set_default(sig);
	if (is("raises") || is("nested") || is("ontop"))
		raise(sig);
	if (is("kills"))
		kill(getpid(), sig);
}

static void go_on(void)
{
	char *pages = mmap(NULL, TIMES * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (volatile int i = 0; i < TIMES; i++) {
		if (is("maps"))
			pages[i * PAGE] = 1;
		else if (is("skips"))
			store((void *)(unsigned long)(WRONG + i));
		else if (!sigsetjmp(out, 1))
			fault();
		else
			faults++;
		if (i % 10 == 0)
			printf("%d\n", i);
		usleep(1000);
	}
	if (faults != TIMES)
		_exit(15);
}

static void (*volatile stop)(void) = abort;

// Further down than the fault was.
__attribute__((noinline)) static void fail(int depth)
{
	volatile char room[256];
	memset((char *)room, depth, sizeof room);
	if (depth)
		fail(depth - 1);
	else
		stop();
	room[0] = 1;
}

static void *run(void *arg)
{
	if (is("sent"))
		raise(SIGSEGV);
	spoil();
	if (is("jumps") || is("maps") || is("skips"))
		go_on();
	else if (is("later") && sigsetjmp(out, 1))
		fail(100);
	else if (!is("clean") && !is("again"))
		fault();
	else if (!sigsetjmp(out, 1) || is("again"))
		fault();
	return arg;
}

int main(int argc, char **argv)
{
	struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	static char stack[1 << 16];
	how = argv[argc - 1];
	object = calloc(1, sizeof *object);
	if (is("stack") || is("ontop")) {
		stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
		a.sa_flags |= SA_ONSTACK;
		sigaltstack(&s, NULL);
	}
	if (is("nested") || is("ontop"))
		a.sa_flags |= SA_NODEFER;
	if (is("once"))
		a.sa_flags |= SA_NODEFER | SA_RESETHAND;
	if (is("bare"))
		a = (struct sigaction){.sa_handler = bare_handler, .sa_flags = (int)SA_RESETHAND};
	if (is("sent"))
		signal(SIGSEGV, SIG_DFL);
	else
		sigaction(SIGSEGV, &a, NULL);
	if (is("busy") || is("joins")) {
		sem_init(&begun, 0, 0);
		pthread_create(&other, NULL, work, NULL);
		sem_wait(&begun);
	}
	if (is("thread")) {
		pthread_t t;
		pthread_create(&t, NULL, run, NULL);
		pthread_join(t, NULL);
	} else
		run(NULL);
	puts("it lives");
	return 0;
}
