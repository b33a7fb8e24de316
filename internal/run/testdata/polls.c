// A thread polls the same place again and again, which keeps what came of it the last time. Prints the same in each run.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static int ends[2];
static struct pollfd p;
static void *gives(void *arg)
{
	for (int i = 0; i < 40; i++) {
		nanosleep(&(struct timespec){0, 15000000}, NULL);
		if (write(ends[1], "a", 1) != 1)
			return arg;
	}
	close(ends[1]);
	return NULL;
}
int main(void)
{
	pthread_t t;
	char c;
	int n = 0;
	if (pipe(ends) || pthread_create(&t, NULL, gives, NULL))
		return 1;
	p = (struct pollfd){ends[0], POLLIN, 0};
	while (poll(&p, 1, -1) == 1 && read(ends[0], &c, 1) == 1)
		n++;
	pthread_join(t, NULL);
	printf("%d\n", n);
	return 0;
}
