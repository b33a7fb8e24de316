/* One wrong use for each argument; the agent must say exactly the fact that the test names. Each runs to its end natively too. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "asleep.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, m2 = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t sem, go, done;

static struct timespec soon(long ms)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += ms * 1000000;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	return ts;
}

/* Runs fn in a thread up to where it posts `go`, and on when `done` is posted. */
static pthread_t beside(void *(*fn)(void *))
{
	pthread_t t;
	pthread_create(&t, NULL, fn, NULL);
	sem_wait(&go);
	return t;
}
static void finish(pthread_t t)
{
	sem_post(&done);
	pthread_join(t, NULL);
}

static void *hold_mutex(void *p)
{
	pthread_mutex_lock(&m);
	sem_post(&go);
	sem_wait(&done);
	if (m.__data.__owner == gettid())
		pthread_mutex_unlock(&m);
	return p;
}
static void *hold_read(void *p)
{
	pthread_rwlock_rdlock(&rw);
	sem_post(&go);
	sem_wait(&done);
	if (rw.__data.__readers >> 3)
		pthread_rwlock_unlock(&rw);
	return p;
}
static void *hold_write(void *p)
{
	pthread_rwlock_wrlock(&rw);
	sem_post(&go);
	sem_wait(&done);
	if ((pid_t)rw.__data.__cur_writer == gettid())
		pthread_rwlock_unlock(&rw);
	return p;
}
static void *hold_spin(void *p)
{
	pthread_spin_lock(&spin);
	sem_post(&go);
	sem_wait(&done);
	pthread_spin_unlock(&spin);
	return p;
}
static void *wait_cond(void *p)
{
	struct timespec ts = soon(300);
	pthread_mutex_lock(&m);
	sem_post(&go);
	pthread_cond_timedwait(&c, &m, &ts);
	pthread_mutex_unlock(&m);
	return p;
}
static pthread_mutex_t *block; /* in the heap */
static void *hold_block(void *p)
{
	pthread_mutex_lock(block);
	sem_post(&go);
	sem_wait(&done);
	return p;
}
static void *leave_locked(void *p) { pthread_mutex_lock(&m); return p; }
static void *leave_read(void *p) { pthread_rwlock_rdlock(&rw); return p; }
static void *die_robust(void *p) { pthread_mutex_lock(p); return p; }
static void *relock(void *p)
{
	pthread_mutex_lock(&m);
	sem_post(&go);
	pthread_mutex_lock(&m);
	return p;
}
static void *respin(void *p)
{
	pthread_spin_lock(&spin);
	sem_post(&go);
	pthread_spin_lock(&spin);
	return p;
}
static void *upgrade(void *p)
{
	pthread_rwlock_rdlock(&rw);
	sem_post(&go);
	pthread_rwlock_wrlock(&rw);
	return p;
}
static void *at_barrier(void *p)
{
	sem_post(&go);
	pthread_barrier_wait(&barrier);
	return p;
}
static void *at_sem(void *p)
{
	struct timespec ts = soon(400);
	sem_post(&go);
	sem_timedwait(&sem, &ts);
	return p;
}
static void *destroy_barrier(void *p) { pthread_barrier_destroy(&barrier); return p; }

/* Whether all other threads sleep in the kernel. */
static bool others_sleep(void)
{
	DIR *d = opendir("/proc/self/task");
	bool sleep = d != NULL;
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.' && atoi(e->d_name) != getpid())
			sleep = sleep && asleep(atoi(e->d_name));
	if (d)
		closedir(d);
	return sleep;
}

/* A busy machine may give a thread no time for long; one that sleeps whenever we look is where it wants to be. */
static void wait_until_blocked(void)
{
	for (int seen = 0; seen < 20; usleep(1000))
		seen = others_sleep() ? seen + 1 : 0;
}

static void wait_until_spinning(pthread_t t)
{
	struct timespec used = {0};
	clockid_t clock;
	pthread_getcpuclockid(t, &clock);
	for (clock_gettime(clock, &used); used.tv_sec == 0 && used.tv_nsec < 50000000; clock_gettime(clock, &used))
		usleep(1000);
}

static int run(const char *what)
{
#define CASE(name) if (strcmp(what, name) == 0)
	pthread_mutexattr_t recursive, robust;
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
	struct timespec ts = soon(50);
	CASE("unlock-not-owner mutex") {
		pthread_t t = beside(hold_mutex);
		pthread_mutex_unlock(&m);
		finish(t);
	} else CASE("unlock-not-owner recursive") {
		pthread_mutex_init(&m, &recursive);
		pthread_t t = beside(hold_mutex);
		if (pthread_mutex_unlock(&m) != EPERM)
			return 1;
		finish(t);
	} else CASE("unlock-not-owner spin") {
		pthread_t t = beside(hold_spin);
		pthread_spin_unlock(&spin);
		finish(t);
	} else CASE("unlock-not-locked mutex") {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		pthread_mutex_unlock(&m);
	} else CASE("unlock-not-locked c11") {
		mtx_t x;
		mtx_init(&x, mtx_plain);
		mtx_unlock(&x);
	} else CASE("unlock-not-locked rwlock") {
		pthread_rwlock_rdlock(&rw);
		pthread_rwlock_unlock(&rw);
		pthread_rwlock_t x = rw; /* the count of readers goes below zero; not in a lock that is used again */
		pthread_rwlock_unlock(&x);
	} else CASE("unlock-not-locked spin") {
		pthread_spin_unlock(&spin);
	} else CASE("unlock-read-write read") {
		pthread_t t = beside(hold_read);
		pthread_rwlock_unlock(&rw);
		finish(t);
	} else CASE("unlock-read-write write") {
		pthread_t t = beside(hold_write);
		pthread_rwlock_t x = rw;
		finish(t);
		(void)x;
		t = beside(hold_write);
		/* Native: takes a reader away that is not there. Only the bytes of the lock suffer, and they are restored. */
		pthread_rwlock_t keep = rw;
		pthread_rwlock_unlock(&rw);
		rw = keep;
		finish(t);
	} else CASE("relock mutex") {
		beside(relock);
		wait_until_blocked();
	} else CASE("relock spin") {
		wait_until_spinning(beside(respin));
		_exit(0);
	} else CASE("relock read-write") {
		beside(upgrade);
		wait_until_blocked();
	} else CASE("relock write-write") {
		pthread_rwlock_wrlock(&rw);
		if (pthread_rwlock_wrlock(&rw) != EDEADLK)
			return 1;
		pthread_rwlock_unlock(&rw);
	} else CASE("destroy-locked mutex") {
		pthread_mutex_lock(&m);
		if (pthread_mutex_destroy(&m) != EBUSY)
			return 1;
		pthread_mutex_unlock(&m);
	} else CASE("destroy-locked other") {
		pthread_t t = beside(hold_mutex);
		pthread_mutex_destroy(&m);
		finish(t);
	} else CASE("destroy-locked rwlock") {
		pthread_t t = beside(hold_read);
		pthread_rwlock_t keep = rw;
		pthread_rwlock_destroy(&rw);
		rw = keep;
		finish(t);
	} else CASE("destroy-locked spin") {
		pthread_t t = beside(hold_spin);
		pthread_spin_destroy(&spin);
		finish(t);
	} else CASE("destroy-waited cond") {
		pthread_t t = beside(wait_cond);
		pthread_mutex_lock(&m); /* until it waits */
		pthread_mutex_unlock(&m);
		pthread_cond_destroy(&c); /* glibc waits for it to leave */
		pthread_join(t, NULL);
	} else CASE("destroy-waited mutex") {
		pthread_t t = beside(wait_cond);
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		pthread_mutex_destroy(&m);
		pthread_join(t, NULL);
	} else CASE("destroy-waited sem") {
		sem_init(&sem, 0, 0);
		pthread_t t = beside(at_sem);
		wait_until_blocked();
		sem_destroy(&sem);
		pthread_join(t, NULL);
	} else CASE("use-after-destroy mutex") {
		pthread_mutex_destroy(&m);
		if (pthread_mutex_lock(&m) != EINVAL)
			return 1;
	} else CASE("use-after-destroy c11") {
		mtx_t x;
		mtx_init(&x, mtx_plain);
		mtx_destroy(&x);
		if (mtx_lock(&x) != thrd_error)
			return 1;
	} else CASE("use-after-destroy rwlock") {
		pthread_rwlock_destroy(&rw);
		pthread_rwlock_rdlock(&rw);
		_exit(0);
	} else CASE("use-after-destroy cond") {
		pthread_cond_destroy(&c);
		pthread_cond_signal(&c);
	} else CASE("use-after-destroy sem") {
		sem_init(&sem, 0, 3);
		sem_destroy(&sem);
		sem_trywait(&sem);
	} else CASE("use-after-destroy barrier") {
		pthread_barrier_init(&barrier, NULL, 1);
		pthread_barrier_destroy(&barrier);
		pthread_barrier_t keep = barrier;
		pthread_barrier_wait(&barrier);
		barrier = keep;
	} else CASE("use-before-init mutex") {
		pthread_mutex_t x;
		memset(&x, 0xa5, sizeof x);
		if (pthread_mutex_lock(&x) != EINVAL)
			return 1;
	} else CASE("cond-two-mutexes") {
		pthread_t t = beside(wait_cond);
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		pthread_mutex_lock(&m2);
		pthread_cond_timedwait(&c, &m2, &ts);
		pthread_mutex_unlock(&m2);
		pthread_join(t, NULL);
	} else CASE("cond-wait-unlocked free") {
		pthread_cond_timedwait(&c, &m, &ts);
		_exit(0);
	} else CASE("cond-wait-unlocked other") {
		pthread_t t = beside(hold_mutex);
		struct timespec long_ago = {1, 0};
		pthread_cond_timedwait(&c, &m, &long_ago);
		pthread_mutex_unlock(&m);
		finish(t);
	} else CASE("barrier-bad-count") {
		if (pthread_barrier_init(&barrier, NULL, 0) != EINVAL)
			return 1;
	} else CASE("barrier-destroy-in-use") {
		pthread_barrier_init(&barrier, NULL, 2);
		beside(at_barrier);
		wait_until_blocked();
		pthread_t t; /* it hangs */
		pthread_create(&t, NULL, destroy_barrier, NULL);
		wait_until_blocked();
		_exit(0);
	} else CASE("exit-holding-lock mutex") {
		pthread_t t;
		pthread_create(&t, NULL, leave_locked, NULL);
		pthread_join(t, NULL);
	} else CASE("exit-holding-lock rwlock") {
		pthread_t t;
		pthread_create(&t, NULL, leave_read, NULL);
		pthread_join(t, NULL);
	} else CASE("sem-bad-count init") {
		sem_init(&sem, 0, -1);
	} else CASE("sem-bad-count post") {
		sem_init(&sem, 0, 0x7fffffff);
		sem_post(&sem);
	} else CASE("free-locked") {
		block = malloc(sizeof *block);
		pthread_mutex_init(block, NULL);
		pthread_mutex_lock(block);
		free(block);
	} else CASE("free-locked other") {
		block = malloc(sizeof *block);
		pthread_mutex_init(block, NULL);
		pthread_t t = beside(hold_block);
		free(block);
		finish(t);
	} else CASE("reinit-locked mutex") {
		pthread_mutex_lock(&m);
		pthread_mutex_init(&m, NULL);
	} else CASE("reinit-locked rwlock") {
		pthread_rwlock_wrlock(&rw);
		pthread_rwlock_init(&rw, NULL);
	} else CASE("owner-died") {
		pthread_mutex_init(&m, &robust);
		pthread_t t;
		pthread_create(&t, NULL, die_robust, &m);
		pthread_join(t, NULL);
		if (pthread_mutex_lock(&m) != EOWNERDEAD)
			return 1;
		pthread_mutex_unlock(&m);
	} else CASE("recursion-overflow") {
		pthread_mutex_init(&m, &recursive);
		pthread_mutex_lock(&m);
		m.__data.__count = ~0u;
		if (pthread_mutex_lock(&m) != EAGAIN)
			return 1;
	} else {
		return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	pthread_spin_init(&spin, 0);
	int r = argc > 1 ? run(argv[1]) : 2;
	printf("%d\n", r);
	fflush(stdout);
	_exit(r);
}
