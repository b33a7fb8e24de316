// What a program sees of threads that end: joins of one that has ended, of itself, timed ones; signals to threads that have ended, and whether the kernel still knows them; destructors of thread-specific data in all rounds, which make
// and join threads; stacks of the program's own, and large ones; a mutex that a thread takes with it; the first thread ends before the others. Prints the same in each run.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SAY(...) (printf(__VA_ARGS__), fflush(stdout))
static pthread_t first, second;
static sem_t ready, go;
static volatile pid_t last;

static const char *name(int e) { return e ? strerrorname_np(e) : "0"; }

static void *tell(void *arg)
{
	last = (pid_t)syscall(SYS_gettid);
	return arg;
}

static void *gives(void *arg) { return arg; }

static void *waits(void *arg)
{
	sem_post(&ready);
	sem_wait(&go);
	return NULL;
}

static void timed(void)
{
	struct timespec soon;
	pthread_create(&first, NULL, waits, NULL);
	sem_wait(&ready);
	SAY("try: %s\n", name(pthread_tryjoin_np(first, NULL)));
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_nsec = (soon.tv_nsec + 20000000) % 1000000000, soon.tv_sec += soon.tv_nsec < 20000000;
	SAY("timed: %s\n", name(pthread_timedjoin_np(first, NULL, &soon)));
	clock_gettime(CLOCK_MONOTONIC, &soon);
	SAY("clock: %s\n", name(pthread_clockjoin_np(first, NULL, CLOCK_MONOTONIC, &soon)));
	SAY("bad clock: %s\n", name(pthread_clockjoin_np(first, NULL, CLOCK_PROCESS_CPUTIME_ID, &soon)));
	SAY("oneself: %s\n", name(pthread_join(pthread_self(), NULL)));
	sem_post(&go);
	SAY("join: %s\n", name(pthread_join(first, NULL)));
}

static int threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Others may be on their way out for a moment, natively too. */
static int more_threads_than(int before)
{
	int n = 0;
	for (int i = 0; i < 2000 && (n = threads() - before) != 0; i++)
		usleep(1000);
	return n;
}

static bool gone(pid_t tid)
{
	for (int i = 0; i < 2000; i++, usleep(1000))
		if (syscall(SYS_tgkill, getpid(), tid, 0) < 0)
			return errno == ESRCH;
	return false;
}

static void after_the_end(void)
{
	pthread_t t;
	struct sched_param p;
	int policy;
	clockid_t c;
	cpu_set_t set;
	pthread_create(&t, NULL, tell, NULL);
	while (!last || !gone(last))
		;
	SAY("ended, not joined: kill %s, %s, sched %s, clock %s, affinity %s, name %s\n", name(pthread_kill(t, 0)), name(pthread_kill(t, SIGUSR1)), name(pthread_getschedparam(t, &policy, &p)), name(pthread_getcpuclockid(t, &c)),
		name(pthread_getaffinity_np(t, sizeof set, &set)), name(pthread_setname_np(t, "x")));
	SAY("join: %s\n", name(pthread_join(t, NULL)));
	last = 0;
	pthread_create(&t, NULL, tell, NULL);
	pthread_join(t, NULL);
	SAY("by tid: %d\n", gone(last));
}

static pthread_key_t key;
static int rounds, made;
static void destroy(void *value)
{
	pthread_t t;
	void *r = NULL;
	rounds++;
	if (pthread_create(&t, NULL, gives, (void *)7) == 0 && pthread_join(t, &r) == 0 && r == (void *)7)
		made++;
	if (pthread_create(&t, NULL, gives, NULL) == 0 && pthread_detach(t) == 0)
		made++;
	pthread_setspecific(key, value);
}

static void *has_key(void *arg)
{
	pthread_setspecific(key, &key);
	return NULL;
}

static void destructors(void)
{
	pthread_t t;
	pthread_key_create(&key, destroy);
	for (int i = 0; i < 5; i++) {
		pthread_create(&t, NULL, has_key, NULL);
		pthread_join(t, NULL);
	}
	SAY("destructors: %d, threads that they made: %d\n", rounds, made);
}

static void *deep(void *arg)
{
	volatile char room[8192];
	for (unsigned i = 0; i < sizeof room; i += 64)
		room[i] = (char)i;
	return (void *)(intptr_t)room[64];
}

static void stacks(void)
{
	static char own[65536] __attribute__((aligned(4096)));
	pthread_attr_t a;
	pthread_t t;
	void *r;
	long sum = 0;
	for (int i = 0; i < 20; i++) {
		pthread_attr_init(&a);
		if (i % 4 == 0)
			pthread_attr_setstack(&a, own, sizeof own);
		else
			pthread_attr_setstacksize(&a, i % 4 == 1 ? (size_t)64 << 20 : i % 4 == 2 ? 32768 : (size_t)1 << 20);
		if (pthread_create(&t, &a, deep, NULL) || pthread_join(t, &r))
			abort();
		if (i % 4 == 0)
			memset(own, i, sizeof own);
		sum += (intptr_t)r;
	}
	SAY("stacks: %ld\n", sum);
}

static pthread_mutex_t robust, plain = PTHREAD_MUTEX_INITIALIZER;
static void *takes(void *arg) { return (void *)(intptr_t)pthread_mutex_lock(arg); }
static void mutexes(void)
{
	pthread_mutexattr_t a;
	pthread_t t;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &a);
	pthread_create(&t, NULL, takes, &robust);
	pthread_join(t, NULL);
	SAY("robust: %s\n", name(pthread_mutex_lock(&robust)));
	pthread_mutex_consistent(&robust);
	pthread_mutex_unlock(&robust);
	pthread_create(&t, NULL, takes, &plain);
	pthread_join(t, NULL);
	SAY("plain: %s\n", name(pthread_mutex_trylock(&plain)));
}

static void *cancelled_join(void *arg)
{
	sem_post(&ready);
	pthread_join(*(pthread_t *)arg, NULL);
	return NULL;
}

static void cancelled(void)
{
	void *r;
	pthread_create(&first, NULL, waits, NULL);
	sem_wait(&ready);
	pthread_create(&second, NULL, cancelled_join, &first);
	sem_wait(&ready);
	usleep(30000);
	pthread_cancel(second);
	pthread_join(second, &r);
	SAY("cancelled in join: %d\n", r == PTHREAD_CANCELED);
	sem_post(&go);
	SAY("then: %s\n", name(pthread_join(first, NULL)));
}

static void *last_one(void *arg)
{
	pthread_join(*(pthread_t *)arg, NULL);
	SAY("the first thread has ended\n");
	return NULL;
}

int main(void)
{
	static pthread_t self;
	pthread_t t;
	int before = threads();
	sem_init(&ready, 0, 0);
	sem_init(&go, 0, 0);
	timed();
	after_the_end();
	destructors();
	stacks();
	mutexes();
	cancelled();
	SAY("more threads than before: %d\n", more_threads_than(before));
	self = pthread_self();
	pthread_create(&t, NULL, last_one, &self);
	pthread_exit(NULL);
}
