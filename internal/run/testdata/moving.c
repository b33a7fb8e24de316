// Calls that move many bytes and wait until all are moved, or until a signal comes: how many they say they moved, and that none is moved twice or not at all. moving FILE.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "moving.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { BYTES = 600000, PIECES = 100, RESTS = 65536 };

static unsigned char data[BYTES], got[BYTES];
static int from, to;
static size_t wanted;

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000};
	nanosleep(&ts, NULL);
}

// Takes them slowly, and is 150 ms in all.
static void *taker(void *arg)
{
	size_t n = 0;
	for (int i = 0; n < wanted; i++) {
		if (i < 30)
			pause_ms(5);
		ssize_t r = read(from, got + n, wanted - n < BYTES / 30 ? wanted - n : BYTES / 30);
		MUST(r > 0);
		n += (size_t)r;
	}
	return arg;
}

static void *giver(void *arg)
{
	for (size_t n = 0; n < BYTES; n += BYTES / 30) {
		pause_ms(5);
		MUST(write(to, data + n, BYTES / 30) == BYTES / 30);
	}
	return arg;
}

static void pair(int socket)
{
	int fd[2];
	MUST((socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fd) : pipe(fd)) == 0);
	from = fd[0], to = fd[1];
}

static void finish(const char *name, pthread_t other, ssize_t said)
{
	MUST(pthread_join(other, NULL) == 0);
	printf("%s: %zd, %s\n", name, said, memcmp(got, data, BYTES) ? "others" : "the same");
	memset(got, 0, BYTES);
	close(from);
	close(to);
}

static pthread_t begin(int socket, void *(*other)(void *))
{
	pthread_t t;
	pair(socket);
	wanted = BYTES;
	MUST(pthread_create(&t, NULL, other, NULL) == 0);
	return t;
}

static volatile int handled;
static void handler(int sig) { handled += sig == SIGALRM; }

// What was moved when the signal came.
static void interrupted(int flags, int vector)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
	struct itimerval in = {.it_value = {0, 120000}};
	struct iovec v[2] = {{data, 100}, {data + 100, BYTES - 100}};
	pair(0);
	handled = 0;
	MUST(sigaction(SIGALRM, &a, NULL) == 0 && setitimer(ITIMER_REAL, &in, NULL) == 0);
	ssize_t r = vector ? writev(to, v, 2) : write(to, data, BYTES);
	printf("interrupted: %zd, %d\n", r, handled);
	MUST(read(from, got, RESTS) == RESTS && memcmp(got, data, RESTS) == 0);
	close(from);
	close(to);
}

int main(int argc, char **argv)
{
	struct iovec v[PIECES];
	struct msghdr m = {.msg_iov = v, .msg_iovlen = PIECES};
	pthread_t t;
	MUST(argc == 2);
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60); // who waits for the rest
	for (int i = 0; i < BYTES; i++)
		data[i] = (unsigned char)((unsigned)i * 2654435761u >> 13);
	for (int i = 0; i < PIECES; i++)
		v[i] = (struct iovec){data + BYTES / PIECES * i, BYTES / PIECES};
	int fd = open(argv[1], O_CREAT | O_RDWR, 0600);
	MUST(fd >= 0 && write(fd, data, BYTES) == BYTES);

	t = begin(0, taker);
	finish("write", t, write(to, data, BYTES));
	t = begin(0, taker);
	finish("writev", t, writev(to, v, PIECES));
	t = begin(1, taker);
	finish("send", t, send(to, data, BYTES, 0));
	t = begin(1, taker);
	finish("sendmsg", t, sendmsg(to, &m, 0));
	off_t at = 0;
	t = begin(1, taker);
	finish("sendfile", t, sendfile(to, fd, &at, BYTES));
	printf("at %ld\n", (long)at);
	t = begin(1, giver);
	finish("recv", t, recv(from, got, BYTES, MSG_WAITALL));

	for (int i = 0; i < 4; i++)
		interrupted(i & 1 ? SA_RESTART : 0, i >> 1);
	// Who does not wait is told how many there was room for.
	pair(0);
	MUST(fcntl(to, F_SETFL, O_NONBLOCK) == 0);
	printf("not waiting: %zd\n", write(to, data, BYTES));
	return 5;
}
