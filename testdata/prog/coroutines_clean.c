// Coroutines by swapcontext on stacks of their own, which take and release locks, also one in another than the other: one thread.
// ripstop: verdict none
#include <pthread.h>
#include <stdio.h>
#include <ucontext.h>

enum { COROUTINES = 8, ROUNDS = 200, STACK = 64 << 10 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static ucontext_t scheduler, coroutine[COROUTINES];
static char stack[COROUTINES][STACK];
static int sum, held;

static void work(int me)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (!held) {
			pthread_mutex_lock(&lock);
			held = 1;
		} else {
			pthread_mutex_lock(&inner);
			sum++;
			pthread_mutex_unlock(&inner);
			pthread_mutex_unlock(&lock);
			held = 0;
		}
		swapcontext(&coroutine[me], &scheduler);
	}
}

static void *schedule(void *arg)
{
	for (int i = 0; i < COROUTINES; i++) {
		getcontext(&coroutine[i]);
		coroutine[i].uc_stack.ss_sp = stack[i];
		coroutine[i].uc_stack.ss_size = STACK;
		coroutine[i].uc_link = &scheduler;
		makecontext(&coroutine[i], (void (*)(void))work, 1, i);
	}
	for (int r = 0; r < ROUNDS; r++)
		for (int i = 0; i < COROUTINES; i++)
			swapcontext(&scheduler, &coroutine[i]);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, schedule, NULL);
	pthread_join(t, NULL);
	printf("%d\n", sum);
	return 0;
}
