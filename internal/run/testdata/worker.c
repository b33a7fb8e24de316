// worker locks ROUNDS: a task of the kernel's own, which io_uring makes for a request that would wait (io_uring_enter(2), IOSQE_ASYNC) and which is listed with the threads, is there while two threads take two mutexes in turn. Then the request is over.
// worker crowd ROUNDS: many more threads than processors, each of which hands a byte to its neighbour, so that at any moment some have come back from a call and wait for a processor.
// What is printed is the same in each run. Status 77: no io_uring here.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "worker.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { CROWD = 80 };
static int rounds, ends[CROWD][2];
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *lock(void *arg)
{
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&one);
		pthread_mutex_lock(&other);
		sum += (long)arg;
		pthread_mutex_unlock(&other);
		pthread_mutex_unlock(&one);
	}
	return NULL;
}

static void *hand(void *arg)
{
	long me = (long)arg;
	char c = 0;
	for (int i = 0; i < rounds; i++) {
		MUST(read(ends[me][0], &c, 1) == 1);
		for (volatile int k = 0; k < 10000; k++)
			;
		MUST(write(ends[(me + 1) % CROWD][1], &c, 1) == 1);
	}
	return NULL;
}

static int crowd(void)
{
	pthread_t t[CROWD];
	for (int i = 0; i < CROWD; i++)
		MUST(pipe(ends[i]) == 0);
	for (int i = 0; i < CROWD; i++)
		MUST(pthread_create(&t[i], NULL, hand, (void *)(long)i) == 0);
	for (int i = 0; i < CROWD; i++)
		MUST(write(ends[i][1], "x", 1) == 1);
	for (int i = 0; i < CROWD; i++)
		MUST(pthread_join(t[i], NULL) == 0);
	printf("handed\n");
	return 0;
}

int main(int argc, char **argv)
{
	MUST(argc == 3);
	rounds = atoi(argv[2]);
	if (strcmp(argv[1], "crowd") == 0)
		return crowd();
	struct io_uring_params p = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 2, &p), request[2];
	if (ring < 0 && (errno == ENOSYS || errno == EPERM))
		return 77;
	MUST(ring >= 0 && pipe(request) == 0);
	char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	struct io_uring_sqe *sqe = mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
	MUST(sq != MAP_FAILED && cq != MAP_FAILED && sqe != MAP_FAILED);
	char byte = 0;
	*sqe = (struct io_uring_sqe){.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = request[0], .addr = (uintptr_t)&byte, .len = 1, .off = (uint64_t)-1};
	((uint32_t *)(sq + p.sq_off.array))[0] = 0;
	__atomic_store_n((uint32_t *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	MUST(syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1);
	pthread_t t[2];
	for (long i = 0; i < 2; i++)
		MUST(pthread_create(&t[i], NULL, lock, (void *)(i + 1)) == 0);
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(t[i], NULL) == 0);
	MUST(write(request[1], "y", 1) == 1);
	MUST(syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 0);
	MUST(((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res == 1);
	printf("%ld %c\n", sum, byte);
	return 0;
}
