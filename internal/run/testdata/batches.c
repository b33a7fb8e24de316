/* batches.c: calls that wait for many messages or completions, or until a signal comes: how many they say there were, and what is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "batches.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { MESSAGES = 40, BYTES = 100 };

static int fd[2];
static char data[MESSAGES][BYTES], got[MESSAGES][BYTES];
static struct iovec v[MESSAGES];
static struct mmsghdr m[MESSAGES];

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000};
	nanosleep(&ts, NULL);
}

static void *giver(void *arg)
{
	for (int i = 0; i < MESSAGES; i++) {
		pause_ms(5);
		MUST(send(fd[1], data[i], (size_t)(BYTES - i), 0) == BYTES - i);
	}
	return arg;
}

static void *taker(void *arg)
{
	for (int i = 0; i < MESSAGES; i++) {
		pause_ms(5);
		MUST(recv(fd[0], got[i], BYTES, 0) == BYTES);
	}
	return arg;
}

static void *writer(void *arg)
{
	pause_ms(150);
	MUST(write(fd[1], "hello", 5) == 5);
	return arg;
}

static void messages(char (*at)[BYTES])
{
	int least = 1; /* so that who sends must wait */
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) == 0 && setsockopt(fd[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
	memset(got, 0, sizeof got);
	for (int i = 0; i < MESSAGES; i++) {
		v[i] = (struct iovec){at[i], BYTES};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
		m[i].msg_len = 0;
	}
}

static void requests(void)
{
	struct io_uring_params p = {0};
	char buffer[8] = "";
	MUST(pipe(fd) == 0);
	int ring = (int)syscall(SYS_io_uring_setup, 8, &p);
	if (ring < 0) {
		printf("no ring\n");
		return;
	}
	size_t size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), other = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	size = size < other ? other : size;
	char *rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
	struct io_uring_sqe *sqe = mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
	MUST(p.features & IORING_FEAT_SINGLE_MMAP && rings != MAP_FAILED && sqe != MAP_FAILED);
	*sqe = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = fd[0], .addr = (unsigned long)buffer, .len = sizeof buffer};
	((unsigned *)(rings + p.sq_off.array))[0] = 0;
	__atomic_store_n((unsigned *)(rings + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	pthread_t t;
	MUST(pthread_create(&t, NULL, writer, NULL) == 0);
	long r = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	unsigned there = __atomic_load_n((unsigned *)(rings + p.cq_off.tail), __ATOMIC_ACQUIRE);
	printf("taken %ld, completed %u", r, there);
	printf(": %d %.5s\n", there ? ((struct io_uring_cqe *)(rings + p.cq_off.cqes))->res : 0, buffer);
	pthread_join(t, NULL);
}

int main(void)
{
	pthread_t t;
	alarm(30); /* who waits for what is not read */
	for (int i = 0; i < MESSAGES; i++)
		memset(data[i], 'a' + i % 26, BYTES);
	messages(got);
	MUST(pthread_create(&t, NULL, giver, NULL) == 0);
	printf("recvmmsg %d", recvmmsg(fd[0], m, MESSAGES, 0, NULL));
	pthread_join(t, NULL);
	for (int i = 0; i < MESSAGES; i++)
		printf(" %u%c", m[i].msg_len, got[i][0]);
	messages(data);
	MUST(pthread_create(&t, NULL, taker, NULL) == 0);
	int sent = sendmmsg(fd[1], m, MESSAGES, 0);
	printf("\nsendmmsg %d", sent);
	for (int i = sent < 0 ? 0 : sent; i < MESSAGES; i++)
		MUST(send(fd[1], data[i], BYTES, 0) == BYTES);
	pthread_join(t, NULL);
	for (int i = 0; i < MESSAGES; i++)
		printf(" %u%c", m[i].msg_len, got[i][0]);
	printf("\n");
	requests();
	return 5;
}
