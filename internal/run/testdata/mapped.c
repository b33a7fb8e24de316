// What a rollback cannot put back, in the middle of epochs. "file": a file that is mapped, unmapped and unlinked in one epoch.
// "named": likewise, and another file has its name. "places": threads map and unmap at once, and are given each other's places. "loads": likewise, and another one leaves by pthread_exit meanwhile, for which libc loads a library.
// "over": a file is mapped where memory was that has content. Prints sums that are the same in each run.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, PAGE = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000l};
	nanosleep(&ts, NULL);
}

static char name[64], other[64];

static void make(const char *as, char c)
{
	char text[PAGE];
	memset(text, c, sizeof text);
	int fd = open(as, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || write(fd, text, sizeof text) != sizeof text)
		abort();
	close(fd);
}

static void *places(void *arg)
{
	long *sum = arg;
	for (int i = 0; i < 3000; i++) {
		size_t n = PAGE * (size_t)(1 + i % 7);
		char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			abort();
		p[n - 1] = (char)i;
		*sum += p[n - 1] + i % 7;
		munmap(p, n);
	}
	return NULL;
}

static void *leave(void *arg)
{
	pause_ms(3);
	pthread_exit(arg);
}

static long over(const char *program)
{
	int fd = open(program, O_RDONLY);
	long sum = 0;
	for (int r = 0; r < 4; r++) {
		char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		p[0] = 'a';
		pause_ms(120); // another epoch
		sum += p[0];
		if (fd < 0 || mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != p)
			abort();
		sum += p[1];
		pause_ms(120);
		sum += p[1];
		munmap(p, PAGE);
	}
	close(fd);
	return sum;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long sum = 0;
	if (argc > 2 && chdir(argv[2]) < 0)
		return 1;
	if (!strcmp(what, "over")) {
		printf("%ld\n", over(argv[0]));
		return 0;
	}
	if (!strcmp(what, "places") || !strcmp(what, "loads")) {
		pthread_t t[3], leaves;
		long sums[3] = {0};
		for (int i = 0; i < 3; i++)
			pthread_create(&t[i], NULL, places, &sums[i]);
		if (!strcmp(what, "loads")) {
			pthread_create(&leaves, NULL, leave, NULL);
			pthread_join(leaves, NULL);
		}
		for (int i = 0; i < 3; i++)
			pthread_join(t[i], NULL);
		printf("%ld\n", sums[0] + sums[1] + sums[2]);
		return 0;
	}
	snprintf(name, sizeof name, "mapped.%d", (int)getpid());
	snprintf(other, sizeof other, "mapped.%d.other", (int)getpid());
	long *count = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int r = 0; r < ROUNDS; r++) {
		pthread_mutex_lock(&lock);
		++*count;
		pthread_mutex_unlock(&lock);
		if (r % 4 == 0) {
			make(name, 'a');
			int fd = open(name, O_RDONLY);
			char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
			close(fd);
			/* Another epoch, or some, later. */
			pause_ms(70);
			sum += p[r];
			munmap(p, PAGE);
			if (!strcmp(what, "named")) {
				make(other, 'b');
				rename(other, name);
				pause_ms(70);
			}
			unlink(name);
			pause_ms(70);
		}
		pause_ms(2);
	}
	printf("%ld %ld\n", *count, sum);
	return 0;
}
