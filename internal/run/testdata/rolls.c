// Threads over all that the threads of a program share by libc, a letter for each kind, for so many rounds: rolls KINDS THREADS ROUNDS. What lies in memory depends on who was when (each hash has its threads in the order in which they came),
// so that a re-execution in another order, or one that was given something else, is seen. What is printed is the same in each run.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, TIMES = 20 };
struct thread { int me; uint64_t hash, done; };
static struct thread thread[MOST];
static int threads, rounds;
static const char *kinds;
static uint64_t shared[16], total;
static pthread_mutex_t total_lock = PTHREAD_MUTEX_INITIALIZER;

#define MUST(x) do { if (!(x)) { fprintf(stderr, "rolls.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
static void mix(uint64_t *h, uint64_t x) { *h = (*h ^ x) * 0x9e3779b97f4a7c15ull + 1; }

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec t;
	clock_gettime(clock, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

// m: mutexes of the usual types, tried and timed.
static pthread_mutex_t plain[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};
static uint64_t by_mutex[3];
static void mutexes(struct thread *t, int r)
{
	for (int i = 0; i < TIMES * 10; i++) {
		int k = (t->me + r + i) % 3;
		struct timespec until;
		if (i % 7 == 3 && pthread_mutex_trylock(&plain[k]) == EBUSY) {
			t->hash++;
			continue;
		} else if (i % 7 == 5) {
			until = in_ms(CLOCK_REALTIME, i % 2);
			if (pthread_mutex_timedlock(&plain[k], &until))
				continue;
		} else if (i % 7 != 3)
			MUST(!pthread_mutex_lock(&plain[k]));
		if (k == 1)
			MUST(!pthread_mutex_lock(&plain[k]));
		mix(&by_mutex[k], (uint64_t)t->me);
		mix(&t->hash, by_mutex[k]);
		if (k == 1)
			pthread_mutex_unlock(&plain[k]);
		pthread_mutex_unlock(&plain[k]);
	}
}

// r: rwlocks; two, one that prefers writers.
static pthread_rwlock_t rw[2] = {PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};
static uint64_t by_rwlock[2];
static void rwlocks(struct thread *t, int r)
{
	for (int i = 0; i < TIMES * 5; i++) {
		int k = i & 1, how = (i + r + t->me) % 9;
		struct timespec until = in_ms(CLOCK_REALTIME, 1);
		int e = how == 0 ? pthread_rwlock_wrlock(&rw[k]) : how == 1 ? pthread_rwlock_trywrlock(&rw[k]) : how == 2 ? pthread_rwlock_timedwrlock(&rw[k], &until) : how == 3 ? pthread_rwlock_tryrdlock(&rw[k]) :
			how == 4 ? pthread_rwlock_timedrdlock(&rw[k], &until) : pthread_rwlock_rdlock(&rw[k]);
		MUST(e == 0 || e == EBUSY || e == ETIMEDOUT);
		mix(&t->hash, (uint64_t)e);
		if (e)
			continue;
		if (how <= 2)
			mix(&by_rwlock[k], (uint64_t)t->me);
		mix(&t->hash, by_rwlock[k]);
		pthread_rwlock_unlock(&rw[k]);
	}
}

// c: a queue of eight with two conditions; who finds it full or empty waits, some for a while.
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static uint64_t queue[8], put, got;
static void conditions(struct thread *t, int r)
{
	for (int i = 0; i < TIMES; i++) {
		pthread_mutex_lock(&queue_lock);
		while (put - got == 8) {
			struct timespec until = in_ms(CLOCK_REALTIME, 2);
			mix(&t->hash, (uint64_t)pthread_cond_timedwait(&emptied, &queue_lock, &until));
		}
		queue[put++ % 8] = (uint64_t)t->me * 1000 + (uint64_t)i;
		if (r % 2)
			pthread_cond_broadcast(&filled);
		else
			pthread_cond_signal(&filled);
		pthread_mutex_unlock(&queue_lock);
		pthread_mutex_lock(&queue_lock);
		while (put == got)
			pthread_cond_wait(&filled, &queue_lock);
		mix(&t->hash, queue[got++ % 8]);
		pthread_cond_signal(&emptied);
		pthread_mutex_unlock(&queue_lock);
	}
}

// b: a barrier; the serial thread changes what all then read.
static pthread_barrier_t barrier;
static uint64_t by_serial;
static void barriers(struct thread *t, int r)
{
	for (int i = 0; i < TIMES / 2; i++) {
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			mix(&by_serial, (uint64_t)(t->me + r));
		pthread_barrier_wait(&barrier);
		mix(&t->hash, by_serial);
	}
}

// s: two permits for places, taken, tried and timed.
static sem_t permits;
static pthread_spinlock_t spin;
static uint64_t place[2], by_spin;
static void semaphores(struct thread *t, int r)
{
	for (int i = 0; i < TIMES * 3; i++) {
		struct timespec until = in_ms(CLOCK_REALTIME, 1);
		int how = (i + r) % 5, e = how == 0 ? sem_trywait(&permits) : how == 1 ? sem_timedwait(&permits, &until) : sem_wait(&permits);
		mix(&t->hash, e ? (uint64_t)errno : 0);
		if (!e) {
			pthread_spin_lock(&spin);
			mix(&by_spin, (uint64_t)t->me);
			mix(&place[by_spin & 1], by_spin);
			mix(&t->hash, place[0]);
			pthread_spin_unlock(&spin);
			sem_post(&permits);
		}
		int value;
		sem_getvalue(&permits, &value);
		mix(&t->hash, (uint64_t)value);
	}
}

// h: blocks that another thread grows or frees.
static struct { char *at; size_t size; } given[64];
static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;
static void heap(struct thread *t, int r)
{
	for (int i = 0; i < TIMES * 4; i++) {
		size_t size = 1 + t->hash % (i % 16 == 0 ? 200000 : 700);
		char *p = i % 5 == 0 ? calloc(1, size) : i % 5 == 1 ? aligned_alloc(64, (size + 63) & -64ul) : malloc(size);
		MUST(p);
		memset(p, t->me, size);
		mix(&t->hash, (uintptr_t)p);
		pthread_mutex_lock(&given_lock);
		int k = (int)((t->hash >> 20) % 64);
		char *old = given[k].at;
		size_t had = given[k].size;
		given[k].at = p, given[k].size = size;
		pthread_mutex_unlock(&given_lock);
		if (old)
			mix(&t->hash, (uint64_t)old[had - 1]);
		if (old && (i + r) % 3 == 0) {
			old = realloc(old, had * 2);
			memset(old + had, 1, had);
		}
		free(old);
	}
}

// i: streams that all write to and read from, and some that are opened and closed.
static FILE *log_stream, *lines, *memory;
static char *memory_at;
static size_t memory_size;
enum { LINES = 20000 };
static void stdio(struct thread *t, int r)
{
	char line[64];
	for (int i = 0; i < TIMES; i++) {
		fprintf(log_stream, "%d of %d\n", t->me, r);
		putc('a' + t->me, log_stream);
		fputs("b", log_stream);
		fwrite("cd", 1, 2, memory);
		if (!fgets(line, sizeof line, lines)) {
			clearerr(lines);
			rewind(lines);
		} else
			mix(&t->hash, (uint64_t)atoi(line));
		flockfile(memory);
		putc_unlocked('0' + t->me % 10, memory);
		putc_unlocked('.', memory);
		funlockfile(memory);
		mix(&t->hash, (uint64_t)ftell(memory));
	}
	fflush(log_stream);
	FILE *own = fmemopen(line, sizeof line, "w");
	fprintf(own, "%d", r);
	fclose(own);
	mix(&t->hash, (uint64_t)atoi(line));
}

// f: a file of each thread's, written and read again, one that all append to, one that all read and write.
static int appended, opened[MOST], directory, common;
static pthread_mutex_t common_lock = PTHREAD_MUTEX_INITIALIZER;
static void files(struct thread *t, int r)
{
	char name[32], text[100];
	snprintf(name, sizeof name, "own-%d", t->me);
	for (int i = 0; i < TIMES / 4; i++) {
		memset(text, 'a' + (r + i) % 26, sizeof text);
		MUST(pwrite(opened[t->me], text, sizeof text, i * 50) == sizeof text);
		MUST(lseek(opened[t->me], 10, SEEK_SET) == 10 && read(opened[t->me], text, 20) == 20);
		mix(&t->hash, (uint64_t)text[0]);
		MUST(write(appended, name, 6) == 6);
		struct stat st;
		MUST(fstat(appended, &st) == 0);
		mix(&t->hash, (uint64_t)st.st_size);
		uint64_t word = 0;
		pthread_mutex_lock(&common_lock);
		MUST(pread(common, &word, 8, i * 8) >= 0);
		mix(&t->hash, word);
		mix(&word, (uint64_t)t->me);
		MUST(pwrite(common, &word, 8, i * 8) == 8);
		pthread_mutex_unlock(&common_lock);
	}
	int fd = openat(directory, name, O_CREAT | O_RDWR | O_TRUNC, 0600);
	MUST(fd >= 0 && write(fd, name, sizeof name) == sizeof name && close(fd) == 0 && unlinkat(directory, name, 0) == 0);
	mix(&t->hash, (uint64_t)fd);
}

// k: datagrams that any thread may get, a ring of pipes, connections that any thread may accept, a counter.
static int datagrams[2], ring[MOST][2], listener, counter;
static struct sockaddr_in address;
static void sockets(struct thread *t, int r)
{
	for (int i = 0; i < TIMES / 4; i++) {
		uint64_t word = (uint64_t)(t->me * 1000 + r), is, one = 1;
		MUST(send(datagrams[0], &word, 8, 0) == 8 && recv(datagrams[1], &is, 8, 0) == 8);
		mix(&t->hash, is);
		int to = ring[(t->me + 1) % threads][1], from = ring[t->me][0];
		MUST(write(to, &word, 8) == 8);
		struct pollfd p = {from, POLLIN, 0};
		MUST(poll(&p, 1, -1) == 1 && read(from, &is, 8) == 8);
		mix(&t->hash, is);
		MUST(write(counter, &one, 8) == 8);
	}
	uint64_t mine = t->hash, theirs;
	int out = socket(AF_INET, SOCK_STREAM, 0), in;
	MUST(out >= 0 && connect(out, (struct sockaddr *)&address, sizeof address) == 0 && send(out, &mine, 8, 0) == 8);
	MUST((in = accept(listener, NULL, NULL)) >= 0 && recv(in, &theirs, 8, MSG_WAITALL) == 8);
	mix(&t->hash, theirs);
	struct linger gone = {1, 0}; // no states that wait
	setsockopt(out, SOL_SOCKET, SO_LINGER, &gone, sizeof gone);
	MUST(close(in) == 0 && close(out) == 0);
}

// t: threads that are born and end, joined and detached.
static sem_t ended;
static __thread uint64_t own[8];
static void *brief(void *arg)
{
	sigset_t mask;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	own[1] += (uintptr_t)arg + (uintptr_t)sigismember(&mask, SIGTRAP);
	pthread_mutex_lock(&given_lock);
	mix(&shared[0], own[1]);
	pthread_mutex_unlock(&given_lock);
	free(malloc(100));
	return (void *)(uintptr_t)(own[1] + 1);
}

static void *detached(void *arg)
{
	brief(arg);
	sem_post(&ended);
	return NULL;
}

static void churn(struct thread *t, int r)
{
	pthread_t one, two, other;
	void *result;
	MUST(!pthread_create(&one, NULL, brief, (void *)(intptr_t)r) && !pthread_create(&two, NULL, brief, (void *)(intptr_t)t->me) && !pthread_create(&other, NULL, detached, NULL) && !pthread_detach(other));
	MUST(!pthread_join(two, &result) && result == (void *)(intptr_t)(t->me + 1) && !pthread_join(one, &result) && result == (void *)(intptr_t)(r + 1));
	while (sem_wait(&ended))
		;
	pthread_mutex_lock(&given_lock);
	mix(&t->hash, shared[0]);
	pthread_mutex_unlock(&given_lock);
}

// g: signals that are handled and waited for, from the thread itself and from its neighbour; queued, so that none is lost.
static __thread uint64_t handled;
static volatile uint64_t all_handled;
static pthread_t id[MOST];
static void handler(int sig, siginfo_t *info, void *context)
{
	handled += (uint64_t)sig;
	__atomic_fetch_add(&all_handled, (uint64_t)info->si_value.sival_int, __ATOMIC_RELAXED);
	(void)context;
}

static void signals(struct thread *t, int r)
{
	sigset_t waited, old;
	siginfo_t info;
	union sigval one = {.sival_int = 1};
	pthread_t neighbour = id[(t->me + 1) % threads];
	sigemptyset(&waited);
	sigaddset(&waited, SIGRTMIN + 1);
	for (int i = 0; i < TIMES / 5; i++) {
		MUST(!pthread_sigqueue(pthread_self(), SIGRTMIN, one));
		MUST(!pthread_sigqueue(neighbour, SIGRTMIN, one));
		pthread_mutex_lock(&given_lock);
		mix(&shared[1], (uint64_t)(t->me + r));
		pthread_mutex_unlock(&given_lock);
		MUST(!pthread_sigqueue(neighbour, SIGRTMIN + 1, one));
		while (sigwaitinfo(&waited, &info) < 0)
			MUST(errno == EINTR);
		pthread_sigmask(SIG_BLOCK, &waited, &old);
		mix(&t->hash, handled);
	}
}

// o: what is made once, by whoever comes first.
static struct { pthread_once_t once; uint64_t made; } onces[1 << 16];
static __thread struct thread *mine;
static __thread int in_round;
static void make(void)
{
	pthread_mutex_lock(&given_lock);
	mix(&shared[2], (uint64_t)mine->me);
	onces[in_round].made = shared[2];
	pthread_mutex_unlock(&given_lock);
}

static void once(struct thread *t, int r)
{
	mine = t, in_round = r;
	pthread_once(&onces[r].once, make);
	mix(&t->hash, onces[r].made);
}

// l: what libc locks of its own: random numbers, the environment, time zones.
static void locked(struct thread *t, int r)
{
	char name[16], value[24];
	for (int i = 0; i < TIMES; i++) {
		mix(&t->hash, (uint64_t)rand());
		mix(&t->hash, (uint64_t)random());
		struct tm tm;
		time_t when = r * 86400l * 30;
		localtime_r(&when, &tm);
		mix(&t->hash, (uint64_t)tm.tm_hour);
	}
	snprintf(name, sizeof name, "OWN_%d", t->me);
	snprintf(value, sizeof value, "%d", r);
	setenv(name, value, 1);
}

static const struct kind { char letter; void (*f)(struct thread *t, int r); } all[] = {{'m', mutexes}, {'r', rwlocks}, {'c', conditions}, {'b', barriers}, {'s', semaphores}, {'h', heap}, {'i', stdio},
	{'f', files}, {'k', sockets}, {'t', churn}, {'g', signals}, {'o', once}, {'l', locked}};

static void *work(void *arg)
{
	struct thread *t = arg;
	struct timespec soon = {0, 1000000};
	for (int r = 0; r < rounds; r++) {
		for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
			if (strchr(kinds, all[k].letter)) {
				all[k].f(t, r);
				t->done++;
			}
		nanosleep(&soon, NULL);
	}
	pthread_barrier_wait(&barrier); // nobody is sent a signal who has ended
	pthread_mutex_lock(&total_lock);
	total += t->done;
	pthread_mutex_unlock(&total_lock);
	return NULL;
}

// Nobody begins before all are there.
static void *started(void *arg)
{
	pthread_barrier_wait(&barrier);
	return work(arg);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	kinds = argv[1], threads = atoi(argv[2]), rounds = atoi(argv[3]);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	sem_init(&permits, 0, 2);
	sem_init(&ended, 0, 0);
	pthread_spin_init(&spin, 0);
	char dir[256];
	snprintf(dir, sizeof dir, "%s/rolls-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (strpbrk(kinds, "f")) {
		MUST(mkdtemp(dir) && (directory = open(dir, O_RDONLY | O_DIRECTORY)) >= 0 && (appended = openat(directory, "all", O_CREAT | O_WRONLY | O_APPEND, 0600)) >= 0 && unlinkat(directory, "all", 0) == 0);
		MUST((common = openat(directory, "common", O_CREAT | O_RDWR, 0600)) >= 0 && unlinkat(directory, "common", 0) == 0);
		for (int i = 0; i < threads; i++)
			MUST((opened[i] = openat(directory, "one", O_CREAT | O_RDWR, 0600)) >= 0 && unlinkat(directory, "one", 0) == 0);
	}
	if (strpbrk(kinds, "i")) {
		MUST((log_stream = tmpfile()) && (lines = tmpfile()) && (memory = open_memstream(&memory_at, &memory_size)));
		for (int i = 0; i < LINES; i++)
			fprintf(lines, "%d\n", i);
		rewind(lines);
	}
	if (strpbrk(kinds, "k")) {
		socklen_t length = sizeof address;
		address.sin_family = AF_INET;
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0 && (counter = eventfd(0, 0)) >= 0 && (listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		MUST(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 64) == 0 && getsockname(listener, (struct sockaddr *)&address, &length) == 0);
		for (int i = 0; i < threads; i++)
			MUST(pipe(ring[i]) == 0);
	}
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGRTMIN, &sa, NULL);
	sigset_t waited;
	sigemptyset(&waited);
	sigaddset(&waited, SIGRTMIN + 1);
	pthread_sigmask(SIG_BLOCK, &waited, NULL);
	id[0] = pthread_self();
	for (int i = 0; i < threads; i++)
		thread[i].me = i;
	for (int i = 1; i < threads; i++)
		MUST(!pthread_create(&id[i], NULL, started, &thread[i]));
	started(&thread[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(id[i], NULL);
	uint64_t text = 0;
	if (log_stream) {
		rewind(log_stream);
		for (int c; (c = getc(log_stream)) != EOF;)
			text += (uint64_t)c;
		fclose(memory);
		for (size_t i = 0; i < memory_size; i++)
			text += (uint64_t)memory_at[i];
	}
	if (directory)
		rmdir(dir);
	printf("%lu %lu %lu %lu\n", total, text, all_handled, put - got);
	return 0;
}
