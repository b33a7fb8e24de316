// fork while another thread holds a lock, with atfork handlers that make it right.
// ripstop: verdict none
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

#include <sys/wait.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take(void) { pthread_mutex_lock(&lock); }
static void give(void) { pthread_mutex_unlock(&lock); }

static void *holder(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	int sum = 0;
	pthread_atfork(take, give, give);
	pthread_create(&t, NULL, holder, NULL);
	for (int i = 0; i < 10; i++) {
		pid_t p = fork();
		if (p == 0) {
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
			_exit(i);
		}
		int st;
		waitpid(p, &st, 0);
		sum += WEXITSTATUS(st);
	}
	pthread_join(t, NULL);
	printf("%d\n", sum);
	return 0;
}
