// Races: of a global, with a lock on one side and two on the other; of a thread-local variable of the main thread; of a block of heap. Ordered by a file that the detector knows nothing of.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static int total;
static __thread struct { int a, b; } mine;
static int *lent;
static long *block;
static const char *mark;

static void *early(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&first);
	total++;
	pthread_mutex_unlock(&first);
	*lent = 1;
	*block = 2;
	mkdir(mark, 0777);
	return NULL;
}

static void *late(void *arg)
{
	(void)arg;
	while (access(mark, F_OK) != 0)
		usleep(1000);
	pthread_rwlock_rdlock(&table);
	pthread_mutex_lock(&second);
	total += 2;
	pthread_mutex_unlock(&second);
	pthread_rwlock_unlock(&table);
	*lent = 3;
	*block = 4;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	mark = argv[argc - 1];
	lent = &mine.b;
	block = malloc(3 * sizeof *block);
	pthread_create(&t[0], NULL, early, NULL);
	pthread_create(&t[1], NULL, late, NULL);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	printf("%d\n", total + mine.b);
	return 0;
}
