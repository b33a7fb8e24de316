// Two threads join the same thread at once: the kernel wakes one of them, and it ends the process.
// ripstop: verdict double-join frames=main,join_it
#define _GNU_SOURCE
#include <pthread.h>
#include "blocked.h"

static pthread_t worker;
static pid_t joiner_tid;

static void *work(void *arg)
{
	await(2);
	await_blocked(getpid()); /* main is in its join too */
	return arg;
}

static void *join_it(void *arg)
{
	joiner_tid = gettid();
	reach(1);
	pthread_join(worker, NULL);
	puts("done");
	fflush(stdout);
	_exit(0);
	return arg;
}

int main(void)
{
	pthread_t joiner;
	pthread_create(&worker, NULL, work, NULL);
	pthread_create(&joiner, NULL, join_it, NULL);
	await(1);
	await_blocked(joiner_tid);
	reach(2);
	pthread_join(worker, NULL);
	puts("done");
	fflush(stdout);
	_exit(0);
}
