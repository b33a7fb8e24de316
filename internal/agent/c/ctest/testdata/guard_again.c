// Threads that take turns at every kind of synchronisation object and leave in memory in which order they came, while the first has each epoch re-executed and compared. Each line says what came of one: its verdict, and the first difference.
// The arguments: threads, epochs, flags of rs_guard_begin, what (0: all is ordered; 1: a race leaves other memory; 2: order of arrival under one lock alone; 3: as 0, without the heap), and how far behind the agent's
// pthread_create rs_guard_begin, _checkpoint, _again and _last are.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ORDERED, RACY, ONE_LOCK, NO_HEAP };
enum { ORDER = 1 << 16, BOXES = 32, QUOTA = 100 };
static int what, n;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, tried = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, again_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, start = PTHREAD_MUTEX_INITIALIZER, boxed = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER, rested = PTHREAD_COND_INITIALIZER, handed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t pair[64];
static pthread_spinlock_t spin;
static sem_t room, filled;
static unsigned quota, over, resting;            // under start
static uint32_t order[ORDER], came;             // under lock
static uint32_t tried_order[ORDER], tried_came;
static uint32_t rw_order[ORDER], rw_came;
static uint32_t spin_order[ORDER], spin_came;
static uint32_t sem_order[ORDER];
static uint32_t sem_came;
static volatile uint32_t racy[ORDER], racy_came; // nothing's
static unsigned hands;                           // under lock
static void *box[BOXES];
static struct { unsigned long failed, got, late, serial, read, woken, addresses, value; unsigned seed; char pad[56]; } own[64] __attribute__((aligned(128)));

static void fail(const char *s)
{
	if (write(2, s, strlen(s)) < 0 || write(2, "\n", 1) < 0)
		_exit(4);
	_exit(3);
}

static void note(uint32_t *list, uint32_t *n_, uint32_t me) { list[(*n_)++ % ORDER] = me * 1000003u; }

// Blocks go through boxes, so that who frees is not who allocated; addresses are kept.
static void blocks(int i)
{
	size_t size = 1 + (size_t)rand_r(&own[i].seed) % 2000;
	char *p = malloc(size);
	memset(p, i, size);
	own[i].addresses = own[i].addresses * 31 + (uintptr_t)p;
	pthread_mutex_lock(&boxed);
	int k = rand_r(&own[i].seed) % BOXES;
	void *old = box[k];
	box[k] = p;
	pthread_mutex_unlock(&boxed);
	free(old);
}

static void step(int i, unsigned turn)
{
	static const struct timespec past = {1, 0}, far = {1l << 33, 0};
	uint32_t k;
	if (what == RACY) {
		// Dozens of chances between two events: what orders those orders little of these.
		for (int j = 0; j < 30; j++) {
			k = racy_came;
			if (j % 3 == 0)
				sched_yield();
			racy[k % ORDER] = (uint32_t)i * 1000003u + turn;
			racy_came = k + 1;
		}
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		return;
	}
	pthread_mutex_lock(&lock);
	note(order, &came, (uint32_t)i);
	if (turn % 5 == 0)
		sched_yield();
	pthread_mutex_unlock(&lock);
	if (what == ONE_LOCK)
		return;
	if (turn % 16 == 0 && (i | 1) < n) {
		if (pthread_barrier_wait(&pair[i / 2]) == PTHREAD_BARRIER_SERIAL_THREAD)
			own[i].serial++;
		return;
	}
	switch (rand_r(&own[i].seed) % 9) {
	case 0:
		if (pthread_mutex_trylock(&tried) != 0) {
			own[i].failed++;
			break;
		}
		note(tried_order, &tried_came, (uint32_t)i);
		own[i].got += tried_came;
		if (turn % 3 == 0)
			sched_yield();
		pthread_mutex_unlock(&tried);
		break;
	case 1: {
		int r = pthread_mutex_timedlock(&tried, turn % 2 ? &past : &far);
		if (r == ETIMEDOUT)
			own[i].late++;
		else if (r == 0) {
			note(tried_order, &tried_came, (uint32_t)i);
			if (turn % 3 == 0)
				sched_yield();
			pthread_mutex_unlock(&tried);
		} else
			fail("pthread_mutex_timedlock");
		break;
	}
	case 2:
		pthread_rwlock_wrlock(&rw);
		note(rw_order, &rw_came, (uint32_t)i);
		pthread_rwlock_unlock(&rw);
		break;
	case 3:
		pthread_rwlock_rdlock(&rw);
		own[i].read = own[i].read * 31 + rw_came;
		if (turn % 3 == 0)
			sched_yield();
		pthread_rwlock_unlock(&rw);
		break;
	case 4:
		pthread_spin_lock(&spin);
		note(spin_order, &spin_came, (uint32_t)i);
		pthread_spin_unlock(&spin);
		break;
	case 5: // as many may be in here as room had
		if (sem_wait(&room) != 0)
			fail("sem_wait");
		own[i].value += sem_trywait(&filled) == 0;
		pthread_mutex_lock(&again_lock);
		pthread_mutex_lock(&again_lock);
		note(sem_order, &sem_came, (uint32_t)i);
		pthread_mutex_unlock(&again_lock);
		pthread_mutex_unlock(&again_lock);
		sem_post(&filled);
		sem_post(&room);
		break;
	case 6: { // some wait for a hand, some give one; nobody waits for long
		pthread_mutex_lock(&lock);
		hands++;
		if (turn % 2)
			pthread_cond_signal(&handed);
		else
			pthread_cond_broadcast(&handed);
		pthread_mutex_unlock(&lock);
		break;
	}
	case 7: {
		pthread_mutex_lock(&lock);
		if (pthread_cond_timedwait(&handed, &lock, &past) == ETIMEDOUT)
			own[i].late++;
		else
			own[i].woken += hands;
		pthread_mutex_unlock(&lock);
		break;
	}
	default:
		if (what != NO_HEAP)
			blocks(i);
	}
}

static void *thread(void *arg)
{
	int i = (int)(intptr_t)arg;
	for (unsigned turn = 0;; turn++) {
		if (turn % QUOTA == 0) {
			pthread_mutex_lock(&start);
			if (++resting == (unsigned)n)
				pthread_cond_signal(&rested);
			while (turn >= quota && !over)
				pthread_cond_wait(&started, &start);
			resting--;
			pthread_mutex_unlock(&start);
		}
		if (over)
			return NULL;
		step(i, turn);
	}
}

int main(int argc, char **argv)
{
	if (argc != 9)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[5]));
	long (*checkpoint)(void) = (long (*)(void))(agent + atol(argv[6]));
	long (*again)(void) = (long (*)(void))(agent + atol(argv[7]));
	void (*last)(void *) = (void (*)(void *))(agent + atol(argv[8]));
	struct { uint32_t why, tid, event, lost, threads, events; uint64_t was, is, at; } l;
	n = atoi(argv[1]), what = atoi(argv[4]);
	int epochs = atoi(argv[2]);
	// Lines are written where no rollback undoes them, and shown at the end: a re-execution must not write them twice.
	char *text = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long r = begin((unsigned)atoi(argv[3]));
	if (r != 0 || text == MAP_FAILED)
		fail("begin");
	sem_init(&room, 0, 3);
	sem_init(&filled, 0, 0);
	pthread_spin_init(&spin, 0);
	pthread_t t[64];
	for (int i = 0; i < n; i++) {
		own[i].seed = (unsigned)i + 1;
		pthread_barrier_init(&pair[i], NULL, 2);
	}
	for (int i = 0; i < n; i++)
		pthread_create(&t[i], NULL, thread, (void *)(intptr_t)i);
	if ((r = checkpoint()) < 0)
		fail("checkpoint");
	for (int e = 0; e < epochs; e++) {
		pthread_mutex_lock(&start);
		quota += QUOTA;
		pthread_cond_broadcast(&started);
		pthread_mutex_unlock(&start);
		// Some epochs end while they work, each third, where all is ordered, when all have done what they had to and wait.
		for (unsigned k = 0; k < (unsigned)(e % 3) * QUOTA; k++) {
			pthread_mutex_lock(&lock);
			note(order, &came, 99);
			pthread_mutex_unlock(&lock);
			if (k % 8 == 0)
				sched_yield();
		}
		pthread_mutex_lock(&start);
		while (e % 3 == 2 && what % 3 == 0 && resting < (unsigned)n)
			pthread_cond_wait(&rested, &start);
		pthread_mutex_unlock(&start);
		r = again();
		last(&l);
		snprintf(text + e * 160, 160, "%ld events %u tid %d event %u at 0x%lx was 0x%lx is 0x%lx lost %u\n", r, l.events, l.tid != 0, l.event, (unsigned long)l.at, (unsigned long)l.was, (unsigned long)l.is, l.lost);
	}
	over = 1;
	pthread_mutex_lock(&start);
	pthread_cond_broadcast(&started);
	pthread_mutex_unlock(&start);
	// Whoever is in a pair's barrier may have no partner any more.
	for (int e = 0; e < epochs; e++)
		fputs(text + e * 160, stdout);
	puts("well");
	fflush(stdout);
	_exit(0);
}
