// What one thread hands to another by asynchronous I/O, whose reads and writes a thread of libc's own makes: none of them was seen, and what they hand over was told as races. What is written behind the hand-over (late) is a race
// each time, as is what touches a request's buffer before its end.
#include "../run.h"
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>

static int ends[2], sockets[2], file;

static struct aiocb request(int fd, void *to, size_t n)
{
	struct aiocb cb;
	memset(&cb, 0, sizeof cb);
	cb.aio_fildes = fd;
	cb.aio_buf = to;
	cb.aio_nbytes = n;
	cb.aio_sigevent.sigev_notify = SIGEV_NONE;
	return cb;
}

static void ends_well(struct aiocb *cb)
{
	if (aio_return(cb) <= 0)
		abort();
}

// Read from a pipe, waited for.
static long waited_early, waited_late;
static void *sends_waited(void *p)
{
	waited_early = 1;
	use(write(ends[1], "x", 1));
	waited_late = 1; // race-mov waited
	return p;
}
static void *takes_waited(void *p)
{
	char x;
	struct aiocb cb = request(ends[0], &x, 1);
	const struct aiocb *list[] = {&cb};
	aio_read(&cb);
	while (aio_suspend(list, 1, 0))
		;
	use(waited_early);
	use(waited_late); // race-mov waited
	ends_well(&cb);
	return p;
}

// Read from a socket, asked for again and again; the descriptor is another one's by then.
static long asked_early, asked_late;
static void *sends_asked(void *p)
{
	asked_early = 1;
	use(send(sockets[1], "x", 1, 0));
	asked_late = 1; // race-mov asked
	return p;
}
static void *takes_asked(void *p)
{
	char x;
	int fd = dup(sockets[0]);
	struct aiocb cb = request(fd, &x, 1);
	aio_read(&cb);
	while (aio_error(&cb) == EINPROGRESS)
		sched_yield();
	use(asked_early);
	use(asked_late); // race-mov asked
	ends_well(&cb);
	close(fd);
	return p;
}

// Written to a pipe.
static long written_early, written_late;
static void *sends_written(void *p)
{
	static char x = 'x';
	struct aiocb cb = request(ends[1], &x, 1);
	written_early = 1;
	aio_write(&cb);
	written_late = 1; // race-mov written
	while (aio_error(&cb) == EINPROGRESS)
		sched_yield();
	ends_well(&cb);
	return p;
}
static void *takes_written(void *p)
{
	char x;
	use(read(ends[0], &x, 1));
	use(written_early);
	use(written_late); // race-mov written
	return p;
}

// A list, waited for as a whole.
static long listed_early, listed_late;
static void *sends_listed(void *p)
{
	listed_early = 1;
	use(write(ends[1], "x", 1));
	listed_late = 1; // race-mov listed
	return p;
}
static void *takes_listed(void *p)
{
	char x, y = 'y';
	struct aiocb in = request(ends[0], &x, 1), out = request(file, &y, 1), *list[] = {&in, 0, &out};
	in.aio_lio_opcode = LIO_READ;
	out.aio_lio_opcode = LIO_WRITE;
	if (lio_listio(LIO_WAIT, list, 3, 0))
		abort();
	use(listed_early);
	use(listed_late); // race-mov listed
	ends_well(&in);
	ends_well(&out);
	return p;
}

// A thread that libc makes calls a function. What is written behind the hand-over would be found only at times: such a thread comes after all that was done before it began.
static long called_early, called_back;
static sem_t called;
static void is_called(union sigval v)
{
	struct aiocb *cb = v.sival_ptr;
	use(*(volatile char *)cb->aio_buf);
	use(called_early);
	called_back = 1;
	ends_well(cb);
	sem_post(&called);
}
static void *sends_called(void *p)
{
	called_early = 1;
	use(write(ends[1], "x", 1));
	return p;
}
static void *takes_called(void *p)
{
	static char x;
	static struct aiocb cb;
	cb = request(ends[0], &x, 1);
	cb.aio_sigevent.sigev_notify = SIGEV_THREAD;
	cb.aio_sigevent.sigev_notify_function = is_called;
	cb.aio_sigevent.sigev_value.sival_ptr = &cb;
	aio_read(&cb);
	sem_wait(&called);
	use(called_back);
	use(called_early);
	return p;
}

// What such a function does beside the thread that handed in.
static long beside_called;
static void is_called_beside(union sigval v)
{
	ends_well(v.sival_ptr);
	beside_called++; // race beside_called
	unseen_done();
}
static void *goes_on(void *p)
{
	static char x = 'x';
	static struct aiocb cb;
	cb = request(file, &x, 1);
	cb.aio_sigevent.sigev_notify = SIGEV_THREAD;
	cb.aio_sigevent.sigev_notify_function = is_called_beside;
	cb.aio_sigevent.sigev_value.sival_ptr = &cb;
	aio_write(&cb);
	unseen_wait();
	beside_called++; // race beside_called
	return p;
}
static void *nothing(void *p) { return p; }

// Handed in by one thread, seen by another to be done: the buffer is the other's then.
static struct aiocb handed;
static char block[64];
static void *hands_in(void *p)
{
	memset(block, 'b', sizeof block);
	handed = request(file, block, sizeof block);
	aio_write(&handed);
	unseen_done();
	return p;
}
static void *takes_over(void *p)
{
	unseen_wait();
	while (aio_error(&handed) == EINPROGRESS)
		sched_yield();
	memset(block, 'c', sizeof block);
	ends_well(&handed);
	return p;
}

// Cancelled or done, whichever: it is over.
static void *cancels(void *p)
{
	unseen_wait();
	while (aio_cancel(file, 0) == AIO_NOTCANCELED)
		sched_yield();
	memset(block, 'd', sizeof block);
	return p;
}

// What another thread reads of a buffer that is filled.
static char filled[8];
static void *fills(void *p)
{
	struct aiocb cb = request(file, filled, sizeof filled);
	const struct aiocb *list[] = {&cb};
	aio_read(&cb); // race filled
	while (aio_suspend(list, 1, 0))
		;
	ends_well(&cb);
	return p;
}
static void *looks(void *p)
{
	use(filled[3]); // race filled
	return p;
}

// What another thread changes of a buffer that is written.
static char emptied[8];
static void *empties(void *p)
{
	struct aiocb cb = request(file, emptied, sizeof emptied);
	aio_write(&cb); // race emptied
	while (aio_error(&cb) == EINPROGRESS)
		sched_yield();
	ends_well(&cb);
	return p;
}
static void *changes(void *p)
{
	emptied[7] = 1; // race emptied
	return p;
}
// Two may write from one buffer.
static void *empties_too(void *p)
{
	struct aiocb cb = request(file, block, sizeof block);
	aio_write(&cb);
	while (aio_error(&cb) == EINPROGRESS)
		sched_yield();
	ends_well(&cb);
	return p;
}

int main(void)
{
	char path[] = "/tmp/raceXXXXXX";
	if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || (file = mkstemp(path)) < 0 || sem_init(&called, 0, 0))
		return 1;
	unlink(path);
	both(sends_waited, takes_waited);
	both(sends_asked, takes_asked);
	both(sends_written, takes_written);
	both(sends_listed, takes_listed);
	both(sends_called, takes_called);
	unseen(goes_on, nothing);
	unseen(hands_in, takes_over);
	unseen(hands_in, cancels);
	both(empties_too, empties_too);
	both(fills, looks);
	both(empties, changes);
	puts("done");
	return 0;
}
