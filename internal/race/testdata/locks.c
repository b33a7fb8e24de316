// Locks of all kinds, each as it orders and as it does not. A line that ends with `race NAME` is one of the two of the race of that name; `race-mov` is
// one that could be of C11 atomics. Nothing else may be reported.
#include "run.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int a, b, c, d, e, f, g, h, i, j, k, l, ready;

static void *mutexes(void *arg)
{
	pthread_mutex_lock(&mutex);
	a++;
	pthread_mutex_unlock(&mutex);
	while (pthread_mutex_trylock(&mutex))
		;
	a++;
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *mutex_here(void *arg)
{
	pthread_mutex_lock(&mutex);
	b++; // race two_mutexes
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *mutex_there(void *arg)
{
	pthread_mutex_lock(&other);
	b++; // race two_mutexes
	pthread_mutex_unlock(&other);
	return arg;
}

static void *nested(void *arg)
{
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&recursive);
	c++;
	pthread_mutex_unlock(&recursive);
	c++;
	pthread_mutex_unlock(&recursive);
	return arg;
}

static void *spinning(void *arg)
{
	pthread_spin_lock(&spin);
	d++;
	pthread_spin_unlock(&spin);
	return arg;
}

static void *writer(void *arg)
{
	pthread_rwlock_wrlock(&rwlock);
	e++;
	pthread_rwlock_unlock(&rwlock);
	return arg;
}

static void *reader(void *arg)
{
	pthread_rwlock_rdlock(&rwlock);
	use(e);
	pthread_rwlock_unlock(&rwlock);
	return arg;
}

static void *writing_reader(void *arg)
{
	pthread_rwlock_rdlock(&rwlock);
	f++; // race write_under_read_lock
	pthread_rwlock_unlock(&rwlock);
	return arg;
}

static void *waiter(void *arg)
{
	pthread_mutex_lock(&mutex);
	while (!ready)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	g++;
	return arg;
}

static void *waker(void *arg)
{
	g++;
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *locks(void *arg)
{
	pthread_mutex_lock(&mutex);
	h++; // race one_side_locked
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *does_not(void *arg)
{
	h++; // race one_side_locked
	return arg;
}

static void *after(void *arg)
{
	pthread_spin_lock(&spin);
	pthread_spin_unlock(&spin);
	i++; // race after_unlock
	return arg;
}

static void *fails_to_lock(void *arg)
{
	pthread_mutex_trylock(&other);
	j++; // race trylock_failed
	return arg;
}

static void *ignores(void *arg)
{
	pthread_mutex_trylock(&other);
	j++; // race trylock_failed
	return arg;
}

static void *timed(void *arg)
{
	struct timespec end = { 1l << 40, 0 };
	pthread_mutex_timedlock(&mutex, &end);
	k++;
	pthread_mutex_unlock(&mutex);
	pthread_rwlock_timedwrlock(&rwlock, &end);
	l++;
	pthread_rwlock_unlock(&rwlock);
	return arg;
}

int main(void)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive, &attr);
	pthread_spin_init(&spin, 0);
	both(mutexes, mutexes);
	both(mutex_here, mutex_there);
	both(nested, nested);
	both(spinning, spinning);
	both(writer, reader);
	both(writer, writer);
	both(reader, writer);
	both(writing_reader, writing_reader);
	both(waiter, waker);
	both(locks, does_not);
	both(after, after);
	pthread_mutex_lock(&other);
	both(fails_to_lock, ignores);
	pthread_mutex_unlock(&other);
	both(timed, timed);
	return 0;
}
