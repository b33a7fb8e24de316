// A descriptor is closed while another thread uses it, or after it: the number may mean another file by then. And closes that are right, of numbers that are given again above all.
#include "../run.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static int pipes[2], fd, fd2, fd3, fd4, fd5, fd6, ep, twice, target;
#define MUST(x) do { if (!(x)) abort(); } while (0)

static int null(void) { return open("/dev/null", O_RDWR); }

// Wrongly: used, then closed by another.
static void *writes(void *p)
{
	MUST(write(fd, "x", 1) == 1); // race write_and_close
	unseen_done();
	return p;
}
static void *closes(void *p)
{
	unseen_wait();
	close(fd); // race write_and_close
	return p;
}

// Wrongly: closed, then used.
static void *closes_first(void *p)
{
	close(fd2); // race close_and_read
	unseen_done();
	return p;
}
static void *reads_late(void *p)
{
	char c;
	unseen_wait();
	MUST(read(fd2, &c, 1) == -1 && errno == EBADF); // race close_and_read
	return p;
}

// Wrongly: closed while another waits for it, or before.
static void *waits(void *p)
{
	struct pollfd both[2] = {{fd3, POLLIN, 0}, {pipes[0], POLLIN, 0}};
	poll(both, 2, -1); // race poll_and_close
	return p;
}
static void *closes_and_wakes(void *p)
{
	close(fd3); // race poll_and_close
	MUST(write(pipes[1], "x", 1) == 1);
	return p;
}

static void *copies(void *p)
{
	dup2(fd4, target); // race copy_and_close
	unseen_done();
	return p;
}
static void *closes_copied(void *p)
{
	unseen_wait();
	close(fd4); // race copy_and_close
	return p;
}

static void *selects(void *p)
{
	fd_set set;
	struct timeval now = {0, 0};
	FD_ZERO(&set);
	FD_SET(fd5, &set);
	select(fd5 + 1, &set, 0, 0, &now); // race select_and_close
	unseen_done();
	return p;
}
static void *closes_selected(void *p)
{
	unseen_wait();
	close(fd5); // race select_and_close
	return p;
}

static void *waits_for_events(void *p)
{
	struct epoll_event e;
	epoll_wait(ep, &e, 1, 0); // race epoll_and_close
	unseen_done();
	return p;
}
static void *closes_epoll(void *p)
{
	unseen_wait();
	close(ep); // race epoll_and_close
	return p;
}

// Wrongly: what comes first is the other's, and what comes second nobody's, or a third one's.
static void *closes_once(void *p)
{
	close(twice); // race twice_closed
	unseen_done();
	return p;
}
static void *closes_again(void *p)
{
	unseen_wait();
	close(twice); // race twice_closed
	return p;
}

// Wrongly: the number was given to somebody else when the second thread closes it.
static void *closes_own(void *p)
{
	int mine = null();
	MUST(mine == fd6);
	MUST(write(mine, "x", 1) == 1); // race anothers_closed
	unseen_done();
	return p;
}
static void *closes_anothers(void *p)
{
	unseen_wait();
	close(fd6); // race anothers_closed
	return p;
}

// Rightly: joined.
static void *writes_right(void *p) { MUST(write(fd, "x", 1) == 1); return p; }

// Rightly: the last user closes it, as the lock tells.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int users = 2;
static void *uses_locked(void *p)
{
	MUST(write(fd, "x", 1) == 1);
	pthread_mutex_lock(&mutex);
	int last = --users == 0;
	pthread_mutex_unlock(&mutex);
	if (last)
		close(fd);
	return p;
}

// Rightly: each has its own, and gets the same number.
static int numbers[2];
static void *opens_first(void *p)
{
	int mine = null();
	MUST(write(mine, "x", 1) == 1);
	close(numbers[0] = mine);
	unseen_done();
	return p;
}
static void *opens_second(void *p)
{
	unseen_wait();
	int mine = null();
	MUST(write(mine, "x", 1) == 1);
	close(numbers[1] = mine);
	return p;
}
// … by a call that is not seen.
static void *makes_memory(void *p)
{
	unseen_wait();
	int mine = memfd_create("x", 0);
	MUST(write(mine, "x", 1) == 1);
	close(numbers[1] = mine);
	return p;
}
// … closed by a stream, and given again unseen.
static void *gives_to_stream(void *p)
{
	int mine = null();
	MUST(write(numbers[0] = mine, "x", 1) == 1);
	fclose(fdopen(mine, "w"));
	unseen_done();
	return p;
}
// … opened by one, and closed by it.
static void *streams(void *p)
{
	unseen_wait();
	FILE *f = fopen("/dev/null", "w");
	MUST(write(numbers[1] = fileno(f), "x", 1) == 1);
	fclose(f);
	return p;
}
// … by the system call itself.
static void *calls_itself(void *p)
{
	unseen_wait();
	int mine = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
	MUST(write(numbers[1] = mine, "x", 1) == 1);
	syscall(SYS_close, mine);
	return p;
}

// Rightly: each thread's own, a thousand times.
static void *opens_and_closes(void *p)
{
	for (int i = 0; i < 200; i++) {
		int two[2], copy;
		MUST(pipe(two) == 0 && (copy = dup(two[1])) >= 0 && write(copy, "x", 1) == 1);
		close(copy);
		close(two[1]);
		close(two[0]);
		int f = null();
		MUST(write(f, "x", 1) == 1);
		close(f);
	}
	return p;
}

// Rightly: who reads the last byte knows that the writer is done.
static void *writes_last(void *p) { MUST(write(pipes[1], "x", 1) == 1); return p; }
static void *reads_last(void *p)
{
	char c;
	MUST(read(pipes[0], &c, 1) == 1);
	close(pipes[1]);
	close(pipes[0]);
	return p;
}

// Rightly: likewise through a socket that has a name.
static int sockets[2];
static void *sends_last(void *p) { MUST(send(sockets[0], "x", 1, 0) == 1); return p; }
static void *receives_last(void *p)
{
	char c;
	MUST(recv(sockets[1], &c, 1, 0) == 1);
	close(sockets[0]);
	close(sockets[1]);
	return p;
}
static void named_sockets(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int listens = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(name.sun_path + 1, 64, "ripstop-test-%d", (int)getpid());
	sockets[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	MUST(bind(listens, (struct sockaddr *)&name, sizeof name) == 0 && listen(listens, 1) == 0 && connect(sockets[0], (struct sockaddr *)&name, sizeof name) == 0);
	sockets[1] = accept(listens, 0, 0);
	close(listens);
}

// Rightly: epoll knows that what it watches is closed.
static int watched[2];
static void *watches(void *p)
{
	struct epoll_event e;
	MUST(epoll_wait(ep, &e, 1, -1) == 1 && e.data.fd == pipes[0]);
	return p;
}
static void *closes_watched(void *p)
{
	close(watched[0]);
	MUST(write(pipes[1], "x", 1) == 1);
	return p;
}

// Rightly: a log file is replaced under the hands of those who write.
static int log_file;
static void *logs(void *p)
{
	for (int i = 0; i < 100; i++)
		MUST(write(log_file, "x", 1) == 1);
	return p;
}
static void *rotates(void *p)
{
	for (int i = 0; i < 20; i++) {
		int next = null();
		MUST(dup2(next, log_file) == log_file);
		close(next);
	}
	return p;
}

// Rightly: asks whether there is such a descriptor.
static void *asks(void *p)
{
	unseen_wait();
	for (int i = 3; i < 100; i++)
		fcntl(i, F_GETFD);
	return p;
}

static void same_number(void *(*first)(void *), void *(*second)(void *))
{
	unseen(first, second);
	MUST(numbers[0] == numbers[1]);
}

int main(void)
{
	MUST(pipe(pipes) == 0);
	fd = null();
	unseen(writes, closes);
	fd2 = null();
	unseen(closes_first, reads_late);
	int never[2];
	MUST(pipe(never) == 0);
	fd3 = never[0];
	both(waits, closes_and_wakes);
	close(never[1]);
	close(pipes[0]);
	close(pipes[1]);
	fd4 = null();
	target = null();
	unseen(copies, closes_copied);
	close(target);
	fd5 = null();
	unseen(selects, closes_selected);
	ep = epoll_create1(0);
	unseen(waits_for_events, closes_epoll);
	twice = null();
	unseen(closes_once, closes_again);
	close(fd6 = null());
	unseen(closes_own, closes_anothers);

	pthread_t thread;
	fd = null();
	pthread_create(&thread, 0, writes_right, 0);
	pthread_join(thread, 0);
	close(fd);
	fd = null();
	both(uses_locked, uses_locked);
	same_number(opens_first, opens_second);
	same_number(opens_first, makes_memory);
	same_number(gives_to_stream, makes_memory);
	same_number(opens_first, streams);
	same_number(opens_first, calls_itself);
	both(opens_and_closes, opens_and_closes);
	MUST(pipe(pipes) == 0);
	both(writes_last, reads_last);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	both(sends_last, receives_last);
	named_sockets();
	both(sends_last, receives_last);
	ep = epoll_create1(0);
	MUST(pipe(pipes) == 0 && pipe(watched) == 0);
	struct epoll_event e = {.events = EPOLLIN, .data.fd = watched[0]};
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, watched[0], &e) == 0);
	e.data.fd = pipes[0];
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &e) == 0);
	both(watches, closes_watched);
	close(ep);
	log_file = null();
	both(logs, rotates);
	close(log_file);
	unseen(opens_first, asks);
	fd = null();
	if (fork() == 0) {
		for (int i = 3; i < 100; i++)
			close(i);
		MUST(write(fd, "x", 1) == -1);
		_exit(0);
	}
	wait(0);
	MUST(write(fd, "x", 1) == 1);
	close(fd);
	return 0;
}
