/* One scenario for each argument, whose events the test knows. The addresses of the objects are printed first, by name. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "asleep.h"

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, d = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t l;
static pthread_barrier_t bar;
static pthread_once_t o = PTHREAD_ONCE_INIT;
static sem_t s, never;
static volatile int step;

/* Until another thread sleeps in the kernel: the state in /proc, not time, says so. */
static volatile pid_t other;
static void until_asleep(void)
{
	while (!other || !step || !asleep(other))
		sched_yield();
}
static pthread_t begin(void *(*fn)(void *))
{
	pthread_t t;
	other = step = 0;
	pthread_create(&t, NULL, fn, NULL);
	return t;
}
static void here(void) { other = gettid(); step = 1; }

static void *wants_mutex(void *p) { pthread_mutex_lock(&d); here(); pthread_mutex_lock(&a); pthread_mutex_unlock(&a); pthread_mutex_unlock(&d); return p; }
static void *wants_read(void *p) { here(); pthread_rwlock_rdlock(&rw); pthread_rwlock_unlock(&rw); return p; }
static void *wants_write(void *p) { here(); pthread_rwlock_wrlock(&rw); pthread_rwlock_unlock(&rw); return p; }
static void *wants_spin(void *p) { here(); pthread_spin_lock(&l); pthread_spin_unlock(&l); return p; }
static void *wants_sem(void *p) { here(); sem_wait(&s); sem_post(&s); return p; }
static void *wants_token(void *p) { here(); sem_wait(&never); return p; }
static void *wants_barrier(void *p) { here(); pthread_barrier_wait(&bar); return p; }
static void *wants_cond(void *p)
{
	pthread_mutex_lock(&b);
	pthread_mutex_lock(&a);
	here();
	pthread_cond_wait(&c, &a);
	pthread_mutex_unlock(&a);
	pthread_mutex_unlock(&b);
	return p;
}
static void slow_once(void) { step = 2; while (step != 3) sched_yield(); }
static void *runs_once(void *p) { pthread_once(&o, slow_once); return p; }
static void *wants_once(void *p) { here(); pthread_once(&o, slow_once); return p; }
static void ends_thread(void) { pthread_exit(NULL); }
static void *once_ends(void *p) { pthread_once(&o, ends_thread); return p; }
static void on_signal(int sig) { (void)sig; step = 1; sem_wait(&s); step = 2; }
static sigjmp_buf out;
static void jump(int sig) { (void)sig; siglongjmp(out, 1); }

/* Orders are told where there was another thread. */
static void *nothing(void *p) { return p; }
static void not_alone(void) { pthread_t t = begin(nothing); pthread_join(t, NULL); }

static void *exact_path(void *p) { pthread_mutex_lock(&a); pthread_mutex_lock(&b); pthread_mutex_unlock(&b); pthread_mutex_unlock(&a); return p; }

static void run(const char *what)
{
	pthread_t t;
#define CASE(name) if (strcmp(what, name) == 0)
	CASE("order") {
		for (int i = 0; i < 10; i++) { /* told once */
			pthread_mutex_lock(&a);
			pthread_rwlock_rdlock(&rw);
			pthread_mutex_trylock(&b);
			pthread_mutex_unlock(&a);
			pthread_mutex_unlock(&b);
			pthread_rwlock_unlock(&rw);
		}
		pthread_create(&t, NULL, exact_path, NULL);
		pthread_join(t, NULL);
		exact_path(NULL); /* another set */
		exact_path(NULL);
	} else CASE("order-since") { /* held since there was one thread */
		pthread_mutex_lock(&a);
		not_alone();
		pthread_mutex_lock(&b);
		pthread_mutex_unlock(&b);
		pthread_mutex_unlock(&a);
	} else CASE("renewed") {
		not_alone();
		exact_path(NULL);
		pthread_mutex_destroy(&b);
		pthread_mutex_init(&b, NULL);
		exact_path(NULL); /* a new b */
		pthread_mutex_t *h = malloc(sizeof *h);
		*h = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		pthread_mutex_lock(&a), pthread_mutex_lock(h), pthread_mutex_unlock(h), pthread_mutex_unlock(&a);
		printf("h %p\n", (void *)h);
		free(h);
		pthread_mutex_t *g = malloc(sizeof *g); /* at the same place, if the allocator is as it was */
		*g = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		printf("g %p\n", (void *)g);
		pthread_mutex_lock(&a), pthread_mutex_lock(g), pthread_mutex_unlock(g), pthread_mutex_unlock(&a);
		free(g);
	} else CASE("mutex") {
		pthread_mutex_lock(&a);
		t = begin(wants_mutex);
		until_asleep();
		pthread_mutex_unlock(&a);
		pthread_join(t, NULL);
	} else CASE("read") {
		pthread_rwlock_wrlock(&rw);
		t = begin(wants_read);
		until_asleep();
		pthread_rwlock_unlock(&rw);
		pthread_join(t, NULL);
	} else CASE("write") {
		pthread_rwlock_rdlock(&rw);
		t = begin(wants_write);
		until_asleep();
		pthread_rwlock_unlock(&rw);
		pthread_join(t, NULL);
	} else CASE("spin") {
		pthread_spin_lock(&l);
		t = begin(wants_spin);
		/* It spins: nothing to see from outside but its CPU time; the wait is announced within some microseconds of it. */
		struct timespec used = {0};
		clockid_t clock;
		pthread_getcpuclockid(t, &clock);
		while (!step || (clock_gettime(clock, &used), used.tv_sec == 0 && used.tv_nsec < 50000000))
			sched_yield();
		pthread_spin_unlock(&l);
		pthread_join(t, NULL);
	} else CASE("sem-lock") { /* a semaphore as a lock, around a mutex */
		not_alone();
		for (int i = 0; i < 3; i++)
			sem_wait(&s), pthread_mutex_lock(&a), pthread_mutex_unlock(&a), sem_post(&s);
		sem_wait(&s);
		t = begin(wants_sem);
		until_asleep();
		sem_post(&s);
		pthread_join(t, NULL);
	} else CASE("sem-handover") {
		sem_wait(&s);
		t = begin(wants_sem);
		until_asleep();
		sem_post(&s);
		pthread_join(t, NULL);
		sem_post(&s); /* held by nobody: no lock */
		sem_wait(&s);
		pthread_mutex_lock(&a);
		pthread_mutex_unlock(&a);
	} else CASE("barrier") {
		t = begin(wants_barrier);
		until_asleep();
		pthread_barrier_wait(&bar);
		pthread_join(t, NULL);
	} else CASE("cond") {
		t = begin(wants_cond);
		until_asleep();
		pthread_mutex_lock(&a);
		pthread_cond_signal(&c);
		pthread_mutex_unlock(&a);
		pthread_join(t, NULL);
	} else CASE("cond-cancelled") {
		t = begin(wants_cond);
		until_asleep();
		pthread_cancel(t);
		pthread_join(t, NULL);
	} else CASE("sem-cancelled") {
		t = begin(wants_token);
		until_asleep();
		pthread_cancel(t);
		pthread_join(t, NULL);
	} else CASE("once") {
		t = begin(runs_once);
		while (step != 2)
			sched_yield();
		pthread_t u;
		other = 0;
		pthread_create(&u, NULL, wants_once, NULL);
		until_asleep();
		step = 3;
		pthread_join(t, NULL);
		pthread_join(u, NULL);
	} else CASE("once-exit") {
		pthread_create(&t, NULL, once_ends, NULL);
		pthread_join(t, NULL);
	} else CASE("nested") { /* a handler waits inside a wait */
		struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
		sigaction(SIGUSR1, &sa, NULL);
		sem_wait(&s);
		t = begin(wants_token);
		until_asleep();
		step = 0;
		pthread_kill(t, SIGUSR1);
		until_asleep();
		sem_post(&s);
		while (step != 2)
			sched_yield();
		until_asleep();
		sem_post(&never);
		pthread_join(t, NULL);
	} else CASE("left") { /* a wait left by siglongjmp; then another */
		struct sigaction sa = {.sa_handler = jump};
		sigaction(SIGALRM, &sa, NULL);
		if (sigsetjmp(out, 1) == 0) {
			ualarm(20000, 0);
			sem_wait(&never);
		}
		struct timespec past = {1, 0};
		sem_timedwait(&never, &past);
	}
}

int main(int argc, char **argv)
{
	pthread_barrier_init(&bar, NULL, 2);
	pthread_spin_init(&l, 0);
	sem_init(&s, 0, 1);
	sem_init(&never, 0, 0);
	printf("a %p\nb %p\nd %p\nrw %p\nc %p\nl %p\nbar %p\no %p\ns %p\nnever %p\n", (void *)&a, (void *)&b, (void *)&d, (void *)&rw, (void *)&c,
		(void *)&l, (void *)&bar, (void *)&o, (void *)&s, (void *)&never);
	if (argc > 1)
		run(argv[1]);
	return 0;
}
