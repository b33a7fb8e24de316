// Threads that compute, lock, allocate, sleep and wait, while the first takes a checkpoint, lets them run on, and goes back to it, again and again. No wait may fail, no invariant break, and the end is right.
// The arguments: a file whose page is shared with the test, threads, times, flags of rs_guard_begin, and how far behind the agent's pthread_create rs_guard_begin, _checkpoint, _rollback and _test are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what, long value)
{
	char line[128];
	int n = snprintf(line, sizeof line, "%s: %ld (errno %d)\n", what, value, errno);
	if (write(2, line, (size_t)n) != n)
		_exit(4);
	_exit(3);
}

static atomic_int done;
static atomic_ulong work[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, own_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static unsigned long held[32], turn;
static sem_t full, empty, never;
static int pipes[2];

// All of held is equal whenever nobody holds the lock.
static void locks(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 1; i < 32; i++)
		if (held[i] != held[0])
			fail("held", i);
	for (int i = 0; i < 32; i++)
		held[i]++;
	pthread_mutex_unlock(&lock);
}

// Registers, vector registers and memory count in step; a thread that came back with any of them from another time would see it.
static void registers(void)
{
	static __thread unsigned long in_memory;
	unsigned long bad = 0, n = 20000, m = in_memory;
	__asm__ volatile("movq %[m], %%r12\n movq %[m], %%r13\n movq %[m], %%r14\n vmovq %[m], %%xmm14\n vmovq %[m], %%xmm15\n vmovq %[one], %%xmm13\n"
			 "1: incq %%r12\n incq %%r13\n incq %%r14\n vpaddq %%ymm13, %%ymm14, %%ymm14\n vpaddq %%ymm13, %%ymm15, %%ymm15\n incq %[mem]\n"
			 "vmovq %%xmm14, %%rax\n xorq %%r12, %%rax\n orq %%rax, %[bad]\n vmovq %%xmm15, %%rax\n xorq %%r13, %%rax\n orq %%rax, %[bad]\n"
			 "movq %[mem], %%rax\n xorq %%r14, %%rax\n orq %%rax, %[bad]\n decq %[n]\n jnz 1b\n vzeroupper\n"
			 : [bad] "+r"(bad), [n] "+r"(n), [mem] "+m"(in_memory) : [m] "r"(m), [one] "r"(1ul) : "rax", "r12", "r13", "r14", "xmm13", "xmm14", "xmm15", "memory", "cc");
	if (bad)
		fail("registers", (long)bad);
}

static void blocks(unsigned *seed)
{
	enum { N = 64 };
	static __thread unsigned char *block[N];
	static __thread size_t size[N];
	int i = rand_r(seed) % N;
	if (block[i]) {
		for (size_t j = 0; j < size[i]; j += 64)
			if (block[i][j] != (unsigned char)i)
				fail("block", i);
		free(block[i]);
		block[i] = NULL;
	} else {
		size[i] = (size_t)(rand_r(seed) % 100 == 0 ? 300000 : 1 + rand_r(seed) % 3000);
		block[i] = malloc(size[i]);
		memset(block[i], i, size[i]);
	}
}

static void sleeps(unsigned *seed)
{
	struct timespec ts = {0, 300000}, at;
	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += 300000;
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	switch (rand_r(seed) % 5) {
	case 0:
		if (nanosleep(&ts, NULL) != 0)
			fail("nanosleep", -1);
		break;
	case 1:
		if (poll(NULL, 0, 1) != 0)
			fail("poll", -1);
		break;
	case 2:
		if (sem_timedwait(&never, &at) != -1 || errno != ETIMEDOUT)
			fail("sem_timedwait", 0);
		break;
	case 3: {
		pthread_cond_t c = PTHREAD_COND_INITIALIZER;
		pthread_mutex_lock(&own_lock);
		int r = pthread_cond_timedwait(&c, &own_lock, &at);
		pthread_mutex_unlock(&own_lock);
		if (r != ETIMEDOUT)
			fail("pthread_cond_timedwait", r);
		break;
	}
	default:
		if (usleep(200) != 0)
			fail("usleep", -1);
	}
}

// Two of these take turns.
static void turns(unsigned long me)
{
	pthread_mutex_lock(&lock);
	while (turn % 2 != me && !done)
		pthread_cond_wait(&turned, &lock);
	turn++;
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&lock);
}

static void *thread(void *arg)
{
	unsigned long i = (unsigned long)arg;
	unsigned seed = (unsigned)i;
	char byte = 'x';
	while (!done) {
		work[i]++;
		switch (i % 8) {
		case 0:
			registers();
			break;
		case 1:
			locks();
			blocks(&seed);
			break;
		case 2:
			sleeps(&seed);
			break;
		case 3:
			blocks(&seed);
			break;
		case 4:
		case 5:
			turns(i % 2);
			break;
		case 6:
			if (i == 6 && read(pipes[0], &byte, 1) != 1)
				fail("read", -1);
			if (i != 6 && sem_wait(&full) != 0)
				fail("sem_wait", -1);
			if (i != 6)
				sem_post(&empty);
			break;
		case 7:
			if (i == 7 && write(pipes[1], &byte, 1) != 1)
				fail("write", -1);
			if (i != 7 && sem_wait(&empty) != 0)
				fail("sem_wait", -1);
			if (i != 7)
				sem_post(&full);
		}
	}
	return NULL;
}

// Ended in the epoch in which it was made, or not at all: none of it is left after the rollback.
static void *born(void *arg)
{
	locks();
	while (arg)
		pause();
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 9)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[5]));
	long (*checkpoint)(void) = (long (*)(void))(agent + atol(argv[6]));
	long (*rollback)(void) = (long (*)(void))(agent + atol(argv[7]));
	void (*test)(void *) = (void (*)(void *))(agent + atol(argv[8]));
	int fd = open(argv[1], O_RDWR), n = atoi(argv[2]), times = atoi(argv[3]);
	void *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!agent || fd < 0 || page == MAP_FAILED || pipe(pipes) != 0)
		fail("set up", 0);
	sem_init(&full, 0, 1);
	sem_init(&empty, 0, 0);
	sem_init(&never, 0, 0);
	pthread_t t[64];
	for (unsigned long i = 0; i < (unsigned long)n; i++)
		pthread_create(&t[i], NULL, thread, (void *)i);
	long r = begin((unsigned)atoi(argv[4]));
	if (r != 0)
		fail("begin", r);
	test(page);
	FILE *f = fopen(argv[0], "r");
	char line[16];
	unsigned long epochs = 0, seen[64]; // epochs: counted in what is rolled back
	for (int k = 0; k < times; k++) {
		long at = ftell(f), offset = lseek(fileno(f), 0, SEEK_CUR);
		void *top = sbrk(0);
		for (int i = 0; i < n; i++)
			seen[i] = work[i];
		r = checkpoint();
		if (r < 0)
			fail("checkpoint", r);
		if (r > 0 && (ftell(f) != at || lseek(fileno(f), 0, SEEK_CUR) != offset || sbrk(0) != top || epochs != 0))
			fail("after the rollback", r);
		if (r == 1 + k % 2) // some go back to the same checkpoint twice
			goto next;
		epochs++;
		// Everything that can be otherwise is: memory mapped and unmapped, protected, the heap grown, files read, threads made.
		char *m = mmap(NULL, 5 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(m, 1, 3 << 16);
		munmap(m + (1 << 16), 1 << 16);
		mprotect(m, 1 << 12, PROT_READ);
		char *b = sbrk(1 << 15);
		memset(b, 2, 1 << 15);
		if (fread(line, 1, sizeof line, f) != sizeof line || fseek(f, rand() % 4000, SEEK_SET) != 0)
			fail("fread", 0);
		pthread_t made[2];
		for (unsigned long i = 0; i < 2; i++)
			pthread_create(&made[i], NULL, born, (void *)i);
		pthread_join(made[0], NULL);
		// Until somebody has done something.
		for (int i = 0; i < n; i = work[i] == seen[i] ? i : n)
			sched_yield();
		r = rollback();
		fail("rollback", r);
	next:
		for (int i = 0; i < n; i = work[i] == seen[i] ? i : n)
			sched_yield();
	}
	done = 1;
	char bytes[4096];
	for (int i = 0; i < n; i++) {
		while (pthread_tryjoin_np(t[i], NULL) == EBUSY) {
			// Whoever still waits for its partner is helped.
			struct pollfd p = {pipes[0], POLLIN, 0};
			if (i == 6 && write(pipes[1], "x", 1) != 1)
				fail("last write", 0);
			if (i == 7 && poll(&p, 1, 1) == 1 && read(pipes[0], bytes, sizeof bytes) < 0)
				fail("last read", 0);
			sem_post(&full);
			sem_post(&empty);
			pthread_mutex_lock(&lock);
			pthread_cond_broadcast(&turned);
			pthread_mutex_unlock(&lock);
			sched_yield();
		}
	}
	puts("well");
	return 0;
}
