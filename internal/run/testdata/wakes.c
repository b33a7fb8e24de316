// One thread that waits for the other in the kernel, KIND by KIND, for so many rounds: wakes KIND ROUNDS. What they tell each other is in memory that nothing else orders: who waits makes ready what it waits for, says so by a pipe, and waits; the other one
// computes for a while, writes a word, and wakes it; it looks at the word. A re-execution in which it is woken before sees an older one. What is printed is the same in each run.
#define _GNU_SOURCE
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
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "wakes.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { SIGNAL = 40 };
static int rounds, ready[2], end[2], other[2], again[2], set; // ends: [0] is waited at, [1] is what wakes by
static struct sockaddr_in address;
static pthread_t waiter;
static timer_t timer;
static uint64_t word, seen;
static sigset_t signals;
static void mix(uint64_t *h, uint64_t x) { *h = (*h ^ x) * 0x9e3779b97f4a7c15ull + 1; }

static void say(int fd) { MUST(write(fd, "x", 1) == 1); }
static void hear(int fd)
{
	char c;
	MUST(read(fd, &c, 1) == 1);
}
static void hear_8(int fd)
{
	uint64_t n;
	MUST(read(fd, &n, 8) == 8);
}

// How it waits (`make` before it says that it is ready), and how it is woken.
static void make_pipe(void) { MUST(pipe(end) == 0); }
static void make_pair(void) { MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, end) == 0); }
static void drop(void) { MUST(close(end[0]) == 0 && close(end[1]) == 0); }
static void drop_one(void) { MUST(close(end[0]) == 0); }
static void nothing(void) {}

static void by_pipe(void) { say(end[1]); }
static void from_pipe(void) { hear(end[0]); }
static void by_close(void) { MUST(close(end[1]) == 0); }
static void to_end(void)
{
	char c;
	MUST(read(end[0], &c, 1) == 0);
}
static void by_dup(void) { MUST(dup2(ready[0], end[1]) == end[1]); }
static void by_send(void) { MUST(send(end[1], "x", 1, 0) == 1); }
static void by_message(void)
{
	struct iovec v = {"x", 1};
	MUST(sendmsg(end[1], &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, 0) == 1);
}
static void from_recv(void)
{
	char c;
	MUST(recv(end[0], &c, 1, 0) == 1);
}
static void from_message(void)
{
	char c;
	struct iovec v = {&c, 1};
	MUST(recvmsg(end[0], &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, 0) == 1);
}
static void by_shutdown(void) { MUST(shutdown(end[1], SHUT_WR) == 0); }
static void from_poll(void)
{
	struct pollfd p = {end[0], POLLIN, 0};
	MUST(poll(&p, 1, -1) == 1);
}
static void from_select(void)
{
	fd_set in;
	FD_ZERO(&in);
	FD_SET(end[0], &in);
	MUST(select(end[0] + 1, &in, NULL, NULL, NULL) == 1);
}
static void make_counter(void) { MUST((end[0] = end[1] = eventfd(0, 0)) >= 0); }
static void by_counter(void)
{
	uint64_t one = 1;
	MUST(write(end[1], &one, 8) == 8);
}
static void from_counter(void) { hear_8(end[0]); }
static void make_set(void)
{
	make_counter();
	MUST((set = epoll_create1(0)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, end[0], &(struct epoll_event){.events = EPOLLIN}) == 0);
}
static void make_set_full(void) // of nothing yet, and the counter has something
{
	make_counter();
	by_counter();
	MUST((set = epoll_create1(0)) >= 0);
}
static void by_added(void) { MUST(epoll_ctl(set, EPOLL_CTL_ADD, end[0], &(struct epoll_event){.events = EPOLLIN}) == 0); }
static void from_set(void)
{
	struct epoll_event e;
	MUST(epoll_wait(set, &e, 1, -1) == 1);
}
static void drop_set(void) { MUST(close(set) == 0 && close(end[0]) == 0); }
static void by_splice(void)
{
	say(again[1]);
	MUST(splice(again[0], NULL, end[1], NULL, 1, 0) == 1);
}

static void make_timer(void) { MUST((end[0] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0); }
static void by_timer(void) { MUST(timerfd_settime(end[0], 0, &(struct itimerspec){.it_value.tv_nsec = 1}, NULL) == 0); }
static void make_alarm(void)
{
	struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGNAL};
	MUST(timer_create(CLOCK_MONOTONIC, &e, &timer) == 0);
}
static void by_alarm(void) { MUST(timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = 1}, NULL) == 0); }
static void drop_alarm(void) { MUST(timer_delete(timer) == 0); }

static void by_signal(void) { MUST(pthread_kill(waiter, SIGNAL) == 0); }
static void by_queue(void) { MUST(pthread_sigqueue(waiter, SIGNAL, (union sigval){.sival_int = 7}) == 0); }
static void by_kill(void) { MUST(kill(getpid(), SIGNAL) == 0); }
static void from_signal(void)
{
	int n;
	MUST(sigwait(&signals, &n) == 0);
}
static void from_queue(void)
{
	siginfo_t info;
	MUST(sigtimedwait(&signals, &info, &(struct timespec){60, 0}) == SIGNAL && info.si_value.sival_int == 7);
}
static void make_signals(void) { MUST((end[0] = signalfd(-1, &signals, 0)) >= 0); }
static void from_signals(void)
{
	struct signalfd_siginfo info;
	MUST(read(end[0], &info, sizeof info) == sizeof info);
}

static void by_connect(void) { MUST((end[1] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(end[1], (struct sockaddr *)&address, sizeof address) == 0); }
static void from_accept(void) { MUST((end[0] = accept(set, NULL, NULL)) >= 0); }

// Most of the time it is in here, where libc has all signals blocked.
static void by_looking(void)
{
	for (int i = 0; i < 1000; i++)
		MUST(pthread_kill(waiter, 0) == 0);
	by_pipe();
}

// By another process, which passes on what it is given.
static void by_other(void) { say(other[1]); }
static void from_other(void) { hear(other[0]); }

static const struct kind { const char *name; void (*make)(void), (*wake)(void), (*wait)(void), (*drop)(void); } kinds[] = {
	{"pipe", make_pipe, by_pipe, from_pipe, drop}, {"closed", make_pipe, by_close, to_end, drop_one}, {"dup2", make_pipe, by_dup, to_end, drop}, {"poll", make_pipe, by_pipe, from_poll, drop}, {"select", make_pipe, by_pipe, from_select, drop},
	{"splice", make_pipe, by_splice, from_pipe, drop}, {"socket", make_pair, by_send, from_recv, drop}, {"message", make_pair, by_message, from_message, drop}, {"shutdown", make_pair, by_shutdown, to_end, drop},
	{"connect", nothing, by_connect, from_accept, drop}, {"eventfd", make_counter, by_counter, from_counter, drop_one}, {"epoll", make_set, by_counter, from_set, drop_set}, {"epoll_ctl", make_set_full, by_added, from_set, drop_set},
	{"timerfd", make_timer, by_timer, from_counter, drop_one}, {"timer", make_alarm, by_alarm, from_signal, drop_alarm}, {"signal", nothing, by_signal, from_signal, nothing}, {"queue", nothing, by_queue, from_queue, nothing},
	{"kill", nothing, by_kill, from_signal, nothing}, {"signalfd", make_signals, by_signal, from_signals, drop_one}, {"looked", make_pipe, by_looking, from_pipe, drop},
	{"process", nothing, by_other, from_other, nothing},
};
static const struct kind *kind;

static void *waits(void *arg)
{
	for (int r = 0; r < rounds; r++) {
		kind->make();
		say(ready[1]);
		kind->wait();
		mix(&seen, word);
		kind->drop();
	}
	return arg;
}

static void pass_on(void)
{
	int in[2], out[2];
	MUST(pipe(in) == 0 && pipe(out) == 0);
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		close(in[1]), close(out[0]);
		for (char c; read(in[0], &c, 1) == 1;)
			if (write(out[1], &c, 1) != 1)
				break;
		_exit(0);
	}
	close(in[0]), close(out[1]);
	other[0] = out[0], other[1] = in[1];
}

int main(int argc, char **argv)
{
	socklen_t length = sizeof address;
	pthread_t t;
	for (unsigned i = 0; argc == 3 && i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(argv[1], kinds[i].name))
			kind = &kinds[i];
	if (!kind)
		return 2;
	rounds = atoi(argv[2]);
	sigemptyset(&signals);
	sigaddset(&signals, SIGNAL);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	MUST(pipe(ready) == 0 && pipe(again) == 0);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (kind->wake == by_connect)
		MUST((set = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && bind(set, (struct sockaddr *)&address, sizeof address) == 0 && listen(set, 8) == 0 && getsockname(set, (struct sockaddr *)&address, &length) == 0);
	if (kind->wake == by_other)
		pass_on();
	MUST(pthread_create(&t, NULL, waits, NULL) == 0);
	waiter = t;
	for (int r = 0; r < rounds; r++) {
		uint64_t h = (uint64_t)r;
		hear(ready[0]);
		for (int i = 0; i < 500000; i++)
			mix(&h, (uint64_t)i);
		word = h;
		kind->wake();
	}
	pthread_join(t, NULL);
	printf("%lx\n", seen);
	return 0;
}
