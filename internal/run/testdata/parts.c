/* Writes 16 MiB, says so, and then takes two mutexes in turn, which is an event each time. When it is told to it gives the memory back, and rests until its input ends. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 16 << 20 };
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;

static void *counts(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		pthread_mutex_lock(&a);
		++*(long *)arg;
		pthread_mutex_unlock(&a);
		pthread_mutex_lock(&b);
		pthread_mutex_unlock(&b);
	}
	return NULL;
}

int main(void)
{
	long n = 0;
	char c;
	pthread_t other;
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < BYTES; i += 64)
		((volatile char *)p)[i] = 1;
	pthread_create(&other, NULL, counts, &n);
	pthread_join(other, NULL);
	puts("ready");
	fflush(stdout);
	for (struct pollfd in = {.events = POLLIN}; poll(&in, 1, 10) == 0;)
		counts(&n);
	int well = p[BYTES - 64] == 1 && read(0, &c, 1) == 1;
	munmap(p, BYTES);
	return well && read(0, &c, 1) == 0 ? 0 : 1;
}
