// What runs at the end of a thread: C++ thread_local destructors, key destructors in all rounds, cleanup handlers, by return, pthread_exit
// and cancellation. Each takes a lock; the thread's exit must be the last event.
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t m[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void use(int i)
{
	pthread_mutex_lock(&m[i]);
	pthread_mutex_unlock(&m[i]);
}
struct Local {
	~Local()
	{
		use(1);
		puts("thread_local");
	}
	int n = 0;
};
static thread_local Local local;
static pthread_key_t key[40];
static void destructor(void *p)
{
	long n = reinterpret_cast<long>(p);
	use(2);
	printf("key %ld\n", n);
	if (n < 3)
		pthread_setspecific(key[39], reinterpret_cast<void *>(n + 1));
}
static void cleanup(void *)
{
	use(3);
	puts("cleanup");
}
static void *run(void *p)
{
	long how = reinterpret_cast<long>(p);
	local.n++;
	pthread_setspecific(key[39], reinterpret_cast<void *>(1L));
	pthread_cleanup_push(cleanup, nullptr);
	use(0);
	if (how == 1)
		pthread_exit(p);
	if (how == 2)
		for (;;)
			pause();
	pthread_cleanup_pop(1);
	return p;
}
int main()
{
	for (auto &k : key)
		pthread_key_create(&k, destructor);
	for (long how = 0; how < 3; how++) {
		pthread_t t;
		void *v;
		pthread_create(&t, nullptr, run, reinterpret_cast<void *>(how));
		if (how == 2)
			pthread_cancel(t);
		pthread_join(t, &v);
		printf("ended %ld\n", reinterpret_cast<long>(v));
	}
	return 0;
}
