// Who waits in the kernel is first given what it waits for and then sent a signal, whose handler does not ask for calls to be made again: no such call fails with EINTR, as the kernel looks at what it waits for first. told KIND: poll, epoll, read, signal.
// Prints how often each was told, and how many calls failed.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS = 12, ROUNDS = 400 };
static const char *kind;
static struct pair { pthread_t id; int to[2], back[2], epoll; sem_t sent; int failed, told; } pairs[PAIRS];
static volatile int heard;

static void hear(int sig) { heard += sig != 0; }

static int once(struct pair *p)
{
	char c;
	int fd = p->to[0];
	struct pollfd poll_for = {fd, POLLIN, 0};
	struct epoll_event e;
	sigset_t set;
	struct timespec most = {10, 0};
	if (!strcmp(kind, "poll"))
		return poll(&poll_for, 1, 10000) == 1 && read(fd, &c, 1) == 1;
	if (!strcmp(kind, "epoll"))
		return epoll_wait(p->epoll, &e, 1, -1) == 1 && read(fd, &c, 1) == 1;
	if (!strcmp(kind, "signal")) {
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		return sigtimedwait(&set, NULL, &most) == SIGUSR2;
	}
	return read(fd, &c, 1) == 1;
}

static void *reader(void *arg)
{
	struct pair *p = arg;
	for (int i = 0; i < ROUNDS; i++) {
		errno = 0;
		while (!once(p)) {
			p->failed++;
			if (errno != EINTR)
				exit(3);
		}
		p->told++;
		while (sem_wait(&p->sent) < 0)
			;
		if (write(p->back[1], "", 1) != 1)
			exit(3);
	}
	return NULL;
}

static void *writer(void *arg)
{
	struct pair *p = arg;
	char c;
	for (int i = 0; i < ROUNDS; i++) {
		for (volatile int k = 0; k < 20000; k++)
			;
		if (!strcmp(kind, "signal"))
			pthread_kill(p->id, SIGUSR2);
		else if (write(p->to[1], "", 1) != 1)
			exit(3);
		pthread_kill(p->id, SIGUSR1);
		sem_post(&p->sent);
		if (read(p->back[0], &c, 1) != 1)
			exit(3);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = hear};
	pthread_t id[PAIRS];
	sigset_t set;
	int told = 0, failed = 0;
	if (argc != 2)
		return 2;
	kind = argv[1];
	sigaction(SIGUSR1, &act, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < PAIRS; i++) {
		struct pair *p = &pairs[i];
		if (pipe(p->to) < 0 || pipe(p->back) < 0 || (p->epoll = epoll_create1(0)) < 0)
			return 3;
		struct epoll_event e = {.events = EPOLLIN};
		epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->to[0], &e);
		sem_init(&p->sent, 0, 0);
		pthread_create(&p->id, NULL, reader, p);
	}
	for (int i = 0; i < PAIRS; i++)
		pthread_create(&id[i], NULL, writer, &pairs[i]);
	for (int i = 0; i < PAIRS; i++) {
		pthread_join(id[i], NULL);
		pthread_join(pairs[i].id, NULL);
		told += pairs[i].told, failed += pairs[i].failed;
	}
	printf("%d %d\n", told, failed);
	return 0;
}
