// What functions leave below the stack pointer, which later ones find in variables that they do not set: leaves KIND. It is hashed behind each call of the kind, and so is what clocks and calls give, so what is not the same in a re-execution is another hash.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 60, TIMES = 20, WORDS = 96 };
static __thread uint64_t hash;
static uint64_t sum[2];

static __attribute__((noinline)) void look(void)
{
	uint64_t left[WORDS], *p = left;
	__asm__ volatile("" : "+r"(p) : : "memory"); // not set, and read all the same
	for (int i = 0; i < WORDS; i++)
		hash = (hash ^ p[i]) * 0x9e3779b97f4a7c15ull + 1;
}

static void also(uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ull + 1; }

// What the function before it left in the registers of arguments that nobody gave.
static __attribute__((noinline)) void registers(int none, ...)
{
	va_list l;
	va_start(l, none);
	for (int i = 0; i < 5; i++)
		also(va_arg(l, uint64_t));
	va_end(l);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static pthread_barrier_t barrier;
static uint64_t shared;
static void handler(int sig) { (void)sig; }

static void sigactions(void)
{
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGUSR1, &sa, NULL);
	look();
}

static void mutexes(void)
{
	pthread_mutex_lock(&mutex);
	registers(0);
	look();
	shared++;
	pthread_mutex_unlock(&mutex);
	registers(0);
	look();
}

static void rwlocks(void)
{
	pthread_rwlock_wrlock(&rw);
	registers(0);
	look();
	shared++;
	pthread_rwlock_unlock(&rw);
	registers(0);
	look();
}

static void semaphores(void)
{
	sem_wait(&sem);
	registers(0);
	look();
	shared++;
	sem_post(&sem);
	registers(0);
	look();
}

static void barriers(void)
{
	pthread_barrier_wait(&barrier);
	registers(0);
	look();
}

/* What they say, too. */
static void clocks(void)
{
	static const clockid_t ids[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_THREAD_CPUTIME_ID};
	struct timespec t;
	struct timeval v;
	struct timezone z;
	time_t s;
	for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++) {
		clock_gettime(ids[i], &t);
		registers(0);
		look();
		also((uint64_t)t.tv_sec << 32 ^ (uint64_t)t.tv_nsec);
	}
	gettimeofday(&v, NULL);
	look();
	also((uint64_t)v.tv_sec << 32 ^ (uint64_t)v.tv_usec);
	gettimeofday(&v, (void *)&z);
	look();
	also((uint64_t)v.tv_usec);
	also((uint64_t)time(NULL));
	look();
	also((uint64_t)time(&s) ^ (uint64_t)s);
	look();
}

/* Of which most are noted by functions of their own, and some are not: more than one descriptor, a file's, a call that fails. */
static void calls(void)
{
	static __thread int ends[2], queue, file;
	char text[80] = "what one end gives the other one takes, here of some length and there of another";
	if (!ends[1]) {
		struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0x1234567890};
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || (queue = epoll_create1(0)) < 0 || epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &e) || (file = open("/dev/zero", O_RDONLY)) < 0)
			exit(3);
	}
	struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
	struct epoll_event e = {0};
	struct iovec v = {text, 33};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	also((uint64_t)send(ends[1], text, 17, 0) << 32 ^ (uint64_t)write(ends[1], text, 80));
	look();
	also((uint64_t)sendmsg(ends[1], &m, 0) ^ (uint64_t)getppid());
	look();
	also((uint64_t)poll(fds, 1, 1000) ^ (uint64_t)fds[0].revents << 8);
	look();
	also((uint64_t)poll(fds, 2, 0) ^ (uint64_t)fds[1].revents << 8);
	look();
	also((uint64_t)epoll_wait(queue, &e, 1, 1000) ^ e.data.u64);
	look();
	also((uint64_t)read(ends[0], text, 50));
	look();
	also((uint64_t)recv(ends[0], text, 80, 0) ^ (uint64_t)text[79]);
	look();
	also((uint64_t)recv(ends[0], text, 80, MSG_DONTWAIT) ^ (uint64_t)recv(ends[0], text, 80, MSG_DONTWAIT));
	look();
	also((uint64_t)read(file, text, 64) ^ (uint64_t)read(-1, text, 64));
	look();
}

static void *brief(void *arg) { return arg; }
static void births(void)
{
	pthread_t t;
	pthread_create(&t, NULL, brief, NULL);
	look();
	pthread_join(t, NULL);
	look();
}

/* Signals come wherever the thread is, and what the kernel writes for one lies where later frames do. */
static pthread_t id[2];
static __thread int me;
static __attribute__((noinline)) void deep(void)
{
	uint64_t left[512], *p = left;
	__asm__ volatile("" : "+r"(p) : : "memory");
	getppid(); // here it is handled, below
	for (int i = 0; i < 512; i++)
		also(p[i]);
}

static void signals(void)
{
	pthread_sigqueue(id[!me], SIGRTMIN, (union sigval){.sival_int = 1});
	for (volatile int i = 0; i < 20000; i++)
		;
	deep();
}

static const struct kind { const char *name; void (*f)(void); } kinds[] = {{"sigactions", sigactions}, {"mutexes", mutexes}, {"rwlocks", rwlocks}, {"semaphores", semaphores}, {"barriers", barriers}, {"clocks", clocks}, {"calls", calls}, {"births", births}, {"signals", signals}};
static void (*f)(void);

static void *work(void *arg)
{
	struct timespec soon = {0, 1000000};
	me = arg == &sum[1];
	id[me] = pthread_self();
	pthread_barrier_wait(&barrier);
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < TIMES; i++)
			f();
		nanosleep(&soon, NULL);
	}
	*(uint64_t *)arg = hash;
	pthread_barrier_wait(&barrier); // nobody is sent a signal who has ended
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (argc == 2 && !strcmp(argv[1], kinds[i].name))
			f = kinds[i].f;
	if (!f)
		return 2;
	sem_init(&sem, 0, 1);
	sigaction(SIGRTMIN, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t, NULL, work, &sum[1]);
	work(&sum[0]);
	pthread_join(t, NULL);
	puts(argv[1]);
	return 0;
}
