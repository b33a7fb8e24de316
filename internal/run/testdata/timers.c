/* Threads that libc makes for itself, beside threads of the program's: argument 1 is of what kind, 2 how often, 3 how many ms each stays and there is none behind it, with a 4th threads are made meanwhile. Prints how often it was called, and what all have added. */
#define _GNU_SOURCE
#include <aio.h>
#include <mqueue.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static long calls, sum;
static int stay;
static bool over;

static void rest(void)
{
	const struct timespec ts = {0, 500000};
	for (int i = 0; i < stay * 2; i++) {
		free(malloc(40));
		nanosleep(&ts, NULL);
	}
}

static void notified(union sigval v)
{
	long *block = malloc(64);
	*block = v.sival_int;
	rest();
	pthread_mutex_lock(&mutex);
	calls++;
	sum += *block;
	pthread_cond_signal(&told);
	pthread_mutex_unlock(&mutex);
	free(block);
}

static void *work(void *arg)
{
	long own = 0;
	for (bool on = true; on; usleep(200)) {
		pthread_mutex_lock(&mutex);
		own++;
		on = !over;
		pthread_mutex_unlock(&mutex);
	}
	return own ? arg : NULL;
}

static void *nothing(void *arg) { return arg; }

static void *make(void *arg)
{
	for (bool on = true; on;) {
		pthread_t t;
		if (pthread_create(&t, NULL, nothing, NULL) != 0 || pthread_join(t, NULL) != 0)
			exit(9);
		pthread_mutex_lock(&mutex);
		on = !over;
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

static void until(long n)
{
	pthread_mutex_lock(&mutex);
	while (calls < n)
		pthread_cond_wait(&told, &mutex);
	pthread_mutex_unlock(&mutex);
	rest();
}

static void timers(int n)
{
	for (int i = 0; i < n; i++) {
		struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i, .sigev_notify_function = notified};
		const struct itimerspec soon = {.it_value.tv_nsec = 1000000};
		timer_t id;
		if (timer_create(CLOCK_MONOTONIC, &e, &id) != 0 || timer_settime(id, 0, &soon, NULL) != 0)
			exit(3);
		until(i + 1);
		timer_delete(id);
	}
}

static void files(int n)
{
	static char text[64];
	FILE *f = tmpfile();
	for (int i = 0; f && i < n; i++) {
		struct aiocb cb = {.aio_fildes = fileno(f), .aio_buf = text, .aio_nbytes = sizeof text, .aio_offset = i * 64,
			.aio_sigevent = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i, .sigev_notify_function = notified}};
		memset(text, 'a' + i % 26, sizeof text);
		if (aio_write(&cb) != 0)
			exit(4);
		until(i + 1);
		const struct aiocb *list[] = {&cb};
		while (aio_error(&cb) != 0)
			aio_suspend(list, 1, NULL);
		aio_return(&cb);
	}
}

static void queues(int n)
{
	char name[64], got[64];
	struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 16};
	snprintf(name, sizeof name, "/ripstop-timers-%d", (int)getpid());
	mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attr);
	if (q == (mqd_t)-1)
		exit(5);
	mq_unlink(name);
	for (int i = 0; i < n; i++) {
		struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i, .sigev_notify_function = notified};
		if (mq_notify(q, &e) != 0 || mq_send(q, "m", 1, 0) != 0)
			exit(6);
		until(i + 1);
		if (mq_receive(q, got, sizeof got, NULL) != 1)
			exit(7);
	}
}

static const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};

static void names(int n)
{
	for (int i = 0; i < n; i++) {
		struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = i, .sigev_notify_function = notified};
		struct gaicb cb = {.ar_name = "127.0.0.1", .ar_request = &hints}, *list[] = {&cb};
		if (getaddrinfo_a(GAI_NOWAIT, list, 1, &e) != 0)
			exit(8);
		until(i + 1);
		while (gai_error(&cb) == EAI_INPROGRESS)
			gai_suspend((const struct gaicb *const *)list, 1, NULL);
		if (gai_error(&cb) == 0)
			freeaddrinfo(cb.ar_result);
	}
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 20;
	pthread_t w[WORKERS];
	int number[WORKERS] = {0};
	/* What libc loads for that, it loads under mutexes of ld.so's, which are no events. */
	struct addrinfo *got;
	if (getaddrinfo("127.0.0.1", NULL, &hints, &got) == 0)
		freeaddrinfo(got);
	stay = argc > 3 ? atoi(argv[3]) : 0;
	for (int i = 0; i < WORKERS; i++)
		pthread_create(&w[i], NULL, argc > 4 && i ? make : work, &number[i]);
	switch (argc > 1 ? argv[1][0] : 't') {
	case 't': timers(n); break;
	case 'a': files(n); break;
	case 'q': queues(n); break;
	case 'n': names(n); break;
	}
	pthread_mutex_lock(&mutex);
	over = true;
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(w[i], NULL);
	printf("%ld calls, %ld\n", calls, sum);
	return 0;
}
