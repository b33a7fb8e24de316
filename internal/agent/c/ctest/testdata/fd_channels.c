/* fd_channels.c: one writer and one reader over each kind of channel; prints the two descriptors of each. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void pass(const char *name, int w, int r)
{
	char c = 'x';
	int a = (int)write(w, "y", 1), b = (int)read(r, &c, 1);
	printf("%s %d %d : %d %d %c\n", name, w, r, a, b, c);
}

int main(void)
{
	int p[2], s[2], q[2];
	char buf[8] = "";
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;

	if (pipe(p) || socketpair(AF_UNIX, SOCK_STREAM, 0, s) || pipe2(q, O_CLOEXEC))
		return 1;
	pass("pipe", p[1], p[0]);
	pass("socketpair", s[0], s[1]);
	pass("socketpair-back", s[1], s[0]);
	int d = dup(p[1]);
	pass("dup", d, p[0]);

	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &n) ||
	    connect(c, (struct sockaddr *)&a, sizeof a))
		return 2;
	int k = accept(l, NULL, NULL);
	pass("tcp", c, k);
	pass("tcp-back", k, c);

	int e = eventfd(0, 0);
	uint64_t v = 3;
	ssize_t x = write(e, &v, sizeof v), y = read(e, &v, sizeof v);
	printf("eventfd %d %d : %zd %zd %d\n", e, e, x, y, (int)v);

	char path[] = "/tmp/ripstop-fd-XXXXXX";
	int f = mkstemp(path), g = open(path, O_RDONLY);
	unlink(path);
	struct iovec iov = {"file", 4}, in = {buf, 4};
	x = writev(f, &iov, 1), y = readv(g, &in, 1);
	printf("file %d %d : %zd %zd %s\n", f, g, x, y, buf);

	/* What poll, select and epoll find ready is acquired, without a read. */
	x = write(q[1], "z", 1);
	struct pollfd pf = {q[0], POLLIN, 0};
	printf("poll %d %d : %d\n", q[1], q[0], poll(&pf, 1, 0));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(q[0], &set);
	struct timeval now = {0, 0};
	printf("select %d %d : %d\n", q[1], q[0], select(q[0] + 1, &set, NULL, NULL, &now));
	int ep = epoll_create1(0);
	struct epoll_event ev = {EPOLLIN, {.u64 = 0x1234567890ull}}, out;
	epoll_ctl(ep, EPOLL_CTL_ADD, q[0], &ev);
	printf("epoll %d %d : %d\n", q[1], q[0], epoll_wait(ep, &out, 1, 0));

	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	int sf = signalfd(-1, &mask, 0);
	struct signalfd_siginfo si;
	raise(SIGUSR1);
	x = read(sf, &si, sizeof si);
	printf("signalfd %d %d : %zd %d\n", sf, sf, x, (int)si.ssi_signo);

	/* A descriptor's number means something else after close. */
	int old = p[0];
	close(p[0]);
	close(d);
	signal(SIGPIPE, SIG_IGN);
	x = write(p[1], "y", 1);
	printf("EPIPE %zd %d\n", x, errno == EPIPE);
	close(p[1]);
	if (pipe(p))
		return 3;
	printf("reused %d\n", p[0] == old);
	pass("again", p[1], p[0]);
	x = read(9999, buf, 1);
	printf("EBADF %zd %d\n", x, errno == EBADF);
	return 0;
}
