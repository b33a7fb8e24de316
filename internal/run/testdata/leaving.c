// Who leaves a wait otherwise than by being woken, and who destroys what others are just leaving. leaving KIND: p: times long past; b: barriers that the last one destroys and makes anew; c: threads that are cancelled in waits; e: the first
// thread ends, another sleeps on; w: a writer, before whom readers wait, gives up; q: a message queue is to notify, for long; f: threads fork at
// the same time; s: while others read lines from streams, and one flushes all.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "leaving.c:%d: %s\n", __LINE__, #x); abort(); } } while (0)
enum { THREADS = 8, ROUNDS = 200, AGAIN = 6, LINE = 200000 };

static pthread_mutex_t lock, taken = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t reading = PTHREAD_RWLOCK_INITIALIZER, writing = PTHREAD_RWLOCK_INITIALIZER;
static sem_t none, there;
static pthread_barrier_t first, second;

static void ms(long n)
{
	struct timespec ts = {n / 1000, n % 1000 * 1000000};
	MUST(nanosleep(&ts, NULL) == 0);
}

// --- p

static void *past(void *arg)
{
	(void)arg;
	const struct timespec ts = {-2, 0};
	printf("mutex %d %d\n", pthread_mutex_timedlock(&taken, &ts), pthread_mutex_clocklock(&taken, CLOCK_MONOTONIC, &ts));
	printf("rwlock %d %d\n", pthread_rwlock_timedrdlock(&writing, &ts), pthread_rwlock_clockwrlock(&reading, CLOCK_MONOTONIC, &ts));
	int r = sem_timedwait(&none, &ts), e = errno;
	printf("semaphore %d %d\n", r, e);
	MUST(pthread_mutex_lock(&lock) == 0);
	printf("condition %d\n", pthread_cond_timedwait(&cond, &lock, &ts));
	MUST(pthread_mutex_unlock(&lock) == 0);
	return NULL;
}

// --- b

static void *rounds(void *arg)
{
	long serial = 0;
	for (int i = 0; i < ROUNDS; i++) {
		for (pthread_barrier_t *b = &first; b; b = b == &first ? &second : NULL)
			if (pthread_barrier_wait(b) == PTHREAD_BARRIER_SERIAL_THREAD) {
				MUST(pthread_barrier_destroy(b) == 0);
				memset(b, 0xff, sizeof *b);
				MUST(pthread_barrier_init(b, NULL, THREADS) == 0);
				serial++;
			}
		ms(i % 20 == 0);
	}
	__atomic_fetch_add((long *)arg, serial, __ATOMIC_RELAXED);
	return NULL;
}

// --- c

static int cleaned;

static void held(void *arg)
{
	(void)arg;
	MUST(pthread_mutex_lock(&lock) == EDEADLK); // it has it again
	MUST(pthread_mutex_unlock(&lock) == 0);
	__atomic_fetch_add(&cleaned, 1, __ATOMIC_RELAXED);
}

static void *waits(void *how)
{
	struct timespec ts;
	MUST(clock_gettime(CLOCK_REALTIME, &ts) == 0);
	ts.tv_sec += 100;
	switch ((long)how) {
	case 0: sem_wait(&none); break;
	case 1: sem_timedwait(&none, &ts); break;
	default:
		MUST(pthread_mutex_lock(&lock) == 0);
		pthread_cleanup_push(held, NULL);
		for (;;) // it may wake up for nothing
			MUST(((long)how == 2 ? pthread_cond_wait(&cond, &lock) : pthread_cond_timedwait(&cond, &lock, &ts)) == 0);
		pthread_cleanup_pop(0);
	}
	return how;
}

// Is cancelled while it does not let itself be: only behind the waits.
static void *immune(void *arg)
{
	int *got = arg, state;
	MUST(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
	MUST(sem_wait(&there) == 0);
	++*got;
	MUST(pthread_mutex_lock(&lock) == 0);
	while (*got < 2)
		MUST(pthread_cond_wait(&cond, &lock) == 0);
	MUST(pthread_mutex_unlock(&lock) == 0);
	MUST(sem_wait(&there) == 0);
	++*got;
	MUST(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
	sem_wait(&none);
	++*got;
	return NULL;
}

static void cancels(void)
{
	int ends = 0;
	for (int n = 0; n < AGAIN; n++) {
		pthread_t thread[4];
		for (long how = 0; how < 4; how++)
			MUST(pthread_create(&thread[how], NULL, waits, (void *)how) == 0);
		ms(n % 2 ? 30 : 0); // they wait, or will
		for (int i = 0; i < 4; i++)
			MUST(pthread_cancel(thread[i]) == 0);
		for (int i = 0; i < 4; i++) {
			void *r;
			MUST(pthread_join(thread[i], &r) == 0);
			ends += r == PTHREAD_CANCELED;
		}
	}
	printf("%d ended, %d cleaned up\n", ends, cleaned);
	pthread_t thread;
	int got = 0;
	void *r;
	MUST(pthread_create(&thread, NULL, immune, &got) == 0);
	ms(30);
	MUST(pthread_cancel(thread) == 0);
	ms(30);
	MUST(sem_post(&there) == 0);
	ms(30);
	MUST(pthread_mutex_lock(&lock) == 0);
	MUST(got == 1);
	got = 2;
	MUST(pthread_cond_signal(&cond) == 0 && pthread_mutex_unlock(&lock) == 0);
	MUST(sem_post(&there) == 0);
	MUST(pthread_join(thread, &r) == 0);
	printf("immune: %d, %s\n", got, r == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
}

// --- e

static void *sleeps(void *arg)
{
	(void)arg;
	const struct timespec ts = {0, 300000000};
	struct timespec left = {0};
	for (int i = 0; i < 2; i++) {
		int r = nanosleep(&ts, &left);
		printf("slept %d\n", r);
	}
	printf("waited %d\n", poll(NULL, 0, 100));
	exit(4);
}

// --- w

static pthread_rwlock_t preferring = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void *gives_up(void *arg)
{
	(void)arg;
	struct timespec ts;
	MUST(clock_gettime(CLOCK_REALTIME, &ts) == 0);
	ts.tv_sec++;
	printf("writer %d\n", pthread_rwlock_timedwrlock(&preferring, &ts));
	return NULL;
}

static void *follows(void *arg)
{
	(void)arg;
	int r;
	while ((r = pthread_rwlock_tryrdlock(&preferring)) == 0)
		MUST(pthread_rwlock_unlock(&preferring) == 0 && sched_yield() == 0);
	MUST(r == EBUSY && pthread_rwlock_rdlock(&preferring) == 0 && pthread_rwlock_unlock(&preferring) == 0);
	return NULL;
}

// --- q

static void queue(void)
{
	char name[40];
	struct sigevent none_at_all = {.sigev_notify = SIGEV_NONE};
	snprintf(name, sizeof name, "/leaving-%d", getpid());
	mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
	MUST(q != (mqd_t)-1 && mq_unlink(name) == 0);
	MUST(mq_notify(q, &none_at_all) == 0);
	for (int i = 0; i < 30; i++) {
		MUST(pthread_mutex_lock(&taken) == 0 && pthread_mutex_unlock(&taken) == 0);
		ms(10);
	}
	int r = mq_notify(q, &none_at_all);
	printf("again %d\n", r < 0 ? errno : 0);
}

// --- f

static void *forks(void *arg)
{
	for (int i = 0; i < 25; i++) {
		free(malloc(1000));
		pid_t pid = fork();
		MUST(pid >= 0);
		int status;
		if (pid == 0)
			_exit(i);
		MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == i);
	}
	return arg;
}

// --- s

static int over;
static char file[40]; // one long line

static void *reads(void *arg)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		char *line = NULL; // which grows, while the stream is locked
		size_t room = 0;
		FILE *f = fopen(file, "r");
		MUST(f && getline(&line, &room, f) == LINE && fclose(f) == 0);
		free(line);
	}
	return arg;
}

static void *flushes(void *arg)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		MUST(fflush(NULL) == 0);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS];
	pthread_mutexattr_t checks;
	long serial = 0;
	MUST(argc == 2);
	MUST(pthread_mutexattr_init(&checks) == 0 && pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK) == 0 && pthread_mutex_init(&lock, &checks) == 0);
	MUST(sem_init(&none, 0, 0) == 0 && sem_init(&there, 0, 0) == 0);
	switch (*argv[1]) {
	case 'p':
		MUST(pthread_mutex_lock(&taken) == 0 && pthread_rwlock_wrlock(&writing) == 0 && pthread_rwlock_rdlock(&reading) == 0);
		ms(50);
		MUST(pthread_create(thread, NULL, past, NULL) == 0 && pthread_join(*thread, NULL) == 0);
		break;
	case 'b':
		MUST(pthread_barrier_init(&first, NULL, THREADS) == 0 && pthread_barrier_init(&second, NULL, THREADS) == 0);
		for (int i = 0; i < THREADS; i++)
			MUST(pthread_create(&thread[i], NULL, rounds, &serial) == 0);
		for (int i = 0; i < THREADS; i++)
			MUST(pthread_join(thread[i], NULL) == 0);
		printf("%ld\n", serial);
		break;
	case 'c': cancels(); break;
	case 'w':
		MUST(pthread_rwlock_rdlock(&preferring) == 0);
		MUST(pthread_create(&thread[0], NULL, gives_up, NULL) == 0 && pthread_create(&thread[1], NULL, follows, NULL) == 0);
		MUST(pthread_join(thread[0], NULL) == 0 && pthread_join(thread[1], NULL) == 0);
		break;
	case 'q': queue(); break;
	case 's': {
		int fd = memfd_create("line", 0);
		char *line = malloc(LINE);
		MUST(fd >= 0 && line && memset(line, 'x', LINE) && write(fd, line, LINE) == LINE);
		snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
		for (int i = 0; i < THREADS; i++)
			MUST(pthread_create(&thread[i], NULL, i < 2 ? forks : i == 2 ? flushes : reads, NULL) == 0);
		for (int i = 0; i < THREADS; i++) {
			over = i >= 2;
			MUST(pthread_join(thread[i], NULL) == 0);
		}
		break;
	}
	case 'f':
		for (int i = 0; i < THREADS; i++)
			MUST(pthread_create(&thread[i], NULL, forks, NULL) == 0);
		for (int i = 0; i < THREADS; i++)
			MUST(pthread_join(thread[i], NULL) == 0);
		break;
	case 'e':
		MUST(pthread_create(thread, NULL, sleeps, NULL) == 0);
		pthread_exit(NULL);
	}
	return 4;
}
