// A condition destroyed right after the broadcast, when its waiters have yet to leave: POSIX allows that.
// ripstop: verdict none
#include <pthread.h>
#include <stdio.h>
#include "order.h"

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t opened;
	int open, waiting;
};

static void *visitor(void *arg)
{
	struct gate *g = arg;
	pthread_mutex_lock(&g->lock);
	g->waiting++;
	while (!g->open)
		pthread_cond_wait(&g->opened, &g->lock);
	pthread_mutex_unlock(&g->lock);
	return arg;
}

int main(void)
{
	for (int i = 0; i < 20; i++) {
		struct gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
		pthread_t t[3];
		for (int k = 0; k < 3; k++)
			pthread_create(&t[k], NULL, visitor, &g);
		for (int all = 0; !all; sched_yield()) {
			pthread_mutex_lock(&g.lock);
			all = g.waiting == 3;
			pthread_mutex_unlock(&g.lock);
		}
		pthread_mutex_lock(&g.lock);
		g.open = 1;
		pthread_cond_broadcast(&g.opened);
		pthread_mutex_unlock(&g.lock);
		pthread_cond_destroy(&g.opened);
		for (int k = 0; k < 3; k++)
			pthread_join(t[k], NULL);
		pthread_mutex_destroy(&g.lock);
	}
	puts("done");
	return 0;
}
