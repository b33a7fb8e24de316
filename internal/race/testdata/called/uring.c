// What is handed to the kernel, and what comes back in another thread: io_uring by system calls of the program's own, and Linux's asynchronous I/O. Where the kernel gives none (a container's filter, a sysctl) the threads are ordered by
// a pipe in its place.
#include "../run.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>

static int file;

// --- io_uring, as liburing does it: a completion is looked for in memory first -------------------------------------------------------------

static struct ring { int fd; unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask; struct io_uring_sqe *sqes; struct io_uring_cqe *cqes; } ring;
static int instead[2];

static long own(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = 0;
	register long r9 __asm__("r9") = 0;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
}

static int make_ring(void)
{
	struct io_uring_params p = {0};
	long r = own(SYS_io_uring_setup, 8, (long)&p, 0, 0);
	if (r < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP))
		return pipe(instead);
	ring.fd = (int)r;
	size_t n = p.cq_off.cqes + p.cq_entries * sizeof *ring.cqes, m = p.sq_off.array + p.sq_entries * sizeof *ring.sq_array;
	char *at = mmap(0, n > m ? n : m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	ring.sqes = mmap(0, p.sq_entries * sizeof *ring.sqes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (at == MAP_FAILED || ring.sqes == MAP_FAILED)
		return -1;
	ring.sq_tail = (unsigned *)(at + p.sq_off.tail);
	ring.sq_mask = (unsigned *)(at + p.sq_off.ring_mask);
	ring.sq_array = (unsigned *)(at + p.sq_off.array);
	ring.cq_head = (unsigned *)(at + p.cq_off.head);
	ring.cq_tail = (unsigned *)(at + p.cq_off.tail);
	ring.cq_mask = (unsigned *)(at + p.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(at + p.cq_off.cqes);
	return 0;
}

static void hand(void *what)
{
	if (!ring.fd) {
		use(write(instead[1], &what, sizeof what));
		return;
	}
	unsigned tail = *ring.sq_tail, i = tail & *ring.sq_mask;
	ring.sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_NOP, .user_data = (unsigned long)what};
	ring.sq_array[i] = i;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (own(SYS_io_uring_enter, ring.fd, 1, 0, 0) != 1)
		abort();
}

static void *take(void)
{
	void *what;
	if (!ring.fd)
		return read(instead[0], &what, sizeof what) == sizeof what ? what : 0;
	unsigned head = *ring.cq_head;
	while (head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE))
		own(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS);
	what = (void *)(unsigned long)ring.cqes[head & *ring.cq_mask].user_data;
	__atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
	return what;
}

struct request { long number, answer; };
static struct request requests[20];
long behind;

static void *submits(void *p)
{
	for (long i = 0; i < 20; i++) {
		requests[i].number = i + 1;
		hand(&requests[i]);
	}
	behind = 1; // race-mov taken
	return p;
}

static void *completes(void *p)
{
	for (long i = 0; i < 20; i++) {
		struct request *r = take();
		r->answer = r->number;
	}
	use(behind); // race-mov taken
	return p;
}

// --- io_submit ---------------------------------------------------------------------------------------------------------------------------

static aio_context_t context;
static struct iocb control;
char block[16];
long told, after;

static void *gives(void *p)
{
	told = 1;
	control = (struct iocb){.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = (unsigned)file, .aio_buf = (unsigned long)block, .aio_nbytes = sizeof block};
	struct iocb *list[1] = {&control};
	if (!context)
		use(write(instead[1], list, sizeof *list));
	else if (syscall(SYS_io_submit, context, 1, list) != 1)
		abort();
	after = 1; // race-mov events
	return p;
}

static void *gets(void *p)
{
	struct io_event e = {0};
	struct iocb *c;
	if (!context)
		use(read(instead[0], &c, sizeof c));
	else if (syscall(SYS_io_getevents, context, 1, 1, &e, 0) != 1)
		abort();
	use(told);
	use(control.aio_nbytes);
	use(after); // race-mov events
	return p;
}

int main(void)
{
	char path[] = "/tmp/raceXXXXXX";
	file = mkstemp(path);
	if (unlink(path) || write(file, "0123456789abcdef", 16) != 16 || make_ring())
		return 1;
	both(submits, completes);
	if (syscall(SYS_io_setup, 4, &context)) {
		context = 0;
		if (!instead[1] && pipe(instead))
			return 1;
	}
	both(gives, gets);
	puts("done");
	return 0;
}
