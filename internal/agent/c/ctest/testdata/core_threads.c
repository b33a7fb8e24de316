// All ways for a thread to begin and end, and all joins; prints what each returned.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t go;
static pthread_key_t key, late;
static int rounds, late_rounds;

static void *returns(void *p) { return p; }
static void *exits(void *p) { pthread_exit(p); }
static void *waits(void *p)
{
	for (;;)
		pause();
	return p;
}
static void *barrier(void *p)
{
	pthread_barrier_wait(&go);
	return p;
}
static void destructor(void *p)
{
	rounds++;
	if (rounds < 3)
		pthread_setspecific(key, p);
}
static void late_destructor(void *p)
{
	late_rounds++;
	pthread_setspecific(late, p);
}
static void *keyed(void *p)
{
	pthread_setspecific(key, p);
	pthread_setspecific(late, p);
	return p;
}
static void *self_detach(void *p)
{
	printf("self-detach %d\n", pthread_detach(pthread_self()));
	pthread_barrier_wait(&go);
	return p;
}
static int c11(void *p) { return (int)(long)p; }
static int c11_exits(void *p) { thrd_exit((int)(long)p); }

int main(void)
{
	pthread_t t;
	thrd_t c;
	void *v = NULL;
	int i = 0, r;
	struct timespec past = {0}, future;
	pthread_attr_t a;
	clock_gettime(CLOCK_REALTIME, &future);
	future.tv_sec += 100;
	pthread_barrier_init(&go, NULL, 2);

	pthread_create(&t, NULL, returns, (void *)1);
	r = pthread_join(t, &v);
	printf("return %d %p\n", r, v);
	pthread_create(&t, NULL, exits, (void *)2);
	r = pthread_join(t, &v);
	printf("exit %d %p\n", r, v);
	pthread_create(&t, NULL, waits, NULL);
	printf("try %d\n", pthread_tryjoin_np(t, &v));
	printf("timed %d\n", pthread_timedjoin_np(t, &v, &past));
	printf("clock %d\n", pthread_clockjoin_np(t, &v, CLOCK_MONOTONIC, &past));
	printf("badclock %d\n", pthread_clockjoin_np(t, &v, CLOCK_PROCESS_CPUTIME_ID, &past));
	printf("name %d\n", pthread_setname_np(t, "waiter"));
	printf("longname %d\n", pthread_setname_np(t, "a name that is too long"));
	printf("cancel %d\n", pthread_cancel(t));
	r = pthread_timedjoin_np(t, &v, &future);
	printf("cancelled %d %d\n", r, v == PTHREAD_CANCELED);
	pthread_create(&t, NULL, barrier, (void *)3);
	pthread_barrier_wait(&go);
	while ((r = pthread_tryjoin_np(t, &v)) == EBUSY)
		sched_yield();
	printf("tried %d %p\n", r, v);
	pthread_create(&t, NULL, self_detach, NULL);
	pthread_barrier_wait(&go);
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 16384);
	r = pthread_create(&t, &a, barrier, NULL);
	pthread_barrier_wait(&go);
	printf("detached %d\n", r);
	static char stack[1 << 16] __attribute__((aligned(4096)));
	pthread_attr_t b;
	pthread_attr_init(&b);
	pthread_attr_setstack(&b, stack, sizeof stack);
	r = pthread_create(&t, &b, returns, (void *)5);
	printf("ownstack %d", r);
	r = pthread_join(t, &v);
	printf(" %d %p\n", r, v);
	printf("self %d\n", pthread_join(pthread_self(), &v));
	pthread_key_create(&key, destructor);
	pthread_key_create(&late, late_destructor);
	printf("keys %u %u\n", key, late);
	pthread_create(&t, NULL, keyed, (void *)6);
	pthread_join(t, NULL);
	printf("destructors %d %d\n", rounds, late_rounds);
	r = thrd_create(&c, c11, (void *)7L);
	printf("c11 %d", r);
	r = thrd_join(c, &i);
	printf(" %d %d\n", r, i);
	thrd_create(&c, c11_exits, (void *)-8L);
	r = thrd_join(c, &i);
	printf("c11 exit %d %d\n", r, i);
	thrd_create(&c, c11, NULL);
	printf("c11 detach %d\n", thrd_detach(c));
	fflush(stdout);
	pthread_attr_t bad;
	pthread_attr_init(&bad);
	pthread_attr_setstacksize(&bad, 1ul << 46);
	printf("toolarge %d\n", pthread_create(&t, &bad, returns, NULL));
	fflush(stdout);
	pthread_exit(NULL);
}
