// Variables of the program that threads share rightly: in order by locks, conditions, semaphores, barriers, once and atomics that are variables themselves, neighbours in a word, by way of libc and the
// kernel; stacks that are variables; and processes, whose variables are their own.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t made = PTHREAD_ONCE_INIT;
static pthread_barrier_t meeting;
static pthread_spinlock_t spin;
static sem_t sem;
static atomic_int flag, turn, word;
static volatile long sum, turns, by_spin, by_rw, by_word, made_value, published, handed;
static volatile char neighbours[THREADS];
static char line[256], many[64 << 20];
static int items[1000], pipes[2];
static char handler_stack[64 << 10] __attribute__((aligned(4096))), thread_stack[256 << 10] __attribute__((aligned(4096)));
static volatile sig_atomic_t handled;
static char *const echo[] = {"/bin/sh", "-c", "exit 7", NULL};

static void make(void) { made_value = 42; }

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void handler(int sig)
{
	volatile char deep[4096];
	memset((void *)deep, sig, sizeof deep);
	handled += deep[7] == sig;
}

// A lock of the program's own, of an exchange and a plain store that is an atomic's.
static void own_lock(void)
{
	while (atomic_exchange_explicit(&word, 1, memory_order_acquire))
		;
	by_word++;
	atomic_store_explicit(&word, 0, memory_order_release);
}

static void *worker(void *arg)
{
	long me = (long)(intptr_t)arg;
	pthread_once(&made, make);
	if (made_value != 42)
		abort();
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		sum += me;
		snprintf(line, sizeof line, "%ld", sum);
		if (strtol(line, NULL, 10) != sum || getenv("PATH") == NULL)
			abort();
		qsort(items + 100 * me, 100, sizeof *items, compare);
		pthread_mutex_unlock(&lock);
		pthread_spin_lock(&spin);
		by_spin++;
		pthread_spin_unlock(&spin);
		pthread_rwlock_wrlock(&rw);
		by_rw++;
		pthread_rwlock_unlock(&rw);
		sem_wait(&sem);
		turns++;
		sem_post(&sem);
		own_lock();
		neighbours[me]++;
	}
	pthread_mutex_lock(&lock);
	while (atomic_load(&turn) != me)
		pthread_cond_wait(&changed, &lock);
	atomic_fetch_add(&turn, 1);
	pthread_cond_broadcast(&changed);
	if (write(pipes[1], (void *)&sum, sizeof sum) != sizeof sum || read(pipes[0], items, sizeof sum) != sizeof sum)
		abort();
	pthread_mutex_unlock(&lock);
	if (me == 0) {
		published = 9;
		atomic_store(&flag, 1); // an exchange, so that it is known for an atomic's
	} else {
		while (!atomic_load_explicit(&flag, memory_order_acquire))
			;
		if (published != 9)
			abort();
	}
	pthread_barrier_wait(&meeting);
	if (me == 1)
		handed = sum;
	pthread_barrier_wait(&meeting);
	if (handed != sum)
		abort();
	return NULL;
}

static void children(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		sum += 1000;
		memset(many, 3, 4096);
		_exit(sum == 1180 && turns == THREADS * ROUNDS ? 3 : 4);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 3 || many[5])
		abort();
	if (posix_spawn(&pid, echo[0], NULL, NULL, echo, environ) != 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7)
		abort();
}

int main(void)
{
	pthread_t t[THREADS];
	pthread_attr_t attr;
	stack_t on = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	pthread_barrier_init(&meeting, NULL, THREADS);
	pthread_spin_init(&spin, 0);
	sem_init(&sem, 0, 1);
	if (pipe(pipes) < 0 || sigaltstack(&on, NULL) < 0 || sigaction(SIGUSR1, &act, NULL) < 0)
		return 1;
	for (int i = 0; i < 1000; i++)
		items[i] = 1000 - i;
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, thread_stack, sizeof thread_stack);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], i ? NULL : &attr, worker, (void *)(intptr_t)i) != 0)
			return 1;
	raise(SIGUSR1);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	raise(SIGUSR1);
	children();
	uintptr_t page = (uintptr_t)(many + (32 << 20)) & -4096ul;
	*(volatile char *)page = 1;
	madvise((void *)page, 4096, MADV_DONTNEED);
	long n = 0;
	for (int i = 0; i < THREADS; i++)
		n += neighbours[i];
	printf("%ld %ld %ld %ld %ld %ld %ld %d %d %d\n", sum, turns, by_spin, by_rw, by_word, handed, n, (int)handled, *(volatile char *)page, items[500]);
	return 0;
}
