// Handlers that come while their thread's accesses are looked at: what they do is judged, and each runs as often as its signal was sent, the queued in their order. With an argument also one that is set for a single
// signal.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIGNALS = 3000, WORDS = 1 << 16 };
static pthread_t works;
static volatile sig_atomic_t over;
static int handled[3];
static sem_t begun, done;
static long *words;
int in_handler;

static void plain(int sig)
{
	(void)sig;
	handled[0]++;
	in_handler++; // race in_handler
	sem_post(&done);
}
static void queued(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	if (info->si_value.sival_int != handled[1] || info->si_code != SI_QUEUE || info->si_pid != getpid())
		abort();
	handled[1]++;
	sem_post(&done);
}
static void once(int sig)
{
	(void)sig;
	handled[2]++;
	sem_post(&done);
}

// Memory that nobody has touched yet takes longest to look at.
static void *work(void *p)
{
	sem_post(&begun);
	for (unsigned i = 0; !over; i++) // race-any over
		words[i * 513 % WORDS]++;
	return p;
}

// Whether it looked at `over` between its last handler and the store was left to chance: once in some eighty runs it had not, and nothing was unordered. Nobody sees an order in a clock.
static void let_it_work(void)
{
	clockid_t clock;
	struct timespec begin, now;
	pthread_getcpuclockid(works, &clock);
	clock_gettime(clock, &begin);
	do
		clock_gettime(clock, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000000000l + now.tv_nsec - begin.tv_nsec < 10000000);
}

int main(int argc, char **argv)
{
	(void)argv;
	sem_init(&begun, 0, 0);
	sem_init(&done, 0, 0);
	words = calloc(WORDS, sizeof *words);
	sigaction(SIGUSR1, &(struct sigaction){.sa_handler = plain}, 0);
	sigaction(SIGRTMIN, &(struct sigaction){.sa_sigaction = queued, .sa_flags = SA_SIGINFO}, 0);
	pthread_create(&works, 0, work, 0);
	sem_wait(&begun);
	for (int i = 0; i < SIGNALS; i++) {
		bool one_more = argc > 1 && i % 10 == 0;
		pthread_kill(works, SIGUSR1);
		pthread_sigqueue(works, SIGRTMIN, (union sigval){.sival_int = i});
		if (one_more) {
			sigaction(SIGUSR2, &(struct sigaction){.sa_handler = once, .sa_flags = SA_RESETHAND}, 0);
			pthread_kill(works, SIGUSR2);
		}
		in_handler++; // race in_handler
		for (int n = 2 + one_more; n > 0; n--)
			sem_wait(&done);
	}
	let_it_work();
	over = 1; // race-any over
	pthread_join(works, 0);
	printf("%d %d %d\n", handled[0], handled[1], handled[2]);
	return 0;
}
