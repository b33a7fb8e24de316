// What orders threads besides locks: creation, end, join, cancellation, once, keys, exit handlers, signals.
#include "run.h"
#include <semaphore.h>
#include <signal.h>

int a, b, c, d, e, f, g, h, k, m, n, o, p;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t sem, two;
static pthread_t target;
static pthread_barrier_t inside;

static void *child(void *arg)
{
	a++;
	b++; // race before_join
	return arg;
}

static void initialise(void) { c++; }

static void *inits(void *arg)
{
	pthread_once(&once, initialise);
	use(c);
	return arg;
}

static void destroy(void *v)
{
	use(v);
	d++;
}

static void *with_key(void *arg)
{
	pthread_setspecific(key, &key);
	return arg;
}

static void *posts(void *arg)
{
	e++;
	sem_post(&sem);
	e++; // race after_post
	return arg;
}

static void *waits(void *arg)
{
	sem_wait(&sem);
	e++; // race after_post
	return arg;
}

static void *enters(void *arg) // a semaphore of two lets both in
{
	sem_wait(&two);
	pthread_barrier_wait(&inside);
	f++; // race semaphore_of_two
	sem_post(&two);
	return arg;
}

static volatile sig_atomic_t came;

static void on_usr1(int sig)
{
	use(sig);
	g++;
	came = 1;
}

static void *sleeps(void *arg)
{
	sem_post(&sem);
	while (!came)
		sched_yield();
	return arg;
}

static void *signals(void *arg)
{
	sem_wait(&sem);
	g++;
	pthread_kill(target, SIGUSR1);
	return arg;
}

static void clean(void *arg)
{
	use(arg);
	h++;
}

static void *is_cancelled(void *arg)
{
	pthread_cleanup_push(clean, 0);
	sem_post(&sem);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return arg;
}

static void *sigwaits(void *arg)
{
	sigset_t set;
	int sig;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigwait(&set, &sig);
	k++;
	return arg;
}

static void at_end(void) { m++; }

static void *detached(void *arg)
{
	n++; // race detached
	sem_post(&sem);
	return arg;
}

static void *exits(void *arg)
{
	use(arg);
	o++;
	pthread_exit(0);
}

static void *stack_of_another(void *arg) { ++*(int *)arg; /* race stack */ return arg; }

int main(void)
{
	pthread_t t, s;
	pthread_attr_t attr;
	sem_init(&sem, 0, 0);
	sem_init(&two, 0, 2);
	pthread_barrier_init(&inside, 0, 2);

	a++;
	pthread_create(&t, 0, child, 0);
	b++; // race before_join
	pthread_join(t, 0);
	a++;
	b++;

	both(inits, inits);

	d++;
	pthread_key_create(&key, destroy);
	pthread_create(&t, 0, with_key, 0);
	pthread_join(t, 0);
	d++;
	pthread_key_delete(key);

	both(posts, waits);
	both(enters, enters);

	signal(SIGUSR1, on_usr1);
	pthread_create(&target, 0, sleeps, 0);
	pthread_create(&t, 0, signals, 0);
	pthread_join(t, 0);
	pthread_join(target, 0);
	g++;

	pthread_create(&t, 0, is_cancelled, 0);
	sem_wait(&sem);
	h++;
	pthread_cancel(t);
	pthread_join(t, 0);
	h++;

	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	pthread_create(&t, 0, sigwaits, 0);
	k++;
	pthread_kill(t, SIGUSR2);
	pthread_join(t, 0);

	m++;
	atexit(at_end);

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_create(&t, &attr, detached, 0);
	n++; // race detached
	sem_wait(&sem);

	pthread_create(&t, 0, exits, 0);
	pthread_join(t, 0);
	o++;

	int local = 0;
	pthread_create(&t, 0, stack_of_another, &local);
	pthread_create(&s, 0, stack_of_another, &local);
	pthread_join(t, 0);
	pthread_join(s, 0);
	return local == 0;
}
