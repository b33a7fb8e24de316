// Variables of functions that are made when they are first met. Who comes by the guard follows the initialiser; who has the object by another way does not, nor does what is done behind the guard.
#include "../run.h"

// By the guard, at once, and late.
long made, made_beside, behind_guard;
struct makes {
	makes()
	{
		made = 1;
		made_beside = 1; // race-mov made_beside
	}
};
__attribute__((noinline)) static void meets() { static makes m; }
static void *meets_first(void *p)
{
	meets();
	use(made);
	unseen_done();
	behind_guard = 1; // race-mov behind_guard
	return p;
}
static void *meets_later(void *p)
{
	unseen_wait();
	use(made_beside); // race-mov made_beside
	meets();
	use(made);
	behind_guard = 2; // race-mov behind_guard
	return p;
}

// An initialiser that throws, and the one that comes after it: what the first did comes before the second's.
long tried, tried_beside;
struct throws {
	throws()
	{
		tried++;
		if (tried == 1)
			throw 1;
	}
};
__attribute__((noinline)) static void tries()
{
	try {
		static throws t;
	} catch (int) {
	}
}
static void *fails(void *p)
{
	tries();
	tried_beside++; // race tried_beside
	unseen_done();
	return p;
}
static void *succeeds(void *p)
{
	unseen_wait();
	tries();
	tried_beside++; // race tried_beside
	use(tried);
	return p;
}

// The object changes behind the guard, which all have passed.
__attribute__((noinline)) static long &counted()
{
	static long c = getpid();
	return c;
}
static void *counts(void *p)
{
	counted()++; // race counted
	return p;
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) static long &locked()
{
	static long c = getpid();
	return c;
}
static void *counts_locked(void *p)
{
	pthread_mutex_lock(&mutex);
	locked()++;
	pthread_mutex_unlock(&mutex);
	return p;
}

// A guard of a thread's own orders nothing.
long each_beside;
__attribute__((noinline)) static long &each()
{
	static thread_local long c = getpid();
	return c;
}
static void *has_its_own(void *p)
{
	each()++;
	each_beside++; // race each_beside
	return p;
}

int main()
{
	unseen(meets_first, meets_later);
	unseen(fails, succeeds);
	both(counts, counts);
	both(counts_locked, counts_locked);
	both(has_its_own, has_its_own);
	return 0;
}
