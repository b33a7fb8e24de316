// Threads ordered through the kernel: pipes, sockets, eventfd, files, epoll, futex, child processes; and what does not order.
#include "run.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int a, b, c, d, e, f, g, h, word;
static int pipes[2], sockets[2], event, back[2], there[2], polled[2], file;

static void *writes_pipe(void *arg)
{
	a++;
	if (write(pipes[1], "x", 1) != 1)
		abort();
	b++; // race after_write
	return arg;
}

static void *reads_pipe(void *arg)
{
	char x;
	if (read(pipes[0], &x, 1) != 1)
		abort();
	a++;
	b++; // race after_write
	return arg;
}

static void *sends(void *arg)
{
	c++;
	send(sockets[0], "x", 1, 0);
	return arg;
}

static void *receives(void *arg)
{
	char x;
	recv(sockets[1], &x, 1, 0);
	c++;
	return arg;
}

static void *counts(void *arg)
{
	d++;
	eventfd_write(event, 1);
	return arg;
}

static void *is_counted(void *arg)
{
	eventfd_t v;
	eventfd_read(event, &v);
	d++;
	return arg;
}

static void *wakes(void *arg)
{
	e++;
	while (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0)
		sched_yield();
	return arg;
}

static void *is_woken(void *arg)
{
	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
	e++;
	return arg;
}

static void *asks_child(void *arg)
{
	f++;
	if (write(there[1], "x", 1) != 1)
		abort();
	return arg;
}

static void *hears_child(void *arg)
{
	char x;
	if (read(back[0], &x, 1) != 1)
		abort();
	f++;
	return arg;
}

static void *polls(void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	epoll_ctl(ep, EPOLL_CTL_ADD, polled[0], &ev);
	epoll_wait(ep, &ev, 1, -1);
	g++;
	close(ep);
	return arg;
}

static void *makes_ready(void *arg)
{
	g++;
	if (write(polled[1], "x", 1) != 1)
		abort();
	return arg;
}

static void *reads_the_other_way(void *arg) // who reads first tells the writer nothing
{
	char x;
	h++; // race wrong_way
	if (pread(file, &x, 1, 0) != 1)
		abort();
	return arg;
}

static void *same(void *arg)
{
	char x;
	if (pread(file, &x, 1, 0) != 1)
		abort();
	h++; // race wrong_way
	return arg;
}

int main(void)
{
	if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || pipe(back) || pipe(there) || pipe(polled))
		return 1;
	event = eventfd(0, 0);
	both(writes_pipe, reads_pipe);
	both(sends, receives);
	both(counts, is_counted);
	both(is_woken, wakes);
	if (fork() == 0) { // passes on what it is told
		char x;
		_exit(read(there[0], &x, 1) != 1 || write(back[1], &x, 1) != 1);
	}
	both(asks_child, hears_child);
	int status;
	wait(&status);
	both(polls, makes_ready);
	file = open("/proc/self/exe", O_RDONLY);
	both(reads_the_other_way, same);
	return status;
}
