// A handler that guard cannot have wait, and that is longer than an epoch, finds its thread within a lock or within a wait, and takes locks of its own. Prints sums that are the same in each run. Argument: act; wait; jump, out of the handler; leap, from an alternate stack.
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 12000000, IN_HANDLER_MS = 15, WAITS = 12 };
static pthread_mutex_t mutex[64], of_handler = PTHREAD_MUTEX_INITIALIZER, of_helper = PTHREAD_MUTEX_INITIALIZER;
static sem_t wanted, done;
static volatile uint64_t heard, helped;
static struct { char what[8]; pthread_t first; } arg;
static sigjmp_buf back;
static int jumps, full[2];

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void hear(int sig)
{
	(void)sig;
	for (uint64_t until = now_ms() + IN_HANDLER_MS; now_ms() < until;) {
		pthread_mutex_lock(&of_handler);
		heard++;
		pthread_mutex_unlock(&of_handler);
	}
	if (jumps)
		siglongjmp(back, 1);
}

static void *help(void *unused)
{
	(void)unused;
	for (int i = 0; i < WAITS; i++) {
		sem_wait(&wanted);
		if (strcmp(arg.what, "act") != 0) {
			nanosleep(&(struct timespec){0, 20000000}, NULL);
			pthread_kill(arg.first, SIGVTALRM);
			nanosleep(&(struct timespec){0, 40000000}, NULL);
		}
		pthread_mutex_lock(&of_helper);
		helped++;
		pthread_mutex_unlock(&of_helper);
		sem_post(&done);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = hear, .sa_flags = SA_RESTART};
	static uint64_t sum;
	pthread_t id;
	if (argc != 2 || strlen(argv[1]) > 7)
		return 2;
	strcpy(arg.what, argv[1]);
	arg.first = pthread_self();
	for (unsigned i = 0; i < 64; i++)
		pthread_mutex_init(&mutex[i], NULL);
	sem_init(&wanted, 0, 0);
	sem_init(&done, 0, 0);
	bool leaps = strcmp(arg.what, "leap") == 0;
	static char alternate[1 << 16];
	if (leaps && sigaltstack(&(stack_t){.ss_sp = alternate, .ss_size = sizeof alternate}, NULL) == 0)
		act.sa_flags |= SA_ONSTACK;
	jumps = leaps || strcmp(arg.what, "jump") == 0;
	if (pipe(full) < 0)
		return 2;
	sigaction(SIGVTALRM, &act, NULL);
	pthread_create(&id, NULL, help, NULL);
	if (strcmp(arg.what, "act") == 0) {
		setitimer(ITIMER_VIRTUAL, &(struct itimerval){{0, 30000}, {0, 30000}}, NULL);
		for (uint64_t i = 0; i < TIMES; i++) {
			pthread_mutex_lock(&mutex[i % 64]);
			sum = sum * 31 + i;
			pthread_mutex_unlock(&mutex[i % 64]);
		}
		setitimer(ITIMER_VIRTUAL, &(struct itimerval){0}, NULL);
	}
	for (int i = 0; i < WAITS; i++) {
		sem_post(&wanted);
		if (jumps && sigsetjmp(back, 1) == 0)
			for (char c; read(full[0], &c, 1) >= 0;)
				;
		while (sem_wait(&done) != 0)
			;
		pthread_mutex_lock(&of_helper);
		sum += helped;
		pthread_mutex_unlock(&of_helper);
	}
	pthread_join(id, NULL);
	printf("%lx %d\n", sum, heard > 0);
	return 0;
}
