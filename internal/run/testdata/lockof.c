// Locks and the like whose address is wrong: the crash is in the agent's function, which stands for the C library's. lockof KIND; what was called with is a member that breaks() wrote.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

static struct item { long n; pthread_mutex_t *lock; pthread_cond_t *cond; pthread_rwlock_t *rw; sem_t *sem; } *it;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;

NOINLINE static void breaks(struct item *i, long to)
{
	i->lock = (void *)to, i->cond = (void *)to, i->rw = (void *)to, i->sem = (void *)to;
}

NOINLINE static void uses(struct item *i, const char *kind)
{
	if (!strcmp(kind, "mutex") || !strcmp(kind, "first") || !strcmp(kind, "wild") || !strcmp(kind, "freed")) {
		pthread_mutex_lock(i->lock);
		pthread_mutex_unlock(i->lock);
	} else if (!strcmp(kind, "unlock")) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(i->lock);
	} else if (!strcmp(kind, "signal")) {
		pthread_cond_signal(i->cond);
	} else if (!strcmp(kind, "rwlock")) {
		pthread_rwlock_rdlock(i->rw);
		pthread_rwlock_unlock(i->rw);
	} else if (!strcmp(kind, "post")) {
		sem_post(i->sem);
	} else if (!strcmp(kind, "loop")) {
		for (int k = 0; k < 300; k++) {
			if (k == 299)
				breaks(i, 0);
			pthread_mutex_lock(i->lock);
			pthread_mutex_unlock(i->lock);
		}
	}
	i->n++;
}

static void *runs(void *kind)
{
	uses(it, kind);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *kind = argv[1];
	sem_init(&sem, 0, 0);
	it = malloc(sizeof *it);
	*it = (struct item){0, &lock, &cond, &rw, &sem};
	for (int k = 0; k < 50 && strcmp(kind, "first"); k++)
		if (strcmp(kind, "loop"))
			uses(it, kind);
	if (!strcmp(kind, "freed"))
		free(it);
	else
		breaks(it, !strcmp(kind, "wild") ? 0x1234567812345678 : 0);
	if (argc > 2) {
		pthread_t t;
		pthread_create(&t, NULL, runs, argv[1]);
		pthread_join(t, NULL);
	}
	uses(it, kind);
	puts("not reached");
}
