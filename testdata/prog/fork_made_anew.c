// A forked child makes anew, or destroys and frees, what was held at the time of the fork, by its own thread and by others that it does not have.
// ripstop: verdict none
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "order.h"

static struct locks {
	pthread_mutex_t mutex;
	pthread_rwlock_t written, read;
	pthread_spinlock_t spin;
	sem_t sem;
} *own, *other;

static void make(struct locks *l)
{
	pthread_mutex_init(&l->mutex, NULL);
	pthread_rwlock_init(&l->written, NULL);
	pthread_rwlock_init(&l->read, NULL);
	pthread_spin_init(&l->spin, PTHREAD_PROCESS_PRIVATE);
	sem_init(&l->sem, 0, 1);
}

static void take(struct locks *l)
{
	pthread_mutex_lock(&l->mutex);
	pthread_rwlock_wrlock(&l->written);
	pthread_rwlock_rdlock(&l->read);
	pthread_spin_lock(&l->spin);
	sem_wait(&l->sem);
}

static void give(struct locks *l)
{
	sem_post(&l->sem);
	pthread_spin_unlock(&l->spin);
	pthread_rwlock_unlock(&l->read);
	pthread_rwlock_unlock(&l->written);
	pthread_mutex_unlock(&l->mutex);
}

static void *holder(void *arg)
{
	take(other);
	reach(1);
	await(2);
	give(other);
	return arg;
}

/* child runs f, and the parent prints how it ended. */
static void in_child(void (*f)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		f();
		_exit(7);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
}

static void anew(void)
{
	make(other);
	make(own);
	take(other);
	take(own);
	give(own);
	give(other);
}

static void destroyed(void)
{
	pthread_rwlock_destroy(&other->read);
	pthread_spin_destroy(&other->spin);
	sem_destroy(&other->sem);
	free(other);
}

int main(void)
{
	pthread_t t;
	own = malloc(sizeof *own);
	other = malloc(sizeof *other);
	make(own);
	make(other);
	pthread_create(&t, NULL, holder, NULL);
	await(1);
	take(own);
	in_child(anew);
	in_child(destroyed);
	give(own);
	reach(2);
	pthread_join(t, NULL);
	return 0;
}
