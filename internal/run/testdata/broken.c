/* A heap that is found broken, as the C library ends a program: a block with two owners, both of which free it, and a part of a block that is freed; with another argument a block is
 * written behind its end before that. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair { char *volatile first, *volatile second; int owners; };

static int inside;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) struct pair *make(void)
{
	struct pair *p = malloc(sizeof *p);
	p->first = malloc(40);
	p->second = p->first;
	p->owners = 2;
	return p;
}

static void *drops(void *arg)
{
	struct pair *p = arg;
	pthread_mutex_lock(&mutex);
	p->owners--;
	free(p->first);
	if (!inside && --p->owners == 0)
		free(p->second);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

int main(int argc, char **argv)
{
	inside = argc > 1 && !strcmp(argv[1], "inside");
	struct pair *p = make();
	pthread_t t;
	puts("begins");
	fflush(stdout);
	pthread_create(&t, NULL, drops, p);
	pthread_join(t, NULL);
	pthread_mutex_lock(&mutex);
	if (argc > 2)
		strcpy(p->first = malloc(24), "a text of twenty-four letters");
	if (inside)
		p = (void *)&p->second;
	free(p);
	pthread_mutex_unlock(&mutex);
	return 0;
}
