// A thread in each kind of wait, while the first stops everybody again and again; then each wait ends as it would have. The arguments: how often, and how far behind the agent's pthread_create rs_guard_begin and _stop are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int pipes[2], queue, semaphores, epoll;
static sem_t sem;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t spinner;
static atomic_int over, handled, ready;
static volatile int signalled;

static void handler(int sig)
{
	signalled = sig;
	handled = 1;
}

static long wait_read(void) { char c; return read(pipes[0], &c, 1) - 1; }
static long wait_poll(void) { struct pollfd p = {pipes[0], POLLIN, 0}; return poll(&p, 1, -1) - 1; }
static long wait_poll_ms(void) { return poll(NULL, 0, 300); }
static long wait_select(void) { fd_set s; FD_ZERO(&s); FD_SET(pipes[0], &s); return select(pipes[0] + 1, &s, NULL, NULL, NULL) - 1; }
static long wait_select_ms(void) { struct timeval tv = {0, 300000}; return select(0, NULL, NULL, NULL, &tv); }
static long wait_epoll(void) { struct epoll_event e; return epoll_wait(epoll, &e, 1, -1) - 1; }
static long wait_epoll_ms(void) { struct epoll_event e; int own = epoll_create1(0); long r = epoll_wait(own, &e, 1, 300); close(own); return r; }
static long wait_nanosleep(void) { struct timespec ts = {0, 300000000}; return nanosleep(&ts, NULL); }
static long wait_nanosleep_rest(void) { struct timespec ts = {0, 300000000}; return nanosleep(&ts, &ts); }
static long wait_sleep(void) { return sleep(1); }
static long wait_syscall(void) { struct timespec ts = {0, 300000000}; return syscall(SYS_nanosleep, &ts, NULL); }
static long wait_sem(void) { return sem_wait(&sem); }
static long wait_semop(void) { struct sembuf op = {0, -1, 0}; return semop(semaphores, &op, 1); }
static long wait_msgrcv(void) { struct { long type; char text[8]; } m; return msgrcv(queue, &m, sizeof m.text, 0, 0) - 1; }
static long wait_join(void) { return pthread_join(spinner, NULL); }
static long wait_signal(void) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR2); return sigwaitinfo(&s, NULL) - SIGUSR2; }
static long wait_pause(void) { long r = pause(); return r == -1 && errno == EINTR && handled ? 0 : -1; }
static long wait_suspend(void) { sigset_t s; sigemptyset(&s); long r = sigsuspend(&s); return r == -1 && errno == EINTR && handled ? 0 : -1; }
static long wait_lock(void) { int r = pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); return r; }
static long wait_cond(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&m);
	int r = 0;
	while (!over && r == 0)
		r = pthread_cond_wait(&cond, &m);
	pthread_mutex_unlock(&m);
	return r;
}

static const struct { const char *name; long (*f)(void); } waits[] = {
	{"read", wait_read}, {"poll", wait_poll}, {"poll ms", wait_poll_ms}, {"select", wait_select}, {"select ms", wait_select_ms}, {"epoll", wait_epoll}, {"epoll ms", wait_epoll_ms},
	{"nanosleep", wait_nanosleep}, {"nanosleep rest", wait_nanosleep_rest}, {"sleep", wait_sleep}, {"syscall", wait_syscall}, {"sem", wait_sem}, {"semop", wait_semop}, {"msgrcv", wait_msgrcv},
	{"join", wait_join}, {"signal", wait_signal}, {"pause", wait_pause}, {"suspend", wait_suspend}, {"lock", wait_lock}, {"cond", wait_cond},
};
enum { N = sizeof waits / sizeof waits[0] };
static long result[N];
static int error[N];

static void *spin(void *p)
{
	while (!over)
		;
	return p;
}

static void *thread(void *p)
{
	long i = (long)p;
	ready++;
	result[i] = waits[i].f();
	error[i] = errno;
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[2]));
	long (*stop)(void) = (long (*)(void))(agent + atol(argv[3]));
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGUSR1, &sa, NULL);
	if (pipe(pipes) != 0 || (queue = msgget(IPC_PRIVATE, 0600)) < 0 || (semaphores = semget(IPC_PRIVATE, 1, 0600)) < 0 || (epoll = epoll_create1(0)) < 0)
		return 3;
	struct epoll_event e = {EPOLLIN, {0}};
	epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e);
	sem_init(&sem, 0, 0);
	pthread_mutex_lock(&lock);
	pthread_t t[N];
	pthread_create(&spinner, NULL, spin, NULL);
	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, thread, (void *)i);
	while (ready < N)
		sched_yield();
	long r = begin(0);
	for (int i = 0; i < atoi(argv[1]) && r == 0; i++)
		r = stop();
	if (r != 0)
		printf("%ld\n", r);
	over = 1;
	struct sembuf up = {0, 1, 0};
	struct { long type; char text[1]; } m = {1, {'x'}};
	sem_post(&sem);
	semop(semaphores, &up, 1);
	msgsnd(queue, &m, 1, 0);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < N; i++) {
		while (pthread_tryjoin_np(t[i], NULL) == EBUSY) {
			// Whoever had not begun its wait yet is told again.
			if (waits[i].f == wait_signal)
				pthread_kill(t[i], SIGUSR2);
			if (waits[i].f == wait_pause || waits[i].f == wait_suspend)
				pthread_kill(t[i], SIGUSR1);
			if (waits[i].f == wait_read && write(pipes[1], "xyz", 3) != 3)
				return 4;
			pthread_cond_broadcast(&cond);
			struct timespec ts = {0, 1000000};
			nanosleep(&ts, NULL);
		}
		if (result[i] != 0)
			printf("%s: %ld, errno %d\n", waits[i].name, result[i], error[i]);
	}
	msgctl(queue, IPC_RMID, NULL);
	semctl(semaphores, 0, IPC_RMID);
	puts("well");
	return 0;
}
