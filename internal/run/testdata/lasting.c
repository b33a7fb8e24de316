/* Waits that last for longer than it takes until they are told, and end well: for mutexes, one behind the other, a rwlock, a condition, a semaphore, a barrier, an initialiser and threads' ends; twice, with the owners exchanged. With an argument: one that a handler leaves by a
 * jump, with another lock held, for which the first thread waits then. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER, guarded = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_barrier_t all;
static sem_t permit;
static int is_ready;

static void rest(void) { usleep(2200000); }

static void *behind_first(void *arg)
{
	pthread_mutex_lock(&second);
	pthread_mutex_lock(&first);
	pthread_mutex_unlock(&first);
	pthread_mutex_unlock(&second);
	return arg;
}

static void *behind_second(void *arg)
{
	usleep(100000);
	pthread_rwlock_wrlock(&table);
	pthread_mutex_lock(&second);
	pthread_mutex_unlock(&second);
	pthread_rwlock_unlock(&table);
	return arg;
}

static void *behind_table(void *arg)
{
	usleep(200000);
	pthread_rwlock_rdlock(&table);
	pthread_rwlock_unlock(&table);
	return arg;
}

static void *waits(void *arg)
{
	pthread_mutex_lock(&guarded);
	while (!is_ready)
		pthread_cond_wait(&ready, &guarded);
	pthread_mutex_unlock(&guarded);
	sem_wait(&permit);
	pthread_once(&once, rest);
	pthread_barrier_wait(&all);
	return arg;
}

static void round_of(void)
{
	pthread_t t[4];
	void *(*does[])(void *) = {behind_first, behind_second, behind_table, waits};
	is_ready = 0;
	pthread_mutex_lock(&first);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, does[i], NULL);
	rest();
	pthread_mutex_unlock(&first);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	/* The locks the other way about: who waited has them. */
	pthread_mutex_lock(&second);
	pthread_mutex_lock(&first);
	rest();
	pthread_mutex_unlock(&first);
	pthread_mutex_unlock(&second);
	pthread_mutex_lock(&guarded);
	is_ready = 1;
	pthread_cond_signal(&ready);
	pthread_mutex_unlock(&guarded);
	rest();
	sem_post(&permit);
	pthread_once(&once, rest);
	rest();
	pthread_barrier_wait(&all);
	pthread_join(t[3], NULL);
}

static sigjmp_buf out;
static int jumped;
static void jump(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void *leaves(void *arg)
{
	pthread_mutex_lock(&second);
	if (sigsetjmp(out, 1) == 0) {
		pthread_mutex_lock(&first);
		puts("not reached");
	}
	__atomic_store_n(&jumped, 1, __ATOMIC_SEQ_CST);
	rest();
	rest();
	pthread_mutex_unlock(&second);
	return arg;
}

int main(int argc, char **argv)
{
	(void)argv;
	pthread_t t;
	sem_init(&permit, 0, 0);
	pthread_barrier_init(&all, NULL, 2);
	if (argc == 1) {
		round_of();
		puts("over");
		return 3;
	}
	signal(SIGUSR1, jump);
	pthread_mutex_lock(&first);
	pthread_create(&t, NULL, leaves, NULL);
	rest();
	pthread_kill(t, SIGUSR1);
	while (!__atomic_load_n(&jumped, __ATOMIC_SEQ_CST))
		usleep(1000);
	pthread_mutex_lock(&second);
	puts("over");
	pthread_mutex_unlock(&second);
	pthread_mutex_unlock(&first);
	pthread_join(t, NULL);
	return 3;
}
