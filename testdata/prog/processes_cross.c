// Two processes, each of which holds process-shared objects that the other waits for; one gives up in time. What another process holds and does is
// nothing that one process could be stuck in for good.
// ripstop: verdict none
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct shared {
	pthread_mutex_t a, b;
	pthread_rwlock_t table;
	pthread_cond_t changed;
	pthread_barrier_t phase;
	int ready;
} *s;

static void make(void)
{
	pthread_mutexattr_t m;
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&s->a, &m);
	pthread_mutexattr_setprotocol(&m, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&s->b, &m);
	pthread_rwlockattr_t rw;
	pthread_rwlockattr_init(&rw);
	pthread_rwlockattr_setpshared(&rw, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&s->table, &rw);
	pthread_condattr_t c;
	pthread_condattr_init(&c);
	pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&s->changed, &c);
	pthread_barrierattr_t b;
	pthread_barrierattr_init(&b);
	pthread_barrierattr_setpshared(&b, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->phase, &b, 2);
}

static int child(void)
{
	pthread_mutex_lock(&s->b);
	pthread_rwlock_rdlock(&s->table);
	pthread_barrier_wait(&s->phase);
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 300 * 1000 * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	int e = pthread_mutex_timedlock(&s->a, &until); /* the parent has it, and waits for b */
	pthread_rwlock_unlock(&s->table);
	pthread_mutex_unlock(&s->b);
	pthread_mutex_lock(&s->a); /* can be had once the parent waits on the condition */
	s->ready = 1;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->a);
	usleep(200 * 1000); /* so that ripstop looks at the parent at the barrier; native runs would do without */
	pthread_barrier_wait(&s->phase);
	return e == ETIMEDOUT;
}

int main(void)
{
	s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	make();
	pid_t pid = fork();
	if (pid == 0)
		_exit(child());
	pthread_mutex_lock(&s->a);
	pthread_barrier_wait(&s->phase);
	pthread_mutex_lock(&s->b);
	pthread_rwlock_wrlock(&s->table);
	pthread_rwlock_unlock(&s->table);
	pthread_mutex_unlock(&s->b);
	while (!s->ready)
		pthread_cond_wait(&s->changed, &s->a);
	pthread_mutex_unlock(&s->a);
	pthread_barrier_wait(&s->phase);
	int status;
	waitpid(pid, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	return 0;
}
