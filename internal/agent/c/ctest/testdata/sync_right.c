/* Right uses that look like wrong ones. The agent must not find a single fact in any of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static void *elsewhere(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	void *r;
	pthread_create(&t, NULL, fn, arg);
	pthread_join(t, &r);
	return r;
}
static struct timespec soon(long ms)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += ms * 1000000;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	return ts;
}

/* --- fork: locked by the parent's thread, unlocked and locked again by the child's; its other locks destroyed there --------------------- */
static pthread_mutex_t fm = PTHREAD_MUTEX_INITIALIZER, frec = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, fheld = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t frw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t fc = PTHREAD_COND_INITIALIZER;
static sem_t fgo, fdone;
static void *holder(void *p)
{
	pthread_mutex_lock(&fheld);
	sem_post(&fgo);
	sem_wait(&fdone);
	pthread_mutex_unlock(&fheld);
	return p;
}
static void before(void) { pthread_mutex_lock(&fm); pthread_rwlock_rdlock(&frw); }
static void after(void) { pthread_rwlock_unlock(&frw); pthread_mutex_unlock(&fm); }
static void *in_child(void *p)
{
	pthread_mutex_lock(&fm);
	pthread_mutex_unlock(&fm);
	return p;
}
static void forks(void)
{
	pthread_t t;
	sem_init(&fgo, 0, 0);
	sem_init(&fdone, 0, 0);
	pthread_create(&t, NULL, holder, NULL);
	sem_wait(&fgo);
	pthread_atfork(before, after, after);
	pthread_mutex_t *heap = malloc(sizeof *heap);
	pthread_mutex_init(heap, NULL);
	pthread_mutex_lock(heap);
	pthread_mutex_lock(&frec);
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 3; i++)
			elsewhere(in_child, NULL);
		pthread_mutex_unlock(heap);
		free(heap);
		pthread_mutex_destroy(&fheld); /* EBUSY: by a thread that is not here */
		pthread_mutex_init(&fheld, NULL);
		pthread_mutex_lock(&fheld);
		pthread_mutex_unlock(&fheld);
		pthread_mutex_unlock(&frec); /* EPERM: glibc knows the parent's tid only */
		pid_t inner = fork();
		if (inner == 0) {
			elsewhere(in_child, NULL);
			_exit(4);
		}
		int status;
		waitpid(inner, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	int status;
	waitpid(pid, &status, 0);
	pthread_mutex_unlock(&frec);
	pthread_mutex_unlock(heap);
	free(heap);
	sem_post(&fdone);
	pthread_join(t, NULL);
	printf("forks %d\n", WEXITSTATUS(status));
	(void)fc;
}

/* --- shared between processes: locked here, unlocked by the other's thread of the same number ------------------------------------------------ */
static void shared(void)
{
	struct { pthread_mutex_t m; pthread_rwlock_t rw; pthread_cond_t c; sem_t s; pthread_barrier_t b; pthread_spinlock_t l; int n; } *p =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t ma;
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, 1);
	pthread_rwlockattr_t ra;
	pthread_rwlockattr_init(&ra);
	pthread_rwlockattr_setpshared(&ra, 1);
	pthread_condattr_t ca;
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, 1);
	pthread_barrierattr_t ba;
	pthread_barrierattr_init(&ba);
	pthread_barrierattr_setpshared(&ba, 1);
	pthread_mutex_init(&p->m, &ma);
	pthread_rwlock_init(&p->rw, &ra);
	pthread_cond_init(&p->c, &ca);
	sem_init(&p->s, 1, 1);
	pthread_barrier_init(&p->b, &ba, 2);
	pthread_spin_init(&p->l, PTHREAD_PROCESS_SHARED);
	pid_t pid = fork();
	for (int i = 0; i < 200; i++) {
		pthread_barrier_wait(&p->b);
		pthread_mutex_lock(&p->m);
		p->n++;
		pthread_cond_broadcast(&p->c);
		while (p->n < 2 * i + 2)
			pthread_cond_wait(&p->c, &p->m);
		pthread_mutex_unlock(&p->m);
		pthread_barrier_wait(&p->b);
		pthread_rwlock_wrlock(&p->rw);
		pthread_rwlock_unlock(&p->rw);
		pthread_spin_lock(&p->l);
		pthread_spin_unlock(&p->l);
		if (pid == 0)
			sem_wait(&p->s);
		else
			sem_post(&p->s);
	}
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	printf("shared %d\n", p->n);
	munmap(p, 4096);
}

/* --- hand-over by semaphore, in all directions ------------------------------------------------------------------------------------------------- */
static sem_t ping, pong;
static void *ponger(void *p)
{
	for (int i = 0; i < 1000; i++) {
		sem_wait(&ping);
		sem_post(&pong);
	}
	return p;
}
static void handover(void)
{
	pthread_t t;
	sem_init(&ping, 0, 0);
	sem_init(&pong, 0, 1);
	pthread_create(&t, NULL, ponger, NULL);
	for (int i = 0; i < 1000; i++) {
		sem_wait(&pong);
		sem_post(&ping);
	}
	pthread_join(t, NULL);
	sem_destroy(&ping);
	sem_destroy(&pong);
	printf("handover\n");
}

/* --- conditions: destroyed right after broadcast; another mutex once nobody waits any more ------------------------------------------------------- */
struct latch { pthread_mutex_t m; pthread_cond_t c; int open, inside; };
static void *at_latch(void *p)
{
	struct latch *l = p;
	pthread_mutex_lock(&l->m);
	l->inside++;
	while (!l->open)
		pthread_cond_wait(&l->c, &l->m);
	l->inside--;
	pthread_mutex_unlock(&l->m);
	return NULL;
}
static void latches(void)
{
	for (int round = 0; round < 300; round++) {
		struct latch *l = calloc(1, sizeof *l);
		pthread_t t[3];
		pthread_mutex_init(&l->m, NULL);
		pthread_cond_init(&l->c, NULL);
		for (int i = 0; i < 3; i++)
			pthread_create(&t[i], NULL, at_latch, l);
		for (;;) {
			pthread_mutex_lock(&l->m);
			if (l->inside == 3)
				break;
			pthread_mutex_unlock(&l->m);
			sched_yield();
		}
		l->open = 1;
		if (round & 1)
			pthread_cond_broadcast(&l->c);
		else
			for (int i = 0; i < 3; i++)
				pthread_cond_signal(&l->c);
		pthread_mutex_unlock(&l->m);
		pthread_cond_destroy(&l->c); /* nobody is blocked any more; they may still be on their way out */
		for (int i = 0; i < 3; i++)
			pthread_join(t[i], NULL);
		pthread_mutex_destroy(&l->m);
		free(l);
	}
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	for (int i = 0; i < 100; i++) {
		pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
		struct timespec long_ago = {1, 0};
		pthread_mutex_lock(&m);
		pthread_cond_timedwait(&c, &m, &long_ago);
		pthread_mutex_unlock(&m);
	}
	printf("latches\n");
}

/* Each round the condition goes with another mutex; the last round's waiter has been signalled and may not have left glibc's wait. */
static pthread_cond_t moving = PTHREAD_COND_INITIALIZER;
static struct { pthread_mutex_t m; int state; } rounds[300];
static void *mover(void *p)
{
	(void)p;
	for (int i = 0; i < 300; i++) {
		pthread_mutex_lock(&rounds[i].m);
		rounds[i].state = 1;
		while (rounds[i].state != 2)
			pthread_cond_wait(&moving, &rounds[i].m);
		pthread_mutex_unlock(&rounds[i].m);
	}
	return NULL;
}
static void moves(void)
{
	pthread_t t;
	for (int i = 0; i < 300; i++)
		pthread_mutex_init(&rounds[i].m, NULL);
	pthread_create(&t, NULL, mover, NULL);
	for (int i = 0; i < 300; i++) {
		int waits = 0;
		while (!waits) {
			pthread_mutex_lock(&rounds[i].m);
			if (rounds[i].state == 1) {
				waits = 1;
				rounds[i].state = 2;
				pthread_cond_signal(&moving);
			}
			pthread_mutex_unlock(&rounds[i].m);
			sched_yield();
		}
	}
	pthread_join(t, NULL);
	printf("moves\n");
}

/* --- memory that is used again ------------------------------------------------------------------------------------------------------------------------ */
static void *on_stack(void *p)
{
	pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b;
	pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
	pthread_mutex_init(&b, NULL);
	pthread_mutex_lock(&a);
	pthread_mutex_lock(&b);
	pthread_rwlock_rdlock(&rw);
	pthread_rwlock_unlock(&rw);
	pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	if (p)
		pthread_mutex_destroy(&b), pthread_rwlock_destroy(&rw);
	return NULL;
}
static void *jump_out(void *p)
{
	pthread_mutex_t a; /* left locked in a frame that is no more, then made anew at the same place */
	(void)p;
	for (int i = 0; i < 3; i++) {
		pthread_mutex_init(&a, NULL);
		pthread_mutex_lock(&a);
	}
	return NULL;
}
static void memory(void)
{
	for (long i = 0; i < 50; i++)
		elsewhere(on_stack, (void *)(i & 1));
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_t *m = malloc(sizeof *m);
		memset(m, 0, sizeof *m);
		if (i % 3 == 0)
			pthread_mutex_init(m, NULL);
		pthread_mutex_lock(m);
		pthread_mutex_unlock(m);
		if (i % 2)
			pthread_mutex_destroy(m);
		free(m);
		pthread_rwlock_t *rw = malloc(sizeof *rw);
		pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
		*rw = fresh;
		pthread_rwlock_wrlock(rw);
		pthread_rwlock_unlock(rw);
		if (i % 2)
			pthread_rwlock_destroy(rw);
		free(rw);
	}
	static pthread_mutex_t again = PTHREAD_MUTEX_INITIALIZER;
	static pthread_rwlock_t rwagain = PTHREAD_RWLOCK_INITIALIZER;
	static pthread_cond_t cagain = PTHREAD_COND_INITIALIZER;
	for (int i = 0; i < 3; i++) {
		pthread_mutex_lock(&again);
		pthread_cond_signal(&cagain);
		pthread_mutex_unlock(&again);
		pthread_rwlock_rdlock(&rwagain);
		pthread_rwlock_unlock(&rwagain);
		pthread_mutex_destroy(&again);
		pthread_rwlock_destroy(&rwagain);
		pthread_cond_destroy(&cagain);
		again = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
		rwagain = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
		cagain = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	}
	printf("memory\n");
}

/* --- errors that the program asked for ------------------------------------------------------------------------------------------------------------------- */
static void *asks(void *p)
{
	int r = pthread_mutex_unlock(p);
	return (void *)(long)r;
}
static void asked(void)
{
	pthread_mutex_t m = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	pthread_mutexattr_t a;
	pthread_mutex_lock(&m);
	int r = pthread_mutex_lock(&m), u = (int)(long)elsewhere(asks, &m);
	pthread_mutex_unlock(&m);
	int v = pthread_mutex_unlock(&m);
	printf("asked %d %d %d\n", r == EDEADLK, u == EPERM, v == EPERM);
	/* a robust mutex whose owner ends, found and repaired */
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_t rob;
	pthread_mutex_init(&rob, &a);
	elsewhere((void *(*)(void *))(void (*)(void))pthread_mutex_lock, &rob);
	r = pthread_mutex_lock(&rob);
	pthread_mutex_consistent(&rob);
	pthread_mutex_unlock(&rob);
	printf("robust %d %d\n", r == EOWNERDEAD, pthread_mutex_lock(&rob));
	pthread_mutex_unlock(&rob);
	/* own mutex taken by a timed lock: it gives up by itself */
	pthread_mutex_t n = PTHREAD_MUTEX_INITIALIZER;
	struct timespec ts = soon(20);
	pthread_mutex_lock(&n);
	r = pthread_mutex_timedlock(&n, &ts);
	printf("timed %d try %d\n", r == ETIMEDOUT, pthread_mutex_trylock(&n) == EBUSY);
	pthread_mutex_unlock(&n);
}

/* --- many, nested, out of order, recursive ---------------------------------------------------------------------------------------------------------------- */
static void *nest(void *p)
{
	enum { N = 700 };
	pthread_mutex_t *m = calloc(N, sizeof *m);
	pthread_mutex_t rec = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
	for (int i = 0; i < N; i++)
		pthread_mutex_lock(&m[i]);
	for (int i = 0; i < 100; i++)
		pthread_mutex_lock(&rec), pthread_rwlock_rdlock(&rw);
	for (int i = 0; i < N; i += 2)
		pthread_mutex_unlock(&m[i]);
	for (int i = 0; i < 100; i++)
		pthread_mutex_unlock(&rec), pthread_rwlock_unlock(&rw);
	for (int i = N - 1; i > 0; i -= 2)
		pthread_mutex_unlock(&m[i]);
	if (pthread_rwlock_trywrlock(&rw) == 0)
		pthread_rwlock_unlock(&rw);
	free(m);
	return p;
}

/* --- signal handlers that lock while a lock is being taken -------------------------------------------------------------------------------------------------- */
static pthread_spinlock_t hl;
static volatile int stop;
static pthread_mutex_t hm[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void handler(int sig)
{
	(void)sig;
	int e = errno;
	if (pthread_spin_trylock(&hl) == 0)
		pthread_spin_unlock(&hl);
	errno = e;
}
static void *busy(void *p)
{
	while (!stop) {
		pthread_mutex_lock(&hm[0]);
		pthread_mutex_lock(&hm[1]);
		pthread_mutex_lock(&hm[2]);
		pthread_mutex_unlock(&hm[1]);
		pthread_mutex_unlock(&hm[2]);
		pthread_mutex_unlock(&hm[0]);
	}
	return p;
}
static void handlers(void)
{
	struct sigaction sa = {.sa_handler = handler};
	pthread_t t;
	sigaction(SIGUSR2, &sa, NULL);
	pthread_spin_init(&hl, 0);
	pthread_create(&t, NULL, busy, NULL);
	for (int i = 0; i < 20000; i++)
		pthread_kill(t, SIGUSR2);
	stop = 1;
	pthread_join(t, NULL);
	printf("handlers\n");
}

/* --- a wait that is left by siglongjmp ----------------------------------------------------------------------------------------------------------------------------- */
static sigjmp_buf out;
static void leave(int sig) { (void)sig; siglongjmp(out, 1); }
static void jumps(void)
{
	sem_t never;
	sem_init(&never, 0, 0);
	struct sigaction sa = {.sa_handler = leave};
	sigaction(SIGALRM, &sa, NULL);
	for (int i = 0; i < 3; i++)
		if (sigsetjmp(out, 1) == 0) {
			ualarm(20000, 0);
			sem_wait(&never);
		}
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	elsewhere(jump_out, NULL);
	printf("jumps\n");
}

int main(void)
{
	forks();
	shared();
	handover();
	latches();
	moves();
	memory();
	asked();
	nest(NULL);
	elsewhere(nest, NULL);
	handlers();
	jumps();
	pthread_mutex_lock(&fm); /* the process ends with it */
	return 0;
}
