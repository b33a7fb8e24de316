// What a thread does behind the call by which it orders another one is not in order, whatever the call: futexes, descriptors that are waited for, queues and semaphores of POSIX and System V, locks of files and streams, children.
// Beside each what it does before, which is.
#include "../run.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
#define GIVES(name) static void give_##name(void)
#define TAKES(name) static void take_##name(void)
// Threads of give_NAME and take_NAME.
#define BEFORE(name) \
	int before_##name; \
	static void *before_give_##name(void *p) { before_##name++; give_##name(); return p; } \
	static void *before_take_##name(void *p) { take_##name(); before_##name++; return p; }
#define BEHIND(name) \
	int behind_##name; \
	static void *behind_give_##name(void *p) { give_##name(); behind_##name++; return p; } \
	static void *behind_take_##name(void *p) { take_##name(); behind_##name++; return p; }
#define RUN_BEFORE(name) both(before_give_##name, before_take_##name)
#define RUN_BEHIND(name) both(behind_give_##name, behind_take_##name)

static int fds[2], ep;

// --- futexes -----------------------------------------------------------------------------------------------------------------------------

static int word, other;
static long futex(int *at, int op, int value, long more, int *to, unsigned bits) { return syscall(SYS_futex, at, op | FUTEX_PRIVATE_FLAG, value, more, to, bits); }
static void wake(int *at)
{
	while (futex(at, FUTEX_WAKE, 1, 0, 0, 0) == 0)
		sched_yield();
}

GIVES(futex) { wake(&word); }
TAKES(futex) { MUST(futex(&word, FUTEX_WAIT, 0, 0, 0, 0) == 0); }
BEFORE(futex)
BEHIND(futex) // race behind_futex

GIVES(bits)
{
	while (futex(&word, FUTEX_WAKE_BITSET, 1, 0, 0, 2) == 0)
		sched_yield();
}
TAKES(bits) { MUST(futex(&word, FUTEX_WAIT_BITSET, 0, 0, 0, 3) == 0); }
BEFORE(bits)
BEHIND(bits) // race behind_bits

// Moved to another word, and woken there.
GIVES(moved)
{
	while (futex(&word, FUTEX_CMP_REQUEUE, 0, 1, &other, 0) == 0)
		sched_yield();
	wake(&other);
}
TAKES(moved) { take_futex(); }
BEFORE(moved)
BEHIND(moved) // race behind_moved

// Who does not wait, as the word has another value, is not woken.
int not_waited;
static void *wakes_nobody(void *p)
{
	not_waited++; // race not_waited
	futex(&word, FUTEX_WAKE, 1, 0, 0, 0);
	unseen_done();
	return p;
}
static void *does_not_wait(void *p)
{
	unseen_wait();
	MUST(futex(&word, FUTEX_WAIT, 1, 0, 0, 0) == -1 && errno == EAGAIN);
	not_waited++; // race not_waited
	return p;
}

// --- descriptors that are waited for -------------------------------------------------------------------------------------------------------

static void put(void) { MUST(write(fds[1], "x", 1) == 1); }
static void get(void)
{
	char c;
	MUST(read(fds[0], &c, 1) == 1);
}

GIVES(poll) { put(); }
TAKES(poll)
{
	struct pollfd f = {.fd = fds[0], .events = POLLIN};
	MUST(poll(&f, 1, -1) == 1);
}
BEFORE(poll)
BEHIND(poll) // race behind_poll

GIVES(ppoll) { put(); }
TAKES(ppoll)
{
	struct pollfd f = {.fd = fds[0], .events = POLLIN};
	MUST(ppoll(&f, 1, 0, 0) == 1);
}
BEFORE(ppoll)
BEHIND(ppoll) // race behind_ppoll

GIVES(select) { put(); }
TAKES(select)
{
	fd_set s;
	FD_ZERO(&s);
	FD_SET(fds[0], &s);
	MUST(select(fds[0] + 1, &s, 0, 0, 0) == 1);
}
BEFORE(select)
BEHIND(select) // race behind_select

GIVES(pselect) { put(); }
TAKES(pselect)
{
	fd_set s;
	FD_ZERO(&s);
	FD_SET(fds[0], &s);
	MUST(pselect(fds[0] + 1, &s, 0, 0, 0, 0) == 1);
}
BEFORE(pselect)
BEHIND(pselect) // race behind_pselect

GIVES(epoll) { put(); }
TAKES(epoll)
{
	struct epoll_event e;
	MUST(epoll_pwait(ep, &e, 1, -1, 0) == 1);
}
BEFORE(epoll)
BEHIND(epoll) // race behind_epoll

GIVES(signalfd) { MUST(kill(getpid(), SIGUSR2) == 0); }
TAKES(signalfd)
{
	struct signalfd_siginfo i;
	MUST(read(fds[0], &i, sizeof i) == sizeof i);
}
BEFORE(signalfd)
BEHIND(signalfd) // race behind_signalfd

GIVES(timerfd)
{
	struct itimerspec s = {.it_value.tv_nsec = 1};
	MUST(timerfd_settime(fds[0], 0, &s, 0) == 0);
}
TAKES(timerfd)
{
	unsigned long n;
	MUST(read(fds[0], &n, 8) == 8);
}
BEFORE(timerfd)
BEHIND(timerfd) // race behind_timerfd

// --- queues and semaphores -----------------------------------------------------------------------------------------------------------------

static const struct timespec late = {1l << 31, 0};
GIVES(mqueue) { MUST(mq_send(fds[0], "x", 1, 0) == 0); }
TAKES(mqueue)
{
	char b[8];
	MUST(mq_receive(fds[0], b, sizeof b, 0) == 1);
}
BEFORE(mqueue)
BEHIND(mqueue) // race behind_mqueue

GIVES(mqueue_timed) { MUST(mq_timedsend(fds[0], "x", 1, 0, &late) == 0); }
TAKES(mqueue_timed)
{
	char b[8];
	MUST(mq_timedreceive(fds[0], b, sizeof b, 0, &late) == 1);
}
BEFORE(mqueue_timed)
BEHIND(mqueue_timed) // race behind_mqueue_timed

struct message { long type; char c; };
GIVES(message)
{
	struct message m = {1, 2};
	MUST(msgsnd(fds[0], &m, 1, 0) == 0);
}
TAKES(message)
{
	struct message m;
	MUST(msgrcv(fds[0], &m, 1, 0, 0) == 1);
}
BEFORE(message)
BEHIND(message) // race behind_message

static void add(int n)
{
	struct sembuf b = {0, (short)n, 0};
	MUST(semop(fds[0], &b, 1) == 0);
}
GIVES(semop) { add(1); }
TAKES(semop) { add(-1); }
BEFORE(semop)
BEHIND(semop) // race behind_semop

GIVES(semop_timed)
{
	struct sembuf b = {0, 1, 0};
	MUST(semtimedop(fds[0], &b, 1, &late) == 0);
}
TAKES(semop_timed)
{
	struct sembuf b = {0, -1, 0};
	MUST(semtimedop(fds[0], &b, 1, &late) == 0);
}
BEFORE(semop_timed)
BEHIND(semop_timed) // race behind_semop_timed

// Waits until it is 0.
GIVES(zero) { add(-1); }
TAKES(zero) { add(0); }
BEFORE(zero)
BEHIND(zero) // race behind_zero

// --- locks of files and streams --------------------------------------------------------------------------------------------------------------

static char path[] = "/tmp/raceXXXXXX";
static void with_flock(int how)
{
	int fd = open(path, O_RDWR);
	MUST(flock(fd, how) == 0 && flock(fd, LOCK_UN) == 0);
	close(fd);
}
GIVES(flock) { with_flock(LOCK_EX); }
TAKES(flock) { with_flock(LOCK_EX); }
BEHIND(flock) // race behind_flock

static void with_ofd(void)
{
	int fd = open(path, O_RDWR);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	MUST(fcntl(fd, F_OFD_SETLKW, &l) == 0);
	l.l_type = F_UNLCK;
	MUST(fcntl(fd, F_OFD_SETLKW, &l) == 0);
	close(fd);
}
GIVES(ofd) { with_ofd(); }
TAKES(ofd) { with_ofd(); }
BEHIND(ofd) // race behind_ofd

// Two who read by it, and write: at a time, and one after the other.
static int readers[2];
int read_at_once, read_in_turn;
static void *reads_first(void *p)
{
	read_at_once++; // race read_at_once
	unseen_done();
	return p;
}
static void *reads_second(void *p)
{
	unseen_wait();
	read_at_once++; // race read_at_once
	return p;
}
static void *reads_in_turn(void *p)
{
	int fd = open(path, O_RDWR);
	MUST(flock(fd, LOCK_SH) == 0);
	read_in_turn++; // race read_in_turn
	MUST(flock(fd, LOCK_UN) == 0);
	close(fd);
	return p;
}

// Locks of the process's: its threads take them as they like.
int by_record, by_lockf;
static void *locks_records(void *p)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	MUST(fcntl(readers[0], F_SETLKW, &l) == 0);
	by_record++; // race by_record
	l.l_type = F_UNLCK;
	MUST(fcntl(readers[0], F_SETLKW, &l) == 0);
	return p;
}
static void *locks_by_lockf(void *p)
{
	MUST(lockf(readers[0], F_LOCK, 1) == 0);
	by_lockf++; // race by_lockf
	MUST(lockf(readers[0], F_ULOCK, 1) == 0);
	return p;
}

static FILE *stream;
static void with_stream(void)
{
	flockfile(stream);
	putc_unlocked('x', stream);
	funlockfile(stream);
}
GIVES(stream) { with_stream(); }
TAKES(stream) { with_stream(); }
BEHIND(stream) // race behind_stream

// --- children ------------------------------------------------------------------------------------------------------------------------------

GIVES(child)
{
	pid_t child = fork();
	MUST(child >= 0);
	if (!child)
		_exit(0);
}
TAKES(child)
{
	while (waitpid(-1, 0, 0) < 0)
		sched_yield();
}
BEFORE(child)
BEHIND(child) // race behind_child

GIVES(waitid) { give_child(); }
TAKES(waitid)
{
	siginfo_t i;
	while (waitid(P_ALL, 0, &i, WEXITED) < 0)
		sched_yield();
}
BEFORE(waitid)
BEHIND(waitid) // race behind_waitid

// Who only looks whether it has ended, and leaves it.
GIVES(looked_at) { give_child(); }
TAKES(looked_at)
{
	siginfo_t i;
	while (waitid(P_ALL, 0, &i, WEXITED | WNOWAIT) < 0)
		sched_yield();
}
BEFORE(looked_at)
BEHIND(looked_at) // race behind_looked_at

// --- functions that a thread of libc's calls ---------------------------------------------------------------------------------------------------

int by_timer, by_notice;
static void on_timer(union sigval v)
{
	use(v.sival_ptr);
	by_timer++; // race by_timer
	unseen_done();
}
static void *sets_timer(void *p)
{
	timer_t timer;
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
	struct itimerspec soon = {.it_value.tv_nsec = 1};
	MUST(timer_create(CLOCK_MONOTONIC, &e, &timer) == 0 && timer_settime(timer, 0, &soon, 0) == 0);
	unseen_wait();
	by_timer++; // race by_timer
	return p;
}
static void on_message(union sigval v)
{
	use(v.sival_ptr);
	by_notice++; // race by_notice
	unseen_done();
}
static void *asks_for_notice(void *p)
{
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_message};
	MUST(mq_notify(fds[0], &e) == 0);
	give_mqueue();
	unseen_wait();
	by_notice++; // race by_notice
	return p;
}
static void *nothing(void *p) { return p; }

int main(void)
{
	RUN_BEFORE(futex);
	RUN_BEHIND(futex);
	RUN_BEFORE(bits);
	RUN_BEHIND(bits);
	RUN_BEFORE(moved);
	RUN_BEHIND(moved);
	unseen(wakes_nobody, does_not_wait);

	MUST(pipe(fds) == 0 && (ep = epoll_create1(0)) >= 0);
	struct epoll_event ev = {.events = EPOLLIN};
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &ev) == 0);
#define RUN_WAITED(name) RUN_BEFORE(name), get(), RUN_BEHIND(name), get()
	RUN_WAITED(poll);
	RUN_WAITED(ppoll);
	RUN_WAITED(select);
	RUN_WAITED(pselect);
	RUN_WAITED(epoll);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	fds[0] = signalfd(-1, &set, 0);
	RUN_BEFORE(signalfd);
	RUN_BEHIND(signalfd);
	fds[0] = timerfd_create(CLOCK_MONOTONIC, 0);
	RUN_BEFORE(timerfd);
	RUN_BEHIND(timerfd);

	char name[32];
	snprintf(name, sizeof name, "/race-%d", (int)getpid());
	struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 8};
	fds[0] = mq_open(name, O_CREAT | O_RDWR, 0600, &attr);
	MUST(fds[0] >= 0 && mq_unlink(name) == 0);
	RUN_BEFORE(mqueue);
	RUN_BEHIND(mqueue);
	RUN_BEFORE(mqueue_timed);
	RUN_BEHIND(mqueue_timed);
	unseen(asks_for_notice, nothing);
	take_mqueue();
	unseen(sets_timer, nothing);
	fds[0] = msgget(IPC_PRIVATE, 0600);
	RUN_BEFORE(message);
	RUN_BEHIND(message);
	MUST(msgctl(fds[0], IPC_RMID, 0) == 0);
	fds[0] = semget(IPC_PRIVATE, 1, 0600);
	RUN_BEFORE(semop);
	RUN_BEHIND(semop);
	RUN_BEFORE(semop_timed);
	RUN_BEHIND(semop_timed);
	add(1);
	RUN_BEFORE(zero);
	add(1);
	RUN_BEHIND(zero);
	MUST(semctl(fds[0], 0, IPC_RMID) == 0);

	MUST((readers[0] = mkstemp(path)) >= 0 && (readers[1] = open(path, O_RDWR)) >= 0);
	RUN_BEHIND(flock);
	RUN_BEHIND(ofd);
	MUST(flock(readers[0], LOCK_SH) == 0 && flock(readers[1], LOCK_SH) == 0);
	unseen(reads_first, reads_second);
	both(reads_in_turn, reads_in_turn);
	both(locks_records, locks_records);
	both(locks_by_lockf, locks_by_lockf);
	unlink(path);
	stream = fopen("/dev/null", "w");
	RUN_BEHIND(stream);

	RUN_BEFORE(child);
	RUN_BEHIND(child);
	RUN_BEFORE(waitid);
	RUN_BEHIND(waitid);
	RUN_BEFORE(looked_at);
	MUST(waitpid(-1, 0, 0) > 0);
	RUN_BEHIND(looked_at);
	MUST(waitpid(-1, 0, 0) > 0);
	return 0;
}
