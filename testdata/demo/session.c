// A session that one thread ends while another one still serves it. It crashes, and a core dump shows where, but not why.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct session { long served; };

static struct session *current;

static void serve(void)
{
	current->served++;
	usleep(100);
}

static void *worker(void *arg)
{
	for (int i = 0; i < 1000; i++)
		serve();
	return arg;
}

static void end_session(void)
{
	free(current);
	current = NULL;
}

int main(void)
{
	pthread_t t;
	current = calloc(1, sizeof *current);
	pthread_create(&t, NULL, worker, NULL);
	usleep(20000);
	end_session();
	pthread_join(t, NULL);
	puts("served");
	return 0;
}
