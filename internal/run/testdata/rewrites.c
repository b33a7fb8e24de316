// Files that are read and written over, by every way to write, by two threads, one at a time. rewrites DIRECTORY.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "rewrites.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { ROUNDS = 60, STEPS = 40, BYTES = 40000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long sum;
static unsigned seed = 1;
static int both, reader, writer, tail;

static unsigned some(unsigned n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static void add(const void *p, long n)
{
	for (long i = 0; i < n; i++)
		sum = sum * 31 + ((const unsigned char *)p)[i];
}

static void step(void)
{
	static char text[12000], more[3000];
	long n, at = some(BYTES), size = 1 + some(sizeof text - 1);
	struct iovec two[2] = {{text, (size_t)size / 2}, {more, sizeof more}};
	switch (some(10)) {
	case 0: case 1: n = pread(reader, text, (size_t)size, at), add(text, n); break;
	case 2: MUST(lseek(both, at, SEEK_SET) == at); n = read(both, text, (size_t)size), add(text, n); break;
	case 3: n = preadv(reader, two, 2, at), add(text, n < size / 2 ? n : size / 2), add(more, n > size / 2 ? n - size / 2 : 0); break;
	case 4: memset(text, 'a' + some(26), sizeof text); MUST(pwrite(both, text, (size_t)size, at) == size); break;
	case 5: memset(text, 'A' + some(26), sizeof text); MUST(pwrite(writer, text, (size_t)size, at) == size); break;
	case 6: memset(more, '0' + some(10), sizeof more); MUST(lseek(both, at, SEEK_SET) == at && write(both, more, sizeof more) == sizeof more); break;
	case 7: memset(text, '0' + some(10), sizeof text); MUST(pwritev(both, two, 2, at) == size / 2 + (long)sizeof more); break;
	case 8: MUST(ftruncate(both, some(4) ? BYTES : BYTES / 2 + at / 2) == 0); break;
	case 9: memset(text, '!', 100); MUST(write(tail, text, 100) == 100); break;
	}
}

static void *work(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < STEPS; k++) {
			pthread_mutex_lock(&lock);
			step();
			pthread_mutex_unlock(&lock);
		}
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return arg;
}

int main(int argc, char **argv)
{
	char name[256];
	pthread_t t;
	MUST(argc == 2);
	snprintf(name, sizeof name, "%s/file", argv[1]);
	MUST((both = open(name, O_CREAT | O_RDWR, 0600)) >= 0 && ftruncate(both, BYTES) == 0);
	MUST((reader = open(name, O_RDONLY)) >= 0 && (writer = open(name, O_WRONLY)) >= 0 && (tail = open(name, O_WRONLY | O_APPEND)) >= 0);
	MUST(pthread_create(&t, NULL, work, NULL) == 0);
	work(NULL);
	pthread_join(t, NULL);
	printf("%d\n", sum != 0); // what the threads find there is another thing each time
	return 5;
}
