// Four threads meet again and again at a barrier of the program's own making, by looking and yielding, and another looks until the end. Behind the 300th time one clears a pointer, and another sleeps and uses it.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 300 };
static atomic_int arrived, sense, stop;
static long sum[THREADS];
static int number = 5, *volatile pointer = &number;

static void meet(int *mine)
{
	*mine = !*mine;
	if (atomic_fetch_add(&arrived, 1) == THREADS - 1) {
		atomic_store(&arrived, 0);
		atomic_store(&sense, *mine);
	}
	while (atomic_load(&sense) != *mine)
		sched_yield();
}

static void *works(void *arg)
{
	long me = (long)arg;
	int mine = 0;
	for (int r = 0; r < 2 * ROUNDS; r++) {
		for (long i = 0; i < 2000 * (me + 1); i++)
			sum[me] += i ^ r;
		meet(&mine);
		if (r == ROUNDS && me == 2)
			pointer = NULL;
		if (r == ROUNDS && me == 3) {
			usleep(2000);
			sum[3] += *pointer;
		}
	}
	return NULL;
}

static void *looks(void *arg)
{
	while (!atomic_load(&stop))
		sched_yield();
	return arg;
}

int main(void)
{
	pthread_t t[THREADS], looker;
	pthread_create(&looker, NULL, looks, NULL);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, works, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	atomic_store(&stop, 1);
	pthread_join(looker, NULL);
	return 0;
}
