// More threads, or objects of synchronisation, than an epoch has room for; and threads that are made when nothing is recorded any more. All wait for each other in each way. Prints sums that are the same in each run.
// swarm threads N: N at once, in turn by a condition, a semaphore, a barrier, mutexes, a rwlock, with timeouts that end. swarm brief N: N one after another, 50 at a time, each of which posts as it ends.
// swarm off N: it shuts itself in first, so that nothing is recorded. swarm objects N: N mutexes and conditions, for each of which somebody waits once.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "swarm.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { ROUNDS = 3, AT_ONCE = 50, STACK = 1 << 16 };
static int threads, whose;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t tokens, none;
static uint64_t in_turn, serial, late, added, looked;

static struct timespec soon(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += 5000000;
	if (ts.tv_nsec >= 1000000000)
		ts.tv_sec++, ts.tv_nsec -= 1000000000;
	return ts;
}

static void *work(void *arg)
{
	int me = (int)(intptr_t)arg;
	for (int r = 0; r < ROUNDS; r++) {
		pthread_mutex_lock(&lock);
		while (whose != me)
			pthread_cond_wait(&turn, &lock);
		in_turn = in_turn * 31 + (uint64_t)me;
		whose = (whose + 1) % threads;
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&lock);
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED);
		MUST(sem_wait(&tokens) == 0);
		pthread_rwlock_rdlock(&rwlock);
		__atomic_fetch_add(&looked, 1, __ATOMIC_RELAXED);
		pthread_rwlock_unlock(&rwlock);
		MUST(sem_post(&tokens) == 0);
		pthread_rwlock_wrlock(&rwlock);
		added += (uint64_t)me;
		pthread_rwlock_unlock(&rwlock);
		struct timespec ts = soon();
		MUST(sem_timedwait(&none, &ts) == -1 && errno == ETIMEDOUT);
		pthread_mutex_lock(&lock);
		while (pthread_cond_timedwait(&never, &lock, &ts) == 0)
			;
		late++;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void all(void)
{
	pthread_t *id = malloc(sizeof *id * (size_t)threads);
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	sem_init(&tokens, 0, 3);
	sem_init(&none, 0, 0);
	for (int i = 1; i < threads; i++)
		MUST(pthread_create(&id[i], &a, work, (void *)(intptr_t)i) == 0);
	work(NULL);
	for (int i = 1; i < threads; i++)
		MUST(pthread_join(id[i], NULL) == 0);
	printf("%lx %lu %lu %lu %lu\n", in_turn, serial, late, added, looked);
	free(id);
}

static void *post(void *arg)
{
	MUST(sem_post(arg) == 0);
	return NULL;
}

static void brief(void)
{
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	for (int i = 0; i < threads; i += AT_ONCE) {
		pthread_t id[AT_ONCE];
		sem_t ended[AT_ONCE];
		for (int k = 0; k < AT_ONCE; k++) {
			sem_init(&ended[k], 0, 0);
			MUST(pthread_create(&id[k], &a, post, &ended[k]) == 0);
		}
		for (int k = 0; k < AT_ONCE; k++) {
			MUST(sem_wait(&ended[k]) == 0);
			MUST(pthread_join(id[k], NULL) == 0);
			added++;
		}
	}
	printf("%lu\n", added);
}

static void sandbox(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){1, &allow}) == 0);
}

static struct each { pthread_mutex_t m; pthread_cond_t c; int said; } *each;
static void *says(void *arg)
{
	for (int i = 0; i < threads; i++) {
		pthread_mutex_lock(&each[i].m);
		each[i].said = 1;
		pthread_cond_signal(&each[i].c);
		pthread_mutex_unlock(&each[i].m);
	}
	return arg;
}

static void objects(void)
{
	pthread_t id;
	each = calloc((size_t)threads, sizeof *each);
	for (int i = 0; i < threads; i++) {
		pthread_mutex_init(&each[i].m, NULL);
		pthread_cond_init(&each[i].c, NULL);
	}
	pthread_create(&id, NULL, says, NULL);
	for (int i = 0; i < threads; i++) {
		pthread_mutex_lock(&each[i].m);
		while (!each[i].said)
			pthread_cond_wait(&each[i].c, &each[i].m);
		added += (uint64_t)i;
		pthread_mutex_unlock(&each[i].m);
		if (i % 1000 == 0)
			nanosleep(&(struct timespec){0, 2000000}, NULL);
	}
	pthread_join(id, NULL);
	printf("%lu\n", added);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	threads = atoi(argv[2]);
	alarm(100);
	if (strcmp(argv[1], "brief") == 0)
		brief();
	else if (strcmp(argv[1], "objects") == 0)
		objects();
	else {
		if (strcmp(argv[1], "off") == 0)
			sandbox();
		all();
	}
	return 0;
}
