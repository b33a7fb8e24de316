/* Proves that every synchronisation function returns what it returns natively: prints each result, so that the output with and
 * without the agent can be compared. Nothing printed depends on timing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) do { errno = 77; int r_ = (call); printf("%s = %d errno %d\n", #call, r_, errno); fflush(stdout); } while (0)

static struct timespec in(int clock, long ms)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	ts.tv_sec += ms / 1000;
	ts.tv_nsec += ms % 1000 * 1000000;
	if (ts.tv_nsec >= 1000000000)
		ts.tv_sec++, ts.tv_nsec -= 1000000000;
	return ts;
}
static const struct timespec bad_time = {0, 1000000000}, past = {1, 0}, negative = {-5, 0};

/* Runs fn in another thread to its end. */
static void *elsewhere(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, fn, arg);
	pthread_join(t, &r);
	return r;
}

/* --- mutexes ------------------------------------------------------------------------------------------------------------------- */

static void bytes(const char *what, const pthread_mutex_t *m)
{
	printf("  %s: lock %d count %u owner %d users %u kind %d\n", what, m->__data.__lock & 0x3fffffff ? 1 : 0, m->__data.__count,
		m->__data.__owner == gettid() ? 1 : m->__data.__owner ? 2 : 0, m->__data.__nusers, m->__data.__kind);
}

static void *other_mutex(void *p)
{
	pthread_mutex_t *m = p;
	struct timespec ts = in(CLOCK_REALTIME, 20), mono = in(CLOCK_MONOTONIC, 20);
	SHOW(pthread_mutex_trylock(m));
	SHOW(pthread_mutex_timedlock(m, &ts));
	SHOW(pthread_mutex_timedlock(m, &past));
	SHOW(pthread_mutex_timedlock(m, &bad_time));
	SHOW(pthread_mutex_timedlock(m, &negative));
	SHOW(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &mono));
	SHOW(pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &mono));
	SHOW(pthread_mutex_clocklock(m, -3, &mono));
	return NULL;
}

static void mutexes(void)
{
	static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
	static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
	for (int type = 0; type < 4; type++)
		for (int robust = 0; robust < 2; robust++)
			for (int protocol = 0; protocol < 2; protocol++)
				for (int shared = 0; shared < 2; shared++) {
					printf("mutex type %d robust %d protocol %d shared %d\n", types[type], robust, protocols[protocol], shared);
					pthread_mutexattr_t a;
					pthread_mutex_t m;
					struct timespec ts = in(CLOCK_REALTIME, 10000);
					pthread_mutexattr_init(&a);
					pthread_mutexattr_settype(&a, types[type]);
					pthread_mutexattr_setrobust(&a, robust);
					pthread_mutexattr_setprotocol(&a, protocols[protocol]);
					pthread_mutexattr_setpshared(&a, shared);
					SHOW(pthread_mutex_init(&m, &a));
					bytes("init", &m);
					SHOW(pthread_mutex_lock(&m));
					bytes("locked", &m);
					SHOW(pthread_mutex_trylock(&m));
					if (types[type] == PTHREAD_MUTEX_RECURSIVE || types[type] == PTHREAD_MUTEX_ERRORCHECK) {
						SHOW(pthread_mutex_lock(&m));
						SHOW(pthread_mutex_timedlock(&m, &ts));
					}
					if (!(robust && protocol)) /* glibc aborts in timedlock of a robust PI mutex with some timeouts */
						elsewhere(other_mutex, &m);
					if (!robust) /* a robust one would be destroyed, and stay in the thread's list */
						SHOW(pthread_mutex_destroy(&m));
					SHOW(pthread_mutex_unlock(&m));
					while (types[type] == PTHREAD_MUTEX_RECURSIVE && m.__data.__count > 0)
						SHOW(pthread_mutex_unlock(&m));
					bytes("unlocked", &m);
					if (types[type] != PTHREAD_MUTEX_NORMAL && types[type] != PTHREAD_MUTEX_ADAPTIVE_NP)
						SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_timedlock(&m, &bad_time));
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &past));
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_destroy(&m));
					SHOW(pthread_mutex_lock(&m));
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_trylock(&m));
					SHOW(pthread_mutex_consistent(&m));
				}
	pthread_mutex_t odd = PTHREAD_MUTEX_INITIALIZER;
	odd.__data.__kind = 0x4444;
	SHOW(pthread_mutex_lock(&odd));
	SHOW(pthread_mutex_unlock(&odd));
	pthread_mutex_t deep = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	SHOW(pthread_mutex_lock(&deep));
	deep.__data.__count = UINT_MAX;
	SHOW(pthread_mutex_lock(&deep));
	SHOW(pthread_mutex_trylock(&deep));
	int old = 5;
	SHOW(pthread_mutex_setprioceiling(&odd, 3, &old));
}

static void *die_with(void *m)
{
	pthread_mutex_lock(m);
	return NULL;
}

static void robust(void)
{
	static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
	for (int protocol = 0; protocol < 2; protocol++)
		for (int type = 0; type < 3; type++)
			for (int repair = 0; repair < 2; repair++)
				for (int how = 0; how < 3; how++) {
					printf("robust protocol %d type %d repair %d how %d\n", protocol, types[type], repair, how);
					pthread_mutexattr_t a;
					pthread_mutex_t m;
					struct timespec ts = in(CLOCK_REALTIME, 5000);
					pthread_mutexattr_init(&a);
					pthread_mutexattr_setrobust(&a, 1);
					pthread_mutexattr_settype(&a, types[type]);
					pthread_mutexattr_setprotocol(&a, protocol ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
					pthread_mutex_init(&m, &a);
					SHOW(pthread_mutex_consistent(&m));
					elsewhere(die_with, &m);
					if (how == 0)
						SHOW(pthread_mutex_lock(&m));
					else if (how == 1)
						SHOW(pthread_mutex_trylock(&m));
					else
						SHOW(pthread_mutex_timedlock(&m, &ts));
					if (repair)
						SHOW(pthread_mutex_consistent(&m));
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_lock(&m));
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_trylock(&m));
					SHOW(pthread_mutex_destroy(&m));
				}
}

/* A mutex with a priority ceiling, by threads that may have such a priority and threads that may not. glibc notes the new priority before the
 * kernel refuses it, so that of two attempts the first fails and the second succeeds: the agent must not make two of the program's one. */
static void *under_ceiling(void *p)
{
	pthread_mutex_t *m = p;
	struct timespec ts = in(CLOCK_REALTIME, 20);
	SHOW(pthread_mutex_trylock(m));
	SHOW(pthread_mutex_timedlock(m, &ts));
	return NULL;
}

static void *ceilings_of(void *p)
{
	struct sched_param sp = {*(int *)p};
	if (sp.sched_priority)
		SHOW(pthread_setschedparam(pthread_self(), SCHED_FIFO, &sp)); /* EPERM where the user may not: the same on both sides */
	for (int type = 0; type < 4; type++)
		for (int ceiling = 1; ceiling < 30; ceiling += 19)
			for (int op = 0; op < 3; op++) {
				printf("ceiling %d type %d priority %d op %d\n", ceiling, type, sp.sched_priority, op);
				struct timespec ts = in(CLOCK_REALTIME, 5000);
				pthread_mutexattr_t a;
				pthread_mutex_t m;
				int old;
				pthread_mutexattr_init(&a);
				pthread_mutexattr_settype(&a, type);
				pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_PROTECT);
				SHOW(pthread_mutexattr_setprioceiling(&a, ceiling));
				SHOW(pthread_mutex_init(&m, &a));
				for (int i = 0; i < 2; i++) {
					int r = op == 0 ? pthread_mutex_lock(&m) : op == 1 ? pthread_mutex_trylock(&m) : pthread_mutex_timedlock(&m, &ts);
					printf("taken %d: %d\n", i, r);
					if (r != 0)
						continue;
					if (i == 0)
						elsewhere(under_ceiling, &m);
					SHOW(pthread_mutex_unlock(&m));
					SHOW(pthread_mutex_setprioceiling(&m, ceiling + 1, &old));
				}
				SHOW(pthread_mutex_destroy(&m));
			}
	return NULL;
}

static void ceilings(void)
{
	for (int priority = 0; priority < 30; priority += 10)
		elsewhere(ceilings_of, &priority);
}

/* --- rwlocks --------------------------------------------------------------------------------------------------------------------- */

static void *other_rwlock(void *p)
{
	pthread_rwlock_t *rw = p;
	struct timespec ts = in(CLOCK_REALTIME, 20), mono = in(CLOCK_MONOTONIC, 20);
	for (int write = 0; write < 2; write++) {
		int r;
		if (write)
			SHOW(r = pthread_rwlock_trywrlock(rw));
		else
			SHOW(r = pthread_rwlock_tryrdlock(rw));
		if (r == 0)
			SHOW(pthread_rwlock_unlock(rw));
		SHOW(r = write ? pthread_rwlock_timedwrlock(rw, &ts) : pthread_rwlock_timedrdlock(rw, &ts));
		if (r == 0)
			SHOW(pthread_rwlock_unlock(rw));
		SHOW(r = write ? pthread_rwlock_timedwrlock(rw, &past) : pthread_rwlock_timedrdlock(rw, &past));
		if (r == 0)
			SHOW(pthread_rwlock_unlock(rw));
		SHOW(write ? pthread_rwlock_timedwrlock(rw, &bad_time) : pthread_rwlock_timedrdlock(rw, &bad_time));
		SHOW(r = write ? pthread_rwlock_clockwrlock(rw, CLOCK_MONOTONIC, &mono) : pthread_rwlock_clockrdlock(rw, CLOCK_MONOTONIC, &mono));
		if (r == 0)
			SHOW(pthread_rwlock_unlock(rw));
		SHOW(write ? pthread_rwlock_clockwrlock(rw, CLOCK_THREAD_CPUTIME_ID, &mono) : pthread_rwlock_clockrdlock(rw, -7, &mono));
	}
	return NULL;
}

static void rwlocks(void)
{
	for (int kind = 0; kind < 3; kind++)
		for (int shared = 0; shared < 2; shared++) {
			printf("rwlock kind %d shared %d\n", kind, shared);
			pthread_rwlockattr_t a;
			pthread_rwlock_t rw;
			pthread_rwlockattr_init(&a);
			pthread_rwlockattr_setkind_np(&a, kind);
			pthread_rwlockattr_setpshared(&a, shared);
			SHOW(pthread_rwlock_init(&rw, &a));
			SHOW(pthread_rwlock_rdlock(&rw));
			SHOW(pthread_rwlock_rdlock(&rw));
			SHOW(pthread_rwlock_trywrlock(&rw));
			SHOW(pthread_rwlock_timedwrlock(&rw, &past));
			elsewhere(other_rwlock, &rw);
			SHOW(pthread_rwlock_unlock(&rw));
			SHOW(pthread_rwlock_unlock(&rw));
			SHOW(pthread_rwlock_wrlock(&rw));
			SHOW(pthread_rwlock_wrlock(&rw));
			SHOW(pthread_rwlock_rdlock(&rw));
			SHOW(pthread_rwlock_tryrdlock(&rw));
			SHOW(pthread_rwlock_timedrdlock(&rw, &past));
			elsewhere(other_rwlock, &rw);
			SHOW(pthread_rwlock_unlock(&rw));
			elsewhere(other_rwlock, &rw);
			SHOW(pthread_rwlock_destroy(&rw));
		}
}

/* --- spin locks, barriers, once -------------------------------------------------------------------------------------------------- */

static void *other_spin(void *l)
{
	SHOW(pthread_spin_trylock(l));
	return NULL;
}

static pthread_barrier_t barrier;
static void *at_barrier(void *n)
{
	(void)n;
	int serial = 0;
	for (int i = 0; i < 100; i++)
		serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
	return (void *)(long)serial;
}

static int inits;
static void initialise(void) { inits++; }
static void initialise_and_end(void) { inits++; if (inits < 3) pthread_exit(NULL); }
static pthread_once_t once_exit = PTHREAD_ONCE_INIT;
static void *once_thread(void *p) { (void)p; pthread_once(&once_exit, initialise_and_end); return "returned"; }

static void others(void)
{
	pthread_spinlock_t l;
	SHOW(pthread_spin_init(&l, 0));
	SHOW(pthread_spin_lock(&l));
	SHOW(pthread_spin_trylock(&l));
	elsewhere(other_spin, (void *)&l);
	SHOW(pthread_spin_unlock(&l));
	elsewhere(other_spin, (void *)&l);
	SHOW(pthread_spin_unlock(&l));
	SHOW(pthread_spin_destroy(&l));

	SHOW(pthread_barrier_init(&barrier, NULL, 0));
	SHOW(pthread_barrier_init(&barrier, NULL, INT_MAX));
	SHOW(pthread_barrier_init(&barrier, NULL, 3));
	pthread_t t[3];
	long serial = 0;
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, at_barrier, NULL);
	for (int i = 0; i < 3; i++) {
		void *r;
		pthread_join(t[i], &r);
		serial += (long)r;
	}
	printf("barrier rounds with one serial thread: %ld\n", serial);
	SHOW(pthread_barrier_destroy(&barrier));

	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static once_flag flag = ONCE_FLAG_INIT;
	SHOW(pthread_once(&once, initialise));
	SHOW(pthread_once(&once, initialise));
	call_once(&flag, initialise);
	call_once(&flag, initialise);
	printf("initialised %d times, control %d\n", inits, once);
	inits = 0;
	for (int i = 0; i < 4; i++) {
		char *r = elsewhere(once_thread, NULL);
		printf("once that ends its thread: %s, %d\n", r ? r : "ended", inits);
	}
}

/* --- conditions -------------------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t cm = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv;
static int ready, woken;
static void *cond_waiter(void *p)
{
	struct timespec ts = in(CLOCK_REALTIME, 60000), mono = in(CLOCK_MONOTONIC, 60000);
	int how = (int)(long)p, r = 0;
	pthread_mutex_lock(&cm);
	while (!ready && r == 0)
		r = how == 0 ? pthread_cond_wait(&cv, &cm) : how == 1 ? pthread_cond_timedwait(&cv, &cm, &ts) : pthread_cond_clockwait(&cv, &cm, CLOCK_MONOTONIC, &mono);
	woken += r == 0 && cm.__data.__owner == gettid();
	pthread_mutex_unlock(&cm);
	return NULL;
}

static void conditions(void)
{
	struct timespec ts = in(CLOCK_REALTIME, 20), mono = in(CLOCK_MONOTONIC, 20);
	pthread_condattr_t a;
	pthread_condattr_init(&a);
	SHOW(pthread_cond_init(&cv, NULL));
	pthread_mutex_lock(&cm);
	SHOW(pthread_cond_timedwait(&cv, &cm, &ts));
	SHOW(pthread_cond_timedwait(&cv, &cm, &past));
	SHOW(pthread_cond_timedwait(&cv, &cm, &bad_time));
	SHOW(pthread_cond_timedwait(&cv, &cm, &negative));
	SHOW(pthread_cond_clockwait(&cv, &cm, CLOCK_MONOTONIC, &mono));
	SHOW(pthread_cond_clockwait(&cv, &cm, CLOCK_PROCESS_CPUTIME_ID, &mono));
	SHOW(pthread_cond_clockwait(&cv, &cm, -1, &mono));
	bytes("after waits", &cm);
	SHOW(pthread_mutex_unlock(&cm));
	pthread_t t[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, cond_waiter, (void *)i);
	for (;;) { /* until all three wait */
		pthread_mutex_lock(&cm);
		unsigned waiting = cv.__data.__wrefs >> 3;
		if (waiting == 3)
			break;
		pthread_mutex_unlock(&cm);
		usleep(1000);
	}
	ready = 1;
	SHOW(pthread_cond_signal(&cv));
	SHOW(pthread_cond_broadcast(&cv));
	SHOW(pthread_mutex_unlock(&cm));
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("woken and holding the mutex: %d\n", woken);
	SHOW(pthread_cond_destroy(&cv));
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	SHOW(pthread_cond_init(&cv, &a));
	pthread_mutex_lock(&cm);
	mono = in(CLOCK_MONOTONIC, 20);
	SHOW(pthread_cond_timedwait(&cv, &cm, &mono));
	pthread_mutex_unlock(&cm);
	SHOW(pthread_cond_destroy(&cv));
	/* a recursive mutex locked twice, an errorcheck one not locked */
	pthread_mutex_t rec = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, chk = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	SHOW(pthread_cond_init(&cv, NULL));
	pthread_mutex_lock(&rec);
	pthread_mutex_lock(&rec);
	SHOW(pthread_cond_timedwait(&cv, &rec, &past));
	bytes("recursive", &rec);
	SHOW(pthread_mutex_unlock(&rec));
	SHOW(pthread_mutex_unlock(&rec));
	SHOW(pthread_cond_wait(&cv, &chk));
	SHOW(pthread_cond_wait(&cv, &rec));
	cv.__data.__wrefs = 0; /* glibc leaves these failed waiters counted */
}

/* --- semaphores ----------------------------------------------------------------------------------------------------------------------- */

static void on_signal(int sig) { (void)sig; }
static void *interrupter(void *p)
{
	for (int i = 0; i < 40; i++) {
		usleep(5000);
		pthread_kill(*(pthread_t *)p, SIGUSR1);
	}
	return NULL;
}
static sem_t sem;
static void *poster(void *p) { (void)p; usleep(30000); sem_post(&sem); return NULL; }

static void semaphores(void)
{
	int v = -1;
	struct timespec ts = in(CLOCK_REALTIME, 20), mono = in(CLOCK_MONOTONIC, 20);
	SHOW(sem_init(&sem, 0, 0x80000000u));
	SHOW(sem_init(&sem, 0, 2));
	SHOW(sem_wait(&sem));
	SHOW(sem_trywait(&sem));
	SHOW(sem_trywait(&sem));
	SHOW(sem_getvalue(&sem, &v));
	printf("value %d\n", v);
	SHOW(sem_timedwait(&sem, &ts));
	SHOW(sem_timedwait(&sem, &past));
	SHOW(sem_timedwait(&sem, &bad_time));
	SHOW(sem_timedwait(&sem, &negative));
	SHOW(sem_clockwait(&sem, CLOCK_MONOTONIC, &mono));
	SHOW(sem_clockwait(&sem, CLOCK_PROCESS_CPUTIME_ID, &mono));
	SHOW(sem_clockwait(&sem, -1, &mono));
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGUSR1, &sa, NULL);
	pthread_t self = pthread_self(), t;
	pthread_create(&t, NULL, interrupter, &self);
	SHOW(sem_wait(&sem));
	ts = in(CLOCK_REALTIME, 60000);
	SHOW(sem_timedwait(&sem, &ts));
	pthread_join(t, NULL);
	signal(SIGUSR1, SIG_IGN);
	pthread_create(&t, NULL, poster, NULL);
	SHOW(sem_wait(&sem));
	pthread_join(t, NULL);
	SHOW(sem_post(&sem));
	SHOW(sem_post(&sem));
	SHOW(sem_getvalue(&sem, &v));
	printf("value %d\n", v);
	SHOW(sem_destroy(&sem));
	SHOW(sem_init(&sem, 0, INT_MAX));
	SHOW(sem_post(&sem));
	SHOW(sem_destroy(&sem));
	char name[64];
	snprintf(name, sizeof name, "/rs-sync-%d", (int)getpid());
	sem_t *s = sem_open(name, O_CREAT | O_EXCL, 0600, 1), *s2 = sem_open(name, 0);
	printf("named %d %d\n", s != SEM_FAILED, s == s2);
	errno = 0;
	printf("again exclusively: %d errno %d\n", sem_open(name, O_CREAT | O_EXCL, 0600, 1) == SEM_FAILED, errno);
	SHOW(sem_unlink(name + 0) == 0);
	SHOW(sem_wait(s));
	SHOW(sem_trywait(s2));
	SHOW(sem_post(s2));
	SHOW(sem_close(s));
	SHOW(sem_close(s2));
	SHOW(sem_close(&sem));
	printf("missing: %d\n", sem_open("/rs-sync-missing", 0) == SEM_FAILED);
}

/* --- C11 ------------------------------------------------------------------------------------------------------------------------------- */

static int c11_other(void *p)
{
	struct timespec ts = in(CLOCK_REALTIME, 20);
	SHOW(mtx_trylock(p));
	SHOW(mtx_timedlock(p, &ts));
	SHOW(mtx_timedlock(p, &bad_time));
	return 7;
}

static void c11(void)
{
	mtx_t m;
	cnd_t c;
	thrd_t t;
	int r = 0;
	struct timespec ts = in(CLOCK_REALTIME, 20);
	SHOW(mtx_init(&m, 99));
	for (int type = 0; type < 4; type++) {
		static const int types[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive};
		SHOW(mtx_init(&m, types[type]));
		SHOW(mtx_lock(&m));
		SHOW(mtx_trylock(&m));
		thrd_create(&t, c11_other, &m);
		thrd_join(t, &r);
		SHOW(mtx_unlock(&m));
		if (types[type] & mtx_recursive) {
			SHOW(mtx_unlock(&m));
			SHOW(mtx_unlock(&m));
		}
		mtx_destroy(&m);
	}
	mtx_init(&m, mtx_plain);
	SHOW(cnd_init(&c));
	SHOW(mtx_lock(&m));
	SHOW(cnd_timedwait(&c, &m, &ts));
	SHOW(cnd_timedwait(&c, &m, &bad_time));
	SHOW(cnd_signal(&c));
	SHOW(cnd_broadcast(&c));
	SHOW(mtx_unlock(&m));
	cnd_destroy(&c);
	mtx_destroy(&m);
}

/* --- cancellation ------------------------------------------------------------------------------------------------------------------------ */

static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t empty;
static pthread_mutex_t guard_mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int arrived;
static void cleanup(void *what)
{
	int owned = guard_mutex.__data.__owner == gettid();
	printf("cleanup of %s: mutex %s\n", (char *)what, owned ? "held" : "not held");
	if (owned)
		pthread_mutex_unlock(&guard_mutex);
}

static void *cancel_me(void *p)
{
	int how = (int)(long)p;
	static char *names[] = {"cond_wait", "cond_timedwait", "cond_clockwait", "sem_wait", "sem_timedwait", "sem_clockwait", "sem_wait with a token"};
	struct timespec ts = in(CLOCK_REALTIME, 60000), mono = in(CLOCK_MONOTONIC, 60000);
	pthread_cleanup_push(cleanup, names[how]);
	if (how < 3)
		pthread_mutex_lock(&guard_mutex);
	if (how == 6) /* pending when it is called: it must not return although it could */
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	arrived = 1;
	switch (how) {
	case 0: for (;;) pthread_cond_wait(&never, &guard_mutex);
	case 1: for (;;) pthread_cond_timedwait(&never, &guard_mutex, &ts);
	case 2: for (;;) pthread_cond_clockwait(&never, &guard_mutex, CLOCK_MONOTONIC, &mono);
	case 3: for (;;) sem_wait(&empty);
	case 4: for (;;) sem_timedwait(&empty, &ts);
	case 5: for (;;) sem_clockwait(&empty, CLOCK_MONOTONIC, &mono);
	case 6:
		while (arrived != 2)
			usleep(1000);
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		sem_wait(&empty);
		printf("sem_wait returned in a cancelled thread\n");
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancellation(void)
{
	sem_init(&empty, 0, 0);
	for (long how = 0; how < 7; how++) {
		pthread_t t;
		void *r;
		arrived = 0;
		if (how == 6)
			sem_post(&empty);
		pthread_create(&t, NULL, cancel_me, (void *)how);
		while (!arrived)
			usleep(1000);
		usleep(20000);
		int cancelled = pthread_cancel(t);
		if (how == 6)
			arrived = 2;
		pthread_join(t, &r);
		printf("%ld: %d %s\n", how, cancelled, r == PTHREAD_CANCELED ? "cancelled" : "ended");
		SHOW(pthread_mutex_trylock(&guard_mutex));
		SHOW(pthread_mutex_unlock(&guard_mutex));
	}
	int v;
	sem_getvalue(&empty, &v);
	printf("token still there: %d\n", v);
	SHOW(pthread_cond_destroy(&never));
}

/* --- fork ------------------------------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t fm = PTHREAD_MUTEX_INITIALIZER, fr = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void before_fork(void) { pthread_mutex_lock(&fm); }
static void after_fork(void) { pthread_mutex_unlock(&fm); }

static void forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
	pthread_mutex_lock(&fr);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		SHOW(pthread_mutex_lock(&fm));
		SHOW(pthread_mutex_unlock(&fm));
		SHOW(pthread_mutex_unlock(&fr)); /* another tid: EPERM */
		pthread_mutex_t *shared = &fm;
		SHOW(pthread_mutex_trylock(shared));
		fflush(stdout);
		_exit(3);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("child: %d\n", WEXITSTATUS(status));
	SHOW(pthread_mutex_unlock(&fr));
	/* between processes */
	struct { pthread_mutex_t m; pthread_cond_t c; sem_t s; int go; } *sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, 1);
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, 1);
	pthread_mutex_init(&sh->m, &ma);
	pthread_cond_init(&sh->c, &ca);
	sem_init(&sh->s, 1, 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		sem_wait(&sh->s);
		pthread_mutex_lock(&sh->m);
		sh->go = 1;
		pthread_cond_broadcast(&sh->c);
		pthread_mutex_unlock(&sh->m);
		_exit(0);
	}
	pthread_mutex_lock(&sh->m);
	sem_post(&sh->s);
	while (!sh->go)
		pthread_cond_wait(&sh->c, &sh->m);
	pthread_mutex_unlock(&sh->m);
	waitpid(pid, &status, 0);
	printf("shared between processes: %d\n", sh->go);
}

/* --- storms: the same mutex by many threads, by all the ways of taking it ----------------------------------------------------------------- */

static pthread_mutex_t sm = PTHREAD_MUTEX_INITIALIZER;
static long counter;
static void *storm(void *p)
{
	struct timespec ts = in(CLOCK_REALTIME, 60000);
	for (int i = 0; i < 20000; i++) {
		switch ((i + (int)(long)p) % 3) {
		case 0: pthread_mutex_lock(&sm); break;
		case 1: while (pthread_mutex_trylock(&sm) != 0) sched_yield(); break;
		case 2: pthread_mutex_timedlock(&sm, &ts); break;
		}
		counter++;
		pthread_mutex_unlock(&sm);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*fn)(void); } parts[] = {{"mutexes", mutexes}, {"robust", robust}, {"ceilings", ceilings}, {"rwlocks", rwlocks},
		{"others", others}, {"conditions", conditions}, {"semaphores", semaphores}, {"c11", c11}, {"cancellation", cancellation}, {"forks", forks}};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (argc < 2 || strcmp(argv[1], parts[i].name) == 0)
			parts[i].fn();
	pthread_t t[4];
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, storm, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("counter %ld\n", counter);
	bytes("after the storm", &sm);
	return 0;
}
