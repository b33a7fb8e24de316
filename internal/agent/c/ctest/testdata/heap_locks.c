// Blocks with locks in them among others of the same call sites, freed: argv[1] says how. Each of N blocks is told to have gone, or to be locked; but not where only an init was seen, of which nobody is told unless all is.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node { long data[3]; pthread_mutex_t lock; };

static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t outside = PTHREAD_MUTEX_INITIALIZER;

static void *nothing(void *p) { return p; }

static __attribute__((noinline)) struct node *make(void) { return malloc(sizeof(struct node)); }
static __attribute__((noinline)) void drop(struct node *n) { free(n); }

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int times = atoi(argv[2]);
	pthread_t t; /* orders are told where there was another thread */
	if (pthread_create(&t, NULL, nothing, NULL) == 0)
		pthread_join(t, NULL);
	for (int i = 0; i < 20 * times; i++) {
		struct node *n = make();
		if (i % 20 == 19) {
			n->lock = fresh;
			if (strcmp(argv[1], "inited") == 0 || strcmp(argv[1], "spoken") == 0)
				pthread_mutex_init(&n->lock, NULL);
			else if (strcmp(argv[1], "destroyed") == 0)
				pthread_mutex_destroy(&n->lock);
			else if (strcmp(argv[1], "locked") == 0)
				pthread_mutex_lock(&n->lock);
			if (strcmp(argv[1], "nested") == 0 || strcmp(argv[1], "spoken") == 0) {
				pthread_mutex_lock(&outside);
				pthread_mutex_lock(&n->lock);
				pthread_mutex_unlock(&n->lock);
				pthread_mutex_unlock(&outside);
			}
		}
		drop(n);
	}
	puts("done");
	return 0;
}
