// What orders threads, each as it orders and once as it does not: conditions, once, keys, C11's threads, joins by name and time, signals, descriptors of all kinds, file locks, libraries that are opened, processes.
#include "../run.h"
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <threads.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

// A wait that times out orders nothing but by its mutex.
int by_cond, after_wait;
static int signalled;
static void *signals_cond(void *p)
{
	by_cond++;
	pthread_mutex_lock(&mutex);
	signalled = 1;
	pthread_mutex_unlock(&mutex);
	pthread_cond_signal(&cond);
	after_wait++; // race after_signal
	return p;
}
static void *waits_cond(void *p)
{
	pthread_mutex_lock(&mutex);
	while (!signalled)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	by_cond++;
	after_wait++; // race after_signal
	return p;
}
// Who takes a robust mutex of a thread that has ended comes after what that did: it was told as a race. Who does not take it does not.
int by_robust, beside_robust;
static pthread_mutex_t robust;
static void *ends_with_it(void *p)
{
	pthread_mutex_lock(&robust);
	by_robust++;
	beside_robust++; // race beside_robust
	unseen_done();
	return p;
}
static void *takes_it_over(void *p)
{
	unseen_wait();
	beside_robust++; // race beside_robust
	MUST(pthread_mutex_lock(&robust) == EOWNERDEAD && pthread_mutex_consistent(&robust) == 0);
	by_robust++;
	pthread_mutex_unlock(&robust);
	return p;
}
int timed_out;
static pthread_cond_t nobodys = PTHREAD_COND_INITIALIZER;
static void *times_out(void *p)
{
	struct timespec past = {0, 0};
	pthread_mutex_lock(&mutex);
	MUST(pthread_cond_timedwait(&nobodys, &mutex, &past) == ETIMEDOUT);
	pthread_mutex_unlock(&mutex);
	timed_out++; // race timed_out
	return p;
}

// Once: its initialiser comes before all who called it, and what follows does not.
static pthread_once_t once = PTHREAD_ONCE_INIT;
static once_flag c11_once = ONCE_FLAG_INIT;
int by_once, by_c11_once, after_once;
static void init(void) { by_once = 1; }
static void init_c11(void) { by_c11_once = 1; }
static void *calls_once(void *p)
{
	pthread_once(&once, init);
	call_once(&c11_once, init_c11);
	use(by_once + by_c11_once);
	after_once++; // race after_once
	return p;
}

// C11: mutexes of two kinds, conditions, storage; and beside them.
static mtx_t plain, timed;
static cnd_t c11_cond;
static int c11_ready;
int under_mtx, under_timed, beside_mtx, by_cnd, by_thrd;
static void *locks_mtx(void *p)
{
	struct timespec late = {1l << 40, 0};
	mtx_lock(&plain);
	under_mtx++;
	mtx_unlock(&plain);
	MUST(mtx_timedlock(&timed, &late) == thrd_success);
	under_timed++;
	mtx_unlock(&timed);
	beside_mtx++; // race beside_mtx
	return p;
}
static void *signals_cnd(void *p)
{
	by_cnd++;
	mtx_lock(&plain);
	c11_ready = 1;
	cnd_broadcast(&c11_cond);
	mtx_unlock(&plain);
	return p;
}
static void *waits_cnd(void *p)
{
	mtx_lock(&plain);
	while (!c11_ready)
		cnd_wait(&c11_cond, &plain);
	mtx_unlock(&plain);
	by_cnd++;
	return p;
}
static int starts(void *p)
{
	by_thrd++;
	return p != 0;
}

// A key's destructor runs in its thread's end: before a join, and after nothing else.
static pthread_key_t key;
int by_destructor, in_destructor;
static void destructor(void *v)
{
	use(v);
	by_destructor++;
	in_destructor++; // race in_destructor
}
static void *sets_key(void *p)
{
	pthread_setspecific(key, &key);
	return p;
}

// Joins that ask and that time out.
int joined;
static void *joins_itself(void *p) { joined++; return p; }

// A signal: what its sender did before comes before the handler; what it does afterwards does not.
static volatile sig_atomic_t handled;
int by_kill, after_kill;
static pthread_t handler_thread;
static void handler(int sig)
{
	use(sig);
	by_kill++;
	after_kill++; // race after_kill
	handled = 1;
}
static sem_t sem;
static void *handles(void *p)
{
	sem_post(&sem);
	while (!handled)
		sched_yield();
	return p;
}
static void *kills(void *p)
{
	sem_wait(&sem);
	by_kill++;
	pthread_kill(handler_thread, SIGUSR1);
	after_kill++; // race after_kill
	return p;
}

// Descriptors. Each: what comes before the write comes before what is behind the read; the rest does not.
static int fds[2], ep;
#define CHANNEL(name, send, ...) \
	int by_##name; \
	static void *sends_##name(void *p) { by_##name++; send; return p; } \
	static void *receives_##name(void *p) { __VA_ARGS__; by_##name++; return p; }
#define COMMA ,
CHANNEL(datagram, MUST(send(fds[0], "x", 1, 0) == 1), char c; MUST(recv(fds[1], &c, 1, 0) == 1))
CHANNEL(poll, MUST(write(fds[1], "x", 1) == 1), struct pollfd f = {.fd = fds[0], .events = POLLIN}; MUST(poll(&f, 1, -1) == 1 && read(fds[0], &(char){0}, 1) == 1))
CHANNEL(select, MUST(write(fds[1], "x", 1) == 1), fd_set s; FD_ZERO(&s); FD_SET(fds[0], &s); MUST(select(fds[0] + 1, &s, 0, 0, 0) == 1 && read(fds[0], &(char){0}, 1) == 1))
CHANNEL(signalfd, MUST(kill(getpid(), SIGUSR2) == 0), struct signalfd_siginfo i; MUST(read(fds[0], &i, sizeof i) == sizeof i))
CHANNEL(timerfd, struct itimerspec s = {.it_value.tv_nsec = 1}; MUST(timerfd_settime(fds[0], 0, &s, 0) == 0), unsigned long n; MUST(read(fds[0], &n, 8) == 8))
CHANNEL(mqueue, MUST(mq_send((mqd_t)fds[0], "x", 1, 0) == 0), char b[8]; MUST(mq_receive((mqd_t)fds[0], b, 8, 0) == 1))
CHANNEL(msg, struct { long t; char c; } m = {1 COMMA 2}; MUST(msgsnd(fds[0], &m, 1, 0) == 0), struct { long t; char c; } m; MUST(msgrcv(fds[0], &m, 1, 0, 0) == 1))
CHANNEL(semop, struct sembuf b = {0 COMMA 1 COMMA 0}; MUST(semop(fds[0], &b, 1) == 0), struct sembuf b = {0 COMMA -1 COMMA 0}; MUST(semop(fds[0], &b, 1) == 0))
CHANNEL(file, MUST(pwrite(fds[0], "x", 1, 0) == 1); unseen_done(), char c; unseen_wait(); MUST(pread(fds[0], &c, 1, 0) == 1))

int after_eventfd, after_send, after_epoll;
static void *counts(void *p)
{
	eventfd_write(fds[0], 1);
	after_eventfd++; // race after_eventfd
	return p;
}
static void *is_counted(void *p)
{
	eventfd_t v;
	eventfd_read(fds[0], &v);
	after_eventfd++; // race after_eventfd
	return p;
}
static void *sends(void *p)
{
	MUST(send(fds[0], "x", 1, 0) == 1);
	after_send++; // race after_send
	return p;
}
static void *receives(void *p)
{
	char c;
	MUST(recv(fds[1], &c, 1, 0) == 1);
	after_send++; // race after_send
	return p;
}
static void *makes_ready(void *p)
{
	MUST(write(fds[1], "x", 1) == 1);
	after_epoll++; // race after_epoll
	return p;
}
static void *waits_ready(void *p)
{
	struct epoll_event e;
	MUST(epoll_wait(ep, &e, 1, -1) == 1);
	after_epoll++; // race after_epoll
	return p;
}

// Locks of files, of two descriptors; a stream's; a timer that is set: what these order was told as races.
int by_flock, by_ofd, by_lockf;
static char lock_path[] = "/tmp/raceXXXXXX";
static void *flocks(void *p)
{
	int fd = open(lock_path, O_RDWR);
	MUST(flock(fd, LOCK_EX) == 0);
	by_flock++;
	MUST(flock(fd, LOCK_UN) == 0);
	close(fd);
	return p;
}
static void *locks_ofd(void *p)
{
	int fd = open(lock_path, O_RDWR);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	MUST(fcntl(fd, F_OFD_SETLKW, &l) == 0);
	by_ofd++;
	l.l_type = F_UNLCK;
	MUST(fcntl(fd, F_OFD_SETLKW, &l) == 0);
	close(fd);
	return p;
}

// A stream's lock orders who takes it.
int by_stream;
static FILE *stream;
static void *locks_stream(void *p)
{
	flockfile(stream);
	by_stream++;
	putc_unlocked('x', stream);
	funlockfile(stream);
	return p;
}

// A child that is waited for, and one that is not asked.
int by_child, beside_child;
static pid_t child;
static void *forks(void *p)
{
	by_child++;
	if ((child = fork()) == 0)
		_exit(0);
	beside_child++; // race beside_child
	unseen_done();
	sem_post(&sem);
	return p;
}
static void *does_not_wait(void *p)
{
	unseen_wait();
	beside_child++; // race beside_child
	sem_wait(&sem);
	by_child++;
	MUST(waitpid(child, 0, 0) == child);
	return p;
}

// A timer's thread.
int by_timer;
static void on_timer(union sigval v)
{
	use(v.sival_ptr);
	by_timer++;
	sem_post(&sem);
}

int main(void)
{
	pthread_t t;
	thrd_t c11;
	both(signals_cond, waits_cond);
	pthread_mutexattr_t attr_robust;
	pthread_mutexattr_init(&attr_robust);
	pthread_mutexattr_setrobust(&attr_robust, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attr_robust);
	unseen(ends_with_it, takes_it_over);
	both(times_out, times_out);
	both(calls_once, calls_once);
	mtx_init(&plain, mtx_plain);
	mtx_init(&timed, mtx_timed | mtx_recursive);
	cnd_init(&c11_cond);
	both(locks_mtx, locks_mtx);
	both(signals_cnd, waits_cnd);
	by_thrd++;
	thrd_create(&c11, starts, 0);
	thrd_join(c11, 0);
	by_thrd++;

	pthread_key_create(&key, destructor);
	pthread_create(&t, 0, sets_key, 0);
	in_destructor++; // race in_destructor
	pthread_join(t, 0);
	by_destructor++;
	pthread_key_delete(key);

	pthread_create(&t, 0, joins_itself, 0);
	while (pthread_tryjoin_np(t, 0))
		sched_yield();
	joined++;
	struct timespec late = {1l << 40, 0};
	pthread_create(&t, 0, joins_itself, 0);
	MUST(pthread_timedjoin_np(t, 0, &late) == 0);
	joined++;

	sem_init(&sem, 0, 0);
	signal(SIGUSR1, handler);
	pthread_create(&handler_thread, 0, handles, 0);
	pthread_create(&t, 0, kills, 0);
	pthread_join(t, 0);
	pthread_join(handler_thread, 0);

	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
	both(sends_datagram, receives_datagram);
	both(sends, receives);
	MUST(pipe(fds) == 0);
	both(sends_poll, receives_poll);
	both(sends_select, receives_select);
	ep = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &ev) == 0);
	both(makes_ready, waits_ready);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	fds[0] = signalfd(-1, &set, 0);
	both(sends_signalfd, receives_signalfd);
	fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
	both(sends_timerfd, receives_timerfd);
	fds[0] = eventfd(0, 0);
	both(counts, is_counted);
	char name[32];
	snprintf(name, sizeof name, "/race-%d", (int)getpid());
	struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 8};
	fds[0] = (int)mq_open(name, O_CREAT | O_RDWR, 0600, &attr);
	MUST(fds[0] >= 0 && mq_unlink(name) == 0);
	both(sends_mqueue, receives_mqueue);
	fds[0] = msgget(IPC_PRIVATE, 0600);
	both(sends_msg, receives_msg);
	MUST(msgctl(fds[0], IPC_RMID, 0) == 0);
	fds[0] = semget(IPC_PRIVATE, 1, 0600);
	both(sends_semop, receives_semop);
	MUST(semctl(fds[0], 0, IPC_RMID) == 0);

	fds[0] = mkstemp(lock_path);
	unseen(sends_file, receives_file);
	both(flocks, flocks);
	both(locks_ofd, locks_ofd);
	unlink(lock_path);
	stream = fopen("/dev/null", "w");
	both(locks_stream, locks_stream);
	unseen(forks, does_not_wait);
	timer_t timer;
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
	struct itimerspec soon = {.it_value.tv_nsec = 1};
	by_timer++;
	MUST(timer_create(CLOCK_MONOTONIC, &e, &timer) == 0 && timer_settime(timer, 0, &soon, 0) == 0);
	while (sem_wait(&sem))
		;
	by_timer++;
	return 0;
}
